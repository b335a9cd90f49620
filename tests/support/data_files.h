/* SPDX-License-Identifier: MIT
 *
 * Helpers for the tests of readers: files in a folder of their own, and files that are truncated,
 * changed or replaced. A reader must refuse a bad file with one line that has the file's name and
 * the place of the error.
 */
#ifndef VB_TESTS_SUPPORT_DATA_FILES_H
#define VB_TESTS_SUPPORT_DATA_FILES_H

#include "data/data_priv.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <limits.h>
#include <sys/wait.h>

#ifndef VB_TEST_DIR
#define VB_TEST_DIR "tests"
#endif

static char t_dir[] = "/tmp/verbena-data-XXXXXX";

static inline int t_dir_make(void **state)
{
    (void)state;
    return mkdtemp(t_dir) != NULL ? 0 : -1;
}

static inline int t_dir_remove(void **state)
{
    (void)state;
    return t_folder_remove(t_dir);
}

#define T_RUN_IN_DIR(tests) (cmocka_run_group_tests((tests), t_dir_make, t_dir_remove) == 0 ? 0 : 1)

/* Returns the path of a file in the test's folder. The path is overwritten after seven further
 * calls. */
static inline const char *t_path(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", t_dir, name);
    return path;
}

static inline const char *t_write(const char *name, const void *data, size_t len)
{
    const char *path = t_path(name);

    t_file_write(path, data, len);
    return path;
}

static inline size_t t_read(const char *path, uint8_t *data, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t len;

    assert_non_null(file);
    len = fread(data, 1, room, file);
    assert_true(len < room);
    fclose(file);
    return len;
}

/* Writes a compressed copy of the file to the same folder and returns the path of the copy. */
static inline const char *t_gzip(const char *path)
{
    static char packed[160];
    char command[400];

    snprintf(packed, sizeof(packed), "%s.gz", path);
    snprintf(command, sizeof(command), "gzip -nc %s > %s", path, packed);
    assert_int_equal(system(command), 0);
    return packed;
}

/* Returns the path of a real data set. If the data set is missing, prints a message and returns
 * NULL. */
static inline const char *t_real(const char *name)
{
    static char path[PATH_MAX];
    const char *dir = getenv("VERBENA_TEST_DATA");

    snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : VB_TEST_DIR "/../../shared/data",
             name);
    if (access(path, R_OK) == 0)
        return path;
    print_message("skipped: %s does not exist\n", path);
    return NULL;
}

/* ---- readers --------------------------------------------------------------------------------- */

/* A reader: opens a file as a data set. */
typedef vb_status (*t_open_fn)(const char *path, struct vb_dataset *set_p);

static inline bool t_open_works(t_open_fn fn, const char *path)
{
    struct vb_dataset set = {.n = 0};
    vb_status st = fn(path, &set);

    if (st == VB_OK)
        vb_dataset_destroy(&set);
    return st == VB_OK;
}

/* Asserts that the reader refuses the file with one line that has the file's name and `text`. */
static inline void t_refused(t_open_fn fn, const char *path, const char *text)
{
    struct vb_dataset set = {.n = -7};
    char said[4096], *end;
    struct t_stderr err;
    vb_status st;

    t_stderr_catch(&err);
    st = fn(path, &set);
    t_stderr_release(&err, said, sizeof(said));
    end = strchr(said, '\n');
    if (st == VB_OK || end == NULL || end[1] != '\0' || strstr(said, path) == NULL ||
        strstr(said, text) == NULL)
        fail_msg("%s: the status is %d, and the message '%s' does not contain '%s'", path, st, said,
                 text);
    assert_int_equal(set.n, -7); /* a failed open leaves the data set untouched */
}

/* Truncates the file to every shorter length. The reader must refuse the truncated file, except at
 * `shorter_is_fine` lengths: text that ends at the end of a line is a valid file. */
static inline void t_cut_everywhere(t_open_fn fn, const char *path, int shorter_is_fine)
{
    static uint8_t data[1 << 20];
    size_t len = t_read(path, data, sizeof(data)), i;
    struct t_stderr err;
    char said[1 << 16];
    int fine = 0;

    assert_true(t_open_works(fn, path));
    for (i = 0; i < len; i++) {
        const char *cut = t_write("cut", data, i);

        t_stderr_catch(&err);
        fine += t_open_works(fn, cut);
        t_stderr_release(&err, said, sizeof(said));
    }
    if (fine > shorter_is_fine)
        fail_msg("%s: the reader accepted %d truncated files", path, fine);
}

/* Flips every bit of the file, one at a time. The reader must not crash. Returns the number of
 * changed files that the reader accepted. */
static inline int t_flip_everywhere(t_open_fn fn, const char *path)
{
    static uint8_t data[1 << 16];
    size_t len = t_read(path, data, sizeof(data)), i;
    struct t_stderr err;
    char said[1 << 16];
    int fine = 0;

    for (i = 0; i < len * 8; i++) {
        data[i / 8] ^= (uint8_t)(1u << (i % 8));
        t_stderr_catch(&err);
        fine += t_open_works(fn, t_write("flipped", data, len));
        t_stderr_release(&err, said, sizeof(said));
        data[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    return fine;
}

/* Tries to open a missing file, a folder and files of other formats. */
static inline void t_wrong_things(t_open_fn fn)
{
    t_refused(fn, t_path("absent"), "No such file");
    t_refused(fn, t_dir, "is not a regular file");
    t_refused(fn, t_write("empty", "", 0), "");
    t_refused(fn, t_write("elf", "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\267\0", 20), "");
    t_refused(fn, t_write("zeros", (char[4096]){0}, 4096), "");
}

#endif
