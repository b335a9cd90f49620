/* SPDX-License-Identifier: MIT
 *
 * Chooses the backend of each pass of a layer. This header declares probes of the libraries, layers
 * with a backend for each pass, checks, timings, and plans. A plan keeps the choices of a model.
 */
#ifndef VB_KERNELS_CHOICE_CHOICE_H
#define VB_KERNELS_CHOICE_CHOICE_H

#include "kernels/layer/layer.h"

/* What oneDNN would use on this CPU. */
struct vb_k_onednn {
    char version[32];    /* version of the library that is loaded: "2.6.3" */
    char isa[32];        /* instruction set that oneDNN uses: "avx512_core", "asimd" */
    char conv[64];       /* oneDNN's implementation of a convolution; "": none */
    char inner[64];      /* oneDNN's implementation of an inner product; "": none */
    bool conv_reference; /* conv is the slow reference: oneDNN has no kernel for this CPU */
    bool inner_reference;
};

/* Asks oneDNN to prepare, but not to run, AlexNet's third convolution and first inner product.
 * Returns an error if oneDNN does not work at all; version and isa are filled in even then. */
vb_status vb_k_onednn_probe(struct vb_k_onednn *probe_p);

enum vb_k_threading { VB_K_SEQUENTIAL, VB_K_PTHREADS, VB_K_OPENMP };

/* The BLAS library. Strings that are too long are cut. */
struct vb_k_blas {
    char version[32]; /* "0.3.21" */
    char config[160]; /* build options of the library, as it prints them */
    char core[32];    /* the CPU that the library's kernels are made for: "neoversen1" */
    enum vb_k_threading threading;
};

void vb_k_blas_probe(struct vb_k_blas *probe_p);

/* OpenBLAS starts no threads in this process and in new child processes. By default it starts one
 * for every cpu when it is loaded, which is at its first use; these are useless, but yield in a
 * loop on the cpus of the ranks before they sleep. A number of threads that the user has set for
 * OpenBLAS is ignored. Must be called before this process starts threads of its own. */
void vb_k_blas_no_threads(void);

const char *vb_k_threading_str(enum vb_k_threading threading);

/* Writes one sentence that says which library dense kernels will use. This is oneDNN where it has
 * kernels for this CPU, and BLAS where oneDNN would fall back to its reference. */
void vb_k_dense_choice(const struct vb_k_onednn *onednn, const struct vb_k_blas *blas, char *buf,
                       size_t size);

/* Writes one line that names everything about this CPU and the libraries that changes the bits of
 * results. plan: only libraries that it names count; NULL: kernels of our own only. */
#define VB_K_CPU_KIND 200
void vb_k_cpu_kind(const char *plan, char kind[VB_K_CPU_KIND]);

/* ---- who computes a layer -------------------------------------------------------------------- */

/* A backend has a name: "plain", "blas", "onednn" ... A choice is the backend of one pass. */

/* The results of earlier timings. There is one file for each combination of CPU, libraries and
 * number of threads. Only one thread may use a cache at a time. */
struct vb_k_cache;

/* If folder is NULL, vb_cache_dir() is used. If the file is missing, broken, or written on another
 * machine, the cache is empty. A broken file causes a warning. */
vb_status vb_k_cache_open(const char *folder, struct vb_k_cache **cache_p);
/* Writes new entries to the file. cache may be NULL. */
void vb_k_cache_close(struct vb_k_cache *cache);

struct vb_k_tuning {
    const char *backend[VB_K_PASSES]; /* backend of the plan; NULL: the fastest by timing */
    bool unused[VB_K_PASSES];         /* never runs, like backward data of the first layer */
    struct vb_k_cache *cache;         /* NULL: every choice is timed */
    bool fast_math; /* may choose backends that round more than sums of floats do */
};

/* A layer, with a prepared backend for each pass. */
struct vb_k_layer;

/* Creates a layer. vb_k_shape_finish() must have been called on shape. Timing uses the OpenMP team
 * of the calling thread. Results depend on the chosen backends, but not on the number of threads.
 * tuning may be NULL, which means all fields 0. */
vb_status vb_k_layer_create(const struct vb_k_shape *shape, const struct vb_k_tuning *tuning,
                            struct vb_k_layer **layer_p);
void vb_k_layer_destroy(struct vb_k_layer *layer);

const struct vb_k_shape *vb_k_layer_shape(const struct vb_k_layer *layer);

/* Returns the name of the backend of a pass; NULL if the layer lacks the pass or it is unused. */
const char *vb_k_layer_backend(const struct vb_k_layer *layer, enum vb_k_pass pass);

/* Returns the size of args.scratch for any pass. Layers may share the memory. */
size_t vb_k_layer_scratch_bytes(const struct vb_k_layer *layer);

/* Runs a pass without allocating anything. Does nothing if the pass has no backend. */
void vb_k_layer_run(const struct vb_k_layer *layer, enum vb_k_pass pass,
                    const struct vb_k_args *args);

/* Returns the name of backend number i, in the order in which they are tried; NULL: there are not
 * so many. *fast_math_p: it is chosen only with fast_math. */
const char *vb_k_backend_name(int i, bool *fast_math_p);

/* Returns whether the backend can compute the pass, as far as that is known without preparing it.
 */
bool vb_k_can(const char *backend, const struct vb_k_shape *shape, enum vb_k_pass pass);

/* ---- right results --------------------------------------------------------------------------- */

#define VB_K_CANDIDATES_MAX 16

struct vb_k_checked {
    const char *backend;
    double off;     /* largest difference from the reference, divided by its root mean square */
    double error;   /* root mean square of the differences, divided by that of the reference */
    bool fast_math; /* the backend is chosen only with fast_math */
};

/* The backend whose error is the measure for the others: each result is one running sum of floats.
 * It is never chosen and never timed. */
#define VB_K_RUNNING "running"

/* Compares every backend that can do a pass with the reference, on at most 4 samples. Rounding
 * causes differences of at most about 1e-4; the caller decides what is acceptable. running: also
 * checks the backend VB_K_RUNNING, which is slow. */
vb_status vb_k_check_all(const struct vb_k_shape *shape, enum vb_k_pass pass, bool running,
                         struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p);

/* ---- timing ---------------------------------------------------------------------------------- */

struct vb_k_candidate {
    const char *backend;
    double ms; /* time of the fastest run; negative: not timed, because others were faster */
};

/* Times every backend that can do a pass, on the given shape, for about `seconds` each. */
vb_status vb_k_time_all(const struct vb_k_shape *shape, enum vb_k_pass pass, double seconds,
                        struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX], int *n_p);

/* Measures the GFLOP/s of a BLAS product of 1024 x 1024 x 1024 on the calling thread's team. Layers
 * are compared with this peak. Returns a negative number if memory is short. */
double vb_k_gemm_peak(double seconds);

/* Measures the GB/s of memory when the team reads two long arrays and writes a third. Returns a
 * negative number if memory is short. */
double vb_k_memory_peak(double seconds);

/* The same within about 20 ms each, for a run that has just ended. */
double vb_k_gemm_glance(void);
double vb_k_memory_glance(void);

int vb_k_threads(void); /* returns the number of threads of the calling thread's team */

/* ---- plans ----------------------------------------------------------------------------------- */

#define VB_K_CHOICES_MAX 256
#define VB_K_NAME 32

struct vb_k_choice {
    char layer[VB_K_NAME]; /* a name without spaces */
    enum vb_k_pass pass;
    const char *backend; /* points into the program's own table of names */
};

/* The choices of a model. Equal plans have equal texts, with lines like "conv1 forward blas". */
struct vb_k_plan {
    int n;
    struct vb_k_choice v[VB_K_CHOICES_MAX];
};

/* Adds the choices of a layer. Returns VB_ERR_USAGE for an invalid name and if the plan is full. */
vb_status vb_k_plan_add(struct vb_k_plan *plan, const char *name, const struct vb_k_layer *layer);

/* Returns the backend of a pass, or NULL if the plan does not name one. */
const char *vb_k_plan_find(const struct vb_k_plan *plan, const char *name, enum vb_k_pass pass);

/* Adds a backend for each pass of a layer, without timing: the given one if it can compute the
 * pass, otherwise one that is as exact as sums of floats. */
vb_status vb_k_plan_prefer(struct vb_k_plan *plan, const char *name, const struct vb_k_shape *shape,
                           const char *backend);

/* Returns the first choice of the plan that needs fast_math; NULL if there is none. */
const struct vb_k_choice *vb_k_plan_fast_math(const struct vb_k_plan *plan);

/* Returns the plan as text, which the caller must free(), or NULL if memory is short. */
char *vb_k_plan_text(const struct vb_k_plan *plan);

/* Parses the text of a plan. Empty lines and lines that begin with # are ignored. If the result is
 * VB_ERR_INPUT, why holds a message that names the wrong line. The error is not logged. */
vb_status vb_k_plan_parse(const char *text, struct vb_k_plan *plan_p, char why[VB_OPTS_WHY]);

#endif
