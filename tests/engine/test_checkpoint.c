/* SPDX-License-Identifier: MIT
 *
 * Tests the format of checkpoints: a reader gets back the written data, and notices every damage to
 * the file. test_checkpoint_disk.c tests failures while writing.
 *
 * Covers: engine/checkpoint/checkpoint_read.c
 */
#include "tests/support/fixtures/checkpoint_fixture.h"

#include <sys/wait.h>

/* number of elements that fill three whole chunks and a part of a fourth one */
#define BIG (3 * CP_CHUNK / sizeof(float) + 5)

/* ---- round trip ------------------------------------------------------------------------------ */

static void written_files_are_read_back(void **state)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(12, arrays);
    double seconds = -1;

    (void)state;
    assert_int_equal(vb_checkpoint_write(dir, &cp, 0, &seconds), VB_OK);
    assert_true(seconds > 0);
    assert_reads(&cp);
    assert_int_equal(t_folder_entries(dir), 1);
}

static void large_and_empty_arrays_are_read(void **state)
{
    float *big = malloc(BIG * sizeof(*big));
    struct vb_checkpoint_array arrays[4] = {
        {.name = "none", .type = VB_ARRAY_U32, .rows = 0, .cols = 1},
        {.name = "whole", .rows = (int64_t)(CP_CHUNK / sizeof(float)), .cols = 2},
        {.name = "big", .rows = BIG, .cols = 1},
        {.name = "last", .rows = 0, .cols = INT64_MAX}};
    struct vb_checkpoint cp = {.model = "sparse-lr", .n_arrays = 4, .arrays = arrays};
    size_t i;

    (void)state;
    assert_non_null(big);
    for (i = 0; i < BIG; i++)
        big[i] = (float)i;
    arrays[1].data = arrays[2].data = big;
    assert_int_equal(vb_checkpoint_write(dir, &cp, 0, NULL), VB_OK);
    assert_reads(&cp);
    cp.n_arrays = 0;
    cp.step = INT64_MAX;
    assert_int_equal(vb_checkpoint_write(dir, &cp, 0, NULL), VB_OK);
    assert_reads(&cp);
    assert_latest(INT64_MAX);
    free(big);
}

static void arrays_are_found_by_name(void **state)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(1, arrays);

    (void)state;
    assert_ptr_equal(vb_checkpoint_find(&cp, "seen"), &arrays[1]);
    assert_null(vb_checkpoint_find(&cp, "see"));
}

/* ---- broken files ---------------------------------------------------------------------------- */

/* Writes a small checkpoint and returns the bytes of its file. Sets `broken` to a path for broken
 * copies. */
static char *small_file(size_t *len_p, char broken[PATH_MAX])
{
    write_small(3, 0);
    snprintf(broken, PATH_MAX, "%s/broken.vbc", dir);
    return get_file(path_of(3), len_p);
}

static void truncated_files_are_refused(void **state)
{
    char broken[PATH_MAX], *bytes;
    struct vb_checkpoint *cp;
    size_t len, n;

    (void)state;
    bytes = small_file(&len, broken);
    assert_true(len < 1024);
    for (n = 0; n < len; n++) {
        t_file_write(broken, bytes, n);
        assert_refused(broken, VB_ERR_INPUT, "offset ");
    }
    bytes[len] = '\0'; /* get_file() has left space for one more byte */
    t_file_write(broken, bytes, len + 1);
    assert_refused(broken, VB_ERR_INPUT, "offset 16: the file is not as long");
    t_file_write(broken, bytes, len);
    assert_int_equal(vb_checkpoint_read(broken, &cp), VB_OK); /* the complete file is valid */
    vb_checkpoint_free(cp);
    free(bytes);
}

static void every_flipped_bit_is_noticed(void **state)
{
    char broken[PATH_MAX], *bytes;
    size_t len, i;

    (void)state;
    bytes = small_file(&len, broken);
    for (i = 0; i < len * 8; i++) {
        bytes[i / 8] = (char)(bytes[i / 8] ^ 1 << i % 8);
        t_file_write(broken, bytes, len);
        assert_refused(broken, VB_ERR_INPUT, "offset ");
        bytes[i / 8] = (char)(bytes[i / 8] ^ 1 << i % 8);
    }
    free(bytes);
}

static void broken_chunks_are_named(void **state)
{
    uint32_t *big = calloc(BIG, sizeof(*big));
    struct vb_checkpoint_array array = {
        .name = "big", .type = VB_ARRAY_U32, .rows = BIG, .cols = 1};
    struct vb_checkpoint cp = {.model = "m", .n_arrays = 1, .arrays = &array};
    char *bytes, text[64];
    size_t len, at, front = 192;

    (void)state;
    assert_non_null(big);
    array.data = big;
    assert_int_equal(vb_checkpoint_write(dir, &cp, 0, NULL), VB_OK);
    bytes = get_file(path_of(0), &len);
    for (at = 0; at < 4; at++) {
        bytes[front + at * CP_CHUNK + 8] ^= 1;
        t_file_write(path_of(0), bytes, len);
        snprintf(text, sizeof(text), "offset %zu: the checksum", front + at * CP_CHUNK);
        assert_refused(path_of(0), VB_ERR_INPUT, text);
        bytes[front + at * CP_CHUNK + 8] ^= 1;
    }
    free(bytes);
    free(big);
}

/* Bytes that a hostile writer could put into a small checkpoint, with correct checksums, and the
 * message that must follow. */
static const struct {
    size_t at, len;
    const char *bytes, *text;
} forgeries[] = {
    {8, 4, "\2\0\0", "offset 8: the version"},
    {16, 8, "\377\377\377\377\377\377\377\377", "offset 16: the file is not as long"},
    {24, 8, "\377\377\377\377\377\377\377\377", "offset 24: the step"},
    {40, 4, "\377\377\377\377", "offset 40: the header announces more arrays"},
    {40, 4, "\0\4\0", "ends within the table"}, /* the largest number of arrays */
    {40, 4, "\1\0\0", "offset "},
    {44, 4, "\377\377\377\377", "offset 40: the header announces more arrays or text"},
    {48, 4, "\0\0\20", "ends within the table"}, /* the largest amount of text */
    {56, 4, "\0\0\0", "offset 56: the size of chunks"},
    {60, 4, "\1\0\0", "offset 56: the size of chunks"},
    {64, 32, "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee", "offset 64: a name has no end"},
    {64, 1, "", "offset 64: a name is empty"},
    {95, 1, "x", "offset 64: a name is not filled up with zeros"},
    {96, 8, "../../x", "offset 96: a name begins with a dot"},
    {96, 8, "x/../..", "offset 96: a name has a character"},
    {96, 7, "x\n\33[2J", "offset 96: a name has a character"},
    {96, 8, "seen\0\0\0", "offset 160: two arrays have the same name"},
    {192, 4, "\2\0\0", "offset 192: an array has an unknown type"},
    {196, 4, "\2\0\0", "offset 192: an array has an unknown type"},
    {136, 8, "\377\377\377\377\377\377\377\177", "offset 136: an array is larger"},
    /* this number times 4 wraps to 0 */
    {136, 8, "\0\0\0\0\0\0\0\100", "offset 136: an array is larger"},
    {136, 8, "\377\377\377\377\377\377\377\377", "offset 136: an array is larger"},
    {144, 8, "\0\0\0\0\0\0\0", "offset 136: an array is larger"},
    {200, 8, "\0\1\0\0\0\0\0", "offset 200: an array is larger"},
    {200, 8, "\0\0\0\0\0\0\0", "offset 16: the arrays do not fill"},
    {200, 8, "\2\0\0\0\0\0\0", "offset 384: the checksum of a piece"},
    {216, 8, "\0\0\0\0\0\0\0", "offset 216: an array does not begin"},
    {224, 1, "", "offset 224: a text has a zero byte"},
    {300, 1, "x", "offset 261: the bytes after"},
};

static void forged_files_are_refused(void **state)
{
    char broken[PATH_MAX], *bytes;
    struct cp_head *head;
    size_t i, len, front;

    (void)state;
    for (i = 0; i < VB_COUNT(forgeries); i++) {
        bytes = small_file(&len, broken);
        memcpy(bytes + forgeries[i].at, forgeries[i].bytes, forgeries[i].len);
        head = (struct cp_head *)(void *)bytes;
        front = cp_front_bytes(head);
        if (front <= len)
            head->rest_crc = vb_crc32c(0, bytes + sizeof(*head), front - sizeof(*head));
        head->crc = cp_head_crc(*head);
        t_file_write(broken, bytes, len);
        assert_refused(broken, VB_ERR_INPUT, forgeries[i].text);
        free(bytes);
    }
}

static void other_files_are_refused(void **state)
{
    char path[PATH_MAX], noise[4096];
    size_t i;

    (void)state;
    snprintf(path, sizeof(path), "%s/x", dir);
    assert_refused(path, VB_ERR_NO_FILE, "No such file");
    t_file_write(path, "", 0);
    assert_refused(path, VB_ERR_INPUT, "offset 0: the file is empty");
    for (i = 0; i < sizeof(noise); i++)
        noise[i] = (char)vb_random(1, i);
    t_file_write(path, noise, sizeof(noise));
    assert_refused(path, VB_ERR_INPUT, "offset 0: this is not a checkpoint");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    /* the reader does not wait for a writer */
    assert_refused(path, VB_ERR_INPUT, "this is not a regular file");
    assert_refused(dir, VB_ERR_INPUT, "this is not a regular file");
}

static void read_one_that_is_cut_off(void)
{
    struct vb_checkpoint *cp;

    if (vb_checkpoint_read(path_of(1), &cp) != VB_OK || truncate(path_of(1), 0) != 0)
        _exit(99);
    (void)*(const volatile float *)cp->arrays[0].data;
    _exit(98);
}

static void a_truncated_file_is_named(void **state)
{
    char said[PATH_MAX + 256];
    struct t_stderr t;
    int status = 0;
    pid_t pid;

    (void)state;
    write_small(1, 0);
    t_stderr_catch(&t);
    pid = fork();
    if (pid == 0)
        read_one_that_is_cut_off();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    t_stderr_release(&t, said, sizeof(said));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_non_null(strstr(said, "checkpoint-1.vbc: offset "));
    assert_non_null(strstr(said, "can no longer be read"));
}

/* ---- checkpoints that cannot be written ------------------------------------------------------ */

static void assert_not_written(const struct vb_checkpoint *cp, const char *text)
{
    struct t_stderr t;
    char said[1024];
    int before = t_folder_entries(dir);
    vb_status st;

    t_stderr_catch(&t);
    st = vb_checkpoint_write(dir, cp, 0, NULL);
    t_stderr_release(&t, said, sizeof(said));
    assert_int_equal(st, VB_ERR_USAGE);
    if (strstr(said, text) == NULL)
        fail_msg("the message '%s' does not contain '%s'", said, text);
    assert_int_equal(t_folder_entries(dir), before);
}

static void only_regular_files_are_replaced(void **state)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(5, arrays);
    struct stat info;

    (void)state;
    assert_int_equal(mkfifo(path_of(5), 0600), 0);
    assert_not_written(&cp, "checkpoint-5.vbc: the path exists and is not a regular file");
    assert_int_equal(stat(path_of(5), &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
}

static void impossible_checkpoints_are_not_written(void **state)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(-1, arrays);

    (void)state;
    assert_not_written(&cp, "its step, arrays or texts are invalid");
    cp = small(1, arrays);
    cp.n_arrays = VB_CHECKPOINT_ARRAYS_MAX + 1;
    assert_not_written(&cp, "its step, arrays or texts are invalid");
    cp = small(1, arrays);
    snprintf(arrays[1].name, sizeof(arrays[1].name), "%s", arrays[0].name);
    assert_not_written(&cp, "two arrays are named conv1.w");
    cp = small(1, arrays);
    arrays[1].name[1] = '/';
    assert_not_written(&cp, "not allowed: s/en");
    cp = small(1, arrays);
    memset(arrays[1].name, 'x', sizeof(arrays[1].name));
    assert_not_written(&cp, "a name has no end");
    cp = small(1, arrays);
    arrays[0].rows = INT64_MAX;
    assert_not_written(&cp, "array conv1.w has an impossible type, shape or data");
    cp = small(1, arrays);
    arrays[0].data = NULL;
    assert_not_written(&cp, "array conv1.w has an impossible type, shape or data");
    cp = small(1, arrays);
    cp.model[0] = '\0';
    assert_not_written(&cp, "a name is empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* This must be the first test. The first mapped file installs a SIGBUS handler, and cmocka
         * replaces it. */
        T_IN_DIR(a_truncated_file_is_named),
        T_IN_DIR(written_files_are_read_back),
        T_IN_DIR(large_and_empty_arrays_are_read),
        T_IN_DIR(arrays_are_found_by_name),
        T_IN_DIR(truncated_files_are_refused),
        T_IN_DIR(every_flipped_bit_is_noticed),
        T_IN_DIR(broken_chunks_are_named),
        T_IN_DIR(forged_files_are_refused),
        T_IN_DIR(other_files_are_refused),
        T_IN_DIR(only_regular_files_are_replaced),
        T_IN_DIR(impossible_checkpoints_are_not_written),
    };

    return T_RUN(tests);
}
