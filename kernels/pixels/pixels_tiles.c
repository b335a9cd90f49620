/* SPDX-License-Identifier: MIT
 *
 * Cuts and fills tiles of pixels. Also has the slow loops that compute with tiles for any number of
 * classes and for numbers that are not finite.
 *
 * A tile is a square of 4 x 4 pixels if the size of the image allows it, because the strokes of a
 * digit touch fewer squares than rows of 16.
 */
#include "kernels/pixels/pixels_priv.h"

#include <math.h>
#include <stdlib.h>

#define SIDE 4 /* side of a square */

/* Returns the place of a pixel in its sample: its tile times TILE, plus its place in the tile. */
static int place_of(int pixel, int features, int width)
{
    int row, column, tile;

    if (width <= 0 || width % SIDE != 0 || features % (width * SIDE) != 0)
        return pixel; /* the image cannot be cut into squares */
    row = pixel / width;
    column = pixel % width;
    tile = row / SIDE * (width / SIDE) + column / SIDE;
    return tile * TILE + row % SIDE * SIDE + column % SIDE;
}

vb_status vb_tiles_begin(struct vb_k_pixels *p, int width)
{
    struct pixels_tiles *tiles = &p->tiles;
    int f;

    if (vb_pixels_ten_in_use()->tiles_forward == NULL || p->features > TILES_MAX * TILE)
        return VB_OK;
    tiles->places = calloc(p->n_samples + 1, sizeof(*tiles->places));
    if (tiles->places == NULL)
        return vb_err_sys("calloc");
    for (f = 0; f < TILES_MAX * TILE; f++)
        tiles->pixel[f] = (uint16_t)(p->features - 1);
    for (f = 0; f < p->features; f++) {
        tiles->place[f] = (uint16_t)place_of(f, p->features, width);
        tiles->pixel[tiles->place[f]] = (uint16_t)f;
    }
    return VB_OK;
}

void vb_tiles_look(struct vb_k_pixels *p, size_t sample, const uint16_t *index, int n)
{
    uint64_t which = 0;
    int i;

    for (i = 0; i < n; i++)
        which |= (uint64_t)1 << p->tiles.place[index[i]] / TILE;
    p->tiles.places[sample].which = which;
}

/* Returns true if every value is a byte times the unit, up to two more rounding errors. */
static bool is_unit(const struct vb_k_pixels *p, float unit)
{
    int i;

    for (i = 0; i < p->n_colours; i++) {
        float v = p->palette[i], times = roundf(v / unit);

        if (!(times >= 1 && times <= UINT8_MAX && fabsf(times * unit - v) <= v * 0x1p-22f))
            return false;
    }
    return true;
}

/* Finds the unit that all values are multiples of, if they were made from bytes. */
static bool find_unit(struct vb_k_pixels *p)
{
    float max = 0;
    int i;

    for (i = 0; i < p->n_colours; i++)
        max = p->palette[i] > max ? p->palette[i] : max;
    for (i = 1; i <= UINT8_MAX; i++) {
        p->tiles.unit = max / (float)i;
        if (is_unit(p, p->tiles.unit))
            return true;
    }
    return false;
}

void vb_tiles_settle(struct vb_k_pixels *p)
{
    if (p->tiles.places == NULL || (p->bytes && find_unit(p)))
        return;
    free(p->tiles.places);
    p->tiles.places = NULL;
}

size_t vb_tiles_place(struct vb_k_pixels *p)
{
    size_t lines = 0, bytes, s;

    for (s = 0; s < p->n_samples; s++) {
        p->tiles.places[s].line = (uint32_t)lines;
        bytes = (size_t)__builtin_popcountll(p->tiles.places[s].which) * TILE;
        lines += (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE;
    }
    return lines;
}

void vb_tiles_fill(struct vb_k_pixels *p, size_t sample, const float *x, const uint16_t *index,
                   int n)
{
    uint64_t which = p->tiles.places[sample].which;
    uint8_t *tile[TILES_MAX], *to = (uint8_t *)p->mem.ptr;
    int i, place;

    for (to += (size_t)p->tiles.places[sample].line * VB_CACHE_LINE; which != 0; to += TILE) {
        tile[__builtin_ctzll(which)] = to;
        which &= which - 1;
    }
    for (i = 0; i < n; i++) {
        place = p->tiles.place[index[i]];
        tile[place / TILE][place % TILE] = (uint8_t)(x[index[i]] / p->tiles.unit + 0.5f);
    }
}

void vb_tiles_row(const struct vb_k_pixels *p, uint32_t sample, const float *w, const float *b,
                  int classes, float *logits)
{
    struct tiles_of tiles = tiles_of(p, sample);
    int k, c;

    memcpy(logits, b, (size_t)classes * sizeof(*b));
    for (; tiles.which != 0; tiles.which &= tiles.which - 1, tiles.x += TILE) {
        const uint16_t *pixel = p->tiles.pixel + __builtin_ctzll(tiles.which) * TILE;

        for (k = 0; k < TILE; k++) {
            const float *row = w + (size_t)pixel[k] * (size_t)classes;

            for (c = 0; c < classes && tiles.x[k] != 0; c++)
                logits[c] += (float)tiles.x[k] * p->tiles.unit * row[c];
        }
    }
}

void vb_tiles_add(const struct vb_k_pixels *p, int t, const uint8_t *x, const float *d, float scale,
                  int classes, float *dw)
{
    const uint16_t *pixel = p->tiles.pixel + t * TILE;
    int k, c;

    for (k = 0; k < TILE; k++) {
        float *row = dw + (size_t)pixel[k] * (size_t)classes;

        for (c = 0; c < classes && x[k] != 0; c++)
            row[c] += (float)x[k] * p->tiles.unit * scale * d[c];
    }
}

void vb_tiles_add_row(const struct vb_k_pixels *p, uint32_t sample, const float *d, float scale,
                      int classes, float *dw)
{
    struct tiles_of tiles = tiles_of(p, sample);

    for (; tiles.which != 0; tiles.which &= tiles.which - 1, tiles.x += TILE)
        vb_tiles_add(p, __builtin_ctzll(tiles.which), tiles.x, d, scale, classes, dw);
}
