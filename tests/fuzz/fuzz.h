/* SPDX-License-Identifier: MIT
 *
 * Shared by all fuzzers.
 */
#ifndef VB_TESTS_FUZZ_FUZZ_H
#define VB_TESTS_FUZZ_FUZZ_H

#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Returns a copy of the data, terminated by a zero. The copy is on the heap, so that sanitizers
 * detect accesses beyond its end. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
