/* SPDX-License-Identifier: MIT
 *
 * kernels/: how numbers are computed: layers, each pass of which is computed by the fastest of
 * several backends, and the plain reference kernels that say what is to be computed.
 *
 * Probes and references may be called from any thread; a layer is used by one thread at a time,
 * which may open a parallel region (see vb_plan_pin_team() of topo/).
 */
#ifndef VB_KERNELS_H
#define VB_KERNELS_H

#include "base/base.h"

/* What oneDNN would use on this CPU. */
struct vb_k_onednn {
    char version[32];    /* of the library that is loaded: "2.6.3" */
    char isa[32];        /* instruction set it computes with: "avx512_core", "asimd" */
    char conv[64];       /* implementation it takes for a convolution, "" if it has none */
    char inner[64];      /* ... and for an inner product */
    bool conv_reference; /* it is the plain one, for CPUs without a kernel of their own */
    bool inner_reference;
};

/* Asks oneDNN by having it prepare, not run, the third convolution and the first inner product of
 * AlexNet. An error means that oneDNN does not work at all; version and isa are filled then too. */
vb_status vb_k_onednn_probe(struct vb_k_onednn *probe_p);

/* True for the name of an implementation that is a reference one: "gemm:ref", "ref:any". */
bool vb_k_impl_is_reference(const char *impl);

enum vb_k_threading { VB_K_SEQUENTIAL, VB_K_PTHREADS, VB_K_OPENMP };

/* The BLAS library. The strings are cut to fit. */
struct vb_k_blas {
    char version[32]; /* "0.3.21" */
    char config[160]; /* how it was built, in its own words */
    char core[32];    /* the CPU it has kernels for: "neoversen1" */
    enum vb_k_threading threading;
};

void vb_k_blas_probe(struct vb_k_blas *probe_p);

const char *vb_k_threading_str(enum vb_k_threading threading);

/* One sentence: what dense kernels will use, oneDNN where it has kernels of its own and BLAS
 * where it would fall back to a reference. */
void vb_k_dense_choice(const struct vb_k_onednn *onednn, const struct vb_k_blas *blas, char *buf,
                       size_t size);

/* ---- layers ---------------------------------------------------------------------------------- */

enum vb_k_kind {
    VB_K_CONV,
    VB_K_LINEAR,
    VB_K_MAX_POOL,
    VB_K_AVG_POOL,
    VB_K_RELU,
    VB_K_LRN,
    VB_K_DROPOUT,
};

enum vb_k_pass { VB_K_FORWARD, VB_K_BACKWARD_DATA, VB_K_BACKWARD_WEIGHTS };
#define VB_K_PASSES 3

/* What a layer computes. Between layers every tensor is plain row-major: activations (n, c, h, w),
 * weights of a convolution (oc, c, kh, kw) and of a linear layer (oc, c), biases (oc). A linear
 * layer has c * h * w inputs and oh = ow = 1. */
struct vb_k_shape {
    enum vb_k_kind kind;
    int n;           /* samples of a batch; a shorter batch is filled up with zeros */
    int c, h, w;     /* of the input */
    int oc, oh, ow;  /* of the output; vb_k_shape_finish() fills in what follows from the rest */
    int kh, kw;      /* convolution, pooling; lrn: kh channels take part */
    int stride, pad; /* the same in both directions; the padding of average pooling counts */
    bool relu;       /* convolution, linear: ReLU follows and belongs to the layer */
    float rate;      /* dropout: the share that is dropped */
    float alpha, beta, bias; /* lrn: y = x * (bias + alpha / kh * sum of squares) ^ -beta */
};

/* Checks the shape and fills in the output. On VB_ERR_USAGE why has one line. */
vb_status vb_k_shape_finish(struct vb_k_shape *shape, char why[VB_OPTS_WHY]);

/* Multiplications and additions of a pass as a direct convolution does them, for GFLOP/s; 0 for
 * kinds that are bound by memory. */
double vb_k_shape_flops(const struct vb_k_shape *shape, enum vb_k_pass pass);

/* Whether layers of a kind have this pass: all but convolutions and linear layers have no weights.
 */
bool vb_k_has_pass(enum vb_k_kind kind, enum vb_k_pass pass);

const char *vb_k_kind_str(enum vb_k_kind kind); /* "conv", "linear", "max-pool" ... */
const char *vb_k_pass_str(enum vb_k_pass pass); /* "forward", "backward-data", "backward-weights" */

/* Floats in the input, the output, and the weights of a layer; 0 weights where it has none. */
size_t vb_k_shape_inputs(const struct vb_k_shape *shape);
size_t vb_k_shape_outputs(const struct vb_k_shape *shape);
size_t vb_k_shape_weights(const struct vb_k_shape *shape);

/* The tensors of a pass; those that it does not use are NULL. Inputs and outputs do not overlap.
 *   forward           x w b -> y   (with ReLU, where the shape has it)
 *   backward data     w dy -> dx   (pooling and the like: x y too)
 *   backward weights  x dy -> dw db (summed over the batch, overwritten)
 * dy is the gradient before the ReLU: who calls has masked it already, with vb_k_relu_mask().
 *
 * A NaN stays one: in sums, in ReLU, and in max pooling, where the first NaN of a window wins.
 * Winograd kernels spread a NaN or an infinity over the tile that it is in. */
struct vb_k_args {
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    uint64_t seed, step; /* dropout: which elements are dropped follows from these two */
    void *scratch;       /* as much as was asked for, aligned to 64 bytes, kept by nobody */
};

/* dy = y > 0 ? dy : 0, the gradient through a ReLU whose result is y. */
void vb_k_relu_mask(const float *y, float *dy, size_t n);

/* ---- who computes a layer -------------------------------------------------------------------- */

/* Backends have names: "plain", "blas", "onednn" ... A choice is the backend of a pass. */

/* Timings of earlier runs, kept in a file by CPU, libraries and number of threads. One thread at a
 * time. */
struct vb_k_cache;

/* folder: NULL is that of vb_cache_dir(). A file that is missing, broken or made elsewhere is an
 * empty cache; a broken one is warned of. */
vb_status vb_k_cache_open(const char *folder, struct vb_k_cache **cache_p);
void vb_k_cache_close(struct vb_k_cache *cache); /* writes what is new; NULL is fine */

struct vb_k_tuning {
    const char *backend[VB_K_PASSES]; /* the choice of a plan; NULL: the fastest, by timing */
    bool unused[VB_K_PASSES];         /* will not be run: the first layer's backward data, say */
    struct vb_k_cache *cache;         /* NULL: everything is timed */
};

/* A layer: for each pass a backend, prepared. */
struct vb_k_layer;

/* shape: finished. Threads are those of the calling thread's team, which timing uses. Results
 * depend on the choice but not on the number of threads. tuning: NULL is all 0. */
vb_status vb_k_layer_create(const struct vb_k_shape *shape, const struct vb_k_tuning *tuning,
                            struct vb_k_layer **layer_p);
void vb_k_layer_destroy(struct vb_k_layer *layer);

const struct vb_k_shape *vb_k_layer_shape(const struct vb_k_layer *layer);

/* The backend's name; NULL: the layer has no such pass, or it was said to be unused. */
const char *vb_k_layer_backend(const struct vb_k_layer *layer, enum vb_k_pass pass);

/* What args.scratch must have for any pass. Layers that run one after the other may share it. */
size_t vb_k_layer_scratch_bytes(const struct vb_k_layer *layer);

/* Allocates nothing, and creates nothing. A pass without a backend does nothing. */
void vb_k_layer_run(const struct vb_k_layer *layer, enum vb_k_pass pass,
                    const struct vb_k_args *args);

/* ---- timing ---------------------------------------------------------------------------------- */

#define VB_K_CANDIDATES_MAX 16

struct vb_k_candidate {
    const char *backend;
    double ms; /* of the fastest run; negative: not timed, as others were clearly faster */
};

/* Times every backend that can do a pass, on the shape as it is, for about seconds each. */
vb_status vb_k_time_all(const struct vb_k_shape *shape, enum vb_k_pass pass, double seconds,
                        struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX], int *n_p);

/* GFLOP/s of a BLAS product of 1024 x 1024 x 1024 on the threads of the calling thread's team: the
 * peak that layers are held against. Negative: no memory. */
double vb_k_gemm_peak(double seconds);

/* ---- plans ----------------------------------------------------------------------------------- */

#define VB_K_CHOICES_MAX 256
#define VB_K_NAME 32

struct vb_k_choice {
    char layer[VB_K_NAME]; /* a name without blanks */
    enum vb_k_pass pass;
    const char *backend; /* of the program's own table */
};

/* The choices of a model. As text a line each, "conv1 forward blas"; equal plans are equal texts.
 */
struct vb_k_plan {
    int n;
    struct vb_k_choice v[VB_K_CHOICES_MAX];
};

/* Adds what a layer has. VB_ERR_USAGE: a bad name, or too many. */
vb_status vb_k_plan_add(struct vb_k_plan *plan, const char *name, const struct vb_k_layer *layer);

/* The backend of a pass, NULL: the plan does not say. */
const char *vb_k_plan_find(const struct vb_k_plan *plan, const char *name, enum vb_k_pass pass);

/* To be freed; NULL: no memory. */
char *vb_k_plan_text(const struct vb_k_plan *plan);

/* Empty lines, and those that begin with #, are passed over. On VB_ERR_INPUT why has one line that
 * names the line of the text; it is not logged. */
vb_status vb_k_plan_parse(const char *text, struct vb_k_plan *plan_p, char why[VB_OPTS_WHY]);

/* ---- losses ---------------------------------------------------------------------------------- */

/* As vb_k_softmax_xent_ref(), and about as exact, but faster; labels may be larger. Infinite logits
 * give NaN, but -infinity beside finite ones is a class of no chance. */
double vb_k_softmax_xent(float *logits, const int32_t *y, int n, int classes);

/* Logistic loss: turns n logits into its gradient with respect to them, probability less label, and
 * returns the loss, summed. y: 0 or not. Logits of any size do no harm. */
double vb_k_logistic(float *logits, const uint8_t *y, int n);
double vb_k_logistic_ref(float *logits, const uint8_t *y, int n);

/* ---- reference kernels ----------------------------------------------------------------------- */

/* What the fast kernels must compute, and are tested against. All memory is the caller's, row-major
 * and does not overlap. */

/* logits (n, classes) = x (n, features) * w (features, classes) + b (classes) */
void vb_k_linear_forward_ref(const float *x, const float *w, const float *b, int n, int features,
                             int classes, float *logits);

/* dw (features, classes) and db (classes): the gradients, summed over the n samples. */
void vb_k_linear_backward_ref(const float *x, const float *dlogits, int n, int features,
                              int classes, float *dw, float *db);

/* Turns logits (n, classes) into the gradient of the loss with respect to them, and returns the
 * loss summed over the samples. Logits of any size do no harm. y: (n), each below classes. */
double vb_k_softmax_xent_ref(float *logits, const uint8_t *y, int n, int classes);

/* The class with the largest logit, the first of several. */
int vb_k_argmax_ref(const float *logits, int classes);

void vb_k_add_ref(float *sum, const float *v, size_t n); /* sum += v */

/* params -= rate * grads */
void vb_k_sgd_ref(float *params, const float *grads, size_t n, float rate);

#endif
