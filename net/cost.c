/* SPDX-License-Identifier: MIT
 *
 * Which algorithm an allreduce takes: the one that a model predicts to be the fastest.
 *
 * The model has a few figures, measured when the collectives are opened, by all ranks at once so
 * that they get in each other's way as they will later:
 *
 *   latency   an operation of puts in which nothing is to be done: a barrier
 *   byte      every rank sends segments to the next one and gets as many from the previous: what a
 *             byte costs to send while one is received
 *   post      the same with bare notes
 *   sum       what a byte of a source costs to add
 *   flag      a mapped allreduce of one element, byte_mapped one of many
 *
 * Between ranks that are not mapped, latency and byte are then fitted to two allreduces, a small
 * one and a large one.
 *
 * "The next one" is on another host if there are several. Rank 0's figures count. It predicts all
 * algorithms for sizes in half octaves, takes the cheapest of those that are possible, and sends
 * the table to all: no rank chooses alone.
 */
#include "net/coll_priv.h"

#include <stdlib.h>
#include <string.h>

#define CLASSES 96 /* of sizes: two an octave */
#define ROUNDS 32  /* of a measurement */
#define BULKS 3
#define MAPPED_BYTES ((size_t)256 * 1024)
#define SUM_BYTES ((size_t)64 * 1024)
#define FIT_BYTES ((size_t)512 * 1024) /* of an allreduce that the model is fitted to */
#define FIT_OPS 8                      /* small ones in a batch */
#define FIT_BULKS 2                    /* large ones */

/* In us, and us a byte. */
struct model {
    double latency, post, byte, sum, flag, byte_mapped;
    uint64_t eager_bytes;
    unsigned char choice[CLASSES];
};

static const char *const algo_names[VB_ALGOS] = {"auto",  "mapped", "gather",  "exchange",
                                                 "chain", "ring",   "halving", "two-level"};

const char *vb_algo_str(enum vb_algo algo)
{
    return (int)algo >= 0 && algo < VB_ALGOS ? algo_names[algo] : "none";
}

bool vb_algo_parse(const char *text, enum vb_algo *algo_p)
{
    int i;

    for (i = 0; i < VB_ALGOS; i++)
        if (strcmp(text, algo_names[i]) == 0) {
            *algo_p = (enum vb_algo)i;
            return true;
        }
    return false;
}

const char *coll_cannot(const struct vb_coll *coll, enum vb_algo algo)
{
    if (algo == VB_ALGO_MAPPED && !coll->all_mapped)
        return "not all ranks share memory";
    if (algo >= VB_ALGO_RING && coll->opts.order != VB_ORDER_ANY)
        return "it does not sum in rank order";
    if (algo >= VB_ALGO_CHAIN && is_narrow(coll))
        return "it sends partial sums, which are not to be rounded to bfloat16";
    if ((algo == VB_ALGO_CHAIN || algo == VB_ALGO_TWO_LEVEL) && !coll->contiguous)
        return "the ranks of a host do not follow each other";
    return NULL;
}

bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo)
{
    return coll_cannot(coll, algo) == NULL;
}

/* A gather's vector must fit a slot. */
static bool fits(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    size_t room = coll->slot_bytes - sizeof(struct slot_head);

    return algo != VB_ALGO_GATHER || (is_narrow(coll) ? bytes / 2 : bytes) <= room;
}

/* ---- what each algorithm costs --------------------------------------------------------------- */

static double log2_up(int n)
{
    int k = 0;

    while (1 << k < n)
        k++;
    return k;
}

/* n: bytes of float32; wire: bytes as they travel. */
struct job {
    double n, wire;
    double world, others, hosts, local, segs, seg_wire;
};

static struct job job_of(const struct vb_coll *coll, size_t bytes)
{
    struct job j = {.n = (double)bytes, .world = coll->world, .others = coll->world - 1};
    double seg = (double)coll->seg_bytes < j.n ? (double)coll->seg_bytes : j.n;

    j.wire = is_narrow(coll) ? j.n / 2 : j.n;
    j.hosts = coll->n_leaders;
    j.local = j.world / j.hosts;
    j.segs = bytes > 0 ? (double)segments(coll, bytes) : 1;
    j.seg_wire = is_narrow(coll) ? seg / 2 : seg;
    return j;
}

static double mapped_us(const struct model *m, const struct job *j)
{
    if (j->n <= (double)m->eager_bytes)
        return m->flag + j->world * j->n * m->sum;
    return 2 * m->flag + j->n * m->byte_mapped;
}

/* HERE to all, one message each way, a sum of all vectors. */
static double gather_us(const struct model *m, const struct job *j)
{
    return m->latency + j->others * (m->post + j->wire * m->byte) + j->world * j->n * m->sum;
}

/* Parts to all, then results to all; the last segment is summed when it has come, and goes back:
 * that much is not hidden behind the rest. */
static double shares_us(const struct model *m, const struct job *j, double ranks)
{
    double each = j->segs / ranks > 1 ? j->segs / ranks : 1, last = j->wire / ranks;

    if (last > j->seg_wire)
        last = j->seg_wire;
    return 2 * m->latency + (1 + 2 * each) * (ranks - 1) * m->post +
           2 * (ranks - 1) / ranks * j->wire * m->byte + last * m->byte + j->n * m->sum;
}

/* Up and down through all hosts, segments behind each other. */
static double chain_us(const struct model *m, const struct job *j)
{
    double hop = m->latency + m->post + j->seg_wire * m->byte;

    return (j->local > 1 ? 2 * m->latency : 0) + j->others * m->post + 2 * (j->hosts - 1) * hop +
           (j->hosts > 1 ? 2 * j->wire * m->byte : 0) + (j->local + 1) * j->n * m->sum +
           (j->local - 1) * j->n * m->sum;
}

static double ring_us(const struct model *m, const struct job *j)
{
    return j->others * m->post + 2 * j->others * (m->latency + m->post) +
           2 * j->others / j->world * j->wire * m->byte + 2 * j->n * m->sum;
}

static double halving_us(const struct model *m, const struct job *j, int world)
{
    double levels = log2_up(world), fold = 0;

    if ((world & (world - 1)) != 0) { /* those that are folded send all and get all */
        levels--;
        fold = 2 * (m->latency + m->post + j->wire * m->byte) + j->n * m->sum;
    }
    return j->others * m->post + fold + 2 * levels * (m->latency + m->post) +
           2 * j->others / j->world * j->wire * m->byte + 2 * j->n * m->sum;
}

static double two_level_us(const struct model *m, const struct job *j)
{
    double between = j->hosts > 1 ? shares_us(m, j, j->hosts) : 0;

    return j->others * m->post + between + 2 * m->latency + 2 * j->local * j->n * m->sum;
}

double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    const struct model *m = coll->model;
    struct job j = job_of(coll, bytes);

    switch (algo) {
    case VB_ALGO_AUTO:
        return vb_coll_predict_us(coll, vb_coll_algo(coll, bytes), bytes);
    case VB_ALGO_MAPPED:
        return mapped_us(m, &j);
    case VB_ALGO_GATHER:
        return gather_us(m, &j);
    case VB_ALGO_EXCHANGE:
        return shares_us(m, &j, j.world);
    case VB_ALGO_CHAIN:
        return chain_us(m, &j);
    case VB_ALGO_RING:
        return ring_us(m, &j);
    case VB_ALGO_HALVING:
        return halving_us(m, &j, coll->world);
    case VB_ALGO_TWO_LEVEL:
        return two_level_us(m, &j);
    case VB_ALGOS:
        break;
    }
    return 0;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Two classes an octave: by the highest bit and the one below it. */
static int class_of(size_t bytes)
{
    int k = 0;

    while (bytes >> (k + 1) > 0)
        k++;
    k = 2 * k + (k > 0 && (bytes >> (k - 1) & 1) != 0);
    return k < CLASSES ? k : CLASSES - 1;
}

static size_t class_bytes(int class)
{
    size_t low = (size_t)1 << class / 2;

    return class % 2 == 0 ? low + low / 4 : low + low / 2 + low / 4; /* its middle */
}

enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes)
{
    enum vb_algo algo = coll->opts.algo;

    if (algo == VB_ALGO_AUTO)
        algo = (enum vb_algo)coll->model->choice[class_of(bytes)];
    return fits(coll, algo, bytes) ? algo : VB_ALGO_EXCHANGE;
}

/* Over shared memory, puts are mapped's copies and flags and more: it wins at every size, whatever
 * a measurement says that another job has disturbed. */
static enum vb_algo cheapest(const struct vb_coll *coll, size_t bytes)
{
    enum vb_algo best = VB_ALGO_EXCHANGE;
    double us, best_us = vb_coll_predict_us(coll, best, bytes);
    int a;

    if (coll->all_mapped)
        return VB_ALGO_MAPPED;
    for (a = VB_ALGO_MAPPED; a < VB_ALGOS; a++) {
        us = vb_coll_predict_us(coll, (enum vb_algo)a, bytes);
        if (vb_coll_can(coll, (enum vb_algo)a) && fits(coll, (enum vb_algo)a, bytes) &&
            us < best_us) {
            best = (enum vb_algo)a;
            best_us = us;
        }
    }
    return best;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Waiting for the k-th note of the previous rank, and until our own have left. */
struct probe {
    struct vb_coll *coll;
    uint32_t want;
    struct way *to;
};

static bool probe_came(void *arg)
{
    struct probe *p = arg;

    coll_reap(p->coll, p->to);
    return (int32_t)(p->coll->probes - p->want) >= 0 && p->to->left == p->to->posted;
}

/* The rank so many after this one that hosts are left behind. */
static int probe_distance(const struct vb_coll *coll)
{
    return coll->n_leaders > 1 ? coll->leaders[1] : 1;
}

/* Everybody sends n notes of len bytes and gets as many. The slots of the ring are not in use. */
static vb_status swap(struct vb_coll *coll, uint32_t n, size_t len, double *us_p)
{
    int d = probe_distance(coll), to = (coll->rank + d) % coll->world;
    struct probe p = {coll, coll->probes_wanted += n, &coll->ways[to]};
    int from = (coll->rank + coll->world - d) % coll->world;
    uint64_t begin = vb_clock_ns();
    vb_status st = VB_OK;
    uint32_t k;

    for (k = 0; k < n && st == VB_OK; k++)
        while (st == VB_OK && !coll_probe(coll, to, k, len))
            st = coll->failed != VB_OK ? coll->failed : vb_progress(coll->group);
    if (st == VB_OK)
        st = group_wait(coll->group, probe_came, &p, "measuring the links", &from);
    *us_p = (double)(vb_clock_ns() - begin) / 1e3;
    return st;
}

/* Other jobs take the cpu now and then: the lower quartile of a few, the least of fewer. */
static double typical(double *us, int n)
{
    vb_sort(us, (size_t)n);
    return us[n / 4];
}

/* Waits for an operation that was started, or not. */
static vb_status finish(struct vb_coll *coll, vb_status started, struct vb_req *req, uint64_t begin,
                        double *us_p)
{
    vb_status st = started == VB_OK ? vb_wait(coll, req) : started;

    *us_p = (double)(vb_clock_ns() - begin) / 1e3;
    return st;
}

/* Barriers by puts, though there may be flags. */
static vb_status measure_latency(struct vb_coll *coll, struct model *m)
{
    enum vb_algo was = coll->opts.algo;
    vb_status st = VB_OK;
    struct vb_req req;
    double us[ROUNDS];
    uint64_t begin;
    int i;

    coll->opts.algo = VB_ALGO_EXCHANGE;
    for (i = 0; i < ROUNDS && st == VB_OK; i++) {
        begin = vb_clock_ns();
        st = finish(coll, vb_barrier_start(coll, &req), &req, begin, &us[i]);
    }
    coll->opts.algo = was;
    if (st == VB_OK)
        m->latency = typical(us, ROUNDS);
    return st;
}

static vb_status measure_link(struct vb_coll *coll, struct model *m)
{
    double batch[BULKS], bulk[BULKS];
    vb_status st;
    int i;

    st = measure_latency(coll, m);
    for (i = 0; i < BULKS && st == VB_OK; i++)
        st = swap(coll, RING_SLOTS, 0, &batch[i]);
    for (i = 0; i < BULKS && st == VB_OK; i++)
        st = swap(coll, RING_SLOTS, coll->seg_bytes, &bulk[i]);
    if (st != VB_OK)
        return st;
    m->post = typical(batch, BULKS) / RING_SLOTS;
    m->latency -= (coll->world - 1) * m->post;
    if (m->latency < m->post)
        m->latency = m->post;
    m->byte = (typical(bulk, BULKS) / RING_SLOTS - m->post) / (double)coll->seg_bytes;
    m->byte = m->byte > 1e-6 ? m->byte : 1e-6; /* no link has 1 TB/s */
    return VB_OK;
}

/* On memory that is there: this rank's slots, which nobody uses yet. */
static void measure_sum(struct vb_coll *coll, struct model *m)
{
    size_t room = coll->rings_at - coll->own_slots_at,
           half = room / 2 < SUM_BYTES ? room / 2 : SUM_BYTES;
    float *a = (float *)(void *)(coll->base + coll->own_slots_at);
    struct source s[2] = {{a, SOURCE_F32}, {a + half / sizeof(float), SOURCE_F32}};
    struct finish plain = {.scale = 1.0f};
    double us[BULKS];
    uint64_t begin;
    int i;

    for (i = 0; i < BULKS; i++) {
        begin = vb_clock_ns();
        coll_sum(a, NULL, 0, s, 2, half / sizeof(float), &plain);
        us[i] = (double)(vb_clock_ns() - begin) / 1e3;
    }
    m->sum = typical(us, BULKS) / (2 * (double)half);
}

/* n times so many allreduces after each other. The data is zero as yet, and so are its sums. */
static vb_status time_ops(struct vb_coll *coll, enum vb_algo algo, size_t n_elems, int n, int each,
                          double *us_p)
{
    enum vb_algo was = coll->opts.algo;
    double us[ROUNDS] = {0};
    struct vb_req req;
    vb_status st = VB_OK;
    uint64_t begin;
    int i, k;

    coll->opts.algo = algo;
    for (i = 0; i < n && st == VB_OK; i++) {
        begin = vb_clock_ns();
        for (k = 0; k < each && st == VB_OK; k++)
            st = finish(coll, vb_allreduce_start(coll, 0, n_elems, VB_REDUCE_SUM, &req), &req,
                        begin, &us[i]);
        us[i] /= each;
    }
    coll->opts.algo = was;
    *us_p = typical(us, i);
    return st;
}

/* Where ranks share cores they also wait for each other's turn, which no measurement of one link
 * shows. So two allreduces are timed as they will be used, several after each other, and latency
 * and byte are made such that the model says the same. */
static vb_status fit(struct vb_coll *coll, struct model *m)
{
    size_t bytes = coll->len_bytes < FIT_BYTES ? coll->len_bytes : FIT_BYTES;
    double us, rest;
    vb_status st;

    if (coll->all_mapped || bytes < sizeof(float))
        return VB_OK;
    st = time_ops(coll, VB_ALGO_GATHER, 1, ROUNDS / FIT_OPS, FIT_OPS, &us);
    if (st != VB_OK)
        return st;
    rest = vb_coll_predict_us(coll, VB_ALGO_GATHER, sizeof(float)) - m->latency;
    m->latency = us - rest > m->post ? us - rest : m->post;
    if (bytes < FIT_BYTES)
        return VB_OK; /* too few to tell */
    st = time_ops(coll, VB_ALGO_EXCHANGE, bytes / sizeof(float), BULKS, FIT_BULKS, &us);
    if (st != VB_OK)
        return st;
    m->byte = 0; /* the prediction is a straight line in that: two points give it */
    rest = vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, bytes);
    m->byte = 1;
    m->byte = (us - rest) / (vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, bytes) - rest);
    m->byte = m->byte > 1e-6 ? m->byte : 1e-6;
    return VB_OK;
}

/* A flag is never slower than a note, whatever else the machine did while it was measured. */
static vb_status measure_mapped(struct vb_coll *coll, struct model *m)
{
    size_t n = (coll->len_bytes < MAPPED_BYTES ? coll->len_bytes : MAPPED_BYTES) / sizeof(float);
    vb_status st;
    double us;

    if (!coll->all_mapped || n == 0)
        return VB_OK;
    st = time_ops(coll, VB_ALGO_MAPPED, 1, ROUNDS, 1, &m->flag);
    if (st == VB_OK)
        st = time_ops(coll, VB_ALGO_MAPPED, n, BULKS, 1, &us);
    if (st != VB_OK)
        return st;
    if (coll->world > 1 && m->flag > m->latency)
        m->flag = m->latency;
    m->byte_mapped = (us - 2 * m->flag) / (double)(n * sizeof(float));
    if (m->byte_mapped < 1e-6)
        m->byte_mapped = 1e-6;
    return VB_OK;
}

vb_status cost_open(struct vb_coll *coll)
{
    struct model *m = calloc(1, sizeof(*m));
    vb_status st = VB_OK;
    int i;

    if (m == NULL)
        return vb_err_sys("calloc");
    coll->model = m;
    m->eager_bytes = coll->eager_bytes;
    measure_sum(coll, m);
    if (coll->world > 1)
        st = measure_link(coll, m);
    if (st == VB_OK && coll->world > 1)
        st = fit(coll, m);
    if (st == VB_OK)
        st = measure_mapped(coll, m);
    if (st != VB_OK)
        return st;
    for (i = 0; i < CLASSES; i++)
        m->choice[i] = (unsigned char)cheapest(coll, class_bytes(i));
    st = vb_group_broadcast(coll->group, 0, m, sizeof(*m));
    coll->eager_bytes = (size_t)m->eager_bytes;
    coll->first_seq = coll->seq;
    coll->wire_bytes = 0;
    VB_LOG_DEBUG("links: latency %.2f us, note %.2f us, %.2f GB/s, sum %.2f GB/s, flag %.2f us",
                 m->latency, m->post, 1e-3 / m->byte, 1e-3 / m->sum, m->flag);
    return st;
}

void cost_close(struct vb_coll *coll)
{
    free(coll->model);
}
