/* SPDX-License-Identifier: MIT
 *
 * oneDNN, between the file that describes primitives to it and the one that runs them. Its own
 * headers are included by neither's header: handles are pointers to structs of its.
 */
#ifndef VB_ONEDNN_PRIV_H
#define VB_ONEDNN_PRIV_H

#include "kernels/layer_priv.h"

extern const struct vb_k_backend vb_k_backend_onednn; /* kernels/onednn_layer.c */

/* kernels/onednn.c: the version of the library that is loaded, "2.6.3". */
void vb_k_onednn_version(char *buf, size_t size);

/* Returns true if this is the name of a reference implementation: "gemm:ref", "ref:any". */
bool vb_k_impl_is_reference(const char *impl);

struct dnnl_engine;
struct dnnl_primitive_attr;
struct dnnl_primitive_desc;

#define ONEDNN_DIMS 4       /* that tensors have at most */
#define ONEDNN_DIMS_ROOM 12 /* that the library may read */

/* A tensor as the caller has it. */
struct onednn_plain {
    int n_dims;
    int64_t dims[ONEDNN_DIMS_ROOM], strides[ONEDNN_DIMS_ROOM];
};

/* What one primitive computes: the whole of a pass, or one of several equal parts of it. x stands
 * for its gradient too, and so do the others. */
struct onednn_job {
    struct vb_k_shape s; /* kernel, stride and the like; sizes are those below */
    enum vb_k_pass pass;
    struct onednn_plain x, w, b, y;
};

/* kernels/onednn_desc.c: conv and linear in whatever layouts the library likes best, the others in
 * the plain one. attr: of the primitive asked for. False: the library has none. */
bool onednn_describe(const struct onednn_job *job, struct dnnl_engine *engine,
                     const struct dnnl_primitive_attr *attr, struct dnnl_primitive_desc **pd_p);

#endif
