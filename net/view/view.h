/* SPDX-License-Identifier: MIT
 *
 * The view of a synchronous job: which ranks train together. When a rank is gone, the others agree
 * on the next view before any of them goes on (docs/views.md). This room is a state machine: it
 * does no I/O, has no clock and allocates nothing. The caller tells it what happened, then sends
 * what it has put into struct view_out, in this order.
 *
 * Nothing here locks. A caller with several threads holds one lock around each call.
 */
#ifndef VB_NET_VIEW_VIEW_H
#define VB_NET_VIEW_VIEW_H

#include "net/view/view_set.h"

/* A view, or the proposal of one. Epoch 0: none. */
struct view {
    uint32_t epoch;
    uint32_t holder; /* the lowest member that has committed `step` */
    uint64_t term;   /* in which it was proposed; terms are numbered through the whole job */
    uint64_t step;   /* the last step that one of the members has committed */
    struct view_set members;
};

enum view_kind {
    VIEW_REPORT = 1, /* the sender has stopped: a new view is needed */
    VIEW_PREPARE,    /* the coordinator begins a term */
    VIEW_PROMISE,    /* the answer: the sender obeys no lower term; the proposal it has accepted */
    VIEW_PROPOSE,    /* the coordinator's proposal */
    VIEW_ACCEPT,     /* the answer */
    VIEW_TELL,       /* the sender's view and term */
    VIEW_KIND_LAST = VIEW_TELL,
};

/* All kinds of messages have the same fields. */
struct view_message {
    uint32_t kind;
    uint64_t term;     /* the highest term that the sender knows */
    uint64_t step;     /* the last step that the sender has committed */
    struct view view;  /* the view that the sender has installed */
    struct view value; /* PROMISE: accepted in that view; PROPOSE: proposed; otherwise none */
    struct view_set suspects; /* members of the view that the sender takes for gone */
    struct view_set proved;   /* those of them that are proved to be gone */
};

#define VIEW_BYTES (24 + VIEW_SET_BYTES)
#define VIEW_MESSAGE_BYTES (24 + 2 * VIEW_BYTES + 2 * VIEW_SET_BYTES)

void vb_view_encode(const struct view_message *message, unsigned char out[VIEW_MESSAGE_BYTES]);

/* Returns false if the message cannot come from a correct rank of a job with this many ranks. */
bool vb_view_decode(const unsigned char in[VIEW_MESSAGE_BYTES], int world,
                    struct view_message *message_p);

/* How a rank is known to be gone. After the last two it can do nothing more: its host has reaped
 * the process, or it has ended its machine before it said goodbye. */
enum view_how { VIEW_LOST, VIEW_SILENT, VIEW_REAPED, VIEW_LEFT };

enum view_status {
    VIEW_GOING,   /* collectives of the view may run */
    VIEW_STOPPED, /* they must not: the next view is not agreed yet */
    VIEW_ENDED,   /* this rank is in no view any more; it must not print results or save */
};

enum view_end {
    VIEW_END_NONE,
    VIEW_END_MINORITY, /* too few ranks of the last view are left here */
    VIEW_END_OUT,      /* the others go on without this rank */
};

enum view_event {
    VIEW_EVENT_STOP = 1,    /* collectives of the view must not go on */
    VIEW_EVENT_INSTALL = 2, /* the next view is installed: vb_view_now() */
    VIEW_EVENT_END = 4,     /* this rank must end: vb_view_why() */
};

/* What the caller does after a call: it sends the messages, each to its targets in rank order. */
#define VIEW_SENDS_MAX 8

struct view_send {
    struct view_set to;
    struct view_message message;
};

struct view_out {
    unsigned events; /* of enum view_event; STOP comes before INSTALL or END */
    int n;
    struct view_send sends[VIEW_SENDS_MAX];
};

enum view_phase { VIEW_PHASE_NONE, VIEW_PHASE_PREPARE, VIEW_PHASE_PROPOSE };

struct view_opts {
    int rank;
    int world;
    uint64_t step; /* that all ranks begin with */
    /* After this time without an answer a rank repeats its message, or begins another term. */
    uint64_t retry_ns;
    /* How long a rank that sees no majority waits for proofs that others have died. */
    uint64_t grace_ns;
};

/* The machine of one rank. The fields belong to this room; a test may look. */
struct view_machine {
    struct view_opts opts;
    struct view view;     /* installed */
    struct view accepted; /* the proposal for the next epoch that this rank accepted last */
    uint64_t promised;    /* this rank obeys no lower term */
    uint64_t step;        /* the last step that this rank has committed */
    enum view_status status;
    enum view_end why;
    struct view_set suspects, proved; /* members that are gone; proved is a part of suspects */

    /* As coordinator. Its term is `promised`: when this rank sees a higher one, it gives up. */
    enum view_phase phase;
    struct view value; /* VIEW_PHASE_PREPARE: the promised proposal with the highest term */
    struct view_set promisers, accepters;
    uint64_t steps[VIEW_RANKS]; /* of the promisers */

    uint64_t retry_due; /* when to repeat; 0: act at once */
    uint64_t end_due;   /* when the grace is over; 0: there is a majority */
};

/* Installs view 1, of all ranks. */
void vb_view_init(struct view_machine *m, const struct view_opts *opts);

/* A rank seems to be gone. The same rank may be named again, also in another way. */
void vb_view_suspect(struct view_machine *m, int rank, enum view_how how, uint64_t now,
                     struct view_out *out);

/* Takes a message that was decoded. Returns false if no correct rank sends it in this state. */
bool vb_view_take(struct view_machine *m, int from, const struct view_message *message,
                  uint64_t now, struct view_out *out);

/* Tells a rank that is out of the view, before its connection is closed, which view that is. */
void vb_view_farewell(struct view_machine *m, int rank, struct view_out *out);

/* Time has passed. vb_view_due() returns when this has to be called; UINT64_MAX: not needed. */
void vb_view_tick(struct view_machine *m, uint64_t now, struct view_out *out);
uint64_t vb_view_due(const struct view_machine *m);

/* While too few are left: no proof will come, so the grace is over. */
void vb_view_end_grace(struct view_machine *m, uint64_t now);

/* The rank is about to commit a step: to apply its sum, or the copy of it that a rank which was
 * behind has got from view.holder. Returns false if the view has stopped, or if this is not the
 * next step; then nothing may be applied. */
bool vb_view_commit(struct view_machine *m, uint64_t step);

static inline enum view_status vb_view_status(const struct view_machine *m)
{
    return m->status;
}

static inline enum view_end vb_view_why(const struct view_machine *m)
{
    return m->why;
}

/* The installed view, borrowed until the next call. */
static inline const struct view *vb_view_now(const struct view_machine *m)
{
    return &m->view;
}

#endif
