/* SPDX-License-Identifier: MIT
 *
 * verbena train: trains a model, on one rank or on many.
 *
 * With --ranks this process becomes their supervisor, and each rank is this program again with the
 * same arguments. So everything that can be wrong with the arguments is found before that.
 */
#include "cli/train_join.h"
#include "cli/train_opts.h"
#include "cli/train_print.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const models[] = {"softmax", "sparse-lr", "lenet", "alexnet"};

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

/* Options that contradict each other, by what the engine cannot know of them: the rest is for
 * vb_train_check(). */
static int check_together(const struct train_args *a, const struct vb_train_opts *o)
{
    if (a->batch > 0 && a->global_batch > 0)
        return refuse("--batch or --global-batch: not both");
    if ((a->epochs > 0) + (a->steps > 0) + (a->samples > 0) > 1)
        return refuse("--epochs, --steps or --samples: one of them");
    if (a->test_data != NULL && a->test_split > 0)
        return refuse("--test-data or --test-split: not both");
    if (a->input != 0 && strcmp(o->model, "alexnet") != 0)
        return refuse("--input is for alexnet");
    if (a->input != 0 && a->input != 32 && a->input != 224)
        return refuse("--input is 32 or 224");
    if (a->mode != VB_MODE_ASYNC &&
        (a->servers > 0 || a->dedicated || a->staleness >= 0 || a->backup > 0 || a->hogwild ||
         a->max_workers > 0 || a->replicas > 1))
        return refuse("--servers, --dedicated-servers, --replicas, --staleness, --backup, "
                      "--hogwild and --max-workers are for --mode async");
    return -1;
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

static struct vb_async_opts async_opts(const struct train_args *a)
{
    return (struct vb_async_opts){.servers = (int)a->servers,
                                  .dedicated = a->dedicated,
                                  .bounded = a->staleness >= 0,
                                  .staleness = a->staleness,
                                  .backup = (int)a->backup,
                                  .hogwild = a->hogwild,
                                  .max_workers = (int)a->max_workers,
                                  .replicas = (int)a->replicas};
}

static void fill_rule(const struct train_args *a, struct vb_train_opts *o)
{
    o->lr = a->lr;
    o->schedule = (enum vb_schedule)a->schedule;
    o->warmup = a->warmup;
    o->rule = a->rule > 0 ? cli_train_rules[a->rule] : NULL;
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
    o->coll.wire = (enum vb_wire)a->wire;
    o->bucket_bytes = a->bucket;
    o->hold_back_bytes = a->hold_back;
    o->share_out_bytes = a->share_out;
    o->check_replicas = a->check_replicas;
    o->async = async_opts(a);
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

struct reporter {
    const struct train_args *args;
    const struct vb_train_opts *o;
    const struct vb_launch *launch;
    enum cli_screen screen; /* that shows how far it is */
};

static vb_status keep(const struct reporter *r, const char *mode,
                      const struct vb_train_result *result)
{
    const char *dir = r->args->run;
    vb_status st = dir != NULL ? vb_dir_make(dir) : VB_OK;

    return st == VB_OK && dir != NULL ? cli_train_keep(dir, mode, r->o, result) : st;
}

/* A vb_train_report_fn. It may be on another host than rank 0. What is kept comes first: who cannot
 * print may be ended for that. */
static vb_status report(void *arg, const struct vb_train_result *result)
{
    const struct reporter *r = arg;
    const struct vb_train_opts *o = r->o;
    bool single = o->group.world == 1 && o->mode != VB_MODE_ASYNC;
    const char *mode = single ? "single" : cli_train_modes[o->mode];
    vb_status kept, printed;

    cli_train_watch_end(r->screen);
    kept = keep(r, mode, result);
    printed = cli_train_print(mode, o, result, r->args->json);
    if (cli_finish(CLI_OK) != CLI_OK) /* the last moment at which another can print it */
        return VB_ERR_IO;
    return printed != VB_OK ? printed : kept;
}

static void tell_begun(void *arg)
{
    vb_launch_tell_begun(((const struct reporter *)arg)->launch);
}

static enum cli_screen find_screen(const struct vb_launch *launch)
{
    if (launch->terminal)
        return CLI_SUPERVISOR;
    return isatty(STDERR_FILENO) == 1 ? CLI_TERMINAL : CLI_NO_SCREEN;
}

static int train(const struct train_args *a, const struct vb_launch *launch,
                 const struct vb_train_opts *opts)
{
    struct vb_train_opts o = *opts;
    struct reporter r = {.args = a, .o = &o, .launch = launch, .screen = find_screen(launch)};
    struct vb_train_result result;
    vb_status st;

    if (o.joined != NULL)
        vb_log_set_rank(vb_joined_rank(o.joined));
    else
        vb_log_set_rank(o.group.world > 1 ? o.group.rank : -1);
    if (r.screen != CLI_NO_SCREEN)
        o.watch = cli_train_watch;
    o.watch_arg = &r.screen;
    o.report = report;
    o.report_arg = &r;
    o.begun = tell_begun;
    o.begun_arg = &r;
    if (o.group.rank == 0 && o.joined == NULL && a->run != NULL) {
        st = cli_train_may_keep(a->run);
        if (st != VB_OK)
            return cli_exit_code(st);
    }
    st = vb_train(&o, &result);
    cli_train_watch_end(r.screen);
    if (st != VB_OK)
        return cli_exit_code(st);
    if (o.joined != NULL && !result.reports)
        st = cli_train_print_joined(a->join, &o, &result, a->json);
    vb_train_result_fini(&result);
    return cli_finish(cli_exit_code(st));
}

/* Ranks that only compute may die, and servers that have a standby: asynchronous training goes on
 * without them. */
static void fill_outlive(const struct vb_train_opts *o, struct cli_job *job)
{
    job->workers = vb_train_workers(o);
    job->vital = o->async.dedicated ? job->workers : 0;
    job->vital_end = job->vital + (o->async.replicas > 1 ? 0 : vb_train_servers(&o->async));
}

/* The user knows the secret, and so who else does. */
static bool is_joinable(const struct cli_job *job, const struct vb_launch *launch)
{
    return job->outlive && !launch->own_secret &&
           (job->secret_file != NULL || (launch->has_secret && !launch->supervised));
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
    if (rc < 0 && vb_train_check(&o) != VB_OK)
        rc = CLI_USAGE;
    if (rc < 0)
        fill_outlive(&o, job);
    if (rc >= 0 || cli_hosts_launch(command, hosts, job, &o.group, argc, argv, &rc) ||
        cli_job_supervise(command, job, &launch, &o.group, argc, argv, &rc))
        return rc;
    words = is_joinable(job, &launch) ? cli_join_words(argc, argv, &o.words_len) : NULL;
    o.words = words;
    o.say = cli_join_say;
    rc = train(args, &launch, &o);
    free(words);
    return rc;
}

/* The job's words, and then one's own. data_p: the job's data, which is to be compared, whatever
 * the newcomer calls it. */
static int parse_joined(const struct cli_command *command, const struct vb_joined *joined, int argc,
                        char **argv, struct train_asked *a, const char **data_p,
                        const char **model_p)
{
    int n = 0, all_n = 0, rc = CLI_FAILED;
    char **words = cli_join_arguments(joined, 0, NULL, &n);
    char **all = cli_join_arguments(joined, argc, argv, &all_n);
    struct vb_opts parsed;

    if (words != NULL && all != NULL)
        rc = cli_parse(command, a->groups, TRAIN_GROUPS, 1, n, words, &parsed);
    *data_p = a->args.data;
    if (rc < 0)
        rc = cli_parse(command, a->groups, TRAIN_GROUPS, 1, all_n, all, &parsed);
    if (rc < 0)
        rc = find_model(&parsed, model_p);
    free(words);
    free(all);
    return rc;
}

static int train_joined(const struct cli_command *command, struct vb_joined *joined, int argc,
                        char **argv, struct train_asked *a, struct vb_train_opts *o)
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
    return train(&a->args, &launch, o);
}

static int join(const struct cli_command *command, int argc, char **argv, struct train_asked *a)
{
    struct vb_train_opts o = {0};
    struct vb_joined *joined = NULL;
    int rc;

    if (a->args.dry_run || a->hosts.hosts != NULL)
        return refuse("--join is one worker, which trains: --dry-run and --hosts are for jobs");
    rc = cli_join_open(command, a->args.join, &a->job, &o.group, &joined);
    if (rc >= 0)
        return rc;
    rc = train_joined(command, joined, argc, argv, a, &o);
    vb_joined_leave(joined);
    return rc;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct train_asked a;
    struct vb_async_opts async;
    char **given = cli_job_arguments(argc, argv);
    const char *model = NULL;
    struct vb_opts parsed;
    int rc;

    if (given == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    cli_train_asked_init(&a);
    rc = cli_parse(command, a.groups, TRAIN_GROUPS, 1, argc, argv, &parsed);
    a.job.has_rank = rc < 0 && vb_opts_given(&parsed, "rank");
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
    async = async_opts(&a.args);
    if (rc < 0 && a.args.dedicated && a.job.world == 0 && a.hosts.hosts == NULL)
        a.job.extra = vb_train_servers(&async); /* --ranks counts workers */
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
