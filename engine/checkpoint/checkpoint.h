/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: files with the parameters and the settings of a run.
 */
#ifndef VB_ENGINE_CHECKPOINT_CHECKPOINT_H
#define VB_ENGINE_CHECKPOINT_CHECKPOINT_H

#include "base/base.h"

#define VB_CHECKPOINT_NAME 32            /* size of a name in bytes, with the terminating zero */
#define VB_CHECKPOINT_ARRAYS_MAX 1024    /* maximum number of arrays in a checkpoint */
#define VB_CHECKPOINT_TEXT_MAX (1 << 20) /* maximum size of a text in bytes */

enum vb_array_type { VB_ARRAY_F32, VB_ARRAY_U32 };

/* Copies len bytes, from byte `at` of an array on. Returns false if they cannot be read any more.
 */
typedef bool (*vb_checkpoint_fetch_fn)(const void *from, size_t at, size_t len, void *to);

struct vb_checkpoint_array {
    char name[VB_CHECKPOINT_NAME]; /* the name is unique and printable, has no /, and does not begin
                                      with a dot */
    enum vb_array_type type;
    bool state; /* the array is state of the update rule, which is exported only on request */
    int64_t rows, cols; /* row-major; cols is 1 for vectors; rows may be 0 */
    const void *data; /* writing: borrowed; after reading: aligned to a cache line, and valid until
                         vb_checkpoint_free() */

    /* Writing: NULL, or the elements are not those at data, but those that fetch() copies. Offsets
     * and lengths are multiples of 4; the writer's thread calls it. */
    vb_checkpoint_fetch_fn fetch;
    const void *from; /* its first argument; borrowed */
};

#define VB_JOB_TOKEN 16

/* Whose steps a checkpoint has. A synchronous job has one run after another, because it is resumed,
 * and each run one view after another, because ranks are lost or join (docs/views.md). Those that
 * were left behind may write late, so of two checkpoints of a job the one of the later view counts,
 * whatever their steps are. In a file it is the array "view". */
struct vb_checkpoint_view {
    unsigned char job[VB_JOB_TOKEN]; /* token of the first run, which all runs of a job keep */
    uint32_t run;                    /* from 1 on; 0: none of this is known */
    uint32_t view;                   /* from 1 on, counted through the whole run */
    uint64_t term;                   /* in which the members agreed on this view */
};

/* Everything that a run needs to be resumed. docs/checkpoint.md describes the format. */
struct vb_checkpoint {
    char model[VB_CHECKPOINT_NAME]; /* name of the model; the rules for names of arrays apply */
    int64_t step;                   /* at least 0 */
    uint64_t seed;
    char *options; /* lines KEY=VALUE, as the engine writes them; NULL is written as "" */
    char *plan;    /* text from vb_k_plan_text(); NULL is written as "" */
    int n_arrays;
    struct vb_checkpoint_array *arrays;
    struct vb_checkpoint_view view; /* vb_checkpoint_writer_begin() adds the array */
    const void *map; /* the mapped file; only vb_checkpoint_read() sets map and map_bytes */
    size_t map_bytes;
};

/* Writes dir/checkpoint-STEP.vbc. Creates the folder if its parent exists. The file is written
 * under a temporary name, synced and renamed. So older checkpoints stay intact whatever happens,
 * and an incomplete file never has the name of a checkpoint. Temporary files of killed writers are
 * removed, so the writer must hold the lock of the folder. If keep is not 0, only this checkpoint
 * and the keep - 1 newest checkpoints of earlier steps are kept; later steps are kept, too. The
 * function returns when all data is on the disk. *seconds_p becomes the duration of the call;
 * seconds_p may be NULL. */
vb_status vb_checkpoint_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                              double *seconds_p);

/* Maps a checkpoint and checks all of its bytes. The caller frees the checkpoint with
 * vb_checkpoint_free(). */
vb_status vb_checkpoint_read(const char *path, struct vb_checkpoint **cp_p);
void vb_checkpoint_free(struct vb_checkpoint *cp);

/* Returns the array of this name, or NULL if there is none. */
const struct vb_checkpoint_array *vb_checkpoint_find(const struct vb_checkpoint *cp,
                                                     const char *name);

/* Copies all elements of an array that is to be written, or was read. */
bool vb_checkpoint_copy(const struct vb_checkpoint_array *a, void *to);

/* Returns the elements of the array of this name. If the array does not exist, has another type, or
 * does not have n elements, logs an error and returns NULL. */
const void *vb_checkpoint_data(const struct vb_checkpoint *cp, const char *name,
                               enum vb_array_type type, size_t n);

/* Finds and reads the checkpoint with the highest step. A broken checkpoint is skipped with a
 * warning; one that cannot be opened or read is an error. Returns VB_ERR_NO_FILE, without logging,
 * if the folder does not exist or has no checkpoint; VB_ERR_INPUT if all checkpoints are broken. */
vb_status vb_checkpoint_read_latest(const char *dir, char *path, size_t size,
                                    struct vb_checkpoint **cp_p);
vb_status vb_checkpoint_latest(const char *dir, char *path, size_t size); /* finds its path only */

/* Finds the checkpoint with the highest step up to `most` by its name, and does not read it: only
 * complete files have such names. Returns its step; -1, and "" as path: there is none. */
int64_t vb_checkpoint_newest(const char *dir, int64_t most, char *path, size_t size);

/* ---- views ----------------------------------------------------------------------------------- */

/* Returns whether both are of one job, and a was written in a later view than b. */
bool vb_checkpoint_is_later(const struct vb_checkpoint_view *a, const struct vb_checkpoint_view *b);

/* Finds the checkpoint up to step `most` that has the latest view of all those of the same job that
 * are later than `than`. Reads no more of the files than that. Returns its step, and its path and
 * view; -1: there is none. */
int64_t vb_checkpoint_later(const char *dir, int64_t most, const struct vb_checkpoint_view *than,
                            char *path, size_t size, struct vb_checkpoint_view *view_p);

/* Writes "view 2 of run 1". */
#define VB_CHECKPOINT_VIEW_TEXT 48
const char *vb_checkpoint_view_text(const struct vb_checkpoint_view *view,
                                    char text[VB_CHECKPOINT_VIEW_TEXT]);

/* ---- the lock of a folder -------------------------------------------------------------------- */

/* A folder of checkpoints belongs to one job at a time. The file DIR/lock says whose it is, and the
 * kernel drops the lock when the process ends. If another job has the folder, vb_checkpoint_lock()
 * names that job and fails with VB_ERR_USAGE. If another process of the same job has it, which the
 * token shows, the call succeeds without a lock: such a process is dead or was dropped, but its
 * host may not know that yet. *fd_p is for vb_checkpoint_unlock(), which accepts -1. */
vb_status vb_checkpoint_lock(const char *dir, const unsigned char token[VB_JOB_TOKEN], int *fd_p);
void vb_checkpoint_unlock(int fd);

#endif
