/* SPDX-License-Identifier: MIT
 *
 * Synthetic colour images, each generated from its number when it is read. A class is a smooth
 * pattern: a *grid* of random levels for each channel, interpolated to the image's size. An image
 * is its class's pattern, shifted, with a random strength and noise. All arithmetic is on
 * integers, so that every machine makes the same images.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

#define GRID 8
#define SIDE_MAX 224
#define CHANNELS 3
#define FRACTION 256 /* number of steps from one grid point to the next */

enum { STREAM_CLASSES = 11, STREAM_PARTS };
enum { DRAW_CLASS, DRAW_PLACE, DRAW_NOISE };

struct image_store {
    struct vb_store base;
    uint64_t classes_key, part_key;
    int side, classes;
};

/* The random properties of one image. */
struct look {
    int dx, dy;   /* shift of the pattern, in 1/FRACTION of a grid cell */
    int strength; /* strength of the pattern, in units of 1/256 */
};

/* Draws a level around 0 for every grid point of a class. */
static void make_grid(uint64_t key, int8_t grid[CHANNELS][GRID + 1][GRID + 1])
{
    uint64_t random = 0;
    int i, n = CHANNELS * (GRID + 1) * (GRID + 1);

    for (i = 0; i < n; i++) {
        if (i % 8 == 0)
            random = vb_random(key, (uint64_t)i / 8);
        (&grid[0][0][0])[i] = (int8_t)(random >> (i % 8 * 8));
    }
}

/* Where a line or column is on the grid: the point before it, and the distance from that. */
struct place {
    int point, fraction;
};

static void place_all(int side, int shift, struct place *places)
{
    int i, at;

    for (i = 0; i < side; i++) {
        at = i * (GRID - 1) * FRACTION / side + shift;
        places[i] = (struct place){at / FRACTION, at % FRACTION};
    }
}

static int between(int a, int b, int fraction)
{
    return a * (FRACTION - fraction) + b * fraction;
}

/* Computes a line of a channel without noise, around 0, scaled by the image's strength. */
static void pattern_line(int8_t grid[GRID + 1][GRID + 1], const struct place *y,
                         const struct place *x, int side, int strength, int *line)
{
    int column[GRID + 1], i, v;

    for (i = 0; i <= GRID; i++)
        column[i] = between(grid[y->point][i], grid[y->point + 1][i], y->fraction);
    for (i = 0; i < side; i++) {
        v = between(column[x[i].point], column[x[i].point + 1], x[i].fraction);
        line[i] = v / (FRACTION * FRACTION) * strength / 256;
    }
}

/* Adds noise and writes the pixels. Eight share a random number: side is a multiple of 8. */
static void paint_line(const int *line, int side, uint64_t key, uint64_t first, uint8_t *pixels)
{
    uint64_t random;
    int x, i, v;

    for (x = 0; x < side; x += 8) {
        random = vb_random(key, first + (uint64_t)x / 8);
        for (i = 0; i < 8; i++) {
            v = 128 + line[x + i] + (int)(random >> (i * 8) & 0x7f) - 64;
            pixels[x + i] = (uint8_t)(v < 0 ? 0 : (v > 255 ? 255 : v));
        }
    }
}

static int make_image(const struct vb_store *base, int i, uint8_t *pixels)
{
    const struct image_store *s = (const struct image_store *)base;
    uint64_t key = vb_random(s->part_key, (uint64_t)i), random = vb_random(key, DRAW_PLACE);
    int class = (int)(vb_random(key, DRAW_CLASS) % (uint64_t)s->classes), c, y;
    struct look look = {.dx = (int)(random & 0xff),
                        .dy = (int)(random >> 8 & 0xff),
                        .strength = 96 + (int)(random >> 16 & 0x7f)};
    int8_t grid[CHANNELS][GRID + 1][GRID + 1];
    uint64_t per_line = (uint64_t)s->side / 8;
    struct place across[SIDE_MAX], down[SIDE_MAX];
    int line[SIDE_MAX];

    if (pixels == NULL)
        return class;
    make_grid(vb_random(s->classes_key, (uint64_t) class), grid);
    place_all(s->side, look.dx, across);
    place_all(s->side, look.dy, down);
    for (c = 0; c < CHANNELS; c++) {
        for (y = 0; y < s->side; y++) {
            pattern_line(grid[c], &down[y], across, s->side, look.strength, line);
            paint_line(line, s->side, key,
                       DRAW_NOISE + ((uint64_t)c * (uint64_t)s->side + (uint64_t)y) * per_line,
                       pixels + ((size_t)c * (size_t)s->side + (size_t)y) * (size_t)s->side);
        }
    }
    return class;
}

static uint64_t image_digest(const struct vb_store *base)
{
    const struct image_store *s = (const struct image_store *)base;
    uint64_t from[] = {s->classes_key, s->part_key, (uint64_t)s->side, (uint64_t)s->classes,
                       (uint64_t)base->n};

    return vb_hash64(0, from, sizeof(from));
}

static const struct store_ops image_ops = {
    .close = vb_store_free, .image = make_image, .digest = image_digest};

vb_status vb_synth_images(uint64_t seed, enum vb_synth_part part, int n, int side, int classes,
                          struct vb_dataset *set_p)
{
    struct image_store *s;

    if (side < GRID || side > SIDE_MAX || side % 8 != 0 || classes < 1 || classes > 65536)
        return vb_err(VB_ERR_USAGE, "synthetic images of side %d with %d classes are not supported",
                      side, classes);
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return vb_err_sys("calloc");
    s->base.ops = &image_ops;
    atomic_init(&s->base.refs, 1);
    s->classes_key = vb_random(seed, STREAM_CLASSES);
    s->part_key = vb_random(vb_random(seed, STREAM_PARTS), (uint64_t)part);
    s->base.n = n;
    s->side = side;
    s->classes = classes;
    *set_p = (struct vb_dataset){.kind = VB_DATA_IMAGES,
                                 .n = n,
                                 .features = CHANNELS * side * side,
                                 .classes = classes,
                                 .c = CHANNELS,
                                 .h = side,
                                 .w = side,
                                 .scale = 1.0f / 255,
                                 .store = &s->base};
    return VB_OK;
}
