/* SPDX-License-Identifier: MIT
 *
 * The members of a synchronous job form a new group, together with joiners. No rank is ever added
 * to a group: what a group has agreed on is proved for the ranks that it began with.
 *
 *     prepare  the new group is opened, and what hangs on a group is made anew in it. The old group
 *              and all that hangs on it stay as they are
 *     back     the members tell each other, in the old group, that they are ready
 *     switch   each member commits one more step in the old group, and is in the new one then
 *     enter    a barrier of the new group: whoever comes out of it knows that all have switched
 *     done     the first step in the new group is made, so all know it: the old one is closed
 *
 * If a member dies before it has switched, the others agree in the old group. If the agreed step is
 * the one of the switch, one of them may have made steps in the new group: so all go over to it,
 * and recover there. Otherwise they stay, and give the new group up. A joiner has no vote: after a
 * failure the new group goes on only with members of which the old group has decided that they do.
 */
#include "engine/train/trainer.h"

#include <string.h>

/* A joiner waits for so long to be invited, for steps may be long; a lead that is silent is noticed
 * long before. */
#define INVITED_MS 600000

/* What the lead tells about the job, so that joiners know as much as the members. */
struct form_facts {
    int64_t step, resumed, samples;
    int64_t sum_step, kept_step, seen;
    double accuracy, loss;
    struct vb_eval_sum sum;
    unsigned char token[VB_JOB_TOKEN];
    struct vb_checkpoint_view view;
    int32_t next_id, old_world;
};

void vb_train_form_mark(struct vb_trainer *t, enum vb_form_part part)
{
    t->form.at_ns[part] = vb_clock_ns();
}

/* ---- memory ---------------------------------------------------------------------------------- */

void vb_train_form_ahead(struct vb_trainer *t)
{
    size_t lens[VB_WINDOWS_AHEAD];
    int n = t->ops->ahead != NULL ? t->ops->ahead(t, t->world + 1, lens) : 0;

    if (n > 0 && t->form.ahead == NULL &&
        vb_window_ahead_begin(t->place.group, lens, n, &t->form.ahead) != VB_OK)
        t->form.ahead = NULL; /* the windows allocate it themselves */
}

static void end_ahead(struct vb_trainer *t)
{
    vb_window_ahead_end(t->form.ahead);
    t->form.ahead = NULL;
}

/* The kernel needs long to free many pages, too. */
static void *close_main(void *group)
{
    vb_group_close(group);
    return NULL;
}

static void wait_for_closer(struct vb_trainer *t)
{
    if (t->form.closing != NULL)
        pthread_join(t->form.closer, NULL);
    t->form.closing = NULL;
}

static void close_beside(struct vb_trainer *t, struct vb_group *group)
{
    wait_for_closer(t);
    if (pthread_create(&t->form.closer, NULL, close_main, group) == 0)
        t->form.closing = group;
    else
        vb_group_close(group);
}

/* ---- seats ----------------------------------------------------------------------------------- */

static struct vb_trainer_seat own_seat(const struct vb_trainer *t)
{
    return (struct vb_trainer_seat){.group = t->place.group,
                                    .borrowed = t->place.borrowed,
                                    .number = t->number,
                                    .rank = t->rank,
                                    .world = t->world,
                                    .view = t->view,
                                    .sums = t->sums};
}

static void take_seat(struct vb_trainer *t, const struct vb_trainer_seat *seat)
{
    t->place.group = seat->group;
    t->place.borrowed = seat->borrowed;
    t->number = seat->number;
    t->rank = seat->rank;
    t->world = seat->world;
    t->view = seat->view;
    t->sums = seat->sums;
    t->leads = t->rank == 0;
}

/* Changes between the old group and the new one. */
static void swap_seats(struct vb_trainer *t)
{
    struct vb_trainer_seat own = own_seat(t);

    take_seat(t, &t->form.other);
    t->form.other = own;
}

static void close_seat(struct vb_trainer_seat *seat)
{
    if (seat->group != NULL && !seat->borrowed)
        vb_group_close(seat->group);
    *seat = (struct vb_trainer_seat){.group = NULL};
}

/* ---- what all ranks of the new group do ------------------------------------------------------ */

static vb_status tell_ids(struct vb_trainer *t)
{
    int32_t own = t->id, all[VB_WORLD_MAX];
    int ids[VB_WORLD_MAX], i;
    vb_status st = vb_group_gather(t->place.group, &own, sizeof(own), all);

    for (i = 0; i < t->world; i++)
        ids[i] = (int)all[i];
    return st == VB_OK ? vb_group_set_ids(t->place.group, ids) : st;
}

static void fill_facts(const struct vb_trainer *t, struct form_facts *f)
{
    *f = (struct form_facts){.step = t->step,
                             .resumed = t->resumed,
                             .samples = t->samples,
                             .sum_step = t->evals.sum_step,
                             .kept_step = t->evals.kept_step,
                             .seen = t->evals.seen,
                             .accuracy = t->evals.accuracy,
                             .loss = t->evals.loss,
                             .sum = t->evals.sum,
                             .view = t->saved.view,
                             .next_id = t->form.next_id,
                             .old_world = t->form.old_world};
    memcpy(f->token, t->saved.token, sizeof(f->token));
}

static vb_status take_facts(struct vb_trainer *t, const struct form_facts *f)
{
    if (f->step < 1 || f->step > t->recipe.steps || f->resumed < 0 || f->old_world < 1 ||
        f->old_world >= t->world)
        return vb_err(VB_ERR_INPUT, "the facts of the job make no sense: step %lld of %lld",
                      (long long)f->step, (long long)t->recipe.steps);
    t->step = t->recoveries.done = f->step;
    t->resumed = f->resumed;
    t->samples = f->samples;
    t->evals.sum_step = f->sum_step;
    t->evals.kept_step = f->kept_step;
    t->evals.seen = f->seen;
    t->evals.accuracy = f->accuracy;
    t->evals.loss = f->loss;
    t->evals.sum = f->sum;
    t->form.next_id = f->next_id;
    t->form.old_world = f->old_world;
    memcpy(t->saved.token, f->token, sizeof(f->token));
    t->saved.view = f->view;
    vb_train_saves_formed(t);
    return VB_OK;
}

static vb_status tell_facts(struct vb_trainer *t, bool takes)
{
    struct form_facts f;
    vb_status st;

    fill_facts(t, &f);
    st = vb_group_broadcast(t->place.group, 0, &f, sizeof(f));
    return st == VB_OK && takes ? take_facts(t, &f) : st;
}

/* ---- the members ----------------------------------------------------------------------------- */

static vb_status make_anew(struct vb_trainer *t)
{
    vb_status st = tell_ids(t);

    if (st == VB_OK)
        st = tell_facts(t, false);
    if (st == VB_OK)
        st = t->ops->form(t);
    vb_train_form_mark(t, VB_FORM_MADE);
    if (st == VB_OK && t->form.joiners > 0)
        st = vb_train_send_state(t);
    vb_train_form_mark(t, VB_FORM_SENT);
    return st;
}

vb_status vb_train_form_prepare(struct vb_trainer *t, const struct vb_meeting *meeting)
{
    struct vb_trainer_form *f = &t->form;
    vb_status st;

    wait_for_closer(t); /* what belongs to that group is used for the next one */
    f->under_way = true;
    f->old_step = t->step;
    f->old_world = t->world;
    f->other = (struct vb_trainer_seat){
        .number = meeting->rank, .rank = meeting->rank, .world = meeting->world, .sums = t->sums};
    st = vb_group_form(t->place.group, meeting, &f->other.group);
    if (st != VB_OK) {
        f->other.group = NULL;
        return st;
    }
    vb_train_form_mark(t, VB_FORM_OPENED);
    vb_group_begin_at(f->other.group, t->step);
    swap_seats(t);
    vb_group_take_ahead(t->place.group, f->ahead);
    st = make_anew(t);
    vb_group_take_ahead(t->place.group, NULL);
    end_ahead(t);
    return st;
}

vb_status vb_train_form_back(struct vb_trainer *t, bool ready, bool *all_p)
{
    uint8_t own = ready, all[VB_WORLD_MAX];
    vb_status st;
    int i;

    if (t->form.other.group != NULL)
        swap_seats(t);
    if (!ready && t->form.other.group != NULL) /* others may wait for this rank there */
        vb_group_abort(t->form.other.group, "a rank could not form the group");
    t->form.prepared = ready && t->form.under_way;
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (i = 0, *all_p = true; i < t->world && st == VB_OK; i++)
        *all_p = *all_p && all[i] != 0;
    return st;
}

/* This rank is in the new group from now on. */
static vb_status go_over(struct vb_trainer *t)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;
    struct vb_trainer_form *f = &t->form;

    f->under_way = f->prepared = false;
    swap_seats(t);
    f->switched = true;
    f->sure = false;
    f->failed = 0;
    t->evals.view = t->view; /* as on joiners: what is known of evaluations is the same on all */
    vb_train_saves_formed(t);
    t->ops->formed(t, true);
    if (f->ended != NULL)
        f->ended(f->ended_arg, true);
    (void)vb_group_inherit_door(t->place.group, f->other.group); /* or others may call in vain */
    vb_group_is_before(t->place.group, f->other.group);
    vb_group_tell_losses(t->place.group);
    vb_group_trace(t->place.group, t->trace.trace);
    vb_group_wait_stats_reset(t->place.group);
    t->laps.late_ns = 0;
    vb_train_record_group(t, t->place.group);
    if (hooks->grouped != NULL) {
        hooks->grouped(hooks->grouped_arg, t->place.group);
        t->place.grouped = hooks->grouped;
        t->place.grouped_arg = hooks->grouped_arg;
    }
    VB_LOG_INFO("after step %lld this rank is number %d of %d in a new group", (long long)t->step,
                t->rank, t->world);
    return vb_trainer_repartition(t, t->rank, t->world);
}

vb_status vb_train_form_switch(struct vb_trainer *t)
{
    if (!vb_group_commit(t->place.group, t->form.old_step + 1))
        return vb_err(VB_ERR_PEER, "a rank was lost while a new group was formed");
    return go_over(t);
}

vb_status vb_train_form_enter(struct vb_trainer *t)
{
    vb_status st = vb_group_barrier(t->place.group);

    t->form.sure = st == VB_OK;
    return st;
}

void vb_train_form_undo(struct vb_trainer *t)
{
    struct vb_trainer_form *f = &t->form;

    end_ahead(t);
    if (!f->under_way)
        return;
    f->under_way = f->prepared = false;
    f->old_world = 0;
    t->ops->formed(t, false);
    if (f->ended != NULL)
        f->ended(f->ended_arg, false);
    if (f->other.group != NULL)
        vb_group_abort(f->other.group, "the new group is given up");
    close_seat(&f->other);
}

static void end_forming(struct vb_trainer *t)
{
    t->form.old_world = 0; /* also on a joiner */
    if (t->form.switched) {
        vb_group_is_before(t->place.group, NULL);
        if (t->form.other.group != NULL && !t->form.other.borrowed)
            close_beside(t, t->form.other.group);
        t->form.other = (struct vb_trainer_seat){.group = NULL};
    }
    t->form.switched = false;
}

void vb_train_form_done(struct vb_trainer *t)
{
    if (t->form.old_world == 0)
        return;
    if (!t->form.switched) /* a joiner; members have done so in go_over() */
        vb_group_tell_losses(t->place.group);
    end_forming(t);
}

void vb_train_form_close(struct vb_trainer *t)
{
    if (t->ops == NULL)
        return;
    vb_train_form_undo(t);
    if (t->form.old_world != 0)
        end_forming(t);
    wait_for_closer(t);
    end_ahead(t);
}

/* ---- recoveries ------------------------------------------------------------------------------ */

vb_status vb_train_form_settle(struct vb_trainer *t, const struct vb_agreed *agreed)
{
    struct vb_trainer_form *f = &t->form;

    if (agreed->step <= f->old_step || !f->prepared) {
        vb_train_form_undo(t);
        return VB_OK;
    }
    if (!vb_group_take_agreed(t->place.group, agreed))
        return VB_ERR_PEER;
    return go_over(t);
}

bool vb_train_form_is_sure(const struct vb_trainer *t, const struct vb_agreed *agreed)
{
    int i, left = 0;

    if (t->form.old_world == 0 || t->form.sure)
        return true;
    for (i = 0; i < t->form.old_world; i++)
        left += vb_agreed_has(agreed, i);
    return t->form.switched ? left == t->form.old_world : left > 0;
}

vb_status vb_train_form_confirm(struct vb_trainer *t)
{
    struct vb_agreed agreed;
    vb_status st;

    if (!t->form.switched)
        return vb_err(VB_ERR_PEER, "all ranks that had invited this one are gone");
    st = vb_group_agree(t->form.other.group, &agreed);
    if (st == VB_OK && agreed.step <= t->form.old_step)
        st = vb_err(VB_ERR_PEER, "the others stay in the group before");
    return st;
}

/* ---- a joiner -------------------------------------------------------------------------------- */

/* Opens the group of the invitation. */
static vb_status open_group(struct vb_trainer *t, const struct vb_invitation *inv)
{
    struct vb_meeting meeting = {
        .root_fd = -1, .open_ms = VB_FORM_OPEN_MS, .rank = inv->rank, .world = inv->world};
    vb_status st;

    snprintf(meeting.root, sizeof(meeting.root), "%s", inv->root);
    st = vb_place_meet(t->o, &t->place, &meeting);
    if (st != VB_OK)
        return st;
    vb_group_begin_at(t->place.group, inv->step);
    vb_group_trace(t->place.group, t->trace.trace);
    t->id = inv->id;
    t->number = t->rank = t->share = inv->rank;
    t->world = t->shares = inv->world;
    return VB_OK;
}

/* The other side of make_anew(). */
static vb_status make_with_members(struct vb_trainer *t, int64_t step)
{
    vb_status st = tell_ids(t);

    if (st == VB_OK)
        st = tell_facts(t, true);
    if (st == VB_OK && t->step != step)
        st = vb_err(VB_ERR_INPUT, "the job is at step %lld, but has invited for step %lld",
                    (long long)t->step, (long long)step);
    vb_group_take_ahead(t->place.group, t->form.ahead);
    if (st == VB_OK)
        st = t->ops->form(t);
    vb_group_take_ahead(t->place.group, NULL);
    end_ahead(t);
    if (st == VB_OK)
        st = vb_train_take_state(t);
    if (st != VB_OK)
        t->ops->formed(t, false);
    return st;
}

vb_status vb_train_form_meet(struct vb_trainer *t)
{
    struct vb_invitation inv;
    vb_status st;

    vb_train_form_ahead(t);
    if (t->form.ahead != NULL)
        vb_window_ahead_wait(t->form.ahead);
    st = vb_caller_wait(t->joiner->caller, INVITED_MS, &inv);
    if (st != VB_OK)
        return st;
    if (t->o->hooks.numbered != NULL)
        t->o->hooks.numbered(t->o->hooks.numbered_arg, inv.id);
    st = open_group(t, &inv);
    return st == VB_OK ? make_with_members(t, inv.step) : st;
}
