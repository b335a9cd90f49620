/* SPDX-License-Identifier: MIT
 *
 * Covers: record/folder/files.c record/folder/kinds.c record/folder/recorder.c
 * Covers: record/folder/series.c
 */
#include "record/record.h"
#include "tests/support/alloc.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/verbena-test-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return t_folder_remove(dir);
}

static struct vb_recorder *begin(struct vb_record_sink sink)
{
    struct vb_recorder_opts opts = {.dir = dir, .sink = sink, .rank = 3};
    struct vb_recorder *rec;

    assert_int_equal(vb_recorder_open(&opts, &rec), VB_OK);
    return rec;
}

static struct vb_stream *add_steps(struct vb_recorder *rec, int rows)
{
    struct vb_stream *stream;

    assert_int_equal(vb_recorder_stream(rec, "rank3/steps.bin", &vb_kind_steps, rows, &stream),
                     VB_OK);
    return stream;
}

static void put_step(struct vb_stream *stream, uint64_t step)
{
    struct vb_step_row row = {.step = step,
                              .end_ns = step * 1000,
                              .phase_s = {1, 2, 3, 4, 5, 6, 7, 8},
                              .loss = 0.5f,
                              .grad_norm = NAN,
                              .samples = 10,
                              .waited_for = -1,
                              .flags = VB_STEP_SAVED};

    vb_stream_put(stream, &row);
}

static struct vb_series *open_steps(void)
{
    struct vb_series *series;
    char path[128];

    snprintf(path, sizeof(path), "%s/rank3/steps.bin", dir);
    assert_int_equal(vb_series_open(path, &series), VB_OK);
    return series;
}

static double value(struct vb_series *series, int64_t row, const char *name)
{
    return vb_series_value(series, row, vb_series_col(series, name));
}

static void rows_are_read_back(void **state)
{
    struct vb_recorder *rec = begin((struct vb_record_sink){0});
    struct vb_stream *stream = add_steps(rec, 5000);
    struct vb_series *series;
    uint64_t i;

    (void)state;
    assert_int_equal(vb_recorder_start(rec), VB_OK);
    for (i = 1; i <= 5000; i++)
        put_step(stream, i);
    assert_int_equal(vb_recorder_lost(rec), 0);
    vb_recorder_close(rec);
    series = open_steps();
    assert_string_equal(vb_series_name(series), "steps");
    assert_int_equal(vb_series_rows(series), 5000);
    for (i = 0; i < 5000; i++) {
        assert_int_equal(value(series, (int64_t)i, "step"), i + 1);
        assert_int_equal(value(series, (int64_t)i, "end_ns"), 1000 * (i + 1));
    }
    assert_true(value(series, 7, "comm_exposed_s") == 4);
    assert_true(value(series, 7, "checkpoint_s") == 8);
    assert_true(value(series, 7, "waited_for") == -1);
    assert_true(value(series, 7, "flags") == VB_STEP_SAVED);
    assert_true(isnan(value(series, 7, "grad_norm")));
    assert_true(isnan(value(series, 5000, "step")));
    assert_true(isnan(value(series, 0, "no-such-column")));
    vb_series_close(series);
}

static void putting_allocates_nothing(void **state)
{
    struct vb_recorder *rec = begin((struct vb_record_sink){0});
    struct vb_stream *stream = add_steps(rec, 100);
    long before = t_allocations;
    uint64_t i;

    (void)state;
    for (i = 1; i <= 1000; i++)
        put_step(stream, i);
    assert_int_equal(t_allocations, before);
    assert_int_equal(vb_recorder_lost(rec), 1000 - 128); /* the ring has a power of two */
    vb_recorder_close(rec);
}

/* ---- a disk that fails ----------------------------------------------------------------------- */

static vb_status full(void *arg, const char *file, const void *bytes, size_t len)
{
    (void)arg, (void)file, (void)bytes, (void)len;
    return VB_ERR_IO;
}

static void lost_rows_are_counted(void **state)
{
    struct vb_recorder *rec = begin((struct vb_record_sink){.append = full});
    struct vb_stream *stream = add_steps(rec, 100);
    int i;

    (void)state;
    assert_int_equal(vb_recorder_start(rec), VB_OK);
    put_step(stream, 1);
    put_step(stream, 2);
    for (i = 0; i < 100 && vb_recorder_lost(rec) < 2; i++)
        usleep(50000);
    assert_int_equal(vb_recorder_lost(rec), 2);
    vb_recorder_close(rec);
}

static _Atomic bool hangs;

static vb_status hang(void *arg, const char *file, const void *bytes, size_t len)
{
    (void)arg, (void)file, (void)bytes, (void)len;
    while (atomic_load(&hangs))
        usleep(1000);
    return VB_OK;
}

static void a_hanging_disk_does_not_stop_the_end(void **state)
{
    struct vb_recorder *rec = begin((struct vb_record_sink){.append = hang});
    struct vb_stream *stream = add_steps(rec, 100);
    struct t_stderr t;
    char text[512];

    (void)state;
    atomic_store(&hangs, true);
    assert_int_equal(vb_recorder_start(rec), VB_OK);
    put_step(stream, 1);
    t_stderr_catch(&t);
    vb_recorder_close(rec);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "has not taken the last records within 2 s"));
    atomic_store(&hangs, false);
    usleep(100000); /* the thread ends and frees what it used */
}

static void a_file_that_cannot_be_made_is_said_once(void **state)
{
    struct vb_recorder *rec = begin((struct vb_record_sink){0});
    struct vb_stream *stream;
    struct t_stderr t;
    char text[512], path[128];
    int i;

    (void)state;
    snprintf(path, sizeof(path), "%s/blocked", dir);
    t_file_write(path, "", 0); /* a file where a folder is needed */
    assert_int_equal(vb_recorder_stream(rec, "blocked/steps.bin", &vb_kind_steps, 100, &stream),
                     VB_OK);
    t_stderr_catch(&t);
    assert_int_equal(vb_recorder_start(rec), VB_OK);
    for (i = 1; i <= 5; i++) {
        put_step(stream, (uint64_t)i);
        usleep(120000);
    }
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(vb_recorder_lost(rec), 5);
    vb_recorder_close(rec);
    assert_non_null(strstr(text, "blocked/steps.bin: Not a directory; training goes on"));
    assert_null(strstr(strstr(text, "training goes on") + 1, "training goes on"));
}

/* ---- files that are broken ------------------------------------------------------------------- */

static void refused(const char *bytes, const char *why)
{
    struct vb_series *series;
    char path[128], text[512];
    struct t_stderr t;

    snprintf(path, sizeof(path), "%s/broken", dir);
    t_file_write(path, bytes, strlen(bytes));
    t_stderr_catch(&t);
    assert_int_equal(vb_series_open(path, &series), VB_ERR_INPUT);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "broken: byte "));
    assert_non_null(strstr(text, why));
}

static void broken_heads_are_refused(void **state)
{
    (void)state;
    refused("", "has no head of a series");
    refused("PNG\n", "is not the head of a series");
    refused("verbena-series 1\nkind a 1\nrow 8\n", "has no head");
    refused("verbena-series 1\nkind a 1\nrow 8\nend\n", "do not add up");
    refused("verbena-series 1\nkind a 1\nrow 9\ncol x u64 -\nend\n", "do not add up");
    refused("verbena-series 1\nkind a 1\nrow 0\nend\n", "do not add up");
    refused("verbena-series 1\nkind a 1\nrow 8\ncol x u63 -\nend\n", "byte 32: is not the head");
}

static void a_cut_row_is_not_read(void **state)
{
    static const char text[] = "verbena-series 1\nkind a 1\nrow 8\nnew word\ncol x u64 -\nend\n"
                               "\1\0\0\0\0\0\0\0"
                               "\2\0\0";
    struct vb_series *series;
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/cut", dir);
    t_file_write(path, text, sizeof(text) - 1);
    assert_int_equal(vb_series_open(path, &series), VB_OK);
    assert_int_equal(vb_series_rows(series), 1);
    assert_true(vb_series_value(series, 0, 0) == 1);
    assert_true(isnan(vb_series_value(series, 1, 0)));
    assert_true(isnan(vb_series_value(series, -1, 0)));
    assert_true(isnan(vb_series_value(series, INT64_MAX, 0)));
    vb_series_close(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_back),
        cmocka_unit_test(putting_allocates_nothing),
        cmocka_unit_test(lost_rows_are_counted),
        cmocka_unit_test(a_hanging_disk_does_not_stop_the_end),
        cmocka_unit_test(a_file_that_cannot_be_made_is_said_once),
        cmocka_unit_test(broken_heads_are_refused),
        cmocka_unit_test(a_cut_row_is_not_read),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
