/* SPDX-License-Identifier: MIT
 *
 * The list of all backends. A new backend is added here.
 */
#include "kernels/blas/blas.h"
#include "kernels/choice/choice_priv.h"
#include "kernels/exact/reference.h"
#include "kernels/onednn/onednn.h"
#include "kernels/own/own.h"
#include "kernels/layer/plain.h"
#include "kernels/layer/then_pool.h"

VB_THEN_POOL(blas, VB_K_ANY_TIME)
VB_THEN_POOL(onednn, VB_K_ANY_TIME)
VB_THEN_POOL(gemm, VB_K_ANY_TIME)
VB_THEN_POOL(direct, VB_K_ANY_TIME)
VB_THEN_POOL(winograd2, VB_K_ANY_TIME)
VB_THEN_POOL(winograd4, VB_K_FAST_MATH)

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
    &vb_k_backend_running,
};

const int vb_k_n_backends = VB_COUNT(vb_k_backends);

bool vb_k_backend_allowed(const struct vb_k_backend *backend, bool fast_math)
{
    return backend->use == VB_K_ANY_TIME || (fast_math && backend->use == VB_K_FAST_MATH);
}

const struct vb_k_backend *vb_k_backend_find(const char *name)
{
    int i;

    for (i = 0; i < vb_k_n_backends; i++)
        if (strcmp(vb_k_backends[i]->name, name) == 0)
            return vb_k_backends[i];
    return NULL;
}

const char *vb_k_backend_name(int i, bool *fast_math_p)
{
    if (i < 0 || i >= vb_k_n_backends)
        return NULL;
    *fast_math_p = vb_k_backends[i]->use == VB_K_FAST_MATH;
    return vb_k_backends[i]->name;
}

bool vb_k_can(const char *backend, const struct vb_k_shape *shape, enum vb_k_pass pass)
{
    const struct vb_k_backend *known = vb_k_backend_find(backend);

    return known != NULL && vb_k_has_pass(shape->kind, pass) && known->can(shape, pass);
}
