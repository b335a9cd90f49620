/* SPDX-License-Identifier: MIT
 *
 * What a step is made of: the trainer makes blocks of steps in three modes, in turn, so that what
 * else goes on in the machine meets all of them. A block's time is that of its slowest rank, and
 * the median of the blocks counts.
 *
 * The rate is so low that parameters hardly move: the first block computes the same as the last,
 * and ranks that have made steps without each other can go on together. Nor are gradients clipped,
 * which would be the rule there and is the exception later. Without sums each rank updates all
 * parameters itself, also where ranks of one host share that out: what they save by it makes up for
 * some of the transfer, as it does in training.
 */
#include "engine/train_priv.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define RATE 1e-6
#define STEPS_MAX (INT64_C(1) << 40) /* never reached */
#define BLOCK_US 2000.0              /* short steps are made many in a block */
#define BLOCK_MAX 4096
#define ROUNDS_MIN 5
#define ROUNDS_MAX 256 /* one record, gathered at the end */
#define WARM_BLOCKS 4
#define EPOCH_MIN 8 /* steps in made-up data */

enum mode { FULL, NO_SUMS, SUMS, MODES };

struct bench {
    struct vb_trainer trainer;
    struct vb_group *group; /* NULL: one rank */
    int world;
    size_t bytes;          /* of the last gradient */
    int64_t block[MODES];  /* steps of a block; rank 0 decides, likewise below */
    double step_us[MODES]; /* about */
    int rounds;
    double us[MODES][ROUNDS_MAX];
};

/* ---- blocks ---------------------------------------------------------------------------------- */

static vb_status one_step(struct bench *b, enum mode mode)
{
    if (mode == SUMS)
        return b->trainer.ops->sum_again(&b->trainer, &b->bytes);
    return vb_trainer_step(&b->trainer);
}

static vb_status make_steps(struct bench *b, enum mode mode, int64_t n)
{
    vb_status st = VB_OK;
    int64_t i;

    b->trainer.no_sums = mode == NO_SUMS;
    for (i = 0; i < n && st == VB_OK; i++)
        st = one_step(b, mode);
    b->trainer.no_sums = false;
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

/* The first blocks warm up, and tell how long a step takes. */
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

/* A rank alone has no sums to leave out. */
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

/* Each mode comes after each of the others. Some steps before a long block are not counted: caches
 * and the loader are to be as in the middle of it. */
static vb_status one_round(struct bench *b, int round)
{
    int n = modes_of(b), i;
    vb_status st = VB_OK;

    for (i = 0; i < n && st == VB_OK; i++) {
        enum mode mode = (enum mode)(round % 2 == 0 ? i : n - 1 - i);

        st = make_steps(b, mode, b->block[mode] / 8);
        if (st == VB_OK)
            st = time_block(b, mode, b->block[mode], &b->us[mode][round]);
    }
    return st;
}

/* ---- what they come to ----------------------------------------------------------------------- */

/* all: room for ROUNDS_MAX of each rank. */
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

static vb_status measure(struct bench *b, double seconds, struct vb_step_point *point)
{
    vb_status st;
    int round;

    st = settle(b, seconds);
    for (round = 0; round < b->rounds && st == VB_OK; round++)
        st = one_round(b, round);
    if (st == VB_OK)
        st = b->trainer.ops->sum_again(&b->trainer, &b->bytes);
    return st == VB_OK ? summarise(b, point) : st;
}

static void make_enough(struct vb_train_opts *train)
{
    int64_t enough = train->batch * train->group.world * EPOCH_MIN;
    bool rows = strcmp(train->model, "sparse-lr") == 0;
    int64_t most = rows ? VB_DATA_ROWS_MAX : VB_DATA_SYNTH_MAX;
    struct vb_data_spec *data = &train->data.data;

    if (data->format == VB_DATA_SYNTH && !data->n_given && data->n_train < enough)
        data->n_train = (int)(enough < most ? enough : most);
}

static void fill_opts(const struct vb_step_opts *o, int batch, struct vb_group *group,
                      struct vb_train_opts *train)
{
    *train = o->train;
    train->open_group = group;
    train->batch = batch;
    train->whole_steps = true;
    train->steps = STEPS_MAX;
    train->lr = RATE;
    train->schedule = VB_SCHEDULE_CONSTANT;
    train->momentum = train->weight_decay = train->clip = -1;
    train->test_limit = 1;
    train->data.no_test = true;
    make_enough(train);
}

static vb_status one_batch(struct bench *b, const struct vb_step_opts *o, int batch,
                           struct vb_step_point *point)
{
    struct vb_train_opts train;
    vb_status st;

    fill_opts(o, batch, b->group, &train);
    point->batch = batch;
    st = vb_trainer_open(&b->trainer, &train);
    if (st == VB_OK && b->trainer.recipe.clip > 0)
        b->trainer.recipe.clip = DBL_MAX; /* gradients stay as large as at first: too large */
    if (st == VB_OK)
        st = measure(b, o->seconds, point);
    if (st != VB_OK)
        vb_trainer_give_up(&b->trainer, st);
    vb_trainer_close(&b->trainer);
    return st;
}

static vb_status all_batches(struct bench *b, const struct vb_step_opts *o,
                             struct vb_step_result *result)
{
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < o->n_batches && st == VB_OK; i++) {
        st = one_batch(b, o, o->batches[i], &result->points[i]);
        result->n += st == VB_OK;
        if (st == VB_OK && o->each != NULL && o->train.group.rank == 0)
            o->each(o->each_arg, result);
    }
    return st;
}

vb_status vb_bench_step(const struct vb_step_opts *o, struct vb_step_result *result_p)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct vb_place place = {0};
    vb_status st;

    if (b == NULL)
        return vb_err_sys("calloc");
    memset(result_p, 0, sizeof(*result_p));
    b->world = o->train.group.world;
    st = vb_place_open(&o->train, &place);
    if (st == VB_OK) {
        b->group = place.group;
        result_p->ranks = b->world;
        result_p->threads = place.placement != NULL ? place.placement->threads : o->train.threads;
        snprintf(result_p->transport, sizeof(result_p->transport), "%s",
                 b->group != NULL ? vb_group_transports(b->group) : "self");
        st = all_batches(b, o, result_p);
        vb_place_close(&place);
    }
    free(b);
    return st;
}
