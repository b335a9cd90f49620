/* SPDX-License-Identifier: MIT
 *
 * Tests models that call a function instead of computing: the shares of a pass add up to 1, larger
 * layers have larger shares, and gradients are reported in the same order and at the same moments.
 *
 * Covers: models/model_pace.c
 */
#include "tests/support/fixtures/models_fixture.h"

#include <math.h>

#define CALLS_MAX 64

/* What a model has called: a share of a pass, or gradients that are ready. */
struct seen {
    double forward, backward, largest;
    int calls, ready;
    double before_first; /* share of the backward pass before the first report */
    size_t low;          /* the gradients from here on are reported */
};

static void pace(void *arg, enum vb_k_pass pass, double share)
{
    struct seen *s = arg;

    assert_true(share >= 0 && share <= 1);
    *(pass == VB_K_FORWARD ? &s->forward : &s->backward) += share;
    s->largest = fmax(s->largest, share);
    s->calls++;
}

static void ready(void *arg, size_t first, size_t n)
{
    struct seen *s = arg;

    assert_int_equal(first + n, s->low);
    s->low = first;
    if (s->ready++ == 0)
        s->before_first = s->backward;
}

static struct seen run(const char *name, int parts)
{
    struct vb_model_opts opts = {.name = name, .batch_max = 4};
    struct vb_model_loss loss = {.loss = 7, .correct = 7};
    struct seen seen = {0};
    struct t_model t;
    int layer = 0, before;
    size_t i;

    t_model_create(&t, &opts);
    t.batch = (struct vb_model_batch){.n = 4, .x = t.x, .y = t.y, .which = t.which};
    vb_model_pace(t.m, pace, &seen);
    do { /* the layers that can run when the first `parts` tenths of the parameters are there */
        before = layer;
        layer = vb_model_forward_part(t.m, t.params, &t.batch, before, 0,
                                      t.n_params * (size_t)parts / 10);
    } while (parts > 0 && layer > before);
    assert_true(parts < 10 || fabs(seen.forward - 1) < 1e-9);
    vb_model_forward_from(t.m, t.params, &t.batch, layer, &loss);
    assert_true(loss.loss == 0 && loss.correct == 0);
    seen.low = t.n_params;
    vb_model_backward(t.m, t.params, &t.batch, t.grads, ready, &seen);
    assert_int_equal(seen.low, 0);
    for (i = 0; i < t.n_params; i++)
        assert_true(t.grads[i] == 0); /* nothing was computed */
    t_model_destroy(&t);
    return seen;
}

static void shares_of_a_pass_add_up(void **state)
{
    static const char *const names[] = {"lenet", "mlp", "alexnet32"};
    struct seen s;
    size_t i;
    int parts;

    (void)state;
    for (i = 0; i < VB_COUNT(names); i++)
        for (parts = 0; parts <= 10; parts += 5) {
            s = run(names[i], parts);
            assert_true(fabs(s.forward - 1) < 1e-9);
            assert_true(fabs(s.backward - 1) < 1e-9);
            assert_true(s.calls > 6 && s.calls < CALLS_MAX);
        }
}

/* The last layer of LeNet is small: its gradients are ready long before the end of the pass. */
static void gradients_are_ready_on_the_way(void **state)
{
    struct seen s = run("lenet", 0);

    (void)state;
    assert_int_equal(s.ready, 5);
    assert_true(s.before_first > 0 && s.before_first < 0.1);
    assert_true(s.largest > 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_a_pass_add_up),
        cmocka_unit_test(gradients_are_ready_on_the_way),
    };

    return T_RUN(tests);
}
