/* SPDX-License-Identifier: MIT
 *
 * Tests which files are compared with published ones, and how far they are read.
 */
#include "tests/support/data_files.h"

static int find(const char *spec_text, enum vb_synth_part part,
                struct vb_published_file found[VB_PUBLISHED_MAX])
{
    struct vb_data_spec spec;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_data_spec_parse(spec_text, &spec, why), VB_OK);
    return vb_data_published(&spec, part, found);
}

static void single_files_are_known_by_name(void **state)
{
    struct vb_published_file found[VB_PUBLISHED_MAX];

    (void)state;
    assert_int_equal(find("libsvm:/some/where/a9a", VB_SYNTH_TRAIN, found), 1);
    assert_string_equal(found[0].path, "/some/where/a9a");
    assert_int_equal(found[0].as->bytes, 2327314);
    assert_int_equal(find("libsvm:a9a.t", VB_SYNTH_TRAIN, found), 1);
    assert_string_equal(found[0].as->name, "a9a.t");
    assert_int_equal(find("libsvm:a9a.t.gz", VB_SYNTH_TEST, found), 1);
    assert_string_equal(found[0].as->name, "a9a.t");
    assert_int_equal(find("libsvm:a9a.bak", VB_SYNTH_TRAIN, found), 0);
    assert_int_equal(find("libsvm:xa9a", VB_SYNTH_TRAIN, found), 0);
    assert_int_equal(find("criteo:a9a", VB_SYNTH_TRAIN, found), 0); /* another format */
    assert_int_equal(find("synth:10", VB_SYNTH_TRAIN, found), 0);
}

static void files_of_a_folder_belong_to_a_part(void **state)
{
    struct vb_published_file found[VB_PUBLISHED_MAX];
    char spec[160];

    (void)state;
    snprintf(spec, sizeof(spec), "mnist:%s", t_dir);
    assert_int_equal(find(spec, VB_SYNTH_TRAIN, found), 0);
    t_write("train-images-idx3-ubyte.gz", "x", 1);
    t_write("train-labels-idx1-ubyte", "x", 1);
    t_write("t10k-labels-idx1-ubyte", "x", 1);
    assert_int_equal(find(spec, VB_SYNTH_TRAIN, found), 2);
    assert_string_equal(found[0].path, t_path("train-images-idx3-ubyte.gz"));
    assert_string_equal(found[1].path, t_path("train-labels-idx1-ubyte"));
    t_write("train-images-idx3-ubyte", "x", 1); /* readers take the plain file, too */
    assert_int_equal(find(spec, VB_SYNTH_TRAIN, found), 2);
    assert_string_equal(found[0].path, t_path("train-images-idx3-ubyte"));
    assert_int_equal(find(spec, VB_SYNTH_TEST, found), 1);
    assert_string_equal(found[0].as->name, "t10k-labels-idx1-ubyte");
}

static void all_files_of_a_part_have_room(void **state)
{
    struct vb_published_file found[VB_PUBLISHED_MAX];
    char name[32], spec[160];
    int i;

    (void)state;
    for (i = 1; i <= 5; i++) {
        snprintf(name, sizeof(name), "data_batch_%d.bin", i);
        t_write(name, "x", 1);
    }
    snprintf(spec, sizeof(spec), "cifar10:%s", t_dir);
    assert_int_equal(find(spec, VB_SYNTH_TRAIN, found), 5);
    assert_null(found[4].as->sha256);
    assert_int_equal(find(spec, VB_SYNTH_TEST, found), 0);
    snprintf(spec, sizeof(spec), "cifar10:%s/data_batch_3.bin", t_dir);
    assert_int_equal(find(spec, VB_SYNTH_TEST, found), 1); /* a single file has no parts */
    assert_string_equal(found[0].as->name, "data_batch_3.bin");
}

static void add(void *arg, const void *bytes, size_t len_bytes)
{
    uint64_t *sum = arg;
    size_t i;

    for (i = 0; i < len_bytes; i++)
        *sum += ((const uint8_t *)bytes)[i];
}

static void bytes_are_read_up_to_a_limit(void **state)
{
    static uint8_t data[1000000];
    uint64_t sum = 0, bytes = 0;
    const char *path;

    (void)state;
    memset(data, 1, sizeof(data));
    path = t_write("long", data, sizeof(data));
    assert_int_equal(vb_data_bytes(path, sizeof(data), add, &sum, &bytes), VB_OK);
    assert_int_equal(bytes, sizeof(data));
    assert_int_equal(sum, sizeof(data));
    assert_int_equal(vb_data_bytes(path, 10, add, &sum, &bytes), VB_OK);
    assert_true(bytes > 10 && bytes < sizeof(data));
    path = t_write("empty", data, 0);
    assert_int_equal(vb_data_bytes(path, 10, add, &sum, &bytes), VB_OK);
    assert_int_equal(bytes, 0);
    assert_true(vb_data_bytes(t_path("absent"), 10, add, &sum, &bytes) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_files_are_known_by_name),
        cmocka_unit_test(files_of_a_folder_belong_to_a_part),
        cmocka_unit_test(all_files_of_a_part_have_room),
        cmocka_unit_test(bytes_are_read_up_to_a_limit),
    };

    return T_RUN_IN_DIR(tests);
}
