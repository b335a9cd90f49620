/* SPDX-License-Identifier: MIT
 *
 * kernels/ does the arithmetic: layers, sparse rows, lists of pixels, and update rules. Several
 * backends can compute a layer; the fastest one is chosen for each pass. Plain reference kernels
 * specify the results.
 *
 * Any thread may call probes and references. A layer is used by one thread at a time, which may
 * open a parallel region (see vb_placement_pin_team() of topo/).
 */
#ifndef VB_KERNELS_H
#define VB_KERNELS_H

#include "base/base.h"

/* What oneDNN would use on this CPU. */
struct vb_k_onednn {
    char version[32];    /* version of the library that is loaded: "2.6.3" */
    char isa[32];        /* instruction set that it uses: "avx512_core", "asimd" */
    char conv[64];       /* its implementation of a convolution; "": it has none */
    char inner[64];      /* its implementation of an inner product; "": it has none */
    bool conv_reference; /* the implementation is the slow reference, because oneDNN has no
                          * kernel for this CPU */
    bool inner_reference;
};

/* Asks oneDNN to prepare, but not to run, the third convolution and the first inner product of
 * AlexNet. Returns an error if oneDNN does not work at all; version and isa are filled in even
 * then. */
vb_status vb_k_onednn_probe(struct vb_k_onednn *probe_p);

enum vb_k_threading { VB_K_SEQUENTIAL, VB_K_PTHREADS, VB_K_OPENMP };

/* The BLAS library. Strings that are too long are cut. */
struct vb_k_blas {
    char version[32]; /* "0.3.21" */
    char config[160]; /* its build options, as the library prints them */
    char core[32];    /* the CPU that its kernels are for: "neoversen1" */
    enum vb_k_threading threading;
};

void vb_k_blas_probe(struct vb_k_blas *probe_p);

/* Makes sure that OpenBLAS starts no threads in processes that this one starts from now on. By
 * default OpenBLAS starts a thread for every cpu when it is loaded. Nothing uses these threads, but
 * each of them yields in a loop on the cpus of the ranks before it sleeps. Must be called before
 * this process starts threads of its own. */
void vb_k_blas_no_threads_in_children(void);

const char *vb_k_threading_str(enum vb_k_threading threading);

/* Writes one sentence that says what dense kernels will use: oneDNN where it has kernels for this
 * CPU, and BLAS where oneDNN would fall back to its reference. */
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

/* What a layer computes. Between layers every tensor is plain row-major: activations are (n, c, h,
 * w), the weights of a convolution (oc, c, kh, kw), those of a linear layer (oc, c), biases (oc). A
 * linear layer has c * h * w inputs and oh = ow = 1. "conv-pool" is a convolution, ReLU, and max
 * pooling of 2 x 2 without overlap in one layer. Only the largest of four neighbours has a
 * gradient, so the backward passes save three quarters of the work. */
struct vb_k_shape {
    enum vb_k_kind kind;
    int n;           /* samples of a batch; a shorter batch is filled up with zeros */
    int c, h, w;     /* size of the input */
    int oc, oh, ow;  /* size of the output; vb_k_shape_finish() computes what follows from the
                      * other fields */
    int kh, kw;      /* kernel of a convolution or pooling; lrn: kh is the number of channels in a
                      * window; conv-pool: kernel of the convolution */
    int stride, pad; /* the same in both directions; average pooling includes the padding in the
                      * mean */
    bool relu;       /* convolution, linear: the layer ends with a ReLU; conv-pool: false */
    float rate;      /* dropout: the fraction of elements that are dropped */
    float alpha, beta, bias; /* lrn: y = x * (bias + alpha / kh * sum of squares) ^ -beta */
};

/* Checks the shape and fills in the size of the output. If it returns VB_ERR_USAGE, why holds the
 * reason in one line. */
vb_status vb_k_shape_finish(struct vb_k_shape *shape, char why[VB_OPTS_WHY]);

/* Number of multiplications and additions that a direct convolution needs for a pass; used for
 * GFLOP/s. Returns 0 for kinds of layers whose speed is limited by memory. */
double vb_k_shape_flops(const struct vb_k_shape *shape, enum vb_k_pass pass);

/* Returns whether layers of this kind have this pass. Only convolutions and linear layers have
 * weights. */
bool vb_k_has_pass(enum vb_k_kind kind, enum vb_k_pass pass);

const char *vb_k_kind_str(enum vb_k_kind kind); /* "conv", "linear", "max-pool" ... */
const char *vb_k_pass_str(enum vb_k_pass pass); /* "forward", "backward-data", "backward-weights" */

/* Returns the shape of the convolution in a conv-pool layer, with its ReLU. Any other shape is
 * returned unchanged. */
struct vb_k_shape vb_k_shape_conv(const struct vb_k_shape *shape);

/* The number of floats in the input, the output, and the weights of a layer. A layer without
 * weights has 0. */
size_t vb_k_shape_inputs(const struct vb_k_shape *shape);
size_t vb_k_shape_outputs(const struct vb_k_shape *shape);
size_t vb_k_shape_weights(const struct vb_k_shape *shape);

/* The tensors of a pass; unused ones are NULL. Inputs and outputs must not overlap.
 *   forward           x w b -> y   (with ReLU if the shape has it)
 *   backward data     w dy -> dx   (pooling, ReLU, lrn and dropout read x and y too)
 *   backward weights  x dy -> dw db (summed over the batch, overwritten)
 * dy is the gradient before the ReLU: the caller has already applied vb_k_relu_mask(). For
 * conv-pool, dy is the gradient of y; its forward pass also writes where, and its backward passes
 * read it.
 *
 * A NaN stays a NaN in sums, in ReLU, and in max pooling, where the first NaN of a window wins.
 * Winograd kernels spread a NaN or an infinity over the whole tile that contains it. The backward
 * data pass of conv-pool spreads one over all inputs that its window sees. */
struct vb_k_args {
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    uint8_t *where; /* conv-pool: (n, oc, oh, ow): which of the four inputs y is; VB_K_NOWHERE: y
                     * <= 0 */
    uint64_t seed, step; /* dropout: these two alone determine which elements are dropped */
    void *scratch;       /* as many bytes as the layer asked for, aligned to 64 bytes; nothing in
                          * it is kept between passes */
};

/* The values 0 to 3 are the places of a window, row by row; of equal inputs the first one counts. A
 * NaN has no gradient. */
#define VB_K_NOWHERE 4

/* dy = y > 0 ? dy : 0: the gradient through a ReLU whose output is y. */
void vb_k_relu_mask(const float *y, float *dy, size_t n);

/* ---- who computes a layer -------------------------------------------------------------------- */

/* A backend has a name: "plain", "blas", "onednn" ... A choice is the backend of one pass. */

/* Timings of earlier runs, in one file for each combination of CPU, libraries and number of
 * threads. Used by one thread at a time. */
struct vb_k_cache;

/* folder: NULL means the folder of vb_cache_dir(). If the file is missing, broken, or written on
 * another machine, the cache is empty. A broken file causes a warning. */
vb_status vb_k_cache_open(const char *folder, struct vb_k_cache **cache_p);
/* Writes new entries to the file. cache may be NULL. */
void vb_k_cache_close(struct vb_k_cache *cache);

struct vb_k_tuning {
    const char *backend[VB_K_PASSES]; /* the backend that the plan names; NULL: the fastest one,
                                       * found by timing */
    bool unused[VB_K_PASSES];         /* the pass will never run, for example backward data of
                                       * the first layer */
    struct vb_k_cache *cache;         /* NULL: every choice is timed */
};

/* A layer, with a prepared backend for each pass. */
struct vb_k_layer;

/* shape must be finished (vb_k_shape_finish()). Timing uses the threads of the calling thread's
 * OpenMP team. Results depend on the chosen backends, but not on the number of threads. tuning may
 * be NULL, which means all fields 0. */
vb_status vb_k_layer_create(const struct vb_k_shape *shape, const struct vb_k_tuning *tuning,
                            struct vb_k_layer **layer_p);
void vb_k_layer_destroy(struct vb_k_layer *layer);

const struct vb_k_shape *vb_k_layer_shape(const struct vb_k_layer *layer);

/* Returns the backend's name; NULL if the layer has no such pass or the pass was declared
 * unused. */
const char *vb_k_layer_backend(const struct vb_k_layer *layer, enum vb_k_pass pass);

/* The size that args.scratch must have, for any pass. Layers that run one after the other may share
 * the memory. */
size_t vb_k_layer_scratch_bytes(const struct vb_k_layer *layer);

/* Runs a pass without allocating anything. Does nothing if the pass has no backend. */
void vb_k_layer_run(const struct vb_k_layer *layer, enum vb_k_pass pass,
                    const struct vb_k_args *args);

/* ---- right results --------------------------------------------------------------------------- */

#define VB_K_CANDIDATES_MAX 16

struct vb_k_checked {
    const char *backend;
    double off; /* largest difference from the reference, divided by the root mean square of the
                 * reference's results */
};

/* Compares every backend that can do a pass with the reference, on the shape with at most 4
 * samples. Rounding causes differences of at most about 1e-4; the caller decides what is
 * acceptable. */
vb_status vb_k_check_all(const struct vb_k_shape *shape, enum vb_k_pass pass,
                         struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p);

/* ---- timing ---------------------------------------------------------------------------------- */

struct vb_k_candidate {
    const char *backend;
    double ms; /* time of the fastest run; negative: not timed, because others were clearly
                * faster */
};

/* Times every backend that can do a pass, on the given shape, for about `seconds` each. */
vb_status vb_k_time_all(const struct vb_k_shape *shape, enum vb_k_pass pass, double seconds,
                        struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX], int *n_p);

/* Measures the GFLOP/s of a BLAS product of 1024 x 1024 x 1024 on the threads of the calling
 * thread's team. Layers are compared with this peak. Returns a negative number if memory is
 * short. */
double vb_k_gemm_peak(double seconds);

/* ---- plans ----------------------------------------------------------------------------------- */

#define VB_K_CHOICES_MAX 256
#define VB_K_NAME 32

struct vb_k_choice {
    char layer[VB_K_NAME]; /* a name without spaces */
    enum vb_k_pass pass;
    const char *backend; /* points into the program's own table of names */
};

/* The choices of a model. The text form has one line for each choice: "conv1 forward blas". Equal
 * plans have equal texts. */
struct vb_k_plan {
    int n;
    struct vb_k_choice v[VB_K_CHOICES_MAX];
};

/* Adds the choices of a layer. Returns VB_ERR_USAGE if the name is not valid or the plan is
 * full. */
vb_status vb_k_plan_add(struct vb_k_plan *plan, const char *name, const struct vb_k_layer *layer);

/* Returns the backend of a pass, or NULL if the plan does not name one. */
const char *vb_k_plan_find(const struct vb_k_plan *plan, const char *name, enum vb_k_pass pass);

/* Returns text that the caller must free(), or NULL if memory is short. */
char *vb_k_plan_text(const struct vb_k_plan *plan);

/* Empty lines and lines that begin with # are ignored. If it returns VB_ERR_INPUT, why holds one
 * line that names the line of the text. The error is not logged. */
vb_status vb_k_plan_parse(const char *text, struct vb_k_plan *plan_p, char why[VB_OPTS_WHY]);

/* ---- reference kernels ----------------------------------------------------------------------- */

/* These specify what the fast kernels must compute; the tests compare both. All memory belongs to
 * the caller, is row-major, and must not overlap. */

/* logits (n, classes) = x (n, features) * w (features, classes) + b (classes) */
void vb_k_linear_forward_ref(const float *x, const float *w, const float *b, int n, int features,
                             int classes, float *logits);

/* dw (features, classes) and db (classes) are the gradients, summed over the n samples. */
void vb_k_linear_backward_ref(const float *x, const float *dlogits, int n, int features,
                              int classes, float *dw, float *db);

/* Replaces the logits (n, classes) by the gradient of the loss with respect to them, and returns
 * the loss, summed over the samples. Large logits do not overflow. y (n): every label is below
 * classes. */
double vb_k_softmax_xent_ref(float *logits, const uint16_t *y, int n, int classes);

/* Returns the class with the largest logit; the first one if several are equal. */
int vb_k_argmax_ref(const float *logits, int classes);

void vb_k_add_ref(float *sum, const float *v, size_t n); /* sum += v */

/* params -= rate * grads */
void vb_k_sgd_ref(float *params, const float *grads, size_t n, float rate);

/* ---- sparse rows ----------------------------------------------------------------------------- */

/* The rows of a batch, taken from a sparse matrix that the caller owns. An index may occur several
 * times in a row, in any order: its values are added. A row may be empty. */
struct vb_k_csr {
    size_t n;               /* number of rows in the batch */
    const uint32_t *rows;   /* the numbers of the rows; NULL: 0 to n - 1 */
    size_t ahead;           /* number of rows of the next batch, which follow in rows; they are
                             * only prefetched */
    const uint64_t *offset; /* (n_rows + 1): where each row begins in index and value */
    const uint32_t *index;  /* (nnz) */
    const float *value;     /* (nnz); NULL: all values are 1 */
    const struct vb_k_csr_parts *parts; /* (n_rows), from vb_k_csr_group(); NULL: the rows were
                                         * not grouped */
    size_t n_rows, nnz;                 /* size of the whole matrix */
};

/* Returns VB_ERR_INPUT, with a message that names row and index, if the batch refers to rows
 * outside the matrix or to a feature that is not below features. The kernels below do not check.
 * Data from outside must therefore be checked once. */
vb_status vb_k_csr_check(const struct vb_k_csr *m, uint64_t features);

/* logits (n) = rows * w + bias. NaN and infinity in weights and values propagate as in any sum. */
void vb_k_csr_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* w += scale * d * rows: each entry (row i, index k, value x) adds (scale * d[i]) * x to w[k], in
 * the order of the rows. With scale = -rate / n and the gradient of the logits: a step of SGD. */
void vb_k_csr_add(const struct vb_k_csr *m, const float *d, float scale, float *w);

/* Sorts the entries of each row, in place, by the part of the features that they belong to. Threads
 * can then divide the features among themselves, forward and backward, without searching. On rows
 * that are not grouped, vb_k_csr_add() uses one thread. The part of a feature never changes, so
 * bits do not depend on the number of threads; but the order of a row's sum depends on whether it
 * was grouped. parts: (n_rows), preferably aligned to cache lines, because each entry fills one
 * line. */
#define VB_K_CSR_PARTS 14

struct vb_k_csr_parts {
    uint64_t first;                /* first entry of the row */
    uint32_t ends[VB_K_CSR_PARTS]; /* end of each part, counted from first */
};

void vb_k_csr_group(const uint64_t *offset, size_t n_rows, uint32_t *index, float *value,
                    struct vb_k_csr_parts *parts);

/* Logistic loss: replaces n logits by the gradient of the loss with respect to them, and returns
 * the loss, summed over the samples. A label y is 0 or not 0. Large logits do not overflow. */
double vb_k_logistic(float *logits, const uint8_t *y, size_t n);
/* The same in double precision. */
double vb_k_logistic_ref(float *logits, const uint8_t *y, size_t n);

/* ---- samples that are mostly zero -------------------------------------------------------------
 */

#define VB_K_PIXELS_FEATURES 65536

/* The nonzero features of n samples, stored once. An entry takes 3 bytes if the samples have at
 * most 256 different values, otherwise 6. On CPUs with long vectors, if all values are multiples of
 * one number, 16 neighbours are stored together, one byte each. Any number of threads may read it
 * at the same time. */
struct vb_k_pixels;

/* Writes n samples, beginning with number first, to x (n, features). It is called in order, and
 * twice for each sample. */
typedef void (*vb_k_samples_fn)(void *arg, size_t first, size_t n, float *x);

struct vb_k_samples {
    vb_k_samples_fn read;
    void *arg;
    size_t n;
    int features;
    int width; /* features in one row of an image; 0: the samples are not images */
};

vb_status vb_k_pixels_create(const struct vb_k_samples *samples, struct vb_k_pixels **pixels_p);
void vb_k_pixels_destroy(struct vb_k_pixels *pixels);
size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels); /* for tests */

/* The samples order[0] to order[n - 1], each below the number of samples, and the samples of the
 * next batch in soon. The backward pass prefetches the latter while it computes. */
struct vb_k_picked {
    const uint32_t *order;
    size_t n;
    const uint32_t *soon;
    size_t n_soon; /* may be 0 */
};

/* Computes the same as vb_k_linear_forward_ref() on these samples. A feature that is 0 contributes
 * nothing, whatever its weight is. */
void vb_k_pixels_forward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                         const float *w, const float *b, int classes, float *logits);

/* Computes the gradients (features, classes) and (classes), summed over the samples in order. */
void vb_k_pixels_backward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                          const float *d, int classes, float *dw, float *db);

/* The same two passes in parts, from the last features to the first, for a caller that gets
 * weights, or needs gradients, one part at a time. The bits are the same. The high of a part is the
 * low of the part before it; the first part ends with the last feature. After the part whose low is
 * 0, all gradients and logits are complete. The first part also handles the biases. Until the last
 * part is done, the caller must not use `done` and `sums` for anything else. */
#define VB_K_PIXELS_SUMS 40 /* four sums for each of ten classes */

struct vb_k_pixels_part {
    int low, high;  /* features: low to high - 1 */
    uint32_t *done; /* (n) */
    float *sums;    /* (n, VB_K_PIXELS_SUMS); used by forward only */
};

bool vb_k_pixels_has_parts(const struct vb_k_pixels *pixels, int classes);
void vb_k_pixels_forward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                              const struct vb_k_pixels_part *part, const float *w, const float *b,
                              float *logits);
void vb_k_pixels_backward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                               const struct vb_k_pixels_part *part, const float *d, float *dw,
                               float *db);

/* Adds scale times the gradients to dw and db. With scale = -rate / n, and the weights as dw, this
 * is a step of SGD. */
void vb_k_pixels_add(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                     const float *d, float scale, int classes, float *dw, float *db);

/* Computes the same as vb_k_softmax_xent_ref(), with vectors; sums may differ in the last digits.
 * *correct_p counts the rows whose first largest logit is that of their label. A row with a NaN is
 * never counted. */
double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes, int *correct_p);

/* ---- update rules ---------------------------------------------------------------------------- */

enum vb_k_rule_kind { VB_K_SGD, VB_K_MOMENTUM, VB_K_NESTEROV, VB_K_ADAGRAD, VB_K_FTRL };

/* kernels/update_ref.c specifies what each rule does. Fields that a rule does not use are 0. */
struct vb_k_rule {
    enum vb_k_rule_kind kind;
    float decay; /* L2 weight decay, added to the gradient */
    float momentum;
    float eps;          /* adagrad */
    float beta, l1, l2; /* ftrl */
};

int vb_k_rule_states(enum vb_k_rule_kind kind); /* floats of state for each parameter: 0, 1 or 2 */

/* One step. params_out and state_out are either separate copies, or the same memory as params and
 * state. */
struct vb_k_update {
    size_t n;
    const float *params; /* (n) */
    const float *state;  /* (states, n); 0 before the first step */
    const float *grads;  /* (n) */
    float scale;         /* factor of the gradients: 1 / samples, times vb_k_clip() */
    float rate;
    float *params_out, *state_out;
};

/* The bits are the same for any number of threads. */
void vb_k_update(const struct vb_k_rule *rule, const struct vb_k_update *update);
void vb_k_update_ref(const struct vb_k_rule *rule, const struct vb_k_update *update);

double vb_k_norm(const float *v, size_t n); /* Euclidean norm; the bits are the same for any
                                             * number of threads */

/* The norm of a vector that becomes available in pieces, in any order, with the same bits as
 * vb_k_norm(): call begin, then add once for each piece, then end. v is the whole vector. A piece
 * must not change after it was added. */
#define VB_K_NORM_PARTS 16384

struct vb_k_norm {
    size_t n, len;                     /* length of the vector, and of a part */
    size_t parts;                      /* number of parts; the last one may be shorter */
    uint32_t missing[VB_K_NORM_PARTS]; /* elements of each part that were not added yet */
    double squares[VB_K_NORM_PARTS];   /* sum of squares of each complete part */
};

void vb_k_norm_begin(struct vb_k_norm *norm, size_t n);
void vb_k_norm_add(struct vb_k_norm *norm, const float *v, size_t first, size_t n);
double vb_k_norm_end(const struct vb_k_norm *norm);

/* A step that several ranks take together; each rank updates its share of the parameters. The rank
 * adds the gradients of all ranks, in rank order, and writes the result to the copies of all ranks.
 * All pointers are to whole vectors. The bits are those of the sum, then vb_k_update(), then
 * vb_k_norm(). */
struct vb_k_joint {
    int rank, n_ranks;
    const float *const *grads;   /* (n_ranks) */
    const float *params, *state; /* of this rank; state is NULL if the rule has none; rules with
                                  * two states are not supported */
    float scale, rate;
    float *const *params_out, *const *state_out; /* (n_ranks) */
    double *const *squares; /* (n_ranks): where the parts of the norm are written; NULL: the norm
                             * is not needed */
    bool norm_only;         /* compute the norm, leave the parameters unchanged */
    uint64_t shared_ns;     /* increased by the time spent on the gradients and copies of all
                             * ranks */
};

#define VB_K_JOINT_MAX ((size_t)VB_K_NORM_PARTS * 16384) /* largest number of parameters */

/* The smallest number of parameters for which a joint update is faster. On x86 it writes past the
 * caches, which helps only if the model does not fit into them. Elsewhere, half an update must take
 * longer than one more barrier. */
#if defined(__x86_64__)
#define VB_K_JOINT_LEAST ((size_t)8 << 20)
#else
#define VB_K_JOINT_LEAST ((size_t)4 << 10)
#endif

/* Updates the parameters in the parts of the norm from first_part to end_part - 1. norm must come
 * from vb_k_norm_begin(). */
void vb_k_joint_update(const struct vb_k_rule *rule, struct vb_k_joint *joint,
                       const struct vb_k_norm *norm, size_t first_part, size_t end_part);

/* Returns the factor that limits the norm of a gradient to max_norm; max_norm 0: no limit. Returns
 * 1 if the norm is NaN, and 0 if it is infinite. */
float vb_k_clip(double norm, double max_norm);

/* ---- learning rates -------------------------------------------------------------------------- */

enum vb_k_rate_kind { VB_K_RATE_CONSTANT, VB_K_RATE_STEP, VB_K_RATE_COSINE };

struct vb_k_schedule {
    enum vb_k_rate_kind kind;
    double base;
    int64_t warmup; /* number of first steps, with the rates base * 1 / warmup, 2 / warmup, ... 1 */
    int64_t period; /* step: the rate is multiplied by factor after every period steps; cosine:
                     * the last step */
    double factor;  /* cosine: the fraction of base that is left at the end */
};

float vb_k_rate(const struct vb_k_schedule *schedule, int64_t step); /* step counts from 0 */

/* ---- gradients of sparse rows -----------------------------------------------------------------
 */

/* Memory for the gradient of one batch at a time. Used by one thread at a time. */
struct vb_k_grad;
vb_status vb_k_grad_create(uint64_t features, size_t max_nnz, struct vb_k_grad **grad_p);
void vb_k_grad_destroy(struct vb_k_grad *grad);

/* Builds the gradient from a checked batch and the gradient d (n) of its logits: keys in ascending
 * order, each once, with values added in the order of the rows. The list remains valid until the
 * next call. Returns VB_ERR_USAGE if the batch has more than max_nnz entries. */
vb_status vb_k_grad_build(struct vb_k_grad *grad, const struct vb_k_csr *m, const float *d,
                          const uint32_t **keys_p, const float **values_p, size_t *n_p);

/* ---- weights of a sparse model ----------------------------------------------------------------
 */

/* The weights and the state of their rule, on huge pages; both are 0 at first. An update is lazy: a
 * feature that a step does not name catches up when it is next read or named. The result is that of
 * a dense update. Used by one thread at a time. Returns VB_ERR_UNSUPPORTED for weight decay with
 * adagrad or ftrl. */
struct vb_k_sparse;
vb_status vb_k_sparse_create(const struct vb_k_rule *rule, uint64_t features,
                             struct vb_k_sparse **sparse_p);
void vb_k_sparse_destroy(struct vb_k_sparse *sparse);

/* The same in memory of the caller, whose contents are kept: `features` weights, and
 * vb_k_sparse_words() words of state for each of them. NULL: the function allocates the memory. */
vb_status vb_k_sparse_create_at(const struct vb_k_rule *rule, uint64_t features, float *weights,
                                void *state, struct vb_k_sparse **sparse_p);
int vb_k_sparse_words(const struct vb_k_rule *rule);
/* Returns true if weights in memory may be out of date. */
bool vb_k_sparse_is_lazy(const struct vb_k_rule *rule);

/* The weights in memory. With momentum or weight decay, each has the value of the step that last
 * named it. */
float *vb_k_sparse_weights(struct vb_k_sparse *sparse);

/* Reads the weights as they are after the last step. Changes nothing. */
void vb_k_sparse_read(const struct vb_k_sparse *sparse, uint64_t first, size_t n, float *w);
void vb_k_sparse_forward(const struct vb_k_sparse *sparse, const struct vb_k_csr *m, float bias,
                         float *logits);

/* Prefetches the weights that a forward pass of m will read. */
void vb_k_sparse_fetch(const struct vb_k_sparse *sparse, const struct vb_k_csr *m);

/* What an update of at most max_keys keys has overwritten. */
struct vb_k_undo;
vb_status vb_k_undo_create(size_t max_keys, struct vb_k_undo **undo_p);
void vb_k_undo_destroy(struct vb_k_undo *undo);

/* One step with the gradient scale * values at keys. Keys must be in ascending order, each once;
 * otherwise it returns VB_ERR_INPUT before it writes anything. undo is filled in, or NULL. Bits do
 * not depend on the number of threads. */
vb_status vb_k_sparse_update(struct vb_k_sparse *sparse, const uint32_t *keys, const float *values,
                             size_t n, float scale, float rate, struct vb_k_undo *undo);

/* Reverts the last update, which must have been given this undo. May be called once. */
void vb_k_sparse_undo(struct vb_k_sparse *sparse, const struct vb_k_undo *undo);

/* The memory of a sparse model, to be saved and restored as it is. Call vb_k_sparse_settle()
 * first. */
#define VB_K_SPARSE_PARTS 2

struct vb_k_sparse_part {
    const char *name;
    bool whole; /* the data are 32-bit words, not floats */
    size_t n;
    void *data;
};

int vb_k_sparse_parts(struct vb_k_sparse *sparse, struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS]);

/* Brings all features up to date, which goes over all memory. It happens automatically after 65,536
 * changes of the rate. The bits of later steps depend on when it was done, so all ranks must do it
 * at the same step. */
void vb_k_sparse_settle(struct vb_k_sparse *sparse);

/* ---- weights that others change at the same time ----------------------------------------------
 */

/* Several threads or processes read and update the same weights and state without a lock. A number
 * is never torn. If two update a number at the same time, one update may be lost, which SGD
 * tolerates (Hogwild). */

void vb_k_shared_read(const float *from, size_t n, float *to);  /* from is shared memory */
void vb_k_shared_write(const float *from, size_t n, float *to); /* to is shared memory */

/* values (n) = w at keys. Prefetches ahead. Keys are not checked. */
void vb_k_shared_gather(const float *w, const uint32_t *keys, size_t n, float *values);

/* params_out and state_out must be the same memory as params and state. */
void vb_k_shared_update(const struct vb_k_rule *rule, const struct vb_k_update *update);

/* Applies the gradient scale * values at keys, each key once. Only for rules that are not lazy; the
 * state is that of vb_k_sparse_create_at(). Keys are not checked. */
void vb_k_shared_update_keys(const struct vb_k_rule *rule, float *w, float *state,
                             const uint32_t *keys, const float *values, size_t n, float scale,
                             float rate);

/* Computes the same as vb_k_csr_forward(), on one thread. The batch must have been checked. */
void vb_k_shared_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* One worker's copy of the *hot* weights: those of features that occur in nearly every batch. Other
 * workers change the shared weights at the same time; the copy belongs to this worker alone from
 * one exchange to the next (hot.c). It learns from the first batches which features are hot.
 * entries: the largest number of entries of a batch. hot may be NULL for the destroyer. */
struct vb_k_hot;

vb_status vb_k_hot_create(size_t entries, struct vb_k_hot **hot_p);
void vb_k_hot_destroy(struct vb_k_hot *hot);
int vb_k_hot_count(const struct vb_k_hot *hot); /* number of hot features; for tests */

/* Call learn with each checked batch first. For each row, call find, which locates the weights of
 * the row and prefetches them. Then forward returns the product of the row and its weights, and add
 * adds `by` times the row to them. */
void vb_k_hot_learn(struct vb_k_hot *hot, const struct vb_k_csr *m, const float *w);
void vb_k_hot_find(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float *w);
float vb_k_hot_forward(const struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row);
void vb_k_hot_add(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float by);

/* Adds this worker's changes of hot features to the shared weights, and fetches the changes of
 * other workers. */
void vb_k_hot_exchange(struct vb_k_hot *hot, float *w);

#endif
