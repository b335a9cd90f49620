/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

uint64_t vb_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail: every Linux has this clock */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t vb_sleep_until(uint64_t clock_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(clock_ns / 1000000000u),
                          .tv_nsec = (long)(clock_ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ; /* the time to wake up stays the same */
    return vb_clock_ns();
}

/* How the clock of records differs from the monotonic clock. Threads that record meanwhile may see
 * one value of the old difference and one of the new, as with any clock that jumps. */
static _Atomic int64_t injected_ns;
static _Atomic uint64_t injected_at;
static _Atomic double injected_ppm;

void vb_clock_inject(int64_t offset_ns, double ppm)
{
    atomic_store_explicit(&injected_at, vb_clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&injected_ppm, ppm, memory_order_relaxed);
    atomic_store_explicit(&injected_ns, offset_ns, memory_order_relaxed);
}

uint64_t vb_record_clock_ns(void)
{
    return vb_record_time(vb_clock_ns());
}

uint64_t vb_record_time(uint64_t now)
{
    int64_t offset = atomic_load_explicit(&injected_ns, memory_order_relaxed);
    double ppm = atomic_load_explicit(&injected_ppm, memory_order_relaxed);
    uint64_t at;

    if (ppm != 0) {
        at = atomic_load_explicit(&injected_at, memory_order_relaxed);
        offset += (int64_t)((double)(int64_t)(now - at) * ppm / 1e6);
    }
    /* a clock that would be before its beginning stands at its beginning */
    return offset < 0 && (uint64_t)-offset > now ? 0 : now + (uint64_t)offset;
}
