/* SPDX-License-Identifier: MIT
 *
 * Fuzzes files that claim to be recorded machines.
 *
 * Covers: topo/load_in_child.c topo/machine.c
 */
#include "tests/fuzz/fuzz.h"
#include "topo/topo.h"

#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_placement_want want = {.ranks = 3, .progress = true};
    struct vb_topo_source source = {0};
    struct vb_topo *topo;
    struct vb_placement *placement;
    char path[64];
    int fd;

    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    source.xml = path;
    if (vb_topo_open(&source, &topo) == VB_OK) {
        if (vb_placement_create(topo, &want, &placement) == VB_OK)
            vb_placement_destroy(placement);
        vb_topo_close(topo);
    }
    close(fd);
    return 0;
}
