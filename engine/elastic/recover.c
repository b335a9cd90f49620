/* SPDX-License-Identifier: MIT
 *
 * Synchronous training goes on when ranks are lost. The ranks that are left
 *
 *     agree      which of them go on, and from which step (vb_group_agree())
 *     fence      the others, and regroup: nothing of the old view comes any more
 *     rebuild    the step that all begin with: who lacks it copies it; all take larger shares
 *     recompute  the step that was under way
 *
 * A step changes nothing before its commit, which is a single moment (vb_train_commit()). So a rank
 * is at most one step behind another, and every rank has one complete step.
 *
 * If another rank is lost meanwhile, all begin again with agreeing. Nothing is allocated here.
 */
#include "engine/train/trainer.h"

#include <stdlib.h>
#include <string.h>

vb_status vb_train_recoveries_open(struct vb_trainer *t)
{
    if (t->place.group == NULL || !vb_train_is_elastic(t->o))
        return VB_OK;
    t->recoveries.list = calloc(VB_RECOVERIES, sizeof(*t->recoveries.list));
    return t->recoveries.list != NULL ? VB_OK : vb_err_sys("calloc");
}

void vb_train_recoveries_close(struct vb_trainer *t)
{
    free(t->recoveries.list);
    t->recoveries.list = NULL;
}

const struct vb_recovery *vb_train_recovery(const struct vb_trainer *t, int i)
{
    return i >= 0 && i < t->recoveries.n && i < VB_RECOVERIES ? &t->recoveries.list[i] : NULL;
}

vb_status vb_train_commit(struct vb_trainer *t, int64_t step)
{
    if (t->place.group == NULL || vb_group_commit(t->place.group, step))
        return VB_OK;
    return vb_err(VB_ERR_PEER, "step %lld is not made: the ranks must agree first which go on",
                  (long long)step);
}

void vb_train_recover_begin(struct vb_trainer *t)
{
    if (t->recoveries.list != NULL)
        (void)vb_log_catch_status(VB_ERR_PEER, t->recoveries.why, sizeof(t->recoveries.why));
}

void vb_train_recover_end(struct vb_trainer *t)
{
    if (t->recoveries.list != NULL)
        (void)vb_log_catch(NULL, 0);
}

/* ---- what is told ---------------------------------------------------------------------------- */

/* Returns the seconds since the last call, which belong to a phase. */
static double phase_s(struct vb_trainer *t)
{
    uint64_t before = t->recoveries.mark_ns;

    t->recoveries.mark_ns = vb_clock_ns();
    return before < t->recoveries.mark_ns ? (double)(t->recoveries.mark_ns - before) / 1e9 : 0;
}

/* The last one in memory is overwritten if there are too many. */
static struct vb_recovery *present(struct vb_trainer *t)
{
    int n = t->recoveries.n < VB_RECOVERIES ? t->recoveries.n : VB_RECOVERIES;

    return &t->recoveries.list[n - 1];
}

/* Ranks that are lost during a recovery belong to it. */
static struct vb_recovery *begin(struct vb_trainer *t)
{
    struct vb_recovery *r;
    uint64_t now = vb_clock_ns();

    if (t->recoveries.under_way)
        return present(t);
    t->recoveries.under_way = true;
    t->recoveries.n++;
    r = present(t);
    *r = (struct vb_recovery){.begin_ns = now, .at_s = (double)(now - t->laps.begin_ns) / 1e9};
    t->recoveries.mark_ns = now;
    return r;
}

static bool knows(const struct vb_recovery *r, int rank)
{
    int i;

    for (i = 0; i < r->n && i < VB_RECOVERY_LOST; i++)
        if (r->lost[i].rank == rank)
            return true;
    return false;
}

/* Notes who of the last view is not in the next one. */
static void note_lost(struct vb_trainer *t, struct vb_recovery *r, const struct vb_agreed *agreed)
{
    struct vb_group *group = t->place.group;
    int i, rank;

    for (i = 0; i < vb_group_view_world(group); i++) {
        rank = vb_group_view_member(group, i);
        if (vb_agreed_has(agreed, rank) || knows(r, vb_group_id(group, rank)))
            continue;
        if (r->n < VB_RECOVERY_LOST) {
            r->lost[r->n].rank = vb_group_id(group, rank);
            snprintf(r->lost[r->n].host, sizeof(r->lost[0].host), "%s", vb_group_host(group, rank));
        }
        r->n++;
    }
}

/* The ranks that are left out are fenced now, so it is known why they are gone. The time until the
 * loss was noticed began when the first of them was last alive. */
static void note_why(struct vb_trainer *t, struct vb_recovery *r)
{
    struct vb_group *group = t->place.group;
    uint64_t ns;
    int i, rank;

    for (i = 0; i < r->n && i < VB_RECOVERY_LOST; i++) {
        rank = vb_group_rank_of_id(group, r->lost[i].rank);
        if (r->lost[i].why[0] != '\0' || rank < 0)
            continue;
        r->lost[i].removed = t->removed[rank];
        snprintf(r->lost[i].why, sizeof(r->lost[i].why), "%s",
                 r->lost[i].removed ? "the user has removed it" : vb_group_gone_why(group, rank));
        ns = vb_group_last_sign(group, rank);
        if (ns > 0 && ns < r->begin_ns) {
            r->detect_s += (double)(r->begin_ns - ns) / 1e9;
            r->begin_ns = ns;
        }
    }
}

void vb_train_recovered(struct vb_trainer *t)
{
    struct vb_recovery *r;

    if (!t->recoveries.under_way)
        return;
    r = present(t);
    r->recompute_s += phase_s(t);
    r->recovered_s = (double)(t->recoveries.mark_ns - r->begin_ns) / 1e9;
    r->again = t->step > r->step ? r->step + 1 : 0;
    t->recoveries.under_way = false;
    vb_train_tell_recovery(t, r);
}

/* ---- recovering ------------------------------------------------------------------------------ */

/* A rank that gives up because of a failure of its own ends the job, as the others would fail, too,
 * or as the user has asked for it: a loss that is not finite, a checkpoint with
 * --checkpoint-strict. Returns such a rank; -1: there is none. */
static int who_gave_up(struct vb_trainer *t)
{
    struct vb_group *group = t->place.group;
    int i, rank;

    for (i = 0; i < vb_group_view_world(group); i++) {
        rank = vb_group_view_member(group, i);
        if (rank != t->number && vb_group_gave_up(group, rank) != NULL)
            return rank;
    }
    return -1;
}

/* Whoever notices it gives up for the same reason, so that all others learn it. */
static void give_up_too(struct vb_trainer *t, int rank)
{
    struct vb_group *group = t->place.group;
    const char *why = vb_group_gave_up(group, rank);

    (void)vb_err(VB_ERR_PEER, "rank %d (%s) gave up: %s", rank, vb_group_host(group, rank), why);
    vb_group_abort(group, why);
}

/* Gives the agreed step to those that do not have it. */
static vb_status catch_up(struct vb_trainer *t, const struct vb_agreed *agreed)
{
    uint8_t lacks = t->step < agreed->step, all[VB_WORLD_MAX];
    int i, from = 0, n = 0;
    vb_status st;

    if (t->step > agreed->step || t->step + 1 < agreed->step)
        return vb_err(VB_ERR_INPUT, "the ranks agreed on step %lld, but this rank has step %lld",
                      (long long)agreed->step, (long long)t->step);
    st = vb_group_gather(t->place.group, &lacks, sizeof(lacks), all);
    for (i = 0; i < t->world && st == VB_OK; i++) {
        n += all[i] != 0;
        from = agreed->members[i] == agreed->holder ? i : from;
    }
    if (st == VB_OK && n > 0)
        st = t->ops->copy(t, from, lacks, agreed->step);
    if (st != VB_OK || !lacks)
        return st;
    VB_LOG_INFO("step %lld was copied from rank %d", (long long)agreed->step, agreed->holder);
    t->step = agreed->step;
    t->samples += t->batch != NULL ? t->batch->n_global : t->recipe.global_batch;
    vb_group_step(t->place.group);
    return VB_OK;
}

/* This rank takes its place in the view. */
static vb_status rebuild(struct vb_trainer *t, const struct vb_agreed *agreed)
{
    vb_status st;

    t->view = agreed->number;
    vb_train_saves_agreed(t, agreed);
    t->rank = vb_group_view_rank(t->place.group);
    t->world = vb_group_view_world(t->place.group);
    t->leads = t->rank == 0;
    st = catch_up(t, agreed);
    if (st != VB_OK)
        return st;
    t->ops->regrouped(t);
    st = vb_trainer_repartition(t, t->rank, t->world);
    if (st != VB_OK)
        return st;
    vb_train_members_changed(t);
    return VB_OK;
}

/* What fails here is the end for this rank, so it is logged. */
static vb_status agree(struct vb_trainer *t, struct vb_agreed *agreed)
{
    int rank = who_gave_up(t);
    vb_status st = VB_OK;

    if (rank < 0) {
        vb_train_recover_end(t);
        st = vb_group_agree(t->place.group, agreed);
        vb_train_recover_begin(t);
        rank = st == VB_OK ? who_gave_up(t) : -1;
    }
    if (rank < 0)
        return st;
    vb_train_recover_end(t);
    give_up_too(t, rank);
    vb_train_recover_begin(t);
    return VB_ERR_PEER;
}

/* Agrees in the group in which training goes on. If the members were about to go over to another
 * group, the old one decides first, and maybe the new one has to agree then. */
static vb_status agree_where(struct vb_trainer *t, struct vb_agreed *agreed)
{
    vb_status st;

    do {
        st = agree(t, agreed);
        if (st != VB_OK)
            return st;
        if (!t->form.under_way)
            break;
        st = vb_train_form_settle(t, agreed);
        if (st != VB_OK && st != VB_ERR_PEER)
            return st;
    } while (st == VB_ERR_PEER || t->form.switched);
    if (vb_train_form_is_sure(t, agreed))
        return VB_OK;
    vb_train_recover_end(t);
    st = vb_train_form_confirm(t);
    vb_train_recover_begin(t);
    return st;
}

vb_status vb_train_recover(struct vb_trainer *t, vb_status st)
{
    struct vb_recovery *r;
    struct vb_agreed agreed;

    if (st != VB_ERR_PEER || t->recoveries.list == NULL)
        return st;
    vb_lap(&t->laps, VB_PHASE_WAIT);
    r = begin(t);
    if (t->recoveries.why[0] != '\0')
        VB_LOG_INFO("%s", t->recoveries.why);
    do {
        r->recompute_s += phase_s(t); /* of an attempt before */
        if (agree_where(t, &agreed) != VB_OK) {
            vb_train_dropped(t);
            return VB_ERR_PEER;
        }
        if (vb_train_is_over(t)) /* this rank must not lead a job that has ended */
            return VB_ERR_PEER;
        note_lost(t, r, &agreed);
        r->agree_s += phase_s(t);
        st = vb_group_regroup(t->place.group, agreed.members, agreed.n, agreed.number);
        r->fence_s += phase_s(t);
        if (st == VB_OK) {
            note_why(t, r);
            st = rebuild(t, &agreed);
            r->rebuild_s += phase_s(t);
        }
    } while (st == VB_ERR_PEER);
    r->step = agreed.step;
    r->left = agreed.n;
    vb_lap(&t->laps, VB_PHASE_WAIT);
    return st;
}
