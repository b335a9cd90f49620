/* SPDX-License-Identifier: MIT
 *
 * Synthetic rows like Criteo's, each generated from its number when it is read. A hidden model
 * gives each row its label, with noise.
 *
 * The categories of a field are numbered by *rank*; rank 0 is the most frequent. *Octave* k has
 * the ranks from 2^k - 1 to 2^(k+1) - 2. An octave is drawn, lower ones more often, then a rank in
 * it, so frequencies follow about a power law. Ranks are scattered over the indices of the field.
 * Weights of the hidden model are random, and halve with each octave beyond the sixth, so they can
 * be learned from a few hundred thousand rows. All arithmetic is on integers.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS 13
#define CATEGORIES 26
#define ONE 1024 /* weights and sums are in units of 1/1024 */
#define BIAS (-ONE)
#define WEIGHT_NUMBER 700 /* the largest absolute weight of a number */
#define WEIGHT_CATEGORY 800
#define FULL_OCTAVES 5 /* the last octave with full weights; octaves are counted from 0 */
/* Half the sum of four uniform numbers of this range: a deviation of 1.8, as logistic noise. */
#define NOISE 6400
#define SCATTER 2654435761u /* a prime number larger than the size of any field */

enum { STREAM_WEIGHTS = 21, STREAM_PARTS };
enum { DRAW_NOISE, DRAW_FIELDS };

/* The number of categories in each field of Criteo's Kaggle data: 33,762,577 in all. */
static const uint32_t criteo_sizes[CATEGORIES] = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};
#define CRITEO_SUM 33762577u

struct row_store {
    struct vb_store base;
    uint64_t weights_key, part_key;
    int number_weight[NUMBERS];
    /* the number of indices and the first index of each field */
    uint32_t size[CATEGORIES], first[CATEGORIES];
    uint64_t inverse[CATEGORIES]; /* (2^64 - 1) / size, rounded down */
};

/* Returns a random number from -most to most. */
static int around(uint64_t random, int most)
{
    return (int)((random & 0xffffffu) * (uint64_t)(2 * most + 1) >> 24) - most;
}

static int octave_of(uint32_t rank)
{
    return 31 - __builtin_clz(rank + 1);
}

/* n % size by a multiplication, which is faster. The quotient is exact or too small by 1. */
static uint32_t modulo(uint64_t n, uint32_t size, uint64_t inverse)
{
    uint64_t rest = n - (uint64_t)((unsigned __int128)n * inverse >> 64) * size;

    return (uint32_t)(rest < size ? rest : rest - size);
}

/* Draws two octaves and takes the lower one, then draws a rank in that octave. */
static uint32_t draw_rank(uint64_t random, uint32_t size)
{
    uint32_t octaves = (uint32_t)octave_of(size - 1) + 1;
    uint32_t a = (uint32_t)(random & 0xfff) * octaves >> 12;
    uint32_t b = (uint32_t)(random >> 12 & 0xfff) * octaves >> 12;
    uint32_t k = a < b ? a : b, first = (1u << k) - 1;
    uint32_t rank = first + ((uint32_t)(random >> 24) & first);

    /* A rank in the last octave may be size or larger, but is less than 2 * size. */
    return rank < size ? rank : rank - size;
}

/* The weight of a category in the hidden model, without a branch on the random sign of w: a shift
 * rounds down, a division towards 0, so `up` is added if w is negative. */
static int category_weight(const struct row_store *s, int field, uint32_t rank)
{
    int w = around(vb_random(s->weights_key, (uint64_t)(field + 1) << 32 | rank), WEIGHT_CATEGORY);
    int octave = octave_of(rank), less = octave > FULL_OCTAVES ? octave - FULL_OCTAVES : 0;
    int up = (1 << less) - 1;

    return (w + (-(w < 0) & up)) >> less;
}

/* Returns the value of a number in units of 1/65536, or 0 if the number is missing. The value
 * grows about like the logarithm of a random count up to 65535, and is from 1/8 to 17/8. */
static int number_value(uint64_t random)
{
    uint32_t count = draw_rank(random, 65536);
    int octave;

    if ((random >> 60) == 0 || count == 0) /* one number in sixteen is missing, and every 0 */
        return 0;
    octave = 31 - __builtin_clz(count);
    return (octave * 65536 + (int)((count - (1u << octave)) * (65536u >> octave)) + 65536) / 8;
}

/* Makes a row. Returns the hidden model's sum for this row. */
static int make_row(const struct row_store *s, uint64_t key, struct row *row, struct row_room *room)
{
    int f, v, n = 0, sum = BIAS;
    uint32_t rank;

    for (f = 0; f < NUMBERS; f++) {
        v = number_value(vb_random(key, DRAW_FIELDS + (uint64_t)f));
        if (v == 0)
            continue;
        sum += (int)((int64_t)s->number_weight[f] * v / 65536);
        room->index[n] = (uint32_t)f;
        room->value[n++] = (float)v / 65536;
    }
    for (f = 0; f < CATEGORIES; f++) {
        rank = draw_rank(vb_random(key, DRAW_FIELDS + NUMBERS + (uint64_t)f), s->size[f]);
        sum += category_weight(s, f, rank);
        room->index[n] = s->first[f] + modulo((uint64_t)rank * SCATTER, s->size[f], s->inverse[f]);
        room->value[n++] = 1;
    }
    row->n = row->n_values = n;
    row->index = room->index;
    row->value = room->value;
    return sum;
}

/* Makes row i with its label. Returns the label that the hidden model predicts. */
static int make(const struct row_store *s, int i, struct row *row, struct row_room *room)
{
    uint64_t key = vb_random(s->part_key, (uint64_t)i);
    uint64_t random = vb_random(key, DRAW_NOISE);
    int sum = make_row(s, key, row, room), noise = 0, part;

    for (part = 0; part < 4; part++)
        noise += (int)((random >> (16 * part) & 0xffff) * NOISE >> 16) - NOISE / 2;
    row->y = sum + noise / 2 > 0;
    return sum > 0;
}

static vb_status get_row(const struct vb_store *base, int i, struct row *row, struct row_room *room)
{
    make((const struct row_store *)base, i, row, room);
    return VB_OK;
}

static uint64_t row_digest(const struct vb_store *base)
{
    const struct row_store *s = (const struct row_store *)base;
    uint64_t from[] = {s->weights_key, s->part_key, (uint64_t)base->n};

    return vb_hash64(vb_hash64(0, from, sizeof(from)), s->size, sizeof(s->size));
}

static const struct store_ops row_ops = {
    .close = vb_store_free, .row = get_row, .digest = row_digest};

bool vb_synth_planted(const struct vb_dataset *set, int n, double *accuracy_p)
{
    struct row_room room;
    struct row row;
    int i, right = 0;

    if (set->store->ops != &row_ops || n < 1 || n > set->n)
        return false;
    for (i = 0; i < n; i++)
        right += make((const struct row_store *)set->store, stored(set, (uint32_t)i), &row,
                      &room) == row.y;
    *accuracy_p = (double)right / n;
    return true;
}

/* Divides the indices in the proportions of Criteo's data. The rest is never used. */
static void cut_fields(struct row_store *s, int features)
{
    uint32_t first = NUMBERS, room = (uint32_t)features - NUMBERS - CATEGORIES;
    int f;

    for (f = 0; f < CATEGORIES; f++) {
        s->size[f] = 1 + (uint32_t)((uint64_t)criteo_sizes[f] * room / CRITEO_SUM);
        s->inverse[f] = UINT64_MAX / s->size[f];
        s->first[f] = first;
        first += s->size[f];
    }
}

vb_status vb_synth_rows(uint64_t seed, enum vb_synth_part part, int n, int features,
                        struct vb_dataset *set_p)
{
    struct row_store *s;
    int f;

    if (features < VB_SYNTH_ROW_FEATURES_MIN)
        return vb_err(VB_ERR_USAGE,
                      "%d features are too few for synthetic rows: the number must be at least %d",
                      features, VB_SYNTH_ROW_FEATURES_MIN);
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return vb_err_sys("calloc");
    s->base.ops = &row_ops;
    atomic_init(&s->base.refs, 1);
    s->base.n = n;
    s->weights_key = vb_random(seed, STREAM_WEIGHTS);
    s->part_key = vb_random(vb_random(seed, STREAM_PARTS), (uint64_t)part);
    for (f = 0; f < NUMBERS; f++)
        s->number_weight[f] = around(vb_random(s->weights_key, (uint64_t)f), WEIGHT_NUMBER);
    cut_fields(s, features);
    *set_p = (struct vb_dataset){.kind = VB_DATA_ROWS,
                                 .n = n,
                                 .features = features,
                                 .classes = 2,
                                 .row_max = NUMBERS + CATEGORIES,
                                 .store = &s->base};
    return VB_OK;
}
