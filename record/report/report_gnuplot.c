/* SPDX-License-Identifier: MIT
 *
 * The same plots for gnuplot, which makes PNG files of them. Texts come from files: they are in
 * single quotes, where gnuplot replaces nothing.
 */
#include "record/report/report_priv.h"

#include <math.h>

void vb_gnuplot_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text != '\0'; text++)
        if (*text == '\'')
            fprintf(out, "''");
        else
            fputc((unsigned char)*text < 0x20 || *text == 0x7f || *text == '`' ? '?' : *text, out);
    fputc('\'', out);
}

static void number(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, " %.9g", value);
    else
        fprintf(out, " NaN");
}

/* A line for each point: x, y, low and high; of areas and bars, the sums below and above. */
static void data(const struct vb_plot *plot, int i, FILE *out)
{
    const struct vb_plot_series *s = &plot->series[i];
    int k;

    fprintf(out, "$s%d << END\n", i);
    for (k = 0; k < s->n; k++) {
        const struct vb_plot_point *p = &s->points[k];
        double below = plot->kind == VB_PLOT_LINES ? 0 : vb_plot_below(plot, i, k);
        double high = below + (p->y > 0 ? p->y : 0);

        if (k > 0 && p->x < s->points[k - 1].x)
            fputc('\n', out); /* the line begins again */
        number(out, p->x);
        number(out, p->y);
        number(out, plot->kind == VB_PLOT_LINES ? p->low : below);
        number(out, plot->kind == VB_PLOT_LINES ? p->high : high);
        fputc('\n', out);
    }
    fprintf(out, "END\n");
}

static void axes(const struct vb_plot *plot, FILE *out)
{
    struct plot_span span;
    struct vb_axis y;
    int i;

    vb_plot_span(plot, &span);
    vb_axis_init(&y, span.y_low, span.y_high, plot->y_log, true, 8);
    if (!(span.x_high > span.x_low))
        span.x_high = span.x_low + 1;
    fprintf(out, "set xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", span.x_low, span.x_high, y.low,
            y.high);
    if (plot->x_whole && span.x_high - span.x_low <= VB_TICKS_MAX)
        fprintf(out, "set xtics 1\n");
    if (plot->x_log && span.x_low > 0)
        fprintf(out, "set logscale x\n");
    if (y.log)
        fprintf(out, "set logscale y\n");
    if (plot->kind == VB_PLOT_BARS) {
        fprintf(out, "set xtics (");
        for (i = 0; i < plot->n_bars; i++) {
            fprintf(out, i > 0 ? ", " : "");
            vb_gnuplot_text(out, plot->bars[i]);
            fprintf(out, " %d", i);
        }
        fprintf(out, ")%s\n", plot->n_bars > 6 ? " rotate by -40" : "");
    }
    for (i = 0; i < plot->n_marks; i++) {
        if (plot->marks[i].x < span.x_low || plot->marks[i].x > span.x_high)
            continue;
        fprintf(out, "set arrow from %.9g, graph 0 to %.9g, graph 1 nohead dt 2\nset label ",
                plot->marks[i].x, plot->marks[i].x);
        vb_gnuplot_text(out, plot->marks[i].text);
        fprintf(out, " at %.9g, graph %.2f offset 1,0\n", plot->marks[i].x, 0.95 - 0.05 * (i % 4));
    }
}

static void draw_series(const struct vb_plot *plot, int i, FILE *out)
{
    static const int dashes[] = {1, 2, 3, 4, 1, 2, 3, 4};
    static const int shapes[] = {7, 5, 9, 13};
    const struct vb_plot_series *s = &plot->series[i];
    const char *colour = s->thin ? "#888888" : vb_plot_colours[s->look];

    fprintf(out, i > 0 ? ", " : "plot ");
    if (plot->kind == VB_PLOT_LINES) {
        fprintf(out,
                "$s%d using 1:3:4 with filledcurves fs transparent solid 0.2 lc rgb '%s' notitle, ",
                i, colour);
        fprintf(out, "$s%d using 1:2 with %s lc rgb '%s' lw 2 dt %d", i,
                s->markers || s->n == 1 ? "linespoints" : "lines", colour, dashes[s->look]);
        if (s->markers || s->n == 1)
            fprintf(out, " pt %d", shapes[s->look % 4]);
    } else if (plot->kind == VB_PLOT_STACKED) {
        fprintf(out, "$s%d using 1:3:4 with filledcurves fs solid lc rgb '%s'", i, colour);
    } else {
        fprintf(out, "$s%d using 1:2:($1-0.35):($1+0.35):3:4 with boxxyerror fs solid lc rgb '%s'",
                i, colour);
    }
    fprintf(out, " title ");
    vb_gnuplot_text(out, s->name);
}

void vb_plot_gnuplot(const struct vb_plot *plot, const char *png, FILE *out)
{
    int i, drawn = 0;

    if (vb_plot_points(plot) == 0)
        return;
    fprintf(out, "reset\nset encoding utf8\nset terminal pngcairo noenhanced size 1200,640 "
                 "font 'Sans,13'\nset output ");
    vb_gnuplot_text(out, png);
    fprintf(out, "\nset title ");
    vb_gnuplot_text(out, plot->title);
    fprintf(out, "\nset xlabel ");
    vb_gnuplot_text(out, plot->x_label);
    fprintf(out, "\nset ylabel ");
    vb_gnuplot_text(out, plot->y_label);
    fprintf(out,
            "\nset border 3\nset tics nomirror\nset grid ytics back lt 1 lc rgb '#dddddd'\n"
            "set key %s outside top horizontal left\n",
            plot->n > 1 ? "on" : "off");
    axes(plot, out);
    for (i = 0; i < plot->n; i++)
        data(plot, i, out);
    for (i = 0; i < plot->n; i++, drawn++)
        draw_series(plot, i, out);
    fprintf(out, "\nunset output\n");
}
