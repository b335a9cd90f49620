/* SPDX-License-Identifier: MIT */
#include "cli/train/cmd_train.h"
#include "topo/topo.h"

#include <string.h>

#define STEPS_MAX INT64_C(1000000000000)
#define BATCH_MAX 100000000
#define BYTES_MAX (INT64_C(1) << 40)

#define FIELD(name) offsetof(struct train_args, name)

const char *const cli_train_modes[] = {"sync", "single", "async", NULL};
const char *const cli_train_rules[] = {"auto", VB_K_RULES, NULL};

/* names in the order of enum vb_schedule and of enum vb_algo */
static const char *const schedule_choices[] = {"auto", "constant", "step", "cosine", NULL};
static const char *const algo_choices[] = {"auto",  "mapped", "gather",  "exchange",  "owner",
                                           "chain", "ring",   "halving", "two-level", NULL};

static const struct vb_opt train_opts[] = {
    {"data", VB_OPT_TEXT, FIELD(data), "synth", .arg = "SPEC",
     .help = "training data, such as mnist:DIR or cifar10:DIR; synth is generated data. 'verbena "
             "data --help' lists all formats"},
    {"test-data", VB_OPT_TEXT, FIELD(test_data), .arg = "SPEC", .level = VB_OPT_MORE,
     .help = "test data; without it, the test part of --data is used"},
    {"test-split", VB_OPT_REAL, FIELD(test_split), "-1", .min = -1, .max = 1, .arg = "F",
     .level = VB_OPT_MORE,
     .help = "fraction of --data to hold out for testing; 0: none; -1: a fifth if --data has no "
             "test part"},
    {"test-limit", VB_OPT_INT, FIELD(test_limit), .min = 1, .max = INT32_MAX, .arg = "N",
     .level = VB_OPT_MORE, .help = "test with the first N test samples only"},
    {"input", VB_OPT_INT, FIELD(input), .min = 32, .max = 224, .arg = "SIDE", .level = VB_OPT_MORE,
     .help = "alexnet only: size of the images, 224 or 32; 32 is a smaller network"},
    {"features", VB_OPT_INT, FIELD(features), .min = 1, .max = INT32_MAX, .arg = "N",
     .level = VB_OPT_MORE,
     .help = "sparse-lr only: number of features. All indices must be below N; criteo and synth "
             "data are hashed to indices below N"},
    {"batch", VB_OPT_INT, FIELD(length.batch), .min = 1, .max = BATCH_MAX, .arg = "B",
     .help =
         "samples per rank in a step; by default 100, lenet 64, alexnet 32, fewer for many ranks"},
    {"global-batch", VB_OPT_INT, FIELD(length.global_batch), .min = 1, .max = BATCH_MAX, .arg = "G",
     .help = "samples of all ranks together in a step, instead of --batch"},
    {"epochs", VB_OPT_INT, FIELD(length.epochs), .min = 1, .max = 1000000, .arg = "E",
     .help = "passes over the training data; by default 5, lenet 6, sparse-lr 2, and more for "
             "small data"},
    {"steps", VB_OPT_INT, FIELD(length.steps), .min = 1, .max = STEPS_MAX, .arg = "S",
     .help = "train for S steps, instead of --epochs"},
    {"samples", VB_OPT_INT, FIELD(length.samples), .min = 1, .max = STEPS_MAX, .arg = "N",
     .level = VB_OPT_MORE, .help = "train on N samples, instead of --epochs"},
    {"seed", VB_OPT_INT, FIELD(seed), "1", .max = INT64_MAX, .arg = "S",
     .help = "seed for initial parameters, sample order and generated data"},
    {"eval-every", VB_OPT_INT, FIELD(eval_every), .min = 1, .max = STEPS_MAX, .arg = "S",
     .help = "also test every S steps, not only at the end"},
    {"until", VB_OPT_TEXT, FIELD(until), .arg = "CONDITION",
     .help = "stop at the first test with accuracy=A, loss=L or plateau[:K], K tests without a "
             "better loss; a list stops at the first that holds"},
    {"mode", VB_OPT_CHOICE, FIELD(mode), "sync", .choices = cli_train_modes, .arg = "MODE",
     .help = "sync: ranks sum their gradients in each step; async: they use parameter servers"},
    {"elastic", VB_OPT_CHOICE, FIELD(elastic), "on", .choices = cli_on_off, .arg = "on|off",
     .help = "--mode sync: if ranks die, the others go on; off ends the job"},
    {"min-ranks", VB_OPT_INT, FIELD(min_ranks), .min = 1, .max = VB_WORLD_MAX, .arg = "N",
     .level = VB_OPT_MORE,
     .help = "fewer ranks than N do not go on when others have died: they save, wait for "
             "--wait-ranks seconds for others to join, and end"},
    {"wait-ranks", VB_OPT_REAL, FIELD(wait_ranks), "60", .max = 1000000, .arg = "SECONDS",
     .level = VB_OPT_MORE, .help = "how long --min-ranks waits"},
    {"restart", VB_OPT_INT, FIELD(restarts), .max = 1000000, .arg = "N", .level = VB_OPT_MORE,
     .help =
         "with --ranks or --hosts: start ranks again that have died, at most N times in all; they "
         "join the job"},
    {"join", VB_OPT_TEXT, FIELD(join), .arg = "HOST:PORT,...",
     .help = "join a running job as one more rank; options are those of the job, except the ones "
             "given here, such as --secret-file and --data"},
    {"mixed-cpus", VB_OPT_FLAG, FIELD(mixed_cpus), .level = VB_OPT_MORE,
     .help = "with --join and --mode sync: join although this host's CPU or libraries round in "
             "another way than those of the job; the bits of the result then depend on which rank "
             "computes which samples"},
    {"json", VB_OPT_FLAG, FIELD(json),
     .help = "print the result as one JSON object on the last line, instead of text"},
    {"dry-run", VB_OPT_FLAG, FIELD(dry_run),
     .help = "set everything up and print what each rank needs (descriptors, threads, memory), but "
             "do not train"},
};

static const char *const trace_format_choices[] = {"perfetto", "json", NULL};

static const struct vb_opt rule_opts[] = {
    {"lr", VB_OPT_REAL, FIELD(learn.lr), .max = VB_LR_MAX, .arg = "L",
     .help = "peak learning rate; by default chosen for model, rule, data and batch"},
    {"schedule", VB_OPT_CHOICE, FIELD(learn.schedule), "auto", .choices = schedule_choices,
     .arg = "SCHEDULE", .level = VB_OPT_MORE,
     .help = "how the learning rate changes; step divides it by 10 after each third of the run"},
    {"warmup", VB_OPT_INT, FIELD(learn.warmup), "-1", .min = -1, .max = STEPS_MAX, .arg = "S",
     .level = VB_OPT_MORE,
     .help = "steps in which the learning rate rises to its peak; -1: chosen for the model"},
    {"rule", VB_OPT_CHOICE, FIELD(rule), "auto", .choices = cli_train_rules, .arg = "RULE",
     .help = "update rule; each has its own default rate"},
    {"momentum", VB_OPT_REAL, FIELD(learn.momentum), "-1", .min = -1, .max = 1, .arg = "M",
     .level = VB_OPT_MORE, .help = "momentum of the rules momentum and nesterov; -1: 0.9"},
    {"weight-decay", VB_OPT_REAL, FIELD(learn.weight_decay), "-1", .min = -1, .max = 1, .arg = "W",
     .level = VB_OPT_MORE, .help = "weight decay; -1: chosen for the model"},
    {"clip", VB_OPT_REAL, FIELD(learn.clip), "-1", .min = -1, .max = 1000000, .arg = "NORM",
     .level = VB_OPT_MORE,
     .help = "largest norm of a gradient; 0: no limit, -1: chosen for the model"},
};

static const struct vb_opt keep_opts[] = {
    {"checkpoint", VB_OPT_TEXT, FIELD(save.dir), .arg = "DIR",
     .help = "write checkpoints to DIR; only the two newest are kept"},
    {"checkpoint-every", VB_OPT_INT, FIELD(save.every), .min = 1, .max = STEPS_MAX, .arg = "S",
     .help = "also write a checkpoint every S steps, not only at the end"},
    {"checkpoint-strict", VB_OPT_FLAG, FIELD(save.strict), .level = VB_OPT_MORE,
     .help = "a checkpoint that cannot be written ends the run; by default it is a warning, and "
             "training goes on"},
    {"resume", VB_OPT_FLAG, FIELD(save.resume),
     .help = "continue from the newest checkpoint in DIR, also with other ranks; with as many, the "
             "result has the same bits as that of a run without interruption"},
    {"other-data", VB_OPT_FLAG, FIELD(save.other_data), .level = VB_OPT_MORE,
     .help = "with --resume, continue although the training data is not that with which the run "
             "began"},
    {"run", VB_OPT_TEXT, FIELD(run), .arg = "DIR",
     .help = "record the run in DIR: run.json, steps, evaluations, logs, the choice of kernels"},
    {"ledger", VB_OPT_TEXT, FIELD(ledger), .arg = "FILE", .level = VB_OPT_MORE,
     .help = "append to FILE which samples each rank trains on in each step"},
    {"again", VB_OPT_TEXT, FIELD(again), .arg = "RUN",
     .help = "repeat the run that --run RUN has recorded; options that are given now override its "
             "own"},
    {"record-rate", VB_OPT_REAL, FIELD(record_rate), "1", .max = 10000, .arg = "MB/S",
     .level = VB_OPT_MORE,
     .help =
         "with --run: a rank that does not see DIR sends its records to rank 0, at most so many "
         "MB a second; what does not fit is lost and counted. 0: no limit"},
    {"trace", VB_OPT_TEXT, FIELD(trace), .arg = "FROM:TO",
     .help = "with --run: write what every thread of every rank does in steps FROM to TO to "
             "DIR/trace.pftrace, for https://ui.perfetto.dev"},
    {"trace-format", VB_OPT_CHOICE, FIELD(trace_format), "perfetto",
     .choices = trace_format_choices, .arg = "FORMAT", .level = VB_OPT_MORE,
     .help = "perfetto, or json: Chrome's format, in DIR/trace.json"},
    {"plan", VB_OPT_TEXT, FIELD(plan), .arg = "FILE", .level = VB_OPT_MORE,
     .help = "read the choice of kernels from FILE, which --run has written; without it, the "
             "kernels are timed and the fastest are used"},
};

static const struct vb_opt async_opts[] = {
    {"servers", VB_OPT_INT, FIELD(servers), .min = 1, .max = 64, .arg = "K",
     .help = "number of parameter servers, threads of the first ranks; by default 1"},
    {"dedicated-servers", VB_OPT_FLAG, FIELD(dedicated), .level = VB_OPT_MORE,
     .help =
         "run the servers in K additional processes, the last ranks; --ranks only counts workers"},
    {"replicas", VB_OPT_INT, FIELD(replicas), "1", .min = 1, .max = 2, .arg = "1|2",
     .level = VB_OPT_MORE,
     .help = "2: each server has a standby, which takes over if the server fails. The standby "
             "runs on the next rank or, with --dedicated-servers, in an additional process"},
    {"staleness", VB_OPT_INT, FIELD(staleness), "-1", .min = -1, .max = STEPS_MAX, .arg = "S",
     .help = "a worker may be S steps ahead of the slowest; 0 gives the same bits as sync, -1 is "
             "no limit"},
    {"backup", VB_OPT_INT, FIELD(backup), .min = 1, .max = VB_WORLD_MAX, .arg = "K",
     .level = VB_OPT_MORE,
     .help =
         "with --staleness 0: do not wait for the last K gradients of a step; they are dropped"},
    {"hogwild", VB_OPT_FLAG, FIELD(hogwild), .level = VB_OPT_MORE,
     .help = "workers on the server's host update its parameters in place, without a lock"},
    {"max-workers", VB_OPT_INT, FIELD(max_workers), .min = 1, .max = VB_WORLD_MAX, .arg = "N",
     .level = VB_OPT_MORE,
     .help =
         "largest number of workers, including those that join later; by default 4 more than at "
         "the start, or 1 more if the gradients are large"},
};

static const struct vb_opt speed_opts[] = {
    {"threads", VB_OPT_INT, FIELD(threads), "1", .max = VB_PLACEMENT_THREADS_MAX, .arg = "T",
     .help = "threads per rank; 0: as many as the machine suggests"},
    {"pin", VB_OPT_CHOICE, FIELD(pin), "on", .choices = cli_on_off, .arg = "on|off",
     .level = VB_OPT_MORE, .help = "bind each thread to a core of its own"},
    {"fast-math", VB_OPT_FLAG, FIELD(fast_math), .level = VB_OPT_MORE,
     .help = "also choose kernels that round more than sums of floats do, if they are faster: "
             "Winograd's convolutions with large tiles. 'verbena bench kernels --check' shows "
             "their errors"},
    {"wire", VB_OPT_CHOICE, FIELD(sums.coll.wire), "f32", .choices = cli_wires, .arg = "FORMAT",
     .help = "format of gradients in transit; bf16 halves the bytes, but rounds"},
    {"order", VB_OPT_CHOICE, FIELD(sums.coll.order), "rank", .choices = cli_orders, .arg = "ORDER",
     .level = VB_OPT_MORE,
     .help = "order of the additions; rank gives the same bits over every transport, any may be "
             "faster"},
    {"algo", VB_OPT_CHOICE, FIELD(sums.coll.algo), "auto", .choices = algo_choices,
     .arg = "ALGORITHM", .level = VB_OPT_MORE, .help = "allreduce algorithm"},
    {"bucket", VB_OPT_INT, FIELD(sums.bucket_bytes), .min = 4, .max = BYTES_MAX, .arg = "BYTES",
     .level = VB_OPT_MORE,
     .help =
         "size of the buckets in which gradients are summed; by default chosen for the measured "
         "network"},
    {"defer-bytes", VB_OPT_INT, FIELD(sums.defer_bytes), .min = 4, .max = BYTES_MAX, .arg = "BYTES",
     .level = VB_OPT_MORE, .alias = "hold-back",
     .help = "sum this many bytes of gradients after those of the first layers, because the next "
             "step begins with the first layers; by default as much as the network cannot transfer "
             "in time"},
    {"shared-update-min", VB_OPT_INT, FIELD(sums.shared_update_min), .min = 4, .max = BYTES_MAX,
     .arg = "BYTES", .level = VB_OPT_MORE, .alias = "share-out",
     .help =
         "if the parameters have at least this many bytes, each rank of a host updates one "
         "part of them in the copies of all ranks on that host; by default 32 MiB on x86, 16 KiB "
         "on other CPUs"},
    {"check-replicas", VB_OPT_INT, FIELD(sums.check_replicas), .min = 1, .max = STEPS_MAX,
     .arg = "S", .level = VB_OPT_MORE,
     .help = "compare the parameters of all ranks every S steps, not only at the end"},
    {"inject", VB_OPT_TEXT, FIELD(inject), .arg = "FAULTS", .level = VB_OPT_MORE,
     .help = "for experiments, a list separated by commas: kill:RANK@STEP, stop:RANK@STEP:SECONDS, "
             "slow:RANKxFACTOR or slow:RANKxFACTOR:PHASE (forward, backward, data or update), "
             "clock:RANK:SECONDS or clock:RANK:SECONDS:PPM"},
    {"replay-compute", VB_OPT_TEXT, FIELD(replay), .arg = "RUN", .level = VB_OPT_MORE,
     .help = "for experiments: ranks do not compute, but sleep for the times that --run RUN has "
             "recorded, and exchange gradients as always. So ranks that share a few cores behave "
             "as if each had its own. Nothing is learnt"},
    {"noise-scale", VB_OPT_CHOICE, FIELD(noise_scale), "on", .choices = cli_on_off, .arg = "on|off",
     .level = VB_OPT_HIDDEN,
     .help = "for experiments: off does not measure the gradient noise scale"},
    {"slow", VB_OPT_TEXT, FIELD(slow), .arg = "R:F", .level = VB_OPT_HIDDEN,
     .help = "for experiments: rank R takes F times as long to compute"},
};

void cli_train_asked_init(struct train_asked *a)
{
    const struct vb_opt_group first = {"Training", train_opts, VB_COUNT(train_opts), &a->args};
    const struct vb_opt_group last[] = {
        {"Learning rate and update rule", rule_opts, VB_COUNT(rule_opts), &a->args},
        {"Checkpoints and results", keep_opts, VB_COUNT(keep_opts), &a->args},
        {"Performance", speed_opts, VB_COUNT(speed_opts), &a->args},
        {"Asynchronous training (--mode async)", async_opts, VB_COUNT(async_opts), &a->args},
    };

    _Static_assert(1 + CLI_JOB_GROUPS + VB_COUNT(last) == TRAIN_GROUPS, "TRAIN_GROUPS is wrong");
    memset(a, 0, sizeof(*a));
    a->groups[0] = first;
    cli_job_groups(&a->job, a->groups + 1);
    memcpy(a->groups + 1 + CLI_JOB_GROUPS, last, sizeof(last));
}
