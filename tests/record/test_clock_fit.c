/* SPDX-License-Identifier: MIT
 *
 * Tests the fit of clocks: the true time must lie within the error bar, whatever the network does.
 *
 * Covers: base/clock.c record/clock_fit.c
 */
#include "record/record.h"
#include "tests/support/test.h"

#include <math.h>

#define S UINT64_C(1000000000)

/* A clock that is offset and drifts, and a network whose two ways are random and different. */
struct world {
    double offset_ns, ppm, jump_ns;
    uint64_t jump_at;
    uint64_t state; /* of the random numbers */
    double there_us, back_us, noise_us;
};

static double draw(struct world *w)
{
    w->state = w->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(w->state >> 11) / 9007199254740992.0;
}

/* The clock of the rank when rank 0's shows `at`. */
static uint64_t local_of(const struct world *w, uint64_t at)
{
    double ns = w->offset_ns + (double)at * w->ppm / 1e6;

    if (w->jump_at != 0 && at >= w->jump_at)
        ns += w->jump_ns;
    return (uint64_t)((int64_t)at + (int64_t)llrint(ns));
}

/* Delays have a long tail, as those of a busy machine. */
static uint64_t delay(struct world *w, double least_us)
{
    double u = draw(w);

    return (uint64_t)(1e3 * (least_us + w->noise_us * -log(1 - u * 0.999) +
                             (draw(w) < 0.05 ? 50 * w->noise_us : 0)));
}

static struct vb_clock_exchange ask(struct world *w, uint64_t at)
{
    struct vb_clock_exchange x = {.asked_ns = at};
    uint64_t came = at + delay(w, w->there_us), left = came + delay(w, 1);

    x.received_ns = local_of(w, came);
    x.answered_ns = local_of(w, left);
    x.returned_ns = left + delay(w, w->back_us);
    return x;
}

static int run(struct world *w, struct vb_clock_exchange *x, int seconds)
{
    int i;

    for (i = 0; i < seconds; i++)
        x[i] = ask(w, 1000 * S + (uint64_t)i * S);
    return seconds;
}

/* Returns the largest part of the error bar that is used; above 1: the truth is outside. */
static double worst(const struct world *w, const struct vb_clock_fit *fit, uint64_t from,
                    uint64_t to)
{
    double most = 0, part;
    uint64_t at, error, ns;

    for (at = from; at <= to; at += S / 37) {
        ns = vb_clock_correct(fit, local_of(w, at), &error);
        part = fabs((double)(int64_t)(ns - at)) / (double)error;
        most = part > most ? part : most;
        /* the same from the corrected time, however far apart the clocks are */
        if (w->jump_at == 0)
            assert_true(fabs((double)vb_clock_error_at(fit, ns) - (double)error) < 1000);
    }
    return most;
}

static void the_truth_is_within_the_error(void **state)
{
    static const double offsets[] = {0, 3.5e9, -7.25e9, 4e14};
    static const double ppms[] = {0, 100, -100};
    static const double ways[][3] = {{20, 20, 5}, {20, 400, 30}, {900, 5, 300}, {2, 2, 0}};
    static struct vb_clock_exchange x[120];
    static struct vb_clock_fit fit;
    struct world w;
    size_t o, p, k;
    int n;

    (void)state;
    for (o = 0; o < VB_COUNT(offsets); o++)
        for (p = 0; p < VB_COUNT(ppms); p++)
            for (k = 0; k < VB_COUNT(ways); k++) {
                w = (struct world){.offset_ns = offsets[o],
                                   .ppm = ppms[p],
                                   .state = (uint64_t)(o * 100 + p * 10 + k + 1),
                                   .there_us = ways[k][0],
                                   .back_us = ways[k][1],
                                   .noise_us = ways[k][2]};
                n = run(&w, x, 120);
                vb_clock_fit(x, n, &fit);
                assert_true(fit.n >= 2);
                /* also before the first and after the last exchange */
                assert_true(worst(&w, &fit, 990 * S, 1130 * S) <= 1);
                assert_true(fabs(vb_clock_drift_ppm(&fit) - ppms[p]) < 20);
            }
}

/* The bar is not only right, but also small: bad exchanges between good ones do not widen it. */
static void bad_exchanges_are_left_out(void **state)
{
    struct world w = {.offset_ns = 1e9, .ppm = 100, .state = 5, .there_us = 20, .back_us = 20};
    static struct vb_clock_exchange x[60];
    static struct vb_clock_fit fit;
    int i;

    (void)state;
    for (i = 0; i < 60; i++) {
        w.noise_us = i % 3 == 1 ? 5000 : 0;
        x[i] = ask(&w, 1000 * S + (uint64_t)i * S);
    }
    vb_clock_fit(x, 60, &fit);
    assert_true(fit.n >= 30 && fit.n <= 41);
    assert_true(worst(&w, &fit, 1000 * S, 1059 * S) <= 1);
    assert_true(vb_clock_error(&fit) < 60000);
}

/* A clock that jumps: before and after the jump the error is small, in between it is the jump. */
static void a_jump_shows_in_the_error(void **state)
{
    struct world w = {.offset_ns = 1e6,
                      .ppm = 50,
                      .jump_ns = 2e9,
                      .jump_at = 1020 * S + S / 2,
                      .state = 5,
                      .there_us = 20,
                      .back_us = 30,
                      .noise_us = 1};
    static struct vb_clock_exchange x[40];
    static struct vb_clock_fit fit;
    uint64_t error;
    int n = run(&w, x, 40);

    (void)state;
    vb_clock_fit(x, n, &fit);
    assert_true(worst(&w, &fit, 1000 * S, 1040 * S) <= 1);
    (void)vb_clock_correct(&fit, local_of(&w, 1010 * S + S / 2), &error);
    assert_true(error < 200000);
    (void)vb_clock_correct(&fit, local_of(&w, 1030 * S + S / 2), &error);
    assert_true(error < 200000);
    assert_true(vb_clock_error(&fit) >= 2 * S);
}

static void long_lists_keep_the_best(void **state)
{
    struct world w = {.ppm = 100, .state = 9, .there_us = 20, .back_us = 20, .noise_us = 50};
    static struct vb_clock_exchange x[3000];
    static struct vb_clock_fit fit;
    int n = run(&w, x, 3000);

    (void)state;
    vb_clock_fit(x, n, &fit);
    assert_true(fit.n > 50 && fit.n <= VB_CLOCK_KNOTS);
    assert_true(worst(&w, &fit, 1000 * S, 3999 * S) <= 1);
}

static void impossible_exchanges_are_refused(void **state)
{
    const struct vb_clock_exchange good = {1000, 51000, 52000, 4000};
    struct vb_clock_exchange x[6];
    struct vb_clock_fit fit;
    uint64_t error;
    int i;

    (void)state;
    for (i = 0; i < 6; i++)
        x[i] = good;
    x[0].returned_ns = 999;       /* the answer came before the question */
    x[1].answered_ns = 50999;     /* it left before the question came */
    x[2].answered_ns = 51000 + S; /* the rank held it longer than it was away */
    x[3].received_ns = x[3].answered_ns = ~UINT64_C(0);
    x[4].asked_ns = x[4].returned_ns = ~UINT64_C(0) - 1;
    vb_clock_fit(x, 5, &fit);
    assert_int_equal(fit.n, 0);
    assert_int_equal(vb_clock_correct(&fit, 77, &error), 77); /* nothing is known */
    assert_true(error == UINT64_MAX && vb_clock_error(&fit) == UINT64_MAX);
    vb_clock_fit(x, 6, &fit);
    assert_int_equal(fit.n, 1);
    assert_int_equal(vb_clock_correct(&fit, 51500, &error), 2500);
    assert_in_range(error, 1000, 1010);
    vb_clock_fit(NULL, 0, &fit);
    assert_int_equal(fit.n, 0);
    vb_clock_fit_own(&fit);
    assert_int_equal(vb_clock_correct(&fit, 123, &error), 123);
    assert_int_equal(error, 0);
}

static void messages_before_their_sending_are_refused(void **state)
{
    struct vb_clock_event sent = {.rank = 2, .at_ns = 5 * S, .error_ns = 30000};
    struct vb_clock_event received = {.rank = 7, .at_ns = 5 * S - 50000, .error_ns = 20000};
    char why[256] = "";

    (void)state;
    assert_true(vb_clock_message_ok(&sent, &received, why, sizeof(why)));
    received.at_ns--;
    assert_false(vb_clock_message_ok(&sent, &received, why, sizeof(why)));
    assert_non_null(strstr(why, "rank 7 received a message at 4.999950 s that rank 2 sent at "
                                "5.000000 s, 50.0 us later"));
    sent.error_ns = UINT64_MAX; /* a clock of which nothing is known refuses nothing */
    assert_true(vb_clock_message_ok(&sent, &received, why, sizeof(why)));
    sent.error_ns = 0;
    received.at_ns = 6 * S;
    assert_true(vb_clock_message_ok(&sent, &received, why, sizeof(why)));
}

/* The injected clock differs as it was told, and the clock of deadlines does not. */
static void the_clock_of_records_can_be_changed(void **state)
{
    uint64_t before = vb_clock_ns(), record, after;

    (void)state;
    record = vb_record_clock_ns();
    after = vb_clock_ns();
    assert_in_range(record, before, after);
    before = vb_clock_ns();
    vb_clock_inject(-(int64_t)(3 * S), 1e5);
    record = vb_record_clock_ns();
    after = vb_clock_ns();
    assert_in_range(record + 3 * S, before, after + (after - before));
    while (vb_clock_ns() < before + S / 50)
        ;
    assert_true(vb_record_clock_ns() + 3 * S >= vb_clock_ns() + S / 600); /* a tenth faster */
    assert_true(vb_clock_ns() < before + 60 * S);
    vb_clock_inject(INT64_MIN / 2, 0);
    assert_int_equal(vb_record_clock_ns(), 0);
    vb_clock_inject(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_truth_is_within_the_error),
        cmocka_unit_test(bad_exchanges_are_left_out),
        cmocka_unit_test(a_jump_shows_in_the_error),
        cmocka_unit_test(long_lists_keep_the_best),
        cmocka_unit_test(impossible_exchanges_are_refused),
        cmocka_unit_test(messages_before_their_sending_are_refused),
        cmocka_unit_test(the_clock_of_records_can_be_changed),
    };

    return T_RUN(tests);
}
