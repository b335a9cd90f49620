/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#include <time.h>

static void clock_never_goes_back(void **state)
{
    uint64_t last = vb_clock_ns(), now;
    int i;

    (void)state;
    for (i = 0; i < 100000; i++, last = now) {
        now = vb_clock_ns();
        assert_true(now >= last);
    }
}

static void clock_counts_nanoseconds(void **state)
{
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000}, before, after;
    uint64_t start, took, reference;

    (void)state;
    clock_gettime(CLOCK_BOOTTIME, &before);
    start = vb_clock_ns();
    nanosleep(&pause, NULL);
    took = vb_clock_ns() - start;
    clock_gettime(CLOCK_BOOTTIME, &after);
    reference = (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000u +
                (uint64_t)(after.tv_nsec - before.tv_nsec);
    assert_true(took >= 19 * 1000 * 1000);
    assert_true(took <= reference);
}

static void sleep_ends_at_its_time(void **state)
{
    uint64_t at = vb_clock_ns() + 3000000, woke = vb_sleep_until(at);

    (void)state;
    assert_true(woke >= at);
    assert_true(vb_clock_ns() >= woke);
    assert_true(vb_sleep_until(at) >= woke); /* a time that has passed: no sleep */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_never_goes_back),
        cmocka_unit_test(clock_counts_nanoseconds),
        cmocka_unit_test(sleep_ends_at_its_time),
    };

    return T_RUN(tests);
}
