/* SPDX-License-Identifier: MIT
 *
 * Rows of a sparse matrix times a vector of weights, and back.
 *
 * The weights are 135 MB and the rows name them at random, so time goes into waiting for memory. A
 * row's weights are prefetched while a row AHEAD before it is computed, its indices and values
 * twice as early. After the way forward the weights of the batch lie in the second cache, so the
 * way back prefetches nothing but the weights of the rows that come next.
 *
 * A row is added up in four sums, by position modulo 4, then (0 + 1) + (2 + 3): four chains of
 * additions hide each other's latency, and the order follows from the row alone.
 */
#include "kernels/kernels.h"

#include <omp.h>

#define AHEAD 2
#define LINE_FLOATS (VB_CACHE_LINE / sizeof(float))
#define PARALLEL_ROWS 256 /* below, waking the team costs more than it gains */

struct row {
    const uint32_t *index;
    const float *value; /* NULL: all 1 */
    size_t n;
};

static inline struct row row_at(const struct vb_k_csr *m, size_t i)
{
    size_t r = m->rows != NULL ? m->rows[i] : i;
    uint64_t first = m->offset[r];

    return (struct row){
        .index = m->index + first,
        .value = m->value != NULL ? m->value + first : NULL,
        .n = (size_t)(m->offset[r + 1] - first),
    };
}

/* ---- checking -------------------------------------------------------------------------------- */

static vb_status check_row(const struct vb_k_csr *m, size_t i, uint64_t features)
{
    size_t r = m->rows != NULL ? m->rows[i] : i, j;
    struct row row;
    uint32_t most = 0;

    if (r >= m->n_rows)
        return vb_err(VB_ERR_INPUT, "row %zu of the batch is row %zu of %zu", i, r, m->n_rows);
    if (m->offset[r] > m->offset[r + 1] || m->offset[r + 1] > m->nnz)
        return vb_err(VB_ERR_INPUT, "row %zu: entries %llu to %llu of %llu", r,
                      (unsigned long long)m->offset[r], (unsigned long long)m->offset[r + 1],
                      (unsigned long long)m->nnz);
    row = row_at(m, i);
    for (j = 0; j < row.n; j++)
        most = row.index[j] > most ? row.index[j] : most;
    if (row.n > 0 && most >= features)
        return vb_err(VB_ERR_INPUT, "row %zu: index %u is not below %llu, the number of features",
                      r, most, (unsigned long long)features);
    return VB_OK;
}

vb_status vb_k_csr_check(const struct vb_k_csr *m, uint64_t features)
{
    vb_status st = VB_OK;
    size_t i;

    for (i = 0; i < m->n && st == VB_OK; i++)
        st = check_row(m, i, features);
    return st;
}

/* ---- prefetching ----------------------------------------------------------------------------- */

/* Always inlined: gcc 12 takes a function that only prefetches for one without effect, and drops
 * the calls. */
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS void fetch_weights(struct row row, size_t j, const float *w)
{
    for (; j < row.n; j++)
        __builtin_prefetch(w + row.index[j], 1);
}

ALWAYS void fetch_lines(const void *first, size_t len)
{
    const char *at = first, *end = at + len;

    for (; at < end; at += VB_CACHE_LINE)
        __builtin_prefetch(at);
    __builtin_prefetch(end - 1);
}

ALWAYS void fetch_lists(struct row row)
{
    fetch_lines(row.index, row.n * sizeof(*row.index));
    if (row.value != NULL)
        fetch_lines(row.value, row.n * sizeof(*row.value));
}

/* The lists of a row that comes later; where it begins has to be known even earlier. last: the end
 * of the rows that may be looked at. */
ALWAYS void fetch_row(const struct vb_k_csr *m, size_t i, size_t last)
{
    if (i + 6 * AHEAD < last && m->rows != NULL)
        __builtin_prefetch(m->offset + m->rows[i + 6 * AHEAD]);
    if (i + 3 * AHEAD < last)
        fetch_lists(row_at(m, i + 3 * AHEAD));
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The sum of a row from entry j on. */
ALWAYS float rest(struct row row, const float *w, size_t j, float s[4])
{
    for (; j < row.n; j++)
        s[j % 4] += row.value != NULL ? w[row.index[j]] * row.value[j] : w[row.index[j]];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* One row; the weights of another are prefetched in between, which is faster than in a burst. */
ALWAYS float dot(struct row row, struct row next, const float *w)
{
    size_t j, n = (row.n < next.n ? row.n : next.n) & ~(size_t)3;
    const uint32_t *k = row.index, *soon = next.index;
    const float *x = row.value;
    float s[4] = {0};

    for (j = 0; j < n; j += 4) {
        __builtin_prefetch(w + soon[j], 1);
        s[0] += x != NULL ? w[k[j]] * x[j] : w[k[j]];
        __builtin_prefetch(w + soon[j + 1], 1);
        s[1] += x != NULL ? w[k[j + 1]] * x[j + 1] : w[k[j + 1]];
        __builtin_prefetch(w + soon[j + 2], 1);
        s[2] += x != NULL ? w[k[j + 2]] * x[j + 2] : w[k[j + 2]];
        __builtin_prefetch(w + soon[j + 3], 1);
        s[3] += x != NULL ? w[k[j + 3]] * x[j + 3] : w[k[j + 3]];
    }
    fetch_weights(next, n, w);
    return rest(row, w, n, s);
}

static void forward_rows(const struct vb_k_csr *m, size_t first, size_t end, size_t last,
                         const float *w, float bias, float *logits)
{
    const struct row none = {0};
    struct row row, next;
    size_t i;

    for (i = first; i < end; i++) {
        fetch_row(m, i, last);
        row = row_at(m, i);
        next = i + AHEAD < last ? row_at(m, i + AHEAD) : none;
        if (row.value != NULL)
            logits[i] = dot(row, next, w) + bias;
        else
            logits[i] = dot((struct row){row.index, NULL, row.n}, next, w) + bias;
    }
}

void vb_k_csr_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
    forward_rows(m, 0, m->n, m->n + m->ahead, w, bias, logits);
}

/* ---- backward -------------------------------------------------------------------------------- */

static inline void add_row(struct row row, float d, float *w)
{
    const uint32_t *k = row.index;
    const float *x = row.value;
    size_t j;

    if (x != NULL)
        for (j = 0; j < row.n; j++)
            w[k[j]] += d * x[j];
    else
        for (j = 0; j < row.n; j++)
            w[k[j]] += d;
}

void vb_k_csr_add(const struct vb_k_csr *m, const float *d, float scale, float *w)
{
    size_t i;

    for (i = 0; i < m->n; i++)
        add_row(row_at(m, i), scale * d[i], w);
}
