/* SPDX-License-Identifier: MIT
 *
 * verbena ctl: asks a running job for something, through the socket in its run folder.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER 8192
#define ANSWER_S 700 /* longer than the job takes to answer, train/train_ctl.c */

struct ctl_args {
    bool json;
};

static const struct vb_opt ctl_opts[] = {
    {"json", VB_OPT_FLAG, offsetof(struct ctl_args, json), .help = "print one JSON object"},
};

static const char *const commands[] = {"checkpoint", "stop", "remove"};

/* Returns the socket; -1, after an error was logged. */
static int call(const char *run)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct timeval wait = {.tv_sec = ANSWER_S};
    int dir = open(run, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, err;

    if (dir < 0) {
        (void)vb_err_sys("cannot open the run folder %s", run);
        return -1;
    }
    snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/" CLI_CTL_SOCKET, dir);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    err = fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ? errno : 0;
    close(dir);
    if (err == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    if (err == ENOENT || err == ECONNREFUSED)
        (void)vb_err(VB_ERR_USAGE,
                     "no job that listens writes to %s: it has ended, or the rank that reports is "
                     "on another host; call verbena ctl there",
                     run);
    else
        (void)vb_err(VB_ERR_IO, "cannot reach the job of %s: %s", run, strerror(err));
    return -1;
}

static struct vb_json *ask(int fd, const char *line)
{
    char text[ANSWER];
    size_t len = 0;
    ssize_t n = send(fd, line, strlen(line), MSG_NOSIGNAL);

    while (n > 0 && len < sizeof(text) && (n = read(fd, text + len, sizeof(text) - len)) > 0)
        len += (size_t)n;
    if (len == 0) {
        (void)vb_err(VB_ERR_PEER, "the job has closed the connection without an answer: it has "
                                  "ended, the rank that reports was lost (ask again), or the job "
                                  "belongs to another user");
        return NULL;
    }
    return vb_json_parse(text, len);
}

static void print_text(const char *command, const struct vb_json *answer)
{
    double before = vb_json_get_real(answer, "steps_per_s_before");
    double after = vb_json_get_real(answer, "steps_per_s_after");
    const char *text = vb_json_get_text(answer, "text");

    printf("%s: %s\n", command, text != NULL ? text : "");
    if (isfinite(before) && isfinite(after))
        printf("steps/s: %.1f before, %.1f after\n", before, after);
}

static vb_status tell(const char *run, const char *command, const char *line, bool json)
{
    int fd = call(run);
    struct vb_json *answer = fd >= 0 ? ask(fd, line) : NULL;
    const char *status = vb_json_get_text(answer, "status");
    bool done = status != NULL && strcmp(status, "done") == 0;
    vb_status st = done ? VB_OK : VB_ERR_USAGE;

    if (fd >= 0)
        close(fd);
    if (answer == NULL)
        return VB_ERR_PEER;
    if (json)
        st = vb_json_print(answer, stdout) == VB_OK ? st : VB_ERR_IO;
    else if (done)
        print_text(command, answer);
    else
        (void)vb_err(VB_ERR_USAGE, "%s: %s", command, vb_json_get_text(answer, "text"));
    vb_json_destroy(answer);
    return st;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct ctl_args args;
    struct vb_opt_group groups[] = {{"Options", ctl_opts, VB_COUNT(ctl_opts), &args}};
    struct vb_opts parsed;
    char line[64];
    int64_t rank;
    int which, rc = cli_parse(command, groups, VB_COUNT(groups), 3, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands < 2)
        return cli_refuse(command,
                          "name a run folder and a command: checkpoint, stop or remove RANK");
    if (strcmp(parsed.operands[1], "add") == 0)
        return cli_refuse(command, "ranks are added by themselves: start them with verbena train "
                                   "--join HOST:PORT");
    which = cli_find_name(command, "command", parsed.operands[1], commands, VB_COUNT(commands));
    if (which < 0)
        return CLI_USAGE;
    if ((parsed.n_operands == 3) != (strcmp(commands[which], "remove") == 0))
        return cli_refuse(command, "remove takes the number of a rank, the others take nothing");
    snprintf(line, sizeof(line), "%s\n", commands[which]);
    if (parsed.n_operands == 3) {
        if (!vb_parse_int(parsed.operands[2], &rank) || rank < 0 || rank >= VB_WORLD_MAX)
            return cli_refuse(command, "'%s' is not the number of a rank", parsed.operands[2]);
        snprintf(line, sizeof(line), "remove %d\n", (int)rank);
    }
    return cli_finish(cli_exit_code(tell(parsed.operands[0], commands[which], line, args.json)));
}

const struct cli_command cli_ctl = {
    .name = "ctl",
    .summary = "ask a running job for a checkpoint, to stop, or to do without a rank",
    .usage = "RUN checkpoint|stop|remove RANK [--json]",
    .about =
        "Asks the job that writes to RUN, the folder of train --run. Must run on the host of the\n"
        "rank that reports, as the user of the job.\n"
        "\n"
        "  checkpoint   write a checkpoint after the step under way, and print its path\n"
        "  stop         stop as with Ctrl-C: the run saves, evaluates and reports\n"
        "  remove RANK  this rank ends after its step, with exit code 0; the others go on\n"
        "\n"
        "  verbena ctl runs/lenet checkpoint\n"
        "  verbena ctl runs/lenet remove 3",
    .details =
        "checkpoint and remove are for synchronous jobs. Their answer says how many steps a\n"
        "second the job has made before and after.",
    .run = run,
};
