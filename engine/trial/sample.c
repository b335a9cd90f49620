/* SPDX-License-Identifier: MIT
 *
 * Takes a sample of the training data, as sparse rows in memory, and measures it: how long its rows
 * are, and how large the values of each feature are. The recipe of a linear model depends on both
 * (train_recipe.c), and trials train on the sample (trial.c).
 *
 * The samples are taken at equal distances, so that the sample depends on the data alone. Images
 * become rows of the pixels that are not 0.
 */
#include "engine/trial/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 20000
#define ENTRIES_MAX 3000000
#define FEATURES_MAX 20000000 /* the sizes of more features are not measured */
#define AT_ONCE 200

/* ---- reading --------------------------------------------------------------------------------- */

static void choose(const struct vb_dataset *set, int first, int n, int of, uint32_t *which)
{
    int i;

    for (i = 0; i < n; i++)
        which[i] = (uint32_t)((int64_t)(first + i) * set->n / of);
}

static void add_image(struct vb_sample *s, const float *x, int features)
{
    int64_t at = s->at[s->n];
    int p;

    for (p = 0; p < features; p++) {
        if (x[p] == 0)
            continue;
        s->index[at] = (uint32_t)p;
        s->value[at++] = x[p];
    }
    s->at[++s->n] = at;
}

static void read_images(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                        struct vb_sample *s)
{
    int i;

    vb_dataset_pick(set, which, n, x, s->y + s->n);
    for (i = 0; i < n; i++)
        add_image(s, x + (size_t)i * (size_t)set->features, set->features);
}

static vb_status read_rows(const struct vb_dataset *set, const uint32_t *which, int n,
                           struct vb_sample *s)
{
    int64_t at[AT_ONCE + 1], begin = s->at[s->n];
    uint8_t y[AT_ONCE];
    struct vb_rows rows = {.at = at,
                           .index = s->index + begin,
                           .value = s->value + begin,
                           .y = y,
                           .room = (int64_t)n * (set->row_max > 0 ? set->row_max : 1)};
    vb_status st = vb_dataset_rows(set, which, n, &rows);
    int i;

    for (i = 0; i < n && st == VB_OK; i++) {
        s->y[s->n] = y[i];
        s->at[++s->n] = begin + at[i + 1];
    }
    return st;
}

static vb_status read_all(const struct vb_dataset *set, int n, int64_t room, struct vb_sample *s)
{
    bool images = set->kind == VB_DATA_IMAGES;
    int longest = images ? set->features : set->row_max > 0 ? set->row_max : 1, part, i;
    float *x = images ? malloc(AT_ONCE * (size_t)set->features * sizeof(*x)) : NULL;
    uint32_t which[AT_ONCE];
    vb_status st = VB_OK;

    if (images && x == NULL)
        return vb_err_sys("malloc");
    for (i = 0; i < n && st == VB_OK; i += part) {
        part = n - i < AT_ONCE ? n - i : AT_ONCE;
        if (s->at[s->n] + (int64_t)part * longest > room)
            break; /* the sample is large enough */
        choose(set, i, part, n, which);
        if (images)
            read_images(set, which, part, x, s);
        else
            st = read_rows(set, which, part, s);
    }
    free(x);
    return st;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Sets the size and the share of each feature. size holds the sum of squares first. */
static void measure(struct vb_sample *s)
{
    int64_t e, end = s->at[s->n];
    int f;

    s->least = s->most = 1;
    for (e = 0; s->size != NULL && e < end; e++) {
        s->size[s->index[e]] += (float)((double)s->value[e] * (double)s->value[e]);
        s->share[s->index[e]] += s->value[e] != 0 ? 1.f : 0.f;
    }
    for (f = 0; s->size != NULL && f < s->features; f++) {
        double size = s->share[f] > 0 ? sqrt((double)(s->size[f] / s->share[f])) : 0;

        if (!(size > 0) || !isfinite(size)) {
            size = 1; /* not seen in the sample, or only zeros */
        } else {
            s->least = fmin(s->least, size);
            s->most = fmax(s->most, size);
        }
        s->size[f] = (float)size;
        s->share[f] = fmaxf(s->share[f], 1) / (float)s->n;
    }
    for (e = 0; e < end; e++)
        s->square += (double)s->value[e] * (double)s->value[e];
    s->square = s->square / (s->n > 0 ? s->n : 1) + 1; /* 1: the bias */
}

/* Images: measures how large a part of the squares is that of the mean image. */
static vb_status measure_mean(struct vb_sample *s)
{
    double *mean = calloc((size_t)s->features, sizeof(*mean)), sum = 0;
    int64_t e;
    int f;

    if (mean == NULL)
        return vb_err_sys("calloc");
    for (e = 0; e < s->at[s->n]; e++)
        mean[s->index[e]] += (double)s->value[e] / s->n;
    for (f = 0; f < s->features; f++)
        sum += mean[f] * mean[f];
    free(mean);
    s->in_mean = s->square > 1 ? sum / (s->square - 1) : 0;
    return VB_OK;
}

vb_status vb_sample_take(const struct vb_dataset *set, struct vb_sample *sample_p)
{
    bool images = set->kind == VB_DATA_IMAGES;
    int longest = images ? set->features : set->row_max > 0 ? set->row_max : 1;
    int n = set->n < ROWS_MAX ? set->n : ROWS_MAX;
    int64_t room = (int64_t)n * longest < ENTRIES_MAX ? (int64_t)n * longest : ENTRIES_MAX;
    struct vb_sample s = {.features = set->features, .outputs = images ? set->classes : 1};
    vb_status st = VB_OK;

    if (room < (int64_t)AT_ONCE * longest)
        room = (int64_t)AT_ONCE * longest;
    s.at = calloc((size_t)n + 1, sizeof(*s.at));
    s.index = malloc((size_t)room * sizeof(*s.index));
    s.value = malloc((size_t)room * sizeof(*s.value));
    s.y = malloc((size_t)(n > 0 ? n : 1) * sizeof(*s.y));
    if (!images && set->features <= FEATURES_MAX) {
        s.size = calloc((size_t)set->features + 1, sizeof(*s.size));
        s.share = calloc((size_t)set->features + 1, sizeof(*s.share));
    }
    if (s.at == NULL || s.index == NULL || s.value == NULL || s.y == NULL)
        st = vb_err(VB_ERR_NO_MEMORY, "no memory for a sample of %d rows", n);
    if (st == VB_OK)
        st = read_all(set, n, room, &s);
    if (st != VB_OK) {
        vb_sample_free(&s);
        return st;
    }
    if (s.share == NULL || s.size == NULL) {
        free(s.size);
        free(s.share);
        s.size = s.share = NULL;
    }
    measure(&s);
    st = images ? measure_mean(&s) : VB_OK;
    if (st == VB_OK)
        *sample_p = s;
    else
        vb_sample_free(&s);
    return st;
}

/* ---- fewer features -------------------------------------------------------------------------- */

/* Which features the sample has, a bit each, and how many there are before each word of bits. */
struct numbers {
    uint64_t *has;
    uint32_t *before;
};

static uint32_t number_of(const struct numbers *n, uint32_t f)
{
    uint64_t lower = (UINT64_C(1) << f % 64) - 1;

    return n->before[f / 64] + (uint32_t)__builtin_popcountll(n->has[f / 64] & lower);
}

/* Returns the number of features that the sample has. */
static int find_features(const struct vb_sample *s, struct numbers *n)
{
    size_t words = (size_t)s->features / 64 + 1, i;
    uint32_t all = 0;
    int64_t e;

    for (e = 0; e < s->at[s->n]; e++)
        n->has[s->index[e] / 64] |= UINT64_C(1) << s->index[e] % 64;
    for (i = 0; i < words; i++) {
        n->before[i] = all;
        all += (uint32_t)__builtin_popcountll(n->has[i]);
    }
    return (int)all;
}

static vb_status allocate_compact(const struct vb_sample *s, struct numbers *n, struct vb_sample *c)
{
    size_t words = (size_t)s->features / 64 + 1, most = (size_t)s->at[s->n] + 1;
    bool sizes = s->size != NULL;

    n->has = calloc(words, sizeof(*n->has));
    n->before = malloc(words * sizeof(*n->before));
    c->index = malloc(most * sizeof(*c->index));
    c->size = sizes ? malloc(most * sizeof(*c->size)) : NULL;
    c->share = sizes ? malloc(most * sizeof(*c->share)) : NULL;
    if (n->has == NULL || n->before == NULL || c->index == NULL ||
        (sizes && (c->size == NULL || c->share == NULL)))
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a sample of %d rows", s->n);
    return VB_OK;
}

vb_status vb_sample_compact(const struct vb_sample *s, struct vb_sample *compact_p)
{
    struct vb_sample c = *s; /* borrows the arrays of rows */
    struct numbers n = {0};
    vb_status st = allocate_compact(s, &n, &c);
    int64_t e;

    if (st == VB_OK)
        c.features = find_features(s, &n);
    for (e = 0; st == VB_OK && e < s->at[s->n]; e++) {
        c.index[e] = number_of(&n, s->index[e]);
        if (c.size != NULL) {
            c.size[c.index[e]] = s->size[s->index[e]];
            c.share[c.index[e]] = s->share[s->index[e]];
        }
    }
    free(n.has);
    free(n.before);
    if (st == VB_OK)
        *compact_p = c;
    else
        vb_sample_free_compact(&c);
    return st;
}

void vb_sample_free_compact(struct vb_sample *compact)
{
    free(compact->index);
    free(compact->size);
    free(compact->share);
    memset(compact, 0, sizeof(*compact));
}

/* ---- the end --------------------------------------------------------------------------------- */

void vb_sample_free_rows(struct vb_sample *sample)
{
    free(sample->at);
    free(sample->index);
    free(sample->value);
    free(sample->y);
    sample->at = NULL;
    sample->index = NULL;
    sample->value = NULL;
    sample->y = NULL;
}

void vb_sample_free(struct vb_sample *sample)
{
    vb_sample_free_rows(sample);
    free(sample->size);
    free(sample->share);
    memset(sample, 0, sizeof(*sample));
}
