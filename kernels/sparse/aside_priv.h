/* SPDX-License-Identifier: MIT
 *
 * Keeps the old values of features that are updated while a checkpoint is being written: see
 * kernels/sparse/aside.c.
 */
#ifndef VB_KERNELS_SPARSE_ASIDE_PRIV_H
#define VB_KERNELS_SPARSE_ASIDE_PRIV_H

#include "kernels/kernels.h"

#define ASIDE_BLOCK 64 /* features that are kept at once */
#define ASIDE_WORDS 3  /* words of state of a feature, at most */

struct aside;

/* Allocates everything. w (features) and state (features, words) are borrowed. now: touches all
 * pages, too. */
vb_status vb_k_aside_create(uint64_t features, int words, const float *w, const uint32_t *state,
                            bool now, struct aside **aside_p);
void vb_k_aside_destroy(struct aside *aside); /* NULL is fine */

/* Between the two calls the reader gets the values that memory had at the first. */
void vb_k_aside_begin(struct aside *aside);
void vb_k_aside_end(struct aside *aside);
bool vb_k_aside_is_on(const struct aside *aside); /* NULL: it is not */

/* The updater calls these before it writes the features at keys, or any. Keys may be in any order.
 */
void vb_k_aside_keep(struct aside *aside, const uint32_t *keys, size_t n);
void vb_k_aside_keep_all(struct aside *aside);

/* Another thread reads block number `block`: its weights, and its state. Returns false if they are
 * lost, because this thread did not run for LOST_NS while it read a block. */
bool vb_k_aside_read(struct aside *aside, size_t block, float w[ASIDE_BLOCK],
                     uint32_t state[ASIDE_BLOCK * ASIDE_WORDS]);

#endif
