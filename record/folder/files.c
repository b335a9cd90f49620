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
    int last; /* where find() has found a file: files are written in turn */
    uint64_t writes;
};

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
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    char path[4200];

    f->used = ++files->writes;
    if (f->fd >= 0)
        return true;
    if (files->n_open >= OPEN_MAX)
        close_oldest(files);
    snprintf(path, sizeof(path), "%s/%s", files->dir, f->name);
    if (!make_folders(path))
        return false;
    f->fd = open(path, flags | (files->append || f->begun ? 0 : O_TRUNC), 0666);
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

static vb_status complain(const struct files *files, struct file *f)
{
    vb_status st = vb_status_from_errno(errno);

    if (!f->complained)
        VB_LOG_WARN("cannot write %s/%s: %s; training goes on, records are lost", files->dir,
                    f->name, strerror(errno));
    f->complained = true;
    return st;
}

/* A write that was cut, for example by a full disk, is taken back: the file ends with a whole
 * row. */
static vb_status append(void *arg, const char *name, const void *bytes, size_t len)
{
    struct files *files = arg;
    struct file *f = find(files, name);
    struct stat before;

    if (f == NULL)
        return VB_ERR_NO_MEMORY;
    if (!open_file(files, f) || fstat(f->fd, &before) != 0)
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
    *sink_p = (struct vb_record_sink){append, files_close, files, 0};
    return VB_OK;
}
