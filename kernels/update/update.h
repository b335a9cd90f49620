/* SPDX-License-Identifier: MIT
 *
 * Update rules of dense parameters, and learning rates.
 */
#ifndef VB_KERNELS_UPDATE_UPDATE_H
#define VB_KERNELS_UPDATE_UPDATE_H

#include "base/base.h"

/* ---- update rules ---------------------------------------------------------------------------- */

enum vb_k_rule_kind { VB_K_SGD, VB_K_MOMENTUM, VB_K_NESTEROV, VB_K_ADAGRAD, VB_K_FTRL };

/* The names in the order of the enum, for tables of options. The last one is for sparse models. */
#define VB_K_RULES_DENSE "sgd", "momentum", "nesterov", "adagrad"
#define VB_K_RULES VB_K_RULES_DENSE, "ftrl"

/* kernels/exact/update_ref.c specifies each rule. Fields that a rule does not use are 0. */
struct vb_k_rule {
    enum vb_k_rule_kind kind;
    float decay; /* L2 weight decay, added to the gradient */
    float momentum;
    float eps;          /* used by adagrad */
    float beta, l1, l2; /* used by ftrl */
};

const char *vb_k_rule_str(enum vb_k_rule_kind kind); /* NULL if there is no such rule */
int vb_k_rule_states(enum vb_k_rule_kind kind);      /* floats of state of each parameter: 0 to 2 */

/* The arguments of one step. The *_out are separate copies, or the same memory. */
struct vb_k_update {
    size_t n;
    const float *params; /* (n) */
    const float *state;  /* (states, n); 0 before the first step */
    const float *grads;  /* (n) */
    float scale;         /* factor of the gradients: 1 / samples, times vb_k_clip() */
    float rate;
    float *params_out, *state_out;
};

/* Takes a step. The bits are the same for any number of threads. */
void vb_k_update(const struct vb_k_rule *rule, const struct vb_k_update *update);
void vb_k_update_ref(const struct vb_k_rule *rule, const struct vb_k_update *update);

/* Adds the elements of from to those of to. The vectors do not overlap. */
void vb_k_add(float *to, const float *from, size_t n);

double vb_k_norm(const float *v, size_t n); /* Euclidean norm; same bits for any threads */

/* The norm of a vector that becomes available in pieces, in any order, with the same bits as
 * vb_k_norm(). The caller calls begin, then add once for each piece, then end. v is the whole
 * vector. A piece must not change after it was added. */
#define VB_K_NORM_PARTS 16384

struct vb_k_norm {
    size_t n, len;                     /* length of the vector, length of a part */
    size_t parts;                      /* number of parts; the last one may be shorter */
    uint32_t missing[VB_K_NORM_PARTS]; /* number of elements of each part that were not added yet */
    double squares[VB_K_NORM_PARTS];   /* sum of squares of each complete part */
};

void vb_k_norm_begin(struct vb_k_norm *norm, size_t n);
void vb_k_norm_add(struct vb_k_norm *norm, const float *v, size_t first, size_t n);
double vb_k_norm_end(const struct vb_k_norm *norm);

/* The arguments of a step that several ranks take together; each rank updates its share of the
 * parameters. The rank adds the gradients of all ranks, in rank order, and writes the new
 * parameters to the copies of all ranks. All pointers point to whole vectors. The bits are the same
 * as if the gradients were summed first, and then vb_k_update() and vb_k_norm() were called. */
struct vb_k_joint {
    int rank, n_ranks;
    const float *const *grads;   /* (n_ranks) */
    const float *params, *state; /* the parameters and the state of this rank; state is NULL if the
                                  * rule has no state; rules with two states are not supported */
    float scale, rate;
    float *const *params_out, *const *state_out; /* (n_ranks) */
    double *const *squares; /* (n_ranks): receives the parts of the norm of each rank, or NULL */
    bool norm_only;         /* only the norm is computed; the parameters stay unchanged */
    struct vb_k_joint_room *room; /* the work memory, for one step at a time */
    uint64_t shared_ns; /* increased by the time spent on memory that other ranks also use */
};

/* Makes the work memory of joint updates, which is too large for the stacks of threads. The caller
 * releases it with free(). Returns NULL if there is no memory. */
struct vb_k_joint_room *vb_k_joint_room_create(void);

#define VB_K_JOINT_MAX ((size_t)VB_K_NORM_PARTS * 16384) /* largest number of parameters */

/* The smallest number of parameters for which a joint update is faster. On x86 it writes past the
 * caches, which is for larger models. Elsewhere half an update must take longer than a barrier. */
#if defined(__x86_64__)
#define VB_K_JOINT_LEAST ((size_t)8 << 20)
#else
#define VB_K_JOINT_LEAST ((size_t)4 << 10)
#endif

/* Updates the parts of the norm first_part to end_part - 1. norm comes from vb_k_norm_begin(). */
void vb_k_joint_update(const struct vb_k_rule *rule, struct vb_k_joint *joint,
                       const struct vb_k_norm *norm, size_t first_part, size_t end_part);

/* Returns the factor that limits the norm of a gradient to max_norm. If max_norm is 0, there is no
 * limit. Returns 1 if the norm is NaN, and 0 if it is infinite. */
float vb_k_clip(double norm, double max_norm);

/* ---- learning rates -------------------------------------------------------------------------- */

enum vb_k_rate_kind { VB_K_RATE_CONSTANT, VB_K_RATE_STEP, VB_K_RATE_COSINE };

struct vb_k_schedule {
    enum vb_k_rate_kind kind;
    double base;
    int64_t warmup; /* number of first steps, in which the rate grows linearly to base */
    int64_t period; /* step: steps between two changes of the rate; cosine: last step of the fall */
    double factor;  /* step: see period; cosine: the fraction of base that is left at the end */
};

float vb_k_rate(const struct vb_k_schedule *schedule, int64_t step); /* the first step is 0 */

#endif
