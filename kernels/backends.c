/* SPDX-License-Identifier: MIT
 *
 * The backends there are.
 */
#include "kernels/layer_priv.h"

#include <string.h>

const struct vb_k_backend *const vb_k_backends[] = {
    &vb_k_backend_plain,          &vb_k_backend_blas,           &vb_k_backend_onednn,
    &vb_k_backend_gemm,           &vb_k_backend_direct,         &vb_k_backend_winograd2,
    &vb_k_backend_winograd4,      &vb_k_backend_pooled,         &vb_k_backend_blas_pool,
    &vb_k_backend_onednn_pool,    &vb_k_backend_gemm_pool,      &vb_k_backend_direct_pool,
    &vb_k_backend_winograd2_pool, &vb_k_backend_winograd4_pool,
};

const int vb_k_n_backends = VB_COUNT(vb_k_backends);

const struct vb_k_backend *vb_k_backend_find(const char *name)
{
    int i;

    for (i = 0; i < vb_k_n_backends; i++)
        if (strcmp(vb_k_backends[i]->name, name) == 0)
            return vb_k_backends[i];
    return NULL;
}
