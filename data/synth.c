/* SPDX-License-Identifier: MIT
 *
 * Made-up images that a linear model learns about as well as MNIST.
 *
 * A class is a drawing of a few *strokes*. An image is the drawing of its class, moved by up to two
 * pixels each way and more or less dark, with a paler drawing of another class over it and noise
 * on every pixel. Moving is what a linear model cannot follow, and the paler drawing is now and
 * then not much paler, so neither more data nor more steps lead to a perfect score.
 *
 * All arithmetic is on whole numbers, 255 being black, and each number depends on the seed and its
 * place alone: every compiler and machine makes the same images.
 */
#include "data/data.h"

#include <string.h>

#define STROKES 3
#define POINTS 16 /* of a stroke */
#define SHIFT 2   /* pixels that a drawing is moved by, at most */
#define BLACK 255
#define FALL 36 /* darkness lost with the square of the distance, in pixels, from a stroke */

/* Seeds of what is drawn independently. */
enum { STREAM_DRAWINGS = 1, STREAM_PARTS };

/* Numbers drawn for one image, before those of its noise. */
enum { DRAW_CLASS, DRAW_PLACE, DRAW_OTHER, DRAW_OTHER_PLACE, N_DRAWS };

typedef uint8_t drawing[VB_SYNTH_SIDE][VB_SYNTH_SIDE];

/* A drawing where an image has it. */
struct placed {
    const uint8_t (*pixels)[VB_SYNTH_SIDE];
    int dx, dy;
    int strength; /* of 256 */
};

/* ---- drawings -------------------------------------------------------------------------------- */

/* A number from 0 to n-1, out of the 16 bits of random that begin at shift. */
static int below(uint64_t random, int shift, int n)
{
    return (int)(((random >> shift) & 0xffffu) * (uint64_t)n >> 16);
}

/* Darkens what is near a point, given in 1/16 pixels. */
static void dab(drawing d, int px, int py)
{
    int x, y, dx, dy, dark;

    for (y = 0; y < VB_SYNTH_SIDE; y++) {
        for (x = 0; x < VB_SYNTH_SIDE; x++) {
            dx = x * 16 - px;
            dy = y * 16 - py;
            dark = BLACK - (dx * dx + dy * dy) * FALL / 256;
            if (dark > d[y][x])
                d[y][x] = (uint8_t)dark;
        }
    }
}

static void stroke(drawing d, uint64_t random)
{
    int x0 = 5 * 16 + below(random, 0, 18 * 16), y0 = 5 * 16 + below(random, 16, 18 * 16);
    int x1 = 5 * 16 + below(random, 32, 18 * 16), y1 = 5 * 16 + below(random, 48, 18 * 16);
    int i;

    for (i = 0; i < POINTS; i++)
        dab(d, x0 + (x1 - x0) * i / (POINTS - 1), y0 + (y1 - y0) * i / (POINTS - 1));
}

static void make_drawings(uint64_t seed, drawing drawings[VB_SYNTH_CLASSES])
{
    uint64_t key = vb_random(seed, STREAM_DRAWINGS);
    uint64_t n = 0;
    int c, s;

    memset(drawings, 0, VB_SYNTH_CLASSES * sizeof(drawing));
    for (c = 0; c < VB_SYNTH_CLASSES; c++)
        for (s = 0; s < STROKES; s++)
            stroke(drawings[c], vb_random(key, n++));
}

/* ---- images ---------------------------------------------------------------------------------- */

static struct placed place(const drawing d, uint64_t random, int weakest, int strongest)
{
    return (struct placed){.pixels = d,
                           .dx = below(random, 0, 2 * SHIFT + 1) - SHIFT,
                           .dy = below(random, 16, 2 * SHIFT + 1) - SHIFT,
                           .strength = weakest + below(random, 32, strongest - weakest)};
}

static int darkness(const struct placed *p, int x, int y)
{
    x -= p->dx;
    y -= p->dy;
    if (x < 0 || x >= VB_SYNTH_SIDE || y < 0 || y >= VB_SYNTH_SIDE)
        return 0;
    return p->pixels[y][x] * p->strength / 256;
}

/* Noise of one pixel: mostly small, the sum of two equal chances. Four pixels share a number. */
static int noise(uint64_t random, int pixel)
{
    int bits = (int)(random >> (pixel % 4 * 16));

    return (bits & 0x7f) + ((bits >> 8) & 0x7f) - 0x7f;
}

static void paint(const struct placed *own, const struct placed *other, uint64_t key, float *x)
{
    uint64_t random = 0;
    int i, v;

    for (i = 0; i < VB_SYNTH_FEATURES; i++) {
        if (i % 4 == 0)
            random = vb_random(key, N_DRAWS + (uint64_t)i / 4);
        v = darkness(own, i % VB_SYNTH_SIDE, i / VB_SYNTH_SIDE) +
            darkness(other, i % VB_SYNTH_SIDE, i / VB_SYNTH_SIDE) + noise(random, i);
        v = v < 0 ? 0 : (v > BLACK ? BLACK : v);
        x[i] = (float)v / BLACK;
    }
}

static uint8_t make_image(drawing drawings[VB_SYNTH_CLASSES], uint64_t key, float *x)
{
    int c = below(vb_random(key, DRAW_CLASS), 0, VB_SYNTH_CLASSES);
    int step = 1 + below(vb_random(key, DRAW_OTHER), 0, VB_SYNTH_CLASSES - 1);
    struct placed own = place(drawings[c], vb_random(key, DRAW_PLACE), 145, 256);
    struct placed other =
        place(drawings[(c + step) % VB_SYNTH_CLASSES], vb_random(key, DRAW_OTHER_PLACE), 0, 178);

    paint(&own, &other, key, x);
    return (uint8_t)c;
}

vb_status vb_synth_create(uint64_t seed, enum vb_synth_part part, int n, struct vb_dataset *set_p)
{
    uint64_t key = vb_random(vb_random(seed, STREAM_PARTS), (uint64_t)part);
    drawing drawings[VB_SYNTH_CLASSES];
    struct vb_dataset set;
    vb_status st;
    int i;

    st = vb_dataset_create(n, VB_SYNTH_FEATURES, VB_SYNTH_CLASSES, &set);
    if (st != VB_OK)
        return st;
    make_drawings(seed, drawings);
    for (i = 0; i < n; i++)
        set.y[i] = make_image(drawings, vb_random(key, (uint64_t)i),
                              set.x + (size_t)i * (size_t)VB_SYNTH_FEATURES);
    *set_p = set;
    return VB_OK;
}
