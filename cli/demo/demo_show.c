/* SPDX-License-Identifier: MIT
 *
 * What the user of a demo sees: lines on a terminal, in a pipe, or in the object of --json.
 */
#include "cli/demo/demo.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BOLD "\033[1m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"

static const char *code(const struct demo *d, const char *text)
{
    return d->colour ? text : "";
}

void cli_demo_begin(struct demo *d, const struct demo_part *part)
{
    d->part++;
    d->why = NULL;
    d->part_failed = false;
    vb_json_object(d->out, NULL);
    vb_json_text(d->out, "name", part->name);
    vb_json_text(d->out, "shows", part->shows);
    vb_json_array(d->out, "lines"); /* commands are lines that begin with "$ " */
    if (d->json)
        return;
    printf("%s%s%d/%d %s%s: %s\n", d->part > 1 ? "\n" : "", code(d, BOLD), d->part, d->n_parts,
           part->name, code(d, PLAIN), part->shows);
    fflush(stdout);
}

void cli_demo_shown_command(struct demo *d, const char *command)
{
    char text[PATH_MAX * 2];

    snprintf(text, sizeof(text), "$ verbena %s", command);
    vb_json_text(d->out, NULL, text);
    if (d->json)
        return;
    printf("  %s%s%s\n", code(d, GREEN), text, code(d, PLAIN));
    fflush(stdout);
}

void cli_demo_line(struct demo *d, const char *fmt, ...)
{
    char text[VB_LINE + PATH_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    vb_json_text(d->out, NULL, text);
    if (d->json)
        return;
    printf("    %s\n", text);
    fflush(stdout);
}

void cli_demo_fail(struct demo *d, const char *why)
{
    if (d->part_failed)
        return;
    d->part_failed = true;
    d->failed++;
    d->why = why;
}

void cli_demo_skip(struct demo *d, const char *why)
{
    if (d->why == NULL)
        d->why = why;
}

void cli_demo_end(struct demo *d, double seconds)
{
    const char *state = d->part_failed ? "failed" : d->why != NULL ? "skipped" : "shown";

    vb_json_end(d->out);
    vb_json_text(d->out, "state", state);
    vb_json_text(d->out, "why", d->why);
    vb_json_real(d->out, "seconds", seconds);
    vb_json_end(d->out);
    if (!d->json && d->why != NULL)
        printf("    %s%s: %s%s\n", code(d, YELLOW), state, d->why, code(d, PLAIN));
}

/* ---- logs and results ------------------------------------------------------------------------ */

struct filter {
    struct demo *d;
    const char *const *words;
    bool goes_on; /* the line before was shown */
};

static bool begins(const char *line, const char *word)
{
    size_t len = strlen(word);

    return strncmp(line, word, len) == 0 && (line[len] == ' ' || line[len] == '\0');
}

static bool show_if(char *line, void *arg)
{
    struct filter *f = arg;
    int i;

    if (line[0] != ' ')
        f->goes_on = false;
    for (i = 0; f->words[i] != NULL && !f->goes_on; i++)
        f->goes_on = begins(line, f->words[i]);
    if (f->goes_on && line[0] != '\0')
        cli_demo_line(f->d, "%s", line);
    return true;
}

void cli_demo_show_log(struct demo *d, const char *log, const char *const *words)
{
    struct filter f = {.d = d, .words = words};
    char path[PATH_MAX];

    cli_demo_log_path(d, log, path);
    vb_probe_lines(show_if, &f, "%s", path);
}

struct vb_json *cli_demo_result(struct demo *d, const char *run)
{
    struct vb_json *json = NULL;
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", d->dir, run) >= (int)sizeof(path) ||
        cli_run_json(path, &json) != VB_OK) {
        cli_demo_fail(d, "the run has left no run.json");
        return NULL;
    }
    return json;
}
