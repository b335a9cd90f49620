/* SPDX-License-Identifier: MIT
 *
 * Sums of sparse gradients of one rank. Two lists with ascending keys are merged in one pass.
 */
#include "engine/train/trainer.h"

#include <string.h>

vb_status vb_list_open(struct vb_list *list, size_t room)
{
    vb_status st = vb_mem_map_private(4 * room * sizeof(uint32_t), &list->mem);

    if (st != VB_OK)
        return st;
    list->keys = list->mem.ptr;
    list->spare_keys = list->keys + room;
    list->values = (float *)(void *)(list->spare_keys + room);
    list->spare_values = list->values + room;
    return VB_OK;
}

void vb_list_close(struct vb_list *list)
{
    vb_mem_unmap(&list->mem);
}

static void swap_spare(struct vb_list *list)
{
    uint32_t *keys = list->keys;
    float *values = list->values;

    list->keys = list->spare_keys;
    list->values = list->spare_values;
    list->spare_keys = keys;
    list->spare_values = values;
}

static size_t copy(struct vb_list *list, size_t at, const uint32_t *keys, const float *values,
                   size_t n)
{
    if (n > 0) {
        memcpy(list->spare_keys + at, keys, n * sizeof(*keys));
        memcpy(list->spare_values + at, values, n * sizeof(*values));
    }
    return at + n;
}

size_t vb_list_add(struct vb_list *list, size_t n, const uint32_t *keys, const float *values,
                   size_t m)
{
    size_t i = 0, k = 0, at = 0;

    while (i < n && k < m) {
        bool own = list->keys[i] <= keys[k], other = keys[k] <= list->keys[i];

        list->spare_keys[at] = own ? list->keys[i] : keys[k];
        list->spare_values[at++] = own && other ? list->values[i] + values[k]
                                   : own        ? list->values[i]
                                                : values[k];
        i += own;
        k += other;
    }
    at = copy(list, at, list->keys + i, list->values + i, n - i);
    at = copy(list, at, keys + k, values + k, m - k);
    swap_spare(list);
    return at;
}
