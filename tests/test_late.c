/* SPDX-License-Identifier: MIT
 *
 * Who was late: a rank that comes late to a collective is found out by all others, and by none for
 * anything else. What the transfer takes is not lateness.
 */
#include "tests/coll.h"

#include <time.h>

#define N_ELEMS ((size_t)100000)

static const struct t_place *place;

static int rounds(void)
{
    return t_rdma_only() ? 2 : 4;
}

/* Soft-RoCE in an emulated machine makes everybody some 100 ms late. */
static void nap(void)
{
    struct timespec ts = {.tv_nsec = (t_rdma_only() ? 800 : 60) * 1000000L};

    nanosleep(&ts, NULL);
}

/* All set out together: a rank that was not done with the last round would wait the less. */
static vb_status come_late(struct vb_group *g, int who)
{
    vb_status st = vb_group_barrier(g);

    if (st == VB_OK && vb_group_rank(g) == who)
        nap();
    return st;
}

/* All but the late one have waited for it: that was most of what the calls took, for to come late
 * takes far longer than to move the bytes. Then all is forgotten. */
static int is_found_out(struct vb_group *g, int who, const char *what, uint64_t took_ns)
{
    struct vb_late late = vb_group_late(g, who), none;
    uint64_t n = t_rdma_only() ? 1 : (uint64_t)rounds();
    int wrong = 0;

    if (vb_group_rank(g) != who)
        wrong = T_WRONG(late.n >= n) + T_WRONG(late.ns >= took_ns / 2 && late.ns <= took_ns) +
                T_WRONG(late.max_ns >= late.ns / (uint64_t)rounds() && late.max_ns <= late.ns) +
                T_WRONG(vb_group_late_ns(g) >= late.ns);
    else
        wrong = T_WRONG(late.n == 0 && late.ns == 0); /* nobody waits for himself */
    if (wrong > 0)
        fprintf(stderr,
                "%s over %s: rank %d of %d waited %llu times, %.3f ms of %.3f; %.3f for any\n",
                what, place->name, vb_group_rank(g), vb_group_world(g), (unsigned long long)late.n,
                (double)late.ns / 1e6, (double)took_ns / 1e6, (double)vb_group_late_ns(g) / 1e6);
    vb_group_late_forget(g);
    none = vb_group_late(g, who);
    return wrong + T_WRONG(vb_group_late_ns(g) == 0 && none.n + none.ns + none.max_ns == 0);
}

/* The last rank is late for some rounds, small vectors and large ones. */
static int dense(struct vb_group *g, void *arg)
{
    size_t n_elems = *(const size_t *)arg;
    int i, wrong, who = vb_group_world(g) - 1;
    uint64_t begin_ns, took_ns = 0;
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st;

    st = coll_open_split(g, n_elems * sizeof(float), NULL, place->split, &coll);
    if (st != VB_OK)
        return 1;
    vb_group_late_forget(g);
    for (i = 0; i < rounds() && st == VB_OK; i++) {
        st = come_late(g, who);
        begin_ns = vb_clock_ns();
        if (st == VB_OK)
            st = vb_allreduce_start(coll, 0, n_elems, VB_REDUCE_SUM, &req);
        if (st == VB_OK)
            st = vb_wait(coll, &req);
        took_ns += vb_clock_ns() - begin_ns;
    }
    wrong = T_WRONG(st == VB_OK) + is_found_out(g, who, "allreduce", took_ns);
    vb_coll_close(coll);
    return wrong;
}

static int sparse(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {.features = 1000, .max_nnz = 2, .path = VB_SPARSE_SPARSE};
    const uint32_t keys[] = {3, 700}, *keys_out;
    const float values[] = {1, 2}, *values_out;
    int i, wrong, who = vb_group_world(g) - 1;
    uint64_t begin_ns, took_ns = 0;
    struct vb_sparse *s;
    vb_status st;
    size_t n;

    (void)arg;
    st = vb_sparse_open(g, &opts, &s);
    if (st != VB_OK)
        return 1;
    vb_group_late_forget(g);
    for (i = 0; i < rounds() && st == VB_OK; i++) {
        st = come_late(g, who);
        begin_ns = vb_clock_ns();
        if (st == VB_OK)
            st = vb_sparse_allreduce(s, keys, values, 2, VB_REDUCE_SUM, &keys_out, &values_out, &n);
        took_ns += vb_clock_ns() - begin_ns;
    }
    wrong = T_WRONG(st == VB_OK) + is_found_out(g, who, "sparse allreduce", took_ns);
    vb_sparse_close(s);
    return wrong;
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

/* Nobody is late while a rank does something else: only what vb_wait() took can be lateness. */
static int hidden(struct vb_group *g, void *arg)
{
    uint64_t begin_ns, took_ns;
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st;
    int wrong;

    (void)arg;
    st = coll_open_split(g, N_ELEMS * sizeof(float), NULL, place->split, &coll);
    if (st != VB_OK)
        return 1;
    vb_group_late_forget(g);
    st = vb_allreduce_start(coll, 0, N_ELEMS, VB_REDUCE_SUM, &req);
    nap();
    begin_ns = vb_clock_ns();
    if (st == VB_OK)
        st = vb_wait(coll, &req);
    took_ns = vb_clock_ns() - begin_ns;
    wrong = T_WRONG(st == VB_OK) + T_WRONG(vb_group_late_ns(g) <= took_ns);
    vb_coll_close(coll);
    return wrong;
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
