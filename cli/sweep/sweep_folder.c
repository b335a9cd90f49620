/* SPDX-License-Identifier: MIT
 *
 * The folder of a sweep: sweep.json, a folder and a log for each run, the tables.
 */
#include "cli/sweep/cmd_sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 512 /* arguments of a command that sweep.json may have */

/* ---- opening --------------------------------------------------------------------------------- */

static bool in_folder(const char *dir, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat info;

    return in_folder(dir, name, path) && lstat(path, &info) == 0;
}

static bool is_empty(const char *dir)
{
    DIR *open_dir = opendir(dir);
    struct dirent *entry;
    bool empty = true;

    if (open_dir == NULL)
        return false;
    while (empty && (entry = readdir(open_dir)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, ".lock") == 0;
    closedir(open_dir);
    return empty;
}

/* Two sweeps in one folder would overwrite each other's runs. */
static int lock(struct sweep *s)
{
    char path[PATH_MAX];

    if (!in_folder(s->dir, ".lock", path))
        return cli_refuse(&cli_sweep, "--out %s: the path is too long", s->dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (s->lock_fd < 0) {
        vb_err_sys("cannot open %s", path);
        return CLI_FAILED;
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return -1;
    return cli_refuse(&cli_sweep,
                      "--out %s: another sweep is at work there; wait for its end, or "
                      "name another folder",
                      s->dir);
}

int cli_sweep_open(struct sweep *s, bool resume)
{
    struct stat info;

    if (stat(s->dir, &info) == 0 && !S_ISDIR(info.st_mode))
        return cli_refuse(&cli_sweep, "--out %s: is not a folder", s->dir);
    if (resume && !has_file(s->dir, "sweep.json"))
        return cli_refuse(&cli_sweep,
                          "--resume: %s has no sweep.json, so there is no sweep to go on with",
                          s->dir);
    if (!resume && has_file(s->dir, "sweep.json"))
        return cli_refuse(&cli_sweep,
                          "--out %s: there is a sweep already; add --resume to go on with it, or "
                          "name another folder",
                          s->dir);
    if (!resume && stat(s->dir, &info) == 0 && !is_empty(s->dir))
        return cli_refuse(&cli_sweep, "--out %s: the folder is not empty; name another one",
                          s->dir);
    if (vb_dir_make(s->dir) != VB_OK)
        return CLI_FAILED;
    return lock(s);
}

void cli_sweep_close(struct sweep *s)
{
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    s->lock_fd = -1;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* What the functions that print a file get. */
struct content {
    const struct sweep *s;
    const struct sweep_row *rows;
};

static vb_status write_file(const struct sweep *s, const char *name, vb_print_fn print,
                            const struct sweep_row *rows)
{
    struct content content = {s, rows};
    char path[PATH_MAX];

    if (!in_folder(s->dir, name, path))
        return vb_err(VB_ERR_USAGE, "%s: the path is too long", s->dir);
    return vb_file_print(path, print, &content, NULL);
}

static vb_status print_sweep(const void *arg, FILE *out)
{
    const struct sweep *s = ((const struct content *)arg)->s;
    struct vb_json *json = cli_json_object();
    char cwd[PATH_MAX];
    vb_status st;
    int i;

    vb_json_int(json, "format", 1);
    vb_json_text(json, "model", s->fixed[0]);
    vb_json_array(json, "command");
    for (i = 0; i < s->n_command; i++)
        if (strncmp(s->command[i], "--json", 6) != 0)
            vb_json_text(json, NULL, s->command[i]);
    vb_json_end(json);
    vb_json_text(json, "directory", getcwd(cwd, sizeof(cwd)));
    vb_json_end(json);
    st = vb_json_print(json, out);
    vb_json_destroy(json);
    return st;
}

vb_status cli_sweep_keep(const struct sweep *s)
{
    return write_file(s, "sweep.json", print_sweep, NULL);
}

char **cli_sweep_stored(const char *dir, int argc, char **argv, int *argc_p,
                        struct vb_json **json_p)
{
    char path[PATH_MAX], keys[32], **all = NULL;
    const char *word;
    int i, n;

    *json_p = in_folder(dir, "sweep.json", path) ? vb_json_read(path) : NULL;
    n = vb_json_get_count(*json_p, "command");
    if (n >= 1 && n <= WORDS_MAX)
        all = calloc((size_t)n + (size_t)argc + 1, sizeof(*all));
    for (i = 0; all != NULL && i < n; i++) {
        snprintf(keys, sizeof(keys), "command.%d", i);
        word = vb_json_get_text(*json_p, keys);
        all[i] = (char *)word;
        if (word == NULL) {
            free(all);
            all = NULL;
        }
    }
    if (all == NULL) {
        cli_refuse(&cli_sweep,
                   "--resume: %s/sweep.json does not tell the command of a sweep; give MODEL and "
                   "the options again",
                   dir);
        return NULL;
    }
    memcpy(all + n, argv, (size_t)argc * sizeof(*argv));
    *argc_p = n + argc;
    return all;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct sweep_table table_of(const struct content *c)
{
    return (struct sweep_table){.plan = &c->s->plan, .rows = c->rows, .n = c->s->plan.n_cases};
}

static vb_status print_csv(const void *arg, FILE *out)
{
    struct sweep_table t = table_of(arg);

    cli_sweep_csv(out, &t);
    return VB_OK;
}

static vb_status print_markdown(const void *arg, FILE *out)
{
    struct sweep_table t = table_of(arg);

    cli_sweep_markdown(out, &t);
    return VB_OK;
}

static vb_status print_runs(const void *arg, FILE *out)
{
    const struct content *content = arg;
    const struct sweep *s = content->s;
    int at, c, repeat, n = s->plan.n_cases * s->plan.repeat;
    vb_status st = VB_OK;

    for (at = 0; at < n && st == VB_OK; at++) {
        cli_sweep_order(&s->plan, at, &c, &repeat);
        if (s->results[c * s->plan.repeat + repeat].done)
            st = cli_sweep_json_run(out, s, c, repeat);
    }
    return st == VB_OK ? cli_sweep_json_end(out, s, content->rows) : st;
}

struct sweep_row *cli_sweep_rows(const struct sweep *s)
{
    struct sweep_row *rows = calloc((size_t)s->plan.n_cases, sizeof(*rows));
    int c;

    for (c = 0; rows != NULL && c < s->plan.n_cases; c++)
        cli_sweep_row(&s->plan.cases[c], s->results + c * s->plan.repeat, s->plan.repeat, &rows[c]);
    if (rows == NULL)
        vb_err_sys("calloc");
    return rows;
}

vb_status cli_sweep_write(const struct sweep *s, const struct sweep_row *rows, bool all)
{
    vb_status st = write_file(s, "table.csv", print_csv, rows);

    if (st == VB_OK)
        st = write_file(s, "table.md", print_markdown, rows);
    if (st == VB_OK && all)
        st = write_file(s, "runs.jsonl", print_runs, rows);
    return st;
}

vb_status cli_sweep_append(const struct sweep *s, int c, int repeat)
{
    char path[PATH_MAX];
    FILE *out = NULL;
    vb_status st;
    int fd;

    if (!in_folder(s->dir, "runs.jsonl", path))
        return vb_err(VB_ERR_USAGE, "%s: the path is too long", s->dir);
    fd = open(path,
              O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                  (c < 0 ? O_TRUNC : O_APPEND),
              0644);
    if (fd >= 0)
        out = fdopen(fd, "a");
    if (out == NULL) {
        st = vb_err_sys("cannot write %s", path);
        if (fd >= 0)
            close(fd);
        return st;
    }
    st = c >= 0 ? cli_sweep_json_run(out, s, c, repeat) : VB_OK;
    if (fclose(out) != 0 && st == VB_OK)
        st = vb_err_sys("cannot write %s", path);
    return st;
}
