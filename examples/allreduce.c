/* SPDX-License-Identifier: MIT
 *
 * An example of using the library: sums a vector over all ranks, however they were started.
 *
 *   cc allreduce.c $(pkg-config --cflags --libs verbena) -o allreduce
 *   ./allreduce                          a single rank
 *   mpirun -n 3 ./allreduce              also: srun --mpi=pmix, torchrun --no-python
 *   ./allreduce RANK WORLD HOST:PORT     by hand, once for each rank, with the address of rank 0
 *
 * By hand, all ranks need the same secret: export VB_SECRET=$(openssl rand -hex 32)
 */
#include "launch/launch.h"
#include "net/net.h"

#include <stdlib.h>

#define N 1000000

static vb_status sum(struct vb_group *group)
{
    struct vb_coll *coll;
    struct vb_req req;
    float *data;
    int i;
    vb_status st = vb_coll_open(group, N * sizeof(float), NULL, &coll);

    if (st != VB_OK)
        return st;
    data = vb_coll_data(coll); /* memory that the other ranks reach */
    for (i = 0; i < N; i++)
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
    struct vb_launch_opts launcher = {0};
    struct vb_launch launch;
    struct vb_group *group;
    unsigned char *secret;
    vb_status st = vb_launch_read(opts.timeout_ms, &launch); /* VB_SECRET, or our supervisor */

    if (st == VB_OK && argc == 4)
        opts.rank = atoi(argv[1]), opts.world = atoi(argv[2]), opts.root = argv[3];
    else if (st == VB_OK && !launch.supervised)
        st = vb_launch_find(&launcher, &launch);
    if (st != VB_OK || vb_launch_take_secret(&launch, &secret) != VB_OK)
        return 1;
    vb_launch_group(&launch, &opts); /* rank, world and root, if a launcher has told them */
    opts.secret = launch.has_secret ? secret : NULL;
    st = vb_group_open(&opts, &group); /* failures have been logged, here and below */
    if (st == VB_OK) {
        st = sum(group);
        vb_group_close(group);
    }
    vb_secret_free(secret);
    return st == VB_OK ? 0 : 1;
}
