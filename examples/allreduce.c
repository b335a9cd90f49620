/* SPDX-License-Identifier: MIT
 *
 * Sums a vector over all ranks, however they were started; docs/library.md explains the steps.
 *   cc allreduce.c $(pkg-config --cflags --libs verbena) -o allreduce
 *   mpirun -n 3 ./allreduce              also: alone, srun --mpi=pmix, torchrun --no_python
 *   ./allreduce RANK WORLD HOST:PORT     by hand, with the address of rank 0 and the same VB_SECRET
 */
#include "launch/launch.h"
#include "net/net.h"

#include <stdlib.h>

#define N 1000000

static vb_status sum(struct vb_group *group)
{
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st = vb_coll_open(group, N * sizeof(float), NULL, &coll);

    if (st != VB_OK)
        return st;
    float *data = vb_coll_data(coll); /* memory that the other ranks reach */
    for (int i = 0; i < N; i++)
        data[i] = (float)vb_group_rank(group) + 1;
    st = vb_allreduce_start(coll, 0, N, VB_REDUCE_SUM, &req);
    if (st == VB_OK)
        st = vb_wait(coll, &req); /* before this there is time to compute something else */
    if (st == VB_OK)
        printf("rank %d of %d over %s: %g ... %g\n", vb_group_rank(group), vb_group_world(group),
               vb_group_transports(group), data[0], data[N - 1]);
    vb_coll_close(coll);
    return st;
}

int main(int argc, char **argv)
{
    struct vb_group_opts opts = VB_GROUP_OPTS_DEFAULT;
    struct vb_launch launch;
    struct vb_group *group;

    if (argc == 4)
        opts.rank = atoi(argv[1]), opts.world = atoi(argv[2]), opts.root = argv[3];
    if (vb_launch_open(&launch, &opts, &group) != VB_OK)
        return 1; /* the failure has been logged */
    vb_status st = sum(group);
    vb_launch_close(&launch, group);
    return st == VB_OK ? 0 : 1;
}
