/* SPDX-License-Identifier: MIT
 *
 * Measures the parts of a step. The trainer makes blocks of steps in three modes, in turn, so that
 * other load on the machine affects all modes. The time of a block is the time of the slowest rank.
 * Medians over the blocks are reported.
 *
 * The learning rate is so low that parameters hardly change. So all blocks do the same amount of
 * work, and after steps without sums the ranks can sum gradients again. Gradients are not clipped:
 * at this rate nearly all would be, as at the start of training, but later only few are. Without
 * sums each rank updates all parameters itself, even if the ranks of one host share the update in
 * training; so the time that sharing saves is subtracted from the exposed transfer.
 */
#include "engine/bench/engine_bench.h"
#include "engine/train/trainer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE 1e-6
#define STEPS_MAX (INT64_C(1) << 40) /* a benchmark makes fewer steps */
#define BLOCK_US 2000.0              /* a block has about as many steps as fit into this time */
#define BLOCK_MAX 4096
#define ROUNDS_MIN 5
#define ROUNDS_MAX 256 /* so few that the times of a mode fit into one record */
#define WARM_BLOCKS 4
#define REFINE_MAX 16 /* measurements */
#define EPOCH_MIN 8   /* minimum number of steps in an epoch of synthetic data */

enum mode { FULL, NO_SUMS, SUMS, MODES };

struct bench {
    struct vb_trainer trainer;
    struct vb_group *group; /* NULL: this is the only rank */
    int world;
    size_t bytes;          /* size of the last gradient in bytes */
    int64_t block[MODES];  /* steps per block; rank 0 chooses block and step_us for all ranks */
    double step_us[MODES]; /* estimated time of a step */
    int rounds;
    double us[MODES][ROUNDS_MAX];
};

/* ---- blocks ---------------------------------------------------------------------------------- */

static vb_status make_steps(struct bench *b, enum mode mode, int64_t n)
{
    struct vb_trainer *t = &b->trainer;
    vb_status st = VB_OK;
    int64_t i;

    t->sums.off = mode == NO_SUMS;
    for (i = 0; i < n && st == VB_OK; i++)
        st = mode == SUMS ? t->ops->sum_again(t, &b->bytes) : vb_trainer_step(t);
    t->sums.off = false;
    return st;
}

static vb_status time_block(struct bench *b, enum mode mode, int64_t n, double *us_p)
{
    vb_status st = b->group != NULL ? vb_group_barrier(b->group) : VB_OK;
    uint64_t start = vb_clock_ns();

    if (st == VB_OK)
        st = make_steps(b, mode, n);
    *us_p = (double)(vb_clock_ns() - start) / 1e3 / (double)n;
    return st;
}

/* Makes some blocks to warm up, and measures how long a step takes. */
static vb_status settle_block(struct bench *b, enum mode mode)
{
    struct {
        int64_t block;
        double us;
    } own = {.block = 1};
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < WARM_BLOCKS && st == VB_OK; i++) {
        st = time_block(b, mode, own.block, &own.us);
        own.block = own.us < BLOCK_US / BLOCK_MAX ? BLOCK_MAX : (int64_t)(BLOCK_US / own.us) + 1;
        if (st == VB_OK && b->group != NULL)
            st = vb_group_broadcast(b->group, 0, &own, sizeof(own));
    }
    b->block[mode] = own.block;
    b->step_us[mode] = own.us;
    return st;
}

/* Returns the number of modes to measure. A single rank has no sums, so it has one mode only. */
static int modes_of(const struct bench *b)
{
    return b->world > 1 ? MODES : FULL + 1;
}

static vb_status settle(struct bench *b, double seconds)
{
    double rounds;
    vb_status st = VB_OK;
    int mode;

    for (mode = 0; mode < modes_of(b) && st == VB_OK; mode++)
        st = settle_block(b, (enum mode)mode);
    rounds = seconds * 1e6 / (b->step_us[FULL] * (double)b->block[FULL]);
    b->rounds = rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds > ROUNDS_MIN ? (int)rounds : ROUNDS_MIN;
    return st;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Finds the slowest rank of each round. all: an array with ROUNDS_MAX numbers for each rank. */
static vb_status slowest(struct bench *b, enum mode mode, double *all)
{
    double *us = b->us[mode];
    vb_status st = VB_OK;
    int r, i;

    if (b->group != NULL)
        st = vb_group_gather(b->group, us, sizeof(b->us[mode]), all);
    for (r = 0; st == VB_OK && b->group != NULL && r < b->world; r++)
        for (i = 0; i < b->rounds; i++)
            if (all[r * ROUNDS_MAX + i] > us[i])
                us[i] = all[r * ROUNDS_MAX + i];
    return st;
}

static double median_ms(const struct bench *b, double *us)
{
    vb_sort(us, (size_t)b->rounds);
    return us[b->rounds / 2] / 1e3;
}

/* The machine may become faster or slower from round to round. So what the sums add to a step is
 * the median of the differences within a round. */
static double added_ms(const struct bench *b)
{
    double us[ROUNDS_MAX];
    int i;

    for (i = 0; i < b->rounds; i++)
        us[i] = b->us[FULL][i] - b->us[NO_SUMS][i];
    return median_ms(b, us);
}

static vb_status longest(struct bench *b, int64_t *bytes_p)
{
    int64_t all[VB_WORLD_MAX], own = (int64_t)b->bytes;
    vb_status st = VB_OK;
    int r;

    *bytes_p = own;
    if (b->group != NULL)
        st = vb_group_gather(b->group, &own, sizeof(own), all);
    for (r = 0; st == VB_OK && b->group != NULL && r < b->world; r++)
        if (all[r] > *bytes_p)
            *bytes_p = all[r];
    return st;
}

static vb_status summarise(struct bench *b, struct vb_step_point *p)
{
    double *all = calloc((size_t)b->world, sizeof(b->us[0])), added;
    vb_status st = VB_OK;
    int mode;

    if (all == NULL)
        return vb_err_sys("calloc");
    for (mode = 0; mode < modes_of(b) && st == VB_OK; mode++)
        st = slowest(b, (enum mode)mode, all);
    free(all);
    added = b->world > 1 ? added_ms(b) : 0;
    p->step_ms = p->compute_ms = median_ms(b, b->us[FULL]);
    p->transfer_ms = b->world > 1 ? median_ms(b, b->us[SUMS]) : 0;
    p->exposed_ms = added > 0 ? fmin(added, p->step_ms) : 0;
    if (added > 0)
        p->compute_ms = p->step_ms - p->exposed_ms;
    else if (b->world > 1)
        p->compute_ms = fmax(p->step_ms, median_ms(b, b->us[NO_SUMS]));
    return st == VB_OK ? longest(b, &p->bytes) : st;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The order of the modes alternates, so that no mode always follows the same one. Before a long
 * block some steps are made that do not count, so that caches and the loader are in the same state
 * as in the middle of a block. */
static vb_status measure(struct bench *b, double seconds, struct vb_step_point *point)
{
    int n = modes_of(b), round, i;
    vb_status st = settle(b, seconds);

    for (round = 0; round < b->rounds && st == VB_OK; round++)
        for (i = 0; i < n && st == VB_OK; i++) {
            enum mode mode = (enum mode)(round % 2 == 0 ? i : n - 1 - i);

            st = make_steps(b, mode, b->block[mode] / 8);
            if (st == VB_OK)
                st = time_block(b, mode, b->block[mode], &b->us[mode][round]);
        }
    if (st == VB_OK)
        st = b->trainer.ops->sum_again(&b->trainer, &b->bytes);
    return st == VB_OK ? summarise(b, point) : st;
}

static void fill_opts(const struct vb_step_opts *o, int batch, struct vb_group *group,
                      struct vb_train_opts *train)
{
    int64_t enough = (int64_t)batch * o->train.group.world * EPOCH_MIN;
    bool sparse = vb_train_model_find(o->train.model)->sparse;
    int64_t most = sparse ? VB_DATA_ROWS_MAX : VB_DATA_SYNTH_MAX;
    struct vb_data_spec *data = &train->data.ask.data;

    *train = o->train;
    train->open_group = group;
    train->length.batch = batch;
    train->data.whole_steps = true;
    train->length.steps = STEPS_MAX;
    train->learn.lr = RATE;
    train->learn.schedule = VB_SCHEDULE_CONSTANT;
    train->learn.momentum = train->learn.weight_decay = train->learn.clip = -1;
    train->data.test_limit = 1;
    train->data.ask.no_test = true;
    if (data->format == VB_DATA_SYNTH && !data->n_given && data->n_train < enough)
        data->n_train = (int)(enough < most ? enough : most);
}

static vb_status one_batch(struct bench *b, const struct vb_step_opts *o, int batch,
                           struct vb_step_point *point)
{
    struct vb_train_opts train;
    vb_status st;

    fill_opts(o, batch, b->group, &train);
    point->batch = batch;
    point->times = 1;
    st = vb_trainer_open(&b->trainer, &train, NULL);
    if (st == VB_OK && b->trainer.recipe.clip > 0)
        b->trainer.recipe.clip = DBL_MAX; /* the norm is computed, but nothing is clipped */
    if (st == VB_OK)
        st = measure(b, o->seconds, point);
    if (st != VB_OK)
        vb_trainer_give_up(&b->trainer, st);
    vb_trainer_close(&b->trainer);
    return st;
}

/* Puts a point at the end of the list, together with earlier measurements of its batch. */
static void keep(struct vb_step_result *result, const struct vb_step_point *point)
{
    struct vb_step_point *list = result->points, before;
    int i = 0;

    while (i < result->n && list[i].batch != point->batch)
        i++;
    if (i == result->n) {
        list[result->n++] = *point;
        return;
    }
    before = list[i];
    vb_step_merge(&before, point);
    list[i] = list[result->n - 1];
    list[result->n - 1] = before;
}

static vb_status add_point(struct bench *b, const struct vb_step_opts *o, int batch,
                           struct vb_step_result *result)
{
    struct vb_step_point point;
    vb_status st = one_batch(b, o, batch, &point);

    if (st != VB_OK)
        return st;
    keep(result, &point);
    if (o->each != NULL && o->train.group.rank == 0)
        o->each(o->each_arg, result);
    return VB_OK;
}

static int by_batch(const void *x, const void *y)
{
    const struct vb_step_point *a = x, *b = y;

    return (a->batch > b->batch) - (a->batch < b->batch);
}

/* Measures more batches near the one from which on computing hides the transfer, and the two around
 * it again. All ranks have the same points, so they choose the same batches. */
static vb_status refine(struct bench *b, const struct vb_step_opts *o,
                        struct vb_step_result *result)
{
    const struct vb_data_spec *data = &o->train.data.ask.data;
    int64_t given = 0, most = VB_STEP_REACH, next;
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < o->n_batches; i++)
        given = o->batches[i] > given ? o->batches[i] : given;
    if (data->format != VB_DATA_SYNTH)
        most = given;
    else if (data->n_given)
        most = data->n_train / b->world;
    for (i = 0; i < REFINE_MAX && result->n < VB_STEP_BATCHES_MAX && st == VB_OK; i++) {
        next = vb_step_next_batch(result->points, result->n, given, most);
        if (next == 0)
            next = vb_step_unsure_batch(result->points, result->n);
        if (next == 0)
            break;
        st = add_point(b, o, (int)next, result);
    }
    qsort(result->points, (size_t)result->n, sizeof(result->points[0]), by_batch);
    return st;
}

vb_status vb_bench_step(const struct vb_step_opts *o, struct vb_step_result *result_p)
{
    struct vb_place place = {0};
    vb_status st = vb_trainer_check(&o->train);
    struct bench *b;
    int i;

    if (st != VB_OK)
        return st;
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return vb_err_sys("calloc");
    memset(result_p, 0, sizeof(*result_p));
    b->world = o->train.group.world;
    st = vb_place_open(&o->train, &place);
    if (st == VB_OK) {
        b->group = place.group;
        result_p->ranks = b->world;
        result_p->threads =
            place.placement != NULL ? place.placement->threads : o->train.place.threads;
        snprintf(result_p->transport, sizeof(result_p->transport), "%s",
                 b->group != NULL ? vb_group_transports(b->group) : "self");
        for (i = 0; i < o->n_batches && st == VB_OK; i++)
            st = add_point(b, o, o->batches[i], result_p);
        if (st == VB_OK && o->refine && b->world > 1)
            st = refine(b, o, result_p);
        vb_place_close(&place);
    }
    free(b);
    return st;
}
