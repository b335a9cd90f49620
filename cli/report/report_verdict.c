/* SPDX-License-Identifier: MIT
 *
 * The verdict of a run in two sentences: what limited it, and what would help or where its time
 * went. All facts are those of run.json and of the records.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

/* Shares of the time of a step, of the rank that leads; 0 to 1. */
struct shares {
    double step_ms, compute, data, comm, wait;
};

static double sum_of(const struct report_rank *r, enum vb_phase phase)
{
    double sum = 0;
    int b;

    for (b = 0; b < r->coarse.n; b++)
        sum += vb_thin_at(&r->coarse, b, STEP_PHASE + (int)phase)->sum;
    return sum;
}

static bool find_shares(const struct report_run *run, struct shares *s)
{
    const struct report_rank *lead = &run->ranks[run->lead];
    double all = 0, parts[VB_PHASES];
    int p;

    if (run->n_ranks == 0 || lead->n_steps == 0)
        return false;
    for (p = 0; p < VB_PHASES; p++) {
        parts[p] = sum_of(lead, (enum vb_phase)p);
        if (p != VB_PHASE_EVAL && p != VB_PHASE_CHECKPOINT)
            all += parts[p];
    }
    if (!(all > 0))
        return false;
    s->step_ms = 1e3 * all / (double)lead->n_steps;
    s->compute =
        (parts[VB_PHASE_FORWARD] + parts[VB_PHASE_BACKWARD] + parts[VB_PHASE_UPDATE]) / all;
    s->data = parts[VB_PHASE_DATA] / all;
    s->comm = parts[VB_PHASE_COMM] / all;
    s->wait = parts[VB_PHASE_WAIT] / all;
    return true;
}

static void tell_shares(const struct report_run *run, char *text, size_t size)
{
    char ms[32];
    struct shares s;

    if (!find_shares(run, &s)) {
        snprintf(text, size, "There are no records of its steps.");
        return;
    }
    vb_number_text(s.step_ms, ms, sizeof(ms));
    snprintf(
        text, size,
        "A step of rank %d took %s ms: %.0f %% computing, %.0f %% transfer that computing does "
        "not hide, %.0f %% waiting for other ranks, %.0f %% data.",
        run->ranks[run->lead].rank, ms, 100 * s.compute, 100 * s.comm, 100 * s.wait, 100 * s.data);
}

/* Cuts a sentence's own end, because another one follows. */
static int without_stop(const char *text)
{
    size_t len = strlen(text);

    while (len > 0 && (text[len - 1] == '.' || text[len - 1] == ' '))
        len--;
    return (int)(len < 500 ? len : 500);
}

/* Returns how a sentence calls a resource of run.json. */
static const char *noun(const char *resource)
{
    static const struct {
        const char *resource, *noun;
    } nouns[] = {{"compute", "computing"},
                 {"network", "the network"},
                 {"straggler", "a straggler"},
                 {"input", "the input"},
                 {"disk", "the disk"},
                 {"cores", "the number of cores"},
                 {"server", "the parameter server"}};
    size_t i;

    for (i = 0; i < VB_COUNT(nouns); i++)
        if (strcmp(resource, nouns[i].resource) == 0)
            return nouns[i].noun;
    return resource;
}

static void tell_bottleneck(const struct report_run *run, char *text, size_t size)
{
    const char *resource = report_text(run, "bottleneck.resource");
    const char *kind = report_text(run, "bottleneck.kind"),
               *why = report_text(run, "bottleneck.why");
    double share = report_real(run, "bottleneck.share");
    char part[48] = "";

    if (resource == NULL || why == NULL) {
        snprintf(text, size, "The run has no verdict about its bottleneck.");
        return;
    }
    if (share > 0)
        snprintf(part, sizeof(part), ", %.0f %% of the time", 100 * share);
    if (strcmp(resource, "inconclusive") == 0)
        snprintf(text, size, "The bottleneck is not clear: %.*s.", without_stop(why), why);
    else if (strcmp(resource, "mixed") == 0)
        snprintf(text, size, "There is more than one bottleneck: %.*s.", without_stop(why), why);
    else
        snprintf(text, size, "The bottleneck is %.40s%s%.40s%s%s: %.*s.", noun(resource),
                 kind != NULL ? " (" : "", kind != NULL ? kind : "", kind != NULL ? ")" : "", part,
                 without_stop(why), why);
}

/* Tells the change with the highest rate. */
static bool tell_advice(const struct report_run *run, char *text, size_t size)
{
    int i, n = vb_json_get_count(run->json, "bottleneck.advice");
    double now = report_real(run, "samples_per_s"), most = now, then;
    const char *change = NULL;
    char a[32], b[32], keys[64];

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "bottleneck.advice.%d.samples_per_s", i);
        then = report_real(run, keys);
        snprintf(keys, sizeof(keys), "bottleneck.advice.%d.change", i);
        if (!(then > most) || report_text(run, keys) == NULL)
            continue;
        most = then;
        change = report_text(run, keys);
    }
    if (change == NULL)
        return false;
    vb_number_text(most, a, sizeof(a));
    vb_number_text(now, b, sizeof(b));
    snprintf(text, size,
             "What would help most: %.*s, which should give about %s instead of %s samples/s.",
             without_stop(change), change, a, b);
    return true;
}

void report_verdict(const struct report_run *run, struct report_verdict *v)
{
    const struct top *top = &run->top;

    if (strcmp(top->state, "failed") == 0)
        snprintf(v->first, sizeof(v->first), "The run failed after step %lld: %.*s.",
                 (long long)top->step, without_stop(top->why), top->why);
    else if (!top->ended)
        snprintf(v->first, sizeof(v->first),
                 "The run has not ended: it has made %lld of %lld steps, and a verdict comes with "
                 "its end.",
                 (long long)top->step, (long long)top->steps);
    else
        tell_bottleneck(run, v->first, sizeof(v->first));
    if (!top->ended || strcmp(top->state, "failed") == 0 ||
        !tell_advice(run, v->second, sizeof(v->second)))
        tell_shares(run, v->second, sizeof(v->second));
}
