/* SPDX-License-Identifier: MIT
 *
 * The control plane from inside: control.c has the thread, roll.c what ranks settle when they meet,
 * conn.c the frames of one connection, accept.c the callers that are not yet known, seats.c who may
 * come late and who is gone.
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
#define LEAVE_NS 2000000000u /* for the last notes of a rank that said goodbye */

/* A blob that has come from a peer and was not asked for yet. */
struct blob {
    struct blob *next;
    uint32_t tag;
    uint32_t len_bytes;
    unsigned char bytes[];
};

/* Who has a seat. In a group that is not elastic a seat is taken once, and stays so. */
enum seat_state {
    SEAT_EMPTY,    /* nobody, and nothing is left of whoever was */
    SEAT_EXPECTED, /* its rank may call, with the epoch of the seat */
    SEAT_TAKEN,
    SEAT_ENDED, /* elastic: the group has yet to fence it */
};

/* What there may be of a process that had a seat and did not leave it. */
enum seat_ghost {
    GHOST_NONE,
    GHOST_HERE,      /* as long as the process lives, on this host */
    GHOST_ELSEWHERE, /* for good: nobody here can tell when it ends */
};

/* The connection to one peer. */
struct conn {
    int fd;           /* -1: not up */
    bool left;        /* it said goodbye */
    uint64_t left_ns; /* when */
    bool lost;
    enum seat_state seat;
    uint32_t epoch; /* of the pair: that of the rank that came later */

    /* Elastic. */
    char why[CONTROL_WHY]; /* it is gone */
    bool dropped_us;
    bool silent;      /* was, when it was lost */
    bool ended;       /* it hung up, gave up or had not joined: it does nothing */
    bool handed;      /* the group has been told that it ended */
    bool admit_due;   /* at rank 0: it has not yet admitted the newcomer */
    bool admit_waits; /* ... who waits here until the seat is clean */
    bool has_card, card_taken;
    int n_offers;
    struct blob *offers;
    uint64_t freed; /* counts seats that became empty; 0: never was taken */
    enum seat_ghost ghost;
    uint32_t ghost_pid;
    struct wire_member admit;
    unsigned char card[WIRE_CARD_BYTES];

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
    uint32_t table_len;
    uint32_t epoch;    /* of the membership: the newest that is known */
    bool open;         /* at rank 0: newcomers may have seats */
    int joining;       /* at rank 0: the seat of who is joining, -1: nobody */
    bool told_members; /* ... and it has been told whom to call */
    uint64_t joining_until;
    uint64_t n_freed;
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
uint64_t control_patient(const struct control *c, uint64_t ns); /* as long, here */
void conn_lose(struct control *c, int rank, const char *why);
void conn_text(const struct conn *conn, char *out, size_t size); /* the payload, printable */
bool conn_keep_blob(struct conn *conn, struct blob **list, int *n, int max);

/* seats.c: how an elastic group differs, all under the lock. */
void seat_end(struct control *c, int rank, const char *why);
void seat_leave(struct control *c, int rank); /* a goodbye has come */
void seat_look(struct control *c, uint64_t now);
void seat_news(struct control *c);
enum wire_verdict seat_judge_join(struct control *c);
bool seat_give(struct control *c, int fd, const unsigned char session[AUTH_KEY_BYTES]);
bool seat_frame(struct control *c, int rank); /* one of its own; false: out of place */
bool seat_info_came(struct control *c, int rank);

/* accept.c */
void accept_new(struct control *c, int listen_fd);
void pending_read(struct control *c, struct pending *p);
void pending_expire(struct control *c, uint64_t now);
void pending_drop(struct pending *p);

#endif
