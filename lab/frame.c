/* SPDX-License-Identifier: MIT */
#include "lab/lab.h"

#include <string.h>

/* Both ends have the same kind of CPU, so numbers are sent in the byte order of memory. */
struct head {
    uint16_t type, rank;
    uint32_t len_bytes;
};

#define MAX_BYTES (8U << 20)

void lab_frame_push(struct lab_queue *q, enum lab_frame_type type, int rank, const void *data,
                    size_t len_bytes)
{
    struct head h = {
        .type = (uint16_t)type, .rank = (uint16_t)rank, .len_bytes = (uint32_t)len_bytes};

    if (len_bytes > MAX_BYTES)
        lab_die("a message of %zu bytes is too long (arguments and environment?)", len_bytes);
    lab_queue_push(q, &h, sizeof(h));
    lab_queue_push(q, data, len_bytes);
}

bool lab_frame_next(struct lab_queue *q, struct lab_frame *f_p)
{
    struct head h;

    if (q->len_bytes < sizeof(h))
        return false;
    memcpy(&h, lab_queue_head(q), sizeof(h));
    if (h.len_bytes > MAX_BYTES)
        lab_die("invalid message of %u bytes between host and node", h.len_bytes);
    if (q->len_bytes < sizeof(h) + h.len_bytes)
        return false;
    f_p->type = h.type;
    f_p->rank = h.rank;
    f_p->len_bytes = h.len_bytes;
    f_p->data = lab_queue_head(q) + sizeof(h);
    lab_queue_drop(q, sizeof(h) + h.len_bytes);
    return true;
}
