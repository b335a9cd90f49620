/* SPDX-License-Identifier: MIT
 *
 * Reads Criteo's click logs, one row a line: label, 13 numbers and 26 categories of up to 8
 * hexadecimal digits, separated by tabs. docs/data.md says which features they become.
 */
#include "data/data_priv.h"

#include <math.h>
#include <string.h>

#define NUMBERS 13
#define CATEGORIES 26
#define FIELDS (1 + NUMBERS + CATEGORIES)
#define DIGITS_MAX 8

static vb_status refuse(const struct line_reader *r, int field, const char *what, const char *text)
{
    return vb_err(VB_ERR_INPUT, "%s: line %lld: field %d: %s: '%.32s'", r->stream->path,
                  (long long)r->stream->line, field + 1, what, text);
}

/* Parses a hexadecimal number. Returns false if text is not such a number or is too long. */
static bool parse_hex(const char *text, uint64_t *value_p)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t value = 0;
    size_t i, len = strlen(text);
    const char *d;

    if (len > DIGITS_MAX)
        return false;
    for (i = 0; i < len; i++) {
        d = strchr(digits, text[i] >= 'A' && text[i] <= 'F' ? text[i] + 'a' - 'A' : text[i]);
        if (d == NULL)
            return false;
        value = value * 16 + (uint64_t)(d - digits);
    }
    *value_p = value;
    return true;
}

static vb_status take_number(struct line_reader *r, int field, const char *text)
{
    int64_t v;
    double size;

    if (!vb_parse_int(text, &v))
        return refuse(r, field, "the value is not a whole number", text);
    size = log1p(fabs((double)v));
    return v == 0 ? VB_OK
                  : vb_row_buf_add(&r->row, (uint32_t)(field - 1), (float)(v < 0 ? -size : size));
}

static vb_status take_category(struct line_reader *r, int field, const char *text)
{
    int j = field - 1 - NUMBERS;
    uint64_t c, tail = (uint64_t)(r->features - NUMBERS);

    if (!parse_hex(text, &c))
        return refuse(r, field, "the value is not a hexadecimal number of up to 8 digits", text);
    return vb_row_buf_add(&r->row, (uint32_t)(NUMBERS + vb_random((uint64_t)j, c) % tail), 1);
}

static vb_status take_field(struct line_reader *r, int field, const char *text, int *y_p)
{
    if (field == 0) {
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return refuse(r, field, "the label must be 0 or 1", text);
        *y_p = text[0] == '1';
        return VB_OK;
    }
    if (text[0] == '\0')
        return VB_OK;
    if (field <= NUMBERS)
        return take_number(r, field, text);
    return take_category(r, field, text);
}

static vb_status parse_line(struct line_reader *r, char *line, size_t len)
{
    char *rest = line, *text;
    int field = 0, y = 0;
    vb_status st = VB_OK;

    if (strlen(line) != len)
        return refuse(r, 0, "there is a zero byte in the line that starts with", line);
    if (len > 0 && line[len - 1] == '\r')
        line[len - 1] = '\0';
    r->row.n = 0;
    while (st == VB_OK && (text = strsep(&rest, "\t")) != NULL) {
        if (field == FIELDS)
            return refuse(r, field, "there are more than 40 fields", text);
        st = take_field(r, field++, text, &y);
    }
    if (st != VB_OK)
        return st;
    if (field < FIELDS)
        return vb_err(VB_ERR_INPUT, "%s: line %lld: the line has %d fields, expected %d",
                      r->stream->path, (long long)r->stream->line, field, FIELDS);
    vb_row_buf_sort(&r->row);
    return vb_sink_put(r->sink, &r->row, y);
}

vb_status vb_criteo_read(const char *path, int features, struct row_sink *sink)
{
    if (features <= NUMBERS)
        return vb_err(VB_ERR_USAGE,
                      "%d features are too few for Criteo data: the number must be larger than %d",
                      features, NUMBERS);
    sink->features = features;
    return vb_read_lines(path, features, parse_line, sink);
}
