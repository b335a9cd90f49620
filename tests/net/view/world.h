/* SPDX-License-Identifier: MIT
 *
 * A job of a few ranks, each of which is a real machine of net/view, and what can happen next to
 * it: messages that arrive or get lost, crashes, also between two messages, suspicions, right or
 * wrong, proofs, cut networks, timers, steps. An action leads from one state to another, always in
 * the same way.
 */
#ifndef TESTS_NET_VIEW_WORLD_H
#define TESTS_NET_VIEW_WORLD_H

#include "net/view/view.h"

#define WORLD_RANKS 5
#define WORLD_PACKETS 56
#define WORLD_EPOCHS 10
#define WORLD_STEPS 4
#define WORLD_ACTIONS 400

/* How often each fault may happen in one run. */
struct limits {
    int ranks;
    int crashes;
    int wrong;   /* suspicions of ranks that live and can be reached */
    int losses;  /* of single messages */
    int swaps;   /* messages that overtake another one of the same pair */
    int cuts;    /* of the network, into two parts, for good */
    int retries; /* timers that fire before their answers have come */
    int steps;   /* that each rank may commit */
    int rounds;  /* terms: a run that needs more is not followed */

    /* Sets of ranks; 0: all. Only these crash, suspect wrongly, are suspected wrongly. */
    unsigned char crash, accuse, accused;
};

enum action_kind {
    ACT_DELIVER, /* a: number of the packet */
    ACT_LOSE,    /* a: number of the packet */
    ACT_SWAP,    /* a: number of the packet that overtakes those before it */
    ACT_SUSPECT, /* a suspects b */
    ACT_PROVE,   /* a learns that b has ended */
    ACT_CRASH,   /* a; b: 1 if what it has sent is lost too */
    ACT_CUT,     /* a: set of the ranks of one part */
    ACT_RETRY,   /* a: its timer fires */
    ACT_GRACE,   /* a: it has waited long enough for proofs */
    ACT_COMMIT,  /* a: it commits the next step */
    ACT_COPY,    /* a: it copies the step that the others have committed */
};

struct action {
    unsigned char kind, a, b;
    unsigned char sends; /* 0: all messages leave; otherwise the rank crashes after so many */
};

struct packet {
    unsigned char from, to;
    struct view_message message;
};

struct world {
    struct view_machine m[WORLD_RANKS];
    struct limits left;
    unsigned char alive;            /* set of ranks */
    unsigned char cut[WORLD_RANKS]; /* set of ranks that a rank cannot reach */
    int n_packets;
    struct packet packets[WORLD_PACKETS]; /* sorted by pair, then in the order of sending */

    /* What an observer knows. */
    uint32_t views[WORLD_RANKS][WORLD_EPOCHS]; /* the view that a rank had in an epoch; 0: none */
    uint32_t under[WORLD_RANKS][WORLD_STEPS];  /* the view in which its step was computed */
    unsigned char gave_epoch[WORLD_RANKS], gave_step[WORLD_RANKS]; /* its last gradient */
    int sent;                                                      /* messages of the last action */
    const char *wrong; /* what no run may do; NULL: nothing */
};

void world_init(struct world *w, const struct limits *limits);
void world_copy(struct world *to, const struct world *from); /* the used part */

/* Lists what can happen. Returns the number. */
int world_actions(const struct world *w, struct action out[WORLD_ACTIONS]);
void world_apply(struct world *w, struct action action);
void world_print(const struct world *before, struct action action);

bool world_may_crash(const struct world *w, int rank);
bool world_is_alive(const struct world *w, int rank);
/* All ranks that live go on in one view of exactly these ranks, or nobody lives. */
bool world_is_settled(const struct world *w);

/* A hash of all that decides what can happen. without_limits: also to runs without new faults. */
uint64_t world_hash(const struct world *w, bool without_limits);

#endif
