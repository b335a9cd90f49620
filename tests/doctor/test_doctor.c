/* SPDX-License-Identifier: MIT
 *
 * Tests every branch of the checks that do not concern the network, with invented facts.
 */
#include "tests/support/fixtures/doctor_fixture.h"

static void a_good_machine_is_ok(void **state)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct t_machine m;
    int i, j, n;

    (void)state;
    t_make_good(&m);
    n = vb_doctor_judge(&m.facts, checks);
    assert_int_equal(n, 17);
    for (i = 0; i < n; i++) {
        assert_int_equal(checks[i].level, VB_CHECK_OK);
        assert_true(checks[i].what[0] != '\0');
        assert_string_equal(checks[i].fix, "");
        for (j = 0; j < i; j++)
            assert_string_not_equal(checks[i].name, checks[j].name);
    }
    assert_string_equal(vb_check_level_str(VB_CHECK_OK), "OK");
    assert_string_equal(vb_check_level_str(VB_CHECK_WARN), "WARN");
    assert_string_equal(vb_check_level_str(VB_CHECK_FAIL), "FAIL");
}

static void memlock(void **state)
{
    static const char fix[] =
        "printf '%s\\n' '* - memlock unlimited' 'root - memlock unlimited' | sudo tee "
        "/etc/security/limits.d/90-verbena-memlock.conf # then log in again";
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "memlock", VB_CHECK_OK, "unlimited", NULL);
    m.facts.memlock = (struct vb_limit){8 * MIB, 256 * MIB};
    t_expect(&m.facts, "memlock", VB_CHECK_WARN, "8 MiB (hard limit 256 MiB), but RDMA",
             "ulimit -S -l $(ulimit -H -l)");
    m.facts.memlock = (struct vb_limit){256 * MIB, 256 * MIB};
    t_expect(&m.facts, "memlock", VB_CHECK_OK, "RDMA needs 256 MiB", NULL);
    m.facts.memlock = (struct vb_limit){MIB / 16, 256 * MIB - 1};
    t_expect(&m.facts, "memlock", VB_CHECK_WARN, "64 KiB", fix);
    m.facts.may_lock = true;
    t_expect(&m.facts, "memlock", VB_CHECK_OK, "does not apply to this user", NULL);
    m.facts.memlock = (struct vb_limit){VB_LIMIT_UNKNOWN, VB_LIMIT_UNKNOWN};
    t_expect(&m.facts, "memlock", VB_CHECK_OK, "not known", NULL);
}

static void open_files(void **state)
{
    static const char fix[] = "printf '%s\\n' '* - nofile 65536' 'root - nofile 65536' | sudo tee "
                              "/etc/security/limits.d/90-verbena-nofile.conf # then log in again";
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "files", VB_CHECK_OK, "limited to 1024 (hard limit 1048576)", NULL);
    m.facts.files = (struct vb_limit){256, VB_LIMIT_NONE};
    t_expect(&m.facts, "files", VB_CHECK_WARN, "256 (hard limit unlimited), but a job of many",
             "ulimit -S -n 1024");
    m.facts.files = (struct vb_limit){63, VB_LIMIT_NONE};
    t_expect(&m.facts, "files", VB_CHECK_FAIL, "63 (hard limit unlimited)", "ulimit -S -n 1024");
    m.facts.files = (struct vb_limit){VB_LIMIT_NONE, VB_LIMIT_NONE};
    t_expect(&m.facts, "files", VB_CHECK_OK, "not limited", NULL);
    m.facts.files = (struct vb_limit){64, 1023};
    t_expect(&m.facts, "files", VB_CHECK_WARN, "many ranks", fix);
    m.facts.files = (struct vb_limit){64, 64};
    t_expect(&m.facts, "files", VB_CHECK_WARN, "many ranks", fix);
    m.facts.files = (struct vb_limit){63, 63};
    t_expect(&m.facts, "files", VB_CHECK_FAIL, "single rank needs 64", fix);
    m.facts.files.hard = VB_LIMIT_UNKNOWN;
    t_expect(&m.facts, "files", VB_CHECK_OK, "not known", NULL);
}

static void shared_memory(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "shm", VB_CHECK_OK, "works", NULL);
    m.facts.shm = VB_ERR_UNSUPPORTED;
    t_expect(&m.facts, "shm", VB_CHECK_FAIL, vb_status_str(VB_ERR_UNSUPPORTED), NULL);
    m.facts.recorded = true;
    t_expect(&m.facts, "shm", VB_CHECK_OK, "recording", NULL);
}

static void huge_pages(void **state)
{
    static const char fix_private[] =
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
    static const char fix_shared[] =
        "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled";
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "hugepages", VB_CHECK_OK, "madvise for private memory, advise for shared",
             NULL);
    snprintf(m.facts.thp, sizeof(m.facts.thp), "never");
    t_expect(&m.facts, "hugepages", VB_CHECK_WARN, "never for private", fix_private);
    snprintf(m.facts.thp, sizeof(m.facts.thp), "always");
    snprintf(m.facts.shmem_thp, sizeof(m.facts.shmem_thp), "deny");
    t_expect(&m.facts, "hugepages", VB_CHECK_WARN, "(deny, 0 reserved)", fix_shared);
    m.facts.huge_total = 512;
    m.facts.huge_free = 500;
    m.facts.huge_page_kib = 2048;
    t_expect(&m.facts, "hugepages", VB_CHECK_OK, "512 huge pages of 2048 KiB are reserved", NULL);
    m.facts.huge_total = 0;
    m.facts.thp[0] = m.facts.shmem_thp[0] = '\0';
    t_expect(&m.facts, "hugepages", VB_CHECK_WARN, "no transparent huge pages",
             "sudo sysctl -w vm.nr_hugepages=512");
    m.facts.recorded = true;
    m.facts.memory_bytes = 0;
    t_expect(&m.facts, "hugepages", VB_CHECK_OK, "nothing about huge pages", NULL);
}

static void governor(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "governor", VB_CHECK_OK, "all 8 cpus have the frequency governor perf",
             NULL);
    m.facts.n_slow_governed = 1;
    snprintf(m.facts.governor, sizeof(m.facts.governor), "powersave");
    t_expect(&m.facts, "governor", VB_CHECK_WARN,
             "1 of 8 cpus have the frequency governor powersave",
             "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
    m.facts.n_governed = m.facts.n_slow_governed = 0;
    t_expect(&m.facts, "governor", VB_CHECK_OK, "does not control", NULL);
}

static void affinity(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "affinity", VB_CHECK_OK, "8 of 8", NULL);
    m.facts.n_allowed_cpus = 3;
    t_expect(&m.facts, "affinity", VB_CHECK_WARN, "3 of 8",
             "taskset -pc 0-7 $$ # or give the container more cpus");
    m.facts.n_allowed_cpus = m.facts.n_cpus = 0;
    t_expect(&m.facts, "affinity", VB_CHECK_FAIL, "hwloc", NULL);
    m.facts.recorded = true;
    t_expect(&m.facts, "affinity", VB_CHECK_OK, "not recorded", NULL);
}

static void cgroup(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "cgroup", VB_CHECK_OK, "no limit on cpu time; no limit on memory", NULL);
    m.facts.cpu_quota = 8;
    t_expect(&m.facts, "cgroup", VB_CHECK_OK, "limited to that of 8.0 cpus", NULL);
    m.facts.cpu_quota = 3.5;
    t_expect(&m.facts, "cgroup", VB_CHECK_WARN, "3.5 cpus, fewer than the 8",
             "export VB_THREADS=3");
    m.facts.cpu_quota = 0.5;
    t_expect(&m.facts, "cgroup", VB_CHECK_WARN, "0.5 cpus", "export VB_THREADS=1");
    m.facts.cpu_quota = 0;
    m.facts.memory_limit_bytes = 4 * GIB;
    t_expect(&m.facts, "cgroup", VB_CHECK_OK, "memory is limited to 4.0 GiB", NULL);
    m.facts.memory_limit_bytes = 512 * MIB;
    t_expect(&m.facts, "cgroup", VB_CHECK_WARN, "512 MiB, too little for AlexNet", NULL);
}

static void kernels(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "kernels", VB_CHECK_OK, "dense kernels use oneDNN 3.7.2", NULL);
    m.facts.onednn.conv_reference = m.facts.onednn.inner_reference = true;
    t_expect(&m.facts, "kernels", VB_CHECK_OK, "dense kernels use OpenBLAS 0.3.21", NULL);
    snprintf(m.facts.blas.core, sizeof(m.facts.blas.core), "Generic");
    t_expect(&m.facts, "kernels", VB_CHECK_WARN, "generic kernels",
             "sudo apt install --only-upgrade libopenblas0-pthread");
    snprintf(m.facts.blas.core, sizeof(m.facts.blas.core), "Haswell");
    m.facts.onednn_status = VB_ERR_UNSUPPORTED;
    t_expect(&m.facts, "kernels", VB_CHECK_WARN, "oneDNN failed",
             "sudo apt install --reinstall 'libdnnl[0-9]*'");
    m.facts.recorded = true;
    t_expect(&m.facts, "kernels", VB_CHECK_OK, "recording", NULL);
}

static void clock_source(void **state)
{
    static const char *const good[] = {"tsc", "arch_sys_counter", "kvm-clock", "timebase"};
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"};
    struct t_machine m;
    size_t i;

    (void)state;
    t_make_good(&m);
    for (i = 0; i < VB_COUNT(good); i++) {
        snprintf(m.facts.clock, sizeof(m.facts.clock), "%s", good[i]);
        t_expect(&m.facts, "clock", VB_CHECK_OK, good[i], NULL);
    }
    for (i = 0; i < VB_COUNT(slow); i++) {
        snprintf(m.facts.clock, sizeof(m.facts.clock), "%s", slow[i]);
        t_expect(&m.facts, "clock", VB_CHECK_WARN, "slow to read",
                 "echo tsc | sudo tee "
                 "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    }
    snprintf(m.facts.clocks, sizeof(m.facts.clocks), "hpet tsc-early acpi_pm");
    t_expect(&m.facts, "clock", VB_CHECK_WARN, "slow to read", NULL);
    m.facts.clock[0] = '\0';
    t_expect(&m.facts, "clock", VB_CHECK_OK, "not known", NULL);
}

/* If there are more devices and interfaces than the text can list, the text is cut and no buffer
 * overflows. */
static void long_texts_are_cut(void **state)
{
    enum { MANY = 200 };
    static struct vb_iface ifaces[MANY];
    static struct vb_rdma_dev devs[MANY];
    struct vb_check checks[VB_CHECKS_MAX];
    struct t_machine m;
    int i, n;

    (void)state;
    t_make_good(&m);
    for (i = 0; i < MANY; i++) {
        ifaces[i] = m.ifaces[1];
        devs[i] = m.dev;
    }
    m.facts.ifaces = ifaces;
    m.facts.rdma = devs;
    m.facts.n_ifaces = m.facts.n_rdma = MANY;
    n = vb_doctor_judge(&m.facts, checks);
    for (i = 0; i < n; i++)
        assert_true(strlen(checks[i].what) < sizeof(checks[i].what));
    assert_int_equal(strlen(t_said(checks, n, "rdma")), sizeof(checks[0].what) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_machine_is_ok),
        cmocka_unit_test(memlock),
        cmocka_unit_test(open_files),
        cmocka_unit_test(shared_memory),
        cmocka_unit_test(huge_pages),
        cmocka_unit_test(governor),
        cmocka_unit_test(affinity),
        cmocka_unit_test(cgroup),
        cmocka_unit_test(kernels),
        cmocka_unit_test(clock_source),
        cmocka_unit_test(long_texts_are_cut),
    };

    return T_RUN(tests);
}
