/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <sys/stat.h>

static char dir[] = "/tmp/verbena-test-XXXXXX";

/* The program is linked with --wrap=fsync, which notes what is synced. */
static ino_t synced[32];
static int n_synced;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat sb;

    assert_int_equal(fstat(fd, &sb), 0);
    assert_true(n_synced < (int)VB_COUNT(synced));
    synced[n_synced++] = sb.st_ino;
    return __real_fsync(fd);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return t_folder_remove(dir);
}

static void write_raw(const char *name, const void *data, size_t len)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    t_file_write(path, data, len);
}

static void first_line_is_read(void **state)
{
    char line[16];

    (void)state;
    write_raw("a", "one\ntwo\n", 8);
    assert_true(vb_probe_line(line, sizeof(line), "%s/%s", dir, "a"));
    assert_string_equal(line, "one");
    write_raw("a", "", 0);
    assert_true(vb_probe_line(line, sizeof(line), "%s/a", dir));
    assert_string_equal(line, "");
    assert_false(vb_probe_line(line, sizeof(line), "%s/none", dir));
    /* dir is a folder, which has no lines */
    assert_false(vb_probe_line(line, sizeof(line), "%s", dir));
}

static void garbage_is_made_printable(void **state)
{
    char line[8];

    (void)state;
    write_raw("a", "a\001\377b", 4);
    assert_true(vb_probe_line(line, sizeof(line), "%s/a", dir));
    assert_string_equal(line, "a??b");
    write_raw("a", "a very long line", 16);
    assert_true(vb_probe_line(line, sizeof(line), "%s/a", dir));
    assert_string_equal(line, "a very ");
    write_raw("a", "x\0y", 3);
    assert_true(vb_probe_line(line, sizeof(line), "%s/a", dir));
    assert_string_equal(line, "x");
}

static void incomplete_numbers_are_refused(void **state)
{
    int64_t value = 7;

    (void)state;
    write_raw("a", "-12\n", 4);
    assert_true(vb_probe_int(&value, "%s/a", dir));
    assert_int_equal(value, -12);
    write_raw("a", "12 Mb/s\n", 8);
    assert_false(vb_probe_int(&value, "%s/a", dir));
    write_raw("a", "99999999999999999999999\n", 24);
    assert_false(vb_probe_int(&value, "%s/a", dir));
    assert_false(vb_probe_int(&value, "%s/none", dir));
    assert_int_equal(value, -12);
}

static bool collect(char *line, void *arg)
{
    char *all = arg;

    /* 2048 is the size of the caller's buffer */
    snprintf(all + strlen(all), 2048 - strlen(all), "%s|", line);
    return strcmp(line, "stop") != 0;
}

static void every_line_is_passed_on(void **state)
{
    char all[2048] = "", longer[1000], path[128];

    (void)state;
    write_raw("a", "one\n\ntwo\nstop\nnot this\n", 23);
    vb_probe_lines(collect, all, "%s/a", dir);
    assert_string_equal(all, "one||two|stop|");
    memset(longer, 'x', sizeof(longer));
    snprintf(longer + 990, 10, "\nnext");
    all[0] = '\0';
    write_raw("a", longer, 995);
    vb_probe_lines(collect, all, "%s/a", dir);
    assert_int_equal(strlen(all), VB_LINE - 1 + strlen("|next|"));
    snprintf(path, sizeof(path), "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    /* no process writes to the pipe, but the call must not block */
    vb_probe_lines(collect, all, "%s", path);
    vb_probe_lines(collect, all, "%s/none", dir);
    unlink(path);
}

static void replace_leaves_only_the_new_file(void **state)
{
    char path[128], line[32];
    struct stat sb;
    int before = t_folder_entries(dir);

    (void)state;
    snprintf(path, sizeof(path), "%s/new", dir);
    assert_int_equal(vb_file_replace(path, "first\n", 6), VB_OK);
    assert_int_equal(vb_file_replace(path, "second\n", 7), VB_OK);
    assert_true(vb_probe_line(line, sizeof(line), "%s", path));
    assert_string_equal(line, "second");
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(sb.st_size, 7);
    assert_int_equal(t_folder_entries(dir), before + 1);
}

static vb_status print_text(const void *text, FILE *out)
{
    fprintf(out, "%s\n", text != NULL ? (const char *)text : "half");
    return text != NULL ? VB_OK : VB_ERR_IO;
}

static void a_file_is_printed_as_a_whole_or_not_at_all(void **state)
{
    char path[128], line[32];
    int before = t_folder_entries(dir);
    size_t len;

    (void)state;
    snprintf(path, sizeof(path), "%s/printed", dir);
    assert_int_equal(vb_file_print(path, print_text, "whole", &len), VB_OK);
    assert_int_equal(len, 6);
    assert_int_equal(vb_file_print(path, print_text, NULL, NULL), VB_ERR_IO);
    assert_true(vb_probe_line(line, sizeof(line), "%s", path));
    assert_string_equal(line, "whole");
    assert_int_equal(t_folder_entries(dir), before + 1);
}

static void failed_replace_leaves_nothing(void **state)
{
    char path[128], text[2048];
    struct t_stderr t;
    int before;

    (void)state;
    snprintf(path, sizeof(path), "%s/folder", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    before = t_folder_entries(dir);
    t_stderr_catch(&t);
    assert_true(vb_file_replace(path, "x", 1) < 0); /* fails, because a folder has this name */
    snprintf(path, sizeof(path), "%s/nowhere/file", dir);
    assert_int_equal(vb_file_replace(path, "x", 1), VB_ERR_NO_FILE);
    assert_true(vb_file_replace("/proc/verbena-test", "x", 1) < 0);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(t_folder_entries(dir), before);
    assert_non_null(strstr(text, "nowhere/file: No such file or directory\n"));
}

static void only_regular_files_are_replaced(void **state)
{
    char pipe[128], link[128], folder[128], text[2048], line[32];
    struct t_stderr t;
    struct stat sb;
    int before;

    (void)state;
    snprintf(pipe, sizeof(pipe), "%s/pipe", dir);
    snprintf(link, sizeof(link), "%s/link", dir);
    snprintf(folder, sizeof(folder), "%s/other", dir);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink("pipe", link), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    before = t_folder_entries(dir);
    t_stderr_catch(&t);
    assert_int_equal(vb_file_replace(pipe, "x", 1), VB_ERR_USAGE);
    assert_int_equal(vb_file_replace(link, "x", 1), VB_ERR_USAGE);
    assert_int_equal(vb_file_replace(folder, "x", 1), VB_ERR_USAGE);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "/pipe: the path exists and is not a regular file\n"));
    assert_non_null(strstr(text, "/link: the path exists and is not a regular file\n"));
    assert_non_null(strstr(text, "/other: the path exists and is not a regular file\n"));
    assert_int_equal(stat(pipe, &sb), 0);
    assert_true(S_ISFIFO(sb.st_mode));
    assert_int_equal(t_folder_entries(dir), before);

    unlink(pipe); /* the link now points to nothing; the new file must replace the link */
    assert_int_equal(vb_file_replace(link, "new", 3), VB_OK);
    assert_true(vb_probe_line(line, sizeof(line), "%s", link));
    assert_string_equal(line, "new");
    assert_int_equal(lstat(link, &sb), 0);
    assert_true(S_ISREG(sb.st_mode));
}

static void parent_folders_are_made(void **state)
{
    char path[128], text[2048];
    struct t_stderr t;
    struct stat sb;

    (void)state;
    snprintf(path, sizeof(path), "%s/one//two/three/", dir);
    assert_int_equal(vb_dir_make(path), VB_OK);
    assert_int_equal(stat(path, &sb), 0);
    assert_true(S_ISDIR(sb.st_mode));
    assert_int_equal(vb_dir_make(path), VB_OK); /* the folder exists already */
    t_stderr_catch(&t);
    assert_true(vb_dir_make("/proc/none/verbena") < 0);
    assert_true(vb_dir_make("") < 0);
    write_raw("no-folder", "x", 1);
    snprintf(path, sizeof(path), "%s/no-folder", dir);
    assert_true(vb_dir_make(path) < 0);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(
        strstr(text, "cannot create the folder /proc/none/verbena: No such file or directory\n"));
    assert_non_null(strstr(text, "/no-folder: File exists\n"));
}

/* Returns true if the folder dir/name was synced since `synced` was emptied. */
static bool was_synced(const char *name)
{
    char path[128];
    struct stat sb;
    int i;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(stat(path, &sb), 0);
    for (i = 0; i < n_synced; i++)
        if (synced[i] == sb.st_ino)
            return true;
    return false;
}

/* A new folder survives a power cut only if its parent is synced. */
static void parents_of_new_folders_are_synced(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/sync/a/b", dir);
    n_synced = 0;
    assert_int_equal(vb_dir_make(path), VB_OK);
    assert_true(was_synced(".") && was_synced("sync") && was_synced("sync/a"));
    assert_int_equal(n_synced, 3);
    snprintf(path, sizeof(path), "%s/sync/a/c/", dir);
    n_synced = 0;
    assert_int_equal(vb_dir_make(path), VB_OK);
    assert_true(was_synced("sync/a") && n_synced == 1);
    assert_int_equal(vb_dir_make(path), VB_OK); /* nothing is new, so nothing is synced */
    assert_int_equal(n_synced, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_line_is_read),
        cmocka_unit_test(garbage_is_made_printable),
        cmocka_unit_test(incomplete_numbers_are_refused),
        cmocka_unit_test(every_line_is_passed_on),
        cmocka_unit_test(replace_leaves_only_the_new_file),
        cmocka_unit_test(a_file_is_printed_as_a_whole_or_not_at_all),
        cmocka_unit_test(failed_replace_leaves_nothing),
        cmocka_unit_test(only_regular_files_are_replaced),
        cmocka_unit_test(parent_folders_are_made),
        cmocka_unit_test(parents_of_new_folders_are_synced),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir) == 0 ? 0 : 1;
}
