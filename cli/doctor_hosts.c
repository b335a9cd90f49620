/* SPDX-License-Identifier: MIT
 *
 * doctor between hosts: one rank per host reports the checks of its host. Then every pair of hosts
 * is tested over each transport. If a host has several ranks, the lowest rank represents it. If all
 * ranks are on one host, every pair of ranks is tested.
 */
#include "bench/bench.h"
#include "cli/cmd_doctor.h"

#include <math.h>
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

struct host {
    int rank;
    char name[64];
    bool rdma; /* the host has a port that verbs can use */
    int n;
    struct vb_check checks[VB_CHECKS_MAX];
    char names[VB_CHECKS_MAX][24]; /* names of the checks of another rank */
};

struct exam {
    struct host own;
    struct host *hosts;
    int n_hosts;
    int *ranks; /* the ranks between which pairs are measured */
    int n_ranks;
    int n_pairs; /* number of measurements of all pairs over all transports */
    struct vb_pair *pairs;
    struct vb_op ops[VB_BENCH_PAIR_OPS];
    struct vb_check checks[VB_CHECKS_MAX]; /* checks of the pairs */
    int n_checks;
    struct vb_kind kind, *kinds;         /* of this host; one for each host */
    struct vb_check same[VB_CHECKS_MAX]; /* checks of what should be the same on all hosts */
    int n_same;
    vb_status rdma; /* status of the test over RDMA; VB_OK also if there was no test */
};

static vb_status examine_own(struct host *own, struct vb_kind *kind)
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

static vb_status choose_ranks(struct exam *e, const struct vb_group *group)
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
static vb_status gather_checks(struct exam *e, struct vb_group *group)
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
            struct host *host = &e->hosts[i];

            host->checks[k] = all[host->rank].check;
            memcpy(host->names[k], all[host->rank].name, sizeof(host->names[k]));
            host->checks[k].name = host->names[k];
        }
    }
    free(all);
    return st;
}

static vb_status gather_hosts(struct exam *e, struct vb_group *group)
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
static vb_status gather_kinds(struct exam *e, struct vb_group *group)
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
static vb_status try_transport(struct exam *e, const struct vb_group_opts *opts, int transport)
{
    struct vb_group_opts o = *opts;
    struct vb_group *group;
    vb_status st;

    o.transport = (enum vb_transport_choice)transport;
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
static const struct host *without_rdma(const struct exam *e)
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
static vb_status examine(struct exam *e, const struct vb_group_opts *opts)
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

static void check_rdma(struct exam *e, struct vb_check *check)
{
    const struct host *without = without_rdma(e);

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

/* ---- printing -------------------------------------------------------------------------------- */

/* Prints only the checks that need action: problems, and how to set up soft-RoCE. */
static void print_host(const struct host *host)
{
    int i, ok = cli_doctor_count(host->checks, host->n, VB_CHECK_OK);

    printf("host %s (rank %d): %d of %d checks OK\n", host->name, host->rank, ok, host->n);
    for (i = 0; i < host->n; i++)
        if (host->checks[i].level != VB_CHECK_OK || host->checks[i].fix[0] != '\0')
            cli_doctor_print_check(&host->checks[i]);
}

static void print_count(int64_t count, int width)
{
    if (count < 0)
        printf(" %*s", width, "-");
    else
        printf(" %*lld", width, (long long)count);
}

static void print_pairs(const struct exam *e)
{
    const struct vb_pair *p;
    char hosts[132];
    int i;

    printf("\n%-24s %-9s %9s %9s %9s %9s %6s %7s %10s %4s\n", "pair", "transport", "put us",
           "get us", "put GB/s", "get GB/s", "wrong", "retries", "out of seq", "RNR");
    for (i = 0; i < e->n_pairs; i++) {
        p = &e->pairs[i];
        snprintf(hosts, sizeof(hosts), "%s - %s", p->host_a, p->host_b);
        printf("%-24s %-9s %9.1f %9.1f %9.4f %9.4f %6lld", hosts, p->transport, p->put_us,
               p->get_us, p->put_gb_s, p->get_gb_s, (long long)p->wrong);
        print_count(p->moved[VB_PORT_RETRIES], 7);
        print_count(p->moved[VB_PORT_OUT_OF_SEQ], 10);
        print_count(p->moved[VB_PORT_RNR], 4);
        printf("\n");
    }
    printf("\n");
    for (i = 0; i < e->n_same; i++)
        cli_doctor_print_check(&e->same[i]);
    for (i = 0; i < e->n_checks; i++)
        cli_doctor_print_check(&e->checks[i]);
}

static int count_all(const struct exam *e, enum vb_check_level level)
{
    int count = cli_doctor_count(e->checks, e->n_checks, level) +
                cli_doctor_count(e->same, e->n_same, level);
    int i;

    for (i = 0; i < e->n_hosts; i++)
        count += cli_doctor_count(e->hosts[i].checks, e->hosts[i].n, level);
    return count;
}

static void print_text(const struct exam *e)
{
    int i, fail = count_all(e, VB_CHECK_FAIL);

    for (i = 0; i < e->n_hosts; i++)
        print_host(&e->hosts[i]);
    print_pairs(e);
    printf("%d host%s, %d measurement%s between them: %d WARN, %d FAIL; %s\n", e->n_hosts,
           e->n_hosts == 1 ? "" : "s", e->n_pairs, e->n_pairs == 1 ? "" : "s",
           count_all(e, VB_CHECK_WARN), fail, fail > 0 ? "a job would fail" : "a job can run");
}

static void json_host(struct vb_json *json, const struct host *host)
{
    vb_json_object(json, NULL);
    vb_json_text(json, "host", host->name);
    vb_json_int(json, "rank", host->rank);
    vb_json_bool(json, "rdma", host->rdma);
    cli_doctor_json_checks(json, host->checks, host->n);
    vb_json_end(json);
}

static void json_count(struct vb_json *json, const char *key, int64_t count)
{
    if (count >= 0)
        vb_json_int(json, key, count);
    else
        vb_json_real(json, key, (double)NAN); /* null */
}

static void json_pair(struct vb_json *json, const struct vb_pair *p)
{
    vb_json_object(json, NULL);
    vb_json_text(json, "a", p->host_a);
    vb_json_text(json, "b", p->host_b);
    vb_json_text(json, "transport", p->transport);
    vb_json_real(json, "put_us", p->put_us);
    vb_json_real(json, "get_us", p->get_us);
    vb_json_real(json, "put_gb_s", p->put_gb_s);
    vb_json_real(json, "get_gb_s", p->get_gb_s);
    vb_json_int(json, "wrong", p->wrong);
    json_count(json, "retries", p->moved[VB_PORT_RETRIES]);
    json_count(json, "out_of_seq", p->moved[VB_PORT_OUT_OF_SEQ]);
    json_count(json, "rnr", p->moved[VB_PORT_RNR]);
    vb_json_end(json);
}

/* One list for both kinds of checks between hosts. */
static void json_checks(struct vb_json *json, const struct exam *e)
{
    struct vb_check all[2 * VB_CHECKS_MAX];

    memcpy(all, e->same, (size_t)e->n_same * sizeof(all[0]));
    memcpy(all + e->n_same, e->checks, (size_t)e->n_checks * sizeof(all[0]));
    cli_doctor_json_checks(json, all, e->n_same + e->n_checks);
}

static vb_status print_json(const struct exam *e)
{
    struct vb_json *json = cli_json_object();
    int i;

    vb_json_bool(json, "ok", count_all(e, VB_CHECK_FAIL) == 0);
    vb_json_array(json, "hosts");
    for (i = 0; i < e->n_hosts; i++)
        json_host(json, &e->hosts[i]);
    vb_json_end(json);
    vb_json_array(json, "pairs");
    for (i = 0; i < e->n_pairs; i++)
        json_pair(json, &e->pairs[i]);
    vb_json_end(json);
    json_checks(json, e);
    return cli_print_json(json);
}

int cli_doctor_hosts(const struct vb_group_opts *group, bool json)
{
    struct exam *e = calloc(1, sizeof(*e));
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
        code = count_all(e, VB_CHECK_FAIL) > 0 ? CLI_FAILED : CLI_OK;
    }
    if (st == VB_OK && group->rank == 0 && json)
        st = print_json(e);
    else if (st == VB_OK && group->rank == 0)
        print_text(e);
    if (group->root_fd >= 0)
        close(group->root_fd);
    free(e->hosts);
    free(e->ranks);
    free(e->pairs);
    free(e->kinds);
    free(e);
    return cli_finish(st != VB_OK ? cli_exit_code(st) : code);
}
