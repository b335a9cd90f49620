/* SPDX-License-Identifier: MIT
 *
 * Tests files that are truncated while they are mapped. Reading such a file ends the process, so a
 * child process reads it.
 */
#include "base/base.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define LEN ((size_t)1 << 20)
/* number of bytes that remain in the file: the first 4 KiB page and a part of the second */
#define CUT 5000
#define READ_AT ((size_t)1 << 19)
#define THREADS 4
#define MORE_THAN_PLACES 40

static char path[] = "/tmp/verbena-mapped-XXXXXX";
static int file = -1;

static int make_file(void **state)
{
    (void)state;
    file = mkstemp(path);
    return file >= 0 && ftruncate(file, (off_t)LEN) == 0 ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    close(file);
    return unlink(path);
}

static char read_byte(const void *map, size_t at)
{
    return *(const volatile char *)((const char *)map + at);
}

static const void *map_file(void)
{
    const void *map = vb_file_map(file, LEN, path);

    if (map == NULL || read_byte(map, READ_AT) != 0)
        _exit(99);
    return map;
}

/* Restores the file to its full length and runs fn, which must not return, in a child process.
 * Stores the child's error messages in text. Returns the exit status of the child. */
static int run_child(void (*fn)(void), char *text, size_t size)
{
    struct t_stderr t;
    int status = 0;
    pid_t pid;

    assert_int_equal(ftruncate(file, (off_t)LEN), 0);
    t_stderr_catch(&t);
    pid = fork();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL); /* removes the signal handler that a sanitizer has installed */
        fn();
        _exit(98);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    t_stderr_release(&t, text, size);
    return status;
}

static void assert_named(int status, const char *said, const char *rank)
{
    char want[256];

    snprintf(
        want, sizeof(want),
        "error base/mapped%s: %s: offset %zu can no longer be read: the file was truncated, or its "
        "disk failed\n",
        rank, path, READ_AT);
    assert_string_equal(said, want);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void cut_and_read(const void *map)
{
    if (ftruncate(file, CUT) != 0 || read_byte(map, CUT - 1) != 0)
        _exit(97);
    (void)read_byte(map, READ_AT);
}

/* ---- a file that is truncated ---------------------------------------------------------------- */

static void read_cut(void)
{
    cut_and_read(map_file());
}

static void read_cut_as_rank(void)
{
    vb_log_set_rank(12);
    read_cut();
}

static void a_truncated_file_is_named(void **state)
{
    char said[1024];
    int status = run_child(read_cut, said, sizeof(said));

    (void)state;
    assert_named(status, said, "");
    status = run_child(read_cut_as_rank, said, sizeof(said));
    assert_named(status, said, " rank 12");
}

static void read_cut_after_many(void)
{
    int i;

    for (i = 0; i < 1000; i++)
        vb_file_unmap(map_file(), LEN);
    read_cut();
}

static void table_entries_are_reused(void **state)
{
    char said[1024];
    int status = run_child(read_cut_after_many, said, sizeof(said));

    (void)state;
    assert_named(status, said, "");
}

/* ---- bus errors with another cause ----------------------------------------------------------- */

static void read_other(void)
{
    (void)map_file();
    cut_and_read(mmap(NULL, LEN, PROT_READ, MAP_SHARED, file, 0));
}

static void read_unmapped_place(void)
{
    const void *map = map_file();

    vb_file_unmap(map, LEN);
    cut_and_read(mmap((void *)map, LEN, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0));
}

static void get_signal(void)
{
    (void)map_file();
    (void)kill(getpid(), SIGBUS);
}

static void read_one_too_many(void)
{
    const void *map = NULL;
    int i;

    for (i = 0; i < MORE_THAN_PLACES; i++)
        map = map_file();
    cut_and_read(map);
}

static void other_bus_errors_are_not_handled(void **state)
{
    static void (*const fns[])(void) = {read_other, read_unmapped_place, get_signal,
                                        read_one_too_many};
    char said[1024];
    int status;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(fns); i++) {
        status = run_child(fns[i], said, sizeof(said));
        assert_string_equal(said, "");
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static _Atomic bool cut;

static void *map_and_unmap(void *arg)
{
    const void *map;

    (void)arg;
    for (;;) {
        map = vb_file_map(file, LEN, "another");
        vb_file_unmap(map, LEN);
    }
    return NULL;
}

static void *read_when_cut(void *map)
{
    while (!atomic_load(&cut))
        ;
    (void)read_byte(map, READ_AT);
    return NULL;
}

static void read_with_threads(void)
{
    const void *map = map_file();
    pthread_t thread;
    int i;

    for (i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, map_and_unmap, NULL) != 0 ||
            pthread_create(&thread, NULL, read_when_cut, (void *)map) != 0)
            _exit(96);
    if (ftruncate(file, CUT) != 0)
        _exit(97);
    atomic_store(&cut, true);
    (void)pthread_join(thread, NULL);
}

static void one_thread_reports(void **state)
{
    char said[4096];
    int i, status;

    (void)state;
    for (i = 0; i < 8; i++) {
        status = run_child(read_with_threads, said, sizeof(said));
        assert_named(status, said, "");
    }
}

static void failed_mappings_return_null(void **state)
{
    (void)state;
    assert_null(vb_file_map(-1, LEN, path));
    vb_file_unmap(NULL, LEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_truncated_file_is_named),
        cmocka_unit_test(table_entries_are_reused),
        cmocka_unit_test(other_bus_errors_are_not_handled),
        cmocka_unit_test(one_thread_reports),
        cmocka_unit_test(failed_mappings_return_null),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file) == 0 ? 0 : 1;
}
