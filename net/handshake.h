/* SPDX-License-Identifier: MIT
 *
 * Proof of the secret, both ways, before anything else crosses a connection.
 *
 *   caller -> listener   call     who I am, whom I want, my nonce
 *   listener -> caller   answer   verdict, its nonce, its proof over call and answer
 *   caller -> listener   proof    over call and whole answer
 *   listener -> caller   verdict
 *
 * The caller blocks with a deadline. The listener must not be held up by strangers, so its side is
 * a machine that is fed what arrives.
 */
#ifndef VB_HANDSHAKE_H
#define VB_HANDSHAKE_H

#include "net/auth.h"

/* The caller's side. session_p is filled on success. Logs what went wrong. VB_AGAIN: the listener
 * is busy with another newcomer. */
vb_status handshake_call(int fd, const struct wire_call *call,
                         const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline,
                         unsigned char session_p[AUTH_KEY_BYTES]);

/* The listener asks its owner: is this caller wanted, which key must it have, and which epoch must
 * it know? epoch_p holds that of handshake_init(). */
typedef enum wire_verdict (*handshake_judge_fn)(void *arg, const struct wire_call *call,
                                                unsigned char key[AUTH_KEY_BYTES],
                                                uint32_t *epoch_p);

enum handshake_state {
    HANDSHAKE_CALL,  /* the call has not come in full */
    HANDSHAKE_PROOF, /* answered, the caller's proof has not come in full */
    HANDSHAKE_DONE,
    HANDSHAKE_REFUSED,
};

struct handshake {
    enum handshake_state state;
    enum wire_verdict verdict; /* why it was refused */
    bool garbage;              /* what came was no call at all */
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
void handshake_init(struct handshake *hs, uint32_t rank, uint32_t epoch);

/* How many bytes the machine wants next; 0 when it is done or has refused. */
size_t handshake_wants(const struct handshake *hs);

/* Feeds at most handshake_wants() bytes; whatever must be sent back is written to out, at most
 * WIRE_ANSWER_BYTES. Returns how many bytes that is. */
size_t handshake_feed(struct handshake *hs, const unsigned char *data, size_t len_bytes,
                      handshake_judge_fn judge, void *arg, unsigned char out[WIRE_ANSWER_BYTES]);

#endif
