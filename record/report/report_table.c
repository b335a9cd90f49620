/* SPDX-License-Identifier: MIT */
#include "record/report/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

void vb_table_text(struct vb_table *t, const char *text)
{
    int room;
    char **cells;

    if (t == NULL)
        return;
    if (t->n_next == t->room) {
        room = t->room > 0 ? 2 * t->room : 64;
        cells = realloc(t->cells, (size_t)room * sizeof(*cells));
        if (cells == NULL)
            return;
        t->cells = cells;
        t->room = room;
    }
    t->cells[t->n_next++] = strdup(text != NULL ? text : "");
}

void vb_table_format(struct vb_table *t, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    vb_table_text(t, text);
}

void vb_table_real(struct vb_table *t, double value)
{
    char text[32];

    vb_number_text(value, text, sizeof(text));
    vb_table_text(t, text);
}

struct vb_table *vb_table_create(const char *name, const char *title, const char *heads)
{
    struct vb_table *t = calloc(1, sizeof(*t));
    const char *from, *end;

    if (t == NULL) {
        (void)vb_err_sys("calloc");
        return NULL;
    }
    snprintf(t->name, sizeof(t->name), "%s", name);
    snprintf(t->title, sizeof(t->title), "%s", title);
    for (from = heads; t->n_cols < VB_TABLE_COLS; from = end + 1) {
        end = strchrnul(from, '|');
        t->numbers[t->n_cols++] = *from == '#';
        from += *from == '#' ? 1 : 0;
        vb_table_format(t, "%.*s", (int)(end - from), from);
        if (*end == '\0')
            break;
    }
    return t;
}

void vb_table_destroy(struct vb_table *t)
{
    int i;

    if (t == NULL)
        return;
    for (i = 0; i < t->n_next; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

int vb_table_rows(const struct vb_table *t)
{
    return t != NULL && t->n_next > 0 ? t->n_next / t->n_cols - 1 : 0;
}

const char *vb_table_cell(const struct vb_table *t, int row, int col)
{
    const char *text = t->cells[row * t->n_cols + col];

    return text != NULL ? text : "";
}

static void html_row(const struct vb_table *t, int row, FILE *out)
{
    int col;

    fprintf(out, "<tr>");
    for (col = 0; col < t->n_cols; col++) {
        const char *name = row == 0 || col == 0 ? "th" : "td";

        fprintf(out, "<%s%s%s>", name,
                row == 0   ? " scope=\"col\""
                : col == 0 ? " scope=\"row\""
                           : "",
                t->numbers[col] ? " class=\"num\"" : "");
        vb_html_text(out, vb_table_cell(t, row, col));
        fprintf(out, "</%s>", name);
    }
    fprintf(out, "</tr>\n");
}

void vb_table_html(const struct vb_table *t, FILE *out)
{
    int row, rows = vb_table_rows(t);

    fprintf(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    vb_html_text(out, t->title);
    fprintf(out, "\"><table id=\"table-");
    vb_html_text(out, t->name);
    fprintf(out, "\"><caption>");
    vb_html_text(out, t->title);
    fprintf(out, "</caption><thead>");
    html_row(t, 0, out);
    fprintf(out, "</thead><tbody>\n");
    for (row = 1; row <= rows; row++)
        html_row(t, row, out);
    fprintf(out, "</tbody></table></div>\n");
}

void vb_table_csv(const struct vb_table *t, FILE *out)
{
    int row, col, rows = vb_table_rows(t);

    for (row = 0; row <= rows; row++)
        for (col = 0; col < t->n_cols; col++) {
            vb_csv_text(out, vb_table_cell(t, row, col));
            fputc(col + 1 < t->n_cols ? ',' : '\n', out);
        }
}
