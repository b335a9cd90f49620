/* SPDX-License-Identifier: MIT
 *
 * Tests the folder of checkpoints: which checkpoint is the latest one, and which ones may be
 * deleted. A writer that fails, because the disk is full or because it is killed at any moment,
 * must not damage older checkpoints.
 *
 * Covers: engine/checkpoint/checkpoint_dir.c
 */
#include "tests/support/fixtures/checkpoint_fixture.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define KILLS 50
/* number of elements, which take 4 MiB, in the tests that kill the writer */
#define ELEMS ((size_t)1 << 20)

static bool is_there(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void put_named(const char *name, const void *data, size_t len)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    t_file_write(path, data, len);
}

/* ---- the latest checkpoint ------------------------------------------------------------------- */

/* Calls vb_checkpoint_latest() and returns its result. Stores the printed text in `said`. */
static vb_status ask_latest(const char *folder, char path[PATH_MAX], char said[2048])
{
    struct t_stderr t;
    vb_status st;

    t_stderr_catch(&t);
    st = vb_checkpoint_latest(folder, path, PATH_MAX);
    t_stderr_release(&t, said, 2048);
    return st;
}

static void latest_is_the_highest_step(void **state)
{
    char path[PATH_MAX], said[2048];

    (void)state;
    assert_int_equal(ask_latest(dir, path, said), VB_ERR_NO_FILE);
    assert_string_equal(said, "");
    assert_int_equal(ask_latest("/nowhere/at/all", path, said), VB_ERR_NO_FILE);
    assert_string_equal(said, "");
    write_small(9, 0);
    write_small(10, 0);
    write_small(2, 0);
    assert_latest(10);
    put_named("checkpoint-011.vbc", "", 0); /* these names, and those below, are not valid */
    put_named("checkpoint--12.vbc", "", 0);
    put_named("checkpoint-13.vbc.bak", "", 0);
    put_named("checkpoint-14.vbc.1.tmp", "", 0);
    put_named("checkpoint-99999999999999999999.vbc", "", 0);
    put_named("checkpoint-.vbc", "", 0);
    assert_int_equal(ask_latest(dir, path, said), VB_OK);
    assert_string_equal(path, path_of(10));
    assert_string_equal(said, "");
    /* This buffer is just large enough for the path. */
    assert_int_equal(vb_checkpoint_latest(dir, said, strlen(path) + 1), VB_OK);
}

static void broken_checkpoints_are_skipped(void **state)
{
    char path[PATH_MAX], said[2048], *bytes;
    size_t len;

    (void)state;
    write_small(1, 0);
    bytes = get_file(path_of(1), &len);
    put_named("checkpoint-2.vbc", bytes, len); /* but the file contains step 1 */
    put_named("checkpoint-3.vbc", bytes, len - 1);
    assert_int_equal(ask_latest(dir, path, said), VB_OK);
    assert_string_equal(path, path_of(1));
    assert_non_null(strstr(said, "checkpoint-2.vbc: offset 24: the step is 1, but the name of the "
                                 "file has a different step; this"));
    assert_non_null(strstr(said, "checkpoint-3.vbc: offset 16: the file is not as long"));
    put_named("checkpoint-1.vbc", "", 0);
    assert_int_equal(ask_latest(dir, path, said), VB_ERR_INPUT);
    assert_non_null(strstr(said, "no checkpoint in this folder can be read"));
    free(bytes);
}

/* ---- deleting old checkpoints ---------------------------------------------------------------- */

/* A file that cannot be opened may be a good checkpoint, so no older one is used in its place. */
static void an_unreadable_checkpoint_is_an_error(void **state)
{
    char path[PATH_MAX], said[2048];

    (void)state;
    write_small(3, 0);
    snprintf(path, sizeof(path), "%s/checkpoint-7.vbc", dir);
    assert_int_equal(symlink("checkpoint-7.vbc", path), 0); /* ELOOP, also for root */
    assert_true(ask_latest(dir, path, said) < 0);
    assert_non_null(strstr(said, "cannot open"));
    assert_non_null(strstr(said, "checkpoint-7.vbc"));
}

static void a_folder_belongs_to_one_job(void **state)
{
    unsigned char ours[VB_JOB_TOKEN] = {1}, theirs[VB_JOB_TOKEN] = {2};
    int first, second;
    struct t_stderr t;
    char said[2048];

    (void)state;
    assert_int_equal(vb_checkpoint_lock(dir, ours, &first), VB_OK);
    t_stderr_catch(&t);
    assert_int_equal(vb_checkpoint_lock(dir, theirs, &second), VB_ERR_USAGE);
    t_stderr_release(&t, said, sizeof(said));
    assert_non_null(strstr(said, "belong to another job that is running (process "));
    assert_int_equal(second, -1);
    assert_int_equal(vb_checkpoint_lock(dir, ours, &second), VB_OK); /* the successor of a rank */
    assert_int_equal(second, -1);
    vb_checkpoint_unlock(first);
    assert_int_equal(vb_checkpoint_lock(dir, theirs, &second), VB_OK);
    vb_checkpoint_unlock(second);
}

static void only_the_newest_are_kept(void **state)
{
    int step;

    (void)state;
    put_named("checkpoint-old.vbc", "mine", 4);
    for (step = 8; step <= 12; step++)
        write_small(step, 2);
    assert_int_equal(t_folder_entries(dir), 3);
    assert_true(is_there("checkpoint-11.vbc") && is_there("checkpoint-12.vbc"));
    /* a run that went back to an earlier step must not delete its own new checkpoint */
    write_small(10, 1);
    assert_true(is_there("checkpoint-10.vbc") && is_there("checkpoint-12.vbc"));
    write_small(13, 0);
    assert_int_equal(t_folder_entries(dir), 5);
    assert_true(is_there("checkpoint-old.vbc"));
}

static void only_our_temporary_files_are_removed(void **state)
{
    static const char *const others[] = {"checkpoint-3.vbc.tmp", "checkpoint-x.vbc.1.tmp",
                                         "checkpoint-3.vbc.12.tmp2", "notes.12.tmp",
                                         "checkpoint-3.vbc..tmp"};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(others); i++)
        put_named(others[i], "x", 1);
    put_named("checkpoint-3.vbc.12.tmp", "x", 1);
    put_named("checkpoint-0.vbc.4194304.tmp", "x", 1);
    write_small(4, 0);
    assert_int_equal(t_folder_entries(dir), VB_COUNT(others) + 1);
    for (i = 0; i < VB_COUNT(others); i++)
        assert_true(is_there(others[i]));
}

static void folder_is_made(void **state)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(4, arrays);
    char path[PATH_MAX], said[1024];
    struct t_stderr t;
    vb_status st;

    (void)state;
    snprintf(path, sizeof(path), "%s/new", dir);
    assert_int_equal(vb_checkpoint_write(path, &cp, 0, NULL), VB_OK);
    assert_true(is_there("new/checkpoint-4.vbc"));
    snprintf(path, sizeof(path), "%s/not/so/deep", dir);
    t_stderr_catch(&t);
    st = vb_checkpoint_write(path, &cp, 0, NULL);
    t_stderr_release(&t, said, sizeof(said));
    assert_int_equal(st, VB_ERR_NO_FILE);
    assert_non_null(strstr(said, "not/so/deep: No such file"));
}

/* ---- disks ----------------------------------------------------------------------------------- */

enum { CHILD_FINE, CHILD_BAD, CHILD_CANNOT };

/* Runs fn in a child process and returns the exit code of the child. */
static int in_child(int (*fn)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Writes checkpoint 2, of one megabyte. This must fail with the given status and text, leave
 * checkpoint 1 unchanged, and leave no other file. */
static int fails_with(vb_status want, const char *text)
{
    static float data[1 << 18];
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(2, arrays), *old;
    struct t_stderr t;
    char said[2048];
    vb_status st;

    arrays[1] = (struct vb_checkpoint_array){.name = "b", .rows = 1 << 18, .cols = 1, .data = data};
    t_stderr_catch(&t);
    st = vb_checkpoint_write(dir, &cp, 1, NULL);
    t_stderr_release(&t, said, sizeof(said));
    if (st != want || strstr(said, text) == NULL || t_folder_entries(dir) != 1 ||
        vb_checkpoint_read(path_of(1), &old) != VB_OK) {
        fprintf(stderr, "the write returned status %d and left %d files; it printed: %s\n", st,
                t_folder_entries(dir), said);
        return CHILD_BAD;
    }
    return CHILD_FINE;
}

static int with_small_limit(void)
{
    struct rlimit limit = {100000, 100000};

    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return CHILD_CANNOT;
    return fails_with(VB_ERR_IO, "checkpoint-2.vbc at offset 100000: File too large");
}

static void a_file_size_limit_keeps_the_old_checkpoint(void **state)
{
    (void)state;
    write_small(1, 0);
    assert_int_equal(in_child(with_small_limit), CHILD_FINE);
}

/* Tests a disk of 64 KiB that only this process sees, and then the same disk mounted read-only. */
static int on_small_disk(void)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(1, arrays);

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", dir, "tmpfs", 0, "size=64k") != 0)
        return CHILD_CANNOT;
    if (vb_checkpoint_write(dir, &cp, 0, NULL) != VB_OK ||
        fails_with(VB_ERR_IO, "No space left on device") != CHILD_FINE)
        return CHILD_BAD;
    if (mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return CHILD_CANNOT;
    return fails_with(vb_status_from_errno(EROFS), "checkpoint-2.vbc: Read-only file system");
}

static void a_full_disk_keeps_the_old_checkpoint(void **state)
{
    int code = in_child(on_small_disk);

    (void)state;
    if (code == CHILD_CANNOT)
        skip(); /* mounting needs root */
    assert_int_equal(code, CHILD_FINE);
}

/* ---- writers that are killed ----------------------------------------------------------------- */

/* Writes one checkpoint for each step, beginning with this step, until the process is killed. All
 * elements of a checkpoint equal its step. Writes each step to fd after the checkpoint is on the
 * disk. */
static void write_forever(int64_t step, int fd)
{
    uint32_t *data = malloc(ELEMS * sizeof(*data));
    struct vb_checkpoint_array array = {
        .name = "all", .type = VB_ARRAY_U32, .rows = ELEMS, .cols = 1, .data = data};
    struct vb_checkpoint cp = {.model = "m", .n_arrays = 1, .arrays = &array};
    size_t i;

    if (data == NULL)
        _exit(1);
    for (cp.step = step;; cp.step++) {
        for (i = 0; i < ELEMS; i++)
            data[i] = (uint32_t)cp.step;
        if (vb_checkpoint_write(dir, &cp, 3, NULL) != VB_OK ||
            write(fd, &cp.step, sizeof(cp.step)) != sizeof(cp.step))
            _exit(1);
    }
}

/* Starts a writer and kills it after_us microseconds later (0: as soon as it has reported a step).
 * Returns the last step that the writer reported. */
static int64_t kill_writer(int64_t step, unsigned int after_us)
{
    int64_t told = step - 1, next;
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        write_forever(step, fds[1]);
    close(fds[1]);
    if (after_us > 0)
        usleep(after_us);
    else if (read(fds[0], &next, sizeof(next)) == sizeof(next))
        told = next;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    while (read(fds[0], &next, sizeof(next)) == sizeof(next))
        told = next;
    close(fds[0]);
    return told;
}

/* Checks that no checkpoint is broken, and reads the latest one completely. Returns the step of the
 * latest one, or -1 if there is no checkpoint. */
static int64_t look_at_latest(void)
{
    char path[PATH_MAX], said[2048];
    struct vb_checkpoint *cp;
    const uint32_t *data;
    int64_t step;
    size_t i;

    if (ask_latest(dir, path, said) == VB_ERR_NO_FILE)
        return -1;
    assert_string_equal(said, "");
    assert_int_equal(vb_checkpoint_read(path, &cp), VB_OK);
    data = cp->arrays[0].data;
    for (i = 0; i < ELEMS && data[i] == (uint32_t)cp->step; i++)
        ;
    assert_int_equal(i, ELEMS);
    step = cp->step;
    vb_checkpoint_free(cp);
    return step;
}

static void kills_at_any_moment_leave_complete_checkpoints(void **state)
{
    uint64_t begin_ns = vb_clock_ns(), span_us;
    int64_t step = kill_writer(0, 0) + 1, told;
    int round, half = 0;

    (void)state;
    /* Kills come within the time that this machine needs for three checkpoints. */
    span_us = 3 * (vb_clock_ns() - begin_ns) / 1000;
    for (round = 0; round < KILLS; round++) {
        told = kill_writer(step, 1 + (unsigned int)(vb_random(8, (uint64_t)round) % span_us));
        step = look_at_latest();
        assert_true(step >= told); /* every step that the writer reported is on the disk */
        half += t_folder_entries(dir) > (step < 2 ? (int)step + 1 : 3);
        step++;
    }
    print_message(
        "%d writers were killed after %lld checkpoints; %d of them left an incomplete file\n",
        KILLS, (long long)step, half);
    write_small(step + 1, 1);
    assert_int_equal(t_folder_entries(dir), 1); /* temporary files of the killed writers are gone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T_IN_DIR(latest_is_the_highest_step),
        T_IN_DIR(broken_checkpoints_are_skipped),
        T_IN_DIR(an_unreadable_checkpoint_is_an_error),
        T_IN_DIR(a_folder_belongs_to_one_job),
        T_IN_DIR(only_the_newest_are_kept),
        T_IN_DIR(only_our_temporary_files_are_removed),
        T_IN_DIR(folder_is_made),
        T_IN_DIR(a_file_size_limit_keeps_the_old_checkpoint),
        T_IN_DIR(a_full_disk_keeps_the_old_checkpoint),
        T_IN_DIR(kills_at_any_moment_leave_complete_checkpoints),
    };

    return T_RUN(tests);
}
