/* SPDX-License-Identifier: MIT
 *
 * Who is here, who is done, and what is said when it goes wrong. Mapped ranks tell each other by
 * flags in memory, the others by notes.
 */
#include "net/coll_priv.h"

#include <stdarg.h>

#if defined(__SANITIZE_THREAD__) /* gcc */
#define THREAD_SANITIZER
#elif defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER
#endif
#endif

#define DONE_BYTES ((size_t)64 * 1024) /* of shares that are told of together */

/* ---- failing --------------------------------------------------------------------------------- */

void coll_fail(struct vb_coll *coll, vb_status st, const char *fmt, ...)
{
    char why[256];
    va_list args;

    if (coll->failed != VB_OK)
        return;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    coll->failed = vb_err(st, "%s", why);
    vb_group_abort(coll->group, why);
}

static const char *kind_str(uint32_t kind)
{
    static const char *const names[] = {"allreduce", "reduce-scatter", "allgather", "broadcast",
                                        "barrier"};

    return kind < VB_COUNT(names) ? names[kind] : "something";
}

void op_describe(const struct vb_coll *coll, const struct op *op, char *text, size_t size)
{
    snprintf(text, size, "%s %u (%zu bytes, %s)", kind_str(op->kind), op->seq - coll->first_seq,
             op->n_bytes, vb_algo_str(op->algo));
}

/* ---- who is here ----------------------------------------------------------------------------- */

/* An acquire that pairs with the release in mapped_publish(). Arm's acquiring load would also wait
 * until the flag that this rank has set last can be seen, and all sums before it; a fence does not.
 * ThreadSanitizer knows no fences. */
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

/* The head that a peer sent, once it has come. A peer that brings another size may have it in the
 * other place. */
static const struct slot_head *head_of(struct vb_coll *coll, const struct op *op, int rank)
{
    const struct slot_head *head;

    if (!op->mapped)
        return arrivals_of(coll, op->seq, rank)->n[STREAM_HERE] > 0
                   ? head_at(coll->base, slot_at(coll, op->seq, rank))
                   : NULL;
    head = mapped_head(coll, op->seq, rank, op->eager);
    return head != NULL ? head : mapped_head(coll, op->seq, rank, !op->eager);
}

static void refuse(struct vb_coll *coll, const struct op *op, int rank,
                   const struct slot_head *head)
{
    coll_fail(coll, VB_ERR_PEER,
              "%s %u: rank %d (%s) brings %s of %llu bytes at %llx, rank %d %zu bytes at %zx",
              kind_str(op->kind), op->seq - coll->first_seq, rank, vb_group_host(coll->group, rank),
              kind_str(head->what & 0xff), (unsigned long long)head->n_bytes,
              (unsigned long long)head->place, coll->rank, op->n_bytes, op->offset);
}

/* A peer that does another operation than this rank is the end of the group. */
static bool look_here(struct vb_coll *coll, struct op *op, int rank)
{
    const struct slot_head *head, *own;

    if (op->peers[rank].here)
        return true;
    head = head_of(coll, op, rank);
    if (head == NULL)
        return false;
    own = head_at(coll->base, own_head_at(coll, op));
    if (head->what != own->what || head->n_bytes != own->n_bytes || head->place != own->place ||
        head->root != own->root) {
        refuse(coll, op, rank, head);
        return false;
    }
    op->peers[rank].here = true;
    return true;
}

bool op_are_here(struct vb_coll *coll, struct op *op, int lo, int hi)
{
    if (lo < op->n_here)
        lo = op->n_here;
    for (; lo < hi; lo++) {
        if (lo != coll->rank && !look_here(coll, op, lo))
            return false;
        if (lo == op->n_here)
            op->n_here++;
    }
    return true;
}

static bool is_done_at(const struct vb_coll *coll, const struct op *op, int rank)
{
    return (int32_t)(flag_read(&own_of(coll, coll->ways[rank].base)->done) - op->seq) >= 0;
}

/* What was seen once need not be looked at again. */
bool op_are_done(struct vb_coll *coll, const struct op *op)
{
    uint32_t all, theirs;
    int r;

    if ((int32_t)(coll->all_done - op->seq) >= 0)
        return true;
    all = coll->done;
    for (r = 0; r < coll->world; r++) {
        theirs = r == coll->rank ? all : flag_read(&own_of(coll, coll->ways[r].base)->done);
        if ((int32_t)(theirs - op->seq) < 0)
            return false;
        if ((int32_t)(theirs - all) < 0)
            all = theirs;
    }
    coll->all_done = all;
    return true;
}

int op_waits_for(const struct vb_coll *coll, const struct op *op)
{
    int r;

    for (r = 0; r < coll->world; r++)
        if (r != coll->rank && !op->peers[r].here)
            return r;
    if (op->owner != NO_RANK && op->owner != coll->rank && op->lanes[1].at < op->lanes[1].n)
        return op->owner;
    for (r = 0; r < coll->world; r++) {
        if (op->mapped && r != coll->rank && !is_done_at(coll, op, r))
            return r;
        if (op->peers[r].to_take[0] > 0 || op->peers[r].to_take[1] > 0 ||
            coll->ways[r].left < op->peers[r].last_put)
            return r;
    }
    return NO_RANK;
}

/* ---- telling -----------------------------------------------------------------------------------
 */

void mapped_publish(_Atomic uint32_t *flag, uint32_t seq)
{
    /* Pairs with the acquire in flag_read(). */
    atomic_store_explicit(flag, seq, memory_order_release);
}

/* Either a peer that is about to sleep sees the flags, or we see that it waits: it says so, then a
 * fence, then looks at the flags (coll_start.c); we have set flags, then a fence, then look. */
void mapped_wake(struct vb_coll *coll)
{
    struct own_state *theirs;
    int r;

    coll->told = false;
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that in set_waiting() */
    for (r = 0; r < coll->world; r++) {
        theirs = own_of(coll, coll->ways[r].base);
        if (r != coll->rank && atomic_load_explicit(&theirs->waiting, memory_order_relaxed) != 0)
            (void)coll_put(coll, r, 0, 0, 0, coll_note_value(STREAM_WAKE, 0));
    }
}

void mapped_publish_done(struct vb_coll *coll)
{
    mapped_publish(&own_of(coll, coll->base)->done, coll->done);
    coll->done_bytes = 0;
    coll->told = true;
}

/* A release waits for all stores before it, so small shares are told of together. */
void mapped_done(struct vb_coll *coll, const struct op *op)
{
    coll->done = op->seq;
    coll->done_bytes += 1 + op->n_bytes / (size_t)coll->world;
    if (coll->done_bytes > DONE_BYTES)
        mapped_publish_done(coll);
}
