/* SPDX-License-Identifier: MIT
 *
 * Tests direct convolution on the shapes of LeNet and on shapes that no vector length divides.
 *
 * Covers: kernels/own/direct_conv.c kernels/own/direct_group.c kernels/own/direct_weights.c
 */
#include "kernels/own/own.h"
#include "tests/support/levels.h"
#include "tests/support/fixtures/layer_fixture.h"

static void all_passes(const struct vb_k_shape *shape)
{
    struct vb_k_shape s = *shape;
    char why[VB_OPTS_WHY];
    int pass;

    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    for (pass = 0; pass < VB_K_PASSES; pass++) {
        if (vb_k_backend_direct.can(&s, pass))
            t_check(&vb_k_backend_direct, shape, pass, 1);
    }
}

static void lenet_shapes_are_correct(void **state)
{
    const struct vb_k_shape one = t_conv(3, 1, 28, 28, 6, 5, 1, 2);
    const struct vb_k_shape two = t_conv(17, 6, 14, 14, 16, 5, 1, 0);
    int pass;

    (void)state;
    for (pass = 0; pass < VB_K_PASSES; pass++) {
        t_check(&vb_k_backend_direct, &one, pass, 1);
        t_check(&vb_k_backend_direct, &two, pass, 1);
    }
}

static void ragged_shapes_are_correct(void **state)
{
    const struct vb_k_shape shapes[] = {
        t_conv(1, 1, 5, 7, 1, 1, 1, 0),    t_conv(3, 3, 9, 5, 5, 3, 1, 1),
        t_conv(17, 5, 7, 7, 6, 3, 1, 2),   t_conv(3, 3, 43, 49, 7, 11, 4, 2),
        t_conv(1, 2, 60, 31, 3, 5, 1, 2),  t_conv(1, 3, 31, 31, 4, 2, 5, 0),
        t_conv(17, 2, 4, 8, 9, 3, 2, 1),   t_conv(1, 1, 3, 600, 2, 3, 1, 1),
        t_conv(3, 7, 90, 90, 5, 3, 1, 1),  t_conv(2, 2, 1, 9, 13, 5, 1, 4),
        t_conv(1, 1, 21, 21, 2, 21, 1, 0), t_conv(9, 4, 6, 6, 8, 3, 3, 2),
    };
    struct vb_k_shape s;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        s = shapes[i];
        s.relu = i % 2;
        all_passes(&s);
    }
}

static void kernels_need_not_be_square(void **state)
{
    struct vb_k_shape s = t_conv(3, 4, 9, 12, 5, 3, 1, 1);

    (void)state;
    s.kw = 5;
    all_passes(&s);
    s.kh = 4;
    s.kw = 2;
    all_passes(&s);
}

static void only_dependent_outputs_change(enum vb_k_pass pass, float bad)
{
    struct vb_k_shape shape = t_conv(3, 3, 9, 10, 5, 3, 1, 1);
    struct t_layer t;

    t_layer_init(&t, &shape);
    /* the last element of a row, where two vectors overlap */
    ((float *)t.args.x)[t.n_x / 3 + 9] = bad;
    t_check_finite(&vb_k_backend_direct, &t, pass);
    t_layer_fini(&t);
}

static void nan_and_infinity_reach_only_dependent_outputs(void **state)
{
    (void)state;
    only_dependent_outputs_change(VB_K_FORWARD, NAN);
    only_dependent_outputs_change(VB_K_FORWARD, INFINITY);
    only_dependent_outputs_change(VB_K_BACKWARD_WEIGHTS, NAN);
    only_dependent_outputs_change(VB_K_BACKWARD_WEIGHTS, -INFINITY);
}

static void relu_keeps_nan(void **state)
{
    struct vb_k_shape shape = t_conv(1, 1, 5, 5, 4, 3, 1, 0);
    struct t_layer t;
    struct t_pass p;
    size_t i;

    (void)state;
    shape.relu = true;
    t_layer_init(&t, &shape);
    ((float *)t.args.x)[12] = NAN; /* the middle of the input, which every output depends on */
    t_pass_init(&p, &vb_k_backend_direct, &t, VB_K_FORWARD);
    t_pass_run(&p, &t, 1);
    for (i = 0; i < t.n_y; i++)
        assert_true(isnan(t.args.y[i]));
    t_pass_fini(&p);
    t_layer_fini(&t);
}

static void many_channels_are_refused(void **state)
{
    struct vb_k_shape s = t_conv(1, 192, 13, 13, 384, 3, 1, 1);
    char why[VB_OPTS_WHY];
    int pass;

    (void)state;
    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    for (pass = 0; pass < VB_K_PASSES; pass++)
        assert_false(vb_k_backend_direct.can(&s, pass));
    s.kind = VB_K_MAX_POOL;
    s.c = 1;
    assert_false(vb_k_backend_direct.can(&s, VB_K_FORWARD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_shapes_are_correct),
        cmocka_unit_test(ragged_shapes_are_correct),
        cmocka_unit_test(kernels_need_not_be_square),
        cmocka_unit_test(nan_and_infinity_reach_only_dependent_outputs),
        cmocka_unit_test(relu_keeps_nan),
        cmocka_unit_test(many_channels_are_refused),
    };

    return T_RUN_LEVELS(tests);
}
