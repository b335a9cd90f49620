/* SPDX-License-Identifier: MIT
 *
 * verbena ops: the operations of a run, with their time and their part of what the machine can do.
 */
#include "cli/cli.h"
#include "cli/ops.h"

#include <math.h>
#include <stdlib.h>

struct ops_args {
    const char *rank;
    int by;
    bool json;
};

#define FIELD(name) offsetof(struct ops_args, name)

static const char *const by_choices[] = {"op", "layer", "pass", NULL};

static const struct vb_opt ops_opts[] = {
    {"rank", VB_OPT_TEXT, FIELD(rank), "all", .arg = "R",
     .help = "a rank, all: the sums of all ranks, or each: the rows of each rank"},
    {"by", VB_OPT_CHOICE, FIELD(by), "op", .choices = by_choices, .arg = "WHAT",
     .help = "sum up what belongs to one layer, or to one pass"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object a line instead of text"},
};

/* ---- printing -------------------------------------------------------------------------------- */

static void real_or_null(struct vb_json *j, const char *key, double value)
{
    vb_json_real(j, key, value > 0 ? value : (double)NAN);
}

static vb_status print_json(const struct ops_row *r)
{
    struct vb_json *j = cli_json_object();

    if (r->rank < 0)
        vb_json_text(j, "rank", "all");
    else
        vb_json_int(j, "rank", r->rank);
    vb_json_text(j, "layer", r->op.layer[0] != '\0' ? r->op.layer : NULL);
    vb_json_text(j, "pass", r->op.pass);
    vb_json_text(j, "op", r->op.op);
    vb_json_int(j, "calls", (int64_t)r->sum.calls);
    vb_json_real(j, "ms", (double)r->sum.ns / 1e6);
    vb_json_real(j, "share", r->share);
    vb_json_int(j, "bytes", r->sum.calls > 0 ? (int64_t)(r->sum.bytes / r->sum.calls) : 0);
    real_or_null(j, "gflop_s", r->gflop_s);
    real_or_null(j, "gb_s", r->gb_s);
    real_or_null(j, "peak_pct", r->peak_pct);
    vb_json_text(j, "shape", r->op.shape[0] != '\0' ? r->op.shape : NULL);
    vb_json_bool(j, "overlaps", r->overlaps);
    return cli_print_json(j);
}

static void size_text(const struct ops_row *r, char *text, size_t size)
{
    double bytes = r->sum.calls > 0 ? (double)r->sum.bytes / (double)r->sum.calls : 0;

    if (r->op.shape[0] != '\0')
        snprintf(text, size, "%s", r->op.shape);
    else if (bytes <= 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, bytes < 1e6 ? "%.1f kB" : "%.1f MB",
                 bytes < 1e6 ? bytes / 1e3 : bytes / 1e6);
}

static void print_figure(double value, int width, int digits)
{
    if (value > 0)
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void print_row(const struct ops_row *r, bool ranks)
{
    char size[32];

    size_text(r, size, sizeof(size));
    if (ranks)
        printf("%4d ", r->rank);
    printf("%-10s %-16s %-22s %-13s %9llu %10.1f %6.2f%s", r->op.layer[0] ? r->op.layer : "-",
           r->op.pass, r->op.op, size, (unsigned long long)r->sum.calls, (double)r->sum.ns / 1e6,
           100 * r->share, r->overlaps ? "*" : " ");
    print_figure(r->gflop_s, 8, 1);
    print_figure(r->gb_s, 7, 2);
    print_figure(r->peak_pct, 6, 1);
    printf("\n");
}

static void print_head(const struct ops_list *l, const struct ops_args *args, bool ranks)
{
    int i;

    printf("# %s: %d rank%s, %.1f s of training each\n", args->rank, l->n_ranks,
           l->n_ranks == 1 ? "" : "s", l->seconds);
    for (i = 0; i < l->n_peaks; i++)
        printf("# peak of %s with %d thread%s: %.1f GFLOP/s (matrix product), %.1f GB/s (memory)\n",
               l->peaks[i].host, l->peaks[i].threads, l->peaks[i].threads == 1 ? "" : "s",
               l->peaks[i].gflop_s, l->peaks[i].gb_s);
    printf("# * runs beside the other rows, so shares add up to more than 100 %%\n");
    if (ranks)
        printf("rank ");
    printf("%-10s %-16s %-22s %-13s %9s %10s %7s %8s %7s %6s\n", "layer", "pass", "operation",
           "output", "calls", "ms", "share %", "GFLOP/s", "GB/s", "peak %");
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Returns the rank that was asked for: OPS_ALL, OPS_EACH or a number; -3: something else. */
static int parse_rank(const char *text)
{
    int64_t rank;

    if (strcmp(text, "all") == 0)
        return OPS_ALL;
    if (strcmp(text, "each") == 0)
        return OPS_EACH;
    return vb_parse_int(text, &rank) && rank >= 0 && rank < VB_WORLD_MAX ? (int)rank : -3;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct ops_args args;
    struct vb_opt_group groups[] = {{"Options", ops_opts, VB_COUNT(ops_opts), &args}};
    struct ops_list list = {0};
    struct vb_opts parsed;
    vb_status st;
    int rank, i, rc = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands == 0)
        return cli_refuse(&cli_ops, "the run is missing: name a folder that train --run has made");
    rank = parse_rank(args.rank);
    if (rank == -3)
        return cli_refuse(&cli_ops, "--rank must be a number, all or each");
    st = cli_ops_read(parsed.operands[0], rank, (enum ops_by)args.by, &list);
    if (st == VB_OK && !args.json)
        print_head(&list, &args, rank == OPS_EACH);
    for (i = 0; i < list.n && st == VB_OK; i++)
        if (args.json)
            st = print_json(&list.rows[i]);
        else
            print_row(&list.rows[i], rank == OPS_EACH);
    cli_ops_free(&list);
    return cli_finish(cli_exit_code(st));
}

const struct cli_command cli_ops = {
    .name = "ops",
    .summary = "show the operations of a run: layers, collectives, updates",
    .usage = "RUN [--rank R] [--by op|layer|pass] [--json]",
    .about =
        "Shows what RUN, a folder that train --run has made, spent its time on: each layer and\n"
        "pass with its kernel, collectives, updates and waits, with GFLOP/s or GB/s and the part\n"
        "of the measured peak of the machine that this is. RUN may still be training.\n"
        "\n"
        "  verbena ops runs/lenet\n"
        "  verbena ops runs/lenet --rank each --json",
    .details =
        "GFLOP/s count the operations of a direct computation. GB/s count each array of an\n"
        "operation once; of a collective, its vector. The peak is that of a matrix product and of\n"
        "memory with the threads of a rank; an operation is compared with the one that it comes\n"
        "nearer to. It is measured once, on the host of the run, and kept in RUN.",
    .run = run,
};
