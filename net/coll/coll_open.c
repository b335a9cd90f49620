/* SPDX-License-Identifier: MIT
 *
 * Opens the collectives. The window has these parts, in this order: the data; flags and heads,
 * which mapped peers read; this rank's own slots, which mapped peers read and which are put to the
 * other peers; slots for the messages of each peer; rings for segments; with bfloat16 also stages,
 * in which segments are rounded before they are sent.
 */
#include "net/coll/coll_priv.h"

#include <stdlib.h>

#define REQUESTS_DEFAULT 32
#define REQUESTS_MAX 4096
#define PAGE 4096u
/* A little less than 128 KiB. Over loopback a packet holds 65,483 bytes. So two packets hold a
 * segment with its header, and a head or a note about freed slots before it. */
#define SEG_MAX ((size_t)128 * 1024 - 256)
#define SEG_MIN ((size_t)4 * 1024)
#define EAGER_MAX ((size_t)512)
/* longer, because a flag needs a process switch if ranks share cores */
#define EAGER_MAX_CROWDED ((size_t)2048)
#define SLOT_MAX ((size_t)128 * 1024)
#define SLOT_MIN ((size_t)4 * 1024)
/* bytes for all slots in a rank's window, unless SLOT_MIN needs more */
#define SLOTS_TOTAL ((size_t)16 << 20)
#define RINGS_TOTAL ((size_t)64 << 20)

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static size_t clamp(size_t n, size_t min, size_t max)
{
    return n < min ? min : n > max ? max : n;
}

/* Chooses lengths of slots and segments that are not longer than the data can use. */
static void choose_sizes(struct vb_coll *coll)
{
    struct coll_layout *lay = &coll->lay;
    size_t world = (size_t)coll->world, data = round_up(lay->len_bytes, VB_CACHE_LINE);
    size_t slots = (world + 1) * coll->reqs.n_areas, segs = RINGS * world * RING_SLOTS;
    bool crowded = coll->group != NULL && vb_group_options(coll->group)->crowded;

    lay->slot_bytes = round_up(clamp(SLOTS_TOTAL / slots, SLOT_MIN, SLOT_MAX), VB_CACHE_LINE);
    lay->slot_bytes = clamp(lay->slot_bytes, 0, data) + VB_CACHE_LINE;
    lay->seg_bytes = clamp(RINGS_TOTAL / segs, SEG_MIN, SEG_MAX) / VB_CACHE_LINE * VB_CACHE_LINE;
    lay->seg_bytes = clamp(round_up(data / world, SEG_MIN), SEG_MIN, lay->seg_bytes);
    lay->rest_bytes = round_up(lay->seg_bytes / 8, VB_CACHE_LINE);
    lay->eager_bytes = clamp(lay->slot_bytes - sizeof(struct slot_head), 0,
                             crowded ? EAGER_MAX_CROWDED : EAGER_MAX);
}

/* Computes the offsets of all parts of the window. Returns the length of the window. */
static size_t lay_out(struct vb_coll *coll)
{
    size_t world = (size_t)coll->world, areas = coll->reqs.n_areas;
    size_t rings, n_rings = is_narrow(coll) ? RINGS : 1;
    struct coll_layout *lay = &coll->lay;

    choose_sizes(coll);
    rings = n_rings * world * RING_SLOTS * ring_slot_bytes(coll);
    lay->own_at = round_up(lay->len_bytes, PAGE);
    lay->heads_at = lay->own_at + sizeof(struct own_state);
    lay->own_slots_at = round_up(lay->heads_at + areas * sizeof(struct slot_head), VB_CACHE_LINE);
    lay->slots_at = lay->own_slots_at + areas * lay->slot_bytes;
    lay->rings_at = round_up(lay->slots_at + areas * world * lay->slot_bytes, PAGE);
    lay->stages_at = lay->rings_at + rings;
    return lay->stages_at + (is_narrow(coll) ? rings / 2 : 0);
}

/* Returns the number of requests that may be under way, a power of two. */
static uint32_t requests_of(const struct vb_coll_opts *opts)
{
    return 1u << vb_bits_below(opts->in_flight > 0 ? (uint32_t)opts->in_flight : REQUESTS_DEFAULT);
}

size_t vb_coll_need(int world, size_t len_bytes, const struct vb_coll_opts *opts)
{
    struct vb_coll coll = {.opts = *opts, .world = world};

    coll.lay.len_bytes = len_bytes;
    coll.reqs.n_areas = 2 * requests_of(opts);
    return lay_out(&coll);
}

static void find_ways(struct vb_coll *coll, int ranks_per_host)
{
    bool far;
    int r;

    coll->base = vb_window_ptr(coll->win);
    for (r = 0; r < coll->world; r++) {
        far = ranks_per_host > 0 && r / ranks_per_host != coll->rank / ranks_per_host;
        coll->ways[r].base = far ? NULL : vb_window_peer(coll->win, r);
    }
}

static struct neighbours find_neighbours(const struct vb_coll *coll)
{
    struct neighbours s = {.lo = coll->rank, .hi = coll->rank + 1};
    int r;

    while (s.lo > 0 && coll->ways[s.lo - 1].base != NULL)
        s.lo--;
    while (s.hi < coll->world && coll->ways[s.hi].base != NULL)
        s.hi++;
    for (r = 0; r < coll->world; r++)
        if ((r < s.lo || r >= s.hi) && coll->ways[r].base != NULL)
            s.scattered = 1;
    return s;
}

/* The leader of a rank is used as an index, so what the rank says about itself is checked. */
static vb_status check_neighbours(const struct vb_coll *coll, int rank, const struct neighbours *s)
{
    char why[192];

    if (s->lo >= 0 && s->lo <= rank && s->hi > rank && s->hi <= coll->world)
        return VB_OK;
    snprintf(why, sizeof(why),
             "rank %d (%.60s) says that it shares memory with the ranks from %d up to but not %d, "
             "which is impossible",
             rank, vb_group_host(coll->group, rank), s->lo, s->hi);
    vb_group_abort(coll->group, why); /* or else closing would wait for that rank */
    return vb_err(VB_ERR_INPUT, "%s", why);
}

void vb_coll_find_hosts(struct vb_coll *coll)
{
    struct coll_hosts *hosts = &coll->hosts;
    int r, host, last = NO_RANK;

    hosts->all_mapped = true;
    hosts->n = 0;
    for (r = 0; r < coll->world; r++) {
        host = coll->neighbours[group_rank(coll, r)].lo;
        if (host != last)
            hosts->leaders[hosts->n++] = r;
        if (r == coll->rank)
            hosts->mine = hosts->n - 1;
        if (coll->ways[r].base == NULL)
            hosts->all_mapped = false;
        last = host;
    }
    hosts->lo = hosts->leaders[hosts->mine];
    hosts->hi = hosts->mine + 1 < hosts->n ? hosts->leaders[hosts->mine + 1] : coll->world;
}

/* Finds which ranks share memory, and whether the ranks of every host have consecutive numbers. All
 * ranks get the same result. */
static vb_status meet_neighbours(struct vb_coll *coll)
{
    struct neighbours mine = find_neighbours(coll), *all = coll->neighbours;
    vb_status st = vb_group_gather(coll->group, &mine, sizeof(mine), all);
    int r;

    coll->hosts.contiguous = true;
    for (r = 0; r < coll->world && st == VB_OK; r++)
        st = check_neighbours(coll, r, &all[r]);
    for (r = 0; r < coll->world && st == VB_OK; r++)
        if (all[r].scattered || all[r].lo != all[all[r].lo].lo || all[r].hi != all[all[r].lo].hi)
            coll->hosts.contiguous = false;
    if (st == VB_OK)
        vb_coll_find_hosts(coll);
    return st;
}

static vb_status allocate(struct vb_coll *coll)
{
    size_t world = (size_t)coll->world, lanes = 2 * world + 2;
    struct coll_requests *reqs = &coll->reqs;
    struct request *rq;
    uint32_t i;

    reqs->n_areas = 2 * reqs->n;
    coll->n_puts = 1u << vb_bits_below(4 * reqs->n + 64);
    reqs->table = calloc(reqs->n, sizeof(*reqs->table));
    reqs->arrivals = calloc(reqs->n_areas * world, sizeof(*reqs->arrivals));
    reqs->area_seq = calloc(reqs->n_areas, sizeof(*reqs->area_seq));
    coll->ways = calloc(world, sizeof(*coll->ways));
    coll->sources = calloc(world + 1, sizeof(*coll->sources));
    coll->also = calloc(world, sizeof(*coll->also));
    coll->hosts.leaders = calloc(world, sizeof(*coll->hosts.leaders));
    coll->everyone = calloc(world, sizeof(*coll->everyone));
    coll->neighbours = calloc(world, sizeof(*coll->neighbours));
    if (reqs->table == NULL || reqs->arrivals == NULL || reqs->area_seq == NULL ||
        coll->ways == NULL || coll->sources == NULL || coll->also == NULL ||
        coll->hosts.leaders == NULL || coll->everyone == NULL || coll->neighbours == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < reqs->n; i++) {
        rq = &reqs->table[i];
        rq->peers = calloc(world, sizeof(*rq->peers));
        rq->lanes = calloc(lanes, sizeof(*rq->lanes));
        rq->offsets = calloc(2 * world, sizeof(*rq->offsets));
        if (rq->peers == NULL || rq->lanes == NULL || rq->offsets == NULL)
            return vb_err_sys("calloc");
        rq->lens = rq->offsets + world;
    }
    for (i = 0; i < (uint32_t)coll->world; i++) {
        coll->ways[i].puts = calloc(coll->n_puts, sizeof(struct vb_op));
        if (coll->ways[i].puts == NULL)
            return vb_err_sys("calloc");
        coll->ways[i].rank = coll->everyone[i] = (int)i;
    }
    vb_coll_begin(coll, 0);
    return VB_OK;
}

static vb_status check_opts(const struct vb_coll_opts *o, size_t len_bytes)
{
    if (len_bytes > SIZE_MAX / 8)
        return vb_err(VB_ERR_USAGE,
                      "collectives on %zu bytes are not possible: the data is too long", len_bytes);
    if (o->in_flight < 0 || o->in_flight > REQUESTS_MAX)
        return vb_err(VB_ERR_USAGE,
                      "%d requests in flight are not possible: the number must be from 0 to %d",
                      o->in_flight, REQUESTS_MAX);
    if ((int)o->algo < 0 || o->algo >= VB_ALGOS)
        return vb_err(VB_ERR_USAGE, "algorithm %d does not exist", (int)o->algo);
    return VB_OK;
}

static vb_status open_all(struct vb_coll *coll, int ranks_per_host)
{
    vb_status st = allocate(coll);

    if (st == VB_OK)
        st = vb_channel_alloc(coll->group, vb_coll_note, coll, &coll->channel);
    if (st == VB_OK) /* after the channel, because a peer that has the window may send notes */
        st = vb_window_create(coll->group, lay_out(coll), &coll->win);
    if (st != VB_OK)
        return st;
    find_ways(coll, ranks_per_host);
    st = meet_neighbours(coll);
    if (st == VB_OK)
        st = vb_cost_open(coll);
    if (st == VB_OK && !vb_coll_can(coll, coll->opts.algo))
        st = vb_err(VB_ERR_USAGE, "algorithm %s is not possible: %s", vb_algo_str(coll->opts.algo),
                    vb_coll_cannot(coll, coll->opts.algo));
    if (st == VB_OK)
        vb_coll_follow(coll);
    return st;
}

vb_status vb_coll_open_split(struct vb_group *g, size_t len_bytes, const struct vb_coll_opts *opts,
                             int ranks_per_host, struct vb_coll **coll_p)
{
    static const struct vb_coll_opts plain;
    struct vb_coll *coll;
    vb_status st;

    opts = opts != NULL ? opts : &plain;
    st = check_opts(opts, len_bytes);
    if (st != VB_OK)
        return st;
    coll = calloc(1, sizeof(*coll));
    if (coll == NULL)
        return vb_err_sys("calloc");
    coll->group = g;
    coll->opts = *opts;
    coll->is_elastic = vb_group_options(g)->elastic;
    coll->rank = vb_group_rank(g);
    coll->world = coll->n_ways = vb_group_world(g);
    coll->lay.len_bytes = len_bytes;
    coll->reqs.n = requests_of(opts);
    st = open_all(coll, ranks_per_host);
    if (st != VB_OK) {
        vb_coll_close(coll);
        return st;
    }
    *coll_p = coll;
    return VB_OK;
}

vb_status vb_coll_open(struct vb_group *g, size_t len_bytes, const struct vb_coll_opts *opts,
                       struct vb_coll **coll_p)
{
    vb_status st = vb_group_check_fixed(g, "a collective");

    return st == VB_OK ? vb_coll_open_split(g, len_bytes, opts, 0, coll_p) : st;
}

void vb_coll_close(struct vb_coll *coll)
{
    struct way *way;
    uint32_t i;

    if (coll == NULL)
        return;
    if (coll->ways != NULL)
        vb_coll_tell_touched(coll);
    vb_coll_unfollow(coll);
    vb_window_destroy(coll->win); /* before vb_channel_close(), because notes may come until then */
    if (coll->channel != 0)
        vb_channel_close(coll->group, coll->channel);
    for (i = 0; coll->reqs.table != NULL && i < coll->reqs.n; i++) {
        free(coll->reqs.table[i].peers);
        free(coll->reqs.table[i].lanes);
        free(coll->reqs.table[i].offsets);
    }
    group_lock(coll->group); /* the progress thread may be ending puts */
    for (i = 0; coll->ways != NULL && i < (uint32_t)coll->n_ways; i++) {
        way = &coll->ways[i];
        vb_coll_reap(coll, way);
        if (way->left < way->posted) /* after a failure: kept until the group is closed */
            vb_group_keep(coll->group, way->puts);
        else
            free(way->puts);
    }
    group_unlock(coll->group);
    free(coll->cost);
    free(coll->reqs.table);
    free(coll->reqs.arrivals);
    free(coll->reqs.area_seq);
    free(coll->ways);
    free(coll->sources);
    free(coll->also);
    free(coll->hosts.leaders);
    free(coll->everyone);
    free(coll->neighbours);
    free(coll);
}

void *vb_coll_data(struct vb_coll *coll)
{
    return coll->base;
}

void *vb_coll_data_of(const struct vb_coll *coll, int rank)
{
    return coll->ways[rank].base;
}

uint64_t vb_coll_wire_bytes(const struct vb_coll *coll)
{
    return coll->stats.wire_bytes;
}
