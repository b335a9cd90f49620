/* SPDX-License-Identifier: MIT
 *
 * Reads Criteo's click logs. A line is a row, with tabs between its fields. The fields are the
 * label (0 or 1), 13 whole numbers and 26 categories of up to 8 hexadecimal digits. A field may be
 * empty.
 *
 * A line becomes a row of `features` features as follows:
 *   - Number i (0 to 12) is feature i. Its value is log(1 + v), or -log(1 - v) if v is below 0. A
 *     number that is 0 or missing has no entry.
 *   - Category j (0 to 25) with the value c is feature 13 + h mod (features - 13) with value 1,
 *     where h = vb_random(j, c). A missing category has no entry.
 *   - If two categories of a row become the same feature, their values are added.
 */
#include "data/data_priv.h"

#include <math.h>
#include <string.h>

#define NUMBERS 13
#define CATEGORIES 26
#define FIELDS (1 + NUMBERS + CATEGORIES)
#define DIGITS_MAX 8
#define TELL_EVERY 1024 /* number of rows between two reports of progress */

static vb_status refuse(struct stream *s, int field, const char *what, const char *text)
{
    return vb_err(VB_ERR_INPUT, "%s: line %lld: field %d: %s: '%.32s'", vb_stream_path(s),
                  (long long)vb_stream_line_number(s), field + 1, what, text);
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

static vb_status take_number(struct stream *s, int field, const char *text, struct row_buf *row)
{
    int64_t v;
    double size;

    if (!vb_parse_int(text, &v))
        return refuse(s, field, "the value is not a whole number", text);
    size = log1p(fabs((double)v));
    return v == 0 ? VB_OK
                  : vb_row_buf_add(row, (uint32_t)(field - 1), (float)(v < 0 ? -size : size));
}

static vb_status take_category(struct stream *s, int field, const char *text, int features,
                               struct row_buf *row)
{
    int j = field - 1 - NUMBERS;
    uint64_t c;

    if (!parse_hex(text, &c))
        return refuse(s, field, "the value is not a hexadecimal number of up to 8 digits", text);
    return vb_row_buf_add(
        row, (uint32_t)(NUMBERS + vb_random((uint64_t)j, c) % (uint64_t)(features - NUMBERS)), 1);
}

static vb_status take_field(struct stream *s, int field, const char *text, int features,
                            struct row_buf *row, int *y_p)
{
    if (field == 0) {
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return refuse(s, field, "the label must be 0 or 1", text);
        *y_p = text[0] == '1';
        return VB_OK;
    }
    if (text[0] == '\0')
        return VB_OK;
    if (field <= NUMBERS)
        return take_number(s, field, text, row);
    return take_category(s, field, text, features, row);
}

static vb_status parse_line(struct stream *s, char *line, int features, struct row_buf *row,
                            struct row_sink *sink)
{
    char *rest = line, *text;
    int field = 0, y = 0;
    vb_status st = VB_OK;

    row->n = 0;
    while (st == VB_OK && (text = strsep(&rest, "\t")) != NULL) {
        if (field == FIELDS)
            return refuse(s, field, "there are more than 40 fields", text);
        st = take_field(s, field++, text, features, row, &y);
    }
    if (st != VB_OK)
        return st;
    if (field < FIELDS)
        return vb_err(VB_ERR_INPUT, "%s: line %lld: the line has %d fields, expected %d",
                      vb_stream_path(s), (long long)vb_stream_line_number(s), field, FIELDS);
    vb_row_buf_sort(row);
    return vb_sink_put(sink, row, y);
}

static vb_status read_lines(struct stream *s, int features, struct row_buf *row,
                            struct row_sink *sink)
{
    vb_status st;
    char *line;
    size_t len;

    for (;;) {
        st = vb_stream_line(s, &line, &len);
        if (st != VB_OK || line == NULL)
            return st;
        if (strlen(line) != len)
            return refuse(s, 0, "there is a zero byte in the line that starts with", line);
        if (len > 0 && line[len - 1] == '\r')
            line[len - 1] = '\0';
        st = parse_line(s, line, features, row, sink);
        if (st != VB_OK)
            return st;
        if (vb_stream_line_number(s) % TELL_EVERY == 0)
            vb_sink_tell(sink, s);
    }
}

vb_status vb_criteo_read(const char *path, int features, struct row_sink *sink)
{
    struct row_buf row = {.n = 0};
    struct stream *s;
    vb_status st;

    if (features <= NUMBERS)
        return vb_err(VB_ERR_USAGE,
                      "%d features are too few for Criteo data: the number must be larger than %d",
                      features, NUMBERS);
    st = vb_stream_open(path, &s);
    if (st != VB_OK)
        return st;
    sink->features = features;
    st = read_lines(s, features, &row, sink);
    vb_row_buf_fini(&row);
    vb_stream_close(s);
    return st;
}
