/* SPDX-License-Identifier: MIT
 *
 * The options of sweep: its own, and those of train, except for the ones that take lists here and
 * the ones that a sweep decides itself.
 */
#include "cli/sweep/cmd_sweep.h"

#include <string.h>

#define FIELD(name) offsetof(struct sweep_args, name)

static const struct vb_opt list_opts[] = {
    {"batch", VB_OPT_TEXT, FIELD(lists[AXIS_BATCH]), .arg = "LIST",
     .help = "samples per rank in a step, such as 16,64,256 or 16..1024x2"},
    {"global-batch", VB_OPT_TEXT, FIELD(lists[AXIS_GLOBAL_BATCH]), .arg = "LIST",
     .help = "samples of all ranks together in a step, instead of --batch"},
    {"mode", VB_OPT_TEXT, FIELD(lists[AXIS_MODE]), .arg = "LIST", .help = "single, sync, async"},
    {"ranks", VB_OPT_TEXT, FIELD(lists[AXIS_RANKS]), .arg = "LIST",
     .help = "numbers of ranks on this host, such as 1,2,3 or 1..4"},
    {"transport", VB_OPT_TEXT, FIELD(lists[AXIS_TRANSPORT]), .arg = "LIST",
     .help = "auto, shm, tcp, verbs"},
    {"lr", VB_OPT_TEXT, FIELD(lists[AXIS_LR]), .arg = "LIST",
     .help = "peak learning rates, such as 0.01,0.1"},
    {"staleness", VB_OPT_TEXT, FIELD(lists[AXIS_STALENESS]), .arg = "LIST",
     .help = "with --mode async: how far a worker may be ahead; -1 is no limit"},
    {"threads", VB_OPT_TEXT, FIELD(lists[AXIS_THREADS]), .arg = "LIST", .help = "threads per rank"},
    {"link", VB_OPT_TEXT, FIELD(lists[AXIS_LINK]), .arg = "LIST",
     .help = "links between ranks, such as 100m,1g,10g or 1g:5: bits a second and, after the "
             "colon, milliseconds of latency. Needs root"},
};

static const struct vb_opt sweep_opts[] = {
    {"repeat", VB_OPT_INT, FIELD(repeat), "1", .min = 1, .max = 100, .arg = "N",
     .help = "runs of each case; the tables have medians and the spread"},
    {"vary-seed", VB_OPT_FLAG, FIELD(vary_seed),
     .help = "the second run of a case has the next --seed, and so on: the spread of accuracy then "
             "includes initial parameters and sample order"},
    {"out", VB_OPT_TEXT, FIELD(out), .arg = "DIR",
     .help = "folder for tables and runs; by default sweeps/MODEL-DATE"},
    {"resume", VB_OPT_FLAG, FIELD(resume),
     .help = "go on with the sweep in --out DIR: complete runs are not made again. Without MODEL, "
             "the options are those of that sweep"},
    {"json", VB_OPT_FLAG, FIELD(json),
     .help = "print one JSON object a line for each run, and one with the recommendation"},
};

/* A sweep decides these itself, or they belong to one process or one run. */
static bool is_taken(const char *name)
{
    static const char *const names[] = {
        "run",         "again", "resume", "other-data", "checkpoint", "checkpoint-every",
        "json",        "logs",  "rank",   "world",      "root",       "run-id",
        "secret-file", "join",  "dry-run"};
    size_t i;

    for (i = 0; i < VB_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    for (i = 0; i < SWEEP_AXES; i++)
        if (strcmp(name, cli_sweep_axes[i]) == 0)
            return true;
    return false;
}

void cli_sweep_asked_init(struct sweep_asked *a)
{
    int g, i, n = 0;

    memset(a, 0, sizeof(*a));
    cli_train_asked_init(&a->train);
    a->groups[0] = (struct vb_opt_group){"Lists", list_opts, VB_COUNT(list_opts), &a->args};
    a->groups[1] = (struct vb_opt_group){"Sweep", sweep_opts, VB_COUNT(sweep_opts), &a->args};
    for (g = 0; g < TRAIN_GROUPS; g++) {
        const struct vb_opt_group *from = &a->train.groups[g];
        struct vb_opt_group *to = &a->groups[2 + g];

        *to = (struct vb_opt_group){from->title, a->rows + n, 0, from->into};
        for (i = 0; i < from->n_opts; i++) {
            if (is_taken(from->opts[i].name))
                continue;
            a->rows[n] = from->opts[i];
            if (a->rows[n].level == VB_OPT_BASIC)
                a->rows[n].level = VB_OPT_MORE; /* --help has the options of sweep alone */
            n++;
            to->n_opts++;
        }
    }
}

bool cli_sweep_value_ok(enum sweep_axis axis, const char *value, char why[VB_OPTS_WHY])
{
    char word[SWEEP_VALUE + 32], *argv[] = {word};
    struct train_asked train;
    struct vb_link link;

    if (axis == AXIS_LINK)
        return vb_link_parse(value, &link, why) == VB_OK;
    cli_train_asked_init(&train);
    snprintf(word, sizeof(word), "--%s=%s", cli_sweep_axes[axis], value);
    return vb_opts_parse(&train.parsed, train.groups, TRAIN_GROUPS, 1, argv, why) == VB_OK &&
           !train.parsed.help;
}
