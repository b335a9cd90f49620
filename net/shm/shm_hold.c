/* SPDX-License-Identifier: MIT
 *
 * Windows of ranks that are threads of one process. The peers use the owner's memory directly.
 * After a failure, and in elastic groups, the owner does not wait for its peers before it closes,
 * and the peers may still read or write the memory. So all of these ranks *hold* the memory, and it
 * is unmapped when the last rank lets go.
 */
#include "net/shm/shm_priv.h"

#include <stdlib.h>

struct shm_hold {
    _Atomic int holders;   /* number of holders: the owner and every rank that has the key */
    uint32_t id;           /* number of the window */
    struct shm_hold *next; /* next in the list of the owner's device, until the owner lets go */
    struct vb_mem mem;     /* valid after the owner has let go */
};

static struct shm_hold **find(struct shm_device *dev, uint32_t id)
{
    struct shm_hold **at = &dev->holds;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

struct shm_hold *vb_shm_hold_of(struct shm_device *dev, uint32_t id)
{
    return *find(dev, id);
}

vb_status vb_shm_hold_add(struct shm_device *dev, uint32_t id)
{
    struct shm_hold **at = find(dev, id);

    if (*at == NULL) {
        *at = calloc(1, sizeof(**at));
        if (*at == NULL)
            return vb_err_sys("calloc");
        (*at)->id = id;
        (*at)->mem.fd = -1;
        atomic_init(&(*at)->holders, 1);
    }
    atomic_fetch_add_explicit(&(*at)->holders, 1, memory_order_relaxed);
    return VB_OK;
}

void vb_shm_hold_drop(struct shm_hold *hold)
{
    /* Pairs with the same operation on the other ranks: their last access happens before this
     * unmap. */
    if (hold == NULL || atomic_fetch_sub_explicit(&hold->holders, 1, memory_order_acq_rel) > 1)
        return;
    vb_mem_unmap(&hold->mem);
    free(hold);
}

bool vb_shm_inherit_window(struct vb_device *vdev, uint32_t id, struct vb_mem *mem)
{
    struct shm_hold **at = find(shm_device_of(vdev), id), *hold = *at;

    if (hold == NULL)
        return false;
    *at = hold->next;
    hold->mem = *mem;
    vb_shm_hold_drop(hold);
    return true;
}

/* The caller keeps the memory. */
void vb_shm_unexport_window(struct vb_device *vdev, uint32_t id)
{
    struct shm_hold **at = find(shm_device_of(vdev), id), *hold = *at;

    if (hold == NULL)
        return;
    *at = hold->next;
    vb_shm_hold_drop(hold);
}
