/* SPDX-License-Identifier: MIT
 *
 * Makes a backend for conv-pool layers from a backend for convolutions.
 */
#ifndef VB_KERNELS_LAYER_THEN_POOL_H
#define VB_KERNELS_LAYER_THEN_POOL_H

#include "kernels/layer/backend.h"

/* The functions of such a backend. conv is the backend for convolutions. */
bool vb_then_pool_can(const struct vb_k_backend *conv, const struct vb_k_shape *s,
                      enum vb_k_pass pass);
vb_status vb_then_pool_prepare(const struct vb_k_backend *conv, const struct vb_k_shape *s,
                               enum vb_k_pass pass, void **state_p, size_t *scratch_p);
void vb_then_pool_run(void *state, const struct vb_k_args *args);
void vb_then_pool_destroy(void *state);

/* Defines the backend NAME_pool, called "NAME+pool", from vb_k_backend_NAME. USE is that of the
 * backend for convolutions. */
#define VB_THEN_POOL(NAME, USE)                                                                    \
    static bool NAME##_pool_can(const struct vb_k_shape *s, enum vb_k_pass pass)                   \
    {                                                                                              \
        return vb_then_pool_can(&vb_k_backend_##NAME, s, pass);                                    \
    }                                                                                              \
    static vb_status NAME##_pool_prepare(const struct vb_k_shape *s, enum vb_k_pass pass,          \
                                         void **state_p, size_t *scratch_p)                        \
    {                                                                                              \
        return vb_then_pool_prepare(&vb_k_backend_##NAME, s, pass, state_p, scratch_p);            \
    }                                                                                              \
    static const struct vb_k_backend NAME##_pool = {                                               \
        .name = #NAME "+pool",                                                                     \
        .use = (USE),                                                                              \
        .can = NAME##_pool_can,                                                                    \
        .prepare = NAME##_pool_prepare,                                                            \
        .run = vb_then_pool_run,                                                                   \
        .destroy = vb_then_pool_destroy,                                                           \
    };

#endif
