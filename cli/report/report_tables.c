/* SPDX-License-Identifier: MIT
 *
 * Tables of a report: ranks, evaluations, evidence and advice, machines, options, events.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <sys/stat.h>

#define EVENTS_MAX 200
#define EVALS_SHOWN 200

/* Begins a row with the run, if there are several. */
static void run_cell(const struct report *report, const struct report_run *run, struct vb_table *t)
{
    if (report->n_runs > 1)
        vb_table_text(t, run->label);
}

static struct vb_table *begin(const struct report *report, const char *name, const char *title,
                              const char *heads)
{
    char all[512];

    snprintf(all, sizeof(all), "%s%s", report->n_runs > 1 ? "run|" : "", heads);
    return vb_table_create(name, title, all);
}

static double indexed(const struct report_run *run, const char *list, int i, const char *key)
{
    char keys[96];

    snprintf(keys, sizeof(keys), "%s.%d.%s", list, i, key);
    return report_real(run, keys);
}

static const char *indexed_text(const struct report_run *run, const char *list, int i,
                                const char *key)
{
    char keys[96];

    snprintf(keys, sizeof(keys), "%s.%d.%s", list, i, key);
    return report_text(run, keys);
}

/* ---- evidence and advice --------------------------------------------------------------------- */

static void add_evidence(const struct report *report, const struct report_run *run,
                         struct vb_table *t)
{
    int i, n = vb_json_get_count(run->json, "bottleneck.evidence");

    for (i = 0; i < n; i++) {
        double value = indexed(run, "bottleneck.evidence", i, "value");
        double ceiling = indexed(run, "bottleneck.evidence", i, "ceiling");

        run_cell(report, run, t);
        vb_table_text(t, indexed_text(run, "bottleneck.evidence", i, "name"));
        vb_table_real(t, value);
        vb_table_real(t, ceiling);
        vb_table_text(t, indexed_text(run, "bottleneck.evidence", i, "unit"));
        vb_table_real(t, ceiling > 0 ? 100 * value / ceiling : (double)NAN);
    }
}

static void add_advice(const struct report *report, const struct report_run *run,
                       struct vb_table *t)
{
    int i, n = vb_json_get_count(run->json, "bottleneck.advice");
    double now = report_real(run, "samples_per_s");

    for (i = 0; i < n; i++) {
        double then = indexed(run, "bottleneck.advice", i, "samples_per_s");

        run_cell(report, run, t);
        vb_table_text(t, indexed_text(run, "bottleneck.advice", i, "change"));
        vb_table_real(t, indexed(run, "bottleneck.advice", i, "steps_per_s"));
        vb_table_real(t, then);
        if (then > 0 && now > 0)
            vb_table_format(t, "%+.0f %%", 100 * (then / now - 1));
        else
            vb_table_text(t, "-");
    }
}

static void add_causes(const struct report *report, const struct report_run *run,
                       struct vb_table *t)
{
    int i, n = vb_json_get_count(run->json, "bottleneck.causes");

    for (i = 0; i < n; i++) {
        run_cell(report, run, t);
        vb_table_text(t, indexed_text(run, "bottleneck.causes", i, "resource"));
        vb_table_real(t, 100 * indexed(run, "bottleneck.causes", i, "share"));
    }
}

static void verdicts(struct report *report)
{
    struct vb_table *causes =
        begin(report, "causes", "Shares of the time", "computing and losses|#% of the time");
    struct vb_table *evidence =
        begin(report, "evidence", "Evidence", "what|#measured|#ceiling|unit|#% of ceiling");
    struct vb_table *advice = begin(report, "advice", "What would help",
                                    "change|#steps/s, expected|#samples/s, expected|#gain");
    int i;

    for (i = 0; i < report->n_runs; i++) {
        add_causes(report, report->runs[i], causes);
        add_evidence(report, report->runs[i], evidence);
        add_advice(report, report->runs[i], advice);
    }
    report_add_table(report, REPORT_VERDICT, evidence, false);
    report_add_table(report, REPORT_VERDICT, advice, false);
    report_add_table(report, REPORT_VERDICT, causes, true);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void add_ranks(const struct report *report, const struct report_run *run, struct vb_table *t)
{
    static const char *const keys[] = {"train_s",        "cpu_pct",         "cpu_pct_peak",
                                       "rss_peak_mb",    "send_mb_s",       "recv_mb_s",
                                       "disk_read_mb_s", "disk_write_mb_s", "late_s"};
    int i, n = vb_json_get_count(run->json, "per_rank");
    size_t k;

    for (i = 0; i < n && i < 256; i++) {
        run_cell(report, run, t);
        vb_table_format(t, "%.0f", indexed(run, "per_rank", i, "rank"));
        vb_table_text(t, indexed_text(run, "per_rank", i, "role"));
        vb_table_text(t, indexed_text(run, "per_rank", i, "host"));
        for (k = 0; k < VB_COUNT(keys); k++)
            vb_table_real(t, indexed(run, "per_rank", i, keys[k]));
        vb_table_real(t, 100 * indexed(run, "per_rank", i, "accuracy"));
    }
}

static void add_breakdown(const struct report *report, const struct report_run *run,
                          struct vb_table *t)
{
    int i, p, n = vb_json_get_count(run->json, "per_rank");
    char key[48];

    for (i = 0; i < n && i < 256; i++) {
        run_cell(report, run, t);
        vb_table_format(t, "%.0f", indexed(run, "per_rank", i, "rank"));
        for (p = 0; p < VB_PHASES; p++) {
            snprintf(key, sizeof(key), "breakdown.%s", vb_phase_str((enum vb_phase)p));
            vb_table_real(t, indexed(run, "per_rank", i, key));
        }
    }
}

static void ranks(struct report *report)
{
    struct vb_table *use =
        begin(report, "ranks", "Each rank",
              "rank|role|host|#training (s)|#CPU %|#CPU %, peak|#memory, peak (MB)|#sent (MB/s)|"
              "#received (MB/s)|#disk read (MB/s)|#disk written (MB/s)|#waited for (s)|"
              "#accuracy (%)");
    struct vb_table *phases =
        begin(report, "phases", "Seconds of each phase",
              "rank|#data|#forward|#backward|#exposed transfer|#waiting|#update|#evaluation|"
              "#checkpoint");
    int i;

    for (i = 0; i < report->n_runs; i++) {
        add_ranks(report, report->runs[i], use);
        add_breakdown(report, report->runs[i], phases);
    }
    report_add_table(report, REPORT_USE, use, false);
    report_add_table(report, REPORT_TIME, phases, true);
}

/* ---- evaluations and events ------------------------------------------------------------------ */

static void evaluations(struct report *report)
{
    struct vb_table *t = begin(report, "evaluations", "Evaluations on test data",
                               "#step|#epoch|#time (s)|#loss|#accuracy (%)|#error (%)");
    int i, k, from;

    for (i = 0; i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];

        from = run->n_evals > EVALS_SHOWN ? run->n_evals - EVALS_SHOWN : 0;
        for (k = from; k < run->n_evals; k++) {
            const struct report_eval *e = &run->evals[k];

            run_cell(report, run, t);
            vb_table_format(t, "%.0f", e->step);
            vb_table_real(t, e->step / run->steps_per_epoch);
            vb_table_real(t, e->time_s);
            vb_table_real(t, e->loss);
            vb_table_format(t, "%.2f", 100 * e->accuracy);
            vb_table_format(t, "%.2f", 100 - 100 * e->accuracy);
        }
    }
    report_add_table(report, REPORT_LEARNING, t, true);
}

struct events {
    const struct report *report;
    const struct report_run *run;
    struct vb_table *table;
};

/* Evaluations and checkpoints are many, and shown elsewhere. Lines that are cut are left out. */
static bool take_event(char *line, void *arg)
{
    struct events *e = arg;
    struct vb_json *json = vb_json_parse(line, strlen(line));
    const char *what = vb_json_get_text(json, "what");

    if (what != NULL && strcmp(what, "evaluated") != 0 && strcmp(what, "saved") != 0) {
        run_cell(e->report, e->run, e->table);
        vb_table_real(e->table, vb_json_get_real(json, "at_s"));
        vb_table_text(e->table, what);
        vb_table_real(e->table, vb_json_get_real(json, "step"));
        vb_table_real(e->table, vb_json_get_real(json, "rank"));
        vb_table_text(e->table, vb_json_get_text(json, "why"));
    }
    vb_json_destroy(json);
    return vb_table_rows(e->table) < EVENTS_MAX;
}

static void events(struct report *report)
{
    struct vb_table *t = begin(report, "events", "Events", "#time (s)|what|#step|#rank|why");
    struct stat info;
    char path[PATH_MAX + 16];
    int i;

    for (i = 0; t != NULL && i < report->n_runs; i++) {
        struct events e = {report, report->runs[i], t};

        snprintf(path, sizeof(path), "%s/events.jsonl", report->runs[i]->top.dir);
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
            vb_probe_lines(take_event, &e, "%s", path);
    }
    report_add_table(report, REPORT_MACHINE, t, true);
}

/* ---- machines and options -------------------------------------------------------------------- */

static void machines(struct report *report)
{
    struct vb_table *t = begin(report, "machines", "Machines",
                               "host|first rank|CPU|#CPUs|#memory (GB)|kernel|RDMA device");
    int i, k, j, n;

    for (i = 0; i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];

        n = vb_json_get_count(run->json, "run.ranks");
        for (k = 0; k < n && k < 256; k++) {
            const char *host = indexed_text(run, "run.ranks", k, "host");

            for (j = 0; host != NULL && j < k; j++) {
                const char *other = indexed_text(run, "run.ranks", j, "host");

                host = other != NULL && strcmp(other, host) == 0 ? NULL : host;
            }
            if (host == NULL)
                continue;
            run_cell(report, run, t);
            vb_table_text(t, host);
            vb_table_format(t, "%.0f", indexed(run, "run.ranks", k, "rank"));
            vb_table_text(t, indexed_text(run, "run.ranks", k, "cpu_model"));
            vb_table_real(t, indexed(run, "run.ranks", k, "cpus"));
            vb_table_real(t, indexed(run, "run.ranks", k, "memory_bytes") / 1e9);
            vb_table_text(t, indexed_text(run, "run.ranks", k, "kernel"));
            vb_table_text(t, indexed_text(run, "run.ranks", k, "rdma_device"));
        }
    }
    report_add_table(report, REPORT_MACHINE, t, false);
}

static void join_command(const struct report_run *run, char *text, size_t size)
{
    int i, n = vb_json_get_count(run->json, "run.command");
    size_t len = 0;
    char keys[48];

    text[0] = '\0';
    for (i = 0; i < n && len + 1 < size; i++) {
        const char *word;

        snprintf(keys, sizeof(keys), "run.command.%d", i);
        word = report_text(run, keys);
        len += (size_t)snprintf(text + len, size - len, "%s%s", i > 0 ? " " : "",
                                word != NULL ? word : "?");
    }
}

static void software(struct report *report)
{
    static const char *const names[] = {"verbena", "compiler",   "oneDNN", "BLAS",
                                        "hwloc",   "libibverbs", "json"};
    struct vb_table *t = begin(report, "run", "Command, data and versions", "what|value");
    char command[1000], keys[48];
    int i;
    size_t k;

    for (i = 0; i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];

        join_command(run, command, sizeof(command));
        run_cell(report, run, t);
        vb_table_text(t, "command");
        vb_table_text(t, command);
        run_cell(report, run, t);
        vb_table_text(t, "started");
        vb_table_text(t, report_text(run, "run.started"));
        run_cell(report, run, t);
        vb_table_text(t, "data");
        vb_table_text(t, report_text(run, "run.data.spec"));
        run_cell(report, run, t);
        vb_table_text(t, "transport");
        vb_table_text(t, report_text(run, "run.transport_why"));
        run_cell(report, run, t);
        vb_table_text(t, "recipe");
        vb_table_text(t, report_text(run, "run.recipe.why"));
        for (k = 0; k < VB_COUNT(names); k++) {
            snprintf(keys, sizeof(keys), "run.versions.%s", names[k]);
            if (report_text(run, keys) == NULL)
                continue;
            run_cell(report, run, t);
            vb_table_text(t, names[k]);
            vb_table_text(t, report_text(run, keys));
        }
    }
    report_add_table(report, REPORT_MACHINE, t, false);
}

static void options(struct report *report)
{
    struct vb_table *t = begin(report, "options", "Options", "option|value|from");
    int i, k, n;

    for (i = 0; i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];

        n = vb_json_get_count(run->json, "run.options");
        for (k = 0; k < n && k < 256; k++) {
            const char *value = indexed_text(run, "run.options", k, "value");
            const char *name = indexed_text(run, "run.options", k, "name");

            run_cell(report, run, t);
            vb_table_format(t, "--%s", name != NULL ? name : "?");
            vb_table_text(t, value != NULL ? value : "-");
            vb_table_text(t, indexed_text(run, "run.options", k, "source"));
        }
    }
    report_add_table(report, REPORT_MACHINE, t, true);
}

void report_tables(struct report *report)
{
    verdicts(report);
    report_lost(report, begin(report, "lost", "Ranks that were lost",
                              "#time (s)|rank|host|#last step kept|#step computed again|#ranks "
                              "left|#recovered after (ms)|#detect (ms)|#agree (ms)|#fence (ms)|"
                              "#rebuild (ms)|#recompute (ms)|why"));
    evaluations(report);
    ranks(report);
    machines(report);
    software(report);
    options(report);
    events(report);
}
