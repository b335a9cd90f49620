/* SPDX-License-Identifier: MIT
 *
 * Reads folders and links below a sysroot. It may be a recording from an unknown person, so no
 * length, no file type and no content is trusted.
 */
#include "net/probe/probe_priv.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NAMES 4096

static bool printable(const char *name)
{
    for (; *name != '\0'; name++)
        if ((unsigned char)*name <= ' ' || (unsigned char)*name > '~')
            return false;
    return true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The rows of size bytes lie behind the MAX_NAMES pointers, in the same block of memory. */
static int read_names(DIR *dir, size_t size, char **names)
{
    char *row = (char *)(names + MAX_NAMES);
    const struct dirent *entry;
    int n = 0;

    while (n < MAX_NAMES && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= size || !printable(entry->d_name))
            continue;
        memcpy(row, entry->d_name, strlen(entry->d_name) + 1);
        names[n++] = row;
        row += size;
    }
    return n;
}

vb_status vb_net_names_list(const char *sysroot, const char *path, size_t size, char ***names_p,
                            int *n_p)
{
    char full[PATH_MAX];
    char **names;
    DIR *dir = NULL;
    int n = 0;

    /* All names are in one block, for one free(). Its unused pages take no memory. */
    names = calloc(MAX_NAMES, sizeof(*names) + size);
    if (names == NULL)
        return vb_err_sys("calloc");
    if ((size_t)snprintf(full, sizeof(full), "%s%s", sysroot, path) < sizeof(full))
        dir = opendir(full);
    if (dir != NULL) {
        n = read_names(dir, size, names);
        closedir(dir);
    }
    qsort(names, (size_t)n, sizeof(*names), by_text);
    *names_p = names;
    *n_p = n;
    return VB_OK;
}

static bool VB_PRINTF(2, 0) format_path(char path[PATH_MAX], const char *fmt, va_list args)
{
    int n = vsnprintf(path, PATH_MAX, fmt, args);

    return n >= 0 && n < PATH_MAX;
}

void vb_net_link_base(char *buf, size_t size, const char *path_fmt, ...)
{
    char path[PATH_MAX], target[PATH_MAX];
    const char *base;
    ssize_t n = -1;
    va_list args;

    va_start(args, path_fmt);
    if (format_path(path, path_fmt, args))
        n = readlink(path, target, sizeof(target) - 1);
    va_end(args);

    buf[0] = '\0';
    if (n <= 0)
        return;
    target[n] = '\0';
    base = strrchr(target, '/');
    base = base != NULL ? base + 1 : target;
    if (strlen(base) < size && printable(base))
        memcpy(buf, base, strlen(base) + 1);
}

bool vb_net_exists(const char *path_fmt, ...)
{
    char path[PATH_MAX];
    struct stat sb;
    va_list args;
    bool found;

    va_start(args, path_fmt);
    found = format_path(path, path_fmt, args) && lstat(path, &sb) == 0;
    va_end(args);
    return found;
}
