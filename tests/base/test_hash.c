/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

/* Values that the documentation of xxHash and of its Python module gives. */
static void the_hash_is_xxh64(void **state)
{
    static const char text[] = "Nobody inspects the spammish repetition";

    (void)state;
    assert_true(vb_hash64(0, "", 0) == 0xef46db3751d8e999u);
    assert_true(vb_hash64(0, "abc", 3) == 0x44bc2cf5ad770999u);
    assert_true(vb_hash64(0, text, sizeof(text) - 1) == 0xfbcea83c8a378bf1u);
    assert_true(vb_hash64(20141025, "xxhash", 6) == 0xb559b98d844e0635u);
}

static void each_bit_changes_the_hash(void **state)
{
    unsigned char bytes[77] = {0};
    uint64_t before = vb_hash64(3, bytes, sizeof(bytes));
    size_t i;

    (void)state;
    for (i = 0; i < 8 * sizeof(bytes); i++) {
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        assert_true(vb_hash64(3, bytes, sizeof(bytes)) != before);
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    assert_true(vb_hash64(3, bytes, sizeof(bytes)) == before);
    assert_true(vb_hash64(4, bytes, sizeof(bytes)) != before);
    assert_true(vb_hash64(3, bytes, sizeof(bytes) - 1) != before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_xxh64),
        cmocka_unit_test(each_bit_changes_the_hash),
    };

    return T_RUN(tests);
}
