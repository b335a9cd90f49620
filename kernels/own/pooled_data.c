/* SPDX-License-Identifier: MIT
 *
 * Computes the backward data pass of a conv-pool layer. The four places of a window see kh + stride
 * rows of kw + stride pixels. The weights of each channel are laid out as such a patch with zeros
 * around, once for the left and once for the right places; upper and lower places begin at
 * different rows. A window adds a sum of patches to one place of dx. Each thread takes some
 * samples.
 */
#include "kernels/own/pooled_priv.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

struct data {
    struct vb_k_pass_state pass;
    struct vb_k_shape s;
    struct vb_pooled_image image;
    struct vb_pooled_patch patch;      /* size of a patch of weights */
    uint32_t places[VB_K_NOWHERE + 1]; /* offset of each place within the weights of a channel */
    size_t channel;                    /* number of floats that the weights of one channel take */
    int slots;
    size_t weights, len, terms; /* numbers of floats of scratch; each slot has len and terms */
};

/* Lays out the weights of channel m twice, each time as (stride + kh + stride, row of a patch). */
static void lay_out(const struct data *v, const float *w, int m, float *to)
{
    const struct vb_k_shape *s = &v->s;
    int right, c, y, x;

    memset(to, 0, v->channel * sizeof(*to));
    w += (size_t)m * (size_t)(s->c * s->kh * s->kw);
    for (right = 0; right < 2; right++, to += v->channel / 2)
        for (c = 0; c < s->c; c++)
            for (y = 0; y < s->kh; y++)
                for (x = 0; x < s->kw; x++)
                    to[(size_t)(s->stride + y) * v->patch.pitch +
                       (size_t)((x + right * s->stride) * s->c + c)] =
                        w[(c * s->kh + y) * s->kw + x];
}

/* Lists the gradients of one window that have a place. Returns their number. */
static size_t list_terms(const struct data *v, const float *dy, const uint8_t *where,
                         struct vb_pooled_term *terms)
{
    size_t plane = (size_t)v->s.oh * (size_t)v->s.ow, n = 0;
    uint32_t at = 0;
    int m;

    for (m = 0; m < v->s.oc; m++, dy += plane, where += plane, at += (uint32_t)v->channel) {
        terms[n].g = *dy;
        terms[n].at = at + v->places[*where];
        n += *where != VB_K_NOWHERE;
    }
    return n;
}

static void run_sample(const struct data *v, const struct vb_k_args *args, int i, float *image)
{
    size_t at = (size_t)i * (size_t)(v->s.oc * v->s.oh) * (size_t)v->s.ow, n;
    size_t across = (size_t)2 * (size_t)v->s.stride * (size_t)v->s.c;
    size_t down = (size_t)(2 * v->s.stride) * v->image.pitch;
    struct vb_pooled_term *terms = (struct vb_pooled_term *)(image + v->len);
    int y, x;

    memset(image, 0, v->image.len * sizeof(*image));
    for (y = 0; y < v->s.oh; y++) {
        for (x = 0; x < v->s.ow; x++, at++) {
            n = list_terms(v, args->dy + at, args->where + at, terms);
            vb_pooled_sum(&v->patch, args->scratch, terms, n,
                          image + (size_t)y * down + (size_t)x * across, v->image.pitch);
        }
    }
    vb_pooled_image_empty(&v->image, image,
                          args->dx + (size_t)i * (size_t)(v->s.c * v->s.h) * (size_t)v->s.w);
}

static void data_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct data *v = (const struct data *)pass;
    float *weights = args->scratch;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = weights + v->weights + (size_t)omp_get_thread_num() * (v->len + v->terms);

#pragma omp for schedule(static)
        for (int m = 0; m < v->s.oc; m++)
            lay_out(v, args->w, m, weights + (size_t)m * v->channel);
#pragma omp for schedule(static)
        for (int i = 0; i < v->s.n; i++)
            run_sample(v, args, i, slot);
    }
}

vb_status vb_pooled_data(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    struct data *v = calloc(1, sizeof(*v));
    int i, rows;

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = data_run;
    v->s = *s;
    vb_pooled_image_init(&v->image, s);
    vb_pooled_patch_init(&v->patch, s->kh + s->stride, (s->kw + s->stride) * s->c);
    v->patch.pitch = (size_t)v->patch.vectors * VB_LANES;
    rows = s->kh + 2 * s->stride;
    v->channel = 2 * (size_t)rows * v->patch.pitch;
    for (i = 0; i < VB_K_NOWHERE; i++) /* lower places begin with zeros above the weights */
        v->places[i] =
            (uint32_t)((i % 2 * rows + (1 - i / 2) * s->stride)) * (uint32_t)v->patch.pitch;
    v->slots = vb_team_slots();
    v->weights = vb_team_align((size_t)s->oc * v->channel);
    v->len = vb_team_align(v->image.len);
    v->terms = vb_team_align(((size_t)s->oc + 1) * sizeof(struct vb_pooled_term) / sizeof(float));
    *scratch_p = (v->weights + (size_t)v->slots * (v->len + v->terms)) * sizeof(float);
    *state_p = v;
    return VB_OK;
}
