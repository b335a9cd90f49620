/* SPDX-License-Identifier: MIT
 *
 * verbena report: runs are read and thinned (report_read.c, report_rank.c, report_trace.c), become
 * figures and tables, and these a page and files (report_page.c, report_files.c).
 */
#ifndef VB_CLI_REPORT_CMD_REPORT_H
#define VB_CLI_REPORT_CMD_REPORT_H

#include "cli/cli.h"
#include "cli/top.h"
#include "record/record.h"

#define REPORT_RUNS 16    /* maximum number of runs in a report */
#define REPORT_RANKS 8    /* ranks of a run that are drawn */
#define REPORT_PORTS 4    /* interfaces of a rank's host that are drawn */
#define REPORT_FINE 480   /* points of a curve */
#define REPORT_COARSE 120 /* points of means */
#define REPORT_TABS 12    /* forms of a figure */
#define REPORT_FIGURES 24
#define REPORT_TABLES 32
#define REPORT_EVENTS 12000 /* pieces of the time line */
#define REPORT_TRACKS 64

/* ---- runs ------------------------------------------------------------------------------------ */

enum {
    STEP_STEP,
    STEP_TIME, /* s since training began, by the clock of rank 0 */
    STEP_LOSS,
    STEP_STALE,
    STEP_SECONDS, /* without evaluation and checkpoint */
    STEP_PHASE,   /* s; VB_PHASES columns */
    STEP_COLS = STEP_PHASE + VB_PHASES,
};

enum { USE_TIME, USE_CPU, USE_MB, USE_SEND, USE_RECV, USE_READ, USE_WRITE, USE_COLS };

/* An interface of a host. */
struct report_port {
    char name[64];
    struct vb_thin rows; /* USE_TIME, USE_SEND, USE_RECV; others are not filled in */
};

struct report_rank {
    int rank;
    bool server;
    char host[64];
    int64_t n_steps;
    int64_t bad_losses; /* that are not finite */
    int64_t first_bad;  /* step of the first one */
    struct vb_thin fine, coarse;
    struct vb_thin usage, machine; /* of the process; of the host, if the rank samples it */
    struct report_port ports[REPORT_PORTS];
    int n_ports;
};

struct report_eval {
    double step, time_s, loss, accuracy;
};

struct report_run {
    struct top top; /* what verbena top reads: state, ranks */
    struct vb_json *json;
    char label[72];
    double steps_per_epoch; /* NAN: not known */
    double start_ns;
    struct report_rank ranks[REPORT_RANKS];
    int n_ranks;
    int lead; /* index of the rank whose steps are those of the job */
    struct cli_lost *lost;
    int n_lost;
    struct report_eval *evals;
    int n_evals;
    struct vb_thin rate; /* asynchronous: USE_TIME, and steps/s of the job in USE_CPU */
    char gaps[8][160];   /* what could not be read */
    int n_gaps;
};

vb_status report_open(struct report_run *run, const char *dir);
void report_close(struct report_run *run);

/* Notes that something could not be read. */
void report_gap(struct report_run *run, const char *fmt, ...) VB_PRINTF(2, 3);

/* Reads the series of a rank (report_rank.c). */
vb_status report_read_rank(struct report_run *run, struct report_rank *r);

/* Corrects times of a rank to seconds since training began (report_clock.c). */
struct report_clock {
    struct vb_clock_fit fit;
    double start_ns;
    double shift_ns; /* added if nothing else is known about this clock */
    bool known;
    int64_t used; /* how often; the offset is looked up now and then */
    double offset_ns;
};

void report_clock_init(struct report_clock *clock, const struct report_run *run, int rank);
double report_clock_s(struct report_clock *clock, double local_ns);

/* Return a figure of the run's result, or of one of its options; NAN and NULL if there is none. */
double report_real(const struct report_run *run, const char *keys);
const char *report_text(const struct report_run *run, const char *keys);
const char *report_option(const struct report_run *run, const char *name);

/* ---- time line ------------------------------------------------------------------------------- */

struct report_piece {
    double begin_us, us;
    int track, depth, name;
};

struct report_track {
    char name[96];
    int depths; /* calls inside calls */
};

struct report_name {
    char text[80];
    int look;
    int64_t calls;
    double ms;
};

struct report_timeline {
    struct report_piece *pieces;
    int n, room;
    struct report_track tracks[REPORT_TRACKS];
    int n_tracks;
    struct report_name *names;
    int n_names, names_room;
    double end_us;
    int64_t left_out; /* the shortest pieces */
    int64_t lost;     /* events that the run could not keep */
    const char *label;
};

vb_status report_trace(struct report_run *run, struct report_timeline *line);
void report_trace_free(struct report_timeline *line);
void report_trace_json(const struct report_timeline *line, FILE *out);
void report_trace_svg(const struct report_timeline *line, FILE *out);
void report_trace_gnuplot(const struct report_timeline *line, const char *png, FILE *out);
struct vb_table *report_trace_table(const struct report_timeline *line);

/* ---- the report ------------------------------------------------------------------------------ */

enum report_section {
    REPORT_COMPARE,
    REPORT_VERDICT,
    REPORT_LEARNING,
    REPORT_TIME,
    REPORT_TRACE,
    REPORT_USE,
    REPORT_MACHINE,
    REPORT_SECTIONS,
};

struct report_figure {
    enum report_section section;
    char id[40], title[96], note[512];
    struct vb_plot *plots[REPORT_TABS];
    char tabs[REPORT_TABS][72];
    int n;
};

struct report {
    struct report_run *runs[REPORT_RUNS];
    int n_runs;
    struct report_figure figures[REPORT_FIGURES];
    int n_figures;
    struct {
        enum report_section section;
        struct vb_table *table;
        bool folded; /* shown when asked for */
    } tables[REPORT_TABLES];
    int n_tables;
    struct report_timeline line;
    const char *bench; /* file of --bench; NULL: none */
};

/* Adds a figure. report_add_plot() takes the plot over, and drops one without points. Returns NULL
 * if there is no room. */
struct report_figure *report_add_figure(struct report *report, enum report_section section,
                                        const char *id, const char *title);
void report_add_plot(struct report_figure *figure, struct vb_plot *plot, const char *tab);
void report_note(struct report_figure *figure, const char *fmt, ...) VB_PRINTF(2, 3);

/* Takes a table over, and drops one without rows. */
void report_add_table(struct report *report, enum report_section section, struct vb_table *table,
                      bool folded);

/* Make figures and tables of runs. */
void report_curves(struct report *report);  /* loss, accuracy, steps/s, staleness */
void report_phases(struct report *report);  /* phases, transfer against compute */
void report_usage(struct report *report);   /* CPU, memory, network, disk */
void report_scaling(struct report *report); /* several runs: speed-up, batches */
void report_compare(struct report *report); /* several runs: differences */
void report_tables(struct report *report);
vb_status report_bench(struct report *report); /* the points of --bench */

/* The verdict of a run in two sentences. */
struct report_verdict {
    char first[700], second[500];
};

void report_verdict(const struct report_run *run, struct report_verdict *verdict_p);

/* Ranks that were lost while others went on (report_lost.c): reads them, marks them in a plot,
 * writes a sentence about the i-th (false: there is none), fills in and adds the table. */
enum report_axis { REPORT_BY_STEP, REPORT_BY_EPOCH, REPORT_BY_TIME };
void report_read_lost(struct report_run *run);
void report_mark_lost(const struct report *report, struct vb_plot *plot, enum report_axis axis);
bool report_lost_sentence(const struct report_run *run, int i, char *text, size_t size);
void report_lost(struct report *report, struct vb_table *table);
void report_json_lost(struct vb_json *json, const struct report_run *run);

/* ---- output ---------------------------------------------------------------------------------- */

/* Where a report goes. Folders are relative to the page. */
struct report_out {
    char page[PATH_MAX];
    char folder[PATH_MAX];                  /* of the page */
    char plots[NAME_MAX], tables[NAME_MAX]; /* names of folders */
    int n_svg, n_png, n_csv;
    char no_png[160]; /* why there is no PNG; "": there is */
    size_t page_bytes;
};

vb_status report_out_init(struct report_out *out, const char *path, const struct report *report);
vb_status report_write_files(const struct report *report, struct report_out *out, bool png);
vb_status report_write_page(const struct report *report, struct report_out *out);

/* The style sheet and the script of the page: page.css and page.js. */
extern const unsigned char report_css[], report_js[];
extern const size_t report_css_bytes, report_js_bytes;

#endif
