/* SPDX-License-Identifier: MIT
 *
 * The parameter server, from inside. docs/async.md explains how it works.
 *
 * Workers and servers are the ranks of a group of their own: first the workers, then the servers.
 * Each server owns a shard of the parameters. A worker needs a *ticket* for each gradient. Server 0
 * gives the tickets: they bound the number of gradients, how many gradients of a worker are under
 * way, and how far a worker may be ahead of the others. A worker *pushes* a gradient into one of
 * its slots at each server; the server applies and acknowledges it. With the acknowledgement the
 * server may put a *reply*: a small dense shard, or the values that a sparse worker has asked for.
 * A larger dense shard is *streamed* over TCP: a reply that is sent from the parameters themselves.
 *
 * With replicas every server has a *standby*, a second server of the same shard that follows it:
 * see ps_replica.c.
 */
#ifndef VB_ENGINE_PS_PS_H
#define VB_ENGINE_PS_PS_H

#include "engine/train/train.h"

#include <stdatomic.h>

#define PS_CHANNEL 100
#define PS_SERVERS_MAX 64
#define PS_SLOTS_MAX 2
#define PS_REPLY_MAX 65536 /* bytes: a larger dense shard is read with get, or streamed */
#define PS_UNBOUNDED (-1)
#define PS_PUT_MS 60000 /* how long a put or get may wait for room */

/* What the group does. The same on all ranks. */
struct ps_job {
    int workers, servers;
    int join_slots; /* number of workers that may join after the start */
    int replicas;   /* 2: each server has a standby; the group is elastic */
    bool sparse;
    bool hogwild;    /* workers apply gradients in place; all are on the server's host */
    int64_t bound;   /* steps a worker may be ahead of the slowest; PS_UNBOUNDED: no limit */
    int backup;      /* bound 0: number of gradients that a round does not wait for */
    int64_t begin;   /* steps of earlier runs, from the checkpoint */
    int64_t steps;   /* steps with those of earlier runs: gradients applied; bound 0: rounds */
    size_t n;        /* number of parameters */
    int words;       /* 4-byte words of state for each parameter */
    size_t max_keys; /* sparse: most keys of a batch */
    bool no_reply;   /* dense shards are read with get, whatever their size */
    double clip;     /* bound 0: largest norm of the mean gradient; 0: no limit */
    int64_t eval_every, save_every; /* steps between evaluations, and checkpoints; 0: never */
    struct vb_k_rule rule;
    struct vb_k_schedule schedule;
};

/* ---- the two windows (ps_layout.c) ----------------------------------------------------------- */

/* At the beginning of a server's part of the window of shards. */
struct ps_head {
    _Atomic uint64_t version; /* gradients applied to the parameters; bound 0: rounds */
    _Atomic int64_t claimed;  /* hogwild: tickets that workers have taken */
    _Atomic uint64_t snapped; /* version of the snapshot */
    char pad[40];
};

/* At the beginning of a slot. */
struct ps_push {
    uint32_t seq; /* number of the push, counted by the worker */
    uint32_t flags;
    uint64_t base;     /* version the gradient was computed from; PS_BASE_REPLY: which reply */
    uint32_t samples;  /* samples of the batch */
    float scale;       /* factor for the gradient: 1 / samples, times that of clipping */
    uint32_t n_values; /* sparse: values of the gradient */
    uint32_t n_keys;   /* sparse: keys, which follow the values */
    uint32_t reply_at; /* sparse: place of the first answer in the worker's reply */
    char pad[28];
};

/* Flags of a push. */
enum {
    PS_BASE_REPLY = 1,
    PS_NO_GRADIENT = 2, /* a worker's first keys, before it has a gradient */
    PS_OWN_KEYS = 4,    /* the keys belong to this gradient and want no answer; otherwise they
                           belong to the next one, and the server answers with their values */
};

/* Sizes and offsets are in bytes, except for shards, which are in parameters. */
struct ps_layout {
    int slots; /* slots of each worker */
    bool replies;
    size_t first[PS_SERVERS_MAX], n[PS_SERVERS_MAX]; /* shards */

    /* At a server: */
    size_t slot[PS_SERVERS_MAX]; /* size of one slot */
    size_t reply;                /* size of one reply */
    size_t params, state[PS_SERVERS_MAX], snap[PS_SERVERS_MAX], snap_state[PS_SERVERS_MAX];
    size_t client_states[PS_SERVERS_MAX]; /* with replicas: a struct ps_client_state a worker */
    size_t replies_from[PS_SERVERS_MAX];  /* copies that replies are sent from */
    size_t shard_bytes[PS_SERVERS_MAX], slots_bytes[PS_SERVERS_MAX];

    /* At a worker: */
    size_t area[2], area_state, area_heads, worker_shard_bytes;
    size_t push[PS_SERVERS_MAX], replies_at, worker_slots_bytes;
    size_t client_state; /* with replicas: one struct ps_client_state a server, to send from */
};

/* Workers are numbered: first the workers of the start, then those that may join. A server has a
 * struct ps_client for each number. The ranks of the group are in another order: workers of the
 * start, servers, their standbys, workers that joined. */
int vb_ps_clients(const struct ps_job *job); /* number of workers, with those that may join */
int vb_ps_worker_rank(const struct ps_job *job, int worker);
int vb_ps_worker_at(const struct ps_job *job, int rank); /* -1: the rank is a server */
int vb_ps_server_rank(const struct ps_job *job, int k);
int vb_ps_standby_rank(const struct ps_job *job, int k); /* -1: the job has no replicas */
int vb_ps_server_ranks(const struct ps_job *job);        /* number of servers and standbys */
int vb_ps_server_at(const struct ps_job *job, int rank); /* its shard; -1: the rank is a worker */
bool vb_ps_is_direct(const struct ps_job *job, bool mapped); /* gradients go into the slot */

void vb_ps_layout_make(const struct ps_job *job, bool mapped, struct ps_layout *lay);

/* Reserves bytes behind *end, in whole cache lines. Returns their offset. */
size_t vb_ps_reserve(size_t *end, size_t bytes);

/* Offset of a worker's slot at server k, and of the copy that the server sends a reply from. */
size_t vb_ps_slot_at(const struct ps_layout *lay, int k, int worker, int slot);
size_t vb_ps_reply_from(const struct ps_layout *lay, int k, int worker, int parity);

/* Offset of a reply at the worker. */
size_t vb_ps_reply_to(const struct ps_job *job, const struct ps_layout *lay, int parity);

/* Size of a push to server k, with its head. The caller has checked the push. */
size_t vb_ps_push_bytes(const struct ps_job *job, const struct ps_layout *lay, int k,
                        const struct ps_push *push);

/* Whether the shard is streamed between this rank and the peer. If the server applies a gradient
 * while it streams, the worker may receive a mixture of old and new parameters, as with get. Both
 * sides must come to the same result. */
bool vb_ps_streams(const struct vb_group *group, const struct ps_job *job, int peer);

/* Whether this rank shares memory with that rank. */
bool vb_ps_mapped(const struct vb_group *group, int rank);

/* Whether this worker can read the parameters in the memory of every server. */
bool vb_ps_maps_all(const struct vb_group *group, const struct ps_job *job);

/* Collective, at the start: vb_ps_maps_all() of each worker of the start, (workers). */
vb_status vb_ps_who_maps(struct vb_group *group, const struct ps_job *job, bool *maps);

/* ---- notes ----------------------------------------------------------------------------------- */

/* The value of a note has 24 bits: a kind and an argument. A server forwards the notes of workers
 * to its standby, packed into the argument of another note. So the kinds that workers send are
 * below PS_WORKER_KINDS, and their arguments are short. */
#define PS_KIND_BITS 6
#define PS_ARG_BITS 18
#define PS_WORKER_BITS 10     /* a forwarded note: number of the worker */
#define PS_WORKER_KIND_BITS 5 /* a forwarded note: kind */
#define PS_WORKER_ARG_BITS 3  /* a forwarded note: argument */
#define PS_WORKER_KINDS (1 << PS_WORKER_KIND_BITS)

enum ps_kind {
    /* Sent by workers. */
    PS_PUSH,     /* a push is in a slot; argument: which slot */
    PS_SNAP,     /* take a snapshot; argument 1: with state */
    PS_READ,     /* the snapshot was read, and another one may be taken */
    PS_END,      /* the worker will push no more */
    PS_HELLO,    /* the worker has joined; argument: see below */
    PS_BYE,      /* the worker has all that it needs */
    PS_FAILOVER, /* to a standby: the server is gone; a struct ps_client_state comes with it */
    PS_GONE,     /* never sent: queued when a worker, or the other server of the shard, is gone */
    PS_WORKER_KINDS_END,

    /* Sent by servers. */
    PS_NOTICE = PS_WORKER_KINDS, /* to a worker; argument: see below */
    PS_SNAPPED,                  /* the snapshot was taken */
    PS_FINAL,                    /* the parameters will not change any more */
    PS_WELCOME,                  /* answer to PS_HELLO: the worker takes part */
    PS_JOB_DONE,                 /* answer to PS_HELLO: the job has no steps left */
    PS_SHARE_COUNT,   /* by server 0, bound 0: the number of shares of the data; then PS_SHARE */
    PS_SHARE,         /* which of these shares is the worker's from now on */
    PS_FAILOVER_DONE, /* the standby serves; argument: pushes it has and has not acknowledged */
    PS_FORWARD,       /* to the standby: what a worker sent, packed by ps_forward_pack() */
    PS_CONFIRM,       /* from the standby: the oldest forwarded note was processed */
    PS_SERVER_KINDS_END,
};

#define PS_VALUE(kind, arg) ((uint32_t)(kind) << PS_ARG_BITS | (uint32_t)(arg))
#define PS_KIND(value) ((enum ps_kind)((value) >> PS_ARG_BITS))
#define PS_ARG(value) ((value) & ((1u << PS_ARG_BITS) - 1))
#define PS_NOTE(kind, arg) VB_NOTE(PS_CHANNEL, PS_VALUE(kind, arg))

/* Arguments of PS_HELLO. */
enum {
    PS_MAPS = 1,   /* the worker reads parameters from the servers' memory */
    PS_REJOIN = 2, /* the worker was a member before, in another slot of the group */
    PS_JOINED = 4, /* always set, so that the argument is never 0 */
};

/* Arguments of PS_NOTICE. */
enum {
    PS_ACK = 1,       /* the server has processed the oldest push under way */
    PS_REPLY = 2,     /* a reply came with this note */
    PS_LAST = 4,      /* there will be no more tickets */
    PS_EVAL = 8,      /* the worker is to evaluate the model */
    PS_SAVE = 16,     /* the worker is to write a checkpoint */
    PS_ALONE = 32,    /* the server has no standby any more */
    PS_TICKETS = 256, /* times the number of new tickets, at most PS_SLOTS_MAX */
};

_Static_assert(PS_KIND_BITS + PS_ARG_BITS == 24, "the value of a note has 24 bits");
_Static_assert(PS_WORKER_BITS + PS_WORKER_KIND_BITS + PS_WORKER_ARG_BITS == PS_ARG_BITS,
               "a forwarded note fills an argument");
_Static_assert((int)PS_WORKER_KINDS_END <= PS_WORKER_KINDS, "too many kinds for workers");
_Static_assert((int)PS_SERVER_KINDS_END <= 1 << PS_KIND_BITS, "too many kinds for servers");
_Static_assert(VB_WORLD_MAX <= 1 << PS_WORKER_BITS, "too few bits for the number of a worker");
_Static_assert(VB_WORLD_MAX < 1 << PS_ARG_BITS, "too few bits for a number of shares");
_Static_assert((PS_MAPS | PS_REJOIN | PS_JOINED) < 1 << PS_WORKER_ARG_BITS, "a hello is too long");
_Static_assert(PS_SLOTS_MAX <= 1 << PS_WORKER_ARG_BITS, "too few bits for a slot");
_Static_assert((PS_SLOTS_MAX + 1) * PS_TICKETS <= 1 << PS_ARG_BITS, "too few bits for tickets");

/* A share of the data and the number of shares in one word, which a worker stores atomically. */
#define PS_SHARE_PACK(share, shares) ((uint32_t)(share) << 16 | (uint32_t)(shares))
#define PS_SHARE_OF(packed) ((int)((packed) >> 16))
#define PS_SHARES_OF(packed) ((int)((packed)&0xffffu))

/* ---- the server: what it keeps --------------------------------------------------------------- */

#define PS_OPS 16
#define PS_FAULTS_MAX 64 /* faults that are kept: the first ones */

/* The ops of notes to one rank, used in turn. */
struct ps_ring {
    struct vb_op ops[PS_OPS];
    uint64_t n; /* ops that were used */
};

/* Used only by sparse jobs: the keys of a worker's next batch, which came with its last push. They
 * stay in the slot of that push. The server answers with the values at these keys. */
struct ps_client_keys {
    bool to_answer;    /* the next reply has the values at these keys */
    bool for_ticket;   /* the keys came after the last ticket, so the worker may get the next */
    int slot;          /* slot of the push */
    uint32_t n_values; /* values of the gradient, in front of the keys */
    uint32_t n;        /* number of keys */
    uint32_t reply_at; /* place of the first value in the worker's reply */
};

/* Used only with a bound of 0: a worker's part in the round. */
struct ps_client_round {
    int share, shares;          /* the worker's share of the data; shares 0: not sent yet */
    int64_t ticket;             /* round of the worker's last ticket */
    bool held;                  /* the worker's gradient waits for those of the others */
    const struct ps_push *push; /* the gradient that is held */
    const uint32_t *keys;       /* its keys; sparse jobs only */
};

/* How often and how long others waited for a worker. */
struct ps_client_waits {
    uint64_t n, ns, max_ns;
};

/* Used only by a standby, and by a standby that serves. */
struct ps_client_failover {
    bool called;        /* the worker has sent PS_FAILOVER */
    uint32_t hello;     /* argument of a PS_HELLO that came before the standby serves; 0: none */
    unsigned n_gone;    /* how often the group said that the worker is gone */
    unsigned n_retired; /* how often the server has forwarded that */
};

/* A worker, as a server sees it. */
struct ps_client {
    bool member;     /* the worker takes part */
    bool was_member; /* the worker takes part or has taken part */
    bool ended;      /* the worker has sent PS_END */
    bool bye;        /* the worker has sent PS_BYE, or is gone */
    bool mapped;     /* the worker reads parameters from memory and needs no replies */

    uint32_t pushes;           /* pushes that were processed */
    uint32_t replies;          /* replies that were sent */
    uint64_t reply_version[4]; /* versions of the last replies, by number modulo 4 */
    int64_t clock;             /* gradients that were applied or dropped */
    int64_t granted;           /* tickets; as clock, counted from base */
    int64_t base;              /* value of clock when the worker joined */
    bool sent_last;            /* the worker knows that there are no more tickets */
    uint64_t stalled_ns;       /* since when the worker waits for the slowest; 0: it does not */
    int wants_snap;            /* the worker waits for a snapshot: 1, or 2 with state; 0: no */
    uint32_t evals, saves;     /* how often the worker was told to evaluate, and to save */
    uint64_t made[2];          /* versions that its last two gradients made */
    unsigned n_made;
    struct ps_client_keys keys;
    struct ps_client_round round;

    /* vb_ps_server_admit() clears all fields above, and none below: ops may be under way. */
    struct ps_client_waits waits;
    struct vb_stale stale;
    struct ps_ring ops;
    struct ps_client_failover failover;
};

/* What a worker has received from its server, sent to the standby with PS_FAILOVER. */
struct ps_client_state {
    uint32_t acked, replies;
    int64_t tickets;
    uint32_t evals, saves;
    char pad[40];
};

struct ps_server_stats {
    int64_t applied; /* gradients applied in this run; bound 0: rounds */
    int64_t samples; /* samples of these gradients */
    uint64_t apply_ns, notify_ns, idle_ns, total_ns, cpu_ns;
    uint64_t begin_ns; /* when the server began */
    uint64_t mark_ns;  /* end of the last interval that was measured */
};

/* A note that came, and from whom. */
struct ps_arrival {
    int worker; /* PS_PARTNER: the other server of the shard */
    uint32_t value;
};

#define PS_PARTNER (-1)

/* What a worker sent, as the argument of PS_FORWARD. */
static inline uint32_t ps_forward_pack(struct ps_arrival a)
{
    return (uint32_t)a.worker << (PS_WORKER_KIND_BITS + PS_WORKER_ARG_BITS) |
           (uint32_t)PS_KIND(a.value) << PS_WORKER_ARG_BITS |
           (PS_ARG(a.value) & ((1u << PS_WORKER_ARG_BITS) - 1));
}

static inline struct ps_arrival ps_forward_unpack(uint32_t arg)
{
    uint32_t kind = arg >> PS_WORKER_ARG_BITS & ((1u << PS_WORKER_KIND_BITS) - 1);

    return (struct ps_arrival){(int)(arg >> (PS_WORKER_KIND_BITS + PS_WORKER_ARG_BITS)),
                               PS_VALUE(kind, arg & ((1u << PS_WORKER_ARG_BITS) - 1))};
}

/* Notes that came, in order: filled by the note handler, emptied by the server's thread. first and
 * end only grow; they are taken modulo size. */
struct ps_queue {
    struct ps_arrival *arrivals;
    unsigned size, first;
    _Atomic unsigned end;
    _Atomic bool flooded; /* more notes came than workers may send */
};

/* Used only with a bound of 0: the gradients of one round. */
struct ps_round {
    int64_t number;    /* rounds that are complete */
    int n_held;        /* gradients of the present round that are held */
    uint64_t held_ns;  /* when the last of them came */
    float *sum;        /* dense jobs */
    uint32_t *keys[2]; /* sparse jobs: lists before and after the next worker's is merged */
    float *values[2];
};

/* Used only with replicas: the other server of the shard. */
struct ps_partner {
    int rank;               /* -1: there is none, or none any more */
    bool shares_memory;     /* with this server */
    bool gone;              /* used by a standby */
    struct ps_arrival *log; /* forwarded and not confirmed; as large as the queue */
    unsigned log_first, log_end;
    struct ps_ring ops;
};

struct ps_faults {
    struct vb_fault list[PS_FAULTS_MAX];
    int n;
};

struct ps_server {
    const struct ps_job *job;
    struct vb_group *group;
    struct ps_layout lay;
    int k;           /* number of the server, and of its shard */
    bool standby;    /* follows its partner, and sends nothing to workers */
    bool mapped;     /* at least one worker reads the server's memory */
    bool opened;     /* the channel is open */
    bool never_spun; /* setting of the group before, restored at the end */
    bool done;       /* all workers have ended or are gone */
    bool final;      /* the last snapshot is taken: the server only waits for PS_BYE */

    struct vb_window *shards, *slots;
    struct ps_head *head;
    float *params;
    void *state; /* in the window with hogwild, otherwise own_state */
    struct vb_mem own_state;
    struct vb_k_sparse *sparse;

    struct ps_client *clients; /* (vb_ps_clients()) */
    struct ps_queue queue;
    int64_t granted;     /* tickets of all workers */
    uint64_t stalled_ns; /* bound above 0: the longest wait of those that have just ended */
    uint32_t due;        /* PS_EVAL, PS_SAVE: for the next notice to the lowest worker */
    int reader;          /* worker that reads the snapshot; -1: none */
    struct ps_round round;
    struct ps_partner partner;
    struct ps_server_stats stats;
    struct ps_faults faults;

    /* Called before workers are told that the parameters are final. May be NULL. */
    vb_status (*on_final)(struct ps_server *s, void *arg);
    void *final_arg;
};

/* ---- transfers and waits (ps_send.c) --------------------------------------------------------- */

/* As vb_group_wait(), but yields the cpu for a while before it sleeps: most answers come within
 * that time, and waking up takes as long. ready() reads atomics only. */
vb_status vb_ps_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what,
                     int from);

bool vb_ps_op_is_done(void *op); /* a vb_ready_fn */

/* Lets waits sleep at once where messages are long: waking up is short compared with them, and a
 * rank that polls takes the cpu from the ranks that transfer. Returns the setting before. */
bool vb_ps_sleep_at_once(struct vb_group *group, const struct ps_job *job, bool mapped);

/* Puts from and to the same window, as soon as there is room; waits for at most PS_PUT_MS. */
vb_status vb_ps_put(struct vb_window *win, int to, size_t from, size_t at, size_t len,
                    uint32_t note, struct vb_op *op);
vb_status vb_ps_put_note(struct vb_window *win, int to, uint32_t note,
                         struct vb_op *op); /* a note without bytes */

/* Waits until the next op of a ring is free, and returns it for vb_ps_put(). */
vb_status vb_ps_ring_take(struct vb_group *group, struct ps_ring *ring, const char *what,
                          struct vb_op **op_p);

/* ---- the server: functions ------------------------------------------------------------------- */

/* ps_open.c. Collective with vb_ps_worker_create(). params and state are those of the whole model;
 * the server copies its shard. The caller closes *server_p even after a failure. */
vb_status vb_ps_server_create(struct vb_group *group, const struct ps_job *job, const float *params,
                              const void *state, struct ps_server **server_p);

/* Collective with vb_ps_worker_close(). NULL is fine. In an elastic group, ops to a rank that is
 * gone may be under way: there the caller calls vb_ps_server_leave(), closes the group, and then
 * calls vb_ps_server_close(). */
void vb_ps_server_leave(struct ps_server *s);
void vb_ps_server_close(struct ps_server *s);

/* ps_server.c: serves until all workers that take part have ended. */
vb_status vb_ps_server_run(struct ps_server *s);

/* The same in parts: begin, then rounds until s->done, then finish. A round waits for at most about
 * 0.1 s for something to do. */
vb_status vb_ps_server_begin(struct ps_server *s);
vb_status vb_ps_server_round(struct ps_server *s);
vb_status vb_ps_server_finish(struct ps_server *s);

/* The first half of vb_ps_server_finish(), which calls it if the caller has not: closes the
 * statistics and takes the last snapshot. */
void vb_ps_server_conclude(struct ps_server *s);

/* In an elastic group, after the finish: serves until all workers have sent PS_BYE or are gone, for
 * at most a minute after the last PS_BYE. */
vb_status vb_ps_server_linger(struct ps_server *s);

/* Between rounds, and without replicas: the worker takes part no longer, and its pushes under way
 * are not applied. */
vb_status vb_ps_server_retire(struct ps_server *s, int worker);

/* Likewise: the worker takes part from now on, as one that has just been started. */
vb_status vb_ps_server_admit(struct ps_server *s, int worker);

void vb_ps_server_note(void *server, int rank, uint32_t value); /* a vb_note_fn */

/* Queues a note that came, or PS_GONE, for which there is always room. */
void vb_ps_server_queue(struct ps_server *s, int worker, uint32_t value);

/* Does what a note asks for. */
vb_status vb_ps_process(struct ps_server *s, struct ps_arrival a);

/* ps_push.c: processes a push. VB_ERR_INPUT: the push is not valid. */
vb_status vb_ps_take_push(struct ps_server *s, int worker, uint32_t slot);
bool vb_ps_push_is_sane(const struct ps_server *s, const struct ps_push *push); /* its numbers */
const struct ps_push *vb_ps_push_in(const struct ps_server *s, int worker, int slot);

/* Bound 0: whether the round has all gradients that it waits for; false with another bound. */
bool vb_ps_round_is_complete(const struct ps_server *s);
vb_status vb_ps_close_round(struct ps_server *s); /* applies it and begins the next one */

/* Adds the time since the last call to *ns, a field of s->stats. */
void vb_ps_lap(struct ps_server *s, uint64_t *ns);

/* Counts a gradient. by: gradients of others that were applied since its parameters were read. */
void vb_ps_stale_add(struct vb_stale *stale, uint64_t by);

/* ps_apply.c: changes parameters. VB_ERR_INPUT: the push is not valid. */
vb_status vb_ps_apply(struct ps_server *s, int worker, const struct ps_push *push);
vb_status vb_ps_hold(struct ps_server *s, int worker, const struct ps_push *push);
vb_status vb_ps_apply_round(struct ps_server *s); /* all gradients that are held, in rank order */
void vb_ps_snapshot(struct ps_server *s, bool with_state);
vb_status vb_ps_gather(struct ps_server *s, const uint32_t *keys, size_t n, float *values);

/* The keys of a push, which follow its values. */
static inline const uint32_t *ps_keys_of(const struct ps_push *push, size_t n_values)
{
    return (const uint32_t *)(const void *)(push + 1) + n_values;
}

/* ps_member.c: workers that join and go. Called once, when the server is created. */
void vb_ps_member_watch(struct ps_server *s);
vb_status vb_ps_member_hello(struct ps_server *s, int worker, uint32_t how);
vb_status vb_ps_member_gone(struct ps_server *s, int worker);

/* Logs a fault and keeps it for the result. */
void vb_ps_log_fault(struct ps_server *s, int rank, const char *what, const char *why);
const char *vb_ps_fault_kind(const struct ps_server *s, int rank); /* how the rank ended */

/* Bound 0: sends workers their shares of the data, if these have changed. */
vb_status vb_ps_member_shares(struct ps_server *s);
vb_status vb_ps_send_share(struct ps_server *s, int worker);

/* To be called with the status of a put to a worker. Returns VB_OK if the worker is gone, because
 * the group reports that anyway. */
vb_status vb_ps_member_sent(struct ps_server *s, int worker, vb_status st);

/* The worker takes part and has not ended. */
static inline bool ps_is_working(const struct ps_client *client)
{
    return client->member && !client->ended;
}

int vb_ps_first_worker(const struct ps_server *s); /* the lowest that is working; -1: none */

/* ps_replica.c: processes a note while the shard has another server. */
vb_status vb_ps_replicate(struct ps_server *s, struct ps_arrival a);

/* Tells a worker that the standby serves, and sends what the worker lacks. */
vb_status vb_ps_confirm_failover(struct ps_server *s, int worker);
bool vb_ps_standby_is_done(const struct ps_server *s); /* its server has left the group */

/* ps_notify.c: sends a note without bytes. A standby sends nothing. */
vb_status vb_ps_send_note(struct ps_server *s, int worker, enum ps_kind kind, uint32_t arg);

/* Sends a worker, or all workers, a notice if there is something to tell: the given flags, tickets,
 * what is due. A reply goes with the notice where it has to. */
vb_status vb_ps_notify(struct ps_server *s, int worker, uint32_t notice);
vb_status vb_ps_notify_all(struct ps_server *s);
vb_status vb_ps_notify_first(struct ps_server *s, int worker); /* a worker's first notice */

/* After a failover: sends what the worker has not received. state: what it has received. */
vb_status vb_ps_resend(struct ps_server *s, int worker, const struct ps_client_state *state);

int64_t vb_ps_slowest(const struct ps_server *s); /* the lowest clock; INT64_MAX: none works */
uint64_t vb_ps_version_of(const struct ps_server *s);

/* ---- the worker: what it keeps --------------------------------------------------------------- */

/* What a worker knows of a server. The note handler, which may run on the group's progress thread,
 * writes the atomic fields. */
struct ps_link {
    int rank;
    _Atomic int standby;        /* rank; -1: there is none, or none any more */
    const char *mapped_shards;  /* the server's window of shards; NULL: it is not mapped */
    char *mapped_slots;         /* the server's window of slots; NULL: it is not mapped */
    const char *standby_shards; /* the standby's window of shards; NULL: it is not mapped */
    _Atomic uint32_t acked, replies;
    _Atomic bool snapped, final, welcome; /* PS_SNAPPED, PS_FINAL, PS_WELCOME came */
    struct vb_op push_ops[PS_SLOTS_MAX], get_op, head_op, note_op;
    uint32_t sent;              /* number of pushes */
    _Atomic bool lost;          /* the server is gone, and there was no failover yet */
    _Atomic bool failed_over;   /* rank is that of the standby */
    bool failing_over;          /* the standby was called, and was not sent the rest yet */
    uint32_t acked_at_failover; /* acked when the standby was called */
    _Atomic int serving;        /* argument of PS_FAILOVER_DONE; -1: the standby does not serve */
};

struct ps_worker {
    const struct ps_job *job;
    struct vb_group *group;
    struct ps_layout lay;
    int number;
    bool mapped;     /* the worker reads the memory of all servers */
    bool overlapped; /* gets are started right after the push before */
    bool opened;     /* the channel is open */
    bool never_spun; /* setting of the group before, restored at the end */
    struct vb_window *shards, *slots;
    struct ps_link links[PS_SERVERS_MAX];

    /* Written by the note handler and the hooks of the group: */
    _Atomic int64_t tickets;       /* that were received */
    _Atomic bool last;             /* there will be no more tickets */
    _Atomic bool job_done;         /* the job had no steps left when the worker joined */
    uint32_t share_count;          /* argument of PS_SHARE_COUNT; used by the note handler only */
    _Atomic uint32_t shares;       /* PS_SHARE_PACK() of the last PS_SHARE; 0: as at the start */
    _Atomic int lost_rank;         /* a server that is gone; -1: none */
    _Atomic int below;             /* number of members with lower worker numbers */
    _Atomic uint32_t due;          /* PS_EVAL, PS_SAVE; cleared when the worker begins */
    _Atomic uint32_t evals, saves; /* how often either was received */

    uint32_t failovers; /* number of failovers so far */
    uint32_t hello;     /* argument of its PS_HELLO; 0: a worker of the start */
    bool ended;         /* has sent PS_END */
    _Atomic bool bye;   /* has sent PS_BYE */
    int64_t used;       /* tickets that were used */
    uint32_t pushed;
    int area;         /* which of the two areas holds the parameters */
    uint64_t version; /* of server 0's shard, when it was read last */
    uint64_t base;    /* base and flag for the next push */
    uint32_t base_flag;
    bool getting;                     /* gets are under way */
    size_t slice[PS_SERVERS_MAX + 1]; /* sparse: where the keys of each server begin */

    /* hogwild: */
    struct vb_stale stale;
    uint64_t seen; /* version that this worker's last gradient made */
};

/* ---- the worker: functions ------------------------------------------------------------------- */

/* ps_worker_open.c. Collective with vb_ps_server_create(). The caller closes *worker_p even after a
 * failure. vb_ps_worker_leave() and vb_ps_worker_close() are as those of the server. */
vb_status vb_ps_worker_create(struct vb_group *group, const struct ps_job *job,
                              struct ps_worker **worker_p);
void vb_ps_worker_leave(struct ps_worker *w);
void vb_ps_worker_close(struct ps_worker *w);

/* The same for a joiner of an elastic group, whose servers work. vb_ps_worker_hello() follows. */
vb_status vb_ps_worker_join(struct vb_group *group, const struct ps_job *job,
                            struct ps_worker **worker_p);

/* ps_worker.c: waits for a ticket. go is false if there are no more. */
vb_status vb_ps_worker_ticket(struct ps_worker *w, bool *go_p);

/* Dense: where the gradient is to be written, or NULL if the caller chooses. */
vb_status vb_ps_worker_grads(struct ps_worker *w, float **grads_p);
vb_status vb_ps_worker_push(struct ps_worker *w, const float *grads, uint32_t samples, float scale);

/* Puts the push of that number, from its slot. */
vb_status vb_ps_put_push(struct ps_worker *w, int k, uint32_t seq);

/* Waits until all pushes are acknowledged. */
vb_status vb_ps_worker_settle(struct ps_worker *w);

/* Sparse: sends the keys of the first batch. Does nothing over shared memory, where
 * vb_ps_worker_values() reads. Keys ascend, also in the functions below. */
vb_status vb_ps_worker_ask(struct ps_worker *w, const uint32_t *keys, size_t n);

/* Sparse: pushes the gradient at keys, and the keys of the next batch. next NULL: there is none. */
vb_status vb_ps_worker_push_sparse(struct ps_worker *w, const uint32_t *keys, const float *values,
                                   size_t n, uint32_t samples, float scale, const uint32_t *next,
                                   size_t n_next);

bool vb_ps_worker_claim(struct ps_worker *w); /* hogwild: takes a ticket; false: no more */

void vb_ps_worker_note(void *worker, int rank, uint32_t value); /* a vb_note_fn */

/* ps_pull.c: the newest parameters of a dense job, borrowed until the push. */
vb_status vb_ps_worker_pull(struct ps_worker *w, const float **params_p);

/* Right after a push: starts the next pull, if it can overlap the computation. */
vb_status vb_ps_worker_prefetch(struct ps_worker *w);

/* Sparse: the values at the keys that were sent before; over shared memory, at any keys. */
vb_status vb_ps_worker_values(struct ps_worker *w, const uint32_t *keys, size_t n,
                              const float **values_p);

/* hogwild: the parameters and the state of the server, and a gradient that was added to them. */
float *vb_ps_worker_shared(struct ps_worker *w, void **state_p);
void vb_ps_worker_applied(struct ps_worker *w);

/* The version of server 0: from mapped memory, and by any transport. */
uint64_t vb_ps_worker_version(const struct ps_worker *w);
vb_status vb_ps_worker_fetch_version(struct ps_worker *w, uint64_t *version_p);

vb_status vb_ps_read_snapshot(struct ps_worker *w, float *params, void *state, uint64_t *version_p);

/* ps_worker_end.c: lets the servers take a snapshot and reads it. state: NULL, or room for job->n *
 * job->words * 4 bytes. */
vb_status vb_ps_worker_snapshot(struct ps_worker *w, float *params, void *state,
                                uint64_t *version_p);

/* The worker pushes no more. Waits until all workers have come to that, and reads the final
 * parameters. */
vb_status vb_ps_worker_end(struct ps_worker *w, float *params, void *state, uint64_t *version_p);

/* For a joiner: takes part from now on. VB_ERR_ACCESS: the job has no steps left. again: the worker
 * was a member before. */
vb_status vb_ps_worker_hello(struct ps_worker *w, bool again);

/* After the end, in an elastic group: the servers need not wait for this worker any longer. */
vb_status vb_ps_worker_bye(struct ps_worker *w);

/* ---- a worker's waits and failover (ps_failover.c) ------------------------------------------- */

void vb_ps_worker_gone(struct ps_worker *w, int rank); /* the server of that rank is gone */

/* As vb_ps_wait(), for server k (-1: for any). If a server is gone meanwhile, the worker fails over
 * to its standby, sends what the standby lacks, and goes on waiting; without a standby the wait
 * fails at once. no_timeout: for what other workers have to do first. They may be evaluating, or
 * slow; a rank that died or is silent is found by the group. */
vb_status vb_ps_await(struct ps_worker *w, vb_ready_fn ready, void *arg, const char *what, int k,
                      bool no_timeout);

/* Waits for an op with server k. VB_AGAIN: the server is gone, and the worker has failed over. */
vb_status vb_ps_op_await(struct ps_worker *w, struct vb_op *op, const char *what, int k);

/* After VB_ERR_PEER from server k. VB_OK: the worker has failed over to the standby. */
vb_status vb_ps_failover(struct ps_worker *w, int k);

/* ---- small batches (ps_compact.c) ------------------------------------------------------------ */

/* Finds the distinct keys of a batch, and replaces each entry by the place of its key. */
struct ps_compact;
vb_status vb_ps_compact_create(uint64_t features, size_t max_nnz, struct ps_compact **compact_p);
void vb_ps_compact_destroy(struct ps_compact *c);

/* index: (n), each below features. keys: ascending, borrowed until the next call, with room for one
 * more; places: (n), borrowed until the next call, too. */
void vb_ps_compact_make(struct ps_compact *c, const uint32_t *index, size_t n, uint32_t **keys_p,
                        size_t *n_keys_p, const uint32_t **places_p);

#endif
