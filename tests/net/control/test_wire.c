/* SPDX-License-Identifier: MIT
 *
 * Tests the messages of the control plane: encoding, decoding, and the refusal of invalid messages.
 *
 * Covers: net/wire/wire_member.c net/wire/wire_beat.c
 */
#include "net/wire/wire_member.h"
#include "tests/support/test.h"

static void numbers_are_little_endian(void **state)
{
    unsigned char bytes[8];

    (void)state;
    vb_wire_u32_encode(0x01020304u, bytes);
    assert_memory_equal(bytes, "\x04\x03\x02\x01", 4);
    assert_int_equal(vb_wire_u32_decode(bytes), 0x01020304u);
    vb_wire_u64_encode(0x0102030405060708u, bytes);
    assert_memory_equal(bytes, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
    assert_true(vb_wire_u64_decode(bytes) == 0x0102030405060708u);
}

static void a_call_is_decoded_as_encoded(void **state)
{
    struct wire_call call = {.version = 1,
                             .kind = WIRE_DATA,
                             .rank = 2,
                             .to = 1,
                             .world = 5,
                             .epoch = 7,
                             .caps = 0xf0f0},
                     back;
    unsigned char bytes[WIRE_CALL_BYTES];

    (void)state;
    memset(call.nonce, 9, sizeof(call.nonce));
    vb_wire_call_encode(&call, bytes);
    assert_memory_equal(bytes, "VRBN\x01\x00\x02\x00", 8);
    memset(&back, 0, sizeof(back));
    assert_true(vb_wire_call_decode(bytes, &back));
    assert_memory_equal(&call, &back, sizeof(call));
    bytes[6] = 4; /* there is no such kind */
    assert_false(vb_wire_call_decode(bytes, &back));
    bytes[6] = 2;
    bytes[0] = 'X';
    assert_false(vb_wire_call_decode(bytes, &back));
}

static void an_answer_is_decoded_as_encoded(void **state)
{
    struct wire_answer answer = {.version = 1, .verdict = 2, .rank = 3, .epoch = 4, .caps = 5},
                       back;
    unsigned char bytes[WIRE_ANSWER_BYTES];

    (void)state;
    memset(answer.nonce, 1, sizeof(answer.nonce));
    memset(answer.proof, 2, sizeof(answer.proof));
    vb_wire_answer_encode(&answer, bytes);
    memset(&back, 0, sizeof(back));
    assert_true(vb_wire_answer_decode(bytes, &back));
    assert_memory_equal(&answer, &back, sizeof(answer));
}

static bool frame(uint32_t len, uint16_t type, int world)
{
    unsigned char head[WIRE_FRAME_HEAD];
    uint32_t len_back;
    uint16_t type_back;

    vb_wire_frame_encode(len, type, head);
    if (!vb_wire_frame_decode(head, world, &len_back, &type_back))
        return false;
    assert_int_equal(len_back, len);
    assert_int_equal(type_back, type);
    return true;
}

static void frames_are_bounded(void **state)
{
    unsigned char head[WIRE_FRAME_HEAD];
    uint32_t len;
    uint16_t type;

    (void)state;
    assert_true(frame(WIRE_INFO_BYTES, WIRE_INFO, 3));
    assert_false(frame(WIRE_INFO_BYTES - 1, WIRE_INFO, 3));
    assert_true(frame(3 * WIRE_INFO_BYTES, WIRE_TABLE, 3));
    assert_false(frame(4 * WIRE_INFO_BYTES, WIRE_TABLE, 3));
    assert_true(frame(WIRE_BEAT_BYTES, WIRE_BEAT, 3));
    assert_false(frame(8, WIRE_BEAT, 3)); /* as in version 4 */
    assert_true(frame(WIRE_SILENT_BYTES, WIRE_SILENT, 3));
    assert_false(frame(8, WIRE_SILENT, 3));
    assert_true(frame(4, WIRE_BLOB, 3));
    assert_true(frame(65536, WIRE_BLOB, 3));
    assert_false(frame(65537, WIRE_BLOB, 3));
    assert_false(frame(3, WIRE_BLOB, 3));
    assert_true(frame(0, WIRE_ABORT, 3));
    assert_false(frame(513, WIRE_ABORT, 3));
    assert_true(frame(0, WIRE_BYE, 3));
    assert_false(frame(1, WIRE_BYE, 3));
    assert_false(frame(0, 0, 3));
    assert_true(frame(WIRE_SLOT_BYTES, WIRE_SLOT, 3));
    assert_true(frame(WIRE_MEMBER_BYTES, WIRE_ADMIT, 3));
    assert_false(frame(WIRE_MEMBER_BYTES - 1, WIRE_ADMIT, 3));
    assert_true(frame(WIRE_ADMITTED_BYTES, WIRE_ADMITTED, 3));
    assert_true(frame(2 * WIRE_MEMBER_BYTES, WIRE_MEMBERS, 3));
    assert_false(frame(0, WIRE_MEMBERS, 3));
    assert_false(frame((VB_WORLD_MAX + 1) * WIRE_MEMBER_BYTES, WIRE_MEMBERS, 3));
    assert_true(frame(0, WIRE_JOINED, 3));
    assert_true(frame(WIRE_CARD_BYTES, WIRE_CARD, 3));
    assert_true(frame(WIRE_OFFER_BYTES, WIRE_OFFER, 3));
    assert_false(frame(WIRE_OFFER_BYTES + 1, WIRE_OFFER, 3));
    assert_true(frame(512, WIRE_DROPPED, 3));
    assert_false(frame(0, WIRE_LAST + 1, 3));
    assert_false(frame(0xffffffffu, WIRE_BLOB, 3));
    vb_wire_frame_encode(0, WIRE_BYE, head);
    head[7] = 1; /* this byte must be zero */
    assert_false(vb_wire_frame_decode(head, 3, &len, &type));
}

/* Compares field by field, because the bytes between the fields are undefined. */
static void info_equal(const struct wire_info *a, const struct wire_info *b)
{
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->token, b->token, sizeof(a->token));
    assert_int_equal(a->netns, b->netns);
    assert_int_equal(a->port, b->port);
    assert_string_equal(a->addr, b->addr);
    assert_string_equal(a->host, b->host);
    assert_string_equal(a->boot_id, b->boot_id);
    assert_string_equal(a->unix_name, b->unix_name);
    assert_int_equal(a->process.number, b->process.number);
    assert_int_equal(a->process.ns, b->process.ns);
    assert_int_equal(a->process.start, b->process.start);
}

static void an_info_is_decoded_as_encoded(void **state)
{
    struct wire_info info = {.rank = 1,
                             .netns = 4026531840u,
                             .port = 7000,
                             .addr = "10.0.0.4",
                             .host = "node1",
                             .boot_id = "2b9e-44",
                             .unix_name = "verbena-00",
                             .token = {1, 2, 3, [15] = 16},
                             .process = {4711, 4026531836u, 1234567890123}},
                     back;
    unsigned char bytes[WIRE_INFO_BYTES];
    size_t i;

    (void)state;
    vb_wire_info_encode(&info, bytes);
    assert_true(vb_wire_info_decode(bytes, &back));
    info_equal(&info, &back);
    for (i = 16; i < 20; i++) { /* the port is not valid */
        vb_wire_info_encode(&info, bytes);
        memset(bytes + 16, i == 16 ? 0 : 0xff, 4);
        assert_false(vb_wire_info_decode(bytes, &back));
    }
    vb_wire_info_encode(&info, bytes);
    memset(bytes + 24, 'x', WIRE_INFO_BYTES - 24); /* the texts have no end */
    assert_false(vb_wire_info_decode(bytes, &back));
    vb_wire_info_encode(&info, bytes);
    bytes[24] = '\n'; /* a line break in a name would split a message into two lines */
    assert_false(vb_wire_info_decode(bytes, &back));
}

static void beats_are_decoded_as_encoded(void **state)
{
    struct wire_silent silent = {.rank = 5, .ms = 700, .last = {1u << 20, VB_DOES_SAVE, 3, 9, 4}};
    struct wire_silent back = {0};
    unsigned char bytes[WIRE_SILENT_BYTES];

    (void)state;
    vb_wire_silent_encode(&silent, bytes);
    assert_true(vb_wire_silent_decode(bytes, &back));
    assert_memory_equal(&silent, &back, sizeof(back));
    assert_true(vb_wire_beat_decode(bytes + 8, &back.last));
    vb_wire_u32_encode(VB_ACTIVITIES, bytes + 16); /* nobody does that */
    assert_false(vb_wire_beat_decode(bytes + 8, &back.last));
    assert_false(vb_wire_silent_decode(bytes, &back));
    vb_wire_u32_encode(VB_DOES_LOAD, bytes + 16);
    vb_wire_u32_encode(VB_WORLD_MAX, bytes + 20); /* there is no such rank to wait for */
    assert_false(vb_wire_beat_decode(bytes + 8, &back.last));
    vb_wire_u32_encode(WIRE_NO_RANK, bytes + 20);
    assert_true(vb_wire_beat_decode(bytes + 8, &back.last));
}

static void a_beat_says(const struct wire_beat *beat, const char *want)
{
    char text[WIRE_BEAT_TEXT];

    vb_wire_beat_text(beat, text);
    assert_string_equal(text, want);
}

static void beats_say_what_a_rank_does(void **state)
{
    struct wire_beat b = {17, VB_DOES_COMPUTE, WIRE_NO_RANK, 999, 0};
    struct wire_beat longest = {UINT64_MAX - 1, VB_DOES_SAVE, WIRE_NO_RANK, UINT32_MAX, UINT32_MAX};
    char text[WIRE_BEAT_TEXT];
    uint32_t a;

    (void)state;
    a_beat_says(&(struct wire_beat){0}, "");
    a_beat_says(&b, "computing in step 18");
    b.same_ms = 2500;
    b.page_waits = 7;
    a_beat_says(&b, "computing in step 18 for 2.5 s, with 7 waits for pages from a disk");
    b.waits_for = 3;
    b.page_waits = 0;
    a_beat_says(&b, "waiting for rank 3 in step 18 for 2.5 s");
    b = (struct wire_beat){0, VB_DOES_SETUP, WIRE_NO_RANK, 0, 0};
    a_beat_says(&b, "setting up");
    for (a = VB_DOES_SETUP; a < VB_ACTIVITIES; a++) {
        longest.activity = a;
        vb_wire_beat_text(&longest, text);
        assert_true(strlen(text) > 0 && strlen(text) < WIRE_BEAT_TEXT - 1); /* not cut */
    }
}

static void slots_are_decoded_as_encoded(void **state)
{
    struct wire_slot slot = {.slot = 3,
                             .epoch = 5,
                             .world = 2,
                             .slots = 4,
                             .choice = VB_TRANSPORT_TCP},
                     back;
    unsigned char bytes[WIRE_SLOT_BYTES];

    (void)state;
    vb_wire_slot_encode(&slot, bytes);
    assert_true(vb_wire_slot_decode(bytes, &back));
    assert_memory_equal(&slot, &back, sizeof(slot));
    slot.slot = 4; /* the number is one too large */
    vb_wire_slot_encode(&slot, bytes);
    assert_false(vb_wire_slot_decode(bytes, &back));
    slot = (struct wire_slot){
        .slot = 3, .epoch = 1, .world = 2, .slots = 4}; /* no rank can join in epoch 1 */
    vb_wire_slot_encode(&slot, bytes);
    assert_false(vb_wire_slot_decode(bytes, &back));
    slot = (struct wire_slot){.slot = 3, .epoch = 2, .world = 2, .slots = VB_WORLD_MAX + 1};
    vb_wire_slot_encode(&slot, bytes);
    assert_false(vb_wire_slot_decode(bytes, &back));
}

static void offers_are_decoded_as_encoded(void **state)
{
    struct wire_offer offer = {.window = 9, .len_bytes = 1 << 20, .rights = 3}, back;
    unsigned char bytes[WIRE_OFFER_BYTES];

    (void)state;
    offer.keys[WIRE_KEY_VERBS].len_bytes = VB_BLOB_MAX;
    memset(offer.keys[WIRE_KEY_VERBS].bytes, 0x5a, VB_BLOB_MAX);
    vb_wire_offer_encode(&offer, bytes);
    assert_true(vb_wire_offer_decode(bytes, &back));
    assert_true(back.window == 9 && back.len_bytes == 1 << 20 && back.rights == 3);
    assert_memory_equal(back.keys, offer.keys, sizeof(back.keys));
    vb_wire_u32_encode(VB_BLOB_MAX + 1, bytes + 24); /* a key that is longer than its buffer */
    assert_false(vb_wire_offer_decode(bytes, &back));
}

static void cards_are_decoded_as_encoded(void **state)
{
    struct wire_card card = {.choice = VB_TRANSPORT_TCP, .rdma = WIRE_RDMA_SOFT}, back;
    unsigned char bytes[WIRE_CARD_BYTES];

    (void)state;
    card.address.len_bytes = 5;
    memcpy(card.address.bytes, "there", 5);
    vb_wire_card_encode(&card, bytes);
    assert_true(vb_wire_card_decode(bytes, &back));
    assert_true(back.choice == card.choice && back.rdma == card.rdma);
    assert_memory_equal(&back.address, &card.address, sizeof(back.address));
    vb_wire_u32_encode(VB_TRANSPORT_VERBS + 1, bytes);
    assert_false(vb_wire_card_decode(bytes, &back));
}

static void an_unknown_boot_id_matches_no_host(void **state)
{
    struct wire_info a = {.boot_id = "f00d", .netns = 7}, b = a, c = a, unknown = {.netns = 7};

    (void)state;
    assert_true(vb_wire_info_same_host(&a, &b));
    b.netns = 8;
    assert_false(vb_wire_info_same_host(&a, &b));
    c.boot_id[0] = 'd';
    assert_false(vb_wire_info_same_host(&a, &c));
    assert_false(vb_wire_info_same_host(&unknown, &unknown));
}

/* Two ranks of one host that are both process number 1, each in a PID namespace of its own, differ
 * in nothing but their tokens. */
static void ranks_of_one_process_have_one_token(void **state)
{
    struct wire_info a = {.boot_id = "f00d", .netns = 7, .token = {[15] = 1}}, b = a, unknown = a;

    (void)state;
    assert_true(vb_wire_info_same_process(&a, &b));
    b.token[0] = 1;
    assert_false(vb_wire_info_same_process(&a, &b));
    memset(unknown.token, 0, sizeof(unknown.token));
    assert_false(vb_wire_info_same_process(&unknown, &unknown));
}

static void every_verdict_has_a_text(void **state)
{
    uint32_t v;

    (void)state;
    for (v = WIRE_WELCOME; v <= WIRE_BUSY; v++)
        assert_string_not_equal(vb_wire_verdict_str(v), vb_wire_verdict_str(99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(a_call_is_decoded_as_encoded),
        cmocka_unit_test(an_answer_is_decoded_as_encoded),
        cmocka_unit_test(frames_are_bounded),
        cmocka_unit_test(an_info_is_decoded_as_encoded),
        cmocka_unit_test(beats_are_decoded_as_encoded),
        cmocka_unit_test(beats_say_what_a_rank_does),
        cmocka_unit_test(an_unknown_boot_id_matches_no_host),
        cmocka_unit_test(ranks_of_one_process_have_one_token),
        cmocka_unit_test(every_verdict_has_a_text),
        cmocka_unit_test(slots_are_decoded_as_encoded),
        cmocka_unit_test(offers_are_decoded_as_encoded),
        cmocka_unit_test(cards_are_decoded_as_encoded),
    };

    return T_RUN(tests);
}
