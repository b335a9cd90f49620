/* SPDX-License-Identifier: MIT
 *
 * The library in use: asks where the threads of four ranks would go on this machine.
 *
 *   cc where.c $(pkg-config --cflags --libs verbena) -o where && ./where
 */
#include "topo/topo.h"

int main(void)
{
    struct vb_topo_source this_machine = {0};
    struct vb_plan_want want = {.ranks = 4, .progress = true};
    struct vb_topo *topo;
    struct vb_plan *plan;
    int i, failed = 1;

    if (vb_topo_open(&this_machine, &topo) != VB_OK)
        return 1;
    if (vb_plan_create(topo, &want, &plan) == VB_OK) {
        for (i = 0; i < plan->n_ranks; i++)
            printf("rank %d: %d threads on %d cores, from core %d\n", i, plan->threads,
                   plan->ranks[i].cores.n, plan->ranks[i].cores.v[0]);
        vb_plan_destroy(plan);
        failed = 0;
    }
    vb_topo_close(topo);
    return failed;
}
