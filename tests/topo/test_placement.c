/* SPDX-License-Identifier: MIT
 *
 * Tests placement on synthetic machines. make() checks every placement against the rules for all
 * machines. Each test then checks the placement on particular machines.
 */
#include "tests/support/machine.h"

static bool has(const struct vb_ints *ints, int value)
{
    int i;

    for (i = 0; i < ints->n; i++)
        if (ints->v[i] == value)
            return true;
    return false;
}

static bool subset(const struct vb_ints *small, const struct vb_ints *large)
{
    int i;

    for (i = 0; i < small->n; i++)
        if (!has(large, small->v[i]))
            return false;
    return true;
}

static void check_rank(const struct vb_placement_rank *r)
{
    int i;

    assert_true(r->cores.n >= 1);
    assert_true(r->cpus.n >= r->cores.n);
    assert_true(subset(&r->compute, &r->cpus));
    assert_true(subset(&r->others, &r->cpus));
    assert_true(r->others.n >= 1);
    assert_true(has(&r->cores, r->progress_core));
    if (r->progress_cpu >= 0)
        assert_true(has(&r->cpus, r->progress_cpu) && !has(&r->compute, r->progress_cpu));
    for (i = 1; i < r->cores.n; i++)
        assert_true(r->cores.v[i] > r->cores.v[i - 1]);
    if (placement->pinned)
        assert_int_equal(r->compute.n, placement->threads);
    else
        assert_int_equal(r->compute.n, 0);
}

/* Checks that all ranks have the same number of cores, and that no core belongs to two ranks unless
 * the placement says that ranks overlap. */
static void check_plan(void)
{
    int cores = vb_topo_facts(topo)->n_allowed_cores, a, b;

    assert_int_equal(placement->overlap, placement->n_ranks > cores);
    if (placement->overlap || !placement->pinned)
        assert_true(placement->note[0] != '\0');
    for (a = 0; a < placement->n_ranks; a++) {
        assert_int_equal(placement->ranks[a].rank, a);
        check_rank(&placement->ranks[a]);
        for (b = 0; b < a && !placement->overlap; b++) {
            assert_int_equal(placement->ranks[a].cores.n, placement->ranks[b].cores.n);
            assert_true(placement->ranks[a].cores.v[0] >
                        placement->ranks[b].cores.v[placement->ranks[b].cores.n - 1]);
        }
    }
}

static void make(const char *machine, const char *cpus, int ranks, int threads)
{
    struct vb_topo_source source = {.synthetic = machine, .cpus = cpus};
    struct vb_placement_want want = {.ranks = ranks, .threads = threads, .progress = true};

    close_machine(NULL);
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    assert_int_equal(vb_placement_create(topo, &want, &placement), VB_OK);
    check_plan();
}

static void assert_ints(const struct vb_ints *ints, int n, const int *want)
{
    int i;

    assert_int_equal(ints->n, n);
    for (i = 0; i < n; i++)
        assert_int_equal(ints->v[i], want[i]);
}

#define ASSERT_INTS(ints, ...)                                                                     \
    assert_ints(&(ints), sizeof((int[]){__VA_ARGS__}) / sizeof(int), (int[]){__VA_ARGS__})

static void every_machine_with_every_count(void **state)
{
    static const char *const machines[] = {
        "pu:1",
        "core:2 pu:1",
        "pack:1 core:4 pu:2",
        "pack:2 numa:1 core:8 pu:2",
        "pack:2 numa:2 l3:2 core:4 pu:1",
        "pack:4 numa:1 core:6 pu:2",
        "numa:4 core:3 pu:4",
        "pack:2 [numa] core:5 pu:1",
        "pack:3 l3:1 l2:3 core:1 pu:2",
    };
    size_t m;
    int ranks, threads;

    (void)state;
    for (m = 0; m < VB_COUNT(machines); m++)
        for (ranks = 1; ranks <= 40; ranks++)
            for (threads = 0; threads <= 9; threads += 1 + threads / 3)
                make(machines[m], NULL, ranks, threads);
}

static void four_ranks_on_two_packages(void **state)
{
    int i;

    (void)state;
    make("pack:2 numa:1 core:8 pu:2", NULL, 4, 0);
    for (i = 0; i < 4; i++) {
        assert_int_equal(placement->ranks[i].cores.n, 4);
        assert_int_equal(placement->ranks[i].package, i / 2);
        ASSERT_INTS(placement->ranks[i].nodes, i / 2);
    }
    ASSERT_INTS(placement->ranks[1].cores, 4, 5, 6, 7);
    ASSERT_INTS(placement->ranks[1].compute, 8, 10, 12, 14); /* one hyperthread of each core */
    assert_int_equal(placement->ranks[1].progress_cpu,
                     15); /* the other hyperthread of the last core */
    ASSERT_INTS(placement->ranks[1].others, 9, 11, 13);
    assert_true(placement->pinned);
    assert_int_equal(placement->threads, 4);
}

static void one_rank_uses_all_cores_but_one(void **state)
{
    (void)state;
    make("pack:2 numa:1 core:8 pu:1", NULL, 1, 0);
    assert_int_equal(placement->ranks[0].cores.n, 16);
    assert_int_equal(placement->ranks[0].package, -1);
    /* the rank uses all nodes, so its memory is not bound */
    assert_int_equal(placement->ranks[0].nodes.n, 0);
    assert_int_equal(placement->threads, 15);
    assert_true(placement->own_progress_core);
    assert_int_equal(placement->ranks[0].progress_cpu, 15);
    make("pack:1 core:4 pu:1", NULL, 1, 0);
    /* there are too few cores to reserve one for progress */
    assert_int_equal(placement->threads, 4);
    assert_int_equal(placement->ranks[0].progress_cpu, -1);
    assert_int_equal(placement->ranks[0].progress_core, 3);
}

static void requested_threads_leave_a_core_for_progress(void **state)
{
    (void)state;
    make("pack:2 numa:1 core:8 pu:1", NULL, 4, 3);
    assert_int_equal(placement->threads, 3);
    assert_int_equal(placement->ranks[3].cores.n, 4);
    assert_true(placement->own_progress_core);
    ASSERT_INTS(placement->ranks[3].compute, 12, 13, 14);
    assert_int_equal(placement->ranks[3].progress_cpu, 15);
    make("pack:2 numa:1 core:8 pu:1", NULL, 4, 4); /* the threads leave no core for progress */
    assert_false(placement->own_progress_core);
    assert_int_equal(placement->ranks[3].progress_cpu, -1);
}

static void a_rank_stays_within_a_cache_a_node_a_package(void **state)
{
    (void)state;
    make("pack:1 l3:4 core:4 pu:1", NULL, 4, 3);
    ASSERT_INTS(placement->ranks[1].cores, 4, 5, 6, 7);
    make("pack:2 numa:2 core:4 pu:1", NULL, 4, 0);
    ASSERT_INTS(placement->ranks[2].nodes, 2);
    make("pack:2 numa:2 core:4 pu:1", NULL, 2, 0);
    assert_int_equal(placement->ranks[1].package, 1);
    ASSERT_INTS(placement->ranks[1].nodes, 2, 3);
    /* two ranks per package, each on 2 of 5 cores; no rank spans two packages */
    make("pack:2 numa:1 core:5 pu:1", NULL, 4, 0);
    assert_int_equal(placement->ranks[1].package, 0);
    assert_int_equal(placement->ranks[2].package, 1);
    /* each rank gets 3 cores; one rank spans two packages, which is better than losing a third of
     * the cores */
    make("pack:2 numa:1 core:5 pu:1", NULL, 3, 0);
    assert_int_equal(placement->ranks[0].cores.n, 3);
    assert_int_equal(placement->ranks[1].package, -1);
}

static void uneven_nodes(void **state)
{
    (void)state;
    /* only 6 cores of node 0 and 2 cores of node 1 are allowed */
    make("numa:2 core:8 pu:1", "0-5,8,9", 4, 0);
    assert_int_equal(placement->ranks[0].cores.n, 2);
    ASSERT_INTS(placement->ranks[2].nodes, 0);
    ASSERT_INTS(placement->ranks[3].nodes, 1);
    ASSERT_INTS(placement->ranks[3].cores, 8, 9);
}

static void cores_of_a_cgroup_keep_their_numbers(void **state)
{
    (void)state;
    make("pack:2 numa:1 core:4 pu:2", "1,3,5,7,8-15", 2, 0);
    ASSERT_INTS(placement->ranks[0].cores, 0, 1, 2, 3);
    ASSERT_INTS(placement->ranks[0].compute, 1, 3, 5,
                7); /* the only allowed hyperthread of each core */
    assert_int_equal(placement->ranks[0].progress_cpu, -1);
    ASSERT_INTS(placement->ranks[1].compute, 8, 10, 12, 14);
    make("pack:2 core:4 pu:1", "1,3,5,7", 4, 0);
    ASSERT_INTS(placement->ranks[0].cores, 1);
    ASSERT_INTS(placement->ranks[3].cores, 7);
    assert_int_equal(vb_topo_facts(topo)->n_allowed_cpus, 4);
    assert_int_equal(vb_topo_facts(topo)->n_cpus, 8);
}

static void more_threads_than_cores(void **state)
{
    (void)state;
    /* there are fewer cores than threads, so hyperthreads are used */
    make("pack:1 core:4 pu:2", NULL, 2, 4);
    ASSERT_INTS(placement->ranks[1].compute, 4, 6, 5, 7);
    assert_true(placement->pinned);
    assert_non_null(strstr(placement->note, "hyperthreads"));
    /* there are fewer CPUs than threads, so nothing is pinned */
    make("pack:1 core:4 pu:1", NULL, 2, 3);
    assert_false(placement->pinned);
    ASSERT_INTS(placement->ranks[1].cpus, 2, 3);
    assert_int_equal(placement->ranks[1].progress_cpu, -1);
    assert_non_null(strstr(placement->note, "no thread is pinned"));
}

static void more_ranks_than_cores(void **state)
{
    (void)state;
    make("pack:1 core:2 pu:1", NULL, 3, 0);
    assert_true(placement->overlap);
    assert_false(placement->pinned);
    assert_int_equal(placement->threads, 1);
    ASSERT_INTS(placement->ranks[2].cpus, 0, 1);
    ASSERT_INTS(placement->ranks[2].others, 0, 1);
    assert_string_equal(placement->note,
                        "3 ranks share 2 cores: ranks overlap, no thread is pinned to "
                        "one core, and each rank slows the others");
    make("pack:2 numa:1 core:2 pu:1", NULL, 6, 0); /* each rank still stays within one package */
    assert_int_equal(placement->ranks[2].package, 0);
    assert_int_equal(placement->ranks[3].package, 1);
    /* ranks are distributed in proportion to the packages' 4 cores and 1 core */
    make("pack:2 numa:1 core:4 pu:1", "0-3,4", 10, 0);
    assert_int_equal(placement->ranks[7].package, 0);
    assert_int_equal(placement->ranks[8].package, 1);
}

static void no_progress_thread_if_not_requested(void **state)
{
    struct vb_topo_source source = {.synthetic = "pack:1 core:8 pu:1"};
    struct vb_placement_want want = {.ranks = 1};

    (void)state;
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    assert_int_equal(vb_placement_create(topo, &want, &placement), VB_OK);
    assert_int_equal(placement->threads, 8);
    assert_int_equal(placement->ranks[0].progress_core, -1);
}

static void impossible_requests_are_refused(void **state)
{
    static const struct vb_placement_want wants[] = {{.ranks = 0},
                                                     {.ranks = -1},
                                                     {.ranks = 4097},
                                                     {.ranks = 1, .threads = 4097},
                                                     {.ranks = 1, .threads = -1}};
    struct vb_topo_source source = {.synthetic = "pack:1 core:8 pu:1"};
    struct t_stderr t;
    char text[4096];
    size_t i;

    (void)state;
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    t_stderr_catch(&t);
    for (i = 0; i < VB_COUNT(wants); i++)
        assert_int_equal(vb_placement_create(topo, &wants[i], &placement), VB_ERR_USAGE);
    t_stderr_release(&t, text, sizeof(text));
    assert_null(placement);
}

static void largest_plan(void **state)
{
    (void)state;
    make("pack:4 numa:2 l3:4 core:8 pu:2", NULL, VB_PLACEMENT_RANKS_MAX, VB_PLACEMENT_THREADS_MAX);
    make("pack:4 numa:2 l3:4 core:8 pu:2", NULL, 1, VB_PLACEMENT_THREADS_MAX);
    make("pack:4 numa:2 l3:4 core:8 pu:2", NULL, 256, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_machine_with_every_count, close_machine),
        cmocka_unit_test_teardown(four_ranks_on_two_packages, close_machine),
        cmocka_unit_test_teardown(one_rank_uses_all_cores_but_one, close_machine),
        cmocka_unit_test_teardown(requested_threads_leave_a_core_for_progress, close_machine),
        cmocka_unit_test_teardown(a_rank_stays_within_a_cache_a_node_a_package, close_machine),
        cmocka_unit_test_teardown(uneven_nodes, close_machine),
        cmocka_unit_test_teardown(cores_of_a_cgroup_keep_their_numbers, close_machine),
        cmocka_unit_test_teardown(more_threads_than_cores, close_machine),
        cmocka_unit_test_teardown(more_ranks_than_cores, close_machine),
        cmocka_unit_test_teardown(no_progress_thread_if_not_requested, close_machine),
        cmocka_unit_test_teardown(impossible_requests_are_refused, close_machine),
        cmocka_unit_test_teardown(largest_plan, close_machine),
    };

    return T_RUN(tests);
}
