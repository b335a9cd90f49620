/* SPDX-License-Identifier: MIT
 *
 * Frames that only elastic groups send (docs/protocol.md). Like wire.h, this file does no I/O.
 */
#ifndef VB_NET_WIRE_WIRE_MEMBER_H
#define VB_NET_WIRE_WIRE_MEMBER_H

#include "net/transport.h"
#include "net/wire/wire.h"

/* The slot that rank 0 gives a joiner. */
struct wire_slot {
    uint32_t slot;  /* the rank of the joiner from now on */
    uint32_t epoch; /* epoch of the membership that begins with the joiner */
    uint32_t world; /* number of ranks at the start of the job */
    uint32_t slots;
    uint32_t choice; /* enum vb_transport_choice: the choice of the job */
};

void vb_wire_slot_encode(const struct wire_slot *slot, unsigned char out[WIRE_SLOT_BYTES]);

/* Returns false if the group has no such slot, or if a number is impossible. */
bool vb_wire_slot_decode(const unsigned char in[WIRE_SLOT_BYTES], struct wire_slot *slot_p);

/* The rank in a slot, and the epoch that began when it joined. */
struct wire_member {
    uint32_t epoch;
    struct wire_info info;
};

void vb_wire_member_encode(const struct wire_member *member, unsigned char out[WIRE_MEMBER_BYTES]);
bool vb_wire_member_decode(const unsigned char in[WIRE_MEMBER_BYTES], struct wire_member *member_p);

/* The transport that a rank was asked to use, and its address for RDMA. */
enum wire_rdma { WIRE_RDMA_NONE, WIRE_RDMA_SOFT, WIRE_RDMA_HARD };

struct wire_card {
    uint32_t choice; /* enum vb_transport_choice */
    uint32_t rdma;   /* enum wire_rdma */
    struct vb_blob address;
};

void vb_wire_card_encode(const struct wire_card *card, unsigned char out[WIRE_CARD_BYTES]);
bool vb_wire_card_decode(const unsigned char in[WIRE_CARD_BYTES], struct wire_card *card_p);

/* The sender's part of a window: its length, and an access key for each transport. */
enum { WIRE_KEY_SHM, WIRE_KEY_TCP, WIRE_KEY_VERBS, WIRE_KEYS };

struct wire_offer {
    uint32_t window;
    uint64_t len_bytes;
    uint64_t rights;
    struct vb_blob keys[WIRE_KEYS];
};

void vb_wire_offer_encode(const struct wire_offer *offer, unsigned char out[WIRE_OFFER_BYTES]);
bool vb_wire_offer_decode(const unsigned char in[WIRE_OFFER_BYTES], struct wire_offer *offer_p);

#endif
