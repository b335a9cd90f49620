/* SPDX-License-Identifier: MIT
 *
 * Lists and tiles of pixels in one piece of memory, for several processes: a head, the places of
 * the lists, the places of the tiles, the lists or tiles.
 */
#include "kernels/pixels/pixels_priv.h"

#include <stdlib.h>

#define PACKED_MAGIC UINT64_C(0x3178697050624b)

struct packed {
    uint64_t magic, len;
    struct vb_k_pixels pixels;     /* without its pointers */
    uint64_t places, tiles, lines; /* positions in bytes; tiles is 0 if there are none */
    uint64_t lines_len;
};

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
}

/* Computes where everything of n samples is. */
static void lay_out(struct packed *p, size_t n, bool tiles)
{
    p->places = aligned(sizeof(*p));
    p->lines = p->places + aligned((n + 1) * sizeof(struct pixels_place));
    p->tiles = tiles ? p->lines : 0;
    p->lines += tiles ? aligned((n + 1) * sizeof(struct tiles_place)) : 0;
    p->len = p->lines + p->lines_len;
}

vb_status vb_k_pixels_pack(const struct vb_k_pixels *pixels, struct vb_mem *mem_p)
{
    struct packed head = {
        .magic = PACKED_MAGIC, .pixels = *pixels, .lines_len = pixels->mem.len_bytes};
    size_t n = pixels->n_samples;
    struct vb_mem mem;
    vb_status st;
    char *to;

    lay_out(&head, n, pixels->tiles.places != NULL);
    st = vb_mem_map_sealable("verbena-pixels", head.len, &mem);
    if (st != VB_OK)
        return st;
    to = mem.ptr;
    memcpy(to, &head, sizeof(head));
    memcpy(to + head.places, pixels->places, n * sizeof(*pixels->places));
    if (head.tiles > 0)
        memcpy(to + head.tiles, pixels->tiles.places, n * sizeof(*pixels->tiles.places));
    memcpy(to + head.lines, pixels->mem.ptr, head.lines_len);
    *mem_p = mem;
    return VB_OK;
}

/* Returns whether the head describes packed pixels that fit into the memory. */
static bool is_packed(const struct packed *p, size_t len_bytes, size_t n, int features)
{
    struct packed want;

    if (len_bytes < sizeof(*p) || p->magic != PACKED_MAGIC || p->pixels.n_samples != n ||
        p->pixels.features != features || n > UINT32_MAX || p->lines_len > len_bytes)
        return false;
    want = (struct packed){.lines_len = p->lines_len};
    lay_out(&want, n, p->tiles > 0);
    return p->places == want.places && p->tiles == want.tiles && p->lines == want.lines &&
           p->len == want.len && p->len <= len_bytes;
}

vb_status vb_k_pixels_unpack(const void *packed, size_t len_bytes, size_t n, int features,
                             struct vb_k_pixels **pixels_p)
{
    const struct packed *p = packed;
    char *from = (char *)packed;
    struct vb_k_pixels *pixels;

    if (!is_packed(p, len_bytes, n, features))
        return vb_err(VB_ERR_INPUT, "the shared copy of the pixels is broken");
    pixels = malloc(sizeof(*pixels));
    if (pixels == NULL)
        return vb_err_sys("malloc");
    *pixels = p->pixels;
    pixels->borrowed = true;
    pixels->places = (struct pixels_place *)(void *)(from + p->places);
    pixels->tiles.places = p->tiles > 0 ? (struct tiles_place *)(void *)(from + p->tiles) : NULL;
    pixels->mem = (struct vb_mem){.ptr = from + p->lines, .len_bytes = p->lines_len, .fd = -1};
    *pixels_p = pixels;
    return VB_OK;
}
