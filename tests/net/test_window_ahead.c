/* SPDX-License-Identifier: MIT
 *
 * Tests memory that is allocated before the windows that take it.
 *
 * Covers: net/group/window_ahead.c
 */
#include "tests/support/ranks.h"

#include <string.h>

#define UNIT ((size_t)2 << 20) /* of the largest pages that windows have */

/* Creates a window, lets the other rank write to it, and returns the length of this rank's part. */
static size_t length_of(struct vb_group *g, size_t len, int *wrong)
{
    int rank = vb_group_rank(g), r;
    struct vb_window *win = NULL;
    struct vb_op op;
    size_t got;
    char *own;

    *wrong += T_WRONG(vb_window_create(g, len, &win) == VB_OK);
    if (win == NULL)
        return 0;
    own = vb_window_ptr(win);
    got = vb_window_len(win, rank);
    for (r = 0; r < 2; r++) { /* all pages are there, and zero */
        *wrong += T_WRONG(own[0] == 0 && own[len - 1] == 0);
        own[len / 2] = (char)(rank + 1);
        *wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        *wrong += T_WRONG(
            vb_put_wait(win, 1 - rank, NULL, len / 2, len / 4, 1, VB_NOTE(9, 0), &op, 0) == VB_OK);
        *wrong += T_WRONG(vb_op_wait(g, &op, "a test", 1 - rank) == VB_OK);
        *wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    }
    *wrong += T_WRONG(own[len / 4] == (char)(2 - rank));
    vb_window_destroy(win);
    return got;
}

static void note_came(void *arg, int rank, uint32_t value)
{
    (void)arg;
    (void)rank;
    (void)value;
}

static int windows(struct vb_group *g, void *arg)
{
    size_t lens[VB_WINDOWS_AHEAD] = {2 * UNIT, 10 * UNIT}, want = 8 * UNIT + UNIT / 2;
    struct vb_window_ahead *ahead = NULL;
    int wrong = 0;

    (void)arg;
    wrong += T_WRONG(vb_channel_open(g, 9, note_came, NULL) == VB_OK);
    wrong += T_WRONG(vb_window_ahead_begin(g, lens, 2, &ahead) == VB_OK);
    wrong += T_WRONG(length_of(g, want, &wrong) < 10 * UNIT); /* not told to take it */
    vb_group_take_ahead(g, ahead);
    wrong += T_WRONG(length_of(g, want, &wrong) == 10 * UNIT);
    wrong += T_WRONG(length_of(g, want, &wrong) < 10 * UNIT);               /* it is taken */
    wrong += T_WRONG(length_of(g, UNIT / 2, &wrong) < 2 * UNIT);            /* far too long */
    wrong += T_WRONG(length_of(g, 2 * UNIT + UNIT / 2, &wrong) > 2 * UNIT); /* too short */
    vb_group_take_ahead(g, NULL);
    vb_window_ahead_end(ahead); /* with memory that nobody has taken */
    return wrong;
}

static void windows_take_what_fits(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 2, .fn = windows};

    (void)state;
    t_as_threads(&job);
    job.transport = VB_TRANSPORT_SHM;
    t_as_processes(&job);
}

static void what_is_not_waited_for_is_freed(void **state)
{
    size_t len = 32 * UNIT;
    struct vb_window_ahead *ahead;
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        assert_int_equal(vb_window_ahead_begin(NULL, &len, 1, &ahead), VB_OK);
        if (i == 1)
            vb_window_ahead_wait(ahead);
        vb_window_ahead_end(ahead);
    }
    vb_window_ahead_end(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_take_what_fits),
        cmocka_unit_test(what_is_not_waited_for_is_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
