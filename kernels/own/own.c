/* SPDX-License-Identifier: MIT
 *
 * Our own backends, and the entry to their kernels at the level of instructions in use.
 *
 * In gemm, direct and pooled, NaN and infinity propagate as in the sums of the reference. But in
 * the backward weights pass the zeros of an image's padding are multiplied by the gradient, so a
 * NaN in dy also reaches the weights of taps outside the image.
 */
#include "kernels/own/own.h"

#include <stdlib.h>

/* Largest numbers of taps and of weights for direct and pooled. Larger layers are faster with a
 * packed matrix product. Sums of gradients, four for each weight, stay in the second-level cache.
 */
#define TAPS_MAX 1024
#define WEIGHTS_MAX (32 * 1024)

/* Offsets into the images of a few samples must fit into 32 bits. */
#define IMAGE_MAX (1 << 24)

static const struct vb_own_kernels *in_use(void)
{
    static const struct vb_own_kernels *const levels[] = {VB_LEVELS(&vb_own_kernels)};

    return levels[vb_k_level()];
}

static void own_run(void *state, const struct vb_k_args *args)
{
    struct vb_k_pass_state *pass = state;

    pass->run(pass, args);
}

/* Defines the backend vb_k_backend_NAME, whose function can() is NAME_can(). */
#define BACKEND(NAME, USE)                                                                         \
    static vb_status NAME##_prepare(const struct vb_k_shape *s, enum vb_k_pass pass,               \
                                    void **state_p, size_t *scratch_p)                             \
    {                                                                                              \
        return in_use()->NAME(s, pass, state_p, scratch_p);                                        \
    }                                                                                              \
    const struct vb_k_backend vb_k_backend_##NAME = {.name = #NAME,                                \
                                                     .use = (USE),                                 \
                                                     .can = NAME##_can,                            \
                                                     .prepare = NAME##_prepare,                    \
                                                     .run = own_run,                               \
                                                     .destroy = free};

/* Convolutions and linear layers with our own matrix product. No matrix of columns is built in
 * memory: packing reads the patches of an image directly. */
static bool gemm_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    if (s->kind == VB_K_CONV)
        return pass != VB_K_BACKWARD_DATA || s->stride == 1;
    return s->kind == VB_K_LINEAR;
}

BACKEND(gemm, VB_K_ANY_TIME)

/* Convolutions with so few channels that packing and full panels of a matrix product would cost
 * more than the product. Works on strips of the input (direct_priv.h). */
static bool direct_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    long long taps = (long long)s->kh * s->kw;

    if (s->kind != VB_K_CONV)
        return false;
    if (pass == VB_K_FORWARD)
        return taps * s->c <= TAPS_MAX;
    if (pass == VB_K_BACKWARD_DATA)
        return s->stride == 1 && taps * s->oc <= TAPS_MAX;
    return taps * s->c * s->oc <= WEIGHTS_MAX;
}

BACKEND(direct, VB_K_ANY_TIME)

/* Conv-pool layers with few channels. The forward pass is a direct convolution that pools before it
 * stores. The backward passes sum only over outputs that have a gradient (pooled_priv.h). */
static bool pooled_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    double taps = (double)s->kh * s->kw * s->c;
    double image = (double)(s->h + 2 * s->pad) * (s->w + 2 * s->pad) * s->c;

    if (s->kind != VB_K_CONV_POOL)
        return false;
    if (pass == VB_K_FORWARD)
        return taps <= TAPS_MAX;
    if (pass == VB_K_BACKWARD_DATA && (s->stride > s->kh || s->stride > s->kw))
        return false; /* with a large stride, patches would be mostly zeros */
    return taps * s->oc <= WEIGHTS_MAX && image <= IMAGE_MAX;
}

BACKEND(pooled, VB_K_ANY_TIME)

/* Winograd's convolutions have far fewer multiplications than taps. Results are sums of larger
 * numbers that cancel: the rounding error of F(2x2, 3x3) is about that of a running sum of floats,
 * that of the others some dozens of times as large, so these need --fast-math. A NaN or an infinity
 * in the input makes all outputs NaN in the tiles whose windows contain it, in the backward weights
 * pass all taps of its pairs of channels. It never reaches other tiles, samples or channels. */
static bool square(const struct vb_k_shape *s, int side)
{
    return s->kind == VB_K_CONV && s->stride == 1 && s->kh == side && s->kw == side;
}

static bool winograd2_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    (void)pass;
    return square(s, 3);
}

static bool winograd4_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    (void)pass;
    return square(s, 3) || square(s, 5);
}

BACKEND(winograd2, VB_K_ANY_TIME)
BACKEND(winograd4, VB_K_FAST_MATH)

double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes, int *correct_p)
{
    static vb_softmax_fn *const levels[] = {VB_LEVELS(vb_softmax_rows)};

    return levels[vb_k_level()](logits, y, n, classes, correct_p);
}
