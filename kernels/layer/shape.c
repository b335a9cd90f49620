/* SPDX-License-Identifier: MIT
 *
 * Checks the shapes of layers, and computes sizes and costs from them.
 */
#include "kernels/layer/backend.h"

/* Largest size that is accepted; products of three sizes then stay below 2^63. */
#define SIDE_MAX (1 << 20)

static bool in_range(int v)
{
    return v > 0 && v <= SIDE_MAX;
}

static bool has_weights(enum vb_k_kind kind)
{
    return kind == VB_K_CONV || kind == VB_K_CONV_POOL || kind == VB_K_LINEAR;
}

static vb_status refuse(char why[VB_OPTS_WHY], const char *what, int v)
{
    snprintf(why, VB_OPTS_WHY, "%s, found %d", what, v);
    return VB_ERR_USAGE;
}

static vb_status finish_kernel(struct vb_k_shape *s, char why[VB_OPTS_WHY])
{
    if (!in_range(s->kh) || !in_range(s->kw))
        return refuse(why, "expected kernel sizes of 1 to 1048576", s->kh < s->kw ? s->kh : s->kw);
    if (!in_range(s->stride))
        return refuse(why, "expected a stride of 1 to 1048576", s->stride);
    if (s->pad < 0 || s->pad >= s->kh || s->pad >= s->kw)
        return refuse(why, "expected a padding smaller than the kernel", s->pad);
    if (s->h + 2 * s->pad < s->kh || s->w + 2 * s->pad < s->kw)
        return refuse(why, "expected a kernel that is not larger than the padded input", s->kh);
    s->oh = (s->h + 2 * s->pad - s->kh) / s->stride + 1;
    s->ow = (s->w + 2 * s->pad - s->kw) / s->stride + 1;
    if (!has_weights(s->kind))
        s->oc = s->c;
    if (s->kind == VB_K_CONV_POOL) {
        if (s->oh < 2 || s->ow < 2)
            return refuse(why, "expected a convolution with at least 2 x 2 outputs before pooling",
                          s->oh < s->ow ? s->oh : s->ow);
        s->oh /= 2;
        s->ow /= 2;
    }
    return VB_OK;
}

struct vb_k_shape vb_k_shape_conv(const struct vb_k_shape *s)
{
    struct vb_k_shape conv = *s;

    if (s->kind != VB_K_CONV_POOL)
        return conv;
    conv.kind = VB_K_CONV;
    conv.relu = true;
    conv.oh = (s->h + 2 * s->pad - s->kh) / s->stride + 1;
    conv.ow = (s->w + 2 * s->pad - s->kw) / s->stride + 1;
    return conv;
}

vb_status vb_k_shape_finish(struct vb_k_shape *s, char why[VB_OPTS_WHY])
{
    if (!in_range(s->n))
        return refuse(why, "expected a batch of 1 to 1048576 samples", s->n);
    if (!in_range(s->c) || !in_range(s->h) || !in_range(s->w))
        return refuse(why, "expected input sizes of 1 to 1048576", s->c < s->h ? s->c : s->h);
    if (has_weights(s->kind) && !in_range(s->oc))
        return refuse(why, "expected 1 to 1048576 outputs", s->oc);
    if (s->kind == VB_K_CONV || s->kind == VB_K_CONV_POOL || s->kind == VB_K_MAX_POOL ||
        s->kind == VB_K_AVG_POOL)
        return finish_kernel(s, why);
    if (s->kind == VB_K_LRN && (!in_range(s->kh) || s->kh % 2 == 0))
        return refuse(why, "expected an odd number of channels for lrn", s->kh);
    if (s->kind == VB_K_DROPOUT && !(s->rate >= 0 && s->rate < 1))
        return refuse(why, "expected a dropout rate of 0 to 99 percent", (int)(s->rate * 100));
    s->oc = s->kind == VB_K_LINEAR ? s->oc : s->c;
    s->oh = s->kind == VB_K_LINEAR ? 1 : s->h;
    s->ow = s->kind == VB_K_LINEAR ? 1 : s->w;
    return VB_OK;
}

double vb_k_shape_flops(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    double macs = (double)s->n * s->oc * conv.oh * conv.ow;

    (void)pass; /* all three passes do the same number of operations */
    if (conv.kind == VB_K_CONV)
        return 2 * macs * s->c * s->kh * s->kw;
    if (s->kind == VB_K_LINEAR)
        return 2 * macs * s->c * s->h * s->w;
    return 0;
}

bool vb_k_has_pass(enum vb_k_kind kind, enum vb_k_pass pass)
{
    return pass != VB_K_BACKWARD_WEIGHTS || has_weights(kind);
}

const char *vb_k_kind_str(enum vb_k_kind kind)
{
    static const char *const names[] = {"conv", "linear", "max-pool", "avg-pool",
                                        "relu", "lrn",    "dropout",  "conv-pool"};

    return names[kind];
}

const char *vb_k_pass_str(enum vb_k_pass pass)
{
    static const char *const names[VB_K_PASSES] = {"forward", "backward-data", "backward-weights"};

    return names[pass];
}

size_t vb_k_shape_inputs(const struct vb_k_shape *s)
{
    return (size_t)s->n * (size_t)s->c * (size_t)s->h * (size_t)s->w;
}

size_t vb_k_shape_outputs(const struct vb_k_shape *s)
{
    return (size_t)s->n * (size_t)s->oc * (size_t)s->oh * (size_t)s->ow;
}

size_t vb_k_shape_weights(const struct vb_k_shape *s)
{
    if (s->kind == VB_K_CONV || s->kind == VB_K_CONV_POOL)
        return (size_t)s->oc * (size_t)s->c * (size_t)s->kh * (size_t)s->kw;
    if (s->kind == VB_K_LINEAR)
        return (size_t)s->oc * (size_t)s->c * (size_t)s->h * (size_t)s->w;
    return 0;
}

uint32_t vb_k_dropout_below(float rate)
{
    return (uint32_t)((double)rate * 4294967296.0); /* the rate is below 1, so this fits */
}
