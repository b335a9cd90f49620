/* SPDX-License-Identifier: MIT
 *
 * The code that workers run in the parameter server tests. The gradient of worker w is 1 at every
 * parameter of class w, and 0 elsewhere. A sparse gradient is 1 at the keys of the batch. A step
 * subtracts the gradient, so the parameters count the gradients exactly.
 */
#ifndef VB_TESTS_SUPPORT_PS_FIXTURE_H
#define VB_TESTS_SUPPORT_PS_FIXTURE_H

#include "engine/ps/ps.h"
#include "tests/support/ranks.h"
#include "tests/support/rdma.h"

#include <math.h>
#include <time.h>

#define P_WORKERS 5 /* the largest number of workers */
#define P_KEYS 400
#define P_ROW 40 /* maximum number of keys per batch */

/* Counts what the workers have done. All workers share one tally. */
struct p_tally {
    long nap_ns; /* maximum pause of a worker, except for rare longer ones; 0: no pauses */
    _Atomic int64_t begun[P_WORKERS]; /* number of gradients that each worker has begun to push */
    _Atomic int64_t total;
    _Atomic uint32_t of_key[P_KEYS]; /* number of gradients that contained each key */
};

/* Returns the number of steps to run: n, but fewer in the lab, because emulated machines are
 * slow. */
static inline int64_t p_steps(int64_t n)
{
    return t_rdma_only() ? n / 5 : n;
}

static inline void p_pause(const struct p_tally *tally, uint64_t seed, uint64_t i)
{
    uint64_t r = vb_random(seed, i);
    struct timespec ts = {0};

    if (tally->nap_ns == 0 || r % 3 != 0)
        return;
    ts.tv_nsec = r % 64 == 0 ? 10 * tally->nap_ns : (long)(r % (uint64_t)tally->nap_ns);
    nanosleep(&ts, NULL);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Checks that all parameters of one class in a shard are equal. If exact is true, also checks that
 * the counted gradients of all classes add up to the version. Returns the number of errors. */
static inline int p_check_counts(const struct ps_worker *w, const float *params, uint64_t version,
                                 bool exact)
{
    size_t i, classes = (size_t)vb_ps_clients(w->job);
    double sum = 0;
    int wrong = 0, k;

    for (k = 0; k < w->job->servers; k++) {
        const float *shard = params + w->lay.first[k];

        for (i = 0; i < w->lay.n[k]; i++)
            wrong += shard[i] != shard[i % classes];
    }
    for (i = 0; i < classes; i++)
        sum -= (double)params[i];
    /* with bound 0, each version contains one gradient of each worker */
    wrong += exact && sum != (double)version * (w->job->bound == 0 ? w->job->workers : 1);
    if (wrong > 0)
        fprintf(stderr, "version %llu has the sum of %g gradients; %d parameters are wrong\n",
                (unsigned long long)version, sum, wrong);
    return wrong;
}

/* Called when a worker has the ticket of step `own`. Checks that no other worker is behind by more
 * steps than the bound. */
static inline int p_check_bound(const struct ps_job *job, const struct p_tally *tally, int64_t own)
{
    int w, wrong = 0;

    for (w = 0; w < job->workers && job->bound >= 0; w++)
        wrong += tally->begun[w] < own - job->bound;
    return T_WRONG(wrong == 0);
}

/* Checks that no value that was read counts more gradients than were pushed so far. */
static inline int p_check_values(const struct p_tally *tally, const uint32_t *keys,
                                 const float *values, size_t n)
{
    int wrong = 0;
    size_t i;

    for (i = 0; i < n; i++)
        wrong += values[i] > 0 || values[i] != floorf(values[i]) ||
                 (double)-values[i] > (double)tally->of_key[keys[i]];
    return T_WRONG(wrong == 0);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static inline void p_count(const struct ps_worker *w, struct p_tally *tally)
{
    tally->begun[w->number]++;
    tally->total++;
}

typedef void (*p_gradient_fn)(const struct ps_worker *w, uint64_t step, float *grads);

static inline void p_ones(const struct ps_worker *w, uint64_t step, float *grads)
{
    size_t i, classes = (size_t)vb_ps_clients(w->job);

    (void)step;
    for (i = 0; i < w->job->n; i++)
        grads[i] = (int)(i % classes) == w->number ? 1 : 0;
}

/* Makes one step, for which the worker already has the ticket. own is memory for a gradient. */
static inline vb_status p_push(struct ps_worker *w, struct p_tally *tally, p_gradient_fn gradient,
                               uint64_t step, float *own)
{
    const float *params;
    float *grads;
    vb_status st = vb_ps_worker_pull(w, &params);

    if (st == VB_OK)
        st = vb_ps_worker_grads(w, &grads);
    if (st != VB_OK)
        return st;
    grads = grads != NULL ? grads : own;
    gradient(w, step, grads);
    p_count(w, tally);
    st = vb_ps_worker_push(w, grads, 1, 1);
    return st == VB_OK ? vb_ps_worker_prefetch(w) : st;
}

/* Draws 1 to P_ROW random keys in ascending order. Returns the number of keys. */
static inline size_t p_draw_keys(uint64_t seed, uint64_t i, uint32_t *keys)
{
    uint32_t k;
    size_t n = 0;

    for (k = 0; k < P_KEYS && n < P_ROW; k++)
        if (vb_random(seed * 1000 + i, k) % 12 == 0 || (k == P_KEYS - 1 && n == 0))
            keys[n++] = k;
    return n;
}

static inline vb_status p_push_keys(struct ps_worker *w, struct p_tally *tally, uint64_t i,
                                    uint32_t keys[2][P_ROW], size_t n[2], int *wrong_p)
{
    uint64_t seed = (uint64_t)w->number + 1;
    int now = (int)(i % 2), next = 1 - now;
    const float *values;
    float ones[P_ROW];
    size_t j;
    vb_status st = vb_ps_worker_values(w, keys[now], n[now], &values);

    if (st != VB_OK)
        return st;
    *wrong_p += p_check_values(tally, keys[now], values, n[now]);
    p_pause(tally, seed, i);
    n[next] = p_draw_keys(seed, i + 1, keys[next]);
    for (j = 0; j < n[now]; j++) {
        ones[j] = 1;
        tally->of_key[keys[now][j]]++;
    }
    p_count(w, tally);
    return vb_ps_worker_push_sparse(w, keys[now], ones, n[now], 1, 1, keys[next], n[next]);
}

/* Runs all steps of a sparse worker. */
static inline vb_status p_sparse_steps(struct ps_worker *w, struct p_tally *tally, int *wrong_p)
{
    uint32_t keys[2][P_ROW];
    bool go = true;
    uint64_t i;
    size_t n[2];
    vb_status st;

    n[0] = p_draw_keys((uint64_t)w->number + 1, 0, keys[0]);
    st = vb_ps_worker_ask(w, keys[0], n[0]);
    for (i = 0; st == VB_OK && *wrong_p == 0; i++) {
        st = vb_ps_worker_ticket(w, &go);
        if (!go || st != VB_OK)
            break;
        *wrong_p += p_check_bound(w->job, tally, (int64_t)i);
        st = p_push_keys(w, tally, i, keys, n, wrong_p);
    }
    return st;
}

#endif
