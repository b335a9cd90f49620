/* SPDX-License-Identifier: MIT
 *
 * Tests the supervisor of a job that goes on without ranks that die. The ranks do not train: they
 * say what ranks say, die, and wait for what the supervisor tells them. A rank dies only when all
 * have said that they have begun, which files in a folder show.
 *
 * Covers: launch/launch_reaped.c launch/launch_reaper.c launch/supervise/supervise_elastic.c
 */
#include "launch/launch_priv.h"
#include "tests/support/supervised.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define RANKS 3
#define LONG_MS 20000 /* longer than anything takes */
#define LATE_MS 600   /* longer than two stages of the end of a job */

/* ---- what ranks can do ----------------------------------------------------------------------- */

static atomic_int reaped[RANKS];

static void take_reaped(void *arg, int rank)
{
    (void)arg;
    if (rank >= 0 && rank < RANKS)
        atomic_fetch_add(&reaped[rank], 1);
}

static void place_of(int rank, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/begun-%d", getenv("VB_TEST_FOLDER"), rank);
}

/* Returns when all ranks have said that they have begun. */
static void begin(void)
{
    char path[PATH_MAX];
    int fd, i, tries;

    vb_launch_on_reaped(&me, take_reaped, NULL);
    vb_launch_tell_begun(&me);
    place_of(me.rank, path);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    for (i = 0; i < RANKS; i++) {
        place_of(i, path);
        for (tries = 0; tries < LONG_MS / 5 && access(path, F_OK) != 0; tries++)
            poll(NULL, 0, 5);
    }
}

static bool hears_of(int rank, int wait_ms)
{
    int i;

    for (i = 0; i < wait_ms / 5 && atomic_load(&reaped[rank]) == 0; i++)
        poll(NULL, 0, 5);
    return atomic_load(&reaped[rank]) == 1;
}

/* The lowest rank that is left prints the result. */
static int report(int lowest)
{
    if (me.rank == lowest && (printf("the result\n") < 0 || fflush(stdout) != 0))
        return 9;
    return 0;
}

static int do_survive(void)
{
    begin();
    if (me.rank == 0)
        raise(SIGKILL);
    return hears_of(0, LONG_MS) ? report(1) : 8;
}

static int do_nobody(void)
{
    begin();
    if (me.rank == 1)
        raise(SIGKILL);
    (void)hears_of(1, LONG_MS);
    return 1;
}

static int do_alone(void)
{
    begin();
    return me.rank == 2 ? 1 : report(0);
}

static int do_lost(void)
{
    begin();
    if (me.rank == 2)
        return 1;
    vb_launch_tell_lost(&me, 2, "it said so");
    return report(0);
}

static int do_stopped(void)
{
    begin();
    if (me.rank == 1)
        raise(SIGSTOP);
    if (me.rank == 0)
        vb_launch_tell_lost(&me, 1, "silent for 1.0 s");
    return hears_of(1, LONG_MS) ? report(0) : 8;
}

/* Rank 1 stops when the others are about to end; nobody can wait for it. */
static int do_left_over(void)
{
    begin();
    if (me.rank == 1)
        raise(SIGSTOP);
    return report(0);
}

static int do_too_early(void)
{
    if (me.rank == 1)
        raise(SIGKILL);
    vb_launch_tell_begun(&me);
    sleep(60);
    return 0;
}

static int do_mute(void)
{
    begin();
    return 0;
}

/* The reaper of rank 1 dies, and the rank with it: this is no proof for the others. */
static int do_cut(void)
{
    begin();
    if (me.rank == 1) {
        kill(getppid(), SIGKILL);
        sleep(60);
    }
    return hears_of(1, 1000) ? 8 : report(0);
}

/* After a death, rank 2 stops early, and rank 0 still has to report. */
static int do_early(void)
{
    begin();
    if (me.rank == 1)
        raise(SIGKILL);
    if (!hears_of(1, LONG_MS))
        return 8;
    if (me.rank == 0)
        poll(NULL, 0, LATE_MS);
    return report(0) != 0 ? 9 : 128 + SIGTERM;
}

/* Rank 2 was removed, and the two others lose each other: rank 0 goes on, and rank 1 ends. */
static int do_removed(void)
{
    begin();
    if (me.rank == 2)
        return 0;
    vb_launch_tell_lost(&me, 1 - me.rank, "the network was cut");
    poll(NULL, 0, LATE_MS);
    return me.rank == 1 ? 1 : report(0);
}

/* The same, and then both are killed. */
static int do_removed_all(void)
{
    begin();
    if (me.rank < 2)
        raise(SIGKILL);
    return 0;
}

/* The supervisor is killed, so standard input ends. */
static int do_orphan(void)
{
    begin();
    fprintf(stderr, "up %ld\n", (long)getpid());
    signal(SIGTERM, SIG_IGN); /* would let all ranks stop early */
    sleep(60);
    return 0;
}

static const struct part parts[] = {
    {"survive", do_survive},
    {"nobody", do_nobody},
    {"alone", do_alone},
    {"lost", do_lost},
    {"stopped", do_stopped},
    {"left_over", do_left_over},
    {"too_early", do_too_early},
    {"mute", do_mute},
    {"cut", do_cut},
    {"orphan", do_orphan},
    {"early", do_early},
    {"removed", do_removed},
    {"removed_all", do_removed_all},
};

/* ---- tests ----------------------------------------------------------------------------------- */

static void forget_begun(void)
{
    char path[PATH_MAX];
    int i;

    for (i = 0; i < RANKS; i++) {
        place_of(i, path);
        unlink(path);
    }
}

/* Runs a job on this host or over ssh, and checks exit code and standard output. */
static void job(struct watched *w, const char *word, bool ssh, int code, const char *printed)
{
    elastic = true;
    over_ssh = ssh;
    forget_begun();
    run(w, RANKS, word);
    elastic = over_ssh = false;
    if (w->exit_code != code || strcmp(w->out_text, printed) != 0)
        print_message("%s: exit %d, printed '%s', said '%s'\n", word, w->exit_code, w->out_text,
                      w->err_text);
    assert_int_equal(w->exit_code, code);
    assert_string_equal(w->out_text, printed);
    assert_true(w->seconds < LONG_MS / 1e3);
    assert_null(strstr(w->err_text, "verbena-begun"));
}

static void says(const struct watched *w, const char *text)
{
    if (strstr(w->err_text, text) == NULL)
        print_message("'%s' is not in '%s'\n", text, w->err_text);
    assert_non_null(strstr(w->err_text, text));
}

static void a_death_does_not_end_the_job(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "survive", false, 0, "the result\n");
    says(&w, "warn  launch/supervise: rank 0 (pid ");
    says(&w, ") died: signal 9 (Killed); training goes on without it\n");
    assert_null(strstr(w.err_text, "error"));
    forget(&w);
    job(&w, "survive", true, 0, "the result\n");
    says(&w, "rank 0 on host localhost died: signal 9 (Killed); training goes on without it\n");
    assert_null(strstr(w.err_text, "error"));
    forget(&w);
}

static void the_job_fails_if_no_rank_is_left(void **state)
{
    struct watched w;
    int ssh;

    (void)state;
    for (ssh = 0; ssh < 2; ssh++) {
        job(&w, "nobody", ssh == 1, 1, "");
        says(&w, "failed with exit code 1, and no rank is left; the first one lost: rank 1 ");
        forget(&w);
    }
}

static void a_failure_that_nobody_saw_ends_the_job_badly(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "alone", false, 1, "the result\n");
    says(&w, "error launch/supervise: rank 2 (pid ");
    says(&w, ") failed with exit code 1\n");
    forget(&w);
    job(&w, "lost", false, 0, "the result\n");
    says(&w, ") failed with exit code 1; training goes on without it\n");
    assert_null(strstr(w.err_text, "error"));
    forget(&w);
    job(&w, "mute", false, 1, "");
    says(&w, "the rank that had to print the result has died");
    forget(&w);
}

/* This is no failure, and the rank that reports has the time for it. */
static void ranks_may_stop_early_after_a_death(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "early", false, 128 + SIGTERM, "the result\n");
    says(&w, "the job stops early: a rank was asked to, by signal 15 (Terminated)");
    assert_null(strstr(w.err_text, "error"));
    forget(&w);
}

/* A rank that has ended well, in the middle of training, is no sign that the job has. */
static void a_removed_rank_does_not_end_the_job(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "removed", false, 0, "the result\n");
    forget(&w);
    job(&w, "removed_all", false, 1, "");
    says(&w, "died: signal 9 (Killed), and no rank is left");
    forget(&w);
}

static void a_stopped_rank_that_was_lost_is_killed(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "stopped", false, 0, "the result\n");
    says(&w, "is stopped (SIGSTOP) and is killed, because rank 0 has lost it: silent for 1.0 s");
    assert_null(strstr(w.err_text, "died"));
    forget(&w);
    job(&w, "left_over", false, 0, "the result\n");
    forget(&w);
}

static void a_death_during_set_up_ends_the_job(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "too_early", false, 1, "");
    says(&w, "error launch/supervise: rank 1 died: signal 9 (Killed)\n");
    forget(&w);
}

static void a_connection_that_breaks_is_no_proof(void **state)
{
    struct watched w;

    (void)state;
    job(&w, "cut", true, 0, "the result\n");
    says(&w, "training goes on without it\n");
    forget(&w);
}

/* A rank whose supervisor is gone ends by itself; a signal would stop the ranks of other hosts. */
static void ranks_end_without_the_supervisor(void **state)
{
    struct watched w;
    int ssh;

    (void)state;
    for (ssh = 0; ssh < 2; ssh++) {
        elastic = true;
        over_ssh = ssh == 1;
        forget_begun();
        start(&w, RANKS, "orphan");
        await(&w, "up ", RANKS);
        assert_int_equal(kill(w.pid, SIGKILL), 0);
        finish(&w); /* returns when no process has the pipes */
        assert_true(w.seconds < LONG_MS / 1e3);
        forget(&w);
    }
    elastic = over_ssh = false;
}

static void only_whole_numbers_are_taken(void **state)
{
    struct vb_launch launch = {.reaped = NULL};
    const char *text = ".R1x\nR\nR99999999999999\n.R2";

    (void)state;
    vb_launch_on_reaped(&launch, take_reaped, NULL); /* nobody tells */
    launch.reaped = vb_reaped_create(NULL);
    assert_non_null(launch.reaped);
    vb_launch_on_reaped(&launch, take_reaped, NULL);
    vb_reaped_take(launch.reaped, text, strlen(text));
    assert_int_equal(atomic_load(&reaped[0]) + atomic_load(&reaped[1]), 0);
    vb_reaped_take(launch.reaped, "\n", 1); /* the text came in two parts */
    vb_reaped_take(launch.reaped, "R2\n", 3);
    assert_int_equal(atomic_load(&reaped[2]), 1);
    vb_launch_on_reaped(&launch, NULL, NULL);
    vb_reaped_take(launch.reaped, "R1\n", 3);
    assert_int_equal(atomic_load(&reaped[1]), 0);
    vb_launch_on_reaped(&launch, take_reaped, NULL); /* tells what is known */
    assert_int_equal(atomic_load(&reaped[1]), 1);
    free(launch.reaped);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_does_not_end_the_job),
        cmocka_unit_test(the_job_fails_if_no_rank_is_left),
        cmocka_unit_test(a_failure_that_nobody_saw_ends_the_job_badly),
        cmocka_unit_test(ranks_may_stop_early_after_a_death),
        cmocka_unit_test(a_removed_rank_does_not_end_the_job),
        cmocka_unit_test(a_stopped_rank_that_was_lost_is_killed),
        cmocka_unit_test(a_death_during_set_up_ends_the_job),
        cmocka_unit_test(a_connection_that_breaks_is_no_proof),
        cmocka_unit_test(ranks_end_without_the_supervisor),
        cmocka_unit_test(only_whole_numbers_are_taken),
    };
    char folder[] = "/tmp/test_elastic.XXXXXX";
    int code = supervised_main(argc, argv, parts, VB_COUNT(parts));

    if (code >= 0)
        return code;
    if (mkdtemp(folder) == NULL)
        return 1;
    setenv("VB_TEST_FOLDER", folder, 1);
    code = T_RUN(tests);
    forget_begun();
    rmdir(folder);
    return code;
}
