/* SPDX-License-Identifier: MIT
 *
 * The backends "winograd2" and "winograd4": convolutions of stride 1 with far fewer multiplications
 * than the taps need. winograd2 is F(2x2, 3x3). winograd4 is F(4x4, 3x3), and F(2x2, 5x5) for
 * kernels of 5 by 5.
 *
 * Results are sums of larger numbers that cancel. The rounding error of F(2x2, 3x3) is a few times
 * the error of plain sums; the error of the others is some dozens of times as large. The tests
 * define the limits.
 *
 * In the forward and backward data passes, a NaN or an infinity in the input makes all outputs NaN
 * in the tiles whose windows contain it. In the backward weights pass it makes all taps of its
 * pairs of channels NaN. It never reaches other tiles, samples or channels.
 */
#include "kernels/own/own.h"

static bool square(const struct vb_k_shape *s, int side)
{
    return s->kind == VB_K_CONV && s->stride == 1 && s->kh == side && s->kw == side;
}

static bool wino2_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    (void)pass;
    return square(s, 3);
}

static bool wino4_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    (void)pass;
    return square(s, 3) || square(s, 5);
}

VB_OWN_BACKEND(winograd2, wino2_can)
VB_OWN_BACKEND(winograd4, wino4_can)
