/* SPDX-License-Identifier: MIT
 *
 * Tests the guesses at the format of data that cannot be read.
 */
#include "data/data_priv.h"
#include "tests/support/sysroot.h"
#include "tests/support/test.h"

#include <limits.h>
#include <string.h>

static int guess_of(struct t_tree *tree, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", tree->root, name);
    return vb_data_guess(path);
}

static void bytes_tell_the_format(void **state)
{
    char line[200] = "1", cifar[3073 + 1];
    struct t_tree tree;
    int i;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "csr", "VBCSR and more");
    assert_int_equal(guess_of(&tree, "csr"), VB_DATA_CSR);
    for (i = 0; i < 39; i++)
        strcat(line, "\t7");
    t_tree_text(&tree, "criteo", line);
    assert_int_equal(guess_of(&tree, "criteo"), VB_DATA_CRITEO);
    t_tree_text(&tree, "libsvm", "-1 3:0.5 9:1\n");
    assert_int_equal(guess_of(&tree, "libsvm"), VB_DATA_LIBSVM);
    memset(cifar, 3, sizeof(cifar) - 1);
    cifar[sizeof(cifar) - 1] = '\0';
    t_tree_text(&tree, "cifar", cifar);
    assert_int_equal(guess_of(&tree, "cifar"), VB_DATA_CIFAR10);
    t_tree_text(&tree, "words", "some words\n");
    assert_int_equal(guess_of(&tree, "words"), -1);
    t_tree_text(&tree, "empty", "");
    assert_int_equal(guess_of(&tree, "empty"), -1);
    assert_int_equal(guess_of(&tree, "none"), -1);
    t_tree_destroy(&tree);
}

static void names_tell_the_format_of_a_folder(void **state)
{
    struct t_tree tree;

    (void)state;
    t_tree_create(&tree);
    assert_int_equal(guess_of(&tree, "."), -1);
    t_tree_text(&tree, "c/data_batch_1.bin", "x");
    assert_int_equal(guess_of(&tree, "c"), VB_DATA_CIFAR10);
    t_tree_text(&tree, "m/train-images-idx3-ubyte.gz", "x");
    assert_int_equal(guess_of(&tree, "m"), VB_DATA_MNIST);
    t_tree_destroy(&tree);
}

static void expect_help(vb_status st, enum vb_data_format format, const char *path,
                        const char *help)
{
    struct t_stderr err;
    char said[1024];

    t_stderr_catch(&err);
    VB_LOG_ERROR("wrong");
    assert_int_equal(vb_data_fix(st, format, path), st);
    t_stderr_release(&err, said, sizeof(said));
    if (strstr(said, help) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", said, help);
}

static void errors_get_help(void **state)
{
    struct t_tree tree;
    char path[PATH_MAX];

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "day_0", "VBCSR");
    snprintf(path, sizeof(path), "%s/day_0", tree.root);
    expect_help(VB_ERR_INPUT, VB_DATA_CRITEO, path, "  fix: csr:/");
    expect_help(VB_ERR_INPUT, VB_DATA_CSR, path, "  fix: verbena data --help");
    expect_help(VB_ERR_NO_FILE, VB_DATA_MNIST, "/none", "  fix: ls -l /none ");
    t_tree_destroy(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_tell_the_format),
        cmocka_unit_test(names_tell_the_format_of_a_folder),
        cmocka_unit_test(errors_get_help),
    };

    return T_RUN(tests);
}
