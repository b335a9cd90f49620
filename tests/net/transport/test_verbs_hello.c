/* SPDX-License-Identifier: MIT
 *
 * Tests the messages by which ranks connect over RDMA. A message that was made without the key is
 * refused. Broken messages are refused for another reason.
 */
#include "net/verbs/verbs_hello.h"
#include "tests/support/test.h"

static const unsigned char key[AUTH_KEY_BYTES] = "a key of thirty-two bytes, or so";
static const unsigned char other[AUTH_KEY_BYTES] = "another key of as many bytes ...";

static void a_request_verify_the_key(void **state)
{
    struct verbs_call call = {.rank = 700, .epoch = 9, .port = 3}, got;
    unsigned char request[VERBS_CALL_BYTES], again[VERBS_CALL_BYTES], bad[VERBS_CALL_BYTES];
    size_t i;

    (void)state;
    vb_verbs_call_request(&call, 5, key, request);
    assert_null(vb_verbs_call_read(request, sizeof(request), VERBS_CALL_REQUEST, &got));
    assert_int_equal(got.rank, 700);
    assert_int_equal(got.epoch, 9);
    assert_int_equal(got.port, 3);
    assert_true(vb_verbs_call_request_verify(request, 5, key));
    /* the request is for another rank */
    assert_false(vb_verbs_call_request_verify(request, 6, key));
    assert_false(vb_verbs_call_request_verify(request, 5, other));
    vb_verbs_call_request(&call, 5, key, again);
    assert_memory_not_equal(request, again, sizeof(request)); /* each request has its own nonce */
    for (i = 0; i < sizeof(bad); i++) {
        memcpy(bad, request, sizeof(bad));
        bad[i] ^= 1;
        assert_false(vb_verbs_call_request_verify(bad, 5, key));
    }
}

static void a_reply_belongs_to_its_request(void **state)
{
    struct verbs_call caller = {.rank = 2, .epoch = 1}, called = {.rank = 1, .epoch = 1}, got;
    unsigned char request[VERBS_CALL_BYTES], later[VERBS_CALL_BYTES], reply[VERBS_CALL_BYTES];
    unsigned char proof[WIRE_PROOF], replayed[WIRE_PROOF];

    (void)state;
    vb_verbs_call_request(&caller, 1, key, request);
    vb_verbs_call_request(&caller, 1, key, later);
    vb_verbs_call_reply(&called, request, key, reply);
    assert_null(vb_verbs_call_read(reply, sizeof(reply), VERBS_CALL_REPLY, &got));
    assert_int_equal(got.rank, 1);
    assert_true(vb_verbs_call_reply_verify(request, reply, key));
    assert_false(vb_verbs_call_reply_verify(later, reply, key));
    assert_false(vb_verbs_call_reply_verify(request, reply, other));
    vb_verbs_call_proof(request, reply, key, proof);
    vb_verbs_call_reply(&called, request, key, reply); /* a second reply to the same request */
    vb_verbs_call_proof(request, reply, key, replayed);
    assert_false(vb_auth_equal(proof, replayed));
}

static void broken_calls_are_recognised(void **state)
{
    struct verbs_call call = {.rank = 2, .epoch = 1}, got;
    unsigned char request[VERBS_CALL_BYTES];

    (void)state;
    vb_verbs_call_request(&call, 1, key, request);
    assert_string_equal(vb_verbs_call_read(NULL, 0, VERBS_CALL_REQUEST, &got),
                        "the message of the caller is too short");
    assert_string_equal(vb_verbs_call_read(request, 55, VERBS_CALL_REQUEST, &got),
                        "the message of the caller is too short");
    assert_string_equal(vb_verbs_call_read(request, 56, VERBS_CALL_REPLY, &got),
                        "the message of the caller is of the wrong kind");
    request[4]++;
    assert_string_equal(vb_verbs_call_read(request, 56, VERBS_CALL_REQUEST, &got),
                        "the caller uses a different version of the protocol");
    request[0]++;
    assert_string_equal(vb_verbs_call_read(request, 56, VERBS_CALL_REQUEST, &got),
                        "the caller is not a Verbena program");
}

static void addresses_are_decoded_as_encoded(void **state)
{
    struct verbs_address a = {.port = 40000, .soft = true, .n_addrs = 3, .device = "mlx5_bond_0"},
                         got;
    struct vb_blob blob;
    uint32_t len;

    (void)state;
    strcpy(a.addrs[0], "10.77.0.1");
    strcpy(a.addrs[1], "fd00::12");
    strcpy(a.addrs[2], "192.168.255.254");
    assert_int_equal(vb_verbs_address_pack(&a, &blob), VB_OK);
    assert_true(vb_verbs_address_unpack(&blob, &got));
    assert_int_equal(got.port, 40000);
    assert_true(got.soft);
    assert_int_equal(got.n_addrs, 3);
    assert_string_equal(got.addrs[1], "fd00::12");
    assert_string_equal(got.addrs[2], "192.168.255.254");
    assert_string_equal(got.device, "mlx5_bond_0");
    for (len = 0; len <= VB_BLOB_MAX + 1; len++) {
        uint32_t right = blob.len_bytes;

        blob.len_bytes = len;
        assert_int_equal(vb_verbs_address_unpack(&blob, &got), len == right);
        blob.len_bytes = right;
    }
}

static void messages_are_decoded_as_encoded(void **state)
{
    struct verbs_hello hello = {
        .probe_addr = UINT64_C(0x123456789abcdef0), .probe_rkey = 77, .credits = 128, .imm = true};
    unsigned char bytes[VERBS_MESSAGE_BYTES];
    struct verbs_hello got;
    uint32_t value;
    size_t len;

    (void)state;
    len = vb_verbs_hello_pack(&hello, bytes);
    assert_int_equal(vb_verbs_message_read(bytes, len, &got, &value), VERBS_HELLO);
    assert_int_equal(got.probe_addr, hello.probe_addr);
    assert_int_equal(got.credits, 128);
    assert_true(got.imm);
    assert_int_equal(vb_verbs_message_read(bytes, len - 1, &got, &value), 0);
    hello.credits = 0; /* with 0 credits the peer could never send anything */
    len = vb_verbs_hello_pack(&hello, bytes);
    assert_int_equal(vb_verbs_message_read(bytes, len, &got, &value), 0);
    len = vb_verbs_value_pack(VERBS_CREDIT, 0xdeadbeef, bytes);
    assert_int_equal(vb_verbs_message_read(bytes, len, &got, &value), VERBS_CREDIT);
    assert_int_equal(value, 0xdeadbeef);
    bytes[0] = 99;
    assert_int_equal(vb_verbs_message_read(bytes, len, &got, &value), 0);
}

static void keys_are_decoded_as_encoded(void **state)
{
    struct verbs_key window = {.addr = UINT64_C(0xfeedbeef12345678), .n_ports = 2, .rkeys = {5, 6}},
                     got;
    struct vb_blob blob;

    (void)state;
    vb_verbs_key_pack(&window, &blob);
    assert_true(vb_verbs_key_unpack(&blob, &got));
    assert_int_equal(got.addr, window.addr);
    assert_int_equal(got.rkeys[1], 6);
    blob.len_bytes--;
    assert_false(vb_verbs_key_unpack(&blob, &got));
    blob.len_bytes = 0;
    assert_false(vb_verbs_key_unpack(&blob, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_verify_the_key),
        cmocka_unit_test(a_reply_belongs_to_its_request),
        cmocka_unit_test(broken_calls_are_recognised),
        cmocka_unit_test(addresses_are_decoded_as_encoded),
        cmocka_unit_test(messages_are_decoded_as_encoded),
        cmocka_unit_test(keys_are_decoded_as_encoded),
    };

    if (vb_auth_init() != VB_OK)
        return 1;
    return T_RUN(tests);
}
