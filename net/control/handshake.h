/* SPDX-License-Identifier: MIT
 *
 * The handshake (docs/protocol.md): both sides of a new connection prove that they have the secret
 * before they send anything else. The caller sends a call, the listener an answer with a verdict
 * and its proof, the caller its proof, the listener the verdict. The caller blocks until a
 * deadline. Strangers must not be able to block the listener, so its side is a state machine, which
 * its owner feeds with the received bytes.
 */
#ifndef VB_NET_CONTROL_HANDSHAKE_H
#define VB_NET_CONTROL_HANDSHAKE_H

#include "net/control/auth.h"

/* The caller's side. Two failures are not logged: VB_AGAIN, the listener is busy with another
 * joiner; VB_ERR_PEER, the listener hung up before the end of the handshake, perhaps because too
 * many called at once. */
vb_status vb_handshake_call(int fd, const struct wire_call *call,
                            const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline,
                            unsigned char session_p[AUTH_KEY_BYTES]);

/* Says whether this caller is expected, which key it must have, and which epoch it must know.
 * *epoch_p already holds the epoch given to vb_handshake_init(). */
typedef enum wire_verdict (*handshake_judge_fn)(void *arg, const struct wire_call *call,
                                                unsigned char key[AUTH_KEY_BYTES],
                                                uint32_t *epoch_p);

enum handshake_state {
    HANDSHAKE_CALL,  /* waits for the rest of the call */
    HANDSHAKE_PROOF, /* has answered, waits for the rest of the proof */
    HANDSHAKE_DONE,
    HANDSHAKE_REFUSED,
};

struct handshake {
    enum handshake_state state;
    enum wire_verdict verdict; /* why the caller was refused */
    bool garbage;              /* the received bytes were not a call */
    struct wire_call call;
    unsigned char session[AUTH_KEY_BYTES];
    /* private */
    uint32_t rank, epoch;
    unsigned char in[WIRE_CALL_BYTES];
    size_t have;
    unsigned char call_bytes[WIRE_CALL_BYTES];
    unsigned char answer_bytes[WIRE_ANSWER_BYTES];
    unsigned char expected[WIRE_PROOF];
};

/* rank and epoch are the listener's own. */
void vb_handshake_init(struct handshake *hs, uint32_t rank, uint32_t epoch);

/* Returns the number of bytes that are needed next; 0: it is done or has refused. */
size_t vb_handshake_wants(const struct handshake *hs);

/* Feeds at most vb_handshake_wants() bytes. Returns the number of bytes in out to send back. */
size_t vb_handshake_feed(struct handshake *hs, const unsigned char *data, size_t len_bytes,
                         handshake_judge_fn judge, void *arg, unsigned char out[WIRE_ANSWER_BYTES]);

#endif
