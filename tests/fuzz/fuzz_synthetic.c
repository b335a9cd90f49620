/* SPDX-License-Identifier: MIT
 *
 * Fuzzes descriptions of machines. A list of CPUs follows the first newline of the input. If a
 * machine is accepted, a placement on it must be possible.
 *
 * Covers: topo/machine.c topo/placement.c
 */
#include "tests/fuzz/fuzz.h"
#include "topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *list = text;
    struct vb_topo_source source = {0};
    struct vb_placement_want want = {.progress = true};
    struct vb_topo *topo;
    struct vb_placement *placement;

    source.synthetic = strsep(&list, "\n");
    source.cpus = list;
    want.ranks = size > 0 ? 1 + data[0] % 40 : 1;
    want.threads = size > 1 ? data[1] % 20 : 0;
    if (vb_topo_open(&source, &topo) == VB_OK) {
        if (vb_placement_create(topo, &want, &placement) != VB_OK)
            abort();
        vb_placement_destroy(placement);
        vb_topo_close(topo);
    }
    free(text);
    return 0;
}
