/* SPDX-License-Identifier: MIT
 *
 * Tests checkpoints beside training. The disk does not answer while ranks make steps: no step waits
 * for it, the checkpoint has the parameters and the state of its step nevertheless, steps allocate
 * nothing, and all bits are those of a run that does not save.
 *
 * Covers: engine/train/train_save.c engine/train/train_dense.c engine/sums/shared_update.c
 * The members of a job that loses ranks or forms a new group wait for the disk where they must.
 *
 * Covers: engine/train/train_sparse_save.c engine/run/run_wait.c engine/run/run_form.c
 */
#include "engine/run/run_form.h"
#include "engine/train/trainer.h"
#include "tests/support/alloc.h"
#include "tests/support/files.h"
#include "tests/support/gate.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <sys/mman.h>

#define SAVED 3
#define MIDDLE 7
#define STEPS 14

struct run {
    const char *model, *data, *rule;
    int64_t shared_update_min;
    double clip, decay;
    bool saves;
    char dir[64];
};

static uint32_t *marks; /* shared by the ranks: of the last parameters; one for each kind of run */

static void fill_opts(const struct run *run, struct vb_group *g, struct vb_train_opts *o)
{
    t_train_opts(run->model, run->data, g, o);
    o->learn.rule = run->rule;
    o->length.global_batch = 30;
    o->length.steps = STEPS;
    o->learn.clip = run->clip > 0 ? run->clip : -1;
    if (run->decay > 0)
        o->learn.weight_decay = run->decay;
    o->save.dir = run->saves ? run->dir : NULL;
    o->save.every = run->saves ? SAVED : 0;
    if (strcmp(run->model, "sparse-lr") != 0)
        o->sums.shared_update_min = run->shared_update_min > 0 ? run->shared_update_min : INT64_MAX;
}

/* What a checkpoint of this moment has, in memory of the test. */
static struct vb_checkpoint copy_of(struct vb_trainer *t)
{
    struct vb_checkpoint cp = {.step = t->step}, copy;
    size_t len;
    void *data;
    int i;

    if (t->ops->save(t, &cp) != VB_OK)
        abort();
    copy = cp;
    copy.arrays = calloc((size_t)cp.n_arrays, sizeof(*cp.arrays));
    for (i = 0; i < cp.n_arrays; i++) {
        len = (size_t)cp.arrays[i].rows * (size_t)cp.arrays[i].cols * sizeof(float);
        data = malloc(len);
        if (data == NULL)
            abort();
        copy.arrays[i] = cp.arrays[i];
        copy.arrays[i].data = data;
        if (!vb_checkpoint_copy(&cp.arrays[i], data))
            abort();
    }
    return copy;
}

/* Compares the file with the copy, which is freed. */
static int is_on_disk(const struct run *run, struct vb_checkpoint *copy)
{
    struct vb_checkpoint *cp = NULL;
    char path[128];
    int i, wrong;

    snprintf(path, sizeof(path), "%s/checkpoint-%d.vbc", run->dir, SAVED);
    wrong = T_WRONG(vb_checkpoint_read(path, &cp) == VB_OK);
    for (i = 0; i < copy->n_arrays; i++) {
        const struct vb_checkpoint_array *a = &copy->arrays[i];
        size_t n = (size_t)a->rows * (size_t)a->cols;
        const void *data = wrong == 0 ? vb_checkpoint_data(cp, a->name, a->type, n) : NULL;

        wrong += T_WRONG(data != NULL && memcmp(data, a->data, n * sizeof(float)) == 0);
        free((void *)a->data);
    }
    free(copy->arrays);
    vb_checkpoint_free(cp);
    return wrong;
}

static int make_steps(struct vb_trainer *t, int64_t to)
{
    int wrong = 0;

    while (t->step < to && wrong == 0)
        wrong += T_WRONG(vb_trainer_step(t) == VB_OK) + T_WRONG(vb_train_saves_look(t) == VB_OK);
    return wrong;
}

/* The writer waits at the gate from step SAVED on. */
static int save_meanwhile(struct vb_trainer *t, const struct run *run)
{
    struct vb_checkpoint copy = copy_of(t);
    bool writes = t->rank == 0;
    long before;
    int wrong;

    t_gate_closed = writes;
    wrong = T_WRONG(vb_train_save(t, SAVED, false) == VB_OK) + make_steps(t, MIDDLE);
    if (writes)
        t_gate_meet(); /* from now on the writer allocates nothing */
    before = t_allocations;
    wrong += make_steps(t, STEPS - 2);
    wrong += T_WRONG(t_allocations == before);
    wrong += T_WRONG(!writes || vb_checkpoint_writer_busy(t->saved.writer));
    wrong += T_WRONG(vb_train_save(t, t->step, false) == VB_OK);
    wrong += T_WRONG(t->saved.skipped == writes);
    wrong += T_WRONG(vb_train_save(t, t->step, false) == VB_OK);
    wrong += T_WRONG(t->saved.skipped == 2 * writes);
    t_gate_closed = false;
    wrong += T_WRONG(vb_train_saves_end(t) == VB_OK);
    if (writes)
        wrong += is_on_disk(run, &copy);
    wrong += T_WRONG(!t->saved.held) + T_WRONG(t->saved.n_faults == 0);
    return wrong + make_steps(t, STEPS);
}

static uint32_t mark_of(struct vb_trainer *t)
{
    const float *params;
    size_t n;

    params = t->ops->params(t, &n);
    return params != NULL ? vb_crc32c(0, params, n * sizeof(*params)) : 0;
}

static int train(struct vb_group *g, void *arg)
{
    const struct run *run = arg;
    struct vb_train_opts o;
    struct vb_trainer t;
    int wrong;

    fill_opts(run, g, &o);
    wrong = T_WRONG(vb_trainer_open(&t, &o, NULL) == VB_OK);
    if (wrong == 0)
        wrong = make_steps(&t, SAVED);
    if (wrong == 0)
        wrong = run->saves ? save_meanwhile(&t, run) : make_steps(&t, STEPS);
    if (wrong == 0 && t.rank == 0)
        marks[run->saves] = mark_of(&t);
    vb_trainer_close(&t);
    return wrong;
}

/* ---- when the members change ----------------------------------------------------------------- */

#define DISK_MS 300 /* so long the disk does not answer */
#define EVERY 4     /* steps between two checkpoints */
#define DEATH (2 * EVERY)

/* What a rank tells the test, in memory that all processes share. */
struct told {
    _Atomic int64_t step;
    vb_status st;
    int stopped;
};

static struct told *told;

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

static void *open_gate(void *arg)
{
    (void)arg;
    pause_ms(DISK_MS);
    t_gate_closed = false;
    return NULL;
}

/* The disk of rank 0 does not answer from the first checkpoint on, so the second one is left out.
 * The last rank dies when the others have made this step. */
static void look(void *arg, int64_t step, const float *params, size_t n, bool failed)
{
    int rank = *(int *)arg, r;
    pthread_t gate;

    (void)params;
    (void)n;
    (void)failed;
    told[rank].step = step;
    if (rank == 0 && step == EVERY)
        t_gate_closed = true;
    if (rank == 0 && step == DEATH && pthread_create(&gate, NULL, open_gate, NULL) == 0)
        (void)pthread_detach(gate);
    if (rank != 2 || step < DEATH)
        return;
    for (r = 0; r < 2; r++)
        while (told[r].step < DEATH)
            pause_ms(1);
    raise(SIGKILL);
}

/* The user of rank 0 stops the job when the disk answers again. */
static int stop(void *arg)
{
    return *(int *)arg == 0 && told[0].step >= DEATH && !t_gate_closed ? SIGTERM : 0;
}

static int train_with_few(struct vb_group *g, void *arg)
{
    const struct run *run = arg;
    int rank = vb_group_rank(g);
    struct vb_train_result result;
    struct vb_train_opts o;

    fill_opts(run, g, &o);
    o.elastic = true;
    o.length.steps = 1000;
    o.save.every = EVERY;
    o.min_ranks = 3;
    o.wait_ranks_s = 60;
    o.hooks.look = look;
    o.hooks.look_arg = &rank;
    o.hooks.stop = stop;
    o.hooks.stop_arg = &rank;
    told[rank].st = vb_train(&o, &result);
    told[rank].stopped = result.stopped;
    if (told[rank].st == VB_OK)
        vb_train_result_fini(&result);
    return 0;
}

/* The lead saves the step at which it waits, the others have that checkpoint for saved: both wait
 * for the disk, and then for others to join, until the user stops them. */
static void members_know_of_different_checkpoints(void **state)
{
    struct run run = {.model = "softmax", .data = "synth:600", .rule = "momentum", .saves = true};
    struct t_job job = {.transport = VB_TRANSPORT_SHM,
                        .world = 3,
                        .agrees = true,
                        .timeout_ms = 10000,
                        .fn = train_with_few,
                        .arg = &run};
    char path[128];
    int r;

    (void)state;
    snprintf(run.dir, sizeof(run.dir), "/tmp/verbena-test-XXXXXX");
    assert_non_null(mkdtemp(run.dir));
    memset(told, 0, T_RANKS_MAX * sizeof(*told));
    t_as_mortals(&job, 1u << 2);
    for (r = 0; r < 2; r++) {
        assert_int_equal(told[r].st, VB_OK);
        assert_int_equal(told[r].stopped, SIGTERM);
        assert_int_equal(told[r].step, DEATH);
    }
    snprintf(path, sizeof(path), "%s/checkpoint-%d.vbc", run.dir, DEATH);
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(t_folder_remove(run.dir), 0);
}

/* The last checkpoint of a run is not held, and the run may go on nevertheless. */
static int form_while_saving(struct vb_trainer *t, const struct run *run)
{
    struct vb_checkpoint copy = copy_of(t);
    struct run_stop *stop = NULL;
    pthread_t gate;
    int wrong;

    t_gate_closed = t->leads;
    wrong = T_WRONG(vb_train_save(t, SAVED, true) == VB_OK);
    wrong += T_WRONG(pthread_create(&gate, NULL, open_gate, NULL) == 0);
    wrong += T_WRONG(vb_run_stop_open(t, &stop) == VB_OK);
    wrong += T_WRONG(vb_run_form(t, stop) == VB_OK);
    wrong += T_WRONG(t->form.switched);
    wrong += make_steps(t, STEPS);
    vb_train_form_done(t);
    wrong += T_WRONG(vb_train_saves_end(t) == VB_OK);
    vb_run_stop_close(stop);
    (void)pthread_join(gate, NULL);
    if (t->leads)
        wrong += is_on_disk(run, &copy);
    return wrong;
}

/* A group is formed although nobody has called. */
static bool form(void *arg, int64_t step)
{
    (void)arg;
    (void)step;
    return true;
}

static int train_and_form(struct vb_group *g, void *arg)
{
    const struct run *run = arg;
    struct vb_train_opts o;
    struct vb_trainer t;
    int wrong;

    fill_opts(run, g, &o);
    o.elastic = true;
    o.hooks.form = form;
    wrong = T_WRONG(vb_trainer_open(&t, &o, NULL) == VB_OK);
    if (wrong == 0)
        wrong = make_steps(&t, SAVED);
    if (wrong == 0)
        wrong = form_while_saving(&t, run);
    vb_trainer_close(&t);
    return wrong;
}

static void a_new_group_waits_for_the_disk(void **state)
{
    struct run runs[] = {
        {.model = "lenet", .data = "synth:600", .saves = true},
        {.model = "sparse-lr",
         .data = "synth:n=1200,features=5000",
         .rule = "momentum",
         .saves = true},
    };
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(runs); i++) {
        struct t_job job = {.transport = VB_TRANSPORT_SHM,
                            .world = 2,
                            .agrees = true,
                            .fn = train_and_form,
                            .arg = &runs[i]};

        snprintf(runs[i].dir, sizeof(runs[i].dir), "/tmp/verbena-test-XXXXXX");
        assert_non_null(mkdtemp(runs[i].dir));
        t_as_processes(&job);
        assert_int_equal(t_folder_remove(runs[i].dir), 0);
    }
}

static void no_step_waits_for_the_disk(void **state)
{
    struct run runs[] = {
        {.model = "softmax", .data = "synth:1200", .rule = "sgd"},
        {.model = "lenet", .data = "synth:600"},
        {.model = "lenet", .data = "synth:600", .rule = "sgd", .clip = 0.01},
        {.model = "lenet", .data = "synth:600", .shared_update_min = 4},
        {.model = "lenet", .data = "synth:600", .shared_update_min = 4, .clip = 0.01},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "sgd"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "adagrad"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "ftrl"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "momentum"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "nesterov"},
        {.model = "sparse-lr", .data = "synth:n=1200,features=5000", .rule = "sgd", .decay = 0.01},
    };
    size_t i;

    (void)state;
    marks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(marks != MAP_FAILED);
    for (i = 0; i < VB_COUNT(runs); i++) {
        struct t_job job = {.transport = VB_TRANSPORT_SHM, .fn = train, .arg = &runs[i]};

        for (job.world = 1; job.world <= 3; job.world++) {
            snprintf(runs[i].dir, sizeof(runs[i].dir), "/tmp/verbena-test-XXXXXX");
            assert_non_null(mkdtemp(runs[i].dir));
            runs[i].saves = false;
            t_as_processes(&job);
            runs[i].saves = true;
            t_as_processes(&job);
            assert_int_equal(t_folder_remove(runs[i].dir), 0);
            assert_true(marks[0] != 0 && marks[0] == marks[1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_waits_for_the_disk),
        cmocka_unit_test(members_know_of_different_checkpoints),
        cmocka_unit_test(a_new_group_waits_for_the_disk),
    };

    told = mmap(NULL, T_RANKS_MAX * sizeof(*told), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
