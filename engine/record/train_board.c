/* SPDX-License-Identifier: MIT
 *
 * What the rank that leads gives to TensorBoard beside the rows that the ranks record: the options
 * of the run, the graph of the model, and histograms of parameters and gradients at each
 * evaluation.
 */
#include "engine/train/trainer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS_MAX 24
#define TENSORS_MAX (2 * VB_LAYERS_MAX)
#define GRAPH_BYTES 49152
#define JOIN_SLOTS 4 /* workers that may join if --max-workers is not given */

/* ---- options --------------------------------------------------------------------------------- */

struct params {
    struct vb_board_param list[PARAMS_MAX];
    int n;
};

static void add_number(struct params *p, const char *name, double number)
{
    struct vb_board_param *param = &p->list[p->n++];

    VB_ASSERT(p->n <= PARAMS_MAX);
    snprintf(param->name, sizeof(param->name), "%s", name);
    param->number = number;
}

static void add_text(struct params *p, const char *name, const char *fmt, ...) VB_PRINTF(3, 4);
static void add_text(struct params *p, const char *name, const char *fmt, ...)
{
    struct vb_board_param *param = &p->list[p->n++];
    va_list args;

    VB_ASSERT(p->n <= PARAMS_MAX);
    snprintf(param->name, sizeof(param->name), "%s", name);
    va_start(args, fmt);
    vsnprintf(param->text, sizeof(param->text), fmt, args);
    va_end(args);
}

/* A parameter has the same type in all runs: TensorBoard compares them. */
static void add_async(struct params *p, const struct vb_train_opts *o)
{
    bool async = o->mode == VB_MODE_ASYNC;

    add_number(p, "servers", async ? vb_train_shards(&o->async) : 0);
    if (!async)
        add_text(p, "staleness", "none");
    else if (!o->async.bounded)
        add_text(p, "staleness", "unbounded");
    else
        add_text(p, "staleness", "%lld", (long long)o->async.staleness);
}

static void add_rule(struct params *p, const struct vb_recipe *r)
{
    static const char *const schedules[] = {"constant", "step", "cosine"};

    add_text(p, "rule", "%s", vb_k_rule_str(r->rule.kind));
    add_number(p, "lr", r->schedule.base);
    add_text(p, "schedule", "%s", schedules[r->schedule.kind]);
    add_number(p, "warmup_steps", (double)r->schedule.warmup);
    add_number(p, "momentum", (double)r->rule.momentum);
    add_number(p, "weight_decay", (double)r->rule.decay);
    add_number(p, "clip", r->clip);
}

static void add_params(struct params *p, const struct vb_trainer *t)
{
    static const char *const modes[] = {"sync", "single", "async"};
    const struct vb_train_opts *o = t->o;
    bool single = o->group.world == 1 && o->mode != VB_MODE_ASYNC;
    char until[VB_UNTIL_LIST];

    vb_until_list(&o->until, until);
    add_text(p, "model", "%s", t->model.net->name);
    add_text(p, "data", "%s", o->data.text != NULL ? o->data.text : "synth");
    add_text(p, "mode", "%s", single ? "single" : modes[o->mode]);
    add_number(p, "ranks", o->group.world);
    add_number(p, "batch", vb_trainer_share(t));
    add_number(p, "global_batch", t->recipe.global_batch);
    add_number(p, "steps", (double)t->recipe.steps);
    add_rule(p, &t->recipe);
    add_number(p, "seed", (double)o->seed);
    add_text(p, "until", "%s", o->until.n > 0 ? until : "none");
    add_text(p, "transport", "%s",
             t->place.group != NULL ? vb_group_transports(t->place.group) : "none");
    add_text(p, "wire", "%s", o->sums.coll.wire == VB_WIRE_BF16 ? "bf16" : "f32");
    add_async(p, o);
    add_number(p, "threads", o->place.threads);
    add_text(p, "link", "%s", o->run.link != NULL ? o->run.link : "none");
}

/* ---- opening --------------------------------------------------------------------------------- */

static int list_tensors(struct vb_trainer *t, struct vb_board_tensor tensors[TENSORS_MAX])
{
    const struct vb_param *table = NULL;
    int i, n = 0;

    if (t->ops->tensors != NULL)
        table = t->ops->tensors(t, &n);
    for (i = 0; i < n && i < TENSORS_MAX; i++) {
        snprintf(tensors[i].name, sizeof(tensors[i].name), "%s", table[i].name);
        tensors[i].first = table[i].offset;
        tensors[i].n = (size_t)table[i].rows * (size_t)table[i].cols;
    }
    if (table != NULL)
        return i;
    /* the weights and, at the end, the bias */
    tensors[0] =
        (struct vb_board_tensor){.name = "linear.w", .n = (size_t)t->data.train.features + 1};
    return 1;
}

/* Returns the number of ranks that may get a folder: all of the group, and those that join. */
static int count_ranks(const struct vb_train_opts *o)
{
    int join = o->async.max_workers > 0 ? o->async.max_workers - vb_train_workers(o) : JOIN_SLOTS;

    return o->group.world + (o->join.words != NULL && join > 0 ? join : 0);
}

vb_status vb_train_board_open(struct vb_trainer *t)
{
    struct vb_board_tensor tensors[TENSORS_MAX];
    unsigned char *bytes = malloc(GRAPH_BYTES);
    struct vb_proto graph = {.bytes = bytes, .size = GRAPH_BYTES};
    struct params params = {.n = 0};
    struct vb_board_opts opts = {.rec = t->record.rec,
                                 .dir = t->o->run.dir,
                                 .append = t->o->run.append,
                                 .resumed = t->resumed,
                                 .ranks = count_ranks(t->o),
                                 .workers = t->world,
                                 .asleep = !t->leads,
                                 .params = params.list,
                                 .graph = &graph,
                                 .tensors = tensors};
    vb_status st;

    if (bytes == NULL)
        return vb_err_sys("malloc");
    vb_train_graph(t, &graph);
    add_params(&params, t);
    opts.n_params = params.n;
    opts.n_tensors = list_tensors(t, tensors);
    st = vb_board_open(&opts, &t->record.board);
    free(bytes);
    return st;
}

/* ---- metrics.prom ---------------------------------------------------------------------------- */

vb_status vb_train_metrics_open(struct vb_trainer *t)
{
    static const char *const modes[] = {"sync", "single", "async"};
    struct vb_metrics_opts opts = {.rec = t->record.rec,
                                   .dir = t->o->run.dir,
                                   .append = t->o->run.append,
                                   .ranks = count_ranks(t->o),
                                   .steps = t->recipe.steps,
                                   .resumed = t->resumed,
                                   .model = t->model.row->name,
                                   .mode = modes[t->o->mode],
                                   .replayed = t->o->replay,
                                   .async = t->async,
                                   .asleep = !t->leads};
    int p;

    for (p = 0; p < VB_PHASES; p++)
        opts.phases[p] = vb_phase_str((enum vb_phase)p);
    return vb_metrics_open(&opts, &t->record.metrics);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static void count_dense(struct vb_trainer *t)
{
    const float *values;
    float scale;
    size_t n;

    values = t->ops->params(t, &n);
    if (values != NULL)
        vb_board_count(t->record.board, VB_BOARD_WEIGHTS, values, 1);
    values = t->ops->gradient(t, &n, &scale);
    if (values != NULL)
        vb_board_count(t->record.board, VB_BOARD_GRADIENTS, values, scale);
}

/* Most features of a sparse model are never seen, and reading all of their weights would take
 * longer than many steps: so these are the features of one batch. */
static void count_sparse(struct vb_trainer *t)
{
    const float *values;
    float scale;
    size_t n;

    values = t->ops->gradient(t, &n, &scale);
    if (values == NULL)
        return;
    vb_board_count_list(t->record.board, VB_BOARD_GRADIENTS, 0, values, n, scale);
    values = t->ops->weights(t, &n);
    vb_board_count_list(t->record.board, VB_BOARD_WEIGHTS, 0, values, n, 1);
}

void vb_train_board_eval(struct vb_trainer *t, int64_t step)
{
    struct vb_board *board = t->record.board;

    if (board == NULL || !t->leads || !vb_board_begin(board, step))
        return;
    if (t->model.row->sparse)
        count_sparse(t);
    else
        count_dense(t);
    vb_board_end(board);
    vb_lap(&t->laps, VB_PHASE_EVAL);
}
