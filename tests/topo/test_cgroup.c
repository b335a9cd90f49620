/* SPDX-License-Identifier: MIT */
#include "tests/support/sysroot.h"
#include "tests/support/test.h"
#include "topo/topo.h"

static struct t_tree tree;

static int make_tree(void **state)
{
    (void)state;
    t_tree_create(&tree);
    return 0;
}

static int remove_tree(void **state)
{
    (void)state;
    t_tree_destroy(&tree);
    return 0;
}

static void put(const char *path, const char *text)
{
    t_tree_text(&tree, path, text);
}

static void assert_quota(double want)
{
    double got = vb_topo_cpu_quota(tree.root);

    assert_true(got > want - 1e-9 && got < want + 1e-9);
}

static void no_cgroup_no_limit(void **state)
{
    (void)state;
    assert_quota(0);
    put("proc/self/cgroup", "0::/\n");
    assert_quota(0);
}

static void version_2_takes_the_least_of_all_levels(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/user/job\n");
    put("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    assert_quota(0);
    put("sys/fs/cgroup/user/cpu.max", "150000 100000\n");
    assert_quota(1.5);
    put("sys/fs/cgroup/user/job/cpu.max", "400000 100000\n");
    assert_quota(1.5);
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_quota(0.5);
}

static void version_1_has_its_own_folder(void **state)
{
    (void)state;
    put("proc/self/cgroup", "12:memory:/m\n4:cpuacct,cpu:/job\n3:cpuset:/s\n");
    put("sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_period_us", "100000\n");
    assert_quota(0);
    put("sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_quota_us", "250000\n");
    assert_quota(2.5);
    /* this file must be ignored, because it belongs to the controller cpuset and not to cpu */
    put("sys/fs/cgroup/cpuset/s/cpu.cfs_quota_us", "1\n");
    assert_quota(2.5);
}

static void garbage_is_no_limit(void **state)
{
    (void)state;
    put("proc/self/cgroup", "\n:\n::\n0:\n0::\n\377\377:::\n0::/../../..\n4:cpu\n");
    put("sys/fs/cgroup/cpu.max", "many\n");
    assert_quota(0);
    put("sys/fs/cgroup/cpu.max", "100000\n");
    assert_quota(0);
    put("sys/fs/cgroup/cpu.max", "100000 0\n");
    assert_quota(0);
    put("sys/fs/cgroup/cpu.max", "-5 100000\n");
    assert_quota(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_cgroup_no_limit, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(version_2_takes_the_least_of_all_levels, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(version_1_has_its_own_folder, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(garbage_is_no_limit, make_tree, remove_tree),
    };

    return T_RUN(tests);
}
