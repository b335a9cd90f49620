/* SPDX-License-Identifier: MIT
 *
 * Direct convolution backward to the weights. In registers are sums of some channels of dy (3 or 4)
 * by TAPS taps, each a vector along the pixels of a row; its four lanes are added up at the very
 * end. The samples are cut into at most CHUNKS chunks, by the shape alone, which the threads share
 * out; a chunk's sums are kept in memory from band to band, and the chunks added in their order.
 */
#include "kernels/direct_priv.h"
#include "kernels/sum_priv.h"
#include "kernels/team_priv.h"

#include <stdlib.h>
#include <string.h>

#define TAPS 5
#define CHUNKS 8

typedef int lanes __attribute__((vector_size(16)));

struct weights {
    struct vb_direct_pass pass;
    struct vb_patch patch;
    int n, c, oc;
    int block;  /* channels of dy at a time */
    int n_taps; /* of all channels */
    int chunk;  /* samples */
    int slots;
    size_t sums;  /* floats of scratch of each chunk */
    size_t strip; /* ... of each slot */
    int taps[];   /* where a strip has them, filled up to whole blocks with the last */
};

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Adds a band to the sums of one block. x: of each tap, dy: of each channel. A row that is no
 * multiple of four long ends with a vector whose first lanes were there already: of x they are 0.
 */
static inline __attribute__((always_inline)) void band_kernel(const struct weights *v, int block,
                                                              const float *const dy[4],
                                                              const float *const x[TAPS], int rows,
                                                              float *sums)
{
    int ow = v->patch.ow, full = ow / 4 * 4, again = full + 4 - ow;
    lanes keep = (lanes){0, 1, 2, 3} >= again;
    vb_v4 acc[4][TAPS], dv[4], xv;
    size_t p = 0, q = 0;

#pragma GCC unroll 4
    for (int i = 0; i < block; i++)
#pragma GCC unroll 5
        for (int j = 0; j < TAPS; j++)
            acc[i][j] = vb_v4_load(sums + (i * TAPS + j) * 4);
    for (; rows > 0; rows--) {
        for (int ox = 0; ox < full; ox += 4) {
#pragma GCC unroll 4
            for (int i = 0; i < block; i++)
                dv[i] = vb_v4_load(dy[i] + p + ox);
#pragma GCC unroll 5
            for (int j = 0; j < TAPS; j++) {
                xv = vb_v4_load(x[j] + q + ox);
#pragma GCC unroll 4
                for (int i = 0; i < block; i++)
                    acc[i][j] += dv[i] * xv;
            }
        }
        if (full < ow) {
#pragma GCC unroll 4
            for (int i = 0; i < block; i++)
                dv[i] = vb_v4_load(dy[i] + p + ow - 4);
#pragma GCC unroll 5
            for (int j = 0; j < TAPS; j++) {
                xv = (vb_v4)((lanes)vb_v4_load(x[j] + q + ow - 4) & keep);
#pragma GCC unroll 4
                for (int i = 0; i < block; i++)
                    acc[i][j] += dv[i] * xv;
            }
        }
        p += (size_t)ow;
        q += (size_t)v->patch.stride * (size_t)v->patch.pitch;
    }
#pragma GCC unroll 4
    for (int i = 0; i < block; i++)
#pragma GCC unroll 5
        for (int j = 0; j < TAPS; j++)
            vb_v4_store(sums + (i * TAPS + j) * 4, acc[i][j]);
}

static void band_3(const struct weights *v, const float *const dy[4], const float *const x[TAPS],
                   int rows, float *sums)
{
    band_kernel(v, 3, dy, x, rows, sums);
}

static void band_4(const struct weights *v, const float *const dy[4], const float *const x[TAPS],
                   int rows, float *sums)
{
    band_kernel(v, 4, dy, x, rows, sums);
}

/* dy: of one sample. */
static void run_band(const struct weights *v, const float *strip, const float *dy, int oy,
                     float *sums)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    int rows = min(v->patch.rows, v->patch.oh - oy), k, m, i;
    const float *x[TAPS], *from[4];

    dy += (size_t)oy * (size_t)v->patch.ow;
    for (k = 0; k < v->n_taps; k += TAPS) {
        for (i = 0; i < TAPS; i++)
            x[i] = strip + v->taps[k + i];
        for (m = 0; m < v->oc; m += v->block, sums += v->block * TAPS * 4) {
            for (i = 0; i < 4; i++) /* what is missing repeats the last and is not kept */
                from[i] = dy + (size_t)min(m + i, v->oc - 1) * plane;
            if (v->block == 3)
                band_3(v, from, x, rows, sums);
            else
                band_4(v, from, x, rows, sums);
        }
    }
}

static void run_chunk(const struct weights *v, const struct vb_k_args *args, int chunk,
                      float *strip, float *sums)
{
    size_t x_image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    size_t y_image = (size_t)v->oc * (size_t)v->patch.oh * (size_t)v->patch.ow;
    int s, oy;

    memset(sums, 0, v->sums * sizeof(*sums));
    for (s = chunk * v->chunk; s < min((chunk + 1) * v->chunk, v->n); s++) {
        for (oy = 0; oy < v->patch.oh; oy += v->patch.rows) {
            vb_patch_fill(&v->patch, args->x + (size_t)s * x_image, v->c, oy, strip);
            run_band(v, strip, args->dy + (size_t)s * y_image, oy, sums);
        }
    }
}

/* One weight: the sums of all chunks, then of the lanes. */
static float collect(const struct weights *v, const float *sums, int oc, int tap)
{
    int chunks = divide_up(v->n, v->chunk), blocks = divide_up(v->oc, v->block), i;
    size_t at = ((size_t)(tap / TAPS * blocks + oc / v->block) * (size_t)v->block +
                 (size_t)(oc % v->block)) *
                    TAPS +
                (size_t)(tap % TAPS);
    vb_v4 all = {0};

    for (i = 0; i < chunks; i++)
        all += vb_v4_load(sums + (size_t)i * v->sums + at * 4);
    return (all[0] + all[1]) + (all[2] + all[3]);
}

static void weights_run(struct vb_direct_pass *pass, const struct vb_k_args *args)
{
    const struct weights *v = (const struct weights *)pass;
    int chunks = divide_up(v->n, v->chunk);
    float *sums = args->scratch;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *strip = sums + (size_t)chunks * v->sums + (size_t)omp_get_thread_num() * v->strip;

#pragma omp for schedule(static)
        for (int i = 0; i < chunks; i++)
            run_chunk(v, args, i, strip, sums + (size_t)i * v->sums);
#pragma omp for schedule(static)
        for (int m = 0; m < v->oc; m++) {
            for (int k = 0; k < v->n_taps; k++)
                args->dw[(size_t)m * (size_t)v->n_taps + (size_t)k] = collect(v, sums, m, k);
            args->db[m] = vb_sum_channel(args->dy, v->n, v->oc, v->patch.oh * v->patch.ow, m);
        }
    }
}

vb_status vb_direct_weights(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    int per = s->kh * s->kw, n_taps = s->c * per, full = divide_up(n_taps, TAPS) * TAPS, i, k;
    struct weights *v = calloc(1, sizeof(*v) + (size_t)full * sizeof(int));

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = weights_run;
    v->n = s->n;
    v->c = s->c;
    v->oc = s->oc;
    v->n_taps = n_taps;
    v->block = divide_up(s->oc, 3) * 3 < divide_up(s->oc, 4) * 4 ? 3 : 4;
    v->chunk = divide_up(s->n, min(s->n, CHUNKS));
    vb_patch_init(&v->patch, s);
    vb_direct_rows(&v->patch, s->c);
    for (i = 0; i < full; i++) {
        k = min(i, n_taps - 1);
        v->taps[i] = (int)vb_patch_tap(&v->patch, k / per, k % per / s->kw, k % s->kw);
    }
    v->slots = vb_team_slots();
    v->sums =
        vb_team_align((size_t)divide_up(s->oc, v->block) * (size_t)v->block * (size_t)full * 4);
    v->strip = vb_team_align((size_t)s->c * vb_patch_plane(&v->patch));
    *state_p = v;
    *scratch_p =
        ((size_t)divide_up(s->n, v->chunk) * v->sums + (size_t)v->slots * v->strip) * sizeof(float);
    return VB_OK;
}
