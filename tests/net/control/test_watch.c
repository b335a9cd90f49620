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

/* What the ranks, which are processes, report to the test. */
struct board {
    _Atomic int up;
    _Atomic bool stop; /* the ranks may end */
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

static double patience(void)
{
    return t_number("VB_PATIENCE") > 0 ? t_number("VB_PATIENCE") : 1;
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
    b->up++;
    while (!b->stop && b->failed[rank] == 0) {
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

/* Waits until all ranks but the stopped one have failed. */
static void all_fail_because_of(struct board *b, int stopped)
{
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
                             strstr(b->why[i], "silent for") == NULL))
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
        all_fail_because_of(b[i], stopped[i]);
    assert_true(now_s() - start > 1.5 * patience()); /* found by silence, not by an end */
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
        nap_ms((int)(1300 * patience()));
        for (i = 0; i <= round; i++)
            assert_int_equal(kill(pids[(i + round) % WORLD], SIGCONT), 0);
        nap_ms(300);
    }
    nap_ms((int)(1000 * patience()));
    for (i = 0; i < WORLD; i++)
        if (b->failed[i])
            fail_msg("rank %d says: %s", i, b->why[i]);
    end(b, pids);
}

/* ---- false accusations ----------------------------------------------------------------------- */

/* Rank 2 tells all others that rank 1 is silent. They ask rank 1, which answers. */
static int accuse_the_innocent(struct vb_group *g, void *arg)
{
    unsigned char frame[WIRE_SILENT_BYTES];
    struct control *c = g->control;
    int i, wrong = T_WRONG(vb_group_barrier(g) == VB_OK);

    (void)arg;
    vb_wire_u32_encode(1, frame);
    vb_wire_u32_encode(100000, frame + 4);
    if (vb_group_rank(g) == 2) {
        pthread_mutex_lock(&c->lock);
        for (i = 0; i < vb_group_world(g); i++)
            if (i != 2)
                wrong += T_WRONG(vb_conn_send(c, i, WIRE_SILENT, frame, sizeof(frame)) == VB_OK);
        pthread_mutex_unlock(&c->lock);
    }
    nap_ms((int)(2000 * patience()));
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
    uint64_t step;

    (void)arg;
    vb_control_step(g->control);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    nap_ms(800);
    for (i = 0; i < vb_group_world(g); i++)
        if (i != vb_group_rank(g)) {
            wrong += T_WRONG(vb_control_silence_s(g->control, i, &step) < 1);
            wrong += T_WRONG(step == 1);
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
        cmocka_unit_test(the_word_of_one_rank_is_not_enough),
        cmocka_unit_test(every_rank_answers),
    };

    return T_RUN(tests);
}
