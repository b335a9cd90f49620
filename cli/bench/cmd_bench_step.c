/* SPDX-License-Identifier: MIT */
#include "cli/bench/cmd_bench.h"

#include <math.h>
#include <string.h>

#define BAR 60   /* width in characters of the bar that shows a whole step */
#define NEAR 1.2 /* times the expected batch: what was measured is near enough */

/* ---- arguments ------------------------------------------------------------------------------- */

static int parse_batches(const char *text, struct vb_step_opts *o)
{
    int64_t batches[VB_STEP_BATCHES_MAX];
    int i;

    o->n_batches = cli_parse_numbers(text, VB_STEP_REACH, batches, VB_STEP_BATCHES_MAX);
    if (o->n_batches < 0)
        return cli_refuse(&cli_bench,
                          "--batches %.64s: must be up to %d numbers from 1 to %d, such as 8,64",
                          text, VB_STEP_BATCHES_MAX, VB_STEP_REACH);
    for (i = 0; i < o->n_batches; i++)
        o->batches[i] = (int)batches[i];
    return -1;
}

/* Checks the batch sizes, as far as this is possible before the data is opened. */
static int check_data(const struct vb_step_opts *o)
{
    const struct vb_data_spec *data = &o->train.data.ask.data;
    int i;

    for (i = 0; data->format == VB_DATA_SYNTH && data->n_given && i < o->n_batches; i++)
        if ((int64_t)o->batches[i] * o->train.group.world > data->n_train)
            return cli_refuse(
                &cli_bench, "a batch of %d on each of %d ranks is too large: --data has %d samples",
                o->batches[i], o->train.group.world, data->n_train);
    return -1;
}

int cli_bench_step_check(const struct cli_bench_step *args, const struct vb_launch *launch,
                         const struct vb_group_opts *group, bool elsewhere, struct vb_step_opts *o)
{
    const char *data = args->data != NULL ? args->data : "synth";
    struct cli_names names = cli_model_names(true);
    const struct vb_train_net *net;
    const char *model;
    char why[VB_OPTS_WHY];
    int code = cli_find_model(&cli_bench, "bench step needs a model: --model", args->model, &names,
                              &model);

    if (code >= 0)
        return code;
    *o = (struct vb_step_opts){.seconds = args->seconds};
    o->train.model = cli_net_find(model, &net)->name;
    o->train.data.input = net->input;
    o->train.data.text = data;
    o->train.seed = 1;
    o->train.fast_math = args->fast_math;
    o->train.place.threads = (int)args->threads;
    o->train.place.pin = true;
    o->train.group = *group;
    if (launch->supervised) {
        o->train.place.local_rank = launch->local_rank;
        o->train.place.local_ranks = launch->local_ranks;
    }
    o->refine = args->batches == NULL || args->refine;
    code = parse_batches(args->batches != NULL ? args->batches : net->step_batches, o);
    if (code < 0 && vb_data_spec_parse(data, &o->train.data.ask.data, why) != VB_OK)
        code = cli_refuse(&cli_bench, "%s", why);
    if (code < 0)
        code = check_data(o);
    if (code < 0 && args->plot != NULL && group->rank == 0 && !elsewhere)
        code = cli_step_plot_check(args->plot);
    return code;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_json(struct vb_json *j)
{
    (void)cli_print_json(j);
    fflush(stdout);
}

static void print_point(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    const struct vb_step_point *p = &r->points[r->n - 1];
    struct vb_json *j = cli_json_object();

    vb_json_text(j, "bench", "step");
    vb_json_text(j, "transport", r->transport);
    vb_json_int(j, "ranks", r->ranks);
    vb_json_int(j, "bytes", p->bytes);
    vb_json_text(j, "model", args->model);
    vb_json_int(j, "batch", p->batch);
    vb_json_real(j, "compute_ms", p->compute_ms);
    vb_json_real(j, "transfer_ms", p->transfer_ms);
    vb_json_real(j, "exposed_ms", p->exposed_ms);
    vb_json_real(j, "step_ms", p->step_ms);
    print_json(j);
}

/* Prints the last point. Called after each measurement. */
static void each(void *arg, const struct vb_step_result *r)
{
    const struct cli_bench_step *args = arg;
    const struct vb_step_point *p = &r->points[r->n - 1];

    if (args->json) {
        print_point(args, r);
        return;
    }
    if (r->n == 1) {
        printf(
            "a step of %s over %s: %d rank%s with %d thread%s each; median of the slowest rank\n",
            args->model, r->transport, r->ranks, r->ranks == 1 ? "" : "s", r->threads,
            r->threads == 1 ? "" : "s");
        printf("%8s %11s %11s %11s %11s %11s\n", "batch", "bytes", "compute ms", "transfer ms",
               "step ms", "exposed ms");
    }
    printf("%8d %11lld %11.4f %11.4f %11.4f %11.4f\n", p->batch, (long long)p->bytes, p->compute_ms,
           p->transfer_ms, p->step_ms, p->exposed_ms);
    fflush(stdout);
}

/* Prints one bar per batch size. All bars have the same length, because they show shares, not
 * times. */
static void print_bars(const struct vb_step_result *r)
{
    char bar[BAR + 1];
    int i, exposed;

    printf("\n%8s parts of a step: # computing, = exposed transfer\n", "");
    for (i = 0; i < r->n; i++) {
        double share = r->points[i].exposed_ms / r->points[i].step_ms;

        exposed = (int)lround(share * BAR);
        memset(bar, '#', BAR);
        memset(bar + BAR - exposed, '=', (size_t)exposed);
        bar[BAR] = '\0';
        printf("%8d %s %5.1f %% exposed\n", r->points[i].batch, bar, 100 * share);
    }
}

static void print_verdict(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    int64_t from = vb_step_hidden_from(r->points, r->n);
    int64_t expected = vb_step_expected_from(r->points, r->n);

    printf("\n");
    if (r->ranks == 1)
        printf("One rank has nothing to transfer; try --ranks 2.\n");
    else if (from == 0 && expected == 0)
        printf(
            "Computing %s does not hide the transfer over %s at any batch that was measured, nor "
            "is it expected to at a larger one.\n",
            args->model, r->transport);
    else if (from == 0)
        printf("Computing %s does not hide the transfer over %s at any batch that was measured. "
               "It is expected to from about batch %lld on.\n",
               args->model, r->transport, (long long)expected);
    else
        printf("From batch %lld on, computing %s hides the transfer over %s: at most %.0f %% of a "
               "step are exposed.\n",
               (long long)from, args->model, r->transport, 100 * VB_STEP_HIDDEN);
    if ((double)from > NEAR * (double)expected && expected > 0)
        printf("That it does so from about batch %lld on is expected by the points around it; "
               "--refine measures that.\n",
               (long long)expected);
}

static void add_batch(struct vb_json *j, const char *key, int64_t batch)
{
    if (batch > 0)
        vb_json_int(j, key, batch);
    else
        vb_json_text(j, key, NULL);
}

static void print_end(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    struct vb_json *j;

    if (!args->json) {
        print_bars(r);
        print_verdict(args, r);
        return;
    }
    j = cli_json_object();
    vb_json_text(j, "bench", "step");
    vb_json_text(j, "transport", r->transport);
    vb_json_int(j, "ranks", r->ranks);
    vb_json_text(j, "model", args->model);
    add_batch(j, "hidden_from_batch", vb_step_hidden_from(r->points, r->n));
    add_batch(j, "expected_from_batch", vb_step_expected_from(r->points, r->n));
    print_json(j);
}

int cli_bench_step(const struct cli_bench_step *args, struct vb_step_opts *o)
{
    struct vb_step_result result;
    vb_status st;

    vb_log_set_rank(o->train.group.world > 1 ? o->train.group.rank : -1);
    o->each = each;
    o->each_arg = (void *)args;
    st = vb_bench_step(o, &result);
    if (st == VB_OK && o->train.group.rank == 0) {
        print_end(args, &result);
        if (args->plot != NULL)
            st = cli_step_plot(args->plot, args->model, &result);
    }
    return cli_finish(cli_exit_code(st));
}
