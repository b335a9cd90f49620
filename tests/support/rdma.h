/* SPDX-License-Identifier: MIT
 *
 * Finds the transports that tests can use on this machine.
 */
#ifndef VB_TESTS_SUPPORT_RDMA_H
#define VB_TESTS_SUPPORT_RDMA_H

#include "net/net.h"

#include <stdlib.h>

#define T_TRANSPORTS 3 /* how many transports there are */

/* Returns whether to test only RDMA, as in the lab. The other transports are then tested elsewhere,
 * and tests do less work, because soft-RoCE in an emulated machine is slow. */
static inline bool t_rdma_only(void)
{
    return getenv("VB_TEST_VERBS") != NULL;
}

static inline bool t_runs_over(enum vb_transport_choice transport)
{
    return transport == VB_TRANSPORT_VERBS ? vb_net_rdma_any_usable() : !t_rdma_only();
}

/* Stores the transports that can be tested here in out, and returns their number. */
static inline size_t t_find_transports(enum vb_transport_choice out[T_TRANSPORTS])
{
    static const enum vb_transport_choice all[] = {VB_TRANSPORT_SHM, VB_TRANSPORT_TCP,
                                                   VB_TRANSPORT_VERBS};
    size_t i, n = 0;

    for (i = 0; i < VB_COUNT(all); i++)
        if (t_runs_over(all[i]))
            out[n++] = all[i];
    return n;
}

#endif
