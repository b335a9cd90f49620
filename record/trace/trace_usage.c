/* SPDX-License-Identifier: MIT
 *
 * The resources of a rank as counters of the trace: from rankR/usage.bin, which has sums since the
 * start of the run. The value between two rows is the rate between them.
 */
#include "record/trace/trace_merge_priv.h"

#include <unistd.h>

/* scale 0: the value itself is shown, in 10^6; otherwise its growth a second times scale. */
static const struct counter {
    const char *column, *name;
    double scale;
} counters[] = {
    {"cpu_ns", "cpu %", 1e-7},
    {"rss_bytes", "memory MB", 0},
    {"sent_bytes", "send MB/s", 1e-6},
    {"received_bytes", "receive MB/s", 1e-6},
    {"disk_read_bytes", "disk read MB/s", 1e-6},
    {"disk_written_bytes", "disk write MB/s", 1e-6},
};

static double value_at(struct vb_series *s, const struct counter *c, int64_t row, double seconds)
{
    int col = vb_series_col(s, c->column);
    double value = vb_series_value(s, row, col);

    if (c->scale == 0)
        return value / 1e6;
    return (value - vb_series_value(s, row - 1, col)) / seconds * c->scale;
}

static uint64_t time_of(const struct merge *m, int rank, struct vb_series *s, int64_t row)
{
    double at = vb_series_value(s, row, vb_series_col(s, "at_ns"));
    uint64_t ns = at > 0 && at < 9e15 ? (uint64_t)at : 0;

    return m->opts->clocks == NULL ? ns : vb_clock_correct(&m->opts->clocks[rank], ns, NULL);
}

/* Rows from the last one before the trace to the first one behind it belong to it. */
static void put_counter(struct merge *m, int rank, struct vb_series *s, const struct counter *c)
{
    int64_t row, rows = vb_series_rows(s);
    uint64_t last = rows > 0 ? time_of(m, rank, s, 0) : 0, at;
    struct vb_trace_item item = {.type = VB_ITEM_COUNTER};

    for (row = 1; row < rows && last <= m->end_ns; row++, last = at) {
        at = time_of(m, rank, s, row);
        if (at <= last || at < m->begin_ns)
            continue;
        item.ns = last > m->begin_ns ? last : m->begin_ns;
        item.value = value_at(s, c, row, (double)(at - last) / 1e9);
        if (item.value != item.value || item.value < 0) /* not measured */
            continue;
        vb_trace_out_item(m->out, &item);
        m->merged->events++;
    }
}

void vb_merge_usage(struct merge *m, int rank, int track)
{
    struct vb_series *s;
    char path[4200];
    size_t i;

    snprintf(path, sizeof(path), "%s/rank%d/usage.bin", m->opts->dir, rank);
    if (access(path, R_OK) != 0 || vb_series_open(path, &s) != VB_OK)
        return;
    for (i = 0; i < VB_COUNT(counters); i++) {
        if (vb_series_col(s, counters[i].column) < 0)
            continue;
        vb_trace_out_track(m->out, rank, track + (int)i, VB_TRACK_COUNTER, counters[i].name,
                           m->begin_ns);
        put_counter(m, rank, s, &counters[i]);
    }
    vb_series_close(s);
}
