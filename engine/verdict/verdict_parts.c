/* SPDX-License-Identifier: MIT
 *
 * Divides the time of a typical worker among causes. The phases of the workers tell most of it. Two
 * things they do not tell: time in which a thread had no core is charged to whatever it did then,
 * and waiting for another rank is charged to nobody. So the time without a core is taken from the
 * phases first. Waiting is explained by what the late rank did longer than the others; then by
 * cores, then by the latency of the network. What is left is not explained.
 */
#include "engine/verdict/verdict_priv.h"

#include <math.h>
#include <string.h>

#define EXPLAINED                                                                                  \
    0.5 /* of the waiting: a rank that did little longer than others is late otherwise */
#define DISK_MB_S 1.0   /* a disk from which less is read does not delay the input */
#define SERVER_FULL 0.7 /* from this busy share on, gradients queue at a server */
#define COMMON 0.4      /* others wait for data for this part of the time of the late rank */
#define LINK_LATE 2.0   /* how many times as long as for others, others wait for a slow link */

/* Shares of a worker's own time. */
struct times {
    double data, compute, comm, wait, save;
    double queue; /* without a core while it would have computed */
};

/* Returns the part of the time in which a thread was ready to run, but had no core. A thread that
 * computes is always ready, so this part of the computing was lost. */
static double queue_part(const struct vb_verdict_rank *r)
{
    double ready_s = r->queue_s + r->thread_s;

    return r->queue_s > 0 && ready_s > 0 ? r->queue_s / ready_s : 0;
}

static double queue_share(const struct vb_verdict_rank *r)
{
    double all = verdict_all_s(r);

    return all > 0 ? clamp(r->queue_s / all, 0, 1) : 0;
}

static struct times times_of(const struct vb_verdict_rank *r)
{
    double all = verdict_all_s(r), queue;
    struct times t = {0};

    if (all <= 0)
        return t;
    queue = fmin(r->compute_s * queue_part(r), fmax(r->queue_s, 0));
    t.queue = queue / all;
    t.compute = (r->compute_s - queue) / all;
    t.data = r->data_s / all;
    t.comm = r->comm_s / all;
    t.wait = r->wait_s / all;
    t.save = r->save_s / all;
    return t;
}

static double busy(const struct times *t)
{
    return t->data + t->compute + t->queue + t->save;
}

/* Returns the mean of all workers but one; without: NO_RANK for the mean of all. */
static struct times mean_of(const struct vb_verdict_facts *f, int without)
{
    struct times sum = {0}, t;
    int i, n = f->n_workers - (without != NO_RANK);

    for (i = 0; i < f->n_workers && n > 0; i++) {
        if (i == without)
            continue;
        t = times_of(&f->workers[i]);
        sum.data += t.data / n;
        sum.compute += t.compute / n;
        sum.queue += t.queue / n;
        sum.comm += t.comm / n;
        sum.wait += t.wait / n;
        sum.save += t.save / n;
    }
    return sum;
}

/* ---- cores ----------------------------------------------------------------------------------- */

/* Adds what the ranks of a machine have used and waited for. */
static void add_machine(const struct vb_verdict_rank *list, int n, uint64_t machine, double *cpu_s,
                        double *queue_s)
{
    int i;

    for (i = 0; i < n; i++)
        if (list[i].machine == machine) {
            *cpu_s += list[i].cpu_s;
            *queue_s += list[i].queue_s > 0 ? list[i].queue_s : 0;
        }
}

/* Returns the part of the waiting for cores on a machine that other processes have caused. A core
 * that another process uses for a second makes one thread wait for a second at most. */
static double neighbour_part(const struct vb_verdict_facts *f, const struct vb_verdict_rank *r)
{
    double cpu_s = 0, queue_s = 0;

    if (r->busy_s < 0)
        return 0;
    add_machine(f->workers, f->n_workers, r->machine, &cpu_s, &queue_s);
    add_machine(f->servers, f->n_servers, r->machine, &cpu_s, &queue_s);
    return queue_s > 0 ? clamp((r->busy_s - cpu_s) / queue_s, 0, 1) : 0;
}

/* ---- waiting for other ranks ----------------------------------------------------------------- */

static int latest(const struct vb_verdict_facts *f)
{
    int i, late = 0;

    for (i = 1; i < f->n_workers; i++)
        if (f->workers[i].late_s > f->workers[late].late_s)
            late = i;
    return late;
}

/* What the late rank did longer than the others. */
struct excess {
    double by[SLOW_BYS];
    double all; /* positive parts */
};

static struct excess excess_of(const struct times *late, const struct times *others)
{
    struct excess e = {.by = {[SLOW_COMPUTE] = late->compute - others->compute,
                              [SLOW_QUEUE] = late->queue - others->queue,
                              [SLOW_DATA] = late->data - others->data,
                              [SLOW_SAVE] = late->save - others->save}};
    int i;

    for (i = 0; i < SLOW_BYS; i++) {
        e.by[i] = fmax(e.by[i], 0);
        e.all += e.by[i];
    }
    return e;
}

/* Others wait for this rank alone, and it was not busier than they: its messages are late. Two
 * ranks have the same link. */
static bool has_slow_link(const struct vb_verdict_facts *f, int late)
{
    double others = 0;
    int i;

    for (i = 0; i < f->n_workers; i++)
        if (i != late && f->workers[i].late_s > others)
            others = f->workers[i].late_s;
    return f->n_workers > 2 && !f->mapped && f->workers[late].late_s > LINK_LATE * others;
}

/* Takes at most this much of the waiting that is not explained yet. */
static double explain(double *left, double most)
{
    double part = clamp(most, 0, *left);

    *left -= part;
    return part;
}

/* Divides the waiting that no rank has caused alone. */
static void explain_rest(const struct vb_verdict_facts *f, const struct times *typical, double left,
                         struct parts *p)
{
    double queue = 0;
    int i;

    /* the link carried bytes, and nothing was computed meanwhile */
    if (!f->mapped)
        p->share[VB_NETWORK] += explain(&left, p->link_busy - busy(typical) - typical->comm);
    for (i = 0; i < f->n_workers; i++) /* a rank may wait for any other that has no core */
        queue += queue_share(&f->workers[i]);
    p->share[VB_CORES] += explain(&left, queue);
    p->share[VB_NETWORK] += explain(&left, p->messages);
    /* the notes of requests queue behind the bytes of others */
    if (!f->mapped && typical->comm + p->share[VB_NETWORK] > left)
        p->share[VB_NETWORK] += explain(&left, left);
    p->share[VB_INCONCLUSIVE] += left;
}

/* Asynchronous workers that need not wait for each other wait at the end only. */
static bool waits_count(const struct vb_verdict_facts *f)
{
    return f->n_workers > 1 && (!f->apart || f->bounded);
}

/* Charges a part of the waiting for the late rank. Nobody is accused of what all ranks suffer from:
 * too few cores for the threads of the job, slow input, or a checkpoint that one rank writes. */
static void charge(const struct vb_verdict_facts *f, int late, enum slow_by by, double share,
                   const struct times *t, const struct times *others, struct parts *p)
{
    bool own_threads = by == SLOW_QUEUE && neighbour_part(f, &f->workers[late]) < 0.5;
    bool all_wait = by == SLOW_DATA && others->data > COMMON * t->data;

    if (own_threads)
        p->share[VB_CORES] += share;
    else if (all_wait)
        p->share[VB_INPUT] += share;
    else if (by == SLOW_SAVE)
        p->share[VB_DISK] += share;
    else {
        p->share[VB_STRAGGLER] += share;
        if (p->late == NO_RANK || share > p->late_share) {
            p->late = late;
            p->late_by = by;
            p->late_share = share;
        }
    }
    p->save += by == SLOW_SAVE ? share : 0;
}

/* Decides whether one rank delays the others, and charges their waiting to what it did longer.
 * Returns the time of a typical worker. */
static struct times judge_late(const struct vb_verdict_facts *f, double *left_p, struct parts *p)
{
    int late = latest(f), i;
    struct times t = times_of(&f->workers[late]), others = mean_of(f, late);
    struct excess e = excess_of(&t, &others);
    double share = fmin(busy(&t) - busy(&others), others.wait);

    *left_p = others.wait;
    if (share < EXPLAINED * others.wait && has_slow_link(f, late)) {
        e = (struct excess){.by = {[SLOW_LINK] = 1}, .all = 1};
        share = others.wait;
    }
    for (i = 0; i < SLOW_BYS && share > 0 && e.all > 0; i++)
        if (e.by[i] > 0)
            charge(f, late, (enum slow_by)i, share * e.by[i] / e.all, &t, &others, p);
    *left_p -= share > 0 && e.all > 0 ? share : 0;
    return others;
}

/* ---- servers --------------------------------------------------------------------------------- */

static const struct vb_verdict_rank *busiest(const struct vb_verdict_facts *f, double *share_p)
{
    const struct vb_verdict_rank *most = NULL;
    double share, all;
    int i;

    *share_p = 0;
    for (i = 0; i < f->n_servers; i++) {
        const struct vb_verdict_rank *s = &f->servers[i];

        all = verdict_all_s(s);
        share = all > 0 ? (s->compute_s + s->comm_s) / all : 0;
        if (most == NULL || share > *share_p) {
            most = s;
            *share_p = share;
        }
    }
    return most;
}

/* Divides the time in which a worker waits for its server: the server works, or has no core, or
 * the bytes are on their way. Gradients queue at a server that is busy all the time. */
static void divide_comm(const struct vb_verdict_facts *f, double comm, struct parts *p)
{
    const struct vb_verdict_rank *s = busiest(f, &p->busy_share);
    double all = s != NULL ? verdict_all_s(s) : 0, queue, work;

    if (all <= 0) {
        p->share[VB_NETWORK] += comm;
        return;
    }
    /* A server that polls while it is idle is ready to run, and delays nobody. Without a link there
     * is nothing else that could have delayed a gradient. */
    queue = f->mapped ? queue_share(s) : queue_part(s) * p->busy_share;
    work = clamp((s->compute_s + s->comm_s) / all - queue, 0, 1);
    if (p->busy_share >= SERVER_FULL) {
        p->share[VB_SERVER] += comm * work / (work + queue);
        p->share[VB_CORES] += comm * queue / (work + queue);
        return;
    }
    p->share[VB_CORES] += explain(&comm, queue);
    p->share[VB_SERVER] += explain(&comm, work);
    p->share[VB_NETWORK] += comm;
}

/* ---- all ------------------------------------------------------------------------------------- */

static double most_neighbour(const struct vb_verdict_facts *f)
{
    double part = 0;
    int i;

    for (i = 0; i < f->n_workers; i++)
        part = fmax(part, neighbour_part(f, &f->workers[i]));
    return part;
}

static double link_busy(const struct vb_verdict_facts *f, const struct parts *p)
{
    double bytes = 0;
    int i;

    for (i = 0; i < f->n_workers; i++)
        bytes = fmax(bytes, fmax(f->workers[i].sent_bytes, f->workers[i].received_bytes));
    for (i = 0; i < f->n_servers; i++)
        bytes = fmax(bytes, fmax(f->servers[i].sent_bytes, f->servers[i].received_bytes));
    return f->link_gb_s > 0 && p->all_s > 0 ? clamp(bytes / 1e9 / f->link_gb_s / p->all_s, 0, 1)
                                            : 0;
}

/* A sum needs two messages, one after the other. All sums of a step are under way together, but the
 * flags of mapped memory are set by one thread. */
static double messages(const struct vb_verdict_facts *f, const struct parts *p)
{
    double step_us = 1e6 * p->all_s / (double)(f->steps > 0 ? f->steps : 1);
    double one_us = 2 * f->link_us * (f->mapped ? f->requests : 1);

    return step_us > 0 ? clamp(one_us / step_us, 0, 1) : 0;
}

/* Reading from a disk shows as waiting for input. */
static bool reads_disk(const struct vb_verdict_facts *f)
{
    int i;

    for (i = 0; i < f->n_workers; i++)
        if (f->workers[i].read_mb_s >= DISK_MB_S)
            return true;
    return false;
}

void vb_verdict_parts(const struct vb_verdict_facts *f, struct parts *p)
{
    struct times typical;
    double left = 0;
    int i;

    memset(p, 0, sizeof(*p));
    p->late = NO_RANK;
    for (i = 0; i < f->n_workers; i++)
        p->all_s += verdict_all_s(&f->workers[i]) / f->n_workers;
    p->neighbour = most_neighbour(f);
    p->link_busy = link_busy(f, p);
    p->messages = messages(f, p);
    typical = waits_count(f) ? judge_late(f, &left, p) : mean_of(f, NO_RANK);
    p->skew = waits_count(f) ? typical.wait : 0;
    if (f->n_servers > 0) /* a worker under a bound waits for its server, too */
        divide_comm(f, typical.comm + left, p);
    else
        explain_rest(f, &typical, left, p);
    p->share[VB_CORES] += typical.queue;
    p->share[reads_disk(f) ? VB_DISK : VB_INPUT] += typical.data;
    p->share[VB_DISK] += typical.save;
    p->save += typical.save;
    if (f->n_servers == 0)
        p->share[VB_NETWORK] += typical.comm;
    p->share[VB_COMPUTE] = typical.compute;
}
