/* SPDX-License-Identifier: MIT
 *
 * From the arguments of verbena train to the options of the engine.
 */
#include "cli/train/cmd_train.h"

#include <string.h>
#include <sys/stat.h>

int cli_train_find_model(const struct vb_opts *parsed, const char **model_p)
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
    if (a->mode == VB_MODE_ASYNC && a->elastic == TRAIN_ELASTIC_OFF)
        return cli_refuse(&cli_train, "--elastic off needs --mode sync: an asynchronous job always "
                                      "goes on without workers that die");
    if (a->min_ranks > 0 && (a->mode == VB_MODE_ASYNC || a->elastic == TRAIN_ELASTIC_OFF))
        return cli_refuse(&cli_train,
                          "--min-ranks needs --mode sync and --elastic on: no other job "
                          "goes on with fewer ranks");
    if (a->restarts > 0 && a->mode == VB_MODE_SYNC && a->elastic == TRAIN_ELASTIC_OFF)
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

struct vb_async_opts cli_train_async_opts(const struct train_args *a)
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

int cli_train_fill(const struct train_args *a, const struct vb_launch *launch,
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
    o->elastic = o->mode == VB_MODE_SYNC && a->elastic != TRAIN_ELASTIC_OFF;
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
    o->async = cli_train_async_opts(a);
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
