/* SPDX-License-Identifier: MIT
 *
 * Tests engine/train/train_until.c with invented evaluations: which of them ends a run, what is
 * noted of it, how often a run is evaluated, and what a checkpoint has of it, also a broken one.
 * tests/engine/train_until.sh tests real runs.
 *
 * Covers: engine/train/train_until.c engine/elastic/send.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/ranks.h"

#include <math.h>

static struct vb_train_opts opts;

/* Returns a trainer that has just begun, with no memory for parameters. */
static struct vb_trainer begin(const struct vb_until *list, int n)
{
    struct vb_trainer t = {.o = &opts, .rank = 1};

    opts = (struct vb_train_opts){.until = {.n = n}};
    memcpy(opts.until.list, list, (size_t)n * sizeof(*list));
    t.until.judged = t.until.kept_step = -1;
    vb_laps_begin(&t.laps);
    return t;
}

static bool ends(struct vb_trainer *t, int64_t step, double accuracy, double loss)
{
    t->evals.accuracy = accuracy;
    t->evals.loss = loss;
    assert_int_equal(vb_until_judge(t, step), VB_OK);
    return t->until.met;
}

static void a_target_is_reached_once(void **state)
{
    const struct vb_until list[] = {{VB_UNTIL_ACCURACY, 0.9, 0}, {VB_UNTIL_LOSS, 0.5, 0}};
    struct vb_trainer t = begin(list, 2);

    (void)state;
    assert_false(ends(&t, 10, 0.8, 0.7));
    assert_false(ends(&t, 20, 0.85, 0.51));
    assert_true(ends(&t, 30, 0.84, 0.5));
    assert_true(t.until.result.reached);
    assert_int_equal(t.until.result.which, 1);
    assert_int_equal(t.until.result.step, 30);
    assert_true(t.until.result.accuracy == 0.85 && t.until.result.loss == 0.5);
    assert_true(ends(&t, 40, 0.95, 0.1)); /* a run that goes on is not judged again */
    assert_int_equal(t.until.result.which, 1);
    assert_int_equal(t.until.result.step, 30);
}

static void the_first_condition_counts(void **state)
{
    const struct vb_until list[] = {{VB_UNTIL_PLATEAU, 0, 2}, {VB_UNTIL_ACCURACY, 0.9, 0}};
    struct vb_trainer t = begin(list, 2);

    (void)state;
    assert_true(ends(&t, 10, 0.9, 0.7));
    assert_int_equal(t.until.result.which, 1);
}

static void a_plateau_has_no_better_loss(void **state)
{
    const struct vb_until list[] = {{VB_UNTIL_PLATEAU, 0, 3}};
    struct vb_trainer t = begin(list, 1);

    (void)state;
    assert_false(ends(&t, 1, 0.5, 1));
    assert_false(ends(&t, 2, 0.5, 1.1));
    assert_false(ends(&t, 3, 0.5, 1.2));
    assert_false(ends(&t, 4, 0.5, 0.9)); /* better: the count begins again */
    assert_false(ends(&t, 5, 0.6, 0.91));
    assert_false(ends(&t, 6, 0.7, 0.8999)); /* lower, but not by a thousandth */
    assert_true(t.until.result.loss == 0.8999);
    assert_true(ends(&t, 7, 0.7, 0.8998));
    assert_int_equal(t.until.result.step, 7);
}

static void a_worker_is_told(void **state)
{
    const struct vb_until list[] = {{VB_UNTIL_ACCURACY, 0.9, 0}, {VB_UNTIL_PLATEAU, 0, 3}};
    struct vb_trainer t = begin(list, 2);

    (void)state;
    assert_false(ends(&t, 10, 0.8, 0.7));
    vb_until_told(&t, 12);
    assert_true(t.until.met && t.until.result.reached);
    assert_int_equal(t.until.result.step, 12);
    assert_int_equal(t.until.result.which, 1); /* the accuracy was not reached */
}

static void texts_are_those_of_the_command_line(void **state)
{
    const struct vb_until list[] = {
        {VB_UNTIL_ACCURACY, 0.97, 0}, {VB_UNTIL_LOSS, 0.125, 0}, {VB_UNTIL_PLATEAU, 0, 7}};
    const char *const texts[] = {"accuracy=0.97", "loss=0.125", "plateau:7"};
    char text[VB_UNTIL_TEXT];
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(list); i++) {
        vb_until_text(&list[i], text);
        assert_string_equal(text, texts[i]);
    }
}

static int64_t every(int64_t steps, int global_batch, int n_test)
{
    struct vb_recipe recipe = {.steps = steps, .global_batch = global_batch};

    return vb_until_eval_every(&opts, &recipe, n_test);
}

static void evaluations_are_few_and_cheap(void **state)
{
    const struct vb_until list[] = {{VB_UNTIL_LOSS, 0.5, 0}};

    (void)state;
    (void)begin(list, 1);
    assert_int_equal(every(100000, 100, 100), 2000);    /* 50 evaluations */
    assert_int_equal(every(100000, 100, 100000), 3000); /* of which each costs much */
    assert_int_equal(every(3000, 100, 100000), 300);    /* at least 10 */
    assert_int_equal(every(5, 100, 100), 1);
    opts.eval_every = 7; /* the user's */
    assert_int_equal(every(100000, 100, 100), 7);
    opts.eval_every = 0;
    opts.until.n = 0; /* nobody needs them */
    assert_int_equal(every(100000, 100, 100), 0);
}

/* ---- in a checkpoint ------------------------------------------------------------------------- */

#define DATA "\ntraining samples=8\ntest samples=2\nfiles=a\n"

static float weights[3]; /* the model */

static vb_status save_weights(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    static struct vb_checkpoint_array array = {
        .name = "w", .type = VB_ARRAY_F32, .rows = 3, .cols = 1, .data = weights};

    (void)t;
    cp->arrays = &array;
    cp->n_arrays = 1;
    return VB_OK;
}

static vb_status restore_weights(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    (void)t;
    memcpy(weights, vb_checkpoint_data(cp, "w", VB_ARRAY_F32, 3), sizeof(weights));
    return VB_OK;
}

static const struct vb_trainer_ops ops = {.save = save_weights, .restore = restore_weights};
static char data_lines[] = DATA, other_lines[] = "\ntraining samples=8\ntest samples=3\nfiles=a\n";

/* Returns a trainer that waits for a plateau of 3 evaluations and keeps the weights. */
static struct vb_trainer begin_plateau(void)
{
    const struct vb_until list[] = {{VB_UNTIL_PLATEAU, 0, 3}};
    struct vb_trainer t = begin(list, 1);

    t.ops = &ops;
    t.settings = data_lines;
    t.data.n_test = 2;
    assert_int_equal(vb_until_open(&t), VB_OK);
    return t;
}

/* Begins a run and saves it: its best evaluation is that of step 10, and one worse follows. */
static void begin_and_save(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    *t = begin_plateau();
    weights[0] = 10;
    assert_false(ends(t, 10, 0.8, 0.5));
    weights[0] = 20;
    assert_false(ends(t, 20, 0.7, 0.6));
    *cp = (struct vb_checkpoint){.step = 25, .options = data_lines};
    assert_int_equal(save_weights(t, cp), VB_OK);
    vb_until_save(t, cp);
}

static void a_plateau_goes_on_after_a_checkpoint(void **state)
{
    struct vb_checkpoint cp;
    struct vb_trainer first, t = begin_plateau();

    (void)state;
    begin_and_save(&first, &cp);
    assert_int_equal(cp.n_arrays, 3);
    assert_true(cp.arrays[1].state && cp.arrays[2].state);
    vb_until_resume(&t, &cp);
    assert_int_equal(t.until.judged, 20);
    assert_false(ends(&t, 30, 0.7, 0.6));
    assert_true(ends(&t, 40, 0.75, 0.7)); /* the third in a row, one of them before */
    assert_true(t.until.result.accuracy == 0.8 && t.until.result.loss == 0.5);
    t.step = 40;
    assert_int_equal(vb_until_settle(&t), VB_OK);
    assert_int_equal(t.until.result.params_step, 10);
    assert_true(weights[0] == 10 && t.evals.loss == 0.5);
    cp = (struct vb_checkpoint){.step = 40};
    assert_int_equal(save_weights(&t, &cp), VB_OK);
    vb_until_save(&t, &cp);
    assert_int_equal(cp.n_arrays, 1); /* what is settled is not carried on */
    vb_until_close(&first);
    vb_until_close(&t);
}

/* Resumes from a checkpoint with n of its arrays; changed: other bytes for those of "until". */
static bool goes_on(const struct vb_until_saved *changed, int n, char *lines)
{
    struct vb_checkpoint cp;
    struct vb_trainer first, t = begin_plateau();
    bool goes;

    begin_and_save(&first, &cp);
    cp.n_arrays = n;
    cp.options = lines;
    if (changed != NULL)
        cp.arrays[1].data = changed;
    vb_until_resume(&t, &cp);
    goes = t.until.judged >= 0;
    assert_true(goes || t.until.kept_step == -1);
    vb_until_close(&first);
    vb_until_close(&t);
    return goes;
}

static void what_does_not_fit_is_counted_anew(void **state)
{
    struct vb_checkpoint cp;
    struct vb_until_saved good, bad[7];
    struct vb_trainer t;
    size_t i;

    (void)state;
    begin_and_save(&t, &cp);
    good = t.until.saved[t.until.last_saved];
    vb_until_close(&t);
    assert_true(goes_on(NULL, 3, data_lines) && goes_on(&good, 3, data_lines));
    for (i = 0; i < VB_COUNT(bad); i++)
        bad[i] = good;
    bad[0].judged = 26; /* after the checkpoint */
    bad[1].judged = -1;
    bad[2].worse = INT64_MAX;
    bad[3].kept_step = 21;
    bad[4].mark = (double)NAN;
    bad[5].loss = (double)INFINITY;
    bad[6].n_test = 3;
    for (i = 0; i < VB_COUNT(bad); i++)
        assert_false(goes_on(&bad[i], 3, data_lines));
    assert_false(goes_on(NULL, 1, data_lines)); /* an earlier version */
    assert_false(goes_on(NULL, 2, data_lines)); /* no best weights */
    assert_false(goes_on(NULL, 3, other_lines));
}

/* Rank 1 joins the job of rank 0. If a member dies then, all evaluate the last step once more. */
static int judge_again(struct vb_group *g, void *arg)
{
    struct vb_checkpoint cp;
    struct vb_trainer t;
    int wrong;

    (void)arg;
    if (vb_group_rank(g) == 0)
        begin_and_save(&t, &cp);
    else
        t = begin_plateau();
    t.place.group = g;
    t.step = 20;
    t.rank = vb_group_rank(g);
    t.world = 2;
    t.form.old_world = 1;
    if (t.rank == 0)
        wrong = T_WRONG(vb_train_send_state(&t) == VB_OK);
    else
        wrong = T_WRONG(vb_train_take_state(&t) == VB_OK);
    wrong += T_WRONG(!ends(&t, 20, 0.7, 0.6)) + T_WRONG(t.until.worse == 1);
    wrong += T_WRONG(!ends(&t, 30, 0.7, 0.6)) + T_WRONG(t.until.worse == 2);
    vb_until_close(&t);
    return wrong;
}

static void a_joiner_judges_as_the_members_do(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = judge_again};

    (void)state;
    t_as_processes(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_reached_once),
        cmocka_unit_test(the_first_condition_counts),
        cmocka_unit_test(a_plateau_has_no_better_loss),
        cmocka_unit_test(a_worker_is_told),
        cmocka_unit_test(texts_are_those_of_the_command_line),
        cmocka_unit_test(evaluations_are_few_and_cheap),
        cmocka_unit_test(a_plateau_goes_on_after_a_checkpoint),
        cmocka_unit_test(what_does_not_fit_is_counted_anew),
        cmocka_unit_test(a_joiner_judges_as_the_members_do),
    };

    return T_RUN(tests);
}
