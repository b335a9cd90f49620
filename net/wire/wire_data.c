/* SPDX-License-Identifier: MIT */
#include "net/wire/wire_data.h"

#include <endian.h>
#include <string.h>

/* A header as it is on the wire, with little-endian numbers. */
struct wire_head {
    uint32_t type; /* one byte, then three bytes of zero */
    uint32_t window, note, get;
    uint64_t offset, len_bytes;
};

_Static_assert(sizeof(struct wire_head) == DATA_HEAD_BYTES, "the header has another size");

void vb_data_head_encode(const struct data_head *head, unsigned char out[DATA_HEAD_BYTES])
{
    struct wire_head wire = {.type = htole32((uint32_t)head->type),
                             .window = htole32(head->window),
                             .note = htole32(head->note),
                             .get = htole32(head->get),
                             .offset = htole64(head->offset),
                             .len_bytes = htole64(head->len_bytes)};

    memcpy(out, &wire, sizeof(wire));
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
    struct wire_head wire;
    struct data_head head;
    uint32_t type;
    const char *why;

    memcpy(&wire, in, sizeof(wire));
    type = le32toh(wire.type);
    if ((type & 0xff) < DATA_PUT || (type & 0xff) > DATA_REPLY)
        return "a frame of unknown type";
    if (type > 0xff)
        return "a header with bytes set that must be zero";
    head = (struct data_head){.type = (enum data_type)type,
                              .window = le32toh(wire.window),
                              .note = le32toh(wire.note),
                              .get = le32toh(wire.get),
                              .offset = le64toh(wire.offset),
                              .len_bytes = le64toh(wire.len_bytes)};
    why = check(&head);
    if (why == NULL)
        *head_p = head;
    return why;
}

bool vb_data_in_bounds(uint64_t offset, uint64_t len_bytes, uint64_t window_bytes)
{
    return offset <= window_bytes && len_bytes <= window_bytes - offset;
}
