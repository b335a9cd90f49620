/* SPDX-License-Identifier: MIT
 *
 * Arrows. Events with the same key belong together: one, with VB_TRACE_FROM, is where a message was
 * sent or a request was started; the others received the message, or waited for that rank. Each of
 * the others gets an arrow of its own. Keys with no such partner, or with two (a rank that died and
 * one that has joined in its place), get none.
 */
#include "record/trace/trace_merge_priv.h"

#include <stdlib.h>

struct end {
    uint64_t key, at_ns;
    size_t event;
    int rank;
    bool from;
};

static bool is_from(const struct vb_trace_event *e)
{
    return (e->kind & VB_TRACE_FROM) != 0;
}

/* Ends of an arrow, in the order of their times; the FROM event is the first of its key. */
static int compare(const void *x, const void *y)
{
    const struct end *a = x, *b = y;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->from != b->from)
        return a->from ? -1 : 1;
    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

static struct end *collect(const struct merge *m, size_t *n_p)
{
    struct end *ends;
    size_t i, n = 0;
    int r;

    for (r = 0; r < m->opts->ranks; r++)
        for (i = 0; i < m->ranks[r].n; i++)
            n += m->ranks[r].events[i].key != 0;
    ends = calloc(n + 1, sizeof(*ends));
    if (ends == NULL)
        return NULL;
    for (n = 0, r = 0; r < m->opts->ranks; r++)
        for (i = 0; i < m->ranks[r].n; i++) {
            const struct vb_trace_event *e = &m->ranks[r].events[i];

            if (e->key != 0)
                ends[n++] = (struct end){e->key, e->begin_ns, i, r, is_from(e)};
        }
    *n_p = n;
    return ends;
}

static uint64_t error_of(const struct merge *m, int rank, uint64_t at_ns)
{
    return m->opts->clocks != NULL ? vb_clock_error_at(&m->opts->clocks[rank], at_ns) : 0;
}

/* Only puts are checked: a wait for a rank usually begins before the rank does. */
static vb_status check(const struct merge *m, const struct end *from, const struct end *to)
{
    const struct vb_clock_event sent = {from->rank, from->at_ns,
                                        error_of(m, from->rank, from->at_ns)};
    const struct vb_clock_event received = {to->rank, to->at_ns, error_of(m, to->rank, to->at_ns)};
    char why[256];

    if (m->ranks[from->rank].events[from->event].op != VB_OP_PUT ||
        vb_clock_message_ok(&sent, &received, why, sizeof(why)))
        return VB_OK;
    return vb_err(VB_ERR_INPUT, "%s: the traces of the ranks are not merged: %s", m->opts->dir,
                  why);
}

/* ends[0] is the FROM event, the other n - 1 are joined to it. */
static vb_status join(struct merge *m, const struct end *ends, size_t n)
{
    struct arrows *from = &m->ranks[ends[0].rank].arrows[ends[0].event];
    vb_status st = VB_OK;
    size_t i;

    *from = (struct arrows){.first = m->merged->arrows + 1, .n = (uint32_t)(n - 1)};
    for (i = 1; i < n && st == VB_OK; i++) {
        bool earlier = ends[i].at_ns < ends[0].at_ns;

        m->ranks[ends[i].rank].arrows[ends[i].event] =
            (struct arrows){.first = ++m->merged->arrows, .n = 1, .n_ended = !earlier};
        from->n_ended += earlier;
        st = check(m, &ends[0], &ends[i]);
    }
    return st;
}

vb_status vb_merge_arrows(struct merge *m)
{
    size_t i, n = 0, end;
    struct end *ends = collect(m, &n);
    vb_status st = VB_OK;

    if (ends == NULL)
        return vb_err_sys("calloc");
    qsort(ends, n, sizeof(*ends), compare);
    for (i = 0; i < n && st == VB_OK; i = end) {
        for (end = i + 1; end < n && ends[end].key == ends[i].key; end++)
            ;
        if (ends[i].from && end > i + 1 && !ends[i + 1].from)
            st = join(m, &ends[i], end - i);
    }
    free(ends);
    return st;
}
