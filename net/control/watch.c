/* SPDX-License-Identifier: MIT
 *
 * How ranks find out that a peer is gone.
 *
 * - A process that ends closes its connections. Nothing here is needed for that.
 * - A host or a link that dies: the kernel probes connections between hosts (vb_sock_keepalive())
 *   and ends them, without waking any thread.
 * - A process that no longer runs (stopped, stuck): every rank *watches* the next two members in
 *   rank order, wrapping around, and asks them for heartbeats. So the number of messages grows with
 *   the number of ranks, not with its square. Whoever is asked answers, whatever it knows of the
 *   members, so ranks need not agree on who they are. Until all pairs are connected, rank 0 also
 *   watches all others, and they watch rank 0; later rank 0 watches the rank that joins.
 *
 * A watcher that has not heard a peer for two thirds of silent_ms *accuses* it: it tells all
 * members, and every member asks the accused itself. Whoever has no answer after the last third
 * drops the peer, all with the same reason. So a peer that lives is dropped by nobody, unless it
 * answers nobody: the word of one rank, which may have been paused itself, is not enough.
 *
 * On one host the kernel knows better: a rank of this host whose threads run, wait for a cpu or
 * wait for a disk is busy, and is not dropped, however long it is silent. --timeout limits what
 * others wait for it.
 *
 * A slow link is no failure. Data that moves counts as an answer, and limits are longer where the
 * queues of the link delay answers.
 *
 * times.c has all times.
 */
#include "net/control/control_priv.h"

#include <errno.h>

#define MS_NS 1000000ull

/* Two, so that a stopped rank is found although one of its watchers is stopped too. */
#define WATCHED 2

/* The kernel measures the time to an answer, and watchers the time between answers. */
#define KERNEL_TIMES 2

/* A heartbeat that is older, in times of silence, does not tell what a rank was doing. */
#define OLD_TIMES 3

static uint64_t silent_ns(const struct control *c)
{
    return (uint64_t)c->opts.times.silent_ms * MS_NS;
}

static uint64_t accuse_ns(const struct control *c)
{
    return (uint64_t)c->opts.times.accuse_ms * MS_NS;
}

/* How long an accused peer has to answer. */
static uint64_t last_ns(const struct control *c)
{
    return silent_ns(c) - accuse_ns(c);
}

static bool is_alive(const struct conn *conn)
{
    return conn->fd >= 0 && conn->slot == SLOT_TAKEN && !conn->end.left;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* A peer that was not watched before gets the whole time to answer. */
static void choose_watched(struct control *c, uint64_t now)
{
    int k, i, n = 0;
    bool watch;

    for (k = 1; k < c->opts.slots; k++) {
        struct conn *conn;

        i = (c->opts.rank + k) % c->opts.slots;
        conn = &c->conns[i];
        watch = is_alive(conn) &&
                (n < WATCHED || i == c->joining || (!c->complete && (c->opts.rank == 0 || i == 0)));
        n += is_alive(conn);
        if (watch && !conn->beat.watched)
            conn->beat.heard_ns = now;
        conn->beat.watched = watch;
    }
}

static void ask_all(struct control *c, uint64_t now)
{
    int i;

    choose_watched(c, now);
    for (i = 0; i < c->opts.slots; i++)
        if (c->conns[i].beat.watched || c->conns[i].beat.accused_ns != 0)
            (void)vb_conn_send(c, i, WIRE_ASK, NULL, 0);
}

/* Looks at what this rank does. */
static struct wire_beat *look_at_work(struct control *c, uint64_t now)
{
    struct own_work *w = &c->work;
    uint64_t step = atomic_load_explicit(&w->step, memory_order_relaxed);
    uint32_t activity = atomic_load_explicit(&w->activity, memory_order_relaxed);
    uint32_t waits_for = atomic_load_explicit(&w->waits_for, memory_order_relaxed);

    if (w->since_ns == 0 || step != w->seen.step || activity != w->seen.activity ||
        waits_for != w->seen.waits_for)
        w->since_ns = now;
    w->seen.step = step;
    w->seen.activity = activity;
    w->seen.waits_for = waits_for;
    w->seen.same_ms = (uint32_t)((now - w->since_ns) / MS_NS);
    return &w->seen;
}

/* Counts the waits for pages since the last beat. */
static void count_pages(struct own_work *w)
{
    uint64_t n = vb_process_page_waits();

    w->seen.page_waits = (uint32_t)(n - w->page_waits);
    w->page_waits = n;
}

static void answer(struct control *c, int rank)
{
    unsigned char bytes[WIRE_BEAT_BYTES];

    vb_wire_beat_encode(look_at_work(c, vb_clock_ns()), bytes);
    (void)vb_conn_send(c, rank, WIRE_BEAT, bytes, sizeof(bytes));
}

/* ---- silence --------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The time in which this thread itself did not run (the machine was paused, say) is not silence. */
static void forgive_own_absence(struct control *c, uint64_t now)
{
    uint64_t beat = (uint64_t)c->opts.times.beat_ms * MS_NS, away = now - c->looked_ns;
    int i;

    for (i = 0; c->looked_ns != 0 && away > 2 * beat && i < c->opts.slots; i++) {
        struct conn_beat *b = &c->conns[i].beat;

        b->heard_ns = earlier(b->heard_ns + away - beat, now);
        if (b->accused_ns != 0)
            b->accused_ns = earlier(b->accused_ns + away - beat, now);
    }
    c->looked_ns = now;
}

/* How much later an answer may come: it, or the question, may be lost once in a full queue. */
static uint64_t slack_ns(const struct conn *conn)
{
    return conn->beat.kernel_ms == 0 ? 0 : 3 * vb_sock_round_trip_ns(conn->fd);
}

/* Chooses how long the kernel waits for a peer on another host. */
static void set_kernel_limit(const struct control *c, struct conn *conn, uint64_t now)
{
    int ms = c->opts.times.kernel_ms, extra_s;
    bool moving = conn->beat.data_ns != 0 && now < conn->beat.data_ns + silent_ns(c);

    if (conn->beat.kernel_ms == 0 || conn->fd < 0)
        return;
    if (conn->beat.watched || conn->beat.accused_ns != 0) {
        extra_s =
            (int)(slack_ns(conn) / (1000 * MS_NS)); /* in seconds, so that it rarely changes */
        ms += KERNEL_TIMES * 1000 * extra_s;
    }
    if (moving && ms < c->opts.times.kernel_moving_ms)
        ms = c->opts.times.kernel_moving_ms;
    if (ms != conn->beat.kernel_ms)
        vb_sock_silent_ms(conn->fd, ms);
    conn->beat.kernel_ms = ms;
}

/* Data that has come from a peer is an answer too: on a slow link heartbeats wait behind data. */
static void count_data(struct control *c, uint64_t now)
{
    struct conn_beat *beat;
    unsigned n;
    int i;

    for (i = 0; i < c->opts.slots && c->opts.heard != NULL; i++) {
        beat = &c->conns[i].beat;
        n = atomic_load_explicit(&c->opts.heard[i], memory_order_relaxed);
        if (n != beat->data)
            beat->heard_ns = beat->data_ns = now;
        beat->data = n;
        set_kernel_limit(c, &c->conns[i], now);
    }
}

static void note_accused(struct conn *conn, uint64_t now, uint32_t ms)
{
    conn->beat.accused_ns = now;
    conn->beat.accused_ms = ms;
}

static void accuse(struct control *c, int rank, uint64_t now)
{
    unsigned char frame[WIRE_SILENT_BYTES];
    struct wire_silent silent = {.rank = (uint32_t)rank,
                                 .ms = (uint32_t)((now - c->conns[rank].beat.heard_ns) / MS_NS),
                                 .last = c->conns[rank].beat.last};
    int i;

    note_accused(&c->conns[rank], now, silent.ms);
    vb_wire_silent_encode(&silent, frame);
    for (i = 0; i < c->opts.slots; i++)
        if (i != rank && is_alive(&c->conns[i]))
            (void)vb_conn_send(c, i, WIRE_SILENT, frame, sizeof(frame));
}

static void take_beat(struct conn *conn, const struct wire_beat *beat)
{
    conn->beat.last = *beat;
    conn->beat.last_ns = vb_clock_ns();
}

void vb_watch_text(const struct control *c, int rank, char out[WATCH_TEXT])
{
    const struct conn_beat *beat = &c->conns[rank].beat;
    char doing[WIRE_BEAT_TEXT] = "";

    if (vb_clock_ns() < beat->last_ns + OLD_TIMES * silent_ns(c)) /* few ranks ask this one */
        vb_wire_beat_text(&beat->last, doing);
    snprintf(out, WATCH_TEXT, doing[0] != '\0' ? ", when last heard %s" : "%s", doing);
}

/* What the kernel of this host shows of a peer. */
static enum vb_process_state kernel_shows(const struct control *c, int rank)
{
    const struct wire_info *own = &c->conns[c->opts.rank].info, *peer = &c->conns[rank].info;

    return vb_wire_info_same_host(own, peer) ? vb_process_state(&peer->process)
                                             : VB_PROCESS_UNKNOWN;
}

uint64_t vb_watch_last_sign(const struct conn *conn)
{
    return conn->beat.accused_ns != 0 ? conn->beat.accused_ns - conn->beat.accused_ms * MS_NS
                                      : vb_clock_ns();
}

static double silent_s(const struct conn *conn, uint64_t now)
{
    return conn->beat.accused_ms / 1e3 + (double)(now - conn->beat.accused_ns) / 1e9;
}

static void say_busy(struct control *c, int rank, uint64_t now)
{
    struct conn *conn = &c->conns[rank];
    char text[WATCH_TEXT];

    if (conn->beat.said_busy)
        return;
    conn->beat.said_busy = true;
    vb_watch_text(c, rank, text);
    VB_LOG_INFO("rank %d was silent for %.1f s%s; it is busy: the kernel shows that it runs or "
                "waits for a cpu or a disk",
                rank, silent_s(conn, now), text);
}

/* Drops a peer that has not answered, unless the kernel shows that it runs. */
static void lose_accused(struct control *c, int rank, uint64_t now)
{
    static const char *const states[] = {[VB_PROCESS_UNKNOWN] = "",
                                         [VB_PROCESS_SLEEPS] = " (its threads sleep)",
                                         [VB_PROCESS_STOPPED] = " (stopped)",
                                         [VB_PROCESS_ENDED] = " (ended)"};
    struct conn *conn = &c->conns[rank];
    enum vb_process_state state = kernel_shows(c, rank);
    char why[CONTROL_WHY], text[WATCH_TEXT];

    if (state == VB_PROCESS_RUNS) {
        say_busy(c, rank, now);
        return;
    }
    vb_watch_text(c, rank, text);
    snprintf(why, sizeof(why), "silent for %.1f s%s%s", silent_s(conn, now), states[state], text);
    conn->end.sign_ns = vb_watch_last_sign(conn);
    conn->beat.accused_ns = 0;
    conn->end.silent = true;
    vb_conn_lose(c, rank, why);
}

/* Returns true if somebody has accused the peer, `for_ns` ago or more, and it has not answered. */
static bool is_accused(struct conn *conn, uint64_t now, uint64_t for_ns)
{
    if (!is_alive(conn) || conn->beat.heard_ns > conn->beat.accused_ns)
        conn->beat.accused_ns = 0;
    return conn->beat.accused_ns != 0 && now >= conn->beat.accused_ns + for_ns;
}

static bool is_silent(const struct conn *conn, uint64_t now, uint64_t for_ns)
{
    return conn->beat.accused_ns == 0 && conn->beat.watched && is_alive(conn) &&
           now >= conn->beat.heard_ns + for_ns;
}

/* The answer may have come while this thread did something else. */
static void lose_unless_heard(struct control *c, int rank, uint64_t now)
{
    vb_conn_read_some(c, rank);
    if (is_accused(&c->conns[rank], now, 0))
        lose_accused(c, rank, now);
}

void vb_watch(struct control *c, uint64_t now)
{
    uint64_t accuses = accuse_ns(c), last = last_ns(c);
    int i;

    if (now < c->beat_ns)
        return;
    c->beat_ns = now + (uint64_t)c->opts.times.beat_ms * MS_NS;
    (void)look_at_work(c, now);
    count_pages(&c->work);
    forgive_own_absence(c, now);
    count_data(c, now);
    ask_all(c, now);
    for (i = 0; i < c->opts.slots; i++) {
        struct conn *conn = &c->conns[i];

        if (is_accused(conn, now, last) && is_accused(conn, now, last + slack_ns(conn)))
            lose_unless_heard(c, i, now);
        else if (is_silent(conn, now, accuses) && is_silent(conn, now, accuses + slack_ns(conn)))
            accuse(c, i, now);
    }
    if (c->opts.elastic)
        vb_membership_check(c, now);
}

/* All ranks drop an accused peer at about the same time. The first one then gives up, and the
 * others, which have not yet done so, must not take that for the reason. */
void vb_watch_confirm(struct control *c)
{
    uint64_t now = vb_clock_ns(), half = last_ns(c) / 2;
    int i;

    for (i = 0; i < c->opts.slots; i++)
        if (is_accused(&c->conns[i], now, half))
            lose_accused(c, i, now);
}

/* ---- frames and connections ------------------------------------------------------------------ */

/* An accusation of a rank that has left the group meanwhile, or whose slot has another rank by now,
 * does no harm: the former is not connected, and the latter answers. */
static bool take_silent(struct control *c, int from)
{
    uint64_t now = vb_clock_ns();
    struct wire_silent silent;
    struct conn *conn;

    if (!vb_wire_silent_decode(c->conns[from].in.payload, &silent) ||
        silent.rank >= (uint32_t)c->opts.slots || silent.rank == (uint32_t)from)
        return false;
    conn = &c->conns[silent.rank];
    if (silent.rank == (uint32_t)c->opts.rank) {
        answer(c, from);
    } else if (is_alive(conn) && !is_accused(conn, now, 0)) {
        note_accused(conn, now, silent.ms);
        if (!conn->beat.watched) /* what this rank has heard of it is old */
            take_beat(conn, &silent.last);
        (void)vb_conn_send(c, (int)silent.rank, WIRE_ASK, NULL, 0);
    }
    return true;
}

bool vb_watch_frame(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    struct wire_beat beat;

    if (conn->in.type == WIRE_SILENT)
        return take_silent(c, rank);
    if (conn->in.type == WIRE_ASK) {
        answer(c, rank);
        return true;
    }
    conn->beat.answers++;
    conn->beat.said_busy = false;
    if (!vb_wire_beat_decode(conn->in.payload, &beat))
        return false;
    take_beat(conn, &beat);
    return true;
}

void vb_watch_start(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    conn->beat = (struct conn_beat){.heard_ns = vb_clock_ns()};
    if (vb_sock_keepalive(conn->fd, c->opts.times.kernel_ms, c->opts.times.probe_ms))
        conn->beat.kernel_ms = c->opts.times.kernel_ms;
}

const char *vb_watch_broken(struct control *c, int rank, int err)
{
    char text[WATCH_TEXT];

    if (err != ETIMEDOUT && err != EHOSTUNREACH && err != ENETUNREACH)
        return "the connection failed";
    c->conns[rank].end.silent = true; /* the peer may still run */
    c->conns[rank].end.sign_ns = vb_clock_ns() - (uint64_t)c->conns[rank].beat.kernel_ms * MS_NS;
    vb_watch_text(c, rank, text);
    snprintf(c->lost_text, sizeof(c->lost_text), "silent for %.1f s%s",
             c->conns[rank].beat.kernel_ms / 1e3, text);
    return err == ETIMEDOUT ? c->lost_text : "its host cannot be reached";
}

const char *vb_watch_closed(struct control *c, int rank, bool in_frame)
{
    char text[WATCH_TEXT];

    vb_watch_text(c, rank, text);
    snprintf(c->lost_text, sizeof(c->lost_text), "the connection closed%s%s",
             in_frame ? " in the middle of a control frame" : "", text);
    return c->lost_text;
}

void vb_control_ask_all(struct control *c)
{
    int i;

    pthread_mutex_lock(&c->lock);
    for (i = 0; i < c->opts.slots; i++)
        if (is_alive(&c->conns[i]))
            (void)vb_conn_send(c, i, WIRE_ASK, NULL, 0);
    pthread_mutex_unlock(&c->lock);
}

bool vb_control_heard_since(struct control *c, int rank, uint64_t ns)
{
    bool heard;

    pthread_mutex_lock(&c->lock);
    heard = c->conns[rank].beat.frame_ns >= ns;
    pthread_mutex_unlock(&c->lock);
    return heard;
}

double vb_control_silence_s(struct control *c, int rank, struct wire_beat *beat_p)
{
    uint64_t now = vb_clock_ns(), until = now + vb_control_patient(c, 500 * MS_NS), heard;
    const struct conn *conn = &c->conns[rank];
    uint32_t answers;

    pthread_mutex_lock(&c->lock);
    answers = conn->beat.answers;
    (void)vb_conn_send(c, rank, WIRE_ASK, NULL, 0); /* most peers are not watched by this rank */
    while (conn->fd >= 0 && conn->beat.answers == answers && vb_control_wait_change(c, until))
        ;
    heard = conn->beat.heard_ns;
    *beat_p = conn->beat.last;
    pthread_mutex_unlock(&c->lock);
    return now > heard ? (double)(now - heard) / 1e9 : 0;
}
