/* SPDX-License-Identifier: MIT
 *
 * The machine and the placement that the running test uses.
 */
#ifndef VB_TESTS_SUPPORT_MACHINE_H
#define VB_TESTS_SUPPORT_MACHINE_H

#include "tests/support/test.h"
#include "topo/topo.h"

static struct vb_topo *topo;
static struct vb_placement *placement;

/* Teardown of a test: closes the machine and the placement. */
static inline int close_machine(void **state)
{
    (void)state;
    vb_placement_destroy(placement);
    vb_topo_close(topo);
    placement = NULL;
    topo = NULL;
    return 0;
}

#endif
