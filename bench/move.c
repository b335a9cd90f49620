/* SPDX-License-Identifier: MIT
 *
 * Puts and gets that wait until there is room. Data is read from the start of a window and written
 * at an offset.
 */
#include "bench/bench_priv.h"

vb_status bench_put(struct vb_group *group, struct vb_window *win, int to, size_t dst_offset,
                    size_t len, uint32_t note, struct vb_op *op)
{
    vb_status st;

    while ((st = vb_put(win, to, 0, dst_offset, len, note, op)) == VB_AGAIN) {
        st = vb_progress(group);
        if (st != VB_OK)
            return st;
    }
    return st;
}

vb_status bench_get(struct vb_group *group, struct vb_window *win, int from, size_t dst_offset,
                    size_t len, struct vb_op *op)
{
    vb_status st;

    while ((st = vb_get(win, from, dst_offset, 0, len, op)) == VB_AGAIN) {
        st = vb_progress(group);
        if (st != VB_OK)
            return st;
    }
    return st;
}
