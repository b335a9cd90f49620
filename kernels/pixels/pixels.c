/* SPDX-License-Identifier: MIT
 *
 * A linear layer over images that are mostly zero. The nonzero pixels of each sample are listed
 * once; the passes then touch only their rows of the weights (features, classes). Ten classes have
 * their own loops (pixels_ten.c). A pixel that is 0 contributes nothing, even if its weights are
 * infinite or NaN.
 */
#include "kernels/pixels/pixels_priv.h"

#include <stdlib.h>

#define TEN 10
#define PALETTE PIXELS_PALETTE
#define BLOCK 64 /* number of samples read at a time */

/* Finds the colour of a value, its index in the palette: a hash table with open addressing. */
struct finder {
    uint32_t bits[4 * PALETTE];
    int16_t colour[4 * PALETTE]; /* -1: the place is free */
};

/* Returns the colour of a value, which is added to the palette if new; -1 if that is full. */
static int find_colour(struct vb_k_pixels *p, struct finder *f, float value)
{
    uint32_t bits = vb_float_bits(value), at = bits * 0x9e3779b1u >> 22;

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

/* The source of the samples. They are read twice, in blocks: as floats they are far larger. */
struct source {
    const struct vb_k_samples *samples;
    float *x;        /* (BLOCK, features) */
    uint16_t *index; /* indices of the nonzero pixels of one sample, with space for one more */
};

/* Returns sample s, and reads the next block if needed. Samples are read in order. */
static const float *sample(const struct vb_k_pixels *p, const struct source *from, size_t s)
{
    size_t left = p->n_samples - s;

    if (s % BLOCK == 0)
        from->samples->read(from->samples->arg, s, left < BLOCK ? left : BLOCK, from->x);
    return from->x + s % BLOCK * (size_t)p->features;
}

/* Lists the indices of nonzeros and returns their number, without a branch: it is unpredictable. */
static int list_nonzero(const float *x, int n, uint16_t *index)
{
    int i, at = 0;

    for (i = 0; i < n; i++) {
        index[at] = (uint16_t)i;
        at += x[i] != 0;
    }
    return at;
}

/* Counts nonzero pixels, and collects the palette as long as the values fit into one. */
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
        if (p->tiles.places != NULL)
            vb_tiles_look(p, s, from->index, of_sample);
        p->places[s].n = (uint32_t)of_sample;
        p->nonzeros += (size_t)of_sample;
    }
}

/* Sets the place of each list, and returns the total number of cache lines. */
static size_t place_lists(struct vb_k_pixels *p)
{
    size_t lines = 0, bytes, s;

    for (s = 0; s < p->n_samples; s++) {
        p->places[s].line = (uint32_t)lines;
        bytes =
            pixels_index_bytes(p->places[s].n) + p->places[s].n * (p->bytes ? 1 : sizeof(float));
        lines += (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE;
    }
    return lines;
}

static void fill_list(struct vb_k_pixels *p, struct finder *f, size_t s, const float *x,
                      const uint16_t *index)
{
    struct pixels_list l = pixels_list_of(p, (uint32_t)s);
    size_t i;

    for (i = 0; i < l.n; i++)
        l.index[i] = index[l.n - 1 - i];
    for (i = 0; i < l.n && p->bytes; i++)
        l.colour[i] = (uint8_t)find_colour(p, f, x[l.index[i]]);
    for (i = 0; i < l.n && !p->bytes; i++)
        l.value[i] = x[l.index[i]];
}

static void fill(struct vb_k_pixels *p, struct finder *f, const struct source *from)
{
    const float *x;
    size_t s;
    int n;

    for (s = 0; s < p->n_samples; s++) {
        x = sample(p, from, s);
        n = list_nonzero(x, p->features, from->index);
        if (p->tiles.places != NULL)
            vb_tiles_fill(p, s, x, from->index, n);
        else
            fill_list(p, f, s, x, from->index);
    }
}

static vb_status build(struct vb_k_pixels *p, const struct source *from)
{
    struct finder finder;
    size_t lines;
    vb_status st;

    p->places = calloc(p->n_samples + 1, sizeof(*p->places));
    if (p->places == NULL)
        return vb_err_sys("calloc");
    st = vb_tiles_begin(p, from->samples->width);
    if (st != VB_OK)
        return st;
    count(p, &finder, from);
    vb_tiles_settle(p);
    lines = p->tiles.places != NULL ? vb_tiles_place(p) : place_lists(p);
    st = vb_mem_map_private((lines + 1) * VB_CACHE_LINE, &p->mem);
    if (st == VB_OK)
        fill(p, &finder, from);
    return st;
}

vb_status vb_k_pixels_create(const struct vb_k_samples *samples, struct vb_k_pixels **pixels_p)
{
    int features = samples->features;
    struct source from = {.samples = samples};
    struct vb_k_pixels *p;
    vb_status st;

    if (features < 1 || features > VB_K_PIXELS_FEATURES)
        return vb_err(VB_ERR_USAGE, "a sample has %d pixels, expected 1 to %d", features,
                      VB_K_PIXELS_FEATURES);
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return vb_err_sys("calloc");
    p->n_samples = samples->n;
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
    if (!pixels->borrowed) {
        vb_mem_unmap(&pixels->mem);
        free(pixels->places);
        free(pixels->tiles.places);
    }
    free(pixels);
}

double vb_k_pixels_mean(const struct vb_k_pixels *pixels)
{
    return pixels->n_samples > 0 ? (double)pixels->nonzeros / (double)pixels->n_samples : 0;
}

size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels)
{
    return pixels->nonzeros;
}

PIXELS_ALWAYS void any_row(const struct pixels_list *l, const float *palette, bool bytes,
                           const float *w, int classes, float *logits)
{
    size_t j;
    int c;

    for (j = 0; j < l->n; j++) {
        const float *row = w + (size_t)l->index[j] * (size_t)classes;
        float x = pixels_value(l, palette, bytes, j);

        for (c = 0; c < classes; c++)
            logits[c] += x * row[c];
    }
}

PIXELS_ALWAYS void any_add_row(const struct pixels_list *l, const float *palette, bool bytes,
                               const float *d, float scale, int classes, float *dw)
{
    size_t j;
    int c;

    for (j = 0; j < l->n; j++) {
        float *to = dw + (size_t)l->index[j] * (size_t)classes;
        float x = pixels_value(l, palette, bytes, j) * scale;

        for (c = 0; c < classes; c++)
            to[c] += x * d[c];
    }
}

static void forward_one(const struct vb_k_pixels *p, uint32_t sample, const float *w,
                        const float *b, int classes, float *logits)
{
    struct pixels_list l;

    if (p->tiles.places != NULL) {
        vb_tiles_row(p, sample, w, b, classes, logits);
        return;
    }
    l = pixels_list_of(p, sample);
    memcpy(logits, b, (size_t)classes * sizeof(*b));
    if (p->bytes)
        any_row(&l, p->palette, true, w, classes, logits);
    else
        any_row(&l, p->palette, false, w, classes, logits);
}

static void add_one(const struct vb_k_pixels *p, uint32_t sample, const float *d, float scale,
                    int classes, float *dw)
{
    struct pixels_list l;

    if (p->tiles.places != NULL) {
        vb_tiles_add_row(p, sample, d, scale, classes, dw);
        return;
    }
    l = pixels_list_of(p, sample);
    if (p->bytes)
        any_add_row(&l, p->palette, true, d, scale, classes, dw);
    else
        any_add_row(&l, p->palette, false, d, scale, classes, dw);
}

const struct vb_pixels_ten *vb_pixels_ten_in_use(void)
{
    static const struct vb_pixels_ten *const levels[] = {VB_LEVELS(&vb_pixels_ten)};

    return levels[vb_k_level()];
}

void vb_k_pixels_forward(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *w,
                         const float *b, int classes, float *logits)
{
    const struct vb_pixels_ten *own = vb_pixels_ten_in_use();
    vb_pixels_forward_fn *ten = p->tiles.places != NULL ? own->tiles_forward : own->forward;
    size_t i;

    if (classes == TEN && ten != NULL) { /* NULL: the tiles were made at another level */
        ten(p, at, w, b, logits);
        return;
    }
    for (i = 0; i < at->n; i++, logits += classes) {
        if (p->tiles.places == NULL)
            pixels_fetch(p, at, i);
        forward_one(p, at->order[i], w, b, classes, logits);
    }
}

void vb_k_pixels_add(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *d,
                     float scale, int classes, float *dw, float *db)
{
    const struct vb_pixels_ten *own = vb_pixels_ten_in_use();
    vb_pixels_add_fn *ten = p->tiles.places != NULL ? own->tiles_add : own->add;
    size_t i;
    int c;

    if (classes == TEN && ten != NULL) {
        ten(p, at, d, scale, dw, db);
        return;
    }
    for (i = 0; i < at->n; i++, d += classes) {
        if (p->tiles.places == NULL)
            pixels_fetch(p, at, i);
        add_one(p, at->order[i], d, scale, classes, dw);
        for (c = 0; c < classes; c++)
            db[c] += scale * d[c];
    }
}

bool vb_k_pixels_has_parts(const struct vb_k_pixels *p, int classes)
{
    return classes == TEN && p->tiles.places == NULL;
}

void vb_k_pixels_forward_part(const struct vb_k_pixels *p, const struct vb_k_picked *at,
                              const struct vb_k_pixels_part *part, const float *w, const float *b,
                              float *logits)
{
    vb_pixels_ten_in_use()->forward_part(p, at, part, w, b, logits);
}

void vb_k_pixels_backward_part(const struct vb_k_pixels *p, const struct vb_k_picked *at,
                               const struct vb_k_pixels_part *part, const float *d, float *dw,
                               float *db)
{
    memset(dw + (size_t)part->low * TEN, 0, (size_t)(part->high - part->low) * TEN * sizeof(*dw));
    if (part->high == p->features)
        memset(db, 0, TEN * sizeof(*db));
    vb_pixels_ten_in_use()->backward_part(p, at, part, d, dw, db);
}

void vb_k_pixels_backward(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *d,
                          int classes, float *dw, float *db)
{
    memset(dw, 0, (size_t)p->features * (size_t)classes * sizeof(*dw));
    memset(db, 0, (size_t)classes * sizeof(*db));
    vb_k_pixels_add(p, at, d, 1, classes, dw, db);
}
