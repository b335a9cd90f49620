/* SPDX-License-Identifier: MIT */
#include "record/folder/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_MAX 64 /* files that are open at a time */

struct file {
    char name[96];
    int fd;        /* -1: not open now */
    bool begun;    /* it was opened before, and is continued */
    uint64_t used; /* when it was written last */
    bool complained;
};

struct files {
    char dir[4096];
    bool append;
    struct file *list;
    int n, room, n_open;
    int last;     /* where find() has found a file: files are written in turn */
    int told_err; /* the error that the user was told of last */
    uint64_t writes;
};

/* Makes an existing series end with a whole row, after an earlier run that was killed. A file that
 * is no series, or cannot be read, stays as it is. */
static void cut_row(const char *path, int fd)
{
    struct vb_series *series;
    int64_t end;

    if (!vb_series_is(path) || vb_series_open(path, &series) != VB_OK)
        return;
    end = vb_series_end(series);
    vb_series_close(series);
    if (ftruncate(fd, end) != 0)
        VB_LOG_WARN("%s ends with a cut record", path);
}

/* Creates the folders above a file. */
static bool make_folders(char *path)
{
    char *slash;

    for (slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return true;
}

/* Rank 0 also writes the files of ranks that do not see the folder, and these may be many. */
static void close_oldest(struct files *files)
{
    struct file *oldest = NULL;
    int i;

    for (i = 0; i < files->n; i++)
        if (files->list[i].fd >= 0 && (oldest == NULL || files->list[i].used < oldest->used))
            oldest = &files->list[i];
    if (oldest != NULL) {
        close(oldest->fd);
        oldest->fd = -1;
        files->n_open--;
    }
}

static bool open_file(struct files *files, struct file *f)
{
    int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
    char path[4200];

    f->used = ++files->writes;
    if (f->fd >= 0)
        return true;
    if (files->n_open >= OPEN_MAX)
        close_oldest(files);
    snprintf(path, sizeof(path), "%s/%s", files->dir, f->name);
    if (!make_folders(path))
        return false;
    /* A file that was closed only to open others, and deleted meanwhile, is not made again. */
    flags |= f->begun ? 0 : O_CREAT | (files->append ? 0 : O_TRUNC);
    f->fd = open(path, flags, 0666);
    if (f->fd >= 0 && files->append && !f->begun)
        cut_row(path, f->fd);
    f->begun |= f->fd >= 0;
    files->n_open += f->fd >= 0;
    return f->fd >= 0;
}

static struct file *find(struct files *files, const char *name)
{
    struct file *f;
    int i, room = files->room > 0 ? 2 * files->room : 16;

    for (i = 0; i < files->n; i++) {
        f = &files->list[(files->last + i) % files->n];
        if (strcmp(f->name, name) == 0) {
            files->last = (int)(f - files->list);
            return f;
        }
    }
    if (files->n == files->room) {
        f = realloc(files->list, (size_t)room * sizeof(*f));
        if (f == NULL)
            return NULL;
        files->list = f;
        files->room = room;
    }
    f = &files->list[files->n++];
    *f = (struct file){.fd = -1};
    snprintf(f->name, sizeof(f->name), "%s", name);
    return f;
}

/* A full disk concerns all files, so it is told once. */
static vb_status complain(struct files *files, struct file *f)
{
    int err = errno;

    if (!f->complained && err != files->told_err) {
        VB_LOG_WARN("cannot write %s/%s: %s; training goes on, records are lost", files->dir,
                    f->name, strerror(err));
        if (err == ENOSPC || err == EDQUOT)
            vb_log_fix(
                "df -h %s   # make room there; other files of the run may be incomplete, too",
                files->dir);
    }
    f->complained = true;
    files->told_err = err;
    return vb_status_from_errno(err);
}

/* A write that was cut, for example by a full disk, is taken back: the file ends with a whole
 * row. */
static vb_status say_deleted(struct files *files, struct file *f)
{
    errno = ENOENT;
    return complain(files, f);
}

/* A head is not written again into a file that is continued. If the file has other columns, because
 * another version of the program wrote it, it is kept under another name. */
static bool is_head_there(struct files *files, struct file *f, const void *bytes, size_t len,
                          struct stat *size)
{
    char path[4200], old[4300], there[VB_SERIES_HEAD_MAX];
    int fd;
    ssize_t n;

    if (len < VB_SERIES_MAGIC_BYTES || memcmp(bytes, VB_SERIES_MAGIC, VB_SERIES_MAGIC_BYTES) != 0)
        return false;
    snprintf(path, sizeof(path), "%s/%s", files->dir, f->name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 && len <= sizeof(there) ? pread(fd, there, len, 0) : -1;
    if (fd >= 0)
        close(fd);
    if (n == (ssize_t)len && memcmp(there, bytes, len) == 0)
        return true;
    snprintf(old, sizeof(old), "%s.old", path);
    close(f->fd);
    f->fd = -1;
    f->begun = false;
    files->n_open--;
    if (rename(path, old) == 0 && open_file(files, f) && fstat(f->fd, size) != 0)
        size->st_size = 0;
    return false;
}

static vb_status append(void *arg, const char *name, const void *bytes, size_t len)
{
    struct files *files = arg;
    struct file *f = find(files, name);
    struct stat before;

    if (f == NULL)
        return VB_ERR_NO_MEMORY;
    if (!open_file(files, f) || fstat(f->fd, &before) != 0)
        return complain(files, f);
    if (before.st_nlink == 0)
        return say_deleted(files, f);
    if (files->append && before.st_size > 0 && is_head_there(files, f, bytes, len, &before))
        return VB_OK;
    if (f->fd < 0)
        return complain(files, f);
    if (!vb_write_all(f->fd, bytes, len)) {
        vb_status st = complain(files, f);

        if (ftruncate(f->fd, before.st_size) != 0)
            VB_LOG_WARN("%s/%s ends with a cut record", files->dir, f->name);
        return st;
    }
    return VB_OK;
}

static void files_close(void *arg)
{
    struct files *files = arg;
    int i;

    for (i = 0; i < files->n; i++)
        if (files->list[i].fd >= 0)
            close(files->list[i].fd);
    free(files->list);
    free(files);
}

vb_status vb_record_files(const char *dir, bool append_files, struct vb_record_sink *sink_p)
{
    struct files *files = calloc(1, sizeof(*files));

    if (files == NULL)
        return vb_err_sys("calloc");
    snprintf(files->dir, sizeof(files->dir), "%s", dir);
    files->append = append_files;
    sink_p->append = append;
    sink_p->close = files_close;
    sink_p->max_bytes = 0;
    sink_p->arg = files;
    return VB_OK;
}
