/* SPDX-License-Identifier: MIT
 *
 *   agent               the first process of a node, after lab/init has set the node up
 *   agent mount         mounts /proc, /sys and the folders below /dev, for lab/init
 *   agent load GROUP... loads the kernel modules of the groups (lab/kernel.sh), for lab/init
 *
 * cluster tells the agent over the node's serial line which programs to start. The agent sends the
 * output and the exit status of each rank over the same line, so that the output arrives first.
 */
#include "lab/lab.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_LOCAL 64

struct child {
    pid_t pid;
    int rank;
    int in_fd, out_fd, err_fd; /* -1: none, or closed; for a terminal in_fd is out_fd */
    bool in_ends;              /* in_fd is closed when the queue is empty */
    struct lab_queue in;
};

struct agent {
    int port_fd, signal_fd;
    struct lab_queue from_host;
    struct child children[MAX_LOCAL];
    int n_children;
};

static void send_frame(struct agent *a, enum lab_frame_type type, int rank, const void *data,
                       size_t len_bytes)
{
    struct lab_queue q = {0};

    lab_frame_push(&q, type, rank, data, len_bytes);
    while (q.len_bytes > 0)
        if (!lab_queue_flush(&q, a->port_fd, SIZE_MAX))
            lab_die("the serial line to the host failed: %s", strerror(errno));
    lab_queue_fini(&q);
}

__attribute__((format(printf, 2, 3))) static void fail(struct agent *a, const char *format, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    send_frame(a, LAB_FAIL, 0, text, strlen(text));
}

/* Opens the serial line. There is no udev that makes /dev/virtio-ports/lab. */
static int port_open(void)
{
    const char *const folder = "/sys/class/virtio-ports";
    char path[512], name[16];
    struct dirent *e;
    DIR *dir = opendir(folder);
    FILE *f;
    int fd = -1;

    while (dir != NULL && fd < 0 && (e = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s/name", folder, e->d_name);
        f = fopen(path, "re");
        if (f != NULL && fgets(name, sizeof(name), f) != NULL && strcmp(name, "lab\n") == 0) {
            snprintf(path, sizeof(path), "/dev/%s", e->d_name);
            fd = open(path, O_RDWR | O_CLOEXEC);
        }
        if (f != NULL)
            fclose(f);
    }
    if (dir != NULL)
        closedir(dir);
    if (fd < 0)
        lab_die("cannot find the serial line to the host");
    return fd;
}

static void make_folders(char *path)
{
    char *p;

    for (p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(path, 0755);
        *p = '/';
    }
    mkdir(path, 0755);
}

/* Mounts a shared folder. Only mapped files are cached, so that the host and the other nodes see
 * immediately what a node writes. */
static void do_mount(struct agent *a, const struct lab_frame *f)
{
    const char *tag = (const char *)f->data;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s", tag + strlen(tag) + 1);
    make_folders(path);
    if (mount(tag, path, "9p", 0, "trans=virtio,version=9p2000.L,msize=262144,cache=mmap") != 0)
        fail(a, "%.400s cannot be mounted: %s", path, strerror(errno));
}

static void do_setup(struct agent *a, const struct lab_frame *f)
{
    struct lab_setup setup;
    struct timespec t;
    int fd;

    memcpy(&setup, f->data, sizeof(setup));
    t.tv_sec = setup.time_ns / 1000000000;
    t.tv_nsec = setup.time_ns % 1000000000;
    clock_settime(CLOCK_REALTIME, &t);
    fd = open(LAB_SECRET_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, setup.secret, sizeof(setup.secret)) != (ssize_t)sizeof(setup.secret))
        fail(a, "%s: %s", LAB_SECRET_FILE, strerror(errno));
    if (fd >= 0)
        close(fd);
}

_Noreturn static void child_exec(const char *folder, char **args, char **envs)
{
    struct rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    struct rlimit files = {.rlim_cur = 65536, .rlim_max = 65536};
    sigset_t empty;

    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_MEMLOCK, &none);
    setrlimit(RLIMIT_NOFILE, &files);
    if (chdir(folder) != 0 && chdir("/") != 0)
        _exit(126);
    environ = envs;
    execvp(args[0], args);
    fprintf(stderr, "%s: %s\n", args[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static pid_t fork_pipes(struct child *ch, bool input)
{
    int in[2] = {-1, -1};
    int out[2], err[2];
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        (input && pipe2(in, O_CLOEXEC) != 0))
        return -1;
    if (!input)
        in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid = fork();
    if (pid == 0) {
        setsid();
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        return 0;
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    ch->in_fd = in[1];
    ch->out_fd = out[0];
    ch->err_fd = err[0];
    return pid;
}

/* Splits the strings of a LAB_START frame: the folder, then the arguments, then the environment.
 * The lists of arguments and of the environment both end with NULL. */
static char **split(const struct lab_frame *f, const struct lab_start *start)
{
    size_t n = 1 + (size_t)start->n_args + 1 + start->n_envs + 1;
    char **words = lab_alloc(n, sizeof(*words));
    char *s = lab_alloc(f->len_bytes, 1);
    size_t i;

    memcpy(s, f->data + sizeof(*start), f->len_bytes - sizeof(*start));
    for (i = 0; i + 1 < n; i++) {
        if (i == 1 + (size_t)start->n_args)
            continue;
        words[i] = s;
        s += strlen(s) + 1;
    }
    return words;
}

static void do_start(struct agent *a, const struct lab_frame *f)
{
    struct child *ch = &a->children[a->n_children];
    struct lab_start start;
    char **words;

    if (a->n_children == MAX_LOCAL) {
        fail(a, "more than %d ranks on a node", MAX_LOCAL);
        return;
    }
    memcpy(&start, f->data, sizeof(start));
    words = split(f, &start);
    memset(ch, 0, sizeof(*ch));
    ch->rank = f->rank;
    if (start.flags & LAB_TERMINAL) {
        ch->pid = forkpty(&ch->out_fd, NULL, NULL, NULL);
        ch->in_fd = ch->out_fd;
        ch->err_fd = -1;
    } else {
        ch->pid = fork_pipes(ch, (start.flags & LAB_INPUT) != 0);
    }
    if (ch->pid == 0)
        child_exec(words[0], words + 1, words + 1 + start.n_args + 1);
    if (ch->pid < 0) {
        fail(a, "rank %d cannot be started: %s", f->rank, strerror(errno));
        return;
    }
    fcntl(ch->out_fd, F_SETFL, O_NONBLOCK);
    fcntl(ch->err_fd, F_SETFL, O_NONBLOCK); /* these fail harmlessly if there is no descriptor */
    fcntl(ch->in_fd, F_SETFL, O_NONBLOCK);
    a->n_children++;
    free(words[0]);
    free(words);
}

static struct child *child_of_rank(struct agent *a, int rank)
{
    int i;

    for (i = 0; i < a->n_children; i++)
        if (a->children[i].rank == rank)
            return &a->children[i];
    return NULL;
}

static void do_input(struct agent *a, const struct lab_frame *f)
{
    struct child *ch = child_of_rank(a, f->rank);

    if (ch == NULL)
        return;
    lab_queue_push(&ch->in, f->data, f->len_bytes);
    ch->in_ends = f->len_bytes == 0;
}

static void do_size(struct agent *a, const struct lab_frame *f)
{
    struct child *ch = child_of_rank(a, f->rank);
    struct lab_size size;
    struct winsize w;

    memcpy(&size, f->data, sizeof(size));
    w = (struct winsize){.ws_row = size.rows, .ws_col = size.columns};
    if (ch != NULL)
        ioctl(ch->out_fd, TIOCSWINSZ, &w);
}

static void host_read(struct agent *a)
{
    struct lab_frame f;

    if (!lab_queue_fill(&a->from_host, a->port_fd))
        lab_die("the serial line to the host failed: %s", strerror(errno));
    while (lab_frame_next(&a->from_host, &f)) {
        if (f.type == LAB_SETUP)
            do_setup(a, &f);
        else if (f.type == LAB_MOUNT)
            do_mount(a, &f);
        else if (f.type == LAB_START)
            do_start(a, &f);
        else if (f.type == LAB_IN)
            do_input(a, &f);
        else if (f.type == LAB_SIZE)
            do_size(a, &f);
        else
            fail(a, "the host sent a message of type %d", f.type);
    }
}

/* Sends output of a rank to cluster. Returns false if there is nothing more to read now. */
static bool pass_on(struct agent *a, struct child *ch, int *fd, enum lab_frame_type type)
{
    char data[32768];
    ssize_t n;

    if (*fd < 0)
        return false;
    n = read(*fd, data, sizeof(data));
    if (n > 0) {
        send_frame(a, type, ch->rank, data, (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (ch->in_fd == *fd)
            ch->in_fd = -1;
        close(*fd);
        *fd = -1;
    }
    return false;
}

static void feed(struct child *ch)
{
    if (!lab_queue_flush(&ch->in, ch->in_fd, SIZE_MAX) || (ch->in_ends && ch->in.len_bytes == 0)) {
        close(ch->in_fd);
        if (ch->out_fd == ch->in_fd)
            ch->out_fd = -1;
        ch->in_fd = -1;
    }
}

static void child_ended(struct agent *a, struct child *ch, int status)
{
    int32_t code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

    /* Does not wait for output of the rank's own children. */
    while (pass_on(a, ch, &ch->out_fd, LAB_OUT))
        ;
    while (pass_on(a, ch, &ch->err_fd, LAB_ERR))
        ;
    sync();
    send_frame(a, LAB_EXIT, ch->rank, &code, sizeof(code));
    ch->pid = 0;
}

static void reap(struct agent *a)
{
    struct signalfd_siginfo unused;
    int status, i;
    pid_t pid;

    if (read(a->signal_fd, &unused, sizeof(unused)) < 0)
        return;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (i = 0; i < a->n_children; i++)
            if (a->children[i].pid == pid)
                child_ended(a, &a->children[i], status);
}

static void serve(struct agent *a)
{
    struct pollfd p[2 + 3 * MAX_LOCAL];
    struct child *ch;
    int i, n = a->n_children;

    p[0] = (struct pollfd){.fd = a->port_fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = a->signal_fd, .events = POLLIN};
    for (i = 0; i < n; i++) {
        ch = &a->children[i];
        p[2 + 3 * i] = (struct pollfd){.fd = ch->out_fd, .events = POLLIN};
        p[3 + 3 * i] = (struct pollfd){.fd = ch->err_fd, .events = POLLIN};
        p[4 + 3 * i] = (struct pollfd){.fd = ch->in.len_bytes > 0 || ch->in_ends ? ch->in_fd : -1,
                                       .events = POLLOUT};
    }
    if (poll(p, 2 + 3 * (nfds_t)n, -1) < 0)
        return;
    for (i = 0; i < n; i++) {
        ch = &a->children[i];
        if (p[2 + 3 * i].revents != 0)
            pass_on(a, ch, &ch->out_fd, LAB_OUT);
        if (p[3 + 3 * i].revents != 0)
            pass_on(a, ch, &ch->err_fd, LAB_ERR);
        if (p[4 + 3 * i].revents != 0 && ch->in_fd >= 0)
            feed(ch);
    }
    if (p[0].revents != 0)
        host_read(a);
    if (p[1].revents != 0)
        reap(a);
}

int main(int argc, char **argv)
{
    static struct agent a;
    sigset_t set;

    if (argc > 1 && strcmp(argv[1], "mount") == 0)
        return lab_setup_mount();
    if (argc > 1 && strcmp(argv[1], "load") == 0)
        return lab_setup_load(argv + 2);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    a.signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    a.port_fd = port_open();
    send_frame(&a, LAB_HELLO, 0, NULL, 0);
    for (;;)
        serve(&a);
}
