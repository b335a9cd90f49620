/* SPDX-License-Identifier: MIT */
#include "cli/ops.h"

#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- which operations are rows --------------------------------------------------------------- */

/* Operations that contain others are no rows, and parts of a collective are measured only while a
 * trace is on. */
static bool is_row(const struct vb_trace_op *op)
{
    static const char *const outer[] = {"all", "step", "forward", "backward", "receive sums"};
    size_t i;

    for (i = 0; i < VB_COUNT(outer); i++)
        if (op->layer[0] == '\0' && strcmp(op->op, outer[i]) == 0)
            return false;
    return strcmp(op->pass, "part") != 0;
}

/* Collectives run while layers compute; loader and servers are threads of their own,
 * and servers wait for whatever comes. */
static bool overlaps(const struct vb_trace_op *op)
{
    return strcmp(op->pass, "collective") == 0 || strcmp(op->pass, "server") == 0 ||
           strcmp(op->op, "make batch") == 0 || strcmp(op->op, "wait") == 0;
}

/* Leaves only what the rows are summed up by. */
static struct vb_trace_op key_of(const struct vb_trace_op *op, enum ops_by by)
{
    struct vb_trace_op key = *op;

    if (by == OPS_BY_OP)
        return key;
    key.shape[0] = '\0';
    if (by == OPS_BY_LAYER && op->layer[0] != '\0') {
        snprintf(key.pass, sizeof(key.pass), "*");
        snprintf(key.op, sizeof(key.op), "*");
    }
    if (by == OPS_BY_PASS) {
        key.layer[0] = '\0';
        snprintf(key.op, sizeof(key.op), "*");
    }
    return key;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_same(const struct ops_row *r, int rank, const struct vb_trace_op *key)
{
    return r->rank == rank && strcmp(r->op.layer, key->layer) == 0 &&
           strcmp(r->op.pass, key->pass) == 0 && strcmp(r->op.op, key->op) == 0 &&
           strcmp(r->op.shape, key->shape) == 0;
}

/* Returns the row of an operation, which is new if there was none; NULL: no memory. */
static struct ops_row *row_of(struct ops_list *l, int rank, const struct vb_trace_op *key)
{
    struct ops_row *rows;
    int i;

    for (i = 0; i < l->n; i++)
        if (is_same(&l->rows[i], rank, key))
            return &l->rows[i];
    if (l->n == l->room) {
        rows = realloc(l->rows, (size_t)(l->room + 256) * sizeof(*rows));
        if (rows == NULL)
            return NULL;
        l->rows = rows;
        l->room += 256;
    }
    l->rows[l->n] = (struct ops_row){.rank = rank, .op = *key, .overlaps = overlaps(key)};
    return &l->rows[l->n++];
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Adds the operations of a rank. share and the peaks are sums over ranks until finish(). */
static vb_status add_rank(struct ops_list *l, const struct vb_trace_names *names,
                          const struct vb_trace_sum *sums, int shown, enum ops_by by,
                          const struct ops_peak *peak)
{
    int i;

    for (i = 0; i < names->n_ops; i++) {
        const struct vb_trace_op *op = &names->ops[i];
        struct vb_trace_op key = key_of(op, by);
        struct ops_row *row;

        if (sums[i].calls == 0 || !is_row(op))
            continue;
        row = row_of(l, shown, &key);
        if (row == NULL)
            return vb_err_sys("realloc");
        row->sum.calls += sums[i].calls;
        row->sum.ns += sums[i].ns;
        row->sum.bytes += sums[i].bytes;
        row->flops += op->flops * (double)sums[i].bytes;
        row->moved += op->moved * (double)sums[i].bytes;
        if (peak != NULL && !row->overlaps) { /* weighted with the time that they are for */
            row->peak_gflop_s += peak->gflop_s * (double)sums[i].ns;
            row->peak_gb_s += peak->gb_s * (double)sums[i].ns;
        }
    }
    return VB_OK;
}

static vb_status read_rank(const char *dir, int rank, int asked, enum ops_by by, struct ops_list *l)
{
    struct vb_trace_names *names = malloc(sizeof(*names));
    struct vb_trace_sum sums[VB_TRACE_OPS];
    vb_status st;

    if (names == NULL)
        return vb_err_sys("malloc");
    st = vb_trace_names_read(dir, rank, names);
    if (st == VB_OK)
        st = vb_trace_ops_read(dir, names, sums);
    if (st == VB_OK && sums[VB_OP_ALL].ns > 0) {
        l->n_ranks++;
        l->seconds += (double)sums[VB_OP_ALL].ns / 1e9;
        st = add_rank(l, names, sums, asked == OPS_ALL ? OPS_ALL : rank, by,
                      cli_ops_peak(dir, names->host, names->threads, l));
    }
    free(names);
    return st;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* seconds: of training, of all ranks that the rows are the sums of */
static void finish(struct ops_row *r, double seconds)
{
    double ns = (double)r->sum.ns;

    r->share = seconds > 0 ? ns / 1e9 / seconds : 0;
    if (ns <= 0)
        return;
    r->gflop_s = r->flops / ns;
    r->gb_s = r->moved / ns;
    if (r->peak_gflop_s > 0)
        r->peak_pct =
            100 * most(r->gflop_s / (r->peak_gflop_s / ns), r->gb_s / (r->peak_gb_s / ns));
}

static int compare(const void *x, const void *y)
{
    const struct ops_row *a = x, *b = y;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->sum.ns < b->sum.ns ? 1 : a->sum.ns > b->sum.ns ? -1 : 0;
}

vb_status cli_ops_read(const char *dir, int asked, enum ops_by by, struct ops_list *l)
{
    vb_status st = VB_OK;
    int rank, i, found = 0;

    for (rank = 0; rank < VB_WORLD_MAX && st == VB_OK; rank++) {
        if (asked >= 0 && rank != asked)
            continue;
        st = read_rank(dir, rank, asked, by, l);
        found += st == VB_OK;
        if (st == VB_ERR_NO_FILE) /* ranks that have left may be missing */
            st = VB_OK;
    }
    if (st == VB_OK && found == 0)
        return vb_err(VB_ERR_NO_FILE,
                      "%s has no operations of %s: train with --run DIR, then verbena ops DIR", dir,
                      asked >= 0 ? "this rank" : "any rank");
    if (st == VB_OK && l->n_ranks == 0)
        VB_LOG_WARN("%s: training has not begun", dir);
    l->seconds /= l->n_ranks > 0 ? l->n_ranks : 1;
    for (i = 0; i < l->n; i++)
        finish(&l->rows[i], l->seconds * (asked == OPS_ALL ? l->n_ranks : 1));
    if (l->n > 0)
        qsort(l->rows, (size_t)l->n, sizeof(*l->rows), compare);
    return st;
}

void cli_ops_free(struct ops_list *l)
{
    free(l->rows);
}
