/* SPDX-License-Identifier: MIT
 *
 * Starts the ranks of a job: on this host the program itself, with the same arguments, and an
 * environment that tells its rank; for other hosts ssh (remote.c).
 *
 * Libraries may have started threads in the supervisor. So between fork() and execve() a child
 * calls only functions that are safe in a signal handler, and all that it needs is made before
 * fork().
 */
#include "launch/supervise/supervise_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXEC_FAILED 127 /* the exit code that shells use if a program cannot be executed */
#define SSH_FAILED 255  /* the exit code of ssh if it cannot reach the host */

/* Both ends of the pipes to and from a child; -1: no such pipe. */
struct pipes {
    int in[2], out[2], err[2], secret[2], reaped[2];
};

/* The command line and the environment of a child. */
struct image {
    char **ssh;        /* command line of ssh; NULL: the rank is on this host */
    char *const *argv; /* arguments of the program */
    char **joiner;     /* argv, if it was made for one that joins; or NULL */
    char **env;
};

vb_status vb_supervise_secret(const struct vb_supervise_opts *o, unsigned char **secret_p)
{
    *secret_p = vb_secret_alloc();
    if (*secret_p == NULL)
        return VB_ERR_NO_MEMORY;
    if (o->secret == NULL)
        return vb_secret_make(*secret_p);
    memcpy(*secret_p, o->secret, VB_SECRET_BYTES);
    return VB_OK;
}

/* The socket belongs to the network namespace in which it is made: with --link, that of rank 0. */
static vb_status listen_for_ranks(struct vb_spawner *s, const struct vb_supervise_opts *o)
{
    char address[VB_LINK_ADDRESS];
    vb_status st, back;

    snprintf(s->root, sizeof(s->root), "127.0.0.1:0");
    if (o->link == NULL)
        return vb_root_listen(s->root, &s->root_fd);
    st = vb_links_open(o->link, o->ranks, &s->links);
    if (st != VB_OK)
        return st;
    vb_links_address(0, address);
    snprintf(s->root, sizeof(s->root), "%s:0", address);
    st = vb_links_enter(s->links, 0);
    if (st != VB_OK)
        return st;
    st = vb_root_listen(s->root, &s->root_fd);
    back = vb_links_leave(s->links);
    return st != VB_OK ? st : back;
}

vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_remote *remote, const struct vb_signals *signals,
                          int *begun_fd_p)
{
    int begun[2];
    vb_status st;

    s->signals = signals;
    s->remote = remote;
    s->argv = o->argv;
    s->joiner = o->joiner;
    s->tells = (o->elastic || vb_job_takes_more(o)) && remote == NULL;
    if (remote != NULL)
        return VB_OK;
    s->program = o->program != NULL ? o->program : "/proc/self/exe";
    s->ranks = o->ranks;
    s->terminal = isatty(STDERR_FILENO) == 1;
    st = vb_supervise_secret(o, &s->secret);
    if (st != VB_OK)
        return st;
    s->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (s->null_fd < 0)
        return vb_err_sys("open /dev/null");
    st = listen_for_ranks(s, o); /* now, so that nobody else can take the port */
    if (st == VB_OK && pipe2(begun, O_CLOEXEC) != 0)
        st = vb_err_sys("pipe2");
    if (st != VB_OK)
        return st;
    s->begun_fd = begun[1];
    *begun_fd_p = begun[0];
    fcntl(begun[0], F_SETFL, O_NONBLOCK);
    fcntl(begun[1], F_SETFL, O_NONBLOCK); /* a rank never waits for the supervisor */
    return VB_OK;
}

void vb_spawner_fini(struct vb_spawner *s)
{
    vb_secret_free(s->secret);
    s->secret = NULL;
    vb_fd_close(&s->root_fd);
    vb_fd_close(&s->null_fd);
    vb_fd_close(&s->begun_fd);
}

static void close_pipes(struct pipes *p)
{
    int i;

    for (i = 0; i < 2; i++) {
        vb_fd_close(&p->in[i]);
        vb_fd_close(&p->out[i]);
        vb_fd_close(&p->err[i]);
        vb_fd_close(&p->secret[i]);
        vb_fd_close(&p->reaped[i]);
    }
}

/* All bytes written to a child fit into the buffer of a pipe, so no write blocks. */
static vb_status open_pipes(const struct vb_spawner *s, struct pipes *p)
{
    int *extra = s->remote != NULL ? p->in : p->secret;
    vb_status st = VB_OK;

    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    if (pipe2(p->out, O_CLOEXEC) != 0 || pipe2(p->err, O_CLOEXEC) != 0 ||
        pipe2(extra, O_CLOEXEC) != 0 || fcntl(p->out[0], F_SETFL, O_NONBLOCK) != 0 ||
        fcntl(p->err[0], F_SETFL, O_NONBLOCK) != 0 ||
        (s->tells &&
         (pipe2(p->reaped, O_CLOEXEC) != 0 || fcntl(p->reaped[1], F_SETFL, O_NONBLOCK) != 0)))
        st = vb_err_sys("pipe2");
    else if (s->remote != NULL && fcntl(p->in[1], F_SETFL, O_NONBLOCK) != 0)
        st = vb_err_sys("fcntl");
    else if (s->remote == NULL &&
             write(p->secret[1], s->secret, VB_SECRET_BYTES) != VB_SECRET_BYTES)
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
        return; /* the exit code tells the supervisor too */
}

/* The child gets its own process group, so that a Ctrl-C reaches only the supervisor. The kernel
 * kills the child if the supervisor dies, in whatever way. */
static _Noreturn void become_rank(const struct vb_spawner *s, const struct pipes *p, int rank,
                                  pid_t supervisor, const sigset_t *mask, const struct image *image)
{
    bool remote = s->remote != NULL;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) /* the supervisor died before prctl() took effect */
        _exit(EXEC_FAILED);
    vb_signals_restore(s->signals);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (dup2(remote ? p->in[0] : s->null_fd, STDIN_FILENO) < 0 ||
        dup2(p->out[1], STDOUT_FILENO) < 0 || dup2(p->err[1], STDERR_FILENO) < 0 ||
        (!remote && fcntl(p->secret[0], F_SETFD, 0) != 0) ||
        (!remote && fcntl(s->begun_fd, F_SETFD, 0) != 0) ||
        (s->tells && fcntl(p->reaped[0], F_SETFD, 0) != 0) ||
        (!remote && rank == 0 && s->root_fd >= 0 && fcntl(s->root_fd, F_SETFD, 0) != 0))
        _exit(EXEC_FAILED);
    if (s->links != NULL && !vb_links_become(s->links, rank)) {
        say_exec_failed("a rank of --link: cannot enter its namespaces or mount /sys");
        _exit(EXEC_FAILED);
    }
    if (remote)
        execvpe(image->ssh[0], image->ssh, image->env); /* glibc's has no lock and no heap */
    else
        execve(s->program, image->argv, image->env);
    say_exec_failed(remote ? image->ssh[0] : s->program);
    _exit(remote ? SSH_FAILED : EXEC_FAILED);
}

/* Signals are blocked until the child has restored the handlers, which write to the pipe. */
static pid_t fork_rank(const struct vb_spawner *s, const struct pipes *p, int rank,
                       const struct image *image)
{
    pid_t supervisor = getpid(), pid;
    sigset_t all, mask;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid = fork();
    if (pid == 0)
        become_rank(s, p, rank, supervisor, &mask, image);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return pid;
}

/* ssh needs no variables of the launch, and must not pass on a secret that is set on this host. */
static char **env_of(const struct vb_spawner *s, int rank, bool joins, const struct pipes *p)
{
    struct vb_launch launch = {.rank = -1, .world = -1, .local_rank = -1, .local_ranks = -1};

    launch.root_fd = -1;
    launch.begun_fd = s->begun_fd;
    launch.reaped_fd = p->reaped[0];
    launch.joins = joins;
    if (s->remote == NULL) {
        launch.rank = launch.local_rank = rank;
        launch.world = launch.local_ranks = s->ranks;
        launch.root_fd = rank == 0 ? s->root_fd : -1;
        launch.terminal = s->terminal;
        snprintf(launch.root, sizeof(launch.root), "%s", s->root);
    }
    return vb_launch_env_create(&launch, p->secret[0]);
}

static void image_fini(const struct vb_spawner *s, struct image *image)
{
    vb_launch_env_destroy(image->env);
    if (image->ssh != NULL)
        vb_remote_command_destroy(s->remote, image->ssh);
    free(image->joiner);
}

/* The texts are borrowed. */
static char **joiner_of(const struct vb_spawner *s, const char *doors)
{
    char **argv;
    size_t n = 0;

    while (s->joiner[n] != NULL)
        n++;
    argv = calloc(n + 2, sizeof(*argv));
    if (argv == NULL)
        return NULL;
    memcpy(argv, s->joiner, n * sizeof(*argv));
    argv[n] = (char *)doors;
    return argv;
}

static vb_status image_init(const struct vb_spawner *s, int rank, const char *doors,
                            const struct pipes *p, struct image *image)
{
    *image = (struct image){.env = env_of(s, rank, doors != NULL, p), .argv = s->argv};
    if (doors != NULL) {
        image->joiner = joiner_of(s, doors);
        image->argv = image->joiner;
    }
    if (s->remote != NULL && image->argv != NULL)
        image->ssh = vb_remote_command_create(s->remote, rank, image->argv, doors != NULL);
    if (image->env != NULL && image->argv != NULL && (s->remote == NULL || image->ssh != NULL))
        return VB_OK;
    image_fini(s, image);
    return vb_err(VB_ERR_NO_MEMORY, "no memory for the environment of rank %d", rank);
}

vb_status vb_spawner_start(const struct vb_spawner *s, int rank, const char *doors,
                           struct vb_child *child_p)
{
    struct image image;
    struct pipes p;
    pid_t pid;
    vb_status st = open_pipes(s, &p);

    if (st != VB_OK)
        return st;
    st = image_init(s, rank, doors, &p, &image);
    if (st == VB_OK) {
        pid = fork_rank(s, &p, rank, &image);
        if (pid < 0) {
            st = vb_err_sys("fork rank %d", rank);
        } else {
            setpgid(pid, pid); /* the child calls it too; the second call does nothing */
            *child_p = (struct vb_child){pid, s->tells ? p.reaped[1] : p.in[1], p.out[0], p.err[0]};
            p.reaped[1] = p.in[1] = p.out[0] = p.err[0] =
                -1; /* close_pipes() closes the other ends */
        }
        image_fini(s, &image);
    }
    close_pipes(&p);
    return st;
}
