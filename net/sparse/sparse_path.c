/* SPDX-License-Identifier: MIT
 *
 * Chooses the path of a call: the lists are summed as lists (sparse path), or as vectors of all
 * features with the allreduce of coll/ (dense path). This file also has the dense path.
 * docs/collectives.md explains the cost model, and why both paths give the same bits.
 */
#include "net/sparse/sparse_priv.h"

#include <math.h>
#include <stdlib.h>

#define NOTES 8
#define TURN_NS 50000 /* how long a note waits for a core if ranks share cores */
#define PUTS 4
#define FIRST_BYTES ((size_t)16 * 1024) /* length of the first put */
#define SLOW_NS 5e6 /* if the first put takes this long, the other puts have the same length */
#define COPY_BYTES ((size_t)8 << 20) /* larger than the caches of a core */
#define MERGE_WORDS ((size_t)8192)
/* Estimates for writing or reading a word of a vector, and for fetching its cache line, as
 * multiples of the time to merge a word. They matter little. */
#define WORD_MERGES 0.25
#define LINE_MERGES 1.5
#define ABSENT 0x80000000u
#define STRIDE 16 /* number of floats in a cache line */
/* In an elastic group the vector is created at the start if it has at most so many bytes. */
#define DENSE_BYTES ((uint64_t)64 << 20)

/* ---- measuring ------------------------------------------------------------------------------- */

static vb_status answer_probes(struct vb_sparse *s, int rank)
{
    vb_status st = VB_OK;
    uint32_t i;

    for (i = 0; i < NOTES + PUTS && st == VB_OK; i++) {
        st = vb_sparse_wait_probe(s, rank, i + 1);
        if (st == VB_OK)
            st = vb_sparse_put_probe(s, rank, 0);
    }
    return st;
}

/* Returns the time of the fastest of n round trips. */
static vb_status time_probes(struct vb_sparse *s, int rank, size_t len, uint32_t n, double *ns_p)
{
    uint32_t i, came = s->peers[rank].probes;
    vb_status st = VB_OK;
    double ns, best = 0;
    uint64_t start;

    for (i = 1; i <= n && st == VB_OK; i++) {
        start = vb_clock_ns();
        st = vb_sparse_put_probe(s, rank, len);
        if (st == VB_OK)
            st = vb_sparse_wait_probe(s, rank, came + i);
        ns = (double)(vb_clock_ns() - start);
        if (i == 1 || ns < best)
            best = ns;
    }
    *ns_p = best;
    return st;
}

/* Measures notes and puts to a rank. On a very slow link all puts are short, because during long
 * puts the peer would seem silent. */
static vb_status measure_puts(struct vb_sparse *s, int rank)
{
    double note, first = 0, put = 0;
    size_t len = FIRST_BYTES;
    vb_status st = time_probes(s, rank, 0, NOTES, &note);

    if (st == VB_OK)
        st = time_probes(s, rank, len, 1, &first);
    if (first < SLOW_NS)
        len = SPARSE_PROBE_BYTES;
    if (st == VB_OK)
        st = time_probes(s, rank, len, PUTS - 1, &put);
    s->model.note_ns = vb_group_options(s->group)->crowded ? fmax(note / 2, TURN_NS) : note / 2;
    s->model.put_ns_byte = fmax(put - note, 1) / (double)len;
    return st;
}

static vb_status measure_copy(struct sparse_model *model)
{
    char *buf = vb_alloc_aligned(2 * COPY_BYTES);
    uint64_t start;
    double best = 0, ns;
    int i;

    if (buf == NULL)
        return vb_err_sys("aligned_alloc");
    for (i = 0; i < 3; i++) { /* the first copy also creates the pages */
        start = vb_clock_ns();
        memcpy(buf + COPY_BYTES, buf, COPY_BYTES);
        __asm__ volatile("" ::"r"(buf) : "memory");
        ns = (double)(vb_clock_ns() - start);
        if (i == 0 || ns < best)
            best = ns;
        buf[i] = (char)i;
    }
    model->copy_ns_byte = best / (double)COPY_BYTES;
    free(buf);
    return VB_OK;
}

/* Times the merging of two lists that interleave at random and share some indices. */
static vb_status measure_merge(struct sparse_model *model)
{
    uint64_t *a = vb_alloc_aligned(4 * MERGE_WORDS * sizeof(*a)), *b, *out, start;
    uint32_t x = 1, y = 1, seed = 1, round;
    double best = 0, ns;
    size_t i;

    if (a == NULL)
        return vb_err_sys("aligned_alloc");
    b = a + MERGE_WORDS;
    out = b + MERGE_WORDS;
    for (i = 0; i < MERGE_WORDS; i++) {
        seed = seed * 1664525u + 1013904223u;
        a[i] = word_of(x += 1 + (seed >> 28), vb_float_bits(1.0f));
        b[i] = word_of(y += 1 + (seed >> 24 & 15), vb_float_bits(2.0f));
    }
    for (round = 0; round < 3; round++) {
        struct sparse_run runs[2] = {{a, MERGE_WORDS}, {b, MERGE_WORDS}};

        start = vb_clock_ns();
        vb_sparse_sum_runs(runs, 2, out, out, out);
        ns = (double)(vb_clock_ns() - start);
        if (round == 0 || ns < best)
            best = ns;
    }
    model->merge_ns_word = best / (2.0 * (double)MERGE_WORDS);
    free(a);
    return VB_OK;
}

/* Returns the maximum number of words of a list that is sent with its head (docs/collectives.md).
 * The estimate assumes that the sums have half as many words as all lists together. */
static uint64_t along_words(const struct vb_sparse *s)
{
    const struct sparse_model *m = &s->model;
    double n = s->world, merging, putting, words;
    int r;

    for (r = 1; r < s->world; r++)
        if (s->peers[r].mapped != NULL)
            return 0; /* mapped lists are read in place instead */
    if (s->world < 2 || s->opts.path == VB_SPARSE_DENSE)
        return 0;
    merging = (n - 1) * ceil(log2(n)) * m->merge_ns_word;
    putting = 8 * (n - 1) * (0.5 - 1 / n) * m->put_ns_byte;
    words = 2 * m->note_ns / (merging + putting);
    return words < (double)s->limits.max_along ? (uint64_t)words : s->limits.max_along;
}

/* Rank 0 uses the link to the last rank, which is usually on another host if there are several. */
vb_status vb_sparse_measure(struct vb_sparse *s)
{
    int far = s->world - 1;
    vb_status st = VB_OK;

    if (s->rank == 0) {
        st = measure_copy(&s->model);
        if (st == VB_OK)
            st = measure_merge(&s->model);
        if (st == VB_OK && far > 0)
            st = measure_puts(s, far);
        s->model.along = along_words(s);
    } else if (s->rank == far) {
        st = answer_probes(s, 0);
    }
    if (st == VB_OK)
        st = vb_group_broadcast(s->group, 0, &s->model, sizeof(s->model));
    if (st == VB_OK && s->model.along > s->limits.max_along)
        st = vb_err(VB_ERR_INPUT,
                    "%s: rank 0 (%s) allows lists of %llu words inside the heads of messages, but "
                    "the maximum is %llu",
                    s->what, vb_group_host(s->group, 0), (unsigned long long)s->model.along,
                    (unsigned long long)s->limits.max_along);
    s->wire_bytes = 0;
    return st;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* All lists are sent with their heads: there is one round, and each rank merges all lists. */
static double predict_along(const struct vb_sparse *s, double total, double longest)
{
    const struct sparse_model *m = &s->model;
    double n = s->world, union_n = fmin(total, (double)s->opts.features);

    return m->note_ns + 8 * (n - 1) * longest * m->put_ns_byte +
           total * fmax(ceil(log2(n)), 1) * m->merge_ns_word +
           8 * (longest + union_n) * m->copy_ns_byte;
}

/* Each rank copies its list into the window, an owner receives and merges its range of all lists,
 * and all ranks receive the sums, which together have at most union_n words. */
static double predict_sparse(const struct vb_sparse *s, double total, double longest)
{
    const struct sparse_model *m = &s->model;
    double n = s->world, others = (n - 1) / n, union_n = fmin(total, (double)s->opts.features);
    double moved = 8 * others * (longest + union_n);
    double merged = total / n * fmax(ceil(log2(n)), 1);

    return 3 * m->note_ns + moved * m->put_ns_byte + merged * m->merge_ns_word +
           8 * (longest + union_n) * m->copy_ns_byte;
}

/* Predicts the time of writing n words to a vector, or of reading them. */
static double predict_scatter(const struct vb_sparse *s, double n)
{
    double lines = fmin(n, (double)s->opts.features / STRIDE);

    return (n * WORD_MERGES + lines * LINE_MERGES) * s->model.merge_ns_word;
}

/* The list is written to the vector, all features are sent and received at no more than the speed
 * of memory, and the sum is read once to collect the result. */
static double predict_dense(const struct vb_sparse *s, double total, double longest)
{
    const struct sparse_model *m = &s->model;
    double n = s->world, others = (n - 1) / n, bytes = 4 * (double)s->opts.features;
    double union_n = fmin(total, (double)s->opts.features);
    double byte = fmax(m->put_ns_byte, m->copy_ns_byte);

    return 2 * m->note_ns + 2 * others * bytes * byte + bytes * m->copy_ns_byte +
           predict_scatter(s, longest) + predict_scatter(s, union_n);
}

double vb_sparse_predict_ns(const struct vb_sparse *s, enum vb_sparse_path path)
{
    double total = 0, longest = 0;
    int r;

    for (r = 0; r < s->world; r++) {
        total += (double)s->heads[r]->n;
        longest = fmax(longest, (double)s->heads[r]->n);
    }
    if (path == VB_SPARSE_DENSE)
        return predict_dense(s, total, longest);
    if (vb_sparse_all_along(s))
        return predict_along(s, total, longest);
    return predict_sparse(s, total, longest);
}

enum vb_sparse_path vb_sparse_choose(const struct vb_sparse *s)
{
    if (s->opts.path != VB_SPARSE_AUTO)
        return s->opts.path;
    if (s->dense == NULL && vb_group_options(s->group)->elastic)
        return VB_SPARSE_SPARSE;
    return vb_sparse_predict_ns(s, VB_SPARSE_DENSE) < vb_sparse_predict_ns(s, VB_SPARSE_SPARSE)
               ? VB_SPARSE_DENSE
               : VB_SPARSE_SPARSE;
}

struct vb_coll_link vb_sparse_link(const struct vb_sparse *s)
{
    const struct sparse_model *m = &s->model;
    int next = s->world > 1 ? (s->rank + 1) % s->world : s->rank;

    return (struct vb_coll_link){.latency_us = m->note_ns / 1e3,
                                 .gb_s = m->put_ns_byte > 0 ? 1 / m->put_ns_byte : 0,
                                 .sum_gb_s = m->merge_ns_word > 0 ? 8 / m->merge_ns_word : 0,
                                 .mapped = s->peers[next].mapped != NULL};
}

/* ---- the dense path -------------------------------------------------------------------------- */

static void dense_clear(struct vb_sparse *s)
{
    float *data = vb_coll_data(s->dense);
    size_t i;

    for (i = 0; i < (size_t)s->opts.features; i++)
        data[i] = vb_bits_float(ABSENT);
    s->dense_torn = false;
}

static vb_status dense_open(struct vb_sparse *s)
{
    struct vb_coll_opts opts = {.order = VB_ORDER_RANK, .wire = VB_WIRE_F32, .in_flight = 1};
    vb_status st =
        vb_coll_open(s->group, (size_t)s->opts.features * sizeof(float), &opts, &s->dense);

    if (st == VB_OK)
        dense_clear(s);
    return st;
}

/* In an elastic group windows cannot be created later: a rank could die meanwhile, and the others
 * would disagree on which windows exist. */
vb_status vb_sparse_open_dense(struct vb_sparse *s)
{
    bool wanted =
        s->opts.path == VB_SPARSE_DENSE ||
        (s->opts.path == VB_SPARSE_AUTO && s->opts.features * sizeof(float) <= DENSE_BYTES);

    return wanted && vb_group_options(s->group)->elastic ? dense_open(s) : VB_OK;
}

void vb_sparse_mend_dense(struct vb_sparse *s)
{
    if (s->dense_torn)
        dense_clear(s);
}

/* Appends the values of one stride that are not absent to the result, and resets them to absent. */
static bool take_stride(struct vb_sparse *s, float *data, size_t first, size_t end, float divisor,
                        size_t *at_p)
{
    size_t i;

    for (i = first; i < end; i++) {
        if (vb_float_bits(data[i]) == ABSENT)
            continue;
        if (*at_p == s->room)
            return false;
        s->index[*at_p] = (uint32_t)i;
        s->value[(*at_p)++] = vb_sparse_round(data[i], divisor);
        data[i] = vb_bits_float(ABSENT);
    }
    return true;
}

static bool all_absent(const float *data)
{
    uint32_t other = 0;
    int i;

    for (i = 0; i < STRIDE; i++)
        other |= vb_float_bits(data[i]) ^ ABSENT;
    return other == 0;
}

/* Collects the result from the vector. Most strides have only absent values and are not written. */
static vb_status collect(struct vb_sparse *s, float *data, float divisor, size_t *n_p)
{
    size_t n = (size_t)s->opts.features, i, end;

    *n_p = 0;
    for (i = 0; i < n; i = end) {
        end = n - i < STRIDE ? n : i + STRIDE;
        if (end - i == STRIDE && all_absent(data + i))
            continue;
        if (!take_stride(s, data, i, end, divisor, n_p))
            break;
    }
    if (i < n)
        return vb_sparse_fail(s, vb_err(VB_ERR_INPUT,
                                        "%s: the sum has more elements than the %zu that all ranks "
                                        "together may bring",
                                        s->what, s->room));
    return VB_OK;
}

vb_status vb_sparse_dense_sum(struct vb_sparse *s, float divisor, size_t *n_p)
{
    size_t n = s->heads[s->rank]->n, i;
    const uint64_t *list = sparse_list(s);
    vb_status st = VB_OK;
    struct vb_req req;
    float *data;

    if (s->dense == NULL)
        st = dense_open(s);
    if (st != VB_OK)
        return vb_sparse_fail(s, st);
    data = vb_coll_data(s->dense);
    s->dense_torn = true;
    for (i = 0; i < n; i++)
        data[word_index(list[i])] = vb_bits_float((uint32_t)list[i]);
    st = vb_allreduce_start(s->dense, 0, (size_t)s->opts.features, VB_REDUCE_SUM, &req);
    if (st == VB_OK)
        st = vb_wait(s->dense, &req);
    if (st != VB_OK) {
        (void)vb_err(st, "%s failed in its dense allreduce", s->what);
        return vb_sparse_fail(s, st);
    }
    st = collect(s, data, divisor, n_p);
    s->dense_torn = st != VB_OK;
    return st;
}
