/* SPDX-License-Identifier: MIT
 *
 * Finds the latest checkpoint of a folder, and removes old checkpoints. Files are left alone if
 * their names do not have the form that the writer uses.
 */
#include "engine/checkpoint/checkpoint_priv.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_FORMAT "checkpoint-%lld.vbc"

struct steps {
    int64_t *list;
    size_t n, cap;
};

bool vb_cp_path(char path[PATH_MAX], const char *dir, int64_t step)
{
    return snprintf(path, PATH_MAX, "%s/" NAME_FORMAT, dir, (long long)step) < PATH_MAX;
}

/* Returns the step in a file name, and sets *rest_p to the rest of the name. Returns -1 if this is
 * not the name of a checkpoint. A step with leading zeros is refused, so no two names have the same
 * step. */
static int64_t step_of(const char *name, const char **rest_p)
{
    static const char prefix[] = "checkpoint-";
    char again[64];
    long long step;
    int len;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return -1;
    step = strtoll(name + sizeof(prefix) - 1, NULL, 10);
    len = snprintf(again, sizeof(again), NAME_FORMAT, step);
    if (step < 0 || strncmp(name, again, (size_t)len) != 0)
        return -1;
    *rest_p = name + len;
    return step;
}

/* Returns whether the rest of a name is ".PID.tmp". */
static bool is_temp(const char *rest)
{
    size_t digits = rest[0] == '.' ? strspn(rest + 1, "0123456789") : 0;

    return digits > 0 && strcmp(rest + 1 + digits, ".tmp") == 0;
}

static void remove_in(DIR *folder, const char *dir, const char *name)
{
    if (unlinkat(dirfd(folder), name, 0) != 0 && errno != ENOENT)
        VB_LOG_WARN("cannot remove %s/%s: %s", dir, name, strerror(errno));
}

void vb_cp_remove_stale(const char *dir)
{
    DIR *folder = opendir(dir);
    const char *rest;
    struct dirent *e;

    if (folder == NULL)
        return; /* the writer will report why the folder cannot be opened */
    while ((e = readdir(folder)) != NULL)
        if (step_of(e->d_name, &rest) >= 0 && is_temp(rest))
            remove_in(folder, dir, e->d_name);
    closedir(folder);
}

static vb_status add(struct steps *steps, int64_t step)
{
    size_t cap = steps->cap * 2 + 64;
    int64_t *bigger;

    if (steps->n == steps->cap) {
        bigger = realloc(steps->list, cap * sizeof(*bigger));
        if (bigger == NULL)
            return vb_err_sys("realloc");
        steps->list = bigger;
        steps->cap = cap;
    }
    steps->list[steps->n++] = step;
    return VB_OK;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* Lists the steps of all checkpoints up to step most, the newest first. */
static vb_status list_steps(DIR *folder, int64_t most, struct steps *steps)
{
    vb_status st = VB_OK;
    const char *rest;
    struct dirent *e;
    int64_t step;

    while (st == VB_OK && (e = readdir(folder)) != NULL) {
        step = step_of(e->d_name, &rest);
        if (step >= 0 && step <= most && *rest == '\0')
            st = add(steps, step);
    }
    if (st == VB_OK && steps->n > 0)
        qsort(steps->list, steps->n, sizeof(*steps->list), newest_first);
    return st;
}

/* Checkpoints of later steps are neither counted nor removed. They exist if a run went back to an
 * earlier step, and must not cause the new checkpoint to be removed. */
void vb_cp_remove_old(const char *dir, int64_t step, int keep)
{
    DIR *folder = opendir(dir);
    struct steps steps = {0};
    char name[64];
    size_t i;

    if (folder == NULL) {
        VB_LOG_WARN("cannot open the folder %s: %s", dir, strerror(errno));
        return;
    }
    if (list_steps(folder, step, &steps) == VB_OK)
        for (i = (size_t)keep; i < steps.n; i++) {
            snprintf(name, sizeof(name), NAME_FORMAT, (long long)steps.list[i]);
            remove_in(folder, dir, name);
        }
    free(steps.list);
    closedir(folder);
}

/* Reads a checkpoint, and checks that the step in the file is the step in its name. A broken file
 * is skipped with a warning. Any other failure (no permission, say) is an error, because an older
 * checkpoint would then be used although the newest one is good. */
static vb_status try_one(const char *path, int64_t step, struct vb_checkpoint **cp_p)
{
    char why[CP_WHY];
    vb_status st = vb_cp_load(path, why, cp_p);

    if (st == VB_OK && (*cp_p)->step != step) {
        snprintf(why, sizeof(why),
                 "%s: offset 24: the step is %lld, but the name of the file has a different step",
                 path, (long long)(*cp_p)->step);
        vb_checkpoint_free(*cp_p);
        st = VB_ERR_INPUT;
    }
    if (st == VB_ERR_INPUT)
        VB_LOG_WARN("%s; this checkpoint is skipped", why);
    else if (st != VB_OK)
        st = vb_err(st, "%s", why);
    return st;
}

static vb_status find_latest(DIR *folder, const char *dir, char *path, size_t size,
                             struct vb_checkpoint **cp_p)
{
    struct steps steps = {0};
    vb_status st = list_steps(folder, INT64_MAX, &steps);
    size_t i;

    if (st == VB_OK)
        st = VB_ERR_NO_FILE;
    for (i = 0; i < steps.n && (st == VB_ERR_NO_FILE || st == VB_ERR_INPUT); i++) {
        char full[PATH_MAX];

        if (!vb_cp_path(full, dir, steps.list[i]) || strlen(full) >= size)
            st = vb_err(VB_ERR_USAGE, "cannot read %.64s...: the path is too long", dir);
        else
            st = try_one(full, steps.list[i], cp_p);
        if (st == VB_OK)
            memcpy(path, full, strlen(full) + 1);
    }
    if (st == VB_ERR_INPUT)
        st = vb_err(VB_ERR_INPUT, "%s: no checkpoint in this folder can be read", dir);
    free(steps.list);
    return st;
}

vb_status vb_checkpoint_read_latest(const char *dir, char *path, size_t size,
                                    struct vb_checkpoint **cp_p)
{
    DIR *folder = opendir(dir);
    vb_status st;

    if (folder == NULL)
        return errno == ENOENT ? VB_ERR_NO_FILE : vb_err_sys("cannot open the folder %s", dir);
    st = find_latest(folder, dir, path, size, cp_p);
    closedir(folder);
    return st;
}

int64_t vb_checkpoint_newest(const char *dir, int64_t most, char *path, size_t size)
{
    DIR *folder = opendir(dir);
    struct steps steps = {0};
    char full[PATH_MAX];
    int64_t step = -1;

    path[0] = '\0';
    if (folder == NULL)
        return -1;
    if (list_steps(folder, most, &steps) == VB_OK && steps.n > 0 &&
        vb_cp_path(full, dir, steps.list[0]) && strlen(full) < size) {
        step = steps.list[0];
        memcpy(path, full, strlen(full) + 1);
    }
    free(steps.list);
    closedir(folder);
    return step;
}

vb_status vb_checkpoint_latest(const char *dir, char *path, size_t size)
{
    struct vb_checkpoint *cp = NULL;
    vb_status st = vb_checkpoint_read_latest(dir, path, size, &cp);

    vb_checkpoint_free(st == VB_OK ? cp : NULL);
    return st;
}
