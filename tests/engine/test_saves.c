/* SPDX-License-Identifier: MIT
 *
 * Tests checkpoints beside training. The disk does not answer while ranks make steps: no step waits
 * for it, the checkpoint has the parameters and the state of its step nevertheless, steps allocate
 * nothing, and all bits are those of a run that does not save.
 *
 * Covers: engine/train/train_save.c engine/train/train_dense.c engine/sums/shared_update.c
 * Covers: engine/train/train_sparse_save.c
 */
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
