/* SPDX-License-Identifier: MIT
 *
 * Two ranks measure, their recorders write, and the merge joins them. The JSON is searched for what
 * it must have; the packets of the protobuf are counted.
 * tests/engine/record/trace.sh reads a real one.
 *
 * Covers: record/trace/chrome.c record/trace/perfetto.c record/trace/trace_arrows.c
 * Covers: record/trace/trace_files.c record/trace/trace_merge.c record/trace/trace_out.c
 * Covers: record/trace/trace_read.c record/trace/trace_tracks.c record/trace/trace_usage.c
 */
#include "record/record.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <stdlib.h>
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

/* What a rank does in these tests. */
typedef void (*act_fn)(int rank);

/* Measures what act() does as a rank, and writes it to the folder. */
static void be_rank(int rank, act_fn act)
{
    struct vb_recorder_opts opts = {.dir = dir, .rank = rank};
    struct vb_trace_files *files;
    struct vb_recorder *rec;
    struct vb_stream *usage;
    struct vb_usage_row row = {0};
    struct vb_trace *trace;
    char name[64];

    assert_int_equal(vb_recorder_open(&opts, &rec), VB_OK);
    assert_int_equal(vb_trace_create(64, &trace), VB_OK);
    vb_trace_attach(trace, "main");
    assert_int_equal(vb_trace_files_open(rec, trace, 64, rank, 2, &files), VB_OK);
    snprintf(name, sizeof(name), "rank%d/usage.bin", rank);
    assert_int_equal(vb_recorder_stream(rec, name, &vb_kind_usage, 64, &usage), VB_OK);
    assert_int_equal(vb_recorder_start(rec), VB_OK);
    row.at_ns = vb_record_clock_ns();
    vb_stream_put(usage, &row);
    vb_trace_count(trace);
    vb_trace_set(trace, true);
    act(rank);
    row.at_ns = vb_record_clock_ns() + 1000000;
    row.cpu_ns = 500000;
    vb_stream_put(usage, &row);
    vb_recorder_close(rec);
    vb_trace_detach();
    assert_true(vb_trace_files_free(files));
    vb_trace_destroy(trace);
}

/* Rank 0 sends a message within a step and starts a collective; rank 1 receives the message and
 * waits for rank 0. */
static void send_and_receive(int rank)
{
    uint64_t step = vb_trace_begin(), begin;

    if (rank == 0) {
        begin = vb_trace_begin();
        vb_trace_end_with(vb_trace_begin_part(), VB_OP_PUT, 4096, 1, vb_trace_message(0, 1, 7),
                          VB_TRACE_FROM);
        vb_trace_end_with(begin, VB_OP_ALLREDUCE, 100, -1, vb_trace_request(3, 0, 9),
                          VB_TRACE_LANE + VB_TRACE_FROM);
        vb_trace_end_with(begin, VB_OP_ALLREDUCE, 200, -1, vb_trace_request(3, 0, 10),
                          VB_TRACE_LANE + VB_TRACE_FROM);
    } else {
        vb_trace_moment(VB_OP_NOTE, 0, vb_trace_message(0, 1, 7));
        vb_trace_moment(VB_OP_NOTE, 0, vb_trace_message(0, 1, 8)); /* its put was not traced */
        vb_trace_past(VB_OP_WAIT, 1000000000, 0, vb_trace_request(3, 0, 9));
    }
    vb_trace_end(step, VB_OP_STEP, 0);
}

static vb_status merge(enum vb_trace_format format, const struct vb_clock_fit *clocks,
                       struct vb_trace_merged *merged)
{
    char path[128];
    struct vb_trace_merge_opts opts = {
        .dir = dir, .path = path, .format = format, .ranks = 3, .clocks = clocks};

    snprintf(path, sizeof(path), "%s/trace.%s", dir, format == VB_TRACE_JSON ? "json" : "pftrace");
    (void)unlink(path);
    return vb_trace_merge(&opts, merged);
}

static char *read_all(const char *name, size_t *len_p)
{
    static char text[65536];
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "re");
    assert_non_null(file);
    *len_p = fread(text, 1, sizeof(text) - 1, file);
    text[*len_p] = '\0';
    (void)fclose(file);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (text = strstr(text, what); text != NULL; text = strstr(text + 1, what))
        n++;
    return n;
}

static void json(void **state)
{
    struct vb_trace_merged m;
    size_t len;
    char *text;

    (void)state;
    be_rank(0, send_and_receive);
    be_rank(1, send_and_receive);
    assert_int_equal(merge(VB_TRACE_JSON, NULL, &m), VB_OK);
    assert_int_equal(m.ranks, 2);
    assert_int_equal(m.recorded, 8);
    assert_int_equal(m.arrows, 2);
    assert_int_equal(m.lost, 0);
    text = read_all("trace.json", &len);
    assert_int_equal(len, m.bytes);
    assert_int_equal(count(text, "\"ph\":\"B\""), 6);
    assert_int_equal(count(text, "\"ph\":\"E\""), 6);
    assert_int_equal(count(text, "\"ph\":\"i\""), 2);
    assert_int_equal(count(text, "\"ph\":\"s\""), 2);
    assert_int_equal(count(text, "\"ph\":\"f\""), 2);
    assert_int_equal(count(text, "\"put to rank 1\""), 1);
    assert_int_equal(count(text, "\"note of rank 0\""), 2);
    assert_int_equal(count(text, "\"wait for rank 0\""), 1);
    assert_int_equal(count(text, "\"bytes\":4096"), 1);
    assert_int_equal(count(text, "\"cpu %\""), 2);
    assert_int_equal(count(text, "\"collectives 1\""), 1); /* two overlap, so there are two lanes */
    assert_int_equal(m.events, count(text, "{\"ph\":") - count(text, "\"ph\":\"M\"") - 4);
}

/* Returns the number of packets whose first field is `field`, or -1 if lengths do not fit. */
static int count_packets(const unsigned char *b, size_t len, int field)
{
    size_t at = 0, n, shift;
    int found = 0;

    while (at < len) {
        if (b[at++] != 0x0a)
            return -1;
        for (n = shift = 0; at < len; shift += 7) {
            n |= (size_t)(b[at] & 127) << shift;
            if (b[at++] < 128)
                break;
        }
        if (n == 0 || at + n > len)
            return -1;
        found += b[at] >> 3 == field;
        at += n;
    }
    return found;
}

static void perfetto(void **state)
{
    struct vb_trace_merged m;
    size_t len;
    char *text;

    (void)state;
    assert_int_equal(merge(VB_TRACE_PERFETTO, NULL, &m), VB_OK);
    text = read_all("trace.pftrace", &len);
    assert_int_equal(len, m.bytes);
    assert_int_equal(count_packets((const void *)text, len, 8), m.events); /* timestamps */
    assert_int_equal(m.arrows, 2);
}

/* A clock of rank 1 that is said to be an hour ahead makes the note come before its put. */
static void wrong_clock(void **state)
{
    struct vb_clock_fit *fits = calloc(3, sizeof(*fits));
    struct vb_trace_merged m;
    char path[128];

    (void)state;
    assert_non_null(fits);
    vb_clock_fit_own(&fits[0]);
    fits[1].n = 1;
    fits[1].knots[0] = (struct vb_clock_knot){
        .local_ns = vb_record_clock_ns(), .offset_ns = 3600000000, .error_ns = 1000};
    assert_int_equal(merge(VB_TRACE_PERFETTO, fits, &m), VB_ERR_INPUT);
    snprintf(path, sizeof(path), "%s/trace.pftrace", dir);
    assert_int_not_equal(access(path, F_OK), 0);
    fits[1].knots[0].error_ns = UINT64_C(4000000000); /* such an error explains it */
    assert_int_equal(merge(VB_TRACE_PERFETTO, fits, &m), VB_OK);
    free(fits);
}

static void counts_of_operations(void **state)
{
    struct vb_trace_names *names = malloc(sizeof(*names));
    struct vb_trace_sum sums[VB_TRACE_OPS];

    (void)state;
    assert_non_null(names);
    assert_int_equal(vb_trace_names_read(dir, 2, names), VB_ERR_NO_FILE);
    assert_int_equal(vb_trace_names_read(dir, 0, names), VB_OK);
    assert_true(names->ended);
    assert_int_equal(names->threads, 2);
    assert_int_equal(names->n_ops, VB_OPS_FIXED);
    assert_string_equal(names->thread[0], "main");
    assert_int_equal(vb_trace_ops_read(dir, names, sums), VB_OK);
    assert_int_equal(sums[VB_OP_ALLREDUCE].calls, 2);
    assert_int_equal(sums[VB_OP_ALLREDUCE].bytes, 300);
    assert_int_equal(sums[VB_OP_STEP].calls, 1);
    assert_true(sums[VB_OP_ALL].ns > 0);
    free(names);
}

static void lose_events(int rank)
{
    int i;

    (void)rank;
    for (i = 0; i < 1000; i++) /* the recorder comes ten times a second */
        vb_trace_end(vb_trace_begin(), VB_OP_UPDATE, 4);
}

static void lost_events(void **state)
{
    struct vb_trace_merged m;

    (void)state;
    be_rank(0, lose_events);
    assert_int_equal(merge(VB_TRACE_PERFETTO, NULL, &m), VB_OK);
    assert_true(m.lost > 0);
    assert_int_equal(m.recorded + m.lost, 1000 + 4);
}

static void spoil(const char *name, const char *bytes, size_t len, long at)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, at < 0 ? "we" : "r+e");
    assert_non_null(file);
    if (at >= 0)
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

/* Files that were not written by verbena, or were cut, are refused or read as far as they go. */
static void broken_files(void **state)
{
    static const char *const names[] = {
        "",
        "nonsense\n",
        "verbena-names 1\nop\t999\ta\tb\tc\td\t0\t0\n",
        "verbena-names 1\nop\t-1\ta\tb\tc\td\t0\t0\n",
        "verbena-names 1\nop\t1\ta\n",
        "verbena-names 1\nthread\t99\tx\n",
        "verbena-names 1\nrank\t0\tx\t0\th\n",
        "verbena-names 1\nlost\tmany\n",
    };
    struct vb_trace_event wild = {.begin_ns = vb_record_clock_ns(), .op = UINT32_MAX};
    char head[VB_SERIES_HEAD_MAX], path[128];
    long first = (long)vb_series_head(&vb_kind_trace, head);
    struct vb_trace_merged m;
    size_t i;

    (void)state;
    be_rank(0, send_and_receive);
    be_rank(1, send_and_receive);
    snprintf(path, sizeof(path), "%s/rank1/trace.bin", dir);
    assert_int_equal(truncate(path, first + (long)sizeof(wild) + 20), 0); /* cut in a row */
    assert_int_equal(merge(VB_TRACE_PERFETTO, NULL, &m), VB_OK);
    assert_int_equal(m.recorded, 4 + 1);
    wild.begin_ns = vb_record_clock_ns();
    spoil("rank0/trace.bin", (const char *)&wild, sizeof(wild), first);
    assert_int_equal(merge(VB_TRACE_PERFETTO, NULL, &m), VB_ERR_INPUT);
    for (i = 0; i < VB_COUNT(names); i++) {
        spoil("rank0/names.bin", names[i], strlen(names[i]), -1);
        assert_int_equal(merge(VB_TRACE_PERFETTO, NULL, &m), VB_ERR_INPUT);
    }
}

static void no_place_to_write(void **state)
{
    struct vb_trace_merge_opts opts = {.dir = dir, .path = "/nowhere/trace.pftrace", .ranks = 1};
    struct vb_trace_merged m;

    (void)state;
    be_rank(0, send_and_receive);
    assert_int_not_equal(vb_trace_merge(&opts, &m), VB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json),
        cmocka_unit_test(perfetto),
        cmocka_unit_test(wrong_clock),
        cmocka_unit_test(counts_of_operations),
        cmocka_unit_test(lost_events),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(no_place_to_write),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
