/* SPDX-License-Identifier: MIT
 *
 * The parts of the parameter server that need no ranks.
 *
 * Covers: engine/ps_compact.c engine/ps_stale.c
 */
#include "engine/ps_priv.h"
#include "tests/test.h"

static void shards_cover_everything_once(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 17, 1000, 7850};
    struct ps_layout lay;
    size_t s, at;
    int k, n;

    (void)state;
    for (s = 0; s < VB_COUNT(sizes); s++)
        for (n = 1; n <= 5; n++) {
            struct ps_job job = {.workers = 2, .servers = n, .n = sizes[s], .bound = -1};

            ps_layout_make(&job, false, &lay);
            for (at = 0, k = 0; k < n; k++) {
                assert_int_equal(lay.first[k], at);
                at += lay.n[k];
            }
            assert_int_equal(at, sizes[s]);
        }
}

static void indices_of_a_batch_are_compacted(void **state)
{
    uint32_t index[500], *keys;
    const uint32_t *places;
    struct ps_compact *c;
    size_t i, n, round;

    (void)state;
    assert_int_equal(ps_compact_create(33762578, 500, &c), VB_OK);
    for (round = 0; round < 20; round++) {
        for (i = 0; i < 500; i++)
            index[i] = (uint32_t)(vb_random(round, i) % (round % 2 == 0 ? 100 : 33762578));
        ps_compact_make(c, index, round * 25, &keys, &n, &places);
        assert_true(n <= round * 25 && (n > 0) == (round > 0));
        for (i = 1; i < n; i++)
            assert_true(keys[i - 1] < keys[i]);
        for (i = 0; i < round * 25; i++)
            assert_true(places[i] < n && keys[places[i]] == index[i]);
    }
    ps_compact_destroy(c);
}

static void staleness_is_counted(void **state)
{
    struct vb_stale stale = {0};
    uint64_t by;

    (void)state;
    for (by = 0; by < 9; by++)
        ps_stale_add(&stale, by);
    ps_stale_add(&stale, UINT64_C(1) << 40);
    assert_int_equal(stale.n, 10);
    assert_int_equal(stale.max, UINT64_C(1) << 40);
    assert_int_equal(stale.sum, 36 + (UINT64_C(1) << 40));
    assert_int_equal(stale.bucket[0], 1);
    assert_int_equal(stale.bucket[1], 1);
    assert_int_equal(stale.bucket[2], 2);
    assert_int_equal(stale.bucket[3], 4);
    assert_int_equal(stale.bucket[4], 1);
    assert_int_equal(stale.bucket[VB_STALE_BUCKETS - 1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_cover_everything_once),
        cmocka_unit_test(indices_of_a_batch_are_compacted),
        cmocka_unit_test(staleness_is_counted),
    };

    return T_RUN(tests);
}
