/* SPDX-License-Identifier: MIT
 *
 * Changes the ranks that work together after a rank is gone. Whatever depends on them (barrier,
 * collectives) is a *follower*: it is stopped, and begins anew with the members of the new view.
 *
 * Notes of a pair come in the order in which they were posted. So each rank stops its followers and
 * then sends a note, *stopped*, to all other members. When it has the notes of all others, and its
 * own ops have ended, nothing of the old view can come any more, and nobody writes to mapped
 * windows. It resets its followers and sends a second note, *ready*. When it has those of all
 * others, all have reset, and it may begin: what it sends cannot come too early. What comes
 * nevertheless on the channel of a follower belongs to another view, and is dropped (progress.c).
 *
 * Nothing is allocated here. The memory for all ranks of the start is allocated when the group is
 * opened.
 */
#include "net/group/group_priv.h"

#include <stdlib.h>
#include <string.h>

enum phase { PHASE_STOPPED, PHASE_READY, PHASES };

#define PHASE_SHIFT 23

static void note_came(void *arg, int rank, uint32_t value)
{
    struct vb_group *g = arg;
    struct view_news *news = &g->view_news[rank];
    uint32_t number = value & VB_VIEW_MAX;
    bool ready = value >> PHASE_SHIFT == PHASE_READY;

    if (number <= (ready ? news->ready : news->stopped) || (ready && number != news->stopped))
        vb_control_lose(g->control, rank, "the peer announced a view that is not due");
    else if (ready)
        news->ready = number;
    else
        news->stopped = number;
}

vb_status vb_regroup_open(struct vb_group *g)
{
    struct group_view *view = &g->view;
    int i;

    view->members = calloc((size_t)g->world, sizeof(*view->members));
    view->places = calloc((size_t)g->slots, sizeof(*view->places));
    g->view_news = calloc((size_t)g->slots, sizeof(*g->view_news));
    g->agreed = calloc((size_t)g->world, sizeof(*g->agreed));
    if (view->members == NULL || view->places == NULL || g->view_news == NULL || g->agreed == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < g->slots; i++) {
        view->places[i] = i < g->world ? i : VB_NO_PLACE;
        g->view_news[i].ops[PHASE_STOPPED].done = g->view_news[i].ops[PHASE_READY].done = true;
    }
    for (i = 0; i < g->world; i++)
        view->members[i] = i;
    view->n = g->world;
    view->mine = g->rank;
    return g->opts.elastic ? vb_channel_open(g, VB_CHANNEL_VIEW, note_came, g) : VB_OK;
}

void vb_regroup_close(struct vb_group *g)
{
    free(g->view.members);
    free(g->view.places);
    free(g->view_news);
    free(g->agreed);
}

void vb_group_follow(struct vb_group *g, struct group_follower *follower)
{
    struct group_follower **at = &g->followers;

    if (!g->opts.elastic)
        return;
    group_lock(g);
    while (*at != NULL)
        at = &(*at)->next;
    *at = follower;
    g->channels[follower->channel].of_view = true;
    group_unlock(g);
}

const struct group_view *vb_group_view(const struct vb_group *g)
{
    return &g->view;
}

int vb_group_view_world(const struct vb_group *g)
{
    return g->view.n;
}

int vb_group_view_rank(const struct vb_group *g)
{
    return g->view.mine;
}

int vb_group_view_member(const struct vb_group *g, int i)
{
    return g->view.members[i];
}

/* ---- ranks that are gone --------------------------------------------------------------------- */

/* A rank that has joined in the slot of a former member is not that member. */
bool vb_regroup_is_missing(const struct vb_group *g, int rank)
{
    return rank != g->rank && (g->peers[rank].gone || g->peers[rank].epoch != GROUP_EPOCH);
}

static int first_missing(const struct vb_group *g, const int *members, int n)
{
    int i;

    for (i = 0; i < n && g->front.n_fenced > 0; i++)
        if (vb_regroup_is_missing(g, members[i]))
            return members[i];
    return VB_NO_PLACE;
}

int vb_group_missing(struct vb_group *g)
{
    int rank;

    group_lock(g);
    rank = first_missing(g, g->view.members, g->view.n);
    group_unlock(g);
    return rank;
}

int vb_group_lost(struct vb_group *g)
{
    if (!g->opts.elastic)
        return -1;
    if (atomic_load_explicit(&g->news, memory_order_relaxed))
        (void)vb_progress(g); /* what has failed is told by the next call that needs it */
    return vb_group_missing(g);
}

/* Ranks that agree go on, so this is no error yet; and the progress thread may be the one that
 * notices it. */
vb_status vb_group_say_gone(struct vb_group *g, int rank, const char *what)
{
    if (g->opts.agrees) {
        VB_LOG_INFO("%s failed, because rank %d (%s) is gone: %s", what, rank,
                    vb_group_host(g, rank), vb_group_gone_why(g, rank));
        return VB_ERR_PEER;
    }
    return vb_err(VB_ERR_PEER, "%s failed, because rank %d (%s) is gone: %s", what, rank,
                  vb_group_host(g, rank), vb_group_gone_why(g, rank));
}

struct loss {
    struct vb_group *g;
    int rank;
};

static bool is_lost(void *arg)
{
    const struct loss *l = arg;

    return vb_regroup_is_missing(l->g, l->rank);
}

vb_status vb_group_put_failed(struct vb_group *g, int rank, vb_status st, const char *what)
{
    struct loss l = {g, rank};
    int nobody = VB_NO_PLACE;

    if (!g->opts.elastic || !vb_group_is_dead_end(st) || vb_group_status(g) != VB_OK)
        return st;
    st = vb_group_wait_for(g, is_lost, &l, what, &nobody);
    return st == VB_OK ? vb_group_say_gone(g, rank, what) : st;
}

vb_status vb_regroup_check(struct vb_group *g, const char *what)
{
    int missing = vb_group_missing(g);

    if (g->opts.elastic && g->epoch != GROUP_EPOCH)
        return vb_err(VB_ERR_USAGE,
                      "%s is not possible: this rank is a joiner, but all ranks must be members "
                      "from the start",
                      what);
    return missing == VB_NO_PLACE ? VB_OK : vb_group_say_gone(g, missing, what);
}

void vb_regroup_forget(struct vb_group *g, int rank)
{
    g->view_news[rank].stopped = g->view_news[rank].ready = 0;
}

void vb_group_leaves(struct vb_group *g)
{
    g->leaves = true;
}

void vb_group_unfollow(struct vb_group *g, struct group_follower *follower, bool works)
{
    struct group_follower **at = &g->followers;

    if (works && !g->leaves && g->opts.elastic && follower->arg != NULL &&
        vb_group_status(g) == VB_OK && vb_group_missing(g) == VB_NO_PLACE)
        (void)vb_group_barrier(g);
    group_lock(g);
    while (*at != NULL && *at != follower)
        at = &(*at)->next;
    if (*at != NULL)
        *at = follower->next;
    group_unlock(g);
}

/* Makes sure that a rank that is no longer a member cannot write to windows of this rank. */
static vb_status leave_out(struct vb_group *g, int rank)
{
    bool wrote;
    vb_status st = VB_OK;

    if (!vb_group_gone(g, rank) && g->peers[rank].epoch == GROUP_EPOCH)
        st = vb_group_retire(g, rank, "the other ranks go on without this rank");
    if (st != VB_OK)
        return st;
    group_lock(g);
    wrote = g->sync.win->kept[rank] != NULL && g->peers[rank].end != VB_END_LEFT;
    group_unlock(g);
    return wrote ? vb_group_kill(g, rank) : VB_OK;
}

/* ---- regrouping ------------------------------------------------------------------------------ */

struct regrouping {
    struct vb_group *g;
    const int *members;
    int n;
    uint32_t number;
    enum phase phase;
    int from;               /* the member that the wait is for */
    int lost;               /* a member that is gone; VB_NO_PLACE: none */
    const struct vb_op *op; /* an op that must be done first; NULL: none */
    char what[48];
};

static vb_status check(const struct regrouping *r)
{
    const struct group_view *view = &r->g->view;
    bool mine = false;
    int i, rank;

    if (!r->g->opts.elastic || r->g->epoch != GROUP_EPOCH)
        return vb_err(VB_ERR_USAGE,
                      "%s is not possible: the group is not elastic, or this rank "
                      "is a joiner",
                      r->what);
    if (r->number <= r->g->view_tried || r->number > VB_VIEW_MAX)
        return vb_err(VB_ERR_USAGE, "%s is not possible: the number must be from %u to %u", r->what,
                      r->g->view_tried + 1, VB_VIEW_MAX);
    for (i = 0; i < r->n; i++) {
        rank = r->members[i];
        if (rank < 0 || rank >= r->g->world || view->places[rank] == VB_NO_PLACE ||
            (i > 0 && rank <= r->members[i - 1]))
            return vb_err(VB_ERR_USAGE,
                          "%s is not possible: member %d of %d is rank %d, which is no member of "
                          "the last view, or the ranks are not ascending",
                          r->what, i, r->n, rank);
        mine = mine || rank == r->g->rank;
    }
    return mine ? VB_OK
                : vb_err(VB_ERR_USAGE, "%s is not possible: this rank is not among the %d members",
                         r->what, r->n);
}

static void stop_all(struct vb_group *g)
{
    struct group_follower *f;

    group_lock(g);
    for (f = g->followers; f != NULL; f = f->next)
        f->stop(f->arg);
    group_unlock(g);
}

static vb_status leave_out_others(struct regrouping *r)
{
    const struct group_view *view = &r->g->view;
    vb_status st = VB_OK;
    int i, k = 0;

    for (i = 0; i < view->n && st == VB_OK; i++) {
        if (k < r->n && view->members[i] == r->members[k])
            k++;
        else
            st = leave_out(r->g, view->members[i]);
    }
    return st;
}

static bool is_quiet(const struct vb_group *g)
{
    const struct group_follower *f;

    for (f = g->followers; f != NULL; f = f->next)
        if (!f->is_quiet(f->arg))
            return false;
    return true;
}

/* Returns whether all other members have announced the phase. A member may be ahead, at a later
 * view: then it has stopped too. */
static bool all_announced(struct regrouping *r)
{
    const struct view_news *news;
    int i;

    for (i = 0; i < r->n; i++) {
        r->from = r->members[i];
        news = &r->g->view_news[r->from];
        if (r->from != r->g->rank &&
            (r->phase == PHASE_READY ? news->ready : news->stopped) < r->number)
            return false;
    }
    return true;
}

static bool phase_over(void *arg)
{
    struct regrouping *r = arg;

    r->lost = first_missing(r->g, r->members, r->n);
    if (r->lost != VB_NO_PLACE)
        return true;
    if (r->op != NULL)
        return r->op->done;
    return all_announced(r) && is_quiet(r->g);
}

static vb_status wait_phase(struct regrouping *r)
{
    vb_status st = vb_group_wait_for(r->g, phase_over, r, r->what, &r->from);

    if (st == VB_OK && r->lost != VB_NO_PLACE)
        st = vb_group_say_gone(r->g, r->lost, r->what);
    return st;
}

/* The op of the note that an attempt before this one has sent may be under way. */
static vb_status announce_to(struct regrouping *r, int rank)
{
    struct vb_group *g = r->g;
    struct vb_op *op = &g->view_news[rank].ops[r->phase];
    uint32_t value = (uint32_t)r->phase << PHASE_SHIFT | r->number;
    vb_status st;

    r->op = op;
    r->from = rank;
    st = wait_phase(r);
    r->op = NULL;
    if (st != VB_OK)
        return st;
    st = vb_put_wait(g->sync.win, rank, NULL, 0, 0, 0, VB_NOTE(VB_CHANNEL_VIEW, value), op, 0);
    return st == VB_OK ? VB_OK : vb_group_put_failed(g, rank, st, r->what);
}

/* Announces a phase to all other members, and waits until they have announced it. */
static vb_status do_phase(struct regrouping *r, enum phase phase)
{
    vb_status st = VB_OK;
    int i;

    r->phase = phase;
    for (i = 0; i < r->n && st == VB_OK; i++)
        if (r->members[i] != r->g->rank)
            st = announce_to(r, r->members[i]);
    return st == VB_OK ? wait_phase(r) : st;
}

static void reset_all(const struct regrouping *r)
{
    struct group_view *view = &r->g->view;
    struct group_follower *f;
    int i;

    group_lock(r->g);
    for (i = 0; i < r->g->slots; i++)
        view->places[i] = VB_NO_PLACE;
    for (i = 0; i < r->n; i++) {
        view->members[i] = r->members[i];
        view->places[r->members[i]] = i;
    }
    view->n = r->n;
    view->mine = view->places[r->g->rank];
    view->number = r->number;
    r->g->view_news[r->g->rank].ready = r->number;
    for (f = r->g->followers; f != NULL; f = f->next)
        f->reset(f->arg);
    group_unlock(r->g);
}

static vb_status resume_all(struct vb_group *g)
{
    struct group_follower *f;
    vb_status st = VB_OK;

    for (f = g->followers; f != NULL && st == VB_OK; f = f->next)
        if (f->resume != NULL)
            st = f->resume(f->arg);
    return st;
}

vb_status vb_group_regroup(struct vb_group *g, const int *members, int n, uint32_t number)
{
    struct regrouping r = {
        .g = g, .members = members, .n = n, .number = number, .lost = VB_NO_PLACE};
    vb_status st;

    snprintf(r.what, sizeof(r.what), "view %u of %d ranks", number, n);
    st = check(&r);
    if (st != VB_OK)
        return st;
    g->view_tried = number;
    stop_all(g);
    st = leave_out_others(&r);
    if (st == VB_OK)
        st = do_phase(&r, PHASE_STOPPED);
    if (st == VB_OK) {
        reset_all(&r);
        st = do_phase(&r, PHASE_READY);
    }
    if (st == VB_OK)
        st = resume_all(g);
    if (st != VB_OK)
        stop_all(g);
    else
        VB_LOG_INFO("%s: this rank is number %d", r.what, g->view.mine);
    return st;
}
