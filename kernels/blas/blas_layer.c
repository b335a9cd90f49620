/* SPDX-License-Identifier: MIT
 *
 * Convolutions and linear layers as matrix products of BLAS.
 *
 * The *columns* of a sample are a matrix (k, pixels): row (c, ky, kx) holds the inputs that this
 * place of the kernel sees. Then y = w * columns, dw = dy * columns^T and dcolumns = w^T * dy.
 * Columns are built one block at a time, small enough for the cache; none if they would equal the
 * input.
 *
 * The work is cut into *tiles* by the shape alone. One thread computes a tile, so results do not
 * depend on the number of threads. Tiles of weight gradients are ranges of rows of the columns,
 * each summed over all samples in order.
 */
#include "kernels/blas/blas.h"

#include <omp.h>
#include <stdlib.h>

/* Size of a block of columns in floats: 1 MiB, about the size of a core's cache. */
#define BLOCK_FLOATS (256 * 1024)
#define TILES 16 /* tiles of a linear layer and of weight gradients, if they are large enough */
#define TILE_MIN 64
#define INDEX_MAX (1 << 28) /* sizes of matrices must fit into an int */

struct blas_state {
    struct vb_k_shape s;
    enum vb_k_pass pass;
    bool direct;     /* the matrix of columns equals the input, so the input is used instead */
    int k, pixels;   /* number of rows and columns of the matrix of columns */
    int samples;     /* the number of tiles is samples * parts */
    int parts, part; /* number and size of parts: pixels, channels, rows, outputs or inputs */
    int block;       /* number of pixels whose columns are built at a time */
    int slots; /* threads with their own block. No run asks for a smaller team, because OpenMP would
                  end the other threads and start new ones. */
};

/* Cuts total into at most `most` parts of at least `least`: a power of two, or slightly less. */
static void cut(struct blas_state *st, int total, int most, int least)
{
    int parts = 1;

    while (parts * 2 <= most && total / (parts * 2) >= least)
        parts *= 2;
    st->part = (total + parts - 1) / parts;
    st->parts = (total + st->part - 1) / st->part;
}

static void cut_conv(struct blas_state *st)
{
    const struct vb_k_shape *s = &st->s;

    st->block = BLOCK_FLOATS / st->k;
    st->block = st->block < TILE_MIN ? TILE_MIN : st->block;
    st->block = vb_min(st->block, st->pixels);
    st->samples = s->n;
    if (st->pass == VB_K_FORWARD)
        cut(st, st->pixels, (st->pixels + st->block - 1) / st->block, 1);
    else if (st->pass == VB_K_BACKWARD_DATA)
        /* A small batch needs more tiles to keep all threads busy. */
        cut(st, s->c, s->n >= 8 ? 1 : 8, 1);
    else
        cut(st, st->k, TILES, TILE_MIN);
    if (st->pass == VB_K_BACKWARD_WEIGHTS)
        st->samples = 1;
    if (st->pass == VB_K_FORWARD)
        st->block = st->part;
}

static size_t slot_floats(const struct blas_state *st)
{
    int rows = st->pass == VB_K_FORWARD ? st->k : st->part; /* rows that a tile builds at a time */

    if (st->direct || st->s.kind == VB_K_LINEAR)
        return 16; /* the block is not used */
    if (st->pass == VB_K_BACKWARD_DATA)
        rows *= st->s.kh * st->s.kw;
    return ((size_t)rows * (size_t)st->block + 15) / 16 * 16;
}

/* Builds elements [x0, x1) of a row of the columns from in, a row of the input; NULL: padding. */
static void lower_row(const struct vb_k_shape *s, const float *in, int kx, int x0, int x1,
                      float *out)
{
    int first = vb_k_first_inside(s, kx), end = vb_k_end_inside(s, kx), x;

    if (in == NULL || first >= x1 || end <= x0) {
        memset(out, 0, (size_t)(x1 - x0) * sizeof(*out));
        return;
    }
    in += kx - s->pad;
    for (x = x0; x < vb_min(first, x1); x++)
        *out++ = 0;
    if (s->stride == 1 && end > x && x < x1) {
        memcpy(out, in + x, (size_t)(vb_min(end, x1) - x) * sizeof(*out));
        out += vb_min(end, x1) - x;
        x = vb_min(end, x1);
    }
    for (; x < vb_min(end, x1); x++)
        *out++ = in[(ptrdiff_t)x * s->stride];
    for (; x < x1; x++)
        *out++ = 0;
}

/* The reverse of lower_row(): adds each element to the input that it was copied from. */
static void put_back_row(const struct vb_k_shape *s, float *in, int kx, int x0, int x1,
                         const float *out)
{
    int first = vb_k_first_inside(s, kx), end = vb_min(vb_k_end_inside(s, kx), x1), x;

    in += kx - s->pad;
    for (x = x0 > first ? x0 : first; x < end; x++)
        in[(ptrdiff_t)x * s->stride] += out[x - x0];
}

/* A range of pixels within one row of the columns and one row of the output. */
struct piece {
    int y, x0, x1;
};

static bool next_piece(const struct vb_k_shape *s, int *pixel_p, int end, struct piece *piece)
{
    int left = end - *pixel_p;

    if (left <= 0)
        return false;
    piece->y = *pixel_p / s->ow;
    piece->x0 = *pixel_p % s->ow;
    piece->x1 = vb_min(s->ow, piece->x0 + left);
    *pixel_p += piece->x1 - piece->x0;
    return true;
}

/* Returns the row of the input that row k of the columns reads for output row y; NULL: padding. */
static const float *input_row(const struct vb_k_shape *s, const float *x, int k, int y)
{
    int c = k / (s->kh * s->kw), ky = k / s->kw % s->kh, in_y = y * s->stride - s->pad + ky;

    if (in_y < 0 || in_y >= s->h)
        return NULL;
    return x + ((size_t)c * (size_t)s->h + (size_t)in_y) * (size_t)s->w;
}

/* Builds rows [k0, k1) and pixels [p0, p1) of the matrix of columns for x (c, h, w). */
static void lower(const struct vb_k_shape *s, const float *x, int k0, int k1, int p0, int p1,
                  float *columns)
{
    struct piece piece;
    int k, pixel;

    for (k = k0; k < k1; k++)
        for (pixel = p0; next_piece(s, &pixel, p1, &piece); columns += piece.x1 - piece.x0)
            lower_row(s, input_row(s, x, k, piece.y), k % s->kw, piece.x0, piece.x1, columns);
}

static void put_back(const struct vb_k_shape *s, float *dx, int k0, int k1, int p0, int p1,
                     const float *columns)
{
    struct piece piece;
    const float *row;
    int k, pixel;

    for (k = k0; k < k1; k++)
        for (pixel = p0; next_piece(s, &pixel, p1, &piece); columns += piece.x1 - piece.x0) {
            row = input_row(s, dx, k, piece.y);
            if (row != NULL)
                put_back_row(s, dx + (row - dx), k % s->kw, piece.x0, piece.x1, columns);
        }
}

static float with_bias(float v, float bias, bool relu)
{
    v += bias;
    return relu && v < 0 ? 0 : v; /* a NaN stays */
}

static struct vb_k_matrix plain(const float *v, size_t row)
{
    return (struct vb_k_matrix){v, false, row};
}

static struct vb_k_matrix transposed(const float *v, size_t row)
{
    return (struct vb_k_matrix){v, true, row};
}

static void conv_forward(const struct blas_state *st, const struct vb_k_args *a, int sample,
                         int part, float *columns)
{
    const struct vb_k_shape *s = &st->s;
    const float *x = a->x + (size_t)sample * (size_t)s->c * (size_t)s->h * (size_t)s->w;
    size_t pixels = (size_t)st->pixels;
    int p0 = part * st->part, n = vb_min(st->part, st->pixels - p0), oc, i;
    float *y = a->y + (size_t)sample * (size_t)s->oc * pixels + p0;
    struct vb_k_matrix b = plain(x + p0, pixels);

    if (!st->direct) {
        lower(s, x, 0, st->k, p0, p0 + n, columns);
        b = plain(columns, (size_t)n);
    }
    vb_k_sgemm(s->oc, n, st->k, plain(a->w, (size_t)st->k), b, 0, y, pixels);
    for (oc = 0; oc < s->oc; oc++, y += pixels) {
        float bias = a->b != NULL ? a->b[oc] : 0;

        for (i = 0; i < n; i++)
            y[i] = with_bias(y[i], bias, s->relu);
    }
}

static void conv_backward_data(const struct blas_state *st, const struct vb_k_args *a, int sample,
                               int part, float *columns)
{
    const struct vb_k_shape *s = &st->s;
    int c0 = part * st->part, c1 = vb_min(c0 + st->part, s->c), at_kernel = s->kh * s->kw;
    size_t plane = (size_t)s->h * (size_t)s->w, pixels = (size_t)st->pixels;
    float *dx = a->dx + (size_t)sample * (size_t)s->c * plane;
    const float *dy = a->dy + (size_t)sample * (size_t)s->oc * pixels;
    int k0 = c0 * at_kernel, rows = (c1 - c0) * at_kernel, p0, n;
    struct vb_k_matrix w = transposed(a->w + k0, (size_t)st->k);

    if (st->direct) {
        vb_k_sgemm(rows, st->pixels, s->oc, w, plain(dy, pixels), 0, dx + (size_t)c0 * plane,
                   pixels);
        return;
    }
    memset(dx + (size_t)c0 * plane, 0, (size_t)(c1 - c0) * plane * sizeof(*dx));
    for (p0 = 0; p0 < st->pixels; p0 += st->block) {
        n = vb_min(st->block, st->pixels - p0);
        vb_k_sgemm(rows, n, s->oc, w, plain(dy + p0, pixels), 0, columns, (size_t)n);
        put_back(s, dx, k0, k0 + rows, p0, p0 + n, columns);
    }
}

/* Computes one part of dw, summed over all samples: columns [k0, k0 + rows) of dw, which need the
 * same rows of the matrix of columns. */
static void conv_backward_weights(const struct blas_state *st, const struct vb_k_args *a, int part,
                                  float *columns)
{
    const struct vb_k_shape *s = &st->s;
    int k0 = part * st->part, rows = vb_min(st->part, st->k - k0), i, p0, n;
    size_t plane = (size_t)s->h * (size_t)s->w, pixels = (size_t)st->pixels;
    struct vb_k_matrix b;

    for (i = 0; i < s->n; i++) {
        const float *x = a->x + (size_t)i * (size_t)s->c * plane;
        const float *dy = a->dy + (size_t)i * (size_t)s->oc * pixels;

        for (p0 = 0; p0 < st->pixels; p0 += st->block) {
            n = vb_min(st->block, st->pixels - p0);
            b = transposed(x + (size_t)k0 * pixels + p0, pixels);
            if (!st->direct) {
                lower(s, x, k0, k0 + rows, p0, p0 + n, columns);
                b = transposed(columns, (size_t)n);
            }
            vb_k_sgemm(s->oc, rows, n, plain(dy + p0, pixels), b, i > 0 || p0 > 0 ? 1.0f : 0.0f,
                       a->dw + k0, (size_t)st->k);
        }
    }
}

static void linear_forward(const struct blas_state *st, const struct vb_k_args *a, int part)
{
    int o0 = part * st->part, n = vb_min(st->part, st->s.oc - o0), i, o;
    size_t k = (size_t)st->k, oc = (size_t)st->s.oc;
    float *y;

    vb_k_sgemm(st->s.n, n, st->k, plain(a->x, k), transposed(a->w + (size_t)o0 * k, k), 0,
               a->y + o0, oc);
    for (i = 0; i < st->s.n; i++) {
        y = a->y + (size_t)i * oc;
        for (o = o0; o < o0 + n; o++)
            y[o] = with_bias(y[o], a->b != NULL ? a->b[o] : 0, st->s.relu);
    }
}

static void linear_backward_data(const struct blas_state *st, const struct vb_k_args *a, int part)
{
    int k0 = part * st->part, n = vb_min(st->part, st->k - k0);
    size_t k = (size_t)st->k;

    vb_k_sgemm(st->s.n, n, st->s.oc, plain(a->dy, (size_t)st->s.oc), plain(a->w + k0, k), 0,
               a->dx + k0, k);
}

static void linear_backward_weights(const struct blas_state *st, const struct vb_k_args *a,
                                    int part)
{
    int o0 = part * st->part, m = vb_min(st->part, st->s.oc - o0);
    size_t k = (size_t)st->k;

    vb_k_sgemm(m, st->k, st->s.n, transposed(a->dy + o0, (size_t)st->s.oc), plain(a->x, k), 0,
               a->dw + (size_t)o0 * k, k);
}

static void run_tile(const struct blas_state *st, const struct vb_k_args *a, int tile,
                     float *columns)
{
    int part = tile % st->parts, sample = tile / st->parts;
    bool conv = st->s.kind == VB_K_CONV;

    if (st->pass == VB_K_FORWARD)
        conv ? conv_forward(st, a, sample, part, columns) : linear_forward(st, a, part);
    else if (st->pass == VB_K_BACKWARD_DATA)
        conv ? conv_backward_data(st, a, sample, part, columns) : linear_backward_data(st, a, part);
    else
        conv ? conv_backward_weights(st, a, part, columns) : linear_backward_weights(st, a, part);
}

static bool blas_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    double rows =
        (double)s->c * (s->kind == VB_K_CONV ? (double)s->kh * s->kw : (double)s->h * s->w);

    (void)pass;
    if (s->kind != VB_K_CONV && s->kind != VB_K_LINEAR)
        return false;
    return rows < INDEX_MAX && (double)s->oh * s->ow < INDEX_MAX &&
           (double)s->n * TILES < INDEX_MAX;
}

static vb_status blas_prepare(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                              size_t *scratch_p)
{
    vb_status ready = vb_k_blas_ready();
    struct blas_state *st;

    if (ready != VB_OK)
        return ready;
    st = calloc(1, sizeof(*st));
    if (st == NULL)
        return vb_err_sys("calloc");
    st->s = *s;
    st->pass = pass;
    st->pixels = s->oh * s->ow;
    if (s->kind == VB_K_CONV) {
        st->k = s->c * s->kh * s->kw;
        st->direct = s->kh == 1 && s->kw == 1 && s->stride == 1 && s->pad == 0;
        cut_conv(st);
    } else {
        st->k = s->c * s->h * s->w;
        st->samples = 1;
        cut(st, pass == VB_K_BACKWARD_DATA ? st->k : s->oc, TILES, TILE_MIN);
    }
    st->slots = omp_get_max_threads();
    *scratch_p = (size_t)st->slots * slot_floats(st) * sizeof(float);
    *state_p = st;
    return VB_OK;
}

static void blas_run(void *state, const struct vb_k_args *a)
{
    const struct blas_state *st = state;
    int tiles = st->samples * st->parts, i;
    size_t slot = slot_floats(st);

#pragma omp parallel for schedule(static) num_threads(vb_min(omp_get_max_threads(), st->slots))
    for (i = 0; i < tiles; i++)
        run_tile(st, a, i, (float *)a->scratch + (size_t)omp_get_thread_num() * slot);
    if (st->pass == VB_K_BACKWARD_WEIGHTS && a->db != NULL)
        vb_k_bias_grad(a->dy, st->s.n, st->s.oc, (size_t)st->pixels, a->db);
}

const struct vb_k_backend vb_k_backend_blas = {
    .name = "blas",
    .can = blas_can,
    .prepare = blas_prepare,
    .run = blas_run,
    .destroy = free,
};
