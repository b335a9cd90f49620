/* SPDX-License-Identifier: MIT
 *
 * A sleep ends late by as long as the kernel takes to wake a thread. The next sleep is shorter by
 * as much, so that the times add up. Very short times are added to the next one, too.
 */
#include "engine/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LEAST_NS 20000 /* the shortest sleep */
#define STEPS_MAX 1000000

/* ---- the earlier run ------------------------------------------------------------------------- */

/* Returns the number of ranks that have left records in the folder. */
static int ranks_of(const char *dir)
{
    char path[4200];
    int n;

    for (n = 0; n < VB_WORLD_MAX; n++) {
        snprintf(path, sizeof(path), "%s/rank%d/steps.bin", dir, n);
        if (access(path, F_OK) != 0)
            break;
    }
    return n;
}

static vb_status check_model(struct vb_trainer *t, const char *dir)
{
    struct vb_json *json;
    const char *model, *transport;
    char path[4200];
    vb_status st = VB_OK;

    snprintf(path, sizeof(path), "%s/run.json", dir);
    json = vb_json_read(path);
    if (json == NULL)
        return vb_err(VB_ERR_INPUT,
                      "--replay-compute: %s is not a run folder; name a folder that train --run "
                      "has made",
                      dir);
    model = vb_json_get_text(json, "run.model");
    if (model == NULL || strcmp(model, t->o->model) != 0)
        st = vb_err(VB_ERR_USAGE,
                    "--replay-compute: %s is a run of %.64s, not of %s; record one with train %s "
                    "--run DIR",
                    dir, model != NULL ? model : "no model", t->o->model, t->o->model);
    transport = vb_json_get_text(json, "transport");
    t->replay.has_sums =
        transport != NULL && strcmp(transport, "shm") != 0 && vb_json_get_real(json, "ranks") > 1;
    vb_json_destroy(json);
    return st;
}

static uint64_t ns_of(float seconds)
{
    return isfinite(seconds) && seconds > 0 ? (uint64_t)((double)seconds * 1e9) : 0;
}

static vb_status read_steps(struct vb_trainer_replay *r, struct vb_series *series, const char *path)
{
    int64_t rows = vb_series_rows(series), i;
    struct vb_step_row row;

    if (!vb_series_fits(series, &vb_kind_steps))
        return vb_err(VB_ERR_INPUT,
                      "%s has other columns than this version of verbena writes: record the run "
                      "again",
                      path);
    if (rows == 0)
        return vb_err(VB_ERR_INPUT, "%s has no steps: record a run that makes some", path);
    rows = rows < STEPS_MAX ? rows : STEPS_MAX;
    r->steps = calloc((size_t)rows, sizeof(*r->steps));
    if (r->steps == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < rows && vb_series_copy(series, i, &row); i++)
        r->steps[i] = (struct vb_replay_step){.forward_ns = ns_of(row.phase_s[VB_PHASE_FORWARD]),
                                              .backward_ns = ns_of(row.phase_s[VB_PHASE_BACKWARD]),
                                              .update_ns = ns_of(row.phase_s[VB_PHASE_UPDATE])};
    r->n = i;
    return i > 0 ? VB_OK : vb_err(VB_ERR_INPUT, "%s cannot be read", path);
}

vb_status vb_replay_open(struct vb_trainer *t)
{
    const char *dir = t->o->replay;
    struct vb_series *series = NULL;
    char path[4200];
    vb_status st;
    int ranks;

    if (dir == NULL || t->eval_only)
        return VB_OK;
    st = check_model(t, dir);
    if (st != VB_OK)
        return st;
    ranks = ranks_of(dir);
    if (ranks == 0)
        return vb_err(VB_ERR_INPUT, "--replay-compute: %s has no rank0/steps.bin", dir);
    snprintf(path, sizeof(path), "%s/rank%d/steps.bin", dir, t->number % ranks);
    st = vb_series_open(path, &series);
    if (st == VB_OK)
        st = read_steps(&t->replay, series, path);
    vb_series_close(series);
    t->replay.on = st == VB_OK;
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* sleeps of this thread end as exactly as they can */
    return st;
}

void vb_replay_close(struct vb_trainer *t)
{
    int i;

    free(t->replay.steps);
    for (i = 0; i < VB_REPLAY_LISTS; i++)
        free(t->replay.lists[i].keys);
    memset(&t->replay, 0, sizeof(t->replay));
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static void sleep_ns(struct vb_trainer_replay *r, double ns)
{
    uint64_t from;

    r->owed_ns += (int64_t)ns;
    if (r->owed_ns < LEAST_NS)
        return;
    from = vb_clock_ns();
    r->owed_ns -= (int64_t)(vb_sleep_until(from + (uint64_t)r->owed_ns) - from);
}

static const struct vb_replay_step *recorded(const struct vb_trainer *t)
{
    const struct vb_trainer_replay *r = &t->replay;

    return &r->steps[(t->step + r->ahead) % r->n];
}

/* Sums are started between the layers of a backward pass, here as in the earlier run. What that
 * took is in the recorded time, so it is not slept again. */
static void count_sums(struct vb_trainer_replay *r)
{
    if (r->has_sums && r->slept_ns != 0)
        r->owed_ns -= (int64_t)(vb_clock_ns() - r->slept_ns);
    r->slept_ns = 0;
}

static void pace(void *arg, enum vb_k_pass pass, double share)
{
    struct vb_trainer *t = arg;
    const struct vb_replay_step *s = recorded(t);
    bool forward = pass == VB_K_FORWARD;

    count_sums(&t->replay);
    sleep_ns(&t->replay, (double)(forward ? s->forward_ns : s->backward_ns) * share);
    if (t->replay.has_sums && !forward)
        t->replay.slept_ns = vb_clock_ns();
}

void vb_replay_passed(struct vb_trainer *t)
{
    count_sums(&t->replay);
}

void vb_replay_model(struct vb_trainer *t, struct vb_model *model)
{
    if (t->replay.on)
        vb_model_pace(model, pace, t);
}

void vb_replay_forward(struct vb_trainer *t)
{
    sleep_ns(&t->replay, (double)recorded(t)->forward_ns);
}

void vb_replay_backward(struct vb_trainer *t)
{
    sleep_ns(&t->replay, (double)recorded(t)->backward_ns);
}

void vb_replay_update(struct vb_trainer *t, double share)
{
    sleep_ns(&t->replay, (double)recorded(t)->update_ns * share);
}

/* ---- sparse gradients ------------------------------------------------------------------------ */

static struct vb_replay_list *list_of(struct vb_trainer *t)
{
    return &t->replay.lists[t->step % VB_REPLAY_LISTS];
}

bool vb_replay_has_list(struct vb_trainer *t, uint32_t *keys, size_t *n_p)
{
    const struct vb_replay_list *list = list_of(t);

    if (list->keys == NULL)
        return false;
    memcpy(keys, list->keys, list->n * sizeof(*keys));
    *n_p = list->n;
    return true;
}

vb_status vb_replay_keep_list(struct vb_trainer *t, const uint32_t *keys, size_t n)
{
    struct vb_replay_list *list = list_of(t);

    list->keys = malloc(n * sizeof(*keys));
    if (list->keys == NULL)
        return vb_err_sys("malloc");
    memcpy(list->keys, keys, n * sizeof(*keys));
    list->n = n;
    /* the time since the end of the forward pass was computing */
    t->replay.owed_ns -= (int64_t)(vb_clock_ns() - t->laps.mark_ns);
    return VB_OK;
}
