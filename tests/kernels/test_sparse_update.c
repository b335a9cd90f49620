/* SPDX-License-Identifier: MIT
 *
 * Compares the sparse update with the dense update, which updates every feature in every step. Both
 * must give the same weights, although most features appear rarely and rates change. Also tests
 * that a replica can make the same update.
 *
 * Tolerance: the dense update rounds at every step, the sparse update only when a feature appears.
 * 300 steps with a rounding of 6e-8 each, on weights below 4, give a tolerance of 2e-5 * (1 + |w|).
 *
 * Covers: kernels/sparse/lazy.c
 */
#include "kernels/kernels.h"
#include "tests/support/alloc.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>
#include <omp.h>

#define FEATURES 500
#define STEPS 300
#define KEYS 20
#define TOLERANCE 2e-5

static const struct vb_k_rule rules[] = {
    {.kind = VB_K_SGD},
    {.kind = VB_K_SGD, .decay = 0.05f},
    {.kind = VB_K_MOMENTUM, .momentum = 0.9f},
    {.kind = VB_K_MOMENTUM, .momentum = 0.9f, .decay = 0.05f},
    {.kind = VB_K_NESTEROV, .momentum = 0.9f, .decay = 0.05f},
    {.kind = VB_K_ADAGRAD, .eps = 1e-8f},
    {.kind = VB_K_FTRL, .beta = 1, .l1 = 0.05f, .l2 = 0.1f},
};

static const struct vb_k_schedule rates[] = {
    {.kind = VB_K_RATE_CONSTANT, .base = 0.1},
    {.kind = VB_K_RATE_STEP, .base = 0.1, .period = 70, .factor = 0.5},
    {.kind = VB_K_RATE_COSINE, .base = 0.1, .warmup = 20, .period = STEPS, .factor = 0.1},
};

struct list {
    uint32_t keys[KEYS];
    float values[KEYS];
};

/* Draws keys in ascending order; small keys are far more frequent. */
static void draw(struct list *l, uint32_t *seed)
{
    uint32_t at = 0;
    size_t i;

    for (i = 0; i < KEYS; i++) {
        l->keys[i] = at;
        at += 1 + t_random(seed) % (i < 5 ? 2 : 30);
        l->values[i] = (float)t_random(seed) / (1 << 23) - 1;
    }
    assert_true(l->keys[KEYS - 1] < FEATURES);
}

static void dense_step(const struct vb_k_rule *rule, const struct list *l, float rate, float *w,
                       float *state)
{
    float grads[FEATURES] = {0};
    struct vb_k_update u = {FEATURES, w, state, grads, 0.5f, rate, w, state};
    size_t i;

    for (i = 0; i < KEYS; i++)
        grads[l->keys[i]] = l->values[i];
    vb_k_update(rule, &u);
}

static void compare(const struct vb_k_sparse *s, const float *w, size_t rule, int step)
{
    float now[FEATURES];
    size_t i;

    vb_k_sparse_read(s, 0, FEATURES, now);
    for (i = 0; i < FEATURES; i++)
        if (!(fabs((double)now[i] - (double)w[i]) <= TOLERANCE * (1 + fabs((double)w[i]))))
            fail_msg("rule %zu, step %d, feature %zu: found the weight %.9g, expected %.9g", rule,
                     step, i, (double)now[i], (double)w[i]);
}

static void one_run(size_t rule, const struct vb_k_schedule *schedule)
{
    float w[FEATURES] = {0}, state[2 * FEATURES] = {0}, rate;
    struct vb_k_sparse *s;
    uint32_t seed = 11;
    struct list l;
    long before;
    int t;

    assert_int_equal(vb_k_sparse_create(&rules[rule], FEATURES, &s), VB_OK);
    before = t_allocations;
    for (t = 0; t < STEPS; t++) {
        draw(&l, &seed);
        rate = vb_k_rate(schedule, t);
        assert_int_equal(vb_k_sparse_update(s, l.keys, l.values, KEYS, 0.5f, rate, NULL), VB_OK);
        dense_step(&rules[rule], &l, rate, w, state);
        if (t % 50 == 7)
            compare(s, w, rule, t);
        if (t == 150)
            vb_k_sparse_settle(s);
    }
    compare(s, w, rule, t);
    assert_int_equal(t_allocations, before);
    vb_k_sparse_destroy(s);
}

static void agrees_with_the_dense_update(void **state)
{
    size_t r, k;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++)
        for (k = 0; k < VB_COUNT(rates); k++)
            one_run(r, &rates[k]);
}

/* There are more different rates than the kernel remembers. One feature appears only in the first
 * step and is read after the last step. */
static void a_long_gap_over_many_rates(void **state)
{
    const struct vb_k_rule rule = {.kind = VB_K_MOMENTUM, .momentum = 0.9f, .decay = 1e-4f};
    const uint32_t keys[2] = {3, 7};
    const float values[2] = {1, 1};
    double w = 0, v = 0, g;
    struct vb_k_sparse *s;
    float rate, got;
    int t;

    (void)state;
    assert_int_equal(vb_k_sparse_create(&rule, 8, &s), VB_OK);
    for (t = 0; t < 70000; t++) {
        rate = t % 2 == 0 ? 0.1f : 0.2f;
        g = (t == 0 ? 1 : 0) + (double)rule.decay * w;
        v = (double)rule.momentum * v + g;
        w -= (double)rate * v;
        assert_int_equal(vb_k_sparse_update(s, keys, values, t == 0 ? 2 : 1, 1, rate, NULL), VB_OK);
    }
    vb_k_sparse_read(s, 7, 1, &got);
    assert_true(fabs((double)got - w) <= 1e-4 * fabs(w) && w != 0);
    vb_k_sparse_destroy(s);
}

/* Another replica makes each update with the gradient that was kept of it. */
static void a_kept_update_is_made_again(void **state)
{
    struct vb_k_sparse *s, *other;
    struct vb_k_kept *kept;
    const uint32_t *keys;
    const float *values;
    uint32_t seed;
    struct list l;
    size_t r, k, n;
    float rate;
    int t;

    (void)state;
    assert_int_equal(vb_k_kept_create(KEYS, &kept), VB_OK);
    for (r = 0; r < VB_COUNT(rules); r++) {
        for (k = 0; k < VB_COUNT(rates); k++) {
            assert_int_equal(vb_k_sparse_create(&rules[r], FEATURES, &s), VB_OK);
            assert_int_equal(vb_k_sparse_create(&rules[r], FEATURES, &other), VB_OK);
            for (seed = 3, t = 0; t < 90; t++) {
                rate = vb_k_rate(&rates[k], t);
                draw(&l, &seed);
                vb_k_sparse_update(s, l.keys, l.values, KEYS, 1, rate, kept);
                n = vb_k_kept_gradient(kept, &keys, &values);
                assert_int_equal(vb_k_sparse_update(other, keys, values, n, 1, rate, NULL), VB_OK);
                assert_memory_equal(vb_k_sparse_weights(other), vb_k_sparse_weights(s),
                                    FEATURES * sizeof(float));
            }
            vb_k_sparse_destroy(s);
            vb_k_sparse_destroy(other);
        }
    }
    vb_k_kept_destroy(kept);
}

/* Reading must not write to the weights, so that replicas that read different features keep the
 * same bits. */
static void forward_and_read_see_the_same_weights(void **state)
{
    const uint64_t start[3] = {0, 3, 4};
    const uint32_t at[4] = {3, 450, 3, 1};
    const float x[4] = {1, 2, 3, 4};
    struct vb_k_csr m = {.n = 2, .offset = start, .index = at, .value = x, .n_rows = 2, .nnz = 4};
    float w[FEATURES], raw[FEATURES], logits[2];
    struct vb_k_sparse *s;
    uint32_t seed = 3;
    struct list l;
    size_t r;
    int t;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++) {
        assert_int_equal(vb_k_sparse_create(&rules[r], FEATURES, &s), VB_OK);
        for (t = 0; t < 30; t++) {
            draw(&l, &seed);
            vb_k_sparse_update(s, l.keys, l.values, KEYS, 1, 0.1f, NULL);
        }
        vb_k_sparse_read(s, 0, FEATURES, w);
        memcpy(raw, vb_k_sparse_weights(s), sizeof(raw));
        vb_k_sparse_forward(s, &m, 0.5f, logits);
        assert_true(fabsf(logits[0] - (0.5f + 4 * w[3] + 2 * w[450])) < 1e-4f);
        assert_true(fabsf(logits[1] - (0.5f + 4 * w[1])) < 1e-4f);
        assert_memory_equal(vb_k_sparse_weights(s), raw, sizeof(raw));
        vb_k_sparse_destroy(s);
    }
}

#define MANY 20000

static void threads_change_no_bit(void **state)
{
    static uint32_t keys[MANY];
    static float values[MANY], one[MANY], two[MANY], *out[2] = {one, two};
    struct vb_k_sparse *s;
    size_t r, i;
    int threads, t;

    (void)state;
    for (i = 0; i < MANY; i++) {
        keys[i] = (uint32_t)i;
        values[i] = (float)(i % 97) / 50 - 1;
    }
    for (r = 0; r < VB_COUNT(rules); r++) {
        for (threads = 1; threads <= 2; threads++) {
            omp_set_num_threads(threads);
            assert_int_equal(vb_k_sparse_create(&rules[r], MANY, &s), VB_OK);
            for (t = 0; t < 3; t++)
                vb_k_sparse_update(s, keys, values, t == 1 ? 10 : MANY, 1, 0.1f, NULL);
            vb_k_sparse_read(s, 0, MANY, out[threads - 1]);
            vb_k_sparse_destroy(s);
        }
        assert_memory_equal(one, two, sizeof(one));
    }
}

static void bad_keys_write_nothing(void **state)
{
    const uint32_t beyond[2] = {1, 8}, twice[2] = {2, 2}, back[2] = {3, 1};
    const struct vb_k_rule sgd = {.kind = VB_K_SGD};
    const struct vb_k_rule no = {.kind = VB_K_FTRL, .decay = 0.1f};
    const float values[2] = {1, 1};
    struct vb_k_sparse *s, *none = NULL;
    struct t_stderr err;
    char text[512];
    int i;

    (void)state;
    assert_int_equal(vb_k_sparse_create(&sgd, 8, &s), VB_OK);
    t_stderr_catch(&err);
    assert_int_equal(vb_k_sparse_update(s, beyond, values, 2, 1, 1, NULL), VB_ERR_INPUT);
    assert_int_equal(vb_k_sparse_update(s, twice, values, 2, 1, 1, NULL), VB_ERR_INPUT);
    assert_int_equal(vb_k_sparse_update(s, back, values, 2, 1, 1, NULL), VB_ERR_INPUT);
    assert_int_equal(vb_k_sparse_create(&no, 8, &none), VB_ERR_UNSUPPORTED);
    assert_int_equal(vb_k_sparse_create(&sgd, 0, &none), VB_ERR_USAGE);
    t_stderr_release(&err, text, sizeof(text));
    assert_non_null(strstr(text, "entry 1: key 8 is not below 8"));
    assert_non_null(strstr(text, "key 1 follows key 3"));
    for (i = 0; i < 8; i++)
        assert_true(vb_k_sparse_weights(s)[i] == 0);
    vb_k_sparse_destroy(s);
    vb_k_sparse_destroy(NULL);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_dense_update),
        cmocka_unit_test(a_long_gap_over_many_rates),
        cmocka_unit_test(a_kept_update_is_made_again),
        cmocka_unit_test(forward_and_read_see_the_same_weights),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(bad_keys_write_nothing),
    };

    return T_RUN(tests);
}
