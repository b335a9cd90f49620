/* SPDX-License-Identifier: MIT
 *
 * sparse_lr DATA BATCH [ROUNDS [THREADS]]: measures steps of sparse logistic regression by our
 * kernels and by the bare loop of bench/peers, in turn, on the same rows, in CPU time of one
 * thread. Both must reach the same loss. Prints a JSON line with both medians and their ratio.
 *
 * With THREADS, the kernels on as many threads are compared with one thread, in wall time. Both
 * must give the same bits. sparse_lr DATA write FILE writes the rows for other programs.
 */
#include "bench/loops/sparse_rows.h"
#include "kernels/kernels.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS 400000
#define ROUND_ROWS 100000
#define ROUNDS_MAX 99
#define THREADS_MAX 64
#define RATE 0.1f
#define SOON 16 /* number of rows that are prefetched across the end of a batch */

struct bench {
    const char *name;
    struct lr_data data;
    size_t batch;
    int threads;                  /* 0: the kernels are compared with the bare loop */
    struct vb_k_csr_parts *parts; /* used with threads: memory for grouping the rows */
    struct vb_mem weights[2];     /* of our kernels; of the bare loop or of one thread */
    float bias[2], *logits;
    uint8_t *labels;
    double loss[2], took_s[2][ROUNDS_MAX];
};

/* Returns the CPU time of this thread, or the wall time if there are several threads. */
static double now_s(const struct bench *b)
{
    struct timespec t;

    clock_gettime(b->threads > 0 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void copy_label(struct bench *b, const uint32_t *rows, size_t i, size_t known)
{
    if (i + SOON < known)
        __builtin_prefetch(b->data.label + rows[i + SOON]);
    b->labels[i] = b->data.label[rows[i]];
}

/* Copies the labels of a batch, as the loader does in training. With one thread no team is used,
 * because starting a team would take longer than a row. */
static void copy_labels(struct bench *b, const uint32_t *rows, size_t known)
{
    size_t i;

    if (b->threads == 0) {
        for (i = 0; i < b->batch; i++)
            copy_label(b, rows, i, known);
        return;
    }
#pragma omp parallel for schedule(static)
    for (i = 0; i < b->batch; i++)
        copy_label(b, rows, i, known);
}

static double our_step(struct bench *b, int side, size_t first, size_t left)
{
    const struct vb_k_csr m = {
        .n = b->batch,
        .rows = b->data.order + first,
        .ahead = left < SOON ? left : SOON,
        .offset = b->data.offset,
        .index = b->data.index,
        .value = b->data.value,
        .parts = b->parts,
        .n_rows = ROWS,
        .nnz = b->data.nnz,
    };
    float scale = -RATE / (float)b->batch, sum = 0;
    double loss;
    size_t i;

    copy_labels(b, m.rows, b->batch + left);
    vb_k_csr_forward(&m, b->weights[side].ptr, b->bias[side], b->logits);
    loss = vb_k_logistic(b->logits, b->labels, b->batch);
    vb_k_csr_add(&m, b->logits, scale, b->weights[side].ptr);
    for (i = 0; i < b->batch; i++)
        sum += b->logits[i];
    b->bias[side] += scale * sum;
    return loss;
}

static void our_steps(struct bench *b, int side, int round, size_t first, size_t steps)
{
    double start;
    size_t i;

    omp_set_num_threads(side == 0 && b->threads > 0 ? b->threads : 1);
    start = now_s(b);
    for (i = 0; i < steps; i++)
        b->loss[side] += our_step(b, side, first + i * b->batch, (steps - i - 1) * b->batch);
    b->took_s[side][round] = now_s(b) - start;
}

static void other_steps(struct bench *b, int round, size_t first, size_t steps)
{
    double start = now_s(b);

    if (b->threads > 0) {
        our_steps(b, 1, round, first, steps);
        return;
    }
    b->loss[1] += lr_bare_steps(&b->data, first, steps, b->batch, RATE, b->weights[1].ptr,
                                &b->bias[1], b->logits);
    b->took_s[1][round] = now_s(b) - start;
}

/* Runs our kernels and the other program on the same rows. The one that runs second finds some rows
 * in the L3 cache, so the two alternate in running first. */
static void one_round(struct bench *b, int round)
{
    size_t first = (size_t)(round % (ROWS / ROUND_ROWS)) * ROUND_ROWS;
    size_t steps = ROUND_ROWS / b->batch;

    if (round % 2 == 0)
        our_steps(b, 0, round, first, steps);
    other_steps(b, round, first, steps);
    if (round % 2 == 1)
        our_steps(b, 0, round, first, steps);
}

/* Allocates memory that is never freed, because the program ends afterwards. */
static vb_status prepare(struct bench *b)
{
    vb_status st = VB_OK;
    struct vb_mem mem;
    size_t i;

    b->logits = malloc(b->batch * sizeof(*b->logits));
    b->labels = malloc(b->batch);
    if (b->logits == NULL || b->labels == NULL)
        return vb_err_sys("malloc");
    if (b->threads > 0) {
        st = vb_mem_map_private(ROWS * sizeof(*b->parts), &mem);
        if (st != VB_OK)
            return st;
        b->parts = mem.ptr;
        vb_k_csr_group(b->data.offset, ROWS, b->data.index, b->data.value, b->parts);
    }
    for (i = 0; i < 2 && st == VB_OK; i++) {
        st = vb_mem_map_private(LR_FEATURES * sizeof(float), &b->weights[i]);
        if (st == VB_OK)
            st = vb_mem_populate(&b->weights[i]);
    }
    return st;
}

static int report(struct bench *b, int rounds)
{
    bool same = fabs(b->loss[0] - b->loss[1]) <= 1e-5 * b->loss[1];
    size_t whole = ROUND_ROWS / b->batch;
    double ours, bare, rows = (double)(whole * b->batch);

    if (b->threads > 0)
        same = memcmp(b->weights[0].ptr, b->weights[1].ptr, LR_FEATURES * sizeof(float)) == 0;
    vb_sort(b->took_s[0], (size_t)rounds);
    vb_sort(b->took_s[1], (size_t)rounds);
    ours = rows / b->took_s[0][rounds / 2];
    bare = rows / b->took_s[1][rounds / 2];
    printf("{\"bench\": \"sparse-lr\", \"data\": \"%s\", \"batch\": %zu, \"threads\": %d, "
           "\"rows_per_s\": %.0f, "
           "\"%s_rows_per_s\": %.0f, \"ratio\": %.3f, \"wrong\": %d}\n",
           b->name, b->batch, b->threads > 0 ? b->threads : 1, ours,
           b->threads > 0 ? "one_thread" : "bare", bare, ours / bare, !same);
    return same ? 0 : 1;
}

/* Writes the rows, and prints how many features they use. */
static int write_rows(const struct bench *b, const char *path)
{
    size_t few = 0, many = 0;

    if (lr_rows_touched(&b->data, 100, &few) != VB_OK ||
        lr_rows_touched(&b->data, 1000, &many) != VB_OK || lr_rows_write(&b->data, path) != VB_OK)
        return 1;
    printf("{\"bench\": \"sparse-lr\", \"data\": \"%s\", \"rows\": %zu, \"nonzeros\": %zu, "
           "\"touched_by_100\": %zu, \"touched_by_1000\": %zu}\n",
           b->name, b->data.n_rows, b->data.nnz, few, many);
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench b;
    int64_t batch = 0, rounds = 12, threads = 0;
    bool write = argc == 4 && strcmp(argv[2], "write") == 0;
    int i;

    if (!write &&
        (argc < 3 || argc > 5 || !vb_parse_int(argv[2], &batch) || batch < 1 ||
         batch > ROUND_ROWS || (argc > 3 && !vb_parse_int(argv[3], &rounds)) || rounds < 1 ||
         rounds > ROUNDS_MAX || (argc > 4 && !vb_parse_int(argv[4], &threads)) || threads < 0 ||
         threads > THREADS_MAX)) {
        fprintf(stderr, "usage: sparse_lr DATA BATCH [ROUNDS [THREADS]]\n"
                        "       sparse_lr DATA write FILE\n"
                        "DATA: head, tail, csr:FILE, synth:kind=criteo,n=400000\n");
        return 2;
    }
    b.name = argv[1];
    b.threads = (int)threads;
    b.batch = (size_t)batch;
    if (lr_rows(b.name, ROWS, &b.data) != VB_OK)
        return 1;
    if (write)
        return write_rows(&b, argv[3]);
    if (prepare(&b) != VB_OK)
        return 1;
    for (i = 0; i < rounds; i++)
        one_round(&b, i);
    return report(&b, (int)rounds);
}
