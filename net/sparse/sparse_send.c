/* SPDX-License-Identifier: MIT
 *
 * Moves lists between ranks, in the rounds that docs/collectives.md describes.
 *
 * A note has a kind (2 bits), a bit that says whether more follows, and the number of words that
 * were put (21 bits). The note of a head has the sequence number of the call instead. Lists longer
 * than a *segment* are sent in several puts.
 *
 * No data is overwritten too early. A rank sends head k + 1 when it has finished call k, that is,
 * when it has all sums and its own puts are done. Until then no other rank sends part k + 1 or sum
 * k + 1, because a rank sends them only when it has the heads of all ranks. So only heads can come
 * early, by one call. Therefore heads, and the lists that are sent with them, have two places. An
 * owner sends its sum after it has read the parts. So when a rank has all sums, nobody reads its
 * list any more. When an owner has all heads k + 1, nobody reads its sum k any more.
 */
#include "net/sparse/sparse_priv.h"

#define SEGMENT_WORDS ((size_t)1 << 20)
#define COUNT_BITS 21
#define COUNT_MASK ((1u << COUNT_BITS) - 1)
#define MORE (1u << COUNT_BITS)
#define KIND_SHIFT (COUNT_BITS + 1)

static uint32_t note_value(enum sparse_kind kind, bool more, size_t count)
{
    return (uint32_t)kind << KIND_SHIFT | (more ? MORE : 0) | ((uint32_t)count & COUNT_MASK);
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Handles the note of a segment of a part or sum. Returns false if the note is invalid. */
static bool take_segment(const struct sparse_peer *peer, struct sparse_incoming *in, uint32_t value)
{
    size_t count = value & COUNT_MASK;

    if (in->seq == peer->heads || count > SEGMENT_WORDS)
        return false;
    in->words = (in->open ? in->words : 0) + count;
    in->open = (value & MORE) != 0;
    if (in->words > UINT32_MAX)
        return false;
    if (!in->open)
        in->seq = peer->heads;
    return true;
}

static bool take_head(struct sparse_peer *peer, uint32_t value)
{
    bool sum_owed = peer->part.seq == peer->heads && peer->sum.seq != peer->heads;

    if (peer->part.open || peer->sum.open || sum_owed ||
        (value & COUNT_MASK) != ((peer->heads + 1) & COUNT_MASK))
        return false;
    peer->begun = peer->heads + 1;
    peer->heads += (value & MORE) == 0;
    return true;
}

void vb_sparse_note_came(void *arg, int rank, uint32_t value)
{
    struct vb_sparse *s = arg;
    int place = vb_group_view(s->group)->places[rank];
    struct sparse_peer *peer = &s->peers[place != VB_NO_PLACE ? place : s->rank];
    uint32_t kind = value >> KIND_SHIFT;
    bool mapped = peer->mapped != NULL, fine = place != VB_NO_PLACE;

    if (!fine)
        ; /* a rank that has joined is not told of any sparse allreduce */
    else if (kind == SPARSE_HEAD)
        fine = take_head(peer, value);
    else if (kind == SPARSE_PART)
        fine = !mapped && take_segment(peer, &peer->part, value);
    else if (kind == SPARSE_SUM)
        fine = (mapped || peer->part.seq == peer->heads) && take_segment(peer, &peer->sum, value);
    else if (kind == SPARSE_PROBE)
        peer->probes++;
    if (!fine)
        vb_group_lose(s->group, rank,
                      "the peer sent a note for a sparse allreduce that is not due");
}

/* ---- failing --------------------------------------------------------------------------------- */

vb_status vb_sparse_fail(struct vb_sparse *s, vb_status st)
{
    s->failed = st;
    return st;
}

vb_status vb_sparse_broken(struct vb_sparse *s, int rank, const char *why)
{
    char text[256];

    snprintf(text, sizeof(text), "%s: rank %d (%s) sent invalid data: %s", s->what,
             group_rank(s, rank), host_of(s, rank), why);
    vb_group_abort(s->group, text);
    return vb_sparse_fail(s, vb_err(VB_ERR_INPUT, "%s", text));
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct waiting {
    struct vb_sparse *s;
    int rank; /* the rank that the wait is for */
    int from; /* its rank in the group */
    int lost; /* a rank in the group that is gone; VB_NO_PLACE: none */
    bool (*ready)(struct waiting *w);
    int straggler; /* the first rank that has not begun to send its head; own rank: none */
    uint64_t since_ns;
    const struct sparse_incoming *in; /* list_came() */
    uint32_t n;                       /* probes_came() */
};

/* If a rank is gone, the others do not come either, so the wait is over. */
static bool is_over(void *arg)
{
    struct waiting *w = arg;
    struct vb_group *g = w->s->group;
    bool over;

    w->lost = group_n_fenced(g) > 0 ? vb_group_missing(g) : VB_NO_PLACE;
    over = w->lost != VB_NO_PLACE || w->ready(w);
    if (!over)
        w->from = group_rank(w->s, w->rank);
    return over;
}

/* Waits until ready() is true. The group logs which rank failed and why, but names the operation
 * only after a timeout, so this function logs the operation in the other cases. */
static vb_status wait_for(struct vb_sparse *s, bool (*ready)(struct waiting *w), struct waiting *w)
{
    vb_status st;

    w->ready = ready;
    w->from = group_rank(s, w->rank);
    st = vb_group_wait_for(s->group, is_over, w, s->what, &w->from);
    if (st == VB_OK && w->lost != VB_NO_PLACE)
        st = vb_group_say_gone(s->group, w->lost, s->what);
    else if (st != VB_OK && vb_group_status(s->group) != VB_OK)
        (void)vb_err(st, "%s failed while waiting for rank %d (%s)", s->what, w->from,
                     vb_group_host(s->group, w->from));
    return st == VB_OK ? VB_OK : vb_sparse_fail(s, st);
}

/* Adds the time since the last call to the wait statistics of the straggler, and sets the new
 * straggler. */
static void settle(struct waiting *w, int straggler)
{
    uint64_t now_ns = vb_clock_ns();
    int rank = group_rank(w->s, w->straggler);

    if (w->straggler != w->s->rank)
        vb_group_wait_add(w->s->group, rank, now_ns - w->since_ns);
    if (w->since_ns != 0 && w->straggler != w->s->rank)
        vb_trace_past(VB_OP_WAIT, now_ns - w->since_ns, rank,
                      vb_trace_request(w->s->channel, rank, w->s->seq));
    else if (w->since_ns != 0)
        vb_trace_past(VB_OP_WIRE, now_ns - w->since_ns, -1, 0);
    w->straggler = straggler;
    w->since_ns = now_ns;
}

/* Returns the first rank that has not begun to send its head, or this rank if all have. */
static int straggler_of(const struct vb_sparse *s)
{
    int r;

    for (r = 0; r < s->world; r++)
        if (r != s->rank && (int32_t)(s->peers[r].begun - s->seq) < 0)
            return r;
    return s->rank;
}

static bool heads_came(struct waiting *w)
{
    const struct vb_sparse *s = w->s;
    int straggler = straggler_of(s);

    if (straggler != w->straggler)
        settle(w, straggler);
    for (; w->rank < s->world; w->rank++)
        if (w->rank != s->rank && (int32_t)(s->peers[w->rank].heads - s->seq) < 0)
            return false;
    return true;
}

static bool list_came(struct waiting *w)
{
    return w->in->seq == w->s->seq;
}

bool vb_sparse_is_sent(const struct sparse_peer *peer)
{
    return peer->begun_op.done && peer->head_op.done && peer->part_op.done && peer->sum_op.done;
}

static bool all_sent(struct waiting *w)
{
    for (; w->rank < w->s->world; w->rank++)
        if (!vb_sparse_is_sent(&w->s->peers[w->rank]))
            return false;
    return true;
}

static bool probes_came(struct waiting *w)
{
    return w->s->peers[w->rank].probes >= w->n;
}

vb_status vb_sparse_wait_heads(struct vb_sparse *s)
{
    struct waiting w = {.s = s, .straggler = s->rank};
    vb_status st = wait_for(s, heads_came, &w);

    settle(&w, s->rank);
    return st;
}

vb_status vb_sparse_wait_list(struct vb_sparse *s, int rank, const struct sparse_incoming *in)
{
    struct waiting w = {.s = s, .rank = rank, .in = in};
    uint64_t begin_ns = vb_trace_begin();
    vb_status st = wait_for(s, list_came, &w);

    vb_trace_end_with(begin_ns, VB_OP_WIRE, 0, rank, 0, VB_TRACE_SPAN);
    return st;
}

vb_status vb_sparse_wait_sent(struct vb_sparse *s)
{
    struct waiting w = {.s = s};

    return wait_for(s, all_sent, &w);
}

vb_status vb_sparse_wait_probe(struct vb_sparse *s, int rank, uint32_t n)
{
    struct waiting w = {.s = s, .rank = rank, .n = n};

    return wait_for(s, probes_came, &w);
}

/* ---- places in the window -------------------------------------------------------------------- */

size_t vb_sparse_own_head_at(const struct vb_sparse *s)
{
    return s->at.heads + (s->seq % 2) * s->at.slot_bytes;
}

size_t vb_sparse_head_at(const struct vb_sparse *s, int rank)
{
    return s->at.heads + (2 + (s->seq % 2) * (size_t)s->world + (size_t)rank) * s->at.slot_bytes;
}

size_t vb_sparse_sum_at(const struct vb_sparse *s, int owner)
{
    size_t words = 0;
    int o;

    for (o = 0; o < owner; o++)
        words += vb_sparse_sum_room(&s->plan, o);
    return s->at.sums + words * sizeof(uint64_t);
}

size_t vb_sparse_part_at(const struct vb_sparse *s, int rank, int owner)
{
    size_t words = 0;
    int r;

    for (r = 0; r < rank; r++)
        words += vb_sparse_part_room(&s->plan, r, owner);
    return s->at.parts + words * sizeof(uint64_t);
}

/* The first and the last owner get all words up to the ends of the list, without a search. So the
 * last owner also gets invalid indices, and refuses them. */
struct sparse_run vb_sparse_part_of(const struct vb_sparse *s, const uint64_t *list, size_t n,
                                    int owner)
{
    size_t first = 0, end = n;

    if (owner > 0)
        first = vb_sparse_below(list, n, s->plan.splits[owner]);
    if (owner + 1 < s->world)
        end = vb_sparse_below(list, n, s->plan.splits[owner + 1]);
    end = end < first ? first : end; /* the list of a faulty peer may be in any order */
    return (struct sparse_run){list + first, end - first};
}

/* ---- sending --------------------------------------------------------------------------------- */

vb_status vb_sparse_put(struct vb_sparse *s, int rank, size_t src, size_t dst, size_t len_bytes,
                        uint32_t value, struct vb_op *op)
{
    uint32_t note = VB_NOTE(s->channel, value);
    int to = group_rank(s, rank);
    vb_status st = vb_put_wait(s->win, to, NULL, src, dst, len_bytes, note, op, 0);

    if (st != VB_OK) {
        st = vb_group_put_failed(s->group, to, st, s->what);
        (void)vb_err(st, "%s failed while sending to rank %d (%s)", s->what, to, host_of(s, rank));
        return vb_sparse_fail(s, st);
    }
    s->wire_bytes += len_bytes;
    return VB_OK;
}

/* Returns the i-th peer to send to. Not all ranks begin with the same one. */
static int after(const struct vb_sparse *s, int i)
{
    return (s->rank + i) % s->world;
}

/* Puts n words in segments. A rank that reads the words in place gets only the notes. */
static vb_status put_words(struct vb_sparse *s, int rank, enum sparse_kind kind, size_t src,
                           size_t dst, size_t n)
{
    struct sparse_peer *peer = &s->peers[rank];
    struct vb_op *op = kind == SPARSE_PART ? &peer->part_op : &peer->sum_op;
    size_t now, len;
    vb_status st;

    for (;;) {
        now = n < SEGMENT_WORDS ? n : SEGMENT_WORDS;
        len = peer->mapped == NULL ? now * sizeof(uint64_t) : 0;
        n -= now;
        st = vb_sparse_put(s, rank, src, dst, len, note_value(kind, n > 0, now), op);
        if (st != VB_OK || n == 0)
            return st;
        st = vb_op_wait(s->group, op, s->what, group_rank(s, rank));
        if (st != VB_OK)
            return vb_sparse_fail(s,
                                  vb_group_put_failed(s->group, group_rank(s, rank), st, s->what));
        src += len;
        dst += len;
    }
}

static void hold(struct vb_sparse *s, bool on)
{
    group_lock(s->group);
    vb_group_hold(s->group, on);
    group_unlock(s->group);
}

static vb_status put_head(struct vb_sparse *s, int to, size_t len_bytes)
{
    vb_status st = VB_OK;

    if ((double)len_bytes * s->model.put_ns_byte > WAIT_COUNTED_NS) {
        hold(s, true); /* send the note together with the following put, if the transport can */
        st = vb_sparse_put(s, to, 0, 0, 0, note_value(SPARSE_HEAD, true, s->seq),
                           &s->peers[to].begun_op);
        hold(s, false);
    }
    if (st != VB_OK)
        return st;
    return vb_sparse_put(s, to, vb_sparse_own_head_at(s), vb_sparse_head_at(s, s->rank), len_bytes,
                         note_value(SPARSE_HEAD, false, s->seq), &s->peers[to].head_op);
}

vb_status vb_sparse_send_heads(struct vb_sparse *s, size_t len_bytes)
{
    vb_status st = VB_OK;
    int i;

    for (i = 1; i < s->world && st == VB_OK; i++)
        st = put_head(s, after(s, i), len_bytes);
    return st;
}

vb_status vb_sparse_send_parts(struct vb_sparse *s)
{
    size_t n = s->heads[s->rank]->n;
    struct sparse_run part;
    vb_status st = VB_OK;
    int i, to;

    for (i = 1; i < s->world && st == VB_OK; i++) {
        to = after(s, i);
        if (s->peers[to].mapped != NULL)
            continue;
        part = vb_sparse_part_of(s, sparse_list(s), n, to);
        st = put_words(s, to, SPARSE_PART,
                       s->at.list + (size_t)(part.words - sparse_list(s)) * sizeof(uint64_t),
                       vb_sparse_part_at(s, s->rank, to), part.n);
    }
    return st;
}

vb_status vb_sparse_send_sums(struct vb_sparse *s, size_t n)
{
    size_t at = vb_sparse_sum_at(s, s->rank);
    vb_status st = VB_OK;
    int i;

    for (i = 1; i < s->world && st == VB_OK; i++)
        st = put_words(s, after(s, i), SPARSE_SUM, at, at, n);
    return st;
}

vb_status vb_sparse_put_probe(struct vb_sparse *s, int rank, size_t len_bytes)
{
    struct vb_op *op = &s->peers[rank].head_op;
    vb_status st = vb_sparse_put(s, rank, s->at.parts, s->at.sums, len_bytes,
                                 note_value(SPARSE_PROBE, false, 0), op);

    return st == VB_OK ? vb_op_wait(s->group, op, s->what, group_rank(s, rank)) : st;
}
