/* SPDX-License-Identifier: MIT
 *
 * Tests engine/train/train_until.c with invented evaluations: which of them ends a run, what is
 * noted of it, and how often a run is evaluated. tests/engine/train_until.sh tests real runs.
 *
 * Covers: engine/train/train_until.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/test.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_reached_once),
        cmocka_unit_test(the_first_condition_counts),
        cmocka_unit_test(a_plateau_has_no_better_loss),
        cmocka_unit_test(a_worker_is_told),
        cmocka_unit_test(texts_are_those_of_the_command_line),
        cmocka_unit_test(evaluations_are_few_and_cheap),
    };

    return T_RUN(tests);
}
