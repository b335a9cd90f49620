/* SPDX-License-Identifier: MIT
 *
 * Adds up the gradients of all ranks, the plain way: all send to all, each sums.
 *
 * Every rank's window has a *slot* for each rank, twice, taken in turn by even and odd steps. A
 * rank's backward pass writes into its own slot of its own window; from there the gradient is put
 * into the same slot of every peer's window. Then each rank adds up its slots in rank order,
 * ((g0 + g1) + g2) + ..., so all end with the same bits, over any transport.
 *
 * Why two are enough: a rank may write to a slot of step t + 2 once nobody reads that of step t any
 * more. It gets there only after it has summed step t + 1, so after every peer has sent its
 * gradient of t + 1, which a peer computes with the parameters that the sum of step t gave it. That
 * sum has been read, then.
 *
 * Before its gradient each rank sends a bare note, *here*. Time before a peer's was there is
 * waiting for that peer; time from then on until its gradient came is transfer.
 */
#include "engine/train_priv.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CHANNEL 1

enum { HERE, GRADIENT, N_KINDS };

static const char *const kind_names[N_KINDS] = {"it is not at this step yet", "its gradient"};

/* One peer. The counters are net/'s to change through note_came(), under the group's lock. */
struct peer {
    uint32_t came[N_KINDS];
    struct vb_op ops[2][N_KINDS]; /* of even and odd steps */
};

struct vb_exchange {
    struct vb_group *group;
    struct vb_window *win;
    int rank, world;
    size_t n_elems;
    size_t slot_bytes;
    uint32_t step; /* steps begun */
    bool confused; /* a peer sent what it cannot have meant */
    struct peer *peers;
};

/* ---- notes ----------------------------------------------------------------------------------- */

static uint32_t note_value(int kind, uint32_t step)
{
    return (step << 1 | (uint32_t)kind) & 0xffffffu;
}

/* The notes of a peer can come in one order only. */
static void note_came(void *arg, int rank, uint32_t value)
{
    struct vb_exchange *ex = arg;
    struct peer *peer = &ex->peers[rank];
    int kind = (int)(value & 1);

    if (peer->came[HERE] - peer->came[GRADIENT] != (uint32_t)kind ||
        value != note_value(kind, peer->came[kind] + 1))
        ex->confused = true;
    peer->came[kind]++;
}

struct wanted {
    struct vb_exchange *ex;
    int rank;
    int kind;
};

static bool has_come(void *arg)
{
    const struct wanted *w = arg;

    return w->ex->confused || (int32_t)(w->ex->peers[w->rank].came[w->kind] - w->ex->step) >= 0;
}

static vb_status wait_for(struct vb_exchange *ex, int rank, int kind)
{
    struct wanted wanted = {ex, rank, kind};
    vb_status st;

    st = vb_group_wait(ex->group, has_come, &wanted, kind_names[kind], rank);
    if (st == VB_OK && ex->confused)
        return vb_err(VB_ERR_PEER, "a rank sent a gradient out of turn");
    return st;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static size_t slot_at(const struct vb_exchange *ex, int rank)
{
    return (ex->step % 2 * (size_t)ex->world + (size_t)rank) * ex->slot_bytes;
}

static float *slot(const struct vb_exchange *ex, int rank)
{
    return (float *)(void *)((char *)vb_window_ptr(ex->win) + slot_at(ex, rank));
}

vb_status vb_exchange_create(struct vb_group *group, size_t n_elems, struct vb_exchange **ex_p)
{
    struct vb_exchange *ex;
    vb_status st;
    int i;

    ex = calloc(1, sizeof(*ex));
    if (ex == NULL)
        return vb_err_sys("calloc");
    ex->group = group;
    ex->rank = vb_group_rank(group);
    ex->world = vb_group_world(group);
    ex->n_elems = n_elems;
    ex->slot_bytes = (n_elems * sizeof(float) + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
    ex->peers = calloc((size_t)ex->world, sizeof(*ex->peers));
    if (ex->peers == NULL) {
        st = vb_err_sys("calloc");
        goto err_free;
    }
    for (i = 0; i < ex->world; i++)
        ex->peers[i].ops[0][HERE].done = ex->peers[i].ops[0][GRADIENT].done =
            ex->peers[i].ops[1][HERE].done = ex->peers[i].ops[1][GRADIENT].done = true;

    /* The channel first: peers can send as soon as they have the window. */
    st = vb_channel_open(group, CHANNEL, note_came, ex);
    if (st != VB_OK)
        goto err_peers;
    st = vb_window_create(group, 2 * (size_t)ex->world * ex->slot_bytes, &ex->win);
    if (st != VB_OK)
        goto err_channel;
    *ex_p = ex;
    return VB_OK;

err_channel:
    vb_channel_close(group, CHANNEL);
err_peers:
    free(ex->peers);
err_free:
    free(ex);
    return st;
}

void vb_exchange_close(struct vb_exchange *ex)
{
    if (ex == NULL)
        return;
    vb_window_destroy(ex->win);
    vb_channel_close(ex->group, CHANNEL);
}

void vb_exchange_destroy(struct vb_exchange *ex)
{
    if (ex == NULL)
        return;
    free(ex->peers);
    free(ex);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* A put to a peer failed, in silence. Why it is lost the group knows a moment later, and says. */
static vb_status lost(struct vb_exchange *ex, int rank)
{
    return vb_group_wait(ex->group, never, NULL, "its connection broke", rank);
}

static vb_status wait_op(struct vb_exchange *ex, struct vb_op *op, int rank)
{
    vb_status st;

    st = vb_op_wait(ex->group, op, "an earlier gradient is still on its way to it", rank);
    return st != VB_OK && op->done ? lost(ex, rank) : st;
}

/* Until what was sent in even or odd steps has left. */
static vb_status wait_sent(struct vb_exchange *ex, uint32_t parity)
{
    vb_status st = VB_OK;
    int r, kind;

    for (r = 0; r < ex->world; r++)
        for (kind = 0; kind < N_KINDS && st == VB_OK; kind++)
            st = wait_op(ex, &ex->peers[r].ops[parity][kind], r);
    return st;
}

vb_status vb_exchange_begin(struct vb_exchange *ex, float **grads_p)
{
    vb_status st;

    ex->step++;
    st = wait_sent(ex, ex->step % 2);
    if (st == VB_OK)
        *grads_p = slot(ex, ex->rank);
    return st;
}

vb_status vb_exchange_flush(struct vb_exchange *ex)
{
    vb_status st = wait_sent(ex, 0);

    return st == VB_OK ? wait_sent(ex, 1) : st;
}

/* There are never more than two steps under way, so a full queue is short of time, not of room. */
static vb_status post(struct vb_exchange *ex, int to, int kind)
{
    struct vb_op *op = &ex->peers[to].ops[ex->step % 2][kind];
    size_t at = slot_at(ex, ex->rank), len = kind == GRADIENT ? ex->n_elems * sizeof(float) : 0;
    vb_status st;

    for (;;) {
        st = vb_put(ex->win, to, at, at, len, VB_NOTE(CHANNEL, note_value(kind, ex->step)), op);
        if (st == VB_OK)
            return VB_OK;
        op->done = true; /* nothing was taken */
        if (st != VB_AGAIN)
            return lost(ex, to);
        st = vb_progress(ex->group);
        if (st != VB_OK)
            return st;
        sched_yield();
    }
}

/* Each rank begins with the one after itself, so that not all send to the same at once. */
static vb_status post_all(struct vb_exchange *ex, int kind)
{
    vb_status st = VB_OK;
    int i;

    for (i = 1; i < ex->world && st == VB_OK; i++)
        st = post(ex, (ex->rank + i) % ex->world, kind);
    return st;
}

static vb_status await_peer(struct vb_exchange *ex, int rank, struct vb_laps *laps)
{
    vb_status st;

    vb_lap(laps, VB_PHASE_COMM);
    st = wait_for(ex, rank, HERE);
    vb_lap(laps, VB_PHASE_WAIT);
    return st == VB_OK ? wait_for(ex, rank, GRADIENT) : st;
}

vb_status vb_exchange_sum(struct vb_exchange *ex, struct vb_laps *laps, float *sum)
{
    vb_status st;
    int r;

    st = post_all(ex, HERE);
    if (st == VB_OK)
        st = post_all(ex, GRADIENT);
    for (r = 0; r < ex->world && st == VB_OK; r++) {
        if (r != ex->rank)
            st = await_peer(ex, r, laps);
        if (st != VB_OK)
            break;
        if (r == 0)
            memcpy(sum, slot(ex, 0), ex->n_elems * sizeof(*sum));
        else
            vb_k_add_ref(sum, slot(ex, r), ex->n_elems);
    }
    vb_lap(laps, VB_PHASE_COMM);
    return st;
}
