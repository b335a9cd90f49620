/* SPDX-License-Identifier: MIT
 *
 * Groups that agree: callers that want to join. Such a group takes nobody in; its members form a
 * new group together with those who wait (engine/run/). A caller that has proved the secret is told
 * where the members are. If this rank leads, the caller also gets the text of the job, prepares
 * itself, says that it is ready, and waits until it is invited or turned away. Otherwise it calls
 * the lead. Ready callers hear from the lead every second, so that they notice when it is gone.
 *
 * All of this happens on the control thread, except that the lead's caller queues what is sent.
 */
#include "net/control/control_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define SAY_NS 1000000000u                      /* between two words to a caller that is ready */
#define PREPARE_NS (600 * UINT64_C(1000000000)) /* how long a caller may prepare itself */
/* A caller that leaves so many bytes unread is stuck. */
#define UNREAD_MAX (2 * WIRE_JOB_BYTES_MAX)
#define READY_BYTES (WIRE_FRAME_HEAD + WIRE_TAG)

struct caller {
    int fd; /* -1: this place is free */
    struct auth_session session;
    bool ready;     /* can be invited */
    bool leaves;    /* the connection ends once everything is sent */
    uint64_t order; /* of those that are ready */
    uint64_t since_ns, said_ns;
    unsigned char in[READY_BYTES];
    size_t have;
    unsigned char *out; /* what is not sent yet, from `sent` on */
    size_t len, sent, room;
};

struct callers {
    bool open;
    int most;
    unsigned char *job;
    size_t job_len;
    char root[VB_ROOT_TEXT];
    uint64_t n_ready; /* so far */
    struct caller places[VB_CALLERS_MAX];
};

static void count_ready(struct control *c)
{
    int i, n = 0;

    for (i = 0; i < VB_CALLERS_MAX; i++)
        n += c->callers->places[i].fd >= 0 && c->callers->places[i].ready;
    atomic_store_explicit(&c->n_callers, n, memory_order_relaxed);
}

static void drop(struct control *c, struct caller *w)
{
    vb_fd_close(&w->fd);
    free(w->out);
    explicit_bzero(w, sizeof(*w));
    w->fd = -1;
    count_ready(c);
}

/* ---- where the members are ------------------------------------------------------------------- */

static void add_door(char out[VB_DOORS_TEXT], const char *door)
{
    size_t at = strlen(out), len = strlen(door);

    if (len > 0 && at + len + 2 <= VB_DOORS_TEXT)
        snprintf(out + at, VB_DOORS_TEXT - at, "%s%s", at > 0 ? "," : "", door);
}

/* The address of rank 0 is that of the root: it may listen on all addresses. */
static void write_door(const struct wire_info *info, const char *root, char out[VB_DOORS_TEXT])
{
    const char *colon = strrchr(root, ':');
    unsigned port = info->door != 0 ? info->door : info->port;
    char door[VB_ROOT_TEXT + 16];

    if (info->rank > 0)
        snprintf(door, sizeof(door), strchr(info->addr, ':') != NULL ? "[%s]:%u" : "%s:%u",
                 info->addr, port);
    else if (info->door == 0 || colon == NULL)
        snprintf(door, sizeof(door), "%s", root);
    else
        snprintf(door, sizeof(door), "%.*s:%u", (int)(colon - root), root, port);
    add_door(out, door);
}

static void write_doors(const struct control *c, const char *root, char out[VB_DOORS_TEXT])
{
    int i, lead = vb_agree_lead(c);

    out[0] = '\0';
    for (i = lead < 0 ? 0 : lead; i < c->opts.world; i++)
        if (vb_agree_is_member(c, i) && c->conns[i].info.addr[0] != '\0') /* it is not gone */
            write_door(&c->conns[i].info, root, out);
}

void vb_control_doors(struct control *c, const char *root, char out[VB_DOORS_TEXT])
{
    out[0] = '\0';
    if (c->agreement == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    write_doors(c, root, out);
    pthread_mutex_unlock(&c->lock);
}

/* ---- out ------------------------------------------------------------------------------------- */

static void flush(struct control *c, struct caller *w)
{
    int place = (int)(w - c->callers->places);
    ssize_t n = 0;

    while (w->sent < w->len && n >= 0) {
        n = send(w->fd, w->out + w->sent, w->len - w->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            w->sent += (size_t)n;
        else if (n < 0 && errno == EINTR)
            n = 0;
    }
    if (n < 0 && errno != EAGAIN) {
        drop(c, w);
        return;
    }
    if (w->sent == w->len)
        w->sent = w->len = 0;
    if (w->len == 0 && w->leaves)
        drop(c, w);
    else
        (void)vb_control_poll_caller(c, place, w->fd, false, w->len > 0);
}

static bool grow(struct caller *w, size_t more)
{
    unsigned char *out;

    memmove(w->out, w->out + w->sent, w->len - w->sent);
    w->len -= w->sent;
    w->sent = 0;
    if (w->len + more <= w->room)
        return true;
    if (w->len + more > UNREAD_MAX)
        return false;
    out = realloc(w->out, w->len + more);
    if (out == NULL)
        return false;
    w->out = out;
    w->room = w->len + more;
    return true;
}

/* The caller may be gone afterwards. */
static void say(struct control *c, struct caller *w, uint16_t type, const void *payload, size_t len)
{
    if (w->fd < 0)
        return;
    if (w->room == 0 && (w->out = malloc(AUTH_FRAME_ROOM(len))) != NULL)
        w->room = AUTH_FRAME_ROOM(len);
    if (w->out == NULL || !grow(w, AUTH_FRAME_ROOM(len))) {
        drop(c, w);
        return;
    }
    w->len += vb_auth_frame(&w->session.out, type, payload, len, w->out + w->len);
    w->said_ns = vb_clock_ns();
    flush(c, w);
}

static void say_doors(struct control *c, struct caller *w, bool waits)
{
    unsigned char bytes[WIRE_DOORS_BYTES_MAX];
    struct wire_doors doors = {.waits = waits};

    write_doors(c, c->callers->root, doors.text);
    say(c, w, WIRE_DOORS, bytes, vb_wire_doors_encode(&doors, bytes));
}

static void turn_away(struct control *c, struct caller *w, const char *why)
{
    w->leaves = true;
    w->ready = false;
    count_ready(c);
    say(c, w, WIRE_AWAY, why, strnlen(why, WIRE_AWAY_BYTES_MAX));
}

/* ---- a caller comes -------------------------------------------------------------------------- */

static struct caller *find_place(const struct callers *all)
{
    int i;

    for (i = 0; i < VB_CALLERS_MAX; i++)
        if (all->places[i].fd < 0)
            return (struct caller *)&all->places[i];
    return NULL;
}

enum wire_verdict vb_callers_judge(const struct control *c)
{
    const struct callers *all = c->callers;

    if (all == NULL || c->stopping) /* the job begins, or has formed a new group */
        return WIRE_BUSY;
    if (!all->open)
        return WIRE_CLOSED;
    if (vb_agree_members(c) >= all->most)
        return WIRE_FULL;
    return find_place(all) != NULL ? WIRE_WELCOME : WIRE_BUSY;
}

static bool leads(const struct control *c)
{
    return vb_agree_lead(c) == c->opts.rank;
}

/* Tells the user of the job, who may wonder why nobody has joined yet. */
static void tell_caller(int fd)
{
    char text[SOCK_TEXT];
    struct sock_addr at;

    if (vb_sock_peer(fd, &at) != VB_OK)
        return;
    vb_sock_text(&at, text);
    VB_LOG_INFO("a process at %s wants to join: it opens its data and its model first", text);
}

bool vb_callers_take(struct control *c, int fd, const struct auth_session *session)
{
    struct caller *w = vb_callers_judge(c) == WIRE_WELCOME ? find_place(c->callers) : NULL;
    bool waits = leads(c);

    if (w == NULL || !vb_control_poll_caller(c, (int)(w - c->callers->places), fd, true, false))
        return false;
    w->fd = fd;
    w->session = *session;
    w->since_ns = vb_clock_ns();
    (void)vb_sock_keepalive(fd, 30000, 5000); /* its host may be gone */
    say_doors(c, w, waits);
    if (waits) {
        tell_caller(fd);
        say(c, w, WIRE_JOB, c->callers->job, c->callers->job_len);
    } else if (w->fd >= 0) {
        w->leaves = true;
        flush(c, w);
    }
    return true;
}

/* All bytes of a frame have come. A caller has only one thing to say, once. */
static void take_frame(struct control *c, struct caller *w)
{
    uint32_t len;
    uint16_t type;

    w->have = 0;
    if (!vb_wire_frame_decode(w->in, c->opts.world, &len, &type) || type != WIRE_READY ||
        w->ready || w->leaves ||
        vb_auth_check(&w->session, w->in, NULL, 0, w->in + WIRE_FRAME_HEAD) != NULL) {
        VB_LOG_WARN("a process that wanted to join has sent what is no answer; its connection "
                    "ends");
        drop(c, w);
        return;
    }
    w->ready = true;
    w->order = ++c->callers->n_ready;
    count_ready(c);
    say_doors(c, w, true);
}

void vb_callers_serve(struct control *c, int place)
{
    struct caller *w = c->callers != NULL ? &c->callers->places[place] : NULL;
    ssize_t n;

    if (w == NULL || w->fd < 0)
        return;
    flush(c, w);
    if (w->fd < 0)
        return;
    n = recv(w->fd, w->in + w->have, sizeof(w->in) - w->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(c, w);
        return;
    }
    w->have += (size_t)n;
    if (w->have == sizeof(w->in))
        take_frame(c, w);
}

uint64_t vb_callers_work(struct control *c, uint64_t now)
{
    uint64_t due, wake = UINT64_MAX;
    struct caller *w;
    int i;

    for (i = 0; c->callers != NULL && i < VB_CALLERS_MAX; i++) {
        w = &c->callers->places[i];
        if (w->fd < 0)
            continue;
        if (!w->ready && now >= w->since_ns + vb_control_patient(c, PREPARE_NS)) {
            drop(c, w);
            continue;
        }
        if (w->ready && now >= w->said_ns + SAY_NS)
            say_doors(c, w, true);
        due = w->ready ? w->said_ns + SAY_NS : w->since_ns + vb_control_patient(c, PREPARE_NS);
        wake = w->fd >= 0 && due < wake ? due : wake;
    }
    return wake;
}

bool vb_callers_have_output(const struct control *c)
{
    int i;

    for (i = 0; c->callers != NULL && i < VB_CALLERS_MAX; i++)
        if (c->callers->places[i].fd >= 0 && c->callers->places[i].leaves)
            return true;
    return false;
}

void vb_callers_free(struct control *c)
{
    int i;

    if (c->callers == NULL)
        return;
    for (i = 0; i < VB_CALLERS_MAX; i++)
        drop(c, &c->callers->places[i]);
    free(c->callers->job);
    free(c->callers);
    c->callers = NULL;
}

/* ---- what the group calls -------------------------------------------------------------------- */

static struct callers *callers_alloc(void)
{
    struct callers *all = calloc(1, sizeof(*all));
    int i;

    for (i = 0; all != NULL && i < VB_CALLERS_MAX; i++)
        all->places[i].fd = -1;
    return all;
}

/* Nobody is let in any more. */
static void close_to_callers(struct control *c)
{
    int i;

    if (c->callers == NULL && (c->callers = callers_alloc()) == NULL)
        return;
    c->callers->open = false;
    for (i = 0; i < VB_CALLERS_MAX; i++)
        if (c->callers->places[i].fd >= 0 && !c->callers->places[i].leaves)
            turn_away(c, &c->callers->places[i], "the job does not take more ranks now");
}

static vb_status open_to_callers(struct control *c, const void *job, size_t len, int most,
                                 const char *root)
{
    unsigned char *copy = malloc(len);

    if (copy != NULL && c->callers == NULL)
        c->callers = callers_alloc();
    if (copy == NULL || c->callers == NULL) {
        free(copy);
        return vb_err_sys("no memory for the text of the job");
    }
    memcpy(copy, job, len);
    free(c->callers->job);
    c->callers->job = copy;
    c->callers->job_len = len;
    c->callers->most = most;
    c->callers->open = true;
    snprintf(c->callers->root, sizeof(c->callers->root), "%s", root);
    return VB_OK;
}

vb_status vb_control_let_in(struct control *c, const void *job, size_t len_bytes, int most,
                            const char *root)
{
    vb_status st = VB_OK;

    pthread_mutex_lock(&c->lock);
    if (job != NULL)
        st = open_to_callers(c, job, len_bytes, most, root);
    else
        close_to_callers(c);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return st;
}

int vb_control_callers(const struct control *c)
{
    return atomic_load_explicit(&c->n_callers, memory_order_relaxed);
}

/* Returns the caller that has been ready for longest. */
static struct caller *find_ready(struct control *c)
{
    struct caller *w, *first = NULL;
    int i;

    for (i = 0; c->callers != NULL && i < VB_CALLERS_MAX; i++) {
        w = &c->callers->places[i];
        if (w->fd >= 0 && w->ready && (first == NULL || w->order < first->order))
            first = w;
    }
    return first;
}

vb_status vb_control_invite(struct control *c, const struct vb_invitation *inv)
{
    unsigned char bytes[WIRE_INVITE_BYTES];
    struct caller *w;

    vb_wire_invite_encode(inv, bytes);
    pthread_mutex_lock(&c->lock);
    w = find_ready(c);
    if (w != NULL) {
        w->ready = false;
        w->leaves = true;
        count_ready(c);
        say(c, w, WIRE_INVITE, bytes, sizeof(bytes));
    }
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return w != NULL ? VB_OK : VB_AGAIN;
}

vb_status vb_control_turn_away(struct control *c, const char *why)
{
    struct caller *w;

    pthread_mutex_lock(&c->lock);
    w = find_ready(c);
    if (w != NULL)
        turn_away(c, w, why);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return w != NULL ? VB_OK : VB_AGAIN;
}

/* ---- the socket of an earlier group ---------------------------------------------------------- */

int vb_control_door_fd(struct control *c)
{
    const struct door *door;
    int fd;

    pthread_mutex_lock(&c->lock);
    door = &c->doors[c->doors[DOOR_EARLIER].listen_fd >= 0 ? DOOR_EARLIER : DOOR_TCP];
    fd = fcntl(door->listen_fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&c->lock);
    return fd;
}

vb_status vb_control_add_door(struct control *c, int listen_fd)
{
    struct door *door = &c->doors[DOOR_EARLIER];
    vb_status st = VB_OK;

    pthread_mutex_lock(&c->lock);
    if (door->listen_fd >= 0)
        close(listen_fd);
    else if (!vb_door_open(door, listen_fd, 0))
        st = vb_err_sys("no memory for callers");
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return st;
}
