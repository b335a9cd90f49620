/* SPDX-License-Identifier: MIT
 *
 * Shared by all tests. A test program exits with 0 if all tests passed, with 1 if one failed, and
 * with 77 if it could not run; it then prints the reason to standard output.
 */
#ifndef VB_TESTS_SUPPORT_TEST_H
#define VB_TESTS_SUPPORT_TEST_H

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

/* Tests with many cases of one kind run some of them: one of t_stride(). With the argument "all",
 * as in the nightly run, they run all. A sanitizer makes each case slow, and needs fewer of them.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define T_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define T_SANITIZED 1
#endif
#endif
#ifndef T_SANITIZED
#define T_SANITIZED 0
#endif

static inline unsigned t_stride(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        return 1;
    return T_SANITIZED ? 5 : 2;
}

/* Captures the standard error of the code under test in an anonymous file. */
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
    /* append, because several threads may write at the same time */
    assert_int_equal(fcntl(t->file, F_SETFL, O_APPEND), 0);
    assert_true(dup2(t->file, STDERR_FILENO) >= 0);
}

/* Restores standard error and copies the captured text. */
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

/* Runs all tests whose names match VB_TEST_ONLY, for example "gets_*", and do not match
 * VB_TEST_BUT. If VB_TEST_ONLY is not set, all names match. */
#define T_RUN(tests)                                                                               \
    (cmocka_set_test_filter(getenv("VB_TEST_ONLY")),                                               \
     cmocka_set_skip_filter(getenv("VB_TEST_BUT")),                                                \
     cmocka_run_group_tests((tests), NULL, NULL) == 0 ? 0 : 1)

#endif
