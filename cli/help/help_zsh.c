/* SPDX-License-Identifier: MIT
 *
 * Prints the completion script for zsh: one call of _arguments a command.
 */
#include "cli/help/help.h"

#include <stdio.h>
#include <string.h>

/* Prints text that stands between single quotes in a specification of _arguments. */
static void print_quoted(const char *text, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++) {
        if (text[i] == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", text[i]) != NULL)
            printf("\\%c", text[i]);
        else
            putchar(text[i]);
    }
}

/* Returns the length of the first clause of a help text: a menu has one line an option. */
static size_t first_clause(const char *help)
{
    const char *at;

    for (at = help; *at != '\0'; at++)
        if (strchr(";:.", *at) != NULL && (at[1] == ' ' || at[1] == '\0'))
            break;
    return (size_t)(at - help);
}

static void print_words(const struct cli_names *words)
{
    int i;

    printf("(");
    for (i = 0; i < words->n; i++)
        printf("%s%s", i > 0 ? " " : "", words->list[i]);
    printf(")");
}

static void print_option(const struct vb_opt *opt)
{
    struct help_value value = cli_help_value(opt);

    printf("            '--%s%s[", opt->name, opt->type == VB_OPT_FLAG ? "" : "=");
    print_quoted(opt->help, first_clause(opt->help));
    printf("]");
    if (opt->type != VB_OPT_FLAG) {
        printf(":");
        print_quoted(opt->arg, strlen(opt->arg));
        printf(":");
        if (value.offer == OFFER_WORDS)
            print_words(&value.words);
        else
            printf("%s", value.offer == OFFER_FILES     ? "_files"
                         : value.offer == OFFER_FOLDERS ? "_files -/"
                                                        : " ");
    }
    printf("' \\\n");
}

static void print_operand(int at, struct cli_names (*fn)(void))
{
    struct cli_names words;

    if (fn == NULL)
        return;
    words = fn();
    printf("            '%d:argument:", at);
    print_words(&words);
    printf("' \\\n");
}

void cli_help_zsh(const struct help_page *page)
{
    const struct vb_opt *opt;
    int i;

    printf("        (%s)\n        _arguments \\\n", page->command->name);
    for (i = 0; (opt = cli_help_option(page, i)) != NULL; i++)
        print_option(opt);
    print_operand(1, page->command->words);
    print_operand(2, page->command->then);
    printf("            '(- *)--help[print the help text with the main options]' \\\n"
           "            '(- *)--help-all[print the help text with all options]' \\\n"
           "            '*:file:_files'\n        ;;\n");
}

void cli_help_zsh_begin(const struct cli_command *const *commands, int n)
{
    int i;

    printf("#compdef verbena\n# `verbena completion zsh` has written this file.\n\n"
           "_verbena_commands() {\n    local -a commands=(\n");
    for (i = 0; i < n; i++) {
        printf("        '%s:", commands[i]->name);
        print_quoted(commands[i]->summary, strlen(commands[i]->summary));
        printf("'\n");
    }
    printf("        'help:print the help text of a command'\n    )\n"
           "    _describe -t commands command commands\n}\n\n"
           "_verbena() {\n    local context state state_descr line\n    typeset -A opt_args\n"
           "    _arguments -C \\\n        '(- *)--help[print the list of commands]' \\\n"
           "        '(- *)--version[print the versions of verbena and of its libraries]' \\\n"
           "        '1:command:_verbena_commands' \\\n        '*::argument:->argument'\n"
           "    [[ $state == argument ]] || return\n"
           "    case $words[1] in\n        (help)\n        _verbena_commands\n        ;;\n");
}

void cli_help_zsh_end(void)
{
    /* As a file in fpath, the script is the body of the function and completes at once. */
    printf("    esac\n}\n\nif [[ $funcstack[1] == _verbena ]]; then\n    _verbena \"$@\"\nelse\n"
           "    compdef _verbena verbena\nfi\n");
}
