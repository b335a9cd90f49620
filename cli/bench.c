/* SPDX-License-Identifier: MIT
 *
 * verbena bench: microbenchmarks, over the engine's own layers.
 */
#include "bench/bench.h"
#include "cli/job.h"
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_args {
    const char *sizes;
    double seconds;
    bool json;
};

#define FIELD(name) offsetof(struct bench_args, name)

static const char *const benches[] = {"transfer"};

static const struct vb_opt bench_opts[] = {
    {"sizes", VB_OPT_TEXT, FIELD(sizes), "8,64,1K,16K,256K,1M,16M,64M", 0, 0, NULL, "LIST",
     "bytes to move, with K, M or G for 2^10, 2^20 or 2^30"},
    {"seconds", VB_OPT_REAL, FIELD(seconds), "0.2", 0, 3600, NULL, "S",
     "how long each measurement takes"},
    {"json", VB_OPT_FLAG, FIELD(json), NULL, 0, 0, NULL, NULL,
     "one JSON object a line instead of a table"},
};

static int refuse(const char *why)
{
    fprintf(stderr, "verbena bench: %s\n", why);
    return CLI_USAGE;
}

static int check(const struct vb_opts *parsed, const struct bench_args *args,
                 const struct vb_group_opts *group, struct vb_bench_opts *o)
{
    char why[VB_OPTS_WHY];

    if (parsed->n_operands == 0)
        return refuse("which bench? transfer");
    if (strcmp(parsed->operands[0], benches[0]) != 0) {
        snprintf(why, sizeof(why), "unknown bench %.64s; there is transfer", parsed->operands[0]);
        return refuse(why);
    }
    if (group->world < 2)
        return refuse("transfer needs two ranks: --ranks 2");
    if (!vb_bench_parse_sizes(args->sizes, o)) {
        snprintf(why, sizeof(why),
                 "--sizes %.64s: must be up to %d sizes of at most 4G, such as "
                 "8,64K,1M",
                 args->sizes, VB_BENCH_SIZES_MAX);
        return refuse(why);
    }
    if (args->seconds <= 0)
        return refuse("--seconds 0: must be more");
    o->seconds = args->seconds;
    o->json = args->json;
    return -1;
}

/* One rung: a group over a transport, and all measurements in it. */
static vb_status rung(const struct vb_group_opts *group, enum vb_transport_choice transport,
                      const struct vb_bench_opts *o, struct vb_bench_rungs *rungs, int64_t *wrong_p)
{
    struct vb_group_opts opts = *group;
    struct vb_group *g;
    int64_t wrong = 0;
    vb_status st;

    opts.transport = transport;
    if (group->root_fd >= 0) /* the next rung needs it again */
        opts.root_fd = dup(group->root_fd);
    st = vb_group_open(&opts, &g);
    if (st != VB_OK)
        return st;
    st = vb_bench_transfer(g, o, rungs, &wrong);
    vb_group_close(g);
    *wrong_p += wrong;
    return st;
}

/* The ladder: memcpy, then each transport, or the one that was asked for. */
static vb_status climb(const struct vb_group_opts *group, const struct vb_bench_opts *o,
                       int64_t *wrong_p)
{
    struct vb_bench_rungs rungs;
    vb_status st = VB_OK;

    memset(&rungs, 0, sizeof(rungs));
    if (group->rank == 0) {
        vb_bench_print_head(o->json);
        st = vb_bench_memcpy(o, &rungs);
    }
    if (st == VB_OK && group->transport != VB_TRANSPORT_TCP)
        st = rung(group, group->transport, o, &rungs, wrong_p);
    if (st == VB_OK &&
        (group->transport == VB_TRANSPORT_TCP || group->transport == VB_TRANSPORT_AUTO))
        st = rung(group, VB_TRANSPORT_TCP, o, &rungs, wrong_p);
    return st;
}

/* A core for each rank where there are enough. Only a supervisor's ranks know how many there are.
 */
static vb_status place(const struct vb_launch *launch, struct vb_group_opts *group,
                       struct vb_topo **topo_p, struct vb_plan **plan_p)
{
    struct vb_plan_want want = {.ranks = launch->local_ranks, .threads = 1};
    struct vb_topo_source this_machine = {0};
    vb_status st;

    *topo_p = NULL;
    *plan_p = NULL;
    if (!launch->supervised)
        return VB_OK;
    st = vb_topo_open(&this_machine, topo_p);
    if (st == VB_OK)
        st = vb_plan_create(*topo_p, &want, plan_p);
    if (st == VB_OK)
        st = vb_plan_pin_team(*topo_p, *plan_p, launch->local_rank);
    if (st == VB_OK) {
        group->crowded = (*plan_p)->overlap;
        group->topo = *topo_p;
        group->plan = *plan_p;
        group->plan_rank = launch->local_rank;
    }
    return st;
}

static int transfer(const struct vb_launch *launch, struct vb_group_opts *group,
                    const struct vb_bench_opts *o)
{
    struct vb_topo *topo;
    struct vb_plan *plan;
    int64_t wrong = 0;
    vb_status st;

    vb_log_set_rank(group->rank);
    st = place(launch, group, &topo, &plan);
    if (st == VB_OK)
        st = climb(group, o, &wrong);
    vb_plan_destroy(plan);
    vb_topo_close(topo);
    if (st == VB_OK && wrong > 0)
        st = vb_err(VB_ERR_INPUT, "%lld bytes did not arrive as they were sent", (long long)wrong);
    return cli_finish(cli_exit_code(st));
}

static int run_parsed(const struct cli_command *command, const struct bench_args *args,
                      const struct cli_job *job, const struct vb_opts *parsed, int argc,
                      char **argv)
{
    struct vb_group_opts group;
    struct vb_bench_opts opts;
    struct vb_launch launch;
    int code;

    code = cli_job_place(command, job, &launch, &group);
    if (code < 0)
        code = check(parsed, args, &group, &opts);
    if (code >= 0 || cli_job_supervise(command, job, &launch, argc, argv, &code))
        return code;
    return transfer(&launch, &group, &opts);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct bench_args args;
    struct cli_job job;
    struct vb_opt_group groups[] = {
        {"Measurements", bench_opts, VB_COUNT(bench_opts), &args},
        {"Ranks", cli_job_opts, CLI_JOB_OPTS, &job},
    };
    char **copy = cli_job_arguments(argc, argv);
    struct vb_opts parsed;
    int code;

    if (copy == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    code = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);
    if (code < 0)
        code = run_parsed(command, &args, &job, &parsed, argc, copy);
    free(copy);
    return code;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "what the transports reach between ranks of this machine or of several",
    .usage = "transfer --ranks N [--transport HOW] [--sizes LIST] [--seconds S] [--json]",
    .about =
        "transfer: put and get between ranks 0 and 1, of each size: the time of one put, from\n"
        "posting to the note (p50 and p99), and the bandwidth of a stream of them, in one "
        "direction\n"
        "and in both; what is moved is checked first. \"round\" is the time in which every rank\n"
        "puts to the next. It is a ladder: memcpy, shared memory, TCP, each as a percentage of "
        "the\n"
        "rung below. GB are 10^9 bytes. Where bytes go over RDMA, what the ports of all hosts "
        "counted\n"
        "(retries, packets out of sequence, receivers not ready) stands below the table, and in "
        "every\n"
        "JSON line as retries, out_of_seq and rnr.\n"
        "\n"
        "  verbena bench transfer --ranks 2\n"
        "  verbena bench transfer --ranks 3 --transport tcp --sizes 64,1M --json",
    .run = run,
};
