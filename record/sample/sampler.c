/* SPDX-License-Identifier: MIT */
#include "record/sample/sampler.h"
#include "record/sample/sample_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* A peak is an average over a second, less half a tick: ticks are not exactly on time. */
#define WINDOW_NS (1000000000u - VB_RECORD_TICK_MS * 500000u)
#define WINDOW_SAMPLES 32 /* a power of two; more than the ticks of a window */
#define FULL_RATE_RANKS 8 /* more ranks of a host sample less often */

/* All samplers of a host together may take this part of one CPU: half of it for the processes of
 * the ranks, half for the host. */
#define BUDGET 200

struct sample {
    uint64_t at_ns, cpu_ns, sent, received;
    struct sample_disk disk;
};

struct part {
    vb_bytes_fn fn;
    void *arg;
    uint64_t past_sent, past_received; /* of earlier sources */
    bool begun, has_clock, ended;
    clockid_t clock; /* CPU time of a server's thread */
    uint64_t cpu_ns; /* at the last sample */
    struct sample begin, ring[WINDOW_SAMPLES];
    uint64_t n, oldest;        /* samples in the ring: [oldest, n) */
    int io_fd;                 /* from vb_sampler_begin() on; -1: none */
    struct sample_queue queue; /* at the begin, as host_busy_s */
    double host_busy_s;
    double cpu_peak, send_peak, recv_peak, read_peak, write_peak; /* CPUs, bytes a second */
};

/* When something is sampled next, so that it stays within its budget. */
struct pace {
    uint64_t next_ns, cost_ns;
};

struct vb_sampler {
    struct vb_sampler_opts o;
    struct vb_recorder *rec;
    char root[256];
    pthread_mutex_t lock; /* guards the parts; the callers are the tick and the ends of a run */
    struct part parts[VB_PARTS];
    struct sample_own own;
    struct sample_host host;
    struct sample_ports ports;
    struct pace own_pace, host_pace;
};

/* ---- averages and peaks ---------------------------------------------------------------------- */

static void part_bytes(const struct part *p, uint64_t *sent_p, uint64_t *received_p)
{
    uint64_t sent = 0, received = 0;

    if (p->fn != NULL)
        p->fn(p->arg, &sent, &received);
    *sent_p = p->past_sent + sent;
    *received_p = p->past_received + received;
}

/* The clock of a thread that has ended cannot be read any more. */
static uint64_t thread_cpu_ns(struct part *p)
{
    struct timespec ts;

    if (!p->has_clock || p->ended)
        return p->cpu_ns;
    if (clock_gettime(p->clock, &ts) == 0)
        p->cpu_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    else
        p->ended = true;
    return p->cpu_ns;
}

static struct sample sample_part(struct vb_sampler *s, enum vb_sampler_part part, uint64_t now_ns)
{
    struct sample now = {.at_ns = now_ns};
    int i;

    part_bytes(&s->parts[part], &now.sent, &now.received);
    now.disk = vb_sample_disk(s->parts[part].io_fd);
    if (s->parts[part].has_clock) {
        now.cpu_ns = thread_cpu_ns(&s->parts[part]);
        return now;
    }
    now.cpu_ns = vb_sample_cpu_ns();
    for (i = 0; i < VB_PARTS; i++)
        if (s->parts[i].has_clock)
            now.cpu_ns -= thread_cpu_ns(&s->parts[i]) - s->parts[i].begin.cpu_ns;
    return now;
}

static double rate(uint64_t from, uint64_t to, double seconds)
{
    return to > from && seconds > 0 ? (double)(to - from) / seconds : 0;
}

static void raise_to(double *peak, double value)
{
    *peak = value > *peak ? value : *peak;
}

static void peaks_of(struct part *p, const struct sample *from, const struct sample *to)
{
    const struct sample_disk *disk = &from->disk;
    double seconds = (double)(to->at_ns - from->at_ns) / 1e9;

    raise_to(&p->cpu_peak, rate(from->cpu_ns, to->cpu_ns, seconds) / 1e9);
    raise_to(&p->send_peak, rate(from->sent, to->sent, seconds));
    raise_to(&p->recv_peak, rate(from->received, to->received, seconds));
    raise_to(&p->read_peak, rate(disk->read_bytes, to->disk.read_bytes, seconds));
    raise_to(&p->write_peak, rate(disk->written_bytes, to->disk.written_bytes, seconds));
}

static const struct sample *sample_at(const struct part *p, uint64_t n)
{
    return &p->ring[n % WINDOW_SAMPLES];
}

/* Adds a sample, and looks at the windows that end with it: the shortest, and longer ones if ticks
 * came late, so that each pair of samples is in a window. */
static void part_add(struct part *p, const struct sample *now)
{
    if (p->n - p->oldest == WINDOW_SAMPLES)
        p->oldest++;
    p->ring[p->n++ % WINDOW_SAMPLES] = *now;
    if (now->at_ns - sample_at(p, p->oldest)->at_ns < WINDOW_NS)
        return;
    peaks_of(p, sample_at(p, p->oldest), now);
    while (now->at_ns - sample_at(p, p->oldest + 1)->at_ns >= WINDOW_NS)
        peaks_of(p, sample_at(p, ++p->oldest), now);
}

void vb_sampler_source(struct vb_sampler *s, enum vb_sampler_part part, vb_bytes_fn fn, void *arg)
{
    struct part *p;

    if (s == NULL)
        return;
    p = &s->parts[part];
    pthread_mutex_lock(&s->lock);
    part_bytes(p, &p->past_sent, &p->past_received);
    p->fn = fn;
    p->arg = arg;
    pthread_mutex_unlock(&s->lock);
}

void vb_sampler_begin(struct vb_sampler *s, enum vb_sampler_part part)
{
    struct part *p;

    if (s == NULL)
        return;
    p = &s->parts[part];
    pthread_mutex_lock(&s->lock);
    if (part != VB_PART_RANK && pthread_getcpuclockid(pthread_self(), &p->clock) == 0) {
        p->has_clock = true;
        p->begin.cpu_ns = thread_cpu_ns(p);
    }
    vb_sample_close(&p->io_fd);
    p->io_fd = vb_sample_disk_open(&s->o, part != VB_PART_RANK);
    p->host_busy_s = vb_sample_host_busy_s(&s->o);
    p->cpu_peak = p->send_peak = p->recv_peak = p->read_peak = p->write_peak = 0;
    p->n = p->oldest = 0;
    p->begun = true;
    vb_sample_queue(&s->o, &p->queue);
    p->begin = sample_part(s, part, vb_clock_ns());
    part_add(p, &p->begin);
    pthread_mutex_unlock(&s->lock);
}

/* Adds what was read at the begin and is read again now. */
static void add_queue(const struct vb_sampler *s, const struct part *p, struct vb_usage *usage)
{
    double busy_s = vb_sample_host_busy_s(&s->o);
    struct sample_queue now;

    vb_sample_queue(&s->o, &now);
    usage->queue_s = vb_sample_queued_s(&p->queue, &now);
    usage->thread_s = vb_sample_thread_s(&p->queue, &now);
    usage->host_busy_s = busy_s >= 0 && p->host_busy_s >= 0 ? busy_s - p->host_busy_s : -1;
    usage->machine = vb_sample_machine(&s->o);
}

static struct vb_usage usage_of(struct vb_sampler *s, enum vb_sampler_part part)
{
    struct sample now = sample_part(s, part, vb_clock_ns());
    struct part *p = &s->parts[part];
    const struct sample_disk *disk = &p->begin.disk;
    double seconds = (double)(now.at_ns - p->begin.at_ns) / 1e9;

    part_add(p, &now);
    peaks_of(p, &p->begin, &now); /* there may have been no whole window */
    return (struct vb_usage){
        .seconds = seconds,
        .cpu_pct_peak = 100 * p->cpu_peak,
        .send_mb_s = rate(p->begin.sent, now.sent, seconds) / 1e6,
        .send_mb_s_peak = p->send_peak / 1e6,
        .recv_mb_s = rate(p->begin.received, now.received, seconds) / 1e6,
        .recv_mb_s_peak = p->recv_peak / 1e6,
        .disk_read_mb_s = rate(disk->read_bytes, now.disk.read_bytes, seconds) / 1e6,
        .disk_read_mb_s_peak = p->read_peak / 1e6,
        .disk_write_mb_s = rate(disk->written_bytes, now.disk.written_bytes, seconds) / 1e6,
        .disk_write_mb_s_peak = p->write_peak / 1e6};
}

struct vb_usage vb_sampler_usage(struct vb_sampler *s, enum vb_sampler_part part)
{
    struct vb_usage usage = {0};

    if (s == NULL)
        return usage;
    pthread_mutex_lock(&s->lock);
    if (s->parts[part].begun) {
        usage = usage_of(s, part);
        add_queue(s, &s->parts[part], &usage);
    }
    pthread_mutex_unlock(&s->lock);
    return usage;
}

/* ---- ticks ----------------------------------------------------------------------------------- */

static uint64_t thread_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Samples all parts. Returns the bytes of the process. */
static void tick_parts(struct vb_sampler *s, uint64_t now_ns, uint64_t *sent_p,
                       uint64_t *received_p)
{
    struct sample now;
    int i;

    *sent_p = *received_p = 0;
    pthread_mutex_lock(&s->lock);
    for (i = 0; i < VB_PARTS; i++) {
        now = sample_part(s, (enum vb_sampler_part)i, now_ns);
        *sent_p += now.sent;
        *received_p += now.received;
        /* A part may have begun after now_ns was read. */
        if (s->parts[i].begun && now_ns > s->parts[i].begin.at_ns)
            part_add(&s->parts[i], &now);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Sets the time of the next sample: at the rate of this host, or later if this sample has cost
 * more CPU time than its share of the budget. The cost is smoothed. */
static void pace_next(struct pace *pace, uint64_t now_ns, uint64_t cost_ns, int sharers)
{
    int slower = (sharers + FULL_RATE_RANKS - 1) / FULL_RATE_RANKS;
    uint64_t wait = VB_RECORD_TICK_MS * UINT64_C(1000000) * (uint64_t)(slower > 1 ? slower : 1);
    uint64_t least;

    pace->cost_ns = pace->cost_ns == 0 ? cost_ns : (3 * pace->cost_ns + cost_ns) / 4;
    least = pace->cost_ns * BUDGET * 2 * (uint64_t)(sharers > 1 ? sharers : 1);
    wait = wait > least ? wait : least;
    pace->next_ns = now_ns + wait - VB_RECORD_TICK_MS * UINT64_C(1000000) / 2;
}

static void tick(void *arg, uint64_t now_ns, bool last)
{
    struct vb_sampler *s = arg;
    uint64_t sent, received, begin_ns = thread_ns(), middle_ns;

    tick_parts(s, now_ns, &sent, &received);
    if (!s->o.write)
        return;
    if (last || now_ns >= s->own_pace.next_ns) {
        vb_sample_own(&s->own, now_ns, sent, received);
        pace_next(&s->own_pace, now_ns, thread_ns() - begin_ns, s->o.ranks_on_host);
    }
    if ((s->o.host || s->o.ports) && (last || now_ns >= s->host_pace.next_ns)) {
        middle_ns = thread_ns();
        if (s->o.host)
            vb_sample_host(&s->host, now_ns);
        if (s->o.ports)
            vb_sample_ports(&s->ports, now_ns);
        pace_next(&s->host_pace, now_ns, thread_ns() - middle_ns, 1);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void sampler_free(void *arg)
{
    struct vb_sampler *s = arg;
    int i;

    for (i = 0; i < VB_PARTS; i++)
        vb_sample_close(&s->parts[i].io_fd);
    vb_sample_own_close(&s->own);
    vb_sample_host_close(&s->host);
    vb_sample_ports_close(&s->ports);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void no_files(struct vb_sampler *s)
{
    int i;

    s->own.statm_fd = s->own.io_fd = s->ports.dev_fd = -1;
    s->host.stat_fd = s->host.meminfo_fd = s->host.diskstats_fd = s->host.cpuinfo_fd = -1;
    for (i = 0; i < SAMPLE_FREQS_MAX; i++)
        s->host.freq_fds[i] = -1;
    for (i = 0; i < VB_PARTS; i++)
        s->parts[i].io_fd = -1;
}

vb_status vb_sampler_open(struct vb_recorder *rec, const struct vb_sampler_opts *o,
                          struct vb_sampler **sampler_p)
{
    struct vb_sampler *s = calloc(1, sizeof(*s));
    vb_status st;

    if (s == NULL)
        return vb_err_sys("calloc");
    s->o = *o;
    snprintf(s->root, sizeof(s->root), "%s", o->root != NULL ? o->root : "");
    s->o.root = s->root;
    s->rec = rec;
    no_files(s);
    pthread_mutex_init(&s->lock, NULL);
    st = vb_recorder_own(rec, sampler_free, s);
    if (st != VB_OK) {
        sampler_free(s);
        return st;
    }
    if (o->write)
        st = vb_sample_own_open(&s->own, rec, &s->o);
    if (st == VB_OK && o->write && o->host)
        st = vb_sample_host_open(&s->host, rec, &s->o);
    if (st == VB_OK && o->write && o->ports)
        st = vb_sample_ports_open(&s->ports, rec, &s->o);
    if (st == VB_OK)
        st = vb_recorder_tick(rec, tick, s);
    if (st == VB_OK)
        *sampler_p = s;
    return st;
}

void vb_sampler_take(struct vb_sampler *s, bool host, bool ports)
{
    if (s == NULL || !s->o.write)
        return;
    if (host && !s->o.host)
        s->o.host = vb_sample_host_open(&s->host, s->rec, &s->o) == VB_OK;
    if (ports && !s->o.ports)
        s->o.ports = vb_sample_ports_open(&s->ports, s->rec, &s->o) == VB_OK;
}

/* ---- need ------------------------------------------------------------------------------------ */

static vb_status drop(void *arg, const char *file, const void *bytes, size_t len_bytes)
{
    (void)arg;
    (void)file;
    (void)bytes;
    (void)len_bytes;
    return VB_OK;
}

static int count_fds(const struct vb_sampler *s)
{
    const int fds[] = {s->own.statm_fd,    s->own.io_fd,         s->host.stat_fd,
                       s->host.meminfo_fd, s->host.diskstats_fd, s->host.cpuinfo_fd,
                       s->ports.dev_fd};
    int n = s->host.n_freqs + (s->own.tasks != NULL ? 1 : 0);
    size_t i;

    for (i = 0; i < VB_COUNT(fds); i++)
        n += fds[i] >= 0;
    for (i = 0; i < (size_t)s->ports.n_rdma; i++)
        n += vb_sample_rdma_fds(&s->ports.rdma[i]);
    return n;
}

/* Opens a sampler to count. */
int vb_sampler_fds(bool host)
{
    struct vb_sampler_opts o = {
        .ranks_on_host = 1, .write = true, .host = host, .ports = host, .quiet = true};
    struct vb_recorder_opts opts = {.sink = {.append = drop}};
    struct vb_recorder *rec;
    struct vb_sampler *s;
    int n = 0;

    if (vb_recorder_open(&opts, &rec) != VB_OK)
        return 0;
    if (vb_sampler_open(rec, &o, &s) == VB_OK)
        n = count_fds(s) + vb_recorder_streams(rec);
    (void)vb_recorder_close(rec);
    return n;
}
