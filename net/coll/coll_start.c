/* SPDX-License-Identifier: MIT
 *
 * The functions that start a request, and vb_wait() and vb_test().
 *
 * A wait for a mapped request reads flags in memory: at first in a loop of its own, which makes
 * small vectors fast, then in the group's wait, which can sleep. Before the group's wait it sets
 * `waiting` in its window. From then on peers send a note after they have set a flag.
 */
#include "net/coll/coll_priv.h"

#include <sched.h>
#include <string.h>

#define LOOKS 64u        /* number of reads of the flags between two reads of the clock */
#define LOOKS_CROWDED 1u /* like LOOKS, if there are more threads than cpus */
#define SPIN_NS 100000u  /* maximum time to spin, as in the group's waits */
#define YIELDS_NS 50000u

/* Requests of this length and more do not wait for later requests that could be sent with them,
 * because these may come only after much computing. */
#define WAITS_BYTES ((size_t)64 * 1024)

/* Up to this length, summing a share of a mapped request takes no longer than waking a peer. */
#define SMALL_BYTES ((size_t)32 * 1024)

void vb_coll_share(size_t n_elems, int world, int rank, size_t *first_p, size_t *n_p)
{
    size_t line = VB_CACHE_LINE / sizeof(float), n = (size_t)world;
    size_t each = (n_elems + n * line - 1) / (n * line) * line; /* a whole number of cache lines */
    size_t first = (size_t)rank * each < n_elems ? (size_t)rank * each : n_elems;

    *first_p = first;
    *n_p = n_elems - first < each ? n_elems - first : each;
}

void vb_request_share(const struct request *rq, int n, int c, size_t *at_p, size_t *len_p)
{
    size_t first, n_elems;

    vb_coll_share(rq->n_bytes / sizeof(float), n, c, &first, &n_elems);
    *at_p = rq->offset + first * sizeof(float);
    *len_p = n_elems * sizeof(float);
}

static const struct schedule *schedule_of(const struct request *rq)
{
    static const struct schedule *const sums[VB_ALGOS] = {
        [VB_ALGO_MAPPED] = &vb_schedule_mapped,     [VB_ALGO_GATHER] = &vb_schedule_gather,
        [VB_ALGO_EXCHANGE] = &vb_schedule_exchange, [VB_ALGO_OWNER] = &vb_schedule_owner,
        [VB_ALGO_CHAIN] = &vb_schedule_chain,       [VB_ALGO_RING] = &vb_schedule_ring,
        [VB_ALGO_HALVING] = &vb_schedule_halving,   [VB_ALGO_TWO_LEVEL] = &vb_schedule_two_level};
    static const struct schedule *const others[] = {
        [REQUEST_REDUCE_SCATTER] = &vb_schedule_exchange,
        [REQUEST_ALLGATHER] = &vb_schedule_allgather,
        [REQUEST_BROADCAST] = &vb_schedule_broadcast,
        [REQUEST_BARRIER] = NULL,
    };

    if (rq->kind == REQUEST_ALLREDUCE || rq->algo == VB_ALGO_MAPPED)
        return sums[rq->algo];
    return others[rq->kind];
}

/* Returns whether the new request counts as one of many requests under way. was is the last request
 * in the same place of the table. All ranks have finished was, so all ranks know how many older
 * requests each rank had under way when it started was. The first of many requests cannot know that
 * more will follow. The next requests after one of many, as many as the table holds, also count as
 * one of many. */
static bool one_of_many(struct vb_coll *coll, const struct request *was)
{
    coll->reqs.since_many = was->n_older >= (uint32_t)coll->world ? 0 : coll->reqs.since_many + 1;
    return coll->reqs.since_many < coll->reqs.n;
}

/* Only an allreduce has several algorithms. Each other kind of request has one algorithm for mapped
 * windows and one for puts. */
static enum vb_algo choose_algo(const struct vb_coll *coll, const struct request *rq, bool many)
{
    bool mapped = coll->opts.algo == VB_ALGO_AUTO || coll->opts.algo == VB_ALGO_MAPPED;

    if (rq->kind == REQUEST_ALLREDUCE)
        return many ? vb_coll_algo_many(coll, rq->n_bytes) : vb_coll_algo(coll, rq->n_bytes);
    return coll->hosts.all_mapped && mapped ? VB_ALGO_MAPPED : VB_ALGO_EXCHANGE;
}

/* Returns whether sleeping peers must be woken as soon as this rank has started the request. In a
 * small sum no rank finishes before this rank has done its share, and mapped_shares() wakes all. */
static bool is_woken_for(const struct request *rq)
{
    return rq->kind != REQUEST_ALLREDUCE || rq->eager || rq->n_bytes > SMALL_BYTES;
}

/* Fills in the head of this rank's own slot, and the vector behind it if both are sent together. */
static void fill_slot(struct vb_coll *coll, const struct request *rq, uint64_t place)
{
    struct slot_head *head = head_at(coll->base, own_head_at(coll, rq));
    const char *data = coll->base + rq->offset;
    void *payload = head + 1;
    uint64_t part_ns;

    head->what = (uint32_t)rq->kind | (uint32_t)rq->how << 8 | (uint32_t)rq->algo << 16;
    head->root = (uint32_t)rq->root;
    head->n_older = rq->seq - coll->reqs.oldest;
    head->n_bytes = rq->n_bytes;
    head->place = place;
    if (rq->direct)
        return;
    part_ns = rq->eager ? vb_trace_begin_part() : 0;
    if (rq->eager && is_narrow(coll) && !rq->mapped)
        vb_coll_narrow(payload, (const float *)(const void *)data, rq->n_bytes / sizeof(float));
    else if (rq->eager)
        memcpy(payload, data, rq->n_bytes);
    vb_trace_end(part_ns, VB_OP_COPY, rq->n_bytes);
    if (!rq->mapped)
        return;
    vb_mapped_publish(&head->seq, rq->seq);
    if (is_woken_for(rq))
        vb_mapped_wake(coll);
    else
        coll->mapped.wake_due = true;
    if (rq->eager)
        __builtin_prefetch(head_at(coll->base, own_slot_at(coll, rq->seq + 1)), 1);
    else
        __builtin_prefetch(head + 2, 1);
}

struct waiting {
    struct vb_coll *coll;
    struct request *rq;
    int from; /* the rank of the group that the wait is for */
    struct straggler *straggler;
};

static bool is_done(void *arg)
{
    struct waiting *w = arg;
    int from;

    if (w->rq->active)
        vb_coll_poll(w->coll, w->rq);
    if (!w->rq->active)
        return true;
    from = vb_request_waits_for(w->coll, w->rq);
    w->from = from != NO_RANK ? group_rank(w->coll, from) : NO_RANK;
    vb_straggler_look(w->straggler, w->coll, w->rq, from);
    return w->coll->failed != VB_OK;
}

static void set_waiting(struct vb_coll *coll, uint32_t value)
{
    atomic_store_explicit(&own_of(coll, coll->base)->waiting, value, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in vb_mapped_wake() */
}

/* Aborts the group, so that peers do not wait until their own timeout. They need not be told that a
 * rank is gone. */
static void abort_group(struct vb_coll *coll, const char *what, int from)
{
    char why[192];

    if (vb_group_status(coll->group) != VB_OK || vb_group_missing(coll->group) != VB_NO_PLACE)
        return; /* the group has already failed */
    if (from == NO_RANK)
        snprintf(why, sizeof(why), "%s took too long", what);
    else
        snprintf(why, sizeof(why), "rank %d (%s) did not do its part of %s", from,
                 vb_group_host(coll->group, from), what);
    vb_group_abort(coll->group, why);
}

/* Waits with the group's wait, which sleeps during a long wait and fails if a rank is lost. After
 * this, the request is done or the collectives have failed. */
static void wait_long(struct vb_coll *coll, struct request *rq, struct straggler *straggler)
{
    struct waiting w = {coll, rq, NO_RANK, straggler};
    char what[96];
    vb_status st;

    if (!coll->hosts.all_mapped && vb_group_try(coll->group, is_done, &w) && !rq->active)
        return;
    vb_request_describe(coll, rq, what, sizeof(what));
    if (straggler->begin_ns == 0)
        vb_straggler_begin(straggler, coll, rq, vb_clock_ns());
    if (coll->hosts.all_mapped)
        set_waiting(coll, 1);
    st = vb_group_wait_for(coll->group, is_done, &w, what, &w.from);
    if (coll->hosts.all_mapped)
        set_waiting(coll, 0);
    vb_straggler_end(straggler, coll);
    if (st != VB_OK)
        abort_group(coll, what, w.from);
    group_lock(coll->group);
    if (coll->failed == VB_OK)
        coll->failed = st;
    group_unlock(coll->group);
}

/* Returns whether many notes to mapped peers are still under way. Then the caller makes progress,
 * because only polling marks them as done. The caller holds the lock. */
static bool reap_notes(struct vb_coll *coll)
{
    bool many = false;
    int r;

    for (r = 0; r < coll->world && coll->hosts.all_mapped; r++)
        if (coll->ways[r].posted - coll->ways[r].left > coll->n_puts / 2) {
            vb_coll_reap(coll, &coll->ways[r]);
            many = true;
        }
    return many;
}

/* Fills in rq from the description want. The arrays of rq are used again. */
static void prepare(struct vb_coll *coll, struct request *rq, const struct request *want,
                    uint32_t seq)
{
    size_t world = (size_t)coll->world;
    struct request was = *rq;

    *rq = *want;
    rq->seq = seq;
    rq->owner = NO_RANK;
    rq->peers = was.peers;
    rq->lanes = was.lanes;
    rq->offsets = was.offsets;
    rq->lens = was.lens;
    if (want->offsets != NULL) {
        memcpy(rq->offsets, want->offsets, world * sizeof(*rq->offsets));
        memcpy(rq->lens, want->lens, world * sizeof(*rq->lens));
    }
    memset(rq->peers, 0, world * sizeof(*rq->peers));
    rq->algo = choose_algo(coll, rq, one_of_many(coll, &was));
    rq->schedule = schedule_of(rq);
    memset(rq->lanes, 0, (rq->algo == VB_ALGO_MAPPED ? 1 : 2 * world + 2) * sizeof(*rq->lanes));
    rq->n_lanes = 1;
    rq->lanes[0].n = (uint32_t)world - 1;
    if (rq->schedule != NULL)
        rq->schedule->plan(coll, rq);
}

/* Each peer gets only one message at the start of the request: START, perhaps with the vector. */
static bool is_one_message(const struct request *rq)
{
    return rq->kind == REQUEST_BARRIER || (rq->eager && rq->n_bytes < STRAIGHT_BYTES);
}

/* Starts the request that want describes. Copies want and its arrays. */
static vb_status start(struct vb_coll *coll, const struct request *want, uint64_t place,
                       struct vb_req *req)
{
    uint32_t seq = coll->reqs.seq + 1;
    struct straggler straggler = {.rank = NO_RANK};
    struct request *rq = request_at(coll, seq);
    vb_status st;
    bool taken, many, others, hold;

    group_lock(coll->group);
    st = coll->failed;
    taken = rq->active;
    many = reap_notes(coll);
    group_unlock(coll->group);
    if (st == VB_OK && many)
        st = vb_progress(coll->group);
    if (st == VB_OK && taken)
        wait_long(coll, rq, &straggler); /* the last request in this place of the table */
    group_lock(coll->group);
    if (st == VB_OK && !coll_works(coll))
        st = coll->failed;
    if (st != VB_OK) {
        group_unlock(coll->group);
        return st;
    }
    *req = (struct vb_req){.seq = seq - coll->reqs.first_seq, .coll = coll};
    prepare(coll, rq, want, seq);
    coll->reqs.seq = seq;
    rq->handle = req;
    rq->active = true;
    rq->begin_ns = vb_trace_begin();
    fill_slot(coll, rq, place);
    coll->mapped.n_running += rq->mapped;
    if (!rq->mapped) {
        /* Small requests that follow each other are sent together. The last of them is sent when
         * the caller calls vb_wait() or vb_test(). With a progress thread they are not held back,
         * because the caller may do other work first. */
        others = coll->reqs.oldest != seq && !group_is_threaded(coll->group) &&
                 rq->n_bytes < WAITS_BYTES;
        hold = others || !is_one_message(rq);
        if (hold)
            vb_group_hold(coll->group, true);
        vb_coll_run_request(coll, rq);
        if (hold)
            vb_group_hold(coll->group, false);
        if (hold && !others)
            vb_group_flush(coll->group);
    }
    group_unlock(coll->group);
    return VB_OK;
}

static vb_status check_range(const struct vb_coll *coll, const char *what, size_t offset,
                             size_t len)
{
    if (offset > coll->lay.len_bytes || len > coll->lay.len_bytes - offset ||
        offset % sizeof(float) != 0)
        return vb_err(VB_ERR_USAGE,
                      "%s of %zu bytes at offset %zu is not possible: the data has %zu bytes, and "
                      "offsets must be multiples of 4",
                      what, len, offset, coll->lay.len_bytes);
    return VB_OK;
}

static vb_status start_sum(struct vb_coll *coll, enum request_kind kind, size_t offset,
                           size_t n_elems, enum vb_reduce how, struct vb_req *req)
{
    struct request rq = {.kind = kind, .how = how, .offset = offset};
    vb_status st;

    rq.n_bytes = n_elems < SIZE_MAX / sizeof(float) ? n_elems * sizeof(float) : SIZE_MAX;
    st = check_range(coll, kind == REQUEST_ALLREDUCE ? "allreduce" : "reduce-scatter", offset,
                     rq.n_bytes);
    return st == VB_OK ? start(coll, &rq, offset, req) : st;
}

vb_status vb_allreduce_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                             enum vb_reduce how, struct vb_req *req)
{
    return start_sum(coll, REQUEST_ALLREDUCE, offset_bytes, n_elems, how, req);
}

vb_status vb_reduce_scatter_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                                  enum vb_reduce how, struct vb_req *req)
{
    return start_sum(coll, REQUEST_REDUCE_SCATTER, offset_bytes, n_elems, how, req);
}

vb_status vb_allgather_start(struct vb_coll *coll, const size_t *offsets_bytes,
                             const size_t *lens_bytes, struct vb_req *req)
{
    size_t each = (size_t)coll->world * sizeof(size_t);
    struct request rq = {.kind = REQUEST_ALLGATHER,
                         .offsets = (size_t *)offsets_bytes, /* start() only copies this array */
                         .lens = (size_t *)lens_bytes};
    uint64_t digest;
    vb_status st = VB_OK;
    int r;

    for (r = 0; r < coll->world && st == VB_OK; r++) {
        st = check_range(coll, "allgather", offsets_bytes[r], lens_bytes[r]);
        rq.n_bytes += lens_bytes[r];
    }
    if (st != VB_OK)
        return st;
    digest = (uint64_t)vb_crc32c(0, offsets_bytes, each) << 32 | vb_crc32c(0, lens_bytes, each);
    return start(coll, &rq, digest, req);
}

vb_status vb_broadcast_start(struct vb_coll *coll, int root, size_t offset_bytes, size_t len_bytes,
                             struct vb_req *req)
{
    struct request rq = {
        .kind = REQUEST_BROADCAST, .root = root, .offset = offset_bytes, .n_bytes = len_bytes};
    vb_status st = check_range(coll, "broadcast", offset_bytes, len_bytes);

    if (st == VB_OK && (root < 0 || root >= coll->world))
        st = vb_err(VB_ERR_USAGE,
                    "broadcast from rank %d is not possible: the rank must be from 0 to %d", root,
                    coll->world - 1);
    return st == VB_OK ? start(coll, &rq, offset_bytes, req) : st;
}

vb_status vb_barrier_start(struct vb_coll *coll, struct vb_req *req)
{
    struct request rq = {.kind = REQUEST_BARRIER};

    return start(coll, &rq, 0, req);
}

static struct request *request_of(struct vb_coll *coll, const struct vb_req *req)
{
    return request_at(coll, req->seq + coll->reqs.first_seq);
}

/* ---- wait ------------------------------------------------------------------------------------ */

/* Reads the flags for a short time. Returns true if the request is done. */
static bool spin(struct vb_coll *coll, struct vb_req *req, struct straggler *straggler)
{
    const struct vb_group_opts *opts = vb_group_options(coll->group);
    bool crowded = opts->crowded;
    uint64_t begin = 0, now, for_ns = crowded ? YIELDS_NS : SPIN_NS;
    unsigned looks = 0;
    bool done, over;

    if (opts->never_spin)
        for_ns = 0;
    for (;;) {
        group_lock(coll->group);
        vb_coll_run(coll);
        done = req->done;
        over = coll->failed != VB_OK;
        group_unlock(coll->group);
        if (done || over)
            return done;
        if (++looks % (crowded ? LOOKS_CROWDED : LOOKS) != 0) {
            vb_cpu_relax();
            continue;
        }
        now = vb_clock_ns();
        if (begin == 0) {
            begin = now;
            vb_straggler_begin(straggler, coll, request_of(coll, req), now);
        }
        if (now - begin >= for_ns)
            return false;
        if (crowded)
            sched_yield();
    }
}

vb_status vb_wait(struct vb_coll *coll, struct vb_req *req)
{
    struct straggler straggler = {.rank = NO_RANK};
    vb_status st;
    bool done, mapped;

    group_lock(coll->group);
    done = req->done;
    mapped = coll->mapped.n_running > 0;
    st = done ? req->status : coll->failed;
    group_unlock(coll->group);
    if (done || st != VB_OK)
        return st;
    if (mapped && spin(coll, req, &straggler))
        vb_straggler_end(&straggler, coll);
    else
        wait_long(coll, request_of(coll, req), &straggler);
    group_lock(coll->group);
    st = req->done ? req->status : coll->failed;
    group_unlock(coll->group);
    return st;
}

vb_status vb_test(struct vb_coll *coll, struct vb_req *req, bool *done_p)
{
    vb_status st = vb_progress(coll->group);

    group_lock(coll->group);
    vb_coll_run(coll);
    if (st == VB_OK)
        st = coll->failed;
    else if (coll->failed == VB_OK)
        coll->failed = st;
    *done_p = req->done;
    group_unlock(coll->group);
    return st;
}
