/* SPDX-License-Identifier: MIT
 *
 * The parts of a report: text from files cannot break out of HTML, JSON, CSV or gnuplot, thinning
 * keeps spikes, axes have round ticks, plots and tables keep their values.
 *
 * Covers: record/report/report_axis.c record/report/report_gnuplot.c record/report/report_plot.c
 * Covers: record/report/report_span.c record/report/report_svg.c record/report/report_table.c
 * Covers: record/report/report_text.c record/report/report_thin.c
 */
#include "record/record.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>

static const char hostile[] = "</script><script>alert('x')</script>\"&`\x1b[31m\xff\xe2\x80\xae";

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns what a function has written; the caller frees it. */
static char *written(void (*fn)(FILE *out, const char *text), const char *text)
{
    char *got = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&got, &len);

    assert_true(out != NULL);
    fn(out, text);
    fclose(out);
    return got;
}

static void expect(void (*fn)(FILE *out, const char *text), const char *text, const char *want)
{
    char *got = written(fn, text);

    if (!(strcmp(got, want) == 0))
        fail_msg("'%s' became '%s', expected '%s'", text, got, want);
    free(got);
}

static void text_is_escaped(void **state)
{
    char *got = written(vb_html_text, hostile), number[32];

    (void)state;
    assert_true(strpbrk(got, "<>\"'`\x1b\xff") == NULL);
    assert_true(strstr(got, "\xe2\x80\xae") == NULL); /* would turn the text around */
    free(got);
    got = written(vb_html_json, hostile);
    assert_true(strpbrk(got, "<>&'\x1b\xff") == NULL);
    assert_true(got[0] == '"' && got[strlen(got) - 1] == '"' &&
                strchr(got + 1, '"') == got + strlen(got) - 1);
    free(got);
    expect(vb_html_text, "a<b & \"c\"", "a&#60;b &#38; &#34;c&#34;");
    expect(vb_html_text, "h\xc3\xb6he", "h\xc3\xb6he");
    expect(vb_html_text, NULL, "");
    expect(vb_html_json, "a\\b\n", "\"a\\u005cb?\"");
    expect(vb_csv_text, "plain", "plain");
    expect(vb_csv_text, "a,\"b\"", "\"a,\"\"b\"\"\"");
    expect(vb_gnuplot_text, "it's `ls`", "'it''s ?ls?'");
    vb_number_text(0.2682, number, sizeof(number));
    assert_true(strcmp(number, "0.2682") == 0);
    vb_number_text(64290.5, number, sizeof(number));
    assert_true(strcmp(number, "64.29 k") == 0);
    vb_number_text(30000, number, sizeof(number));
    assert_true(strcmp(number, "30000") == 0);
    vb_number_text((double)NAN, number, sizeof(number));
    assert_true(strcmp(number, "-") == 0);
}

/* ---- thinning -------------------------------------------------------------------------------- */

static void thinning_keeps_spikes(void **state)
{
    const int64_t rows = 1000003, spike = 765432, hole = 12345;
    struct vb_thin thin;
    double values[2], high = 0, sum = 0;
    int64_t n = 0, bad = 0, row;
    int b;

    (void)state;
    assert_true(vb_thin_init(&thin, rows, 480, 2) == VB_OK);
    for (row = 0; row < rows; row++) {
        values[0] = (double)row;
        values[1] = row == spike ? 1e6 : row == hole ? (double)INFINITY : 1;
        vb_thin_add(&thin, row, values);
    }
    vb_thin_add(&thin, rows + thin.stride, values); /* a row that came later is left out */
    assert_true(thin.n <= 480 && thin.n > 240);
    for (b = 0; b < thin.n; b++) {
        const struct vb_thin_cell *cell = vb_thin_at(&thin, b, 1);

        high = fmax(high, cell->high);
        sum += cell->sum;
        n += cell->n;
        bad += cell->bad;
        assert_true(cell->low == 1);
        assert_true(b == 0 || vb_thin_mean(&thin, b, 0) > vb_thin_mean(&thin, b - 1, 0));
    }
    assert_true(high == 1e6 && n == rows - 1 && bad == 1 && sum == 1e6 + (double)(rows - 2));
    vb_thin_free(&thin);
    assert_true(vb_thin_init(&thin, 0, 480, 2) == VB_OK && thin.n == 0);
    vb_thin_add(&thin, 0, values);
    vb_thin_free(&thin);
    assert_true(vb_thin_init(&thin, 3, 480, 2) == VB_OK && thin.n == 3 && thin.stride == 1);
    assert_true(isnan(vb_thin_mean(&thin, 0, 0)));
    vb_thin_free(&thin);
}

/* ---- axes ------------------------------------------------------------------------------------ */

static void check_axis(double low, double high, bool log, int max_ticks)
{
    struct vb_axis axis;
    int i, k;

    vb_axis_init(&axis, low, high, log, true, max_ticks);
    if (!(axis.n >= 1 && axis.n <= VB_TICKS_MAX))
        fail_msg("%g to %g: %d ticks", low, high, axis.n);
    assert_true(isfinite(axis.low) && axis.high > axis.low);
    for (i = 0; i < axis.n; i++) {
        assert_true(vb_axis_part(&axis, axis.ticks[i]) > -0.01);
        assert_true(vb_axis_part(&axis, axis.ticks[i]) < 1.01);
        for (k = 0; k < i; k++)
            if (!(strcmp(axis.labels[i], axis.labels[k]) != 0))
                fail_msg("%g to %g: two ticks %s", low, high, axis.labels[i]);
    }
}

static void axes_have_round_ticks(void **state)
{
    static const double ends[][2] = {{0, 1},       {0, 10000},   {90.3, 92.6}, {-5, 5},
                                     {0, 0},       {7, 7},       {1e-9, 3e-9}, {1, 1e6},
                                     {0.02, 8.8},  {1e14, 3e14}, {0.5, 0.6},   {999, 1001},
                                     {-3, -2.999}, {1e-320, 1},  {4, 4e12}};
    struct vb_axis axis;
    size_t i;
    int n;

    (void)state;
    for (i = 0; i < VB_COUNT(ends); i++)
        for (n = 2; n < 14; n += 3) {
            check_axis(ends[i][0], ends[i][1], false, n);
            check_axis(ends[i][0], ends[i][1], true, n);
        }
    check_axis((double)NAN, 1, false, 6);
    check_axis(0, (double)INFINITY, true, 6);
    check_axis(-1e308, 1e308, false, 6);
    vb_axis_init(&axis, 99.9, 99.9, false, true, 6); /* a plot of one value */
    assert_true(axis.low == 0 && axis.high == 100);
    vb_axis_init(&axis, 0, 9700, false, true, 6);
    assert_true(axis.n == 6 && axis.high == 10000 && strcmp(axis.labels[5], "10k") == 0);
    assert_true(strcmp(axis.labels[1], "2000") == 0);
}

/* ---- plots ----------------------------------------------------------------------------------- */

static char *drawn(const struct vb_plot *plot, int what)
{
    char *got = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&got, &len);

    assert_true(out != NULL);
    if (what < 3)
        vb_plot_svg(plot,
                    what == 0   ? &vb_svg_wide
                    : what == 1 ? &vb_svg_narrow
                                : &vb_svg_file,
                    out);
    else if (what == 3)
        vb_plot_csv(plot, out);
    else if (what == 4)
        vb_plot_json(plot, out);
    else
        vb_plot_gnuplot(plot, "a'b.png", out);
    fclose(out);
    return got;
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static struct vb_plot *some_plot(enum vb_plot_kind kind)
{
    static const char *const names[] = {"one", hostile, "three"};
    struct vb_plot *plot = vb_plot_create(kind, "name");
    struct vb_thin_cell cell = {.sum = 6, .low = 1, .high = 9, .n = 2, .bad = 1};
    struct vb_plot_series *s;

    assert_true(plot != NULL);
    snprintf(plot->title, sizeof(plot->title), "%s", hostile);
    snprintf(plot->x_label, sizeof(plot->x_label), "x");
    snprintf(plot->y_label, sizeof(plot->y_label), "y");
    s = vb_plot_add(plot, hostile);
    vb_plot_point(s, 0, 2);
    vb_plot_point(s, 1, (double)NAN);
    vb_plot_range(s, 2, &cell, 1);
    s = vb_plot_add(plot, "second");
    s->hatch = 1;
    vb_plot_point(s, 0, 4);
    vb_plot_point(s, 1, 5);
    vb_plot_point(s, 2, -1);
    vb_plot_point(s, (double)NAN, 1); /* has no place */
    assert_true(vb_plot_name_bars(plot, names, 3) == VB_OK);
    return plot;
}

static void plots_are_whole(void **state)
{
    int kind, what;

    (void)state;
    for (kind = 0; kind <= VB_PLOT_BARS; kind++) {
        struct vb_plot *plot = some_plot((enum vb_plot_kind)kind);

        assert_true(vb_plot_points(plot) == 5);
        for (what = 0; what < 6; what++) {
            char *got = drawn(plot, what);

            if (!(count(got, "<script") == 0 || what == 3 || what == 5))
                fail_msg("%s", got);
            assert_true(count(got, "\x1b") == 0);
            if (what < 3) {
                assert_true(count(got, "<svg") == 1 && count(got, "</svg>") == 1);
                assert_true(count(got, "class=\"series") == 2);
                assert_true(count(got, "nan") == 0 && count(got, "inf") == 0);
                assert_true((count(got, "<style>") == 1) == (what == 2));
                assert_true(count(got, "class=\"bad\"") == (kind == VB_PLOT_LINES ? 1 : 0));
            }
            free(got);
        }
        vb_plot_destroy(plot);
    }
}

static void forms_keep_values(void **state)
{
    struct vb_plot *plot = some_plot(VB_PLOT_LINES);
    char *got = drawn(plot, 3);
    struct vb_json *json;

    (void)state;
    assert_true(count(got, "\n") == 7 && strstr(got, "second,1,5,5,5,0\n") != NULL);
    assert_true(strstr(got, ",2,3,1,9,1\n") != NULL && strstr(got, ",1,,,,0\n") != NULL);
    free(got);
    got = drawn(plot, 4);
    json = vb_json_parse(got, strlen(got));
    assert_true(json != NULL && vb_json_get_count(json, "series") == 2);
    assert_true(vb_json_get_real(json, "series.0.high.2") == 9);
    assert_true(vb_json_get_real(json, "series.1.y.2") == -1);
    vb_json_destroy(json);
    free(got);
    got = drawn(plot, 5);
    assert_true(strstr(got, "set output 'a''b.png'\n") != NULL && count(got, "$s1 << END") == 1);
    free(got);
    vb_plot_destroy(plot);
}

/* A few high values may be cut, and a long fall gets a logarithmic axis. */
static void plots_have_limits(void **state)
{
    struct vb_plot *plot = vb_plot_create(VB_PLOT_LINES, "limits");
    struct vb_plot_series *s = vb_plot_add(plot, "fall");
    int i;

    (void)state;
    for (i = 0; i < 100; i++)
        vb_plot_point(s, i, pow(0.9, i));
    assert_true(vb_plot_wants_log(plot));
    for (i = 0; i < 100; i++)
        s->points[i].y = s->points[i].low = s->points[i].high = 1 + i % 2;
    assert_true(!vb_plot_wants_log(plot) && vb_plot_cut(plot) == 0 && plot->y_cut == 0);
    s->points[50].y = s->points[50].high = 1000;
    assert_true(fabs(vb_plot_cut(plot) - 0.01) < 1e-9 && plot->y_cut == 2.5);
    for (i = 0; i < 2 * VB_PLOT_SERIES; i++)
        assert_true((vb_plot_add(plot, "more") != NULL) == (i < VB_PLOT_SERIES - 1));
    vb_plot_destroy(plot);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void tables_are_escaped(void **state)
{
    struct vb_table *t = vb_table_create("t", hostile, "name|#value|");
    char *got = NULL;
    size_t len = 0;
    FILE *out;

    (void)state;
    assert_true(t != NULL && t->n_cols == 3 && vb_table_rows(t) == 0);
    vb_table_text(t, hostile);
    vb_table_real(t, 12.5);
    vb_table_format(t, "%d", 7);
    vb_table_text(t, "cut"); /* a row that is not whole does not count */
    assert_true(vb_table_rows(t) == 1 && strcmp(vb_table_cell(t, 0, 1), "value") == 0);
    out = open_memstream(&got, &len);
    vb_table_html(t, out);
    vb_table_csv(t, out);
    fclose(out);
    assert_true(count(got, "<script") == 1 && count(got, "<tr>") == 2); /* CSV is no HTML */
    assert_non_null(strstr(got, "12.50"));
    assert_true(strstr(got, "name,value,\n") != NULL);
    free(got);
    vb_table_destroy(t);
    vb_table_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),       cmocka_unit_test(thinning_keeps_spikes),
        cmocka_unit_test(axes_have_round_ticks), cmocka_unit_test(plots_are_whole),
        cmocka_unit_test(forms_keep_values),     cmocka_unit_test(plots_have_limits),
        cmocka_unit_test(tables_are_escaped),
    };

    return T_RUN(tests);
}
