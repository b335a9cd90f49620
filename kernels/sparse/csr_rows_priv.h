/* SPDX-License-Identifier: MIT
 *
 * The rows of a batch, and a hash for small tables of features.
 */
#ifndef VB_KERNELS_SPARSE_CSR_ROWS_PRIV_H
#define VB_KERNELS_SPARSE_CSR_ROWS_PRIV_H

#include "kernels/kernels.h"

struct csr_row {
    const uint32_t *index;
    const float *value; /* NULL: all values are 1 */
    size_t n;
};

static inline void csr_bounds(const struct vb_k_csr *m, size_t i, uint64_t *first_p,
                              uint64_t *end_p)
{
    size_t r = m->rows != NULL ? m->rows[i] : i;

    *first_p = m->offset[r];
    *end_p = m->offset[r + 1];
}

static inline struct csr_row csr_row_at(const struct vb_k_csr *m, size_t i)
{
    uint64_t first, end;

    csr_bounds(m, i, &first, &end);
    return (struct csr_row){
        .index = m->index + first,
        .value = m->value != NULL ? m->value + first : NULL,
        .n = (size_t)(end - first),
    };
}

/* Returns a hash of key below 2^bits. Neighbouring keys get hashes that are far apart. */
static inline uint32_t csr_hash(uint32_t key, int bits)
{
    return key * 0x9e3779b1u >> (32 - bits);
}

#endif
