/* SPDX-License-Identifier: MIT
 *
 * verbena demo: shows in a minute what Verbena does.
 */
#include "cli/demo/demo.h"

#include <unistd.h>

struct demo_args {
    const char *out;
    bool json;
};

#define FIELD(name) offsetof(struct demo_args, name)

static const struct vb_opt demo_opts[] = {
    {"out", VB_OPT_TEXT, FIELD(out), "verbena-demo", .arg = "DIR",
     .help = "folder for logs, runs and the report. An earlier demo there is replaced; nothing "
             "else is"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object on one line instead of text"},
};

static double seconds_since(uint64_t begin_ns)
{
    return (double)(vb_clock_ns() - begin_ns) / 1e9;
}

static vb_status print_object(const void *arg, FILE *out)
{
    return vb_json_print(((const struct demo *)arg)->out, out);
}

/* Ends the object, and writes it to the folder. */
static vb_status write_result(struct demo *d, double seconds)
{
    char path[PATH_MAX];

    vb_json_end(d->out);
    vb_json_int(d->out, "failed", d->failed);
    vb_json_real(d->out, "seconds", seconds);
    vb_json_end(d->out);
    snprintf(path, sizeof(path), "%s/%s", d->dir, DEMO_FILE);
    return vb_file_print(path, print_object, d, NULL);
}

static void show_parts(struct demo *d)
{
    uint64_t begin_ns;
    int i;

    for (i = 0; i < cli_demo_n_parts && vb_interrupted() == 0; i++) {
        begin_ns = vb_clock_ns();
        cli_demo_begin(d, &cli_demo_parts[i]);
        cli_demo_parts[i].run(d);
        cli_demo_end(d, seconds_since(begin_ns));
    }
}

static int end(struct demo *d, double seconds)
{
    vb_status st = write_result(d, seconds);

    if (vb_interrupted() != 0) {
        fprintf(stderr, "stopped; what was done is in %s, and no process is left\n", d->dir);
        return 128 + vb_interrupted();
    }
    if (st == VB_OK && d->json)
        st = vb_json_print(d->out, stdout);
    if (!d->json)
        printf("\n%.0f s. All output is in %s. Next: verbena train --help, verbena doctor\n",
               seconds, d->dir);
    return d->failed > 0 ? CLI_FAILED : cli_exit_code(st);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct demo_args args;
    struct vb_opt_group groups[] = {{"Options", demo_opts, VB_COUNT(demo_opts), &args}};
    struct demo d = {.n_parts = cli_demo_n_parts};
    uint64_t begin_ns = vb_clock_ns();
    struct vb_opts parsed;
    int rc = cli_parse(command, groups, VB_COUNT(groups), 0, argc, argv, &parsed);

    if (rc < 0)
        rc = cli_demo_open(command, args.out);
    if (rc >= 0)
        return rc;
    vb_interrupt_catch();
    d.dir = args.out;
    d.json = args.json;
    d.colour = !args.json && isatty(STDOUT_FILENO) == 1;
    d.terminal = isatty(STDERR_FILENO) == 1;
    d.out = cli_json_object();
    vb_json_text(d.out, "demo", "verbena");
    vb_json_text(d.out, "dir", d.dir);
    vb_json_array(d.out, "parts");
    show_parts(&d);
    rc = end(&d, seconds_since(begin_ns));
    vb_json_destroy(d.out);
    return cli_finish(rc);
}

const struct cli_command cli_demo = {
    .name = "demo",
    .summary = "a tour in one minute: machine, transports, trainings, a report",
    .usage = "[--out DIR] [--json]",
    .about =
        "Shows in about a minute what Verbena does, by commands that you can type yourself: the\n"
        "machine, the speed of each transport, a training by two ranks, a slow rank that is "
        "found,\n"
        "a worker that dies while the others go on, and a report. It needs no data and no "
        "network.\n"
        "\n"
        "  verbena demo\n"
        "  verbena demo --out /tmp/demo --json",
    .details =
        "All output of each command is in DIR, as NAME.txt; the runs are folders there, and\n"
        "demo.json has what --json prints. Parts that this machine cannot show are left out, with\n"
        "the reason. Ctrl-C ends the commands, too. The exit code is 1 if a part failed.",
    .run = run,
};
