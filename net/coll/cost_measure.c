/* SPDX-License-Identifier: MIT
 *
 * Measures the figures of the cost model when the collectives are opened (docs/collectives.md). All
 * ranks measure at the same time, so that they disturb each other as in the later job. Rank 0,
 * whose figures count, leaves out or shortens what would take long on a slow link.
 */
#include "net/coll/coll_priv.h"

#define ROUNDS 32      /* number of repetitions of a measurement */
#define FIRST_ROUNDS 4 /* after so many, rank 0 knows whether there is time for all */
#define BULKS 3
#define FIRST_BYTES                                                                                \
    ((size_t)1024)       /* length of the first puts, before anything is known of the link */
#define PART_US 300000.0 /* time for one part of the measurement, on a slow link */
#define MAPPED_BYTES ((size_t)256 * 1024)
#define SUM_BYTES ((size_t)64 * 1024)
#define FIT_BYTES ((size_t)512 * 1024) /* length of an allreduce that the model is fitted to */
#define FIT_SMALL 8                    /* number of small allreduces in a batch */
#define FIT_LARGE 2                    /* number of large allreduces in a batch */
#define FAR_BYTES ((size_t)4 << 20)    /* length of a vector that does not fit into caches */
#define FAR_US 5000 /* such a vector is measured only if the model predicts less time than this */

/* Puts to one rank, and as many notes of another. */
struct probe {
    struct vb_coll *coll;
    uint32_t want;
    struct way *to;
    int place; /* of the rank that the puts go to */
    size_t at, len;
};

/* While they measure, ranks of an elastic group may be lost. Requests then fail; here are none. */
static bool has_failed(struct vb_coll *coll)
{
    vb_coll_check_members(coll);
    return coll->failed != VB_OK;
}

static bool was_posted(void *arg)
{
    struct probe *p = arg;

    return vb_coll_put(p->coll, p->place, p->at, p->at, p->len,
                       vb_coll_note_value(STREAM_PROBE, 0)) ||
           has_failed(p->coll);
}

/* The notes of the previous rank have come, and our own puts are done. */
static bool probe_came(void *arg)
{
    struct probe *p = arg;

    vb_coll_reap(p->coll, p->to);
    return ((int32_t)(p->coll->probes.came - p->want) >= 0 && p->to->left == p->to->posted) ||
           has_failed(p->coll);
}

/* Every rank puts n times len bytes, each with a note, and receives as many. The puts use ring 0,
 * which nothing else uses now. */
static vb_status exchange_notes(struct vb_coll *coll, uint32_t n, size_t len, double *us_p)
{
    int d = coll->hosts.n > 1 ? coll->hosts.leaders[1] : 1; /* a rank on the next host */
    int to = peer_after(coll, d), from = peer_after(coll, coll->world - d);
    struct probe p = {.coll = coll,
                      .want = coll->probes.wanted += n,
                      .to = &coll->ways[to],
                      .place = to,
                      .len = len};
    uint64_t begin = vb_clock_ns();
    vb_status st = VB_OK;
    uint32_t k;

    for (k = 0; k < n && st == VB_OK && coll->failed == VB_OK; k++) {
        p.at = ring_at(coll, 0, coll->rank, k);
        st = vb_group_wait_for(coll->group, was_posted, &p, "measuring the links", &p.to->rank);
    }
    if (st == VB_OK)
        st = vb_group_wait_for(coll->group, probe_came, &p, "measuring the links", &from);
    *us_p = (double)(vb_clock_ns() - begin) / 1e3;
    return st == VB_OK ? coll->failed : st;
}

/* Returns the lower quartile of n times, which is the minimum if n is less than four. Longer times
 * are ignored because other jobs may have used the cpu. */
static double typical(double *us, int n)
{
    vb_sort(us, (size_t)n);
    return us[n / 4];
}

/* Times n batches, each of `each` allreduces one after another, or barriers if n_elems is 0. All
 * data is still zero, and the sums do not change it. */
static vb_status time_requests(struct vb_coll *coll, enum vb_algo algo, size_t n_elems, int n,
                               int each, double *us_p)
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
        for (k = 0; k < each && st == VB_OK; k++) {
            st = n_elems == 0 ? vb_barrier_start(coll, &req)
                              : vb_allreduce_start(coll, 0, n_elems, VB_REDUCE_SUM, &req);
            if (st == VB_OK)
                st = vb_wait(coll, &req);
        }
        us[i] = (double)(vb_clock_ns() - begin) / 1e3 / each;
    }
    coll->opts.algo = was;
    *us_p = typical(us, i);
    return st;
}

/* Rank 0 tells all ranks a number that it has derived from its own figures. */
static vb_status agree(struct vb_coll *coll, uint64_t *n)
{
    return vb_group_broadcast(coll->group, 0, n, sizeof(*n));
}

/* Sets *yes_p to whether there is time for something that takes us. */
static vb_status has_time(struct vb_coll *coll, double us, bool *yes_p)
{
    uint64_t yes = us < PART_US;
    vb_status st = agree(coll, &yes);

    *yes_p = yes != 0;
    return st;
}

/* Times barriers that use puts, even if windows are mapped. */
static vb_status measure_latency(struct vb_coll *coll, struct cost_model *m)
{
    bool more = false;
    vb_status st = time_requests(coll, VB_ALGO_EXCHANGE, 0, FIRST_ROUNDS, 1, &m->latency);

    if (st == VB_OK)
        st = has_time(coll, ROUNDS * m->latency, &more);
    return st == VB_OK && more ? time_requests(coll, VB_ALGO_EXCHANGE, 0, ROUNDS, 1, &m->latency)
                               : st;
}

/* Chooses the length of the puts that measure the bandwidth: a segment, or as much of it as the
 * link carries in the time. */
static vb_status choose_bulk(struct vb_coll *coll, size_t *len_p)
{
    uint64_t len = coll->lay.seg_bytes < FIRST_BYTES ? coll->lay.seg_bytes : FIRST_BYTES;
    double us;
    vb_status st = exchange_notes(coll, RING_SLOTS, len, &us);

    while (2 * len <= coll->lay.seg_bytes && 2 * us * BULKS < PART_US) {
        len *= 2;
        us *= 2;
    }
    if (2 * us * BULKS < PART_US)
        len = coll->lay.seg_bytes;
    if (st == VB_OK)
        st = agree(coll, &len);
    *len_p = (size_t)len;
    return st;
}

static vb_status measure_link(struct vb_coll *coll, struct cost_model *m)
{
    double batch[BULKS], bulk[BULKS];
    size_t len = 0;
    int i;
    vb_status st = measure_latency(coll, m);

    /* A rank that comes late finds the first message there, and waits twice as long for the second:
     * two barriers in a row are never shorter than two messages. */
    if (st == VB_OK)
        st = time_requests(coll, VB_ALGO_EXCHANGE, 0, FIRST_ROUNDS, 2, &m->message);
    for (i = 0; i < BULKS && st == VB_OK; i++)
        st = exchange_notes(coll, RING_SLOTS, 0, &batch[i]);
    if (st == VB_OK)
        st = choose_bulk(coll, &len);
    for (i = 0; i < BULKS && st == VB_OK; i++)
        st = exchange_notes(coll, RING_SLOTS, len, &bulk[i]);
    if (st != VB_OK)
        return st;
    m->post = typical(batch, BULKS) / RING_SLOTS;
    m->latency -= (coll->world - 1) * m->post;
    if (m->latency < m->post)
        m->latency = m->post;
    m->byte = (typical(bulk, BULKS) / RING_SLOTS - m->post) / (double)len;
    m->byte = m->byte > 1e-6 ? m->byte : 1e-6; /* no link reaches 1 TB/s */
    return VB_OK;
}

/* Measures the cost of a sum. The vectors lie in the ring for segments from this rank to itself:
 * its pages exist, and no peer writes to it. A peer that has finished measuring may already write
 * to the other rings. */
static void measure_sum(struct vb_coll *coll, struct cost_model *m)
{
    size_t room = RING_SLOTS * ring_slot_bytes(coll),
           half = room / 2 < SUM_BYTES ? room / 2 : SUM_BYTES;
    float *a = (float *)(void *)(coll->base + ring_at(coll, 0, coll->rank, 0));
    struct source s[2] = {{a, SOURCE_F32}, {a + half / sizeof(float), SOURCE_F32}};
    struct finish plain = {.scale = 1.0f};
    double us[BULKS];
    uint64_t begin;
    int i;

    for (i = 0; i < BULKS; i++) {
        begin = vb_clock_ns();
        vb_coll_sum(a, NULL, 0, s, 2, half / sizeof(float), &plain);
        us[i] = (double)(vb_clock_ns() - begin) / 1e3;
    }
    m->sum = typical(us, BULKS) / (2 * (double)half);
}

/* Sets latency and byte so that the model predicts the times of a small and a large allreduce. If
 * ranks share cores, a rank also waits for its turn on a core, which a measurement of one link does
 * not show. */
static vb_status fit_near(struct vb_coll *coll, struct cost_model *m)
{
    size_t bytes = coll->lay.len_bytes < FIT_BYTES ? coll->lay.len_bytes : FIT_BYTES;
    double us, rest;
    bool fast;
    vb_status st;

    if (coll->hosts.all_mapped || bytes < sizeof(float))
        return VB_OK;
    st = has_time(coll,
                  ROUNDS * vb_coll_predict_us(coll, VB_ALGO_GATHER, sizeof(float)) +
                      BULKS * FIT_LARGE * vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, bytes),
                  &fast);
    if (st != VB_OK || !fast)
        return st;
    st = time_requests(coll, VB_ALGO_GATHER, 1, ROUNDS / FIT_SMALL, FIT_SMALL, &us);
    if (st != VB_OK)
        return st;
    rest = vb_coll_predict_us(coll, VB_ALGO_GATHER, sizeof(float)) - m->latency;
    m->latency = us - rest > m->post ? us - rest : m->post;
    if (bytes < FIT_BYTES)
        return VB_OK; /* too short for a reliable time */
    st = time_requests(coll, VB_ALGO_EXCHANGE, bytes / sizeof(float), BULKS, FIT_LARGE, &us);
    if (st != VB_OK)
        return st;
    m->byte = 0; /* the prediction is linear in byte, so two points determine it */
    rest = vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, bytes);
    m->byte = 1;
    m->byte = (us - rest) / (vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, bytes) - rest);
    m->byte = m->byte > 1e-6 ? m->byte : 1e-6;
    return VB_OK;
}

/* Fits far, which matters only over a fast link; over a slow link a large vector would take too
 * long to measure. Rank 0 decides whether it is measured. */
static vb_status fit_far(struct vb_coll *coll, struct cost_model *m)
{
    double us, rest = vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, FAR_BYTES);
    uint64_t fast = rest < FAR_US;
    vb_status st;

    if (coll->hosts.all_mapped || coll->lay.len_bytes < FAR_BYTES)
        return VB_OK;
    st = agree(coll, &fast);
    if (st != VB_OK || !fast)
        return st;
    st = time_requests(coll, VB_ALGO_EXCHANGE, FAR_BYTES / sizeof(float), BULKS, 1, &us);
    if (st != VB_OK)
        return st;
    m->far = 1; /* the prediction is linear in far, too */
    m->far = (us - rest) / (vb_coll_predict_us(coll, VB_ALGO_EXCHANGE, FAR_BYTES) - rest);
    m->far = m->far > 0 ? m->far : 0;
    return VB_OK;
}

/* Measures flag and byte_mapped. A flag is never slower than a note, so flag is limited to latency,
 * in case other jobs disturbed the measurement. */
static vb_status measure_mapped(struct vb_coll *coll, struct cost_model *m)
{
    size_t len = coll->lay.len_bytes < MAPPED_BYTES ? coll->lay.len_bytes : MAPPED_BYTES;
    size_t n = len / sizeof(float);
    vb_status st;
    double us;

    if (!coll->hosts.all_mapped || n == 0)
        return VB_OK;
    st = time_requests(coll, VB_ALGO_MAPPED, 1, ROUNDS, 1, &m->flag);
    if (st == VB_OK)
        st = time_requests(coll, VB_ALGO_MAPPED, n, BULKS, 1, &us);
    if (st != VB_OK)
        return st;
    if (coll->world > 1 && m->flag > m->latency)
        m->flag = m->latency;
    m->byte_mapped = (us - 2 * m->flag) / (double)(n * sizeof(float));
    if (m->byte_mapped < 1e-6)
        m->byte_mapped = 1e-6;
    return VB_OK;
}

vb_status vb_cost_measure(struct vb_coll *coll, struct cost_model *m)
{
    vb_status st = VB_OK;

    measure_sum(coll, m);
    if (coll->world > 1)
        st = measure_link(coll, m);
    if (st == VB_OK && coll->world > 1)
        st = fit_near(coll, m);
    if (st == VB_OK && coll->world > 1)
        st = fit_far(coll, m);
    return st == VB_OK ? measure_mapped(coll, m) : st;
}
