/* SPDX-License-Identifier: MIT
 *
 * Starts the ranks of a job on this host: the program itself, once a rank, with the same arguments
 * and an environment that says which rank it is.
 *
 * The supervisor may have threads that some library started, so between fork() and execve() a
 * child calls only what is safe in a signal handler; everything it needs is made before.
 */
#include "engine/supervise_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXEC_FAILED 127 /* as a shell has it */

/* Both ends of what a child is to have, -1 where there is none. */
struct pipes {
    int out[2], err[2], secret[2];
};

/* ---- what the ranks share -------------------------------------------------------------------- */

/* The socket is bound here and handed to rank 0, so that the port is known before any rank runs
 * and nobody else can take it. */
static vb_status listen_for_root(struct vb_spawner *s)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    vb_status st;

    s->root_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->root_fd < 0)
        return vb_err_sys("socket");
    if (bind(s->root_fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
        listen(s->root_fd, VB_WORLD_MAX) == 0 &&
        getsockname(s->root_fd, (struct sockaddr *)&addr, &len) == 0) {
        snprintf(s->root, sizeof(s->root), "127.0.0.1:%d", ntohs(addr.sin_port));
        return VB_OK;
    }
    st = vb_err_sys("listen at 127.0.0.1");
    close(s->root_fd);
    return st;
}

vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_signals *signals)
{
    vb_status st;

    s->program = o->program != NULL ? o->program : "/proc/self/exe";
    s->argv = o->argv;
    s->ranks = o->ranks;
    s->signals = signals;
    st = vb_secret_make(s->secret);
    if (st != VB_OK)
        return st;
    s->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (s->null_fd < 0)
        return vb_err_sys("open /dev/null");
    st = listen_for_root(s);
    if (st != VB_OK)
        close(s->null_fd);
    return st;
}

void vb_spawner_fini(struct vb_spawner *s)
{
    explicit_bzero(s->secret, sizeof(s->secret));
    close(s->root_fd);
    close(s->null_fd);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static void close_pair(int pair[2])
{
    if (pair[0] >= 0)
        close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
    pair[0] = pair[1] = -1;
}

static void close_pipes(struct pipes *p)
{
    close_pair(p->out);
    close_pair(p->err);
    close_pair(p->secret);
}

/* The secret fits into a pipe's buffer, so it can be written before there is a reader. */
static vb_status open_pipes(const struct vb_spawner *s, struct pipes *p)
{
    vb_status st = VB_OK;

    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    if (pipe2(p->out, O_CLOEXEC) != 0 || pipe2(p->err, O_CLOEXEC) != 0 ||
        pipe2(p->secret, O_CLOEXEC) != 0 || fcntl(p->out[0], F_SETFL, O_NONBLOCK) != 0 ||
        fcntl(p->err[0], F_SETFL, O_NONBLOCK) != 0)
        st = vb_err_sys("pipe2");
    else if (write(p->secret[1], s->secret, sizeof(s->secret)) != sizeof(s->secret))
        st = vb_err_sys("write to a pipe");
    if (st != VB_OK)
        close_pipes(p);
    return st;
}

static void say_exec_failed(const char *program)
{
    static const char what[] = "could not execute ";

    if (write(STDERR_FILENO, what, sizeof(what) - 1) < 0 ||
        write(STDERR_FILENO, program, strlen(program)) < 0)
        return; /* the exit status tells it too */
}

/* In the child. Its group is its own, so that a Ctrl-C at the terminal reaches the supervisor
 * alone; it dies with the supervisor, however that dies. */
static _Noreturn void become_rank(const struct vb_spawner *s, const struct pipes *p, int rank,
                                  pid_t supervisor, const sigset_t *mask, char *const *env)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) /* it died before that was in force */
        _exit(EXEC_FAILED);
    vb_signals_restore(s->signals);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (dup2(s->null_fd, STDIN_FILENO) < 0 || dup2(p->out[1], STDOUT_FILENO) < 0 ||
        dup2(p->err[1], STDERR_FILENO) < 0 || fcntl(p->secret[0], F_SETFD, 0) != 0 ||
        (rank == 0 && fcntl(s->root_fd, F_SETFD, 0) != 0))
        _exit(EXEC_FAILED);
    execve(s->program, s->argv, env);
    say_exec_failed(s->program);
    _exit(EXEC_FAILED);
}

/* Until the child has put the handlers back, a signal to it would be taken for one to us. */
static pid_t fork_rank(const struct vb_spawner *s, const struct pipes *p, int rank,
                       char *const *env)
{
    pid_t supervisor = getpid(), pid;
    sigset_t all, mask;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid = fork();
    if (pid == 0)
        become_rank(s, p, rank, supervisor, &mask, env);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return pid;
}

static char **env_of(const struct vb_spawner *s, int rank, int secret_fd)
{
    struct vb_launch launch = {
        .rank = rank,
        .world = s->ranks,
        .local_rank = rank,
        .local_ranks = s->ranks,
        .root_fd = rank == 0 ? s->root_fd : -1,
    };

    snprintf(launch.root, sizeof(launch.root), "%s", s->root);
    return vb_launch_env_create(&launch, secret_fd);
}

vb_status vb_spawner_start(const struct vb_spawner *s, int rank, pid_t *pid_p, int *out_fd_p,
                           int *err_fd_p)
{
    struct pipes p;
    vb_status st;
    char **env;
    pid_t pid;

    st = open_pipes(s, &p);
    if (st != VB_OK)
        return st;
    env = env_of(s, rank, p.secret[0]);
    if (env == NULL) {
        close_pipes(&p);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the environment of rank %d", rank);
    }
    pid = fork_rank(s, &p, rank, env);
    if (pid < 0) {
        st = vb_err_sys("fork rank %d", rank);
    } else {
        setpgid(pid, pid); /* whichever of the two is first; the other fails, which is fine */
        *pid_p = pid;
        *out_fd_p = p.out[0];
        *err_fd_p = p.err[0];
        p.out[0] = p.err[0] = -1;
    }
    vb_launch_env_destroy(env);
    close_pipes(&p);
    return st;
}
