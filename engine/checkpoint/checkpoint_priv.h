/* SPDX-License-Identifier: MIT
 *
 * The format of a checkpoint, which docs/checkpoint.md describes, and declarations that the files
 * of engine/checkpoint/ share. All numbers are little-endian.
 *
 *   header    struct cp_head
 *   table     one struct cp_entry per array
 *   texts     options, then plan; then zeros up to a multiple of CP_ALIGN
 *   arrays    for each array: the elements; a CRC32C (uint32) of each chunk of CP_CHUNK bytes;
 *             zeros up to a multiple of CP_ALIGN
 *   end       struct cp_end
 */
#ifndef VB_ENGINE_CHECKPOINT_CHECKPOINT_PRIV_H
#define VB_ENGINE_CHECKPOINT_CHECKPOINT_PRIV_H

#include "engine/checkpoint/checkpoint.h"

#include <limits.h>
#include <stdatomic.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are little-endian and mapped as they are: this machine is big-endian"
#endif

#define CP_MAGIC "VBCKPT\n\x1a"
#define CP_END_MAGIC "VBCKEND\n"
#define CP_VERSION 1
#define CP_ALIGN 64
#define CP_CHUNK ((size_t)1 << 20)

struct cp_head {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* CRC32C of this header, computed with crc set to 0 */
    uint64_t file_bytes;
    int64_t step;
    uint64_t seed;
    uint32_t n_arrays;
    uint32_t options_bytes, plan_bytes;
    uint32_t rest_crc; /* CRC32C of the table, the texts and the zeros after them */
    uint32_t chunk_bytes;
    uint32_t zero;
    char model[VB_CHECKPOINT_NAME];
};

struct cp_entry {
    char name[VB_CHECKPOINT_NAME];
    uint32_t type;
    uint32_t flags; /* CP_STATE or 0 */
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

/* Returns the offset of the first array. */
static inline uint64_t cp_front_bytes(const struct cp_head *h)
{
    return cp_align(sizeof(*h) + (uint64_t)h->n_arrays * sizeof(struct cp_entry) +
                    h->options_bytes + h->plan_bytes);
}

static inline uint64_t cp_n_chunks(uint64_t data_bytes)
{
    return (data_bytes + CP_CHUNK - 1) / CP_CHUNK;
}

/* Returns the size of an array, including its checksums and the zeros after them. */
static inline uint64_t cp_array_bytes(uint64_t data_bytes)
{
    return cp_align(data_bytes + cp_n_chunks(data_bytes) * sizeof(uint32_t));
}

static inline uint32_t cp_head_crc(struct cp_head head)
{
    head.crc = 0;
    return vb_crc32c(0, &head, sizeof(head));
}

/* Returns a sentence that says what is wrong with a name, or NULL if the name is valid: see struct
 * vb_checkpoint_array. Names of arrays become file names. */
const char *vb_cp_wrong_name(const char name[VB_CHECKPOINT_NAME]);

/* Sets *bytes_p to the size of an array's elements. Returns false if the shape is impossible or
 * needs more than limit bytes. */
bool vb_cp_data_bytes(int64_t rows, int64_t cols, uint64_t limit, uint64_t *bytes_p);

/* Like vb_checkpoint_read(), but does not log errors. Instead the function writes one line to why,
 * with the offset of an error in the file. */
#define CP_WHY (PATH_MAX + 128)
vb_status vb_cp_load(const char *path, char why[CP_WHY], struct vb_checkpoint **cp_p);

/* Reads whose steps a checkpoint has, and checks only what that needs. Returns false, and logs
 * nothing, if that is not known. */
bool vb_cp_view(const char *path, struct vb_checkpoint_view *view_p);

/* The array of a view. The first borrows the view; the second returns false if the elements make no
 * sense, and sets *view_p to that of an unknown view. */
#define CP_VIEW "view"
#define CP_VIEW_WORDS 8
struct vb_checkpoint_array vb_cp_view_array(const struct vb_checkpoint_view *view);
bool vb_cp_view_take(const struct vb_checkpoint_array *a, struct vb_checkpoint_view *view_p);

/* How a thread that writes a checkpoint and the thread that waits for it talk to each other. */
struct cp_watch {
    _Atomic bool cancel;          /* the writer is to give up before it reads the next piece */
    char bad[VB_CHECKPOINT_NAME]; /* the parameter that is not finite; "": none was found */
};

/* Like vb_checkpoint_write(). With a watch, it fails if a parameter is not finite, and if the
 * folder has a checkpoint of a later view. */
vb_status vb_cp_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                      struct cp_watch *watch, double *seconds_p);

/* Sets path to "dir/checkpoint-STEP.vbc". Returns false if this path is too long. */
bool vb_cp_path(char path[PATH_MAX], const char *dir, int64_t step);

/* Removes the temporary files of writers that were killed. A failure is not an error. */
void vb_cp_remove_stale(const char *dir);

/* Removes old checkpoints: of the checkpoints up to this step, only the newest ones are kept, and
 * `keep` is their number. */
void vb_cp_remove_old(const char *dir, int64_t step, int keep);

#endif
