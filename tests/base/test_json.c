/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

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

static void put_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void files_are_read(void **state)
{
    char path[] = "/tmp/vb_json.XXXXXX", *text = NULL;
    struct vb_json *json;
    size_t len;
    FILE *out;

    (void)state;
    close(mkstemp(path));
    put_file(path, "{\"run\": {\"state\": \"running\", \"list\": [{\"a\": 1.5}, {\"a\": 2}]}}");
    json = vb_json_read(path);
    assert_string_equal(vb_json_get_text(json, "run.state"), "running");
    assert_true(vb_json_get_real(json, "run.list.1.a") == 2);
    assert_int_equal(vb_json_get_count(json, "run.list"), 2);
    assert_null(vb_json_get_text(json, "run.list"));
    assert_null(vb_json_get_text(json, "run.none.state"));
    assert_true(isnan(vb_json_get_real(json, "run.list.2.a")));
    assert_true(isnan(vb_json_get_real(json, "run.list.x.a")));
    assert_int_equal(vb_json_get_count(json, "run"), -1);
    vb_json_set_text(json, "run", "state", "failed");
    out = open_memstream(&text, &len);
    assert_int_equal(vb_json_print(json, out), VB_OK);
    fclose(out);
    assert_non_null(strstr(text, "\"state\":\"failed\""));
    free(text);
    vb_json_destroy(json);
    unlink(path);
}

static void broken_files_are_refused(void **state)
{
    char path[] = "/tmp/vb_json.XXXXXX", text[2048];
    struct t_stderr t;

    (void)state;
    close(mkstemp(path));
    put_file(path, "{\"run\": 1,\n]");
    t_stderr_catch(&t);
    assert_null(vb_json_read(path));
    assert_null(vb_json_read("/dev/null"));
    unlink(path);
    assert_null(vb_json_read(path));
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "line 2, byte "));
    assert_non_null(strstr(text, "cannot read /dev/null: it is not a file"));
    assert_non_null(strstr(text, "No such file or directory"));
}

static void values_of_another_tree_are_added(void **state)
{
    static const char line[] = "{\"what\": \"began\", \"machine\": {\"rank\": 3}}\n and more";
    struct vb_json *from = vb_json_parse(line, strlen(line) - 9), *json = vb_json_create();
    char buf[128];

    (void)state;
    assert_non_null(from);
    assert_null(vb_json_parse(line, strlen(line)));
    assert_null(vb_json_parse(line, 20)); /* a line that is cut */
    assert_null(vb_json_parse("", 0));
    vb_json_array(json, NULL);
    assert_true(vb_json_copy(json, NULL, from, "machine"));
    assert_false(vb_json_copy(json, NULL, from, "none"));
    assert_false(vb_json_copy(json, NULL, NULL, "machine"));
    vb_json_end(json);
    vb_json_destroy(from); /* the copy stays */
    assert_string_equal(printed(json, buf, sizeof(buf)), "[{\"rank\":3}]\n");
    vb_json_destroy(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_nest_in_order),
        cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(misuse_is_reported),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(full_disk_is_an_error),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(values_of_another_tree_are_added),
    };

    return T_RUN(tests);
}
