/* SPDX-License-Identifier: MIT
 *
 * The backends there are.
 */
#include "kernels/layer_priv.h"

const struct vb_k_backend *const vb_k_backends[] = {
    &vb_k_backend_plain,
    &vb_k_backend_blas,
};

const int vb_k_n_backends = VB_COUNT(vb_k_backends);
