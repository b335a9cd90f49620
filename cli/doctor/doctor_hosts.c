/* SPDX-License-Identifier: MIT
 *
 * doctor between hosts: one rank per host reports the checks of its host. Then every pair of hosts
 * is tested over each transport. If a host has several ranks, the lowest rank represents it. If all
 * ranks are on one host, every pair of ranks is tested.
 */
#include "cli/doctor/doctor_exam.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 0.2 /* duration of each measurement of a pair */

/* A check as ranks exchange it: a name is sent as text. */
struct sent_check {
    struct vb_check check;
    char name[24];
};

static vb_status examine_own(struct doctor_host *own, struct vb_kind *kind)
{
    struct vb_hello hello;
    struct vb_facts facts;
    vb_status st = vb_hello_own(&hello);
    int i;

    if (st == VB_OK)
        st = vb_facts_gather("", &facts);
    if (st != VB_OK)
        return st;
    facts.several_hosts = true;
    snprintf(kind->program, sizeof(kind->program), "%s", hello.sha256);
    snprintf(kind->cpu, sizeof(kind->cpu), "%s", facts.cpu);
    for (i = 0; i < facts.n_rdma; i++)
        own->rdma = own->rdma || vb_net_rdma_usable(&facts.rdma[i]);
    own->n = vb_doctor_judge(&facts, own->checks);
    vb_facts_fini(&facts);
    return VB_OK;
}

/* ---- all hosts ------------------------------------------------------------------------------- */

/* Returns true if no lower rank is on the same host. */
static bool is_first(const struct vb_group *group, int rank)
{
    int i;

    for (i = 0; i < rank; i++)
        if (strcmp(vb_group_host(group, i), vb_group_host(group, rank)) == 0)
            return false;
    return true;
}

/* Allocates a zeroed array with one element per rank. */
static void *calloc_ranks(const struct vb_group *group, size_t size)
{
    return calloc((size_t)(unsigned)vb_group_world(group), size);
}

static vb_status choose_ranks(struct doctor_exam *e, const struct vb_group *group)
{
    int world = vb_group_world(group), i;

    e->hosts = calloc_ranks(group, sizeof(*e->hosts));
    e->ranks = calloc_ranks(group, sizeof(*e->ranks));
    if (e->hosts == NULL || e->ranks == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < world; i++)
        if (is_first(group, i))
            e->hosts[e->n_hosts++].rank = i;
    for (i = 0; i < world; i++)
        if (e->n_hosts == 1 || is_first(group, i))
            e->ranks[e->n_ranks++] = i;
    e->pairs = calloc((size_t)world * (size_t)world, sizeof(*e->pairs));
    return e->pairs != NULL ? VB_OK : vb_err_sys("calloc");
}

/* Gathers the checks one at a time, because a record of vb_group_gather() holds one check. */
static vb_status gather_checks(struct doctor_exam *e, struct vb_group *group)
{
    struct sent_check own, *all = calloc_ranks(group, sizeof(*all));
    vb_status st = VB_OK;
    int i, k;

    if (all == NULL)
        return vb_err_sys("calloc");
    for (k = 0; k < VB_CHECKS_MAX && st == VB_OK; k++) {
        memset(&own, 0, sizeof(own));
        own.check = e->own.checks[k];
        snprintf(own.name, sizeof(own.name), "%s", k < e->own.n ? own.check.name : "");
        st = vb_group_gather(group, &own, sizeof(own), all);
        for (i = 0; i < e->n_hosts && st == VB_OK; i++) {
            struct doctor_host *host = &e->hosts[i];

            host->checks[k] = all[host->rank].check;
            memcpy(host->names[k], all[host->rank].name, sizeof(host->names[k]));
            host->checks[k].name = host->names[k];
        }
    }
    free(all);
    return st;
}

static vb_status gather_hosts(struct doctor_exam *e, struct vb_group *group)
{
    int own[2] = {e->own.n, e->own.rdma}, i;
    int(*all)[2] = calloc_ranks(group, sizeof(*all));
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(group, own, sizeof(own), all);
    for (i = 0; i < e->n_hosts && st == VB_OK; i++) {
        int rank = e->hosts[i].rank;

        snprintf(e->hosts[i].name, sizeof(e->hosts[i].name), "%.63s", vb_group_host(group, rank));
        e->hosts[i].n = all[rank][0] >= 0 && all[rank][0] <= VB_CHECKS_MAX ? all[rank][0] : 0;
        e->hosts[i].rdma = all[rank][1] != 0;
    }
    free(all);
    return st == VB_OK ? gather_checks(e, group) : st;
}

/* The clocks are read just after an exchange, so at almost the same moment. */
static vb_status gather_kinds(struct doctor_exam *e, struct vb_group *group)
{
    struct vb_kind *all = calloc_ranks(group, sizeof(*all));
    struct timespec now;
    vb_status st;
    int i;

    e->kinds = calloc_ranks(group, sizeof(*e->kinds));
    if (all == NULL || e->kinds == NULL) {
        free(all);
        return vb_err_sys("calloc");
    }
    st = vb_group_gather(group, &e->kind, sizeof(e->kind), all);
    clock_gettime(CLOCK_REALTIME, &now);
    e->kind.clock_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (st == VB_OK)
        st = vb_group_gather(group, &e->kind, sizeof(e->kind), all);
    for (i = 0; i < e->n_hosts && st == VB_OK; i++) {
        struct vb_kind *kind = &e->kinds[i];

        *kind = all[e->hosts[i].rank];
        kind->program[sizeof(kind->program) - 1] = kind->cpu[sizeof(kind->cpu) - 1] = '\0';
        snprintf(kind->host, sizeof(kind->host), "%s", e->hosts[i].name);
    }
    free(all);
    return st;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Opens a group over one transport and measures all pairs. The first group also gathers the checks
 * of all hosts. */
static vb_status try_transport(struct doctor_exam *e, const struct vb_group_opts *opts,
                               int transport)
{
    struct vb_group_opts o = *opts;
    struct vb_group *group;
    vb_status st;

    o.transport = (enum vb_transport_choice)transport;
    o.announce = NULL;      /* the table of pairs names the transports */
    if (opts->root_fd >= 0) /* the group closes its copy; the next group needs a socket, too */
        o.root_fd = dup(opts->root_fd);
    st = vb_group_open(&o, &group);
    if (st != VB_OK)
        return st;
    if (e->n_hosts == 0) {
        st = choose_ranks(e, group);
        if (st == VB_OK)
            st = gather_hosts(e, group);
        if (st == VB_OK)
            st = gather_kinds(e, group);
    }
    if (st == VB_OK)
        st = vb_bench_pairs(group, e->ranks, e->n_ranks, SECONDS, e->ops, e->pairs + e->n_pairs);
    vb_group_close(group);
    if (st == VB_OK)
        e->n_pairs += e->n_ranks * (e->n_ranks - 1) / 2;
    return st;
}

/* Returns a host that cannot use RDMA, or NULL if all hosts can. */
static const struct doctor_host *without_rdma(const struct doctor_exam *e)
{
    int i;

    for (i = 0; i < e->n_hosts; i++)
        if (!e->hosts[i].rdma)
            return &e->hosts[i];
    return NULL;
}

/* Tests TCP first, because TCP always works; then RDMA, if every host has it. If the test of RDMA
 * fails, the examination goes on: the failure becomes a check, and the ranks have logged the
 * reason. */
static vb_status examine(struct doctor_exam *e, const struct vb_group_opts *opts)
{
    vb_status st = examine_own(&e->own, &e->kind);

    if (st != VB_OK)
        return st;
    if (opts->transport != VB_TRANSPORT_AUTO)
        return try_transport(e, opts, opts->transport);
    st = try_transport(e, opts, VB_TRANSPORT_TCP);
    if (st == VB_OK && without_rdma(e) == NULL)
        e->rdma = try_transport(e, opts, VB_TRANSPORT_VERBS);
    return st;
}

static void check_rdma(struct doctor_exam *e, struct vb_check *check)
{
    const struct doctor_host *without = without_rdma(e);

    *check =
        (struct vb_check){.name = "rdma", .level = e->rdma == VB_OK ? VB_CHECK_OK : VB_CHECK_FAIL};
    if (e->rdma != VB_OK)
        snprintf(
            check->what, sizeof(check->what),
            "all hosts have RDMA devices, but RDMA between them fails (%s); the ranks printed the "
            "reason to standard error",
            vb_status_str(e->rdma));
    else if (without != NULL)
        snprintf(check->what, sizeof(check->what),
                 "RDMA between hosts was not tested: %s has no working device; the reason is "
                 "above",
                 without->name);
    else
        snprintf(check->what, sizeof(check->what), "RDMA works between all hosts");
}

int cli_doctor_hosts(const struct vb_group_opts *group, bool json)
{
    struct doctor_exam *e = calloc(1, sizeof(*e));
    int code = CLI_OK;
    vb_status st;

    if (e == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    vb_log_set_rank(group->rank);
    st = examine(e, group);
    if (st == VB_OK) {
        e->n_same = vb_doctor_judge_same(e->kinds, e->n_hosts, e->same);
        e->n_checks = vb_doctor_judge_pairs(e->pairs, e->n_pairs, e->checks);
        if (group->transport == VB_TRANSPORT_AUTO)
            check_rdma(e, &e->checks[e->n_checks++]);
        code = cli_doctor_exam_count(e, VB_CHECK_FAIL) > 0 ? CLI_FAILED : CLI_OK;
    }
    if (st == VB_OK && group->rank == 0 && json)
        st = cli_doctor_exam_json(e);
    else if (st == VB_OK && group->rank == 0)
        cli_doctor_exam_print(e);
    if (group->root_fd >= 0)
        close(group->root_fd);
    free(e->hosts);
    free(e->ranks);
    free(e->pairs);
    free(e->kinds);
    free(e);
    return cli_finish(st != VB_OK ? cli_exit_code(st) : code);
}
