/* SPDX-License-Identifier: MIT
 *
 * Computes the CRC32C of data that is stored on disk or sent over a socket. Whether the CPU has a
 * CRC32C instruction is detected at run time, so that one binary runs on old and new machines.
 */
#include "base/base.h"
#include "base/crc32c_table.h"

#include <string.h>

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* Adds bytes to a checksum and returns the new state. state is the complement of the checksum. */
static uint32_t update_by_table(uint32_t state, const unsigned char *p, size_t len)
{
    for (; len > 0; p++, len--)
        state = (state >> 8) ^ crc32c_table[(state ^ *p) & 0xff];
    return state;
}

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

static bool have_instruction(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

static uint32_t update_by_instruction(uint32_t state, const unsigned char *p, size_t len)
{
    uint64_t word;

    for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        state = __crc32cd(state, word);
    }
    for (; len > 0; p++, len--)
        state = __crc32cb(state, *p);
    return state;
}

#define INSTRUCTION_NAME "armv8-crc"

#elif defined(__x86_64__)

static bool have_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

__attribute__((target("sse4.2"))) static uint32_t
update_by_instruction(uint32_t state, const unsigned char *p, size_t len)
{
    uint64_t wide = state, word;

    for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
    }
    state = (uint32_t)wide;
    for (; len > 0; p++, len--)
        state = _mm_crc32_u8(state, *p);
    return state;
}

#define INSTRUCTION_NAME "sse4.2"

#else

static bool have_instruction(void)
{
    return false;
}

#define update_by_instruction update_by_table
#define INSTRUCTION_NAME "table"

#endif

uint32_t vb_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
    if (have_instruction())
        return ~update_by_instruction(~crc, data, len_bytes);
    return vb_crc32c_ref(crc, data, len_bytes);
}

uint32_t vb_crc32c_ref(uint32_t crc, const void *data, size_t len_bytes)
{
    return ~update_by_table(~crc, data, len_bytes);
}

const char *vb_crc32c_backend(void)
{
    return have_instruction() ? INSTRUCTION_NAME : "table";
}
