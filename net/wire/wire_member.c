/* SPDX-License-Identifier: MIT */
#include "net/wire/wire_member.h"

#include <string.h>

#define BLOB_BYTES (4 + VB_BLOB_MAX)

_Static_assert(WIRE_CARD_BYTES == 8 + BLOB_BYTES, "a card has another size");
_Static_assert(WIRE_OFFER_BYTES == 24 + WIRE_KEYS * BLOB_BYTES, "an offer has another size");

void vb_wire_slot_encode(const struct wire_slot *slot, unsigned char out[WIRE_SLOT_BYTES])
{
    vb_wire_u32_encode(slot->slot, out);
    vb_wire_u32_encode(slot->epoch, out + 4);
    vb_wire_u32_encode(slot->world, out + 8);
    vb_wire_u32_encode(slot->slots, out + 12);
    vb_wire_u32_encode(slot->choice, out + 16);
}

bool vb_wire_slot_decode(const unsigned char in[WIRE_SLOT_BYTES], struct wire_slot *slot_p)
{
    slot_p->slot = vb_wire_u32_decode(in);
    slot_p->epoch = vb_wire_u32_decode(in + 4);
    slot_p->world = vb_wire_u32_decode(in + 8);
    slot_p->slots = vb_wire_u32_decode(in + 12);
    slot_p->choice = vb_wire_u32_decode(in + 16);
    return slot_p->choice <= VB_TRANSPORT_VERBS && slot_p->slots <= VB_WORLD_MAX &&
           slot_p->slot > 0 && slot_p->slot < slot_p->slots && slot_p->world > 0 &&
           slot_p->world <= slot_p->slots && slot_p->epoch > 1;
}

void vb_wire_member_encode(const struct wire_member *member, unsigned char out[WIRE_MEMBER_BYTES])
{
    vb_wire_u32_encode(member->epoch, out);
    vb_wire_u32_encode(0, out + 4);
    vb_wire_info_encode(&member->info, out + 8);
}

bool vb_wire_member_decode(const unsigned char in[WIRE_MEMBER_BYTES], struct wire_member *member_p)
{
    member_p->epoch = vb_wire_u32_decode(in);
    return member_p->epoch > 0 && vb_wire_u32_decode(in + 4) == 0 &&
           vb_wire_info_decode(in + 8, &member_p->info);
}

/* The unused bytes of a blob are zero on the wire. */
static void blob_encode(const struct vb_blob *blob, unsigned char *out)
{
    memset(out, 0, BLOB_BYTES);
    vb_wire_u32_encode(blob->len_bytes, out);
    memcpy(out + 4, blob->bytes, blob->len_bytes);
}

static bool blob_decode(const unsigned char *in, struct vb_blob *blob_p)
{
    memset(blob_p, 0, sizeof(*blob_p));
    blob_p->len_bytes = vb_wire_u32_decode(in);
    if (blob_p->len_bytes > VB_BLOB_MAX)
        return false;
    memcpy(blob_p->bytes, in + 4, blob_p->len_bytes);
    return true;
}

void vb_wire_card_encode(const struct wire_card *card, unsigned char out[WIRE_CARD_BYTES])
{
    vb_wire_u32_encode(card->choice, out);
    vb_wire_u32_encode(card->rdma, out + 4);
    blob_encode(&card->address, out + 8);
}

bool vb_wire_card_decode(const unsigned char in[WIRE_CARD_BYTES], struct wire_card *card_p)
{
    card_p->choice = vb_wire_u32_decode(in);
    card_p->rdma = vb_wire_u32_decode(in + 4);
    return card_p->choice <= VB_TRANSPORT_VERBS && card_p->rdma <= WIRE_RDMA_HARD &&
           blob_decode(in + 8, &card_p->address);
}

void vb_wire_offer_encode(const struct wire_offer *offer, unsigned char out[WIRE_OFFER_BYTES])
{
    int k;

    vb_wire_u32_encode(offer->window, out);
    vb_wire_u32_encode(0, out + 4);
    vb_wire_u64_encode(offer->len_bytes, out + 8);
    vb_wire_u64_encode(offer->rights, out + 16);
    for (k = 0; k < WIRE_KEYS; k++)
        blob_encode(&offer->keys[k], out + 24 + (size_t)k * BLOB_BYTES);
}

bool vb_wire_offer_decode(const unsigned char in[WIRE_OFFER_BYTES], struct wire_offer *offer_p)
{
    int k;

    offer_p->window = vb_wire_u32_decode(in);
    offer_p->len_bytes = vb_wire_u64_decode(in + 8);
    offer_p->rights = vb_wire_u64_decode(in + 16);
    for (k = 0; k < WIRE_KEYS; k++)
        if (!blob_decode(in + 24 + (size_t)k * BLOB_BYTES, &offer_p->keys[k]))
            return false;
    return vb_wire_u32_decode(in + 4) == 0 && offer_p->len_bytes <= SIZE_MAX / 2;
}
