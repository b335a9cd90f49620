/* SPDX-License-Identifier: MIT
 *
 * Helpers for the checkpoint tests: a folder for each test, and a small checkpoint.
 */
#ifndef VB_TESTS_SUPPORT_CHECKPOINT_FIXTURE_H
#define VB_TESTS_SUPPORT_CHECKPOINT_FIXTURE_H

#include "engine/checkpoint/checkpoint_priv.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <sys/stat.h>

static char dir[PATH_MAX / 2]; /* the folder of the running test */

static inline int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/verbena-test-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    (void)state;
    return t_folder_remove(dir);
}

static inline const char *path_of(int64_t step)
{
    static char path[PATH_MAX];

    assert_true(vb_cp_path(path, dir, step));
    return path;
}

static inline char *get_file(const char *path, size_t *len_p)
{
    FILE *file = fopen(path, "r");
    struct stat info;
    char *data;

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    data = malloc((size_t)info.st_size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)info.st_size, file), info.st_size);
    fclose(file);
    *len_p = (size_t)info.st_size;
    return data;
}

static const float small_w[6] = {1, -2, 3.5f, 0, 1e-40f, 6};
static const uint32_t small_seen[3] = {7, 0, UINT32_MAX};

/* Makes a checkpoint of two small arrays. The caller owns the arrays. */
static inline struct vb_checkpoint small(int64_t step, struct vb_checkpoint_array arrays[2])
{
    static char options[] = "lr=0.1\nbatch=64\n", plan[] = "conv1 forward direct\n";
    struct vb_checkpoint cp = {.model = "lenet",
                               .step = step,
                               .seed = 0xfedcba9876543210,
                               .options = options,
                               .plan = plan,
                               .n_arrays = 2,
                               .arrays = arrays};

    arrays[0] = (struct vb_checkpoint_array){
        .name = "conv1.w", .type = VB_ARRAY_F32, .rows = 2, .cols = 3, .data = small_w};
    arrays[1] = (struct vb_checkpoint_array){.name = "seen",
                                             .type = VB_ARRAY_U32,
                                             .rows = 3,
                                             .cols = 1,
                                             .state = true,
                                             .data = small_seen};
    return cp;
}

static inline void write_small(int64_t step, int keep)
{
    struct vb_checkpoint_array arrays[2];
    struct vb_checkpoint cp = small(step, arrays);

    assert_int_equal(vb_checkpoint_write(dir, &cp, keep, NULL), VB_OK);
}

static inline void assert_same(const struct vb_checkpoint *is, const struct vb_checkpoint *want)
{
    const struct vb_checkpoint_array *a, *b;
    int i;

    assert_string_equal(is->model, want->model);
    assert_int_equal(is->step, want->step);
    assert_true(is->seed == want->seed);
    assert_string_equal(is->options, want->options != NULL ? want->options : "");
    assert_string_equal(is->plan, want->plan != NULL ? want->plan : "");
    assert_int_equal(is->n_arrays, want->n_arrays);
    for (i = 0; i < is->n_arrays; i++) {
        a = &is->arrays[i];
        b = &want->arrays[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->state, b->state);
        assert_int_equal(a->rows, b->rows);
        assert_int_equal(a->cols, b->cols);
        assert_int_equal((uintptr_t)a->data % VB_CACHE_LINE, 0);
        if (a->rows > 0)
            assert_memory_equal(a->data, b->data, (size_t)(a->rows * a->cols) * sizeof(float));
    }
}

static inline void assert_reads(const struct vb_checkpoint *want)
{
    struct vb_checkpoint *cp;

    assert_int_equal(vb_checkpoint_read(path_of(want->step), &cp), VB_OK);
    assert_same(cp, want);
    vb_checkpoint_free(cp);
}

static inline void assert_latest(int64_t step)
{
    char path[PATH_MAX];

    assert_int_equal(vb_checkpoint_latest(dir, path, sizeof(path)), VB_OK);
    assert_string_equal(path, path_of(step));
}

/* Asserts that reading the checkpoint fails with one line on standard error, and that this line
 * contains the file's name and `text`. */
static inline void assert_refused(const char *path, vb_status want, const char *text)
{
    struct vb_checkpoint *cp = NULL;
    struct t_stderr t;
    char said[PATH_MAX + 256];
    vb_status st;

    t_stderr_catch(&t);
    st = vb_checkpoint_read(path, &cp);
    t_stderr_release(&t, said, sizeof(said));
    assert_int_equal(st, want);
    assert_null(cp);
    assert_non_null(strstr(said, path));
    if (strstr(said, text) == NULL)
        fail_msg("the message '%s' does not contain '%s'", said, text);
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

/* Adds a test that runs in its own temporary folder. */
#define T_IN_DIR(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

#endif
