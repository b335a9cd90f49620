/* SPDX-License-Identifier: MIT
 *
 * Tests the digest of data, the key that processes compare, and packed data.
 */
#include "tests/support/data_files.h"

static struct vb_data_ask synth(int n, uint64_t seed)
{
    struct vb_data_ask ask = {.data = {.format = VB_DATA_SYNTH, .synth = VB_SYNTH_DIGITS}};

    ask.data.n_train = n;
    ask.data.n_test = 7;
    ask.seed = seed;
    return ask;
}

static struct vb_data_ask libsvm(const char *path, double share)
{
    return (struct vb_data_ask){.data = {.format = VB_DATA_LIBSVM, .path = path},
                                .test_share = share,
                                .no_test = share == 0,
                                .seed = 5};
}

static const char *write_rows(const char *name, int n, int odd)
{
    char text[4096];
    size_t len = 0;
    int i;

    for (i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%d %d:%d 9:1\n", i % 2, 1 + i % 5,
                                i == odd ? 77 : i + 1);
    return t_write(name, text, len);
}

struct digests {
    uint64_t train, test;
};

static struct digests digests(const struct vb_data_ask *ask)
{
    struct vb_dataset train, test;
    struct digests d;

    assert_int_equal(vb_data_open_both(ask, &train, &test), VB_OK);
    d = (struct digests){vb_dataset_digest(&train), vb_dataset_digest(&test)};
    vb_dataset_destroy(&train);
    vb_dataset_destroy(&test);
    return d;
}

static void the_digest_depends_on_the_contents(void **state)
{
    struct vb_data_ask a = synth(50, 1), b = synth(50, 2), c = synth(51, 1);
    struct digests of_a = digests(&a), rows;

    (void)state;
    assert_true(of_a.train == digests(&a).train && of_a.test == digests(&a).test);
    assert_true(of_a.train != of_a.test && of_a.train != digests(&b).train);
    assert_true(of_a.train != digests(&c).train && of_a.test == digests(&c).test);

    a = libsvm(write_rows("rows", 40, -1), 0.25);
    b = libsvm(write_rows("same", 40, -1), 0.25);
    rows = digests(&a);
    assert_true(rows.train == digests(&b).train && rows.train != rows.test);
    b = libsvm(write_rows("odd", 40, 3), 0.25);
    assert_true(rows.train != digests(&b).train);
    a.seed = 6; /* the split is another one */
    assert_true(rows.train != digests(&a).train);
}

/* Data that is generated on demand, and mapped files. */
static void data_outside_of_memory_has_a_digest(void **state)
{
    static const enum vb_synth_kind kinds[] = {VB_SYNTH_CIFAR, VB_SYNTH_IMAGENET, VB_SYNTH_CRITEO};
    struct vb_data_written written;
    struct vb_data_ask ask = synth(50, 1), other;
    uint64_t key;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(kinds); i++) {
        ask.data.synth = kinds[i];
        other = ask;
        other.seed = 2;
        assert_true(digests(&ask).train == digests(&ask).train);
        assert_true(digests(&ask).train != digests(&other).train);
        assert_false(vb_data_key(&ask, &key));
    }
    for (i = 0; i < 2; i++) {
        struct vb_data_spec spec = {.format = VB_DATA_LIBSVM,
                                    .path = write_rows("text", 40, i == 0 ? -1 : 39)};

        assert_int_equal(vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, t_path(i == 0 ? "a" : "b"), NULL,
                                         NULL, &written),
                         VB_OK);
    }
    ask = libsvm(t_path("a"), 0.25);
    other = libsvm(t_path("b"), 0.25);
    ask.data.format = other.data.format = VB_DATA_CSR;
    assert_true(digests(&ask).train != digests(&other).train);
    assert_false(vb_data_key(&ask, &key));
}

static uint64_t key_of(const struct vb_data_ask *ask)
{
    uint64_t key;

    assert_true(vb_data_key(ask, &key));
    return key;
}

static void the_key_names_files_and_options(void **state)
{
    struct vb_data_ask a = synth(50, 1), b = synth(50, 2), c = synth(51, 1);
    uint64_t key;

    (void)state;
    assert_true(key_of(&a) == key_of(&a) && key_of(&a) != key_of(&b) && key_of(&a) != key_of(&c));
    a = libsvm(write_rows("one", 40, -1), 0.25);
    b = libsvm(write_rows("two", 40, -1), 0.25);
    assert_true(key_of(&a) != key_of(&b)); /* the contents are equal, but nobody knows that yet */
    assert_int_equal(symlink(t_path("one"), t_path("link")), 0);
    c = libsvm(t_path("link"), 0.25);
    assert_true(key_of(&a) == key_of(&c));
    c.test_share = 0.5;
    assert_true(key_of(&a) != key_of(&c));
    c = libsvm(t_path("missing"), 0.25);
    assert_false(vb_data_key(&c, &key));
}

static void same_samples(const struct vb_dataset *a, const struct vb_dataset *b)
{
    assert_true(a->kind == b->kind && a->n == b->n && a->features == b->features);
    assert_true(a->classes == b->classes && a->row_max == b->row_max && a->c == b->c);
    assert_true(vb_dataset_digest(a) == vb_dataset_digest(b));
}

static void check_packed(const struct vb_data_ask *ask)
{
    struct vb_dataset train, test, own_train, own_test, read_train, read_test;
    struct digests before = digests(ask);
    struct vb_mem mem;

    assert_int_equal(vb_data_open_both(ask, &train, &test), VB_OK);
    assert_int_equal(vb_data_open_both(ask, &own_train, &own_test), VB_OK);
    assert_int_equal(vb_data_pack(&train, &test, &mem), VB_OK);
    assert_int_equal(vb_mem_seal(&mem), VB_OK);
    assert_int_equal(vb_data_unpack(mem.ptr, mem.len_bytes, &read_train, &read_test), VB_OK);
    assert_true(vb_dataset_digest(&train) == before.train);
    assert_true(vb_dataset_digest(&test) == before.test);
    same_samples(&read_train, &own_train);
    same_samples(&read_test, &own_test);
    vb_dataset_destroy(&train);
    vb_dataset_destroy(&test);
    same_samples(&read_train, &own_train); /* each pair of sets has stores of its own */
    vb_dataset_destroy(&read_train);
    vb_dataset_destroy(&read_test);
    vb_dataset_destroy(&own_train);
    vb_dataset_destroy(&own_test);
    vb_mem_unmap(&mem);
}

static void packed_data_is_the_same(void **state)
{
    struct vb_data_ask images = synth(50, 1), split = synth(50, 1), rows, all;

    (void)state;
    split.test_share = 0.3;
    rows = libsvm(write_rows("rows", 40, -1), 0.25);
    all = libsvm(t_path("rows"), 0); /* both sets are parts of one store */
    check_packed(&images);
    check_packed(&split);
    check_packed(&rows);
    check_packed(&all);
}

/* Whatever a word of the head says, nothing outside of the memory is used. */
static void a_broken_head_is_refused(void **state)
{
    struct vb_data_ask ask = libsvm(write_rows("rows", 40, -1), 0.25);
    static const uint64_t bad[] = {UINT64_MAX, UINT64_MAX / 64 * 64, 1, INT64_MAX};
    struct vb_dataset train, test, a, b;
    struct vb_mem mem;
    size_t at, i, refused = 0;

    (void)state;
    vb_log_set_level((enum vb_level) - 1);
    assert_int_equal(vb_data_open_both(&ask, &train, &test), VB_OK);
    assert_int_equal(vb_data_pack(&train, &test, &mem), VB_OK);
    vb_dataset_destroy(&train);
    vb_dataset_destroy(&test);
    for (at = 0; at < 60; at++)
        for (i = 0; i < VB_COUNT(bad); i++) {
            uint64_t *word = (uint64_t *)mem.ptr + at, kept = *word;

            *word = bad[i];
            if (vb_data_unpack(mem.ptr, mem.len_bytes, &a, &b) == VB_OK) {
                vb_dataset_destroy(&a);
                vb_dataset_destroy(&b);
            } else {
                refused++;
            }
            *word = kept;
        }
    vb_log_set_level(VB_LEVEL_WARN);
    assert_true(refused > 60);
    assert_int_equal(vb_data_unpack(mem.ptr, 64, &a, &b), VB_ERR_INPUT);
    vb_mem_unmap(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digest_depends_on_the_contents),
        cmocka_unit_test(data_outside_of_memory_has_a_digest),
        cmocka_unit_test(the_key_names_files_and_options),
        cmocka_unit_test(packed_data_is_the_same),
        cmocka_unit_test(a_broken_head_is_refused),
    };

    return T_RUN_IN_DIR(tests);
}
