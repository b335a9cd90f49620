/* SPDX-License-Identifier: MIT
 *
 * Types and functions that the files of the control plane share. Everything in struct control is
 * read and written under its lock unless a comment says otherwise.
 */
#ifndef VB_NET_CONTROL_CONTROL_PRIV_H
#define VB_NET_CONTROL_CONTROL_PRIV_H

#include "net/control/control.h"
#include "net/control/handshake.h"
#include "net/view/view.h"

#include <pthread.h>
#include <stdatomic.h>

#define REFUSED_MAX 8
#define LEAVE_NS 2000000000u /* time for the last notes of a rank that said goodbye to arrive */

/* A blob that a peer has sent and that nobody has asked for yet. */
struct blob {
    struct blob *next;
    uint32_t tag;
    uint32_t len_bytes;
    unsigned char bytes[];
};

struct blob_list {
    struct blob *first; /* the oldest */
    int n;
};

/* The state of a slot. In a group that is not elastic a slot is taken once and stays taken. */
enum slot_state {
    SLOT_EMPTY,    /* no rank has the slot, and all state of its former rank is freed */
    SLOT_EXPECTED, /* the rank of the slot may connect, with the epoch of the slot */
    SLOT_TAKEN,
    SLOT_ENDED, /* elastic groups: the rank of the slot is gone, but not fenced yet */
};

/* Whether the former process of a slot, gone without a goodbye, may still write to memory that it
 * has mapped. As long as it may, no other rank gets the slot. */
enum unfenced {
    UNFENCED_NONE,
    UNFENCED_UNTIL_END, /* it may write until it ends, which process_fd tells */
    UNFENCED_FOREVER,   /* it is on another host, or has no pidfd: nobody can tell when it ends */
};

/* The frame that is being received. */
struct conn_in {
    unsigned char head[WIRE_FRAME_HEAD + WIRE_TAG];
    size_t head_len, head_have; /* number of bytes of the head: all, received */
    uint16_t type;
    unsigned char *payload;
    uint32_t len;        /* number of payload bytes; the tag follows them */
    uint32_t have, room; /* number of bytes of payload and tag received, allocated */
};

/* Bytes to send that the socket has not accepted yet. */
struct conn_out {
    unsigned char *bytes;
    size_t len, room;
};

struct conn_beat {
    uint64_t frame_ns;     /* when a frame was last received */
    uint64_t heard_ns;     /* the same or later: when the time until the peer is silent began */
    struct wire_beat last; /* the last heartbeat that is known; VB_DOES_UNKNOWN: none */
    uint64_t last_ns;      /* when it came */
    bool watched;          /* this rank asks the peer for heartbeats (watch.c) */
    uint64_t accused_ns;   /* when somebody found the peer silent; 0: nobody, or it has answered */
    uint32_t accused_ms;   /* how long the peer had been silent then */
    bool said_busy;        /* the log says that the kernel shows the silent peer running */
    unsigned data;         /* control_opts.heard when vb_watch() last ran */
    uint64_t data_ns;      /* when that last changed */
    uint32_t answers;      /* heartbeats that have come */
    int kernel_ms;         /* how long the kernel waits for the peer; 0: it is on this host */
};

/* What this rank does, as other threads have noted it, and since when. */
struct own_work {
    _Atomic uint64_t step;
    _Atomic uint32_t activity;
    _Atomic uint32_t waits_for;
    struct wire_beat seen; /* when the control thread last looked */
    uint64_t since_ns;     /* since when it is the same */
    uint64_t page_waits;
};

/* The data connection that the peer makes, and the keys for it. */
struct conn_data {
    bool has_key, key_given;
    unsigned char sealed[AUTH_SEALED_BYTES]; /* the key that the peer gave this rank */
    unsigned char one_time[AUTH_KEY_BYTES];  /* the key that this rank gave the peer */
    int fd;                                  /* -1: not connected yet, or taken by the group */
};

struct conn_end {
    bool left;        /* the peer said goodbye */
    uint64_t left_ns; /* when the peer said goodbye */
    bool lost;        /* the peer is gone without a goodbye */
    /* Used only in elastic groups: */
    bool silent;     /* the peer is lost, but may still run */
    uint64_t cut_ns; /* when it was known to be gone, before its control connection ended; 0: it was
                        not */
    uint64_t sign_ns;      /* when the peer was last known to live; 0: it is not lost */
    bool inactive;         /* the peer closed, aborted or had not joined, so it no longer writes */
    bool dropped_us;       /* the peer has dropped this rank */
    bool gave_up;          /* the peer has failed, and said why */
    bool reported;         /* vb_control_take_ended() has returned this peer */
    char why[CONTROL_WHY]; /* a sentence that says why the peer is gone */
};

/* Elastic groups: the data that a member and a joiner send each other. */
struct conn_join {
    bool admit_due;            /* at rank 0: this member has not yet admitted the joiner */
    bool admit_waits;          /* the joiner in `admit` waits for vb_control_slot_clean() */
    struct wire_member admit;  /* the rank that gets this slot next */
    bool has_card, card_taken; /* the card was received; vb_control_take_card() has returned it */
    unsigned char card[WIRE_CARD_BYTES];
    struct blob_list offers; /* the window offers of the peer */
};

/* Elastic groups: the rank that had the slot before. */
struct conn_past {
    uint64_t freed; /* value of control.n_freed when this slot was last freed; 0: never */
    enum unfenced unfenced;
    int process_fd; /* pidfd of the process that may still write; -1: none */
};

/* A limit in bytes a second. What was not used before may be used later, up to `most`. */
struct rate {
    double per_ns, most, left;
    uint64_t at_ns; /* when `left` was computed; 0: never */
};

/* What the root knows about the records of a peer. */
struct conn_record {
    bool told;      /* the peer was sent the token of the run folder */
    uint32_t state; /* enum wire_records_state; 0: the peer has not answered */
    struct rate in;
};

/* The slot of one peer, and the connection to it. */
struct conn {
    int fd;          /* -1: not up */
    uint32_t polled; /* the events that the thread waits for; 0: none yet */
    enum slot_state slot;
    uint32_t epoch; /* the epoch of this rank or of the peer, whichever joined later */
    bool has_info;
    struct wire_info info;
    enum wire_verdict refused; /* why a caller with this rank was refused; 0: none was */
    struct auth_session session;
    struct blob_list blobs; /* received for vb_control_exchange() */
    struct conn_in in;
    struct conn_out out;
    struct conn_beat beat;
    struct conn_data data;
    struct conn_end end;
    struct conn_join join;
    struct conn_past past;
    struct conn_record record;
};

/* Records that wait to be sent to the root, or what the root does with those that come. The root is
 * rank 0 or, when it is gone, the rank that has offered a folder last. */
struct records {
    int root;
    uint64_t unsent_bytes, unsent_rows; /* that waited when the root was gone */
    uint64_t bytes_per_s;
    struct vb_record_stats stats;
    struct rate out;
    unsigned char *queue; /* payloads, each after its length (4); NULL: nothing was sent yet */
    size_t first, len;    /* where the oldest byte lies; number of bytes */
    unsigned char token[VB_FOLDER_TOKEN];
    bool has_token; /* root: it offers a folder; others: the token was not taken yet */
    vb_record_fn fn;
    void *arg;
};

/* The root: the exchanges of times with a rank. It outlives the connection. */
struct clock_peer {
    uint32_t epoch;    /* of the rank; another rank in the slot begins anew */
    bool waits;        /* a question is not answered yet */
    uint64_t asked_ns; /* the time in the last question */
    int burst;         /* number of questions that follow at once */
    uint64_t interval_ns;
    struct vb_clock_exchange list[VB_CLOCK_EXCHANGES]; /* the best one of each interval */
    int n;
};

struct clocks {
    struct clock_peer **peers; /* NULL: clocks are not compared, or not yet with this rank */
    uint64_t next_ns;
};

/* Groups that agree: the machine of this rank, and what it was not told yet (agree.c). */
#define VIEW_HOWS (VIEW_LEFT + 1)

struct peer_process {
    int fd; /* a pidfd; -1: none */
    struct vb_process_id id;
};

struct agreement {
    /* Of the machine; taken after the lock of the control plane, which everybody holds who changes
     * more than the step. So a commit does not wait for sockets. */
    pthread_mutex_t lock;
    struct view_machine machine;
    struct view_message in;
    struct view_out out, farewell;
    struct view_set news[VIEW_HOWS]; /* ranks that are gone, for each way in which */
    struct view_set droppers;        /* ranks that have dropped this one */
    bool telling;                    /* the machine is being told; news waits */
    bool over; /* this rank leaves: it commits nothing, and agrees to nothing */
    int from;  /* the rank whose message came last; -1: none */
    struct peer_process *processes; /* of the ranks of this host */
    uint64_t kill_due;              /* when stopped ranks are killed; 0: a majority is left */
};

/* A caller that has not proved the secret yet. */
struct door;
struct pending {
    int fd; /* -1: this place is free */
    struct door *door;
    uint64_t since; /* when the caller was accepted */
    struct handshake hs;
};

/* Groups that agree: callers that have proved the secret and want to join (callers.c). */
struct callers;

/* A listener, and the places for its callers. The last one is that of an earlier group of this
 * process, whose address others know: only those who want to join come there. */
enum { DOOR_TCP, DOOR_UNIX, DOOR_EARLIER, DOORS };
struct door {
    int listen_fd; /* -1: none */
    struct pending *places;
    int n, used;         /* number of places, and of those that are taken */
    bool polled;         /* the thread waits for the listener */
    uint64_t shut_until; /* nobody is accepted before */
};

/* What the log has said about refused callers, and what it has left out. */
struct refusals {
    char known[REFUSED_MAX][SOCK_TEXT]; /* addresses that a line has named */
    unsigned n_known;
    unsigned long long n_left_out; /* since the last line with this number */
    char last[SOCK_TEXT];          /* the last address that was left out, and why */
    const char *last_why;
    uint64_t next_ns, pause_ns; /* when the next line is due; 0: none yet */
};

struct control {
    struct control_opts opts;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake_fd, epoll_fd;
    bool stopping;
    bool forsaken; /* no goodbye is said */

    struct conn *conns; /* one for each slot; the entry of this rank is never connected */
    struct records records;
    struct clocks clocks;
    struct agreement *agreement; /* NULL: the group does not agree */
    struct callers *callers;     /* NULL: nobody is let in yet */
    _Atomic int n_callers;       /* number of those that wait to be invited */
    struct door doors[DOORS];
    struct refusals refusals;
    bool said_shut; /* the log says that no connection can be accepted */

    /* The table of ranks or the list of members, from rank 0. NULL: not received yet. */
    unsigned char *table;
    uint32_t table_len;
    uint32_t epoch;         /* the newest epoch that this rank knows */
    bool open;              /* at rank 0: joiners may get slots */
    int joining;            /* at rank 0: the slot of the rank that is joining, -1: none */
    bool sent_members;      /* at rank 0: the joiner was sent the list of members */
    uint64_t joining_until; /* the joiner's deadline */
    uint64_t n_freed;
    uint32_t next_tag;
    struct own_work work;
    uint64_t beat_ns;            /* when the next heartbeats are asked for */
    uint64_t looked_ns;          /* when vb_watch() last ran */
    bool complete;               /* all pairs of the ranks at the start are connected */
    char lost_text[CONTROL_WHY]; /* why a peer is lost whose connection has ended */

    char (*kept_losses)[CONTROL_WHY]; /* a text for each peer, until vb_control_tell_losses() */
    _Atomic vb_status failed;         /* set once, after `failure` was written */
    char failure[256];
};

/* control.c. Calls opts.lost. Called before vb_control_fail(). */
void vb_control_tell_lost(const struct control *c, int rank, const char *why);

/* Records why the group cannot go on, unless it has failed before. Wakes all threads. */
void vb_control_fail(struct control *c, vb_status st, const char *fmt, ...) VB_PRINTF(3, 4);
const char *vb_control_host(struct control *c, int rank);
void vb_control_wake(struct control *c); /* wakes the control thread */

/* Tell the thread, under the lock, which descriptors it has to wait for. Closing a descriptor ends
 * that, too. They return false, with errno, if the kernel cannot. */
bool vb_control_poll_rank(struct control *c, int rank);
bool vb_control_poll_process(struct control *c, int rank, int fd);
bool vb_control_poll_place(struct control *c, const struct door *door, const struct pending *p);
void vb_control_unpoll(struct control *c, int fd);

/* Both are called under the lock. The first waits for the next change and returns false after the
 * deadline. The second waits until something has come from a rank. */
bool vb_control_wait_change(struct control *c, uint64_t deadline);
enum awaited { AWAITED_UP, AWAITED_TABLE, AWAITED_KEY, AWAITED_STREAM, AWAITED_BLOB, AWAITED_CARD };
vb_status vb_control_wait_for(struct control *c, int rank, enum awaited awaited, const char *what,
                              uint64_t deadline);
vb_status vb_control_say_failure(struct control *c); /* logs why the group cannot go on */

/* A duration multiplied by the patience of the options. */
uint64_t vb_control_patient(const struct control *c, uint64_t ns);

/* conn.c */
void vb_conn_init(struct conn *conn);
void vb_conn_fini(struct conn *conn);
void vb_conn_up(struct control *c, int rank, int fd, const struct auth_session *session);
void vb_conn_read(struct control *c, int rank);      /* reads until nothing is left */
void vb_conn_read_some(struct control *c, int rank); /* lets a peer that floods not block others */
void vb_conn_flush(struct control *c, int rank);
vb_status vb_conn_send(struct control *c, int rank, uint16_t type, const void *payload,
                       size_t len_bytes);
void vb_conn_lose(struct control *c, int rank, const char *why);

/* Copies the payload as printable text. */
void vb_conn_text(const struct conn *conn, char *out, size_t size);

/* Appends the frame just received to a list. Returns false if there is no memory, or if the list
 * would have more than max entries, which the protocol forbids. */
bool vb_conn_keep_blob(const struct conn *conn, struct blob_list *list, int max);

/* membership.c: for elastic groups, under the lock. */
void vb_membership_end(struct control *c, int rank, const char *why);
void vb_membership_leave(struct control *c, int rank); /* called when a goodbye arrives */
/* The data connection has failed. Returns false if the peer is lost at once. */
bool vb_membership_cut(struct control *c, int rank, const char *why);
void vb_membership_check(struct control *c, uint64_t now);
void vb_membership_news(struct control *c);
enum wire_verdict vb_membership_judge_join(struct control *c);
bool vb_membership_give_slot(struct control *c, int fd, const struct auth_session *session);
/* Returns false if the protocol does not allow the frame. */
bool vb_membership_frame(struct control *c, int rank);
void vb_membership_info_came(struct control *c, int rank);

/* watch.c: asks for heartbeats and finds peers that no longer run. The others are called when a
 * connection is up, has failed or was closed, or when a frame has come. */
void vb_watch(struct control *c, uint64_t now);
void vb_watch_start(struct control *c, int rank);
const char *vb_watch_broken(struct control *c, int rank, int err); /* returns why */
uint64_t vb_watch_last_sign(const struct conn *conn); /* when the peer was last known to live */
const char *vb_watch_closed(struct control *c, int rank, bool in_frame);
bool vb_watch_frame(struct control *c, int rank);
/* A peer gives up. If all of this group are about to lose another rank, that is why. */
void vb_watch_confirm(struct control *c);
/* Writes what a peer was doing when it was last heard, as the end of a sentence; "": not known. */
#define WATCH_TEXT (WIRE_BEAT_TEXT + 20)
void vb_watch_text(const struct control *c, int rank, char out[WATCH_TEXT]);

/* control_record.c. The first two return false if the protocol does not allow the frame, and when
 * the next record may be sent. */
bool vb_record_frame(struct control *c, int rank);
uint64_t vb_record_send_due(struct control *c, uint64_t now);
void vb_record_joined(struct control *c, int rank); /* rank 0: a joiner is a member now */
void vb_record_free(struct control *c);
bool vb_rate_take(struct rate *rate, double bytes, uint64_t now);
uint64_t vb_rate_wait_ns(const struct rate *rate, double bytes);

/* agree.c: under the lock; they do nothing if the group does not agree. */
bool vb_agree_open(struct control *c); /* returns false if there is no memory */
void vb_agree_free(struct control *c);
void vb_agree_know(struct control *c); /* the infos of all ranks are known */
void vb_agree_begin_at(struct control *c, uint64_t step);
/* A rank is gone. Called before its connection is closed, or after it has said goodbye. */
void vb_agree_gone(struct control *c, int rank, enum view_how how);
void vb_agree_dropped(struct control *c, int rank);       /* a rank has dropped this one */
void vb_agree_process_ended(struct control *c, int rank); /* its pidfd has news */
void vb_agree_leave(struct control *c);                   /* called before this rank says goodbye */
bool vb_agree_has_ended(const struct control *c);         /* this rank is in no view any more */
bool vb_agree_is_out(const struct control *c, int rank);  /* of the view */
int vb_agree_lead(const struct control *c); /* the lowest member that is not taken for gone */
int vb_agree_members(const struct control *c);
bool vb_agree_is_member(const struct control *c, int rank);
bool vb_agree_frame(struct control *c, int rank);
uint64_t vb_agree_work(struct control *c, uint64_t now); /* returns when it must be called again */

/* callers.c: under the lock. */
enum wire_verdict vb_callers_judge(const struct control *c);
bool vb_callers_take(struct control *c, int fd, const struct auth_session *session);
void vb_callers_serve(struct control *c, int place);
uint64_t vb_callers_work(struct control *c, uint64_t now); /* returns when it is due again */
bool vb_callers_have_output(const struct control *c);
void vb_callers_free(struct control *c);
bool vb_control_poll_caller(struct control *c, int place, int fd, bool first, bool writes);

/* control_clock.c */
bool vb_clock_frame(struct control *c, int rank);
uint64_t vb_clock_due(struct control *c, uint64_t now);
void vb_clock_add(struct clock_peer *peer, const struct vb_clock_exchange *x);
void vb_clock_free(struct control *c);

/* accept.c. The door takes over the descriptor. */
bool vb_door_open(struct door *door, int listen_fd, int ranks);
void vb_door_close(struct door *door);
uint64_t vb_door_opens(struct door *door); /* from when on a caller can be accepted */
void vb_door_answer(struct control *c, struct door *door);
void vb_pending_read(struct control *c, struct pending *p);
void vb_pending_expire(struct control *c, uint64_t now);

#endif
