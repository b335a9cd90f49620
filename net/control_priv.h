/* SPDX-License-Identifier: MIT
 *
 * The control plane from inside: control.c has the thread, roll.c what ranks settle when they meet,
 * conn.c the frames of one connection, accept.c the callers that are not yet known.
 *
 * Everything in struct control is touched under its lock, except where it says otherwise.
 */
#ifndef VB_CONTROL_PRIV_H
#define VB_CONTROL_PRIV_H

#include "net/control.h"
#include "net/handshake.h"

#include <pthread.h>
#include <stdatomic.h>

#define PENDING_MAX 32
#define REFUSED_MAX 16

/* A blob that has come from a peer and was not asked for yet. */
struct blob {
    struct blob *next;
    uint32_t tag;
    uint32_t len_bytes;
    unsigned char bytes[];
};

/* The connection to one peer. */
struct conn {
    int fd;    /* -1: not up */
    bool left; /* it said goodbye */
    bool lost;
    unsigned char session[AUTH_KEY_BYTES];
    uint64_t heard_ns;
    uint64_t step;

    unsigned char head[WIRE_FRAME_HEAD]; /* the frame that is coming in */
    size_t head_have;
    unsigned char *payload;
    uint32_t payload_len, payload_have, payload_room;
    uint16_t type;

    unsigned char *out; /* what the socket did not take yet */
    size_t out_len, out_room;

    bool has_info, has_key, key_given;
    struct wire_info info;
    unsigned char sealed[AUTH_SEALED_BYTES]; /* the key it gave us */
    unsigned char one_time[AUTH_KEY_BYTES];  /* the key we gave it */
    int stream_fd;                           /* the data connection it made, -1: none */
    struct blob *blobs;
    int n_blobs;
};

/* A caller that has not proved anything yet. */
struct pending {
    int fd; /* -1: free */
    uint64_t deadline;
    struct handshake hs;
};

struct control {
    struct control_opts opts;
    unsigned char secret[AUTH_KEY_BYTES];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake_fd;
    bool stopping;

    struct conn *conns; /* one a rank; one's own stays down */
    struct pending pending[PENDING_MAX];
    char refused[REFUSED_MAX][SOCK_TEXT]; /* addresses that were complained of */
    int n_refused;

    unsigned char *table; /* from rank 0; NULL: not yet */
    uint32_t next_tag;
    _Atomic uint64_t step;
    uint64_t beat_ns;   /* when the next heartbeat is due */
    uint64_t looked_ns; /* when silence was last looked for */

    _Atomic vb_status failed; /* set once, after failure was written */
    char failure[256];
};

/* control.c: the first reason stays; wakes everybody. */
void control_fail(struct control *c, vb_status st, const char *fmt, ...) VB_PRINTF(3, 4);
const char *control_host(struct control *c, int rank);
void control_wake(struct control *c); /* the thread has something to do */
struct wire_call control_call_to(struct control *c, int rank, enum wire_kind kind);

/* Waiting, under the lock: for the next change (false: the deadline has passed), or until arrived
 * holds for a rank. */
bool control_wait_change(struct control *c, uint64_t deadline);
typedef bool (*control_arrived_fn)(struct control *c, int rank);
vb_status control_wait_for(struct control *c, int rank, control_arrived_fn arrived,
                           const char *what, uint64_t deadline);
vb_status control_say_failure(struct control *c); /* logs why the group cannot go on */

/* conn.c */
void conn_init(struct conn *conn);
void conn_fini(struct conn *conn);
void conn_up(struct control *c, int rank, int fd, const unsigned char session[AUTH_KEY_BYTES]);
void conn_read(struct control *c, int rank);
void conn_flush(struct control *c, int rank);
vb_status conn_send(struct control *c, int rank, uint16_t type, const void *payload,
                    size_t len_bytes);
void conn_lose(struct control *c, int rank, const char *why);

/* accept.c */
void accept_new(struct control *c, int listen_fd);
void pending_read(struct control *c, struct pending *p);
void pending_expire(struct control *c, uint64_t now);
void pending_drop(struct pending *p);

#endif
