/* SPDX-License-Identifier: MIT
 *
 * Covers: base/nearest.c
 */
#include "base/base.h"
#include "tests/support/test.h"

struct values {
    int64_t ranks;
    int transport;
    bool json;
    const char *data;
    int64_t port;
    double rate;
    int64_t defer, probe;
};

static const char *const transports[] = {"auto", "verbs", "tcp", "shm", NULL};

static const struct vb_opt job_opts[] = {
    {"ranks", VB_OPT_INT, offsetof(struct values, ranks), "1", .min = 1, .max = 4096, .arg = "N",
     .help = "ranks"},
    {"transport", VB_OPT_CHOICE, offsetof(struct values, transport), "auto", .choices = transports,
     .arg = "HOW", .help = "how bytes move"},
    {"json", VB_OPT_FLAG, offsetof(struct values, json), .help = "print JSON"},
};

static const struct vb_opt more_opts[] = {
    {"data", VB_OPT_TEXT, offsetof(struct values, data), .arg = "SPEC",
     .help = "training data, with a help text that does not fit into one line and must be broken "
             "between two words"},
    {"root-port", VB_OPT_INT, offsetof(struct values, port), "-1", .min = INT64_MIN,
     .max = INT64_MAX, .arg = "P", .help = "port", .level = VB_OPT_MORE},
    {"rate", VB_OPT_REAL, offsetof(struct values, rate), "0.5", .max = 10, .arg = "R",
     .help = "rate"},
};

/* No option of this group is basic. */
static const struct vb_opt tuning_opts[] = {
    {"defer-bytes", VB_OPT_INT, offsetof(struct values, defer), .max = 100, .arg = "BYTES",
     .help = "bytes to defer", .level = VB_OPT_MORE, .alias = "hold-back"},
    {"probe", VB_OPT_INT, offsetof(struct values, probe), .max = 100, .arg = "N",
     .help = "for nobody", .level = VB_OPT_HIDDEN},
};

static struct values values;

static const struct vb_opt_group groups[] = {
    {"Job", job_opts, VB_COUNT(job_opts), &values},
    {"More", more_opts, VB_COUNT(more_opts), &values},
    {"Tuning", tuning_opts, VB_COUNT(tuning_opts), &values},
};

static struct vb_opts opts;
static char why[VB_OPTS_WHY];

/* Parses a command line whose arguments are separated by one space each. */
static vb_status parse(const char *line)
{
    static char copy[1024];
    static char *argv[32];
    char *rest = copy;
    int argc = 0;

    snprintf(copy, sizeof(copy), "%s", line);
    while (*line != '\0' && argc < 32 && (argv[argc] = strsep(&rest, " ")) != NULL)
        argc++;
    return vb_opts_parse(&opts, groups, VB_COUNT(groups), argc, argv, why);
}

static int clear_environment(void **state)
{
    (void)state;
    unsetenv("VB_RANKS");
    unsetenv("VB_JSON");
    unsetenv("VB_DATA");
    unsetenv("VB_TRANSPORT");
    unsetenv("VB_ROOT_PORT");
    unsetenv("VB_RATE");
    unsetenv("VB_DEFER_BYTES");
    unsetenv("VB_HOLD_BACK");
    unsetenv("VB_PROBE");
    return 0;
}

static void defaults_fill_everything(void **state)
{
    (void)state;
    memset(&values, 0xff, sizeof(values));
    assert_int_equal(parse(""), VB_OK);
    assert_int_equal(values.ranks, 1);
    assert_int_equal(values.transport, 0);
    assert_false(values.json);
    assert_null(values.data);
    assert_int_equal(values.port, -1);
    assert_true(values.rate == 0.5);
    assert_int_equal(opts.n_operands, 0);
}

static void both_spellings_and_operands(void **state)
{
    (void)state;
    assert_int_equal(parse("one --ranks 4 --transport=shm two --json --data=a=b -- --ranks"),
                     VB_OK);
    assert_int_equal(values.ranks, 4);
    assert_int_equal(values.transport, 3);
    assert_true(values.json);
    assert_string_equal(values.data, "a=b");
    assert_int_equal(opts.n_operands, 3);
    assert_string_equal(opts.operands[0], "one");
    assert_string_equal(opts.operands[1], "two");
    assert_string_equal(opts.operands[2], "--ranks");
    assert_int_equal(parse("--json=off -"), VB_OK);
    assert_false(values.json);
    assert_string_equal(opts.operands[0], "-");
}

static void command_line_beats_environment_beats_default(void **state)
{
    (void)state;
    setenv("VB_RANKS", "3", 1);
    setenv("VB_JSON", "1", 1);
    setenv("VB_ROOT_PORT", "", 1); /* an empty variable counts as unset */
    assert_int_equal(parse(""), VB_OK);
    assert_int_equal(values.ranks, 3);
    assert_true(values.json);
    assert_int_equal(values.port, -1);
    assert_int_equal(parse("--ranks 5"), VB_OK);
    assert_int_equal(values.ranks, 5);
}

static void refused(const char *line, const char *text)
{
    assert_int_equal(parse(line), VB_ERR_USAGE);
    assert_string_equal(why, text);
}

static void mistakes_get_one_clear_line(void **state)
{
    (void)state;
    refused("--rank 4", "unknown option --rank; did you mean --ranks?");
    refused("--trnasport=tcp", "unknown option --trnasport; did you mean --transport?");
    refused("--ranks-per-host 4", "unknown option --ranks-per-host; did you mean --ranks?");
    refused("--nproc 4", "unknown option --nproc; did you mean --ranks?");
    refused("--learning-rate 4", "unknown option --learning-rate; --help-all lists all options");
    refused("--hepl", "unknown option --hepl; did you mean --help?");
    refused("--zzzzzz", "unknown option --zzzzzz; --help-all lists all options");
    refused("-r 4", "unknown option -r; options begin with --");
    refused("--ranks", "--ranks needs a value: N");
    refused("--ranks four", "--ranks four: must be a whole number");
    refused("--ranks 4x", "--ranks 4x: must be a whole number");
    refused("--ranks=", "--ranks : must be a whole number");
    refused("--ranks 0x10", "--ranks 0x10: must be a whole number");
    refused("--ranks 0", "--ranks 0: must be from 1 to 4096");
    refused("--ranks -1", "--ranks -1: must be from 1 to 4096");
    refused("--ranks 4097", "--ranks 4097: must be from 1 to 4096");
    refused("--ranks 99999999999999999999", "--ranks 99999999999999999999: must be a whole number");
    refused("--transport udp", "--transport udp: must be auto, verbs, tcp or shm");
    refused("--json=maybe", "--json maybe: must be on or off");
    refused("--data=", "--data: the value is empty");
    setenv("VB_RANKS", "many", 1);
    refused("", "VB_RANKS many: must be a whole number");
}

static void extreme_numbers_fit(void **state)
{
    (void)state;
    assert_int_equal(parse("--root-port 9223372036854775807"), VB_OK);
    assert_true(values.port == INT64_MAX);
    assert_int_equal(parse("--root-port -9223372036854775808"), VB_OK);
    assert_true(values.port == INT64_MIN);
}

static void real_numbers_are_decimal(void **state)
{
    static const char *const none[] = {"",     " 1", "1 ",    "x",   "1x",  "0x10", "inf", "nan",
                                       "-inf", "1e", "1e999", "--1", "1-2", ".",    "-",   "1.2.3"};
    double value = 7;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(none); i++)
        assert_false(vb_parse_real(none[i], &value));
    assert_true(value == 7);
    assert_true(vb_parse_real("-1.25e2", &value) && value == -125);
    assert_true(vb_parse_real(".5", &value) && value == 0.5);
    assert_int_equal(parse("--rate 1e-3"), VB_OK);
    assert_true(values.rate == 1e-3);
    assert_int_equal(parse("--rate=10"), VB_OK);
    assert_true(values.rate == 10);
    refused("--rate fast", "--rate fast: must be a number");
    refused("--rate 10.01", "--rate 10.01: must be from 0 to 10");
    refused("--rate -0.1", "--rate -0.1: must be from 0 to 10");
}

static void overlong_input_is_bounded(void **state)
{
    static char line[900] = "--", value[900];

    (void)state;
    memset(line + 2, 'x', sizeof(line) - 3);
    assert_int_equal(parse(line), VB_ERR_USAGE);
    assert_true(strlen(why) < VB_OPTS_WHY);
    snprintf(value, sizeof(value), "--ranks=%s", line + 8);
    assert_int_equal(parse(value), VB_ERR_USAGE);
    assert_true(strlen(why) < VB_OPTS_WHY);
}

static void help_is_shown_despite_mistakes(void **state)
{
    (void)state;
    setenv("VB_RANKS", "many", 1);
    assert_int_equal(parse("--ranks x --help"), VB_OK);
    assert_true(opts.help);
    assert_false(opts.help_all);
    assert_int_equal(parse("--ranks x --help-all"), VB_OK);
    assert_true(opts.help);
    assert_true(opts.help_all);
    unsetenv("VB_RANKS");
    assert_int_equal(parse("-- --help"), VB_OK);
    assert_false(opts.help);
    assert_int_equal(parse("-- --help-all"), VB_OK);
    assert_false(opts.help_all);
}

/* Writes the help text to text and returns the number of options that only --help-all shows. */
static int help_text(bool all, char *text, size_t size)
{
    FILE *out = fmemopen(text, size, "w");
    const char *line;
    int n_more;

    memset(text, 0, size);
    n_more = vb_opts_help(groups, VB_COUNT(groups), all, out);
    fclose(out);
    for (line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    assert_null(strstr(text, "hold-back"));
    assert_null(strstr(text, "HOLD_BACK"));
    assert_null(strstr(text, "probe"));
    return n_more;
}

static void help_all_shows_every_option(void **state)
{
    static char text[8192];

    (void)state;
    assert_int_equal(help_text(true, text, sizeof(text)), 2);
    assert_non_null(strstr(text, "Job:\n  --ranks N "));
    assert_non_null(strstr(text, "ranks (default 1; VB_RANKS)\n"));
    assert_non_null(strstr(text, "how bytes move (auto, verbs, tcp or shm; default auto; "));
    assert_non_null(strstr(text, "print JSON (VB_JSON)\n"));
    assert_non_null(strstr(text, "\n\nMore:\n  --data SPEC "));
    assert_non_null(strstr(text, "port (default -1; VB_ROOT_PORT)\n"));
    assert_non_null(strstr(text, "\n\nTuning:\n  --defer-bytes BYTES "));
    assert_non_null(strstr(text, "bytes to defer (VB_DEFER_BYTES)\n"));
}

static void help_shows_the_basic_options(void **state)
{
    static char text[8192];

    (void)state;
    assert_int_equal(help_text(false, text, sizeof(text)), 2);
    assert_non_null(strstr(text, "Job:\n  --ranks N "));
    assert_non_null(strstr(text, "ranks (default 1)\n"));
    assert_non_null(strstr(text, "how bytes move (auto, verbs, tcp or shm; default auto)\n"));
    assert_non_null(strstr(text, "print JSON\n"));
    assert_non_null(strstr(text, "rate (default 0.5)\n"));
    assert_null(strstr(text, "VB_"));
    assert_null(strstr(text, "--root-port"));
    assert_null(strstr(text, "Tuning")); /* a group without a basic option must not be shown */
}

static void aliases_work_as_the_name_does(void **state)
{
    (void)state;
    assert_int_equal(parse("--hold-back 7"), VB_OK);
    assert_int_equal(values.defer, 7);
    assert_true(vb_opts_given(&opts, "defer-bytes"));
    assert_int_equal(parse("--hold-back=8"), VB_OK);
    assert_int_equal(values.defer, 8);
    setenv("VB_HOLD_BACK", "9", 1);
    assert_int_equal(parse(""), VB_OK);
    assert_int_equal(values.defer, 9);
    setenv("VB_DEFER_BYTES", "10", 1);
    assert_int_equal(parse(""), VB_OK);
    /* VB_DEFER_BYTES, from the option's name, overrides VB_HOLD_BACK, from its alias */
    assert_int_equal(values.defer, 10);
    assert_int_equal(parse("--hold-back 11"), VB_OK);
    assert_int_equal(values.defer, 11);
}

static void messages_name_the_alias_that_was_written(void **state)
{
    (void)state;
    refused("--hold-back 101", "--hold-back 101: must be from 0 to 100");
    refused("--hold-back", "--hold-back needs a value: BYTES");
    refused("--defer-bytes x", "--defer-bytes x: must be a whole number");
    refused("--hold-bac 1", "unknown option --hold-bac; --help-all lists all options");
    setenv("VB_HOLD_BACK", "x", 1);
    refused("", "VB_HOLD_BACK x: must be a whole number");
}

static void hidden_options_work_but_are_not_suggested(void **state)
{
    (void)state;
    assert_int_equal(parse("--probe 5"), VB_OK);
    assert_int_equal(values.probe, 5);
    setenv("VB_PROBE", "6", 1);
    assert_int_equal(parse(""), VB_OK);
    assert_int_equal(values.probe, 6);
    refused("--prob 5", "unknown option --prob; --help-all lists all options");
}

static void the_dump_shows_the_source_of_values(void **state)
{
    struct t_stderr t;
    char text[4096];

    (void)state;
    setenv("VB_TRANSPORT", "tcp", 1);
    assert_int_equal(parse("--ranks 2"), VB_OK);
    vb_log_set_level(VB_LEVEL_INFO);
    t_stderr_catch(&t);
    vb_opts_dump(&opts, "train");
    t_stderr_release(&t, text, sizeof(text));
    vb_log_set_level(VB_LEVEL_WARN);
    assert_non_null(strstr(text, "train: --ranks = 2 (command line)\n"));
    assert_non_null(strstr(text, "train: --transport = tcp (environment)\n"));
    assert_non_null(strstr(text, "train: --json = off (default)\n"));
    assert_non_null(strstr(text, "train: --data = none (default)\n"));
    assert_non_null(strstr(text, "train: --rate = 0.5 (default)\n"));
}

static void given_values_are_distinguished_from_defaults(void **state)
{
    (void)state;
    setenv("VB_RANKS", "1", 1);
    assert_int_equal(parse("--rate 0.5"), VB_OK); /* the given values are equal to the defaults */
    assert_true(vb_opts_given(&opts, "rate"));
    assert_true(vb_opts_given(&opts, "ranks"));
    assert_false(vb_opts_given(&opts, "json"));
    assert_false(vb_opts_given(&opts, "rat"));
    assert_int_equal(parse(""), VB_OK);
    assert_false(vb_opts_given(&opts, "rate"));
}

static void values_are_listed_as_the_command_line_takes_them(void **state)
{
    struct vb_opt_value value;
    bool seen_rate = false, seen_data = false;
    int i;

    (void)state;
    setenv("VB_RANKS", "3", 1);
    assert_int_equal(parse("--rate 0.1234567890123"), VB_OK);
    for (i = 0; vb_opts_at(&opts, i, &value); i++) {
        if (strcmp(value.name, "rate") == 0) {
            seen_rate = true;
            assert_true(strtod(value.text, NULL) == 0.1234567890123);
            assert_string_equal(value.source, "command line");
            assert_true(value.given);
        }
        if (strcmp(value.name, "ranks") == 0)
            assert_string_equal(value.source, "environment");
        if (strcmp(value.name, "data") == 0) {
            seen_data = true;
            assert_null(value.text);
            assert_false(value.given);
        }
    }
    assert_true(seen_rate && seen_data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(defaults_fill_everything, clear_environment),
        cmocka_unit_test_setup(both_spellings_and_operands, clear_environment),
        cmocka_unit_test_setup(command_line_beats_environment_beats_default, clear_environment),
        cmocka_unit_test_setup(mistakes_get_one_clear_line, clear_environment),
        cmocka_unit_test_setup(extreme_numbers_fit, clear_environment),
        cmocka_unit_test_setup(real_numbers_are_decimal, clear_environment),
        cmocka_unit_test_setup(overlong_input_is_bounded, clear_environment),
        cmocka_unit_test_setup(help_is_shown_despite_mistakes, clear_environment),
        cmocka_unit_test_setup(help_all_shows_every_option, clear_environment),
        cmocka_unit_test_setup(help_shows_the_basic_options, clear_environment),
        cmocka_unit_test_setup(aliases_work_as_the_name_does, clear_environment),
        cmocka_unit_test_setup(messages_name_the_alias_that_was_written, clear_environment),
        cmocka_unit_test_setup(hidden_options_work_but_are_not_suggested, clear_environment),
        cmocka_unit_test_setup(given_values_are_distinguished_from_defaults, clear_environment),
        cmocka_unit_test_setup(values_are_listed_as_the_command_line_takes_them, clear_environment),
        cmocka_unit_test_setup(the_dump_shows_the_source_of_values, clear_environment),
    };

    return T_RUN(tests);
}
