/* SPDX-License-Identifier: MIT
 *
 * Tests checkpoints beside asynchronous training. The disk does not answer while workers make
 * steps: none waits for it, the next checkpoint is left out, and the one that was begun has the
 * parameters and the state of its step nevertheless. With a bound of 0 and one worker, they are
 * those of a run that was not slowed down, and the last ones are those of runs without checkpoints
 * and of runs that were stopped and resumed.
 *
 * Covers: engine/async/train_async_worker.c engine/train/train_save.c
 */
#include "engine/engine.h"
#include "tests/support/files.h"
#include "tests/support/gate.h"
#include "tests/support/test.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define STEPS 28
#define EVERY 10
#define MEANWHILE 15 /* steps while the disk does not answer; another checkpoint is due */
#define PATIENCE_NS UINT64_C(30000000000)

struct run {
    const char *model, *data, *rule;
    int bound;
    bool hogwild;
    int calls; /* of the function that is called before each step */
    bool hung; /* steps have waited for the disk */
};

/* Ends a run soon after its first checkpoint, of which only the two newest stay. */
static int stops_early(void *arg)
{
    struct run *run = arg;

    return ++run->calls > EVERY + 2 ? SIGTERM : 0;
}

/* Called before each step. The write of the first checkpoint is waited for, because its thread has
 * a low priority. The gate opens when enough steps were made meanwhile. */
static int stops(void *arg)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    struct run *run = arg;

    run->calls++;
    while (run->calls == EVERY + 2 && t_gate_waits == 0 && t_gate_closed)
        nanosleep(&nap, NULL);
    if (run->calls == EVERY + 2 + MEANWHILE)
        t_gate_closed = false;
    return 0;
}

/* If a step waits for the disk, nobody else opens the gate. */
static void *opens_the_gate(void *arg)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    uint64_t until_ns = vb_clock_ns() + PATIENCE_NS;
    struct run *run = arg;

    while (t_gate_closed && vb_clock_ns() < until_ns)
        nanosleep(&nap, NULL);
    run->hung = t_gate_closed;
    t_gate_closed = false;
    return NULL;
}

static void train(struct run *run, const char *dir, int (*stop)(void *), bool resume,
                  struct vb_train_result *result)
{
    struct vb_train_opts o;

    t_train_opts(run->model, run->data, NULL, &o);
    o.mode = VB_MODE_ASYNC;
    o.async.bounded = run->bound >= 0;
    o.async.staleness = run->bound;
    o.async.hogwild = run->hogwild;
    o.learn.rule = run->rule;
    o.length.global_batch = 20;
    o.length.steps = STEPS;
    o.save.dir = dir;
    o.save.every = dir != NULL ? EVERY : 0;
    o.eval_every = 4; /* evaluations use the memory of snapshots, too */
    o.save.resume = resume;
    o.hooks.stop = stop;
    o.hooks.stop_arg = run;
    run->calls = 0;
    assert_int_equal(vb_train(&o, result), VB_OK);
}

/* Compares the arrays of two checkpoints. */
static void assert_equal_files(const char *a_dir, const char *b_dir, int step)
{
    struct vb_checkpoint *a, *b;
    char path[128];
    int i;

    snprintf(path, sizeof(path), "%s/checkpoint-%d.vbc", a_dir, step);
    assert_int_equal(vb_checkpoint_read(path, &a), VB_OK);
    snprintf(path, sizeof(path), "%s/checkpoint-%d.vbc", b_dir, step);
    assert_int_equal(vb_checkpoint_read(path, &b), VB_OK);
    assert_int_equal(a->n_arrays, b->n_arrays);
    for (i = 0; i < a->n_arrays; i++) {
        size_t n = (size_t)a->arrays[i].rows * (size_t)a->arrays[i].cols;

        assert_string_equal(a->arrays[i].name, b->arrays[i].name);
        assert_memory_equal(a->arrays[i].data, b->arrays[i].data, n * sizeof(float));
    }
    vb_checkpoint_free(a);
    vb_checkpoint_free(b);
}

static void one_run(struct run *run)
{
    char slow[64] = "/tmp/verbena-test-XXXXXX", fast[64] = "/tmp/verbena-test-XXXXXX";
    struct vb_train_result a = {0}, b = {0}, none = {0};
    pthread_t thread;

    assert_non_null(mkdtemp(slow));
    assert_non_null(mkdtemp(fast));
    t_gate_waits = 0;
    t_gate_closed = true;
    assert_int_equal(pthread_create(&thread, NULL, opens_the_gate, run), 0);
    train(run, slow, stops, false, &a);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(run->hung);
    assert_true(a.saves_skipped >= 1);
    assert_int_equal(a.n_faults, 0);
    train(run, fast, stops_early, false, &b);
    train(run, NULL, NULL, false, &none);
    if (run->bound == 0) { /* with a larger bound, bits depend on the order of arrivals */
        assert_equal_files(slow, fast, EVERY);
        assert_string_equal(a.params_sha256, none.params_sha256);
        vb_train_result_fini(&b);
        train(run, fast, NULL, true, &b);
        assert_string_equal(b.params_sha256, none.params_sha256);
    }
    vb_train_result_fini(&a);
    vb_train_result_fini(&b);
    vb_train_result_fini(&none);
    assert_int_equal(t_folder_remove(slow), 0);
    assert_int_equal(t_folder_remove(fast), 0);
}

static void no_worker_waits_for_the_disk(void **state)
{
    struct run runs[] = {
        {.model = "softmax", .data = "synth:1200", .rule = "momentum"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "adagrad"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "momentum"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "ftrl", .bound = 2},
        {.model = "sparse-lr",
         .data = "synth:n=1200,features=5000",
         .rule = "sgd",
         .bound = -1,
         .hogwild = true},
    };
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(runs); i++)
        one_run(&runs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_worker_waits_for_the_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
