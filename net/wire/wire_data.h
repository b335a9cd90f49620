/* SPDX-License-Identifier: MIT
 *
 * The bytes on a TCP data connection (docs/protocol.md): frames, each with a header of fixed size,
 * followed by a payload if it is a put or the reply to a get. Numbers are little-endian. No
 * function here does I/O, so the fuzzer can call them with any bytes.
 */
#ifndef VB_NET_WIRE_WIRE_DATA_H
#define VB_NET_WIRE_WIRE_DATA_H

#include "base/base.h"

#define DATA_HEAD_BYTES 32

enum data_type { DATA_PUT = 1, DATA_GET = 2, DATA_REPLY = 3 };

struct data_head {
    enum data_type type;
    uint32_t window, note, get;
    uint64_t offset, len_bytes;
};

void vb_data_head_encode(const struct data_head *head, unsigned char out[DATA_HEAD_BYTES]);

/* Returns NULL on success. Otherwise returns a text that says what is wrong: the type is unknown,
 * or a field that must be 0 is not 0. Writes *head_p only on success. */
const char *vb_data_head_decode(const unsigned char in[DATA_HEAD_BYTES], struct data_head *head_p);

/* Returns whether the range [offset, offset + len) lies within a window of window_bytes. */
bool vb_data_in_bounds(uint64_t offset, uint64_t len_bytes, uint64_t window_bytes);

#endif
