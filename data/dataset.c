/* SPDX-License-Identifier: MIT
 *
 * Data sets in memory, and the order in which their samples are used.
 */
#include "data/data.h"

#include <string.h>

vb_status vb_dataset_create(int n, int features, int classes, struct vb_dataset *set_p)
{
    size_t x_bytes = (size_t)n * (size_t)features * sizeof(float);
    struct vb_dataset set = {.n = n, .features = features, .classes = classes};
    vb_status st;

    st = vb_mem_map_private(x_bytes + (size_t)n, &set.mem);
    if (st != VB_OK)
        return st;
    set.x = set.mem.ptr;
    set.y = (uint8_t *)set.mem.ptr + x_bytes;
    *set_p = set;
    return VB_OK;
}

void vb_dataset_destroy(struct vb_dataset *set)
{
    vb_mem_unmap(&set->mem);
    memset(set, 0, sizeof(*set));
}

void vb_dataset_pick(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                     uint8_t *y)
{
    size_t row = (size_t)set->features;
    int i;

    for (i = 0; i < n; i++) {
        memcpy(x + (size_t)i * row, set->x + which[i] * row, row * sizeof(*x));
        y[i] = set->y[which[i]];
    }
}

/* Unlike a fixed number this leaves enough of a small set, and suffices for a large one. */
static int test_samples(int n_train)
{
    return n_train >= 5 ? n_train / 5 : 1;
}

vb_status vb_data_spec_parse(const char *text, struct vb_data_spec *spec_p, char why[VB_OPTS_WHY])
{
    static const char name[] = "synth";
    size_t len = strcspn(text, ":");
    int64_t n = VB_DATA_SYNTH_DEFAULT;

    if (len != sizeof(name) - 1 || strncmp(text, name, len) != 0) {
        snprintf(why, VB_OPTS_WHY, "%.64s: there is no such data; known is synth[:N]", text);
        return VB_ERR_USAGE;
    }
    if (text[len] == ':' && (!vb_parse_int(text + len + 1, &n) || n < 1 || n > VB_DATA_SYNTH_MAX)) {
        snprintf(why, VB_OPTS_WHY, "%.64s: N must be a whole number from 1 to %d", text,
                 VB_DATA_SYNTH_MAX);
        return VB_ERR_USAGE;
    }
    spec_p->n_train = (int)n;
    spec_p->n_test = test_samples((int)n);
    return VB_OK;
}

/* ---- order ----------------------------------------------------------------------------------- */

void vb_order_fill(uint64_t seed, int64_t epoch, int n, uint32_t *order)
{
    uint64_t key = vb_random(seed, (uint64_t)epoch);
    uint32_t other;
    int i, j;

    for (i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    /* The remainder favours small numbers by 1 in 2^32 at worst, which nobody can see. */
    for (i = n - 1; i > 0; i--) {
        j = (int)(vb_random(key, (uint64_t)i) % (uint64_t)(i + 1));
        other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

void vb_share(int n, int rank, int world, int *first_p, int *n_p)
{
    int first = (int)((int64_t)n * rank / world);

    *n_p = (int)((int64_t)n * (rank + 1) / world) - first;
    *first_p = first;
}
