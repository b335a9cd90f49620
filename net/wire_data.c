/* SPDX-License-Identifier: MIT */
#include "net/wire_data.h"

#include <endian.h>
#include <string.h>

enum {
    AT_TYPE = 0,
    AT_ZERO = 1,
    AT_WINDOW = 4,
    AT_NOTE = 8,
    AT_GET = 12,
    AT_OFFSET = 16,
    AT_LEN = 24,
};

_Static_assert(AT_LEN + 8 == DATA_HEAD_BYTES, "the header has another size");

static void put_u32(unsigned char *out, uint32_t value)
{
    value = htole32(value);
    memcpy(out, &value, sizeof(value));
}

static void put_u64(unsigned char *out, uint64_t value)
{
    value = htole64(value);
    memcpy(out, &value, sizeof(value));
}

static uint32_t get_u32(const unsigned char *in)
{
    uint32_t value;

    memcpy(&value, in, sizeof(value));
    return le32toh(value);
}

static uint64_t get_u64(const unsigned char *in)
{
    uint64_t value;

    memcpy(&value, in, sizeof(value));
    return le64toh(value);
}

void vb_data_head_encode(const struct data_head *head, unsigned char out[DATA_HEAD_BYTES])
{
    put_u32(out, (uint32_t)head->type); /* the type, then three bytes of zero */
    put_u32(out + AT_WINDOW, head->window);
    put_u32(out + AT_NOTE, head->note);
    put_u32(out + AT_GET, head->get);
    put_u64(out + AT_OFFSET, head->offset);
    put_u64(out + AT_LEN, head->len_bytes);
}

/* A field that a type does not use must be 0, so that each meaning has only one encoding. */
static const char *check(const struct data_head *head)
{
    switch (head->type) {
    case DATA_PUT:
        return head->get == 0 ? NULL : "a put with the number of a get";
    case DATA_GET:
        return head->note == 0 ? NULL : "a get with a note";
    case DATA_REPLY:
        return head->note == 0 && head->window == 0 && head->offset == 0
                   ? NULL
                   : "a reply with a note, window or offset";
    }
    return "a frame of unknown type";
}

const char *vb_data_head_decode(const unsigned char in[DATA_HEAD_BYTES], struct data_head *head_p)
{
    struct data_head head = {
        .window = get_u32(in + AT_WINDOW),
        .note = get_u32(in + AT_NOTE),
        .get = get_u32(in + AT_GET),
        .offset = get_u64(in + AT_OFFSET),
        .len_bytes = get_u64(in + AT_LEN),
    };
    const char *why;

    if (in[AT_TYPE] < DATA_PUT || in[AT_TYPE] > DATA_REPLY)
        return "a frame of unknown type";
    if (in[AT_ZERO] != 0 || in[AT_ZERO + 1] != 0 || in[AT_ZERO + 2] != 0)
        return "a header with bytes set that must be zero";
    head.type = (enum data_type)in[AT_TYPE];
    why = check(&head);
    if (why == NULL)
        *head_p = head;
    return why;
}

bool vb_data_in_bounds(uint64_t offset, uint64_t len_bytes, uint64_t window_bytes)
{
    return offset <= window_bytes && len_bytes <= window_bytes - offset;
}
