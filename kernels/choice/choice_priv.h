/* SPDX-License-Identifier: MIT
 *
 * The functions that choose the backend of a pass: the list of all backends, the timing, the cache
 * of earlier timings, and the check against the reference.
 */
#ifndef VB_KERNELS_CHOICE_CHOICE_PRIV_H
#define VB_KERNELS_CHOICE_CHOICE_PRIV_H

#include "kernels/layer/backend.h"

/* kernels/choice/backends.c: all backends, in the order in which they are tried. */
extern const struct vb_k_backend *const vb_k_backends[];
extern const int vb_k_n_backends;

/* Finds a backend by name. Returns NULL if no backend has that name. */
const struct vb_k_backend *vb_k_backend_find(const char *name);

/* Returns whether the backend may be chosen, with or without --fast-math. */
bool vb_k_backend_allowed(const struct vb_k_backend *backend, bool fast_math);

/* kernels/choice/choice_time.c: finds the fastest backend for a pass. Takes milliseconds, because
 * slow ones drop out on a smaller shape. *backend_p is NULL if no backend can do the pass. */
vb_status vb_k_choose(const struct vb_k_shape *shape, enum vb_k_pass pass, bool fast_math,
                      const struct vb_k_backend **backend_p);

/* kernels/choice/choice_cache.c: finds the backend that was chosen earlier; NULL if none. Choices
 * with and without --fast-math are kept apart. */
const struct vb_k_backend *vb_k_cache_find(const struct vb_k_cache *cache,
                                           const struct vb_k_shape *shape, enum vb_k_pass pass,
                                           bool fast_math);
void vb_k_cache_add(struct vb_k_cache *cache, const struct vb_k_shape *shape, enum vb_k_pass pass,
                    bool fast_math, const struct vb_k_backend *backend);

/* kernels/choice/choice_plan.c: the reverse of vb_k_pass_str(). Returns false if none fits. */
bool vb_k_pass_find(const char *text, enum vb_k_pass *pass_p);

/* kernels/choice/choice_check.c: does the same as vb_k_check_all(), for the given backends only. */
vb_status vb_k_check_these(const struct vb_k_backend *const *backends, int n_backends,
                           const struct vb_k_shape *shape, enum vb_k_pass pass,
                           struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p);

#endif
