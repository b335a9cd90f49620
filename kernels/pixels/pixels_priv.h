/* SPDX-License-Identifier: MIT
 *
 * Lists of the nonzero pixels of samples. pixels.c builds the lists and computes with them for any
 * number of classes, pixels_ten.c for ten classes at each level of instructions.
 *
 * A list consists of the indices (16 bits each), from the last pixel to the first, and then the
 * values: indices into a palette of at most 256 values, or floats if there are more. A list begins
 * at a cache line, so that it spans as few lines as possible.
 *
 * A level with vectors of 16 floats uses *tiles* instead (pixels_tiles.c, pixels_tiles_ten.c): 16
 * pixels near each other, one byte each. Tiles that are all 0 are not stored.
 */
#ifndef VB_KERNELS_PIXELS_PIXELS_PRIV_H
#define VB_KERNELS_PIXELS_PIXELS_PRIV_H

#include "kernels/kernels.h"
#include "kernels/layer/level.h"

#define PIXELS_PALETTE 256

/* The place of a sample's list. */
struct pixels_place {
    uint32_t line; /* number of cache lines before the list */
    uint32_t n;    /* number of entries in the list */
};

#define TILE 16
#define TILES_MAX 64 /* largest number of tiles in a sample; each has one bit in a mask */

/* The place of a sample's tiles. */
struct tiles_place {
    uint64_t which; /* bit t is set: the sample has tile t */
    uint32_t line;  /* number of cache lines before the tiles */
};

struct pixels_tiles {
    struct tiles_place *places;       /* (n_samples); NULL: lists are used instead */
    float unit;                       /* a value is its byte times this unit */
    uint16_t place[TILES_MAX * TILE]; /* the place of each pixel in the tiles */
    uint16_t pixel[TILES_MAX * TILE]; /* the pixel at each place; the last pixel if unused */
};

struct vb_k_pixels {
    size_t n_samples;
    int features;
    bool bytes;                    /* values are indices into the palette */
    float palette[PIXELS_PALETTE]; /* the values that occurred; 0 is never among them */
    int n_colours;
    size_t nonzeros;
    struct pixels_place *places; /* (n_samples) */
    struct vb_mem mem;           /* the lists, or the tiles */
    struct pixels_tiles tiles;
    bool borrowed; /* the arrays are in packed memory */
};

struct pixels_list {
    uint16_t *index;
    uint8_t *colour; /* if the pixels have bytes: indices into the palette */
    float *value;    /* otherwise: the values; same address as colour */
    size_t n;
};

/* Returns the number of bytes before the values: the indices, rounded up to align floats. */
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

/* gcc 12 believes that a function that only prefetches has no effect, unless it is inlined. */
#define PIXELS_ALWAYS static inline __attribute__((always_inline))

/* Prefetches a list to the first-level cache if near is set, otherwise to the second-level. */
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

#define PIXELS_SOON 2 /* the list of the sample this far ahead is prefetched */
/* The place of the sample this far ahead is prefetched, which is needed to find its list. */
#define PIXELS_LATER 5

/* Prefetches for the first samples. Is called before the first sample. */
PIXELS_ALWAYS void pixels_fetch_first(const struct vb_k_pixels *p, const struct vb_k_picked *at)
{
    size_t i;

    for (i = 0; i < PIXELS_LATER && i < at->n; i++)
        __builtin_prefetch(p->places + at->order[i]);
    for (i = 0; i < PIXELS_SOON && i < at->n; i++)
        pixels_fetch_list(p, at->order[i], true);
}

/* Prefetches for later samples. Is called before each sample. */
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
    const uint8_t *x; /* the bytes, tile after tile */
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

/* kernels/pixels/pixels_tiles.c: builds tiles by these calls, in this order. begin allocates the
 * places if the level in use has tiles. look registers the nonzero pixels of each sample. settle
 * decides whether tiles are used. place sets the place of each sample's tiles and returns the total
 * number of cache lines. fill writes the tiles of each sample. */
vb_status vb_tiles_begin(struct vb_k_pixels *p, int width);
void vb_tiles_look(struct vb_k_pixels *p, size_t sample, const uint16_t *index, int n);
void vb_tiles_settle(struct vb_k_pixels *p);
size_t vb_tiles_place(struct vb_k_pixels *p);
void vb_tiles_fill(struct vb_k_pixels *p, size_t sample, const float *x, const uint16_t *index,
                   int n);

/* For any number of classes, pixel by pixel. row computes the logits of a sample. add_row adds
 * scale times its gradient; add the same for tile t alone, whose bytes are x. */
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

/* The kernels of one level. Each does the same as the vb_k_pixels_ function of its name. */
struct vb_pixels_ten {
    vb_pixels_forward_fn *forward; /* these four compute with lists */
    vb_pixels_add_fn *add;
    vb_pixels_forward_part_fn *forward_part;
    vb_pixels_backward_part_fn *backward_part;
    vb_pixels_forward_fn *tiles_forward; /* NULL: this level computes with lists only */
    vb_pixels_add_fn *tiles_add;
};

/* The kernels of each level: kernels/pixels/pixels_ten.c, compiled once for each level. */
extern const struct vb_pixels_ten vb_pixels_ten, vb_pixels_ten_v3, vb_pixels_ten_v4;

/* kernels/pixels/pixels.c: returns the kernels of the level in use. */
const struct vb_pixels_ten *vb_pixels_ten_in_use(void);

/* kernels/pixels/pixels_tiles_ten.c, compiled for each level; empty unless VB_LANES is TILE. */
#define vb_tiles_ten_forward VB_AT_LEVEL(vb_tiles_ten_forward)
#define vb_tiles_ten_add VB_AT_LEVEL(vb_tiles_ten_add)
vb_pixels_forward_fn vb_tiles_ten_forward;
vb_pixels_add_fn vb_tiles_ten_add;

#endif
