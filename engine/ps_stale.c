/* SPDX-License-Identifier: MIT
 *
 * How old the parameters were that a gradient was computed from: counted in gradients of others
 * that were applied in between.
 */
#include "engine/ps_priv.h"

void ps_stale_add(struct vb_stale *stale, uint64_t by)
{
    int b = 0;

    stale->n++;
    stale->sum += by;
    stale->max = by > stale->max ? by : stale->max;
    for (; by > 0 && b < VB_STALE_BUCKETS - 1; by >>= 1)
        b++;
    stale->bucket[b]++;
}
