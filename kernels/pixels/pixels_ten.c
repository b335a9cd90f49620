/* SPDX-License-Identifier: MIT
 *
 * Computes with lists of pixels and ten classes, as for digits. A row of weights is two and a half
 * vectors of four floats, or one and a quarter vectors of eight. The sums stay in registers.
 */
#include "kernels/pixels/pixels_priv.h"
#include "kernels/layer/vec.h"

#define TEN 10
#define ALWAYS PIXELS_ALWAYS

_Static_assert(VB_K_PIXELS_SUMS == 4 * TEN, "what is kept between parts");

/* Four entries, whose colours are read by one load. */
struct four {
    uint32_t index[4];
    float value[4];
};

/* With narrow vectors the loops are limited by loads, so four indices are read by one load too. The
 * byte order determines which of the four comes first, but an index and its colour stay together.
 * With wide vectors the loops are limited by the number of instructions. */
ALWAYS void four_indices(const struct pixels_list *l, size_t j, uint32_t index[4])
{
#if VB_LANES == 4
    uint64_t all;

    memcpy(&all, l->index + j, sizeof(all));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        index[k] = (uint32_t)(all >> 16 * k) & 0xffff;
#else
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        index[k] = l->index[j + (size_t)k];
#endif
}

ALWAYS struct four four_at(const struct pixels_list *l, const float *palette, bool bytes, size_t j)
{
    struct four f;
    uint32_t colour;

    if (!bytes)
        return (struct four){
            {l->index[j], l->index[j + 1], l->index[j + 2], l->index[j + 3]},
            {l->value[j], l->value[j + 1], l->value[j + 2], l->value[j + 3]},
        };
    four_indices(l, j, f.index);
    memcpy(&colour, l->colour + j, sizeof(colour));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        f.value[k] = palette[colour >> 8 * k & 0xff];
    return f;
}

/* Prefetches lists in the backward pass. These lists are in the second-level cache by now. With
 * wide vectors, lists of the next batch are prefetched instead. */
ALWAYS void fetch_back(const struct vb_k_pixels *p, const struct vb_k_picked *at, size_t i)
{
#if VB_LANES == 4
    pixels_fetch(p, at, i);
#else
    if (i + PIXELS_LATER < at->n_soon)
        __builtin_prefetch(p->places + at->soon[i + PIXELS_LATER]);
    if (i < at->n_soon)
        pixels_fetch_list(p, at->soon[i], false);
#endif
}

#if VB_LANES == 4

struct ten {
    vb_v4 a, b;
    vb_v2 c;
};

ALWAYS struct ten ten_load(const float *p)
{
    return (struct ten){vb_v4_load(p), vb_v4_load(p + 4), vb_v2_load(p + 8)};
}

ALWAYS void ten_store(float *p, struct ten t)
{
    vb_v4_store(p, t.a);
    vb_v4_store(p + 4, t.b);
    vb_v2_store(p + 8, t.c);
}

ALWAYS struct ten ten_add(struct ten s, struct ten t, float x)
{
    return (struct ten){s.a + t.a * x, s.b + t.b * x, s.c + t.c * x};
}

#else

/* Numbers of ten classes. The last two classes are in the lower half of a vector, so that one
 * broadcast from memory serves both vectors. */
struct ten {
    vb_v8 a;
    vb_v4 c;
};

ALWAYS struct ten ten_load(const float *p)
{
    vb_v2 c = vb_v2_load(p + 8);

    return (struct ten){vb_v8_load(p), __builtin_shufflevector(c, (vb_v2){0}, 0, 1, 2, 3)};
}

ALWAYS void ten_store(float *p, struct ten t)
{
    vb_v8_store(p, t.a);
    vb_v2_store(p + 8, __builtin_shufflevector(t.c, t.c, 0, 1));
}

ALWAYS struct ten ten_add(struct ten s, struct ten t, float x)
{
    vb_v8 all = x - (vb_v8){0};

    return (struct ten){s.a + t.a * all, s.c + t.c * __builtin_shufflevector(all, all, 0, 1, 2, 3)};
}

#endif

/* Adds the products of the entries of a list from j on: of all groups of four without an index
 * below low, and if low is 0 of the last entries too. There are four sums, by position modulo 4, to
 * hide the latency of additions. Returns the entry to continue with. */
ALWAYS size_t ten_row(const struct pixels_list *l, const float *palette, bool bytes, const float *w,
                      size_t j, int low, struct ten s[4])
{
    for (; j + 4 <= l->n && (low == 0 || l->index[j + 3] >= low); j += 4) {
        struct four f = four_at(l, palette, bytes, j);

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            s[k] = ten_add(s[k], ten_load(w + (size_t)f.index[k] * TEN), f.value[k]);
    }
    for (; low == 0 && j < l->n; j++)
        s[0] = ten_add(s[0], ten_load(w + l->index[j] * TEN), pixels_value(l, palette, bytes, j));
    return j;
}

ALWAYS struct ten ten_total(const struct ten s[4])
{
    return ten_add(ten_add(s[0], s[1], 1), ten_add(s[2], s[3], 1), 1);
}

/* Computes dw += x d for each entry from j on whose index is not below low. Returns the entry to
 * continue with. The indices of a list are different, so the rows of dw too. */
ALWAYS size_t ten_add_row(const struct pixels_list *l, const float *palette, bool bytes,
                          struct ten d, size_t j, int low, float *dw)
{
    for (; j + 4 <= l->n && (low == 0 || l->index[j + 3] >= low); j += 4) {
        struct four f = four_at(l, palette, bytes, j);

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            float *to = dw + (size_t)f.index[k] * TEN;

            ten_store(to, ten_add(ten_load(to), d, f.value[k]));
        }
    }
    for (; j < l->n && (low == 0 || l->index[j] >= low); j++) {
        float *to = dw + l->index[j] * TEN;

        ten_store(to, ten_add(ten_load(to), d, pixels_value(l, palette, bytes, j)));
    }
    return j;
}

ALWAYS size_t forward_list(const struct vb_k_pixels *p, uint32_t sample, const float *w, size_t j,
                           int low, struct ten s[4])
{
    struct pixels_list l = pixels_list_of(p, sample);

    return p->bytes ? ten_row(&l, p->palette, true, w, j, low, s)
                    : ten_row(&l, p->palette, false, w, j, low, s);
}

ALWAYS size_t add_list(const struct vb_k_pixels *p, uint32_t sample, struct ten d, size_t j,
                       int low, float *dw)
{
    struct pixels_list l = pixels_list_of(p, sample);

    return p->bytes ? ten_add_row(&l, p->palette, true, d, j, low, dw)
                    : ten_add_row(&l, p->palette, false, d, j, low, dw);
}

static void lists_forward(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *w,
                          const float *b, float *logits)
{
    size_t i;

    pixels_fetch_first(p, at);
    for (i = 0; i < at->n; i++, logits += TEN) {
        struct ten s[4] = {0};

        pixels_fetch(p, at, i);
        (void)forward_list(p, at->order[i], w, 0, 0, s);
        ten_store(logits, ten_add(ten_load(b), ten_total(s), 1));
    }
}

static void lists_forward_part(const struct vb_k_pixels *p, const struct vb_k_picked *at,
                               const struct vb_k_pixels_part *part, const float *w, const float *b,
                               float *logits)
{
    bool first = part->high == p->features;
    float *sums = part->sums;
    size_t i, k, done;

    if (first)
        pixels_fetch_first(p, at);
    for (i = 0; i < at->n; i++, sums += VB_K_PIXELS_SUMS) {
        struct ten s[4] = {0};

        if (first)
            pixels_fetch(p, at, i);
        for (k = 0; k < 4 && !first; k++)
            s[k] = ten_load(sums + k * TEN);
        done = first ? 0 : part->done[i];
        part->done[i] = (uint32_t)forward_list(p, at->order[i], w, done, part->low, s);
        for (k = 0; k < 4 && part->low > 0; k++)
            ten_store(sums + k * TEN, s[k]);
        if (part->low == 0)
            ten_store(logits + i * TEN, ten_add(ten_load(b), ten_total(s), 1));
    }
}

static void add_bias(const float *d, size_t n, float scale, float *db)
{
    struct ten sum = ten_load(db);
    size_t i;

    for (i = 0; i < n; i++)
        sum = ten_add(sum, ten_load(d + i * TEN), scale);
    ten_store(db, sum);
}

static void lists_add(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *d,
                      float scale, float *dw, float *db)
{
    size_t i;

    add_bias(d, at->n, scale, db);
    for (i = 0; i < at->n; i++, d += TEN) {
        struct ten scaled = ten_add((struct ten){0}, ten_load(d), scale);

        fetch_back(p, at, i);
        (void)add_list(p, at->order[i], scaled, 0, 0, dw);
    }
}

static void lists_backward_part(const struct vb_k_pixels *p, const struct vb_k_picked *at,
                                const struct vb_k_pixels_part *part, const float *d, float *dw,
                                float *db)
{
    bool first = part->high == p->features;
    size_t i, done;

    if (first)
        add_bias(d, at->n, 1, db);
    for (i = 0; i < at->n; i++, d += TEN) {
        if (first)
            fetch_back(p, at, i);
        done = first ? 0 : part->done[i];
        part->done[i] = (uint32_t)add_list(p, at->order[i], ten_load(d), done, part->low, dw);
    }
}

const struct vb_pixels_ten VB_AT_LEVEL(vb_pixels_ten) = {
    .forward = lists_forward,
    .add = lists_add,
    .forward_part = lists_forward_part,
    .backward_part = lists_backward_part,
#if VB_LANES == TILE
    .tiles_forward = vb_tiles_ten_forward,
    .tiles_add = vb_tiles_ten_add,
#endif
};
