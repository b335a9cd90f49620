/* SPDX-License-Identifier: MIT
 *
 * Our own declarations about oneDNN, without its headers: handles are pointers to its structs.
 */
#ifndef VB_KERNELS_ONEDNN_ONEDNN_H
#define VB_KERNELS_ONEDNN_ONEDNN_H

#include "kernels/layer/backend.h"

extern const struct vb_k_backend vb_k_backend_onednn; /* kernels/onednn/onednn_layer.c */

/* kernels/onednn/onednn.c: writes the version of the loaded library, such as "2.6.3", to buf. */
void vb_k_onednn_version(char *buf, size_t size);

/* Writes the instruction set that oneDNN uses, such as "avx512_core". */
void vb_k_onednn_isa(char *buf, size_t size);

/* Returns true if impl names a reference implementation, such as "gemm:ref" or "ref:any". */
bool vb_k_impl_is_reference(const char *impl);

struct dnnl_engine;
struct dnnl_primitive_attr;
struct dnnl_primitive_desc;

#define ONEDNN_DIMS 4       /* largest number of dimensions of a tensor */
#define ONEDNN_DIMS_ROOM 12 /* size of the arrays; the library may read this many elements */

/* A tensor in the caller's layout. */
struct onednn_plain {
    int n_dims;
    int64_t dims[ONEDNN_DIMS_ROOM], strides[ONEDNN_DIMS_ROOM];
};

/* The work of one primitive: a whole pass, or one of several equal parts of a pass. In a backward
 * pass, x can be the gradient of x; the same is true of w, b and y. */
struct onednn_job {
    struct vb_k_shape s; /* kernel, stride and so on; the sizes are in x, w, b and y */
    enum vb_k_pass pass;
    struct onednn_plain x, w, b, y;
};

/* kernels/onednn/onednn_desc.c: makes a descriptor. Convolutions and linear layers use the layouts
 * that the library prefers; other layers use the plain layout. attr has the attributes of the
 * primitive. Returns false if the library has no implementation. */
bool vb_onednn_describe(const struct onednn_job *job, struct dnnl_engine *engine,
                        const struct dnnl_primitive_attr *attr, struct dnnl_primitive_desc **pd_p);

#endif
