/* SPDX-License-Identifier: MIT
 *
 * Tests the readers of sparse rows: libsvm text, Criteo's text, TFRecord, and our own format .csr.
 *
 * Covers: data/convert.c data/criteo.c data/csr.c data/example.c data/libsvm.c data/rows.c
 * Covers: data/tfrecord.c
 */
#include "tests/support/data_files.h"
#include "tests/support/random.h"

#include "data/csr_priv.h"

#include <math.h>

static const char svm[] = "+1 3:0.5 1:2 # a comment\n"
                          "\n"
                          "-1\n"
                          "-1 2:1e-3\r\n"
                          "1.0 7:-1";

static vb_status open_with(vb_status (*read)(const char *, int, struct row_sink *),
                           const char *path, int features, struct vb_dataset *set_p)
{
    struct rows_mem *mem;
    vb_status st = vb_rows_mem_create(0, &mem);

    assert_int_equal(st, VB_OK);
    st = read(path, features, vb_rows_mem_sink(mem));
    if (st == VB_OK)
        st = vb_rows_mem_finish(mem, path, set_p);
    vb_rows_mem_destroy(mem);
    return st;
}

static vb_status open_svm(const char *path, struct vb_dataset *set_p)
{
    return open_with(vb_libsvm_read, path, 0, set_p);
}

static vb_status open_criteo(const char *path, struct vb_dataset *set_p)
{
    return open_with(vb_criteo_read, path, 1013, set_p);
}

static vb_status open_tf(const char *path, struct vb_dataset *set_p)
{
    return open_with(vb_tfrecord_read, path, 0, set_p);
}

static vb_status open_csr_spec(const char *path, struct vb_dataset *set_p)
{
    const struct vb_data_spec spec = {.format = VB_DATA_CSR, .path = path};

    return vb_data_open(&spec, 1, VB_SYNTH_TRAIN, set_p);
}

/* Returns row i of a data set. The row is valid until the next call. */
static struct row row_of(const struct vb_dataset *set, int i)
{
    static struct row_room room;
    struct row row = {.n = 0};

    assert_int_equal(vb_dataset_row(set, i, &row, &room), VB_OK);
    return row;
}

/* ---- libsvm ---------------------------------------------------------------------------------- */

static void libsvm_is_read(void **state)
{
    const char *path = t_write("svm", svm, sizeof(svm) - 1);
    const char *paths[2] = {path, t_gzip(path)};
    struct vb_dataset set = {.n = 0};
    struct row row = {.n = 0};
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        assert_int_equal(open_svm(paths[i], &set), VB_OK);
        assert_true(set.n == 4 && set.features == 7 && set.row_max == 2);
        row = row_of(&set, 0); /* the entries must be sorted */
        assert_true(row.n == 2 && row.y == 1 && row.index[0] == 0 && row.index[1] == 2);
        assert_true(row.value[0] == 2 && row.value[1] == 0.5f);
        row = row_of(&set, 1);
        assert_true(row.n == 0 && row.y == 0);
        assert_true(row_of(&set, 2).value[0] == 1e-3f && row_of(&set, 3).y == 1);
        vb_dataset_destroy(&set);
    }
    assert_int_equal(open_with(vb_libsvm_read, path, 7, &set), VB_OK);
    vb_dataset_destroy(&set);
}

static void broken_libsvm_is_refused(void **state)
{
    static const char *const bad[][2] = {
        {"1 1:1\nx 1:1\n", "line 2: the label is not a number"},
        {"3 1:1\n", "line 1: the label must be"},
        {"1 0:1\n", "line 1: indices begin at 1"},
        {"1 -4:1\n", "line 1: indices begin at 1"},
        {"1 2147483648:1\n", "line 1: the index is too large"},
        {"1 99999999999999999999:1\n", "line 1: the index is not"},
        {"1 1:1 2\n", "line 1: an entry is not INDEX:VALUE"},
        {"1 1:\n", "line 1: the value is not a number"},
        {"1 1:nan\n", "line 1: the value is not a number"},
        {"1 1:1e39\n", "line 1: the value is too large"},
        {"1 1:1\n0 2:1 4:-3e38\n",
         "line 2: the value is too large, scale the data: its square is infinite as a float: "
         "'-3e38'"},
        {"1 1:1.9e19\n", "line 1: the value is too large"},
        {"1 1:1\n1 3:1 2147483647:1\n",
         "line 2: the index needs 2147483647 weights on every rank; if it is right, allow it with "
         "--features 2147483647: '2147483647'"},
        {"1 100000001:1\n", "line 1: the index needs 100000001 weights"},
        {"1 1:1\n0 1:1\n-1 1:1\n", "line 3: the labels must be 0 and 1, or -1 and 1"},
        {"-1 1:1\n1 1:1\n0 1:1\n", "line 3: the labels must be 0 and 1, or -1 and 1"},
        {"1 1:0x10\n", "line 1: the value is not a number"},
        {"1 1:1\n1 2:1 2:3\n", "line 2: an index occurs twice: '2'"},
        {"1 qid:3 1:1\n", "line 1: the index is not"},
        {"\n\n# nothing\n", "has no rows"},
    };
    size_t i;

    (void)state;
    t_wrong_things(open_svm);
    for (i = 0; i < VB_COUNT(bad); i++)
        t_refused(open_svm, t_write("bad", bad[i][0], strlen(bad[i][0])), bad[i][1]);
    t_refused(open_svm, t_write("zero", "1 1:1\n1 2\0:1\n", 13), "line 2: there is a zero byte");
    t_cut_everywhere(open_svm, t_gzip(t_write("svm", svm, sizeof(svm) - 1)), 0);
    t_flip_everywhere(open_svm, t_path("svm"));
    t_flip_everywhere(open_svm, t_path("svm.gz"));
}

/* The largest index is allowed if the user gives the number of features, and the features of
 * Criteo are allowed in any case. */
static void many_features_must_be_asked_for(void **state)
{
    const char *path = t_write("many", "1 2147483647:1\n", 15);
    const char *criteo = t_write("criteo-size", "1 33762578:1e19\n", 16);
    struct vb_data_spec spec = {.format = VB_DATA_LIBSVM, .path = path, .features = INT32_MAX};
    struct vb_data_written written;
    struct vb_dataset set = {.n = 0};

    (void)state;
    assert_int_equal(open_with(vb_libsvm_read, path, INT32_MAX, &set), VB_OK);
    assert_int_equal(set.features, INT32_MAX);
    vb_dataset_destroy(&set);
    assert_int_equal(open_svm(criteo, &set), VB_OK);
    assert_int_equal(set.features, VB_SYNTH_ROW_FEATURES);
    vb_dataset_destroy(&set);
    assert_int_equal(
        vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, t_path("many.csr"), NULL, NULL, &written), VB_OK);
    t_refused(open_csr_spec, t_path("many.csr"),
              "offset 40: the file has 2147483647 features and needs as many weights on every "
              "rank; if this is right, allow it with --features 2147483647");
    spec = (struct vb_data_spec){
        .format = VB_DATA_CSR, .path = t_path("many.csr"), .features = INT32_MAX};
    assert_int_equal(vb_data_open(&spec, 1, VB_SYNTH_TRAIN, &set), VB_OK);
    vb_dataset_destroy(&set);
}

/* ---- Criteo ---------------------------------------------------------------------------------- */

/* Writes a line that begins with the given fields; all other fields are empty. Returns the length
 * of the line. */
static size_t criteo_line(char *to, const char *fields)
{
    int tabs = 0, i;
    size_t n = 0;

    for (i = 0; fields[i] != '\0'; i++)
        tabs += (to[n++] = fields[i]) == '\t';
    for (; tabs < 39; tabs++)
        to[n++] = '\t';
    to[n++] = '\n';
    return n;
}

static void criteo_is_read(void **state)
{
    const char first[] = "1\t5\t-2\t0\t\t\t\t\t\t\t\t\t\t\t68fd1e64\t80E26C9B";
    struct vb_dataset set = {.n = 0};
    struct row row = {.n = 0};
    char text[512];
    size_t n;

    (void)state;
    n = criteo_line(text, first);
    n += criteo_line(text + n, "0");
    assert_int_equal(open_criteo(t_write("criteo", text, n), &set), VB_OK);
    assert_true(set.n == 2 && set.features == 1013);
    row = row_of(&set, 0);
    assert_true(row.n == 4 && row.y == 1 && row.index[0] == 0 && row.index[1] == 1);
    assert_true(row.value[0] == (float)log1p(5) && row.value[1] == (float)-log1p(2));
    n = 13 + vb_random(0, 0x68fd1e64) % 1000;
    assert_true(row.index[2] == n || row.index[3] == n);
    n = 13 + vb_random(1, 0x80e26c9b) % 1000;
    assert_true(row.index[2] == n || row.index[3] == n);
    assert_true(row.value[2] == 1 && row.value[3] == 1);
    assert_int_equal(row_of(&set, 1).n, 0);
    vb_dataset_destroy(&set);
}

static void broken_criteo_is_refused(void **state)
{
    static const char *const bad[][2] = {
        {"2", "line 1: field 1: the label must be"},
        {"", "line 1: field 1: the label must be"},
        {"1\tx", "line 1: field 2: the value is not a whole number"},
        {"1\t1.5", "line 1: field 2: the value is not a whole number"},
        {"1\t\t\t\t\t\t\t\t\t\t\t\t\t\t68fd1e6g",
         "line 1: field 15: the value is not a hexadecimal"},
        {"1\t\t\t\t\t\t\t\t\t\t\t\t\t\t68fd1e640",
         "line 1: field 15: the value is not a hexadecimal"},
    };
    char text[512];
    size_t i, n;

    (void)state;
    t_wrong_things(open_criteo);
    for (i = 0; i < VB_COUNT(bad); i++) {
        n = criteo_line(text, bad[i][0]);
        t_refused(open_criteo, t_write("bad", text, n), bad[i][1]);
    }
    n = criteo_line(text, "1\t2");
    t_refused(open_criteo, t_write("bad", text + 1, n - 1), "line 1: field 1");
    t_refused(open_criteo, t_write("bad", "1\t2\n", 4),
              "line 1: the line has 2 fields, expected 40");
    text[n - 1] = '\t';
    text[n] = '\n';
    t_refused(open_criteo, t_write("bad", text, n + 1), "more than 40 fields");
    n = criteo_line(text, "1\t77\t8\t\t\t\t\t\t\t\t\t\t\t\tabcdef01");
    /* the only accepted length is the one that lacks only the newline */
    t_cut_everywhere(open_criteo, t_write("criteo", text, n), 1);
    t_flip_everywhere(open_criteo, t_path("criteo"));
}

/* ---- TFRecord -------------------------------------------------------------------------------- */

static uint32_t masked(const void *data, size_t len)
{
    uint32_t crc = vb_crc32c(0, data, len);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static size_t tf_record(uint8_t *to, const uint8_t *data, size_t len)
{
    uint64_t size = len;
    uint32_t crc;

    memcpy(to, &size, 8);
    crc = masked(to, 8);
    memcpy(to + 8, &crc, 4);
    memcpy(to + 12, data, len);
    crc = masked(data, len);
    memcpy(to + 12 + len, &crc, 4);
    return 16 + len;
}

/* a record with label 1, indices 5 and 300, and values 0.5 and 2; the first value is not packed, as
 * in files of old writers */
static const uint8_t example[] = {
    0x0a, 0x3a, /* head of the features */
    0x0a, 0x0e, 0x0a, 5,    'l',  'a', 'b', 'e', 'l', 0x12, 5,   0x1a, 3,  0x0a, 1,  1, /* packed */
    0x0a, 0x10, 0x0a, 5,    'i',  'n', 'd', 'e', 'x', 0x12, 7,   0x1a, 5,  0x0a, 3,  5,
    0xac, 2,    0x0a, 0x16, 0x0a, 5,   'v', 'a', 'l', 'u',  'e', 0x12, 13, 0x12, 11, 0x0d,
    0,    0,    0,    0x3f, 0x0a, 4,   0,   0,   0,   0x40};

static const char *tf_file(const uint8_t *data, size_t len, int n)
{
    static uint8_t file[4096];
    size_t at = 0;

    while (n-- > 0)
        at += tf_record(file + at, data, len);
    return t_write("tf", file, at);
}

/* Writes a file of one example, in which one byte is changed and the checksums are correct. Returns
 * the path of the file. */
static const char *tf_changed(size_t at, uint8_t byte)
{
    uint8_t data[sizeof(example)];

    memcpy(data, example, sizeof(example));
    data[at] = byte;
    return tf_file(data, sizeof(data), 1);
}

static void tfrecord_is_read(void **state)
{
    const char *path = tf_file(example, sizeof(example), 2);
    const char *paths[2] = {path, t_gzip(path)};
    struct vb_dataset set = {.n = 0};
    struct row row = {.n = 0};
    int i;

    (void)state;
    assert_int_equal(example[1] + 2, sizeof(example));
    for (i = 0; i < 2; i++) {
        assert_int_equal(open_tf(paths[i], &set), VB_OK);
        assert_true(set.n == 2 && set.features == 301);
        row = row_of(&set, 1);
        assert_true(row.y == 1 && row.n == 2 && row.index[0] == 5 && row.index[1] == 300);
        assert_true(row.value[0] == 0.5f && row.value[1] == 2);
        vb_dataset_destroy(&set);
    }
}

/* Writes a file of one example whose second index is 2147483646, which needs three bytes more than
 * 300. Returns the path of the file. */
static const char *tf_huge_index(void)
{
    static const uint8_t index[] = {0xfe, 0xff, 0xff, 0xff, 7};
    static const size_t lengths[] = {1, 19, 28, 30, 32};
    uint8_t data[sizeof(example) + 3];
    size_t i;

    memcpy(data, example, 34);
    memcpy(data + 34, index, sizeof(index));
    memcpy(data + 34 + sizeof(index), example + 36, sizeof(example) - 36);
    for (i = 0; i < VB_COUNT(lengths); i++)
        data[lengths[i]] += 3;
    return tf_file(data, sizeof(data), 1);
}

static void broken_tfrecord_is_refused(void **state)
{
    uint8_t claim[20] = {0, 0, 0, 0, 1}, twice[sizeof(example)];
    uint32_t crc = masked(claim, 8);

    (void)state;
    memcpy(twice, example, sizeof(example));
    twice[34] = 0x85; /* the second index becomes 5 too, encoded in two bytes */
    twice[35] = 0;
    t_wrong_things(open_tf);
    /* the only accepted length is the one with one record less */
    t_cut_everywhere(open_tf, tf_file(example, sizeof(example), 2), 1);
    assert_int_equal(t_flip_everywhere(open_tf, t_path("tf")), 0);
    t_cut_everywhere(open_tf, t_gzip(t_path("tf")), 0);
    memcpy(claim + 8, &crc, 4);
    t_refused(open_tf, t_write("claim", claim, 20), "record 1: the record is longer than the rest");
    t_refused(open_tf, tf_changed(6, 'L'), "offset 0: record 1: there is no feature `label`");
    t_refused(open_tf, tf_changed(34, 5), "`index` and `value` have different lengths");
    t_refused(open_tf, tf_changed(24, 'D'), "`index` and `value` have different lengths");
    t_refused(open_tf, tf_file(twice, sizeof(twice), 1), "an index occurs twice: '5'");
    t_refused(open_tf, tf_huge_index(),
              "offset 0: record 1: the index needs 2147483647 weights on every rank; if it is "
              "right, allow it with --features 2147483647: '2147483646'");
    t_refused(open_tf, tf_changed(17, 2), "offset 0: record 1: the label must be 0 or 1");
    t_refused(open_tf, tf_changed(sizeof(example) - 1, 0x7f),
              "a value is not finite, or its square");
    t_refused(open_tf, tf_changed(1, 0x3b), "a field ends after its message");
    t_refused(open_tf, tf_changed(2, 0x0b), "a field has an unknown type");
    t_refused(open_tf, tf_changed(29, 0x12), "`index` has floats");
    t_refused(open_tf, tf_changed(13, 0x0a), "has bytes, expected numbers");
}

/* Reads examples with random changes and correct checksums. No change may cause a crash. */
static void changed_examples_do_not_crash(void **state)
{
    struct t_stderr err;
    char said[1 << 16];
    size_t i;
    int b;

    (void)state;
    for (i = 0; i < sizeof(example); i++) {
        for (b = 0; b < 256; b += 5) {
            t_stderr_catch(&err);
            (void)t_open_works(open_tf, tf_changed(i, (uint8_t)b));
            t_stderr_release(&err, said, sizeof(said));
        }
    }
}

/* ---- .csr ------------------------------------------------------------------------------------ */

static const char *csr_file(const char *svm_text, size_t len)
{
    struct vb_data_spec spec = {.format = VB_DATA_LIBSVM, .path = t_write("from", svm_text, len)};
    struct vb_data_written written;
    const char *path = t_path("csr");

    assert_int_equal(vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, path, NULL, NULL, &written), VB_OK);
    return path;
}

static void csr_is_read_back(void **state)
{
    struct vb_dataset made, mapped;
    struct vb_data_spec spec;
    struct vb_data_written written;
    struct row_room room;
    struct row a, b;
    char why[VB_OPTS_WHY];
    int i, e;

    (void)state;
    assert_int_equal(vb_data_spec_parse("synth:kind=criteo,n=20000,features=5000", &spec, why),
                     VB_OK);
    assert_int_equal(
        vb_data_convert(&spec, 3, VB_SYNTH_TRAIN, t_path("made"), NULL, NULL, &written), VB_OK);
    assert_int_equal(vb_data_open(&spec, 3, VB_SYNTH_TRAIN, &made), VB_OK);
    assert_int_equal(vb_csr_open(t_path("made"), &mapped), VB_OK);
    assert_true(mapped.n == 20000 && mapped.features == 5000 && written.rows == 20000);
    for (i = 0; i < made.n; i++) {
        assert_int_equal(vb_dataset_row(&made, i, &a, &room), VB_OK);
        assert_int_equal(vb_dataset_row(&mapped, i, &b, NULL), VB_OK);
        /* only the 13 numbers have a value; the categories after them have none */
        assert_true(a.n == b.n && a.y == b.y && b.n_values <= 13);
        assert_memory_equal(a.index, b.index, (size_t)a.n * 4);
        for (e = 0; e < a.n; e++)
            assert_true(row_value(&a, e) == row_value(&b, e));
    }
    vb_dataset_destroy(&made);
    vb_dataset_destroy(&mapped);
}

/* Writes a .csr file in which the 32-bit word at offset `at` is changed and the checksums are
 * correct. Returns the path of the file. */
static const char *csr_changed(size_t at, uint32_t word)
{
    static uint8_t data[4096];
    size_t len = t_read(csr_file(svm, sizeof(svm) - 1), data, sizeof(data));
    struct csr_head head;
    struct csr_block block;

    memcpy(data + at, &word, 4);
    memcpy(&head, data, sizeof(head));
    memcpy(&block, data + len - sizeof(block), sizeof(block));
    block.crc = vb_crc32c(0, data + 64, csr_block_bytes(&block));
    memcpy(data + len - sizeof(block), &block, sizeof(block));
    head.table_crc = vb_crc32c(0, data + len - sizeof(block), sizeof(block));
    head.crc = csr_head_crc(head);
    memcpy(data, &head, sizeof(head));
    return t_write("changed", data, len);
}

static void broken_csr_is_refused(void **state)
{
    (void)state;
    t_wrong_things(vb_csr_open);
    t_cut_everywhere(vb_csr_open, csr_file(svm, sizeof(svm) - 1), 0);
    assert_int_equal(t_flip_everywhere(vb_csr_open, t_path("csr")), 0);
    t_refused(vb_csr_open, csr_changed(8, 1), "offset 8: the version");
    t_refused(vb_csr_open, csr_changed(16, 5), "the blocks do not match the header");
    t_refused(vb_csr_open, csr_changed(20, 1), "impossible sizes");
    t_refused(vb_csr_open, csr_changed(40, 3), "an index is out of range or out of order");
    t_refused(vb_csr_open, csr_changed(44, 1), "longer than the header says");
    t_refused(vb_csr_open, csr_changed(44, 7), "offset 44: the longest row that the header");
    t_refused(vb_csr_open, csr_changed(48, 8), "not as long as its header says");
    t_refused(vb_csr_open, csr_changed(56, 0), "not as long as its header says");
    t_refused(vb_csr_open, csr_changed(64, 1),
              "the rows of a block do not match the size of the block");
    t_refused(vb_csr_open, csr_changed(68, 13), "a row ends before it begins");
    t_refused(vb_csr_open, csr_changed(68, 0), "a row ends before it begins");
    t_refused(vb_csr_open, csr_changed(68, 1), "more values than entries");
    /* 3 values, but the row has only 4 words for indices and values */
    t_refused(vb_csr_open, csr_changed(84, 7), "more values than entries");
    t_refused(vb_csr_open, csr_changed(84, UINT32_MAX), "more values than entries");
    t_refused(vb_csr_open, csr_changed(92, 0),
              "an index is out of range or out of order"); /* both indices are 0 */
    t_refused(vb_csr_open, csr_changed(100, 0x7fc00000), "a value is not finite");
    t_refused(vb_csr_open, csr_changed(100, 0x7f000000), "its square is infinite as a float");
    t_refused(vb_csr_open, csr_changed(104, 2), "more values than entries");
}

/* Reads all rows of a mapped file that may have been overwritten. Returns the number of batches
 * that were refused. No index that is passed on may be out of range. */
static int read_changed(const struct vb_dataset *set, const char *path)
{
    enum { BATCH = 10 };
    size_t room = (size_t)BATCH * (size_t)set->row_max;
    uint32_t which[BATCH], *index = malloc(room * sizeof(*index));
    float *value = malloc(room * sizeof(*value));
    int64_t at[BATCH + 1], e;
    uint8_t y[BATCH];
    struct vb_rows rows = {.at = at, .index = index, .value = value, .y = y, .room = (int64_t)room};
    struct t_stderr err;
    char said[4096];
    int i, k, refused = 0;
    vb_status st;

    for (i = 0; i + BATCH <= set->n; i += BATCH) {
        for (k = 0; k < BATCH; k++)
            which[k] = (uint32_t)(i + k);
        t_stderr_catch(&err);
        st = vb_dataset_rows(set, which, BATCH, &rows);
        t_stderr_release(&err, said, sizeof(said));
        assert_true(st == VB_OK || st == VB_ERR_INPUT);
        for (e = 0; st == VB_OK && e < at[BATCH]; e++)
            assert_true(index[e] < (uint32_t)set->features);
        if (st == VB_OK)
            continue;
        assert_non_null(strstr(said, path));
        assert_non_null(strstr(said, "the file changed while it was in use"));
        refused++;
    }
    free(index);
    free(value);
    return refused;
}

/* Rows of a file that is overwritten in place are refused, or are at least harmless. */
static void a_csr_file_may_change_while_it_is_mapped(void **state)
{
    static const int fills[] = {0xff, 0x7f, 1, 0};
    static uint8_t data[1 << 20];
    struct vb_dataset set;
    struct vb_data_spec spec;
    struct vb_data_written written;
    char why[VB_OPTS_WHY], path[128];
    uint32_t seed = 7, word;
    size_t len, i, k;
    FILE *file;

    (void)state;
    snprintf(path, sizeof(path), "%s", t_path("changing"));
    assert_int_equal(vb_data_spec_parse("synth:kind=criteo,n=200,features=5000", &spec, why),
                     VB_OK);
    assert_int_equal(vb_data_convert(&spec, 3, VB_SYNTH_TRAIN, path, NULL, NULL, &written), VB_OK);
    len = t_read(path, data, sizeof(data));
    assert_int_equal(vb_csr_open(path, &set), VB_OK);
    assert_int_equal(read_changed(&set, path), 0);
    file = fopen(path, "r+b"); /* the same file, not a new one */
    assert_non_null(file);
    for (i = 0; i < VB_COUNT(fills); i++) { /* all of the file, with header and table */
        for (k = 0; k < len; k++)
            putc(fills[i], file);
        rewind(file);
        assert_int_equal(read_changed(&set, path), 20);
    }
    for (i = 0; i < 300; i++) { /* some words of the file */
        assert_int_equal(fwrite(data, 1, len, file), len);
        for (k = 0; k < 8; k++) {
            word = t_random(&seed) >> t_random(&seed) % 32;
            assert_int_equal(fseek(file, (long)(t_random(&seed) % (len / 4) * 4), SEEK_SET), 0);
            assert_int_equal(fwrite(&word, sizeof(word), 1, file), 1);
        }
        rewind(file);
        (void)read_changed(&set, path);
    }
    fclose(file);
    vb_dataset_destroy(&set);
}

static void nothing_is_left_of_a_failed_conversion(void **state)
{
    struct vb_data_spec spec = {.format = VB_DATA_LIBSVM};
    struct vb_data_written written;
    struct t_stderr err;
    char said[4096], command[200];

    (void)state;
    spec.path = t_write("bad", "1 1:1\n1 1:x\n", 12);
    t_stderr_catch(&err);
    assert_int_equal(vb_data_convert(&spec, 1, VB_SYNTH_TRAIN, t_path("out"), NULL, NULL, &written),
                     VB_ERR_INPUT);
    t_stderr_release(&err, said, sizeof(said));
    snprintf(command, sizeof(command), "! ls %s | grep -q out", t_dir);
    assert_int_equal(system(command), 0);
}

/* ---- real data ------------------------------------------------------------------------------- */

static void real_a9a_is_read(void **state)
{
    struct vb_data_ask ask = {.data = {.format = VB_DATA_LIBSVM}};
    struct vb_data_spec test = {.format = VB_DATA_LIBSVM};
    struct vb_dataset a, b;
    struct vb_data_facts facts;
    char train_path[PATH_MAX];

    (void)state;
    if (t_real("a9a/a9a") == NULL)
        skip();
    snprintf(train_path, sizeof(train_path), "%s", t_real("a9a/a9a"));
    ask.data.path = train_path;
    test.path = t_real("a9a/a9a.t");
    ask.test = &test;
    assert_int_equal(vb_data_open_both(&ask, &a, &b), VB_OK);
    assert_true(a.n == 32561 && b.n == 16281 && a.features == 123 && b.features == 123);
    assert_int_equal(vb_data_look(&a, &facts), VB_OK);
    assert_int_equal(facts.nonzeros, 451592);
    vb_data_facts_fini(&facts);
    vb_dataset_destroy(&a);
    vb_dataset_destroy(&b);
}

static const char *count_feature(void *arg, const struct example_feature *f)
{
    (void)f;
    ++*(int *)arg;
    return NULL;
}

/* Reads records that TensorFlow has written. These records are not sparse rows, but they are
 * valid. */
static void real_records_are_valid(void **state)
{
    static const struct {
        const char *name;
        int records, features; /* number of records, and of features per record */
    } files[] = {{"tfrecord/tfx_mnist.tfrecord", 1000, 2},
                 {"tfrecord/tfx_penguin_train.gz", 0, 0},
                 {"tfrecord/tfx_taxi_data_tfrecord-00000-of-00002.gz", 0, 0}};
    size_t i;

    (void)state;
    if (t_real(files[0].name) == NULL)
        skip();
    for (i = 0; i < VB_COUNT(files); i++) {
        struct tfrecord t = {.n = 0};
        const uint8_t *data;
        int n = 0, features = 0;
        size_t len;

        assert_int_equal(vb_stream_open(t_real(files[i].name), &t.stream), VB_OK);
        while (vb_tfrecord_next(&t, &data, &len) == VB_OK && data != NULL) {
            assert_null(vb_example_each(data, len, count_feature, &features));
            n++;
        }
        assert_true(vb_stream_offset(t.stream) > 0 && data == NULL && n > 100);
        print_message("%s: found %d records and %d features\n", files[i].name, n, features);
        if (files[i].records > 0)
            assert_true(n == files[i].records && features == n * files[i].features);
        vb_tfrecord_fini(&t);
        vb_stream_close(t.stream);
    }
    t_refused(open_tf, t_real(files[0].name), "record 1: there is no feature `label`");
    t_refused(open_tf, t_real("tfevents/functionaltests_events.out.tfevents.1476472047.localhost"),
              "record 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libsvm_is_read),
        cmocka_unit_test(broken_libsvm_is_refused),
        cmocka_unit_test(many_features_must_be_asked_for),
        cmocka_unit_test(criteo_is_read),
        cmocka_unit_test(broken_criteo_is_refused),
        cmocka_unit_test(tfrecord_is_read),
        cmocka_unit_test(broken_tfrecord_is_refused),
        cmocka_unit_test(changed_examples_do_not_crash),
        cmocka_unit_test(csr_is_read_back),
        cmocka_unit_test(broken_csr_is_refused),
        cmocka_unit_test(a_csr_file_may_change_while_it_is_mapped),
        cmocka_unit_test(nothing_is_left_of_a_failed_conversion),
        cmocka_unit_test(real_a9a_is_read),
        cmocka_unit_test(real_records_are_valid),
    };

    return T_RUN_IN_DIR(tests);
}
