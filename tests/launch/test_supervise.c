/* SPDX-License-Identifier: MIT
 *
 * Tests how the supervisor starts ranks, and how a job ends.
 *
 * Covers: launch/supervise/supervise_signal.c launch/supervise/supervise_spawn.c
 */
#include "tests/support/supervised.h"

#include <sys/socket.h>
#include <time.h>

/* ---- what ranks can do ----------------------------------------------------------------------- */

static int do_launch(void)
{
    int listening = 0;
    socklen_t len = sizeof(listening);

    if (me.root_fd >= 0)
        getsockopt(me.root_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
    fprintf(stderr, "%d of %d, %d of %d here, %s, %s, secret %08x\n", me.rank, me.world,
            me.local_rank, me.local_ranks, strncmp(me.root, "127.0.0.1:", 10) == 0 ? "root" : "?",
            listening ? "listens" : "does not listen",
            (unsigned)vb_crc32c(0, me.secret, sizeof(me.secret)));
    return getenv("VB_SECRET_FD") != NULL || getenv("VB_RANK") != NULL || getenv("HOME") == NULL;
}

/* Prints "up" and the process id, and sleeps for a minute. */
static int do_wait(void)
{
    fprintf(stderr, "up %ld\n", (long)getpid());
    sleep(60);
    return 0;
}

/* Does nothing. But SIGCONT interrupts the sleep, so the process ends when it is continued after a
 * stop. */
static void went_on(int number)
{
    (void)number;
}

static int do_short(void)
{
    struct sigaction action = {.sa_handler = went_on};

    sigaction(SIGCONT, &action, NULL);
    return do_wait();
}

static int do_stubborn(void)
{
    signal(SIGTERM, SIG_IGN);
    return do_wait();
}

static int do_die(void)
{
    if (me.rank == 1)
        raise(SIGKILL);
    return do_wait();
}

/* Rank 2 fails after training has begun, so the job could continue without it. But the other ranks
 * are stopped. */
static int do_still(void)
{
    vb_launch_tell_begun(&me);
    if (me.rank == 2)
        return 3;
    raise(SIGSTOP);
    return 0;
}

/* Rank 2 fails after all ranks have printed two lines. These lines must not make the supervisor
 * believe that training has begun. The first line once had this effect. The second line has it only
 * over ssh, and only with the secret of the job. */
static int do_forge(void)
{
    struct timespec nap = {.tv_nsec = 500000000}; /* the others have printed by then */
    char line[VB_BEGUN_TEXT];

    fprintf(stderr, "\033[mtraining has begun\n");
    if (me.over_ssh)
        me.secret[0] ^= 1;
    if (vb_launch_begun_line(me.secret, line) != VB_OK)
        return 97;
    fprintf(stderr, "%s\n", line);
    if (me.rank != 2)
        return do_wait();
    nanosleep(&nap, NULL);
    return 3;
}

/* Leaves a process behind, which keeps the pipes open. */
static int do_leave(void)
{
    if (me.rank == 1 && fork() == 0)
        sleep(60);
    return 0;
}

static int do_usage(void)
{
    return me.rank == 1 ? 2 : 0;
}

/* Rank 1 exits first, but only because rank 0 is about to give up. */
static int do_late_usage(void)
{
    struct timespec nap = {.tv_nsec = 90000000};

    if (me.rank == 1)
        return 1;
    nanosleep(&nap, NULL);
    return 2;
}

static int do_fail(void)
{
    return me.rank == 1 ? 3 : 0;
}

static const struct part parts[] = {
    {"launch", do_launch},
    {"wait", do_wait},
    {"die", do_die},
    {"stubborn", do_stubborn},
    {"leave", do_leave},
    {"usage", do_usage},
    {"fail", do_fail},
    {"still", do_still},
    {"forge", do_forge},
    {"short", do_short},
    {"late-usage", do_late_usage},
};

/* ---- tests ----------------------------------------------------------------------------------- */

static void ranks_get_their_environment(void **state)
{
    char first[64], second[64];
    struct watched w;

    (void)state;
    setenv("VB_RANK", "7", 1); /* another program may have set this variable */
    run(&w, 2, "launch");
    unsetenv("VB_RANK");
    assert_int_equal(w.exit_code, 0);
    assert_non_null(strstr(w.err_text, "[rank 0] 0 of 2, 0 of 2 here, root, listens, secret "));
    assert_non_null(strstr(w.err_text, "1 of 2, 1 of 2 here, root, does not listen, secret "));
    assert_int_equal(sscanf(strstr(w.err_text, "secret"), "secret %63s", first), 1);
    assert_int_equal(sscanf(strrchr(w.err_text, ' '), " %63s", second), 1);
    assert_string_equal(first, second);
    forget(&w);
}

static void a_death_is_named_and_ends_the_others(void **state)
{
    struct watched w;

    (void)state;
    run(&w, 3, "die");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 1 died: signal 9 (Killed)\n"));
    assert_null(strstr(w.err_text, "rank 0 died"));
    assert_null(strstr(w.err_text, "rank 2 died"));
    assert_true(w.seconds >= GRACE_MS / 1e3 && w.seconds < 30);
    forget(&w);
}

static void the_exit_code_is_that_of_the_job(void **state)
{
    struct watched w;

    (void)state;
    run(&w, 2, "usage");
    assert_int_equal(w.exit_code, 2);
    assert_non_null(strstr(w.err_text, "rank 1 failed with exit code 2\n"));
    forget(&w);
    run(&w, 2, "late-usage");
    assert_int_equal(w.exit_code, 2);
    assert_non_null(strstr(w.err_text, "rank 1 failed with exit code 1\n"));
    assert_non_null(strstr(w.err_text, "rank 0 failed with exit code 2\n"));
    forget(&w);
    run(&w, 2, "fail");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 1 failed with exit code 3\n"));
    forget(&w);
    program = "/nonexistent/verbena";
    run(&w, 2, "wait");
    program = NULL;
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "could not execute /nonexistent/verbena\n"));
    forget(&w);
}

/* Asserts that the n processes whose ids the ranks printed have ended. If the supervisor was
 * killed, these processes are children of the test, because the test is the reaper of its
 * descendants. Otherwise the supervisor has reaped them. */
static void ranks_are_gone(const struct watched *w, int n)
{
    const char *at = w->err_text;
    int i, status;
    long pid;

    for (i = 0; i < n; i++) {
        at = strstr(at, "up ");
        assert_non_null(at);
        pid = strtol(at + 3, NULL, 10);
        at += 3;
        if (waitpid((pid_t)pid, &status, 0) == pid)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(kill((pid_t)pid, 0) != 0 && errno == ESRCH);
    }
}

static void a_rank_that_ignores_sigterm_is_killed(void **state)
{
    struct watched w;

    (void)state;
    start(&w, 3, "stubborn");
    await(&w, "up ", 3);
    kill((pid_t)strtol(strstr(w.err_text, "[rank 0] up ") + 12, NULL, 10), SIGUSR1);
    finish(&w);
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 0 died: signal 10 (User defined signal 1)\n"));
    assert_true(w.seconds >= 2 * GRACE_MS / 1e3 && w.seconds < 30);
    ranks_are_gone(&w, 3);
    forget(&w);
}

/* Stopped ranks do not react to SIGTERM, so the supervisor must kill them. The test has two stopped
 * ranks, and then three. */
static void stopped_survivors_are_killed(void **state)
{
    struct watched w;
    int ranks;

    (void)state;
    outlive = true;
    for (ranks = 3; ranks <= 4; ranks++) {
        run(&w, ranks, "still");
        assert_int_equal(w.exit_code, 1);
        assert_non_null(strstr(w.err_text, "rank 2 failed with exit code 3; training goes on\n"));
        assert_non_null(strstr(w.err_text, "rank 0 is stopped, and no other rank is left"));
        assert_non_null(strstr(w.err_text, "rank 1 is stopped, and no other rank is left"));
        assert_true((strstr(w.err_text, "rank 3 is stopped") != NULL) == (ranks == 4));
        assert_true(w.seconds >= 2 * GRACE_MS / 1e3 && w.seconds < 30);
        forget(&w);
    }
    outlive = false;
}

/* If a rank fails before training has begun, the job must end. */
static void all_ranks_are_needed_before_training(void **state)
{
    struct watched w;

    (void)state;
    outlive = true;
    run(&w, 3, "die");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 1 died: signal 9"));
    assert_null(strstr(w.err_text, "training"));
    assert_true(w.seconds < 30);
    forget(&w);
    outlive = false;
}

/* Only a message through the pipe tells the supervisor that training has begun. Printed lines must
 * not have this effect. */
static void printed_lines_do_not_steer(void **state)
{
    struct watched w;

    (void)state;
    outlive = true;
    run(&w, 3, "forge");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 2 failed with exit code 3\n"));
    assert_null(strstr(w.err_text, "training goes on"));
    assert_non_null(strstr(w.err_text, "[rank 0] \033[mtraining has begun\n"));
    assert_non_null(strstr(w.err_text, "[rank 0] verbena-begun 1 "));
    assert_true(w.seconds < 30);
    forget(&w);
    over_ssh = true;
    run(&w, 3, "forge");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 2 on host 127.0.0.2 failed with exit code 3\n"));
    assert_null(strstr(w.err_text, "training goes on"));
    forget(&w);
    outlive = over_ssh = false;
}

/* Over ssh, a line on standard error tells the supervisor that training has begun. The supervisor
 * must not show this line to the user. */
static void training_has_begun_over_ssh(void **state)
{
    struct watched w;

    (void)state;
    outlive = over_ssh = true;
    run(&w, 3, "still");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(
        strstr(w.err_text, "rank 2 on host 127.0.0.2 failed with exit code 3; training goes on\n"));
    assert_null(strstr(w.err_text, "verbena-begun"));
    forget(&w);
    outlive = over_ssh = false;
}

/* If all ranks are stopped and no rank has failed, the job is only paused. */
static void a_paused_job_continues(void **state)
{
    struct watched w;
    pid_t pid[2];
    int i;

    (void)state;
    outlive = true;
    start(&w, 2, "short");
    await(&w, "up ", 2);
    for (i = 0; i < 2; i++) {
        pid[i] = (pid_t)strtol(strstr(w.err_text, i == 0 ? "[rank 0] up " : "[rank 1] up ") + 12,
                               NULL, 10);
        assert_int_equal(kill(pid[i], SIGSTOP), 0);
    }
    poll(NULL, 0, 4 * GRACE_MS);
    for (i = 0; i < 2; i++)
        assert_int_equal(kill(pid[i], SIGCONT), 0);
    finish(&w);
    assert_int_equal(w.exit_code, 0);
    assert_null(strstr(w.err_text, "stopped"));
    forget(&w);
    outlive = false;
}

/* If one rank is stopped, the others wait for it and cannot know why. */
static void a_stopped_rank_is_named(void **state)
{
    struct watched w;
    char want[80];
    pid_t pid;

    (void)state;
    start(&w, 2, "wait");
    await(&w, "up ", 2);
    pid = (pid_t)strtol(strstr(w.err_text, "[rank 1] up ") + 12, NULL, 10);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    snprintf(want, sizeof(want), "rank 1 (pid %d) is stopped (SIGSTOP)", (int)pid);
    await(&w, want, 1);
    assert_int_equal(kill(pid, SIGCONT), 0); /* the first SIGTERM waits for all ranks */
    assert_int_equal(kill(w.pid, SIGTERM), 0);
    finish(&w);
    ranks_are_gone(&w, 2);
    forget(&w);
}

static void ended_by(int number, int code)
{
    struct watched w;

    start(&w, 3, "wait");
    await(&w, "up ", 3);
    assert_int_equal(kill(w.pid, number), 0);
    finish(&w);
    assert_int_equal(w.exit_code, code);
    assert_true(w.seconds < 30);
    assert_null(strstr(w.err_text, "died"));
    ranks_are_gone(&w, 3);
    forget(&w);
}

static void a_signal_ends_all(void **state)
{
    (void)state;
    ended_by(SIGINT, 130);
    ended_by(SIGTERM, 143);
}

static void a_killed_supervisor_leaves_no_processes(void **state)
{
    (void)state;
    ended_by(SIGKILL, -1);
}

static void children_of_a_rank_end_with_it(void **state)
{
    struct watched w;

    (void)state;
    run(&w, 2, "leave");
    assert_int_equal(w.exit_code, 0);
    assert_true(w.seconds < 30);
    forget(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_their_environment),
        cmocka_unit_test(a_death_is_named_and_ends_the_others),
        cmocka_unit_test(the_exit_code_is_that_of_the_job),
        cmocka_unit_test(a_rank_that_ignores_sigterm_is_killed),
        cmocka_unit_test(stopped_survivors_are_killed),
        cmocka_unit_test(all_ranks_are_needed_before_training),
        cmocka_unit_test(printed_lines_do_not_steer),
        cmocka_unit_test(training_has_begun_over_ssh),
        cmocka_unit_test(a_paused_job_continues),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_signal_ends_all),
        cmocka_unit_test(a_killed_supervisor_leaves_no_processes),
        cmocka_unit_test(children_of_a_rank_end_with_it),
    };
    int code = supervised_main(argc, argv, parts, VB_COUNT(parts));

    return code >= 0 ? code : T_RUN(tests);
}
