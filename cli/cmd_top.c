/* SPDX-License-Identifier: MIT
 *
 * verbena top: watches a run in the terminal.
 */
#include "cli/cli.h"
#include "cli/top.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

struct top_args {
    double every;
    bool once, json, plain;
};

#define FIELD(name) offsetof(struct top_args, name)

static const struct vb_opt top_opts[] = {
    {"every", VB_OPT_REAL, FIELD(every), "0.5", .min = 0, .max = 3600, .arg = "S",
     .help = "seconds between two pictures; at least 0.1"},
    {"once", VB_OPT_FLAG, FIELD(once), .help = "print one screen and end"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "with --once: print one JSON object instead"},
    {"plain", VB_OPT_FLAG, FIELD(plain), .help = "no colours, and only ASCII characters"},
};

/* ---- one object ------------------------------------------------------------------------------ */

static void json_rank(struct vb_json *json, const struct top_rank *r)
{
    int p;

    vb_json_object(json, NULL);
    vb_json_int(json, "rank", r->rank);
    vb_json_text(json, "role", r->server ? "server" : "worker");
    vb_json_text(json, "host", r->host);
    vb_json_int(json, "step", r->step);
    if (r->lost)
        vb_json_int(json, "lost_step", r->lost_step);
    else
        vb_json_text(json, "lost_step", NULL);
    vb_json_object(json, "phases_ms");
    for (p = 0; p < VB_PHASES; p++)
        vb_json_real(json, vb_phase_str((enum vb_phase)p), 1e3 * r->phase_s[p]);
    vb_json_end(json);
    vb_json_real(json, "step_ms", r->rows > 0 ? 1e3 * r->steps_s / (double)r->rows : (double)NAN);
    vb_json_real(json, "busy_ms", r->busy_ms);
    vb_json_real(json, "late_s", r->late_s);
    vb_json_real(json, "cpu_pct", r->cpu_pct);
    vb_json_real(json, "rss_mb", r->rss_mb);
    vb_json_real(json, "send_mb_s", r->send_mb_s);
    vb_json_real(json, "recv_mb_s", r->recv_mb_s);
    vb_json_end(json);
}

static void json_text_or_null(struct vb_json *json, const char *key, const char *text)
{
    vb_json_text(json, key, text[0] != '\0' ? text : NULL);
}

static vb_status print_json(const struct top *t)
{
    struct vb_json *json = cli_json_object();
    int i;

    vb_json_text(json, "run", t->dir);
    vb_json_text(json, "model", t->model);
    vb_json_text(json, "mode", t->mode);
    vb_json_text(json, "state", t->state);
    json_text_or_null(json, "why", t->why);
    vb_json_real(json, "silent_s", t->silent_s);
    vb_json_real(json, "elapsed_s", t->elapsed_s);
    vb_json_real(json, "left_s", t->left_s);
    vb_json_int(json, "step", t->step);
    vb_json_int(json, "steps", t->steps);
    vb_json_real(json, "steps_per_s", t->steps_per_s);
    vb_json_real(json, "samples_per_s", t->samples_per_s);
    vb_json_real(json, "loss", t->curve.last);
    vb_json_real(json, "test_loss", t->test_loss);
    vb_json_real(json, "accuracy", t->accuracy);
    if (t->waited_for >= 0)
        vb_json_int(json, "waited_for", t->waited_for);
    else
        vb_json_text(json, "waited_for", NULL);
    vb_json_real(json, "waited_ms", t->waited_for >= 0 ? t->waited_ms : (double)NAN);
    json_text_or_null(json, "bottleneck", t->bottleneck);
    json_text_or_null(json, "replayed", t->replayed);
    json_text_or_null(json, "injected", t->injected);
    vb_json_array(json, "ranks");
    for (i = 0; i < t->n_ranks; i++)
        json_rank(json, &t->ranks[i]);
    vb_json_end(json);
    return cli_print_json(json);
}

/* ---- the terminal ---------------------------------------------------------------------------- */

/* The terminal as it was. Signal handlers use it, so it belongs to the process. */
static struct termios before;
static volatile sig_atomic_t changed; /* the terminal is changed now */
static volatile sig_atomic_t has_keys;
static volatile sig_atomic_t asked_to_end, asked_to_stop;

static void restore(void)
{
    static const char text[] = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

    if (!changed)
        return;
    changed = 0;
    (void)vb_write_all(STDOUT_FILENO, text, sizeof(text) - 1);
    if (has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

static void change(void)
{
    static const char text[] = "\x1b[?1049h\x1b[?25l\x1b[2J";
    struct termios raw;

    has_keys = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before) == 0;
    changed = 1;
    if (has_keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    }
    (void)vb_write_all(STDOUT_FILENO, text, sizeof(text) - 1);
}

static void on_end(int number)
{
    asked_to_end = number;
}

static void on_stop(int number)
{
    asked_to_stop = number;
}

static void on_resize(int number)
{
    (void)number; /* only wakes poll() */
}

/* A crash, too, leaves a terminal that can be used. */
static void on_crash(int number)
{
    restore();
    raise(number); /* the handler was reset */
}

static void catch_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = on_end};
    size_t i;

    sigemptyset(&action.sa_mask);
    for (i = 0; i < VB_COUNT(ends); i++)
        sigaction(ends[i], &action, NULL);
    action.sa_handler = on_stop;
    sigaction(SIGTSTP, &action, NULL);
    action.sa_handler = on_resize;
    sigaction(SIGWINCH, &action, NULL);
    action.sa_handler = on_crash;
    action.sa_flags = (int)SA_RESETHAND;
    for (i = 0; i < VB_COUNT(crashes); i++)
        sigaction(crashes[i], &action, NULL);
    atexit(restore);
}

static void find_size(struct top_screen *screen)
{
    struct winsize size;

    screen->width = 80;
    screen->height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        screen->width = size.ws_col;
        screen->height = size.ws_row;
    }
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Draws into memory first: the terminal gets a whole picture in one write. */
static vb_status show(const struct top *top, struct top_screen *screen)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    vb_status st = VB_OK;

    if (out == NULL)
        return vb_err_sys("open_memstream");
    screen->scroll = cli_top_draw(top, screen, out);
    if (fclose(out) != 0 || !vb_write_all(STDOUT_FILENO, text, len))
        st = vb_err_sys("cannot write to the terminal");
    free(text);
    return st;
}

/* Handles the keys that were pressed. Returns false if the user wants to quit. */
static bool take_keys(struct top_screen *screen)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys)), i;

    if (n <= 0) /* the terminal is gone */
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    for (i = 0; i < n; i++) {
        bool arrow = i + 2 < n && keys[i] == '\x1b' && keys[i + 1] == '[';
        char key = keys[arrow ? i + 2 : i];

        if (!arrow && (key == 'q' || key == 'Q'))
            return false;
        if ((arrow && key == 'B') || (!arrow && key == 'j'))
            screen->scroll++;
        if ((arrow && key == 'A') || (!arrow && key == 'k'))
            screen->scroll--;
        if (arrow && (key == '5' || key == '6')) /* page up, page down */
            screen->scroll += key == '6' ? 10 : -10;
        i += arrow ? 2 : 0;
    }
    screen->scroll = screen->scroll > 0 ? screen->scroll : 0;
    return true;
}

/* Ctrl-Z: gives the terminal back, and takes it again later. */
static void stop_for_a_while(void)
{
    asked_to_stop = 0;
    restore();
    raise(SIGSTOP);
    change();
}

/* Waits for the time of the next picture, for a key, or for a signal. Returns false if the user
 * wants to quit. */
static bool await(struct top_screen *screen, double every_s)
{
    struct pollfd fd = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    int n = poll(&fd, 1, (int)(1e3 * every_s));

    if (asked_to_stop)
        stop_for_a_while();
    if (asked_to_end)
        return false;
    return n <= 0 || take_keys(screen);
}

static vb_status watch(struct top *top, const struct top_args *args, struct top_screen *screen)
{
    vb_status st = VB_OK;
    char why[512] = "";

    catch_signals();
    change();
    screen->keys = has_keys != 0;
    while (st == VB_OK) {
        find_size(screen);
        st = show(top, screen);
        if (st != VB_OK || !await(screen, args->every < 0.1 ? 0.1 : args->every))
            break;
        st = cli_top_read(top);
    }
    if (st != VB_OK)
        snprintf(why, sizeof(why), "%s", vb_log_first_error());
    restore();
    if (why[0] != '\0') /* the line that was logged went to the other screen */
        fprintf(stderr, "verbena top: %s\n", why);
    return st;
}

static bool is_utf8(void)
{
    return setlocale(LC_CTYPE, "") != NULL && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct top_args args;
    struct vb_opt_group groups[] = {{"Options", top_opts, VB_COUNT(top_opts), &args}};
    bool terminal = isatty(STDOUT_FILENO) == 1;
    struct top_screen screen = {0};
    static struct top top; /* too large for a stack */
    struct vb_opts parsed;
    vb_status st;
    int rc = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands == 0)
        return cli_refuse(&cli_top, "the run is missing: name a folder that train --run has made");
    if (args.json && !args.once)
        return cli_refuse(&cli_top, "--json needs --once");
    if (!args.once && !terminal)
        return cli_refuse(&cli_top, "standard output is not a terminal: add --once, which prints "
                                    "one screen");
    screen.unicode = !args.plain && is_utf8();
    screen.colour = !args.plain && terminal;
    st = cli_top_open(parsed.operands[0], &top);
    if (st == VB_OK && args.json) {
        st = print_json(&top);
    } else if (st == VB_OK && args.once) {
        find_size(&screen);
        screen.lines_only = true;
        (void)cli_top_draw(&top, &screen, stdout);
    } else if (st == VB_OK) {
        st = watch(&top, &args, &screen);
    }
    cli_top_close(&top);
    rc = cli_finish(cli_exit_code(st));
    return rc == CLI_OK && asked_to_end > 0 && asked_to_end != SIGINT ? 128 + asked_to_end : rc;
}

const struct cli_command cli_top = {
    .name = "top",
    .summary = "watch a run in the terminal, or print its state once",
    .usage = "RUN [--once [--json]] [--plain]",
    .about =
        "Shows RUN, a folder that train --run has made: progress, rates, the loss, and for each\n"
        "rank where its time goes, what it uses, and who is waited for. The job may have been\n"
        "started anywhere that writes to this folder, and may have ended. q quits.\n"
        "\n"
        "  verbena top runs/lenet\n"
        "  verbena top runs/lenet --once --json | jq .steps_per_s",
    .details =
        "Figures are of the last 5 seconds, CPU and network of the last 1.5; of a run that has\n"
        "ended, of the whole run. If not all ranks fit on the screen, the slowest are first:\n"
        "those that take longest for data, forward, backward and update. Arrows, j, k and the\n"
        "page keys scroll.",
    .run = run,
};
