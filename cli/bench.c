/* SPDX-License-Identifier: MIT
 *
 * verbena bench: microbenchmarks, over the engine's own layers.
 */
#include "bench/bench.h"
#include "cli/bench_kernels.h"
#include "cli/bench_ps.h"
#include "cli/bench_step.h"
#include "cli/hosts.h"
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_args {
    const char *sizes, *only, *algo, *model, *batches, *data, *plot, *keys;
    double seconds;
    int64_t in_flight, features, batch, threads, servers;
    int order, wire, rule;
    bool explain, json;
};

#define FIELD(name) offsetof(struct bench_args, name)

static const char *const order_choices[] = {"rank", "any", NULL}; /* as in its enum */

static const char *const wire_choices[] = {"f32", "bf16", NULL}; /* likewise */

static const struct vb_opt bench_opts[] = {
    {"sizes", VB_OPT_TEXT, FIELD(sizes), NULL, 0, 0, NULL, "LIST",
     "bytes, with K, M or G for 2^10, 2^20 or 2^30; each bench has its own by default"},
    {"seconds", VB_OPT_REAL, FIELD(seconds), "0.2", 0, 3600, NULL, "S",
     "how long each measurement takes"},
    {"only", VB_OPT_TEXT, FIELD(only), "all", 0, 0, NULL, "LIST",
     "transfer: some of memcpy, put-latency, put, both, get-latency, get, round"},
    {"algo", VB_OPT_TEXT, FIELD(algo), "auto", 0, 0, NULL, "LIST",
     "allreduce: mapped, gather, exchange, owner, chain; in any order ring, halving, two-level; "
     "sparse-allreduce: sparse, dense; auto is the model's choice, all is each that is possible"},
    {"order", VB_OPT_CHOICE, FIELD(order), "rank", 0, 0, order_choices, "rank|any",
     "allreduce: add up in the order of ranks, or in any that is fast"},
    {"wire", VB_OPT_CHOICE, FIELD(wire), "f32", 0, 0, wire_choices, "f32|bf16",
     "allreduce: what travels between ranks"},
    {"in-flight", VB_OPT_INT, FIELD(in_flight), "1", 1, 256, NULL, "N",
     "allreduce: operations under way at once, which share the bytes"},
    {"features", VB_OPT_INT, FIELD(features), "33762578", 1, INT64_C(1) << 32, NULL, "N",
     "sparse-allreduce, ps: what indices are below"},
    {"keys", VB_OPT_TEXT, FIELD(keys), NULL, 0, 0, NULL, "LIST",
     "ps: of sparse pushes and pulls; else " CLI_PS_KEYS ", and none"},
    {"servers", VB_OPT_INT, FIELD(servers), NULL, 1, 64, NULL, "K",
     "ps: the last K ranks serve; else 1"},
    {"rule", VB_OPT_CHOICE, FIELD(rule), "sgd", 0, 0, cli_ps_rules, "RULE",
     "ps: what servers do with a push"},
    {"model", VB_OPT_TEXT, FIELD(model), NULL, 0, 0, NULL, "M",
     "kernels: whose layers: alexnet, alexnet32, lenet, softmax; step: one of these or sparse-lr"},
    {"batch", VB_OPT_INT, FIELD(batch), NULL, 1, 1 << 16, NULL, "B",
     "kernels: samples of a batch; else 32"},
    {"batches", VB_OPT_TEXT, FIELD(batches), NULL, 0, 0, NULL, "LIST",
     "step: samples of a batch of one rank, such as 8,64; each model has its own by default"},
    {"data", VB_OPT_TEXT, FIELD(data), NULL, 0, 0, NULL, "SPEC",
     "step: what to train on, as train takes it; else made-up data"},
    {"plot", VB_OPT_TEXT, FIELD(plot), NULL, 0, 0, NULL, "FILE",
     "step: let gnuplot draw FILE.png, .svg or .pdf; FILE.gp is a script for it, with the data"},
    {"threads", VB_OPT_INT, FIELD(threads), "0", 0, VB_PLACEMENT_THREADS_MAX, NULL, "T",
     "kernels, step: compute threads a rank; 0: as the machine suggests"},
    {"explain", VB_OPT_FLAG, FIELD(explain), NULL, 0, 0, NULL, NULL,
     "the collectives: what the model predicted, beside what was measured"},
    {"json", VB_OPT_FLAG, FIELD(json), NULL, 0, 0, NULL, NULL,
     "one JSON object a line instead of a table"},
};

enum what { TRANSFER, ALLREDUCE, SPARSE, KERNELS, STEP, PS, BENCHES };

static const char *const names[BENCHES] = {"transfer", "allreduce", "sparse-allreduce",
                                           "kernels",  "step",      "ps"};

static const char *const default_sizes[BENCHES] = {
    "8,64,1K,16K,256K,1M,16M,64M",
    "4,64,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M",
    "312,3120,31200,312000,3120000", /* 1 to 10,000 rows of 39 */
    "",
    "",
    "4K,64K,1M,16M,64M",
};

static int refuse(const char *why)
{
    fprintf(stderr, "verbena bench: %s\n", why);
    return CLI_USAGE;
}

static int find(const struct vb_opts *parsed, enum what *what_p)
{
    char why[VB_OPTS_WHY];
    const char *best;
    int i;

    if (parsed->n_operands == 0)
        return refuse("which bench? transfer, allreduce, sparse-allreduce, kernels, step or ps");
    for (i = 0; i < BENCHES; i++)
        if (strcmp(parsed->operands[0], names[i]) == 0) {
            *what_p = (enum what)i;
            return -1;
        }
    best = vb_nearest(parsed->operands[0], names, BENCHES);
    if (best != NULL)
        snprintf(why, sizeof(why), "unknown bench %.64s; did you mean %s?", parsed->operands[0],
                 best);
    else
        snprintf(
            why, sizeof(why),
            "unknown bench %.64s; there are transfer, allreduce, sparse-allreduce, kernels, step "
            "and ps",
            parsed->operands[0]);
    return refuse(why);
}

/* What is wrong with options that not all benches have, or NULL. */
static const char *misplaced(enum what what, const struct bench_args *args)
{
    bool about_model = what == KERNELS || what == STEP;

    if (!about_model && args->model != NULL)
        return "--model is for kernels and step";
    if (what != KERNELS && args->batch != 0)
        return "--batch is for kernels; step takes --batches LIST";
    if (what != STEP && (args->batches != NULL || args->data != NULL || args->plot != NULL))
        return "--batches, --data and --plot are for step";
    if (about_model && (strcmp(args->algo, "auto") != 0 || args->explain || args->sizes != NULL))
        return "kernels and step have no --sizes, --algo and --explain: these are for the others";
    if (what != PS && (args->keys != NULL || args->servers != 0 || args->rule != 0))
        return "--keys, --servers and --rule are for ps";
    if (what == PS && (strcmp(args->algo, "auto") != 0 || args->explain))
        return "ps has no algorithms: --algo and --explain are for the collectives";
    if (what == TRANSFER && (strcmp(args->algo, "auto") != 0 || args->explain))
        return "transfer has no algorithms: --algo and --explain are for the collectives";
    if (what != TRANSFER && strcmp(args->only, "all") != 0)
        return "--only is for transfer";
    if (what != ALLREDUCE && (args->order != 0 || args->wire != 0 || args->in_flight != 1))
        return "--order, --wire and --in-flight are for allreduce";
    if (args->explain && args->in_flight > 1)
        return "--explain is about one operation at a time, without --in-flight";
    return NULL;
}

static int check_sizes(enum what what, const char *sizes, struct vb_bench_opts *o)
{
    size_t unit = what != SPARSE ? sizeof(float) : 2 * sizeof(float);
    char why[VB_OPTS_WHY];
    int i;

    if (!vb_bench_parse_sizes(sizes, o)) {
        snprintf(why, sizeof(why),
                 "--sizes %.64s: must be up to %d sizes of at most 4G, such as "
                 "8,64K,1M",
                 sizes, VB_BENCH_SIZES_MAX);
        return refuse(why);
    }
    for (i = 0; i < o->n_sizes && what != TRANSFER; i++)
        if (o->sizes[i] == 0 || o->sizes[i] % unit != 0) {
            snprintf(why, sizeof(why), "--sizes %.64s: %s must be multiples of %zu bytes", sizes,
                     names[what], unit);
            return refuse(why);
        }
    return -1;
}

static int check_algos(enum what what, const struct bench_args *args, struct vb_bench_opts *o)
{
    const char *text = args->algo;
    char why[VB_OPTS_WHY];
    bool fine;

    if (args->explain && strcmp(text, "auto") == 0)
        text = "all"; /* what was not chosen matters as much */
    fine = what == SPARSE ? vb_bench_parse_paths(text, o) : vb_bench_parse_algos(text, o);
    if (fine)
        return -1;
    snprintf(why, sizeof(why), "--algo %.64s: %s has auto, all, %s", args->algo, names[what],
             what == SPARSE ? "sparse, dense"
                            : "mapped, gather, exchange, owner, chain, ring, halving, two-level");
    return refuse(why);
}

static int check_only(const char *only, struct vb_bench_opts *o)
{
    char why[VB_OPTS_WHY];

    if (vb_bench_parse_parts(only, o))
        return -1;
    snprintf(why, sizeof(why),
             "--only %.64s: there are memcpy, put-latency, put, both, get-latency, get and round",
             only);
    return refuse(why);
}

/* What needs no other ranks to be told, which may be on their way. */
static int check_alone(const struct vb_opts *parsed, const struct bench_args *args,
                       enum what *what_p)
{
    const char *why;
    int code = find(parsed, what_p);

    if (code >= 0)
        return code;
    why = misplaced(*what_p, args);
    if (why != NULL)
        return refuse(why);
    return args->seconds <= 0 ? refuse("--seconds 0: must be more") : -1;
}

static int check(enum what what, const struct bench_args *args, const struct vb_group_opts *group,
                 struct vb_bench_opts *o, struct cli_bench_ps *ps)
{
    int code = -1;

    if (what == KERNELS && group->world > 1)
        return refuse("kernels is about one process: without --ranks, or with --ranks 1");
    if (what == TRANSFER && group->world < 2)
        return refuse("transfer needs two ranks: --ranks 2");
    memset(o, 0, sizeof(*o));
    o->seconds = args->seconds;
    o->json = args->json;
    o->order = (enum vb_order)args->order;
    o->wire = (enum vb_wire)args->wire;
    o->in_flight = (int)args->in_flight;
    o->features = args->features;
    o->explain = args->explain;
    if (what == KERNELS || what == STEP)
        return -1;
    if (what == PS)
        code = cli_bench_ps_check(args->keys, args->features, args->servers, args->rule,
                                  group->world, ps);
    if (code >= 0)
        return code;
    code = check_sizes(what, args->sizes != NULL ? args->sizes : default_sizes[what], o);
    if (code < 0)
        code = check_only(args->only, o);
    return code < 0 ? check_algos(what, args, o) : code;
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
        if (o->parts & 1u << VB_BENCH_MEMCPY)
            st = vb_bench_memcpy(o, &rungs);
    }
    if (st == VB_OK && group->transport != VB_TRANSPORT_TCP)
        st = rung(group, group->transport, o, &rungs, wrong_p);
    if (st == VB_OK &&
        (group->transport == VB_TRANSPORT_TCP || group->transport == VB_TRANSPORT_AUTO))
        st = rung(group, VB_TRANSPORT_TCP, o, &rungs, wrong_p);
    return st;
}

/* A collective: one group, as it was asked for. */
static vb_status collective(const struct vb_group_opts *group, enum what what,
                            const struct vb_bench_opts *o, const struct cli_bench_ps *ps,
                            int64_t *wrong_p)
{
    struct vb_group_opts opts = *group;
    struct vb_group *g;
    vb_status st;

    if (opts.world == 1 && opts.root == NULL)
        opts.root = "127.0.0.1:0"; /* nobody will call */
    st = vb_group_open(&opts, &g);
    if (st != VB_OK)
        return st;
    if (what == PS)
        st = cli_bench_ps(g, ps, o, wrong_p);
    else
        st = what == ALLREDUCE ? vb_bench_allreduce(g, o, wrong_p) : vb_bench_sparse(g, o, wrong_p);
    vb_group_close(g);
    return st;
}

/* A core for each rank where there are enough. Only a launcher's ranks know how many there are, and
 * not all of them. */
static vb_status place(const struct vb_launch *launch, struct vb_group_opts *group,
                       struct vb_topo **topo_p, struct vb_placement **placement_p)
{
    struct vb_placement_want want = {.ranks = launch->local_ranks, .threads = 1};
    struct vb_topo_source this_machine = {0};
    vb_status st;

    *topo_p = NULL;
    *placement_p = NULL;
    if (!launch->supervised || launch->local_ranks == 0)
        return VB_OK;
    st = vb_topo_open(&this_machine, topo_p);
    if (st == VB_OK)
        st = vb_placement_create(*topo_p, &want, placement_p);
    if (st == VB_OK)
        st = vb_placement_pin_team(*topo_p, *placement_p, launch->local_rank);
    if (st == VB_OK) {
        group->crowded = (*placement_p)->overlap;
        group->topo = *topo_p;
        group->placement = *placement_p;
        group->placement_rank = launch->local_rank;
    }
    return st;
}

static int measure(const struct vb_launch *launch, struct vb_group_opts *group, enum what what,
                   const struct vb_bench_opts *o, const struct cli_bench_ps *ps)
{
    struct vb_topo *topo;
    struct vb_placement *placement;
    int64_t wrong = 0;
    vb_status st;

    vb_log_set_rank(group->rank);
    st = place(launch, group, &topo, &placement);
    if (st == VB_OK)
        st = what == TRANSFER ? climb(group, o, &wrong) : collective(group, what, o, ps, &wrong);
    vb_placement_destroy(placement);
    vb_topo_close(topo);
    if (st == VB_OK && wrong > 0)
        st = vb_err(VB_ERR_INPUT, "%lld %s", (long long)wrong,
                    what == TRANSFER ? "bytes did not arrive as they were sent"
                    : what == PS     ? "parameters are not what the pushes make them"
                                     : "numbers are not what the sum should be");
    return cli_finish(cli_exit_code(st));
}

static int kernels(const struct bench_args *args)
{
    struct vb_bench_kernels o = {.batch = args->batch > 0 ? (int)args->batch : 32,
                                 .threads = (int)args->threads,
                                 .seconds = args->seconds,
                                 .json = args->json};
    int code = cli_bench_kernels_find(args->model, &o.table);

    return code < 0 ? cli_bench_kernels(&o) : code;
}

static void fill_step(const struct bench_args *args, struct cli_bench_step *step)
{
    *step = (struct cli_bench_step){.model = args->model,
                                    .batches = args->batches,
                                    .data = args->data,
                                    .plot = args->plot,
                                    .threads = args->threads,
                                    .seconds = args->seconds,
                                    .json = args->json};
}

static int run_parsed(const struct cli_command *command, const struct bench_args *args,
                      const struct cli_job *job, struct cli_hosts *hosts,
                      const struct vb_opts *parsed, int argc, char **argv)
{
    struct vb_step_opts step_opts;
    struct vb_group_opts group;
    struct cli_bench_step step;
    struct vb_bench_opts opts;
    struct cli_bench_ps ps;
    struct vb_launch launch;
    enum what what;
    int code;

    fill_step(args, &step);
    code = check_alone(parsed, args, &what);
    if (code < 0)
        code = cli_hosts_place(command, hosts, job, &launch, &group);
    if (code < 0)
        code = check(what, args, &group, &opts, &ps);
    if (code < 0 && what == KERNELS)
        return kernels(args);
    if (code < 0 && what == STEP)
        code = cli_bench_step_check(&step, &launch, &group, hosts->parsed.n > 0, &step_opts);
    if (code >= 0 || cli_hosts_launch(command, hosts, job, &group, argc, argv, &code) ||
        cli_job_supervise(command, job, &launch, &group, argc, argv, &code))
        return code;
    if (what == STEP)
        return cli_bench_step(&step, &step_opts);
    return measure(&launch, &group, what, &opts, &ps);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct bench_args args;
    struct cli_hosts hosts;
    struct cli_job job = {0};
    struct vb_opt_group groups[] = {
        {"Measurements", bench_opts, VB_COUNT(bench_opts), &args},
        {"Ranks", cli_job_opts, CLI_JOB_OPTS, &job},
        {"Hosts", cli_hosts_opts, CLI_HOSTS_OPTS, &hosts},
    };
    char **copy = cli_job_arguments(argc, argv);
    struct vb_opts parsed;
    int code;

    if (copy == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    code = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);
    job.has_rank = code < 0 && vb_opts_given(&parsed, "rank");
    if (code < 0)
        code = run_parsed(command, &args, &job, &hosts, &parsed, argc, copy);
    free(copy);
    return code;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "what transports, collectives, kernels, steps and servers reach, here or on hosts",
    .usage = "WHAT [--ranks N] [--transport HOW] [--sizes LIST] [--algo LIST] [--json] ...",
    .about =
        "transfer: put and get between ranks 0 and 1, of each size: the time of one put, from\n"
        "posting to the note (p50 and p99), and the bandwidth of a stream of them, in one "
        "direction\n"
        "and in both; what is moved is checked first. \"round\" is the time in which every rank\n"
        "puts to the next. It is a ladder: memcpy, shared memory, TCP, each as a percentage of "
        "the\n"
        "rung below. Where bytes go over RDMA, what the ports of all hosts counted (retries, "
        "packets\n"
        "out of sequence, receivers not ready) stands below the table, and in every JSON line as\n"
        "retries, out_of_seq and rnr.\n"
        "\n"
        "allreduce: sums of float32, in place, of each size: the time of the slowest rank (median "
        "and\n"
        "p99), bytes over time (algbw), what the links carry (busbw: times 2(n-1)/n), and the "
        "bytes\n"
        "that the busiest rank sent. Sums are checked before and after; wrong ones exit 1.\n"
        "\n"
        "sparse-allreduce: the same of lists of (index, value), made like those of click data; "
        "a size is\n"
        "that of one rank's list, 8 bytes an entry, before duplicates are merged.\n"
        "\n"
        "kernels: each pass of each layer of a model by each backend that can do it: the time of "
        "the\n"
        "fastest run, GFLOP/s (those of a direct convolution), and their share of the fastest "
        "matrix\n"
        "product of BLAS in the same run. What a plan would take is marked.\n"
        "\n"
        "step: what a step of training is made of, for a list of batches: computing, the transfer\n"
        "alone, and what of it is exposed: the time of a step less that of one without sums over\n"
        "ranks, never below 0. Blocks of the three alternate; the slowest rank counts, and the "
        "median.\n"
        "The last line says from which batch on computing takes as long as the transfer, by a "
        "line\n"
        "through the points. bytes is what one rank has to give.\n"
        "\n"
        "ps: pushes, pulls and both to the parameter server, dense of each size and sparse of "
        "each\n"
        "number of keys, one at a time by each worker: the time of the slowest worker (median and\n"
        "p99), and the cpu time of the servers' threads for each. The last ranks serve. Of their\n"
        "time: applying, for each operation, and the part with nothing to do.\n"
        "\n"
        "GB are 10^9 bytes.\n"
        "\n"
        "  verbena bench transfer --ranks 2\n"
        "  verbena bench allreduce --ranks 2 --transport tcp --sizes 64,1M --json\n"
        "  verbena bench allreduce --ranks 3 --explain\n"
        "  verbena bench allreduce --ranks 2 --sizes 256K --in-flight 16\n"
        "  verbena bench sparse-allreduce --ranks 2 --algo all\n"
        "  verbena bench kernels --model alexnet --batch 32\n"
        "  verbena bench step --model lenet --ranks 2 --transport tcp --plot step.svg\n"
        "  verbena bench ps --ranks 3 --transport tcp --sizes 4K,1M --keys 2000",
    .run = run,
};
