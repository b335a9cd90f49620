/* SPDX-License-Identifier: MIT
 *
 * Reads libsvm text. Each line is a row: "LABEL INDEX:VALUE INDEX:VALUE ...". Indices start at 1,
 * and # starts a comment. The label -1 becomes 0. Index 1 becomes feature 0.
 */
#include "data/data_priv.h"

#include <math.h>
#include <string.h>

static vb_status refuse(const struct line_reader *r, const char *what, const char *token)
{
    return vb_err(VB_ERR_INPUT, "%s: line %lld: %s: '%.32s'", r->stream->path,
                  (long long)r->stream->line, what, token);
}

/* Returns the next word of a line, terminated by zero, or NULL at the end of the line. */
static char *word(char **rest)
{
    char *start = *rest + strspn(*rest, " \t\r");
    size_t len = strcspn(start, " \t\r");

    if (len == 0)
        return NULL;
    *rest = start[len] != '\0' ? start + len + 1 : start + len;
    start[len] = '\0';
    return start;
}

static vb_status parse_entry(struct line_reader *r, char *token)
{
    char *colon = strchr(token, ':');
    char why[VB_OPTS_WHY];
    int64_t index;
    double value = 1;

    if (colon == NULL)
        return refuse(r, "an entry is not INDEX:VALUE", token);
    *colon = '\0';
    if (!vb_parse_int(token, &index))
        return refuse(r, "the index is not a whole number", token);
    if (index < 1)
        return refuse(r, "indices begin at 1", token);
    if (!vb_index_fits(index - 1, r->features, why))
        return refuse(r, why, token);
    if (strcmp(colon + 1, "1") != 0 && !vb_parse_real(colon + 1 + (colon[1] == '+'), &value))
        return refuse(r, "the value is not a number", colon + 1);
    if (fabs(value) > VALUE_MAX)
        return refuse(r,
                      "the value is too large, scale the data: its square is infinite as a float",
                      colon + 1);
    return vb_row_buf_add(&r->row, (uint32_t)(index - 1), (float)value);
}

/* Parses a line and puts its row into the sink. An empty line is not a row. */
static vb_status parse_line(struct line_reader *r, char *line, size_t len)
{
    char *rest = line, *token, twice[16];
    const char *wrong;
    vb_status st = VB_OK;
    double label;

    if (strlen(line) != len)
        return refuse(r, "there is a zero byte in the line that starts with", line);
    line[strcspn(line, "#")] = '\0';
    token = word(&rest);
    if (token == NULL)
        return VB_OK;
    if (!vb_parse_real(token + (token[0] == '+'), &label))
        return refuse(r, "the label is not a number", token);
    wrong = vb_sink_label(r->sink, label);
    if (wrong != NULL)
        return refuse(r, wrong, token);
    r->row.n = 0;
    while (st == VB_OK && (token = word(&rest)) != NULL)
        st = parse_entry(r, token);
    if (st != VB_OK)
        return st;
    if (vb_row_buf_sort(&r->row) > 0) {
        snprintf(twice, sizeof(twice), "%llu", r->row.twice + 1ull);
        return refuse(r, "an index occurs twice", twice);
    }
    return vb_sink_put(r->sink, &r->row, label > 0);
}

vb_status vb_libsvm_read(const char *path, int features, struct row_sink *sink)
{
    return vb_read_lines(path, features, parse_line, sink);
}
