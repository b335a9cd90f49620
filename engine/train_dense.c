/* SPDX-License-Identifier: MIT
 *
 * Dense models in training: softmax regression, LeNet, AlexNet.
 *
 * Where other ranks may be left behind by a failure, a step writes parameters and state to the
 * other of two copies, which swap when it is complete; a rank alone updates in place. Ranks that
 * have all mapped each other share the update out (train_here.c).
 */
#include "engine/train_priv.h"

#include <stdlib.h>
#include <string.h>

#define JUDGE_BATCH 256 /* where the model does not mind */
#define FRONT_PART 8    /* the first layers are those with so small a part of the parameters */

/* Forward of the next step, begun while sums of this one are under way, with what is new of the
 * other copy. Nothing of it counts before the step is complete. */
struct ahead {
    const struct vb_batch *batch; /* NULL: not begun */
    int64_t step;
    int layers;      /* that are done, or features (vb_model_forward_part()) */
    size_t low, end; /* parameters of the other copy that came last, side by side */
};

struct dense {
    struct vb_model *model;
    struct vb_buckets *buckets;
    struct vb_here *here;             /* NULL: each rank updates all by itself */
    struct vb_k_pixels *train, *test; /* softmax */
    size_t n_params;
    struct vb_mem mem;
    float *params[2], *state[2]; /* both may be the same; state NULL: the rule has none */
    int now;                     /* which of them holds the last complete step */
    bool stepped;                /* the other one holds the step before that */
    bool clipped;                /* the last gradient was */
    struct vb_k_norm norm;
    struct ahead ahead;
    int judge_max;
    float *x;        /* (judge_max, c, h, w) */
    uint16_t *y;     /* (judge_max) */
    uint32_t *which; /* (judge_max) */
    struct vb_checkpoint_array *arrays;
};

static struct dense *dense_of(const struct vb_trainer *t)
{
    return t->state;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static void normalise(const struct vb_train_model *model, struct vb_dataset *set)
{
    if (model->scale == 0)
        return;
    set->mean = model->mean;
    set->scale = model->scale;
}

/* Whether the data is for this net: known before kernels are timed. */
static vb_status check_input(const struct vb_trainer *t)
{
    const struct vb_layer_table *table = t->table;
    struct vb_k_shape s[VB_LAYERS_MAX];
    vb_status st;

    if (table == NULL)
        return vb_err(VB_ERR_USAGE, "model %s has no table of layers", t->net->name);
    st = vb_layer_table_shapes(table, 1, s);
    if (st != VB_OK)
        return st;
    if (t->train.kind != VB_DATA_IMAGES)
        return vb_err(VB_ERR_USAGE, "%s is trained on images, which %s is not", t->o->model,
                      t->o->data_text);
    if (t->train.features != s->c * s->h * s->w)
        return vb_err(VB_ERR_USAGE, "%s takes images of %d x %d x %d; those of %s are %d x %d x %d",
                      t->o->model, s->c, s->h, s->w, t->o->data_text, t->train.c, t->train.h,
                      t->train.w);
    if (t->train.classes > s[table->n_layers - 1].oc)
        return vb_err(VB_ERR_USAGE, "%s tells %d classes apart; %s has %d", t->o->model,
                      s[table->n_layers - 1].oc, t->o->data_text, t->train.classes);
    return VB_OK;
}

static vb_status make_model(struct vb_trainer *t, struct dense *d)
{
    struct vb_model_opts opts = {.name = t->net->name, .plan = t->plan};
    vb_status st = check_input(t);

    if (st != VB_OK)
        return st;
    opts.forward_only = t->judge_only;
    d->judge_max = opts.batch_max = vb_trainer_share(t);
    if (vb_train_has_pixels(t) && opts.batch_max < JUDGE_BATCH)
        d->judge_max = opts.batch_max = JUDGE_BATCH;
    if (vb_k_cache_open(NULL, &opts.cache) != VB_OK)
        opts.cache = NULL;
    st = vb_model_create(&opts, &d->model);
    vb_k_cache_close(opts.cache);
    if (st != VB_OK)
        return st;
    d->n_params = vb_model_n_params(d->model);
    t->plan_text = vb_k_plan_text(vb_model_plan(d->model));
    return t->plan_text != NULL ? VB_OK : vb_err(VB_ERR_NO_MEMORY, "no memory for a plan");
}

static bool is_large(const struct vb_trainer *t, size_t n_params)
{
    if (t->o->share_out_bytes > 0)
        return (int64_t)(n_params * sizeof(float)) >= t->o->share_out_bytes;
    return n_params >= VB_K_JOINT_LEAST;
}

static bool shares_out(const struct vb_trainer *t, const struct dense *d)
{
    return t->world > 1 && d->buckets != NULL && d->n_params <= VB_K_JOINT_MAX &&
           is_large(t, d->n_params) && vb_buckets_are_mapped(d->buckets);
}

/* Zeroed. */
static vb_status make_memory(struct vb_trainer *t, struct dense *d, size_t len_bytes, float **at_p)
{
    vb_status st;

    if (shares_out(t, d)) {
        st = vb_here_create(t, d->buckets, d->n_params, len_bytes, &d->here);
        *at_p = st == VB_OK ? vb_here_memory(d->here) : NULL;
        return st;
    }
    st = vb_mem_map_private(len_bytes, &d->mem);
    *at_p = d->mem.ptr;
    return st == VB_OK ? vb_mem_populate(&d->mem) : st; /* now, not in the first steps */
}

/* Parameters, then state, then the other copy of both. */
static vb_status make_params(struct vb_trainer *t, struct dense *d)
{
    int states = vb_k_rule_states(t->recipe.rule.kind), copies = t->world > 1 && !t->async ? 2 : 1;
    size_t n = (d->n_params + 15) / 16 * 16;
    float *at;
    vb_status st = make_memory(t, d, n * sizeof(float) * (size_t)(copies * (1 + states)), &at);
    int i;

    if (st != VB_OK)
        return st;
    for (i = 0; i < 2; i++) {
        float *copy = at + (copies == 2 ? (size_t)i * n * (size_t)(1 + states) : 0);

        d->params[i] = copy;
        d->state[i] = states > 0 ? copy + n : NULL;
    }
    vb_model_init(d->model, t->o->seed, d->params[0]);
    return VB_OK;
}

/* A vb_k_samples_fn: images of a set, by their numbers. */
static void read_images(void *arg, size_t first, size_t n, float *x)
{
    const struct vb_dataset *set = arg;
    uint16_t y;
    uint32_t i;

    for (i = 0; i < n; i++) {
        uint32_t which = (uint32_t)first + i;

        vb_dataset_pick(set, &which, 1, x + (size_t)i * (size_t)set->features, &y);
    }
}

static vb_status list_pixels(struct vb_dataset *set, int n, struct vb_k_pixels **pixels_p)
{
    struct vb_k_samples samples = {.read = read_images,
                                   .arg = set,
                                   .n = (size_t)n,
                                   .features = set->features,
                                   .width = set->w};

    return vb_k_pixels_create(&samples, pixels_p);
}

static vb_status make_buffers(struct vb_trainer *t, struct dense *d)
{
    size_t n = (size_t)d->judge_max;
    vb_status st = VB_OK;
    int n_table;

    (void)vb_model_table(d->model, &n_table);
    d->y = vb_alloc_aligned(n * sizeof(*d->y));
    d->which = vb_alloc_aligned(n * sizeof(*d->which));
    d->arrays = calloc((size_t)n_table + 2, sizeof(*d->arrays));
    if (!vb_train_has_pixels(t))
        d->x = vb_alloc_aligned(n * (size_t)t->test.features * sizeof(*d->x));
    if (d->y == NULL || d->which == NULL || d->arrays == NULL ||
        (d->x == NULL && !vb_train_has_pixels(t)))
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a batch of %d", d->judge_max);
    if (vb_train_has_pixels(t) && !t->judge_only)
        st = list_pixels(&t->train, t->train.n, &d->train);
    if (vb_train_has_pixels(t) && st == VB_OK)
        st = list_pixels(&t->test, t->n_test, &d->test);
    return st;
}

static vb_status dense_compile(struct vb_trainer *t)
{
    struct dense *d = calloc(1, sizeof(*d));

    if (d == NULL)
        return vb_err_sys("calloc");
    t->state = d;
    normalise(t->model, &t->train);
    normalise(t->model, &t->test);
    return make_model(t, d);
}

/* Parameters of the first layers, whose sums are there soon. */
static size_t front_of(const struct dense *d)
{
    int i, n;
    const struct vb_param *table = vb_model_table(d->model, &n);
    size_t front = 0;

    for (i = 2; i < n && table[i].offset <= d->n_params / FRONT_PART; i += 2) /* weights, biases */
        front = table[i].offset;
    return front;
}

/* The gradient of softmax is there at once, if it is not cut. All ranks must do the same. */
static vb_status cut_model(struct vb_trainer *t, struct dense *d)
{
    uint8_t can, all[VB_WORLD_MAX];
    vb_status st;
    int r;

    if (d->buckets == NULL || t->place.group == NULL || !vb_train_has_pixels(t) ||
        vb_buckets_are_mapped(d->buckets))
        return VB_OK;
    can = vb_model_can_cut(d->model, d->train);
    st = vb_group_gather(t->place.group, &can, sizeof(can), all);
    for (r = 0; r < t->world && st == VB_OK; r++)
        can = can && all[r];
    if (st == VB_OK && can)
        vb_model_cut(d->model, vb_buckets_least(d->buckets));
    return st;
}

static vb_status dense_create(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    vb_status st = VB_OK;

    if (!t->judge_only && !t->async)
        st = vb_buckets_create(t, d->n_params, front_of(d), &d->buckets);
    if (st == VB_OK && d->buckets != NULL)
        t->algo = vb_buckets_algo(d->buckets);
    if (st == VB_OK)
        st = make_params(t, d);
    if (st == VB_OK)
        st = make_buffers(t, d);
    return st == VB_OK ? cut_model(t, d) : st;
}

static void dense_close(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);

    if (d == NULL)
        return;
    vb_here_close(d->here);
    vb_buckets_close(d->buckets);
}

static void dense_destroy(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);

    if (d == NULL)
        return;
    vb_here_destroy(d->here);
    vb_buckets_destroy(d->buckets);
    vb_model_destroy(d->model);
    vb_k_pixels_destroy(d->train);
    vb_k_pixels_destroy(d->test);
    vb_mem_unmap(&d->mem);
    free(d->x);
    free(d->y);
    free(d->which);
    free(d->arrays);
    free(d);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void update(struct vb_trainer *t, size_t first, size_t n, float scale, float rate)
{
    struct dense *d = dense_of(t);
    const float *state = d->state[d->now];
    float *state_out = d->state[1 - d->now];
    struct vb_k_update u = {
        .n = n,
        .params = d->params[d->now] + first,
        .state = state != NULL ? state + first : NULL,
        .grads = vb_buckets_grads(d->buckets) + first,
        .scale = scale,
        .rate = rate,
        .params_out = d->params[1 - d->now] + first,
        .state_out = state_out != NULL ? state_out + first : NULL,
    };

    vb_k_update(&t->recipe.rule, &u);
    vb_lap(&t->laps, VB_PHASE_UPDATE);
}

static struct vb_model_batch batch_of(const struct vb_trainer *t, const struct vb_batch *batch,
                                      int64_t step)
{
    return (struct vb_model_batch){.n = batch->n,
                                   .x = batch->x,
                                   .pixels = dense_of(t)->train,
                                   .which = batch->which,
                                   .soon = batch->soon,
                                   .n_soon = batch->n_soon,
                                   .y = batch->y,
                                   .training = true,
                                   .seed = t->o->seed + (uint64_t)t->rank,
                                   .step = (uint64_t)step};
}

/* Sums come downwards to the first parameter, and upwards from there if some were held back. */
static void note_new(struct ahead *a, size_t first, size_t n)
{
    if (first == a->end) {
        a->end += n;
        return;
    }
    if (first + n != a->low)
        a->end = first + n;
    a->low = first;
}

/* Begins with the next step while there is something to wait for in this one. */
static void go_ahead(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    struct ahead *a = &d->ahead;
    struct vb_model_batch batch;
    int before;

    if (vb_buckets_left(d->buckets) == 0)
        return;
    if (a->batch == NULL)
        a->batch = vb_trainer_next_batch(t);
    if (a->batch == NULL)
        return;
    batch = batch_of(t, a->batch, a->step);
    do {
        before = a->layers;
        a->layers =
            vb_model_forward_part(d->model, d->params[1 - d->now], &batch, before, a->low, a->end);
        if (a->layers > before)
            vb_buckets_get_on(d->buckets, VB_PHASE_FORWARD);
    } while (a->layers > before);
}

/* Where no thread makes batches, the next one is made while sums are on their way. */
static void make_next_batch(struct vb_trainer *t)
{
    if (t->world == 1)
        return;
    (void)vb_trainer_next_batch(t);
    vb_lap(&t->laps, VB_PHASE_DATA);
}

/* False: that was the last, or it failed. */
static bool next_bucket(struct vb_trainer *t, vb_status *st_p, size_t *first_p, size_t *n_p)
{
    *st_p = vb_buckets_next(dense_of(t)->buckets, first_p, n_p);
    vb_lap_comm(&t->laps, t->place.group);
    return *st_p == VB_OK && *n_p > 0;
}

/* Takes the sums as they come. at_once: the update, and forward behind it, do not wait for all. */
static vb_status take_all(struct vb_trainer *t, float scale, float rate, bool at_once)
{
    struct dense *d = dense_of(t);
    size_t first, n;
    vb_status st;

    make_next_batch(t);
    while (next_bucket(t, &st, &first, &n)) {
        if (t->recipe.clip > 0)
            vb_k_norm_add(&d->norm, vb_buckets_grads(d->buckets), first, n);
        vb_lap(&t->laps, VB_PHASE_UPDATE);
        if (!at_once)
            continue;
        update(t, first, n, scale, rate);
        note_new(&d->ahead, first, n);
        go_ahead(t);
    }
    return st;
}

/* This rank's shares of all buckets, then those of all ranks. */
static vb_status take_shares(struct vb_trainer *t, const struct vb_here_update *u)
{
    struct dense *d = dense_of(t);
    size_t first, n;
    vb_status st;

    make_next_batch(t);
    while (next_bucket(t, &st, &first, &n))
        vb_here_share(d->here, u, first, n);
    if (st == VB_OK)
        st = vb_buckets_meet(d->buckets);
    vb_lap_comm(&t->laps, t->place.group);
    return st;
}

/* As apply(). Gradients stay what they were: what was clipped is added up once more. */
static vb_status apply_here(struct vb_trainer *t, float scale, float rate)
{
    struct dense *d = dense_of(t);
    struct vb_here_update u = {
        .params = d->params[d->now],
        .state = d->state[d->now],
        .params_out = d->params[1 - d->now],
        .state_out = d->state[1 - d->now],
        .scale = scale,
        .rate = rate,
        .norm = t->recipe.clip > 0,
        .norm_only = t->recipe.clip > 0 && d->clipped,
    };
    vb_status st = take_shares(t, &u);
    float part;

    if (st != VB_OK || !u.norm)
        return st;
    part = vb_k_clip(vb_here_norm(d->here) * (double)scale, t->recipe.clip);
    d->clipped = part != 1;
    if (!u.norm_only && !d->clipped)
        return VB_OK;
    u.norm = u.norm_only = false;
    u.scale = scale * part;
    vb_here_share(d->here, &u, 0, d->n_params);
    st = vb_buckets_meet(d->buckets);
    vb_lap_comm(&t->laps, t->place.group);
    return st;
}

/* Clipping looks at the whole gradient, but most are not clipped: with two copies the update is
 * made as if this one were not, and once more if it was. */
static vb_status apply(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    float scale = 1.f / (float)t->batch->n_global, rate = vb_k_rate(&t->recipe.schedule, t->step);
    bool clips = t->recipe.clip > 0, again = d->params[0] != d->params[1];
    bool at_once = !clips || (again && !d->clipped);
    vb_status st;
    float part;

    if (d->here != NULL && !t->no_sums)
        return apply_here(t, scale, rate);
    d->ahead = (struct ahead){.step = t->step + 1, .low = d->n_params, .end = d->n_params};
    if (clips)
        vb_k_norm_begin(&d->norm, d->n_params);
    st = take_all(t, scale, rate, at_once);
    if (st != VB_OK || !clips)
        return st;
    part = vb_k_clip(vb_k_norm_end(&d->norm) * (double)scale, t->recipe.clip);
    d->clipped = part != 1;
    if (at_once && !d->clipped)
        return VB_OK;
    d->ahead.batch = NULL; /* that was of parameters which are not to be */
    update(t, 0, d->n_params, scale * part, rate);
    return VB_OK;
}

/* Plain SGD on a rank alone needs no gradient in between. */
static bool descend(struct vb_trainer *t, const struct vb_model_batch *batch)
{
    const struct vb_recipe *r = &t->recipe;
    struct dense *d = dense_of(t);
    float rate = vb_k_rate(&r->schedule, t->step);

    if (t->world > 1 || r->rule.kind != VB_K_SGD || r->rule.decay != 0 || r->clip > 0)
        return false;
    if (!vb_model_descend(d->model, batch, -rate / (float)t->batch->n_global, d->params[d->now]))
        return false;
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    return true;
}

/* Layers of this batch that have been run already; once. */
static int layers_done(struct vb_trainer *t)
{
    struct ahead *a = &dense_of(t)->ahead;
    int layers = a->batch == t->batch && a->step == t->step ? a->layers : 0;

    a->batch = NULL;
    return layers;
}

static void forward(struct vb_trainer *t, const float *params, const struct vb_model_batch *batch)
{
    struct vb_model_loss loss;

    vb_trainer_drag(t);
    vb_model_forward_from(dense_of(t)->model, params, batch, layers_done(t), &loss);
    t->loss = batch->n > 0 ? loss.loss / batch->n : t->loss;
    vb_lap(&t->laps, VB_PHASE_FORWARD);
}

void vb_dense_gradient(struct vb_trainer *t, const float *params, float *grads)
{
    struct vb_model_batch batch = batch_of(t, t->batch, t->step);

    forward(t, params, &batch);
    vb_model_backward(dense_of(t)->model, params, &batch, grads, NULL, NULL);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
}

static vb_status dense_step(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    struct vb_model_batch batch = batch_of(t, t->batch, t->step);
    const float *params = d->params[d->now];
    vb_status st;

    forward(t, params, &batch);
    if (descend(t, &batch))
        return VB_OK;
    d->stepped = false; /* the other copy is about to be written to */
    vb_buckets_begin(d->buckets);
    vb_model_backward(d->model, params, &batch, vb_buckets_grads(d->buckets), vb_buckets_ready,
                      d->buckets);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    st = apply(t);
    if (st == VB_OK) {
        d->now = 1 - d->now;
        d->stepped = true;
    }
    return st;
}

static vb_status dense_sum_again(struct vb_trainer *t, size_t *bytes_p)
{
    *bytes_p = dense_of(t)->n_params * sizeof(float);
    return vb_buckets_again(dense_of(t)->buckets);
}

static vb_status dense_step_back(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);

    if (d->params[0] == d->params[1] || !d->stepped)
        return vb_err(VB_ERR_USAGE, "there is no step to go back from");
    d->now = 1 - d->now;
    d->stepped = false;
    d->ahead.batch = NULL;
    return VB_OK;
}

/* ---- judging --------------------------------------------------------------------------------- */

static vb_status dense_judge(struct vb_trainer *t, int first, int n, struct vb_model_loss *sum)
{
    struct dense *d = dense_of(t);
    size_t row = (size_t)t->test.features;
    struct vb_model_batch batch = {.x = d->x, .pixels = d->test, .which = d->which, .y = d->y};
    struct vb_model_loss loss;
    int i;

    d->ahead.batch = NULL; /* its layers are overwritten */
    for (; n > 0; n -= batch.n, first += batch.n) {
        batch.n = n < d->judge_max ? n : d->judge_max;
        for (i = 0; i < batch.n; i++)
            d->which[i] = (uint32_t)(first + i);
        vb_dataset_pick(&t->test, d->which, batch.n, d->x, d->y);
        if (d->x != NULL && batch.n < d->judge_max)
            memset(d->x + (size_t)batch.n * row, 0,
                   (size_t)(d->judge_max - batch.n) * row * sizeof(float));
        vb_model_forward(d->model, d->params[d->now], &batch, &loss);
        sum->loss += loss.loss;
        sum->correct += loss.correct;
    }
    return VB_OK;
}

static const float *dense_params(struct vb_trainer *t, size_t *n_p)
{
    *n_p = dense_of(t)->n_params;
    return dense_of(t)->params[dense_of(t)->now];
}

static float *dense_memory(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p)
{
    struct dense *d = dense_of(t);

    *n_p = d->n_params;
    *state_p = d->state[d->now];
    *words_p = vb_k_rule_states(t->recipe.rule.kind);
    return d->params[d->now];
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static vb_status dense_save(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct dense *d = dense_of(t);
    const struct vb_param *table = vb_model_table(d->model, &cp->n_arrays);
    struct vb_checkpoint_array *a = d->arrays;
    int i;

    for (i = 0; i < cp->n_arrays; i++, a++) {
        snprintf(a->name, sizeof(a->name), "%s", table[i].name);
        a->type = VB_ARRAY_F32;
        a->rows = table[i].rows;
        a->cols = table[i].cols;
        a->data = d->params[d->now] + table[i].offset;
    }
    if (d->state[d->now] != NULL) {
        *a = (struct vb_checkpoint_array){.name = "state",
                                          .type = VB_ARRAY_F32,
                                          .rows = (int64_t)d->n_params,
                                          .cols = 1,
                                          .state = true,
                                          .data = d->state[d->now]};
        cp->n_arrays++;
    }
    cp->arrays = d->arrays;
    return VB_OK;
}

static vb_status copy_array(const struct vb_checkpoint *cp, const char *name, size_t n, float *to)
{
    const float *data = vb_checkpoint_data(cp, name, VB_ARRAY_F32, n);

    if (data == NULL)
        return VB_ERR_INPUT;
    memcpy(to, data, n * sizeof(float));
    return VB_OK;
}

static vb_status dense_restore(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct dense *d = dense_of(t);
    vb_status st = VB_OK;
    int i, n;
    const struct vb_param *table = vb_model_table(d->model, &n);

    d->ahead.batch = NULL;
    for (i = 0; i < n && st == VB_OK; i++)
        st = copy_array(cp, table[i].name, (size_t)table[i].rows * (size_t)table[i].cols,
                        d->params[d->now] + table[i].offset);
    if (st == VB_OK && d->state[d->now] != NULL)
        st = copy_array(cp, "state", d->n_params, d->state[d->now]);
    return st;
}

const struct vb_trainee vb_trainee_dense = {
    .compile = dense_compile,
    .create = dense_create,
    .step = dense_step,
    .sum_again = dense_sum_again,
    .step_back = dense_step_back,
    .judge = dense_judge,
    .params = dense_params,
    .save = dense_save,
    .restore = dense_restore,
    .memory = dense_memory,
    .close = dense_close,
    .destroy = dense_destroy,
};
