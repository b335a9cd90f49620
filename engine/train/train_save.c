/* SPDX-License-Identifier: MIT
 *
 * The checkpoints of a run. The lead, rank 0 at first, writes them, because all ranks have the same
 * parameters, on a thread of its own. If it is lost, the next lead takes the folder over. All ranks
 * read the newest checkpoint, and it must be the same one on all ranks.
 */
#include "engine/train/train_room_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define END_S 3600 /* the last checkpoint of a run is waited for so long */
#define CLOSE_S 60 /* and after a failure so long */
#define CAUSE_MAX 90
#define KEEP 2 /* the newest checkpoint, and one more in case the newest is broken */
#define LOCK_TRIES 8

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

/* before: of the checkpoint that this run resumes from; NULL: it is the first run of its job. */
static void begin_views(struct vb_trainer *t, const struct vb_checkpoint_view *before)
{
    struct vb_checkpoint_view *view = &t->saved.view;

    *view = (struct vb_checkpoint_view){.run = 1, .view = 1};
    memcpy(view->job, before != NULL ? before->job : t->saved.token, sizeof(view->job));
    if (before != NULL)
        view->run = before->run + 1;
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
    if (st == VB_OK && !t->async)
        begin_views(t, NULL);
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

/* ---- writing --------------------------------------------------------------------------------- */

bool vb_train_saves_beside(const struct vb_trainer *t)
{
    bool writes = t->async ? !t->serves : vb_train_may_lead(t);

    return writes && !t->eval_only && t->o->save.dir != NULL && t->o->save.every > 0;
}

static vb_status open_writer(struct vb_trainer *t)
{
    struct vb_checkpoint_writer_opts opts = {.dir = t->o->save.dir,
                                             .keep = KEEP,
                                             .cpus = t->cpus,
                                             .rank = t->o->group.world > 1 ? t->id : -1};

    return t->saved.writer != NULL ? VB_OK : vb_checkpoint_writer_open(&opts, &t->saved.writer);
}

/* In asynchronous training any worker may have to write; it opens its writer when it has to. So
 * does a new lead. */
vb_status vb_train_saves_open(struct vb_trainer *t)
{
    if (!t->leads || t->async || t->eval_only || t->o->dry_run || t->o->save.dir == NULL)
        return VB_OK;
    return open_writer(t);
}

/* Returns the end of a message, which has the reason, if it is too long for a fault. */
static const char *cause_of(const char *why)
{
    size_t len = strlen(why);

    return len > CAUSE_MAX ? why + len - CAUSE_MAX : why;
}

/* Keeps a failure for the result. The last one replaces the one before if there are too many. */
static void keep_fault(struct vb_trainer *t, const struct vb_checkpoint_done *done)
{
    struct vb_trainer_saved *s = &t->saved;
    struct vb_fault *f;
    const char *last = strrchr(done->last, '/');

    if (s->n_faults < VB_SAVE_FAULTS)
        s->n_faults++;
    f = &s->faults[s->n_faults - 1];
    *f = (struct vb_fault){.at_s = (double)(vb_clock_ns() - t->laps.begin_ns) / 1e9,
                           .step = done->step,
                           .rank = t->id,
                           .what = "checkpoint"};
    snprintf(f->why, sizeof(f->why), "%.*s; %s%.40s", CAUSE_MAX, cause_of(done->why),
             last != NULL ? "the last good one is " : "there is no earlier one",
             last != NULL ? last + 1 : "");
    vb_train_event_say(t, "not saved", done->step, f->why);
}

static void say_fix(const struct vb_trainer *t, const struct vb_checkpoint_done *done)
{
    if (strstr(done->why, strerror(ENOSPC)) != NULL || strstr(done->why, strerror(EDQUOT)) != NULL)
        vb_log_fix("df -h %s   # make room there", t->o->save.dir);
}

/* A checkpoint could not be written: an error if the user wants that, otherwise a warning. */
static vb_status not_written(struct vb_trainer *t, const struct vb_checkpoint_done *done)
{
    const char *dir = t->o->save.dir;
    char last[4096 + 64];

    snprintf(last, sizeof(last), "%s%s", done->last[0] != '\0' ? "the last checkpoint is " : dir,
             done->last[0] != '\0' ? done->last : " has no earlier checkpoint");
    if (!t->o->save.strict) {
        if (!t->saved.failing) { /* once, until a checkpoint could be written again */
            VB_LOG_WARN("checkpoint-%lld.vbc could not be written: %s; %s; training goes on",
                        (long long)done->step, done->why, last);
            say_fix(t, done);
        }
        t->saved.failing = true;
        keep_fault(t, done);
        return VB_OK;
    }
    (void)vb_err(done->status, "%s", done->why);
    say_fix(t, done);
    VB_LOG_ERROR("training stopped: %s/checkpoint-%lld.vbc could not be written; %s%s", dir,
                 (long long)done->step, last,
                 done->last[0] != '\0' ? ": continue with --resume when it can be" : "");
    return done->status;
}

/* Takes note of a checkpoint that was written, or could not be. */
static vb_status take_note(struct vb_trainer *t, const struct vb_checkpoint_done *done)
{
    struct vb_trainer_saved *s = &t->saved;
    char where[VB_CHECKPOINT_NAME + 64];

    if (done->bad[0] != '\0') {
        snprintf(where, sizeof(where), "%s is not finite, so no checkpoint is written", done->bad);
        return vb_health_not_finite(t, done->step, where);
    }
    if (done->status != VB_OK)
        return not_written(t, done);
    snprintf(s->path, sizeof(s->path), "%s", done->path);
    s->failing = false;
    s->write_s = done->seconds > s->write_s ? done->seconds : s->write_s;
    if (done->seconds > 0 && done->bytes / done->seconds / 1e6 > s->mb_s)
        s->mb_s = done->bytes / done->seconds / 1e6;
    vb_train_event_say(t, "saved", done->step, s->path);
    return VB_OK;
}

vb_status vb_train_saves_look(struct vb_trainer *t)
{
    struct vb_trainer_saved *s = &t->saved;
    struct vb_checkpoint_done done;
    vb_status st = VB_OK, one;

    if (s->untold == 0)
        return VB_OK;
    if (s->held && !vb_checkpoint_writer_busy(s->writer))
        s->held = !t->ops->hold(t, NULL);
    while (s->untold > 0 && vb_checkpoint_writer_take(s->writer, &done)) {
        s->untold--;
        one = take_note(t, &done);
        st = st == VB_OK ? one : st;
    }
    return st;
}

/* The disk has not answered for so long that nobody waits for it any more. */
static vb_status give_up(struct vb_trainer *t)
{
    struct vb_checkpoint_done done = {.step = t->saved.step, .status = VB_ERR_TIMEOUT};

    snprintf(done.why, sizeof(done.why), "the disk of %s has not taken it within %d s",
             t->o->save.dir, END_S);
    snprintf(done.last, sizeof(done.last), "%s", t->saved.path);
    vb_checkpoint_writer_close(t->saved.writer);
    t->saved.writer = NULL;
    t->saved.untold = 0;
    return not_written(t, &done);
}

static vb_status wait_for_writer(struct vb_trainer *t)
{
    if (!vb_checkpoint_writer_wait(t->saved.writer, vb_clock_ns() + END_S * UINT64_C(1000000000)))
        return give_up(t);
    return vb_train_saves_look(t);
}

vb_status vb_train_saves_drain(struct vb_trainer *t)
{
    return t->saved.untold > 0 ? wait_for_writer(t) : VB_OK;
}

/* The process of the lead before may have had the lock when this one became the lead. */
static void try_lock(struct vb_trainer *t)
{
    struct vb_trainer_saved *s = &t->saved;

    if (s->lock_fd >= 0 || s->lock_tries == 0)
        return;
    s->lock_tries--;
    (void)vb_checkpoint_lock(t->o->save.dir, s->token, &s->lock_fd);
}

/* The folder may be gone, or belong to another job by now. */
static vb_status open_folder(struct vb_trainer *t, int64_t step)
{
    struct vb_checkpoint_done done = {.step = step};
    struct vb_log_caught before;

    try_lock(t);
    if (t->saved.locked && t->saved.writer != NULL)
        return VB_OK;
    before = vb_log_catch(done.why, sizeof(done.why));
    done.status = take_folder(t);
    if (done.status == VB_OK)
        done.status = open_writer(t);
    vb_log_catch_again(&before);
    if (done.status == VB_OK)
        return VB_OK;
    return not_written(t, &done) == VB_OK ? VB_AGAIN : done.status;
}

static void leave_out(struct vb_trainer *t, int64_t step)
{
    if (t->saved.skipped++ == 0)
        VB_LOG_INFO("the checkpoint of step %lld is left out, because the one of step %lld is "
                    "still being written; so are others",
                    (long long)step, (long long)t->saved.step);
}

/* Hands a checkpoint to the writer. */
static vb_status begin_writing(struct vb_trainer *t, struct vb_checkpoint *cp, bool last)
{
    vb_status st = open_folder(t, cp->step);

    if (st != VB_OK)
        return st == VB_AGAIN ? VB_OK : st;
    if (!last && vb_checkpoint_writer_busy(t->saved.writer)) {
        leave_out(t, cp->step);
        return VB_OK;
    }
    st = t->ops->save(t, cp);
    if (st != VB_OK)
        return st;
    if (!last && t->ops->hold != NULL && vb_train_saves_beside(t))
        t->saved.held = t->ops->hold(t, cp);
    vb_until_save(t, cp);
    if (!vb_checkpoint_writer_begin(t->saved.writer, cp, last))
        return vb_err(VB_ERR_USAGE, "the checkpoint of step %lld has no place to wait",
                      (long long)cp->step);
    t->saved.untold++;
    t->saved.step = cp->step;
    return t->saved.held || (last && !t->async) ? VB_OK : wait_for_writer(t);
}

/* The members have changed since this checkpoint was begun. */
static bool is_begun(const struct vb_trainer *t, int64_t step)
{
    return !t->async && t->view > 0 && t->saved.step == step;
}

vb_status vb_train_save(struct vb_trainer *t, int64_t step, bool last)
{
    struct vb_checkpoint cp = {.step = step,
                               .seed = t->o->seed,
                               .options = t->settings,
                               .plan = t->kernels.text,
                               .view = t->saved.view};
    bool writes = t->leads || t->async; /* asynchronous: only one worker calls this function */
    uint64_t begin_ns = vb_trace_begin(), pause_ns = vb_clock_ns();
    double pause_s;
    vb_status st;

    vb_train_does(t, VB_DOES_SAVE);
    snprintf(cp.model, sizeof(cp.model), "%s", t->o->model);
    st = vb_train_saves_look(t);
    if (st == VB_OK && writes && !is_begun(t, step))
        st = begin_writing(t, &cp, last);
    else if (!writes)
        t->saved.step = step;
    pause_s = (double)(vb_clock_ns() - pause_ns) / 1e9;
    t->saved.pause_s = pause_s > t->saved.pause_s ? pause_s : t->saved.pause_s;
    vb_trace_end(begin_ns, VB_OP_CHECKPOINT, 0);
    vb_lap(&t->laps, VB_PHASE_CHECKPOINT);
    vb_train_does(t, VB_DOES_COMPUTE);
    if (t->saved.step == step)
        vb_train_record_saved(t);
    return st;
}

/* ---- another lead ---------------------------------------------------------------------------- */

/* A file that the lead before has not completed has no name of a checkpoint, and is removed when
 * the next one is written. A checkpoint of a later step than the agreed one is as good as lost:
 * this step is made again. */
void vb_train_saves_lead(struct vb_trainer *t)
{
    struct vb_trainer_saved *s = &t->saved;
    struct vb_log_caught before;
    char why[160];

    s->step = -1;
    if (t->o->save.dir == NULL || t->o->dry_run)
        return;
    before = vb_log_catch(why, sizeof(why));
    (void)take_folder(t);
    s->lock_tries = LOCK_TRIES;
    s->step = vb_checkpoint_newest(t->o->save.dir, t->step, s->path, sizeof(s->path));
    vb_log_catch_again(&before);
    if (s->step <= t->resumed) /* written by the run before */
        s->path[0] = '\0';
    VB_LOG_INFO("this rank writes checkpoints from now on; the last one is %s",
                s->step >= 0 ? s->path : "none");
}

void vb_train_saves_agreed(struct vb_trainer *t, const struct vb_agreed *agreed)
{
    t->saved.view.view = t->saved.views_before + agreed->number;
    t->saved.view.term = agreed->term;
}

/* The first view of the new group follows the one in which the members have prepared it. A later
 * one, in which they may have agreed on going over, has made no steps. */
void vb_train_saves_formed(struct vb_trainer *t)
{
    t->saved.views_before = t->saved.view.view;
    t->saved.view.view++;
    t->saved.view.term = 0;
}

bool vb_train_last_checkpoint(const struct vb_trainer *t, char *path, size_t size)
{
    return t->o->save.dir != NULL &&
           vb_checkpoint_newest(t->o->save.dir, INT64_MAX, path, size) >= 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Returns whether the lead is done. The others ask again within the timeout of the group, because a
 * rank that does not answer for that long counts as hanging. */
static vb_status is_done(struct vb_trainer *t, bool *done_p)
{
    int timeout_ms = t->o->group.timeout_ms > 0 ? t->o->group.timeout_ms : 60000;
    uint64_t slice_ns = (uint64_t)timeout_ms * 1000000 / 4;
    uint8_t done = t->saved.writer == NULL ||
                   vb_checkpoint_writer_wait(t->saved.writer, vb_clock_ns() + slice_ns);
    vb_status st = VB_OK;

    if (t->place.group != NULL)
        st = vb_group_broadcast(t->place.group, 0, &done, sizeof(done));
    *done_p = done;
    return st;
}

vb_status vb_train_saves_end(struct vb_trainer *t)
{
    uint64_t end_ns = vb_clock_ns() + END_S * UINT64_C(1000000000);
    bool done = false;
    vb_status st = VB_OK;

    while (st == VB_OK && !done) {
        st = is_done(t, &done);
        if (st == VB_OK && !done && t->saved.writer != NULL && vb_clock_ns() >= end_ns)
            st = give_up(t);
    }
    return st == VB_OK ? vb_train_saves_look(t) : st;
}

/* Whatever has failed, a checkpoint that is nearly written is worth to wait for. */
void vb_train_saves_close(struct vb_trainer *t)
{
    if (t->saved.writer == NULL)
        return;
    (void)vb_checkpoint_writer_wait(t->saved.writer,
                                    vb_clock_ns() + CLOSE_S * UINT64_C(1000000000));
    (void)vb_train_saves_look(t);
    vb_checkpoint_writer_close(t->saved.writer);
    t->saved.writer = NULL;
}

vb_status vb_train_save_faults(const struct vb_trainer *t, struct vb_train_result *r)
{
    size_t n = (size_t)t->saved.n_faults;
    struct vb_fault *all;

    if (n == 0)
        return VB_OK;
    all = realloc(r->faults, ((size_t)r->n_faults + n) * sizeof(*all));
    if (all == NULL)
        return vb_err_sys("realloc");
    memcpy(all + r->n_faults, t->saved.faults, n * sizeof(*all));
    r->faults = all;
    r->n_faults += (int)n;
    return VB_OK;
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

/* Whoever wrote a checkpoint of a later step in an earlier view had been left behind by the job. */
static vb_status is_of_job(struct vb_trainer *t, const char *path, const struct vb_checkpoint *cp)
{
    char later[4096], text[2][VB_CHECKPOINT_VIEW_TEXT];
    struct vb_checkpoint_view view;

    if (vb_checkpoint_later(t->o->save.dir, cp->step - 1, &cp->view, later, sizeof(later), &view) <
        0)
        return VB_OK;
    (void)vb_err(VB_ERR_USAGE,
                 "cannot resume: %s was written in %s of its job, by a rank that the job had left "
                 "behind: it went on in %s, whose checkpoint is %s",
                 path, vb_checkpoint_view_text(&cp->view, text[0]),
                 vb_checkpoint_view_text(&view, text[1]), later);
    vb_log_fix("mv %s %s.left   # then --resume goes on from %s", path, path, later);
    return VB_ERR_USAGE;
}

static vb_status read_newest(struct vb_trainer *t, struct vb_checkpoint **read_p)
{
    char path[4096];
    vb_status st = vb_checkpoint_read_latest(t->o->save.dir, path, sizeof(path), read_p);

    if (st == VB_OK)
        return is_of_job(t, path, *read_p);
    if (st == VB_ERR_NO_FILE && t->rank == 0)
        VB_LOG_WARN("--resume: there is no checkpoint in %s; training begins at step 0",
                    t->o->save.dir);
    return st == VB_ERR_NO_FILE ? VB_OK : st; /* the run was stopped before its first checkpoint */
}

/* What a rank has found. */
struct found {
    int64_t resumes, step;
    struct vb_checkpoint_view view, latest; /* of the checkpoint; of all of its job in the folder */
};

static struct found what_was_found(const struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct found found = {.resumes = t->o->save.resume};
    char path[4096];

    if (cp == NULL)
        return found;
    found.step = cp->step;
    found.view = found.latest = cp->view;
    (void)vb_checkpoint_later(t->o->save.dir, INT64_MAX, &cp->view, path, sizeof(path),
                              &found.latest);
    return found;
}

/* A rank without --resume is not compared: vb_train_agree() says that its options differ. */
static vb_status compare_found(const struct vb_trainer *t, const struct found *zero,
                               const struct found *other, int r)
{
    char text[2][VB_CHECKPOINT_VIEW_TEXT];

    if (!zero->resumes || !other->resumes)
        return VB_OK;
    if (other->step != zero->step)
        return vb_err(VB_ERR_INPUT,
                      "rank %d found a checkpoint of step %lld in %s, but rank 0 found one of "
                      "step %lld; all ranks must see the same folder",
                      r, (long long)other->step, t->o->save.dir, (long long)zero->step);
    if (memcmp(other->view.job, zero->view.job, VB_JOB_TOKEN) != 0)
        return vb_err(VB_ERR_INPUT,
                      "rank %d found a checkpoint of step %lld in %s that is of another job than "
                      "that of rank 0; all ranks must see the same folder",
                      r, (long long)other->step, t->o->save.dir);
    if (memcmp(&other->view, &zero->view, sizeof(zero->view)) != 0)
        return vb_err(VB_ERR_INPUT,
                      "rank %d found a checkpoint of step %lld in %s that is not the one of rank "
                      "0 (%s there, %s here); all ranks must see the same folder",
                      r, (long long)other->step, t->o->save.dir,
                      vb_checkpoint_view_text(&other->view, text[0]),
                      vb_checkpoint_view_text(&zero->view, text[1]));
    return VB_OK;
}

/* *own: of this rank, then that of rank 0, which counts. */
static vb_status same_on_all(struct vb_trainer *t, struct found *own)
{
    int r, n = vb_group_world(t->place.group);
    struct found *all = calloc((size_t)n, sizeof(*all));
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(t->place.group, own, sizeof(*own), all);
    for (r = 1; r < n && st == VB_OK && own->resumes; r++)
        st = compare_found(t, &all[0], &all[r], r);
    *own = st == VB_OK ? all[0] : *own;
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
    struct found found;
    vb_status st = t->o->save.resume ? read_newest(t, &cp) : VB_OK;

    found = what_was_found(t, cp);
    if (t->place.group != NULL && st == VB_OK)
        st = same_on_all(t, &found);
    if (st == VB_OK && found.latest.run > 0 && !t->async)
        begin_views(t, &found.latest);
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
