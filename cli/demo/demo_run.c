/* SPDX-License-Identifier: MIT
 *
 * Runs one command of a demo: this program again, in a process of its own, as if the user had typed
 * the command.
 */
#include "cli/demo/demo.h"
#include "launch/launch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOW_MS 250
#define GRACE_MS 5000   /* time to end after a Ctrl-C */
#define LIMIT_MS 300000 /* a command of a demo takes seconds; this one hangs */
#define WORDS_MAX 40
#define TEXT_MAX (4 * PATH_MAX)

void cli_demo_log_path(const struct demo *d, const char *log, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s.txt", d->dir, log) >= PATH_MAX)
        path[0] = '\0'; /* demo_folder.c limits the length of dir */
}

/* Writes the command with the folder in the place of each @ before a slash. */
static void write_command(const struct demo *d, const char *text, char *command, size_t size)
{
    size_t len = 0;

    for (; *text != '\0' && len + 1 < size; text++) {
        if (text[0] == '@' && text[1] == '/')
            len += (size_t)snprintf(command + len, size - len, "%s", d->dir);
        else
            command[len++] = *text;
        if (len >= size)
            len = size - 1;
    }
    command[len] = '\0';
}

/* Cuts the command into words. Returns false if there are too many. */
static bool cut(char *command, char **argv)
{
    static char program[] = "verbena";
    char *rest = NULL, *word;
    int n = 1;

    argv[0] = program;
    for (word = strtok_r(command, " ", &rest); word != NULL && n < WORDS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[n++] = word;
    argv[n] = NULL;
    return word == NULL;
}

static vb_status start(const struct demo *d, const char *log, char *const *argv, pid_t *pid_p)
{
    struct vb_spawn_opts o = {.argv = argv, .in_fd = -1, .net_fd = -1};
    char path[PATH_MAX];
    vb_status st;

    cli_demo_log_path(d, log, path);
    o.out_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (o.out_fd < 0)
        return vb_err_sys("cannot write %s", path);
    st = vb_spawn_start(&o, pid_p);
    close(o.out_fd);
    return st;
}

static void show_time(const struct demo *d, double seconds)
{
    if (!d->terminal)
        return;
    fprintf(stderr, "\r\033[K    running for %.0f s", seconds);
    fflush(stderr);
}

static int await(const struct demo *d, pid_t pid)
{
    uint64_t begin_ns = vb_clock_ns();
    double ms = 0;
    int code = CLI_FAILED;

    while (!vb_spawn_wait(pid, vb_interrupted() != 0 ? 0 : SHOW_MS, &code)) {
        ms = (double)(vb_clock_ns() - begin_ns) / 1e6;
        if (vb_interrupted() != 0 || ms > LIMIT_MS) {
            vb_spawn_stop(pid, GRACE_MS);
            code = vb_interrupted() != 0 ? 128 + vb_interrupted() : CLI_FAILED;
            break;
        }
        show_time(d, ms / 1e3);
    }
    if (d->terminal)
        fputs("\r\033[K", stderr);
    return code;
}

static bool keep_last(char *line, void *arg)
{
    if (line[0] != '\0')
        snprintf(arg, VB_LINE, "%s", line);
    return true;
}

int cli_demo_command(struct demo *d, const char *log, const char *text)
{
    char *argv[WORDS_MAX + 1], *command = malloc(TEXT_MAX), path[PATH_MAX], last[VB_LINE] = "";
    int code = CLI_FAILED;
    pid_t pid = -1;

    if (command == NULL) {
        cli_demo_fail(d, "no memory");
        return CLI_FAILED;
    }
    write_command(d, text, command, TEXT_MAX);
    cli_demo_shown_command(d, command);
    if (cut(command, argv) && start(d, log, argv, &pid) == VB_OK)
        code = await(d, pid);
    free(command);
    if (code == 0)
        return 0;
    cli_demo_log_path(d, log, path);
    vb_probe_lines(keep_last, last, "%s", path);
    if (vb_interrupted() == 0)
        cli_demo_line(d, "exit %d, see %s: %s", code, path, last);
    cli_demo_fail(d, vb_interrupted() != 0 ? "stopped" : "the command failed");
    return code;
}
