/* SPDX-License-Identifier: MIT
 *
 * Synchronous training whose ranks change: the others go on when ranks are lost, the lowest of them
 * leads, and the members form a new group when ranks come.
 */
#ifndef VB_ENGINE_ELASTIC_ELASTIC_H
#define VB_ENGINE_ELASTIC_ELASTIC_H

#include "engine/sums/sums.h"
#include "engine/train/train.h"

#include <pthread.h>

/* ---- recovery (recover.c) -------------------------------------------------------------------- */

#define VB_RECOVERY_LOST 16
#define VB_RECOVERIES 64

/* A rank that was lost. */
struct vb_lost_rank {
    int rank;     /* of the start */
    bool removed; /* the user wanted it to leave */
    char host[64];
    char why[160];
};

/* Synchronous training went on without ranks that were lost (recover.c). */
struct vb_recovery {
    int64_t step;  /* the last step that was kept */
    int64_t again; /* the step that was computed again by the ranks that are left */
    int n;         /* number of ranks that were lost; the first of them are in lost */
    struct vb_lost_rank lost[VB_RECOVERY_LOST];
    int left;           /* number of ranks that go on */
    double at_s;        /* when it was noticed: seconds since the start of training */
    double recovered_s; /* from the last sign of life, or from at_s, until the next step was done */
    uint64_t begin_ns;  /* of recovered_s (vb_clock_ns()) */
    /* the phases of recovered_s, one after another */
    double detect_s;    /* until the failure was noticed */
    double agree_s;     /* until the ranks agreed which of them go on */
    double fence_s;     /* until no message of the old view could come any more */
    double rebuild_s;   /* until all had the last step, and their new shares */
    double recompute_s; /* until the next step was done */
};

/* Memory that is allocated before training. */
struct vb_trainer_recoveries {
    struct vb_recovery *list; /* the first VB_RECOVERIES; NULL: this job ends with the first loss */
    int n;                    /* number of recoveries, also of those that are not in the list */
    bool under_way;           /* the step after the last one is not done yet */
    int64_t done;             /* the last step after which everything was done that is done once */
    int64_t looked;           /* the last step that was shown to hooks.look and vb_health_step() */
    uint64_t mark_ns;         /* the time before this moment belongs to phases of the last one */
    char why[256];            /* the error that is not logged */
};

/* A group of synchronous training, and the place of this rank in it. */
struct vb_trainer_seat {
    struct vb_group *group; /* NULL: none */
    bool borrowed;          /* the group belongs to the caller of training */
    int number, rank, world;
    uint32_t view;
    struct vb_trainer_sums sums;
};

/* When the members were done with each part of forming a new group. Training stands still from the
 * first moment to the last. */
enum vb_form_part {
    VB_FORM_BEGINS,
    VB_FORM_OPENED, /* the new group */
    VB_FORM_MADE,   /* what hangs on it */
    VB_FORM_SENT,   /* the state, to joiners */
    VB_FORM_ENTERED,
    VB_FORM_PARTS,
};

#define VB_FORM_SLOTS 4

/* The members of a synchronous job form a new group, with joiners (form.c). */
struct vb_trainer_form {
    struct vb_trainer_seat other; /* before the switch the seat in the new group, then the one in
                                     the old group until a step was made in the new one */
    bool under_way;               /* between preparing and the decision */
    bool prepared;      /* the new group is complete, and whether to go over to it is decided now */
    bool switched;      /* t->place.group is the new one; the old one is still open */
    bool sure;          /* all members have switched */
    int64_t old_step;   /* the last step that the old group has agreed on, before the switch */
    int old_world;      /* number of ranks in the new group that were members of the old one; 0:
                           a step was made in this group */
    int joiners;        /* that were invited */
    int failed;         /* how often in a row forming was given up */
    uint64_t before_ns; /* forming is not tried again before this time */
    uint64_t wanted_ns; /* since when somebody wants it; 0: nobody does */
    int next_id;        /* the first id that nobody has had */
    struct vb_window_ahead *ahead; /* memory for the next group; NULL: none is allocated */
    struct vb_group *closing;      /* by the thread `closer`; NULL: none */
    pthread_t closer;
    uint64_t at_ns[VB_FORM_PARTS];
    uint64_t state_bytes;                            /* of the state that joiners got */
    struct vb_op ops[VB_FORM_SLOTS][VB_CALLERS_MAX]; /* of send.c: it must outlive the group */
    const struct vb_group *let_in;                   /* callers are told about the job there */
    /* Called when it is decided whether the members go over to the new group; the seat of this rank
     * is the one that was chosen, and both groups are still open. */
    void (*ended)(void *arg, bool switched);
    void *ended_arg;
};

/* Recovery of a synchronous job that has lost ranks (recover.c). vb_train_recover() is called
 * after a collective call has failed with st. If that was because ranks are gone, it returns when
 * the others have agreed, have regrouped, and have the last step in common. Otherwise it fails: it
 * returns st, or that this rank cannot go on, which it logs. The caller then meets the other
 * members (vb_run_stop_regroup()) and repeats what is due after this step; if either fails, it
 * calls this again. Allocates nothing. */
vb_status vb_train_recoveries_open(struct vb_trainer *t);
void vb_train_recoveries_close(struct vb_trainer *t);
vb_status vb_train_recover(struct vb_trainer *t, vb_status st);

/* Between these two calls, an error with VB_ERR_PEER of this thread is not logged. */
void vb_train_recover_begin(struct vb_trainer *t);
void vb_train_recover_end(struct vb_trainer *t);

/* Called after each step, and when no step is left: the last recovery is complete. */
void vb_train_recovered(struct vb_trainer *t);

/* The i-th recovery of this run; NULL: there is none. */
const struct vb_recovery *vb_train_recovery(const struct vb_trainer *t, int i);

/* The last moment at which a step may fail and leave everything as it was before: the step is what
 * the members agree on from now on (vb_group_commit()). */
vb_status vb_train_commit(struct vb_trainer *t, int64_t step);

/* ---- another lead (lead.c) ------------------------------------------------------------------- */

/* Synchronous training: t->rank, t->world, t->leads and t->view are those of a new view. Every
 * member calls this, once its parameters are those of the agreed step. Who has become the lead
 * shows, reports and saves from now on. Sends no message. */
void vb_train_members_changed(struct vb_trainer *t);

/* Returns whether the result was reported by a rank that has said goodbye. This rank then ends
 * without an error and without a report. */
bool vb_train_is_over(const struct vb_trainer *t);

/* This rank cannot go on, because the others do so without it, or because it is cut off from them.
 * It does not save, show or report any more. */
void vb_train_dropped(struct vb_trainer *t);

/* Returns whether this rank is the lead, or becomes it if those below it are lost. */
bool vb_train_may_lead(const struct vb_trainer *t);

/* ---- a new group (form.c) -------------------------------------------------------------------- */

#define VB_FORM_OPEN_MS 5000 /* how long the members wait for each other, and for joiners */

/* Forms a new group in these steps; run_form.c calls them. If a call fails with VB_ERR_PEER because
 * an old member is gone, vb_train_recover() finds out which group the members go on in.
 *
 * vb_train_form_mark(): a part of it ends now.
 * vb_train_form_ahead(): one follows soon: begins to allocate its memory, and does not wait.
 * vb_train_form_prepare(): opens the new group, and takes the seat in it; everything that hangs on
 * the group is made anew, and joiners get the state.
 * vb_train_form_back(): takes the old seat again, also after a failure of the above. Then all
 * members tell each other in the old group whether they are ready; *all_p: all are.
 * vb_train_form_switch(): the members go over: commits that in the old group, and takes the new
 * seat.
 * vb_train_form_enter(): all ranks of the new group meet in it for the first time.
 * vb_train_form_undo(): the members stay in the old group, maybe because nobody has come.
 * vb_train_form_done(): all have met again since then: a thread closes the old one. */
void vb_train_form_mark(struct vb_trainer *t, enum vb_form_part part);
void vb_train_form_ahead(struct vb_trainer *t);
vb_status vb_train_form_prepare(struct vb_trainer *t, const struct vb_meeting *meeting);
vb_status vb_train_form_back(struct vb_trainer *t, bool ready, bool *all_p);
vb_status vb_train_form_switch(struct vb_trainer *t);
vb_status vb_train_form_enter(struct vb_trainer *t);
void vb_train_form_undo(struct vb_trainer *t);
void vb_train_form_done(struct vb_trainer *t);

/* A joiner, in vb_trainer_open(), once everything is made that needs no group: says that it is
 * ready, waits for the invitation, opens the group, makes what hangs on it, and takes the state. */
vb_status vb_train_form_meet(struct vb_trainer *t);

/* Called by a recovery. The old group has agreed: goes over to the new group if a member has done
 * so, otherwise stays. VB_ERR_PEER: the members of the old group must agree once more. */
vb_status vb_train_form_settle(struct vb_trainer *t, const struct vb_agreed *agreed);

/* The new group has agreed on its members. Returns false if that need not be all of the job's
 * members that can go on, so that the old group must agree first, too, or if this rank is a joiner
 * and no member is left. */
bool vb_train_form_is_sure(const struct vb_trainer *t, const struct vb_agreed *agreed);

/* Otherwise: asks the old group. */
vb_status vb_train_form_confirm(struct vb_trainer *t);

void vb_train_form_close(struct vb_trainer *t); /* before the group is closed */

/* Sends the state of the model from the rank at place 0 to joiners, in the form of a checkpoint
 * (send.c). Collective among all ranks of the group. */
vb_status vb_train_send_state(struct vb_trainer *t);
vb_status vb_train_take_state(struct vb_trainer *t);

/* ---- who may join (same.c) ------------------------------------------------------------------- */

/* Checks that this is the program of the job, by its vb_process_program(). */
vb_status vb_train_fits_program(uint64_t of_job);

/* Checks that vb_k_cpu_kind() is the same here and in the job. With --mixed-cpus it may differ. */
vb_status vb_train_fits_cpu(const struct vb_train_opts *o, const char *of_job, const char *own);

#endif
