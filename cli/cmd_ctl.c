/* SPDX-License-Identifier: MIT
 *
 * verbena ctl: asks a running job for something, through the socket in its run folder.
 */
#include "cli/cli.h"
#include "launch/launch.h"

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
#define LINE (VB_HOST_NAME + 64)
#define ANSWER_S 700 /* longer than the job takes to answer, train/train_ctl.c */

struct ctl_args {
    bool json;
};

static const struct vb_opt ctl_opts[] = {
    {"json", VB_OPT_FLAG, offsetof(struct ctl_args, json), .help = "print one JSON object"},
};

enum { CHECKPOINT, STOP, REMOVE, ADD };
static const char *const commands[] = {
    [CHECKPOINT] = "checkpoint", [STOP] = "stop", [REMOVE] = "remove", [ADD] = "add"};

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

/* Returns -1, or the exit code. */
static int remove_line(const struct cli_command *command, const char *text, char line[LINE])
{
    int64_t rank;

    if (!vb_parse_int(text, &rank) || rank < 0 || rank >= VB_WORLD_MAX)
        return cli_refuse(command, "'%s' is not the number of a rank", text);
    snprintf(line, LINE, "remove %d\n", (int)rank);
    return -1;
}

/* N alone, or HOST:N. The host of a job with --ranks is called "-". */
static int add_line(const struct cli_command *command, const char *text, char line[LINE])
{
    struct vb_host host = {.name = "-"};
    int64_t n;

    if (vb_parse_int(text, &n) && n > 0 && n <= VB_ADD_MAX)
        host.slots = (int)n;
    else if (strspn(text, "+-0123456789") == strlen(text))
        return cli_refuse(command, "add %s: must be from 1 to %d ranks", text, VB_ADD_MAX);
    else if (vb_host_parse(text, &host) != VB_OK)
        return CLI_USAGE;
    if (host.slots > VB_ADD_MAX)
        return cli_refuse(command, "add %s: at most %d ranks can be added at once", text,
                          VB_ADD_MAX);
    snprintf(line, LINE, "add %d %s\n", host.slots, host.name);
    return -1;
}

static int make_line(const struct cli_command *command, int which, const char *text,
                     char line[LINE])
{
    if ((text != NULL) != (which == REMOVE || which == ADD))
        return cli_refuse(command, "remove takes the number of a rank, add takes HOST:N or N, the "
                                   "others take nothing");
    snprintf(line, LINE, "%s\n", commands[which]);
    if (which == REMOVE)
        return remove_line(command, text, line);
    return which == ADD ? add_line(command, text, line) : -1;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct ctl_args args;
    struct vb_opt_group groups[] = {{"Options", ctl_opts, VB_COUNT(ctl_opts), &args}};
    struct vb_opts parsed;
    char line[LINE];
    int which, rc = cli_parse(command, groups, VB_COUNT(groups), 3, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands < 2)
        return cli_refuse(command, "name a run folder and a command: checkpoint, stop, remove RANK "
                                   "or add HOST:N");
    which = cli_find_name(command, "command", parsed.operands[1], commands, VB_COUNT(commands));
    if (which < 0)
        return CLI_USAGE;
    rc = make_line(command, which, parsed.n_operands == 3 ? parsed.operands[2] : NULL, line);
    if (rc >= 0)
        return rc;
    return cli_finish(cli_exit_code(tell(parsed.operands[0], commands[which], line, args.json)));
}

static struct cli_names command_names(void)
{
    struct cli_names names = {.n = VB_COUNT(commands)};

    memcpy(names.list, commands, sizeof(commands));
    return names;
}

const struct cli_command cli_ctl = {
    .name = "ctl",
    .summary = "ask a running job for a checkpoint, to stop, or for fewer or more ranks",
    .usage = "RUN checkpoint|stop|remove RANK|add HOST:N [--json]",
    .about =
        "Asks the job that writes to RUN, the folder of train --run. Must run on the host of the\n"
        "rank that reports, as the user of the job.\n"
        "\n"
        "  checkpoint   write a checkpoint after the step under way, and print its path\n"
        "  stop         stop as with Ctrl-C: the run saves, evaluates and reports\n"
        "  remove RANK  this rank ends after its step, with exit code 0; the others go on\n"
        "  add HOST:N   N more ranks on HOST join the job; add N: on the host of --ranks\n"
        "\n"
        "  verbena ctl runs/lenet checkpoint\n"
        "  verbena ctl runs/lenet remove 3\n"
        "  verbena ctl runs/lenet add node2:2",
    .details =
        "checkpoint and remove are for synchronous jobs. add is for jobs of --ranks and --hosts;\n"
        "ranks of other jobs join with train --join. The answers say how many steps a second the\n"
        "job has made before and after.",
    .then = command_names,
    .run = run,
};
