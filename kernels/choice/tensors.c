/* SPDX-License-Identifier: MIT */
#include "kernels/choice/tensors_priv.h"

#include <stdlib.h>

size_t vb_k_tensor_len(const struct vb_k_shape *s, enum vb_k_tensor which)
{
    if (which == X || which == DX)
        return vb_k_shape_inputs(s);
    if (which == Y || which == DY)
        return vb_k_shape_outputs(s);
    if (which == W || which == DW)
        return vb_k_shape_weights(s);
    return vb_k_shape_weights(s) > 0 ? (size_t)s->oc : 0;
}

static bool is_used(const struct vb_k_tensors *t, int which)
{
    static const unsigned char used[VB_K_PASSES][N_TENSORS] = {
        [VB_K_FORWARD] = {[X] = 1, [W] = 1, [B] = 1, [Y] = 1},
        [VB_K_BACKWARD_DATA] = {[W] = 1, [DY] = 1, [DX] = 1},
        [VB_K_BACKWARD_WEIGHTS] = {[X] = 1, [DY] = 1, [DW] = 1, [DB] = 1},
    };
    bool weights = vb_k_shape_weights(&t->s) > 0;

    if (!weights && (which == X || which == Y))
        return true; /* pooling, ReLU, lrn and dropout read both */
    return used[t->pass][which] && (weights || which == DY || which == DX);
}

/* Numbers like those of a trained model. With zeros some kernels would be too fast. */
void vb_k_fill(float *v, size_t n, uint64_t seed)
{
    enum { PATTERN = 4099 };
    size_t i;

    for (i = 0; i < n && i < PATTERN; i++)
        v[i] = (float)(vb_random(seed, i) >> 40) / (1 << 23) - 1;
    for (; i < n; i++)
        v[i] = v[i - PATTERN];
}

void vb_k_tensors_fini(struct vb_k_tensors *t)
{
    int i;

    free(t->where);
    for (i = 0; i < N_TENSORS; i++)
        free(t->t[i]);
}

static bool make_all(struct vb_k_tensors *t)
{
    size_t n, j;
    int i;

    for (i = 0; i < N_TENSORS; i++) {
        if (!is_used(t, i))
            continue;
        n = vb_k_tensor_len(&t->s, (enum vb_k_tensor)i);
        t->t[i] = vb_alloc_aligned(n * sizeof(float) + VB_CACHE_LINE);
        if (t->t[i] == NULL)
            return false;
        vb_k_fill(t->t[i], n, (uint64_t)i);
    }
    if (t->s.kind != VB_K_CONV_POOL)
        return true;
    n = vb_k_shape_outputs(&t->s);
    t->where = vb_alloc_aligned(n);
    for (j = 0; j < n && t->where != NULL; j++) /* a fifth has no place, as after a ReLU */
        t->where[j] = (uint8_t)(vb_random(0, j) % (VB_K_NOWHERE + 1));
    return t->where != NULL;
}

vb_status vb_k_tensors_init(struct vb_k_tensors *t, const struct vb_k_shape *s, enum vb_k_pass pass)
{
    memset(t, 0, sizeof(*t));
    t->s = *s;
    t->pass = pass;
    if (make_all(t))
        return VB_OK;
    vb_k_tensors_fini(t);
    return vb_err(VB_ERR_NO_MEMORY, "no memory to try a layer of %d samples", s->n);
}

struct vb_k_args vb_k_tensors_args(const struct vb_k_tensors *t)
{
    return (struct vb_k_args){.x = t->t[X],
                              .w = t->t[W],
                              .b = t->t[B],
                              .dy = t->t[DY],
                              .y = t->t[Y],
                              .dx = t->t[DX],
                              .dw = t->t[DW],
                              .db = t->t[DB],
                              .where = t->where};
}
