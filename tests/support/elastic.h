/* SPDX-License-Identifier: MIT
 *
 * The code that the ranks run in the tests of elastic groups. Each rank puts blocks to all other
 * ranks in turn. After each put the rank waits until the receiver has acknowledged the block or is
 * gone. The receiver checks every byte. Ranks are processes, and report their state to the test in
 * shared memory (struct e_board).
 */
#ifndef VB_TESTS_SUPPORT_ELASTIC_H
#define VB_TESTS_SUPPORT_ELASTIC_H

#include "net/group/group_priv.h"
#include "tests/support/ranks.h"
#include "tests/support/rdma.h"

#include <stdatomic.h>
#include <time.h>

#define E_SLOTS 6
#define E_PROCS 16
#define E_SLOT ((size_t)32 * 1024)
#define E_DATA 9
#define E_ACK 10
#define E_WAIT_S 60.0 /* timeout of every wait, to be multiplied by VB_PATIENCE */

/* The state that one process reports to the test, and the test's requests to the process. */
struct e_proc {
    _Atomic int rank; /* -1: not in a group yet */
    _Atomic unsigned epoch;
    _Atomic long puts;         /* number of acknowledged puts */
    _Atomic int n_joined;      /* number of calls of the join hook */
    _Atomic int n_gone;        /* number of calls of the gone hook */
    _Atomic int gone[E_SLOTS]; /* number of times each slot became empty */
    /* number of acknowledged puts to the present rank of each slot */
    _Atomic long puts_at[E_SLOTS];
    _Atomic int n_fds;  /* number of open files, updated in every round */
    _Atomic int n_out;  /* number of times this process was dropped from the group */
    _Atomic int retire; /* request of the test: drop the rank in this slot; -1: no request */
    /* request of the test: try puts to this slot, which must fail; -1: no request */
    _Atomic int poke;
    _Atomic bool leave; /* request of the test: leave the group */
    _Atomic int sever;  /* request of the test: close the data connection to this slot; -1: none */
    _Atomic int end[E_SLOTS]; /* how the last rank of each slot ended: an enum vb_end */
    _Atomic int wrong;
};

struct e_board {
    _Atomic bool stop;
    struct e_proc procs[E_PROCS];
    char root[32];
    enum vb_transport_choice transport;
    bool progress;
    _Atomic bool closed; /* true: rank 0 does not admit joiners yet */
    int world, slots;
    int until_gone; /* each rank runs until this number of ranks is gone; 0: until stop is set */
};

/* The listening socket for rank 0. A socket belongs to one process, so it is not in struct
 * e_board. */
static int e_root_fd = -1;

/* The private state of one rank. */
struct e_rank {
    struct e_board *board;
    struct e_proc *me;
    struct vb_group *g;
    struct vb_window *win;
    int rank;
    bool late;
    _Atomic bool gone[E_SLOTS]; /* atomic: hooks and handlers may run on the progress thread */
    /* sequence number of the next block from each rank; 0: unknown */
    _Atomic uint32_t next_in[E_SLOTS];
    _Atomic uint32_t acked[E_SLOTS], sent[E_SLOTS];
    struct vb_op data_ops[E_SLOTS], ack_ops[E_SLOTS][4];
    /* sequence number of an acknowledgement that did not fit into the queue; 0: none */
    _Atomic uint32_t ack_due[E_SLOTS];
    int to; /* the rank whose answer this rank waits for */
    /* checksum of the block from each rank, computed when that rank was gone */
    uint32_t left_behind[E_SLOTS];
};

static inline void e_options(const struct e_board *b, int rank, struct vb_group_opts *o)
{
    struct t_job job = {.transport = b->transport, .world = b->world, .progress = b->progress};

    t_group_opts(&job, rank, b->root, e_root_fd, o);
    o->elastic = true;
    o->slots = b->slots;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static inline uint32_t e_word(int from, uint32_t seq, size_t i)
{
    return (uint32_t)(from + 1) * 2654435761u + seq * 40503u + (uint32_t)i;
}

static inline uint32_t *e_slot(struct e_rank *r, int which)
{
    return (uint32_t *)((char *)vb_window_ptr(r->win) + (size_t)which * E_SLOT);
}

static inline void e_send_ack(struct e_rank *r, int to, uint32_t seq)
{
    vb_status st = vb_put(r->win, to, 0, 0, 0, VB_NOTE(E_ACK, seq), &r->ack_ops[to][seq % 4]);

    r->ack_due[to] = st == VB_AGAIN ? seq : 0;
}

static inline uint32_t e_sum(struct e_rank *r, int from)
{
    const uint32_t *slot = e_slot(r, from);
    uint32_t sum = 0;
    size_t i;

    for (i = 0; i < E_SLOT / sizeof(*slot); i++)
        sum = sum * 31 + slot[i];
    return sum;
}

/* Called when a block arrives. Checks that the block is complete and in order, and that its sender
 * is not gone. */
static inline void e_data_came(void *arg, int from, uint32_t seq)
{
    struct e_rank *r = arg;
    const uint32_t *slot = e_slot(r, from);
    size_t i, bad = 0;

    for (i = 0; i < E_SLOT / sizeof(*slot); i++)
        bad += slot[i] != e_word(from, seq, i);
    r->me->wrong += T_WRONG(bad == 0) + T_WRONG(!r->gone[from]) +
                    T_WRONG(r->next_in[from] == 0 || r->next_in[from] == seq);
    r->next_in[from] = seq + 1;
    e_send_ack(r, from, seq);
}

static inline void e_ack_came(void *arg, int from, uint32_t seq)
{
    struct e_rank *r = arg;

    r->me->wrong += T_WRONG(!r->gone[from]) + T_WRONG(seq == r->sent[from]);
    r->acked[from] = seq;
}

static inline void e_is_gone(void *arg, int rank)
{
    struct e_rank *r = arg;

    r->me->wrong += T_WRONG(!r->gone[rank]);
    r->left_behind[rank] = r->win != NULL ? e_sum(r, rank) : 0;
    r->gone[rank] = true;
    r->next_in[rank] = r->ack_due[rank] = 0;
    r->me->puts_at[rank] = 0;
    r->me->gone[rank]++;
    r->me->n_gone++;
}

static inline void e_has_joined(void *arg, int rank)
{
    struct e_rank *r = arg;

    r->gone[rank] = false;
    r->me->n_joined++;
}

/* ---- the work -------------------------------------------------------------------------------- */

static inline bool e_answered(void *arg)
{
    struct e_rank *r = arg;

    return r->gone[r->to] || r->acked[r->to] == r->sent[r->to];
}

static inline bool e_noticed(void *arg)
{
    struct e_rank *r = arg;

    return r->gone[r->to];
}

/* Sends one block to one peer. A failed put is no error if the peer is gone. */
static inline vb_status e_block(struct e_rank *r, int to)
{
    size_t at = (size_t)(E_SLOTS + to) * E_SLOT, i;
    uint32_t *words = e_slot(r, E_SLOTS + to), seq = r->sent[to] % 0xffffffu + 1;
    vb_status st;

    for (i = 0; i < E_SLOT / sizeof(*words); i++)
        words[i] = e_word(r->rank, seq, i);
    r->to = to;
    r->sent[to] = seq;
    st = vb_put(r->win, to, at, (size_t)r->rank * E_SLOT, E_SLOT, VB_NOTE(E_DATA, seq),
                &r->data_ops[to]);
    if (st == VB_ERR_PEER)
        return vb_group_wait(r->g, e_noticed, r, "a death", -1);
    if (st != VB_OK)
        return st;
    st = vb_group_wait(r->g, e_answered, r, "an answer", -1);
    if (st == VB_OK && r->gone[to]) /* the peer was fenced, so no op may be under way */
        r->me->wrong += T_WRONG(r->data_ops[to].done);
    if (st != VB_OK || r->gone[to])
        return st;
    st = vb_op_wait(r->g, &r->data_ops[to], "a put", -1);
    r->me->puts++;
    r->me->puts_at[to]++;
    return r->gone[to] ? VB_OK : st;
}

static inline bool e_goes_on(const struct e_rank *r)
{
    if (r->me->leave)
        return false;
    return r->board->until_gone > 0 ? r->me->n_gone < r->board->until_gone : !r->board->stop;
}

/* Tries puts and gets to a rank that has not opened the window. */
static inline void e_poke(struct e_rank *r, int slot)
{
    struct vb_op op;

    r->me->wrong += T_WRONG(vb_put(r->win, slot, 0, 0, 0, VB_NOTE(E_ACK, 1), &op) == VB_ERR_PEER) +
                    T_WRONG(vb_put(r->win, slot, 0, 0, 8, VB_NOTE(E_ACK, 1), &op) == VB_ERR_PEER) +
                    T_WRONG(vb_get(r->win, slot, 0, 0, 8, &op) == VB_ERR_PEER) +
                    T_WRONG(vb_window_peer(r->win, slot) == NULL) +
                    T_WRONG(vb_window_len(r->win, slot) == 0);
    r->me->poke = -1;
}

/* Closes the data connection to a rank, and tells nobody. */
static inline void e_sever(struct e_rank *r, int slot)
{
    struct peer *peer = &r->g->peers[slot];
    struct vb_op *op, *next;

    group_lock(r->g);
    for (op = peer->transport->sever(peer->ep); op != NULL; op = next) {
        next = op->next;
        vb_group_finish(op, op->status);
    }
    group_unlock(r->g);
    r->me->sever = -1;
}

static inline void e_look_around(struct e_rank *r)
{
    int slot = r->me->retire, i;

    if (r->me->poke >= 0)
        e_poke(r, r->me->poke);
    if (r->me->sever >= 0)
        e_sever(r, r->me->sever);

    if (slot >= 0) {
        r->me->retire = -1;
        r->me->wrong += T_WRONG(vb_group_retire(r->g, slot, "the test says so") == VB_OK);
        r->me->wrong += T_WRONG(r->gone[slot] && vb_group_gone(r->g, slot));
    }
    for (i = 0; i < r->board->slots; i++) {
        if (r->ack_due[i] != 0)
            e_send_ack(r, i, r->ack_due[i]);
        if (r->gone[i])
            r->me->end[i] = vb_group_end(r->g, i);
    }
    r->me->n_fds = t_count_fds();
    r->me->epoch = vb_group_epoch(r->g);
}

static inline vb_status e_rounds(struct e_rank *r)
{
    struct timespec pause = {.tv_nsec = 200000};
    vb_status st = VB_OK;
    int i;

    while (st == VB_OK && e_goes_on(r)) {
        for (i = 0; i < r->board->slots && st == VB_OK; i++)
            if (i != r->rank && vb_group_member(r->g, i))
                st = e_block(r, i);
        if (st == VB_OK)
            st = vb_progress(r->g);
        e_look_around(r);
        if (!r->board->closed)
            vb_group_welcome(r->g);
        nanosleep(&pause, NULL); /* gives the core to other ranks */
    }
    return st;
}

/* Called at the end. Checks that calls on ranks that are gone return the right results. */
static inline void e_look_back(struct e_rank *r)
{
    int i, wrong = 0, n_missing = r->late;
    struct vb_op op;

    for (i = 0; i < r->board->slots; i++) {
        if (!r->gone[i] || i == r->rank)
            continue;
        n_missing += i < r->board->world;
        wrong += T_WRONG(vb_group_gone(r->g, i)) + T_WRONG(!vb_group_member(r->g, i));
        wrong += T_WRONG(strlen(vb_group_gone_why(r->g, i)) > 0);
        wrong += T_WRONG(vb_put(r->win, i, 0, 0, 0, VB_NOTE(E_ACK, 1), &op) == VB_ERR_PEER);
        wrong += T_WRONG(vb_put(r->win, i, 0, 0, 8, VB_NOTE(E_ACK, 1), &op) == VB_ERR_PEER);
        wrong += T_WRONG(vb_get(r->win, i, 0, 0, 8, &op) == VB_ERR_PEER);
        wrong += T_WRONG(vb_window_peer(r->win, i) == NULL);
        /* over shared memory a dropped rank can still write, until its process is killed */
        if (r->board->transport != VB_TRANSPORT_SHM)
            wrong += T_WRONG(r->left_behind[i] == e_sum(r, i));
        r->to = i;
        wrong += T_WRONG(vb_group_wait(r->g, e_answered, r, "one who is gone", i) == VB_OK);
        r->gone[i] = false;
        r->acked[i] = r->sent[i] + 1;
        wrong += T_WRONG(vb_group_wait(r->g, e_answered, r, "one who is gone", i) == VB_ERR_PEER);
        r->gone[i] = true;
    }
    if (n_missing > 0) /* a barrier must fail without the ranks that started with the job */
        wrong += T_WRONG(vb_group_barrier(r->g) != VB_OK);
    r->me->wrong += wrong;
}

static inline vb_status e_work(struct e_rank *r)
{
    vb_status st;

    r->rank = vb_group_rank(r->g);
    vb_log_set_rank(r->rank);
    vb_group_on_gone(r->g, e_is_gone, r);
    vb_group_on_join(r->g, e_has_joined, r);
    st = vb_channel_open(r->g, E_DATA, e_data_came, r);
    if (st == VB_OK)
        st = vb_channel_open(r->g, E_ACK, e_ack_came, r);
    if (st == VB_OK)
        st = vb_window_create(r->g, 2 * E_SLOTS * E_SLOT, &r->win);
    if (st != VB_OK)
        return st;
    r->me->rank = r->rank;
    st = e_rounds(r);
    if (st == VB_OK)
        e_look_back(r);
    vb_window_destroy(r->win);
    return st;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Runs a rank that starts with the job, or a joiner (rank -1). A rank that is dropped joins again.
 * At the end the process must have as many open files as at the start. */
static inline void e_main(struct e_board *b, int proc, int rank)
{
    struct e_rank r = {.board = b, .me = &b->procs[proc]};
    struct vb_group_opts opts;
    int fds = t_count_fds();
    vb_status st;

    do {
        r.win = NULL;
        memset(r.gone, 0, sizeof(r.gone));
        memset(r.sent, 0, sizeof(r.sent));
        memset(r.acked, 0, sizeof(r.acked));
        memset(r.next_in, 0, sizeof(r.next_in));
        memset(r.ack_due, 0, sizeof(r.ack_due));
        e_options(b, rank, &opts);
        r.late = rank < 0;
        st = rank >= 0 ? vb_group_open(&opts, &r.g) : vb_group_join(&opts, &r.g);
        if (st != VB_OK)
            break;
        fds -= rank == 0; /* the group has taken over the socket of rank 0 */
        st = e_work(&r);
        vb_group_close(r.g);
        r.me->wrong += T_WRONG(st == VB_OK || st == VB_ERR_PEER);
        r.me->n_out += st == VB_ERR_PEER;
        rank = -1;
    } while (st == VB_ERR_PEER && r.me->n_out < 3 && r.me->wrong == 0);
    r.me->wrong += T_WRONG(st == VB_OK);
    if (b->transport != VB_TRANSPORT_VERBS) /* with verbs, librdmacm keeps the devices open */
        r.me->wrong += T_WRONG(t_count_fds() == fds);
}

static inline pid_t e_fork(struct e_board *b, int proc, int rank)
{
    pid_t pid;

    b->procs[proc].rank = -1;
    b->procs[proc].retire = -1;
    b->procs[proc].poke = b->procs[proc].sever = -1;
    b->procs[proc].leave = false;
    pid = t_fork();
    if (pid > 0)
        return pid;
    if (rank != 0 && e_root_fd >= 0) {
        close(e_root_fd);
        e_root_fd = -1;
    }
    e_main(b, proc, rank);
    _exit(b->procs[proc].wrong == 0 ? 0 : 1);
}

static inline double e_now_s(void)
{
    return (double)vb_clock_ns() / 1e9;
}

static inline double e_patience(void)
{
    return t_number("VB_PATIENCE") > 0 ? t_number("VB_PATIENCE") : 1;
}

/* Waits until the condition holds. Fails after a timeout, or if a process has reported an error. */
#define E_UNTIL(b, cond)                                                                           \
    do {                                                                                           \
        double e_end = e_now_s() + E_WAIT_S * e_patience();                                        \
        struct timespec e_nap = {.tv_nsec = 10000000};                                             \
        while (!(cond)) {                                                                          \
            for (int e_i = 0; e_i < E_PROCS; e_i++)                                                \
                assert_int_equal((b)->procs[e_i].wrong, 0);                                        \
            if (e_now_s() > e_end)                                                                 \
                fail_msg("timeout: %s", #cond);                                                    \
            nanosleep(&e_nap, NULL);                                                               \
        }                                                                                          \
    } while (0)

#endif
