/* SPDX-License-Identifier: MIT
 *
 * Tests sparse allreduce with ranks that pass invalid arguments, violate the protocol, stall or
 * die. The other ranks must report the rank and the call, and no rank may hang.
 *
 * Covers: net/sparse/sparse_allreduce.c net/sparse/sparse_send.c
 */
#include "net/sparse/sparse_priv.h"
#include "tests/support/ranks.h"

#include <time.h>

#define FEATURES 5000u
#define MAX_NNZ 1200
#define BAD 1 /* the faulty rank */
#define WORLD 3
#define TIMEOUT_MS 5000

static const enum vb_transport_choice transports[] = {VB_TRANSPORT_SHM, VB_TRANSPORT_TCP};

static char said[65536]; /* standard error of all ranks together */

static struct t_stderr caught;
static bool catching;

/* Runs the ranks and stores their messages in `said`. */
static void run(struct t_job *job, bool processes)
{
    job->world = WORLD;
    job->timeout_ms = TIMEOUT_MS;
    t_stderr_catch(&caught);
    catching = true;
    if (processes)
        t_as_processes(job);
    else
        t_as_threads(job);
    t_stderr_release(&caught, said, sizeof(said));
    catching = false;
}

/* Prints the messages of a test that failed while standard error was captured. */
static int show(void **state)
{
    (void)state;
    if (!catching)
        return 0;
    t_stderr_release(&caught, said, sizeof(said));
    catching = false;
    print_message("standard error: %s\n", said);
    return 0;
}

static void assert_said(const char *what)
{
    if (strstr(said, what) == NULL)
        print_message("missing: %s\nstandard error: %s\n", what, said);
    assert_non_null(strstr(said, what));
}

static const struct vb_sparse_opts plain = {
    .features = FEATURES, .max_nnz = MAX_NNZ, .path = VB_SPARSE_SPARSE};

/* Options that allow lists which are too long to be sent with their heads. */
static const struct vb_sparse_opts wide = {
    .features = FEATURES, .max_nnz = FEATURES, .path = VB_SPARSE_SPARSE};

/* Makes a list of every third index. The first index is the rank. */
static size_t make_list(int rank, uint32_t *index, float *value)
{
    size_t n = 0;
    uint32_t i;

    for (i = (uint32_t)rank; i < 3 * MAX_NNZ; i += 3) {
        index[n] = i;
        value[n++] = (float)i;
    }
    return n;
}

static vb_status sum_once(struct vb_sparse *s, const uint32_t *index, const float *value, size_t n,
                          size_t *n_p)
{
    const uint32_t *sum_index;
    const float *sum;

    return vb_sparse_allreduce(s, index, value, n, VB_REDUCE_SUM, &sum_index, &sum, n_p);
}

/* ---- mistakes of callers --------------------------------------------------------------------- */

static int mistakes(struct vb_group *g, void *arg)
{
    uint32_t index[MAX_NNZ + 1], k;
    float value[MAX_NNZ + 1] = {0};
    struct vb_sparse *s = NULL;
    int rank = vb_group_rank(g), wrong = 0;
    vb_status st, due;
    size_t n, got = 0;

    (void)arg;
    if (vb_sparse_open(g, &plain, &s) != VB_OK)
        return 1;
    for (k = 1; k <= 5; k++) {
        n = make_list(rank, index, value);
        if (rank == BAD && k == 1)
            index[7] = index[6];
        if (rank == BAD && k == 2)
            index[n - 1] = FEATURES;
        if (rank == BAD && k == 3) {
            index[n] = FEATURES - 1;
            n = MAX_NNZ + 1;
        }
        due = rank == BAD ? VB_ERR_USAGE : VB_ERR_INPUT;
        if (k == 4) {
            const uint32_t *sum_index;
            const float *sum;

            st = vb_sparse_allreduce(s, index, value, n,
                                     rank == BAD ? VB_REDUCE_MEAN : VB_REDUCE_SUM, &sum_index, &sum,
                                     &got);
            due = VB_ERR_INPUT;
        } else {
            st = sum_once(s, index, value, n, &got);
        }
        wrong += T_WRONG(st == (k == 5 ? VB_OK : due));
    }
    wrong += T_WRONG(got == 3 * MAX_NNZ); /* after all mistakes the ranks still agree on the call */
    vb_sparse_close(s);
    return wrong;
}

static void a_wrong_list_fails_everywhere_and_the_next_call_works(void **state)
{
    struct t_job job = {.fn = mistakes};
    size_t t;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++) {
        job.transport = transports[t];
        run(&job, false);
        assert_said("sparse allreduce 1: this rank brought a list that is not in ascending order");
        assert_said("sparse allreduce 1: rank 1");
        assert_said("sparse allreduce 2: this rank brought a list with an index that is not below");
        assert_said("sparse allreduce 3: this rank brought a list that is too long (the list has "
                    "1201 words");
        assert_said("brought a list that is too long");
        assert_said("asks for a different reduction");
    }
}

static int different_features(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts opts = plain;
    struct vb_sparse *s = NULL;

    (void)arg;
    if (vb_group_rank(g) == BAD)
        opts.features = 77;
    return T_WRONG(vb_sparse_open(g, &opts, &s) == VB_ERR_INPUT);
}

static int impossible_options(struct vb_group *g, void *arg)
{
    struct vb_sparse_opts none = {.features = 0, .max_nnz = 1};
    struct vb_sparse_opts many = {.features = (uint64_t)UINT32_MAX + 2, .max_nnz = 1};
    struct vb_sparse_opts lengthy = {.features = 10, .max_nnz = (size_t)UINT32_MAX + 1};
    struct vb_sparse *s = NULL;

    (void)arg;
    return T_WRONG(vb_sparse_open(g, &none, &s) == VB_ERR_USAGE) +
           T_WRONG(vb_sparse_open(g, &many, &s) == VB_ERR_USAGE) +
           T_WRONG(vb_sparse_open(g, &lengthy, &s) == VB_ERR_USAGE);
}

static void different_features_are_found_when_opening(void **state)
{
    struct t_job job = {.fn = different_features, .transport = VB_TRANSPORT_SHM};

    (void)state;
    run(&job, false);
    assert_said("rank 1");
    assert_said("has 77 features, but this rank has 5000");
    job.fn = impossible_options;
    run(&job, false);
    assert_said("0 features");
}

/* ---- short lists ----------------------------------------------------------------------------- */

/* In some calls no list is sent with its head, in others all lists are, and in others all but one.
 * The sums must be equal. */
static int with_and_without_heads(struct vb_group *g, void *arg)
{
    static const int others[][2] = {{0, 0}, {1, 1}, {1, 0}, {0, 1}, {1, 1}, {1, 1}};
    struct vb_sparse *s = NULL;
    const uint32_t *index_p;
    const float *sum;
    uint32_t index[MAX_NNZ];
    float value[MAX_NNZ];
    size_t n = make_list(0, index, value), got, i, k;
    int wrong = 0;

    (void)arg;
    if (vb_sparse_open(g, &plain, &s) != VB_OK)
        return 1;
    for (i = 0; i < n; i++)
        value[i] = 1.0f / (float)(1 + vb_group_rank(g) + (int)i);
    for (k = 0; k < VB_COUNT(others) && wrong == 0; k++) {
        s->model.along = others[k][vb_group_rank(g) == BAD] ? s->limits.max_along : 0;
        wrong += T_WRONG(
            vb_sparse_allreduce(s, index, value, n, VB_REDUCE_SUM, &index_p, &sum, &got) == VB_OK);
        wrong += T_WRONG(got == n && memcmp(index_p, index, n * sizeof(*index)) == 0);
        for (i = 0; i < n && wrong == 0; i++)
            wrong += T_WRONG(sum[i] ==
                             1.0f / (float)(1 + i) + 1.0f / (float)(2 + i) + 1.0f / (float)(3 + i));
    }
    vb_sparse_close(s);
    return wrong;
}

static void short_lists_give_the_same_sums(void **state)
{
    struct t_job job = {.fn = with_and_without_heads};
    size_t t;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++) {
        job.transport = transports[t];
        run(&job, false);
    }
}

/* ---- ranks that break the protocol ----------------------------------------------------------- */

enum breach {
    HEAD_TOO_LONG,
    HEAD_SAMPLES_UNSORTED,
    HEAD_SAMPLE_BEYOND,
    HEAD_SAMPLES_MISSING,
    HEAD_NONSENSE,
    HEAD_OLD,
    HEAD_OTHER_FEATURES,
    ALONG_NONSENSE, /* the ALONG faults are in short lists that are sent with their heads */
    ALONG_TOO_LONG,
    ALONG_UNSORTED,
    ALONG_OUT_OF_RANGE,
    PART_UNSORTED,
    PART_OUT_OF_RANGE,
    PART_TOO_LARGE,
    SUM_UNSORTED,
    SUM_OUT_OF_RANGE,
    SUM_TOO_LARGE,
    SUM_BEFORE_PART, /* possible only over TCP, which sends parts */
    NOTE_OF_ANOTHER_CALL,
    NOTE_TOO_LARGE,
    BREACHES
};

static const char *const words_for[BREACHES] = {
    [HEAD_TOO_LONG] = "the list is longer than the announced maximum",
    [HEAD_SAMPLES_UNSORTED] = "the samples are out of order",
    [HEAD_SAMPLE_BEYOND] = "an index is not below the number of features",
    [HEAD_SAMPLES_MISSING] = "the number of samples is wrong",
    [HEAD_NONSENSE] = "the head of the list is invalid",
    [HEAD_OLD] = "the head of the list has a wrong sequence number",
    [HEAD_OTHER_FEATURES] = "features, but this rank has",
    [ALONG_NONSENSE] = "the list inside the head is too long",
    [ALONG_TOO_LONG] = "the list inside the head is too long",
    [ALONG_UNSORTED] = "the indices of the list are out of order or out of range",
    [ALONG_OUT_OF_RANGE] = "the indices of the list are out of order or out of range",
    [PART_UNSORTED] = "the indices of the part are out of order or out of range",
    [PART_OUT_OF_RANGE] = "the indices of the part are out of order or out of range",
    [PART_TOO_LARGE] = "the part is larger than the samples in its head allow",
    [SUM_UNSORTED] = "the indices of the sum are out of order or out of range",
    [SUM_OUT_OF_RANGE] = "the indices of the sum are out of order or out of range",
    [SUM_TOO_LARGE] = "the sum is larger than the samples allow",
    [SUM_BEFORE_PART] = "the peer sent a note for a sparse allreduce that is not due",
    [NOTE_OF_ANOTHER_CALL] = "the peer sent a note for a sparse allreduce that is not due",
    [NOTE_TOO_LARGE] = "the peer sent a note for a sparse allreduce that is not due",
};

static uint32_t note(enum sparse_kind kind, uint32_t count)
{
    return (uint32_t)kind << 22 | count;
}

static void spoil_head(const struct vb_sparse *s, struct sparse_head *head, enum breach breach)
{
    switch (breach) {
    case HEAD_TOO_LONG:
        head->n = MAX_NNZ + 1;
        break;
    case HEAD_SAMPLES_UNSORTED:
        head->samples[1] = head->samples[0];
        break;
    case HEAD_SAMPLE_BEYOND:
        head->samples[head->n_samples - 1] = FEATURES;
        break;
    case HEAD_SAMPLES_MISSING:
        head->n_samples--;
        break;
    case HEAD_NONSENSE:
        head->refused = 17;
        break;
    case HEAD_OLD:
        head->seq--;
        break;
    case HEAD_OTHER_FEATURES:
        head->features = 4;
        break;
    case ALONG_NONSENSE:
        head->along = 2;
        break;
    /* too long to be sent with the head, but within the maximum that the rank announced */
    case ALONG_TOO_LONG:
        head->n = s->limits.max_along + 1;
        break;
    default:
        break;
    }
}

static bool is_along(enum breach breach)
{
    return breach >= ALONG_NONSENSE && breach <= ALONG_OUT_OF_RANGE;
}

/* Sends a head that is correct except for the given fault. */
static void send_head(struct vb_sparse *s, enum breach breach)
{
    struct sparse_head *head;
    uint32_t index[MAX_NNZ];
    float value[MAX_NNZ];
    size_t n = make_list(s->rank, index, value), len = s->at.head_bytes;

    s->seq++;
    head = (void *)(s->base + vb_sparse_own_head_at(s));
    *head = (struct sparse_head){.seq = s->seq, .features = FEATURES, .n = n};
    vb_sparse_pack(index, value, n, sparse_list(s));
    vb_sparse_sample(sparse_list(s), s->limits.max_samples, head);
    memcpy(s->heads[s->rank], head, vb_sparse_head_bytes(head->n_samples));
    head->along = is_along(breach);
    if (breach == ALONG_UNSORTED)
        sparse_list(s)[7] = sparse_list(s)[6];
    if (breach == ALONG_OUT_OF_RANGE)
        sparse_list(s)[n - 1] = word_of(FEATURES, 0);
    if (is_along(breach))
        len = vb_sparse_take_along(s, head);
    spoil_head(s, head, breach);
    /* the order is wrong in the whole list, but a binary search still ends */
    if (breach == PART_UNSORTED)
        for (n = 1; n + 1 < MAX_NNZ; n += 2)
            sparse_list(s)[n] = sparse_list(s)[n - 1];
    /* the last index of all parts is so large that it has no owner */
    if (breach == PART_OUT_OF_RANGE)
        sparse_list(s)[MAX_NNZ - 1] = word_of(FEATURES - 1 + 40, 0);
    (void)vb_sparse_send_heads(s, len);
}

static void take_heads(struct vb_sparse *s)
{
    int r;

    if (vb_sparse_wait_heads(s) != VB_OK)
        return;
    for (r = 0; r < s->world; r++)
        if (r != s->rank)
            memcpy(s->heads[r], s->base + vb_sparse_head_at(s, r), s->at.head_bytes);
    vb_sparse_plan_make(&s->plan, s->heads);
}

/* Sends a note about a part or a sum, but no data, to all other ranks. */
static void send_notes(struct vb_sparse *s, uint32_t value)
{
    int r;

    for (r = 0; r < s->world; r++)
        if (r != s->rank)
            (void)vb_sparse_put(s, r, 0, 0, 0, value, &s->peers[r].sum_op);
}

static void send_bad_sum(struct vb_sparse *s, enum breach breach)
{
    uint64_t *sum = (void *)(s->base + vb_sparse_sum_at(s, s->rank));
    uint32_t first = (uint32_t)s->plan.splits[s->rank];

    sum[0] = word_of(breach == SUM_OUT_OF_RANGE ? first - 1 : first + 5, 0);
    sum[1] = word_of(first + (breach == SUM_UNSORTED ? 5 : 7), 0);
    if (breach == SUM_TOO_LARGE)
        send_notes(s, note(SPARSE_SUM, 1 << 20));
    else
        (void)vb_sparse_send_sums(s, 2);
}

/* Violates the protocol once, then waits until the other ranks have given up. */
static int break_protocol(struct vb_sparse *s, enum breach breach)
{
    bool tcp = s->peers[0].mapped == NULL;

    if (breach == NOTE_OF_ANOTHER_CALL) {
        send_notes(s, note(SPARSE_HEAD, 5));
    } else {
        send_head(s, breach);
        take_heads(s);
        if (breach == PART_TOO_LARGE)
            send_notes(s, note(SPARSE_PART, MAX_NNZ));
        else if (breach == SUM_BEFORE_PART)
            send_notes(s, note(SPARSE_SUM, 0));
        else if (breach == NOTE_TOO_LARGE)
            send_notes(s, note(tcp ? SPARSE_PART : SPARSE_SUM, (1 << 20) + 1));
        else if (breach > ALONG_OUT_OF_RANGE)
            (void)vb_sparse_send_parts(s);
        if (breach >= SUM_UNSORTED && breach <= SUM_TOO_LARGE)
            send_bad_sum(s, breach);
    }
    (void)vb_group_barrier(s->group); /* returns when the group fails */
    return 0;
}

static int sum_with_faulty_rank(struct vb_group *g, void *arg)
{
    enum breach breach = *(const enum breach *)arg;
    struct vb_sparse *s = NULL;
    uint32_t index[MAX_NNZ];
    float value[MAX_NNZ];
    int wrong = 0;
    size_t n;

    if (vb_sparse_open(g, is_along(breach) ? &wide : &plain, &s) != VB_OK)
        return 1;
    wrong += T_WRONG(breach != ALONG_TOO_LONG || s->limits.max_along < wide.max_nnz);
    s->model.along = is_along(breach) ? s->limits.max_along : 0; /* replaces the measured value */
    n = make_list(vb_group_rank(g), index, value);
    wrong += T_WRONG(sum_once(s, index, value, n, &n) == VB_OK);
    /* The fault must not happen before all ranks have finished the first call. The fault may happen
     * while other ranks are still in this barrier. */
    (void)vb_group_barrier(g);
    n = make_list(vb_group_rank(g), index, value);
    if (vb_group_rank(g) == BAD) {
        wrong += break_protocol(s, breach);
    } else {
        wrong += T_WRONG(sum_once(s, index, value, n, &n) < 0);
        /* after this one fault, all ranks still agree on the call */
        if (breach != HEAD_OTHER_FEATURES)
            wrong += T_WRONG(sum_once(s, index, value, n, &n) < 0);
        else
            vb_group_abort(g, "enough");
    }
    vb_sparse_close(s);
    return wrong;
}

static bool is_possible(enum breach breach, enum vb_transport_choice transport)
{
    bool part = breach == PART_TOO_LARGE || breach == SUM_BEFORE_PART;

    /* Over shared memory parts are not sent, because their owners read them. */
    return !part || transport == VB_TRANSPORT_TCP;
}

static void a_rank_that_breaks_the_protocol_is_named(void **state)
{
    struct t_job job = {.fn = sum_with_faulty_rank};
    int breach;
    size_t t;

    (void)state;
    job.arg = &breach;
    for (t = 0; t < VB_COUNT(transports); t++)
        for (breach = 0; breach < BREACHES; breach++) {
            if (!is_possible((enum breach)breach, transports[t]))
                continue;
            job.transport = transports[t];
            /* The ranks are processes, because a thread that gives up would unmap memory that other
             * threads use. */
            run(&job, true);
            assert_said(words_for[breach]);
            assert_said("rank 1 (");
            assert_said("sparse allreduce 2");
        }
}

/* Rank 0 broadcasts a cost model that would make the ranks send longer lists with their heads than
 * the memory can hold. */
static int follows_a_bad_model(struct vb_group *g, void *arg)
{
    struct vb_sparse *s = NULL;
    struct sparse_model model;
    int wrong = 0;

    (void)arg;
    if (vb_sparse_open(g, &plain, &s) != VB_OK)
        return 1;
    model = s->model;
    model.along = s->limits.max_along + 1;
    /* the last rank would first answer probes, so another rank is tested */
    if (vb_group_rank(g) == BAD)
        wrong += T_WRONG(vb_sparse_measure(s) == VB_ERR_INPUT);
    else
        wrong += T_WRONG(vb_group_broadcast(g, 0, &model, sizeof(model)) == VB_OK);
    vb_sparse_close(s);
    return wrong;
}

static void an_impossible_cost_model_is_refused(void **state)
{
    struct t_job job = {.fn = follows_a_bad_model, .transport = VB_TRANSPORT_TCP};

    (void)state;
    run(&job, true);
    assert_said("rank 0 (");
    assert_said("allows lists of 1201 words inside the heads of messages, but the maximum is 1200");
}

/* ---- ranks that are missing ------------------------------------------------------------------ */

struct absence {
    bool dies;
};

/* Rank 1 takes part in two calls and then stops. */
static int stop_taking_part(struct vb_group *g, void *arg)
{
    const struct absence *a = arg;
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    struct vb_sparse *s = NULL;
    uint32_t index[MAX_NNZ];
    float value[MAX_NNZ];
    size_t n = make_list(vb_group_rank(g), index, value), got;
    uint64_t start;
    int wrong = 0;

    if (vb_sparse_open(g, &plain, &s) != VB_OK)
        return 1;
    wrong += T_WRONG(sum_once(s, index, value, n, &got) == VB_OK);
    wrong += T_WRONG(sum_once(s, index, value, n, &got) == VB_OK);
    if (vb_group_rank(g) == BAD) {
        if (a->dies)
            _exit(wrong);
        while (vb_progress(g) == VB_OK) /* continues until the other ranks have given up */
            nanosleep(&pause, NULL);
    } else {
        start = vb_clock_ns();
        wrong += T_WRONG(sum_once(s, index, value, n, &got) < 0);
        wrong += T_WRONG((vb_clock_ns() - start) / 1000000 < 30000); /* the call must not hang */
    }
    _exit(wrong);
}

static void a_rank_that_dies_or_stalls_is_named(void **state)
{
    struct absence a = {.dies = true};
    struct t_job job = {.fn = stop_taking_part, .arg = &a};
    size_t t;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++) {
        job.transport = transports[t];
        a.dies = true;
        run(&job, true);
        assert_said("sparse allreduce 3");
        assert_said("rank 1 (");
        a.dies = false;
        run(&job, true);
        assert_said("waited 5.0 s for rank 1 (");
        assert_said("sparse allreduce 3");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_wrong_list_fails_everywhere_and_the_next_call_works, show),
        cmocka_unit_test_teardown(different_features_are_found_when_opening, show),
        cmocka_unit_test_teardown(short_lists_give_the_same_sums, show),
        cmocka_unit_test_teardown(a_rank_that_breaks_the_protocol_is_named, show),
        cmocka_unit_test_teardown(an_impossible_cost_model_is_refused, show),
        cmocka_unit_test_teardown(a_rank_that_dies_or_stalls_is_named, show),
    };

    return T_RUN(tests);
}
