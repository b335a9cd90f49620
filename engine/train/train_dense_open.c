/* SPDX-License-Identifier: MIT
 *
 * Sets up a dense model for training: kernels, memory for parameters, buffers, buckets.
 */
#include "engine/train/train_dense_priv.h"

#include <stdlib.h>
#include <string.h>

#define EVAL_BATCH 256 /* minimum batch for evaluation, if the model takes lists of pixels */
#define AHEAD_LEAST ((size_t)16 << 20) /* bytes; less is allocated within some milliseconds */
#define FRONT_PART 8 /* the front has at most one FRONT_PART-th of all parameters */

/* A linear first layer sees an image as a vector: only the number of pixels counts. Every other
 * layer sees channels, rows and columns. */
static bool takes_images(const struct vb_k_shape *first, const struct vb_dataset *set)
{
    if (first->kind == VB_K_LINEAR)
        return set->features == first->c * first->h * first->w;
    return set->c == first->c && set->h == first->h && set->w == first->w;
}

/* Checks that the data fits the net, before time is spent on choosing kernels. */
static vb_status check_input(const struct vb_trainer *t)
{
    const struct vb_layer_table *table = t->model.layers;
    struct vb_k_shape s[VB_LAYERS_MAX];
    vb_status st;

    if (table == NULL)
        return vb_err(VB_ERR_USAGE, "model %s has no table of layers", t->model.net->name);
    st = vb_layer_table_shapes(table, 1, s);
    if (st != VB_OK)
        return st;
    if (t->data.train.kind != VB_DATA_IMAGES)
        return vb_err(VB_ERR_USAGE, "%s is trained on images; %s does not contain images",
                      t->o->model, t->o->data.text);
    if (!takes_images(s, &t->data.train))
        return vb_err(VB_ERR_USAGE,
                      "%s takes images of %d x %d x %d; the images of %s are %d x %d x %d",
                      t->o->model, s->c, s->h, s->w, t->o->data.text, t->data.train.c,
                      t->data.train.h, t->data.train.w);
    if (t->data.train.classes > s[table->n_layers - 1].oc)
        return vb_err(VB_ERR_USAGE, "model %s has %d classes; %s has %d classes", t->o->model,
                      s[table->n_layers - 1].oc, t->o->data.text, t->data.train.classes);
    return VB_OK;
}

static vb_status make_model(struct vb_trainer *t, struct dense *d)
{
    struct vb_model_opts opts = {
        .name = t->model.net->name, .plan = t->kernels.asked, .fast_math = t->o->fast_math};
    vb_status st = check_input(t);

    if (st != VB_OK)
        return st;
    opts.forward_only = t->eval_only;
    d->eval.max = opts.batch_max = vb_trainer_batch(t);
    if (vb_trainer_has_pixels(t) && opts.batch_max < EVAL_BATCH)
        d->eval.max = opts.batch_max = EVAL_BATCH;
    if (vb_k_cache_open(NULL, &opts.cache) != VB_OK)
        opts.cache = NULL;
    st = vb_model_create(&opts, &d->model);
    vb_k_cache_close(opts.cache);
    if (st != VB_OK)
        return st;
    vb_replay_model(t, d->model);
    d->n_params = vb_model_n_params(d->model);
    t->kernels.text = vb_k_plan_text(vb_model_plan(d->model));
    return t->kernels.text != NULL ? VB_OK : vb_err(VB_ERR_NO_MEMORY, "no memory for a plan");
}

/* Returns whether the ranks share the update if all of them have mapped each other's memory. */
static bool may_share(const struct vb_trainer *t, const struct dense *d)
{
    int64_t least = t->o->sums.shared_update_min;
    bool large = least > 0 ? (int64_t)(d->n_params * sizeof(float)) >= least
                           : d->n_params >= VB_K_JOINT_LEAST;

    return t->world > 1 && !t->replay.on && d->n_params <= VB_K_JOINT_MAX && large;
}

static bool shares_out(const struct vb_trainer *t, const struct dense *d)
{
    return d->buckets != NULL && may_share(t, d) && vb_buckets_are_mapped(d->buckets);
}

/* A joiner has no group yet; it knows only what the user has asked for. */
static bool will_share(const struct vb_trainer *t, const struct dense *d)
{
    return d->shared != NULL || (vb_trainer_comes(t) && d->buckets == NULL && may_share(t, d) &&
                                 t->o->group.transport == VB_TRANSPORT_SHM);
}

/* Allocates zeroed memory for so many copies, shared with the other ranks if they share the update.
 */
static vb_status make_memory(struct vb_trainer *t, struct dense *d, size_t copy_bytes, int copies,
                             float **at_p)
{
    struct vb_mem first;
    vb_status st;

    if (shares_out(t, d)) {
        st = vb_shared_update_create(t, d->buckets, d->n_params, copy_bytes, copies, &d->shared);
        *at_p = st == VB_OK ? vb_shared_update_memory(d->shared) : NULL;
        return st;
    }
    st = vb_mem_map_private(copy_bytes * (size_t)copies, &d->copies.mem);
    *at_p = d->copies.mem.ptr;
    /* All pages are touched now, because page faults would slow the first steps. The last copy is
     * used while a checkpoint is written; most ranks that may have to write one never do. */
    first = d->copies.mem;
    if (copies > (t->async ? 1 : 2) && !t->leads && first.len_bytes > copy_bytes)
        first.len_bytes -= copy_bytes;
    return st == VB_OK && !will_share(t, d) ? vb_mem_populate(&first) : st;
}

static size_t params_room(const struct dense *d)
{
    return (d->n_params + 15) / 16 * 16;
}

static int n_copies(const struct vb_trainer *t, const struct dense_copies *c)
{
    return (c->swaps ? 2 : 1) + (vb_train_saves_beside(t) ? 1 : 0);
}

/* Sets up the memory: first the parameters, then the state, then the other copies of both. */
static vb_status make_params(struct vb_trainer *t, struct dense *d)
{
    int states = vb_k_rule_states(t->recipe.rule.kind);
    size_t n = params_room(d), len = n * (size_t)(1 + states);
    struct dense_copies *c = &d->copies;
    float *at;
    vb_status st;
    int i;

    c->swaps = t->world > 1 && !t->async;
    c->n = n_copies(t, c);
    c->before = c->swaps ? 1 : 0;
    c->held = -1;
    st = make_memory(t, d, len * sizeof(float), c->n, &at);
    if (st != VB_OK)
        return st;
    for (i = 0; i < c->n; i++) {
        c->params[i] = at + (size_t)i * len;
        c->state[i] = states > 0 ? c->params[i] + n : NULL;
    }
    return VB_OK;
}

/* A vb_k_samples_fn that reads images of a data set. */
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

/* Lists the pixels once a host. */
static vb_status find_pixels(struct vb_trainer *t, enum vb_copy copy, struct vb_dataset *set, int n,
                             struct vb_k_pixels **pixels_p)
{
    struct vb_k_pixels *private;
    const struct vb_mem *shared;
    struct vb_mem own;
    vb_status st = vb_copies_take(t, copy, n, &shared);

    if (st == VB_AGAIN && !t->copies.keeps)
        return list_pixels(set, n, pixels_p);
    if (st == VB_AGAIN) {
        st = list_pixels(set, n, &private);
        if (st != VB_OK)
            return st;
        st = vb_k_pixels_pack(private, &own);
        vb_k_pixels_destroy(private);
        if (st == VB_OK)
            st = vb_copies_give(t, copy, n, &own);
        shared = &t->copies.mem[copy];
    }
    if (st != VB_OK)
        return st;
    return vb_k_pixels_unpack(shared->ptr, shared->len_bytes, (size_t)n, set->features, pixels_p);
}

static vb_status make_buffers(struct vb_trainer *t, struct dense *d)
{
    size_t n = (size_t)d->eval.max;
    vb_status st = VB_OK;
    int n_table;

    (void)vb_model_table(d->model, &n_table);
    d->eval.y = vb_alloc_aligned(n * sizeof(*d->eval.y));
    d->eval.which = vb_alloc_aligned(n * sizeof(*d->eval.which));
    d->arrays = calloc((size_t)n_table + 2, sizeof(*d->arrays));
    if (!vb_trainer_has_pixels(t))
        d->eval.x = vb_alloc_aligned(n * (size_t)t->data.test.features * sizeof(*d->eval.x));
    if (d->eval.y == NULL || d->eval.which == NULL || d->arrays == NULL ||
        (d->eval.x == NULL && !vb_trainer_has_pixels(t)))
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a batch of %d", d->eval.max);
    if (vb_trainer_has_pixels(t) && !t->eval_only)
        st = find_pixels(t, VB_COPY_PIXELS, &t->data.train, t->data.train.n, &d->pixels);
    if (vb_trainer_has_pixels(t) && st == VB_OK)
        st = find_pixels(t, VB_COPY_PIXELS_TEST, &t->data.test, t->data.n_test, &d->pixels_test);
    return st;
}

vb_status vb_dense_compile(struct vb_trainer *t)
{
    const struct vb_train_model *row = t->model.row;
    struct dense *d = calloc(1, sizeof(*d));

    if (d == NULL)
        return vb_err_sys("calloc");
    t->state = d;
    if (row->scale != 0) {
        t->data.train.mean = t->data.test.mean = row->mean;
        t->data.train.scale = t->data.test.scale = row->scale;
    }
    return make_model(t, d);
}

/* Returns the number of parameters of the front: the first layers, as many as are small enough that
 * their sums are short. */
static size_t front_of(const struct dense *d)
{
    int i, n;
    const struct vb_param *table = vb_model_table(d->model, &n);
    size_t front = 0;

    for (i = 2; i < n && table[i].offset <= d->n_params / FRONT_PART;
         i += 2) /* the table has two rows per layer: weights and biases */
        front = table[i].offset;
    return front;
}

/* Softmax regression has one layer, so its whole gradient would be ready at once. If all ranks can
 * do it, the backward pass computes the gradient in parts, and the first parts are sent earlier. */
static vb_status cut_model(struct vb_trainer *t, struct dense *d)
{
    uint8_t can, all[VB_WORLD_MAX];
    vb_status st;
    int r;

    if (d->buckets == NULL || t->place.group == NULL || !vb_trainer_has_pixels(t) ||
        vb_buckets_are_mapped(d->buckets))
        return VB_OK;
    can = vb_model_can_cut(d->model, d->pixels);
    st = vb_group_gather(t->place.group, &can, sizeof(can), all);
    for (r = 0; r < t->world && st == VB_OK; r++)
        can = can && all[r];
    if (st == VB_OK && can)
        vb_model_cut(d->model, vb_buckets_least(d->buckets));
    return st;
}

static vb_status make_buckets(struct vb_trainer *t, struct dense *d)
{
    vb_status st = vb_buckets_create(t, d->n_params, front_of(d), &d->buckets);

    if (st != VB_OK)
        return st;
    t->sums.algo = vb_buckets_algo(d->buckets);
    t->sums.forecast = vb_buckets_forecast(d->buckets);
    return VB_OK;
}

vb_status vb_dense_create(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    bool sums = !t->eval_only && !t->async;
    vb_status st = VB_OK;

    if (sums && !vb_trainer_comes(t)) /* a joiner makes them with the members: vb_dense_form() */
        st = make_buckets(t, d);
    if (st == VB_OK && sums)
        st = vb_mem_map_private(d->n_params * sizeof(float), &d->pieces);
    if (st == VB_OK)
        st = make_params(t, d);
    if (st == VB_OK && !vb_trainer_comes(t)) /* otherwise the job sends them */
        vb_model_init(d->model, t->o->seed, d->copies.params[0]);
    if (st == VB_OK)
        st = make_buffers(t, d);
    return st == VB_OK ? cut_model(t, d) : st;
}

/* ---- another group --------------------------------------------------------------------------- */

static void copy_params(const struct dense *d, const struct dense_copies *from,
                        struct dense_copies *to, size_t states)
{
    memcpy(to->params[to->now], from->params[from->now], d->n_params * sizeof(float));
    if (states > 0)
        memcpy(to->state[to->now], from->state[from->now], states * d->n_params * sizeof(float));
}

/* Copies that are in memory of this rank alone, before and after, stay where they are. */
static bool keeps_copies(const struct vb_trainer *t, const struct dense *d)
{
    return d->aside.shared == NULL && !shares_out(t, d) &&
           d->aside.copies.n == n_copies(t, &d->aside.copies);
}

static vb_status move_params(struct vb_trainer *t, struct dense *d)
{
    vb_status st;

    if (keeps_copies(t, d)) {
        d->copies = d->aside.copies;
        d->aside.copies = (struct dense_copies){.held = -1};
        d->aside.same_copies = true;
        return VB_OK;
    }
    st = make_params(t, d);
    if (st == VB_OK)
        copy_params(d, &d->aside.copies, &d->copies, (size_t)vb_k_rule_states(t->recipe.rule.kind));
    return st;
}

vb_status vb_dense_form(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    vb_status st;

    d->aside = (struct dense_aside){.on = true,
                                    .buckets = d->buckets,
                                    .shared = d->shared,
                                    .copies = d->copies,
                                    .clipped = d->clip.last};
    d->buckets = NULL;
    d->shared = NULL;
    d->copies = (struct dense_copies){.held = -1};
    d->kept = false;
    d->clip.last = false;
    d->early.batch = NULL;
    st = make_buckets(t, d);
    if (st == VB_OK)
        st = move_params(t, d);
    return st == VB_OK ? cut_model(t, d) : st;
}

/* What is aside afterwards hangs on the group that is not used any more. */
void vb_dense_formed(struct vb_trainer *t, bool stays)
{
    struct dense *d = dense_of(t);
    struct dense_aside *a = &d->aside, failed;

    if (!a->on)
        return;
    if (!stays) {
        failed = (struct dense_aside){.buckets = d->buckets, .shared = d->shared};
        d->buckets = a->buckets;
        d->shared = a->shared;
        d->clip.last = a->clipped;
        if (!a->same_copies) {
            failed.copies = d->copies;
            d->copies = a->copies;
        }
        *a = failed;
    }
    vb_shared_update_close(a->shared);
    vb_buckets_close(a->buckets);
    vb_shared_update_destroy(a->shared);
    vb_buckets_destroy(a->buckets);
    vb_mem_unmap(&a->copies.mem);
    *a = (struct dense_aside){0};
}

int vb_dense_ahead(struct vb_trainer *t, int world, size_t *lens_bytes)
{
    struct dense *d = dense_of(t);

    lens_bytes[0] = vb_buckets_need(t, d->n_params, world);
    if (lens_bytes[0] < AHEAD_LEAST)
        return 0;
    if (!will_share(t, d))
        return 1;
    lens_bytes[1] = vb_shared_update_need(params_room(d) * sizeof(float) *
                                              (size_t)(1 + vb_k_rule_states(t->recipe.rule.kind)),
                                          d->copies.n);
    return 2;
}

void vb_dense_close(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);

    if (d == NULL)
        return;
    vb_shared_update_close(d->shared);
    vb_buckets_close(d->buckets);
}

void vb_dense_destroy(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);

    if (d == NULL)
        return;
    vb_shared_update_destroy(d->shared);
    vb_buckets_destroy(d->buckets);
    vb_model_destroy(d->model);
    vb_k_pixels_destroy(d->pixels);
    vb_k_pixels_destroy(d->pixels_test);
    vb_mem_unmap(&d->copies.mem);
    vb_mem_unmap(&d->pieces);
    free(d->eval.x);
    free(d->eval.y);
    free(d->eval.which);
    free(d->arrays);
    free(d);
}
