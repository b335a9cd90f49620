/* SPDX-License-Identifier: MIT
 *
 * Writes the tracks of a rank: one for each thread, whose calls nest, and as many lanes as are
 * needed for what runs beside the threads and may overlap.
 */
#include "record/trace/trace_merge_priv.h"

#include <stdlib.h>

#define LANES (MERGE_TRACKS - VB_TRACE_THREADS - 8) /* recoveries have some more */
#define DEPTH 64
#define LABEL_SLOTS (2 * VB_TRACE_LABELS) /* of the hash table */

/* An event that is to be written, and when it ends. */
struct piece {
    const struct vb_trace_event *event;
    const struct arrows *arrows;
    uint64_t end_ns;
};

/* The names of a track: an operation, and the peer if the name tells it. */
struct labels {
    struct {
        uint32_t op, label; /* label 0: the slot is free; else the label plus 1 */
        int32_t peer;
    } slots[LABEL_SLOTS];
    uint32_t n;
};

struct writer {
    struct merge *m;
    const struct merge_rank *r;
    int rank;
    uint64_t open[DEPTH]; /* the ends of the slices that are open */
    int depth;
    struct labels labels;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Returns the label of a name in the track, the last one if there are too many. */
static uint32_t label_of(struct labels *l, uint32_t op, int32_t peer)
{
    uint32_t i = (uint32_t)(vb_mix((uint64_t)op << 32 | (uint32_t)peer) % LABEL_SLOTS);

    while (l->slots[i].label != 0 && (l->slots[i].op != op || l->slots[i].peer != peer))
        i = (i + 1) % LABEL_SLOTS;
    if (l->slots[i].label == 0) {
        if (l->n == VB_TRACE_LABELS - 1)
            return l->n;
        l->slots[i].op = op;
        l->slots[i].peer = peer;
        l->slots[i].label = ++l->n;
    }
    return l->slots[i].label - 1;
}

static bool names_peer(const struct vb_trace_op *op)
{
    size_t len = strlen(op->op);

    return len >= 4 && strcmp(op->op + len - 4, "rank") == 0;
}

static void name_of(const struct vb_trace_op *op, int peer, char *name, size_t size)
{
    if (names_peer(op) && peer >= 0)
        snprintf(name, size, "%s %d", op->op, peer);
    else if (op->layer[0] != '\0')
        snprintf(name, size, "%s %s: %s", op->layer, op->pass, op->op);
    else
        snprintf(name, size, "%s", op->op);
}

/* ---- items ----------------------------------------------------------------------------------- */

static void put_item(struct writer *w, const struct vb_trace_item *item)
{
    vb_trace_out_item(w->m->out, item);
    w->m->merged->events++;
}

static void close_until(struct writer *w, uint64_t ns)
{
    struct vb_trace_item item = {.type = VB_ITEM_END};

    while (w->depth > 0 && w->open[w->depth - 1] <= ns) {
        item.ns = w->open[--w->depth];
        put_item(w, &item);
    }
}

static void put_piece(struct writer *w, const struct piece *p)
{
    const struct vb_trace_event *e = p->event;
    const struct vb_trace_op *op = &w->r->names.ops[e->op];
    bool instant = (e->kind & 15) == VB_TRACE_INSTANT;
    uint64_t end_ns = p->end_ns;
    char name[128];
    struct vb_trace_item item = {.type = instant ? VB_ITEM_INSTANT : VB_ITEM_BEGIN,
                                 .ns = e->begin_ns,
                                 .name = name,
                                 .label =
                                     label_of(&w->labels, e->op, names_peer(op) ? e->peer : -1),
                                 .bytes = e->bytes,
                                 .arrow = p->arrows->first,
                                 .n_arrows = p->arrows->n,
                                 .n_ended = p->arrows->n_ended};

    close_until(w, e->begin_ns);
    name_of(op, e->peer, name, sizeof(name));
    put_item(w, &item);
    if (instant)
        return;
    /* Calls nest, but clocks are read one after the other: an inner call may seem to end later. */
    if (w->depth > 0 && end_ns > w->open[w->depth - 1])
        end_ns = w->open[w->depth - 1];
    if (w->depth == DEPTH)
        close_until(w, w->open[DEPTH - 1]);
    w->open[w->depth++] = end_ns;
}

static void put_track(struct writer *w, int track, enum vb_track_kind kind, const char *name,
                      const struct piece *pieces, size_t n)
{
    size_t i;

    if (n == 0)
        return;
    memset(&w->labels, 0, sizeof(w->labels));
    vb_trace_out_track(w->m->out, w->rank, track, kind, name, w->m->begin_ns);
    for (i = 0; i < n; i++)
        put_piece(w, &pieces[i]);
    close_until(w, UINT64_MAX);
}

/* ---- tracks ---------------------------------------------------------------------------------- */

/* Outer calls come before those inside; at the same time, calls come before moments. */
static int compare(const void *x, const void *y)
{
    const struct piece *a = x, *b = y;

    if (a->event->begin_ns != b->event->begin_ns)
        return a->event->begin_ns < b->event->begin_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    return a->event < b->event ? 1 : -1; /* the outer call ended last, so it was stored last */
}

/* What lanes are for; their numbers are those of no thread. */
enum { LANES_COLLECTIVE = -1, LANES_RECOVERY = -2 };

/* thread: its number, or what the lanes are for. */
static size_t collect(const struct merge_rank *r, int thread, struct piece *pieces)
{
    size_t i, n = 0;

    for (i = 0; i < r->n; i++) {
        const struct vb_trace_event *e = &r->events[i];
        bool recovery = strcmp(r->names.ops[e->op].pass, "recovery") == 0;
        int place = recovery ? LANES_RECOVERY : LANES_COLLECTIVE;

        if ((e->kind & 15) != VB_TRACE_LANE)
            place = (int)e->thread;
        if (place == thread)
            pieces[n++] = (struct piece){e, &r->arrows[i], e->begin_ns + e->ns};
    }
    qsort(pieces, n, sizeof(*pieces), compare);
    return n;
}

/* Distributes pieces over lanes, so that those of one lane do not overlap: lane[i] is that of piece
 * i. Pieces for which there is none share the last. Returns the number of lanes. */
static int choose_lanes(const struct piece *pieces, size_t n, int *lane)
{
    uint64_t free_ns[LANES] = {0};
    int k, used = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        for (k = 0; k < LANES - 1 && free_ns[k] > pieces[i].event->begin_ns; k++)
            ;
        lane[i] = k;
        free_ns[k] = pieces[i].end_ns;
        used = k + 1 > used ? k + 1 : used;
    }
    return used;
}

static vb_status put_lanes(struct writer *w, int what, struct piece *pieces, struct piece *some,
                           int *track_p)
{
    size_t i, k, n = collect(w->r, what, pieces);
    int *lane = calloc(n + 1, sizeof(*lane)), used, l;
    char name[64];

    if (lane == NULL)
        return vb_err_sys("calloc");
    used = choose_lanes(pieces, n, lane);
    for (l = 0; l < used; l++) {
        for (i = k = 0; i < n; i++)
            if (lane[i] == l)
                some[k++] = pieces[i];
        snprintf(name, sizeof(name), "%s %d", what == LANES_RECOVERY ? "recovery" : "collectives",
                 l);
        put_track(w, (*track_p)++, VB_TRACK_LANE, name, some, k);
    }
    free(lane);
    return VB_OK;
}

vb_status vb_merge_tracks(struct merge *m, int rank)
{
    const struct merge_rank *r = &m->ranks[rank];
    struct piece *pieces = calloc(r->n, sizeof(*pieces)), *some = calloc(r->n, sizeof(*some));
    struct writer *w = calloc(1, sizeof(*w));
    vb_status st = VB_OK;
    int track;

    if (pieces == NULL || some == NULL || w == NULL) {
        st = vb_err_sys("calloc");
    } else {
        w->m = m;
        w->r = r;
        w->rank = rank;
        for (track = 0; track < r->names.n_threads; track++)
            put_track(w, track, VB_TRACK_THREAD, r->names.thread[track], pieces,
                      collect(r, track, pieces));
        st = put_lanes(w, LANES_COLLECTIVE, pieces, some, &track);
        if (st == VB_OK)
            st = put_lanes(w, LANES_RECOVERY, pieces, some, &track);
        vb_merge_usage(m, rank, track);
    }
    free(w);
    free(some);
    free(pieces);
    return st;
}
