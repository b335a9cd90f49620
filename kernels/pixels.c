/* SPDX-License-Identifier: MIT
 *
 * A linear layer over images that are mostly zero, as the digits are: four pixels of five. The
 * nonzero ones of each sample are listed once; forward and backward then touch only their rows of
 * the weights (features, classes).
 *
 * A list is the indices (16 bits each) and then the values: a byte each, an index into a palette of
 * at most 256 values, or the float itself where there are more. 60,000 digits are 29 MB. A list
 * begins with a cache line, as few lines are to be waited for; that of the sample after next is
 * prefetched.
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

/* Where a sample's list is. */
struct place {
    uint32_t line; /* cache lines before it */
    uint32_t n;    /* entries */
};

struct vb_k_pixels {
    size_t n_samples;
    int features;
    bool bytes;             /* values are indices into the palette */
    float palette[PALETTE]; /* that have come up; 0 is never one of them */
    int n_colours;
    size_t nonzeros;
    struct place *places; /* (n_samples) */
    struct vb_mem mem;    /* the lists */
};

struct list {
    uint16_t *index;
    uint8_t *colour; /* either this */
    float *value;    /* ... or this, at the same place */
    size_t n;
};

/* Bytes before the values: the indices, and what aligns floats. */
static inline size_t index_bytes(size_t n)
{
    return (n * sizeof(uint16_t) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

static inline struct list list_of(const struct vb_k_pixels *p, uint32_t sample)
{
    struct place at = p->places[sample];
    char *from = (char *)p->mem.ptr + (size_t)at.line * VB_CACHE_LINE;
    char *values = from + index_bytes(at.n);

    return (struct list){
        .index = (uint16_t *)(void *)from,
        .colour = (uint8_t *)values,
        .value = (float *)(void *)values,
        .n = at.n,
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
    int i, of_sample;
    size_t s;

    p->bytes = true;
    memset(f->colour, -1, sizeof(f->colour));
    for (s = 0; s < p->n_samples; s++) {
        x = sample(p, from, s);
        of_sample = list_nonzero(x, p->features, from->index);
        for (i = 0; i < of_sample && p->bytes; i++)
            p->bytes = find_colour(p, f, x[from->index[i]]) >= 0;
        p->places[s].n = (uint32_t)of_sample;
        p->nonzeros += (size_t)of_sample;
    }
}

/* Gives each list its place, and returns how many cache lines there are. */
static size_t place_lists(struct vb_k_pixels *p)
{
    size_t lines = 0, bytes, s;

    for (s = 0; s < p->n_samples; s++) {
        p->places[s].line = (uint32_t)lines;
        bytes = index_bytes(p->places[s].n) + p->places[s].n * (p->bytes ? 1 : sizeof(float));
        lines += (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE;
    }
    return lines;
}

static void fill(struct vb_k_pixels *p, struct finder *f, const struct source *from)
{
    const float *x;
    struct list l;
    size_t s, i;

    for (s = 0; s < p->n_samples; s++) {
        x = sample(p, from, s);
        l = list_of(p, (uint32_t)s);
        (void)list_nonzero(x, p->features, from->index);
        memcpy(l.index, from->index, l.n * sizeof(*l.index));
        for (i = 0; i < l.n && p->bytes; i++)
            l.colour[i] = (uint8_t)find_colour(p, f, x[l.index[i]]);
        for (i = 0; i < l.n && !p->bytes; i++)
            l.value[i] = x[l.index[i]];
    }
}

static vb_status build(struct vb_k_pixels *p, const struct source *from)
{
    struct finder finder;
    vb_status st;

    p->places = calloc(p->n_samples + 1, sizeof(*p->places));
    if (p->places == NULL)
        return vb_err_sys("calloc");
    count(p, &finder, from);
    st = vb_mem_map_private((place_lists(p) + 1) * VB_CACHE_LINE, &p->mem);
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
    free(pixels->places);
    free(pixels);
}

size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels)
{
    return pixels->nonzeros;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* gcc 12 takes a function that only prefetches for one without effect, unless it is inlined. */
#define ALWAYS static inline __attribute__((always_inline))

/* The list of the sample after next, and where a later one is. */
ALWAYS void fetch(const struct vb_k_pixels *p, const uint32_t *order, size_t at, size_t n)
{
    const char *from, *end;
    struct list l;

    if (at + 5 < n)
        __builtin_prefetch(p->places + order[at + 5]);
    if (at + 2 >= n)
        return;
    l = list_of(p, order[at + 2]);
    from = (const char *)l.index;
    end = p->bytes ? (const char *)(l.colour + l.n) : (const char *)(l.value + l.n);
    for (; from < end; from += VB_CACHE_LINE)
        __builtin_prefetch(from);
}

ALWAYS float value_at(const struct list *l, const float *palette, bool bytes, size_t j)
{
    return bytes ? palette[l->colour[j]] : l->value[j];
}

/* Four entries: loads are what these loops are bound by, so their indices come by one load, and
 * their colours too. Which of the four is the first depends on the byte order, but an index and its
 * colour stay together. */
struct four {
    uint32_t index[4];
    float value[4];
};

ALWAYS struct four four_at(const struct list *l, const float *palette, bool bytes, size_t j)
{
    struct four f;
    uint64_t index;
    uint32_t colour;

    memcpy(&index, l->index + j, sizeof(index));
    if (bytes)
        memcpy(&colour, l->colour + j, sizeof(colour));
    else
        return (struct four){
            {l->index[j], l->index[j + 1], l->index[j + 2], l->index[j + 3]},
            {l->value[j], l->value[j + 1], l->value[j + 2], l->value[j + 3]},
        };
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        f.index[k] = (uint32_t)(index >> 16 * k) & 0xffff;
        f.value[k] = palette[colour >> 8 * k & 0xff];
    }
    return f;
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
        struct four f = four_at(l, palette, bytes, j);

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            s[k] = ten_add(s[k], ten_load(w + (size_t)f.index[k] * TEN), f.value[k]);
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

    for (j = 0; j + 4 <= l->n; j += 4) {
        struct four f = four_at(l, palette, bytes, j);

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            float *to = dw + (size_t)f.index[k] * TEN;

            ten_store(to, ten_add(ten_load(to), d, f.value[k]));
        }
    }
    for (; j < l->n; j++) {
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
