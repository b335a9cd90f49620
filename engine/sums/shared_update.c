/* SPDX-License-Identifier: MIT
 *
 * Updates of a dense model that the ranks of one host share. Parameters, state and gradients of
 * each rank are in windows that all ranks have mapped. Each rank takes a *share* of each bucket: it
 * sums the gradients of all ranks, updates the parameters, and writes them to the copies of all
 * ranks. So each parameter is updated once, and not once per rank.
 *
 * The other ranks never write to the copy that holds the last complete step: each rank says which
 * of its copies the step may write. These differ if a rank saves one of its copies.
 *
 * The norm of the gradient is computed in parts, each by one rank, so a share consists of whole
 * parts. A part belongs to the bucket in which it begins. If the part ends in the next higher
 * bucket, that bucket was filled before.
 */
#include "engine/train/trainer.h"

#include <stdatomic.h>
#include <stdlib.h>

#define LINE_BYTES 64

/* What each window begins with. */
struct shared_head {
    double squares[VB_K_NORM_PARTS]; /* partial sums of the norm */
    /* The copy in this window that the step writes. Set before the rank fills its first bucket,
     * and read after the barrier of that bucket. */
    _Alignas(LINE_BYTES) _Atomic uint32_t aim;
};

struct vb_shared_update {
    struct vb_trainer *trainer;
    struct vb_window *win;
    size_t copy_bytes;
    struct vb_k_norm norm;
    /* Of all ranks; the first t->world elements are in use, in the order of places. */
    int *ranks;          /* (world) their ranks in the group */
    char **bases;        /* (world) the ranks' windows: a head, then the copies */
    const float **grads; /* (world) the ranks' gradients */
    double **squares;    /* (world) the ranks' partial sums of the norm */
    float **params_out;  /* (world) addresses that new parameters are written to */
    float **state_out;   /* (world) addresses that new state is written to */
    struct vb_k_joint_room *room;
};

/* Fills in what is in the windows of the members, in the order of their places. Returns the place
 * of a member whose memory is not mapped; -1: there is none. */
static int find_windows(struct vb_shared_update *h, const struct vb_buckets *buckets)
{
    const struct vb_trainer *t = h->trainer;
    int i;

    for (i = 0; i < t->world; i++) {
        h->ranks[i] = vb_group_view_member(t->place.group, i);
        h->bases[i] = vb_window_peer(h->win, h->ranks[i]);
        h->grads[i] = vb_buckets_grads_of(buckets, i);
        h->squares[i] = (double *)(void *)h->bases[i];
        if (h->bases[i] == NULL || h->grads[i] == NULL ||
            vb_window_len(h->win, h->ranks[i]) < sizeof(struct shared_head) + h->copy_bytes)
            return i;
    }
    return -1;
}

vb_status vb_shared_update_create(struct vb_trainer *t, struct vb_buckets *buckets, size_t n_params,
                                  size_t copy_bytes, int copies, struct vb_shared_update **shared_p)
{
    struct vb_shared_update *h = calloc(1, sizeof(*h));
    size_t world = (size_t)t->world;
    vb_status st;
    int r;

    if (h == NULL)
        return vb_err_sys("calloc");
    *shared_p = h; /* the caller destroys h even if this function fails */
    h->trainer = t;
    h->copy_bytes = copy_bytes;
    vb_k_norm_begin(&h->norm, n_params);
    h->ranks = calloc(world, sizeof(*h->ranks));
    h->bases = calloc(world, sizeof(*h->bases));
    h->grads = calloc(world, sizeof(*h->grads));
    h->squares = calloc(world, sizeof(*h->squares));
    h->params_out = calloc(world, sizeof(*h->params_out));
    h->state_out = calloc(world, sizeof(*h->state_out));
    h->room = vb_k_joint_room_create();
    if (h->ranks == NULL || h->bases == NULL || h->grads == NULL || h->squares == NULL ||
        h->params_out == NULL || h->state_out == NULL || h->room == NULL)
        return vb_err_sys("calloc");
    st = vb_window_create(t->place.group, vb_shared_update_need(copy_bytes, copies), &h->win);
    if (st != VB_OK)
        return st;
    r = find_windows(h, buckets);
    if (r >= 0)
        return vb_err(
            VB_ERR_UNSUPPORTED,
            "cannot update the parameters of rank %d: its memory is not mapped on this rank",
            h->ranks[r]);
    vb_buckets_barriers_only(buckets);
    return VB_OK;
}

void vb_shared_update_close(struct vb_shared_update *h)
{
    if (h == NULL || h->win == NULL)
        return;
    vb_window_destroy(h->win);
    h->win = NULL;
}

void vb_shared_update_destroy(struct vb_shared_update *h)
{
    if (h == NULL)
        return;
    free(h->ranks);
    free(h->bases);
    free(h->grads);
    free(h->squares);
    free(h->params_out);
    free(h->state_out);
    free(h->room);
    free(h);
}

size_t vb_shared_update_need(size_t copy_bytes, int copies)
{
    return sizeof(struct shared_head) + copy_bytes * (size_t)copies;
}

void *vb_shared_update_memory(const struct vb_shared_update *h)
{
    return h->bases[h->trainer->rank] + sizeof(struct shared_head);
}

void vb_shared_update_regrouped(struct vb_shared_update *h, const struct vb_buckets *buckets)
{
    (void)find_windows(h, buckets); /* what was mapped once stays mapped */
}

static struct shared_head *head_of(const struct vb_shared_update *h, int rank)
{
    return (struct shared_head *)(void *)h->bases[rank];
}

void vb_shared_update_aim(struct vb_shared_update *h, int copy)
{
    atomic_store_explicit(&head_of(h, h->trainer->rank)->aim, (uint32_t)copy, memory_order_relaxed);
}

/* Returns the copy that a rank wants to have written. The number is checked, because another
 * process has set it. */
static float *aim_of(const struct vb_shared_update *h, int rank)
{
    size_t room = vb_window_len(h->win, h->ranks[rank]) - sizeof(struct shared_head);
    size_t copy = atomic_load_explicit(&head_of(h, rank)->aim, memory_order_relaxed);

    if (copy >= room / h->copy_bytes)
        copy = 0;
    return (float *)(void *)(h->bases[rank] + sizeof(struct shared_head) + copy * h->copy_bytes);
}

/* Returns the number of the first part of the norm that begins at this parameter or after it. */
static size_t part_at(const struct vb_shared_update *h, size_t param)
{
    return (param + h->norm.len - 1) / h->norm.len;
}

/* Counts the gradients that this rank has read from its peers for the parts [begin, end) of the
 * norm, and the parameters and the state that it has written to them. */
static void count_bytes(const struct vb_shared_update *h, const struct vb_shared_args *u,
                        size_t begin, size_t end)
{
    const struct vb_trainer *t = h->trainer;
    size_t from = begin * h->norm.len,
           to = end * h->norm.len < h->norm.n ? end * h->norm.len : h->norm.n;
    uint64_t bytes = to > from ? (to - from) * sizeof(float) : 0;
    uint64_t out = u->norm_only ? 0 : bytes * (1 + (uint64_t)vb_k_rule_states(t->recipe.rule.kind));
    int r;

    for (r = 0; r < t->world; r++)
        vb_group_touched(t->place.group, h->ranks[r], bytes, out);
}

void vb_shared_update_run(struct vb_shared_update *h, const struct vb_shared_args *u, size_t first,
                          size_t n)
{
    struct vb_trainer *t = h->trainer;
    struct vb_k_joint joint = {.rank = t->rank,
                               .n_ranks = t->world,
                               .grads = h->grads,
                               .params = u->params,
                               .state = u->state,
                               .scale = u->scale,
                               .rate = u->rate,
                               .params_out = h->params_out,
                               .state_out = h->state_out,
                               .squares = u->norm ? h->squares : NULL,
                               .norm_only = u->norm_only,
                               .room = h->room};
    size_t begin = part_at(h, first), parts = part_at(h, first + n) - begin;
    size_t own = begin + parts * (size_t)t->rank / (size_t)t->world;
    size_t end = begin + parts * (size_t)(t->rank + 1) / (size_t)t->world;
    int r;

    for (r = 0; r < t->world; r++) {
        h->params_out[r] = aim_of(h, r);
        h->state_out[r] = u->state_ahead > 0 ? h->params_out[r] + u->state_ahead : NULL;
    }
    vb_k_joint_update(&t->recipe.rule, &joint, &h->norm, own, end);
    count_bytes(h, u, own, end);
    vb_lap(&t->laps, VB_PHASE_UPDATE);
    vb_lap_move(&t->laps, VB_PHASE_UPDATE, VB_PHASE_COMM, joint.shared_ns);
}

double vb_shared_update_norm(struct vb_shared_update *h)
{
    size_t i;

    for (i = 0; i < h->norm.parts; i++)
        h->norm.squares[i] = h->squares[h->trainer->rank][i];
    return vb_k_norm_end(&h->norm);
}
