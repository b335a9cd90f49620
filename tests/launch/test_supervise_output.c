/* SPDX-License-Identifier: MIT
 *
 * Tests how the supervisor passes on and logs the output of the ranks.
 *
 * Covers: launch/supervise/supervise_relay.c
 */
#include "tests/support/supervised.h"

#include <sys/stat.h>

#define RAW_BYTES 300001
#define MANY_LINES 5000
#define LONG_LINE 10000

/* ---- what ranks can do ----------------------------------------------------------------------- */

static unsigned char raw_byte(size_t i)
{
    return (unsigned char)(vb_crc32c(0, &i, sizeof(i)) >> 3);
}

static int do_raw(void)
{
    size_t i;

    for (i = 0; i < RAW_BYTES; i++)
        putchar(me.rank == 0 ? raw_byte(i) : 'x');
    return 0;
}

static int do_lines(void)
{
    int i;

    if (me.rank == 0)
        return 0;
    printf("one\n\ntwo\n");
    fflush(stdout);
    fprintf(stderr, "three\n");
    for (i = 0; i < LONG_LINE; i++)
        putchar('y');
    printf("\nno end");
    return 0;
}

static int do_many(void)
{
    int i;

    for (i = 0; i < MANY_LINES; i++)
        fprintf(stderr, "line %d of rank %d\n", i, me.rank);
    return 0;
}

static int do_slow(void)
{
    if (me.rank == 0)
        return do_raw();
    fprintf(stderr, "rank 1 is through\n");
    return 0;
}

/* Prints one line of progress and two other lines. */
static int do_show(void)
{
    if (!me.terminal)
        fprintf(stderr, "no terminal\n");
    if (!me.terminal || me.rank != 0)
        return getenv("VB_TERMINAL") != NULL;
    fprintf(stderr, VB_WIPE_LINE "step 1\n");
    fprintf(stderr, "hello\n");
    fprintf(stderr, VB_WIPE_LINE "\n"); /* there is no progress line to erase */
    printf("result\n");
    return 0;
}

/* Exits without erasing the progress line. */
static int do_show_only(void)
{
    if (me.rank == 0)
        fprintf(stderr, VB_WIPE_LINE "step 1\n");
    return 0;
}

static const struct part parts[] = {
    {"raw", do_raw},   {"lines", do_lines}, {"many", do_many},
    {"slow", do_slow}, {"show", do_show},   {"show-only", do_show_only},
};

/* ---- tests ----------------------------------------------------------------------------------- */

static void output_of_rank_0_is_unchanged(void **state)
{
    struct watched w;
    size_t i;

    (void)state;
    run(&w, 3, "raw");
    assert_int_equal(w.exit_code, 0);
    assert_int_equal(w.out_len, RAW_BYTES);
    for (i = 0; i < RAW_BYTES; i++)
        if ((unsigned char)w.out_text[i] != raw_byte(i))
            fail_msg("byte %zu differs", i);
    forget(&w);
}

static void other_lines_have_their_rank(void **state)
{
    const char *line;
    struct watched w;
    size_t n_long = 0;

    (void)state;
    run(&w, 2, "lines");
    assert_int_equal(w.exit_code, 0);
    assert_int_equal(w.out_len, 0);
    assert_non_null(strstr(w.err_text, "[rank 1] one\n[rank 1] \n[rank 1] two\n"));
    assert_non_null(strstr(w.err_text, "[rank 1] three\n"));
    assert_non_null(strstr(w.err_text, "\n[rank 1] no end\n"));
    for (line = w.err_text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_memory_equal(line, "[rank 1] ", 9);
        assert_true(strcspn(line, "\n") < 4096);
        n_long += line[9] == 'y' ? strcspn(line, "\n") - 9 : 0;
    }
    assert_int_equal(n_long, LONG_LINE);
    forget(&w);
}

/* Returns the bytes of a rank's log and deletes the log. The caller frees the bytes. */
static char *log_of(const char *dir, int rank, size_t *len_p)
{
    char path[300], *text = calloc(1, 1);
    int fd;

    snprintf(path, sizeof(path), "%s/rank-%d.log", dir, rank);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && text != NULL);
    for (*len_p = 0; take(fd, &text, len_p);)
        ;
    close(fd);
    unlink(path);
    return text;
}

/* A log must contain exactly the bytes of both output streams, without rank numbers. */
static void logs_contain_all_output_of_a_rank(void **state)
{
    char root[] = "/tmp/test_supervise.XXXXXX", dir[64], *text;
    struct watched w;
    size_t len, i;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(dir, sizeof(dir), "%s/of/job", root);
    logs = dir;
    run(&w, 2, "lines");
    forget(&w);
    free(log_of(dir, 0, &len));
    assert_int_equal(len, 0);
    text = log_of(dir, 1, &len);
    assert_int_equal(len, 9 + 6 + LONG_LINE + 7);
    assert_non_null(strstr(text, "three\n"));
    assert_non_null(strstr(text, "no end"));
    free(text);

    run(&w, 2, "raw");
    forget(&w);
    text = log_of(dir, 0, &len);
    assert_int_equal(len, RAW_BYTES);
    for (i = 0; i < len; i++)
        if ((unsigned char)text[i] != raw_byte(i))
            fail_msg("byte %zu differs", i);
    free(text);
    free(log_of(dir, 1, &len));
    assert_int_equal(len, RAW_BYTES);

    rmdir(dir);
    assert_int_equal(symlink("/dev/null/none", dir), 0);
    run(&w, 2, "raw");
    assert_int_equal(w.exit_code, 96);
    forget(&w);
    unlink(dir);
    snprintf(dir, sizeof(dir), "%s/of", root);
    rmdir(dir);
    assert_int_equal(rmdir(root), 0);
    logs = NULL;
}

/* A full disk ends the log, but not the job. */
static void a_log_that_cannot_be_written(void **state)
{
    char root[] = "/tmp/test_supervise.XXXXXX", path[64];
    struct watched w;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof(path), "%s/rank-1.log", root);
    assert_int_equal(symlink("/dev/full", path), 0);
    logs = root;
    run(&w, 2, "raw");
    assert_int_equal(w.exit_code, 0);
    assert_int_equal(w.out_len, RAW_BYTES);
    assert_non_null(
        strstr(w.err_text, "/rank-1.log, and this log ends here: No space left on device\n"));
    forget(&w);
    unlink(path);
    snprintf(path, sizeof(path), "%s/rank-0.log", root);
    unlink(path);
    assert_int_equal(rmdir(root), 0);
    logs = NULL;
}

/* The log is a FIFO. The supervisor must refuse it, because opening a FIFO would block until a
 * reader opens it. */
static void a_log_that_is_not_a_regular_file(void **state)
{
    char root[] = "/tmp/test_supervise.XXXXXX", path[64];
    struct watched w;
    int i, reader;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof(path), "%s/rank-0.log", root);
    assert_int_equal(mkfifo(path, 0600), 0);
    logs = root;
    for (i = 0; i < 2; i++) { /* first without a reader, then with one */
        reader = i == 0 ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        run(&w, 2, "raw");
        assert_int_equal(w.exit_code, 96);
        assert_non_null(strstr(w.err_text, "rank-0.log: the path exists and is not a file\n"));
        forget(&w);
        if (reader >= 0)
            close(reader);
    }
    unlink(path);
    assert_int_equal(rmdir(root), 0);
    logs = NULL;
}

/* Progress must be the last line of a terminal and must never mix with other lines. Without a
 * terminal, ranks must print no progress. */
static void progress_is_shown_only_on_terminals(void **state)
{
    char root[] = "/tmp/test_supervise.XXXXXX", *text;
    struct watched w;
    size_t len;

    (void)state;
    assert_non_null(mkdtemp(root));
    logs = root;
    on_terminal = true;
    run(&w, 2, "show");
    assert_int_equal(w.exit_code, 0);
    assert_string_equal(w.err_text, VB_WIPE_LINE "step 1" VB_WIPE_LINE "[rank 0] hello\r\n");
    assert_string_equal(w.out_text, "result\n");
    forget(&w);
    text = log_of(root, 0, &len);
    assert_true(strcmp(text, "hello\nresult\n") == 0 || strcmp(text, "result\nhello\n") == 0);
    free(text);
    free(log_of(root, 1, &len));
    assert_int_equal(rmdir(root), 0);
    logs = NULL;

    run(&w, 2, "show-only");
    assert_string_equal(w.err_text, VB_WIPE_LINE "step 1" VB_WIPE_LINE);
    forget(&w);
    on_terminal = false;

    setenv("VB_TERMINAL", "1", 1); /* another program may have set this variable */
    run(&w, 2, "show");
    unsetenv("VB_TERMINAL");
    assert_int_equal(w.exit_code, 0);
    assert_non_null(strstr(w.err_text, "[rank 0] no terminal\n"));
    assert_non_null(strstr(w.err_text, "[rank 1] no terminal\n"));
    assert_null(strstr(w.err_text, "step"));
    forget(&w);
}

static void concurrent_lines_are_not_mixed(void **state)
{
    int next[4] = {0}, rank, number, of;
    const char *line;
    struct watched w;

    (void)state;
    run(&w, 4, "many");
    assert_int_equal(w.exit_code, 0);
    for (line = w.err_text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_int_equal(sscanf(line, "[rank %d] line %d of rank %d\n", &rank, &number, &of), 3);
        assert_true(rank >= 0 && rank < 4 && of == rank && number == next[rank]);
        next[rank]++;
    }
    for (rank = 0; rank < 4; rank++)
        assert_int_equal(next[rank], MANY_LINES);
    forget(&w);
}

static void a_slow_reader_blocks_only_rank_0(void **state)
{
    struct watched w;

    (void)state;
    /* rank 0 writes more bytes than a pipe holds, and the test does not read them yet */
    start(&w, 2, "slow");
    await(&w, "[rank 1] rank 1 is through\n", 1);
    finish(&w);
    assert_int_equal(w.exit_code, 0);
    assert_int_equal(w.out_len, RAW_BYTES);
    forget(&w);
}

static void a_closed_output_ends_the_job(void **state)
{
    struct watched w;
    int null;

    (void)state;
    start(&w, 2, "raw");
    null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(null >= 0 && dup2(null, w.out) == w.out); /* closes the only reading end */
    close(null);
    finish(&w);
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "write to standard output: Broken pipe\n"));
    forget(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_of_rank_0_is_unchanged),
        cmocka_unit_test(other_lines_have_their_rank),
        cmocka_unit_test(logs_contain_all_output_of_a_rank),
        cmocka_unit_test(a_log_that_cannot_be_written),
        cmocka_unit_test(a_log_that_is_not_a_regular_file),
        cmocka_unit_test(progress_is_shown_only_on_terminals),
        cmocka_unit_test(concurrent_lines_are_not_mixed),
        cmocka_unit_test(a_slow_reader_blocks_only_rank_0),
        cmocka_unit_test(a_closed_output_ends_the_job),
    };
    int code = supervised_main(argc, argv, parts, VB_COUNT(parts));

    return code >= 0 ? code : T_RUN(tests);
}
