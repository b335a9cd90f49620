/* SPDX-License-Identifier: MIT
 *
 * Finds out whether the machine has the kernel module rdma_rxe, which kernels for clouds often
 * lack, and the command that creates a soft-RoCE device.
 */
#include "net/probe/probe_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MODULE_DIR "kernel/drivers/infiniband/sw/rxe"
#define MODULE_FILE "rdma_rxe.ko" /* the file name may end with .xz, .zst or .gz */

/* A line of modules.dep or modules.builtin starts with the path of a module. */
static bool module_line(char *line, void *arg)
{
    const char *base, *end = line + strcspn(line, ":");

    for (base = end; base > line && base[-1] != '/';)
        base--;
    if (strncmp(base, MODULE_FILE, strlen(MODULE_FILE)) != 0)
        return true;
    *(bool *)arg = true;
    return false;
}

/* A recording may lack modules.dep, so the folder is searched, too. */
static bool module_in_folder(const char *sysroot, const char *folder)
{
    bool found = false;
    char **names;
    int i, n;

    if (vb_net_names_list(sysroot, folder, 64, &names, &n) != VB_OK)
        return false;
    for (i = 0; i < n; i++)
        if (strncmp(names[i], MODULE_FILE, strlen(MODULE_FILE)) == 0)
            found = true;
    free(names);
    return found;
}

static void probe_files(const char *sysroot, struct vb_rxe *rxe)
{
    char path[PATH_MAX];

    vb_probe_lines(module_line, &rxe->built_in, "%s/lib/modules/%s/modules.builtin", sysroot,
                   rxe->release);
    vb_probe_lines(module_line, &rxe->present, "%s/lib/modules/%s/modules.dep", sysroot,
                   rxe->release);
    snprintf(path, sizeof(path), "/lib/modules/%s/" MODULE_DIR, rxe->release);
    rxe->present = rxe->present || module_in_folder(sysroot, path);
}

/* The user runs the command rdma with sudo, which searches these folders and ignores PATH. */
static bool has_tool(const char *sysroot)
{
    static const char *const folders[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                          "/usr/bin",        "/sbin",          "/bin"};
    size_t i;

    for (i = 0; i < VB_COUNT(folders); i++)
        if (vb_net_exists("%s%s/rdma", sysroot, folders[i]))
            return true;
    return false;
}

void vb_net_rxe_probe(const char *sysroot, struct vb_rxe *rxe_p)
{
    struct vb_rxe rxe = {.release = ""};

    vb_probe_line(rxe.release, sizeof(rxe.release), "%s/proc/sys/kernel/osrelease", sysroot);
    if (strchr(rxe.release, '/') != NULL || rxe.release[0] == '.')
        rxe.release[0] = '\0'; /* not a valid release: the path would leave the folder */
    rxe.loaded = vb_net_exists("%s/sys/module/rdma_rxe", sysroot);
    rxe.kernel_has_modules = vb_net_exists("%s/proc/modules", sysroot);
    if (rxe.release[0] != '\0')
        probe_files(sysroot, &rxe);
    rxe.tool = has_tool(sysroot);
    *rxe_p = rxe;
}
