/* SPDX-License-Identifier: MIT
 *
 * The ranks that another launcher has started on one host meet before they form a group. They learn
 * what the launcher does not tell: the secret, if the user gave none and all ranks are on this
 * host; the root that local rank 0 has, because its name may mean loopback here; and how many ranks
 * have the same cpus (mpirun gives each rank its own, srun may give all cpus to all).
 *
 * They meet at an abstract unix socket, which leaves no file behind. Its name need not be secret:
 * the kernel tells each end which user owns the other, and only processes of the same user count.
 */
#include "launch/launch_priv.h"
#include "net/control/sock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x76626d32u /* "vbm2" */
#define HELLO_MS 5000     /* time for a caller to send its hello */
#define TAKEN "the meeting point of the ranks on this host; another job or user has taken the name"

struct hello {
    uint32_t magic, local_rank;
    cpu_set_t cpus;
};

struct answer {
    uint32_t magic, number, ranks; /* place among the ranks with the same cpus, and their number */
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES];
};

struct attendee {
    int fd; /* -1: the rank has not called yet */
    cpu_set_t cpus;
};

struct meeting {
    const struct launch_found *found;
    uint64_t deadline;
    int listen_fd;
    struct attendee *attendees; /* by local rank; the first is local rank 0 itself */
    int present;                /* number of ranks that have come, with local rank 0 */
    bool warned;                /* a warning about a stranger was logged */
};

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == getuid();
}

/* If the machine has more cpus than fit, the set is empty; then all ranks have the same cpus. */
static void own_cpus(cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    if (sched_getaffinity(0, sizeof(*cpus), cpus) != 0)
        CPU_ZERO(cpus);
}

/* ---- local rank 0 ---------------------------------------------------------------------------- */

/* *ranks_p: how many ranks have the same cpus as `rank`; *number_p: how many come before it. */
static void count_cpus(const struct meeting *m, int rank, uint32_t *number_p, uint32_t *ranks_p)
{
    int i;

    *number_p = *ranks_p = 0;
    for (i = 0; i < m->found->local_ranks; i++)
        if (CPU_EQUAL(&m->attendees[i].cpus, &m->attendees[rank].cpus)) {
            *number_p += i < rank;
            ++*ranks_p;
        }
}

/* Accepts a rank of this job; hangs up on any other caller. */
static void admit(struct meeting *m, int fd)
{
    uint64_t soon = vb_clock_ns() + (uint64_t)HELLO_MS * 1000000;
    struct hello hello;

    if (same_user(fd) &&
        vb_sock_read(fd, &hello, sizeof(hello), soon < m->deadline ? soon : m->deadline) == VB_OK &&
        hello.magic == MAGIC && hello.local_rank > 0 &&
        hello.local_rank < (uint32_t)m->found->local_ranks &&
        m->attendees[hello.local_rank].fd < 0) {
        m->attendees[hello.local_rank] = (struct attendee){.fd = fd, .cpus = hello.cpus};
        m->present++;
        return;
    }
    if (!m->warned)
        VB_LOG_WARN("refused a process that is not a rank of this job");
    m->warned = true;
    close(fd);
}

static vb_status gather(struct meeting *m)
{
    struct pollfd wait = {.fd = m->listen_fd, .events = POLLIN};
    int fd;

    while (m->present < m->found->local_ranks) {
        if (vb_clock_ns() >= m->deadline) /* checked here because strangers may keep calling */
            return vb_err(VB_ERR_TIMEOUT, "only %d of the %d ranks on this host have started",
                          m->present, m->found->local_ranks);
        if (poll(&wait, 1, vb_sock_ms_left(m->deadline, 1000)) < 0 && errno != EINTR)
            return vb_err_sys("poll");
        fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            admit(m, fd);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return vb_err_sys("accept");
    }
    return VB_OK;
}

static void answer_all(const struct meeting *m, const struct vb_launch *launch)
{
    struct answer answer = {.magic = MAGIC};
    int i;

    snprintf(answer.root, sizeof(answer.root), "%s", launch->root);
    memcpy(answer.secret, launch->secret, sizeof(answer.secret));
    for (i = 1; i < m->found->local_ranks; i++) {
        count_cpus(m, i, &answer.number, &answer.ranks);
        if (vb_sock_write(m->attendees[i].fd, &answer, sizeof(answer), m->deadline) != VB_OK)
            VB_LOG_DEBUG("local rank %d is gone", i); /* the group will report it as missing */
    }
    explicit_bzero(&answer, sizeof(answer));
}

static vb_status lead_meeting(const struct launch_found *found, const char *name, uint64_t deadline,
                              struct vb_launch *launch)
{
    struct meeting m = {.found = found, .deadline = deadline, .listen_fd = -1, .present = 1};
    uint32_t number, ranks;
    vb_status st;
    int i;

    m.attendees = calloc((size_t)found->local_ranks, sizeof(*m.attendees));
    if (m.attendees == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < found->local_ranks; i++)
        m.attendees[i].fd = -1;
    own_cpus(&m.attendees[0].cpus);
    st = vb_sock_listen_unix(name, TAKEN, &m.listen_fd);
    if (st == VB_OK)
        st = gather(&m);
    if (st == VB_OK) {
        answer_all(&m, launch);
        count_cpus(&m, 0, &number, &ranks);
        launch->local_rank = (int)number;
        launch->local_ranks = (int)ranks;
    }
    vb_fd_close(&m.listen_fd);
    for (i = 1; i < found->local_ranks; i++)
        vb_fd_close(&m.attendees[i].fd);
    free(m.attendees);
    return st;
}

/* ---- the others ------------------------------------------------------------------------------ */

static vb_status call(const char *name, uint64_t deadline, int *fd_p)
{
    vb_status st = vb_sock_await_unix(name, deadline, fd_p);

    if (st == VB_AGAIN)
        return vb_err(VB_ERR_TIMEOUT, "local rank 0 has not started on this host");
    if (st != VB_OK)
        return vb_err_sys("connect %s", name);
    if (same_user(*fd_p))
        return VB_OK;
    close(*fd_p);
    return vb_err(VB_ERR_ACCESS, "a process of another user has taken the place of local rank 0: "
                                 "give the job a different number or port");
}

static vb_status take(const struct answer *answer, struct vb_launch *launch)
{
    if (answer->magic != MAGIC || memchr(answer->root, '\0', sizeof(answer->root)) == NULL ||
        answer->number >= answer->ranks || answer->ranks > (uint32_t)launch->local_ranks)
        return vb_err(VB_ERR_INPUT, "local rank 0 runs a different program than this rank");
    snprintf(launch->root, sizeof(launch->root), "%s", answer->root);
    if (!launch->has_secret)
        memcpy(launch->secret, answer->secret, sizeof(launch->secret));
    launch->local_rank = (int)answer->number;
    launch->local_ranks = (int)answer->ranks;
    return VB_OK;
}

static vb_status attend_meeting(const struct launch_found *found, const char *name,
                                uint64_t deadline, struct vb_launch *launch)
{
    struct hello hello = {.magic = MAGIC, .local_rank = (uint32_t)found->local_rank};
    struct answer answer;
    int fd;
    vb_status st = call(name, deadline, &fd);

    if (st != VB_OK)
        return st;
    own_cpus(&hello.cpus);
    st = vb_sock_write(fd, &hello, sizeof(hello), deadline);
    if (st == VB_OK)
        st = vb_sock_read(fd, &answer, sizeof(answer), deadline);
    close(fd);
    if (st != VB_OK)
        return vb_err(st, "no answer from local rank 0: %s", vb_status_str(st));
    st = take(&answer, launch);
    explicit_bzero(&answer, sizeof(answer));
    return st;
}

vb_status vb_launch_meet(const struct launch_found *found, uint64_t deadline,
                         struct vb_launch *launch)
{
    char name[96], text[sizeof(found->job) + 32], hex[65];
    int n = snprintf(text, sizeof(text), "%u %s", (unsigned)getuid(), found->job);

    vb_sha256(text, (size_t)n, hex);
    snprintf(name, sizeof(name), "verbena-launch-%s", hex);
    return found->local_rank == 0 ? lead_meeting(found, name, deadline, launch)
                                  : attend_meeting(found, name, deadline, launch);
}
