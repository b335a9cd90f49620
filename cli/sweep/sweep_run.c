/* SPDX-License-Identifier: MIT
 *
 * Makes the runs, one after another. Each is "verbena train" in a process of its own, so it is the
 * same as if the user had typed it, and a run that dies does not end the sweep.
 */
#include "cli/sweep/cmd_sweep.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOW_MS 500
#define GRACE_MS 10000 /* time to end after a Ctrl-C */

/* ---- arguments ------------------------------------------------------------------------------- */

void cli_sweep_run_dir(const struct sweep *s, int c, int repeat, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s_r%d", s->dir, s->plan.cases[c].name, repeat + 1) >=
        PATH_MAX)
        path[0] = '\0'; /* cmd_sweep.c limits the length of s->dir */
}

static char *option(const char *name, const char *value)
{
    char *text = NULL;

    return asprintf(&text, "--%s=%s", name, value) >= 0 ? text : NULL;
}

char **cli_sweep_argv(const struct sweep *s, int c, int repeat, int *argc_p)
{
    const struct sweep_case *at = &s->plan.cases[c];
    char **argv = calloc((size_t)s->n_fixed + SWEEP_AXES + 3, sizeof(*argv)), dir[PATH_MAX];
    int n = s->n_fixed, a;
    char seed[32];

    if (argv == NULL)
        return NULL;
    memcpy(argv, s->fixed, (size_t)n * sizeof(*argv));
    for (a = 0; a < SWEEP_AXES; a++)
        if (at->value[a] != NULL && (argv[n++] = option(cli_sweep_axes[a], at->value[a])) == NULL)
            goto failed;
    snprintf(seed, sizeof(seed), "%lld", (long long)s->seed + repeat);
    if (s->seed >= 0 && (argv[n++] = option("seed", seed)) == NULL)
        goto failed;
    cli_sweep_run_dir(s, c, repeat, dir);
    argv[n] = option("run", dir);
    if (argv[n++] == NULL)
        goto failed;
    *argc_p = n;
    return argv;
failed:
    cli_sweep_argv_free(s, argv);
    return NULL;
}

void cli_sweep_argv_free(const struct sweep *s, char **argv)
{
    int i;

    for (i = s->n_fixed; argv != NULL && argv[i] != NULL; i++)
        free(argv[i]);
    free(argv);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Returns the mean time of the runs of a case, or of all cases if it has none; NAN: none has run.
 */
static double expected_s(const struct sweep_plan *plan, const double *took_s, int c)
{
    int i, n = 0, first = c < 0 ? 0 : c * plan->repeat;
    int end = c < 0 ? plan->n_cases * plan->repeat : first + plan->repeat;
    double sum = 0;

    for (i = first; i < end; i++) {
        sum += took_s[i];
        n += took_s[i] > 0;
    }
    if (n > 0)
        return sum / n;
    return c < 0 ? (double)NAN : expected_s(plan, took_s, -1);
}

double cli_sweep_left_s(const struct sweep_plan *plan, const double *took_s, int at)
{
    int n = plan->n_cases * plan->repeat, c, repeat;
    double left = 0;

    for (; at < n; at++) {
        cli_sweep_order(plan, at, &c, &repeat);
        if (took_s[c * plan->repeat + repeat] == 0)
            left += expected_s(plan, took_s, c);
    }
    return left;
}

static void time_text(double seconds, char *text, size_t size)
{
    if (!isfinite(seconds))
        snprintf(text, size, "unknown time");
    else if (seconds < 90)
        snprintf(text, size, "%.0f s", seconds);
    else if (seconds < 5400)
        snprintf(text, size, "%.0f min", seconds / 60);
    else
        snprintf(text, size, "%.1f h", seconds / 3600);
}

/* Shows a line on the terminal: which run, since when, how long the rest takes. */
static void show(const struct sweep *s, int at, int c, int repeat, double since_s)
{
    double own = expected_s(&s->plan, s->took_s, c), left;
    char text[32];

    if (!s->terminal)
        return;
    left = cli_sweep_left_s(&s->plan, s->took_s, at + 1) + fmax(own - since_s, 0);
    time_text(at + 1 < s->plan.n_cases * s->plan.repeat || isfinite(own) ? left : (double)NAN, text,
              sizeof(text));
    fprintf(stderr, "\r\033[Krun %d of %d: %s, repeat %d: %.0f s; %s left", at + 1,
            s->plan.n_cases * s->plan.repeat, s->plan.cases[c].name, repeat + 1, since_s, text);
    fflush(stderr);
}

static void wipe(const struct sweep *s)
{
    if (s->terminal)
        fputs("\r\033[K", stderr);
}

/* ---- one run --------------------------------------------------------------------------------- */

/* Waits for the run, shows progress, and stops the run after a Ctrl-C. Returns its exit code. */
static int await(const struct sweep *s, pid_t pid, int at, int c, int repeat)
{
    uint64_t begin_ns = vb_clock_ns();
    int code = CLI_FAILED;

    show(s, at, c, repeat, 0);
    while (!vb_spawn_wait(pid, vb_interrupted() != 0 ? 0 : SHOW_MS, &code)) {
        if (vb_interrupted() != 0) {
            vb_spawn_stop(pid, GRACE_MS);
            return 128 + vb_interrupted();
        }
        show(s, at, c, repeat, (double)(vb_clock_ns() - begin_ns) / 1e9);
    }
    return code;
}

static vb_status start(char **argv, int argc, const char *log, pid_t *pid_p)
{
    static char program[] = "verbena", command[] = "train";
    struct vb_spawn_opts o = {.in_fd = -1, .out_fd = -1, .net_fd = -1};
    char **all = calloc((size_t)argc + 3, sizeof(*all));
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    all[0] = program;
    all[1] = command;
    memcpy(all + 2, argv, (size_t)argc * sizeof(*argv));
    o.argv = all;
    o.out_fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    st = o.out_fd >= 0 ? vb_spawn_start(&o, pid_p) : vb_err_sys("cannot write %s", log);
    if (o.out_fd >= 0)
        close(o.out_fd);
    free(all);
    return st;
}

/* Makes a run and reads its result. Fails only if the sweep cannot go on. */
static vb_status make_run(struct sweep *s, int at, int c, int repeat, char **argv, int argc)
{
    struct sweep_result *r = &s->results[c * s->plan.repeat + repeat];
    uint64_t begin_ns = vb_clock_ns();
    char dir[PATH_MAX], log[PATH_MAX];
    vb_status st;
    pid_t pid;
    int code;

    cli_sweep_run_dir(s, c, repeat, dir);
    if (snprintf(log, sizeof(log), "%s.log", dir) >= (int)sizeof(log))
        return vb_err(VB_ERR_USAGE, "%s: the path is too long", dir);
    st = start(argv, argc, log, &pid);
    if (st != VB_OK)
        return st;
    code = await(s, pid, at, c, repeat);
    wipe(s);
    if (vb_interrupted() != 0)
        return VB_OK;
    s->took_s[c * s->plan.repeat + repeat] = (double)(vb_clock_ns() - begin_ns) / 1e9;
    if (code == 0 && cli_sweep_read(dir, argv, argc, r) == VB_OK)
        return VB_OK;
    cli_sweep_read_error(dir, log, code, r);
    fprintf(stderr, "%s, repeat %d: %s; see %s\n", s->plan.cases[c].name, repeat + 1, r->error,
            log);
    return VB_OK;
}

/* ---- all runs -------------------------------------------------------------------------------- */

/* Finds the runs that are complete already. Nothing runs before all folders were looked at. */
static int read_complete(struct sweep *s)
{
    int i, argc, n = s->plan.n_cases * s->plan.repeat;
    char dir[PATH_MAX], **argv;
    vb_status st;

    for (i = 0; i < n; i++) {
        argv = cli_sweep_argv(s, i / s->plan.repeat, i % s->plan.repeat, &argc);
        if (argv == NULL)
            return cli_exit_code(vb_err_sys("calloc"));
        cli_sweep_run_dir(s, i / s->plan.repeat, i % s->plan.repeat, dir);
        st = cli_sweep_read(dir, argv, argc, &s->results[i]);
        cli_sweep_argv_free(s, argv);
        if (st == VB_ERR_USAGE)
            return cli_refuse(&cli_sweep,
                              "%s has a run with other options; remove it, or name another --out",
                              dir);
        if (st == VB_OK)
            s->took_s[i] = s->results[i].value[METRIC_WALL_S];
    }
    return -1;
}

static vb_status print_run(const struct sweep *s, int c, int repeat)
{
    vb_status st = cli_sweep_append(s, c, repeat);

    return st == VB_OK && s->json ? cli_sweep_json_run(stdout, s, c, repeat) : st;
}

static vb_status write_tables(const struct sweep *s)
{
    struct sweep_row *rows = cli_sweep_rows(s);
    vb_status st = rows != NULL ? cli_sweep_write(s, rows, false) : VB_ERR_NO_MEMORY;

    free(rows);
    return st;
}

/* Makes the run at this place of the order, unless it is complete. */
static vb_status run_at(struct sweep *s, int at)
{
    int c, repeat, argc;
    vb_status st = VB_OK;
    char **argv;

    cli_sweep_order(&s->plan, at, &c, &repeat);
    if (!s->results[c * s->plan.repeat + repeat].ok) {
        argv = cli_sweep_argv(s, c, repeat, &argc);
        if (argv == NULL)
            return vb_err_sys("calloc");
        st = make_run(s, at, c, repeat, argv, argc);
        cli_sweep_argv_free(s, argv);
        if (st == VB_OK)
            st = write_tables(s);
    }
    if (st == VB_OK && vb_interrupted() == 0)
        st = print_run(s, c, repeat);
    return st;
}

int cli_sweep_run_all(struct sweep *s)
{
    int at, n = s->plan.n_cases * s->plan.repeat, rc = read_complete(s);
    vb_status st = VB_OK;

    if (rc >= 0)
        return rc;
    vb_interrupt_catch();
    st = cli_sweep_append(s, -1, 0);
    for (at = 0; at < n && st == VB_OK && vb_interrupted() == 0; at++)
        st = run_at(s, at);
    if (st != VB_OK)
        return cli_exit_code(st);
    if (vb_interrupted() == 0)
        return -1;
    fprintf(stderr, "stopped; to go on: verbena sweep --out %s --resume\n", s->dir);
    return 128 + vb_interrupted();
}
