/* SPDX-License-Identifier: MIT */
#include "record/board/follow.h"

#include <sys/stat.h>

void vb_follow_init(struct vb_follow *f, const char *dir, const char *file,
                    const struct vb_series_kind *kind, bool append)
{
    struct vb_series *series;
    struct stat info;

    *f = (struct vb_follow){.kind = kind};
    snprintf(f->path, sizeof(f->path), "%s/%s", dir, file);
    if (stat(f->path, &info) != 0 || info.st_size == 0)
        return;
    if (!append) {
        f->old = true;
        f->old_bytes = info.st_size;
        f->old_time = info.st_mtim;
    } else if (vb_series_open(f->path, &series) == VB_OK) {
        f->next = vb_series_rows(series);
        vb_series_close(series);
    }
}

void vb_follow_close(struct vb_follow *f)
{
    vb_series_close(f->series);
    f->series = NULL;
}

/* Returns whether the file has been written in this run. */
static bool is_there(struct vb_follow *f)
{
    struct stat info;

    if (stat(f->path, &info) != 0 || info.st_size == 0)
        return false;
    f->old = f->old && info.st_size == f->old_bytes && info.st_mtim.tv_sec == f->old_time.tv_sec &&
             info.st_mtim.tv_nsec == f->old_time.tv_nsec;
    return !f->old;
}

static bool open_series(struct vb_follow *f)
{
    if (f->series != NULL || f->off || !is_there(f))
        return f->series != NULL;
    f->off = vb_series_open(f->path, &f->series) != VB_OK;
    if (!f->off && !vb_series_fits(f->series, f->kind)) {
        VB_LOG_WARN("%s has other columns than this version of verbena writes: TensorBoard will "
                    "not show its values",
                    f->path);
        vb_follow_close(f);
        f->off = true;
    }
    return f->series != NULL;
}

int64_t vb_follow_left(struct vb_follow *f)
{
    int64_t rows;

    if (!open_series(f))
        return 0;
    rows = vb_series_rows(f->series);
    return rows > f->next ? rows - f->next : 0;
}

void vb_follow_from(struct vb_follow *f, uint64_t step)
{
    int64_t row = f->next + vb_follow_left(f);
    double at;

    while (row > f->next && f->series != NULL) {
        at = vb_series_value(f->series, row - 1, 0);
        if (!(at >= (double)step))
            break;
        row--;
    }
    f->next = row;
}

bool vb_follow_next(struct vb_follow *f, void *row_p)
{
    if (f->series == NULL || !vb_series_copy(f->series, f->next, row_p))
        return false;
    f->next++;
    return true;
}
