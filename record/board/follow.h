/* SPDX-License-Identifier: MIT
 *
 * Follows a series while the run writes it.
 */
#ifndef VB_RECORD_BOARD_FOLLOW_H
#define VB_RECORD_BOARD_FOLLOW_H

#include "record/folder/series.h"

#include <time.h>

struct vb_follow {
    char path[4200];
    const struct vb_series_kind *kind;
    struct vb_series *series; /* NULL: there is no file yet */
    int64_t next;             /* the row that comes next */
    bool off;                 /* the file cannot be read */
    /* the file that an earlier run has left; it counts once it has changed */
    bool old;
    int64_t old_bytes;
    struct timespec old_time;
};

/* append: the rows that the file has now belong to an earlier run, and the new ones follow them. */
void vb_follow_init(struct vb_follow *f, const char *dir, const char *file,
                    const struct vb_series_kind *kind, bool append);
void vb_follow_close(struct vb_follow *f);

/* Goes to the first of the newest rows from this step on: another process has shown the rows
 * before. Rows begin with their step. */
void vb_follow_from(struct vb_follow *f, uint64_t step);

/* Returns the number of rows that have come since the last vb_follow_next(). */
int64_t vb_follow_left(struct vb_follow *f);

/* Copies the next row. Returns false if there is none. */
bool vb_follow_next(struct vb_follow *f, void *row_p);

#endif
