/* SPDX-License-Identifier: MIT
 *
 * Reads the files of a rank. They may be cut or broken: numbers are checked before they are used,
 * and a row that cannot be right is an error that names file and row.
 */
#include "record/trace/trace_files.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define FIELDS 9

/* ---- names ----------------------------------------------------------------------------------- */

struct reader {
    struct vb_trace_names *names;
    bool begun, broken;
};

/* Splits a line at its tabs. Returns the number of fields. */
static int split(char *line, char *fields[FIELDS])
{
    int n = 0;

    while (line != NULL && n < FIELDS) {
        fields[n++] = line;
        line = strchr(line, '\t');
        if (line != NULL)
            *line++ = '\0';
    }
    return n;
}

/* Returns the number in a field, or -1 if it is not one from 0 to max. */
static int64_t number(const char *text, int64_t max)
{
    int64_t value;

    return vb_parse_int(text, &value) && value >= 0 && value <= max ? value : -1;
}

static void copy_text(char to[VB_TRACE_TEXT], const char *from)
{
    snprintf(to, VB_TRACE_TEXT, "%.*s", VB_TRACE_TEXT - 1, from);
}

static bool take_op(struct vb_trace_names *names, char *const fields[FIELDS], int n)
{
    int64_t i = n == 8 ? number(fields[1], VB_TRACE_OPS - 1) : -1;
    struct vb_trace_op *op;

    if (i < 0)
        return false;
    op = &names->ops[i];
    copy_text(op->layer, fields[2]);
    copy_text(op->pass, fields[3]);
    copy_text(op->op, fields[4]);
    copy_text(op->shape, fields[5]);
    if (!vb_parse_real(fields[6], &op->flops) || !vb_parse_real(fields[7], &op->moved))
        return false;
    if (i >= names->n_ops)
        names->n_ops = (int)i + 1;
    return true;
}

static bool take_rank(struct vb_trace_names *names, char *const fields[FIELDS], int n)
{
    int64_t threads = n == 5 ? number(fields[2], 65536) : -1;
    int64_t since = n == 5 ? number(fields[3], INT64_MAX) : -1;

    if (threads < 0 || since < 0)
        return false;
    names->threads = (int)threads;
    names->since_ns = (uint64_t)since;
    snprintf(names->host, sizeof(names->host), "%.*s", (int)sizeof(names->host) - 1, fields[4]);
    return true;
}

static bool take_fields(struct vb_trace_names *names, char *const fields[FIELDS], int n)
{
    int64_t i;

    if (strcmp(fields[0], "op") == 0)
        return take_op(names, fields, n);
    if (strcmp(fields[0], "rank") == 0)
        return take_rank(names, fields, n);
    if (strcmp(fields[0], "thread") == 0) {
        i = n == 3 ? number(fields[1], VB_TRACE_THREADS - 1) : -1;
        if (i < 0)
            return false;
        copy_text(names->thread[i], fields[2]);
        names->n_threads = (int)i + 1 > names->n_threads ? (int)i + 1 : names->n_threads;
    }
    if (strcmp(fields[0], "lost") == 0) {
        i = n == 2 ? number(fields[1], INT64_MAX) : -1;
        if (i < 0)
            return false;
        names->lost = (uint64_t)i;
    }
    names->ended = strcmp(fields[0], "end") == 0;
    return true;
}

/* A file that a resumed run has continued has several parts, of which the last counts. */
static bool take_line(char *line, void *arg)
{
    struct reader *r = arg;
    char *fields[FIELDS];
    int n;

    if (strncmp(line, "verbena-names ", 14) == 0) {
        int rank = r->names->rank;

        *r->names = (struct vb_trace_names){.rank = rank};
        r->begun = true;
        return true;
    }
    n = split(line, fields);
    if (!r->begun || !take_fields(r->names, fields, n))
        r->broken = true;
    return !r->broken;
}

vb_status vb_trace_names_read(const char *dir, int rank, struct vb_trace_names *names_p)
{
    struct reader r = {.names = names_p};
    char path[4200];

    snprintf(path, sizeof(path), "%s/rank%d/names.bin", dir, rank);
    if (access(path, R_OK) != 0)
        return VB_ERR_NO_FILE;
    *names_p = (struct vb_trace_names){.rank = rank};
    vb_probe_lines(take_line, &r, "%s", path);
    if (!r.begun || r.broken)
        return vb_err(VB_ERR_INPUT, "%s: is not a list of names that verbena has written", path);
    return VB_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Opens a series of a rank. *series_p is NULL if there is no file. */
static vb_status open_rows(const char *dir, int rank, const char *name, const char *kind,
                           struct vb_series **series_p)
{
    char path[4200];
    vb_status st;

    *series_p = NULL;
    snprintf(path, sizeof(path), "%s/rank%d/%s", dir, rank, name);
    if (access(path, F_OK) != 0)
        return VB_OK;
    st = vb_series_open(path, series_p);
    if (st == VB_OK && strcmp(vb_series_name(*series_p), kind) != 0) {
        st = vb_err(VB_ERR_INPUT, "%s: is a series of %s, not of %s", path,
                    vb_series_name(*series_p), kind);
        vb_series_close(*series_p);
        *series_p = NULL;
    }
    return st;
}

/* Returns a whole number of a row; 0 if it is none. */
static uint64_t whole(struct vb_series *s, int64_t row, int col)
{
    double value = vb_series_value(s, row, col);

    return value >= 0 && value < 9007199254740992.0 ? (uint64_t)value : 0;
}

vb_status vb_trace_ops_read(const char *dir, const struct vb_trace_names *names,
                            struct vb_trace_sum *sums)
{
    static const char *const cols[] = {"at_ns", "op", "calls", "ns", "bytes"};
    struct vb_series *s;
    vb_status st = open_rows(dir, names->rank, "ops.bin", "ops", &s);
    int64_t row, rows;
    int col[VB_COUNT(cols)];
    size_t i;

    memset(sums, 0, VB_TRACE_OPS * sizeof(*sums));
    if (st != VB_OK || s == NULL)
        return st;
    for (i = 0; i < VB_COUNT(cols); i++)
        col[i] = vb_series_col(s, cols[i]);
    rows = vb_series_rows(s);
    for (row = 0; row < rows; row++) {
        uint64_t op = whole(s, row, col[1]);

        if (whole(s, row, col[0]) >= names->since_ns && op < (uint64_t)names->n_ops)
            sums[op] = (struct vb_trace_sum){whole(s, row, col[2]), whole(s, row, col[3]),
                                             whole(s, row, col[4])};
    }
    vb_series_close(s);
    return VB_OK;
}

static bool read_event(struct vb_series *s, int64_t row, const int col[8],
                       const struct vb_trace_names *names, struct vb_trace_event *e)
{
    double peer = vb_series_value(s, row, col[5]);

    *e = (struct vb_trace_event){.begin_ns = whole(s, row, col[0]),
                                 .ns = whole(s, row, col[1]),
                                 .bytes = whole(s, row, col[2]),
                                 .key = whole(s, row, col[3]),
                                 .op = (uint32_t)whole(s, row, col[4]),
                                 .peer = peer >= -1 && peer < 1 << 20 ? (int32_t)peer : -1,
                                 .thread = (uint32_t)whole(s, row, col[6]),
                                 .kind = (uint32_t)whole(s, row, col[7])};
    return e->op < (uint32_t)names->n_ops && e->thread < (uint32_t)names->n_threads &&
           (e->kind & 15) <= VB_TRACE_INSTANT;
}

static vb_status read_events(struct vb_series *s, const char *dir,
                             const struct vb_trace_names *names, int64_t rows,
                             struct vb_trace_event *events, size_t *n_p)
{
    static const char *const cols[] = {"begin_ns", "ns",   "bytes",  "key",
                                       "op",       "peer", "thread", "kind"};
    struct vb_trace_event e;
    int64_t row;
    int col[VB_COUNT(cols)];
    size_t i;

    for (i = 0; i < VB_COUNT(cols); i++)
        col[i] = vb_series_col(s, cols[i]);
    for (*n_p = 0, row = 0; row < rows; row++) {
        bool fine = read_event(s, row, col, names, &e);

        if (e.begin_ns + e.ns < names->since_ns)
            continue;
        if (!fine)
            return vb_err(VB_ERR_INPUT,
                          "%s/rank%d/trace.bin: row %lld: there is no operation %u, thread %u or "
                          "kind %u",
                          dir, names->rank, (long long)row, e.op, e.thread, e.kind);
        events[(*n_p)++] = e;
    }
    return VB_OK;
}

vb_status vb_trace_events_read(const char *dir, const struct vb_trace_names *names,
                               struct vb_trace_event **events_p, size_t *n_p)
{
    struct vb_series *s;
    vb_status st = open_rows(dir, names->rank, "trace.bin", "trace", &s);
    struct vb_trace_event *events;
    int64_t rows;

    *n_p = 0;
    *events_p = NULL;
    if (st != VB_OK || s == NULL)
        return st;
    rows = vb_series_rows(s); /* the file may still grow */
    events = calloc((size_t)rows + 1, sizeof(*events));
    st = events == NULL ? vb_err_sys("calloc") : read_events(s, dir, names, rows, events, n_p);
    vb_series_close(s);
    if (st == VB_OK)
        *events_p = events;
    else
        free(events);
    return st;
}
