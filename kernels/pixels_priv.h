/* SPDX-License-Identifier: MIT
 *
 * Lists of the pixels of samples that are not 0: pixels.c builds them, and computes with them where
 * there are any number of classes, pixels_ten.c where there are ten, once for each level.
 *
 * A list is the indices (16 bits each), from the last pixel to the first, and then the values: a
 * byte each, an index into a palette of at most 256 values, or the float itself where there are
 * more. 60,000 digits are 29 MB. A list begins with a cache line, as few lines are to be waited
 * for.
 *
 * Where a level has vectors of 16 floats there are *tiles* instead (pixels_tiles.c,
 * pixels_tiles_ten.c): 16 pixels near each other, a byte each, that are not all 0. Nonzero pixels
 * keep together, so a digit has 18 tiles of 49, for 150 entries of its list.
 */
#ifndef VB_PIXELS_PRIV_H
#define VB_PIXELS_PRIV_H

#include "kernels/kernels.h"
#include "kernels/level_priv.h"

#define PIXELS_PALETTE 256

/* Where a sample's list is. */
struct pixels_place {
    uint32_t line; /* cache lines before it */
    uint32_t n;    /* entries */
};

#define TILE 16
#define TILES_MAX 64 /* of a sample: a bit each */

/* Where a sample's tiles are. */
struct tiles_place {
    uint64_t which; /* bit t: it has tile t */
    uint32_t line;  /* cache lines before them */
};

struct pixels_tiles {
    struct tiles_place *places;       /* (n_samples); NULL: there are lists instead */
    float unit;                       /* values are this times their byte */
    uint16_t place[TILES_MAX * TILE]; /* of each pixel, */
    uint16_t pixel[TILES_MAX * TILE]; /* ... and which is where; the last one where there is none */
};

struct vb_k_pixels {
    size_t n_samples;
    int features;
    bool bytes;                    /* values are indices into the palette */
    float palette[PIXELS_PALETTE]; /* that have come up; 0 is never one of them */
    int n_colours;
    size_t nonzeros;
    struct pixels_place *places; /* (n_samples) */
    struct vb_mem mem;           /* the lists, or the tiles */
    struct pixels_tiles tiles;
};

struct pixels_list {
    uint16_t *index;
    uint8_t *colour; /* either this */
    float *value;    /* ... or this, at the same place */
    size_t n;
};

/* Bytes before the values: the indices, and what aligns floats. */
static inline size_t pixels_index_bytes(size_t n)
{
    return (n * sizeof(uint16_t) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

static inline struct pixels_list pixels_list_of(const struct vb_k_pixels *p, uint32_t sample)
{
    struct pixels_place at = p->places[sample];
    char *from = (char *)p->mem.ptr + (size_t)at.line * VB_CACHE_LINE;
    char *values = from + pixels_index_bytes(at.n);

    return (struct pixels_list){
        .index = (uint16_t *)(void *)from,
        .colour = (uint8_t *)values,
        .value = (float *)(void *)values,
        .n = at.n,
    };
}

/* gcc 12 takes a function that only prefetches for one without effect, unless it is inlined. */
#define PIXELS_ALWAYS static inline __attribute__((always_inline))

/* near: to the first cache, else to the second. */
PIXELS_ALWAYS void pixels_fetch_list(const struct vb_k_pixels *p, uint32_t sample, bool near)
{
    struct pixels_list l = pixels_list_of(p, sample);
    const char *from = (const char *)l.index;
    const char *end = p->bytes ? (const char *)(l.colour + l.n) : (const char *)(l.value + l.n);

    for (; from < end; from += VB_CACHE_LINE) {
        if (near)
            __builtin_prefetch(from);
        else
            __builtin_prefetch(from, 0, 2);
    }
}

#define PIXELS_SOON 2  /* samples ahead whose lists are fetched */
#define PIXELS_LATER 5 /* ... and where theirs are */

/* Before the first sample. */
PIXELS_ALWAYS void pixels_fetch_first(const struct vb_k_pixels *p, const struct vb_k_picked *at)
{
    size_t i;

    for (i = 0; i < PIXELS_LATER && i < at->n; i++)
        __builtin_prefetch(p->places + at->order[i]);
    for (i = 0; i < PIXELS_SOON && i < at->n; i++)
        pixels_fetch_list(p, at->order[i], true);
}

/* Before each. */
PIXELS_ALWAYS void pixels_fetch(const struct vb_k_pixels *p, const struct vb_k_picked *at, size_t i)
{
    if (i + PIXELS_LATER < at->n)
        __builtin_prefetch(p->places + at->order[i + PIXELS_LATER]);
    if (i + PIXELS_SOON < at->n)
        pixels_fetch_list(p, at->order[i + PIXELS_SOON], true);
}

PIXELS_ALWAYS float pixels_value(const struct pixels_list *l, const float *palette, bool bytes,
                                 size_t j)
{
    return bytes ? palette[l->colour[j]] : l->value[j];
}

/* ---- tiles ----------------------------------------------------------------------------------- */

struct tiles_of {
    const uint8_t *x; /* tile after tile */
    uint64_t which;
};

static inline struct tiles_of tiles_of(const struct vb_k_pixels *p, uint32_t sample)
{
    const struct tiles_place *at = p->tiles.places + sample;

    return (struct tiles_of){(const uint8_t *)p->mem.ptr + (size_t)at->line * VB_CACHE_LINE,
                             at->which};
}

#define TILES_SOON 2
#define TILES_LATER 5

PIXELS_ALWAYS void tiles_fetch(const struct vb_k_pixels *p, uint32_t sample, bool near)
{
    struct tiles_of tiles = tiles_of(p, sample);
    const uint8_t *end = tiles.x + (size_t)__builtin_popcountll(tiles.which) * TILE;

    for (; tiles.x < end; tiles.x += VB_CACHE_LINE) {
        if (near)
            __builtin_prefetch(tiles.x);
        else
            __builtin_prefetch(tiles.x, 0, 2);
    }
}

/* pixels_tiles.c. Building: places are made if this level has tiles; each sample is looked at, by
 * its nonzero pixels; it is settled whether there are tiles; they get their places, and the number
 * of cache lines is returned; each sample is filled in. */
vb_status vb_tiles_begin(struct vb_k_pixels *p, int width);
void vb_tiles_look(struct vb_k_pixels *p, size_t sample, const uint16_t *index, int n);
void vb_tiles_settle(struct vb_k_pixels *p);
size_t vb_tiles_place(struct vb_k_pixels *p);
void vb_tiles_fill(struct vb_k_pixels *p, size_t sample, const float *x, const uint16_t *index,
                   int n);

/* Any number of classes, pixel by pixel: the logits of a sample, scale times its gradient, and that
 * of its tile t alone, whose bytes are x. */
void vb_tiles_row(const struct vb_k_pixels *p, uint32_t sample, const float *w, const float *b,
                  int classes, float *logits);
void vb_tiles_add_row(const struct vb_k_pixels *p, uint32_t sample, const float *d, float scale,
                      int classes, float *dw);
void vb_tiles_add(const struct vb_k_pixels *p, int t, const uint8_t *x, const float *d, float scale,
                  int classes, float *dw);

/* ---- ten classes ----------------------------------------------------------------------------- */

typedef void vb_pixels_forward_fn(const struct vb_k_pixels *pixels,
                                  const struct vb_k_picked *picked, const float *w, const float *b,
                                  float *logits);
typedef void vb_pixels_add_fn(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                              const float *d, float scale, float *dw, float *db);
typedef void vb_pixels_forward_part_fn(const struct vb_k_pixels *pixels,
                                       const struct vb_k_picked *picked,
                                       const struct vb_k_pixels_part *part, const float *w,
                                       const float *b, float *logits);
typedef void vb_pixels_backward_part_fn(const struct vb_k_pixels *pixels,
                                        const struct vb_k_picked *picked,
                                        const struct vb_k_pixels_part *part, const float *d,
                                        float *dw, float *db);

/* The kernels of one level of instructions, which do the same as the vb_k_pixels_ functions of the
 * same names. */
struct vb_pixels_ten {
    vb_pixels_forward_fn *forward; /* lists */
    vb_pixels_add_fn *add;
    vb_pixels_forward_part_fn *forward_part;
    vb_pixels_backward_part_fn *backward_part;
    vb_pixels_forward_fn *tiles_forward; /* NULL: this level computes with lists only */
    vb_pixels_add_fn *tiles_add;
};

/* kernels/pixels_ten.c, compiled once for each level. */
extern const struct vb_pixels_ten vb_pixels_ten, vb_pixels_ten_v3, vb_pixels_ten_v4;

/* kernels/pixels.c: the kernels of the level in use. */
const struct vb_pixels_ten *vb_pixels_ten_in_use(void);

/* kernels/pixels_tiles_ten.c, compiled once for each level; empty unless a vector has as many
 * floats as a tile. */
#define vb_tiles_ten_forward VB_AT_LEVEL(vb_tiles_ten_forward)
#define vb_tiles_ten_add VB_AT_LEVEL(vb_tiles_ten_add)
vb_pixels_forward_fn vb_tiles_ten_forward;
vb_pixels_add_fn vb_tiles_ten_add;

#endif
