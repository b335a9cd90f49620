/* SPDX-License-Identifier: MIT
 *
 * An example of using the library: prints where the threads of four ranks would run on this
 * machine.
 *
 *   cc where.c $(pkg-config --cflags --libs verbena) -o where && ./where
 */
#include "topo/topo.h"

int main(void)
{
    struct vb_topo_source this_machine = {0};
    struct vb_placement_want want = {.ranks = 4, .progress = true};
    struct vb_topo *topo;
    struct vb_placement *placement;
    int i, failed = 1;

    if (vb_topo_open(&this_machine, &topo) != VB_OK)
        return 1;
    if (vb_placement_create(topo, &want, &placement) == VB_OK) {
        for (i = 0; i < placement->n_ranks; i++)
            printf("rank %d: %d threads on %d cores, from core %d\n", i, placement->threads,
                   placement->ranks[i].cores.n, placement->ranks[i].cores.v[0]);
        vb_placement_destroy(placement);
        failed = 0;
    }
    vb_topo_close(topo);
    return failed;
}
