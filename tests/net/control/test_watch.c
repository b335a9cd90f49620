/* SPDX-License-Identifier: MIT
 *
 * Tests how ranks find out that another one no longer runs, and that nobody is dropped who does.
 *
 * Covers: net/control/watch.c
 */
#include "net/control/control_priv.h"
#include "net/group/group_priv.h"
#include "tests/support/ranks.h"

#include <time.h>

#define WORLD 5
#define WAIT_S 60

/* What a rank does while nobody hears its control thread. */
enum mute { MUTE_NOT, MUTE_BUSY, MUTE_STUCK };

/* What the ranks, which are processes, report to the test. */
struct board {
    _Atomic int up;
    _Atomic bool stop;        /* the ranks may end */
    _Atomic int mute[WORLD];  /* enum mute: what the rank is to do */
    _Atomic bool done[WORLD]; /* it has done so */
    _Atomic int failed[WORLD];
    char why[WORLD][256];
};

static double now_s(void)
{
    return (double)vb_clock_ns() / 1e9;
}

static void nap_ms(int ms)
{
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&nap, NULL);
}

/* How long a rank may be silent. */
static int silent_ms(void)
{
    struct vb_times times;

    vb_times_of(0, t_number("VB_PATIENCE"), &times);
    return times.silent_ms;
}

/* Keeps the control thread from its work, for longer than a rank may be silent. */
static void be_mute(struct vb_group *g, enum mute how)
{
    double until = now_s() + 3 * silent_ms() / 1e3;

    pthread_mutex_lock(&g->control->lock);
    while (now_s() < until)
        if (how == MUTE_STUCK)
            nap_ms(silent_ms());
    pthread_mutex_unlock(&g->control->lock);
}

/* A rank that computes: it looks at the group from time to time. */
static int rank_main(const struct t_job *job, int rank, const char *root, int fd, struct board *b)
{
    struct vb_group_opts opts;
    struct vb_group *g;

    vb_log_set_rank(rank);
    t_group_opts(job, rank, root, fd, &opts);
    if (vb_group_open(&opts, &g) != VB_OK)
        return 1;
    vb_group_begin_at(g, 2);
    vb_group_does(g, VB_DOES_SAVE);
    b->up++;
    while (!b->stop && b->failed[rank] == 0) {
        if (b->mute[rank] != MUTE_NOT && !b->done[rank]) {
            be_mute(g, (enum mute)b->mute[rank]);
            b->done[rank] = true;
        }
        b->failed[rank] =
            vb_control_status(g->control, b->why[rank], sizeof(b->why[rank])) != VB_OK;
        nap_ms(10);
    }
    if (b->failed[rank])
        vb_group_abort(g, "this rank cannot go on");
    vb_group_close(g);
    return 0;
}

static struct board *begin(pid_t pids[WORLD])
{
    static const struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = WORLD};
    struct board *b =
        mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char root[32];
    int i, fd = t_listen(root);

    assert_true(b != MAP_FAILED);
    for (i = 0; i < WORLD; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(rank_main(&job, i, root, fd, b));
        }
    }
    close(fd);
    for (i = 0; i < WAIT_S * 100 && b->up < WORLD; i++)
        nap_ms(10);
    assert_int_equal(b->up, WORLD);
    nap_ms(silent_ms() * 2 / 3); /* heartbeats are answered meanwhile */
    return b;
}

static void end(struct board *b, const pid_t pids[WORLD])
{
    int i, status;

    b->stop = true;
    for (i = 0; i < WORLD; i++) {
        kill(pids[i], SIGCONT);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    munmap(b, sizeof(*b));
}

/* Waits until all ranks but the silent one have failed, and say what the kernel shows of it, and
 * what it was doing, also those that have never asked it. */
static void all_fail_because_of(struct board *b, int stopped, const char *shown)
{
    static const char doing[] = "when last heard writing a checkpoint in step 3";
    char want[32];
    int i, k, n = 0;

    for (k = 0; k < WAIT_S * 100 && n < WORLD - 1; k++) {
        for (i = 0, n = 0; i < WORLD; i++)
            n += i != stopped && b->failed[i];
        nap_ms(10);
    }
    assert_int_equal(n, WORLD - 1);
    snprintf(want, sizeof(want), "rank %d (", stopped);
    for (i = 0; i < WORLD; i++)
        if (i != stopped && (strncmp(b->why[i], want, strlen(want)) != 0 ||
                             strstr(b->why[i], "silent for") == NULL ||
                             strstr(b->why[i], shown) == NULL || strstr(b->why[i], doing) == NULL))
            fail_msg("rank %d says: %s", i, b->why[i]);
}

/* Two groups at a time, to save time: in the first, rank 0 is stopped, in the second, rank 3. */
static void all_ranks_name_the_stopped_one(void **state)
{
    static const int stopped[2] = {0, 3};
    pid_t pids[2][WORLD];
    struct board *b[2];
    double start;
    int i;

    (void)state;
    for (i = 0; i < 2; i++)
        b[i] = begin(pids[i]);
    start = now_s();
    for (i = 0; i < 2; i++)
        assert_int_equal(kill(pids[i][stopped[i]], SIGSTOP), 0);
    for (i = 0; i < 2; i++)
        all_fail_because_of(b[i], stopped[i], "(stopped)");
    assert_true(now_s() - start > silent_ms() / 2e3); /* found by silence, not by an end */
    for (i = 0; i < 2; i++)
        end(b[i], pids[i]);
}

/* Three of five ranks in a row are stopped, among them both watchers of the last. */
static void several_stopped_ranks_are_found(void **state)
{
    pid_t pids[WORLD];
    struct board *b = begin(pids);
    int i;

    (void)state;
    for (i = 1; i < 4; i++)
        assert_int_equal(kill(pids[i], SIGSTOP), 0);
    for (i = 0; i < WAIT_S * 100 && (!b->failed[0] || !b->failed[4]); i++)
        nap_ms(10);
    assert_true(b->failed[0] && b->failed[4]);
    assert_non_null(strstr(b->why[0], "silent for"));
    assert_non_null(strstr(b->why[4], "silent for"));
    end(b, pids);
}

/* Ranks that are paused, one or several at a time and for less than the limit, drop nobody, and
 * nobody drops them. */
static void paused_ranks_stay(void **state)
{
    pid_t pids[WORLD];
    struct board *b = begin(pids);
    int i, round;

    (void)state;
    for (round = 0; round < 4; round += 2) {
        for (i = 0; i <= round; i++)
            assert_int_equal(kill(pids[(i + round) % WORLD], SIGSTOP), 0);
        nap_ms(silent_ms() * 2 / 5);
        for (i = 0; i <= round; i++)
            assert_int_equal(kill(pids[(i + round) % WORLD], SIGCONT), 0);
        nap_ms(300);
    }
    nap_ms(silent_ms());
    for (i = 0; i < WORLD; i++)
        if (b->failed[i])
            fail_msg("rank %d says: %s", i, b->why[i]);
    end(b, pids);
}

/* ---- busy ranks ---------------------------------------------------------------------------------
 */

/* A rank whose control thread does not get to answer, but that runs, is not dropped: on one host
 * the kernel shows it. */
static void a_busy_rank_stays(void **state)
{
    pid_t pids[WORLD];
    struct board *b = begin(pids);
    int i;

    (void)state;
    b->mute[1] = MUTE_BUSY;
    for (i = 0; i < WAIT_S * 100 && !b->done[1]; i++)
        nap_ms(10);
    assert_true(b->done[1]);
    nap_ms(silent_ms());
    for (i = 0; i < WORLD; i++)
        if (b->failed[i])
            fail_msg("rank %d says: %s", i, b->why[i]);
    end(b, pids);
}

/* The same rank is dropped if it only sleeps. */
static void a_stuck_rank_is_found(void **state)
{
    pid_t pids[WORLD];
    struct board *b = begin(pids);

    (void)state;
    b->mute[1] = MUTE_STUCK;
    all_fail_because_of(b, 1, "(its threads sleep)");
    end(b, pids);
}

/* ---- false accusations ----------------------------------------------------------------------- */

/* Rank 2 tells all others that rank 1 is silent. They ask rank 1, which answers. */
static int accuse_the_innocent(struct vb_group *g, void *arg)
{
    const struct wire_silent silent = {.rank = 1, .ms = 100000};
    unsigned char frame[WIRE_SILENT_BYTES];
    struct control *c = g->control;
    int i, wrong = T_WRONG(vb_group_barrier(g) == VB_OK);

    (void)arg;
    vb_wire_silent_encode(&silent, frame);
    if (vb_group_rank(g) == 2) {
        pthread_mutex_lock(&c->lock);
        for (i = 0; i < vb_group_world(g); i++)
            if (i != 2)
                wrong += T_WRONG(vb_conn_send(c, i, WIRE_SILENT, frame, sizeof(frame)) == VB_OK);
        pthread_mutex_unlock(&c->lock);
    }
    nap_ms(2 * silent_ms());
    wrong += T_WRONG(vb_control_status(c, NULL, 0) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static void the_word_of_one_rank_is_not_enough(void **state)
{
    struct t_job job = {.fn = accuse_the_innocent, .world = 4, .transport = VB_TRANSPORT_SHM};

    (void)state;
    t_as_threads(&job);
}

/* A rank that nobody watches answers when it is asked, for messages about timeouts. */
static int ask_everybody(struct vb_group *g, void *arg)
{
    int i, wrong = 0;
    struct wire_beat beat;

    (void)arg;
    vb_control_step(g->control);
    vb_group_does(g, VB_DOES_LOAD);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    nap_ms(800);
    for (i = 0; i < vb_group_world(g); i++)
        if (i != vb_group_rank(g)) {
            wrong += T_WRONG(vb_control_silence_s(g->control, i, &beat) < 1);
            wrong += T_WRONG(beat.step == 1 && beat.activity == VB_DOES_LOAD);
        }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static void every_rank_answers(void **state)
{
    struct t_job job = {.fn = ask_everybody, .world = 6, .transport = VB_TRANSPORT_SHM};

    (void)state;
    t_as_threads(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_name_the_stopped_one),
        cmocka_unit_test(several_stopped_ranks_are_found),
        cmocka_unit_test(paused_ranks_stay),
        cmocka_unit_test(a_busy_rank_stays),
        cmocka_unit_test(a_stuck_rank_is_found),
        cmocka_unit_test(the_word_of_one_rank_is_not_enough),
        cmocka_unit_test(every_rank_answers),
    };

    return T_RUN(tests);
}
