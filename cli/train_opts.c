/* SPDX-License-Identifier: MIT */
#include "cli/train_opts.h"

#include <string.h>

#define STEPS_MAX INT64_C(1000000000000)
#define BATCH_MAX 100000000

#define FIELD(name) offsetof(struct train_args, name)

const char *const cli_train_modes[] = {"sync", "single", "async", NULL}; /* as in enum vb_mode */
static const char *const pin_choices[] = {"on", "off", NULL};
static const char *const schedule_choices[] = {"auto", "constant", "step", "cosine",
                                               NULL}; /* as in its enum */
const char *const cli_train_rules[] = {"auto",    "sgd",  "momentum", "nesterov",
                                       "adagrad", "ftrl", NULL};
static const char *const order_choices[] = {"rank", "any", NULL}; /* as in enum vb_order */
static const char *const wire_choices[] = {"f32", "bf16", NULL};  /* as in enum vb_wire */
static const char *const algo_choices[] = {"auto",      "mapped", "gather", "exchange",
                                           "owner",     "chain",  "ring",   "halving",
                                           "two-level", NULL}; /* as in enum vb_algo */

static const struct vb_opt train_opts[] = {
    {"data", VB_OPT_TEXT, FIELD(data), "synth", 0, 0, NULL, "SPEC",
     "what to train on: mnist:DIR, cifar10:DIR, tfrecord:GLOB, libsvm:FILE, criteo:FILE, csr:FILE, "
     "or synth[:N] or synth:KEY=VALUE,...: made up"},
    {"test-data", VB_OPT_TEXT, FIELD(test_data), NULL, 0, 0, NULL, "SPEC",
     "what to test with, if not with the part of the data that is meant for it"},
    {"test-split", VB_OPT_REAL, FIELD(test_split), NULL, 0, 1, NULL, "F",
     "the share of the data to keep for testing, instead"},
    {"test-limit", VB_OPT_INT, FIELD(test_limit), NULL, 1, INT32_MAX, NULL, "N",
     "test with the first N samples alone"},
    {"input", VB_OPT_INT, FIELD(input), NULL, 32, 224, NULL, "SIDE",
     "alexnet: 224, or 32 for a smaller net on images of that size"},
    {"features", VB_OPT_INT, FIELD(features), NULL, 1, INT32_MAX, NULL, "N",
     "of sparse rows: indices are below N; criteo and synth hash into so many"},
    {"mode", VB_OPT_CHOICE, FIELD(mode), "sync", 0, 0, cli_train_modes, "MODE",
     "how ranks work together: async is a parameter server, --ranks counts its workers"},
    {"batch", VB_OPT_INT, FIELD(batch), NULL, 1, BATCH_MAX, NULL, "B",
     "samples of one rank in a step; else 100, lenet 64, alexnet 32"},
    {"global-batch", VB_OPT_INT, FIELD(global_batch), NULL, 1, BATCH_MAX, NULL, "G",
     "samples of all ranks in a step"},
    {"epochs", VB_OPT_INT, FIELD(epochs), NULL, 1, 1000000, NULL, "E",
     "how often to go through the data; else 5, lenet 6, sparse-lr 2"},
    {"steps", VB_OPT_INT, FIELD(steps), NULL, 1, STEPS_MAX, NULL, "S",
     "or: how many steps to make"},
    {"samples", VB_OPT_INT, FIELD(samples), NULL, 1, STEPS_MAX, NULL, "N",
     "or: how many samples to train on"},
    {"seed", VB_OPT_INT, FIELD(seed), "1", 0, INT64_MAX, NULL, "S",
     "decides the first parameters, the order of samples and what is made up"},
    {"eval-every", VB_OPT_INT, FIELD(eval_every), NULL, 1, STEPS_MAX, NULL, "S",
     "test every S steps, not at the end alone"},
    {"json", VB_OPT_FLAG, FIELD(json), NULL, 0, 0, NULL, NULL,
     "one JSON object on the last line instead of text"},
    {"dry-run", VB_OPT_FLAG, FIELD(dry_run), NULL, 0, 0, NULL, NULL,
     "set everything up, train nothing"},
};

static const struct vb_opt rule_opts[] = {
    {"lr", VB_OPT_REAL, FIELD(lr), NULL, 0, 1000, NULL, "L",
     "highest learning rate; else what suits model and global batch"},
    {"schedule", VB_OPT_CHOICE, FIELD(schedule), "auto", 0, 0, schedule_choices, "HOW",
     "what becomes of it: step is a tenth after each third"},
    {"warmup", VB_OPT_INT, FIELD(warmup), "-1", -1, STEPS_MAX, NULL, "S",
     "steps until it is reached; -1: as suits the model"},
    {"rule", VB_OPT_CHOICE, FIELD(rule), "auto", 0, 0, cli_train_rules, "RULE", "update rule"},
    {"momentum", VB_OPT_REAL, FIELD(momentum), "-1", -1, 1, NULL, "M",
     "for the rules momentum and nesterov; -1: 0.9"},
    {"weight-decay", VB_OPT_REAL, FIELD(weight_decay), "-1", -1, 1, NULL, "W",
     "-1: as suits the model"},
    {"clip", VB_OPT_REAL, FIELD(clip), "-1", -1, 1000000, NULL, "NORM",
     "largest norm of a gradient; 0: any, -1: as suits the model"},
};

static const struct vb_opt keep_opts[] = {
    {"checkpoint", VB_OPT_TEXT, FIELD(checkpoint), NULL, 0, 0, NULL, "DIR",
     "write checkpoints there; the two newest are kept"},
    {"checkpoint-every", VB_OPT_INT, FIELD(checkpoint_every), NULL, 1, STEPS_MAX, NULL, "S",
     "every S steps, not at the end alone"},
    {"resume", VB_OPT_FLAG, FIELD(resume), NULL, 0, 0, NULL, NULL,
     "go on from the newest checkpoint there, to the bits of a run that never stopped"},
    {"plan", VB_OPT_TEXT, FIELD(plan), NULL, 0, 0, NULL, "FILE",
     "which kernels compute, a line each; else the fastest, by timing"},
    {"run", VB_OPT_TEXT, FIELD(run), NULL, 0, 0, NULL, "DIR",
     "write run.json there, and plan, where kernels were chosen"},
};

static const struct vb_opt async_opts[] = {
    {"servers", VB_OPT_INT, FIELD(servers), NULL, 1, 64, NULL, "K",
     "parameters are shared out over K servers, threads of the first ranks; else 1"},
    {"dedicated-servers", VB_OPT_FLAG, FIELD(dedicated), NULL, 0, 0, NULL, NULL,
     "servers are K processes more, the last ranks, which do nothing else"},
    {"replicas", VB_OPT_INT, FIELD(replicas), "1", 1, 2, NULL, "1|2",
     "2: each server has a standby, on the next rank or K more processes, that takes over if it "
     "dies"},
    {"staleness", VB_OPT_INT, FIELD(staleness), "-1", -1, STEPS_MAX, NULL, "S",
     "a worker may be S steps ahead of the slowest; 0: the bits of sync, -1: no bound"},
    {"backup", VB_OPT_INT, FIELD(backup), NULL, 1, VB_WORLD_MAX, NULL, "K",
     "with --staleness 0: a step does not wait for the last K gradients, which are dropped"},
    {"hogwild", VB_OPT_FLAG, FIELD(hogwild), NULL, 0, 0, NULL, NULL,
     "workers on the server's host update its parameters in place, without a lock"},
    {"join", VB_OPT_TEXT, FIELD(join), NULL, 0, 0, NULL, "HOST:PORT",
     "be one more worker of a job that is under way, and has the same secret; all options are the "
     "job's but for those given here, such as --data and --threads"},
    {"max-workers", VB_OPT_INT, FIELD(max_workers), NULL, 1, VB_WORLD_MAX, NULL, "N",
     "those that join late included; else 4 more than at the start, 1 where gradients are large"},
};

static const struct vb_opt place_opts[] = {
    {"threads", VB_OPT_INT, FIELD(threads), "1", 0, VB_PLACEMENT_THREADS_MAX, NULL, "T",
     "threads a rank; 0: as many as the machine suggests. All compute, but for one of several of "
     "sparse-lr, which loads rows"},
    {"pin", VB_OPT_CHOICE, FIELD(pin), "on", 0, 0, pin_choices, "on|off",
     "give threads cores of their own"},
    {"order", VB_OPT_CHOICE, FIELD(order), "rank", 0, 0, order_choices, "ORDER",
     "of the additions over ranks: rank gives the same bits over any transport"},
    {"algo", VB_OPT_CHOICE, FIELD(algo), "auto", 0, 0, algo_choices, "HOW",
     "how gradients are summed"},
    {"wire", VB_OPT_CHOICE, FIELD(wire), "f32", 0, 0, wire_choices, "f32|bf16",
     "what gradients of dense models travel as: bf16 is half the bytes, and rounds what ranks "
     "bring and the sum"},
    {"bucket", VB_OPT_INT, FIELD(bucket), NULL, 4, INT64_C(1) << 40, NULL, "BYTES",
     "gradients that are summed together; else what the measured link takes well"},
    {"hold-back", VB_OPT_INT, FIELD(hold_back), NULL, 4, INT64_C(1) << 40, NULL, "BYTES",
     "gradients that are summed behind those of the first layers, with which the next step begins; "
     "else what the link has not done by then"},
    {"share-out", VB_OPT_INT, FIELD(share_out), NULL, 4, INT64_C(1) << 40, NULL, "BYTES",
     "parameters from which on ranks of one host update a share each, in the copies of all; else "
     "32 MiB on x86, 16 KiB on others"},
    {"check-replicas", VB_OPT_INT, FIELD(check_replicas), NULL, 1, STEPS_MAX, NULL, "S",
     "compare the ranks' parameters every S steps, not at the end alone"},
    {"slow", VB_OPT_TEXT, FIELD(slow), NULL, 0, 0, NULL, "R:F",
     "to try it: rank R takes F times as long to compute"},
};

void cli_train_asked_init(struct train_asked *a)
{
    const struct vb_opt_group groups[TRAIN_GROUPS] = {
        {"Training", train_opts, VB_COUNT(train_opts), &a->args},
        {"Learning", rule_opts, VB_COUNT(rule_opts), &a->args},
        {"What is kept", keep_opts, VB_COUNT(keep_opts), &a->args},
        {"Asynchronous", async_opts, VB_COUNT(async_opts), &a->args},
        {"Ranks", cli_job_opts, CLI_JOB_OPTS, &a->job},
        {"Hosts", cli_hosts_opts, CLI_HOSTS_OPTS, &a->hosts},
        {"Placement", place_opts, VB_COUNT(place_opts), &a->args},
    };

    memset(a, 0, sizeof(*a));
    memcpy(a->groups, groups, sizeof(groups));
}
