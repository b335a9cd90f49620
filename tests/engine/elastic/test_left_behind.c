/* SPDX-License-Identifier: MIT
 *
 * Tests checkpoints of ranks that their job has left behind. The lead commits a step, saves it and
 * dies before the others commit it. They go on from the step before, in a new view, and save that.
 * The lead's checkpoint has the highest step, but --resume refuses it, and says what to do. Then
 * the job goes on, and whoever still writes for an earlier view or run is refused.
 *
 * Covers: engine/checkpoint/checkpoint_view.c engine/train/train_save.c
 */
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/train/train_room_priv.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/checkpoint_fixture.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define WORLD 3
#define STEPS 12
#define SAVED 6 /* the step that only the lead commits */
#define LIMIT_NS UINT64_C(60000000000)

/* What a rank of a job does. */
struct plan {
    const char *dirs[2]; /* folder of rank 0, and of the others */
    bool resumes, lead_dies;
    int64_t every;
};

static int64_t step_of_rank; /* the ranks are processes */
static bool lead_dies;
static char *said; /* what the ranks have logged, in memory that all processes share */

#define SAID_MAX 4096

bool __real_vb_group_commit(struct vb_group *group, int64_t step);
bool __wrap_vb_group_commit(struct vb_group *group, int64_t step);

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

/* The others commit this step only when they know that the lead is dead. */
bool __wrap_vb_group_commit(struct vb_group *group, int64_t step)
{
    uint64_t end_ns = vb_clock_ns() + LIMIT_NS;

    while (lead_dies && step == SAVED && vb_group_world(group) == WORLD &&
           vb_group_rank(group) > 0 && vb_group_end(group, 0) == VB_END_NONE &&
           vb_clock_ns() < end_ns) {
        (void)vb_progress(group); /* or nobody takes notice of the death */
        pause_ms(5);
    }
    return __real_vb_group_commit(group, step);
}

static void look(void *arg, int64_t step, const float *params, size_t n, bool failed)
{
    (void)arg;
    (void)params;
    (void)n;
    (void)failed;
    step_of_rank = step;
}

/* Called before each step: the lead dies when its checkpoint is on the disk. */
static int stop(void *arg)
{
    const char *path = path_of(SAVED);
    uint64_t end_ns = vb_clock_ns() + LIMIT_NS;

    (void)arg;
    if (step_of_rank < SAVED)
        return 0;
    while (access(path, F_OK) != 0 && vb_clock_ns() < end_ns)
        pause_ms(5);
    raise(SIGKILL);
    return 0;
}

static void fill(struct vb_group *g, const struct plan *plan, struct vb_train_opts *o)
{
    t_train_opts("softmax", "synth:600", g, o);
    o->elastic = vb_group_world(g) > 1;
    o->length.global_batch = 30;
    o->length.steps = STEPS;
    o->save.dir = plan->dirs[vb_group_rank(g) > 0];
    o->save.every = plan->every;
    o->save.resume = plan->resumes;
    o->hooks.look = look;
}

/* The ranks that are left save, because they are too few, and end. */
static int train_without_lead(struct vb_group *g, void *arg)
{
    struct vb_train_opts o;
    struct vb_train_result result;

    fill(g, arg, &o);
    o.min_ranks = WORLD;
    o.wait_ranks_s = 0.1;
    lead_dies = true;
    if (vb_group_rank(g) == 0)
        o.hooks.stop = stop;
    return T_WRONG(vb_train(&o, &result) == VB_ERR_TIMEOUT);
}

static int train(struct vb_group *g, void *arg)
{
    struct vb_train_opts o;
    struct vb_train_result result;
    vb_status st;

    fill(g, arg, &o);
    st = vb_train(&o, &result);
    if (st == VB_OK)
        vb_train_result_fini(&result);
    return T_WRONG(st == VB_OK);
}

static int is_refused(struct vb_group *g, void *arg)
{
    struct vb_train_opts o;
    struct vb_train_result result;
    struct t_stderr t;
    vb_status st;

    fill(g, arg, &o);
    t_stderr_catch(&t);
    st = vb_train(&o, &result);
    t_stderr_release(&t, said + vb_group_rank(g) * SAID_MAX, SAID_MAX);
    return T_WRONG(st != VB_OK);
}

static void run(t_rank_fn fn, int world, struct plan *plan, bool mortal_lead)
{
    struct t_job job = {
        .transport = VB_TRANSPORT_TCP, .world = world, .agrees = world > 1, .fn = fn, .arg = plan};

    t_as_mortals(&job, mortal_lead ? 1 : 0);
}

/* Asserts that a rank has said this. With several ranks, the first to fail may end the other. */
static void assert_said(const char *text)
{
    if (strstr(said, text) == NULL && strstr(said + SAID_MAX, text) == NULL)
        fail_msg("neither '%s' nor '%s' contains '%s'", said, said + SAID_MAX, text);
}

static struct vb_checkpoint_view view_of(int64_t step)
{
    struct vb_checkpoint_view view = {.run = 0};

    assert_true(vb_cp_view(path_of(step), &view));
    return view;
}

static void assert_view(int64_t step, uint32_t number_of_run, uint32_t number)
{
    struct vb_checkpoint_view view = view_of(step);

    assert_int_equal(view.run, number_of_run);
    assert_int_equal(view.view, number);
}

/* A writer of an earlier view, as one that the job has left behind, fails to write this step. */
static void assert_cannot_write(const struct vb_checkpoint_view *view, int64_t step)
{
    struct vb_checkpoint_writer_opts opts = {.dir = dir, .keep = 2, .rank = -1};
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(step, arrays);
    struct vb_checkpoint_writer *w = NULL;
    struct vb_checkpoint_done done;

    cp.view = *view;
    assert_int_equal(vb_checkpoint_writer_open(&opts, &w), VB_OK);
    assert_true(vb_checkpoint_writer_begin(w, &cp, true));
    assert_true(vb_checkpoint_writer_wait(w, vb_clock_ns() + LIMIT_NS));
    assert_true(vb_checkpoint_writer_take(w, &done));
    assert_int_equal(done.status, VB_ERR_USAGE);
    assert_non_null(strstr(done.why, "the job goes on without this rank"));
    vb_checkpoint_writer_close(w);
}

static void the_lead_was_left_behind(void **state)
{
    struct plan plan = {.dirs = {dir, dir}, .every = SAVED};
    struct vb_checkpoint_view first;
    char left[PATH_MAX + 8], text[3 * PATH_MAX];

    (void)state;
    run(train_without_lead, WORLD, &plan, true);
    assert_latest(SAVED);
    assert_view(SAVED, 1, 1);
    assert_view(SAVED - 1, 1, 2);
    first = view_of(SAVED);
    assert_memory_equal(first.job, view_of(SAVED - 1).job, sizeof(first.job));

    plan.resumes = true;
    run(is_refused, 1, &plan, false);
    snprintf(text, sizeof(text), "cannot resume: %s was written in view 1 of run 1",
             path_of(SAVED));
    assert_said(text);
    snprintf(text, sizeof(text), "view 2 of run 1, whose checkpoint is %s", path_of(SAVED - 1));
    assert_said(text);
    snprintf(left, sizeof(left), "%s.left", path_of(SAVED));
    snprintf(text, sizeof(text), "mv %s %s", path_of(SAVED), left);
    assert_said(text);

    /* what it says is done */
    assert_int_equal(rename(path_of(SAVED), left), 0);
    plan.every = 0;
    run(train, 2, &plan, false);
    assert_view(STEPS, 2, 1);
    assert_memory_equal(first.job, view_of(STEPS).job, sizeof(first.job));
    assert_cannot_write(&first, SAVED);
    assert_cannot_write(&first, STEPS);
    assert_cannot_write(&first, STEPS + SAVED);
    assert_latest(STEPS);
}

/* The folders of two hosts have the same step, but of different runs, or of different jobs. */
static void ranks_have_other_files(void **state)
{
    char other[sizeof(dir) + 8], early[PATH_MAX + 64];
    struct plan plan = {.dirs = {dir, dir}, .every = SAVED};

    (void)state;
    snprintf(other, sizeof(other), "%s/other", dir);
    snprintf(early, sizeof(early), "%s/checkpoint-%d.vbc", other, SAVED);
    run(train, 2, &plan, false);
    assert_int_equal(mkdir(other, 0777), 0);
    assert_int_equal(rename(path_of(SAVED), early), 0);
    plan = (struct plan){.dirs = {other, other}, .resumes = true};
    run(train, 2, &plan, false);
    plan.dirs[0] = dir;
    run(is_refused, 2, &plan, false);
    assert_said("rank 1 found a checkpoint of step 12");
    assert_said("that is not the one of rank 0 (view 1 of run 2 there, view 1 of run 1 here)");

    assert_int_equal(t_folder_remove(other), 0);
    plan = (struct plan){.dirs = {other, other}};
    run(train, 2, &plan, false);
    plan = (struct plan){.dirs = {dir, other}, .resumes = true};
    run(is_refused, 2, &plan, false);
    assert_said("is of another job than that of rank 0");
}

/* ---- without training ------------------------------------------------------------------------ */

static struct vb_checkpoint_view make_view(int job, uint32_t number_of_run, uint32_t number,
                                           uint64_t term)
{
    return (struct vb_checkpoint_view){
        .job = {(unsigned char)job}, .run = number_of_run, .view = number, .term = term};
}

static void write_of(int64_t step, struct vb_checkpoint_view v)
{
    struct vb_checkpoint_array arrays[3];
    struct vb_checkpoint cp = small(step, arrays);

    arrays[cp.n_arrays++] = vb_cp_view_array(&v);
    assert_int_equal(vb_checkpoint_write(dir, &cp, 0, NULL), VB_OK);
}

static void later_views(void **state)
{
    const struct vb_checkpoint_view views[] = {make_view(1, 1, 1, 0), make_view(1, 1, 2, 3),
                                               make_view(1, 1, 2, 7), make_view(1, 1, 3, 1),
                                               make_view(1, 2, 1, 0)};
    struct vb_checkpoint_view other = make_view(2, 9, 9, 9), none = make_view(1, 0, 0, 0);
    size_t i, k;

    (void)state;
    for (i = 0; i < VB_COUNT(views); i++) {
        for (k = 0; k < VB_COUNT(views); k++)
            assert_int_equal(vb_checkpoint_is_later(&views[i], &views[k]), i > k);
        assert_false(vb_checkpoint_is_later(&other, &views[i])); /* of another job */
        assert_false(vb_checkpoint_is_later(&views[i], &none));
        assert_false(vb_checkpoint_is_later(&none, &views[i]));
    }
}

static void the_latest_view_of_a_folder(void **state)
{
    struct vb_checkpoint_view own = make_view(1, 1, 2, 3), found = make_view(0, 0, 0, 0);
    char path[PATH_MAX];

    (void)state;
    write_small(9, 0); /* of an earlier version */
    write_of(8, make_view(1, 1, 1, 0));
    write_of(7, make_view(2, 5, 5, 5));
    write_of(5, own);
    assert_int_equal(vb_checkpoint_later(dir, INT64_MAX, &own, path, sizeof(path), &found), -1);
    write_of(3, make_view(1, 2, 1, 0));
    write_of(4, make_view(1, 1, 3, 1));
    assert_int_equal(vb_checkpoint_later(dir, INT64_MAX, &own, path, sizeof(path), &found), 3);
    assert_string_equal(path, path_of(3));
    assert_int_equal(found.run, 2);
    assert_int_equal(vb_checkpoint_later(dir, 2, &own, path, sizeof(path), &found), -1);
    assert_false(vb_cp_view(path_of(9), &found));
}

/* Flips a byte of a file. */
static void spoil(const char *path, long at)
{
    FILE *file = fopen(path, "r+");
    int c;

    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    c = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(c ^ 1, file);
    fclose(file);
}

/* A view is read without the other arrays, but not from a file that is broken where it is. */
static void broken_files(void **state)
{
    struct vb_checkpoint_view v = make_view(1, 1, 2, 3), found;
    struct vb_checkpoint *cp = NULL;
    long front, at;

    (void)state;
    write_of(1, v);
    assert_int_equal(vb_checkpoint_read(path_of(1), &cp), VB_OK);
    assert_memory_equal(&cp->view, &v, sizeof(v));
    front = (const char *)cp->arrays[0].data - (const char *)cp->map;
    at = (const char *)cp->arrays[2].data - (const char *)cp->map;
    vb_checkpoint_free(cp);
    spoil(path_of(1), front);
    assert_true(vb_cp_view(path_of(1), &found));
    assert_memory_equal(&found, &v, sizeof(v));
    spoil(path_of(1), at + 20);
    assert_false(vb_cp_view(path_of(1), &found));
    write_of(1, v);
    spoil(path_of(1), 100);
    assert_false(vb_cp_view(path_of(1), &found));
    assert_false(vb_cp_view(path_of(2), &found));
    write_of(1, make_view(1, 0, 3, 3)); /* no run has this number */
    assert_false(vb_cp_view(path_of(1), &found));
    assert_int_equal(vb_checkpoint_read(path_of(1), &cp), VB_OK);
    assert_int_equal(cp->view.run, 0);
    vb_checkpoint_free(cp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T_IN_DIR(later_views), T_IN_DIR(the_latest_view_of_a_folder),
                                       T_IN_DIR(broken_files), T_IN_DIR(the_lead_was_left_behind),
                                       T_IN_DIR(ranks_have_other_files)};

    said = mmap(NULL, (size_t)WORLD * SAID_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (said == MAP_FAILED)
        return 1;
    return T_RUN(tests);
}
