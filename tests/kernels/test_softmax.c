/* SPDX-License-Identifier: MIT
 *
 * Tests the reference kernels of softmax regression: compares gradients with finite differences,
 * and tries large numbers.
 *
 * Covers: kernels/exact/softmax_ref.c
 */
#include "kernels/kernels.h"
#include "tests/support/fixtures/softmax_fixture.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>

#define N 5
#define FEATURES 7
#define CLASSES 4

struct batch {
    float x[N * FEATURES];
    uint8_t y[N];
};

static struct vb_softmax *make(struct batch *b)
{
    struct vb_softmax *m = NULL;
    int i;

    if (vb_softmax_create(FEATURES, CLASSES, N, &m) != VB_OK || m == NULL)
        abort();
    t_random_fill(b->x, VB_COUNT(b->x), 1);
    t_random_fill(m->params, m->n_params, 2);
    for (i = 0; i < N; i++)
        b->y[i] = (uint8_t)(i * 3 % CLASSES);
    return m;
}

static double loss_of(struct vb_softmax *m, const struct batch *b)
{
    vb_softmax_forward(m, b->x, N);
    return vb_softmax_loss(m, b->y, N);
}

static void table_covers_the_arena(void **state)
{
    struct vb_softmax *m = NULL;
    size_t i;

    (void)state;
    if (vb_softmax_create(784, 10, 1, &m) != VB_OK || m == NULL)
        abort();
    assert_int_equal(m->n_params, 7850);
    assert_string_equal(m->table[0].name, "w");
    assert_int_equal(m->table[0].offset, 0);
    assert_int_equal(m->table[0].rows * m->table[0].cols, 7840);
    assert_int_equal(m->table[1].offset, 7840);
    assert_int_equal(m->table[1].cols, 10);
    for (i = 0; i < m->n_params; i++)
        assert_true(m->params[i] == 0);
    vb_softmax_destroy(m);
    vb_softmax_destroy(NULL);
}

/* Changes one parameter at a time. With floats and a step of 1/64, the quotient has two errors: the
 * third derivative times the step squared, and the rounding of a loss of about 8, divided by the
 * step. Both are below 1e-3. */
static void gradient_matches_finite_differences(void **state)
{
    float grads[FEATURES * CLASSES + CLASSES];
    const float step = 1.0f / 64;
    struct vb_softmax *m = NULL;
    struct batch b;
    double up, down;
    float keep;
    size_t i;

    (void)state;
    m = make(&b);
    assert_int_equal(m->n_params, VB_COUNT(grads));
    loss_of(m, &b);
    vb_softmax_backward(m, b.x, N, grads);
    for (i = 0; i < m->n_params; i++) {
        keep = m->params[i];
        m->params[i] = keep + step;
        up = loss_of(m, &b);
        m->params[i] = keep - step;
        down = loss_of(m, &b);
        m->params[i] = keep;
        if (fabs((up - down) / (2 * (double)step) - (double)grads[i]) > 1e-3)
            fail_msg("parameter %zu: found the gradient %g, expected %g", i, (double)grads[i],
                     (up - down) / (2 * (double)step));
    }
    vb_softmax_destroy(m);
}

static void forward_is_a_matrix_product(void **state)
{
    struct vb_softmax *m = NULL;
    struct batch b;
    double want;
    int i, f, c;

    (void)state;
    m = make(&b);
    vb_softmax_forward(m, b.x, N);
    for (i = 0; i < N; i++) {
        for (c = 0; c < CLASSES; c++) {
            want = (double)m->params[FEATURES * CLASSES + c];
            for (f = 0; f < FEATURES; f++)
                want += (double)b.x[i * FEATURES + f] * (double)m->params[f * CLASSES + c];
            assert_true(fabs(want - (double)m->logits[i * CLASSES + c]) < 1e-5);
        }
    }
    vb_softmax_destroy(m);
}

static void large_logits_are_finite(void **state)
{
    float logits[3 * 3] = {1e30f, 0, -1e30f, -1e30f, -1e30f, 1e30f, 300, 300, 300};
    const uint16_t y[3] = {0, 2, 1};
    double loss;
    int i, c;
    float sum;

    (void)state;
    loss = vb_k_softmax_xent_ref(logits, y, 3, 3);
    /* the guesses of the first two rows are certain and right, so their loss is 0 */
    assert_true(fabs(loss - log(3)) < 1e-6);
    for (i = 0; i < 3; i++) {
        for (sum = 0, c = 0; c < 3; c++) {
            assert_true(isfinite(logits[i * 3 + c]));
            sum += logits[i * 3 + c];
        }
        /* the gradient is the probabilities, minus 1 for the label: its sum is 0 */
        assert_true(fabsf(sum) < 1e-6f);
    }
}

/* The guess is certain and wrong. The probability of the label is smaller than any float, but the
 * loss must be finite. */
static void the_loss_of_a_wrong_guess_is_its_margin(void **state)
{
    float logits[2] = {5000, -5000};
    const uint16_t y[1] = {1};

    (void)state;
    assert_true(vb_k_softmax_xent_ref(logits, y, 1, 2) == 10000);
    assert_true(logits[0] == 1 && logits[1] == -1);
}

static void reference_update_and_sum(void **state)
{
    float params[3] = {1, 2, 3};
    const float grads[3] = {4, 0, -2};
    float sum[3] = {1, 1, 1};

    (void)state;
    vb_k_sgd_ref(params, grads, 3, 0.5f);
    assert_true(params[0] == -1 && params[1] == 2 && params[2] == 4);
    vb_k_add_ref(sum, grads, 3);
    assert_true(sum[0] == 5 && sum[1] == 1 && sum[2] == -1);
}

static void correct_samples_are_counted(void **state)
{
    const float logits[4] = {1, 3, 3, 2};
    struct vb_softmax *m = NULL;
    struct batch b;
    int i;

    (void)state;
    /* the guess is the first of two equal values */
    assert_int_equal(vb_k_argmax_ref(logits, 4), 1);
    m = make(&b);
    vb_softmax_forward(m, b.x, N);
    for (i = 0; i < N; i++)
        b.y[i] = (uint8_t)vb_k_argmax_ref(m->logits + (size_t)i * CLASSES, CLASSES);
    assert_int_equal(vb_softmax_correct(m, b.y, N), N);
    b.y[1] = (uint8_t)((b.y[1] + 1) % CLASSES);
    assert_int_equal(vb_softmax_correct(m, b.y, N), N - 1);
    vb_softmax_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_covers_the_arena),
        cmocka_unit_test(gradient_matches_finite_differences),
        cmocka_unit_test(forward_is_a_matrix_product),
        cmocka_unit_test(large_logits_are_finite),
        cmocka_unit_test(the_loss_of_a_wrong_guess_is_its_margin),
        cmocka_unit_test(reference_update_and_sum),
        cmocka_unit_test(correct_samples_are_counted),
    };

    return T_RUN(tests);
}
