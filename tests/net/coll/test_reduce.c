/* SPDX-License-Identifier: MIT
 *
 * Tests the sums at every instruction level that this CPU has. The bits must equal the bits of
 * plain loops.
 *
 * Covers: net/coll/reduce_level.c
 */
#include "net/coll/coll_priv.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>

#define N 700 /* more elements than the prefetch distance */
#define LARGE 40000
#define SOURCES 6

static const struct vb_reduce_level *const levels[] = {
    &vb_reduce_level,
#if defined(__x86_64__)
    &vb_reduce_level_v3,
    &vb_reduce_level_v4,
#endif
};

static const size_t sizes[] = {0, 1, 3, 4, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 200, 529, N};

static float data[SOURCES][N], got[SOURCES][N];
static uint16_t narrow[N];

/* Fills the vectors with numbers of very different size, so that another order of addition gives
 * other bits. */
static void draw(void)
{
    uint32_t seed = 3;
    int s, i;

    for (s = 0; s < SOURCES; s++)
        for (i = 0; i < N; i++)
            data[s][i] =
                ldexpf((float)t_random(&seed) / (1 << 23) - 1, (int)(t_random(&seed) % 40) - 20);
}

static float wanted(int n_s, size_t i, float scale)
{
    float sum = data[0][i];
    int s;

    for (s = 1; s < n_s; s++)
        sum += data[s][i];
    return scale != 1 ? sum * scale : sum;
}

/* Sums the first n_s sources. Writes the sum to the first source or, with `all`, to all sources. */
static void sum(const struct vb_reduce_level *level, int n_s, size_t n, float scale, bool all)
{
    struct finish finish = {.scale = scale};
    struct source s[SOURCES];
    float *also[SOURCES];
    int k;

    memcpy(got, data, sizeof(got));
    for (k = 0; k < n_s; k++) {
        s[k] = (struct source){.ptr = got[k], .type = SOURCE_F32};
        also[k] = got[k];
    }
    level->sum(got[0], also + 1, all ? n_s - 1 : 0, s, n_s, n, &finish);
}

static void check(int n_s, size_t n, float scale, bool all)
{
    int k, places = all ? n_s : 1;
    size_t i;

    for (k = 0; k < SOURCES; k++) {
        for (i = 0; i < N; i++) {
            float want = k < places && i < n ? wanted(n_s, i, scale) : data[k][i];

            assert_memory_equal(&got[k][i], &want, sizeof(want));
        }
    }
}

static void sums_have_the_same_bits(void **state)
{
    int level, n_s, way;
    size_t i;

    (void)state;
    draw();
    for (level = 0; level <= (int)vb_cpu_level(); level++)
        for (n_s = 1; n_s <= SOURCES; n_s++)
            for (i = 0; i < VB_COUNT(sizes); i++)
                for (way = 0; way < 4; way++) {
                    sum(levels[level], n_s, sizes[i], way % 2 != 0 ? 1.f / 3 : 1, way / 2 != 0);
                    check(n_s, sizes[i], way % 2 != 0 ? 1.f / 3 : 1, way / 2 != 0);
                }
}

/* From a certain size on, the sum of two vectors is computed at several places in turn. The test
 * uses sizes around this size, and checks that nothing is written after the end of a vector. */
static void large_sums_have_the_same_bits(void **state)
{
    static const size_t large[] = {16383, 16511, 16512, 16513, 32895, 32896, LARGE - 1, LARGE};
    static float a[LARGE], b[LARGE], want[2][LARGE], have[2][LARGE];
    const struct source s[] = {{have[0], SOURCE_F32}, {have[1], SOURCE_F32}};
    const struct finish finish = {.scale = 1.f / 3};
    float *also[] = {have[1]};
    uint32_t seed = 5;
    size_t i, k;
    int level;

    (void)state;
    for (i = 0; i < LARGE; i++) {
        a[i] = (float)t_random(&seed) / 3;
        b[i] = (float)t_random(&seed) / 7;
    }
    for (k = 0; k < VB_COUNT(large); k++) {
        for (i = 0; i < LARGE; i++) {
            want[0][i] = i < large[k] ? (a[i] + b[i]) * finish.scale : a[i];
            want[1][i] = i < large[k] ? want[0][i] : b[i];
        }
        for (level = 0; level <= (int)vb_cpu_level(); level++) {
            memcpy(have[0], a, sizeof(a));
            memcpy(have[1], b, sizeof(b));
            levels[level]->sum(have[0], also, 1, s, 2, large[k], &finish);
            assert_memory_equal(have, want, sizeof(want));
        }
    }
}

/* Every level must round to the nearest value, ties to even, as the baseline does. Converting
 * back must give exactly the rounded values. */
static void bfloat16_has_the_same_bits(void **state)
{
    static uint16_t base[N];
    static float wide[N];
    int level, i;

    (void)state;
    draw();
    data[0][1] = NAN;
    data[0][2] = -INFINITY;
    vb_reduce_level.narrow(base, data[0], N);
    for (level = 0; level <= (int)vb_cpu_level(); level++) {
        levels[level]->narrow(narrow, data[0], N);
        assert_memory_equal(narrow, base, sizeof(base));
        levels[level]->widen(wide, narrow, N);
        for (i = 0; i < N; i++) {
            uint32_t want = (uint32_t)base[i] << 16;

            assert_memory_equal(&wide[i], &want, sizeof(want));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_same_bits),
        cmocka_unit_test(large_sums_have_the_same_bits),
        cmocka_unit_test(bfloat16_has_the_same_bits),
    };

    return T_RUN(tests);
}
