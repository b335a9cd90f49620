/* SPDX-License-Identifier: MIT
 *
 * verbena train: trains a model, on one rank or on many.
 *
 * With --ranks this process becomes their supervisor, and each rank is this program again with the
 * same arguments. So everything that can be wrong with the arguments is found before that.
 */
#include "cli/hosts.h"
#include "cli/train_join.h"
#include "cli/train_print.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_MAX INT64_C(1000000000000)
#define BATCH_MAX 100000000

struct train_args {
    const char *data, *test_data;
    double test_split;
    int64_t input, features, batch, global_batch;
    int64_t epochs, steps, samples;
    int64_t seed, threads;
    double lr, momentum, weight_decay, clip;
    int64_t warmup;
    int schedule, rule;
    int64_t eval_every, test_limit, checkpoint_every;
    const char *checkpoint, *run, *plan;
    bool resume, dry_run;
    int mode, order, algo;
    int64_t bucket, check_replicas;
    int64_t servers, replicas, staleness, backup, max_workers;
    bool dedicated, hogwild;
    const char *slow, *join;
    int pin;
    bool json;
};

#define FIELD(name) offsetof(struct train_args, name)

static const char *const models[] = {"softmax", "sparse-lr", "lenet", "alexnet"};
static const char *const mode_choices[] = {"sync", "single", "async",
                                           NULL}; /* as in enum vb_mode */
static const char *const pin_choices[] = {"on", "off", NULL};
static const char *const schedule_choices[] = {"auto", "constant", "step", "cosine",
                                               NULL}; /* as in its enum */
static const char *const rule_choices[] = {"auto",    "sgd",  "momentum", "nesterov",
                                           "adagrad", "ftrl", NULL};
static const char *const order_choices[] = {"rank", "any", NULL}; /* as in enum vb_order */
static const char *const algo_choices[] = {
    "auto", "mapped",  "gather",    "exchange", "chain",
    "ring", "halving", "two-level", NULL}; /* as in enum vb_algo */

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
    {"mode", VB_OPT_CHOICE, FIELD(mode), "sync", 0, 0, mode_choices, "MODE",
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
    {"rule", VB_OPT_CHOICE, FIELD(rule), "auto", 0, 0, rule_choices, "RULE", "update rule"},
    {"momentum", VB_OPT_REAL, FIELD(momentum), "-1", -1, 1, NULL, "M",
     "for the rules momentum and nesterov; -1: 0.9"},
    {"weight-decay", VB_OPT_REAL, FIELD(weight_decay), "-1", -1, 1, NULL, "W",
     "-1: as suits the model"},
    {"clip", VB_OPT_REAL, FIELD(clip), "-1", -1, 1000000, NULL, "NORM",
     "largest norm of a gradient; 0: any, -1: as suits the model"},
};

static const struct vb_opt keep_opts[] = {
    {"checkpoint", VB_OPT_TEXT, FIELD(checkpoint), NULL, 0, 0, NULL, "DIR",
     "write checkpoints there"},
    {"checkpoint-every", VB_OPT_INT, FIELD(checkpoint_every), NULL, 1, STEPS_MAX, NULL, "S",
     "every S steps, not at the end alone"},
    {"resume", VB_OPT_FLAG, FIELD(resume), NULL, 0, 0, NULL, NULL,
     "go on from the newest checkpoint there, to the bits of a run that never stopped"},
    {"plan", VB_OPT_TEXT, FIELD(plan), NULL, 0, 0, NULL, "FILE",
     "which kernels compute, a line each; else the fastest, by timing"},
    {"run", VB_OPT_TEXT, FIELD(run), NULL, 0, 0, NULL, "DIR",
     "write run.json there, and plan: which kernels computed"},
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
    {"threads", VB_OPT_INT, FIELD(threads), "1", 0, VB_PLAN_THREADS_MAX, NULL, "T",
     "compute threads a rank; 0: as many as the machine suggests"},
    {"pin", VB_OPT_CHOICE, FIELD(pin), "on", 0, 0, pin_choices, "on|off",
     "give threads cores of their own"},
    {"order", VB_OPT_CHOICE, FIELD(order), "rank", 0, 0, order_choices, "ORDER",
     "of the additions over ranks: rank gives the same bits over any transport"},
    {"algo", VB_OPT_CHOICE, FIELD(algo), "auto", 0, 0, algo_choices, "HOW",
     "how gradients are summed"},
    {"bucket", VB_OPT_INT, FIELD(bucket), NULL, 4, INT64_C(1) << 40, NULL, "BYTES",
     "gradients that are summed together; else what the measured link takes well"},
    {"check-replicas", VB_OPT_INT, FIELD(check_replicas), NULL, 1, STEPS_MAX, NULL, "S",
     "compare the ranks' parameters every S steps, not at the end alone"},
    {"slow", VB_OPT_TEXT, FIELD(slow), NULL, 0, 0, NULL, "R:F",
     "to try it: rank R takes F times as long to compute"},
};

/* ---- what was asked for ---------------------------------------------------------------------- */

static int refuse(const char *why)
{
    fprintf(stderr, "verbena train: %s\n", why);
    return CLI_USAGE;
}

static int find_model(const struct vb_opts *parsed, const char **model_p)
{
    char why[VB_OPTS_WHY];
    const char *best;
    size_t i;

    if (parsed->n_operands == 0)
        return refuse("which model? softmax, sparse-lr, lenet or alexnet");
    for (i = 0; i < VB_COUNT(models); i++)
        if (strcmp(parsed->operands[0], models[i]) == 0) {
            *model_p = models[i];
            return -1;
        }
    best = vb_nearest(parsed->operands[0], models, VB_COUNT(models));
    snprintf(why, sizeof(why), "unknown model %.64s; %s%s%s", parsed->operands[0],
             best != NULL ? "did you mean " : "there are softmax, sparse-lr, lenet and alexnet",
             best != NULL ? best : "", best != NULL ? "?" : "");
    return refuse(why);
}

static int check_async(const struct train_args *a, const struct vb_train_opts *o)
{
    int64_t servers = a->servers > 0 ? a->servers : 1;
    int64_t workers = o->group.world - (a->dedicated ? servers * a->replicas : 0);

    if (a->mode != VB_MODE_ASYNC) {
        if (a->servers > 0 || a->dedicated || a->staleness >= 0 || a->backup > 0 || a->hogwild ||
            a->max_workers > 0 || a->replicas > 1)
            return refuse("--servers, --dedicated-servers, --replicas, --staleness, --backup, "
                          "--hogwild and --max-workers are for --mode async");
        return -1;
    }
    if (a->check_replicas > 0)
        return refuse("--check-replicas is for --mode sync");
    if (workers < 1)
        return refuse("--dedicated-servers: the ranks that are left over must be one at least");
    if (a->replicas > 1 && (a->hogwild || servers > 32 || (!a->dedicated && workers < 2)))
        return refuse("--replicas 2 needs a second rank or --dedicated-servers, has 32 servers at "
                      "most, and no --hogwild");
    if (!a->dedicated && servers > workers)
        return refuse("--servers: at most one a rank, or more with --dedicated-servers");
    if (a->backup > 0 && a->staleness != 0)
        return refuse("--backup needs --staleness 0");
    if (a->backup >= workers)
        return refuse("--backup: must leave one gradient at least");
    if (a->backup > 0 && servers > 1)
        return refuse("--backup needs one server: several would not drop the same gradients");
    if (a->hogwild && (a->staleness >= 0 || servers > 1))
        return refuse("--hogwild has no --staleness, and one server");
    if (a->hogwild && o->group.transport > VB_TRANSPORT_SHM)
        return refuse("--hogwild: updates in place need shared memory");
    if (a->max_workers > 0 && a->max_workers < workers)
        return refuse("--max-workers: there are more at the start");
    return -1;
}

/* Options that contradict each other. */
static int check_together(const struct train_args *a, const struct vb_train_opts *o)
{
    if (a->batch > 0 && a->global_batch > 0)
        return refuse("--batch or --global-batch: not both");
    if ((a->epochs > 0) + (a->steps > 0) + (a->samples > 0) > 1)
        return refuse("--epochs, --steps or --samples: one of them");
    if (a->mode == VB_MODE_SINGLE && o->group.world > 1)
        return refuse("--mode single has one rank");
    if (a->test_data != NULL && a->test_split > 0)
        return refuse("--test-data or --test-split: not both");
    if (a->input != 0 && strcmp(o->model, "alexnet") != 0)
        return refuse("--input is for alexnet");
    if (a->input != 0 && a->input != 32 && a->input != 224)
        return refuse("--input is 32 or 224");
    if (a->checkpoint == NULL && (a->resume || a->checkpoint_every > 0))
        return refuse("--resume and --checkpoint-every need --checkpoint DIR");
    return check_async(a, o);
}

/* What can be told before the data is opened. */
static int check_batch(const struct train_args *a, const struct vb_train_opts *o)
{
    int world = vb_train_workers(o);
    int64_t global = a->global_batch > 0 ? a->global_batch : a->batch * world;
    const struct vb_data_spec *data = &o->data.data;
    bool known = data->format == VB_DATA_SYNTH && data->n_given;
    char why[VB_OPTS_WHY];

    if (global == 0 || (global >= world && (!known || global <= data->n_train)))
        return -1;
    snprintf(why, sizeof(why), "%lld samples in a step: must be from %d, one a rank",
             (long long)global, world);
    if (known)
        snprintf(why + strlen(why), sizeof(why) - strlen(why), ", to %d, all there are",
                 data->n_train);
    return refuse(why);
}

static int fill_data(const struct train_args *a, struct vb_data_spec *test, struct vb_train_opts *o)
{
    char why[VB_OPTS_WHY];

    if (vb_data_spec_parse(a->data, &o->data.data, why) != VB_OK)
        return refuse(why);
    if (a->test_data != NULL && vb_data_spec_parse(a->test_data, test, why) != VB_OK)
        return refuse(why);
    if (a->features > 0)
        o->data.data.features = test->features = (int)a->features;
    o->data.test = a->test_data != NULL ? test : NULL;
    o->data.test_share = a->test_split;
    o->data_text = a->data;
    o->test_text = a->test_data;
    return check_batch(a, o);
}

static int fill_slow(const char *text, struct vb_train_opts *o)
{
    char rest;

    if (text == NULL)
        return -1;
    if (sscanf(text, "%d:%lf%c", &o->slow_rank, &o->slow_factor, &rest) != 2 || o->slow_rank < 0 ||
        o->slow_rank >= o->group.world || !(o->slow_factor >= 1 && o->slow_factor <= 1000))
        return refuse("--slow RANK:FACTOR: a rank that there is, and a factor from 1 to 1000");
    return -1;
}

static void fill_rule(const struct train_args *a, struct vb_train_opts *o)
{
    o->lr = a->lr;
    o->schedule = (enum vb_schedule)a->schedule;
    o->warmup = a->warmup;
    o->rule = a->rule > 0 ? rule_choices[a->rule] : NULL;
    o->momentum = a->momentum;
    o->weight_decay = a->weight_decay;
    o->clip = a->clip;
}

/* Returns -1 to go on, or the exit code. The group is there already. */
static int fill_opts(const struct train_args *a, const struct vb_launch *launch,
                     struct vb_data_spec *test, struct vb_train_opts *o)
{
    int rc = check_together(a, o);

    if (rc >= 0)
        return rc;
    o->input = (int)a->input;
    o->mode = (enum vb_mode)a->mode;
    o->batch = a->batch;
    o->global_batch = a->global_batch;
    o->epochs = a->epochs;
    o->steps = a->steps;
    o->samples = a->samples;
    o->seed = (uint64_t)a->seed;
    o->eval_every = a->eval_every;
    o->test_limit = a->test_limit;
    o->checkpoint = a->checkpoint;
    o->checkpoint_every = a->checkpoint_every;
    o->resume = a->resume;
    o->plan = a->plan;
    o->dry_run = a->dry_run;
    o->coll.order = (enum vb_order)a->order;
    o->coll.algo = (enum vb_algo)a->algo;
    o->bucket_bytes = a->bucket;
    o->check_replicas = a->check_replicas;
    o->async = (struct vb_async_opts){.servers = (int)a->servers,
                                      .dedicated = a->dedicated,
                                      .bounded = a->staleness >= 0,
                                      .staleness = a->staleness,
                                      .backup = (int)a->backup,
                                      .hogwild = a->hogwild,
                                      .max_workers = (int)a->max_workers,
                                      .replicas = (int)a->replicas};
    o->threads = (int)a->threads;
    o->pin = a->pin == 0;
    fill_rule(a, o);
    if (launch->supervised) {
        o->local_rank = launch->local_rank;
        o->local_ranks = launch->local_ranks;
    }
    rc = fill_slow(a->slow, o);
    return rc >= 0 ? rc : fill_data(a, test, o);
}

/* ---- doing it -------------------------------------------------------------------------------- */

static int train(const struct train_args *a, struct vb_train_opts *o)
{
    bool single = o->group.world == 1 && o->mode != VB_MODE_ASYNC;
    const char *mode = single ? "single" : mode_choices[o->mode];
    struct vb_train_result result;
    bool terminal = isatty(STDERR_FILENO) == 1;
    vb_status st;

    if (o->joined != NULL)
        vb_log_set_rank(vb_joined_rank(o->joined));
    else
        vb_log_set_rank(o->group.world > 1 ? o->group.rank : -1);
    if (terminal)
        o->watch = cli_train_watch;
    if (o->group.rank == 0 && o->joined == NULL && a->run != NULL && vb_dir_make(a->run) != VB_OK)
        return CLI_FAILED;
    st = vb_train(o, &result);
    if (terminal)
        cli_train_watch_end();
    if (st != VB_OK)
        return cli_exit_code(st);
    if (result.reports)
        st = cli_train_print(mode, o, &result, a->json);
    if (result.reports && a->run != NULL && st == VB_OK)
        st = vb_dir_make(a->run); /* it may be another rank, on another host */
    if (result.reports && a->run != NULL && st == VB_OK)
        st = cli_train_keep(a->run, mode, o, &result);
    vb_train_result_fini(&result);
    return cli_finish(cli_exit_code(st));
}

/* Ranks that only compute may die, and servers that have a standby: asynchronous training goes on
 * without them. */
static void fill_outlive(const struct train_args *a, const struct vb_train_opts *o,
                         struct cli_job *job)
{
    int servers = a->servers > 0 ? (int)a->servers : 1;

    job->workers = vb_train_workers(o);
    job->vital = a->dedicated ? job->workers : 0;
    job->vital_end = job->vital + (a->replicas > 1 ? 0 : servers);
}

static int run_job(const struct cli_command *command, const struct train_args *args,
                   const char *model, struct cli_job *job, struct cli_hosts *hosts, int argc,
                   char **argv)
{
    struct vb_train_opts o = {.model = model};
    struct vb_data_spec test = {0};
    struct vb_launch launch;
    char *words;
    int rc;

    job->outlive = args->mode == VB_MODE_ASYNC;
    rc = cli_hosts_place(command, hosts, job, &launch, &o.group);
    if (rc < 0)
        rc = fill_opts(args, &launch, &test, &o);
    if (rc < 0)
        fill_outlive(args, &o, job);
    o.joinable =
        job->outlive && (job->secret_file != NULL || (launch.has_secret && !launch.supervised));
    if (rc >= 0 || cli_hosts_launch(command, hosts, job, &o.group, argc, argv, &rc) ||
        cli_job_supervise(command, job, &launch, &o.group, argc, argv, &rc))
        return rc;
    words = o.joinable ? cli_join_words(argc, argv, &o.words_len) : NULL;
    o.joinable = words != NULL;
    o.words = words;
    o.say = cli_join_say;
    rc = train(args, &o);
    free(words);
    return rc;
}

#define GROUPS 7

/* All that there is to be asked for. */
struct asked {
    struct train_args args;
    struct cli_hosts hosts;
    struct cli_job job;
    struct vb_opt_group groups[GROUPS];
};

static void asked_init(struct asked *a)
{
    const struct vb_opt_group groups[GROUPS] = {
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

/* The job's words, and then one's own. data_p: the job's data, which is to be compared, whatever
 * the newcomer calls it. */
static int parse_joined(const struct cli_command *command, const struct vb_joined *joined, int argc,
                        char **argv, struct asked *a, const char **data_p, const char **model_p)
{
    int n = 0, all_n = 0, rc = CLI_FAILED;
    char **words = cli_join_arguments(joined, 0, NULL, &n);
    char **all = cli_join_arguments(joined, argc, argv, &all_n);
    struct vb_opts parsed;

    if (words != NULL && all != NULL)
        rc = cli_parse(command, a->groups, GROUPS, 1, n, words, &parsed);
    *data_p = a->args.data;
    if (rc < 0)
        rc = cli_parse(command, a->groups, GROUPS, 1, all_n, all, &parsed);
    if (rc < 0)
        rc = find_model(&parsed, model_p);
    free(words);
    free(all);
    return rc;
}

static int train_joined(const struct cli_command *command, struct vb_joined *joined, int argc,
                        char **argv, struct asked *a, struct vb_train_opts *o)
{
    struct vb_launch launch = {.root_fd = -1};
    struct vb_data_spec test = {0};
    const char *data = NULL;
    int rc = parse_joined(command, joined, argc, argv, a, &data, &o->model);

    if (rc >= 0)
        return rc;
    o->group.rank = 0;
    o->group.world = vb_joined_world(joined);
    rc = fill_opts(&a->args, &launch, &test, o);
    if (rc >= 0)
        return rc;
    o->data_text = data;
    o->plan = NULL; /* it comes with the job */
    o->joined = joined;
    return train(&a->args, o);
}

static int join(const struct cli_command *command, int argc, char **argv, struct asked *a)
{
    struct vb_train_opts o = {0};
    struct vb_joined *joined = NULL;
    int rc = cli_join_open(command, a->args.join, &a->job, &o.group, &joined);

    if (rc >= 0)
        return rc;
    rc = train_joined(command, joined, argc, argv, a, &o);
    vb_joined_leave(joined);
    return rc;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct asked a;
    char **given = cli_job_arguments(argc, argv);
    const char *model = NULL;
    struct vb_opts parsed;
    int rc;

    if (given == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    asked_init(&a);
    rc = cli_parse(command, a.groups, GROUPS, 1, argc, argv, &parsed);
    if (rc < 0 && a.args.join != NULL) {
        rc = parsed.n_operands > 0 ? refuse("--join: the model is the job's")
                                   : join(command, argc, given, &a);
        free(given);
        return rc;
    }
    if (rc < 0)
        rc = find_model(&parsed, &model);
    if (rc < 0 && a.args.lr == 0 && vb_opts_given(&parsed, "lr")) /* 0 stands for none given */
        rc = refuse("--lr 0 would learn nothing: leave it out for what suits model and batch");
    if (rc < 0 && a.args.dedicated && a.job.world == 0 && a.hosts.hosts == NULL)
        a.job.ranks += (a.args.servers > 0 ? a.args.servers : 1) *
                       a.args.replicas; /* --ranks counts workers */
    if (rc < 0)
        rc = run_job(command, &a.args, model, &a.job, &a.hosts, argc, given);
    free(given);
    return rc;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model, on one rank or on many",
    .usage = "MODEL [--data SPEC] [--ranks N] [--transport HOW] [--json] ...",
    .about =
        "Trains MODEL and says how well it does on test data and where the time went. There are\n"
        "softmax (softmax regression), sparse-lr (sparse logistic regression), lenet and alexnet.\n"
        "\n"
        "  verbena train lenet                           on drawn digits, one rank\n"
        "  verbena train lenet --data mnist:DIR          on MNIST\n"
        "  verbena train softmax --ranks 2               two ranks, over shared memory\n"
        "  verbena train softmax --ranks 4 --transport tcp --global-batch 100 --json\n"
        "\n"
        "Ranks on several hosts are started over ssh, or by hand, each with its number:\n"
        "\n"
        "  verbena train lenet --hosts node0:2,node1:2\n"
        "  verbena train softmax --rank 1 --world 2 --root node0:7000 --secret-file job.key\n"
        "\n"
        "What a step trains on depends on the seed and the global batch alone. All ranks end with\n"
        "the same parameters to the last bit, over any transport.",
    .run = run,
};
