/* SPDX-License-Identifier: MIT
 *
 * Encodes and decodes the messages of two ranks that connect over RDMA. This file does not use
 * verbs, so it can be tested and fuzzed on any machine. docs/protocol.md has the tables.
 */
#ifndef VB_NET_VERBS_VERBS_HELLO_H
#define VB_NET_VERBS_VERBS_HELLO_H

#include "net/control/auth.h"
#include "net/transport.h"

/* ---- where a rank listens -------------------------------------------------------------------- */

#define VERBS_ADDRS_MAX 4

/* The address of a rank, which the ranks exchange over the control plane. */
struct verbs_address {
    int port;  /* port number of librdmacm */
    bool soft; /* the device of the first address is software */
    int n_addrs;
    char addrs[VERBS_ADDRS_MAX][VB_ADDR_TEXT]; /* best first */
    char device[16];                           /* device of the first address, for messages */
};

vb_status vb_verbs_address_pack(const struct verbs_address *address, struct vb_blob *blob_p);
bool vb_verbs_address_unpack(const struct vb_blob *blob, struct verbs_address *address_p);

/* ---- the request and its reply --------------------------------------------------------------- */

#define VERBS_CALL_BYTES 56 /* the maximum that librdmacm carries with a request */
#define VERBS_NONCE_BYTES 12
#define VERBS_VERSION 1

enum verbs_call_kind { VERBS_CALL_REQUEST, VERBS_CALL_REPLY };

struct verbs_call {
    int rank; /* rank of the sender */
    uint32_t epoch;
    int port; /* index of the sender's port */
};

/* Makes a request to the rank `to`, with a new nonce. */
void vb_verbs_call_request(const struct verbs_call *call, int to,
                           const unsigned char key[AUTH_KEY_BYTES],
                           unsigned char out[VERBS_CALL_BYTES]);

/* Makes a reply. Its proof covers the request, so an old reply cannot be used again. */
void vb_verbs_call_reply(const struct verbs_call *call,
                         const unsigned char request[VERBS_CALL_BYTES],
                         const unsigned char key[AUTH_KEY_BYTES],
                         unsigned char out[VERBS_CALL_BYTES]);

/* Makes the proof in the caller's first message. It covers request and reply. */
void vb_verbs_call_proof(const unsigned char request[VERBS_CALL_BYTES],
                         const unsigned char reply[VERBS_CALL_BYTES],
                         const unsigned char key[AUTH_KEY_BYTES], unsigned char proof[WIRE_PROOF]);

/* Decodes a request or reply; the proof is not checked. Returns NULL if it is valid. Otherwise
 * returns a text that says what is wrong, and does not write *call_p. */
const char *vb_verbs_call_read(const unsigned char *bytes, size_t len_bytes,
                               enum verbs_call_kind kind, struct verbs_call *call_p);

/* Return true if the proof of a request or reply was made with the key. */
bool vb_verbs_call_request_verify(const unsigned char request[VERBS_CALL_BYTES], int to,
                                  const unsigned char key[AUTH_KEY_BYTES]);
bool vb_verbs_call_reply_verify(const unsigned char request[VERBS_CALL_BYTES],
                                const unsigned char reply[VERBS_CALL_BYTES],
                                const unsigned char key[AUTH_KEY_BYTES]);

/* ---- messages -------------------------------------------------------------------------------- */

#define VERBS_MESSAGE_BYTES 64 /* size of a receive: the longest message fits */
#define VERBS_PROBE_BYTES 512

enum verbs_message_type { VERBS_HELLO = 1, VERBS_CREDIT, VERBS_NOTE, VERBS_PROBED };

/* The first message in each direction. */
struct verbs_hello {
    unsigned char proof[WIRE_PROOF]; /* proof of the caller; zero in the other direction */
    uint64_t probe_addr;
    uint32_t probe_rkey;
    uint32_t credits;
    bool imm; /* the sender is willing to write with immediate data */
};

/* Encode a hello, or a message that carries one value. Both return the number of bytes. */
size_t vb_verbs_hello_pack(const struct verbs_hello *hello, unsigned char out[VERBS_MESSAGE_BYTES]);
size_t vb_verbs_value_pack(enum verbs_message_type type, uint32_t value,
                           unsigned char out[VERBS_MESSAGE_BYTES]);

/* Decodes a message. Returns its type, or 0 if the type or the length is invalid. Writes *hello_p
 * for a hello and *value_p for the other types. */
int vb_verbs_message_read(const unsigned char *bytes, size_t len_bytes, struct verbs_hello *hello_p,
                          uint32_t *value_p);

/* ---- keys of windows ------------------------------------------------------------------------- */

struct verbs_key {
    uint64_t addr;
    int n_ports;
    uint32_t rkeys[4]; /* one for each port of the owner */
};

void vb_verbs_key_pack(const struct verbs_key *key, struct vb_blob *blob_p);
bool vb_verbs_key_unpack(const struct vb_blob *blob, struct verbs_key *key_p);

#endif
