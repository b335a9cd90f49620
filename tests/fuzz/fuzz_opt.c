/* SPDX-License-Identifier: MIT
 *
 * Fuzzes command lines. Newlines separate the arguments in the input.
 *
 * Covers: base/opt.c
 */
#include "tests/fuzz/fuzz.h"

struct values {
    int64_t number;
    int choice;
    bool flag;
    const char *text;
};

static const char *const choices[] = {"one", "two", NULL};

static const struct vb_opt opts[] = {
    {"number", VB_OPT_INT, offsetof(struct values, number), "1", .min = -5, .max = 100, .arg = "N",
     .help = "a number", .alias = "count"},
    {"choice", VB_OPT_CHOICE, offsetof(struct values, choice), "two", .choices = choices,
     .arg = "C", .help = "one"},
    {"flag", VB_OPT_FLAG, offsetof(struct values, flag), .help = "a flag"},
    {"text", VB_OPT_TEXT, offsetof(struct values, text), .arg = "T", .help = "a text"},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[64], why[VB_OPTS_WHY], *text = fuzz_text(data, size), *rest = text;
    struct values values;
    struct vb_opt_group group = {"Options", opts, VB_COUNT(opts), &values};
    struct vb_opts parsed;
    int argc = 0;
    vb_status st;

    while (argc < 64 && (argv[argc] = strsep(&rest, "\n")) != NULL)
        argc++;
    st = vb_opts_parse(&parsed, &group, 1, argc, argv, why);
    if (st == VB_OK && !parsed.help)
        if (values.number < -5 || values.number > 100 || values.choice < 0 || values.choice > 1 ||
            parsed.n_operands > argc)
            abort();
    if (st != VB_OK && (why[0] == '\0' || strchr(why, '\n') != NULL))
        abort();
    free(text);
    return 0;
}
