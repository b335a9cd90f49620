/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <stdlib.h>

#define NOW 1u      /* inputs come at this time ... */
#define LATER 1000u /* ... and timers fire later, at the actions of their own */

bool world_is_alive(const struct world *w, int rank)
{
    return (w->alive >> rank & 1) != 0;
}

static bool is_cut(const struct world *w, int a, int b)
{
    return (w->cut[a] >> b & 1) != 0;
}

static void fail(struct world *w, const char *why)
{
    if (w->wrong == NULL)
        w->wrong = why;
}

static uint32_t bits(const struct view_set *set)
{
    return (uint32_t)set->words[0];
}

/* Tells views apart. */
static uint32_t view_id(const struct view *v)
{
    return bits(&v->members) | v->epoch << 8 | (uint32_t)v->step << 16 | v->holder << 24;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool same_message(const struct view_message *a, const struct view_message *b)
{
    return a->kind == b->kind && a->term == b->term && a->step == b->step &&
           view_id(&a->view) == view_id(&b->view) && a->view.term == b->view.term &&
           view_id(&a->value) == view_id(&b->value) && a->value.term == b->value.term &&
           view_equal(&a->suspects, &b->suspects) && view_equal(&a->proved, &b->proved);
}

static int pair_of(const struct packet *p)
{
    return p->from * WORLD_RANKS + p->to;
}

static void drop_packet(struct world *w, int i)
{
    memmove(&w->packets[i], &w->packets[i + 1],
            (size_t)(w->n_packets - i - 1) * sizeof(w->packets[0]));
    w->n_packets--;
}

/* A message that repeats the one before it changes nothing, so it is left out. */
static void push(struct world *w, int from, int to, const struct view_message *message)
{
    struct packet p = {.from = (unsigned char)from, .to = (unsigned char)to, .message = *message};
    int i;

    if (!world_is_alive(w, to) || is_cut(w, from, to))
        return;
    for (i = w->n_packets; i > 0 && pair_of(&w->packets[i - 1]) > pair_of(&p); i--)
        ;
    if (i > 0 && pair_of(&w->packets[i - 1]) == pair_of(&p) &&
        same_message(&w->packets[i - 1].message, message))
        return;
    if (w->n_packets == WORLD_PACKETS) {
        fail(w, "more messages are under way than the explorer has room for");
        return;
    }
    memmove(&w->packets[i + 1], &w->packets[i], (size_t)(w->n_packets - i) * sizeof(p));
    w->packets[i] = p;
    w->n_packets++;
}

static void drop_to(struct world *w, int rank)
{
    int i;

    for (i = w->n_packets - 1; i >= 0; i--)
        if (w->packets[i].to == rank)
            drop_packet(w, i);
}

/* Nobody sees the state of a rank that has ended. */
static void die(struct world *w, int rank)
{
    struct view_opts opts = w->m[rank].opts;

    w->alive &= (unsigned char)~(1u << rank);
    drop_to(w, rank);
    memset(&w->m[rank], 0, sizeof(w->m[rank]));
    w->m[rank].opts = opts;
    memset(w->views[rank], 0, sizeof(w->views[rank]));
    memset(w->under[rank], 0, sizeof(w->under[rank]));
}

static void send_all(struct world *w, int rank, const struct view_out *out, int upto)
{
    int i, to;

    w->sent = 0;
    for (i = 0; i < out->n; i++)
        for (to = 0; to < w->left.ranks; to++)
            if (view_has(&out->sends[i].to, to) && (upto == 0 || w->sent < upto)) {
                push(w, rank, to, &out->sends[i].message);
                w->sent++;
            }
    if (upto != 0) {
        w->left.crashes--;
        die(w, rank);
    }
}

/* ---- what an observer checks ----------------------------------------------------------------- */

/* Ranks that live never had different views in one epoch. */
static void check_views(struct world *w)
{
    int x, y, e;

    for (x = 0; x < w->left.ranks; x++)
        for (y = x + 1; y < w->left.ranks; y++)
            for (e = 0; e < WORLD_EPOCHS; e++)
                if (world_is_alive(w, x) && world_is_alive(w, y) && w->views[x][e] != 0 &&
                    w->views[y][e] != 0 && w->views[x][e] != w->views[y][e])
                    fail(w, "two ranks live in different views of one epoch");
}

/* Members that have committed equally many steps have computed them in the same views. */
static void check_steps(struct world *w)
{
    int x, y;
    uint64_t s;

    for (x = 0; x < w->left.ranks; x++)
        for (y = x + 1; y < w->left.ranks; y++) {
            if (!world_is_alive(w, x) || !world_is_alive(w, y) || w->m[x].status != VIEW_GOING ||
                w->m[y].status != VIEW_GOING || w->m[x].view.epoch != w->m[y].view.epoch)
                continue;
            for (s = 1; s <= w->m[x].step && s <= w->m[y].step; s++)
                if (w->under[x][s] != w->under[y][s])
                    fail(w, "two members have applied different steps of one number");
        }
}

static void check_install(struct world *w, int rank)
{
    const struct view_machine *m = &w->m[rank];

    if (m->view.step < m->step)
        fail(w, "the agreed step is below one that a member has committed");
    if (m->view.step > m->step + 1)
        fail(w, "the agreed step is two above that of a member");
    if (!view_empty(&m->suspects) || !view_has(&m->view.members, rank))
        fail(w, "a rank goes on in a view without itself, or with a suspect");
}

/* A rank that goes on and is not behind gives its gradient for the next step at once. Peers may
 * take it even after the rank has ended. */
static void give(struct world *w, int rank)
{
    const struct view_machine *m = &w->m[rank];

    if (m->status != VIEW_GOING || m->step < m->view.step)
        return;
    w->gave_epoch[rank] = (unsigned char)m->view.epoch;
    w->gave_step[rank] = (unsigned char)(m->step + 1);
}

static void observe(struct world *w, int rank, const struct view_out *out)
{
    struct view_machine *m = &w->m[rank];

    if (m->view.epoch >= WORLD_EPOCHS) {
        fail(w, "more epochs than the explorer has room for");
        return;
    }
    w->views[rank][m->view.epoch] = view_id(&m->view);
    if ((out->events & VIEW_EVENT_INSTALL) != 0)
        check_install(w, rank);
    m->retry_due = m->retry_due == 0 ? 0 : LATER;
    m->end_due = m->end_due == 0 ? 0 : LATER;
    give(w, rank);
}

static void finish(struct world *w, int rank, const struct view_out *out, int upto)
{
    observe(w, rank, out);
    check_views(w);
    send_all(w, rank, out, upto);
    if (world_is_alive(w, rank) && w->m[rank].status == VIEW_ENDED)
        die(w, rank);
    check_steps(w);
}

/* ---- actions --------------------------------------------------------------------------------- */

void world_init(struct world *w, const struct limits *limits)
{
    struct view_opts opts = {.world = limits->ranks, .retry_ns = LATER, .grace_ns = LATER};
    int i;

    memset(w, 0, sizeof(*w));
    w->left = *limits;
    for (i = 0; i < limits->ranks; i++) {
        opts.rank = i;
        vb_view_init(&w->m[i], &opts);
        w->alive |= (unsigned char)(1u << i);
        w->views[i][1] = view_id(&w->m[i].view);
        give(w, i);
    }
}

void world_copy(struct world *to, const struct world *from)
{
    size_t n = (size_t)from->n_packets;

    memcpy(to, from, offsetof(struct world, packets));
    memcpy(to->packets, from->packets, n * sizeof(to->packets[0]));
    memcpy(to->views, from->views, sizeof(*to) - offsetof(struct world, views));
}

/* b has given a up, or goes on without it, so it has closed the connection. */
static bool has_closed(const struct world *w, int b, int a)
{
    const struct view_machine *m = &w->m[b];

    return !world_is_alive(w, b) || is_cut(w, a, b) || view_has(&m->suspects, a) ||
           !view_has(&m->view.members, a);
}

static void deliver(struct world *w, int i, int upto)
{
    struct packet p = w->packets[i];
    struct view_out out;

    drop_packet(w, i);
    if (!vb_view_take(&w->m[p.to], p.from, &p.message, NOW, &out))
        fail(w, "a rank refuses a message of a correct rank");
    finish(w, p.to, &out, upto);
}

static void suspect(struct world *w, int a, int b, enum view_how how, int upto)
{
    struct view_out out;

    if (how == VIEW_LOST && !has_closed(w, b, a))
        w->left.wrong--;
    vb_view_suspect(&w->m[a], b, how, NOW, &out);
    finish(w, a, &out, upto);
}

static void tick(struct world *w, int rank, bool grace, int upto)
{
    struct view_out out;

    if (grace)
        w->m[rank].end_due = NOW;
    else
        w->m[rank].retry_due = 0;
    vb_view_tick(&w->m[rank], NOW, &out);
    finish(w, rank, &out, upto);
}

static void crash(struct world *w, int rank, bool lose_sent)
{
    int i;

    w->left.crashes--;
    die(w, rank);
    for (i = w->n_packets - 1; i >= 0 && lose_sent; i--)
        if (w->packets[i].from == rank)
            drop_packet(w, i);
}

static void cut(struct world *w, unsigned part)
{
    int i;

    w->left.cuts--;
    for (i = 0; i < w->left.ranks; i++)
        w->cut[i] |= (unsigned char)((part >> i & 1) != 0 ? ~part : part);
    for (i = w->n_packets - 1; i >= 0; i--)
        if (is_cut(w, w->packets[i].from, w->packets[i].to))
            drop_packet(w, i);
}

static void commit(struct world *w, int rank, bool copy)
{
    struct view_machine *m = &w->m[rank];
    struct view_out none = {.events = 0};
    uint64_t step = m->step + 1;
    bool going = m->status == VIEW_GOING, committed = vb_view_commit(m, step);

    if (going && !committed)
        fail(w, "a step that all have computed is refused");
    if (committed && copy)
        memcpy(w->under[rank], w->under[m->view.holder], sizeof(w->under[rank]));
    else if (committed)
        w->under[rank][step] = view_id(&m->view);
    finish(w, rank, &none, 0);
}

static void swap(struct world *w, int i)
{
    struct packet p = w->packets[i];

    w->left.swaps--;
    w->packets[i] = w->packets[i - 1];
    w->packets[i - 1] = p;
}

void world_apply(struct world *w, struct action t)
{
    w->sent = 0;
    switch (t.kind) {
    case ACT_DELIVER:
        deliver(w, t.a, t.sends);
        break;
    case ACT_LOSE:
        w->left.losses--;
        drop_packet(w, t.a);
        break;
    case ACT_SWAP:
        swap(w, t.a);
        break;
    case ACT_SUSPECT:
    case ACT_PROVE:
        suspect(w, t.a, t.b, t.kind == ACT_PROVE ? VIEW_REAPED : VIEW_LOST, t.sends);
        break;
    case ACT_CRASH:
        crash(w, t.a, t.b != 0);
        break;
    case ACT_CUT:
        cut(w, t.a);
        break;
    case ACT_RETRY:
        w->left.retries--;
        tick(w, t.a, false, t.sends);
        break;
    case ACT_GRACE:
        tick(w, t.a, true, t.sends);
        break;
    default:
        commit(w, t.a, t.kind == ACT_COPY);
        break;
    }
}

static bool is_in(unsigned char set, int rank)
{
    return set == 0 || (set >> rank & 1) != 0;
}

bool world_may_crash(const struct world *w, int rank)
{
    return w->left.crashes > 0 && is_in(w->left.crash, rank);
}

/* ---- what can happen ------------------------------------------------------------------------- */

struct list {
    struct action *out;
    int n;
};

static void add(struct list *list, enum action_kind kind, int a, int b)
{
    if (list->n == WORLD_ACTIONS)
        abort();
    list->out[list->n++] =
        (struct action){.kind = (unsigned char)kind, .a = (unsigned char)a, .b = (unsigned char)b};
}

static bool is_first(const struct world *w, int i)
{
    return i == 0 || pair_of(&w->packets[i - 1]) != pair_of(&w->packets[i]);
}

static void add_packets(const struct world *w, struct list *list)
{
    int i;

    for (i = 0; i < w->n_packets; i++) {
        if (is_first(w, i))
            add(list, ACT_DELIVER, i, 0);
        if (w->left.losses > 0)
            add(list, ACT_LOSE, i, 0);
        if (w->left.swaps > 0 && !is_first(w, i))
            add(list, ACT_SWAP, i, 0);
    }
}

static void add_suspicions(const struct world *w, int a, struct list *list)
{
    const struct view_machine *m = &w->m[a];
    int b;

    for (b = 0; b < w->left.ranks; b++) {
        if (b == a || !view_has(&m->view.members, b))
            continue;
        if (!view_has(&m->suspects, b) &&
            (has_closed(w, b, a) ||
             (w->left.wrong > 0 && is_in(w->left.accuse, a) && is_in(w->left.accused, b))))
            add(list, ACT_SUSPECT, a, b);
        if (!world_is_alive(w, b) && !view_has(&m->proved, b))
            add(list, ACT_PROVE, a, b);
    }
}

/* All members have given their gradients for the next step of this rank. It tries to commit also if
 * it has stopped, as a thread may that does not know yet. */
static bool can_commit(const struct world *w, int rank)
{
    const struct view_machine *m = &w->m[rank];
    int i;

    if (m->step < m->view.step || m->step >= (uint64_t)w->left.steps)
        return false;
    for (i = 0; i < w->left.ranks; i++)
        if (view_has(&m->view.members, i) &&
            (w->gave_epoch[i] != m->view.epoch || w->gave_step[i] <= m->step))
            return false;
    return true;
}

/* The step that a rank lacks is still with its holder. */
static bool can_copy(const struct world *w, int rank)
{
    const struct view_machine *m = &w->m[rank], *holder = &w->m[m->view.holder];

    return m->status == VIEW_GOING && m->step < m->view.step &&
           world_is_alive(w, (int)m->view.holder) && holder->step == m->view.step &&
           holder->view.epoch == m->view.epoch && !is_cut(w, rank, (int)m->view.holder);
}

static void add_rank(const struct world *w, int a, struct list *list)
{
    const struct view_machine *m = &w->m[a];

    add_suspicions(w, a, list);
    if (world_may_crash(w, a)) {
        add(list, ACT_CRASH, a, 0);
        add(list, ACT_CRASH, a, 1);
    }
    if (w->left.retries > 0 && m->status == VIEW_STOPPED)
        add(list, ACT_RETRY, a, 0);
    if (m->end_due != 0)
        add(list, ACT_GRACE, a, 0);
    if (can_commit(w, a))
        add(list, ACT_COMMIT, a, 0);
    if (can_copy(w, a))
        add(list, ACT_COPY, a, 0);
}

int world_actions(const struct world *w, struct action out[WORLD_ACTIONS])
{
    struct list list = {.out = out};
    int i;

    add_packets(w, &list);
    for (i = 0; i < w->left.ranks; i++)
        if (world_is_alive(w, i))
            add_rank(w, i, &list);
    for (i = 1; i < 1 << (w->left.ranks - 1) && w->left.cuts > 0; i++)
        add(&list, ACT_CUT, i << 1, 0); /* the part without rank 0 */
    return list.n;
}

bool world_is_settled(const struct world *w)
{
    int i;

    for (i = 0; i < w->left.ranks; i++)
        if (world_is_alive(w, i) &&
            (w->m[i].status != VIEW_GOING || bits(&w->m[i].view.members) != w->alive))
            return false;
    return true;
}

/* ---- states ---------------------------------------------------------------------------------- */

static unsigned char *put_view(unsigned char *p, const struct view *v)
{
    *p++ = (unsigned char)v->epoch;
    *p++ = (unsigned char)v->holder;
    *p++ = (unsigned char)v->term;
    *p++ = (unsigned char)v->step;
    *p++ = (unsigned char)bits(&v->members);
    return p;
}

static unsigned char *put_phase(unsigned char *p, const struct view_machine *m)
{
    int i;

    *p++ = (unsigned char)m->phase;
    if (m->phase == VIEW_PHASE_NONE)
        return p;
    p = put_view(p, &m->value);
    *p++ = (unsigned char)bits(&m->promisers);
    if (m->phase == VIEW_PHASE_PROPOSE)
        *p++ = (unsigned char)bits(&m->accepters);
    for (i = 0; i < m->opts.world && m->phase == VIEW_PHASE_PREPARE; i++)
        *p++ = view_has(&m->promisers, i) ? (unsigned char)m->steps[i] : 0;
    return p;
}

static unsigned char *put_machine(unsigned char *p, const struct view_machine *m)
{
    *p++ = (unsigned char)m->status;
    *p++ = (unsigned char)m->promised;
    *p++ = (unsigned char)m->step;
    *p++ = (unsigned char)bits(&m->suspects);
    *p++ = (unsigned char)bits(&m->proved);
    *p++ = (unsigned char)((m->retry_due != 0) | (m->end_due != 0) << 1);
    p = put_view(p, &m->view);
    p = put_view(p, &m->accepted);
    return put_phase(p, m);
}

static unsigned char *put_packet(unsigned char *p, const struct packet *packet)
{
    const struct view_message *m = &packet->message;

    *p++ = (unsigned char)pair_of(packet);
    *p++ = (unsigned char)m->kind;
    *p++ = (unsigned char)m->term;
    *p++ = (unsigned char)m->step;
    *p++ = (unsigned char)bits(&m->suspects);
    *p++ = (unsigned char)bits(&m->proved);
    p = put_view(p, &m->view);
    return put_view(p, &m->value);
}

static unsigned char *put_limits(unsigned char *p, const struct limits *left)
{
    *p++ = (unsigned char)left->crashes;
    *p++ = (unsigned char)left->wrong;
    *p++ = (unsigned char)left->losses;
    *p++ = (unsigned char)left->swaps;
    *p++ = (unsigned char)left->cuts;
    *p++ = (unsigned char)left->retries;
    return p;
}

uint64_t world_hash(const struct world *w, bool without_limits)
{
    unsigned char bytes[WORLD_RANKS * 48 + WORLD_PACKETS * 16 + 64], *p = bytes;
    size_t ghosts = offsetof(struct world, sent) - offsetof(struct world, views);
    uint64_t hash;
    int i;

    *p++ = w->alive;
    for (i = 0; i < w->left.ranks; i++) {
        *p++ = w->cut[i];
        if (world_is_alive(w, i))
            p = put_machine(p, &w->m[i]);
    }
    for (i = 0; i < w->n_packets; i++)
        p = put_packet(p, &w->packets[i]);
    if (!without_limits)
        p = put_limits(p, &w->left);
    hash = vb_hash64(0, bytes, (size_t)(p - bytes));
    return vb_hash64(hash, &w->views, ghosts);
}

void world_print(const struct world *before, struct action t)
{
    static const char *const names[] = {"deliver",    "lose",   "overtake", "suspect",
                                        "prove",      "crash",  "cut",      "retry",
                                        "grace over", "commit", "copy"};
    static const char *const kinds[] = {"",        "report", "prepare", "promise",
                                        "propose", "accept", "tell"};
    const struct packet *p = &before->packets[t.a];

    if (t.kind <= ACT_SWAP)
        printf("  %s %s of term %llu, epoch %u, from %d to %d", names[t.kind],
               kinds[p->message.kind], (unsigned long long)p->message.term, p->message.view.epoch,
               p->from, p->to);
    else if (t.kind == ACT_CUT)
        printf("  cut 0x%x off", t.a);
    else if (t.kind == ACT_SUSPECT || t.kind == ACT_PROVE)
        printf("  rank %d: %s rank %d", t.a, names[t.kind], t.b);
    else
        printf("  rank %d: %s", t.a, names[t.kind]);
    printf(t.sends == 0 ? "\n" : "; it crashes after %d messages\n", t.sends);
}
