/* SPDX-License-Identifier: MIT
 *
 * A TensorBoard event file: records of a length, its checksum, an Event message and its checksum.
 * Each record is appended by one write, so a process that is killed leaves whole records and at
 * most one that is cut, where readers stop.
 */
#ifndef VB_RECORD_BOARD_EVENTS_H
#define VB_RECORD_BOARD_EVENTS_H

#include "record/board/histogram.h"
#include "record/board/proto.h"
#include "record/folder/recorder.h"

#define VB_EVENTS_NAME 96
#define VB_EVENT_BYTES 65536 /* the largest record */

/* Only the recorder's thread uses an event file, except for vb_events_init(). */
struct vb_events {
    struct vb_recorder *rec;
    char file[VB_EVENTS_NAME]; /* relative to the run folder */
    bool begun;                /* the file has its first records */
    int64_t first_step;
    uint64_t lost; /* records that could not be written */
    /* the record in the making */
    struct vb_proto msg;
    size_t summary;
    int n_values;
    unsigned char *bytes; /* borrowed; the files of one thread may share them */
};

/* Makes a name that no other file has. folder: "" or "rank3/". A reader drops points from
 * first_step on that earlier files have: a resumed run makes these steps again. bytes: room for
 * VB_EVENT_BYTES, borrowed. */
void vb_events_init(struct vb_events *ev, struct vb_recorder *rec, const char *folder,
                    int64_t first_step, unsigned char *bytes);

/* Begins a record of values at a step and a time in seconds since 1970. vb_events_end() writes it,
 * unless it has no values. */
void vb_events_begin(struct vb_events *ev, double wall_s, int64_t step);
void vb_events_scalar(struct vb_events *ev, const char *tag, double value);
void vb_events_histogram(struct vb_events *ev, const char *tag, const struct vb_histogram *h);
/* plugin: a message of a plugin of TensorBoard, which describes the run and has no value. */
void vb_events_plugin(struct vb_events *ev, const char *tag, const char *plugin,
                      const struct vb_proto *content);
vb_status vb_events_end(struct vb_events *ev);

/* Writes the graph of a model, a GraphDef message. */
vb_status vb_events_graph(struct vb_events *ev, double wall_s, const struct vb_proto *graph);

#endif
