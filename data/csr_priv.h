/* SPDX-License-Identifier: MIT
 *
 * The format of a .csr file, which docs/data.md describes. All words of a row lie together,
 * because rows are read in any order, and the time depends on the number of cache lines. Each
 * block has its own checksum, so that a file larger than memory can be checked block by block.
 */
#ifndef VB_DATA_CSR_PRIV_H
#define VB_DATA_CSR_PRIV_H

#include "data/data_priv.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error ".csr files are mapped as they are: this machine would have to swap bytes"
#endif

#define CSR_MAGIC "VBCSR\r\n\x1a"
#define CSR_VERSION 2
#define CSR_BLOCK_ROWS 8192
/* a block ends with the row that reaches this number of nonzeros */
#define CSR_BLOCK_NNZ (1u << 22)

struct csr_head {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* checksum of this header, computed with crc = 0 */
    uint64_t rows, nonzeros, positive;
    uint32_t features, row_max;
    uint64_t table; /* the offset of the table in the file */
    uint32_t n_blocks;
    uint32_t table_crc;
};

struct csr_block {
    uint64_t offset;
    uint64_t first; /* the number of the block's first row */
    uint32_t n, nnz;
    uint32_t crc;
    uint32_t words;
};

_Static_assert(sizeof(struct csr_head) == 64, "no padding");
_Static_assert(sizeof(struct csr_block) == 32, "no padding");

static inline uint64_t csr_block_bytes(const struct csr_block *b)
{
    return (((uint64_t)b->n + 1 + b->words) * 4 + 7) / 8 * 8;
}

static inline uint32_t csr_head_crc(struct csr_head head)
{
    head.crc = 0;
    return vb_crc32c(0, &head, sizeof(head));
}

#endif
