/* SPDX-License-Identifier: MIT
 *
 * A server: one thread that takes in pushes in the order of their arrival, applies them, and tells
 * the workers. Notes are queued by their handler; everything else happens between two looks at the
 * queue. What a worker is to the server is its seat.
 *
 * Tickets are what all bounds are made of. Server 0 gives worker w its next one if fewer than
 * `slots` of its gradients are under way, if it would not be more than `bound` steps ahead of the
 * slowest worker, and if there are steps left. With a bound of 0 there is one ticket a worker and
 * round.
 */
#include "engine/ps_priv.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_NS 100000000u

/* ---- words to workers ------------------------------------------------------------------------ */

static uint64_t version_of(const struct ps_server *s)
{
    return atomic_load_explicit(&s->head->version, memory_order_relaxed);
}

static bool op_is_done(void *arg)
{
    return ((struct vb_op *)arg)->done;
}

static vb_status take_op(struct ps_server *s, int worker, struct vb_op **op_p)
{
    struct ps_seat *seat = &s->seats[worker];
    struct vb_op *op = &seat->ops[seat->n_ops % PS_OPS];

    *op_p = op;
    if (seat->n_ops++ < PS_OPS || op->done)
        return VB_OK;
    return vb_group_wait(s->group, op_is_done, op, "a word to a worker", worker);
}

static vb_status say(struct ps_server *s, int worker, enum ps_kind kind, uint32_t value)
{
    struct vb_op *op;
    vb_status st = take_op(s, worker, &op);

    return st == VB_OK ? ps_put(s->group, s->slots, worker, 0, 0, 0, PS_VALUE(kind, value), op)
                       : st;
}

static const struct ps_push *push_in(const struct ps_server *s, int worker, int slot)
{
    const char *at = vb_window_ptr(s->slots);

    return (const void *)(at + ps_slot_at(&s->lay, s->k, worker, slot));
}

/* The values of the keys that a worker has asked for. */
static vb_status answer(struct ps_server *s, int worker, float *to, size_t *bytes_p, size_t *at_p)
{
    struct ps_seat *seat = &s->seats[worker];
    const struct ps_push *push = push_in(s, worker, seat->ask_slot);
    const uint32_t *keys = (const uint32_t *)(const void *)(push + 1) + push->n_values;

    seat->asks = false;
    *bytes_p = push->n_keys * sizeof(float);
    *at_p = push->reply_at * sizeof(float);
    return ps_gather(s, keys, push->n_keys, to);
}

/* A word with a reply. What it is sent from must not change on its way, so it is copied. */
static vb_status reply(struct ps_server *s, int worker, uint32_t word)
{
    struct ps_seat *seat = &s->seats[worker];
    int parity = (int)(seat->replies % 2);
    size_t from = ps_reply_from(s->job, &s->lay, s->k, worker, parity), bytes, at;
    float *to = (float *)(void *)((char *)vb_window_ptr(s->slots) + from);
    struct vb_op *op;
    vb_status st = take_op(s, worker, &op);

    if (st == VB_OK && s->job->sparse) {
        st = answer(s, worker, to, &bytes, &at);
    } else {
        bytes = s->lay.n[s->k] * sizeof(float);
        at = s->lay.first[s->k] * sizeof(float);
        memcpy(to, s->params, bytes);
    }
    if (st != VB_OK)
        return st;
    seat->reply_version[++seat->replies % 4] = version_of(s);
    return ps_put(s->group, s->slots, worker, from, ps_reply_to(s->job, &s->lay, parity) + at,
                  bytes, PS_VALUE(PS_WORD, word | PS_REPLY), op);
}

/* ---- tickets --------------------------------------------------------------------------------- */

static int64_t slowest(const struct ps_server *s)
{
    int64_t least = INT64_MAX;
    int w;

    for (w = 0; w < s->job->workers; w++)
        if (s->seats[w].alive && !s->seats[w].ended && s->seats[w].clock < least)
            least = s->seats[w].clock;
    return least;
}

static bool none_left(const struct ps_server *s)
{
    if (s->job->bound == 0)
        return s->job->begin + s->round >= s->job->steps;
    return s->job->begin + s->granted >= s->job->steps;
}

/* Sparse workers without shared memory need the answer to the push before. */
static int depth(const struct ps_server *s)
{
    return s->job->sparse && s->lay.replies ? 1 : s->lay.slots;
}

static bool may_go(const struct ps_server *s, const struct ps_seat *seat)
{
    const struct ps_job *job = s->job;

    if (s->k != 0 || job->hogwild || !seat->alive || seat->told_last || none_left(s))
        return false;
    if (job->sparse && s->lay.replies && !seat->asks)
        return false; /* it has not asked yet */
    if (job->bound == 0)
        return seat->round < s->round && seat->granted == seat->clock;
    if (seat->granted - seat->clock >= depth(s))
        return false;
    return job->bound < 0 || seat->granted - slowest(s) <= job->bound;
}

/* How many tickets a worker gets now. */
static uint32_t take_tickets(struct ps_server *s, struct ps_seat *seat)
{
    uint32_t n = 0;

    while (may_go(s, seat)) {
        seat->granted++;
        seat->round = s->round;
        s->granted++;
        n++;
    }
    return n;
}

/* Tells a worker what there is to tell: an acknowledgement, tickets, that these are the last. */
static vb_status tell(struct ps_server *s, int worker, uint32_t word)
{
    struct ps_seat *seat = &s->seats[worker];
    uint32_t tickets = take_tickets(s, seat);
    bool replies = s->lay.replies && (s->job->sparse ? seat->asks : true);

    if (s->k == 0 && s->job->bound >= 0 && tickets == 0)
        replies = false; /* it comes with the ticket: until then there may be more to read */
    word |= tickets * PS_TICKETS;
    if (s->k == 0 && !s->job->hogwild && none_left(s) && !seat->told_last) {
        seat->told_last = true;
        word |= PS_LAST;
    }
    if (worker == 0) {
        word |= s->due;
        s->due = 0;
    }
    if (word == 0)
        return VB_OK;
    return replies ? reply(s, worker, word) : say(s, worker, PS_WORD, word);
}

static vb_status tell_all(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    for (w = 0; w < s->job->workers && st == VB_OK; w++)
        if (s->seats[w].alive && !s->seats[w].ended)
            st = tell(s, w, 0);
    return st;
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static void note_staleness(struct ps_server *s, struct ps_seat *seat, const struct ps_push *push)
{
    uint64_t base = push->base, now = version_of(s);

    if (push->flags & PS_BASE_REPLY)
        base = seat->reply_version[base % 4];
    ps_stale_add(&seat->stale, now > base ? now - base : 0);
}

static void lap(struct ps_server *s, uint64_t *ns)
{
    uint64_t now = vb_clock_ns();

    *ns += now - s->mark_ns;
    s->mark_ns = now;
}

static vb_status acknowledge(struct ps_server *s, int worker)
{
    s->seats[worker].clock++;
    return tell(s, worker, PS_ACK);
}

static bool is_due(int64_t every, uint64_t version)
{
    return every > 0 && version % (uint64_t)every == 0;
}

static void step_on(struct ps_server *s)
{
    uint64_t now = atomic_fetch_add_explicit(&s->head->version, 1, memory_order_release) + 1;

    if (s->k == 0 && now < (uint64_t)s->job->steps)
        s->due |= (is_due(s->job->eval_every, now) ? PS_EVAL : 0u) |
                  (is_due(s->job->save_every, now) ? PS_SAVE : 0u);
    s->stats.applied++;
    vb_group_step(s->group);
}

/* The keys that came with a push are those of the next. */
static void ask_next(const struct ps_server *s, struct ps_seat *seat, const struct ps_push *push,
                     int slot)
{
    if (!s->job->sparse || (push->flags & PS_OWN_KEYS))
        return;
    seat->asks = true;
    seat->ask_slot = slot;
}

static vb_status apply_now(struct ps_server *s, int worker, int slot)
{
    const struct ps_push *push = push_in(s, worker, slot);
    struct ps_seat *seat = &s->seats[worker];
    vb_status st;

    lap(s, &s->stats.idle_ns);
    st = ps_apply(s, worker, push);
    if (st != VB_OK)
        return st;
    ask_next(s, seat, push, slot);
    note_staleness(s, seat, push);
    s->stats.samples += push->samples;
    step_on(s);
    lap(s, &s->stats.apply_ns);
    st = acknowledge(s, worker);
    return st == VB_OK && s->job->bound > 0 ? tell_all(s) : st; /* others may go now */
}

static int wanted(const struct ps_server *s)
{
    int w, n = 0;

    for (w = 0; w < s->job->workers; w++)
        n += s->seats[w].alive && !s->seats[w].ended;
    return n - s->job->backup > 1 ? n - s->job->backup : 1;
}

/* The round is complete: all that took part are acknowledged, and the next one begins. */
static vb_status close_round(struct ps_server *s)
{
    vb_status st;
    int w;

    lap(s, &s->stats.idle_ns);
    st = ps_apply_round(s);
    if (st != VB_OK)
        return st;
    for (w = 0; w < s->job->workers; w++)
        if (s->seats[w].held)
            note_staleness(s, &s->seats[w], s->seats[w].held_push);
    step_on(s);
    lap(s, &s->stats.apply_ns);
    s->n_held = 0;
    s->round++;
    for (w = 0; w < s->job->workers && st == VB_OK; w++) {
        bool held = s->seats[w].held;

        s->seats[w].held = false;
        if (held)
            st = acknowledge(s, w);
    }
    return st == VB_OK ? tell_all(s) : st;
}

static void note_late(struct ps_server *s, struct ps_seat *seat)
{
    uint64_t now = vb_clock_ns(), by = now - s->held_ns;

    s->held_ns = now;
    if (s->n_held != wanted(s) || s->n_held < 2)
        return;
    seat->late_n += by >= 20000;
    seat->late_ns += by;
    seat->late_max_ns = by > seat->late_max_ns ? by : seat->late_max_ns;
}

/* Bound 0. With backups there is one server, which knows the round from the ticket. */
static vb_status hold(struct ps_server *s, int worker, int slot)
{
    const struct ps_push *push = push_in(s, worker, slot);
    struct ps_seat *seat = &s->seats[worker];
    vb_status st = ps_hold(s, worker, push);

    ask_next(s, seat, push, slot);
    if (st == VB_OK && s->job->backup > 0 && seat->round < s->round) {
        seat->stale.dropped++;
        return acknowledge(s, worker);
    }
    if (st != VB_OK)
        return st;
    seat->held = true;
    s->n_held++;
    note_late(s, seat);
    return s->n_held >= wanted(s) ? close_round(s) : VB_OK;
}

static vb_status take_push(struct ps_server *s, int worker, uint32_t slot)
{
    struct ps_seat *seat = &s->seats[worker];
    const struct ps_push *push;

    if (slot >= (uint32_t)s->lay.slots)
        return vb_err(VB_ERR_INPUT, "worker %d names slot %u", worker, slot);
    if (!seat->alive)
        return VB_OK; /* nothing that the retired wrote is applied */
    push = push_in(s, worker, (int)slot);
    if (push->seq != seat->pushes)
        return vb_err(VB_ERR_INPUT, "worker %d pushed number %u, not %u", worker, push->seq,
                      seat->pushes);
    seat->pushes++;
    if (!(push->flags & PS_NO_GRADIENT))
        return s->job->bound == 0 ? hold(s, worker, (int)slot) : apply_now(s, worker, (int)slot);
    ask_next(s, seat, push, (int)slot);
    return tell(s, worker, PS_ACK);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* A vb_note_fn. There is room: a worker has a few notes under way at most. */
static void note_came(void *arg, int rank, uint32_t value)
{
    struct ps_server *s = arg;
    unsigned end = s->queue_end;

    if (rank >= s->job->workers || end - s->queue_first >= s->queue_size)
        return; /* it means nothing here */
    s->queue[end % s->queue_size] = (struct ps_arrival){rank, value};
    s->queue_end = end + 1;
}

struct waiting {
    struct ps_server *server;
    uint64_t until_ns;
};

static bool something_to_do(void *arg)
{
    const struct waiting *w = arg;

    return w->server->queue_end != w->server->queue_first || vb_clock_ns() >= w->until_ns;
}

static bool all_ended(const struct ps_server *s)
{
    int w;

    for (w = 0; w < s->job->workers; w++)
        if (s->seats[w].alive && !s->seats[w].ended)
            return false;
    return true;
}

static vb_status take_end(struct ps_server *s, int worker)
{
    struct ps_seat *seat = &s->seats[worker];

    seat->ended = true;
    if (s->job->hogwild)
        seat->stale = *(const struct vb_stale *)(const void *)(push_in(s, worker, 0) + 1);
    s->over = all_ended(s);
    if (s->over)
        return VB_OK;
    if (s->job->bound == 0 && s->n_held > 0 && s->n_held >= wanted(s))
        return close_round(s);
    return s->job->bound > 0 ? tell_all(s) : VB_OK; /* the slowest may be another now */
}

static vb_status take(struct ps_server *s, struct ps_arrival a)
{
    switch (PS_KIND(a.value)) {
    case PS_PUSH:
        return take_push(s, a.worker, a.value & 0xfffffu);
    case PS_SNAP:
        ps_snapshot(s, (a.value & 1) != 0);
        return say(s, a.worker, PS_SNAPPED, 0);
    case PS_END:
        return take_end(s, a.worker);
    case PS_WORD:
    case PS_SNAPPED:
    case PS_FINAL:
        break;
    }
    return vb_err(VB_ERR_INPUT, "worker %d sent a note that is none: %x", a.worker, a.value);
}

vb_status ps_server_round(struct ps_server *s)
{
    struct waiting waiting = {s, vb_clock_ns() + WAIT_NS};
    vb_status st = vb_group_wait(s->group, something_to_do, &waiting, "a gradient", -1);

    lap(s, &s->stats.idle_ns);
    while (st == VB_OK && s->queue_first != s->queue_end) {
        struct ps_arrival a = s->queue[s->queue_first % s->queue_size];

        s->queue_first++;
        st = take(s, a);
    }
    return st;
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A worker's first word. Those of server 0 have tickets; replies come from all. */
static vb_status greet(struct ps_server *s, int worker)
{
    if (s->k > 0 && s->lay.replies && !s->job->sparse)
        return reply(s, worker, 0);
    return tell(s, worker, 0);
}

vb_status ps_server_begin(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    s->begin_ns = s->mark_ns = vb_clock_ns();
    s->stats.cpu_ns = cpu_ns();
    for (w = 0; w < s->job->workers && st == VB_OK; w++)
        if (s->seats[w].alive)
            st = greet(s, w);
    return st;
}

vb_status ps_server_finish(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    s->stats.total_ns = vb_clock_ns() - s->begin_ns;
    s->stats.cpu_ns = cpu_ns() - s->stats.cpu_ns;
    if (s->job->hogwild)
        s->stats.applied = (int64_t)version_of(s) - s->job->begin;
    ps_snapshot(s, true);
    for (w = 0; w < s->job->workers && st == VB_OK; w++)
        if (s->seats[w].alive)
            st = say(s, w, PS_FINAL, 0);
    return st;
}

vb_status ps_server_run(struct ps_server *s)
{
    vb_status st = ps_server_begin(s);

    while (st == VB_OK && !s->over)
        st = ps_server_round(s);
    return st == VB_OK ? ps_server_finish(s) : st;
}

/* ---- who takes part -------------------------------------------------------------------------- */

vb_status ps_server_retire(struct ps_server *s, int worker)
{
    struct ps_seat *seat = &s->seats[worker];

    if (!seat->alive)
        return VB_OK;
    if (s->job->bound != 0)
        s->granted -= seat->granted - seat->clock; /* for others to use */
    s->n_held -= seat->held;
    seat->alive = seat->held = false;
    s->over = all_ended(s);
    if (s->over)
        return VB_OK;
    if (s->job->bound == 0 && s->n_held > 0 && s->n_held >= wanted(s))
        return close_round(s);
    return tell_all(s);
}

vb_status ps_server_admit(struct ps_server *s, int worker)
{
    struct ps_seat *seat = &s->seats[worker];
    int64_t clock = slowest(s);
    struct vb_stale stale = seat->stale;

    if (seat->alive)
        return VB_OK;
    memset(seat, 0, offsetof(struct ps_seat, ops)); /* ops may be under way */
    seat->stale = stale;
    seat->alive = true;
    seat->clock = seat->granted = clock == INT64_MAX ? 0 : clock;
    seat->round = s->round - 1;
    s->over = false;
    return greet(s, worker);
}

/* ---- open and close -------------------------------------------------------------------------- */

static vb_status make_windows(struct ps_server *s)
{
    vb_status st = vb_window_create_for(s->group, s->lay.shard_bytes[s->k], VB_WINDOW_GET,
                                        &s->shards);

    if (st == VB_OK)
        st = vb_window_create_for(s->group, s->lay.slots_bytes[s->k], VB_WINDOW_PUT, &s->slots);
    return st;
}

static vb_status make_state(struct ps_server *s, const void *state)
{
    size_t first = s->lay.first[s->k], n = s->lay.n[s->k], word = (size_t)s->job->words * 4;
    vb_status st = VB_OK;

    if (s->job->hogwild)
        s->state = (char *)vb_window_ptr(s->shards) + s->lay.state[s->k];
    else if (word > 0 && n > 0)
        st = vb_mem_map_private(n * word, &s->own);
    if (st == VB_OK && !s->job->hogwild)
        s->state = s->own.ptr;
    if (st == VB_OK && word > 0 && state != NULL)
        memcpy(s->state, (const char *)state + first * word, n * word);
    return st;
}

/* The lists of a round: those of all workers, as they are merged. */
static vb_status make_sums(struct ps_server *s)
{
    size_t most = (size_t)s->job->workers * s->job->max_keys, n = s->lay.n[s->k];
    int i;

    if (!s->job->sparse) {
        s->sum = vb_alloc_aligned(n * sizeof(float));
        return s->sum != NULL ? VB_OK : vb_err(VB_ERR_NO_MEMORY, "no memory for %zu sums", n);
    }
    for (i = 0; i < 2; i++) {
        s->keys[i] = vb_alloc_aligned(most * sizeof(uint32_t));
        s->values[i] = vb_alloc_aligned(most * sizeof(float));
        if (s->keys[i] == NULL || s->values[i] == NULL)
            return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu sums", most);
    }
    return VB_OK;
}

static vb_status make_seats(struct ps_server *s)
{
    int w;

    s->queue_size = (unsigned)s->job->workers * 8;
    s->queue = calloc(s->queue_size, sizeof(*s->queue));
    s->seats = calloc((size_t)s->job->workers, sizeof(*s->seats));
    if (s->queue == NULL || s->seats == NULL)
        return vb_err_sys("calloc");
    for (w = 0; w < s->job->workers; w++) {
        s->seats[w].alive = true;
        s->seats[w].round = -1;
    }
    return VB_OK;
}

static vb_status fill(struct ps_server *s, const float *params, const void *state)
{
    size_t first = s->lay.first[s->k], n = s->lay.n[s->k];
    vb_status st;

    s->head = vb_window_ptr(s->shards);
    s->params = (float *)(void *)((char *)vb_window_ptr(s->shards) + s->lay.params);
    memcpy(s->params, params + first, n * sizeof(float));
    atomic_store(&s->head->version, (uint64_t)s->job->begin);
    atomic_store(&s->head->claimed, s->job->begin);
    st = make_state(s, state);
    if (st == VB_OK && s->job->bound == 0)
        st = make_sums(s);
    if (st == VB_OK && s->job->sparse && !s->job->hogwild && n > 0)
        st = vb_k_sparse_create_at(&s->job->rule, n, s->params, s->state, &s->sparse);
    return st;
}

vb_status ps_server_create(struct vb_group *group, const struct ps_job *job, const float *params,
                           const void *state, struct ps_server **server_p)
{
    struct ps_server *s = calloc(1, sizeof(*s));
    vb_status st;

    if (s == NULL)
        return vb_err_sys("calloc");
    s->job = job;
    s->group = group;
    s->k = vb_group_rank(group) - job->workers;
    *server_p = s; /* to be closed, whatever came of it */
    st = make_seats(s);
    if (st == VB_OK)
        st = vb_channel_open(group, PS_CHANNEL, note_came, s);
    s->opened = st == VB_OK;
    if (st == VB_OK)
        st = ps_all_mapped(group, job, &s->mapped);
    if (st == VB_OK) {
        ps_layout_make(job, s->mapped, &s->lay);
        st = make_windows(s);
    }
    if (st == VB_OK)
        st = fill(s, params, state);
    return st == VB_OK ? vb_group_barrier(group) : st;
}

void ps_server_close(struct ps_server *s)
{
    int i;

    if (s == NULL)
        return;
    vb_window_destroy(s->slots);
    vb_window_destroy(s->shards);
    if (s->opened)
        vb_channel_close(s->group, PS_CHANNEL);
    vb_k_sparse_destroy(s->sparse);
    vb_mem_unmap(&s->own);
    for (i = 0; i < 2; i++) {
        free(s->keys[i]);
        free(s->values[i]);
    }
    free(s->sum);
    free(s->seats);
    free(s->queue);
    free(s);
}
