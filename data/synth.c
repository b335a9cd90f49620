/* SPDX-License-Identifier: MIT
 *
 * Synthetic digits, about as hard as MNIST. A digit is a line through a few points, each moved a
 * little, then all rotated, slanted, stretched and moved together. Noise and a stray stroke are
 * added. A convolutional model can learn rotation and movement, a linear model cannot.
 *
 * All arithmetic is on integers, so every machine makes the same images; 255 is black.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

#define SIDE VB_SYNTH_SIDE
#define BLACK 255
#define POINTS_MAX 14
#define UNIT 16   /* coordinates are in 1/16 pixel */
#define JITTER 14 /* the largest movement of a point, in 1/UNIT pixel */
#define SHIFT 44  /* the largest movement of the digit, in 1/UNIT pixel */
#define REACH 3   /* the radius of a pen, in pixels */

/* The position of the random number from which the keys of the two parts are made. */
enum { STREAM_PARTS = 2 };

/* The positions of the random numbers of one image; points and noise use several. */
enum { DRAW_CLASS, DRAW_SHAPE, DRAW_PLACE, DRAW_PEN, DRAW_STRAY, DRAW_POINTS, DRAW_NOISE = 32 };

/* The points of each digit on a square of 20 x 20, with the origin at the top left. */
struct glyph {
    int n;
    uint8_t at[POINTS_MAX][2];
};

/* clang-format off */
static const struct glyph glyphs[VB_SYNTH_CLASSES] = {
    {11, {{10, 1}, {5, 3}, {3, 8}, {3, 13}, {6, 18}, {10, 19}, {14, 18}, {17, 13}, {17, 8},
     {15, 3}, {10, 1}}},
    {3, {{6, 5}, {10, 1}, {10, 19}}},
    {8, {{4, 5}, {7, 1}, {12, 1}, {16, 5}, {14, 10}, {8, 14}, {3, 19}, {17, 19}}},
    {10, {{4, 2}, {11, 1}, {15, 4}, {13, 8}, {9, 10}, {14, 11}, {16, 15}, {12, 19}, {7, 19},
     {3, 17}}},
    {4, {{12, 19}, {12, 1}, {3, 13}, {17, 13}}},
    {8, {{16, 1}, {6, 1}, {5, 8}, {11, 8}, {16, 12}, {14, 18}, {8, 19}, {3, 17}}},
    {9, {{14, 1}, {8, 4}, {4, 11}, {5, 17}, {10, 19}, {15, 17}, {15, 12}, {10, 10}, {5, 13}}},
    {4, {{3, 1}, {17, 1}, {12, 9}, {8, 19}}},
    {13, {{10, 10}, {5, 7}, {6, 2}, {10, 1}, {14, 2}, {15, 7}, {10, 10}, {5, 13}, {5, 17},
     {10, 19}, {15, 17}, {15, 13}, {10, 10}}},
    {9, {{15, 8}, {10, 11}, {5, 8}, {6, 3}, {10, 1}, {14, 3}, {15, 8}, {14, 14}, {10, 19}}},
};
/* clang-format on */

/* The movement of all points of an image: a matrix in units of 1/256, and a shift. */
struct form {
    int xx, xy, yx, yy;
    int dx, dy;
};

struct pen {
    int fall;  /* decrease of the darkness per squared distance in pixels */
    int black; /* the darkest value of a pixel */
};

/* Returns a number from 0 to n-1. It is made of 16 bits of random, starting at bit number shift. */
static int below(uint64_t random, int shift, int n)
{
    return (int)(((random >> shift) & 0xffffu) * (uint64_t)n >> 16);
}

/* Returns a random number from -most to most. */
static int around(uint64_t random, int shift, int most)
{
    return below(random, shift, 2 * most + 1) - most;
}

/* Darkens the pixels around a position. */
static void dab(uint8_t *pixels, int px, int py, const struct pen *pen)
{
    int x0 = px / UNIT, y0 = py / UNIT, x, y, dx, dy, dark;

    for (y = y0 - REACH; y <= y0 + REACH; y++) {
        for (x = x0 - REACH; x <= x0 + REACH; x++) {
            if (x < 0 || x >= SIDE || y < 0 || y >= SIDE)
                continue;
            dx = x * UNIT - px;
            dy = y * UNIT - py;
            dark = pen->black - (dx * dx + dy * dy) * pen->fall / (UNIT * UNIT);
            if (dark > pixels[y * SIDE + x])
                pixels[y * SIDE + x] = (uint8_t)dark;
        }
    }
}

/* Draws a line as dots that are at most one pixel apart. */
static void stroke(uint8_t *pixels, const int a[2], const int b[2], const struct pen *pen)
{
    int dx = b[0] - a[0], dy = b[1] - a[1];
    int far = abs(dx) > abs(dy) ? abs(dx) : abs(dy), n = far / UNIT + 1, i;

    for (i = 0; i <= n; i++)
        dab(pixels, a[0] + dx * i / n, a[1] + dy * i / n, pen);
}

static void place_point(const uint8_t from[2], const struct form *f, uint64_t random, int to[2])
{
    int x = (from[0] - 10) * UNIT + around(random, 0, JITTER);
    int y = (from[1] - 10) * UNIT + around(random, 16, JITTER);

    to[0] = (x * f->xx + y * f->xy) / 256 + f->dx;
    to[1] = (x * f->yx + y * f->yy) / 256 + f->dy;
}

static void draw(uint8_t *pixels, const struct glyph *g, uint64_t key, const struct form *form,
                 const struct pen *pen)
{
    int points[POINTS_MAX][2], i;

    for (i = 0; i < g->n; i++)
        place_point(g->at[i], form, vb_random(key, DRAW_POINTS + (uint64_t)i), points[i]);
    for (i = 1; i < g->n; i++)
        stroke(pixels, points[i - 1], points[i], pen);
}

/* Draws a short line at a random position, with random darkness. */
static void draw_stray(uint8_t *pixels, uint64_t random)
{
    struct pen pen = {.fall = 90, .black = 40 + below(random, 48, 160)};
    int a[2] = {below(random, 0, SIDE * UNIT), below(random, 16, SIDE * UNIT)};
    int b[2] = {a[0] + around(random, 32, 8 * UNIT), a[1] + around(random, 40, 8 * UNIT)};

    stroke(pixels, a, b, &pen);
}

/* Adds noise, mostly small: the sum of two uniform numbers. Four pixels share a random number. */
static void add_noise(uint8_t *pixels, uint64_t key)
{
    uint64_t random = 0;
    int i, bits, v;

    for (i = 0; i < VB_SYNTH_FEATURES; i++) {
        if (i % 4 == 0)
            random = vb_random(key, DRAW_NOISE + (uint64_t)i / 4);
        bits = (int)(random >> (i % 4 * 16));
        v = pixels[i] + ((bits & 0x3f) + ((bits >> 8) & 0x3f) - 0x3f) / 2;
        pixels[i] = (uint8_t)(v < 0 ? 0 : (v > BLACK ? BLACK : v));
    }
}

/* Draws a rotation of up to a fifth of a right angle, a slant, and a stretch in each direction. */
static struct form make_form(uint64_t shape, uint64_t place)
{
    int turn = around(shape, 0, 70), slant = around(shape, 16, 50);

    return (struct form){.xx = 200 + below(shape, 32, 70),
                         .xy = slant - turn,
                         .yx = turn,
                         .yy = 200 + below(shape, 48, 70),
                         .dx = (SIDE * UNIT - UNIT) / 2 + around(place, 0, SHIFT),
                         .dy = (SIDE * UNIT - UNIT) / 2 + around(place, 16, SHIFT)};
}

static int make_digit(uint64_t key, uint8_t *pixels)
{
    int c = below(vb_random(key, DRAW_CLASS), 0, VB_SYNTH_CLASSES);
    struct form form = make_form(vb_random(key, DRAW_SHAPE), vb_random(key, DRAW_PLACE));
    uint64_t random = vb_random(key, DRAW_PEN);
    struct pen pen = {.fall = 50 + below(random, 0, 90), .black = 170 + below(random, 16, 86)};

    memset(pixels, 0, VB_SYNTH_FEATURES);
    draw(pixels, &glyphs[c], key, &form, &pen);
    draw_stray(pixels, vb_random(key, DRAW_STRAY));
    add_noise(pixels, key);
    return c;
}

vb_status vb_synth_create(uint64_t seed, enum vb_synth_part part, int n, struct vb_dataset *set_p)
{
    uint64_t key = vb_random(vb_random(seed, STREAM_PARTS), (uint64_t)part);
    struct vb_dataset set;
    vb_status st;
    int i;

    st = vb_images_create(n, 1, SIDE, SIDE, VB_SYNTH_CLASSES, &set);
    if (st != VB_OK)
        return st;
    for (i = 0; i < n; i++)
        set.store->y[i] = (uint16_t)make_digit(vb_random(key, (uint64_t)i),
                                               set.store->pixels + (size_t)i * VB_SYNTH_FEATURES);
    *set_p = set;
    return VB_OK;
}
