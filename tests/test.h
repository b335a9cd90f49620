/* SPDX-License-Identifier: MIT
 *
 * What the tests share. A test program exits 0 when all passed, 1 when one failed and 77 when it
 * could not run, with the reason on standard output.
 */
#ifndef VB_TEST_H
#define VB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define T_SKIPPED 77

/* Catches what the code under test writes to standard error, in a file that nobody else sees. */
struct t_stderr {
    int saved;
    int file;
};

static inline void t_stderr_catch(struct t_stderr *t)
{
    fflush(stderr);
    t->saved = dup(STDERR_FILENO);
    t->file = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(t->saved >= 0 && t->file >= 0);
    assert_int_equal(fcntl(t->file, F_SETFL, O_APPEND), 0); /* threads may write at once */
    assert_true(dup2(t->file, STDERR_FILENO) >= 0);
}

/* Puts standard error back and copies what was written to it. */
static inline void t_stderr_release(struct t_stderr *t, char *text, size_t size)
{
    ssize_t n;

    fflush(stderr);
    assert_true(dup2(t->saved, STDERR_FILENO) >= 0);
    n = pread(t->file, text, size - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    close(t->saved);
    close(t->file);
}

/* All of them, or those whose names match VB_TEST_ONLY: "gets_*"; but not those that match
 * VB_TEST_BUT. */
#define T_RUN(tests)                                                                               \
    (cmocka_set_test_filter(getenv("VB_TEST_ONLY")),                                               \
     cmocka_set_skip_filter(getenv("VB_TEST_BUT")),                                                \
     cmocka_run_group_tests((tests), NULL, NULL) == 0 ? 0 : 1)

#endif
