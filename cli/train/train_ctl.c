/* SPDX-License-Identifier: MIT
 *
 * The socket RUN/ctl.sock of a running job, for verbena ctl. The rank that reports serves it, on a
 * thread of its own: one request at a time, a line of text, answered by a line of JSON.
 *
 * Only the user of the job, or root, may ask: the socket has mode 0600, and the kernel says whose
 * process is at the other end.
 */
#include "cli/train/cmd_train.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE (VB_HOST_NAME + 64)
#define LINE_MS 2000
#define RATE_MS 1000 /* steps are counted for so long, before and after */
#define FIRST_TRIES 50
#define ANSWER_S 600 /* a step, and a checkpoint on the disk */
#define TEXT 4200

struct train_ctl {
    pthread_t thread;
    int dir_fd, listen_fd, end_fd;
    ino_t inode; /* of the socket in the folder */
    bool async;
    const struct train_adder *adder;
    _Atomic int64_t step; /* that the training thread has made; -1: not known */
    _Atomic int stop;     /* the signal with which the run is to end */
    _Atomic bool asks;    /* there is something in `wanted` that was not taken */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock: */
    struct vb_train_ask wanted;
    bool answered, done, ending;
    char text[TEXT];
};

/* ---- the training thread --------------------------------------------------------------------- */

struct vb_train_ask cli_train_ctl_ask(struct train_ctl *c, int64_t step)
{
    struct vb_train_ask ask = {.kind = VB_ASK_NOTHING};

    if (c == NULL)
        return ask;
    atomic_store_explicit(&c->step, step, memory_order_relaxed);
    if (!atomic_load_explicit(&c->asks, memory_order_relaxed))
        return ask;
    pthread_mutex_lock(&c->lock);
    ask = c->wanted;
    atomic_store(&c->asks, false);
    pthread_mutex_unlock(&c->lock);
    return ask;
}

void cli_train_ctl_answer(struct train_ctl *c, bool done, const char *text)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->answered = true;
    c->done = done;
    snprintf(c->text, sizeof(c->text), "%s", text);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int cli_train_ctl_stop(const struct train_ctl *c)
{
    return c != NULL ? atomic_load(&c->stop) : 0;
}

/* ---- a request ------------------------------------------------------------------------------- */

static bool is_ending(void *arg)
{
    struct train_ctl *c = arg;
    bool ending;

    pthread_mutex_lock(&c->lock);
    ending = c->ending;
    pthread_mutex_unlock(&c->lock);
    return ending;
}

/* Returns steps per second; NAN: not known. A new lead knows of no step before its first one. */
static double rate(struct train_ctl *c)
{
    struct pollfd end = {.fd = c->end_fd, .events = POLLIN};
    uint64_t begin_ns;
    int64_t step, made;
    int i;

    for (i = 0; i < FIRST_TRIES && atomic_load(&c->step) < 0 && !is_ending(c); i++)
        (void)poll(&end, 1, RATE_MS / 10);
    step = atomic_load(&c->step);
    begin_ns = vb_clock_ns();
    (void)poll(&end, 1, RATE_MS);
    made = atomic_load(&c->step) - step;
    return step < 0 || is_ending(c) ? (double)NAN
                                    : (double)made / ((double)(vb_clock_ns() - begin_ns) / 1e9);
}

/* Hands it to the training thread. Returns false if the run ends before it answers, or if a step
 * takes too long. */
static bool hand_over(struct train_ctl *c, struct vb_train_ask ask)
{
    struct timespec until;
    bool answered;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ANSWER_S;
    pthread_mutex_lock(&c->lock);
    c->wanted = ask;
    c->answered = false;
    atomic_store(&c->asks, true);
    while (!c->answered && !c->ending &&
           pthread_cond_timedwait(&c->changed, &c->lock, &until) != ETIMEDOUT)
        ;
    answered = c->answered;
    atomic_store(&c->asks, false);
    pthread_mutex_unlock(&c->lock);
    return answered;
}

struct answer {
    bool done;
    const char *text;
    double rates[2];              /* steps per second before and after; NAN: not known */
    const struct vb_added *added; /* NULL: no rank was to be added */
};

static const char ended[] = "the run has ended, or has made no step for too long";

static struct answer refusal(const char *text)
{
    return (struct answer){.text = text, .rates = {(double)NAN, (double)NAN}};
}

static void reply(int fd, const struct answer *a)
{
    struct vb_json *json = vb_json_create();
    char *line = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&line, &len);
    int i;

    vb_json_object(json, NULL);
    vb_json_text(json, "status", a->done ? "done" : "refused");
    vb_json_text(json, "text", a->text);
    if (a->added != NULL) {
        vb_json_array(json, "ranks");
        for (i = 0; i < a->added->n; i++)
            vb_json_int(json, NULL, a->added->ranks[i]);
        vb_json_end(json);
    }
    vb_json_real(json, "steps_per_s_before", a->rates[0]);
    vb_json_real(json, "steps_per_s_after", a->rates[1]);
    vb_json_end(json);
    if (out != NULL && vb_json_print(json, out) == VB_OK && fclose(out) == 0)
        (void)!send(fd, line, len, MSG_NOSIGNAL);
    free(line);
    vb_json_destroy(json);
}

static void serve_stop(struct train_ctl *c, int fd)
{
    struct answer a = refusal("the run stops after its next step, saves, evaluates and reports");

    atomic_store(&c->stop, SIGINT);
    a.done = true;
    reply(fd, &a);
}

static void serve_ask(struct train_ctl *c, int fd, struct vb_train_ask ask)
{
    struct answer a = refusal(ended);

    if (c->async) {
        a.text = "only synchronous jobs can do that; asynchronous ones know stop and add";
    } else {
        a.rates[0] = rate(c);
        if (hand_over(c, ask)) {
            a.done = c->done;
            a.text = c->text;
            a.rates[1] = c->done ? rate(c) : (double)NAN;
        }
    }
    reply(fd, &a);
}

/* Returns whether n more ranks can join, as the training thread says; otherwise fills *a. */
static bool has_room(struct train_ctl *c, int n, struct answer *a)
{
    if (c->async)
        return true; /* the group refuses those for whom it has no slot */
    if (!hand_over(c, (struct vb_train_ask){.kind = VB_ASK_ROOM, .n = n}))
        return false;
    if (!c->done)
        a->text = c->text;
    return c->done;
}

static void serve_add(struct train_ctl *c, int fd, const char *host, int n)
{
    struct answer a = refusal(ended);
    struct vb_added added = {.done = false};

    a.added = &added;
    if (has_room(c, n, &a)) {
        a.rates[0] = rate(c);
        if (cli_train_add(c->adder, host, n, is_ending, c, &added)) {
            a.done = added.done;
            a.text = added.text;
            a.rates[1] = added.n > 0 ? rate(c) : (double)NAN;
        }
    }
    reply(fd, &a);
}

static void serve_line(struct train_ctl *c, int fd, const char *line)
{
    struct answer unknown = refusal("the job does not know this command");
    char host[VB_HOST_NAME];
    int64_t rank;
    int n;

    if (strcmp(line, "stop") == 0)
        serve_stop(c, fd);
    else if (strcmp(line, "checkpoint") == 0)
        serve_ask(c, fd, (struct vb_train_ask){.kind = VB_ASK_CHECKPOINT});
    else if (strncmp(line, "remove ", 7) == 0 && vb_parse_int(line + 7, &rank) && rank >= 0 &&
             rank < VB_WORLD_MAX)
        serve_ask(c, fd, (struct vb_train_ask){.kind = VB_ASK_REMOVE, .rank = (int)rank});
    else if (sscanf(line, "add %d %255s", &n, host) == 2 && n > 0 && n <= VB_ADD_MAX)
        serve_add(c, fd, host, n);
    else
        reply(fd, &unknown);
}

/* Reads a line within LINE_MS. */
static bool read_line(int fd, char line[LINE])
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t end_ns = vb_clock_ns() + LINE_MS * UINT64_C(1000000), now;
    size_t len = 0;
    ssize_t n;

    while ((now = vb_clock_ns()) < end_ns && len < LINE - 1) {
        if (poll(&p, 1, (int)((end_ns - now) / 1000000) + 1) <= 0)
            continue;
        n = read(fd, line + len, 1);
        if (n <= 0)
            return false;
        if (line[len] == '\n') {
            line[len] = '\0';
            return true;
        }
        len++;
    }
    return false;
}

static void serve(struct train_ctl *c, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    char line[LINE];

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 ||
        (peer.uid != geteuid() && peer.uid != 0))
        return;
    if (read_line(fd, line))
        serve_line(c, fd, line);
}

static void *serve_all(void *arg)
{
    struct train_ctl *c = arg;
    struct pollfd fds[2] = {{.fd = c->listen_fd, .events = POLLIN},
                            {.fd = c->end_fd, .events = POLLIN}};
    int fd;

    while (!is_ending(c)) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        fd = fds[0].revents != 0 ? accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        serve(c, fd);
        close(fd);
    }
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* The name goes by the open folder, as the path of a socket must be short. */
static vb_status listen_in(struct train_ctl *c)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat info;

    snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/" CLI_CTL_SOCKET, c->dir_fd);
    (void)unlinkat(c->dir_fd, CLI_CTL_SOCKET, 0); /* of a lead that was lost */
    c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->listen_fd < 0 || bind(c->listen_fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        fchmodat(c->dir_fd, CLI_CTL_SOCKET, 0600, 0) != 0 || listen(c->listen_fd, 4) != 0 ||
        fstatat(c->dir_fd, CLI_CTL_SOCKET, &info, 0) != 0)
        return VB_ERR_IO;
    c->inode = info.st_ino;
    return VB_OK;
}

static void ctl_free(struct train_ctl *c)
{
    if (c->listen_fd >= 0)
        close(c->listen_fd);
    if (c->dir_fd >= 0)
        close(c->dir_fd);
    if (c->end_fd >= 0)
        close(c->end_fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct train_ctl *cli_train_ctl_open(const char *dir, bool async, const struct train_adder *adder)
{
    struct train_ctl *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->listen_fd = -1;
    c->async = async;
    c->adder = adder;
    atomic_init(&c->step, -1);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    c->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->dir_fd < 0 || c->end_fd < 0 || listen_in(c) != VB_OK ||
        pthread_create(&c->thread, NULL, serve_all, c) != 0) {
        VB_LOG_INFO("verbena ctl cannot be used with %s: %s", dir, strerror(errno));
        ctl_free(c);
        return NULL;
    }
    return c;
}

void cli_train_ctl_close(struct train_ctl *c)
{
    uint64_t one = 1;
    struct stat info;

    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->ending = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    (void)!write(c->end_fd, &one, sizeof(one));
    pthread_join(c->thread, NULL);
    if (fstatat(c->dir_fd, CLI_CTL_SOCKET, &info, 0) == 0 && info.st_ino == c->inode)
        (void)unlinkat(c->dir_fd, CLI_CTL_SOCKET, 0); /* another rank may have made its own */
    ctl_free(c);
}
