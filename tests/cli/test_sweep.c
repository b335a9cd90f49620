/* SPDX-License-Identifier: MIT
 *
 * Tests the parts of verbena sweep that need no run: lists, cases, statistics, tables, the
 * recommendation, and folders of runs that may be broken.
 *
 * Covers: cli/sweep/sweep_advice.c cli/sweep/sweep_list.c cli/sweep/sweep_plan.c
 * Covers: cli/sweep/sweep_result.c cli/sweep/sweep_stats.c cli/sweep/sweep_table.c
 */
#include "cli/sweep/sweep.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <math.h>
#include <sys/stat.h>

/* ---- lists ----------------------------------------------------------------------------------- */

/* Checks that text is the list of `want`, whose values are separated by blanks. */
static void is_list(const char *text, const char *want)
{
    struct sweep_list list;
    char why[VB_OPTS_WHY], joined[1024] = "";
    int i;

    assert_int_equal(cli_sweep_list("batch", text, &list, why), VB_OK);
    for (i = 0; i < list.n; i++)
        snprintf(joined + strlen(joined), sizeof(joined) - strlen(joined), "%s%s", i > 0 ? " " : "",
                 list.values[i]);
    assert_string_equal(joined, want);
}

static void is_no_list(const char *text, const char *reason)
{
    struct sweep_list list;
    char why[VB_OPTS_WHY] = "";

    assert_int_equal(cli_sweep_list("batch", text, &list, why), VB_ERR_USAGE);
    assert_non_null(strstr(why, reason));
}

static void test_lists(void **state)
{
    (void)state;
    is_list("16", "16");
    is_list("16,32,16", "16 32");
    is_list("sync,async", "sync async");
    is_list("0.1,1e-3", "0.1 1e-3");
    is_list("100m,1g:5", "100m 1g:5");
    is_list("-1,0,4", "-1 0 4");
    is_list("16..128x2", "16 32 64 128");
    is_list("16..100x2,7", "16 32 64 7");
    is_list("1..4", "1 2 3 4");
    is_list("10..31+10", "10 20 30");
    is_list("5..5", "5");
    is_list("1..4000000000000000000x2000000", "1 2000000 4000000000000");
}

static void test_bad_lists(void **state)
{
    (void)state;
    is_no_list("", "empty");
    is_no_list("1,,2", "empty");
    is_no_list("1,2,", "empty");
    is_no_list("4..1", "a range is");
    is_no_list("1..", "a range is");
    is_no_list("..4", "a range is");
    is_no_list("1..4x1", "a range is");
    is_no_list("1..4+0", "a range is");
    is_no_list("0..4x2", "a range is");
    is_no_list("1..9999999999999999999", "a range is");
    is_no_list("1..4x2x2", "a range is");
    is_no_list("1..1000", "at most");
    is_no_list("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "too long");
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void give(struct sweep_plan *plan, enum sweep_axis axis, const char *text)
{
    char why[VB_OPTS_WHY];

    assert_int_equal(cli_sweep_list(cli_sweep_axes[axis], text, &plan->lists[axis], why), VB_OK);
}

/* Checks the names of all cases, separated by blanks. */
static void has_cases(struct sweep_plan *plan, const char *want)
{
    char why[VB_OPTS_WHY] = "", joined[4096] = "";
    int i;

    assert_int_equal(cli_sweep_plan(plan, why), VB_OK);
    for (i = 0; i < plan->n_cases; i++)
        snprintf(joined + strlen(joined), sizeof(joined) - strlen(joined), "%s%s", i > 0 ? " " : "",
                 plan->cases[i].name);
    assert_string_equal(joined, want);
}

static struct sweep_plan *new_plan(void)
{
    struct sweep_plan *plan = calloc(1, sizeof(*plan));

    assert_non_null(plan);
    plan->ranks = 1;
    plan->repeat = 1;
    return plan;
}

static void end_plan(struct sweep_plan *plan)
{
    cli_sweep_plan_fini(plan);
    free(plan);
}

static void test_cases(void **state)
{
    struct sweep_plan *plan = new_plan();

    (void)state;
    give(plan, AXIS_BATCH, "8,16");
    give(plan, AXIS_RANKS, "1,2");
    has_cases(plan, "ranks-1_batch-8 ranks-1_batch-16 ranks-2_batch-8 ranks-2_batch-16");
    assert_int_equal(plan->n_notes, 0);
    end_plan(plan);

    plan = new_plan(); /* options without effect, and jobs that are the same */
    give(plan, AXIS_MODE, "single,sync,async");
    give(plan, AXIS_STALENESS, "0,-1");
    give(plan, AXIS_TRANSPORT, "shm,tcp");
    give(plan, AXIS_RANKS, "1,2");
    has_cases(plan, "mode-single_ranks-1 mode-sync_transport-shm_ranks-2 "
                    "mode-sync_transport-tcp_ranks-2 mode-async_staleness-0_ranks-1 "
                    "mode-async_staleness-0_transport-shm_ranks-2 "
                    "mode-async_staleness-0_transport-tcp_ranks-2 mode-async_staleness--1_ranks-1 "
                    "mode-async_staleness--1_transport-shm_ranks-2 "
                    "mode-async_staleness--1_transport-tcp_ranks-2");
    assert_int_equal(plan->n_notes, 4);
    end_plan(plan);

    plan = new_plan();
    give(plan, AXIS_LINK, "1g,100m:2.5");
    give(plan, AXIS_TRANSPORT, "auto,shm");
    give(plan, AXIS_RANKS, "1,2");
    has_cases(plan, "ranks-1 link-1g_transport-auto_ranks-2 link-100m-2.5_transport-auto_ranks-2");
    end_plan(plan);
}

static void test_no_cases(void **state)
{
    struct sweep_plan *plan = new_plan();
    char why[VB_OPTS_WHY] = "";

    (void)state;
    give(plan, AXIS_MODE, "single");
    give(plan, AXIS_RANKS, "2,3");
    assert_int_equal(cli_sweep_plan(plan, why), VB_ERR_USAGE);
    assert_non_null(strstr(why, "--mode single has one rank"));
    end_plan(plan);

    plan = new_plan();
    give(plan, AXIS_BATCH, "8");
    give(plan, AXIS_GLOBAL_BATCH, "8");
    assert_int_equal(cli_sweep_plan(plan, why), VB_ERR_USAGE);
    end_plan(plan);

    plan = new_plan();
    plan->repeat = 100;
    give(plan, AXIS_BATCH, "1..50");
    assert_int_equal(cli_sweep_plan(plan, why), VB_ERR_USAGE);
    assert_non_null(strstr(why, "at most"));
    end_plan(plan);
}

static void test_order(void **state)
{
    static const int want[] = {0, 1, 2, 2, 1, 0, 0, 1, 2};
    struct sweep_plan plan = {.n_cases = 3, .repeat = 3};
    int i, c, repeat;

    (void)state;
    for (i = 0; i < 9; i++) {
        cli_sweep_order(&plan, i, &c, &repeat);
        assert_int_equal(c, want[i]);
        assert_int_equal(repeat, i / 3);
    }
}

/* ---- statistics and tables ------------------------------------------------------------------- */

static void test_stats(void **state)
{
    const double values[] = {5, (double)NAN, 1, 4, 2};
    struct sweep_stat s = cli_sweep_stat(values, 5);

    (void)state;
    assert_int_equal(s.n, 4);
    assert_true(s.median == 3 && s.min == 1 && s.max == 5);
    s = cli_sweep_stat(values + 1, 1);
    assert_true(s.n == 0 && isnan(s.median));
}

static struct sweep_result result_of(double ranks, double batch, double speed, double accuracy)
{
    struct sweep_result r = {.done = true, .ok = true, .ranks = ranks, .batch = batch};
    int m;

    for (m = 0; m < SWEEP_METRICS; m++)
        r.value[m] = (double)NAN;
    r.global_batch = ranks * batch;
    r.test_samples = 10000;
    r.noise_error = 0;
    r.value[METRIC_SAMPLES_PER_S] = speed;
    r.value[METRIC_ACCURACY] = accuracy;
    r.n_nodes = (int)ranks;
    r.node_s[0] = r.node_s[1] = 1.5;
    snprintf(r.resource, sizeof(r.resource), "compute");
    snprintf(r.mode, sizeof(r.mode), "sync");
    return r;
}

/* Returns what is written by a function of tables. */
static char *text_of(void (*fn)(FILE *out, const struct sweep_table *t),
                     const struct sweep_table *t)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    fn(out, t);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_tables(void **state)
{
    struct sweep_plan *plan = new_plan();
    struct sweep_result results[] = {
        result_of(2, 8, 100, 0.9), result_of(2, 8, 300, 0.9), {.done = true, .error = "no"}};
    struct sweep_row *rows = calloc(2, sizeof(*rows));
    struct sweep_table t = {.plan = plan, .rows = rows, .n = 2};
    char *text;

    (void)state;
    give(plan, AXIS_BATCH, "8,16");
    has_cases(plan, "batch-8 batch-16");
    cli_sweep_row(&plan->cases[0], results, 2, &rows[0]);
    cli_sweep_row(&plan->cases[1], results + 2, 1, &rows[1]);
    text = text_of(cli_sweep_csv, &t);
    assert_non_null(strstr(text, "batch,runs,failed,train_s,"));
    assert_non_null(strstr(text, "\n8,2,0,"));
    assert_non_null(strstr(text, ",200,100,300,"));
    assert_non_null(strstr(text, ",1.5;1.5,compute\n16,0,1,"));
    free(text);
    text = text_of(cli_sweep_markdown, &t);
    assert_non_null(strstr(text, "| 8 | 2 | 200 (100 to 300) | 0.9000 (0.9000 to 0.9000) |"));
    assert_non_null(strstr(text, "| 16 | 0, 1 failed | - | - |"));
    assert_null(strstr(text, "staleness")); /* nothing has one */
    free(text);
    text = text_of(cli_sweep_text, &t);
    assert_non_null(strstr(text, "0 of 2\n"));
    assert_non_null(strstr(text, "1 of 1\n"));
    free(text);
    free(rows);
    end_plan(plan);
}

/* ---- the recommendation ---------------------------------------------------------------------- */

static const struct sweep_case plain_case;

/* Makes a row for each result and returns the row that is recommended. */
static int advised(const struct sweep_result *results, int n, const char *reason)
{
    struct sweep_row *rows = calloc((size_t)n, sizeof(*rows));
    struct sweep_advice advice;
    int i;

    for (i = 0; i < n; i++)
        cli_sweep_row(&plain_case, &results[i], 1, &rows[i]);
    cli_sweep_advise(rows, n, NULL, &advice);
    if (strstr(advice.why, reason) == NULL)
        fail_msg("'%s' does not contain '%s'", advice.why, reason);
    free(rows);
    return advice.row;
}

static void test_advice_speed(void **state)
{
    /* noise of the test data at 90 % of 10,000 samples: 0.85 points */
    struct sweep_result r[] = {result_of(1, 16, 100, 0.9), result_of(1, 64, 200, 0.895),
                               result_of(1, 256, 400, 0.88)};

    (void)state;
    assert_int_equal(advised(r, 3, "2 of 3 cases"), 1);
    r[2].value[METRIC_ACCURACY] = 0.893;
    assert_int_equal(advised(r, 3, "highest throughput, 400 samples/s"), 2);
    r[2].ok = false; /* it failed */
    assert_int_equal(advised(r, 3, "highest throughput, 200 samples/s"), 1);
}

static void test_advice_noise(void **state)
{
    struct sweep_result r[] = {result_of(2, 16, 100, 0.9), result_of(2, 64, 200, 0.9),
                               result_of(2, 256, 400, 0.9)};

    (void)state;
    r[1].value[METRIC_NOISE_SCALE] = 150; /* batches of 32, 128 and 512 */
    assert_int_equal(advised(r, 3, "noise scale is about 150 samples: the larger batches of 1"), 1);
    r[1].noise_error = 200;
    assert_int_equal(advised(r, 3, "noise scale is about 150 samples"), 2);
    r[1].noise_error = 0;
    r[1].value[METRIC_NOISE_SCALE] = 10; /* all are above it: the smallest is left */
    assert_int_equal(advised(r, 3, "larger batches of 2"), 0);
}

static void test_advice_ties(void **state)
{
    struct sweep_result r[] = {result_of(3, 16, 101, 0.9), result_of(1, 48, 100, 0.9),
                               result_of(2, 24, 100.5, 0.9)};

    (void)state;
    assert_int_equal(advised(r, 3, "3 ranks are not better than 1"), 1);
    r[0].value[METRIC_SAMPLES_PER_S] = 150;
    assert_int_equal(advised(r, 3, "150 samples/s"), 0);
}

static void test_advice_until(void **state)
{
    struct sweep_result r[] = {result_of(1, 16, 100, 0.9), result_of(1, 64, 200, 0.9),
                               result_of(1, 256, 400, 0.7)};
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        r[i].asked_until = true;
    r[0].value[METRIC_TIME_TO_S] = 3;
    r[1].value[METRIC_TIME_TO_S] = 5;
    assert_int_equal(advised(r, 3, "least time to --until, 3 s, of 2 of 3 cases"), 0);
    r[0].value[METRIC_TIME_TO_S] = r[1].value[METRIC_TIME_TO_S] = (double)NAN;
    assert_int_equal(advised(r, 3, "no case reached --until; highest throughput"), 1);
}

static void test_no_advice(void **state)
{
    struct sweep_result r[] = {{.done = true, .error = "no"}};

    (void)state;
    assert_int_equal(advised(r, 1, "no case has ended"), -1);
}

/* ---- folders --------------------------------------------------------------------------------- */

static char folder[PATH_MAX / 2];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/verbena-test-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return t_folder_remove(folder);
}

static vb_status read_of(const char *json, struct sweep_result *r)
{
    char path[PATH_MAX], model[] = "softmax", *argv[] = {model};
    FILE *file;

    snprintf(path, sizeof(path), "%s/run.json", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    return cli_sweep_read(folder, argv, 1, r);
}

#define COMMAND "\"command\": [\"verbena\", \"train\", \"softmax\"]"

static void test_folders(void **state)
{
    struct sweep_result r;
    char *none[] = {NULL};

    (void)state;
    assert_int_equal(cli_sweep_read(folder, none, 0, &r), VB_AGAIN);
    assert_int_equal(read_of("", &r), VB_AGAIN);
    assert_int_equal(read_of("{\"run\": {\"state\": \"en", &r), VB_AGAIN);
    assert_int_equal(read_of("[1]", &r), VB_AGAIN);
    assert_int_equal(read_of("{\"run\": {\"state\": \"running\", " COMMAND "}}", &r), VB_AGAIN);
    assert_int_equal(read_of("{\"run\": {\"state\": \"ended\", " COMMAND "}}", &r), VB_AGAIN);
    assert_int_equal(read_of("{\"steps\": 3, \"train_s\": 2, \"run\": {\"state\": \"ended\", "
                             "\"command\": [\"verbena\", \"train\", \"lenet\"]}}",
                             &r),
                     VB_ERR_USAGE);
    assert_int_equal(
        read_of("{\"steps\": 3, \"train_s\": 2, \"accuracy\": \"high\", \"per_rank\": "
                "[{\"train_s\": 2, \"cpu_pct\": 50, \"rss_peak_mb\": 7}, {\"train_s\": 4, "
                "\"cpu_pct\": 70, \"rss_peak_mb\": 9}, 5], \"run\": {\"state\": \"ended\", " COMMAND
                "}}",
                &r),
        VB_OK);
    assert_true(r.ok && r.value[METRIC_STEPS] == 3 && isnan(r.value[METRIC_ACCURACY]));
    assert_true(r.value[METRIC_CPU_PCT] == 60 && r.value[METRIC_RSS_PEAK_MB] == 9);
    assert_true(r.n_nodes == 3 && r.node_s[1] == 4 && isnan(r.node_s[2]));
}

static void test_errors(void **state)
{
    struct sweep_result r;
    char log[PATH_MAX];
    FILE *file;

    (void)state;
    snprintf(log, sizeof(log), "%s/log", folder);
    cli_sweep_read_error(folder, log, 137, &r);
    assert_string_equal(r.error, "the run ended with exit code 137");
    file = fopen(log, "w");
    assert_non_null(file);
    fputs("first\n\033[31mlast line\n\n", file);
    fclose(file);
    cli_sweep_read_error(folder, log, 1, &r);
    assert_string_equal(r.error, " [31mlast line");
    (void)read_of("{\"run\": {\"state\": \"failed\", \"why\": \"no memory\"}}", &r);
    cli_sweep_read_error(folder, log, 1, &r);
    assert_string_equal(r.error, "no memory");
    assert_true(r.done && !r.ok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_bad_lists),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_no_cases),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_advice_speed),
        cmocka_unit_test(test_advice_noise),
        cmocka_unit_test(test_advice_ties),
        cmocka_unit_test(test_advice_until),
        cmocka_unit_test(test_no_advice),
        cmocka_unit_test_setup_teardown(test_folders, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_errors, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
