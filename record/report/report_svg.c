/* SPDX-License-Identifier: MIT
 *
 * Draws a plot as SVG: a legend, the unit above the axis, ticks, and the series. In a page the
 * colours are those of its style sheet, which has a light and a dark form.
 */
#include "record/report/report_priv.h"

#include <math.h>

#define LETTER 6.9 /* mean width of a letter at 12 pixels, in a wide font */
#define LEGEND_ROW 18
#define SWATCH 26 /* width of the sample of a line, with its gap */

const struct vb_svg_size vb_svg_wide = {560, 280, false, "wide"};
const struct vb_svg_size vb_svg_narrow = {360, 270, false, "narrow"};
const struct vb_svg_size vb_svg_file = {800, 400, true, "file"};

struct canvas {
    const struct vb_plot *plot;
    const struct vb_svg_size *size;
    FILE *out;
    double left, right, top, bottom; /* the edges of the area in pixels */
    struct vb_axis x, y;
};

static double x_at(const struct canvas *c, double x)
{
    double part = fmin(fmax(vb_axis_part(&c->x, x), 0), 1);

    return c->left + part * (c->right - c->left);
}

static double y_at(const struct canvas *c, double y)
{
    double part = fmin(fmax(vb_axis_part(&c->y, y), 0), 1);

    return c->bottom - part * (c->bottom - c->top);
}

/* ---- legend ---------------------------------------------------------------------------------- */

static double legend_width(const struct vb_plot_series *s)
{
    return SWATCH + LETTER * (double)strlen(s->name) + 14;
}

static void legend_item(const struct canvas *c, const struct vb_plot_series *s, double x, double y)
{
    fprintf(c->out, "<g class=\"c%d\">", s->look);
    if (c->plot->kind == VB_PLOT_LINES) {
        fprintf(c->out, "<path class=\"ln d%d%s\" d=\"M%.1f %.1fh20\"/>", s->look,
                s->thin ? " ideal" : "", x, y - 4);
    } else {
        fprintf(c->out, "<rect class=\"ar\" x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"11\"/>", x,
                y - 10);
        if (s->hatch > 0)
            fprintf(c->out,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"11\" "
                    "fill=\"url(#vb-hatch%d)\"/>",
                    x, y - 10, s->hatch);
    }
    fprintf(c->out, "<text x=\"%.1f\" y=\"%.1f\">", x + SWATCH, y);
    vb_html_text(c->out, s->name);
    fprintf(c->out, "</text></g>\n");
}

/* Draws the legend from line y on, or only measures it. Returns the line after it. */
static double legend(const struct canvas *c, double y, bool draw)
{
    double x = 8;
    int i;

    if (c->plot->n < 2)
        return y;
    y += LEGEND_ROW;
    for (i = 0; i < c->plot->n; i++) {
        const struct vb_plot_series *s = &c->plot->series[i];

        if (x > 8 && x + legend_width(s) > c->size->width) {
            x = 8;
            y += LEGEND_ROW;
        }
        if (draw)
            legend_item(c, s, x, y - 5);
        x += legend_width(s);
    }
    return y;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static void y_axis(const struct canvas *c)
{
    int i;

    fprintf(c->out, "<g class=\"grid\">");
    for (i = 0; i < c->y.n; i++)
        fprintf(c->out, "<path d=\"M%.1f %.1fH%.1f\"/>", c->left, y_at(c, c->y.ticks[i]), c->right);
    fprintf(c->out, "</g>\n<g class=\"tick\">");
    for (i = 0; i < c->y.n; i++)
        fprintf(c->out, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", c->left - 6,
                y_at(c, c->y.ticks[i]) + 4, c->y.labels[i]);
    fprintf(c->out, "<text class=\"unit\" x=\"%.1f\" y=\"%.1f\">", fmin(c->left, 8), c->top - 10);
    vb_html_text(c->out, c->plot->y_label);
    fprintf(c->out, "%s</text></g>\n", c->y.log ? " (log)" : "");
}

static void x_ticks(const struct canvas *c)
{
    int i;

    for (i = 0; i < c->x.n; i++) {
        double x = x_at(c, c->x.ticks[i]);
        bool last = x + LETTER * (double)strlen(c->x.labels[i]) / 2 > c->size->width - 2;

        fprintf(c->out,
                "<path class=\"notch\" d=\"M%.1f %.1fv4\"/><text class=\"%s\" x=\"%.1f\" "
                "y=\"%.1f\">%s</text>",
                x, c->bottom, last ? "end" : "mid", last ? c->size->width - 2.0 : x, c->bottom + 17,
                c->x.labels[i]);
    }
}

/* Names of bars; if they do not all fit, every second, third ... */
static void bar_names(const struct canvas *c)
{
    double slot = (c->right - c->left) / fmax(c->plot->n_bars, 1);
    size_t longest = 1;
    int i, each;

    for (i = 0; i < c->plot->n_bars; i++)
        longest = strlen(c->plot->bars[i]) > longest ? strlen(c->plot->bars[i]) : longest;
    each = (int)ceil((LETTER * (double)longest + 8) / slot);
    if (c->plot->n_bars <= 6)
        each = 1;
    for (i = 0; i < c->plot->n_bars; i += each < 1 ? 1 : each) {
        int room = (int)(slot * each / LETTER), len = (int)strlen(c->plot->bars[i]);
        char name[56];

        snprintf(name, sizeof(name), len > room && room > 2 ? "%.*s.." : "%.*s",
                 len > room && room > 2 ? room - 2 : len, c->plot->bars[i]);
        fprintf(c->out, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">", x_at(c, i), c->bottom + 17);
        vb_html_text(c->out, name);
        fprintf(c->out, "</text>");
    }
}

static void x_axis(const struct canvas *c)
{
    fprintf(c->out, "<g class=\"tick\"><path class=\"base\" d=\"M%.1f %.1fH%.1f\"/>", c->left,
            c->bottom, c->right);
    if (c->plot->kind == VB_PLOT_BARS)
        bar_names(c);
    else
        x_ticks(c);
    fprintf(c->out, "<text class=\"end unit\" x=\"%.1f\" y=\"%.1f\">", c->right, c->bottom + 34);
    vb_html_text(c->out, c->plot->x_label);
    fprintf(c->out, "%s</text></g>\n", c->x.log ? " (log)" : "");
}

/* The texts of marks that may be close to each other are on several lines. */
static void put_marks(const struct canvas *c)
{
    bool left;
    double x;
    int i;

    for (i = 0; i < c->plot->n_marks; i++) {
        x = x_at(c, c->plot->marks[i].x);
        if (!(x >= c->left - 1 && x <= c->right + 1))
            continue;
        left = x > (c->left + c->right) / 2;
        fprintf(c->out,
                "<g class=\"mark\"><path d=\"M%.1f %.1fV%.1f\"/><text class=\"%s\" x=\"%.1f\" "
                "y=\"%.1f\">",
                x, c->top, c->bottom, left ? "end" : "begin", x + (left ? -6 : 6),
                c->top + 12 + 13 * (i % 4));
        vb_html_text(c->out, c->plot->marks[i].text);
        fprintf(c->out, "</text></g>\n");
    }
}

/* ---- series ---------------------------------------------------------------------------------- */

static void marker(const struct canvas *c, int look, double x, double y)
{
    switch (look % 4) {
    case 0:
        fprintf(c->out, "<circle class=\"mk\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>", x, y);
        break;
    case 1:
        fprintf(c->out, "<path class=\"mk\" d=\"M%.1f %.1fh6v6h-6z\"/>", x - 3, y - 3);
        break;
    case 2:
        fprintf(c->out, "<path class=\"mk\" d=\"M%.1f %.1fl3.6 6.4h-7.2z\"/>", x, y - 4);
        break;
    default:
        fprintf(c->out, "<path class=\"mk\" d=\"M%.1f %.1fl4 4-4 4-4-4z\"/>", x, y - 4);
    }
}

/* A line ends at a gap, and where x goes back: steps that were made again. */
static bool continues(const struct vb_plot_series *s, int k)
{
    return k > 0 && isfinite(s->points[k - 1].y) && s->points[k].x >= s->points[k - 1].x;
}

static void line_path(const struct canvas *c, const struct vb_plot_series *s)
{
    int k;

    fprintf(c->out, "<path class=\"ln d%d%s\" d=\"", s->look, s->thin ? " ideal" : "");
    for (k = 0; k < s->n; k++)
        if (isfinite(s->points[k].y))
            fprintf(c->out, "%c%.1f %.1f", continues(s, k) ? 'L' : 'M', x_at(c, s->points[k].x),
                    y_at(c, s->points[k].y));
    fprintf(c->out, "\"/>");
}

/* The area between the lowest and the highest value of each bucket, one piece for each run of
 * points without a gap. */
static void band_path(const struct canvas *c, const struct vb_plot_series *s)
{
    int from, to, k;

    fprintf(c->out, "<path class=\"bd\" d=\"");
    for (from = 0; from < s->n; from = to) {
        to = from + 1;
        if (!isfinite(s->points[from].y))
            continue;
        while (to < s->n && isfinite(s->points[to].y) && continues(s, to))
            to++;
        for (k = from; k < to; k++)
            fprintf(c->out, "%c%.1f %.1f", k == from ? 'M' : 'L', x_at(c, s->points[k].x),
                    y_at(c, s->points[k].high));
        for (k = to - 1; k >= from; k--)
            fprintf(c->out, "L%.1f %.1f", x_at(c, s->points[k].x), y_at(c, s->points[k].low));
        fputc('z', c->out);
    }
    fprintf(c->out, "\"/>");
}

static void draw_line(const struct canvas *c, const struct vb_plot_series *s)
{
    bool range = false;
    int k;

    for (k = 0; k < s->n && !range; k++)
        range = s->points[k].low < s->points[k].high;
    if (range)
        band_path(c, s);
    line_path(c, s);
    for (k = 0; k < s->n; k++) {
        const struct vb_plot_point *p = &s->points[k];
        bool alone = !continues(s, k) && (k + 1 == s->n || !isfinite(s->points[k + 1].y));

        if (isfinite(p->y) && (s->markers || alone))
            marker(c, s->look, x_at(c, p->x), y_at(c, p->y));
        if (p->bad)
            fprintf(c->out, "<path class=\"bad\" d=\"M%.1f %.1fv-9\"/>", x_at(c, p->x), c->bottom);
    }
}

static void area_path(const struct canvas *c, int i, const char *attributes)
{
    const struct vb_plot_series *s = &c->plot->series[i];
    double y;
    int k;

    fprintf(c->out, "<path %s d=\"", attributes);
    for (k = 0; k < s->n; k++) {
        y = vb_plot_below(c->plot, i, k) + (s->points[k].y > 0 ? s->points[k].y : 0);
        fprintf(c->out, "%c%.1f %.1f", k == 0 ? 'M' : 'L', x_at(c, s->points[k].x), y_at(c, y));
    }
    for (k = s->n - 1; k >= 0; k--)
        fprintf(c->out, "L%.1f %.1f", x_at(c, s->points[k].x),
                y_at(c, vb_plot_below(c->plot, i, k)));
    fprintf(c->out, "z\"/>");
}

static void bar_rects(const struct canvas *c, int i, const char *attributes)
{
    const struct vb_plot_series *s = &c->plot->series[i];
    double slot = (c->right - c->left) / fmax(c->plot->n_bars, 1), width = fmin(0.7 * slot, 64);
    int k;

    for (k = 0; k < s->n; k++) {
        double below = vb_plot_below(c->plot, i, k), low = y_at(c, below);
        double high = y_at(c, below + (s->points[k].y > 0 ? s->points[k].y : 0));

        fprintf(c->out, "<rect %s x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.2f\"/>",
                attributes, x_at(c, s->points[k].x) - width / 2, high, width, fmax(low - high, 0));
    }
}

static void draw_area(const struct canvas *c, int i)
{
    void (*draw)(const struct canvas *, int, const char *) =
        c->plot->kind == VB_PLOT_BARS ? bar_rects : area_path;
    char hatch[48];

    if (c->plot->series[i].n == 0)
        return;
    draw(c, i, "class=\"ar\"");
    if (c->plot->series[i].hatch == 0)
        return;
    snprintf(hatch, sizeof(hatch), "fill=\"url(#vb-hatch%d)\"", c->plot->series[i].hatch);
    draw(c, i, hatch);
}

/* ---- the whole ------------------------------------------------------------------------------- */

void vb_svg_patterns(FILE *out)
{
    fprintf(
        out,
        "<defs><pattern id=\"vb-hatch1\" width=\"6\" height=\"6\" "
        "patternUnits=\"userSpaceOnUse\"><path d=\"M-1 7L7-1M-1 1L1-1M5 7L7 5\" "
        "class=\"hatch\" stroke=\"#fff\" stroke-opacity=\".65\" stroke-width=\"1.2\"/></pattern>"
        "<pattern id=\"vb-hatch2\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
        "<circle class=\"dots\" cx=\"2.5\" cy=\"2.5\" r=\"1\" fill=\"#fff\" fill-opacity=\".75\"/>"
        "</pattern></defs>\n");
}

/* Programs that draw SVG files know no variables of style sheets, so colours stand for themselves.
 */
static void own_style(FILE *out)
{
    static const char *const dashes[VB_PLOT_LOOKS] = {"none", "7 3", "2 2.5", "9 3 2 3",
                                                      "none", "7 3", "2 2.5", "9 3 2 3"};
    int i;

    fprintf(out,
            "<style>text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\","
            "sans-serif;fill:#333}.title{font-size:15px;font-weight:600;fill:#111}"
            ".end{text-anchor:end}.mid{text-anchor:middle}.unit{fill:#555}"
            ".grid path{stroke:#e3e3e3;fill:none}.base,.notch{stroke:#888;fill:none}"
            ".ln{fill:none;stroke-width:1.8;stroke-linejoin:round}.bd{opacity:.2}"
            ".ar{stroke:#fff;stroke-width:.7}.bad{stroke:#c00;stroke-width:2}"
            ".mark path{stroke:#333;stroke-dasharray:4 3;fill:none}"
            ".ln.ideal{stroke:#888;stroke-width:1.2;stroke-dasharray:3 3}");
    for (i = 0; i < VB_PLOT_LOOKS; i++)
        fprintf(out,
                ".c%d .ln{stroke:%s}.c%d .bd,.c%d .mk,.c%d .ar{fill:%s}.d%d{stroke-dasharray:%s}",
                i, vb_plot_colours[i], i, i, i, vb_plot_colours[i], i, dashes[i]);
    fprintf(out, "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
}

static void measure(struct canvas *c)
{
    struct plot_span span;
    size_t widest = 1;
    int i, max_ticks;

    vb_plot_span(c->plot, &span);
    c->top = legend(c, c->size->alone ? 34 : 2, false) + 24;
    c->bottom = c->size->height - 40;
    vb_axis_init(&c->y, span.y_low, span.y_high, c->plot->y_log, true,
                 (int)fmax((c->bottom - c->top) / 33, 3));
    for (i = 0; i < c->y.n; i++)
        widest = strlen(c->y.labels[i]) > widest ? strlen(c->y.labels[i]) : widest;
    c->left = LETTER * (double)widest + 14;
    c->right = c->size->width - 12;
    max_ticks = (int)((c->right - c->left) / (c->size->width < 400 ? 50 : 66));
    if (c->plot->x_whole && span.x_high - span.x_low + 1 < max_ticks)
        max_ticks = (int)(span.x_high - span.x_low + 1);
    vb_axis_init(&c->x, span.x_low, span.x_high, c->plot->x_log, false, max_ticks);
}

static void open_svg(const struct canvas *c)
{
    fprintf(c->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot %s\" role=\"img\" "
            "viewBox=\"0 0 %d %d\" data-area=\"%.1f %.1f %.1f %.1f\" "
            "data-x=\"%.9g %.9g %d\" data-y=\"%.9g %.9g %d\"",
            c->size->css, c->size->width, c->size->height, c->left, c->right, c->top, c->bottom,
            c->x.low, c->x.high, c->x.log, c->y.low, c->y.high, c->y.log);
    if (c->size->alone)
        fprintf(c->out, " width=\"%d\" height=\"%d\"", c->size->width, c->size->height);
    fprintf(c->out, ">\n<title>");
    vb_html_text(c->out, c->plot->title);
    fprintf(c->out, "</title>\n");
    if (!c->size->alone)
        return;
    own_style(c->out);
    vb_svg_patterns(c->out);
    fprintf(c->out, "<text class=\"title\" x=\"8\" y=\"22\">");
    vb_html_text(c->out, c->plot->title);
    fprintf(c->out, "</text>\n");
}

void vb_plot_svg(const struct vb_plot *plot, const struct vb_svg_size *size, FILE *out)
{
    struct canvas c = {.plot = plot, .size = size, .out = out};
    int i;

    measure(&c);
    open_svg(&c);
    (void)legend(&c, size->alone ? 34 : 2, true);
    y_axis(&c);
    for (i = 0; i < plot->n; i++) {
        fprintf(out, "<g class=\"series c%d\">", plot->series[i].look);
        if (plot->kind == VB_PLOT_LINES)
            draw_line(&c, &plot->series[i]);
        else
            draw_area(&c, i);
        fprintf(out, "</g>\n");
    }
    x_axis(&c);
    put_marks(&c);
    fprintf(out, "</svg>\n");
}
