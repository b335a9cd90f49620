/* SPDX-License-Identifier: MIT
 *
 * Reads the series of a rank. Columns are found by name, so runs of other versions can be read.
 */
#include "cli/report/cmd_report.h"

#include <dirent.h>
#include <math.h>

#define SHORT_S 0.03 /* counters of the kernel move in ticks: shorter rates mean nothing */

/* ---- steps ----------------------------------------------------------------------------------- */

struct step_cols {
    int step, end_ns, loss, staleness, phase[VB_PHASES];
};

static struct step_cols find_step_cols(const struct vb_series *s)
{
    struct step_cols c = {vb_series_col(s, "step"),
                          vb_series_col(s, "end_ns"),
                          vb_series_col(s, "loss"),
                          vb_series_col(s, "staleness"),
                          {0}};
    char name[48];
    int p;

    for (p = 0; p < VB_PHASES; p++) {
        snprintf(name, sizeof(name), "%s_s", vb_phase_str((enum vb_phase)p));
        c.phase[p] = vb_series_col(s, name);
    }
    return c;
}

static void read_step(struct vb_series *s, int64_t row, const struct step_cols *c,
                      struct report_clock *clock, double values[STEP_COLS])
{
    int p;

    values[STEP_STEP] = vb_series_value(s, row, c->step);
    values[STEP_TIME] = report_clock_s(clock, vb_series_value(s, row, c->end_ns));
    values[STEP_LOSS] = vb_series_value(s, row, c->loss);
    values[STEP_STALE] = vb_series_value(s, row, c->staleness);
    values[STEP_SECONDS] = 0;
    for (p = 0; p < VB_PHASES; p++) {
        values[STEP_PHASE + p] = vb_series_value(s, row, c->phase[p]);
        if (p != VB_PHASE_EVAL && p != VB_PHASE_CHECKPOINT)
            values[STEP_SECONDS] += values[STEP_PHASE + p];
    }
}

static void note_bad(struct report_rank *r, const double values[STEP_COLS])
{
    if (isfinite(values[STEP_LOSS]))
        return;
    if (r->bad_losses++ == 0)
        r->first_bad = values[STEP_STEP] < 9e15 ? (int64_t)values[STEP_STEP] : 0;
}

static vb_status read_steps(struct report_run *run, struct report_rank *r, struct vb_series *s)
{
    struct step_cols c = find_step_cols(s);
    struct report_clock clock;
    double values[STEP_COLS];
    int64_t row;
    vb_status st;

    r->n_steps = vb_series_rows(s); /* the file may still grow */
    report_clock_init(&clock, run, r->rank);
    st = vb_thin_init(&r->fine, r->n_steps, REPORT_FINE, STEP_COLS);
    if (st == VB_OK)
        st = vb_thin_init(&r->coarse, r->n_steps, REPORT_COARSE, STEP_COLS);
    for (row = 0; st == VB_OK && row < r->n_steps; row++) {
        read_step(s, row, &c, &clock, values);
        vb_thin_add(&r->fine, row, values);
        vb_thin_add(&r->coarse, row, values);
        note_bad(r, values);
    }
    return st;
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Names of columns; "" if a file has none of this kind. Counters become rates. */
struct use_names {
    const char *cpu, *bytes, *send, *recv, *read, *write;
};

struct use_cols {
    int at, cpu, bytes, counters[4];
};

static struct use_cols find_use_cols(const struct vb_series *s, const struct use_names *n)
{
    return (struct use_cols){vb_series_col(s, "at_ns"),
                             vb_series_col(s, n->cpu),
                             vb_series_col(s, n->bytes),
                             {vb_series_col(s, n->send), vb_series_col(s, n->recv),
                              vb_series_col(s, n->read), vb_series_col(s, n->write)}};
}

/* Returns what a counter has grown by in a second. A counter that begins again leaves a gap. */
static double rate(struct vb_series *s, int64_t row, int64_t before, int col, double seconds)
{
    double grown = vb_series_value(s, row, col) - vb_series_value(s, before, col);

    return grown >= 0 && seconds > 0 ? grown / seconds : (double)NAN;
}

static vb_status read_use(struct report_run *run, int rank, struct vb_series *s,
                          const struct use_names *names, struct vb_thin *to)
{
    struct use_cols c = find_use_cols(s, names);
    int64_t row, before = 0, rows = vb_series_rows(s);
    struct report_clock clock;
    double values[USE_COLS], s_before, seconds;
    vb_status st = vb_thin_init(to, rows - 1, 2 * REPORT_COARSE, USE_COLS);
    int k;

    report_clock_init(&clock, run, rank);
    s_before = report_clock_s(&clock, vb_series_value(s, 0, c.at));
    for (row = 1; st == VB_OK && row < rows; row++) {
        values[USE_TIME] = report_clock_s(&clock, vb_series_value(s, row, c.at));
        seconds = values[USE_TIME] - s_before;
        if (seconds >= 0 && seconds < SHORT_S && before > 0)
            continue;
        values[USE_CPU] = rate(s, row, before, c.cpu, seconds) / 1e7; /* percent of one CPU */
        values[USE_MB] = vb_series_value(s, row, c.bytes) / 1e6;
        for (k = 0; k < 4; k++)
            values[USE_SEND + k] = rate(s, row, before, c.counters[k], seconds) / 1e6;
        vb_thin_add(to, row - 1, values);
        before = row;
        s_before = values[USE_TIME];
    }
    return st;
}

/* Reads a file of counters, if there is one. A broken one is a gap. */
static vb_status read_counters(struct report_run *run, int rank, const char *file,
                               const struct use_names *names, struct vb_thin *to)
{
    vb_status st;
    struct vb_series *s = cli_run_series(run->top.dir, rank, file, NULL, &st);

    if (s == NULL) {
        if (st != VB_OK)
            report_gap(run, "rank%d/%s cannot be read", rank, file);
        return VB_OK;
    }
    st = read_use(run, rank, s, names, to);
    vb_series_close(s);
    return st;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

static bool moved_bytes(const struct vb_thin *rows)
{
    int i;

    for (i = 0; i < rows->n; i++)
        if (vb_thin_at(rows, i, USE_SEND)->high > 1e-3 ||
            vb_thin_at(rows, i, USE_RECV)->high > 1e-3)
            return true;
    return false;
}

static vb_status read_port(struct report_run *run, struct report_rank *r, const char *file)
{
    static const struct use_names names = {"", "", "sent_bytes", "received_bytes", "", ""};
    struct report_port *port = &r->ports[r->n_ports];
    size_t len = strlen(file) - 4; /* without .bin */
    vb_status st = read_counters(run, r->rank, file, &names, &port->rows);

    if (strncmp(file, "net-", 4) == 0)
        snprintf(port->name, sizeof(port->name), "%.*s", (int)len - 4, file + 4);
    else
        snprintf(port->name, sizeof(port->name), "%.*s", (int)len, file);
    if (st == VB_OK && moved_bytes(&port->rows))
        r->n_ports++;
    else
        vb_thin_free(&port->rows);
    return st;
}

static vb_status read_ports(struct report_run *run, struct report_rank *r)
{
    char path[PATH_MAX + 32];
    struct dirent *entry;
    vb_status st = VB_OK;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/rank%d", run->top.dir, r->rank);
    dir = opendir(path);
    while (dir != NULL && st == VB_OK && r->n_ports < REPORT_PORTS &&
           (entry = readdir(dir)) != NULL) {
        size_t len = strlen(entry->d_name);
        bool port =
            strncmp(entry->d_name, "net-", 4) == 0 || strncmp(entry->d_name, "rdma-", 5) == 0;

        if (port && len > 8 && strcmp(entry->d_name + len - 4, ".bin") == 0)
            st = read_port(run, r, entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    return st;
}

vb_status report_read_rank(struct report_run *run, struct report_rank *r)
{
    static const struct use_names own = {"cpu_ns",         "rss_bytes",       "sent_bytes",
                                         "received_bytes", "disk_read_bytes", "disk_written_bytes"};
    static const struct use_names host = {"busy_ns", "memory_used_bytes", "",
                                          "",        "disk_read_bytes",   "disk_written_bytes"};
    vb_status st;
    struct vb_series *s = cli_run_series(run->top.dir, r->rank, "steps.bin", NULL, &st);

    if (st != VB_OK)
        report_gap(run, "rank%d/steps.bin cannot be read", r->rank);
    st = s != NULL ? read_steps(run, r, s) : VB_OK;
    vb_series_close(s);
    if (st == VB_OK)
        st = read_counters(run, r->rank, "usage.bin", &own, &r->usage);
    if (st == VB_OK)
        st = read_counters(run, r->rank, "host.bin", &host, &r->machine);
    if (st == VB_OK)
        st = read_ports(run, r);
    return st;
}
