/* SPDX-License-Identifier: MIT
 *
 * Reads the result of a run from its folder. The folder may be broken: nothing that it says is used
 * as a length or an index.
 */
#include "cli/sweep/sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BYTES 4096

/* ---- is the run complete? -------------------------------------------------------------------- */

/* Returns whether run.json tells the same arguments. Its command begins with "verbena train". */
static bool same_command(const struct vb_json *json, char *const *argv, int argc)
{
    char keys[64];
    const char *word;
    int i;

    if (vb_json_get_count(json, "run.command") != argc + 2)
        return false;
    for (i = 0; i < argc; i++) {
        snprintf(keys, sizeof(keys), "run.command.%d", i + 2);
        word = vb_json_get_text(json, keys);
        if (word == NULL || strcmp(word, argv[i]) != 0)
            return false;
    }
    return true;
}

static bool is_complete(const struct vb_json *json)
{
    const char *state = vb_json_get_text(json, "run.state");

    return state != NULL && strcmp(state, "ended") == 0 && vb_json_get_real(json, "train_s") >= 0 &&
           vb_json_get_real(json, "steps") >= 0;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Means or peaks over the ranks that compute. */
static void read_ranks(const struct vb_json *json, struct sweep_result *r)
{
    static const struct {
        enum sweep_metric metric;
        const char *key;
    } means[] = {{METRIC_CPU_PCT, "cpu_pct"},
                 {METRIC_SEND_MB_S, "send_mb_s"},
                 {METRIC_RECV_MB_S, "recv_mb_s"},
                 {METRIC_DISK_READ_MB_S, "disk_read_mb_s"},
                 {METRIC_DISK_WRITE_MB_S, "disk_write_mb_s"}};
    int i, n = vb_json_get_count(json, "per_rank"), known;
    double sum, value;
    char keys[64];
    size_t m;

    for (m = 0; m < VB_COUNT(means); m++) {
        for (sum = 0, known = 0, i = 0; i < n; i++) {
            snprintf(keys, sizeof(keys), "per_rank.%d.%s", i, means[m].key);
            value = vb_json_get_real(json, keys);
            sum += isfinite(value) ? value : 0;
            known += isfinite(value);
        }
        if (known > 0)
            r->value[means[m].metric] = sum / known;
    }
    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "per_rank.%d.rss_peak_mb", i);
        r->value[METRIC_RSS_PEAK_MB] =
            fmax(r->value[METRIC_RSS_PEAK_MB], vb_json_get_real(json, keys));
        snprintf(keys, sizeof(keys), "per_rank.%d.train_s", i);
        if (i < SWEEP_NODES)
            r->node_s[r->n_nodes++] = vb_json_get_real(json, keys);
    }
}

static void read_text(const struct vb_json *json, const char *keys, char *out, size_t size)
{
    const char *text = vb_json_get_text(json, keys);

    snprintf(out, size, "%s", text != NULL ? text : "");
}

static void read_figures(const struct vb_json *json, struct sweep_result *r)
{
    static const enum sweep_metric same[] = {METRIC_TRAIN_S,     METRIC_WALL_S,        METRIC_STEPS,
                                             METRIC_STEPS_PER_S, METRIC_SAMPLES_PER_S, METRIC_LOSS,
                                             METRIC_ACCURACY,    METRIC_NOISE_SCALE};
    size_t i;
    int m;

    memset(r, 0, sizeof(*r));
    for (m = 0; m < SWEEP_METRICS; m++)
        r->value[m] = (double)NAN;
    for (i = 0; i < VB_COUNT(same); i++)
        r->value[same[i]] = vb_json_get_real(json, cli_sweep_metrics[same[i]].key);
    r->value[METRIC_STALENESS] = vb_json_get_real(json, "staleness.mean");
    r->value[METRIC_TIME_TO_S] = vb_json_get_real(json, "until.time_to_s");
    r->asked_until = vb_json_get_text(json, "until.asked.0") != NULL ||
                     vb_json_get_text(json, "until.asked") != NULL;
    r->ranks = vb_json_get_real(json, "ranks");
    r->batch = vb_json_get_real(json, "batch");
    r->global_batch = vb_json_get_real(json, "global_batch");
    r->test_samples = vb_json_get_real(json, "test_samples");
    r->noise_error = vb_json_get_real(json, "noise_scale_error");
    read_text(json, "bottleneck.resource", r->resource, sizeof(r->resource));
    read_text(json, "mode", r->mode, sizeof(r->mode));
    read_ranks(json, r);
    r->done = r->ok = true;
}

/* A file that cannot be read is a run that is not complete, so nothing is logged for it. */
static struct vb_json *read_run(const char *dir)
{
    char path[PATH_MAX];
    struct stat info;
    struct vb_json *json = NULL;
    char *text = NULL;
    FILE *file;

    if (snprintf(path, sizeof(path), "%s/run.json", dir) >= (int)sizeof(path) ||
        stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > (64 << 20))
        return NULL;
    file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    text = calloc((size_t)info.st_size + 1, 1);
    if (text != NULL)
        json = vb_json_parse(text, fread(text, 1, (size_t)info.st_size, file));
    free(text);
    fclose(file);
    return json;
}

vb_status cli_sweep_read(const char *dir, char *const *argv, int argc, struct sweep_result *r)
{
    struct vb_json *json = read_run(dir);
    vb_status st = VB_AGAIN;

    if (json != NULL && is_complete(json)) {
        st = same_command(json, argv, argc) ? VB_OK : VB_ERR_USAGE;
        if (st == VB_OK)
            read_figures(json, r);
    }
    vb_json_destroy(json);
    return st;
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Copies the last line of a log that is not empty. */
static bool last_line(const char *path, char *out, size_t size)
{
    char tail[TAIL_BYTES + 1], *line, *end;
    FILE *file = fopen(path, "r");
    size_t n;

    if (file == NULL)
        return false;
    if (fseek(file, -TAIL_BYTES, SEEK_END) != 0)
        rewind(file);
    n = fread(tail, 1, TAIL_BYTES, file);
    fclose(file);
    tail[n] = '\0';
    for (end = tail + n; end > tail && (unsigned char)end[-1] <= ' '; end--)
        end[-1] = '\0';
    line = strrchr(tail, '\n');
    line = line != NULL ? line + 1 : tail;
    snprintf(out, size, "%.*s", (int)size - 1, line);
    return line[0] != '\0';
}

void cli_sweep_read_error(const char *dir, const char *log, int exit_code, struct sweep_result *r)
{
    struct vb_json *json = read_run(dir);
    const char *state = vb_json_get_text(json, "run.state");
    const char *why = vb_json_get_text(json, "run.why");
    char *c;
    int m;

    memset(r, 0, sizeof(*r));
    for (m = 0; m < SWEEP_METRICS; m++)
        r->value[m] = (double)NAN;
    r->done = true;
    if (state != NULL && strcmp(state, "failed") == 0 && why != NULL && why[0] != '\0')
        snprintf(r->error, sizeof(r->error), "%s", why);
    else if (!last_line(log, r->error, sizeof(r->error)))
        snprintf(r->error, sizeof(r->error), "the run ended with exit code %d", exit_code);
    for (c = r->error; *c != '\0'; c++) /* of a terminal, only what is plain text */
        if ((unsigned char)*c < ' ' || (unsigned char)*c == 0x7f)
            *c = ' ';
    vb_json_destroy(json);
}
