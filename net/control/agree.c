/* SPDX-License-Identifier: MIT
 *
 * Groups that agree (docs/views.md): the machine of net/view is told which ranks are gone and
 * gets their messages, and what it puts out is sent. All of this happens under the lock of the
 * control plane, most of it on its thread.
 *
 * A rank that the machine takes for gone because another one says so is dropped here too. So
 * whatever waits for it fails, as if this rank had noticed by itself.
 */
#include "net/control/control_priv.h"

#include <stdlib.h>
#include <string.h>

#define MS_NS 1000000ull
#define GRACE_NS (1000 * MS_NS) /* for proofs that come from elsewhere */

_Static_assert(WIRE_VIEW_BYTES == VIEW_MESSAGE_BYTES, "a view frame is one message");

bool vb_agree_open(struct control *c)
{
    struct view_opts opts = {.rank = c->opts.rank,
                             .world = c->opts.world,
                             .retry_ns = (uint64_t)c->opts.times.beat_ms * MS_NS,
                             .grace_ns = vb_control_patient(c, GRACE_NS)};
    struct agreement *a;
    int i;

    if (!c->opts.agrees)
        return true;
    a = c->agreement = calloc(1, sizeof(*a));
    if (a == NULL)
        return false;
    pthread_mutex_init(&a->lock, NULL);
    a->from = -1;
    vb_view_init(&a->machine, &opts);
    a->processes = calloc((size_t)c->opts.world, sizeof(*a->processes));
    for (i = 0; i < c->opts.world && a->processes != NULL; i++)
        a->processes[i].fd = -1;
    return a->processes != NULL;
}

void vb_agree_free(struct control *c)
{
    struct agreement *a = c->agreement;
    int i;

    if (a == NULL)
        return;
    for (i = 0; i < c->opts.world && a->processes != NULL; i++)
        vb_fd_close(&a->processes[i].fd);
    free(a->processes);
    pthread_mutex_destroy(&a->lock);
    free(a);
    c->agreement = NULL;
}

/* A process can be watched from now on, so its death is proved whenever it comes. */
static void watch_process(struct control *c, int rank)
{
    const struct wire_info *own = &c->conns[c->opts.rank].info, *peer = &c->conns[rank].info;
    struct peer_process *process = &c->agreement->processes[rank];

    if (!vb_wire_info_same_host(own, peer) || vb_wire_info_same_process(own, peer))
        return;
    process->id = peer->process;
    process->fd = vb_process_open(&process->id);
    if (process->fd >= 0 && !vb_control_poll_process(c, rank, process->fd))
        vb_fd_close(&process->fd);
}

void vb_agree_know(struct control *c)
{
    int i;

    for (i = 0; i < c->opts.world && c->agreement != NULL; i++)
        if (i != c->opts.rank)
            watch_process(c, i);
}

/* All ranks begin with the same step. Once the view has changed it is too late. */
void vb_agree_begin_at(struct control *c, uint64_t step)
{
    struct agreement *a = c->agreement;

    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    if (vb_view_status(&a->machine) == VIEW_GOING && a->machine.view.epoch == 1)
        a->machine.step = step;
    pthread_mutex_unlock(&a->lock);
}

static bool is_over(const struct agreement *a)
{
    return a == NULL || a->over || vb_view_status(&a->machine) == VIEW_ENDED;
}

bool vb_agree_has_ended(const struct control *c)
{
    return c->agreement != NULL && vb_view_status(&c->agreement->machine) == VIEW_ENDED;
}

bool vb_agree_is_out(const struct control *c, int rank)
{
    return c->agreement != NULL && !view_has(&vb_view_now(&c->agreement->machine)->members, rank);
}

bool vb_agree_is_member(const struct control *c, int rank)
{
    return c->agreement != NULL && view_has(&c->agreement->machine.view.members, rank);
}

int vb_agree_lead(const struct control *c)
{
    const struct view_machine *m = &c->agreement->machine;
    struct view_set alive = view_minus(&m->view.members, &m->suspects);

    return view_lowest(&alive);
}

int vb_agree_members(const struct control *c)
{
    return view_count(&c->agreement->machine.view.members);
}

/* ---- what the machine puts out --------------------------------------------------------------- */

static void send_out(struct control *c, const struct view_out *out)
{
    unsigned char frame[WIRE_VIEW_BYTES];
    int k, i;

    for (k = 0; k < out->n; k++) {
        vb_view_encode(&out->sends[k].message, frame);
        for (i = 0; i < c->opts.world; i++)
            if (view_has(&out->sends[k].to, i))
                (void)vb_conn_send(c, i, WIRE_VIEW, frame, sizeof(frame));
    }
}

/* Writes "0, 2-5", which ends with "..." if there is no room. */
static void name_ranks(const struct view_set *set, char text[CONTROL_RANKS_TEXT])
{
    size_t at = 0;
    int first, last;

    text[0] = '\0';
    for (first = 0; first < VIEW_RANKS; first = last + 1) {
        last = first;
        if (!view_has(set, first))
            continue;
        while (last + 1 < VIEW_RANKS && view_has(set, last + 1))
            last++;
        if (at + 24 > CONTROL_RANKS_TEXT) {
            snprintf(text + at, CONTROL_RANKS_TEXT - at, " ...");
            return;
        }
        at +=
            (size_t)snprintf(text + at, CONTROL_RANKS_TEXT - at, "%s%d", at > 0 ? ", " : "", first);
        if (last > first)
            at += (size_t)snprintf(text + at, CONTROL_RANKS_TEXT - at, "-%d", last);
    }
    if (at == 0)
        snprintf(text, CONTROL_RANKS_TEXT, "none");
}

static void name_both(const struct agreement *a, char left[CONTROL_RANKS_TEXT],
                      char gone[CONTROL_RANKS_TEXT])
{
    struct view_set alive = view_minus(&a->machine.view.members, &a->machine.suspects);

    name_ranks(&alive, left);
    name_ranks(&a->machine.suspects, gone);
}

static void end(struct control *c)
{
    const struct agreement *a = c->agreement;
    char left[CONTROL_RANKS_TEXT], gone[CONTROL_RANKS_TEXT];
    const struct view *view = vb_view_now(&a->machine);

    name_both(a, left, gone);
    if (vb_view_why(&a->machine) == VIEW_END_OUT && a->in.view.epoch > view->epoch) {
        view = &a->in.view; /* the sender's, which this rank is not in */
        name_ranks(&view->members, left);
    }
    if (vb_view_why(&a->machine) == VIEW_END_OUT)
        vb_control_fail(c, VB_ERR_PEER,
                        "this rank cannot go on: the others go on without it, in view %u of ranks "
                        "%s; they have taken this rank for gone",
                        view->epoch, left);
    else
        vb_control_fail(c, VB_ERR_PEER,
                        "this rank cannot go on: of %d ranks only %s can be reached from here, so "
                        "the others (%s) may go on without it",
                        view_count(&view->members), left, gone);
}

/* Sends what the machine has put out, and wakes whoever waits for it. */
static void put_out(struct control *c)
{
    struct agreement *a = c->agreement;

    send_out(c, &a->out);
    if (a->out.events == 0)
        return;
    if ((a->out.events & VIEW_EVENT_END) != 0)
        end(c);
    pthread_cond_broadcast(&c->changed);
    if (c->opts.alarm != NULL)
        c->opts.alarm(c->opts.arg);
}

/* ---- what the machine is told ---------------------------------------------------------------- */

/* Tells the machine one thing that it does not know yet. Returns false if there is none. */
static bool tell_one(struct control *c)
{
    struct agreement *a = c->agreement;
    int how, rank;

    for (how = 0; how < VIEW_HOWS; how++) {
        rank = view_lowest(&a->news[how]);
        if (rank < 0)
            continue;
        view_remove(&a->news[how], rank);
        pthread_mutex_lock(&a->lock);
        vb_view_suspect(&a->machine, rank, (enum view_how)how, vb_clock_ns(), &a->out);
        pthread_mutex_unlock(&a->lock);
        put_out(c);
        return true;
    }
    return false;
}

/* Drops a rank that the machine takes for gone, or that is out of the view. If its death is proved,
 * or it was left out, its own last words may be under way, and are better: "left" is no death. */
static bool drop_one(struct control *c)
{
    const struct agreement *a = c->agreement;
    const struct view_machine *m = &a->machine;
    char why[CONTROL_WHY];
    int i;

    for (i = 0; i < c->opts.world; i++) {
        struct conn *conn = &c->conns[i];

        if (conn->slot != SLOT_TAKEN || conn->fd < 0 || conn->end.left ||
            (view_has(&m->view.members, i) && !view_has(&m->suspects, i)))
            continue;
        if (view_has(&m->proved, i) || vb_agree_is_out(c, i)) {
            (void)vb_membership_cut(c, i, "it has ended, or the others go on without it");
            continue;
        }
        snprintf(why, sizeof(why), "rank %d (%s) has found that it is gone", a->from,
                 vb_control_host(c, a->from));
        conn->end.silent = true; /* it may still run */
        vb_conn_lose(c, i, why);
        return true;
    }
    return false;
}

/* Sending may find out that more ranks are gone, so this may be called while it runs. */
static void tell(struct control *c)
{
    struct agreement *a = c->agreement;

    if (a->telling)
        return;
    a->telling = true;
    while (!is_over(a) && (tell_one(c) || drop_one(c)))
        ;
    a->telling = false;
    vb_control_wake(c); /* something else may be due now */
}

void vb_agree_dropped(struct control *c, int rank)
{
    if (c->agreement != NULL)
        view_add(&c->agreement->droppers, rank);
}

/* A rank that has dropped this one has gone on without it if it could. Maybe it has done all steps
 * and saved them by now. So its end does not allow this rank to do them once more. */
static void add_news(struct agreement *a, int rank, enum view_how how)
{
    view_add(&a->news[view_has(&a->droppers, rank) ? VIEW_LOST : how], rank);
}

void vb_agree_gone(struct control *c, int rank, enum view_how how)
{
    struct agreement *a = c->agreement;

    if (is_over(a) || rank >= c->opts.world)
        return;
    pthread_mutex_lock(&a->lock);
    vb_view_farewell(&a->machine, rank, &a->farewell);
    pthread_mutex_unlock(&a->lock);
    add_news(a, rank, how);
    send_out(c, &a->farewell);
    tell(c);
}

void vb_agree_process_ended(struct control *c, int rank)
{
    struct agreement *a = c->agreement;

    if (a == NULL || a->processes[rank].fd < 0 || !vb_process_ended(a->processes[rank].fd, 0))
        return;
    vb_fd_close(&a->processes[rank].fd);
    if (c->conns[rank].fd >= 0)
        vb_conn_read(c, rank); /* its last words */
    add_news(a, rank, VIEW_REAPED);
    tell(c);
}

void vb_agree_leave(struct control *c)
{
    struct agreement *a = c->agreement;

    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    a->over = true;
    pthread_mutex_unlock(&a->lock);
}

bool vb_agree_frame(struct control *c, int rank)
{
    struct agreement *a = c->agreement;
    bool possible;

    if (a == NULL || !vb_view_decode(c->conns[rank].in.payload, c->opts.world, &a->in))
        return false;
    if (is_over(a))
        return true;
    VB_ASSERT(!a->telling);
    a->telling = true;
    pthread_mutex_lock(&a->lock);
    possible = vb_view_take(&a->machine, rank, &a->in, vb_clock_ns(), &a->out);
    pthread_mutex_unlock(&a->lock);
    if (possible) {
        a->from = rank;
        put_out(c);
    }
    a->telling = false;
    tell(c);
    return possible;
}

/* Only one that is lost, and has not gone on without this rank before it was stopped. */
static bool may_kill(const struct agreement *a, int rank)
{
    const struct view_machine *m = &a->machine;
    const struct peer_process *process = &a->processes[rank];

    return view_has(&m->suspects, rank) && !view_has(&m->proved, rank) &&
           !view_has(&a->droppers, rank) && process->fd >= 0 &&
           vb_process_state(&process->id) == VB_PROCESS_STOPPED &&
           vb_process_same_program(&process->id);
}

/* A rank that is stopped cannot say whether it goes on with others, so this rank would have to give
 * up. Its end, which is a proof, changes that. A supervisor, who would kill it too and say so,
 * comes first. */
static uint64_t kill_stopped(struct control *c, uint64_t now)
{
    struct agreement *a = c->agreement;
    const struct view_machine *m = &a->machine;
    int i;

    if (m->end_due == 0)
        a->kill_due = 0;
    else if (a->kill_due == 0)
        a->kill_due = m->end_due - m->opts.grace_ns / 4 * 3;
    for (i = 0; i < c->opts.world && a->kill_due > 0 && now >= a->kill_due; i++)
        if (may_kill(a, i)) {
            VB_LOG_WARN("rank %d (pid %u) is stopped (SIGSTOP) and is killed: it is lost, and only "
                        "its end lets this rank go on",
                        i, a->processes[i].id.number);
            (void)vb_process_kill(a->processes[i].fd);
        }
    if (a->kill_due > 0 && now >= a->kill_due)
        a->kill_due = now + m->opts.grace_ns / 4; /* more may be lost meanwhile */
    return a->kill_due > 0 ? a->kill_due : UINT64_MAX;
}

/* Too few are left, and a lost rank has dropped this one, so no proof of its end counts. This rank
 * ends at once, because its own end is the proof that others may wait for. */
static void end_hopeless(struct agreement *a, uint64_t now)
{
    struct view_set unsure = view_minus(&a->machine.suspects, &a->machine.proved);

    unsure = view_and(&unsure, &a->droppers);
    if (view_empty(&unsure))
        return;
    pthread_mutex_lock(&a->lock);
    vb_view_end_grace(&a->machine, now);
    pthread_mutex_unlock(&a->lock);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t vb_agree_work(struct control *c, uint64_t now)
{
    struct agreement *a = c->agreement;
    uint64_t kills;

    if (is_over(a))
        return UINT64_MAX;
    kills = kill_stopped(c, now);
    end_hopeless(a, now);
    if (now >= vb_view_due(&a->machine)) {
        a->telling = true;
        pthread_mutex_lock(&a->lock);
        vb_view_tick(&a->machine, now, &a->out);
        pthread_mutex_unlock(&a->lock);
        put_out(c);
        a->telling = false;
        tell(c);
    }
    return is_over(a) ? UINT64_MAX : earlier(kills, vb_view_due(&a->machine));
}

/* ---- the group ------------------------------------------------------------------------------- */

bool vb_control_commit(struct control *c, uint64_t step, uint32_t number)
{
    struct agreement *a = c->agreement;
    bool ok;

    if (a == NULL)
        return true;
    pthread_mutex_lock(&a->lock);
    ok = !a->over && a->machine.view.epoch == number && vb_view_commit(&a->machine, step);
    pthread_mutex_unlock(&a->lock);
    return ok;
}

static bool is_agreed(const struct control *c, uint32_t above)
{
    const struct view_machine *m = &c->agreement->machine;

    return !is_over(c->agreement) && vb_view_status(m) == VIEW_GOING && m->view.epoch > above;
}

bool vb_control_agreed(struct control *c, uint32_t above, uint64_t deadline,
                       struct control_agreed *agreed_p)
{
    const struct view *view;
    bool agreed;
    int i;

    pthread_mutex_lock(&c->lock);
    while (!is_agreed(c, above) &&
           atomic_load_explicit(&c->failed, memory_order_relaxed) == VB_OK &&
           vb_control_wait_change(c, deadline))
        ;
    agreed = is_agreed(c, above);
    if (agreed) {
        view = vb_view_now(&c->agreement->machine);
        agreed_p->number = view->epoch;
        agreed_p->step = view->step;
        agreed_p->term = view->term;
        agreed_p->holder = (int)view->holder;
        agreed_p->n = 0;
        for (i = 0; i < c->opts.world; i++)
            if (view_has(&view->members, i))
                agreed_p->members[agreed_p->n++] = i;
    }
    pthread_mutex_unlock(&c->lock);
    return agreed;
}

void vb_control_proved(struct control *c, int rank)
{
    pthread_mutex_lock(&c->lock);
    if (c->conns[rank].fd >= 0)
        vb_conn_read(c, rank);
    vb_agree_gone(c, rank, VIEW_REAPED);
    pthread_mutex_unlock(&c->lock);
}

void vb_control_view_text(struct control *c, char left[CONTROL_RANKS_TEXT],
                          char gone[CONTROL_RANKS_TEXT])
{
    pthread_mutex_lock(&c->lock);
    name_both(c->agreement, left, gone);
    pthread_mutex_unlock(&c->lock);
}
