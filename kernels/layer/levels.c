/* SPDX-License-Identifier: MIT
 *
 * Finds the level of instructions in use.
 */
#include "kernels/layer/level.h"

static const char *const level_names[] = {
    [VB_CPU_BASE] = "base", [VB_CPU_V3] = "x86-64-v3", [VB_CPU_V4] = "x86-64-v4"};

static bool is_set; /* a test has set the level, before it starts threads */
static enum vb_cpu_level set_level;

enum vb_cpu_level vb_k_level(void)
{
    return is_set ? set_level : vb_cpu_level();
}

const char *vb_k_level_name(void)
{
    return level_names[vb_k_level()];
}

bool vb_k_level_set(const char *name)
{
    int i;

    for (i = 0; i <= (int)vb_cpu_level(); i++) {
        if (strcmp(level_names[i], name) == 0) {
            is_set = true;
            set_level = (enum vb_cpu_level)i;
            return true;
        }
    }
    return false;
}

int vb_k_level_names(const char *names[3])
{
    int i, n = (int)vb_cpu_level() + 1;

    for (i = 0; i < n; i++)
        names[i] = level_names[i];
    return n;
}
