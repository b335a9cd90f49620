/* SPDX-License-Identifier: MIT
 *
 * The handshake: both sides of a new connection prove that they have the secret before they send
 * anything else.
 *
 *   caller -> listener   call     its rank, the rank it calls, its nonce
 *   listener -> caller   answer   verdict, its nonce, its proof over the call and the answer
 *   caller -> listener   proof    its proof over the call and the whole answer
 *   listener -> caller   verdict
 *
 * The caller blocks until a deadline. Strangers must not be able to block the listener, so the
 * listener's side is a state machine, which its owner feeds with the received bytes.
 */
#ifndef VB_NET_CONTROL_HANDSHAKE_H
#define VB_NET_CONTROL_HANDSHAKE_H

#include "net/control/auth.h"

/* Runs the caller's side. Fills session_p on success; logs a failure. Returns VB_AGAIN, without
 * logging, if the listener is busy with another joiner. */
vb_status vb_handshake_call(int fd, const struct wire_call *call,
                            const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline,
                            unsigned char session_p[AUTH_KEY_BYTES]);

/* A function of the listener's owner. It says whether this caller is expected, which key the caller
 * must have, and which epoch the caller must know. *epoch_p already holds the epoch given to
 * vb_handshake_init(). */
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

/* Returns the number of bytes that the state machine needs next; 0 if it is done or has refused. */
size_t vb_handshake_wants(const struct handshake *hs);

/* Feeds received bytes to the state machine, at most vb_handshake_wants() of them. Writes the bytes
 * to send back to out and returns their number, which is at most WIRE_ANSWER_BYTES. */
size_t vb_handshake_feed(struct handshake *hs, const unsigned char *data, size_t len_bytes,
                         handshake_judge_fn judge, void *arg, unsigned char out[WIRE_ANSWER_BYTES]);

#endif
