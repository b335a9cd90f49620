/* SPDX-License-Identifier: MIT
 *
 * The trainer of one rank: set-up and steps. In synchronous training each rank computes the
 * gradient of its share of a global batch. All ranks sum these gradients, and each makes the same
 * step with the mean.
 *
 * The order of samples follows from the seed and the epoch, and each rank takes its share of it. So
 * the samples of a step depend on the seed and the global batch, not on the number of ranks. With
 * another number of ranks the sums are rounded differently; nothing else changes.
 *
 * The numbers of a run and its plan are those of the ranks that it began with. If it goes on with
 * fewer ranks, their larger shares are computed in pieces of the planned size.
 */
#include "engine/train/train_room_priv.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WATCH_NS 100000000u
#define AHEAD 2     /* batches that the loader prepares in advance */
#define FEW_ROWS 16 /* number of rows; a smaller batch is made faster than a thread is woken */

/* ---- setting up ------------------------------------------------------------------------------ */

void vb_trainer_find_model(struct vb_trainer *t)
{
    const struct vb_train_model *row = vb_train_model_find(t->o->model);
    const struct vb_train_net *net = vb_train_net_of(row, t->o->data.input);

    t->model = (struct vb_trainer_model){row, net, vb_layer_table_find(net->name)};
    t->ops = row->sparse ? &vb_trainer_sparse : &vb_trainer_dense;
}

int vb_trainer_share(const struct vb_trainer *t)
{
    return (t->recipe.global_batch + t->shares - 1) / t->shares;
}

int vb_trainer_batch(const struct vb_trainer *t)
{
    int ranks = vb_train_apart(t->o) ? 1 : t->planned;

    return (t->recipe.global_batch + ranks - 1) / ranks;
}

static void prepare_loader(void *arg)
{
    const struct vb_trainer *t = arg;

    vb_trace_attach(t->trace.trace, "loader");
    if (t->place.pinned && t->place.placement != NULL)
        (void)vb_placement_pin(t->place.topo, t->place.placement, t->place.local_rank,
                               VB_ROLE_LOADER);
}

/* Returns whether the loader's thread would have to share the only cpu with the computing thread.
 * Each thread would then wait until the scheduler suspends the other one. */
static bool loader_lacks_cpu(const struct vb_trainer *t)
{
    const struct vb_placement *placement = t->place.placement;

    if (t->async)
        return t->o->place.pin && !t->place.pinned;
    if (placement == NULL)
        return false;
    return placement->overlap || placement->ranks[t->place.local_rank].cpus.n == 1;
}

/* Returns how many batches a loader thread prepares in advance; 0: there is no loader thread. A
 * model that takes lists of pixels needs only the numbers of the samples, which is too little work
 * for a thread. Synchronous ranks that occupy all cores make the next batch while they wait for
 * sums. Asynchronous workers with images do not wait for sums, so they keep the thread. */
static int batches_ahead(const struct vb_trainer *t)
{
    bool sparse = t->model.row->sparse;
    bool few = sparse && !t->async && vb_trainer_share(t) < FEW_ROWS;

    return vb_trainer_has_pixels(t) || few || (loader_lacks_cpu(t) && (sparse || !t->async))
               ? 0
               : AHEAD;
}

static vb_status open_loader(struct vb_trainer *t, int global_batch, int rank, int ranks)
{
    bool apart = vb_train_apart(t->o);
    struct vb_loader_opts opts = {.set = &t->data.train,
                                  .seed = t->o->seed + (apart ? (uint64_t)t->rank << 32 : 0),
                                  .global_batch = global_batch,
                                  .rank = rank,
                                  .world = ranks,
                                  .batch_max = vb_trainer_batch(t),
                                  .ahead = batches_ahead(t),
                                  .no_x = vb_trainer_has_pixels(t),
                                  .on_start = prepare_loader,
                                  .on_start_arg = t};

    return vb_loader_open(&opts, &t->loader);
}

/* A joiner that shares batches with others learns its share later (vb_trainer_rebatch()).
 * Copying sparse rows takes about as long as computing with them, so the loader's thread replaces
 * one of the computing threads. */
static vb_status open_first_loader(struct vb_trainer *t)
{
    if (t->model.row->sparse && batches_ahead(t) > 0)
        vb_team_less_one();
    if (vb_train_apart(t->o))
        return open_loader(t, t->recipe.global_batch, 0, 1);
    if (t->joiner != NULL && t->async)
        return open_loader(t, vb_trainer_share(t), 0, 1);
    return open_loader(t, t->recipe.global_batch, t->share, t->shares);
}

vb_status vb_trainer_repartition(struct vb_trainer *t, int share, int shares)
{
    int64_t epoch = t->step / t->recipe.steps_per_epoch;
    vb_status st;

    if (t->async || t->loader == NULL)
        return vb_err(VB_ERR_USAGE, "only synchronous training can divide its batch anew");
    if (share < 0 || share >= shares || shares > t->recipe.global_batch)
        return vb_err(VB_ERR_USAGE, "there is no share %d of %d in steps of %d samples", share,
                      shares, t->recipe.global_batch);
    t->share = share;
    t->shares = shares;
    t->batch = NULL;
    if (t->ops->forget != NULL)
        t->ops->forget(t);
    st = vb_loader_reshare(t->loader, share, shares, epoch, t->step % t->recipe.steps_per_epoch);
    return st == VB_OK ? vb_ledger_begin(t) : st;
}

vb_status vb_trainer_rebatch(struct vb_trainer *t, int rank, int ranks, int64_t step)
{
    int64_t global_batch = (int64_t)vb_trainer_share(t) * ranks, steps;
    vb_status st;

    vb_loader_close(t->loader);
    t->loader = NULL;
    t->batch = NULL;
    if (global_batch > t->data.train.n)
        global_batch = t->data.train.n;
    st = open_loader(t, (int)global_batch, rank, ranks);
    if (st != VB_OK)
        return st;
    steps = vb_loader_steps(t->loader);
    return vb_loader_seek(t->loader, step / steps, step % steps);
}

/* Rank 0 makes the trials for all ranks: another machine might round differently. */
static vb_status make_trials(struct vb_trainer *t, struct vb_trial *trial)
{
    struct vb_group *group = t->joiner == NULL ? t->place.group : NULL;
    bool wanted = vb_recipe_wants_trial(t->o, t->data.train.n, &t->sample);
    char text[VB_TRIAL_TEXT], *told = NULL;
    vb_status st = VB_OK;

    if (!wanted || t->joiner != NULL)
        return VB_OK;
    if (t->leads)
        st = vb_trial_run(&t->sample, t->o->seed, trial);
    if (st != VB_OK || group == NULL)
        return st;
    vb_trial_print(trial, text);
    st = vb_train_tell_plan(group, text, &told);
    if (st == VB_OK && !vb_trial_parse(told, trial))
        st = vb_err(VB_ERR_INPUT, "rank 0 sent trials that cannot be read: %.100s", told);
    free(told);
    return st;
}

static void log_recipe(const struct vb_trainer *t)
{
    const struct vb_chosen *c = &t->recipe.chosen;

    VB_LOG_INFO("recipe: %s; rule: %s, rate: %s, steps: %s, batch: %s",
                c->why[0] != '\0' ? c->why : "as given", c->rule_from, c->lr_from, c->steps_from,
                c->batch_from);
}

/* Returns the options with the number of ranks that the run began with: numbers that depend on it
 * stay the same. */
static struct vb_train_opts as_planned(const struct vb_trainer *t)
{
    struct vb_train_opts o = *t->o;

    if (t->planned != t->world)
        o.group.world = t->planned;
    return o;
}

static vb_status make_recipe(struct vb_trainer *t)
{
    bool wants = vb_recipe_wants_sample(t->o);
    struct vb_train_opts o = as_planned(t);
    struct vb_trial trial = {0};
    vb_status st = wants ? vb_sample_take(&t->data.train, &t->sample) : VB_OK;

    if (st == VB_OK && wants)
        st = make_trials(t, &trial);
    vb_sample_free_rows(&t->sample);
    if (st == VB_OK)
        st = vb_recipe_make(&o, t->data.train.n, wants ? &t->sample : NULL, &trial, &t->recipe);
    if (st == VB_OK && t->joiner != NULL)
        vb_recipe_of_job(t->joiner->settings, &t->recipe);
    if (st == VB_OK && t->leads && t->joiner == NULL)
        log_recipe(t);
    return st;
}

static vb_status settle_options(struct vb_trainer *t)
{
    struct vb_train_opts o = as_planned(t);
    vb_status st = make_recipe(t);
    char data[VB_DATA_TEXT];

    if (st == VB_OK && t->recipe.global_batch < t->shares)
        st =
            vb_err(VB_ERR_USAGE,
                   "the run began with %d ranks and has steps of %d samples, too few for %d ranks; "
                   "resume it with fewer ranks",
                   t->planned, t->recipe.global_batch, t->shares);
    if (st != VB_OK)
        return st;
    t->evals.every = vb_until_eval_every(t->o, &t->recipe, t->data.n_test);
    vb_train_describe_data(t, data);
    t->settings = vb_train_settings(&o, &t->recipe, data);
    if (t->settings == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the settings");
    if (t->joiner != NULL)
        return vb_train_fits_job(t->settings, t->joiner->settings);
    if (t->place.group != NULL)
        st = vb_train_agree(t->o, t->place.group, t->settings);
    t->all_know = st == VB_ERR_USAGE;
    if (st == VB_OK && t->o->plan != NULL)
        st = vb_train_read_plan(t);
    return st;
}

static vb_status check_cpu(const struct vb_trainer *t)
{
    char own[VB_K_CPU_KIND];

    vb_k_cpu_kind(t->kernels.text, own);
    return vb_train_fits_cpu(t->o, t->joiner->cpu, own);
}

static vb_status make_model(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    vb_status st = VB_OK;

    if (cp != NULL && cp->plan[0] != '\0' && t->kernels.asked == NULL)
        st = vb_train_parse_plan(t, "the checkpoint", cp->plan);
    if (t->joiner != NULL && t->joiner->plan != NULL)
        st = vb_train_parse_plan(t, "the plan of the job", t->joiner->plan);
    if (st == VB_OK)
        st = vb_train_compile(t);
    if (st == VB_OK && cp != NULL && t->kernels.text != NULL &&
        strcmp(cp->plan, t->kernels.text) != 0)
        st = vb_err(VB_ERR_USAGE,
                    "cannot resume: the checkpoint belongs to a run with a different plan than %s",
                    t->o->plan);
    if (st == VB_OK && vb_trainer_comes(t))
        st = check_cpu(t);
    if (st == VB_OK)
        st = t->ops->create(t);
    if (st == VB_OK && !t->serves)
        st = open_first_loader(t);
    if (st == VB_OK && cp != NULL)
        st = vb_train_restore(t, cp);
    if (st == VB_OK)
        st = vb_until_open(t);
    if (st == VB_OK && cp != NULL)
        vb_until_resume(t, cp);
    return st;
}

static vb_status set_up(struct vb_trainer *t)
{
    struct vb_checkpoint *cp = NULL;
    vb_status st;

    vb_trainer_find_model(t);
    st = vb_train_open_data(t);
    if (st == VB_OK)
        st = vb_train_prepare_save(t);
    if (st == VB_OK)
        st = vb_train_saves_open(t);
    if (st == VB_OK && t->joiner == NULL)
        st = vb_train_find(t, &cp);
    if (st == VB_OK)
        st = settle_options(t);
    if (st == VB_OK && cp != NULL)
        st = vb_train_check_resumed(t, cp);
    if (st == VB_OK)
        st = make_model(t, cp);
    vb_checkpoint_free(cp);
    if (t->place.group != NULL && !vb_trainer_comes(t))
        vb_group_begin_at(t->place.group, t->step);
    return st;
}

void vb_trainer_close(struct vb_trainer *t)
{
    vb_train_saves_close(t);
    vb_train_record_close(t); /* its ticks may use the group */
    vb_loader_close(t->loader);
    vb_train_form_close(t);
    if (t->ops != NULL)
        t->ops->close(t);
    vb_place_close(&t->place);
    vb_train_record_free(t);
    vb_train_trace_close(t); /* no other thread measures any more */
    if (t->ops != NULL)
        t->ops->destroy(t);
    vb_dataset_destroy(&t->data.train);
    vb_dataset_destroy(&t->data.test);
    vb_checkpoint_unlock(t->saved.lock_fd);
    vb_copies_close(&t->copies);
    vb_sample_free(&t->sample);
    vb_ledger_close(t);
    vb_train_recoveries_close(t);
    free(t->evals.list);
    vb_until_close(t);
    free(t->settings);
    free(t->kernels.text);
    free(t->kernels.asked);
    vb_replay_close(t);
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool vb_trainer_is_to_show(const struct vb_trainer *t, bool evaluated)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;

    if (hooks->watch == NULL || (!t->shows && !hooks->watch_own) ||
        t->laps.mark_ns == t->laps.begin_ns)
        return false;
    return evaluated || t->laps.mark_ns - t->shown_ns >= WATCH_NS;
}

/* Estimates the time to the end. A joiner knows only the steps since it came. */
static double seconds_left(struct vb_trainer *t, int64_t step)
{
    uint64_t now = t->laps.mark_ns;

    if (t->shown_step < 0) {
        t->shown_step = t->joiner != NULL ? step : t->resumed;
        t->shown_first_ns = t->joiner != NULL ? now : t->laps.begin_ns;
    }
    if (step <= t->shown_step)
        return 0;
    return (double)(now - t->shown_first_ns) / 1e9 / (double)(step - t->shown_step) *
           (double)(t->recipe.steps - step);
}

void vb_trainer_show(struct vb_trainer *t, int64_t step, bool evaluated)
{
    struct vb_train_news news = {.step = step,
                                 .steps = t->recipe.steps,
                                 .epoch = (double)step / (double)t->recipe.steps_per_epoch,
                                 .rank = t->shows ? -1 : t->id,
                                 .loss = t->loss,
                                 .test_loss = t->evals.loss,
                                 .accuracy = t->evals.accuracy,
                                 .evaluated = evaluated,
                                 .replayed = t->replay.on};
    int64_t samples = t->samples;

    if (!vb_trainer_is_to_show(t, evaluated))
        return;
    t->shown_ns = t->laps.mark_ns;
    if (vb_train_apart(t->o) && t->shows && t->joiner == NULL)
        samples = (step - t->resumed) * t->recipe.global_batch;
    news.samples_per_s = (double)samples / vb_laps_steps_s(&t->laps);
    news.left_s = seconds_left(t, step);
    t->o->hooks.watch(t->o->hooks.watch_arg, &news);
}

const struct vb_batch *vb_trainer_next_batch(const struct vb_trainer *t)
{
    int64_t then = t->step + 1;

    if (then >= t->recipe.steps || (vb_trainer_is_due(t->evals.every, then) && !t->replay.on))
        return NULL;
    return vb_loader_peek(t->loader);
}

void vb_train_does(const struct vb_trainer *t, enum vb_activity activity)
{
    if (t->place.group != NULL)
        vb_group_does(t->place.group, activity);
    if (t->place.members != NULL)
        vb_group_does(t->place.members, activity);
}

vb_status vb_trainer_load(struct vb_trainer *t)
{
    uint64_t begin_ns = vb_trace_begin();
    vb_status st;

    vb_train_does(t, VB_DOES_LOAD);
    st = vb_loader_next(t->loader, &t->batch);
    vb_train_does(t, VB_DOES_COMPUTE);
    vb_trace_end(begin_ns, VB_OP_DATA, 0);
    vb_lap(&t->laps, VB_PHASE_DATA);
    return st;
}

vb_status vb_trainer_step(struct vb_trainer *t)
{
    uint64_t begin_ns;
    vb_status st;

    vb_train_trace_step(t, t->step + 1);
    st = vb_inject_before_step(t);
    if (st != VB_OK)
        return st;
    begin_ns = vb_trace_begin();
    st = vb_trainer_load(t);
    vb_inject_idle(t, VB_PHASE_DATA);
    if (st == VB_OK)
        st = vb_ledger_step(t);
    if (st == VB_OK)
        st = t->ops->step(t);
    vb_trace_end(begin_ns, VB_OP_STEP, 0);
    if (st != VB_OK)
        return st;
    vb_inject_idle(t, VB_PHASE_UPDATE);
    vb_inject_after_step(t);
    t->step++;
    t->samples += t->batch->n_global;
    if (t->place.group != NULL)
        vb_group_step(t->place.group);
    return VB_OK;
}

/* All ranks notice a lost peer, and options that differ. This rank must tell the other ranks about
 * any other failure. Otherwise they would take its last messages for messages of the next step. */
void vb_trainer_give_up(struct vb_trainer *t, vb_status st)
{
    char why[96];

    if (t->place.group == NULL || st == VB_ERR_PEER || t->all_know)
        return;
    snprintf(why, sizeof(why), "rank %d failed: %s", t->id,
             t->health.not_finite ? "its loss is not a finite number" : vb_status_str(st));
    vb_group_abort(t->place.group, why);
}

/* The role of this rank, before it has a group. */
static void take_role(struct vb_trainer *t)
{
    const struct vb_trainer_joiner *joiner = t->joiner;

    t->number = t->id = t->rank = t->o->group.rank;
    t->world = t->planned = vb_train_workers(t->o);
    t->async = t->o->mode == VB_MODE_ASYNC;
    t->shares = vb_train_apart(t->o) ? 1 : t->world;
    t->share = vb_train_apart(t->o) ? 0 : t->rank;
    t->serves = t->async && t->rank >= t->world;
    t->shows = t->leads = t->rank == 0;
    if (vb_trainer_comes(t)) {
        t->planned = vb_train_ranks_of(joiner->settings);
        t->rank = t->number = t->id = t->share = t->planned; /* until it is invited */
        t->world = t->shares = t->planned + 1;
        t->shows = t->leads = false;
    } else if (joiner != NULL) {
        t->rank = t->number = t->id = joiner->rank;
        t->step = t->resumed = joiner->begin;
        t->shows = t->leads = t->serves = false;
    }
}

/* Opens the group, and everything that a step needs. The members of a job wait for a joiner from
 * its invitation on, so whatever takes long and needs no group is made before. */
static vb_status open_parts(struct vb_trainer *t)
{
    vb_status st = vb_trainer_check(t->o);

    if (st == VB_OK)
        vb_inject_clock(t);
    if (st == VB_OK)
        st = vb_train_trace_open(t);
    if (st == VB_OK)
        st = vb_place_open(t->o, &t->place);
    if (st == VB_OK && t->place.group != NULL)
        vb_group_trace(t->place.group, t->trace.trace);
    if (st == VB_OK)
        st = vb_replay_open(t);
    if (st == VB_OK)
        st = set_up(t);
    if (st == VB_OK)
        st = vb_train_make_room(t);
    if (st == VB_OK && vb_trainer_comes(t))
        st = vb_train_form_meet(t);
    if (st == VB_OK)
        st = vb_inject_open(t);
    if (st == VB_OK)
        st = vb_train_recoveries_open(t);
    vb_health_begin(t);
    if (st == VB_OK)
        st = vb_ledger_open(t);
    if (st == VB_OK)
        st = vb_train_record_open(t);
    return st == VB_OK ? vb_train_fill_facts(t) : st;
}

static void tell_opened(const struct vb_trainer *t)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;

    if (t->leads && t->joiner == NULL && hooks->chose != NULL)
        hooks->chose(hooks->chose_arg, &t->recipe.chosen);
    if (hooks->opened != NULL)
        hooks->opened(hooks->opened_arg);
}

vb_status vb_trainer_open(struct vb_trainer *t, const struct vb_train_opts *o,
                          const struct vb_trainer_joiner *joiner)
{
    vb_status st;

    *t = (struct vb_trainer){
        .o = o,
        .joiner = joiner,
        .opened_ns = vb_clock_ns(),
        .form = {.next_id = o->group.world},
        .evals = {.accuracy = -1, .loss = -1, .kept_step = -1, .recorded_step = -1, .sum_step = -1},
        .shown_step = -1,
        .recoveries = {.done = -1, .looked = -1},
        .saved = {.lock_fd = -1, .step = -1}};
    take_role(t);
    if (sched_getaffinity(0, sizeof(t->cpus), &t->cpus) != 0)
        CPU_ZERO(&t->cpus);
    st = open_parts(t);
    if (st == VB_OK)
        tell_opened(t);
    /* Ranks that take longer to set up must not count as stragglers in training. */
    if (st == VB_OK && t->place.group != NULL && !vb_trainer_comes(t))
        st = vb_group_barrier(t->place.group);
    if (st != VB_OK)
        return st;
    vb_laps_begin(&t->laps);
    if (t->place.group != NULL)
        vb_group_wait_stats_reset(t->place.group);
    vb_train_record_begin(t);
    vb_train_trace_begin(t);
    t->shown_ns = t->laps.begin_ns;
    return VB_OK;
}
