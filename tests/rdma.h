/* SPDX-License-Identifier: MIT
 *
 * Whether this machine has an RDMA device that tests can use.
 */
#ifndef VB_TEST_RDMA_H
#define VB_TEST_RDMA_H

#include "net/net.h"

static inline bool t_has_rdma(void)
{
    struct vb_rdma_dev *list;
    bool usable = false;
    int i, n;

    if (vb_net_rdma_list("", &list, &n) != VB_OK)
        return false;
    for (i = 0; i < n; i++)
        usable = usable || vb_net_rdma_usable(&list[i]);
    vb_net_rdma_free(list, n);
    return usable;
}

#endif
