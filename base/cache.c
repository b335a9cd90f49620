/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static bool make_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Makes the parent folder too, because a new home folder has no .cache. */
bool vb_cache_dir(char *buf, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;

    buf[0] = '\0';
    if (xdg != NULL && xdg[0] == '/')
        n = snprintf(buf, size, "%s", xdg);
    else if (home != NULL && home[0] == '/')
        n = snprintf(buf, size, "%s/.cache", home);
    else
        return false;
    if (n >= 0 && (size_t)n + sizeof("/verbena") <= size && make_folder(buf)) {
        snprintf(buf + n, size - (size_t)n, "/verbena");
        if (make_folder(buf))
            return true;
    }
    buf[0] = '\0';
    return false;
}
