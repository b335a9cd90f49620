/* SPDX-License-Identifier: MIT
 *
 * verbena train: trains a model, on one rank or on many.
 *
 * With --ranks this process becomes the supervisor of the ranks. Each rank is a process that runs
 * the same command with the same arguments. So the supervisor finds every mistake in the arguments
 * before it starts a rank.
 */
#include "cli/train/cmd_train.h"

#include <stdlib.h>
#include <string.h>

/* Finds the ranks that an asynchronous job cannot lose, for the supervisor. The job can lose
 * workers, and servers that have a standby. All other ranks are vital. */
static void fill_outlive(const struct vb_train_opts *o, struct cli_job *job)
{
    job->workers = vb_train_workers(o);
    job->vital = o->async.dedicated ? job->workers : 0;
    job->vital_end = job->vital + (o->async.replicas > 1 ? 0 : vb_train_servers(&o->async));
}

/* Ranks are started again by our supervisor, as workers that join, so that others must be able to.
 * Returns -1 if --restart can work, or was not given; otherwise the exit code. */
static int check_restart(const struct cli_job *job, const struct vb_launch *launch,
                         const struct vb_train_opts *o)
{
    const struct vb_async_opts *async = &o->async;

    if (job->restarts == 0)
        return -1;
    if (!job->ours && !cli_job_supervises(job, launch))
        return cli_refuse(&cli_train, "--restart needs several ranks of --ranks or --hosts: nobody "
                                      "else starts ranks again");
    if (o->mode != VB_MODE_ASYNC)
        return -1;
    if (async->bounded && async->staleness == 0 && async->servers > 1)
        return cli_refuse(&cli_train, "--restart: nobody can join a job with --staleness 0 and "
                                      "several servers, and ranks are started again as joiners");
    if (async->max_workers > 0 && async->max_workers <= vb_train_workers(o))
        return cli_refuse(&cli_train,
                          "--restart: --max-workers %d leaves no place for a rank that is started "
                          "again: it joins the %d workers of the start",
                          async->max_workers, vb_train_workers(o));
    return -1;
}

/* Other workers can join only if the user chose the job's secret, because then the user can give
 * them the secret, or if our supervisor does. */
static bool is_joinable(const struct cli_job *job, const struct vb_launch *launch)
{
    return job->outlive && (job->secret_file != NULL || job->ours || launch->run_id[0] != '\0' ||
                            (launch->has_secret && !launch->supervised));
}

/* Returns the arguments as one text, each argument followed by a zero byte. A job sends this text
 * to joiners. The caller frees the text. Returns NULL if there is no memory. */
static char *join_words(const struct cli_job *job, size_t *len_p)
{
    char *words, **argv = job->argv + 2;
    size_t len = 0, at = 0;
    int i;

    for (i = 0; i < job->argc; i++)
        len += strlen(argv[i]) + 1;
    words = malloc(len + 1);
    if (words == NULL)
        return NULL;
    for (i = 0; i < job->argc; i++) {
        memcpy(words + at, argv[i], strlen(argv[i]) + 1);
        at += strlen(argv[i]) + 1;
    }
    *len_p = len;
    return words;
}

static int run_job(const struct cli_command *command, struct train_asked *asked, const char *model)
{
    const struct train_args *args = &asked->args;
    struct cli_job *job = &asked->job;
    struct vb_train_opts o = {.model = model};
    struct vb_data_spec test = {0};
    struct vb_launch launch;
    char *words;
    int rc;

    job->restarts = (int)args->restarts;
    job->outlive = args->mode == VB_MODE_ASYNC;
    job->elastic = args->mode == VB_MODE_SYNC && args->elastic != TRAIN_ELASTIC_OFF;
    rc = cli_job_place(command, job, &launch, &o.group);
    if (rc < 0)
        rc = cli_train_fill(args, &launch, &test, &o);
    if (rc < 0 && vb_train_check(&o) != VB_OK)
        rc = CLI_USAGE;
    if (rc < 0)
        rc = check_restart(job, &launch, &o);
    if (rc < 0)
        rc = cli_train_fits(job, &launch, &o);
    if (rc < 0)
        fill_outlive(&o, job);
    job->run = args->dry_run ? NULL : args->run;
    job->append = args->save.resume;
    if (rc >= 0)
        return rc;
    if (cli_job_launch(job, &launch, &o.group, &rc)) {
        if (rc != CLI_OK && job->run != NULL)
            cli_train_run_dead(job->run, job->why);
        return rc;
    }
    words = o.elastic || is_joinable(job, &launch) ? join_words(job, &o.join.words_len) : NULL;
    o.join.words = words;
    rc = cli_train_rank(asked, &launch, &o);
    free(words);
    return rc;
}

static int run_parsed(const struct cli_command *command, struct train_asked *a,
                      const struct vb_opts *parsed)
{
    struct vb_async_opts async = cli_train_async_opts(&a->args);
    const char *model = NULL;
    int rc;

    if (a->args.join != NULL && parsed->n_operands > 0)
        return cli_refuse(&cli_train,
                          "--join takes no model: the job has decided which model is trained");
    if (a->args.join != NULL)
        return cli_train_join(command, a);
    rc = cli_train_find_model(parsed, &model);
    if (rc >= 0)
        return rc;
    if (a->args.learn.lr == 0 &&
        vb_opts_given(parsed, "lr")) /* the engine takes 0 as "not given" */
        return cli_refuse(&cli_train, "--lr 0: the model would learn nothing; without --lr, a rate "
                                      "is chosen for the model and the batch");
    if (vb_opts_given(parsed, "wait-ranks") && a->args.min_ranks == 0)
        return cli_refuse(&cli_train, "--wait-ranks needs --min-ranks: no other job waits");
    if (a->args.mixed_cpus)
        return cli_refuse(&cli_train, "--mixed-cpus needs --join");
    if (a->args.dedicated && a->job.world == 0 && a->job.hosts == NULL)
        a->job.extra = vb_train_servers(&async); /* --ranks only counts workers */
    return run_job(command, a, model);
}

static struct cli_names models(void)
{
    return cli_model_names(false);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct train_asked a;
    struct train_again again = {.argv = NULL};
    char *until;
    int rc = cli_train_until_join(argc, argv, &until);

    if (rc < 0)
        rc = cli_train_again(argc, argv, &again);
    cli_train_asked_init(&a);
    if (rc < 0 && again.argv != NULL) {
        argc = again.argc;
        argv = again.argv;
    }
    if (rc < 0)
        rc = cli_job_parse(command, a.groups, TRAIN_GROUPS, 1, argc, argv, &a.job, &a.parsed);
    if (rc < 0 && a.args.again != NULL)
        rc = cli_refuse(command, "--again must be on the command line; VB_AGAIN is not read");
    if (rc < 0)
        rc = run_parsed(command, &a, &a.parsed);
    free(a.job.argv);
    cli_train_again_fini(&again);
    free(until);
    return rc;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model, on one rank or on many",
    .usage = "MODEL [OPTIONS]",
    .about =
        "Trains MODEL, then prints its accuracy on test data and where the time went. MODEL is\n"
        "softmax (softmax regression), sparse-lr (sparse logistic regression), mlp (multi-layer\n"
        "perceptron), lenet or alexnet. A job has one or more ranks; a rank is one process.\n"
        "\n"
        "  verbena train lenet                              one rank, generated digits\n"
        "  verbena train lenet --data mnist:DIR --ranks 2   two ranks on this host, MNIST\n"
        "  verbena train lenet --hosts node0:2,node1:2      four ranks on two hosts, over ssh",
    .details =
        "The samples of a step depend only on the seed and on the global batch. With --mode sync "
        "all\nranks end with the same parameters, bit for bit, over every transport.\n"
        "\n"
        "  verbena train softmax --ranks 4 --transport tcp --global-batch 100 --json\n"
        "  verbena train lenet --mode async --ranks 3 --staleness 4\n"
        "\n"
        "Ranks may also be started by srun, mpirun or torchrun, or by hand:\n"
        "\n"
        "  verbena train softmax --rank 1 --world 2 --root node0:7000 --secret-file job.key\n"
        "\n"
        "A job that was started with --secret-file can be joined, with --join and the same file. "
        "An\n"
        "asynchronous job prints its address; a synchronous one has it in run.json (--run).\n"
        "\n"
        "With several --threads, one thread of each rank of sparse-lr loads rows; all others "
        "compute.",
    .words = models,
    .run = run,
};
