/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: files with the parameters and the settings of a run.
 */
#ifndef VB_ENGINE_CHECKPOINT_CHECKPOINT_H
#define VB_ENGINE_CHECKPOINT_CHECKPOINT_H

#include "base/base.h"

#define VB_CHECKPOINT_NAME 32            /* bytes of a name, with its terminating zero */
#define VB_CHECKPOINT_ARRAYS_MAX 1024    /* arrays of a checkpoint */
#define VB_CHECKPOINT_TEXT_MAX (1 << 20) /* bytes of a text */

enum vb_array_type { VB_ARRAY_F32, VB_ARRAY_U32 };

struct vb_checkpoint_array {
    char name[VB_CHECKPOINT_NAME]; /* unique; printable, without / and without a leading dot */
    enum vb_array_type type;
    bool state;         /* state of the update rule, not a parameter; exported only on request */
    int64_t rows, cols; /* row-major; cols is 1 for vectors; rows may be 0 */
    const void *data; /* When writing: borrowed. After reading: aligned to the cache line, and valid
                         as long as the checkpoint. */
};

/* Everything that a run needs to be resumed. docs/checkpoint.md describes the format. */
struct vb_checkpoint {
    char model[VB_CHECKPOINT_NAME]; /* the same rules as for names of arrays */
    int64_t step;                   /* at least 0 */
    uint64_t seed;
    char *options; /* lines KEY=VALUE, in the form of the engine; NULL when writing: "" */
    char *plan;    /* text of vb_k_plan_text(); NULL when writing: "" */
    int n_arrays;
    struct vb_checkpoint_array *arrays;
    const void *map; /* the mapped file; map and map_bytes are set by vb_checkpoint_read() only */
    size_t map_bytes;
};

/* Writes dir/checkpoint-STEP.vbc. Creates the folder if its parent exists. The file is written
 * under a temporary name, synced and renamed. So older checkpoints stay intact whatever happens,
 * and an incomplete file never has the name of a checkpoint. Temporary files of killed writers are
 * removed, so a folder must have only one writer at a time. If keep is not 0, only this checkpoint
 * and the keep - 1 newest before it are kept. Blocks until all data is on the disk. seconds_p: how
 * long that took; may be NULL. */
vb_status vb_checkpoint_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                              double *seconds_p);

/* Maps a checkpoint and checks every byte of it. The caller frees it with vb_checkpoint_free(). */
vb_status vb_checkpoint_read(const char *path, struct vb_checkpoint **cp_p);
void vb_checkpoint_free(struct vb_checkpoint *cp);

/* Returns NULL if there is no array of this name. */
const struct vb_checkpoint_array *vb_checkpoint_find(const struct vb_checkpoint *cp,
                                                     const char *name);

/* The elements of the array of this name, which must be n of this type. Otherwise logs an error and
 * returns NULL. */
const void *vb_checkpoint_data(const struct vb_checkpoint *cp, const char *name,
                               enum vb_array_type type, size_t n);

/* Finds the checkpoint with the highest step. A broken checkpoint is skipped with a warning.
 * Returns VB_ERR_NO_FILE, without logging, if the folder does not exist or has no checkpoint;
 * VB_ERR_INPUT if all checkpoints are broken. */
vb_status vb_checkpoint_latest(const char *dir, char *path, size_t size);

#endif
