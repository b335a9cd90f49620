/* SPDX-License-Identifier: MIT
 *
 * Adds patches, each multiplied by a number. The sums of a few rows and a few vectors at a time are
 * in registers.
 */
#include "kernels/own/pooled_priv.h"

#define ROWS 6                                   /* largest number of rows of a patch at a time */
#if defined(__x86_64__) && !defined(__AVX512F__) /* 16 registers; otherwise 32 */
/* Largest number of vectors of a row that are added at a time. */
#define VECTORS 2
#else
#define VECTORS 4
#endif

static inline __attribute__((always_inline)) void
sum_kernel(int rows, int vectors, const float *from, size_t pitch,
           const struct vb_pooled_term *terms, size_t n, float *sums, size_t sums_pitch)
{
    vb_vec acc[ROWS][VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[r][v] = vb_vec_load(sums + (size_t)r * sums_pitch + VB_LANES * v);
    for (; n > 0; n--, terms++) {
        const float *row = from + terms->at;
        vb_vec g = vb_vec_all(terms->g);

#pragma GCC unroll 6
        for (int r = 0; r < rows; r++, row += pitch)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                acc[r][v] += g * vb_vec_load(row + VB_LANES * v);
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            vb_vec_store(sums + (size_t)r * sums_pitch + VB_LANES * v, acc[r][v]);
}

typedef void kernel(const float *from, size_t pitch, const struct vb_pooled_term *terms, size_t n,
                    float *sums, size_t sums_pitch);

#define KERNEL(R, V)                                                                               \
    static void kernel_##R##_##V(const float *from, size_t pitch,                                  \
                                 const struct vb_pooled_term *terms, size_t n, float *sums,        \
                                 size_t sums_pitch)                                                \
    {                                                                                              \
        sum_kernel(R, V, from, pitch, terms, n, sums, sums_pitch);                                 \
    }
#if VECTORS == 2
#define KERNELS(R) KERNEL(R, 1) KERNEL(R, 2)
#define NAMES(R)                                                                                   \
    {                                                                                              \
        kernel_##R##_1, kernel_##R##_2                                                             \
    }
#else
#define KERNELS(R) KERNEL(R, 1) KERNEL(R, 2) KERNEL(R, 3) KERNEL(R, 4)
#define NAMES(R)                                                                                   \
    {                                                                                              \
        kernel_##R##_1, kernel_##R##_2, kernel_##R##_3, kernel_##R##_4                             \
    }
#endif

KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(4)
KERNELS(5)
KERNELS(6)

static kernel *const kernels[ROWS][VECTORS] = {NAMES(1), NAMES(2), NAMES(3),
                                               NAMES(4), NAMES(5), NAMES(6)};

#if VB_LANES > 4
/* Adds patches with at most eight floats in a row: one vector for each row. With so few sums, each
 * addition would wait for the addition before, so odd and even terms have separate sums. */
static inline __attribute__((always_inline)) void
narrow_kernel(int rows, const float *from, size_t pitch, const struct vb_pooled_term *terms,
              size_t n, float *sums, size_t sums_pitch)
{
    vb_v8 even[ROWS], odd[ROWS];

#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        even[r] = vb_v8_load(sums + (size_t)r * sums_pitch);
        odd[r] = (vb_v8){0};
    }
    for (; n > 1; n -= 2, terms += 2) {
        const float *row0 = from + terms[0].at, *row1 = from + terms[1].at;

#pragma GCC unroll 6
        for (int r = 0; r < rows; r++, row0 += pitch, row1 += pitch) {
            even[r] += terms[0].g * vb_v8_load(row0);
            odd[r] += terms[1].g * vb_v8_load(row1);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        if (n > 0)
            even[r] += terms->g * vb_v8_load(from + terms->at + (size_t)r * pitch);
        vb_v8_store(sums + (size_t)r * sums_pitch, even[r] + odd[r]);
    }
}

#define NARROW(R)                                                                                  \
    static void narrow_##R(const float *from, size_t pitch, const struct vb_pooled_term *terms,    \
                           size_t n, float *sums, size_t sums_pitch)                               \
    {                                                                                              \
        narrow_kernel(R, from, pitch, terms, n, sums, sums_pitch);                                 \
    }

NARROW(1)
NARROW(2)
NARROW(3)
NARROW(4)
NARROW(5)
NARROW(6)

static kernel *const narrow[ROWS] = {narrow_1, narrow_2, narrow_3, narrow_4, narrow_5, narrow_6};
#endif

static kernel *kernel_of(const struct vb_pooled_patch *p, int rows, int vectors)
{
#if VB_LANES > 4
    if (p->floats <= 8)
        return narrow[rows - 1];
#else
    (void)p;
#endif
    return kernels[rows - 1][vectors - 1];
}

void vb_pooled_patch_init(struct vb_pooled_patch *p, int rows, int floats)
{
    p->rows = rows;
    p->floats = floats;
    p->vectors = vb_divide_up(floats, VB_LANES);
}

/* Cuts the patch into pieces of about the same size, and adds the terms for each piece. */
void vb_pooled_sum(const struct vb_pooled_patch *p, const float *from,
                   const struct vb_pooled_term *terms, size_t n, float *sums, size_t sums_pitch)
{
    int r, v, rows, vectors, down = vb_divide_up(p->rows, ROWS), across;

    for (r = 0; r < p->rows; r += rows, down--) {
        rows = vb_divide_up(p->rows - r, down);
        across = vb_divide_up(p->vectors, VECTORS);
        for (v = 0; v < p->vectors; v += vectors, across--) {
            vectors = vb_divide_up(p->vectors - v, across);
            kernel_of(p, rows,
                      vectors)(from + (size_t)r * p->pitch + (size_t)v * VB_LANES, p->pitch, terms,
                               n, sums + (size_t)r * sums_pitch + (size_t)v * VB_LANES, sums_pitch);
        }
    }
}

void vb_pooled_image_init(struct vb_pooled_image *image, const struct vb_k_shape *s)
{
    image->c = s->c;
    image->h = s->h;
    image->w = s->w;
    image->pad = s->pad;
    image->pitch = (size_t)(s->w + 2 * s->pad) * (size_t)s->c;
    image->len = (size_t)(s->h + 2 * s->pad) * image->pitch + VB_LANES;
}

static size_t inside(const struct vb_pooled_image *image, int y)
{
    return (size_t)(y + image->pad) * image->pitch + (size_t)image->pad * (size_t)image->c;
}

void vb_pooled_image_fill(const struct vb_pooled_image *image, const float *x, float *to)
{
    int c, y, i;

    if (image->pad > 0)
        memset(to, 0, image->len * sizeof(*to));
    memset(to + image->len - VB_LANES, 0, VB_LANES * sizeof(*to));
    for (c = 0; c < image->c; c++) {
        for (y = 0; y < image->h; y++, x += image->w) {
            float *row = to + inside(image, y) + c;

            if (image->c == 1)
                memcpy(row, x, (size_t)image->w * sizeof(*x));
            for (i = 0; i < image->w && image->c > 1; i++)
                row[(size_t)i * (size_t)image->c] = x[i];
        }
    }
}

void vb_pooled_image_empty(const struct vb_pooled_image *image, const float *from, float *x)
{
    int c, y, i;

    for (c = 0; c < image->c; c++) {
        for (y = 0; y < image->h; y++, x += image->w) {
            const float *row = from + inside(image, y) + c;

            for (i = 0; i < image->w; i++)
                x[i] = row[(size_t)i * (size_t)image->c];
        }
    }
}
