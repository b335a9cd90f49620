/* SPDX-License-Identifier: MIT
 *
 * Chooses the algorithm of an allreduce: the one for which the cost model predicts the shortest
 * time. Rank 0 divides the sizes into classes of half an octave, takes the fastest algorithm that
 * is possible for each class, and sends the table to all ranks. So all ranks choose the same one.
 */
#include "net/coll/coll_priv.h"

#include <stdlib.h>
#include <string.h>

static const char *const algo_names[VB_ALGOS] = {"auto",  "mapped", "gather",  "exchange", "owner",
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

const char *vb_coll_cannot(const struct vb_coll *coll, enum vb_algo algo)
{
    if (algo == VB_ALGO_MAPPED && !coll->hosts.all_mapped)
        return "not all ranks share memory";
    if (algo >= VB_ALGO_RING && coll->opts.order != VB_ORDER_ANY)
        return "this algorithm does not sum in rank order";
    if (algo == VB_ALGO_OWNER && is_narrow(coll))
        return "this algorithm cannot send results in bfloat16";
    if (algo >= VB_ALGO_CHAIN && is_narrow(coll))
        return "this algorithm sends partial sums, which must not be rounded to bfloat16";
    if ((algo == VB_ALGO_CHAIN || algo == VB_ALGO_TWO_LEVEL) && !coll->hosts.contiguous)
        return "the ranks of a host do not have consecutive numbers";
    return NULL;
}

bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo)
{
    return vb_coll_cannot(coll, algo) == NULL;
}

/* A vector that is sent with START must fit into a slot. */
static bool fits(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    size_t room = coll->lay.slot_bytes - sizeof(struct slot_head);

    return (algo != VB_ALGO_GATHER && algo != VB_ALGO_OWNER) ||
           (is_narrow(coll) ? bytes / 2 : bytes) <= room;
}

/* ---- what each algorithm costs --------------------------------------------------------------- */

/* The figures of one allreduce. n is the number of bytes of the vector in float32, wire the number
 * of bytes in the format in which it is sent. */
struct job {
    double n, wire;
    double world, others, hosts, local, segs, seg_wire;
};

static struct job job_of(const struct vb_coll *coll, size_t bytes)
{
    struct job j = {.n = (double)bytes, .world = coll->world, .others = coll->world - 1};
    double seg = (double)coll->lay.seg_bytes < j.n ? (double)coll->lay.seg_bytes : j.n;

    j.wire = is_narrow(coll) ? j.n / 2 : j.n;
    j.hosts = coll->hosts.n;
    j.local = j.world / j.hosts;
    j.segs = bytes > 0 ? (double)segments(coll, bytes) : 1;
    j.seg_wire = is_narrow(coll) ? seg / 2 : seg;
    return j;
}

/* Returns the cost of sending the bytes of the vector once. */
static double bytes_us(const struct cost_model *m, const struct job *j)
{
    double beyond = j->wire > (double)NEAR_BYTES ? j->wire - (double)NEAR_BYTES : 0;

    return j->wire * m->byte + beyond * m->far;
}

static double mapped_us(const struct cost_model *m, const struct job *j)
{
    if (j->n <= (double)m->eager_bytes)
        return m->flag + j->world * j->n * m->sum;
    return 2 * m->flag + j->n * m->byte_mapped;
}

/* One message with the vector to each rank, and a sum of all vectors. */
static double gather_us(const struct cost_model *m, const struct job *j)
{
    return m->latency + j->others * (m->post + j->wire * m->byte) + j->world * j->n * m->sum;
}

/* START to all ranks, the vectors of all ranks to the owner, a sum, and the results to all ranks.
 */
static double owner_us(const struct cost_model *m, const struct job *j)
{
    return 2 * m->latency + j->others * (3 * m->post + 2 * j->wire * m->byte) +
           j->world * j->n * m->sum;
}

/* Parts to all ranks, then results to all ranks. The last segment is summed when it has come, and
 * its result is sent; this does not overlap with other transfers. */
static double shares_us(const struct cost_model *m, const struct job *j, double ranks)
{
    double each = j->segs / ranks > 1 ? j->segs / ranks : 1, last = j->wire / ranks;

    if (last > j->seg_wire)
        last = j->seg_wire;
    return 2 * m->latency + (1 + 2 * each) * (ranks - 1) * m->post +
           2 * (ranks - 1) / ranks * bytes_us(m, j) + last * m->byte + j->n * m->sum;
}

static double exchange_us(const struct cost_model *m, const struct job *j)
{
    return shares_us(m, j, j->world);
}

/* Up and down through all hosts. The segments are sent one after another, so the hosts work at the
 * same time. */
static double chain_us(const struct cost_model *m, const struct job *j)
{
    double hop = m->latency + m->post + j->seg_wire * m->byte;

    return (j->local > 1 ? 2 * m->latency : 0) + j->others * m->post + 2 * (j->hosts - 1) * hop +
           (j->hosts > 1 ? 2 * bytes_us(m, j) : 0) + (j->local + 1) * j->n * m->sum +
           (j->local - 1) * j->n * m->sum;
}

static double ring_us(const struct cost_model *m, const struct job *j)
{
    return j->others * m->post + 2 * j->others * (m->latency + m->post) +
           2 * j->others / j->world * bytes_us(m, j) + 2 * j->n * m->sum;
}

static double halving_us(const struct cost_model *m, const struct job *j)
{
    int levels = vb_bits_below((uint64_t)j->world);
    double fold = 0;

    if (j->world != 1 << levels) { /* folded ranks send and receive the whole vector */
        levels--;
        fold = 2 * (m->latency + m->post + bytes_us(m, j)) + j->n * m->sum;
    }
    return j->others * m->post + fold + 2 * levels * (m->latency + m->post) +
           2 * j->others / j->world * bytes_us(m, j) + 2 * j->n * m->sum;
}

static double two_level_us(const struct cost_model *m, const struct job *j)
{
    double between = j->hosts > 1 ? shares_us(m, j, j->hosts) : 0;

    return j->others * m->post + between + 2 * m->latency + 2 * j->local * j->n * m->sum;
}

double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    static double (*const us[VB_ALGOS])(const struct cost_model *, const struct job *) = {
        [VB_ALGO_MAPPED] = mapped_us,     [VB_ALGO_GATHER] = gather_us,
        [VB_ALGO_EXCHANGE] = exchange_us, [VB_ALGO_OWNER] = owner_us,
        [VB_ALGO_CHAIN] = chain_us,       [VB_ALGO_RING] = ring_us,
        [VB_ALGO_HALVING] = halving_us,   [VB_ALGO_TWO_LEVEL] = two_level_us};
    struct job j = job_of(coll, bytes);

    return us[algo == VB_ALGO_AUTO ? vb_coll_algo(coll, bytes) : algo](coll->cost, &j);
}

struct vb_coll_link vb_coll_link(const struct vb_coll *coll)
{
    const struct cost_model *m = coll->cost;
    bool mapped = coll->hosts.all_mapped;
    double byte = mapped ? m->byte_mapped : m->byte;

    return (struct vb_coll_link){.latency_us = mapped ? m->flag : m->message,
                                 .gb_s = byte > 1e-6 ? 1e-3 / byte : 0,
                                 .sum_gb_s = m->sum > 0 ? 1e-3 / m->sum : 0,
                                 .mapped = mapped};
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Each octave has two classes: the highest bit and the bit below it determine the class. */
static int class_of(size_t bytes)
{
    int k = bytes > 0 ? 63 - __builtin_clzll(bytes) : 0;

    k = 2 * k + (k > 0 && (bytes >> (k - 1) & 1) != 0);
    return k < CLASSES ? k : CLASSES - 1;
}

static size_t class_bytes(int class)
{
    size_t low = (size_t)1 << class / 2;

    return class % 2 == 0 ? low + low / 4 : low + low / 2 + low / 4; /* the middle of the class */
}

static enum vb_algo fitting(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    return fits(coll, algo, bytes) ? algo : VB_ALGO_EXCHANGE;
}

static enum vb_algo look_up(const struct vb_coll *coll, const unsigned char *table, size_t bytes)
{
    enum vb_algo algo = coll->opts.algo;

    if (algo == VB_ALGO_AUTO)
        algo = (enum vb_algo)table[class_of(bytes)];
    return fitting(coll, algo, bytes);
}

enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes)
{
    return look_up(coll, coll->cost->choice, bytes);
}

enum vb_algo vb_coll_algo_many(const struct vb_coll *coll, size_t bytes)
{
    return look_up(coll, coll->cost->many, bytes);
}

/* Adds n requests of a size. What auto would choose counts as the best. */
static void add_requests(const struct vb_coll *coll, size_t n, size_t bytes, bool many,
                         struct vb_coll_forecast *f)
{
    const unsigned char *table = many ? coll->cost->many : coll->cost->choice;
    enum vb_algo best = fitting(coll, (enum vb_algo)table[class_of(bytes)], bytes);

    if (n == 0 || bytes == 0)
        return;
    f->best = f->us <= 0 || f->best == best ? best : VB_ALGO_AUTO;
    f->us += (double)n * vb_coll_predict_us(coll, look_up(coll, table, bytes), bytes);
    f->best_us += (double)n * vb_coll_predict_us(coll, best, bytes);
}

struct vb_coll_forecast vb_coll_forecast(const struct vb_coll *coll, size_t bytes, size_t each)
{
    size_t whole = each > 0 ? bytes / each : 0, rest = bytes - whole * each;
    bool many = whole >= (size_t)coll->world;
    struct vb_coll_forecast f = {.best = VB_ALGO_AUTO};

    add_requests(coll, whole, each, many, &f);
    add_requests(coll, 1, rest, many, &f);
    return f;
}

/* If all windows are mapped, the mapped algorithm is the fastest for every size. The measurements
 * are then ignored, because another job may have disturbed them. */
static enum vb_algo cheapest(const struct vb_coll *coll, size_t bytes)
{
    enum vb_algo best = VB_ALGO_EXCHANGE;
    double us, best_us = vb_coll_predict_us(coll, best, bytes);
    int a;

    if (coll->hosts.all_mapped)
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

/* Returns the fastest algorithm if many requests are under way. Then the numbers of bytes and
 * messages matter more than latencies. Small vectors that are copied behind their heads still use
 * gather, because one system call sends many of them (docs/performance.md). */
static enum vb_algo cheapest_of_many(const struct vb_coll *coll, size_t bytes)
{
    enum vb_algo best = cheapest(coll, bytes);

    if ((best != VB_ALGO_GATHER && best != VB_ALGO_EXCHANGE) || coll->world < 3 ||
        bytes < STRAIGHT_BYTES || !fits(coll, VB_ALGO_OWNER, bytes))
        return best;
    return vb_coll_can(coll, VB_ALGO_OWNER) ? VB_ALGO_OWNER : best;
}

/* Chooses the algorithms of all classes. The choice of rank 0 counts. */
static vb_status choose(struct vb_coll *coll)
{
    struct cost_model *m = coll->cost;
    int i;

    for (i = 0; i < CLASSES; i++) {
        m->choice[i] = (unsigned char)cheapest(coll, class_bytes(i));
        m->many[i] = (unsigned char)cheapest_of_many(coll, class_bytes(i));
    }
    return vb_group_broadcast(coll->group, 0, m, sizeof(*m));
}

/* The peers have the figures of the first rank 0, so only the choice can be wrong. */
vb_status vb_cost_again(struct vb_coll *coll)
{
    struct cost_model before = *coll->cost, *m = coll->cost;
    vb_status st = choose(coll);
    int i;

    for (i = 0; i < CLASSES && st == VB_OK; i++)
        if (m->eager_bytes != before.eager_bytes || m->choice[i] >= VB_ALGOS ||
            m->many[i] >= VB_ALGOS || !vb_coll_can(coll, (enum vb_algo)m->choice[i]) ||
            !vb_coll_can(coll, (enum vb_algo)m->many[i]))
            st = vb_err(VB_ERR_INPUT,
                        "rank %d (%s) chose algorithms that are not possible: all ranks must run "
                        "the same version",
                        group_rank(coll, 0), vb_group_host(coll->group, group_rank(coll, 0)));
    return st;
}

vb_status vb_cost_open(struct vb_coll *coll)
{
    struct cost_model *m = calloc(1, sizeof(*m));
    vb_status st;

    if (m == NULL)
        return vb_err_sys("calloc");
    coll->cost = m;
    m->eager_bytes = coll->lay.eager_bytes;
    st = vb_cost_measure(coll, m);
    if (st != VB_OK)
        return st;
    st = choose(coll);
    coll->lay.eager_bytes = (size_t)m->eager_bytes;
    coll->reqs.first_seq = coll->reqs.seq;
    coll->stats.wire_bytes = 0;
    VB_LOG_DEBUG("measured links: latency %.2f us, note %.2f us, bandwidth %.2f GB/s, summing %.2f "
                 "GB/s, flag %.2f us",
                 m->latency, m->post, 1e-3 / m->byte, 1e-3 / m->sum, m->flag);
    return st;
}
