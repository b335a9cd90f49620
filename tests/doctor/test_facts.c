/* SPDX-License-Identifier: MIT
 *
 * Tests the facts that are gathered about a machine, and what doctor concludes from them, on
 * recorded machines, on hostile inputs, and on this machine.
 *
 * Covers: doctor/facts_cpu.c
 */
#include "doctor/doctor.h"
#include "tests/support/fixtures/doctor_fixture.h"
#include "tests/support/sysroot.h"

static void a_recorded_cloudlab_node_is_fine(void **state)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct vb_facts facts;
    int i, n;

    (void)state;
    assert_int_equal(vb_facts_gather(VB_TEST_DIR "/sysroots/cloudlab", &facts), VB_OK);
    assert_true(facts.recorded);
    assert_string_equal(facts.distro, "ubuntu");
    assert_int_equal(facts.memlock.soft, 64 * MIB);
    assert_true(facts.memlock.hard == VB_LIMIT_NONE);
    assert_false(facts.may_lock);
    assert_int_equal(facts.huge_total, 512);
    assert_int_equal(facts.memory_bytes, 131600120 * INT64_C(1024));
    assert_int_equal(facts.n_governed, 4);
    n = vb_doctor_judge(&facts, checks);
    for (i = 0; i < n; i++)
        /* Memlock may have another level, because the recorded soft limit is only 64 MiB. */
        if (strcmp(checks[i].name, "memlock") != 0)
            assert_int_equal(checks[i].level, VB_CHECK_OK);
    assert_non_null(strstr(t_said(checks, n, "rdma-gids"), "mlx5_2 port 1"));
    /* mlx5_0 is not listed, because it belongs to the control network. */
    assert_null(strstr(t_said(checks, n, "rdma-gids"), "mlx5_0"));
    vb_facts_fini(&facts);
    assert_null(facts.ifaces);
}

static void a_recorded_laptop_has_faults(void **state)
{
    struct vb_facts facts;

    (void)state;
    assert_int_equal(vb_facts_gather(VB_TEST_DIR "/sysroots/laptop", &facts), VB_OK);
    assert_string_equal(facts.distro, "debian");
    assert_int_equal(facts.n_cpus, 4);
    assert_int_equal(facts.n_allowed_cpus, 3);
    assert_int_equal(facts.n_slow_governed, 3);
    assert_string_equal(facts.governor, "powersave");
    assert_true(facts.cpu_quota == 1.5);
    assert_int_equal(facts.memory_limit_bytes, GIB);
    assert_int_equal(facts.files.hard, 512);
    t_expect(&facts, "soft-roce", VB_CHECK_OK, "wlp2s0",
             "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev wlp2s0");
    vb_facts_fini(&facts);
}

static void cgroups_of_version_1_are_read(void **state)
{
    static const char *const files[] = {"sys/fs/cgroup/memory/memory.limit_in_bytes",
                                        "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                                        "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"};
    struct vb_facts facts;
    struct t_tree tree;
    size_t i;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n0::/\n");
    for (i = 0; i < VB_COUNT(files); i++)
        t_tree_text(&tree, files[i], "9223372036854771712\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_int_equal(facts.memory_limit_bytes, 0);
    vb_facts_fini(&facts);

    /* The smallest limit of the group and all its parents counts. */
    t_tree_text(&tree, files[1], "1000000000\n");
    t_tree_text(&tree, files[2], "2000000000\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_int_equal(facts.memory_limit_bytes, 1000000000);
    vb_facts_fini(&facts);

    /* the path leads out of this container */
    t_tree_text(&tree, "proc/self/cgroup", "4:memory:/../../a\n");
    t_tree_text(&tree, "sys/fs/a/memory.limit_in_bytes", "1000000000\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_int_equal(facts.memory_limit_bytes, 0);
    vb_facts_fini(&facts);
    t_tree_destroy(&tree);
}

static void the_capability_to_lock_memory_is_one_bit(void **state)
{
    struct vb_facts facts;
    struct t_tree tree;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "proc/self/status", "CapPrm:\t0\nCapEff:\t0000000000004000\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_true(facts.may_lock);
    vb_facts_fini(&facts);
    t_tree_text(&tree, "proc/self/status", "CapPrm:\t4000\nCapEff:\tffffffffffffbfff\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_false(facts.may_lock);
    vb_facts_fini(&facts);
    t_tree_destroy(&tree);
}

static void garbage_is_survived(void **state)
{
    static const char *const files[] = {
        "proc/self/cgroup",
        "proc/self/limits",
        "proc/self/status",
        "proc/meminfo",
        "proc/modules",
        "proc/sys/kernel/osrelease",
        "etc/os-release",
        "sys/devices/system/cpu/online",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "sys/devices/system/clocksource/clocksource0/available_clocksource",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/kernel/mm/transparent_hugepage/shmem_enabled",
    };
    struct vb_check checks[VB_CHECKS_MAX];
    struct vb_facts facts;
    struct t_tree tree;
    size_t i;

    (void)state;
    t_tree_create(&tree);
    for (i = 0; i < VB_COUNT(files); i++)
        t_tree_garbage(&tree, files[i], 65536);
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_true(facts.memlock.hard == VB_LIMIT_UNKNOWN);
    assert_true(vb_doctor_judge(&facts, checks) > 0);
    vb_facts_fini(&facts);
    t_tree_destroy(&tree);
}

static void absurd_numbers_are_survived(void **state)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct vb_facts facts;
    struct t_tree tree;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "sys/devices/system/cpu/online", "0-18446744073709551615,3-1,7");
    t_tree_text(&tree, "proc/self/status", "CapEff: zz\nCpus_allowed_list: 5-2,9-\n");
    t_tree_text(&tree, "proc/meminfo", "MemTotal: 9223372036854775807 kB\nHugePages_Total: -5\n");
    t_tree_text(&tree, "proc/self/limits", "Max open files -3 99999999999999999999 files\n");
    t_tree_text(&tree, "sys/kernel/mm/transparent_hugepage/enabled", "[a-setting-far-too-long-x]");
    t_tree_text(&tree, "sys/kernel/mm/transparent_hugepage/shmem_enabled", "][");
    t_tree_text(&tree, "etc/os-release", "ID=\"\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_int_equal(facts.n_cpus, 0);
    assert_int_equal(facts.memory_bytes, 0);
    assert_int_equal(facts.huge_total, 0);
    assert_true(facts.files.hard == VB_LIMIT_UNKNOWN);
    assert_string_equal(facts.thp, "");
    assert_string_equal(facts.distro, "");
    assert_true(vb_doctor_judge(&facts, checks) > 0);
    vb_facts_fini(&facts);
    t_tree_destroy(&tree);
}

/* This machine must pass the checks that a job needs, because these tests use files, memory and
 * CPUs themselves. */
static void this_machine_would_run_a_job(void **state)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct vb_facts facts;
    int i, n;

    (void)state;
    assert_int_equal(vb_facts_gather("", &facts), VB_OK);
    assert_false(facts.recorded);
    assert_true(facts.n_cpus >= 1 && facts.n_allowed_cpus >= 1);
    assert_true(facts.memlock.hard >= facts.memlock.soft);
    n = vb_doctor_judge(&facts, checks);
    assert_true(n >= 12);
    for (i = 0; i < n; i++)
        assert_int_not_equal(checks[i].level, VB_CHECK_FAIL);
    vb_facts_fini(&facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_cloudlab_node_is_fine),
        cmocka_unit_test(a_recorded_laptop_has_faults),
        cmocka_unit_test(cgroups_of_version_1_are_read),
        cmocka_unit_test(the_capability_to_lock_memory_is_one_bit),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(absurd_numbers_are_survived),
        cmocka_unit_test(this_machine_would_run_a_job),
    };

    return T_RUN(tests);
}
