/* SPDX-License-Identifier: MIT
 *
 * Proof of a shared secret, over libsodium alone (auth.c is its only home). No cryptography of our
 * own: messages are authenticated with crypto_auth, sealed with crypto_secretbox.
 */
#ifndef VB_AUTH_H
#define VB_AUTH_H

#include "net/wire.h"

#define AUTH_KEY_BYTES VB_SECRET_BYTES
#define AUTH_SEALED_BYTES (24 + 16 + AUTH_KEY_BYTES) /* nonce, tag, key */

/* Before anything else in this file; may be called often. */
vb_status auth_init(void);

void auth_random(void *out, size_t len_bytes);
void auth_wipe(void *secret, size_t len_bytes);

/* The proofs of both sides cover the whole handshake so far, and differ by side, so that neither
 * can be reflected or used again: each side's nonce is in it. */
void auth_prove_server(const unsigned char key[AUTH_KEY_BYTES],
                       const unsigned char call[WIRE_CALL_BYTES],
                       const unsigned char answer[WIRE_ANSWER_BYTES],
                       unsigned char proof[WIRE_PROOF]);
void auth_prove_client(const unsigned char key[AUTH_KEY_BYTES],
                       const unsigned char call[WIRE_CALL_BYTES],
                       const unsigned char answer[WIRE_ANSWER_BYTES],
                       unsigned char proof[WIRE_PROOF]);
/* The code of a label of 16 characters and a message of at most AUTH_MESSAGE_MAX bytes. */
#define AUTH_MESSAGE_MAX VB_DERIVE_MAX
void auth_code(const unsigned char key[AUTH_KEY_BYTES], const char label[16], const void *message,
               size_t len_bytes, unsigned char code[WIRE_PROOF]);
bool auth_equal(const unsigned char a[WIRE_PROOF], const unsigned char b[WIRE_PROOF]);

/* A key for this connection alone, which both sides can make after the handshake. */
void auth_session(const unsigned char key[AUTH_KEY_BYTES],
                  const unsigned char call[WIRE_CALL_BYTES],
                  const unsigned char answer[WIRE_ANSWER_BYTES],
                  unsigned char session[AUTH_KEY_BYTES]);

/* Seals a key for a peer that has the same session key. */
void auth_seal(const unsigned char session[AUTH_KEY_BYTES], const unsigned char key[AUTH_KEY_BYTES],
               unsigned char sealed[AUTH_SEALED_BYTES]);
bool auth_unseal(const unsigned char session[AUTH_KEY_BYTES],
                 const unsigned char sealed[AUTH_SEALED_BYTES], unsigned char key[AUTH_KEY_BYTES]);

#endif
