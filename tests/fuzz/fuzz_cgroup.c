/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the reader of cgroups. The input is /proc/self/cgroup; the bytes after the first zero byte
 * are the cpu.max of the topmost group.
 *
 * Covers: topo/cgroup.c
 */
#include "tests/fuzz/fuzz.h"
#include "topo/topo.h"

#include <sys/stat.h>

static char root[] = "/tmp/verbena-fuzz-XXXXXX";

static void put(const char *path, const void *data, size_t len)
{
    char full[128];
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    file = fopen(full, "w");
    if (file == NULL || fwrite(data, 1, len, file) != len)
        abort();
    fclose(file);
}

static void remove_root(void)
{
    static const char *const paths[] = {
        "proc/self/cgroup", "proc/self", "proc", "sys/fs/cgroup/cpu.max",
        "sys/fs/cgroup",    "sys/fs",    "sys",  ""};
    char full[128];
    size_t i;

    for (i = 0; i < VB_COUNT(paths); i++) {
        snprintf(full, sizeof(full), "%s/%s", root, paths[i]);
        remove(full);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const folders[] = {"proc", "proc/self", "sys", "sys/fs", "sys/fs/cgroup"};
    char full[128];
    size_t i;

    (void)argc;
    (void)argv;
    if (mkdtemp(root) == NULL)
        abort();
    for (i = 0; i < VB_COUNT(folders); i++) {
        snprintf(full, sizeof(full), "%s/%s", root, folders[i]);
        mkdir(full, 0700);
    }
    atexit(remove_root);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t first = zero != NULL ? (size_t)(zero - data) : size;
    double quota;

    put("proc/self/cgroup", data, first);
    put("sys/fs/cgroup/cpu.max", data + first, size - first);
    quota = vb_topo_cpu_quota(root);
    if (!(quota >= 0))
        abort();
    return 0;
}
