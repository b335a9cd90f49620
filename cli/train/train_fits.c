/* SPDX-License-Identifier: MIT
 *
 * Compares what a job needs with the limits of this process and this host, before the job starts. A
 * job that does not fit is refused with the limit and the command that raises it, because otherwise
 * one of its ranks would fail later, and in a way that depends on which rank it is.
 *
 * Descriptors and threads are checked for every job. Memory is checked with --dry-run: the number
 * is an estimate, and a job that may just fit must not be refused.
 */
#include "cli/train/cmd_train.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define SUPERVISOR_FDS 6 /* standard streams, signals, news of ranks */
#define SPAWN_FDS 6      /* the pipes of a rank that is being started */

static int inherited; /* number of descriptors that ranks inherit; cli_train_fits() counts them */

/* Counts the descriptors that this process has inherited and passes on to ranks. Called before
 * threads and libraries open files of their own: exec closes those of this program, but a library
 * may have one open for a moment that it does not close. */
static int count_inherited(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int n = 0, fd, flags;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        fd = atoi(entry->d_name);
        flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;
        n += flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

static int refuse(const char *what, long long need, const char *limit, long long have,
                  const char *fix)
{
    fprintf(stderr, "verbena train: this job does not fit: %s needs %lld, but %s is %lld; %s\n",
            what, need, limit, have, fix);
    return CLI_FAILED;
}

/* A process may raise its soft limit up to the hard one, and ranks inherit it. */
static int check_fds(const char *what, int need)
{
    struct rlimit limit;
    char fix[64];

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)need)
        return -1;
    if (limit.rlim_max >= (rlim_t)need) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
            return -1;
    }
    snprintf(fix, sizeof(fix), "raise it with: ulimit -n %d", need);
    return refuse(what, need, "the limit of open files", (long long)limit.rlim_max, fix);
}

/* Root is not bound by the number of processes of its user. */
static int check_threads(const struct vb_train_need *need)
{
    long long threads = (long long)need->on_host * need->threads + 1;
    struct rlimit limit;
    int64_t all;
    char fix[96];

    if (getuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < (rlim_t)threads) {
        snprintf(fix, sizeof(fix), "raise it with: ulimit -u %lld", threads + 100);
        return refuse("the threads of this host's ranks", threads, "the limit of processes",
                      (long long)limit.rlim_cur, fix);
    }
    if (vb_probe_int(&all, "/proc/sys/kernel/threads-max") && all < threads) {
        snprintf(fix, sizeof(fix), "raise it with: sudo sysctl kernel.threads-max=%lld",
                 threads + 1000);
        return refuse("the threads of this host's ranks", threads, "kernel.threads-max",
                      (long long)all, fix);
    }
    return -1;
}

static int check_memory(const struct vb_train_need *need)
{
    long long host = (long long)vb_train_need_host(need);
    long long ram = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    long long cgroup = vb_launch_memory_limit();
    struct rlimit limit;

    if (cgroup > 0 && host > cgroup)
        return refuse("bytes: the memory of this host's ranks", host,
                      "the limit of memory of this cgroup", cgroup,
                      "use fewer ranks on this host or a smaller --batch, or raise memory.max");
    if (host > ram)
        return refuse("bytes: the memory of this host's ranks", host, "the memory of this host",
                      ram, "use fewer ranks on this host or a smaller --batch");
    /* each rank maps the windows of all ranks of its host */
    host = need->on_host * (long long)(need->windows_bytes + need->params_bytes) +
           (long long)(need->host_bytes + vb_train_need_rank(need));
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < (rlim_t)host)
        return refuse("bytes: the address space of a rank", host, "the limit of address space",
                      (long long)limit.rlim_cur, "raise it with: ulimit -v unlimited");
    return -1;
}

/* Returns the largest number of ranks on a host. */
static int ranks_on_host(const struct cli_job *job, const struct vb_launch *launch,
                         const struct vb_train_opts *o)
{
    int most = 1, i;

    if (launch->supervised)
        return launch->local_ranks > 0 ? launch->local_ranks : 1;
    if (job->parsed.n == 0)
        return job->world > 0 ? 1 : o->group.world;
    for (i = 0; i < job->parsed.n; i++)
        most = job->parsed.list[i].slots > most ? job->parsed.list[i].slots : most;
    return most;
}

int cli_train_cpus(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

void cli_train_tell_cores(const struct vb_train_opts *o, int cpus)
{
    int ranks = o->group.world == 1 ? 1 : o->place.local_ranks;
    int threads = o->place.threads > 0 ? o->place.threads : 1;

    if (cpus == 0 || (long)ranks * threads <= cpus)
        return;
    fprintf(stderr,
            "cores: the ranks of this host have %d compute threads (%d x %d) for %d cpu%s, so they "
            "slow each other down; ",
            ranks * threads, ranks, threads, cpus, cpus == 1 ? "" : "s");
    if (threads > cpus)
        fprintf(stderr, "use --threads %d\n", cpus);
    else
        fprintf(stderr, "use --ranks %d, or more hosts with --hosts\n", cpus / threads);
}

int cli_train_fits(const struct cli_job *job, const struct vb_launch *launch,
                   const struct vb_train_opts *o)
{
    struct vb_train_need need;
    bool answers = job->parsed.n > 0 || job->elastic || job->outlive;
    int rc, pipes = (answers ? 3 : 2) + (job->logs != NULL ? 1 : 0);

    if (vb_train_need(o, ranks_on_host(job, launch, o), &need) != VB_OK)
        return CLI_USAGE;
    inherited = count_inherited();
    rc = check_fds("a rank", need.fds + inherited);
    if (rc < 0 && !launch->supervised && o->group.world > 1 && job->world == 0)
        rc = check_fds("the supervisor",
                       SUPERVISOR_FDS + SPAWN_FDS + inherited + pipes * o->group.world);
    if (rc < 0 && !launch->supervised && job->parsed.n == 0)
        rc = check_threads(&need);
    if (rc < 0 && !launch->supervised && job->parsed.n == 0 && o->dry_run && need.memory_known)
        rc = check_memory(&need);
    return rc;
}

void cli_train_print_need(const struct vb_train_opts *o)
{
    int on_host = o->place.local_ranks > 0 ? o->place.local_ranks : 1;
    struct vb_train_need n;

    if (vb_train_need(o, on_host, &n) != VB_OK)
        return;
    printf("a rank      needs %d descriptors and %d threads", n.fds + inherited, n.threads);
    if (n.memory_known)
        printf(
            ", and %.1f MB: parameters %.1f, windows %.1f, layers %.1f, peers %.2f, program %.1f",
            (double)vb_train_need_rank(&n) / 1e6, (double)n.params_bytes / 1e6,
            (double)n.windows_bytes / 1e6, (double)n.work_bytes / 1e6, (double)n.peers_bytes / 1e6,
            (double)n.program_bytes / 1e6);
    printf("\nthis host   has %d ranks, which need %d threads", on_host, on_host * n.threads);
    if (n.memory_known)
        printf(" and %.1f MB; the job needs %.1f MB; data comes on top of that",
               (double)vb_train_need_host(&n) / 1e6,
               (double)vb_train_need_rank(&n) * o->group.world / 1e6);
    printf("\n");
}

void cli_train_json_need(struct vb_json *json, const struct vb_train_opts *o)
{
    int on_host = o->place.local_ranks > 0 ? o->place.local_ranks : 1;
    struct vb_train_need n;

    if (vb_train_need(o, on_host, &n) != VB_OK)
        return;
    vb_json_object(json, "needs");
    vb_json_int(json, "ranks_on_host", on_host);
    vb_json_int(json, "rank_descriptors", n.fds + inherited);
    vb_json_int(json, "rank_threads", n.threads);
    vb_json_int(json, "host_threads", (int64_t)on_host * n.threads);
    if (n.memory_known) {
        vb_json_real(json, "rank_mb", (double)vb_train_need_rank(&n) / 1e6);
        vb_json_real(json, "parameters_mb", (double)n.params_bytes / 1e6);
        vb_json_real(json, "windows_mb", (double)n.windows_bytes / 1e6);
        vb_json_real(json, "layers_mb", (double)n.work_bytes / 1e6);
        vb_json_real(json, "peers_mb", (double)n.peers_bytes / 1e6);
        vb_json_real(json, "host_mb", (double)vb_train_need_host(&n) / 1e6);
        vb_json_real(json, "job_mb", (double)vb_train_need_rank(&n) * o->group.world / 1e6);
    }
    vb_json_end(json);
}
