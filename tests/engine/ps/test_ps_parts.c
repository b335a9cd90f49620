/* SPDX-License-Identifier: MIT
 *
 * Tests the parts of the parameter server that need no ranks.
 *
 * Covers: engine/ps/ps_compact.c engine/ps/ps_push.c
 */
#include "engine/ps/ps.h"
#include "tests/support/test.h"

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

            vb_ps_layout_make(&job, false, &lay);
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
    assert_int_equal(vb_ps_compact_create(33762578, 500, &c), VB_OK);
    for (round = 0; round < 20; round++) {
        for (i = 0; i < 500; i++)
            index[i] = (uint32_t)(vb_random(round, i) % (round % 2 == 0 ? 100 : 33762578));
        vb_ps_compact_make(c, index, round * 25, &keys, &n, &places);
        assert_true(n <= round * 25 && (n > 0) == (round > 0));
        for (i = 1; i < n; i++)
            assert_true(keys[i - 1] < keys[i]);
        for (i = 0; i < round * 25; i++)
            assert_true(places[i] < n && keys[places[i]] == index[i]);
    }
    vb_ps_compact_destroy(c);
}

/* Packs a note as vb_ps_send_note() does, and unpacks it as the peer that receives it does. */
static void check_note(enum ps_kind kind, uint32_t arg)
{
    uint32_t note = PS_NOTE(kind, arg), value = VB_NOTE_VALUE(note);

    assert_int_equal(VB_NOTE_CHANNEL(note), PS_CHANNEL);
    assert_int_equal(PS_KIND(value), kind);
    assert_int_equal(PS_ARG(value), arg);
}

static void notes_keep_kind_and_argument(void **state)
{
    uint32_t args[] = {0,
                       1,
                       PS_SLOTS_MAX - 1,
                       PS_SLOTS_MAX * PS_TICKETS | (PS_TICKETS - 1),
                       VB_WORLD_MAX - 1,
                       VB_WORLD_MAX,
                       (1u << PS_ARG_BITS) - 1};
    int kind;
    size_t i;

    (void)state;
    for (kind = 0; kind < 1 << PS_KIND_BITS; kind++)
        for (i = 0; i < VB_COUNT(args); i++)
            check_note((enum ps_kind)kind, args[i]);
}

/* Packs and unpacks notes that a server forwards to its standby: every kind of note that a worker
 * sends, every argument, and small and large worker numbers. */
static void forwarded_notes_keep_everything(void **state)
{
    static const int workers[] = {0, 1, 511, VB_WORLD_MAX - 1};
    uint32_t arg, note;
    int kind;
    size_t w;

    (void)state;
    for (kind = 0; kind < PS_WORKER_KINDS; kind++)
        for (w = 0; w < VB_COUNT(workers); w++)
            for (arg = 0; arg < 1u << PS_WORKER_ARG_BITS; arg++) {
                struct ps_arrival from = {workers[w], PS_VALUE(kind, arg)}, to;

                note = VB_NOTE_VALUE(PS_NOTE(PS_FORWARD, ps_forward_pack(from)));
                assert_int_equal(PS_KIND(note), PS_FORWARD);
                to = ps_forward_unpack(PS_ARG(note));
                assert_int_equal(to.worker, from.worker);
                assert_int_equal(to.value, from.value);
            }
}

static void shares_fit_into_a_word(void **state)
{
    static const int shares[] = {1, 2, 1023, VB_WORLD_MAX};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shares); i++) {
        uint32_t packed = PS_SHARE_PACK(shares[i] - 1, shares[i]);

        assert_true(packed != 0); /* 0 would mean the share at the start */
        assert_int_equal(PS_SHARE_OF(packed), shares[i] - 1);
        assert_int_equal(PS_SHARES_OF(packed), shares[i]);
    }
}

static void staleness_is_counted(void **state)
{
    struct vb_stale stale = {0};
    uint64_t by;

    (void)state;
    for (by = 0; by < 9; by++)
        vb_ps_stale_add(&stale, by);
    vb_ps_stale_add(&stale, UINT64_C(1) << 40);
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
        cmocka_unit_test(notes_keep_kind_and_argument),
        cmocka_unit_test(forwarded_notes_keep_everything),
        cmocka_unit_test(shares_fit_into_a_word),
    };

    return T_RUN(tests);
}
