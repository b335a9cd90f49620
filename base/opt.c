/* SPDX-License-Identifier: MIT
 *
 * Reads options as described by tables: defaults, environment, command line, help texts and dump.
 * The position of an option, counted over all groups, is its index in vb_opts.source.
 */
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENV_NAME_MAX 64
#define HELP_COLUMN 26
#define HELP_WIDTH 100

enum source { SOURCE_DEFAULT, SOURCE_ENVIRONMENT, SOURCE_COMMAND_LINE };

static const char *const source_names[] = {"default", "environment", "command line"};

/* An option that was found in the tables. */
struct found {
    const struct vb_opt *opt;
    void *into; /* the struct that receives the values of the option's group */
    int index;  /* the option's index in vb_opts.source */
};

/* ---- numbers and names ----------------------------------------------------------------------- */

bool vb_parse_int(const char *text, int64_t *value_p)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    long long value;
    char *end;

    if (!isdigit((unsigned char)digits[0]))
        return false;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *value_p = value;
    return true;
}

bool vb_parse_real(const char *text, double *value_p)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    double value;
    char *end;

    /* strtod() would also accept blanks, hexadecimal numbers, "inf" and "nan". */
    if (!isdigit((unsigned char)digits[0]) && digits[0] != '.')
        return false;
    if (digits[strspn(digits, "0123456789.eE+-")] != '\0')
        return false;
    errno = 0;
    value = strtod(text, &end);
    if (errno != 0 || *end != '\0' || end == text)
        return false;
    *value_p = value;
    return true;
}

/* Writes the name of an option's environment variable: "log-level" becomes "VB_LOG_LEVEL". */
static void env_name(const char *name, char out[ENV_NAME_MAX])
{
    size_t i;

    snprintf(out, ENV_NAME_MAX, "VB_%s", name);
    for (i = 0; out[i] != '\0'; i++)
        out[i] = (char)(out[i] == '-' ? '_' : toupper((unsigned char)out[i]));
}

vb_status vb_usage(char *why, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, VB_OPTS_WHY, fmt, args);
    va_end(args);
    return VB_ERR_USAGE;
}

/* ---- setting a value ------------------------------------------------------------------------- */

static void *field(const struct found *f)
{
    return (char *)f->into + f->opt->offset;
}

static bool parse_flag(const char *text, bool *value_p)
{
    static const char *const yes[] = {"1", "on", "true", "yes"};
    static const char *const no[] = {"0", "off", "false", "no"};
    size_t i;

    for (i = 0; i < VB_COUNT(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *value_p = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* Writes a list such as "auto, verbs, tcp or shm". */
static void list_choices(const char *const *choices, char *out, size_t size)
{
    size_t len = 0;
    int i;

    out[0] = '\0';
    for (i = 0; choices[i] != NULL && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s",
                                i == 0 ? "" : (choices[i + 1] != NULL ? ", " : " or "), choices[i]);
}

static vb_status say_range(const struct found *f, const char *text, const char *where, char *why)
{
    return vb_usage(why, "%s %.64s: must be from %lld to %lld", where, text, (long long)f->opt->min,
                    (long long)f->opt->max);
}

static vb_status set_int(const struct found *f, const char *text, const char *where, char *why)
{
    int64_t value;

    if (!vb_parse_int(text, &value))
        return vb_usage(why, "%s %.64s: must be a whole number", where, text);
    if (value < f->opt->min || value > f->opt->max)
        return say_range(f, text, where, why);
    memcpy(field(f), &value, sizeof(value));
    return VB_OK;
}

static vb_status set_real(const struct found *f, const char *text, const char *where, char *why)
{
    double value;

    if (!vb_parse_real(text, &value))
        return vb_usage(why, "%s %.64s: must be a number", where, text);
    if (value < (double)f->opt->min || value > (double)f->opt->max)
        return say_range(f, text, where, why);
    memcpy(field(f), &value, sizeof(value));
    return VB_OK;
}

static vb_status set_choice(const struct found *f, const char *text, const char *where, char *why)
{
    char known[128];
    int i;

    for (i = 0; f->opt->choices[i] != NULL; i++) {
        if (strcmp(text, f->opt->choices[i]) == 0) {
            memcpy(field(f), &i, sizeof(i));
            return VB_OK;
        }
    }
    list_choices(f->opt->choices, known, sizeof(known));
    return vb_usage(why, "%s %.64s: must be %s", where, text, known);
}

/* Stores text as the value of the option. where is the name that the user wrote, such as
 * "--ranks" or "VB_RANKS". On failure, writes a message to why. */
static vb_status set_value(const struct found *f, const char *text, const char *where, char *why)
{
    switch (f->opt->type) {
    case VB_OPT_FLAG:
        if (parse_flag(text, field(f)))
            return VB_OK;
        return vb_usage(why, "%s %.64s: must be on or off", where, text);
    case VB_OPT_INT:
        return set_int(f, text, where, why);
    case VB_OPT_REAL:
        return set_real(f, text, where, why);
    case VB_OPT_CHOICE:
        return set_choice(f, text, where, why);
    case VB_OPT_TEXT:
        break;
    }
    if (text[0] == '\0')
        return vb_usage(why, "%s: the value is empty", where);
    memcpy(field(f), &text, sizeof(text));
    return VB_OK;
}

static void clear_value(const struct found *f)
{
    static const size_t sizes[] = {[VB_OPT_FLAG] = sizeof(bool),
                                   [VB_OPT_INT] = sizeof(int64_t),
                                   [VB_OPT_REAL] = sizeof(double),
                                   [VB_OPT_TEXT] = sizeof(const char *),
                                   [VB_OPT_CHOICE] = sizeof(int)};

    memset(field(f), 0, sizes[f->opt->type]);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Finds the option with the given index. Returns false if there is no such option. */
static bool option_at(const struct vb_opt_group *groups, int n_groups, int index, struct found *f)
{
    int g, first = 0;

    for (g = 0; g < n_groups; first += groups[g].n_opts, g++) {
        if (index < first + groups[g].n_opts) {
            f->opt = &groups[g].opts[index - first];
            f->into = groups[g].into;
            f->index = index;
            return true;
        }
    }
    return false;
}

static bool is_name(const char *candidate, const char *name, size_t len)
{
    return candidate != NULL && strlen(candidate) == len && strncmp(candidate, name, len) == 0;
}

/* Finds the option whose name or alias is equal to the first len characters of name. */
static bool option_named(const struct vb_opts *o, const char *name, size_t len, struct found *f)
{
    int i;

    for (i = 0; option_at(o->groups, o->n_groups, i, f); i++)
        if (is_name(f->opt->name, name, len) || is_name(f->opt->alias, name, len))
            return true;
    return false;
}

static vb_status say_unknown(const struct vb_opts *o, const char *given, char *why)
{
    const char *names[VB_OPTS_MAX + 2], *best;
    char name[64];
    struct found f;
    int i, n = 0;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(given + 2, "="), given + 2);
    for (i = 0; i < VB_OPTS_MAX && option_at(o->groups, o->n_groups, i, &f); i++)
        if (f.opt->level != VB_OPT_HIDDEN)
            names[n++] = f.opt->name;
    names[n++] = "help";
    names[n++] = "help-all";
    best = vb_nearest_option(name, names, n);
    if (best != NULL)
        return vb_usage(why, "unknown option --%s; did you mean --%s?", name, best);
    return vb_usage(why, "unknown option --%s; --help-all lists all options", name);
}

static vb_status take_defaults(struct vb_opts *o, char *why)
{
    char where[80];
    struct found f;
    int i;

    for (i = 0; option_at(o->groups, o->n_groups, i, &f); i++) {
        if (i == VB_OPTS_MAX)
            return vb_err(VB_ERR_USAGE, "a command has more than %d options", VB_OPTS_MAX);
        clear_value(&f);
        snprintf(where, sizeof(where), "default of --%s", f.opt->name);
        if (f.opt->fallback != NULL && set_value(&f, f.opt->fallback, where, why) != VB_OK)
            return VB_ERR_USAGE;
        o->source[i] = SOURCE_DEFAULT;
    }
    return VB_OK;
}

/* Returns the value of the environment variable of an option or of its alias, or NULL if both
 * variables are unset or empty. name receives the name of the variable that was read last. */
static const char *environment_value(const struct vb_opt *opt, char name[ENV_NAME_MAX])
{
    const char *text;

    env_name(opt->name, name);
    text = getenv(name);
    if ((text == NULL || text[0] == '\0') && opt->alias != NULL) {
        env_name(opt->alias, name);
        text = getenv(name);
    }
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static vb_status take_environment(struct vb_opts *o, char *why)
{
    char name[ENV_NAME_MAX];
    const char *text;
    struct found f;
    int i;

    for (i = 0; option_at(o->groups, o->n_groups, i, &f); i++) {
        text = environment_value(f.opt, name);
        if (text == NULL)
            continue;
        if (set_value(&f, text, name, why) != VB_OK)
            return VB_ERR_USAGE;
        o->source[i] = SOURCE_ENVIRONMENT;
    }
    return VB_OK;
}

/* Reads the option at argv[*i_p]. If its value is the next argument, *i_p moves to that. */
static vb_status take_argument(struct vb_opts *o, int argc, char **argv, int *i_p, char *why)
{
    const char *given = argv[*i_p], *value;
    size_t len = strcspn(given + 2, "=");
    char where[80];
    struct found f;

    if (given[1] != '-')
        return vb_usage(why, "unknown option %.64s; options begin with --", given);
    if (!option_named(o, given + 2, len, &f))
        return say_unknown(o, given, why);
    /* where is the name or the alias, as the user wrote it */
    snprintf(where, sizeof(where), "%.*s", (int)len + 2, given);
    if (given[2 + len] == '=')
        value = given + 2 + len + 1;
    else if (f.opt->type == VB_OPT_FLAG)
        value = "on";
    else if (*i_p + 1 < argc)
        value = argv[++*i_p];
    else
        return vb_usage(why, "%s needs a value: %s", where, f.opt->arg);
    if (set_value(&f, value, where, why) != VB_OK)
        return VB_ERR_USAGE;
    o->source[f.index] = SOURCE_COMMAND_LINE;
    return VB_OK;
}

static void look_for_help(struct vb_opts *o, int argc, char **argv)
{
    int i;

    for (i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help-all") == 0)
            o->help = o->help_all = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            o->help = true;
    }
}

static vb_status take_arguments(struct vb_opts *o, int argc, char **argv, char *why)
{
    vb_status st;
    int i;

    for (i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            for (i++; i < argc; i++)
                argv[o->n_operands++] = argv[i];
        } else if (argv[i][0] != '-' || argv[i][1] == '\0') {
            argv[o->n_operands++] = argv[i];
        } else {
            st = take_argument(o, argc, argv, &i, why);
            if (st != VB_OK)
                return st;
        }
    }
    return VB_OK;
}

vb_status vb_opts_parse(struct vb_opts *opts, const struct vb_opt_group *groups, int n_groups,
                        int argc, char **argv, char why[VB_OPTS_WHY])
{
    vb_status st;

    memset(opts, 0, sizeof(*opts));
    opts->groups = groups;
    opts->n_groups = n_groups;
    opts->operands = (const char *const *)argv;
    why[0] = '\0';
    st = take_defaults(opts, why);
    look_for_help(opts, argc, argv);
    if (st != VB_OK || opts->help)
        return st;
    st = take_environment(opts, why);
    if (st != VB_OK)
        return st;
    return take_arguments(opts, argc, argv, why);
}

/* ---- help and dump --------------------------------------------------------------------------- */

/* Prints text in a column and breaks lines between words. */
static void print_wrapped(FILE *out, const char *text, int column, int width)
{
    int room = width - column, n;

    while (*text != '\0') {
        n = (int)strlen(text);
        if (n > room)
            for (n = room; n > 0 && text[n] != ' '; n--)
                ;
        if (n == 0) /* the word is longer than the width of the column */
            n = (int)strcspn(text, " ");
        fprintf(out, "%.*s\n", n, text);
        text += n;
        text += strspn(text, " ");
        if (*text != '\0')
            fprintf(out, "%*s", column, "");
    }
}

/* Appends a fact to the list of facts in parentheses after the help text of an option. */
static void add_fact(char *text, size_t size, bool *first_p, const char *label, const char *fact)
{
    size_t len = strlen(text);

    snprintf(text + len, size - len, "%s%s%s", *first_p ? " (" : "; ", label, fact);
    *first_p = false;
}

static void print_option(const struct vb_opt *opt, bool with_env, FILE *out)
{
    char left[64], fact[128], text[1024];
    bool first = true;

    snprintf(left, sizeof(left), "--%s%s%s", opt->name, opt->arg != NULL ? " " : "",
             opt->arg != NULL ? opt->arg : "");
    snprintf(text, sizeof(text) - 1, "%s", opt->help);
    if (opt->type == VB_OPT_CHOICE) {
        list_choices(opt->choices, fact, sizeof(fact));
        add_fact(text, sizeof(text) - 1, &first, "", fact);
    }
    if (opt->fallback != NULL)
        add_fact(text, sizeof(text) - 1, &first, "default ", opt->fallback);
    if (with_env) {
        env_name(opt->name, fact);
        add_fact(text, sizeof(text) - 1, &first, "", fact);
    }
    if (!first)
        strcat(text, ")");
    fprintf(out, "  %-*s", HELP_COLUMN - 2, left);
    if (strlen(left) >= HELP_COLUMN - 2)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    print_wrapped(out, text, HELP_COLUMN, HELP_WIDTH);
}

int vb_opts_help(const struct vb_opt_group *groups, int n_groups, bool all, FILE *out)
{
    enum vb_opt_level last = all ? VB_OPT_MORE : VB_OPT_BASIC;
    int g, i, n_more = 0;
    bool printed = false, titled;

    for (g = 0; g < n_groups; g++) {
        titled = false;
        for (i = 0; i < groups[g].n_opts; i++) {
            n_more += groups[g].opts[i].level == VB_OPT_MORE;
            if (groups[g].opts[i].level > last)
                continue;
            if (!titled) /* a title is printed only if the group has an option to show */
                fprintf(out, "%s%s:\n", printed ? "\n" : "", groups[g].title);
            titled = printed = true;
            print_option(&groups[g].opts[i], all, out);
        }
    }
    return n_more;
}

static void value_text(const struct found *f, char *out, size_t size)
{
    const char *text;
    int64_t number;
    double real;
    int choice;
    bool flag;

    switch (f->opt->type) {
    case VB_OPT_FLAG:
        memcpy(&flag, field(f), sizeof(flag));
        snprintf(out, size, "%s", flag ? "on" : "off");
        return;
    case VB_OPT_INT:
        memcpy(&number, field(f), sizeof(number));
        snprintf(out, size, "%lld", (long long)number);
        return;
    case VB_OPT_REAL:
        memcpy(&real, field(f), sizeof(real));
        snprintf(out, size, "%.10g", real);
        if (strtod(out, NULL) != real) /* the text must give the same number again */
            snprintf(out, size, "%.17g", real);
        return;
    case VB_OPT_CHOICE:
        memcpy(&choice, field(f), sizeof(choice));
        snprintf(out, size, "%s", f->opt->choices[choice]);
        return;
    case VB_OPT_TEXT:
        break;
    }
    memcpy(&text, field(f), sizeof(text));
    snprintf(out, size, "%s", text != NULL ? text : "none");
}

bool vb_opts_given(const struct vb_opts *opts, const char *name)
{
    struct found f;

    return option_named(opts, name, strlen(name), &f) && opts->source[f.index] != SOURCE_DEFAULT;
}

bool vb_opts_at(const struct vb_opts *opts, int index, struct vb_opt_value *value_p)
{
    const char *text;
    struct found f;

    if (!option_at(opts->groups, opts->n_groups, index, &f))
        return false;
    value_p->name = f.opt->name;
    value_p->source = source_names[opts->source[index]];
    value_p->given = opts->source[index] != SOURCE_DEFAULT;
    value_text(&f, value_p->buf, sizeof(value_p->buf));
    value_p->text = value_p->buf;
    if (f.opt->type == VB_OPT_TEXT) {
        memcpy(&text, field(&f), sizeof(text));
        value_p->text = text;
    }
    return true;
}

void vb_opts_dump(const struct vb_opts *opts, const char *command)
{
    char value[256];
    struct found f;
    int i;

    for (i = 0; option_at(opts->groups, opts->n_groups, i, &f); i++) {
        value_text(&f, value, sizeof(value));
        VB_LOG_INFO("%s: --%s = %s (%s)", command, f.opt->name, value,
                    source_names[opts->source[i]]);
    }
}
