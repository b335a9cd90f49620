/* SPDX-License-Identifier: MIT
 *
 * The bytes of a checkpoint, as docs/checkpoint.md has them, and what its files share. All numbers
 * have the least significant byte first.
 *
 *   header    struct cp_head
 *   table     struct cp_entry for each array
 *   texts     options, then plan; then zeros up to a multiple of CP_ALIGN
 *   arrays    one after the other: the elements, uint32 CRC32C of each CP_CHUNK bytes of them,
 * zeros up to a multiple of CP_ALIGN end       struct cp_end
 */
#ifndef VB_CHECKPOINT_PRIV_H
#define VB_CHECKPOINT_PRIV_H

#include "engine/engine.h"

#include <limits.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are mapped as they are: this machine would have to swap bytes"
#endif

#define CP_MAGIC "VBCKPT\n\x1a"
#define CP_END_MAGIC "VBCKEND\n"
#define CP_VERSION 1
#define CP_ALIGN 64
#define CP_CHUNK ((size_t)1 << 20)

struct cp_head {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* of this header, with 0 here */
    uint64_t file_bytes;
    int64_t step;
    uint64_t seed;
    uint32_t n_arrays;
    uint32_t options_bytes, plan_bytes;
    uint32_t rest_crc; /* of table, texts and the zeros behind them */
    uint32_t chunk_bytes;
    uint32_t zero;
    char model[VB_CHECKPOINT_NAME];
};

struct cp_entry {
    char name[VB_CHECKPOINT_NAME];
    uint32_t type;
    uint32_t flags; /* CP_STATE */
    int64_t rows, cols;
    uint64_t offset;
};

#define CP_STATE 1u

struct cp_end {
    char magic[8];
    uint64_t file_bytes;
};

_Static_assert(sizeof(struct cp_head) == 96, "no padding");
_Static_assert(sizeof(struct cp_entry) == 64, "no padding");
_Static_assert(sizeof(struct cp_end) == 16, "no padding");

static inline uint64_t cp_align(uint64_t bytes)
{
    return (bytes + CP_ALIGN - 1) / CP_ALIGN * CP_ALIGN;
}

/* Where the first array begins. */
static inline uint64_t cp_front_bytes(const struct cp_head *h)
{
    return cp_align(sizeof(*h) + (uint64_t)h->n_arrays * sizeof(struct cp_entry) +
                    h->options_bytes + h->plan_bytes);
}

static inline uint64_t cp_n_chunks(uint64_t data_bytes)
{
    return (data_bytes + CP_CHUNK - 1) / CP_CHUNK;
}

/* Of an array with everything that belongs to it. */
static inline uint64_t cp_array_bytes(uint64_t data_bytes)
{
    return cp_align(data_bytes + cp_n_chunks(data_bytes) * sizeof(uint32_t));
}

static inline uint32_t cp_head_crc(struct cp_head head)
{
    head.crc = 0;
    return vb_crc32c(0, &head, sizeof(head));
}

/* What is wrong with a name, NULL: nothing. Names become file names, so a file must not choose them
 * freely: printable, no slash, no dot in front, zeros up to the end. */
const char *cp_wrong_name(const char name[VB_CHECKPOINT_NAME]);

/* The bytes of an array's elements. False if the shape is impossible or needs more than limit. */
bool cp_data_bytes(int64_t rows, int64_t cols, uint64_t limit, uint64_t *bytes_p);

/* vb_checkpoint_read() without the logging: why says, in one line, what is wrong where. */
#define CP_WHY (PATH_MAX + 128)
vb_status cp_load(const char *path, char why[CP_WHY], struct vb_checkpoint **cp_p);

/* dir/checkpoint-STEP.vbc. False if that is too long. */
bool cp_path(char path[PATH_MAX], const char *dir, int64_t step);

/* Removes what killed writers left in the folder. Failing is no error. */
void cp_remove_stale(const char *dir);

/* Removes checkpoints of steps before this one, but for the newest; with it, so many stay. */
void cp_remove_old(const char *dir, int64_t step, int keep);

#endif
