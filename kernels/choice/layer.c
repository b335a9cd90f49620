/* SPDX-License-Identifier: MIT
 *
 * Creates and runs layers. A layer has a backend for each of its passes. The backend comes from a
 * plan, from the cache of earlier timings, or from timing.
 */
#include "kernels/choice/choice_priv.h"

#include <stdlib.h>

struct pass {
    const struct vb_k_backend *backend; /* NULL: the layer does not have this pass */
    void *state;
};

struct vb_k_layer {
    struct vb_k_shape shape;
    struct pass passes[VB_K_PASSES];
    size_t scratch_bytes;
};

static vb_status named(const char *name, const struct vb_k_shape *s, enum vb_k_pass pass,
                       const struct vb_k_backend **backend_p)
{
    const struct vb_k_backend *backend = vb_k_backend_find(name);

    if (backend == NULL)
        return vb_err(VB_ERR_USAGE, "unknown backend %.64s", name);
    if (!backend->can(s, pass))
        return vb_err(VB_ERR_USAGE, "backend %s cannot compute the pass %s of this %s layer", name,
                      vb_k_pass_str(pass), vb_k_kind_str(s->kind));
    *backend_p = backend;
    return VB_OK;
}

static vb_status find(const struct vb_k_shape *s, enum vb_k_pass pass,
                      const struct vb_k_tuning *tuning, const struct vb_k_backend **backend_p)
{
    const struct vb_k_backend *backend;
    vb_status st;

    if (tuning->backend[pass] != NULL)
        return named(tuning->backend[pass], s, pass, backend_p);
    backend =
        tuning->cache != NULL ? vb_k_cache_find(tuning->cache, s, pass, tuning->fast_math) : NULL;
    if (backend != NULL && backend->can(s, pass)) {
        *backend_p = backend;
        return VB_OK;
    }
    st = vb_k_choose(s, pass, tuning->fast_math, backend_p);
    if (st == VB_OK && tuning->cache != NULL)
        vb_k_cache_add(tuning->cache, s, pass, tuning->fast_math, *backend_p);
    return st;
}

static vb_status add_pass(struct vb_k_layer *layer, enum vb_k_pass pass,
                          const struct vb_k_tuning *tuning)
{
    const struct vb_k_backend *backend = NULL;
    size_t scratch_bytes = 0;
    vb_status st;

    if (!vb_k_has_pass(layer->shape.kind, pass) || tuning->unused[pass])
        return VB_OK;
    st = find(&layer->shape, pass, tuning, &backend);
    if (st == VB_OK && backend != NULL)
        st = backend->prepare(&layer->shape, pass, &layer->passes[pass].state, &scratch_bytes);
    if (st != VB_OK)
        return st;
    layer->passes[pass].backend = backend;
    if (scratch_bytes > layer->scratch_bytes)
        layer->scratch_bytes = scratch_bytes;
    return VB_OK;
}

vb_status vb_k_layer_create(const struct vb_k_shape *shape, const struct vb_k_tuning *tuning,
                            struct vb_k_layer **layer_p)
{
    static const struct vb_k_tuning none;
    struct vb_k_layer *layer = calloc(1, sizeof(*layer));
    vb_status st = VB_OK;
    int pass;

    if (layer == NULL)
        return vb_err_sys("calloc");
    layer->shape = *shape;
    for (pass = 0; pass < VB_K_PASSES && st == VB_OK; pass++)
        st = add_pass(layer, (enum vb_k_pass)pass, tuning != NULL ? tuning : &none);
    if (st != VB_OK) {
        vb_k_layer_destroy(layer);
        return st;
    }
    *layer_p = layer;
    return VB_OK;
}

void vb_k_layer_destroy(struct vb_k_layer *layer)
{
    int pass;

    for (pass = 0; layer != NULL && pass < VB_K_PASSES; pass++)
        if (layer->passes[pass].backend != NULL)
            layer->passes[pass].backend->destroy(layer->passes[pass].state);
    free(layer);
}

const struct vb_k_shape *vb_k_layer_shape(const struct vb_k_layer *layer)
{
    return &layer->shape;
}

const char *vb_k_layer_backend(const struct vb_k_layer *layer, enum vb_k_pass pass)
{
    const struct vb_k_backend *backend = layer->passes[pass].backend;

    return backend != NULL ? backend->name : NULL;
}

size_t vb_k_layer_scratch_bytes(const struct vb_k_layer *layer)
{
    return layer->scratch_bytes;
}

void vb_k_layer_run(const struct vb_k_layer *layer, enum vb_k_pass pass,
                    const struct vb_k_args *args)
{
    const struct pass *p = &layer->passes[pass];

    if (p->backend != NULL)
        p->backend->run(p->state, args);
}
