/* SPDX-License-Identifier: MIT
 *
 * Makes the rows for sparse_lr.c: this file draws them, or data/ reads them. The rows are on huge
 * pages, because they are read in shuffled order.
 */
#include "bench/loops/sparse_rows.h"
#include "data/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 1
#define PIECE 1000 /* number of rows read at a time */

static uint64_t mix(uint64_t *state)
{
    return vb_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static void shuffle(uint32_t *order, size_t n, uint64_t *state)
{
    size_t i, j;
    uint32_t keep;

    for (i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (i = n; i > 1; i--) {
        j = mix(state) % i;
        keep = order[i - 1];
        order[i - 1] = order[j];
        order[j] = keep;
    }
}

static vb_status room(size_t n_rows, size_t nnz, struct lr_data *d_p)
{
    const size_t lens[] = {(n_rows + 1) * sizeof(*d_p->offset), nnz * sizeof(*d_p->index),
                           nnz * sizeof(*d_p->value), n_rows, n_rows * sizeof(*d_p->order)};
    struct vb_mem mem[VB_COUNT(lens)];
    vb_status st = VB_OK;
    size_t i;

    for (i = 0; i < VB_COUNT(lens) && st == VB_OK; i++)
        st = vb_mem_map_private(lens[i] + 1, &mem[i]);
    if (st != VB_OK)
        return st;
    *d_p = (struct lr_data){
        .n_rows = n_rows,
        .nnz = nnz,
        .offset = mem[0].ptr,
        .index = mem[1].ptr,
        .value = mem[2].ptr,
        .label = mem[3].ptr,
        .order = mem[4].ptr,
    };
    return VB_OK;
}

/* A few features of a field are in most rows, most features in few. Feature r of a field is drawn
 * as span^(u^power), u uniform, and scattered over the field, as by a hash function. */
struct skew {
    const char *name;
    uint32_t span;
    int power;
};

static const struct skew skews[] = {{"head", 1000, 2}, {"tail", LR_FEATURES / LR_FIELDS, 4}};

static uint32_t draw(uint64_t *state, size_t field, const struct skew *skew)
{
    const uint64_t width = LR_FEATURES / LR_FIELDS;
    double u = (double)(mix(state) >> 11) * 0x1p-53;
    double exponent = skew->power == 2 ? u * u : u * u * u * u;
    uint64_t rank = (uint64_t)pow((double)skew->span, exponent) - 1;

    return (uint32_t)(field * width + rank * UINT64_C(611953) % width);
}

static vb_status draw_rows(const struct skew *skew, size_t n_rows, struct lr_data *data_p)
{
    struct lr_data d;
    uint64_t state = SEED;
    vb_status st = room(n_rows, n_rows * LR_FIELDS, &d);
    size_t i;

    if (st != VB_OK)
        return st;
    d.even = true;
    for (i = 0; i < d.nnz; i++) {
        d.index[i] = draw(&state, i % LR_FIELDS, skew);
        d.value[i] = (float)(mix(&state) >> 40) * 0x1p-24f;
    }
    for (i = 0; i < n_rows; i++)
        d.label[i] = mix(&state) % 4 == 0;
    for (i = 0; i <= n_rows; i++)
        d.offset[i] = i * LR_FIELDS;
    shuffle(d.order, n_rows, &state);
    *data_p = d;
    return VB_OK;
}

/* Appends n rows of the data set, beginning with row first. */
static vb_status read_piece(const struct vb_dataset *set, size_t first, int n, int64_t *at,
                            struct lr_data *d)
{
    struct vb_rows rows = {
        .at = at,
        .index = d->index + d->nnz,
        .value = d->value + d->nnz,
        .y = d->label + first,
        .room = (int64_t)n * set->row_max,
    };
    uint32_t which[PIECE];
    vb_status st;
    int i;

    for (i = 0; i < n; i++)
        which[i] = (uint32_t)(first + (size_t)i);
    st = vb_dataset_rows(set, which, n, &rows);
    if (st != VB_OK)
        return st;
    for (i = 0; i <= n; i++)
        d->offset[first + (size_t)i] = d->nnz + (uint64_t)at[i];
    d->nnz += (size_t)at[n];
    return VB_OK;
}

static vb_status read_all(const struct vb_dataset *set, size_t n_rows, struct lr_data *data_p)
{
    int64_t at[PIECE + 1];
    uint64_t state = SEED;
    struct lr_data d;
    vb_status st = room(n_rows, n_rows * (size_t)set->row_max, &d);
    size_t i;
    int n;

    d.nnz = 0;
    for (i = 0; i < n_rows && st == VB_OK; i += (size_t)n) {
        n = n_rows - i < PIECE ? (int)(n_rows - i) : PIECE;
        st = read_piece(set, i, n, at, &d);
    }
    if (st != VB_OK)
        return st;
    shuffle(d.order, n_rows, &state);
    *data_p = d;
    return VB_OK;
}

static vb_status read_rows(const char *text, size_t n_rows, struct lr_data *data_p)
{
    char why[VB_OPTS_WHY];
    struct vb_data_spec spec;
    struct vb_dataset set;
    vb_status st = vb_data_spec_parse(text, &spec, why);

    if (st != VB_OK)
        return vb_err(st, "%s", why);
    st = vb_data_open(&spec, SEED, VB_SYNTH_TRAIN, &set);
    if (st != VB_OK)
        return st;
    if (set.kind != VB_DATA_ROWS || set.features > (int)LR_FEATURES || (size_t)set.n < n_rows)
        st = vb_err(VB_ERR_INPUT, "%s: expected at least %zu sparse rows of at most %u features",
                    text, n_rows, LR_FEATURES);
    else
        st = read_all(&set, n_rows, data_p);
    vb_dataset_destroy(&set);
    return st;
}

vb_status lr_rows(const char *data, size_t n_rows, struct lr_data *data_p)
{
    size_t i;

    for (i = 0; i < VB_COUNT(skews); i++)
        if (strcmp(data, skews[i].name) == 0)
            return draw_rows(&skews[i], n_rows, data_p);
    return read_rows(data, n_rows, data_p);
}

static bool put(FILE *f, const void *from, size_t size, size_t n)
{
    return fwrite(from, size, n, f) == n;
}

vb_status lr_rows_write(const struct lr_data *d, const char *path)
{
    const uint64_t sizes[2] = {d->n_rows, d->nnz};
    FILE *f = fopen(path, "wb");
    bool fine;

    if (f == NULL)
        return vb_err_sys("%s", path);
    fine = put(f, sizes, sizeof(*sizes), 2) &&
           put(f, d->offset, sizeof(*d->offset), d->n_rows + 1) &&
           put(f, d->index, sizeof(*d->index), d->nnz) &&
           put(f, d->value, sizeof(*d->value), d->nnz) && put(f, d->label, 1, d->n_rows);
    if (fclose(f) != 0 || !fine)
        return vb_err_sys("%s", path);
    return VB_OK;
}

vb_status lr_rows_touched(const struct lr_data *d, size_t n, size_t *touched_p)
{
    uint8_t *seen = calloc(LR_FEATURES, 1);
    size_t i, touched = 0;
    uint64_t j;

    if (seen == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < n; i++)
        for (j = d->offset[d->order[i]]; j < d->offset[d->order[i] + 1]; j++) {
            touched += !seen[d->index[j]];
            seen[d->index[j]] = 1;
        }
    free(seen);
    *touched_p = touched;
    return VB_OK;
}
