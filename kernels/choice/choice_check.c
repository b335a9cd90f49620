/* SPDX-License-Identifier: MIT
 *
 * Checks that backends compute the right results. They are compared with the reference on the same
 * shape but with fewer samples, because the reference is slow.
 */
#include "kernels/choice/choice_priv.h"
#include "kernels/choice/tensors_priv.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLES_MAX 4 /* the largest number of samples that any backend computes at a time */
#define FLOPS_MAX 4e8 /* a shape with more operations gets fewer samples, at least one */
#define SEED 1        /* seed of dropout */

struct check {
    struct vb_k_tensors in; /* inputs and results of the backends, with fewer samples */
    struct vb_k_args args;
    float *got;  /* the tensor in args that the pass writes */
    float *want; /* the expected results, followed by the gradient of the biases */
    size_t n, n_biases;
};

static void fini(struct check *c)
{
    vb_k_tensors_fini(&c->in);
    free(c->want);
}

static void run_reference(struct check *c)
{
    if (c->in.pass != VB_K_FORWARD && vb_k_tensor_len(&c->in.s, W) == 0)
        /* pooling, ReLU, lrn and dropout read the output */
        vb_k_layer_ref(&c->in.s, VB_K_FORWARD, &c->args);
    vb_k_layer_ref(&c->in.s, c->in.pass, &c->args);
    memcpy(c->want, c->got, c->n * sizeof(float));
    if (c->n_biases > 0)
        memcpy(c->want + c->n, c->args.db, c->n_biases * sizeof(float));
}

static vb_status init(struct check *c, const struct vb_k_shape *shape, enum vb_k_pass pass)
{
    static const enum vb_k_tensor results[VB_K_PASSES] = {Y, DX, DW};
    struct vb_k_shape fewer = *shape;
    vb_status st;

    fewer.n = vb_min(fewer.n, SAMPLES_MAX);
    while (fewer.n > 1 && vb_k_shape_flops(&fewer, VB_K_FORWARD) > FLOPS_MAX)
        fewer.n--;
    st = vb_k_tensors_init(&c->in, &fewer, pass);
    if (st != VB_OK)
        return st;
    c->args = vb_k_tensors_args(&c->in);
    c->args.seed = SEED;
    c->got = c->in.t[results[pass]];
    c->n = vb_k_tensor_len(&fewer, results[pass]);
    c->n_biases = pass == VB_K_BACKWARD_WEIGHTS ? vb_k_tensor_len(&fewer, DB) : 0;
    c->want = vb_alloc_aligned((c->n + c->n_biases) * sizeof(float) + VB_CACHE_LINE);
    if (c->want == NULL) {
        fini(c);
        return vb_err(VB_ERR_NO_MEMORY, "no memory to check a layer of %d samples", fewer.n);
    }
    run_reference(c);
    return VB_OK;
}

/* Measures the differences from want, divided by the root mean square of want: the largest, and
 * their own root mean square. A NaN makes both infinite. Keeps what is larger than before. */
static void measure(const float *got, const float *want, size_t n, struct vb_k_checked *to)
{
    double squares = 0, sum = 0, most = 0, d, rms;
    size_t i;

    for (i = 0; i < n; i++) {
        d = fabs((double)got[i] - (double)want[i]);
        d = isnan(d) ? (double)INFINITY : d;
        most = d > most ? d : most;
        sum += d * d;
        squares += (double)want[i] * (double)want[i];
    }
    if (most == 0)
        return;
    rms = sqrt(squares / (double)n);
    to->off = fmax(to->off, most / rms);
    to->error = fmax(to->error, sqrt(sum / (double)n) / rms);
}

/* Runs the pass on one backend. Results are NaN before, to find elements that are not written. */
static vb_status run_one(struct check *c, const struct vb_k_backend *backend,
                         struct vb_k_checked *checked_p)
{
    struct vb_k_args args = c->args;
    size_t scratch_bytes = 0;
    vb_status st;
    void *state;

    st = backend->prepare(&c->in.s, c->in.pass, &state, &scratch_bytes);
    if (st != VB_OK)
        return st;
    memset(c->got, 0xff, c->n * sizeof(float));
    if (c->n_biases > 0)
        memset(args.db, 0xff, c->n_biases * sizeof(float));
    args.scratch = vb_alloc_aligned(scratch_bytes + VB_CACHE_LINE);
    if (args.scratch == NULL) {
        st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu bytes of scratch", scratch_bytes);
    } else {
        backend->run(state, &args);
        *checked_p = (struct vb_k_checked){.backend = backend->name,
                                           .fast_math = backend->use == VB_K_FAST_MATH};
        measure(c->got, c->want, c->n, checked_p);
        measure(args.db, c->want + c->n, c->n_biases, checked_p);
    }
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
        st = run_one(&c, backends[i], &checked[n]);
        n += st == VB_OK;
        if (st == VB_ERR_UNSUPPORTED) /* prepare() found out that it cannot */
            st = VB_OK;
    }
    fini(&c);
    *n_p = n;
    return st;
}

vb_status vb_k_check_all(const struct vb_k_shape *shape, enum vb_k_pass pass, bool running,
                         struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p)
{
    const struct vb_k_backend *these[VB_K_CANDIDATES_MAX];
    int i, n = 0;

    for (i = 0; i < vb_k_n_backends && n < VB_K_CANDIDATES_MAX; i++)
        if (running || vb_k_backends[i]->use != VB_K_ONLY_NAMED)
            these[n++] = vb_k_backends[i];
    return vb_k_check_these(these, n, shape, pass, checked, n_p);
}
