/* SPDX-License-Identifier: MIT
 *
 * XXH64, a hash by Yann Collet: fast, and good at telling different contents from each other. It is
 * not made to resist an attacker.
 */
#include "base/base.h"

#include <endian.h>

#define P1 0x9e3779b185ebca87u
#define P2 0xc2b2ae3d27d4eb4fu
#define P3 0x165667b19e3779f9u
#define P4 0x85ebca77c2b2ae63u
#define P5 0x27d4eb2f165667c5u
#define STRIPE 32 /* bytes that the four lanes take at a time */

static uint64_t rotate(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

static uint64_t word(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return le64toh(v);
}

static uint64_t round_of(uint64_t lane, uint64_t v)
{
    return rotate(lane + v * P2, 31) * P1;
}

static uint64_t merged(uint64_t h, uint64_t lane)
{
    return (h ^ round_of(0, lane)) * P1 + P4;
}

/* Hashes the whole stripes of at least one. */
static uint64_t stripes(uint64_t seed, const unsigned char *p, size_t len)
{
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1, h;

    for (; len >= STRIPE; len -= STRIPE, p += STRIPE) {
        a = round_of(a, word(p));
        b = round_of(b, word(p + 8));
        c = round_of(c, word(p + 16));
        d = round_of(d, word(p + 24));
    }
    h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    return merged(merged(merged(merged(h, a), b), c), d);
}

uint64_t vb_hash64(uint64_t seed, const void *data, size_t len_bytes)
{
    const unsigned char *p = data;
    size_t len = len_bytes;
    uint64_t h = len >= STRIPE ? stripes(seed, p, len) : seed + P5;
    uint32_t half;

    p += len / STRIPE * STRIPE;
    len %= STRIPE;
    h += len_bytes;
    for (; len >= 8; len -= 8, p += 8)
        h = rotate(h ^ round_of(0, word(p)), 27) * P1 + P4;
    for (; len >= 4; len -= 4, p += 4) {
        memcpy(&half, p, sizeof(half));
        h = rotate(h ^ le32toh(half) * P1, 23) * P2 + P3;
    }
    for (; len > 0; len--, p++)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
