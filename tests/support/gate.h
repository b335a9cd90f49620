/* SPDX-License-Identifier: MIT
 *
 * A disk that does not answer. While the gate is closed, every long write of this process waits.
 * The test program must be linked with --wrap=write and must include this header in one file only.
 */
#ifndef VB_TESTS_SUPPORT_GATE_H
#define VB_TESTS_SUPPORT_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#define T_GATE_BYTES 4096 /* lines of the log are shorter */

static _Atomic bool t_gate_closed;
static _Atomic int t_gate_waits; /* number of writes that have met a closed gate */

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    if (len > T_GATE_BYTES && t_gate_closed)
        t_gate_waits++;
    while (len > T_GATE_BYTES && t_gate_closed)
        nanosleep(&nap, NULL);
    return __real_write(fd, data, len);
}

/* Waits until a write has met the closed gate. */
static inline void t_gate_meet(void)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    while (t_gate_waits == 0)
        nanosleep(&nap, NULL);
}

#endif
