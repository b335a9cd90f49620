/* SPDX-License-Identifier: MIT
 *
 * The parameter server, from inside. docs/async.md explains how it works, and its words: shard,
 * ticket, slot, push, reply, streamed, standby.
 */
#ifndef VB_ENGINE_PS_PS_H
#define VB_ENGINE_PS_PS_H

#include "engine/train/train.h"

#include <stdatomic.h>

#define PS_CHANNEL 100
_Static_assert(PS_CHANNEL < VB_CHANNEL_DYNAMIC, "vb_channel_alloc() must not return this channel");
#define PS_SERVERS_MAX 64
#define PS_SLOTS_MAX 2
#define PS_REPLY_MAX 65536 /* bytes; larger dense shards are read with get, or streamed */
#define PS_UNBOUNDED (-1)
#define PS_PUT_MS 60000 /* how long a put or get may wait until the transport accepts it */

/* The settings of the job. They are the same on all ranks. */
struct ps_job {
    int workers, servers;
    int join_slots; /* number of workers that may join after the start */
    int replicas;   /* 2: each server has a standby; the group is elastic */
    bool sparse;
    bool hogwild; /* workers update the parameters in place; all workers are on the server's host */
    int64_t bound; /* how many steps a worker may be ahead of the slowest; PS_UNBOUNDED: no limit */
    int backup;    /* bound 0: number of gradients that a round does not wait for */
    int64_t begin; /* number of steps of earlier runs, from the checkpoint */
    int64_t steps; /* number of steps, with earlier runs; a step is a gradient; bound 0: a round */
    size_t n;      /* number of parameters */
    int words;     /* number of 4-byte words of state for each parameter */
    size_t max_keys; /* sparse: maximum number of keys of a batch */
    bool no_reply;   /* dense shards are read with get, whatever their size */
    double clip;     /* bound 0: maximum norm of the mean gradient; 0: no limit */
    /* How long others may wait for a worker that makes no progress; 0: without limit. */
    int64_t stuck_ms;
    /* With replicas: how long after a loss a server waits before it counts the other members. */
    int64_t settle_ms;
    /* Number of steps between evaluations, and between checkpoints; 0: never. */
    int64_t eval_every, save_every;
    struct vb_k_rule rule;
    struct vb_k_schedule schedule;
    /* Sparse jobs with a lazy rule: number of steps since the parameters of the start were up to
     * date (vb_k_sparse_late()). */
    uint32_t late;
    /* Called by the thread of a server for each fault that the server logs; may be NULL. */
    void (*on_fault)(void *arg, const struct vb_fault *fault);
    void *on_fault_arg;
};

/* ---- the two windows (ps_layout.c) ----------------------------------------------------------- */

/* The head of a shard, at the beginning of the server's part of the window of shards. */
struct ps_head {
    _Atomic uint64_t version; /* number of applied gradients (bound 0: rounds), with earlier runs */
    _Atomic int64_t claimed;  /* hogwild: number of tickets that workers took, with earlier runs */
    _Atomic uint64_t snapped; /* version of the parameters in the snapshot */
    _Atomic int32_t stopped;  /* server 0: the signal that has ended the job early, or
                                 PS_STOPPED_DONE; 0: none */
    _Atomic uint32_t late;    /* vb_k_sparse_late() of the snapshot */
    char pad[32];
};
_Static_assert(sizeof(struct ps_head) == 64, "the head of a shard is a cache line");

/* The head of a push, at the beginning of the slot. */
struct ps_push {
    uint32_t seq; /* number of the push, counted by the worker */
    uint32_t flags;
    uint64_t base;     /* version of the used parameters; PS_BASE_REPLY: number of the reply */
    uint32_t samples;  /* number of samples in the batch */
    float scale;       /* factor for the gradient: 1 / samples, times the factor from clipping */
    uint32_t n_values; /* sparse: number of values of the gradient */
    uint32_t n_keys;   /* sparse: number of keys, which follow the values */
    uint32_t reply_at; /* sparse: index in the worker's reply of the value at the first key */
    uint32_t unused;
    int64_t clock; /* base of the worker's clock + number of gradients that it pushed before */
    char pad[16];
};
_Static_assert(sizeof(struct ps_push) == 64, "the head of a push is a cache line");

/* Flags of a push. */
enum {
    PS_BASE_REPLY = 1,
    PS_NO_GRADIENT = 2, /* the push has only the keys of the worker's first batch */
    PS_OWN_KEYS = 4, /* the keys are those of this gradient; otherwise they are the keys of the next
                        batch, and the server replies with the values at these keys */
};

/* Sizes and offsets are in bytes; only first, n and n_most count parameters. */
struct ps_layout {
    int slots; /* number of slots of each worker */
    bool replies;
    bool direct; /* workers write gradients directly into their slots at the server */
    size_t first[PS_SERVERS_MAX], n[PS_SERVERS_MAX]; /* first and number of parameters of a shard */
    size_t n_most;                                   /* number of parameters of the largest shard */

    /* At a server: */
    size_t slot[PS_SERVERS_MAX]; /* size of one slot */
    size_t reply;                /* size of one reply, with a head */
    size_t params, state[PS_SERVERS_MAX], snap[PS_SERVERS_MAX], snap_state[PS_SERVERS_MAX];
    size_t snap_late[PS_SERVERS_MAX];     /* if vb_ps_saves_late(): the parameters in memory */
    size_t client_states[PS_SERVERS_MAX]; /* with replicas: one struct ps_client_state per worker */
    size_t replies_from[PS_SERVERS_MAX];  /* two buffers per worker that replies are sent from */
    size_t shard_bytes[PS_SERVERS_MAX], slots_bytes[PS_SERVERS_MAX];

    /* At a worker: */
    size_t area[2], area_state, area_late, area_heads, worker_shard_bytes;
    size_t push[PS_SERVERS_MAX], replies_at, worker_slots_bytes;
    size_t client_state; /* with replicas: one struct ps_client_state per server, to be sent */
};

/* Each worker has a number: first come the workers that the job starts with, then the joiners. A
 * server has a struct ps_client for each number. The ranks of the group are in another order: the
 * workers that the job starts with, the servers, the standbys, the joiners. */
int vb_ps_clients(const struct ps_job *job); /* number of workers, including joiners */
int vb_ps_worker_rank(const struct ps_job *job, int worker);
int vb_ps_worker_at(const struct ps_job *job, int rank); /* -1: the rank is a server */
int vb_ps_server_rank(const struct ps_job *job, int k);
int vb_ps_standby_rank(const struct ps_job *job, int k); /* -1: the job has no replicas */
int vb_ps_server_ranks(const struct ps_job *job);        /* number of servers and standbys */
int vb_ps_server_at(const struct ps_job *job, int rank); /* number of the shard; -1: a worker */

/* mapped: the worker shares memory with all servers. */
void vb_ps_layout_make(const struct ps_job *job, bool mapped, struct ps_layout *lay);

/* Reserves bytes at *end, in whole cache lines, and advances *end. Returns their offset. */
size_t vb_ps_reserve(size_t *end, size_t bytes);

/* Return the offset of a worker's slot at server k, and the offset at which a worker receives the
 * values of a reply. The head of server 0's shard lies before them. parity: number of the reply
 * modulo 2. */
size_t vb_ps_slot_at(const struct ps_layout *lay, int k, int worker, int slot);
size_t vb_ps_reply_to(const struct ps_job *job, const struct ps_layout *lay, int parity);

/* Returns the size of a push to server k, including the head. The caller has checked the push. */
size_t vb_ps_push_bytes(const struct ps_job *job, const struct ps_layout *lay, int k,
                        const struct ps_push *push);

/* Returns whether the shard is streamed between this rank and the peer; the server and the worker
 * get the same answer. */
bool vb_ps_streams(const struct vb_group *group, const struct ps_job *job, int peer);

/* With a lazy rule, snapshots have parameters that are up to date. With a bound of 0 they also have
 * those in memory, with which a job that resumes makes the same steps. */
bool vb_ps_saves_late(const struct ps_job *job);

bool vb_ps_mapped(const struct vb_group *group, int rank); /* this rank shares memory with it */

/* Returns whether this worker can read the parameters in the memory of every server and standby. */
bool vb_ps_maps_all(const struct vb_group *group, const struct ps_job *job);

/* Collective, at the start of the job. Sets maps[r] to the result of vb_ps_maps_all() on rank r.
 * The array has vb_group_world() entries; those of servers are false. VB_ERR_INPUT: the jobs of two
 * ranks differ in size. */
vb_status vb_ps_who_maps(struct vb_group *group, const struct ps_job *job, bool *maps);

/* ---- notes ----------------------------------------------------------------------------------- */

/* The value of a note has 24 bits: a kind and an argument. A server forwards the notes of workers
 * to its standby, packed into the argument of another note. So the kinds that workers send are
 * below PS_WORKER_KINDS, and the arguments of these notes have at most PS_WORKER_ARG_BITS bits. */
#define PS_KIND_BITS 6
#define PS_ARG_BITS 18
#define PS_WORKER_BITS 10     /* bits of the worker's number in a forwarded note */
#define PS_WORKER_KIND_BITS 5 /* bits of the kind in a forwarded note */
#define PS_WORKER_ARG_BITS 3  /* bits of the argument in a forwarded note */
#define PS_WORKER_KINDS (1 << PS_WORKER_KIND_BITS)

enum ps_kind {
    /* Workers send these kinds: */
    PS_PUSH,      /* a push is in a slot; argument: number of the slot */
    PS_SNAP,      /* asks for a snapshot; argument 1: with the state of the update rule */
    PS_READ,      /* the worker has read the snapshot, so the server may take another one */
    PS_END,       /* the worker will not push any more */
    PS_HELLO,     /* a joiner is ready to take part; argument: PS_MAPS ... */
    PS_BYE,       /* the worker has read the final parameters, and no longer needs the server */
    PS_FAILOVER,  /* to a standby: the server is gone; comes with a struct ps_client_state */
    PS_STOP,      /* the job cannot go on; argument: PS_UNSAVED ... */
    PS_INTERRUPT, /* to server 0: the job is to end early; argument: PS_SIGHUP ... */
    PS_GONE,      /* never sent; the server queues it when a worker, or the partner, is gone */
    PS_WORKER_KINDS_END,

    /* Servers send these kinds: */
    PS_NOTICE = PS_WORKER_KINDS, /* to a worker; argument: PS_ACK ... */
    PS_SNAPPED,                  /* the snapshot was taken */
    PS_FINAL,                    /* the parameters will not change any more */
    PS_WELCOME,                  /* answer to PS_HELLO: the worker takes part */
    PS_JOB_DONE,                 /* answer to PS_HELLO: the job has no steps left */
    PS_SHARE_COUNT,   /* bound 0, server 0: the data has this number of shares; PS_SHARE follows */
    PS_SHARE,         /* number of the share that the worker uses from now on */
    PS_FAILOVER_DONE, /* the standby serves; argument: number of its unacknowledged pushes */
    PS_CLOCK_HIGH,    /* upper bits of the next PS_CLOCK; not sent if they are 0 */
    PS_CLOCK,         /* bound above 0, several servers: see struct ps_link */
    PS_FORWARD,       /* to the standby: a worker's note, packed by ps_forward_pack() */
    PS_CONFIRM,       /* from the standby, which has processed the oldest unconfirmed note */
    PS_EXPEL,         /* to the other servers: this server has removed a worker; its number */
    PS_SERVER_KINDS_END,
};

#define PS_VALUE(kind, arg) ((uint32_t)(kind) << PS_ARG_BITS | (uint32_t)(arg))
#define PS_KIND(value) ((enum ps_kind)((value) >> PS_ARG_BITS))
#define PS_ARG(value) ((value) & ((1u << PS_ARG_BITS) - 1))
#define PS_NOTE(kind, arg) VB_NOTE(PS_CHANNEL, PS_VALUE(kind, arg))

/* Argument of PS_STOP: the worker could not write a checkpoint, or its loss is not finite. */
enum ps_stop { PS_UNSAVED, PS_NOT_FINITE, PS_STOPS };

/* Argument of PS_INTERRUPT: the signal with which the user wants to stop, or PS_DONE: the model is
 * good enough. */
enum { PS_SIGHUP, PS_SIGINT, PS_SIGTERM, PS_DONE, PS_SIGNALS };

#define PS_STOPPED_DONE (-1) /* stands for a signal in ps_head.stopped, after PS_DONE */

/* Bits of the argument of PS_HELLO. */
enum {
    PS_MAPS = 1,   /* the worker reads parameters from the servers' memory */
    PS_REJOIN = 2, /* the worker was a member before, in another slot of the group */
    PS_JOINED = 4, /* always set, so that the argument is never 0 */
};

/* Bits of the argument of PS_NOTICE. The upper bits have the number of new tickets. */
enum {
    PS_ACK = 1,       /* the server has processed the oldest push under way */
    PS_REPLY = 2,     /* a reply came with this note */
    PS_LAST = 4,      /* there will be no more tickets */
    PS_EVAL = 8,      /* the worker is to evaluate the model */
    PS_SAVE = 16,     /* the worker is to write a checkpoint */
    PS_ALONE = 32,    /* the server has no standby any more */
    PS_TICKETS = 256, /* multiplied by the number of new tickets, which is at most PS_SLOTS_MAX */
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
_Static_assert(PS_SIGNALS <= 1 << PS_WORKER_ARG_BITS, "too few bits for a signal");
_Static_assert((int)PS_STOPS <= 1 << PS_WORKER_ARG_BITS, "too few bits for a reason");
_Static_assert((PS_SLOTS_MAX + 1) * PS_TICKETS <= 1 << PS_ARG_BITS, "too few bits for tickets");

/* Packs the number of a share and the number of shares into 32 bits, which a worker stores
 * atomically. */
#define PS_SHARE_PACK(share, shares) ((uint32_t)(share) << 16 | (uint32_t)(shares))
#define PS_SHARE_OF(packed) ((int)((packed) >> 16))
#define PS_SHARES_OF(packed) ((int)((packed)&0xffffu))

/* ---- the server: what it keeps --------------------------------------------------------------- */

#define PS_OPS 16
#define PS_NOTES_MAX 16  /* maximum number of notes that a worker has under way */
#define PS_FAULTS_MAX 64 /* a server keeps at most this number of faults for the result */

/* The ops for the notes to one rank, which are reused in turn. */
struct ps_ring {
    struct vb_op ops[PS_OPS];
    uint64_t n; /* number of ops taken so far */
};

/* A push that the server has accepted. A worker on the same host can write to the slot at any time,
 * so head and keys are the server's own copies: they were checked, and only they are used. Of the
 * slot itself, only the values of the gradient are read. */
struct ps_taken {
    struct ps_push head;
    const uint32_t *keys;     /* sparse jobs: the keys that came with the push; head.n_keys */
    const uint32_t *gradient; /* sparse jobs: the keys of the gradient; head.n_values */
    const float *values;      /* in the slot */
};

/* Sparse jobs: the keys of a worker's next batch. The keys came with the worker's last push. */
struct ps_client_keys {
    bool to_answer;  /* the server has not sent the values at these keys yet */
    bool for_ticket; /* the keys came after the worker's last ticket, so it may get another one */
    const uint32_t *keys;
    uint32_t n;        /* number of keys */
    uint32_t reply_at; /* index in the worker's reply of the value at the first key */
};

/* Bound 0: a worker's part in the round. */
struct ps_client_round {
    int share, shares; /* the worker's share of the data, of how many; shares 0: not sent yet */
    int64_t ticket;    /* round of the worker's last ticket */
    bool held;         /* the server holds the worker's gradient until the round is complete */
    const struct ps_taken *push; /* the gradient that is held */
};

/* How often, how long in all, and how long at most other workers waited for this worker. */
struct ps_client_waits {
    uint64_t n, ns, max_ns;
};

/* Used only by a standby, also after it has taken over. */
struct ps_client_failover {
    bool called;     /* the worker has sent PS_FAILOVER */
    uint32_t hello;  /* argument of a PS_HELLO that came before the standby served; 0: none came */
    unsigned n_gone; /* how often the group reported that the worker is gone */
    unsigned n_retired; /* how often the server has forwarded PS_GONE of the worker */
};

/* A worker, as a server sees it. */
struct ps_client {
    bool member;     /* the worker takes part */
    bool was_member; /* the worker takes part or has taken part */
    bool ended;      /* the worker has sent PS_END */
    bool bye;        /* the worker has sent PS_BYE, or is gone */
    bool mapped;     /* the worker reads parameters from memory and needs no replies */

    bool expelled; /* the server has removed the worker, and PS_GONE has not come yet */
    bool removed;  /* the server has removed the worker */

    uint32_t pushes;    /* number of pushes that were accepted */
    uint32_t under_way; /* number of pushes that were accepted, but not processed */
    struct ps_taken taken[PS_SLOTS_MAX];
    uint32_t replies;          /* number of replies that were sent */
    uint64_t reply_version[4]; /* versions of the last replies; index: number of the reply % 4 */
    int64_t clock;       /* base + number of the worker's gradients that were applied or dropped */
    int64_t next_clock;  /* clock of the worker's next push; -1: not known, it has just joined */
    int64_t granted;     /* base + number of tickets that the worker got */
    int64_t base;        /* value of clock when the worker joined */
    bool sent_last;      /* the worker was told that there are no more tickets */
    uint64_t stalled_ns; /* when the worker began to wait for the slowest; 0: it does not wait */
    int wants_snap; /* 1: the worker waits for a snapshot; 2: for one with state; 0: for none */
    uint32_t evals, saves; /* how often the worker was told to evaluate, or to save */
    uint64_t made[2];      /* versions after the worker's last two gradients were applied */
    unsigned n_made;
    bool busy;          /* the worker was told to evaluate or save, and has not pushed since */
    unsigned moved;     /* vb_group_moved() when vb_ps_expel_stuck() last looked */
    uint64_t waited_ns; /* how long others have waited for this worker, without its progress */
    struct ps_client_keys keys;
    struct ps_client_round round;

    /* vb_ps_server_admit() clears all fields above this line. It keeps the fields below, because
     * ops may be under way. */
    struct ps_client_waits waits;
    struct vb_stale stale;
    struct ps_ring ops;
    struct ps_client_failover failover;
    uint32_t *key_space;    /* sparse jobs: copies of keys; (PS_SLOTS_MAX + 1, max_keys) */
    _Atomic unsigned notes; /* number of the worker's notes that are not processed */
    _Atomic uint32_t stray; /* a note that the worker must not send, or PS_TOO_MANY; 0: none */
};

#define PS_TOO_MANY UINT32_MAX

/* What a worker has received from its server. The worker sends it with PS_FAILOVER. */
struct ps_client_state {
    uint32_t acked, replies;
    int64_t tickets;
    uint32_t evals, saves;
    char pad[40];
};

struct ps_server_stats {
    int64_t applied; /* number of gradients applied in this run; bound 0: number of rounds */
    int64_t samples; /* number of training samples in the applied gradients */
    uint64_t apply_ns, notify_ns, idle_ns, total_ns, cpu_ns;
    uint64_t begin_ns; /* time at which the server began */
    uint64_t mark_ns;  /* time of the last call of vb_ps_lap() */
};

/* A note that came, and its sender. */
struct ps_arrival {
    int worker; /* number of the worker; PS_PARTNER: the other server of the shard */
    uint32_t value;
};

#define PS_PARTNER (-1)

/* Packs a worker's note into the argument of PS_FORWARD. */
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

/* The note handler adds notes, the server's thread removes them. first and end only grow; an index
 * is first or end modulo size. */
struct ps_queue {
    struct ps_arrival *arrivals;
    unsigned size, first;
    _Atomic unsigned end;
    _Atomic bool strayed; /* a worker has sent a note that it must not send */
};

/* Bound 0: the gradients of one round. */
struct ps_round {
    int64_t number;    /* number of rounds that are complete */
    int n_held;        /* number of gradients that the server holds for the present round */
    uint64_t held_ns;  /* time at which the last of these gradients came */
    float *sum;        /* dense jobs: the sum of the gradients */
    uint32_t *keys[2]; /* sparse jobs: two lists; merge() reads one and writes the other */
    float *values[2];
};

/* With replicas: the other server of the shard. */
struct ps_partner {
    int rank;               /* -1: there is no other server, or it is gone */
    bool shares_memory;     /* the partner shares memory with this server */
    bool gone;              /* the partner is gone, and this server does not go on alone yet */
    uint64_t gone_ns;       /* time at which the partner was gone */
    struct ps_arrival *log; /* notes that were forwarded, but not confirmed; (queue.size) */
    unsigned log_first, log_end;
    struct ps_ring ops;
};

struct ps_faults {
    struct vb_fault list[PS_FAULTS_MAX];
    int n;
};

/* A copy of the shard that is being made. */
struct ps_snap {
    bool on;         /* parts are not copied yet */
    bool with_state; /* the state of the update rule is copied, too */
    unsigned char
        *copied; /* for each block: whether it is copied; NULL: not vb_ps_snaps_beside() */
    size_t next; /* blocks before this one are copied */
};

struct ps_server {
    const struct ps_job *job;
    struct vb_group *group;
    struct ps_layout lay;
    int k;           /* number of the server, and of its shard */
    bool standby;    /* this server is a standby: it sends nothing to workers */
    bool mapped;     /* at least one worker reads the server's memory */
    bool opened;     /* the channel is open */
    bool never_spun; /* earlier value of the group's never_spin, restored at the end */
    bool done;       /* all workers have ended or are gone */
    bool final;      /* the last snapshot was taken, so the server only waits for PS_BYE */

    struct vb_window *shards, *slots;
    struct ps_head *head;
    float *params;
    void *state; /* hogwild: in the window; otherwise: in own_state */
    struct vb_mem own_state;
    struct vb_k_sparse *sparse;

    struct ps_client *clients; /* (vb_ps_clients()) */
    uint32_t *key_space;       /* sparse jobs: the memory for the key_space of all clients */
    uint64_t looked_ns;        /* when the server last looked for stuck workers */
    struct ps_ring expel_ops;
    struct ps_queue queue;
    int64_t steps;       /* job->steps, or fewer if the user has stopped the job */
    int64_t granted;     /* number of tickets of all workers */
    int64_t told;        /* the lowest clock that all workers were told */
    uint64_t stalled_ns; /* bound above 0: the longest of the waits that have just ended */
    uint32_t due;        /* PS_EVAL, PS_SAVE: flags for the next notice to the lowest worker */
    /* Server 0: the version that is to be evaluated or saved. No ticket for a later step is given
     * until a worker has read the snapshot of this version. -1: tickets are given. */
    int64_t gate;
    int gate_worker; /* worker that was told to read the snapshot; -1: none */
    int reader;      /* worker that reads the snapshot; -1: none */
    bool snapping;   /* the reader was not told yet that the snapshot is there */
    struct ps_snap snap;
    struct ps_round round;
    struct ps_partner partner;
    struct ps_server_stats stats;
    double
        slow; /* for experiments: applying a gradient takes so many times as long; 0: it does not */
    struct ps_faults faults;

    /* NULL, or called before the workers are told that the parameters are final. */
    vb_status (*on_final)(struct ps_server *s, void *arg);
    void *final_arg;
};

/* ---- transfers and waits (ps_send.c) --------------------------------------------------------- */

/* Waits like vb_group_wait(), but polls and yields the cpu for a while before it sleeps, because
 * most answers come within this time. ready() may read atomic variables only. */
vb_status vb_ps_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what,
                     int from);

bool vb_ps_op_is_done(void *op); /* a vb_ready_fn */

/* If messages are long, makes waits of the group sleep at once, because a rank that polls takes the
 * cpu from the ranks that transfer. Returns the earlier setting. */
bool vb_ps_sleep_at_once(struct vb_group *group, const struct ps_job *job, bool mapped);

/* Puts to another rank's part of the window. len 0: only the note. Waits for at most PS_PUT_MS
 * until the transport accepts the put. */
vb_status vb_ps_put(struct vb_window *win, int to, size_t from, size_t at, size_t len,
                    uint32_t note, struct vb_op *op);

/* Waits until the next op of the ring is free. */
vb_status vb_ps_ring_take(struct vb_group *group, struct ps_ring *ring, const char *what,
                          struct vb_op **op_p);

/* ---- the server: functions ------------------------------------------------------------------- */

/* ps_open.c. Opens a server. Collective with vb_ps_worker_create(). params and state belong to the
 * whole model; the server copies its shard. The caller closes *server_p even after a failure. */
vb_status vb_ps_server_create(struct vb_group *group, const struct ps_job *job, const float *params,
                              const void *state, struct ps_server **server_p);

/* Closes a server. Collective with vb_ps_worker_close(). s may be NULL. In an elastic group, ops to
 * a rank that is gone may be under way. So there the caller first calls vb_ps_server_leave(), then
 * closes the group, and then calls vb_ps_server_close(). */
void vb_ps_server_leave(struct ps_server *s);
void vb_ps_server_close(struct ps_server *s);

/* ps_server.c: serves until all workers that take part have ended. */
vb_status vb_ps_server_run(struct ps_server *s);

/* The parts of vb_ps_server_run(): the caller calls begin once, then round until s->done, then
 * finish. A round waits for notes, for at most about 0.1 s, and processes them. */
vb_status vb_ps_server_begin(struct ps_server *s);
vb_status vb_ps_server_round(struct ps_server *s);
vb_status vb_ps_server_finish(struct ps_server *s);

/* Completes the statistics and takes the last snapshot. vb_ps_server_finish() calls this function
 * unless the caller has called it. */
void vb_ps_server_conclude(struct ps_server *s);

/* In an elastic group, after the finish: serves until all workers have sent PS_BYE or are gone, for
 * at most a minute after the last PS_BYE. */
vb_status vb_ps_server_linger(struct ps_server *s);

/* Removes a worker, whose pushes under way are not applied, and admits one. Without replicas, other
 * folders may call these functions between rounds. */
vb_status vb_ps_server_retire(struct ps_server *s, int worker);
vb_status vb_ps_server_admit(struct ps_server *s, int worker);

void vb_ps_server_note(void *server, int rank, uint32_t value); /* a vb_note_fn */

/* Queues a note that came, or PS_GONE. The queue always has a free place for PS_GONE. */
void vb_ps_server_queue(struct ps_server *s, int worker, uint32_t value);

vb_status vb_ps_process(struct ps_server *s, struct ps_arrival a); /* one note of a worker */

/* A worker may have only so many notes under way. This one no longer counts. */
static inline void ps_note_done(struct ps_server *s, struct ps_arrival a)
{
    if (PS_KIND(a.value) < PS_GONE)
        s->clients[a.worker].notes--;
}

/* ps_accept.c. Checks a push and copies its head and keys into client->taken[slot]. Returns false,
 * and says why, if the push is not valid. */
bool vb_ps_accept(struct ps_server *s, int worker, uint32_t slot, char *why, size_t size);
const struct ps_push *vb_ps_push_in(const struct ps_server *s, int worker, int slot);

/* ps_expel.c. Looks at a note of a worker when it comes: accepts a push, and removes a worker that
 * has sent something invalid. *take_p: the note is to be processed. */
vb_status vb_ps_receive(struct ps_server *s, struct ps_arrival a, bool *take_p);

/* Removes a worker and tells it why: vb_ps_server_retire() follows, as if the worker had died. In a
 * group that is not elastic, returns VB_ERR_INPUT. */
vb_status vb_ps_expel(struct ps_server *s, int worker, const char *why);
vb_status vb_ps_expel_invalid(struct ps_server *s, int worker, const char *what);
vb_status vb_ps_expel_strays(struct ps_server *s); /* the workers that s->queue.strayed is about */
vb_status vb_ps_expel_stuck(struct ps_server *s); /* the workers that hold others up for too long */

#define PS_INVALID "sent an invalid message" /* in the reason: the worker may not join again */

/* ps_push.c: processes a push that was accepted. */
vb_status vb_ps_take_push(struct ps_server *s, int worker, uint32_t slot);

/* Bound 0: returns whether all gradients that the round waits for have come. Otherwise false. */
bool vb_ps_round_is_complete(const struct ps_server *s);
vb_status vb_ps_close_round(struct ps_server *s); /* applies the round and begins the next one */

/* Adds the time since the last call of vb_ps_lap() to *ns, which is a field of s->stats. */
void vb_ps_lap(struct ps_server *s, uint64_t *ns);

/* Counts a gradient. by: number of gradients of other workers that were applied since the
 * parameters for this gradient were read. */
void vb_ps_stale_add(struct vb_stale *stale, uint64_t by);

/* ps_apply.c: changes parameters. */
vb_status vb_ps_apply(struct ps_server *s, const struct ps_taken *push);
vb_status vb_ps_apply_round(struct ps_server *s); /* applies the sum of all held gradients */
void vb_ps_gather(struct ps_server *s, const uint32_t *keys, size_t n, float *values);

/* ps_snapshot.c: copies the shard as it is now. */
void vb_ps_snapshot(struct ps_server *s, bool with_state);

/* Begins a copy of the shard as it is now. If vb_ps_snaps_beside(), gradients may be applied while
 * it is made; the copy is there when vb_ps_snap_step() returns true. */
bool vb_ps_snaps_beside(const struct ps_job *job);
vb_status vb_ps_snap_open(struct ps_server *s);
void vb_ps_snap_begin(struct ps_server *s, bool with_state);
bool vb_ps_snap_step(struct ps_server *s);

/* Called before the parameters at keys, or all of them, are changed. */
void vb_ps_snap_touch(struct ps_server *s, const uint32_t *keys, size_t n);
void vb_ps_snap_touch_all(struct ps_server *s);

/* ps_member.c handles workers that join and go. */
void vb_ps_server_on_gone(void *server, int rank); /* a vb_member_fn */
vb_status vb_ps_member_hello(struct ps_server *s, int worker, uint32_t how);
vb_status vb_ps_member_gone(struct ps_server *s, int worker);

/* Logs a fault and keeps it for the result. */
void vb_ps_log_fault(struct ps_server *s, int rank, const char *what, const char *why);
const char *vb_ps_fault_kind(const struct ps_server *s, int rank); /* "left", "stopped" or "died" */

/* Bound 0: sends each worker its share of the data, if the share has changed. */
vb_status vb_ps_member_shares(struct ps_server *s);
vb_status vb_ps_send_share(struct ps_server *s, int worker);

/* Turns the status of a put to a worker into the status for the caller: VB_OK if the worker is
 * gone, because the group reports this loss anyway. */
vb_status vb_ps_member_sent(struct ps_server *s, int worker, vb_status st);

static inline bool ps_is_working(const struct ps_client *client)
{
    return client->member && !client->ended;
}

int vb_ps_first_worker(const struct ps_server *s); /* the lowest worker that is working; -1: none */

/* ps_replica.c: processes a note while the shard has two servers. */
vb_status vb_ps_replicate(struct ps_server *s, struct ps_arrival a);

/* Goes on without the partner, if it is gone and if this server may. */
vb_status vb_ps_without_partner(struct ps_server *s);

/* ps_parted.c: returns whether this server may go on without its partner. VB_AGAIN: it may not be
 * known yet which members are lost, too. VB_ERR_PEER: the server must stop, because the network is
 * parted and others may go on. */
vb_status vb_ps_go_on_alone(struct ps_server *s);

/* Tells a worker that this former standby serves, and sends what the worker has not received. */
vb_status vb_ps_confirm_failover(struct ps_server *s, int worker);

/* ps_notify.c: sends a note without bytes. A standby sends nothing. */
vb_status vb_ps_send_note(struct ps_server *s, int worker, enum ps_kind kind, uint32_t arg);

/* Sends a notice if there is anything to send: the given flags, new tickets, PS_EVAL or PS_SAVE. If
 * a reply is due, it goes with the notice. */
vb_status vb_ps_notify(struct ps_server *s, int worker, uint32_t notice);
vb_status vb_ps_notify_all(struct ps_server *s);
vb_status vb_ps_notify_first(struct ps_server *s, int worker); /* sends a worker's first notice */

/* After a failover: sends the notices and replies that the worker has not received. state: how many
 * of each the worker has received. */
vb_status vb_ps_resend(struct ps_server *s, int worker, const struct ps_client_state *state);

/* Tells a worker the clock that PS_CLOCK is about, if the job needs it. */
vb_status vb_ps_send_clock(struct ps_server *s, int worker);

/* Returns whether the bound must hold at several servers, of which only server 0 grants tickets. */
static inline bool ps_has_clocks(const struct ps_job *job)
{
    return job->bound > 0 && job->servers > 1;
}

bool vb_ps_no_steps_left(const struct ps_server *s);
int64_t vb_ps_slowest(const struct ps_server *s); /* the lowest clock; INT64_MAX: no worker */
uint64_t vb_ps_version_of(const struct ps_server *s);

/* ---- the worker: what it keeps --------------------------------------------------------------- */

/* A server, as a worker sees it. The note handler, which may run on the group's progress thread,
 * writes the atomic fields. */
struct ps_link {
    int rank;
    _Atomic int standby;        /* rank of the standby; -1: there is no standby, or it is gone */
    const char *mapped_shards;  /* the server's window of shards; NULL: it is not mapped */
    char *mapped_slots;         /* the server's window of slots; NULL: it is not mapped */
    const char *standby_shards; /* the standby's window of shards; NULL: it is not mapped */
    _Atomic uint32_t acked, replies;
    /* With a bound above 0 and several servers. Server 0: the base of this worker's clock. Other
     * servers: the lowest clock of all workers there. high: argument of PS_CLOCK_HIGH. */
    _Atomic int64_t clock;
    int64_t high;
    _Atomic bool snapped, final, welcome; /* PS_SNAPPED, PS_FINAL, PS_WELCOME came */
    struct vb_op push_ops[PS_SLOTS_MAX], get_op, head_op, note_op;
    uint32_t sent;            /* number of pushes sent to this server */
    _Atomic bool lost;        /* the server is gone, and the worker has not failed over yet */
    _Atomic bool failed_over; /* rank is now the rank of the standby */
    bool failing_over; /* PS_FAILOVER was sent to the standby, but not the pushes that it lacks */
    uint32_t acked_at_failover; /* value of acked when PS_FAILOVER was sent */
    _Atomic int serving;        /* argument of PS_FAILOVER_DONE; -1: the standby does not serve */
};

struct ps_worker {
    const struct ps_job *job;
    struct vb_group *group;
    struct ps_layout lay;
    int number;
    bool mapped;     /* the worker reads the memory of all servers */
    bool overlapped; /* gets are started right after a push, and overlap the next step */
    bool opened;     /* the channel is open */
    bool never_spun; /* earlier value of the group's never_spin, restored at the end */
    struct vb_window *shards, *slots;
    struct ps_link links[PS_SERVERS_MAX];

    /* Written by the note handler and the hooks of the group: */
    _Atomic int64_t tickets;       /* number of tickets received */
    _Atomic bool last;             /* there will be no more tickets */
    _Atomic bool job_done;         /* the job had no steps left when the worker joined */
    uint32_t share_count;          /* argument of PS_SHARE_COUNT; used by the note handler only */
    _Atomic uint32_t shares;       /* PS_SHARE_PACK() of the last PS_SHARE; 0: as at the start */
    _Atomic int lost_rank;         /* a server that is gone; -1: none */
    _Atomic int below;             /* number of members with lower worker numbers */
    _Atomic uint32_t due;          /* PS_EVAL, PS_SAVE; the worker clears a flag when it begins */
    _Atomic uint32_t evals, saves; /* how often PS_EVAL, and PS_SAVE, were received */

    uint32_t failovers; /* number of failovers so far */
    uint32_t hello;     /* argument of the PS_HELLO that was sent; 0: the worker is not a joiner */
    bool ended;         /* the worker has sent PS_END */
    uint32_t interrupt; /* 1 + argument of the PS_INTERRUPT that was sent; 0: none was */
    _Atomic bool bye;   /* the worker has sent PS_BYE */
    int64_t used;       /* number of tickets used */
    uint32_t pushed;
    int area;         /* which of the two areas holds the parameters */
    uint64_t version; /* version of server 0's shard when the worker last read it */
    uint64_t base;    /* base and base_flag go into the head of the next push */
    uint32_t base_flag;
    bool getting; /* gets are under way */
    float
        *late; /* if vb_ps_saves_late(): where snapshots with state put the parameters in memory */
    uint32_t late_steps;              /* number of steps since these were up to date */
    size_t slice[PS_SERVERS_MAX + 1]; /* sparse: where the keys of each server begin */

    /* hogwild: */
    struct vb_stale stale;
    uint64_t seen; /* version after this worker's last gradient was applied */
};

/* ---- the worker: functions ------------------------------------------------------------------- */

/* ps_worker_open.c. Opens a worker. Collective with vb_ps_server_create(). The caller closes
 * *worker_p even after a failure. vb_ps_worker_leave() and vb_ps_worker_close() are called like
 * vb_ps_server_leave() and vb_ps_server_close(). */
vb_status vb_ps_worker_create(struct vb_group *group, const struct ps_job *job,
                              struct ps_worker **worker_p);
void vb_ps_worker_leave(struct ps_worker *w);
void vb_ps_worker_close(struct ps_worker *w);

/* Opens a joiner, in an elastic group whose servers already serve. Then the caller calls
 * vb_ps_worker_hello(). */
vb_status vb_ps_worker_join(struct vb_group *group, const struct ps_job *job,
                            struct ps_worker **worker_p);

/* ps_worker.c: waits for a ticket, for the last one, or until the worker is to evaluate or save
 * (w->due). Until it has read a snapshot for that, no worker may get a ticket. */
vb_status vb_ps_worker_await_work(struct ps_worker *w);
bool vb_ps_worker_has_ticket(struct ps_worker *w); /* or there will be no more */

/* Waits for a ticket. *go_p becomes false if there are no more tickets. */
vb_status vb_ps_worker_ticket(struct ps_worker *w, bool *go_p);

/* Dense: *grads_p becomes the buffer for the gradient, or NULL if the caller may use any buffer. */
vb_status vb_ps_worker_grads(struct ps_worker *w, float **grads_p);
vb_status vb_ps_worker_push(struct ps_worker *w, const float *grads, uint32_t samples, float scale);

vb_status vb_ps_put_push(struct ps_worker *w, int k, uint32_t seq); /* number seq, to server k */
vb_status vb_ps_worker_settle(struct ps_worker *w); /* waits until all pushes are acknowledged */

/* Sparse: sends the keys of the first batch, unless the worker reads the servers' memory. In this
 * function and the next ones, keys are in ascending order. */
vb_status vb_ps_worker_ask(struct ps_worker *w, const uint32_t *keys, size_t n);

/* Sparse: pushes the gradient at keys, and the keys of the next batch, if there is one. */
vb_status vb_ps_worker_push_sparse(struct ps_worker *w, const uint32_t *keys, const float *values,
                                   size_t n, uint32_t samples, float scale, const uint32_t *next,
                                   size_t n_next);

bool vb_ps_worker_claim(struct ps_worker *w); /* hogwild: takes a ticket; false: none is left */

void vb_ps_worker_note(void *worker, int rank, uint32_t value); /* a vb_note_fn */

/* ps_pull.c: reads the newest parameters of a dense job. *params_p is borrowed until the next
 * push. */
vb_status vb_ps_worker_pull(struct ps_worker *w, const float **params_p);

/* Starts the next pull, if it can overlap the computation. Called right after a push. */
vb_status vb_ps_worker_prefetch(struct ps_worker *w);

/* Sparse: waits for the values at the keys that the last push sent. Over shared memory, reads the
 * values at the given keys. */
vb_status vb_ps_worker_values(struct ps_worker *w, const uint32_t *keys, size_t n,
                              const float **values_p);

/* hogwild: returns the server's parameters and their state, and counts a gradient that the worker
 * has applied to them. */
float *vb_ps_worker_shared(struct ps_worker *w, void **state_p);
void vb_ps_worker_applied(struct ps_worker *w);

/* Counts parameters that the worker has read from server k's mapped memory, or written to it. */
void vb_ps_worker_touched(const struct ps_worker *w, int k, size_t read, size_t written);

/* Read the version of server 0: from mapped memory, or by any transport. */
uint64_t vb_ps_worker_version(const struct ps_worker *w);
vb_status vb_ps_worker_fetch_version(struct ps_worker *w, uint64_t *version_p);

vb_status vb_ps_read_snapshot(struct ps_worker *w, float *params, void *state, uint64_t *version_p);

/* ps_worker_end.c: asks all servers for a snapshot and reads it. state: NULL, or a buffer of job->n
 * * job->words * 4 bytes. */
vb_status vb_ps_worker_snapshot(struct ps_worker *w, float *params, void *state,
                                uint64_t *version_p);

/* Ends this worker's pushes, waits until all workers have done so, and reads the final parameters.
 */
vb_status vb_ps_worker_end(struct ps_worker *w, float *params, void *state, uint64_t *version_p);

/* Tells the servers to stop the job, and waits until a server has stopped. */
void vb_ps_worker_stop(struct ps_worker *w, enum ps_stop why);

/* Asks server 0, once, to end the job with the steps that have begun, because the user wants to
 * stop. number: SIGHUP, SIGINT or PS_STOPPED_DONE; any other signal counts as SIGTERM. */
vb_status vb_ps_worker_interrupt(struct ps_worker *w, int number);

/* After vb_ps_worker_end(): returns the signal that has ended the job early, or PS_STOPPED_DONE; 0:
 * all steps were made. */
int vb_ps_worker_stopped(const struct ps_worker *w);

/* Before this worker leaves a job that goes on: waits until its pushes are acknowledged and its
 * gets are done. *version_p: the version of server 0. */
vb_status vb_ps_worker_quit(struct ps_worker *w, uint64_t *version_p);

/* Tells the servers that this joiner takes part. again: the joiner was a member before.
 * VB_ERR_ACCESS: the job has no steps left. */
vb_status vb_ps_worker_hello(struct ps_worker *w, bool again);

/* In an elastic group, after the end: tells the servers not to wait for this worker any longer. */
vb_status vb_ps_worker_bye(struct ps_worker *w);

/* ---- a worker's waits and failover (ps_failover.c) ------------------------------------------- */

void vb_ps_worker_gone(struct ps_worker *w, int rank); /* this server or standby is gone */

/* Waits like vb_ps_wait(), for server k (-1: for any server). If a server is gone meanwhile, the
 * worker fails over to the standby and goes on waiting; without a standby the wait fails at once.
 * no_timeout: the awaited event depends on other workers, which may be slow or evaluating. */
vb_status vb_ps_await(struct ps_worker *w, vb_ready_fn ready, void *arg, const char *what, int k,
                      bool no_timeout);

/* Waits until an op with server k is done. VB_AGAIN: the server is gone, and the worker has failed
 * over to the standby. */
vb_status vb_ps_op_await(struct ps_worker *w, struct vb_op *op, const char *what, int k);

/* Fails over to the standby of server k, after an op with it has returned VB_ERR_PEER. */
vb_status vb_ps_failover(struct ps_worker *w, int k);

/* ---- small batches (ps_compact.c) ------------------------------------------------------------ */

struct ps_compact;
vb_status vb_ps_compact_create(uint64_t features, size_t max_nnz, struct ps_compact **compact_p);
void vb_ps_compact_destroy(struct ps_compact *c);

/* index has n features, each less than `features`. *keys_p: the distinct features in ascending
 * order; the array has space for one more key. *places_p: for each of the n entries, the place of
 * its feature in the keys. Both are borrowed until the next call. */
void vb_ps_compact_make(struct ps_compact *c, const uint32_t *index, size_t n, uint32_t **keys_p,
                        size_t *n_keys_p, const uint32_t **places_p);

#endif
