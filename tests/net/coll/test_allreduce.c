/* SPDX-License-Identifier: MIT
 *
 * Tests allreduce with 1 to 8 ranks, over every transport and with every algorithm. The results
 * must equal sums in rank order, bit for bit.
 *
 * Covers: net/coll/coll_hosts.c net/coll/coll_mapped.c net/coll/coll_ordered.c
 * Covers: net/coll/coll_run.c net/coll/coll_steps.c net/coll/coll_unordered.c
 */
#include "tests/support/alloc.h"
#include "tests/support/fixtures/coll_fixture.h"

#define ROOM ((size_t)70 * 1024) /* maximum number of elements */

struct how {
    const struct t_place *place;
    struct vb_coll_opts opts;
    enum vb_algo first; /* the algorithm that is tested first */
};

static vb_status open_coll(struct vb_group *g, const struct how *how, size_t n_elems,
                           struct vb_coll **coll_p)
{
    return vb_coll_open_split(g, n_elems * sizeof(float), &how->opts, how->place->split, coll_p);
}

/* ---- one at a time --------------------------------------------------------------------------- */

static int reduce_once(struct vb_group *g, struct vb_coll *coll, size_t offset, size_t n,
                       t_value_fn fn, unsigned round, enum vb_reduce op, const struct how *how)
{
    float *data = (float *)vb_coll_data(coll) + offset;
    int world = vb_group_world(g), wrong = 0;
    float guard = 12345.0f;
    struct vb_req req;

    t_fill(data, n, fn, vb_group_rank(g), round);
    data[n] = guard;
    wrong += T_WRONG(vb_allreduce_start(coll, offset * sizeof(float), n, op, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    wrong += T_WRONG(data[n] == guard);
    if (how->opts.order == VB_ORDER_RANK || (fn == t_whole && op == VB_REDUCE_SUM))
        wrong += t_differences(data, n, fn, world, round, op, how->opts.wire);
    return wrong + t_unequal(g, data, n);
}

/* Tests all sizes near a boundary. Boundaries are the number of ranks and the sizes of a cache
 * line, a slot and a segment. */
static int all_sizes(struct vb_group *g, const struct how *how)
{
    size_t n = (size_t)vb_group_world(g), k;
    /* The two sizes before the last one are a segment with the longest remainder that is sent
     * together with the segment, and one element more. */
    size_t sizes[] = {0,    1,    n - 1, n,     n + 1, 16 * n + 1,   251,
                      2049, 8191, 32769, 36800, 36801, ROOM - 20 - n};
    struct vb_coll *coll;
    unsigned round = 0;
    int wrong = 0;

    if (open_coll(g, how, ROOM, &coll) != VB_OK)
        return 1;
    for (k = 0; k < VB_COUNT(sizes) && wrong == 0; k++) {
        wrong += reduce_once(g, coll, 0, sizes[k], t_whole, round++, VB_REDUCE_SUM, how);
        wrong += reduce_once(g, coll, 17, sizes[k], t_any, round++,
                             k % 2 == 0 ? VB_REDUCE_SUM : VB_REDUCE_MEAN, how);
        if (wrong != 0)
            fprintf(stderr,
                    "the sums are wrong over %s with algorithm %s, %zu ranks and %zu elements\n",
                    how->place->name, vb_algo_str(how->opts.algo), n, sizes[k]);
    }
    vb_coll_close(coll);
    return wrong;
}

/* Returns whether the algorithm can be used. Does not call the code under test. */
static bool possible(const struct how *how, int world)
{
    enum vb_algo a = how->opts.algo;
    bool shm = how->place->transport == VB_TRANSPORT_SHM;

    if (a == VB_ALGO_MAPPED)
        return world == 1 || (shm && (how->place->split == 0 || how->place->split >= world));
    if (a >= VB_ALGO_OWNER && how->opts.wire == VB_WIRE_BF16)
        return false;
    return a < VB_ALGO_RING || how->opts.order == VB_ORDER_ANY;
}

static int all_algorithms(struct vb_group *g, void *arg)
{
    struct how how = *(const struct how *)arg;
    int a, wrong = 0;

    for (a = how.first; a < VB_ALGOS && wrong == 0; a++) {
        how.opts.algo = (enum vb_algo)a;
        if (possible(&how, vb_group_world(g)))
            wrong += all_sizes(g, &how);
    }
    return wrong;
}

static void everywhere(t_rank_fn fn, struct how *how, const int *worlds, size_t n_worlds)
{
    struct t_job job = {.fn = fn, .arg = how};

    t_in_every_place(&job, &how->place, worlds, n_worlds);
}

static void sums_in_rank_order(void **state)
{
    static const int worlds[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct how how = {.opts = {.order = VB_ORDER_RANK, .in_flight = 4}};

    (void)state;
    everywhere(all_algorithms, &how, worlds, VB_COUNT(worlds));
}

static void sums_in_any_order(void **state)
{
    static const int worlds[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct how how = {.opts = {.order = VB_ORDER_ANY, .in_flight = 4}, .first = VB_ALGO_RING};

    (void)state;
    everywhere(all_algorithms, &how, worlds, VB_COUNT(worlds));
}

static void sums_in_bfloat16(void **state)
{
    static const int worlds[] = {1, 2, 3, 5};
    struct how how = {.opts = {.wire = VB_WIRE_BF16, .in_flight = 4}};

    (void)state;
    everywhere(all_algorithms, &how, worlds, VB_COUNT(worlds));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_rank_order),
        cmocka_unit_test(sums_in_any_order),
        cmocka_unit_test(sums_in_bfloat16),
    };

    return T_RUN(tests);
}
