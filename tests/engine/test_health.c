/* SPDX-License-Identifier: MIT
 *
 * Tests engine/train/train_health.c with an invented trainer: a warning is said once, by the rank
 * that speaks for the job; numbers that are not finite are found. tests/engine/train_health.sh
 * tests real runs.
 *
 * Covers: engine/train/train_health.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/test.h"

#include <math.h>

static const struct vb_train_opts opts;
static const struct vb_train_model rows = {.name = "rows", .sparse = true};

static struct vb_trainer begin(void)
{
    return (struct vb_trainer){
        .o = &opts, .shows = true, .model.row = &rows, .data.train.features = 100};
}

static void a_warning_is_said_once(void **state)
{
    struct vb_trainer t = begin();

    (void)state;
    vb_health_say(&t, VB_WARN_LABEL, "first %d", 1);
    vb_health_say(&t, VB_WARN_LABEL, "second");
    assert_string_equal(t.health.said[VB_WARN_LABEL], "first 1");
    t.shows = false; /* another rank speaks */
    vb_health_say(&t, VB_WARN_UNSEEN, "third");
    assert_string_equal(t.health.said[VB_WARN_UNSEEN], "");
}

static void the_weight_is_named(void **state)
{
    const uint32_t keys[] = {3, 17, 100}; /* the last one is the bias */
    float w[] = {1, NAN, INFINITY};
    struct vb_trainer t = begin();

    (void)state;
    assert_int_equal(vb_health_weights(&t, 12, keys, w, 3), VB_ERR_INPUT);
    assert_true(t.health.not_finite);
    assert_non_null(strstr(vb_log_first_error(), "step 12: the loss is not a finite number: the "
                                                 "weight of feature 17 is not finite"));
    w[1] = 0;
    assert_int_equal(vb_health_weights(&t, 12, keys, w, 3), VB_ERR_INPUT);
    w[2] = 0;
    assert_int_equal(vb_health_weights(&t, 12, keys, w, 3), VB_ERR_INPUT);
}

static void classes_are_one_or_several(void **state)
{
    int sum = 0;

    (void)state;
    vb_eval_class(&sum, 0); /* a rank without test samples */
    assert_int_equal(sum, 0);
    vb_eval_class(&sum, 4);
    vb_eval_class(&sum, 4);
    vb_eval_class(&sum, 0);
    assert_int_equal(sum, 4);
    vb_eval_class(&sum, 5);
    vb_eval_class(&sum, 5);
    assert_int_equal(sum, -1);
    sum = 4;
    vb_eval_class(&sum, -1);
    assert_int_equal(sum, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warning_is_said_once),
        cmocka_unit_test(the_weight_is_named),
        cmocka_unit_test(classes_are_one_or_several),
    };

    return T_RUN(tests);
}
