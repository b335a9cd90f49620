/* SPDX-License-Identifier: MIT
 *
 * Writes messages in the wire format of protocol buffers into memory of the caller. The numbers of
 * the fields are those of TensorBoard's .proto files.
 */
#ifndef VB_RECORD_BOARD_PROTO_H
#define VB_RECORD_BOARD_PROTO_H

#include "base/base.h"

/* A message that grows. What finds no room is left out and sets `cut`; the message is then of no
 * use. */
struct vb_proto {
    unsigned char *bytes;
    size_t len, size;
    bool cut;
};

void vb_proto_int(struct vb_proto *p, int field, uint64_t value); /* also bool and enum */
void vb_proto_double(struct vb_proto *p, int field, double value);
void vb_proto_float(struct vb_proto *p, int field, float value);
void vb_proto_bytes(struct vb_proto *p, int field, const void *bytes, size_t len_bytes);
void vb_proto_text(struct vb_proto *p, int field, const char *text);

/* Begins a message, or an array of packed numbers, inside of this one. Returns what its end takes.
 */
size_t vb_proto_begin(struct vb_proto *p, int field);
void vb_proto_packed_double(struct vb_proto *p, double value);
void vb_proto_end(struct vb_proto *p, size_t begin);

#endif
