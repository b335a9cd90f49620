/* SPDX-License-Identifier: MIT
 *
 * What a rank records while it trains: one row a step, one row an evaluation. The recorder's thread
 * writes them (record/folder/recorder.h); training never waits for it. It runs in every job.
 * Without a run folder its rows are dropped, and only what its ticks keep in memory remains.
 */
#ifndef VB_ENGINE_RECORD_TRAIN_RECORD_H
#define VB_ENGINE_RECORD_TRAIN_RECORD_H

#include "net/net.h"
#include "engine/record/train_ship.h"
#include "engine/train/train.h"
#include "record/record.h"

#include <pthread.h>

struct vb_trainer;
struct vb_recovery;

#define VB_EVENTS_MAX 256 /* events that may wait to be written */
#define VB_EVALS_KEPT 32  /* the same of evaluations, of an elastic job */

/* Something that happens now and then, for events.jsonl. */
struct vb_train_event {
    uint64_t at_ns;
    int64_t step;
    int rank;
    char what[16]; /* "began", "evaluated", "saved", "not saved", "stopped", "ended", "failed", or a
                      fault's */
    double loss, accuracy; /* of an evaluation; negative: there is none */
    char why[160];
    struct vb_fault fault; /* "rank lost", "removed"; otherwise fault.recovered is false */
};

/* What the training thread tells the recorder's thread about ranks that are lost. */
struct vb_train_heir {
    bool leads;             /* this rank leads from now on */
    bool done;              /* and has taken over what that is */
    int64_t step;           /* the last step before it did */
    int n_recoveries;       /* recoveries that those who led before had to tell */
    int lost[VB_WORLD_MAX]; /* ids of ranks of which the recorder's thread does not know yet */
    int n_lost;
    int n_evals; /* evaluations that are not written, or not by this rank */
    struct vb_eval_row evals[VB_EVALS_KEPT];
};

struct vb_trainer_record {
    struct vb_recorder *rec; /* NULL: nothing is recorded */
    struct vb_ship *ship;    /* brings the rows to the folder; NULL: this is the only rank */
    struct vb_stream *steps, *evals; /* evals NULL: this rank never evaluates alone */
    struct vb_board *board;          /* what TensorBoard shows; NULL: another rank writes it. It
                                        sleeps until this rank leads */
    struct vb_metrics *metrics;      /* as the board */
    struct vb_sampler *sampler;      /* of the recorder; NULL: nothing is recorded */

    /* Ticks run on the recorder's thread. A tick that uses the group holds the lock. */
    pthread_mutex_t lock;
    bool has_lock;
    struct vb_group *group;        /* guarded by lock; NULL: no group is open */
    struct vb_train_event *events; /* guarded by lock: the first n_events; NULL: not recorded */
    int n_events, lost_events;
    struct vb_train_heir heir; /* guarded by lock */
    uint64_t eval_step; /* the recorder's thread: evaluations up to here are written; 0: none */
    bool *gone; /* (VB_WORLD_MAX, by id) the recorder's thread knows that the rank is lost */
    unsigned char *near; /* (the same) whether the rank is on this machine, in this network */
    uint64_t told_lost;  /* rows that the result of this rank tells as lost */
    char events_file[48];
    struct vb_rank_facts *joined; /* of a joiner, set before its first event; otherwise NULL */
    uint64_t begin_ns;            /* guarded by lock: when training began */

    /* Only the training thread uses what follows. */
    uint64_t phase_ns[VB_RECORD_PHASES]; /* values of t->laps.ns at the last row */
    uint64_t *waits_ns;                  /* (world) for vb_group_wait_longest(); NULL: one rank */
    uint64_t norm_ns;                    /* when a gradient norm was measured last */
    float norm;                          /* measured in this step; NAN: not measured */
    uint64_t version;                    /* asynchronous training: at the last row */
    int samples;                         /* of this rank in the last step */
    uint64_t known_step;                 /* rows up to this step were made already */
    uint32_t flags;                      /* VB_STEP_* of the next row */
    struct vb_train_clock
        *clocks; /* the rank that leads: of all ranks; NULL: none, or in the result already */
    int n_clocks;
    uint64_t lost; /* after the recorder was closed: rows that were lost */
};

/* Starts the recorder of this rank. A run folder that cannot be written is only warned of. */
vb_status vb_train_record_open(struct vb_trainer *t);

/* Writes what is left and stops the recorder; the group of the ticks must still be open. A second
 * call does nothing. vb_train_record_free() is called after the group is closed. */
void vb_train_record_close(struct vb_trainer *t);
void vb_train_record_free(struct vb_trainer *t);

/* The run has succeeded. Called before vb_train_record_close(). */
void vb_train_record_done(struct vb_trainer *t);

/* Training uses this group from now on. Called with NULL before a group is closed. */
void vb_train_record_group(struct vb_trainer *t, struct vb_group *group);

/* Says which group a part of this process uses; NULL: none. A server's thread calls this for its
 * own part; vb_train_record_group() does it for the rank's. */
void vb_train_record_part(struct vb_trainer *t, enum vb_sampler_part part, struct vb_group *group);

/* Called when the time of training begins to count (vb_laps_begin()). */
void vb_train_record_begin(struct vb_trainer *t);

/* Records the step that has ended, with what was done after it. The phases of a row add up to the
 * time since the last row. */
void vb_train_record_step(struct vb_trainer *t);

/* Asynchronous training: records a gradient. version: of the parameters that it was computed on. */
void vb_train_record_gradient(struct vb_trainer *t, uint64_t version);

void vb_train_record_eval(struct vb_trainer *t, int64_t step);
void vb_train_record_saved(struct vb_trainer *t); /* a checkpoint belongs to the next row */

/* Records an event. Any thread may call these functions (train_event.c). */
void vb_train_event(struct vb_trainer *t, const struct vb_train_event *event);
void vb_train_event_earlier(struct vb_trainer *t,
                            const struct vb_train_event *event); /* by a tick */
void vb_train_event_say(struct vb_trainer *t, const char *what, int64_t step, const char *why);

/* Returns whether the norm of this step's gradient is to be measured: about twice a second, and
 * only for a run folder. vb_train_record_norm() stores a norm that is known anyway. */
bool vb_train_record_wants_norm(struct vb_trainer *t);
void vb_train_record_norm(struct vb_trainer *t, double norm);

/* Moves what is known about clocks to the result. */
void vb_train_record_result(struct vb_trainer *t, struct vb_train_result *result);

/* Measures the norm of a gradient times scale, if it is wanted. The caller charges the time to the
 * phase that it is in. */
void vb_train_record_gradient_norm(struct vb_trainer *t, const float *values, size_t n,
                                   float scale);

/* TensorBoard and metrics.prom (train_board.c): open t->record.board and the metrics, before the
 * recorder starts. */
vb_status vb_train_board_open(struct vb_trainer *t);
vb_status vb_train_metrics_open(struct vb_trainer *t);

/* Counts histograms of parameters and gradients. */
void vb_train_board_eval(struct vb_trainer *t, int64_t step);

/* Writes the model as a GraphDef message (train_graph.c). */
void vb_train_graph(const struct vb_trainer *t, struct vb_proto *msg);

vb_status vb_train_events_open(struct vb_trainer *t); /* before the recorder is started */

/* Collective, except for joiners: fills *t->o->run.facts (train_facts.c). */
vb_status vb_train_fill_facts(struct vb_trainer *t);

/* The same for a joiner, which then has a group: its event "began" tells its facts. */
vb_status vb_train_joined_facts(struct vb_trainer *t, struct vb_group *group);

/* A recovery is complete: the step after it is done (train_recovery.c). All ranks call it. */
void vb_train_tell_recovery(struct vb_trainer *t, const struct vb_recovery *r);

/* During a recovery, when t->leads became true: this rank takes over what only one rank writes. */
void vb_train_record_lead(struct vb_trainer *t);

/* Elastic jobs: keeps an evaluation for the rank that leads. */
void vb_train_keep_eval_row(struct vb_trainer *t, const struct vb_eval_row *row);

/* Makes ready for both, before the recorder starts: nothing is allocated in a recovery. */
vb_status vb_train_recovery_open(struct vb_trainer *t);

/* Returns whether a rank of the start was lost in a recovery that was told. */
bool vb_train_is_lost(const struct vb_trainer *t, int rank);

/* Adds the ranks that were lost to the faults of a result. */
vb_status vb_train_recovery_faults(const struct vb_trainer *t, struct vb_train_result *result);

/* Fills in the fault of a rank that was lost: number i of r->lost. */
void vb_train_lost_fault(const struct vb_recovery *r, int i, struct vb_fault *fault_p);

/* Returns the number of rows that were lost. */
uint64_t vb_train_record_lost(const struct vb_trainer *t);

#endif
