/* SPDX-License-Identifier: MIT
 *
 * Tests a parameter server with a worker that misbehaves: it sends invalid pushes and notes, writes
 * to its slots while the server uses them, or hangs. The server must remove this worker and tell it
 * why. The other worker must make all steps, also with a standby or a second server. Ranks are
 * processes, so a crash of a server fails the test.
 *
 * Covers: engine/ps/ps_accept.c engine/ps/ps_expel.c
 */
#include "tests/support/replica.h"

#define BAD 1          /* number of the worker that misbehaves */
#define HUGE_N 900000u /* far more than the keys of a batch */
#define DEADLINE_S 60

enum deed { PUSH_INVALID, NOTE_INVALID, FLOOD, SCRIBBLE, CHANGE_HELD, HANG };

/* What the bad worker does. It is in shared memory, because ranks are processes. */
struct plan {
    enum deed deed;
    struct ps_push head;    /* PUSH_INVALID */
    uint32_t keys[2];       /* PUSH_INVALID */
    uint32_t note;          /* PUSH_INVALID, NOTE_INVALID */
    bool stays;             /* the bad worker does not leave before the other one has ended */
    _Atomic bool ended;     /* the other worker has ended */
    _Atomic bool held;      /* CHANGE_HELD: the bad worker has changed its push */
    _Atomic bool scribbled; /* SCRIBBLE: the thread is to end */
    char why[256];          /* why the server has removed the bad worker */
};

static struct plan *plan;

static void nap(void)
{
    struct timespec ts = {.tv_nsec = 1000000};

    nanosleep(&ts, NULL);
}

static void wait_for(const _Atomic bool *flag)
{
    while (!*flag)
        nap();
}

/* ---- the good worker ------------------------------------------------------------------------- */

static const uint32_t keys[] = {1, 5, 300}; /* with two servers, each one has some of these keys */
static const float ones[] = {1, 1, 1};

static vb_status step(struct ps_worker *w)
{
    const float *values;
    vb_status st = vb_ps_worker_values(w, keys, VB_COUNT(keys), &values);

    if (st != VB_OK)
        return st;
    return vb_ps_worker_push_sparse(w, keys, ones, VB_COUNT(keys), 1, 1, keys, VB_COUNT(keys));
}

static vb_status good_steps(struct ps_worker *w)
{
    vb_status st = vb_ps_worker_ask(w, keys, VB_COUNT(keys));
    bool go = true;

    if (plan->deed == CHANGE_HELD)
        wait_for(&plan->held);
    while (st == VB_OK && go) {
        st = vb_ps_worker_ticket(w, &go);
        if (st == VB_OK && go)
            st = step(w);
        board->tally.total++;
    }
    return st;
}

static int be_good(struct ps_worker *w)
{
    float params[P_KEYS];
    uint64_t version = 0;
    vb_status st = good_steps(w);

    if (st == VB_OK)
        st = vb_ps_worker_end(w, params, NULL, &version);
    if (st == VB_OK)
        st = vb_ps_worker_bye(w);
    plan->ended = true;
    return T_WRONG(st == VB_OK) + T_WRONG(version == (uint64_t)w->job->steps);
}

/* ---- the bad worker -------------------------------------------------------------------------- */

static struct ps_push *slot_of(struct ps_worker *w, int slot)
{
    if (w->links[0].mapped_slots == NULL)
        return (void *)((char *)vb_window_ptr(w->slots) + w->lay.push[0]);
    return (void *)(w->links[0].mapped_slots + vb_ps_slot_at(&w->lay, 0, w->number, slot));
}

static vb_status put_note(struct ps_worker *w, size_t len, uint32_t note)
{
    static struct vb_op ops[4];
    static unsigned n;
    struct vb_op *op = &ops[n++ % 4];

    if (n > 4 && !op->done && vb_op_wait(w->group, op, "a note", -1) != VB_OK)
        return VB_ERR_PEER;
    return vb_ps_put(w->slots, w->links[0].rank, len > 0 ? w->lay.push[0] : 0,
                     len > 0 ? vb_ps_slot_at(&w->lay, 0, w->number, 0) : 0, len, note, op);
}

static vb_status push_invalid(struct ps_worker *w)
{
    struct ps_push *push = slot_of(w, 0);
    size_t len = sizeof(*push) + sizeof(plan->keys);

    *push = plan->head;
    memcpy(push + 1, plan->keys, sizeof(plan->keys));
    return put_note(w, w->links[0].mapped_slots == NULL ? len : 0, plan->note);
}

static vb_status flood(struct ps_worker *w)
{
    vb_status st = VB_OK;

    while (st == VB_OK)
        st = put_note(w, 0, PS_NOTE(PS_READ, 0));
    return st == VB_ERR_PEER ? VB_OK : st;
}

/* The race with the worker is the purpose, so ThreadSanitizer does not look. */
__attribute__((no_sanitize("thread"))) static void *scribble(void *arg)
{
    struct ps_worker *w = arg;
    uint64_t i;

    for (i = 0; !plan->scribbled; i++) {
        volatile uint32_t *words = (void *)slot_of(w, (int)(i % 2));
        uint64_t r = vb_random(7, i);

        /* counts, keys, and values of the gradient */
        words[6 + r % 14] = (uint32_t)(r >> 32) >> (r >> 8) % 30;
    }
    return NULL;
}

/* Pushes as a good worker does, while a thread writes to the slots. */
static vb_status push_and_scribble(struct ps_worker *w)
{
    pthread_t thread;
    vb_status st;

    if (pthread_create(&thread, NULL, scribble, w) != 0)
        return VB_ERR_NO_MEMORY;
    st = good_steps(w); /* the server may never notice */
    plan->scribbled = true;
    pthread_join(thread, NULL);
    return st == VB_ERR_PEER ? VB_OK : st;
}

/* Changes a push that the server has checked and holds for its round. */
static vb_status change_held(struct ps_worker *w)
{
    struct timespec ts = {.tv_nsec = 300000000};
    struct ps_push *push = slot_of(w, 0);
    bool go = false;
    vb_status st = vb_ps_worker_ticket(w, &go);

    if (st == VB_OK && go)
        st = step(w);
    nanosleep(&ts, NULL); /* the server holds the push by now */
    push->n_values = push->n_keys = HUGE_N;
    memset((float *)(void *)(push + 1) + VB_COUNT(keys), 0xee, sizeof(keys));
    plan->held = true;
    return st == VB_OK ? vb_ps_worker_settle(w) : st;
}

static vb_status hang(struct ps_worker *w)
{
    bool go = false;
    vb_status st = vb_ps_worker_ask(w, keys, VB_COUNT(keys));

    if (st == VB_OK)
        st = vb_ps_worker_ticket(w, &go);
    wait_for(&plan->ended);
    return st == VB_OK && go ? VB_OK : VB_ERR_INPUT;
}

static vb_status do_deed(struct ps_worker *w)
{
    switch (plan->deed) {
    case PUSH_INVALID:
        return push_invalid(w);
    case NOTE_INVALID:
        return put_note(w, 0, plan->note);
    case FLOOD:
        return flood(w);
    case SCRIBBLE:
        return push_and_scribble(w);
    case CHANGE_HELD:
        return change_held(w);
    case HANG:
        break;
    }
    return hang(w);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static int be_bad(struct ps_worker *w)
{
    vb_status st = do_deed(w);
    int wrong = T_WRONG(st == VB_OK);

    if (plan->stays)
        wait_for(&plan->ended);
    if (wrong > 0 || plan->deed == CHANGE_HELD || plan->deed == SCRIBBLE)
        return wrong;
    st = vb_ps_await(w, never, w, "the end of this worker", 0, false);
    wrong += T_WRONG(st == VB_ERR_PEER);
    wrong += T_WRONG(vb_group_end(w->group, w->links[0].rank) == VB_END_DROPPED_US);
    snprintf(plan->why, sizeof(plan->why), "%s", vb_group_gone_why(w->group, w->links[0].rank));
    return wrong;
}

static int work(struct vb_group *g, bool late)
{
    struct ps_worker *w = NULL;
    int wrong;

    (void)late;
    alarm(DEADLINE_S);
    wrong = T_WRONG(vb_ps_worker_create(g, &board->job, &w) == VB_OK);
    if (wrong == 0)
        wrong = w->number == BAD ? be_bad(w) : be_good(w);
    vb_ps_worker_leave(w);
    return wrong;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void plan_job(enum vb_transport_choice transport, int servers, int64_t bound, int replicas,
                     enum deed deed)
{
    prepare(transport, 2, servers, bound, P_KEYS);
    make_sparse();
    board->job.replicas = replicas;
    memset(plan, 0, sizeof(*plan));
    plan->deed = deed;
    plan->note = PS_NOTE(PS_PUSH, 0);
}

/* Runs the job. expect is in the reason that the server gives to the bad worker. */
static void run_job(const char *expect)
{
    begin();
    end();
    assert_true(plan->ended);
    if (expect == NULL)
        return;
    if (strstr(plan->why, expect) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", expect, plan->why);
    assert_true(board->faults > 0);
}

static const struct {
    struct ps_push head;
    uint32_t keys[2];
    const char *expect;
} invalid[] = {
    {{.flags = PS_NO_GRADIENT, .n_keys = UINT32_MAX}, {0}, "a batch has at most 40 keys"},
    {{.flags = PS_NO_GRADIENT, .n_values = P_ROW + 1, .n_keys = 1}, {0}, "a batch has at most"},
    {{.flags = PS_NO_GRADIENT, .n_keys = P_ROW, .reply_at = 1}, {0}, "a batch has at most"},
    {{.flags = 8}, {0}, "a batch has at most"},
    {{.flags = PS_OWN_KEYS, .samples = UINT32_MAX}, {0}, "a batch has at most"},
    {{.flags = PS_OWN_KEYS, .n_keys = 2, .n_values = 1}, {1, 2}, "key 0 of 2"},
    {{.flags = PS_OWN_KEYS, .n_keys = 1, .n_values = 0}, {1}, "has 0 values for 1 keys"},
    {{.flags = 0, .n_values = 1}, {1}, "has 1 values for 0 keys"},
    {{.flags = PS_OWN_KEYS, .seq = 7}, {0}, "push number 7 in slot 0, expected number 0"},
    {{.flags = PS_NO_GRADIENT, .n_keys = 2}, {2, P_KEYS}, "key 1 of 2 of push number 0 is 400"},
    {{.flags = PS_NO_GRADIENT, .n_keys = 2}, {7, 7}, "key 0 of 2 of push number 0 is 7"},
};

static void invalid_pushes_cost_the_sender_its_place(void **state)
{
    size_t t, i;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (i = 0; i < VB_COUNT(invalid); i++) {
            plan_job(transports[t], 1, i % 2 == 0 ? PS_UNBOUNDED : 0, 1 + (int)(i / 2 % 2),
                     PUSH_INVALID);
            plan->head = invalid[i].head;
            memcpy(plan->keys, invalid[i].keys, sizeof(plan->keys));
            run_job(invalid[i].expect);
            assert_non_null(strstr(plan->why, PS_INVALID));
        }
}

static void invalid_notes_cost_the_sender_its_place(void **state)
{
    static const uint32_t notes[] = {PS_NOTE(PS_GONE, 0), PS_NOTE(20, 3), PS_NOTE(PS_CONFIRM, 0),
                                     PS_NOTE(63, 1)};
    size_t t, i;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        for (i = 0; i < VB_COUNT(notes); i++) {
            plan_job(transports[t], 1, PS_UNBOUNDED, 1 + (int)(i % 2), NOTE_INVALID);
            plan->note = notes[i];
            run_job("an unknown note");
        }
        plan_job(transports[t], 1, 0, 1, NOTE_INVALID);
        plan->note = PS_NOTE(PS_PUSH, 2);
        run_job("a push in slot 2, but it has only 2 slots");
        plan_job(transports[t], 1, 0, 1, NOTE_INVALID);
        plan->note = PS_NOTE(PS_FAILOVER, 0);
        run_job("which is not allowed now");
        plan_job(transports[t], 1, PS_UNBOUNDED, 1, NOTE_INVALID);
        plan->note = PS_NOTE(PS_INTERRUPT, PS_SIGNALS);
        run_job("which is not allowed now");
        plan_job(transports[t], 1, PS_UNBOUNDED, 1, NOTE_INVALID);
        plan->note = PS_NOTE(PS_STOP, PS_STOPS);
        run_job("which is not allowed now");
        plan_job(transports[t], 1, 0, 1 + (int)t % 2, FLOOD);
        run_job("more than 16 notes at a time");
    }
}

/* The bad worker sends an invalid push to server 0 and then stays. Server 1 must not wait for it.
 */
static void all_servers_remove_the_worker(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        plan_job(transports[t], 2, 0, 1, PUSH_INVALID);
        plan->head.seq = 7;
        plan->stays = true;
        run_job("push number 7");
    }
}

static void a_push_that_changes_is_read_once(void **state)
{
    (void)state;
    if (transports[0] != VB_TRANSPORT_SHM)
        skip();
    plan_job(VB_TRANSPORT_SHM, 1, 0, 1, CHANGE_HELD);
    run_job(NULL);
}

static void a_worker_scribbles_on_its_slots(void **state)
{
    int i;

    (void)state;
    if (transports[0] != VB_TRANSPORT_SHM)
        skip();
    for (i = 0; i < 6; i++) {
        plan_job(VB_TRANSPORT_SHM, 1, i % 2 == 0 ? 0 : PS_UNBOUNDED, 1, SCRIBBLE);
        if (i >= 2) /* the server replies, although the slots are mapped */
            board->job.rule = (struct vb_k_rule){.kind = VB_K_MOMENTUM, .momentum = .5f};
        board->job.words = i >= 2;
        run_job(NULL);
    }
}

/* The worker is alive, but it never pushes. */
static void a_worker_that_hangs_is_removed(void **state)
{
    static const int64_t bounds[] = {0, 2, PS_UNBOUNDED};
    size_t t, b;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (b = 0; b < VB_COUNT(bounds); b++) {
            plan_job(transports[t], 1 + (int)(b % 2), bounds[b], 1 + (int)(t % 2), HANG);
            board->job.stuck_ms = 500;
            run_job("has made no progress for");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(invalid_pushes_cost_the_sender_its_place, tear_down),
        cmocka_unit_test_teardown(invalid_notes_cost_the_sender_its_place, tear_down),
        cmocka_unit_test_teardown(all_servers_remove_the_worker, tear_down),
        cmocka_unit_test_teardown(a_push_that_changes_is_read_once, tear_down),
        cmocka_unit_test_teardown(a_worker_scribbles_on_its_slots, tear_down),
        cmocka_unit_test_teardown(a_worker_that_hangs_is_removed, tear_down),
    };

    if (!make_board())
        return 1;
    plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (plan == MAP_FAILED)
        return 1;
    worker = work;
    return T_RUN(tests);
}
