/* SPDX-License-Identifier: MIT */
#include "engine/run/run_form.h"

#include <string.h>
#include <unistd.h>

#define PAUSE_NS UINT64_C(1000000000) /* after forming was given up; it doubles */
#define PAUSES_MAX 5
#define WRITER_MS 30000

/* What the lead tells the members. */
struct call {
    char root[VB_ROOT_TEXT];
    int32_t joiners, world; /* of the new group; world 0: none is formed */
    int32_t next_id;
};

static int room(const struct vb_trainer *t)
{
    int most = t->recipe.global_batch < VB_WORLD_MAX ? t->recipe.global_batch : VB_WORLD_MAX;

    return most - t->world;
}

/* Counts those who wait. If all have gone meanwhile, no group is formed. */
static void count_callers(struct vb_trainer *t, struct call *c)
{
    int n = vb_group_callers(t->place.group);

    n = n < room(t) ? n : room(t);
    n = n > 0 ? n : 0;
    if (n == 0 && t->o->hooks.form == NULL)
        return;
    c->joiners = n;
    c->world = t->world + n;
    c->next_id += n;
}

/* All members know the ids that are given away now, so nobody else ever gets them. If one who has
 * called goes now, it is missing in the new group, which is then given up. */
static void invite(struct vb_trainer *t, const struct call *c)
{
    struct vb_invitation inv = {.step = t->step, .world = c->world};
    int i;

    snprintf(inv.root, sizeof(inv.root), "%s", c->root);
    for (i = 0; i < c->joiners; i++) {
        inv.rank = t->world + i;
        inv.id = c->next_id - c->joiners + i;
        (void)vb_group_invite(t->place.group, &inv);
    }
}

static bool is_writing(const struct vb_trainer *t)
{
    return t->saved.writer != NULL && vb_checkpoint_writer_busy(t->saved.writer);
}

/* Memory that hangs on the old group must not be being written to a checkpoint, whether steps hold
 * it or not. The other members wait meanwhile. */
static vb_status end_saving(struct vb_trainer *t)
{
    int ms = t->o->group.timeout_ms > 0 ? t->o->group.timeout_ms / 4 : WRITER_MS;

    if (!t->saved.held && !is_writing(t))
        return VB_OK;
    ms = ms < WRITER_MS ? ms : WRITER_MS;
    (void)vb_checkpoint_writer_wait(t->saved.writer, vb_clock_ns() + (uint64_t)ms * 1000000);
    return vb_train_saves_look(t);
}

static vb_status call_members(struct vb_trainer *t, struct call *c, int *fd_p)
{
    vb_status st = VB_OK;

    memset(c, 0, sizeof(*c));
    c->next_id = t->form.next_id;
    if (t->leads)
        st = end_saving(t);
    if (st == VB_OK && t->leads && !t->saved.held && !is_writing(t) &&
        vb_group_meet(t->place.group, c->root, fd_p) == VB_OK)
        count_callers(t, c);
    if (st == VB_OK)
        st = vb_group_broadcast(t->place.group, 0, c, sizeof(*c));
    c->root[sizeof(c->root) - 1] = '\0';
    if (st == VB_OK && c->world > 0 && (c->world < t->world || c->world > VB_WORLD_MAX))
        st = vb_err(VB_ERR_INPUT, "a new group of %d ranks is not possible", (int)c->world);
    return st;
}

static vb_status prepare(struct vb_trainer *t, struct run_stop *stop, const struct call *c, int fd)
{
    struct vb_meeting meeting = {
        .root_fd = fd, .rank = t->rank, .world = c->world, .open_ms = VB_FORM_OPEN_MS};
    vb_status st;

    snprintf(meeting.root, sizeof(meeting.root), "%s", c->root);
    st = vb_train_form_prepare(t, &meeting);
    if (st == VB_OK)
        st = vb_run_stop_form(stop);
    if (st == VB_OK)
        st = vb_group_barrier(t->place.group);
    return st;
}

static void ended(void *stop, bool switched)
{
    vb_run_stop_formed(stop, switched);
}

/* Returns how long forming is not tried again. */
static uint64_t pause_after_failure(struct vb_trainer *t)
{
    uint64_t pause = PAUSE_NS << (t->form.failed < PAUSES_MAX ? t->form.failed : PAUSES_MAX);

    t->form.failed++;
    t->form.before_ns = vb_clock_ns() + pause;
    return pause;
}

/* Not all are ready: the members go on as they are, and try it again later. */
static vb_status give_up(struct vb_trainer *t)
{
    uint64_t pause = pause_after_failure(t);

    vb_train_form_undo(t);
    if (t->leads)
        VB_LOG_WARN("no new group could be formed after step %lld: training goes on with %d "
                    "rank%s, and tries it again in %d s",
                    (long long)t->step, t->world, t->world == 1 ? "" : "s",
                    (int)(pause / 1000000000));
    return VB_OK;
}

static double ms(const struct vb_trainer *t, enum vb_form_part from, enum vb_form_part to)
{
    return (double)(t->form.at_ns[to] - t->form.at_ns[from]) / 1e6;
}

static void tell_joined(const struct vb_trainer *t)
{
    VB_LOG_INFO("after step %lld %d rank%s joined: training goes on with %d, after %.1f ms (group "
                "%.1f, buffers %.1f, state of %.1f MB %.1f)",
                (long long)t->step, t->form.joiners, t->form.joiners == 1 ? "" : "s", t->world,
                ms(t, VB_FORM_BEGINS, VB_FORM_ENTERED), ms(t, VB_FORM_BEGINS, VB_FORM_OPENED),
                ms(t, VB_FORM_OPENED, VB_FORM_MADE), (double)t->form.state_bytes / 1e6,
                ms(t, VB_FORM_MADE, VB_FORM_SENT));
}

vb_status vb_run_form(struct vb_trainer *t, struct run_stop *stop)
{
    struct call c;
    int fd = -1;
    bool ready, all = false;
    vb_status st;

    vb_train_form_mark(t, VB_FORM_BEGINS);
    st = call_members(t, &c, &fd);
    if (st == VB_OK) /* no step may have been made since the last group was formed */
        vb_train_form_done(t);
    if (st != VB_OK || c.world < 2) {
        if (fd >= 0)
            (void)close(fd);
        vb_run_stop_formed(stop, false);
        vb_train_form_undo(t);
        (void)pause_after_failure(t);
        return st;
    }
    t->form.next_id = c.next_id;
    if (t->leads)
        invite(t, &c);
    t->form.joiners = c.joiners;
    t->form.ended = ended;
    t->form.ended_arg = stop;
    ready = prepare(t, stop, &c, fd) == VB_OK;
    st = vb_train_form_back(t, ready, &all);
    if (st == VB_OK && !all)
        st = give_up(t);
    else if (st == VB_OK)
        st = vb_train_form_switch(t);
    if (st == VB_OK && all)
        st = vb_train_form_enter(t);
    vb_train_form_mark(t, VB_FORM_ENTERED);
    if (st == VB_OK && all && t->leads)
        tell_joined(t);
    vb_lap(&t->laps, VB_PHASE_WAIT);
    return st;
}

vb_status vb_run_form_joined(struct vb_trainer *t)
{
    vb_status st = vb_group_barrier(t->place.group); /* of prepare() */

    if (st == VB_OK)
        st = vb_trainer_repartition(t, t->rank, t->world);
    if (st == VB_OK)
        st = vb_train_form_enter(t);
    t->ops->formed(t, true); /* what was made without a group: nobody waits for this any more */
    return st;
}
