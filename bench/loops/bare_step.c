/* SPDX-License-Identifier: MIT
 *
 * bare_step shm|tcp BYTES US: the shortest step of two ranks, each a process on its own cpu, which
 * computes for US microseconds, in registers only, and has a gradient of BYTES.
 *
 *   compute_us  computing alone, without the other rank
 *   after_us    compute, then exchange (tcp) or sum (shm) the gradient
 *   hidden_us   tcp: send before computing and receive after it, so that only the time that TCP
 *               takes from the cores remains
 *
 * tcp BYTES US NAMESPACE NAMESPACE ADDRESS is as for bare.c. Prints one JSON line; "wrong" counts
 * wrong results.
 */
#include "bench/loops/bare_side.h"
#include "bench/peers/bare.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536 /* the buffers of a socket hold this much, so no sender waits */
#define US_MAX 100000
#define STEPS_NS UINT64_C(50000000) /* duration of consecutive steps of one kind */
#define ROUNDS 9                    /* number of rounds over all kinds */

enum kind { ALONE, AFTER, HIDDEN, KINDS };

struct steps {
    struct bare_side side; /* must be the first member */
    bool tcp;
    double compute_us; /* requested time to compute */
    uint64_t turns;    /* number of turns of the loop that take compute_us */
    int n;             /* number of steps of one kind */
    char *out, *in;    /* used by tcp */
    struct bare bare;  /* used by shm */
    double us[KINDS];
};

/* Computes without using memory. Each turn of the loop depends on the turn before. */
static void compute(uint64_t turns)
{
    volatile float result;
    float x = 0;
    uint64_t i;

    for (i = 0; i < turns; i++)
        x = x * 0.999F + 0.001F;
    result = x; /* without this line the compiler removes the loop */
    (void)result;
}

/* Returns the number of turns that take this many microseconds if nothing interrupts them. */
static uint64_t turns_of(double us)
{
    const uint64_t turns = 20000;
    uint64_t was, ns, least = UINT64_MAX;
    int i;

    for (i = 0; i < 100; i++) {
        was = vb_clock_ns();
        compute(turns);
        ns = vb_clock_ns() - was;
        if (ns > 0 && ns < least)
            least = ns;
    }
    return (uint64_t)(us * 1e3 * (double)turns / (double)least);
}

static void tcp_step(struct steps *s, enum kind kind, uint32_t round)
{
    struct bare_side *side = &s->side;
    bool ok = true;

    bare_stamp(s->out, side->len, round);
    if (kind == HIDDEN)
        ok = bare_move(side, s->out, true, BARE_SPIN);
    compute(s->turns);
    if (kind == AFTER)
        ok = bare_move(side, s->out, true, BARE_SPIN);
    if (kind == ALONE)
        return;
    ok = ok && bare_move(side, s->in, false, BARE_SPIN);
    side->wrong += !ok || !bare_stamped(s->in, side->len, round);
}

static void shm_step(struct steps *s, enum kind kind, uint32_t round)
{
    size_t i, n = s->side.len / sizeof(float);
    float value = (float)(round % 1000), *own = s->bare.peer.data;

    compute(s->turns);
    for (i = 0; i < n; i++)
        own[i] = value;
    atomic_signal_fence(memory_order_seq_cst); /* or the compiler may write only once */
    if (kind == ALONE)
        return;
    bare_shm_allreduce(&s->bare.peer, n);
    s->side.wrong += own[0] != 2 * value || own[n - 1] != 2 * value;
}

static void one_step(struct steps *s, enum kind kind, uint32_t round)
{
    if (s->tcp)
        tcp_step(s, kind, round);
    else
        shm_step(s, kind, round);
}

/* Returns the mean time in us of many consecutive steps. Both sides start together. */
static double time_steps(struct steps *s, enum kind kind)
{
    uint64_t was;
    int i;

    one_step(s, AFTER, 0);
    was = vb_clock_ns();
    for (i = 0; i < s->n; i++)
        one_step(s, kind, (uint32_t)i);
    return (double)(vb_clock_ns() - was) / 1e3 / s->n;
}

/* Both sides run this function. */
static void measure(void *side)
{
    struct steps *s = side;
    int round, kind, kinds = s->tcp ? KINDS : HIDDEN;
    double us[KINDS][ROUNDS];

    s->turns = turns_of(s->compute_us);
    s->n = (int)((double)STEPS_NS / (s->compute_us * 1e3)) + 1;
    for (round = 0; round < ROUNDS; round++)
        for (kind = 0; kind < kinds; kind++)
            us[kind][round] = time_steps(s, kind);
    for (kind = 0; kind < kinds; kind++) {
        vb_sort(us[kind], ROUNDS);
        s->us[kind] = us[kind][ROUNDS / 2];
    }
}

static vb_status run_tcp(struct steps *s)
{
    vb_status st;

    s->out = calloc(1, s->side.len);
    s->in = calloc(1, s->side.len);
    if (s->out == NULL || s->in == NULL)
        st = vb_err_sys("calloc");
    else
        st = bare_run_tcp(&s->side, measure, measure);
    free(s->out);
    free(s->in);
    return st;
}

static void measure_shm(void *side)
{
    struct steps *s = side;

    s->bare.crowded = s->side.crowded;
    s->bare.peer.rank = s->side.which;
    s->bare.peer.data = s->bare.data[s->side.which];
    measure(s);
}

static vb_status print(const struct steps *s)
{
    struct vb_json *json = vb_json_create();
    vb_status st;

    vb_json_object(json, NULL);
    vb_json_text(json, "bench", "bare-step");
    vb_json_text(json, "transport", s->tcp ? "tcp" : "shm");
    vb_json_int(json, "bytes", (int64_t)s->side.len);
    vb_json_real(json, "compute_us", s->us[ALONE]);
    vb_json_real(json, "after_us", s->us[AFTER]);
    if (s->tcp)
        vb_json_real(json, "hidden_us", s->us[HIDDEN]);
    vb_json_int(json, "wrong", s->side.wrong);
    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

static bool parse(struct steps *s, int argc, char **argv)
{
    int64_t len, us;

    if (argc != 4 && argc != 7)
        return false;
    s->tcp = strcmp(argv[1], "tcp") == 0;
    s->side.via = argc == 7 ? argv + 4 : NULL;
    if (!s->tcp && (strcmp(argv[1], "shm") != 0 || s->side.via != NULL))
        return false;
    if (!vb_parse_int(argv[2], &len) || len < 4 || len > BYTES_MAX || len % 4 != 0 ||
        !vb_parse_int(argv[3], &us) || us < 1 || us > US_MAX)
        return false;
    s->side.len = (size_t)len;
    s->compute_us = (double)us;
    return true;
}

int main(int argc, char **argv)
{
    struct steps s = {0};
    vb_status st;

    if (!parse(&s, argc, argv)) {
        fprintf(stderr,
                "usage: bare_step shm|tcp BYTES US [NAMESPACE NAMESPACE ADDRESS]\n"
                "BYTES: whole floats, up to %d; US: up to %d; namespaces: tcp\n",
                BYTES_MAX, US_MAX);
        return 2;
    }
    s.bare.peer.ranks = 2;
    st = s.tcp ? run_tcp(&s) : bare_map(&s.bare, s.side.len);
    if (st == VB_OK && !s.tcp)
        st = bare_run(&s.side, measure_shm, measure_shm);
    if (st != VB_OK || print(&s) != VB_OK)
        return 1;
    return s.side.wrong == 0 ? 0 : 1;
}
