/* SPDX-License-Identifier: MIT */
#include "cli/bench_step.h"
#include "cli/cli.h"
#include "cli/models.h"

#include <math.h>
#include <string.h>

#define BAR 60 /* characters of a whole step */

/* ---- what was asked for ---------------------------------------------------------------------- */

static int refuse(const char *why)
{
    fprintf(stderr, "verbena bench: %s\n", why);
    return CLI_USAGE;
}

static int find_model(const char *name, const struct vb_train_model **model_p,
                      const struct vb_train_net **net_p)
{
    struct cli_names names = cli_net_names();
    char why[VB_OPTS_WHY], known[VB_OPTS_WHY / 2];
    const char *best;

    *model_p = name != NULL ? cli_net_find(name, net_p) : NULL;
    if (*model_p != NULL)
        return -1;
    cli_names_text(&names, "or", known, sizeof(known));
    best = name != NULL ? vb_nearest(name, names.list, names.n) : NULL;
    if (name == NULL)
        snprintf(why, sizeof(why), "step of which model? --model %s", known);
    else if (best != NULL)
        snprintf(why, sizeof(why), "--model %.64s: unknown; did you mean %s?", name, best);
    else
        snprintf(why, sizeof(why), "--model %.64s: unknown; must be %s", name, known);
    return refuse(why);
}

/* "8,16": one number more at *text_p, which moves behind it and its comma. */
static bool next_batch(const char **text_p, int *batch_p)
{
    size_t len = strcspn(*text_p, ",");
    char number[16];
    int64_t value;

    if (len == 0 || len >= sizeof(number))
        return false;
    memcpy(number, *text_p, len);
    number[len] = '\0';
    if (!vb_parse_int(number, &value) || value < 1 || value > VB_STEP_REACH)
        return false;
    *batch_p = (int)value;
    *text_p += len;
    if (**text_p == '\0')
        return true;
    return *++*text_p != '\0'; /* nothing behind the last comma: something is missing */
}

static int parse_batches(const char *text, struct vb_step_opts *o)
{
    const char *at = text;
    char why[VB_OPTS_WHY];
    bool fine = *at != '\0';

    for (o->n_batches = 0; fine && *at != '\0'; o->n_batches++)
        fine = o->n_batches < VB_STEP_BATCHES_MAX && next_batch(&at, &o->batches[o->n_batches]);
    if (fine)
        return -1;
    snprintf(why, sizeof(why),
             "--batches %.64s: must be up to %d numbers from 1 to %d, such as 8,64", text,
             VB_STEP_BATCHES_MAX, VB_STEP_REACH);
    return refuse(why);
}

/* What can be told before the data is opened. */
static int check_data(const struct vb_step_opts *o)
{
    const struct vb_data_spec *data = &o->train.data.data;
    char why[VB_OPTS_WHY];
    int i;

    for (i = 0; data->format == VB_DATA_SYNTH && data->n_given && i < o->n_batches; i++)
        if ((int64_t)o->batches[i] * o->train.group.world > data->n_train) {
            snprintf(why, sizeof(why), "a batch of %d on each of %d ranks: --data has %d samples",
                     o->batches[i], o->train.group.world, data->n_train);
            return refuse(why);
        }
    return -1;
}

int cli_bench_step_check(const struct cli_bench_step *args, const struct vb_launch *launch,
                         const struct vb_group_opts *group, bool elsewhere, struct vb_step_opts *o)
{
    const char *data = args->data != NULL ? args->data : "synth";
    const struct vb_train_model *model;
    const struct vb_train_net *net;
    char why[VB_OPTS_WHY];
    int code = find_model(args->model, &model, &net);

    if (code >= 0)
        return code;
    *o = (struct vb_step_opts){.seconds = args->seconds};
    o->train.model = model->name;
    o->train.input = net->input;
    o->train.data_text = data;
    o->train.seed = 1;
    o->train.threads = (int)args->threads;
    o->train.pin = true;
    o->train.group = *group;
    if (launch->supervised) {
        o->train.local_rank = launch->local_rank;
        o->train.local_ranks = launch->local_ranks;
    }
    code = parse_batches(args->batches != NULL ? args->batches : net->step_batches, o);
    if (code < 0 && vb_data_spec_parse(data, &o->train.data.data, why) != VB_OK)
        code = refuse(why);
    if (code < 0)
        code = check_data(o);
    if (code < 0 && args->plot != NULL && group->rank == 0 && !elsewhere)
        code = cli_step_plot_check(args->plot);
    return code;
}

/* ---- what came of it ------------------------------------------------------------------------- */

static void print_text(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    const struct vb_step_point *p = &r->points[r->n - 1];

    if (r->n == 1) {
        printf("a step of %s over %s: %d rank%s of %d thread%s; the slowest rank, medians\n",
               args->model, r->transport, r->ranks, r->ranks == 1 ? "" : "s", r->threads,
               r->threads == 1 ? "" : "s");
        printf("%8s %11s %11s %11s %11s %11s\n", "batch", "bytes", "compute ms", "transfer ms",
               "step ms", "exposed ms");
    }
    printf("%8d %11lld %11.4f %11.4f %11.4f %11.4f\n", p->batch, (long long)p->bytes, p->compute_ms,
           p->transfer_ms, p->step_ms, p->exposed_ms);
    fflush(stdout);
}

static void print_json(struct vb_json *j)
{
    vb_json_end(j);
    (void)vb_json_print(j, stdout);
    fflush(stdout);
    vb_json_destroy(j);
}

static void print_point(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    const struct vb_step_point *p = &r->points[r->n - 1];
    struct vb_json *j = vb_json_create();

    vb_json_object(j, NULL);
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

static void each(void *arg, const struct vb_step_result *result)
{
    const struct cli_bench_step *args = arg;

    if (args->json)
        print_point(args, result);
    else
        print_text(args, result);
}

/* A row a batch, all of the same length: what matters is the share. */
static void print_bars(const struct vb_step_result *r)
{
    char bar[BAR + 1];
    int i, exposed;

    printf("\n%8s a whole step: # computing, = exposed transfer\n", "");
    for (i = 0; i < r->n; i++) {
        double share = r->points[i].exposed_ms / r->points[i].step_ms;

        exposed = (int)lround(share * BAR);
        memset(bar, '#', BAR);
        memset(bar + BAR - exposed, '=', (size_t)exposed);
        bar[BAR] = '\0';
        printf("%8d %s %5.1f %% exposed\n", r->points[i].batch, bar, 100 * share);
    }
}

static bool beyond(const struct vb_step_result *r, int64_t batch)
{
    int i, least = r->points[0].batch, most = least;

    for (i = 1; i < r->n; i++) {
        least = r->points[i].batch < least ? r->points[i].batch : least;
        most = r->points[i].batch > most ? r->points[i].batch : most;
    }
    return batch < least || batch > most;
}

static void print_verdict(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    int64_t from = vb_step_hidden_from(r->points, r->n);

    printf("\n");
    if (r->ranks == 1)
        printf("One rank has nothing to transfer: --ranks 2.\n");
    else if (from == 0)
        printf("Computing %s takes less time than the transfer over %s at any batch up to %d.\n",
               args->model, r->transport, VB_STEP_REACH);
    else
        printf(
            "Computing %s takes as long as the transfer over %s, and can hide it, from batch %lld "
            "on%s.\n",
            args->model, r->transport, (long long)from,
            beyond(r, from) ? " (by the line through what was measured)" : "");
}

static void print_end(const struct cli_bench_step *args, const struct vb_step_result *r)
{
    int64_t from = vb_step_hidden_from(r->points, r->n);
    struct vb_json *j;

    if (!args->json) {
        print_bars(r);
        print_verdict(args, r);
        return;
    }
    j = vb_json_create();
    vb_json_object(j, NULL);
    vb_json_text(j, "bench", "step");
    vb_json_text(j, "transport", r->transport);
    vb_json_int(j, "ranks", r->ranks);
    vb_json_text(j, "model", args->model);
    if (from > 0)
        vb_json_int(j, "hidden_from_batch", from);
    else
        vb_json_text(j, "hidden_from_batch", NULL);
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
