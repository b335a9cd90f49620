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
#include <sys/stat.h>
#include <unistd.h>

#define ELASTIC_OFF 1 /* in cli_on_off */

/* ---- arguments ------------------------------------------------------------------------------- */

static int find_model(const struct vb_opts *parsed, const char **model_p)
{
    struct cli_names names = cli_model_names(false);
    const char *given = parsed->n_operands > 0 ? parsed->operands[0] : NULL;

    return cli_find_model(&cli_train, "the model is missing: name", given, &names, model_p);
}

static int check_input(const char *name, int input)
{
    const struct vb_train_model *model = vb_train_model_find(name);

    if (vb_train_net_of(model, input)->input == input)
        return -1;
    if (model->nets[0].input == 0)
        return cli_refuse(&cli_train, "--input: %s takes images of one size only", name);
    return cli_refuse(&cli_train, "--input: %s takes images of size %d or %d", name,
                      model->nets[0].input, model->nets[1].input);
}

/* Finds options that contradict each other. Finds only contradictions that the engine cannot see;
 * vb_train_check() finds the others. */
static int check_together(const struct train_args *a, const struct vb_train_opts *o)
{
    if (a->length.batch > 0 && a->length.global_batch > 0)
        return cli_refuse(&cli_train, "give --batch or --global-batch, not both");
    if ((a->length.epochs > 0) + (a->length.steps > 0) + (a->length.samples > 0) > 1)
        return cli_refuse(&cli_train, "give only one of --epochs, --steps and --samples");
    if (a->test_data != NULL && a->test_split > 0)
        return cli_refuse(&cli_train, "give --test-data or --test-split, not both");
    if (a->input != 0 && check_input(o->model, (int)a->input) >= 0)
        return CLI_USAGE;
    if (a->mode != VB_MODE_ASYNC &&
        (a->servers > 0 || a->dedicated || a->staleness >= 0 || a->backup > 0 || a->hogwild ||
         a->max_workers > 0 || a->replicas > 1))
        return cli_refuse(&cli_train,
                          "--servers, --dedicated-servers, --replicas, --staleness, --backup, "
                          "--hogwild and --max-workers need --mode async");
    if (a->mode == VB_MODE_ASYNC && a->elastic == ELASTIC_OFF)
        return cli_refuse(&cli_train, "--elastic off needs --mode sync: an asynchronous job always "
                                      "goes on without workers that die");
    if (a->min_ranks > 0 && (a->mode == VB_MODE_ASYNC || a->elastic == ELASTIC_OFF))
        return cli_refuse(&cli_train,
                          "--min-ranks needs --mode sync and --elastic on: no other job "
                          "goes on with fewer ranks");
    if (a->restarts > 0 && a->mode == VB_MODE_SYNC && a->elastic == ELASTIC_OFF)
        return cli_refuse(&cli_train, "--restart needs --elastic on: ranks that are started again "
                                      "join a job that goes on");
    if (a->join == NULL && a->min_ranks > o->group.world) /* a joiner has the words of the job */
        return cli_refuse(&cli_train, "--min-ranks %lld: the job begins with %d ranks",
                          (long long)a->min_ranks, o->group.world);
    return -1;
}

/* Checks the batch size, as far as this is possible before the data is opened. */
static int check_batch(const struct train_args *a, const struct vb_train_opts *o)
{
    int world = vb_train_workers(o);
    int64_t global = a->length.global_batch > 0 ? a->length.global_batch : a->length.batch * world;
    const struct vb_data_spec *data = &o->data.ask.data;
    bool known = data->format == VB_DATA_SYNTH && data->n_given;

    if (a->save.resume && a->length.batch > 0) /* of the number of ranks that the run began with */
        return -1;
    if (global == 0 || (global >= world && (!known || global <= data->n_train)))
        return -1;
    if (global < world)
        return cli_refuse(&cli_train,
                          "a step has %lld samples, but needs at least %d, one per rank",
                          (long long)global, world);
    return cli_refuse(&cli_train, "a step has %lld samples, but the data only has %d",
                      (long long)global, data->n_train);
}

static int fill_data(const struct train_args *a, struct vb_data_spec *test, struct vb_train_opts *o)
{
    char why[VB_OPTS_WHY];

    if (vb_data_spec_parse(a->data, &o->data.ask.data, why) != VB_OK)
        return cli_refuse(&cli_train, "%s", why);
    if (a->test_data != NULL && vb_data_spec_parse(a->test_data, test, why) != VB_OK)
        return cli_refuse(&cli_train, "%s", why);
    if (a->features > 0)
        o->data.ask.data.features = test->features = (int)a->features;
    o->data.ask.test = a->test_data != NULL ? test : NULL;
    o->data.ask.test_share = a->test_split;
    if (a->test_split < 0)
        o->data.ask.test_share =
            a->test_data == NULL && !vb_data_has_test(&o->data.ask.data) ? VB_DATA_TEST_SHARE : 0;
    o->data.text = a->data;
    o->data.test_text = a->test_data;
    return check_batch(a, o);
}

/* --trace=FROM:TO */
static int fill_trace(const struct train_args *a, struct vb_train_opts *o)
{
    long long from, to;
    char rest;

    if (a->trace == NULL)
        return -1;
    if (sscanf(a->trace, "%lld:%lld%c", &from, &to, &rest) != 2 || from < 1 || to < from)
        return cli_refuse(&cli_train, "--trace must be FROM:TO, two numbers of steps from 1 on, "
                                      "such as --trace=10:20");
    if (a->run == NULL)
        return cli_refuse(&cli_train, "--trace needs a run folder to write to: add --run DIR");
    o->run.trace_from = from;
    o->run.trace_to = to;
    o->run.trace_format = (enum vb_trace_format)a->trace_format;
    return -1;
}

/* --replay-compute RUN. A job that recorded into RUN would replace what it reads. */
static int fill_replay(const struct train_args *a, struct vb_train_opts *o)
{
    struct stat own, other;

    o->replay = a->replay;
    if (a->replay == NULL || a->run == NULL)
        return -1;
    if (strcmp(a->run, a->replay) == 0 ||
        (stat(a->run, &own) == 0 && stat(a->replay, &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino))
        return cli_refuse(
            &cli_train, "--run and --replay-compute name the same folder: record into another one");
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

/* Copies the arguments to the engine's options. The caller has filled o->group and o->model.
 * Returns -1 if the arguments are good, else the exit code. */
static int fill_opts(const struct train_args *a, const struct vb_launch *launch,
                     struct vb_data_spec *test, struct vb_train_opts *o)
{
    int rc = check_together(a, o);

    if (rc >= 0)
        return rc;
    o->mode = (enum vb_mode)a->mode;
    o->seed = (uint64_t)a->seed;
    o->plan = a->plan;
    o->fast_math = a->fast_math;
    o->mixed_cpus = a->mixed_cpus;
    o->elastic = o->mode == VB_MODE_SYNC && a->elastic != ELASTIC_OFF;
    o->min_ranks = (int)a->min_ranks;
    o->wait_ranks_s = a->wait_ranks;
    o->dry_run = a->dry_run;
    o->eval_every = a->eval_every;
    o->data.input = (int)a->input;
    o->data.test_limit = a->test_limit;
    o->length = a->length;
    o->learn = a->learn;
    o->learn.rule = a->rule > 0 ? cli_train_rules[a->rule] : NULL;
    o->save = a->save;
    o->run = (struct vb_train_run_opts){.dir = a->run,
                                        .append = a->save.resume,
                                        .record_mb_s = a->record_rate > 0 ? a->record_rate : 1e6};
    o->sums = a->sums;
    o->async = async_opts(a);
    o->place.threads = (int)a->threads;
    o->place.pin = a->pin == 0;
    o->sums.no_noise = a->noise_scale != 0;
    if (launch->supervised) {
        o->place.local_rank = launch->local_rank;
        o->place.local_ranks = launch->local_ranks;
    }
    o->ledger = a->ledger;
    rc = cli_train_inject(a->inject, a->slow, &o->inject);
    if (rc < 0)
        rc = cli_train_until(a->until, &o->until);
    if (rc < 0)
        rc = fill_replay(a, o);
    if (rc < 0)
        rc = fill_trace(a, o);
    return rc >= 0 ? rc : fill_data(a, test, o);
}

/* ---- training -------------------------------------------------------------------------------- */

struct reporter {
    const struct train_args *args;
    struct train_run *run; /* the run folder; NULL: there is none */
    const struct vb_train_opts *o;
    const struct vb_launch *launch;
    const char *run_id;            /* what a joiner must give as --run-id; NULL: nothing */
    enum cli_screen screen;        /* where the progress is shown */
    int cpus;                      /* number of cpus of this process, before any thread is pinned */
    int number;                    /* of a joiner of a synchronous job; -1: it has none yet */
    struct vb_chosen chosen;       /* what the engine has chosen; empty on other ranks than 0 */
    struct train_ctl *_Atomic ctl; /* another thread opens it when this rank leads; NULL: none */
};

/* Prints the result and, with --run, writes it to files. This function is a vb_train_report_fn. The
 * rank that reports may be on another host than rank 0. The files are written first, because a
 * write to a closed standard output can end the process. */
static vb_status report(void *arg, const struct vb_train_result *result)
{
    const struct reporter *r = arg;
    const struct vb_train_opts *o = r->o;
    bool single = o->group.world == 1 && o->mode != VB_MODE_ASYNC;
    const char *mode = single ? "single" : cli_train_modes[o->mode];
    vb_status kept = VB_OK, printed;

    cli_train_watch_end(r->screen);
    if (r->run != NULL) {
        pthread_mutex_lock(&r->run->lock);
        kept = cli_train_run_ended(r->run, mode, result);
        r->run->ended = kept == VB_OK; /* even if printing fails now */
        pthread_mutex_unlock(&r->run->lock);
    }
    printed = cli_train_print(mode, o, result, r->args->json);
    if (cli_finish(CLI_OK) != CLI_OK) /* after an error, another rank can report */
        return VB_ERR_IO;
    return printed != VB_OK ? printed : kept;
}

static void keep_chosen(void *arg, const struct vb_chosen *chosen)
{
    struct reporter *r = arg;

    r->chosen = *chosen;
}

static bool joins(const struct vb_train_opts *o)
{
    return o->join.joined != NULL || o->join.caller != NULL;
}

/* Returns whether this is rank 0 of the job. */
static bool leads(const struct vb_train_opts *o)
{
    return o->group.rank == 0 && !joins(o);
}

/* Says what the model is tested on, if the user gave no test data and the data has none. */
static void tell_test(const struct reporter *r)
{
    const char *from = cli_train_test_from(r->o);

    if (r->args->test_split < 0 && strcmp(from, "held out") == 0)
        fprintf(stderr, "data: no test data given: a fifth of the rows is held out; --test-data or "
                        "--test-split changes it\n");
    else if (strcmp(from, "training") == 0)
        fprintf(stderr, "data: no test data given: the model is tested on the training samples\n");
}

static void open_ctl(struct reporter *r)
{
    if (r->run != NULL && atomic_load(&r->ctl) == NULL)
        atomic_store(&r->ctl, cli_train_ctl_open(r->run->dir, r->o->mode == VB_MODE_ASYNC));
}

/* Says what was chosen, when nothing can be refused any more. A program that reads --json is not
 * told. */
static void tell_begun(void *arg)
{
    struct reporter *r = arg;
    bool tells = !r->args->json || r->screen == CLI_TERMINAL;

    if (tells && leads(r->o)) {
        cli_train_tell_cores(r->o, r->cpus);
        tell_test(r);
    }
    if (tells && r->chosen.why[0] != '\0')
        fprintf(stderr, "recipe: %s; --rule, --lr and --epochs change it\n", r->chosen.why);
    vb_interrupt_catch(); /* until now a Ctrl-C has ended the process: there was nothing to save */
    if (leads(r->o))
        open_ctl(r);
    vb_launch_tell_begun(r->launch);
}

static int is_to_stop(void *arg)
{
    struct reporter *r = arg;
    int number = vb_interrupted();

    return number != 0 ? number : cli_train_ctl_stop(atomic_load(&r->ctl));
}

static struct vb_train_ask ask(void *arg, int64_t step)
{
    struct reporter *r = arg;

    return cli_train_ctl_ask(atomic_load(&r->ctl), step);
}

static void answer(void *arg, bool done, const char *text)
{
    struct reporter *r = arg;

    cli_train_ctl_answer(atomic_load(&r->ctl), done, text);
}

static void tell_opened(void *arg)
{
    const struct reporter *r = arg;

    if (r->run != NULL && leads(r->o))
        cli_train_run_begun(r->run);
}

static void tell_led(void *arg, enum vb_led led)
{
    struct reporter *r = arg;

    if (r->run != NULL && led == VB_LED_NOT)
        r->run->leads = false;
    else if (r->run != NULL)
        cli_train_run_led(r->run, led == VB_LED_FAR);
    if (led != VB_LED_NOT)
        open_ctl(r);
}

/* A joiner of a synchronous job has its number, by which its files are called. */
static void tell_numbered(void *arg, int number)
{
    struct reporter *r = arg;

    r->number = number;
    vb_log_set_rank(number);
    if (r->launch->joins)
        vb_launch_tell_number(r->launch, number);
    if (r->run == NULL)
        return;
    pthread_mutex_lock(&r->run->lock);
    r->run->number = number;
    pthread_mutex_unlock(&r->run->lock);
    if (!r->launch->joins) /* otherwise the supervisor keeps the log */
        cli_train_run_log(r->run->dir, number, true);
}

/* Returns what a joiner must give as --run-id, because the secret is made from it; NULL: nothing.
 */
static const char *run_id_of(const struct cli_job *job, const struct vb_launch *launch)
{
    return launch->run_id[0] != '\0' ? launch->run_id : job->run_id;
}

#define JOIN_TEXT (VB_DOORS_TEXT + VB_DERIVE_MAX + 96)

/* Writes how others can join the job. run_id: NULL, or what they must give. */
static const char *tell_to_join(const char *doors, const char *run_id, char text[JOIN_TEXT])
{
    snprintf(text, JOIN_TEXT, "others can join: verbena train --join %s --secret-file FILE%s%s%s",
             doors, run_id != NULL ? " --run-id '" : "", run_id != NULL ? run_id : "",
             run_id != NULL ? "'" : "");
    return text;
}

/* A synchronous job can be joined from now on. */
static void say_doors(void *arg, const char *doors)
{
    const struct reporter *r = arg;
    char text[JOIN_TEXT];

    VB_LOG_INFO("%s", tell_to_join(doors, r->run_id, text));
    vb_launch_tell_doors(r->launch, doors);
    if (r->run == NULL)
        return;
    pthread_mutex_lock(&r->run->lock);
    snprintf(r->run->doors, sizeof(r->run->doors), "%s", doors);
    if (!r->run->ended)
        cli_train_run_begun(r->run);
    pthread_mutex_unlock(&r->run->lock);
}

/* The supervisor knows ranks by the numbers that they had at the start. */
static void prove(void *group, int id)
{
    vb_group_proved(group, vb_group_rank_of_id(group, id));
}

/* A thread tells the group what the supervisor says, as long as the group is open. */
static void tell_grouped(void *arg, struct vb_group *group)
{
    const struct reporter *r = arg;

    vb_launch_on_reaped(r->launch, group != NULL ? prove : NULL, group);
}

/* Opens the run folder. Another rank than 0 may not see it. */
static vb_status prepare_run(const struct train_asked *asked, struct vb_train_opts *o,
                             struct train_run *run)
{
    vb_status st = VB_OK;

    if (o->join.caller != NULL)
        run->number = -1;
    else
        run->number = o->join.joined != NULL ? vb_joined_rank(o->join.joined) : o->group.rank;
    o->run.append = o->run.append || joins(o); /* its slot may have been used */
    if (leads(o))
        st = cli_train_run_prepare(run->dir, o->run.append, o->group.world);
    if (st == VB_OK && !asked->job.ours && run->number >= 0)
        cli_train_run_log(run->dir, run->number, o->run.append);
    o->run.facts = &run->facts;
    run->leads = leads(o);
    pthread_mutex_init(&run->lock, NULL);
    return st;
}

static void log_times(const struct cli_job *job)
{
    struct vb_times times = cli_job_times(job);
    char text[VB_TIMES_TEXT];

    vb_times_text(&times, text);
    VB_LOG_INFO("times: %s", text);
}

static void fill_hooks(struct reporter *r, struct vb_train_hooks *hooks)
{
    if (r->screen != CLI_NO_SCREEN)
        hooks->watch = cli_train_watch;
    hooks->watch_arg = &r->screen;
    hooks->watch_own = r->screen == CLI_TERMINAL;
    hooks->report = report;
    hooks->begun = tell_begun;
    hooks->stop = is_to_stop;
    hooks->ask = ask;
    hooks->answer = answer;
    hooks->chose = keep_chosen;
    hooks->led = tell_led;
    hooks->grouped = tell_grouped;
    hooks->opened = tell_opened;
    hooks->joinable = say_doors;
    hooks->numbered = tell_numbered;
    hooks->report_arg = hooks->begun_arg = hooks->stop_arg = hooks->ask_arg = hooks->chose_arg =
        hooks->led_arg = hooks->grouped_arg = hooks->opened_arg = hooks->joinable_arg =
            hooks->numbered_arg = r;
}

static int train(const struct train_asked *asked, const struct vb_launch *launch,
                 const struct vb_train_opts *opts)
{
    const struct train_args *a = &asked->args;
    struct vb_train_opts o = *opts;
    struct train_run run = {.dir = a->run,
                            .o = &o,
                            .parsed = &asked->parsed,
                            .argv = asked->job.argv,
                            .argc = asked->job.argc + 2};
    struct reporter r = {.args = a,
                         .o = &o,
                         .launch = launch,
                         .run_id = run_id_of(&asked->job, launch),
                         .screen = CLI_SUPERVISOR,
                         .number = -1};
    struct vb_train_result result;
    int stopped, rc;
    vb_status st;

    r.cpus = cli_train_cpus();
    if (!launch->terminal)
        r.screen = isatty(STDERR_FILENO) == 1 ? CLI_TERMINAL : CLI_NO_SCREEN;
    if (o.join.joined != NULL)
        vb_log_set_rank(vb_joined_rank(o.join.joined));
    else
        vb_log_set_rank(o.group.world > 1 && !joins(&o) ? o.group.rank : -1);
    if (o.group.world > 1 && leads(&o))
        log_times(&asked->job);
    fill_hooks(&r, &o.hooks);
    o.run.link = asked->job.link;
    if (a->run != NULL) {
        r.run = &run;
        st = prepare_run(asked, &o, &run);
        if (st != VB_OK)
            return cli_exit_code(st);
    }
    st = vb_train(&o, &result);
    cli_train_ctl_close(atomic_load(&r.ctl));
    cli_train_watch_end(r.screen);
    if (st != VB_OK && a->run != NULL && run.leads && !run.ended)
        cli_train_run_failed(&run, st);
    vb_run_facts_fini(&run.facts);
    if (st != VB_OK)
        return cli_exit_code(st);
    if (joins(&o) && !result.reports && !launch->joins) /* the supervisor has one output */
        st = cli_train_print_joined(a->join, r.number, &o, &result, a->json);
    stopped = result.stopped;
    vb_train_result_fini(&result);
    rc = cli_finish(cli_exit_code(st));
    return rc == CLI_OK && stopped != 0 ? 128 + stopped : rc;
}

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
 * them the secret, or if the supervisor does. */
static bool is_joinable(const struct cli_job *job, const struct vb_launch *launch)
{
    return job->outlive &&
           (job->secret_file != NULL || job->restarts > 0 || launch->run_id[0] != '\0' ||
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

struct doors {
    const struct vb_launch *launch;
    const char *run_id;
    bool told; /* to the supervisor, and not to the user, who does not know the secret */
};

static void say_root(const char *root, const void *arg)
{
    const struct doors *doors = arg;
    char text[JOIN_TEXT];

    vb_launch_tell_doors(doors->launch, root);
    if (!doors->told)
        fprintf(stderr, "%s\n", tell_to_join(root, doors->run_id, text));
}

static int run_job(const struct cli_command *command, struct train_asked *asked, const char *model)
{
    const struct train_args *args = &asked->args;
    struct cli_job *job = &asked->job;
    struct vb_train_opts o = {.model = model};
    struct vb_data_spec test = {0};
    struct vb_launch launch;
    struct doors doors;
    char *words;
    int rc;

    job->restarts = (int)args->restarts;
    job->outlive = args->mode == VB_MODE_ASYNC;
    job->elastic = args->mode == VB_MODE_SYNC && args->elastic != ELASTIC_OFF;
    rc = cli_job_place(command, job, &launch, &o.group);
    if (rc < 0)
        rc = fill_opts(args, &launch, &test, &o);
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
    o.join.say = say_root;
    doors = (struct doors){.launch = &launch,
                           .run_id = run_id_of(job, &launch),
                           .told = job->secret_file == NULL && launch.supervised && job->ours};
    o.join.say_arg = &doors;
    rc = train(asked, &launch, &o);
    free(words);
    return rc;
}

/* ---- joining a running job ------------------------------------------------------------------- */

/* Also finds out what our supervisor tells a process that it has started again. */
static int find_secret(const struct cli_command *command, const struct cli_job *job,
                       struct vb_launch *launch, struct vb_group_opts *group)
{
    if (vb_launch_read(job->timeout_s * 1000, launch) != VB_OK)
        return CLI_FAILED;
    launch->terminal = false; /* the lead shows the progress */
    if (job->secret_file == NULL && ((launch->supervised && !launch->joins) || !launch->has_secret))
        return cli_refuse(
            command, "--join needs the job's secret: give --secret-file FILE or set VB_SECRET");
    /* The secret of the job to join, not that of a launcher; but our supervisor has told the one
     * that the job has made of file and run id. */
    launch->supervised = launch->joins;
    return cli_job_secret(job, launch, group);
}

/* Calls the job at --join. Returns -1 on success; otherwise the exit code. The job decides the
 * transport unless the user gave one. */
static int call_job(const struct cli_command *command, const char *root, const struct cli_job *job,
                    struct vb_launch *launch, struct vb_group_opts *group,
                    struct vb_caller **caller_p)
{
    const char *colon = strrchr(root, ':');
    int rc;

    if (colon == NULL || colon == root || colon[1] == '\0')
        return cli_refuse(command,
                          "--join must be HOST:PORT, the address that the job printed, or several "
                          "of them with commas between");
    if (!vb_launch_is_joiner() &&
        (job->ranks > 0 || job->world > 0 || job->has_rank || job->root != NULL))
        return cli_refuse(command,
                          "--join starts one rank: --ranks, --rank, --world and --root cannot be "
                          "used with it");
    cli_job_group(job, group);
    rc = find_secret(command, job, launch, group);
    if (rc >= 0)
        return rc;
    group->root = root;
    return vb_group_call(group, caller_p) == VB_OK ? -1 : CLI_FAILED;
}

/* The job that was called, of either kind. */
struct joining {
    struct vb_caller *caller; /* of a synchronous job; NULL: it is asynchronous */
    struct vb_joined *joined;
    const char *words; /* the arguments of the job */
    size_t words_len;
};

/* Finds out of which kind the job is, by its answer. */
static int open_join(const struct cli_command *command, const char *root, const struct cli_job *job,
                     struct vb_launch *launch, struct vb_group_opts *group, struct joining *j)
{
    const void *text;
    size_t len;
    int rc = call_job(command, root, job, launch, group, &j->caller);

    if (rc >= 0)
        return rc;
    if (vb_caller_has_slot(j->caller)) {
        rc = vb_train_join(group, j->caller, &j->joined) == VB_OK ? -1 : CLI_FAILED;
        vb_caller_close(j->caller);
        j->caller = NULL;
        if (rc < 0)
            j->words = vb_joined_words(j->joined, &j->words_len);
        return rc;
    }
    text = vb_caller_job(j->caller, &len);
    if (vb_train_job_words(text, len, &j->words, &j->words_len))
        return -1;
    return cli_refuse(command, "--join: what the job says about itself is not valid");
}

/* Returns an argument list: the arguments of the job, followed by the joiner's arguments, which
 * override them. The caller frees the list; the job's arguments are borrowed from j. Returns NULL
 * if there is no memory. */
static char **join_arguments(const struct joining *j, int argc, char **argv, int *argc_p)
{
    char **all;
    size_t at;
    int n = 0, i = 0;

    for (at = 0; at < j->words_len; at++)
        n += j->words[at] == '\0';
    all = calloc((size_t)n + (size_t)argc + 1, sizeof(*all));
    if (all == NULL)
        return NULL;
    for (at = 0; i < n; at += strlen(j->words + at) + 1)
        all[i++] = (char *)j->words + at;
    if (argc > 0)
        memcpy(all + n, argv, (size_t)argc * sizeof(*all));
    *argc_p = n + argc;
    return all;
}

/* Parses the arguments of the job, followed by the joiner's arguments, which override them. data_p:
 * receives the --data of the job. The job compares this text even if the joiner has the data at
 * another path. */
static int parse_joined(const struct cli_command *command, const struct joining *j,
                        struct train_asked *a, const char **data_p, const char **model_p)
{
    int n = 0, all_n = 0, rc = CLI_FAILED;
    char **words = join_arguments(j, 0, NULL, &n);
    char **all = join_arguments(j, a->job.argc, a->job.argv + 2, &all_n);

    if (words != NULL && all != NULL)
        rc = cli_parse(command, a->groups, TRAIN_GROUPS, 1, n, words, &a->parsed);
    *data_p = a->args.data;
    if (rc < 0)
        rc = cli_parse(command, a->groups, TRAIN_GROUPS, 1, all_n, all, &a->parsed);
    if (rc < 0)
        rc = find_model(&a->parsed, model_p);
    free(words);
    free(all);
    return rc;
}

/* The ranks of a synchronous job have the same options for their group. */
static void take_group_opts(const struct train_asked *a, struct vb_launch *launch,
                            struct vb_group_opts *group)
{
    const unsigned char *secret = group->secret;

    cli_job_group(&a->job, group);
    group->secret = secret;
    if (launch->joins) {
        group->lost = vb_launch_tell_lost;
        group->lost_arg = launch;
    }
    group->root = a->args.join;
}

static int join(const struct cli_command *command, struct train_asked *a)
{
    struct vb_train_opts o = {0};
    struct vb_launch launch = {.root_fd = -1};
    struct vb_data_spec test = {0};
    struct joining j = {0};
    const char *data = NULL;
    int rc;

    if (a->args.dry_run || a->job.hosts != NULL)
        return cli_refuse(&cli_train,
                          "--join starts one rank: --dry-run and --hosts cannot be used with it");
    rc = open_join(command, a->args.join, &a->job, &launch, &o.group, &j);
    if (rc < 0)
        rc = parse_joined(command, &j, a, &data, &o.model);
    if (rc < 0 && j.caller != NULL)
        take_group_opts(a, &launch, &o.group);
    if (rc < 0) {
        o.group.rank = 0;
        o.group.world = j.joined != NULL ? vb_joined_world(j.joined) : 2; /* the job says more */
        rc = fill_opts(&a->args, &launch, &test, &o);
    }
    if (rc < 0) {
        o.data.text = data;
        o.plan = NULL; /* the job sends its plan to the joiner */
        o.join.joined = j.joined;
        o.join.caller = j.caller;
        o.join.own = launch.joins;
        o.join.words = j.words; /* it may lead one day */
        o.join.words_len = j.words_len;
        rc = train(a, &launch, &o);
    }
    vb_joined_leave(j.joined);
    vb_caller_close(j.caller);
    return rc;
}

static int run_parsed(const struct cli_command *command, struct train_asked *a,
                      const struct vb_opts *parsed)
{
    struct vb_async_opts async = async_opts(&a->args);
    const char *model = NULL;
    int rc;

    if (a->args.join != NULL && parsed->n_operands > 0)
        return cli_refuse(&cli_train,
                          "--join takes no model: the job has decided which model is trained");
    if (a->args.join != NULL)
        return join(command, a);
    rc = find_model(parsed, &model);
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
        "An asynchronous job that was started with --secret-file prints the address at which "
        "others\ncan join it, with --join and the same file. With several --threads, one thread of "
        "each rank\nof sparse-lr loads rows; all others compute.",
    .words = models,
    .run = run,
};
