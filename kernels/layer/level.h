/* SPDX-License-Identifier: MIT
 *
 * The level of instructions in use: kernels of our own are compiled once for each level (base.h). A
 * header that declares a function of such a file first defines its name as VB_AT_LEVEL(name). Other
 * code calls them only through tables and entry functions: of the baseline with the plain name, of
 * the others with the suffix _v3 or _v4.
 */
#ifndef VB_KERNELS_LAYER_LEVEL_H
#define VB_KERNELS_LAYER_LEVEL_H

#include "kernels/layer/backend.h"

/* kernels/layer/levels.c: returns the best level of this CPU, or the level that a test has set. */
enum vb_cpu_level vb_k_level(void);
const char *vb_k_level_name(void);

/* Lists the tables or functions of all levels, in the order of enum vb_cpu_level. */
#if defined(__x86_64__)
#define VB_LEVELS(name) name, name##_v3, name##_v4
#else
#define VB_LEVELS(name) name
#endif

/* For tests: sets the level. Returns false if this CPU has no level of that name. */
bool vb_k_level_set(const char *name);

/* For tests: fills in the names of this CPU's levels, the best last. Returns their number. */
int vb_k_level_names(const char *names[3]);

/* The first member of the state of a pass of our own backends. free() frees the state. */
struct vb_k_pass_state {
    void (*run)(struct vb_k_pass_state *state, const struct vb_k_args *args);
};

typedef vb_status vb_k_prepare(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                               size_t *scratch_p);

#endif
