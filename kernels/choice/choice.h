/* SPDX-License-Identifier: MIT
 *
 * Which backend computes a layer: what the libraries can do on this CPU, layers with a backend for
 * each pass, checks, timings, and plans, which keep the choices of a model.
 */
#ifndef VB_KERNELS_CHOICE_CHOICE_H
#define VB_KERNELS_CHOICE_CHOICE_H

#include "kernels/layer/layer.h"

/* What oneDNN would use on this CPU. */
struct vb_k_onednn {
    char version[32];    /* version of the library that is loaded: "2.6.3" */
    char isa[32];        /* instruction set that it uses: "avx512_core", "asimd" */
    char conv[64];       /* its implementation of a convolution; "": it has none */
    char inner[64];      /* its implementation of an inner product; "": it has none */
    bool conv_reference; /* the slow reference: oneDNN has no kernel for this CPU */
    bool inner_reference;
};

/* Asks oneDNN to prepare, but not to run, AlexNet's third convolution and first inner product.
 * Returns an error if oneDNN does not work at all; version and isa are filled in even then. */
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

/* ---- who computes a layer -------------------------------------------------------------------- */

/* A backend has a name: "plain", "blas", "onednn" ... A choice is the backend of one pass. */

/* Earlier timings, a file for each CPU, libraries and number of threads. Single-threaded. */
struct vb_k_cache;

/* folder: NULL means the folder of vb_cache_dir(). If the file is missing, broken, or written on
 * another machine, the cache is empty. A broken file causes a warning. */
vb_status vb_k_cache_open(const char *folder, struct vb_k_cache **cache_p);
/* Writes new entries to the file. cache may be NULL. */
void vb_k_cache_close(struct vb_k_cache *cache);

struct vb_k_tuning {
    const char *backend[VB_K_PASSES]; /* the plan's backend; NULL: the fastest by timing */
    bool unused[VB_K_PASSES];         /* the pass will never run, as data of the first layer */
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

/* Returns the backend's name; NULL if the layer has no such pass or it was declared unused. */
const char *vb_k_layer_backend(const struct vb_k_layer *layer, enum vb_k_pass pass);

/* The size that args.scratch must have, for any pass. Layers may share the memory. */
size_t vb_k_layer_scratch_bytes(const struct vb_k_layer *layer);

/* Runs a pass without allocating anything. Does nothing if the pass has no backend. */
void vb_k_layer_run(const struct vb_k_layer *layer, enum vb_k_pass pass,
                    const struct vb_k_args *args);

/* ---- right results --------------------------------------------------------------------------- */

#define VB_K_CANDIDATES_MAX 16

struct vb_k_checked {
    const char *backend;
    double
        off; /* largest difference from the reference, in units of its results' root mean square */
};

/* Compares every backend that can do a pass with the reference, on at most 4 samples. Rounding
 * causes differences of at most about 1e-4; the caller decides what is acceptable. */
vb_status vb_k_check_all(const struct vb_k_shape *shape, enum vb_k_pass pass,
                         struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p);

/* ---- timing ---------------------------------------------------------------------------------- */

struct vb_k_candidate {
    const char *backend;
    double ms; /* time of the fastest run; negative: not timed, others were clearly faster */
};

/* Times every backend that can do a pass, on the given shape, for about `seconds` each. */
vb_status vb_k_time_all(const struct vb_k_shape *shape, enum vb_k_pass pass, double seconds,
                        struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX], int *n_p);

/* Measures the GFLOP/s of a BLAS product of 1024 x 1024 x 1024 on this thread's team, the peak that
 * layers are compared with. Returns a negative number if memory is short. */
double vb_k_gemm_peak(double seconds);

/* ---- plans ----------------------------------------------------------------------------------- */

#define VB_K_CHOICES_MAX 256
#define VB_K_NAME 32

struct vb_k_choice {
    char layer[VB_K_NAME]; /* a name without spaces */
    enum vb_k_pass pass;
    const char *backend; /* points into the program's own table of names */
};

/* A model's choices; as text one line each: "conv1 forward blas". Equal plans have equal texts. */
struct vb_k_plan {
    int n;
    struct vb_k_choice v[VB_K_CHOICES_MAX];
};

/* Adds the choices of a layer. Returns VB_ERR_USAGE for an invalid name and if the plan is full. */
vb_status vb_k_plan_add(struct vb_k_plan *plan, const char *name, const struct vb_k_layer *layer);

/* Returns the backend of a pass, or NULL if the plan does not name one. */
const char *vb_k_plan_find(const struct vb_k_plan *plan, const char *name, enum vb_k_pass pass);

/* Returns text that the caller must free(), or NULL if memory is short. */
char *vb_k_plan_text(const struct vb_k_plan *plan);

/* Empty lines and lines that begin with # are ignored. If it returns VB_ERR_INPUT, why holds one
 * line that names the line of the text. The error is not logged. */
vb_status vb_k_plan_parse(const char *text, struct vb_k_plan *plan_p, char why[VB_OPTS_WHY]);

#endif
