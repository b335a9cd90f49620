/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#include <errno.h>

static void every_status_has_a_text(void **state)
{
    int st, other;

    (void)state;
    for (st = VB_ERR_UNSUPPORTED; st <= VB_AGAIN; st++) {
        assert_string_not_equal(vb_status_str(st), "unknown status");
        for (other = VB_ERR_UNSUPPORTED; other < st; other++)
            assert_string_not_equal(vb_status_str(st), vb_status_str(other));
    }
    assert_string_equal(vb_status_str(VB_ERR_UNSUPPORTED - 1), "unknown status");
    assert_string_equal(vb_status_str(VB_AGAIN + 1), "unknown status");
}

static void errno_maps_to_failure(void **state)
{
    int err;

    (void)state;
    assert_int_equal(vb_status_from_errno(0), VB_OK);
    for (err = 1; err < 200; err++)
        assert_true(vb_status_from_errno(err) < 0);
    assert_int_equal(vb_status_from_errno(ENOENT), VB_ERR_NO_FILE);
    assert_int_equal(vb_status_from_errno(EROFS), VB_ERR_ACCESS);
    assert_int_equal(vb_status_from_errno(ECONNRESET), VB_ERR_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(errno_maps_to_failure),
    };

    return T_RUN(tests);
}
