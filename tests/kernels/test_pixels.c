/* SPDX-License-Identifier: MIT
 *
 * Compares the linear layer over lists or tiles of nonzero pixels, and the vector code of softmax,
 * with the references.
 *
 * Tolerance: a sum of k products of numbers below 1, in another order and with fused
 * multiplications, has an error of less than k roundings of k. In this test k is 1025, and a
 * rounding is 6e-8 of a partial sum. Errors are far smaller in practice, so the tolerance is 3e-5.
 *
 * Covers: kernels/own/softmax_rows.c kernels/pixels/pixels_ten.c kernels/pixels/pixels_tiles.c
 * Covers: kernels/pixels/pixels_tiles_ten.c kernels/pixels/pixels_pack.c
 */
#include "kernels/kernels.h"
#include "kernels/pixels/pixels_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/levels.h"
#include "tests/support/samples.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>

#define TOLERANCE 3e-5
/* more samples than are read at a time, and than the backward pass handles together */
#define N 150
#define FEATURES_MAX 1025
#define CLASSES_MAX 70

enum values {
    BYTES,   /* multiples of one value, which can be stored in a tile */
    COLOURS, /* other values, but few enough different ones for a palette */
    FLOATS   /* any values */
};

struct shape {
    int features, classes, n;
    enum values values;
    int width; /* width of an image in pixels; 0: samples are not images */
};

static const struct shape shapes[] = {
    {1, 1, 1, BYTES, 0},       {7, 3, 3, FLOATS, 0},       {301, 10, 17, BYTES, 0},
    {301, 10, 17, FLOATS, 0},  {300, 10, 1, BYTES, 0},     {64, 70, 5, FLOATS, 0},
    {33, 16, 70, BYTES, 0},    {301, 10, 0, BYTES, 0},     {301, 10, N, BYTES, 0},
    {301, 10, N, FLOATS, 0},   {301, 10, 33, COLOURS, 0},  {784, 10, N, BYTES, 28},
    {784, 10, 64, BYTES, 0},   {288, 10, 65, BYTES, 12},   {300, 10, 9, BYTES, 12},
    {1024, 10, 128, BYTES, 4}, {1025, 10, 129, BYTES, 41}, {288, 7, 9, BYTES, 24},
};

static float x[N * FEATURES_MAX], gathered[N * FEATURES_MAX];
static float w[FEATURES_MAX * CLASSES_MAX], b[CLASSES_MAX];
static float logits[N * CLASSES_MAX], want[N * CLASSES_MAX], d[N * CLASSES_MAX];
static float grads[FEATURES_MAX * CLASSES_MAX], want_grads[FEATURES_MAX * CLASSES_MAX];
static float bias_grads[CLASSES_MAX], want_bias[CLASSES_MAX];
static uint32_t order[N];

static float value(enum values values, uint32_t random)
{
    if (values == FLOATS)
        return (float)(random | 1) / (1 << 24);
    return values == BYTES ? (float)(1 + random % 255) / 255
                           : sqrtf((float)(1 + random % 255)) / 16;
}

/* Draws random samples and weights. Four of five pixels are 0, but sample 2 has no nonzero pixel
 * and sample 3 has only nonzero ones. */
static void draw(const struct shape *s)
{
    uint32_t seed = 5;
    int i, f;

    for (i = 0; i < N; i++) {
        for (f = 0; f < s->features; f++) {
            uint32_t r = t_random(&seed);
            float v = value(s->values, r);

            x[i * s->features + f] = i == 3 || (i != 2 && t_random(&seed) % 5 == 0) ? v : 0;
        }
        order[i] = (uint32_t)(i * 7 + 2) % N; /* 2, 9, 16 ... */
    }
    t_random_fill(w, VB_COUNT(w), 6);
    t_random_fill(b, VB_COUNT(b), 7);
    t_random_fill(d, VB_COUNT(d), 8);
    for (i = 0; i < s->n; i++)
        memcpy(gathered + i * s->features, x + (int)order[i] * s->features,
               (size_t)s->features * sizeof(float));
}

static void near(const float *got, const float *expected, int n, const char *what)
{
    int i;

    for (i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <=
              TOLERANCE * (1 + fabs((double)expected[i]))))
            fail_msg("%s, element %d of %d: found %.9g, expected %.9g", what, i, n, (double)got[i],
                     (double)expected[i]);
}

static void one_shape(const struct shape *s)
{
    int i, n_weights = s->features * s->classes;
    const struct vb_k_picked picked = {order, (size_t)s->n, order + s->n, (size_t)(N - s->n)};
    struct vb_k_pixels *p;
    long before;

    draw(s);
    assert_int_equal(t_pixels_images(x, N, s->features, s->width, &p), VB_OK);
    assert_int_equal(p->tiles.places != NULL, vb_pixels_ten_in_use()->tiles_forward != NULL &&
                                                  s->values == BYTES && s->features <= 1024);
    before = t_allocations;
    vb_k_pixels_forward(p, &picked, w, b, s->classes, logits);
    vb_k_pixels_backward(p, &picked, d, s->classes, grads, bias_grads);
    assert_int_equal(t_allocations, before);
    vb_k_linear_forward_ref(gathered, w, b, s->n, s->features, s->classes, want);
    vb_k_linear_backward_ref(gathered, d, s->n, s->features, s->classes, want_grads, want_bias);
    near(logits, want, s->n * s->classes, "logit");
    near(grads, want_grads, n_weights, "gradient");
    near(bias_grads, want_bias, s->classes, "gradient of bias");

    vb_k_pixels_add(p, &picked, d, -0.25f, s->classes, w, b);
    for (i = 0; i < n_weights; i++)
        want_grads[i] *= -0.25f;
    t_random_fill(grads, (size_t)n_weights, 6);
    vb_k_add_ref(grads, want_grads, (size_t)n_weights);
    near(w, grads, n_weights, "weight");
    vb_k_pixels_destroy(p);
}

/* Packed pixels give the same bits. Packed pixels of other samples, or of which an end is missing,
 * are refused. */
static void packed_pixels_give_the_same_bits(void **state)
{
    const struct vb_k_picked picked = {.order = order, .n = 17};
    struct vb_k_pixels *p, *packed, *none = NULL;
    struct vb_mem mem;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        const struct shape *s = &shapes[i];

        draw(s);
        assert_int_equal(t_pixels_images(x, N, s->features, s->width, &p), VB_OK);
        vb_k_pixels_forward(p, &picked, w, b, s->classes, want);
        vb_k_pixels_backward(p, &picked, d, s->classes, want_grads, want_bias);
        assert_int_equal(vb_k_pixels_pack(p, &mem), VB_OK);
        vb_k_pixels_destroy(p);
        assert_int_equal(vb_mem_seal(&mem), VB_OK);
        assert_int_equal(vb_k_pixels_unpack(mem.ptr, mem.len_bytes, N, s->features, &packed),
                         VB_OK);
        vb_k_pixels_forward(packed, &picked, w, b, s->classes, logits);
        vb_k_pixels_backward(packed, &picked, d, s->classes, grads, bias_grads);
        assert_memory_equal(logits, want, 17 * (size_t)s->classes * sizeof(*want));
        assert_memory_equal(grads, want_grads,
                            (size_t)(s->features * s->classes) * sizeof(*want_grads));
        vb_k_pixels_destroy(packed);
        assert_int_equal(vb_k_pixels_unpack(mem.ptr, 8, N, s->features, &none), VB_ERR_INPUT);
        assert_int_equal(vb_k_pixels_unpack(mem.ptr, mem.len_bytes, N + 1, s->features, &none),
                         VB_ERR_INPUT);
        assert_int_equal(vb_k_pixels_unpack(mem.ptr, mem.len_bytes, N, s->features + 1, &none),
                         VB_ERR_INPUT);
        vb_mem_unmap(&mem);
    }
    assert_null(none);
}

static void agrees_with_the_reference(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++)
        one_shape(&shapes[i]);
}

static void zeros_are_skipped_and_nan_is_not(void **state)
{
    const uint32_t both[2] = {0, 1};
    const struct vb_k_picked picked = {.order = both, .n = 2};
    float two[2 * 3] = {0, 1, 0, 0, NAN, -0.0f};
    struct vb_k_pixels *p;
    float weights[3 * 10], bias[10] = {0}, out[20];
    int i;

    (void)state;
    for (i = 0; i < 30; i++)
        weights[i] = i < 10 || i >= 20 ? NAN : 2;
    assert_int_equal(t_pixels_list(two, 2, 3, &p), VB_OK);
    assert_int_equal(vb_k_pixels_nonzeros(p), 2);
    vb_k_pixels_forward(p, &picked, weights, bias, 10, out);
    for (i = 0; i < 10; i++)
        assert_true(out[i] == 2 && isnan(out[10 + i]));
    vb_k_pixels_destroy(p);
    vb_k_pixels_destroy(NULL);
}

/* The zeros that a tile contains must not take part in sums: the weights of these pixels are not
 * finite. */
static void zeros_of_a_tile_are_skipped(void **state)
{
    const uint32_t both[2] = {0, 1};
    const struct vb_k_picked picked = {.order = both, .n = 2};
    static float two[2 * 32], weights[32 * 10], out[20], dw[32 * 10];
    float bias[10] = {0}, db[10], dy[20];
    struct vb_k_pixels *p;
    int i;

    (void)state;
    two[3] = two[32 + 20] = 1;
    two[32 + 17] = 0.5f;
    for (i = 0; i < 320; i++)
        weights[i] = i / 10 == 3 ? 2 : i / 10 == 20 ? 3 : i % 2 == 0 ? NAN : INFINITY;
    for (i = 0; i < 20; i++)
        dy[i] = i == 4 ? INFINITY : 1;
    assert_int_equal(t_pixels_list(two, 2, 32, &p), VB_OK);
    vb_k_pixels_forward(p, &picked, weights, bias, 10, out);
    for (i = 0; i < 10; i++)
        /* sample 1 contains pixel 17, whose weights are not finite */
        assert_true(out[i] == 2 && !isfinite(out[10 + i]));
    vb_k_pixels_backward(p, &picked, dy, 10, dw, db);
    for (i = 0; i < 320; i++)
        assert_true(i == 34 ? isinf(dw[i]) : dw[i] == two[i / 10] + two[32 + i / 10]);
    assert_true(isinf(db[4]) && db[5] == 2);
    vb_k_pixels_destroy(p);
}

/* Pixels may be created at one instruction level and used at another. No program does so. */
static void lists_can_be_read_at_other_levels(void **state)
{
    const struct vb_k_picked picked = {.order = order, .n = 9};
    const struct shape s = {784, 10, 9, BYTES, 28};
    const char *was = vb_k_level_name(), *names[3];
    struct vb_k_pixels *p;
    int i, levels = vb_k_level_names(names);

    (void)state;
    draw(&s);
    assert_int_equal(t_pixels_images(x, N, s.features, s.width, &p), VB_OK);
    vb_k_linear_forward_ref(gathered, w, b, s.n, s.features, s.classes, want);
    vb_k_linear_backward_ref(gathered, d, s.n, s.features, s.classes, want_grads, want_bias);
    for (i = 0; i < levels; i++) {
        assert_true(vb_k_level_set(names[i]));
        vb_k_pixels_forward(p, &picked, w, b, s.classes, logits);
        vb_k_pixels_backward(p, &picked, d, s.classes, grads, bias_grads);
        near(logits, want, s.n * s.classes, "logit");
        near(grads, want_grads, s.features * s.classes, "gradient");
    }
    assert_true(vb_k_level_set(was));
    vb_k_pixels_destroy(p);
}

/* The results must have the same bits at whatever features the work is cut into parts, even if a
 * part has no pixel, or only one pixel, of a sample. */
static void parts_give_the_same_bits(void **state)
{
    static const int cuts[][5] = {
        {0}, {1, 0}, {300, 150, 149, 2, 0}, {299, 0}, {200, 100, 50, 10, 0}};
    static const struct shape kinds[] = {{301, 10, N, FLOATS, 0}, {301, 10, N, COLOURS, 0}};
    static uint32_t done[N];
    static float sums[N * VB_K_PIXELS_SUMS], again[N * 10], again_grads[301 * 10], again_bias[10];
    const struct vb_k_picked picked = {order, N, order, N};
    struct vb_k_pixels *p;
    size_t kind, c;
    long before;
    int k;

    (void)state;
    for (kind = 0; kind < VB_COUNT(kinds); kind++) {
        draw(&kinds[kind]);
        assert_int_equal(t_pixels_images(x, N, 301, 0, &p), VB_OK);
        assert_true(vb_k_pixels_has_parts(p, 10) && !vb_k_pixels_has_parts(p, 9));
        vb_k_pixels_forward(p, &picked, w, b, 10, logits);
        vb_k_pixels_backward(p, &picked, d, 10, grads, bias_grads);
        for (c = 0; c < VB_COUNT(cuts); c++) {
            struct vb_k_pixels_part part = {.high = 301, .done = done, .sums = sums};

            before = t_allocations;
            for (k = 0; part.high > 0; k++, part.high = part.low) {
                part.low = cuts[c][k];
                vb_k_pixels_forward_part(p, &picked, &part, w, b, again);
            }
            part.high = 301;
            for (k = 0; part.high > 0; k++, part.high = part.low) {
                part.low = cuts[c][k];
                vb_k_pixels_backward_part(p, &picked, &part, d, again_grads, again_bias);
            }
            assert_int_equal(t_allocations, before);
            assert_memory_equal(again, logits, sizeof(again));
            assert_memory_equal(again_grads, grads, sizeof(again_grads));
            assert_memory_equal(again_bias, bias_grads, sizeof(again_bias));
        }
        vb_k_pixels_destroy(p);
    }
}

static void invalid_sizes_are_refused(void **state)
{
    struct vb_k_pixels *p = NULL;
    struct t_stderr err;
    char text[256];

    (void)state;
    t_stderr_catch(&err);
    assert_int_equal(t_pixels_list(x, 1, 0, &p), VB_ERR_USAGE);
    assert_int_equal(t_pixels_list(x, 1, VB_K_PIXELS_FEATURES + 1, &p), VB_ERR_USAGE);
    t_stderr_release(&err, text, sizeof(text));
    assert_null(p);
    assert_non_null(strstr(text, "65537 pixels"));
}

#define SOFTMAX_ROWS 17
#define SOFTMAX_CLASSES 1001

/* Tolerance: an exponential has an error of 2 units in the last place, and up to 1001 exponentials
 * are added up. */
static void vector_softmax_agrees_with_the_reference(void **state)
{
    static const int classes[] = {1, 2, 3, 4, 10, 64, 65, 255, 1000, SOFTMAX_CLASSES};
    static float fast[SOFTMAX_ROWS * SOFTMAX_CLASSES], slow[SOFTMAX_ROWS * SOFTMAX_CLASSES];
    uint16_t y[SOFTMAX_ROWS];
    double got, ref;
    size_t i;
    int k, correct, expected;

    (void)state;
    for (i = 0; i < VB_COUNT(classes); i++) {
        t_random_fill(fast, VB_COUNT(fast), (uint32_t)i);
        for (k = 0; k < (int)VB_COUNT(fast); k++)
            fast[k] *= k % 3 == 0 ? 200.0f : 5.0f;
        fast[0] = 1e30f;
        for (k = 0; k < SOFTMAX_ROWS; k++)
            /* the labels include the last class */
            y[k] = (uint16_t)((classes[i] - 1) * (k + 1) % classes[i]);
        memcpy(slow, fast, sizeof(slow));
        for (expected = 0, k = 0; k < SOFTMAX_ROWS; k++)
            expected += vb_k_argmax_ref(slow + k * classes[i], classes[i]) == y[k];
        got = vb_k_softmax_xent(fast, y, SOFTMAX_ROWS, classes[i], &correct);
        ref = vb_k_softmax_xent_ref(slow, y, SOFTMAX_ROWS, classes[i]);
        assert_true(fabs(got - ref) <= 1e-5 * (1 + fabs(ref)));
        near(fast, slow, SOFTMAX_ROWS * classes[i], "gradient of a logit");
        assert_int_equal(correct, expected);
    }
    fast[1] = NAN;
    y[0] = 3;
    assert_true(isnan(vb_k_softmax_xent(fast, y, 1, 10, &correct)));
    assert_true(isnan(fast[0]) && isnan(fast[9]));
}

/* The guess is the largest logit, or the first of several equal ones. A row with a NaN has no
 * guess. */
static void softmax_guesses_the_first_largest(void **state)
{
    static const int classes[] = {2, 3, 4, 7, 8, 9, 10, 15, 16, 17, 40};
    float row[40];
    uint16_t label;
    int correct, other, c;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(classes); i++)
        for (label = 0; label < classes[i]; label++)
            for (other = 0; other < classes[i]; other++) {
                for (c = 0; c < classes[i]; c++)
                    row[c] = c == label || c == other ? 3 : (float)-c;
                (void)vb_k_softmax_xent(row, &label, 1, classes[i], &correct);
                assert_int_equal(correct, other >= label);
                for (c = 0; c < classes[i]; c++)
                    row[c] = c == label ? 3 : c == other ? NAN : (float)-c;
                (void)vb_k_softmax_xent(row, &label, 1, classes[i], &correct);
                assert_int_equal(correct, other == label);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(packed_pixels_give_the_same_bits),
        cmocka_unit_test(zeros_are_skipped_and_nan_is_not),
        cmocka_unit_test(zeros_of_a_tile_are_skipped),
        cmocka_unit_test(lists_can_be_read_at_other_levels),
        cmocka_unit_test(parts_give_the_same_bits),
        cmocka_unit_test(invalid_sizes_are_refused),
        cmocka_unit_test(vector_softmax_agrees_with_the_reference),
        cmocka_unit_test(softmax_guesses_the_first_largest),
    };

    return T_RUN_LEVELS(tests);
}
