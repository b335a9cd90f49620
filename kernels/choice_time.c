/* SPDX-License-Identifier: MIT
 *
 * Which backend is fastest, by timing. A whole AlexNet of batch 32 computes for a second when all
 * choices are right, so candidates cannot all run on it: they run on smaller versions of the shape
 * first, where those that are clearly slower drop out, and on larger ones the fewer they get.
 *
 * A smaller convolution has fewer samples, then fewer channels; a smaller linear layer has fewer
 * inputs and outputs, for its speed depends on the samples above all.
 */
#include "kernels/tensors_priv.h"

#include <omp.h>

#include <stdlib.h>
#include <string.h>

#define CHANNELS_MIN 32
#define PEAK_SIDE 1024
#define ENOUGH_MS 3.0 /* a pass is run again until it took so long in all ... */
#define RUNS_MAX 10   /* ... or so often */
#define HOPELESS 4    /* times the best: not even worth a second run */

struct stage {
    double flops; /* of the shape, about */
    int runs;     /* at least, after one that does not count */
    double drop;  /* who takes longer than the fastest by this drops out */
};

static const struct stage stages[] = {{3e7, 1, 3}, {3e8, 1, 1.6}, {1.5e9, 2, 1}};

/* ---- smaller shapes -------------------------------------------------------------------------- */

static int samples_min(void)
{
    int threads = omp_get_max_threads();

    return threads > 2 ? threads : 2;
}

/* One step towards smaller. False: it is as small as is still like the whole. */
static bool shrink_conv(struct vb_k_shape *s)
{
    if (s->n / 2 >= samples_min())
        s->n /= 2;
    else if (s->oc >= s->c && s->oc / 2 >= CHANNELS_MIN)
        s->oc /= 2;
    else if (s->c / 2 >= CHANNELS_MIN)
        s->c /= 2;
    else
        return false;
    return true;
}

static bool shrink_linear(struct vb_k_shape *s)
{
    s->c *= s->h * s->w;
    s->h = s->w = 1;
    if (s->oc >= s->c && s->oc / 2 >= 8 * CHANNELS_MIN)
        s->oc /= 2;
    else if (s->c / 2 >= 8 * CHANNELS_MIN)
        s->c /= 2;
    else
        return false;
    return true;
}

static struct vb_k_shape smaller(const struct vb_k_shape *shape, double flops)
{
    struct vb_k_shape s = *shape;
    bool more = vb_k_has_pass(s.kind, VB_K_BACKWARD_WEIGHTS);

    while (more && vb_k_shape_flops(&s, VB_K_FORWARD) > flops)
        more = s.kind == VB_K_LINEAR ? shrink_linear(&s) : shrink_conv(&s);
    return s;
}

/* ---- timing ---------------------------------------------------------------------------------- */

static double run_ms(const struct vb_k_backend *backend, void *state, const struct vb_k_args *args)
{
    uint64_t start = vb_clock_ns();

    backend->run(state, args);
    return (double)(vb_clock_ns() - start) / 1e6;
}

struct effort {
    int runs, runs_max;
    double enough_ms; /* in all: then runs will do */
    double hopeless;  /* a first run that takes this many ms is the last; 0: never */
};

/* The best of several; the first run does not count, as it touches memory for the first time. */
static double best_ms(const struct vb_k_backend *backend, void *state, const struct vb_k_args *args,
                      const struct effort *effort)
{
    double best = -1, sum = 0, ms;
    int i;

    ms = run_ms(backend, state, args);
    if (effort->hopeless > 0 && ms > effort->hopeless)
        return ms;
    for (i = 0; i < effort->runs || (sum < effort->enough_ms && i < effort->runs_max); i++) {
        ms = run_ms(backend, state, args);
        sum += ms;
        if (best < 0 || ms < best)
            best = ms;
    }
    return best;
}

/* ms_p: negative if the backend finds that it cannot do it after all. */
static vb_status time_one(const struct vb_k_tensors *t, const struct vb_k_backend *backend,
                          const struct effort *effort, double *ms_p)
{
    struct vb_k_args args = vb_k_tensors_args(t);
    size_t scratch_bytes = 0;
    void *state;
    vb_status st;

    *ms_p = -1;
    st = backend->prepare(&t->s, t->pass, &state, &scratch_bytes);
    if (st != VB_OK)
        return st == VB_ERR_UNSUPPORTED ? VB_OK : st;
    args.scratch = vb_alloc_aligned(scratch_bytes + VB_CACHE_LINE);
    if (args.scratch == NULL)
        st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu bytes of scratch", scratch_bytes);
    else
        *ms_p = best_ms(backend, state, &args, effort);
    free(args.scratch);
    backend->destroy(state);
    return st;
}

/* ---- the choice ------------------------------------------------------------------------------ */

#define NOT_TRIED (-2) /* for a time */

struct race {
    const struct vb_k_backend *backend[VB_K_CANDIDATES_MAX];
    double ms[VB_K_CANDIDATES_MAX];
    int n;
};

static void enter(struct race *race, const struct vb_k_shape *s, enum vb_k_pass pass)
{
    int i;

    race->n = 0;
    for (i = 0; i < vb_k_n_backends && race->n < VB_K_CANDIDATES_MAX; i++)
        if (vb_k_backends[i]->can(s, pass))
            race->backend[race->n++] = vb_k_backends[i];
}

static double fastest(const struct race *race)
{
    double best = -1;
    int i;

    for (i = 0; i < race->n; i++)
        if (race->ms[i] >= 0 && (best < 0 || race->ms[i] < best))
            best = race->ms[i];
    return best;
}

/* Keeps those that were fast enough, or were not tried, the fastest first. */
static void drop(struct race *race, double factor)
{
    double best = fastest(race);
    struct race old = *race;
    int i;

    race->n = 0;
    for (i = 0; i < old.n; i++)
        if (old.ms[i] >= 0 && old.ms[i] == best)
            race->backend[race->n++] = old.backend[i];
    for (i = 0; i < old.n; i++)
        if (old.ms[i] == NOT_TRIED || (old.ms[i] > best && old.ms[i] < factor * best))
            race->backend[race->n++] = old.backend[i];
}

static vb_status run_stage(struct race *race, const struct vb_k_shape *s, enum vb_k_pass pass,
                           const struct stage *stage)
{
    struct effort effort = {stage->runs, RUNS_MAX, ENOUGH_MS, 0};
    struct vb_k_tensors trial;
    double best = -1;
    vb_status st;
    int i;

    st = vb_k_tensors_init(&trial, s, pass);
    if (st != VB_OK)
        return st;
    for (i = 0; i < race->n && st == VB_OK; i++) {
        race->ms[i] = NOT_TRIED;
        /* a smaller shape may be none that the backend can do: it stays in the race then */
        if (race->backend[i]->can(&trial.s, pass))
            st = time_one(&trial, race->backend[i], &effort, &race->ms[i]);
        if (race->ms[i] >= 0 && (best < 0 || race->ms[i] < best))
            best = race->ms[i];
        effort.hopeless = HOPELESS * best;
    }
    vb_k_tensors_fini(&trial);
    if (st == VB_OK)
        drop(race, stage->drop);
    return st;
}

static bool same_size(const struct vb_k_shape *a, const struct vb_k_shape *b)
{
    return a->n == b->n && a->c == b->c && a->oc == b->oc;
}

vb_status vb_k_choose(const struct vb_k_shape *shape, enum vb_k_pass pass,
                      const struct vb_k_backend **backend_p)
{
    struct vb_k_shape now, next;
    vb_status st = VB_OK;
    struct race race;
    size_t i;

    enter(&race, shape, pass);
    for (i = 0; i < VB_COUNT(stages) && race.n > 1 && st == VB_OK; i++) {
        now = smaller(shape, stages[i].flops);
        next = now;
        if (i + 1 < VB_COUNT(stages))
            next = smaller(shape, stages[i + 1].flops);
        if (i + 1 == VB_COUNT(stages) || !same_size(&now, &next))
            st = run_stage(&race, &now, pass, &stages[i]);
    }
    if (st == VB_OK && race.n == 0)
        st = vb_err(VB_ERR_UNSUPPORTED, "no backend can do %s of this %s layer",
                    vb_k_pass_str(pass), vb_k_kind_str(shape->kind));
    if (st == VB_OK)
        *backend_p = race.backend[0];
    return st;
}

vb_status vb_k_time_all(const struct vb_k_shape *shape, enum vb_k_pass pass, double seconds,
                        struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX], int *n_p)
{
    struct effort effort = {2, 1000, seconds * 1e3, 0};
    struct vb_k_tensors trial;
    struct race race;
    vb_status st;
    int i;

    enter(&race, shape, pass);
    st = vb_k_tensors_init(&trial, shape, pass);
    if (st != VB_OK)
        return st;
    for (i = 0; i < race.n && st == VB_OK; i++) {
        candidates[i].backend = race.backend[i]->name;
        st = time_one(&trial, race.backend[i], &effort, &candidates[i].ms);
    }
    vb_k_tensors_fini(&trial);
    *n_p = race.n;
    return st;
}

/* ---- the peak -------------------------------------------------------------------------------- */

/* Each thread has some rows, which is how BLAS itself would share them. */
static void product(const float *a, const float *b, float *c)
{
    int team = omp_get_max_threads(), i;

#pragma omp parallel for schedule(static) num_threads(team)
    for (i = 0; i < team; i++) {
        int first = PEAK_SIDE * i / team, end = PEAK_SIDE * (i + 1) / team;
        size_t at = (size_t)first * PEAK_SIDE;

        vb_k_sgemm(end - first, PEAK_SIDE, PEAK_SIDE,
                   (struct vb_k_matrix){a + at, false, PEAK_SIDE},
                   (struct vb_k_matrix){b, false, PEAK_SIDE}, 0, c + at, PEAK_SIDE);
    }
}

double vb_k_gemm_peak(double seconds)
{
    size_t n = (size_t)PEAK_SIDE * PEAK_SIDE;
    float *abc = vb_alloc_aligned(3 * n * sizeof(float));
    double best = -1, sum = 0, ms;
    uint64_t start;

    if (abc == NULL)
        return -1;
    vb_k_blas_one_thread();
    vb_k_fill(abc, 2 * n, 0);
    product(abc, abc + n, abc + 2 * n);
    while (best < 0 || sum < seconds * 1e3) {
        start = vb_clock_ns();
        product(abc, abc + n, abc + 2 * n);
        ms = (double)(vb_clock_ns() - start) / 1e6;
        sum += ms;
        if (best < 0 || ms < best)
            best = ms;
    }
    free(abc);
    return 2.0 * PEAK_SIDE * (double)n / best / 1e6;
}
