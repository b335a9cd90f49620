/* SPDX-License-Identifier: MIT
 *
 * Writes and reads the checkpoints of a run. Rank 0 writes checkpoints, because all ranks have the
 * same parameters. All ranks read the newest checkpoint, and it must be the same one on all ranks.
 */
#include "engine/train/train_room_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define KEEP 2 /* the newest checkpoint, and one more in case the newest is broken */

/* Makes the folder, and locks it for this job. */
static vb_status take_folder(struct vb_trainer *t)
{
    const char *dir = t->o->save.dir;
    vb_status st = t->saved.locked ? VB_OK : vb_dir_make(dir);

    if (st != VB_OK || t->saved.locked)
        return st;
    if (access(dir, W_OK | X_OK) != 0)
        return vb_err_sys("cannot write checkpoints to %s", dir);
    st = vb_checkpoint_lock(dir, t->saved.token, &t->saved.lock_fd);
    t->saved.locked = st == VB_OK;
    return st;
}

/* Finds errors of the folder before training instead of after it. */
vb_status vb_train_prepare_save(struct vb_trainer *t)
{
    const char *dir = t->o->save.dir;
    char path[4096];
    vb_status st = VB_OK;

    if (t->joiner != NULL) {
        memcpy(t->saved.token, t->joiner->token, VB_JOB_TOKEN);
        return VB_OK;
    }
    if (t->rank == 0 && getrandom(t->saved.token, VB_JOB_TOKEN, 0) != VB_JOB_TOKEN)
        st = vb_err_sys("getrandom");
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_broadcast(t->place.group, 0, t->saved.token, VB_JOB_TOKEN);
    if (st != VB_OK || t->rank != 0 || dir == NULL)
        return st;
    st = take_folder(t);
    if (st != VB_OK)
        return st;
    if (!t->o->save.resume && vb_checkpoint_latest(dir, path, sizeof(path)) != VB_ERR_NO_FILE)
        return vb_err(VB_ERR_USAGE,
                      "%s has checkpoints of an earlier run: use --resume to continue that run, or "
                      "name a different folder for a new run",
                      dir);
    return VB_OK;
}

/* A run that cannot save stops. */
static void say_not_saved(const struct vb_trainer *t, int64_t step)
{
    const char *dir = t->o->save.dir;
    char path[4096];

    if (vb_checkpoint_latest(dir, path, sizeof(path)) == VB_OK)
        VB_LOG_ERROR("training stopped: %s/checkpoint-%lld.vbc could not be written; the last "
                     "checkpoint is %s: free space there, then continue with --resume",
                     dir, (long long)step, path);
    else
        VB_LOG_ERROR("training stopped: %s/checkpoint-%lld.vbc could not be written, and %s has no "
                     "earlier checkpoint",
                     dir, (long long)step, dir);
}

static void note_speed(struct vb_trainer *t, const struct vb_checkpoint *cp, double seconds)
{
    double bytes = 0;
    int i;

    for (i = 0; i < cp->n_arrays; i++)
        bytes += (double)sizeof(float) * (double)cp->arrays[i].rows * (double)cp->arrays[i].cols;
    if (seconds > t->saved.pause_s)
        t->saved.pause_s = seconds;
    if (seconds > 0 && bytes / seconds / 1e6 > t->saved.mb_s)
        t->saved.mb_s = bytes / seconds / 1e6;
}

/* All ranks prepare the checkpoint, because preparing may change the rounding of later steps. */
vb_status vb_train_save(struct vb_trainer *t, int64_t step)
{
    struct vb_checkpoint cp = {
        .step = step, .seed = t->o->seed, .options = t->settings, .plan = t->kernels.text};
    bool writes = t->rank == 0 || t->async; /* asynchronous: only one worker calls this function */
    uint64_t begin_ns = vb_trace_begin();
    double seconds = 0;
    vb_status st;

    snprintf(cp.model, sizeof(cp.model), "%s", t->o->model);
    st = t->ops->save(t, &cp);
    if (st == VB_OK && writes)
        st = vb_health_arrays(t, step, &cp);
    if (st == VB_OK && writes) /* rank 0 has made the folder only on its own host */
        st = take_folder(t);
    if (st == VB_OK && writes)
        vb_until_save(t, &cp);
    if (st == VB_OK && writes)
        st = vb_checkpoint_write(t->o->save.dir, &cp, KEEP, &seconds);
    if (st != VB_OK && writes && !t->health.not_finite)
        say_not_saved(t, step);
    if (st == VB_OK && writes)
        snprintf(t->saved.path, sizeof(t->saved.path), "%s/checkpoint-%lld.vbc", t->o->save.dir,
                 (long long)step);
    note_speed(t, &cp, seconds);
    vb_trace_end(begin_ns, VB_OP_CHECKPOINT, 0);
    vb_lap(&t->laps, VB_PHASE_CHECKPOINT);
    vb_train_record_saved(t, step, st == VB_OK && writes ? t->saved.path : NULL);
    return st;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* Checks that the run has the data of the checkpoint. The test data may differ, because it does not
 * change the parameters. */
static vb_status same_data(const struct vb_trainer *t, const char *path, const char *options)
{
    const char *own = vb_train_data_part(t->settings), *began = vb_train_data_part(options);
    char why[VB_DATA_WHY];

    if (t->o->save.other_data || !vb_train_same_data_options(t->settings, options))
        return VB_OK;
    if (began == NULL) {
        if (t->rank == 0)
            VB_LOG_WARN("%s was written by an earlier version, without a digest of the data: "
                        "whether the data has changed cannot be checked",
                        path);
        return VB_OK;
    }
    if (vb_train_data_differ(own, began, true, why))
        return vb_err(VB_ERR_USAGE,
                      "cannot resume: the data is not that with which the run of %s began: %s; "
                      "restore the data, or continue with other data on purpose with --other-data",
                      path, why);
    if (t->rank == 0 && vb_train_data_differ(own, began, false, why))
        VB_LOG_WARN("the test data is not that with which the run of %s began: %s", path, why);
    return VB_OK;
}

vb_status vb_train_check_resumed(const struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    char path[4096], name[64];
    vb_status st;

    snprintf(path, sizeof(path), "%.4000s/checkpoint-%lld.vbc", t->o->save.dir,
             (long long)cp->step);
    st = same_data(t, path, cp->options);
    if (st != VB_OK)
        return st;
    if (vb_train_settings_differ(t->settings, cp->options, t->o->save.other_data, name))
        return vb_err(VB_ERR_USAGE,
                      "cannot resume: %s belongs to a run with a different %s; give the options "
                      "with which that run began",
                      path, name);
    return VB_OK;
}

static vb_status read_newest(struct vb_trainer *t, struct vb_checkpoint **read_p)
{
    char path[4096];
    vb_status st = vb_checkpoint_read_latest(t->o->save.dir, path, sizeof(path), read_p);

    if (st == VB_ERR_NO_FILE && t->rank == 0)
        VB_LOG_WARN("--resume: there is no checkpoint in %s; training begins at step 0",
                    t->o->save.dir);
    return st == VB_ERR_NO_FILE ? VB_OK : st; /* the run was stopped before its first checkpoint */
}

/* What a rank has found. */
struct found {
    int64_t resumes, step;
};

/* A rank without --resume is not compared: vb_train_agree() says that its options differ. */
static vb_status same_on_all(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    int r, n = vb_group_world(t->place.group);
    struct found own = {t->o->save.resume, cp != NULL ? cp->step : 0};
    struct found *all = calloc((size_t)n, sizeof(*all));
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (r = 1; r < n && st == VB_OK && own.resumes; r++)
        if (all[r].resumes && all[0].resumes && all[r].step != all[0].step)
            st = vb_err(VB_ERR_INPUT,
                        "rank %d found a checkpoint of step %lld in %s, but rank 0 found one of "
                        "step %lld; all ranks must see the same folder",
                        r, (long long)all[r].step, t->o->save.dir, (long long)all[0].step);
    free(all);
    return st;
}

/* Another number of ranks goes on with the batch and the plan of the ranks that the run began with.
 * In asynchronous training, ranks have batches of their own. */
static void take_planned(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    int ranks = vb_train_ranks_of(cp->options);

    if (t->async || ranks == 0 || ranks == t->world)
        return;
    t->planned = ranks;
    if (t->rank == 0)
        VB_LOG_INFO("the run began with %d rank%s; %d go%s on with the same steps", ranks,
                    ranks == 1 ? "" : "s", t->world, t->world == 1 ? "es" : "");
}

vb_status vb_train_find(struct vb_trainer *t, struct vb_checkpoint **read_p)
{
    struct vb_checkpoint *cp = NULL;
    vb_status st = t->o->save.resume ? read_newest(t, &cp) : VB_OK;

    if (t->place.group != NULL && st == VB_OK)
        st = same_on_all(t, cp);
    if (st != VB_OK) {
        vb_checkpoint_free(cp);
        return st;
    }
    if (cp != NULL)
        take_planned(t, cp);
    *read_p = cp;
    return VB_OK;
}

vb_status vb_train_restore(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    vb_status st = t->ops->restore(t, cp);
    int64_t made;

    if (st != VB_OK)
        return st;
    t->step = t->resumed = cp->step;
    if (t->loader == NULL) /* a server has no loader */
        return VB_OK;
    made = t->shares < t->world ? t->step / t->world : t->step;
    return vb_loader_seek(t->loader, made / t->recipe.steps_per_epoch,
                          made % t->recipe.steps_per_epoch);
}
