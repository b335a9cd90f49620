/* SPDX-License-Identifier: MIT */
#ifndef VB_ENGINE_VERDICT_VERDICT_PRIV_H
#define VB_ENGINE_VERDICT_VERDICT_PRIV_H

#include "engine/verdict/verdict.h"

#define NO_RANK (-1)

/* What slows the rank that others wait for. */
enum slow_by { SLOW_COMPUTE, SLOW_QUEUE, SLOW_DATA, SLOW_SAVE, SLOW_LINK, SLOW_BYS };

/* Where the time of a typical worker went: of the workers that wait, if there is a straggler.
 * Shares of its time of training. */
struct parts {
    double share[VB_RESOURCES]; /* VB_INCONCLUSIVE: waiting that nothing explains */
    int late;                   /* index of the worker that others wait for; NO_RANK: none */
    enum slow_by late_by;       /* what it did longer than the others, mostly */
    double late_share;
    double neighbour;  /* part of the waiting for cores that is due to other processes */
    double messages;   /* share of the time that a message takes to arrive, twice a step */
    double link_busy;  /* share of the time in which the link carries bytes */
    double save;       /* checkpoints, of VB_DISK */
    double skew;       /* all waiting for other workers */
    double all_s;      /* mean time of training */
    double busy_share; /* of the busiest server */
};

/* verdict_parts.c: divides the time. */
void vb_verdict_parts(const struct vb_verdict_facts *f, struct parts *p);

static inline double verdict_all_s(const struct vb_verdict_rank *r)
{
    return r->data_s + r->compute_s + r->comm_s + r->wait_s + r->save_s;
}

static inline double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* verdict_evidence.c: lists the figures. */
void vb_verdict_evidence(const struct vb_verdict_facts *f, const struct parts *p,
                         struct vb_bottleneck *b);

/* verdict_advice.c: lists changes that would make the run faster, by a simple model. */
void vb_verdict_advice(const struct vb_verdict_facts *f, const struct parts *p,
                       struct vb_bottleneck *b);

#endif
