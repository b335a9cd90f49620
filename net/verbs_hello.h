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

#define RD_ADDRS 4

/* What the ranks tell each other over the control plane before they connect. */
struct rd_address {
    int port;  /* of librdmacm's */
    bool soft; /* all its devices are software */
    int n_addrs;
    char addrs[RD_ADDRS][VB_ADDR_TEXT]; /* best first */
    char device[16];                    /* of the first, for messages */
};

vb_status rd_address_pack(const struct rd_address *address, struct vb_blob *blob_p);
bool rd_address_unpack(const struct vb_blob *blob, struct rd_address *address_p);

/* ---- the request and its reply ----------------------------------------------------------------
 */

#define RD_CALL_BYTES 56 /* all that librdmacm carries with a request */
#define RD_NONCE 12
#define RD_VERSION 1

enum rd_call_kind { RD_CALL_REQUEST, RD_CALL_REPLY };

struct rd_call {
    int rank; /* the sender's */
    uint32_t epoch;
    int port; /* which of the sender's ports this is */
};

/* Makes a request with a new nonce. to: the rank that is called. */
void rd_call_request(const struct rd_call *call, int to, const unsigned char key[AUTH_KEY_BYTES],
                     unsigned char out[RD_CALL_BYTES]);

/* The answer covers the request, so it cannot be one that was heard before. */
void rd_call_reply(const struct rd_call *call, const unsigned char request[RD_CALL_BYTES],
                   const unsigned char key[AUTH_KEY_BYTES], unsigned char out[RD_CALL_BYTES]);

/* The first message of the caller covers both. */
void rd_call_proof(const unsigned char request[RD_CALL_BYTES],
                   const unsigned char reply[RD_CALL_BYTES],
                   const unsigned char key[AUTH_KEY_BYTES], unsigned char proof[WIRE_PROOF]);

/* Who it claims to be; NULL, or what is wrong with it: then call_p is not written. */
const char *rd_call_read(const unsigned char *bytes, size_t len_bytes, enum rd_call_kind kind,
                         struct rd_call *call_p);

/* Whether it has the key. */
bool rd_call_request_proves(const unsigned char request[RD_CALL_BYTES], int to,
                            const unsigned char key[AUTH_KEY_BYTES]);
bool rd_call_reply_proves(const unsigned char request[RD_CALL_BYTES],
                          const unsigned char reply[RD_CALL_BYTES],
                          const unsigned char key[AUTH_KEY_BYTES]);

/* ---- messages ---------------------------------------------------------------------------------
 */

#define RD_MESSAGE_BYTES 64 /* room for any of them: a receive */
#define RD_PROBE_BYTES 512

enum rd_message_type { RD_HELLO = 1, RD_CREDIT, RD_NOTE, RD_PROBED };

/* The first message each way. */
struct rd_hello {
    unsigned char proof[WIRE_PROOF]; /* the caller's; zero in the other direction */
    uint64_t probe_addr;
    uint32_t probe_rkey;
    uint32_t credits;
    bool imm; /* it can and will write with immediate data */
};

/* Both return the number of bytes. */
size_t rd_hello_pack(const struct rd_hello *hello, unsigned char out[RD_MESSAGE_BYTES]);
size_t rd_word_pack(enum rd_message_type type, uint32_t value, unsigned char out[RD_MESSAGE_BYTES]);

/* The type, or 0 if it is none of these or has another length. value_p: of all but a hello. */
int rd_message_read(const unsigned char *bytes, size_t len_bytes, struct rd_hello *hello_p,
                    uint32_t *value_p);

/* ---- keys of windows ---------------------------------------------------------------------------
 */

struct rd_key {
    uint64_t addr;
    int n_ports;
    uint32_t rkeys[4]; /* of each port of the owner */
};

void rd_key_pack(const struct rd_key *key, struct vb_blob *blob_p);
bool rd_key_unpack(const struct vb_blob *blob, struct rd_key *key_p);

#endif
