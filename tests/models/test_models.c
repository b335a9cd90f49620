/* SPDX-License-Identifier: MIT
 *
 * Tests models as the engine uses them: tables of parameters, initial values, plans and the order
 * of callbacks. Results must have the same bits for any number of threads, and a step must not
 * allocate memory. test_models_ref.c compares the results of models with a reference.
 *
 * Covers: models/model.c models/model_run.c models/tables.c
 */
#include "tests/support/alloc.h"
#include "tests/support/fixtures/models_fixture.h"

#include <math.h>
#include <omp.h>

/* ---- parameters ------------------------------------------------------------------------------ */

static void check_table(const char *name, size_t n_params, int n_rows)
{
    struct vb_model_opts opts = {.name = name, .batch_max = 1, .forward_only = true};
    const struct vb_param *table;
    struct vb_model *m;
    size_t at = 0;
    int n, i;

    assert_int_equal(vb_model_create(&opts, &m), VB_OK);
    table = vb_model_table(m, &n);
    assert_int_equal(n, n_rows);
    for (i = 0; i < n; i++) {
        assert_int_equal(table[i].offset, at);
        at += (size_t)table[i].rows * (size_t)table[i].cols;
    }
    assert_int_equal(at, n_params);
    assert_int_equal(vb_model_n_params(m), n_params);
    assert_int_equal(vb_layer_table_params(vb_layer_table_find(name)), n_params);
    vb_model_destroy(m);
}

/* The models must have as many parameters as in the papers and in torchvision. */
static void tables_cover_the_arena(void **state)
{
    (void)state;
    check_table("softmax", 7850, 2);
    check_table("lenet", 61706, 10);
    check_table("mlp", 669706, 6);
    check_table("alexnet", 61100840, 16);
    check_table("alexnet32", 23272266, 16);
    vb_model_destroy(NULL);
}

static void check_param(const struct vb_param *p, const char *name, int rows, int cols)
{
    assert_string_equal(p->name, name);
    assert_int_equal(p->rows, rows);
    assert_int_equal(p->cols, cols);
}

static void parameters_have_names_and_sizes(void **state)
{
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 1};
    const struct vb_param *table;
    int n, c, h, w, classes;
    struct vb_model *m;

    (void)state;
    assert_int_equal(vb_model_create(&opts, &m), VB_OK);
    table = vb_model_table(m, &n);
    check_param(&table[0], "conv1.w", 6, 25);
    check_param(&table[1], "conv1.b", 1, 6);
    check_param(&table[4], "fc3.w", 120, 400);
    check_param(&table[9], "fc5.b", 1, 10);
    vb_model_input(m, &c, &h, &w, &classes);
    assert_true(c == 1 && h == 28 && w == 28 && classes == 10);
    vb_model_destroy(m);
    opts.name = "softmax";
    assert_int_equal(vb_model_create(&opts, &m), VB_OK);
    table = vb_model_table(m, &n);
    check_param(&table[0], "linear.w", 784, 10);
    check_param(&table[1], "linear.b", 1, 10);
    vb_model_destroy(m);
}

/* ---- first values ---------------------------------------------------------------------------- */

/* Checks that n values are uniformly distributed in [-max, max]. Their mean must be within 5
 * standard deviations of 0, and their mean square within 5 standard deviations of max^2 / 3. The
 * standard deviations are max / sqrt(3 n) and max^2 sqrt(4 / 45 / n). */
static void check_uniform(const float *v, size_t n, double max)
{
    double sum = 0, squares = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        /* the factor allows for one rounding */
        assert_true(fabs((double)v[i]) <= max * (1 + 1e-6));
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    assert_true(fabs(sum / (double)n) < 5 * max / sqrt(3 * (double)n));
    assert_true(fabs(squares / (double)n - max * max / 3) <
                5 * max * max * sqrt(4.0 / 45 / (double)n));
}

static void first_values_follow_the_papers(void **state)
{
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 2};
    const struct vb_param *p;
    struct t_model t;
    int n, i, k;

    (void)state;
    t_model_create(&t, &opts);
    p = vb_model_table(t.m, &n);
    check_uniform(t.params + p[0].offset, 150, sqrt(6.0 / 25));
    check_uniform(t.params + p[2].offset, 2400, sqrt(6.0 / 150));
    check_uniform(t.params + p[4].offset, 48000, sqrt(6.0 / 400));
    check_uniform(t.params + p[8].offset, 840, 0.01 * sqrt(3.0 / 84)); /* the last layer */
    for (i = 1; i < n; i += 2)
        for (k = 0; k < p[i].cols; k++)
            assert_true(t.params[p[i].offset + (size_t)k] == 0);
    t_model_destroy(&t);
    opts = (struct vb_model_opts){.table = &t_every_kind_table, .batch_max = 2};
    t_model_create(&t, &opts);
    p = vb_model_table(t.m, &n);
    check_uniform(t.params + p[2].offset, 135, sqrt(6.0 / 27));        /* no dropout before it */
    check_uniform(t.params + p[4].offset, 180, sqrt(6.0 / (30 + 36))); /* no ReLU */
    k = p[6].cols; /* dropout of a quarter before it */
    check_uniform(t.params + p[6].offset, 9 * (size_t)k, sqrt(6 * 0.75 / k));
    t_model_destroy(&t);
}

static void first_values_depend_only_on_the_seed(void **state)
{
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 2};
    struct t_model a, b;
    size_t i, same = 0;

    (void)state;
    t_model_create(&a, &opts);
    opts.batch_max = 5;
    opts.forward_only = true;
    omp_set_num_threads(1);
    t_model_create(&b, &opts);
    omp_set_num_threads(2);
    assert_memory_equal(a.params, b.params, a.n_params * sizeof(float));
    vb_model_init(b.m, 4, b.params);
    for (i = 0; i < a.n_params; i++)
        same += a.params[i] != 0 && a.params[i] == b.params[i];
    assert_true(same < 10);
    t_model_destroy(&a);
    t_model_destroy(&b);
}

static void softmax_begins_with_zeros(void **state)
{
    struct vb_model_opts opts = {.name = "softmax", .batch_max = 2};
    struct t_model t;
    size_t i;

    (void)state;
    t_model_create(&t, &opts);
    memset(t.params, 1, t.n_params * sizeof(float));
    vb_model_init(t.m, 3, t.params);
    for (i = 0; i < t.n_params; i++)
        assert_true(t.params[i] == 0);
    t_model_destroy(&t);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

struct told {
    const struct t_model *t;
    float *seen;  /* copy of the gradients, made when they were reported as ready */
    size_t first; /* index of the first element that was reported so far */
    int calls;
};

static void note(void *arg, size_t first, size_t n)
{
    struct told *told = arg;

    /* gradients must be reported from the last to the first, without gaps */
    assert_int_equal(first + n, told->first);
    memcpy(told->seen + first, told->t->grads + first, n * sizeof(float));
    told->first = first;
    told->calls++;
}

static void check_callbacks(const struct vb_model_opts *opts, int calls)
{
    struct told told = {0};
    struct t_model t;

    t_model_create(&t, opts);
    t_model_batch(&t, t.batch_max, 1, opts->table == NULL && strcmp(opts->name, "softmax") == 0);
    told = (struct told){&t, t_model_new(t.n_params, sizeof(float)), t.n_params, 0};
    vb_model_forward(t.m, t.params, &t.batch, &t.loss);
    vb_model_backward(t.m, t.params, &t.batch, t.grads, note, &told);
    assert_int_equal(told.first, 0);
    assert_int_equal(told.calls, calls);
    assert_memory_equal(told.seen, t.grads, t.n_params * sizeof(float));
    free(told.seen);
    t_model_destroy(&t);
}

static void gradients_are_reported_from_last_to_first(void **state)
{
    (void)state;
    check_callbacks(&(struct vb_model_opts){.name = "lenet", .batch_max = 3}, 5);
    check_callbacks(&(struct vb_model_opts){.name = "mlp", .batch_max = 3}, 3);
    check_callbacks(&(struct vb_model_opts){.name = "softmax", .batch_max = 3}, 1);
    check_callbacks(&(struct vb_model_opts){.table = &t_every_kind_table, .batch_max = 3}, 5);
}

/* Runs softmax with lists of pixels in parts: forward as the weights arrive, from the last to the
 * first, and then backward. */
static void softmax_in_parts_gives_the_same_result(void **state)
{
    static const struct vb_model_opts opts = {.name = "softmax", .batch_max = 33};
    struct told told = {0};
    struct t_model whole, t;
    int done = 0;
    size_t i;

    (void)state;
    t_model_create(&whole, &opts);
    t_model_create(&t, &opts);
    t_model_batch(&whole, 33, 1, true);
    t_model_batch(&t, 33, 1, true);
    if (!vb_model_can_cut(t.m, t.batch.pixels))
        goto out;
    for (i = 0; i < t.n_params; i++)
        whole.params[i] = t.params[i] = (float)(vb_random(7, i) % 1000) / 1000 - 0.5f;
    vb_model_cut(t.m, 2001); /* 3 parts of 262, 262 and 260 features */
    vb_model_forward(whole.m, whole.params, &whole.batch, &whole.loss);
    vb_model_backward(whole.m, whole.params, &whole.batch, whole.grads, NULL, NULL);
    done = vb_model_forward_part(t.m, t.params, &t.batch, done, 5221, 7850);
    assert_int_equal(done, 0);
    done = vb_model_forward_part(t.m, t.params, &t.batch, done, 5220, 7849);
    assert_int_equal(done, 0);
    done = vb_model_forward_part(t.m, t.params, &t.batch, done, 5220, 7850);
    assert_int_equal(done, 262);
    done = vb_model_forward_part(t.m, t.params, &t.batch, done, 0, 7850);
    assert_int_equal(done, 524);
    assert_int_equal(vb_model_forward_part(t.m, t.params, &t.batch, done, 0, 7850), 524);
    vb_model_forward_from(t.m, t.params, &t.batch, done, &t.loss);
    assert_true(whole.loss.loss == t.loss.loss && whole.loss.correct == t.loss.correct);
    told = (struct told){&t, t_model_new(t.n_params, sizeof(float)), t.n_params, 0};
    vb_model_backward(t.m, t.params, &t.batch, t.grads, note, &told);
    assert_int_equal(told.first, 0);
    assert_int_equal(told.calls, 3);
    assert_memory_equal(told.seen, whole.grads, t.n_params * sizeof(float));
    free(told.seen);
    vb_model_cut(t.m, 3921); /* there are too few features for two parts of this length */
    told = (struct told){&t, t_model_new(t.n_params, sizeof(float)), t.n_params, 0};
    vb_model_backward(t.m, t.params, &t.batch, t.grads, note, &told);
    assert_int_equal(told.calls, 1);
    free(told.seen);
out:
    t_model_destroy(&t);
    t_model_destroy(&whole);
}

/* ---- threads and memory ---------------------------------------------------------------------- */

/* Runs one step with fewer threads than the model was created for, and then with a model created
 * for that number of threads. The bits must be equal. */
static void check_bits(struct vb_model_opts opts, bool pixels)
{
    struct t_model two, one;
    size_t bytes;

    omp_set_num_threads(2);
    t_model_create(&two, &opts);
    t_model_batch(&two, two.batch_max - 1, 1, pixels);
    t_model_run(&two);
    bytes = two.n_params * sizeof(float);

    opts.plan = vb_model_plan(two.m);
    omp_set_num_threads(1);
    t_model_create(&one, &opts);
    t_model_batch(&one, one.batch_max - 1, 1, pixels);
    t_model_run(&one);
    assert_memory_equal(&one.loss.loss, &two.loss.loss, sizeof(double));
    assert_int_equal(one.loss.correct, two.loss.correct);
    assert_memory_equal(one.grads, two.grads, bytes);

    memset(two.grads, 0xff, bytes);
    t_model_run(&two); /* created for two threads, run by one */
    assert_memory_equal(one.grads, two.grads, bytes);
    omp_set_num_threads(2);
    t_model_destroy(&one);
    t_model_destroy(&two);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    check_bits((struct vb_model_opts){.name = "lenet", .batch_max = 33}, false);
    check_bits((struct vb_model_opts){.name = "mlp", .batch_max = 33}, false);
    check_bits((struct vb_model_opts){.name = "softmax", .batch_max = 33}, true);
    check_bits((struct vb_model_opts){.name = "alexnet32", .batch_max = 3}, false);
    check_bits((struct vb_model_opts){.table = &t_every_kind_table, .batch_max = 33}, false);
}

static void check_allocations(const struct vb_model_opts *opts, bool pixels)
{
    struct t_model t;
    long before;
    int i;

    t_model_create(&t, opts);
    t_model_batch(&t, t.batch_max, 1, pixels);
    t_model_run(&t); /* the first call starts the threads */
    before = t_allocations;
    for (i = 0; i < 3; i++) {
        t.batch.step++;
        t_model_run(&t);
    }
    assert_int_equal(t_allocations, before);
    assert_true(before > 0); /* shows that allocations are counted */
    t_model_destroy(&t);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    check_allocations(&(struct vb_model_opts){.name = "lenet", .batch_max = 16}, false);
    check_allocations(&(struct vb_model_opts){.name = "mlp", .batch_max = 16}, false);
    check_allocations(&(struct vb_model_opts){.name = "softmax", .batch_max = 16}, true);
    check_allocations(&(struct vb_model_opts){.table = &t_every_kind_table, .batch_max = 9}, false);
    check_allocations(&(struct vb_model_opts){.name = "alexnet32", .batch_max = 2}, false);
}

/* Counts the layers until it says that the pass shall end. */
static bool stop_after(void *arg)
{
    int *left = arg;

    return (*left)-- <= 0;
}

/* Each pass ends before any of its layers. The results of a pass that ends later are those of a
 * pass without stops. */
static void a_pass_can_be_stopped(void **state)
{
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 3};
    struct t_model whole, t;
    int left, layers, i;

    (void)state;
    t_model_create(&whole, &opts);
    opts.plan = vb_model_plan(whole.m);
    t_model_create(&t, &opts);
    t_model_batch(&whole, 3, 1, false);
    t_model_batch(&t, 3, 1, false);
    t_model_run(&whole);
    t.batch.stop = stop_after;
    t.batch.stop_arg = &left;
    left = 1000;
    t_model_run(&t);
    layers = 1000 - left;
    assert_true(layers > 6); /* forward and backward */
    assert_memory_equal(t.grads, whole.grads, t.n_params * sizeof(float));
    for (i = 0; i < layers; i++) {
        left = i;
        memset(t.grads, 0, t.n_params * sizeof(float));
        vb_model_forward(t.m, t.params, &t.batch, &t.loss);
        vb_model_backward(t.m, t.params, &t.batch, t.grads, NULL, NULL);
        assert_true(left < 0);
        assert_true(memcmp(t.grads, whole.grads, t.n_params * sizeof(float)) != 0);
    }
    t_model_destroy(&t);
    t_model_destroy(&whole);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Lets the parameters of one layer arrive at a time. No layer may run before all of its parameters
 * have arrived. */
static void forward_in_parts_gives_the_same_result(void **state)
{
    struct vb_model_opts opts = {.name = "alexnet32", .batch_max = 3};
    const struct vb_param *table;
    struct t_model whole, parts;
    int i, n, layer = 0, next;

    (void)state;
    t_model_create(&whole, &opts);
    opts.plan = vb_model_plan(whole.m);
    t_model_create(&parts, &opts);
    t_model_batch(&whole, 2, 1, false);
    t_model_batch(&parts, 2, 1, false);
    vb_model_forward(whole.m, whole.params, &whole.batch, &whole.loss);
    table = vb_model_table(parts.m, &n);
    for (i = 0; i + 2 < n; i += 2) {
        size_t end = table[i + 2].offset;

        next = vb_model_forward_part(parts.m, parts.params, &parts.batch, layer, 0, end - 1);
        assert_int_equal(next, layer);
        next = vb_model_forward_part(parts.m, parts.params, &parts.batch, layer, 0, end);
        assert_true(next > layer);
        layer = next;
    }
    vb_model_forward_from(parts.m, parts.params, &parts.batch, layer, &parts.loss);
    assert_true(whole.loss.loss == parts.loss.loss && whole.loss.correct == parts.loss.correct);
    t_model_destroy(&parts);
    t_model_destroy(&whole);
}

/* A forward-only model uses two buffers in turn. Its dropout layers drop nothing, even if the batch
 * is for training. */
static void forward_only_models_give_the_same_result(void **state)
{
    struct vb_model_opts opts = {.table = &t_every_kind_table, .batch_max = 9};
    struct t_model train, evaluator;

    (void)state;
    t_model_create(&train, &opts);
    opts.plan = vb_model_plan(train.m);
    opts.forward_only = true;
    t_model_create(&evaluator, &opts);
    t_model_batch(&train, 9, 1, false);
    t_model_batch(&evaluator, 9, 1, false);
    train.batch.training = false;
    vb_model_forward(train.m, train.params, &train.batch, &train.loss);
    vb_model_forward(evaluator.m, evaluator.params, &evaluator.batch, &evaluator.loss);
    assert_memory_equal(&train.loss.loss, &evaluator.loss.loss, sizeof(double));
    assert_int_equal(train.loss.correct, evaluator.loss.correct);
    t_model_destroy(&train);
    t_model_destroy(&evaluator);
}

/* Returns the number of correct samples of a softmax model. All weights are 0, so the logits are
 * the biases. */
static int correct_of(struct t_model *t, const float biases[10], uint16_t label)
{
    memset(t->params, 0, t->n_params * sizeof(float));
    memcpy(t->params + 7840, biases, 10 * sizeof(float));
    t->y[0] = label;
    vb_model_forward(t->m, t->params, &t->batch, &t->loss);
    return t->loss.correct;
}

static void correct_samples_are_counted(void **state)
{
    struct vb_model_opts opts = {.name = "softmax", .batch_max = 1};
    float tie[10] = {0, 3, 2, 3, 1}, nan_last[10] = {1, 5}, nan_first[10] = {0};
    float inf[10] = {0, 0, INFINITY};
    struct t_model t;
    uint16_t c;

    (void)state;
    nan_last[9] = NAN;
    nan_first[0] = NAN;
    t_model_create(&t, &opts);
    t_model_batch(&t, 1, 1, true);
    for (c = 0; c < 10; c++) {
        /* the guess is the first of two equal logits */
        assert_int_equal(correct_of(&t, tie, c), c == 1);
        assert_int_equal(correct_of(&t, inf, c), c == 2);
        assert_int_equal(correct_of(&t, nan_last, c), 0);
        assert_int_equal(correct_of(&t, nan_first, c), 0);
        assert_true(isnan(t.loss.loss));
    }
    t_model_destroy(&t);
}

static void a_row_with_nan_is_never_correct(void **state)
{
    static const struct vb_layer_row row = {"fc",
                                            {.kind = VB_K_LINEAR, .c = 3, .h = 1, .w = 1, .oc = 1}};
    static const struct vb_layer_table table = {"one", 1, &row, false};
    struct vb_model_opts opts = {.table = &table, .batch_max = 2};
    struct t_model t;

    (void)state;
    t_model_create(&t, &opts);
    t_model_batch(&t, 2, 1, false);
    t_model_run(&t);
    assert_int_equal(t.loss.correct, 2);
    t.params[3] = NAN;
    t_model_run(&t);
    assert_int_equal(t.loss.correct, 0);
    t_model_destroy(&t);
}

/* Dropout depends on the seed, the step and the layer. The loss must change with the seed and with
 * the step. */
static void dropout_depends_on_seed_and_step(void **state)
{
    struct vb_model_opts opts = {.table = &t_every_kind_table, .batch_max = 9};
    double first, again, step, seed;
    struct t_model t;

    (void)state;
    t_model_create(&t, &opts);
    t_model_batch(&t, 9, 1, false);
    t_model_run(&t);
    first = t.loss.loss;
    t.batch.step++;
    t_model_run(&t);
    step = t.loss.loss;
    t.batch.step--;
    t_model_run(&t);
    again = t.loss.loss;
    t.batch.seed++;
    t_model_run(&t);
    seed = t.loss.loss;
    assert_true(first == again && first != step && first != seed);
    t_model_destroy(&t);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void same_plan(const struct vb_k_plan *a, const struct vb_k_plan *b)
{
    char *text_a = vb_k_plan_text(a), *text_b = vb_k_plan_text(b);

    assert_non_null(text_a);
    assert_non_null(text_b);
    assert_string_equal(text_a, text_b);
    free(text_a);
    free(text_b);
}

/* Requests every backend that can do a pass, by its name, and checks that the model uses that
 * backend. */
static void try_backends(const struct vb_k_plan *usual, int at)
{
    const struct vb_layer_table *table = vb_layer_table_find("lenet");
    struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX];
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    struct vb_k_plan plan = *usual;
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 2, .plan = &plan};
    struct vb_model *m;
    int layer = 0, n, i;

    while (strcmp(table->layers[layer].name, plan.v[at].layer) != 0)
        layer++;
    assert_int_equal(vb_layer_table_shapes(table, 2, shapes), VB_OK);
    assert_int_equal(vb_k_time_all(&shapes[layer], plan.v[at].pass, 1e-4, candidates, &n), VB_OK);
    assert_true(n > 0);
    for (i = 0; i < n; i++) {
        plan.v[at].backend = candidates[i].backend;
        assert_int_equal(vb_model_create(&opts, &m), VB_OK);
        same_plan(vb_model_plan(m), &plan);
        vb_model_destroy(m);
    }
}

static void a_given_plan_is_used(void **state)
{
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 2};
    struct vb_model *m, *evaluator;
    const struct vb_k_plan *plan;
    int i;

    (void)state;
    assert_int_equal(vb_model_create(&opts, &m), VB_OK);
    plan = vb_model_plan(m);
    /* 3 passes of 5 layers, without the backward-data pass of conv1 */
    assert_int_equal(plan->n, 3 * 5 - 1);
    assert_null(vb_k_plan_find(plan, "conv1", VB_K_BACKWARD_DATA));
    for (i = 0; i < plan->n; i++)
        try_backends(plan, i);
    opts.plan = plan; /* a plan for training, used by a model that does not train */
    opts.forward_only = true;
    assert_int_equal(vb_model_create(&opts, &evaluator), VB_OK);
    assert_int_equal(vb_model_plan(evaluator)->n, 5);
    vb_model_destroy(evaluator);
    vb_model_destroy(m);
}

static void refused(const struct vb_model_opts *opts, const char *why)
{
    struct vb_model *m = NULL;
    struct t_stderr err;
    char text[1024];
    vb_status st;

    t_stderr_catch(&err);
    st = vb_model_create(opts, &m);
    t_stderr_release(&err, text, sizeof(text));
    assert_int_equal(st, VB_ERR_USAGE);
    assert_null(m);
    if (strstr(text, why) == NULL)
        fail_msg("the message '%s' does not contain '%s'", text, why);
}

static void bad_plans_are_refused(void **state)
{
    struct vb_k_plan plan = {.n = 1};
    struct vb_model_opts opts = {.name = "lenet", .batch_max = 2, .plan = &plan};

    (void)state;
    plan.v[0] = (struct vb_k_choice){"conv1", VB_K_FORWARD, "abacus"};
    refused(&opts, "unknown backend abacus");
    plan.v[0] = (struct vb_k_choice){"conv9", VB_K_FORWARD, "blas"};
    refused(&opts, "layer conv9: model lenet has no such layer");
    plan.v[0] = (struct vb_k_choice){"conv1", VB_K_FORWARD, "plain"};
    refused(&opts, "backend plain cannot compute the pass forward");
    opts.name = "alexnet32";
    plan.v[0] = (struct vb_k_choice){"pool1", VB_K_BACKWARD_WEIGHTS, "plain"};
    refused(&opts, "layer pool1: this layer has no backward-weights pass");
    opts.name = "softmax";
    plan.v[0] = (struct vb_k_choice){"linear", VB_K_FORWARD, "blas"};
    refused(&opts, "softmax have no choice of kernels");
    plan.n = 0;
    opts.name = "perceptron";
    refused(&opts, "unknown model perceptron");
}

static void bad_tables_are_refused(void **state)
{
    static struct vb_layer_row rows[VB_LAYERS_MAX + 1];
    struct vb_layer_table table = {"bad", 0, rows, false};
    struct vb_model_opts opts = {.table = &table, .batch_max = 2};

    (void)state;
    refused(&opts, "model bad has 0 layers");
    table.n_layers = VB_LAYERS_MAX + 1;
    refused(&opts, "layers, expected 1 to");
    table.n_layers = 1;
    rows[0] = (struct vb_layer_row){
        "fc", {.kind = VB_K_LINEAR, .c = 3, .h = 1, .w = 1, .oc = 2, .relu = true}};
    refused(&opts, "must end with a linear layer");
    rows[0].shape.relu = false;
    rows[0].shape.oc = 70000;
    refused(&opts, "must end with a linear layer");
    rows[0].shape.oc = 2;
    opts.batch_max = 0;
    refused(&opts, "bad, layer fc: expected a batch of 1 to 1048576 samples, found 0");
    opts.batch_max = 2;
    table.n_layers = 2;
    rows[1] = (struct vb_layer_row){"fc", {.kind = VB_K_LINEAR, .oc = 2}};
    refused(&opts, "plan, layer fc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_cover_the_arena),
        cmocka_unit_test(parameters_have_names_and_sizes),
        cmocka_unit_test(first_values_follow_the_papers),
        cmocka_unit_test(first_values_depend_only_on_the_seed),
        cmocka_unit_test(softmax_begins_with_zeros),
        cmocka_unit_test(gradients_are_reported_from_last_to_first),
        cmocka_unit_test(softmax_in_parts_gives_the_same_result),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(a_pass_can_be_stopped),
        cmocka_unit_test(forward_in_parts_gives_the_same_result),
        cmocka_unit_test(forward_only_models_give_the_same_result),
        cmocka_unit_test(correct_samples_are_counted),
        cmocka_unit_test(a_row_with_nan_is_never_correct),
        cmocka_unit_test(dropout_depends_on_seed_and_step),
        cmocka_unit_test(a_given_plan_is_used),
        cmocka_unit_test(bad_plans_are_refused),
        cmocka_unit_test(bad_tables_are_refused),
    };

    return T_RUN(tests);
}
