/* SPDX-License-Identifier: MIT
 *
 * Text for pages and tables. Names and paths come from files, so they may hold anything.
 */
#include "record/report/report.h"

#include <math.h>

/* Returns the length of the UTF-8 character at text, or 0 if there is none. Control characters and
 * those that change the direction of text are none: they could hide what is written. */
static int char_bytes(const unsigned char *t)
{
    static const unsigned low[] = {0, 0, 0x80, 0x800, 0x10000};
    int i, n = t[0] < 0x80 ? 1 : t[0] >= 0xc2 && t[0] < 0xe0 ? 2 : (t[0] & 0xf0) == 0xe0 ? 3 : 4;
    unsigned code = n == 1 ? t[0] : t[0] & (0x7fu >> n);

    if (n == 4 && (t[0] & 0xf8) != 0xf0)
        return 0;
    for (i = 1; i < n; i++) {
        if ((t[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (t[i] & 0x3fu);
    }
    if (code < low[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
        (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code >= 0xfffe)
        return 0;
    return n;
}

/* Writes the characters of text. Special ones, which are ASCII, go to put. */
static void write_chars(FILE *out, const char *text, const char *special,
                        void (*put)(FILE *out, char c))
{
    const unsigned char *t = (const unsigned char *)text;
    int n;

    for (; t != NULL && *t != '\0'; t += n > 0 ? n : 1) {
        n = char_bytes(t);
        if (n == 0)
            fputc('?', out);
        else if (n == 1 && strchr(special, *t) != NULL)
            put(out, (char)*t);
        else
            fwrite(t, 1, (size_t)n, out);
    }
}

static void put_html(FILE *out, char c)
{
    fprintf(out, "&#%d;", c);
}

void vb_html_text(FILE *out, const char *text)
{
    write_chars(out, text, "<>&\"'`", put_html);
}

static void put_json(FILE *out, char c)
{
    fprintf(out, "\\u%04x", (unsigned char)c);
}

void vb_html_json(FILE *out, const char *text)
{
    fputc('"', out);
    write_chars(out, text, "<>&\"'\\", put_json);
    fputc('"', out);
}

static void put_quote(FILE *out, char c)
{
    fputc(c, out);
    fputc(c, out);
}

void vb_csv_text(FILE *out, const char *text)
{
    if (text == NULL || strpbrk(text, ",\";\n\r\t ") == NULL) {
        write_chars(out, text, "", put_html);
        return;
    }
    fputc('"', out);
    write_chars(out, text, "\"", put_quote);
    fputc('"', out);
}

void vb_number_text(double value, char *text, size_t size)
{
    static const struct {
        double from;
        const char *unit;
    } units[] = {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e4, " k"}};
    double a = fabs(value);
    const char *unit = "";
    size_t i;

    if (!isfinite(value)) {
        snprintf(text, size, "-");
        return;
    }
    for (i = 0; i < VB_COUNT(units) && unit[0] == '\0'; i++)
        if (a >= units[i].from && (a >= 1e6 || a != floor(a))) { /* counts stay exact */
            unit = units[i].unit;
            value /= units[i].from == 1e4 ? 1e3 : units[i].from;
        }
    a = fabs(value);
    if (a == floor(a) && a < 1e6)
        snprintf(text, size, "%.0f%s", value, unit);
    else if (a >= 1)
        snprintf(text, size, "%.*f%s", a >= 1000 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : 3, value, unit);
    else if (a >= 1e-4)
        snprintf(text, size, "%.4g%s", value, unit);
    else
        snprintf(text, size, "%.3g%s", value, unit);
}
