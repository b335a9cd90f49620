/* SPDX-License-Identifier: MIT */
#include "record/trace/trace_merge_priv.h"

#include <stdlib.h>
#include <sys/stat.h>

static uint64_t corrected(const struct merge *m, int rank, uint64_t ns)
{
    return m->opts->clocks == NULL ? ns : vb_clock_correct(&m->opts->clocks[rank], ns, NULL);
}

/* Corrects both ends of an event, because a clock may drift between them. */
static void correct(struct merge *m, int rank)
{
    struct merge_rank *r = &m->ranks[rank];
    uint64_t begin, end;
    size_t i;

    for (i = 0; i < r->n; i++) {
        begin = corrected(m, rank, r->events[i].begin_ns);
        end = corrected(m, rank, r->events[i].begin_ns + r->events[i].ns);
        r->events[i].begin_ns = begin;
        r->events[i].ns = end > begin ? end - begin : 0;
        m->begin_ns = begin < m->begin_ns ? begin : m->begin_ns;
        m->end_ns = end > m->end_ns ? end : m->end_ns;
    }
}

static vb_status read_rank(struct merge *m, int rank)
{
    struct merge_rank *r = &m->ranks[rank];
    vb_status st = vb_trace_names_read(m->opts->dir, rank, &r->names);

    if (st == VB_ERR_NO_FILE)
        return VB_OK; /* a server that was never a rank, or a rank that died at once */
    if (st == VB_OK)
        st = vb_trace_events_read(m->opts->dir, &r->names, &r->events, &r->n);
    if (st != VB_OK)
        return st;
    r->arrows = calloc(r->n + 1, sizeof(*r->arrows));
    if (r->arrows == NULL)
        return vb_err_sys("calloc");
    correct(m, rank);
    m->merged->ranks += r->n > 0;
    m->merged->recorded += r->n;
    m->merged->lost += r->names.lost;
    return VB_OK;
}

static vb_status write_rank(struct merge *m, int rank)
{
    const struct merge_rank *r = &m->ranks[rank];
    char name[128];

    if (r->n == 0)
        return VB_OK;
    snprintf(name, sizeof(name), "rank %d (%s)", rank, r->names.host);
    vb_trace_out_process(m->out, rank, name);
    return vb_merge_tracks(m, rank);
}

static vb_status write_all(struct merge *m)
{
    vb_status st = vb_trace_out_open(m->opts->path, m->opts->format, &m->out), closed;
    struct stat info;
    int rank;

    if (st != VB_OK)
        return st;
    for (rank = 0; rank < m->opts->ranks && st == VB_OK; rank++)
        st = write_rank(m, rank);
    closed = vb_trace_out_close(m->out, st == VB_OK);
    st = st == VB_OK ? closed : st;
    if (st == VB_OK && stat(m->opts->path, &info) == 0)
        m->merged->bytes = (uint64_t)info.st_size;
    return st;
}

vb_status vb_trace_merge(const struct vb_trace_merge_opts *opts, struct vb_trace_merged *merged_p)
{
    struct merge m = {.opts = opts, .merged = merged_p, .begin_ns = UINT64_MAX};
    vb_status st = VB_OK;
    int rank;

    *merged_p = (struct vb_trace_merged){0};
    m.ranks = calloc((size_t)opts->ranks, sizeof(*m.ranks));
    if (m.ranks == NULL)
        return vb_err_sys("calloc");
    for (rank = 0; rank < opts->ranks && st == VB_OK; rank++)
        st = read_rank(&m, rank);
    if (st == VB_OK)
        st = vb_merge_arrows(&m);
    if (st == VB_OK)
        st = write_all(&m);
    for (rank = 0; rank < opts->ranks; rank++) {
        free(m.ranks[rank].events);
        free(m.ranks[rank].arrows);
    }
    free(m.ranks);
    return st;
}
