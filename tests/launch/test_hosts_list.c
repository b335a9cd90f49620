/* SPDX-License-Identifier: MIT
 *
 * Tests lists of hosts from the command line and from files, and the lines that a launcher and its
 * ranks send to each other.
 *
 * Covers: launch/hosts.c launch/launch_stdin.c
 */
#include "launch/launch.h"
#include "tests/support/sysroot.h"
#include "tests/support/test.h"

static struct vb_hosts parsed(const char *text)
{
    struct vb_hosts hosts;

    assert_int_equal(vb_hosts_parse(text, &hosts), VB_OK);
    return hosts;
}

static void refused(const char *text, const char *why)
{
    struct vb_hosts hosts;
    struct t_stderr err;
    char said[1024];
    vb_status st;

    t_stderr_catch(&err);
    st = vb_hosts_parse(text, &hosts);
    t_stderr_release(&err, said, sizeof(said));
    assert_true(st < 0);
    if (strstr(said, why) == NULL)
        fail_msg("hosts %s: the message \"%s\" does not contain \"%s\"", text, said, why);
}

static void a_list_of_hosts(void **state)
{
    struct vb_hosts hosts = parsed("a,user@b:2,[fd99::1]:3,user@[fd99::2],c-1.example.org:1");

    (void)state;
    assert_int_equal(hosts.n, 5);
    assert_int_equal(hosts.ranks, 8);
    assert_string_equal(hosts.list[0].name, "a");
    assert_int_equal(hosts.list[0].slots, 1);
    assert_string_equal(hosts.list[1].name, "user@b");
    assert_int_equal(hosts.list[1].slots, 2);
    assert_int_equal(hosts.list[1].first_rank, 1);
    assert_string_equal(hosts.list[2].name, "fd99::1");
    assert_int_equal(hosts.list[2].slots, 3);
    assert_string_equal(hosts.list[3].name, "user@fd99::2");
    assert_int_equal(hosts.list[4].first_rank, 7);
    assert_string_equal(vb_hosts_of_rank(&hosts, 0)->name, "a");
    assert_string_equal(vb_hosts_of_rank(&hosts, 2)->name, "user@b");
    assert_string_equal(vb_hosts_of_rank(&hosts, 7)->name, "c-1.example.org");
    assert_null(vb_hosts_of_rank(&hosts, 8));
    vb_hosts_fini(&hosts);
}

/* Host names become arguments of ssh, so no name may be an option or contain a command. */
static void invalid_names_are_refused(void **state)
{
    static const char *const names[] = {
        "",        "a,",         ",a",       "a,,b",    "-l",   "-oProxyCommand=x",
        "a b",     "a;b",        "$(x)",     "a'b",     "a@",   "@a",
        "user@-l", "a:0",        "a:",       "a:-1",    "a:+1", "a:1x",
        "a:2:3",   "fd99::1",    "[fd99::1", "[fd99]2", "[]:2", "a\n",
        "a\\b",    "a:99999999", "[-l]",     "a:1025",  "a`b`", "user@[]",
        "a=b",     "*",          "a:1.5",    "a\xff",
    };
    char long_name[600];
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(names); i++)
        refused(names[i], "is not a host");
    memset(long_name, 'a', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    refused(long_name, "too long");
    refused("a,b,a:2", "host a is listed twice");
    refused("a:1000,b:1000", "more than 1024 ranks");
}

static void a_file_of_hosts(void **state)
{
    struct vb_hosts hosts;
    char path[PATH_MAX];
    struct t_tree tree;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "hosts", "# all\n\n a \nb:2\r\nc slots=3 # three\n\td\tslots=1\n");
    t_tree_path(&tree, "hosts", path);
    hosts = parsed(path);
    assert_int_equal(hosts.n, 4);
    assert_int_equal(hosts.ranks, 7);
    assert_string_equal(hosts.list[2].name, "c");
    assert_int_equal(hosts.list[2].slots, 3);
    vb_hosts_fini(&hosts);

    t_tree_text(&tree, "hosts", "# none\n");
    refused(path, "lists no host");
    t_tree_text(&tree, "hosts", "a\nb max_slots=2\n");
    refused(path, "hosts:2: \"b max_slots=2\" is not a host");
    t_tree_text(&tree, "hosts", "a\n# b\n\nbad host name!\n");
    refused(path, "hosts:4: \"bad host\" is not a host");
    t_tree_text(&tree, "hosts", "a\nb\na:2\n");
    refused(path, "hosts:3: host a is listed twice");
    t_tree_text(&tree, "hosts", "a:1000\nb:1000\n");
    refused(path, "hosts:2: the hosts have more than 1024 ranks");
    t_tree_garbage(&tree, "hosts", 5000);
    refused(path, "");
    refused(tree.root, "not a file");
    refused("/none/hosts", "No such file");
    t_tree_destroy(&tree);
}

static void a_hello_is_parsed(void **state)
{
    static const char *const not_hello[] = {
        "",
        "verbena-rank 1",
        "verbena-rank 1 aarch64",
        "verbena-rank 1 aarch64 abc",
        "verbena-rank 2 aarch64 abc -",
        "verbena-rank 1 aarch64 abc - more",
        "verbena-rank 1 a-machine-with-a-name-that-is-far-too-long abc -",
        "welcome",
    };
    struct vb_hello hello, own;
    char line[400];
    size_t i;

    (void)state;
    assert_true(vb_hello_parse("verbena-rank 1 aarch64 0123abcd 10.0.0.1:4000", &hello));
    assert_true(vb_hello_parse("\033]0;a title\007verbena-rank 1 x86_64 0123abcd -", &hello));
    assert_string_equal(hello.machine, "x86_64");
    assert_true(vb_hello_parse("verbena-rank 1 aarch64 0123abcd 10.0.0.1:4000", &hello));
    assert_string_equal(hello.machine, "aarch64");
    assert_string_equal(hello.sha256, "0123abcd");
    assert_string_equal(hello.root, "10.0.0.1:4000");
    for (i = 0; i < VB_COUNT(not_hello); i++)
        assert_false(vb_hello_parse(not_hello[i], &hello));
    memset(line, 'a', sizeof(line));
    memcpy(line, "verbena-rank 1 b c ", 19);
    line[sizeof(line) - 1] = '\0';
    assert_false(vb_hello_parse(line, &hello));

    assert_int_equal(vb_hello_own(&own), VB_OK);
    assert_int_equal(strlen(own.sha256), 64);
    assert_true(own.machine[0] != '\0');
}

static void the_answer_has_root_and_secret(void **state)
{
    unsigned char secret[VB_SECRET_BYTES];
    char line[512], expected[128];
    int i, n;

    (void)state;
    for (i = 0; i < VB_SECRET_BYTES; i++)
        secret[i] = (unsigned char)(i * 9);
    n = vb_launch_answer(line, sizeof(line), "10.0.0.1:4000", secret);
    assert_int_equal(n, strlen(line));
    snprintf(expected, sizeof(expected), "10.0.0.1:4000 0009121b24");
    assert_memory_equal(line, expected, strlen(expected));
    assert_int_equal(n, 14 + 64 + 1);
    assert_true(line[n - 1] == '\n');
}

/* A launcher passes its options to the ranks on other hosts, except secrets and options that
 * concern only the launcher. */
static void options_are_passed_to_other_hosts(void **state)
{
    struct vb_launch launch = {.rank = 2, .world = 5, .local_rank = 1, .local_ranks = 3};
    bool option = false, rank = false, how = false;
    char **words;
    int i;

    (void)state;
    snprintf(launch.root, sizeof(launch.root), "a:0");
    setenv("VB_TRANSPORT", "tcp", 1);
    setenv("VB_SECRET", "feed", 1);
    setenv("VB_SECRET_FILE", "feed", 1);
    setenv("VB_HOSTS", "a,b", 1);
    setenv("VB_RANK", "7", 1);
    words = vb_launch_assignments_create(&launch);
    assert_non_null(words);
    for (i = 0; words[i] != NULL; i++) {
        assert_int_equal(strncmp(words[i], "VB_", 3), 0);
        assert_null(strstr(words[i], "feed"));
        assert_null(strstr(words[i], "VB_HOSTS"));
        option |= strcmp(words[i], "VB_TRANSPORT=tcp") == 0;
        rank |= strcmp(words[i], "VB_RANK=2") == 0;
        how |= strcmp(words[i], "VB_LAUNCH=stdin") == 0;
        assert_string_not_equal(words[i], "VB_RANK=7");
    }
    assert_true(option && rank && how);
    vb_launch_env_destroy(words);
    unsetenv("VB_TRANSPORT");
    unsetenv("VB_SECRET");
    unsetenv("VB_SECRET_FILE");
    unsetenv("VB_HOSTS");
    unsetenv("VB_RANK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_hosts),
        cmocka_unit_test(invalid_names_are_refused),
        cmocka_unit_test(a_file_of_hosts),
        cmocka_unit_test(a_hello_is_parsed),
        cmocka_unit_test(the_answer_has_root_and_secret),
        cmocka_unit_test(options_are_passed_to_other_hosts),
    };

    return T_RUN(tests);
}
