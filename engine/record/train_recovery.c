/* SPDX-License-Identifier: MIT
 *
 * What is told of a recovery, and what a rank takes over that speaks for the job from now on. The
 * training thread only leaves word; files are the business of the recorder's thread.
 */
#include "engine/train/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEAR_MACHINE = 1, NEAR_NET = 2 };

_Static_assert(sizeof(((struct vb_fault *)0)->host) == sizeof(((struct vb_lost_rank *)0)->host),
               "a fault has the host of a lost rank");

const char *vb_recovery_phase_str(enum vb_recovery_phase phase)
{
    static const char *const names[VB_RECOVERY_PHASES] = {
        [VB_RECOVERY_DETECT] = "detect",       [VB_RECOVERY_AGREE] = "agree",
        [VB_RECOVERY_FENCE] = "fence",         [VB_RECOVERY_REBUILD] = "rebuild",
        [VB_RECOVERY_RECOMPUTE] = "recompute",
    };

    return names[phase];
}

static void phases_of(const struct vb_recovery *r, double s[VB_RECOVERY_PHASES])
{
    s[VB_RECOVERY_DETECT] = r->detect_s;
    s[VB_RECOVERY_AGREE] = r->agree_s;
    s[VB_RECOVERY_FENCE] = r->fence_s;
    s[VB_RECOVERY_REBUILD] = r->rebuild_s;
    s[VB_RECOVERY_RECOMPUTE] = r->recompute_s;
}

/* The ranks whose names are known. */
static int n_named(const struct vb_recovery *r)
{
    return r->n < VB_RECOVERY_LOST ? r->n : VB_RECOVERY_LOST;
}

/* ---- faults ---------------------------------------------------------------------------------- */

void vb_train_lost_fault(const struct vb_recovery *r, int i, struct vb_fault *f)
{
    *f = (struct vb_fault){.at_s = r->at_s,
                           .step = r->step,
                           .rank = r->lost[i].rank,
                           .what = "rank lost",
                           .recovered = true,
                           .again = r->again,
                           .left = r->left,
                           .recovered_s = r->recovered_s};
    if (r->lost[i].removed)
        snprintf(f->what, sizeof(f->what), "removed");
    snprintf(f->why, sizeof(f->why), "%s", r->lost[i].why);
    snprintf(f->host, sizeof(f->host), "%s", r->lost[i].host);
    phases_of(r, f->phase_s);
}

void vb_fault_json(struct vb_json *json, const struct vb_fault *f)
{
    char key[32];
    int p;

    if (!f->recovered)
        return;
    vb_json_text(json, "host", f->host);
    if (f->again > 0)
        vb_json_int(json, "again", f->again);
    else
        vb_json_text(json, "again", NULL); /* no step was left to be made */
    vb_json_int(json, "left", f->left);
    vb_json_real(json, "recovered_s", f->recovered_s);
    vb_json_object(json, "phases");
    for (p = 0; p < VB_RECOVERY_PHASES; p++) {
        snprintf(key, sizeof(key), "%s_s", vb_recovery_phase_str((enum vb_recovery_phase)p));
        vb_json_real(json, key, f->phase_s[p]);
    }
    vb_json_end(json);
}

bool vb_train_is_lost(const struct vb_trainer *t, int rank)
{
    const struct vb_recovery *r;
    int i, k;

    for (i = 0; (r = vb_train_recovery(t, i)) != NULL; i++)
        for (k = 0; k < n_named(r); k++)
            if (r->lost[k].rank == rank)
                return true;
    return false;
}

vb_status vb_train_recovery_faults(const struct vb_trainer *t, struct vb_train_result *result)
{
    const struct vb_recovery *r;
    struct vb_fault *all;
    int i, k, n = 0;

    for (i = 0; (r = vb_train_recovery(t, i)) != NULL; i++)
        n += n_named(r);
    if (n == 0)
        return VB_OK;
    all = realloc(result->faults, (size_t)(result->n_faults + n) * sizeof(*all));
    if (all == NULL)
        return vb_err_sys("realloc");
    result->faults = all;
    for (i = 0; (r = vb_train_recovery(t, i)) != NULL; i++)
        for (k = 0; k < n_named(r); k++)
            vb_train_lost_fault(r, k, &all[result->n_faults++]);
    return VB_OK;
}

/* ---- the training thread --------------------------------------------------------------------- */

/* The whole gap, and its phases below it. */
static void trace(const struct vb_recovery *r)
{
    static const int ops[VB_RECOVERY_PHASES] = {
        [VB_RECOVERY_DETECT] = VB_OP_DETECT,       [VB_RECOVERY_AGREE] = VB_OP_AGREE,
        [VB_RECOVERY_FENCE] = VB_OP_FENCE,         [VB_RECOVERY_REBUILD] = VB_OP_REBUILD,
        [VB_RECOVERY_RECOMPUTE] = VB_OP_RECOMPUTE,
    };
    uint64_t begin_ns = vb_record_time(r->begin_ns), end_ns;
    double s[VB_RECOVERY_PHASES], sum_s = 0;
    int p;

    phases_of(r, s);
    vb_trace_beside(VB_OP_RECOVERY, begin_ns, begin_ns + (uint64_t)(1e9 * r->recovered_s), -1);
    for (p = 0; p < VB_RECOVERY_PHASES; p++, begin_ns = end_ns) {
        sum_s += s[p] > 0 ? s[p] : 0;
        end_ns = vb_record_time(r->begin_ns) + (uint64_t)(1e9 * sum_s);
        end_ns = end_ns > begin_ns ? end_ns : begin_ns + 1; /* one after another */
        vb_trace_beside(ops[p], begin_ns, end_ns, p == VB_RECOVERY_DETECT ? r->lost[0].rank : -1);
    }
}

static void say(const struct vb_recovery *r)
{
    char what[64] = "no step was under way; they were ready";
    int i;

    for (i = 0; i < n_named(r); i++)
        VB_LOG_WARN("rank %d (host %s) was %s after step %lld: %s", r->lost[i].rank,
                    r->lost[i].host, r->lost[i].removed ? "removed" : "lost", (long long)r->step,
                    r->lost[i].why);
    if (r->again > 0)
        snprintf(what, sizeof(what), "step %lld was computed again, and was done",
                 (long long)r->again);
    VB_LOG_WARN("training goes on with %d rank%s: %s %.3f s after the loss (ms: detect %.1f, agree "
                "%.1f, fence %.1f, rebuild %.1f, recompute %.1f)",
                r->left, r->left == 1 ? "" : "s", what, r->recovered_s, 1e3 * r->detect_s,
                1e3 * r->agree_s, 1e3 * r->fence_s, 1e3 * r->rebuild_s, 1e3 * r->recompute_s);
}

/* The event of the i-th rank that was lost in a recovery. */
static void describe(const struct vb_trainer *t, const struct vb_recovery *r, int i,
                     struct vb_train_event *event)
{
    *event = (struct vb_train_event){.at_ns = t->laps.begin_ns + (uint64_t)(1e9 * r->at_s),
                                     .step = r->step,
                                     .rank = r->lost[i].rank,
                                     .loss = -1,
                                     .accuracy = -1};
    snprintf(event->what, sizeof(event->what), "%s", r->lost[i].removed ? "removed" : "rank lost");
    snprintf(event->why, sizeof(event->why), "%s", r->lost[i].why);
    vb_train_lost_fault(r, i, &event->fault);
}

static void add_events(struct vb_trainer *t, const struct vb_recovery *r)
{
    struct vb_train_event event;
    int i;

    for (i = 0; i < n_named(r); i++) {
        describe(t, r, i, &event);
        vb_train_event(t, &event);
    }
}

/* Leaves word for the recorder's thread. *r itself may be overwritten by another recovery. */
static void hand_over(struct vb_trainer_record *rec, const struct vb_recovery *r)
{
    struct vb_train_heir *heir = &rec->heir;
    int i;

    pthread_mutex_lock(&rec->lock);
    for (i = 0; i < n_named(r) && heir->n_lost < VB_WORLD_MAX; i++)
        heir->lost[heir->n_lost++] = r->lost[i].rank;
    pthread_mutex_unlock(&rec->lock);
}

void vb_train_tell_recovery(struct vb_trainer *t, const struct vb_recovery *r)
{
    trace(r);
    if (t->record.has_lock)
        hand_over(&t->record, r);
    if (t->record.has_lock && t->leads)
        add_events(t, r);
    if (t->leads)
        say(r);
}

void vb_train_record_lead(struct vb_trainer *t)
{
    struct vb_trainer_record *rec = &t->record;

    if (!rec->has_lock)
        return;
    if (rec->rec == NULL) { /* all is recorded; the result is not reported yet */
        if (t->o->hooks.led != NULL && t->o->run.dir != NULL)
            t->o->hooks.led(t->o->hooks.led_arg, vb_ship_far(rec->ship) ? VB_LED_FAR : VB_LED_HERE);
        return;
    }
    pthread_mutex_lock(&rec->lock);
    rec->heir.leads = true;
    rec->heir.step = t->step;
    rec->heir.n_recoveries = t->recoveries.n - 1; /* the present one is told when it is complete */
    pthread_mutex_unlock(&rec->lock);
}

void vb_train_keep_eval_row(struct vb_trainer *t, const struct vb_eval_row *row)
{
    struct vb_train_heir *heir = &t->record.heir;

    pthread_mutex_lock(&t->record.lock);
    if (heir->n_evals == VB_EVALS_KEPT)
        memmove(heir->evals, heir->evals + 1, (size_t)--heir->n_evals * sizeof(*heir->evals));
    heir->evals[heir->n_evals++] = *row;
    pthread_mutex_unlock(&t->record.lock);
}

/* ---- the recorder's thread ------------------------------------------------------------------- */

/* Returns the step of the last evaluation that those who led before have written in this run. */
static uint64_t last_eval(struct vb_trainer *t)
{
    struct vb_series *series;
    struct vb_eval_row row;
    uint64_t step = 0;
    char path[4200];

    snprintf(path, sizeof(path), "%s/evals.bin", t->o->run.dir);
    if (access(path, R_OK) != 0 || vb_series_open(path, &series) != VB_OK)
        return 0;
    if (vb_series_fits(series, &vb_kind_evals) &&
        vb_series_copy(series, vb_series_rows(series) - 1, &row) &&
        row.end_ns >= vb_record_time(t->record.begin_ns))
        step = row.step;
    vb_series_close(series);
    return step;
}

/* The rank that leads writes each evaluation. The others keep the last ones in memory: what the one
 * that is lost has not written is not lost then. */
static void write_evals(struct vb_trainer *t)
{
    struct vb_trainer_record *rec = &t->record;
    struct vb_train_event event = {.rank = t->id, .what = "evaluated"};
    struct vb_eval_row rows[VB_EVALS_KEPT];
    int i, n;

    pthread_mutex_lock(&rec->lock);
    n = rec->heir.n_evals;
    memcpy(rows, rec->heir.evals, (size_t)n * sizeof(*rows));
    rec->heir.n_evals = 0;
    pthread_mutex_unlock(&rec->lock);
    for (i = 0; i < n; i++) {
        if (rows[i].step <= rec->eval_step) /* those who led before have written it */
            continue;
        rec->eval_step = 0; /* a resumed run makes steps again */
        event.at_ns = rows[i].end_ns;
        event.step = (int64_t)rows[i].step;
        event.loss = rows[i].loss;
        event.accuracy = rows[i].accuracy;
        vb_stream_put(rec->evals, &rows[i]);
        vb_train_event_earlier(t, &event);
    }
}

/* Returns whether those who led before have written this event. */
static bool is_written(const struct vb_trainer *t, const struct vb_train_event *event)
{
    char path[4200], text[128], line[1024];
    bool found = false;
    FILE *in;

    snprintf(path, sizeof(path), "%s/events.jsonl", t->o->run.dir);
    snprintf(text, sizeof(text), "\"what\":\"%s\",\"step\":%lld,\"rank\":%d,", event->what,
             (long long)event->step, event->rank);
    in = fopen(path, "re");
    while (in != NULL && !found && fgets(line, sizeof(line), in) != NULL)
        found = strstr(line, text) != NULL;
    if (in != NULL)
        fclose(in);
    return found;
}

/* What those who led before have not written is not lost with them. Entries of the list before the
 * last one stay as they are. */
static void write_losses(struct vb_trainer *t, int n)
{
    const struct vb_recovery *r;
    struct vb_train_event event;
    int i, k;

    for (i = 0; i < n && i < VB_RECOVERIES - 1; i++) {
        r = &t->recoveries.list[i];
        for (k = 0; k < n_named(r); k++) {
            describe(t, r, k, &event);
            if (!is_written(t, &event))
                vb_train_event_earlier(t, &event);
        }
    }
}

/* The order matters: the hook clears a folder of its own before files begin there. */
static void take_over(struct vb_trainer *t, int64_t step, int n_recoveries)
{
    struct vb_trainer_record *rec = &t->record;
    bool far = vb_ship_far(rec->ship);
    char host[64] = "?";

    if (t->o->run.dir == NULL)
        return;
    rec->eval_step = far ? 0 : last_eval(t);
    if (far) {
        (void)gethostname(host, sizeof(host) - 1);
        VB_LOG_WARN("the run folder was on the host of a rank that is lost: from step %lld on "
                    "records are in %s on host %s",
                    (long long)step + 1, t->o->run.dir, host);
    }
    if (t->o->hooks.led != NULL)
        t->o->hooks.led(t->o->hooks.led_arg, far ? VB_LED_FAR : VB_LED_HERE);
    if (vb_ship_lead(rec->ship) != VB_OK)
        VB_LOG_WARN("records of ranks that do not see %s are lost", t->o->run.dir);
    snprintf(rec->events_file, sizeof(rec->events_file), "events.jsonl");
    write_losses(t, n_recoveries);
    if (rec->board != NULL)
        vb_board_lead(rec->board, t->id, step, far);
    if (rec->metrics != NULL)
        vb_metrics_lead(rec->metrics, t->id);
}

/* Returns whether a rank below this one is left that is as near as that. */
static bool has_elder(const struct vb_trainer *t, int nearness)
{
    int r;

    for (r = 0; r < t->id && r < VB_WORLD_MAX; r++)
        if ((t->record.near[r] & nearness) == nearness && !t->record.gone[r])
            return true;
    return false;
}

/* The lowest rank of a machine samples the machine. */
static void note_lost(struct vb_trainer *t, const int *lost, int n)
{
    struct vb_trainer_record *rec = &t->record;
    int i, world = t->o->group.world;

    for (i = 0; i < n; i++) {
        if (lost[i] < 0 || lost[i] >= VB_WORLD_MAX)
            continue;
        rec->gone[lost[i]] = true;
        if (lost[i] >= world)
            continue;
        if (rec->board != NULL)
            vb_board_lost(rec->board, lost[i]);
        if (rec->metrics != NULL)
            vb_metrics_lost(rec->metrics, lost[i]);
    }
    vb_sampler_take(rec->sampler, !has_elder(t, NEAR_MACHINE),
                    !has_elder(t, NEAR_MACHINE | NEAR_NET));
}

static void tick(void *arg, uint64_t now_ns, bool last)
{
    struct vb_trainer *t = arg;
    struct vb_trainer_record *rec = &t->record;
    struct vb_train_heir heir;

    (void)now_ns;
    (void)last;
    pthread_mutex_lock(&rec->lock);
    heir = rec->heir;
    rec->heir.done = heir.leads;
    rec->heir.n_lost = 0;
    pthread_mutex_unlock(&rec->lock);
    if (heir.leads && !heir.done)
        take_over(t, heir.step, heir.n_recoveries);
    if (rec->evals != NULL && (heir.leads || t->id == 0))
        write_evals(t);
    if (heir.n_lost > 0)
        note_lost(t, heir.lost, heir.n_lost);
    if (vb_ship_turned(rec->ship)) {
        vb_recorder_heads(rec->rec);
        vb_trace_files_again(t->trace.files);
    }
}

vb_status vb_train_recovery_open(struct vb_trainer *t)
{
    struct vb_trainer_record *rec = &t->record;
    struct vb_group *group = t->place.group;
    int r, world = t->o->group.world;

    if (!vb_train_is_elastic(t->o) || group == NULL || rec->ship == NULL)
        return VB_OK;
    rec->gone = calloc(VB_WORLD_MAX, sizeof(*rec->gone));
    rec->near = calloc(VB_WORLD_MAX, sizeof(*rec->near));
    if (rec->gone == NULL || rec->near == NULL)
        return vb_err_sys("calloc");
    for (r = 0; r < world && t->joiner == NULL; r++) /* a joiner does not know who else is there */
        rec->near[r] = (unsigned char)((vb_group_same_machine(group, r) ? NEAR_MACHINE : 0) |
                                       (vb_group_same_net(group, r) ? NEAR_NET : 0));
    return vb_recorder_tick(rec->rec, tick, t);
}
