/* SPDX-License-Identifier: MIT
 *
 * The algorithms that use puts, over any transport, and sum in rank order: gather, exchange, owner
 * and chain. Also the algorithms without a sum: allgather and broadcast.
 *
 * A put straight into a peer's data must not arrive before the peer has started the request,
 * because until then the peer's caller may use this memory. If a result depends on the peer's
 * contribution, the peer has started. In all other cases the step waits until the peer has started.
 */
#include "net/coll/coll_priv.h"

/* up to this length the root puts a broadcast to all ranks itself */
#define DIRECT_BYTES ((size_t)64 * 1024)

/* Fills in a step that sums the contributions of all ranks. */
static void sum_step(const struct vb_coll *coll, enum source_place place, struct step *s)
{
    s->kind = STEP_REDUCE;
    s->started_hi = coll->world;
    s->parts = coll->everyone;
    s->n_parts = coll->world;
    s->place = place;
    s->last = true;
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Every rank sends its vector with START to all others, and sums the vectors in its slots. A longer
 * vector is not copied to the own slot, because a copy would cost more than another put. Instead
 * the head is put first, then the vector straight from the data. The sum then waits until the puts
 * no longer read the data. */
static void gather_plan(struct vb_coll *coll, struct request *rq)
{
    rq->eager = true;
    rq->direct = rq->n_bytes >= STRAIGHT_BYTES && !is_narrow(coll);
    rq->n_lanes = 2;
    rq->lanes[1].n = 1;
}

static void gather_step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                        struct step *s)
{
    (void)lane;
    (void)i;
    sum_step(coll, FROM_SLOT, s);
    s->at = rq->offset;
    s->len_bytes = rq->n_bytes;
    s->all_left = rq->direct;
}

const struct schedule vb_schedule_gather = {gather_plan, gather_step};

/* ---- exchange -------------------------------------------------------------------------------- */

/* Rank c collects share c from all ranks, one segment after another. Rank c sums a segment when the
 * segment has come from all ranks, and puts the result straight to its place in the data of the
 * others.
 *
 *   lanes 1 .. world - 1           this rank's part of a peer's share is put to that peer's ring
 *   lane world                     this rank's share: for each segment a sum, then puts to all
 *   lanes world + 1 .. 2 world - 1 wait for the results of a peer; in bfloat16 from a ring
 *
 * A reduce-scatter is the same, but the results are not sent. */
static uint32_t own_round(const struct vb_coll *coll, const struct request *rq)
{
    return rq->kind == REQUEST_ALLREDUCE ? (uint32_t)coll->world : 1;
}

static void exchange_plan(struct vb_coll *coll, struct request *rq)
{
    uint32_t mine = share_segments(coll, rq, coll->world, coll->rank), theirs;
    bool results = rq->kind == REQUEST_ALLREDUCE, by_ring = results && is_narrow(coll);
    int i, p;

    rq->n_lanes = 2 * coll->world;
    rq->lanes[coll->world].n = mine * own_round(coll, rq);
    for (i = 1; i < coll->world; i++) {
        p = peer_after(coll, i);
        theirs = share_segments(coll, rq, coll->world, p);
        rq->lanes[i].n = theirs;
        rq->lanes[coll->world + i].n = results ? theirs : 0;
        rq->peers[p].to_send[0] = theirs;
        rq->peers[p].to_take[0] = mine;
        rq->peers[p].to_send[1] = by_ring ? mine : 0;
        rq->peers[p].to_take[1] = by_ring ? theirs : 0;
    }
}

/* Fills in step i of the lane of this rank's own share. */
static void own_share_step(const struct vb_coll *coll, const struct request *rq, uint32_t i,
                           struct step *s)
{
    uint32_t each = own_round(coll, rq);

    set_segment(coll, s, s->at, s->len_bytes, i / each);
    if (i % each == 0) {
        sum_step(coll, FROM_RING, s);
        return;
    }
    s->kind = is_narrow(coll) ? STEP_SEND : STEP_PLACE;
    s->ring = 1;
    s->peer = peer_after(coll, (int)(i % each));
}

static void exchange_step(const struct vb_coll *coll, const struct request *rq, int lane,
                          uint32_t i, struct step *s)
{
    int owner = peer_after(coll, lane);

    vb_request_share(rq, coll->world, owner, &s->at, &s->len_bytes);
    if (lane == coll->world) {
        own_share_step(coll, rq, i, s);
        return;
    }
    set_segment(coll, s, s->at, s->len_bytes, i);
    s->peer = owner;
    if (lane < coll->world) {
        s->kind = STEP_SEND;
    } else if (is_narrow(coll)) {
        s->kind = STEP_EXPAND;
    } else {
        s->kind = STEP_WAIT;
        s->result_of = owner;
    }
}

const struct schedule vb_schedule_exchange = {exchange_plan, exchange_step};

/* ---- owner ----------------------------------------------------------------------------------- */

/* One rank, the owner, sums the whole vector. The owner gets the vectors with START, all other
 * ranks get START without a vector. The owner puts the sum straight to its place in the data of the
 * others.
 *
 *   lane 1  on the owner the sum, then a put to each peer; on other ranks a wait for the result */
static void owner_plan(struct vb_coll *coll, struct request *rq)
{
    rq->owner = (int)(rq->seq % (uint32_t)coll->world);
    rq->eager = true;
    rq->direct = rq->n_bytes >= STRAIGHT_BYTES;
    rq->n_lanes = 2;
    rq->lanes[1].n = rq->owner == coll->rank ? (uint32_t)coll->world : 1;
}

static void owner_step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                       struct step *s)
{
    (void)lane;
    s->at = rq->offset;
    s->len_bytes = rq->n_bytes;
    if (rq->owner != coll->rank) {
        s->result_of = rq->owner;
    } else if (i == 0) {
        sum_step(coll, FROM_SLOT, s);
    } else {
        s->kind = STEP_PLACE;
        s->peer = peer_after(coll, (int)i);
    }
}

const struct schedule vb_schedule_owner = {owner_plan, owner_step};

/* ---- chain ----------------------------------------------------------------------------------- */

/* The lowest rank of each host is the leader of the host. The ranks of a host have consecutive
 * numbers, so the order of hosts is the order of ranks. The partial sum of a segment goes up from
 * leader to leader. Each leader adds the data of the ranks on its host, straight out of their
 * windows. From the last host the complete sum goes down again from leader to leader, and each
 * leader puts it to the ranks of its host. So every byte crosses each link between hosts once in
 * each direction.
 *
 *   lane 1  on a leader the way up, and on the last host also the puts of the sum; on other ranks
 *           a wait for the results of the leader
 *   lane 2  on a leader, except on the last host: the way down */
static bool is_leader(const struct vb_coll *coll)
{
    return coll->rank == coll->hosts.lo;
}

static bool is_last_host(const struct vb_coll *coll)
{
    return coll->hosts.mine == coll->hosts.n - 1;
}

/* Returns the number of ranks that this leader puts a result to: the leader of the previous host,
 * then the other ranks of its own host. */
static uint32_t n_below(const struct vb_coll *coll)
{
    return (uint32_t)(coll->hosts.hi - coll->hosts.lo - 1) + (coll->hosts.mine > 0);
}

static int below(const struct vb_coll *coll, int k)
{
    if (coll->hosts.mine > 0)
        return k == 0 ? coll->hosts.leaders[coll->hosts.mine - 1] : coll->rank + k;
    return coll->rank + 1 + k;
}

static void chain_plan(struct vb_coll *coll, struct request *rq)
{
    uint32_t n = segments(coll, rq->n_bytes);

    rq->n_lanes = 2;
    rq->lanes[1].n = n;
    if (!is_leader(coll))
        return;
    rq->lanes[1].n = n * (is_last_host(coll) ? 1 + n_below(coll) : 2);
    if (coll->hosts.mine > 0)
        rq->peers[coll->hosts.leaders[coll->hosts.mine - 1]].to_take[0] = n;
    if (is_last_host(coll))
        return;
    rq->peers[coll->hosts.leaders[coll->hosts.mine + 1]].to_send[0] = n;
    rq->n_lanes = 3;
    rq->lanes[2].n = n * (1 + n_below(coll));
}

static void chain_step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                       struct step *s)
{
    uint32_t round = lane == 2 || is_last_host(coll) ? 1 + n_below(coll) : 2;

    if (!is_leader(coll))
        round = 1;
    set_segment(coll, s, rq->offset, rq->n_bytes, i / round);
    if (!is_leader(coll)) {
        s->result_of = coll->hosts.lo;
    } else if (i % round == 0 && lane == 2) {
        s->result_of = coll->hosts.leaders[coll->hosts.mine + 1];
    } else if (i % round == 0) {
        s->kind = STEP_REDUCE;
        s->place = FROM_RING;
        s->parts = coll->hosts.mine > 0 ? &coll->hosts.leaders[coll->hosts.mine - 1] : NULL;
        s->n_parts = coll->hosts.mine > 0;
        s->local_lo = s->started_lo = coll->hosts.lo;
        s->local_hi = s->started_hi = coll->hosts.hi;
        s->last = is_last_host(coll);
    } else if (lane == 1 && !is_last_host(coll)) {
        s->kind = STEP_SEND;
        s->peer = coll->hosts.leaders[coll->hosts.mine + 1];
    } else {
        s->kind = STEP_PLACE;
        s->peer = below(coll, (int)(i % round) - 1);
    }
}

const struct schedule vb_schedule_chain = {chain_plan, chain_step};

/* ---- allgather ------------------------------------------------------------------------------- */

/* Each rank puts its bytes to all others, one segment after another.
 *
 *   lanes 1 .. world - 1            put to a peer
 *   lanes world .. 2 world - 2      wait for the bytes of a peer */
static void allgather_plan(struct vb_coll *coll, struct request *rq)
{
    int i;

    rq->n_lanes = 2 * coll->world - 1;
    for (i = 1; i < coll->world; i++) {
        rq->lanes[i].n = segments(coll, rq->lens[coll->rank]);
        rq->lanes[coll->world - 1 + i].n = segments(coll, rq->lens[peer_after(coll, i)]);
    }
}

static void allgather_step(const struct vb_coll *coll, const struct request *rq, int lane,
                           uint32_t i, struct step *s)
{
    int owner = lane < coll->world ? coll->rank : peer_after(coll, lane - coll->world + 1);

    set_segment(coll, s, rq->offsets[owner], rq->lens[owner], i);
    if (lane < coll->world) {
        s->kind = STEP_PLACE;
        s->peer = s->started_lo = peer_after(coll, lane);
        s->started_hi = s->started_lo + 1;
    } else {
        s->result_of = owner;
    }
}

const struct schedule vb_schedule_allgather = {allgather_plan, allgather_step};

/* ---- broadcast ------------------------------------------------------------------------------- */

/* In a small broadcast the root puts the whole vector to all ranks. In a large one the root puts a
 * different piece to each rank, and the ranks pass their pieces on to each other. The number of a
 * rank's piece is the rank's distance from the root, which starts at 1.
 *
 *   lanes 1 .. world - 1        on the root, puts to a peer; on other ranks, the own piece is put
 *                               to a peer, each segment as soon as it has come
 *   lanes world .. 2 world - 2  wait for the own piece from the root and for the other pieces */
static bool goes_direct(const struct vb_coll *coll, const struct request *rq)
{
    return coll->world == 2 || rq->n_bytes <= DIRECT_BYTES;
}

static void piece(const struct vb_coll *coll, const struct request *rq, int rank, size_t *at_p,
                  size_t *len_p)
{
    int turn = (rank - rq->root + coll->world) % coll->world;
    size_t end = rq->offset + rq->n_bytes;

    *at_p = rq->offset;
    *len_p = rq->n_bytes;
    if (goes_direct(coll, rq))
        return;
    vb_request_share(rq, coll->world - 1, turn - 1, at_p, len_p);
    /* the last piece has the bytes behind the last whole element */
    if (*at_p + *len_p > end || turn == coll->world - 1)
        *len_p = end - *at_p;
}

static void broadcast_plan(struct vb_coll *coll, struct request *rq)
{
    bool direct = goes_direct(coll, rq), root = rq->root == coll->rank;
    size_t at, len;
    int i, p;

    rq->n_lanes = 2 * coll->world - 1;
    for (i = 1; i < coll->world; i++) {
        p = peer_after(coll, i);
        piece(coll, rq, root ? p : coll->rank, &at, &len);
        rq->lanes[i].n = root ? segments(coll, len) : 0;
        if (!root && !direct && p != rq->root)
            rq->lanes[i].n = segments(coll, len);
        piece(coll, rq, p == rq->root ? coll->rank : p, &at, &len);
        rq->lanes[coll->world - 1 + i].n =
            root || (direct && p != rq->root) ? 0 : segments(coll, len);
    }
}

static void broadcast_step(const struct vb_coll *coll, const struct request *rq, int lane,
                           uint32_t i, struct step *s)
{
    bool root = rq->root == coll->rank;
    size_t at, len;
    int p;

    if (lane >= coll->world) {
        p = peer_after(coll, lane - coll->world + 1);
        piece(coll, rq, p == rq->root ? coll->rank : p, &at, &len);
        set_segment(coll, s, at, len, i);
        s->result_of = p;
        return;
    }
    p = peer_after(coll, lane);
    piece(coll, rq, root ? p : coll->rank, &at, &len);
    set_segment(coll, s, at, len, i);
    s->kind = STEP_PLACE;
    s->peer = s->started_lo = p;
    s->started_hi = p + 1;
    if (!root) { /* wait for the lane that receives the root's segments */
        s->after_lane = coll->world - 1 + (rq->root - coll->rank + coll->world) % coll->world;
        s->after = i + 1;
    }
}

const struct schedule vb_schedule_broadcast = {broadcast_plan, broadcast_step};
