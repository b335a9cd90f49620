/* SPDX-License-Identifier: MIT
 *
 * The points of one rank. Curves have steps on their axis, and a reader keeps one value a step: so
 * a point is the mean over what came since the last one, and there is no point without a step.
 */
#include "record/board/board_priv.h"

#include <math.h>

static const char *const phase_tags[VB_RECORD_PHASES] = {
    "phases_ms/data", "phases_ms/forward", "phases_ms/backward", "phases_ms/comm_exposed",
    "phases_ms/wait", "phases_ms/update",  "phases_ms/eval",     "phases_ms/checkpoint",
};

enum { PHASE_EVAL = 6, PHASE_CHECKPOINT = 7 };

void vb_board_rank_init(struct board_rank *r, const struct vb_board_opts *o, int rank,
                        unsigned char *bytes)
{
    char name[64];

    r->rank = rank;
    r->skew_ns = rank == 0 ? 0 : INT64_MAX;
    r->shown_step = -1;
    vb_histogram_clear(&r->staleness);
    snprintf(name, sizeof(name), "rank%d/", rank);
    vb_events_init(&r->events, o->rec, name, o->append ? o->resumed + 1 : 0, bytes);
    snprintf(name, sizeof(name), "rank%d/steps.bin", rank);
    vb_follow_init(&r->steps, o->dir, name, &vb_kind_steps, o->append);
    snprintf(name, sizeof(name), "rank%d/usage.bin", rank);
    vb_follow_init(&r->usage, o->dir, name, &vb_kind_usage, o->append);
}

void vb_board_rank_again(struct board_rank *r, struct vb_recorder *rec, int64_t step, bool leads)
{
    char name[64];

    snprintf(name, sizeof(name), "rank%d/", r->rank);
    vb_events_init(&r->events, rec, name, step + 1, r->events.bytes);
    r->skew_ns = leads ? 0 : INT64_MAX;
    vb_follow_from(&r->steps, (uint64_t)step + 1);
}

void vb_board_rank_close(struct board_rank *r)
{
    vb_follow_close(&r->steps);
    vb_follow_close(&r->usage);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A row is never newer than now, so the smallest difference is the best guess of how far the clock
 * of another host is off. */
static void learn_skew(struct board_rank *r, uint64_t now_ns, uint64_t row_ns)
{
    int64_t skew_ns = (int64_t)(now_ns - row_ns);

    if (r->skew_ns != 0 && skew_ns < r->skew_ns)
        r->skew_ns = skew_ns;
}

double vb_board_rank_wall(const struct board_rank *r, double wall_s, uint64_t at_ns)
{
    int64_t skew_ns = r->skew_ns != INT64_MAX ? r->skew_ns : 0;

    return wall_s + (double)((int64_t)at_ns + skew_ns) / 1e9;
}

static void add_row(struct board_rank *r, const struct vb_step_row *row)
{
    int p;

    if (r->sum.steps++ == 0)
        r->sum.first_step =
            r->last.step > 0 && r->last.step < row->step ? r->last.step : row->step - 1;
    r->sum.samples += row->samples;
    for (p = 0; p < VB_RECORD_PHASES; p++)
        r->sum.phase_s[p] += (double)row->phase_s[p];
    if (!isnan(row->staleness))
        vb_histogram_add(&r->staleness, &row->staleness, 1, 1);
    r->last = *row;
}

void vb_board_rank_read(struct board_rank *r, uint64_t now_ns, board_row_fn fn, void *arg)
{
    int64_t left = vb_follow_left(&r->steps);
    struct vb_step_row row;

    for (; left > 0 && vb_follow_next(&r->steps, &row); left--) {
        add_row(r, &row);
        if (fn != NULL)
            fn(arg, &row, left - 1);
    }
    if (r->last.step > 0)
        learn_skew(r, now_ns, r->last.end_ns);
    if (vb_follow_left(&r->usage) > 0) {
        r->usage.next += vb_follow_left(&r->usage) - 1; /* counters: only the newest row counts */
        (void)vb_follow_next(&r->usage, &r->now);
        learn_skew(r, now_ns, r->now.at_ns);
        if (r->before.at_ns == 0)
            r->before = r->now;
    }
}

/* ---- points ---------------------------------------------------------------------------------- */

double vb_board_train_s(const struct board_sum *sum)
{
    double seconds = 0;
    int p;

    for (p = 0; p < VB_RECORD_PHASES; p++)
        if (p != PHASE_EVAL && p != PHASE_CHECKPOINT)
            seconds += sum->phase_s[p];
    return seconds;
}

static void put_phases(struct board_rank *r)
{
    int p;

    if (r->sum.steps == 0)
        return;
    for (p = 0; p < VB_RECORD_PHASES; p++)
        vb_events_scalar(&r->events, phase_tags[p], 1e3 * r->sum.phase_s[p] / (double)r->sum.steps);
}

static double rate(uint64_t now, uint64_t before, double seconds)
{
    return (double)(int64_t)(now - before) / seconds;
}

static void put_usage(struct board_rank *r)
{
    const struct vb_usage_row *now = &r->now, *before = &r->before;
    double s = (double)(int64_t)(now->at_ns - before->at_ns) / 1e9;
    struct vb_events *ev = &r->events;

    if (!(s > 0))
        return;
    vb_events_scalar(ev, "resources/cpu_percent", 100 * rate(now->cpu_ns, before->cpu_ns, s) / 1e9);
    vb_events_scalar(ev, "resources/rss_mb", (double)now->rss_bytes / 1e6);
    vb_events_scalar(ev, "resources/send_mb_s", rate(now->sent_bytes, before->sent_bytes, s) / 1e6);
    vb_events_scalar(ev, "resources/recv_mb_s",
                     rate(now->received_bytes, before->received_bytes, s) / 1e6);
    vb_events_scalar(ev, "resources/disk_read_mb_s",
                     rate(now->disk_read_bytes, before->disk_read_bytes, s) / 1e6);
    vb_events_scalar(ev, "resources/disk_write_mb_s",
                     rate(now->disk_written_bytes, before->disk_written_bytes, s) / 1e6);
    r->before = r->now;
}

bool vb_board_rank_show(struct board_rank *r, double wall_s, int64_t job_step)
{
    int64_t step = r->last.step > 0 ? (int64_t)r->last.step : job_step;
    uint64_t at_ns = r->sum.steps > 0 ? r->last.end_ns : r->now.at_ns;
    double seconds = vb_board_train_s(&r->sum);

    if (step == r->shown_step || (r->sum.steps == 0 && r->last.step > 0) || at_ns == 0)
        return false;
    vb_events_begin(&r->events, vb_board_rank_wall(r, wall_s, at_ns), step);
    put_phases(r);
    put_usage(r);
    (void)vb_events_end(&r->events);
    r->samples_per_s = seconds > 0 ? (double)r->sum.samples / seconds : 0;
    memset(&r->sum, 0, sizeof(r->sum));
    r->shown_step = step;
    return true;
}

void vb_board_rank_show_staleness(struct board_rank *r, double wall_s)
{
    if (r->staleness.n == 0)
        return;
    vb_events_begin(&r->events, vb_board_rank_wall(r, wall_s, r->last.end_ns),
                    (int64_t)r->last.step);
    vb_events_histogram(&r->events, "staleness", &r->staleness);
    (void)vb_events_end(&r->events);
    vb_histogram_clear(&r->staleness);
}
