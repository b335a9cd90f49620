/* SPDX-License-Identifier: MIT
 *
 * A library for LD_PRELOAD that sets the time of day an hour ahead, as on a host whose clock is
 * off.
 */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    long rc = syscall(SYS_clock_gettime, clock, ts);

    if (rc == 0 && clock == CLOCK_REALTIME)
        ts->tv_sec += 3600;
    return (int)rc;
}
