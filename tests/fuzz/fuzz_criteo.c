/* SPDX-License-Identifier: MIT
 *
 * Fuzzes lines of Criteo's click logs.
 *
 * Covers: data/criteo.c
 */
#include "tests/fuzz/fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rows(vb_criteo_read, size % 2 == 0 ? 1000 : 14, data, size);
    return 0;
}
