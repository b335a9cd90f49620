/* SPDX-License-Identifier: MIT
 *
 * The recorder of a process: one thread that writes what other threads record. It wakes ten times
 * a second. A thread that records copies a row into a ring and never waits; rows that find no room
 * are lost and counted. So a slow or full disk never slows training down.
 */
#ifndef VB_RECORD_FOLDER_RECORDER_H
#define VB_RECORD_FOLDER_RECORDER_H

#include "record/folder/series.h"

#include <sched.h>

#define VB_RECORD_TICK_MS 100

/* Where bytes go: to files of the run folder, or to the rank that has the folder. */
struct vb_record_sink {
    /* Appends whole rows to a file, whose name is relative to the run folder. Returns VB_OK if all
     * bytes were accepted, VB_AGAIN if none were and the caller may try again; any other status
     * loses these bytes. Only the recorder's thread calls it. */
    vb_status (*append)(void *arg, const char *file, const void *bytes, size_t len_bytes);
    void (*close)(void *arg);
    void *arg;
    size_t max_bytes; /* of one append of rows; 0: no limit */
};

struct vb_recorder_opts {
    const char *dir;            /* run folder, used if there is no sink */
    bool append;                /* files that exist are continued, for --resume */
    struct vb_record_sink sink; /* append NULL: files in dir */
    const cpu_set_t *cpus;      /* where the thread may run; NULL: where the caller may */
    int rank;                   /* for log lines */
};

struct vb_recorder;
struct vb_stream; /* one file of rows; one thread at a time may put rows into it */

vb_status vb_recorder_open(const struct vb_recorder_opts *opts, struct vb_recorder **rec_p);

/* Writes what is left, but waits for a slow disk no longer than two seconds. Returns the number of
 * rows that were lost. Accepts NULL. */
uint64_t vb_recorder_close(struct vb_recorder *rec);

/* Adds a file. ring_rows: rows that may wait to be written. Before vb_recorder_start(), or by a
 * tick that puts the rows itself. */
vb_status vb_recorder_stream(struct vb_recorder *rec, const char *file,
                             const struct vb_series_kind *kind, int ring_rows,
                             struct vb_stream **stream_p);

/* Adds a function that the thread calls at every tick, before it writes. now_ns: the time of
 * vb_record_clock_ns(). last: no call follows.
 * Before vb_recorder_start(). */
typedef void (*vb_tick_fn)(void *arg, uint64_t now_ns, bool last);
vb_status vb_recorder_tick(struct vb_recorder *rec, vb_tick_fn fn, void *arg);

/* The recorder frees arg with fn when its thread has ended, because ticks use arg until then: not
 * at all if the thread hangs in a write. Before vb_recorder_start(). */
vb_status vb_recorder_own(struct vb_recorder *rec, void (*fn)(void *arg), void *arg);

vb_status vb_recorder_start(struct vb_recorder *rec);

/* Copies a row into the ring. Allocates nothing and never waits. */
void vb_stream_put(struct vb_stream *stream, const void *row);

/* Appends bytes to a file that is no series, such as an event file. Only ticks may call it. */
vb_status vb_recorder_append(struct vb_recorder *rec, const char *file, const void *bytes,
                             size_t len_bytes);

/* Adds a function that the thread calls at every tick, after it has written the rows: it can read
 * them in the files. Before vb_recorder_start(). */
vb_status vb_recorder_after(struct vb_recorder *rec, vb_tick_fn fn, void *arg);
/* The rows that come go to another place, which lacks the heads of the files. Only ticks may call
 * it. */
void vb_recorder_heads(struct vb_recorder *rec);

/* Number of files that were added. */
int vb_recorder_streams(const struct vb_recorder *rec);

/* Rows that were lost so far, in all streams. */
uint64_t vb_recorder_lost(const struct vb_recorder *rec);

#endif
