/* SPDX-License-Identifier: MIT
 *
 * Computes pooling: combines the input rows that a row of outputs sees into one row, in a vector
 * loop, and then the columns of that row that each output sees.
 */
#include "kernels/layer/plain.h"

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Return the range [first, end) of the rows of the input that a row of outputs sees. */
static int first_row(const struct vb_k_shape *s, int oy)
{
    return max_int(0, oy * s->stride - s->pad);
}

static int end_row(const struct vb_k_shape *s, int oy)
{
    return vb_min(s->h, oy * s->stride - s->pad + s->kh);
}

/* A join_fn adds a row of the input to row. An across_fn combines columns for each output. */
typedef void (*join_fn)(float *restrict row, const float *restrict in, int n);
typedef void (*across_fn)(const struct vb_k_shape *s, const float *row, float *y);

static void pool_rows(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                      float *row, join_fn join, across_fn across)
{
    const float *x = a->x + tile * (size_t)s->h * (size_t)s->w;
    float *y = a->y + tile * (size_t)s->oh * (size_t)s->ow;
    int oy, iy;

    for (oy = 0; oy < s->oh; oy++, y += s->ow) {
        iy = first_row(s, oy);
        memcpy(row, x + (size_t)iy * (size_t)s->w, (size_t)s->w * sizeof(*row));
        for (iy++; iy < end_row(s, oy); iy++)
            join(row, x + (size_t)iy * (size_t)s->w, s->w);
        across(s, row, y);
    }
}

static inline float larger(float best, float v)
{
    return ((v > best) | (v != v)) ? v : best; /* a NaN wins, and stays */
}

static void join_max(float *restrict row, const float *restrict in, int n)
{
    int i;

    for (i = 0; i < n; i++)
        row[i] = larger(row[i], in[i]);
}

/* Computes the maximum for n outputs; with vector instructions if stride is a constant. */
static inline void take_max(float *restrict y, const float *restrict row, int n, int stride)
{
    int i;

    for (i = 0; i < n; i++)
        y[i] = larger(y[i], row[(ptrdiff_t)i * stride]);
}

static void across_max(const struct vb_k_shape *s, const float *row, float *y)
{
    int kx, first, end, i;

    for (i = 0; i < s->ow;
         i++) /* start with the first column inside the input; there is always one */
        y[i] = row[max_int(0, i * s->stride - s->pad)];
    for (kx = 0; kx < s->kw; kx++) {
        first = vb_k_first_inside(s, kx);
        end = vb_k_end_inside(s, kx);
        if (first >= end)
            continue;
        if (s->stride == 2)
            take_max(y + first, row + first * 2 - s->pad + kx, end - first, 2);
        else
            take_max(y + first, row + (ptrdiff_t)first * s->stride - s->pad + kx, end - first,
                     s->stride);
    }
}

void vb_plain_max_forward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                          float *row)
{
    pool_rows(s, a, tile, row, join_max, across_max);
}

/* Handles the most common window, 2 x 2 without overlap. The gradient goes to the first input that
 * equals the result or is a NaN (the result is then NaN). */
static void max_backward_2x2(const float *restrict x0, const float *restrict x1,
                             const float *restrict y, const float *restrict dy, int n,
                             float *restrict dx0, float *restrict dx1)
{
    int i, a, b, c, d;

    for (i = 0; i < n; i++) {
        a = (x0[2 * i] == y[i]) | (x0[2 * i] != x0[2 * i]);
        b = (x0[2 * i + 1] == y[i]) | (x0[2 * i + 1] != x0[2 * i + 1]);
        c = (x1[2 * i] == y[i]) | (x1[2 * i] != x1[2 * i]);
        d = (x1[2 * i + 1] == y[i]) | (x1[2 * i + 1] != x1[2 * i + 1]);
        dx0[2 * i] = a ? dy[i] : 0;
        dx0[2 * i + 1] = (b & !a) ? dy[i] : 0;
        dx1[2 * i] = (c & !(a | b)) ? dy[i] : 0;
        dx1[2 * i + 1] = (d & !(a | b | c)) ? dy[i] : 0;
    }
}

static void max_backward_window(const struct vb_k_shape *s, const float *x, float y, int oy, int ox,
                                float dy, float *dx)
{
    int x0 = max_int(0, ox * s->stride - s->pad);
    int x1 = vb_min(s->w, ox * s->stride - s->pad + s->kw), iy, ix;
    size_t at;

    for (iy = first_row(s, oy); iy < end_row(s, oy); iy++) {
        for (ix = x0; ix < x1; ix++) {
            at = (size_t)iy * (size_t)s->w + (size_t)ix;
            if (x[at] == y || x[at] != x[at]) {
                dx[at] += dy;
                return;
            }
        }
    }
}

void vb_plain_max_backward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                           float *row)
{
    bool common = s->kh == 2 && s->kw == 2 && s->stride == 2 && s->pad == 0;
    size_t w = (size_t)s->w, out = tile * (size_t)s->oh * (size_t)s->ow;
    const float *x = a->x + tile * (size_t)s->h * w, *y = a->y + out, *dy = a->dy + out;
    float *dx = a->dx + tile * (size_t)s->h * w;
    int oy, ox;

    (void)row;
    memset(dx, 0, (size_t)s->h * w * sizeof(*dx));
    for (oy = 0; oy < s->oh; oy++, y += s->ow, dy += s->ow) {
        size_t top = (size_t)oy * 2 * w;

        if (common)
            max_backward_2x2(x + top, x + top + w, y, dy, s->ow, dx + top, dx + top + w);
        for (ox = 0; ox < s->ow && !common; ox++)
            max_backward_window(s, x, y[ox], oy, ox, dy[ox], dx);
    }
}

static void join_sum(float *restrict row, const float *restrict in, int n)
{
    int i;

    for (i = 0; i < n; i++)
        row[i] += in[i];
}

static void across_sum(const struct vb_k_shape *s, const float *row, float *y)
{
    float share = 1 / ((float)s->kh * (float)s->kw);
    int kx, i;

    memset(y, 0, (size_t)s->ow * sizeof(*y));
    for (kx = 0; kx < s->kw; kx++)
        for (i = vb_k_first_inside(s, kx); i < vb_k_end_inside(s, kx); i++)
            y[i] += row[(ptrdiff_t)i * s->stride - s->pad + kx];
    for (i = 0; i < s->ow; i++)
        y[i] *= share;
}

void vb_plain_avg_forward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                          float *row)
{
    pool_rows(s, a, tile, row, join_sum, across_sum);
}

/* Spreads the gradients of a row of outputs over the columns of their windows. */
static void spread(const struct vb_k_shape *s, const float *dy, float *row)
{
    float share = 1 / ((float)s->kh * (float)s->kw);
    int kx, i;

    memset(row, 0, (size_t)s->w * sizeof(*row));
    for (kx = 0; kx < s->kw; kx++)
        for (i = vb_k_first_inside(s, kx); i < vb_k_end_inside(s, kx); i++)
            row[(ptrdiff_t)i * s->stride - s->pad + kx] += dy[i] * share;
}

void vb_plain_avg_backward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                           float *row)
{
    const float *dy = a->dy + tile * (size_t)s->oh * (size_t)s->ow;
    float *dx = a->dx + tile * (size_t)s->h * (size_t)s->w;
    int oy, iy;

    memset(dx, 0, (size_t)s->h * (size_t)s->w * sizeof(*dx));
    for (oy = 0; oy < s->oh; oy++, dy += s->ow) {
        spread(s, dy, row);
        for (iy = first_row(s, oy); iy < end_row(s, oy); iy++)
            join_sum(dx + (size_t)iy * (size_t)s->w, row, s->w);
    }
}
