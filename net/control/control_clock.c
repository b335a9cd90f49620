/* SPDX-License-Identifier: MIT
 *
 * Rank 0, or the rank that leads when it is gone, compares its clock with those of all members. It
 * asks for the time about once a second, a few times in a row because a machine that is busy
 * answers late, and keeps the exchange with the shortest round trip of each interval.
 * record/clock_fit.c makes a fit of them.
 */
#include "net/control/control_priv.h"

#include <stdlib.h>
#include <string.h>

#define EVERY_NS 1000000000u
#define BURST_FIRST 8 /* questions in a row: the first and the last time, and every time */
#define BURST 3
#define INTERVAL_NS 500000000u

/* ---- lists ----------------------------------------------------------------------------------- */

static uint64_t round_trip(const struct vb_clock_exchange *x)
{
    uint64_t away = x->returned_ns - x->asked_ns, there = x->answered_ns - x->received_ns;

    return away > there ? away - there : 0;
}

static void add(struct clock_peer *p, const struct vb_clock_exchange *x)
{
    struct vb_clock_exchange *last = p->n > 0 ? &p->list[p->n - 1] : NULL;

    if (last == NULL || last->asked_ns / p->interval_ns != x->asked_ns / p->interval_ns)
        p->list[p->n++] = *x;
    else if (round_trip(x) < round_trip(last))
        *last = *x;
}

/* If the list is full, intervals get twice as long. */
void vb_clock_add(struct clock_peer *p, const struct vb_clock_exchange *x)
{
    int i, n;

    if (p->interval_ns == 0)
        p->interval_ns = INTERVAL_NS;
    while (p->n == VB_CLOCK_EXCHANGES) {
        n = p->n;
        p->n = 0;
        p->interval_ns *= 2;
        for (i = 0; i < n; i++)
            add(p, &p->list[i]); /* never overtakes i */
    }
    add(p, x);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool is_asked(const struct control *c, int rank)
{
    const struct conn *conn = &c->conns[rank];

    return rank != c->opts.rank && rank != c->joining && conn->fd >= 0 &&
           conn->slot == SLOT_TAKEN && !conn->end.left;
}

/* Returns the list of the rank that has the slot now; NULL: there is no memory. */
static struct clock_peer *peer_of(struct control *c, int rank)
{
    struct clock_peer **p = &c->clocks.peers[rank];

    if (*p == NULL)
        *p = calloc(1, sizeof(**p));
    if (*p != NULL && (*p)->epoch != c->conns[rank].epoch) {
        memset(*p, 0, sizeof(**p));
        (*p)->epoch = c->conns[rank].epoch;
    }
    return *p;
}

static void ask(struct control *c, int rank, struct clock_peer *p)
{
    unsigned char bytes[WIRE_TIME_ASK_BYTES];

    p->asked_ns = vb_record_clock_ns();
    vb_wire_u64_encode(p->asked_ns, bytes);
    p->waits = vb_conn_send(c, rank, WIRE_TIME_ASK, bytes, sizeof(bytes)) == VB_OK;
}

static void ask_all(struct control *c)
{
    struct clock_peer *p;
    int i;

    for (i = 0; i < c->opts.slots; i++) {
        p = is_asked(c, i) ? peer_of(c, i) : NULL;
        if (p == NULL || p->waits)
            continue;
        p->burst = (p->n == 0 ? BURST_FIRST : BURST) - 1;
        ask(c, i, p);
    }
}

uint64_t vb_clock_due(struct control *c, uint64_t now)
{
    if (c->clocks.peers == NULL)
        return UINT64_MAX;
    if (now >= c->clocks.next_ns) {
        c->clocks.next_ns = now + EVERY_NS;
        ask_all(c);
    }
    return c->clocks.next_ns;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* The answer is never before the question, whatever the clock does. */
static void answer(struct control *c, int rank)
{
    struct vb_clock_exchange x = {.received_ns = vb_record_clock_ns()};
    unsigned char bytes[WIRE_TIME_BYTES];

    x.asked_ns = vb_wire_u64_decode(c->conns[rank].in.payload);
    x.answered_ns = vb_record_clock_ns();
    if (x.answered_ns < x.received_ns)
        x.answered_ns = x.received_ns;
    vb_wire_time_encode(&x, bytes);
    (void)vb_conn_send(c, rank, WIRE_TIME, bytes, sizeof(bytes));
}

static bool take_time(struct control *c, int rank)
{
    struct vb_clock_exchange x = {.returned_ns = vb_record_clock_ns()};
    struct clock_peer *p = c->clocks.peers != NULL ? c->clocks.peers[rank] : NULL;
    uint64_t returned = x.returned_ns;

    if (p == NULL || !p->waits || p->epoch != c->conns[rank].epoch ||
        !vb_wire_time_decode(c->conns[rank].in.payload, &x) || x.asked_ns != p->asked_ns)
        return false;
    x.returned_ns = returned;
    p->waits = false;
    if (returned >= x.asked_ns) /* the clock of this rank may have jumped */
        vb_clock_add(p, &x);
    if (p->burst-- > 0)
        ask(c, rank, p);
    return true;
}

bool vb_clock_frame(struct control *c, int rank)
{
    if (c->conns[rank].in.type == WIRE_TIME)
        return (c->opts.rank == 0 || c->opts.elastic) && take_time(c, rank);
    if (rank != 0 && !c->opts.elastic)
        return false;
    answer(c, rank);
    return true;
}

/* ---- what the group calls -------------------------------------------------------------------- */

vb_status vb_control_compare_clocks(struct control *c)
{
    bool ok;

    pthread_mutex_lock(&c->lock);
    if (c->clocks.peers == NULL)
        c->clocks.peers = calloc((size_t)c->opts.slots, sizeof(void *));
    c->clocks.next_ns = 0;
    ok = c->clocks.peers != NULL;
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return ok ? VB_OK : vb_err_sys("calloc");
}

static bool any_asked(struct control *c)
{
    int i;

    for (i = 0; i < c->opts.slots; i++)
        if (is_asked(c, i) && c->clocks.peers[i] != NULL && c->clocks.peers[i]->waits)
            return true;
    return false;
}

void vb_control_compare_last(struct control *c, uint64_t deadline)
{
    pthread_mutex_lock(&c->lock);
    if (c->clocks.peers != NULL) {
        c->clocks.next_ns = vb_clock_ns() + EVERY_NS;
        ask_all(c);
        while (any_asked(c) && atomic_load_explicit(&c->failed, memory_order_relaxed) == VB_OK &&
               vb_control_wait_change(c, deadline))
            ;
    }
    pthread_mutex_unlock(&c->lock);
}

int vb_control_exchanges(struct control *c, int rank,
                         struct vb_clock_exchange out[VB_CLOCK_EXCHANGES])
{
    const struct clock_peer *p;
    int n = 0;

    pthread_mutex_lock(&c->lock);
    p = c->clocks.peers != NULL ? c->clocks.peers[rank] : NULL;
    if (p != NULL) {
        n = p->n;
        memcpy(out, p->list, (size_t)n * sizeof(*out));
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

void vb_clock_free(struct control *c)
{
    int i;

    for (i = 0; c->clocks.peers != NULL && i < c->opts.slots; i++)
        free(c->clocks.peers[i]);
    free(c->clocks.peers);
}
