/* SPDX-License-Identifier: MIT
 *
 * Tests that no broken .csr file is left when the writer is killed, on file systems with and
 * without unnamed files (O_TMPFILE), and that a complete file survives a power cut. The program is
 * linked with --wrap=open, so that open() can pretend that the file system has no unnamed files,
 * and with --wrap=fsync and --wrap=rename, which note what is synced and when.
 *
 * Covers: data/csr.c
 */
#include "tests/support/data_files.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

static bool no_unnamed;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode = 0;

    if ((flags & O_TMPFILE) == O_TMPFILE && no_unnamed) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return __real_open(path, flags, mode);
}

/* What has been done, in order: 'f' a file was synced, 'd' the test's folder, 'r' a rename. */
static char steps_done[64];

static void note(char what)
{
    size_t n = strlen(steps_done);

    assert_true(n + 1 < sizeof(steps_done));
    steps_done[n] = what;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat info, folder;

    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(stat(t_dir, &folder), 0);
    note(info.st_ino == folder.st_ino && info.st_dev == folder.st_dev ? 'd' : 'f');
    return __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __wrap_rename(const char *from, const char *to)
{
    note('r');
    return __real_rename(from, to);
}

static vb_status write_rows(const char *name, vb_data_progress_fn progress, void *arg)
{
    struct vb_data_written written;
    struct vb_data_spec spec;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_data_spec_parse("synth:kind=criteo,n=40000,features=5000", &spec, why),
                     VB_OK);
    return vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, t_path(name), progress, arg, &written);
}

/* Counts the files in the test's folder whose names begin with `name`. */
static int files(const char *name)
{
    DIR *d = opendir(t_dir);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        n += strncmp(e->d_name, name, strlen(name)) == 0;
    closedir(d);
    return n;
}

/* Writes a byte to the pipe when some blocks have been written, and then waits to be killed. */
static void wait_to_be_killed(void *arg, double done, int64_t rows)
{
    const int *fd = arg;

    (void)done;
    if (rows < 20000)
        return;
    (void)!write(*fd, "", 1);
    for (;;)
        pause();
}

static void kill_writer(const char *name)
{
    int fds[2], status = 0;
    char byte;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)write_rows(name, wait_to_be_killed, &fds[1]);
        _exit(0);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    close(fds[0]);
}

static bool has_unnamed_files(void)
{
    int fd = __real_open(t_dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void nothing_is_left_of_a_killed_writer(void **state)
{
    (void)state;
    if (!has_unnamed_files()) {
        print_message("skipped: the file system of %s has no O_TMPFILE\n", t_dir);
        skip();
    }
    kill_writer("killed");
    assert_int_equal(files("killed"), 0);
}

static void a_complete_file_replaces_the_old_one(void **state)
{
    mode_t old = umask(027);
    struct vb_dataset set;
    struct stat info;
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        no_unnamed = i == 1;
        t_write("whole", "old", 3);
        assert_int_equal(write_rows("whole", NULL, NULL), VB_OK);
        assert_int_equal(files("whole"), 1);
        assert_int_equal(stat(t_path("whole"), &info), 0);
        assert_int_equal(info.st_mode & 0777, 0640);
        assert_int_equal(vb_csr_open(t_path("whole"), &set), VB_OK);
        assert_int_equal(set.n, 40000);
        vb_dataset_destroy(&set);
    }
    no_unnamed = false;
    umask(old);
}

/* A temporary file that was left by a dead process with the same process id as this one must not
 * cause an error. */
static void old_temporary_files_are_replaced(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof(name), "again.%ld.tmp", (long)gettid());
    t_write(name, "old", 3);
    assert_int_equal(write_rows("again", NULL, NULL), VB_OK);
    assert_int_equal(files("again"), 1);
}

static void file_and_folder_are_synced(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        no_unnamed = i == 1;
        memset(steps_done, 0, sizeof(steps_done));
        assert_int_equal(write_rows("synced", NULL, NULL), VB_OK);
        assert_string_equal(steps_done, "frd");
    }
    no_unnamed = false;
}

static void without_unnamed_files_a_temporary_file_is_used(void **state)
{
    (void)state;
    no_unnamed = true;
    kill_writer("beside");
    no_unnamed = false;
    assert_int_equal(files("beside."), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_of_a_killed_writer),
        cmocka_unit_test(a_complete_file_replaces_the_old_one),
        cmocka_unit_test(old_temporary_files_are_replaced),
        cmocka_unit_test(file_and_folder_are_synced),
        cmocka_unit_test(without_unnamed_files_a_temporary_file_is_used),
    };

    return T_RUN_IN_DIR(tests);
}
