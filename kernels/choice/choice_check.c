/* SPDX-License-Identifier: MIT
 *
 * Checks that backends compute the right results. They are compared with the reference on the same
 * shape but with fewer samples, because the reference is slow.
 */
#include "kernels/choice/choice_priv.h"
#include "kernels/choice/tensors_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 4 /* the largest number of samples that any backend computes at a time */
#define FLOPS_MAX 4e8 /* a shape with more operations gets fewer samples, at least one */
#define SEED 1        /* seed of dropout */

struct check {
    struct vb_k_tensors in; /* inputs and results of the backends, with fewer samples */
    float *want;            /* the expected results, followed by the gradient of the biases */
};

static struct vb_k_shape fewer_samples(const struct vb_k_shape *shape)
{
    struct vb_k_shape s = *shape;

    s.n = s.n < SAMPLES_MAX ? s.n : SAMPLES_MAX;
    while (s.n > 1 && vb_k_shape_flops(&s, VB_K_FORWARD) > FLOPS_MAX)
        s.n--;
    return s;
}

/* Returns the tensor that a pass writes. */
static enum vb_k_tensor result_of(enum vb_k_pass pass)
{
    static const enum vb_k_tensor results[VB_K_PASSES] = {Y, DX, DW};

    return results[pass];
}

static float *result(const struct check *c)
{
    return c->in.t[result_of(c->in.pass)];
}

static size_t n_results(const struct check *c)
{
    return vb_k_tensor_len(&c->in.s, result_of(c->in.pass));
}

static size_t n_biases(const struct check *c)
{
    return c->in.pass == VB_K_BACKWARD_WEIGHTS ? vb_k_tensor_len(&c->in.s, DB) : 0;
}

static struct vb_k_args args_of(const struct check *c)
{
    struct vb_k_args args = vb_k_tensors_args(&c->in);

    args.seed = SEED;
    return args;
}

/* ---- the reference --------------------------------------------------------------------------- */

static void fini(struct check *c)
{
    vb_k_tensors_fini(&c->in);
    free(c->want);
}

static void run_reference(struct check *c)
{
    struct vb_k_args args = args_of(c);

    if (c->in.pass != VB_K_FORWARD && vb_k_tensor_len(&c->in.s, W) == 0)
        /* pooling, ReLU, lrn and dropout read the output */
        vb_k_layer_ref(&c->in.s, VB_K_FORWARD, &args);
    vb_k_layer_ref(&c->in.s, c->in.pass, &args);
    memcpy(c->want, result(c), n_results(c) * sizeof(float));
    if (n_biases(c) > 0)
        memcpy(c->want + n_results(c), c->in.t[DB], n_biases(c) * sizeof(float));
}

static vb_status init(struct check *c, const struct vb_k_shape *shape, enum vb_k_pass pass)
{
    struct vb_k_shape fewer = fewer_samples(shape);
    vb_status st = vb_k_tensors_init(&c->in, &fewer, pass);

    if (st != VB_OK)
        return st;
    c->want = vb_alloc_aligned((n_results(c) + n_biases(c)) * sizeof(float) + VB_CACHE_LINE);
    if (c->want == NULL) {
        fini(c);
        return vb_err(VB_ERR_NO_MEMORY, "no memory to check a layer of %d samples", fewer.n);
    }
    run_reference(c);
    return VB_OK;
}

/* ---- backends -------------------------------------------------------------------------------- */

/* Returns the largest difference, divided by the root mean square of want. Infinite if NaN. */
static double distance(const float *got, const float *want, size_t n)
{
    double squares = 0, most = 0, d;
    size_t i;

    for (i = 0; i < n; i++) {
        d = fabs((double)got[i] - (double)want[i]);
        most = d <= most ? most : isnan(d) ? (double)INFINITY : d;
        squares += (double)want[i] * (double)want[i];
    }
    return most > 0 ? most / sqrt(squares / (double)n) : 0;
}

static double off_by(const struct check *c)
{
    size_t n = n_results(c);
    double most = distance(result(c), c->want, n), biases = 0;

    if (n_biases(c) > 0)
        biases = distance(c->in.t[DB], c->want + n, n_biases(c));
    return biases > most ? biases : most;
}

/* Runs the pass on one backend. Results are NaN before, to find elements that are not written. */
static vb_status run_one(struct check *c, const struct vb_k_backend *backend, double *off_p)
{
    struct vb_k_args args = args_of(c);
    size_t scratch_bytes = 0;
    vb_status st;
    void *state;

    st = backend->prepare(&c->in.s, c->in.pass, &state, &scratch_bytes);
    if (st != VB_OK)
        return st;
    memset(result(c), 0xff, n_results(c) * sizeof(float));
    if (n_biases(c) > 0)
        memset(c->in.t[DB], 0xff, n_biases(c) * sizeof(float));
    args.scratch = vb_alloc_aligned(scratch_bytes + VB_CACHE_LINE);
    if (args.scratch == NULL)
        st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu bytes of scratch", scratch_bytes);
    else
        backend->run(state, &args);
    if (st == VB_OK)
        *off_p = off_by(c);
    free(args.scratch);
    backend->destroy(state);
    return st;
}

vb_status vb_k_check_these(const struct vb_k_backend *const *backends, int n_backends,
                           const struct vb_k_shape *shape, enum vb_k_pass pass,
                           struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p)
{
    struct check c;
    vb_status st = init(&c, shape, pass);
    int i, n = 0;

    if (st != VB_OK)
        return st;
    for (i = 0; i < n_backends && n < VB_K_CANDIDATES_MAX && st == VB_OK; i++) {
        if (!backends[i]->can(shape, pass) || !backends[i]->can(&c.in.s, pass))
            continue;
        checked[n].backend = backends[i]->name;
        st = run_one(&c, backends[i], &checked[n].off);
        n += st == VB_OK;
        if (st == VB_ERR_UNSUPPORTED) /* prepare() found out that it cannot */
            st = VB_OK;
    }
    fini(&c);
    *n_p = n;
    return st;
}

vb_status vb_k_check_all(const struct vb_k_shape *shape, enum vb_k_pass pass,
                         struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p)
{
    return vb_k_check_these(vb_k_backends, vb_k_n_backends, shape, pass, checked, n_p);
}
