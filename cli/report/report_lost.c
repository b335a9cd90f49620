/* SPDX-License-Identifier: MIT
 *
 * Ranks that a synchronous run has lost while the others went on: marks in plots, sentences and a
 * table.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <stdlib.h>

#define TOLD 8 /* sentences; the table has all */

void report_read_lost(struct report_run *run)
{
    int i;

    run->lost = cli_run_lost(run->top.dir, run->json, &run->n_lost);
    run->lead = 0;
    for (i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].rank == run->top.lead)
            run->lead = i;
}

/* Ranks that were lost together have one mark. Returns the number of them from the i-th on. */
static int together(const struct report_run *run, int i)
{
    int n = 1;

    while (i + n < run->n_lost && run->lost[i + n].at_s == run->lost[i].at_s)
        n++;
    return n;
}

void report_mark_lost(const struct report *report, struct vb_plot *plot, enum report_axis axis)
{
    const struct report_run *run = report->runs[0];
    const struct cli_lost *l;
    int i, n;

    if (plot == NULL || report->n_runs > 1)
        return;
    for (i = 0; i < run->n_lost; i += n) {
        double x;

        n = together(run, i);
        l = &run->lost[i];
        x = axis == REPORT_BY_TIME    ? l->at_s
            : axis == REPORT_BY_EPOCH ? l->step / run->steps_per_epoch
                                      : l->step;
        if (n == 1)
            vb_plot_mark(plot, x, "rank %d %s", l->rank, l->removed ? "removed" : "lost");
        else
            vb_plot_mark(plot, x, "%d ranks lost", n);
    }
}

bool report_lost_sentence(const struct report_run *run, int i, char *text, size_t size)
{
    const struct cli_lost *l;

    if (i >= run->n_lost || i >= TOLD)
        return false;
    l = &run->lost[i];
    if (i == TOLD - 1 && run->n_lost > TOLD)
        snprintf(text, size, "%d more ranks were lost later.", run->n_lost - i);
    else
        snprintf(text, size,
                 "Rank %d (host %.40s) was %s after step %.0f, %.1f s after the beginning: %.150s; "
                 "%.0f rank%s went on %.3f s later. Its records end there.",
                 l->rank, l->host, l->removed ? "removed" : "lost", l->step, l->at_s, l->why,
                 l->left, l->left == 1 ? "" : "s", l->recovered_s);
    return true;
}

/* In ms, to a microsecond: phases may be shorter than that. */
static void add_ms(struct vb_table *t, double seconds)
{
    vb_table_real(t, round(seconds * 1e6) / 1e3);
}

void report_lost(struct report *report, struct vb_table *t)
{
    int i, k, p;

    for (i = 0; t != NULL && i < report->n_runs; i++)
        for (k = 0; k < report->runs[i]->n_lost; k++) {
            const struct cli_lost *l = &report->runs[i]->lost[k];

            if (report->n_runs > 1)
                vb_table_text(t, report->runs[i]->label);
            vb_table_real(t, l->at_s);
            vb_table_format(t, "%d", l->rank);
            vb_table_text(t, l->host);
            vb_table_format(t, "%.0f", l->step);
            vb_table_real(t, l->again);
            vb_table_format(t, "%.0f", l->left);
            add_ms(t, l->recovered_s);
            for (p = 0; p < VB_RECOVERY_PHASES; p++)
                add_ms(t, l->phase_s[p]);
            vb_table_text(t, l->why);
        }
    report_add_table(report, REPORT_VERDICT, t, false);
}

void report_json_lost(struct vb_json *json, const struct report_run *run)
{
    char key[32];
    int i, p;

    vb_json_array(json, "lost");
    for (i = 0; i < run->n_lost; i++) {
        const struct cli_lost *l = &run->lost[i];

        vb_json_object(json, NULL);
        vb_json_int(json, "rank", l->rank);
        vb_json_text(json, "what", l->removed ? "removed" : "rank lost");
        vb_json_text(json, "host", l->host);
        vb_json_real(json, "step", l->step);
        vb_json_real(json, "again", l->again);
        vb_json_real(json, "left", l->left);
        vb_json_real(json, "at_s", l->at_s);
        vb_json_real(json, "recovered_s", l->recovered_s);
        vb_json_object(json, "phases");
        for (p = 0; p < VB_RECOVERY_PHASES; p++) {
            snprintf(key, sizeof(key), "%s_s", vb_recovery_phase_str((enum vb_recovery_phase)p));
            vb_json_real(json, key, l->phase_s[p]);
        }
        vb_json_end(json);
        vb_json_text(json, "why", l->why);
        vb_json_end(json);
    }
    vb_json_end(json);
}
