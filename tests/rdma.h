/* SPDX-License-Identifier: MIT
 *
 * The transports that tests run over on this machine.
 */
#ifndef VB_TEST_RDMA_H
#define VB_TEST_RDMA_H

#include "net/net.h"

#include <stdlib.h>

/* RDMA and nothing else: the rest was tested elsewhere, and soft-RoCE in an emulated machine is so
 * slow that tests do less of everything. */
static inline bool t_rdma_only(void)
{
    return getenv("VB_TEST_VERBS") != NULL;
}

static inline bool t_runs_over(enum vb_transport_choice transport)
{
    return transport == VB_TRANSPORT_VERBS ? vb_net_rdma_any_usable() : !t_rdma_only();
}

/* Returns how many there are. */
static inline size_t t_find_transports(enum vb_transport_choice out[3])
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
