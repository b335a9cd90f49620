/* SPDX-License-Identifier: MIT
 *
 * Tells TensorBoard which hyper-parameters and results the table of a sweep has. The runs write
 * their values themselves (record/board/board.c).
 */
#include "cli/sweep/cmd_sweep.h"
#include "record/record.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const metrics[] = {"accuracy",        "test_loss",       "loss",
                                      "samples_per_sec", "global_step/sec", "noise_scale"};
static const char *const always[] = {"mode", "ranks", "batch", "global_batch", "lr"};

struct table {
    struct vb_board_param params[SWEEP_AXES + VB_COUNT(always)];
    int n;
    struct vb_events events;
    unsigned char bytes[VB_EVENT_BYTES];
    bool written;
};

/* A parameter has the type that it has in the runs. */
static void add(struct table *t, const char *option)
{
    struct vb_board_param *p = &t->params[t->n];
    char *c;
    int i;

    snprintf(p->name, sizeof(p->name), "%s", option);
    for (c = p->name; *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
    if (strcmp(option, "mode") == 0 || strcmp(option, "transport") == 0 ||
        strcmp(option, "staleness") == 0 || strcmp(option, "link") == 0)
        snprintf(p->text, sizeof(p->text), "text");
    for (i = 0; i < t->n; i++)
        if (strcmp(t->params[i].name, p->name) == 0)
            return;
    t->n++;
}

/* Only the recorder's thread may write events. */
static void write_once(void *arg, uint64_t now_ns, bool last)
{
    struct table *t = arg;

    (void)now_ns;
    (void)last;
    if (!t->written)
        vb_board_experiment(&t->events, (double)time(NULL), t->params, t->n, metrics,
                            VB_COUNT(metrics));
    t->written = true;
}

vb_status cli_sweep_board(const struct sweep *s)
{
    struct vb_recorder_opts opts = {.dir = s->dir, .append = true, .rank = -1};
    struct vb_recorder *rec = NULL;
    struct table *t = calloc(1, sizeof(*t));
    vb_status st;
    size_t i;

    if (t == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < SWEEP_AXES; i++)
        if (s->plan.lists[i].n > 0)
            add(t, cli_sweep_axes[i]);
    for (i = 0; i < VB_COUNT(always); i++)
        add(t, always[i]);
    st = vb_recorder_open(&opts, &rec);
    if (st != VB_OK) {
        free(t);
        return st;
    }
    vb_events_init(&t->events, rec, "", 0, t->bytes);
    st = vb_recorder_own(rec, free, t);
    if (st != VB_OK)
        free(t);
    else
        st = vb_recorder_tick(rec, write_once, t);
    if (st == VB_OK)
        st = vb_recorder_start(rec);
    (void)vb_recorder_close(rec);
    return st;
}
