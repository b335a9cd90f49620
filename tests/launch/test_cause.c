/* SPDX-License-Identifier: MIT
 *
 * Tests how the supervisor finds the cause of a failure: what ranks say about lost peers, and the
 * kernel's counts of processes that were killed for memory, in a fake /proc and /sys.
 *
 * Covers: launch/supervise/oom.c launch/supervise/supervise_cause.c
 */
#include "launch/supervise/supervise_priv.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];

/* Writes a file below the fake root, with the folders above it. */
static void put_file(const char *path, const char *text)
{
    char full[256], *slash;
    FILE *f;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void new_root(void)
{
    snprintf(root, sizeof(root), "/tmp/verbena-cause-XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void remove_root(void)
{
    assert_int_equal(t_folder_remove(root), 0);
}

static void the_lost_peer_is_found(void **state)
{
    struct vb_causes c;
    int by = -1;

    (void)state;
    assert_int_equal(vb_causes_init(&c, 4, 4), VB_OK);
    assert_null(vb_causes_find(&c, 2, &by));
    vb_causes_take(&c, 2, " lost 1 silent for 3.0 s");
    assert_int_equal(vb_causes_find(&c, 2, &by)->peer, 1);
    assert_string_equal(vb_causes_find(&c, 2, &by)->why, "silent for 3.0 s");
    assert_int_equal(by, 2);
    vb_causes_take(&c, 1, " lost 3 the connection closed"); /* 2 lost 1, which had lost 3 */
    assert_int_equal(vb_causes_find(&c, 2, &by)->peer, 3);
    assert_int_equal(by, 1);
    vb_causes_take(&c, 3, " lost 1 silent"); /* a circle has an end */
    assert_non_null(vb_causes_find(&c, 2, &by));
    assert_int_equal(vb_causes_find(&c, 1, &by)->peer, 3);
    vb_causes_fini(&c);
}

/* A process that was started again has another number in the job than the one before. */
static void who_comes_back_has_another_number(void **state)
{
    struct vb_causes c;
    int by;

    (void)state;
    assert_int_equal(vb_causes_init(&c, 3, 3), VB_OK);
    c.numbers[1] = -1; /* started again */
    assert_int_equal(vb_causes_number(&c, 1), 1);
    vb_causes_take(&c, 0, " lost 1 late news of the one before");
    assert_null(vb_causes_find(&c, 0, &by));
    vb_causes_take(&c, 1, " number 7");
    assert_int_equal(vb_causes_number(&c, 1), 7);
    vb_causes_take(&c, 2, " lost 7 silent");
    assert_int_equal(vb_causes_find(&c, 2, &by)->peer, 1);
    assert_true(c.ends[1].lost);
    vb_causes_take(&c, 1, " number -3");
    assert_int_equal(vb_causes_number(&c, 1), 7);
    vb_causes_fini(&c);
}

/* Ranks that are added have no number until they say it, and say when they train. */
static void ranks_are_added(void **state)
{
    static const char *const bad[] = {" add 1 0 host", " add 1 65 host", " add 1 2", " add x 2 h",
                                      " trains -1"};
    struct vb_causes c;
    size_t i;

    (void)state;
    assert_int_equal(vb_causes_init(&c, 2, 4), VB_OK);
    for (i = 0; i < VB_COUNT(bad); i++)
        vb_causes_take(&c, 1, bad[i]);
    assert_int_equal(c.ask.n, 0);
    vb_causes_take(&c, 1, " add 5 2 user@host");
    assert_int_equal(c.ask.by, 1);
    assert_int_equal(c.ask.number, 5);
    assert_int_equal(c.ask.n, 2);
    assert_string_equal(c.ask.host, "user@host");
    vb_causes_take(&c, 2, " trains 9"); /* there is no such rank yet */
    vb_causes_grow(&c);
    assert_int_equal(c.trains[2], -1);
    vb_causes_take(&c, 2, " number 9");
    assert_int_equal(c.trains[2], -1);
    vb_causes_take(&c, 2, " trains 9");
    assert_int_equal(c.trains[2], 9);
    assert_int_equal(vb_causes_number(&c, 2), 9);
    vb_causes_fini(&c);
}

static void who_has_reported_may_be_a_stranger(void **state)
{
    struct vb_causes c;

    (void)state;
    assert_int_equal(vb_causes_init(&c, 2, 2), VB_OK);
    assert_int_equal(vb_causes_stranger(&c), -1);
    vb_causes_take(&c, 0, " over -2");
    assert_int_equal(vb_causes_stranger(&c), -1);
    vb_causes_take(&c, 0, " over 1");
    assert_int_equal(vb_causes_stranger(&c), -1);
    vb_causes_take(&c, 1, " number 5"); /* was started again */
    vb_causes_take(&c, 0, " over 5");
    assert_int_equal(vb_causes_stranger(&c), -1);
    vb_causes_take(&c, 1, " over 2");
    assert_int_equal(vb_causes_stranger(&c), 2);
    vb_causes_fini(&c);
}

static void invalid_news_are_ignored(void **state)
{
    static const char *const bad[] = {"",           " lost",     " lost 4 x",
                                      " lost -1 x", " lost 0 x", " found 1"};
    struct vb_causes c;
    size_t i;
    int by;

    (void)state;
    assert_int_equal(vb_causes_init(&c, 4, 4), VB_OK);
    for (i = 0; i < VB_COUNT(bad); i++)
        vb_causes_take(&c, 0, bad[i]);
    vb_causes_take(&c, 4, " lost 1 x");
    vb_causes_take(&c, -1, " lost 1 x");
    for (i = 0; i < 4; i++)
        assert_null(vb_causes_find(&c, (int)i, &by));
    vb_causes_fini(&c);
}

static void news_come_through_a_pipe(void **state)
{
    struct vb_causes c;
    char junk[5000];
    int fds[2], by;

    (void)state;
    assert_int_equal(vb_causes_init(&c, 3, 3), VB_OK);
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    assert_false(vb_causes_read(&c, fds[0]));
    assert_int_equal(write(fds[1], "0 lost 2 sil", 12), 12);
    assert_false(vb_causes_read(&c, fds[0]));
    assert_null(vb_causes_find(&c, 0, &by));
    assert_int_equal(write(fds[1], "ent\nbegun\n", 10), 10);
    assert_true(vb_causes_read(&c, fds[0]));
    assert_string_equal(vb_causes_find(&c, 0, &by)->why, "silent");
    memset(junk, 'x', sizeof(junk)); /* a line that no rank writes is dropped */
    assert_int_equal(write(fds[1], junk, sizeof(junk)), sizeof(junk));
    assert_int_equal(write(fds[1], "\n1 lost 2 closed\n", 17), 17);
    assert_false(vb_causes_read(&c, fds[0]));
    assert_int_equal(vb_causes_find(&c, 1, &by)->peer, 2);
    close(fds[0]);
    close(fds[1]);
    vb_causes_fini(&c);
}

static void explained(struct vb_oom *oom, const char *hint)
{
    siginfo_t info = {.si_code = CLD_KILLED};
    char why[512];

    info.si_status = SIGKILL;
    vb_death_explain(1, &info, false, oom, why, sizeof(why));
    assert_memory_equal(why, "rank 1 died: signal 9 (Killed)", 30);
    if (hint == NULL)
        assert_int_equal(strlen(why), 30);
    else
        assert_non_null(strstr(why, hint));
}

static void kills_are_counted_with_cgroups_2(void **state)
{
    struct vb_oom oom;

    (void)state;
    new_root();
    put_file("/proc/self/cgroup", "0::/a/b\n");
    put_file("/sys/fs/cgroup/a/b/memory.events", "low 0\noom 4\noom_kill 3\n");
    put_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put_file("/sys/fs/cgroup/a/memory.max", "512000000\n");
    vb_oom_init(&oom, root);
    explained(&oom, NULL);
    put_file("/sys/fs/cgroup/a/b/memory.events", "low 0\noom 4\noom_kill 5\n");
    explained(&oom, ": memory ran out (limit: 512 MB of cgroup /a)");
    explained(&oom, ": memory ran out"); /* two were killed */
    explained(&oom, NULL);
    remove_root();
}

static void kills_are_counted_with_cgroups_1(void **state)
{
    struct vb_oom oom;

    (void)state;
    new_root();
    put_file("/proc/self/cgroup", "4:memory:/job\n1:cpu:/\n0::/\n");
    put_file("/sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\noom_kill 0\n");
    put_file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    vb_oom_init(&oom, root);
    explained(&oom, NULL);
    put_file("/sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n");
    explained(&oom, "(limit: the memory of this host)");
    remove_root();
}

static void kills_are_counted_without_cgroups(void **state)
{
    struct vb_oom oom;

    (void)state;
    new_root();
    vb_oom_init(&oom, root); /* there is nothing to read */
    explained(&oom, NULL);
    put_file("/proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
    vb_oom_init(&oom, root);
    explained(&oom, NULL);
    put_file("/proc/vmstat", "nr_free_pages 5\noom_kill 8\n");
    explained(&oom, "(limit: the memory of this host)");
    remove_root();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lost_peer_is_found),
        cmocka_unit_test(who_comes_back_has_another_number),
        cmocka_unit_test(ranks_are_added),
        cmocka_unit_test(who_has_reported_may_be_a_stranger),
        cmocka_unit_test(invalid_news_are_ignored),
        cmocka_unit_test(news_come_through_a_pipe),
        cmocka_unit_test(kills_are_counted_with_cgroups_2),
        cmocka_unit_test(kills_are_counted_with_cgroups_1),
        cmocka_unit_test(kills_are_counted_without_cgroups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
