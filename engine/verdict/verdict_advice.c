/* SPDX-License-Identifier: MIT
 *
 * What would help, by a simple model of a step: computing grows with the batch, transfer takes its
 * latency and its bytes over the bandwidth, and what one cause costs is gone without it. Only
 * changes that train at least 5 % more samples a second are told, the best first.
 */
#include "engine/verdict/verdict_priv.h"

#include <math.h>
#include <string.h>

#define GAIN_MIN 1.05
#define WIDER 10 /* times the bandwidth of the link that is advised */

_Static_assert(sizeof(((struct vb_advice *)0)->change) == 96, "the texts have the same length");

/* steps: times as many steps a second as now; samples: in a step, times as many as now. */
struct change {
    char text[96];
    double steps, samples;
};

static double gain(const struct change *c)
{
    return c->steps * c->samples;
}

/* Keeps the list in the order of gains. */
static void add(struct change *list, int *n, const struct change *c)
{
    int i;

    if (!(gain(c) >= GAIN_MIN) || !isfinite(gain(c)))
        return;
    if (*n == VB_ADVICE_MAX && gain(&list[*n - 1]) >= gain(c))
        return;
    i = *n < VB_ADVICE_MAX ? (*n)++ : *n - 1;
    for (; i > 0 && gain(&list[i - 1]) < gain(c); i--)
        list[i] = list[i - 1];
    list[i] = *c;
}

/* The cause is gone. A link that is busy for most of a step limits the gain. */
static void without(const struct parts *p, enum vb_resource cause, const char *text,
                    struct change *list, int *n)
{
    struct change c = {.steps = 1 / (1 - fmin(p->share[cause], 0.99)), .samples = 1};

    if (cause != VB_NETWORK && p->link_busy > 0)
        c.steps = fmin(c.steps, fmax(1 / p->link_busy, 1));
    snprintf(c.text, sizeof(c.text), "%s", text);
    add(list, n, &c);
}

static void larger_batch(const struct vb_verdict_facts *f, const struct parts *p,
                         struct change *list, int *n)
{
    double grows =
        p->share[VB_COMPUTE] + p->share[VB_INPUT] + p->share[VB_CORES] + p->share[VB_STRAGGLER];
    struct change c = {.steps = 1 / (1 + grows), .samples = 2};

    if (p->share[VB_NETWORK] + p->share[VB_SERVER] < 0.05)
        return;
    snprintf(c.text, sizeof(c.text), "--batch %d", 2 * f->batch);
    add(list, n, &c);
}

/* Removes a part of the time in which the link carries bytes. */
static void fewer_bytes(const struct parts *p, double part, const char *text, struct change *list,
                        int *n)
{
    double saved = fmin(p->link_busy * part, p->share[VB_NETWORK]);
    struct change c = {.steps = 1 / (1 - fmin(saved, 0.99)), .samples = 1};

    snprintf(c.text, sizeof(c.text), "%s", text);
    add(list, n, &c);
}

/* Only the ratio of the two predictions counts: requests of a step overlap, and computing hides a
 * part of them. */
static void other_algo(const struct vb_verdict_facts *f, const struct parts *p, struct change *list,
                       int *n)
{
    double saved = 1 - (f->algo_us > 0 ? f->best_algo_us / f->algo_us : 1);
    struct change c = {.steps = 1 / (1 - fmin(p->share[VB_NETWORK] * saved, 0.99)), .samples = 1};

    if (saved <= 0 || f->best_algo == NULL)
        return;
    snprintf(c.text, sizeof(c.text), "--algo %s", f->best_algo);
    add(list, n, &c);
}

static void other_network(const struct vb_verdict_facts *f, const struct parts *p,
                          struct change *list, int *n)
{
    char text[96];

    if (f->transport[0] == '\0' || f->mapped)
        return;
    if (p->messages >= 0.5 * p->share[VB_NETWORK]) {
        without(p, VB_NETWORK, "a network with less latency", list, n);
        return;
    }
    if (!f->narrow && !f->apart)
        fewer_bytes(p, 0.5, "--wire bf16", list, n);
    if (f->link_gb_s > 0) {
        snprintf(text, sizeof(text), "a link of %.3g Gbit/s", WIDER * 8 * f->link_gb_s);
        fewer_bytes(p, 1 - 1.0 / WIDER, text, list, n);
    }
    if (p->link_busy < 0.5 * p->share[VB_NETWORK])
        without(p, VB_NETWORK, "a network with less latency", list, n);
}

/* Without one rank a step has fewer samples. */
static void other_ranks(const struct vb_verdict_facts *f, const struct parts *p,
                        struct change *list, int *n)
{
    double ranks = f->n_workers, lost = p->share[p->late != NO_RANK ? VB_STRAGGLER : VB_CORES];
    bool crowded = f->cpus > 0 && f->threads > f->cpus;
    struct change c = {.samples = (ranks - 1) / ranks};

    if (f->n_workers > 1 && (p->late != NO_RANK || crowded)) {
        c.steps = 1 / (1 - fmin(lost, 0.99));
        snprintf(c.text, sizeof(c.text), p->late != NO_RANK ? "without rank %d" : "one rank less",
                 p->late != NO_RANK ? f->workers[p->late].rank : 0);
        add(list, n, &c);
    }
    if (f->threads < f->cpus && !f->apart) {
        c.steps = 1 - 0.5 * p->share[VB_NETWORK];
        c.samples = (ranks + 1) / ranks;
        snprintf(c.text, sizeof(c.text), "--ranks %d", f->n_workers + 1);
        add(list, n, &c);
    }
}

/* Only the straggler is as slow as all are now. A step is then that of one worker. */
static void asynchronous(const struct vb_verdict_facts *f, const struct parts *p,
                         struct change *list, int *n)
{
    double ranks = f->n_workers;
    struct change c = {.text = "--mode async", .samples = 1 / ranks};

    if (f->apart || f->n_workers < 2 || p->late == NO_RANK)
        return;
    c.steps = 1 + (ranks - 1) / (1 - fmin(p->share[VB_STRAGGLER], 0.99));
    add(list, n, &c);
}

static void remove_causes(const struct vb_verdict_facts *f, const struct parts *p,
                          struct change *list, int *n)
{
    char text[96] = "";

    if (p->late != NO_RANK)
        snprintf(text, sizeof(text), "rank %d as fast as the others", f->workers[p->late].rank);
    without(p, VB_STRAGGLER, text, list, n);
    if (p->neighbour >= 0.5)
        without(p, VB_CORES, "no other process on these cores", list, n);
    without(p, VB_INPUT, "data that is ready in time: verbena data convert", list, n);
    without(p, VB_DISK,
            p->save > p->share[VB_DISK] / 2 ? "checkpoints less often: --checkpoint-every"
                                            : "a faster disk, or data that fits into memory",
            list, n);
    if (f->n_servers > 0) {
        struct change c = {.steps = 1 / (1 - 0.5 * fmin(p->share[VB_SERVER], 0.99)), .samples = 1};

        snprintf(c.text, sizeof(c.text), "--servers %d", 2 * f->n_servers);
        add(list, n, &c);
    }
}

void vb_verdict_advice(const struct vb_verdict_facts *f, const struct parts *p,
                       struct vb_bottleneck *b)
{
    struct change list[VB_ADVICE_MAX];
    int i, n = 0;

    remove_causes(f, p, list, &n);
    larger_batch(f, p, list, &n);
    other_algo(f, p, list, &n);
    other_network(f, p, list, &n);
    other_ranks(f, p, list, &n);
    asynchronous(f, p, list, &n);
    for (i = 0; i < n; i++) {
        memcpy(b->advice[i].change, list[i].text, sizeof(list[i].text));
        b->advice[i].steps_per_s = list[i].steps * f->steps_per_s;
        b->advice[i].samples_per_s = gain(&list[i]) * f->samples_per_s;
    }
    b->n_advice = n;
}
