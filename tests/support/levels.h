/* SPDX-License-Identifier: MIT
 *
 * Runs the same tests at every instruction level that this CPU has.
 *
 * Covers: base/cpu.c kernels/layer/levels.c kernels/own/own_table.c
 */
#ifndef VB_TESTS_SUPPORT_LEVELS_H
#define VB_TESTS_SUPPORT_LEVELS_H

#include "kernels/layer/level.h"
#include "tests/support/test.h"

#define T_RUN_LEVELS(tests) t_run_levels((tests), sizeof(tests) / sizeof((tests)[0]))

static inline int t_run_levels(const struct CMUnitTest *tests, size_t n)
{
    const char *names[3];
    int levels = vb_k_level_names(names), i, failed = 0;

    cmocka_set_test_filter(getenv("VB_TEST_ONLY"));
    cmocka_set_skip_filter(getenv("VB_TEST_BUT"));
    for (i = 0; i < levels; i++) {
        printf("level %s:\n", names[i]);
        fflush(stdout);
        if (!vb_k_level_set(names[i]))
            return 1;
        failed |= _cmocka_run_group_tests(names[i], tests, n, NULL, NULL);
    }
    return failed != 0;
}

#endif
