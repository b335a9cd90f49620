/* SPDX-License-Identifier: MIT
 *
 * The points of the job, and when points are due. All of it runs on the recorder's thread, except
 * for the histograms, which the training thread counts and hands over.
 */
#include "record/board/board_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define POINT_NS UINT64_C(50000000) /* time between two points of the loss, or one step */
#define LEAST_S 0.05 /* time of training behind a point: a single fast step tells no rate */
#define SAMPLE_MAX ((size_t)1 << 20) /* numbers of a tensor that are counted */
#define SAMPLE_BLOCK ((size_t)256)
#define QUIET_POINTS 20 /* a rank without steps for so many points is gone */

static const char *const metrics[] = {"accuracy",        "test_loss",       "loss",
                                      "samples_per_sec", "global_step/sec", "noise_scale"};

/* The training thread owns the histograms while full is false, the recorder's thread while it is
 * true. */
struct handed {
    atomic_bool full;
    int64_t step;
    uint64_t at_ns;
    struct vb_histogram *h; /* (2 * n_tensors) first of weights, then of gradients */
};

struct vb_board {
    double wall_s; /* the time on the wall when the clock was 0; a clock that is set later does
                      not bend the curves */
    uint64_t begin_ns, read_ns;      /* when it began; the last tick */
    uint64_t point_ns, staleness_ns; /* when the next points are due */
    atomic_bool done;
    bool described;
    bool asleep; /* another rank has the board that is written */
    int lead;    /* the rank whose steps are those of the job */
    struct vb_recorder *rec;
    struct vb_events events;
    struct vb_follow evals;
    struct board_rank *ranks;
    int *quiet; /* (n_ranks) points since the rank's last one */
    int n_ranks, workers;
    int64_t points;      /* number of points so far */
    int64_t row, stride; /* of the loss in this tick: one row of stride is shown */
    float grad_norm;     /* the last one measured; NAN: none since the last point */
    bool has_norm;       /* steps have norms */
    float noise_scale;   /* as grad_norm */
    struct vb_board_param *params;
    int n_params;
    struct vb_proto graph;
    struct vb_board_tensor *tensors;
    int n_tensors;
    struct handed handed;
    unsigned char bytes[VB_EVENT_BYTES];
};

/* ---- histograms ------------------------------------------------------------------------------ */

bool vb_board_begin(struct vb_board *b, int64_t step)
{
    int i;

    /* Pairs with the release in show_histograms(): they have been written. */
    if (b->n_tensors == 0 || atomic_load_explicit(&b->handed.full, memory_order_acquire))
        return false;
    for (i = 0; i < 2 * b->n_tensors; i++)
        vb_histogram_clear(&b->handed.h[i]);
    b->handed.step = step;
    return true;
}

void vb_board_count_list(struct vb_board *b, enum vb_board_what what, int tensor,
                         const float *values, size_t n, float scale)
{
    vb_histogram_add(&b->handed.h[(int)what * b->n_tensors + tensor], values, n, scale);
}

/* A large tensor is sampled, because the other ranks wait for this one: one of `gap` blocks is
 * counted. */
static void count_tensor(struct vb_histogram *h, const float *values, size_t n, float scale)
{
    size_t gap = n / SAMPLE_MAX + 1, step = SAMPLE_BLOCK * gap, at;

    if (gap == 1)
        step = n;
    for (at = 0; at < n; at += step)
        vb_histogram_add(h, values + at,
                         gap == 1                ? n
                         : n - at < SAMPLE_BLOCK ? n - at
                                                 : SAMPLE_BLOCK,
                         scale);
}

void vb_board_count(struct vb_board *b, enum vb_board_what what, const float *values, float scale)
{
    int i;

    for (i = 0; i < b->n_tensors; i++)
        count_tensor(&b->handed.h[(int)what * b->n_tensors + i], values + b->tensors[i].first,
                     b->tensors[i].n, scale);
}

void vb_board_end(struct vb_board *b)
{
    b->handed.at_ns = vb_record_clock_ns();
    atomic_store_explicit(&b->handed.full, true, memory_order_release);
}

/* Steps that add to the parameters directly have no norm. Then the gradients that were counted at
 * an evaluation give it. */
static void show_norm(struct vb_board *b, const struct handed *handed)
{
    double squares = 0;
    uint64_t n = 0;
    int i;

    for (i = b->n_tensors; i < 2 * b->n_tensors; i++) {
        squares += handed->h[i].squares;
        n += handed->h[i].n;
    }
    if (b->has_norm || n == 0)
        return;
    vb_events_begin(&b->events, b->wall_s + (double)handed->at_ns / 1e9, handed->step);
    vb_events_scalar(&b->events, "gradient_norm", sqrt(squares));
    (void)vb_events_end(&b->events);
}

/* One record a tensor, so that the size of a record has a bound. */
static void show_histograms(struct vb_board *b)
{
    struct handed *handed = &b->handed;
    char tag[80];
    int i;

    /* Pairs with the release in vb_board_end(). */
    if (!atomic_load_explicit(&handed->full, memory_order_acquire))
        return;
    for (i = 0; i < 2 * b->n_tensors; i++) {
        snprintf(tag, sizeof(tag), "%s/%s", i < b->n_tensors ? "weights" : "gradients",
                 b->tensors[i % b->n_tensors].name);
        vb_events_begin(&b->events, b->wall_s + (double)handed->at_ns / 1e9, handed->step);
        vb_events_histogram(&b->events, tag, &handed->h[i]);
        (void)vb_events_end(&b->events);
    }
    show_norm(b, handed);
    atomic_store_explicit(&handed->full, false, memory_order_release);
}

/* ---- scalars --------------------------------------------------------------------------------- */

/* A board_row_fn for the rank that leads: shows the loss of every step, or of some of them if steps
 * are fast.
 */
static void show_loss(void *arg, const struct vb_step_row *row, int64_t left)
{
    struct vb_board *b = arg;

    if (!isnan(row->grad_norm)) {
        b->grad_norm = row->grad_norm;
        b->has_norm = true;
    }
    if (!isnan(row->noise_scale))
        b->noise_scale = row->noise_scale;
    if (b->row++ % b->stride != 0 && left > 0)
        return;
    vb_events_begin(&b->events, b->wall_s + (double)row->end_ns / 1e9, (int64_t)row->step);
    vb_events_scalar(&b->events, "loss", (double)row->loss);
    (void)vb_events_end(&b->events);
}

static void read_ranks(struct vb_board *b, uint64_t now_ns)
{
    int64_t points = (int64_t)((now_ns - b->read_ns) / POINT_NS) + 1;
    int64_t rows = vb_follow_left(&b->ranks[b->lead].steps);
    int r;

    b->read_ns = now_ns;
    b->row = 0;
    b->stride = rows > points ? rows / points : 1;
    for (r = 0; r < b->n_ranks; r++)
        vb_board_rank_read(&b->ranks[r], now_ns, r == b->lead ? show_loss : NULL, b);
}

static void show_evals(struct vb_board *b)
{
    struct vb_eval_row row;

    for (; vb_follow_left(&b->evals) > 0 && vb_follow_next(&b->evals, &row);) {
        vb_events_begin(&b->events, b->wall_s + (double)row.end_ns / 1e9, (int64_t)row.step);
        vb_events_scalar(&b->events, "accuracy", row.accuracy);
        vb_events_scalar(&b->events, "test_loss", row.loss);
        (void)vb_events_end(&b->events);
    }
}

/* Returns the samples of all ranks; 0: not all ranks have begun. */
static double samples_per_s(const struct vb_board *b)
{
    double sum = 0;
    int r, n = 0;

    for (r = 0; r < b->n_ranks; r++)
        if (b->quiet[r] < QUIET_POINTS && b->ranks[r].samples_per_s > 0) {
            sum += b->ranks[r].samples_per_s;
            n++;
        }
    return n >= b->workers || b->points > QUIET_POINTS ? sum : 0;
}

/* Rates are of training alone: evaluations and checkpoints do not count. sum: of the rank that
 * leads. */
static void show_job(struct vb_board *b, const struct board_sum *sum)
{
    const struct vb_step_row *row = &b->ranks[b->lead].last;
    double seconds = vb_board_train_s(sum);

    if (sum->steps == 0)
        return;
    vb_events_begin(&b->events, b->wall_s + (double)row->end_ns / 1e9, (int64_t)row->step);
    if (seconds >= LEAST_S || (b->points == 1 && seconds > 0))
        vb_events_scalar(&b->events, "global_step/sec",
                         (double)(row->step - sum->first_step) / seconds);
    if (seconds >= LEAST_S && samples_per_s(b) > 0)
        vb_events_scalar(&b->events, "samples_per_sec", samples_per_s(b));
    if (!isnan(row->lr))
        vb_events_scalar(&b->events, "learning_rate", (double)row->lr);
    if (!isnan(b->grad_norm))
        vb_events_scalar(&b->events, "gradient_norm", (double)b->grad_norm);
    if (!isnan(b->noise_scale))
        vb_events_scalar(&b->events, "noise_scale", (double)b->noise_scale);
    b->grad_norm = b->noise_scale = NAN;
    (void)vb_events_end(&b->events);
}

/* Points of a short run are dense, those of a long run a second apart: a hundred at least. */
static uint64_t next_ns(const struct vb_board *b, uint64_t now_ns, uint64_t least_ns)
{
    uint64_t gap_ns = (now_ns - b->begin_ns) / 100;

    if (gap_ns > 1000000000u)
        gap_ns = 1000000000u;
    return now_ns + (gap_ns > least_ns ? gap_ns : least_ns);
}

static void show_points(struct vb_board *b, uint64_t now_ns, bool last)
{
    struct board_sum sum = b->ranks[b->lead].sum;
    int r;

    if (last || (now_ns >= b->point_ns && vb_board_train_s(&sum) >= LEAST_S)) {
        b->point_ns = next_ns(b, now_ns, 0);
        b->points += sum.steps > 0;
        for (r = 0; r < b->n_ranks; r++) {
            b->quiet[r]++;
            if (vb_board_rank_show(&b->ranks[r], b->wall_s, (int64_t)b->ranks[b->lead].last.step))
                b->quiet[r] = 0;
        }
        show_job(b, &sum);
    }
    if (now_ns >= b->staleness_ns || last) {
        b->staleness_ns = next_ns(b, now_ns, UINT64_C(500000000));
        for (r = 0; r < b->n_ranks; r++)
            vb_board_rank_show_staleness(&b->ranks[r], b->wall_s);
    }
}

/* ---- the tick -------------------------------------------------------------------------------- */

static void describe(struct vb_board *b)
{
    double wall_s = b->wall_s + (double)b->begin_ns / 1e9;

    vb_board_experiment(&b->events, wall_s, b->params, b->n_params, metrics, VB_COUNT(metrics));
    vb_board_session_begin(&b->events, wall_s, b->params, b->n_params);
    if (b->graph.bytes != NULL)
        (void)vb_events_graph(&b->events, wall_s, &b->graph);
    b->described = true;
}

static void end_session(struct vb_board *b, uint64_t now_ns)
{
    uint64_t lost = b->events.lost;
    int r;

    vb_board_session_end(&b->events, b->wall_s + (double)now_ns / 1e9,
                         atomic_load(&b->done) ? VB_BOARD_SUCCESS : VB_BOARD_FAILURE);
    for (r = 0; r < b->n_ranks; r++)
        lost += b->ranks[r].events.lost;
    if (lost > 0)
        VB_LOG_WARN("%" PRIu64 " records for TensorBoard could not be written", lost);
}

static void tick(void *arg, uint64_t now_ns, bool last)
{
    struct vb_board *b = arg;

    if (b->asleep)
        return;
    if (!b->described)
        describe(b);
    read_ranks(b, now_ns);
    show_evals(b);
    show_histograms(b);
    show_points(b, now_ns, last);
    if (last)
        end_session(b, now_ns);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void destroy(void *arg)
{
    struct vb_board *b = arg;
    int r;

    for (r = 0; r < b->n_ranks; r++)
        vb_board_rank_close(&b->ranks[r]);
    vb_follow_close(&b->evals);
    free(b->ranks);
    free(b->quiet);
    free(b->params);
    free(b->graph.bytes);
    free(b->tensors);
    free(b->handed.h);
    free(b);
}

static void *copy(const void *from, size_t n, size_t size, bool *ok)
{
    void *to = calloc(n + 1, size);

    *ok = *ok && to != NULL;
    if (to != NULL && n > 0)
        memcpy(to, from, n * size);
    return to;
}

static bool copy_opts(struct vb_board *b, const struct vb_board_opts *o)
{
    bool ok = true;

    b->n_params = o->n_params;
    b->params = copy(o->params, (size_t)o->n_params, sizeof(*o->params), &ok);
    b->n_tensors = o->n_tensors;
    b->tensors = copy(o->tensors, (size_t)o->n_tensors, sizeof(*o->tensors), &ok);
    if (o->graph != NULL) {
        b->graph = *o->graph;
        b->graph.bytes = copy(o->graph->bytes, o->graph->len, 1, &ok);
    }
    b->ranks = calloc((size_t)o->ranks, sizeof(*b->ranks));
    b->quiet = calloc((size_t)o->ranks, sizeof(*b->quiet));
    b->handed.h = calloc(2 * (size_t)o->n_tensors + 1, sizeof(*b->handed.h));
    return ok && b->ranks != NULL && b->quiet != NULL && b->handed.h != NULL;
}

static void fill(struct vb_board *b, const struct vb_board_opts *o)
{
    struct timespec wall;
    int r;

    b->begin_ns = b->read_ns = vb_record_clock_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    b->wall_s = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9 - (double)b->begin_ns / 1e9;
    b->grad_norm = b->noise_scale = NAN;
    vb_events_init(&b->events, o->rec, "", o->append ? o->resumed + 1 : 0, b->bytes);
    vb_follow_init(&b->evals, o->dir, "evals.bin", &vb_kind_evals, o->append);
    for (r = 0; r < o->ranks; r++)
        vb_board_rank_init(&b->ranks[r], o, r, b->bytes);
    b->n_ranks = o->ranks;
    b->workers = o->workers;
    b->asleep = o->asleep;
    b->rec = o->rec;
}

vb_status vb_board_open(const struct vb_board_opts *o, struct vb_board **board_p)
{
    struct vb_board *b = calloc(1, sizeof(*b));
    vb_status st;

    if (b == NULL)
        return vb_err_sys("calloc");
    if (!copy_opts(b, o)) {
        destroy(b);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the curves of %d ranks", o->ranks);
    }
    fill(b, o);
    st = vb_recorder_own(o->rec, destroy, b);
    if (st != VB_OK) {
        destroy(b);
        return st;
    }
    st = vb_recorder_after(o->rec, tick, b);
    if (st == VB_OK)
        *board_p = b;
    return st;
}

/* ---- when ranks are lost --------------------------------------------------------------------- */

/* The files get names of now: readers take the newest name for the continuation of the others. */
void vb_board_lead(struct vb_board *b, int lead, int64_t step, bool fresh)
{
    int r;

    if (!b->asleep || lead >= b->n_ranks)
        return;
    b->asleep = false;
    b->lead = lead;
    b->described = !fresh;
    b->points = QUIET_POINTS + 1; /* nobody waits for ranks that are gone */
    b->read_ns = vb_record_clock_ns();
    vb_events_init(&b->events, b->rec, "", fresh ? 0 : step + 1, b->bytes);
    b->evals.next += vb_follow_left(&b->evals); /* those before have shown what they have written */
    for (r = 0; r < b->n_ranks; r++)
        vb_board_rank_again(&b->ranks[r], b->rec, step, r == lead);
}

void vb_board_lost(struct vb_board *b, int rank)
{
    if (rank >= 0 && rank < b->n_ranks)
        b->quiet[rank] = QUIET_POINTS;
}

void vb_board_done(struct vb_board *b)
{
    atomic_store(&b->done, true);
}
