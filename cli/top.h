/* SPDX-License-Identifier: MIT
 *
 * The state of a run as verbena top shows it: top_read.c reads it, top_draw.c and top_curve.c make
 * a screen of it.
 */
#ifndef VB_CLI_TOP_H
#define VB_CLI_TOP_H

#include "base/base.h"
#include "engine/engine.h"

#include <limits.h>

#define TOP_POINTS 1024 /* points of the curve of the loss */

/* A rank. Figures are of the last seconds; of a run that has ended, of the whole run. Those that
 * are not known are NAN. */
struct top_rank {
    int rank;
    bool server;
    char host[64];
    bool removed;              /* the user wanted it to be lost */
    bool lost;                 /* its records end early, and the others have gone on, */
    int64_t lost_step;         /* after this step */
    int64_t step;              /* the last one; 0: none */
    double phase_s[VB_PHASES]; /* time of each phase */
    double phases_s;           /* the sum of all phases */
    double steps_s;            /* the same without evaluation and checkpoints */
    int64_t rows;              /* steps in that time */
    int64_t samples;           /* in that time */
    double late_s;             /* that others waited for this rank in that time */
    double busy_ms;            /* of a step: all phases but transfer, waiting and evaluation */
    double cpu_pct, rss_mb, send_mb_s, recv_mb_s;
};

/* The training loss, as means over so many steps as needed for TOP_POINTS points. */
struct top_curve {
    double mean[TOP_POINTS];
    int n;
    int64_t stride; /* steps of a point */
    double sum;     /* of the point that is not complete */
    int64_t n_sum;
    int64_t next; /* row that is read next */
    int64_t last_step;
    int rank;    /* whose loss it is */
    double last; /* the newest loss; NAN: none */
};

/* The axis of a curve. */
struct top_range {
    double low, high;
    bool log; /* the axis is logarithmic */
};

struct top {
    char dir[PATH_MAX];
    char model[64], mode[16], state[16], why[256], replayed[256], injected[256];
    bool whole;          /* figures are of the whole run */
    bool async, ended;   /* ended: also stopped or failed */
    double silent_s;     /* since the last record of a run that goes on */
    double elapsed_s;    /* since training began, or the time that it took */
    double left_s;       /* NAN: not known */
    int64_t step, steps; /* of the job */
    double steps_per_s, samples_per_s;
    double test_loss, accuracy; /* NAN: there was no evaluation */
    int64_t tested_step;
    int waited_for;       /* rank that was waited for longest; -1: none */
    double waited_ms;     /* per step of the rank that waited longest for it */
    char bottleneck[300]; /* of a run that has ended; "": not known */
    struct top_rank *ranks;
    int n_ranks, room;
    int n_lost; /* of these ranks */
    int lead;   /* the rank whose steps are those of the job */
    struct top_curve curve;
};

/* Checks that dir is a run folder, and begins to read it. The caller calls top_close() in any case.
 */
vb_status cli_top_open(const char *dir, struct top *top);
vb_status cli_top_read(struct top *top); /* reads what is new */
void cli_top_close(struct top *top);

/* Reads what run.json tells of a run from its beginning on. */
vb_status cli_top_head(struct top *top, const struct vb_json *json);

/* Reads which ranks there are, and clears their figures (top_ranks.c). */
vb_status cli_top_read_ranks(struct top *top, const struct vb_json *json);

/* Notes which of them are lost. */
void cli_top_read_lost(struct top *top, const struct vb_json *json);

/* Returns NULL if there is no such rank. Ranks are in order, but servers that are threads of a rank
 * have numbers, too, and are not among them. */
struct top_rank *cli_top_rank(const struct top *top, int rank);

/* A screen. */
struct top_screen {
    int width, height;
    bool colour, unicode;
    int scroll;      /* ranks that are scrolled over */
    bool keys;       /* keys are read, so the last line names them */
    bool lines_only; /* no escape sequence moves the cursor: the screen is printed once */
};

/* Writes the screen. Returns how far it is scrolled, at most as far as there are ranks. */
int cli_top_draw(const struct top *top, const struct top_screen *screen, FILE *out);

/* Writes one row of cells of a curve: row 0 is the highest of `height`. */
void cli_top_curve(const struct top_curve *curve, const struct top_range *range, int width,
                   int height, int row, bool unicode, FILE *out);
/* Returns the range of a curve that is drawn with so many columns of dots. */
struct top_range cli_top_curve_range(const struct top_curve *curve, int columns);

/* Adds a loss to the curve. */
void cli_top_curve_add(struct top_curve *curve, double loss);

#endif
