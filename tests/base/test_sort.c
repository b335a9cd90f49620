/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#define MAX_WORDS 5000

enum keys { ANY, EQUAL, ASCENDING, DESCENDING, FEW, LARGEST, KINDS };

static uint64_t limit_of(int bits)
{
    return (uint64_t)1 << bits;
}

static uint32_t key_of(enum keys kind, size_t i, size_t n, int bits)
{
    uint64_t below = limit_of(bits), any = vb_random(7, i);

    switch (kind) {
    case EQUAL:
        return (uint32_t)(below - 1);
    case ASCENDING:
        return (uint32_t)(i * below / n);
    case DESCENDING:
        return (uint32_t)((n - 1 - i) * below / n);
    case FEW: /* three different keys, with and without the highest bit */
        return (uint32_t)((any % 3 == 0 ? below / 2 : any % 3) % below);
    case LARGEST:
        return (uint32_t)(below - 1 - any % (below < 4 ? below : 4));
    default:
        return (uint32_t)(any % below);
    }
}

/* Checks that the words are sorted. The lower half of each word is its index before sorting. */
static void check_sorted(const uint64_t *sorted, const uint64_t *before, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        assert_true((uint32_t)sorted[i] < n);
        assert_true(sorted[i] == before[(uint32_t)sorted[i]]);
        /* also proves that equal keys have kept their order */
        assert_true(i == 0 || sorted[i - 1] < sorted[i]);
    }
}

static void check_words(enum keys kind, size_t n, int bits)
{
    static uint64_t words[MAX_WORDS + 1], spare[MAX_WORDS + 1], before[MAX_WORDS];
    uint64_t *sorted;
    size_t i;

    for (i = 0; i < n; i++)
        before[i] = words[i] = (uint64_t)key_of(kind, i, n, bits) << 32 | i;
    words[n] = spare[n] = 77;
    sorted = vb_sort_words(words, spare, n, bits);
    assert_true(sorted == words || sorted == spare);
    check_sorted(sorted, before, n);
    assert_true(words[n] == 77 && spare[n] == 77);
}

static void words_are_sorted_and_equal_ones_keep_their_order(void **state)
{
    static const size_t ns[] = {0, 1, 2, 3, 17, 64, 65, 2047, 2048, 2049, MAX_WORDS};
    int kind, bits;
    size_t k;

    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (bits = 0; bits <= 32; bits++)
            for (k = 0; k < VB_COUNT(ns); k++)
                check_words((enum keys)kind, ns[k], bits);
}

static void the_largest_index_is_sorted(void **state)
{
    uint64_t largest = UINT32_MAX;
    uint64_t a[] = {largest << 32 | 1, 2, largest << 32 | 3, (largest - 1) << 32 | 4};
    uint64_t want[] = {a[1], a[3], a[0], a[2]}, b[4];

    (void)state;
    assert_memory_equal(vb_sort_words(a, b, 4, 32), want, sizeof(want));
}

static void bits_below_a_limit_are_counted(void **state)
{
    int bits;

    (void)state;
    assert_int_equal(vb_bits_below(0), 0);
    assert_int_equal(vb_bits_below(1), 0);
    for (bits = 1; bits < 64; bits++) {
        assert_int_equal(vb_bits_below(limit_of(bits)), bits);
        assert_int_equal(vb_bits_below(limit_of(bits) + 1), bits + 1);
        assert_int_equal(vb_bits_below(limit_of(bits - 1) + 1), bits);
    }
}

static void numbers_are_sorted(void **state)
{
    double values[] = {3.5, -1, 0, 3.5, 1e300, -1e300, 2};
    static const double want[] = {-1e300, -1, 0, 2, 3.5, 3.5, 1e300};

    (void)state;
    vb_sort(values, 0);
    assert_true(values[0] == 3.5);
    vb_sort(values, VB_COUNT(values));
    assert_memory_equal(values, want, sizeof(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_sorted_and_equal_ones_keep_their_order),
        cmocka_unit_test(the_largest_index_is_sorted),
        cmocka_unit_test(bits_below_a_limit_are_counted),
        cmocka_unit_test(numbers_are_sorted),
    };

    return T_RUN(tests);
}
