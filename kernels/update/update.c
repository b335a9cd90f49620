/* SPDX-License-Identifier: MIT
 *
 * Update rules for dense parameters: one pass over gradients, parameters and state, with a loop for
 * each rule that the compiler turns into vector instructions. The norm is computed from the sums of
 * squares of parts, added in order; their length depends only on the length of the vector.
 */
#include "kernels/update/update_inside.h"

#include <math.h>

#define NORM_LANES 8
#define PART_MIN 1024
#define PART_STEP 16
#define PARTS_AT_ONCE 1024 /* number of parts whose sums are on the stack */

const char *vb_k_rule_str(enum vb_k_rule_kind kind)
{
    static const char *const names[] = {VB_K_RULES};

    return (size_t)kind < VB_COUNT(names) ? names[kind] : NULL;
}

int vb_k_rule_states(enum vb_k_rule_kind kind)
{
    static const int states[] = {[VB_K_SGD] = 0,
                                 [VB_K_MOMENTUM] = 1,
                                 [VB_K_NESTEROV] = 1,
                                 [VB_K_ADAGRAD] = 1,
                                 [VB_K_FTRL] = 2};

    return states[kind];
}

#define ALWAYS static inline __attribute__((always_inline))

/* Input and output may be the same memory: an element is read before it is written. */
ALWAYS void chunk(enum vb_k_rule_kind kind, const struct vb_k_rule *rule,
                  const struct vb_k_update *u, size_t first, size_t end)
{
    const struct vb_k_rule r =
        *rule; /* a copy, which stores through float pointers cannot change */
    const float *grads = u->grads, *params = u->params, *state = u->state;
    const float scale = u->scale, rate = u->rate;
    float *params_out = u->params_out, *state_out = u->state_out;
    size_t i, n = u->n;

#pragma omp simd
    for (i = first; i < end; i++) {
        struct update_one p = {.w = params[i]};

        if (kind != VB_K_SGD)
            p.s = state[i];
        if (kind == VB_K_FTRL)
            p.t = state[n + i];
        p = update_one(kind, &r, rate, scale * grads[i] + r.decay * p.w, p);
        params_out[i] = p.w;
        if (kind != VB_K_SGD)
            state_out[i] = p.s;
        if (kind == VB_K_FTRL)
            state_out[n + i] = p.t;
    }
}

void vb_update_chunk(const struct vb_k_rule *rule, const struct vb_k_update *u, size_t first,
                     size_t end)
{
    switch (rule->kind) {
    case VB_K_SGD:
        chunk(VB_K_SGD, rule, u, first, end);
        break;
    case VB_K_MOMENTUM:
        chunk(VB_K_MOMENTUM, rule, u, first, end);
        break;
    case VB_K_NESTEROV:
        chunk(VB_K_NESTEROV, rule, u, first, end);
        break;
    case VB_K_ADAGRAD:
        chunk(VB_K_ADAGRAD, rule, u, first, end);
        break;
    case VB_K_FTRL:
        chunk(VB_K_FTRL, rule, u, first, end);
        break;
    }
}

void vb_k_update(const struct vb_k_rule *rule, const struct vb_k_update *u)
{
    size_t chunks = (u->n + UPDATE_CHUNK - 1) / UPDATE_CHUNK, c;

    if (u->n < UPDATE_PARALLEL) { /* even a team of one thread has a noticeable cost */
        vb_update_chunk(rule, u, 0, u->n);
        return;
    }
#pragma omp parallel for schedule(static)
    for (c = 0; c < chunks; c++)
        vb_update_chunk(rule, u, c * UPDATE_CHUNK,
                        (c + 1) * UPDATE_CHUNK < u->n ? (c + 1) * UPDATE_CHUNK : u->n);
}

double vb_update_squares(const float *v, size_t n)
{
    double lane[NORM_LANES] = {0}, sum = 0;
    size_t i, l;

    for (i = 0; i + NORM_LANES <= n; i += NORM_LANES)
        for (l = 0; l < NORM_LANES; l++)
            lane[l] += (double)v[i + l] * (double)v[i + l];
    for (; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    for (l = 0; l < NORM_LANES; l++)
        sum += lane[l];
    return sum;
}

size_t vb_update_part_begin(const struct vb_k_norm *norm, size_t c)
{
    return c * norm->len < norm->n ? c * norm->len : norm->n;
}

/* Returns the length of a part of a vector of n elements. */
static size_t part_len(size_t n)
{
    size_t len = (n + VB_K_NORM_PARTS - 1) / VB_K_NORM_PARTS;

    return len > PART_MIN ? (len + PART_STEP - 1) / PART_STEP * PART_STEP : PART_MIN;
}

void vb_k_norm_begin(struct vb_k_norm *norm, size_t n)
{
    size_t c;

    norm->n = n;
    norm->len = part_len(n);
    norm->parts = (n + norm->len - 1) / norm->len;
    for (c = 0; c < norm->parts; c++) {
        norm->squares[c] = 0;
        norm->missing[c] =
            (uint32_t)(vb_update_part_begin(norm, c + 1) - vb_update_part_begin(norm, c));
    }
}

/* Counts the elements of part c that are in a new piece. The part is summed at once when all have
 * arrived, so the bits do not depend on the pieces. */
static void add_part(struct vb_k_norm *norm, const float *v, size_t first, size_t n, size_t c)
{
    size_t begin = vb_update_part_begin(norm, c), stop = vb_update_part_begin(norm, c + 1);
    size_t lo = first > begin ? first : begin, hi = first + n < stop ? first + n : stop;

    norm->missing[c] -= (uint32_t)(hi - lo);
    if (norm->missing[c] == 0)
        norm->squares[c] = vb_update_squares(v + begin, stop - begin);
}

void vb_k_norm_add(struct vb_k_norm *norm, const float *v, size_t first, size_t n)
{
    size_t c, begin = first / norm->len, end = n > 0 ? (first + n - 1) / norm->len + 1 : begin;

    if (n < UPDATE_PARALLEL) {
        for (c = begin; c < end; c++)
            add_part(norm, v, first, n, c);
        return;
    }
#pragma omp parallel for schedule(static)
    for (c = begin; c < end; c++)
        add_part(norm, v, first, n, c);
}

double vb_k_norm_end(const struct vb_k_norm *norm)
{
    double sum = 0;
    size_t c;

    for (c = 0; c < norm->parts; c++)
        sum += norm->squares[c];
    return sqrt(sum);
}

/* Returns the sum of squares of part c of a vector. */
static double part_squares(const float *v, size_t n, size_t len, size_t c)
{
    return vb_update_squares(v + c * len, n - c * len < len ? n - c * len : len);
}

/* Adds the sums of the parts in their order, as vb_k_norm_end() does. */
double vb_k_norm(const float *v, size_t n)
{
    const size_t len = part_len(n), parts = (n + len - 1) / len;
    double squares[PARTS_AT_ONCE], sum = 0;
    size_t first, c, some;

    if (n < UPDATE_PARALLEL) {
        for (c = 0; c < parts; c++)
            sum += part_squares(v, n, len, c);
        return sqrt(sum);
    }
    for (first = 0; first < parts; first += some) {
        some = parts - first < PARTS_AT_ONCE ? parts - first : PARTS_AT_ONCE;
#pragma omp parallel for schedule(static)
        for (c = 0; c < some; c++)
            squares[c] = part_squares(v, n, len, first + c);
        for (c = 0; c < some; c++)
            sum += squares[c];
    }
    return sqrt(sum);
}

void vb_k_add(float *to, const float *from, size_t n)
{
    size_t i;

#pragma omp parallel for simd schedule(static) if (n >= UPDATE_PARALLEL)
    for (i = 0; i < n; i++)
        to[i] += from[i];
}

float vb_k_clip(double norm, double max_norm)
{
    return max_norm > 0 && norm > max_norm ? (float)(max_norm / norm) : 1;
}
