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

struct control;

struct control_opts {
    int rank;
    int world;
    uint32_t epoch;
    const unsigned char *secret;
    int listen_fd; /* taken over, closed by control_close(), also when control_open() fails */
    int unix_fd;   /* likewise; -1: none */
    int beat_ms;
    int silent_ms;            /* a peer that says nothing for so long is lost */
    void (*alarm)(void *arg); /* called by the thread when a peer is lost or gives up */
    void *arg;
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

/* The data plane has lost a peer; no matter if the peer has said goodbye. */
void control_lose(struct control *control, int rank, const char *why);

void control_abort(struct control *control, const char *why);
void control_step(struct control *control); /* the counter of the heartbeat */

/* VB_OK, or why the group cannot go on; text then says it. Cheap while all is well. */
vb_status control_status(struct control *control, char *text, size_t size);
bool control_has_left(struct control *control, int rank);

/* How long ago a peer was heard, and its counter then. */
double control_silence_s(struct control *control, int rank, uint64_t *step_p);

#endif
