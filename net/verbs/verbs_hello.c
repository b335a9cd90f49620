/* SPDX-License-Identifier: MIT
 *
 * docs/protocol.md has the tables of bytes, and says what the three proofs cover. The first byte of
 * the nonce is the number of the sender's port.
 */
#include "net/verbs/verbs_hello.h"

#include <arpa/inet.h>
#include <string.h>

#define MAGIC 0x52425256u /* "VRBR" */

enum { AT_VERSION = 4, AT_KIND = 5, AT_RANK = 6, AT_EPOCH = 8, AT_NONCE = 12, AT_PROOF = 24 };

_Static_assert(AT_NONCE + VERBS_NONCE_BYTES == AT_PROOF &&
                   AT_PROOF + WIRE_PROOF == VERBS_CALL_BYTES,
               "a request has a wrong size");

/* ---- addresses ------------------------------------------------------------------------------- */

enum { AT_PORT = 0, AT_SOFT = 4, AT_COUNT = 5, AT_DEVICE = 6, AT_ADDRS = 22, ADDR_BYTES = 17 };

_Static_assert(AT_ADDRS + VERBS_ADDRS_MAX * ADDR_BYTES <= VB_BLOB_MAX, "an address does not fit");

static bool addr_pack(const char *text, unsigned char out[ADDR_BYTES])
{
    memset(out, 0, ADDR_BYTES);
    out[0] = 4;
    if (inet_pton(AF_INET, text, out + 1) == 1)
        return true;
    out[0] = 6;
    return inet_pton(AF_INET6, text, out + 1) == 1;
}

static bool addr_unpack(const unsigned char in[ADDR_BYTES], char text[VB_ADDR_TEXT])
{
    int family = in[0] == 4 ? AF_INET : AF_INET6;

    return (in[0] == 4 || in[0] == 6) && inet_ntop(family, in + 1, text, VB_ADDR_TEXT) != NULL;
}

vb_status vb_verbs_address_pack(const struct verbs_address *a, struct vb_blob *blob)
{
    int i;

    memset(blob, 0, sizeof(*blob));
    vb_wire_u32_encode((uint32_t)a->port, blob->bytes + AT_PORT);
    blob->bytes[AT_SOFT] = a->soft;
    blob->bytes[AT_COUNT] = (unsigned char)a->n_addrs;
    memcpy(blob->bytes + AT_DEVICE, a->device, sizeof(a->device));
    for (i = 0; i < a->n_addrs; i++)
        if (!addr_pack(a->addrs[i], blob->bytes + AT_ADDRS + i * ADDR_BYTES))
            return vb_err(VB_ERR_USAGE, "%s is not an IP address", a->addrs[i]);
    blob->len_bytes = (uint32_t)(AT_ADDRS + a->n_addrs * ADDR_BYTES);
    return VB_OK;
}

bool vb_verbs_address_unpack(const struct vb_blob *blob, struct verbs_address *a)
{
    uint32_t port;
    int i;

    memset(a, 0, sizeof(*a));
    if (blob->len_bytes < AT_ADDRS || blob->len_bytes > VB_BLOB_MAX)
        return false;
    port = vb_wire_u32_decode(blob->bytes + AT_PORT);
    a->port = (int)port;
    a->soft = blob->bytes[AT_SOFT] != 0;
    a->n_addrs = blob->bytes[AT_COUNT];
    memcpy(a->device, blob->bytes + AT_DEVICE, sizeof(a->device) - 1);
    if (port == 0 || port > 65535 || a->n_addrs < 1 || a->n_addrs > VERBS_ADDRS_MAX ||
        blob->len_bytes != (uint32_t)(AT_ADDRS + a->n_addrs * ADDR_BYTES))
        return false;
    for (i = 0; i < a->n_addrs; i++)
        if (!addr_unpack(blob->bytes + AT_ADDRS + i * ADDR_BYTES, a->addrs[i]))
            return false;
    return true;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void call_head(const struct verbs_call *call, enum verbs_call_kind kind,
                      unsigned char out[VERBS_CALL_BYTES])
{
    vb_wire_u32_encode(MAGIC, out);
    out[AT_VERSION] = VERBS_VERSION;
    out[AT_KIND] = (unsigned char)kind;
    out[AT_RANK] = (unsigned char)call->rank;
    out[AT_RANK + 1] = (unsigned char)(call->rank >> 8);
    vb_wire_u32_encode(call->epoch, out + AT_EPOCH);
    vb_auth_random(out + AT_NONCE, VERBS_NONCE_BYTES);
    out[AT_NONCE] = (unsigned char)call->port;
}

static void prove_request(const unsigned char request[VERBS_CALL_BYTES], int to,
                          const unsigned char key[AUTH_KEY_BYTES], unsigned char proof[WIRE_PROOF])
{
    unsigned char message[AT_PROOF + 4];

    memcpy(message, request, AT_PROOF);
    vb_wire_u32_encode((uint32_t)to, message + AT_PROOF);
    vb_auth_code(key, "verbena request1", message, sizeof(message), proof);
}

static void prove_reply(const unsigned char request[VERBS_CALL_BYTES],
                        const unsigned char reply[VERBS_CALL_BYTES],
                        const unsigned char key[AUTH_KEY_BYTES], unsigned char proof[WIRE_PROOF])
{
    unsigned char message[VERBS_CALL_BYTES + AT_PROOF];

    memcpy(message, request, VERBS_CALL_BYTES);
    memcpy(message + VERBS_CALL_BYTES, reply, AT_PROOF);
    vb_auth_code(key, "verbena reply  1", message, sizeof(message), proof);
}

void vb_verbs_call_request(const struct verbs_call *call, int to,
                           const unsigned char key[AUTH_KEY_BYTES],
                           unsigned char out[VERBS_CALL_BYTES])
{
    call_head(call, VERBS_CALL_REQUEST, out);
    prove_request(out, to, key, out + AT_PROOF);
}

void vb_verbs_call_reply(const struct verbs_call *call,
                         const unsigned char request[VERBS_CALL_BYTES],
                         const unsigned char key[AUTH_KEY_BYTES],
                         unsigned char out[VERBS_CALL_BYTES])
{
    call_head(call, VERBS_CALL_REPLY, out);
    prove_reply(request, out, key, out + AT_PROOF);
}

void vb_verbs_call_proof(const unsigned char request[VERBS_CALL_BYTES],
                         const unsigned char reply[VERBS_CALL_BYTES],
                         const unsigned char key[AUTH_KEY_BYTES], unsigned char proof[WIRE_PROOF])
{
    unsigned char message[2 * VERBS_CALL_BYTES];

    memcpy(message, request, VERBS_CALL_BYTES);
    memcpy(message + VERBS_CALL_BYTES, reply, VERBS_CALL_BYTES);
    vb_auth_code(key, "verbena caller 1", message, sizeof(message), proof);
}

const char *vb_verbs_call_read(const unsigned char *bytes, size_t len_bytes,
                               enum verbs_call_kind kind, struct verbs_call *call_p)
{
    if (bytes == NULL || len_bytes < VERBS_CALL_BYTES) /* librdmacm may add padding */
        return "the message of the caller is too short";
    if (vb_wire_u32_decode(bytes) != MAGIC)
        return "the caller is not a Verbena program";
    if (bytes[AT_VERSION] != VERBS_VERSION)
        return "the caller uses a different version of the protocol";
    if (bytes[AT_KIND] != kind)
        return "the message of the caller is of the wrong kind";
    call_p->rank = bytes[AT_RANK] | bytes[AT_RANK + 1] << 8;
    call_p->epoch = vb_wire_u32_decode(bytes + AT_EPOCH);
    call_p->port = bytes[AT_NONCE];
    return NULL;
}

bool vb_verbs_call_request_verify(const unsigned char request[VERBS_CALL_BYTES], int to,
                                  const unsigned char key[AUTH_KEY_BYTES])
{
    unsigned char proof[WIRE_PROOF];

    prove_request(request, to, key, proof);
    return vb_auth_equal(proof, request + AT_PROOF);
}

bool vb_verbs_call_reply_verify(const unsigned char request[VERBS_CALL_BYTES],
                                const unsigned char reply[VERBS_CALL_BYTES],
                                const unsigned char key[AUTH_KEY_BYTES])
{
    unsigned char proof[WIRE_PROOF];

    prove_reply(request, reply, key, proof);
    return vb_auth_equal(proof, reply + AT_PROOF);
}

/* ---- messages -------------------------------------------------------------------------------- */

enum {
    HELLO_PROOF = 4,
    HELLO_ADDR = HELLO_PROOF + WIRE_PROOF,
    HELLO_RKEY = HELLO_ADDR + 8,
    HELLO_CREDITS = HELLO_RKEY + 4,
    HELLO_IMM = HELLO_CREDITS + 4,
    HELLO_BYTES = HELLO_IMM + 4,
    VALUE_BYTES = 8,
};

_Static_assert(HELLO_BYTES <= VERBS_MESSAGE_BYTES, "a hello does not fit into a receive");

size_t vb_verbs_hello_pack(const struct verbs_hello *hello, unsigned char out[VERBS_MESSAGE_BYTES])
{
    vb_wire_u32_encode(VERBS_HELLO, out);
    memcpy(out + HELLO_PROOF, hello->proof, WIRE_PROOF);
    vb_wire_u64_encode(hello->probe_addr, out + HELLO_ADDR);
    vb_wire_u32_encode(hello->probe_rkey, out + HELLO_RKEY);
    vb_wire_u32_encode(hello->credits, out + HELLO_CREDITS);
    vb_wire_u32_encode(hello->imm, out + HELLO_IMM);
    return HELLO_BYTES;
}

size_t vb_verbs_value_pack(enum verbs_message_type type, uint32_t value,
                           unsigned char out[VERBS_MESSAGE_BYTES])
{
    vb_wire_u32_encode((uint32_t)type, out);
    vb_wire_u32_encode(value, out + 4);
    return VALUE_BYTES;
}

static int hello_read(const unsigned char *bytes, struct verbs_hello *hello)
{
    memcpy(hello->proof, bytes + HELLO_PROOF, WIRE_PROOF);
    hello->probe_addr = vb_wire_u64_decode(bytes + HELLO_ADDR);
    hello->probe_rkey = vb_wire_u32_decode(bytes + HELLO_RKEY);
    hello->credits = vb_wire_u32_decode(bytes + HELLO_CREDITS);
    hello->imm = vb_wire_u32_decode(bytes + HELLO_IMM) != 0;
    return hello->credits > 0 && hello->credits <= 1 << 20 ? VERBS_HELLO : 0;
}

int vb_verbs_message_read(const unsigned char *bytes, size_t len_bytes, struct verbs_hello *hello_p,
                          uint32_t *value_p)
{
    uint32_t type;

    if (len_bytes != VALUE_BYTES && len_bytes != HELLO_BYTES)
        return 0;
    type = vb_wire_u32_decode(bytes);
    if (type == VERBS_HELLO)
        return len_bytes == HELLO_BYTES ? hello_read(bytes, hello_p) : 0;
    if (len_bytes != VALUE_BYTES || type > VERBS_PROBED)
        return 0;
    *value_p = vb_wire_u32_decode(bytes + 4);
    return (int)type;
}

/* ---- keys of windows ------------------------------------------------------------------------- */

enum { KEY_ADDR = 0, KEY_COUNT = 8, KEY_RKEYS = 12 };

void vb_verbs_key_pack(const struct verbs_key *key, struct vb_blob *blob)
{
    int i;

    memset(blob, 0, sizeof(*blob));
    vb_wire_u64_encode(key->addr, blob->bytes + KEY_ADDR);
    vb_wire_u32_encode((uint32_t)key->n_ports, blob->bytes + KEY_COUNT);
    for (i = 0; i < key->n_ports; i++)
        vb_wire_u32_encode(key->rkeys[i], blob->bytes + KEY_RKEYS + 4 * i);
    blob->len_bytes = (uint32_t)(KEY_RKEYS + 4 * key->n_ports);
}

bool vb_verbs_key_unpack(const struct vb_blob *blob, struct verbs_key *key)
{
    uint32_t n, i;

    if (blob->len_bytes < KEY_RKEYS)
        return false;
    n = vb_wire_u32_decode(blob->bytes + KEY_COUNT);
    if (n > VB_COUNT(key->rkeys) || blob->len_bytes != KEY_RKEYS + 4 * n)
        return false;
    key->addr = vb_wire_u64_decode(blob->bytes + KEY_ADDR);
    key->n_ports = (int)n;
    for (i = 0; i < n; i++)
        key->rkeys[i] = vb_wire_u32_decode(blob->bytes + KEY_RKEYS + 4 * i);
    return true;
}
