/* SPDX-License-Identifier: MIT
 *
 * Fuzzes TFRecord files. Random input never has correct checksums, so the fuzzer also tries the
 * input as an example in a file with correct checksums.
 *
 * Covers: data/example.c data/tfrecord.c
 */
#include "tests/fuzz/fuzz_data.h"

static uint32_t masked(const void *data, size_t len)
{
    uint32_t crc = vb_crc32c(0, data, len);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t len = size;
    uint8_t *file;
    uint32_t crc;

    fuzz_rows(vb_tfrecord_read, 0, data, size);
    file = malloc(size + 16);
    if (file == NULL)
        abort();
    memcpy(file, &len, 8);
    crc = masked(file, 8);
    memcpy(file + 8, &crc, 4);
    memcpy(file + 12, data, size);
    crc = masked(data, size);
    memcpy(file + 12 + size, &crc, 4);
    fuzz_rows(vb_tfrecord_read, size % 2 == 0 ? 0 : 100, file, size + 16);
    free(file);
    return 0;
}
