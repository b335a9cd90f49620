/* SPDX-License-Identifier: MIT
 *
 * The entry to our own kernels at the level of instructions in use.
 */
#include "kernels/own/own.h"
#include "kernels/own/softmax_priv.h"

const struct vb_own_kernels *vb_own_in_use(void)
{
    static const struct vb_own_kernels *const levels[] = {VB_LEVELS(&vb_own_kernels)};

    return levels[vb_k_level()];
}

void vb_own_run(void *state, const struct vb_k_args *args)
{
    struct vb_k_pass_state *pass = state;

    pass->run(pass, args);
}

double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes, int *correct_p)
{
    static vb_softmax_fn *const levels[] = {VB_LEVELS(vb_softmax_rows)};

    return levels[vb_k_level()](logits, y, n, classes, correct_p);
}
