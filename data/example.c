/* SPDX-License-Identifier: MIT
 *
 * Parses tf.Example, a protocol buffer. Only these messages and fields are needed:
 *
 *   Example   { Features features = 1; }
 *   Features  { map<string, Feature> feature = 1; }     an entry is { key = 1; value = 2; }
 *   Feature   { BytesList = 1 | FloatList = 2 | Int64List = 3 }
 *   ...List   { repeated value = 1; }                   numbers packed or one by one
 *
 * A *span* is the bytes of one message. The parser checks every step against the end of the current
 * span, and does not recurse. Unknown fields are skipped, as the format demands.
 */
#include "data/data_priv.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { LIST_FLOAT = 2, LIST_INT64 = 3 };

static const char cut[] = "a field ends after its message";

struct span {
    const uint8_t *at, *end;
};

struct field {
    uint32_t number;
    int type;
    uint64_t value;   /* the value, if the wire type is VARINT */
    struct span span; /* the bytes, if the field has another wire type */
};

static const char *take_varint(struct span *s, uint64_t *value_p)
{
    uint64_t value = 0;
    int shift;

    for (shift = 0; shift < 70; shift += 7) {
        if (s->at == s->end)
            return cut;
        if (shift == 63 && *s->at > 1)
            break;
        value |= (uint64_t)(*s->at & 0x7f) << shift;
        if ((*s->at++ & 0x80) == 0) {
            *value_p = value;
            return NULL;
        }
    }
    return "a number has more than 64 bits";
}

static const char *take_bytes(struct span *s, uint64_t len, struct span *bytes_p)
{
    if (len > (uint64_t)(s->end - s->at))
        return cut;
    bytes_p->at = s->at;
    bytes_p->end = s->at + len;
    s->at += len;
    return NULL;
}

static const char *take_field(struct span *s, struct field *f)
{
    const char *wrong;
    uint64_t tag, len;

    wrong = take_varint(s, &tag);
    if (wrong != NULL)
        return wrong;
    if (tag >> 3 == 0 || tag >> 32 != 0)
        return "a field has an invalid number";
    f->number = (uint32_t)(tag >> 3);
    f->type = (int)(tag & 7);
    switch (f->type) {
    case VARINT:
        return take_varint(s, &f->value);
    case FIXED64:
        return take_bytes(s, 8, &f->span);
    case FIXED32:
        return take_bytes(s, 4, &f->span);
    case BYTES:
        wrong = take_varint(s, &len);
        return wrong != NULL ? wrong : take_bytes(s, len, &f->span);
    default:
        return "a field has an unknown type";
    }
}

/* If a feature has several lists, the last list counts, as in a protocol buffer's oneof. */
static const char *parse_feature(struct span s, struct example_feature *feature)
{
    const char *wrong;
    struct field f;

    while (s.at < s.end) {
        wrong = take_field(&s, &f);
        if (wrong != NULL)
            return wrong;
        if (f.type != BYTES || f.number > LIST_INT64)
            continue;
        feature->list = (int)f.number;
        feature->data = f.span.at;
        feature->len = (size_t)(f.span.end - f.span.at);
    }
    return NULL;
}

static const char *parse_entry(struct span s, struct example_feature *feature)
{
    const char *wrong = NULL;
    struct field f;

    memset(feature, 0, sizeof(*feature));
    while (wrong == NULL && s.at < s.end) {
        wrong = take_field(&s, &f);
        if (wrong != NULL || f.type != BYTES)
            continue;
        if (f.number == 1) {
            feature->name = f.span.at;
            feature->name_len = (size_t)(f.span.end - f.span.at);
        } else if (f.number == 2) {
            wrong = parse_feature(f.span, feature);
        }
    }
    return wrong;
}

static const char *each_entry(struct span s, example_fn fn, void *arg)
{
    struct example_feature feature;
    const char *wrong = NULL;
    struct field f;

    while (wrong == NULL && s.at < s.end) {
        wrong = take_field(&s, &f);
        if (wrong != NULL || f.number != 1 || f.type != BYTES)
            continue;
        wrong = parse_entry(f.span, &feature);
        if (wrong == NULL)
            wrong = fn(arg, &feature);
    }
    return wrong;
}

const char *vb_example_each(const uint8_t *data, size_t len, example_fn fn, void *arg)
{
    struct span s = {data, data + len};
    const char *wrong = NULL;
    struct field f;

    while (wrong == NULL && s.at < s.end) {
        wrong = take_field(&s, &f);
        if (wrong == NULL && f.number == 1 && f.type == BYTES)
            wrong = each_entry(f.span, fn, arg);
    }
    return wrong;
}

static const char *hand_float(const uint8_t *at, example_number_fn fn, void *arg)
{
    return fn(arg, 0, vb_bits_float(le32(at)));
}

static const char *hand_packed(int list, struct span s, example_number_fn fn, void *arg)
{
    const char *wrong = NULL;
    uint64_t value;

    if (list == LIST_FLOAT && (s.end - s.at) % 4 != 0)
        return "a list of floats ends within a float";
    while (wrong == NULL && s.at < s.end) {
        if (list == LIST_FLOAT) {
            wrong = hand_float(s.at, fn, arg);
            s.at += 4;
            continue;
        }
        wrong = take_varint(&s, &value);
        if (wrong == NULL)
            wrong = fn(arg, (int64_t)value, (double)(int64_t)value);
    }
    return wrong;
}

const char *vb_example_numbers(const struct example_feature *feature, example_number_fn fn,
                               void *arg)
{
    const char *wrong = NULL;
    struct field f;
    struct span s;

    if (feature->list != LIST_FLOAT && feature->list != LIST_INT64)
        return feature->list == 0 ? NULL : "a feature has bytes, expected numbers";
    s = (struct span){feature->data, feature->data + feature->len};
    while (wrong == NULL && s.at < s.end) {
        wrong = take_field(&s, &f);
        if (wrong != NULL || f.number != 1)
            continue;
        if (f.type == BYTES)
            wrong = hand_packed(feature->list, f.span, fn, arg);
        else if (f.type == FIXED32 && feature->list == LIST_FLOAT)
            wrong = hand_float(f.span.at, fn, arg);
        else if (f.type == VARINT && feature->list == LIST_INT64)
            wrong = fn(arg, (int64_t)f.value, (double)(int64_t)f.value);
        else
            wrong = "a list has numbers of a different type";
    }
    return wrong;
}
