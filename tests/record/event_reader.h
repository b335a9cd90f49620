/* SPDX-License-Identifier: MIT
 *
 * Reads TensorBoard's event files for tests: every record of all event files of one folder.
 */
#ifndef VB_TESTS_RECORD_EVENT_READER_H
#define VB_TESTS_RECORD_EVENT_READER_H

#include "base/base.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <stdlib.h>

struct t_value {
    char tag[64];
    int64_t step;
    double wall_s;
    float simple;
    double min, max, num;       /* of a histogram */
    unsigned char content[256]; /* of a plugin, cut */
};

struct t_events {
    struct t_value *list;
    int n;
    int records, versions, graphs, sessions;
    int64_t session_step;
};

/* ---- messages -------------------------------------------------------------------------------- */

struct t_field {
    int number;
    uint64_t value; /* of a varint, a fixed32 or a fixed64: its bits */
    const unsigned char *bytes;
    size_t len;
};

static inline uint64_t t_varint(const unsigned char **at, const unsigned char *end)
{
    uint64_t value = 0;
    int shift = 0;

    do {
        assert_true(*at < end && shift < 64);
        value |= (uint64_t)(**at & 127) << shift;
        shift += 7;
    } while (*(*at)++ >= 128);
    return value;
}

/* Reads the next field of a message. Returns false at its end. */
static inline bool t_next_field(const unsigned char **at, const unsigned char *end,
                                struct t_field *f)
{
    uint64_t key;

    if (*at == end)
        return false;
    key = t_varint(at, end);
    *f = (struct t_field){.number = (int)(key >> 3)};
    if ((key & 7) == 0) {
        f->value = t_varint(at, end);
        return true;
    }
    f->len = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : 0;
    if ((key & 7) == 2)
        f->len = t_varint(at, end);
    assert_true(f->len <= (size_t)(end - *at));
    f->bytes = *at;
    if ((key & 7) != 2)
        memcpy(&f->value, f->bytes, f->len);
    *at += f->len;
    return true;
}

static inline double t_double(const struct t_field *f)
{
    double value;

    memcpy(&value, &f->value, sizeof(value));
    return value;
}

static inline void t_read_histogram(const struct t_field *histo, struct t_value *v)
{
    const unsigned char *at = histo->bytes, *end = at + histo->len;
    size_t limits = 0, buckets = 0;
    struct t_field f = {0};

    while (t_next_field(&at, end, &f)) {
        if (f.number == 1)
            v->min = t_double(&f);
        if (f.number == 2)
            v->max = t_double(&f);
        if (f.number == 3)
            v->num = t_double(&f);
        limits = f.number == 6 ? f.len : limits;
        buckets = f.number == 7 ? f.len : buckets;
    }
    assert_true(limits > 0 && limits == buckets && limits % 8 == 0);
}

/* The content of a plugin: field 2 of field 1 of the metadata. */
static inline void t_read_content(const struct t_field *metadata, struct t_value *v)
{
    const unsigned char *at = metadata->bytes, *end = at + metadata->len;
    struct t_field f = {0};

    assert_true(t_next_field(&at, end, &f) && f.number == 1);
    at = f.bytes;
    end = at + f.len;
    while (t_next_field(&at, end, &f))
        if (f.number == 2)
            memcpy(v->content, f.bytes, f.len < sizeof(v->content) ? f.len : sizeof(v->content));
}

static inline void t_read_value(const struct t_field *value, struct t_value *v)
{
    const unsigned char *at = value->bytes, *end = at + value->len;
    struct t_field f = {0};

    while (t_next_field(&at, end, &f)) {
        if (f.number == 1)
            snprintf(v->tag, sizeof(v->tag), "%.*s", (int)f.len, (const char *)f.bytes);
        if (f.number == 2)
            memcpy(&v->simple, f.bytes, 4);
        if (f.number == 5)
            t_read_histogram(&f, v);
        if (f.number == 9)
            t_read_content(&f, v);
    }
}

static inline void t_read_event(struct t_events *ev, const unsigned char *at, size_t len)
{
    const unsigned char *end = at + len, *in, *in_end;
    struct t_field f, value;
    struct t_value v = {0};

    while (t_next_field(&at, end, &f)) {
        if (f.number == 1)
            v.wall_s = t_double(&f);
        if (f.number == 2)
            v.step = (int64_t)f.value;
        ev->versions += f.number == 3;
        ev->graphs += f.number == 4;
        ev->sessions += f.number == 7;
        if (f.number == 7)
            ev->session_step = v.step;
        if (f.number != 5)
            continue;
        for (in = f.bytes, in_end = in + f.len; t_next_field(&in, in_end, &value);) {
            ev->list = realloc(ev->list, (size_t)(ev->n + 1) * sizeof(v));
            assert_non_null(ev->list);
            ev->list[ev->n] = (struct t_value){.wall_s = v.wall_s, .step = v.step};
            t_read_value(&value, &ev->list[ev->n++]);
        }
    }
}

/* ---- records --------------------------------------------------------------------------------- */

static inline uint32_t t_masked(const void *bytes, size_t len)
{
    uint32_t crc = vb_crc32c_ref(0, bytes, len);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Reads the records of a file, which must be whole. */
static inline void t_read_records(struct t_events *ev, const unsigned char *at, size_t size)
{
    uint64_t len;
    uint32_t crc;

    for (; size > 0; at += 16 + len, size -= 16 + len) {
        assert_true(size >= 16);
        memcpy(&len, at, 8);
        memcpy(&crc, at + 8, 4);
        assert_int_equal(crc, t_masked(at, 8));
        assert_true(len <= size - 16);
        memcpy(&crc, at + 12 + len, 4);
        assert_int_equal(crc, t_masked(at + 12, len));
        t_read_event(ev, at + 12, len);
        if (ev->records++ == 0)
            assert_int_equal(ev->versions, 1); /* the version comes first */
    }
}

static inline void t_events_read(struct t_events *ev, const char *folder)
{
    static unsigned char bytes[1 << 22];
    struct dirent *entry;
    char path[512];
    DIR *d = opendir(folder);
    FILE *file;
    size_t n;

    memset(ev, 0, sizeof(*ev));
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        if (strstr(entry->d_name, "events.out.tfevents.") == NULL)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        file = fopen(path, "re");
        assert_non_null(file);
        n = fread(bytes, 1, sizeof(bytes), file);
        assert_true(n < sizeof(bytes));
        fclose(file);
        t_read_records(ev, bytes, n);
    }
    closedir(d);
}

/* Returns the last value of a tag, NULL: there is none. */
static inline const struct t_value *t_events_last(const struct t_events *ev, const char *tag)
{
    int i;

    for (i = ev->n - 1; i >= 0; i--)
        if (strcmp(ev->list[i].tag, tag) == 0)
            return &ev->list[i];
    return NULL;
}

static inline void t_events_free(struct t_events *ev)
{
    free(ev->list);
    ev->list = NULL;
}

#endif
