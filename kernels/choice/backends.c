/* SPDX-License-Identifier: MIT
 *
 * The list of all backends. A new backend is added here.
 */
#include "kernels/blas/blas.h"
#include "kernels/choice/choice_priv.h"
#include "kernels/onednn/onednn.h"
#include "kernels/own/own.h"
#include "kernels/layer/plain.h"
#include "kernels/layer/then_pool.h"

VB_THEN_POOL(blas)
VB_THEN_POOL(onednn)
VB_THEN_POOL(gemm)
VB_THEN_POOL(direct)
VB_THEN_POOL(winograd2)
VB_THEN_POOL(winograd4)

const struct vb_k_backend *const vb_k_backends[] = {
    &vb_k_backend_plain,
    &vb_k_backend_blas,
    &vb_k_backend_onednn,
    &vb_k_backend_gemm,
    &vb_k_backend_direct,
    &vb_k_backend_winograd2,
    &vb_k_backend_winograd4,
    &vb_k_backend_pooled,
    &blas_pool,
    &onednn_pool,
    &gemm_pool,
    &direct_pool,
    &winograd2_pool,
    &winograd4_pool,
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
