/* SPDX-License-Identifier: MIT
 *
 * kernels/: how numbers are computed: layers, each pass of which is computed by the fastest of
 * several backends, and the plain reference kernels that say what is to be computed.
 *
 * Probes and references may be called from any thread; a layer is used by one thread at a time,
 * which may open a parallel region (see vb_placement_pin_team() of topo/).
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

/* OpenBLAS starts a thread for every cpu when it is loaded. Nobody here uses them, and each yields
 * in a loop for a while before it sleeps, on the cpus of the ranks: those that this process starts
 * from now on are to have none. Before there are threads of one's own. */
void vb_k_blas_no_threads_in_children(void);

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
    VB_K_CONV_POOL,
};

enum vb_k_pass { VB_K_FORWARD, VB_K_BACKWARD_DATA, VB_K_BACKWARD_WEIGHTS };
#define VB_K_PASSES 3

/* What a layer computes. Between layers every tensor is plain row-major: activations (n, c, h, w),
 * weights of a convolution (oc, c, kh, kw) and of a linear layer (oc, c), biases (oc). A linear
 * layer has c * h * w inputs and oh = ow = 1. "conv-pool" is a convolution, ReLU, and max pooling
 * of 2 x 2 without overlap, as one: only the largest of four neighbours has a gradient, so three
 * quarters of the work of backward need not be done. */
struct vb_k_shape {
    enum vb_k_kind kind;
    int n;          /* samples of a batch; a shorter batch is filled up with zeros */
    int c, h, w;    /* of the input */
    int oc, oh, ow; /* of the output; vb_k_shape_finish() fills in what follows from the rest */
    int kh, kw;     /* convolution, pooling; lrn: kh channels take part; conv-pool: of the former */
    int stride, pad; /* the same in both directions; the padding of average pooling counts */
    bool relu;       /* convolution, linear: ReLU follows and belongs to the layer; conv-pool: no */
    float rate;      /* dropout: the share that is dropped */
    float alpha, beta, bias; /* lrn: y = x * (bias + alpha / kh * sum of squares) ^ -beta */
};

/* Checks the shape and fills in the output. On VB_ERR_USAGE why has one line. */
vb_status vb_k_shape_finish(struct vb_k_shape *shape, char why[VB_OPTS_WHY]);

/* Multiplications and additions of a pass as a direct convolution does them, for GFLOP/s; 0 for
 * kinds that are bound by memory. */
double vb_k_shape_flops(const struct vb_k_shape *shape, enum vb_k_pass pass);

/* Whether layers of a kind have this pass: only convolutions and linear layers have weights. */
bool vb_k_has_pass(enum vb_k_kind kind, enum vb_k_pass pass);

const char *vb_k_kind_str(enum vb_k_kind kind); /* "conv", "linear", "max-pool" ... */
const char *vb_k_pass_str(enum vb_k_pass pass); /* "forward", "backward-data", "backward-weights" */

/* The convolution in a conv-pool layer, with its ReLU; of any other kind the shape itself. */
struct vb_k_shape vb_k_shape_conv(const struct vb_k_shape *shape);

/* Floats in the input, the output, and the weights of a layer; 0 weights where it has none. */
size_t vb_k_shape_inputs(const struct vb_k_shape *shape);
size_t vb_k_shape_outputs(const struct vb_k_shape *shape);
size_t vb_k_shape_weights(const struct vb_k_shape *shape);

/* The tensors of a pass; those that it does not use are NULL. Inputs and outputs do not overlap.
 *   forward           x w b -> y   (with ReLU, where the shape has it)
 *   backward data     w dy -> dx   (pooling and the like: x y too)
 *   backward weights  x dy -> dw db (summed over the batch, overwritten)
 * dy is the gradient before the ReLU: who calls has masked it already, with vb_k_relu_mask(). That
 * of conv-pool is the gradient of y; forward also writes, and backward reads, where.
 *
 * A NaN stays one: in sums, in ReLU, and in max pooling, where the first NaN of a window wins.
 * Winograd kernels spread a NaN or an infinity over the tile that it is in, and conv-pool one that
 * goes back to the data over what its window sees. */
struct vb_k_args {
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    uint8_t *where; /* conv-pool: (n, oc, oh, ow): which of its four y is, VB_K_NOWHERE: y <= 0 */
    uint64_t seed, step; /* dropout: which elements are dropped follows from these two */
    void *scratch;       /* as much as was asked for, aligned to 64 bytes, kept by nobody */
};

/* 0 to 3 are the places of a window row by row: the first of the largest. A NaN has no gradient. */
#define VB_K_NOWHERE 4

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

/* ---- right results --------------------------------------------------------------------------- */

#define VB_K_CANDIDATES_MAX 16

struct vb_k_checked {
    const char *backend;
    double off; /* largest difference from the reference, over the root mean square of results */
};

/* Holds every backend that can do a pass against the reference, on the shape with up to 4 samples.
 * Rounding leaves results off by about 1e-4 at most; judging is left to the caller. */
vb_status vb_k_check_all(const struct vb_k_shape *shape, enum vb_k_pass pass,
                         struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p);

/* ---- timing ---------------------------------------------------------------------------------- */

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
double vb_k_softmax_xent_ref(float *logits, const uint16_t *y, int n, int classes);

/* The class with the largest logit, the first of several. */
int vb_k_argmax_ref(const float *logits, int classes);

void vb_k_add_ref(float *sum, const float *v, size_t n); /* sum += v */

/* params -= rate * grads */
void vb_k_sgd_ref(float *params, const float *grads, size_t n, float rate);

/* ---- sparse rows ----------------------------------------------------------------------------- */

/* Rows of a batch: some of those of a sparse matrix, which is the caller's. An index may come
 * several times in a row, in any order: its values add up. A row may be empty. */
struct vb_k_csr {
    size_t n;               /* rows of the batch */
    const uint32_t *rows;   /* which ones; NULL: 0 to n - 1 */
    size_t ahead;           /* so many more follow in rows: of the next batch, prefetched only */
    const uint64_t *offset; /* (n_rows + 1): where a row begins in index and value */
    const uint32_t *index;  /* (nnz) */
    const float *value;     /* (nnz); NULL: all are 1 */
    const struct vb_k_csr_parts *parts; /* (n_rows) of vb_k_csr_group(); NULL: see there */
    size_t n_rows, nnz;                 /* of the matrix */
};

/* VB_ERR_INPUT, naming row and index, if the batch leaves the matrix or names a feature that is not
 * below features. The kernels below do not look: check what comes from outside, once. */
vb_status vb_k_csr_check(const struct vb_k_csr *m, uint64_t features);

/* logits (n) = rows * w + bias. NaN and infinite weights and values do as they do in a sum. */
void vb_k_csr_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* w += scale * d * rows: each entry (row i, index k, value x) adds (scale * d[i]) * x to w[k], in
 * the order of the rows. With scale = -rate / n and the gradient of the logits: a step of SGD. */
void vb_k_csr_add(const struct vb_k_csr *m, const float *d, float scale, float *w);

/* Sorts the entries of each row, for good, by the part of the features that they belong to, so that
 * threads can share out the features without looking for them, forward and back; without,
 * vb_k_csr_add() is one thread's. Which part a feature belongs to never changes, so bits do not
 * depend on the number of threads; the order of a row's sum does depend on whether it was sorted.
 * parts: (n_rows), best aligned to cache lines, of which each takes one. */
#define VB_K_CSR_PARTS 14

struct vb_k_csr_parts {
    uint64_t first;                /* entry of the row */
    uint32_t ends[VB_K_CSR_PARTS]; /* of each part, from there */
};

void vb_k_csr_group(const uint64_t *offset, size_t n_rows, uint32_t *index, float *value,
                    struct vb_k_csr_parts *parts);

/* Logistic loss: turns n logits into its gradient with respect to them, and returns the loss,
 * summed. y: 0 or not. Logits of any size do no harm. */
double vb_k_logistic(float *logits, const uint8_t *y, size_t n);
double vb_k_logistic_ref(float *logits, const uint8_t *y, size_t n); /* the same, in double */

/* ---- samples that are mostly zero -------------------------------------------------------------
 */

#define VB_K_PIXELS_FEATURES 65536

/* The nonzero features of n samples, listed once: 3 bytes each where they have up to 256 values, 6
 * otherwise; where vectors are long, and values the multiples of one, 16 neighbours a byte each.
 * Read by any number of threads. */
struct vb_k_pixels;

/* Writes n samples, from first on, to x (n, features). Called in order, twice for each. */
typedef void (*vb_k_samples_fn)(void *arg, size_t first, size_t n, float *x);

struct vb_k_samples {
    vb_k_samples_fn read;
    void *arg;
    size_t n;
    int features;
    int width; /* features that are a row of an image; 0: they are none */
};

vb_status vb_k_pixels_create(const struct vb_k_samples *samples, struct vb_k_pixels **pixels_p);
void vb_k_pixels_destroy(struct vb_k_pixels *pixels);
size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels);

/* The samples order[0] to order[n - 1], each below the number of samples, and those of the next
 * batch: the way back fetches them from memory while it computes. */
struct vb_k_picked {
    const uint32_t *order;
    size_t n;
    const uint32_t *soon;
    size_t n_soon; /* may be 0 */
};

/* As vb_k_linear_forward_ref() on these samples. A feature that is 0 takes no part, whatever its
 * weight is. */
void vb_k_pixels_forward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                         const float *w, const float *b, int classes, float *logits);

/* The gradients (features, classes) and (classes), summed over the samples in order. */
void vb_k_pixels_backward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                          const float *d, int classes, float *dw, float *db);

/* Both in parts, from the last features to the first, for who has weights, or wants gradients, one
 * part after the other: the bits are the same. The part before it was of high on, or none; after
 * the one whose low is 0 all is done, and the logits are there. Biases go with the first part.
 * Whoever has begun must not compute anything else with done and sums before that. */
#define VB_K_PIXELS_SUMS 40 /* four of each of ten classes */

struct vb_k_pixels_part {
    int low, high;  /* features: low to high - 1 */
    uint32_t *done; /* (n) */
    float *sums;    /* (n, VB_K_PIXELS_SUMS): forward */
};

bool vb_k_pixels_has_parts(const struct vb_k_pixels *pixels, int classes);
void vb_k_pixels_forward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                              const struct vb_k_pixels_part *part, const float *w, const float *b,
                              float *logits);
void vb_k_pixels_backward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                               const struct vb_k_pixels_part *part, const float *d, float *dw,
                               float *db);

/* Adds scale times the gradients: with scale = -rate / n and the weights for dw, a step of SGD. */
void vb_k_pixels_add(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                     const float *d, float scale, int classes, float *dw, float *db);

/* As vb_k_softmax_xent_ref(), vectors at a time; its sums may differ in the last digits. correct_p:
 * how many rows have the first of their largest logits at their label. A row with a NaN has none.
 */
double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes, int *correct_p);

/* ---- update rules ---------------------------------------------------------------------------- */

enum vb_k_rule_kind { VB_K_SGD, VB_K_MOMENTUM, VB_K_NESTEROV, VB_K_ADAGRAD, VB_K_FTRL };

/* What each does is written in kernels/update_ref.c. Fields that a rule does not use are 0. */
struct vb_k_rule {
    enum vb_k_rule_kind kind;
    float decay; /* L2 weight decay, added to the gradient */
    float momentum;
    float eps;          /* adagrad */
    float beta, l1, l2; /* ftrl */
};

int vb_k_rule_states(enum vb_k_rule_kind kind); /* floats of state a parameter has: 0, 1 or 2 */

/* A step. params_out and state_out are other copies, or params and state themselves. */
struct vb_k_update {
    size_t n;
    const float *params; /* (n) */
    const float *state;  /* (states, n); 0 at first */
    const float *grads;  /* (n) */
    float scale;         /* of the gradients: 1 / samples, times vb_k_clip() */
    float rate;
    float *params_out, *state_out;
};

/* Same bits for any number of threads. */
void vb_k_update(const struct vb_k_rule *rule, const struct vb_k_update *update);
void vb_k_update_ref(const struct vb_k_rule *rule, const struct vb_k_update *update);

double vb_k_norm(const float *v, size_t n); /* Euclidean; same bits for any number of threads */

/* The same of a vector that comes in pieces, in any order, with the same bits: begin, add each
 * piece once, end. v is the whole vector; what was added does not change any more. */
#define VB_K_NORM_PARTS 16384

struct vb_k_norm {
    size_t n, len;                     /* of the vector, and of a part */
    size_t parts;                      /* that it has; the last may be shorter */
    uint32_t missing[VB_K_NORM_PARTS]; /* elements that have not come */
    double squares[VB_K_NORM_PARTS];   /* of parts that are complete */
};

void vb_k_norm_begin(struct vb_k_norm *norm, size_t n);
void vb_k_norm_add(struct vb_k_norm *norm, const float *v, size_t first, size_t n);
double vb_k_norm_end(const struct vb_k_norm *norm);

/* A step that several ranks take together, each a share of the parameters: it adds up the gradients
 * of all ranks, in their order, and writes what comes of it to the copies of all. Pointers are to
 * whole vectors. The bits are those of sums, then vb_k_update(), then vb_k_norm(). */
struct vb_k_joint {
    int rank, n_ranks;
    const float *const *grads;   /* (n_ranks) */
    const float *params, *state; /* of this rank; state NULL: the rule has none; never two */
    float scale, rate;
    float *const *params_out, *const *state_out; /* (n_ranks) */
    double *const *squares; /* (n_ranks): the norm's parts go there; NULL: nobody asks */
    bool norm_only;         /* parameters stay as they are */
    uint64_t shared_ns;     /* grows by the time that gradients and copies of all ranks took */
};

#define VB_K_JOINT_MAX ((size_t)VB_K_NORM_PARTS * 16384) /* parameters */

/* From so many parameters on it pays. x86 writes past its caches here, which is for what they do
 * not hold; elsewhere half an update must take longer than meeting once more. */
#if defined(__x86_64__)
#define VB_K_JOINT_LEAST ((size_t)8 << 20)
#else
#define VB_K_JOINT_LEAST ((size_t)4 << 10)
#endif

/* The parts of the norm from first_part to end_part - 1. norm: after vb_k_norm_begin(). */
void vb_k_joint_update(const struct vb_k_rule *rule, struct vb_k_joint *joint,
                       const struct vb_k_norm *norm, size_t first_part, size_t end_part);

/* What a gradient is multiplied by so that its norm is at most max_norm; 0: no limit. A norm that
 * is NaN leaves it alone, an infinite one gives 0. */
float vb_k_clip(double norm, double max_norm);

/* ---- learning rates -------------------------------------------------------------------------- */

enum vb_k_rate_kind { VB_K_RATE_CONSTANT, VB_K_RATE_STEP, VB_K_RATE_COSINE };

struct vb_k_schedule {
    enum vb_k_rate_kind kind;
    double base;
    int64_t warmup; /* the first steps: base * 1 / warmup, 2 / warmup, ... 1 */
    int64_t period; /* step: every so many steps, times factor; cosine: the last step */
    double factor;  /* cosine: the part of base that is left at the end */
};

float vb_k_rate(const struct vb_k_schedule *schedule, int64_t step); /* step: from 0 */

/* ---- gradients of sparse rows -----------------------------------------------------------------
 */

/* Room for the gradients of batches, one at a time. Used by one thread at a time. */
struct vb_k_grad;
vb_status vb_k_grad_create(uint64_t features, size_t max_nnz, struct vb_k_grad **grad_p);
void vb_k_grad_destroy(struct vb_k_grad *grad);

/* From a checked batch and the gradient d (n) of its logits: keys in ascending order, each once,
 * and values added up in the order of the rows. The list is borrowed until the next call.
 * VB_ERR_USAGE: the batch has more than max_nnz entries. */
vb_status vb_k_grad_build(struct vb_k_grad *grad, const struct vb_k_csr *m, const float *d,
                          const uint32_t **keys_p, const float **values_p, size_t *n_p);

/* ---- weights of a sparse model ----------------------------------------------------------------
 */

/* Weights and the state of their rule, 0 at first, on huge pages. A step comes to the features it
 * does not name when they are next read or named; the result is that of a dense update. Used by one
 * thread at a time. VB_ERR_UNSUPPORTED: weight decay with adagrad or ftrl. */
struct vb_k_sparse;
vb_status vb_k_sparse_create(const struct vb_k_rule *rule, uint64_t features,
                             struct vb_k_sparse **sparse_p);
void vb_k_sparse_destroy(struct vb_k_sparse *sparse);

/* The same in memory of the caller's, as it is: features weights, and as many times
 * vb_k_sparse_words() words of state. NULL: its own. */
vb_status vb_k_sparse_create_at(const struct vb_k_rule *rule, uint64_t features, float *weights,
                                void *state, struct vb_k_sparse **sparse_p);
int vb_k_sparse_words(const struct vb_k_rule *rule);
bool vb_k_sparse_is_lazy(const struct vb_k_rule *rule); /* weights in memory may be old */

/* The weights in memory: with momentum or weight decay as of when each was last named. */
float *vb_k_sparse_weights(struct vb_k_sparse *sparse);

/* The weights as they are after the last step. Nothing is changed. */
void vb_k_sparse_read(const struct vb_k_sparse *sparse, uint64_t first, size_t n, float *w);
void vb_k_sparse_forward(const struct vb_k_sparse *sparse, const struct vb_k_csr *m, float bias,
                         float *logits);

/* Has the cores fetch the weights that a forward of m will read. */
void vb_k_sparse_fetch(const struct vb_k_sparse *sparse, const struct vb_k_csr *m);

/* What there was before an update of at most max_keys. */
struct vb_k_undo;
vb_status vb_k_undo_create(size_t max_keys, struct vb_k_undo **undo_p);
void vb_k_undo_destroy(struct vb_k_undo *undo);

/* A step: gradient scale * values at keys, in ascending order, each once; else VB_ERR_INPUT before
 * anything is written. undo: filled, or NULL. Bits do not depend on threads. */
vb_status vb_k_sparse_update(struct vb_k_sparse *sparse, const uint32_t *keys, const float *values,
                             size_t n, float scale, float rate, struct vb_k_undo *undo);

/* Takes back the last update, which had this undo; to be called once. */
void vb_k_sparse_undo(struct vb_k_sparse *sparse, const struct vb_k_undo *undo);

/* The memory of a sparse model, to be kept and put back as it is. Settled first: see below. */
#define VB_K_SPARSE_PARTS 2

struct vb_k_sparse_part {
    const char *name;
    bool whole; /* 32-bit words, not floats */
    size_t n;
    void *data;
};

int vb_k_sparse_parts(struct vb_k_sparse *sparse, struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS]);

/* Brings all features up to date. Goes over all memory. Done by itself after 65,536 changes of the
 * rate. Bits of later steps depend on when it was done: all ranks do it at the same step. */
void vb_k_sparse_settle(struct vb_k_sparse *sparse);

/* ---- weights that others change at the same time ----------------------------------------------
 */

/* Several threads or processes read and update the same weights and state without a lock: a number
 * is never torn, but of two updates at once one may be lost, which SGD can bear (Hogwild). */

void vb_k_shared_read(const float *from, size_t n, float *to);  /* from is shared */
void vb_k_shared_write(const float *from, size_t n, float *to); /* to is shared */

/* values (n) = w at keys; ahead of them the cores fetch. Keys are not checked. */
void vb_k_shared_gather(const float *w, const uint32_t *keys, size_t n, float *values);

/* params_out and state_out are params and state themselves. */
void vb_k_shared_update(const struct vb_k_rule *rule, const struct vb_k_update *update);

/* Gradient scale * values at keys, each once. Rules that are not lazy; state as in
 * vb_k_sparse_create_at(). Keys are not checked. */
void vb_k_shared_update_keys(const struct vb_k_rule *rule, float *w, float *state,
                             const uint32_t *keys, const float *values, size_t n, float scale,
                             float rate);

/* As vb_k_csr_forward() and vb_k_csr_add(), on one thread. The batch was checked. */
void vb_k_shared_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* What one worker has of weights that others change too: those of features that nearly every batch
 * has, *hot* ones, are its own from one exchange to the next (hot.c). It learns from the first
 * batches which these are. For batches of up to so many entries. NULL is fine for the destroyer. */
struct vb_k_hot;

vb_status vb_k_hot_create(size_t entries, struct vb_k_hot **hot_p);
void vb_k_hot_destroy(struct vb_k_hot *hot);
int vb_k_hot_count(const struct vb_k_hot *hot);

/* A batch, which was checked, is shown first; then, of each of its rows, the weights are found,
 * which are on their way from memory from then on. forward is the row's product with them, and add
 * adds by times the row. */
void vb_k_hot_learn(struct vb_k_hot *hot, const struct vb_k_csr *m, const float *w);
void vb_k_hot_find(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float *w);
float vb_k_hot_forward(const struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row);
void vb_k_hot_add(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float by);

/* What was added to hot features goes to the weights of all, and what others have added comes. */
void vb_k_hot_exchange(struct vb_k_hot *hot, float *w);

#endif
