/* SPDX-License-Identifier: MIT
 *
 * Takes a step of several ranks that share memory, chunk by chunk. The gradients of a chunk are
 * added in a buffer in the second-level cache, so every gradient is read once, and no sum goes
 * through memory. The update writes a chunk to this rank's copy; from there it is copied to the
 * other ranks. On x86 it writes to a buffer, and non-temporal stores write that to all copies:
 * normal stores would first read each line from memory, because the models are larger than the
 * caches (VB_K_JOINT_LEAST).
 */
#include "kernels/update/update_inside.h"

#include <omp.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* The buffers of a chunk while it is processed. */
struct chunk {
    float sum[UPDATE_CHUNK], params[UPDATE_CHUNK], state[UPDATE_CHUNK];
};

struct vb_k_joint_room {
    int slots; /* the number of chunks, one for each thread */
    _Alignas(VB_CACHE_LINE) struct chunk chunks[];
};

_Static_assert(VB_K_JOINT_MAX / VB_K_NORM_PARTS <= UPDATE_CHUNK, "a part fits a chunk");

/* Adds the gradients of all ranks in rank order, which gives the same bits as the allreduce. */
static void add_up(const struct vb_k_joint *j, size_t first, size_t n, float *sum)
{
    const float *a = j->grads[0] + first, *b = j->n_ranks > 1 ? j->grads[1] + first : NULL;
    size_t i;
    int r;

    if (b == NULL) {
        memcpy(sum, a, n * sizeof(*sum));
        return;
    }
    for (i = 0; i < n; i++)
        sum[i] = a[i] + b[i];
    for (r = 2; r < j->n_ranks; r++) {
        b = j->grads[r] + first;
        for (i = 0; i < n; i++)
            sum[i] += b[i];
    }
}

static void tell_squares(const struct vb_k_joint *j, const struct vb_k_norm *norm, size_t part,
                         size_t end, const float *sum)
{
    size_t first = vb_update_part_begin(norm, part), begin, stop;
    double squares;
    int r;

    for (; part < end; part++) {
        begin = vb_update_part_begin(norm, part);
        stop = vb_update_part_begin(norm, part + 1);
        squares = vb_update_squares(sum + (begin - first), stop - begin);
        for (r = 0; r < j->n_ranks; r++)
            j->squares[r][part] = squares;
    }
}

#if defined(__x86_64__)
#define PAST_CACHES 1
#else
#define PAST_CACHES 0 /* cores do not read a line from memory if the whole line is written */
#endif

/* Copies n floats, on x86 with non-temporal stores if `to` is aligned to 16 bytes. */
static void copy_past_caches(float *to, const float *from, size_t n)
{
    size_t i = 0;

#if PAST_CACHES
    for (; i + 4 <= n && (uintptr_t)to % 16 == 0; i += 4)
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
    memcpy(to + i, from + i, (n - i) * sizeof(*to));
}

/* Returns the arguments of the update of a chunk, to this rank's copy or to the buffer. */
static struct vb_k_update make_update(const struct vb_k_joint *j, size_t first, size_t n,
                                      struct chunk *c)
{
    struct vb_k_update u = {
        .n = n,
        .params = j->params + first,
        .grads = c->sum,
        .scale = j->scale,
        .rate = j->rate,
        .params_out = PAST_CACHES ? c->params : j->params_out[j->rank] + first,
    };

    if (j->state != NULL) {
        u.state = j->state + first;
        u.state_out = PAST_CACHES ? c->state : j->state_out[j->rank] + first;
    }
    return u;
}

static void hand_out(const struct vb_k_joint *j, const struct vb_k_update *u, size_t first)
{
    int r;

    for (r = 0; r < j->n_ranks; r++) {
        if (!PAST_CACHES && r == j->rank)
            continue;
        copy_past_caches(j->params_out[r] + first, u->params_out, u->n);
        if (j->state != NULL)
            copy_past_caches(j->state_out[r] + first, u->state_out, u->n);
    }
#if PAST_CACHES
    _mm_sfence(); /* the stores must be complete before another rank is told so */
#endif
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Processes a chunk, parts from part to end - 1. Returns the time on memory that ranks share. */
static uint64_t joint_chunk(const struct vb_k_rule *rule, const struct vb_k_joint *j,
                            const struct vb_k_norm *norm, size_t part, size_t end)
{
    size_t first = vb_update_part_begin(norm, part), n = vb_update_part_begin(norm, end) - first;
    uint64_t from = vb_clock_ns(), took;
    struct chunk *c = &j->room->chunks[omp_get_thread_num()];
    struct vb_k_update u;

    add_up(j, first, n, c->sum);
    took = vb_clock_ns() - from;
    if (j->squares != NULL)
        tell_squares(j, norm, part, end, c->sum);
    if (j->norm_only)
        return took;
    u = make_update(j, first, n, c);
    vb_update_chunk(rule, &u, 0, n);
    from = vb_clock_ns();
    hand_out(j, &u, first);
    return took + (vb_clock_ns() - from);
}

struct vb_k_joint_room *vb_k_joint_room_create(void)
{
    int slots = omp_get_max_threads();
    struct vb_k_joint_room *room =
        vb_alloc_aligned(sizeof(*room) + (size_t)slots * sizeof(room->chunks[0]));

    if (room != NULL)
        room->slots = slots;
    return room;
}

void vb_k_joint_update(const struct vb_k_rule *rule, struct vb_k_joint *j,
                       const struct vb_k_norm *norm, size_t first_part, size_t end_part)
{
    size_t step = UPDATE_CHUNK / norm->len, part; /* step: number of parts in a chunk */
    size_t chunks = end_part > first_part ? (end_part - first_part + step - 1) / step : 0;
    int threads = (int)least((size_t)omp_get_max_threads(), (size_t)j->room->slots);
    uint64_t shared_ns = 0; /* time of the first thread; the other threads take about as long */

    VB_ASSERT(vb_k_rule_states(rule->kind) <= 1);
    if (chunks * UPDATE_CHUNK < UPDATE_PARALLEL) {
        for (part = first_part; part < end_part; part += step)
            j->shared_ns += joint_chunk(rule, j, norm, part, least(part + step, end_part));
        return;
    }
#pragma omp parallel for schedule(static) reduction(+ : shared_ns) num_threads(threads)
    for (part = first_part; part < end_part; part += step) {
        uint64_t took = joint_chunk(rule, j, norm, part, least(part + step, end_part));

        shared_ns += omp_get_thread_num() == 0 ? took : 0;
    }
    j->shared_ns += shared_ns;
}
