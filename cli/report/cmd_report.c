/* SPDX-License-Identifier: MIT
 *
 * verbena report: makes one page of one or several runs.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <stdlib.h>

struct report_args {
    const char *out, *bench;
    bool no_png, json;
};

#define FIELD(name) offsetof(struct report_args, name)

static const struct vb_opt report_opts[] = {
    {"out", VB_OPT_TEXT, FIELD(out), NULL, .arg = "FILE.html",
     .help = "the page; plots and tables go to folders beside it. By default report.html in the "
             "folder of the run; of several runs, in this folder"},
    {"bench", VB_OPT_TEXT, FIELD(bench), NULL, .arg = "FILE",
     .help = "output of 'verbena bench step --json': shows from which batch on computing hides the "
             "transfer"},
    {"no-png", VB_OPT_FLAG, FIELD(no_png), .help = "do not let gnuplot draw PNG files"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object on one line instead of text"},
};

/* ---- labels ---------------------------------------------------------------------------------- */

/* Returns the last n parts of a path, without slashes at its end. */
static void tail_of(const char *path, int n, char *text, size_t size)
{
    size_t len = strlen(path), from;

    while (len > 1 && path[len - 1] == '/')
        len--;
    for (from = len; from > 0; from--)
        if (path[from - 1] == '/' && from < len && --n == 0)
            break;
    if (len - from >= size)
        from = len - size + 1;
    snprintf(text, size, "%.*s", (int)(len - from), path + from);
}

/* Names runs by the end of their paths, as much of it as tells them apart. */
static void label_runs(struct report *report)
{
    char path[PATH_MAX];
    bool same = true;
    int n, i, k;

    for (n = 1; same && n < 6; n++) {
        same = false;
        for (i = 0; i < report->n_runs; i++) {
            const char *dir = report->runs[i]->top.dir; /* may be "." */

            tail_of(realpath(dir, path) != NULL ? path : dir, n, report->runs[i]->label,
                    sizeof(report->runs[i]->label));
        }
        for (i = 0; i < report->n_runs; i++)
            for (k = 0; k < i; k++)
                same = same || strcmp(report->runs[i]->label, report->runs[k]->label) == 0;
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints a text of a file. Bytes that could control the terminal become '?'. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++)
        putchar((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e ? '?' : *text);
}

static void print_figure(const char *name, double value, const char *unit)
{
    char text[32];

    if (!isfinite(value))
        return;
    vb_number_text(value, text, sizeof(text));
    printf("%-12s%s%s\n", name, text, unit);
}

static void print_run(const struct report_run *run, bool several)
{
    struct report_verdict v;
    char text[512];
    int i;

    report_verdict(run, &v);
    if (several) {
        printf("\n");
        print_text(run->label);
        printf("\n");
    }
    print_text(v.first);
    printf(" ");
    print_text(v.second);
    printf("\n");
    for (i = 0; report_lost_sentence(run, i, text, sizeof(text)); i++) {
        print_text(text);
        printf("\n");
    }
    for (i = 0; i < run->n_gaps; i++) {
        printf("gap: ");
        print_text(run->gaps[i]);
        printf("\n");
    }
    print_figure("accuracy", 100 * report_real(run, "accuracy"), " %");
    print_figure("loss", report_real(run, "loss"), "");
    print_figure("speed", report_real(run, "steps_per_s"), " steps/s");
    print_figure("throughput", report_real(run, "samples_per_s"), " samples/s");
    print_figure("training", report_real(run, "train_s"), " s");
}

/* asked: the user wants no PNG files. */
static void print_summary(const struct report *report, const struct report_out *out, bool asked)
{
    int i;

    for (i = 0; i < report->n_runs; i++)
        print_run(report->runs[i], report->n_runs > 1);
    printf("\nreport      %s (%.0f kB)\nfiles       %d SVG, %d PNG and %d CSV files in %s/%s and "
           "%s/%s\n",
           out->page, (double)out->page_bytes / 1e3, out->n_svg, out->n_png, out->n_csv,
           out->folder, out->plots, out->folder, out->tables);
    if (out->no_png[0] != '\0' && !asked)
        printf("no PNG      %s\n", out->no_png);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_run(struct vb_json *json, const struct report_run *run)
{
    static const char *const keys[] = {"accuracy",      "loss",    "steps_per_s",
                                       "samples_per_s", "train_s", "wall_s"};
    struct report_verdict v;
    size_t k;
    int i;

    report_verdict(run, &v);
    vb_json_object(json, NULL);
    vb_json_text(json, "run", run->top.dir);
    vb_json_text(json, "label", run->label);
    vb_json_text(json, "model", run->top.model);
    vb_json_text(json, "mode", run->top.mode);
    vb_json_text(json, "state", run->top.state);
    vb_json_int(json, "step", run->top.step);
    vb_json_int(json, "steps", run->top.steps);
    vb_json_int(json, "ranks", run->top.n_ranks);
    vb_json_text(json, "verdict", v.first);
    vb_json_text(json, "then", v.second);
    for (k = 0; k < VB_COUNT(keys); k++)
        vb_json_real(json, keys[k], report_real(run, keys[k]));
    if (!vb_json_copy(json, "bottleneck", run->json, "bottleneck"))
        vb_json_text(json, "bottleneck", NULL);
    vb_json_array(json, "gaps");
    for (i = 0; i < run->n_gaps; i++)
        vb_json_text(json, NULL, run->gaps[i]);
    vb_json_end(json);
    report_json_lost(json, run);
    vb_json_end(json);
}

static void json_plots(struct vb_json *json, const struct report *report)
{
    int i, k;

    vb_json_array(json, "plots");
    for (i = 0; i < report->n_figures; i++)
        for (k = 0; k < report->figures[i].n; k++) {
            vb_json_object(json, NULL);
            vb_json_text(json, "name", report->figures[i].plots[k]->name);
            vb_json_int(json, "series", report->figures[i].plots[k]->n);
            vb_json_int(json, "points", vb_plot_points(report->figures[i].plots[k]));
            vb_json_end(json);
        }
    vb_json_end(json);
    vb_json_array(json, "tables");
    for (i = 0; i < report->n_tables; i++)
        vb_json_text(json, NULL, report->tables[i].table->name);
    vb_json_end(json);
}

static vb_status print_json(const struct report *report, const struct report_out *out)
{
    struct vb_json *json = cli_json_object();
    int i;

    vb_json_text(json, "page", out->page);
    vb_json_int(json, "page_bytes", (int64_t)out->page_bytes);
    vb_json_text(json, "plots_dir", out->plots);
    vb_json_text(json, "tables_dir", out->tables);
    vb_json_int(json, "svg", out->n_svg);
    vb_json_int(json, "png", out->n_png);
    vb_json_int(json, "csv", out->n_csv);
    vb_json_text(json, "no_png", out->no_png[0] != '\0' ? out->no_png : NULL);
    vb_json_int(json, "trace_pieces", report->line.n);
    vb_json_int(json, "trace_left_out", report->line.left_out);
    json_plots(json, report);
    vb_json_array(json, "runs");
    for (i = 0; i < report->n_runs; i++)
        json_run(json, report->runs[i]);
    vb_json_end(json);
    return cli_print_json(json);
}

/* ---- the command ----------------------------------------------------------------------------- */

static vb_status read_runs(struct report *report, const struct vb_opts *parsed)
{
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < parsed->n_operands && st == VB_OK; i++) {
        struct report_run *run = calloc(1, sizeof(*run));

        if (run == NULL)
            return vb_err_sys("calloc");
        report->runs[report->n_runs++] = run;
        st = report_open(run, parsed->operands[i]);
    }
    label_runs(report);
    for (i = 0; i < report->n_runs && st == VB_OK && report->line.n == 0; i++)
        st = report_trace(report->runs[i], &report->line);
    return st;
}

static vb_status make(struct report *report)
{
    report_compare(report);
    report_curves(report);
    report_scaling(report);
    report_phases(report);
    report_usage(report);
    report_tables(report);
    if (report->line.n > 0)
        report_add_table(report, REPORT_TRACE, report_trace_table(&report->line), true);
    return report_bench(report);
}

static void free_report(struct report *report)
{
    int i, k;

    for (i = 0; i < report->n_figures; i++)
        for (k = 0; k < report->figures[i].n; k++)
            vb_plot_destroy(report->figures[i].plots[k]);
    for (i = 0; i < report->n_tables; i++)
        vb_table_destroy(report->tables[i].table);
    for (i = 0; i < report->n_runs; i++)
        report_close(report->runs[i]);
    report_trace_free(&report->line);
    free(report);
}

static vb_status write_all(struct report *report, const struct report_args *args)
{
    struct report_out out;
    vb_status st = report_out_init(&out, args->out, report);

    if (st == VB_OK)
        st = report_write_files(report, &out, !args->no_png);
    if (st == VB_OK)
        st = report_write_page(report, &out);
    if (st != VB_OK)
        return st;
    if (args->json)
        return print_json(report, &out);
    print_summary(report, &out, args->no_png);
    return VB_OK;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct report_args args;
    struct vb_opt_group groups[] = {{"Options", report_opts, VB_COUNT(report_opts), &args}};
    struct report *report;
    struct vb_opts parsed;
    vb_status st;
    int rc = cli_parse(command, groups, VB_COUNT(groups), REPORT_RUNS, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands == 0)
        return cli_refuse(&cli_report,
                          "the run is missing: name one or more folders that train --run has made");
    report = calloc(1, sizeof(*report));
    if (report == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    report->bench = args.bench;
    st = read_runs(report, &parsed);
    if (st == VB_OK)
        st = make(report);
    if (st == VB_OK)
        st = write_all(report, &args);
    free_report(report);
    return cli_finish(cli_exit_code(st));
}

const struct cli_command cli_report = {
    .name = "report",
    .summary = "make one page of runs: verdict, plots, tables",
    .usage = "RUN... [--out FILE.html] [--bench FILE] [--no-png] [--json]",
    .about =
        "Makes one page, report.html, of RUN, a folder that train --run has made: the verdict "
        "with\n"
        "its evidence, key figures, curves of loss, accuracy and speed, where the time goes, what\n"
        "each rank and host used, the trace, machine and options. Several runs are compared. The\n"
        "page needs no network. Each plot is also an SVG, a PNG (by gnuplot) and a CSV file, each\n"
        "table a CSV file. RUN may still be training.\n"
        "\n"
        "  verbena report runs/lenet\n"
        "  verbena report runs/n1 runs/n2 runs/n3 --out scaling.html",
    .details =
        "Runs that differ in ranks get a curve of the speed-up; runs that differ in batch, one of\n"
        "transfer against compute. Long runs are thinned: a point stands for several steps, with\n"
        "their lowest and highest value. Files that are broken leave a gap that the page names.",
    .run = run,
};
