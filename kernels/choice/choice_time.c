/* SPDX-License-Identifier: MIT
 *
 * Finds the fastest backend by timing, first on a very small version of the shape, then on a larger
 * one (docs/compute.md). Candidates take turns, so a disturbance does not hurt one alone.
 *
 * A smaller convolution first has fewer samples, but not too few, because they share a kernel's
 * work on the weights; then fewer channels. A smaller linear layer has fewer outputs and thus uses
 * some rows of the same matrix, because its speed depends on samples and on the length of the rows.
 */
#include "kernels/blas/blas.h"
#include "kernels/choice/choice_priv.h"
#include "kernels/choice/tensors_priv.h"

#include <omp.h>
#include <stdlib.h>

#define PEAK_SIDE 1024
#define GLANCE_SIDE 384 /* of a product that takes a few milliseconds */
#define GLANCE_SECONDS 0.01
#define SAMPLES 8 /* smallest number of samples while there are still channels to remove */
#define CHANNELS 64
#define CHANNELS_MIN 32
#define OUTPUTS 256 /* smallest number of outputs of a linear layer */
/* Divides the work of a stage if the layer is linear, because all its rows are alike. */
#define LINEAR_PART 4
/* A backend slower than this times the best is out after its first run, or its second if short. */
#define HOPELESS 3
#define SHORT_MS 2.0 /* length of a short run */
/* Extra factor of the limit after the first round: one run is less certain than the best of two. */
#define FIRST_CLOSE 1.1
#define ROUNDS_MIN 2
#define ROUNDS_MAX 12

struct stage {
    double drop;  /* at the end of a stage, backends slower than this times the fastest drop out */
    double close; /* in a further round, backends slower than this times the fastest do not run */
    double ms;    /* rounds end when the runs of the fastest backend took this long in total */
};

/* In the first stage, a kernel's work on the weights takes a larger share of the time than in the
 * whole shape. Backends that do much of this work are therefore allowed to be slower there. */
static const struct stage first_stage = {2, 1.6, 1}, last_stage = {1, 1.1, 5};

/* With fewer channels than LAST_FLOPS allows, F(4x4, 3x3) would wrongly lose to F(2x2, 3x3). */
#define FIRST_FLOPS 3e7
#define LAST_FLOPS 9e8
/* Intended time of a run, at the speed of the first stage. Larger shapes run faster. */
#define LAST_MS 10.0

/* ---- smaller shapes -------------------------------------------------------------------------- */

static bool halve_samples(struct vb_k_shape *s, int least)
{
    if (s->n / 2 < least || s->n / 2 < omp_get_max_threads())
        return false;
    s->n /= 2;
    return true;
}

static bool halve_channels(struct vb_k_shape *s, int least)
{
    int *more = s->oc >= s->c ? &s->oc : &s->c;

    if (*more / 2 < least)
        return false;
    *more /= 2;
    return true;
}

/* Makes the shape one step smaller. Returns false if that would no longer represent the whole. */
static bool shrink_conv(struct vb_k_shape *s)
{
    return halve_samples(s, SAMPLES) || halve_channels(s, CHANNELS) || halve_samples(s, 2) ||
           halve_channels(s, CHANNELS_MIN);
}

static bool shrink_linear(struct vb_k_shape *s)
{
    s->c *= s->h * s->w;
    s->h = s->w = 1;
    if (s->oc / 2 >= OUTPUTS)
        s->oc /= 2;
    else if (s->c / 2 >= OUTPUTS)
        s->c /= 2;
    else
        return false;
    return true;
}

static struct vb_k_shape smaller(const struct vb_k_shape *shape, double flops)
{
    struct vb_k_shape s = *shape;
    bool more = vb_k_has_pass(s.kind, VB_K_BACKWARD_WEIGHTS);

    if (s.kind == VB_K_LINEAR)
        flops /= LINEAR_PART;
    while (more && vb_k_shape_flops(&s, VB_K_FORWARD) > flops)
        more = s.kind == VB_K_LINEAR ? shrink_linear(&s) : shrink_conv(&s);
    return s;
}

/* ---- candidates ------------------------------------------------------------------------------ */

#define NOT_TRIED (-2) /* value of ms of a backend that has not run */
#define CANNOT (-1)

struct runner {
    const struct vb_k_backend *backend;
    void *state; /* NULL: not prepared */
    float *scratch;
    double ms; /* time of the best run */
};

struct race {
    struct runner runner[VB_K_CANDIDATES_MAX];
    int n;
};

static void enter(struct race *race, const struct vb_k_shape *s, enum vb_k_pass pass,
                  bool fast_math)
{
    int i;

    race->n = 0;
    for (i = 0; i < vb_k_n_backends && race->n < VB_K_CANDIDATES_MAX; i++)
        if (vb_k_backend_allowed(vb_k_backends[i], fast_math) && vb_k_backends[i]->can(s, pass))
            race->runner[race->n++] = (struct runner){.backend = vb_k_backends[i]};
}

static void runner_fini(struct runner *r)
{
    free(r->scratch);
    if (r->state != NULL)
        r->backend->destroy(r->state);
    r->scratch = NULL;
    r->state = NULL;
}

/* Prepares a backend, which may find out in prepare() that it cannot compute the shape. */
static vb_status runner_init(struct runner *r, const struct vb_k_tensors *t)
{
    size_t scratch_bytes = 0;
    vb_status st;

    r->ms = CANNOT;
    st = r->backend->prepare(&t->s, t->pass, &r->state, &scratch_bytes);
    if (st != VB_OK) {
        r->state = NULL;
        return st == VB_ERR_UNSUPPORTED ? VB_OK : st;
    }
    r->ms = NOT_TRIED;
    r->scratch = vb_alloc_aligned(scratch_bytes + VB_CACHE_LINE);
    if (r->scratch == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu bytes of scratch", scratch_bytes);
    return VB_OK;
}

static double run_ms(const struct runner *r, const struct vb_k_tensors *t)
{
    struct vb_k_args args = vb_k_tensors_args(t);
    uint64_t start;

    args.scratch = r->scratch;
    start = vb_clock_ns();
    r->backend->run(r->state, &args);
    return (double)(vb_clock_ns() - start) / 1e6;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static double fastest(const struct race *race)
{
    double best = -1;
    int i;

    for (i = 0; i < race->n; i++)
        if (race->runner[i].ms >= 0 && (best < 0 || race->runner[i].ms < best))
            best = race->runner[i].ms;
    return best;
}

/* Keeps the backends that were fast enough or were not tried, sorted with the fastest first. */
static void drop(struct race *race, double factor)
{
    double best = fastest(race);
    struct race old = *race;
    int i;

    race->n = 0;
    for (i = 0; i < old.n; i++)
        if (old.runner[i].ms >= 0 && old.runner[i].ms == best)
            race->runner[race->n++] = old.runner[i];
    for (i = 0; i < old.n; i++)
        if (old.runner[i].ms == NOT_TRIED ||
            (old.runner[i].ms > best && old.runner[i].ms < factor * best))
            race->runner[race->n++] = old.runner[i];
}

/* A backend that is hopelessly slow in its first run is out, after a second try if it was short. */
static void run_first(struct runner *r, const struct vb_k_tensors *t, double best)
{
    double again;

    r->ms = run_ms(r, t);
    if (best >= 0 && r->ms > HOPELESS * best && r->ms < SHORT_MS) {
        again = run_ms(r, t);
        r->ms = again < r->ms ? again : r->ms;
    }
    if (best >= 0 && r->ms > HOPELESS * best)
        runner_fini(r);
}

/* Runs the first round. A backend that cannot compute the smaller shape remains a candidate. */
static vb_status first_round(struct race *race, const struct vb_k_tensors *t)
{
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < race->n; i++)
        race->runner[i].ms = NOT_TRIED;
    for (i = 0; i < race->n && st == VB_OK; i++) {
        struct runner *r = &race->runner[i];

        if (!r->backend->can(&t->s, t->pass))
            continue;
        st = runner_init(r, t);
        if (st == VB_OK && r->state != NULL)
            run_first(r, t, fastest(race));
    }
    return st;
}

static int n_within(const struct race *race, double ms)
{
    int i, n = 0;

    for (i = 0; i < race->n; i++)
        n += race->runner[i].state != NULL && race->runner[i].ms <= ms;
    return n;
}

/* Runs further rounds with the backends that are close to the fastest. */
static void take_turns(struct race *race, const struct vb_k_tensors *t, const struct stage *stage)
{
    double limit, ms;
    int i, round;

    for (round = 1; round < ROUNDS_MAX; round++) {
        limit = fastest(race) * (round == 1 ? FIRST_CLOSE : 1) * stage->close;
        if (n_within(race, limit) < 2 || (round >= ROUNDS_MIN && fastest(race) * round > stage->ms))
            break;
        for (i = 0; i < race->n; i++) {
            struct runner *r = &race->runner[i];

            if (r->state == NULL || r->ms > limit)
                continue;
            ms = run_ms(r, t);
            r->ms = ms < r->ms ? ms : r->ms;
        }
    }
}

static vb_status run_stage(struct race *race, const struct vb_k_shape *s, enum vb_k_pass pass,
                           const struct stage *stage)
{
    struct vb_k_tensors trial;
    vb_status st;
    int i;

    st = vb_k_tensors_init(&trial, s, pass);
    if (st != VB_OK)
        return st;
    st = first_round(race, &trial);
    if (st == VB_OK)
        take_turns(race, &trial, stage);
    for (i = 0; i < race->n; i++)
        runner_fini(&race->runner[i]);
    vb_k_tensors_fini(&trial);
    if (st == VB_OK)
        drop(race, stage->drop);
    return st;
}

static vb_status hold(struct race *race, const struct vb_k_shape *shape, enum vb_k_pass pass)
{
    struct vb_k_shape small = smaller(shape, FIRST_FLOPS);
    double flops = LAST_FLOPS;
    vb_status st = VB_OK;

    if (race->n > 1 && (small.n != shape->n || small.c != shape->c || small.oc != shape->oc)) {
        st = run_stage(race, &small, pass, &first_stage);
        /* Linear layers are limited by memory; a few more rows of the matrix measure that. */
        if (small.kind != VB_K_LINEAR && race->n > 0 && race->runner[0].ms > 0)
            flops = vb_k_shape_flops(&small, VB_K_FORWARD) * LAST_MS / race->runner[0].ms;
    }
    small = smaller(shape, flops);
    if (st == VB_OK && race->n > 1)
        st = run_stage(race, &small, pass, &last_stage);
    return st;
}

vb_status vb_k_choose(const struct vb_k_shape *shape, enum vb_k_pass pass, bool fast_math,
                      const struct vb_k_backend **backend_p)
{
    struct race race;
    vb_status st;

    enter(&race, shape, pass, fast_math);
    st = hold(&race, shape, pass);
    if (st == VB_OK && race.n == 0)
        st = vb_err(VB_ERR_UNSUPPORTED, "no backend can compute the pass %s of this %s layer",
                    vb_k_pass_str(pass), vb_k_kind_str(shape->kind));
    if (st == VB_OK)
        *backend_p = race.runner[0].backend;
    return st;
}

/* Keeps the time of the best run. The runs take about `seconds`; the first does not count. */
static void time_long(struct runner *r, const struct vb_k_tensors *t, double seconds)
{
    double sum = 0, ms;
    int i;

    (void)run_ms(r, t);
    for (i = 0; i < 2 || sum < seconds * 1e3; i++) {
        ms = run_ms(r, t);
        sum += ms;
        if (r->ms < 0 || ms < r->ms)
            r->ms = ms;
    }
}

vb_status vb_k_time_all(const struct vb_k_shape *shape, enum vb_k_pass pass, double seconds,
                        struct vb_k_candidate candidates[VB_K_CANDIDATES_MAX], int *n_p)
{
    struct vb_k_tensors trial;
    struct race race;
    vb_status st;
    int i;

    enter(&race, shape, pass, true);
    st = vb_k_tensors_init(&trial, shape, pass);
    if (st != VB_OK)
        return st;
    for (i = 0; i < race.n && st == VB_OK; i++) {
        struct runner *r = &race.runner[i];

        st = runner_init(r, &trial);
        if (st == VB_OK && r->state != NULL)
            time_long(r, &trial, seconds);
        candidates[i] = (struct vb_k_candidate){.backend = r->backend->name, .ms = r->ms};
        runner_fini(r);
    }
    vb_k_tensors_fini(&trial);
    *n_p = race.n;
    return st;
}

/* ---- the peak -------------------------------------------------------------------------------- */

/* Each thread computes some rows, as BLAS itself would divide them. */
static void product(const float *a, const float *b, float *c, int side)
{
    int team = omp_get_max_threads(), i;

#pragma omp parallel for schedule(static) num_threads(team)
    for (i = 0; i < team; i++) {
        int first = side * i / team, end = side * (i + 1) / team;
        size_t at = (size_t)first * (size_t)side;

        vb_k_sgemm(end - first, side, side, (struct vb_k_matrix){a + at, false, side},
                   (struct vb_k_matrix){b, false, side}, 0, c + at, side);
    }
}

static double gemm_peak(int side, double seconds)
{
    size_t n = (size_t)side * (size_t)side;
    float *abc = vb_alloc_aligned(3 * n * sizeof(float));
    double best = -1, sum = 0, ms;
    uint64_t start;

    if (abc == NULL)
        return -1;
    if (vb_k_blas_ready() != VB_OK) {
        free(abc);
        return -1;
    }
    vb_k_fill(abc, 2 * n, 0);
    product(abc, abc + n, abc + 2 * n, side);
    while (best < 0 || sum < seconds * 1e3) {
        start = vb_clock_ns();
        product(abc, abc + n, abc + 2 * n, side);
        ms = (double)(vb_clock_ns() - start) / 1e6;
        sum += ms;
        if (best < 0 || ms < best)
            best = ms;
    }
    free(abc);
    return 2.0 * side * (double)n / best / 1e6;
}

double vb_k_gemm_peak(double seconds)
{
    return gemm_peak(PEAK_SIDE, seconds);
}

double vb_k_gemm_glance(void)
{
    return gemm_peak(GLANCE_SIDE, GLANCE_SECONDS);
}
