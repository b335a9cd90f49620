/* SPDX-License-Identifier: MIT
 *
 * Tests that elastic groups continue when ranks fail. Ranks are killed, stopped or dropped, or they
 * leave, while the other ranks put blocks to each other and check every byte. Other ranks join
 * later, some of them into slots of dead ranks. Strangers are refused.
 *
 * Covers: net/control/join.c net/control/membership.c net/group/joiner.c net/group/member.c
 * Covers: net/group/window_exchange.c
 */
#include "net/control/handshake.h"
#include "net/control/root_resolve.h"
#include "tests/support/elastic.h"

#define SOME_PUTS (t_rdma_only() ? 5 : 200)
#define KILLS (t_rdma_only() ? 2 : 5)

static enum vb_transport_choice transports[T_TRANSPORTS];
static size_t n_transports;
static struct e_board *board;
static pid_t pids[E_PROCS];

/* ---- helpers --------------------------------------------------------------------------------- */

static void board_set_up(enum vb_transport_choice transport, int world, int slots, bool progress)
{
    memset(board, 0, sizeof(*board));
    memset(pids, 0, sizeof(pids));
    board->transport = transport;
    board->world = world;
    board->slots = slots;
    board->progress = progress;
    e_root_fd = t_listen(board->root);
}

static void start_ranks(void)
{
    int i;

    for (i = 0; i < board->world; i++)
        pids[i] = e_fork(board, i, i);
    close(e_root_fd);
    e_root_fd = -1;
}

static void begin(enum vb_transport_choice transport, int world, int slots, bool progress)
{
    board_set_up(transport, world, slots, progress);
    start_ranks();
}

static void start_joiner(int proc)
{
    pids[proc] = e_fork(board, proc, -1);
}

static void kill_proc(int proc)
{
    int status;

    assert_int_equal(kill(pids[proc], SIGKILL), 0);
    assert_int_equal(waitpid(pids[proc], &status, 0), pids[proc]);
    pids[proc] = 0;
}

static void leave_proc(int proc)
{
    int status;

    board->procs[proc].leave = true;
    assert_int_equal(waitpid(pids[proc], &status, 0), pids[proc]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pids[proc] = 0;
}

/* Returns whether this process has put at least `puts` blocks to every other running process. */
static bool has_put_to_all(int proc, long puts)
{
    int i;

    for (i = 0; i < E_PROCS; i++)
        if (i != proc && pids[i] != 0 &&
            (board->procs[i].rank < 0 || board->procs[proc].puts_at[board->procs[i].rank] < puts))
            return false;
    return board->procs[proc].rank >= 0;
}

/* Waits until all running processes have put SOME_PUTS more blocks to all others. */
static void all_make_progress(void)
{
    int i, k;

    for (i = 0; i < E_PROCS; i++)
        for (k = 0; k < E_SLOTS && pids[i] != 0; k++)
            board->procs[i].puts_at[k] = 0;
    for (i = 0; i < E_PROCS; i++)
        if (pids[i] != 0)
            E_UNTIL(board, has_put_to_all(i, SOME_PUTS));
}

/* Waits until every running process has noticed `times` losses of a rank in this slot. */
static void all_noticed(int slot, int times)
{
    int i;

    for (i = 0; i < E_PROCS; i++)
        if (pids[i] != 0)
            E_UNTIL(board, board->procs[i].gone[slot] == times);
}

static void end(void)
{
    board->stop = true;
    t_end_all(pids, E_PROCS);
}

/* Cleans up after a test that failed. */
static int tear_down(void **state)
{
    (void)state;
    t_kill_all(pids, E_PROCS);
    return 0;
}

/* ---- ranks that die -------------------------------------------------------------------------- */

/* One of four ranks, which may be rank 0, dies at a random moment. The other three continue. */
static void other_ranks_survive_a_death(void **state)
{
    unsigned seed = 20261115;
    int round, victim;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        for (round = 0; round < KILLS; round++) {
            struct timespec nap = {.tv_nsec = rand_r(&seed) % 20000000};

            victim = round % 4;
            begin(transports[t], 4, 4, round % 2 == 1);
            E_UNTIL(board, board->procs[victim].puts > 20);
            nanosleep(&nap, NULL); /* so that the rank dies at a random moment of its work */
            kill_proc(victim);
            all_noticed(victim, 1);
            all_make_progress();
            end();
        }
    }
}

/* Two of three ranks die, one after the other. After the first death two ranks continue, and after
 * the second death one rank continues alone. */
static void all_but_one_may_die(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 3, 3, false);
        E_UNTIL(board, board->procs[2].puts > 10);
        kill_proc(0);
        all_noticed(0, 1);
        all_make_progress();
        kill_proc(2);
        all_noticed(2, 1);
        end();
        assert_int_equal(board->procs[1].n_gone, 2);
    }
}

/* ---- ranks that are stopped or dropped ------------------------------------------------------- */

/* A rank that is silent for too long is dropped. When this rank runs again, it notices that it was
 * dropped, and joins as a new rank. */
static void a_stopped_rank_notices_that_it_was_dropped(void **state)
{
    double start;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 3, 4, t % 2 == 1);
        all_make_progress();
        assert_int_equal(kill(pids[2], SIGSTOP), 0);
        start = e_now_s();
        E_UNTIL(board, board->procs[0].gone[2] == 1 && board->procs[1].gone[2] == 1);
        assert_true(e_now_s() - start >
                    VB_DETECT_S / 2); /* so the others noticed by silence only */
        E_UNTIL(board, board->procs[0].puts_at[1] > SOME_PUTS);
        assert_int_equal(kill(pids[2], SIGCONT), 0);
        E_UNTIL(board, board->procs[2].n_out == 1);
        E_UNTIL(board, board->procs[2].rank == 3 && board->procs[0].n_joined == 1);
        all_make_progress();
        end();
    }
}

/* A live rank is dropped on purpose. The ranks that have dropped it receive nothing from it any
 * more. */
static void a_retired_rank_reaches_nobody(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 3, 4, false);
        all_make_progress();
        board->procs[1].retire = 2; /* rank 1, not rank 0, drops rank 2; ranks 0 and 1 continue */
        E_UNTIL(board, board->procs[1].gone[2] == 1 && board->procs[2].gone[1] == 1);
        assert_int_equal(board->procs[0].n_gone, 0);
        E_UNTIL(board, board->procs[0].puts_at[1] > SOME_PUTS);
        board->procs[0].retire = 2;
        E_UNTIL(board, board->procs[2].n_out == 1);
        E_UNTIL(board, board->procs[2].rank == 3);
        all_make_progress();
        end();
    }
}

/* The data connection of a pair fails, but both live. Each must know that the other may go on. */
static void a_broken_data_connection_is_no_death(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        if (transports[t] == VB_TRANSPORT_SHM)
            continue; /* no network lies between its ranks */
        begin(transports[t], 3, 4, false);
        all_make_progress();
        board->procs[2].sever = 1;
        E_UNTIL(board,
                board->procs[1].end[2] != VB_END_NONE && board->procs[2].end[1] != VB_END_NONE);
        assert_true(board->procs[1].end[2] == VB_END_SILENT ||
                    board->procs[1].end[2] == VB_END_DROPPED_US);
        assert_true(board->procs[2].end[1] == VB_END_SILENT ||
                    board->procs[2].end[1] == VB_END_DROPPED_US);
        assert_int_equal(board->procs[0].n_gone, 0);
        end();
    }
}

/* ---- joiners --------------------------------------------------------------------------------- */

static void join_is_refused(const char *said, unsigned char byte, vb_status want)
{
    unsigned char secret[VB_SECRET_BYTES];
    struct vb_group_opts opts;
    struct vb_group *g;
    struct t_stderr err;
    char text[4096];
    vb_status st;

    e_options(board, -1, &opts);
    memset(secret, byte, sizeof(secret));
    opts.secret = secret;
    t_stderr_catch(&err);
    st = vb_group_join(&opts, &g);
    t_stderr_release(&err, text, sizeof(text));
    assert_int_equal(st, want);
    assert_non_null(strstr(text, said));
}

/* A rank that had this slot before connects again with the right secret, but with an old epoch, and
 * must be refused. */
static void old_epochs_are_refused(int rank)
{
    struct wire_call call = {
        .version = WIRE_VERSION, .kind = WIRE_CONTROL, .world = (uint32_t)board->world, .epoch = 1};
    unsigned char secret[32], session[32];
    uint64_t deadline = vb_clock_ns() + 10000000000u;
    struct sock_addr root;
    struct t_stderr err;
    char text[4096];
    vb_status st;
    int fd;

    memset(secret, 7, sizeof(secret));
    call.rank = (uint32_t)rank;
    assert_int_equal(vb_auth_init(), VB_OK);
    vb_auth_random(call.nonce, sizeof(call.nonce));
    assert_int_equal(vb_sock_resolve(board->root, &root), VB_OK);
    assert_int_equal(vb_sock_connect(&root, deadline, &fd), VB_OK);
    t_stderr_catch(&err);
    st = vb_handshake_call(fd, &call, secret, deadline, session);
    t_stderr_release(&err, text, sizeof(text));
    close(fd);
    assert_int_equal(st, VB_ERR_ACCESS);
    assert_non_null(strstr(text, "the epoch of the caller is out of date"));
}

/* Two ranks start. Two ranks join later, one rank dies, and another rank takes the slot of the dead
 * one. Then the group is full. */
static void joiners_fill_the_slots(void **state)
{
    size_t t;
    int i;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 2, 4, t % 2 == 0);
        all_make_progress();
        start_joiner(2);
        E_UNTIL(board, board->procs[0].n_joined == 1 && board->procs[1].n_joined == 1);
        all_make_progress();
        kill_proc(1);
        all_noticed(1, 1);
        old_epochs_are_refused(1);
        join_is_refused("the secrets differ", 8, VB_ERR_ACCESS);
        start_joiner(3);
        E_UNTIL(board, board->procs[3].rank == 3); /* joins in the slot that was never used */
        all_make_progress();
        start_joiner(4);
        E_UNTIL(board, board->procs[4].rank == 1); /* joins in the slot of the dead rank */
        all_make_progress();
        for (i = 0; i < E_PROCS; i++)
            if (pids[i] != 0)
                E_UNTIL(board, board->procs[i].epoch == 4);
        old_epochs_are_refused(1);
        join_is_refused("no slot is free", 7, VB_ERR_ACCESS);
        end();
    }
}

/* A rank that is silent is dropped, but its process still exists. A joiner gets the slot of this
 * rank at once or, with shared memory, after the process is dead. */
static void reuse_slot_of_silent_rank(enum vb_transport_choice transport)
{
    begin(transport, 3, 3, false);
    all_make_progress();
    assert_int_equal(kill(pids[2], SIGSTOP), 0);
    E_UNTIL(board, board->procs[0].gone[2] == 1 && board->procs[1].gone[2] == 1);
    if (transport == VB_TRANSPORT_SHM) {
        join_is_refused("no slot is free", 7, VB_ERR_ACCESS);
        kill_proc(2);
    }
    start_joiner(3);
    E_UNTIL(board, board->procs[3].rank == 2);
    if (pids[2] != 0)
        kill_proc(2);
    all_make_progress();
    end();
}

/* With shared memory, a dropped process that still runs could write to its old slot. So nobody may
 * get the slot before the process is dead. */
static void slots_of_live_processes_stay_empty(void **state)
{
    (void)state;
    if (t_runs_over(VB_TRANSPORT_SHM))
        reuse_slot_of_silent_rank(VB_TRANSPORT_SHM);
    else
        skip();
}

/* Without shared memory the dropped process cannot write, because its connections are closed. So
 * its slot is free at once. */
static void slots_of_fenced_ranks_are_free(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        if (transports[t] != VB_TRANSPORT_SHM)
            reuse_slot_of_silent_rank(transports[t]);
}

/* Many ranks use one slot, one after the other. Some of them die and some leave. No file descriptor
 * may be left open. */
static void slots_are_used_again(void **state)
{
    int fds = 0, n, joined = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 2, 3, false);
        all_make_progress();
        for (n = 0; n < 2 * KILLS; n++) {
            start_joiner(2);
            joined = n + 1;
            E_UNTIL(board, board->procs[0].n_joined == joined);
            E_UNTIL(board, board->procs[0].puts_at[2] > 5 && board->procs[2].puts > 5);
            if (n % 2 == 0)
                kill_proc(2);
            else
                leave_proc(2);
            all_noticed(2, n + 1);
            E_UNTIL(board, board->procs[0].end[2] == (n % 2 ? VB_END_LEFT : VB_END_DIED));
            board->procs[0].n_fds = 0;
            E_UNTIL(board, board->procs[0].n_fds > 0);
            if (n == 0)
                fds = board->procs[0].n_fds;
        }
        assert_int_equal(board->procs[0].n_fds, fds);
        end();
    }
}

/* A joiner that connects too early waits until rank 0 admits it. */
static void an_early_joiner_waits(void **state)
{
    struct timespec nap = {.tv_nsec = 400000000};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        board_set_up(transports[t], 2, 3, t % 2 == 1);
        board->closed = true;
        start_ranks();
        start_joiner(2);
        E_UNTIL(board, board->procs[0].puts_at[1] > SOME_PUTS);
        nanosleep(&nap, NULL);
        assert_int_equal(board->procs[2].rank, -1);
        board->closed = false;
        E_UNTIL(board, board->procs[2].rank == 2 && board->procs[0].n_joined == 1);
        all_make_progress();
        end();
    }
}

/* Joins the group but opens no window. Stays until the test tells it to leave. */
static void join_without_window(int proc)
{
    struct timespec pause = {.tv_nsec = 1000000};
    struct vb_group_opts opts;
    struct vb_group *g;

    e_options(board, -1, &opts);
    if (vb_group_join(&opts, &g) != VB_OK)
        _exit(1);
    board->procs[proc].rank = vb_group_rank(g);
    while (!board->procs[proc].leave && !board->stop)
        nanosleep(&pause, NULL);
    vb_group_close(g);
    _exit(0);
}

/* A joiner that opens no window gets a used slot and is connected, but puts to the joiner must
 * fail. */
static void puts_to_a_joiner_without_a_window_fail(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 2, 3, false);
        start_joiner(2);
        E_UNTIL(board, board->procs[0].puts_at[2] > 5);
        kill_proc(2);
        all_noticed(2, 1);
        board->procs[3].leave = false;
        board->procs[3].rank = -1;
        pids[3] = t_fork();
        if (pids[3] == 0)
            join_without_window(3);
        E_UNTIL(board, board->procs[3].rank == 2);
        board->procs[0].poke = 2;
        E_UNTIL(board, board->procs[0].poke < 0);
        leave_proc(3);
        all_make_progress();
        end();
    }
}

/* Joins until rank 0 has its card and waits for its RDMA connection, as vb_group_join() does. */
static vb_status join_until_card(void)
{
    uint64_t deadline = vb_clock_ns() + (uint64_t)(E_WAIT_S * e_patience() * 1e9);
    struct wire_member members[E_SLOTS];
    struct auth_session session;
    struct vb_device *verbs = NULL;
    struct vb_group_opts o;
    struct wire_slot slot;
    struct wire_card card;
    struct sock_addr root;
    struct vb_group *g;
    vb_status st;
    int fd;

    e_options(board, -1, &o);
    if (vb_auth_init() != VB_OK || vb_root_resolve(o.root, &root) != VB_OK ||
        vb_control_ask_slot(&root, o.secret, deadline, &slot, &fd, &session) != VB_OK)
        return VB_ERR_IO;
    o.rank = (int)slot.slot;
    o.root_fd = -1;
    st = vb_group_alloc(&o, &g);
    if (st == VB_OK) {
        g->epoch = slot.epoch;
        st = vb_group_listen_towards(g, &root);
    }
    if (st != VB_OK)
        return st;
    vb_control_adopt(g->control, 0, fd, &session);
    st = vb_control_meet_members(g->control, &g->peers[g->rank].info, members, deadline);
    if (st == VB_OK)
        st = vb_pair_device_open(g, &vb_transport_verbs, &verbs);
    if (st == VB_OK)
        st = vb_pair_card(g, verbs, &card);
    if (st == VB_OK)
        st = vb_control_send_card(g->control, 0, &card);
    return st == VB_OK ? vb_control_wait_card(g->control, 0, deadline, &card) : st;
}

/* A joiner dies after it has sent its card, so it never connects over RDMA. Rank 0 waits for it
 * under the lock of the group, but no longer than it takes to notice the death: the time for a
 * connection is 5 s, multiplied by the patience. */
static void a_joiner_that_dies_after_its_card_stalls_nobody(void **state)
{
    double begun;
    int status;
    long puts;

    (void)state;
    if (!vb_net_rdma_any_usable())
        skip();
    begin(VB_TRANSPORT_VERBS, 2, 3, false);
    all_make_progress();
    pids[2] = t_fork();
    if (pids[2] == 0)
        _exit(join_until_card() == VB_OK ? 0 : 1);
    assert_int_equal(waitpid(pids[2], &status, 0), pids[2]);
    pids[2] = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    begun = e_now_s();
    puts = board->procs[0].puts;
    E_UNTIL(board, board->procs[0].puts > puts + 1);
    assert_true(e_now_s() - begun < 2.5 * e_patience());
    start_joiner(3); /* the slot is free again */
    E_UNTIL(board, board->procs[0].puts_at[2] > 1);
    end();
}

/* Tries to join a group that is not elastic. The group must refuse this. */
static int admits_nobody(struct vb_group *g, void *arg)
{
    struct e_board b = {.world = vb_group_world(g), .transport = VB_TRANSPORT_TCP};
    struct vb_group_opts opts;
    struct vb_group *late;

    memcpy(b.root, arg, sizeof(b.root));
    e_options(&b, -1, &opts);
    return T_WRONG(vb_group_join(&opts, &late) == VB_ERR_ACCESS) +
           T_WRONG(!vb_group_gone(g, 0) && vb_group_slots(g) == 1) +
           T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void groups_that_are_not_elastic_admit_nobody(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 1, .fn = admits_nobody};
    struct t_rank rank = {.job = &job};
    struct vb_group_opts opts;
    struct vb_group *g;
    struct t_stderr err;
    char text[4096];

    (void)state;
    if (t_rdma_only())
        return;
    rank.root_fd = t_listen(rank.root);
    job.arg = rank.root;
    t_stderr_catch(&err);
    t_rank_main(&rank);
    t_group_opts(&job, 0, "127.0.0.1:1", -1, &opts);
    opts.slots = 2; /* more slots than ranks, although the group is not elastic */
    assert_int_equal(vb_group_open(&opts, &g), VB_ERR_USAGE);
    t_stderr_release(&err, text, sizeof(text));
    assert_int_equal(rank.wrong, 0);
    assert_non_null(strstr(text, "no rank can join this job after its start"));
}

/* ---- several machines ------------------------------------------------------------------------ */

/* Node 0 runs only rank 0. On every other node a first joiner is killed, and then a second one
 * joins and leaves. VB_RANK, VB_WORLD and VB_ROOT tell each node its number, the number of nodes
 * and the address of rank 0. */
static void ranks_on_other_machines_join_and_leave(void **state)
{
    int node = t_number("VB_RANK"), nodes = t_number("VB_WORLD");
    const char *root = getenv("VB_ROOT");

    (void)state;
    assert_non_null(root);
    board_set_up(t_rdma_only() ? VB_TRANSPORT_VERBS : VB_TRANSPORT_TCP, 1, E_SLOTS, true);
    close(e_root_fd);
    e_root_fd = -1;
    snprintf(board->root, sizeof(board->root), "%s", root);
    if (node == 0) {
        board->until_gone = 2 * (nodes - 1);
        pids[0] = e_fork(board, 0, 0);
        end();
        assert_int_equal(board->procs[0].n_joined, board->until_gone);
        return;
    }
    start_joiner(1);
    E_UNTIL(board, board->procs[1].puts > SOME_PUTS);
    kill_proc(1);
    start_joiner(2);
    E_UNTIL(board, board->procs[2].puts > SOME_PUTS);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(other_ranks_survive_a_death, tear_down),
        cmocka_unit_test_teardown(all_but_one_may_die, tear_down),
        cmocka_unit_test_teardown(a_stopped_rank_notices_that_it_was_dropped, tear_down),
        cmocka_unit_test_teardown(a_retired_rank_reaches_nobody, tear_down),
        cmocka_unit_test_teardown(a_broken_data_connection_is_no_death, tear_down),
        cmocka_unit_test_teardown(joiners_fill_the_slots, tear_down),
        cmocka_unit_test_teardown(an_early_joiner_waits, tear_down),
        cmocka_unit_test_teardown(puts_to_a_joiner_without_a_window_fail, tear_down),
        cmocka_unit_test_teardown(a_joiner_that_dies_after_its_card_stalls_nobody, tear_down),
        cmocka_unit_test_teardown(slots_of_live_processes_stay_empty, tear_down),
        cmocka_unit_test_teardown(slots_of_fenced_ranks_are_free, tear_down),
        cmocka_unit_test_teardown(slots_are_used_again, tear_down),
        cmocka_unit_test_teardown(groups_that_are_not_elastic_admit_nobody, tear_down),
    };
    const struct CMUnitTest across[] = {
        cmocka_unit_test_teardown(ranks_on_other_machines_join_and_leave, tear_down)};

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    if (getenv("VB_RANK") != NULL)
        return T_RUN(across);
    n_transports = t_find_transports(transports);
    return T_RUN(tests);
}
