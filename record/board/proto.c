/* SPDX-License-Identifier: MIT */
#include "record/board/proto.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie");

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put(struct vb_proto *p, const void *bytes, size_t n)
{
    if (p->cut || n > p->size - p->len) {
        p->cut = true;
        return;
    }
    if (n > 0)
        memcpy(p->bytes + p->len, bytes, n);
    p->len += n;
}

static size_t varint(uint64_t value, unsigned char out[10])
{
    size_t n = 0;

    for (; value >= 128; value >>= 7)
        out[n++] = (unsigned char)(value | 128);
    out[n++] = (unsigned char)value;
    return n;
}

static void put_varint(struct vb_proto *p, uint64_t value)
{
    unsigned char out[10];

    put(p, out, varint(value, out));
}

static void put_key(struct vb_proto *p, int field, int wire)
{
    put_varint(p, (uint64_t)field << 3 | (uint64_t)wire);
}

void vb_proto_int(struct vb_proto *p, int field, uint64_t value)
{
    put_key(p, field, WIRE_VARINT);
    put_varint(p, value);
}

void vb_proto_double(struct vb_proto *p, int field, double value)
{
    put_key(p, field, WIRE_64);
    put(p, &value, sizeof(value));
}

void vb_proto_float(struct vb_proto *p, int field, float value)
{
    put_key(p, field, WIRE_32);
    put(p, &value, sizeof(value));
}

void vb_proto_bytes(struct vb_proto *p, int field, const void *bytes, size_t len_bytes)
{
    put_key(p, field, WIRE_BYTES);
    put_varint(p, len_bytes);
    put(p, bytes, len_bytes);
}

void vb_proto_text(struct vb_proto *p, int field, const char *text)
{
    vb_proto_bytes(p, field, text, strlen(text));
}

size_t vb_proto_begin(struct vb_proto *p, int field)
{
    put_key(p, field, WIRE_BYTES);
    return p->len;
}

void vb_proto_packed_double(struct vb_proto *p, double value)
{
    put(p, &value, sizeof(value));
}

/* The length stands before the contents and is known only now, so the contents move. */
void vb_proto_end(struct vb_proto *p, size_t begin)
{
    size_t len = p->len - begin, n;
    unsigned char out[10];

    n = varint(len, out);
    if (p->cut || n > p->size - p->len) {
        p->cut = true;
        return;
    }
    memmove(p->bytes + begin + n, p->bytes + begin, len);
    memcpy(p->bytes + begin, out, n);
    p->len += n;
}
