/* SPDX-License-Identifier: MIT
 *
 * Softmax with cross-entropy, a vector of classes at a time. A NaN makes its whole row NaN. The
 * loss needs the sum of the logarithms of all rows' sums, computed in double as the logarithm of
 * their product. A sum is below 2^17, so a product of PRODUCT sums never overflows.
 */
#include "kernels/own/own.h"
#include "kernels/layer/vec.h"

#include <math.h>

#define PRODUCT 32

/* The results of a row, besides its gradient. */
struct row_result {
    float sum, own; /* sum of the exponentials; the label's logit minus the largest logit */
    bool correct;
};

static inline vb_vec larger(vb_vec a, vb_vec b)
{
    return vb_vec_pick(b > a, b, a);
}

static inline vb_v4 larger_of_4(vb_v4 a, vb_v4 b)
{
    return vb_v4_pick(b > a, b, a);
}

static inline float largest(vb_vec v)
{
    vb_v4 max = VB_VEC_FOLD(larger_of_4, v);
    float a = max[1] > max[0] ? max[1] : max[0], b = max[3] > max[2] ? max[3] : max[2];

    return b > a ? b : a;
}

static inline float total(vb_vec v)
{
    vb_v4 sum = VB_VEC_FOLD(vb_v4_plus, v);

    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static inline vb_v4i either(vb_v4i a, vb_v4i b)
{
    return a | b;
}

static inline bool any(vb_veci mask)
{
    typedef int64_t pairs __attribute__((vector_size(16)));
    pairs m = (pairs)VB_VEC_FOLD(either, mask);

    return (m[0] | m[1]) != 0;
}

/* The label must have the largest logit. Marks the lanes that make the prediction wrong
 * nevertheless: a logit that is equally large and comes before the label, or a NaN. */
static inline vb_veci against(vb_vec logits, float max, int before)
{
    vb_veci none = logits != logits; /* NOLINT(misc-redundant-expression): NaN */

    return ((logits == vb_vec_all(max)) & (vb_vec_places() < before)) | none;
}

/* Loads the last vector of a row. It ends with the last class, so it overlaps the vector before. It
 * is loaded before that one is stored, and the overlap is not added again. */
static inline vb_vec last_of(const float *row, int classes)
{
    return vb_vec_load(row + classes - VB_LANES);
}

static inline vb_vec only_new(vb_vec last, int classes)
{
    const int old = (VB_LANES - classes % VB_LANES) % VB_LANES;

    return vb_vec_pick(vb_vec_places() < old, vb_vec_all(0), last);
}

static inline float largest_of_row(const float *row, int classes)
{
    vb_vec max = last_of(row, classes);
    int c;

    for (c = 0; c + VB_LANES < classes; c += VB_LANES)
        max = larger(max, vb_vec_load(row + c));
    return largest(max);
}

static inline bool is_correct(const float *row, int label, int classes, float max)
{
    vb_veci wrong = against(last_of(row, classes), max, label - (classes - VB_LANES));
    int c;

    for (c = 0; c + VB_LANES < classes; c += VB_LANES)
        wrong |= against(vb_vec_load(row + c), max, label - c);
    return (row[label] == max) & !any(wrong);
}

/* Replaces the logits by exp(logit - max), and returns their sum. Each lane has a partial sum: the
 * sum of the classes with the same remainder modulo the number of lanes. */
static inline float exp_row(float *row, int classes, float max)
{
    vb_vec last = vb_vec_exp_below_0(last_of(row, classes) - max), sum = only_new(last, classes), e;
    int c;

    for (c = 0; c + VB_LANES < classes; c += VB_LANES) {
        e = vb_vec_exp_below_0(vb_vec_load(row + c) - max);
        vb_vec_store(row + c, e);
        sum += e;
    }
    vb_vec_store(row + classes - VB_LANES, last);
    return total(sum);
}

static inline void scale_row(float *row, int classes, float share)
{
    vb_vec last = last_of(row, classes) * share;
    int c;

    for (c = 0; c + VB_LANES < classes; c += VB_LANES)
        vb_vec_store(row + c, vb_vec_load(row + c) * share);
    vb_vec_store(row + classes - VB_LANES, last);
}

static inline struct row_result long_row(float *row, int label, int classes)
{
    float max = largest_of_row(row, classes);
    struct row_result t = {.own = row[label] - max,
                           .correct = is_correct(row, label, classes, max)};

    t.sum = exp_row(row, classes, max);
    scale_row(row, classes, 1 / t.sum);
    row[label] -= 1;
    return t;
}

/* Computes a row that fits in one vector. Its unused lanes hold logits far below all others. Their
 * results become 0, because denormal numbers are slow. */
static inline vb_vec vector_row(vb_vec logits, float own, int label, int classes,
                                struct row_result *result)
{
    float max = largest(logits);
    vb_vec e = vb_vec_exp_below_0(logits - max);

    e = vb_vec_pick(vb_vec_places() < classes, e, vb_vec_all(0));
    result->own = own - max;
    result->correct = (own == max) & !any(against(logits, max, label));
    result->sum = total(e);
    e *= 1 / result->sum;
    return vb_vec_pick(vb_vec_places() == label, e - 1, e);
}

static struct row_result short_row(float *row, int label, int classes)
{
    float all[VB_LANES];
    struct row_result t;
    int c;

    for (c = 0; c < VB_LANES; c++)
        all[c] = c < classes ? row[c] : -INFINITY;
    vb_vec_store(all, vector_row(vb_vec_load(all), row[label], label, classes, &t));
    memcpy(row, all, (size_t)classes * sizeof(*row));
    return t;
}

#if VB_LANES == 16

/* Computes a row of ten classes. The vector is filled up in registers, because a load right after
 * ten stores would wait. In steps, because gcc 12 uses memory for larger shuffles. */
static inline struct row_result ten_row(float *row, int label)
{
    const vb_v4 none = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    vb_v4 c =
        __builtin_shufflevector(vb_v2_load(row + 8), (vb_v2){-INFINITY, -INFINITY}, 0, 1, 2, 3);
    vb_v8 a = vb_v8_load(row), b = __builtin_shufflevector(c, none, 0, 1, 2, 3, 4, 5, 6, 7);
    vb_vec v = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    struct row_result t;

    v = vector_row(v, row[label], label, 10, &t);
    vb_v8_store(row, __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7));
    vb_v2_store(row + 8, __builtin_shufflevector(v, v, 8, 9));
    return t;
}

#else

static inline struct row_result ten_row(float *row, int label)
{
    return long_row(row, label, 10);
}

#endif

double VB_AT_LEVEL(vb_softmax_rows)(float *logits, const uint16_t *y, size_t n, int classes,
                                    int *correct_p)
{
    double loss = 0, product = 1;
    int correct = 0;
    size_t i;

    for (i = 0; i < n; i++, logits += classes) {
        struct row_result t = classes == 10        ? ten_row(logits, y[i])
                              : classes < VB_LANES ? short_row(logits, y[i], classes)
                                                   : long_row(logits, y[i], classes);

        loss -= (double)t.own;
        product *= (double)t.sum;
        correct += t.correct;
        if (i % PRODUCT == PRODUCT - 1) {
            loss += log(product);
            product = 1;
        }
    }
    *correct_p = correct;
    return loss + log(product);
}
