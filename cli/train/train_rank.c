/* SPDX-License-Identifier: MIT
 *
 * One rank of verbena train: what it tells the user, the run folder and the supervisor while the
 * engine trains, and what they ask of it.
 */
#include "cli/train/cmd_train.h"

#include <string.h>
#include <unistd.h>

struct reporter {
    const struct train_args *args;
    struct train_run *run; /* the run folder; NULL: there is none */
    const struct vb_train_opts *o;
    const struct vb_launch *launch;
    const char *run_id;      /* what a joiner must give as --run-id; NULL: nothing */
    enum cli_screen screen;  /* where the progress is shown */
    int cpus;                /* number of cpus of this process, before any thread is pinned */
    int number;              /* of a joiner of a synchronous job; -1: it has none yet */
    int slot;                /* of a joiner of an asynchronous job; -1: it is none */
    struct vb_chosen chosen; /* what the engine has chosen; empty on other ranks than 0 */
    struct train_adder adder;
    char root[VB_ROOT_TEXT]; /* where an asynchronous job can be joined; "": nowhere */
    bool secret; /* only the supervisor knows the secret, and the user is not told to join */
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
        atomic_store(&r->ctl,
                     cli_train_ctl_open(r->run->dir, r->o->mode == VB_MODE_ASYNC, &r->adder));
}

/* Tells verbena ctl where others can join. */
static void tell_doors(void *arg, char *doors)
{
    const struct reporter *r = arg;

    pthread_mutex_lock(&r->run->lock);
    snprintf(doors, VB_DOORS_TEXT, "%s", r->run->doors[0] != '\0' ? r->run->doors : r->root);
    pthread_mutex_unlock(&r->run->lock);
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
    if (r->launch->joins)
        vb_launch_tell_trains(r->launch, r->slot >= 0 ? r->slot : r->number);
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

const char *cli_train_run_id(const struct cli_job *job, const struct vb_launch *launch)
{
    return launch->run_id[0] != '\0' ? launch->run_id : job->run_id;
}

const char *cli_train_tell_to_join(const char *doors, const char *run_id, char text[CLI_JOIN_TEXT])
{
    snprintf(text, CLI_JOIN_TEXT,
             "others can join: verbena train --join %s --secret-file FILE%s%s%s", doors,
             run_id != NULL ? " --run-id '" : "", run_id != NULL ? run_id : "",
             run_id != NULL ? "'" : "");
    return text;
}

/* An asynchronous job can be joined from now on. */
static void say_root(const char *root, void *arg)
{
    struct reporter *r = arg;
    char text[CLI_JOIN_TEXT];

    snprintf(r->root, sizeof(r->root), "%s", root);
    vb_launch_tell_doors(r->launch, root);
    if (!r->secret)
        fprintf(stderr, "%s\n", cli_train_tell_to_join(root, r->run_id, text));
}

/* The same of a synchronous job. */
static void say_doors(void *arg, const char *doors)
{
    const struct reporter *r = arg;
    char text[CLI_JOIN_TEXT];

    VB_LOG_INFO("%s", cli_train_tell_to_join(doors, r->run_id, text));
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

int cli_train_rank(const struct train_asked *asked, const struct vb_launch *launch,
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
                         .run_id = cli_train_run_id(&asked->job, launch),
                         .screen = CLI_SUPERVISOR,
                         .number = -1,
                         .slot = -1};
    struct vb_train_result result;
    int stopped, rc;
    vb_status st;

    r.cpus = cli_train_cpus();
    if (!launch->terminal)
        r.screen = isatty(STDERR_FILENO) == 1 ? CLI_TERMINAL : CLI_NO_SCREEN;
    if (o.join.joined != NULL)
        r.slot = vb_joined_rank(o.join.joined);
    if (r.slot >= 0)
        vb_log_set_rank(r.slot);
    else
        vb_log_set_rank(o.group.world > 1 && !joins(&o) ? o.group.rank : -1);
    if (o.group.world > 1 && leads(&o))
        log_times(&asked->job);
    fill_hooks(&r, &o.hooks);
    r.secret = asked->job.secret_file == NULL && launch->supervised && asked->job.ours;
    o.join.say = say_root;
    o.join.say_arg = &r;
    r.adder = (struct train_adder){.launch = launch,
                                   .secret_file = asked->job.secret_file,
                                   .run_id = r.run_id,
                                   .doors = tell_doors,
                                   .arg = &r};
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
    if (result.reporter >= 0 && !result.left)
        vb_launch_tell_over(launch, result.reporter);
    if (joins(&o) && !result.reports && !launch->joins) /* the supervisor has one output */
        st = cli_train_print_joined(a->join, r.number, &o, &result, a->json);
    stopped = result.stopped;
    vb_train_result_fini(&result);
    rc = cli_finish(cli_exit_code(st));
    return rc == CLI_OK && stopped != 0 ? 128 + stopped : rc;
}
