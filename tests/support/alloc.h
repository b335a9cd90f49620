/* SPDX-License-Identifier: MIT
 *
 * Counts allocations. The test program must be linked with --wrap=malloc and the like
 * (VB_TEST_COUNTS_ALLOCATIONS in tests/CMakeLists.txt) and must include this header in one file
 * only.
 */
#ifndef VB_TESTS_SUPPORT_ALLOC_H
#define VB_TESTS_SUPPORT_ALLOC_H

#include <stdatomic.h>
#include <stddef.h>

static _Atomic long t_allocations;

void *__real_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *ptr, size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *ptr, size_t len);

void *__wrap_malloc(size_t len)
{
    t_allocations++;
    return __real_malloc(len);
}

void *__wrap_calloc(size_t n, size_t len)
{
    t_allocations++;
    return __real_calloc(n, len);
}

void *__wrap_realloc(void *ptr, size_t len)
{
    t_allocations++;
    return __real_realloc(ptr, len);
}

#endif
