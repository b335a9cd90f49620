/* SPDX-License-Identifier: MIT
 *
 * Tests how somebody comes to a group that agrees: at the lead, at another member, when the lead
 * dies meanwhile, with a wrong secret; and that what a caller sends cannot harm the members.
 *
 * Covers: net/control/callers.c net/control/call.c net/group/door.c net/wire/wire_door.c
 */
#include "net/control/call.h"
#include "net/control/handshake.h"
#include "tests/support/ranks.h"

#include <sys/mman.h>
#include <time.h>

#define WORLD 3
#define MOVES 2 /* groups that follow the first one */
#define TEXT "the text of the job"

/* What the members and the test tell each other. Members are threads or processes. */
struct board {
    char first_doors[VB_DOORS_TEXT]; /* before the members move */
    char doors[VB_DOORS_TEXT];
    _Atomic int n_open;  /* members that let callers in */
    _Atomic int waits;   /* callers that the lead has seen */
    _Atomic int invites; /* so many callers are to be invited */
    _Atomic int away;    /* one caller is to be turned away */
    _Atomic int most;    /* the number of ranks that the job can have */
    _Atomic bool kill_lead, ends, shut;
    _Atomic int wrong;
};
static struct board *board;

static void nap(void)
{
    struct timespec pause = {.tv_nsec = 2000000};

    nanosleep(&pause, NULL);
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t until_ = vb_clock_ns() + UINT64_C(30000000000);                                   \
        while (!(cond) && vb_clock_ns() < until_)                                                  \
            nap();                                                                                 \
        assert_true(cond);                                                                         \
    } while (0)

static struct vb_invitation invitation(int i)
{
    struct vb_invitation inv = {.rank = WORLD + i, .world = WORLD + 3, .id = 7 + i, .step = 41};

    snprintf(inv.root, sizeof(inv.root), "127.0.0.1:%d", 4000 + i);
    return inv;
}

/* What the lead does between two steps. A caller may go before it is told anything. */
static void lead(struct vb_group *g, int *invited)
{
    struct vb_invitation inv;

    board->waits = vb_group_callers(g);
    if (board->waits > 0 && board->away > 0 &&
        vb_group_turn_away(g, "the batch is too small") == VB_OK)
        board->away--;
    while (*invited < board->invites && vb_group_callers(g) > 0) {
        inv = invitation(*invited);
        if (vb_group_invite(g, &inv) == VB_OK)
            ++*invited;
    }
}

/* A member: lets callers in, and goes on until the test ends. */
static int member(struct vb_group *g, void *arg)
{
    int wrong, invited = 0;

    (void)arg;
    wrong = T_WRONG(vb_group_let_in(g, TEXT, strlen(TEXT), board->most) == VB_OK);
    if (vb_group_rank(g) == 0)
        vb_group_doors(g, board->doors);
    board->n_open++;
    while (!board->ends) {
        (void)vb_progress(g);
        if (board->kill_lead && vb_group_rank(g) == 0)
            raise(SIGKILL);
        if (board->shut)
            (void)vb_group_let_in(g, NULL, 0, 0);
        if (vb_group_callers(g) > 0 || vb_group_rank(g) == 0)
            lead(g, &invited);
        nap();
    }
    return wrong;
}

static struct t_job job = {
    .fn = member, .world = WORLD, .transport = VB_TRANSPORT_TCP, .agrees = true, .progress = true};
static struct t_rank ranks[T_RANKS_MAX];
static pthread_t ids[T_RANKS_MAX];
static pid_t pids[T_RANKS_MAX];

static void reset(void)
{
    if (board == NULL)
        board =
            mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    memset(board, 0, sizeof(*board));
    t_prepare(ranks, &job);
}

static void begin_with(int most)
{
    int i;

    reset();
    board->most = most;
    for (i = 0; i < WORLD; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, t_rank_main, &ranks[i]), 0);
    UNTIL(board->n_open == WORLD);
}

static void begin(void)
{
    begin_with(100);
}

static void end(void)
{
    int i;

    board->ends = true;
    for (i = 0; i < WORLD; i++)
        pthread_join(ids[i], NULL);
    for (i = 0; i < WORLD; i++)
        assert_int_equal(ranks[i].wrong, 0);
}

/* The i-th address of the job. */
static const char *door(int i)
{
    static char one[VB_ROOT_TEXT];
    const char *at = board->doors;

    for (; i > 0; i--)
        at = strchr(at, ',') + 1;
    snprintf(one, sizeof(one), "%.*s", (int)strcspn(at, ","), at);
    return one;
}

static void call_opts(const char *root, struct vb_group_opts *o)
{
    t_group_opts(&job, 0, root, -1, o);
    o->timeout_ms = 20000;
}

static void is_invited(struct vb_caller *w, int i)
{
    struct vb_invitation inv, want = invitation(i);

    assert_int_equal(vb_caller_wait(w, 0, &inv), VB_OK);
    assert_string_equal(inv.root, want.root);
    assert_int_equal(inv.rank, want.rank);
    assert_int_equal(inv.world, want.world);
    assert_int_equal(inv.id, want.id);
    assert_int_equal(inv.step, want.step);
}

static struct vb_caller *call_at(const char *root)
{
    struct vb_group_opts o;
    struct vb_caller *w = NULL;
    size_t len;

    call_opts(root, &o);
    assert_int_equal(vb_group_call(&o, &w), VB_OK);
    assert_false(vb_caller_has_slot(w));
    assert_memory_equal(vb_caller_job(w, &len), TEXT, strlen(TEXT));
    assert_int_equal(len, strlen(TEXT));
    return w;
}

static void any_member_leads_to_the_lead(void **state)
{
    struct vb_caller *w;
    int i;

    (void)state;
    for (i = 0; i < WORLD; i++) {
        begin();
        w = call_at(door(i));
        assert_int_equal(board->waits, 0); /* it has not said that it is ready */
        board->invites = 1;
        is_invited(w, 0);
        vb_caller_close(w);
        end();
    }
}

static void *ask(void *arg)
{
    struct vb_invitation *inv = arg;
    struct vb_group_opts o;

    call_opts(door(0), &o);
    if (vb_group_ask(&o, inv) != VB_OK)
        inv->id = -1;
    return NULL;
}

static void who_has_waited_longest_is_invited_first(void **state)
{
    struct vb_invitation inv[2];
    pthread_t asks[2];
    int i;

    (void)state;
    begin();
    for (i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&asks[i], NULL, ask, &inv[i]), 0);
        UNTIL(board->waits == i + 1);
    }
    board->invites = 2;
    for (i = 0; i < 2; i++) {
        pthread_join(asks[i], NULL);
        assert_int_equal(inv[i].id, invitation(i).id);
    }
    end();
}

static void refused(const char *root, int byte, vb_status want, const char *said)
{
    unsigned char secret[VB_SECRET_BYTES];
    struct vb_invitation inv;
    struct vb_group_opts o;
    struct t_stderr err;
    char text[4096];
    vb_status st;

    call_opts(root, &o);
    memset(secret, byte, sizeof(secret));
    o.secret = secret;
    o.timeout_ms = 1500;
    t_stderr_catch(&err);
    st = vb_group_ask(&o, &inv);
    t_stderr_release(&err, text, sizeof(text));
    if (st != want || strstr(text, said) == NULL)
        fail_msg("status %d, said: %s", (int)st, text);
}

static void refusals_say_why(void **state)
{
    char root[32];
    int fd;

    (void)state;
    begin();
    refused(door(1), 8, VB_ERR_ACCESS, "the secrets differ");
    refused(door(0), 8, VB_ERR_ACCESS, "the secrets differ");
    refused(door(2), 7, VB_ERR_TIMEOUT, "has not formed a group with this process in time");
    UNTIL(board->waits == 0);
    board->away = 1;
    refused(door(0), 7, VB_ERR_ACCESS, "cannot join: the batch is too small");
    board->shut = true;
    UNTIL(board->waits == 0);
    nap();
    refused(door(0), 7, VB_ERR_ACCESS, "no rank can join this job");
    end();
    fd = t_listen(root);
    close(fd);
    refused(root, 7, VB_ERR_TIMEOUT, "refused");
    refused("nonsense", 7, VB_ERR_USAGE, "HOST:PORT");
}

static void a_job_that_is_full_says_so(void **state)
{
    (void)state;
    begin_with(WORLD);
    refused(door(0), 7, VB_ERR_ACCESS, "as many ranks as it can have");
    end();
}

/* The lead is killed while somebody waits at it, and the next lead invites them. */
static void another_lead_takes_over(void **state)
{
    struct vb_caller *w;
    int i, status;

    (void)state;
    reset();
    board->most = 100;
    for (i = 0; i < WORLD; i++) {
        pids[i] = t_fork();
        if (pids[i] == 0) {
            if (i > 0)
                close(ranks[i].root_fd); /* or the address of rank 0 outlives it */
            t_rank_main(&ranks[i]);
            _exit(ranks[i].wrong == 0 ? 0 : 1);
        }
    }
    close(ranks[0].root_fd);
    UNTIL(board->n_open == WORLD);
    w = call_at(door(2));
    board->invites = 0;
    board->kill_lead = true; /* before the caller is ready, or while it waits */
    assert_int_equal(waitpid(pids[0], &status, 0), pids[0]);
    pids[0] = 0;
    board->invites = 1;
    is_invited(w, 0);
    vb_caller_close(w);
    board->ends = true;
    t_end_all(pids, WORLD);
}

/* ---- callers that have the secret, and are faulty -------------------------------------------- */

/* Proves the secret as a caller does. */
static int prove(const char *root, struct auth_session *session)
{
    struct wire_call call = {
        .version = WIRE_VERSION, .kind = WIRE_JOIN, .rank = WIRE_NO_RANK, .to = WIRE_NO_RANK};
    uint64_t deadline = vb_clock_ns() + UINT64_C(10000000000);
    unsigned char secret[VB_SECRET_BYTES], key[AUTH_KEY_BYTES];
    struct sock_addr at;
    int fd;

    memset(secret, 7, sizeof(secret));
    assert_int_equal(vb_auth_init(), VB_OK);
    vb_auth_random(call.nonce, sizeof(call.nonce));
    assert_int_equal(vb_sock_resolve(root, &at), VB_OK);
    assert_int_equal(vb_sock_connect(&at, deadline, &fd), VB_OK);
    if (vb_handshake_call(fd, &call, secret, deadline, key) != VB_OK) {
        close(fd);
        return -1;
    }
    vb_auth_session(session, key, AUTH_CALLER);
    return fd;
}

/* Returns whether the member hangs up. */
static bool is_hung_up(int fd)
{
    uint64_t deadline = vb_clock_ns() + UINT64_C(10000000000);
    unsigned char byte;
    vb_status st;

    do
        st = vb_sock_read(fd, &byte, 1, deadline);
    while (st == VB_OK);
    close(fd);
    return st != VB_ERR_TIMEOUT;
}

static void faulty_callers_are_dropped(void **state)
{
    unsigned char bytes[4096], frame[AUTH_FRAME_ROOM(1024)];
    uint64_t deadline = vb_clock_ns() + UINT64_C(60000000000);
    struct auth_session session;
    struct vb_caller *w;
    struct t_stderr err;
    char text[65536];
    size_t n, k;
    int fd, type;

    (void)state;
    begin();
    t_stderr_catch(&err);
    memset(bytes, 0x5a, sizeof(bytes));
    for (type = 0; type <= WIRE_LAST + 1; type++) {
        fd = prove(door(0), &session);
        assert_true(fd >= 0);
        memcpy(frame, bytes, sizeof(frame)); /* 0 and the last one are no types */
        n = type < WIRE_INFO || type > WIRE_LAST
                ? 64
                : vb_auth_frame(&session.out, (uint16_t)type, bytes, 16, frame);
        assert_int_equal(vb_sock_write(fd, frame, n, deadline), VB_OK);
        assert_true(is_hung_up(fd));
    }
    fd = prove(door(0), &session); /* ready twice */
    for (k = 0; k < 2; k++) {
        n = vb_auth_frame(&session.out, WIRE_READY, NULL, 0, frame);
        assert_int_equal(vb_sock_write(fd, frame, n, deadline), VB_OK);
    }
    assert_true(is_hung_up(fd));
    fd = prove(door(0), &session); /* a wrong tag */
    n = vb_auth_frame(&session.out, WIRE_READY, NULL, 0, frame);
    frame[n - 1] ^= 1;
    assert_int_equal(vb_sock_write(fd, frame, n, deadline), VB_OK);
    assert_true(is_hung_up(fd));
    t_stderr_release(&err, text, sizeof(text));
    UNTIL(board->waits == 0);
    w = call_at(door(1));
    board->invites = 1;
    is_invited(w, 0);
    vb_caller_close(w);
    end();
}

/* More callers than places, which read nothing and leave. Others are let in then. */
static void places_are_bounded_and_come_back(void **state)
{
    int fds[VB_CALLERS_MAX + 8], i, taken, round, tries;
    struct auth_session session;
    struct vb_caller *w;
    struct t_stderr err;
    char text[65536];

    (void)state;
    begin();
    for (round = 0; round < 3; round++) {
        taken = 0;
        t_stderr_catch(&err);
        for (i = 0; i < (int)VB_COUNT(fds); i++)
            fds[i] = -1;
        /* those of the round before may not be seen to have left yet */
        for (tries = 0; tries < 1000 && taken < VB_CALLERS_MAX; tries++)
            for (i = 0; i < (int)VB_COUNT(fds); i++)
                if (fds[i] < 0) {
                    fds[i] = prove(door(0), &session);
                    taken += fds[i] >= 0;
                }
        t_stderr_release(&err, text, sizeof(text));
        assert_int_equal(taken, VB_CALLERS_MAX);
        for (i = 0; i < (int)VB_COUNT(fds); i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
    w = call_at(door(2));
    board->invites = 1;
    is_invited(w, 0);
    vb_caller_close(w);
    end();
}

/* ---- jobs with slots, and addresses that outlive a group --------------------------------------
 */

static int welcome(struct vb_group *g, void *arg)
{
    (void)arg;
    vb_group_welcome(g);
    board->n_open++;
    while (!board->ends) {
        (void)vb_progress(g);
        nap();
    }
    return 0;
}

static void *slots_main(void *arg)
{
    struct t_rank *r = arg;
    struct vb_group_opts opts;
    struct vb_group *g;

    t_group_opts(r->job, r->rank, r->root, r->root_fd, &opts);
    opts.slots = WORLD + 1;
    r->wrong = vb_group_open(&opts, &g) != VB_OK;
    if (r->wrong == 0) {
        r->wrong = welcome(g, NULL);
        vb_group_close(g);
    }
    return NULL;
}

static void a_job_with_slots_gives_one(void **state)
{
    struct t_job slots = job;
    struct vb_group_opts o;
    struct vb_caller *w = NULL;
    struct vb_group *g;
    char root[VB_ROOT_TEXT];
    int i;

    (void)state;
    slots.agrees = false;
    slots.elastic = true;
    reset();
    t_prepare(ranks, &slots);
    for (i = 0; i < WORLD; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, slots_main, &ranks[i]), 0);
    UNTIL(board->n_open == WORLD);
    call_opts(ranks[0].root, &o);
    assert_int_equal(vb_group_call(&o, &w), VB_OK);
    assert_true(vb_caller_has_slot(w));
    assert_int_equal(vb_caller_root(w, root), VB_OK);
    assert_string_equal(root, ranks[0].root);
    o.root = root;
    assert_int_equal(vb_group_join_called(&o, w, &g), VB_OK);
    vb_caller_close(w);
    assert_int_equal(vb_group_rank(g), WORLD);
    vb_group_close(g);
    end();
}

/* All members open another group, and close this one. */
static vb_status move(const struct t_rank *next, struct vb_group **g_p)
{
    struct vb_group *old = *g_p;
    int rank = vb_group_rank(old);
    struct vb_group_opts opts;
    vb_status st;

    t_group_opts(&job, rank, next->root, next->root_fd, &opts);
    opts.door = vb_group_door(old);
    st = vb_group_open(&opts, g_p);
    if (st == VB_OK)
        st = vb_group_inherit_door(*g_p, old);
    vb_group_close(old);
    return st;
}

static void *move_main(void *arg)
{
    struct t_rank *r = arg;
    const struct t_rank *next = r->job->arg;
    struct vb_group_opts opts;
    struct vb_group *g;
    vb_status st;
    int i;

    t_group_opts(r->job, r->rank, r->root, r->root_fd, &opts);
    st = vb_group_open(&opts, &g);
    if (st == VB_OK && r->rank == 0)
        vb_group_doors(g, board->first_doors);
    for (i = 0; i < MOVES && st == VB_OK; i++)
        st = move(&next[i], &g);
    r->wrong = T_WRONG(st == VB_OK);
    if (st == VB_OK)
        r->wrong += member(g, NULL);
    if (st == VB_OK)
        vb_group_close(g);
    return NULL;
}

/* One who has heard of a member may call it as long as it lives, whatever groups were formed
 * meanwhile. */
static void addresses_outlive_groups(void **state)
{
    struct t_rank next[MOVES] = {{.rank = 0}};
    struct t_job moves = job;
    char one[VB_DOORS_TEXT], *door, *rest;
    struct vb_caller *w;
    int i;

    (void)state;
    reset();
    board->most = 100;
    for (i = 0; i < MOVES; i++)
        next[i].root_fd = t_listen(next[i].root);
    moves.arg = next;
    t_prepare(ranks, &moves);
    for (i = 0; i < WORLD; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, move_main, &ranks[i]), 0);
    UNTIL(board->n_open == WORLD);
    assert_string_equal(board->doors, board->first_doors);
    memcpy(one, board->doors, sizeof(one));
    board->invites = WORLD;
    for (i = 0, door = strtok_r(one, ",", &rest); door != NULL;
         i++, door = strtok_r(NULL, ",", &rest)) {
        w = call_at(door);
        is_invited(w, i);
        vb_caller_close(w);
    }
    assert_int_equal(i, WORLD);
    end();
}

static void invitations_are_checked(void **state)
{
    struct vb_invitation inv = invitation(0), back;
    unsigned char bytes[WIRE_INVITE_BYTES], bad[WIRE_INVITE_BYTES];
    unsigned char doors[WIRE_DOORS_BYTES_MAX];
    struct wire_doors d = {.waits = true, .text = "a:1,b:2"}, e;
    static const struct {
        int at, value;
    } wrong[] = {{0, 0}, {0, 6}, {4, 1}, {5, 9}, {12, 1}, {11, 0x80}, {23, 0x80}, {24, 0}, {26, 7}};
    size_t i;

    (void)state;
    vb_wire_invite_encode(&inv, bytes);
    assert_true(vb_wire_invite_decode(bytes, &back));
    assert_memory_equal(&inv.root, &back.root, sizeof(inv.root));
    assert_int_equal(inv.step, back.step);
    for (i = 0; i < VB_COUNT(wrong); i++) {
        memcpy(bad, bytes, sizeof(bad));
        bad[wrong[i].at] = (unsigned char)wrong[i].value;
        assert_false(vb_wire_invite_decode(bad, &back));
    }
    memset(bytes + 24, 'x', VB_ROOT_TEXT); /* does not end */
    assert_false(vb_wire_invite_decode(bytes, &back));
    i = vb_wire_doors_encode(&d, doors);
    assert_true(vb_wire_doors_decode(doors, i, &e));
    assert_true(e.waits);
    assert_string_equal(d.text, e.text);
    doors[5] = 0;
    assert_false(vb_wire_doors_decode(doors, i, &e));
    assert_false(vb_wire_doors_decode(doors, 3, &e));
    doors[5] = '\n';
    assert_false(vb_wire_doors_decode(doors, i, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invitations_are_checked),
        cmocka_unit_test(another_lead_takes_over), /* forks, so before there are threads */
        cmocka_unit_test(any_member_leads_to_the_lead),
        cmocka_unit_test(who_has_waited_longest_is_invited_first),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(a_job_that_is_full_says_so),
        cmocka_unit_test(faulty_callers_are_dropped),
        cmocka_unit_test(places_are_bounded_and_come_back),
        cmocka_unit_test(a_job_with_slots_gives_one),
        cmocka_unit_test(addresses_outlive_groups),
    };

    return T_RUN(tests);
}
