/* SPDX-License-Identifier: MIT
 *
 * Collects facts about a data set by reading every sample.
 */
#include "data/data_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void look_at(struct vb_data_facts *f, double value)
{
    f->least = value < f->least ? value : f->least;
    f->most = value > f->most ? value : f->most;
    f->nonzeros += value != 0;
}

static vb_status look_at_images(const struct vb_dataset *set, struct vb_data_facts *f)
{
    uint8_t *pixels = malloc((size_t)set->features);
    int i, p;

    if (pixels == NULL)
        return vb_err_sys("malloc");
    for (i = 0; i < set->n; i++) {
        f->count[vb_dataset_image(set, i, pixels)]++;
        for (p = 0; p < set->features; p++)
            look_at(f, pixels[p]);
    }
    free(pixels);
    f->row_min = f->row_max = set->features;
    return VB_OK;
}

static vb_status look_at_rows(const struct vb_dataset *set, struct vb_data_facts *f)
{
    struct row_room room;
    struct row row;
    vb_status st;
    int i, e;

    f->row_min = INT32_MAX;
    for (i = 0; i < set->n; i++) {
        st = vb_dataset_row(set, i, &row, &room);
        if (st != VB_OK)
            return st;
        f->count[row.y]++;
        f->row_min = row.n < f->row_min ? row.n : f->row_min;
        f->row_max = row.n > f->row_max ? row.n : f->row_max;
        for (e = 0; e < row.n; e++)
            look_at(f, row_value(&row, e));
    }
    return VB_OK;
}

vb_status vb_data_look(const struct vb_dataset *set, struct vb_data_facts *facts_p)
{
    struct vb_data_facts f = {.least = INFINITY, .most = -INFINITY};
    vb_status st;

    f.count = calloc((size_t)set->classes, sizeof(*f.count));
    if (f.count == NULL)
        return vb_err_sys("calloc");
    st = set->kind == VB_DATA_IMAGES ? look_at_images(set, &f) : look_at_rows(set, &f);
    if (st != VB_OK) {
        vb_data_facts_fini(&f);
        return st;
    }
    *facts_p = f;
    return VB_OK;
}

void vb_data_facts_fini(struct vb_data_facts *facts)
{
    free(facts->count);
    memset(facts, 0, sizeof(*facts));
}
