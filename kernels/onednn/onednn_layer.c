/* SPDX-License-Identifier: MIT
 *
 * Layers computed by oneDNN. Max pooling is not among them: its gradient needs a workspace that
 * oneDNN's own forward pass has written, and oneDNN's max pooling ignores NaN.
 *
 * oneDNN divides work, and sums, among the threads that exist when a primitive is made. Therefore a
 * pass is cut into equal *parts* of its samples, outputs or inputs, by the shape alone; no part
 * adds to the results of another. One primitive, made for one thread, computes all parts. Each
 * thread has its own memory objects (a *slot*). Tensors that the primitive wants in another layout
 * are reordered: once if all parts read the same tensor, otherwise in each part.
 *
 * The ReLU is fused where a NaN stays NaN. On x86 the maximum instruction would lose it, so the
 * ReLU follows each part while the part is in the cache.
 */
#include "kernels/onednn/onednn.h"
#include "kernels/layer/vec.h"

#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>

#define PARTS_MAX 16
#define ROOM_BYTES ((size_t)64 << 20)
#define OUTPUTS_MIN 16 /* smallest number of outputs or inputs in a part */

#if defined(__x86_64__)
#define FUSES_RELU false
#else
#define FUSES_RELU true
#endif

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t md_ref;
#else
typedef const dnnl_memory_desc_t *md_ref;
#endif

enum { X, W, B, Y, DY, DX, DW, DB, N_TENSORS };

static const struct {
    dnnl_query_t query;
    int index, arg;
    bool output;
} kinds[N_TENSORS] = {
    [X] = {dnnl_query_src_md, 0, DNNL_ARG_SRC, false},
    [W] = {dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS, false},
    [B] = {dnnl_query_weights_md, 1, DNNL_ARG_BIAS, false},
    [Y] = {dnnl_query_dst_md, 0, DNNL_ARG_DST, true},
    [DY] = {dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST, false},
    [DX] = {dnnl_query_diff_src_md, 0, DNNL_ARG_DIFF_SRC, true},
    [DW] = {dnnl_query_diff_weights_md, 0, DNNL_ARG_DIFF_WEIGHTS, true},
    [DB] = {dnnl_query_diff_weights_md, 1, DNNL_ARG_DIFF_BIAS, true},
};

struct tensor {
    bool used;
    struct onednn_plain plain; /* layout of one part */
    size_t step;               /* number of floats from one part to the next; 0: parts share it */
    size_t bytes;              /* size in the primitive's layout; 0: this layout equals ours */
    size_t at;                 /* offset in the slot's scratch, or in the shared one if step is 0 */
    dnnl_primitive_t reorder;  /* converts inputs to the primitive's layout, results from it */
};

struct slot {
    dnnl_stream_t stream;
    dnnl_memory_t user[N_TENSORS], inner[N_TENSORS];
    dnnl_memory_t pad; /* the primitive's own scratch memory */
};

struct onednn_state {
    struct vb_k_shape s;
    enum vb_k_pass pass;
    dnnl_engine_t engine;
    dnnl_primitive_t primitive;
    struct tensor t[N_TENSORS];
    int parts, n_slots;
    struct slot *slots;
    size_t pad_bytes, pad_at;
    size_t slot_bytes, shared_bytes;
};

enum axis { ALONG_NONE, ALONG_SAMPLES, ALONG_OUTPUTS, ALONG_INPUTS };

/* A convolution has so few weights that every part can read all of them; a linear layer does not.
 * Gradients of weights are sums over samples, so they must not be cut along samples. */
static enum axis cut_axis(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    if (pass == VB_K_BACKWARD_WEIGHTS)
        return ALONG_OUTPUTS;
    if (s->kind != VB_K_LINEAR)
        return ALONG_SAMPLES;
    return pass == VB_K_FORWARD ? ALONG_OUTPUTS : ALONG_INPUTS;
}

/* Returns the number of parts. It divides whole, because all parts are equal. */
static int count_parts(int whole, int part_min)
{
    int parts;

    for (parts = PARTS_MAX; parts > 1; parts--)
        if (whole % parts == 0 && whole / parts >= part_min)
            return parts;
    return 1;
}

static int inputs(const struct vb_k_shape *s)
{
    return s->c * s->h * s->w;
}

/* Fills in the sizes of a tensor and the meaning of each axis, outermost first. */
static int axes_of(const struct vb_k_shape *s, int which, int dims[ONEDNN_DIMS],
                   enum axis along[ONEDNN_DIMS])
{
    bool linear = s->kind == VB_K_LINEAR;
    int x[] = {s->n, linear ? inputs(s) : s->c, s->h, s->w};
    int w[] = {s->oc, linear ? inputs(s) : s->c, s->kh, s->kw};
    int y[] = {s->n, s->oc, s->oh, s->ow};
    bool of_x = which == X || which == DX, of_y = which == Y || which == DY;

    memcpy(dims, of_x ? x : of_y ? y : w, sizeof(x));
    along[0] = of_x || of_y ? ALONG_SAMPLES : ALONG_OUTPUTS;
    along[1] = of_y ? ALONG_OUTPUTS : ALONG_INPUTS;
    along[2] = along[3] = ALONG_NONE;
    if (which == B || which == DB)
        return 1;
    return linear ? 2 : 4;
}

static void cut_tensor(struct onednn_state *st, int which, enum axis cut)
{
    struct tensor *t = &st->t[which];
    enum axis along[ONEDNN_DIMS];
    int dims[ONEDNN_DIMS], i;
    int64_t stride = 1;

    t->used = true;
    t->plain.n_dims = axes_of(&st->s, which, dims, along);
    for (i = t->plain.n_dims - 1; i >= 0; i--) {
        t->plain.dims[i] = along[i] == cut ? dims[i] / st->parts : dims[i];
        t->plain.strides[i] = stride;
        if (along[i] == cut && st->parts > 1)
            t->step = (size_t)(t->plain.dims[i] * stride);
        stride *= dims[i];
    }
}

static void cut_pass(struct onednn_state *st)
{
    static const unsigned char used[VB_K_PASSES][N_TENSORS] = {
        [VB_K_FORWARD] = {[X] = 1, [W] = 1, [B] = 1, [Y] = 1},
        [VB_K_BACKWARD_DATA] = {[W] = 1, [DY] = 1, [DX] = 1},
        [VB_K_BACKWARD_WEIGHTS] = {[X] = 1, [DY] = 1, [DW] = 1, [DB] = 1},
    };
    bool weights = vb_k_has_pass(st->s.kind, VB_K_BACKWARD_WEIGHTS);
    enum axis cut = cut_axis(&st->s, st->pass);
    int i;

    if (cut == ALONG_SAMPLES)
        st->parts = count_parts(st->s.n, 1);
    else
        st->parts = count_parts(cut == ALONG_OUTPUTS ? st->s.oc : inputs(&st->s), OUTPUTS_MIN);
    for (i = 0; i < N_TENSORS; i++)
        if ((used[st->pass][i] && (weights || (i != W && i != B))) ||
            (i == X && st->s.kind == VB_K_LRN))
            cut_tensor(st, i, cut);
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
}

static bool describe_plain(dnnl_memory_desc_t *own, md_ref *ref, const struct onednn_plain *t)
{
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t st =
        dnnl_memory_desc_create_with_strides(own, t->n_dims, t->dims, dnnl_f32, t->strides);

    *ref = *own;
#else
    dnnl_status_t st =
        dnnl_memory_desc_init_by_strides(own, t->n_dims, t->dims, dnnl_f32, t->strides);

    *ref = own;
#endif
    return st == dnnl_success;
}

static bool make_reorder(struct onednn_state *st, int which, md_ref plain, md_ref inner)
{
    md_ref from = kinds[which].output ? inner : plain, to = kinds[which].output ? plain : inner;
    dnnl_primitive_desc_t pd;
    bool made;

    if (dnnl_reorder_primitive_desc_create(&pd, from, st->engine, to, st->engine, NULL) !=
        dnnl_success)
        return false;
    made = dnnl_primitive_create(&st->t[which].reorder, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    return made;
}

/* Returns true if all parts read the same tensor. */
static bool is_shared(const struct onednn_state *st, int which)
{
    return st->t[which].step == 0 && !kinds[which].output;
}

/* Makes the memory objects of a tensor for each slot, and its reorder if the layouts differ. */
static bool make_tensor(struct onednn_state *st, dnnl_primitive_desc_t pd, int which)
{
    md_ref inner = dnnl_primitive_desc_query_md(pd, kinds[which].query, kinds[which].index), plain;
    struct tensor *t = &st->t[which];
    bool made = true;
    dnnl_memory_desc_t own = {0};
    int i;

    if (inner == NULL || !describe_plain(&own, &plain, &t->plain))
        return false;
    if (!dnnl_memory_desc_equal(plain, inner)) {
        size_t *bytes = is_shared(st, which) ? &st->shared_bytes : &st->slot_bytes;

        t->bytes = dnnl_memory_desc_get_size(inner);
        t->at = *bytes;
        *bytes += whole_lines(t->bytes);
        made = make_reorder(st, which, plain, inner);
    }
    for (i = 0; i < st->n_slots && made; i++) {
        made = dnnl_memory_create(&st->slots[i].user[which], plain, st->engine, DNNL_MEMORY_NONE) ==
               dnnl_success;
        if (made && t->bytes > 0)
            made = dnnl_memory_create(&st->slots[i].inner[which], inner, st->engine,
                                      DNNL_MEMORY_NONE) == dnnl_success;
    }
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_destroy(own);
#endif
    return made;
}

static bool make_slots(struct onednn_state *st, dnnl_primitive_desc_t pd)
{
    md_ref pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    int i;

    st->pad_bytes = pad != NULL ? dnnl_memory_desc_get_size(pad) : 0;
    st->pad_at = st->slot_bytes;
    st->slot_bytes += whole_lines(st->pad_bytes);
    for (i = 0; i < st->n_slots; i++) {
        if (dnnl_stream_create(&st->slots[i].stream, st->engine, dnnl_stream_default_flags) !=
            dnnl_success)
            return false;
        if (st->pad_bytes > 0 && dnnl_memory_create(&st->slots[i].pad, pad, st->engine,
                                                    DNNL_MEMORY_NONE) != dnnl_success)
            return false;
    }
    return true;
}

static bool make_all(struct onednn_state *st, dnnl_primitive_desc_t pd)
{
    md_ref notes = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    int i;

    if (st->pass != VB_K_FORWARD && notes != NULL && dnnl_memory_desc_get_size(notes) > 0)
        return false; /* a gradient needs the workspace of the forward pass, which we do not have */
    for (i = 0; i < N_TENSORS; i++)
        if (st->t[i].used && !make_tensor(st, pd, i))
            return false;
    return make_slots(st, pd) && dnnl_primitive_create(&st->primitive, pd) == dnnl_success;
}

static bool make_attr(const struct vb_k_shape *s, enum vb_k_pass pass, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops;
    bool made;

    if (dnnl_primitive_attr_create(attr) != dnnl_success)
        return false;
    made =
        dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) == dnnl_success;
#if DNNL_VERSION_MAJOR >= 3 || DNNL_VERSION_MINOR >= 6
    /* The environment (ONEDNN_DEFAULT_FPMATH_MODE) must not make oneDNN round to bf16. */
    made =
        made && dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_strict) == dnnl_success;
#endif
    if (!made || !FUSES_RELU || !s->relu || pass != VB_K_FORWARD)
        return made;
    if (dnnl_post_ops_create(&ops) != dnnl_success)
        return false;
#if DNNL_VERSION_MAJOR >= 3
    made = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0) == dnnl_success;
#else
    made = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0) == dnnl_success;
#endif
    made = made && dnnl_primitive_attr_set_post_ops(*attr, ops) == dnnl_success;
    dnnl_post_ops_destroy(ops);
    return made;
}

static bool make_primitive(struct onednn_state *st)
{
    bool back = st->pass == VB_K_BACKWARD_DATA, weights = st->pass == VB_K_BACKWARD_WEIGHTS;
    struct onednn_job job = {.s = st->s, .pass = st->pass};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd;
    bool made;

    job.x = st->t[back ? DX : X].plain;
    job.w = st->t[weights ? DW : W].plain;
    job.b = st->t[weights ? DB : B].plain;
    job.y = st->t[st->pass == VB_K_FORWARD ? Y : DY].plain;
    if (back && vb_k_has_pass(st->s.kind, VB_K_BACKWARD_WEIGHTS))
        /* The forward descriptor needs the biases. */
        job.b = (struct onednn_plain){1, {job.w.dims[0]}, {1}};
    made = make_attr(&st->s, st->pass, &attr) && vb_onednn_describe(&job, st->engine, attr, &pd);
    if (made) {
        made = make_all(st, pd);
        dnnl_primitive_desc_destroy(pd);
    }
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    return made;
}

static const float *tensor_of(const struct vb_k_args *a, int which)
{
    const float *all[N_TENSORS] = {a->x, a->w, a->b, a->y, a->dy, a->dx, a->dw, a->db};

    return all[which];
}

/* Runs a primitive. A failure in the middle of a step cannot be handled, and the only known cause
 * would be our own bug. After a failure the results keep their old values. */
static void execute(dnnl_primitive_t primitive, dnnl_stream_t stream, const dnnl_exec_arg_t *args,
                    int n)
{
    dnnl_status_t st = dnnl_primitive_execute(primitive, stream, n, args);

    if (st == dnnl_success)
        st = dnnl_stream_wait(stream);
    if (st != dnnl_success)
        VB_LOG_ERROR("dnnl_primitive_execute failed with status %d", (int)st);
}

static void reorder(const struct onednn_state *st, const struct slot *slot, int which)
{
    bool out = kinds[which].output;
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_FROM, out ? slot->inner[which] : slot->user[which]},
        {DNNL_ARG_TO, out ? slot->user[which] : slot->inner[which]},
    };

    execute(st->t[which].reorder, slot->stream, args, VB_COUNT(args));
}

static void point(dnnl_memory_t memory, const void *to)
{
    union {
        const void *in;
        void *out;
    } handle = {.in = to}; /* inputs are not written, but oneDNN's types are not const */

    (void)dnnl_memory_set_data_handle(memory, handle.out);
}

/* Applies the ReLU to a part. For each index of the outermost axis, elements are contiguous. */
static void relu_part(const struct onednn_plain *t, float *y)
{
    int64_t len = 1, i, j;
    int d;

    for (d = 1; d < t->n_dims; d++)
        len *= t->dims[d];
    for (i = 0; i < t->dims[0]; i++, y += t->strides[0]) {
        for (j = 0; j < len; j++)
            y[j] = vb_relu(y[j]);
    }
}

static void run_part(const struct onednn_state *st, const struct vb_k_args *a, int part, int team)
{
    const struct slot *slot = &st->slots[team];
    char *shared = a->scratch, *own = shared + st->shared_bytes + (size_t)team * st->slot_bytes;
    dnnl_exec_arg_t args[N_TENSORS + 1];
    const struct tensor *t;
    int i, n = 0;

    for (i = 0; i < N_TENSORS; i++) {
        t = &st->t[i];
        if (!t->used)
            continue;
        point(slot->user[i], tensor_of(a, i) + (size_t)part * t->step);
        if (t->bytes > 0)
            point(slot->inner[i], (is_shared(st, i) ? shared : own) + t->at);
        if (t->bytes > 0 && !is_shared(st, i) && !kinds[i].output)
            reorder(st, slot, i);
        args[n++] = (dnnl_exec_arg_t){kinds[i].arg, t->bytes > 0 ? slot->inner[i] : slot->user[i]};
    }
    if (st->pad_bytes > 0) {
        point(slot->pad, own + st->pad_at);
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, slot->pad};
    }
    execute(st->primitive, slot->stream, args, n);
    for (i = 0; i < N_TENSORS; i++)
        if (st->t[i].bytes > 0 && kinds[i].output)
            reorder(st, slot, i);
    if (!FUSES_RELU && st->s.relu && st->pass == VB_K_FORWARD)
        relu_part(&st->t[Y].plain, a->y + (size_t)part * st->t[Y].step);
}

/* Runs all parts. Each primitive runs on one thread, because it was made for one thread. */
static void onednn_run(void *state, const struct vb_k_args *a)
{
    const struct onednn_state *st = state;
    const struct slot *first = &st->slots[0];
    int threads = omp_get_max_threads(), i;

    omp_set_num_threads(1);
    for (i = 0; i < N_TENSORS; i++)
        if (st->t[i].bytes > 0 && is_shared(st, i)) {
            point(first->user[i], tensor_of(a, i));
            point(first->inner[i], (char *)a->scratch + st->t[i].at);
            reorder(st, first, i);
        }
#pragma omp parallel num_threads(vb_min(threads, st->n_slots))
    {
        omp_set_num_threads(1);
#pragma omp for schedule(static)
        for (i = 0; i < st->parts; i++)
            run_part(st, a, i, omp_get_thread_num());
    }
    omp_set_num_threads(threads);
}

static bool onednn_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    if ((double)s->c * s->h * s->w >= (1 << 30))
        return false;
    return vb_k_has_pass(s->kind, pass) && (s->kind == VB_K_CONV || s->kind == VB_K_LINEAR ||
                                            s->kind == VB_K_AVG_POOL || s->kind == VB_K_LRN);
}

static void destroy_memory(dnnl_memory_t memory)
{
    if (memory != NULL)
        dnnl_memory_destroy(memory);
}

static void onednn_destroy(void *state)
{
    struct onednn_state *st = state;
    int i, t;

    for (i = 0; st->slots != NULL && i < st->n_slots; i++) {
        for (t = 0; t < N_TENSORS; t++) {
            destroy_memory(st->slots[i].user[t]);
            destroy_memory(st->slots[i].inner[t]);
        }
        destroy_memory(st->slots[i].pad);
        if (st->slots[i].stream != NULL)
            dnnl_stream_destroy(st->slots[i].stream);
    }
    for (t = 0; t < N_TENSORS; t++)
        if (st->t[t].reorder != NULL)
            dnnl_primitive_destroy(st->t[t].reorder);
    if (st->primitive != NULL)
        dnnl_primitive_destroy(st->primitive);
    if (st->engine != NULL)
        dnnl_engine_destroy(st->engine);
    free(st->slots);
    free(st);
}

/* On x86 oneDNN crashes if it finds no memory for the code that it generates. */
static vb_status check_room(void)
{
    void *room = malloc(ROOM_BYTES);

    if (room == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the %zu MB that oneDNN may need",
                      ROOM_BYTES >> 20);
    free(room);
    return VB_OK;
}

static vb_status onednn_prepare(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                                size_t *scratch_p)
{
    struct onednn_state *st = calloc(1, sizeof(*st));
    int threads = omp_get_max_threads();
    vb_status room = check_room();
    bool made;

    if (st == NULL)
        return vb_err_sys("calloc");
    if (room != VB_OK) {
        free(st);
        return room;
    }
    st->s = *s;
    st->pass = pass;
    cut_pass(st);
    st->n_slots = threads;
    st->slots = calloc((size_t)st->n_slots, sizeof(*st->slots));
    if (st->slots == NULL) {
        onednn_destroy(st);
        return vb_err_sys("calloc");
    }
    omp_set_num_threads(1);
    made = dnnl_engine_create(&st->engine, dnnl_cpu, 0) == dnnl_success && make_primitive(st);
    omp_set_num_threads(threads);
    if (!made) {
        onednn_destroy(st);
        return VB_ERR_UNSUPPORTED; /* not logged: the caller may have other backends */
    }
    *scratch_p = st->shared_bytes + (size_t)st->n_slots * st->slot_bytes;
    *state_p = st;
    return VB_OK;
}

const struct vb_k_backend vb_k_backend_onednn = {
    .name = "onednn",
    .can = onednn_can,
    .prepare = onednn_prepare,
    .run = onednn_run,
    .destroy = onednn_destroy,
};
