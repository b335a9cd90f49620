/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the listener's half of the handshake. The input arrives in pieces. No random input may be
 * accepted.
 *
 * Covers: net/control/handshake.c net/wire/wire_member.c
 */
#include "net/control/handshake.h"
#include "net/wire/wire_member.h"
#include "tests/fuzz/fuzz.h"

static enum wire_verdict judge(void *arg, const struct wire_call *call,
                               unsigned char key[AUTH_KEY_BYTES], uint32_t *epoch_p)
{
    (void)arg;
    memset(key, 42, AUTH_KEY_BYTES);
    if (call->kind == WIRE_JOIN) { /* a joiner has no rank and knows no epoch */
        *epoch_p = 0;
        return WIRE_WELCOME;
    }
    return call->rank < call->world ? WIRE_WELCOME : WIRE_BAD_RANK;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (vb_auth_init() != VB_OK)
        abort();
    return 0;
}

/* Decodes the input as each of the other messages of an elastic group. */
static void look_at_members(const uint8_t *data, size_t size)
{
    struct wire_member member;
    struct wire_offer offer;
    struct wire_card card;
    struct wire_slot slot;
    int k;

    if (size >= WIRE_SLOT_BYTES && vb_wire_slot_decode(data, &slot) &&
        (slot.slot >= slot.slots || slot.slots > VB_WORLD_MAX))
        abort();
    if (size >= WIRE_MEMBER_BYTES)
        (void)vb_wire_member_decode(data, &member);
    if (size >= WIRE_CARD_BYTES && vb_wire_card_decode(data, &card) &&
        card.address.len_bytes > VB_BLOB_MAX)
        abort();
    if (size < WIRE_OFFER_BYTES || !vb_wire_offer_decode(data, &offer))
        return;
    for (k = 0; k < WIRE_KEYS; k++)
        if (offer.keys[k].len_bytes > VB_BLOB_MAX)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char out[WIRE_ANSWER_BYTES];
    struct wire_answer answer;
    struct wire_info info;
    struct handshake hs;
    size_t piece, n;

    if (size >= WIRE_ANSWER_BYTES)
        (void)vb_wire_answer_decode(data, &answer);
    if (size >= WIRE_INFO_BYTES && vb_wire_info_decode(data, &info) &&
        strnlen(info.host, sizeof(info.host)) == sizeof(info.host))
        abort();
    look_at_members(data, size);
    piece = size > 0 ? 1 + data[0] % 70 : 1;
    vb_handshake_init(&hs, 0, 1);
    while (size > 0 && vb_handshake_wants(&hs) > 0) {
        n = size < piece ? size : piece;
        if (vb_handshake_feed(&hs, data, n, judge, NULL, out) > WIRE_ANSWER_BYTES)
            abort();
        data += n;
        size -= n;
    }
    if (hs.state == HANDSHAKE_DONE)
        abort();
    return 0;
}
