/* SPDX-License-Identifier: MIT
 *
 * Who was late: a rank that comes late to a collective is found out by all others, and by none for
 * anything else. What the transfer takes is not lateness.
 */
#include "tests/coll.h"

#include <time.h>

#define ROUNDS 4
#define AWAY_NS UINT64_C(1600000000) /* long, against what a busy machine makes of any wait */
#define N_ELEMS ((size_t)100000)

static const struct t_place *place;

/* Soft-RoCE in an emulated machine makes everybody some 100 ms late. */
static uint64_t late_ns(void)
{
    return (t_rdma_only() ? 800 : 60) * UINT64_C(1000000);
}

static void nap(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};

    nanosleep(&ts, NULL);
}

/* All set out together: a rank that was not done with the last round would wait the less. */
static vb_status come_late(struct vb_group *g, int who)
{
    vb_status st = vb_group_barrier(g);

    if (st == VB_OK && vb_group_rank(g) == who)
        nap(late_ns());
    return st;
}

/* All but the late one have waited for it as often and about as long as it was late. */
static int is_found_out(struct vb_group *g, int who, const char *what)
{
    struct vb_late late = vb_group_late(g, who);
    uint64_t ns = late_ns();
    int wrong = 0;

    if (vb_group_rank(g) != who)
        wrong = T_WRONG(late.n >= ROUNDS) + T_WRONG(late.ns >= ROUNDS * ns * 3 / 4) +
                T_WRONG(late.max_ns >= ns * 3 / 4) + T_WRONG(vb_group_late_ns(g) >= late.ns);
    else
        wrong = T_WRONG(late.n == 0 && late.ns == 0); /* nobody waits for himself */
    if (wrong > 0)
        fprintf(stderr,
                "%s over %s: rank %d of %d waited %llu times, %.3f ms in all; %.3f for any\n", what,
                place->name, vb_group_rank(g), vb_group_world(g), (unsigned long long)late.n,
                (double)late.ns / 1e6, (double)vb_group_late_ns(g) / 1e6);
    return wrong;
}

/* The last rank is late for some rounds, small vectors and large ones. */
static int dense(struct vb_group *g, void *arg)
{
    size_t n_elems = *(const size_t *)arg;
    int i, who = vb_group_world(g) - 1;
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st;

    st = coll_open_split(g, n_elems * sizeof(float), NULL, place->split, &coll);
    if (st != VB_OK)
        return 1;
    for (i = 0; i < ROUNDS && st == VB_OK; i++) {
        st = come_late(g, who);
        if (st == VB_OK)
            st = vb_allreduce_start(coll, 0, n_elems, VB_REDUCE_SUM, &req);
        if (st == VB_OK)
            st = vb_wait(coll, &req);
    }
    vb_coll_close(coll);
    return T_WRONG(st == VB_OK) + is_found_out(g, who, "allreduce");
}

static int sparse(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {.features = 1000, .max_nnz = 2, .path = VB_SPARSE_SPARSE};
    const uint32_t keys[] = {3, 700}, *keys_out;
    const float values[] = {1, 2}, *values_out;
    int i, who = vb_group_world(g) - 1;
    struct vb_sparse *s;
    vb_status st;
    size_t n;

    (void)arg;
    st = vb_sparse_open(g, &opts, &s);
    if (st != VB_OK)
        return 1;
    for (i = 0; i < ROUNDS && st == VB_OK; i++) {
        st = come_late(g, who);
        if (st == VB_OK)
            st = vb_sparse_allreduce(s, keys, values, 2, VB_REDUCE_SUM, &keys_out, &values_out, &n);
    }
    vb_sparse_close(s);
    return T_WRONG(st == VB_OK) + is_found_out(g, who, "sparse allreduce");
}

static void a_late_rank_is_found_out(void **state)
{
    static const int worlds[] = {2, 3};
    size_t small = 10, large = N_ELEMS;
    struct t_job job = {.fn = dense, .arg = &small};

    (void)state;
    t_in_every_place(&job, &place, worlds, VB_COUNT(worlds));
    job.arg = &large;
    t_in_every_place(&job, &place, worlds, VB_COUNT(worlds));
    job.fn = sparse;
    t_in_every_place(&job, &place, worlds, VB_COUNT(worlds));
}

/* Nobody is late where a rank waits for what it has started itself a while ago. */
static int hidden(struct vb_group *g, void *arg)
{
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st;

    (void)arg;
    st = coll_open_split(g, N_ELEMS * sizeof(float), NULL, place->split, &coll);
    if (st != VB_OK)
        return 1;
    st = vb_group_barrier(g);
    if (st == VB_OK)
        st = vb_allreduce_start(coll, 0, N_ELEMS, VB_REDUCE_SUM, &req);
    nap(AWAY_NS);
    if (st == VB_OK)
        st = vb_wait(coll, &req);
    vb_coll_close(coll);
    return T_WRONG(st == VB_OK) + T_WRONG(vb_group_late_ns(g) < AWAY_NS / 2);
}

static void who_is_there_is_not_late(void **state)
{
    static const int worlds[] = {2};
    struct t_job job = {.fn = hidden};

    (void)state;
    t_in_every_place(&job, &place, worlds, VB_COUNT(worlds));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_is_found_out),
        cmocka_unit_test(who_is_there_is_not_late),
    };

    return T_RUN(tests);
}
