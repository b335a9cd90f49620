/* SPDX-License-Identifier: MIT */
#include "record/sample/sample_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define USAGE_ROWS 1024
#define THREAD_ROWS 4096
#define CPU_TICKS 5 /* ticks between two looks at which CPU a thread runs on */

static uint64_t clock_read(clockid_t clock)
{
    struct timespec ts;

    if (clock_gettime(clock, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t vb_sample_cpu_ns(void)
{
    return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

int vb_sample_disk_open(const struct vb_sampler_opts *o, bool thread)
{
    return vb_sample_open(o, thread ? "/proc/thread-self/io" : "/proc/self/io");
}

struct sample_disk vb_sample_disk(int fd)
{
    char text[512];

    (void)vb_sample_read(fd, text, sizeof(text), true);
    return (struct sample_disk){vb_sample_number(text, "\nread_bytes:", 0),
                                vb_sample_number(text, "\nwrite_bytes:", 0)};
}

/* ---- the process ----------------------------------------------------------------------------- */

static uint64_t rss_bytes(int fd)
{
    uint64_t pages[2] = {0};
    char text[128];

    if (vb_sample_read(fd, text, sizeof(text), true) == 0 || vb_sample_numbers(text, pages, 2) != 2)
        return 0;
    return pages[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

static struct vb_usage_row usage_now(const struct sample_own *own)
{
    struct sample_disk disk = vb_sample_disk(own->io_fd);
    struct rusage ru;

    getrusage(RUSAGE_SELF, &ru);
    return (struct vb_usage_row){.cpu_ns = vb_sample_cpu_ns(),
                                 .rss_bytes = rss_bytes(own->statm_fd),
                                 .minor_faults = (uint64_t)ru.ru_minflt,
                                 .major_faults = (uint64_t)ru.ru_majflt,
                                 .switches = (uint64_t)ru.ru_nvcsw,
                                 .preempted = (uint64_t)ru.ru_nivcsw,
                                 .disk_read_bytes = disk.read_bytes,
                                 .disk_written_bytes = disk.written_bytes};
}

static void put_usage(struct sample_own *own, uint64_t now_ns, uint64_t sent, uint64_t received)
{
    const struct vb_usage_row *begin = &own->begin;
    struct vb_usage_row row = usage_now(own);

    row.at_ns = now_ns;
    row.cpu_ns -= begin->cpu_ns;
    row.minor_faults -= begin->minor_faults;
    row.major_faults -= begin->major_faults;
    row.switches -= begin->switches;
    row.preempted -= begin->preempted;
    row.disk_read_bytes -= begin->disk_read_bytes;
    row.disk_written_bytes -= begin->disk_written_bytes;
    row.sent_bytes = sent;
    row.received_bytes = received;
    vb_stream_put(own->usage, &row);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* The clock of the CPU time of a thread, as pthread_getcpuclockid() makes it. */
static clockid_t thread_clock(uint32_t tid)
{
    return (clockid_t)(~tid << 3 | 6);
}

/* The name of a thread, in parentheses, may have blanks and parentheses of its own. The CPU is the
 * 37th word behind it. */
static int32_t cpu_of(const struct sample_own *own, uint32_t tid)
{
    char path[64], text[512], *at;
    int fd, word;

    snprintf(path, sizeof(path), "%u/stat", tid);
    fd = openat(dirfd(own->tasks), path, O_RDONLY | O_CLOEXEC);
    (void)vb_sample_read(fd, text, sizeof(text), true);
    vb_sample_close(&fd);
    at = strrchr(text, ')');
    for (word = 0; at != NULL && word < 37; word++)
        at = strchr(at + 1, ' ');
    return at != NULL ? (int32_t)strtol(at, NULL, 10) : -1;
}

/* Returns the entry of a thread, or NULL if there are too many. */
static struct sample_thread *find_thread(struct sample_own *own, uint32_t tid)
{
    struct sample_thread *free_entry = NULL;
    int i;

    for (i = 0; i < SAMPLE_THREADS_MAX; i++) {
        if (own->list[i].tid == tid)
            return &own->list[i];
        if (own->list[i].tid == 0 && free_entry == NULL)
            free_entry = &own->list[i];
    }
    if (free_entry != NULL)
        *free_entry = (struct sample_thread){.tid = tid, .cpu = -1};
    return free_entry;
}

static void put_thread(struct sample_own *own, uint64_t now_ns, uint32_t tid, bool look)
{
    struct sample_thread *thread = find_thread(own, tid);
    struct vb_thread_row row = {.at_ns = now_ns, .tid = tid};

    if (thread == NULL)
        return;
    row.cpu_ns = clock_read(thread_clock(tid));
    if (row.cpu_ns == 0 || row.cpu_ns < thread->cpu_ns) { /* it has ended */
        thread->tid = 0;
        return;
    }
    thread->cpu_ns = row.cpu_ns;
    if (look || thread->cpu < 0)
        thread->cpu = cpu_of(own, tid);
    row.cpu = thread->cpu;
    vb_stream_put(own->threads, &row);
}

static void put_threads(struct sample_own *own, uint64_t now_ns)
{
    bool look = own->ticks++ % CPU_TICKS == 0;
    const struct dirent *entry;

    if (own->tasks == NULL)
        return;
    if (look && own->list[SAMPLE_THREADS_MAX - 1].tid != 0)
        memset(own->list, 0, sizeof(own->list)); /* forget threads that have ended */
    rewinddir(own->tasks);
    while ((entry = readdir(own->tasks)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            put_thread(own, now_ns, (uint32_t)strtoul(entry->d_name, NULL, 10), look);
}

void vb_sample_own(struct sample_own *own, uint64_t now_ns, uint64_t sent, uint64_t received)
{
    put_usage(own, now_ns, sent, received);
    put_threads(own, now_ns);
}

vb_status vb_sample_own_open(struct sample_own *own, struct vb_recorder *rec,
                             const struct vb_sampler_opts *o)
{
    char name[64], path[512];
    vb_status st;

    snprintf(name, sizeof(name), "rank%d/usage.bin", o->rank);
    st = vb_recorder_stream(rec, name, &vb_kind_usage, USAGE_ROWS, &own->usage);
    snprintf(name, sizeof(name), "rank%d/threads.bin", o->rank);
    if (st == VB_OK)
        st = vb_recorder_stream(rec, name, &vb_kind_threads, THREAD_ROWS, &own->threads);
    if (st != VB_OK)
        return st;
    own->statm_fd = vb_sample_open(o, "/proc/self/statm");
    own->io_fd = vb_sample_disk_open(o, false);
    snprintf(path, sizeof(path), "%s/proc/self/task", o->root);
    own->tasks = opendir(path);
    if (own->tasks == NULL && !o->quiet)
        VB_LOG_INFO("cannot read %s; the records lack the threads", path);
    own->begin = usage_now(own);
    return VB_OK;
}

void vb_sample_own_close(struct sample_own *own)
{
    vb_sample_close(&own->statm_fd);
    vb_sample_close(&own->io_fd);
    if (own->tasks != NULL)
        closedir(own->tasks);
}
