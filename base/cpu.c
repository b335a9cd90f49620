/* SPDX-License-Identifier: MIT
 *
 * Finds the level of instructions that this CPU has.
 */
#include "base/base.h"

#if defined(__x86_64__)
enum vb_cpu_level vb_cpu_level(void)
{
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");

    if (!v3)
        return VB_CPU_BASE;
    return v4 ? VB_CPU_V4 : VB_CPU_V3;
}
#else
enum vb_cpu_level vb_cpu_level(void)
{
    return VB_CPU_BASE;
}
#endif
