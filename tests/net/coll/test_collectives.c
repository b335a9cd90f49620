/* SPDX-License-Identifier: MIT
 *
 * Tests many operations in flight, reduce-scatter, allgather, broadcast, barrier, large vectors,
 * the number of bytes sent, and forecasts. Also tests that nothing is allocated after opening.
 *
 * Covers: net/coll/coll_open.c net/coll/coll_start.c net/coll/cost.c net/coll/cost_measure.c
 */
#include "tests/support/alloc.h"
#include "tests/support/fixtures/coll_fixture.h"

#define FLIGHT 12
#define ROOM ((size_t)400 * 1024) /* maximum number of elements */
#define MIB ((size_t)1 << 20)

struct how {
    const struct t_place *place;
    struct vb_coll_opts opts;
};

static vb_status open_coll(struct vb_group *g, const struct how *how, size_t n_elems,
                           struct vb_coll **coll_p)
{
    return vb_coll_open_split(g, n_elems * sizeof(float), &how->opts, how->place->split, coll_p);
}

/* Returns the number of rounds. The number is small for RDMA, because the tests run it on an
 * emulated machine, where a round takes long. */
static int rounds(const struct how *how)
{
    return how->place->transport == VB_TRANSPORT_VERBS ? 2 : 4;
}

static void everywhere(t_rank_fn fn, struct vb_coll_opts opts, const int *worlds, size_t n_worlds)
{
    struct how how = {.opts = opts};
    struct t_job job = {.fn = fn, .arg = &how};

    t_in_every_place(&job, &how.place, worlds, n_worlds);
}

/* ---- many in flight -------------------------------------------------------------------------- */

/* Returns the size of vector k. The sizes are very different, so that small vectors overtake large
 * ones. */
static size_t flight_size(int k, int round)
{
    static const size_t sizes[] = {1, 30000, 500, 2048, 60001, 16, 9000};

    return sizes[(size_t)(k + round) % VB_COUNT(sizes)];
}

static int start_flight(struct vb_coll *coll, int rank, int round, struct vb_req *reqs)
{
    float *data = vb_coll_data(coll);
    int k, wrong = 0;
    size_t at = 0, n;

    for (k = 0; k < FLIGHT; k++, at += n) {
        n = flight_size(k, round);
        t_fill(data + at, n, t_any, rank, (unsigned)(round * FLIGHT + k));
        wrong += T_WRONG(vb_allreduce_start(coll, at * sizeof(float), n, VB_REDUCE_SUM, &reqs[k]) ==
                         VB_OK);
    }
    return wrong;
}

/* Waits for all operations. Each rank waits in another order. */
static int wait_flight(struct vb_coll *coll, int rank, int round, struct vb_req *reqs)
{
    int k, wrong = 0;
    bool done;

    for (k = 0; k < FLIGHT; k++) {
        struct vb_req *req = &reqs[(k * 5 + rank * 3 + round) % FLIGHT];

        if (k % 3 == 2)
            wrong += T_WRONG(vb_test(coll, req, &done) == VB_OK);
        wrong += T_WRONG(vb_wait(coll, req) == VB_OK);
        wrong += T_WRONG(vb_test(coll, req, &done) == VB_OK && done);
    }
    return wrong;
}

static int flight(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, round, k;
    const struct how *how = arg;
    struct vb_req reqs[FLIGHT];
    struct vb_coll *coll;
    size_t at;

    if (open_coll(g, how, ROOM, &coll) != VB_OK)
        return 1;
    for (round = 0; round < rounds(how) && wrong == 0; round++) {
        wrong += start_flight(coll, rank, round, reqs);
        wrong += wait_flight(coll, rank, round, reqs);
        for (k = 0, at = 0; k < FLIGHT; at += flight_size(k++, round))
            wrong +=
                t_differences((float *)vb_coll_data(coll) + at, flight_size(k, round), t_any, world,
                              (unsigned)(round * FLIGHT + k), VB_REDUCE_SUM, how->opts.wire);
    }
    vb_coll_close(coll);
    return wrong;
}

static void many_in_flight(void **state)
{
    static const int worlds[] = {2, 3, 4};
    struct vb_coll_opts opts = {.in_flight = FLIGHT};

    (void)state;
    everywhere(flight, opts, worlds, VB_COUNT(worlds));
    opts.algo = VB_ALGO_OWNER;
    everywhere(flight, opts, worlds, VB_COUNT(worlds));
    opts.algo = VB_ALGO_EXCHANGE; /* all operations use the same rings */
    everywhere(flight, opts, worlds, VB_COUNT(worlds));
    opts.in_flight = 4; /* fewer than the test starts, so the start functions have to wait */
    opts.wire = VB_WIRE_BF16;
    everywhere(flight, opts, worlds, VB_COUNT(worlds));
}

static int flight_any(struct vb_group *g, void *arg)
{
    const struct how *how = arg;
    int rank = vb_group_rank(g), wrong = 0, round;
    struct vb_req reqs[FLIGHT];
    struct vb_coll *coll;

    if (open_coll(g, how, ROOM, &coll) != VB_OK)
        return 1;
    for (round = 0; round < rounds(how) && wrong == 0; round++) {
        wrong += start_flight(coll, rank, round, reqs);
        wrong += wait_flight(coll, rank, round, reqs);
        wrong += t_unequal(g, vb_coll_data(coll), 100000);
    }
    vb_coll_close(coll);
    return wrong;
}

/* Each of these algorithms uses the rings in another way. */
static void many_in_flight_in_any_order(void **state)
{
    static const int worlds[] = {3, 4};
    struct vb_coll_opts opts = {.in_flight = FLIGHT, .order = VB_ORDER_ANY};
    int a;

    (void)state;
    for (a = VB_ALGO_CHAIN; a < VB_ALGOS; a++) {
        opts.algo = (enum vb_algo)a;
        everywhere(flight_any, opts, worlds, VB_COUNT(worlds));
    }
}

/* ---- the other operations -------------------------------------------------------------------- */

static int one_scatter(struct vb_group *g, struct vb_coll *coll, size_t n, unsigned round)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0;
    float *data = (float *)vb_coll_data(coll) + 16;
    size_t first, mine, i;
    struct vb_req req;

    t_fill(data, n, t_any, rank, round);
    wrong += T_WRONG(vb_reduce_scatter_start(coll, 64, n, VB_REDUCE_MEAN, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    vb_coll_share(n, world, rank, &first, &mine);
    for (i = first; i < first + mine; i++)
        wrong += data[i] != t_sum(t_any, world, i, round, VB_REDUCE_MEAN, VB_WIRE_F32);
    return wrong;
}

/* Gathers blocks of different lengths. Rank r has r * len + r bytes, and there is a gap before each
 * block. */
static int one_gather(struct vb_group *g, struct vb_coll *coll, size_t len)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, r;
    size_t at[T_RANKS_MAX] = {0}, lens[T_RANKS_MAX] = {0}, next = 4, i;
    unsigned char *data = vb_coll_data(coll);
    struct vb_req req;

    for (r = 0; r < world; r++) {
        at[r] = next;
        lens[r] = (size_t)r * len + (size_t)r;
        next += (lens[r] + 11) / 4 * 4;
    }
    memset(data, 0xee, next);
    memset(data + at[rank], rank + 1, lens[rank]);
    wrong += T_WRONG(vb_allgather_start(coll, at, lens, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    for (r = 0; r < world; r++) {
        for (i = 0; i < lens[r]; i++)
            wrong += data[at[r] + i] != r + 1;
        wrong += T_WRONG(data[at[r] + lens[r]] == 0xee);
    }
    return wrong;
}

static int one_broadcast(struct vb_group *g, struct vb_coll *coll, size_t len, int root)
{
    unsigned char *data = vb_coll_data(coll);
    struct vb_req req;
    int wrong = 0;
    size_t i;

    for (i = 0; i < len; i++)
        data[4 + i] = vb_group_rank(g) == root ? (unsigned char)(i * 31 + len) : 0;
    data[4 + len] = 0xee;
    wrong += T_WRONG(vb_broadcast_start(coll, root, 4, len, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    for (i = 0; i < len; i++)
        wrong += data[4 + i] != (unsigned char)(i * 31 + len);
    return wrong + T_WRONG(data[4 + len] == 0xee);
}

static int all_other_operations(struct vb_group *g, void *arg)
{
    static const size_t sizes[] = {0, 1, 5, 1000, 70003, 200001};
    const struct how *how = arg;
    struct vb_coll *coll;
    struct vb_req req;
    int wrong = 0;
    size_t k;

    if (open_coll(g, how, ROOM, &coll) != VB_OK)
        return 1;
    for (k = 0; k < VB_COUNT(sizes) && wrong == 0; k++) {
        wrong += one_scatter(g, coll, sizes[k], (unsigned)k);
        wrong += one_gather(g, coll, sizes[k] / 4);
        wrong += one_broadcast(g, coll, sizes[k], (int)k % vb_group_world(g));
        wrong += T_WRONG(vb_barrier_start(coll, &req) == VB_OK && vb_wait(coll, &req) == VB_OK);
    }
    vb_coll_close(coll);
    return wrong;
}

static void other_operations(void **state)
{
    static const int worlds[] = {1, 2, 3, 5};
    struct vb_coll_opts opts = {.in_flight = 4};

    (void)state;
    everywhere(all_other_operations, opts, worlds, VB_COUNT(worlds));
}

/* ---- large vectors, and the exact number of bytes -------------------------------------------- */

static int large(struct vb_group *g, void *arg)
{
    int world = vb_group_world(g), wrong = 0;
    size_t n = 16 * MIB + 5;
    const struct how *how = arg;
    struct vb_coll *coll;
    struct vb_req req;
    double sent, theory;

    if (open_coll(g, how, n, &coll) != VB_OK)
        return 1;
    t_fill(vb_coll_data(coll), n, t_whole, vb_group_rank(g), 1);
    wrong += T_WRONG(vb_allreduce_start(coll, 0, n, VB_REDUCE_SUM, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    wrong += t_differences(vb_coll_data(coll), n, t_whole, world, 1, VB_REDUCE_SUM, VB_WIRE_F32);
    sent = (double)vb_coll_wire_bytes(coll);
    theory = 2.0 * (world - 1) / world * (double)n * sizeof(float);
    wrong += T_WRONG(sent <= 1.02 * theory);
    vb_coll_close(coll);
    return wrong;
}

static void large_vectors(void **state)
{
    struct vb_coll_opts opts = {.in_flight = 2};
    struct how how = {.opts = opts};
    struct t_job job = {.fn = large, .arg = &how, .world = 3, .timeout_ms = 60000};

    (void)state;
    if (t_rdma_only())
        skip(); /* the test would take minutes on an emulated machine */
    how.place = &t_places[0];
    job.transport = VB_TRANSPORT_SHM;
    t_as_processes(&job);
    how.place = &t_places[2];
    job.transport = VB_TRANSPORT_TCP;
    t_as_processes(&job);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* A measurement that only one rank makes must not write to the slots of its peers, because a peer
 * may be ahead and may have sent something already. Between the slots of the peers each rank has
 * unused slots for messages to itself. The test fills these slots and checks that they do not
 * change. */
static int measure_with_full_slots(struct vb_group *g, void *arg)
{
    const struct how *how = arg;
    struct vb_coll *coll;
    size_t at, i;
    uint32_t area;
    int wrong = 0;

    if (open_coll(g, how, 10, &coll) != VB_OK)
        return 1;
    for (area = 0; area < coll->reqs.n_areas; area++)
        memset(coll->base + slot_at(coll, area, coll->rank), 0x3f, coll->lay.slot_bytes);
    wrong += T_WRONG(vb_cost_measure(coll, coll->cost) == VB_OK);
    for (area = 0; area < coll->reqs.n_areas; area++) {
        at = slot_at(coll, area, coll->rank);
        for (i = 0; i < coll->lay.slot_bytes; i++)
            wrong += coll->base[at + i] != 0x3f;
    }
    vb_coll_close(coll);
    return wrong;
}

static void measuring_does_not_write_to_slots(void **state)
{
    static const int worlds[] = {3};
    struct vb_coll_opts opts = {0};

    (void)state;
    everywhere(measure_with_full_slots, opts, worlds, VB_COUNT(worlds));
}

/* ---- forecasts ------------------------------------------------------------------------------- */

/* Two requests of 60 KB and one of 4 KB: each takes as long as its prediction. */
static int forecast(struct vb_group *g, void *arg)
{
    const struct how *how = arg;
    size_t each = 60 * 1024, rest = 4096;
    struct vb_coll_forecast f;
    struct vb_coll *coll;
    double us;
    int wrong = 0;

    if (open_coll(g, how, ROOM, &coll) != VB_OK)
        return 1;
    f = vb_coll_forecast(coll, 2 * each + rest, each);
    us = 2 * vb_coll_predict_us(coll, vb_coll_algo(coll, each), each) +
         vb_coll_predict_us(coll, vb_coll_algo(coll, rest), rest);
    wrong += T_WRONG(f.us > 0.999 * us && f.us < 1.001 * us);
    wrong += T_WRONG(f.best_us > 0);
    wrong += T_WRONG(f.best == VB_ALGO_AUTO || vb_coll_can(coll, f.best));
    if (how->opts.algo == VB_ALGO_AUTO)
        wrong += T_WRONG(f.us == f.best_us);
    if (how->opts.algo != VB_ALGO_AUTO && f.best == how->opts.algo)
        wrong += T_WRONG(f.us == f.best_us);
    if (vb_coll_can(coll, VB_ALGO_MAPPED))
        wrong += T_WRONG(f.best == VB_ALGO_MAPPED);
    f = vb_coll_forecast(coll, 0, each);
    wrong += T_WRONG(f.us == 0 && f.best_us == 0);
    f = vb_coll_forecast(coll, rest, 0);
    wrong += T_WRONG(f.us == vb_coll_predict_us(coll, vb_coll_algo(coll, rest), rest));
    vb_coll_close(coll);
    return wrong;
}

static void forecasts_are_sums_of_predictions(void **state)
{
    static const int worlds[] = {3};
    struct vb_coll_opts opts = {.in_flight = FLIGHT};

    (void)state;
    everywhere(forecast, opts, worlds, VB_COUNT(worlds));
    opts.algo = VB_ALGO_EXCHANGE;
    everywhere(forecast, opts, worlds, VB_COUNT(worlds));
    opts.order = VB_ORDER_ANY;
    opts.algo = VB_ALGO_RING;
    everywhere(forecast, opts, worlds, VB_COUNT(worlds));
}

/* ---- allocations ----------------------------------------------------------------------------- */

/* Counts the allocations of this process. Barriers make sure that no other rank opens or closes the
 * collective during the count. */
static int count_allocations(struct vb_group *g, void *arg)
{
    const struct how *how = arg;
    struct vb_coll *coll;
    struct vb_req reqs[FLIGHT];
    int wrong = 0, round;
    long before;

    if (open_coll(g, how, ROOM, &coll) != VB_OK)
        return 1;
    wrong += start_flight(coll, vb_group_rank(g), 0, reqs);
    wrong += wait_flight(coll, vb_group_rank(g), 0, reqs);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    before = t_allocations;
    for (round = 1; round < rounds(how); round++) {
        wrong += start_flight(coll, vb_group_rank(g), round, reqs);
        wrong += wait_flight(coll, vb_group_rank(g), round, reqs);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(t_allocations == before);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_coll_close(coll);
    return wrong;
}

static void no_allocations(void **state)
{
    static const int worlds[] = {3};
    struct vb_coll_opts opts = {.in_flight = FLIGHT};
    int a;

    (void)state;
    everywhere(count_allocations, opts, worlds, VB_COUNT(worlds));
    opts.order = VB_ORDER_ANY;
    for (a = VB_ALGO_GATHER; a < VB_ALGOS; a++) {
        opts.algo = (enum vb_algo)a;
        everywhere(count_allocations, opts, worlds, VB_COUNT(worlds));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_flight),
        cmocka_unit_test(many_in_flight_in_any_order),
        cmocka_unit_test(other_operations),
        cmocka_unit_test(large_vectors),
        cmocka_unit_test(no_allocations),
        cmocka_unit_test(measuring_does_not_write_to_slots),
        cmocka_unit_test(forecasts_are_sums_of_predictions),
    };

    return T_RUN(tests);
}
