/* SPDX-License-Identifier: MIT
 *
 * How long threads were ready to run, but had no core: the direct sign of more threads than cores,
 * or of another process on these cores. And how busy the machine was, whoever made it busy. Both
 * are read at the begin and at the end of training only.
 */
#include "record/sample/sample_priv.h"

#include <stdlib.h>
#include <unistd.h>

#define TEAM_SHARE 2 /* a thread with at least 1/2 of the CPU time of the caller computes, too */

/* "cpu_ns queue_ns slices". A thread may end at any time. */
static bool read_queue(const struct vb_sampler_opts *o, const char *path,
                       struct sample_queue_thread *t)
{
    uint64_t n[2] = {0};
    char text[128];

    if (vb_sample_glance(o, path, text, sizeof(text)) == 0 || vb_sample_numbers(text, n, 2) != 2)
        return false;
    t->cpu_ns = n[0];
    t->queue_ns = n[1];
    return true;
}

/* Lists the other threads of this process, if the caller has a team. */
static void read_team(const struct vb_sampler_opts *o, struct sample_queue *q)
{
    char path[320];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/proc/self/task", o->root);
    dir = o->threads > 1 ? opendir(path) : NULL;
    while (dir != NULL && (entry = readdir(dir)) != NULL && q->n < SAMPLE_THREADS_MAX) {
        struct sample_queue_thread *t = &q->team[q->n];

        t->tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        snprintf(path, sizeof(path), "/proc/self/task/%u/schedstat", t->tid);
        if (t->tid != 0 && t->tid != (uint32_t)gettid() && read_queue(o, path, t))
            q->n++;
    }
    if (dir != NULL)
        closedir(dir);
}

void vb_sample_queue(const struct vb_sampler_opts *o, struct sample_queue *q)
{
    q->n = 0;
    q->known = read_queue(o, "/proc/thread-self/schedstat", &q->self);
    read_team(o, q);
}

static uint64_t since(uint64_t now, uint64_t begin)
{
    return now > begin ? now - begin : 0;
}

/* Returns the time that a thread of the team has waited, if it has computed as the caller did. */
static uint64_t waited(const struct sample_queue *from, const struct sample_queue_thread *t,
                       uint64_t self_cpu_ns)
{
    struct sample_queue_thread begin = {0};
    int i;

    for (i = 0; i < from->n; i++)
        if (from->team[i].tid == t->tid)
            begin = from->team[i];
    if (since(t->cpu_ns, begin.cpu_ns) < self_cpu_ns / TEAM_SHARE)
        return 0;
    return since(t->queue_ns, begin.queue_ns);
}

/* A team waits for the thread that waits longest. */
double vb_sample_queued_s(const struct sample_queue *from, const struct sample_queue *to)
{
    uint64_t most = since(to->self.queue_ns, from->self.queue_ns), ns;
    uint64_t self_cpu_ns = since(to->self.cpu_ns, from->self.cpu_ns);
    int i;

    if (!from->known || !to->known)
        return -1;
    for (i = 0; i < to->n; i++) {
        ns = waited(from, &to->team[i], self_cpu_ns);
        most = ns > most ? ns : most;
    }
    return (double)most / 1e9;
}

double vb_sample_thread_s(const struct sample_queue *from, const struct sample_queue *to)
{
    return (double)since(to->self.cpu_ns, from->self.cpu_ns) / 1e9;
}

/* user, nice, system and steal. Interrupts are left out: they work for the network of this job,
 * too.
 */
double vb_sample_host_busy_s(const struct vb_sampler_opts *o)
{
    uint64_t n[8] = {0};
    char text[512];

    if (vb_sample_glance(o, "/proc/stat", text, sizeof(text)) == 0 ||
        strncmp(text, "cpu ", 4) != 0 || vb_sample_numbers(text + 4, n, 8) < 4)
        return -1;
    return (double)(n[0] + n[1] + n[2] + n[7]) / (double)sysconf(_SC_CLK_TCK);
}

uint64_t vb_sample_machine(const struct vb_sampler_opts *o)
{
    char text[128];
    size_t len = vb_sample_glance(o, "/proc/sys/kernel/random/boot_id", text, sizeof(text));

    return len > 0 ? vb_hash64(0, text, len) : 0;
}
