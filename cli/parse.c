/* SPDX-License-Identifier: MIT
 *
 * The part of a subcommand that is the same for all: common options, --help, usage errors.
 */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#define GROUPS_MAX 8

struct common {
    int log_level;
};

static const char *const level_choices[] = {"error", "warn", "info", "debug", "trace", NULL};

static const struct vb_opt common_opts[] = {
    {.name = "log-level",
     .type = VB_OPT_CHOICE,
     .offset = offsetof(struct common, log_level),
     .fallback = "warn",
     .choices = level_choices,
     .arg = "LEVEL",
     .help = "how much to tell on standard error; from info on, all options in force are listed"},
};

static void print_help(const struct cli_command *command, const struct vb_opt_group *groups,
                       int n_groups)
{
    printf("Usage: verbena %s %s\n\n%s\n\n", command->name, command->usage, command->about);
    vb_opts_help(groups, n_groups, stdout);
    printf("  %-24sthis text\n", "--help");
    printf("\nAn option may also be given by the environment variable named beside it; the command "
           "line wins.\n");
}

int cli_refuse(const struct cli_command *command, const char *why)
{
    fprintf(stderr, "verbena %s: %s\n", command->name, why);
    return CLI_USAGE;
}

int cli_parse(const struct cli_command *command, const struct vb_opt_group *groups, int n_groups,
              int max_operands, int argc, char **argv, struct vb_opts *opts)
{
    struct vb_opt_group all[GROUPS_MAX];
    struct common common;
    char why[VB_OPTS_WHY];

    if (n_groups >= GROUPS_MAX)
        return cli_refuse(command, "more groups of options than there is room for");
    memcpy(all, groups, (size_t)n_groups * sizeof(*all));
    all[n_groups] = (struct vb_opt_group){
        .title = "Common options", .opts = common_opts, .n_opts = 1, .into = &common};
    if (vb_opts_parse(opts, all, n_groups + 1, argc, argv, why) != VB_OK)
        return cli_refuse(command, why);
    if (opts->help) {
        print_help(command, all, n_groups + 1);
        return cli_finish(CLI_OK);
    }
    if (opts->n_operands > max_operands) {
        snprintf(why, sizeof(why), "unexpected argument %.64s", opts->operands[max_operands]);
        return cli_refuse(command, why);
    }
    vb_log_set_level((enum vb_level)common.log_level);
    vb_opts_dump(opts, command->name);
    opts->groups = groups; /* the caller's, which come first; the others are on this stack */
    opts->n_groups = n_groups;
    return -1;
}

int cli_exit_code(vb_status st)
{
    if (st == VB_OK)
        return CLI_OK;
    return st == VB_ERR_USAGE ? CLI_USAGE : CLI_FAILED;
}

int cli_finish(int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    fprintf(stderr, "verbena: writing to standard output failed: %s\n", strerror(errno));
    return CLI_FAILED;
}
