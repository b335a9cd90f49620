/* SPDX-License-Identifier: MIT
 *
 * Fuzzes .csr files. Random input never has a correct checksum, so the fuzzer tries the input as it
 * is, and then again with corrected checksums, where the input is long enough to contain them.
 *
 * Covers: data/csr.c
 */
#include "data/csr_priv.h"
#include "tests/fuzz/fuzz_data.h"

static void try(const uint8_t *data, size_t size)
{
    struct vb_dataset set;

    if (vb_csr_open(fuzz_file(data, size), &set) != VB_OK)
        return;
    fuzz_check_rows(&set);
    vb_dataset_destroy(&set);
}

static void mend_blocks(uint8_t *file, const struct csr_head *head, size_t size)
{
    struct csr_block b;
    uint64_t at;

    for (at = head->table; at + sizeof(b) <= size; at += sizeof(b)) {
        memcpy(&b, file + at, sizeof(b));
        if (b.offset > size || csr_block_bytes(&b) > size - b.offset)
            continue;
        b.crc = vb_crc32c(0, file + b.offset, csr_block_bytes(&b));
        memcpy(file + at, &b, sizeof(b));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct csr_head head;
    uint8_t *file;

    try(data, size);
    if (size < sizeof(head))
        return 0;
    file = malloc(size);
    if (file == NULL)
        abort();
    memcpy(file, data, size);
    memcpy(&head, file, sizeof(head));
    if (head.table <= size) {
        mend_blocks(file, &head, size);
        head.table_crc = vb_crc32c(0, file + head.table, size - head.table);
    }
    head.crc = csr_head_crc(head);
    memcpy(file, &head, sizeof(head));
    try(file, size);
    free(file);
    return 0;
}
