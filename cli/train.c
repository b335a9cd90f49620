/* SPDX-License-Identifier: MIT
 *
 * verbena train: trains a model, on one rank or on many.
 *
 * With --ranks this process becomes their supervisor, and each rank is this program again with the
 * same arguments. So everything that can be wrong with the arguments is found before that.
 */
#include "cli/job.h"
#include "cli/train_print.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_MAX INT64_C(1000000000000)

struct train_args {
    const char *data;
    int64_t batch, global_batch;
    int64_t epochs, steps;
    int64_t seed, threads;
    double lr;
    int mode;
    int pin;
    bool json;
};

#define FIELD(name) offsetof(struct train_args, name)

static const char *const models[] = {"softmax"};
static const char *const mode_choices[] = {"sync", "single", NULL}; /* as in enum vb_mode */
static const char *const pin_choices[] = {"on", "off", NULL};

static const struct vb_opt train_opts[] = {
    {"data", VB_OPT_TEXT, FIELD(data), "synth", 0, 0, NULL, "SPEC",
     "what to train on: synth[:N], N made-up images and a fifth of that for testing"},
    {"mode", VB_OPT_CHOICE, FIELD(mode), "sync", 0, 0, mode_choices, "MODE",
     "how ranks work together"},
    {"batch", VB_OPT_INT, FIELD(batch), NULL, 1, VB_DATA_SYNTH_MAX, NULL, "B",
     "samples of one rank in a step (100 if --global-batch is not given)"},
    {"global-batch", VB_OPT_INT, FIELD(global_batch), NULL, 1, VB_DATA_SYNTH_MAX, NULL, "G",
     "samples of all ranks in a step"},
    {"epochs", VB_OPT_INT, FIELD(epochs), NULL, 1, 1000000, NULL, "E",
     "how often to go through the data (5 if --steps is not given)"},
    {"steps", VB_OPT_INT, FIELD(steps), NULL, 1, STEPS_MAX, NULL, "S", "how many steps to make"},
    {"lr", VB_OPT_REAL, FIELD(lr), "0.2", 0, 1000, NULL, "L", "learning rate"},
    {"seed", VB_OPT_INT, FIELD(seed), "1", 0, INT64_MAX, NULL, "S",
     "decides the made-up data and the order of samples"},
    {"json", VB_OPT_FLAG, FIELD(json), NULL, 0, 0, NULL, NULL,
     "one JSON object on the last line instead of text"},
};

static const struct vb_opt place_opts[] = {
    {"threads", VB_OPT_INT, FIELD(threads), "1", 0, VB_PLAN_THREADS_MAX, NULL, "T",
     "compute threads a rank; 0: as many as the machine suggests"},
    {"pin", VB_OPT_CHOICE, FIELD(pin), "on", 0, 0, pin_choices, "on|off",
     "give threads cores of their own"},
};

/* ---- what was asked for ---------------------------------------------------------------------- */

static int refuse(const char *why)
{
    fprintf(stderr, "verbena train: %s\n", why);
    return CLI_USAGE;
}

static int check_model(const struct vb_opts *parsed)
{
    char why[VB_OPTS_WHY];
    const char *best;

    if (parsed->n_operands == 0)
        return refuse("which model? softmax");
    if (strcmp(parsed->operands[0], models[0]) == 0)
        return -1;
    best = vb_nearest(parsed->operands[0], models, VB_COUNT(models));
    snprintf(why, sizeof(why), "unknown model %.64s; %s%s", parsed->operands[0],
             best != NULL ? "did you mean softmax" : "there is softmax", best != NULL ? "?" : "");
    return refuse(why);
}

/* Options that contradict each other. */
static int check_together(const struct train_args *a, int world)
{
    if (a->batch > 0 && a->global_batch > 0)
        return refuse("--batch or --global-batch: not both");
    if (a->epochs > 0 && a->steps > 0)
        return refuse("--epochs or --steps: not both");
    if (a->mode == VB_MODE_SINGLE && world > 1)
        return refuse("--mode single has one rank");
    return -1;
}

static int fill_sizes(const struct train_args *a, struct vb_train_opts *o)
{
    int64_t batch = a->batch > 0 ? a->batch : 100;
    int64_t global = a->global_batch > 0 ? a->global_batch : batch * o->group.world;
    char why[VB_OPTS_WHY];

    if (vb_data_spec_parse(a->data, &o->data, why) != VB_OK)
        return refuse(why);
    if (o->data.format != VB_DATA_SYNTH || o->data.synth != VB_SYNTH_DIGITS)
        return refuse("so far train knows synth alone, of kind digits");
    if (global < o->group.world || global > o->data.n_train) {
        snprintf(why, sizeof(why),
                 "%lld samples in a step: must be from %d, one a rank, to %d, all there are",
                 (long long)global, o->group.world, o->data.n_train);
        return refuse(why);
    }
    o->global_batch = (int)global;
    o->steps = a->steps;
    if (o->steps == 0)
        o->steps = (a->epochs > 0 ? a->epochs : 5) * vb_train_steps_per_epoch(o);
    return -1;
}

/* Returns -1 to go on, or the exit code. The group is there already. */
static int fill_opts(const struct train_args *a, const struct vb_launch *launch,
                     struct vb_train_opts *o)
{
    int rc = check_together(a, o->group.world);

    if (rc >= 0)
        return rc;
    o->mode = (enum vb_mode)a->mode;
    o->lr = a->lr;
    o->seed = (uint64_t)a->seed;
    o->threads = (int)a->threads;
    o->pin = a->pin == 0;
    if (launch->supervised) {
        o->local_rank = launch->local_rank;
        o->local_ranks = launch->local_ranks;
    }
    return fill_sizes(a, o);
}

/* ---- doing it -------------------------------------------------------------------------------- */

static int train(const struct train_args *a, struct vb_train_opts *o)
{
    struct vb_train_result result;
    bool terminal = isatty(STDERR_FILENO) == 1;
    vb_status st;

    vb_log_set_rank(o->group.world > 1 ? o->group.rank : -1);
    if (terminal)
        o->watch = cli_train_watch;
    st = vb_train(o, &result);
    if (terminal)
        cli_train_watch_end();
    if (st != VB_OK)
        return cli_exit_code(st);
    if (o->group.rank == 0)
        st = cli_train_print(models[0], mode_choices[o->mode], o, &result, a->json);
    vb_train_result_fini(&result);
    return cli_finish(cli_exit_code(st));
}

static int run_job(const struct cli_command *command, const struct train_args *args,
                   const struct cli_job *job, int argc, char **argv)
{
    struct vb_train_opts o = {0};
    struct vb_launch launch;
    int rc;

    rc = cli_job_place(command, job, &launch, &o.group);
    if (rc < 0)
        rc = fill_opts(args, &launch, &o);
    if (rc >= 0 || cli_job_supervise(command, job, &launch, argc, argv, &rc))
        return rc;
    return train(args, &o);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct train_args args;
    struct cli_job job;
    struct vb_opt_group groups[] = {
        {"Training", train_opts, VB_COUNT(train_opts), &args},
        {"Ranks", cli_job_opts, CLI_JOB_OPTS, &job},
        {"Placement", place_opts, VB_COUNT(place_opts), &args},
    };
    char **given = cli_job_arguments(argc, argv);
    struct vb_opts parsed;
    int rc;

    if (given == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    rc = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);
    if (rc < 0)
        rc = check_model(&parsed);
    if (rc < 0)
        rc = run_job(command, &args, &job, argc, given);
    free(given);
    return rc;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model, on one rank or on many",
    .usage = "MODEL [--data SPEC] [--ranks N] [--transport HOW] [--json] ...",
    .about =
        "Trains MODEL, which is softmax (softmax regression), and says how well it does on test\n"
        "data and where the time went.\n"
        "\n"
        "  verbena train softmax                         one rank\n"
        "  verbena train softmax --ranks 2               two, over shared memory\n"
        "  verbena train softmax --ranks 4 --transport tcp --global-batch 100 --json\n"
        "\n"
        "Ranks on several hosts are started by hand, each with its number:\n"
        "\n"
        "  verbena train softmax --rank 1 --world 2 --root node0:7000 --secret-file job.key\n"
        "\n"
        "What a step trains on depends on the seed and the global batch alone. All ranks end with\n"
        "the same parameters to the last bit, over any transport.",
    .run = run,
};
