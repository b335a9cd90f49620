/* SPDX-License-Identifier: MIT
 *
 * Tests the times that follow from --detect, and that a wrong order of them is found.
 *
 * Covers: net/control/times.c
 */
#include "net/control/times.h"

#include "base/base.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

static const double detects[] = {0.1, 0.2, 0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 600};
static const double patiences[] = {1, 1.5, 2, 3, 10, 20};

static void in_order(double detect_s, double patience)
{
    char why[VB_TIMES_WHY] = "";
    struct vb_times t;

    vb_times_of(detect_s, patience, &t);
    if (!vb_times_check(&t, 0, why))
        fail_msg("detect %g s, patience %g: %s", detect_s, patience, why);
    assert_int_equal(t.silent_ms, (int)(1000 * detect_s * patience));
    /* the least exponent that outlasts the kernel twice, or the least of all */
    assert_true(t.qp_ms >= 2 * t.kernel_ms);
    assert_true(t.qp_timeout == 18 || t.qp_ms / 2 < 2 * t.kernel_ms);
}

static void all_values_are_in_order(void **state)
{
    size_t d, p;

    (void)state;
    for (d = 0; d < VB_COUNT(detects); d++)
        for (p = 0; p < VB_COUNT(patiences); p++)
            in_order(detects[d], patiences[p]);
}

static void the_default_is_one_second(void **state)
{
    struct vb_times t, same;

    (void)state;
    vb_times_of(0, 0, &t);
    vb_times_of(1, 1, &same);
    assert_memory_equal(&t, &same, sizeof(t));
    assert_int_equal(t.silent_ms, 1000);
    assert_int_equal(t.beat_ms, 166);
    assert_int_equal(t.accuse_ms, 666);
    assert_int_equal(t.kernel_ms, 2000);
    assert_int_equal(t.qp_timeout, 18);
    assert_int_equal(t.qp_ms, 7516); /* 4.096 us * 2^18 * 7 */
}

/* Patience is for slow machines, where heartbeats are late: it must not make them rarer. */
static void patience_does_not_slow_heartbeats(void **state)
{
    struct vb_times t, patient;

    (void)state;
    vb_times_of(1, 1, &t);
    vb_times_of(1, 10, &patient);
    assert_int_equal(patient.beat_ms, t.beat_ms);
    assert_int_equal(patient.silent_ms, 10 * t.silent_ms);
    assert_int_equal(patient.close_ms / 10, t.close_ms);
}

/* Each of these sets one time wrong. The text names both times of the pair. */
static void wrong_orders_are_found(void **state)
{
    static const struct {
        size_t at; /* of an int */
        int ms;
        const char *pair[2];
    } wrongs[] = {
        {offsetof(struct vb_times, beat_ms), 0, {"(0 ms)", "heartbeats (0 ms)"}},
        {offsetof(struct vb_times, beat_ms), 222, {"three heartbeats (666 ms)", "accusation"}},
        {offsetof(struct vb_times, sense_ms), 333, {"two looks at a transfer", "accusation"}},
        {offsetof(struct vb_times, accuse_ms), 1000, {"accusation (1000 ms)", "silence (1000 ms)"}},
        {offsetof(struct vb_times, close_ms), 1200, {"close connections (1200 ms)", "silence"}},
        {offsetof(struct vb_times, kernel_ms), 1000, {"silence (1000 ms)", "the kernel waits"}},
        {offsetof(struct vb_times, probe_ms), 4000, {"between probes (4000 ms)", "kernel waits"}},
        {offsetof(struct vb_times, kernel_moving_ms), 2000, {"waits (2000 ms)", "data moves"}},
        {offsetof(struct vb_times, settle_ms), 1000, {"silence and the kernel", "settle (1000"}},
        {offsetof(struct vb_times, grace_ms), 300, {"two heartbeats (332 ms)", "grace (300 ms)"}},
        {offsetof(struct vb_times, qp_ms), 1999, {"kernel waits (2000 ms)", "tries (1999 ms)"}},
    };
    char why[VB_TIMES_WHY];
    struct vb_times t;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(wrongs); i++) {
        vb_times_of(1, 1, &t);
        memcpy((char *)&t + wrongs[i].at, &wrongs[i].ms, sizeof(int));
        why[0] = '\0';
        assert_false(vb_times_check(&t, 0, why));
        if (strstr(why, wrongs[i].pair[0]) == NULL || strstr(why, wrongs[i].pair[1]) == NULL)
            fail_msg("case %zu: %s", i, why);
    }
}

static void the_timeout_must_be_longer(void **state)
{
    char why[VB_TIMES_WHY] = "";
    struct vb_times t;

    (void)state;
    vb_times_of(1, 1, &t);
    assert_true(vb_times_check(&t, 1167, why));
    assert_false(vb_times_check(&t, 1166, why));
    assert_non_null(strstr(why, "(1166 ms) must be shorter than the time that a rank waits"));
    vb_times_of(60, 1, &t);
    assert_false(vb_times_check(&t, 60000, why));
    assert_true(vb_times_check(&t, 61000, why));
}

/* No queue pair tries for days: that must be said, and nothing may overflow. */
static void times_that_no_queue_pair_outlasts_are_refused(void **state)
{
    char why[VB_TIMES_WHY] = "";
    struct vb_times t;

    (void)state;
    vb_times_of(600, 1000, &t);
    assert_false(vb_times_check(&t, 0, why));
    assert_non_null(strstr(why, "a queue pair tries"));
    vb_times_of(600, 1e9, &t);
    assert_true(t.silent_ms > 0 && t.kernel_ms > 0 && t.kernel_moving_ms > 0 && t.qp_ms > 0);
    assert_false(vb_times_check(&t, 0, why));
}

static void one_line_tells_all(void **state)
{
    char text[VB_TIMES_TEXT];
    struct vb_times t;

    (void)state;
    vb_times_of(3, 1, &t);
    vb_times_text(&t, text);
    assert_non_null(strstr(text, "silence 3000 ms"));
    assert_non_null(strstr(text, "queue pair 4.096 us * 2^19 * 7 = 15032 ms"));
    assert_null(strchr(text, '\n'));
    memset(&t, 0x7f, sizeof(t)); /* the longest numbers */
    vb_times_text(&t, text);
    assert_true(strlen(text) < VB_TIMES_TEXT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_values_are_in_order),
        cmocka_unit_test(the_default_is_one_second),
        cmocka_unit_test(patience_does_not_slow_heartbeats),
        cmocka_unit_test(wrong_orders_are_found),
        cmocka_unit_test(the_timeout_must_be_longer),
        cmocka_unit_test(times_that_no_queue_pair_outlasts_are_refused),
        cmocka_unit_test(one_line_tells_all),
    };

    return T_RUN(tests);
}
