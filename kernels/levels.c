/* SPDX-License-Identifier: MIT
 *
 * Which level of instructions this CPU has.
 */
#include "kernels/level_priv.h"

#include <string.h>

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

static const struct {
    const struct vb_k_level *level;
    bool (*here)(void);
} levels[] = {
    {&vb_k_level_base, always},
#if defined(__x86_64__)
    {&vb_k_level_v3, has_v3},
    {&vb_k_level_v4, has_v4},
#endif
};

static const struct vb_k_level *set; /* by a test, before there are threads */

const struct vb_k_level *vb_k_level(void)
{
    int i;

    if (set != NULL)
        return set;
    for (i = VB_COUNT(levels) - 1; !levels[i].here(); i--)
        ;
    return levels[i].level;
}

bool vb_k_level_set(const char *name)
{
    int i;

    for (i = 0; i < (int)VB_COUNT(levels); i++) {
        if (strcmp(levels[i].level->name, name) == 0 && levels[i].here()) {
            set = levels[i].level;
            return true;
        }
    }
    return false;
}

int vb_k_level_names(const char *names[3])
{
    int i, n = 0;

    for (i = 0; i < (int)VB_COUNT(levels); i++)
        if (levels[i].here())
            names[n++] = levels[i].level->name;
    return n;
}

void vb_k_level_run(void *state, const struct vb_k_args *args)
{
    struct vb_k_pass_state *pass = state;

    pass->run(pass, args);
}
