/* SPDX-License-Identifier: MIT
 *
 * The parts of the tour.
 */
#include "cli/demo/demo.h"
#include "net/net.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the machine ----------------------------------------------------------------------------- */

static int cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

static void machine(struct demo *d)
{
    static const char *const words[] = {"machine", "caches", "nic ", NULL}; /* not "nic of" */

    if (cli_demo_command(d, "topo", "topo") != 0)
        return;
    cli_demo_show_log(d, "topo", words);
    if (cpus() == 1)
        cli_demo_line(d, "There is one cpu for all ranks, so two ranks are not faster than one.");
}

/* ---- transports ------------------------------------------------------------------------------ */

struct speed {
    double us, gb_s;
};

static bool read_speed(char *line, void *arg)
{
    struct speed *s = arg;
    struct vb_json *json = line[0] == '{' ? vb_json_parse(line, strlen(line)) : NULL;

    if (json != NULL) {
        s->us = vb_json_get_real(json, "time_us");
        s->gb_s = vb_json_get_real(json, "busbw_gb_s");
    }
    vb_json_destroy(json);
    return true;
}

static void rung(struct demo *d, const char *transport)
{
    struct speed speed = {0};
    char text[256], log[32], path[PATH_MAX];

    snprintf(log, sizeof(log), "allreduce-%s", transport);
    snprintf(text, sizeof(text),
             "bench allreduce --ranks 2 --transport %s --sizes 1M --seconds 1 --json", transport);
    if (cli_demo_command(d, log, text) != 0)
        return;
    cli_demo_log_path(d, log, path);
    vb_probe_lines(read_speed, &speed, "%s", path);
    if (!(speed.us > 0)) {
        cli_demo_fail(d, "the bench has printed no time");
        return;
    }
    cli_demo_line(d, "%-6s %9.1f us, %6.2f GB/s", transport, speed.us, speed.gb_s);
}

static void transports(struct demo *d)
{
    rung(d, "shm");
    if (vb_interrupted() == 0)
        rung(d, "tcp");
    if (vb_interrupted() == 0 && vb_net_rdma_any_usable())
        rung(d, "verbs");
    else if (vb_interrupted() == 0)
        cli_demo_line(d, "verbs  skipped: no RDMA device; verbena doctor says how to make one");
}

/* ---- training -------------------------------------------------------------------------------- */

static void training(struct demo *d)
{
    static const char *const words[] = {"time", "bottleneck", "accuracy", NULL};

    if (cli_demo_command(d, "train",
                         "train lenet --data synth --ranks 2 --steps 200 --run @/train") == 0)
        cli_demo_show_log(d, "train", words);
}

/* The verdict alone is not enough: beside other work of the machine it may name that first. */
static void straggler(struct demo *d)
{
    static const char *const words[] = {"bottleneck", "advice", NULL};
    struct vb_json *json;

    if (cli_demo_command(d, "straggler",
                         "train lenet --data synth --ranks 2 --steps 200 --inject slow:1x3 "
                         "--run @/straggler") != 0)
        return;
    cli_demo_show_log(d, "straggler", words);
    json = cli_demo_result(d, "straggler");
    if (json == NULL)
        return;
    cli_demo_line(d, "waits       rank 0 waited %.2f s for rank 1, which waited %.2f s for rank 0",
                  vb_json_get_real(json, "per_rank.1.late_s"),
                  vb_json_get_real(json, "per_rank.0.late_s"));
    vb_json_destroy(json);
}

static void death(struct demo *d)
{
    static const char *const words[] = {"accuracy", NULL};
    struct vb_json *json;
    const char *why;

    if (cli_demo_command(d, "death",
                         "train softmax --data synth --mode async --ranks 3 --steps 5000 "
                         "--inject kill:2@300 --run @/death") != 0)
        return;
    json = cli_demo_result(d, "death");
    if (json == NULL)
        return;
    why = vb_json_get_text(json, "faults.0.why");
    if (why == NULL)
        cli_demo_fail(d, "the run has not recorded the death of rank 2");
    else
        cli_demo_line(d, "lost        rank %.0f at step %.0f, after %.2f s: %s",
                      vb_json_get_real(json, "faults.0.rank"),
                      vb_json_get_real(json, "faults.0.step"),
                      vb_json_get_real(json, "faults.0.at_s"), why);
    cli_demo_line(d, "went on     the others made all %.0f steps", vb_json_get_real(json, "steps"));
    cli_demo_show_log(d, "death", words);
    vb_json_destroy(json);
}

/* ---- the report ------------------------------------------------------------------------------ */

static void report(struct demo *d)
{
    static const char *const words[] = {"report", "files", NULL};
    char page[PATH_MAX], full[PATH_MAX];

    if (cli_demo_command(d, "report", "report @/train @/straggler @/death --out @/report.html") !=
        0)
        return;
    cli_demo_show_log(d, "report", words);
    snprintf(page, sizeof(page), "%s/report.html", d->dir);
    if (realpath(page, full) == NULL) {
        cli_demo_fail(d, "there is no report.html");
        return;
    }
    cli_demo_line(d, "open it     xdg-open %s", full);
    cli_demo_line(d, "            or copy it to your computer: the file needs nothing else");
    if (!cli_gnuplot_there())
        cli_demo_line(d, "without     gnuplot, so there are no PNG files: apt install gnuplot-nox");
}

const struct demo_part cli_demo_parts[] = {
    {"machine", "what Verbena knows of this machine, and where it puts threads.", machine},
    {"transports", "1 MB is summed over 2 ranks (allreduce), over each transport.", transports},
    {"training", "LeNet on generated digits by 2 ranks, and what limits its speed.", training},
    {"straggler", "the same, but rank 1 computes 3 times as long: who waits for whom?", straggler},
    {"death", "asynchronous training; one of 3 workers is killed, and the job goes on.", death},
    {"report", "one page about all three runs: verdicts, curves, tables.", report},
};
const int cli_demo_n_parts = VB_COUNT(cli_demo_parts);
