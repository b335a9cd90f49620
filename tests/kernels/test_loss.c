/* SPDX-License-Identifier: MIT
 *
 * Tests losses. Compares the fast ones with the references and gradients with finite differences,
 * and tries large numbers, infinity and NaN.
 *
 * Covers: kernels/own/own.c kernels/own/softmax_rows.c kernels/sparse/logistic.c
 */
#include "kernels/kernels.h"
#include "tests/support/levels.h"

#include <math.h>

#define CLASSES_MAX 1001
#define ROWS 3

static void fill(float *v, size_t n, uint64_t seed, float scale)
{
    size_t i;

    for (i = 0; i < n; i++)
        v[i] = scale * ((float)(vb_random(seed, i) >> 40) / (1 << 23) - 1);
}

/* Tolerance: both the kernel and the reference have a few roundings in the exponential, about
 * sqrt(classes) in the sum, and one in the quotient. A probability is at most 1. The reference also
 * stores the largest logit and the sum as floats. */
static void softmax_agrees_with_the_reference(void **state)
{
    static const int classes[] = {1, 2, 7, 8, 9, 10, 16, 100, 1000, 1001};
    static float fast[ROWS * CLASSES_MAX], ref[ROWS * CLASSES_MAX];
    uint16_t y[ROWS];
    size_t i, j;
    int scale, correct;

    (void)state;
    for (i = 0; i < VB_COUNT(classes); i++) {
        for (scale = 1; scale <= 1000; scale *= 10) {
            size_t n = ROWS * (size_t)classes[i];
            double a, b, allowed = (8 + 2 * sqrt(classes[i])) * 6e-8;

            fill(fast, n, i, (float)scale);
            memcpy(ref, fast, n * sizeof(*ref));
            for (j = 0; j < ROWS; j++)
                y[j] = (uint16_t)((int)(j * 5) % classes[i]);
            a = vb_k_softmax_xent(fast, y, ROWS, classes[i], &correct);
            b = vb_k_softmax_xent_ref(ref, y, ROWS, classes[i]);
            assert_true(fabs(a - b) <= 2e-6 * (fabs(b) + 10));
            for (j = 0; j < n; j++)
                if (!(fabs((double)fast[j] - (double)ref[j]) <= allowed))
                    fail_msg("%d classes, gradient %zu: found %.9g, expected %.9g", classes[i], j,
                             (double)fast[j], (double)ref[j]);
        }
    }
}

/* Returns whether a probability counts as 0. The exp() of the vector code never returns less than
 * 1.6e-38. */
static bool is_zero(float p)
{
    return fabsf(p) < 1e-37f;
}

static void softmax_of_large_logits(void **state)
{
    float logits[] = {1e30f, 0, -1e30f, 5000, -5000, -INFINITY, 300, 300, 300};
    const uint16_t y[] = {0, 1, 2};
    double loss;
    int correct;

    (void)state;
    loss = vb_k_softmax_xent(logits, y, 3, 3, &correct);
    assert_true(fabs(loss - 10000 - log(3)) < 1e-2);
    assert_true(is_zero(logits[0]) && is_zero(logits[1]) && is_zero(logits[2]));
    assert_true(logits[3] == 1 && logits[4] == -1 && is_zero(logits[5]));
    logits[4] = NAN;
    assert_true(isnan(vb_k_softmax_xent(logits + 3, y + 1, 1, 3, &correct)));
    assert_true(isnan(logits[3]) && isnan(logits[4]) && isnan(logits[5]));
}

static void labels_may_be_large(void **state)
{
    static float logits[CLASSES_MAX];
    const uint16_t y[] = {1000};
    int correct;

    (void)state;
    memset(logits, 0, sizeof(logits));
    assert_true(fabs(vb_k_softmax_xent(logits, y, 1, CLASSES_MAX, &correct) - log(CLASSES_MAX)) <
                1e-5);
    assert_true(fabsf(logits[1000] + 1 - 1.0f / CLASSES_MAX) < 1e-6f);
}

/* ---- logistic -------------------------------------------------------------------------------- */

static void logistic_agrees_with_the_reference(void **state)
{
    static float fast[100], ref[100];
    uint8_t y[100];
    int n, i, scale;

    (void)state;
    for (n = 0; n <= 100; n += n < 20 ? 1 : 40)
        for (scale = 1; scale <= 1000; scale *= 10) {
            double a, b;

            fill(fast, (size_t)n, (uint64_t)n, (float)scale);
            memcpy(ref, fast, sizeof(ref));
            for (i = 0; i < n; i++)
                y[i] = (uint8_t)(i % 3 == 0);
            a = vb_k_logistic(fast, y, n);
            b = vb_k_logistic_ref(ref, y, n);
            assert_true(fabs(a - b) <= 5e-7 * (fabs(b) + 1));
            /* tolerance: three roundings, and two of the exponential, with some margin */
            for (i = 0; i < n; i++)
                assert_true(fabs((double)fast[i] - (double)ref[i]) <= 6 * 6e-8);
        }
}

static void check_extremes(double (*loss_of)(float *, const uint8_t *, size_t))
{
    float z[] = {1e30f, -1e30f, 1e30f, -1e30f, 0, -100};
    const uint8_t y[] = {1, 0, 0, 1, 1, 0};
    float inf = INFINITY, nan = NAN;

    assert_true(fabs(loss_of(z, y, 2)) < 1e-12);
    assert_true(is_zero(z[0]) && is_zero(z[1]));
    assert_true(fabs(loss_of(z + 2, y + 2, 2) / 2e30 - 1) < 1e-6);
    assert_true(z[2] == 1 && z[3] == -1);
    assert_true(fabs(loss_of(z + 4, y + 4, 1) - log(2)) < 1e-6);
    assert_true(z[4] == -0.5f);
    assert_true(loss_of(z + 5, y + 5, 1) < 1e-37 && is_zero(z[5]));
    assert_true(isinf(loss_of(&inf, y + 2, 1)) && inf == 1);
    assert_true(isnan(loss_of(&nan, y, 1)) && isnan(nan));
}

static void logistic_of_extreme_values(void **state)
{
    (void)state;
    check_extremes(vb_k_logistic);
    check_extremes(vb_k_logistic_ref);
}

/* Computes the differences in double, because the reference returns its loss as double. The
 * reference takes its logits as floats, so the steps are powers of two. */
static void logistic_gradient_matches_finite_differences(void **state)
{
    const float step = 1.0f / 1024;
    uint8_t y;
    int i;

    (void)state;
    for (y = 0; y <= 1; y++)
        for (i = -32; i <= 32; i++) {
            float z = (float)i * 0.25f, up = z + step, down = z - step, grad = z;
            double slope = vb_k_logistic_ref(&up, &y, 1) - vb_k_logistic_ref(&down, &y, 1);

            vb_k_logistic_ref(&grad, &y, 1);
            assert_true(fabs(slope / (2 * (double)step) - (double)grad) < 1e-6);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_agrees_with_the_reference),
        cmocka_unit_test(softmax_of_large_logits),
        cmocka_unit_test(labels_may_be_large),
        cmocka_unit_test(logistic_agrees_with_the_reference),
        cmocka_unit_test(logistic_of_extreme_values),
        cmocka_unit_test(logistic_gradient_matches_finite_differences),
    };

    return T_RUN_LEVELS(tests);
}
