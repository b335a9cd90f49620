/* SPDX-License-Identifier: MIT
 *
 * The ranks that a synchronous run has lost while the others went on: from the result or, as long
 * as there is none, from the events.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct reader {
    struct cli_lost *list;
    int n, room;
    double since_ns; /* earlier events are of a run that this one continues */
};

static double get(const struct vb_json *json, const char *at, const char *key)
{
    char keys[96];

    snprintf(keys, sizeof(keys), "%s%s", at, key);
    return vb_json_get_real(json, keys);
}

static void get_text(const struct vb_json *json, const char *at, const char *key, char *to,
                     size_t size)
{
    char keys[96];
    const char *text;

    snprintf(keys, sizeof(keys), "%s%s", at, key);
    text = vb_json_get_text(json, keys);
    snprintf(to, size, "%s", text != NULL ? text : "");
}

/* A worker that was removed from an asynchronous job was not waited for, so nothing was recovered.
 */
static bool is_lost(const struct vb_json *json, const char *at, const char *what)
{
    return strcmp(what, "rank lost") == 0 ||
           (strcmp(what, "removed") == 0 && isfinite(get(json, at, "recovered_s")));
}

/* at: where the object is: "" or "faults.3." */
static void take(struct reader *r, const struct vb_json *json, const char *at)
{
    struct cli_lost *l, *list;
    char what[32], key[48];
    int p;

    get_text(json, at, "what", what, sizeof(what));
    if (!is_lost(json, at, what) || !(get(json, at, "rank") >= 0) || r->n == CLI_LOST_MAX)
        return;
    if (r->n == r->room) {
        r->room = r->room > 0 ? 2 * r->room : 16;
        list = realloc(r->list, (size_t)r->room * sizeof(*list));
        if (list == NULL)
            return;
        r->list = list;
    }
    l = &r->list[r->n++];
    l->removed = strcmp(what, "removed") == 0;
    l->rank = get(json, at, "rank") < VB_WORLD_MAX ? (int)get(json, at, "rank") : VB_WORLD_MAX;
    l->step = get(json, at, "step");
    l->again = get(json, at, "again");
    l->at_s = get(json, at, "at_s");
    l->left = get(json, at, "left");
    l->recovered_s = get(json, at, "recovered_s");
    for (p = 0; p < VB_RECOVERY_PHASES; p++) {
        snprintf(key, sizeof(key), "phases.%s_s", vb_recovery_phase_str((enum vb_recovery_phase)p));
        l->phase_s[p] = get(json, at, key);
    }
    get_text(json, at, "host", l->host, sizeof(l->host));
    get_text(json, at, "why", l->why, sizeof(l->why));
}

static bool take_event(char *line, void *arg)
{
    struct reader *r = arg;
    struct vb_json *json = strstr(line, "rank lost") != NULL || strstr(line, "removed") != NULL
                               ? vb_json_parse(line, strlen(line))
                               : NULL;

    if (json != NULL && !(vb_json_get_real(json, "at_ns") < r->since_ns))
        take(r, json, "");
    vb_json_destroy(json);
    return r->n < CLI_LOST_MAX;
}

struct cli_lost *cli_run_lost(const char *dir, const struct vb_json *json, int *n_p)
{
    struct reader r = {.since_ns = vb_json_get_real(json, "run.started_clock_ns")};
    int i, n = vb_json_get_count(json, "faults");
    char path[PATH_MAX + 16], at[32];
    struct stat info;

    for (i = 0; i < n; i++) {
        snprintf(at, sizeof(at), "faults.%d.", i);
        take(&r, json, at);
    }
    snprintf(path, sizeof(path), "%s/events.jsonl", dir);
    if (vb_json_get_text(json, "mode") == NULL && stat(path, &info) == 0 && S_ISREG(info.st_mode))
        vb_probe_lines(take_event, &r, "%s", path);
    *n_p = r.n;
    return r.list;
}
