/* SPDX-License-Identifier: MIT
 *
 * The differences of several runs: results, options and machines, each in one table.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

/* Facts that run.json has elsewhere while a run goes on. */
#define MODE "mode"
#define RANKS "ranks"

struct fact {
    const char *name, *keys;
    double scale; /* of a number; 0: a text */
};

static const struct fact results[] = {
    {"state", "run.state", 0},
    {"accuracy (%)", "accuracy", 100},
    {"loss on test data", "loss", 1},
    {"steps/s", "steps_per_s", 1},
    {"samples/s", "samples_per_s", 1},
    {"training (s)", "train_s", 1},
    {"whole command (s)", "wall_s", 1},
    {"time to the condition (s)", "until.time_to_s", 1},
    {"steps", "steps", 1},
    {"epochs", "epochs", 1},
    {"bottleneck", "bottleneck.resource", 0},
    {"its share (%)", "bottleneck.share", 100},
    {"staleness, mean", "staleness.mean", 1},
    {"records lost", "run.records_lost", 1},
    {"parameters (sha256)", "params_sha256", 0},
};

static const struct fact setups[] = {
    {"model", "run.model", 0},
    {"mode", MODE, 0},
    {"ranks", RANKS, 1},
    {"transport", "transport", 0},
    {"batch of a rank", "batch", 1},
    {"batch of all ranks", "global_batch", 1},
    {"update rule", "recipe.rule", 0},
    {"learning rate", "lr", 1},
    {"algorithm of sums", "algo", 0},
    {"data", "run.data.spec", 0},
    {"data digest", "run.data.digest", 0},
    {"seed", "run.seed", 1},
    {"host of rank 0", "run.ranks.0.host", 0},
    {"CPU", "run.ranks.0.cpu_model", 0},
    {"CPUs of rank 0", "run.ranks.0.cpus", 1},
    {"memory (GB)", "run.ranks.0.memory_bytes", 1e-9},
    {"kernel", "run.ranks.0.kernel", 0},
    {"verbena", "run.versions.verbena", 0},
    {"compiler", "run.versions.compiler", 0},
    {"oneDNN", "run.versions.oneDNN", 0},
    {"BLAS", "run.versions.BLAS", 0},
};

static void value_of(const struct report_run *run, const struct fact *fact, char *text, size_t size)
{
    const char *found = fact->scale > 0 ? NULL : report_text(run, fact->keys);

    if (strcmp(fact->keys, MODE) == 0)
        snprintf(text, size, "%s", run->top.mode);
    else if (strcmp(fact->keys, RANKS) == 0)
        snprintf(text, size, "%d", run->top.n_ranks);
    else if (fact->scale > 0)
        vb_number_text(fact->scale * report_real(run, fact->keys), text, size);
    else
        snprintf(text, size, "%s", found != NULL ? found : "-");
    if (fact->scale == 0 && strstr(fact->keys, "sha256") != NULL && strlen(text) > 12)
        text[12] = '\0';
}

static bool differs(const struct report *report, const struct fact *fact)
{
    char first[256], other[256];
    int i;

    value_of(report->runs[0], fact, first, sizeof(first));
    for (i = 1; i < report->n_runs; i++) {
        value_of(report->runs[i], fact, other, sizeof(other));
        if (strcmp(first, other) != 0)
            return true;
    }
    return false;
}

static bool known(const struct report *report, const struct fact *fact)
{
    char text[256];
    int i;

    for (i = 0; i < report->n_runs; i++) {
        value_of(report->runs[i], fact, text, sizeof(text));
        if (strcmp(text, "-") != 0)
            return true;
    }
    return false;
}

static struct vb_table *begin(const struct report *report, const char *name, const char *title)
{
    char heads[2048] = "";
    size_t len = 0;
    int i;

    for (i = 0; i < report->n_runs; i++) {
        char label[72], *c;

        snprintf(label, sizeof(label), "%s", report->runs[i]->label);
        for (c = label; *c != '\0'; c++)
            if (*c == '|')
                *c = '/';
        len += (size_t)snprintf(heads + len, sizeof(heads) - len, "|#%s", label);
    }
    return vb_table_create(name, title, heads);
}

static void add_facts(const struct report *report, struct vb_table *t, const struct fact *facts,
                      size_t n, bool all)
{
    char text[256];
    size_t k;
    int i;

    for (k = 0; k < n; k++) {
        if (all ? !known(report, &facts[k]) : !differs(report, &facts[k]))
            continue;
        vb_table_text(t, facts[k].name);
        for (i = 0; i < report->n_runs; i++) {
            value_of(report->runs[i], &facts[k], text, sizeof(text));
            vb_table_text(t, text);
        }
    }
}

/* Options of the first run; a run without such an option has none. */
static void add_options(const struct report *report, struct vb_table *t)
{
    static const char *const expected[] = {"run",  "again", "rank",  "root",
                                           "logs", "mode",  "ranks", "world"};
    int k, i, n = vb_json_get_count(report->runs[0]->json, "run.options");
    const char *name, *first, *value;
    char keys[64];
    size_t e;

    for (k = 0; k < n; k++) {
        bool other = false;

        snprintf(keys, sizeof(keys), "run.options.%d.name", k);
        name = report_text(report->runs[0], keys);
        for (e = 0; name != NULL && e < VB_COUNT(expected); e++)
            name = strcmp(name, expected[e]) == 0 ? NULL : name;
        if (name == NULL)
            continue;
        first = report_option(report->runs[0], name);
        for (i = 1; i < report->n_runs; i++) {
            value = report_option(report->runs[i], name);
            other = other || strcmp(first != NULL ? first : "", value != NULL ? value : "") != 0;
        }
        if (!other)
            continue;
        vb_table_format(t, "--%s", name);
        for (i = 0; i < report->n_runs; i++) {
            value = report_option(report->runs[i], name);
            vb_table_text(t, value != NULL ? value : "-");
        }
    }
}

void report_compare(struct report *report)
{
    struct vb_table *t;

    if (report->n_runs < 2)
        return;
    t = begin(report, "differences", "What differs: options and machines");
    if (t != NULL) {
        add_facts(report, t, setups, VB_COUNT(setups), false);
        add_options(report, t);
    }
    report_add_table(report, REPORT_COMPARE, t, false);
    t = begin(report, "results", "Results, side by side");
    if (t != NULL)
        add_facts(report, t, results, VB_COUNT(results), true);
    report_add_table(report, REPORT_COMPARE, t, false);
}
