/* SPDX-License-Identifier: MIT
 *
 * Calls OpenBLAS. No other file does.
 */
#include "kernels/blas/blas.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>

/* Upper limit of the work memory that OpenBLAS allocates for one thread. */
#define ROOM_BYTES ((size_t)40 << 20)
#define SIDE 64

static void copy_text(char *buf, size_t size, const char *text)
{
    snprintf(buf, size, "%.*s", (int)size - 1, text != NULL ? text : "");
}

void vb_k_blas_probe(struct vb_k_blas *probe_p)
{
    struct vb_k_blas probe = {.threading = VB_K_SEQUENTIAL};

    copy_text(probe.config, sizeof(probe.config), openblas_get_config());
    if (sscanf(probe.config, "OpenBLAS %31[^ ]", probe.version) != 1) /* "OpenBLAS 0.3.21 ..." */
        copy_text(probe.version, sizeof(probe.version), "of unknown version");
    copy_text(probe.core, sizeof(probe.core), openblas_get_corename());
    if (openblas_get_parallel() == OPENBLAS_THREAD)
        probe.threading = VB_K_PTHREADS;
    else if (openblas_get_parallel() == OPENBLAS_OPENMP)
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
    void *room;

    openblas_set_num_threads(1);
    if (ready >= threads)
        return VB_OK;
    room = malloc(bytes);
    if (room == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the %zu MB that OpenBLAS needs",
                      bytes >> 20);
    free(room);
    /* OpenBLAS allocates its work memory for a thread with the first product, for good. */
#pragma omp parallel
    {
        static const float a[SIDE * SIDE];
        float c[SIDE * SIDE];

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, a,
                    SIDE, 0, c, SIDE);
    }
    ready = threads;
    return VB_OK;
}

void vb_k_blas_no_threads_in_children(void)
{
    /* OpenBLAS reads the variable when it is loaded; a value set by the user is kept */
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 0);
}

void vb_k_sgemm(int m, int n, int k, struct vb_k_matrix a, struct vb_k_matrix b, float beta,
                float *c, size_t c_row)
{
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                b.transposed ? CblasTrans : CblasNoTrans, m, n, k, 1, a.v, (blasint)a.row, b.v,
                (blasint)b.row, beta, c, (blasint)c_row);
}
