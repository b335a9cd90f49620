/* SPDX-License-Identifier: MIT
 *
 * Handles workers that join and go while a server is at work. The server logs both as faults, and
 * keeps them for the result.
 */
#include "engine/ps/ps.h"

void vb_ps_log_fault(struct ps_server *s, int rank, const char *what, const char *why)
{
    struct vb_fault fault = {.at_s = (double)(vb_clock_ns() - s->stats.begin_ns) / 1e9,
                             .step = (int64_t)vb_ps_version_of(s),
                             .rank = rank};

    snprintf(fault.what, sizeof(fault.what), "%s", what);
    snprintf(fault.why, sizeof(fault.why), "%s", why);
    if (!s->standby || s->partner.gone) { /* otherwise its server logs the fault */
        if (s->job->on_fault != NULL)
            s->job->on_fault(s->job->on_fault_arg, &fault);
        VB_LOG_WARN("step %lld: rank %d %s%s%s", (long long)fault.step, fault.rank, what,
                    why[0] != '\0' ? ": " : "", why);
    }
    if (s->faults.n < PS_FAULTS_MAX)
        s->faults.list[s->faults.n++] = fault;
}

/* Logs a fault of a worker. Only server 0 does so, for all servers. */
static void log_worker_fault(struct ps_server *s, int worker, const char *what, const char *why)
{
    if (s->k == 0)
        vb_ps_log_fault(s, vb_ps_worker_rank(s->job, worker), what, why);
}

const char *vb_ps_fault_kind(const struct ps_server *s, int rank)
{
    enum vb_end end = vb_group_end(s->group, rank);

    return end == VB_END_LEFT ? "left" : end == VB_END_SILENT ? "stopped" : "died";
}

int vb_ps_first_worker(const struct ps_server *s)
{
    int w;

    for (w = 0; w < vb_ps_clients(s->job); w++)
        if (ps_is_working(&s->clients[w]))
            return w;
    return -1;
}

void vb_ps_server_on_gone(void *arg, int rank)
{
    struct ps_server *s = arg;
    int worker = vb_ps_worker_at(s->job, rank), k = vb_ps_server_at(s->job, rank);
    char text[64];

    if (worker >= 0)
        vb_ps_server_queue(s, worker, PS_VALUE(PS_GONE, 0));
    else if (rank == s->partner.rank)
        vb_ps_server_queue(s, PS_PARTNER, PS_VALUE(PS_GONE, 0));
    else if (s->k == 0 && !s->standby && !s->final && s->job->replicas > 1) {
        /* The remaining server of that shard logs whether it takes over or goes on alone. */
        snprintf(text, sizeof(text), "%s %d is gone",
                 rank == vb_ps_server_rank(s->job, k) ? "server" : "the standby of server", k);
        vb_ps_log_fault(s, rank, vb_ps_fault_kind(s, rank), text);
    }
}

/* A put to a worker fails if the worker is gone (then PS_GONE is queued), if the worker accepts no
 * puts, or if this server itself cannot go on. */
vb_status vb_ps_member_sent(struct ps_server *s, int worker, vb_status st)
{
    int rank = vb_ps_worker_rank(s->job, worker);
    vb_status own;

    if (st == VB_ERR_USAGE)
        return vb_ps_expel_invalid(s, worker, "its window is too small for a reply");
    if (st != VB_ERR_PEER && st != VB_ERR_TIMEOUT)
        return st;
    own = vb_progress(s->group);
    if (own != VB_OK || vb_group_gone(s->group, rank))
        return own;
    if (s->job->join_slots == 0 && st == VB_ERR_TIMEOUT)
        return st;
    return vb_group_retire(s->group, rank, "the rank accepts no puts");
}

vb_status vb_ps_member_gone(struct ps_server *s, int worker)
{
    int rank = vb_ps_worker_rank(s->job, worker);

    s->clients[worker].bye = true;
    if (s->clients[worker].member && !s->final)
        log_worker_fault(s, worker,
                         s->clients[worker].removed ? "removed" : vb_ps_fault_kind(s, rank),
                         vb_group_gone_why(s->group, rank));
    return vb_ps_server_retire(s, worker);
}

vb_status vb_ps_member_hello(struct ps_server *s, int worker, uint32_t how)
{
    struct ps_client *client = &s->clients[worker];
    char where[128];
    vb_status st;

    if (client->member)
        return VB_OK; /* the worker has sent PS_HELLO a second time, to a standby */
    if (s->done || s->final || (s->k == 0 && vb_ps_no_steps_left(s)))
        return vb_ps_send_note(s, worker, PS_JOB_DONE, 0);
    snprintf(where, sizeof(where), "from %s",
             vb_group_host(s->group, vb_ps_worker_rank(s->job, worker)));
    log_worker_fault(s, worker, how & PS_REJOIN ? "rejoined" : "joined", where);
    client->mapped = (how & PS_MAPS) != 0;
    st = vb_ps_send_note(s, worker, PS_WELCOME, 0);
    return st == VB_OK ? vb_ps_server_admit(s, worker) : st;
}

vb_status vb_ps_send_share(struct ps_server *s, int worker)
{
    const struct ps_client *client = &s->clients[worker];
    vb_status st = vb_ps_send_note(s, worker, PS_SHARE_COUNT, (uint32_t)client->round.shares);

    return st == VB_OK ? vb_ps_send_note(s, worker, PS_SHARE, (uint32_t)client->round.share) : st;
}

/* With a bound of 0 the data is divided among the workers that take part. As long as these are the
 * workers that the job has started with, the server sends no shares, because each worker knows its
 * share. */
vb_status vb_ps_member_shares(struct ps_server *s)
{
    int w, n = 0, i = 0;
    vb_status st = VB_OK;

    if (s->k != 0 || s->job->bound != 0)
        return VB_OK;
    for (w = 0; w < vb_ps_clients(s->job); w++)
        n += s->clients[w].member;
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++) {
        struct ps_client *client = &s->clients[w];
        bool changed = client->round.share != i || client->round.shares != n;

        if (!client->member)
            continue;
        client->round.share = i++;
        client->round.shares = n;
        if (changed)
            st = vb_ps_send_share(s, w);
    }
    return st;
}
