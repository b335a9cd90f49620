/* SPDX-License-Identifier: MIT */
#include "record/sample/sample_priv.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_ROWS 1024
#define MHZ_NS                                                                                     \
    1000000000u          /* frequencies are read once a second: some kernels interrupt each CPU    \
                          */
#define SECTOR_BYTES 512 /* in /proc/diskstats, whatever the disk has */

/* ---- processors ------------------------------------------------------------------------------ */

/* user, nice, system, idle, iowait, irq, softirq, steal. The time of guests is part of user. */
static void read_cpus(struct sample_host *host, struct vb_host_row *row)
{
    uint64_t n[8] = {0}, tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    char text[512];
    int i;

    if (vb_sample_read(host->stat_fd, text, sizeof(text), true) == 0 ||
        strncmp(text, "cpu ", 4) != 0 || vb_sample_numbers(text + 4, n, 8) < 4)
        return;
    row->idle_ns = (n[3] + n[4]) * tick_ns;
    for (i = 0; i < 8; i++)
        row->busy_ns += i != 3 && i != 4 ? n[i] * tick_ns : 0;
}

static float mhz_of_cpufreq(const struct sample_host *host)
{
    uint64_t khz;
    double sum = 0;
    char text[64];
    int i, n = 0;

    for (i = 0; i < host->n_freqs; i++)
        if (vb_sample_read(host->freq_fds[i], text, sizeof(text), true) > 0 &&
            vb_sample_numbers(text, &khz, 1) == 1) {
            sum += (double)khz / 1e3;
            n++;
        }
    return n > 0 ? (float)(sum / n) : NAN;
}

static float mhz_of_cpuinfo(struct sample_host *host)
{
    const char *at = host->text;
    double sum = 0;
    int n = 0;

    if (vb_sample_read(host->cpuinfo_fd, host->text, sizeof(host->text), false) == 0)
        return NAN;
    while ((at = strstr(at, "\ncpu MHz")) != NULL) {
        at += strcspn(at + 1, ":\n") + 1;
        if (*at == ':') {
            sum += strtod(at + 1, NULL);
            n++;
        }
    }
    return n > 0 ? (float)(sum / n) : NAN;
}

static void read_mhz(struct sample_host *host, uint64_t now_ns)
{
    if (host->mhz_ns != 0 && now_ns - host->mhz_ns < MHZ_NS)
        return;
    host->mhz_ns = now_ns;
    host->mhz = host->n_freqs > 0 ? mhz_of_cpufreq(host) : mhz_of_cpuinfo(host);
}

/* Of many CPUs, some that lie apart are read. */
static void open_mhz(struct sample_host *host)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    char path[96], whole[512];
    int i;

    host->cpus = cpus > 0 ? (uint32_t)cpus : 1;
    for (i = 0; i < SAMPLE_FREQS_MAX && i < (int)host->cpus; i++) {
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/cpufreq/scaling_cur_freq",
                 host->cpus <= SAMPLE_FREQS_MAX ? (long)i : i * cpus / SAMPLE_FREQS_MAX);
        snprintf(whole, sizeof(whole), "%s%s", host->o->root, path);
        if (access(whole, R_OK) == 0)
            host->freq_fds[host->n_freqs++] = vb_sample_open(host->o, path);
    }
    if (host->n_freqs == 0)
        host->cpuinfo_fd = vb_sample_open(host->o, "/proc/cpuinfo");
    host->mhz = host->n_freqs > 0 ? mhz_of_cpufreq(host) : mhz_of_cpuinfo(host);
    if (isnan(host->mhz) && !host->o->quiet)
        VB_LOG_INFO("the kernel tells no frequencies of the CPUs; the records lack them");
    if (host->n_freqs == 0 && isnan(host->mhz))
        vb_sample_close(&host->cpuinfo_fd);
}

/* ---- memory and disks ------------------------------------------------------------------------ */

static void read_memory(const struct sample_host *host, struct vb_host_row *row)
{
    uint64_t total, available;
    char text[512];

    if (vb_sample_read(host->meminfo_fd, text, sizeof(text), true) == 0)
        return;
    total = vb_sample_number(text, "MemTotal:", 0);
    available = vb_sample_number(text, "MemAvailable:", vb_sample_number(text, "MemFree:", 0));
    row->memory_bytes = total * 1024;
    row->memory_used_bytes = available < total ? (total - available) * 1024 : 0;
}

/* Looks the device up in /sys/block, which lists no partitions, once for each name. */
static bool disk_counts(struct sample_host *host, const char *name)
{
    static const char *const stacked[] = {"loop", "ram", "zram", "dm-", "md", "sr", "fd"};
    struct sample_disk_known *disk;
    char path[512];
    size_t k;
    int i;

    for (i = 0; i < host->n_disks; i++)
        if (strcmp(host->disks[i].name, name) == 0)
            return host->disks[i].counts;
    if (host->n_disks == SAMPLE_DISKS_MAX)
        return false;
    disk = &host->disks[host->n_disks++];
    snprintf(disk->name, sizeof(disk->name), "%s", name);
    snprintf(path, sizeof(path), "%s/sys/block/%s", host->o->root, name);
    disk->counts = strchr(name, '/') == NULL && access(path, F_OK) == 0;
    for (k = 0; k < VB_COUNT(stacked); k++)
        disk->counts = disk->counts && strncmp(name, stacked[k], strlen(stacked[k])) != 0;
    return disk->counts;
}

/* "major minor name", then reads, merged reads, sectors read, ms, writes, merged writes, sectors
 * written. */
static void read_disks(struct sample_host *host, struct vb_host_row *row)
{
    char *line, *rest = host->text, name[32];
    uint64_t n[7];
    int at;

    if (vb_sample_read(host->diskstats_fd, host->text, sizeof(host->text), false) == 0)
        return;
    while ((line = strsep(&rest, "\n")) != NULL) {
        at = 0;
        if (sscanf(line, " %*u %*u %31s%n", name, &at) != 1 || at == 0 ||
            vb_sample_numbers(line + at, n, 7) != 7 || !disk_counts(host, name))
            continue;
        row->disk_read_bytes += n[2] * SECTOR_BYTES;
        row->disk_written_bytes += n[6] * SECTOR_BYTES;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct vb_host_row host_now(struct sample_host *host)
{
    struct vb_host_row row = {.mhz = host->mhz, .cpus = host->cpus};

    read_cpus(host, &row);
    read_memory(host, &row);
    read_disks(host, &row);
    return row;
}

/* A disk that was taken out makes the sum of all disks smaller. */
static uint64_t since(uint64_t now, uint64_t begin)
{
    return now > begin ? now - begin : 0;
}

void vb_sample_host(struct sample_host *host, uint64_t now_ns)
{
    struct vb_host_row row;

    read_mhz(host, now_ns);
    row = host_now(host);
    row.at_ns = now_ns;
    row.busy_ns = since(row.busy_ns, host->begin.busy_ns);
    row.idle_ns = since(row.idle_ns, host->begin.idle_ns);
    row.disk_read_bytes = since(row.disk_read_bytes, host->begin.disk_read_bytes);
    row.disk_written_bytes = since(row.disk_written_bytes, host->begin.disk_written_bytes);
    vb_stream_put(host->rows, &row);
}

vb_status vb_sample_host_open(struct sample_host *host, struct vb_recorder *rec,
                              const struct vb_sampler_opts *o)
{
    char name[64];
    vb_status st;

    host->o = o;
    snprintf(name, sizeof(name), "rank%d/host.bin", o->rank);
    st = vb_recorder_stream(rec, name, &vb_kind_host, HOST_ROWS, &host->rows);
    if (st != VB_OK)
        return st;
    host->stat_fd = vb_sample_open(host->o, "/proc/stat");
    host->meminfo_fd = vb_sample_open(host->o, "/proc/meminfo");
    host->diskstats_fd = vb_sample_open(host->o, "/proc/diskstats");
    open_mhz(host);
    host->begin = host_now(host);
    return VB_OK;
}

void vb_sample_host_close(struct sample_host *host)
{
    int i;

    vb_sample_close(&host->stat_fd);
    vb_sample_close(&host->meminfo_fd);
    vb_sample_close(&host->diskstats_fd);
    vb_sample_close(&host->cpuinfo_fd);
    for (i = 0; i < host->n_freqs; i++)
        vb_sample_close(&host->freq_fds[i]);
}
