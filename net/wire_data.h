/* SPDX-License-Identifier: MIT
 *
 * The bytes on a TCP data connection: frames, each with a header of fixed size, followed by a
 * payload if it is a put or the reply to a get. Numbers are little-endian. No function here does
 * I/O, so the fuzzer can call them with any bytes.
 *
 *   offset  bytes
 *        0      1  type
 *        1      3  zero
 *        4      4  window: the number of the window, which is the same on all ranks; 0 in a reply
 *        8      4  note: the note of a put; 0 in other frames
 *       12      4  get: the requester's number of the get, which the reply repeats; 0 in a put
 *       16      8  offset in the window of the side that receives the frame; 0 in a reply
 *       24      8  length: number of payload bytes; in a get the number of bytes asked for
 */
#ifndef VB_NET_WIRE_DATA_H
#define VB_NET_WIRE_DATA_H

#include "base/base.h"

#define DATA_HEAD_BYTES 32

enum data_type { DATA_PUT = 1, DATA_GET = 2, DATA_REPLY = 3 };

struct data_head {
    enum data_type type;
    uint32_t window;
    uint32_t note;
    uint32_t get;
    uint64_t offset;
    uint64_t len_bytes;
};

void vb_data_head_encode(const struct data_head *head, unsigned char out[DATA_HEAD_BYTES]);

/* Returns NULL on success. Otherwise returns a text that says what is wrong: the type is unknown,
 * or a field that must be 0 is not 0. Writes *head_p only on success. */
const char *vb_data_head_decode(const unsigned char in[DATA_HEAD_BYTES], struct data_head *head_p);

/* Returns whether the range [offset, offset + len) lies within a window of window_bytes. */
bool vb_data_in_bounds(uint64_t offset, uint64_t len_bytes, uint64_t window_bytes);

#endif
