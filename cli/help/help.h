/* SPDX-License-Identifier: MIT
 *
 * Other forms of the help text of a command: a man page, and the parts of the completion scripts
 * about the command. All are made from the tables of options with which the command parses its
 * arguments.
 */
#ifndef VB_CLI_HELP_HELP_H
#define VB_CLI_HELP_HELP_H

#include "cli/cli.h"

/* A command and all its options. */
struct help_page {
    const struct cli_command *command;
    const struct vb_opt_group *groups;
    int n_groups;
};

/* What a shell can offer as the value of an option. */
enum help_offer { OFFER_NOTHING, OFFER_WORDS, OFFER_FOLDERS, OFFER_FILES };

struct help_value {
    enum help_offer offer;
    struct cli_names words; /* of OFFER_WORDS */
};

struct help_value cli_help_value(const struct vb_opt *opt);

/* Returns the option with this index, without those that no help text shows, or NULL if there is
 * none. */
const struct vb_opt *cli_help_option(const struct help_page *page, int index);

void cli_help_man(const struct help_page *page);
void cli_help_bash(const struct help_page *page);
void cli_help_zsh(const struct help_page *page);

/* The beginning and the end of a completion script. cli_help_bash() and cli_help_zsh() print what
 * stands between them. */
void cli_help_bash_begin(const struct cli_command *const *commands, int n);
void cli_help_bash_end(void);
void cli_help_zsh_begin(const struct cli_command *const *commands, int n);
void cli_help_zsh_end(void);

#endif
