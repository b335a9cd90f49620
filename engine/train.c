/* SPDX-License-Identifier: MIT
 *
 * Synchronous training, on one rank or on many: each rank computes the gradient of its share of a
 * global batch, all add theirs up, and every rank makes the same step with the mean.
 *
 * The order of samples is drawn from the seed and the epoch, and shares are cut from it by rank;
 * so what a step trains on depends on the seed and the global batch, not on the number of ranks.
 * With another number of ranks the sums are associated in another way, and nothing else changes.
 */
#include "engine/train_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WATCH_NS 100000000u
#define AHEAD 2     /* batches made ahead of need */
#define FEW_ROWS 16 /* of a batch: to wake a thread would take longer than to make it */

/* ---- setting up ------------------------------------------------------------------------------ */

int vb_trainer_share(const struct vb_trainer *t)
{
    return (t->recipe.global_batch + t->shares - 1) / t->shares;
}

static vb_status load_data(struct vb_trainer *t)
{
    struct vb_data_ask ask = t->o->data;
    struct vb_data_spec test;
    vb_status st;

    ask.seed = t->o->seed;
    vb_data_spec_prefer(&ask.data, vb_recipe_synth(t->o));
    if (ask.test != NULL) {
        test = *ask.test;
        vb_data_spec_prefer(&test, vb_recipe_synth(t->o));
        ask.test = &test;
    }
    st = vb_data_open_both(&ask, &t->train, &t->test);
    if (st != VB_OK)
        return st;
    if (t->o->whole_steps && t->train.n > t->o->batch * t->world)
        t->train.n -= (int)(t->train.n % (t->o->batch * t->world));
    t->n_test = t->test.n;
    if (t->o->test_limit > 0 && t->o->test_limit < t->n_test)
        t->n_test = (int)t->o->test_limit;
    return VB_OK;
}

static vb_status parse_plan(struct vb_trainer *t, const char *from, const char *text)
{
    char why[VB_OPTS_WHY];

    if (t->plan == NULL)
        t->plan = calloc(1, sizeof(*t->plan));
    if (t->plan == NULL)
        return vb_err_sys("calloc");
    if (vb_k_plan_parse(text, t->plan, why) != VB_OK)
        return vb_err(VB_ERR_INPUT, "%s: %s", from, why);
    return VB_OK;
}

static vb_status read_plan(struct vb_trainer *t)
{
    char *text = malloc(VB_PLAN_BYTES_MAX);
    int fd = open(t->o->plan, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe has nothing to say */
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    vb_status st;
    size_t n;

    if (text == NULL || file == NULL) {
        st = vb_err_sys("read the plan %s", t->o->plan);
    } else {
        n = fread(text, 1, VB_PLAN_BYTES_MAX - 1, file);
        text[n] = '\0';
        if (n == 0 || ferror(file) || memchr(text, '\0', n) != NULL || n == VB_PLAN_BYTES_MAX - 1)
            st = vb_err(VB_ERR_INPUT, "%s is no plan", t->o->plan);
        else
            st = parse_plan(t, t->o->plan, text);
    }
    if (file != NULL)
        fclose(file);
    free(text);
    return st;
}

/* Rank 0 chooses kernels for all: which is the fastest is a matter of luck at times, and other
 * kernels give other bits. */
static vb_status compile(struct vb_trainer *t)
{
    vb_status st = VB_OK;
    char *text = NULL;

    if (t->place.group == NULL)
        return t->ops->compile(t);
    if (t->rank == 0)
        st = t->ops->compile(t);
    if (st == VB_OK)
        st = vb_train_tell_plan(t->place.group, t->plan_text, &text);
    if (st == VB_OK && t->rank != 0)
        st = parse_plan(t, "the plan of rank 0", text);
    if (st == VB_OK && t->rank != 0)
        st = t->ops->compile(t);
    free(text);
    return st;
}

static void pin_loader(void *arg)
{
    const struct vb_trainer *t = arg;

    if (t->place.pinned && t->place.plan != NULL)
        (void)vb_plan_pin(t->place.topo, t->place.plan, t->place.local_rank, VB_ROLE_LOADER);
}

/* Whether a loader's thread would have no cpu but the one that computes: each would wait for the
 * other to be taken off it. */
static bool is_full(const struct vb_trainer *t)
{
    const struct vb_plan *plan = t->place.plan;

    if (t->async)
        return t->o->pin && !t->place.pinned;
    if (plan == NULL)
        return false;
    return plan->overlap || plan->ranks[t->place.local_rank].cpus.n == 1;
}

/* Lists of pixels need nothing but numbers: a thread would only be woken. Nor is one of use to
 * ranks that have all cores already, and make a batch while they would wait for others: workers
 * with images do not. */
static int batches_ahead(const struct vb_trainer *t)
{
    bool sparse = t->ops == &vb_trainee_sparse;
    bool few = sparse && !t->async && vb_trainer_share(t) < FEW_ROWS;

    return vb_train_is_softmax(t) || few || (is_full(t) && (sparse || !t->async)) ? 0 : AHEAD;
}

static vb_status open_loader(struct vb_trainer *t, int global_batch, int rank, int ranks)
{
    bool apart = vb_train_apart(t->o);
    struct vb_loader_opts opts = {.set = &t->train,
                                  .seed = t->o->seed + (apart ? (uint64_t)t->rank << 32 : 0),
                                  .global_batch = global_batch,
                                  .rank = rank,
                                  .world = ranks,
                                  .ahead = batches_ahead(t),
                                  .no_x = vb_train_is_softmax(t),
                                  .on_start = pin_loader,
                                  .on_start_arg = t};

    return vb_loader_open(&opts, &t->loader);
}

/* Who has joined, and has a share of batches, is told of it when it takes part. To copy rows takes
 * about as long as to compute with them: of the threads of sparse-lr the loader's is one. */
static vb_status open_first_loader(struct vb_trainer *t)
{
    if (t->ops == &vb_trainee_sparse && batches_ahead(t) > 0)
        vb_team_less_one();
    if (vb_train_apart(t->o))
        return open_loader(t, t->recipe.global_batch, 0, 1);
    if (t->o->joined != NULL)
        return open_loader(t, vb_trainer_share(t), 0, 1);
    return open_loader(t, t->recipe.global_batch, t->rank, t->shares);
}

vb_status vb_trainer_cut_anew(struct vb_trainer *t, int rank, int ranks, int64_t step)
{
    int64_t global_batch = (int64_t)vb_trainer_share(t) * ranks, steps;
    vb_status st;

    vb_loader_close(t->loader);
    t->loader = NULL;
    t->batch = NULL;
    if (global_batch > t->train.n)
        global_batch = t->train.n;
    st = open_loader(t, (int)global_batch, rank, ranks);
    if (st != VB_OK)
        return st;
    steps = vb_loader_steps(t->loader);
    return vb_loader_seek(t->loader, step / steps, step % steps);
}

static vb_status settle_options(struct vb_trainer *t)
{
    vb_status st = vb_recipe_make(t->o, t->train.n, &t->recipe);

    if (st != VB_OK)
        return st;
    t->settings = vb_train_settings(t->o, &t->recipe);
    if (t->settings == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the settings");
    if (t->o->joined != NULL)
        return vb_joined_check(t->o->joined, t->settings);
    if (t->place.group != NULL)
        st = vb_train_agree(t->o, t->place.group, t->settings);
    t->all_know = st == VB_ERR_USAGE;
    if (st == VB_OK && t->o->plan != NULL)
        st = read_plan(t);
    return st;
}

static vb_status make_model(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    vb_status st = VB_OK;

    if (cp != NULL && cp->plan[0] != '\0' && t->plan == NULL)
        st = parse_plan(t, "the checkpoint", cp->plan);
    if (t->o->joined != NULL && vb_joined_plan(t->o->joined) != NULL)
        st = parse_plan(t, "the plan of the job", vb_joined_plan(t->o->joined));
    if (st == VB_OK)
        st = compile(t);
    if (st == VB_OK && cp != NULL && t->plan_text != NULL && strcmp(cp->plan, t->plan_text) != 0)
        st = vb_err(VB_ERR_USAGE, "the checkpoint is of a run with another plan than %s",
                    t->o->plan);
    if (st == VB_OK)
        st = t->ops->create(t);
    if (st == VB_OK && !t->serves)
        st = open_first_loader(t);
    if (st == VB_OK && cp != NULL)
        st = vb_train_restore(t, cp);
    return st;
}

static vb_status set_up(struct vb_trainer *t)
{
    struct vb_checkpoint *cp = NULL;
    vb_status st;

    t->ops = strcmp(t->o->model, "sparse-lr") == 0 ? &vb_trainee_sparse : &vb_trainee_dense;
    st = load_data(t);
    if (st == VB_OK)
        st = settle_options(t);
    if (st == VB_OK)
        st = vb_train_prepare_save(t);
    if (st == VB_OK && t->o->resume && t->o->joined == NULL)
        st = vb_train_find(t, &cp);
    if (st == VB_OK)
        st = make_model(t, cp);
    vb_checkpoint_free(cp);
    return st;
}

void vb_trainer_close(struct vb_trainer *t)
{
    vb_loader_close(t->loader);
    if (t->ops != NULL)
        t->ops->close(t);
    vb_place_close(&t->place);
    if (t->ops != NULL)
        t->ops->destroy(t);
    vb_dataset_destroy(&t->train);
    vb_dataset_destroy(&t->test);
    free(t->evals);
    free(t->settings);
    free(t->plan_text);
    free(t->plan);
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool vb_trainer_is_to_show(const struct vb_trainer *t, bool evaluated)
{
    if (t->o->watch == NULL || !t->shows || t->laps.mark_ns == t->laps.begin_ns)
        return false;
    return evaluated || t->laps.mark_ns - t->watched_ns >= WATCH_NS;
}

void vb_trainer_show(struct vb_trainer *t, int64_t step, bool evaluated)
{
    double seconds = (double)(t->laps.mark_ns - t->laps.begin_ns) / 1e9;
    struct vb_train_news news = {.step = step,
                                 .steps = t->recipe.steps,
                                 .epoch = (double)step / (double)t->recipe.steps_per_epoch,
                                 .loss = t->loss,
                                 .accuracy = t->accuracy,
                                 .test_loss = t->test_loss,
                                 .evaluated = evaluated};
    int64_t made = step - t->resumed;

    if (!vb_trainer_is_to_show(t, evaluated))
        return;
    t->watched_ns = t->laps.mark_ns;
    news.samples_per_s =
        (double)(vb_train_apart(t->o) ? made * t->recipe.global_batch : t->samples) / seconds;
    news.left_s = made > 0 ? seconds / (double)made * (double)(news.steps - step) : 0;
    t->o->watch(t->o->watch_arg, &news);
}

/* Before forward, so that the rank comes late to every sum of the step. */
void vb_trainer_drag(struct vb_trainer *t)
{
    struct timespec ts = {.tv_sec = (time_t)(t->drag_ns / 1000000000u),
                          .tv_nsec = (long)(t->drag_ns % 1000000000u)};

    if (t->drag_ns > 0)
        nanosleep(&ts, NULL);
}

/* The shorter of two steps: for one in which another program had the core, idling many times as
 * long could outlast the patience of others. */
void vb_trainer_slow_down(struct vb_trainer *t, uint64_t computed_ns)
{
    uint64_t own_ns = computed_ns - t->drag_ns, least_ns;

    if (t->o->slow_factor <= 1 || t->rank != t->o->slow_rank)
        return;
    least_ns = t->own_ns > 0 && t->own_ns < own_ns ? t->own_ns : own_ns;
    t->own_ns = own_ns;
    t->drag_ns = (uint64_t)((double)least_ns * (t->o->slow_factor - 1));
}

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

const struct vb_batch *vb_trainer_next_batch(const struct vb_trainer *t)
{
    int64_t then = t->step + 1;

    if (then >= t->recipe.steps || due(t->o->eval_every, then))
        return NULL;
    return vb_loader_peek(t->loader);
}

uint64_t vb_trainer_computed_ns(const struct vb_trainer *t)
{
    return t->laps.ns[VB_PHASE_FORWARD] + t->laps.ns[VB_PHASE_BACKWARD];
}

static void look(struct vb_trainer *t, bool failed)
{
    const float *params;
    size_t n;

    if (t->o->look == NULL)
        return;
    params = t->ops->params(t, &n);
    if (params != NULL)
        t->o->look(t->o->look_arg, t->step, params, n, failed);
}

vb_status vb_trainer_step(struct vb_trainer *t)
{
    uint64_t computed = vb_trainer_computed_ns(t);
    vb_status st = vb_loader_next(t->loader, &t->batch);

    vb_lap(&t->laps, VB_PHASE_DATA);
    if (st == VB_OK)
        st = t->ops->step(t);
    if (st != VB_OK)
        return st;
    vb_trainer_slow_down(t, vb_trainer_computed_ns(t) - computed);
    t->step++;
    t->samples += t->batch->n_global;
    if (t->place.group != NULL)
        vb_group_step(t->place.group);
    return VB_OK;
}

static vb_status run_steps(struct vb_trainer *t)
{
    const struct vb_train_opts *o = t->o;
    vb_status st = VB_OK;
    bool last;

    while (st == VB_OK && t->step < t->recipe.steps) {
        st = vb_trainer_step(t);
        last = t->step == t->recipe.steps;
        if (st == VB_OK && due(o->check_replicas, t->step) && t->world > 1)
            st = vb_train_compare(t);
        if (st == VB_OK)
            look(t, false);
        if (st == VB_OK && due(o->eval_every, t->step) && !last) {
            st = vb_train_evaluate(t);
            vb_train_keep_eval(t, t->step);
            vb_trainer_show(t, t->step, true);
        }
        if (st == VB_OK && o->checkpoint != NULL && (last || due(o->checkpoint_every, t->step)))
            st = vb_train_save(t);
        vb_trainer_show(t, t->step, false);
    }
    if (st == VB_OK)
        st = vb_train_evaluate(t);
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool has_servers(const struct vb_train_opts *o)
{
    return o->mode == VB_MODE_ASYNC && !o->dry_run;
}

static vb_status tell(const struct vb_trainer *t, struct vb_train_result *result)
{
    result->wall_s = (double)(vb_clock_ns() - t->opened_ns) / 1e9;
    if (!result->reports || t->o->report == NULL)
        return VB_OK;
    return t->o->report(t->o->report_arg, result);
}

static vb_status work(struct vb_trainer *t, struct vb_train_result *result)
{
    struct vb_async *async = NULL;
    vb_status st = VB_OK;

    if (has_servers(t->o))
        st = vb_async_run(t, &async);
    else if (!t->o->dry_run)
        st = run_steps(t);
    if (st != VB_OK)
        look(t, true);
    else if (async == NULL || vb_async_reports(async))
        st = vb_train_collect(t, async, result);
    else
        st = vb_async_own(async, result);
    if (st == VB_OK)
        vb_train_remark(t, result);
    if (st == VB_OK && async != NULL)
        st = tell(t, result); /* while the others wait: if it fails, one of them can do it */
    vb_async_leave(async, st);
    vb_async_destroy(async);
    return st;
}

/* All find out about a lost peer, and about options that differ; anything else must be told, or the
 * others would take this rank's way out for its next step. */
void vb_trainer_give_up(struct vb_trainer *t, vb_status st)
{
    char why[96];

    if (t->place.group == NULL || st == VB_ERR_PEER || t->all_know)
        return;
    snprintf(why, sizeof(why), "rank %d failed: %s", t->rank, vb_status_str(st));
    vb_group_abort(t->place.group, why);
}

/* The name of an option that only decides how dense gradients are summed, or NULL. */
static const char *dense_option(const struct vb_train_opts *o)
{
    if (o->coll.wire != VB_WIRE_F32)
        return "wire";
    if (o->coll.algo != VB_ALGO_AUTO)
        return "algo";
    if (o->bucket_bytes > 0)
        return "bucket";
    if (o->hold_back_bytes > 0)
        return "hold-back";
    return o->share_out_bytes > 0 ? "share-out" : NULL;
}

vb_status vb_train_check(const struct vb_train_opts *o)
{
    bool dense_sums = o->mode != VB_MODE_ASYNC && strcmp(o->model, "sparse-lr") != 0;

    if (o->group.world < 1 || o->group.rank < 0 || o->group.rank >= o->group.world)
        return vb_err(VB_ERR_USAGE, "rank %d of %d: there is no such rank", o->group.rank,
                      o->group.world);
    if (o->mode == VB_MODE_SINGLE && o->group.world != 1)
        return vb_err(VB_ERR_USAGE, "--mode single has one rank, not %d", o->group.world);
    if (o->slow_factor > 0 && (o->slow_rank < 0 || o->slow_rank >= o->group.world))
        return vb_err(VB_ERR_USAGE, "rank %d is to be slow: there are %d ranks", o->slow_rank,
                      o->group.world);
    if (o->checkpoint == NULL && (o->resume || o->checkpoint_every > 0))
        return vb_err(VB_ERR_USAGE, "--resume and --checkpoint-every need --checkpoint DIR");
    if (o->joined != NULL && (o->mode != VB_MODE_ASYNC || o->dry_run))
        return vb_err(VB_ERR_USAGE, "who joins a job trains as it does: no dry run, mode async");
    if (!dense_sums && dense_option(o) != NULL)
        return vb_err(VB_ERR_USAGE, "--%s is for dense models and --mode sync", dense_option(o));
    return o->mode == VB_MODE_ASYNC ? vb_async_check(o) : VB_OK;
}

vb_status vb_trainer_open(struct vb_trainer *t, const struct vb_train_opts *o)
{
    vb_status st;

    *t = (struct vb_trainer){.o = o,
                             .opened_ns = vb_clock_ns(),
                             .rank = o->group.rank,
                             .world = vb_train_workers(o),
                             .async = o->mode == VB_MODE_ASYNC,
                             .accuracy = -1,
                             .test_loss = -1};
    t->shares = vb_train_apart(o) ? 1 : t->world;
    t->serves = t->async && t->rank >= t->world;
    t->shows = t->rank == 0;
    if (o->joined != NULL) {
        t->rank = vb_joined_rank(o->joined);
        t->step = t->resumed = vb_joined_begin(o->joined);
        t->shows = t->serves = false;
    }
    if (sched_getaffinity(0, sizeof(t->cpus), &t->cpus) != 0)
        CPU_ZERO(&t->cpus);
    st = vb_train_check(o);
    if (st == VB_OK)
        st = vb_place_open(o, &t->place);
    if (st == VB_OK)
        st = set_up(t);
    if (st == VB_OK)
        st = vb_train_make_room(t);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_barrier(t->place.group); /* who is slow to set up is not slow to train */
    if (st != VB_OK)
        return st;
    vb_laps_begin(&t->laps);
    if (t->place.group != NULL)
        vb_group_wait_stats_reset(t->place.group);
    t->watched_ns = t->laps.begin_ns;
    return VB_OK;
}

vb_status vb_train(const struct vb_train_opts *o, struct vb_train_result *result_p)
{
    struct vb_trainer t;
    vb_status st = vb_trainer_open(&t, o);

    memset(result_p, 0, sizeof(*result_p));
    if (st == VB_OK)
        st = work(&t, result_p);
    if (st != VB_OK)
        vb_trainer_give_up(&t, st);
    vb_trainer_close(&t);
    if (st == VB_OK && !has_servers(o))
        st = tell(&t, result_p); /* nobody waits */
    if (st != VB_OK)
        vb_train_result_fini(result_p);
    return st;
}
