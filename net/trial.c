/* SPDX-License-Identifier: MIT
 *
 * TCP or soft-RoCE? Both are the same kernel over the same link, and which of them is faster
 * depends on the machine: so the same transfers are timed over both, between all pairs that have
 * the choice at once, as they will be in the job. Ranks exchange what they measured and count the
 * slowest, so that all come to the same answer.
 */
#include "net/group_priv.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_PUTS 10
#define LARGE_PUTS 4
#define LARGE_BYTES ((size_t)128 << 10)
#define WINDOW_ID UINT32_MAX /* those of groups count from 0 */
#define NAP_MS 20

/* One rank's part of the trial over one transport. */
struct trial {
    struct vb_group *g;
    const struct trial_pair *pairs;
    int n_pairs;
    int which;
    struct vb_device *dev;
    const struct vb_transport *ops;
    struct vb_mem mem; /* half to send from, half for each peer to write to */
    struct vb_remote **remotes;
    struct vb_op *ops_done; /* one a pair */
    int notes, done, lost;
    int n_rounds; /* begun */
    uint64_t deadline;
};

static void take_in(struct trial *t)
{
    struct vb_raw_event ev[16];
    int i, n = 0;

    (void)t->ops->poll(t->dev, ev, VB_COUNT(ev), &n);
    for (i = 0; i < n; i++) {
        t->notes += ev[i].type == VB_RAW_NOTE;
        t->done += ev[i].type == VB_RAW_OP_DONE;
        t->lost += ev[i].type == VB_RAW_LOST;
    }
}

static bool round_over(const struct trial *t)
{
    return t->notes >= t->n_rounds * t->n_pairs && t->done >= t->n_rounds * t->n_pairs;
}

static vb_status wait_all(struct trial *t)
{
    struct pollfd fd = {.fd = t->ops->wait_fd(t->dev), .events = POLLIN};

    for (take_in(t); !round_over(t); take_in(t)) {
        if (t->lost > 0)
            return vb_err(VB_ERR_PEER, "a peer was lost while %s was tried", t->ops->name);
        if (vb_clock_ns() >= t->deadline)
            return vb_err(VB_ERR_TIMEOUT, "trying %s took too long", t->ops->name);
        (void)t->ops->arm(t->dev);
        take_in(t);
        if (!round_over(t))
            (void)poll(&fd, 1, NAP_MS);
        t->ops->disarm(t->dev);
    }
    return VB_OK;
}

/* To every peer at once, and what comes from every peer. Counts are of all rounds so far: a peer
 * that is ahead may have sent its next note already. */
static vb_status round_of(struct trial *t, size_t len)
{
    struct vb_span src = {t->mem.ptr, len};
    vb_status st = VB_OK;
    int i;

    t->n_rounds++;
    for (i = 0; i < t->n_pairs && st == VB_OK; i++) {
        struct vb_target dst = {t->remotes[i], LARGE_BYTES};

        st = t->ops->put(t->pairs[i].eps[t->which], &src, dst, 0, &t->ops_done[i]);
    }
    return st == VB_OK ? wait_all(t) : st;
}

static vb_status rounds(struct trial *t, double *seconds_p)
{
    uint64_t start = vb_clock_ns();
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < SMALL_PUTS && st == VB_OK; i++)
        st = round_of(t, 8);
    for (i = 0; i < LARGE_PUTS && st == VB_OK; i++)
        st = round_of(t, LARGE_BYTES);
    *seconds_p = (double)(vb_clock_ns() - start) / 1e9;
    return st;
}

/* Memory of both ends, known to each other; a rank without a pair only takes part in the talk. */
static vb_status import_all(struct trial *t)
{
    struct vb_group *g = t->g;
    struct vb_blob *keys = calloc((size_t)g->world, sizeof(*keys)), mine;
    vb_status st = VB_OK;
    int i;

    if (keys == NULL)
        return vb_err_sys("calloc");
    memset(&mine, 0, sizeof(mine));
    if (t->n_pairs > 0)
        st = t->ops->export_window(t->dev, WINDOW_ID, &t->mem, VB_WINDOW_PUT, &mine);
    if (st == VB_OK)
        st = control_exchange(g->control, &mine, sizeof(mine), keys, "a trial", t->deadline);
    for (i = 0; i < t->n_pairs && st == VB_OK; i++)
        st = t->ops->import_window(t->pairs[i].eps[t->which], WINDOW_ID, &keys[t->pairs[i].rank],
                                   t->mem.len_bytes, g->opts.timeout_ms, &t->remotes[i]);
    free(keys);
    return st;
}

static vb_status meet(struct trial *t, double mine, double *slowest_p)
{
    struct vb_group *g = t->g;
    double *all = calloc((size_t)g->world, sizeof(*all));
    vb_status st;
    int i;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = control_exchange(g->control, &mine, sizeof(mine), all, "a trial", t->deadline);
    *slowest_p = 0;
    for (i = 0; i < g->world && st == VB_OK; i++)
        *slowest_p = all[i] > *slowest_p ? all[i] : *slowest_p;
    free(all);
    return st;
}

static vb_status try_one(struct trial *t, double *seconds_p)
{
    double unused, mine = 0;
    vb_status st;
    int i;

    st = import_all(t);
    if (st == VB_OK)
        st = meet(t, 0, &unused); /* all have imported: begin */
    if (st == VB_OK && t->n_pairs > 0)
        st = rounds(t, &mine);
    if (st == VB_OK)
        st = meet(t, mine, seconds_p);
    for (i = 0; i < t->n_pairs; i++)
        if (t->remotes[i] != NULL)
            t->ops->release_window(t->remotes[i]);
    if (t->n_pairs > 0)
        t->ops->unexport_window(t->dev, WINDOW_ID);
    return st;
}

vb_status trial_run(struct vb_group *g, const struct trial_pair *pairs, int n_pairs,
                    uint64_t deadline, double seconds[2])
{
    struct trial t = {.g = g, .pairs = pairs, .n_pairs = n_pairs, .deadline = deadline};
    size_t n = n_pairs > 0 ? (size_t)n_pairs : 1;
    vb_status st;

    st = vb_mem_map_shared("verbena-trial", 2 * LARGE_BYTES, &t.mem);
    t.ops_done = calloc(n, sizeof(*t.ops_done));
    for (t.which = 0; t.which < 2 && st == VB_OK; t.which++) {
        t.remotes = calloc(n, sizeof(void *));
        t.ops = t.which == 0 ? &vb_transport_tcp : &vb_transport_verbs;
        t.dev = n_pairs > 0 ? pairs[0].devs[t.which] : NULL;
        t.notes = t.done = t.n_rounds = 0;
        if (t.remotes == NULL || t.ops_done == NULL)
            st = vb_err(VB_ERR_NO_MEMORY, "calloc");
        else
            st = try_one(&t, &seconds[t.which]);
        free(t.remotes);
    }
    if (st == VB_OK)
        free(t.ops_done);
    else /* some may be under way, and devices end them when they disconnect */
        group_keep(g, t.ops_done);
    vb_mem_unmap(&t.mem);
    return st;
}
