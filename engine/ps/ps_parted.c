/* SPDX-License-Identifier: MIT
 *
 * Two servers of a shard that cannot reach each other must not both go on. So a server that has
 * lost its partner counts the members. docs/async.md explains the rule.
 */
#include "engine/ps/ps.h"

struct count {
    int reached, lost; /* number of members that can be reached, and that cannot */
    int quiet;         /* number of members that are not lost, but have not answered */
    int lowest;        /* the lowest of all three; -1: none */
    bool has_lowest;   /* the lowest one can be reached */
};

/* A rank that is dead or has left does not count. A silent rank of this host was stopped: no
 * network lies between it and this rank. All were asked when the partner was gone. */
static void count_rank(const struct ps_server *s, int rank, struct count *count)
{
    enum vb_end end = vb_group_end(s->group, rank);
    bool self = rank == vb_group_rank(s->group), member = self || vb_group_member(s->group, rank);
    bool reached = self || (member && vb_group_heard_since(s->group, rank, s->partner.gone_ns));
    bool lost =
        end == VB_END_DROPPED_US || (end == VB_END_SILENT && !vb_group_same_host(s->group, rank));

    if (!member && !lost)
        return;
    count->reached += reached;
    count->lost += !member;
    count->quiet += member && !reached;
    if (count->lowest >= 0 && count->lowest < rank)
        return;
    count->lowest = rank;
    count->has_lowest = reached;
}

/* Both servers of a shard have processed the same notes, so they agree on the workers that take
 * part. */
static struct count count_members(const struct ps_server *s)
{
    int i, first = vb_ps_server_rank(s->job, 0);
    struct count count = {.lowest = -1};

    for (i = 0; i < vb_ps_clients(s->job); i++)
        if (s->clients[i].member && !s->clients[i].bye)
            count_rank(s, vb_ps_worker_rank(s->job, i), &count);
    for (i = first; i < first + vb_ps_server_ranks(s->job); i++)
        count_rank(s, i, &count);
    return count;
}

static vb_status stop(struct ps_server *s, const char *why)
{
    vb_group_abort(s->group, why); /* the workers that still reach this server must not wait */
    return vb_err(VB_ERR_PEER, "%s", why);
}

/* A partner of this host that has dropped this rank does not count it, nor other silent ranks of
 * this host. So the partner goes on. */
static bool partner_goes_on(const struct ps_server *s)
{
    return vb_group_end(s->group, s->partner.rank) == VB_END_DROPPED_US &&
           vb_group_same_host(s->group, s->partner.rank);
}

static vb_status stop_as_dropped(struct ps_server *s)
{
    char why[256];

    snprintf(why, sizeof(why),
             "%s %d was stopped for too long: the other server of its shard "
             "(rank %d, %.40s) goes on without it",
             s->standby ? "the standby of server" : "server", s->k, s->partner.rank,
             vb_group_host(s->group, s->partner.rank));
    return stop(s, why);
}

static vb_status stop_as_parted(struct ps_server *s, const struct count *count)
{
    int rank = s->partner.rank;
    char why[256];

    snprintf(why, sizeof(why),
             "%s %d cannot reach %d of %d members, among them rank %d (%.40s), the other server of "
             "its shard; this part of the job stops, because the others may go on",
             s->standby ? "the standby of server" : "server", s->k, count->lost,
             count->lost + count->reached, rank, vb_group_host(s->group, rank));
    return stop(s, why);
}

vb_status vb_ps_go_on_alone(struct ps_server *s)
{
    struct count count = count_members(s);

    if (count.lost == 0 || s->final) /* final parameters are the same at both servers */
        return VB_OK;
    if (partner_goes_on(s))
        return stop_as_dropped(s);
    if (vb_clock_ns() < s->partner.gone_ns + (uint64_t)s->job->settle_ms * 1000000u)
        return VB_AGAIN;
    count.lost += count.quiet; /* they may be behind the cut as well, and not yet known as lost */
    if (count.reached > count.lost || (count.reached == count.lost && count.has_lowest))
        return VB_OK;
    return stop_as_parted(s, &count);
}
