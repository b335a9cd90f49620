/* SPDX-License-Identifier: MIT
 *
 * The collectives on a window, the plain way: each is done when it is started, by sending all to
 * all in pieces.
 */
#include "net/group_priv.h"

#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)64 * 1024)
#define FIRST_CHANNEL 128

struct vb_coll {
    struct vb_group *group;
    struct vb_window *win;
    struct vb_coll_opts opts;
    size_t len;   /* of the data */
    size_t slots; /* offset: two sets of a slot a rank */
    int channel;
    uint32_t seq;
    uint32_t round;
    uint32_t *came;
    struct vb_op *ops;
    uint64_t wire;
};

static const char *const algo_names[VB_ALGOS] = {"auto",  "mapped", "gather",  "exchange",
                                                 "chain", "ring",   "halving", "two-level"};

const char *vb_algo_str(enum vb_algo algo)
{
    return algo_names[algo];
}

bool vb_algo_parse(const char *text, enum vb_algo *algo_p)
{
    int i;

    for (i = 0; i < VB_ALGOS; i++)
        if (strcmp(text, algo_names[i]) == 0) {
            *algo_p = (enum vb_algo)i;
            return true;
        }
    return false;
}

void vb_coll_share(size_t n_elems, int world, int rank, size_t *first_p, size_t *n_p)
{
    size_t line = VB_CACHE_LINE / sizeof(float), n = (size_t)world, r = (size_t)rank;
    size_t each = (n_elems + n * line - 1) / (n * line) * line; /* whole cache lines */
    size_t first = r * each < n_elems ? r * each : n_elems;

    *first_p = first;
    *n_p = n_elems - first < each ? n_elems - first : each;
}

static void note_came(void *arg, int rank, uint32_t value)
{
    struct vb_coll *coll = arg;

    (void)value;
    coll->came[rank]++;
}

vb_status vb_coll_open(struct vb_group *g, size_t len_bytes, const struct vb_coll_opts *opts,
                       struct vb_coll **coll_p)
{
    struct vb_coll *coll = calloc(1, sizeof(*coll));
    size_t world = (size_t)g->world;
    vb_status st = VB_OK;

    if (coll == NULL)
        return vb_err_sys("calloc");
    coll->group = g;
    if (opts != NULL)
        coll->opts = *opts;
    coll->len = len_bytes;
    coll->slots = (len_bytes + 4095) / 4096 * 4096;
    coll->came = calloc(world, sizeof(*coll->came));
    coll->ops = calloc(world, sizeof(*coll->ops));
    if (coll->came == NULL || coll->ops == NULL)
        st = vb_err_sys("calloc");
    for (coll->channel = FIRST_CHANNEL; g->channels[coll->channel].fn != NULL; coll->channel++)
        ;
    if (st == VB_OK)
        st = vb_channel_open(g, coll->channel, note_came, coll);
    if (st == VB_OK)
        st = vb_window_create(g, coll->slots + 2 * world * PIECE, &coll->win);
    if (st != VB_OK) {
        vb_coll_close(coll);
        return st;
    }
    *coll_p = coll;
    return VB_OK;
}

void vb_coll_close(struct vb_coll *coll)
{
    if (coll == NULL)
        return;
    vb_window_destroy(coll->win);
    vb_channel_close(coll->group, coll->channel);
    free(coll->came);
    free(coll->ops);
    free(coll);
}

void *vb_coll_data(struct vb_coll *coll)
{
    return vb_window_ptr(coll->win);
}

struct want {
    struct vb_coll *coll;
    int rank;
};

static bool has_come(void *arg)
{
    struct want *want = arg;

    return (int32_t)(want->coll->came[want->rank] - want->coll->round) >= 0;
}

static size_t slot_at(struct vb_coll *coll, int rank)
{
    return coll->slots + ((coll->round % 2) * (size_t)coll->group->world + (size_t)rank) * PIECE;
}

/* Everybody's piece lies in everybody's slots after this. */
static vb_status meet(struct vb_coll *coll, size_t offset, size_t len, const char *what)
{
    struct vb_group *g = coll->group;
    vb_status st = VB_OK;
    int i;

    coll->round++;
    for (i = 0; i < g->world && st == VB_OK; i++) {
        if (i == g->rank)
            continue;
        do {
            st = vb_put(coll->win, i, offset, slot_at(coll, g->rank), len,
                        VB_NOTE(coll->channel, coll->round), &coll->ops[i]);
        } while (st == VB_AGAIN && (st = vb_progress(g)) == VB_OK);
        coll->wire += len;
    }
    for (i = 0; i < g->world && st == VB_OK; i++) {
        struct want want = {coll, i};

        if (i == g->rank)
            continue;
        st = vb_group_wait(g, has_come, &want, what, i);
        if (st == VB_OK)
            st = vb_op_wait(g, &coll->ops[i], what, i);
    }
    return st;
}

static void sum_piece(struct vb_coll *coll, float *mine, size_t n, enum vb_reduce how)
{
    struct vb_group *g = coll->group;
    const float *from[VB_WORLD_MAX];
    float sum;
    size_t k;
    int i;

    for (i = 0; i < g->world; i++)
        from[i] =
            i == g->rank
                ? mine
                : (const float *)(void *)((char *)vb_window_ptr(coll->win) + slot_at(coll, i));
    for (k = 0; k < n; k++) {
        sum = from[0][k];
        for (i = 1; i < g->world; i++)
            sum += from[i][k];
        mine[k] = how == VB_REDUCE_MEAN ? sum / (float)g->world : sum;
    }
}

static vb_status begin(struct vb_coll *coll, size_t offset, size_t len, struct vb_req *req)
{
    if (offset > coll->len || len > coll->len - offset || offset % 4 != 0)
        return vb_err(VB_ERR_USAGE, "%zu bytes from offset %zu of %zu", len, offset, coll->len);
    *req = (struct vb_req){.seq = ++coll->seq, .done = true, .coll = coll};
    return VB_OK;
}

vb_status vb_allreduce_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                             enum vb_reduce how, struct vb_req *req)
{
    size_t left = n_elems * sizeof(float), at = offset_bytes, len;
    char *data = vb_window_ptr(coll->win);
    vb_status st = begin(coll, offset_bytes, left, req);

    for (; st == VB_OK && left > 0; left -= len, at += len) {
        len = left < PIECE ? left : PIECE;
        st = meet(coll, at, len, "allreduce");
        if (st == VB_OK)
            sum_piece(coll, (float *)(void *)(data + at), len / sizeof(float), how);
    }
    return st;
}

vb_status vb_reduce_scatter_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                                  enum vb_reduce how, struct vb_req *req)
{
    return vb_allreduce_start(coll, offset_bytes, n_elems, how, req);
}

static vb_status spread(struct vb_coll *coll, int from, size_t at, size_t left)
{
    char *data = vb_window_ptr(coll->win);
    vb_status st = VB_OK;
    size_t len;

    for (; st == VB_OK && left > 0; left -= len, at += len) {
        len = left < PIECE ? left : PIECE;
        st = meet(coll, at, from == coll->group->rank ? len : 0, "broadcast");
        if (st == VB_OK && from != coll->group->rank)
            memcpy(data + at, data + slot_at(coll, from), len);
    }
    return st;
}

vb_status vb_allgather_start(struct vb_coll *coll, const size_t *offsets_bytes,
                             const size_t *lens_bytes, struct vb_req *req)
{
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < coll->group->world && st == VB_OK; i++) {
        st = begin(coll, offsets_bytes[i], lens_bytes[i], req);
        if (st == VB_OK)
            st = spread(coll, i, offsets_bytes[i], lens_bytes[i]);
    }
    return st;
}

vb_status vb_broadcast_start(struct vb_coll *coll, int root, size_t offset_bytes, size_t len_bytes,
                             struct vb_req *req)
{
    vb_status st = begin(coll, offset_bytes, len_bytes, req);

    return st == VB_OK ? spread(coll, root, offset_bytes, len_bytes) : st;
}

vb_status vb_barrier_start(struct vb_coll *coll, struct vb_req *req)
{
    vb_status st = begin(coll, 0, 0, req);

    return st == VB_OK ? meet(coll, 0, 0, "barrier") : st;
}

vb_status vb_wait(struct vb_coll *coll, struct vb_req *req)
{
    (void)coll;
    return req->done ? VB_OK : VB_ERR_USAGE;
}

vb_status vb_test(struct vb_coll *coll, struct vb_req *req, bool *done_p)
{
    *done_p = req->done;
    return vb_progress(coll->group);
}

enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes)
{
    (void)coll;
    (void)bytes;
    return VB_ALGO_GATHER;
}

bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo)
{
    (void)coll;
    return algo == VB_ALGO_AUTO || algo == VB_ALGO_GATHER;
}

double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    (void)algo;
    return (double)bytes * coll->group->world * 1e-3;
}

uint64_t vb_coll_wire_bytes(const struct vb_coll *coll)
{
    return coll->wire;
}
