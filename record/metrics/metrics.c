/* SPDX-License-Identifier: MIT */
#include "record/metrics/metrics_priv.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 2000000000u /* between two files */
#define LAST_NS 300000000u

static double day_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void add_row(struct vb_metrics *m, struct metrics_rank *r, const struct vb_step_row *row)
{
    int p;

    for (p = 0; p < VB_RECORD_PHASES; p++)
        r->phase_s[p] += isfinite(row->phase_s[p]) ? (double)row->phase_s[p] : 0;
    r->rows++;
    r->samples += row->samples;
    r->last = *row;
    r->has_steps = true;
    if (row->waited_for >= 0 && row->waited_for < m->o.ranks && row->waited_s > 0)
        m->ranks[row->waited_for].late_s += (double)row->waited_s;
}

/* Files are closed again, because a job may have more ranks than a process may have files. */
static void read_all(struct vb_metrics *m)
{
    struct vb_step_row row;
    int64_t left;
    int i;

    for (i = 0; i < m->o.ranks; i++) {
        struct metrics_rank *r = &m->ranks[i];

        for (left = vb_follow_left(&r->steps); left > 0 && vb_follow_next(&r->steps, &row); left--)
            add_row(m, r, &row);
        for (left = vb_follow_left(&r->usage); left > 0 && vb_follow_next(&r->usage, &r->use);
             left--)
            r->has_usage = true;
        vb_follow_close(&r->steps);
        vb_follow_close(&r->usage);
    }
    while (vb_follow_left(&m->evals) > 0 && vb_follow_next(&m->evals, &m->eval))
        m->has_eval = true;
    vb_follow_close(&m->evals);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A folder that cannot be written is not complained about: the files of rows do that. The file is
 * not synced, because it is worth nothing after a power cut. */
static void write_file(const struct vb_metrics *m)
{
    char path[4200], temporary[4200];
    FILE *out;
    bool good;
    int fd;

    snprintf(path, sizeof(path), "%s/metrics.prom", m->dir);
    snprintf(temporary, sizeof(temporary), "%s/.metrics.prom.new", m->dir);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    good = vb_metrics_text(m, out);
    good = fclose(out) == 0 && good;
    if (!good || rename(temporary, path) != 0)
        unlink(temporary);
}

/* Other ranks write their last rows at about the same time as this one. Waits a little for those
 * that have made as many steps. */
static void read_last(struct vb_metrics *m)
{
    uint64_t until = vb_clock_ns() + LAST_NS;
    bool all;
    int i;

    do {
        read_all(m);
        all = true;
        for (i = 0; i < m->o.ranks && !m->o.async; i++)
            all = all && (m->ranks[i].lost || m->ranks[i].last.step >= m->ranks[m->lead].last.step);
        if (!all)
            (void)vb_sleep_until(vb_clock_ns() + LAST_NS / 20);
    } while (!all && vb_clock_ns() < until);
}

static void tick(void *arg, uint64_t now_ns, bool last)
{
    struct vb_metrics *m = arg;

    (void)now_ns; /* a test may have changed the clock of records */
    if (m->o.asleep || (!last && vb_clock_ns() - m->written_ns < PERIOD_NS))
        return;
    m->written_ns = vb_clock_ns();
    m->running = !last;
    m->now_s = day_s();
    if (last)
        read_last(m);
    else
        read_all(m);
    write_file(m);
}

static void destroy(void *arg)
{
    struct vb_metrics *m = arg;
    int i;

    for (i = 0; m->ranks != NULL && i < m->o.ranks; i++) {
        vb_follow_close(&m->ranks[i].steps);
        vb_follow_close(&m->ranks[i].usage);
    }
    vb_follow_close(&m->evals);
    free(m->ranks);
    free(m);
}

static struct vb_metrics *make(const struct vb_metrics_opts *o)
{
    struct vb_metrics *m = calloc(1, sizeof(*m));
    char name[48];
    int i;

    if (m == NULL)
        return NULL;
    m->o = *o;
    m->started_s = day_s();
    m->ranks = calloc((size_t)o->ranks, sizeof(*m->ranks));
    if (m->ranks == NULL) {
        free(m);
        return NULL;
    }
    snprintf(m->dir, sizeof(m->dir), "%s", o->dir);
    for (i = 0; i < o->ranks; i++) {
        snprintf(name, sizeof(name), "rank%d/steps.bin", i);
        vb_follow_init(&m->ranks[i].steps, o->dir, name, &vb_kind_steps, o->append);
        snprintf(name, sizeof(name), "rank%d/usage.bin", i);
        vb_follow_init(&m->ranks[i].usage, o->dir, name, &vb_kind_usage, o->append);
    }
    vb_follow_init(&m->evals, o->dir, "evals.bin", &vb_kind_evals, o->append);
    return m;
}

void vb_metrics_lead(struct vb_metrics *m, int lead)
{
    if (lead < 0 || lead >= m->o.ranks)
        return;
    m->o.asleep = false;
    m->lead = lead;
}

void vb_metrics_lost(struct vb_metrics *m, int rank)
{
    if (rank < 0 || rank >= m->o.ranks || m->ranks[rank].lost)
        return;
    m->ranks[rank].lost = true;
    m->n_lost++;
}

vb_status vb_metrics_open(const struct vb_metrics_opts *opts, struct vb_metrics **metrics_p)
{
    struct vb_metrics *m = make(opts);
    vb_status st;

    if (m == NULL)
        return vb_err_sys("calloc");
    st = vb_recorder_own(opts->rec, destroy, m);
    if (st != VB_OK) {
        destroy(m);
        return st;
    }
    st = vb_recorder_after(opts->rec, tick, m);
    if (st == VB_OK)
        *metrics_p = m;
    return st;
}
