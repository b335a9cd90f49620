/* SPDX-License-Identifier: MIT
 *
 * Fuzzes libsvm text, plain or compressed.
 *
 * Covers: data/libsvm.c
 */
#include "tests/fuzz/fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rows(vb_libsvm_read, size % 3 == 0 ? 1000 : 0, data, size);
    return 0;
}
