/* SPDX-License-Identifier: MIT
 *
 * verbena demo: a short tour. It runs real commands, one after another, and shows a few lines of
 * what each has printed.
 */
#ifndef VB_CLI_DEMO_DEMO_H
#define VB_CLI_DEMO_DEMO_H

#include "cli/cli.h"

/* Words used below: a *part* of the tour shows one thing; a *log* is the file in the folder of the
 * demo that has all output of a command. */

struct demo {
    const char *dir;
    bool json;           /* lines are gathered, not printed */
    bool colour;         /* standard output is a terminal */
    bool terminal;       /* standard error is one, and shows progress */
    int failed;          /* number of parts that failed */
    struct vb_json *out; /* the object of --json, which demo.json has, too */
    const char *why;     /* why the part was left out or failed; NULL: it was shown */
    bool part_failed;
    int n_parts, part; /* the part that is shown, from 1 */
};

struct demo_part {
    const char *name;
    const char *shows; /* one sentence */
    void (*run)(struct demo *d);
};

extern const struct demo_part cli_demo_parts[];
extern const int cli_demo_n_parts;

/* demo_folder.c: makes the folder, or takes over that of an earlier demo. Returns -1 on success,
 * otherwise an exit code after a line that says why. */
int cli_demo_open(const struct cli_command *command, const char *dir);
#define DEMO_FILE "demo.json" /* marks the folder as one of a demo */

/* demo_run.c: shows a command, runs it with its output in DIR/LOG.txt, and returns its exit code,
 * 128 plus a signal after a Ctrl-C. text has the words after "verbena"; "@/NAME"
 * is a path in the folder. A failure is noted in d, with the last line of the log. */
int cli_demo_command(struct demo *d, const char *log, const char *text);
void cli_demo_log_path(const struct demo *d, const char *log, char path[PATH_MAX]);

/* demo_show.c: what the user sees. A line is printed, or becomes a part of the object. */
void cli_demo_begin(struct demo *d, const struct demo_part *part);
void cli_demo_shown_command(struct demo *d, const char *command);
void cli_demo_line(struct demo *d, const char *fmt, ...) VB_PRINTF(2, 3);
void cli_demo_end(struct demo *d, double seconds);
void cli_demo_fail(struct demo *d, const char *why); /* why must stay until the part has ended */
void cli_demo_skip(struct demo *d, const char *why); /* the same for a part that cannot be shown */

/* Shows the lines of a log that begin with one of these words, which end with NULL, and the lines
 * below them that go on with the same. */
void cli_demo_show_log(struct demo *d, const char *log, const char *const *words);

/* Reads the result of a run in the folder. NULL: it was noted as a failure. */
struct vb_json *cli_demo_result(struct demo *d, const char *run);

#endif
