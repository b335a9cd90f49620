/* SPDX-License-Identifier: MIT
 *
 * The collectives on a window.
 */
#include "tests/ranks.h"

static int sums(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0;
    size_t n = 100000, i;
    struct vb_coll *coll;
    struct vb_req req;
    float *data;

    (void)arg;
    if (vb_coll_open(g, n * sizeof(float), NULL, &coll) != VB_OK)
        return 1;
    data = vb_coll_data(coll);
    for (i = 0; i < n; i++)
        data[i] = (float)((int)i % 1000 + rank);
    wrong += T_WRONG(vb_allreduce_start(coll, 0, n, VB_REDUCE_SUM, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    for (i = 0; i < n; i++)
        wrong += data[i] != (float)((int)i % 1000 * world + world * (world - 1) / 2);
    vb_coll_close(coll);
    return wrong;
}

static void sums_are_exact(void **state)
{
    struct t_job job = {.fn = sums};

    (void)state;
    for (job.world = 1; job.world <= 4; job.world++) {
        job.transport = VB_TRANSPORT_SHM;
        t_as_threads(&job);
        job.transport = VB_TRANSPORT_TCP;
        t_as_threads(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_exact)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
