/* SPDX-License-Identifier: MIT
 *
 * Computes the backward weights pass of a direct convolution. The registers hold the sums for each
 * pair of a channel of dy (2 to 4) and a tap (TAPS), with one lane for each sample of a group; the
 * lanes are added at the very end. Each thread takes some of at most CHUNKS chunks of groups, cut
 * by the shape alone, whose sums are added in order.
 */
#include "kernels/own/direct_priv.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

#define TAPS 5
#define CHUNKS 8

/* Largest number of floats in the strips of x and dy together, which should stay in cache. */
#define STRIPS_MAX (3 * 1024 * VB_DIRECT_GROUP)

struct weights {
    struct vb_k_pass_state pass;
    struct vb_patch patch, dy; /* dy is read without padding */
    int n, c, oc;
    int block;  /* number of channels of dy computed at a time */
    int n_taps; /* number of taps of all channels together */
    int chunk;  /* number of groups in a chunk */
    int slots;
    size_t sums;            /* number of floats of scratch for each chunk */
    size_t strip, dy_strip; /* numbers of floats of scratch for each slot */
    int taps[];             /* offset of each tap in a strip; the last one fills up a block */
};

/* Adds a band to the sums of a block. x has the inputs of each tap, dy the gradients. */
static inline __attribute__((always_inline)) void band_kernel(const struct weights *v, int block,
                                                              const float *const dy[4],
                                                              const float *const x[TAPS], int rows,
                                                              float *sums)
{
    size_t ow = (size_t)v->patch.ow * VB_DIRECT_GROUP,
           x_row = (size_t)(v->patch.stride * v->patch.pitch) * VB_DIRECT_GROUP;
    size_t p = 0, q = 0, i;
    vb_vec acc[4][TAPS], dv[4], xv;

#pragma GCC unroll 4
    for (int m = 0; m < block; m++)
#pragma GCC unroll 5
        for (int j = 0; j < TAPS; j++)
            acc[m][j] = vb_vec_load(sums + (m * TAPS + j) * VB_DIRECT_GROUP);
    for (; rows > 0; rows--, p += ow, q += x_row) {
        for (i = 0; i < ow; i += VB_DIRECT_GROUP) {
#pragma GCC unroll 4
            for (int m = 0; m < block; m++)
                dv[m] = vb_vec_load(dy[m] + p + i);
#pragma GCC unroll 5
            for (int j = 0; j < TAPS; j++) {
                xv = vb_vec_load(x[j] + q + i);
#pragma GCC unroll 4
                for (int m = 0; m < block; m++)
                    acc[m][j] += dv[m] * xv;
            }
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < block; m++)
#pragma GCC unroll 5
        for (int j = 0; j < TAPS; j++)
            vb_vec_store(sums + (m * TAPS + j) * VB_DIRECT_GROUP, acc[m][j]);
}

static void run_band(const struct weights *v, const float *strip, const float *dy, int rows,
                     float *sums)
{
    size_t plane = vb_patch_plane(&v->dy) * VB_DIRECT_GROUP;
    const float *x[TAPS], *from[4];
    int k, m, i;

    for (k = 0; k < v->n_taps; k += TAPS) {
        for (i = 0; i < TAPS; i++)
            x[i] = strip + v->taps[k + i];
        for (m = 0; m < v->oc; m += v->block, sums += v->block * TAPS * VB_DIRECT_GROUP) {
            for (i = 0; i < 4; i++) /* missing channels repeat the last one, unused */
                from[i] = dy + (size_t)vb_min(m + i, v->oc - 1) * plane;
            if (v->block == 2)
                band_kernel(v, 2, from, x, rows, sums);
            else if (v->block == 3)
                band_kernel(v, 3, from, x, rows, sums);
            else
                band_kernel(v, 4, from, x, rows, sums);
        }
    }
}

/* Adds the contribution of the group that begins with sample s to the sums. */
static void run_group(const struct weights *v, const struct vb_k_args *args, int s, float *slot,
                      float *sums)
{
    size_t x_image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    size_t y_image = (size_t)v->oc * (size_t)v->patch.oh * (size_t)v->patch.ow;
    int n = vb_min(VB_DIRECT_GROUP, v->n - s), oy;
    float *dy = slot + v->strip;

    for (oy = 0; oy < v->patch.oh; oy += v->patch.rows) {
        vb_direct_fill(&v->patch, args->x + (size_t)s * x_image, x_image, n, v->c, oy, slot);
        vb_direct_fill(&v->dy, args->dy + (size_t)s * y_image, y_image, n, v->oc, oy, dy);
        run_band(v, slot, dy, vb_min(v->patch.rows, v->patch.oh - oy), sums);
    }
}

static void run_chunk(const struct weights *v, const struct vb_k_args *args, int chunk, float *slot,
                      float *sums)
{
    int groups = vb_divide_up(v->n, VB_DIRECT_GROUP), i;

    memset(sums, 0, v->sums * sizeof(*sums));
    for (i = chunk * v->chunk; i < vb_min((chunk + 1) * v->chunk, groups); i++)
        run_group(v, args, i * VB_DIRECT_GROUP, slot, sums);
}

static int chunks(const struct weights *v)
{
    return vb_divide_up(vb_divide_up(v->n, VB_DIRECT_GROUP), v->chunk);
}

static float sum_lanes(vb_vec v)
{
    int n, i;

    for (n = VB_LANES / 2; n > 0; n /= 2)
        for (i = 0; i < n; i++)
            v[i] = v[2 * i] + v[2 * i + 1];
    return v[0];
}

/* Returns the gradient of one weight: adds its sums, first over all chunks, then over the lanes. */
static float collect(const struct weights *v, const float *sums, int oc, int tap)
{
    int blocks = vb_divide_up(v->oc, v->block), i;
    size_t at = ((size_t)(tap / TAPS * blocks + oc / v->block) * (size_t)v->block +
                 (size_t)(oc % v->block)) *
                    TAPS +
                (size_t)(tap % TAPS);
    vb_vec all = {0};

    for (i = 0; i < chunks(v); i++)
        all += vb_vec_load(sums + (size_t)i * v->sums + at * VB_DIRECT_GROUP);
    return sum_lanes(all);
}

static void weights_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct weights *v = (const struct weights *)pass;
    int n_chunks = chunks(v);
    float *sums = args->scratch;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = sums + (size_t)n_chunks * v->sums +
                      (size_t)omp_get_thread_num() * (v->strip + v->dy_strip);

#pragma omp for schedule(static)
        for (int i = 0; i < n_chunks; i++)
            run_chunk(v, args, i, slot, sums + (size_t)i * v->sums);
#pragma omp for schedule(static)
        for (int m = 0; m < v->oc; m++) {
            for (int k = 0; k < v->n_taps; k++)
                args->dw[(size_t)m * (size_t)v->n_taps + (size_t)k] = collect(v, sums, m, k);
            args->db[m] = vb_sum_channel(args->dy, v->n, v->oc, v->patch.oh * v->patch.ow, m);
        }
    }
}

/* Chooses the number of rows of output for a strip: as many as fit, but at least one. */
static void choose_rows(struct weights *v)
{
    int rows = v->patch.oh;

    for (;; rows = (rows + 1) / 2) {
        vb_patch_rows(&v->patch, rows);
        vb_patch_rows(&v->dy, rows);
        v->strip = vb_team_align((size_t)v->c * vb_patch_plane(&v->patch) * VB_DIRECT_GROUP);
        v->dy_strip = vb_team_align((size_t)v->oc * vb_patch_plane(&v->dy) * VB_DIRECT_GROUP);
        if (rows == 1 || v->strip + v->dy_strip <= STRIPS_MAX)
            return;
    }
}

vb_status vb_direct_weights(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    int per = s->kh * s->kw, n_taps = s->c * per, full = vb_divide_up(n_taps, TAPS) * TAPS, i, k;
    struct weights *v = calloc(1, sizeof(*v) + (size_t)full * sizeof(int));

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = weights_run;
    v->n = s->n;
    v->c = s->c;
    v->oc = s->oc;
    v->n_taps = n_taps;
    /* The sums of a block fill the registers; with 32 of them, fewer unused channels decide. */
    if (VB_DIRECT_REGISTERS < 32)
        v->block = 2;
    else
        v->block = vb_divide_up(s->oc, 3) * 3 < vb_divide_up(s->oc, 4) * 4 ? 3 : 4;
    v->chunk = vb_divide_up(vb_divide_up(s->n, VB_DIRECT_GROUP), CHUNKS);
    vb_patch_init(&v->patch, s);
    v->dy = (struct vb_patch){
        .h = s->oh, .w = s->ow, .oh = s->oh, .ow = s->ow, .kh = 1, .kw = 1, .stride = 1};
    choose_rows(v);
    for (i = 0; i < full; i++) {
        k = vb_min(i, n_taps - 1);
        v->taps[i] =
            (int)vb_patch_tap(&v->patch, k / per, k % per / s->kw, k % s->kw) * VB_DIRECT_GROUP;
    }
    v->slots = vb_team_slots();
    v->sums = vb_team_align((size_t)vb_divide_up(s->oc, v->block) * (size_t)v->block *
                            (size_t)full * VB_DIRECT_GROUP);
    *state_p = v;
    *scratch_p =
        ((size_t)chunks(v) * v->sums + (size_t)v->slots * (v->strip + v->dy_strip)) * sizeof(float);
    return VB_OK;
}
