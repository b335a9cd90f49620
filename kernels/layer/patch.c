/* SPDX-License-Identifier: MIT
 *
 * Fills the strips that patch.h describes.
 */
#include "kernels/layer/patch.h"

void vb_patch_init(struct vb_patch *p, const struct vb_k_shape *s)
{
    *p =
        (struct vb_patch){.h = s->h, .w = s->w, .oh = s->oh, .ow = s->ow, .kh = s->kh, .kw = s->kw};
    p->stride = s->stride;
    p->pad_y = p->pad_x = s->pad;
}

void vb_patch_init_data(struct vb_patch *p, const struct vb_k_shape *s)
{
    *p =
        (struct vb_patch){.h = s->oh, .w = s->ow, .oh = s->h, .ow = s->w, .kh = s->kh, .kw = s->kw};
    p->stride = 1;
    p->pad_y = s->kh - 1 - s->pad;
    p->pad_x = s->kw - 1 - s->pad;
}

void vb_patch_rows(struct vb_patch *p, int rows)
{
    p->rows = rows;
    p->strip_h = (rows - 1) * p->stride + p->kh;
    p->phase_w = p->ow + (p->kw - 1) / p->stride;
    p->pitch = p->phase_w * p->stride;
}

static void fill_row(const struct vb_patch *p, const float *x, float *to)
{
    int from = vb_min(p->pad_x, p->pitch);
    int n = vb_min(p->w, p->pitch - from);

    memset(to, 0, (size_t)from * sizeof(*to));
    memcpy(to + from, x, (size_t)n * sizeof(*to));
    memset(to + from + n, 0, (size_t)(p->pitch - from - n) * sizeof(*to));
}

static void fill_row_sorted(const struct vb_patch *p, const float *x, float *to)
{
    int phase, i, ix;

    for (phase = 0; phase < p->stride; phase++) {
        ix = phase - p->pad_x;
        for (i = 0; i < p->phase_w; i++, ix += p->stride)
            *to++ = ix >= 0 && ix < p->w ? x[ix] : 0;
    }
}

void vb_patch_fill(const struct vb_patch *p, const float *x, int channels, int oy, float *strip)
{
    int c, r, iy;

    for (c = 0; c < channels; c++, x += (size_t)p->h * (size_t)p->w) {
        for (r = 0; r < p->strip_h; r++, strip += p->pitch) {
            iy = oy * p->stride + r - p->pad_y;
            if (iy < 0 || iy >= p->h)
                memset(strip, 0, (size_t)p->pitch * sizeof(*strip));
            else if (p->stride == 1)
                fill_row(p, x + (size_t)iy * (size_t)p->w, strip);
            else
                fill_row_sorted(p, x + (size_t)iy * (size_t)p->w, strip);
        }
    }
}
