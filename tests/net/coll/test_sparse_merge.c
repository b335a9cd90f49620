/* SPDX-License-Identifier: MIT
 *
 * Tests the loops over sparse lists against naive loops, and the plan that says which rank sums
 * which indices.
 *
 * Covers: net/sparse/sparse_split.c
 */
#include "net/sparse/sparse_priv.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#define MAX_WORDS 6000
#define RUNS 9

static uint32_t seed = 1;

/* Returns a random index. Small indices are more frequent than large ones, as in real data. */
static uint32_t skewed(uint32_t below)
{
    double u = (double)t_random(&seed) / (1 << 24);

    return (uint32_t)(u * u * u * u * (double)below);
}

static float any_value(void)
{
    return ((float)t_random(&seed) / (1 << 23) - 1.0f) * (float)(1 << t_random(&seed) % 20);
}

/* ---- naive merge ----------------------------------------------------------------------------- */

/* Merges entries in the naive way: adds each value to the entry with the same index, or inserts a
 * new entry. Values are added in the order of the input. */
static size_t naive(const uint32_t *index, const float *value, size_t n, uint64_t *out)
{
    size_t i, k, m = 0;

    for (i = 0; i < n; i++) {
        for (k = 0; k < m && word_index(out[k]) < index[i]; k++)
            ;
        if (k < m && word_index(out[k]) == index[i]) {
            float sum = vb_bits_float((uint32_t)out[k]) + value[i];

            out[k] = word_of(index[i], vb_float_bits(sum));
            continue;
        }
        memmove(out + k + 1, out + k, (m - k) * sizeof(*out));
        out[k] = word_of(index[i], vb_float_bits(value[i]));
        m++;
    }
    return m;
}

/* ---- sorting and adding up ------------------------------------------------------------------- */

static void check_merge(uint32_t below, size_t n)
{
    static uint32_t index[MAX_WORDS];
    static float value[MAX_WORDS];
    static uint64_t a[MAX_WORDS], b[MAX_WORDS], want[MAX_WORDS];
    uint64_t *sorted;
    size_t i, m;

    for (i = 0; i < n; i++) {
        index[i] = skewed(below);
        value[i] = any_value();
    }
    m = naive(index, value, n, want);
    vb_sparse_pack(index, value, n, a);
    sorted = vb_sort_words(a, b, n, vb_bits_below((uint64_t)vb_sparse_largest(index, n) + 1));
    for (i = 1; i < n; i++)
        assert_true(word_index(sorted[i - 1]) <= word_index(sorted[i]));
    assert_int_equal(vb_sparse_add_up(sorted, n, sorted), m);
    if (m > 0)
        assert_memory_equal(sorted, want, m * sizeof(*want));
}

static void duplicates_are_added_in_order_of_appearance(void **state)
{
    static const uint32_t below[] = {1, 2, 2048, 2049, 1 << 22, 33762578, UINT32_MAX};
    static const size_t ns[] = {0, 1, 2, 3, 17, 1000, MAX_WORDS};
    size_t i, k;

    (void)state;
    for (i = 0; i < VB_COUNT(below); i++)
        for (k = 0; k < VB_COUNT(ns); k++)
            check_merge(below[i], ns[k]);
}

/* ---- merging runs ---------------------------------------------------------------------------- */

/* Makes a run with ascending indices. All values of a run are its tag. */
static size_t make_run(uint64_t *words, size_t n, uint32_t gap, uint32_t tag)
{
    uint32_t index = t_random(&seed) % (gap * 4);
    size_t i;

    for (i = 0; i < n; i++, index += 1 + t_random(&seed) % gap)
        words[i] = word_of(index, tag);
    return n;
}

/* Entries with equal indices must be in the order of their runs, and no entry may be lost. */
static void check_runs(int n_runs, size_t longest, uint32_t gap)
{
    static uint64_t words[RUNS][MAX_WORDS], a[RUNS * MAX_WORDS], b[RUNS * MAX_WORDS];
    struct sparse_run runs[RUNS], out;
    size_t count[RUNS] = {0}, total = 0, i;
    int r;

    for (r = 0; r < n_runs; r++) {
        size_t n = longest == 0 ? 0 : t_random(&seed) % (longest + 1);

        runs[r] = (struct sparse_run){words[r], make_run(words[r], n, gap, (uint32_t)r)};
        total += n;
    }
    out = vb_sparse_merge_runs(runs, n_runs, a, b);
    assert_int_equal(out.n, total);
    for (i = 0; i < total; i++) {
        r = (int)(uint32_t)out.words[i];
        assert_true(out.words[i] == words[r][count[r]++]);
        assert_true(i == 0 || out.words[i - 1] < out.words[i]); /* ordered by index, then by run */
    }
}

static void runs_are_merged_in_order(void **state)
{
    static const size_t longest[] = {0, 1, 2, 3, 100, MAX_WORDS};
    static const uint32_t gaps[] = {1, 2, 5, 400};
    size_t i, k;
    int n, round;

    (void)state;
    for (n = 1; n <= RUNS; n++)
        for (i = 0; i < VB_COUNT(longest); i++)
            for (k = 0; k < VB_COUNT(gaps); k++)
                for (round = 0; round < 3; round++)
                    check_runs(n, longest[i], gaps[k]);
}

/* Sums any number of runs, in place or not. The bits must equal a merge of the runs and a pass that
 * adds equal indices. */
static void check_sum(int n_runs, size_t longest, uint32_t gap)
{
    static uint64_t words[RUNS][MAX_WORDS], a[RUNS * MAX_WORDS], b[RUNS * MAX_WORDS];
    static uint64_t want[RUNS * MAX_WORDS], sum[RUNS * MAX_WORDS];
    struct sparse_run runs[RUNS] = {{NULL, 0}}, again[RUNS], all;
    size_t i, n;
    int r;

    for (r = 0; r < n_runs; r++) {
        n = longest == 0 ? 0 : t_random(&seed) % (longest + 1);
        runs[r] = again[r] = (struct sparse_run){words[r], make_run(words[r], n, gap, 0)};
        for (i = 0; i < n; i++)
            words[r][i] |= vb_float_bits(i % 7 == 0 ? 0 : any_value());
    }
    all = vb_sparse_merge_runs(again, n_runs, a, b);
    n = vb_sparse_add_up(all.words, all.n, want);
    memcpy(again, runs, sizeof(again));
    assert_int_equal(vb_sparse_sum_runs(again, n_runs, a, b, sum), n);
    assert_memory_equal(sum, want, n * sizeof(*sum));
    assert_int_equal(vb_sparse_sum_runs(runs, n_runs, a, b, a), n);
    assert_memory_equal(a, want, n * sizeof(*a));
}

static void sums_equal_those_of_merged_runs(void **state)
{
    static const size_t longest[] = {0, 1, 2, 3, 100, MAX_WORDS};
    static const uint32_t gaps[] = {1, 2, 5, 400};
    size_t i, k;
    int n;

    (void)state;
    for (n = 1; n <= RUNS; n++)
        for (i = 0; i < VB_COUNT(longest); i++)
            for (k = 0; k < VB_COUNT(gaps); k++)
                check_sum(n, longest[i], gaps[k]);
}

/* A peer can write any bytes into a list in shared memory. */
static void broken_runs_do_not_overflow(void **state)
{
    uint64_t *words, *a, *b;
    struct sparse_run runs[3], out;
    size_t n = 500, i;

    (void)state;
    words = malloc(3 * n * sizeof(*words));
    a = malloc(3 * n * sizeof(*a));
    b = malloc(3 * n * sizeof(*b));
    assert_true(words != NULL && a != NULL && b != NULL);
    for (i = 0; i < 3 * n; i++)
        words[i] = word_of(t_random(&seed) << 8 ^ t_random(&seed), t_random(&seed));
    for (i = 0; i < 3; i++)
        runs[i] = (struct sparse_run){words + i * n, n};
    assert_true(vb_sparse_sum_runs(runs, 3, a, b, a) <= 3 * n);
    out = vb_sparse_merge_runs(runs, 3, a, b);
    assert_int_equal(out.n, 3 * n);
    assert_true(vb_sparse_add_up(out.words, out.n, out.words == a ? b : a) <= 3 * n);
    free(words);
    free(a);
    free(b);
}

/* ---- small functions ------------------------------------------------------------------------- */

static void unsorted_lists_are_found(void **state)
{
    uint64_t words[] = {word_of(3, 9), word_of(5, 1), word_of(9, 0), word_of(UINT32_MAX, 0)};
    uint64_t same[] = {word_of(5, 1), word_of(5, 2)}, down[] = {word_of(6, 1), word_of(5, 2)};
    uint32_t index[] = {1, 2, 3, 3};

    (void)state;
    assert_true(vb_sparse_words_fit(words, 4, 3, (uint64_t)UINT32_MAX + 1));
    assert_false(vb_sparse_words_fit(words, 4, 4, (uint64_t)UINT32_MAX + 1));
    assert_false(vb_sparse_words_fit(words, 4, 3, UINT32_MAX));
    assert_true(vb_sparse_words_fit(words, 0, 3, 3));
    assert_false(vb_sparse_words_fit(same, 2, 0, 100));
    assert_false(vb_sparse_words_fit(down, 2, 0, 100));
    assert_true(vb_sparse_ascending(index, 3));
    assert_true(vb_sparse_ascending(index, 0));
    assert_false(vb_sparse_ascending(index, 4));
    assert_int_equal(vb_sparse_below(words, 4, 0), 0);
    assert_int_equal(vb_sparse_below(words, 4, 5), 1);
    assert_int_equal(vb_sparse_below(words, 4, 6), 2);
    assert_int_equal(vb_sparse_below(words, 4, (uint64_t)UINT32_MAX + 1), 4);
}

/* Minus zero must become plus zero. Signalling NaNs and negative NaNs must become one canonical
 * NaN. */
static void zeros_and_nans_are_normalised(void **state)
{
    uint32_t index[] = {1, 2, 3, 4}, out_index[4];
    float value[] = {vb_bits_float(0x80000000u), vb_bits_float(0x7f800001u),
                     vb_bits_float(0xffc01234u), -3.0f};
    float out[4];
    uint64_t words[4];

    (void)state;
    vb_sparse_pack(index, value, 4, words);
    assert_true(words[0] == word_of(1, 0));
    vb_sparse_unpack(words, 4, 2.0f, out_index, out);
    assert_memory_equal(index, out_index, sizeof(index));
    assert_int_equal(vb_float_bits(out[0]), 0);
    assert_int_equal(vb_float_bits(out[1]), 0x7fc00000u);
    assert_int_equal(vb_float_bits(out[2]), 0x7fc00000u);
    assert_true(out[3] == -1.5f);
    vb_sparse_unpack(words, 4, 1.0f, out_index, out);
    assert_int_equal(vb_float_bits(out[1]), 0x7fc00000u);
    assert_true(out[3] == -3.0f);
}

/* ---- the plan -------------------------------------------------------------------------------- */

#define WORLD 8
#define SAMPLES 64u

struct plan_case {
    uint64_t words[WORLD][MAX_WORDS];
    size_t n[WORLD];
    struct sparse_head *heads[WORLD];
};

static void make_heads(struct plan_case *c, uint64_t features)
{
    int r;

    for (r = 0; r < WORLD; r++) {
        c->heads[r] = calloc(1, vb_sparse_head_bytes(SAMPLES));
        assert_non_null(c->heads[r]);
        c->heads[r]->features = features;
        c->heads[r]->n = c->n[r];
        vb_sparse_sample(c->words[r], SAMPLES, c->heads[r]);
    }
}

/* Every part must fit into its memory, and all parts of a list must fit into the memory of the
 * list. */
static void check_rooms(const struct plan_case *c, const struct sparse_plan *plan)
{
    size_t first, end, rooms, sums = 0, all = 0;
    int r, o;

    for (r = 0; r < WORLD; r++) {
        struct sparse_limits limits = {
            .features = plan->splits[WORLD], .max_nnz = c->n[r], .max_samples = SAMPLES};

        assert_null(vb_sparse_head_wrong(c->heads[r], &limits));
        for (rooms = 0, o = 0; o < WORLD; o++) {
            first = vb_sparse_below(c->words[r], c->n[r], plan->splits[o]);
            end = vb_sparse_below(c->words[r], c->n[r], plan->splits[o + 1]);
            assert_true(end - first <= vb_sparse_part_room(plan, r, o));
            rooms += vb_sparse_part_room(plan, r, o);
        }
        assert_true(rooms <= vb_sparse_room(c->n[r], SAMPLES, WORLD));
        all += vb_sparse_room(c->n[r], SAMPLES, WORLD);
    }
    for (o = 0; o < WORLD; o++) {
        assert_true(plan->splits[o] <= plan->splits[o + 1]);
        sums += vb_sparse_sum_room(plan, o);
    }
    assert_true(sums <= all);
}

/* Returns the number of entries of the owner with the most entries, divided by the number for an
 * equal distribution. */
static double imbalance(const struct plan_case *c, const struct sparse_plan *plan)
{
    size_t total = 0, most = 0, share;
    int r, o;

    for (o = 0; o < WORLD; o++) {
        for (share = 0, r = 0; r < WORLD; r++)
            share += vb_sparse_below(c->words[r], c->n[r], plan->splits[o + 1]) -
                     vb_sparse_below(c->words[r], c->n[r], plan->splits[o]);
        most = share > most ? share : most;
        total += share;
    }
    return total == 0 ? 1 : (double)most * WORLD / (double)total;
}

static double plan_of(struct plan_case *c, uint64_t features)
{
    struct sparse_plan plan;
    double worst;
    int r;

    assert_int_equal(vb_sparse_plan_init(&plan, WORLD, SAMPLES), VB_OK);
    make_heads(c, features);
    vb_sparse_plan_make(&plan, c->heads);
    check_rooms(c, &plan);
    worst = imbalance(c, &plan);
    for (r = 0; r < WORLD; r++)
        free(c->heads[r]);
    vb_sparse_plan_fini(&plan);
    return worst;
}

static void fill_skewed(struct plan_case *c, size_t n, uint32_t features)
{
    static uint64_t a[MAX_WORDS], b[MAX_WORDS];
    uint64_t *sorted;
    size_t i;
    int r;

    for (r = 0; r < WORLD; r++) {
        for (i = 0; i < n; i++)
            a[i] = word_of(skewed(features), 0);
        sorted = vb_sort_words(a, b, n, vb_bits_below(features));
        c->n[r] = vb_sparse_add_up(sorted, n, c->words[r]);
    }
}

static void owners_get_equal_shares_of_skewed_lists(void **state)
{
    static struct plan_case c;
    size_t n;
    int r;

    (void)state;
    for (n = 0; n <= MAX_WORDS; n = n * 3 + 1) {
        fill_skewed(&c, n, 33762578);
        plan_of(&c, 33762578);
    }
    fill_skewed(&c, MAX_WORDS, 33762578);
    /* The sampling error is at most one sampling step for each list. */
    assert_true(plan_of(&c, 33762578) < 1.125 + 0.01);
    for (r = 0; r < WORLD; r++) /* lists of very different lengths; one list is empty */
        c.n[r] = c.n[r] * (size_t)r / WORLD;
    assert_true(plan_of(&c, 33762578) < 1.3);
    /* all lists have the same single index, which cannot be divided among owners */
    for (r = 0; r < WORLD; r++)
        c.n[r] = make_run(c.words[r], 1, 1, 0);
    plan_of(&c, 5);
}

static void an_impossible_head_is_found(void **state)
{
    struct sparse_limits limits = {.features = 1000, .max_nnz = 600, .max_samples = SAMPLES};
    struct sparse_head *head = calloc(1, vb_sparse_head_bytes(SAMPLES));
    uint64_t words[600];
    uint32_t i;

    (void)state;
    assert_non_null(head);
    for (i = 0; i < 600; i++)
        words[i] = word_of(i, 0);
    head->n = 600;
    vb_sparse_sample(words, SAMPLES, head);
    assert_null(vb_sparse_head_wrong(head, &limits));
    head->n = 601;
    assert_non_null(vb_sparse_head_wrong(head, &limits));
    head->n = 600;
    head->n_samples--;
    assert_non_null(vb_sparse_head_wrong(head, &limits));
    head->n_samples++;
    head->refused = 99;
    assert_non_null(vb_sparse_head_wrong(head, &limits));
    head->refused = SPARSE_FINE;
    head->samples[head->n_samples - 1] = 1000;
    assert_non_null(vb_sparse_head_wrong(head, &limits));
    head->samples[head->n_samples - 1] = head->samples[head->n_samples - 2];
    assert_non_null(vb_sparse_head_wrong(head, &limits));
    free(head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplicates_are_added_in_order_of_appearance),
        cmocka_unit_test(runs_are_merged_in_order),
        cmocka_unit_test(sums_equal_those_of_merged_runs),
        cmocka_unit_test(broken_runs_do_not_overflow),
        cmocka_unit_test(unsorted_lists_are_found),
        cmocka_unit_test(zeros_and_nans_are_normalised),
        cmocka_unit_test(owners_get_equal_shares_of_skewed_lists),
        cmocka_unit_test(an_impossible_head_is_found),
    };

    return T_RUN(tests);
}
