/* SPDX-License-Identifier: MIT
 *
 * Tests how records get to the run folder: the box of rank 0 for records of other ranks, and two
 * ranks of which one does not see the folder.
 *
 * Covers: engine/record/train_clock.c engine/record/train_inbox.c engine/record/train_ship.c
 */
#include "engine/train/train.h"
#include "engine/record/train_inbox.h"
#include "engine/record/train_ship.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
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

/* ---- the box --------------------------------------------------------------------------------- */

/* A sink that keeps one text: "file=bytes " for each record. */
struct text {
    char out[4096];
    vb_status status;
};

static vb_status text_append(void *arg, const char *file, const void *bytes, size_t len_bytes)
{
    struct text *text = arg;
    size_t len = strlen(text->out);

    if (text->status == VB_OK)
        snprintf(text->out + len, sizeof(text->out) - len, "%s=%.*s ", file, (int)len_bytes,
                 (const char *)bytes);
    return text->status;
}

static bool put(struct vb_inbox *inbox, int rank, const char *file, bool first, const char *bytes)
{
    return vb_inbox_put(inbox, rank, file, first, bytes, strlen(bytes));
}

static void rows_need_a_head(void **state)
{
    struct text text = {.status = VB_OK};
    struct vb_record_sink sink = {.append = text_append, .arg = &text};
    struct vb_inbox *inbox;

    (void)state;
    assert_int_equal(vb_inbox_create(&inbox), VB_OK);
    assert_true(put(inbox, 1, "rank1/a.bin", true, "HEAD"));
    assert_true(put(inbox, 1, "rank1/a.bin", false, "row1"));
    assert_true(put(inbox, 2, "rank2/a.bin", false, "row1")); /* its head was lost */
    vb_inbox_write(inbox, &sink);
    assert_true(put(inbox, 1, "rank1/a.bin", true, "HEAD")); /* another rank has the slot now */
    assert_true(put(inbox, 3, "rank1/a.bin", true, "HEAD")); /* the rank has another number now */
    assert_true(put(inbox, 3, "rank1/a.bin", false, "rowA"));
    assert_true(put(inbox, 1, "rank1/a.bin", false, "row2"));
    assert_true(put(inbox, 1, "rank1/log.txt", true, "hello"));
    assert_true(put(inbox, 1, "rank1/log.txt", true, "again")); /* a text has no head */
    vb_inbox_write(inbox, &sink);
    vb_inbox_write(inbox, &sink);
    assert_string_equal(text.out,
                        "rank1/a.bin=HEAD rank1/a.bin=row1 rank1/a.bin=rowA rank1/a.bin=row2 "
                        "rank1/log.txt=hello rank1/log.txt=again ");
    assert_int_equal(vb_inbox_lost(inbox), 1);
    text.status = VB_ERR_IO; /* a full disk */
    assert_true(put(inbox, 1, "rank1/a.bin", false, "row3"));
    vb_inbox_write(inbox, &sink);
    assert_int_equal(vb_inbox_lost(inbox), 2);
    vb_inbox_destroy(inbox);
}

/* A run that is continued: the file of the first run has a head. */
static void continued_files_get_no_second_head(void **state)
{
    char head[VB_SERIES_HEAD_MAX], folder[64];
    size_t len = vb_series_head(&vb_kind_evals, head);
    struct vb_eval_row row = {0};
    struct vb_record_sink sink;
    struct vb_inbox *inbox;
    struct vb_series *series;
    char path[128];
    int round;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/continued", dir);
    for (round = 1; round <= 3; round++) {
        row.step = (uint64_t)round;
        assert_int_equal(vb_record_files(folder, round > 1, &sink), VB_OK);
        assert_int_equal(vb_inbox_create(&inbox), VB_OK);
        assert_true(vb_inbox_put(inbox, 5, "rank5/evals.bin", true, head, len));
        assert_true(vb_inbox_put(inbox, 5, "rank5/evals.bin", false, &row, sizeof(row)));
        vb_inbox_write(inbox, &sink);
        vb_inbox_destroy(inbox);
        sink.close(sink.arg);
    }
    snprintf(path, sizeof(path), "%s/rank5/evals.bin", folder);
    assert_int_equal(vb_series_open(path, &series), VB_OK);
    assert_int_equal(vb_series_rows(series), 3);
    for (round = 1; round <= 3; round++)
        assert_true(vb_series_value(series, round - 1, 0) == round);
    vb_series_close(series);
}

/* One rank cannot take the room of the others, nor open files without end. */
static void memory_and_files_are_bounded(void **state)
{
    static char big[VB_RECORD_BYTES_MAX];
    struct text text = {.status = VB_OK};
    struct vb_record_sink sink = {.append = text_append, .arg = &text};
    struct vb_inbox *inbox;
    size_t taken = 0;
    char file[32];
    int i, rank;

    (void)state;
    assert_int_equal(vb_inbox_create(&inbox), VB_OK);
    while (vb_inbox_put(inbox, 1, "rank1/a.bin", true, big, sizeof(big)))
        taken += sizeof(big);
    assert_in_range(taken, VB_INBOX_RANK_BYTES - 2 * sizeof(big), VB_INBOX_RANK_BYTES);
    assert_true(put(inbox, 2, "rank2/a.bin", true, "x"));
    for (rank = 3; rank < 200; rank++) /* many ranks flood */
        while (vb_inbox_put(inbox, rank, "rankR/a.bin", true, big, sizeof(big)))
            taken += sizeof(big);
    assert_true(taken <= VB_INBOX_BYTES && taken > VB_INBOX_BYTES / 2);
    assert_false(vb_inbox_put(inbox, VB_WORLD_MAX, "x", true, big, 1));
    assert_false(vb_inbox_put(inbox, -1, "x", true, big, 1));
    vb_inbox_write(inbox, &sink);
    assert_int_equal(vb_inbox_lost(inbox), 0);
    assert_true(put(inbox, 1, "rank1/a.bin", false, "x")); /* there is room again */
    for (i = 0; i < 1000; i++) {
        snprintf(file, sizeof(file), "rank300/%d.bin", i);
        assert_true(put(inbox, 300, file, true, "x"));
    }
    vb_inbox_write(inbox, &sink);
    assert_int_equal(vb_inbox_lost(inbox), 1000 - VB_INBOX_FILES);
    vb_inbox_destroy(inbox);
}

/* ---- ranks with and without the folder ------------------------------------------------------- */

#define ROWS 20000

struct job {
    const char *dirs[3]; /* the folder as each rank sees it */
    int rows[3];         /* that each rank records */
};

static void fill(struct vb_stream *stream, int rank, int rows)
{
    struct timespec nap = {.tv_nsec = 2000000};
    int i;

    for (i = 1; i <= rows; i++) {
        struct vb_step_row row = {.step = (uint64_t)i, .samples = (uint32_t)(rank * 7 + i)};

        vb_stream_put(stream, &row);
        if (i % 100 == 0)
            nanosleep(&nap, NULL);
    }
}

static int record(struct vb_group *g, void *arg)
{
    struct job *job = arg;
    int rank = vb_group_rank(g), wrong = 0, n = 0;
    struct vb_ship_opts ship_opts = {.dir = job->dirs[rank], .rank = rank, .bytes_per_s = 50000000};
    struct vb_recorder_opts opts = {.rank = rank};
    struct vb_recorder *rec;
    struct vb_stream *stream;
    struct vb_ship *ship;
    struct vb_train_clock *clocks;
    const int ids[] = {0, 2, 3}; /* rank 1 of the start is gone, and another one has come */
    char file[32];

    snprintf(file, sizeof(file), "rank%d/steps.bin", rank);
    wrong += T_WRONG(vb_group_set_ids(g, ids) == VB_OK);
    if (vb_ship_open(&ship_opts, &ship, &opts.sink) != VB_OK)
        return 1;
    wrong += T_WRONG(vb_recorder_open(&opts, &rec) == VB_OK);
    wrong += T_WRONG(vb_recorder_stream(rec, file, &vb_kind_steps, 65536, &stream) == VB_OK);
    wrong += T_WRONG(vb_recorder_tick(rec, vb_ship_tick, ship) == VB_OK);
    vb_ship_attach(ship, g);
    wrong += T_WRONG(vb_recorder_start(rec) == VB_OK);
    fill(stream, rank, job->rows[rank]);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_ship_finish(ship);
    wrong += T_WRONG(vb_recorder_close(rec) == 0);
    clocks = vb_ship_clocks(ship, &n);
    wrong += T_WRONG(rank != 0 || job->dirs[0] == NULL || (n == 3 && clocks[2].rank == ids[2]));
    vb_ship_end(ship, 0, vb_clock_ns());
    wrong += T_WRONG(vb_ship_stats(ship).dropped == 0);
    wrong += T_WRONG(vb_ship_lost(ship) == 0);
    vb_ship_close(ship);
    free(clocks);
    return wrong + T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void has_rows(const char *folder, int rank, int rows)
{
    struct vb_series *s;
    char path[160];
    int i;

    snprintf(path, sizeof(path), "%s/rank%d/steps.bin", folder, rank);
    if (rows < 0) {
        assert_int_equal(access(path, F_OK), -1);
        return;
    }
    assert_int_equal(vb_series_open(path, &s), VB_OK);
    assert_int_equal(vb_series_rows(s), rows);
    for (i = 0; i < rows; i++) {
        assert_true(vb_series_value(s, i, vb_series_col(s, "step")) == i + 1);
        assert_true(vb_series_value(s, i, vb_series_col(s, "samples")) == rank * 7 + i + 1);
    }
    vb_series_close(s);
}

/* Rank 1 shares the folder, rank 2 has another one: rank 0 gets its rows, all and in order. The
 * second job is so short that the first tick is also the last. */
static void rows_of_all_ranks_are_in_the_folder(void **state)
{
    char seen[64], other[64];
    struct job job = {.dirs = {seen, seen, other}, .rows = {100, ROWS, ROWS}};
    struct t_job ranks = {.transport = VB_TRANSPORT_SHM, .world = 3, .fn = record, .arg = &job};
    int round, rank;

    (void)state;
    for (round = 0; round < 2; round++) {
        snprintf(seen, sizeof(seen), "%s/seen%d", dir, round);
        snprintf(other, sizeof(other), "%s/other%d", dir, round);
        t_as_threads(&ranks);
        for (rank = 0; rank < 3; rank++)
            has_rows(seen, rank, job.rows[rank]);
        has_rows(other, 2, -1);
        job.rows[0] = job.rows[1] = job.rows[2] = 3;
    }
}

/* Rank 0 has no folder: the others drop their rows at once, although they were given one. */
static void without_a_folder_nothing_is_kept(void **state)
{
    char other[64];
    struct job job = {.dirs = {NULL, other, other}, .rows = {10, 10, 10}};
    struct t_job ranks = {.transport = VB_TRANSPORT_SHM, .world = 3, .fn = record, .arg = &job};

    (void)state;
    snprintf(other, sizeof(other), "%s/none", dir);
    t_as_threads(&ranks);
    has_rows(other, 1, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_need_a_head),
        cmocka_unit_test(continued_files_get_no_second_head),
        cmocka_unit_test(memory_and_files_are_bounded),
        cmocka_unit_test(rows_of_all_ranks_are_in_the_folder),
        cmocka_unit_test(without_a_folder_nothing_is_kept),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
