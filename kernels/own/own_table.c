/* SPDX-License-Identifier: MIT
 *
 * The table of our own kernels at one level of instructions. This file is compiled once for each
 * level.
 */
#include "kernels/own/direct_priv.h"
#include "kernels/gemm/gemm_layer.h"
#include "kernels/own/own.h"
#include "kernels/own/pooled_priv.h"
#include "kernels/gemm/winograd.h"

static vb_status gemm(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                      size_t *scratch_p)
{
    static vb_gemm_prepare *const conv[] = {vb_gemm_conv_forward, vb_gemm_conv_data,
                                            vb_gemm_conv_weights};
    static vb_gemm_prepare *const linear[] = {vb_gemm_linear_forward, vb_gemm_linear_data,
                                              vb_gemm_linear_weights};

    return (s->kind == VB_K_CONV ? conv : linear)[pass](s, state_p, scratch_p);
}

static vb_status direct(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                        size_t *scratch_p)
{
    if (pass == VB_K_BACKWARD_WEIGHTS)
        return vb_direct_weights(s, state_p, scratch_p);
    return vb_direct_conv(s, pass, state_p, scratch_p);
}

static vb_status pooled(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                        size_t *scratch_p)
{
    if (pass == VB_K_BACKWARD_WEIGHTS)
        return vb_pooled_weights(s, state_p, scratch_p);
    if (pass == VB_K_FORWARD)
        return vb_direct_conv(s, pass, state_p, scratch_p);
    return vb_pooled_data(s, state_p, scratch_p);
}

static vb_status winograd(const struct vb_wino_ops *ops, const struct vb_k_shape *s,
                          enum vb_k_pass pass, void **state_p, size_t *scratch_p)
{
    if (pass == VB_K_BACKWARD_WEIGHTS)
        return vb_wino_weights(ops, s, state_p, scratch_p);
    return vb_wino_conv(ops, s, pass, state_p, scratch_p);
}

static vb_status winograd2(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                           size_t *scratch_p)
{
    return winograd(&vb_wino_f2_3, s, pass, state_p, scratch_p);
}

static vb_status winograd4(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                           size_t *scratch_p)
{
    return winograd(s->kh == 5 ? &vb_wino_f2_5 : &vb_wino_f4_3, s, pass, state_p, scratch_p);
}

const struct vb_own_kernels VB_AT_LEVEL(vb_own_kernels) = {
    .gemm = gemm,
    .direct = direct,
    .pooled = pooled,
    .winograd2 = winograd2,
    .winograd4 = winograd4,
};
