/* SPDX-License-Identifier: MIT
 *
 * The time line: what each thread did while the trace was on. Calls nest; what runs beside threads
 * has lanes of its own. The longest pieces are kept.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <stdlib.h>

#define DEPTH_MAX 8
#define LANES_MAX 4

struct reader {
    struct report_timeline *line;
    const struct vb_trace_names *names;
    struct report_clock clock;
    int name_of[VB_TRACE_OPS]; /* operation to name of the time line, plus 1 */
};

/* ---- names ----------------------------------------------------------------------------------- */

static int look_of(const struct vb_trace_op *op)
{
    static const struct {
        const char *pass;
        int look;
    } looks[] = {{"forward", 0}, {"backward", 5}, {"update", 2},     {"server", 2},
                 {"data", 4},    {"comm", 1},     {"collective", 1}, {"part", 1},
                 {"wait", 3},    {"delay", 3},    {"recovery", 7}};
    size_t i;

    for (i = 0; i < VB_COUNT(looks); i++)
        if (strncmp(op->pass, looks[i].pass, strlen(looks[i].pass)) == 0)
            return looks[i].look;
    return 6;
}

/* Returns the number of the operation's name, or -1 without memory. */
static int find_name(struct reader *r, uint32_t op)
{
    const struct vb_trace_op *o = &r->names->ops[op];
    struct report_timeline *l = r->line;
    char text[80];
    int i;

    if (r->name_of[op] > 0)
        return r->name_of[op] - 1;
    if (o->layer[0] != '\0')
        snprintf(text, sizeof(text), "%s %s: %s", o->layer, o->pass, o->op);
    else
        snprintf(text, sizeof(text), "%s", o->op);
    for (i = 0; i < l->n_names && strcmp(l->names[i].text, text) != 0; i++)
        ;
    if (i == l->n_names) {
        if (l->n_names == l->names_room) {
            int room = l->names_room > 0 ? 2 * l->names_room : 64;
            struct report_name *names = realloc(l->names, (size_t)room * sizeof(*names));

            if (names == NULL)
                return -1;
            l->names = names;
            l->names_room = room;
        }
        l->names[l->n_names] = (struct report_name){.look = look_of(o)};
        snprintf(l->names[l->n_names++].text, sizeof(text), "%s", text);
    }
    r->name_of[op] = i + 1;
    return i;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int compare_events(const void *x, const void *y)
{
    const struct vb_trace_event *a = x, *b = y;

    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    return a->ns > b->ns ? -1 : a->ns < b->ns;
}

static vb_status add_piece(struct report_timeline *l, const struct report_piece *p)
{
    int room = l->room > 0 ? 2 * l->room : 4096;
    struct report_piece *pieces;

    if (l->n == l->room) {
        pieces = l->room < 1 << 28 ? realloc(l->pieces, (size_t)room * sizeof(*pieces)) : NULL;
        if (pieces == NULL)
            return vb_err_sys("the time line is too long");
        l->pieces = pieces;
        l->room = room;
    }
    l->pieces[l->n++] = *p;
    return VB_OK;
}

static int add_track(struct report_timeline *l, int rank, const char *name)
{
    if (l->n_tracks == REPORT_TRACKS)
        return -1;
    snprintf(l->tracks[l->n_tracks].name, sizeof(l->tracks[0].name), "rank %d: %s", rank, name);
    return l->n_tracks++;
}

static vb_status take_event(struct reader *r, const struct vb_trace_event *e, int track, int depth)
{
    struct report_piece p = {.track = track, .depth = depth};
    int name = track >= 0 ? find_name(r, e->op) : -1;

    if (name < 0)
        return VB_OK;
    p.name = name;
    p.begin_us = 1e6 * report_clock_s(&r->clock, (double)e->begin_ns);
    p.us = (double)e->ns / 1e3;
    if (!isfinite(p.begin_us) || p.us > 1e12)
        return VB_OK;
    r->line->names[name].calls++;
    r->line->names[name].ms += p.us / 1e3;
    if (depth >= r->line->tracks[track].depths)
        r->line->tracks[track].depths = depth + 1;
    return add_piece(r->line, &p);
}

/* Calls of a thread: the depth is the number of calls that have not ended. */
static vb_status take_thread(struct reader *r, const struct vb_trace_event *events, size_t n)
{
    uint64_t open[DEPTH_MAX];
    int depth = 0, track = -1;
    vb_status st = VB_OK;
    size_t i;

    for (i = 0; i < n && st == VB_OK; i++) {
        const struct vb_trace_event *e = &events[i];

        if ((e->kind & 15) != VB_TRACE_SPAN)
            continue;
        if (track < 0)
            track = add_track(r->line, r->names->rank, r->names->thread[e->thread]);
        while (depth > 0 && open[depth - 1] <= e->begin_ns)
            depth--;
        if (depth == DEPTH_MAX) {
            r->line->left_out++;
            continue;
        }
        st = take_event(r, e, track, depth);
        open[depth++] = e->begin_ns + e->ns;
    }
    return st;
}

/* What runs beside threads: the first lane that is free. recovery: what ranks that were lost cost;
 * otherwise collectives. */
static vb_status take_lanes(struct reader *r, const struct vb_trace_event *events, size_t n,
                            bool recovery)
{
    uint64_t end[LANES_MAX] = {0};
    vb_status st = VB_OK;
    int track = -1, lane;
    size_t i;

    for (i = 0; i < n && st == VB_OK; i++) {
        const struct vb_trace_event *e = &events[i];

        if ((e->kind & 15) != VB_TRACE_LANE ||
            recovery != (strcmp(r->names->ops[e->op].pass, "recovery") == 0))
            continue;
        if (track < 0)
            track = add_track(r->line, r->names->rank, recovery ? "recovery" : "collectives");
        for (lane = 0; lane < LANES_MAX && end[lane] > e->begin_ns; lane++)
            ;
        if (lane == LANES_MAX) {
            r->line->left_out++;
            continue;
        }
        end[lane] = e->begin_ns + e->ns;
        st = take_event(r, e, track, lane);
    }
    return st;
}

static vb_status take_rank(struct reader *r, struct vb_trace_event *events, size_t n)
{
    vb_status st = VB_OK;
    size_t from, to;

    qsort(events, n, sizeof(*events), compare_events);
    for (from = 0; from < n && st == VB_OK; from = to) {
        for (to = from; to < n && events[to].thread == events[from].thread; to++)
            ;
        st = take_thread(r, events + from, to - from);
        if (st == VB_OK)
            st = take_lanes(r, events + from, to - from, false);
        if (st == VB_OK)
            st = take_lanes(r, events + from, to - from, true);
    }
    return st;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static int by_length(const void *x, const void *y)
{
    const struct report_piece *a = x, *b = y;

    return a->us > b->us ? -1 : a->us < b->us;
}

static int by_begin(const void *x, const void *y)
{
    const struct report_piece *a = x, *b = y;

    if (a->track != b->track)
        return a->track < b->track ? -1 : 1;
    return a->begin_us < b->begin_us ? -1 : a->begin_us > b->begin_us;
}

/* Keeps the longest pieces, and lets times begin with 0. */
static void bound(struct report_timeline *l)
{
    double begin = INFINITY;
    int i;

    if (l->n > REPORT_EVENTS) {
        qsort(l->pieces, (size_t)l->n, sizeof(*l->pieces), by_length);
        l->left_out += l->n - REPORT_EVENTS;
        l->n = REPORT_EVENTS;
    }
    for (i = 0; i < l->n; i++)
        begin = fmin(begin, l->pieces[i].begin_us);
    for (i = 0; i < l->n; i++) {
        l->pieces[i].begin_us -= begin;
        l->end_us = fmax(l->end_us, l->pieces[i].begin_us + l->pieces[i].us);
    }
    if (l->n > 0)
        qsort(l->pieces, (size_t)l->n, sizeof(*l->pieces), by_begin);
}

static vb_status read_rank(struct report_run *run, int rank, struct vb_trace_names *names,
                           struct report_timeline *line)
{
    struct reader *r = calloc(1, sizeof(*r));
    struct vb_trace_event *events = NULL;
    vb_status st =
        r != NULL ? vb_trace_names_read(run->top.dir, rank, names) : vb_err_sys("calloc");
    size_t n = 0;

    if (st == VB_OK)
        st = vb_trace_events_read(run->top.dir, names, &events, &n);
    if (st == VB_OK && n > 0) {
        r->line = line;
        r->names = names;
        report_clock_init(&r->clock, run, rank);
        line->lost += (int64_t)names->lost;
        st = take_rank(r, events, n);
    }
    if (st != VB_OK && st != VB_ERR_NO_FILE)
        report_gap(run, "the trace of rank %d cannot be read", rank);
    free(events);
    free(r);
    return VB_OK; /* the others are drawn */
}

vb_status report_trace(struct report_run *run, struct report_timeline *line)
{
    struct vb_trace_names *names = malloc(sizeof(*names));
    vb_status st = names != NULL ? VB_OK : vb_err_sys("malloc");
    int i;

    line->label = run->label;
    for (i = 0; i < run->n_ranks && st == VB_OK; i++)
        st = read_rank(run, run->ranks[i].rank, names, line);
    free(names);
    bound(line);
    return st;
}

void report_trace_free(struct report_timeline *line)
{
    free(line->pieces);
    free(line->names);
}
