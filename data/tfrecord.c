/* SPDX-License-Identifier: MIT
 *
 * Reads TFRecord files of sparse rows. A record is its length (64 bits, little-endian), the masked
 * CRC32C of the length, the data, and its masked CRC32C. docs/data.md lists the features.
 */
#include "data/data_priv.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAX ((uint64_t)1 << 30)
#define HEAD 12
#define TELL_EVERY 256 /* number of records between two reports of progress */

/* TensorFlow masks the checksum, because a CRC of data that contains its own CRC is weak. */
static uint32_t masked(const uint8_t *data, size_t len)
{
    uint32_t crc = vb_crc32c(0, data, len);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static vb_status refuse(const struct tfrecord *t, const char *what)
{
    return vb_err(VB_ERR_INPUT, "%s: offset %llu: record %lld: %s", t->stream->path,
                  (unsigned long long)t->at, (long long)t->n, what);
}

static vb_status check_head(struct tfrecord *t, const uint8_t head[HEAD])
{
    uint64_t len = le32(head) | (uint64_t)le32(head + 4) << 32;
    uint8_t *data;

    if (masked(head, 8) != le32(head + 8))
        return refuse(t, "the checksum of the record's length is wrong");
    if (len > RECORD_MAX || len + 4 > vb_stream_room(t->stream))
        return refuse(t, "the record is longer than the rest of the file");
    data = vb_grown(t->data, &t->cap, (size_t)len + 4, 1);
    if (data == NULL)
        return vb_err_sys("realloc");
    t->data = data;
    t->len = (size_t)len;
    return VB_OK;
}

vb_status vb_tfrecord_next(struct tfrecord *t, const uint8_t **data_p, size_t *len_p)
{
    uint8_t head[HEAD];
    size_t got;
    vb_status st;

    t->at = vb_stream_offset(t->stream);
    t->n++;
    *data_p = NULL;
    st = vb_stream_read(t->stream, head, HEAD, &got);
    if (st != VB_OK || got == 0)
        return st;
    if (got < HEAD)
        return refuse(t, "the file ends within the length of the record");
    st = check_head(t, head);
    if (st == VB_OK)
        st = vb_stream_exact(t->stream, t->data, t->len + 4, "a record");
    if (st != VB_OK)
        return st;
    if (masked(t->data, t->len) != le32(t->data + t->len))
        return refuse(t, "the checksum is wrong");
    *data_p = t->data;
    *len_p = t->len;
    return VB_OK;
}

void vb_tfrecord_fini(struct tfrecord *t)
{
    free(t->data);
    t->data = NULL;
}

/* The features that were found in an example. */
struct gathered {
    struct row_buf row; /* the indices; the values are copied from `value` at the end */
    int features;       /* the number that was asked for; 0: none */
    char why[VB_OPTS_WHY];
    int n_labels, n_values;
    double label;
    float *value;
    size_t value_cap;
};

static const char *take_label(void *arg, int64_t whole, double number)
{
    struct gathered *g = arg;

    (void)whole;
    g->label = number;
    g->n_labels++;
    return NULL;
}

static const char *take_index(void *arg, int64_t whole, double number)
{
    struct gathered *g = arg;

    (void)number;
    if (whole < 0)
        return "an index is negative";
    if (!vb_index_fits(whole, g->features, g->why)) {
        size_t len = strlen(g->why);

        snprintf(g->why + len, sizeof(g->why) - len, ": '%lld'", (long long)whole);
        return g->why;
    }
    return vb_row_buf_add(&g->row, (uint32_t)whole, 0) == VB_OK ? NULL : "no memory";
}

static const char *take_value(void *arg, int64_t whole, double number)
{
    struct gathered *g = arg;
    float *value = NULL;

    (void)whole;
    if (!(fabs(number) <= VALUE_MAX))
        return "a value is not finite, or its square is infinite as a float";
    if (g->n_values < INT32_MAX / 2)
        value = vb_grown(g->value, &g->value_cap, (size_t)g->n_values + 1, sizeof(*value));
    if (value == NULL)
        return "no memory";
    g->value = value;
    g->value[g->n_values++] = (float)number;
    return NULL;
}

static bool named(const struct example_feature *f, const char *name)
{
    return f->name_len == strlen(name) && memcmp(f->name, name, f->name_len) == 0;
}

static const char *take_feature(void *arg, const struct example_feature *f)
{
    struct gathered *g = arg;

    if (f->name == NULL)
        return NULL;
    if (named(f, "label"))
        return vb_example_numbers(f, take_label, g);
    if (named(f, "index"))
        return f->list == 2 ? "`index` has floats, not int64"
                            : vb_example_numbers(f, take_index, g);
    if (named(f, "value"))
        return vb_example_numbers(f, take_value, g);
    return NULL;
}

static vb_status take_record(struct tfrecord *t, struct gathered *g, struct row_sink *sink)
{
    const char *wrong;
    int i;

    g->row.n = g->n_labels = g->n_values = 0;
    wrong = vb_example_each(t->data, t->len, take_feature, g);
    if (wrong == NULL && g->n_labels != 1)
        wrong = g->n_labels == 0 ? "there is no feature `label`" : "there is more than one label";
    if (wrong == NULL)
        wrong = vb_sink_label(sink, g->label);
    if (wrong == NULL && g->row.n != g->n_values)
        wrong = "`index` and `value` have different lengths";
    if (wrong != NULL)
        return refuse(t, wrong);
    for (i = 0; i < g->row.n; i++)
        g->row.value[i] = g->value[i];
    if (vb_row_buf_sort(&g->row) > 0) {
        snprintf(g->why, sizeof(g->why), "an index occurs twice: '%u'", g->row.twice);
        return refuse(t, g->why);
    }
    return vb_sink_put(sink, &g->row, g->label > 0);
}

vb_status vb_tfrecord_read(const char *path, int features, struct row_sink *sink)
{
    struct gathered g = {.features = features};
    struct tfrecord t = {.n = 0};
    const uint8_t *data;
    size_t len;
    vb_status st = vb_stream_open(path, &t.stream);

    if (st != VB_OK)
        return st;
    for (;;) {
        st = vb_tfrecord_next(&t, &data, &len);
        if (st != VB_OK || data == NULL)
            break;
        st = take_record(&t, &g, sink);
        if (st != VB_OK)
            break;
        if (t.n % TELL_EVERY == 0)
            vb_sink_tell(sink, t.stream);
    }
    vb_tfrecord_fini(&t);
    vb_stream_close(t.stream);
    vb_row_buf_fini(&g.row);
    free(g.value);
    return st;
}

vb_status vb_tfrecord_glob(const char *pattern, int features, struct row_sink *sink)
{
    vb_status st = VB_OK;
    glob_t found;
    size_t i;

    if (glob(pattern, 0, NULL, &found) != 0)
        return vb_err(VB_ERR_NO_FILE, "%s: no file matches", pattern);
    sink->files = (int)found.gl_pathc;
    for (i = 0; st == VB_OK && i < found.gl_pathc; i++, sink->file++)
        st = vb_tfrecord_read(found.gl_pathv[i], features, sink);
    globfree(&found);
    return st;
}
