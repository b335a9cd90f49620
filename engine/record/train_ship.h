/* SPDX-License-Identifier: MIT
 *
 * How the records of a rank get to the run folder. Rank 0 writes to it. Other ranks look for a
 * token file that rank 0 has put there: those that find it write their files themselves, the others
 * send their rows to rank 0, which appends them to the same files. All of that is done by the
 * recorder's thread and the control plane; training never waits for it.
 *
 * If rank 0 of a job that goes on without it is lost, the rank that leads takes its place
 * (vb_ship_lead()): in the same folder if it sees it, otherwise in the folder of this name on its
 * own host. Until the others hear of it, their rows wait.
 */
#ifndef VB_ENGINE_RECORD_TRAIN_SHIP_H
#define VB_ENGINE_RECORD_TRAIN_SHIP_H

#include "net/net.h"
#include "record/record.h"

struct vb_ship;

struct vb_ship_opts {
    const char *dir; /* run folder; NULL: this rank keeps no records */
    bool append;     /* files that exist are continued */
    int rank;
    bool elastic;         /* the job goes on without rank 0 */
    uint64_t bytes_per_s; /* that this rank sends, or that rank 0 accepts from each rank; 0: 1 MB */
};

/* Makes the sink for the recorder of this rank. The sink and the caller both hold the ship, and
 * both close it. */
vb_status vb_ship_open(const struct vb_ship_opts *opts, struct vb_ship **ship_p,
                       struct vb_record_sink *sink_p);
void vb_ship_close(struct vb_ship *ship);

/* The tick of the recorder, a vb_tick_fn. Rank 0 writes what other ranks have sent; ranks that do
 * not see the folder send what is new in their logs. */
void vb_ship_tick(void *ship, uint64_t now_ns, bool last);

/* The group over which records are sent from now on. NULL: there is none; rows wait. */
void vb_ship_attach(struct vb_ship *ship, struct vb_group *group);

/* By a tick, on a rank that leads the job from now on: takes the place of rank 0.
 * vb_ship_far() returns whether it begins another folder, because it does not see that of rank 0;
 * called before vb_ship_lead(). */
bool vb_ship_far(struct vb_ship *ship);
vb_status vb_ship_lead(struct vb_ship *ship);

/* By a tick: returns whether the records of this rank go to another place since the last call, so
 * that files begin with their heads again. */
bool vb_ship_turned(struct vb_ship *ship);

/* Returns whether this rank needs rank 0 to write its records, or does not know yet. */
bool vb_ship_sends(struct vb_ship *ship);

/* The end of a run. Rank 0 waits until the other ranks have sent everything, compares clocks once
 * more and fits them; then its recorder may be closed. Other ranks close their recorders, and then
 * tell rank 0 that they have sent everything, and how many rows they have lost;
 * began_ns is when they began to close. Both wait for no
 * longer than two seconds, and not at all if the group has failed. Only the first call of
 * vb_ship_finish() does anything. */
void vb_ship_finish(struct vb_ship *ship);
void vb_ship_end(struct vb_ship *ship, uint64_t lost_rows, uint64_t began_ns);

/* Rank 0, after vb_ship_finish(): the fits of all clocks, and their number. The caller frees the
 * list. NULL: nothing was compared. */
struct vb_train_clock *vb_ship_clocks(struct vb_ship *ship, int *n_p);

/* Rank 0, or the rank that leads: fits the clocks of all ranks that were compared with its own so
 * far, and logs them (train_clock.c). */
struct vb_train_clock *vb_train_fit_clocks(struct vb_group *group, int *n_p);

struct vb_record_stats vb_ship_stats(struct vb_ship *ship);

/* Rank 0: returns the number of rows that other ranks told it they have lost, and of records of
 * other ranks that it has dropped or could not write; such a record is one message, with one or
 * several rows. Accepts NULL. */
uint64_t vb_ship_lost(struct vb_ship *ship);

#endif
