/* SPDX-License-Identifier: MIT
 *
 * Tests Winograd convolutions on shapes that no tile divides.
 *
 * Tolerance: tests/support/fixtures/layer_fixture.h has the tolerance of plain sums. The transforms
 * of Winograd multiply numbers by factors and add them up. In one dimension, the absolute values of
 * the factors add up to 2 for the inputs, 1.5 for the taps and 3 for the outputs of F(2x2, 3x3),
 * and to 10, 0.5 and 19 for the transforms of alpha 6. Intermediate values can become larger by
 * these sums: in both dimensions together (2 * 1.5 * 3)^2 = 81 times. With random signs it is about
 * the square root of that. The transforms add half a dozen roundings per dimension.
 *
 * Covers: kernels/gemm/winograd_conv.c kernels/gemm/winograd_grid.c
 * Covers: kernels/gemm/winograd_transform.c kernels/gemm/winograd_weights.c
 */
#include "kernels/own/own.h"
#include "kernels/gemm/winograd.h"
#include "tests/support/levels.h"
#include "tests/support/fixtures/layer_fixture.h"

#define TOLERANCE_2 3
#define TOLERANCE_4 30

static void all_passes(const struct vb_k_backend *backend, const struct vb_k_shape *shape,
                       double factor)
{
    int pass;

    for (pass = 0; pass < VB_K_PASSES; pass++)
        t_check(backend, shape, pass, factor);
}

static void three_by_three_is_correct(void **state)
{
    const struct vb_k_shape shapes[] = {
        t_conv(1, 1, 3, 3, 1, 3, 1, 0),    t_conv(1, 1, 1, 1, 1, 3, 1, 1),
        t_conv(3, 3, 13, 13, 5, 3, 1, 1),  t_conv(17, 5, 7, 9, 6, 3, 1, 2),
        t_conv(1, 21, 13, 5, 67, 3, 1, 1), t_conv(3, 9, 11, 30, 4, 3, 1, 0),
        t_conv(2, 130, 6, 6, 70, 3, 1, 1), t_conv(1, 2, 50, 3, 3, 3, 1, 2),
        t_conv(17, 2, 2, 2, 3, 3, 1, 1),
    };
    struct vb_k_shape s;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        s = shapes[i];
        s.relu = i % 2;
        all_passes(&vb_k_backend_winograd2, &s, TOLERANCE_2);
        all_passes(&vb_k_backend_winograd4, &s, TOLERANCE_4);
    }
}

static void five_by_five_is_correct(void **state)
{
    const struct vb_k_shape shapes[] = {
        t_conv(1, 1, 5, 5, 1, 5, 1, 0),   t_conv(3, 3, 13, 12, 5, 5, 1, 2),
        t_conv(17, 5, 7, 9, 6, 5, 1, 1),  t_conv(1, 22, 27, 27, 17, 5, 1, 2),
        t_conv(3, 4, 6, 11, 70, 5, 1, 4),
    };
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++)
        all_passes(&vb_k_backend_winograd4, &shapes[i], TOLERANCE_4);
}

/* The inputs are whole numbers, and floats represent the factors of F(2x2, 3x3) exactly, so all
 * sums are exact. */
static void small_numbers_are_exact(void **state)
{
    struct vb_k_shape shape = t_conv(2, 3, 7, 6, 5, 3, 1, 1);
    struct t_layer t;
    struct t_want want;
    struct t_pass p;
    size_t i;

    (void)state;
    t_layer_init(&t, &shape);
    for (i = 0; i < t.n_x; i++)
        ((float *)t.args.x)[i] = (float)(i % 9) - 4;
    for (i = 0; i < t.n_w; i++)
        ((float *)t.args.w)[i] = (float)(i % 5) - 2;
    memset((void *)t.args.b, 0, (size_t)t.shape.oc * sizeof(float));
    t_want_init(&want, &t, VB_K_FORWARD);
    t_pass_init(&p, &vb_k_backend_winograd2, &t, VB_K_FORWARD);
    t_pass_run(&p, &t, 1);
    t_compare("y", t.args.y, want.y, t.n_y, 0);
    t_pass_fini(&p);
    t_want_fini(&want);
    t_layer_fini(&t);
}

/* Puts `bad`, a NaN or an infinity, at (y, x) of channel 0 of sample 1. Outputs of tiles whose
 * window does not contain that place must be finite. Outputs that are not finite in the reference
 * must not be finite. */
static void spreads_within_tiles(const struct vb_k_backend *backend, int side, float bad)
{
    struct vb_k_shape shape = t_conv(3, 3, 13, 13, 5, 3, 1, 1);
    const int y = 5, x = 9;
    struct t_layer t;
    struct t_want want;
    struct t_pass p;
    int n, o, oy, ox, ty, tx;
    size_t i = 0;
    bool seen;

    t_layer_init(&t, &shape);
    ((float *)t.args.x)[(1 * 3 * 13 + y) * 13 + x] = bad;
    t_want_init(&want, &t, VB_K_FORWARD);
    t_pass_init(&p, backend, &t, VB_K_FORWARD);
    t_pass_run(&p, &t, 2);
    for (n = 0; n < 3; n++)
        for (o = 0; o < 5; o++)
            for (oy = 0; oy < 13; oy++)
                for (ox = 0; ox < 13; ox++, i++) {
                    ty = oy / side * side - 1; /* first row and column of the tile's window */
                    tx = ox / side * side - 1;
                    seen = n == 1 && y >= ty && y < ty + side + 2 && x >= tx && x < tx + side + 2;
                    if (!seen)
                        assert_true(isfinite(t.args.y[i]));
                    if (!isfinite(want.y[i]))
                        assert_false(isfinite(t.args.y[i]));
                }
    t_pass_fini(&p);
    t_want_fini(&want);
    t_layer_fini(&t);
}

static void nan_and_infinity_stay_in_their_tiles(void **state)
{
    (void)state;
    spreads_within_tiles(&vb_k_backend_winograd2, 2, NAN);
    spreads_within_tiles(&vb_k_backend_winograd2, 2, INFINITY);
    spreads_within_tiles(&vb_k_backend_winograd4, 4, NAN);
    spreads_within_tiles(&vb_k_backend_winograd4, 4, -INFINITY);
}

/* Puts a NaN into channel 1 of x. The gradients of all other channels must be finite. */
static void gradients_of_other_channels_are_finite(void **state)
{
    struct vb_k_shape shape = t_conv(2, 6, 9, 9, 5, 3, 1, 1);
    struct t_layer t;
    struct t_pass p;
    size_t i;

    (void)state;
    t_layer_init(&t, &shape);
    ((float *)t.args.x)[81 + 40] = NAN;
    t_pass_init(&p, &vb_k_backend_winograd4, &t, VB_K_BACKWARD_WEIGHTS);
    t_pass_run(&p, &t, 1);
    for (i = 0; i < t.n_w; i++)
        assert_int_equal(isfinite(t.args.dw[i]), i / 9 % 6 != 1);
    t_pass_fini(&p);
    t_layer_fini(&t);
}

static void other_shapes_are_refused(void **state)
{
    struct vb_k_shape s = t_conv(1, 1, 9, 9, 1, 3, 2, 1);

    (void)state;
    assert_false(vb_k_backend_winograd2.can(&s, VB_K_FORWARD));
    assert_false(vb_k_backend_winograd4.can(&s, VB_K_FORWARD));
    s.stride = 1;
    assert_true(vb_k_backend_winograd2.can(&s, VB_K_FORWARD));
    s.kh = 5;
    assert_false(vb_k_backend_winograd4.can(&s, VB_K_FORWARD));
    s.kw = 5;
    assert_false(vb_k_backend_winograd2.can(&s, VB_K_FORWARD));
    assert_true(vb_k_backend_winograd4.can(&s, VB_K_FORWARD));
    s.kind = VB_K_AVG_POOL;
    assert_false(vb_k_backend_winograd4.can(&s, VB_K_FORWARD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_by_three_is_correct),
        cmocka_unit_test(five_by_five_is_correct),
        cmocka_unit_test(small_numbers_are_exact),
        cmocka_unit_test(nan_and_infinity_stay_in_their_tiles),
        cmocka_unit_test(gradients_of_other_channels_are_finite),
        cmocka_unit_test(other_shapes_are_refused),
    };

    return T_RUN_LEVELS(tests);
}
