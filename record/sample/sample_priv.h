/* SPDX-License-Identifier: MIT */
#ifndef VB_RECORD_SAMPLE_SAMPLE_PRIV_H
#define VB_RECORD_SAMPLE_SAMPLE_PRIV_H

#include "record/folder/kinds.h"
#include "record/sample/sampler.h"

#include <dirent.h>

/* ---- files of the kernel (sample_file.c) ----------------------------------------------------- */

/* Files below root stay open and are read again at each tick. A machine or a container may lack any
 * of them: what they would tell is then 0 or NAN. Says so once, at level info. Returns -1 then. */
int vb_sample_open(const struct vb_sampler_opts *o, const char *path);
void vb_sample_close(int *fd);

/* Reads a file from its begin, terminates the text, and returns its length; 0: nothing. once: what
 * one call returns is enough. */
size_t vb_sample_read(int fd, char *text, size_t size, bool once);

/* Reads a small file that is not kept open. Says nothing if it cannot. Returns as
 * vb_sample_read(). */
size_t vb_sample_glance(const struct vb_sampler_opts *o, const char *path, char *text, size_t size);

/* Returns the number behind a word in a text, or fallback. */
uint64_t vb_sample_number(const char *text, const char *word, uint64_t fallback);

/* Takes up to n numbers from a text, separated by blanks. Returns how many there are. */
int vb_sample_numbers(const char *text, uint64_t *numbers, int n);

/* Writes a name that may serve as a part of a file name: other characters than letters, digits and
 * '-', '_', '.' become %XX. Returns false if it is longer than size. */
bool vb_sample_file_name(const char *name, char *text, size_t size);

/* ---- this process (sample_own.c) ------------------------------------------------------------- */

#define SAMPLE_THREADS_MAX 64

struct sample_disk {
    uint64_t read_bytes, written_bytes;
};

/* Opens the io file of the process, or of the calling thread, which any thread may then read. */
int vb_sample_disk_open(const struct vb_sampler_opts *o, bool thread);
struct sample_disk vb_sample_disk(int fd);

/* A thread of this process; tid 0: none. */
struct sample_thread {
    uint32_t tid;
    int32_t cpu;
    uint64_t cpu_ns;
};

struct sample_own {
    struct vb_stream *usage, *threads;
    int statm_fd, io_fd;
    DIR *tasks;
    struct vb_usage_row begin; /* counters at the start of the run */
    uint64_t ticks;
    struct sample_thread list[SAMPLE_THREADS_MAX];
};

uint64_t vb_sample_cpu_ns(void); /* of the process, since its start */

vb_status vb_sample_own_open(struct sample_own *own, struct vb_recorder *rec,
                             const struct vb_sampler_opts *o);
void vb_sample_own_close(struct sample_own *own);
void vb_sample_own(struct sample_own *own, uint64_t now_ns, uint64_t sent, uint64_t received);

/* ---- waiting for a core (sample_queue.c) ----------------------------------------------------- */

struct sample_queue_thread {
    uint32_t tid;
    uint64_t cpu_ns, queue_ns;
};

struct sample_queue {
    bool known; /* the kernel tells how long threads wait */
    struct sample_queue_thread self, team[SAMPLE_THREADS_MAX];
    int n;
};

/* Reads the counters of the calling thread and, if it has a team, of the other threads. */
void vb_sample_queue(const struct vb_sampler_opts *o, struct sample_queue *queue);

/* Returns how long the thread that waited longest had no core; negative: not known. */
double vb_sample_queued_s(const struct sample_queue *from, const struct sample_queue *to);

/* Returns the CPU time of the calling thread between the two. */
double vb_sample_thread_s(const struct sample_queue *from, const struct sample_queue *to);

/* Returns the CPU time of all processes of the machine since its start; negative: not known. */
double vb_sample_host_busy_s(const struct vb_sampler_opts *o);

/* Returns a digest of the name that the machine has since its start; 0: not known. */
uint64_t vb_sample_machine(const struct vb_sampler_opts *o);

/* ---- the host (sample_host.c) ---------------------------------------------------------------- */

#define SAMPLE_DISKS_MAX 64
#define SAMPLE_FREQS_MAX 8 /* the frequency is the mean of at most so many CPUs */

/* A block device. Only whole disks count: what is written to a partition, or to a device on top of
 * others, is counted by the disk below too. */
struct sample_disk_known {
    char name[32];
    bool counts;
};

struct sample_host {
    struct vb_stream *rows;
    const struct vb_sampler_opts *o;
    int stat_fd, meminfo_fd, diskstats_fd, cpuinfo_fd, freq_fds[SAMPLE_FREQS_MAX];
    int n_freqs;
    uint32_t cpus;
    float mhz;
    uint64_t mhz_ns; /* when it was read */
    struct vb_host_row begin;
    struct sample_disk_known disks[SAMPLE_DISKS_MAX];
    int n_disks;
    char text[32768];
};

vb_status vb_sample_host_open(struct sample_host *host, struct vb_recorder *rec,
                              const struct vb_sampler_opts *o);
void vb_sample_host_close(struct sample_host *host);
void vb_sample_host(struct sample_host *host, uint64_t now_ns);

/* ---- interfaces and RDMA ports (sample_ports.c) ---------------------------------------------- */

#define SAMPLE_IFACES_MAX 32
#define SAMPLE_RDMA_MAX 8

struct sample_iface {
    char name[64];
    struct vb_stream *rows; /* NULL: cannot be recorded */
    struct vb_port_row begin, last;
};

struct sample_rdma {
    char name[96];
    struct vb_port_reader *reader;
    struct vb_stream *rows;
    struct vb_port_row begin, last;
};

struct sample_ports {
    struct vb_recorder *rec;
    const struct vb_sampler_opts *o;
    int dev_fd;
    bool opening; /* counters of ports that are there from the start count from there */
    bool said;    /* there are more ports than can be recorded */
    uint64_t ticks;
    struct sample_iface ifaces[SAMPLE_IFACES_MAX];
    struct sample_rdma rdma[SAMPLE_RDMA_MAX];
    int n_ifaces, n_rdma;
    char text[32768];
};

vb_status vb_sample_ports_open(struct sample_ports *ports, struct vb_recorder *rec,
                               const struct vb_sampler_opts *o);
void vb_sample_ports_close(struct sample_ports *ports);
int vb_sample_rdma_fds(const struct sample_rdma *port); /* descriptors that it has open */
void vb_sample_ports(struct sample_ports *ports, uint64_t now_ns);

#endif
