/* SPDX-License-Identifier: MIT
 *
 * Tests the supervisor, which runs in a child process of the test. The ranks run this program
 * again, as "test_supervise --as WORD". The word selects what they do.
 *
 * Covers: launch/launch_begun.c launch/supervise_relay.c launch/supervise_signal.c
 * Covers: launch/supervise_spawn.c
 */
#include "launch/launch.h"
#include "tests/support/test.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define GRACE_MS 150
#define RAW_BYTES 300001
#define MANY_LINES 5000
#define LONG_LINE 10000

/* ---- what ranks can do ----------------------------------------------------------------------- */

static struct vb_launch me;

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

static int do_launch(void)
{
    int listening = 0;
    socklen_t len = sizeof(listening);

    if (me.root_fd >= 0)
        getsockopt(me.root_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
    fprintf(stderr, "%d of %d, %d of %d here, %s, %s, secret %08x\n", me.rank, me.world,
            me.local_rank, me.local_ranks, strncmp(me.root, "127.0.0.1:", 10) == 0 ? "root" : "?",
            listening ? "listens" : "does not listen",
            (unsigned)vb_crc32c(0, me.secret, sizeof(me.secret)));
    return getenv("VB_SECRET_FD") != NULL || getenv("VB_RANK") != NULL || getenv("HOME") == NULL;
}

/* Prints "up" and the process id, and sleeps for a minute. */
static int do_wait(void)
{
    fprintf(stderr, "up %ld\n", (long)getpid());
    sleep(60);
    return 0;
}

/* Does nothing. But SIGCONT interrupts the sleep, so the process ends when it is continued after a
 * stop. */
static void went_on(int number)
{
    (void)number;
}

static int do_short(void)
{
    struct sigaction action = {.sa_handler = went_on};

    sigaction(SIGCONT, &action, NULL);
    return do_wait();
}

static int do_stubborn(void)
{
    signal(SIGTERM, SIG_IGN);
    return do_wait();
}

static int do_die(void)
{
    if (me.rank == 1)
        raise(SIGKILL);
    return do_wait();
}

/* Rank 2 fails after training has begun, so the job could continue without it. But the other ranks
 * are stopped. */
static int do_still(void)
{
    vb_launch_tell_begun(&me);
    if (me.rank == 2)
        return 3;
    raise(SIGSTOP);
    return 0;
}

/* Rank 2 fails after all ranks have printed two lines. These lines must not make the supervisor
 * believe that training has begun. The first line once had this effect. The second line has it only
 * over ssh, and only with the secret of the job. */
static int do_forge(void)
{
    char line[VB_BEGUN_TEXT];

    fprintf(stderr, "\033[mtraining has begun\n");
    if (me.over_ssh)
        me.secret[0] ^= 1;
    if (vb_launch_begun_line(me.secret, line) != VB_OK)
        return 97;
    fprintf(stderr, "%s\n", line);
    return me.rank == 2 ? 3 : do_wait();
}

static int do_slow(void)
{
    if (me.rank == 0)
        return do_raw();
    fprintf(stderr, "rank 1 is through\n");
    return 0;
}

/* Leaves a process behind, which keeps the pipes open. */
static int do_leave(void)
{
    if (me.rank == 1 && fork() == 0)
        sleep(60);
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

static int do_usage(void)
{
    return me.rank == 1 ? 2 : 0;
}

/* Rank 1 exits first, but only because rank 0 is about to give up. */
static int do_late_usage(void)
{
    struct timespec nap = {.tv_nsec = 20000000};

    if (me.rank == 1)
        return 1;
    nanosleep(&nap, NULL);
    return 2;
}

static int do_fail(void)
{
    return me.rank == 1 ? 3 : 0;
}

static const struct {
    const char *word;
    int (*run)(void);
} parts[] = {{"raw", do_raw},
             {"lines", do_lines},
             {"many", do_many},
             {"launch", do_launch},
             {"wait", do_wait},
             {"die", do_die},
             {"stubborn", do_stubborn},
             {"slow", do_slow},
             {"leave", do_leave},
             {"usage", do_usage},
             {"fail", do_fail},
             {"still", do_still},
             {"forge", do_forge},
             {"short", do_short},
             {"show", do_show},
             {"show-only", do_show_only},
             {"late-usage", do_late_usage}};

static int run_as(const char *word)
{
    size_t i;

    if (vb_launch_read(&me) != VB_OK || !me.supervised)
        return 99;
    for (i = 0; i < VB_COUNT(parts); i++)
        if (strcmp(parts[i].word, word) == 0)
            return parts[i].run();
    return 98;
}

/* ---- watching a supervisor ------------------------------------------------------------------- */

struct watched {
    pid_t pid;
    int out, err;
    char *out_text, *err_text;
    size_t out_len, err_len;
    int exit_code; /* exit code of the supervisor; -1: it was killed */
    double seconds;
    uint64_t begin_ns;
};

static const char *program; /* program of the ranks; NULL: this program */
static const char *logs;    /* folder of the logs; NULL: no logs */
static bool on_terminal;    /* whether standard error is a terminal */
static bool outlive;        /* the job may continue if a rank fails, except if rank 0 fails */
static bool over_ssh;       /* ranks are started over ssh, and this program plays ssh */

static _Noreturn void supervise(int ranks, const char *word, const int out[2], const int err[2])
{
    static char name[] = "test_supervise", flag[] = "--as";
    char copy[32], self[PATH_MAX] = "", ssh[PATH_MAX + 16];
    char *argv[] = {name, flag, copy, NULL};
    struct vb_hosts hosts;
    struct vb_supervise_opts o = {.ranks = ranks,
                                  .program = program,
                                  .argv = argv,
                                  .grace_ms = GRACE_MS,
                                  .logs = logs,
                                  .outlive = outlive,
                                  .vital_end = 1,
                                  .workers = ranks};
    int code = 97;

    snprintf(copy, sizeof(copy), "%s", word);
    if (over_ssh) {
        if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 ||
            vb_hosts_parse("localhost,127.0.0.1,127.0.0.2", &hosts) != VB_OK)
            _exit(95);
        snprintf(ssh, sizeof(ssh), "%s --ssh", self);
        o.ssh = ssh;
        o.hosts = &hosts;
    }
    signal(SIGINT, SIG_DFL);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    close(out[0]);
    close(err[0]);
    close(out[1]);
    close(err[1]);
    if (vb_supervise(&o, &code) != VB_OK)
        code = 96;
    _exit(code);
}

/* Opens a pseudoterminal. Like pipe2(), stores the reading end in fds[0] and the writing end in
 * fds[1]. */
static void open_terminal(int fds[2])
{
    fds[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(fds[0] >= 0);
    assert_int_equal(grantpt(fds[0]), 0);
    assert_int_equal(unlockpt(fds[0]), 0);
    fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(fds[1] >= 0);
}

static void start(struct watched *w, int ranks, const char *word)
{
    int out[2], err[2];

    memset(w, 0, sizeof(*w));
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    if (on_terminal)
        open_terminal(err);
    else
        assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    w->begin_ns = vb_clock_ns();
    w->pid = fork();
    assert_true(w->pid >= 0);
    if (w->pid == 0)
        supervise(ranks, word, out, err);
    close(out[1]);
    close(err[1]);
    w->out = out[0];
    w->err = err[0];
    w->out_text = calloc(1, 1);
    w->err_text = calloc(1, 1);
    assert_true(w->out_text != NULL && w->err_text != NULL);
}

/* Reads once and appends the bytes to the text, which always ends with a zero byte. Returns false
 * at the end of the input. */
static bool take(int fd, char **text, size_t *len)
{
    ssize_t n;

    *text = realloc(*text, *len + 65537);
    assert_non_null(*text);
    n = read(fd, *text + *len, 65536);
    if (n < 0 && errno == EIO) /* the last process has closed the terminal */
        n = 0;
    assert_true(n >= 0);
    *len += (size_t)n;
    (*text)[*len] = '\0';
    return n > 0;
}

/* Reads standard error until it contains the word at least `times` times. */
static void await(struct watched *w, const char *word, int times)
{
    const char *at;
    int n = 0;

    while (n < times) {
        assert_true(take(w->err, &w->err_text, &w->err_len));
        for (n = 0, at = w->err_text; (at = strstr(at, word)) != NULL; at++)
            n++;
    }
}

static void finish(struct watched *w)
{
    struct pollfd fds[2] = {{.fd = w->out, .events = POLLIN}, {.fd = w->err, .events = POLLIN}};
    int status;

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        assert_true(poll(fds, 2, 60000) > 0);
        if (fds[0].revents != 0 && !take(w->out, &w->out_text, &w->out_len))
            fds[0].fd = -1;
        if (fds[1].revents != 0 && !take(w->err, &w->err_text, &w->err_len))
            fds[1].fd = -1;
    }
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    w->seconds = (double)(vb_clock_ns() - w->begin_ns) / 1e9;
    w->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    close(w->out);
    close(w->err);
}

static void forget(struct watched *w)
{
    free(w->out_text);
    free(w->err_text);
}

static void run(struct watched *w, int ranks, const char *word)
{
    start(w, ranks, word);
    finish(w);
}

/* Asserts that the n processes whose ids the ranks printed have ended. If the supervisor was
 * killed, these processes are children of the test, because the test is the reaper of its
 * descendants. Otherwise the supervisor has reaped them. */
static void ranks_are_gone(const struct watched *w, int n)
{
    const char *at = w->err_text;
    int i, status;
    long pid;

    for (i = 0; i < n; i++) {
        at = strstr(at, "up ");
        assert_non_null(at);
        pid = strtol(at + 3, NULL, 10);
        at += 3;
        if (waitpid((pid_t)pid, &status, 0) == pid)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(kill((pid_t)pid, 0) != 0 && errno == ESRCH);
    }
}

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

static void ranks_get_their_environment(void **state)
{
    char first[64], second[64];
    struct watched w;

    (void)state;
    setenv("VB_RANK", "7", 1); /* another program may have set this variable */
    run(&w, 2, "launch");
    unsetenv("VB_RANK");
    assert_int_equal(w.exit_code, 0);
    assert_non_null(strstr(w.err_text, "[rank 0] 0 of 2, 0 of 2 here, root, listens, secret "));
    assert_non_null(strstr(w.err_text, "1 of 2, 1 of 2 here, root, does not listen, secret "));
    assert_int_equal(sscanf(strstr(w.err_text, "secret"), "secret %63s", first), 1);
    assert_int_equal(sscanf(strrchr(w.err_text, ' '), " %63s", second), 1);
    assert_string_equal(first, second);
    forget(&w);
}

static void a_death_is_named_and_ends_the_others(void **state)
{
    struct watched w;

    (void)state;
    run(&w, 3, "die");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 1 died: signal 9 (Killed)\n"));
    assert_null(strstr(w.err_text, "rank 0 died"));
    assert_null(strstr(w.err_text, "rank 2 died"));
    assert_true(w.seconds >= GRACE_MS / 1e3 && w.seconds < 30);
    forget(&w);
}

static void the_exit_code_is_that_of_the_job(void **state)
{
    struct watched w;

    (void)state;
    run(&w, 2, "usage");
    assert_int_equal(w.exit_code, 2);
    assert_non_null(strstr(w.err_text, "rank 1 failed with exit code 2\n"));
    forget(&w);
    run(&w, 2, "late-usage");
    assert_int_equal(w.exit_code, 2);
    assert_non_null(strstr(w.err_text, "rank 1 failed with exit code 1\n"));
    assert_non_null(strstr(w.err_text, "rank 0 failed with exit code 2\n"));
    forget(&w);
    run(&w, 2, "fail");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 1 failed with exit code 3\n"));
    forget(&w);
    program = "/nonexistent/verbena";
    run(&w, 2, "raw");
    program = NULL;
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "could not execute /nonexistent/verbena\n"));
    forget(&w);
}

static void a_rank_that_ignores_sigterm_is_killed(void **state)
{
    struct watched w;

    (void)state;
    start(&w, 3, "stubborn");
    await(&w, "up ", 3);
    kill((pid_t)strtol(strstr(w.err_text, "[rank 0] up ") + 12, NULL, 10), SIGUSR1);
    finish(&w);
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 0 died: signal 10 (User defined signal 1)\n"));
    assert_true(w.seconds >= 2 * GRACE_MS / 1e3 && w.seconds < 30);
    ranks_are_gone(&w, 3);
    forget(&w);
}

/* Stopped ranks do not react to SIGTERM, so the supervisor must kill them. The test has two stopped
 * ranks, and then three. */
static void stopped_survivors_are_killed(void **state)
{
    struct watched w;
    int ranks;

    (void)state;
    outlive = true;
    for (ranks = 3; ranks <= 4; ranks++) {
        run(&w, ranks, "still");
        assert_int_equal(w.exit_code, 1);
        assert_non_null(strstr(w.err_text, "rank 2 failed with exit code 3; training goes on\n"));
        assert_non_null(strstr(w.err_text, "rank 0 is stopped, and no other rank is left"));
        assert_non_null(strstr(w.err_text, "rank 1 is stopped, and no other rank is left"));
        assert_true((strstr(w.err_text, "rank 3 is stopped") != NULL) == (ranks == 4));
        assert_true(w.seconds >= 2 * GRACE_MS / 1e3 && w.seconds < 30);
        forget(&w);
    }
    outlive = false;
}

/* Only a message through the pipe tells the supervisor that training has begun. Printed lines must
 * not have this effect. */
static void printed_lines_do_not_steer(void **state)
{
    struct watched w;

    (void)state;
    outlive = true;
    run(&w, 3, "forge");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 2 failed with exit code 3\n"));
    assert_null(strstr(w.err_text, "training goes on"));
    assert_non_null(strstr(w.err_text, "[rank 0] \033[mtraining has begun\n"));
    assert_non_null(strstr(w.err_text, "[rank 0] verbena-begun 1 "));
    assert_true(w.seconds < 30);
    forget(&w);
    over_ssh = true;
    run(&w, 3, "forge");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 2 on host 127.0.0.2 failed with exit code 3\n"));
    assert_null(strstr(w.err_text, "training goes on"));
    forget(&w);
    outlive = over_ssh = false;
}

/* Over ssh, a line on standard error tells the supervisor that training has begun. The supervisor
 * must not show this line to the user. */
static void training_has_begun_over_ssh(void **state)
{
    struct watched w;

    (void)state;
    outlive = over_ssh = true;
    run(&w, 3, "still");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(
        strstr(w.err_text, "rank 2 on host 127.0.0.2 failed with exit code 3; training goes on\n"));
    assert_null(strstr(w.err_text, "verbena-begun"));
    forget(&w);
    outlive = over_ssh = false;
}

/* If a rank fails before training has begun, the job must end. */
static void all_ranks_are_needed_before_training(void **state)
{
    struct watched w;

    (void)state;
    outlive = true;
    run(&w, 3, "die");
    assert_int_equal(w.exit_code, 1);
    assert_non_null(strstr(w.err_text, "rank 1 died: signal 9"));
    assert_null(strstr(w.err_text, "training"));
    assert_true(w.seconds < 30);
    forget(&w);
    outlive = false;
}

/* If all ranks are stopped and no rank has failed, the job is only paused. */
static void a_paused_job_continues(void **state)
{
    struct watched w;
    pid_t pid[2];
    int i;

    (void)state;
    outlive = true;
    start(&w, 2, "short");
    await(&w, "up ", 2);
    for (i = 0; i < 2; i++) {
        pid[i] = (pid_t)strtol(strstr(w.err_text, i == 0 ? "[rank 0] up " : "[rank 1] up ") + 12,
                               NULL, 10);
        assert_int_equal(kill(pid[i], SIGSTOP), 0);
    }
    poll(NULL, 0, 4 * GRACE_MS);
    for (i = 0; i < 2; i++)
        assert_int_equal(kill(pid[i], SIGCONT), 0);
    finish(&w);
    assert_int_equal(w.exit_code, 0);
    assert_null(strstr(w.err_text, "stopped"));
    forget(&w);
    outlive = false;
}

static void ended_by(int number, int code)
{
    struct watched w;

    start(&w, 3, "wait");
    await(&w, "up ", 3);
    assert_int_equal(kill(w.pid, number), 0);
    finish(&w);
    assert_int_equal(w.exit_code, code);
    assert_true(w.seconds < 30);
    assert_null(strstr(w.err_text, "died"));
    ranks_are_gone(&w, 3);
    forget(&w);
}

static void a_signal_ends_all(void **state)
{
    (void)state;
    ended_by(SIGINT, 130);
    ended_by(SIGTERM, 143);
}

static void a_killed_supervisor_leaves_no_processes(void **state)
{
    (void)state;
    ended_by(SIGKILL, -1);
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

static void children_of_a_rank_end_with_it(void **state)
{
    struct watched w;

    (void)state;
    run(&w, 2, "leave");
    assert_int_equal(w.exit_code, 0);
    assert_true(w.seconds < 30);
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
        cmocka_unit_test(ranks_get_their_environment),
        cmocka_unit_test(a_death_is_named_and_ends_the_others),
        cmocka_unit_test(the_exit_code_is_that_of_the_job),
        cmocka_unit_test(a_rank_that_ignores_sigterm_is_killed),
        cmocka_unit_test(stopped_survivors_are_killed),
        cmocka_unit_test(all_ranks_are_needed_before_training),
        cmocka_unit_test(printed_lines_do_not_steer),
        cmocka_unit_test(training_has_begun_over_ssh),
        cmocka_unit_test(a_paused_job_continues),
        cmocka_unit_test(a_signal_ends_all),
        cmocka_unit_test(a_killed_supervisor_leaves_no_processes),
        cmocka_unit_test(a_slow_reader_blocks_only_rank_0),
        cmocka_unit_test(a_closed_output_ends_the_job),
        cmocka_unit_test(children_of_a_rank_end_with_it),
    };

    if (argc == 3 && strcmp(argv[1], "--as") == 0)
        return run_as(argv[2]);
    if (argc == 4 && strcmp(argv[1], "--ssh") == 0) /* --ssh HOST COMMAND */
        return execl("/bin/sh", "sh", "-c", argv[3], (char *)NULL);
    setenv("HOME", "/", 0); /* the ranks must inherit this variable */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return T_RUN(tests);
}
