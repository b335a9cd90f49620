/* SPDX-License-Identifier: MIT
 *
 * verbena train --again RUN: makes the arguments of an earlier run from its run.json. Options that
 * are given now follow and override them.
 */
#include "cli/train/cmd_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXTRA 8 /* arguments besides the options of the earlier run and those given now */

/* These say how this run is started or shown, or where it leaves what it makes. */
static bool is_of_one_run(const char *name)
{
    static const char *const names[] = {"run",  "again", "resume", "other-data", "json",
                                        "logs", "rank",  "world",  "root",       "secret-file",
                                        "join", "plan",  "ledger", "run-id",     "dry-run"};
    size_t i;

    for (i = 0; i < VB_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Returns the place of --again in the arguments, or -1. *value_p: its value; *n_p: how many
 * arguments it takes. */
static int find_again(int argc, char **argv, const char **value_p, int *n_p)
{
    int i;

    for (i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        *n_p = 1;
        *value_p = argv[i] + strlen("--again=");
        if (strncmp(argv[i], "--again=", strlen("--again=")) == 0)
            return i;
        *n_p = 2;
        *value_p = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--again") == 0)
            return i;
    }
    return -1;
}

static char *joined(const char *name, const char *value)
{
    size_t len = strlen(name) + strlen(value) + 4;
    char *text = malloc(len);

    if (text != NULL)
        snprintf(text, len, "--%s=%s", name, value);
    return text;
}

/* Appends the options of the earlier run that were not defaults. Returns false if there is no
 * memory. */
static bool add_options(const struct vb_json *json, int n, char **all, int *count, bool *placed)
{
    char keys[64];
    int i;

    for (i = 0; i < n; i++) {
        const char *name, *value, *source;

        snprintf(keys, sizeof(keys), "run.options.%d.name", i);
        name = vb_json_get_text(json, keys);
        snprintf(keys, sizeof(keys), "run.options.%d.value", i);
        value = vb_json_get_text(json, keys);
        snprintf(keys, sizeof(keys), "run.options.%d.source", i);
        source = vb_json_get_text(json, keys);
        if (name == NULL || value == NULL || source == NULL || strcmp(source, "default") == 0 ||
            is_of_one_run(name))
            continue;
        *placed = *placed || strcmp(name, "ranks") == 0 || strcmp(name, "hosts") == 0;
        all[*count] = joined(name, value);
        if (all[(*count)++] == NULL)
            return false;
    }
    return true;
}

/* Ranks that srun, mpirun or the user had started are started on this host. */
static bool add_ranks(const struct vb_json *json, char **all, int *count)
{
    int i, workers = 0, n = vb_json_get_count(json, "run.ranks");
    char keys[64], number[16];
    const char *role;

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "run.ranks.%d.role", i);
        role = vb_json_get_text(json, keys);
        workers += role != NULL && strcmp(role, "worker") == 0;
    }
    if (workers < 2)
        return true;
    snprintf(number, sizeof(number), "%d", workers);
    all[*count] = joined("ranks", number);
    return all[(*count)++] != NULL;
}

static void file_of(const char *run, const char *name, char path[PATH_MAX])
{
    struct stat info;
    const char *slash = strrchr(run, '/');

    if (stat(run, &info) != 0 || S_ISDIR(info.st_mode))
        snprintf(path, PATH_MAX, "%s/%s", run, name);
    else /* the user has named the file run.json itself */
        snprintf(path, PATH_MAX, "%.*s%s", slash != NULL ? (int)(slash - run) + 1 : 0, run, name);
}

static int make_arguments(const char *run, const struct vb_json *json, int argc, char **argv,
                          struct train_again *again)
{
    int n = vb_json_get_count(json, "run.options");
    const char *model = vb_json_get_text(json, "run.model");
    bool placed = false, ok;
    char path[PATH_MAX];

    if (n < 0 || n > VB_OPTS_MAX || model == NULL)
        return cli_refuse(&cli_train,
                          "--again %s: its run.json does not tell the options of the run; an "
                          "earlier version of verbena wrote it",
                          run);
    again->argv = calloc((size_t)n + (size_t)argc + EXTRA, sizeof(*again->argv));
    ok = again->argv != NULL;
    if (ok) {
        again->argv[again->argc++] = strdup(model);
        ok = again->argv[0] != NULL && add_options(json, n, again->argv, &again->argc, &placed);
    }
    if (ok && !placed)
        ok = add_ranks(json, again->argv, &again->argc);
    file_of(run, "plan", path);
    if (ok && exists(path)) {
        again->argv[again->argc] = joined("plan", path);
        ok = again->argv[again->argc++] != NULL;
    }
    if (ok) { /* parsing moves the arguments */
        again->owned = calloc((size_t)again->argc, sizeof(*again->owned));
        ok = again->owned != NULL;
    }
    if (ok) {
        again->n_owned = again->argc;
        memcpy(again->owned, again->argv, (size_t)again->argc * sizeof(*again->argv));
    }
    if (!ok)
        return cli_exit_code(vb_err(VB_ERR_NO_MEMORY, "no memory for the arguments of %s", run));
    memcpy(again->argv + again->argc, argv, (size_t)argc * sizeof(*argv));
    again->argc += argc;
    return -1;
}

int cli_train_again(int argc, char **argv, struct train_again *again)
{
    const char *run = NULL;
    int n = 0, rc, at = find_again(argc, argv, &run, &n);
    struct vb_json *json;
    char path[PATH_MAX], **rest;

    memset(again, 0, sizeof(*again));
    if (at < 0)
        return -1;
    if (run == NULL || run[0] == '\0')
        return cli_refuse(&cli_train, "--again needs a value: RUN");
    file_of(run, "run.json", path);
    json = vb_json_read(path);
    rest = calloc((size_t)argc + 1, sizeof(*rest));
    if (json == NULL || rest == NULL) {
        free(rest);
        vb_json_destroy(json);
        return cli_refuse(&cli_train, "--again %s: must be a folder that --run has written", run);
    }
    memcpy(rest, argv, (size_t)at * sizeof(*argv));
    memcpy(rest + at, argv + at + n, (size_t)(argc - at - n) * sizeof(*argv));
    rc = make_arguments(run, json, argc - n, rest, again);
    free(rest);
    vb_json_destroy(json);
    return rc;
}

void cli_train_again_fini(struct train_again *again)
{
    int i;

    for (i = 0; i < again->n_owned; i++)
        free(again->owned[i]);
    free(again->owned);
    free(again->argv);
    memset(again, 0, sizeof(*again));
}
