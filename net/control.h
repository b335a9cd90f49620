/* SPDX-License-Identifier: MIT
 *
 * The control plane of a group: one authenticated TCP connection a pair, and a thread that serves
 * them, so that a rank answers while it computes. Heartbeats, aborts, one-time keys for data
 * connections and small blobs travel here; never a byte of the data path.
 *
 * All functions may be called while the thread runs; those that wait take a deadline.
 */
#ifndef VB_CONTROL_H
#define VB_CONTROL_H

#include "net/auth.h"
#include "net/sock.h"
#include "net/wire_member.h"

#include <stdatomic.h>

#define GROUP_EPOCH 1u /* of those that a job begins with */

struct control;

struct control_opts {
    int rank;
    int world;
    int seats;      /* at least world; more only in an elastic group */
    uint32_t epoch; /* that this rank came with */
    bool elastic;   /* a peer that is lost is gone, alone */
    double patience;
    uint32_t choice; /* enum vb_transport_choice: newcomers are told */
    const unsigned char *secret;
    int listen_fd; /* taken over, closed by control_close(), also when control_open() fails */
    int unix_fd;   /* likewise; -1: none */
    int beat_ms;
    int silent_ms;            /* a peer that says nothing for so long is lost */
    void (*alarm)(void *arg); /* called by the thread when a peer is lost or gives up */
    void *arg;
    _Atomic bool *news; /* elastic: set, before the alarm, when there is something to take */
};

vb_status control_open(const struct control_opts *opts, struct control **control_p);

/* Says goodbye, waits briefly until that has arrived, ends the thread. */
void control_close(struct control *control);

/* Connects to a peer that listens and proves the secret. */
vb_status control_dial(struct control *control, int rank, const struct sock_addr *to,
                       uint64_t deadline);

/* Waits until the connections to ranks from..to-1 are up. */
vb_status control_wait_up(struct control *control, int from, int to, uint64_t deadline);

/* Our address on the connection to a peer. */
vb_status control_local_addr(struct control *control, int rank, struct sock_addr *addr_p);

/* Rank 0 collects everybody's info and sends the table; the others send theirs and wait for it.
 * infos: world of them, one's own filled in; complete on return. After 10 s rank 0 says who is
 * missing and at what stage. */
vb_status control_roll_call(struct control *control, struct wire_info *infos, uint64_t deadline);

/* A one-time key: the lower rank gives one, the higher takes it and dials with it. The stream that
 * results is had by control_stream_dial() on one side and control_stream_wait() on the other. */
vb_status control_give_key(struct control *control, int rank);
vb_status control_take_key(struct control *control, int rank, uint64_t deadline,
                           unsigned char key[AUTH_KEY_BYTES]);
vb_status control_stream_dial(struct control *control, int rank, int fd,
                              const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline);
vb_status control_stream_wait(struct control *control, int rank, uint64_t deadline, int *fd_p);

/* A key that only this rank and the peer have, made of what they agreed on when they connected. */
void control_pair_key(struct control *control, int rank, unsigned char key[AUTH_KEY_BYTES]);

#define CONTROL_BLOB_MAX 4096

/* All ranks give a blob of one size and get those of all, in rank order. Called by all ranks in the
 * same order; what names it in messages. */
vb_status control_exchange(struct control *control, const void *blob, size_t len_bytes, void *all,
                           const char *what, uint64_t deadline);

/* The data plane has lost a peer; no matter if the peer has said goodbye. In an elastic group the
 * peer is told why, and control_take_ended() has it next. */
void control_lose(struct control *control, int rank, const char *why);

void control_abort(struct control *control, const char *why);
void control_step(struct control *control); /* the counter of the heartbeat */

/* VB_OK, or why the group cannot go on; text then says it. Cheap while all is well. */
vb_status control_status(struct control *control, char *text, size_t size);

/* A peer said goodbye so long ago that its last notes, which come another way, are here too. */
bool control_has_left(struct control *control, int rank);

/* ---- elastic groups (seats.c) ----------------------------------------------------------------
 */

/* Rank 0: from now on newcomers may have empty seats. */
void control_open_seats(struct control *control);
uint32_t control_epoch(struct control *control); /* of the membership: the newest known */

#define CONTROL_WHY 200

/* A peer that is lost or has left, once: the group fences it, then says that its seat is clean. */
struct control_end {
    int rank;
    enum vb_end how;
    char why[CONTROL_WHY];
};
bool control_take_ended(struct control *control, struct control_end *end_p);
void control_seat_clean(struct control *control, int rank);

/* A newcomer that has sent its card, once. */
bool control_take_card(struct control *control, int rank, struct wire_member *member_p,
                       struct wire_card *card_p);
vb_status control_send_card(struct control *control, int rank, const struct wire_card *card);
vb_status control_wait_card(struct control *control, int rank, uint64_t deadline,
                            struct wire_card *card_p);

/* The data connection of a newcomer; -1: not yet. */
int control_take_stream(struct control *control, int rank);

/* The oldest offer of a peer; it stays until it is dropped. */
bool control_peek_offer(struct control *control, int rank, struct wire_offer *offer_p);
void control_drop_offer(struct control *control, int rank);
vb_status control_send_offer(struct control *control, int rank, const struct wire_offer *offer);

/* ---- the newcomer itself ----------------------------------------------------------------------
 */

/* Asks the root for a seat; tries again while somebody else is joining. The connection is the
 * caller's, for control_adopt(). */
vb_status control_ask_seat(const struct sock_addr *root, const unsigned char secret[AUTH_KEY_BYTES],
                           uint64_t deadline, struct wire_seat *seat_p, int *fd_p,
                           unsigned char session[AUTH_KEY_BYTES]);
void control_adopt(struct control *control, int rank, int fd,
                   const unsigned char session[AUTH_KEY_BYTES]);

/* Tells rank 0 who and where this rank is, and waits for the members: seats of them, by rank; the
 * epoch is 0 where the seat is empty. */
vb_status control_meet_members(struct control *control, const struct wire_info *mine,
                               struct wire_member *members, uint64_t deadline);
void control_joined(struct control *control); /* this rank is connected with all */

/* How long ago a peer was heard, and its counter then. */
double control_silence_s(struct control *control, int rank, uint64_t *step_p);

#endif
