/* SPDX-License-Identifier: MIT
 *
 * Tests the loader. Every sample must appear once per epoch, for any number of ranks. Batches must
 * be the same with and without a loader thread, and when reading starts at the beginning or at any
 * position. Also tests the generators of data.
 *
 * Covers: data/dataset.c data/loader.c data/order.c data/synth_rows.c
 */
#include "tests/support/alloc.h"
#include "tests/support/data_files.h"

#include <stdatomic.h>

/* ---- data sets whose samples are distinguishable --------------------------------------------- */

/* Returns a data set in which row i has one entry, at index i. */
static struct vb_dataset numbered_rows(int n)
{
    struct vb_dataset set;
    struct rows_mem *mem;
    struct row_buf row = {.n = 0};
    int i;

    assert_int_equal(vb_rows_mem_create(n, &mem), VB_OK);
    for (i = 0; i < n; i++) {
        row.n = 0;
        assert_int_equal(vb_row_buf_add(&row, (uint32_t)i, 1), VB_OK);
        assert_int_equal(vb_sink_put(vb_rows_mem_sink(mem), &row, i % 2), VB_OK);
    }
    assert_int_equal(vb_rows_mem_finish(mem, "numbered", &set), VB_OK);
    vb_rows_mem_destroy(mem);
    vb_row_buf_fini(&row);
    return set;
}

/* Increments seen[i] for each row i in the batch. */
static void count_rows(const struct vb_batch *b, uint8_t *seen)
{
    int i;

    assert_int_equal(b->rows.n, b->n);
    for (i = 0; i < b->n; i++) {
        assert_int_equal(b->rows.at[i + 1] - b->rows.at[i], 1);
        assert_int_equal(b->rows.y[i], b->rows.index[i] % 2);
        seen[b->rows.index[i]]++;
    }
}

static void check_world(const struct vb_dataset *set, int batch, int world, int ahead, int window)
{
    uint8_t *seen = calloc(2, (size_t)set->n);
    uint32_t *soon = calloc((size_t)set->n, sizeof(*soon));
    /* peeked: the batch that vb_loader_peek() returned; the next batch must be the same */
    const struct vb_batch *b, *peeked = NULL;
    struct vb_loader *l;
    int64_t s, total;
    int rank, e, i, n_soon = 0;

    for (rank = 0; rank < world; rank++) {
        struct vb_loader_opts o = {.set = set,
                                   .seed = 3,
                                   .global_batch = batch,
                                   .rank = rank,
                                   .world = world,
                                   .ahead = ahead,
                                   .window = window};

        assert_int_equal(vb_loader_open(&o, &l), VB_OK);
        assert_int_equal(vb_loader_steps(l), (set->n + batch - 1) / batch);
        for (e = 0; e < 2; e++) {
            for (s = 0, total = 0; s < vb_loader_steps(l); s++) {
                assert_int_equal(vb_loader_next(l, &b), VB_OK);
                assert_true(b->epoch == e && b->step == s);
                assert_true(peeked == NULL || peeked == b);
                peeked = s % 3 < 2 ? vb_loader_peek(l) : NULL;
                assert_true(ahead > 0 || s % 3 == 2 || peeked == vb_loader_peek(l));
                assert_true(ahead > 0 || s % 3 == 2 || peeked != NULL);
                assert_true(n_soon == 0 || n_soon == b->n);
                assert_memory_equal(soon, b->which, (size_t)n_soon * sizeof(*soon));
                n_soon = b->n_soon;
                assert_true(ahead == 0 || n_soon == 0);
                assert_true(s + 1 < vb_loader_steps(l) || n_soon == 0);
                if (n_soon > 0)
                    memcpy(soon, b->soon, (size_t)n_soon * sizeof(*soon));
                for (i = 0; s % 3 > 0 && i < b->n; i++)
                    vb_loader_soon(l, i); /* this call may only make the next call faster */
                total += b->n_global;
                count_rows(b, seen + (size_t)e * (size_t)set->n);
            }
            assert_int_equal(total, set->n);
        }
        vb_loader_close(l);
        peeked = NULL;
    }
    for (i = 0; i < 2 * set->n; i++)
        if (seen[i] != 1)
            fail_msg("%d samples, batch %d, %d ranks: sample %d appeared %d times, expected once",
                     set->n, batch, world, i % set->n, seen[i]);
    free(soon);
    free(seen);
}

static void every_sample_appears_once_per_epoch(void **state)
{
    static const int sizes[] = {1, 2, 7, 100, 101, 1000};
    static const int batches[] = {1, 3, 10, 64, 2000};
    struct vb_dataset set;
    size_t s, b;
    int world;

    (void)state;
    for (s = 0; s < VB_COUNT(sizes); s++) {
        set = numbered_rows(sizes[s]);
        for (b = 0; b < VB_COUNT(batches); b++)
            for (world = 1; world <= 5; world++)
                check_world(&set, batches[b], world, (int)(b % 3), 0);
        vb_dataset_destroy(&set);
    }
}

/* The data set has several chunks and windows. The last chunk is short. */
static void windows_contain_every_sample_once(void **state)
{
    struct vb_dataset set = numbered_rows(5 * ORDER_CHUNK + 17), train, test;

    (void)state;
    check_world(&set, 1000, 1, 2, ORDER_CHUNK);
    check_world(&set, 999, 3, 0, 2 * ORDER_CHUNK);
    check_world(&set, 30000, 2, 0, 1);
    assert_int_equal(vb_dataset_split(&set, 0.25, 1, &train, &test), VB_OK);
    vb_dataset_destroy(&set);
    assert_int_equal(train.n + test.n, 5 * ORDER_CHUNK + 17);
    assert_in_range(test.n, 4800, 5500);
    vb_dataset_destroy(&train);
    vb_dataset_destroy(&test);
}

/* ---- the same batches ------------------------------------------------------------------------ */

static uint32_t batch_crc(const struct vb_batch *b, const struct vb_dataset *set, int room)
{
    uint32_t crc = 0;

    if (set->kind == VB_DATA_ROWS) {
        crc = vb_crc32c(crc, b->rows.index, (size_t)b->rows.at[b->n] * 4);
        crc = vb_crc32c(crc, b->rows.value, (size_t)b->rows.at[b->n] * 4);
        /* the rows after the last sample must be empty */
        assert_int_equal(b->rows.at[room], b->rows.at[b->n]);
        return vb_crc32c(crc, b->rows.y, (size_t)room);
    }
    crc = vb_crc32c(crc, b->x, (size_t)room * (size_t)set->features * sizeof(float));
    return vb_crc32c(crc, b->y, (size_t)room * sizeof(*b->y));
}

static void read_on(struct vb_loader *l, const struct vb_dataset *set, int room, int n,
                    uint32_t *crc)
{
    const struct vb_batch *b;
    int i;

    while (n-- > 0) {
        assert_int_equal(vb_loader_next(l, &b), VB_OK);
        *crc++ = batch_crc(b, set, room);
        for (i = 0; n % 3 > 0 && i < b->n; i++)
            vb_loader_soon(l, i);
    }
}

static void check_positions(const struct vb_dataset *set, int window)
{
    struct vb_loader_opts o = {
        .set = set, .seed = 9, .global_batch = 30, .rank = 1, .world = 2, .window = window};
    int steps = (set->n + 29) / 30, n = 2 * steps, i;
    uint32_t *plain = calloc((size_t)n, 4), *ahead = calloc((size_t)n, 4), one;
    struct vb_loader *l;

    assert_int_equal(vb_loader_open(&o, &l), VB_OK);
    read_on(l, set, 15, n, plain);
    vb_loader_close(l);
    o.ahead = 3;
    assert_int_equal(vb_loader_open(&o, &l), VB_OK);
    read_on(l, set, 15, n, ahead);
    assert_memory_equal(plain, ahead, (size_t)n * 4);
    /* the positions include the last batch, which is short and padded with zeros */
    for (i = n - 1; i >= 0; i -= steps / 3 + 1) {
        assert_int_equal(vb_loader_seek(l, i / steps, i % steps), VB_OK);
        read_on(l, set, 15, 1, &one);
        assert_int_equal(one, plain[i]);
    }
    vb_loader_close(l);
    free(plain);
    free(ahead);
}

static void a_batch_depends_only_on_its_position(void **state)
{
    struct vb_dataset set;

    (void)state;
    assert_int_equal(vb_synth_create(1, VB_SYNTH_TRAIN, 100, &set), VB_OK);
    check_positions(&set, 0);
    vb_dataset_destroy(&set);
    assert_int_equal(vb_synth_images(1, VB_SYNTH_TRAIN, 100, 32, 10, &set), VB_OK);
    check_positions(&set, 0);
    vb_dataset_destroy(&set);
    assert_int_equal(vb_synth_rows(1, VB_SYNTH_TRAIN, 3 * ORDER_CHUNK + 5, 5000, &set), VB_OK);
    check_positions(&set, 0);
    check_positions(&set, ORDER_CHUNK);
    vb_dataset_destroy(&set);
}

/* A mapped file must give the same batches as data in memory, although its pages are loaded and
 * released. */
static void a_file_is_streamed(void **state)
{
    struct vb_loader_opts o = {.seed = 4, .global_batch = 500, .world = 1, .window = ORDER_CHUNK};
    struct vb_data_written written;
    struct vb_dataset made, mapped;
    struct vb_data_spec spec;
    struct vb_loader *l;
    uint32_t crc[2][80];
    char why[VB_OPTS_WHY];

    (void)state;
    assert_int_equal(vb_data_spec_parse("synth:kind=criteo,n=20000,features=5000", &spec, why),
                     VB_OK);
    assert_int_equal(
        vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, t_path("rows"), NULL, NULL, &written), VB_OK);
    assert_int_equal(vb_data_open(&spec, 1, VB_SYNTH_TRAIN, &made), VB_OK);
    assert_int_equal(vb_csr_open_lazily(t_path("rows"), 0, &mapped), VB_OK);
    check_positions(&mapped, 2 * ORDER_CHUNK);
    o.set = &made;
    assert_int_equal(vb_loader_open(&o, &l), VB_OK);
    read_on(l, &made, 500, 80, crc[0]); /* these are two epochs */
    vb_loader_close(l);
    o.set = &mapped;
    o.ahead = 2;
    assert_int_equal(vb_loader_open(&o, &l), VB_OK);
    read_on(l, &mapped, 500, 80, crc[1]);
    vb_loader_close(l);
    assert_memory_equal(crc[0], crc[1], sizeof(crc[0]));
    vb_dataset_destroy(&made);
    vb_dataset_destroy(&mapped);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Reads all pieces of the next step. They must be those of this share, in the order of the epoch.
 */
static void check_step(struct vb_loader *l, const struct vb_loader_opts *o, int64_t epoch, int step,
                       const uint32_t *order)
{
    int at = step * o->global_batch, n = o->set->n - at, first, n_share, done = 0;
    const struct vb_batch *b;

    n = n < o->global_batch ? n : o->global_batch;
    vb_share(n, o->rank, o->world, &first, &n_share);
    do {
        assert_int_equal(vb_loader_next(l, &b), VB_OK);
        assert_true(b->epoch == epoch && b->step == step && b->n_global == n);
        assert_int_equal(b->n_share, n_share);
        assert_int_equal(b->first, first + done);
        assert_int_equal(b->position, at + first + done);
        assert_true(b->n <= o->batch_max && (b->n > 0 || n_share == 0));
        assert_memory_equal(b->which, order + at + first + done, (size_t)b->n * sizeof(*order));
        assert_int_equal(b->rows.n, b->n);
        done += b->n;
        assert_int_equal(b->more, done < n_share);
        if (done % 2 == 0)
            (void)vb_loader_peek(l); /* must not change what comes next */
    } while (b->more);
    assert_int_equal(done, n_share);
}

/* Changes between numbers of ranks, also in the middle of a step, and back to earlier steps. */
static void check_reshare(const struct vb_dataset *set, int ahead)
{
    struct vb_loader_opts o = {
        .set = set, .seed = 4, .global_batch = 23, .world = 1, .batch_max = 5, .ahead = ahead};
    int steps = (set->n + 22) / 23, i, epoch, step;
    uint32_t *order = malloc((size_t)set->n * sizeof(*order));
    const struct vb_batch *b;
    struct vb_loader *l;
    long before;

    assert_non_null(order);
    assert_int_equal(vb_loader_open(&o, &l), VB_OK);
    assert_int_equal(vb_loader_next(l, &b), VB_OK);
    before = t_allocations;
    for (i = 0; i < 60; i++) {
        o.world = 1 + i % 6;
        o.rank = i / 6 % o.world;
        epoch = i % 3;
        step = i * 7 % steps;
        assert_int_equal(vb_loader_reshare(l, o.rank, o.world, epoch, step), VB_OK);
        vb_order_fill(o.seed, epoch, set->n, order);
        for (; step < steps && step < i * 7 % steps + 3; step++)
            check_step(l, &o, epoch, step, order);
        if (i % 2 == 0)
            assert_int_equal(vb_loader_next(l, &b), VB_OK);
    }
    assert_int_equal(t_allocations, before);
    assert_int_equal(vb_loader_reshare(l, 2, 2, 0, 0), VB_ERR_USAGE);
    assert_int_equal(vb_loader_reshare(l, 0, 2, 0, steps), VB_ERR_USAGE);
    vb_loader_close(l);
    free(order);
}

static void large_shares_become_pieces(void **state)
{
    struct vb_dataset set = numbered_rows(217);

    (void)state;
    check_reshare(&set, 0);
    check_reshare(&set, 1);
    check_reshare(&set, 3);
    vb_dataset_destroy(&set);
}

/* ---- interface ------------------------------------------------------------------------------- */

static void start_hook(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void batches_allocate_nothing(void **state)
{
    struct vb_dataset set = numbered_rows(1000);
    _Atomic int started = 0;
    struct vb_loader_opts o = {.set = &set,
                               .global_batch = 64,
                               .world = 1,
                               .ahead = 2,
                               .on_start = start_hook,
                               .on_start_arg = &started};
    const struct vb_batch *b;
    struct vb_loader *l;
    long before;
    int i;

    (void)state;
    assert_int_equal(vb_loader_open(&o, &l), VB_OK);
    assert_int_equal(vb_loader_next(l, &b), VB_OK);
    before = t_allocations;
    for (i = 0; i < 200; i++)
        assert_int_equal(vb_loader_next(l, &b), VB_OK);
    assert_int_equal(t_allocations, before);
    assert_int_equal(started, 1);
    vb_loader_close(l);
    vb_dataset_destroy(&set);
}

static void slow_load(void *arg)
{
    usleep(*(useconds_t *)arg);
}

static void a_slow_loader_is_an_error(void **state)
{
    struct vb_dataset set = numbered_rows(10);
    useconds_t long_us = 1500000;
    struct vb_loader_opts o = {.set = &set,
                               .global_batch = 5,
                               .world = 1,
                               .ahead = 1,
                               .timeout_ms = 20,
                               .on_start = slow_load,
                               .on_start_arg = &long_us};
    const struct vb_batch *b;
    struct t_stderr err;
    struct vb_loader *l;
    char said[1024];
    vb_status st;

    (void)state;
    t_stderr_catch(&err);
    st = vb_loader_open(&o, &l);
    if (st == VB_OK)
        st = vb_loader_next(l, &b);
    t_stderr_release(&err, said, sizeof(said));
    assert_int_equal(st, VB_ERR_TIMEOUT);
    assert_non_null(strstr(said, "the loader had no batch ready within 20 ms"));
    vb_loader_close(l);
    vb_dataset_destroy(&set);
}

static void impossible_options_are_refused(void **state)
{
    struct vb_dataset set = numbered_rows(10);
    struct vb_loader_opts bad[] = {{.set = &set, .global_batch = 0, .world = 1},
                                   {.set = &set, .global_batch = 1, .world = 0},
                                   {.set = &set, .global_batch = 1, .world = 2, .rank = 2},
                                   {.set = &set, .global_batch = 1, .world = 1, .ahead = 99}};
    struct t_stderr err;
    struct vb_loader *l = NULL;
    char said[4096];
    size_t i;

    (void)state;
    t_stderr_catch(&err);
    for (i = 0; i < VB_COUNT(bad); i++)
        if (vb_loader_open(&bad[i], &l) != VB_ERR_USAGE)
            break;
    t_stderr_release(&err, said, sizeof(said));
    assert_int_equal(i, VB_COUNT(bad));
    vb_loader_close(l);
    vb_dataset_destroy(&set);
}

/* A large file is checked block by block while it is read. */
static void a_broken_block_is_an_error_of_next(void **state)
{
    struct vb_data_spec spec = {.format = VB_DATA_LIBSVM, .path = t_write("svm", "1 1:1\n", 6)};
    struct vb_loader_opts o = {.global_batch = 1, .world = 1};
    struct vb_data_written written;
    const struct vb_batch *b;
    struct vb_dataset set;
    struct vb_loader *l;
    struct t_stderr err;
    uint8_t file[512];
    char said[1024];
    vb_status st[2];
    size_t len;

    (void)state;
    assert_int_equal(vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, t_path("one"), NULL, NULL, &written),
                     VB_OK);
    len = t_read(t_path("one"), file, sizeof(file));
    file[64 + 8] ^= 1; /* damages a byte of the first block */
    assert_int_equal(vb_csr_open_lazily(t_write("one", file, len), 0, &set), VB_OK);
    o.set = &set;
    for (o.ahead = 0; o.ahead <= 2; o.ahead += 2) {
        t_stderr_catch(&err);
        assert_int_equal(vb_loader_open(&o, &l), VB_OK);
        st[0] = vb_loader_next(l, &b);
        /* every further call fails too, but the error is printed only once */
        st[1] = vb_loader_next(l, &b);
        vb_loader_close(l);
        t_stderr_release(&err, said, sizeof(said));
        assert_true(st[0] == VB_ERR_INPUT && st[1] == VB_ERR_INPUT);
        assert_non_null(strstr(said, "one: offset 64: the checksum of a block is wrong"));
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    }
    vb_dataset_destroy(&set);
}

/* ---- generators ------------------------------------------------------------------------------ */

static uint32_t set_crc(const struct vb_dataset *set, int n)
{
    static uint8_t pixels[3 * 224 * 224];
    struct row_room room;
    struct row row;
    uint32_t crc = 0;
    int i, y;

    for (i = 0; i < n; i++) {
        if (set->kind == VB_DATA_IMAGES) {
            y = vb_dataset_image(set, i, pixels);
            crc = vb_crc32c(crc, pixels, (size_t)set->features);
        } else {
            assert_int_equal(vb_dataset_row(set, i, &row, &room), VB_OK);
            crc = vb_crc32c(crc, row.index, (size_t)row.n * 4);
            crc = vb_crc32c(crc, row.value, (size_t)row.n * 4);
            y = row.y;
        }
        crc = vb_crc32c(crc, &y, sizeof(y));
    }
    return crc;
}

static uint32_t made_crc(const char *text, uint64_t seed, enum vb_synth_part part, int n)
{
    struct vb_data_spec spec;
    struct vb_dataset set;
    char why[VB_OPTS_WHY];
    uint32_t crc;

    assert_int_equal(vb_data_spec_parse(text, &spec, why), VB_OK);
    assert_int_equal(vb_data_open(&spec, seed, part, &set), VB_OK);
    crc = set_crc(&set, n);
    vb_dataset_destroy(&set);
    return crc;
}

/* The generated data must not depend on n or on the machine. Their checksums were recorded. */
static void generators_never_change(void **state)
{
    static const struct {
        const char *few, *many;
        uint32_t crc;
    } all[] = {
        {"synth:kind=digits,n=30", "synth:kind=digits,n=50,test=30", 0x4578690du},
        {"synth:kind=cifar,n=30", "synth:kind=cifar,n=500", 0x529db447u},
        {"synth:kind=imagenet,n=30", "synth:kind=imagenet,n=31", 0x5f088450u},
        {"synth:kind=criteo,n=30", "synth:kind=criteo,n=5000000", 0x21c49235u},
        {"synth:kind=criteo,n=30,features=1000", "synth:kind=criteo,n=40,features=1000",
         0xea9c0465u},
        {"synth:kind=criteo,n=30,features=2000000000", "synth:kind=criteo,n=40,features=2000000000",
         0xcda0709fu},
    };
    uint32_t crc;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(all); i++) {
        crc = made_crc(all[i].few, 1, VB_SYNTH_TRAIN, 30);
        assert_int_equal(made_crc(all[i].many, 1, VB_SYNTH_TRAIN, 30), crc);
        assert_int_not_equal(made_crc(all[i].many, 2, VB_SYNTH_TRAIN, 30), crc);
        assert_int_not_equal(made_crc(all[i].many, 1, VB_SYNTH_TEST, 30), crc);
        print_message("%s: 0x%08xu\n", all[i].few, crc);
        assert_int_equal(crc, all[i].crc);
    }
}

static void generated_rows_resemble_criteo(void **state)
{
    struct vb_dataset set;
    struct vb_data_facts facts;
    struct row_room room;
    struct row row;
    double planted;
    int i, e;

    (void)state;
    assert_int_equal(vb_synth_rows(1, VB_SYNTH_TEST, 20000, VB_SYNTH_ROW_FEATURES, &set), VB_OK);
    for (i = 0; i < 2000; i++) {
        assert_int_equal(vb_dataset_row(&set, i, &row, &room), VB_OK);
        assert_in_range(row.n, 26, 39);
        for (e = 0; e < row.n; e++)
            assert_true(row.index[e] < VB_SYNTH_ROW_FEATURES &&
                        (e == 0 || row.index[e] > row.index[e - 1]));
    }
    assert_int_equal(vb_data_look(&set, &facts), VB_OK);
    assert_true(facts.count[1] > 3000 && facts.count[1] < 10000);
    vb_data_facts_fini(&facts);
    assert_true(vb_synth_planted(&set, set.n, &planted));
    assert_true(planted > 0.75 && planted < 0.9);
    vb_dataset_destroy(&set);
    set = numbered_rows(3);
    assert_false(vb_synth_planted(&set, 3, &planted));
    vb_dataset_destroy(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_appears_once_per_epoch),
        cmocka_unit_test(windows_contain_every_sample_once),
        cmocka_unit_test(a_batch_depends_only_on_its_position),
        cmocka_unit_test(a_file_is_streamed),
        cmocka_unit_test(large_shares_become_pieces),
        cmocka_unit_test(batches_allocate_nothing),
        cmocka_unit_test(a_slow_loader_is_an_error),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(a_broken_block_is_an_error_of_next),
        cmocka_unit_test(generators_never_change),
        cmocka_unit_test(generated_rows_resemble_criteo),
    };

    return T_RUN_IN_DIR(tests);
}
