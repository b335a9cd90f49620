/* SPDX-License-Identifier: MIT
 *
 * A rank that a supervisor on another host has started over ssh. Its place in the job is in the
 * environment. The rank says hello on standard output, with its program and, for rank 0, its
 * address. When all ranks run the same program, the supervisor answers on standard input with root
 * and secret. When standard input ends, the supervisor is gone or wants the rank to end. If the
 * supervisor's host loses power, standard input does not end: so the supervisor sends a byte every
 * few seconds, and a rank that has got none for too long ends too. The byte of a signal (Ctrl-C) is
 * the number of the signal, which the rank then sends to itself.
 *
 * A login shell may print something before the hello. The supervisor passes that on to the user.
 */
#include "launch/launch_priv.h"
#include "net/control/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define HELLO "verbena-rank 1"
#define LINE_MAX_BYTES 512 /* size of a buffer for a hello or an answer */
#define ANSWER_MS 60000    /* time for the slowest host to start its ranks */
#define END_MS 5000        /* time between SIGTERM and SIGKILL */
#define SILENT_MIN_MS                                                                              \
    10000 /* several times VB_BEAT_MS: a supervisor may be paused for a moment                     \
           */

static vb_status hash_file(int fd, char sha256[65])
{
    struct stat sb;
    size_t len = 0;
    ssize_t n = 1;
    char *data;

    if (fstat(fd, &sb) != 0)
        return vb_err_sys("cannot stat this program");
    data = malloc((size_t)sb.st_size + 1);
    if (data == NULL)
        return vb_err_sys("malloc");
    while (n > 0 && len < (size_t)sb.st_size) {
        n = read(fd, data + len, (size_t)sb.st_size - len);
        len += n > 0 ? (size_t)n : 0;
    }
    vb_sha256(data, len, sha256);
    free(data);
    return VB_OK;
}

vb_status vb_hello_own(struct vb_hello *hello_p)
{
    struct utsname kernel;
    vb_status st;
    int fd;

    memset(hello_p, 0, sizeof(*hello_p));
    if (uname(&kernel) != 0)
        return vb_err_sys("uname");
    snprintf(hello_p->machine, sizeof(hello_p->machine), "%.31s", kernel.machine);
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return vb_err_sys("cannot open this program");
    st = hash_file(fd, hello_p->sha256);
    close(fd);
    return st;
}

bool vb_hello_parse(const char *line, struct vb_hello *hello_p)
{
    const char *at = strstr(line, HELLO " "); /* after a shell's escape sequences */
    struct vb_hello hello;
    int end = 0;

    memset(&hello, 0, sizeof(hello));
    if (at == NULL)
        return false;
    at += sizeof(HELLO);
    if (sscanf(at, "%31s %64s %271s%n", hello.machine, hello.sha256, hello.root, &end) != 3 ||
        at[end] != '\0')
        return false;
    *hello_p = hello;
    return true;
}

static void say_hello(const struct vb_hello *hello)
{
    char line[LINE_MAX_BYTES];
    int n = snprintf(line, sizeof(line), HELLO " %s %s %s\n", hello->machine, hello->sha256,
                     hello->root[0] != '\0' ? hello->root : "-");

    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        VB_LOG_DEBUG("no process reads the greeting of this rank"); /* standard input ends too */
}

int vb_launch_answer(char *buf, size_t size, const char *root,
                     const unsigned char secret[VB_SECRET_BYTES])
{
    int n = snprintf(buf, size, "%s ", root), i;

    for (i = 0; i < VB_SECRET_BYTES; i++)
        n += snprintf(buf + n, size - (size_t)n, "%02x", secret[i]);
    return n + snprintf(buf + n, size - (size_t)n, "\n");
}

static vb_status split_answer(const char *line, struct vb_launch *launch)
{
    const char *space = strchr(line, ' ');

    if (space == NULL || (size_t)(space - line) >= sizeof(launch->root))
        return vb_err(VB_ERR_INPUT, "the first line of standard input does not contain the address "
                                    "of rank 0 and the secret");
    memcpy(launch->root, line, (size_t)(space - line));
    launch->root[space - line] = '\0';
    return vb_secret_parse(space + 1, launch->secret);
}

/* Reads the line of the answer, and no byte after it. *ended_p: standard input has ended. */
static bool read_answer(char line[LINE_MAX_BYTES], bool *ended_p)
{
    uint64_t deadline = vb_clock_ns() + (uint64_t)ANSWER_MS * 1000000;
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    size_t len = 0;
    ssize_t n;

    *ended_p = false;
    while (len < LINE_MAX_BYTES - 1) {
        if (poll(&wait, 1, vb_sock_ms_left(deadline, ANSWER_MS)) <= 0)
            return false;
        n = read(STDIN_FILENO, line + len, 1);
        *ended_p = n == 0;
        if (n != 1)
            return false;
        if (line[len] == '\n') {
            line[len] = '\0';
            return true;
        }
        len++;
    }
    return false;
}

static vb_status take_answer(struct vb_launch *launch)
{
    char line[LINE_MAX_BYTES];
    bool ended;
    vb_status st;

    if (!read_answer(line, &ended)) {
        if (!ended)
            return vb_err(VB_ERR_PEER, "the supervisor has not answered within %d s",
                          ANSWER_MS / 1000);
        VB_LOG_INFO("the supervisor has ended the job"); /* another host has said why */
        return VB_ERR_PEER;
    }
    st = split_answer(line, launch);
    explicit_bzero(line, sizeof(line));
    return st;
}

/* What a watch needs; it belongs to the thread. */
struct watch {
    int rank;
    int silent_ms;
    struct vb_reaped *reaped;
    struct vb_answers *answers;
    bool alone;       /* the job goes on without this rank */
    bool told_to_end; /* the supervisor ends the whole job */
};

/* Nobody may read standard error any more, and a write to a full pipe would wait for ever. */
static bool can_say(const struct watch *w)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&err, 1, 0) != 1 || (err.revents & POLLOUT) == 0)
        return false;
    vb_log_set_rank(w->rank);
    return true;
}

static void say_silent(const struct watch *w)
{
    if (!can_say(w))
        return;
    VB_LOG_ERROR("the supervisor has sent nothing for %d s: its host is down or cannot be reached, "
                 "or it was stopped; this rank ends. --timeout waits longer",
                 w->silent_ms / 1000);
}

/* Takes what the supervisor has sent: signals of a user, the end of the job, ranks that have ended.
 * Other bytes only tell that it is there. */
static void take_bytes(struct watch *w, const char *bytes, ssize_t n)
{
    ssize_t i;

    for (i = 0; i < n; i++) {
        if (bytes[i] == SIGHUP || bytes[i] == SIGINT || bytes[i] == SIGTERM)
            kill(getpid(), bytes[i]);
        w->told_to_end |= bytes[i] == VB_END_OF_JOB;
    }
    if (n <= 0)
        return;
    vb_reaped_take(w->reaped, bytes, (size_t)n);
    vb_answers_take(w->answers, bytes, (size_t)n);
}

/* Returns true if the supervisor has sent something. A rank that was stopped itself finds the bytes
 * that have come meanwhile: poll() looks for them before it says that the time is over. */
static bool hears_something(struct watch *w, bool *silent_p)
{
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    char bytes[64];
    ssize_t n;
    int ready;

    do
        ready = poll(&wait, 1, w->silent_ms);
    while (ready < 0 && errno == EINTR);
    *silent_p = ready == 0;
    if (ready <= 0)
        return false;
    n = read(STDIN_FILENO, bytes, sizeof(bytes));
    take_bytes(w, bytes, n);
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Only this rank has lost the supervisor, as far as it knows, and the others can go on without it.
 * A SIGTERM would ask all ranks to stop. */
static _Noreturn void end_alone(const struct watch *w, bool said)
{
    if (!said && can_say(w))
        VB_LOG_ERROR("the connection to the supervisor is gone: this rank ends");
    _exit(1);
}

/* Ends this process when standard input ends or the supervisor is silent. */
static void *watch_input(void *arg)
{
    struct watch *w = arg;
    bool silent;

    while (hears_something(w, &silent))
        ;
    if (silent)
        say_silent(w);
    if (w->alone && !w->told_to_end)
        end_alone(w, silent);
    kill(getpid(), SIGTERM);
    poll(NULL, 0, END_MS);
    kill(getpid(), SIGKILL);
    free(w);
    return NULL;
}

static vb_status start_watch(const struct vb_launch *launch, int64_t silent_ms)
{
    struct watch *w = malloc(sizeof(*w));
    pthread_attr_t attr;
    pthread_t thread;
    int err;

    if (w == NULL)
        return vb_err_sys("malloc");
    if (silent_ms < SILENT_MIN_MS)
        silent_ms = SILENT_MIN_MS;
    *w = (struct watch){.rank = launch->rank,
                        .silent_ms = silent_ms < INT_MAX ? (int)silent_ms : INT_MAX,
                        .reaped = launch->reaped,
                        .answers = launch->answers,
                        .alone = launch->has_reaper};
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    err = pthread_create(&thread, &attr, watch_input, w);
    pthread_attr_destroy(&attr);
    if (err == 0)
        return VB_OK;
    free(w);
    errno = err;
    return vb_err_sys("pthread_create");
}

/* If the user gave a port, other hosts can reach the name before it. Otherwise the address to which
 * ssh connected may be used: SERVER in ssh_connection, "CLIENT PORT SERVER PORT". */
static vb_status listen_as_root(struct vb_launch *launch, const char *ssh_connection)
{
    char server[VB_ADDR_TEXT];
    bool found;

    if (!vb_root_wants_port(launch->root))
        return vb_root_listen(launch->root, &launch->root_fd);
    found = ssh_connection != NULL && sscanf(ssh_connection, "%*s %*s %45s", server) == 1;
    return vb_root_listen_reachable(launch->root, found ? server : NULL, &launch->root_fd);
}

vb_status vb_launch_read_stdin(struct vb_launch *launch, const char *ssh_connection,
                               int64_t silent_ms)
{
    struct vb_hello hello;
    vb_status st = vb_hello_own(&hello);

    if (st == VB_OK && launch->rank == 0)
        st = listen_as_root(launch, ssh_connection);
    if (st != VB_OK)
        return st;
    if (launch->rank == 0)
        snprintf(hello.root, sizeof(hello.root), "%s", launch->root);
    say_hello(&hello);
    st = take_answer(launch);
    if (st == VB_OK)
        st = vb_launch_begun_line(launch->secret, launch->begun_line);
    if (st == VB_OK && launch->has_reaper)
        st = vb_launch_reaper_start(launch);
    return st == VB_OK ? start_watch(launch, silent_ms) : st;
}
