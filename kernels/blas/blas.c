/* SPDX-License-Identifier: MIT
 *
 * Calls OpenBLAS. No other file does. The library is loaded when it is first needed, and not with
 * the program: it starts a thread for every cpu while it is loaded, before main(), unless a
 * variable forbids that, which only a running program can set.
 */
#include "kernels/blas/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Upper limit of the work memory that OpenBLAS allocates for one thread, for all kinds of this CPU.
 * If there is less, OpenBLAS tries again and again without end. Since 0.3.29 (Debian 13) it does so
 * for the first thread while it is loaded. */
#if defined(__x86_64__)
#define ROOM_BYTES ((size_t)129 << 20)
#else
#define ROOM_BYTES ((size_t)40 << 20)
#endif
#define LIBRARY_BYTES ((size_t)48 << 20) /* the library itself takes about 40 MB */
#define SIDE 64
#define DEPTH 512

/* The functions that this file calls. */
static struct {
    __typeof__(&openblas_get_config) get_config;
    __typeof__(&openblas_get_corename) get_corename;
    __typeof__(&openblas_get_parallel) get_parallel;
    __typeof__(&openblas_set_num_threads) set_num_threads;
    __typeof__(&cblas_sgemm) sgemm;
} lib;

static bool loaded;

static void *find(void *library, const char *name)
{
    void *found = library != NULL ? dlsym(library, name) : NULL;

    loaded = loaded && found != NULL;
    return found;
}

static bool has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

/* The second name is the file that the program was built with: the loader may not search there. */
static void load(void)
{
    size_t bytes = LIBRARY_BYTES + ROOM_BYTES;
    void *library;

    if (!has_room(bytes)) {
        VB_LOG_WARN("OpenBLAS cannot be used, so slower kernels may compute: no memory for the %zu "
                    "MB that it needs",
                    bytes >> 20);
        return;
    }
    library = dlopen(VB_OPENBLAS_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        library = dlopen(VB_OPENBLAS_FILE, RTLD_NOW | RTLD_LOCAL);
    loaded = true;
    *(void **)&lib.get_config = find(library, "openblas_get_config");
    *(void **)&lib.get_corename = find(library, "openblas_get_corename");
    *(void **)&lib.get_parallel = find(library, "openblas_get_parallel");
    *(void **)&lib.set_num_threads = find(library, "openblas_set_num_threads");
    *(void **)&lib.sgemm = find(library, "cblas_sgemm");
    if (loaded)
        return;
    VB_LOG_WARN("OpenBLAS cannot be used, so slower kernels may compute: %s", dlerror());
    vb_log_fix("sudo apt install libopenblas0-pthread");
}

static bool is_loaded(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return loaded;
}

static void copy_text(char *buf, size_t size, const char *text)
{
    snprintf(buf, size, "%.*s", (int)size - 1, text != NULL ? text : "");
}

void vb_k_blas_probe(struct vb_k_blas *probe_p)
{
    struct vb_k_blas probe = {.threading = VB_K_SEQUENTIAL};

    if (!is_loaded()) {
        copy_text(probe.version, sizeof(probe.version), "cannot be loaded");
        *probe_p = probe;
        return;
    }
    copy_text(probe.config, sizeof(probe.config), lib.get_config());
    if (sscanf(probe.config, "OpenBLAS %31[^ ]", probe.version) != 1) /* "OpenBLAS 0.3.21 ..." */
        copy_text(probe.version, sizeof(probe.version), "of unknown version");
    copy_text(probe.core, sizeof(probe.core), lib.get_corename());
    if (lib.get_parallel() == OPENBLAS_THREAD)
        probe.threading = VB_K_PTHREADS;
    else if (lib.get_parallel() == OPENBLAS_OPENMP)
        probe.threading = VB_K_OPENMP;
    *probe_p = probe;
}

const char *vb_k_threading_str(enum vb_k_threading threading)
{
    static const char *const names[] = {
        [VB_K_SEQUENTIAL] = "sequential", [VB_K_PTHREADS] = "pthreads", [VB_K_OPENMP] = "OpenMP"};

    return names[threading];
}

vb_status vb_k_blas_ready(void)
{
    static _Atomic int ready; /* number of threads whose work memory is allocated */
    int threads = omp_get_max_threads();
    size_t bytes = (size_t)threads * ROOM_BYTES;

    if (!is_loaded())
        return VB_ERR_UNSUPPORTED;
    lib.set_num_threads(1);
    if (ready >= threads)
        return VB_OK;
    if (!has_room(bytes))
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the %zu MB that OpenBLAS needs",
                      bytes >> 20);
        /* OpenBLAS allocates its work memory for a thread with the first product, for good. Small
         * products need none on some CPUs. */
#pragma omp parallel
    {
        static const float a[SIDE * DEPTH];
        float c[SIDE * SIDE];

        lib.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, DEPTH, 1, a, DEPTH, a,
                  SIDE, 0, c, SIDE);
    }
    ready = threads;
    return VB_OK;
}

void vb_k_blas_no_threads(void)
{
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

void vb_k_sgemm(int m, int n, int k, struct vb_k_matrix a, struct vb_k_matrix b, float beta,
                float *c, size_t c_row)
{
    lib.sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, m, n, k, 1, a.v, (blasint)a.row, b.v,
              (blasint)b.row, beta, c, (blasint)c_row);
}
