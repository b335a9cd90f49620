/* SPDX-License-Identifier: MIT
 *
 * The lines of sweep --json and of runs.jsonl.
 */
#include "cli/sweep/cmd_sweep.h"

#include <math.h>
#include <string.h>

/* A number stays a number. */
static void json_value(struct vb_json *json, const char *key, const char *text)
{
    int64_t whole;
    double real;

    if (text != NULL && vb_parse_int(text, &whole))
        vb_json_int(json, key, whole);
    else if (text != NULL && vb_parse_real(text, &real))
        vb_json_real(json, key, real);
    else
        vb_json_text(json, key, text);
}

/* Keys have underscores, options have dashes. */
static void json_options(struct vb_json *json, const struct sweep *s, const struct sweep_case *at)
{
    char key[32], *c;
    int a;

    for (a = 0; a < SWEEP_AXES; a++) {
        if (s->plan.lists[a].n == 0)
            continue;
        snprintf(key, sizeof(key), "%s", cli_sweep_axes[a]);
        for (c = key; *c != '\0'; c++)
            if (*c == '-')
                *c = '_';
        json_value(json, key, at->value[a]);
    }
}

/* The keys of the final object follow and replace options of the same name: "mode" is then the mode
 * that ran. "swept" has the options as they were given. */
vb_status cli_sweep_json_run(FILE *out, const struct sweep *s, int c, int repeat)
{
    const struct sweep_result *r = &s->results[c * s->plan.repeat + repeat];
    struct vb_json *json = cli_json_object(), *run = NULL;
    char dir[PATH_MAX], path[PATH_MAX];
    vb_status st;

    cli_sweep_run_dir(s, c, repeat, dir);
    vb_json_text(json, "model", s->fixed[0]);
    json_options(json, s, &s->plan.cases[c]);
    vb_json_object(json, "swept");
    json_options(json, s, &s->plan.cases[c]);
    vb_json_end(json);
    vb_json_int(json, "repeat", repeat + 1);
    vb_json_text(json, "run", dir);
    vb_json_text(json, "error", r->ok ? NULL : r->error);
    if (r->ok && snprintf(path, sizeof(path), "%s/run.json", dir) < (int)sizeof(path))
        run = vb_json_read(path);
    vb_json_copy_all(json, run, "run");
    vb_json_end(json);
    st = vb_json_print(json, out);
    vb_json_destroy(run);
    vb_json_destroy(json);
    return st;
}

/* ---- the last line --------------------------------------------------------------------------- */

static void json_stats(struct vb_json *json, const struct sweep_row *row)
{
    int m, i;

    vb_json_int(json, "runs", row->ok);
    vb_json_int(json, "failed", row->failed);
    for (m = 0; m < SWEEP_METRICS; m++) {
        if (row->stat[m].n == 0) {
            vb_json_text(json, cli_sweep_metrics[m].key, NULL);
            continue;
        }
        vb_json_object(json, cli_sweep_metrics[m].key);
        vb_json_real(json, "median", row->stat[m].median);
        vb_json_real(json, "min", row->stat[m].min);
        vb_json_real(json, "max", row->stat[m].max);
        vb_json_end(json);
    }
    vb_json_array(json, "train_s_nodes");
    for (i = 0; i < row->n_nodes; i++)
        vb_json_real(json, NULL, row->node_s[i]);
    vb_json_end(json);
}

static void json_count(struct vb_json *json, const char *key, double value)
{
    if (isfinite(value))
        vb_json_int(json, key, (int64_t)value);
    else
        vb_json_text(json, key, NULL);
}

static void json_advice(struct vb_json *json, const char *key, const struct sweep *s,
                        const struct sweep_row *rows, const char *link)
{
    struct sweep_advice advice;
    const struct sweep_row *row;
    char command[4096];

    cli_sweep_advise(rows, s->plan.n_cases, link, &advice);
    vb_json_object(json, key);
    row = advice.row >= 0 ? &rows[advice.row] : NULL;
    if (row != NULL)
        json_options(json, s, row->at);
    if (s->plan.lists[AXIS_LINK].n > 0) /* one rank, too, is recommended for this link */
        vb_json_text(json, "link", link);
    json_count(json, "batch", row != NULL ? row->batch : (double)NAN);
    json_count(json, "global_batch", row != NULL ? row->global_batch : (double)NAN);
    json_count(json, "ranks", row != NULL ? row->ranks : (double)NAN);
    vb_json_text(json, "mode", row != NULL ? row->mode : NULL);
    vb_json_real(json, "samples_per_s",
                 row != NULL ? row->stat[METRIC_SAMPLES_PER_S].median : (double)NAN);
    vb_json_real(json, "accuracy", row != NULL ? row->stat[METRIC_ACCURACY].median : (double)NAN);
    vb_json_real(json, "time_to_s", row != NULL ? row->stat[METRIC_TIME_TO_S].median : (double)NAN);
    vb_json_real(json, "noise_scale", advice.noise_scale);
    vb_json_text(json, "why", advice.why);
    if (row != NULL)
        cli_sweep_command(s, advice.row, command, sizeof(command));
    vb_json_text(json, "command", row != NULL ? command : NULL);
    vb_json_end(json);
}

vb_status cli_sweep_json_end(FILE *out, const struct sweep *s, const struct sweep_row *rows)
{
    const struct sweep_list *list = &s->plan.lists[AXIS_LINK];
    struct vb_json *json = cli_json_object();
    vb_status st;
    int i;

    json_advice(json, "recommendation", s, rows, list->n > 0 ? list->values[0] : NULL);
    vb_json_array(json, "by_link");
    for (i = 0; i < list->n; i++)
        json_advice(json, NULL, s, rows, list->values[i]);
    vb_json_end(json);
    vb_json_array(json, "cases");
    for (i = 0; i < s->plan.n_cases; i++) {
        vb_json_object(json, NULL);
        json_options(json, s, rows[i].at);
        json_stats(json, &rows[i]);
        vb_json_end(json);
    }
    vb_json_end(json);
    vb_json_array(json, "left_out");
    for (i = 0; i < s->plan.n_notes; i++)
        vb_json_text(json, NULL, s->plan.notes[i].text);
    vb_json_end(json);
    vb_json_end(json);
    st = vb_json_print(json, out);
    vb_json_destroy(json);
    return st;
}

/* ---- a command ------------------------------------------------------------------------------- */

/* Appends a word as a shell takes it. */
static size_t add_word(char *text, size_t size, size_t len, const char *word)
{
    bool plain = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "-_=.,:/@+%") == strlen(word);
    int n = snprintf(text + len, size - len, plain ? " %s" : " '%s'", word);

    return n > 0 && len + (size_t)n < size ? len + (size_t)n : len;
}

void cli_sweep_command(const struct sweep *s, int c, char *text, size_t size)
{
    const struct sweep_case *at = &s->plan.cases[c];
    char word[SWEEP_VALUE + 32];
    size_t len = (size_t)snprintf(text, size, "verbena train");
    int i;

    for (i = 0; i < s->n_fixed; i++)
        len = add_word(text, size, len, s->fixed[i]);
    for (i = 0; i < SWEEP_AXES; i++)
        if (at->value[i] != NULL) {
            snprintf(word, sizeof(word), "--%s=%s", cli_sweep_axes[i], at->value[i]);
            len = add_word(text, size, len, word);
        }
}
