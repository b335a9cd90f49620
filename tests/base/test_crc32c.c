/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

/* Computes the CRC bit by bit, as it is defined. */
static uint32_t crc_by_bits(const unsigned char *p, size_t len)
{
    uint32_t state = ~0u;
    int k;

    for (; len > 0; p++, len--)
        for (state ^= *p, k = 0; k < 8; k++)
            state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
    return ~state;
}

static void fill(unsigned char *p, size_t len)
{
    uint32_t x = 12345;
    size_t i;

    for (i = 0; i < len; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (unsigned char)(x >> 24);
    }
}

/* The expected values are from RFC 3720, B.4. */
static void known_values(void **state)
{
    unsigned char bytes[32];
    int i;

    (void)state;
    assert_int_equal(vb_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(vb_crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(vb_crc32c(0, bytes, 32), 0x62a8ab43u);
    for (i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(vb_crc32c(0, bytes, 32), 0x46dd794eu);
    assert_int_equal(vb_crc32c(0, bytes, 0), 0);
}

static void every_table_entry(void **state)
{
    unsigned char byte;
    int i;

    (void)state;
    for (i = 0; i < 256; i++) {
        byte = (unsigned char)i;
        assert_int_equal(vb_crc32c_ref(0, &byte, 1), crc_by_bits(&byte, 1));
    }
}

static void all_agree_at_every_length_and_offset(void **state)
{
    unsigned char bytes[300];
    size_t len, offset;
    uint32_t want;

    (void)state;
    fill(bytes, sizeof(bytes));
    for (offset = 0; offset < 9; offset++) {
        for (len = 0; len + offset <= sizeof(bytes); len++) {
            want = crc_by_bits(bytes + offset, len);
            assert_int_equal(vb_crc32c(0, bytes + offset, len), want);
            assert_int_equal(vb_crc32c_ref(0, bytes + offset, len), want);
        }
    }
}

static void pieces_make_the_whole(void **state)
{
    unsigned char bytes[100];
    size_t cut;

    (void)state;
    fill(bytes, sizeof(bytes));
    for (cut = 0; cut <= sizeof(bytes); cut++)
        assert_int_equal(vb_crc32c(vb_crc32c(0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
                         vb_crc32c(0, bytes, sizeof(bytes)));
}

/* If /proc/cpuinfo lists the CRC instruction, the code must use the instruction. */
static void the_crc_instruction_is_used_if_available(void **state)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool listed = false;
    char *line = NULL;
    size_t size = 0;

    (void)state;
    assert_non_null(file);
    while (getline(&line, &size, file) > 0)
        if (strncmp(line, "Features", 8) == 0 || strncmp(line, "flags", 5) == 0)
            listed = listed || strstr(line, " crc32") != NULL || strstr(line, " sse4_2") != NULL;
    free(line);
    fclose(file);
    assert_int_equal(strcmp(vb_crc32c_backend(), "table") != 0, listed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(every_table_entry),
        cmocka_unit_test(all_agree_at_every_length_and_offset),
        cmocka_unit_test(pieces_make_the_whole),
        cmocka_unit_test(the_crc_instruction_is_used_if_available),
    };

    return T_RUN(tests);
}
