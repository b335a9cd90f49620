/* SPDX-License-Identifier: MIT
 *
 * The two-level allreduce. It does not sum in rank order. The lowest rank of each host is the
 * leader of the host. A leader sums the data of its host straight out of the windows. The leaders
 * exchange shares among themselves as in VB_ALGO_EXCHANGE, but with one share for each host. Each
 * leader puts the complete sums to the other ranks of its host.
 *
 * With H hosts, a leader has these lanes besides lane 0:
 *   lanes 1 .. H - 1       the share of another leader: for each segment, a sum over this host and
 *                          a put to that leader
 *   lane H                 the share of this leader: for each segment, a sum over this host and the
 *                          segments of the other leaders, then puts to the leaders and this host
 *   lanes H + 1 .. 2H - 1  results of another leader, which are put to the ranks of this host
 * On a rank that is not a leader, lane 1 waits for the results of the leader.
 */
#include "net/coll/coll_priv.h"

static int host_after(const struct vb_coll *coll, int i)
{
    return (coll->hosts.mine + i) % coll->hosts.n;
}

/* Returns the number of other ranks on this leader's host. */
static uint32_t n_mine(const struct vb_coll *coll)
{
    return (uint32_t)(coll->hosts.hi - coll->hosts.lo - 1);
}

static void plan(struct vb_coll *coll, struct request *rq)
{
    int i, h = coll->hosts.n;
    uint32_t n, mine = share_segments(coll, rq, coll->hosts.n, coll->hosts.mine);
    struct request_peer *peer;

    rq->n_lanes = 2;
    if (coll->rank != coll->hosts.lo) {
        for (i = 0; i < h; i++)
            rq->lanes[1].n += share_segments(coll, rq, coll->hosts.n, i);
        return;
    }
    rq->n_lanes = 2 * h;
    rq->lanes[h].n = mine * ((uint32_t)h + n_mine(coll));
    for (i = 1; i < h; i++) {
        n = share_segments(coll, rq, coll->hosts.n, host_after(coll, i));
        rq->lanes[i].n = 2 * n;
        rq->lanes[h + i].n = n * (1 + n_mine(coll));
        peer = &rq->peers[coll->hosts.leaders[host_after(coll, i)]];
        peer->to_send[0] = n;
        peer->to_take[0] = mine;
    }
}

static void leader_step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                        struct step *s)
{
    int h = coll->hosts.n, host = host_after(coll, lane);
    uint32_t each = lane < h ? 2 : lane == h ? (uint32_t)h + n_mine(coll) : 1 + n_mine(coll);
    int k = (int)(i % each);

    vb_request_share(rq, h, host, &s->at, &s->len_bytes);
    set_segment(coll, s, s->at, s->len_bytes, i / each);
    if (k == 0 && lane <= h) {
        s->kind = STEP_REDUCE;
        s->place = FROM_RING;
        s->parts = coll->hosts.leaders;
        s->n_parts = lane == h ? h : 0; /* the own share: what the other leaders have sent, too */
        s->local_lo = s->started_lo = coll->hosts.lo;
        s->local_hi = s->started_hi = coll->hosts.hi;
        s->last = lane == h;
    } else if (k == 0) {
        s->result_of = coll->hosts.leaders[host];
    } else if (lane < h) {
        s->kind = STEP_SEND;
        s->peer = coll->hosts.leaders[host];
    } else {
        s->kind = STEP_PLACE;
        s->peer = coll->rank + k;
        if (lane == h) /* first to the other leaders, then to this host */
            s->peer = k < h ? coll->hosts.leaders[host_after(coll, k)] : coll->rank + k - h + 1;
    }
}

/* Fills in a step. On a rank that is not a leader, the results may come in any order, because the
 * steps only count them. */
static void step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                 struct step *s)
{
    if (coll->rank == coll->hosts.lo) {
        leader_step(coll, rq, lane, i, s);
    } else {
        s->result_of = coll->hosts.lo;
        s->len_bytes = 1;
    }
}

const struct schedule vb_schedule_two_level = {plan, step};
