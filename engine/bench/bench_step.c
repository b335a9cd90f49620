/* SPDX-License-Identifier: MIT
 *
 * Measures the parts of a step. The trainer makes blocks of steps in three modes, in turn, so that
 * other load on the machine affects all modes. The time of a block is the time of the slowest rank.
 * The median over the blocks is reported.
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
#define EPOCH_MIN 8 /* minimum number of steps in an epoch of synthetic data */

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

/* Finds the slowest rank of each round, and the median over rounds. all: an array with ROUNDS_MAX
 * numbers for each rank. */
static vb_status slowest(struct bench *b, enum mode mode, double *all, double *ms_p)
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
    vb_sort(us, (size_t)b->rounds);
    *ms_p = us[b->rounds / 2] / 1e3;
    return st;
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
    double *all = calloc((size_t)b->world, sizeof(b->us[0])), ms[MODES] = {0};
    vb_status st = VB_OK;
    int mode;

    if (all == NULL)
        return vb_err_sys("calloc");
    for (mode = 0; mode < modes_of(b) && st == VB_OK; mode++)
        st = slowest(b, (enum mode)mode, all, &ms[mode]);
    free(all);
    if (b->world == 1)
        ms[NO_SUMS] = ms[FULL];
    p->step_ms = ms[FULL];
    p->compute_ms = ms[NO_SUMS];
    p->transfer_ms = ms[SUMS];
    p->exposed_ms = ms[FULL] > ms[NO_SUMS] ? ms[FULL] - ms[NO_SUMS] : 0;
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
        for (i = 0; i < o->n_batches && st == VB_OK; i++) {
            st = one_batch(b, o, o->batches[i], &result_p->points[i]);
            result_p->n += st == VB_OK;
            if (st == VB_OK && o->each != NULL && o->train.group.rank == 0)
                o->each(o->each_arg, result_p);
        }
        vb_place_close(&place);
    }
    free(b);
    return st;
}

/* ---- the smallest batch whose computing hides the transfer ----------------------------------- */

/* The computing time is modelled as a straight line over the batch size: a cost per step plus a
 * cost per sample. The transfer time of sparse lists is also a line, because lists grow with the
 * batch. The transfer of dense gradients does not depend on the batch. */
struct line {
    double at_0, slope;
};

static bool all_same(const struct vb_step_point *points, int n, bool bytes)
{
    int i;

    for (i = 1; i < n; i++)
        if (bytes ? points[i].bytes != points[0].bytes : points[i].batch != points[0].batch)
            return false;
    return true;
}

/* Fits a line by least squares of relative errors; with absolute errors only the large batches
 * would count. The cost per step and the cost per sample are at least 0, whatever the noise. With a
 * single batch size the line goes through 0. */
static struct line fit_line(const struct vb_step_point *points, int n, bool transfer)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    struct line line = {0, 0};
    int i;

    for (i = 0; i < n; i++) {
        double value = transfer ? points[i].transfer_ms : points[i].compute_ms;
        double at = points[i].batch, weight;

        if (value <= 0)
            continue;
        weight = 1 / (value * value);
        w += weight;
        x += weight * at;
        y += weight * value;
        xx += weight * at * at;
        xy += weight * at * value;
    }
    if (w <= 0)
        return line;
    if (!all_same(points, n, false) && w * xx > x * x)
        line.slope = fmax((w * xy - x * y) / (w * xx - x * x), 0);
    line.at_0 = (y - line.slope * x) / w;
    if (line.at_0 < 0 || all_same(points, n, false))
        line = (struct line){.slope = xy / xx};
    return line;
}

/* Returns the smallest batch at which computing takes as long as the transfer; 0: there is none. */
static int64_t lines_cross(const struct vb_step_point *points, int n)
{
    struct line compute = fit_line(points, n, false), transfer = {0, 0};
    double lead, gain, from;
    int i;

    if (n == 0)
        return 0;
    if (all_same(points, n, true))
        for (i = 0; i < n; i++)
            transfer.at_0 += points[i].transfer_ms / n;
    else
        transfer = fit_line(points, n, true);
    lead = compute.at_0 - transfer.at_0;
    gain = compute.slope - transfer.slope;
    if (gain <= 0) /* a larger batch hides less of the transfer */
        return lead + gain * VB_STEP_REACH >= 0 ? 1 : 0;
    from = ceil(-lead / gain - 1e-9); /* 1e-9: rounding errors must not raise a whole number */
    if (from > VB_STEP_REACH)
        return 0;
    return from > 1 ? (int64_t)from : 1;
}

/* ---- what was measured beats what the lines say ---------------------------------------------- */

static double exposed_share(const struct vb_step_point *p)
{
    return p->step_ms > 0 ? p->exposed_ms / p->step_ms : 0;
}

/* Returns the point with the largest batch whose transfer is exposed, or NULL. */
static const struct vb_step_point *last_exposed(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *last = NULL;
    int i;

    for (i = 0; i < n; i++)
        if (exposed_share(&points[i]) > VB_STEP_HIDDEN &&
            (last == NULL || points[i].batch > last->batch))
            last = &points[i];
    return last;
}

/* Returns the point with the smallest batch above this one, or NULL. */
static const struct vb_step_point *next_above(const struct vb_step_point *points, int n, int batch)
{
    const struct vb_step_point *next = NULL;
    int i;

    for (i = 0; i < n; i++)
        if (points[i].batch > batch && points[i].step_ms > 0 &&
            (next == NULL || points[i].batch < next->batch))
            next = &points[i];
    return next;
}

/* The exposed share falls from one point to the next about as a power of the batch. */
static int64_t between(const struct vb_step_point *exposed, const struct vb_step_point *hidden)
{
    double high = log(exposed_share(exposed)), limit = log(VB_STEP_HIDDEN);
    double low = log(fmax(exposed_share(hidden), VB_STEP_HIDDEN / 10));
    double part = high > low ? (high - limit) / (high - low) : 1;
    double from = exposed->batch * pow((double)hidden->batch / exposed->batch, part);

    if (from <= exposed->batch)
        return exposed->batch + 1;
    return from < hidden->batch ? (int64_t)ceil(from) : hidden->batch;
}

int64_t vb_step_hidden_from(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *exposed = last_exposed(points, n);
    const struct vb_step_point *hidden =
        next_above(points, n, exposed != NULL ? exposed->batch : 0);
    int64_t from = lines_cross(points, n);

    if (exposed != NULL && hidden != NULL)
        return between(exposed, hidden);
    if (exposed != NULL) /* at the largest batch, too */
        return from > exposed->batch ? from : 0;
    return hidden != NULL && (from == 0 || from > hidden->batch) ? hidden->batch : from;
}
