/* SPDX-License-Identifier: MIT
 *
 * Computes how steps change a feature that is not in their gradients: see kernels/sparse/lazy.c.
 */
#ifndef VB_KERNELS_SPARSE_LAZY_PRIV_H
#define VB_KERNELS_SPARSE_LAZY_PRIV_H

#include "kernels/kernels.h"

/* A linear map of a weight and its momentum: (w, v) becomes (a w + b v, c w + d v). */
struct lazy_map {
    double a, b, c, d;
};

struct lazy;

vb_status vb_k_lazy_create(const struct vb_k_rule *rule, struct lazy **lazy_p);
void vb_k_lazy_destroy(struct lazy *lazy);

/* Returns the number of steps since creation or the last vb_k_lazy_forget(). */
uint32_t vb_k_lazy_steps(const struct lazy *lazy);

/* Returns the number of steps for which a table has space. When it is full, the caller must bring
 * all features up to date and call vb_k_lazy_forget(). */
uint32_t vb_k_lazy_room(void);
void vb_k_lazy_note(struct lazy *lazy, float rate);
void vb_k_lazy_forget(struct lazy *lazy);
void vb_k_lazy_copy(const struct lazy *from, struct lazy *to); /* of the same rule */

/* Returns the map of all steps after the first `from`, for a feature without gradients. */
struct lazy_map vb_k_lazy_since(const struct lazy *lazy, uint32_t from);

#endif
