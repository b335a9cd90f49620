/* SPDX-License-Identifier: MIT
 *
 * What our own backends share: the kernels of the level of instructions in use, and run().
 */
#include "kernels/own_priv.h"

const struct vb_own_kernels *vb_own_in_use(void)
{
    static const struct vb_own_kernels *const levels[] = {
        [VB_CPU_BASE] = &vb_own_kernels,
#if defined(__x86_64__)
        [VB_CPU_V3] = &vb_own_kernels_v3,
        [VB_CPU_V4] = &vb_own_kernels_v4,
#endif
    };

    return levels[vb_k_level()];
}

void vb_own_run(void *state, const struct vb_k_args *args)
{
    struct vb_k_pass_state *pass = state;

    pass->run(pass, args);
}
