/* SPDX-License-Identifier: MIT
 *
 * The levels of instructions, and which one is in use.
 */
#include "kernels/level_priv.h"

#include <string.h>

static const struct vb_k_level *const levels[] = {
    [VB_CPU_BASE] = &vb_k_level_base,
#if defined(__x86_64__)
    [VB_CPU_V3] = &vb_k_level_v3,
    [VB_CPU_V4] = &vb_k_level_v4,
#endif
};

static const struct vb_k_level *set; /* by a test, before there are threads */

const struct vb_k_level *vb_k_level(void)
{
    return set != NULL ? set : levels[vb_cpu_level()];
}

bool vb_k_level_set(const char *name)
{
    int i;

    for (i = 0; i <= (int)vb_cpu_level(); i++) {
        if (strcmp(levels[i]->name, name) == 0) {
            set = levels[i];
            return true;
        }
    }
    return false;
}

int vb_k_level_names(const char *names[3])
{
    int i, n = (int)vb_cpu_level() + 1;

    for (i = 0; i < n; i++)
        names[i] = levels[i]->name;
    return n;
}

void vb_k_level_run(void *state, const struct vb_k_args *args)
{
    struct vb_k_pass_state *pass = state;

    pass->run(pass, args);
}
