/* SPDX-License-Identifier: MIT
 *
 * Tests collectives in which a rank dies, stalls, or passes another size. All other ranks must
 * report the faulty rank, the operation and its number before the deadline. Also tests calls with
 * invalid arguments.
 *
 * Covers: net/coll/coll_open.c net/coll/coll_peers.c net/coll/coll_start.c
 */
#include "tests/support/fixtures/coll_fixture.h"

#include <signal.h>
#include <time.h>

#define N_ELEMS ((size_t)50000)
#define CULPRIT 1
#define TIMEOUT_MS 2000
#define SLACK_S 20 /* extra seconds for a busy machine */

enum fault { DIES, STALLS, OTHER_SIZE, OTHER_OPERATION, SENDS_NOTES };

struct how {
    enum fault fault;
    enum vb_algo algo;
    size_t n;
};

static void nap_ms(long ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

/* Starts an allreduce that uses flags, and waits until all other ranks have started it as well.
 * Then sends them notes, which they must not get in this operation. */
static vb_status send_notes(struct vb_coll *coll, const struct how *how, struct vb_req *req)
{
    uint64_t deadline = vb_clock_ns() + SLACK_S * UINT64_C(1000000000);
    vb_status st = vb_allreduce_start(coll, 0, how->n, VB_REDUCE_SUM, req);
    int r;

    group_lock(coll->group);
    while (st == VB_OK &&
           !vb_request_started_by(coll, request_at(coll, coll->reqs.seq), 0, coll->world))
        if (vb_clock_ns() > deadline)
            st = VB_ERR_TIMEOUT;
    for (r = 0; r < coll->world && st == VB_OK; r++)
        if (r != coll->rank &&
            !vb_coll_put(coll, r, 0, 0, 0,
                         vb_coll_note_value(STREAM_PART, coll->reqs.seq & SEQ_MASK)))
            st = VB_ERR_IO;
    group_unlock(coll->group);
    /* continues until the other ranks have given up */
    while (st == VB_OK && vb_clock_ns() < deadline) {
        st = vb_progress(coll->group);
        nap_ms(1);
    }
    return st;
}

/* Commits the fault of this test instead of the fourth allreduce. */
static vb_status misbehave(struct vb_coll *coll, const struct how *how, struct vb_req *req)
{
    switch (how->fault) {
    case DIES:
        _exit(0); /* the process ends without a goodbye */
    case STALLS:
        nap_ms(TIMEOUT_MS + 3000);
        return vb_allreduce_start(coll, 0, how->n, VB_REDUCE_SUM, req);
    case OTHER_SIZE:
        return vb_allreduce_start(coll, 0, how->n + 1, VB_REDUCE_SUM, req);
    case OTHER_OPERATION:
        return vb_reduce_scatter_start(coll, 0, how->n, VB_REDUCE_SUM, req);
    case SENDS_NOTES:
        return send_notes(coll, how, req);
    }
    return VB_OK;
}

/* Returns whether one line of the log of this rank contains the whole report. */
static int is_reported(const char *text, const struct how *how)
{
    const char *line = text, *end;
    char copy[512];

    for (; *line != '\0'; line = *end != '\0' ? end + 1 : end) {
        end = strchrnul(line, '\n');
        snprintf(copy, sizeof(copy), "%.*s", (int)(end - line), line);
        if (strstr(copy, "rank 1 (") != NULL && strstr(copy, "allreduce 4") != NULL)
            return 0;
    }
    fprintf(stderr, "fault %d with algorithm %s was not reported; the log has:\n%s",
            (int)how->fault, vb_algo_str(how->algo), text);
    return 1;
}

static int expect_failure(struct vb_coll *coll, const struct how *how)
{
    uint64_t begin = vb_clock_ns();
    struct t_stderr caught;
    struct vb_req req;
    char text[8192];
    vb_status st;

    t_stderr_catch(&caught);
    st = vb_allreduce_start(coll, 0, how->n, VB_REDUCE_SUM, &req);
    if (st == VB_OK)
        st = vb_wait(coll, &req);
    t_stderr_release(&caught, text, sizeof(text));
    return T_WRONG(st < 0) + T_WRONG(vb_clock_ns() - begin < SLACK_S * UINT64_C(1000000000)) +
           T_WRONG(vb_wait(coll, &req) == st) + is_reported(text, how);
}

static int faulty(struct vb_group *g, void *arg)
{
    const struct how *how = arg;
    struct vb_coll_opts opts = {.algo = how->algo, .order = VB_ORDER_ANY, .in_flight = 4};
    int wrong = 0, k;
    struct vb_coll *coll;
    struct vb_req req;

    if (vb_coll_open(g, N_ELEMS * sizeof(float), &opts, &coll) != VB_OK)
        return 1;
    for (k = 0; k < 3; k++) {
        wrong += T_WRONG(vb_allreduce_start(coll, 0, how->n, VB_REDUCE_SUM, &req) == VB_OK);
        wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    }
    /* Without this barrier, a rank that dies could take parts of the previous allreduce with it
     * that other ranks have not read yet. */
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) != CULPRIT) {
        wrong += expect_failure(coll, how);
    } else {
        vb_log_set_level(VB_LEVEL_ERROR);
        if (misbehave(coll, how, &req) == VB_OK)
            wrong += T_WRONG(vb_wait(coll, &req) < 0);
    }
    vb_coll_close(coll);
    return wrong;
}

static void try_fault(enum fault fault, enum vb_transport_choice transport, enum vb_algo algo,
                      size_t n)
{
    struct how how = {fault, algo, n};
    struct t_job job = {.transport = transport,
                        .world = 3,
                        .timeout_ms = fault == STALLS ? TIMEOUT_MS : 15000,
                        .fn = faulty,
                        .arg = &how};

    t_as_processes(&job);
}

static void try_everywhere(enum fault fault)
{
    try_fault(fault, VB_TRANSPORT_SHM, VB_ALGO_MAPPED, 10);
    try_fault(fault, VB_TRANSPORT_SHM, VB_ALGO_MAPPED, N_ELEMS - 1);
    try_fault(fault, VB_TRANSPORT_TCP, VB_ALGO_GATHER, 10);
    try_fault(fault, VB_TRANSPORT_TCP, VB_ALGO_EXCHANGE, N_ELEMS - 1);
    try_fault(fault, VB_TRANSPORT_TCP, VB_ALGO_OWNER, 10);
    /* Vectors of this size are sent without a copy. */
    try_fault(fault, VB_TRANSPORT_TCP, VB_ALGO_OWNER, 2000);
    try_fault(fault, VB_TRANSPORT_TCP, VB_ALGO_RING, N_ELEMS - 1);
}

static void a_rank_dies(void **state)
{
    (void)state;
    try_everywhere(DIES);
}

static void a_rank_stalls(void **state)
{
    (void)state;
    try_fault(STALLS, VB_TRANSPORT_SHM, VB_ALGO_MAPPED, N_ELEMS - 1);
    try_fault(STALLS, VB_TRANSPORT_TCP, VB_ALGO_EXCHANGE, N_ELEMS - 1);
    try_fault(STALLS, VB_TRANSPORT_TCP, VB_ALGO_OWNER, 2000);
}

static void a_rank_passes_another_size(void **state)
{
    (void)state;
    try_everywhere(OTHER_SIZE);
    try_fault(OTHER_OPERATION, VB_TRANSPORT_SHM, VB_ALGO_MAPPED, 100);
    try_fault(OTHER_OPERATION, VB_TRANSPORT_TCP, VB_ALGO_EXCHANGE, 100);
}

static void a_rank_sends_unexpected_notes(void **state)
{
    (void)state;
    try_fault(SENDS_NOTES, VB_TRANSPORT_SHM, VB_ALGO_MAPPED, N_ELEMS - 1);
}

/* ---- a rank that says wrong things when the collective is opened ------------------------------
 */

static void no_note(void *arg, int rank, uint32_t value)
{
    (void)arg;
    (void)rank;
    (void)value;
}

/* Does what vb_coll_open() does first, and then says that it has mapped the windows of ranks that
 * do not exist. */
static int announce(struct vb_group *g, const int32_t neighbours[3])
{
    int32_t all[2][3];
    struct vb_window *win;
    int channel;
    vb_status st = vb_channel_alloc(g, no_note, NULL, &channel);

    if (st == VB_OK)
        st = vb_window_create(g, 4096, &win);
    if (st == VB_OK)
        st = vb_group_gather(g, neighbours, sizeof(all[0]), all);
    while (st == VB_OK) /* until the other rank has given up */
        st = vb_progress(g);
    return 0;
}

static int wrong_neighbours(struct vb_group *g, void *arg)
{
    struct t_stderr caught;
    struct vb_coll *coll;
    char text[4096];
    vb_status st;

    t_stderr_catch(&caught);
    if (vb_group_rank(g) == 1) {
        announce(g, arg);
        t_stderr_release(&caught, text, sizeof(text));
        return 0;
    }
    st = vb_coll_open(g, 64, NULL, &coll);
    t_stderr_release(&caught, text, sizeof(text));
    return T_WRONG(st == VB_ERR_INPUT) + T_WRONG(strstr(text, "rank 1 (") != NULL);
}

static void impossible_neighbours_are_refused(void **state)
{
    static int32_t announced[][3] = {{1 << 28, 2, 0}, {-(1 << 28), 2, 0}, {2, 2, 0}, {1, 3, 0},
                                     {1, 1, 0},       {0, 1 << 30, 0},    {-1, 2, 0}};
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 2, .fn = wrong_neighbours};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(announced); i++) {
        job.arg = announced[i];
        t_as_processes(&job);
    }
}

/* ---- after a failure ------------------------------------------------------------------------- */

#define MANY_BYTES ((size_t)48 << 20) /* more bytes than socket buffers hold */

/* Fills the send queue of rank 0. Rank 1 starts the operation but receives nothing. */
static vb_status fill_queue(struct vb_coll *coll, struct vb_req *req)
{
    uint64_t deadline = vb_clock_ns() + SLACK_S * UINT64_C(1000000000);
    size_t at[2] = {0, 0}, lens[2] = {MANY_BYTES, 0};
    vb_status st = vb_allgather_start(coll, at, lens, req);
    bool done = false;

    while (st == VB_OK && coll->rank == 0 && coll->ways[1].posted - coll->ways[1].left < 16) {
        st = vb_test(coll, req, &done);
        if (done || vb_clock_ns() > deadline)
            st = VB_ERR_TIMEOUT;
    }
    return st;
}

/* The collective is closed while its ops are under way. The group must still complete these ops, on
 * the progress thread if it has one. */
static int closed_under_way(struct vb_group *g, void *arg)
{
    struct t_stderr caught;
    struct vb_coll *coll;
    struct vb_req req;
    char text[4096];
    int wrong;

    (void)arg;
    if (vb_coll_open(g, MANY_BYTES, NULL, &coll) != VB_OK)
        return 1;
    wrong = T_WRONG(fill_queue(coll, &req) == VB_OK);
    t_stderr_catch(&caught);
    while (vb_group_rank(g) == 1 && vb_group_status(g) == VB_OK)
        nap_ms(1);
    vb_group_abort(g, "enough");
    vb_coll_close(coll);
    wrong += T_WRONG(vb_progress(g) == VB_ERR_PEER);
    t_stderr_release(&caught, text, sizeof(text));
    return wrong;
}

static void ops_end_after_their_collective_is_closed(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 2, .fn = closed_under_way};

    (void)state;
    t_as_processes(&job);
}

/* ---- errors of callers ----------------------------------------------------------------------- */

static int impossible_calls(struct vb_group *g, void *arg)
{
    struct vb_coll_opts bad = {.algo = VB_ALGO_RING};
    size_t at[2] = {0, 0}, lens[2] = {8, 100};
    struct t_stderr caught;
    struct vb_coll *coll;
    struct vb_req req;
    char text[4096];
    int wrong = 0;

    (void)arg;
    t_stderr_catch(&caught);
    /* The algorithm does not sum in rank order, but the options ask for this order. */
    wrong += T_WRONG(vb_coll_open(g, 64, &bad, &coll) == VB_ERR_USAGE);
    bad = (struct vb_coll_opts){.order = VB_ORDER_ANY, .algo = VB_ALGO_RING, .wire = VB_WIRE_BF16};
    wrong += T_WRONG(vb_coll_open(g, 64, &bad, &coll) == VB_ERR_USAGE);
    bad = (struct vb_coll_opts){.in_flight = -1};
    wrong += T_WRONG(vb_coll_open(g, 64, &bad, &coll) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_coll_open(g, 64, NULL, &coll) == VB_OK);
    wrong += T_WRONG(vb_allreduce_start(coll, 0, 17, VB_REDUCE_SUM, &req) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_allreduce_start(coll, 2, 1, VB_REDUCE_SUM, &req) == VB_ERR_USAGE);
    wrong +=
        T_WRONG(vb_allreduce_start(coll, 0, SIZE_MAX / 2, VB_REDUCE_SUM, &req) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_broadcast_start(coll, 2, 0, 4, &req) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_allgather_start(coll, at, lens, &req) == VB_ERR_USAGE);
    t_stderr_release(&caught, text, sizeof(text));
    wrong += T_WRONG(vb_allreduce_start(coll, 0, 16, VB_REDUCE_SUM, &req) == VB_OK);
    /* works, because none of the refused calls has started an operation */
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    vb_coll_close(coll);
    return wrong + T_WRONG(strstr(text, "this algorithm does not sum in rank order") != NULL);
}

static void impossible_calls_are_refused(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 2, .fn = impossible_calls};

    (void)state;
    t_as_processes(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_dies),
        cmocka_unit_test(a_rank_stalls),
        cmocka_unit_test(a_rank_passes_another_size),
        cmocka_unit_test(a_rank_sends_unexpected_notes),
        cmocka_unit_test(impossible_neighbours_are_refused),
        cmocka_unit_test(ops_end_after_their_collective_is_closed),
        cmocka_unit_test(impossible_calls_are_refused),
    };

    return T_RUN(tests);
}
