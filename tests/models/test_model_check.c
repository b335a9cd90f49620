/* SPDX-License-Identifier: MIT
 *
 * Tests what is found after a forward pass: the predicted classes, which are counted as correct by
 * the loss, and the first layer with a number that is not finite.
 *
 * Covers: models/model_check.c
 */
#include "tests/support/fixtures/models_fixture.h"

#include <math.h>

#define N 4

/* Creates a perceptron or LeNet with a batch of N samples. */
static void make(struct t_model *t, const char *name)
{
    struct vb_model_opts opts = {.name = name, .batch_max = N};
    size_t i;

    t_model_create(t, &opts);
    for (i = 0; i < N * t->n_in; i++)
        t->x[i] = (float)((i * 37) % 101) / 101.f;
    for (i = 0; i < N; i++)
        t->y[i] = (uint16_t)(i % 10);
    t->batch = (struct vb_model_batch){.n = N, .x = t->x, .y = t->y, .training = true};
}

static float *weights(struct t_model *t, const char *name)
{
    int i, n;
    const struct vb_param *table = vb_model_table(t->m, &n);

    for (i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return t->params + table[i].offset;
    fail_msg("there is no parameter %s", name);
    return NULL;
}

static void finds(struct t_model *t, const char *layer, const char *what)
{
    const char *found, *found_what;

    vb_model_forward(t->m, t->params, &t->batch, &t->loss);
    assert_false(isfinite(t->loss.loss));
    found = vb_model_find_not_finite(t->m, t->params, &t->batch, &found_what);
    assert_string_equal(found, layer);
    assert_string_equal(found_what, what);
}

static void predictions_are_those_that_count(void **state)
{
    static const char *const names[] = {"mlp", "lenet"};
    struct t_model t;
    int i, correct;
    size_t k;

    (void)state;
    for (k = 0; k < VB_COUNT(names); k++) {
        make(&t, names[k]);
        vb_model_forward(t.m, t.params, &t.batch, &t.loss);
        for (i = 0; i < N; i++) /* now all are right */
            t.y[i] = (uint16_t)vb_model_predicted(t.m, &t.batch, i);
        vb_model_forward(t.m, t.params, &t.batch, &t.loss);
        assert_int_equal(t.loss.correct, N);
        t.y[1] = (uint16_t)((t.y[1] + 1) % 10);
        vb_model_forward(t.m, t.params, &t.batch, &t.loss);
        for (i = 0, correct = 0; i < N; i++)
            correct += vb_model_predicted(t.m, &t.batch, i) == t.y[i];
        assert_int_equal(correct, N - 1);
        assert_int_equal(t.loss.correct, N - 1);
        t_model_destroy(&t);
    }
}

static void the_first_layer_is_named(void **state)
{
    static const char *const layers[] = {"fc1", "fc2", "fc3"};
    static const float bad[] = {NAN, INFINITY};
    char name[16];
    struct t_model t;
    size_t i, b;

    (void)state;
    for (b = 0; b < VB_COUNT(bad); b++)
        for (i = 0; i < VB_COUNT(layers); i++) {
            make(&t, "mlp");
            snprintf(name, sizeof(name), "%s.b", layers[i]);
            weights(&t, name)[3] = bad[b];
            finds(&t, layers[i], "parameters are");
            t_model_destroy(&t);
        }
}

static void outputs_can_overflow(void **state)
{
    struct t_model t;
    size_t i;

    (void)state;
    make(&t, "mlp");
    for (i = 0; i < 512; i++)
        weights(&t, "fc1.b")[i] = 1e30f;
    for (i = 0; i < 512 * 512; i++)
        weights(&t, "fc2.w")[i] = 1e30f;
    finds(&t, "fc2", "output is");
    t_model_destroy(&t);
    make(&t, "lenet");
    weights(&t, "fc5.b")[t.y[0]] = -3e38f; /* the loss is the distance of two such numbers */
    weights(&t, "fc5.b")[(t.y[0] + 1) % 10] = 3e38f;
    finds(&t, "fc5", "output is too large or");
    t_model_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_those_that_count),
        cmocka_unit_test(the_first_layer_is_named),
        cmocka_unit_test(outputs_can_overflow),
    };

    return T_RUN(tests);
}
