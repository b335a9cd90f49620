/* SPDX-License-Identifier: MIT
 *
 * Direct convolution: the forward pass, and the backward data pass, which is the same with dy and
 * with weights rotated by 180 degrees.
 *
 * The registers hold the sums of a few channels (4, 6 or 8, whichever wastes least) for a few
 * neighbours in a row of output. For every tap, the inputs of these are loaded from the strip. Taps
 * are sorted by row, so that taps above or below the image can be skipped. A band is a few rows of
 * output of one group of samples; each thread takes some bands. If pooling follows, two rows are
 * pooled as soon as they are computed, and only the result leaves the cache.
 */
#include "kernels/own/direct_priv.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

#define WIDTH 8 /* number of weights stored for a tap; a block of channels uses some of them */

/* Largest number of floats in a strip. A larger strip would not fit into the second-level cache. */
#define STRIP_MAX (24 * 1024)

/* A few neighbours in a row of output, and the columns of taps that they need. */
struct piece {
    int ox, n;
    int x, cols;
};

struct conv {
    struct vb_k_pass_state pass;
    struct vb_patch patch;
    int n, c, m; /* numbers of samples, of channels read, and of channels written */
    bool data, relu, pool;
    int block;  /* number of channels written at a time */
    int pixels; /* largest number of pixels of a row computed at a time */
    int n_taps; /* number of taps of all channels together */
    int slots;
    size_t weights, strip, row; /* numbers of floats of scratch; each slot has a strip and a row */
    int n_pieces;
    struct piece *pieces; /* the pieces of a row */
    int taps[];           /* offsets of the taps in a strip */
};

/* The taps that a kernel sums: n taps in each of some columns, which are `step` taps apart. */
struct range {
    const float *bias, *w; /* (WIDTH), (taps, WIDTH) */
    const int *taps;
    int cols, n, step;
};

/* These macros access the weights of a tap. On Arm the weights are a vector, and products use its
 * lanes. On x86 each weight is broadcast from memory. */
#if defined(__x86_64__)
#define W_LOAD(wv, w, block) const float *wv = (w)
#define W_GET(wv, i) (wv)[i]
#else
#define W_LOAD(wv, w, block)                                                                       \
    vb_v4 wv[2] = {vb_v4_load(w), (block) > 4 ? vb_v4_load((w) + 4) : vb_v4_load(w)}
#define W_GET(wv, i) (wv)[(i) / 4][(i) % 4]
#endif

/* Computes the sums of a block of channels and some pixels. In out, channels are out_step apart. */
static inline __attribute__((always_inline)) void row_kernel(int block, int pixels, const float *x,
                                                             const struct range *r, float *out,
                                                             size_t out_step)
{
    const float *w = r->w;
    const int *taps = r->taps;
    int skip = r->step - r->n;
    vb_vec acc[8][4], xv[4];

#pragma GCC unroll 8
    for (int i = 0; i < block; i++)
#pragma GCC unroll 4
        for (int j = 0; j < pixels; j++)
            acc[i][j] = vb_vec_all(r->bias[i]);
    for (int col = r->cols; col > 0; col--, taps += skip, w += skip * WIDTH) {
        for (int k = r->n; k > 0; k--, w += WIDTH) {
            const float *from = x + *taps++;

#pragma GCC unroll 4
            for (int j = 0; j < pixels; j++)
                xv[j] = vb_vec_load(from + VB_DIRECT_GROUP * j);
            W_LOAD(wv, w, block);
#pragma GCC unroll 8
            for (int i = 0; i < block; i++)
#pragma GCC unroll 4
                for (int j = 0; j < pixels; j++)
                    acc[i][j] += xv[j] * W_GET(wv, i);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < block; i++)
#pragma GCC unroll 4
        for (int j = 0; j < pixels; j++)
            vb_vec_store(out + (size_t)i * out_step + VB_DIRECT_GROUP * j, acc[i][j]);
}

typedef void kernel(const float *x, const struct range *range, float *out, size_t out_step);

#define KERNEL(BLOCK, PIXELS)                                                                      \
    static void kernel_##BLOCK##_##PIXELS(const float *x, const struct range *range, float *out,   \
                                          size_t out_step)                                         \
    {                                                                                              \
        row_kernel(BLOCK, PIXELS, x, range, out, out_step);                                        \
    }

KERNEL(4, 1)
KERNEL(4, 2)
KERNEL(4, 3)
KERNEL(4, 4)
KERNEL(6, 1)
KERNEL(6, 2)
KERNEL(6, 3)
KERNEL(6, 4)
KERNEL(8, 1)
KERNEL(8, 2)
KERNEL(8, 3)

static kernel *const kernels[3][4] = {
    {kernel_4_1, kernel_4_2, kernel_4_3, kernel_4_4},
    {kernel_6_1, kernel_6_2, kernel_6_3, kernel_6_4},
    {kernel_8_1, kernel_8_2, kernel_8_3, NULL},
};

/* Finds the channel, row and column of the tap that is number k in sorted order. */
static void tap_place(const struct conv *v, int k, int *c_p, int *ky_p, int *kx_p)
{
    *c_p = k % v->c;
    *ky_p = k / v->c % v->patch.kh;
    *kx_p = k / v->c / v->patch.kh;
}

/* Packs the biases and weights of the block of channels from m on. to is (1 + taps, WIDTH). */
static void pack_weights(const struct conv *v, const float *w, const float *bias, int m, float *to)
{
    int per = v->patch.kh * v->patch.kw, k, i, c, ky, kx, tap;
    size_t at;

    for (i = 0; i < WIDTH; i++)
        *to++ = bias != NULL && i < v->block && m + i < v->m ? bias[m + i] : 0;
    for (k = 0; k < v->n_taps; k++, to += WIDTH) {
        tap_place(v, k, &c, &ky, &kx);
        tap = ky * v->patch.kw + kx;
        for (i = 0; i < WIDTH; i++) {
            at = v->data ? (size_t)((c * v->m + m + i) * per + per - 1 - tap)
                         : (size_t)(((m + i) * v->c + c) * per + tap);
            to[i] = i < v->block && m + i < v->m ? w[at] : 0;
        }
    }
}

/* Finds which of the k taps in a row or column, *from_p to *to_p - 1, are inside an image with
 * `side` inputs for any of the n outputs that begin with o. */
static void taps_inside(int k, int side, int stride, int pad, int o, int n, int *from_p, int *to_p)
{
    int first = o * stride - pad, last = (o + n - 1) * stride - pad;

    *from_p = last < 0 ? vb_min(-last, k) : 0;
    *to_p = vb_min(k, side - first);
    if (*to_p < *from_p)
        *to_p = *from_p;
}

/* Returns the taps of a piece of a row, rows y to y_end - 1. packed has the block's weights. */
static inline struct range range_of(const struct conv *v, const float *packed,
                                    const struct piece *p, int y, int y_end)
{
    struct range r = {.bias = packed, .step = v->c * v->patch.kh};
    int first = p->x * r.step + y * v->c;

    r.n = (y_end - y) * v->c;
    r.cols = p->cols;
    r.w = packed + (size_t)(1 + first) * WIDTH;
    r.taps = v->taps + first;
    if (r.n == r.step) { /* all rows are inside, so the columns are contiguous */
        r.n *= r.cols;
        r.step = r.n;
        r.cols = 1;
    }
    return r;
}

/* Computes row oy of the output of a group, for one block of channels. row is (block, ow). */
static void run_row(const struct conv *v, const float *strip, const float *packed, int oy,
                    float *row)
{
    kernel *const *by_pixels = kernels[v->block / 2 - 2];
    const struct piece *p;
    struct range range;
    int y, y_end;

    taps_inside(v->patch.kh, v->patch.h, v->patch.stride, v->patch.pad_y, oy, 1, &y, &y_end);
    for (p = v->pieces; p < v->pieces + v->n_pieces; p++) {
        range = range_of(v, packed, p, y, y_end);
        by_pixels[p->n - 1](strip + (size_t)p->ox * VB_DIRECT_GROUP, &range,
                            row + (size_t)p->ox * VB_DIRECT_GROUP,
                            (size_t)v->patch.ow * VB_DIRECT_GROUP);
    }
}

/* Does the same as run_band(), with pooling. A last row without a partner is left out. */
static void run_band_pooled(const struct conv *v, const struct vb_k_args *args, int s, int oy,
                            float *slot)
{
    size_t image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    int rows = vb_min(v->patch.rows, v->patch.oh - oy), n = vb_min(VB_DIRECT_GROUP, v->n - s), m, r,
        i;
    const float *w = args->scratch;
    float *pair = slot + v->strip;
    size_t oh = (size_t)v->patch.oh / 2, ow = (size_t)v->patch.ow / 2, at, to;
    size_t row = (size_t)v->patch.ow * VB_DIRECT_GROUP, step = (size_t)v->m * oh * ow;

    vb_direct_fill(&v->patch, args->x + (size_t)s * image, image, n, v->c, oy, slot);
    for (m = 0; m < v->m; m += v->block, w += (size_t)(1 + v->n_taps) * WIDTH) {
        at = (((size_t)s * (size_t)v->m + (size_t)m) * oh + (size_t)oy / 2) * ow;
        for (r = 0; r + 1 < rows; r += 2, at += ow) {
            for (i = 0; i < 2; i++)
                run_row(v, slot + vb_patch_pixel(&v->patch, r + i, 0) * VB_DIRECT_GROUP, w,
                        oy + r + i, pair + (size_t)(i * v->block) * row);
            for (i = 0, to = at; i < vb_min(v->block, v->m - m); i++, to += oh * ow)
                vb_direct_pool(pair + (size_t)i * row, pair + (size_t)(v->block + i) * row, (int)ow,
                               n, args->y + to, args->where + to, step);
        }
    }
}

/* Computes a band: the rows of output from oy on, for the group that begins with sample s. */
static void run_band(const struct conv *v, const struct vb_k_args *args, int s, int oy, float *slot)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    size_t image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    int rows = vb_min(v->patch.rows, v->patch.oh - oy), n = vb_min(VB_DIRECT_GROUP, v->n - s), m, r,
        i;
    const float *w = args->scratch;
    float *y = (v->data ? args->dx : args->y) + (size_t)s * (size_t)v->m * plane;

    vb_direct_fill(&v->patch, (v->data ? args->dy : args->x) + (size_t)s * image, image, n, v->c,
                   oy, slot);
    for (m = 0; m < v->m; m += v->block, w += (size_t)(1 + v->n_taps) * WIDTH) {
        for (r = 0; r < rows; r++) {
            run_row(v, slot + vb_patch_pixel(&v->patch, r, 0) * VB_DIRECT_GROUP, w, oy + r,
                    slot + v->strip);
            for (i = 0; i < vb_min(v->block, v->m - m); i++)
                vb_direct_split(
                    slot + v->strip + (size_t)(i * v->patch.ow) * VB_DIRECT_GROUP, v->patch.ow, n,
                    v->relu, y + (size_t)(m + i) * plane + (size_t)(oy + r) * (size_t)v->patch.ow,
                    (size_t)v->m * plane);
        }
    }
}

static void conv_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct conv *v = (const struct conv *)pass;
    int bands = vb_divide_up(v->patch.oh, v->patch.rows), blocks = vb_divide_up(v->m, v->block);
    int groups = vb_divide_up(v->n, VB_DIRECT_GROUP);
    float *w = args->scratch;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = w + v->weights + (size_t)omp_get_thread_num() * (v->strip + v->row);

#pragma omp for schedule(static)
        for (int i = 0; i < blocks; i++)
            pack_weights(v, args->w, v->data ? NULL : args->b, i * v->block,
                         w + (size_t)i * (size_t)(1 + v->n_taps) * WIDTH);
#pragma omp for schedule(static)
        for (int i = 0; i < groups * bands; i++)
            (v->pool ? run_band_pooled : run_band)(v, args, i / bands * VB_DIRECT_GROUP,
                                                   i % bands * v->patch.rows, slot);
    }
}

/* Chooses the size of a block that leaves the fewest channels unused; if equal, the larger. */
static void choose_block(struct conv *v)
{
    /* Number of pixels that fill the registers, for each size of a block; 0: it does not fit. */
    static const int pixels_32[] = {4, 4, 3}, pixels_16[] = {3, 2, 0};
    const int *pixels = VB_DIRECT_REGISTERS < 32 ? pixels_16 : pixels_32;
    int i, waste, least = v->m + WIDTH;

    for (i = 2; i >= 0; i--) {
        waste = vb_divide_up(v->m, 4 + 2 * i) * (4 + 2 * i) - v->m;
        if (pixels[i] > 0 && waste < least) {
            least = waste;
            v->block = 4 + 2 * i;
            v->pixels = pixels[i];
        }
    }
}

/* Cuts a row into pieces of about the same length. */
static void cut_row(struct conv *v)
{
    const struct vb_patch *p = &v->patch;
    struct piece *piece = v->pieces;
    int ox, left, end;

    v->n_pieces = vb_divide_up(p->ow, v->pixels);
    for (ox = 0, left = v->n_pieces; left > 0; left--, ox += piece->n, piece++) {
        piece->ox = ox;
        piece->n = vb_divide_up(p->ow - ox, left);
        taps_inside(p->kw, p->w, p->stride, p->pad_x, ox, piece->n, &piece->x, &end);
        piece->cols = end - piece->x;
    }
}

/* Returns true if strips are small enough, and enough of them for all threads. */
static bool rows_fit(const struct conv *v)
{
    const struct vb_patch *p = &v->patch;
    int bands = vb_divide_up(p->oh, p->rows), groups = vb_divide_up(v->n, VB_DIRECT_GROUP);

    return (size_t)v->c * vb_patch_plane(p) * VB_DIRECT_GROUP <= STRIP_MAX &&
           (size_t)bands * (size_t)groups >= (size_t)v->slots;
}

/* Chooses the number of rows of output for a strip: as many as fit, but at least one, and an even
 * number with pooling. This number does not change any bits. */
static void choose_rows(struct conv *v)
{
    struct vb_patch *p = &v->patch;
    int rows = p->oh, least = v->pool ? 2 : 1;

    vb_patch_rows(p, rows);
    while (rows > least && !rows_fit(v)) {
        rows = vb_divide_up(rows, 2 * least) * least;
        vb_patch_rows(p, rows);
    }
}

vb_status vb_direct_conv(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p)
{
    const struct vb_k_shape conv = vb_k_shape_conv(shape), *s = &conv;
    bool data = pass == VB_K_BACKWARD_DATA;
    int c = data ? s->oc : s->c, per = s->kh * s->kw, i, channel, ky, kx;
    size_t taps_len = (size_t)(c * per) * sizeof(int);
    /* An upper limit of the size of all pieces. */
    size_t pieces_len = (size_t)(data ? s->w : s->ow) * sizeof(struct piece);
    struct conv *v = calloc(1, sizeof(*v) + taps_len + pieces_len);

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = conv_run;
    v->data = data;
    v->relu = s->relu && !data;
    v->pool = shape->kind == VB_K_CONV_POOL;
    v->n = s->n;
    v->c = c;
    v->m = data ? s->c : s->oc;
    v->n_taps = c * per;
    v->slots = vb_team_slots();
    if (data)
        vb_patch_init_data(&v->patch, s);
    else
        vb_patch_init(&v->patch, s);
    choose_rows(v);
    choose_block(v);
    v->pieces = (struct piece *)(v->taps + v->n_taps);
    cut_row(v);
    for (i = 0; i < v->n_taps; i++) {
        tap_place(v, i, &channel, &ky, &kx);
        v->taps[i] = (int)vb_patch_tap(&v->patch, channel, ky, kx) * VB_DIRECT_GROUP;
    }
    v->weights =
        vb_team_align((size_t)vb_divide_up(v->m, v->block) * (size_t)(1 + v->n_taps) * WIDTH);
    v->strip = vb_team_align((size_t)c * vb_patch_plane(&v->patch) * VB_DIRECT_GROUP);
    v->row =
        vb_team_align((size_t)v->block * (size_t)v->patch.ow * VB_DIRECT_GROUP * (v->pool ? 2 : 1));
    *state_p = v;
    *scratch_p = (v->weights + (size_t)v->slots * (v->strip + v->row)) * sizeof(float);
    return VB_OK;
}
