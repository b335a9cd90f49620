/* SPDX-License-Identifier: MIT
 *
 * The verbena command: finds the subcommand and runs it.
 */
#include "cli/cli.h"
#include "kernels/kernels.h"

#include <signal.h>
#include <string.h>

static const struct cli_command *const commands[] = {
    &cli_bench,  &cli_completion, &cli_ctl,    &cli_data,  &cli_demo, &cli_doctor, &cli_eval,
    &cli_export, &cli_ops,        &cli_report, &cli_sweep, &cli_top,  &cli_topo,   &cli_train};

const struct cli_command *const *cli_commands(int *n_p)
{
    *n_p = VB_COUNT(commands);
    return commands;
}

static const struct cli_command *command_named(const char *name)
{
    size_t i;

    for (i = 0; i < VB_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int print_help(void)
{
    size_t i;

    printf("Usage: verbena COMMAND [OPTIONS]\n\n"
           "Verbena trains models on one machine or on a small cluster, and shows where the time "
           "went.\n\nCommands:\n");
    for (i = 0; i < VB_COUNT(commands); i++)
        printf("  %-12s%s\n", commands[i]->name, commands[i]->summary);
    printf("\n  verbena COMMAND --help       how to use a command, and its main options\n"
           "  verbena COMMAND --help-all   the same with all options\n"
           "  verbena --version [--json]   the versions of verbena and of its libraries\n");
    return cli_finish(CLI_OK);
}

static int print_version(int argc, char **argv)
{
    bool json = argc > 0 && strcmp(argv[0], "--json") == 0;

    if (argc > (json ? 1 : 0)) {
        fprintf(stderr, "verbena: --version %.64s: only --json may follow --version\n",
                argv[json ? 1 : 0]);
        return CLI_USAGE;
    }
    return cli_finish(cli_exit_code(cli_version_print(json)));
}

static int unknown(const char *name)
{
    const char *names[VB_COUNT(commands)], *best;
    size_t i;

    for (i = 0; i < VB_COUNT(commands); i++)
        names[i] = commands[i]->name;
    best = vb_nearest(name, names, VB_COUNT(commands));
    fprintf(stderr, "verbena: unknown %s %.64s; ", name[0] == '-' ? "option" : "command", name);
    if (best != NULL)
        fprintf(stderr, "did you mean %s?\n", best);
    else
        fprintf(stderr, "verbena --help lists all commands\n");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    static char flag[] = "--help";
    char *help[] = {flag};
    const struct cli_command *command;
    bool helps;

    /* SIGXFSZ is ignored, so that a write beyond the file size limit fails with an error message
     * that names the file. */
    (void)signal(SIGXFSZ, SIG_IGN);
    vb_k_blas_no_threads();
    if (vb_stack_ready() != VB_OK)
        return CLI_FAILED;
    if (argc < 2) {
        fprintf(stderr, "verbena: the command is missing; verbena --help lists all commands\n");
        return CLI_USAGE;
    }
    helps = strcmp(argv[1], "help") == 0; /* "verbena help topo" is "verbena topo --help" */
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (helps && argc < 3))
        return print_help();
    if (strcmp(argv[1], "--version") == 0)
        return print_version(argc - 2, argv + 2);
    command = command_named(argv[helps ? 2 : 1]);
    if (command == NULL)
        return unknown(argv[helps ? 2 : 1]);
    return helps ? command->run(command, 1, help) : command->run(command, argc - 2, argv + 2);
}
