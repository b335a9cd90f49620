/* SPDX-License-Identifier: MIT
 *
 * The allreduces that do not sum in rank order: ring, and recursive halving and doubling. Each
 * element is summed completely by one rank, and the others copy the sum, so all ranks get the same
 * bits. Vectors are always sent as float32, because partial sums must not be rounded.
 *
 * In each algorithm one lane receives and another one sends. So a rank that waits for a free slot
 * in a peer's ring still empties its own ring. Otherwise all ranks could wait for each other
 * forever.
 */
#include "net/coll/coll_priv.h"

/* Fills in a step that adds a segment from a peer to this rank's data. */
static void add_step(const struct vb_coll *coll, int from, struct step *s)
{
    s->kind = STEP_REDUCE;
    s->parts = &coll->everyone[from];
    s->n_parts = 1;
    s->place = FROM_RING;
    s->local_lo = coll->rank;
    s->local_hi = coll->rank + 1;
}

/* ---- ring ------------------------------------------------------------------------------------ */

/* Every rank sends to the next rank. In phase k a rank sends share (rank - k). In phase 0 the rank
 * sends its own data. Up to phase world - 2 the rank sends a partial sum to which it has added its
 * own data. In phase world - 1 the sum is complete, and from then on the ranks pass on results. The
 * segments of a phase are sent one after another, so that all links are busy.
 *
 *   lane 1  receives from the previous rank, phases 1 to 2 world - 2
 *   lane 2  sends to the next rank, phases 0 to 2 world - 3 */
static int ring_share(const struct vb_coll *coll, uint32_t k)
{
    return (int)(((uint32_t)coll->rank + 2 * (uint32_t)coll->world - k) % (uint32_t)coll->world);
}

static void ring_plan(struct vb_coll *coll, struct request *rq)
{
    uint32_t n = share_segments(coll, rq, coll->world, 0), world = (uint32_t)coll->world, k;
    struct request_peer *left = &rq->peers[(coll->rank + coll->world - 1) % coll->world];
    struct request_peer *right = &rq->peers[(coll->rank + 1) % coll->world];

    rq->n_lanes = 3;
    rq->lanes[1].n = rq->lanes[2].n = (2 * world - 2) * n;
    for (k = 0; k + 1 < world; k++) {
        right->to_send[0] += share_segments(coll, rq, coll->world, ring_share(coll, k));
        left->to_take[0] += share_segments(coll, rq, coll->world, ring_share(coll, k + 1));
    }
}

static void ring_step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                      struct step *s)
{
    uint32_t world = (uint32_t)coll->world, n = rq->lanes[1].n, k, j;
    int left = (coll->rank + coll->world - 1) % coll->world;

    n /= 2 * world - 2;
    j = i % n;
    k = i / n + (lane == 1);
    vb_request_share(rq, coll->world, ring_share(coll, k), &s->at, &s->len_bytes);
    set_segment(coll, s, s->at, s->len_bytes, j);
    if (lane == 1 && k < world) {
        add_step(coll, left, s);
        s->last = k == world - 1;
    } else if (lane == 1) {
        s->result_of = left;
    } else {
        s->kind = k < world - 1 ? STEP_SEND : STEP_PLACE;
        s->peer = (coll->rank + 1) % coll->world;
        s->after_lane = 1;
        s->after = k == 0 ? 0 : (k - 1) * n + j + 1;
    }
}

const struct schedule vb_schedule_ring = {ring_plan, ring_step};

/* ---- halving and doubling -------------------------------------------------------------------- */

/* 2^m ranks take part, the largest power of two that is possible. Each of them has an *id*. If
 * there are more ranks, the lowest odd ones are *folded*: each folded rank sends its whole vector
 * to the even rank before it, and gets the result from that rank in the end.
 *
 * At each level a rank and its partner split the range that both have into two halves. Each of the
 * two keeps one half, sends the other half, and adds the received data to the half that it keeps.
 * After the last level each rank has the sum of one share. Then the levels run backwards: each rank
 * puts the complete range that it has to its partner, so that the range of both doubles.
 *
 *   lane 1  receives: the vector of the folded rank, m halves to add, m halves of results
 *   lane 2  sends: m halves to add, m halves of results, the result for the folded rank */
struct halving {
    int ids, levels, extra;
    int id; /* the id of this rank; -1: this rank is folded */
};

/* The ranges of this rank at one level. */
struct level {
    int partner;
    size_t keep_at, keep_len, give_at, give_len;
    uint32_t n; /* number of segments in the longer half */
};

static struct halving halving_of(const struct vb_coll *coll)
{
    struct halving h = {.ids = 1};

    for (; 2 * h.ids <= coll->world; h.ids *= 2)
        h.levels++;
    h.extra = coll->world - h.ids;
    if (coll->rank >= 2 * h.extra)
        h.id = coll->rank - h.extra;
    else
        h.id = coll->rank % 2 == 0 ? coll->rank / 2 : -1;
    return h;
}

static size_t share_begin(const struct request *rq, int n, int c)
{
    size_t at, len;

    if (c == n)
        return rq->offset + rq->n_bytes;
    vb_request_share(rq, n, c, &at, &len);
    return at;
}

static struct level level_of(const struct vb_coll *coll, const struct request *rq,
                             const struct halving *h, int m)
{
    int half = h->ids >> (m + 1), lo = h->id & ~(2 * half - 1), other = h->id ^ half;
    size_t begin = share_begin(rq, h->ids, lo), mid = share_begin(rq, h->ids, lo + half),
           end = share_begin(rq, h->ids, lo + 2 * half);
    bool low = (h->id & half) == 0;
    struct level l = {.partner = other < h->extra ? 2 * other : other + h->extra};

    l.keep_at = low ? begin : mid;
    l.keep_len = low ? mid - begin : end - mid;
    l.give_at = low ? mid : begin;
    l.give_len = low ? end - mid : mid - begin;
    l.n = segments(coll, l.keep_len > l.give_len ? l.keep_len : l.give_len);
    return l;
}

/* Returns the other rank of the pair if this rank is folded or has a folded rank, otherwise
 * NO_RANK. */
static int folded_with(const struct vb_coll *coll, const struct halving *h)
{
    if (coll->rank >= 2 * h->extra)
        return NO_RANK;
    return coll->rank % 2 == 0 ? coll->rank + 1 : coll->rank - 1;
}

static void halving_plan(struct vb_coll *coll, struct request *rq)
{
    struct halving h = halving_of(coll);
    uint32_t all = segments(coll, rq->n_bytes), n = 0;
    int m, fold = folded_with(coll, &h);
    struct level l;

    rq->n_lanes = 3;
    for (m = 0; m < h.levels && h.id >= 0; m++) {
        l = level_of(coll, rq, &h, m);
        rq->peers[l.partner].to_send[0] = segments(coll, l.give_len);
        rq->peers[l.partner].to_take[0] = segments(coll, l.keep_len);
        n += 2 * l.n;
    }
    rq->lanes[1].n = rq->lanes[2].n = n;
    if (fold == NO_RANK)
        return;
    rq->lanes[1].n += all;
    rq->lanes[2].n += all;
    if (h.id < 0)
        rq->peers[fold].to_send[0] = all;
    else
        rq->peers[fold].to_take[0] = all;
}

/* Returns the level of step *i_p: 0 to 2 * levels - 1, or 2 * levels if all levels are over. Sets
 * *i_p to the number of the segment in that level. Adds the number of steps before that level to
 * *first_p. */
static int find_level(const struct vb_coll *coll, const struct request *rq, const struct halving *h,
                      uint32_t *i_p, uint32_t *first_p, struct level *l)
{
    int k;

    for (k = 0; k < 2 * h->levels; k++) {
        *l = level_of(coll, rq, h, k < h->levels ? k : 2 * h->levels - 1 - k);
        if (*i_p < l->n)
            break;
        *i_p -= l->n;
        *first_p += l->n;
    }
    return k;
}

static void come_step(const struct vb_coll *coll, const struct request *rq, const struct halving *h,
                      uint32_t i, struct step *s)
{
    uint32_t all = segments(coll, rq->n_bytes), first = 0;
    int k, fold = folded_with(coll, h);
    struct level l = {0};

    if (fold != NO_RANK && i < all) {
        set_segment(coll, s, rq->offset, rq->n_bytes, i);
        add_step(coll, fold, s);
        return;
    }
    i -= fold != NO_RANK ? all : 0;
    k = find_level(coll, rq, h, &i, &first, &l);
    if (k < h->levels) {
        set_segment(coll, s, l.keep_at, l.keep_len, i);
        add_step(coll, l.partner, s);
        s->last = k == h->levels - 1;
    } else {
        set_segment(coll, s, l.give_at, l.give_len, i);
        s->result_of = l.partner;
    }
}

static void go_step(const struct vb_coll *coll, const struct request *rq, const struct halving *h,
                    uint32_t i, struct step *s)
{
    int k, fold = folded_with(coll, h);
    uint32_t first = fold != NO_RANK ? segments(coll, rq->n_bytes) : 0;
    struct level l = {0};

    k = find_level(coll, rq, h, &i, &first, &l);
    s->after_lane = 1;
    s->after = first; /* lane 1 has done the vector of the folded rank and all levels before */
    s->kind = k < h->levels ? STEP_SEND : STEP_PLACE;
    if (k == 2 * h->levels) {
        set_segment(coll, s, rq->offset, rq->n_bytes, i);
        s->peer = fold;
        return;
    }
    s->peer = l.partner;
    if (k < h->levels)
        set_segment(coll, s, l.give_at, l.give_len, i);
    else
        set_segment(coll, s, l.keep_at, l.keep_len, i);
}

static void halving_step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                         struct step *s)
{
    struct halving h = halving_of(coll);

    if (h.id >= 0 && lane == 1) {
        come_step(coll, rq, &h, i, s);
    } else if (h.id >= 0) {
        go_step(coll, rq, &h, i, s);
    } else { /* a folded rank: lane 2 sends its vector, lane 1 waits for the result */
        set_segment(coll, s, rq->offset, rq->n_bytes, i);
        s->kind = lane == 2 ? STEP_SEND : STEP_WAIT;
        s->peer = coll->rank - 1;
        s->result_of = lane == 2 ? NO_RANK : coll->rank - 1;
    }
}

const struct schedule vb_schedule_halving = {halving_plan, halving_step};
