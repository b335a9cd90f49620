/* SPDX-License-Identifier: MIT
 *
 * verbena completion: prints the completion script of a shell.
 */
#include "cli/help/help.h"

static const char *const shells[] = {"bash", "zsh"};

static struct cli_names shell_names(void)
{
    return (struct cli_names){.list = {shells[0], shells[1]}, .n = VB_COUNT(shells)};
}

/* Each command knows its options only while it runs, so each prints its own part. */
static int print_parts(const char *how)
{
    char flag[sizeof(CLI_HELP_BASH)], *argv[] = {flag, NULL};
    const struct cli_command *const *commands;
    int i, n, rc = CLI_OK;

    commands = cli_commands(&n);
    for (i = 0; i < n && rc == CLI_OK; i++) {
        snprintf(flag, sizeof(flag), "%s", how);
        rc = commands[i]->run(commands[i], 1, argv);
    }
    return rc;
}

static int print_script(int shell)
{
    const struct cli_command *const *commands;
    int n, rc;

    commands = cli_commands(&n);
    if (shell == 0)
        cli_help_bash_begin(commands, n);
    else
        cli_help_zsh_begin(commands, n);
    rc = print_parts(shell == 0 ? CLI_HELP_BASH : CLI_HELP_ZSH);
    if (shell == 0)
        cli_help_bash_end();
    else
        cli_help_zsh_end();
    return cli_finish(rc);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct vb_opts parsed;
    int shell, rc = cli_parse(command, NULL, 0, 1, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands == 0)
        return cli_refuse(command, "the shell is missing: bash or zsh");
    shell = cli_find_name(command, "shell", parsed.operands[0], shells, VB_COUNT(shells));
    return shell < 0 ? CLI_USAGE : print_script(shell);
}

const struct cli_command cli_completion = {
    .name = "completion",
    .summary = "print the script with which bash or zsh complete commands and options",
    .usage = "bash | zsh",
    .about = "Prints a script for the shell. The packages install both scripts. Without the\n"
             "packages, this line in ~/.bashrc or, after compinit, in ~/.zshrc does the same:\n"
             "\n"
             "  source <(verbena completion bash)\n"
             "  source <(verbena completion zsh)",
    .words = shell_names,
    .run = run,
};
