/* SPDX-License-Identifier: MIT
 *
 * Compares models with a reference in double precision (tests/support/model_ref.h): the gradients,
 * and the losses of the first steps. Also compares gradients with finite differences of the
 * reference's loss.
 *
 * Covers: models/model_run.c models/tables.c
 */
#include "tests/support/model_ref.h"
#include "tests/support/fixtures/models_fixture.h"

struct pair {
    struct t_model t;
    struct t_ref r;
    bool pixels;
};

static void create(struct pair *p, const char *name, int batch)
{
    const struct vb_layer_table *table = name != NULL ? vb_layer_table_find(name) : NULL;
    struct vb_model_opts opts = {.name = name, .batch_max = batch};
    size_t i;

    if (name == NULL)
        opts.table = table = &t_every_kind_table;
    p->pixels = name != NULL && strcmp(name, "softmax") == 0;
    t_model_create(&p->t, &opts);
    t_ref_create(&p->r, table, batch);
    assert_int_equal(p->r.n_params, p->t.n_params);
    /* softmax parameters are 0 at first; other values test more */
    for (i = 0; i < p->t.n_params && p->pixels; i++)
        p->t.params[i] = (float)(vb_random(1, i) >> 40) * 0x1p-27f;
    for (i = 0; i < p->t.n_params; i++)
        p->r.params[i] = (double)p->t.params[i];
}

static void destroy(struct pair *p)
{
    t_model_destroy(&p->t);
    t_ref_destroy(&p->r);
}

static double run_both(struct pair *p)
{
    double want = t_ref_forward(&p->r, p->t.x, &p->t.batch);

    t_model_run(&p->t);
    t_ref_backward(&p->r);
    return want;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static double largest(const double *v, size_t n)
{
    double max = 0;
    size_t i;

    for (i = 0; i < n; i++)
        max = fabs(v[i]) > max ? fabs(v[i]) : max;
    return max;
}

/* Compares the gradients. They are sums of some thousand products of floats, through up to eight
 * layers, and their error is far below 1e-4 of the largest value of the tensor. (The error would be
 * larger if two inputs of max pooling were so close that floats and doubles have another maximum.
 * These samples have no such inputs.) */
static void grads_are_near(const struct pair *p)
{
    const struct vb_param *table;
    int n, k;
    size_t i, len;
    double max, want, got;

    table = vb_model_table(p->t.m, &n);
    for (k = 0; k < n; k++) {
        len = (size_t)table[k].rows * (size_t)table[k].cols;
        max = largest(p->r.grads + table[k].offset, len);
        assert_true(max > 0);
        for (i = table[k].offset; i < table[k].offset + len; i++) {
            want = p->r.grads[i];
            got = (double)p->t.grads[i];
            if (!(fabs(want - got) <= 1e-4 * max))
                fail_msg("parameter %s, element %zu: found the gradient %.9g, expected %.9g (the "
                         "largest gradient is %.9g)",
                         table[k].name, i - table[k].offset, got, want, max);
        }
    }
}

/* Compares gradients with finite differences of the reference's loss, for some parameters of each
 * tensor. In double, a step of 1e-6 causes an error of the step squared, and of 1e-15 of the loss
 * divided by the step. That is 1e-8. */
static void slopes_are_near(struct pair *p, int each)
{
    const struct vb_param *table;
    const double step = 1e-6;
    double up, down, keep, slope, max;
    size_t i, len;
    int n, k, e;

    table = vb_model_table(p->t.m, &n);
    for (k = 0; k < n; k++) {
        len = (size_t)table[k].rows * (size_t)table[k].cols;
        max = largest(p->r.grads + table[k].offset, len);
        for (e = 0; e < each; e++) {
            i = table[k].offset + vb_random((uint64_t)k, (uint64_t)e) % len;
            keep = p->r.params[i];
            p->r.params[i] = keep + step;
            up = t_ref_forward(&p->r, p->t.x, &p->t.batch);
            p->r.params[i] = keep - step;
            down = t_ref_forward(&p->r, p->t.x, &p->t.batch);
            p->r.params[i] = keep;
            slope = (up - down) / (2 * step);
            if (!(fabs(slope - (double)p->t.grads[i]) <= 1e-4 * max + 1e-7))
                fail_msg(
                    "parameter %s, element %zu: found the gradient %.9g, expected the slope %.9g",
                    table[k].name, i - table[k].offset, (double)p->t.grads[i], slope);
        }
    }
}

static void gradients(const char *name, int batch, bool training, int each)
{
    struct pair p;
    double want;

    create(&p, name, batch);
    t_model_batch(&p.t, batch, 7, p.pixels);
    p.t.batch.training = training;
    want = run_both(&p);
    assert_true(fabs(p.t.loss.loss - want) <= 1e-5 * want);
    grads_are_near(&p);
    slopes_are_near(&p, each);
    destroy(&p);
}

static void gradients_of_every_kind_of_layer(void **state)
{
    (void)state;
    gradients(NULL, 3, true, 40);
    gradients(NULL, 3, false, 40); /* dropout drops nothing */
    gradients(NULL, 1, true, 10);
}

static void gradients_of_softmax(void **state)
{
    (void)state;
    gradients("softmax", 17, true, 40);
}

static void gradients_of_lenet(void **state)
{
    (void)state;
    gradients("lenet", 3, true, 20);
    gradients("lenet", 17, true, 2);
}

static void gradients_of_mlp(void **state)
{
    (void)state;
    gradients("mlp", 5, true, 20);
}

static void gradients_of_alexnet32(void **state)
{
    (void)state;
    gradients("alexnet32", 2, true, 1);
}

/* ---- short batches --------------------------------------------------------------------------- */

/* The gradient must depend only on the valid samples, whatever the rows after them contain. */
static void short_batch(const char *name)
{
    size_t i, bytes;
    struct pair p;
    double loss;
    float *keep;

    create(&p, name, 7);
    t_model_batch(&p.t, 3, 11, p.pixels);
    run_both(&p);
    grads_are_near(&p);
    loss = p.t.loss.loss;
    bytes = p.t.n_params * sizeof(float);
    keep = t_model_new(p.t.n_params, sizeof(float));
    memcpy(keep, p.t.grads, bytes);
    for (i = 3 * p.t.n_in; i < 7 * p.t.n_in; i++)
        p.t.x[i] = 100;
    t_model_run(&p.t);
    assert_memory_equal(keep, p.t.grads, bytes);
    assert_memory_equal(&loss, &p.t.loss.loss, sizeof(loss));
    free(keep);
    destroy(&p);
}

static void a_short_batch_ignores_other_rows(void **state)
{
    (void)state;
    short_batch(NULL);
    short_batch("lenet");
    short_batch("mlp");
    short_batch("softmax");
}

static void an_empty_batch_has_no_gradient(void **state)
{
    struct pair p;
    size_t i;

    (void)state;
    create(&p, "lenet", 4);
    t_model_batch(&p.t, 0, 1, false);
    t_model_run(&p.t);
    assert_true(p.t.loss.loss == 0 && p.t.loss.correct == 0);
    for (i = 0; i < p.t.n_params; i++)
        assert_true(p.t.grads[i] == 0);
    destroy(&p);
}

/* ---- the first steps ------------------------------------------------------------------------- */

static void sgd(struct pair *p, double rate)
{
    size_t i;

    for (i = 0; i < p->t.n_params; i++) {
        p->t.params[i] -= (float)rate * p->t.grads[i];
        p->r.params[i] -= rate * p->r.grads[i];
    }
}

/* Copies the parameters of the model to the reference. */
static void copy_params_to_reference(struct pair *p)
{
    size_t i;

    for (i = 0; i < p->t.n_params; i++)
        p->r.params[i] = (double)p->t.params[i];
}

#define BATCHES 4 /* number of different batches; the steps repeat them */

static void losses_match(const char *name, int batch, int steps, double rate, double most)
{
    bool pools = strncmp(name, "alexnet", 7) == 0;
    double want, sum[2] = {0}, worst = 0, off;
    struct pair p;
    int s;

    create(&p, name, batch);
    for (s = 0; s < steps; s++) {
        t_model_batch(&p.t, batch, (uint64_t)(s % BATCHES), p.pixels);
        p.t.batch.step = (uint64_t)s;
        p.t.batch.position = 3 * (uint64_t)s; /* as the share of another rank */
        want = run_both(&p);
        off = fabs(p.t.loss.loss - want) / want;
        if (!(off <= most))
            fail_msg("model %s, step %d: found the loss %.9g, expected %.9g", name, s,
                     p.t.loss.loss, want);
        worst = off > worst ? off : worst;
        sum[0] += s < BATCHES ? want : 0;
        sum[1] += s >= steps - BATCHES ? want : 0;
        sgd(&p, rate / batch);
        if (pools)
            copy_params_to_reference(&p);
    }
    print_message("%s: %d steps, largest error of a loss %.1e\n", name, steps, worst);
    /* the loss must have fallen, so that the parameters have changed enough to test the later
     * steps */
    if (steps > 2 * BATCHES)
        assert_true(sum[1] < 0.9 * sum[0]);
    destroy(&p);
}

static void losses_of_softmax(void **state)
{
    (void)state;
    losses_match("softmax", 20, 20, 0.1, 1e-4);
}

static void losses_of_lenet(void **state)
{
    (void)state;
    losses_match("lenet", 8, 20, 0.1, 1e-4);
}

static void losses_of_mlp(void **state)
{
    (void)state;
    losses_match("mlp", 8, 20, 0.02, 1e-4);
}

/* With some backends, max pooling in floats chooses another input than in doubles in some step. The
 * gradient then goes to another input, and two independent runs would differ by an amount that
 * depends on the rate, up to 6e-3 in 20 steps. So the model and the reference continue from the
 * same parameters after each step. */
static void losses_of_alexnet32(void **state)
{
    (void)state;
    losses_match("alexnet32", 2, 20, 0.0002, 1e-5);
}

/* The model has 61 million parameters, and needs 1.5 GB together with the reference. */
static void losses_of_alexnet(void **state)
{
    (void)state;
    losses_match("alexnet", 1, 3, 0.0002, 1e-5);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_every_kind_of_layer),
        cmocka_unit_test(gradients_of_softmax),
        cmocka_unit_test(gradients_of_lenet),
        cmocka_unit_test(gradients_of_mlp),
        cmocka_unit_test(a_short_batch_ignores_other_rows),
        cmocka_unit_test(an_empty_batch_has_no_gradient),
        cmocka_unit_test(losses_of_softmax),
        cmocka_unit_test(losses_of_lenet),
        cmocka_unit_test(losses_of_mlp),
    };
    const struct CMUnitTest slow[] = {
        cmocka_unit_test(gradients_of_alexnet32),
        cmocka_unit_test(losses_of_alexnet32),
        cmocka_unit_test(losses_of_alexnet),
    };

    (void)argv;
    return argc > 1 ? T_RUN(slow) : T_RUN(tests);
}
