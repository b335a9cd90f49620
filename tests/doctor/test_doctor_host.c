/* SPDX-License-Identifier: MIT
 *
 * Tests the checks of a host among others, and of what hosts should have in common.
 *
 * Covers: doctor/doctor_same.c doctor/facts_host.c
 */
#include "doctor/doctor.h"
#include "tests/support/fixtures/doctor_fixture.h"
#include "tests/support/sysroot.h"

static void name_of_the_host(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "name", VB_CHECK_OK, "not known", NULL);
    snprintf(m.facts.name, sizeof(m.facts.name), "node1");
    t_expect(&m.facts, "name", VB_CHECK_OK, "node1 has no address", NULL);
    snprintf(m.facts.name_address, sizeof(m.facts.name_address), "10.0.0.1");
    t_expect(&m.facts, "name", VB_CHECK_OK, "node1 is 10.0.0.1", NULL);

    /* Debian's line is harmless on a single machine. */
    snprintf(m.facts.name_address, sizeof(m.facts.name_address), "127.0.1.1");
    m.facts.name_is_loopback = true;
    t_expect(&m.facts, "name", VB_CHECK_OK, "no other host can reach", NULL);
    m.facts.several_hosts = true;
    t_expect(&m.facts, "name", VB_CHECK_WARN, "no other host can reach", NULL);
    m.ifaces[1].n_addrs = 1;
    snprintf(m.ifaces[1].addrs[0], sizeof(m.ifaces[1].addrs[0]), "10.0.0.1");
    t_expect(&m.facts, "name", VB_CHECK_WARN, "no other host can reach",
             "sudo sed -i 's/^127.0.1.1/10.0.0.1/' /etc/hosts");
}

static void calls_of_the_kernel(void **state)
{
    static const char fix[] = "sudo apt full-upgrade && sudo reboot # Linux 5.3 or newer; in a "
                              "container: --security-opt seccomp=unconfined";
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "kernel", VB_CHECK_OK, "Linux 6.1.0-18-amd64 has all system calls", NULL);
    snprintf(m.facts.missing_calls, sizeof(m.facts.missing_calls), "pidfd_open");
    t_expect(&m.facts, "kernel", VB_CHECK_WARN, "has no pidfd_open", fix);
    snprintf(m.facts.missing_calls, sizeof(m.facts.missing_calls), "pidfd_open, memfd_create");
    t_expect(&m.facts, "kernel", VB_CHECK_FAIL, "cannot share memory", fix);
}

static void programs_that_jobs_start(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "packages", VB_CHECK_OK, "ssh and gnuplot are there", NULL);
    m.facts.no_gnuplot = true;
    t_expect(&m.facts, "packages", VB_CHECK_OK, "gnuplot is missing",
             "sudo apt install gnuplot-nox");
    m.facts.no_ssh = true;
    t_expect(&m.facts, "packages", VB_CHECK_WARN, "ssh is missing, which --hosts needs; gnuplot",
             "sudo apt install openssh-client && sudo apt install gnuplot-nox");
}

static void kind_of_cpu(void **state)
{
    struct vb_facts facts;
    struct t_tree tree;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "proc/cpuinfo",
                "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_string_equal(facts.cpu, "implementer 0x41 variant 0x1 part 0xd40");
    vb_facts_fini(&facts);
    t_tree_text(&tree, "proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n");
    assert_int_equal(vb_facts_gather(tree.root, &facts), VB_OK);
    assert_string_equal(facts.cpu, "A CPU @ 2 GHz");
    vb_facts_fini(&facts);
    t_tree_destroy(&tree);
}

/* ---- several hosts --------------------------------------------------------------------------- */

static struct vb_kind kind(const char *host)
{
    struct vb_kind k = {
        .program = "abc", .cpu = "A CPU", .clock_ns = INT64_C(1700000000) * 1000000000};

    snprintf(k.host, sizeof(k.host), "%s", host);
    return k;
}

static void expect_same(const struct vb_kind *kinds, int n, const char *name,
                        enum vb_check_level level, const char *what, const char *fix)
{
    struct vb_check checks[VB_CHECKS_MAX];
    const struct vb_check *check = t_find(checks, vb_doctor_judge_same(kinds, n, checks), name);

    assert_non_null(check);
    assert_int_equal(check->level, level);
    if (strstr(check->what, what) == NULL || strstr(check->fix, fix) == NULL)
        fail_msg("%s: \"%s\", \"%s\"", name, check->what, check->fix);
}

static void hosts_are_compared(void **state)
{
    struct vb_kind k[] = {kind("a"), kind("b"), kind("c")};

    (void)state;
    expect_same(k, 3, "programs", VB_CHECK_OK, "the same program", "");
    expect_same(k, 3, "cpus", VB_CHECK_OK, "the same kind", "");
    expect_same(k, 3, "clocks", VB_CHECK_OK, "agree within a second", "");
    snprintf(k[2].program, sizeof(k[2].program), "abd");
    expect_same(k, 3, "programs", VB_CHECK_WARN, "c: another version",
                "scp \"$(command -v verbena)\" c:");
    snprintf(k[1].cpu, sizeof(k[1].cpu), "B CPU");
    expect_same(k, 3, "cpus", VB_CHECK_WARN, "b (B CPU): another kind of cpu than a (A CPU)",
                "leave these hosts out");
    k[1].clock_ns += 999000000;
    k[2].clock_ns -= INT64_C(3600) * 1000000000;
    expect_same(k, 3, "clocks", VB_CHECK_WARN,
                "c (-3600 s): the time of day differs from that of a", "set-ntp");
    k[0].clock_ns = INT64_MIN; /* a peer may say anything */
    k[2].clock_ns = INT64_MAX;
    expect_same(k, 3, "clocks", VB_CHECK_WARN, "b (+", "set-ntp");
}

static void many_hosts_are_not_all_named(void **state)
{
    struct vb_kind k[9];
    int i;

    (void)state;
    for (i = 0; i < 9; i++)
        k[i] = kind(i == 8 ? "last" : "other");
    snprintf(k[0].cpu, sizeof(k[0].cpu), "B CPU");
    expect_same(k, 9, "cpus", VB_CHECK_WARN,
                "other (A CPU), other (A CPU), other (A CPU), other (A CPU): ", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_of_the_host),         cmocka_unit_test(calls_of_the_kernel),
        cmocka_unit_test(programs_that_jobs_start), cmocka_unit_test(kind_of_cpu),
        cmocka_unit_test(hosts_are_compared),       cmocka_unit_test(many_hosts_are_not_all_named),
    };

    return T_RUN(tests);
}
