/* SPDX-License-Identifier: MIT */
#include "record/trace/trace_files.h"

#include <stdlib.h>
#include <unistd.h>

#define OPS_TICKS 10      /* ticks between two rows of an operation */
#define NAMES_BYTES 12288 /* less than a record that is sent to rank 0 */

static const struct vb_col event_cols[] = {
    {"begin_ns", "ns", VB_COL_U64}, {"ns", "ns", VB_COL_U64},  {"bytes", "B", VB_COL_U64},
    {"key", "-", VB_COL_U64},       {"op", "-", VB_COL_U32},   {"peer", "rank", VB_COL_I32},
    {"thread", "-", VB_COL_U32},    {"kind", "-", VB_COL_U32},
};

static const struct vb_col op_cols[] = {
    {"at_ns", "ns", VB_COL_U64}, {"op", "-", VB_COL_U64},    {"calls", "-", VB_COL_U64},
    {"ns", "ns", VB_COL_U64},    {"bytes", "B", VB_COL_U64},
};

const struct vb_series_kind vb_kind_trace = {.name = "trace",
                                             .version = 1,
                                             .cols = event_cols,
                                             .n_cols = VB_COUNT(event_cols),
                                             .row_bytes = sizeof(struct vb_trace_event)};
const struct vb_series_kind vb_kind_ops = {.name = "ops",
                                           .version = 1,
                                           .cols = op_cols,
                                           .n_cols = VB_COUNT(op_cols),
                                           .row_bytes = sizeof(struct vb_op_row)};

struct vb_trace_files {
    struct vb_recorder *rec;
    struct vb_trace *trace;
    int rank, threads;
    char names[64];
    bool has_head;
    _Atomic bool ended;   /* the recorder has called the last tick */
    int n_ops, n_threads; /* that names.bin has */
    uint64_t lost, ticks, since_ns;
    struct vb_trace_sum written[VB_TRACE_OPS];
    struct vb_stream *ops, *events; /* events NULL: the trace has none */
    char text[NAMES_BYTES];
};

/* ---- names ----------------------------------------------------------------------------------- */

#define SAY(at, room, ...) ((at) += (size_t)snprintf(f->text + (at), (room) - (at), __VA_ARGS__))

static size_t say_head(struct vb_trace_files *f, size_t at)
{
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    SAY(at, NAMES_BYTES, "verbena-names 1\nrank\t%d\t%d\t%llu\t%s\n", f->rank, f->threads,
        (unsigned long long)f->since_ns, host);
    return at;
}

static size_t say_op(struct vb_trace_files *f, size_t at, int i)
{
    const struct vb_trace_op *op = vb_trace_op_at(f->trace, i);

    SAY(at, NAMES_BYTES, "op\t%d\t%s\t%s\t%s\t%s\t%.9g\t%.9g\n", i, op->layer, op->pass, op->op,
        op->shape, op->flops, op->moved);
    return at;
}

/* Appends the names that are new. They are written again at the next tick if that fails. */
static void write_names(struct vb_trace_files *f, bool last)
{
    int n_ops = vb_trace_n_ops(f->trace), n_threads = vb_trace_n_threads(f->trace), i;
    uint64_t lost = vb_trace_lost(f->trace);
    size_t at = 0, room = NAMES_BYTES - 256;

    if (!f->has_head)
        at = say_head(f, at);
    for (i = f->n_ops; i < n_ops && at < room; i++)
        at = say_op(f, at, i);
    n_ops = i;
    for (i = f->n_threads; i < n_threads && at < room; i++)
        SAY(at, NAMES_BYTES, "thread\t%d\t%s\n", i, vb_trace_thread_name(f->trace, i));
    n_threads = i;
    if (lost != f->lost && (last || f->ticks % OPS_TICKS == 0)) {
        SAY(at, NAMES_BYTES, "lost\t%llu\n", (unsigned long long)lost);
    } else {
        lost = f->lost;
    }
    if (last)
        SAY(at, NAMES_BYTES, "end\n");
    if (at == 0 || vb_recorder_append(f->rec, f->names, f->text, at) != VB_OK)
        return;
    f->has_head = true;
    f->n_ops = n_ops;
    f->n_threads = n_threads;
    f->lost = lost;
}

/* ---- operations and events ------------------------------------------------------------------- */

static void put_ops(struct vb_trace_files *f)
{
    int i, n = vb_trace_n_ops(f->trace);
    struct vb_trace_sum sum;
    struct vb_op_row row;

    for (i = 0; i < n; i++) {
        sum = vb_trace_sum(f->trace, i);
        if (sum.calls == f->written[i].calls && i != VB_OP_ALL)
            continue;
        f->written[i] = sum;
        row = (struct vb_op_row){vb_record_clock_ns(), (uint64_t)i, sum.calls, sum.ns, sum.bytes};
        vb_stream_put(f->ops, &row);
    }
}

/* The events of all threads go to one file. */
static void move_events(struct vb_trace_files *f)
{
    int i, n_threads = vb_trace_n_threads(f->trace);
    const struct vb_trace_event *events;
    size_t k, n;

    for (i = 0; i < n_threads && f->events != NULL; i++)
        while ((events = vb_trace_peek(f->trace, i, &n)) != NULL) {
            for (k = 0; k < n; k++)
                vb_stream_put(f->events, &events[k]);
            vb_trace_take(f->trace, i, n);
        }
}

static void tick(void *arg, uint64_t now_ns, bool last)
{
    struct vb_trace_files *f = arg;

    (void)now_ns;
    move_events(f);
    if (last || f->ticks++ % OPS_TICKS == 0)
        put_ops(f);
    write_names(f, last);
    if (last)
        atomic_store(&f->ended, true);
}

void vb_trace_files_again(struct vb_trace_files *f)
{
    if (f == NULL)
        return;
    f->has_head = false;
    f->n_ops = f->n_threads = 0;
}

vb_status vb_trace_files_open(struct vb_recorder *rec, struct vb_trace *trace, int n_events,
                              int rank, int threads, struct vb_trace_files **files_p)
{
    struct vb_trace_files *f = calloc(1, sizeof(*f));
    char name[64];
    vb_status st;

    if (f == NULL)
        return vb_err_sys("calloc");
    f->rec = rec;
    f->trace = trace;
    f->rank = rank;
    f->threads = threads;
    f->since_ns = vb_record_clock_ns();
    snprintf(f->names, sizeof(f->names), "rank%d/names.bin", rank);
    snprintf(name, sizeof(name), "rank%d/ops.bin", rank);
    st = vb_recorder_stream(rec, name, &vb_kind_ops, 4 * VB_TRACE_OPS, &f->ops);
    snprintf(name, sizeof(name), "rank%d/trace.bin", rank);
    if (st == VB_OK && n_events > 0)
        st = vb_recorder_stream(rec, name, &vb_kind_trace, 2 * n_events, &f->events);
    if (st == VB_OK)
        st = vb_recorder_tick(rec, tick, f);
    if (st == VB_OK)
        *files_p = f;
    else
        free(f);
    return st;
}

bool vb_trace_files_free(struct vb_trace_files *f)
{
    bool ended = f == NULL || atomic_load(&f->ended);

    if (ended)
        free(f);
    return ended;
}
