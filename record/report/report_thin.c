/* SPDX-License-Identifier: MIT */
#include "record/report/report.h"

#include <math.h>
#include <stdlib.h>

vb_status vb_thin_init(struct vb_thin *thin, int64_t rows, int points, int n_cols)
{
    size_t n;

    *thin = (struct vb_thin){.n_cols = n_cols, .stride = 1};
    if (rows <= 0 || points <= 0)
        return VB_OK;
    thin->stride = (rows - 1) / points + 1;
    thin->n = (int)((rows - 1) / thin->stride + 1);
    n = (size_t)thin->n * (size_t)n_cols;
    thin->cells = calloc(n, sizeof(*thin->cells));
    if (thin->cells == NULL) {
        thin->n = 0;
        return vb_err_sys("calloc");
    }
    return VB_OK;
}

void vb_thin_free(struct vb_thin *thin)
{
    free(thin->cells);
    *thin = (struct vb_thin){.stride = 1};
}

static void add_value(struct vb_thin_cell *cell, double value)
{
    if (!isfinite(value)) {
        cell->bad++;
        return;
    }
    cell->low = cell->n == 0 || value < cell->low ? value : cell->low;
    cell->high = cell->n == 0 || value > cell->high ? value : cell->high;
    cell->sum += value;
    cell->n++;
}

void vb_thin_add(struct vb_thin *thin, int64_t row, const double *values)
{
    int64_t bucket = row / thin->stride;
    int i;

    if (row < 0 || bucket >= thin->n)
        return;
    for (i = 0; i < thin->n_cols; i++)
        add_value(&thin->cells[bucket * thin->n_cols + i], values[i]);
}

const struct vb_thin_cell *vb_thin_at(const struct vb_thin *thin, int bucket, int col)
{
    return &thin->cells[(size_t)bucket * (size_t)thin->n_cols + (size_t)col];
}

double vb_thin_mean(const struct vb_thin *thin, int bucket, int col)
{
    const struct vb_thin_cell *cell = vb_thin_at(thin, bucket, col);

    return cell->n > 0 ? cell->sum / (double)cell->n : (double)NAN;
}
