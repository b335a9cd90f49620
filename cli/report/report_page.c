/* SPDX-License-Identifier: MIT
 *
 * The page. It loads nothing: style, script, plots and data are inside. Without a script it still
 * shows everything but the time line's zoom.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

struct page {
    const struct report *report;
    const struct report_out *files;
    FILE *out;
};

static const char *const titles[REPORT_SECTIONS] = {[REPORT_COMPARE] = "Differences",
                                                    [REPORT_VERDICT] = "Verdict",
                                                    [REPORT_LEARNING] = "Learning and speed",

                                                    [REPORT_TIME] = "Where the time goes",
                                                    [REPORT_TRACE] = "Time line",
                                                    [REPORT_USE] = "Resources",
                                                    [REPORT_MACHINE] = "Machine and options"};

static const char *const anchors[REPORT_SECTIONS] = {"differences", "verdict",   "learning", "time",
                                                     "timeline",    "resources", "machine"};

/* Writes a path in a link. */
static void link_text(const struct page *p, const char *folder, const char *name, const char *end)
{
    const unsigned char *c;

    for (c = (const unsigned char *)folder; *c != '\0'; c++)
        fprintf(p->out,
                (*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z') || *c == '-' ||
                        *c == '_' || *c == '.'
                    ? "%c"
                    : "%%%02X",
                *c);
    fputc('/', p->out);
    vb_html_text(p->out, name);
    fprintf(p->out, ".%s", end);
}

static void file_link(const struct page *p, const char *folder, const char *name, const char *end,
                      const char *text)
{
    fprintf(p->out, "<a href=\"");
    link_text(p, folder, name, end);
    fprintf(p->out, "\">%s</a> ", text);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void panel(const struct page *p, const struct vb_plot *plot)
{
    fprintf(p->out, "<div class=\"panel\" data-plot=\"");
    vb_html_text(p->out, plot->name);
    fprintf(p->out, "\"><div class=\"chart\" tabindex=\"0\" role=\"group\" aria-label=\"");
    vb_html_text(p->out, plot->title);
    fprintf(p->out, ": arrow keys read the values\">\n");
    vb_plot_svg(plot, &vb_svg_wide, p->out);
    vb_plot_svg(plot, &vb_svg_narrow, p->out);
    fprintf(p->out, "</div><script type=\"application/json\">");
    vb_plot_json(plot, p->out);
    fprintf(p->out, "</script><div class=\"files\">");
    file_link(p, p->files->plots, plot->name, "svg", "SVG");
    if (p->files->n_png > 0)
        file_link(p, p->files->plots, plot->name, "png", "PNG");
    file_link(p, p->files->plots, plot->name, "csv", "CSV");
    fprintf(p->out, "<details class=\"values\"><summary>Table</summary></details></div></div>\n");
}

static void figure(const struct page *p, const struct report_figure *f)
{
    int i;

    if (f->n == 0)
        return;
    fprintf(p->out, "<figure id=\"fig-%s\"><h3>", f->id);
    vb_html_text(p->out, f->title);
    fprintf(p->out, "</h3>");
    for (i = 0; i < f->n && f->n > 1; i++) {
        fprintf(
            p->out,
            "<input type=\"radio\" name=\"tab-%s\" id=\"tab-%s-%d\"%s><label for=\"tab-%s-%d\">",
            f->id, f->id, i, i == 0 ? " checked" : "", f->id, i);
        vb_html_text(p->out, f->tabs[i]);
        fprintf(p->out, "</label>");
    }
    fprintf(p->out, "<div class=\"panels\">");
    for (i = 0; i < f->n; i++)
        panel(p, f->plots[i]);
    fprintf(p->out, "</div>");
    if (f->note[0] != '\0') {
        fprintf(p->out, "<figcaption>");
        vb_html_text(p->out, f->note);
        fprintf(p->out, "</figcaption>");
    }
    fprintf(p->out, "</figure>\n");
}

static void table(const struct page *p, const struct vb_table *t, bool folded)
{
    if (folded) {
        fprintf(p->out, "<details class=\"fold\"><summary>");
        vb_html_text(p->out, t->title);
        fprintf(p->out, " (%d row%s)</summary>", vb_table_rows(t),
                vb_table_rows(t) == 1 ? "" : "s");
    }
    fprintf(p->out, "<div class=\"table\">");
    vb_table_html(t, p->out);
    fprintf(p->out, "<div class=\"files\">");
    file_link(p, p->files->tables, t->name, "csv", "CSV");
    fprintf(p->out, "</div></div>%s\n", folded ? "</details>" : "");
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void tile(const struct page *p, const char *name, double value, const char *unit)
{
    char text[32];

    if (!isfinite(value))
        return;
    vb_number_text(value, text, sizeof(text));
    fprintf(p->out, "<div><dt>%s</dt><dd><b>%s</b><small>%s</small></dd></div>\n", name, text,
            unit);
}

static double peak(const struct report_run *run, const char *key)
{
    int i, n = vb_json_get_count(run->json, "per_rank");
    double most = (double)NAN;
    char keys[64];

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "per_rank.%d.%s", i, key);
        most = fmax(most, report_real(run, keys));
    }
    return most;
}

static void tiles(const struct page *p, const struct report_run *run)
{
    fprintf(p->out, "<dl class=\"tiles\">");
    tile(p, "Accuracy on test data", 100 * report_real(run, "accuracy"), " %");
    tile(p, "Loss on test data", report_real(run, "loss"), "");
    tile(p, "Speed", report_real(run, "steps_per_s"), " steps/s");
    tile(p, "Throughput", report_real(run, "samples_per_s"), " samples/s");
    tile(p, "Training", report_real(run, "train_s"), " s");
    tile(p, "Whole command", report_real(run, "wall_s"), " s");
    tile(p, "Steps", (double)run->top.step, "");
    tile(p, "Time to the condition", report_real(run, "until.time_to_s"), " s");
    tile(p, "CPU of a rank, peak", peak(run, "cpu_pct_peak"), " %");
    tile(p, "Memory of a rank, peak", peak(run, "rss_peak_mb"), " MB");
    tile(p, "Sent by a rank, mean", peak(run, "send_mb_s"), " MB/s");
    fprintf(p->out, "</dl>\n");
}

static void list_texts(const struct page *p, const struct report_run *run, const char *keys,
                       const char *before)
{
    int i, n = vb_json_get_count(run->json, keys);
    char item[64];

    for (i = 0; i < n && i < 20; i++) {
        snprintf(item, sizeof(item), "%s.%d", keys, i);
        fprintf(p->out, "<p class=\"warn\">%s", before);
        vb_html_text(p->out, report_text(run, item));
        fprintf(p->out, "</p>\n");
    }
}

/* Writes a sentence; a percent sign stays with its number. */
static void sentence(const struct page *p, const char *text)
{
    const char *end;
    char part[1024];

    while ((end = strstr(text, " %")) != NULL) {
        snprintf(part, sizeof(part), "%.*s", (int)(end - text), text);
        vb_html_text(p->out, part);
        fprintf(p->out, "&nbsp;%%");
        text = end + 2;
    }
    vb_html_text(p->out, text);
}

static void verdict(const struct page *p, const struct report_run *run)
{
    struct report_verdict v;
    char text[512];
    int i;

    report_verdict(run, &v);
    fprintf(p->out, "<div class=\"verdict\" data-state=\"");
    vb_html_text(p->out, run->top.state);
    fprintf(p->out, "\">");
    if (p->report->n_runs > 1) {
        fprintf(p->out, "<h3>");
        vb_html_text(p->out, run->label);
        fprintf(p->out, "</h3>");
    }
    fprintf(p->out, "<p class=\"lead\">");
    sentence(p, v.first);
    fprintf(p->out, "</p><p>");
    sentence(p, v.second);
    fprintf(p->out, "</p>");
    for (i = 0; i < run->n_gaps; i++) {
        fprintf(p->out, "<p class=\"warn\">Gap: ");
        vb_html_text(p->out, run->gaps[i]);
        fprintf(p->out, "</p>");
    }
    for (i = 0; report_lost_sentence(run, i, text, sizeof(text)); i++) {
        fprintf(p->out, "<p class=\"warn\">");
        vb_html_text(p->out, text);
        fprintf(p->out, "</p>");
    }
    list_texts(p, run, "warnings", "Warning: ");
    list_texts(p, run, "run.injected", "An experiment, with an injected fault: ");
    if (run->top.replayed[0] != '\0')
        fprintf(p->out,
                "<p class=\"warn\">Computing was replayed, not done: nothing was learnt.</p>");
    fprintf(p->out, "</div>\n");
}

static void verdicts(const struct page *p)
{
    int i;

    for (i = 0; i < p->report->n_runs; i++)
        verdict(p, p->report->runs[i]);
    if (p->report->n_runs == 1)
        tiles(p, p->report->runs[0]);
}

/* ---- the time line --------------------------------------------------------------------------- */

static void timeline(const struct page *p)
{
    const struct report_timeline *l = &p->report->line;

    fprintf(p->out, "<figure id=\"fig-timeline\" class=\"all\"><h3>Trace of all ranks%s",
            p->report->n_runs > 1 ? " of " : "");
    if (p->report->n_runs > 1)
        vb_html_text(p->out, l->label);
    fprintf(
        p->out,
        "</h3><div class=\"bar\"><button type=\"button\" data-zoom=\"in\" aria-label=\"zoom "
        "in\">+</button><button type=\"button\" data-zoom=\"out\" aria-label=\"zoom "
        "out\">&minus;</button><button type=\"button\" data-zoom=\"left\" aria-label=\"earlier\">"
        "&larr;</button><button type=\"button\" data-zoom=\"right\" aria-label=\"later\">&rarr;"
        "</button><button type=\"button\" data-zoom=\"all\">All</button><output></output></div>"
        "<canvas tabindex=\"0\" role=\"img\" aria-label=\"Time line of threads and collectives. "
        "Plus and minus zoom, arrows move, 0 shows all.\"></canvas>"
        "<script type=\"application/json\">");
    report_trace_json(l, p->out);
    fprintf(p->out, "</script><div class=\"files\">");
    file_link(p, p->files->plots, "timeline", "svg", "SVG");
    if (p->files->n_png > 0)
        file_link(p, p->files->plots, "timeline", "png", "PNG");
    fprintf(p->out, "</div><figcaption>Mouse wheel, + and &minus; zoom; drag and arrows move; 0 "
                    "shows all. Calls inside calls are below them.");
    if (l->left_out > 0)
        fprintf(p->out, " The %lld shortest pieces are left out.", (long long)l->left_out);
    if (l->lost > 0)
        fprintf(p->out, " %lld events found no room while the run went on.", (long long)l->lost);
    fprintf(p->out, " <noscript>The picture needs a script; the file timeline.svg does not."
                    "</noscript></figcaption></figure>\n");
}

/* ---- sections -------------------------------------------------------------------------------- */

static bool has_section(const struct report *report, enum report_section section)
{
    int i;

    if (section == REPORT_VERDICT)
        return true;
    if (section == REPORT_TRACE)
        return report->line.n > 0;
    for (i = 0; i < report->n_figures; i++)
        if (report->figures[i].section == section && report->figures[i].n > 0)
            return true;
    for (i = 0; i < report->n_tables; i++)
        if (report->tables[i].section == section)
            return true;
    return false;
}

static void section(const struct page *p, enum report_section section)
{
    const struct report *r = p->report;
    int i;

    if (!has_section(r, section))
        return;
    fprintf(p->out, "<section id=\"%s\"><h2>%s</h2>\n", anchors[section], titles[section]);
    if (section == REPORT_VERDICT)
        verdicts(p);
    fprintf(p->out, "<div class=\"figures\">\n");
    for (i = 0; i < r->n_figures; i++)
        if (r->figures[i].section == section)
            figure(p, &r->figures[i]);
    if (section == REPORT_TRACE)
        timeline(p);
    fprintf(p->out, "</div>\n");
    for (i = 0; i < r->n_tables; i++)
        if (r->tables[i].section == section)
            table(p, r->tables[i].table, r->tables[i].folded);
    fprintf(p->out, "</section>\n");
}

static void heading(const struct page *p, bool plain)
{
    const struct report_run *run = p->report->runs[0];

    if (p->report->n_runs > 1) {
        fprintf(p->out, "%d runs compared", p->report->n_runs);
        return;
    }
    vb_html_text(p->out, run->top.model);
    fprintf(p->out, plain ? ", " : " <span>");
    vb_html_text(p->out, run->top.mode);
    fprintf(p->out, ", %d rank%s%s", run->top.n_ranks, run->top.n_ranks == 1 ? "" : "s",
            plain ? "" : "</span>");
}

static void sub_heading(const struct page *p)
{
    int i;

    for (i = 0; i < p->report->n_runs; i++) {
        const struct report_run *run = p->report->runs[i];

        fprintf(p->out, "<span class=\"chip\" data-state=\"");
        vb_html_text(p->out, run->top.state);
        fprintf(p->out, "\"><b>");
        vb_html_text(p->out, run->label);
        fprintf(p->out, "</b> ");
        vb_html_text(p->out, run->top.state);
        fprintf(p->out, ", started ");
        vb_html_text(p->out, report_text(run, "run.started"));
        fprintf(p->out, "</span> ");
    }
}

static void head(const struct page *p)
{
    fprintf(p->out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                    "<link rel=\"icon\" href=\"data:,\">\n<title>");
    heading(p, true);
    fprintf(p->out, " - Verbena report</title>\n<style>\n");
    fwrite(report_css, 1, report_css_bytes, p->out);
    fprintf(p->out,
            "</style></head>\n<body><a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
            "<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"defs\">");
    vb_svg_patterns(p->out);
    fprintf(p->out, "</svg>\n<header><div><p class=\"kicker\">Verbena report</p><h1>");
    heading(p, false);
    fprintf(p->out, "</h1><p class=\"sub\">");
    sub_heading(p);
    fprintf(p->out, "</p></div><button type=\"button\" id=\"theme\" aria-label=\"light or dark "
                    "page\">Theme</button></header>\n");
}

static vb_status print_page(const void *arg, FILE *out)
{
    struct page p = *(const struct page *)arg;
    int i;

    p.out = out;
    head(&p);
    fprintf(out, "<nav aria-label=\"Contents\">");
    for (i = 0; i < REPORT_SECTIONS; i++)
        if (has_section(p.report, (enum report_section)i))
            fprintf(out, "<a href=\"#%s\">%s</a> ", anchors[i], titles[i]);
    fprintf(out, "</nav>\n<main id=\"main\">\n");
    for (i = 0; i < REPORT_SECTIONS; i++)
        section(&p, (enum report_section)i);
    fprintf(out,
            "</main>\n<footer>Made by verbena report from the run folder%s; every plot is also "
            "a file, every table also CSV.</footer>\n"
            "<div id=\"tip\" role=\"status\" aria-live=\"polite\" hidden></div>\n<script>\n",
            p.report->n_runs > 1 ? "s" : "");
    fwrite(report_js, 1, report_js_bytes, out);
    fprintf(out, "</script></body></html>\n");
    return VB_OK;
}

vb_status report_write_page(const struct report *report, struct report_out *out)
{
    struct page p = {.report = report, .files = out};

    return vb_file_print(out->page, print_page, &p, &out->page_bytes);
}
