/* SPDX-License-Identifier: MIT
 *
 * Covers: base/trace.c
 */
#include "base/trace.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/support/alloc.h"
#include "tests/support/test.h"

#define ROOM 64

static void nothing_without_a_trace(void **state)
{
    (void)state;
    assert_int_equal(vb_trace_begin(), 0);
    assert_int_equal(vb_trace_begin_part(), 0);
    assert_int_equal(vb_trace_end(0, VB_OP_UPDATE, 1), 0);
    vb_trace_moment(VB_OP_NOTE, 1, 2);
    vb_trace_beside(VB_OP_AGREE, 1, 2, 3);
    vb_trace_past(VB_OP_WAIT, 5, 1, 0);
    assert_null(vb_trace_current());
}

static size_t events_of(struct vb_trace *t, int thread, const struct vb_trace_event **events_p)
{
    size_t n;

    *events_p = vb_trace_peek(t, thread, &n);
    return n;
}

static void counts_and_events(void **state)
{
    const struct vb_trace_event *e;
    struct vb_trace *t;
    uint64_t begin;

    (void)state;
    assert_int_equal(vb_trace_create(ROOM, &t), VB_OK);
    vb_trace_attach(t, "main");
    assert_ptr_equal(vb_trace_current(), t);
    vb_trace_end(vb_trace_begin(), VB_OP_UPDATE, 8); /* counting has not begun */
    assert_int_equal(vb_trace_sum(t, VB_OP_UPDATE).calls, 0);
    vb_trace_count(t);
    begin = vb_trace_begin();
    assert_true(begin > 0);
    assert_int_equal(vb_trace_begin_part(), 0); /* events are off */
    assert_true(vb_trace_end(begin, VB_OP_UPDATE, 8) >= begin);
    assert_int_equal(vb_trace_sum(t, VB_OP_UPDATE).calls, 1);
    assert_int_equal(vb_trace_sum(t, VB_OP_UPDATE).bytes, 8);
    assert_int_equal(events_of(t, 0, &e), 0);

    vb_trace_set(t, true);
    vb_trace_pause(true);
    vb_trace_end_with(vb_trace_begin_part(), VB_OP_PUT, 100, 3, 77, VB_TRACE_FROM);
    vb_trace_moment(VB_OP_NOTE, 2, 78);
    assert_int_equal(vb_trace_sum(t, VB_OP_PUT).calls, 0); /* paused */
    vb_trace_pause(false);
    vb_trace_past(VB_OP_WAIT, 1000, 1, 79);
    assert_int_equal(events_of(t, 0, &e), 3);
    assert_int_equal(e[0].op, VB_OP_PUT);
    assert_int_equal(e[0].bytes, 100);
    assert_int_equal(e[0].peer, 3);
    assert_int_equal(e[0].key, 77);
    assert_int_equal(e[0].kind, VB_TRACE_FROM);
    assert_int_equal(e[1].kind, VB_TRACE_INSTANT);
    assert_int_equal(e[1].ns, 0);
    assert_true(e[2].ns >= 1000);
    assert_true(vb_trace_sum(t, VB_OP_WAIT).ns >= 1000);
    vb_trace_take(t, 0, 3);
    assert_int_equal(events_of(t, 0, &e), 0);
    vb_trace_beside(VB_OP_AGREE, begin, begin + 5000, 2); /* ended before */
    assert_int_equal(events_of(t, 0, &e), 1);
    assert_int_equal(e[0].op, VB_OP_AGREE);
    assert_int_equal(e[0].begin_ns, begin);
    assert_int_equal(e[0].ns, 5000);
    assert_int_equal(e[0].peer, 2);
    assert_int_equal(e[0].kind, VB_TRACE_LANE);
    assert_int_equal(vb_trace_sum(t, VB_OP_AGREE).ns, 5000);
    vb_trace_take(t, 0, 1);
    vb_trace_stop(t);
    vb_trace_end(vb_trace_begin(), VB_OP_UPDATE, 8);
    assert_int_equal(vb_trace_sum(t, VB_OP_UPDATE).calls, 1);
    vb_trace_detach();
    vb_trace_destroy(t);
}

/* A full ring loses events and counts them; what it keeps is intact, also where it wraps. */
static void full_ring(void **state)
{
    const struct vb_trace_event *e;
    struct vb_trace *t;
    uint64_t next = 0;
    size_t i, k, n;

    (void)state;
    assert_int_equal(vb_trace_create(ROOM, &t), VB_OK);
    vb_trace_attach(t, "main");
    vb_trace_set(t, true);
    for (i = 0; i < 40; i++)
        vb_trace_end(vb_trace_begin(), VB_OP_PUT, i);
    e = vb_trace_peek(t, 0, &n);
    assert_int_equal(n, 40);
    vb_trace_take(t, 0, 40);
    for (i = 0; i < ROOM + 5; i++)
        vb_trace_end(vb_trace_begin(), VB_OP_PUT, i);
    assert_int_equal(vb_trace_lost(t), 5);
    while ((e = vb_trace_peek(t, 0, &n)) != NULL) {
        for (k = 0; k < n; k++)
            assert_int_equal(e[k].bytes, next++);
        vb_trace_take(t, 0, n);
    }
    assert_int_equal(next, ROOM);
    vb_trace_detach();
    vb_trace_destroy(t);
}

static void operations(void **state)
{
    struct vb_trace_op op = {.layer = "conv1", .pass = "forward", .op = "conv (own)"};
    struct vb_trace *t;
    int first, i;

    (void)state;
    assert_int_equal(vb_trace_op(NULL, &op), VB_OP_ALL);
    assert_int_equal(vb_trace_create(0, &t), VB_OK);
    first = vb_trace_op(t, &op);
    assert_int_equal(first, VB_OPS_FIXED);
    assert_int_equal(vb_trace_op(t, &op), first);
    snprintf(op.pass, sizeof(op.pass), "backward");
    assert_int_equal(vb_trace_op(t, &op), first + 1);
    vb_trace_describe(t, VB_OP_UPDATE, 1, 3);
    assert_true(vb_trace_op_at(t, VB_OP_UPDATE)->moved == 3);
    for (i = 0; i < 2 * VB_TRACE_OPS; i++) {
        snprintf(op.layer, sizeof(op.layer), "l%d", i);
        assert_in_range(vb_trace_op(t, &op), 0, VB_TRACE_OPS - 1);
    }
    assert_int_equal(vb_trace_n_ops(t), VB_TRACE_OPS);
    for (i = 0; i < VB_OPS_FIXED; i++)
        assert_true(vb_trace_op_at(t, i)->op[0] != '\0');
    vb_trace_destroy(t);
}

#define EVENTS 200000

static void *measure(void *arg)
{
    uint64_t i;

    vb_trace_attach(arg, "worker");
    for (i = 0; i < EVENTS; i++)
        vb_trace_end(vb_trace_begin(), VB_OP_LOAD, i);
    vb_trace_detach();
    return NULL;
}

/* Two threads measure while a third takes: each event arrives once and in order, or is counted. */
static void threads(void **state)
{
    uint64_t taken = 0, last[VB_TRACE_THREADS] = {0};
    const struct vb_trace_event *e;
    pthread_t thread[2];
    struct vb_trace *t;
    int i, round;
    size_t n, k;

    (void)state;
    assert_int_equal(vb_trace_create(1024, &t), VB_OK);
    vb_trace_set(t, true);
    vb_trace_count(t);
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, measure, t), 0);
    for (round = 0; round < 2; round++) {
        while (vb_trace_sum(t, VB_OP_LOAD).calls < 2 * EVENTS || round == 1) {
            for (i = 0; i < vb_trace_n_threads(t); i++)
                while ((e = vb_trace_peek(t, i, &n)) != NULL) {
                    for (k = 0; k < n; k++) {
                        assert_true(e[k].bytes == 0 || e[k].bytes > last[i]);
                        last[i] = e[k].bytes;
                    }
                    taken += n;
                    vb_trace_take(t, i, n);
                }
            if (round == 1)
                break;
        }
        for (i = 0; i < 2 && round == 0; i++)
            pthread_join(thread[i], NULL);
    }
    assert_int_equal(taken + vb_trace_lost(t), 2 * EVENTS);
    vb_trace_destroy(t);
}

/* A later thread continues the part of an earlier one of the same name. */
static void many_threads(void **state)
{
    struct vb_trace *t;
    char name[16];
    int i;

    (void)state;
    assert_int_equal(vb_trace_create(0, &t), VB_OK);
    for (i = 0; i < 3 * VB_TRACE_THREADS; i++) {
        vb_trace_attach(t, "loader");
        vb_trace_detach();
    }
    assert_int_equal(vb_trace_n_threads(t), 1);
    for (i = 0; i < VB_TRACE_THREADS + 2; i++) { /* the last ones find no room */
        snprintf(name, sizeof(name), "t%d", i);
        vb_trace_attach(t, name);
        assert_int_equal(vb_trace_current() != NULL, i < VB_TRACE_THREADS - 1);
        vb_trace_detach();
    }
    assert_string_equal(vb_trace_thread_name(t, 0), "loader");
    vb_trace_destroy(t);
}

static void keys(void **state)
{
    (void)state;
    assert_true(vb_trace_message(1, 2, 3) != vb_trace_message(2, 1, 3));
    assert_true(vb_trace_message(1, 2, 3) != vb_trace_message(1, 2, 4));
    assert_true(vb_trace_message(0, 0, 0) != vb_trace_request(0, 0, 0));
    assert_true(vb_trace_message(1023, 1023, UINT32_MAX) < UINT64_C(1) << 53);
    assert_true(vb_trace_request(255, 1023, UINT32_MAX) < UINT64_C(1) << 52);
}

static void allocates_nothing(void **state)
{
    struct vb_trace *t;
    long before;
    int i;

    (void)state;
    assert_int_equal(vb_trace_create(ROOM, &t), VB_OK);
    vb_trace_attach(t, "main");
    vb_trace_set(t, true);
    vb_trace_count(t);
    before = t_allocations;
    for (i = 0; i < 1000; i++)
        vb_trace_end(vb_trace_begin(), VB_OP_PUT, 1);
    assert_int_equal(t_allocations, before);
    vb_trace_detach();
    vb_trace_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_a_trace),
        cmocka_unit_test(counts_and_events),
        cmocka_unit_test(full_ring),
        cmocka_unit_test(operations),
        cmocka_unit_test(threads),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(keys),
        cmocka_unit_test(allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
