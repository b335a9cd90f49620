/* SPDX-License-Identifier: MIT
 *
 * Tests the statistics of waiting: all other ranks must find the straggler of a collective and
 * blame no other rank. The transfer time must not count as waiting.
 */
#include "tests/support/fixtures/coll_fixture.h"

#include <time.h>

#define N_ELEMS ((size_t)100000)
/* maximum number of rounds; a busy machine delays other ranks too, and such rounds do not count */
#define TRIES 200

static const struct t_place *place;

static int rounds(void)
{
    return t_rdma_only() ? 2 : 4;
}

/* Returns the delay of the straggler. The delay is longer for RDMA, because an emulated machine
 * delays all ranks. */
static long nap_ns(void)
{
    return (t_rdma_only() ? 800 : 60) * 1000000L;
}

static void nap(void)
{
    struct timespec ts = {.tv_nsec = nap_ns()};

    nanosleep(&ts, NULL);
}

/* The totals of a rank over all rounds. */
struct rounds {
    int who; /* rank of the straggler */
    int tries, n;
    uint64_t begin_ns;        /* start of the current round */
    uint64_t took_ns, due_ns; /* time in all calls; time in which only the straggler was missing */
};

static bool go_on(const struct rounds *r)
{
    return r->n < rounds() && r->tries < TRIES;
}

static bool is_straggler(struct vb_group *g, const struct rounds *r)
{
    return vb_group_rank(g) == r->who;
}

/* Delays the straggler. When the straggler begins, all other ranks have begun, so that no other
 * rank is late. */
static vb_status begin_late(struct vb_group *g, struct rounds *r)
{
    vb_status st = vb_group_barrier(g);

    if (st == VB_OK && is_straggler(g, r))
        nap();
    r->begin_ns = vb_clock_ns();
    return st;
}

/* Counts a round. A busy machine may also delay other ranks before they begin to wait. So due_ns is
 * computed from the clocks of all ranks, and a round with too short a delay does not count. Several
 * machines have different clocks, so there due_ns is the time of the whole call. */
static vb_status count_round(struct vb_group *g, struct rounds *r)
{
    uint64_t took_ns = vb_clock_ns() - r->begin_ns, begin_ns[T_RANKS_MAX], last_ns = 0, due_ns;
    vb_status st = vb_group_gather(g, &r->begin_ns, sizeof(r->begin_ns), begin_ns);
    int i;

    if (st != VB_OK)
        return st;
    for (i = 0; i < vb_group_world(g); i++)
        if (i != r->who && begin_ns[i] > last_ns)
            last_ns = begin_ns[i];
    due_ns = begin_ns[r->who] > last_ns ? begin_ns[r->who] - last_ns : 0;
    r->tries++;
    r->n += t_rdma_only() || due_ns >= (uint64_t)nap_ns() / 2;
    r->took_ns += took_ns;
    r->due_ns += t_rdma_only() ? took_ns : due_ns;
    return VB_OK;
}

/* Checks that all other ranks have waited for the straggler. They wait for most of the time of the
 * calls, because the delay is far longer than the transfer. Then resets the statistics. */
static int check_straggler(struct vb_group *g, const struct rounds *r, const char *what)
{
    struct vb_wait_stats late = vb_group_wait_stats(g, r->who), none;
    uint64_t n = t_rdma_only() ? 1 : (uint64_t)rounds();
    int wrong = T_WRONG(r->n == rounds());

    if (!is_straggler(g, r))
        wrong += T_WRONG(late.n >= n) + T_WRONG(late.ns >= r->due_ns / 2 && late.ns <= r->took_ns) +
                 T_WRONG(late.max_ns >= late.ns / (late.n + 1) && late.max_ns <= late.ns) +
                 T_WRONG(vb_group_wait_total_ns(g) >= late.ns);
    else
        wrong += T_WRONG(late.n == 0 && late.ns == 0); /* a rank does not wait for itself */
    if (wrong > 0)
        fprintf(
            stderr,
            "%s over %s: rank %d of %d ranks waited %llu times for the straggler, %.3f ms of a run "
            "of %.3f ms; expected %.3f ms in %d of %d rounds; it waited %.3f ms for all ranks\n",
            what, place->name, vb_group_rank(g), vb_group_world(g), (unsigned long long)late.n,
            (double)late.ns / 1e6, (double)r->took_ns / 1e6, (double)r->due_ns / 1e6, r->n,
            r->tries, (double)vb_group_wait_total_ns(g) / 1e6);
    vb_group_wait_stats_reset(g);
    none = vb_group_wait_stats(g, r->who);
    return wrong + T_WRONG(vb_group_wait_total_ns(g) == 0 && none.n + none.ns + none.max_ns == 0);
}

/* Makes the last rank the straggler for some rounds, with vectors of the given size. */
static int dense(struct vb_group *g, void *arg)
{
    struct rounds r = {.who = vb_group_world(g) - 1};
    size_t n_elems = *(const size_t *)arg;
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st;
    int wrong;

    st = vb_coll_open_split(g, n_elems * sizeof(float), NULL, place->split, &coll);
    if (st != VB_OK)
        return 1;
    vb_group_wait_stats_reset(g);
    while (st == VB_OK && go_on(&r)) {
        if (!is_straggler(g, &r))
            st = vb_allreduce_start(coll, 0, n_elems, VB_REDUCE_SUM, &req);
        if (st == VB_OK)
            st = begin_late(g, &r);
        if (st == VB_OK && is_straggler(g, &r))
            st = vb_allreduce_start(coll, 0, n_elems, VB_REDUCE_SUM, &req);
        if (st == VB_OK)
            st = vb_wait(coll, &req);
        if (st == VB_OK)
            st = count_round(g, &r);
    }
    wrong = T_WRONG(st == VB_OK) + check_straggler(g, &r, "allreduce");
    vb_coll_close(coll);
    return wrong;
}

static int sparse(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = {.features = 1000, .max_nnz = 2, .path = VB_SPARSE_SPARSE};
    const uint32_t keys[] = {3, 700}, *keys_out;
    const float values[] = {1, 2}, *values_out;
    struct rounds r = {.who = vb_group_world(g) - 1};
    struct vb_sparse *s;
    vb_status st;
    int wrong;
    size_t n;

    (void)arg;
    st = vb_sparse_open(g, &opts, &s);
    if (st != VB_OK)
        return 1;
    vb_group_wait_stats_reset(g);
    while (st == VB_OK && go_on(&r)) {
        if (!is_straggler(g, &r))
            st = vb_sparse_start(s, keys, values, 2, VB_REDUCE_SUM);
        if (st == VB_OK)
            st = begin_late(g, &r);
        if (st == VB_OK && is_straggler(g, &r))
            st = vb_sparse_start(s, keys, values, 2, VB_REDUCE_SUM);
        if (st == VB_OK)
            st = vb_sparse_finish(s, &keys_out, &values_out, &n);
        if (st == VB_OK)
            st = count_round(g, &r);
    }
    wrong = T_WRONG(st == VB_OK) + check_straggler(g, &r, "sparse allreduce");
    vb_sparse_close(s);
    return wrong;
}

static void a_straggler_is_found(void **state)
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

/* While a rank does something else, no rank is a straggler: only time inside vb_wait() may count as
 * waiting. */
static int compute_while_waiting(struct vb_group *g, void *arg)
{
    uint64_t begin_ns, took_ns;
    struct vb_coll *coll;
    struct vb_req req;
    vb_status st;
    int wrong;

    (void)arg;
    st = vb_coll_open_split(g, N_ELEMS * sizeof(float), NULL, place->split, &coll);
    if (st != VB_OK)
        return 1;
    vb_group_wait_stats_reset(g);
    st = vb_allreduce_start(coll, 0, N_ELEMS, VB_REDUCE_SUM, &req);
    nap();
    begin_ns = vb_clock_ns();
    if (st == VB_OK)
        st = vb_wait(coll, &req);
    took_ns = vb_clock_ns() - begin_ns;
    wrong = T_WRONG(st == VB_OK) + T_WRONG(vb_group_wait_total_ns(g) <= took_ns);
    vb_coll_close(coll);
    return wrong;
}

static void computing_is_not_waiting(void **state)
{
    static const int worlds[] = {2};
    struct t_job job = {.fn = compute_while_waiting};

    (void)state;
    t_in_every_place(&job, &place, worlds, VB_COUNT(worlds));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straggler_is_found),
        cmocka_unit_test(computing_is_not_waiting),
    };

    return T_RUN(tests);
}
