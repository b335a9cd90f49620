/* SPDX-License-Identifier: MIT
 *
 * Measures whether TCP or soft-RoCE is faster, which depends on the machine. All pairs that have
 * the choice time the same transfers over TCP, then over soft-RoCE, at the same time, as later in
 * the job. The time of the slowest rank counts, so that all ranks make the same choice. On a slow
 * link only the small transfers are timed.
 */
#include "net/group/group_priv.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_PUTS 10
#define LARGE_PUTS 4
#define LARGE_BYTES ((size_t)128 << 10)
#define FIRST_BYTES ((size_t)8 << 10) /* length of the put that tells whether the link is slow */
#define LARGE_S 2.0                   /* the large puts are left out if they would take longer */
#define WINDOW_ID UINT32_MAX          /* not the id of a window of the group: these count from 0 */
#define NAP_MS 20

struct pick {
    struct vb_group *g;
    const struct pick_pair *pairs;
    int n_pairs;
    int which;
    struct vb_device *dev;
    const struct vb_transport *transport;
    struct vb_mem mem; /* this rank sends from the first half, and peers write to the second half */
    struct vb_remote **remotes;
    struct vb_op *ops; /* one for each pair */
    int notes, done, lost;
    int n_rounds; /* number of rounds begun */
    bool large;   /* the link is fast enough for large puts, as measured over TCP */
    uint64_t deadline;
};

static void poll_events(struct pick *p)
{
    struct vb_raw_event ev[16];
    int i, n = 0;

    (void)p->transport->poll(p->dev, ev, VB_COUNT(ev), &n);
    for (i = 0; i < n; i++) {
        p->notes += ev[i].type == VB_RAW_NOTE;
        p->done += ev[i].type == VB_RAW_OP_DONE;
        p->lost += ev[i].type == VB_RAW_LOST;
    }
}

static bool round_over(const struct pick *p)
{
    return p->notes >= p->n_rounds * p->n_pairs && p->done >= p->n_rounds * p->n_pairs;
}

static vb_status wait_all(struct pick *p)
{
    struct pollfd fd = {.fd = p->transport->wait_fd(p->dev), .events = POLLIN};

    for (poll_events(p); !round_over(p); poll_events(p)) {
        if (p->lost > 0)
            return vb_err(VB_ERR_PEER, "a peer was lost while %s was measured", p->transport->name);
        if (vb_clock_ns() >= p->deadline)
            return vb_err(VB_ERR_TIMEOUT, "measuring %s took too long", p->transport->name);
        (void)p->transport->arm(p->dev);
        poll_events(p);
        if (!round_over(p))
            (void)poll(&fd, 1, NAP_MS);
        p->transport->disarm(p->dev);
    }
    return VB_OK;
}

/* notes and done count the events of all rounds so far, because a peer that is ahead may already
 * have sent the note of the next round. */
static vb_status run_round(struct pick *p, size_t len)
{
    struct vb_span src = {p->mem.ptr, len};
    vb_status st = VB_OK;
    int i;

    p->n_rounds++;
    for (i = 0; i < p->n_pairs && st == VB_OK; i++) {
        struct vb_target dst = {p->remotes[i], LARGE_BYTES};

        st = p->transport->put(p->pairs[i].eps[p->which], &src, dst, 0, &p->ops[i]);
    }
    return st == VB_OK ? wait_all(p) : st;
}

/* Adds the time of n rounds to *seconds_p. */
static vb_status run_rounds(struct pick *p, int n, size_t len, double *seconds_p)
{
    uint64_t start = vb_clock_ns();
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < n && st == VB_OK && p->n_pairs > 0; i++)
        st = run_round(p, len);
    *seconds_p += (double)(vb_clock_ns() - start) / 1e9;
    return st;
}

/* A rank without pairs to measure only takes part in the exchange of keys. */
static vb_status import_all(struct pick *p)
{
    struct vb_group *g = p->g;
    struct vb_blob *keys = calloc((size_t)g->world, sizeof(*keys)), mine;
    vb_status st = VB_OK;
    int i;

    if (keys == NULL)
        return vb_err_sys("calloc");
    memset(&mine, 0, sizeof(mine));
    if (p->n_pairs > 0)
        st = p->transport->export_window(p->dev, WINDOW_ID, &p->mem, VB_WINDOW_PUT, &mine);
    if (st == VB_OK)
        st = vb_control_exchange(g->control, &mine, sizeof(mine), keys, "a measurement",
                                 p->deadline);
    for (i = 0; i < p->n_pairs && st == VB_OK; i++)
        st = p->transport->import_window(p->pairs[i].eps[p->which], WINDOW_ID,
                                         &keys[p->pairs[i].rank], p->mem.len_bytes,
                                         g->opts.timeout_ms, &p->remotes[i]);
    free(keys);
    return st;
}

static vb_status exchange_slowest(struct pick *p, double mine, double *slowest_p)
{
    struct vb_group *g = p->g;
    double *all = calloc((size_t)g->world, sizeof(*all));
    vb_status st;
    int i;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_control_exchange(g->control, &mine, sizeof(mine), all, "a measurement", p->deadline);
    *slowest_p = 0;
    for (i = 0; i < g->world && st == VB_OK; i++)
        *slowest_p = all[i] > *slowest_p ? all[i] : *slowest_p;
    free(all);
    return st;
}

/* All ranks decide alike, because all know the time of the slowest. */
static vb_status check_speed(struct pick *p, double first)
{
    double slowest = 0;
    vb_status st = exchange_slowest(p, first, &slowest);

    p->large = slowest * LARGE_PUTS * LARGE_BYTES / FIRST_BYTES < LARGE_S;
    return st;
}

static vb_status run_all(struct pick *p, double *mine_p)
{
    double small = 0, first = 0;
    vb_status st = run_rounds(p, SMALL_PUTS, 8, &small);

    if (st == VB_OK)
        st = run_rounds(p, 1, FIRST_BYTES, &first);
    *mine_p = small + first;
    if (st == VB_OK && p->which == 0)
        st = check_speed(p, first - small / SMALL_PUTS); /* without the latency */
    return st == VB_OK && p->large ? run_rounds(p, LARGE_PUTS, LARGE_BYTES, mine_p) : st;
}

static vb_status measure_one(struct pick *p, double *seconds_p)
{
    double unused, mine = 0;
    int i;
    vb_status st = import_all(p);

    if (st == VB_OK)
        st = exchange_slowest(p, 0, &unused); /* a barrier: all ranks have imported */
    if (st == VB_OK)
        st = run_all(p, &mine);
    if (st == VB_OK)
        st = exchange_slowest(p, mine, seconds_p);
    for (i = 0; i < p->n_pairs; i++)
        if (p->remotes[i] != NULL)
            p->transport->release_window(p->remotes[i]);
    if (p->n_pairs > 0)
        p->transport->unexport_window(p->dev, WINDOW_ID);
    return st;
}

vb_status vb_pick_transport(struct vb_group *g, const struct pick_pair *pairs, int n_pairs,
                            uint64_t deadline, double seconds[2])
{
    struct pick p = {.g = g, .pairs = pairs, .n_pairs = n_pairs, .deadline = deadline};
    size_t n = n_pairs > 0 ? (size_t)n_pairs : 1;
    vb_status st = vb_mem_map_shared("verbena-measure", 2 * LARGE_BYTES, &p.mem);

    p.ops = calloc(n, sizeof(*p.ops));
    for (p.which = 0; p.which < 2 && st == VB_OK; p.which++) {
        p.remotes = calloc(n, sizeof(void *));
        p.transport = p.which == 0 ? &vb_transport_tcp : &vb_transport_verbs;
        p.dev = n_pairs > 0 ? pairs[0].devs[p.which] : NULL;
        p.notes = p.done = p.n_rounds = 0;
        if (p.remotes == NULL || p.ops == NULL)
            st = vb_err(VB_ERR_NO_MEMORY, "calloc");
        else
            st = measure_one(&p, &seconds[p.which]);
        free(p.remotes);
    }
    if (st == VB_OK)
        free(p.ops);
    else /* some ops may be under way until their endpoints are disconnected */
        vb_group_keep(g, p.ops);
    vb_mem_unmap(&p.mem);
    return st;
}
