/* SPDX-License-Identifier: MIT
 *
 * Builds trees of system files for tests. These trees contain garbage, pipes and names that the
 * repository must not contain, so they cannot be recordings in tests/sysroots.
 */
#ifndef VB_TESTS_SUPPORT_SYSROOT_H
#define VB_TESTS_SUPPORT_SYSROOT_H

#include "tests/support/files.h"
#include "tests/support/test.h"

#include <limits.h>
#include <sys/stat.h>

struct t_tree {
    char root[64];
};

static inline void t_tree_create(struct t_tree *tree)
{
    *tree = (struct t_tree){.root = "/tmp/verbena-sysroot-XXXXXX"};
    assert_non_null(mkdtemp(tree->root));
}

static inline void t_tree_destroy(struct t_tree *tree)
{
    t_folder_remove(tree->root);
}

/* Computes the full path of a file in the tree and makes the folders above it. */
static inline void t_tree_path(const struct t_tree *tree, const char *path, char full[PATH_MAX])
{
    char *slash;

    assert_true(snprintf(full, PATH_MAX, "%s/%s", tree->root, path) < PATH_MAX);
    for (slash = strchr(full + strlen(tree->root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755); /* fails harmlessly if the folder exists already */
        *slash = '/';
    }
}

static inline void t_tree_bytes(const struct t_tree *tree, const char *path, const void *bytes,
                                size_t len)
{
    char full[PATH_MAX];

    t_tree_path(tree, path, full);
    t_file_write(full, bytes, len);
}

static inline void t_tree_text(const struct t_tree *tree, const char *path, const char *text)
{
    t_tree_bytes(tree, path, text, strlen(text));
}

/* Writes a file of pseudo-random bytes. The bytes are the same in every run. */
static inline void t_tree_garbage(const struct t_tree *tree, const char *path, size_t len)
{
    unsigned char *bytes = malloc(len);
    uint32_t x = 2463534242u;
    size_t i;

    assert_non_null(bytes);
    for (i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        bytes[i] = (unsigned char)(x >> 8);
    }
    t_tree_bytes(tree, path, bytes, len);
    free(bytes);
}

#endif
