/* SPDX-License-Identifier: MIT
 *
 * Copies samples of a data set into a batch, and splits a data set.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

#define FETCH_AHEAD 8 /* number of images to prefetch in advance */
#define FETCH_BYTES ((size_t)1024)

void vb_store_free(struct vb_store *store)
{
    free(store->pixels);
    free(store->y);
    free(store);
}

static uint64_t images_digest(const struct vb_store *s)
{
    uint64_t h = vb_hash64(0, s->y, (size_t)s->n * sizeof(*s->y));

    return vb_hash64(h, s->pixels, (size_t)s->n * s->image_bytes);
}

static const struct store_ops images_ops = {.close = vb_store_free, .digest = images_digest};

vb_status vb_images_create(int n, int c, int h, int w, int classes, struct vb_dataset *set_p)
{
    size_t features = (size_t)c * (size_t)h * (size_t)w;
    struct vb_store *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return vb_err_sys("calloc");
    store->ops = &images_ops;
    atomic_init(&store->refs, 1);
    store->n = n;
    store->image_bytes = features;
    store->pixels = calloc((size_t)n, features);
    store->y = calloc((size_t)n, sizeof(*store->y));
    if (store->pixels == NULL || store->y == NULL) {
        vb_store_free(store);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %d images of %zu bytes", n, features);
    }
    *set_p = (struct vb_dataset){.kind = VB_DATA_IMAGES,
                                 .n = n,
                                 .features = (int)features,
                                 .classes = classes,
                                 .c = c,
                                 .h = h,
                                 .w = w,
                                 .scale = 1.0f / 255,
                                 .store = store};
    return VB_OK;
}

static void view_free(struct vb_store *store)
{
    free(store);
}

static const struct store_ops view_ops = {.close = view_free, .digest = images_digest};

vb_status vb_images_view(const uint8_t *pixels, const uint16_t *y, int n, size_t image_bytes,
                         struct vb_store **store_p)
{
    struct vb_store *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return vb_err_sys("calloc");
    store->ops = &view_ops;
    atomic_init(&store->refs, 1);
    store->n = n;
    store->image_bytes = image_bytes;
    store->pixels = (uint8_t *)pixels;
    store->y = (uint16_t *)y;
    *store_p = store;
    return VB_OK;
}

void vb_dataset_destroy(struct vb_dataset *set)
{
    if (set->store != NULL && atomic_fetch_sub(&set->store->refs, 1) == 1)
        set->store->ops->close(set->store);
    if (!set->borrowed)
        free(set->which);
    memset(set, 0, sizeof(*set));
}

/* pixels may be the last quarter of x. Compilers cannot fuse a subtraction and then a
 * multiplication, so all produce the same bits. */
static void to_floats(const uint8_t *pixels, int n, float mean, float scale, float *x)
{
    int i;

    for (i = 0; i < n; i++)
        x[i] = ((float)pixels[i] - mean) * scale;
}

/* Images are read in random order, and end before the CPU's own prefetcher starts. */
static void fetch_image(const struct vb_store *store, int s, size_t row)
{
    size_t at, end = row < FETCH_BYTES ? row : FETCH_BYTES;

    __builtin_prefetch(store->y + s);
    for (at = 0; at < end; at += VB_CACHE_LINE)
        __builtin_prefetch(store->pixels + (size_t)s * row + at);
}

void vb_dataset_pick(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                     uint16_t *y)
{
    const struct vb_store *store = set->store;
    size_t row = (size_t)set->features;
    const uint8_t *pixels;
    uint8_t *made;
    int i, s;

    for (i = 0; i < n; i++) {
        s = stored(set, which[i]);
        if (store->ops->image != NULL) {
            /* The pixels are made in the last quarter of the floats' memory, because an image is
             * too large for the stack. to_floats() reads each pixel before it writes there. */
            made = x != NULL ? (uint8_t *)(x + (size_t)i * row) + 3 * row : NULL;
            y[i] = (uint16_t)store->ops->image(store, s, made);
            pixels = made;
        } else {
            y[i] = store->y[s];
            pixels = store->pixels + (size_t)s * row;
            if (i + FETCH_AHEAD < n)
                fetch_image(store, stored(set, which[i + FETCH_AHEAD]), x != NULL ? row : 0);
        }
        if (x != NULL)
            to_floats(pixels, set->features, set->mean, set->scale, x + (size_t)i * row);
    }
}

int vb_dataset_image(const struct vb_dataset *set, int i, uint8_t *pixels)
{
    const struct vb_store *store = set->store;
    size_t row = (size_t)set->features;
    int s = stored(set, (uint32_t)i);

    if (store->ops->image != NULL)
        return store->ops->image(store, s, pixels);
    memcpy(pixels, store->pixels + (size_t)s * row, row);
    return store->y[s];
}

vb_status vb_dataset_row(const struct vb_dataset *set, int i, struct row *row,
                         struct row_room *room)
{
    return set->store->ops->row(set->store, stored(set, (uint32_t)i), row, room);
}

static bool all_below(const uint32_t *index, int64_t n, int features)
{
    uint32_t last = (uint32_t)features - 1, wrong = 0; /* last < 2^31 */
    int64_t e;

    for (e = 0; e < n; e++)
        wrong |= index[e] | (last - index[e]); /* bit 31: the index is above last */
    return wrong >> 31 == 0;
}

vb_status vb_dataset_check_row(const struct vb_dataset *set, int i, const uint32_t *index, int n)
{
    if (set->store->ops->changed == NULL || all_below(index, n, set->features))
        return VB_OK;
    return set->store->ops->changed(set->store, stored(set, (uint32_t)i));
}

/* Checks all rows of a batch at once, because that is faster. */
static vb_status check_rows(const struct vb_dataset *set, const struct picks *p,
                            const struct vb_rows *rows)
{
    vb_status st = VB_OK;
    int i;

    if (set->store->ops->changed == NULL || all_below(rows->index, rows->at[p->n], set->features))
        return VB_OK;
    for (i = 0; i < p->n && st == VB_OK; i++)
        st = vb_dataset_check_row(set, (int)p->which[i], rows->index + rows->at[i],
                                  (int)(rows->at[i + 1] - rows->at[i]));
    return st;
}

static const uint32_t *nth(const struct picks *p, int i)
{
    if (i < p->n)
        return &p->which[i];
    return i - p->n < p->n_behind ? &p->behind[i - p->n] : NULL;
}

/* Rows are read in random order, so they are prefetched in three stages: the row's number in the
 * store, its position, its contents. Each stage reads what the stage before has prefetched. */
void vb_dataset_soon(const struct vb_dataset *set, const struct picks *p, int i)
{
    void (*soon)(const struct vb_store *, int, bool) = set->store->ops->soon;
    const uint32_t *which;

    if (soon == NULL)
        return;
    which = nth(p, i + 3 * ROWS_AHEAD);
    if (which != NULL && set->which != NULL)
        __builtin_prefetch(&set->which[*which]);
    which = nth(p, i + 2 * ROWS_AHEAD);
    if (which != NULL)
        soon(set->store, stored(set, *which), false);
    which = nth(p, i + ROWS_AHEAD);
    if (which != NULL)
        soon(set->store, stored(set, *which), true);
}

static void copy_row(const struct row *row, uint32_t *index, float *value)
{
    int i;

    if (row->n > 0)
        memcpy(index, row->index, (size_t)row->n * sizeof(*index));
    if (row->n_values > 0)
        memcpy(value, row->value, (size_t)row->n_values * sizeof(*value));
    for (i = row->n_values; i < row->n; i++)
        value[i] = 1;
}

vb_status vb_dataset_pick_rows(const struct vb_dataset *set, const struct picks *p,
                               struct vb_rows *rows)
{
    struct row_room room;
    struct row row;
    int64_t end = 0;
    vb_status st;
    int i;

    rows->n = 0;
    rows->at[0] = 0;
    for (i = 0; i < p->n; i++) {
        if (i >= p->asked || i + ROWS_BEHIND >= p->n)
            vb_dataset_soon(set, p, i);
        st = vb_dataset_row(set, (int)p->which[i], &row, &room);
        if (st != VB_OK)
            return st;
        if (row.n > rows->room - end)
            return vb_err(VB_ERR_NO_MEMORY,
                          "the %d rows of a batch do not fit into a buffer of %lld entries", p->n,
                          (long long)rows->room);
        copy_row(&row, rows->index + end, rows->value + end);
        end += row.n;
        rows->at[i + 1] = end;
        rows->y[i] = row.y;
    }
    st = check_rows(set, p, rows);
    rows->n = st == VB_OK ? p->n : 0;
    return st;
}

vb_status vb_dataset_rows(const struct vb_dataset *set, const uint32_t *which, int n,
                          struct vb_rows *rows)
{
    struct picks p = {.which = which, .n = n};

    return vb_dataset_pick_rows(set, &p, rows);
}

void vb_dataset_part(const struct vb_dataset *set, uint32_t *which, int n,
                     struct vb_dataset *part_p)
{
    struct vb_dataset part = *set;

    atomic_fetch_add(&set->store->refs, 1);
    part.which = which;
    part.borrowed = false;
    part.n = n;
    *part_p = part;
}

/* Returns true if a sample belongs to the test share. Each sample has the same probability. */
static bool for_testing(uint64_t key, int i, double share)
{
    return (double)(vb_random(key, (uint64_t)i) >> 11) * 0x1p-53 < share;
}

vb_status vb_dataset_split(const struct vb_dataset *set, double test_share, uint64_t seed,
                           struct vb_dataset *train_p, struct vb_dataset *test_p)
{
    uint64_t key = vb_random(seed, 0x73706c6974u); /* the letters of "split" */
    uint32_t *train, *test;
    int i, n_train = 0, n_test = 0;

    for (i = 0; i < set->n; i++)
        n_test += for_testing(key, i, test_share);
    if (n_test == 0 || n_test == set->n)
        return vb_err(VB_ERR_USAGE,
                      "a test split of %g of %d samples leaves no sample for %s; give --test-data, "
                      "or train on all samples with --test-split 0",
                      test_share, set->n, n_test == 0 ? "testing" : "training");
    train = malloc((size_t)(set->n - n_test) * sizeof(*train));
    test = malloc((size_t)n_test * sizeof(*test));
    if (train == NULL || test == NULL) {
        free(train);
        free(test);
        return vb_err_sys("malloc");
    }
    n_test = 0;
    for (i = 0; i < set->n; i++) {
        if (for_testing(key, i, test_share))
            test[n_test++] = (uint32_t)stored(set, (uint32_t)i);
        else
            train[n_train++] = (uint32_t)stored(set, (uint32_t)i);
    }
    vb_dataset_part(set, train, n_train, train_p);
    vb_dataset_part(set, test, n_test, test_p);
    return VB_OK;
}
