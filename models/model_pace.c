/* SPDX-License-Identifier: MIT
 *
 * A model whose layers are not computed: something else stands for their time.
 */
#include "models/model_priv.h"

/* Returns the floating-point operations of a pass of a layer as training runs it. The backward pass
 * ends at the first layer with weights, which needs no gradient of its input. */
static double flops_of(const struct vb_model *m, int i, enum vb_k_pass pass)
{
    const struct vb_k_shape *s = &m->layers[i].shape;

    if (pass != VB_K_FORWARD && (i < m->first || (i == m->first && pass == VB_K_BACKWARD_DATA)))
        return 0;
    return vb_k_has_pass(s->kind, pass) ? vb_k_shape_flops(s, pass) : 0;
}

double vb_model_flops(const struct vb_model *m)
{
    double all = 0;
    int i, pass;

    for (i = 0; i < m->n_layers; i++)
        for (pass = 0; pass < VB_K_PASSES; pass++)
            all += flops_of(m, i, (enum vb_k_pass)pass);
    return all;
}

static void set_shares(struct vb_model *m)
{
    double all[2] = {0, 0}; /* forward, backward */
    int i, pass;

    for (i = 0; i < m->n_layers; i++)
        for (pass = 0; pass < VB_K_PASSES; pass++) {
            m->pace.share[i][pass] = flops_of(m, i, (enum vb_k_pass)pass);
            all[pass != VB_K_FORWARD] += m->pace.share[i][pass];
        }
    for (i = 0; i < m->n_layers; i++)
        for (pass = 0; pass < VB_K_PASSES; pass++)
            m->pace.share[i][pass] /= all[pass != VB_K_FORWARD] > 0 ? all[pass != VB_K_FORWARD] : 1;
}

void vb_model_pace(struct vb_model *model, vb_pace_fn fn, void *arg)
{
    set_shares(model);
    model->pace.fn = fn;
    model->pace.arg = arg;
}
