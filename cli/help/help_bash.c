/* SPDX-License-Identifier: MIT
 *
 * Prints the completion script for bash: a function with the tables, and one that reads the words
 * on the command line. It needs nothing but bash 4.
 */
#include "cli/help/help.h"

#include <stdio.h>

void cli_help_bash_begin(const struct cli_command *const *commands, int n)
{
    int i;

    printf("# bash completion for verbena. `verbena completion bash` has written this file.\n\n"
           "_verbena_commands='");
    for (i = 0; i < n; i++)
        printf("%s%s", i > 0 ? " " : "", commands[i]->name);
    printf("'\n\n"
           "# Fills in what can follow command $1; $2 is the option whose value is wanted.\n"
           "_verbena_table() {\n    case $1 in\n");
}

/* Prints the options that need no value, or all options. */
static void print_names(const struct help_page *page, bool flags)
{
    const struct vb_opt *opt;
    int i;

    printf("        %s='--help --help-all", flags ? "flags" : "options");
    for (i = 0; (opt = cli_help_option(page, i)) != NULL; i++)
        if (!flags || opt->type == VB_OPT_FLAG)
            printf(" --%s", opt->name);
    printf("'\n");
}

static void print_words(const struct cli_names *words)
{
    int i;

    for (i = 0; i < words->n; i++)
        printf("%s%s", i > 0 ? " " : "", words->list[i]);
}

static void print_values(const struct help_page *page)
{
    const struct vb_opt *opt;
    struct help_value value;
    int i;

    printf("        case $2 in\n");
    for (i = 0; (opt = cli_help_option(page, i)) != NULL; i++) {
        value = cli_help_value(opt);
        if (opt->type == VB_OPT_FLAG || value.offer == OFFER_FILES)
            continue;
        printf("        --%s) ", opt->name);
        if (value.offer == OFFER_WORDS) {
            printf("offer=words values='");
            print_words(&value.words);
            printf("' ;;\n");
        } else {
            printf("offer=%s ;;\n", value.offer == OFFER_FOLDERS ? "folders" : "nothing");
        }
    }
    printf("        esac\n");
}

static void print_operand(const char *name, struct cli_names (*fn)(void))
{
    struct cli_names words;

    if (fn == NULL)
        return;
    words = fn();
    printf("        %s='", name);
    print_words(&words);
    printf("'\n");
}

void cli_help_bash(const struct help_page *page)
{
    printf("    %s)\n", page->command->name);
    print_operand("words", page->command->words);
    print_operand("then", page->command->then);
    print_names(page, true);
    print_names(page, false);
    print_values(page);
    printf("        ;;\n");
}

/* bash cuts words at "=" and ":", so these stand in COMP_WORDS as words of their own. */
static const char script[] =
    "_verbena_offer() {\n"
    "    local cur=$1\n"
    "    case $offer in\n"
    "    words) mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$cur\") ;;\n"
    "    folders) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
    "    files) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
    "    esac\n"
    "    case $offer in\n"
    "    folders | files) compopt -o filenames 2>/dev/null ;; # adds / to folders, quotes blanks\n"
    "    esac\n"
    "    return 0\n"
    "}\n"
    "\n"
    "_verbena() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} option='' operands=0 i\n"
    "    local words='' then='' flags='' options='' values='' offer=files\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -le 1 ] || [ \"$command\" = help ]; then\n"
    "        values=$_verbena_commands offer=words\n"
    "        [ \"$command\" = help ] || values+=' help --help --version'\n"
    "        _verbena_offer \"$cur\"\n"
    "        return\n"
    "    fi\n"
    "    [ \"$command\" != --version ] || { values=--json offer=words; _verbena_offer \"$cur\"; "
    "return; }\n"
    "    _verbena_table \"$command\" ''\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        =) ;;\n"
    "        :) i=$((i + 1)) words='' ;; # the rest of a word such as mnist:DIR\n"
    "        --*) option=${COMP_WORDS[i]} ;;\n"
    "        *) [ -n \"$option\" ] || operands=$((operands + 1)); option='' ;;\n"
    "        esac\n"
    "        case \" $flags \" in *\" $option \"*) option='' ;; esac\n"
    "    done\n"
    "    case $cur in\n"
    "    = | :) cur='' ;;\n"
    "    -*) [ -n \"$option\" ] || { values=$options offer=words; _verbena_offer \"$cur\"; return; "
    "} ;;\n"
    "    esac\n"
    "    if [ -n \"$option\" ]; then\n"
    "        _verbena_table \"$command\" \"$option\"\n"
    "    elif [ \"$operands\" = 0 ] && [ -n \"$words\" ]; then\n"
    "        values=$words offer=words\n"
    "    elif [ \"$operands\" = 1 ] && [ -n \"$then\" ]; then\n"
    "        values=$then offer=words\n"
    "    fi\n"
    "    _verbena_offer \"$cur\"\n"
    "}\n"
    "\n"
    "complete -F _verbena verbena\n";

void cli_help_bash_end(void)
{
    printf("    esac\n}\n\n%s", script);
}
