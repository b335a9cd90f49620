/* SPDX-License-Identifier: MIT
 *
 * Compares the kernels of sparse rows (forward, backward, the gradient as a list) and the logistic
 * loss with plain loops in double.
 *
 * Tolerance: sums of up to 300 numbers below 1 in float have 300 roundings of 6e-8: 2e-5.
 *
 * Covers: kernels/sparse/csr_rows.c kernels/sparse/hot.c kernels/sparse/logistic.c
 * Covers: kernels/sparse/sparse_grad.c
 */
#include "kernels/kernels.h"
#include "tests/support/alloc.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>
#include <omp.h>

#define FEATURES 1000
#define ROWS 700
#define NNZ_MAX (ROWS * 60)
#define TOLERANCE 2e-5

static uint64_t offset[ROWS + 1];
static uint32_t index_of[NNZ_MAX], rows[ROWS];
static float value[NNZ_MAX], w[FEATURES], logits[ROWS], d[ROWS], out[FEATURES];
static double want[FEATURES];

/* Draws rows of 0 to 59 entries and one row of 300. The entries are not sorted. A third of the
 * entries are one of ten features, so many rows contain a feature twice. */
static struct vb_k_csr draw(size_t n, bool listed, bool values)
{
    uint32_t seed = 9;
    size_t i, j, at = 0;

    for (i = 0; i < ROWS; i++) {
        offset[i] = at;
        for (j = i == 5 ? 300 : t_random(&seed) % 60; j > 0; j--, at++) {
            index_of[at] = t_random(&seed) % (t_random(&seed) % 3 == 0 ? 10 : FEATURES);
            value[at] = t_random_unit(&seed);
        }
        rows[i] = (uint32_t)((i * 37 + 5) % ROWS);
        d[i] = t_random_unit(&seed);
    }
    offset[ROWS] = at;
    for (i = 0; i < FEATURES; i++)
        w[i] = t_random_unit(&seed);
    return (struct vb_k_csr){
        .n = n,
        .rows = listed ? rows : NULL,
        .ahead = listed ? ROWS - n : 0,
        .offset = offset,
        .index = index_of,
        .value = values ? value : NULL,
        .n_rows = ROWS,
        .nnz = at,
    };
}

static size_t row_of(const struct vb_k_csr *m, size_t i)
{
    return m->rows != NULL ? m->rows[i] : i;
}

static void near(double got, double expected, const char *what, size_t i)
{
    if (!(fabs(got - expected) <= TOLERANCE * (1 + fabs(expected))))
        fail_msg("%s, element %zu: found %.9g, expected %.9g", what, i, got, expected);
}

static void check_forward(const struct vb_k_csr *m)
{
    double sum;
    uint64_t j;
    size_t i, r;

    vb_k_csr_forward(m, w, 0.5f, logits);
    for (i = 0; i < m->n; i++) {
        r = row_of(m, i);
        for (sum = 0.5, j = offset[r]; j < offset[r + 1]; j++)
            sum += (double)w[index_of[j]] * (m->value != NULL ? (double)value[j] : 1);
        near((double)logits[i], sum, "logit", i);
        assert_true(offset[r + 1] > offset[r] || logits[i] == 0.5f);
    }
}

/* Computes the expected gradient of each feature and stores it in want. */
static void gradient(const struct vb_k_csr *m)
{
    uint64_t j;
    size_t i, r;

    memset(want, 0, sizeof(want));
    for (i = 0; i < m->n; i++) {
        r = row_of(m, i);
        for (j = offset[r]; j < offset[r + 1]; j++)
            want[index_of[j]] += (double)d[i] * (m->value != NULL ? (double)value[j] : 1);
    }
}

static void check_add(const struct vb_k_csr *m)
{
    size_t i;

    memcpy(out, w, sizeof(out));
    vb_k_csr_add(m, d, -0.125f, out);
    gradient(m);
    for (i = 0; i < FEATURES; i++)
        near((double)out[i], (double)w[i] - 0.125 * want[i], "weight", i);
}

static void check_list(const struct vb_k_csr *m, struct vb_k_grad *g)
{
    const uint32_t *keys;
    const float *values;
    size_t n, i, k = 0;

    assert_int_equal(vb_k_grad_build(g, m, d, &keys, &values, &n), VB_OK);
    gradient(m);
    for (i = 0; i < n; i++) {
        for (; k < keys[i]; k++)
            assert_true(want[k] == 0); /* a key that the list leaves out appears in no row */
        assert_true(i == 0 || keys[i] > keys[i - 1]);
        near((double)values[i], want[k++], "gradient", i);
    }
    for (; k < FEATURES; k++)
        assert_true(want[k] == 0);
}

static void agrees_with_plain_loops(void **state)
{
    static const size_t sizes[] = {0, 1, 3, 17, 100, ROWS};
    struct vb_k_grad *g;
    struct vb_k_csr m;
    size_t s;
    long before;
    int v;

    (void)state;
    assert_int_equal(vb_k_grad_create(FEATURES, NNZ_MAX, &g), VB_OK);
    before = t_allocations;
    for (s = 0; s < VB_COUNT(sizes); s++)
        for (v = 0; v < 4; v++) {
            m = draw(sizes[s], v & 1, v & 2);
            assert_int_equal(vb_k_csr_check(&m, FEATURES), VB_OK);
            check_forward(&m);
            check_add(&m);
            check_list(&m, g);
        }
    assert_int_equal(t_allocations, before);
    vb_k_grad_destroy(g);
    vb_k_grad_destroy(NULL);
}

/* Runs forward and backward on the given number of threads. */
static void on_threads(const struct vb_k_csr *m, int threads, float *z, float *weights)
{
    long before;

    omp_set_num_threads(threads);
    vb_k_csr_forward(m, w, 1, z); /* the first call starts the threads */
    memcpy(weights, w, sizeof(w));
    before = t_allocations;
    vb_k_csr_forward(m, w, 1, z);
    vb_k_csr_add(m, d, -0.125f, weights);
    assert_int_equal(t_allocations, before);
}

/* Sorting by parts must give the same sums, with the same bits on any number of threads. The number
 * of threads need not divide the number of parts, and may be larger. */
static void threads_change_no_bit(void **state)
{
    static const int teams[] = {2, 3, 4, 17};
    static struct vb_k_csr_parts parts[ROWS];
    static float one[ROWS], more[ROWS], out_more[FEATURES];
    struct vb_k_csr m;
    size_t i;
    int v;

    (void)state;
    for (v = 0; v < 4; v++) {
        m = draw(ROWS, v & 1, v & 2);
        vb_k_csr_group(offset, ROWS, index_of, v & 2 ? value : NULL, parts);
        m.parts = parts;
        on_threads(&m, 1, one, out);
        for (i = 0; i < VB_COUNT(teams); i++) {
            memset(more, 0, sizeof(more));
            on_threads(&m, teams[i], more, out_more);
            assert_memory_equal(one, more, sizeof(one));
            assert_memory_equal(out, out_more, sizeof(out));
        }
        omp_set_num_threads(2);
        check_forward(&m);
        check_add(&m);
    }
}

static void threads_change_no_bit_of_a_loss(void **state)
{
    static float z[ROWS], one[ROWS], more[ROWS];
    static uint8_t y[ROWS];
    double loss;
    size_t n;
    int threads;

    (void)state;
    for (n = 0; n < ROWS; n++) {
        z[n] = ((float)n - 0.5f * ROWS) * 0.037f;
        y[n] = n % 3 == 0;
    }
    for (n = ROWS; n > ROWS - 40; n--)
        for (threads = 2; threads < 10; threads += 3) {
            memcpy(one, z, sizeof(one));
            memcpy(more, z, sizeof(more));
            omp_set_num_threads(1);
            loss = vb_k_logistic(one, y, n);
            omp_set_num_threads(threads);
            assert_true(vb_k_logistic(more, y, n) == loss);
            assert_memory_equal(one, more, sizeof(one));
        }
    omp_set_num_threads(2);
}

static void nan_and_infinity_stay(void **state)
{
    const uint64_t start[4] = {0, 2, 3, 3};
    const uint32_t at[3] = {1, 2, 3};
    struct vb_k_csr m = {.n = 3, .offset = start, .index = at, .n_rows = 3, .nnz = 3};
    float some[4] = {0, NAN, 1, INFINITY}, z[3];

    (void)state;
    vb_k_csr_forward(&m, some, 1, z);
    assert_true(isnan(z[0]) && isinf(z[1]) && z[2] == 1);
    z[0] = 1;
    z[1] = NAN;
    vb_k_csr_add(&m, z, 1, some);
    assert_true(some[0] == 0 && isnan(some[1]) && some[2] == 2 && isnan(some[3]));
}

static void expect_refused(const struct vb_k_csr *m, uint64_t features, const char *why)
{
    struct t_stderr err;
    char text[256];
    vb_status st;

    t_stderr_catch(&err);
    st = vb_k_csr_check(m, features);
    t_stderr_release(&err, text, sizeof(text));
    assert_int_equal(st, VB_ERR_INPUT);
    if (strstr(text, why) == NULL)
        fail_msg("\"%s\" is missing in the message: %s", why, text);
}

static void indices_outside_the_matrix_are_refused(void **state)
{
    uint64_t start[3] = {0, 2, 3};
    static const uint32_t far[] = {10, INT32_MAX, (uint32_t)INT32_MAX + 1, UINT32_MAX - 1,
                                   UINT32_MAX};
    uint32_t at[3] = {1, 2, 9}, list[2] = {1, 0};
    struct vb_k_csr m = {.n = 2, .offset = start, .index = at, .n_rows = 2, .nnz = 3};
    size_t i;

    (void)state;
    assert_int_equal(vb_k_csr_check(&m, 10), VB_OK);
    expect_refused(&m, 9, "row 1: index 9 is not below 9");
    expect_refused(&m, 0, "row 0: index 1 is not below 0");
    for (i = 0; i < VB_COUNT(far); i++) {
        at[2] = far[i];
        expect_refused(&m, 10, "row 1: index ");
        expect_refused(&m, far[i], "row 1: index ");
        assert_int_equal(vb_k_csr_check(&m, (uint64_t)far[i] + 1), VB_OK);
    }
    at[2] = 9;
    start[1] = 4;
    expect_refused(&m, 10, "row 0 has entries 0 to 4, but the matrix has only 3 entries");
    start[1] = 2;
    m.rows = list;
    expect_refused(&m, 9, "row 1: index 9");
    list[1] = 2;
    expect_refused(&m, 10, "row 2 of the matrix, but the matrix has only 2 rows");
    list[1] = 0;
    start[1] = 4;
    expect_refused(&m, 10, "row 1 has entries 4 to 3, but the matrix has only 3 entries");
    m.nnz = 2;
    start[1] = 2;
    expect_refused(&m, 10, "entries 2 to 3, but the matrix has only 2 entries");
}

static void too_many_entries_are_refused(void **state)
{
    struct vb_k_csr m = draw(ROWS, false, true);
    const uint32_t *keys;
    const float *values;
    struct vb_k_grad *g;
    struct t_stderr err;
    char text[256];
    size_t n;

    (void)state;
    assert_int_equal(vb_k_grad_create(FEATURES, (size_t)m.nnz - 1, &g), VB_OK);
    t_stderr_catch(&err);
    assert_int_equal(vb_k_grad_build(g, &m, d, &keys, &values, &n), VB_ERR_USAGE);
    t_stderr_release(&err, text, sizeof(text));
    assert_non_null(strstr(text, "more than"));
    vb_k_grad_destroy(g);
}

/* Sorts the largest possible key, and keys that differ in any of their digits. */
static void all_bits_of_a_key_are_sorted(void **state)
{
    const uint64_t start[2] = {0, 6};
    const uint32_t at[6] = {UINT32_MAX, 5, 1u << 31, 5, 1u << 27, 0};
    const uint32_t sorted[5] = {0, 5, 1u << 27, 1u << 31, UINT32_MAX};
    const float x[6] = {1, 2, 3, 4, 5, 6}, one = 1, sums[5] = {6, 6, 5, 3, 1};
    struct vb_k_csr m = {.n = 1, .offset = start, .index = at, .value = x, .n_rows = 1, .nnz = 6};
    const uint32_t *keys;
    const float *values;
    struct vb_k_grad *g;
    size_t n;

    (void)state;
    assert_int_equal(vb_k_grad_create((uint64_t)1 << 32, 6, &g), VB_OK);
    assert_int_equal(vb_k_grad_build(g, &m, &one, &keys, &values, &n), VB_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(keys, sorted, sizeof(sorted));
    assert_memory_equal(values, sums, sizeof(sums));
    vb_k_grad_destroy(g);
}

/* ---- logistic loss --------------------------------------------------------------------------- */

/* Tolerance: exponential, logarithm and gradient have an error of a few units in the last place,
 * 4e-7 of the result. A gradient below 1e-37 counts as 0. */
static void vector_logistic_agrees_with_the_reference(void **state)
{
    float z[ROWS], ref[ROWS];
    uint8_t y[ROWS];
    double loss, expected;
    size_t i, n;

    (void)state;
    for (n = 0; n < 9; n++) {
        for (i = 0; i < ROWS; i++) {
            z[i] = ref[i] = ((float)i - 0.5f * ROWS) * 0.37f;
            y[i] = i * 7 % 3 == 0;
        }
        loss = vb_k_logistic(z, y, ROWS - n);
        expected = vb_k_logistic_ref(ref, y, ROWS - n);
        assert_true(fabs(loss - expected) <= 4e-7 * expected);
        for (i = 0; i < ROWS; i++)
            if (!(fabsf(z[i] - ref[i]) <= 4e-7f * fabsf(ref[i]) + 1e-37f))
                fail_msg("%zu: %.9g, expected %.9g", i, (double)z[i], (double)ref[i]);
    }
}

/* The kernel fills up a batch of one to three rows to four rows. The bits of each row must be the
 * same as in a large batch, and each row must be counted once. */
static void few_logits_have_the_bits_of_many(void **state)
{
    const float given[4] = {0.3f, -2.5f, 11, -0.01f};
    const uint8_t y[4] = {1, 1, 0, 0};
    float four[4], few[4];
    double loss, alone;
    size_t i, n;

    (void)state;
    memcpy(four, given, sizeof(four));
    (void)vb_k_logistic(four, y, 4);
    for (n = 1; n < 4; n++) {
        memcpy(few, given, sizeof(few));
        loss = vb_k_logistic(few, y, n);
        assert_memory_equal(few, four, n * sizeof(*few));
        assert_memory_equal(few + n, given + n, (4 - n) * sizeof(*few));
        for (i = 0, alone = 0; i < n; i++) {
            few[i] = given[i];
            alone += vb_k_logistic(few + i, y + i, 1);
        }
        assert_true(loss == alone);
    }
}

static void logits_of_any_size(void **state)
{
    float z[6] = {INFINITY, INFINITY, -INFINITY, -INFINITY, 3e38f, -3e38f};
    const uint8_t y[6] = {1, 0, 0, 1, 1, 0};
    float not_one[2] = {NAN, 0};

    (void)state;
    assert_true(vb_k_logistic(z, y, 1) < 1e-37 && fabsf(z[0]) < 1e-37f);
    assert_true(isinf(vb_k_logistic(z + 1, y + 1, 1)) && z[1] == 1);
    assert_true(vb_k_logistic(z + 2, y + 2, 1) < 1e-37);
    assert_true(isinf(vb_k_logistic(z + 3, y + 3, 1)) && z[3] == -1);
    assert_true(vb_k_logistic(z + 4, y + 4, 2) < 1e-37);
    assert_true(isnan(vb_k_logistic(not_one, y, 2)));
    assert_true(isnan(not_one[0]) && not_one[1] == 0.5f);
}

/* Trains one batch. The weights are in out, and the expected weights in want. */
static void a_hot_batch(struct vb_k_hot *hot, const struct vb_k_csr *m)
{
    double sum;
    size_t i, j;

    vb_k_hot_learn(hot, m, out);
    for (i = 0; i < ROWS; i++)
        vb_k_hot_find(hot, m, i, out);
    for (i = 0; i < ROWS; i++) {
        sum = 0;
        for (j = offset[rows[i]]; j < offset[rows[i] + 1]; j++)
            sum += want[index_of[j]] * (double)value[j];
        assert_true((double)vb_k_hot_forward(hot, m, i) == sum);
    }
    for (i = 0; i < ROWS; i++) {
        vb_k_hot_add(hot, m, i, 2 * d[i]);
        for (j = offset[rows[i]]; j < offset[rows[i] + 1]; j++)
            want[index_of[j]] += 2.0 * (double)d[i] * (double)value[j];
    }
    vb_k_hot_exchange(hot, out);
}

/* Two workers take turns. Their numbers are whole, so that sums in any order are exact. Every batch
 * contains ten features many times, and these features become hot. Each worker must see all that
 * the other worker has added. */
static void hot_features_lose_nothing(void **state)
{
    struct vb_k_csr m = draw(ROWS, true, true);
    struct vb_k_hot *hot[2];
    int batch;
    size_t i;

    (void)state;
    for (i = 0; i < m.nnz; i++)
        value[i] = (float)(i % 5) - 2;
    for (i = 0; i < ROWS; i++)
        d[i] = (float)(i % 3) - 1;
    memset(out, 0, sizeof(out));
    memset(want, 0, sizeof(want));
    for (i = 0; i < 2; i++)
        assert_int_equal(vb_k_hot_create(m.nnz, &hot[i]), VB_OK);
    for (batch = 0; batch < 80; batch++) {
        /* as after a batch in which this worker has added nothing */
        vb_k_hot_exchange(hot[batch % 2], out);
        a_hot_batch(hot[batch % 2], &m);
        for (i = 0; i < FEATURES; i++)
            assert_true((double)out[i] == want[i]);
    }
    for (i = 0; i < 2; i++) {
        assert_true(vb_k_hot_count(hot[i]) >= 10);
        vb_k_hot_destroy(hot[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_plain_loops),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(threads_change_no_bit_of_a_loss),
        cmocka_unit_test(nan_and_infinity_stay),
        cmocka_unit_test(indices_outside_the_matrix_are_refused),
        cmocka_unit_test(too_many_entries_are_refused),
        cmocka_unit_test(all_bits_of_a_key_are_sorted),
        cmocka_unit_test(vector_logistic_agrees_with_the_reference),
        cmocka_unit_test(few_logits_have_the_bits_of_many),
        cmocka_unit_test(logits_of_any_size),
        cmocka_unit_test(hot_features_lose_nothing),
    };

    return T_RUN(tests);
}
