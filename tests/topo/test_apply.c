/* SPDX-License-Identifier: MIT
 *
 * Pins real threads on this machine, and asks the kernel which CPUs the threads may run on.
 */
#include "tests/support/machine.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

static int open_machine(void **state)
{
    struct vb_topo_source source = {0};

    (void)state;
    return vb_topo_open(&source, &topo) == VB_OK ? 0 : -1;
}

static void make_plan(int ranks, int threads)
{
    struct vb_placement_want want = {.ranks = ranks, .threads = threads, .progress = true};

    vb_placement_destroy(placement);
    placement = NULL;
    assert_int_equal(vb_placement_create(topo, &want, &placement), VB_OK);
}

/* Returns whether the calling thread may run on exactly these CPUs. */
static bool runs_on(const int *cpus, int n)
{
    cpu_set_t have, want;
    int i;

    CPU_ZERO(&want);
    for (i = 0; i < n; i++)
        CPU_SET(cpus[i], &want);
    return sched_getaffinity(0, sizeof(have), &have) == 0 && CPU_EQUAL(&have, &want);
}

static bool allowed_anywhere_else(void)
{
    return vb_topo_facts(topo)->n_allowed_cpus > 1;
}

static bool check_place(const struct vb_placement_rank *r, enum vb_role role)
{
    if (role != VB_ROLE_PROGRESS)
        return runs_on(r->others.v, r->others.n);
    if (r->progress_cpu >= 0)
        return runs_on(&r->progress_cpu, 1);
    return runs_on(r->cpus.v, r->cpus.n);
}

/* Runs one rank in its own thread: first the OpenMP team of the rank, then the threads of the other
 * roles. */
static void *rank_main(void *arg)
{
    const struct vb_placement_rank *r = arg;
    int wrong = 0, role;

    wrong += vb_placement_bind_memory(topo, placement, r->rank) != VB_OK;
    wrong += vb_placement_pin_team(topo, placement, r->rank) != VB_OK;
#pragma omp parallel reduction(+ : wrong)
    {
        int i = omp_get_thread_num();

        wrong += omp_get_num_threads() != placement->threads;
        wrong += r->compute.n > 0 ? !runs_on(&r->compute.v[i], 1) : !runs_on(r->cpus.v, r->cpus.n);
    }
    for (role = VB_ROLE_PROGRESS; role <= VB_ROLE_LOADER; role++) {
        wrong += vb_placement_pin(topo, placement, r->rank, (enum vb_role)role) != VB_OK;
        wrong += !check_place(r, (enum vb_role)role);
    }
    return wrong == 0 ? arg : NULL;
}

static void run_ranks(int ranks, int threads)
{
    pthread_t ids[8];
    void *ok;
    int i;

    make_plan(ranks, threads);
    for (i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, rank_main, &placement->ranks[i]), 0);
    for (i = 0; i < ranks; i++) {
        pthread_join(ids[i], &ok);
        assert_ptr_equal(ok, &placement->ranks[i]);
    }
}

static void threads_run_where_the_plan_says(void **state)
{
    (void)state;
    run_ranks(1, 0);
    run_ranks(1, 1);
    run_ranks(2, 1);
}

/* With more threads than CPUs, no thread is pinned. The kernel schedules the threads, and all of
 * them must make progress. */
static void oversubscribed_threads_are_not_pinned(void **state)
{
    int threads = 2 * vb_topo_facts(topo)->n_allowed_cpus;

    (void)state;
    if (threads > 64)
        threads = 64;
    run_ranks(3, threads);
    run_ranks(8, 2);
}

static void *plan_with_narrow_affinity(void *arg)
{
    struct vb_topo_source source = {0};
    struct vb_placement_want want = {.ranks = 2, .progress = true};
    struct vb_topo *narrow;
    struct vb_placement *p;
    int cpu = placement->ranks[0].cpus.v[0];
    cpu_set_t one;
    bool ok;

    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0 || vb_topo_open(&source, &narrow) != VB_OK)
        return NULL;
    ok = vb_topo_facts(narrow)->n_allowed_cpus == 1 &&
         vb_topo_facts(narrow)->n_cpus == vb_topo_facts(topo)->n_cpus &&
         vb_placement_create(narrow, &want, &p) == VB_OK;
    if (ok) {
        ok = p->overlap && p->ranks[1].cpus.n == 1 && p->ranks[1].cpus.v[0] == cpu;
        vb_placement_destroy(p);
    }
    vb_topo_close(narrow);
    return ok ? arg : NULL;
}

static void affinity_limits_the_plan(void **state)
{
    pthread_t id;
    void *ok;

    (void)state;
    if (!allowed_anywhere_else())
        skip();
    make_plan(1, 1);
    assert_int_equal(pthread_create(&id, NULL, plan_with_narrow_affinity, topo), 0);
    pthread_join(id, &ok);
    assert_ptr_equal(ok, topo);
}

static void a_range_can_be_bound(void **state)
{
    struct vb_mem mem;

    (void)state;
    make_plan(1, 0);
    assert_int_equal(vb_mem_map_shared("verbena-test", 1 << 20, &mem), VB_OK);
    assert_int_equal(vb_placement_bind_range(topo, placement, 0, mem.ptr, mem.len_bytes), VB_OK);
    assert_int_equal(vb_mem_populate(&mem), VB_OK);
    vb_mem_unmap(&mem);
}

static void a_team_shrinks_to_one_thread(void **state)
{
    (void)state;
    vb_team_size(3);
    vb_team_less_one();
    assert_int_equal(omp_get_max_threads(), 2);
    vb_team_less_one();
    vb_team_less_one();
    assert_int_equal(omp_get_max_threads(), 1);
}

static void other_machines_and_ranks_are_refused(void **state)
{
    struct vb_topo_source source = {.synthetic = "pack:1 core:2 pu:1"};
    struct vb_topo *other;
    struct t_stderr t;
    char text[2048];

    (void)state;
    make_plan(1, 1);
    t_stderr_catch(&t);
    assert_int_equal(vb_topo_open(&source, &other), VB_OK);
    assert_int_equal(vb_placement_pin_team(other, placement, 0), VB_ERR_USAGE);
    assert_int_equal(vb_placement_pin(topo, placement, 1, VB_ROLE_LOADER), VB_ERR_USAGE);
    assert_int_equal(vb_placement_bind_memory(topo, placement, -1), VB_ERR_USAGE);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "cannot pin threads on synthetic"));
    assert_non_null(strstr(text, "there is no rank 1 in a placement of 1 ranks"));
    vb_topo_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_run_where_the_plan_says, open_machine,
                                        close_machine),
        cmocka_unit_test_setup_teardown(oversubscribed_threads_are_not_pinned, open_machine,
                                        close_machine),
        cmocka_unit_test_setup_teardown(affinity_limits_the_plan, open_machine, close_machine),
        cmocka_unit_test_setup_teardown(a_range_can_be_bound, open_machine, close_machine),
        cmocka_unit_test(a_team_shrinks_to_one_thread),
        cmocka_unit_test_setup_teardown(other_machines_and_ranks_are_refused, open_machine,
                                        close_machine),
    };

    return T_RUN(tests);
}
