/* SPDX-License-Identifier: MIT
 *
 * Prints the man page of a command, in the mdoc language. Each sentence begins on a new line, as
 * mdoc wants it, and no line of text is longer than the width.
 */
#include "cli/help/help.h"

#include <ctype.h>
#include <string.h>

#define WIDTH 78

/* Text that is being printed word by word. */
struct flow {
    int column;
};

/* Prints a word so that mdoc does not read it as a request, an escape or a hyphen. */
static void print_escaped(const char *word, int len, bool starts_line)
{
    int i;

    if (starts_line && (word[0] == '.' || word[0] == '\''))
        printf("\\&");
    for (i = 0; i < len; i++) {
        if (word[i] == '\\')
            printf("\\e");
        else if (word[i] == '-')
            printf("\\-");
        else
            putchar(word[i]);
    }
}

static int escaped_len(const char *word, int len)
{
    int i, n = len;

    for (i = 0; i < len; i++)
        n += word[i] == '\\' || word[i] == '-';
    return n;
}

static void end_line(struct flow *flow)
{
    if (flow->column > 0)
        printf("\n");
    flow->column = 0;
}

static void flow_word(struct flow *flow, const char *word, int len)
{
    int width = escaped_len(word, len);

    if (flow->column > 0 && flow->column + 1 + width > WIDTH)
        end_line(flow);
    if (flow->column > 0)
        printf(" ");
    print_escaped(word, len, flow->column == 0);
    flow->column += width + 1;
    if (strchr(".!?", word[len - 1]) != NULL)
        end_line(flow);
}

/* Prints the words of the first n characters of text. */
static void flow_text(struct flow *flow, const char *text, size_t n)
{
    size_t at = 0, len;

    while (at < n) {
        len = strcspn(text + at, " \n");
        if (len > n - at)
            len = n - at;
        if (len > 0)
            flow_word(flow, text + at, (int)len);
        at += len + 1;
    }
}

/* A line that begins with two blanks is an example or a row of a table: it is printed as it is. */
static bool is_literal(const char *line)
{
    return strncmp(line, "  ", 2) == 0;
}

/* Prints lines as they are, up to the first that is not literal. Returns that line. */
static const char *print_literal(const char *line)
{
    size_t len;

    printf(".Bd -literal\n");
    while (is_literal(line)) {
        len = strcspn(line, "\n");
        print_escaped(line + 2, (int)len - 2, true);
        printf("\n");
        line += len + (line[len] == '\n');
        if (line[0] == '\n' && is_literal(line + 1)) {
            printf("\n");
            line++;
        }
    }
    printf(".Ed\n");
    return line;
}

static void print_paragraphs(const char *line)
{
    struct flow flow = {0};
    bool first = true;
    size_t len;

    while (*line != '\0') {
        if (is_literal(line)) {
            end_line(&flow);
            line = print_literal(line);
            first = false;
            continue;
        }
        len = strcspn(line, "\n");
        if (len == 0 && !is_literal(line + 1)) {
            end_line(&flow);
            if (!first)
                printf(".Pp\n");
        }
        flow_text(&flow, line, len);
        first = first && len == 0;
        line += len + (line[len] == '\n');
    }
    end_line(&flow);
}

static void print_choices(struct flow *flow, const char *const *choices)
{
    int i;

    flow_text(flow, "One of", strlen("One of"));
    for (i = 0; choices[i] != NULL; i++) {
        char word[64];
        const char *after = choices[i + 1] == NULL ? "." : choices[i + 2] == NULL ? " or" : ",";

        snprintf(word, sizeof(word), "%s%s", choices[i], after);
        flow_text(flow, word, strlen(word));
    }
}

static void print_option(const struct vb_opt *opt)
{
    struct flow flow = {0};
    char text[128];

    printf(".It Fl -%s%s%s\n", opt->name, opt->arg != NULL ? " Ar " : "",
           opt->arg != NULL ? opt->arg : "");
    flow_text(&flow, opt->help, strlen(opt->help));
    if (flow.column > 0)
        printf(".\n");
    flow.column = 0;
    if (opt->type == VB_OPT_CHOICE)
        print_choices(&flow, opt->choices);
    if (opt->fallback != NULL) {
        snprintf(text, sizeof(text), "The default is %s.", opt->fallback);
        flow_text(&flow, text, strlen(text));
    }
    end_line(&flow);
}

static void print_group(const struct vb_opt_group *group)
{
    bool listed = false;
    int i;

    for (i = 0; i < group->n_opts; i++) {
        if (group->opts[i].level == VB_OPT_HIDDEN)
            continue;
        if (!listed)
            printf(".Ss %s\n.Bl -tag -width Ds\n", group->title);
        listed = true;
        print_option(&group->opts[i]);
    }
    if (listed)
        printf(".El\n");
}

static void print_head(const struct cli_command *command)
{
    const char *at;

    printf(".\\\" SPDX-License-Identifier: MIT\n.\\\" verbena %s " CLI_HELP_MAN
           " has written this page.\n.Dd " VB_MAN_DATE "\n.Dt VERBENA-",
           command->name);
    for (at = command->name; *at != '\0'; at++)
        putchar(toupper((unsigned char)*at));
    printf(" 1\n.Os\n.Sh NAME\n.Nm verbena-%s\n.Nd %s\n.Sh SYNOPSIS\n.Nm verbena %s\n",
           command->name, command->summary, command->name);
    print_paragraphs(command->usage);
    printf(".Sh DESCRIPTION\n");
    print_paragraphs(command->about);
    if (command->details != NULL) {
        printf(".Pp\n");
        print_paragraphs(command->details);
    }
}

void cli_help_man(const struct help_page *page)
{
    int g;

    print_head(page->command);
    printf(".Sh OPTIONS\nAn option is written as\n.Fl -name Ar value\nor\n.Fl -name Ns = Ns "
           "Ar value .\nEach option has an environment variable, too:\n.Fl -log-level\nis\n"
           ".Ev VB_LOG_LEVEL .\nThe command line overrides the environment.\n");
    for (g = 0; g < page->n_groups; g++)
        print_group(&page->groups[g]);
    printf(".Sh EXIT STATUS\n0 on success, 1 if the command has failed, 2 if it was called with "
           "wrong\narguments.\n.Sh SEE ALSO\n.Xr verbena 1\n");
}
