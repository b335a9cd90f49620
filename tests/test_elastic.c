/* SPDX-License-Identifier: MIT
 *
 * Groups that outlive their ranks: ranks are killed, stopped, dropped and leave while the others
 * put blocks to each other and look at every byte; others come late, also into the seats of the
 * dead; strangers do not get in.
 */
#include "net/handshake.h"
#include "net/sock.h"
#include "tests/elastic.h"

#define SOME_PUTS (t_rdma_only() ? 5 : 200)
#define KILLS (t_rdma_only() ? 2 : 5)

static enum vb_transport_choice transports[3];
static size_t n_transports;
static struct e_board *board;
static pid_t pids[E_PROCS];

/* ---- what tests have in common --------------------------------------------------------------- */

static void board_set_up(enum vb_transport_choice transport, int world, int seats, bool progress)
{
    memset(board, 0, sizeof(*board));
    memset(pids, 0, sizeof(pids));
    board->transport = transport;
    board->world = world;
    board->seats = seats;
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

static void begin(enum vb_transport_choice transport, int world, int seats, bool progress)
{
    board_set_up(transport, world, seats, progress);
    start_ranks();
}

static void newcomer(int proc)
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

/* Has this process put so many blocks to each of the others that run? */
static bool meets_all(int proc, long puts)
{
    int i;

    for (i = 0; i < E_PROCS; i++)
        if (i != proc && pids[i] != 0 &&
            (board->procs[i].rank < 0 || board->procs[proc].puts_at[board->procs[i].rank] < puts))
            return false;
    return board->procs[proc].rank >= 0;
}

/* All that run put to all that run: from now on, so many blocks more. */
static void all_go_on(void)
{
    int i, k;

    for (i = 0; i < E_PROCS; i++)
        for (k = 0; k < E_SEATS && pids[i] != 0; k++)
            board->procs[i].puts_at[k] = 0;
    for (i = 0; i < E_PROCS; i++)
        if (pids[i] != 0)
            E_UNTIL(board, meets_all(i, SOME_PUTS));
}

/* All that run have been told that a seat's rank is gone, so many times. */
static void all_know(int seat, int times)
{
    int i;

    for (i = 0; i < E_PROCS; i++)
        if (pids[i] != 0)
            E_UNTIL(board, board->procs[i].gone[seat] == times);
}

static void end(void)
{
    board->stop = true;
    t_end_all(pids, E_PROCS);
}

/* After a test that failed. */
static int tear_down(void **state)
{
    (void)state;
    t_kill_all(pids, E_PROCS);
    return 0;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* One of four dies at some moment, rank 0 as well as others; three go on. */
static void others_outlive_a_death(void **state)
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
            nanosleep(&nap, NULL); /* in the middle of whatever */
            kill_proc(victim);
            all_know(victim, 1);
            all_go_on();
            end();
        }
    }
}

/* Two die, one after the other; the last two go on, then one alone. */
static void all_but_one_may_die(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 3, 3, false);
        E_UNTIL(board, board->procs[2].puts > 10);
        kill_proc(0);
        all_know(0, 1);
        all_go_on();
        kill_proc(2);
        all_know(2, 1);
        end();
        assert_int_equal(board->procs[1].n_gone, 2);
    }
}

/* ---- stopped, and dropped -------------------------------------------------------------------- */

/* Silent for too long, it is gone; when it goes on it finds that out, and comes back as new. */
static void a_sleeper_finds_out(void **state)
{
    double start;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 3, 4, t % 2 == 1);
        all_go_on();
        assert_int_equal(kill(pids[2], SIGSTOP), 0);
        start = e_now_s();
        E_UNTIL(board, board->procs[0].gone[2] == 1 && board->procs[1].gone[2] == 1);
        assert_true(e_now_s() - start > 1); /* it was silence that told */
        E_UNTIL(board, board->procs[0].puts_at[1] > SOME_PUTS);
        assert_int_equal(kill(pids[2], SIGCONT), 0);
        E_UNTIL(board, board->procs[2].n_out == 1);
        E_UNTIL(board, board->procs[2].rank == 3 && board->procs[0].n_joined == 1);
        all_go_on();
        end();
    }
}

/* A live one is dropped on purpose; what it still sends reaches nobody who dropped it. */
static void a_retired_rank_is_out(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 3, 4, false);
        all_go_on();
        board->procs[1].retire = 2; /* not rank 0: the two go on with it */
        E_UNTIL(board, board->procs[1].gone[2] == 1 && board->procs[2].gone[1] == 1);
        assert_int_equal(board->procs[0].n_gone, 0);
        E_UNTIL(board, board->procs[0].puts_at[1] > SOME_PUTS);
        board->procs[0].retire = 2;
        E_UNTIL(board, board->procs[2].n_out == 1);
        E_UNTIL(board, board->procs[2].rank == 3);
        all_go_on();
        end();
    }
}

/* ---- late ------------------------------------------------------------------------------------ */

static void join_in_vain(const char *said, unsigned char secret, vb_status want)
{
    struct vb_group_opts opts;
    struct vb_group *g;
    struct t_stderr err;
    char text[4096];
    vb_status st;

    e_options(board, -1, &opts);
    memset(opts.secret, secret, sizeof(opts.secret));
    t_stderr_catch(&err);
    st = vb_group_join(&opts, &g);
    t_stderr_release(&err, text, sizeof(text));
    assert_int_equal(st, want);
    assert_non_null(strstr(text, said));
}

/* Who had a seat before comes back with what it knew: the right secret, but an old epoch. */
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
    assert_int_equal(auth_init(), VB_OK);
    auth_random(call.nonce, sizeof(call.nonce));
    assert_int_equal(sock_resolve(board->root, &root), VB_OK);
    assert_int_equal(sock_connect(&root, deadline, &fd), VB_OK);
    t_stderr_catch(&err);
    st = handshake_call(fd, &call, secret, deadline, session);
    t_stderr_release(&err, text, sizeof(text));
    close(fd);
    assert_int_equal(st, VB_ERR_ACCESS);
    assert_non_null(strstr(text, "its epoch is out of date"));
}

/* Two at first; two come late, one dies, its seat is taken again, and then the group is full. */
static void some_come_late(void **state)
{
    size_t t;
    int i;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 2, 4, t % 2 == 0);
        all_go_on();
        newcomer(2);
        E_UNTIL(board, board->procs[0].n_joined == 1 && board->procs[1].n_joined == 1);
        all_go_on();
        kill_proc(1);
        all_know(1, 1);
        old_epochs_are_refused(1);
        join_in_vain("the secrets differ", 8, VB_ERR_ACCESS);
        newcomer(3);
        E_UNTIL(board, board->procs[3].rank == 3); /* the seat that nobody had */
        all_go_on();
        newcomer(4);
        E_UNTIL(board, board->procs[4].rank == 1); /* that of the dead */
        all_go_on();
        for (i = 0; i < E_PROCS; i++)
            if (pids[i] != 0)
                E_UNTIL(board, board->procs[i].epoch == 4);
        old_epochs_are_refused(1);
        join_in_vain("no slot is free", 7, VB_ERR_ACCESS);
        end();
    }
}

/* One is silent and dropped, but lives; another has its seat, at once or when it is dead. */
static void seat_of_the_silent(enum vb_transport_choice transport)
{
    begin(transport, 3, 3, false);
    all_go_on();
    assert_int_equal(kill(pids[2], SIGSTOP), 0);
    E_UNTIL(board, board->procs[0].gone[2] == 1 && board->procs[1].gone[2] == 1);
    if (transport == VB_TRANSPORT_SHM) {
        join_in_vain("no slot is free", 7, VB_ERR_ACCESS);
        kill_proc(2);
    }
    newcomer(3);
    E_UNTIL(board, board->procs[3].rank == 2);
    if (pids[2] != 0)
        kill_proc(2);
    all_go_on();
    end();
}

/* A process that was dropped, but lives, could still write where its seat was: nobody has that seat
 * before the process is dead. */
static void seats_of_the_living_stay_empty(void **state)
{
    (void)state;
    if (t_runs_over(VB_TRANSPORT_SHM))
        seat_of_the_silent(VB_TRANSPORT_SHM);
    else
        skip();
}

/* Where no memory is mapped it could not, and its connections are shut. */
static void seats_of_the_fenced_are_free(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        if (transports[t] != VB_TRANSPORT_SHM)
            seat_of_the_silent(transports[t]);
}

/* One seat, taken again and again, by some who die and some who leave: nothing is left behind. */
static void seats_are_used_again(void **state)
{
    int fds = 0, n, joined = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 2, 3, false);
        all_go_on();
        for (n = 0; n < 2 * KILLS; n++) {
            newcomer(2);
            joined = n + 1;
            E_UNTIL(board, board->procs[0].n_joined == joined);
            E_UNTIL(board, board->procs[0].puts_at[2] > 5 && board->procs[2].puts > 5);
            if (n % 2 == 0)
                kill_proc(2);
            else
                leave_proc(2);
            all_know(2, n + 1);
            E_UNTIL(board, board->procs[0].left[2] == n % 2);
            board->procs[0].n_fds = 0;
            E_UNTIL(board, board->procs[0].n_fds > 0);
            if (n == 0)
                fds = board->procs[0].n_fds;
        }
        assert_int_equal(board->procs[0].n_fds, fds);
        end();
    }
}

/* Who is early waits until it is welcome. */
static void who_is_early_waits(void **state)
{
    struct timespec nap = {.tv_nsec = 400000000};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        board_set_up(transports[t], 2, 3, t % 2 == 1);
        board->closed = true;
        start_ranks();
        newcomer(2);
        E_UNTIL(board, board->procs[0].puts_at[1] > SOME_PUTS);
        nanosleep(&nap, NULL);
        assert_int_equal(board->procs[2].rank, -1);
        board->closed = false;
        E_UNTIL(board, board->procs[2].rank == 2 && board->procs[0].n_joined == 1);
        all_go_on();
        end();
    }
}

/* Joins, and opens no window; until it shall leave. */
static void lurk(int proc)
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

/* It is connected with, into a seat that another had; but nothing can be put to it. */
static void who_opens_no_window_is_not_put_to(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        begin(transports[t], 2, 3, false);
        newcomer(2);
        E_UNTIL(board, board->procs[0].puts_at[2] > 5);
        kill_proc(2);
        all_know(2, 1);
        board->procs[3].leave = false;
        board->procs[3].rank = -1;
        pids[3] = fork();
        assert_true(pids[3] >= 0);
        if (pids[3] == 0)
            lurk(3);
        E_UNTIL(board, board->procs[3].rank == 2);
        board->procs[0].poke = 2;
        E_UNTIL(board, board->procs[0].poke < 0);
        leave_proc(3);
        all_go_on();
        end();
    }
}

/* A group that is not elastic, and one that has not opened, take nobody. */
static int stays_as_it_is(struct vb_group *g, void *arg)
{
    struct e_board b = {.world = vb_group_world(g), .transport = VB_TRANSPORT_TCP};
    struct vb_group_opts opts;
    struct vb_group *late;

    memcpy(b.root, arg, sizeof(b.root));
    e_options(&b, -1, &opts);
    return T_WRONG(vb_group_join(&opts, &late) == VB_ERR_ACCESS) +
           T_WRONG(!vb_group_gone(g, 0) && vb_group_seats(g) == 1) +
           T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void others_are_closed(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 1, .fn = stays_as_it_is};
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
    opts.seats = 2; /* not elastic */
    assert_int_equal(vb_group_open(&opts, &g), VB_ERR_USAGE);
    t_stderr_release(&err, text, sizeof(text));
    assert_int_equal(rank.wrong, 0);
    assert_non_null(strstr(text, "no rank can join this job after its start"));
}

/* ---- several machines ------------------------------------------------------------------------ */

/* Node 0 has rank 0 and nobody else; from each of the others one comes and is killed, then another
 * comes and leaves. VB_RANK and its like say who is who. */
static void ranks_of_other_machines(void **state)
{
    int node = t_number("VB_RANK"), nodes = t_number("VB_WORLD");
    const char *root = getenv("VB_ROOT");

    (void)state;
    assert_non_null(root);
    board_set_up(t_rdma_only() ? VB_TRANSPORT_VERBS : VB_TRANSPORT_TCP, 1, E_SEATS, true);
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
    newcomer(1);
    E_UNTIL(board, board->procs[1].puts > SOME_PUTS);
    kill_proc(1);
    newcomer(2);
    E_UNTIL(board, board->procs[2].puts > SOME_PUTS);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(others_outlive_a_death, tear_down),
        cmocka_unit_test_teardown(all_but_one_may_die, tear_down),
        cmocka_unit_test_teardown(a_sleeper_finds_out, tear_down),
        cmocka_unit_test_teardown(a_retired_rank_is_out, tear_down),
        cmocka_unit_test_teardown(some_come_late, tear_down),
        cmocka_unit_test_teardown(who_is_early_waits, tear_down),
        cmocka_unit_test_teardown(who_opens_no_window_is_not_put_to, tear_down),
        cmocka_unit_test_teardown(seats_of_the_living_stay_empty, tear_down),
        cmocka_unit_test_teardown(seats_of_the_fenced_are_free, tear_down),
        cmocka_unit_test_teardown(seats_are_used_again, tear_down),
        cmocka_unit_test_teardown(others_are_closed, tear_down),
    };
    const struct CMUnitTest across[] = {
        cmocka_unit_test_teardown(ranks_of_other_machines, tear_down)};

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    if (getenv("VB_RANK") != NULL)
        return T_RUN(across);
    n_transports = t_find_transports(transports);
    return T_RUN(tests);
}
