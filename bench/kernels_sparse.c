/* SPDX-License-Identifier: MIT
 *
 * Measures the passes of a step of sparse logistic regression, forward and update beside a plain
 * loop on one thread that does the same. Their results are compared first. A batch's weights lie
 * all over a memory larger than the caches, and each batch has others; so a pass is timed over many
 * batches.
 */
#include "bench/bench.h"
#include "data/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MIN 20000 /* in all batches: their weights do not fit in the caches */
#define SEED 1
#define RATE 0.05f
#define EPS 1e-8f

enum pass { FORWARD, FORWARD_LOOP, GRADIENT, UPDATE, UPDATE_LOOP, PASSES };

static const struct {
    const char *pass, *backend;
    bool chosen; /* training uses it */
} lines[PASSES + 1] = {{"forward", "own", true},        {"forward", "plain loop", false},
                       {"gradient", "own", true},       {"update", "own", true},
                       {"update", "plain loop", false}, {"all", "chosen", true}};

struct sparse_bench {
    const struct vb_bench_kernels *o;
    struct vb_rows rows; /* of all batches */
    int n_batches;
    struct vb_k_sparse *model;
    struct vb_k_grad *grad;
    float *state;           /* of adagrad, for the plain loop; that of the model is its own */
    float *logits, *looped; /* of a batch: by the model, and by the plain loop */
    const uint32_t *keys;   /* the gradient of a batch */
    const float *values;
    size_t n_keys;
    double off[PASSES]; /* the largest difference from the plain loop; NAN: there is none */
};

/* ---- data ------------------------------------------------------------------------------------ */

static struct vb_k_csr batch_at(const struct sparse_bench *b, int i)
{
    size_t n = (size_t)b->o->batch;

    return (struct vb_k_csr){.n = n,
                             .offset = (const uint64_t *)b->rows.at + (size_t)i * n,
                             .index = b->rows.index,
                             .value = b->rows.value,
                             .n_rows = n,
                             .nnz = (size_t)b->rows.at[b->rows.n]};
}

static size_t entries_of(const struct sparse_bench *b, int i)
{
    size_t n = (size_t)b->o->batch, first = (size_t)i * n;

    return (size_t)(b->rows.at[first + n] - b->rows.at[first]);
}

static size_t most_entries(const struct sparse_bench *b)
{
    size_t most = 0;
    int i;

    for (i = 0; i < b->n_batches; i++)
        most = entries_of(b, i) > most ? entries_of(b, i) : most;
    return most;
}

static vb_status read_rows(struct sparse_bench *b, const struct vb_dataset *set)
{
    size_t n = (size_t)set->n, entries = n * (size_t)set->row_max, i;
    uint32_t *which = malloc(n * sizeof(*which));
    vb_status st = VB_ERR_NO_MEMORY;

    b->rows = (struct vb_rows){.n = set->n, .room = (int64_t)entries};
    b->rows.at = malloc((n + 1) * sizeof(*b->rows.at));
    b->rows.index = malloc(entries * sizeof(*b->rows.index));
    b->rows.value = malloc(entries * sizeof(*b->rows.value));
    b->rows.y = malloc(n);
    for (i = 0; which != NULL && i < n; i++)
        which[i] = (uint32_t)i;
    if (which != NULL && b->rows.at != NULL && b->rows.index != NULL && b->rows.value != NULL &&
        b->rows.y != NULL)
        st = vb_dataset_rows(set, which, set->n, &b->rows);
    free(which);
    return st == VB_ERR_NO_MEMORY ? vb_err(st, "no memory for %d rows", set->n) : st;
}

static vb_status make_rows(struct sparse_bench *b)
{
    struct vb_dataset set = {.n = 0};
    vb_status st;

    b->n_batches = (ROWS_MIN + b->o->batch - 1) / b->o->batch;
    st = vb_synth_rows(SEED, VB_SYNTH_TRAIN, b->n_batches * b->o->batch, b->o->features, &set);
    if (st == VB_OK)
        st = read_rows(b, &set);
    vb_dataset_destroy(&set);
    return st;
}

static vb_status make_model(struct sparse_bench *b)
{
    struct vb_k_rule rule = {.kind = VB_K_ADAGRAD, .eps = EPS};
    vb_status st = vb_k_sparse_create(&rule, (uint64_t)b->o->features, &b->model);

    if (st == VB_OK)
        st = vb_k_grad_create((uint64_t)b->o->features, most_entries(b), &b->grad);
    b->logits = malloc((size_t)b->o->batch * sizeof(float));
    b->looped = malloc((size_t)b->o->batch * sizeof(float));
    b->state = calloc((size_t)b->o->features, sizeof(float));
    if (st == VB_OK && (b->logits == NULL || b->looped == NULL || b->state == NULL))
        st = vb_err(VB_ERR_NO_MEMORY, "no memory for %d features", b->o->features);
    return st;
}

static void close_bench(struct sparse_bench *b)
{
    vb_k_sparse_destroy(b->model);
    vb_k_grad_destroy(b->grad);
    free(b->rows.at);
    free(b->rows.index);
    free(b->rows.value);
    free(b->rows.y);
    free(b->logits);
    free(b->looped);
    free(b->state);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void forward_loop(const struct vb_k_csr *m, const float *w, float *logits)
{
    uint64_t k;
    size_t i;

    for (i = 0; i < m->n; i++) {
        float sum = 0;

        for (k = m->offset[i]; k < m->offset[i + 1]; k++)
            sum += m->value[k] * w[m->index[k]];
        logits[i] = sum;
    }
}

static void update_loop(struct sparse_bench *b, float *w, float scale)
{
    size_t i;

    for (i = 0; i < b->n_keys; i++) {
        uint32_t key = b->keys[i];
        float g = scale * b->values[i];

        b->state[key] += g * g;
        w[key] -= RATE * g / (sqrtf(b->state[key]) + EPS);
    }
}

static vb_status run(struct sparse_bench *b, enum pass pass, int batch)
{
    struct vb_k_csr m = batch_at(b, batch);
    float *w = vb_k_sparse_weights(b->model), scale = 1.f / (float)m.n;

    switch (pass) {
    case FORWARD:
        vb_k_sparse_forward(b->model, &m, 0, b->logits);
        return VB_OK;
    case FORWARD_LOOP:
        forward_loop(&m, w, b->looped);
        return VB_OK;
    case GRADIENT:
        return vb_k_grad_build(b->grad, &m, b->logits, &b->keys, &b->values, &b->n_keys);
    case UPDATE:
        return vb_k_sparse_update(b->model, b->keys, b->values, b->n_keys, scale, RATE, NULL);
    default:
        update_loop(b, w, scale);
        return VB_OK;
    }
}

/* The passes of the step before this one. */
static vb_status run_before(struct sparse_bench *b, enum pass pass, int batch)
{
    vb_status st = VB_OK;

    if (pass >= GRADIENT) {
        st = run(b, FORWARD, batch);
        (void)vb_k_logistic(b->logits, b->rows.y + (size_t)batch * (size_t)b->o->batch,
                            (size_t)b->o->batch);
    }
    return st == VB_OK && pass >= UPDATE ? run(b, GRADIENT, batch) : st;
}

/* Returns the largest difference, by the root mean square of the second array. */
static double difference(const float *a, const float *b, size_t n)
{
    double most = 0, sum = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        sum += (double)b[i] * (double)b[i];
    }
    return most > 0 ? most / sqrt(sum / (double)n) : 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Makes a step with the batch, and the same update by the plain loop in copies of the weights. */
static vb_status compare_update(struct sparse_bench *b, int batch)
{
    float *w = vb_k_sparse_weights(b->model), *was, *own, *looped;
    vb_status st = run_before(b, UPDATE, batch);
    size_t n = b->n_keys, i;

    if (st != VB_OK)
        return st;
    was = malloc(3 * n * sizeof(*was));
    if (was == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu weights", n);
    own = was + n;
    looped = own + n;
    for (i = 0; i < n; i++)
        was[i] = w[b->keys[i]];
    st = run(b, UPDATE, batch);
    for (i = 0; i < n; i++) {
        own[i] = w[b->keys[i]];
        w[b->keys[i]] = was[i];
    }
    (void)run(b, UPDATE_LOOP, batch);
    for (i = 0; i < n; i++) {
        looped[i] = w[b->keys[i]];
        w[b->keys[i]] = own[i];
    }
    b->off[UPDATE] = fmax(b->off[UPDATE], difference(own, looped, n));
    free(was);
    return st;
}

/* Makes a step with each batch, so that all pages are there and few weights are 0. */
static vb_status compare(struct sparse_bench *b)
{
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < PASSES; i++)
        b->off[i] = i == FORWARD || i == UPDATE ? 0 : (double)NAN;
    for (i = 0; i < b->n_batches && st == VB_OK; i++) {
        (void)run(b, FORWARD, i);
        (void)run(b, FORWARD_LOOP, i);
        b->off[FORWARD] =
            fmax(b->off[FORWARD], difference(b->logits, b->looped, (size_t)b->o->batch));
        st = compare_update(b, i);
    }
    for (i = 0; i < PASSES && st == VB_OK; i++)
        if (b->off[i] > VB_BENCH_OFF_MAX)
            st = vb_err(VB_ERR_UNSUPPORTED,
                        "%s, pass %s: wrong results; the error is %.3g of their root mean square",
                        b->o->model, lines[i].pass, b->off[i]);
    return st;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* *ms_p: the mean time for a batch; *ns_p: that for an entry. Each batch is run at least once. */
static vb_status measure(struct sparse_bench *b, enum pass pass, double *ms_p, double *ns_p)
{
    uint64_t until = vb_clock_ns() + (uint64_t)(b->o->seconds * 1e9), took = 0, entries = 0, begin;
    vb_status st = VB_OK;
    int i, runs = 0;

    while (st == VB_OK && (runs < b->n_batches || vb_clock_ns() < until)) {
        i = runs++ % b->n_batches;
        st = run_before(b, pass, i);
        begin = vb_clock_ns();
        if (st == VB_OK)
            st = run(b, pass, i);
        took += vb_clock_ns() - begin;
        entries += entries_of(b, i);
    }
    *ms_p = (double)took / runs / 1e6;
    *ns_p = (double)took / (double)entries;
    return st;
}

static void print_json(const struct sparse_bench *b, enum pass pass, double ms, double ns)
{
    struct vb_json *json = vb_json_create();

    vb_json_object(json, NULL);
    vb_json_text(json, "bench", "kernels");
    vb_json_text(json, "model", b->o->model);
    vb_json_int(json, "batch", b->o->batch);
    vb_json_text(json, "layer", pass < PASSES ? "rows" : "all");
    vb_json_text(json, "pass", lines[pass].pass);
    vb_json_text(json, "backend", lines[pass].backend);
    vb_json_real(json, "ms", ms);
    vb_json_real(json, "ns_entry", ns);
    vb_json_bool(json, "chosen", lines[pass].chosen);
    vb_json_int(json, "threads", b->o->threads);
    vb_json_int(json, "features", b->o->features);
    vb_json_real(json, "off_rms",
                 pass < PASSES ? b->off[pass] : fmax(b->off[FORWARD], b->off[UPDATE]));
    vb_json_end(json);
    if (vb_json_print(json, stdout) == VB_OK)
        fflush(stdout);
    vb_json_destroy(json);
}

/* PASSES: the sum of the model's own passes. */
static void print(const struct sparse_bench *b, enum pass pass, double ms, double ns)
{
    if (b->o->json) {
        print_json(b, pass, ms, ns);
        return;
    }
    printf("%-9s %-11s %10.3f %9.1f  %s\n", lines[pass].pass, lines[pass].backend, ms, ns,
           lines[pass].chosen ? "*" : "");
    fflush(stdout);
}

static vb_status measure_all(struct sparse_bench *b)
{
    double ms, ns, all_ms = 0, all_ns = 0;
    vb_status st = VB_OK;
    int pass;

    if (!b->o->json)
        printf("# %s, batch %d, %d threads, %d features, adagrad; an entry is a number of a "
               "row that is not 0\n%-9s %-11s %10s %9s  %s\n",
               b->o->model, b->o->batch, b->o->threads, b->o->features, "pass", "backend", "ms",
               "ns/entry", "chosen");
    for (pass = 0; pass < PASSES && st == VB_OK; pass++) {
        st = measure(b, (enum pass)pass, &ms, &ns);
        if (st != VB_OK)
            break;
        print(b, (enum pass)pass, ms, ns);
        if (lines[pass].chosen) {
            all_ms += ms;
            all_ns += ns;
        }
    }
    if (st == VB_OK)
        print(b, PASSES, all_ms, all_ns);
    return st;
}

vb_status vb_bench_kernels_sparse(const struct vb_bench_kernels *o)
{
    struct sparse_bench b = {.o = o};
    vb_status st = make_rows(&b);

    if (st == VB_OK)
        st = make_model(&b);
    if (st == VB_OK)
        st = compare(&b);
    if (st == VB_OK)
        st = measure_all(&b);
    close_bench(&b);
    return st;
}
