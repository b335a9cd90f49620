/* SPDX-License-Identifier: MIT
 *
 * The passes of the backend "direct".
 */
#ifndef VB_DIRECT_PRIV_H
#define VB_DIRECT_PRIV_H

#include "kernels/patch_priv.h"

/* What every state begins with; one block of memory. */
struct vb_direct_pass {
    void (*run)(struct vb_direct_pass *pass, const struct vb_k_args *args);
};

/* Floats of a strip: larger ones would leave the second level of cache. */
#define VB_DIRECT_STRIP (24 * 1024)

/* Sets how many rows of output a strip serves: as many as fit, at least one. */
static inline void vb_direct_rows(struct vb_patch *p, int channels)
{
    int rows = p->oh;

    vb_patch_rows(p, rows);
    while (rows > 1 && (size_t)channels * vb_patch_plane(p) > VB_DIRECT_STRIP)
        vb_patch_rows(p, rows = (rows + 1) / 2);
}

vb_status vb_direct_conv(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p);
vb_status vb_direct_weights(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);

#endif
