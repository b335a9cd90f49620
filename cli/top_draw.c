/* SPDX-License-Identifier: MIT
 *
 * The screen of verbena top: the job, the curve of its loss, and a line for each rank. The screen
 * is drawn over the last one, line by line, so that it does not flicker.
 */
#include "cli/top.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define WIDTH_MIN 40
#define HEIGHT_MIN 10
#define LINE_BYTES 1024
#define FIGURES 36  /* columns of the figures of a rank */
#define NAME 14     /* columns of rank and host */
#define CURVE_MIN 3 /* lines */
#define CURVE_MAX 24
#define AXIS 9 /* columns of the values beside the curve */
#define SILENT_S 5
#define BAR_MAX 60

/* A phase has a letter and a colour (of 256). */
static const struct {
    char letter;
    int colour;
    const char *name; /* shorter than that of the JSON result */
} looks[VB_PHASES] = {
    [VB_PHASE_DATA] = {'d', 180, "data"},        [VB_PHASE_FORWARD] = {'f', 75, "forward"},
    [VB_PHASE_BACKWARD] = {'b', 69, "backward"}, [VB_PHASE_COMM] = {'c', 173, "comm"},
    [VB_PHASE_WAIT] = {'w', 167, "wait"},        [VB_PHASE_UPDATE] = {'u', 108, "update"},
    [VB_PHASE_EVAL] = {'e', 145, "eval"},        [VB_PHASE_CHECKPOINT] = {'k', 139, "checkpoint"},
};

struct page {
    const struct top *top;
    const struct top_screen *screen;
    FILE *out;
    int lines; /* lines that are drawn so far */
    int width;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static void end_line(struct page *p)
{
    p->lines++;
    if (p->screen->lines_only)
        fputc('\n', p->out);
    else
        fprintf(p->out, "\x1b[K%s", p->lines < p->screen->height ? "\r\n" : "");
}

/* Writes a line of plain text, cut to the width. Bytes that are no text become '?': names come from
 * files. */
static void line(struct page *p, const char *fmt, ...) VB_PRINTF(2, 3);
static void line(struct page *p, const char *fmt, ...)
{
    char text[LINE_BYTES], *c;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
    fprintf(p->out, "%.*s", p->width, text);
    end_line(p);
}

static void set_colour(const struct page *p, int background)
{
    if (!p->screen->colour)
        return;
    if (background >= 0)
        fprintf(p->out, "\x1b[38;5;16;48;5;%dm", background);
    else
        fprintf(p->out, "\x1b[0m");
}

static void set_bold(const struct page *p, bool on)
{
    if (p->screen->colour)
        fprintf(p->out, on ? "\x1b[1m" : "\x1b[0m");
}

static void duration(double s, char text[32])
{
    int64_t all = s >= 0 && s < 1e9 ? (int64_t)(s + 0.5) : -1;

    if (all < 0)
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", (long long)(all / 3600),
                 (long long)(all / 60 % 60), (long long)(all % 60));
}

/* ---- the job --------------------------------------------------------------------------------- */

static void draw_title(struct page *p)
{
    const struct top *t = p->top;
    char time[32], state[320], rest[LINE_BYTES], lost[40] = "";
    int room;

    duration(t->elapsed_s, time);
    snprintf(state, sizeof(state), "%s %s", t->state, time);
    if (t->silent_s > SILENT_S)
        snprintf(state, sizeof(state), "no records for %.0f s", t->silent_s);
    room = p->width - (int)strlen(state) - 1;
    room = room > 0 ? room : 0;
    if (t->n_lost > 0)
        snprintf(lost, sizeof(lost), ", %d of them lost", t->n_lost);
    snprintf(rest, sizeof(rest), "%s, %s, %d rank%s%s  %.600s", t->model, t->mode, t->n_ranks,
             t->n_ranks == 1 ? "" : "s", lost, t->dir);
    set_bold(p, true);
    line(p, "%-*.*s %s", room, room, rest, state);
    set_bold(p, false);
}

/* The bar takes the room that the figures leave. */
static void draw_progress(struct page *p)
{
    const struct top *t = p->top;
    double part = t->steps > 0 ? (double)t->step / (double)t->steps : 0;
    char head[80], tail[160], left[32], bar[LINE_BYTES];
    int width, i;

    part = part < 1 ? part : 1;
    duration(t->left_s, left);
    snprintf(head, sizeof(head), "step %lld of %lld", (long long)t->step, (long long)t->steps);
    snprintf(tail, sizeof(tail), "%3.0f %%  %.*f steps/s, %.0f samples/s%s%s", 100 * part,
             t->steps_per_s < 10    ? 3
             : t->steps_per_s < 1e3 ? 1
                                    : 0,
             t->steps_per_s, t->samples_per_s, t->ended ? "" : "  left ", t->ended ? "" : left);
    width = p->width - (int)strlen(head) - (int)strlen(tail) - 2;
    width = width < 0 ? 0 : width < BAR_MAX ? width : BAR_MAX;
    for (i = 0; i < width; i++)
        bar[i] = i < (int)(part * width) ? '#' : '.';
    bar[width] = '\0';
    line(p, "%s %s %s", head, bar, tail);
}

/* Says why a run has ended, and what makes it an experiment. */
static void draw_notes(struct page *p)
{
    const struct top *t = p->top;

    if (t->ended && t->why[0] != '\0')
        line(p, "%s: %s", t->state, t->why);
    if (t->replayed[0] != '\0')
        line(p, "replayed: the ranks do not compute, they sleep as long as %s recorded",
             t->replayed);
    if (t->injected[0] != '\0')
        line(p, "injected: %s", t->injected);
}

static void draw_loss(struct page *p)
{
    const struct top *t = p->top;
    char test[96] = "";

    if (isfinite(t->accuracy))
        snprintf(test, sizeof(test), "   test loss %.4g, accuracy %.2f %% at step %lld",
                 t->test_loss, 100 * t->accuracy, (long long)t->tested_step);
    if (t->replayed[0] != '\0')
        line(p, "loss        none: nothing is learnt");
    else if (isfinite(t->curve.last))
        line(p, "training loss %.4g%s", t->curve.last, test);
    else
        line(p, "waiting for the first step");
}

static void draw_curve(struct page *p, int height)
{
    int width = p->width - AXIS, row;
    struct top_range range =
        cli_top_curve_range(&p->top->curve, p->screen->unicode ? 2 * width : width);

    for (row = 0; row < height; row++) {
        if (row == 0)
            fprintf(p->out, "%*.3g ", AXIS - 1, range.high);
        else if (row == height - 1)
            fprintf(p->out, "%*.3g ", AXIS - 1, range.low);
        else
            fprintf(p->out, "%*s ", AXIS - 1, range.log && row == height / 2 ? "log" : "");
        cli_top_curve(&p->top->curve, &range, width, height, row, p->screen->unicode, p->out);
        end_line(p);
    }
}

static void draw_waited(struct page *p)
{
    const struct top *t = p->top;

    if (t->bottleneck[0] != '\0')
        line(p, "bottleneck: %s", t->bottleneck);
    else if (t->n_ranks > 1 && t->waited_for >= 0)
        line(p, "waited for: rank %d (%s), %.3f ms of a step on average", t->waited_for,
             t->ranks[t->waited_for].host, t->waited_ms);
    else if (t->n_ranks > 1)
        line(p, t->async ? "waited for: not known of asynchronous jobs" : "waited for: nobody");
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Draws the phases of a rank. Cells are given to phases so that the sum of all is the width. */
static void draw_bar(struct page *p, const struct top_rank *r, int width)
{
    double sum = 0;
    int phase, done = 0, end;

    for (phase = 0; phase < VB_PHASES; phase++) {
        sum += r->phase_s[phase];
        end = r->phases_s > 0 ? (int)(sum / r->phases_s * width + 0.5) : 0;
        end = end < width ? end : width;
        if (end <= done)
            continue;
        set_colour(p, looks[phase].colour);
        for (; done < end; done++)
            fputc(looks[phase].letter, p->out);
        set_colour(p, -1);
    }
    for (; done < width; done++)
        fputc(' ', p->out);
}

static void put_figure(FILE *out, int width, double value, const char *unit)
{
    char text[32];

    if (!isfinite(value))
        snprintf(text, sizeof(text), "-");
    else
        snprintf(text, sizeof(text),
                 value < 9.995   ? "%.2f%s"
                 : value < 99.95 ? "%.1f%s"
                                 : "%.0f%s",
                 value, unit);
    fprintf(out, " %*s", width - 1, text);
}

static void draw_rank(struct page *p, const struct top_rank *r)
{
    char host[10], text[64];
    size_t i;

    snprintf(host, sizeof(host), "%.8s", r->server ? "server" : r->host);
    for (i = 0; host[i] != '\0'; i++)
        if (host[i] < 0x20 || host[i] > 0x7e)
            host[i] = '?';
    fprintf(p->out, "%4d %-8s ", r->rank, host);
    if (r->lost) { /* others have gone on, so its last figures say nothing about now */
        snprintf(text, sizeof(text), "%s after step %lld", r->removed ? "removed" : "lost",
                 (long long)r->lost_step);
        fprintf(p->out, "%.*s", p->width - NAME, text);
        end_line(p);
        return;
    }
    draw_bar(p, r, p->width - NAME - FIGURES);
    put_figure(p->out, 8, r->rows > 0 ? 1e3 * r->steps_s / (double)r->rows : (double)NAN, "");
    put_figure(p->out, 6, r->cpu_pct, "");
    put_figure(p->out, 7, r->rss_mb, "");
    put_figure(p->out, 7, r->send_mb_s, "");
    put_figure(p->out, 8, r->recv_mb_s, "");
    end_line(p);
}

static int by_slowness(const void *a, const void *b)
{
    const struct top_rank *x = a, *y = b;
    double dx = isfinite(x->busy_ms) ? x->busy_ms : -1;
    double dy = isfinite(y->busy_ms) ? y->busy_ms : -1;

    return dx > dy ? -1 : dx < dy ? 1 : x->rank - y->rank;
}

/* Draws n ranks: in their order if all fit, otherwise the slowest first. */
static void draw_ranks(struct page *p, int n, int scroll)
{
    const struct top *t = p->top;
    struct top_rank *order = calloc((size_t)t->n_ranks + 1, sizeof(*order));
    int i;

    if (order == NULL)
        return;
    if (t->n_ranks > 0)
        memcpy(order, t->ranks, (size_t)t->n_ranks * sizeof(*order));
    if (n < t->n_ranks)
        qsort(order, (size_t)t->n_ranks, sizeof(*order), by_slowness);
    for (i = scroll; i < scroll + n && i < t->n_ranks; i++)
        draw_rank(p, &order[i]);
    free(order);
}

/* Names the letters of the phases that took any time. */
static void draw_legend(struct page *p)
{
    char text[LINE_BYTES] = "";
    size_t len = 0;
    int phase, i;

    for (phase = 0; phase < VB_PHASES; phase++) {
        double s = 0;

        for (i = 0; i < p->top->n_ranks; i++)
            s += p->top->ranks[i].phase_s[phase];
        if (s > 0)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%c %s", len > 0 ? "  " : "",
                                    looks[phase].letter, looks[phase].name);
    }
    line(p, "%s", text);
}

static void draw_head(struct page *p)
{
    set_bold(p, true);
    line(p, "rank host     %-*s %7s %5s %6s %6s %7s", p->width - NAME - FIGURES,
         p->top->whole ? "time of the run" : "time of the last seconds", "ms/step", "cpu %", "MB",
         "MB/s>", "MB/s<");
    set_bold(p, false);
}

/* ---- the screen ------------------------------------------------------------------------------ */

/* Divides the lines that are left between the curve and the ranks. */
static int lines_of_ranks(int left, int n_ranks, int *curve_p)
{
    int ranks = n_ranks < left - CURVE_MIN ? n_ranks : left - CURVE_MIN;
    int curve;

    if (left < 2 * CURVE_MIN) { /* no room for a curve */
        *curve_p = 0;
        return n_ranks < left ? n_ranks : left;
    }
    curve = left - ranks;
    *curve_p = curve < CURVE_MAX ? curve : CURVE_MAX;
    return ranks;
}

static int draw_page(struct page *p)
{
    const struct top *t = p->top;
    int fixed, left, ranks, curve, scroll = p->screen->scroll;

    draw_title(p);
    draw_progress(p);
    draw_notes(p);
    draw_loss(p);
    fixed = p->lines + 4; /* and: the rank waited for, head, legend, keys */
    left = p->screen->height - fixed;
    ranks = lines_of_ranks(left > 1 ? left : 1, t->n_ranks, &curve);
    scroll = scroll > t->n_ranks - ranks ? t->n_ranks - ranks : scroll;
    scroll = scroll > 0 ? scroll : 0;
    if (t->curve.n > 0)
        draw_curve(p, curve);
    draw_waited(p);
    draw_head(p);
    draw_ranks(p, ranks, scroll);
    draw_legend(p);
    if (ranks < t->n_ranks)
        line(p, "ranks %d to %d of %d, the slowest first%s", scroll + 1, scroll + ranks, t->n_ranks,
             p->screen->keys ? "; arrows scroll, q quits" : "");
    else if (p->screen->keys)
        line(p, "q quits   MB: memory   MB/s>: sent   MB/s<: received");
    return scroll;
}

int cli_top_draw(const struct top *top, const struct top_screen *screen, FILE *out)
{
    /* The last column stays empty, because "erase to the end of the line" would erase it. */
    struct page page = {.top = top, .screen = screen, .out = out, .width = screen->width - 1};
    int scroll;

    if (screen->width < WIDTH_MIN || screen->height < HEIGHT_MIN) {
        fprintf(out, "%s%s", screen->lines_only ? "" : "\x1b[H", "too small");
        fprintf(out, "%s", screen->lines_only ? "\n" : "\x1b[J");
        return 0;
    }
    if (page.width < NAME + FIGURES + 8)
        page.width = NAME + FIGURES + 8; /* the terminal cuts what is wider */
    if (!screen->lines_only)
        fprintf(out, "\x1b[?7l\x1b[H");
    scroll = draw_page(&page);
    if (!screen->lines_only)
        fprintf(out, "\x1b[J\x1b[?7h");
    return scroll;
}
