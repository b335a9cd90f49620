/* SPDX-License-Identifier: MIT
 *
 * Compares the fused update rules with the reference, in place and into another copy, on one thread
 * and on two. Also tests the norm, clipping, and steps that several ranks compute together.
 *
 * Tolerance: a step has a handful of roundings of 6e-8 each, among them two square roots. Where
 * terms cancel (z of ftrl), the error is relative to the terms, which are below 4. So the tolerance
 * is 2e-6 * (1 + |x|).
 *
 * Covers: kernels/exact/update_ref.c kernels/update/update_joint.c
 */
#include "kernels/kernels.h"
#include "tests/support/alloc.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>
#include <omp.h>

#define N_MAX 100003 /* larger than one chunk, and no multiple of a vector */
#define TOLERANCE 2e-6

static const struct vb_k_rule rules[] = {
    {.kind = VB_K_SGD},
    {.kind = VB_K_SGD, .decay = 0.01f},
    {.kind = VB_K_MOMENTUM, .momentum = 0.9f, .decay = 0.01f},
    {.kind = VB_K_NESTEROV, .momentum = 0.9f, .decay = 0.01f},
    {.kind = VB_K_ADAGRAD, .eps = 1e-8f, .decay = 0.01f},
    {.kind = VB_K_FTRL, .beta = 1, .l1 = 0.3f, .l2 = 0.1f},
};
static const size_t lengths[] = {0, 1, 3, 4, 17, 16384, N_MAX};

struct arrays {
    float params[N_MAX], state[2 * N_MAX], grads[N_MAX];
    float params_out[N_MAX], state_out[2 * N_MAX];
};
static struct arrays x, y;

static void make(struct arrays *a)
{
    size_t i;

    memset(a, 0, sizeof(*a));
    t_random_fill(a->params, N_MAX, 1);
    t_random_fill(a->state, VB_COUNT(a->state), 2);
    t_random_fill(a->grads, N_MAX, 3);
    for (i = 0; i < VB_COUNT(a->state); i++)
        a->state[i] = fabsf(a->state[i]); /* sums of squares are never negative */
}

static struct vb_k_update update_of(struct arrays *a, size_t n)
{
    return (struct vb_k_update){
        .n = n,
        .params = a->params,
        .state = a->state,
        .grads = a->grads,
        .scale = 0.5f,
        .rate = 0.1f,
        .params_out = a->params_out,
        .state_out = a->state_out,
    };
}

static void near(const float *got, const float *want, size_t n, size_t rule)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= TOLERANCE * (1 + fabs((double)want[i]))))
            fail_msg("rule %zu, element %zu of %zu: found %.9g, expected %.9g", rule, i, n,
                     (double)got[i], (double)want[i]);
}

static void agrees_with_the_reference(void **state)
{
    struct vb_k_update u;
    size_t r, l, n;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++) {
        for (l = 0; l < VB_COUNT(lengths); l++) {
            n = lengths[l];
            make(&x);
            make(&y);
            u = update_of(&x, n);
            vb_k_update(&rules[r], &u);
            u = update_of(&y, n);
            vb_k_update_ref(&rules[r], &u);
            near(x.params_out, y.params_out, n, r);
            near(x.state_out, y.state_out, n * (size_t)vb_k_rule_states(rules[r].kind), r);
            assert_true(x.params_out[n < N_MAX ? n : 0] == 0 || n == N_MAX);
        }
    }
}

static void in_place_gives_the_same_result(void **state)
{
    struct vb_k_update u;
    size_t r;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++) {
        make(&x);
        u = update_of(&x, N_MAX);
        vb_k_update(&rules[r], &u);
        make(&y);
        u = update_of(&y, N_MAX);
        u.params_out = y.params;
        u.state_out = y.state;
        vb_k_update(&rules[r], &u);
        assert_memory_equal(x.params_out, y.params, sizeof(x.params_out));
        if (vb_k_rule_states(rules[r].kind) > 0)
            assert_memory_equal(x.state_out, y.state, N_MAX * sizeof(float));
    }
}

static void threads_change_no_bit(void **state)
{
    struct vb_k_update u;
    double norm;
    long before;
    size_t r;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++) {
        make(&x);
        make(&y);
        omp_set_num_threads(1);
        u = update_of(&x, N_MAX);
        vb_k_update(&rules[r], &u);
        norm = vb_k_norm(x.grads, N_MAX);
        omp_set_num_threads(2);
        u = update_of(&y, N_MAX);
        vb_k_update(&rules[r], &u); /* the first call starts the threads */
        before = t_allocations;
        vb_k_update(&rules[r], &u);
        assert_true(vb_k_norm(y.grads, N_MAX) == norm);
        assert_int_equal(t_allocations, before);
        assert_memory_equal(x.params_out, y.params_out, sizeof(x.params_out));
        assert_memory_equal(x.state_out, y.state_out, sizeof(x.state_out));
    }
}

static void nan_and_infinity_stay(void **state)
{
    struct vb_k_update u;
    size_t r;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++) {
        make(&x);
        x.grads[5] = NAN;
        x.grads[7] = INFINITY;
        u = update_of(&x, 9);
        vb_k_update(&rules[r], &u);
        assert_true(isnan(x.params_out[5]));
        assert_false(isfinite(x.params_out[7]) && rules[r].kind < VB_K_ADAGRAD);
        assert_true(isfinite(x.params_out[6]) && isfinite(x.params_out[8]));
    }
}

static void norm_and_clipping(void **state)
{
    const float v[2] = {3, 4};
    double want = 0;
    size_t i;

    (void)state;
    assert_true(vb_k_norm(v, 2) == 5);
    assert_true(vb_k_norm(v, 0) == 0);
    make(&x);
    for (i = 0; i < N_MAX; i++)
        want += (double)x.grads[i] * (double)x.grads[i];
    assert_true(fabs(vb_k_norm(x.grads, N_MAX) - sqrt(want)) < 1e-10 * sqrt(want));
    assert_true(vb_k_clip(5, 1) == 0.2f);
    assert_true(vb_k_clip(5, 5) == 1 && vb_k_clip(5, 0) == 1 && vb_k_clip(0, 1) == 1);
    assert_true(vb_k_clip((double)NAN, 1) == 1 && vb_k_clip((double)INFINITY, 1) == 0);
    x.grads[70000] = 1e30f; /* the square does not fit into a float */
    assert_true(fabs(vb_k_norm(x.grads, N_MAX) / (double)1e30f - 1) < 1e-12);
}

static void vectors_are_added(void **state)
{
    size_t i, k, n;

    (void)state;
    for (k = 0; k < VB_COUNT(lengths); k++) {
        n = lengths[k];
        make(&x);
        make(&y);
        y.grads[N_MAX - 1] = n < N_MAX ? 7 : y.grads[N_MAX - 1];
        vb_k_add(y.grads, x.params, n);
        for (i = 0; i < n; i++)
            assert_true(y.grads[i] == x.grads[i] + x.params[i]);
        assert_true(n == N_MAX || y.grads[N_MAX - 1] == 7);
    }
}

/* Adds the pieces from the end to the beginning: first every second piece, then the others. */
static void the_norm_of_pieces_has_the_same_bits(void **state)
{
    const size_t lens[] = {N_MAX, N_MAX - 1, 1000, 63, 1}, pieces[] = {1, 100, 4099, N_MAX};
    struct vb_k_norm norm;
    size_t i, p, turn, k, first, n;

    (void)state;
    make(&x);
    for (i = 0; i < VB_COUNT(lens); i++)
        for (p = 0; p < VB_COUNT(pieces); p++) {
            vb_k_norm_begin(&norm, lens[i]);
            for (turn = 0; turn < 2; turn++)
                for (k = (lens[i] + pieces[p] - 1) / pieces[p]; k-- > 0;) {
                    first = k * pieces[p];
                    n = lens[i] - first < pieces[p] ? lens[i] - first : pieces[p];
                    if (k % 2 == turn)
                        vb_k_norm_add(&norm, x.grads, first, n);
                }
            assert_true(vb_k_norm_end(&norm) == vb_k_norm(x.grads, lens[i]));
        }
}

/* ---- steps of several ranks ------------------------------------------------------------------ */

#define RANKS_MAX 3

static struct {
    float grads[RANKS_MAX][N_MAX], params_out[RANKS_MAX][N_MAX], state_out[RANKS_MAX][N_MAX];
    double squares[RANKS_MAX][VB_K_NORM_PARTS];
    const float *grad_of[RANKS_MAX];
    float *params_of[RANKS_MAX], *state_of[RANKS_MAX];
    double *squares_of[RANKS_MAX];
} z;

/* Computes the shares of all ranks, one after the other. Before that, all output arrays are filled
 * with NaN, also after their first n elements. */
static void joint_step(const struct vb_k_rule *rule, int ranks, size_t n, bool norm_only)
{
    struct vb_k_joint joint = {.n_ranks = ranks,
                               .grads = z.grad_of,
                               .params = x.params,
                               .state = vb_k_rule_states(rule->kind) > 0 ? x.state : NULL,
                               .scale = 0.5f,
                               .rate = 0.1f,
                               .params_out = z.params_of,
                               .state_out = z.state_of,
                               .squares = z.squares_of,
                               .norm_only = norm_only,
                               .room = vb_k_joint_room_create()};
    struct vb_k_norm norm;
    size_t r;

    for (r = 0; r < RANKS_MAX; r++) {
        z.grad_of[r] = z.grads[r];
        z.params_of[r] = z.params_out[r];
        z.state_of[r] = z.state_out[r];
        z.squares_of[r] = z.squares[r];
        t_random_fill(z.grads[r], N_MAX, (uint32_t)r + 7);
        memset(z.params_out[r], 0xff, sizeof(z.params_out[r]));
        memset(z.state_out[r], 0xff, sizeof(z.state_out[r]));
        memset(z.squares[r], 0xff, sizeof(z.squares[r]));
    }
    vb_k_norm_begin(&norm, n);
    for (r = 0; r < (size_t)ranks; r++) {
        joint.rank = (int)r;
        vb_k_joint_update(rule, &joint, &norm, norm.parts * r / (size_t)ranks,
                          norm.parts * (r + 1) / (size_t)ranks);
    }
    free(joint.room);
}

/* Makes the same step as one rank, with the sum of all gradients in x.grads. */
static void one_step(const struct vb_k_rule *rule, int ranks, size_t n)
{
    struct vb_k_update u = update_of(&x, n);
    size_t i;
    int r;

    memset(x.params_out, 0xff, sizeof(x.params_out));
    memset(x.state_out, 0xff, sizeof(x.state_out));
    for (i = 0; i < n; i++)
        for (x.grads[i] = z.grads[0][i], r = 1; r < ranks; r++)
            x.grads[i] += z.grads[r][i];
    vb_k_update(rule, &u);
}

static void check_joint(const struct vb_k_rule *rule, int ranks, size_t n)
{
    struct vb_k_norm norm;
    size_t i;
    int r;

    joint_step(rule, ranks, n, false);
    one_step(rule, ranks, n);
    for (r = 0; r < ranks; r++) {
        assert_memory_equal(z.params_out[r], x.params_out, sizeof(z.params_out[r]));
        assert_memory_equal(z.state_out[r], x.state_out, sizeof(z.state_out[r]));
        vb_k_norm_begin(&norm, n);
        memcpy(norm.squares, z.squares[r], norm.parts * sizeof(norm.squares[0]));
        assert_true(vb_k_norm_end(&norm) == vb_k_norm(x.grads, n));
    }
    joint_step(rule, ranks, n, true);
    assert_memory_equal(z.squares[0], norm.squares, norm.parts * sizeof(norm.squares[0]));
    for (i = 0; i < N_MAX; i++)
        assert_true(isnan(z.params_out[0][i]));
}

static void shared_updates_have_the_same_bits(void **state)
{
    const size_t lens[] = {0, 1, 1023, 1024, 1025, 5000, 7850, 65536, N_MAX};
    size_t i, r;
    int ranks;

    (void)state;
    make(&x);
    omp_set_num_threads(2);
    for (r = 0; r < VB_COUNT(rules); r++)
        for (ranks = 1; ranks <= RANKS_MAX; ranks++)
            for (i = 0; i < VB_COUNT(lens) && rules[r].kind != VB_K_FTRL; i++)
                check_joint(&rules[r], ranks, lens[i]);
}

static void every_rule_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(vb_k_rule_str(VB_K_SGD), "sgd");
    assert_string_equal(vb_k_rule_str(VB_K_FTRL), "ftrl");
    assert_null(vb_k_rule_str((enum vb_k_rule_kind)(VB_K_FTRL + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(in_place_gives_the_same_result),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(nan_and_infinity_stay),
        cmocka_unit_test(norm_and_clipping),
        cmocka_unit_test(vectors_are_added),
        cmocka_unit_test(the_norm_of_pieces_has_the_same_bits),
        cmocka_unit_test(shared_updates_have_the_same_bits),
        cmocka_unit_test(every_rule_has_its_name),
    };

    return T_RUN(tests);
}
