/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

static void line_has_level_place_and_rank(void **state)
{
    struct t_stderr t;
    char text[4096];

    (void)state;
    vb_log_set_level(VB_LEVEL_WARN);
    t_stderr_catch(&t);
    vb_log(VB_LEVEL_WARN, "net/tcp/tcp.c", "connect %s failed (try %d of %d)", "10.0.0.4:7000", 3,
           10);
    vb_log_set_rank(2);
    vb_log(VB_LEVEL_ERROR, "net/tcp/tcp.c", "gone");
    vb_log_set_rank(-1);
    VB_LOG_ERROR("here");
    t_stderr_release(&t, text, sizeof(text));
    assert_string_equal(text, "warn net/tcp/tcp: connect 10.0.0.4:7000 failed (try 3 of 10)\n"
                              "error net/tcp/tcp rank 2: gone\n"
                              "error tests/base/test_log: here\n");
}

static void the_level_selects_messages(void **state)
{
    struct t_stderr t;
    char text[4096];

    (void)state;
    t_stderr_catch(&t);
    vb_log_set_level(VB_LEVEL_ERROR);
    VB_LOG_WARN("no");
    vb_log_set_level(VB_LEVEL_DEBUG);
    VB_LOG_DEBUG("yes");
    VB_LOG_TRACE("no");
    vb_log_set_level(VB_LEVEL_WARN);
    VB_LOG_INFO("no");
    t_stderr_release(&t, text, sizeof(text));
    assert_string_equal(text, "debug tests/base/test_log: yes\n");
}

static void a_fix_follows_its_message(void **state)
{
    struct t_stderr t;
    char text[4096];

    (void)state;
    t_stderr_catch(&t);
    vb_log_set_level(VB_LEVEL_ERROR);
    VB_LOG_WARN("no");
    vb_log_fix("no");
    errno = EINTR;
    VB_LOG_ERROR("yes");
    vb_log_fix("echo %d", 1);
    assert_int_equal(errno, EINTR);
    vb_log_set_level(VB_LEVEL_WARN);
    errno = ENOSPC;
    (void)vb_err_sys("write");
    t_stderr_release(&t, text, sizeof(text));
    assert_string_equal(text,
                        "error tests/base/test_log: yes\n"
                        "  fix: echo 1\n"
                        "error tests/base/test_log: write: No space left on device\n"
                        "  fix: df -h   # make room there, or name a folder on another disk\n");
}

static void errno_is_preserved_and_printed(void **state)
{
    struct t_stderr t;
    char text[4096];

    (void)state;
    t_stderr_catch(&t);
    errno = ENOENT;
    VB_LOG_WARN("a warning");
    assert_int_equal(errno, ENOENT);
    assert_int_equal(vb_err_sys("open %s", "/x"), VB_ERR_NO_FILE);
    assert_int_equal(errno, ENOENT);
    errno = 0;
    assert_true(vb_err_sys("a call that left no errno") < 0);
    assert_int_equal(vb_err(VB_ERR_INPUT, "bad line %d", 7), VB_ERR_INPUT);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(
        strstr(text, "error tests/base/test_log: open /x: No such file or directory\n"));
    assert_non_null(strstr(text, "error tests/base/test_log: bad line 7\n"));
}

static void a_limit_of_memory_is_named(void **state)
{
    struct rlimit old, limit;
    struct t_stderr t;
    char text[4096];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    limit = old;
    limit.rlim_cur = (rlim_t)1 << 50; /* a limit that nothing reaches */
    if (old.rlim_cur != RLIM_INFINITY || setrlimit(RLIMIT_AS, &limit) != 0)
        skip();
    t_stderr_catch(&t);
    errno = ENOMEM;
    assert_int_equal(vb_err_sys("map"), VB_ERR_NO_MEMORY);
    assert_int_equal(vb_err(VB_ERR_NO_MEMORY, "no memory for %d rows", 7), VB_ERR_NO_MEMORY);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_int_equal(vb_err(VB_ERR_NO_MEMORY, "no limit"), VB_ERR_NO_MEMORY);
    t_stderr_release(&t, text, sizeof(text));
    assert_string_equal(text, "error tests/base/test_log: map: Cannot allocate memory; ulimit -v "
                              "allows this process 1073741824 MB\n"
                              "error tests/base/test_log: no memory for 7 rows: ulimit -v allows "
                              "this process 1073741824 MB\n"
                              "error tests/base/test_log: no limit\n");
}

static void long_lines_are_cut(void **state)
{
    struct t_stderr t;
    char text[8192], longer[5000];

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    t_stderr_catch(&t);
    VB_LOG_ERROR("%s", longer);
    errno = EIO;
    (void)vb_err_sys("%s", longer);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(strlen(text), 4096);
    assert_int_equal(text[2047], '\n');
    assert_int_equal(text[4095], '\n');
}

#define WRITERS 4
#define LINES 200

static void *write_lines(void *arg)
{
    int i, rank = *(int *)arg;

    vb_log_set_rank(rank);
    for (i = 0; i < LINES; i++)
        VB_LOG_WARN("line %d of writer %d", i, rank);
    return NULL;
}

/* Lines of ranks that log at the same time must be complete, and each must have the rank of its
 * thread. */
static void threads_do_not_mix_lines(void **state)
{
    static char text[1 << 18];
    int ranks[WRITERS], n = 0, i, a, b, c;
    pthread_t threads[WRITERS];
    struct t_stderr t;
    char *line, *rest = text;

    (void)state;
    t_stderr_catch(&t);
    for (i = 0; i < WRITERS; i++) {
        ranks[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &ranks[i]), 0);
    }
    for (i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    t_stderr_release(&t, text, sizeof(text));
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        assert_int_equal(
            sscanf(line, "warn tests/base/test_log rank %d: line %d of writer %d", &a, &b, &c), 3);
        assert_int_equal(a, c);
        n++;
    }
    assert_int_equal(n, WRITERS * LINES);
}

/* The first error of this process was logged by an earlier test. */
static void the_first_error_is_kept(void **state)
{
    char before[VB_FIRST_ERROR], text[256];
    struct t_stderr t;

    (void)state;
    t_stderr_catch(&t);
    vb_err(VB_ERR_INPUT, "one error");
    snprintf(before, sizeof(before), "%s", vb_log_first_error());
    vb_err(VB_ERR_INPUT, "another error");
    t_stderr_release(&t, text, sizeof(text));
    assert_true(before[0] != '\0');
    assert_string_equal(vb_log_first_error(), before);
    assert_null(strstr(before, "another"));
}

static void errors_are_caught(void **state)
{
    char text[256], why[32];
    struct t_stderr t;

    (void)state;
    t_stderr_catch(&t);
    vb_log_catch(why, sizeof(why));
    errno = ENOSPC;
    assert_true(vb_err_sys("cannot write") != VB_OK);
    vb_err(VB_ERR_INPUT, "a second error");
    vb_log_fix("not below an error that is not logged");
    VB_LOG_WARN("a warning");
    vb_log_catch(NULL, 0);
    vb_err(VB_ERR_INPUT, "a third error");
    t_stderr_release(&t, text, sizeof(text));
    assert_string_equal(why, "cannot write: No space left on ");
    assert_null(strstr(text, "cannot write"));
    assert_null(strstr(text, "second"));
    assert_null(strstr(text, "fix:"));
    assert_non_null(strstr(text, "a warning\n"));
    assert_non_null(strstr(text, "a third error\n"));
}

static void errors_of_one_kind_are_caught(void **state)
{
    char text[256], why[32];
    struct t_stderr t;

    (void)state;
    t_stderr_catch(&t);
    vb_log_catch_status(VB_ERR_PEER, why, sizeof(why));
    vb_err(VB_ERR_INPUT, "another error");
    vb_err(VB_ERR_PEER, "a lost peer");
    vb_log_catch(NULL, 0);
    t_stderr_release(&t, text, sizeof(text));
    assert_string_equal(why, "a lost peer");
    assert_null(strstr(text, "lost"));
    assert_non_null(strstr(text, "another error\n"));
}

static void lines_are_copied(void **state)
{
    char text[256], copy[256] = "";
    struct t_stderr t;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    t_stderr_catch(&t);
    vb_log_copy_to(fds[1]);
    VB_LOG_WARN("twice");
    vb_log_copy_to(-1);
    VB_LOG_WARN("once");
    t_stderr_release(&t, text, sizeof(text));
    assert_true(read(fds[0], copy, sizeof(copy) - 1) > 0);
    assert_non_null(strstr(copy, "twice\n"));
    assert_null(strstr(copy, "once"));
    assert_non_null(strstr(text, "twice\n"));
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_has_level_place_and_rank),
        cmocka_unit_test(the_level_selects_messages),
        cmocka_unit_test(a_fix_follows_its_message),
        cmocka_unit_test(errno_is_preserved_and_printed),
        cmocka_unit_test(a_limit_of_memory_is_named),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(threads_do_not_mix_lines),
        cmocka_unit_test(the_first_error_is_kept),
        cmocka_unit_test(errors_are_caught),
        cmocka_unit_test(errors_of_one_kind_are_caught),
        cmocka_unit_test(lines_are_copied),
    };

    return T_RUN(tests);
}
