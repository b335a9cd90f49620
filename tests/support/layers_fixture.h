/* SPDX-License-Identifier: MIT
 *
 * Helpers for the tests of layers: shapes with odd sizes, and tensors that are followed by guards.
 */
#ifndef VB_TESTS_SUPPORT_LAYERS_FIXTURE_H
#define VB_TESTS_SUPPORT_LAYERS_FIXTURE_H

#include "kernels/layer/backend.h"
#include "tests/support/test.h"

#define T_GUARD 16 /* number of floats after each tensor; a pass must not change them */
#define T_GUARD_VALUE 12345.5f

struct t_tensor {
    float *v;
    size_t n;
};

static inline void t_tensor_create(struct t_tensor *t, size_t n)
{
    size_t i;

    t->n = n;
    t->v = vb_alloc_aligned((n + T_GUARD) * sizeof(float));
    assert_non_null(t->v);
    for (i = 0; i < T_GUARD; i++)
        t->v[n + i] = T_GUARD_VALUE;
}

static inline void t_tensor_destroy(struct t_tensor *t)
{
    size_t i;

    for (i = 0; i < T_GUARD; i++)
        assert_true(t->v[t->n + i] == T_GUARD_VALUE);
    free(t->v);
}

/* Fills the array with numbers from -1 to 1, computed from a seed. If coarse is true, the numbers
 * are multiples of 1/4, so that many are equal. */
static inline void t_fill(struct t_tensor *t, uint64_t seed, bool coarse)
{
    size_t i;
    float v;

    for (i = 0; i < t->n; i++) {
        v = (float)(vb_random(seed, i) >> 40) / (1 << 23) - 1;
        t->v[i] = coarse ? (float)(int)(v * 4) / 4 : v;
    }
}

static inline void t_set(struct t_tensor *t, float v)
{
    size_t i;

    for (i = 0; i < t->n; i++)
        t->v[i] = v;
}

enum { T_X, T_W, T_B, T_Y, T_DY, T_DX, T_DW, T_DB, T_TENSORS };

static inline size_t t_len(const struct vb_k_shape *s, int which)
{
    bool weights = vb_k_has_pass(s->kind, VB_K_BACKWARD_WEIGHTS);

    if (which == T_X || which == T_DX)
        return vb_k_shape_inputs(s);
    if (which == T_Y || which == T_DY)
        return vb_k_shape_outputs(s);
    if (which == T_W || which == T_DW)
        return vb_k_shape_weights(s);
    return weights ? (size_t)s->oc : 0;
}

struct t_layer {
    struct vb_k_shape s;
    struct t_tensor t[T_TENSORS];
    uint8_t *where; /* conv-pool: one byte for each output, then T_GUARD bytes of T_WHERE_GUARD */
};

#define T_WHERE_GUARD 0xa5

/* Fills l->where: for each output, a random place in the window of that output, or VB_K_NOWHERE. */
static inline void t_where_create(struct t_layer *l)
{
    size_t n = vb_k_shape_outputs(&l->s), i;

    l->where = malloc(n + T_GUARD);
    assert_non_null(l->where);
    for (i = 0; i < n; i++)
        l->where[i] = (uint8_t)(vb_random(99, i) % (VB_K_NOWHERE + 1));
    memset(l->where + n, T_WHERE_GUARD, T_GUARD);
}

static inline void t_where_destroy(struct t_layer *l)
{
    size_t i;

    for (i = 0; i < T_GUARD; i++)
        assert_int_equal(l->where[vb_k_shape_outputs(&l->s) + i], T_WHERE_GUARD);
    free(l->where);
}

static inline struct vb_k_args t_args(const struct t_layer *l)
{
    return (struct vb_k_args){.x = l->t[T_X].v,
                              .w = l->t[T_W].v,
                              .b = l->t[T_B].v,
                              .y = l->t[T_Y].v,
                              .dy = l->t[T_DY].v,
                              .dx = l->t[T_DX].v,
                              .dw = l->t[T_DW].v,
                              .db = l->t[T_DB].v,
                              .where = l->where,
                              .seed = 7,
                              .step = 11};
}

/* Fills all tensors with random numbers. But if gradients depend on the output, the output is
 * computed by the reference. */
static inline void t_layer_create(struct t_layer *l, const struct vb_k_shape *shape)
{
    char why[VB_OPTS_WHY];
    struct vb_k_args args;
    int i;

    l->s = *shape;
    if (vb_k_shape_finish(&l->s, why) != VB_OK)
        fail_msg("%s", why);
    for (i = 0; i < T_TENSORS; i++) {
        t_tensor_create(&l->t[i], t_len(&l->s, i));
        t_fill(&l->t[i], (uint64_t)i + 1,
               l->s.kind == VB_K_MAX_POOL || l->s.kind == VB_K_CONV_POOL);
    }
    t_where_create(l);
    args = t_args(l);
    /* the gradients of these layers do not read the output */
    if (!vb_k_has_pass(l->s.kind, VB_K_BACKWARD_WEIGHTS))
        vb_k_layer_ref(&l->s, VB_K_FORWARD, &args);
}

static inline void t_layer_destroy(struct t_layer *l)
{
    int i;

    for (i = 0; i < T_TENSORS; i++)
        t_tensor_destroy(&l->t[i]);
    t_where_destroy(l);
}

/* Returns the tensor that a pass writes: T_Y, T_DX or T_DW. The pass that writes T_DW writes T_DB
 * too. */
static inline int t_result(enum vb_k_pass pass)
{
    static const int results[VB_K_PASSES] = {T_Y, T_DX, T_DW};

    return results[pass];
}

#define T_CONV(n_, c_, h_, w_, oc_, kh_, kw_, stride_, pad_, relu_)                                \
    {                                                                                              \
        .kind = VB_K_CONV, .n = (n_), .c = (c_), .h = (h_), .w = (w_), .oc = (oc_), .kh = (kh_),   \
        .kw = (kw_), .stride = (stride_), .pad = (pad_), .relu = (relu_)                           \
    }
#define T_CONV_POOL(n_, c_, h_, w_, oc_, kh_, kw_, stride_, pad_)                                  \
    {                                                                                              \
        .kind = VB_K_CONV_POOL, .n = (n_), .c = (c_), .h = (h_), .w = (w_), .oc = (oc_),           \
        .kh = (kh_), .kw = (kw_), .stride = (stride_), .pad = (pad_)                               \
    }
#define T_LINEAR(n_, c_, h_, w_, oc_, relu_)                                                       \
    {                                                                                              \
        .kind = VB_K_LINEAR, .n = (n_), .c = (c_), .h = (h_), .w = (w_), .oc = (oc_),              \
        .relu = (relu_)                                                                            \
    }
#define T_POOL(kind_, n_, c_, h_, w_, kh_, kw_, stride_, pad_)                                     \
    {                                                                                              \
        .kind = (kind_), .n = (n_), .c = (c_), .h = (h_), .w = (w_), .kh = (kh_), .kw = (kw_),     \
        .stride = (stride_), .pad = (pad_)                                                         \
    }
#define T_LRN(n_, c_, h_, w_, size_, alpha_, beta_, bias_)                                         \
    {                                                                                              \
        .kind = VB_K_LRN, .n = (n_), .c = (c_), .h = (h_), .w = (w_), .kh = (size_),               \
        .alpha = (alpha_), .beta = (beta_), .bias = (bias_)                                        \
    }

static const struct vb_k_shape t_shapes[] = {
    T_CONV(1, 1, 1, 1, 1, 1, 1, 1, 0, false),
    T_CONV(3, 2, 7, 9, 5, 3, 3, 1, 1, true),
    T_CONV(17, 3, 11, 13, 6, 5, 5, 1, 2, false),
    T_CONV(3, 3, 9, 12, 4, 3, 5, 1, 1, true),    /* neither the input nor the kernel is square */
    T_CONV(3, 5, 11, 8, 7, 2, 2, 3, 0, false),   /* stride larger than the kernel */
    T_CONV(1, 4, 10, 9, 6, 1, 1, 2, 0, true),    /* stride larger than a kernel of one pixel */
    T_CONV(3, 3, 35, 31, 8, 11, 11, 4, 2, true), /* the kernel of AlexNet's first layer */
    T_CONV(3, 1, 28, 28, 6, 5, 5, 1, 2, true),   /* LeNet's first layer */
    T_CONV(17, 6, 14, 14, 16, 5, 5, 1, 0, true),
    T_CONV(3, 9, 8, 5, 11, 1, 1, 1, 0, false), /* needs no im2col */
    T_CONV(1, 1, 5, 4, 3, 3, 3, 1, 0, false),
    T_CONV(3, 16, 13, 13, 24, 3, 3, 1, 1, true),
    T_CONV(17, 8, 6, 7, 20, 3, 3, 1, 1, false),
    T_CONV(1, 40, 15, 14, 33, 3, 3, 1, 2, true), /* padding of 2 */
    T_CONV(2, 72, 13, 13, 40, 3, 3, 1, 1, true),
    T_CONV(1, 2, 3, 3, 2, 7, 7, 1, 3, false),   /* kernel larger than the input */
    T_CONV(1, 5, 70, 71, 3, 5, 5, 1, 2, false), /* im2col needs several blocks */
    T_CONV_POOL(1, 1, 2, 2, 1, 1, 1, 1, 0),
    T_CONV_POOL(3, 1, 28, 28, 6, 5, 5, 1, 2), /* LeNet's first layer */
    T_CONV_POOL(17, 6, 14, 14, 16, 5, 5, 1, 0),
    T_CONV_POOL(19, 1, 15, 13, 3, 8, 7, 1, 1), /* many short rows of weights */
    T_CONV_POOL(3, 2, 7, 9, 5, 3, 3, 1, 1),    /* pooling leaves over one row and one column */
    T_CONV_POOL(3, 3, 9, 12, 4, 3, 5, 1, 1),
    T_CONV_POOL(3, 5, 11, 14, 7, 2, 2, 3, 0),
    T_CONV_POOL(1, 3, 60, 61, 8, 11, 11, 2, 2),
    T_CONV_POOL(17, 8, 6, 7, 20, 3, 3, 1, 1),
    T_CONV_POOL(1, 5, 70, 71, 3, 5, 5, 1, 2), /* needs several strips */
    T_CONV_POOL(9, 9, 9, 8, 11, 3, 3, 1, 2),
    T_LINEAR(1, 7, 1, 1, 3, false),
    T_LINEAR(3, 5, 3, 3, 10, true),
    T_LINEAR(17, 400, 1, 1, 120, true),
    T_LINEAR(32, 301, 1, 1, 259, false),
    T_LINEAR(64, 84, 1, 1, 10, false),
    T_POOL(VB_K_MAX_POOL, 1, 1, 2, 2, 2, 2, 2, 0),
    T_POOL(VB_K_MAX_POOL, 17, 6, 28, 28, 2, 2, 2, 0),
    T_POOL(VB_K_MAX_POOL, 3, 5, 13, 15, 3, 3, 2, 0),
    T_POOL(VB_K_MAX_POOL, 3, 5, 12, 9, 3, 3, 2, 1),
    T_POOL(VB_K_MAX_POOL, 3, 2, 11, 10, 2, 2, 3, 0),
    T_POOL(VB_K_MAX_POOL, 1, 3, 7, 9, 3, 2, 1, 1),
    T_POOL(VB_K_AVG_POOL, 17, 3, 8, 9, 2, 2, 2, 0),
    T_POOL(VB_K_AVG_POOL, 3, 5, 13, 15, 3, 3, 2, 1),
    T_POOL(VB_K_AVG_POOL, 1, 2, 11, 10, 2, 2, 3, 0),
    T_POOL(VB_K_AVG_POOL, 3, 4, 9, 7, 5, 3, 1, 2),
    {.kind = VB_K_RELU, .n = 3, .c = 5, .h = 7, .w = 9},
    {.kind = VB_K_RELU, .n = 17, .c = 11, .h = 13, .w = 15},
    T_LRN(3, 7, 5, 9, 5, 0.5f, 0.75f, 2),
    T_LRN(1, 2, 13, 11, 5, 1, 0.5f, 1),
    T_LRN(17, 9, 3, 3, 3, 1e-4f, 0.75f, 1),
    {.kind = VB_K_DROPOUT, .n = 3, .c = 5, .h = 7, .w = 9, .rate = 0.5f},
    {.kind = VB_K_DROPOUT, .n = 17, .c = 11, .h = 13, .w = 15, .rate = 0.1f},
    {.kind = VB_K_DROPOUT, .n = 1, .c = 3, .h = 1, .w = 1, .rate = 0},
};

#endif
