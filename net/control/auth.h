/* SPDX-License-Identifier: MIT
 *
 * Proof of a shared secret, and the tags of control frames. Only auth.c includes libsodium: the
 * handshake is authenticated with crypto_auth, frames with crypto_generichash, and keys are sealed
 * with crypto_secretbox.
 */
#ifndef VB_NET_CONTROL_AUTH_H
#define VB_NET_CONTROL_AUTH_H

#include "net/wire/wire.h"

#define AUTH_KEY_BYTES VB_SECRET_BYTES
#define AUTH_SEALED_BYTES (24 + 16 + AUTH_KEY_BYTES) /* nonce, tag, key */

/* Must be called before any other function of this file. It may be called again. */
vb_status vb_auth_init(void);

void vb_auth_random(void *out, size_t len_bytes);

/* Computes the proof of one side, or the key of this connection. Each covers the whole handshake so
 * far, with the nonces of both sides, so a proof cannot be used again. Each has its own label, so a
 * proof cannot be reflected. */
enum auth_code { AUTH_SERVER, AUTH_CLIENT, AUTH_SESSION };
void vb_auth_handshake(enum auth_code what, const unsigned char key[AUTH_KEY_BYTES],
                       const unsigned char call[WIRE_CALL_BYTES],
                       const unsigned char answer[WIRE_ANSWER_BYTES],
                       unsigned char out[WIRE_PROOF]);

/* The label has 16 characters, the message at most AUTH_MESSAGE_MAX bytes. */
#define AUTH_MESSAGE_MAX VB_DERIVE_MAX
void vb_auth_code(const unsigned char key[AUTH_KEY_BYTES], const char label[16],
                  const void *message, size_t len_bytes, unsigned char code[WIRE_PROOF]);
bool vb_auth_equal(const unsigned char a[WIRE_PROOF], const unsigned char b[WIRE_PROOF]);

/* The key of a connection, and the frames in each direction: their key and the number of tags so
 * far. Each tag covers its number, so a frame can be neither repeated, moved nor left out, and the
 * directions have different keys, so it cannot be sent back. The number itself is not sent. */
struct auth_chain {
    unsigned char key[AUTH_KEY_BYTES];
    uint64_t count;
};

struct auth_session {
    unsigned char key[AUTH_KEY_BYTES];
    struct auth_chain in, out;
};

enum auth_side { AUTH_CALLER, AUTH_LISTENER };
void vb_auth_session(struct auth_session *session, const unsigned char key[AUTH_KEY_BYTES],
                     enum auth_side side);

/* Writes a frame with its tags, for which out has room. Returns its length. Allocates nothing. */
#define AUTH_FRAME_ROOM(len_bytes) (WIRE_FRAME_HEAD + 2 * WIRE_TAG + (len_bytes))
size_t vb_auth_frame(struct auth_chain *chain, uint16_t type, const void *payload, size_t len_bytes,
                     unsigned char *out);

/* Checks the next tag, which covers head and payload; len_bytes 0: the head alone. Returns NULL if
 * the tag is right, otherwise a sentence that says what is wrong with the frame. */
const char *vb_auth_check(struct auth_session *session, const unsigned char head[WIRE_FRAME_HEAD],
                          const void *payload, size_t len_bytes, const unsigned char tag[WIRE_TAG]);

/* Encrypts a key for a peer that has the same session key. */
void vb_auth_seal(const unsigned char session[AUTH_KEY_BYTES],
                  const unsigned char key[AUTH_KEY_BYTES], unsigned char sealed[AUTH_SEALED_BYTES]);
bool vb_auth_unseal(const unsigned char session[AUTH_KEY_BYTES],
                    const unsigned char sealed[AUTH_SEALED_BYTES],
                    unsigned char key[AUTH_KEY_BYTES]);

#endif
