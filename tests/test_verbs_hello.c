/* SPDX-License-Identifier: MIT
 *
 * What ranks say when they connect over RDMA: only who has the key is believed, and what is broken
 * is told apart from what is not.
 */
#include "net/verbs_hello.h"
#include "tests/test.h"

static const unsigned char key[AUTH_KEY_BYTES] = "a key of thirty-two bytes, or so";
static const unsigned char other[AUTH_KEY_BYTES] = "another key of as many bytes ...";

static void a_request_proves_the_key(void **state)
{
    struct rd_call call = {.rank = 700, .epoch = 9, .port = 3}, got;
    unsigned char request[RD_CALL_BYTES], again[RD_CALL_BYTES], bad[RD_CALL_BYTES];
    size_t i;

    (void)state;
    rd_call_request(&call, 5, key, request);
    assert_null(rd_call_read(request, sizeof(request), RD_CALL_REQUEST, &got));
    assert_int_equal(got.rank, 700);
    assert_int_equal(got.epoch, 9);
    assert_int_equal(got.port, 3);
    assert_true(rd_call_request_proves(request, 5, key));
    assert_false(rd_call_request_proves(request, 6, key)); /* meant for another rank */
    assert_false(rd_call_request_proves(request, 5, other));
    rd_call_request(&call, 5, key, again);
    assert_memory_not_equal(request, again, sizeof(request)); /* a nonce of its own */
    for (i = 0; i < sizeof(bad); i++) {
        memcpy(bad, request, sizeof(bad));
        bad[i] ^= 1;
        assert_false(rd_call_request_proves(bad, 5, key));
    }
}

static void a_reply_belongs_to_its_request(void **state)
{
    struct rd_call caller = {.rank = 2, .epoch = 1}, called = {.rank = 1, .epoch = 1}, got;
    unsigned char request[RD_CALL_BYTES], later[RD_CALL_BYTES], reply[RD_CALL_BYTES];
    unsigned char proof[WIRE_PROOF], replayed[WIRE_PROOF];

    (void)state;
    rd_call_request(&caller, 1, key, request);
    rd_call_request(&caller, 1, key, later);
    rd_call_reply(&called, request, key, reply);
    assert_null(rd_call_read(reply, sizeof(reply), RD_CALL_REPLY, &got));
    assert_int_equal(got.rank, 1);
    assert_true(rd_call_reply_proves(request, reply, key));
    assert_false(rd_call_reply_proves(later, reply, key));
    assert_false(rd_call_reply_proves(request, reply, other));
    rd_call_proof(request, reply, key, proof);
    rd_call_reply(&called, request, key, reply); /* the same request, played again */
    rd_call_proof(request, reply, key, replayed);
    assert_false(auth_equal(proof, replayed));
}

static void broken_calls_are_told(void **state)
{
    struct rd_call call = {.rank = 2, .epoch = 1}, got;
    unsigned char request[RD_CALL_BYTES];

    (void)state;
    rd_call_request(&call, 1, key, request);
    assert_string_equal(rd_call_read(NULL, 0, RD_CALL_REQUEST, &got), "it is too short");
    assert_string_equal(rd_call_read(request, 55, RD_CALL_REQUEST, &got), "it is too short");
    assert_string_equal(rd_call_read(request, 56, RD_CALL_REPLY, &got),
                        "it is not what it should be");
    request[4]++;
    assert_string_equal(rd_call_read(request, 56, RD_CALL_REQUEST, &got),
                        "it speaks another version");
    request[0]++;
    assert_string_equal(rd_call_read(request, 56, RD_CALL_REQUEST, &got), "it is not a Verbena program");
}

static void addresses_survive(void **state)
{
    struct rd_address a = {.port = 40000, .soft = true, .n_addrs = 3, .device = "mlx5_bond_0"}, got;
    struct vb_blob blob;
    uint32_t len;

    (void)state;
    strcpy(a.addrs[0], "10.77.0.1");
    strcpy(a.addrs[1], "fd00::12");
    strcpy(a.addrs[2], "192.168.255.254");
    assert_int_equal(rd_address_pack(&a, &blob), VB_OK);
    assert_true(rd_address_unpack(&blob, &got));
    assert_int_equal(got.port, 40000);
    assert_true(got.soft);
    assert_int_equal(got.n_addrs, 3);
    assert_string_equal(got.addrs[1], "fd00::12");
    assert_string_equal(got.addrs[2], "192.168.255.254");
    assert_string_equal(got.device, "mlx5_bond_0");
    for (len = 0; len <= VB_BLOB_MAX + 1; len++) {
        uint32_t right = blob.len_bytes;

        blob.len_bytes = len;
        assert_int_equal(rd_address_unpack(&blob, &got), len == right);
        blob.len_bytes = right;
    }
}

static void messages_survive(void **state)
{
    struct rd_hello hello = {
        .probe_addr = UINT64_C(0x123456789abcdef0), .probe_rkey = 77, .credits = 128, .imm = true};
    unsigned char bytes[RD_MESSAGE_BYTES];
    struct rd_hello got;
    uint32_t value;
    size_t len;

    (void)state;
    len = rd_hello_pack(&hello, bytes);
    assert_int_equal(rd_message_read(bytes, len, &got, &value), RD_HELLO);
    assert_int_equal(got.probe_addr, hello.probe_addr);
    assert_int_equal(got.credits, 128);
    assert_true(got.imm);
    assert_int_equal(rd_message_read(bytes, len - 1, &got, &value), 0);
    hello.credits = 0; /* nothing could ever be sent */
    len = rd_hello_pack(&hello, bytes);
    assert_int_equal(rd_message_read(bytes, len, &got, &value), 0);
    len = rd_word_pack(RD_CREDIT, 0xdeadbeef, bytes);
    assert_int_equal(rd_message_read(bytes, len, &got, &value), RD_CREDIT);
    assert_int_equal(value, 0xdeadbeef);
    bytes[0] = 99;
    assert_int_equal(rd_message_read(bytes, len, &got, &value), 0);
}

static void keys_survive(void **state)
{
    struct rd_key window = {.addr = UINT64_C(0xfeedbeef12345678), .n_ports = 2, .rkeys = {5, 6}},
                  got;
    struct vb_blob blob;

    (void)state;
    rd_key_pack(&window, &blob);
    assert_true(rd_key_unpack(&blob, &got));
    assert_int_equal(got.addr, window.addr);
    assert_int_equal(got.rkeys[1], 6);
    blob.len_bytes--;
    assert_false(rd_key_unpack(&blob, &got));
    blob.len_bytes = 0;
    assert_false(rd_key_unpack(&blob, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_proves_the_key),
        cmocka_unit_test(a_reply_belongs_to_its_request),
        cmocka_unit_test(broken_calls_are_told),
        cmocka_unit_test(addresses_survive),
        cmocka_unit_test(messages_survive),
        cmocka_unit_test(keys_survive),
    };

    if (auth_init() != VB_OK)
        return 1;
    return T_RUN(tests);
}
