/* SPDX-License-Identifier: MIT
 *
 * A linear layer over images that are mostly zero, as the digits are: four pixels of five. The
 * nonzero ones of each sample are listed once; forward and backward then touch only their rows of
 * the weights (features, classes).
 *
 * A list is the indices (16 bits each) and the values: a byte each, an index into a palette of at
 * most 256 values, or the float itself where there are more. 60,000 digits are 27 MB. The lists of
 * the sample after next are prefetched.
 *
 * Ten classes have loops of their own: two and a half vectors a row, the sums in registers. A
 * pixel that is 0 takes no part, even where its weights are infinite or NaN.
 */
#include "kernels/kernels.h"
#include "kernels/vec_priv.h"

#include <stdlib.h>
#include <string.h>

#define TEN 10
#define PALETTE 256
#define BLOCK 64 /* samples */

struct vb_k_pixels {
    size_t n_samples;
    int features;
    bool bytes;             /* values are indices into the palette */
    float palette[PALETTE]; /* that have come up; 0 is never one of them */
    int n_colours;
    uint64_t *start;   /* (n_samples + 1): entries before a sample's */
    uint16_t *index;   /* of all samples */
    uint8_t *colour;   /* bytes: of all samples */
    float *value;      /* otherwise */
    struct vb_mem mem; /* of all these lists */
};

struct list {
    const uint16_t *index;
    const uint8_t *colour;
    const float *value;
    size_t n;
};

static inline struct list list_of(const struct vb_k_pixels *p, uint32_t sample)
{
    uint64_t first = p->start[sample];

    return (struct list){
        .index = p->index + first,
        .colour = p->colour + first,
        .value = p->value + first,
        .n = (size_t)(p->start[sample + 1] - first),
    };
}

/* ---- building -------------------------------------------------------------------------------- */

/* Where the palette has a value, by its bits: a small open hash. */
struct finder {
    uint32_t bits[4 * PALETTE];
    int16_t colour[4 * PALETTE]; /* -1: free */
};

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/* The colour of a value, a new one if need be; -1: there is no room for another. */
static int find_colour(struct vb_k_pixels *p, struct finder *f, float value)
{
    uint32_t bits = bits_of(value), at = bits * 0x9e3779b1u >> 22;

    for (; f->colour[at] >= 0; at = (at + 1) % (4 * PALETTE))
        if (f->bits[at] == bits)
            return f->colour[at];
    if (p->n_colours == PALETTE)
        return -1;
    f->bits[at] = bits;
    f->colour[at] = (int16_t)p->n_colours;
    p->palette[p->n_colours] = value;
    return p->n_colours++;
}

/* Samples are looked at twice, a block at a time: all of them as floats would be many times as
 * large as the lists. */
struct source {
    vb_k_samples_fn read;
    void *arg;
    float *x;        /* (BLOCK, features) */
    uint16_t *index; /* of one sample, and one more */
};

/* The next sample, of which there are p->n_samples. */
static const float *sample(const struct vb_k_pixels *p, const struct source *from, size_t s)
{
    size_t left = p->n_samples - s;

    if (s % BLOCK == 0)
        from->read(from->arg, s, left < BLOCK ? left : BLOCK, from->x);
    return from->x + s % BLOCK * (size_t)p->features;
}

/* Lists which of n are not 0. Without a branch: which are 0 cannot be foretold. */
static int list_nonzero(const float *x, int n, uint16_t *index)
{
    int i, at = 0;

    for (i = 0; i < n; i++) {
        index[at] = (uint16_t)i;
        at += x[i] != 0;
    }
    return at;
}

/* Counts, and collects the palette as long as there is one. */
static void count(struct vb_k_pixels *p, struct finder *f, const struct source *from)
{
    const float *x;
    size_t s, n = 0;
    int i, of_sample;

    p->bytes = true;
    memset(f->colour, -1, sizeof(f->colour));
    for (s = 0; s < p->n_samples; s++) {
        x = sample(p, from, s);
        of_sample = list_nonzero(x, p->features, from->index);
        for (i = 0; i < of_sample && p->bytes; i++)
            p->bytes = find_colour(p, f, x[from->index[i]]) >= 0;
        p->start[s] = n;
        n += (size_t)of_sample;
    }
    p->start[s] = n;
}

static void fill(struct vb_k_pixels *p, struct finder *f, const struct source *from)
{
    const float *x;
    size_t s, at = 0;
    int i, n;

    for (s = 0; s < p->n_samples; s++) {
        x = sample(p, from, s);
        n = list_nonzero(x, p->features, from->index);
        memcpy(p->index + at, from->index, (size_t)n * sizeof(*p->index));
        for (i = 0; i < n && p->bytes; i++)
            p->colour[at + (size_t)i] = (uint8_t)find_colour(p, f, x[from->index[i]]);
        for (i = 0; i < n && !p->bytes; i++)
            p->value[at + (size_t)i] = x[from->index[i]];
        at += (size_t)n;
    }
}

/* Room for the lists of n entries, indices first. */
static vb_status map_lists(struct vb_k_pixels *p, size_t n)
{
    size_t indices = (n * sizeof(*p->index) + VB_CACHE_LINE) / VB_CACHE_LINE * VB_CACHE_LINE;
    vb_status st;
    char *base;

    st = vb_mem_map_private(indices + n * (p->bytes ? 1 : sizeof(float)) + VB_CACHE_LINE, &p->mem);
    if (st != VB_OK)
        return st;
    base = p->mem.ptr;
    p->index = (uint16_t *)(void *)base;
    p->colour = (uint8_t *)base + indices;
    p->value = (float *)(void *)(base + indices);
    return VB_OK;
}

static vb_status build(struct vb_k_pixels *p, const struct source *from)
{
    struct finder finder;
    vb_status st;

    p->start = calloc(p->n_samples + 1, sizeof(*p->start));
    if (p->start == NULL)
        return vb_err_sys("calloc");
    count(p, &finder, from);
    st = map_lists(p, (size_t)p->start[p->n_samples]);
    if (st == VB_OK)
        fill(p, &finder, from);
    return st;
}

vb_status vb_k_pixels_create(vb_k_samples_fn read, void *arg, size_t n, int features,
                             struct vb_k_pixels **pixels_p)
{
    struct source from = {.read = read, .arg = arg};
    struct vb_k_pixels *p;
    vb_status st;

    if (features < 1 || features > VB_K_PIXELS_FEATURES)
        return vb_err(VB_ERR_USAGE, "%d pixels a sample: 1 to %d are possible", features,
                      VB_K_PIXELS_FEATURES);
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return vb_err_sys("calloc");
    p->n_samples = n;
    p->features = features;
    from.x = vb_alloc_aligned(BLOCK * (size_t)features * sizeof(*from.x));
    from.index = vb_alloc_aligned(((size_t)features + 1) * sizeof(*from.index));
    st = from.x != NULL && from.index != NULL
             ? build(p, &from)
             : vb_err(VB_ERR_NO_MEMORY, "no memory for %d samples", BLOCK);
    free(from.x);
    free(from.index);
    if (st != VB_OK) {
        vb_k_pixels_destroy(p);
        return st;
    }
    *pixels_p = p;
    return VB_OK;
}

void vb_k_pixels_destroy(struct vb_k_pixels *pixels)
{
    if (pixels == NULL)
        return;
    vb_mem_unmap(&pixels->mem);
    free(pixels->start);
    free(pixels);
}

size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels)
{
    return (size_t)pixels->start[pixels->n_samples];
}

/* ---- entries --------------------------------------------------------------------------------- */

/* gcc 12 takes a function that only prefetches for one without effect, unless it is inlined. */
#define ALWAYS static inline __attribute__((always_inline))

/* The lists of the sample after next, and where those of a later one begin. */
ALWAYS void fetch(const struct vb_k_pixels *p, const uint32_t *order, size_t at, size_t n)
{
    struct list l;
    const char *value;
    size_t i, len;

    if (at + 5 < n)
        __builtin_prefetch(p->start + order[at + 5]);
    if (at + 2 >= n)
        return;
    l = list_of(p, order[at + 2]);
    value = p->bytes ? (const char *)l.colour : (const char *)l.value;
    len = p->bytes ? l.n : l.n * sizeof(float);

    for (i = 0; i < l.n; i += VB_CACHE_LINE / sizeof(*l.index))
        __builtin_prefetch(l.index + i);
    for (i = 0; i < len; i += VB_CACHE_LINE)
        __builtin_prefetch(value + i);
}

ALWAYS float value_at(const struct list *l, const float *palette, bool bytes, size_t j)
{
    return bytes ? palette[l->colour[j]] : l->value[j];
}

/* ---- ten classes ----------------------------------------------------------------------------- */

/* A row of ten: the last two lie in half a vector. */
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

/* Four sums, by position modulo 4, hide the latency of the additions. */
ALWAYS struct ten ten_row(const struct list *l, const float *palette, bool bytes, const float *w)
{
    struct ten s[4] = {0};
    size_t j;

    for (j = 0; j + 4 <= l->n; j += 4) {
        s[0] = ten_add(s[0], ten_load(w + l->index[j] * TEN), value_at(l, palette, bytes, j));
        s[1] =
            ten_add(s[1], ten_load(w + l->index[j + 1] * TEN), value_at(l, palette, bytes, j + 1));
        s[2] =
            ten_add(s[2], ten_load(w + l->index[j + 2] * TEN), value_at(l, palette, bytes, j + 2));
        s[3] =
            ten_add(s[3], ten_load(w + l->index[j + 3] * TEN), value_at(l, palette, bytes, j + 3));
    }
    for (; j < l->n; j++)
        s[0] = ten_add(s[0], ten_load(w + l->index[j] * TEN), value_at(l, palette, bytes, j));
    s[0] = ten_add(s[0], s[1], 1);
    s[2] = ten_add(s[2], s[3], 1);
    return ten_add(s[0], s[2], 1);
}

/* dw += x d, for each pixel. Indices of a list differ, so the rows do not depend on each other. */
ALWAYS void ten_add_row(const struct list *l, const float *palette, bool bytes, struct ten d,
                        float *dw)
{
    size_t j;

#pragma GCC unroll 4
    for (j = 0; j < l->n; j++) {
        float *to = dw + l->index[j] * TEN;

        ten_store(to, ten_add(ten_load(to), d, value_at(l, palette, bytes, j)));
    }
}

/* ---- any number of classes ------------------------------------------------------------------- */

ALWAYS void any_row(const struct list *l, const float *palette, bool bytes, const float *w,
                    int classes, float *logits)
{
    size_t j;
    int c;

    for (j = 0; j < l->n; j++) {
        const float *row = w + (size_t)l->index[j] * (size_t)classes;
        float x = value_at(l, palette, bytes, j);

        for (c = 0; c < classes; c++)
            logits[c] += x * row[c];
    }
}

ALWAYS void any_add_row(const struct list *l, const float *palette, bool bytes, const float *d,
                        float scale, int classes, float *dw)
{
    size_t j;
    int c;

    for (j = 0; j < l->n; j++) {
        float *to = dw + (size_t)l->index[j] * (size_t)classes;
        float x = value_at(l, palette, bytes, j) * scale;

        for (c = 0; c < classes; c++)
            to[c] += x * d[c];
    }
}

/* ---- both ways ------------------------------------------------------------------------------- */

static void forward_one(const struct vb_k_pixels *p, const struct list *l, const float *w,
                        const float *b, int classes, float *logits)
{
    struct ten s;

    if (classes == TEN) {
        s = p->bytes ? ten_row(l, p->palette, true, w) : ten_row(l, p->palette, false, w);
        ten_store(logits, ten_add(ten_load(b), s, 1));
        return;
    }
    memcpy(logits, b, (size_t)classes * sizeof(*b));
    if (p->bytes)
        any_row(l, p->palette, true, w, classes, logits);
    else
        any_row(l, p->palette, false, w, classes, logits);
}

static void add_one(const struct vb_k_pixels *p, const struct list *l, const float *d, float scale,
                    int classes, float *dw)
{
    struct ten t;

    if (classes == TEN) {
        t = ten_load(d);
        t = (struct ten){t.a * scale, t.b * scale, t.c * scale};
        if (p->bytes)
            ten_add_row(l, p->palette, true, t, dw);
        else
            ten_add_row(l, p->palette, false, t, dw);
    } else if (p->bytes) {
        any_add_row(l, p->palette, true, d, scale, classes, dw);
    } else {
        any_add_row(l, p->palette, false, d, scale, classes, dw);
    }
}

void vb_k_pixels_forward(const struct vb_k_pixels *p, const uint32_t *order, size_t n,
                         const float *w, const float *b, int classes, float *logits)
{
    struct list l;
    size_t i;

    for (i = 0; i < n; i++, logits += classes) {
        fetch(p, order, i, n);
        l = list_of(p, order[i]);
        forward_one(p, &l, w, b, classes, logits);
    }
}

void vb_k_pixels_add(const struct vb_k_pixels *p, const uint32_t *order, size_t n, const float *d,
                     float scale, int classes, float *dw, float *db)
{
    struct list l;
    size_t i;
    int c;

    for (i = 0; i < n; i++, d += classes) {
        fetch(p, order, i, n);
        l = list_of(p, order[i]);
        add_one(p, &l, d, scale, classes, dw);
        for (c = 0; c < classes; c++)
            db[c] += scale * d[c];
    }
}

void vb_k_pixels_backward(const struct vb_k_pixels *p, const uint32_t *order, size_t n,
                          const float *d, int classes, float *dw, float *db)
{
    memset(dw, 0, (size_t)p->features * (size_t)classes * sizeof(*dw));
    memset(db, 0, (size_t)classes * sizeof(*db));
    vb_k_pixels_add(p, order, n, d, 1, classes, dw, db);
}
