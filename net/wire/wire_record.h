/* SPDX-License-Identifier: MIT
 *
 * Frames that carry records to rank 0, and times (docs/protocol.md). Like wire.h, this file does no
 * I/O.
 */
#ifndef VB_NET_WIRE_WIRE_RECORD_H
#define VB_NET_WIRE_WIRE_RECORD_H

#include "net/wire/wire.h"

/* What a rank says about its records. */
enum wire_records_state {
    WIRE_RECORDS_SEES = 1, /* it writes to the folder itself */
    WIRE_RECORDS_SENDS,    /* it sends its records */
    WIRE_RECORDS_END,      /* it has sent the last one */
};

struct wire_records {
    uint32_t state;
    uint64_t lost_bytes; /* bytes that the sender could not send */
    uint64_t lost_rows;  /* rows that it has lost */
};

void vb_wire_records_encode(const struct wire_records *r, unsigned char out[WIRE_RECORDS_BYTES]);
bool vb_wire_records_decode(const unsigned char in[WIRE_RECORDS_BYTES], struct wire_records *r_p);

/* Bytes to append to a file of the run folder. */
struct wire_record {
    char file[VB_RECORD_NAME_MAX + 1];
    bool first; /* the first bytes that this rank sends for this file */
    const unsigned char *bytes;
    size_t len_bytes;
};

/* Returns whether a rank may write to this file: "rankR/NAME.bin", "rankR/log.txt" or
 * "rankR/events.jsonl", R being the rank. NAME has letters, digits, '-', '_' and '.', and does not
 * begin with '.'. */
bool vb_wire_record_name_ok(const char *file, int rank);

/* Returns the length of the payload. The record must be valid. */
size_t vb_wire_record_encode(const struct wire_record *r, unsigned char out[WIRE_RECORD_BYTES_MAX]);

/* Returns false if the record is not one that `rank` may send. bytes points into `in`. */
bool vb_wire_record_decode(const unsigned char *in, size_t len_bytes, int rank,
                           struct wire_record *r_p);

/* asked, received, answered; false: a time is impossible, or the answer left before it came. */
void vb_wire_time_encode(const struct vb_clock_exchange *x, unsigned char out[WIRE_TIME_BYTES]);
bool vb_wire_time_decode(const unsigned char in[WIRE_TIME_BYTES], struct vb_clock_exchange *x_p);

#endif
