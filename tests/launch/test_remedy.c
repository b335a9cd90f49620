/* SPDX-License-Identifier: MIT
 *
 * Tests what is proposed if a host cannot be used.
 */
#include "launch/supervise/supervise_priv.h"
#include "tests/support/test.h"

#include <string.h>

static void expect(const char *said, const char *why, const char *fix)
{
    const struct vb_remedy *remedy = vb_remedy_find(said);
    char text[400];

    assert_non_null(remedy);
    assert_non_null(strstr(remedy->why, why));
    vb_remedy_fill(remedy->fix[0], "vera@node1", "/opt/verbena", text, sizeof(text));
    if (strncmp(text, fix, strlen(fix)) != 0)
        fail_msg("%s: \"%s\" does not begin with \"%s\"", said, text, fix);
}

static void the_words_of_ssh_are_known(void **state)
{
    (void)state;
    expect("Host key verification failed.", "known_hosts", "ssh-keyscan -H node1 >>");
    expect("vera@node1: Permission denied (publickey).", "password", "ssh-copy-id vera@node1 ");
    expect("ssh: Could not resolve hostname node1: Name or service not known", "no address",
           "getent hosts node1 ");
    expect("ssh: connect to host node1 port 22: Connection refused", "no sshd", "on node1: sudo");
    expect("ssh: connect to host node1 port 22: No route to host", "down", "ping -c 3 node1 ");
    expect("ssh: connect to host node1 port 22: Connection timed out", "firewall",
           "ping -c 3 node1");
    expect("could not execute ssh", "no such ssh", "sudo apt install openssh-client");
    expect("there is no program /opt/verbena", "missing",
           "scp /opt/verbena vera@node1:/opt/verbena ");
    expect("its architecture is riscv64, not x86_64", "one architecture", "ssh vera@node1 uname");
}

static void other_words_have_no_remedy(void **state)
{
    (void)state;
    assert_null(vb_remedy_find(""));
    assert_null(vb_remedy_find("welcome to node1"));
    assert_null(vb_remedy_find("Permission denied")); /* a file, not a login */
}

static void long_names_are_cut(void **state)
{
    char name[600], text[64];

    (void)state;
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    vb_remedy_fill("ping %n now", name, "/p", text, sizeof(text));
    assert_int_equal(strlen(text), sizeof(text) - 1);
    vb_remedy_fill("plain", name, "/p", text, sizeof(text));
    assert_string_equal(text, "plain");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_words_of_ssh_are_known),
        cmocka_unit_test(other_words_have_no_remedy),
        cmocka_unit_test(long_names_are_cut),
    };

    return T_RUN(tests);
}
