/* SPDX-License-Identifier: MIT
 *
 * Tests sparse allreduce with 1 to 8 ranks, over every transport and with both algorithms. The
 * result must equal a naive sum, bit for bit.
 *
 * Linked with --wrap=malloc and similar options to count allocations, because a call must not
 * allocate.
 *
 * Covers: net/sparse/sparse_allreduce.c net/sparse/sparse_open.c
 * Covers: net/sparse/sparse_path.c net/sparse/sparse_send.c
 */
#include "tests/support/alloc.h"
#include "tests/support/ranks.h"
#include "tests/support/rdma.h"
#include "tests/support/random.h"

#include <math.h>
#include <time.h>

#define CRITEO 33762578u
#define MAX_NNZ 3000

static enum vb_transport_choice transports[T_TRANSPORTS];
static size_t n_transports;
static int most_ranks = 8;

struct list {
    uint32_t index[MAX_NNZ];
    float value[MAX_NNZ];
    size_t n;
};

/* Kinds of lists that the ranks sum. */
enum kind {
    EMPTY,
    ONE_EMPTY, /* the list of rank 1 is empty */
    ONLY_LAST, /* only the last rank has entries */
    EQUAL,     /* all ranks have the same indices */
    DISJOINT,
    /* each rank has the indices of one range, and the ranges are in the opposite order of the
     * owners */
    OWN_RANGE,
    SKEWED,
    UNEVEN,  /* lists of very different lengths */
    SINGLE,  /* all ranks have the same single index */
    EDGES,   /* only the first and the last possible index */
    STRANGE, /* NaN, infinities, zeros of both signs, subnormals, and values that cancel out */
    KINDS
};

/* ---- lists ----------------------------------------------------------------------------------- */

static float any_value(uint32_t *seed)
{
    static const uint32_t strange[] = {0x80000000u, 0,           0x7f800000u, 0xff800000u,
                                       0x7fc00000u, 0xffc00001u, 0x7f800001u, 1,
                                       0x80000001u, 0x3f800000u, 0xbf800000u, 0x007fffffu};
    uint32_t kind = t_random(seed) % 64;

    if (*seed % 7 == 0 && kind < VB_COUNT(strange))
        return vb_bits_float(strange[kind]);
    return ((float)t_random(seed) / (1 << 23) - 1.0f) * (float)(1 << t_random(seed) % 24);
}

static float strange_value(uint32_t *seed)
{
    float value;

    do
        value = any_value(seed);
    while (value == value && value != 0 && fabsf(value) > 1e-30f && fabsf(value) < 1e30f &&
           t_random(seed) % 8 != 0);
    return value;
}

static uint32_t skewed(uint32_t *seed, uint64_t below)
{
    double u = (double)t_random(seed) / (1 << 24);

    return (uint32_t)(u * u * u * u * (double)below);
}

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Draws up to n different indices from first to end - 1, in ascending order. */
static void draw(struct list *l, size_t n, uint64_t first, uint64_t end, uint32_t *seed)
{
    size_t i, m = 0;

    for (i = 0; i < n && end > first; i++)
        l->index[i] = (uint32_t)first + skewed(seed, end - first);
    n = i;
    qsort(l->index, n, sizeof(*l->index), by_index);
    for (i = 0; i < n; i++)
        if (m == 0 || l->index[m - 1] != l->index[i])
            l->index[m++] = l->index[i];
    l->n = m;
}

static size_t length_of(enum kind kind, int rank, int world)
{
    switch (kind) {
    case EMPTY:
        return 0;
    case ONE_EMPTY:
        return rank == 1 ? 0 : 700;
    case ONLY_LAST:
        return rank == world - 1 ? 900 : 0;
    case UNEVEN:
        return rank % 2 == 0 ? MAX_NNZ : 5;
    default:
        return MAX_NNZ / 2;
    }
}

/* Makes the list of a rank. The list depends only on the arguments, so every rank can make the
 * lists of all ranks. */
static void make_list(struct list *l, enum kind kind, int rank, int world, uint64_t features)
{
    uint32_t seed = (uint32_t)kind * 977 + 7, i;
    uint64_t share = features / (uint64_t)world, first = (uint64_t)(world - 1 - rank) * share;

    if (kind != EQUAL)
        seed += (uint32_t)rank * 7919;
    draw(l, length_of(kind, rank, world), kind == OWN_RANGE ? first : 0,
         kind == OWN_RANGE ? first + share : features, &seed);
    if (kind == DISJOINT)
        for (i = 0; i < l->n; i++)
            l->index[i] = i * (uint32_t)world + (uint32_t)rank;
    if (kind == SINGLE) {
        l->n = 1;
        l->index[0] = (uint32_t)(features / 3);
    }
    if (kind == EDGES) {
        l->n = 2;
        l->index[0] = 0;
        l->index[1] = (uint32_t)(features - 1);
    }
    seed += (uint32_t)rank;
    for (i = 0; i < l->n; i++)
        l->value[i] = kind == STRANGE ? strange_value(&seed) : any_value(&seed);
}

/* ---- the naive sum --------------------------------------------------------------------------- */

struct sum {
    uint32_t *index;
    float *value;
    size_t n;
};

/* Finds the smallest index in the rest of all lists. at[r] is the first entry of list r that
 * belongs to the rest. Returns false if the rest is empty. */
static bool smallest(const struct list *lists, const size_t *at, int world, uint32_t *index_p)
{
    bool any = false;
    int r;

    for (r = 0; r < world; r++) {
        if (at[r] == lists[r].n || (any && lists[r].index[at[r]] >= *index_p))
            continue;
        *index_p = lists[r].index[at[r]];
        any = true;
    }
    return any;
}

/* Adds the values of the index in rank order. Ranks without the index are left out, as net.h
 * promises. */
static float add(const struct list *lists, size_t *at, int world, uint32_t index)
{
    float sum = 0, value;
    bool any = false;
    int r;

    for (r = 0; r < world; r++) {
        if (at[r] == lists[r].n || lists[r].index[at[r]] != index)
            continue;
        value = lists[r].value[at[r]++];
        value = value == 0 ? 0.0f : value;
        sum = any ? sum + value : value;
        any = true;
    }
    return sum;
}

static void naive_sum(const struct list *lists, int world, enum vb_reduce how, struct sum *sum)
{
    size_t at[T_RANKS_MAX] = {0};
    uint32_t index = 0;
    float value;

    sum->n = 0;
    while (smallest(lists, at, world, &index)) {
        value = add(lists, at, world, index);
        if (how == VB_REDUCE_MEAN)
            value /= (float)world;
        sum->index[sum->n] = index;
        sum->value[sum->n++] = value != value ? vb_bits_float(0x7fc00000u) : value;
    }
}

/* ---- comparison of bits ---------------------------------------------------------------------- */

struct bench {
    struct vb_group *g;
    struct list *lists; /* lists of all ranks */
    struct sum want;
    int rank, world;
};

static int bench_init(struct bench *b, struct vb_group *g)
{
    b->g = g;
    b->rank = vb_group_rank(g);
    b->world = vb_group_world(g);
    b->lists = calloc((size_t)b->world, sizeof(*b->lists));
    b->want.index = calloc((size_t)b->world * MAX_NNZ, sizeof(*b->want.index));
    b->want.value = calloc((size_t)b->world * MAX_NNZ, sizeof(*b->want.value));
    return T_WRONG(b->lists != NULL && b->want.index != NULL && b->want.value != NULL);
}

static void bench_fini(struct bench *b)
{
    free(b->lists);
    free(b->want.index);
    free(b->want.value);
}

static int compare(struct bench *b, struct vb_sparse *s, enum vb_reduce how)
{
    const struct list *mine = &b->lists[b->rank];
    const uint32_t *index = NULL;
    const float *value = NULL;
    size_t n = 99, i;

    if (T_WRONG(vb_sparse_allreduce(s, mine->index, mine->value, mine->n, how, &index, &value,
                                    &n) == VB_OK))
        return 1;
    if (T_WRONG(n == b->want.n))
        return 1;
    for (i = 0; i < n; i++)
        if (index[i] != b->want.index[i] ||
            vb_float_bits(value[i]) != vb_float_bits(b->want.value[i])) {
            fprintf(stderr,
                    "rank %d of %d ranks, word %zu of %zu words: found index %u and value bits "
                    "%08x, expected index %u and value bits %08x\n",
                    b->rank, b->world, i, n, index[i], vb_float_bits(value[i]), b->want.index[i],
                    vb_float_bits(b->want.value[i]));
            return 1;
        }
    return 0;
}

/* Returns whether the mean of these lists is tested as well. It is tested for values where the
 * division is critical, and for one other kind. */
static bool with_mean(enum kind kind)
{
    return kind == STRANGE || kind == SKEWED;
}

/* Sums lists of all kinds with each context, and compares the results with the naive sum. */
static int all_kinds(struct bench *b, struct vb_sparse **all, int n_all, uint64_t features)
{
    int wrong = 0, kind, how, c, r;

    for (kind = 0; kind < KINDS && wrong == 0; kind++) {
        for (r = 0; r < b->world; r++)
            make_list(&b->lists[r], (enum kind)kind, r, b->world, features);
        for (how = VB_REDUCE_SUM; how <= (int)with_mean((enum kind)kind); how++) {
            naive_sum(b->lists, b->world, (enum vb_reduce)how, &b->want);
            /* bench_fini() frees the memory. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
            for (c = 0; c < n_all && wrong == 0; c++)
                wrong += compare(b, all[c], (enum vb_reduce)how);
        }
        if (wrong > 0)
            fprintf(stderr, "kind %d, %llu features\n", kind, (unsigned long long)features);
    }
    return wrong;
}

/* Both algorithms, and the algorithm that the cost model chooses, must give the bits of the naive
 * sum. */
static int both_ways(struct vb_group *g, void *arg)
{
    const uint64_t *features = arg;
    struct vb_sparse_opts opts = {.features = *features, .max_nnz = MAX_NNZ};
    struct vb_sparse *all[3] = {NULL};
    struct bench b;
    int wrong, c;

    wrong = bench_init(&b, g);
    for (c = 0; c < 3; c++) {
        opts.path = (enum vb_sparse_path)c;
        wrong += T_WRONG(vb_sparse_open(g, &opts, &all[c]) == VB_OK);
    }
    if (wrong == 0)
        wrong += all_kinds(&b, all, 3, *features);
    if (wrong == 0) {
        wrong += T_WRONG(vb_sparse_took(all[1]) == VB_SPARSE_SPARSE);
        wrong += T_WRONG(vb_sparse_took(all[2]) == VB_SPARSE_DENSE);
    }
    for (c = 0; c < 3; c++)
        vb_sparse_close(all[c]);
    bench_fini(&b);
    return wrong;
}

/* Tests the sparse algorithm alone, with so many features that a dense vector would need
 * gigabytes. */
static int sparse_only(struct vb_group *g, void *arg)
{
    const uint64_t *features = arg;
    struct vb_sparse_opts opts = {.features = *features, .max_nnz = MAX_NNZ};
    struct vb_sparse *s = NULL;
    struct bench b = {0};
    int wrong;

    wrong = bench_init(&b, g);
    wrong += T_WRONG(vb_sparse_open(g, &opts, &s) == VB_OK);
    if (wrong == 0) {
        wrong += all_kinds(&b, &s, 1, *features);
        wrong += T_WRONG(vb_sparse_took(s) == VB_SPARSE_SPARSE);
    }
    vb_sparse_close(s);
    bench_fini(&b);
    return wrong;
}

static void by_two(t_rank_fn fn, void (*run)(const struct t_job *job))
{
    struct t_job job = {.fn = fn, .world = 2};
    size_t t;

    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        run(&job);
    }
}

static void everywhere(t_rank_fn fn, uint64_t features, int first, int last)
{
    struct t_job job = {.fn = fn, .arg = &features};
    size_t t;

    for (t = 0; t < n_transports; t++)
        for (job.world = first; job.world <= last && job.world <= most_ranks; job.world++) {
            job.transport = transports[t];
            t_as_threads(&job);
        }
}

static void both_algorithms_give_the_bits_of_the_naive_sum(void **state)
{
    (void)state;
    everywhere(both_ways, 24001, 1, 8);
}

static void long_lists_give_the_bits_of_the_naive_sum(void **state)
{
    (void)state;
    everywhere(both_ways, 3 * MAX_NNZ / 2 * 4, 3, 3);
}

static void large_index_spaces_work(void **state)
{
    (void)state;
    everywhere(sparse_only, CRITEO, 1, 2);
    everywhere(sparse_only, CRITEO, 8, 8);
    everywhere(sparse_only, UINT32_MAX, 3, 3);
    everywhere(sparse_only, (uint64_t)UINT32_MAX + 1, 2, 2);
}

/* Runs the ranks as processes, and then as threads with progress threads. */
static void other_kinds_of_ranks_agree(void **state)
{
    uint64_t features = 24001;
    struct t_job job = {.fn = both_ways, .arg = &features, .world = 3};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        job.progress = false;
        t_as_processes(&job);
        job.progress = true;
        t_as_threads(&job);
    }
}

/* ---- the cost model -------------------------------------------------------------------------- */

/* Sums lists of the first n features. Checks that the algorithm `way` was used, and that the cost
 * model predicts less time for this algorithm than for the other one. */
static int check_choice(struct vb_group *g, uint64_t features, uint32_t n, enum vb_sparse_path way)
{
    enum vb_sparse_path other = way == VB_SPARSE_DENSE ? VB_SPARSE_SPARSE : VB_SPARSE_DENSE;
    struct vb_sparse_opts opts = {.features = features, .max_nnz = n};
    uint32_t *index = calloc(n, sizeof(*index)), i;
    float *value = calloc(n, sizeof(*value));
    const uint32_t *out_index;
    struct vb_sparse *s = NULL;
    size_t n_out = 0;
    const float *out;
    int wrong = 0;

    if (index == NULL || value == NULL || vb_sparse_open(g, &opts, &s) != VB_OK) {
        free(index);
        free(value);
        return 1;
    }
    for (i = 0; i < n; i++)
        index[i] = i;
    wrong += T_WRONG(
        vb_sparse_allreduce(s, index, value, n, VB_REDUCE_SUM, &out_index, &out, &n_out) == VB_OK);
    wrong += T_WRONG(vb_sparse_took(s) == way && n_out == n);
    wrong += T_WRONG(vb_sparse_predict_us(s, way) < vb_sparse_predict_us(s, other));
    vb_sparse_close(s);
    free(index);
    free(value);
    return wrong;
}

/* Lists of all features are cheaper to sum as vectors. Lists of a few among very many features are
 * cheaper to sum as lists, even if a note takes long on a busy machine. */
static int check_choices(struct vb_group *g, void *arg)
{
    (void)arg;
    return check_choice(g, 200000, 200000, VB_SPARSE_DENSE) +
           check_choice(g, CRITEO, 10, VB_SPARSE_SPARSE);
}

static void the_cheaper_algorithm_is_chosen(void **state)
{
    (void)state;
    by_two(check_choices, t_as_processes);
}

/* ---- merging --------------------------------------------------------------------------------- */

static int merge_then_sum(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {.features = 10, .max_nnz = 8};
    uint32_t index[9] = {9, 3, 9, 0, 3, 9, 5, 1};
    float value[9] = {1e8f, 2, 1, 4, 5, -1e8f, -0.0f, 8};
    struct vb_sparse *s = NULL;
    const uint32_t *sum_index;
    const float *sum;
    size_t n = 8, n_sum = 0;
    int wrong = 0;

    (void)arg;
    if (T_WRONG(vb_sparse_open(g, &opts, &s) == VB_OK))
        return 1;
    wrong += T_WRONG(vb_sparse_merge(s, index, value, &n) == VB_OK);
    wrong += T_WRONG(n == 5 && index[0] == 0 && index[1] == 1 && index[2] == 3 && index[3] == 5);
    wrong += T_WRONG(value[2] == 7 && vb_float_bits(value[3]) == 0);
    wrong += T_WRONG(index[4] == 9 && value[4] == (1e8f + 1) - 1e8f);
    wrong += T_WRONG(
        vb_sparse_allreduce(s, index, value, n, VB_REDUCE_SUM, &sum_index, &sum, &n_sum) == VB_OK);
    wrong += T_WRONG(n_sum == 5 && sum[2] == 7 * (float)vb_group_world(g));
    n = 9;
    wrong += T_WRONG(vb_sparse_merge(s, index, value, &n) == VB_ERR_USAGE && n == 9);
    n = 1;
    index[0] = 10;
    wrong += T_WRONG(vb_sparse_merge(s, index, value, &n) == VB_ERR_USAGE);
    n = 0;
    wrong += T_WRONG(vb_sparse_merge(s, index, value, &n) == VB_OK && n == 0);
    vb_sparse_close(s);
    return wrong;
}

static void duplicates_of_a_rank_are_merged(void **state)
{
    struct t_job job = {.fn = merge_then_sum, .world = 2, .transport = VB_TRANSPORT_SHM};

    (void)state;
    t_as_threads(&job);
}

/* ---- bytes and allocations ------------------------------------------------------------------- */

#define WIRE_NNZ 40000
#define WIRE_CALLS 10

/* Makes the list of a batch of 1,000 rows with 39 entries each. About 9,000 indices are
 * distinct. */
static size_t make_batch(struct vb_sparse *s, int rank, uint32_t *index, float *value)
{
    uint32_t seed = (uint32_t)rank * 77 + 3;
    size_t i, n = 39000;

    for (i = 0; i < n; i++) {
        index[i] = (uint32_t)(pow((double)t_random(&seed) / (1 << 24), 38) * (CRITEO - 1));
        value[i] = any_value(&seed);
    }
    return vb_sparse_merge(s, index, value, &n) == VB_OK ? n : 0;
}

/* The expected number of bytes, for N ranks together: (N - 1) / N of all nonzeros are sent to their
 * owner, with 8 bytes each. Each sum is sent to all ranks but its owner, with 8 bytes each. In
 * addition, the ranks send lengths and samples of their lists. */
static int count_bytes_and_allocations(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {
        .features = CRITEO, .max_nnz = WIRE_NNZ, .path = VB_SPARSE_SPARSE};
    uint32_t *index = calloc(WIRE_NNZ, sizeof(*index));
    float *value = calloc(WIRE_NNZ, sizeof(*value));
    uint64_t mine[2], all[2 * T_RANKS_MAX], wire = 0, words = 0;
    struct timespec pause = {.tv_nsec = 600 * 1000 * 1000};
    int world = vb_group_world(g), wrong = 0, i;
    const uint32_t *sum_index;
    const float *sum;
    struct vb_sparse *s = NULL;
    double theory;
    size_t n, n_sum = 0;
    long before;

    (void)arg;
    if (index == NULL || value == NULL || vb_sparse_open(g, &opts, &s) != VB_OK) {
        free(index);
        free(value);
        return 1;
    }
    n = make_batch(s, vb_group_rank(g), index, value);
    nanosleep(&pause, NULL); /* until heartbeats have begun */
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    before = t_allocations;
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (i = 0; i < WIRE_CALLS && wrong == 0; i++) {
        wrong += T_WRONG(vb_sparse_allreduce(s, index, value, n, VB_REDUCE_MEAN, &sum_index, &sum,
                                             &n_sum) == VB_OK);
        wrong += T_WRONG(vb_sparse_merge(s, index, value, &n) == VB_OK);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(t_allocations == before);
    mine[0] = vb_sparse_wire_bytes(s);
    mine[1] = n;
    wrong += T_WRONG(vb_group_gather(g, mine, sizeof(mine), all) == VB_OK);
    for (i = 0; i < world; i++) {
        wire += all[2 * i];
        words += all[2 * i + 1];
    }
    theory = 8.0 * (world - 1) * ((double)words / world + (double)n_sum) * WIRE_CALLS;
    wrong += T_WRONG(n > 8000 && n < 11000);
    if (vb_group_rank(g) == 0)
        print_message("  %s, %d ranks: %.4f times the bytes of the theory\n",
                      vb_group_transports(g), world, (double)wire / theory);
    wrong += T_WRONG((double)wire <= 1.02 * theory && (double)wire > 0.97 * theory);
    vb_sparse_close(s);
    free(index);
    free(value);
    return wrong;
}

static void no_more_bytes_than_needed_and_no_allocation(void **state)
{
    struct t_job job = {.fn = count_bytes_and_allocations};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (job.world = 2; job.world <= 5 && job.world <= most_ranks; job.world += 3) {
            job.transport = transports[t];
            t_as_threads(&job);
        }
    assert_true(t_allocations > 0); /* otherwise the counter does not work */
}

/* ---- long lists ------------------------------------------------------------------------------ */

#define LONG ((size_t)1100000)

/* The lists are so long that parts and sums consist of two segments each. All indices of a rank
 * belong to the other rank. */
static int long_lists(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {.features = 2 * LONG, .max_nnz = LONG, .path = VB_SPARSE_SPARSE};
    uint32_t *index = calloc(LONG, sizeof(*index)), rank = (uint32_t)vb_group_rank(g);
    float *value = calloc(LONG, sizeof(*value));
    const uint32_t *sum_index = NULL;
    const float *sum = NULL;
    struct vb_sparse *s = NULL;
    size_t n = 0, i;
    int wrong = 0;

    (void)arg;
    if (index == NULL || value == NULL || vb_sparse_open(g, &opts, &s) != VB_OK) {
        free(index);
        free(value);
        return 1;
    }
    for (i = 0; i < LONG; i++) {
        index[i] = (uint32_t)i + (rank == 0 ? (uint32_t)LONG : 0);
        value[i] = (float)(i % 1000 + rank);
    }
    wrong += T_WRONG(
        vb_sparse_allreduce(s, index, value, LONG, VB_REDUCE_SUM, &sum_index, &sum, &n) == VB_OK);
    wrong += T_WRONG(n == 2 * LONG);
    for (i = 0; i < n && wrong == 0; i++)
        wrong += T_WRONG(sum_index[i] == i && sum[i] == (float)(i % LONG % 1000 + (i < LONG)));
    vb_sparse_close(s);
    free(index);
    free(value);
    return wrong;
}

static void long_lists_are_sent_in_segments(void **state)
{
    (void)state;
    by_two(long_lists, t_as_threads);
}

/* ---- start and finish ------------------------------------------------------------------------ */

#define HALVES_CALLS 6

/* In each call rank 1 starts after rank 0 has started. */
static int start_then_finish(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {.features = 100, .max_nnz = 2, .path = VB_SPARSE_SPARSE};
    uint32_t rank = (uint32_t)vb_group_rank(g), index[2] = {rank, 50}, i;
    const uint32_t *sum_index = NULL;
    const float *sum = NULL;
    struct vb_sparse *s = NULL;
    int wrong = 0;
    size_t n = 0;

    (void)arg;
    if (vb_sparse_open(g, &opts, &s) != VB_OK)
        return 1;
    for (i = 0; i < HALVES_CALLS && wrong == 0; i++) {
        float value[2] = {(float)i, (float)(rank + i)};

        if (rank == 1)
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        wrong += T_WRONG(vb_sparse_start(s, index, value, 2, VB_REDUCE_SUM) == VB_OK);
        if (rank == 0)
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        wrong += T_WRONG(vb_sparse_finish(s, &sum_index, &sum, &n) == VB_OK);
        wrong += T_WRONG(n == 3 && sum_index[0] == 0 && sum_index[1] == 1 && sum_index[2] == 50);
        wrong += T_WRONG(sum[0] == (float)i && sum[1] == (float)i && sum[2] == (float)(1 + 2 * i));
    }
    vb_sparse_close(s);
    return wrong;
}

static void start_and_finish_give_the_same_sum(void **state)
{
    (void)state;
    by_two(start_then_finish, t_as_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_algorithms_give_the_bits_of_the_naive_sum),
        cmocka_unit_test(long_lists_give_the_bits_of_the_naive_sum),
        cmocka_unit_test(large_index_spaces_work),
        cmocka_unit_test(other_kinds_of_ranks_agree),
        cmocka_unit_test(the_cheaper_algorithm_is_chosen),
        cmocka_unit_test(duplicates_of_a_rank_are_merged),
        cmocka_unit_test(no_more_bytes_than_needed_and_no_allocation),
        cmocka_unit_test(long_lists_are_sent_in_segments),
        cmocka_unit_test(start_and_finish_give_the_same_sum),
    };

    n_transports = t_find_transports(transports);
    most_ranks = t_rdma_only() ? 3 : 8;
    return T_RUN(tests);
}
