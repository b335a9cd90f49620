/* SPDX-License-Identifier: MIT
 *
 * Frames between a caller that wants to come to a group that agrees, and its members
 * (docs/protocol.md). Like wire.h, this file does no I/O.
 */
#ifndef VB_NET_WIRE_WIRE_DOOR_H
#define VB_NET_WIRE_WIRE_DOOR_H

#include "net/net.h"
#include "net/wire/wire.h"

/* Where the members listen, "HOST:PORT" separated by commas, the lead first. */
struct wire_doors {
    bool waits; /* the sender leads, so the caller can wait there */
    char text[VB_DOORS_TEXT];
};

/* Returns the length. */
size_t vb_wire_doors_encode(const struct wire_doors *doors,
                            unsigned char out[WIRE_DOORS_BYTES_MAX]);
bool vb_wire_doors_decode(const unsigned char *in, size_t len_bytes, struct wire_doors *doors_p);

void vb_wire_invite_encode(const struct vb_invitation *inv, unsigned char out[WIRE_INVITE_BYTES]);

/* Returns false if a number is impossible, or if the address is no printable text. */
bool vb_wire_invite_decode(const unsigned char in[WIRE_INVITE_BYTES], struct vb_invitation *inv_p);

#endif
