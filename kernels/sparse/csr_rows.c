/* SPDX-License-Identifier: MIT
 *
 * Computes the products of sparse rows and a vector of weights, forward and backward. Most time is
 * spent waiting for memory. So the weights of a row are prefetched while the row AHEAD places
 * before it is computed, its indices and values even earlier. After the forward pass, the weights
 * of a small batch are in a cache, so the backward pass prefetches only for large batches.
 *
 * The entries of a row are added in four sums, by position modulo 4, to hide latency, and then as
 * (0 + 1) + (2 + 3): the order depends on the row alone. A row that was grouped into parts is
 * treated as two such rows, one for each half of the features.
 */
#include "kernels/sparse/csr_rows_priv.h"

#include <omp.h>

#define AHEAD 2
#define LINE_FLOATS (VB_CACHE_LINE / sizeof(float))
#define HALF (VB_K_CSR_PARTS / 2)
#define SHORT 128 /* largest number of entries in a short row */
/* With fewer rows a team would be slower, and the second-level cache holds all their weights. */
#define FAR_ROWS 256

/* Returns true if all indices are below features; always false above 2^31 features. An index that
 * is too large sets the highest bit: the x86 baseline cannot compare unsigned vectors. */
static bool are_below(const uint32_t *index, size_t n, uint64_t features)
{
    uint32_t last = (uint32_t)features - 1, bits = 0;
    size_t j;

    if (features > (uint64_t)INT32_MAX + 1)
        return false;
    for (j = 0; j < n; j++)
        bits |= index[j] | (last - index[j]);
    return bits >> 31 == 0;
}

/* Returns true if the batch is the whole matrix and all its rows, checked as one, are valid. */
static bool is_plainly_right(const struct vb_k_csr *m, uint64_t features)
{
    bool in_order = m->n > 0 && m->rows == NULL && m->n == m->n_rows && m->offset[0] == 0;
    size_t i;

    for (i = 0; i < m->n && in_order; i++)
        in_order = m->offset[i] <= m->offset[i + 1];
    return in_order && m->offset[m->n] == m->nnz && are_below(m->index, m->nnz, features);
}

static vb_status check_row(const struct vb_k_csr *m, size_t i, uint64_t features)
{
    size_t r = m->rows != NULL ? m->rows[i] : i, j;
    struct csr_row row;

    if (r >= m->n_rows)
        return vb_err(
            VB_ERR_INPUT,
            "row %zu of the batch is row %zu of the matrix, but the matrix has only %zu rows", i, r,
            m->n_rows);
    if (m->offset[r] > m->offset[r + 1] || m->offset[r + 1] > m->nnz)
        return vb_err(VB_ERR_INPUT,
                      "row %zu has entries %llu to %llu, but the matrix has only %llu entries", r,
                      (unsigned long long)m->offset[r], (unsigned long long)m->offset[r + 1],
                      (unsigned long long)m->nnz);
    row = csr_row_at(m, i);
    for (j = 0; j < row.n; j++)
        if (row.index[j] >= features)
            return vb_err(VB_ERR_INPUT,
                          "row %zu: index %u is not below %llu, the number of features", r,
                          row.index[j], (unsigned long long)features);
    return VB_OK;
}

vb_status vb_k_csr_check(const struct vb_k_csr *m, uint64_t features)
{
    vb_status st = VB_OK;
    size_t i;

    if (is_plainly_right(m, features))
        return VB_OK;
    for (i = 0; i < m->n && st == VB_OK; i++)
        st = check_row(m, i, features);
    return st;
}

struct span {
    size_t first, end;
};

static struct span share(size_t n, size_t me, size_t team)
{
    return (struct span){n * me / team, n * (me + 1) / team};
}

/* gcc 12 drops calls of a function that only prefetches, unless it is always inlined. */
#define ALWAYS static inline __attribute__((always_inline))

/* Prefetches a weight to the second-level cache, which can wait for more lines than the first-level
 * cache. On x86 the first-level cache is not slower, and faster for small batches. */
ALWAYS void fetch_weight(const float *w)
{
#ifdef __x86_64__
    __builtin_prefetch(w);
#else
    __builtin_prefetch(w, 0, 2);
#endif
}

ALWAYS void fetch_weights(struct csr_row row, size_t j, const float *w)
{
    for (; j < row.n; j++)
        fetch_weight(w + row.index[j]);
}

ALWAYS void fetch_lines(const void *first, size_t len)
{
    const char *at = first, *end = at + len;

    for (; at < end; at += VB_CACHE_LINE)
        __builtin_prefetch(at);
    __builtin_prefetch(end - 1);
}

ALWAYS void fetch_lists(struct csr_row row)
{
    fetch_lines(row.index, row.n * sizeof(*row.index));
    if (row.value != NULL)
        fetch_lines(row.value, row.n * sizeof(*row.value));
}

/* Prefetches the lists of a later row, and the offset of an even later one, both before last. */
ALWAYS void fetch_row(const struct vb_k_csr *m, size_t i, size_t last)
{
    if (i + 6 * AHEAD < last && m->rows != NULL)
        __builtin_prefetch(m->offset + m->rows[i + 6 * AHEAD]);
    if (i + 3 * AHEAD < last)
        fetch_lists(csr_row_at(m, i + 3 * AHEAD));
}

static const uint32_t nothing[1];
static const struct csr_row no_row = {.index = nothing};

/* Returns the entries of row i that belong to the parts first to end - 1. */
static inline struct csr_row part_of(const struct vb_k_csr *m, size_t i, size_t first, size_t end)
{
    const struct vb_k_csr_parts *parts = m->parts + (m->rows != NULL ? m->rows[i] : i);
    uint32_t skip = first > 0 ? parts->ends[first - 1] : 0;
    uint64_t from = parts->first + skip;

    return (struct csr_row){
        .index = m->index + from,
        .value = m->value != NULL ? m->value + from : NULL,
        .n = parts->ends[end - 1] - skip,
    };
}

/* Does the same as fetch_row() for the parts first to end - 1. */
ALWAYS void fetch_part(const struct vb_k_csr *m, size_t i, size_t last, size_t first, size_t end)
{
    struct csr_row row;

    if (i + 6 * AHEAD < last && m->rows != NULL)
        __builtin_prefetch(m->parts + m->rows[i + 6 * AHEAD]);
    if (i + 3 * AHEAD < last) {
        row = part_of(m, i + 3 * AHEAD, first, end);
        if (row.n > 0)
            fetch_lists(row);
    }
}

ALWAYS float entry(struct csr_row row, const float *w, size_t j)
{
    return row.value != NULL ? w[row.index[j]] * row.value[j] : w[row.index[j]];
}

/* Returns the product of a row and its weights. Prefetches the weights of next in between, which is
 * faster than prefetching them all at once. */
ALWAYS float dot(struct csr_row row, struct csr_row next, const float *w)
{
    size_t j, n = row.n < next.n ? row.n : next.n;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const uint32_t *soon = next.index;

    for (j = 0; j + 4 <= n; j += 4) {
        fetch_weight(w + soon[j]);
        s0 += entry(row, w, j);
        fetch_weight(w + soon[j + 1]);
        s1 += entry(row, w, j + 1);
        fetch_weight(w + soon[j + 2]);
        s2 += entry(row, w, j + 2);
        fetch_weight(w + soon[j + 3]);
        s3 += entry(row, w, j + 3);
    }
    fetch_weights(next, j, w);
    for (; j + 4 <= row.n; j += 4) {
        s0 += entry(row, w, j);
        s1 += entry(row, w, j + 1);
        s2 += entry(row, w, j + 2);
        s3 += entry(row, w, j + 3);
    }
    if (j < row.n)
        s0 += entry(row, w, j);
    if (j + 1 < row.n)
        s1 += entry(row, w, j + 1);
    if (j + 2 < row.n)
        s2 += entry(row, w, j + 2);
    return (s0 + s1) + (s2 + s3);
}

/* Returns the product of a row and its weights, with its own loop if the row has no values. */
ALWAYS float product(struct csr_row row, struct csr_row next, const float *w)
{
    if (row.value != NULL)
        return dot(row, next, w);
    return dot((struct csr_row){row.index, NULL, row.n}, next, w);
}

static void forward_rows(const struct vb_k_csr *m, struct span rows, size_t last, const float *w,
                         float bias, float *logits)
{
    struct csr_row next;
    size_t i;

    for (i = rows.first; i < rows.end; i++) {
        fetch_row(m, i, last);
        next = i + AHEAD < last ? csr_row_at(m, i + AHEAD) : no_row;
        logits[i] = product(csr_row_at(m, i), next, w) + bias;
    }
}

/* Computes the logits of grouped rows. Each row has two sums, one for each half of the features. */
static void forward_halves(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
    size_t i, last = m->n + m->ahead;
    struct csr_row next;
    float sum;

    for (i = 0; i < m->n; i++) {
        fetch_part(m, i, last, 0, VB_K_CSR_PARTS);
        next = i + AHEAD < last ? part_of(m, i + AHEAD, 0, VB_K_CSR_PARTS) : no_row;
        sum = product(part_of(m, i, 0, HALF), next, w);
        logits[i] = sum + product(part_of(m, i, HALF, VB_K_CSR_PARTS), no_row, w) + bias;
    }
}

/* Computes the sums of half h of the features, for some rows. Stores the sums in logits if put is
 * set; otherwise adds them to the other half, which is there already. */
static void forward_half(const struct vb_k_csr *m, size_t h, struct span rows, const float *w,
                         bool put, float bias, float *logits)
{
    size_t first = h * HALF, end = first + HALF, last = m->n + m->ahead, i;
    struct csr_row next;
    float sum;

    for (i = rows.first; i < rows.end; i++) {
        fetch_part(m, i, last, first, end);
        next = i + AHEAD < last ? part_of(m, i + AHEAD, first, end) : no_row;
        sum = product(part_of(m, i, first, end), next, w);
        logits[i] = put ? sum : logits[i] + sum + bias;
    }
}

/* Threads work in pairs, and each pair has its own rows. In a pair, each thread has the half of the
 * features that it also updates in the backward pass, so these are in its own cache. The two start
 * from opposite ends of the rows, so logits needs one element for the two sums of a row. */
static void forward_pairs(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
#pragma omp parallel
    {
        size_t team = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
        size_t paired = team - team % 2;

        if (team == 1)
            forward_halves(m, w, bias, logits);
        if (me < paired)
            forward_half(m, me % 2, share(m->n, me, paired), w, true, 0, logits);
#pragma omp barrier
        if (me < paired)
            forward_half(m, me % 2, share(m->n, me ^ 1, paired), w, false, bias, logits);
    }
}

static void forward_shares(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
#pragma omp parallel
    {
        size_t team = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
        struct span rows = share(m->n, me, team);

        forward_rows(m, rows, rows.end + (me + 1 < team ? 0 : m->ahead), w, bias, logits);
    }
}

void vb_k_csr_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
    bool few = m->n < FAR_ROWS; /* even starting a team of one thread takes as long as a row */

    if (m->parts != NULL && few)
        forward_halves(m, w, bias, logits);
    else if (m->parts != NULL)
        forward_pairs(m, w, bias, logits);
    else if (few)
        forward_rows(m, (struct span){0, m->n}, m->n + m->ahead, w, bias, logits);
    else
        forward_shares(m, w, bias, logits);
}

/* Adds d times a row to the weights, and prefetches the weights of next in between. */
ALWAYS void add_row(struct csr_row row, struct csr_row next, float d, float *w)
{
    size_t j, n = row.n < next.n ? row.n : next.n;
    const uint32_t *k = row.index;
    const float *x = row.value;

    for (j = 0; j < n; j++) {
        fetch_weight(w + next.index[j]);
        w[k[j]] += x != NULL ? d * x[j] : d;
    }
    fetch_weights(next, n, w);
    for (; j + 4 <= row.n; j += 4) {
        w[k[j]] += x != NULL ? d * x[j] : d;
        w[k[j + 1]] += x != NULL ? d * x[j + 1] : d;
        w[k[j + 2]] += x != NULL ? d * x[j + 2] : d;
        w[k[j + 3]] += x != NULL ? d * x[j + 3] : d;
    }
    for (; j < row.n; j++)
        w[k[j]] += x != NULL ? d * x[j] : d;
}

ALWAYS void add(struct csr_row row, struct csr_row next, float d, float *w)
{
    if (row.value != NULL)
        add_row(row, next, d, w);
    else
        add_row((struct csr_row){row.index, NULL, row.n}, next, d, w);
}

/* Processes a batch whose weights do not fit into the cache. */
static void add_far(const struct vb_k_csr *m, const float *d, float scale, float *w)
{
    size_t i;

    for (i = 0; i < m->n; i++) {
        fetch_row(m, i, m->n);
        add(csr_row_at(m, i), i + AHEAD < m->n ? csr_row_at(m, i + AHEAD) : no_row, scale * d[i],
            w);
    }
}

/* Does the same for the parts first to end - 1 only. */
static void add_parts(const struct vb_k_csr *m, const float *d, float scale, float *w, size_t first,
                      size_t end)
{
    struct csr_row next;
    size_t i;

    for (i = 0; i < m->n; i++) {
        fetch_part(m, i, m->n, first, end);
        next = i + AHEAD < m->n ? part_of(m, i + AHEAD, first, end) : no_row;
        add(part_of(m, i, first, end), next, scale * d[i], w);
    }
}

/* Threads divide the features, not the rows. Each feature is then summed in the order of the rows
 * for any number of threads, and no two threads write to the same cache line. */
static void add_shares(const struct vb_k_csr *m, const float *d, float scale, float *w)
{
#pragma omp parallel
    {
        struct span parts =
            share(VB_K_CSR_PARTS, (size_t)omp_get_thread_num(), (size_t)omp_get_num_threads());

        if (parts.first < parts.end)
            add_parts(m, d, scale, w, parts.first, parts.end);
    }
}

void vb_k_csr_add(const struct vb_k_csr *m, const float *d, float scale, float *w)
{
    size_t i;

    if (m->n < FAR_ROWS)
        for (i = 0; i < m->n; i++) /* the weights are in the cache */
            add(csr_row_at(m, i), no_row, scale * d[i], w);
    else if (m->parts != NULL)
        add_shares(m, d, scale, w);
    else
        add_far(m, d, scale, w);
}

/* Returns the part of a feature. All features of a cache line are in one part. Frequent features,
 * which may be neighbours, are spread over the parts. */
static inline size_t part_with(uint32_t key)
{
    uint32_t at = csr_hash((uint32_t)(key / LINE_FLOATS), 16);

    return at * VB_K_CSR_PARTS >> 16;
}

/* Moves the entries of one part to the front, from first on. All keep their order. */
static size_t move_up(uint32_t *index, float *value, size_t first, size_t n, size_t part)
{
    uint32_t key;
    size_t j, k;
    float x;

    for (j = first; j < n; j++) {
        if (part_with(index[j]) != part)
            continue;
        key = index[j];
        x = value != NULL ? value[j] : 0;
        for (k = j; k > first; k--) {
            index[k] = index[k - 1];
            if (value != NULL)
                value[k] = value[k - 1];
        }
        index[first] = key;
        if (value != NULL)
            value[first] = x;
        first++;
    }
    return first;
}

/* Sorts all entries of a short row by part: counts the entries of each part, then copies. */
static void scatter(uint32_t *index, float *value, size_t n, uint32_t *ends)
{
    uint32_t at[VB_K_CSR_PARTS + 1] = {0}, keys[SHORT] = {0};
    float values[SHORT] = {0};
    size_t j, p, to;

    for (j = 0; j < n; j++)
        at[part_with(index[j]) + 1]++;
    for (p = 0; p < VB_K_CSR_PARTS; p++)
        ends[p] = at[p + 1] += at[p];
    for (j = 0; j < n; j++) {
        to = at[part_with(index[j])]++;
        keys[to] = index[j];
        if (value != NULL)
            values[to] = value[j];
    }
    memcpy(index, keys, n * sizeof(*index));
    if (value != NULL)
        memcpy(value, values, n * sizeof(*value));
}

void vb_k_csr_group(const uint64_t *offset, size_t n_rows, uint32_t *index, float *value,
                    struct vb_k_csr_parts *parts)
{
    size_t r, p, first, n;
    uint32_t *k;
    float *x;

    for (r = 0; r < n_rows; r++, parts++) {
        n = (size_t)(offset[r + 1] - offset[r]);
        k = index + offset[r];
        x = value != NULL ? value + offset[r] : NULL;
        parts->first = offset[r];
        if (n <= SHORT)
            scatter(k, x, n, parts->ends);
        else
            for (first = 0, p = 0; p < VB_K_CSR_PARTS; p++)
                parts->ends[p] = (uint32_t)(first = move_up(k, x, first, n, p));
    }
}
