/* SPDX-License-Identifier: MIT */
#include "base/base.h"

enum vb_cpu_level vb_cpu_level(void)
{
#if defined(__x86_64__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");

    if (v3)
        return v4 ? VB_CPU_V4 : VB_CPU_V3;
#endif
    return VB_CPU_BASE;
}
