/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <time.h>

uint64_t vb_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail: every Linux has this clock */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
