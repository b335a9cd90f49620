/* SPDX-License-Identifier: MIT
 *
 * verbena bench: microbenchmarks of the engine's layers.
 */
#include "cli/bench/cmd_bench.h"
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_args {
    struct cli_bench_step step; /* also has the options that all benches share */
    const char *sizes, *only, *algo, *keys;
    int64_t in_flight, features, batch, servers;
    int order, wire, rule;
    bool explain, check;
};

#define FIELD(name) offsetof(struct bench_args, name)

static const struct vb_opt common_opts[] = {
    {"sizes", VB_OPT_TEXT, FIELD(sizes), .arg = "LIST",
     .help = "bytes to transfer or to sum, such as 8,64K,1M with K = 2^10; each bench has its own "
             "default"},
    {"seconds", VB_OPT_REAL, FIELD(step.seconds), "0.2", .max = 3600, .arg = "S",
     .help = "duration of each measurement"},
    {"json", VB_OPT_FLAG, FIELD(step.json),
     .help = "print one JSON object per line instead of a table"},
};

static const struct vb_opt coll_opts[] = {
    {"algo", VB_OPT_TEXT, FIELD(algo), "auto", .arg = "LIST",
     .help = "algorithms: auto, all, or a list. allreduce has mapped, gather, exchange, owner, "
             "chain, and with --order any ring, halving and two-level; sparse-allreduce has sparse "
             "and dense"},
    {"explain", VB_OPT_FLAG, FIELD(explain),
     .help = "show the time that the cost model predicted beside the measured time"},
    {"order", VB_OPT_CHOICE, FIELD(order), "rank", .choices = cli_orders, .arg = "rank|any",
     .level = VB_OPT_MORE,
     .help = "allreduce: add in the order of the ranks, or in any order, which may be faster"},
    {"wire", VB_OPT_CHOICE, FIELD(wire), "f32", .choices = cli_wires, .arg = "f32|bf16",
     .level = VB_OPT_MORE, .help = "allreduce: number format in transit"},
    {"in-flight", VB_OPT_INT, FIELD(in_flight), "1", .min = 1, .max = 256, .arg = "N",
     .level = VB_OPT_MORE, .help = "allreduce: divide the bytes among N concurrent allreduces"},
    {"only", VB_OPT_TEXT, FIELD(only), "all", .arg = "LIST", .level = VB_OPT_MORE,
     .help = "transfer: measure only some of memcpy, put-latency, put, both, get-latency, get and "
             "round"},
    {"features", VB_OPT_INT, FIELD(features), "33762578", .min = 1, .max = INT64_C(1) << 32,
     .arg = "N", .level = VB_OPT_MORE,
     .help = "sparse-allreduce, ps, kernels of sparse-lr: all indices are below N"},
};

static const struct vb_opt model_opts[] = {
    {"model", VB_OPT_TEXT, FIELD(step.model), .arg = "MODEL",
     .help = "softmax, sparse-lr, lenet, mlp, alexnet or alexnet32"},
    {"batch", VB_OPT_INT, FIELD(batch), .min = 1, .max = 1 << 16, .arg = "B",
     .help = "kernels: samples in a batch; by default 32, for sparse-lr 100, with --check 4"},
    {"check", VB_OPT_FLAG, FIELD(check),
     .help = "kernels: do not time the kernels, but show what they round: the error of each layer, "
             "and of the parameters after 20 steps, against double precision"},
    {"fast-math", VB_OPT_FLAG, FIELD(step.fast_math), .level = VB_OPT_MORE,
     .help = "also choose kernels that round more than sums of floats do"},
    {"batches", VB_OPT_TEXT, FIELD(step.batches), .arg = "LIST",
     .help = "step: samples per rank in a step, such as 8,64; the default depends on the model"},
    {"refine", VB_OPT_FLAG, FIELD(step.refine), .level = VB_OPT_MORE,
     .help = "step: also measure batches near the one from which on computing hides the transfer; "
             "done anyway without --batches"},
    {"data", VB_OPT_TEXT, FIELD(step.data), .arg = "SPEC", .level = VB_OPT_MORE,
     .help = "step: training data, in the same notation as for train; by default generated data"},
    {"plot", VB_OPT_TEXT, FIELD(step.plot), .arg = "FILE",
     .help = "step: draw FILE.png, .svg or .pdf with gnuplot; FILE.gp is a gnuplot script with the "
             "data"},
    {"threads", VB_OPT_INT, FIELD(step.threads), "0", .max = VB_PLACEMENT_THREADS_MAX, .arg = "T",
     .help = "compute threads per rank; 0: as many as the machine suggests"},
};

static const struct vb_opt ps_opts[] = {
    {"keys", VB_OPT_TEXT, FIELD(keys), .arg = "LIST", .level = VB_OPT_MORE,
     .help = "numbers of keys of sparse pushes and pulls, or none; by default " CLI_PS_KEYS},
    {"servers", VB_OPT_INT, FIELD(servers), .min = 1, .max = 64, .arg = "K", .level = VB_OPT_MORE,
     .help = "the last K ranks are servers; by default 1"},
    {"rule", VB_OPT_CHOICE, FIELD(rule), "sgd", .choices = cli_ps_rules, .arg = "RULE",
     .level = VB_OPT_MORE, .help = "update rule that servers apply to a push"},
};

enum what { TRANSFER, ALLREDUCE, SPARSE, KERNELS, STEP, PS, BENCHES };

static const char *const names[BENCHES] = {"transfer", "allreduce", "sparse-allreduce",
                                           "kernels",  "step",      "ps"};

static const char *const default_sizes[BENCHES] = {
    "8,64,1K,16K,256K,1M,16M,64M",
    "4,64,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M",
    "312,3120,31200,312000,3120000", /* the keys of 1 to 10,000 rows with 39 entries each */
    "",
    "",
    "4K,64K,1M,16M,64M",
};

/* Returns a message if an option does not belong to this bench; otherwise NULL. */
static const char *misplaced(enum what what, const struct bench_args *args)
{
    bool about_model = what == KERNELS || what == STEP;

    if (!about_model && args->step.model != NULL)
        return "--model is only for kernels and step";
    if (what != KERNELS && args->check)
        return "--check is only for kernels";
    if (!about_model && args->step.fast_math)
        return "--fast-math is only for kernels and step";
    if (what != KERNELS && args->batch != 0)
        return "--batch is only for kernels; step has --batches LIST";
    if (what != STEP && (args->step.batches != NULL || args->step.data != NULL ||
                         args->step.plot != NULL || args->step.refine))
        return "--batches, --refine, --data and --plot are only for step";
    if (about_model && (strcmp(args->algo, "auto") != 0 || args->explain || args->sizes != NULL))
        return "kernels and step have no --sizes, --algo and --explain";
    if (what != PS && (args->keys != NULL || args->servers != 0 || args->rule != 0))
        return "--keys, --servers and --rule are only for ps";
    if (what == PS && (strcmp(args->algo, "auto") != 0 || args->explain))
        return "ps has no algorithms: --algo and --explain are only for allreduce and "
               "sparse-allreduce";
    if (what == TRANSFER && (strcmp(args->algo, "auto") != 0 || args->explain))
        return "transfer has no algorithms: --algo and --explain are only for allreduce and "
               "sparse-allreduce";
    if (what != TRANSFER && strcmp(args->only, "all") != 0)
        return "--only is only for transfer";
    if (what != ALLREDUCE && (args->order != 0 || args->wire != 0 || args->in_flight != 1))
        return "--order, --wire and --in-flight are only for allreduce";
    if (args->explain && args->in_flight > 1)
        return "--explain cannot be used with --in-flight: the cost model predicts one allreduce";
    return NULL;
}

static int check_sizes(enum what what, const char *sizes, struct vb_bench_opts *o)
{
    size_t unit = what != SPARSE ? sizeof(float) : 2 * sizeof(float);
    int i;

    if (!vb_bench_parse_sizes(sizes, o))
        return cli_refuse(&cli_bench,
                          "--sizes %.64s: must be up to %d sizes of at most 4G, such as 8,64K,1M",
                          sizes, VB_BENCH_SIZES_MAX);
    for (i = 0; i < o->n_sizes && what != TRANSFER; i++)
        if (o->sizes[i] == 0 || o->sizes[i] % unit != 0)
            return cli_refuse(&cli_bench,
                              "--sizes %.64s: the sizes of %s must be multiples of %zu bytes",
                              sizes, names[what], unit);
    return -1;
}

static int check_algos(enum what what, const struct bench_args *args, struct vb_bench_opts *o)
{
    const char *text = args->algo;
    bool good;

    if (args->explain && strcmp(text, "auto") == 0)
        text = "all"; /* --explain also shows the algorithms that were not chosen */
    good = what == SPARSE ? vb_bench_parse_paths(text, o) : vb_bench_parse_algos(text, o);
    if (good)
        return -1;
    return cli_refuse(&cli_bench, "--algo %.64s: %s accepts auto, all, or a list of these: %s",
                      args->algo, names[what],
                      what == SPARSE
                          ? "sparse, dense"
                          : "mapped, gather, exchange, owner, chain, ring, halving, two-level");
}

/* Checks everything that does not depend on other ranks. Called before ranks are started. */
static int check_alone(const struct vb_opts *parsed, const struct bench_args *args,
                       enum what *what_p)
{
    const char *why;
    int i;

    if (parsed->n_operands == 0)
        return cli_refuse(&cli_bench, "the bench is missing: name transfer, allreduce, "
                                      "sparse-allreduce, kernels, step or ps");
    i = cli_find_name(&cli_bench, "bench", parsed->operands[0], names, BENCHES);
    if (i < 0)
        return CLI_USAGE;
    *what_p = (enum what)i;
    why = misplaced(*what_p, args);
    if (why != NULL)
        return cli_refuse(&cli_bench, "%s", why);
    return args->step.seconds <= 0 ? cli_refuse(&cli_bench, "--seconds must be more than 0") : -1;
}

static int check(enum what what, const struct bench_args *args, const struct vb_group_opts *group,
                 struct vb_bench_opts *o, struct cli_bench_ps *ps)
{
    int code = -1;

    if (what == KERNELS && group->world > 1)
        return cli_refuse(&cli_bench, "bench kernels runs in one process: remove --ranks");
    if (what == TRANSFER && group->world < 2)
        return cli_refuse(&cli_bench, "bench transfer needs two ranks: use --ranks 2");
    memset(o, 0, sizeof(*o));
    o->seconds = args->step.seconds;
    o->json = args->step.json;
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
    if (code < 0 && !vb_bench_parse_parts(args->only, o))
        code = cli_refuse(&cli_bench,
                          "--only %.64s: must be a list of memcpy, put-latency, put, both, "
                          "get-latency, get and round",
                          args->only);
    return code < 0 ? check_algos(what, args, o) : code;
}

/* Opens a group over one transport and makes all measurements in this group: one rung of the
 * ladder. */
static vb_status rung(const struct vb_group_opts *group, enum vb_transport_choice transport,
                      const struct vb_bench_opts *o, struct vb_bench_rungs *rungs, int64_t *wrong_p)
{
    struct vb_group_opts opts = *group;
    struct vb_group *g;
    int64_t wrong = 0;
    vb_status st;

    opts.transport = transport;
    if (group->root_fd >= 0) /* the group closes its copy; the next rung needs a socket, too */
        opts.root_fd = dup(group->root_fd);
    st = vb_group_open(&opts, &g);
    if (st != VB_OK)
        return st;
    st = vb_bench_transfer(g, o, rungs, &wrong);
    vb_group_close(g);
    *wrong_p += wrong;
    return st;
}

/* Measures the ladder: memcpy, then each transport, or only the transport that --transport
 * names. */
static vb_status climb(const struct vb_group_opts *group, const struct vb_bench_opts *o,
                       int64_t *wrong_p)
{
    struct vb_bench_rungs rungs = {0};
    vb_status st = VB_OK;

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

/* Measures a collective or the parameter server, in one group. */
static vb_status collective(const struct vb_group_opts *group, enum what what,
                            const struct vb_bench_opts *o, const struct cli_bench_ps *ps,
                            int64_t *wrong_p)
{
    struct vb_group_opts opts = *group;
    struct vb_group *g;
    vb_status st;

    if (opts.world == 1 && opts.root == NULL)
        opts.root = "127.0.0.1:0"; /* a single rank needs an address, but nobody connects to it */
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

/* Gives each rank its own core if there are enough cores. Does nothing if the number of ranks on
 * this host is unknown: some launchers do not tell the number, and neither does a user who starts
 * ranks by hand. */
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
                    what == TRANSFER ? "bytes differ from those that were sent"
                    : what == PS     ? "parameters differ from the result of the pushes"
                                     : "numbers differ from the correct sum");
    return cli_finish(cli_exit_code(st));
}

#define BATCH 32
#define SPARSE_BATCH 100
#define CHECK_BATCH 4 /* the reference in double precision is slow */

/* bench kernels is the only bench that runs without ranks. */
static int kernels(const struct bench_args *args)
{
    struct vb_bench_kernels o = {.batch = (int)args->batch,
                                 .seconds = args->step.seconds,
                                 .fast_math = args->step.fast_math,
                                 .json = args->step.json};
    struct vb_placement_want want = {.ranks = 1, .threads = (int)args->step.threads};
    struct vb_topo_source this_machine = {0};
    struct cli_names models = cli_model_names(true);
    struct vb_topo *topo = NULL;
    struct vb_placement *placement = NULL;
    const char *model;
    vb_status st;
    int code = cli_find_model(&cli_bench, "bench kernels needs a model: --model", args->step.model,
                              &models, &model);

    if (code >= 0)
        return code;
    o.model = model;
    o.table = vb_layer_table_find(model);
    if (o.table == NULL && args->check)
        return cli_refuse(&cli_bench, "--check: sparse-lr has no layers");
    if (o.table == NULL &&
        (args->features < VB_SYNTH_ROW_FEATURES_MIN || args->features > INT32_MAX))
        return cli_refuse(&cli_bench, "--features: rows are generated with %d to %d features",
                          VB_SYNTH_ROW_FEATURES_MIN, INT32_MAX);
    if (o.batch == 0)
        o.batch = args->check ? CHECK_BATCH : o.table == NULL ? SPARSE_BATCH : BATCH;
    o.features = (int)args->features;
    st = vb_topo_open(&this_machine, &topo);
    if (st == VB_OK)
        st = vb_placement_create(topo, &want, &placement);
    if (st == VB_OK)
        st = vb_placement_pin_team(topo, placement, 0);
    if (st == VB_OK) {
        o.threads = placement->threads;
        st = args->check       ? vb_bench_kernels_rounding(&o)
             : o.table == NULL ? vb_bench_kernels_sparse(&o)
                               : vb_bench_kernels(&o);
    }
    vb_placement_destroy(placement);
    vb_topo_close(topo);
    return cli_finish(cli_exit_code(st));
}

static int run_parsed(const struct cli_command *command, const struct bench_args *args,
                      struct cli_job *job, const struct vb_opts *parsed)
{
    struct vb_step_opts step_opts;
    struct vb_group_opts group;
    struct vb_bench_opts opts;
    struct cli_bench_ps ps;
    struct vb_launch launch;
    enum what what = TRANSFER;
    int code = check_alone(parsed, args, &what);

    if (code < 0)
        code = cli_job_place(command, job, &launch, &group);
    if (code < 0)
        code = check(what, args, &group, &opts, &ps);
    if (code < 0 && what == KERNELS)
        return kernels(args);
    if (code < 0 && what == STEP)
        code = cli_bench_step_check(&args->step, &launch, &group, job->parsed.n > 0, &step_opts);
    if (code >= 0 || cli_job_launch(job, &launch, &group, &code))
        return code;
    if (what == STEP)
        return cli_bench_step(&args->step, &step_opts);
    return measure(&launch, &group, what, &opts, &ps);
}

static struct cli_names bench_names(void)
{
    struct cli_names list = {.n = BENCHES};

    memcpy(list.list, names, sizeof(names));
    return list;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct bench_args args;
    struct cli_job job = {0};
    struct vb_opt_group groups[4 + CLI_JOB_GROUPS] = {
        {"Measurements", common_opts, VB_COUNT(common_opts), &args},
        {"transfer, allreduce and sparse-allreduce", coll_opts, VB_COUNT(coll_opts), &args},
        {"kernels and step", model_opts, VB_COUNT(model_opts), &args},
        {"ps", ps_opts, VB_COUNT(ps_opts), &args},
    };
    struct vb_opts parsed;
    int code;

    cli_job_groups(&job, groups + 4);
    code = cli_job_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &job, &parsed);
    if (code < 0)
        code = run_parsed(command, &args, &job, &parsed);
    free(job.argv);
    return code;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "measure transports, collectives, kernels, training steps and parameter servers",
    .usage = "WHAT [OPTIONS]",
    .about = "Measures one part of the engine. WHAT is one of\n"
             "\n"
             "  transfer          latency and bandwidth of put and get between two ranks\n"
             "  allreduce         sums of float32 arrays over all ranks\n"
             "  sparse-allreduce  sums of sparse gradients over all ranks\n"
             "  kernels           each layer of a model with each backend that can compute it\n"
             "  step              how a training step divides into computing and communication\n"
             "  ps                pushes to and pulls from parameter servers\n"
             "\n"
             "  verbena bench transfer --ranks 2\n"
             "  verbena bench allreduce --hosts node0,node1 --sizes 64,1M --json\n"
             "  verbena bench kernels --model alexnet --batch 32",
    .details =
        "transfer: Puts and gets between ranks 0 and 1, for each size. Latency is the time of one "
        "put\nfrom posting it to the arrival of its note, as p50 and p99. Bandwidth is that of a "
        "stream of\nputs, in one direction and in both. \"round\" is the time in which every rank "
        "puts to the\nnext rank. The rows form a ladder: memcpy, shared memory, TCP; each has its "
        "percentage of the\nrow before. All bytes are checked before the measurement. Over RDMA, "
        "the line below the table\nand the keys retries, out_of_seq and rnr show what the ports of "
        "all hosts counted: retries,\npackets out of sequence and receivers that were not ready.\n"
        "\n"
        "allreduce: Sums of float32, in place, for each size. The time is that of the slowest "
        "rank, as\nmedian and p99. algbw is bytes over time. busbw is algbw times 2(n-1)/n, which "
        "is what the\nlinks carry. The table also has the bytes that the busiest rank sent. The "
        "sums are checked\nbefore and after; if one is wrong, the exit code is 1.\n"
        "\n"
        "sparse-allreduce: The same for lists of (index, value) that resemble click data. A size "
        "is\nthat of one rank's list, 8 bytes per entry, before duplicates are merged.\n"
        "\n"
        "kernels: The time of the fastest run of each pass, its GFLOP/s (counted as a direct\n"
        "convolution), and its share of the fastest BLAS matrix product in the same run. A mark "
        "shows\nthe kernel that a plan would choose. With --check, the errors of all kernels "
        "against double\nprecision, beside the error of one running sum of floats. Kernels that "
        "round more than twice\nas much are chosen only with --fast-math; if another one does, the "
        "exit code is 1.\n"
        "For sparse-lr, the mean time of each pass of a step, for a batch and for an entry of a "
        "row.\n"
        "Beside forward and update, that of a plain loop on one thread; a mark shows what training "
        "uses.\n"
        "\n"
        "step: For each batch, the time of computing, of the transfer alone, and of the exposed\n"
        "transfer: the time of a step minus that of a step without sums over ranks, at least 0. "
        "The\nthree are measured in turn; each figure is the median of the slowest rank. \"bytes\" "
        "is the\namount that one rank contributes. The last line says from which batch on "
        "computing takes at\nleast as long as the transfer, according to a line through the "
        "points.\n"
        "\n"
        "ps: Pushes, pulls and both, dense for each size and sparse for each number of keys. Each\n"
        "worker has one operation at a time. The time is that of the slowest worker, as median "
        "and\np99. --ranks counts workers and servers, and the last ranks are the servers; in "
        "train\nit counts workers only. For each operation, the "
        "table has the CPU time "
        "of the\nservers' threads and the time that they spent applying updates; \"idle\" is the "
        "fraction of\ntheir time in which they had nothing to do.\n"
        "\n"
        "GB are 10^9 bytes.\n"
        "\n"
        "  verbena bench allreduce --ranks 3 --explain\n"
        "  verbena bench allreduce --ranks 2 --sizes 256K --in-flight 16\n"
        "  verbena bench sparse-allreduce --ranks 2 --algo all\n"
        "  verbena bench step --model lenet --ranks 2 --transport tcp --plot step.svg\n"
        "  verbena bench ps --ranks 3 --transport tcp --sizes 4K,1M --keys 2000",
    .words = bench_names,
    .run = run,
};
