/* SPDX-License-Identifier: MIT
 *
 * Names the cause of most of the time that is not spent computing, or says that there is none.
 */
#include "engine/verdict/verdict_priv.h"

#include <stdlib.h>
#include <string.h>

#define LOSS_MIN 0.25  /* a run that computes for longer than the rest is limited by computing */
#define CAUSE_MIN 0.15 /* a smaller cause is not worth naming */
#define MOST 0.6       /* a cause is named if it covers this part of the loss */
#define HALF 0.5       /* of the largest cause: the second one is named, too */
#define BOTH 0.75      /* two causes are named if they cover this part together */
#define LINK_FULL 0.5  /* a link that carries bytes for longer is limited by its bandwidth */
#define TOLD_MIN 0.005 /* smaller shares are not told */

const char *vb_resource_str(enum vb_resource resource)
{
    static const char *const names[VB_RESOURCES] = {
        [VB_COMPUTE] = "compute", [VB_NETWORK] = "network", [VB_STRAGGLER] = "straggler",
        [VB_INPUT] = "input",     [VB_DISK] = "disk",       [VB_CORES] = "cores",
        [VB_SERVER] = "server",   [VB_MIXED] = "mixed",     [VB_INCONCLUSIVE] = "inconclusive"};

    return names[resource];
}

/* ---- the decision ---------------------------------------------------------------------------- */

/* The losses, largest first. */
struct losses {
    enum vb_resource by[VB_RESOURCES];
    double share[VB_RESOURCES], all;
    int n;
};

static struct losses losses_of(const struct parts *p)
{
    struct losses l = {.n = 0};
    int i, k;

    for (i = 0; i < VB_RESOURCES; i++) {
        if (i == VB_COMPUTE || i == VB_MIXED)
            continue;
        l.all += p->share[i];
        for (k = l.n++; k > 0 && l.share[k - 1] < p->share[i]; k--) {
            l.by[k] = l.by[k - 1];
            l.share[k] = l.share[k - 1];
        }
        l.by[k] = (enum vb_resource)i;
        l.share[k] = p->share[i];
    }
    return l;
}

static enum vb_resource decide(const struct parts *p, const struct losses *l)
{
    bool two = l->share[1] >= CAUSE_MIN && l->share[0] + l->share[1] >= BOTH * l->all &&
               l->by[0] != VB_INCONCLUSIVE && l->by[1] != VB_INCONCLUSIVE;

    if (l->all < LOSS_MIN)
        return VB_COMPUTE;
    if (l->share[0] < CAUSE_MIN && p->share[VB_COMPUTE] >= 0.5)
        return VB_COMPUTE;
    if (l->share[0] >= MOST * l->all && !(two && l->share[1] >= HALF * l->share[0]))
        return l->by[0];
    return two ? VB_MIXED : VB_INCONCLUSIVE;
}

static void list_causes(const struct parts *p, const struct losses *l, struct vb_bottleneck *b)
{
    bool told = false;
    int i;

    for (i = 0; i < l->n; i++) {
        if (!told && p->share[VB_COMPUTE] >= l->share[i]) {
            b->causes[b->n_causes++] = (struct vb_cause){VB_COMPUTE, p->share[VB_COMPUTE]};
            told = true;
        }
        if (l->share[i] >= TOLD_MIN)
            b->causes[b->n_causes++] = (struct vb_cause){l->by[i], l->share[i]};
    }
    if (!told)
        b->causes[b->n_causes++] = (struct vb_cause){VB_COMPUTE, p->share[VB_COMPUTE]};
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* A far link also slows down TCP, so its bandwidth was measured too low: latency is judged first.
 */
static bool is_narrow(const struct parts *p)
{
    double network = p->share[VB_NETWORK];

    return p->messages < LINK_FULL * network && p->link_busy >= LINK_FULL * network;
}

static const char *kind_of(const struct parts *p, enum vb_resource resource)
{
    static const char *const slow[SLOW_BYS] = {[SLOW_COMPUTE] = "compute",
                                               [SLOW_QUEUE] = "neighbour",
                                               [SLOW_DATA] = "data",
                                               [SLOW_LINK] = "link"};

    switch (resource) {
    case VB_NETWORK:
        return is_narrow(p) ? "bandwidth" : "latency";
    case VB_STRAGGLER:
        return slow[p->late_by];
    case VB_CORES:
        return p->neighbour >= 0.5 ? "neighbour" : "threads";
    case VB_DISK:
        return p->save > p->share[VB_DISK] / 2 ? "checkpoint" : "read";
    default:
        return "";
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

static double step_ms(const struct vb_verdict_facts *f, const struct parts *p, double share)
{
    return 1e3 * share * p->all_s / (double)f->steps;
}

static void say_straggler(const struct vb_verdict_facts *f, const struct parts *p, char *why,
                          size_t size)
{
    static const char *const by[SLOW_BYS] = {
        [SLOW_COMPUTE] = "it computes longer than the others",
        [SLOW_QUEUE] = "another process runs on its cores",
        [SLOW_DATA] = "it waits longer for its data than the others",
        [SLOW_LINK] = "it is not busier than the others, so its link is slow"};
    const struct vb_verdict_rank *r = &f->workers[p->late];

    snprintf(why, size,
             "rank %d (%s) made other ranks wait %lld times in %lld steps, on average %.4g ms per "
             "step, at most %.4g ms: %s",
             r->rank, r->host, (long long)r->late_n, (long long)f->steps,
             1e3 * r->late_s / (double)f->steps, 1e3 * r->late_max_s, by[p->late_by]);
}

static void say_cores(const struct vb_verdict_facts *f, const struct parts *p, double ms, char *why,
                      size_t size)
{
    if (p->neighbour >= 0.5)
        snprintf(why, size,
                 "for %.4g ms of a step threads were ready to run, but other processes used their "
                 "cores",
                 ms);
    else
        snprintf(why, size,
                 "for %.4g ms of a step threads were ready to run, but had no core: the job has %d "
                 "threads that work, and %d core%s",
                 ms, f->threads, f->cpus, f->cpus == 1 ? "" : "s");
}

/* Says what one cause is, in half a sentence. */
static void say(const struct vb_verdict_facts *f, const struct parts *p, enum vb_resource resource,
                char *why, size_t size)
{
    double ms = step_ms(f, p, p->share[resource]);

    switch (resource) {
    case VB_COMPUTE:
        snprintf(why, size, "%.4g ms of a step are spent computing", ms);
        break;
    case VB_NETWORK:
        snprintf(why, size, "%.4g ms of a step are transfer over %s that no computing hides: %s",
                 ms, f->transport,
                 is_narrow(p) ? "the link is too narrow for these bytes"
                              : "messages take long to arrive");
        break;
    case VB_STRAGGLER:
        say_straggler(f, p, why, size);
        break;
    case VB_INPUT:
        snprintf(why, size, "%.4g ms of a step are spent waiting for data", ms);
        break;
    case VB_DISK:
        snprintf(why, size, "%.4g ms of a step are spent waiting for the disk, %s", ms,
                 p->save > p->share[VB_DISK] / 2 ? "to which checkpoints are written"
                                                 : "from which data is read");
        break;
    case VB_CORES:
        say_cores(f, p, ms, why, size);
        break;
    case VB_SERVER:
        snprintf(why, size,
                 "%.4g ms of a step are spent waiting for the server, which is busy for %.0f %% of "
                 "the time",
                 ms, 100 * p->busy_share);
        break;
    default:
        snprintf(why, size, "%.4g ms of a step are waiting for other ranks in turn", ms);
    }
}

/* Says what one of several causes is: "straggler 49 % (rank 1: compute)". */
static int say_briefly(const struct vb_verdict_facts *f, const struct parts *p,
                       enum vb_resource resource, char *text, size_t size)
{
    const char *kind = kind_of(p, resource);
    char rank[32] = "";

    if (resource == VB_STRAGGLER && p->late != NO_RANK)
        snprintf(rank, sizeof(rank), "rank %d: ", f->workers[p->late].rank);
    return snprintf(text, size, "%s %.0f %%%s%s%s%s", vb_resource_str(resource),
                    100 * p->share[resource], kind[0] != '\0' ? " (" : "", rank, kind,
                    kind[0] != '\0' ? ")" : "");
}

static void say_two(const struct vb_verdict_facts *f, const struct parts *p, const struct losses *l,
                    struct vb_bottleneck *b)
{
    char first[96], second[96];

    (void)say_briefly(f, p, l->by[0], first, sizeof(first));
    (void)say_briefly(f, p, l->by[1], second, sizeof(second));
    snprintf(b->why, sizeof(b->why),
             "%s and %s; of a step, %.4g ms and %.4g ms. To remove one of them leaves the other",
             first, second, step_ms(f, p, l->share[0]), step_ms(f, p, l->share[1]));
}

static void say_unclear(const struct losses *l, struct vb_bottleneck *b)
{
    int i, len = snprintf(b->why, sizeof(b->why),
                          "no cause covers most of the loss of %.0f %%:", 100 * l->all);

    for (i = 0; i < l->n && i < 4 && l->share[i] >= TOLD_MIN; i++)
        len +=
            snprintf(b->why + len, sizeof(b->why) - (size_t)len, "%s %s %.0f %%", i > 0 ? "," : "",
                     l->by[i] == VB_INCONCLUSIVE ? "waiting in turn" : vb_resource_str(l->by[i]),
                     100 * l->share[i]);
}

static void fill_words(const struct vb_verdict_facts *f, const struct parts *p,
                       const struct losses *l, struct vb_bottleneck *b)
{
    bool accused =
        b->resource == VB_STRAGGLER ||
        (b->resource == VB_MIXED && (l->by[0] == VB_STRAGGLER || l->by[1] == VB_STRAGGLER));

    b->rank = accused && p->late != NO_RANK ? f->workers[p->late].rank : NO_RANK;
    snprintf(b->kind, sizeof(b->kind), "%s", kind_of(p, b->resource));
    if (b->resource == VB_MIXED)
        say_two(f, p, l, b);
    else if (b->resource == VB_INCONCLUSIVE)
        say_unclear(l, b);
    else
        say(f, p, b->resource, b->why, sizeof(b->why));
}

void vb_verdict(const struct vb_verdict_facts *f, struct vb_bottleneck *b)
{
    struct losses l;
    struct parts p;

    memset(b, 0, sizeof(*b));
    b->rank = NO_RANK;
    if (f->steps <= 0 || f->n_workers <= 0)
        return;
    vb_verdict_parts(f, &p);
    if (p.all_s <= 0)
        return;
    l = losses_of(&p);
    b->resource = decide(&p, &l);
    if (b->resource == VB_MIXED)
        b->share = l.share[0] + l.share[1];
    else
        b->share = b->resource == VB_INCONCLUSIVE ? l.all : p.share[b->resource];
    list_causes(&p, &l, b);
    fill_words(f, &p, &l, b);
    vb_verdict_evidence(f, &p, b);
    vb_verdict_advice(f, &p, b);
}
