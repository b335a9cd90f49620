/* SPDX-License-Identifier: MIT
 *
 * Trains a model for some steps in double precision, from the same initial parameters and on the
 * same samples as the model in single precision. Samples are random, so no data is needed. Layers
 * are those of kernels/exact.
 */
#include "bench/exact_steps.h"

#include <math.h>
#include <stdlib.h>

#define SEED 1
#define RATE 0.01

struct exact_layer {
    struct vb_k_shape s;
    size_t w, b; /* index of the first weight and of the first bias in the parameters */
    double *y;   /* output */
    uint8_t *where;
};

struct vb_exact_steps {
    struct vb_layer_table table;
    int batch, n_steps, classes;
    size_t n_params, n_in, n_max; /* n_in, n_max: floats of the input, of the largest output */
    struct exact_layer layers[VB_LAYERS_MAX];
    float *x;
    uint16_t *y;
    float *first;              /* initial parameters */
    double *params;            /* parameters after the last step */
    double *grads, *in, *d[2]; /* used only while the steps are made */
};

/* ---- samples --------------------------------------------------------------------------------- */

static void make_batch(const struct vb_exact_steps *e, int step, struct vb_model_batch *batch_p)
{
    uint64_t seed = vb_random(SEED, (uint64_t)step);
    size_t i;
    int k;

    for (i = 0; i < e->n_in; i++)
        e->x[i] = (float)(vb_random(seed, i) >> 40) / (1 << 23) - 1;
    for (k = 0; k < e->batch; k++)
        e->y[k] = (uint16_t)(vb_random(~seed, (uint64_t)k) % (uint64_t)e->classes);
    *batch_p = (struct vb_model_batch){.n = e->batch,
                                       .x = e->x,
                                       .y = e->y,
                                       .training = true,
                                       .seed = SEED,
                                       .step = (uint64_t)step};
}

/* ---- a step in double precision -------------------------------------------------------------- */

static struct vb_k_args64 args_of(const struct vb_exact_steps *e, int i, int step)
{
    const struct exact_layer *l = &e->layers[i];

    return (struct vb_k_args64){.x = i > 0 ? l[-1].y : e->in,
                                .w = e->params + l->w,
                                .b = e->params + l->b,
                                .y = l->y,
                                .dw = e->grads + l->w,
                                .db = e->grads + l->b,
                                .where = l->where,
                                .seed = vb_random(SEED, (uint64_t)i),
                                .step = (uint64_t)step};
}

/* Replaces the logits of a sample by the gradient of its loss. */
static void loss_of(double *logits, int classes, int label)
{
    double max = logits[0], sum = 0;
    int c;

    for (c = 1; c < classes; c++)
        max = fmax(max, logits[c]);
    for (c = 0; c < classes; c++)
        sum += exp(logits[c] - max);
    for (c = 0; c < classes; c++)
        logits[c] = exp(logits[c] - max) / sum - (c == label);
}

static void forward(struct vb_exact_steps *e, int step)
{
    double *logits = e->layers[e->table.n_layers - 1].y;
    struct vb_k_args64 args;
    size_t j;
    int i;

    for (j = 0; j < e->n_in; j++)
        e->in[j] = (double)e->x[j];
    for (i = 0; i < e->table.n_layers; i++) {
        args = args_of(e, i, step);
        vb_k_layer_ref64(&e->layers[i].s, VB_K_FORWARD, &args);
    }
    for (i = 0; i < e->batch; i++)
        loss_of(logits + (size_t)i * (size_t)e->classes, e->classes, e->y[i]);
}

static void backward(struct vb_exact_steps *e, int step)
{
    int i, last = e->table.n_layers - 1;
    double *dy = e->layers[last].y;
    struct vb_k_args64 args;
    size_t j;

    for (i = last; i >= 0; i--) {
        const struct exact_layer *l = &e->layers[i];

        for (j = 0; l->s.relu && j < vb_k_shape_outputs(&l->s); j++)
            dy[j] = l->y[j] > 0 ? dy[j] : 0;
        args = args_of(e, i, step);
        args.dy = dy;
        args.dx = e->d[i % 2];
        vb_k_layer_ref64(&l->s, VB_K_BACKWARD_WEIGHTS, &args);
        if (i > 0)
            vb_k_layer_ref64(&l->s, VB_K_BACKWARD_DATA, &args);
        dy = e->d[i % 2];
    }
}

static void run_steps(struct vb_exact_steps *e)
{
    struct vb_model_batch batch;
    size_t i;
    int step;

    for (i = 0; i < e->n_params; i++)
        e->params[i] = (double)e->first[i];
    for (step = 0; step < e->n_steps; step++) {
        make_batch(e, step, &batch);
        forward(e, step);
        backward(e, step);
        for (i = 0; i < e->n_params; i++)
            e->params[i] -= RATE / e->batch * e->grads[i];
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void read_table(struct vb_exact_steps *e, const struct vb_k_shape *shapes)
{
    struct exact_layer *l;
    size_t n;
    int i;

    for (i = 0; i < e->table.n_layers; i++) {
        l = &e->layers[i];
        l->s = shapes[i];
        n = vb_k_shape_weights(&l->s);
        l->w = e->n_params;
        l->b = l->w + n;
        e->n_params += n > 0 ? n + (size_t)l->s.oc : 0;
        n = vb_k_shape_outputs(&l->s);
        e->n_max = n > e->n_max ? n : e->n_max;
    }
    e->classes = shapes[e->table.n_layers - 1].oc;
    e->n_in = vb_k_shape_inputs(&shapes[0]);
}

/* calloc() with an element more, so that an empty array is not NULL. */
static void *make(size_t n, size_t size, bool *made_p)
{
    void *v = calloc(n + 1, size);

    *made_p = *made_p && v != NULL;
    return v;
}

static bool make_arrays(struct vb_exact_steps *e)
{
    bool made = true;
    size_t n;
    int i;

    for (i = 0; i < e->table.n_layers; i++) {
        n = vb_k_shape_outputs(&e->layers[i].s);
        e->layers[i].y = make(n, sizeof(double), &made);
        e->layers[i].where = make(n, 1, &made);
    }
    e->x = make(e->n_in, sizeof(float), &made);
    e->in = make(e->n_in, sizeof(double), &made);
    e->y = make((size_t)e->batch, sizeof(*e->y), &made);
    e->first = make(e->n_params, sizeof(float), &made);
    e->params = make(e->n_params, sizeof(double), &made);
    e->grads = make(e->n_params, sizeof(double), &made);
    e->d[0] = make(e->n_max, sizeof(double), &made);
    e->d[1] = make(e->n_max, sizeof(double), &made);
    return made;
}

/* What the steps alone need. */
static void free_work(struct vb_exact_steps *e)
{
    int i;

    for (i = 0; i < e->table.n_layers; i++) {
        free(e->layers[i].y);
        free(e->layers[i].where);
        e->layers[i].y = NULL;
        e->layers[i].where = NULL;
    }
    free(e->in);
    free(e->grads);
    free(e->d[0]);
    free(e->d[1]);
    e->in = e->grads = e->d[0] = e->d[1] = NULL;
}

void vb_exact_steps_destroy(struct vb_exact_steps *steps)
{
    if (steps == NULL)
        return;
    free_work(steps);
    free(steps->x);
    free(steps->y);
    free(steps->first);
    free(steps->params);
    free(steps);
}

/* ---- the same in single precision ------------------------------------------------------------ */

static vb_status make_model(const struct vb_exact_steps *e, const char *backend,
                            struct vb_model **model_p)
{
    struct vb_model_opts opts = {.table = &e->table, .batch_max = e->batch};
    struct vb_k_plan *plan = calloc(1, sizeof(*plan));
    vb_status st = plan != NULL ? VB_OK : vb_err_sys("calloc");
    int i;

    for (i = 0; i < e->table.n_layers && st == VB_OK; i++)
        st = vb_k_plan_prefer(plan, e->table.layers[i].name, &e->layers[i].s, backend);
    opts.plan = plan;
    if (st == VB_OK)
        st = vb_model_create(&opts, model_p);
    free(plan);
    return st;
}

vb_status vb_exact_steps_create(const struct vb_layer_table *table, int batch, int n_steps,
                                struct vb_exact_steps **steps_p)
{
    struct vb_exact_steps *e = calloc(1, sizeof(*e));
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    struct vb_model *model = NULL;
    vb_status st;

    if (e == NULL)
        return vb_err_sys("calloc");
    e->table = *table;
    e->table.pixels = false; /* the layer is computed as any other */
    e->batch = batch;
    e->n_steps = n_steps;
    st = vb_layer_table_shapes(table, batch, shapes);
    if (st == VB_OK) {
        read_table(e, shapes);
        st = make_arrays(e) ? make_model(e, VB_K_RUNNING, &model)
                            : vb_err(VB_ERR_NO_MEMORY, "no memory for %zu parameters", e->n_params);
    }
    if (st != VB_OK) {
        vb_exact_steps_destroy(e);
        return st;
    }
    vb_model_init(model, SEED, e->first);
    vb_model_destroy(model);
    run_steps(e);
    free_work(e);
    *steps_p = e;
    return VB_OK;
}

bool vb_exact_steps_uses(const struct vb_exact_steps *steps, const char *backend)
{
    int i, pass;

    for (i = 0; i < steps->table.n_layers; i++)
        for (pass = 0; pass < VB_K_PASSES; pass++)
            if (vb_k_can(backend, &steps->layers[i].s, (enum vb_k_pass)pass))
                return true;
    return false;
}

static void compare(const struct vb_exact_steps *e, const double *params, double *error_p,
                    double *off_p)
{
    double sum = 0, squares = 0, most = 0, d, change, rms;
    size_t i;

    for (i = 0; i < e->n_params; i++) {
        d = fabs(params[i] - e->params[i]);
        d = isnan(d) ? (double)INFINITY : d;
        change = e->params[i] - (double)e->first[i];
        sum += d * d;
        squares += change * change;
        most = fmax(most, d);
    }
    rms = sqrt(squares / (double)e->n_params);
    *error_p = most > 0 ? sqrt(sum / (double)e->n_params) / rms : 0;
    *off_p = most > 0 ? most / rms : 0;
}

struct single {
    double *params; /* as they are added up */
    float *rounded; /* as the model sees them */
    float *grads;
};

/* Updates are added in double precision. In floats, their rounding would hide that of kernels. */
static void run_single(const struct vb_exact_steps *e, struct vb_model *model, struct single *s)
{
    struct vb_model_batch batch;
    struct vb_model_loss loss;
    size_t i;
    int step;

    for (i = 0; i < e->n_params; i++)
        s->params[i] = (double)(s->rounded[i] = e->first[i]);
    for (step = 0; step < e->n_steps; step++) {
        make_batch(e, step, &batch);
        vb_model_forward(model, s->rounded, &batch, &loss);
        vb_model_backward(model, s->rounded, &batch, s->grads, NULL, NULL);
        for (i = 0; i < e->n_params; i++) {
            s->params[i] -= RATE / e->batch * (double)s->grads[i];
            s->rounded[i] = (float)s->params[i];
        }
    }
}

vb_status vb_exact_steps_error(const struct vb_exact_steps *steps, const char *backend,
                               double *error_p, double *off_p)
{
    size_t n = steps->n_params;
    struct single s = {vb_alloc_aligned(n * sizeof(double)), vb_alloc_aligned(n * sizeof(float)),
                       vb_alloc_aligned(n * sizeof(float))};
    struct vb_model *model = NULL;
    vb_status st = VB_OK;

    if (s.params == NULL || s.rounded == NULL || s.grads == NULL)
        st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu parameters", steps->n_params);
    if (st == VB_OK)
        st = make_model(steps, backend, &model);
    if (st == VB_OK) {
        run_single(steps, model, &s);
        compare(steps, s.params, error_p, off_p);
    }
    vb_model_destroy(model);
    free(s.params);
    free(s.rounded);
    free(s.grads);
    return st;
}
