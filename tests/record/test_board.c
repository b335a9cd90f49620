/* SPDX-License-Identifier: MIT
 *
 * Covers: record/board/board.c record/board/board_rank.c record/board/follow.c
 * Covers: record/board/hparams.c record/board/graph.c
 */
#include "record/board/follow.h"
#include "record/record.h"
#include "tests/record/event_reader.h"
#include "tests/support/alloc.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <math.h>
#include <unistd.h>

static char dir[] = "/tmp/verbena-test-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/verbena-test-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return t_folder_remove(dir);
}

/* ---- following a series ---------------------------------------------------------------------- */

static void write_rows(const char *mode, uint64_t first, uint64_t n)
{
    char head[VB_SERIES_HEAD_MAX], path[128];
    struct vb_eval_row row = {0};
    size_t len = vb_series_head(&vb_kind_evals, head);
    FILE *file;

    snprintf(path, sizeof(path), "%s/evals.bin", dir);
    file = fopen(path, mode);
    assert_non_null(file);
    if (mode[0] == 'w')
        assert_true(fwrite(head, len, 1, file) == 1);
    for (row.step = first; row.step < first + n; row.step++)
        assert_true(fwrite(&row, sizeof(row), 1, file) == 1);
    assert_int_equal(fclose(file), 0);
}

static void expect_rows(struct vb_follow *f, uint64_t first, uint64_t n)
{
    struct vb_eval_row row;
    uint64_t i;

    assert_int_equal(vb_follow_left(f), n);
    for (i = first; i < first + n; i++) {
        assert_true(vb_follow_next(f, &row));
        assert_int_equal(row.step, i);
    }
    assert_false(vb_follow_next(f, &row));
}

static void a_series_is_followed(void **state)
{
    struct vb_follow f;

    (void)state;
    vb_follow_init(&f, dir, "evals.bin", &vb_kind_evals, false);
    assert_int_equal(vb_follow_left(&f), 0); /* no file yet */
    write_rows("we", 1, 3);
    expect_rows(&f, 1, 3);
    write_rows("ae", 4, 2000);
    expect_rows(&f, 4, 2000);
    vb_follow_close(&f);
}

/* Another process has shown the rows before. */
static void rows_are_followed_from_a_step(void **state)
{
    struct vb_follow f;

    (void)state;
    vb_follow_init(&f, dir, "evals.bin", &vb_kind_evals, false);
    vb_follow_from(&f, 5); /* there is no file */
    write_rows("w", 1, 7);
    vb_follow_from(&f, 5);
    expect_rows(&f, 5, 3);
    write_rows("a", 8, 2);
    vb_follow_from(&f, 20);
    expect_rows(&f, 20, 0);
    write_rows("a", 10, 1);
    expect_rows(&f, 10, 1);
    vb_follow_close(&f);
}

static void rows_of_an_earlier_run_are_left_out(void **state)
{
    struct vb_follow f;

    (void)state;
    write_rows("we", 1, 3);
    vb_follow_init(&f, dir, "evals.bin", &vb_kind_evals, false);
    assert_int_equal(vb_follow_left(&f), 0); /* the file is the old one */
    usleep(20000);                           /* a clock of files may be coarse */
    write_rows("we", 11, 3);
    expect_rows(&f, 11, 3);
    vb_follow_close(&f);
    vb_follow_init(&f, dir, "evals.bin", &vb_kind_evals, true);
    assert_int_equal(vb_follow_left(&f), 0);
    write_rows("ae", 14, 2);
    expect_rows(&f, 14, 2);
    vb_follow_close(&f);
}

static void other_columns_are_refused_once(void **state)
{
    struct t_stderr t;
    struct vb_follow f;
    char text[512];

    (void)state;
    write_rows("we", 1, 3);
    vb_follow_init(&f, dir, "evals.bin", &vb_kind_usage, false);
    f.old = false;
    t_stderr_catch(&t);
    assert_int_equal(vb_follow_left(&f), 0);
    assert_int_equal(vb_follow_left(&f), 0);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "evals.bin has other columns"));
    assert_null(strstr(strstr(text, "has other columns") + 1, "has other columns"));
    vb_follow_close(&f);
}

/* ---- a run ----------------------------------------------------------------------------------- */

#define STEPS 40
#define N_PARAMS 100

struct run {
    struct vb_recorder *rec;
    struct vb_board *board;
    struct vb_stream *steps[2], *usage[2], *evals;
};

static void open_streams(struct run *run)
{
    char name[64];
    int r;

    for (r = 0; r < 2; r++) {
        snprintf(name, sizeof(name), "rank%d/steps.bin", r);
        assert_int_equal(vb_recorder_stream(run->rec, name, &vb_kind_steps, 100, &run->steps[r]),
                         VB_OK);
        snprintf(name, sizeof(name), "rank%d/usage.bin", r);
        assert_int_equal(vb_recorder_stream(run->rec, name, &vb_kind_usage, 100, &run->usage[r]),
                         VB_OK);
    }
    assert_int_equal(vb_recorder_stream(run->rec, "evals.bin", &vb_kind_evals, 100, &run->evals),
                     VB_OK);
}

static struct run open_run(void)
{
    static const struct vb_board_param params[] = {{.name = "lr", .number = 0.5},
                                                   {.name = "model", .text = "none"}};
    static const struct vb_board_tensor tensors[] = {{"a.w", 0, 60}, {"a.b", 60, 40}};
    struct vb_recorder_opts opts = {.dir = dir};
    struct run run;
    unsigned char bytes[1024];
    struct vb_proto graph = {.bytes = bytes, .size = sizeof(bytes)};
    struct vb_board_node node = {.name = "a/w", .op = "Parameter", .dims = {10, 6}, .n_dims = 2};
    struct vb_board_opts board = {.dir = dir,
                                  .ranks = 2,
                                  .workers = 2,
                                  .params = params,
                                  .n_params = 2,
                                  .graph = &graph,
                                  .tensors = tensors,
                                  .n_tensors = 2};

    assert_int_equal(vb_recorder_open(&opts, &run.rec), VB_OK);
    open_streams(&run);
    vb_board_graph_node(&graph, &node);
    vb_board_graph_end(&graph);
    board.rec = run.rec;
    assert_int_equal(vb_board_open(&board, &run.board), VB_OK);
    assert_int_equal(vb_recorder_start(run.rec), VB_OK);
    return run;
}

static void put_usage(struct run *run, int rank, int i)
{
    struct vb_usage_row row = {.at_ns = vb_clock_ns(),
                               .cpu_ns = (uint64_t)i * 50000000u,
                               .rss_bytes = 7000000,
                               .sent_bytes = (uint64_t)i * 1000000u};

    vb_stream_put(run->usage[rank], &row);
}

static void put_step(struct run *run, int rank, int i)
{
    struct vb_step_row row = {.step = (uint64_t)i,
                              .end_ns = vb_clock_ns(),
                              .phase_s = {0, 0.002f, 0.008f},
                              .loss = 10 / (float)i,
                              .lr = 0.5f,
                              .grad_norm = i % 10 == 0 ? 3.f : NAN,
                              .staleness = rank == 1 ? (float)(i % 3) : NAN,
                              .samples = 10};

    vb_stream_put(run->steps[rank], &row);
}

/* Hands histograms over, when the last ones are written. */
static void hand_over(struct vb_board *board, int64_t step)
{
    float values[N_PARAMS];
    int i;

    for (i = 0; i < N_PARAMS; i++)
        values[i] = (float)i;
    for (i = 0; i < 100 && !vb_board_begin(board, step); i++)
        usleep(20000);
    assert_true(i < 100);
    vb_board_count(board, VB_BOARD_WEIGHTS, values, 1);
    vb_board_count(board, VB_BOARD_GRADIENTS, values, -0.5f);
    vb_board_end(board);
}

static void make_run(bool done)
{
    struct run run = open_run();
    struct vb_eval_row eval = {.step = STEPS, .loss = 0.125, .accuracy = 0.75};
    int i, r;

    for (i = 1; i <= STEPS; i++) {
        for (r = 0; r < 2; r++) {
            put_usage(&run, r, i);
            put_step(&run, r, i);
        }
        usleep(10000);
        if (i == STEPS / 2)
            hand_over(run.board, i);
    }
    eval.end_ns = vb_clock_ns();
    vb_stream_put(run.evals, &eval);
    if (done)
        vb_board_done(run.board);
    vb_recorder_close(run.rec);
}

static void losses_are_equal(const struct t_events *ev)
{
    const struct t_value *v;
    double step;
    int i, n = 0;

    for (i = 0; i < ev->n; i++) {
        v = &ev->list[i];
        if (strcmp(v->tag, "loss") != 0)
            continue;
        step = (double)v->step;
        assert_true(v->simple == (float)(10 / step));
        assert_true(v->wall_s > 1.6e9 && v->wall_s < 1e11);
        n++;
    }
    assert_true(n >= STEPS / 5); /* two points in 100 ms at least, with steps of 10 ms */
}

static void curves_show_what_was_recorded(void **state)
{
    struct t_events ev;

    (void)state;
    make_run(true);
    t_events_read(&ev, dir);
    losses_are_equal(&ev);
    assert_true(t_events_last(&ev, "loss")->step == STEPS);
    assert_true(t_events_last(&ev, "accuracy")->simple == 0.75f);
    assert_true(t_events_last(&ev, "test_loss")->simple == 0.125f);
    assert_true(t_events_last(&ev, "learning_rate")->simple == 0.5f);
    assert_true(t_events_last(&ev, "gradient_norm")->simple == 3);
    assert_true(fabsf(t_events_last(&ev, "global_step/sec")->simple - 100) < 1);
    assert_true(fabsf(t_events_last(&ev, "samples_per_sec")->simple - 2000) < 20);
    assert_int_equal(t_events_last(&ev, "weights/a.w")->num, 60);
    assert_int_equal(t_events_last(&ev, "weights/a.w")->step, STEPS / 2);
    assert_true(t_events_last(&ev, "weights/a.b")->max == 99);
    assert_true(t_events_last(&ev, "gradients/a.b")->min == -49.5);
    assert_int_equal(ev.graphs, 1);
    t_events_free(&ev);
}

/* Returns the maximum over all histograms of a name: the last one may have few values. */
static double largest(const struct t_events *ev, const char *tag)
{
    double max = -1;
    int i;

    for (i = 0; i < ev->n; i++)
        if (strcmp(ev->list[i].tag, tag) == 0 && ev->list[i].max > max)
            max = ev->list[i].max;
    return max;
}

static void ranks_have_files_of_their_own(void **state)
{
    char path[128];
    struct t_events ev;

    (void)state;
    make_run(true);
    snprintf(path, sizeof(path), "%s/rank1", dir);
    t_events_read(&ev, path);
    assert_true(fabsf(t_events_last(&ev, "phases_ms/forward")->simple - 2) < 0.01f);
    assert_true(fabsf(t_events_last(&ev, "phases_ms/backward")->simple - 8) < 0.01f);
    assert_true(t_events_last(&ev, "resources/rss_mb")->simple == 7);
    assert_true(t_events_last(&ev, "resources/cpu_percent")->simple > 0);
    assert_true(t_events_last(&ev, "resources/send_mb_s")->simple > 0);
    assert_true(t_events_last(&ev, "resources/disk_read_mb_s")->simple == 0);
    assert_true(largest(&ev, "staleness") == 2);
    assert_null(t_events_last(&ev, "loss"));
    t_events_free(&ev);
}

/* The end of the HParams plugin's session: field 4 of its data, with the status in field 1. */
static void the_end_says_how_it_went(void **state)
{
    static const unsigned char success[] = {0x22, 0x0b, 0x08, 0x01}, failure[] = {0x22, 0x0b, 8, 2};
    const struct t_value *end;
    struct t_events ev;

    (void)state;
    make_run(true);
    t_events_read(&ev, dir);
    assert_non_null(t_events_last(&ev, "_hparams_/experiment"));
    assert_non_null(t_events_last(&ev, "_hparams_/session_start_info"));
    end = t_events_last(&ev, "_hparams_/session_end_info");
    assert_non_null(end);
    assert_memory_equal(end->content, success, sizeof(success));
    t_events_free(&ev);
    remove_dir(NULL);
    assert_int_equal(make_dir(NULL), 0);
    make_run(false);
    t_events_read(&ev, dir);
    end = t_events_last(&ev, "_hparams_/session_end_info");
    assert_memory_equal(end->content, failure, sizeof(failure));
    t_events_free(&ev);
}

static void a_large_tensor_is_sampled_without_allocations(void **state)
{
    enum { N = 3 << 20 };
    static const struct vb_board_tensor tensor = {"large.w", 0, N};
    struct vb_recorder_opts opts = {.dir = dir};
    struct vb_board_opts board = {
        .dir = dir, .ranks = 1, .workers = 1, .tensors = &tensor, .n_tensors = 1};
    float *values = calloc(N, sizeof(*values));
    struct vb_recorder *rec;
    struct t_events ev;
    struct vb_board *b;
    long before;

    (void)state;
    assert_non_null(values);
    assert_int_equal(vb_recorder_open(&opts, &rec), VB_OK);
    board.rec = rec;
    assert_int_equal(vb_board_open(&board, &b), VB_OK);
    before = t_allocations;
    assert_true(vb_board_begin(b, 5));
    vb_board_count(b, VB_BOARD_WEIGHTS, values, 1);
    vb_board_end(b);
    assert_false(vb_board_begin(b, 6)); /* not yet written: this returns at once */
    assert_int_equal(t_allocations, before);
    assert_int_equal(vb_recorder_start(rec), VB_OK);
    vb_recorder_close(rec);
    t_events_read(&ev, dir);
    assert_true(t_events_last(&ev, "weights/large.w")->num >= (1 << 19));
    assert_true(t_events_last(&ev, "weights/large.w")->num <= (1 << 20) + 256);
    assert_null(t_events_last(&ev, "gradients/large.w")); /* none were counted */
    t_events_free(&ev);
    free(values);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(a_series_is_followed),
        WITH_DIR(rows_are_followed_from_a_step),
        WITH_DIR(rows_of_an_earlier_run_are_left_out),
        WITH_DIR(other_columns_are_refused_once),
        WITH_DIR(curves_show_what_was_recorded),
        WITH_DIR(ranks_have_files_of_their_own),
        WITH_DIR(the_end_says_how_it_went),
        WITH_DIR(a_large_tensor_is_sampled_without_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
