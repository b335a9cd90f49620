/* SPDX-License-Identifier: MIT
 *
 * Files and temporary folders for tests.
 */
#ifndef VB_TESTS_SUPPORT_FILES_H
#define VB_TESTS_SUPPORT_FILES_H

#include "tests/support/test.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>

static inline int t_file_remove_one(const char *path, const struct stat *sb, int type,
                                    struct FTW *ftw)
{
    (void)sb;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* Removes a folder and its contents. Returns 0 on success. */
static inline int t_folder_remove(const char *path)
{
    return nftw(path, t_file_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Counts all files in a folder, including hidden ones. */
static inline int t_folder_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = -2; /* so that "." and ".." are not counted */

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static inline void t_file_write(const char *path, const void *data, size_t len)
{
    FILE *file;

    unlink(
        path); /* because ext4 waits for the disk if an old file is truncated and written again */
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

#endif
