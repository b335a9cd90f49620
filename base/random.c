/* SPDX-License-Identifier: MIT */
#include "base/base.h"

/* The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit of the input changes every
 * bit of the output about half of the time. */
static uint64_t mix(uint64_t v)
{
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

uint64_t vb_random(uint64_t seed, uint64_t position)
{
    return mix(mix(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0x9e3779b97f4a7c15u);
}
