/* SPDX-License-Identifier: MIT
 *
 * Tests the readers of image files (IDX and CIFAR-10) with complete and broken, plain and
 * compressed files.
 *
 * Covers: data/cifar.c data/gzip.c data/idx.c
 */
#include "tests/support/data_files.h"

#define RECORD 3073

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
                                 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

/* IDX data consist of a file of images and a file of labels. The file of labels is correct. */
static vb_status open_images(const char *path, struct vb_dataset *set_p)
{
    return vb_idx_read(path, t_path("right-labels"), set_p);
}

static vb_status open_labels(const char *path, struct vb_dataset *set_p)
{
    return vb_idx_read(t_path("right-images"), path, set_p);
}

static vb_status open_cifar(const char *path, struct vb_dataset *set_p)
{
    return vb_cifar_read(&path, 1, set_p);
}

static vb_status open_folder(const char *path, struct vb_dataset *set_p)
{
    return vb_cifar_open(path, VB_SYNTH_TRAIN, set_p);
}

static void write_right(void)
{
    t_write("right-images", images, sizeof(images));
    t_write("right-labels", labels, sizeof(labels));
}

static void idx_is_read(void **state)
{
    const uint32_t which[] = {2, 0};
    struct vb_dataset set;
    uint16_t y[2];
    float x[8];

    (void)state;
    write_right();
    assert_int_equal(open_images(t_gzip(t_path("right-images")), &set), VB_OK);
    assert_true(set.n == 3 && set.c == 1 && set.h == 2 && set.w == 2 && set.classes == 10);
    vb_dataset_pick(&set, which, 2, x, y);
    assert_true(y[0] == 9 && y[1] == 7);
    assert_true(x[3] == 255 * (1.0f / 255) && x[4] == 1.0f / 255);
    set.mean = 1;
    set.scale = 2;
    vb_dataset_pick(&set, which + 1, 1, x, y);
    assert_true(x[0] == 0 && x[3] == 6);
    vb_dataset_destroy(&set);
}

static void broken_idx_is_refused(void **state)
{
    uint8_t huge[20] = {0, 0, 8, 3, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 28, 0, 0, 0, 28};
    uint8_t more[sizeof(images) + 1];

    (void)state;
    write_right();
    t_wrong_things(open_images);
    t_wrong_things(open_labels);
    t_cut_everywhere(open_images, t_path("right-images"), 0);
    t_cut_everywhere(open_labels, t_path("right-labels"), 0);
    t_cut_everywhere(open_images, t_gzip(t_path("right-images")), 0);
    t_refused(open_images, t_write("huge", huge, sizeof(huge)), "offset 16: expected 1683627179");
    memcpy(more, images, sizeof(images));
    t_refused(open_images, t_write("more", more, sizeof(more)), "offset 28: unexpected bytes");
    t_refused(open_images, t_path("right-labels"), "offset 0");
    t_refused(open_labels, t_path("right-images"), "offset 0");
    t_refused(open_labels, t_write("four", "\0\0\10\1\0\0\0\4abcd", 12),
              "found 4 labels, expected 3");
    /* Only changes of pixels and of labels may be accepted. */
    assert_int_equal(t_flip_everywhere(open_images, t_path("right-images")), 12 * 8);
    assert_int_equal(t_flip_everywhere(open_labels, t_path("right-labels")), 3 * 8);
    /* In gzip's header only changes of the time, of the system and of flags without meaning may be
     * accepted. */
    assert_in_range(t_flip_everywhere(open_images, t_gzip(t_path("right-images"))), 0, 10 * 8);
}

/* A gzip file may have several members, and zeros after the last one; nothing else. */
static void only_zeros_may_follow_a_gzip_member(void **state)
{
    static uint8_t file[16384];
    struct vb_dataset set;
    size_t first, all;
    int padding;

    (void)state;
    write_right();
    first = t_read(t_gzip(t_write("a", images, 20)), file, sizeof(file));
    all = first + t_read(t_gzip(t_write("b", images + 20, sizeof(images) - 20)), file + first,
                         sizeof(file) - first);
    for (padding = 0; padding <= 4096; padding += 2048) {
        assert_int_equal(open_images(t_write("members", file, all + (size_t)padding), &set), VB_OK);
        vb_dataset_destroy(&set);
    }
    file[all + 1000] = 1;
    t_refused(open_images, t_write("late", file, all + 1001), "garbage after the compressed data");
    memset(file + all, 'g', 7);
    t_refused(open_images, t_write("garbage", file, all + 7), "garbage after the compressed data");
    t_refused(open_images, t_write("garbage", file, all + 1), "garbage after the compressed data");
    file[first] = 'x'; /* the second member is damaged: its contents must not be lost silently */
    t_refused(open_images, t_write("damaged", file, all), "garbage after the compressed data");
    file[all] = 0x1f;
    file[first] = 0x1f;
    t_refused(open_images, t_write("begun", file, all + 1), "the compressed data ends too early");
}

static void written_files_are_read_back(void **state)
{
    struct vb_dataset made, back;
    uint8_t a[VB_SYNTH_FEATURES], b[VB_SYNTH_FEATURES];
    int i;

    (void)state;
    assert_int_equal(vb_synth_create(5, VB_SYNTH_TEST, 20, &made), VB_OK);
    assert_int_equal(
        vb_idx_write(&made, t_path("t10k-images-idx3-ubyte"), t_path("t10k-labels-idx1-ubyte")),
        VB_OK);
    assert_int_equal(vb_mnist_open(t_dir, VB_SYNTH_TEST, &back), VB_OK);
    assert_int_equal(back.n, 20);
    for (i = 0; i < 20; i++) {
        assert_int_equal(vb_dataset_image(&made, i, a), vb_dataset_image(&back, i, b));
        assert_memory_equal(a, b, sizeof(a));
    }
    vb_dataset_destroy(&made);
    vb_dataset_destroy(&back);
}

static void cifar_is_read(void **state)
{
    static uint8_t data[3 * RECORD];
    struct vb_dataset set;
    uint8_t pixels[3072];
    char name[32];
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        data[i * RECORD] = (uint8_t)(9 - i);
        memset(data + i * RECORD + 1, 10 + i, RECORD - 1);
    }
    t_write("data_batch_1.bin", data, sizeof(data));
    for (i = 3; i <= 5; i++) {
        snprintf(name, sizeof(name), "data_batch_%d.bin", i);
        t_write(name, data, RECORD);
    }
    t_refused(open_folder, t_dir, "the folder has no file data_batch_2.bin");
    t_gzip(t_write("data_batch_2.bin", data, RECORD));
    unlink(t_path("data_batch_2.bin"));
    assert_int_equal(open_folder(t_dir, &set), VB_OK);
    assert_true(set.n == 7 && set.c == 3 && set.h == 32 && set.classes == 10);
    assert_int_equal(vb_dataset_image(&set, 2, pixels), 7);
    assert_true(pixels[0] == 12 && pixels[3071] == 12);
    vb_dataset_destroy(&set);
    t_wrong_things(open_cifar);
    t_refused(open_cifar, t_write("cut", data, RECORD + 5), "offset 3078");
    data[RECORD] = 10;
    t_refused(open_cifar, t_write("class", data, sizeof(data)), "offset 3073: found class 10");
    data[RECORD] = 8;
    t_refused(open_cifar, t_write("gz", "\x1f\x8b\x08\0\0\0\0\0\0\3abc", 13), "offset 0");
}

static void real_mnist_is_read(void **state)
{
    const char *path = t_real("mnist");
    char dir[PATH_MAX];
    struct vb_dataset set;
    struct vb_data_facts facts;

    (void)state;
    if (path == NULL)
        skip();
    snprintf(dir, sizeof(dir), "%s", path);
    assert_int_equal(vb_mnist_open(dir, VB_SYNTH_TRAIN, &set), VB_OK);
    assert_true(set.n == 60000 && set.features == 784 && set.classes == 10);
    assert_int_equal(vb_data_look(&set, &facts), VB_OK);
    assert_true(facts.count[0] == 5923 && facts.count[1] == 6742 && facts.most == 255);
    vb_data_facts_fini(&facts);
    vb_dataset_destroy(&set);
    assert_int_equal(vb_mnist_open(dir, VB_SYNTH_TEST, &set), VB_OK);
    assert_int_equal(set.n, 10000);
    vb_dataset_destroy(&set);
}

static void real_cifar_is_read(void **state)
{
    const char *path = t_real("cifar10/test_batch_first1000.bin.gz");
    struct vb_dataset set;
    uint8_t pixels[3072];

    (void)state;
    if (path == NULL)
        skip();
    assert_int_equal(vb_cifar_open(path, VB_SYNTH_TRAIN, &set), VB_OK);
    assert_int_equal(set.n, 1000);
    assert_int_equal(vb_dataset_image(&set, 0, pixels), 3); /* label 3: the first image is a cat */
    vb_dataset_destroy(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_is_read),
        cmocka_unit_test(broken_idx_is_refused),
        cmocka_unit_test(only_zeros_may_follow_a_gzip_member),
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(cifar_is_read),
        cmocka_unit_test(real_mnist_is_read),
        cmocka_unit_test(real_cifar_is_read),
    };

    return T_RUN_IN_DIR(tests);
}
