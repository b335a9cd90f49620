/* SPDX-License-Identifier: MIT
 *
 * Tests the thread that writes checkpoints: the caller never waits for the disk, at most one
 * checkpoint waits for the one that is being written, and failures are told, not logged.
 *
 * Covers: engine/checkpoint/checkpoint_writer.c
 */
#include "engine/checkpoint/checkpoint_writer.h"
#include "tests/support/fixtures/checkpoint_fixture.h"
#include "tests/support/gate.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#define N 5000 /* elements, more bytes than T_GATE_BYTES */
#define SECOND UINT64_C(1000000000)

static float values[N];

static struct vb_checkpoint_writer *open_writer(void)
{
    struct vb_checkpoint_writer_opts opts = {.dir = dir, .keep = 2, .rank = -1};
    struct vb_checkpoint_writer *w = NULL;

    assert_int_equal(vb_checkpoint_writer_open(&opts, &w), VB_OK);
    assert_false(vb_checkpoint_writer_busy(w));
    return w;
}

/* Begins a checkpoint whose list of arrays is gone afterwards. */
static bool begin(struct vb_checkpoint_writer *w, int64_t step, bool queues)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(step, arrays);
    bool began;

    arrays[0].rows = N;
    arrays[0].cols = 1;
    arrays[0].data = values;
    began = vb_checkpoint_writer_begin(w, &cp, queues);
    memset(arrays, 0, sizeof(arrays));
    return began;
}

static void the_caller_does_not_wait(void **state)
{
    struct vb_checkpoint_writer *w = open_writer();
    struct vb_checkpoint_done done;
    uint64_t begin_ns = vb_clock_ns();

    (void)state;
    t_gate_closed = true;
    assert_true(begin(w, 1, false));
    assert_true(vb_checkpoint_writer_busy(w));
    assert_false(begin(w, 2, false)); /* one at a time */
    assert_true(begin(w, 3, true));   /* but the last one may wait */
    assert_false(begin(w, 4, true));
    assert_false(vb_checkpoint_writer_take(w, &done));
    assert_true(vb_clock_ns() - begin_ns < 5 * SECOND); /* none of this waited for the gate */
    assert_false(vb_checkpoint_writer_wait(w, vb_clock_ns() + SECOND / 20));
    t_gate_closed = false;
    assert_true(vb_checkpoint_writer_wait(w, vb_clock_ns() + 60 * SECOND));
    assert_false(vb_checkpoint_writer_busy(w));
    assert_true(vb_checkpoint_writer_take(w, &done) && done.step == 1 && done.status == VB_OK);
    assert_string_equal(done.path, path_of(1));
    assert_true(done.seconds > 0.04 && done.bytes > N * sizeof(float));
    assert_true(vb_checkpoint_writer_take(w, &done) && done.step == 3 && done.status == VB_OK);
    assert_false(vb_checkpoint_writer_take(w, &done));
    assert_latest(3);
    vb_checkpoint_writer_close(w);
}

static void a_failure_is_told(void **state)
{
    struct vb_checkpoint_writer *w = open_writer();
    struct rlimit limit, small_limit;
    struct vb_checkpoint_done done;
    struct t_stderr t;
    char said[2048];

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_true(begin(w, 1, false) && vb_checkpoint_writer_wait(w, vb_clock_ns() + 60 * SECOND));
    assert_true(vb_checkpoint_writer_take(w, &done));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small_limit = limit;
    small_limit.rlim_cur = 6000;
    t_stderr_catch(&t);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small_limit), 0);
    assert_true(begin(w, 2, false));
    assert_true(vb_checkpoint_writer_wait(w, vb_clock_ns() + 60 * SECOND));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    t_stderr_release(&t, said, sizeof(said));
    assert_string_equal(said, "");
    assert_true(vb_checkpoint_writer_take(w, &done) && done.status < 0);
    assert_non_null(strstr(done.why, "checkpoint-2.vbc at offset "));
    assert_non_null(strstr(done.why, "File too large"));
    assert_string_equal(done.last, path_of(1));
    assert_string_equal(done.bad, "");
    assert_int_equal(t_folder_entries(dir), 1);
    vb_checkpoint_writer_close(w);
}

static void numbers_that_are_not_finite_are_not_written(void **state)
{
    struct vb_checkpoint_writer *w = open_writer();
    struct vb_checkpoint_done done;

    (void)state;
    values[N - 1] = INFINITY;
    assert_true(begin(w, 1, false) && vb_checkpoint_writer_wait(w, vb_clock_ns() + 60 * SECOND));
    values[N - 1] = 0;
    assert_true(vb_checkpoint_writer_take(w, &done) && done.status < 0);
    assert_string_equal(done.bad, "conv1.w"); /* "seen" is state, and not of floats */
    assert_string_equal(done.last, "");
    assert_int_equal(t_folder_entries(dir), 0);
    vb_checkpoint_writer_close(w);
}

static void *open_gate_later(void *arg)
{
    const struct timespec nap = {.tv_nsec = 50000000};

    nanosleep(&nap, NULL);
    t_gate_closed = false;
    return arg;
}

static void closing_gives_up(void **state)
{
    struct vb_checkpoint_writer *w = open_writer();
    pthread_t thread;

    (void)state;
    t_gate_closed = true;
    t_gate_waits = 0;
    assert_true(begin(w, 1, false) && begin(w, 2, true));
    t_gate_meet();
    assert_int_equal(pthread_create(&thread, NULL, open_gate_later, NULL), 0);
    vb_checkpoint_writer_close(w);
    pthread_join(thread, NULL);
    assert_false(access(path_of(2), F_OK) == 0); /* it was not begun */
    vb_checkpoint_writer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_caller_does_not_wait, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_failure_is_told, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(numbers_that_are_not_finite_are_not_written, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(closing_gives_up, make_dir, remove_dir),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
