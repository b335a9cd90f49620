/* SPDX-License-Identifier: MIT
 *
 * Makes the program independent of `ulimit -s`. The limit is the size of the first thread's stack,
 * and also the default size of all others: 128 KB are too few for libraries, and "unlimited" means
 * another size on each machine.
 */
#include "base/base.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define FIRST_BYTES ((rlim_t)8 << 20)  /* what the first thread gets if the hard limit allows it */
#define FIRST_LEAST ((rlim_t)96 << 10) /* what the first thread needs */
#define OTHERS_BYTES ((size_t)2 << 20) /* the stack of every other thread */

/* Returns how much of the first thread's stack is used, mostly by the environment and arguments,
 * which are above all frames. */
static rlim_t used_bytes(void)
{
    const char *here = __builtin_frame_address(0);
    char **last = environ;

    if (last == NULL || last[0] == NULL)
        return 0;
    while (last[1] != NULL)
        last++;
    /* an address below this frame is an environment that was moved to the heap */
    return *last > here ? (rlim_t)(*last + strlen(*last) - here) : 0;
}

vb_status vb_stack_ready(void)
{
    struct rlimit limit;
    pthread_attr_t attr;

    if (pthread_attr_init(&attr) == 0) {
        if (pthread_attr_setstacksize(&attr, OTHERS_BYTES) == 0)
            (void)pthread_setattr_default_np(&attr);
        pthread_attr_destroy(&attr);
    }
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= FIRST_BYTES)
        return VB_OK;
    limit.rlim_cur = limit.rlim_max < FIRST_BYTES ? limit.rlim_max : FIRST_BYTES;
    (void)setrlimit(RLIMIT_STACK, &limit); /* the kernel grows the stack up to the new limit */
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= FIRST_LEAST + used_bytes())
        return VB_OK;
    return vb_err(
        VB_ERR_USAGE,
        "the stack may have %lld KB, of which environment and arguments take %lld KB, and "
        "verbena needs %lld KB: run ulimit -s 8192 first, or let the hard limit be raised",
        (long long)limit.rlim_cur >> 10, (long long)used_bytes() >> 10,
        (long long)FIRST_LEAST >> 10);
}
