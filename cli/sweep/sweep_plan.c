/* SPDX-License-Identifier: MIT
 *
 * Which cases a sweep has. An option that has no effect in a case is left out of the case, and
 * cases that are then the same are made once.
 */
#include "cli/sweep/sweep.h"

#include <stdlib.h>
#include <string.h>

const char *const cli_sweep_axes[SWEEP_AXES] = {
    [AXIS_LINK] = "link",
    [AXIS_MODE] = "mode",
    [AXIS_STALENESS] = "staleness",
    [AXIS_TRANSPORT] = "transport",
    [AXIS_RANKS] = "ranks",
    [AXIS_THREADS] = "threads",
    [AXIS_GLOBAL_BATCH] = "global-batch",
    [AXIS_BATCH] = "batch",
    [AXIS_LR] = "lr",
};

static bool is(const char *value, const char *text)
{
    return value != NULL && strcmp(value, text) == 0;
}

static void note(struct sweep_plan *plan, const char *fmt, ...) VB_PRINTF(2, 3);
static void note(struct sweep_plan *plan, const char *fmt, ...)
{
    char text[SWEEP_NOTE];
    va_list args;
    int i;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (i = 0; i < plan->n_notes; i++)
        if (strcmp(plan->notes[i].text, text) == 0)
            break;
    if (i == SWEEP_NOTES)
        return;
    if (i == plan->n_notes)
        snprintf(plan->notes[plan->n_notes++].text, SWEEP_NOTE, "%s", text);
    plan->notes[i].n++;
}

/* Returns the number of ranks of a case; 0: not known, more than 1. */
static int ranks_of(const struct sweep_plan *plan, const struct sweep_case *c)
{
    int64_t ranks;

    if (c->value[AXIS_RANKS] == NULL || !vb_parse_int(c->value[AXIS_RANKS], &ranks))
        return plan->ranks;
    return (int)ranks;
}

/* Returns whether the case makes sense; otherwise a note says why not. */
static bool makes_sense(struct sweep_plan *plan, const struct sweep_case *c)
{
    const char *transport = c->value[AXIS_TRANSPORT];
    int ranks = ranks_of(plan, c);
    int64_t batch;

    if (is(c->value[AXIS_MODE], "single") && ranks != 1)
        note(plan, "--mode single has one rank: left out with more ranks");
    else if (c->value[AXIS_LINK] != NULL && ranks != 1 &&
             (is(transport, "shm") || is(transport, "verbs")))
        note(plan, "--transport %s does not cross a --link: left out", transport);
    else if (c->value[AXIS_GLOBAL_BATCH] != NULL &&
             vb_parse_int(c->value[AXIS_GLOBAL_BATCH], &batch) && batch < ranks)
        note(plan, "--global-batch %s is less than one sample for each of %d ranks: left out",
             c->value[AXIS_GLOBAL_BATCH], ranks);
    else
        return true;
    return false;
}

static void drop(struct sweep_plan *plan, struct sweep_case *c, enum sweep_axis axis,
                 const char *where)
{
    if (c->value[axis] == NULL)
        return;
    c->value[axis] = NULL;
    note(plan, "--%s has no effect %s: made once", cli_sweep_axes[axis], where);
}

/* Removes options that have no effect. sync with one rank is the same job as single. */
static void simplify(struct sweep_plan *plan, struct sweep_case *c)
{
    const struct sweep_list *modes = &plan->lists[AXIS_MODE];
    int i;

    if (!is(c->value[AXIS_MODE], "async"))
        drop(plan, c, AXIS_STALENESS, "unless --mode is async");
    if (ranks_of(plan, c) != 1)
        return;
    drop(plan, c, AXIS_TRANSPORT, "with one rank");
    drop(plan, c, AXIS_LINK, "with one rank");
    for (i = 0; i < modes->n && is(c->value[AXIS_MODE], "sync"); i++)
        if (strcmp(modes->values[i], "single") == 0) {
            c->value[AXIS_MODE] = modes->values[i];
            note(plan, "--mode sync with one rank is --mode single: made once");
        }
}

static bool is_known(const struct sweep_plan *plan, const struct sweep_case *c)
{
    int i;

    for (i = 0; i < plan->n_cases; i++)
        if (memcmp(plan->cases[i].value, c->value, sizeof(c->value)) == 0)
            return true;
    return false;
}

/* The name is that of the run folder, so it has only letters, digits, '.' and '-'. */
static void name_case(struct sweep_case *c)
{
    size_t len = 0;
    char *at;
    int a;

    for (a = 0; a < SWEEP_AXES; a++)
        if (c->value[a] != NULL)
            len += (size_t)snprintf(c->name + len, sizeof(c->name) - len, "%s%s-%s",
                                    len > 0 ? "_" : "", cli_sweep_axes[a], c->value[a]);
    if (len == 0)
        snprintf(c->name, sizeof(c->name), "run");
    for (at = c->name; *at != '\0'; at++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *at) ==
            NULL)
            *at = '-';
}

static void add_case(struct sweep_plan *plan, const int at[SWEEP_AXES])
{
    struct sweep_case c;
    int a;

    memset(&c, 0, sizeof(c));
    for (a = 0; a < SWEEP_AXES; a++)
        c.value[a] = plan->lists[a].n > 0 ? plan->lists[a].values[at[a]] : NULL;
    if (!makes_sense(plan, &c))
        return;
    simplify(plan, &c);
    if (is_known(plan, &c))
        return;
    name_case(&c);
    plan->cases[plan->n_cases++] = c;
}

/* Goes on to the next combination, like an odometer. Returns false after the last one. */
static bool next(const struct sweep_plan *plan, int at[SWEEP_AXES])
{
    int a;

    for (a = SWEEP_AXES - 1; a >= 0; a--) {
        if (++at[a] < plan->lists[a].n)
            return true;
        at[a] = 0;
    }
    return false;
}

/* Returns the number of combinations; more than the maximum: too many. */
static int count(const struct sweep_plan *plan)
{
    int a, n = 1;

    for (a = 0; a < SWEEP_AXES && n <= SWEEP_RUNS_MAX; a++)
        n *= plan->lists[a].n > 0 ? plan->lists[a].n : 1;
    return n;
}

vb_status cli_sweep_plan(struct sweep_plan *plan, char why[VB_OPTS_WHY])
{
    int at[SWEEP_AXES] = {0}, n = count(plan);

    if (plan->lists[AXIS_BATCH].n > 0 && plan->lists[AXIS_GLOBAL_BATCH].n > 0)
        return vb_usage(why, "give --batch or --global-batch, not both");
    if (n > SWEEP_RUNS_MAX || n * plan->repeat > SWEEP_RUNS_MAX)
        return vb_usage(why, "a sweep has at most %d runs: shorten the lists or --repeat",
                        SWEEP_RUNS_MAX);
    plan->cases = calloc((size_t)n, sizeof(*plan->cases));
    if (plan->cases == NULL)
        return vb_usage(why, "no memory for %d cases", n);
    do
        add_case(plan, at);
    while (next(plan, at));
    if (plan->n_cases == 0)
        return vb_usage(why, "nothing is left to run: %s", plan->notes[0].text);
    return VB_OK;
}

void cli_sweep_plan_fini(struct sweep_plan *plan)
{
    free(plan->cases);
    plan->cases = NULL;
}

void cli_sweep_order(const struct sweep_plan *plan, int at, int *case_p, int *repeat_p)
{
    int turn = at / plan->n_cases, place = at % plan->n_cases;

    *repeat_p = turn;
    *case_p = turn % 2 == 0 ? place : plan->n_cases - 1 - place;
}
