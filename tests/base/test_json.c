/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#include <math.h>

/* Returns the printed text, or "" if printing fails. */
static const char *printed(const struct vb_json *json, char *buf, size_t size)
{
    FILE *out = fmemopen(buf, size, "w");
    vb_status st;

    assert_non_null(out);
    st = vb_json_print(json, out);
    fclose(out);
    return st == VB_OK ? buf : "";
}

static void values_nest_in_order(void **state)
{
    struct vb_json *json = vb_json_create();
    char buf[512];

    (void)state;
    vb_json_object(json, NULL);
    vb_json_int(json, "z", -3);
    vb_json_array(json, "a");
    vb_json_real(json, NULL, 0.5);
    vb_json_bool(json, NULL, true);
    vb_json_object(json, NULL);
    vb_json_end(json);
    vb_json_end(json);
    vb_json_text(json, "t", "quote \" and\nline");
    vb_json_text(json, "none", NULL);
    vb_json_real(json, "nan", NAN);
    vb_json_real(json, "inf", INFINITY);
    vb_json_end(json);
    assert_string_equal(printed(json, buf, sizeof(buf)),
                        "{\"z\":-3,\"a\":[0.5,true,{}],\"t\":\"quote \\\" and\\nline\","
                        "\"none\":null,\"nan\":null,\"inf\":null}\n");
    vb_json_destroy(json);
}

static void invalid_utf8_is_replaced(void **state)
{
    struct vb_json *json = vb_json_create();
    char buf[128];

    (void)state;
    vb_json_array(json, NULL);
    vb_json_text(json, NULL, "ok \303\244");
    vb_json_text(json, NULL, "bad \377\303");
    vb_json_end(json);
    assert_string_equal(printed(json, buf, sizeof(buf)), "[\"ok \\u00E4\",\"bad ??\"]\n");
    vb_json_destroy(json);
}

/* Each of these is an error of the caller. Printing must report it; nothing may crash. */
static void misuse_is_reported(void **state)
{
    struct vb_json *json;
    char buf[128], text[1024];
    struct t_stderr t;
    int what;

    (void)state;
    t_stderr_catch(&t);
    for (what = 0; what < 6; what++) {
        json = vb_json_create();
        vb_json_object(json, NULL);
        if (what == 0)
            vb_json_int(json, NULL, 1); /* a value without a key in an object */
        else if (what == 1)
            vb_json_array(json, "open for ever");
        vb_json_end(json);
        if (what == 2)
            vb_json_end(json);
        else if (what == 3)
            vb_json_int(json, NULL, 1); /* a second root */
        else if (what == 4)
            vb_json_object(json, "key");
        else if (what == 5) {
            vb_json_destroy(json);
            json = NULL;
            vb_json_int(json, "x", 1);
        }
        assert_string_equal(printed(json, buf, sizeof(buf)), "");
        vb_json_destroy(json);
    }
    t_stderr_release(&t, text, sizeof(text));
}

static void depth_is_bounded(void **state)
{
    struct vb_json *json = vb_json_create();
    char buf[128], text[1024];
    struct t_stderr t;
    int i;

    (void)state;
    for (i = 0; i < 100; i++)
        vb_json_array(json, NULL);
    for (i = 0; i < 100; i++)
        vb_json_end(json);
    t_stderr_catch(&t);
    assert_string_equal(printed(json, buf, sizeof(buf)), "");
    t_stderr_release(&t, text, sizeof(text));
    vb_json_destroy(json);
}

static void full_disk_is_an_error(void **state)
{
    struct vb_json *json = vb_json_create();
    FILE *full = fopen("/dev/full", "w");
    struct t_stderr t;
    char text[1024];

    (void)state;
    if (full == NULL)
        skip();
    vb_json_int(json, NULL, 1);
    t_stderr_catch(&t);
    assert_true(vb_json_print(json, full) < 0);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "write the JSON output: No space left"));
    fclose(full);
    vb_json_destroy(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_nest_in_order),  cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(misuse_is_reported),    cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(full_disk_is_an_error),
    };

    return T_RUN(tests);
}
