/* SPDX-License-Identifier: MIT
 *
 * What two ranks say when they connect over RDMA, as bytes. Knows no verbs, so that it can be
 * tested and fuzzed anywhere. docs/protocol.md has the tables.
 */
#ifndef VB_VERBS_HELLO_H
#define VB_VERBS_HELLO_H

#include "net/auth.h"
#include "net/transport.h"

/* ---- where a rank listens ---------------------------------------------------------------------
 */

#define VERBS_ADDRS_MAX 4

/* What the ranks tell each other over the control plane before they connect. */
struct verbs_address {
    int port;  /* of librdmacm's */
    bool soft; /* all its devices are software */
    int n_addrs;
    char addrs[VERBS_ADDRS_MAX][VB_ADDR_TEXT]; /* best first */
    char device[16];                           /* of the first, for messages */
};

vb_status verbs_address_pack(const struct verbs_address *address, struct vb_blob *blob_p);
bool verbs_address_unpack(const struct vb_blob *blob, struct verbs_address *address_p);

/* ---- the request and its reply ----------------------------------------------------------------
 */

#define VERBS_CALL_BYTES 56 /* all that librdmacm carries with a request */
#define VERBS_NONCE_BYTES 12
#define VERBS_VERSION 1

enum verbs_call_kind { VERBS_CALL_REQUEST, VERBS_CALL_REPLY };

struct verbs_call {
    int rank; /* the sender's */
    uint32_t epoch;
    int port; /* which of the sender's ports this is */
};

/* Makes a request with a new nonce. to: the rank that is called. */
void verbs_call_request(const struct verbs_call *call, int to,
                        const unsigned char key[AUTH_KEY_BYTES],
                        unsigned char out[VERBS_CALL_BYTES]);

/* The answer covers the request, so it cannot be one that was heard before. */
void verbs_call_reply(const struct verbs_call *call, const unsigned char request[VERBS_CALL_BYTES],
                      const unsigned char key[AUTH_KEY_BYTES], unsigned char out[VERBS_CALL_BYTES]);

/* The first message of the caller covers both. */
void verbs_call_proof(const unsigned char request[VERBS_CALL_BYTES],
                      const unsigned char reply[VERBS_CALL_BYTES],
                      const unsigned char key[AUTH_KEY_BYTES], unsigned char proof[WIRE_PROOF]);

/* Who it claims to be; NULL, or what is wrong with it: then call_p is not written. */
const char *verbs_call_read(const unsigned char *bytes, size_t len_bytes, enum verbs_call_kind kind,
                            struct verbs_call *call_p);

/* Whether it has the key. */
bool verbs_call_request_verify(const unsigned char request[VERBS_CALL_BYTES], int to,
                               const unsigned char key[AUTH_KEY_BYTES]);
bool verbs_call_reply_verify(const unsigned char request[VERBS_CALL_BYTES],
                             const unsigned char reply[VERBS_CALL_BYTES],
                             const unsigned char key[AUTH_KEY_BYTES]);

/* ---- messages ---------------------------------------------------------------------------------
 */

#define VERBS_MESSAGE_BYTES 64 /* room for any of them: a receive */
#define VERBS_PROBE_BYTES 512

enum verbs_message_type { VERBS_HELLO = 1, VERBS_CREDIT, VERBS_NOTE, VERBS_PROBED };

/* The first message each way. */
struct verbs_hello {
    unsigned char proof[WIRE_PROOF]; /* the caller's; zero in the other direction */
    uint64_t probe_addr;
    uint32_t probe_rkey;
    uint32_t credits;
    bool imm; /* it can and will write with immediate data */
};

/* Both return the number of bytes. */
size_t verbs_hello_pack(const struct verbs_hello *hello, unsigned char out[VERBS_MESSAGE_BYTES]);
size_t verbs_value_pack(enum verbs_message_type type, uint32_t value,
                        unsigned char out[VERBS_MESSAGE_BYTES]);

/* The type, or 0 if it is none of these or has another length. value_p: of all but a hello. */
int verbs_message_read(const unsigned char *bytes, size_t len_bytes, struct verbs_hello *hello_p,
                       uint32_t *value_p);

/* ---- keys of windows ---------------------------------------------------------------------------
 */

struct verbs_key {
    uint64_t addr;
    int n_ports;
    uint32_t rkeys[4]; /* of each port of the owner */
};

void verbs_key_pack(const struct verbs_key *key, struct vb_blob *blob_p);
bool verbs_key_unpack(const struct vb_blob *blob, struct verbs_key *key_p);

#endif
