/* SPDX-License-Identifier: MIT
 *
 * Compares the gradients of the reference layers with finite differences, in double precision. To
 * do so, this file compiles the reference again with double in place of float. The loss is the sum
 * of the outputs, each multiplied by a random factor, so the gradient of an output is its factor.
 *
 * Covers: kernels/exact/layer_ref.c kernels/layer/shape.c
 */
#include "base/base.h"
#include "tests/support/test.h"

#include <math.h>

/* These lines must follow all other headers. They make the reference use double, only in this
 * file. */
#define float double
#include "kernels/exact/layer_ref.c" /* NOLINT(bugprone-suspicious-include) */
#include "kernels/layer/shape.c"     /* NOLINT(bugprone-suspicious-include) */

#define STEP 1e-6
/* the loss is about 10; its rounding error, divided by the step, is 1e-9; the rest is margin */
#define TOLERANCE 1e-7
#define FLOATS_MAX 2048

struct tensors {
    double x[FLOATS_MAX], w[FLOATS_MAX], b[FLOATS_MAX], y[FLOATS_MAX], dy[FLOATS_MAX];
    double dx[FLOATS_MAX], dw[FLOATS_MAX], db[FLOATS_MAX], factor[FLOATS_MAX];
    uint8_t where[FLOATS_MAX];
};

static struct tensors t;

static void fill(double *v, uint64_t seed)
{
    size_t i;

    for (i = 0; i < FLOATS_MAX; i++)
        v[i] = (double)(vb_random(seed, i) >> 11) / 4503599627370496.0 - 1;
}

static struct vb_k_args all(void)
{
    return (struct vb_k_args){.x = t.x,
                              .w = t.w,
                              .b = t.b,
                              .y = t.y,
                              .dy = t.dy,
                              .dx = t.dx,
                              .dw = t.dw,
                              .db = t.db,
                              .where = t.where,
                              .seed = 5,
                              .step = 6};
}

static double loss(const struct vb_k_shape *s)
{
    struct vb_k_args args = all();
    double sum = 0;
    size_t i;

    vb_k_layer_ref(s, VB_K_FORWARD, &args);
    for (i = 0; i < vb_k_shape_outputs(s); i++)
        sum += t.y[i] * t.factor[i];
    return sum;
}

static void backward(const struct vb_k_shape *s)
{
    struct vb_k_args args = all();
    size_t i;

    loss(s); /* computes t.y */
    for (i = 0; i < vb_k_shape_outputs(s); i++)
        t.dy[i] = s->relu && !(t.y[i] > 0) ? 0 : t.factor[i];
    vb_k_layer_ref(s, VB_K_BACKWARD_DATA, &args);
    vb_k_layer_ref(s, VB_K_BACKWARD_WEIGHTS, &args);
}

static void compare(const struct vb_k_shape *s, double *v, const double *grads, size_t n,
                    const char *what)
{
    double keep, up, down;
    size_t i;

    for (i = 0; i < n; i++) {
        keep = v[i];
        v[i] = keep + STEP;
        up = loss(s);
        v[i] = keep - STEP;
        down = loss(s);
        v[i] = keep;
        if (!(fabs((up - down) / (2 * STEP) - grads[i]) <= TOLERANCE))
            fail_msg("layer %s, gradient of %s, element %zu: found %.12g, expected %.12g",
                     vb_k_kind_str(s->kind), what, i, grads[i], (up - down) / (2 * STEP));
    }
}

static void check(struct vb_k_shape s)
{
    char why[VB_OPTS_WHY];
    bool weights = vb_k_has_pass(s.kind, VB_K_BACKWARD_WEIGHTS);

    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    assert_true(vb_k_shape_inputs(&s) <= FLOATS_MAX && vb_k_shape_outputs(&s) <= FLOATS_MAX);
    fill(t.x, 1);
    fill(t.w, 2);
    fill(t.b, 3);
    fill(t.factor, 4);
    backward(&s);
    compare(&s, t.x, t.dx, vb_k_shape_inputs(&s), "input");
    compare(&s, t.w, t.dw, vb_k_shape_weights(&s), "weight");
    compare(&s, t.b, t.db, weights ? (size_t)s.oc : 0, "bias");
}

static struct vb_k_shape conv_3x3(enum vb_k_kind kind, int h, int w)
{
    return (struct vb_k_shape){.kind = kind,
                               .n = 3,
                               .c = 2,
                               .h = h,
                               .w = w,
                               .oc = 4,
                               .kh = 3,
                               .kw = 3,
                               .stride = 1,
                               .pad = 1};
}

static void convolution(void **state)
{
    struct vb_k_shape s = conv_3x3(VB_K_CONV, 7, 6);

    (void)state;
    check(s);
    s.relu = true;
    s.stride = 2;
    check(s);
    s.kw = 2;
    s.stride = 4; /* a stride larger than the kernel */
    check(s);
}

static void convolution_and_pooling(void **state)
{
    struct vb_k_shape s = conv_3x3(VB_K_CONV_POOL, 9, 8);

    (void)state;
    check(s);
    s.stride = 2;
    check(s);
}

static void linear_layer(void **state)
{
    (void)state;
    check((struct vb_k_shape){
        .kind = VB_K_LINEAR, .n = 3, .c = 2, .h = 3, .w = 4, .oc = 7, .relu = true});
}

static void pooling(void **state)
{
    struct vb_k_shape s = {.kind = VB_K_MAX_POOL,
                           .n = 2,
                           .c = 3,
                           .h = 9,
                           .w = 8,
                           .kh = 3,
                           .kw = 3,
                           .stride = 2,
                           .pad = 1};

    (void)state;
    check(s);
    s.kind = VB_K_AVG_POOL;
    check(s);
    s.stride = 5;
    check(s);
}

static void element_by_element(void **state)
{
    struct vb_k_shape s = {.kind = VB_K_RELU, .n = 2, .c = 3, .h = 5, .w = 3, .rate = 0.3};

    (void)state;
    check(s);
    s.kind = VB_K_DROPOUT;
    check(s);
}

static void normalisation(void **state)
{
    struct vb_k_shape s = {.kind = VB_K_LRN,
                           .n = 2,
                           .c = 7,
                           .h = 3,
                           .w = 2,
                           .kh = 5,
                           .alpha = 0.5,
                           .beta = 0.75,
                           .bias = 2};

    (void)state;
    check(s);
    s.kh = 9; /* the window covers more channels than the input has */
    s.beta = 0.4;
    check(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution),        cmocka_unit_test(convolution_and_pooling),
        cmocka_unit_test(linear_layer),       cmocka_unit_test(pooling),
        cmocka_unit_test(element_by_element), cmocka_unit_test(normalisation),
    };

    return T_RUN(tests);
}
