/* SPDX-License-Identifier: MIT
 *
 * The figures behind a verdict: what was achieved, beside the highest that was measured on these
 * machines. The ceiling of a time is the shortest time that is possible.
 */
#include "engine/verdict/verdict_priv.h"

#include <math.h>

static void add(struct vb_bottleneck *b, const char *name, double value, double ceiling,
                const char *unit)
{
    struct vb_evidence *e = &b->evidence[b->n_evidence];

    if (b->n_evidence == VB_EVIDENCE_MAX || !isfinite(value))
        return;
    snprintf(e->name, sizeof(e->name), "%s", name);
    snprintf(e->unit, sizeof(e->unit), "%s", unit);
    e->value = value;
    e->ceiling = ceiling > 0 ? ceiling : (double)NAN;
    b->n_evidence++;
}

static void add_compute(const struct vb_verdict_facts *f, struct vb_bottleneck *b)
{
    double compute_s = 0, steps = (double)f->steps;
    int i;

    for (i = 0; i < f->n_workers; i++)
        compute_s += f->workers[i].compute_s / f->n_workers;
    if (compute_s <= 0)
        return;
    if (f->gflop > 0)
        add(b, "compute", f->gflop * steps / compute_s, f->peak_gflop_s, "GFLOP/s");
    /* At least: forward and backward read parameters, backward writes gradients, and the update
     * reads both and writes parameters. Caches may hold a small model. */
    if (f->gflop > 0)
        add(b, "memory", 6 * f->grad_bytes * steps / compute_s / 1e9, f->peak_gb_s, "GB/s");
}

/* The efficiencies multiply: load balance x serialisation x transfer = parallel efficiency. */
static void add_efficiencies(const struct vb_verdict_facts *f, const struct parts *p,
                             struct vb_bottleneck *b)
{
    double mean = 0, most = 0, useful, comm = 0, all = 0, balance, transfer;
    int i;

    for (i = 0; i < f->n_workers; i++) {
        const struct vb_verdict_rank *r = &f->workers[i];

        useful = r->data_s + r->compute_s;
        mean += useful / f->n_workers;
        most = fmax(most, useful);
        comm += r->comm_s / f->n_workers;
        all += (verdict_all_s(r) - r->save_s) / f->n_workers;
    }
    if (f->n_workers < 2 || most <= 0 || all <= 0)
        return;
    (void)p;
    balance = mean / most;
    transfer = clamp(1 - comm / all, mean / all / balance, 1);
    add(b, "load_balance", balance, 1, "");
    add(b, "serialisation", mean / all / balance / transfer, 1, "");
    add(b, "transfer", transfer, 1, "");
    add(b, "parallel_efficiency", mean / all, 1, "");
}

static double all_bytes(const struct vb_verdict_facts *f)
{
    double bytes = 0;
    int i;

    for (i = 0; i < f->n_workers; i++)
        bytes = fmax(bytes, fmax(f->workers[i].sent_bytes, f->workers[i].received_bytes));
    return bytes;
}

/* Divides the time of the exposed collectives. Sums and copies take the time that the same bytes
 * took when the links were measured; the rest was on the wire. */
static void add_network(const struct vb_verdict_facts *f, const struct parts *p,
                        struct vb_bottleneck *b)
{
    double steps = (double)f->steps, comm_s = 0, reduce_s, copy_s, bytes = all_bytes(f);
    int i;

    if (f->transport[0] == '\0' || p->all_s <= 0)
        return;
    for (i = 0; i < f->n_workers; i++)
        comm_s += f->workers[i].comm_s / f->n_workers;
    add(b, "link_bandwidth", bytes / p->all_s / 1e9, f->link_gb_s, "GB/s");
    add(b, "link_busy", p->link_busy, 1, "");
    add(b, "exposed_transfer", 1e6 * p->share[VB_NETWORK] * p->all_s / steps, 2 * f->link_us, "us");
    reduce_s = f->sum_gb_s > 0 ? fmin(bytes / 1e9 / f->sum_gb_s, comm_s) : 0;
    copy_s = f->peak_gb_s > 0 ? fmin(bytes / 1e9 / f->peak_gb_s, comm_s - reduce_s) : 0;
    add(b, "collective_skew", 1e3 * p->skew * p->all_s / steps, 0, "ms/step");
    add(b, "collective_wire", 1e3 * (comm_s - reduce_s - copy_s) / steps, 0, "ms/step");
    add(b, "collective_copy", 1e3 * copy_s / steps, 0, "ms/step");
    add(b, "collective_reduce", 1e3 * reduce_s / steps, 0, "ms/step");
}

static void add_cores(const struct vb_verdict_facts *f, struct vb_bottleneck *b)
{
    double queue_s = -1, others_s = 0, cpu_s = 0;
    int i;

    for (i = 0; i < f->n_workers; i++)
        queue_s = fmax(queue_s, f->workers[i].queue_s);
    if (queue_s >= 0)
        add(b, "no_core", 1e3 * queue_s / (double)f->steps, 0, "ms/step");
    if (f->workers[0].busy_s < 0)
        return;
    for (i = 0; i < f->n_workers; i++)
        cpu_s += f->workers[i].machine == f->workers[0].machine ? f->workers[i].cpu_s : 0;
    for (i = 0; i < f->n_servers; i++)
        cpu_s += f->servers[i].machine == f->workers[0].machine ? f->servers[i].cpu_s : 0;
    others_s = fmax(f->workers[0].busy_s - cpu_s, 0);
    add(b, "other_processes", others_s / verdict_all_s(&f->workers[0]), f->cpus, "cores");
}

/* The ceiling is the most that the disks have given to this job: they were not measured apart from
 * it. */
static void add_disk(const struct vb_verdict_facts *f, struct vb_bottleneck *b)
{
    double read = 0, write = 0, read_peak = 0, write_peak = 0;
    int i;

    for (i = 0; i < f->n_workers; i++) {
        read += f->workers[i].read_mb_s;
        write += f->workers[i].write_mb_s;
        read_peak += f->workers[i].read_peak_mb_s;
        write_peak += f->workers[i].write_peak_mb_s;
    }
    if (read > 0)
        add(b, "disk_read", read, read_peak, "MB/s");
    if (write > 0)
        add(b, "disk_write", write, write_peak, "MB/s");
}

void vb_verdict_evidence(const struct vb_verdict_facts *f, const struct parts *p,
                         struct vb_bottleneck *b)
{
    add_compute(f, b);
    add_efficiencies(f, p, b);
    add_network(f, p, b);
    add_cores(f, b);
    if (f->n_servers > 0)
        add(b, "server_busy", p->busy_share, 1, "");
    add_disk(f, b);
}
