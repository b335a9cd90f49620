/* SPDX-License-Identifier: MIT
 *
 * The time line as data for the page, as an SVG file, and as a table of its operations.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <stdlib.h>

#define WIDTH 1200
#define LEFT 150
#define ROW 16
#define GAP 8
#define TOP 40

void report_trace_json(const struct report_timeline *l, FILE *out)
{
    int i;

    fprintf(out, "{\"end\":%.1f,\"tracks\":[", l->end_us);
    for (i = 0; i < l->n_tracks; i++) {
        fprintf(out, "%s{\"name\":", i > 0 ? "," : "");
        vb_html_json(out, l->tracks[i].name);
        fprintf(out, ",\"depths\":%d}", l->tracks[i].depths);
    }
    fprintf(out, "],\"names\":[");
    for (i = 0; i < l->n_names; i++) {
        fprintf(out, "%s[", i > 0 ? "," : "");
        vb_html_json(out, l->names[i].text);
        fprintf(out, ",%d]", l->names[i].look);
    }
    fprintf(out, "],\"pieces\":[");
    for (i = 0; i < l->n; i++) {
        const struct report_piece *p = &l->pieces[i];

        fprintf(out, "%s%d,%d,%d,%.1f,%.1f", i > 0 ? "," : "", p->track, p->depth, p->name,
                p->begin_us, p->us);
    }
    fprintf(out, "]}");
}

static double track_top(const struct report_timeline *l, int track)
{
    double y = TOP;
    int i;

    for (i = 0; i < track; i++)
        y += ROW * l->tracks[i].depths + GAP;
    return y;
}

static void svg_piece(const struct report_timeline *l, const struct report_piece *p,
                      const struct vb_axis *axis, FILE *out)
{
    double x = LEFT + (WIDTH - LEFT - 10) * vb_axis_part(axis, p->begin_us / 1e3);
    double width = (WIDTH - LEFT - 10) * p->us / 1e3 / (axis->high - axis->low);
    double y = track_top(l, p->track) + ROW * p->depth;
    const struct report_name *name = &l->names[p->name];

    if (width < 0.25) /* cannot be seen */
        return;
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
            "stroke=\"#fff\" stroke-width=\".3\"><title>",
            x, y, width, ROW - 2, vb_plot_colours[name->look]);
    vb_html_text(out, name->text);
    fprintf(out, ", %.1f us</title></rect>\n", p->us);
    if (width < 6.5 * (double)strlen(name->text) + 6)
        return;
    fprintf(out, "<text class=\"in\" x=\"%.1f\" y=\"%.1f\">", x + 3, y + 11);
    vb_html_text(out, name->text);
    fprintf(out, "</text>\n");
}

void report_trace_svg(const struct report_timeline *l, FILE *out)
{
    double height = track_top(l, l->n_tracks) + 30;
    struct vb_axis axis;
    int i;

    vb_axis_init(&axis, 0, l->end_us / 1e3, false, false, 12);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
            "height=\"%.0f\"><title>Time line</title><style>text{font:12px system-ui,"
            "\"DejaVu Sans\",sans-serif;fill:#333}.in{fill:#fff;font-size:11px}.mid{text-anchor:"
            "middle}</style><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"8\" y=\"20\" style=\"font-size:15px;font-weight:600\">Time line of ",
            WIDTH, height, WIDTH, height);
    vb_html_text(out, l->label);
    fprintf(out, " (ms)</text>\n");
    for (i = 0; i < axis.n; i++) {
        double x = LEFT + (WIDTH - LEFT - 10) * vb_axis_part(&axis, axis.ticks[i]);

        fprintf(out,
                "<path stroke=\"#ddd\" d=\"M%.1f %dV%.1f\"/><text class=\"mid\" x=\"%.1f\" "
                "y=\"%.1f\">%s</text>\n",
                x, TOP - 4, height - 24, x, height - 8, axis.labels[i]);
    }
    for (i = 0; i < l->n_tracks; i++) {
        fprintf(out, "<text x=\"8\" y=\"%.1f\">", track_top(l, i) + 11);
        vb_html_text(out, l->tracks[i].name);
        fprintf(out, "</text>\n");
    }
    for (i = 0; i < l->n; i++)
        svg_piece(l, &l->pieces[i], &axis, out);
    fprintf(out, "</svg>\n");
}

static int by_ms(const void *x, const void *y)
{
    const struct report_name *a = x, *b = y;

    return a->ms > b->ms ? -1 : a->ms < b->ms;
}

struct vb_table *report_trace_table(const struct report_timeline *l)
{
    struct report_name *sorted = calloc((size_t)l->n_names + 1, sizeof(*sorted));
    struct vb_table *t = vb_table_create("trace", "Operations in the trace, all ranks",
                                         "operation|#calls|#ms|#us a call");
    int i;

    if (sorted == NULL)
        return t;
    memcpy(sorted, l->names, (size_t)l->n_names * sizeof(*sorted));
    qsort(sorted, (size_t)l->n_names, sizeof(*sorted), by_ms);
    for (i = 0; i < l->n_names; i++) {
        vb_table_text(t, sorted[i].text);
        vb_table_format(t, "%lld", (long long)sorted[i].calls);
        vb_table_real(t, sorted[i].ms);
        vb_table_real(t, 1e3 * sorted[i].ms / (double)sorted[i].calls);
    }
    free(sorted);
    return t;
}

void report_trace_gnuplot(const struct report_timeline *l, const char *png, FILE *out)
{
    int i, rows = 0, first[REPORT_TRACKS] = {0};

    for (i = 0; i < l->n_tracks; i++) {
        first[i] = rows;
        rows += l->tracks[i].depths + 1;
    }
    fprintf(out,
            "reset\nset encoding utf8\nset terminal pngcairo noenhanced size 1400,%d "
            "font 'Sans,11'\nset output ",
            160 + 18 * rows);
    vb_gnuplot_text(out, png);
    fprintf(out,
            "\nset title 'Time line'\nset xlabel 'ms'\nset border 1\nset tics nomirror\n"
            "set xrange [0:%.9g]\nset yrange [%d:0]\nset ytics (",
            l->end_us / 1e3, rows);
    for (i = 0; i < l->n_tracks; i++) {
        fprintf(out, i > 0 ? ", " : "");
        vb_gnuplot_text(out, l->tracks[i].name);
        fprintf(out, " %g", first[i] + 0.5);
    }
    fprintf(out, ")\n$pieces << END\n");
    for (i = 0; i < l->n; i++) {
        const struct report_piece *p = &l->pieces[i];
        double y = first[p->track] + p->depth;

        fprintf(out, "%.6g %g %.9g %.9g %g %g 0x%s\n", p->begin_us / 1e3, y + 0.5,
                p->begin_us / 1e3, (p->begin_us + p->us) / 1e3, y + 0.08, y + 0.92,
                vb_plot_colours[l->names[p->name].look] + 1);
    }
    fprintf(out, "END\nplot $pieces using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder "
                 "lc rgb variable notitle\nunset output\n");
}
