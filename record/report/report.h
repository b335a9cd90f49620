/* SPDX-License-Identifier: MIT
 *
 * What a report is made of: rows that are thinned, plots and tables. A plot becomes SVG, CSV, data
 * for a page, or a script for gnuplot; a table becomes HTML or CSV. Nothing here reads a file.
 */
#ifndef VB_RECORD_REPORT_REPORT_H
#define VB_RECORD_REPORT_REPORT_H

#include "base/base.h"

/* ---- text ------------------------------------------------------------------------------------ */

/* Write text that may come from a file. Bytes that are no text become '?'. NULL is "". */
void vb_html_text(FILE *out, const char *text);    /* in HTML and SVG, also in attributes */
void vb_html_json(FILE *out, const char *text);    /* a JSON string in a script element */
void vb_csv_text(FILE *out, const char *text);     /* one field */
void vb_gnuplot_text(FILE *out, const char *text); /* a text in quotes, also a path */

/* Writes a number with four digits, such as 1234, 12.3 k or 0.00123. "-" if it is not finite. */
void vb_number_text(double value, char *text, size_t size);

/* ---- thinning -------------------------------------------------------------------------------- */

/* Rows are joined into a bounded number of buckets. A bucket keeps the lowest and the highest value
 * of each column, so that a single spike among a million rows stays visible. */
struct vb_thin_cell {
    double sum, low, high; /* of the finite values */
    int64_t n;             /* finite values */
    int64_t bad;           /* values that are not finite */
};

struct vb_thin {
    struct vb_thin_cell *cells; /* (buckets, columns) */
    int64_t stride;             /* rows of a bucket */
    int n, n_cols;
};

/* Joins `rows` rows into at most `points` buckets. The caller calls vb_thin_free(). */
vb_status vb_thin_init(struct vb_thin *thin, int64_t rows, int points, int n_cols);
void vb_thin_free(struct vb_thin *thin);

/* Adds a row. values has n_cols elements. Rows from `rows` on are left out. */
void vb_thin_add(struct vb_thin *thin, int64_t row, const double *values);

/* Returns a cell, and its mean: NAN if it has no finite value. */
const struct vb_thin_cell *vb_thin_at(const struct vb_thin *thin, int bucket, int col);
double vb_thin_mean(const struct vb_thin *thin, int bucket, int col);

/* ---- axes ------------------------------------------------------------------------------------ */

#define VB_TICKS_MAX 16

struct vb_axis {
    double low, high; /* ends of the axis */
    double ticks[VB_TICKS_MAX];
    char labels[VB_TICKS_MAX][16];
    int n;
    bool log;
};

/* Makes an axis with at most max_ticks ticks at round numbers. A linear axis is widened to its
 * outer ticks if `widen`. Ends that are equal or not finite are replaced by some that are drawable.
 */
void vb_axis_init(struct vb_axis *axis, double low, double high, bool log, bool widen,
                  int max_ticks);

/* Returns where a value is: 0 at the low end, 1 at the high end. Not cut. */
double vb_axis_part(const struct vb_axis *axis, double value);

/* ---- plots ----------------------------------------------------------------------------------- */

struct vb_plot_point {
    double x, y;      /* y NAN: a gap */
    double low, high; /* the range that y stands for; equal to y: none */
    bool bad;         /* a value here was not finite */
};

#define VB_PLOT_LOOKS 8 /* colours, line styles and markers */

struct vb_plot_series {
    char name[72];
    struct vb_plot_point *points;
    int n, room;
    int look;     /* colour, line style and marker, 0 to VB_PLOT_LOOKS - 1 */
    int hatch;    /* of an area: 0 none, 1 stripes, 2 dots */
    bool markers; /* draw a marker at each point */
    bool thin;    /* a thin dashed line: something to compare with */
};

enum vb_plot_kind {
    VB_PLOT_LINES,
    VB_PLOT_STACKED, /* areas on top of each other; all series have the same x */
    VB_PLOT_BARS,    /* bars at x = 0, 1, ..., series on top of each other */
};

/* A vertical line. */
#define VB_PLOT_MARKS 8
struct vb_plot_mark {
    double x;
    char text[64];
};

#define VB_PLOT_SERIES 24
#define VB_PLOT_BARS_MAX 64

struct vb_plot {
    char name[64]; /* of its files */
    char title[128], x_label[48], y_label[48];
    enum vb_plot_kind kind;
    bool x_log, y_log;
    bool y_zero;  /* the axis begins with 0 */
    bool x_whole; /* x has whole numbers only */
    struct vb_plot_series series[VB_PLOT_SERIES];
    int n;
    char (*bars)[48]; /* names of bars; VB_PLOT_BARS_MAX elements */
    int n_bars;
    double y_cut; /* higher values are drawn at the upper edge; 0: none is */
    struct vb_plot_mark marks[VB_PLOT_MARKS];
    int n_marks;
};

/* The caller calls vb_plot_destroy(). */
struct vb_plot *vb_plot_create(enum vb_plot_kind kind, const char *name);
void vb_plot_destroy(struct vb_plot *plot);

/* Adds a series. Returns NULL if there is no room for one more. */
struct vb_plot_series *vb_plot_add(struct vb_plot *plot, const char *name);
/* Without memory, points are left out. */
void vb_plot_point(struct vb_plot_series *series, double x, double y);
void vb_plot_range(struct vb_plot_series *series, double x, const struct vb_thin_cell *cell,
                   double scale);
/* Adds a mark, unless there are too many or x is not finite. */
void vb_plot_mark(struct vb_plot *plot, double x, const char *fmt, ...) VB_PRINTF(3, 4);
vb_status vb_plot_name_bars(struct vb_plot *plot, const char *const *names, int n);

/* Returns the number of points with a value. */
int vb_plot_points(const struct vb_plot *plot);

/* Returns a logarithmic axis if a curve falls or grows so far that a linear one would hide it. */
bool vb_plot_wants_log(const struct vb_plot *plot);

/* Cuts the axis of a plot that a few high values would make unreadable. Returns the share of points
 * that are higher, 0 if nothing is cut. */
double vb_plot_cut(struct vb_plot *plot);

struct vb_svg_size {
    int width, height;
    bool alone;      /* a file of its own, with its colours; otherwise part of a page */
    const char *css; /* class of the element */
};

extern const struct vb_svg_size vb_svg_wide, vb_svg_narrow, vb_svg_file;

void vb_plot_svg(const struct vb_plot *plot, const struct vb_svg_size *size, FILE *out);
void vb_plot_csv(const struct vb_plot *plot, FILE *out);
void vb_plot_json(const struct vb_plot *plot, FILE *out); /* for the script of a page */

/* Writes commands that let gnuplot draw the plot to a PNG file. */
void vb_plot_gnuplot(const struct vb_plot *plot, const char *png, FILE *out);

/* The shapes that areas are hatched with, for a page or an SVG file. */
void vb_svg_patterns(FILE *out);

/* Colours of looks on a light page. */
extern const char *const vb_plot_colours[VB_PLOT_LOOKS];

/* ---- tables ---------------------------------------------------------------------------------- */

#define VB_TABLE_COLS 24

struct vb_table {
    char name[64], title[128];
    char **cells; /* (rows, columns); the first row is the head */
    int n_rows, n_cols, room, n_next;
    bool numbers[VB_TABLE_COLS]; /* the column is aligned to the right */
};

/* heads: names of columns, separated by '|'; a column that begins with '#' has numbers. The caller
 * calls vb_table_destroy(). */
struct vb_table *vb_table_create(const char *name, const char *title, const char *heads);
void vb_table_destroy(struct vb_table *table);

/* Add the next cell; n_cols cells are a row. Without memory, cells are empty. */
void vb_table_text(struct vb_table *table, const char *text);
void vb_table_real(struct vb_table *table, double value);
void vb_table_format(struct vb_table *table, const char *fmt, ...) VB_PRINTF(2, 3);

int vb_table_rows(const struct vb_table *table); /* whole rows, without the head */
const char *vb_table_cell(const struct vb_table *table, int row, int col); /* row 0: the head */

void vb_table_html(const struct vb_table *table, FILE *out);
void vb_table_csv(const struct vb_table *table, FILE *out);

#endif
