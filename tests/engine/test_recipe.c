/* SPDX-License-Identifier: MIT
 *
 * Tests the numbers that a run chooses by itself: the sample of the data and its measurements,
 * trials on made-up samples, and the recipe from options, model and data.
 *
 * Covers: engine/train/train_recipe.c engine/trial/sample.c engine/trial/trial.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>

/* ---- made-up samples ------------------------------------------------------------------------- */

/* Returns a number from -1 to 1. */
static float noise(uint64_t i)
{
    return (float)((double)(vb_random(7, i) >> 11) / (double)(UINT64_C(1) << 52) - 1);
}

/* Makes n dense rows. The label is the sign of feature 0 plus feature 1, each divided by its size,
 * and wrong in one of `wrong` rows; the other features are noise. size: of every second feature,
 * from 0 on. */
static struct vb_sample make_sample(int n, int features, float size, int wrong)
{
    struct vb_sample s = {.n = n, .features = features, .outputs = 1, .least = 1, .most = size};
    int64_t e = 0;
    int i, f;

    s.at = calloc((size_t)n + 1, sizeof(*s.at));
    s.index = calloc((size_t)n * (size_t)features, sizeof(*s.index));
    s.value = calloc((size_t)n * (size_t)features, sizeof(*s.value));
    s.y = calloc((size_t)n, sizeof(*s.y));
    s.size = calloc((size_t)features, sizeof(*s.size));
    s.share = calloc((size_t)features, sizeof(*s.share));
    for (f = 0; f < features; f++) {
        s.size[f] = 0.58f * (f % 2 == 0 ? size : 1);
        s.least = fmin(s.least, (double)s.size[f]);
        s.share[f] = 1;
    }
    for (i = 0; i < n; i++) {
        for (f = 0; f < features; f++, e++) {
            s.index[e] = (uint32_t)f;
            s.value[e] = noise((uint64_t)e) * (f % 2 == 0 ? size : 1);
            s.square += (double)s.value[e] * (double)s.value[e] / n;
        }
        s.y[i] = s.value[s.at[i]] / size + s.value[s.at[i] + 1] > 0;
        if (wrong > 0 && i % wrong == 0)
            s.y[i] = !s.y[i];
        s.at[i + 1] = e;
    }
    s.square += 1;
    return s;
}

static struct vb_trial run_trial(struct vb_sample sample)
{
    struct vb_trial trial = {0};

    assert_int_equal(vb_trial_run(&sample, 1, &trial), VB_OK);
    vb_sample_free(&sample);
    assert_true(trial.ran);
    return trial;
}

/* ---- trials ---------------------------------------------------------------------------------- */

static void adagrad_learns_features_of_different_sizes(void **state)
{
    struct vb_trial trial = run_trial(make_sample(1000, 10, 5000, 0));

    (void)state;
    assert_int_equal(trial.rule, VB_K_ADAGRAD);
    assert_true(trial.loss < 0.2);
}

/* 300 rows of 200 features, most of them noise: a long training would learn the rows by heart. */
static void wide_data_is_trained_for_a_short_time(void **state)
{
    struct vb_trial trial = run_trial(make_sample(300, 200, 1, 5));

    (void)state;
    assert_false(trial.end);
    assert_true(trial.steps < 500);
    assert_true(trial.loss < 0.6931);
}

static void clear_data_is_trained_to_the_end(void **state)
{
    struct vb_trial trial = run_trial(make_sample(3000, 4, 1, 0));

    (void)state;
    assert_true(trial.loss < 0.1);
    assert_true(trial.steps >= 512);
}

static void trials_are_the_same_each_time(void **state)
{
    struct vb_trial a = run_trial(make_sample(300, 20, 3, 7));
    struct vb_trial b = run_trial(make_sample(300, 20, 3, 7)), c;
    char text[VB_TRIAL_TEXT];

    (void)state;
    assert_true(a.loss == b.loss && a.lr == b.lr && a.steps == b.steps && a.rule == b.rule);
    vb_trial_print(&a, text);
    assert_true(vb_trial_parse(text, &c));
    assert_true(a.loss == c.loss && a.lr == c.lr && a.steps == c.steps && a.rule == c.rule);
    assert_true(a.batch == c.batch && a.rows_train == c.rows_train && a.end == c.end);
}

static void broken_texts_are_no_trials(void **state)
{
    static const char *const bad[] = {"", "1 2 3", "1 5 9 0 nan 100 0x1p+3 0x1p+3 0 0x1p+0",
                                      "1 5 9 77 0x1p+0 100 0x1p+3 0x1p+3 0 0x1p+0",
                                      "1 5 9 0 0x1p+0 0 0x1p+3 0x1p+3 0 0x1p+0"};
    struct vb_trial trial;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(bad); i++)
        assert_false(vb_trial_parse(bad[i], &trial));
}

static void a_few_rows_are_not_tried(void **state)
{
    struct vb_sample s = make_sample(5, 3, 1, 0);
    struct vb_trial trial;

    (void)state;
    assert_int_equal(vb_trial_run(&s, 1, &trial), VB_OK);
    assert_false(trial.ran);
    vb_sample_free(&s);
}

/* ---- the sample ------------------------------------------------------------------------------ */

static void a_large_feature_begins_with_a_larger_state(void **state)
{
    (void)state;
    assert_true(vb_sample_begin(1, 0.5, 1, 1000, 100) == 0);
    assert_true(vb_sample_begin(10, 0.5, 1, 1000, 100) > 0);
    assert_true(vb_sample_begin(100, 0.5, 1, 1000, 100) >
                100 * vb_sample_begin(10, 0.5, 1, 1000, 100));
    assert_true(isfinite(vb_sample_begin(1e19, 1, 1e-9, 1000000, 1)));
}

static struct vb_sample sample_of(const char *spec)
{
    struct vb_sample sample;
    struct vb_data_spec parsed;
    struct vb_dataset set;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_data_spec_parse(spec, &parsed, why), VB_OK);
    assert_int_equal(vb_data_open(&parsed, 1, VB_SYNTH_TRAIN, &set), VB_OK);
    assert_int_equal(vb_sample_take(&set, &sample), VB_OK);
    vb_dataset_destroy(&set);
    return sample;
}

static void rows_and_images_are_sampled(void **state)
{
    struct vb_sample rows = sample_of("synth:kind=criteo,n=30000,features=5000");
    struct vb_sample images = sample_of("synth:kind=digits,n=500");
    int64_t e, squares = 0;

    (void)state;
    assert_int_equal(rows.n, 20000);
    assert_int_equal(rows.outputs, 1);
    assert_true(rows.size != NULL && rows.least <= 1 && rows.most >= 1);
    assert_int_equal(images.n, 500);
    assert_int_equal(images.outputs, 10);
    for (e = 0; e < images.at[500]; e++)
        squares += images.value[e] > 0 && images.value[e] <= 1 && images.index[e] < 784;
    assert_int_equal(squares, images.at[500]);
    assert_true(images.in_mean > 0 && images.in_mean < 0.9);
    vb_sample_free_rows(&rows);
    assert_null(rows.value);
    assert_non_null(rows.size);
    vb_sample_free(&rows);
    vb_sample_free(&images);
}

/* ---- the recipe ------------------------------------------------------------------------------ */

static struct vb_train_opts options(const char *model, enum vb_mode mode, int workers)
{
    struct vb_train_opts o = {.model = model, .mode = mode, .group = {.world = workers}};

    o.learn.momentum = o.learn.weight_decay = o.learn.clip = -1;
    o.learn.warmup = -1;
    return o;
}

static struct vb_recipe recipe(const struct vb_train_opts *o, int n)
{
    struct vb_recipe r;

    assert_int_equal(vb_recipe_make(o, n, NULL, NULL, &r), VB_OK);
    return r;
}

static void a_rule_that_is_named_has_its_own_rate(void **state)
{
    struct vb_train_opts o = options("sparse-lr", VB_MODE_SYNC, 1);
    struct vb_recipe usual = recipe(&o, 100000), sgd, ftrl;

    (void)state;
    o.learn.rule = "sgd";
    sgd = recipe(&o, 100000);
    o.learn.rule = "ftrl";
    ftrl = recipe(&o, 100000);
    assert_true(sgd.schedule.base > usual.schedule.base);
    assert_true(ftrl.schedule.base > usual.schedule.base);
    assert_string_equal(sgd.chosen.lr_from, "rule");
    assert_int_equal(sgd.schedule.kind, VB_K_RATE_COSINE);
}

static void small_sets_get_more_epochs(void **state)
{
    struct vb_train_opts o = options("lenet", VB_MODE_SYNC, 1);
    struct vb_recipe small = recipe(&o, 1000), large = recipe(&o, 60000), few;

    (void)state;
    assert_int_equal(large.steps, 6 * large.steps_per_epoch);
    assert_true(small.steps > 6 * small.steps_per_epoch);
    assert_string_equal(small.chosen.steps_from, "model");
    few = recipe(&o, 5); /* a smaller batch must not make more steps */
    assert_int_equal(few.steps, small.steps);
    o.length.epochs = 2;
    small = recipe(&o, 1000);
    assert_int_equal(small.steps, 2 * small.steps_per_epoch);
    assert_string_equal(small.chosen.steps_from, "given");
}

static void many_workers_train_on_as_many_samples(void **state)
{
    struct vb_train_opts one = options("softmax", VB_MODE_SYNC, 1);
    struct vb_train_opts sync = options("softmax", VB_MODE_SYNC, 16);
    struct vb_train_opts async = options("softmax", VB_MODE_ASYNC, 16);
    struct vb_recipe a = recipe(&one, 60000), b = recipe(&sync, 60000), c = recipe(&async, 60000);

    (void)state;
    assert_int_equal(b.global_batch, 4 * a.global_batch);
    assert_int_equal(b.steps * b.global_batch, a.steps * a.global_batch);
    assert_true(c.global_batch * 16 < 3 * a.global_batch);
    assert_true(c.schedule.base < a.schedule.base * c.global_batch / a.global_batch);
    sync.length.steps = 100; /* the user counts steps of whole batches */
    b = recipe(&sync, 60000);
    assert_int_equal(b.global_batch, 16 * a.global_batch);
}

static void sizes_change_the_rate(void **state)
{
    struct vb_train_opts o = options("softmax", VB_MODE_SYNC, 1);
    struct vb_sample s = {.square = 8000, .least = 1, .most = 1};
    struct vb_recipe r;

    (void)state;
    assert_true(vb_recipe_wants_sample(&o));
    assert_int_equal(vb_recipe_make(&o, 60000, &s, NULL, &r), VB_OK);
    assert_true(fabs(r.schedule.base - 0.01) < 1e-12);
    assert_string_equal(r.chosen.lr_from, "data");
    o.learn.lr = 0.3;
    assert_false(vb_recipe_wants_sample(&o));
    assert_int_equal(vb_recipe_make(&o, 60000, NULL, NULL, &r), VB_OK);
    assert_true(r.schedule.base == 0.3);
}

static void trials_decide_only_if_the_user_does_not(void **state)
{
    struct vb_trial trial = {.ran = true,
                             .tried = 5,
                             .rows = 1000,
                             .rule = VB_K_SGD,
                             .lr = 0.1,
                             .batch = 100,
                             .steps = 32,
                             .rows_train = 800,
                             .loss = 0.5};
    struct vb_train_opts o = options("sparse-lr", VB_MODE_SYNC, 1);
    struct vb_sample s = {.n = 1000, .square = 10, .least = 1, .most = 1};
    struct vb_recipe r;

    (void)state;
    assert_true(vb_recipe_wants_trial(&o, 1000, &s));
    assert_false(vb_recipe_wants_trial(&o, 1000000, &s));
    assert_int_equal(vb_recipe_make(&o, 1000, &s, &trial, &r), VB_OK);
    assert_int_equal(r.rule.kind, VB_K_SGD);
    assert_int_equal(r.steps, 1000);
    /* 32 steps with 800 rows are 40 with 1000; the cosine's mean is a half: 80 steps at 0.1 */
    assert_true(fabs(r.schedule.base * 1000 - 80 * 0.1) < 1e-9);
    assert_string_equal(r.chosen.rule_from, "trials");
    o.learn.rule = "adagrad";
    assert_false(vb_recipe_wants_trial(&o, 1000, &s));
    o.learn.rule = NULL;
    o.length.epochs = 3;
    assert_false(vb_recipe_wants_trial(&o, 1000, &s));
}

static void a_joiner_takes_the_numbers_of_the_job(void **state)
{
    struct vb_train_opts o = options("sparse-lr", VB_MODE_ASYNC, 2);
    struct vb_recipe r = recipe(&o, 1000), before = r;

    (void)state;
    vb_recipe_of_job("number of steps=77\nlearning rate=0.25\nschedule=2 0 77 0\n"
                     "update rule=0 0 0\n",
                     &r);
    assert_int_equal(r.steps, 77);
    assert_true(r.schedule.base == 0.25);
    assert_int_equal(r.rule.kind, VB_K_SGD);
    assert_int_equal(r.schedule.kind, VB_K_RATE_COSINE);
    r = before;
    vb_recipe_of_job("number of steps=-1\nlearning rate=nan\nschedule=99\nupdate rule=x\n", &r);
    assert_int_equal(r.steps, before.steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adagrad_learns_features_of_different_sizes),
        cmocka_unit_test(wide_data_is_trained_for_a_short_time),
        cmocka_unit_test(clear_data_is_trained_to_the_end),
        cmocka_unit_test(trials_are_the_same_each_time),
        cmocka_unit_test(broken_texts_are_no_trials),
        cmocka_unit_test(a_few_rows_are_not_tried),
        cmocka_unit_test(a_large_feature_begins_with_a_larger_state),
        cmocka_unit_test(rows_and_images_are_sampled),
        cmocka_unit_test(a_rule_that_is_named_has_its_own_rate),
        cmocka_unit_test(small_sets_get_more_epochs),
        cmocka_unit_test(many_workers_train_on_as_many_samples),
        cmocka_unit_test(sizes_change_the_rate),
        cmocka_unit_test(trials_decide_only_if_the_user_does_not),
        cmocka_unit_test(a_joiner_takes_the_numbers_of_the_job),
    };

    return T_RUN(tests);
}
