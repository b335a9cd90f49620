/* SPDX-License-Identifier: MIT
 *
 * Covers: record/board/events.c record/board/proto.c record/board/histogram.c
 */
#include "record/board/events.h"
#include "tests/record/event_reader.h"
#include "tests/support/test.h"

#include <float.h>
#include <math.h>

/* ---- a sink in memory ------------------------------------------------------------------------ */

static unsigned char written[1 << 20];
static size_t n_written;
static int n_appends, n_failing;

static vb_status keep(void *arg, const char *file, const void *bytes, size_t len)
{
    (void)arg, (void)file;
    n_appends++;
    if (n_failing > 0) {
        n_failing--;
        return VB_ERR_IO;
    }
    assert_true(len <= sizeof(written) - n_written);
    memcpy(written + n_written, bytes, len);
    n_written += len;
    return VB_OK;
}

static struct vb_recorder *rec;
static unsigned char room[VB_EVENT_BYTES];
static struct vb_events ev;

static int open_events(void **state)
{
    struct vb_recorder_opts opts = {.sink = {.append = keep}};

    (void)state;
    n_written = 0;
    n_appends = n_failing = 0;
    if (vb_recorder_open(&opts, &rec) != VB_OK)
        return -1;
    vb_events_init(&ev, rec, "", 0, room);
    return 0;
}

static int close_events(void **state)
{
    (void)state;
    vb_recorder_close(rec); /* it was never started: this thread is the one that appends */
    return 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Records that TensorBoard 2.21's own RecordWriter has written. */
static const char version[] = "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22"
                              "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"
                              "brain.Event:2\x2a\x28\x64\x6c";
static const char loss[] = "\x1a\x00\x00\x00\x00\x00\x00\x00\x12\x9b\xd8\x2d"
                           "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x2a\x0d\x0a\x0b\x0a\x04"
                           "loss\x15\x00\x00\x80\x3e\xc9\xd0\x7b\x8d";

static void bytes_are_those_of_tensorboard(void **state)
{
    (void)state;
    vb_events_begin(&ev, 1.5, 7);
    vb_events_scalar(&ev, "loss", 0.25);
    assert_int_equal(vb_events_end(&ev), VB_OK);
    assert_memory_equal(written, version, sizeof(version) - 1);
    assert_memory_equal(written + n_written - (sizeof(loss) - 1), loss, sizeof(loss) - 1);
    assert_int_equal(n_appends, 3); /* version, start of the session, value: one append each */
}

static void names_differ(void **state)
{
    char names[500][VB_EVENTS_NAME];
    int i, k;

    (void)state;
    for (i = 0; i < 500; i++) {
        vb_events_init(&ev, rec, "rank1234/", 0, room);
        memcpy(names[i], ev.file, sizeof(names[i]));
        assert_true(strlen(ev.file) < VB_EVENTS_NAME - 1); /* it was not cut */
        assert_int_equal(strncmp(ev.file, "rank1234/events.out.tfevents.", 29), 0);
        assert_null(strchr(ev.file + 9, '/'));
        for (k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
    }
}

static void a_session_begins_at_its_first_step(void **state)
{
    struct t_events read = {0};

    (void)state;
    vb_events_init(&ev, rec, "", 401, room);
    vb_events_begin(&ev, 1.5, 401);
    vb_events_scalar(&ev, "loss", 1);
    assert_int_equal(vb_events_end(&ev), VB_OK);
    t_read_records(&read, written, n_written);
    assert_int_equal(read.records, 3);
    assert_int_equal(read.sessions, 1);
    assert_int_equal(read.session_step, 401);
    t_events_free(&read);
}

static void an_event_without_values_is_not_written(void **state)
{
    struct vb_histogram h;

    (void)state;
    vb_histogram_clear(&h);
    vb_events_begin(&ev, 1.5, 7);
    vb_events_histogram(&ev, "none", &h);
    assert_int_equal(vb_events_end(&ev), VB_OK);
    assert_int_equal(n_appends, 2);
}

/* A file that does not begin with its version cannot be read. */
static void a_disk_that_fails_first_leaves_a_file_that_reads(void **state)
{
    struct t_events read = {0};
    int i;

    (void)state;
    n_failing = 3;
    for (i = 1; i <= 5; i++) {
        vb_events_begin(&ev, 1.5, i);
        vb_events_scalar(&ev, "loss", i);
        (void)vb_events_end(&ev);
    }
    t_read_records(&read, written, n_written);
    assert_int_equal(read.versions, 1);
    assert_int_equal(read.n, 2);
    assert_int_equal(read.list[0].step, 4);
    assert_true(ev.lost >= 3);
    t_events_free(&read);
}

static void what_is_too_long_is_lost_not_cut(void **state)
{
    static unsigned char large[VB_EVENT_BYTES];
    struct vb_proto graph = {.bytes = large, .len = sizeof(large), .size = sizeof(large)};
    struct t_events read = {0};

    (void)state;
    assert_int_not_equal(vb_events_graph(&ev, 1.5, &graph), VB_OK);
    assert_int_equal(ev.lost, 1);
    graph.len = 100;
    graph.cut = true;
    assert_int_not_equal(vb_events_graph(&ev, 1.5, &graph), VB_OK);
    t_read_records(&read, written, n_written);
    assert_int_equal(read.graphs, 0);
    t_events_free(&read);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void lengths_are_right_at_every_size(void **state)
{
    static unsigned char bytes[40000], text[20000];
    const unsigned char *at, *end;
    struct t_field f;
    size_t n, outer, inner;

    (void)state;
    for (n = 0; n < sizeof(text); n = n < 300 ? n + 1 : n * 2) {
        struct vb_proto p = {.bytes = bytes, .size = sizeof(bytes)};

        outer = vb_proto_begin(&p, 3);
        inner = vb_proto_begin(&p, 16);
        vb_proto_bytes(&p, 2, text, n);
        vb_proto_end(&p, inner);
        vb_proto_int(&p, 1, UINT64_MAX);
        vb_proto_end(&p, outer);
        assert_false(p.cut);
        at = p.bytes;
        assert_true(t_next_field(&at, p.bytes + p.len, &f) && f.number == 3);
        assert_ptr_equal(at, p.bytes + p.len);
        at = f.bytes;
        end = at + f.len;
        assert_true(t_next_field(&at, end, &f) && f.number == 16);
        assert_true(t_next_field(&f.bytes, f.bytes + f.len, &(struct t_field){0}));
        assert_true(t_next_field(&at, end, &f) && f.number == 1 && f.value == UINT64_MAX);
        assert_ptr_equal(at, end);
    }
}

static void a_message_never_leaves_its_room(void **state)
{
    unsigned char bytes[64];
    size_t size, begin;

    (void)state;
    for (size = 0; size < 40; size++) {
        struct vb_proto p = {.bytes = bytes, .size = size};

        memset(bytes, 0xee, sizeof(bytes));
        begin = vb_proto_begin(&p, 1);
        vb_proto_text(&p, 2, "twelve bytes");
        vb_proto_double(&p, 3, 1);
        vb_proto_float(&p, 4, 1);
        vb_proto_packed_double(&p, 1);
        vb_proto_end(&p, begin);
        assert_int_equal(p.cut, size < 38); /* 1 + 14 + 9 + 5 + 8 and one byte of length */
        assert_int_equal(bytes[size], 0xee);
    }
}

/* ---- histograms ------------------------------------------------------------------------------ */

static void each_number_is_in_its_bucket(void **state)
{
    static const float some[] = {0,      -0.f,  1,      -1,     1.125f, 0.1f,    -0.1f,
                                 1e-30f, 1e30f, -1e30f, 3e-12f, 65504,  FLT_MAX, FLT_MIN};
    struct vb_histogram h;
    size_t i;
    int b;

    (void)state;
    for (b = 1; b < VB_HISTOGRAM_BUCKETS; b++)
        assert_true(vb_histogram_limit(b - 1) < vb_histogram_limit(b));
    for (i = 0; i < VB_COUNT(some); i++) {
        vb_histogram_clear(&h);
        vb_histogram_add(&h, &some[i], 1, 1);
        for (b = 0; h.bucket[b] == 0; b++)
            ;
        if (b > 0)
            assert_true((double)some[i] >= vb_histogram_limit(b - 1));
        if (b < VB_HISTOGRAM_BUCKETS - 1)
            assert_true((double)some[i] <= vb_histogram_limit(b));
        assert_true(h.min == (double)some[i] && h.max == (double)some[i]);
    }
}

static void sums_are_right(void **state)
{
    float values[1000];
    struct vb_histogram h;
    double sum = 0, squares = 0;
    uint64_t counted = 0;
    int i;

    (void)state;
    vb_histogram_clear(&h);
    for (i = 0; i < 1000; i++) {
        values[i] = (float)(i - 300) / 64;
        sum += (double)values[i] * 2;
        squares += (double)values[i] * (double)values[i] * 4;
    }
    values[7] = NAN;
    values[8] = INFINITY;
    sum -= 2 * ((7 - 300) / 64. + (8 - 300) / 64.);
    squares -= 4 * (pow((7 - 300) / 64., 2) + pow((8 - 300) / 64., 2));
    vb_histogram_add(&h, values, 1000, 2);
    for (i = 0; i < VB_HISTOGRAM_BUCKETS; i++)
        counted += h.bucket[i];
    assert_int_equal(h.n, 998);
    assert_int_equal(counted, 998);
    assert_int_equal(h.others, 2);
    assert_true(fabs(h.sum - sum) < 1e-9 && fabs(h.squares - squares) < 1e-6);
    assert_true(h.min == -300 / 32. && h.max == 699 / 32.);
}

static void a_histogram_is_read_back(void **state)
{
    static const float values[] = {-2, -2, 0, 0.5f, 1000};
    struct t_events read = {0};
    struct vb_histogram h;

    (void)state;
    vb_histogram_clear(&h);
    vb_histogram_add(&h, values, VB_COUNT(values), 1);
    vb_events_begin(&ev, 1.5, 9);
    vb_events_histogram(&ev, "h", &h);
    assert_int_equal(vb_events_end(&ev), VB_OK);
    assert_true(n_written < 600); /* runs of empty buckets are one bucket */
    t_read_records(&read, written, n_written);
    assert_int_equal(read.n, 1);
    assert_true(read.list[0].min == -2 && read.list[0].max == 1000 && read.list[0].num == 5);
    t_events_free(&read);
}

#define WITH_EVENTS(test) cmocka_unit_test_setup_teardown(test, open_events, close_events)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_EVENTS(bytes_are_those_of_tensorboard),
        WITH_EVENTS(names_differ),
        WITH_EVENTS(a_session_begins_at_its_first_step),
        WITH_EVENTS(an_event_without_values_is_not_written),
        WITH_EVENTS(a_disk_that_fails_first_leaves_a_file_that_reads),
        WITH_EVENTS(what_is_too_long_is_lost_not_cut),
        WITH_EVENTS(a_histogram_is_read_back),
        cmocka_unit_test(lengths_are_right_at_every_size),
        cmocka_unit_test(a_message_never_leaves_its_room),
        cmocka_unit_test(each_number_is_in_its_bucket),
        cmocka_unit_test(sums_are_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
