/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES_MAX 65536

/* Reads at most size - 1 bytes from the start of a file into buf, and adds a final zero. */
static bool read_start(const char *path, char *buf, size_t size)
{
    size_t len = 0;
    ssize_t n = 0;
    int fd;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    while (len < size - 1) {
        n = read(fd, buf + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    buf[len] = '\0';
    return n >= 0;
}

static bool VB_PRINTF(3, 0) probe_line_v(char *buf, size_t size, const char *path_fmt, va_list args)
{
    char path[PATH_MAX];
    char *c;
    int n;

    buf[0] = '\0';
    n = vsnprintf(path, sizeof(path), path_fmt, args);
    if (n < 0 || (size_t)n >= sizeof(path) || !read_start(path, buf, size)) {
        buf[0] = '\0';
        return false;
    }
    for (c = buf; *c != '\0' && *c != '\n'; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
    *c = '\0';
    return true;
}

bool vb_probe_line(char *buf, size_t size, const char *path_fmt, ...)
{
    va_list args;
    bool found;

    va_start(args, path_fmt);
    found = probe_line_v(buf, size, path_fmt, args);
    va_end(args);
    return found;
}

bool vb_probe_int(int64_t *value_p, const char *path_fmt, ...)
{
    char line[32];
    va_list args;
    bool found;

    va_start(args, path_fmt);
    found = probe_line_v(line, sizeof(line), path_fmt, args);
    va_end(args);
    return found && vb_parse_int(line, value_p);
}

/* Of a line that does not fit into VB_LINE bytes, only the first piece is passed to fn. */
static void each_line(FILE *in, vb_line_fn fn, void *arg)
{
    bool whole = true, more = true;
    char line[VB_LINE];
    int i;

    for (i = 0; more && i < LINES_MAX && fgets(line, sizeof(line), in) != NULL; i++) {
        bool starts = whole;

        whole = strchr(line, '\n') != NULL;
        line[strcspn(line, "\n")] = '\0';
        if (starts)
            more = fn(line, arg);
    }
}

void vb_probe_lines(vb_line_fn fn, void *arg, const char *path_fmt, ...)
{
    char path[PATH_MAX];
    va_list args;
    FILE *in;
    int fd, n;

    va_start(args, path_fmt);
    n = vsnprintf(path, sizeof(path), path_fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(path))
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (fd < 0)
        return;
    in = fdopen(fd, "r");
    if (in == NULL) {
        close(fd);
        return;
    }
    each_line(in, fn, arg);
    fclose(in);
}

bool vb_write_all(int fd, const void *data, size_t len_bytes)
{
    const char *from = data;
    ssize_t n;

    while (len_bytes > 0) {
        n = write(fd, from, len_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        len_bytes -= (size_t)n;
    }
    return true;
}

vb_status vb_file_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    vb_status st = VB_OK;
    int fd;

    if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return vb_err_sys("cannot open the folder %s", folder);
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: the file system cannot sync folders */
        st = vb_err_sys("cannot sync the folder %s", folder);
    close(fd);
    return st;
}

vb_status vb_file_denied(vb_status st, const char *path)
{
    char folder[PATH_MAX];
    struct stat info;
    char *slash;

    if (errno != EACCES && errno != EPERM && errno != EROFS)
        return st;
    snprintf(folder, sizeof(folder), "%s", path);
    do { /* the first folder above it that exists */
        slash = strrchr(folder, '/');
        if (slash != NULL)
            *slash = '\0';
    } while (slash != NULL && stat(folder, &info) != 0);
    vb_log_fix("ls -ld %s   # user %d may not write there: name another folder, such as ~/%s",
               folder[0] != '\0' ? folder : "/", (int)geteuid(), basename(path));
    return st;
}

vb_status vb_file_may_replace(const char *path)
{
    struct stat info;

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return vb_err(VB_ERR_USAGE, "cannot write %s: the path exists and is not a regular file",
                      path);
    /* if stat() failed for another reason, an error is reported when the file is written */
    return VB_OK;
}

vb_status vb_file_replace(const char *path, const void *data, size_t len_bytes)
{
    char temp[PATH_MAX];
    vb_status st;
    int fd;

    if ((size_t)snprintf(temp, sizeof(temp), "%s.%ld.tmp", path, (long)gettid()) >= sizeof(temp))
        return vb_err(VB_ERR_USAGE, "cannot write %.64s...: the path is too long", path);
    st = vb_file_may_replace(path);
    if (st != VB_OK)
        return st;
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return vb_file_denied(vb_err_sys("cannot create %s", path), path);

    if (!vb_write_all(fd, data, len_bytes))
        st = vb_err_sys("write %s", path);
    if (st == VB_OK && fsync(fd) != 0)
        st = vb_err_sys("cannot sync %s", path);
    if (st == VB_OK && rename(temp, path) != 0)
        st = vb_err_sys("cannot rename %s to %s", temp, path);
    close(fd);
    if (st == VB_OK)
        return vb_file_sync_folder(path);
    unlink(temp);
    return st;
}

vb_status vb_file_print(const char *path, vb_print_fn print, const void *arg, size_t *len_p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    vb_status st;

    if (out == NULL)
        return vb_err_sys("open_memstream");
    st = print(arg, out);
    if (fclose(out) != 0 && st == VB_OK)
        st = vb_err_sys("cannot write %s", path);
    if (st == VB_OK)
        st = vb_file_replace(path, text, len);
    if (len_p != NULL)
        *len_p = len;
    free(text);
    return st;
}

vb_status vb_dir_make(const char *path)
{
    char part[PATH_MAX];
    struct stat info;
    vb_status st = VB_OK;
    int why = 0;
    size_t i;

    if (strlen(path) >= sizeof(part)) {
        errno = ENAMETOOLONG;
        return vb_err_sys("cannot create the folder %.64s...", path);
    }
    for (i = 0; st == VB_OK && path[i] != '\0'; i++) {
        part[i] = path[i];
        part[i + 1] = '\0';
        if (path[i + 1] != '/' || path[i] == '/')
            continue;
        if (mkdir(part, 0777) == 0)
            st = vb_file_sync_folder(part);
        else if (errno != EEXIST && why == 0)
            why = errno; /* the last mkdir() fails, too, but would only say that this one is missing
                          */
    }
    if (st != VB_OK)
        return st;
    if (mkdir(path, 0777) == 0)
        return vb_file_sync_folder(path);
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return VB_OK;
    if (errno == ENOENT && why != 0)
        errno = why;
    return vb_file_denied(vb_err_sys("cannot create the folder %s", path), path);
}
