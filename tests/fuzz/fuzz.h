/* SPDX-License-Identifier: MIT
 *
 * What the fuzzers share.
 */
#ifndef VB_FUZZ_H
#define VB_FUZZ_H

#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* A copy that ends with zero, on the heap, where overruns are seen. */
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
