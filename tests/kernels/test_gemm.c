/* SPDX-License-Identifier: MIT
 *
 * Tests our own matrix products, and layers that use them, on shapes that no tile divides.
 *
 * Covers: kernels/gemm/gemm_conv.c kernels/gemm/gemm_conv_weights.c kernels/gemm/gemm_linear.c
 * Covers: kernels/layer/patch.c kernels/own/own.c
 */
#include "kernels/gemm/gemm_priv.h"
#include "kernels/own/own.h"
#include "tests/support/levels.h"
#include "tests/support/fixtures/layer_fixture.h"

static void short_panels_are_padded(void **state)
{
    float from[3 * 7], lines[8 * 4], by_k[3 * 8];
    int i, j;

    (void)state;
    for (i = 0; i < 21; i++)
        from[i] = (float)i;
    vb_gemm_pack_lines(from, 7, 3, 7, 4, lines);
    for (i = 0; i < 7; i++)
        for (j = 0; j < 4; j++)
            assert_true(lines[i * 4 + j] == (j < 3 ? from[j * 7 + i] : 0));
    vb_gemm_pack_k(from, 7, 7, 3, 8, by_k);
    for (i = 0; i < 3; i++)
        for (j = 0; j < 8; j++)
            assert_true(by_k[i * 8 + j] == (j < 7 ? from[i * 7 + j] : 0));
}

static void wide_panels_equal_narrow_ones(void **state)
{
    enum { K = 5, N = 2 * VB_GEMM_NR + 3 };
    float *from = t_floats(K * N, 1), *wide = t_floats(K * 3 * VB_GEMM_NR, 2);
    float one[K * VB_GEMM_NR];
    int i;

    (void)state;
    vb_gemm_pack_k_wide(from, N, N, K, wide);
    for (i = 0; i < 3; i++) {
        vb_gemm_pack_k(from + i * VB_GEMM_NR, N, i < 2 ? VB_GEMM_NR : 3, K, VB_GEMM_NR, one);
        assert_memory_equal(one, wide + i * K * VB_GEMM_NR, sizeof(one));
    }
    free(from);
    free(wide);
}

/* The inputs are small whole numbers, because sums of their products are exact. */
static void tiles_add_or_replace(void **state)
{
    enum { K = 9, LDC = VB_GEMM_NR + 3 };
    float a[K * VB_GEMM_MR], b[K * VB_GEMM_NR], c[VB_GEMM_MR * LDC];
    int i, j, k, add, want;

    (void)state;
    for (i = 0; i < K * VB_GEMM_MR; i++)
        a[i] = (float)(i % 7 - 3);
    for (i = 0; i < K * VB_GEMM_NR; i++)
        b[i] = (float)(i % 11 - 5);
    for (add = 0; add < 2; add++) {
        for (i = 0; i < VB_GEMM_MR * LDC; i++)
            c[i] = 100;
        vb_gemm_tile(K, a, b, c, LDC, add);
        for (i = 0; i < VB_GEMM_MR; i++)
            for (j = 0; j < LDC; j++) {
                for (want = add || j >= VB_GEMM_NR ? 100 : 0, k = 0; k < K && j < VB_GEMM_NR; k++)
                    want += (int)(a[k * VB_GEMM_MR + i] * b[k * VB_GEMM_NR + j]);
                assert_true(c[i * LDC + j] == (float)want);
            }
    }
}

static void blocks_equal_tiles(void **state)
{
    enum { K = 7, TILE = VB_GEMM_MR * VB_GEMM_NR };
    float *a = t_floats(3 * K * VB_GEMM_MR, 1), *b = t_floats(2 * K * VB_GEMM_NR, 2);
    float c[6 * TILE], one[TILE];
    int i;

    (void)state;
    vb_gemm_block(3, 2, K, a, b, c, false);
    for (i = 0; i < 6; i++) {
        vb_gemm_tile(K, a + i % 3 * K * VB_GEMM_MR, b + i / 3 * K * VB_GEMM_NR, one, VB_GEMM_NR,
                     false);
        assert_memory_equal(one, c + i * TILE, sizeof(one));
    }
    free(a);
    free(b);
}

static void convolutions_are_correct(void **state)
{
    const struct vb_k_shape shapes[] = {
        t_conv(1, 1, 5, 7, 1, 1, 1, 0),       t_conv(3, 3, 9, 5, 5, 3, 1, 1),
        t_conv(17, 5, 7, 7, 6, 3, 1, 2),      t_conv(3, 3, 23, 29, 7, 11, 4, 2),
        t_conv(1, 2, 60, 31, 3, 5, 1, 2),     t_conv(3, 67, 13, 13, 21, 3, 1, 1),
        t_conv(1, 3, 11, 11, 4, 2, 5, 0),     t_conv(2, 50, 9, 9, 3, 5, 1, 4),
        t_conv(17, 2, 4, 3, 9, 3, 2, 1),      t_conv(1, 1, 3, 600, 2, 3, 1, 1),
        t_conv(1, 200, 12, 12, 300, 2, 1, 0), t_conv(3, 1, 21, 21, 2, 21, 1, 0),
    };
    struct vb_k_shape s;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        s = shapes[i];
        s.relu = i % 2;
        t_check(&vb_k_backend_gemm, &s, VB_K_FORWARD, 1);
        t_check(&vb_k_backend_gemm, &s, VB_K_BACKWARD_WEIGHTS, 1);
        if (s.stride == 1)
            t_check(&vb_k_backend_gemm, &s, VB_K_BACKWARD_DATA, 1);
    }
}

static void kernels_need_not_be_square(void **state)
{
    struct vb_k_shape s = t_conv(3, 4, 9, 12, 5, 3, 1, 1);
    int pass;

    (void)state;
    s.kw = 5;
    for (pass = 0; pass < VB_K_PASSES; pass++)
        t_check(&vb_k_backend_gemm, &s, pass, 1);
}

static void linear_layers_are_correct(void **state)
{
    const int shapes[][3] = {{1, 1, 1},     {3, 5, 2},     {17, 400, 120},
                             {64, 84, 10},  {5, 257, 129}, {32, 1300, 67},
                             {33, 61, 300}, {4, 1023, 4},  {2, 2700, 70}};
    struct vb_k_shape s = {.kind = VB_K_LINEAR, .h = 1, .w = 1};
    size_t i;
    int pass;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        s.n = shapes[i][0];
        s.c = shapes[i][1];
        s.oc = shapes[i][2];
        s.relu = i % 2;
        for (pass = 0; pass < VB_K_PASSES; pass++)
            t_check(&vb_k_backend_gemm, &s, pass, 1);
    }
}

static void only_dependent_outputs_change(const struct vb_k_shape *shape, enum vb_k_pass pass,
                                          float bad)
{
    struct t_layer t;

    t_layer_init(&t, shape);
    ((float *)t.args.x)[t.n_x / 3] = bad;
    ((float *)t.args.dy)[t.n_y / 2] = bad;
    t_check_finite(&vb_k_backend_gemm, &t, pass);
    t_layer_fini(&t);
}

static void nan_and_infinity_reach_only_dependent_outputs(void **state)
{
    const struct vb_k_shape shapes[] = {
        t_conv(3, 3, 9, 8, 5, 3, 1, 1),
        t_conv(2, 2, 25, 25, 6, 5, 1, 0),
        {.kind = VB_K_LINEAR, .n = 5, .c = 37, .h = 1, .w = 1, .oc = 23},
    };
    size_t i;
    int pass;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        for (pass = 0; pass < VB_K_PASSES; pass++) {
            only_dependent_outputs_change(&shapes[i], pass, NAN);
            only_dependent_outputs_change(&shapes[i], pass, INFINITY);
        }
    }
}

static void strided_backward_passes_are_refused(void **state)
{
    struct vb_k_shape s = t_conv(1, 1, 9, 9, 1, 3, 2, 0);

    (void)state;
    assert_false(vb_k_backend_gemm.can(&s, VB_K_BACKWARD_DATA));
    assert_true(vb_k_backend_gemm.can(&s, VB_K_FORWARD));
    s.kind = VB_K_MAX_POOL;
    assert_false(vb_k_backend_gemm.can(&s, VB_K_FORWARD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_panels_are_padded),
        cmocka_unit_test(wide_panels_equal_narrow_ones),
        cmocka_unit_test(tiles_add_or_replace),
        cmocka_unit_test(blocks_equal_tiles),
        cmocka_unit_test(convolutions_are_correct),
        cmocka_unit_test(kernels_need_not_be_square),
        cmocka_unit_test(linear_layers_are_correct),
        cmocka_unit_test(nan_and_infinity_reach_only_dependent_outputs),
        cmocka_unit_test(strided_backward_passes_are_refused),
    };

    return T_RUN_LEVELS(tests);
}
