/* SPDX-License-Identifier: MIT
 *
 * The control plane of a group: each pair of ranks has one authenticated TCP connection, and a
 * thread serves all connections of this rank, also while the rank computes. They carry heartbeats,
 * aborts, one-time keys for data connections and small blobs, but no training data.
 *
 * All functions may be called while the thread runs. Functions that wait take a deadline.
 */
#ifndef VB_NET_CONTROL_CONTROL_H
#define VB_NET_CONTROL_CONTROL_H

#include "net/control/auth.h"
#include "net/control/sock.h"
#include "net/control/times.h"
#include "net/wire/wire_door.h"
#include "net/wire/wire_member.h"
#include "net/wire/wire_record.h"

#include <stdatomic.h>

#define GROUP_EPOCH 1u /* the epoch of the ranks that a job starts with */

struct control;

struct control_opts {
    int rank;
    int world;
    int slots;      /* number of slots: world, or more in an elastic group */
    uint32_t epoch; /* the epoch that began when this rank joined */
    bool elastic;   /* if a peer is lost, the group goes on without it */
    bool agrees;    /* elastic, without joiners: the ranks agree on views (agree.c) */
    double patience;
    uint32_t choice;             /* enum vb_transport_choice, sent to joiners */
    const unsigned char *secret; /* borrowed until vb_control_close(); NULL: nobody may call */
    int listen_fd; /* closed by vb_control_close(), or by vb_control_open() if that fails */
    int unix_fd;   /* closed in the same way; -1: none */
    struct vb_times times;
    /* For each rank, a count of the data that came from it, which is a sign of life too: on a slow
     * link heartbeats wait behind data. NULL: none. */
    const _Atomic unsigned *heard;
    void (*alarm)(void *arg); /* called by the thread when a peer is lost or aborts the group */
    void *arg;
    void (*lost)(void *arg, int rank,
                 const char *why); /* as in struct vb_group_opts; may be NULL */
    void *lost_arg;
    bool keeps_losses;            /* lost is called from vb_control_tell_losses() on, not before */
    const _Atomic bool *hopeless; /* as in struct vb_group_opts; may be NULL */
    /* Elastic groups: set, before the alarm, when a vb_control_take_*() has something to return. */
    _Atomic bool *news;
};

vb_status vb_control_open(const struct control_opts *opts, struct control **control_p);

/* Says goodbye to all peers, waits briefly until they have too, and ends the thread. */
void vb_control_close(struct control *control);

/* Connects to a peer that listens, again if it hangs up before the two ranks have proved the secret
 * to each other. */
vb_status vb_control_dial(struct control *control, int rank, const struct sock_addr *to,
                          uint64_t deadline);

/* Waits until the connections to ranks from..to-1 are up. */
vb_status vb_control_wait_up(struct control *control, int from, int to, uint64_t deadline);

/* The address of this rank on its connection to a peer. */
vb_status vb_control_local_addr(struct control *control, int rank, struct sock_addr *addr_p);

/* Rank 0 collects the infos of all ranks and sends them to each rank as a table. infos has `world`
 * entries: the caller fills in its own, this function the others. From time to time rank 0 logs
 * which ranks are missing and how far each has come. */
vb_status vb_control_rendezvous(struct control *control, struct wire_info *infos,
                                uint64_t deadline);

/* The data connection of a pair needs a one-time key: the lower rank gives it, the higher rank
 * takes it, and connects with vb_control_stream_dial(), which calls `connect` for a socket and
 * proves the key, again if the lower rank hangs up. The lower rank gets its socket from
 * vb_control_stream_wait(). */
typedef vb_status (*control_connect_fn)(void *arg, uint64_t deadline, int *fd_p);
vb_status vb_control_give_key(struct control *control, int rank);
vb_status vb_control_take_key(struct control *control, int rank, uint64_t deadline,
                              unsigned char key[AUTH_KEY_BYTES]);
vb_status vb_control_stream_dial(struct control *control, int rank, control_connect_fn connect,
                                 void *arg, const unsigned char key[AUTH_KEY_BYTES],
                                 uint64_t deadline, int *fd_p);
vb_status vb_control_stream_wait(struct control *control, int rank, uint64_t deadline, int *fd_p);

/* Derives a key of this pair from the session key of its connection. */
void vb_control_pair_key(struct control *control, int rank, unsigned char key[AUTH_KEY_BYTES]);

#define CONTROL_BLOB_MAX 4096

/* Each rank gives a blob of the same size and gets the blobs of all, in rank order. All ranks make
 * the same exchanges in the same order. `what` names the exchange in messages. */
vb_status vb_control_exchange(struct control *control, const void *blob, size_t len_bytes,
                              void *all, const char *what, uint64_t deadline);

/* Drops a peer. This does nothing if the peer has said goodbye. In an elastic group the peer is
 * told why, and vb_control_take_ended() then returns it. */
void vb_control_lose(struct control *control, int rank, const char *why);

/* The data connection to a peer has failed, so the peer is lost. In an elastic group it has died if
 * its control connection closes as well, at once or soon. Otherwise it is lost a little later, as
 * VB_END_SILENT: it may still run. */
void vb_control_data_lost(struct control *control, int rank, const char *why);

/* The first asks all peers for an answer. The second returns whether a frame has come from a peer
 * since a point in time. */
void vb_control_ask_all(struct control *control);
bool vb_control_heard_since(struct control *control, int rank, uint64_t ns);

/* Calls control_opts.lost for the peers that are lost already, and from now on at each loss. */
void vb_control_tell_losses(struct control *control);

void vb_control_abort(struct control *control, const char *why);

/* This rank cannot go on: vb_control_close() says no goodbye, so the others take it for lost. */
void vb_control_forsake(struct control *control);

/* What heartbeats carry: the number of steps, what the rank does (enum vb_activity), and for which
 * rank it waits. Any thread may call these. */
void vb_control_step(struct control *control);
void vb_control_begin_at(struct control *control, uint64_t step);
void vb_control_does(struct control *control, uint32_t activity);
void vb_control_waits(struct control *control, bool waits, int rank); /* rank -1: for any */

/* Returns VB_OK, cheaply, while the group can go on; otherwise an error, with a text. */
vb_status vb_control_status(struct control *control, char *text, size_t size);

/* Returns true if a peer said goodbye so long ago that its last notes, which use another
 * connection, have arrived too. */
bool vb_control_has_left(struct control *control, int rank);

/* Returns true if a wait for a peer is pointless: the peer is gone, or the group has failed. */
bool vb_control_is_gone(struct control *control, int rank);

/* ---- groups that agree (agree.c) ------------------------------------------------------------- */

/* A view, as the group has to know it. members has room for all ranks. */
struct control_agreed {
    uint32_t number;
    int n, holder;
    int *members;
    uint64_t step, term;
};

/* See vb_group_commit(). number: of the view that the caller has come to; at first it is 1. Takes a
 * lock that nobody holds for long. */
bool vb_control_commit(struct control *control, uint64_t step, uint32_t number);

/* Waits until a view with a higher number is agreed, and returns it. Returns false after the
 * deadline, or if the group has failed. */
bool vb_control_agreed(struct control *control, uint32_t above, uint64_t deadline,
                       struct control_agreed *agreed_p);
void vb_control_proved(struct control *control, int rank); /* see vb_group_proved() */

/* Names the ranks that may go on together with this one, and those that are taken for gone. */
#define CONTROL_RANKS_TEXT 96
void vb_control_view_text(struct control *control, char left[CONTROL_RANKS_TEXT],
                          char gone[CONTROL_RANKS_TEXT]);

/* ---- the door of groups that agree (callers.c) ----------------------------------------------- */

/* See the functions of the same names in net/group/group_door.h. root: the address of rank 0. */
vb_status vb_control_let_in(struct control *control, const void *job, size_t len_bytes, int most,
                            const char *root);
int vb_control_callers(const struct control *control);
vb_status vb_control_invite(struct control *control, const struct vb_invitation *inv);
vb_status vb_control_turn_away(struct control *control, const char *why);
void vb_control_doors(struct control *control, const char *root, char out[VB_DOORS_TEXT]);

/* The first returns a copy of the socket at which callers come, or -1. From the second on, callers
 * may come to this socket, too; it is taken over. */
int vb_control_door_fd(struct control *control);
vb_status vb_control_add_door(struct control *control, int listen_fd);

/* ---- elastic groups (membership.c, join.c) --------------------------------------------------- */

/* Called at rank 0: from now on joiners may get free slots. */
void vb_control_open_slots(struct control *control);
uint32_t vb_control_epoch(struct control *control); /* the newest epoch that this rank knows */

#define CONTROL_WHY 200

/* The text why a rank is gone that has failed begins with this; its own words follow. */
#define CONTROL_GAVE_UP "the peer gave up: "

/* A peer that is lost or has left. vb_control_take_ended() returns each such peer once. The group
 * fences it and then frees its slot with vb_control_slot_clean(). */
struct control_end {
    int rank;
    enum vb_end how;
    uint64_t sign_ns; /* when the peer was last known to live */
    char why[CONTROL_WHY];
};
bool vb_control_take_ended(struct control *control, struct control_end *end_p);
/* process_fd is a pidfd of the rank's process if rank 0 has shared memory with it, otherwise -1.
 * The control plane takes it over, also on failure, and gives the slot to no other rank before the
 * process has ended. */
void vb_control_slot_clean(struct control *control, int rank, int process_fd);

/* The first returns the card of a joiner once; false: none has come. The last waits for it. */
bool vb_control_take_card(struct control *control, int rank, struct wire_member *member_p,
                          struct wire_card *card_p);
vb_status vb_control_send_card(struct control *control, int rank, const struct wire_card *card);
vb_status vb_control_wait_card(struct control *control, int rank, uint64_t deadline,
                               struct wire_card *card_p);

/* Returns the data connection that a joiner has made; -1: none yet. */
int vb_control_take_stream(struct control *control, int rank);

/* Reads the oldest window offer of a peer, which stays until it is dropped; false: none. */
bool vb_control_peek_offer(struct control *control, int rank, struct wire_offer *offer_p);
void vb_control_drop_offer(struct control *control, int rank);
vb_status vb_control_send_offer(struct control *control, int rank, const struct wire_offer *offer);

/* ---- the joiner itself ----------------------------------------------------------------------- */

/* Asks rank 0 for a slot, again while another rank is joining. The caller owns the connection and
 * passes it to vb_control_adopt(). */
vb_status vb_control_ask_slot(const struct sock_addr *root,
                              const unsigned char secret[AUTH_KEY_BYTES], uint64_t deadline,
                              struct wire_slot *slot_p, int *fd_p, struct auth_session *session_p);
void vb_control_adopt(struct control *control, int rank, int fd,
                      const struct auth_session *session);

/* Sends this rank's info to rank 0 and waits for the list of members, which has one entry for each
 * slot; the epoch of a free slot is 0. */
vb_status vb_control_meet_members(struct control *control, const struct wire_info *mine,
                                  struct wire_member *members, uint64_t deadline);
void vb_control_joined(struct control *control); /* tells rank 0 that all connections are up */

/* Asks a peer for a heartbeat and waits a moment. Returns the seconds since the peer was heard, and
 * in *beat_p its last heartbeat. */
double vb_control_silence_s(struct control *control, int rank, struct wire_beat *beat_p);

/* ---- records (control_record.c) and clocks (control_clock.c) --------------------------------- */

/* See the functions of the same names in net/group/group_record.h. */
void vb_control_offer_folder(struct control *control, const unsigned char token[VB_FOLDER_TOKEN]);
bool vb_control_take_folder(struct control *control, unsigned char token_p[VB_FOLDER_TOKEN]);
void vb_control_sees_folder(struct control *control, bool sees);
void vb_control_record_rate(struct control *control, uint64_t bytes_per_s);
vb_status vb_control_send_record(struct control *control, const char *file, bool first,
                                 const void *bytes, size_t len_bytes);
vb_status vb_control_end_records(struct control *control, uint64_t lost_bytes, uint64_t lost_rows,
                                 uint64_t deadline);
void vb_control_on_record(struct control *control, vb_record_fn fn, void *arg);
vb_status vb_control_wait_records(struct control *control, uint64_t deadline);
struct vb_record_stats vb_control_record_stats(struct control *control);

vb_status vb_control_compare_clocks(struct control *control);
void vb_control_compare_last(struct control *control, uint64_t deadline);
int vb_control_exchanges(struct control *control, int rank,
                         struct vb_clock_exchange out[VB_CLOCK_EXCHANGES]);

#endif
