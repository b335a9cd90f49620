/* SPDX-License-Identifier: MIT
 *
 * Functions that all subcommands share: common options, help texts, usage errors.
 */
#include "cli/cli.h"
#include "models/models.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define GROUPS_MAX 16

static const char *const level_choices[] = {"error", "warn", "info", "debug", "trace", NULL};

/* The only option that all commands have is stored in an int. */
static const struct vb_opt common_opts[] = {
    {"log-level", VB_OPT_CHOICE, 0, "warn", .choices = level_choices, .arg = "LEVEL",
     .help = "how much to write to standard error; info also lists the values of all options"},
};

static void print_help(const struct cli_command *command, const struct vb_opts *opts)
{
    int n_more;

    printf("Usage: verbena %s %s\n\n%s\n\n", command->name, command->usage, command->about);
    if (opts->help_all && command->details != NULL)
        printf("%s\n\n", command->details);
    n_more = vb_opts_help(opts->groups, opts->n_groups, opts->help_all, stdout);
    printf("  %-24sprint the help text with the main options\n", "--help");
    printf("  %-24sprint the help text with all options\n", "--help-all");
    if (opts->help_all) {
        printf(
            "\nA name such as VB_LOG_LEVEL is the environment variable of the option. The command "
            "line\noverrides the environment.\n");
        return;
    }
    printf("\nEach option has an environment variable, too: --log-level is VB_LOG_LEVEL.\n");
    if (n_more > 0)
        printf("verbena %s --help-all shows %d more option%s.\n", command->name, n_more,
               n_more == 1 ? "" : "s");
}

int cli_refuse(const struct cli_command *command, const char *fmt, ...)
{
    char why[2 * VB_OPTS_WHY];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    fprintf(stderr, "verbena %s: %s\n", command->name, why); /* one write keeps the line whole */
    return CLI_USAGE;
}

void cli_names_text(const char *const *names, int n, char *text, size_t size)
{
    size_t len = 0;
    int i;

    text[0] = '\0';
    for (i = 0; i < n && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s",
                                i == 0       ? ""
                                : i == n - 1 ? " or "
                                             : ", ",
                                names[i]);
}

int cli_find_name(const struct cli_command *command, const char *what, const char *given,
                  const char *const *names, int n)
{
    char known[VB_OPTS_WHY];
    const char *best;
    int i;

    for (i = 0; i < n; i++)
        if (strcmp(given, names[i]) == 0)
            return i;
    best = vb_nearest(given, names, n);
    cli_names_text(names, n, known, sizeof(known));
    if (best != NULL)
        cli_refuse(command, "unknown %s %.64s; did you mean %s?", what, given, best);
    else
        cli_refuse(command, "unknown %s %.64s; must be %s", what, given, known);
    return -1;
}

static void add_name(struct cli_names *names, const char *name)
{
    VB_ASSERT(names->n < CLI_NAMES_MAX);
    if (names->n < CLI_NAMES_MAX)
        names->list[names->n++] = name;
}

struct cli_names cli_model_names(bool nets)
{
    struct cli_names names = {.n = 0};
    int i, k, n;
    const struct vb_train_model *models = vb_train_models(&n);

    for (i = 0; i < n; i++)
        for (k = 0; k < (nets ? VB_TRAIN_NETS : 1) && models[i].nets[k].name != NULL; k++)
            add_name(&names, nets ? models[i].nets[k].name : models[i].name);
    return names;
}

int cli_find_model(const struct cli_command *command, const char *question, const char *given,
                   const struct cli_names *names, const char **name_p)
{
    char known[VB_OPTS_WHY];
    int i;

    if (given == NULL) {
        cli_names_text(names->list, names->n, known, sizeof(known));
        return cli_refuse(command, "%s %s", question, known);
    }
    i = cli_find_name(command, "model", given, names->list, names->n);
    if (i < 0)
        return CLI_USAGE;
    *name_p = names->list[i];
    return -1;
}

const struct vb_train_model *cli_net_find(const char *name, const struct vb_train_net **net_p)
{
    int i, k, n;
    const struct vb_train_model *models = vb_train_models(&n);

    for (i = 0; i < n; i++)
        for (k = 0; k < VB_TRAIN_NETS && models[i].nets[k].name != NULL; k++)
            if (strcmp(models[i].nets[k].name, name) == 0) {
                *net_p = &models[i].nets[k];
                return &models[i];
            }
    return NULL;
}

int cli_parse_numbers(const char *text, int64_t max, int64_t *numbers, int n_max)
{
    char one[32];
    size_t len;
    int n;

    for (n = 0; n < n_max; text += len + 1) {
        len = strcspn(text, ",");
        if (len >= sizeof(one))
            return -1;
        memcpy(one, text, len);
        one[len] = '\0';
        if (!vb_parse_int(one, &numbers[n]) || numbers[n] < 1 || numbers[n] > max)
            return -1;
        n++;
        if (text[len] == '\0')
            return n;
    }
    return -1;
}

int cli_parse(const struct cli_command *command, const struct vb_opt_group *groups, int n_groups,
              int max_operands, int argc, char **argv, struct vb_opts *opts)
{
    struct vb_opt_group all[GROUPS_MAX];
    int log_level;
    char why[VB_OPTS_WHY];

    VB_ASSERT(n_groups < GROUPS_MAX);
    if (n_groups > 0)
        memcpy(all, groups, (size_t)n_groups * sizeof(*all));
    all[n_groups] =
        (struct vb_opt_group){"Common options", common_opts, VB_COUNT(common_opts), &log_level};
    if (argc == 1 && cli_help_print(command, all, n_groups + 1, argv[0]))
        return cli_finish(CLI_OK);
    if (vb_opts_parse(opts, all, n_groups + 1, argc, argv, why) != VB_OK)
        return cli_refuse(command, "%s", why);
    if (opts->help) {
        print_help(command, opts);
        return cli_finish(CLI_OK);
    }
    if (opts->n_operands > max_operands)
        return cli_refuse(command, "unexpected argument %.64s", opts->operands[max_operands]);
    vb_log_set_level((enum vb_level)log_level);
    vb_opts_dump(opts, command->name);
    opts->groups = groups; /* all[] goes out of scope; its first groups are the caller's */
    opts->n_groups = n_groups;
    return -1;
}

vb_status cli_find_checkpoint(const char *given, char path[PATH_MAX])
{
    struct stat info;
    vb_status st;

    if (stat(given, &info) == 0 && S_ISDIR(info.st_mode)) {
        st = vb_checkpoint_latest(given, path, PATH_MAX);
        return st == VB_ERR_NO_FILE ? vb_err(st, "%s: there is no checkpoint in this folder", given)
                                    : st;
    }
    if ((size_t)snprintf(path, PATH_MAX, "%s", given) >= PATH_MAX)
        return vb_err(VB_ERR_USAGE, "cannot read %.64s...: the path is too long", given);
    return VB_OK;
}

void cli_json_view(struct vb_json *json, const struct vb_checkpoint_view *view)
{
    if (view->run == 0)
        return;
    vb_json_object(json, "view");
    vb_json_int(json, "run", view->run);
    vb_json_int(json, "view", view->view);
    vb_json_int(json, "term", (int64_t)view->term);
    vb_json_end(json);
}

/* ---- the end of a command -------------------------------------------------------------------- */

int cli_exit_code(vb_status st)
{
    if (st == VB_OK)
        return CLI_OK;
    return st == VB_ERR_USAGE ? CLI_USAGE : CLI_FAILED;
}

struct vb_json *cli_json_object(void)
{
    struct vb_json *json = vb_json_create();

    vb_json_object(json, NULL);
    return json;
}

vb_status cli_print_json(struct vb_json *json)
{
    vb_status st;

    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

int cli_finish(int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    fprintf(stderr, "verbena: writing to standard output failed: %s\n", strerror(errno));
    return CLI_FAILED;
}
