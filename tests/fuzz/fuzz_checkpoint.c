/* SPDX-License-Identifier: MIT
 *
 * Fuzzes checkpoints. Random input never has a correct checksum, so the fuzzer tries the input as
 * it is, and then again with corrected checksums, where the input is long enough to contain them.
 * There is only one way to write a checkpoint, so a file that was read and written again must have
 * the same bytes.
 *
 * Covers: engine/checkpoint/checkpoint_read.c
 */
#include "engine/checkpoint/checkpoint_priv.h"
#include "tests/fuzz/fuzz_file.h"

static char dir[64];

static void remove_dir(void)
{
    rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    snprintf(dir, sizeof(dir), "%s/verbena-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(dir) == NULL)
        abort();
    atexit(remove_dir);
    return 0;
}

static void write_again(const struct vb_checkpoint *cp, const uint8_t *data, size_t size)
{
    struct vb_checkpoint *again;
    char path[PATH_MAX];

    if (vb_checkpoint_write(dir, cp, 0, NULL) != VB_OK ||
        vb_checkpoint_latest(dir, path, sizeof(path)) != VB_OK ||
        vb_checkpoint_read(path, &again) != VB_OK)
        abort();
    if (again->map_bytes != size || memcmp(again->map, data, size) != 0)
        abort();
    vb_checkpoint_free(again);
    unlink(path);
}

static void try(const uint8_t *data, size_t size)
{
    struct vb_checkpoint *cp;

    if (vb_checkpoint_read(fuzz_file(data, size), &cp) != VB_OK)
        return;
    write_again(cp, data, size);
    vb_checkpoint_free(cp);
}

static void mend_chunks(uint8_t *array, uint64_t bytes)
{
    uint64_t at, n;
    uint32_t crc;

    for (at = 0; at < bytes; at += n) {
        n = bytes - at < CP_CHUNK ? bytes - at : CP_CHUNK;
        crc = vb_crc32c(0, array + at, n);
        memcpy(array + bytes + at / CP_CHUNK * sizeof(crc), &crc, sizeof(crc));
    }
}

/* Corrects the checksums of the arrays that lie within the file. For half of the inputs it also
 * corrects the offsets of the arrays. */
static void mend_arrays(uint8_t *file, size_t size, const struct cp_head *head)
{
    uint64_t bytes, place = cp_front_bytes(head);
    struct cp_entry e;
    uint8_t *entry;
    uint32_t i;

    for (i = 0; i < head->n_arrays && sizeof(*head) + (i + 1) * sizeof(e) <= size; i++) {
        entry = file + sizeof(*head) + i * sizeof(e);
        memcpy(&e, entry, sizeof(e));
        if ((head->crc & 1) != 0)
            e.offset = place;
        if (e.offset < cp_front_bytes(head) || e.offset > size ||
            !vb_cp_data_bytes(e.rows, e.cols, size - e.offset, &bytes) ||
            cp_array_bytes(bytes) > size - e.offset)
            return;
        memcpy(entry, &e, sizeof(e));
        mend_chunks(file + e.offset, bytes);
        place = e.offset + cp_array_bytes(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cp_head head;
    uint8_t *file;

    try(data, size);
    if (size < sizeof(head))
        return 0;
    file = (uint8_t *)fuzz_text(data, size);
    memcpy(&head, file, sizeof(head));
    head.file_bytes = size;
    mend_arrays(file, size, &head);
    if (cp_front_bytes(&head) <= size)
        head.rest_crc = vb_crc32c(0, file + sizeof(head), cp_front_bytes(&head) - sizeof(head));
    head.crc = cp_head_crc(head);
    memcpy(file, &head, sizeof(head));
    if (size >= sizeof(head) + 8)
        memcpy(file + size - 8, &head.file_bytes, 8); /* the file ends with its length */
    try(file, size);
    free(file);
    return 0;
}
