/* SPDX-License-Identifier: MIT
 *
 * verbena sweep: trains a model with each combination of lists of options, and compares.
 */
#include "cli/sweep/cmd_sweep.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DIR_MAX (PATH_MAX - SWEEP_NAME - 64) /* the folder of a run is below it */

/* ---- arguments ------------------------------------------------------------------------------- */

static int fill_lists(const struct sweep_args *a, struct sweep_plan *plan)
{
    char why[VB_OPTS_WHY];
    bool any = a->repeat > 1;
    int axis, i;

    for (axis = 0; axis < SWEEP_AXES; axis++) {
        struct sweep_list *list = &plan->lists[axis];

        if (a->lists[axis] == NULL)
            continue;
        if (cli_sweep_list(cli_sweep_axes[axis], a->lists[axis], list, why) != VB_OK)
            return cli_refuse(&cli_sweep, "%s", why);
        for (i = 0; i < list->n; i++)
            if (!cli_sweep_value_ok((enum sweep_axis)axis, list->values[i], why))
                return cli_refuse(&cli_sweep, "%s", why);
        any = true;
    }
    if (!any)
        return cli_refuse(
            &cli_sweep, "nothing to compare: give a list, such as --batch 16,64,256, or --repeat");
    return -1;
}

static int fill_plan(const struct sweep_asked *a, struct sweep_plan *plan)
{
    char why[VB_OPTS_WHY];
    int i, rc;

    plan->repeat = (int)a->args.repeat;
    plan->ranks = a->train.job.hosts != NULL ? 0 : 1;
    rc = fill_lists(&a->args, plan);
    if (rc >= 0)
        return rc;
    if (plan->lists[AXIS_LINK].n > 0 && vb_link_usable(why) != VB_OK)
        return cli_refuse(&cli_sweep, "%s", why);
    if (cli_sweep_plan(plan, why) != VB_OK)
        return cli_refuse(&cli_sweep, "%s", why);
    for (i = 0; i < plan->n_notes; i++)
        fprintf(stderr, "%s (%d of the combinations)\n", plan->notes[i].text, plan->notes[i].n);
    return -1;
}

/* Copies the model and the options of train that were on the command line; those of the environment
 * reach the runs by themselves. */
static vb_status fill_fixed(const struct sweep_asked *a, const char *model, struct sweep *s)
{
    struct vb_opt_value v;
    int i;

    s->fixed = calloc(VB_OPTS_MAX + 1, sizeof(*s->fixed));
    if (s->fixed == NULL || (s->fixed[0] = strdup(model)) == NULL)
        return vb_err_sys("calloc");
    s->n_fixed = 1;
    s->seed = a->args.vary_seed ? a->train.args.seed : -1;
    for (i = 0; vb_opts_at(&a->parsed, i, &v); i++) {
        bool own = i < a->groups[0].n_opts + a->groups[1].n_opts;

        if (own || strcmp(v.source, "command line") != 0 || v.text == NULL ||
            (s->seed >= 0 && strcmp(v.name, "seed") == 0))
            continue;
        if (asprintf(&s->fixed[s->n_fixed], "--%s=%s", v.name, v.text) < 0) {
            s->fixed[s->n_fixed] = NULL;
            return vb_err_sys("asprintf");
        }
        s->n_fixed++;
    }
    return VB_OK;
}

static int fill_dir(const struct sweep_args *a, const char *model, struct sweep *s)
{
    time_t now = time(NULL);
    char date[32] = "";
    struct tm local;

    if (localtime_r(&now, &local) != NULL)
        strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &local);
    if (a->out != NULL && (a->out[0] == '\0' || strlen(a->out) > DIR_MAX))
        return cli_refuse(&cli_sweep, "--out: the path is empty or too long");
    if (a->resume && a->out == NULL)
        return cli_refuse(&cli_sweep, "--resume needs --out DIR, the folder of the sweep");
    if (a->out != NULL)
        snprintf(s->dir, sizeof(s->dir), "%s", a->out);
    else
        snprintf(s->dir, sizeof(s->dir), "sweeps/%s-%s", model, date);
    return -1;
}

/* Returns -1, or refuses a list that the environment sets: the runs inherit it, and train takes no
 * lists. */
static int check_environment(const struct sweep_asked *a)
{
    int i, n = a->groups[0].n_opts + a->groups[1].n_opts;
    struct vb_opt_value v;

    for (i = 0; i < n && vb_opts_at(&a->parsed, i, &v); i++)
        if (strcmp(v.source, "environment") == 0 &&
            (strcmp(v.name, "resume") == 0 || strchr(v.text, ',') != NULL ||
             strstr(v.text, "..") != NULL))
            return cli_refuse(&cli_sweep, "give --%s on the command line, not by the environment",
                              v.name);
    return -1;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void print_advice(const struct sweep *s, const struct sweep_row *rows, const char *link)
{
    struct sweep_advice advice;
    char command[4096];

    cli_sweep_advise(rows, s->plan.n_cases, link, &advice);
    if (link != NULL)
        printf("\nOver a link of %s: ", link);
    else
        printf("\n");
    if (advice.row < 0) {
        printf("No recommendation: %s.\n", advice.why);
        return;
    }
    cli_sweep_command(s, advice.row, command, sizeof(command));
    printf("Recommendation: batch %.0f (%.0f in all), %.0f rank%s, mode %s\n  why: %s\n  %s\n",
           rows[advice.row].batch, rows[advice.row].global_batch, rows[advice.row].ranks,
           rows[advice.row].ranks == 1 ? "" : "s", rows[advice.row].mode, advice.why, command);
}

static vb_status print_end(const struct sweep *s, const struct sweep_row *rows)
{
    struct sweep_table t = {.plan = &s->plan, .rows = rows, .n = s->plan.n_cases};
    const struct sweep_list *links = &s->plan.lists[AXIS_LINK];
    int i;

    if (s->json)
        return cli_sweep_json_end(stdout, s, rows);
    cli_sweep_text(stdout, &t);
    if (links->n == 0)
        print_advice(s, rows, NULL);
    for (i = 0; i < links->n; i++)
        print_advice(s, rows, links->values[i]);
    printf("\n%s has table.csv, table.md, runs.jsonl and a folder for each run;\n"
           "tensorboard --logdir %s compares them\n",
           s->dir, s->dir);
    return VB_OK;
}

static int finish(const struct sweep *s)
{
    struct sweep_row *rows = cli_sweep_rows(s);
    int i, rc = CLI_OK;

    if (rows == NULL || cli_sweep_write(s, rows, true) != VB_OK || print_end(s, rows) != VB_OK)
        rc = CLI_FAILED;
    for (i = 0; rows != NULL && i < s->plan.n_cases; i++)
        if (rows[i].failed > 0)
            rc = CLI_FAILED;
    free(rows);
    return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int sweep(struct sweep *s, bool resume)
{
    size_t n = (size_t)s->plan.n_cases * (size_t)s->plan.repeat;
    int rc;

    s->results = calloc(n, sizeof(*s->results));
    s->took_s = calloc(n, sizeof(*s->took_s));
    if (s->results == NULL || s->took_s == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    rc = cli_sweep_open(s, resume);
    if (rc < 0 && (cli_sweep_keep(s) != VB_OK || cli_sweep_board(s) != VB_OK))
        rc = CLI_FAILED;
    if (rc < 0)
        rc = cli_sweep_run_all(s);
    return rc < 0 ? finish(s) : rc;
}

static void fini(struct sweep *s)
{
    int i;

    cli_sweep_close(s);
    for (i = 0; i < s->n_fixed; i++)
        free(s->fixed[i]);
    free(s->fixed);
    free(s->results);
    free(s->took_s);
    cli_sweep_plan_fini(&s->plan);
    free(s);
}

/* command: the arguments before parsing, which moves them. */
static int run_parsed(const struct sweep_asked *a, char *const *command, int n_command)
{
    struct cli_names names = cli_model_names(false);
    const char *given = a->parsed.n_operands > 0 ? a->parsed.operands[0] : NULL, *model = NULL;
    struct sweep *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    s->lock_fd = -1;
    s->command = command;
    s->n_command = n_command;
    s->json = a->args.json;
    s->terminal = isatty(STDERR_FILENO) == 1;
    rc = cli_find_model(&cli_sweep, "the model is missing: name", given, &names, &model);
    if (rc < 0)
        rc = fill_dir(&a->args, model, s);
    if (rc < 0)
        rc = fill_plan(a, &s->plan);
    if (rc < 0 && fill_fixed(a, model, s) != VB_OK)
        rc = CLI_FAILED;
    if (rc < 0)
        rc = sweep(s, a->args.resume);
    fini(s);
    return cli_finish(rc);
}

/* Parses a copy of the arguments, because parsing moves them. */
static int parse_and_run(struct sweep_asked *a, int argc, char **argv, bool stored)
{
    char **copy = calloc((size_t)argc + 1, sizeof(*copy)), **all = NULL;
    struct vb_json *json = NULL;
    int rc, n = 0;

    if (copy == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    memcpy(copy, argv, (size_t)argc * sizeof(*argv));
    cli_sweep_asked_init(a);
    rc = cli_parse(&cli_sweep, a->groups, SWEEP_GROUPS, 1, argc, copy, &a->parsed);
    if (rc < 0 && !stored && a->parsed.n_operands == 0 && a->args.resume && a->args.out != NULL) {
        all = cli_sweep_stored(a->args.out, argc, argv, &n, &json);
        rc = all != NULL ? parse_and_run(a, n, all, true) : CLI_USAGE;
        free(all);
        vb_json_destroy(json);
    } else if (rc < 0) {
        rc = check_environment(a);
        if (rc < 0)
            rc = run_parsed(a, argv, argc);
    }
    free(copy);
    return rc;
}

static struct cli_names models(void)
{
    return cli_model_names(false);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct sweep_asked *a = calloc(1, sizeof(*a));
    char *until = NULL;
    int rc =
        a != NULL ? cli_train_until_join(argc, argv, &until) : cli_exit_code(vb_err_sys("calloc"));

    (void)command;
    if (rc < 0)
        rc = parse_and_run(a, argc, argv, false);
    free(until);
    free(a);
    return rc;
}

const struct cli_command cli_sweep = {
    .name = "sweep",
    .summary = "train with each combination of lists of options, and compare",
    .usage = "MODEL LISTS [OPTIONS]",
    .about =
        "Trains MODEL once for each combination of the lists, one run after another, and writes a\n"
        "table. The end is a recommendation: batch, ranks and mode, and why.\n"
        "\n"
        "  verbena sweep lenet --batch 16..1024x2 --epochs 2\n"
        "  verbena sweep softmax --mode sync,async --ranks 1,2,3 --repeat 5 --out sweeps/modes\n"
        "  verbena sweep lenet --ranks 1,2 --link 100m,1g,10g --until accuracy=0.97\n"
        "  verbena sweep --out sweeps/modes --resume\n"
        "\n"
        "All other options of train may be given, too; they are the same in all runs.",
    .details =
        "Options without effect are left out of a case: --staleness unless the mode is async,\n"
        "--transport and --link with one rank. Cases that are then the same are made once.\n"
        "\n"
        "Each run is recorded in a folder of its own; verbena train --again DIR/RUN repeats it.",
    .words = models,
    .run = run,
};
