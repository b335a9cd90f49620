/* SPDX-License-Identifier: MIT
 *
 * Compiles a table of layers for a batch: shapes, parameters, kernels, and one arena with every
 * buffer that a step needs.
 *
 * For training, each layer has its own output buffer, because the backward pass reads it again.
 * Gradients of outputs are needed only from one layer to the next, so two buffers alternate. For
 * evaluation, outputs alternate between these two buffers too.
 */
#include "models/model_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ------------------------------------------------------------------------------ */

static void add_param(struct vb_model *m, const char *layer, const char *what, int rows, int cols)
{
    snprintf(m->names[m->n_table], MODEL_NAME, "%s.%s", layer, what);
    m->params[m->n_table] = (struct vb_param){m->names[m->n_table], rows, cols, m->n_params};
    m->n_params += (size_t)rows * (size_t)cols;
    m->n_table++;
}

static void add_params(struct vb_model *m, int i)
{
    struct model_layer *l = &m->layers[i];
    const char *name = m->table->layers[i].name;
    size_t weights = vb_k_shape_weights(&l->shape);

    l->param = -1;
    if (weights == 0)
        return;
    l->param = m->n_table;
    if (m->pixels)
        add_param(m, name, "w", l->shape.c * l->shape.h * l->shape.w, l->shape.oc);
    else
        add_param(m, name, "w", l->shape.oc, (int)(weights / (size_t)l->shape.oc));
    add_param(m, name, "b", 1, l->shape.oc);
    if (m->first < 0)
        m->first = i;
}

static vb_status find_table(const struct vb_model_opts *o, struct vb_model *m)
{
    m->table = o->table != NULL ? o->table : vb_layer_table_find(o->name);
    if (m->table == NULL)
        return vb_err(VB_ERR_USAGE, "unknown model %.64s", o->name);
    if (m->table->n_layers < 1 || m->table->n_layers > VB_LAYERS_MAX)
        return vb_err(VB_ERR_USAGE, "model %.64s has %d layers, expected 1 to %d", m->table->name,
                      m->table->n_layers, VB_LAYERS_MAX);
    m->pixels = m->table->pixels;
    return VB_OK;
}

static vb_status read_table(struct vb_model *m)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX], *last = &shapes[m->table->n_layers - 1];
    vb_status st = vb_layer_table_shapes(m->table, m->batch_max, shapes);
    int i;

    if (st != VB_OK)
        return st;
    m->first = -1;
    for (i = 0; i < m->table->n_layers; i++) {
        m->layers[i].shape = shapes[i];
        add_params(m, i);
    }
    m->classes = last->oc;
    /* The loss overwrites the logits with its gradient, so the last layer must not be one whose
     * backward pass reads its output (ReLU, pooling). */
    if (last->kind != VB_K_LINEAR || last->relu || last->oc > UINT16_MAX)
        return vb_err(VB_ERR_USAGE, "model %.64s must end with a linear layer without ReLU",
                      m->table->name);
    return VB_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static vb_status check_plan(const struct vb_model *m, const struct vb_k_plan *plan)
{
    const struct vb_k_choice *choice;
    int c, i;

    if (m->pixels && plan->n > 0)
        return vb_err(VB_ERR_USAGE, "plan, layer %.64s: the layers of %s have no choice of kernels",
                      plan->v[0].layer, m->table->name);
    for (c = 0; c < plan->n; c++) {
        choice = &plan->v[c];
        i = 0;
        while (i < m->table->n_layers && strcmp(m->table->layers[i].name, choice->layer) != 0)
            i++;
        if (i == m->table->n_layers)
            return vb_err(VB_ERR_USAGE, "plan, layer %.64s: model %s has no such layer",
                          choice->layer, m->table->name);
        if (!vb_k_has_pass(m->layers[i].shape.kind, choice->pass))
            return vb_err(VB_ERR_USAGE, "plan, layer %.64s: this layer has no %s pass",
                          choice->layer, vb_k_pass_str(choice->pass));
    }
    return VB_OK;
}

static vb_status create_layer(struct vb_model *m, const struct vb_model_opts *o, int i)
{
    const char *name = m->table->layers[i].name;
    struct vb_k_tuning tuning = {.cache = o->cache, .fast_math = o->fast_math};
    vb_status st;
    int pass;

    for (pass = 0; pass < VB_K_PASSES && o->plan != NULL; pass++)
        tuning.backend[pass] = vb_k_plan_find(o->plan, name, (enum vb_k_pass)pass);
    tuning.unused[VB_K_BACKWARD_DATA] = o->forward_only || i <= m->first;
    tuning.unused[VB_K_BACKWARD_WEIGHTS] = o->forward_only;
    st = vb_k_layer_create(&m->layers[i].shape, &tuning, &m->layers[i].k);
    if (st != VB_OK)
        return st;
    m->n_layers = i + 1;
    return vb_k_plan_add(&m->plan, name, m->layers[i].k);
}

/* ---- the arena ------------------------------------------------------------------------------- */

struct arena {
    char *base; /* NULL: the arena only counts bytes */
    size_t used;
};

static void *take(struct arena *a, size_t bytes)
{
    void *at = a->base != NULL ? a->base + a->used : NULL;

    a->used += (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
    return at;
}

/* Gives the two alternating buffers to the layers in turn. In evaluation, dropout only passes its
 * input on, so the layer after it gets the same buffer. */
static void share_outputs(struct vb_model *m)
{
    int i, turn = 0;

    for (i = 0; i < m->n_layers; i++) {
        m->layers[i].y = m->d[turn];
        turn ^= m->layers[i].shape.kind != VB_K_DROPOUT;
    }
}

static void lay_out(struct vb_model *m, struct arena *a)
{
    size_t scratch = 0, max = 0, n; /* max: floats of the largest output but the last */
    int i;

    for (i = 0; i < m->n_layers; i++) {
        n = vb_k_layer_scratch_bytes(m->layers[i].k);
        scratch = n > scratch ? n : scratch;
        n = i < m->n_layers - 1 ? vb_k_shape_outputs(&m->layers[i].shape) : 0;
        max = n > max ? n : max;
    }
    m->logits = take(a, (size_t)m->batch_max * (size_t)m->classes * sizeof(float));
    if (m->pixels && !m->forward_only) {
        m->done = take(a, (size_t)m->batch_max * sizeof(*m->done));
        m->sums = take(a, (size_t)m->batch_max * VB_K_PIXELS_SUMS * sizeof(float));
    }
    m->scratch = take(a, scratch);
    m->d[0] = take(a, max * sizeof(float));
    m->d[1] = take(a, max * sizeof(float));
    if (m->forward_only)
        share_outputs(m);
    for (i = 0; i < m->n_layers - 1 && !m->forward_only; i++)
        m->layers[i].y = take(a, vb_k_shape_outputs(&m->layers[i].shape) * sizeof(float));
    for (i = 0; i < m->n_layers; i++)
        if (m->layers[i].shape.kind == VB_K_CONV_POOL)
            m->layers[i].where = take(a, vb_k_shape_outputs(&m->layers[i].shape));
    if (m->n_layers > 0)
        m->layers[m->n_layers - 1].y = m->logits;
}

static vb_status create_arena(struct vb_model *m)
{
    struct arena a = {0};
    vb_status st;

    lay_out(m, &a);
    st = vb_mem_map_private(a.used, &m->mem);
    if (st != VB_OK)
        return st;
    a = (struct arena){.base = m->mem.ptr};
    lay_out(m, &a);
    return VB_OK;
}

vb_status vb_model_create(const struct vb_model_opts *opts, struct vb_model **model_p)
{
    struct vb_model *m = calloc(1, sizeof(*m));
    vb_status st;
    int i;

    if (m == NULL)
        return vb_err_sys("calloc");
    m->batch_max = opts->batch_max;
    m->forward_only = opts->forward_only;
    st = find_table(opts, m);
    if (st == VB_OK)
        st = read_table(m);
    if (st == VB_OK && opts->plan != NULL)
        st = check_plan(m, opts->plan);
    for (i = 0; st == VB_OK && i < m->table->n_layers && !m->pixels; i++)
        st = create_layer(m, opts, i);
    if (st == VB_OK)
        st = create_arena(m);
    if (st != VB_OK) {
        vb_model_destroy(m);
        return st;
    }
    *model_p = m;
    return VB_OK;
}

void vb_model_destroy(struct vb_model *model)
{
    int i;

    if (model == NULL)
        return;
    for (i = 0; i < model->n_layers; i++)
        vb_k_layer_destroy(model->layers[i].k);
    vb_mem_unmap(&model->mem);
    free(model);
}

size_t vb_model_n_params(const struct vb_model *model)
{
    return model->n_params;
}

const struct vb_param *vb_model_table(const struct vb_model *model, int *n_p)
{
    *n_p = model->n_table;
    return model->params;
}

void vb_model_input(const struct vb_model *model, int *c_p, int *h_p, int *w_p, int *classes_p)
{
    const struct vb_k_shape *s = &model->layers[0].shape;

    *c_p = s->c;
    *h_p = s->h;
    *w_p = s->w;
    *classes_p = model->classes;
}

const struct vb_k_plan *vb_model_plan(const struct vb_model *model)
{
    return &model->plan;
}

/* ---- initial values of parameters ------------------------------------------------------------ */

/* Returns the fraction of the inputs of layer i that dropout keeps. */
static double kept(const struct vb_model *m, int i)
{
    double keep = 1;

    for (i--; i >= 0 && m->layers[i].param < 0; i--)
        if (m->layers[i].shape.kind == VB_K_DROPOUT)
            keep *= 1 - (double)m->layers[i].shape.rate;
    return keep;
}

/* Returns the largest initial weight of layer i, such that signals neither grow nor fade from layer
 * to layer, and the first loss is that of guessing. Weights are uniform in
 *   +-sqrt(6 kept / inputs)         with ReLU: He, Zhang, Ren and Sun, 2015. Dropout divides what
 *                                   it keeps by kept: Hendrycks and Gimpel, 2016
 *   +-sqrt(6 / (inputs + outputs))  without ReLU: Glorot and Bengio, 2010
 *   +-0.01 sqrt(3 / inputs)         in the last layer: a hundredth of LeCun, Bottou, Orr and
 *                                   Mueller, 1998. All classes are about equally likely, however
 *                                   large the signals are. Krizhevsky, Sutskever and Hinton, 2012,
 *                                   have 0.01 without regard to inputs.
 * inputs and outputs are those of one neuron; a neuron of a convolution sees kh * kw places of each
 * channel. */
static double limit(const struct vb_model *m, int i)
{
    const struct vb_k_shape *s = &m->layers[i].shape;
    double inputs = (double)vb_k_shape_weights(s) / s->oc;
    double outputs = s->kind == VB_K_CONV ? (double)s->oc * s->kh * s->kw : s->oc;

    if (i == m->n_layers - 1)
        return 0.01 * sqrt(3 / inputs);
    if (s->relu || s->kind == VB_K_CONV_POOL)
        return sqrt(6 * kept(m, i) / inputs);
    return sqrt(6 / (inputs + outputs));
}

/* Fills v with random numbers. The interval [-max, max] has 2^24 equal parts, and each number is
 * the middle of a random part. */
static void draw(float *v, size_t n, uint64_t seed, double max)
{
    size_t i;

    for (i = 0; i < n; i++)
        v[i] = (float)((((double)(vb_random(seed, i) >> 40) + 0.5) / (1 << 23) - 1) * max);
}

void vb_model_init(const struct vb_model *model, uint64_t seed, float *params)
{
    const struct model_layer *l;
    int i;

    memset(params, 0, model->n_params * sizeof(*params));
    for (i = 0; i < model->n_layers; i++) {
        l = &model->layers[i];
        if (l->param >= 0)
            draw(params + model->params[l->param].offset, vb_k_shape_weights(&l->shape),
                 vb_random(seed, (uint64_t)l->param), limit(model, i));
    }
}
