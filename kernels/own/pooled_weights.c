/* SPDX-License-Identifier: MIT
 *
 * Computes the backward weights pass of a conv-pool layer. The samples are cut into at most CHUNKS
 * chunks, by the shape alone, and each thread takes some chunks. Each chunk has its own sums, which
 * are added in order. Within a chunk, as many samples are processed at a time as fit into the
 * first-level cache.
 */
#include "kernels/own/pooled_priv.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

#define CHUNKS 8
#define IMAGES_MAX (8 * 1024) /* largest number of floats of the samples in a group of several */

struct weights {
    struct vb_k_pass_state pass;
    struct vb_k_shape s;
    struct vb_pooled_image image;
    struct vb_pooled_patch patch;
    uint32_t places[VB_K_NOWHERE + 1]; /* offset of each place of a window in an image */
    int chunk, group;                  /* numbers of samples in a chunk, and processed at a time */
    int slots;
    size_t sums;          /* number of floats in the sums of a channel; the last is for the bias */
    size_t images, terms; /* numbers of floats of scratch for each slot */
};

/* Lists the terms of one channel of one sample, and returns the address for the next term. from is
 * the offset of its image. Every output writes a term; if the output has no gradient, the next
 * output overwrites the term. Not inlined, so that the loop stays in registers. */
static __attribute__((noinline)) struct vb_pooled_term *
add_terms(const struct weights *v, const float *restrict dy, const uint8_t *restrict where,
          uint32_t from, struct vb_pooled_term *restrict to)
{
    uint32_t down = (uint32_t)(2 * v->s.stride) * (uint32_t)v->image.pitch, at;
    uint32_t across = (uint32_t)(2 * v->s.stride * v->s.c);
    int y, x;

    for (y = 0; y < v->s.oh; y++, from += down) {
        for (x = 0, at = from; x < v->s.ow; x++, at += across) {
            uint8_t place = *where++;

            to->g = *dy++;
            to->at = at + v->places[place];
            to += place != VB_K_NOWHERE;
        }
    }
    return to;
}

static float sum_terms(const struct vb_pooled_term *terms, size_t n)
{
    float s[4] = {0, 0, 0, 0};
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            s[j] += terms[i + (size_t)j].g;
    for (; i < n; i++)
        s[0] += terms[i].g;
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Adds the contribution of the n samples from `first` on, which fit into a slot. */
static void run_group(const struct weights *v, const struct vb_k_args *args, int first, int n,
                      float *slot, float *sums)
{
    size_t image = (size_t)(v->s.c * v->s.h) * (size_t)v->s.w;
    size_t plane = (size_t)v->s.oh * (size_t)v->s.ow;
    struct vb_pooled_term *terms = (struct vb_pooled_term *)(slot + v->images), *end;
    int i, m;

    for (i = 0; i < n; i++)
        vb_pooled_image_fill(&v->image, args->x + (size_t)(first + i) * image,
                             slot + (size_t)i * v->image.len);
    for (m = 0; m < v->s.oc; m++, sums += v->sums) {
        end = terms;
        for (i = 0; i < n; i++) {
            size_t at = ((size_t)(first + i) * (size_t)v->s.oc + (size_t)m) * plane;

            end = add_terms(v, args->dy + at, args->where + at,
                            (uint32_t)i * (uint32_t)v->image.len, end);
        }
        vb_pooled_sum(&v->patch, slot, terms, (size_t)(end - terms), sums,
                      (size_t)v->patch.vectors * VB_LANES);
        sums[v->sums - 1] += sum_terms(terms, (size_t)(end - terms));
    }
}

static void run_chunk(const struct weights *v, const struct vb_k_args *args, int chunk, float *slot,
                      float *sums)
{
    int i = chunk * v->chunk, end = vb_min(i + v->chunk, v->s.n);

    memset(sums, 0, (size_t)v->s.oc * v->sums * sizeof(*sums));
    for (; i < end; i += v->group)
        run_group(v, args, i, vb_min(v->group, end - i), slot, sums);
}

/* Adds channel m over all chunks, and stores the gradients. sums is its part of the first chunk. */
static void collect(const struct weights *v, float *sums, int m, float *dw, float *db)
{
    int n_chunks = vb_divide_up(v->s.n, v->chunk), per = v->s.kh * v->s.kw, i, c, y, x;
    size_t step = (size_t)v->s.oc * v->sums, k;

    for (i = 1; i < n_chunks; i++)
        for (k = 0; k < v->sums; k++)
            sums[k] += sums[(size_t)i * step + k];
    for (c = 0; c < v->s.c; c++)
        for (y = 0; y < v->s.kh; y++)
            for (x = 0; x < v->s.kw; x++)
                dw[(m * v->s.c + c) * per + y * v->s.kw + x] =
                    sums[y * v->patch.vectors * VB_LANES + x * v->s.c + c];
    db[m] = sums[v->sums - 1];
}

static void weights_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct weights *v = (const struct weights *)pass;
    int n_chunks = vb_divide_up(v->s.n, v->chunk);
    size_t chunk = (size_t)v->s.oc * v->sums;
    float *sums = args->scratch;
    float *slots = sums + vb_team_align((size_t)n_chunks * chunk);

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = slots + (size_t)omp_get_thread_num() * (v->images + v->terms);

#pragma omp for schedule(static)
        for (int i = 0; i < n_chunks; i++)
            run_chunk(v, args, i, slot, sums + (size_t)i * chunk);
#pragma omp for schedule(static)
        for (int m = 0; m < v->s.oc; m++)
            collect(v, sums + (size_t)m * v->sums, m, args->dw, args->db);
    }
}

vb_status vb_pooled_weights(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    struct weights *v = calloc(1, sizeof(*v));
    int i, n_chunks;

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = weights_run;
    v->s = *s;
    vb_pooled_image_init(&v->image, s);
    vb_pooled_patch_init(&v->patch, s->kh, s->kw * s->c);
    v->patch.pitch = v->image.pitch;
    for (i = 0; i < VB_K_NOWHERE; i++)
        v->places[i] = (uint32_t)s->stride * (uint32_t)(i / 2 * (int)v->image.pitch + i % 2 * s->c);
    v->chunk = vb_divide_up(s->n, CHUNKS);
    n_chunks = vb_divide_up(s->n, v->chunk);
    v->group = vb_min(v->chunk, (int)(IMAGES_MAX / v->image.len));
    v->group = v->group > 0 ? v->group : 1;
    v->slots = vb_team_slots();
    v->sums = (size_t)(v->patch.rows * v->patch.vectors) * VB_LANES + 1;
    v->images = vb_team_align((size_t)v->group * v->image.len);
    v->terms = vb_team_align(((size_t)(v->group * s->oh) * (size_t)s->ow + 1) *
                             sizeof(struct vb_pooled_term) / sizeof(float));
    *scratch_p = (vb_team_align((size_t)n_chunks * (size_t)s->oc * v->sums) +
                  (size_t)v->slots * (v->images + v->terms)) *
                 sizeof(float);
    *state_p = v;
    return VB_OK;
}
