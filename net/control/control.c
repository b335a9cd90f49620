/* SPDX-License-Identifier: MIT
 *
 * The thread of the control plane, and the functions that the group calls. Only the thread waits
 * for control sockets. The group's calls change the state under the lock, send as much as the
 * socket accepts, and wait for `changed`.
 */
#include "net/control/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MS_NS 1000000ull
#define GOODBYE_NS (500 * MS_NS)
#define EVENTS_A_WAKE 64

const char *vb_control_host(struct control *c, int rank)
{
    return c->conns[rank].info.host[0] != '\0' ? c->conns[rank].info.host : "host not known yet";
}

/* Only the first loss is the reason why a group that is not elastic fails. */
void vb_control_tell_lost(const struct control *c, int rank, const char *why)
{
    if (c->opts.lost == NULL || atomic_load_explicit(&c->failed, memory_order_relaxed) != VB_OK)
        return;
    if (c->kept_losses != NULL)
        snprintf(c->kept_losses[rank], CONTROL_WHY, "%s", why);
    else
        c->opts.lost(c->opts.lost_arg, rank, why);
}

void vb_control_fail(struct control *c, vb_status st, const char *fmt, ...)
{
    va_list args;

    if (atomic_load_explicit(&c->failed, memory_order_relaxed) != VB_OK)
        return;
    va_start(args, fmt);
    vsnprintf(c->failure, sizeof(c->failure), fmt, args);
    va_end(args);
    /* pairs with the acquire in vb_control_status() */
    atomic_store_explicit(&c->failed, st, memory_order_release);
    pthread_cond_broadcast(&c->changed);
    if (c->opts.alarm != NULL)
        c->opts.alarm(c->opts.arg);
}

vb_status vb_control_status(struct control *c, char *text, size_t size)
{
    /* pairs with the release in vb_control_fail(), which has written `failure` before */
    vb_status st = atomic_load_explicit(&c->failed, memory_order_acquire);

    if (st != VB_OK && text != NULL)
        snprintf(text, size, "%s", c->failure);
    return st;
}

/* ---- the thread ------------------------------------------------------------------------------ */

void vb_control_wake(struct control *c)
{
    uint64_t one = 1;

    if (write(c->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        VB_LOG_WARN("cannot wake the control thread: %s", strerror(errno));
}

uint64_t vb_control_patient(const struct control *c, uint64_t ns)
{
    return c->opts.patience > 0 ? (uint64_t)((double)ns * c->opts.patience) : ns;
}

/* What a descriptor belongs to, as the data of its epoll events. An event that is served late,
 * after its owner got another descriptor, does no harm: nothing is read without looking. */
enum owner { OWNER_WAKE, OWNER_LISTEN, OWNER_RANK, OWNER_PLACE, OWNER_PROCESS, OWNER_CALLER };

static uint64_t owner_data(enum owner kind, int door, int number)
{
    return (uint64_t)kind << 40 | (uint64_t)door << 32 | (uint32_t)number;
}

static bool epoll_set(struct control *c, int fd, int op, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return epoll_ctl(c->epoll_fd, op, fd, &ev) == 0;
}

bool vb_control_poll_rank(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    uint32_t events = conn->out.len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
    bool ok = true;

    if (conn->fd >= 0 && conn->polled != events && c->epoll_fd >= 0)
        ok = epoll_set(c, conn->fd, conn->polled == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, events,
                       owner_data(OWNER_RANK, 0, rank));
    conn->polled = events;
    return ok;
}

bool vb_control_poll_process(struct control *c, int rank, int fd)
{
    return epoll_set(c, fd, EPOLL_CTL_ADD, EPOLLIN, owner_data(OWNER_PROCESS, 0, rank));
}

bool vb_control_poll_place(struct control *c, const struct door *door, const struct pending *p)
{
    return epoll_set(c, p->fd, EPOLL_CTL_ADD, EPOLLIN,
                     owner_data(OWNER_PLACE, (int)(door - c->doors), (int)(p - door->places)));
}

bool vb_control_poll_caller(struct control *c, int place, int fd, bool first, bool writes)
{
    return epoll_set(c, fd, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
                     writes ? EPOLLIN | EPOLLOUT : EPOLLIN, owner_data(OWNER_CALLER, 0, place));
}

void vb_control_unpoll(struct control *c, int fd)
{
    (void)epoll_set(c, fd, EPOLL_CTL_DEL, 0, 0);
}

/* Waits for the listener only if a caller can be accepted. Returns when that will be; UINT64_MAX:
 * it can be now. */
static uint64_t poll_door(struct control *c, struct door *door, uint64_t now)
{
    uint64_t opens = c->stopping ? UINT64_MAX : vb_door_opens(door);
    bool listens = door->listen_fd >= 0 && opens <= now;

    if (listens != door->polled &&
        epoll_set(c, door->listen_fd, listens ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, EPOLLIN,
                  owner_data(OWNER_LISTEN, (int)(door - c->doors), 0)))
        door->polled = listens;
    return opens <= now ? UINT64_MAX : opens;
}

static void serve(struct control *c, uint64_t data)
{
    struct door *door = &c->doors[data >> 32 & 0xff];
    int number = (int)(data & UINT32_MAX);
    uint64_t count;

    switch ((enum owner)(data >> 40)) {
    case OWNER_WAKE:
        if (read(c->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
            VB_LOG_WARN("cannot read an eventfd: %s", strerror(errno));
        break;
    case OWNER_LISTEN:
        if (!c->stopping) /* a call may be for the next group at this address */
            vb_door_answer(c, door);
        break;
    case OWNER_RANK:
        vb_conn_flush(c, number);
        vb_conn_read_some(c, number);
        break;
    case OWNER_PLACE:
        if (door->places[number].fd >= 0)
            vb_pending_read(c, &door->places[number]);
        break;
    case OWNER_PROCESS:
        vb_agree_process_ended(c, number);
        break;
    case OWNER_CALLER:
        vb_callers_serve(c, number);
        break;
    }
}

/* True if all output is sent and every peer that is still connected has said goodbye. */
static bool may_end(struct control *c)
{
    int i;

    for (i = 0; i < c->opts.slots; i++)
        if (c->conns[i].fd >= 0 && (c->conns[i].out.len > 0 || !c->conns[i].end.left))
            return false;
    return !vb_callers_have_output(c);
}

/* Returns when the thread must wake at the latest. */
static uint64_t work_due(struct control *c, uint64_t now)
{
    uint64_t wake, opens, due;
    int i;

    if (c->opts.hopeless != NULL && !c->complete && atomic_load(c->opts.hopeless))
        vb_control_fail(c, VB_ERR_PEER, "a rank that this group waits for does not come");
    vb_watch(c, now);
    vb_pending_expire(c, now);
    wake = c->beat_ns;
    due = vb_record_send_due(c, now);
    wake = due < wake ? due : wake;
    due = vb_clock_due(c, now);
    wake = due < wake ? due : wake;
    due = vb_agree_work(c, now);
    wake = due < wake ? due : wake;
    due = vb_callers_work(c, now);
    wake = due < wake ? due : wake;
    for (i = 0; i < DOORS; i++) {
        opens = poll_door(c, &c->doors[i], now);
        wake = opens < wake ? opens : wake;
    }
    return wake;
}

static void *control_main(void *arg)
{
    struct epoll_event events[EVENTS_A_WAKE];
    struct control *c = arg;
    uint64_t now, wake, end = UINT64_MAX;
    int i, n;

    vb_log_set_rank(c->opts.rank);
    (void)pthread_setname_np(pthread_self(), "vb-control"); /* for ps, top and tests */
    pthread_mutex_lock(&c->lock);
    for (;;) {
        now = vb_clock_ns();
        if (c->stopping && end == UINT64_MAX)
            end = now + GOODBYE_NS;
        if (c->stopping && (may_end(c) || now >= end))
            break;
        wake = work_due(c, now);
        pthread_mutex_unlock(&c->lock);
        n = epoll_wait(c->epoll_fd, events, EVENTS_A_WAKE,
                       vb_sock_ms_left(wake < end ? wake : end, c->opts.times.beat_ms));
        pthread_mutex_lock(&c->lock);
        for (i = 0; i < n; i++)
            serve(c, events[i].data.u64);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void control_free(struct control *c)
{
    int i;

    for (i = 0; c->conns != NULL && i < c->opts.slots; i++)
        vb_conn_fini(&c->conns[i]);
    for (i = 0; i < DOORS; i++)
        vb_door_close(&c->doors[i]);
    vb_fd_close(&c->wake_fd);
    vb_fd_close(&c->epoll_fd);
    vb_clock_free(c);
    vb_record_free(c);
    vb_callers_free(c);
    vb_agree_free(c);
    free(c->conns);
    free(c->table);
    free(c->kept_losses);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct control *control_alloc(const struct control_opts *opts)
{
    struct control *c = calloc(1, sizeof(*c));
    pthread_condattr_t attr;
    int i;

    if (c == NULL)
        return NULL;
    c->opts = *opts;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->epoch = opts->epoch;
    c->joining = -1;
    c->work.activity = VB_DOES_SETUP;
    c->work.waits_for = WIRE_NO_RANK;
    c->conns = calloc((size_t)opts->slots, sizeof(*c->conns));
    if (opts->keeps_losses)
        c->kept_losses = calloc((size_t)opts->slots, sizeof(*c->kept_losses));
    c->doors[DOOR_EARLIER].listen_fd = -1;
    for (i = 0; c->conns != NULL && i < opts->slots; i++) {
        vb_conn_init(&c->conns[i]);
        if (opts->epoch > 1 || i >= opts->world)
            continue; /* this rank is a joiner, or the slot is for one */
        c->conns[i].epoch = opts->epoch;
        c->conns[i].slot = SLOT_EXPECTED;
    }
    return c;
}

/* Both doors take over their descriptors, also if there is no memory. */
static bool open_doors(struct control *c)
{
    bool tcp = vb_door_open(&c->doors[DOOR_TCP], c->opts.listen_fd, c->opts.slots);
    bool local = vb_door_open(&c->doors[DOOR_UNIX], c->opts.unix_fd, c->opts.slots);

    return tcp && local;
}

vb_status vb_control_open(const struct control_opts *opts, struct control **control_p)
{
    vb_status st;
    struct control *c = control_alloc(opts);

    if (c == NULL) {
        st = vb_err_sys("calloc");
        close(opts->listen_fd);
        if (opts->unix_fd >= 0)
            close(opts->unix_fd);
        return st;
    }
    if (!open_doors(c) || c->conns == NULL || (opts->keeps_losses && c->kept_losses == NULL) ||
        !vb_agree_open(c) ||
        !epoll_set(c, c->wake_fd, EPOLL_CTL_ADD, EPOLLIN, owner_data(OWNER_WAKE, 0, 0))) {
        st = vb_err_sys("cannot open the control connections");
    } else {
        errno = pthread_create(&c->thread, NULL, control_main, c);
        st = errno == 0 ? VB_OK
                        : vb_err_sys("cannot start the control thread (ulimit -u allows more)");
    }
    if (st != VB_OK) {
        control_free(c);
        return st;
    }
    *control_p = c;
    return VB_OK;
}

void vb_control_close(struct control *c)
{
    int i;

    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    /* A goodbye would tell others that the job is done. */
    for (i = 0; i < c->opts.slots && (c->forsaken || vb_agree_has_ended(c)); i++)
        vb_fd_close(&c->conns[i].fd);
    vb_agree_leave(c);
    for (i = 0; i < c->opts.slots; i++)
        vb_conn_send(c, i, WIRE_BYE, NULL, 0);
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    pthread_join(c->thread, NULL);
    control_free(c);
}

/* ---- waiting --------------------------------------------------------------------------------- */

bool vb_control_wait_change(struct control *c, uint64_t deadline)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline / 1000000000u),
                          .tv_nsec = (long)(deadline % 1000000000u)};

    return pthread_cond_timedwait(&c->changed, &c->lock, &ts) != ETIMEDOUT;
}

vb_status vb_control_say_failure(struct control *c)
{
    return vb_err(atomic_load_explicit(&c->failed, memory_order_acquire), "%s", c->failure);
}

static bool has_come(const struct control *c, int rank, enum awaited awaited)
{
    const struct conn *conn = &c->conns[rank];

    switch (awaited) {
    case AWAITED_UP:
        return conn->fd >= 0;
    case AWAITED_TABLE:
        return c->table != NULL;
    case AWAITED_KEY:
        return conn->data.has_key;
    case AWAITED_STREAM:
        return conn->data.fd >= 0;
    case AWAITED_BLOB:
        return conn->blobs.first != NULL;
    case AWAITED_CARD:
        break;
    }
    return conn->join.has_card;
}

vb_status vb_control_wait_for(struct control *c, int rank, enum awaited awaited, const char *what,
                              uint64_t deadline)
{
    while (!has_come(c, rank, awaited)) {
        if (atomic_load_explicit(&c->failed, memory_order_relaxed) != VB_OK)
            return vb_control_say_failure(c);
        if (c->conns[rank].end.left)
            return vb_err(VB_ERR_PEER, "rank %d (%s) left while this rank waited for %s", rank,
                          vb_control_host(c, rank), what);
        if (c->conns[rank].end.lost)
            return vb_err(VB_ERR_PEER, "rank %d (%s) was lost while this rank waited for %s: %s",
                          rank, vb_control_host(c, rank), what, c->conns[rank].end.why);
        if (!vb_control_wait_change(c, deadline))
            return vb_err(VB_ERR_TIMEOUT,
                          "rank %d (%s) did not answer in time: this rank waited for %s", rank,
                          vb_control_host(c, rank), what);
    }
    return VB_OK;
}

vb_status vb_control_wait_up(struct control *c, int from, int to, uint64_t deadline)
{
    vb_status st = VB_OK;
    int i;

    pthread_mutex_lock(&c->lock);
    for (i = from; i < to && st == VB_OK; i++)
        if (i != c->opts.rank)
            st = vb_control_wait_for(c, i, AWAITED_UP, "a connection", deadline);
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* ---- the rest -------------------------------------------------------------------------------- */

void vb_control_abort(struct control *c, const char *why)
{
    size_t len = strnlen(why, 500);
    int i;

    pthread_mutex_lock(&c->lock);
    vb_agree_leave(c);
    for (i = 0; i < c->opts.slots; i++)
        vb_conn_send(c, i, WIRE_ABORT, why, len);
    vb_control_fail(c, VB_ERR_PEER, "this rank gave up: %s", why); /* so later waits fail at once */
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
}

void vb_control_forsake(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    c->forsaken = true;
    pthread_mutex_unlock(&c->lock);
}

void vb_control_lose(struct control *c, int rank, const char *why)
{
    pthread_mutex_lock(&c->lock);
    vb_conn_read(c, rank); /* if the peer has sent an abort, that says more */
    /* After a cut it will be lost soon, and for a better reason. */
    if (c->conns[rank].end.cut_ns == 0 || vb_agree_is_out(c, rank))
        vb_conn_lose(c, rank, why);
    pthread_mutex_unlock(&c->lock);
}

void vb_control_tell_losses(struct control *c)
{
    char(*kept)[CONTROL_WHY];
    int i;

    pthread_mutex_lock(&c->lock);
    kept = c->kept_losses;
    c->kept_losses = NULL;
    for (i = 0; kept != NULL && i < c->opts.slots; i++)
        if (kept[i][0] != '\0')
            vb_control_tell_lost(c, i, kept[i]);
    pthread_mutex_unlock(&c->lock);
    free(kept);
}

void vb_control_data_lost(struct control *c, int rank, const char *why)
{
    pthread_mutex_lock(&c->lock);
    vb_conn_read(c, rank);
    if (!vb_membership_cut(c, rank, why))
        vb_conn_lose(c, rank, why);
    pthread_mutex_unlock(&c->lock);
}

void vb_control_step(struct control *c)
{
    atomic_fetch_add_explicit(&c->work.step, 1, memory_order_relaxed);
}

void vb_control_begin_at(struct control *c, uint64_t step)
{
    atomic_store_explicit(&c->work.step, step, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    vb_agree_begin_at(c, step);
    pthread_mutex_unlock(&c->lock);
}

void vb_control_does(struct control *c, uint32_t activity)
{
    atomic_store_explicit(&c->work.activity, activity, memory_order_relaxed);
}

void vb_control_waits(struct control *c, bool waits, int rank)
{
    uint32_t whom = waits && rank >= 0 ? (uint32_t)rank : WIRE_NO_RANK;

    atomic_store_explicit(&c->work.waits_for, whom, memory_order_relaxed);
}

bool vb_control_has_left(struct control *c, int rank)
{
    const struct conn *conn = &c->conns[rank];
    bool left;

    pthread_mutex_lock(&c->lock);
    left = conn->end.left && vb_clock_ns() > conn->end.left_ns + vb_control_patient(c, LEAVE_NS);
    pthread_mutex_unlock(&c->lock);
    return left;
}

bool vb_control_is_gone(struct control *c, int rank)
{
    const struct conn *conn = &c->conns[rank];
    bool was_fenced, gone;

    pthread_mutex_lock(&c->lock);
    was_fenced = conn->slot == SLOT_EMPTY && conn->past.freed > 0;
    gone = conn->end.left || conn->end.lost || was_fenced ||
           atomic_load_explicit(&c->failed, memory_order_relaxed) != VB_OK;
    pthread_mutex_unlock(&c->lock);
    return gone;
}
