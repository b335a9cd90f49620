/* SPDX-License-Identifier: MIT
 *
 * The secret of a job, which every rank proves to every other, and SHA-256.
 */
#ifndef VB_NET_CONTROL_SECRET_H
#define VB_NET_CONTROL_SECRET_H

#include "base/base.h"

#define VB_SECRET_BYTES 32

/* A text has the secret as 64 hexadecimal digits. A file has these digits or the bytes themselves,
 * and no other user may be able to read it. */
vb_status vb_secret_read(const char *path, unsigned char secret[VB_SECRET_BYTES]);
vb_status vb_secret_parse(const char *text, unsigned char secret[VB_SECRET_BYTES]);
vb_status vb_secret_make(unsigned char secret[VB_SECRET_BYTES]);

/* Memory for a secret that lives as long as a job: a core dump does not contain it. NULL, after
 * logging: no memory. It is filled with zeros, and wiped by vb_secret_free(), which accepts NULL.
 */
unsigned char *vb_secret_alloc(void);
void vb_secret_free(unsigned char *secret);

/* Derives a secret from another, a label of 16 characters and a text of at most VB_DERIVE_MAX
 * bytes. The old secret cannot be computed from the new one. */
#define VB_DERIVE_MAX 256
vb_status vb_secret_derive(const unsigned char secret[VB_SECRET_BYTES], const char label[16],
                           const char *text, unsigned char derived[VB_SECRET_BYTES]);

/* Passes a secret on through a place where others may read: the receiver makes a box and publishes
 * its lid, the sender seals the secret with the lid, and only the box opens it. All are texts. */
#define VB_LID_TEXT 65
#define VB_SEALED_TEXT 161
struct vb_box {
    unsigned char lid[32], key[32];
};
vb_status vb_box_make(struct vb_box *box_p, char lid[VB_LID_TEXT]);
vb_status vb_secret_seal(const unsigned char secret[VB_SECRET_BYTES], const char *lid,
                         char sealed[VB_SEALED_TEXT]);
vb_status vb_secret_unseal(const struct vb_box *box, const char *sealed,
                           unsigned char secret[VB_SECRET_BYTES]);

/* Replaces the secret, which may serve many runs, by one of this run alone, so that a rank that is
 * left over from another run is refused. run_id NULL: the secret stays as it is. */
vb_status vb_secret_of_run(unsigned char secret[VB_SECRET_BYTES], const char *run_id);

/* Writes the SHA-256 of data as 64 hexadecimal digits and a terminating zero. */
void vb_sha256(const void *data, size_t len_bytes, char hex[65]);

/* The same for data that comes in pieces. Nothing has to be released. */
struct vb_sha256_state {
    uint64_t words[16]; /* the library's own state; only it looks inside */
};
void vb_sha256_begin(struct vb_sha256_state *state);
void vb_sha256_add(struct vb_sha256_state *state, const void *data, size_t len_bytes);
void vb_sha256_end(struct vb_sha256_state *state, char hex[65]);

const char *vb_net_crypto_library(void); /* returns name and version of the library */

#endif
