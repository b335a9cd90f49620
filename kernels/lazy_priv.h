/* SPDX-License-Identifier: MIT
 *
 * What steps do to a feature that they do not touch: kernels/lazy.c.
 */
#ifndef VB_LAZY_PRIV_H
#define VB_LAZY_PRIV_H

#include "kernels/kernels.h"

/* (w, v) becomes (a w + b v, c w + d v). */
struct lazy_map {
    double a, b, c, d;
};

struct lazy;

vb_status vb_k_lazy_create(const struct vb_k_rule *rule, struct lazy **lazy_p);
void vb_k_lazy_destroy(struct lazy *lazy);

/* Steps that were noted since the beginning or the last forgetting. */
uint32_t vb_k_lazy_steps(const struct lazy *lazy);

/* There is no room for a step of this rate: bring all features up to date, then forget. */
bool vb_k_lazy_full(const struct lazy *lazy, float rate);
void vb_k_lazy_note(struct lazy *lazy, float rate);
void vb_k_lazy_take_back(struct lazy *lazy); /* the last step that was noted, once */
void vb_k_lazy_forget(struct lazy *lazy);

/* What the steps after the first `from` did to a feature that they did not touch. */
struct lazy_map vb_k_lazy_since(const struct lazy *lazy, uint32_t from);

#endif
