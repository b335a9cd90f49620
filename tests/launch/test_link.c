/* SPDX-License-Identifier: MIT
 *
 * Tests links between ranks: what the user may give, and that namespaces come and go. Tests single
 * child processes.
 *
 * Covers: launch/link.c launch/spawn.c
 */
#include "launch/launch.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* ---- links ----------------------------------------------------------------------------------- */

static void is_link(const char *text, double bits_per_s, double latency_ms)
{
    struct vb_link link;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_link_parse(text, &link, why), VB_OK);
    assert_float_equal(link.bits_per_s, bits_per_s, bits_per_s / 1e9);
    assert_float_equal(link.latency_ms, latency_ms, 1e-9);
}

static void test_parse(void **state)
{
    static const char *const wrong[] = {"",    "g",    "1x",    "1g:",    "1g:x", "-1g",
                                        "1gg", "1e99", "1g:-1", "1g:1e9", "1",    "1g:5:5"};
    struct vb_link link;
    char why[VB_OPTS_WHY];
    size_t i;

    (void)state;
    is_link("100m", 1e8, 0);
    is_link("1G", 1e9, 0);
    is_link("2.5g:0.5", 2.5e9, 0.5);
    is_link("64k:100", 64e3, 100);
    is_link("1000000", 1e6, 0);
    for (i = 0; i < VB_COUNT(wrong); i++) {
        assert_int_equal(vb_link_parse(wrong[i], &link, why), VB_ERR_USAGE);
        assert_non_null(strstr(why, "--link"));
    }
}

static void test_addresses(void **state)
{
    char text[VB_LINK_ADDRESS];

    (void)state;
    vb_links_address(0, text);
    assert_string_equal(text, "10.98.0.1");
    vb_links_address(250, text);
    assert_string_equal(text, "10.98.1.1");
}

/* Returns the number of this thread's network namespace. */
static void own_namespace(char name[64])
{
    ssize_t n = readlink("/proc/thread-self/ns/net", name, 63);

    assert_true(n > 0);
    name[n] = '\0';
}

static void test_namespaces(void **state)
{
    const struct vb_link link = {.bits_per_s = 1e8};
    struct vb_links *links;
    char why[VB_OPTS_WHY], before[64], inside[64], other[64], after[64];

    (void)state;
    if (vb_link_usable(why) != VB_OK || system("command -v tc >/dev/null") != 0) {
        print_message("not tested: %s\n", why);
        return;
    }
    own_namespace(before);
    if (vb_links_open(&link, 2, &links) != VB_OK) {
        print_message("not tested: the kernel cannot limit rates\n");
        return;
    }
    assert_int_equal(vb_links_enter(links, 0), VB_OK);
    own_namespace(inside);
    assert_int_equal(vb_links_enter(links, 1), VB_OK);
    own_namespace(other);
    assert_int_equal(system("ip -o addr show dev eth0 | grep -q 10.98.0.2/16"), 0);
    assert_int_equal(system("tc qdisc show dev eth0 | grep -q 'tbf.*100Mbit'"), 0);
    assert_int_equal(vb_links_leave(links), VB_OK);
    own_namespace(after);
    assert_string_equal(before, after);
    assert_string_not_equal(before, inside);
    assert_string_not_equal(inside, other);
    vb_links_close(links);
}

/* ---- children -------------------------------------------------------------------------------- */

static pid_t start(char *script)
{
    static char shell[] = "sh", flag[] = "-c";
    char *argv[] = {shell, flag, script, NULL};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct vb_spawn_opts o = {
        .program = "sh", .argv = argv, .in_fd = -1, .out_fd = null, .net_fd = -1};
    pid_t pid;

    assert_int_equal(vb_spawn_start(&o, &pid), VB_OK);
    close(null);
    return pid;
}

static void test_spawn(void **state)
{
    char exits[] = "exit 3", dies[] = "kill -9 $$", sleeps[] = "trap '' TERM; exec sleep 60";
    int code = -1;
    pid_t pid;

    (void)state;
    assert_true(vb_spawn_wait(start(exits), 10000, &code));
    assert_int_equal(code, 3);
    assert_true(vb_spawn_wait(start(dies), 10000, &code));
    assert_int_equal(code, 128 + SIGKILL);
    pid = start(sleeps);
    assert_false(vb_spawn_wait(pid, 50, &code));
    vb_spawn_stop(pid, 50); /* it ignores the request */
    assert_int_equal(kill(-pid, 0), -1);
}

static void test_no_program(void **state)
{
    static char name[] = "/none/such";
    char *argv[] = {name, NULL};
    struct vb_spawn_opts o = {
        .program = name, .argv = argv, .in_fd = -1, .out_fd = STDERR_FILENO, .net_fd = -1};
    int code;
    pid_t pid;

    (void)state;
    assert_int_equal(vb_spawn_start(&o, &pid), VB_OK);
    assert_true(vb_spawn_wait(pid, 10000, &code));
    assert_int_equal(code, 127);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),      cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_namespaces), cmocka_unit_test(test_spawn),
        cmocka_unit_test(test_no_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
