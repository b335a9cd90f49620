/* SPDX-License-Identifier: MIT
 *
 * A worker takes snapshots while the others push gradients that change a few parameters here and
 * there, or all. Each gradient lowers as many parameters by one, so the sum of a snapshot tells
 * whether it shows exactly the gradients of its version. With adagrad, so does the sum of the
 * state. Servers that wait for nobody must have made steps while a snapshot was copied.
 *
 * Covers: engine/ps/ps_snapshot.c
 */
#include "engine/ps/ps.h"
#include "tests/support/ranks.h"

#include <stdlib.h>

#define WORKERS 3
#define MANY 3000000 /* parameters of a sparse model: many slices */
#define FEW 300000   /* of a dense one: a gradient is as large */
#define KEYS 16      /* of each gradient */
#define STEPS 400
#define SNAP_EVERY 7 /* steps of worker 0 */

struct run {
    struct ps_job job;
    _Atomic int during; /* gradients that were applied while a snapshot was being copied */
};

static struct run *run;

/* ---- the server ------------------------------------------------------------------------------ */

static int server(struct vb_group *g)
{
    float *zero = calloc(run->job.n, sizeof(*zero));
    struct ps_server *s = NULL;
    vb_status st = vb_ps_server_create(g, &run->job, zero, zero, &s);
    uint64_t before;
    bool snapping;

    if (st == VB_OK)
        st = vb_ps_server_begin(s);
    while (st == VB_OK && !s->done) {
        snapping = s->snapping;
        before = vb_ps_version_of(s);
        st = vb_ps_server_round(s);
        if (snapping)
            run->during += (int)(vb_ps_version_of(s) - before);
    }
    if (st == VB_OK)
        st = vb_ps_server_finish(s);
    vb_ps_server_close(s);
    free(zero);
    return T_WRONG(st == VB_OK);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Each gradient of ones adds 1 to the state at each of its keys. */
static int check_snapshot(struct ps_worker *w, float *params, float *state)
{
    bool adagrad = run->job.rule.kind == VB_K_ADAGRAD;
    double sum = 0, each = run->job.sparse ? KEYS : (double)run->job.n;
    uint64_t version = 0;
    size_t i;

    if (vb_ps_worker_snapshot(w, params, state, &version) != VB_OK)
        return 1;
    for (i = 0; i < run->job.n; i++)
        sum += adagrad ? (double)state[i] : -(double)params[i];
    if (sum != each * (double)version)
        fprintf(stderr, "version %llu has a sum of %g\n", (unsigned long long)version, sum);
    return sum != each * (double)version;
}

/* The keys of a step, in ascending order. */
static void draw(const struct ps_worker *w, uint64_t step, uint32_t keys[KEYS])
{
    uint32_t part = (uint32_t)run->job.n / KEYS, i;

    for (i = 0; i < KEYS; i++)
        keys[i] = i * part + (uint32_t)(vb_random((uint64_t)w->number, step * KEYS + i) % part);
}

static vb_status push(struct ps_worker *w, uint64_t step, float *ones)
{
    uint32_t now[KEYS], next[KEYS];
    const float *values;
    float *grads = NULL;
    vb_status st;

    if (run->job.sparse) {
        draw(w, step, now);
        draw(w, step + 1, next);
        st = vb_ps_worker_values(w, now, KEYS, &values);
        return st == VB_OK ? vb_ps_worker_push_sparse(w, now, ones, KEYS, 1, 1, next, KEYS) : st;
    }
    st = vb_ps_worker_pull(w, &values);
    if (st == VB_OK)
        st = vb_ps_worker_grads(w, &grads);
    if (st == VB_OK && grads != NULL)
        memcpy(grads, ones, run->job.n * sizeof(*grads));
    return st == VB_OK ? vb_ps_worker_push(w, grads != NULL ? grads : ones, 1, 1) : st;
}

static int make_steps(struct ps_worker *w, float *params, float *state, float *ones)
{
    uint32_t first[KEYS];
    bool go = true;
    uint64_t i;
    int wrong = 0;

    draw(w, 0, first);
    if (run->job.sparse)
        wrong = T_WRONG(vb_ps_worker_ask(w, first, KEYS) == VB_OK);
    for (i = 0; go && wrong == 0; i++) {
        wrong += T_WRONG(vb_ps_worker_ticket(w, &go) == VB_OK);
        if (go && wrong == 0 && w->number == 0 && i % SNAP_EVERY == 5)
            wrong += check_snapshot(w, params, state);
        if (go && wrong == 0)
            wrong += T_WRONG(push(w, i, ones) == VB_OK);
    }
    return wrong;
}

static int worker(struct vb_group *g)
{
    size_t n = run->job.n, i;
    float *params = calloc(3 * n, sizeof(*params)), *state = params + n, *ones = state + n;
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = T_WRONG(vb_ps_worker_create(g, &run->job, &w) == VB_OK);

    for (i = 0; i < n; i++)
        ones[i] = 1;
    if (wrong == 0)
        wrong = make_steps(w, params, state, ones);
    if (wrong == 0)
        wrong = T_WRONG(vb_ps_worker_end(w, params, state, &version) == VB_OK);
    if (wrong > 0)
        vb_group_abort(g, "a worker has found something wrong");
    vb_ps_worker_close(w);
    free(params);
    return wrong;
}

static int member(struct vb_group *g, void *arg)
{
    (void)arg;
    return vb_group_rank(g) < WORKERS ? worker(g) : server(g);
}

static void a_snapshot_shows_one_moment(void **state)
{
    static struct run all;
    static const struct {
        bool sparse;
        enum vb_k_rule_kind rule;
        int64_t bound, steps;
        enum vb_transport_choice transport;
    } kinds[] = {
        {true, VB_K_SGD, PS_UNBOUNDED, STEPS, VB_TRANSPORT_SHM},
        {true, VB_K_ADAGRAD, PS_UNBOUNDED, STEPS, VB_TRANSPORT_TCP},
        {true, VB_K_ADAGRAD, 3, STEPS, VB_TRANSPORT_SHM},
        {false, VB_K_SGD, PS_UNBOUNDED, STEPS / 8, VB_TRANSPORT_SHM},
        {false, VB_K_ADAGRAD, 2, STEPS / 8, VB_TRANSPORT_TCP},
    };
    int during = 0;
    size_t i;

    (void)state;
    run = &all;
    for (i = 0; i < VB_COUNT(kinds); i++) {
        struct t_job job = {.transport = kinds[i].transport, .world = WORKERS + 1, .fn = member};

        all = (struct run){.job = {.workers = WORKERS,
                                   .servers = 1,
                                   .bound = kinds[i].bound,
                                   .n = kinds[i].sparse ? MANY : FEW,
                                   .words = kinds[i].rule == VB_K_ADAGRAD,
                                   .sparse = kinds[i].sparse,
                                   .max_keys = kinds[i].sparse ? KEYS : 0,
                                   .steps = kinds[i].steps,
                                   .rule = {.kind = kinds[i].rule, .eps = 1e-8f},
                                   .schedule = {.kind = VB_K_RATE_CONSTANT, .base = 1}}};
        t_as_threads(&job);
        during += run->during;
    }
    assert_true(during > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_shows_one_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
