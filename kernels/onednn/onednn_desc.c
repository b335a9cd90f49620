/* SPDX-License-Identifier: MIT
 *
 * Makes the primitive descriptors of oneDNN for the passes of layers. In version 3 operation
 * descriptors are gone and memory descriptors are handles.
 */
#include "kernels/onednn/onednn.h"

#include <dnnl.h>

struct descs {
    dnnl_memory_desc_t x, w, b, y;
};

/* Arguments that all operations need. */
struct request {
    const struct onednn_job *job;
    const struct descs *d;
    enum vb_k_pass pass;
    dnnl_engine_t engine;
    const_dnnl_primitive_attr_t attr;
    const_dnnl_primitive_desc_t hint;
    dnnl_dims_t stride, pad, kernel;
};

#if DNNL_VERSION_MAJOR >= 3

static const dnnl_dims_t no_dilation = {0, 0};

static bool describe_plain(dnnl_memory_desc_t *desc, const struct onednn_plain *t)
{
    return dnnl_memory_desc_create_with_strides(desc, t->n_dims, t->dims, dnnl_f32, t->strides) ==
           dnnl_success;
}

static bool describe_any(dnnl_memory_desc_t *desc, const struct onednn_plain *t)
{
    return dnnl_memory_desc_create_with_tag(desc, t->n_dims, t->dims, dnnl_f32,
                                            dnnl_format_tag_any) == dnnl_success;
}

static void forget(struct descs *d)
{
    dnnl_memory_desc_t all[] = {d->x, d->w, d->b, d->y};
    size_t i;

    for (i = 0; i < VB_COUNT(all); i++)
        if (all[i] != NULL)
            dnnl_memory_desc_destroy(all[i]);
}

static dnnl_status_t make_conv(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const struct descs *d = r->d;

    if (r->pass == VB_K_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            pd_p, r->engine, dnnl_forward_training, dnnl_convolution_direct, d->x, d->w, d->b, d->y,
            r->stride, no_dilation, r->pad, r->pad, r->attr);
    if (r->pass == VB_K_BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd_p, r->engine, dnnl_convolution_direct, d->x, d->w, d->y, r->stride, no_dilation,
            r->pad, r->pad, r->hint, r->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd_p, r->engine, dnnl_convolution_direct, d->x, d->w, d->b, d->y, r->stride, no_dilation,
        r->pad, r->pad, r->hint, r->attr);
}

static dnnl_status_t make_linear(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const struct descs *d = r->d;

    if (r->pass == VB_K_FORWARD)
        return dnnl_inner_product_forward_primitive_desc_create(
            pd_p, r->engine, dnnl_forward_training, d->x, d->w, d->b, d->y, r->attr);
    if (r->pass == VB_K_BACKWARD_DATA)
        return dnnl_inner_product_backward_data_primitive_desc_create(pd_p, r->engine, d->x, d->w,
                                                                      d->y, r->hint, r->attr);
    return dnnl_inner_product_backward_weights_primitive_desc_create(pd_p, r->engine, d->x, d->w,
                                                                     d->b, d->y, r->hint, r->attr);
}

static dnnl_status_t make_pool(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    if (r->pass == VB_K_FORWARD)
        return dnnl_pooling_forward_primitive_desc_create(
            pd_p, r->engine, dnnl_forward_training, dnnl_pooling_avg_include_padding, r->d->x,
            r->d->y, r->stride, r->kernel, no_dilation, r->pad, r->pad, r->attr);
    return dnnl_pooling_backward_primitive_desc_create(
        pd_p, r->engine, dnnl_pooling_avg_include_padding, r->d->x, r->d->y, r->stride, r->kernel,
        no_dilation, r->pad, r->pad, r->hint, r->attr);
}

static dnnl_status_t make_lrn(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const struct vb_k_shape *s = &r->job->s;

    if (r->pass == VB_K_FORWARD)
        return dnnl_lrn_forward_primitive_desc_create(pd_p, r->engine, dnnl_forward_training,
                                                      dnnl_lrn_across_channels, r->d->x, r->d->y,
                                                      s->kh, s->alpha, s->beta, s->bias, r->attr);
    return dnnl_lrn_backward_primitive_desc_create(pd_p, r->engine, dnnl_lrn_across_channels,
                                                   r->d->x, r->d->y, r->d->x, s->kh, s->alpha,
                                                   s->beta, s->bias, r->hint, r->attr);
}

#else

static bool describe_plain(dnnl_memory_desc_t *desc, const struct onednn_plain *t)
{
    return dnnl_memory_desc_init_by_strides(desc, t->n_dims, t->dims, dnnl_f32, t->strides) ==
           dnnl_success;
}

static bool describe_any(dnnl_memory_desc_t *desc, const struct onednn_plain *t)
{
    return dnnl_memory_desc_init_by_tag(desc, t->n_dims, t->dims, dnnl_f32, dnnl_format_tag_any) ==
           dnnl_success;
}

static void forget(struct descs *d)
{
    (void)d; /* memory descriptors are plain structs in version 2 */
}

static dnnl_status_t finish(const struct request *r, dnnl_status_t st, const_dnnl_op_desc_t op,
                            dnnl_primitive_desc_t *pd_p)
{
    return st != dnnl_success ? st
                              : dnnl_primitive_desc_create(pd_p, op, r->attr, r->engine, r->hint);
}

static dnnl_status_t make_conv(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const struct descs *d = r->d;
    dnnl_convolution_desc_t op;
    dnnl_status_t st;

    if (r->pass == VB_K_FORWARD)
        st = dnnl_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct,
                                                &d->x, &d->w, &d->b, &d->y, r->stride, r->pad,
                                                r->pad);
    else if (r->pass == VB_K_BACKWARD_DATA)
        st = dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &d->x, &d->w,
                                                      &d->y, r->stride, r->pad, r->pad);
    else
        st = dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &d->x, &d->w,
                                                         &d->b, &d->y, r->stride, r->pad, r->pad);
    return finish(r, st, &op, pd_p);
}

static dnnl_status_t make_linear(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const struct descs *d = r->d;
    dnnl_inner_product_desc_t op;
    dnnl_status_t st;

    if (r->pass == VB_K_FORWARD)
        st = dnnl_inner_product_forward_desc_init(&op, dnnl_forward_training, &d->x, &d->w, &d->b,
                                                  &d->y);
    else if (r->pass == VB_K_BACKWARD_DATA)
        st = dnnl_inner_product_backward_data_desc_init(&op, &d->x, &d->w, &d->y);
    else
        st = dnnl_inner_product_backward_weights_desc_init(&op, &d->x, &d->w, &d->b, &d->y);
    return finish(r, st, &op, pd_p);
}

static dnnl_status_t make_pool(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    dnnl_pooling_desc_t op;
    dnnl_status_t st;

    if (r->pass == VB_K_FORWARD)
        st = dnnl_pooling_forward_desc_init(&op, dnnl_forward_training,
                                            dnnl_pooling_avg_include_padding, &r->d->x, &r->d->y,
                                            r->stride, r->kernel, r->pad, r->pad);
    else
        st = dnnl_pooling_backward_desc_init(&op, dnnl_pooling_avg_include_padding, &r->d->x,
                                             &r->d->y, r->stride, r->kernel, r->pad, r->pad);
    return finish(r, st, &op, pd_p);
}

static dnnl_status_t make_lrn(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const struct vb_k_shape *s = &r->job->s;
    dnnl_lrn_desc_t op;
    dnnl_status_t st;

    if (r->pass == VB_K_FORWARD)
        st = dnnl_lrn_forward_desc_init(&op, dnnl_forward_training, dnnl_lrn_across_channels,
                                        &r->d->x, s->kh, s->alpha, s->beta, s->bias);
    else
        st = dnnl_lrn_backward_desc_init(&op, dnnl_lrn_across_channels, &r->d->y, &r->d->x, s->kh,
                                         s->alpha, s->beta, s->bias);
    return finish(r, st, &op, pd_p);
}

#endif

static dnnl_status_t make(const struct request *r, dnnl_primitive_desc_t *pd_p)
{
    switch (r->job->s.kind) {
    case VB_K_CONV:
        return make_conv(r, pd_p);
    case VB_K_LINEAR:
        return make_linear(r, pd_p);
    case VB_K_AVG_POOL:
        return make_pool(r, pd_p);
    case VB_K_LRN:
        return make_lrn(r, pd_p);
    default:
        return dnnl_unimplemented;
    }
}

/* Makes the forward descriptor first, because the descriptor of a backward pass needs it. */
static bool make_both(struct request *r, dnnl_primitive_desc_t *pd_p)
{
    const_dnnl_primitive_attr_t attr = r->attr;
    dnnl_primitive_desc_t forward;
    bool made;

    r->pass = VB_K_FORWARD;
    if (r->job->pass == VB_K_FORWARD)
        return make(r, pd_p) == dnnl_success;
    r->attr = NULL;
    if (make(r, &forward) != dnnl_success)
        return false;
    r->pass = r->job->pass;
    r->attr = attr;
    r->hint = forward;
    made = make(r, pd_p) == dnnl_success;
    dnnl_primitive_desc_destroy(forward);
    return made;
}

bool vb_onednn_describe(const struct onednn_job *job, struct dnnl_engine *engine,
                        const struct dnnl_primitive_attr *attr, struct dnnl_primitive_desc **pd_p)
{
    const struct vb_k_shape *s = &job->s;
    struct descs d;
    struct request r = {.job = job,
                        .d = &d,
                        .engine = engine,
                        .attr = attr,
                        .stride = {s->stride, s->stride},
                        .pad = {s->pad, s->pad},
                        .kernel = {s->kh, s->kw}};
    bool made;

    memset(&d, 0, sizeof(d));
    if (vb_k_has_pass(s->kind, VB_K_BACKWARD_WEIGHTS))
        made = describe_any(&d.x, &job->x) && describe_any(&d.w, &job->w) &&
               describe_plain(&d.b, &job->b) && describe_any(&d.y, &job->y);
    else
        made = describe_plain(&d.x, &job->x) && describe_plain(&d.y, &job->y);
    made = made && make_both(&r, pd_p);
    forget(&d);
    return made;
}
