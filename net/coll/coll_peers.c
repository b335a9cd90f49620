/* SPDX-License-Identifier: MIT
 *
 * Tracks which ranks have started and finished a request, and describes requests in messages about
 * failures. Ranks with mapped windows set flags in memory, other ranks send notes.
 */
#include "net/coll/coll_priv.h"

#if defined(__SANITIZE_THREAD__) /* gcc */
#define THREAD_SANITIZER
#elif defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER
#endif
#endif

#define DONE_BYTES ((size_t)64 * 1024) /* number of bytes of shares that are published together */

static const char *kind_str(uint32_t kind)
{
    static const char *const names[] = {"allreduce", "reduce-scatter", "allgather", "broadcast",
                                        "barrier"};

    return kind < VB_COUNT(names) ? names[kind] : "something";
}

void vb_request_describe(const struct vb_coll *coll, const struct request *rq, char *text,
                         size_t size)
{
    snprintf(text, size, "%s %u (%zu bytes, %s)", kind_str(rq->kind),
             rq->seq - coll->reqs.first_seq, rq->n_bytes, vb_algo_str(rq->algo));
}

/* Reads a flag with an acquire that pairs with the release in vb_mapped_publish(). On Arm an
 * acquiring load would also wait until the last flag that this rank has set is visible, and all
 * sums before that flag. A fence after the load does not wait for this. ThreadSanitizer does not
 * support fences. */
static uint32_t flag_read(const _Atomic uint32_t *flag)
{
#ifdef THREAD_SANITIZER
    return atomic_load_explicit(flag, memory_order_acquire);
#else
    uint32_t value = atomic_load_explicit(flag, memory_order_relaxed);

    atomic_thread_fence(memory_order_acquire);
    return value;
#endif
}

static const struct slot_head *mapped_head(const struct vb_coll *coll, uint32_t seq, int rank,
                                           bool eager)
{
    struct slot_head *head = head_at(coll->ways[rank].base, mapped_head_at(coll, seq, eager));

    return flag_read(&head->seq) == seq ? head : NULL;
}

/* Returns the head that a peer sent, or NULL if it has not come. The head of a mapped request has
 * one of two places. A peer that started a request of another size may have used the other place.
 */
static const struct slot_head *head_of(struct vb_coll *coll, const struct request *rq, int rank)
{
    const struct slot_head *head;

    if (!rq->mapped)
        return arrivals_of(coll, rq->seq, rank)->n[STREAM_START] > 0
                   ? head_at(coll->base, slot_at(coll, rq->seq, rank))
                   : NULL;
    head = mapped_head(coll, rq->seq, rank, rq->eager);
    return head != NULL ? head : mapped_head(coll, rq->seq, rank, !rq->eager);
}

/* Fails because a peer has started another request than this rank, and aborts the group. */
static void refuse(struct vb_coll *coll, const struct request *rq, int rank,
                   const struct slot_head *head)
{
    char why[256];

    if (coll->failed != VB_OK)
        return;
    snprintf(why, sizeof(why),
             "%s %u: rank %d (%s) called %s with %llu bytes at offset %llx, but rank %d called it "
             "with %zu bytes at offset %zx",
             kind_str(rq->kind), rq->seq - coll->reqs.first_seq, group_rank(coll, rank),
             vb_group_host(coll->group, group_rank(coll, rank)), kind_str(head->what & 0xff),
             (unsigned long long)head->n_bytes, (unsigned long long)head->place,
             group_rank(coll, coll->rank), rq->n_bytes, rq->offset);
    coll->failed = vb_err(VB_ERR_PEER, "%s", why);
    vb_group_abort(coll->group, why);
}

static bool look_started(struct vb_coll *coll, struct request *rq, int rank)
{
    const struct slot_head *head, *own;

    if (rq->peers[rank].started)
        return true;
    head = head_of(coll, rq, rank);
    if (head == NULL)
        return false;
    own = head_at(coll->base, own_head_at(coll, rq));
    if (head->what != own->what || head->n_bytes != own->n_bytes || head->place != own->place ||
        head->root != own->root) {
        refuse(coll, rq, rank, head);
        return false;
    }
    rq->peers[rank].started = true;
    /* the note of a put has an arrow already */
    vb_trace_moment(VB_OP_ARRIVED, group_rank(coll, rank),
                    rq->mapped ? vb_trace_request(coll->channel, group_rank(coll, rank), rq->seq)
                               : 0);
    return true;
}

bool vb_request_started_by(struct vb_coll *coll, struct request *rq, int lo, int hi)
{
    if (lo < rq->n_started)
        lo = rq->n_started;
    for (; lo < hi; lo++) {
        if (lo != coll->rank && !look_started(coll, rq, lo))
            return false;
        if (lo == rq->n_started)
            rq->n_started++;
    }
    return true;
}

/* all_done remembers the result, so that flags are not read again. */
bool vb_request_done_by_all(struct vb_coll *coll, const struct request *rq)
{
    uint32_t all, theirs;
    int r;

    if ((int32_t)(coll->mapped.all_done - rq->seq) >= 0)
        return true;
    all = coll->mapped.done;
    for (r = 0; r < coll->world; r++) {
        theirs = r == coll->rank ? all : flag_read(&own_of(coll, coll->ways[r].base)->done);
        if ((int32_t)(theirs - rq->seq) < 0)
            return false;
        if ((int32_t)(theirs - all) < 0)
            all = theirs;
    }
    coll->mapped.all_done = all;
    return true;
}

int vb_request_waits_for(const struct vb_coll *coll, const struct request *rq)
{
    int r;

    for (r = 0; r < coll->world; r++)
        if (r != coll->rank && !rq->peers[r].started)
            return r;
    if (rq->owner != NO_RANK && rq->owner != coll->rank && rq->lanes[1].at < rq->lanes[1].n)
        return rq->owner;
    for (r = 0; r < coll->world; r++) {
        if (rq->mapped && r != coll->rank &&
            (int32_t)(flag_read(&own_of(coll, coll->ways[r].base)->done) - rq->seq) < 0)
            return r;
        if (rq->peers[r].to_take[0] > 0 || rq->peers[r].to_take[1] > 0 ||
            coll->ways[r].left < rq->peers[r].last_put)
            return r;
    }
    return NO_RANK;
}

void vb_mapped_publish(_Atomic uint32_t *flag, uint32_t seq)
{
    /* This release pairs with the acquire in flag_read(). */
    atomic_store_explicit(flag, seq, memory_order_release);
}

/* Sends a note to each peer that may be asleep. We set flags, have a fence, and then read
 * `waiting`. The peer sets `waiting`, has a fence, and then reads the flags (coll_start.c). So the
 * peer sees our flags, or we see that the peer waits. */
void vb_mapped_wake(struct vb_coll *coll)
{
    struct own_state *theirs;
    int r;

    coll->mapped.wake_due = false;
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in set_waiting() */
    for (r = 0; r < coll->world; r++) {
        theirs = own_of(coll, coll->ways[r].base);
        if (r != coll->rank && atomic_load_explicit(&theirs->waiting, memory_order_relaxed) != 0)
            (void)vb_coll_put(coll, r, 0, 0, 0, vb_coll_note_value(STREAM_WAKE, 0));
    }
}

void vb_mapped_publish_done(struct vb_coll *coll)
{
    vb_mapped_publish(&own_of(coll, coll->base)->done, coll->mapped.done);
    coll->mapped.done_bytes = 0;
    coll->mapped.wake_due = true;
}

/* Marks this rank's share of a request as done. Small shares are published together, because a
 * release waits for all earlier stores. */
void vb_mapped_done(struct vb_coll *coll, const struct request *rq)
{
    coll->mapped.done = rq->seq;
    coll->mapped.done_bytes += 1 + rq->n_bytes / (size_t)coll->world;
    if (coll->mapped.done_bytes > DONE_BYTES)
        vb_mapped_publish_done(coll);
}
