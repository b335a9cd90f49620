/* SPDX-License-Identifier: MIT
 *
 * What a process is known by. A process number is not enough: two processes in PID namespaces of
 * their own may both be number 1, and a number is given to another process when its process has
 * ended. A process is told from others by a random token, and is watched and killed through a
 * descriptor of it (pidfd, since Linux 5.3), which never comes to mean another process.
 */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* the same on all architectures that we support */
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

vb_status vb_process_program(uint64_t *hash_p)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void *bytes = MAP_FAILED;
    vb_status st = VB_OK;
    struct stat sb;

    if (fd >= 0 && fstat(fd, &sb) == 0)
        bytes = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (bytes == MAP_FAILED)
        st = vb_err_sys("cannot read this program");
    if (fd >= 0)
        close(fd);
    if (st != VB_OK)
        return st;
    *hash_p = vb_hash64(0, bytes, (size_t)sb.st_size);
    munmap(bytes, (size_t)sb.st_size);
    return VB_OK;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char token[VB_TOKEN_BYTES]; /* protected by lock, as is made */
static bool made;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    made = false; /* the child is another process */
    pthread_mutex_unlock(&lock);
}

static vb_status make_token(void)
{
    static bool watched; /* forks are watched; protected by lock */

    if (!watched && pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0)
        return vb_err(VB_ERR_NO_MEMORY, "pthread_atfork failed");
    watched = true;
    if (getrandom(token, sizeof(token), 0) != (ssize_t)sizeof(token))
        return vb_err_sys("getrandom");
    made = true;
    return VB_OK;
}

vb_status vb_process_token(unsigned char out[VB_TOKEN_BYTES])
{
    vb_status st = VB_OK;

    pthread_mutex_lock(&lock);
    if (!made)
        st = make_token();
    if (st == VB_OK)
        memcpy(out, token, VB_TOKEN_BYTES);
    pthread_mutex_unlock(&lock);
    return st;
}

static int fd_of(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* the kernel sets close-on-exec */
}

int vb_process_fd(void)
{
    return fd_of((int)getpid());
}

/* Stores the number that /proc shows for the process of a pidfd. Returns false if fd is not a
 * pidfd, or if the process has ended and was reaped (the number is then -1). */
static bool shown_number(int fd, long *number_p)
{
    char path[64], text[1024];
    const char *line;
    ssize_t n = -1;
    int file;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        n = read(file, text, sizeof(text) - 1);
        close(file);
    }
    text[n > 0 ? n : 0] = '\0';
    line = strstr(text, "\nPid:");
    return line != NULL && sscanf(line, "\nPid: %ld", number_p) == 1 && *number_p >= 0;
}

bool vb_process_fd_is(int fd, int pid)
{
    long number, expected;
    int other;
    bool same;

    if (pid == 0) /* a process that this one can signal is in this namespace or in one below it */
        return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) != 0 &&
               (errno == EINVAL || errno == ESRCH);
    other = fd_of(pid);
    if (other < 0)
        return false;
    /* /proc may show the numbers of another PID namespace, but of the same one for both. */
    same = shown_number(fd, &number) && shown_number(other, &expected) && number == expected &&
           number > 0;
    close(other);
    return same;
}

bool vb_process_ended(int fd, int wait_ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    uint64_t deadline = vb_clock_ns() + (uint64_t)wait_ms * 1000000, now;
    int n;

    do {
        now = vb_clock_ns();
        n = poll(&pfd, 1, now < deadline ? (int)((deadline - now + 999999) / 1000000) : 0);
    } while (n < 0 && errno == EINTR);
    return n > 0 && (pfd.revents & POLLIN) != 0;
}

bool vb_process_kill(int fd)
{
    return syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0 || errno == ESRCH;
}

/* ---- looking at another process -------------------------------------------------------------- */

/* Reads the state and the start time of a process or thread. The name before them may have blanks
 * and brackets. */
static bool read_stat(const char *path, char *state_p, uint64_t *start_p)
{
    char text[1024];
    const char *at;
    int field, file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file >= 0 ? read(file, text, sizeof(text) - 1) : -1;

    if (file >= 0)
        close(file);
    text[n > 0 ? n : 0] = '\0';
    at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ' || at[2] == '\0')
        return false;
    at += 2;
    *state_p = *at;
    for (field = 3; field < 22 && at != NULL; field++) /* proc(5): the state is field 3 */
        at = strchr(at + 1, ' ');
    return at != NULL && sscanf(at, " %" SCNu64, start_p) == 1;
}

static uint32_t own_pid_ns(void)
{
    struct stat sb;

    return stat("/proc/self/ns/pid", &sb) == 0 ? (uint32_t)sb.st_ino : 0;
}

/* /proc may show the numbers of another PID namespace than that of this process. */
void vb_process_id(struct vb_process_id *id_p)
{
    char number[16] = "", state;
    uint64_t start;

    *id_p = (struct vb_process_id){0};
    if (readlink("/proc/self", number, sizeof(number) - 1) <= 0 ||
        !read_stat("/proc/self/stat", &state, &start))
        return;
    *id_p = (struct vb_process_id){
        .number = (uint32_t)strtoul(number, NULL, 10), .ns = own_pid_ns(), .start = start};
}

static enum vb_process_state state_of(char letter)
{
    switch (letter) {
    case 'R':
    case 'D':
        return VB_PROCESS_RUNS;
    case 'T':
    case 't':
        return VB_PROCESS_STOPPED;
    case 'Z':
    case 'X':
        return VB_PROCESS_ENDED;
    default:
        return VB_PROCESS_SLEEPS;
    }
}

/* A process runs if one of its threads does, and sleeps if one of the others sleeps. */
static enum vb_process_state state_of_threads(DIR *threads, uint32_t number,
                                              enum vb_process_state state)
{
    const struct dirent *entry;
    char path[64], letter;
    uint64_t start;

    while (state != VB_PROCESS_RUNS && (entry = readdir(threads)) != NULL) {
        unsigned long id = strtoul(entry->d_name, NULL, 10);
        enum vb_process_state one;

        snprintf(path, sizeof(path), "/proc/%u/task/%lu/stat", number, id);
        if (id == 0 || !read_stat(path, &letter, &start))
            continue;
        one = state_of(letter);
        state = one < state ? one : state;
    }
    return state;
}

enum vb_process_state vb_process_state(const struct vb_process_id *id)
{
    enum vb_process_state state;
    char path[64], letter;
    uint64_t start;
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%u/stat", id->number);
    if (id->number == 0 || id->ns == 0 || id->ns != own_pid_ns() ||
        !read_stat(path, &letter, &start) || start != id->start)
        return VB_PROCESS_UNKNOWN;
    state = state_of(letter);
    snprintf(path, sizeof(path), "/proc/%u/task", id->number);
    threads = opendir(path);
    if (threads == NULL)
        return state;
    state = state_of_threads(threads, id->number, state);
    closedir(threads);
    return state;
}

bool vb_process_same_program(const struct vb_process_id *id)
{
    struct stat own, other;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%u/exe", id->number);
    return vb_process_state(id) != VB_PROCESS_UNKNOWN && stat("/proc/self/exe", &own) == 0 &&
           stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/* The number of a process stays its own until it is reaped. So if it still has the number after the
 * descriptor was opened, that is its descriptor. */
int vb_process_open(const struct vb_process_id *id)
{
    int fd = id->number != 0 ? fd_of((int)id->number) : -1;
    long number;

    if (fd < 0)
        return -1;
    if (shown_number(fd, &number) && number == (long)id->number &&
        vb_process_state(id) != VB_PROCESS_UNKNOWN)
        return fd;
    close(fd);
    return -1;
}

uint64_t vb_process_page_waits(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_majflt : 0;
}

/* The child calls only what may be called after a fork of a process with several threads. */
static _Noreturn void pause_parent(pid_t parent, double seconds)
{
    /* whole seconds and the rest */
    struct timespec ts = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || kill(parent, SIGSTOP) != 0)
        _exit(1);
    while (nanosleep(&ts, &ts) != 0)
        ;
    _exit(kill(parent, SIGCONT) != 0);
}

vb_status vb_process_pause(double seconds)
{
    pid_t parent = getpid(), child = fork();
    int status;

    if (child == 0)
        pause_parent(parent, seconds);
    if (child < 0)
        return vb_err_sys("fork");
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return vb_err_sys("waitpid");
    return status == 0 ? VB_OK : vb_err(VB_ERR_IO, "the child that stops this process failed");
}
