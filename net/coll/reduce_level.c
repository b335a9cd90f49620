/* SPDX-License-Identifier: MIT
 *
 * Calls the functions of reduce.c that are compiled for the best instructions of this CPU.
 */
#include "net/coll/reduce.h"

static const struct vb_reduce_level *const levels[] = {
    [VB_CPU_BASE] = &vb_reduce_level,
#if defined(__x86_64__)
    [VB_CPU_V3] = &vb_reduce_level_v3,
    [VB_CPU_V4] = &vb_reduce_level_v4,
#endif
};

void vb_coll_sum(float *dst, float *const *also, int n_also, const struct source *s, int n_s,
                 size_t n_elems, const struct finish *finish)
{
    levels[vb_cpu_level()]->sum(dst, also, n_also, s, n_s, n_elems, finish);
}

void vb_coll_narrow(uint16_t *dst, const float *src, size_t n_elems)
{
    levels[vb_cpu_level()]->narrow(dst, src, n_elems);
}

void vb_coll_widen(float *dst, const uint16_t *src, size_t n_elems)
{
    levels[vb_cpu_level()]->widen(dst, src, n_elems);
}
