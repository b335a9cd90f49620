/* SPDX-License-Identifier: MIT
 *
 * Tests the machine of net/view as the engine has it, for up to 1024 ranks, and its messages.
 *
 * Covers: net/view/view_message.c
 */
#include "net/view/view.h"
#include "tests/support/test.h"

#define RETRY 1000u
#define GRACE 5000u

static struct view_message sample(void)
{
    struct view_message m = {.kind = VIEW_PROPOSE, .term = 2051, .step = 77};

    m.view = (struct view){.epoch = 4, .holder = 1, .term = 1024, .step = 70};
    m.view.members = view_first(1000);
    m.value = (struct view){.epoch = 5, .holder = 900, .term = 2051, .step = 77};
    m.value.members = view_first(999);
    view_remove(&m.value.members, 0);
    m.suspects = view_one(0);
    view_add(&m.suspects, 999);
    m.proved = view_one(999);
    return m;
}

static bool passes(const struct view_message *m, struct view_message *back)
{
    unsigned char bytes[VIEW_MESSAGE_BYTES];

    vb_view_encode(m, bytes);
    return vb_view_decode(bytes, 1000, back);
}

static void messages_are_decoded_as_encoded(void **state)
{
    struct view_message m = sample(), back;
    unsigned char a[VIEW_MESSAGE_BYTES], b[VIEW_MESSAGE_BYTES];

    (void)state;
    assert_int_equal(VIEW_MESSAGE_BYTES, 584);
    assert_true(passes(&m, &back));
    vb_view_encode(&m, a);
    vb_view_encode(&back, b);
    assert_memory_equal(a, b, sizeof(a));
    a[4] = 1; /* must be zero */
    assert_false(vb_view_decode(a, 1000, &back));
}

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        m = sample();                                                                              \
        change;                                                                                    \
        assert_false(passes(&m, &back));                                                           \
    } while (0)

static void invalid_messages_are_refused(void **state)
{
    struct view_message m, back;

    (void)state;
    REFUSED(m.kind = 0);
    REFUSED(m.kind = VIEW_KIND_LAST + 1);
    REFUSED(m.kind = VIEW_REPORT); /* has no value */
    REFUSED(m.term = UINT64_MAX);
    REFUSED(m.term = 2050); /* the proposal is of another term */
    REFUSED(m.step = UINT64_MAX);
    REFUSED(m.view.epoch = 0);
    REFUSED(m.view.epoch = UINT32_MAX);
    REFUSED(m.view.term = 2052);
    REFUSED(m.view.holder = 1000);
    REFUSED(view_add(&m.view.members, 1000));
    REFUSED(m.value.epoch = 6);
    REFUSED(memset(&m.value, 0, sizeof(m.value))); /* proposes nothing */
    REFUSED(m.value.holder = 0);                   /* no member */
    REFUSED(view_add(&m.value.members, 1023));
    REFUSED(memset(&m.value.members, 0, sizeof(m.value.members)));
    REFUSED(view_add(&m.suspects, 1000));
    REFUSED(m.proved = view_one(5)); /* proved but not suspected */
}

/* ---- machines that exchange real bytes ------------------------------------------------------- */

struct job {
    int n;
    struct view_machine *m;
    bool *dead;
    uint64_t now;
};

static void job_init(struct job *j, int n)
{
    struct view_opts opts = {.world = n, .retry_ns = RETRY, .grace_ns = GRACE};

    *j = (struct job){.n = n, .m = calloc((size_t)n, sizeof(*j->m)), .now = 1};
    j->dead = calloc((size_t)n, sizeof(*j->dead));
    assert_true(j->m != NULL && j->dead != NULL);
    for (opts.rank = 0; opts.rank < n; opts.rank++)
        vb_view_init(&j->m[opts.rank], &opts);
}

static void job_fini(struct job *j)
{
    free(j->m);
    free(j->dead);
}

/* Sends what a machine has put out, and all that follows from it. */
static void carry(struct job *j, int from, const struct view_out *out)
{
    unsigned char bytes[VIEW_MESSAGE_BYTES];
    struct view_message message;
    struct view_out next;
    int i, to;

    for (i = 0; i < out->n; i++)
        for (to = 0; to < j->n; to++) {
            if (!view_has(&out->sends[i].to, to) || j->dead[to])
                continue;
            vb_view_encode(&out->sends[i].message, bytes);
            assert_true(vb_view_decode(bytes, j->n, &message));
            assert_true(vb_view_take(&j->m[to], from, &message, j->now, &next));
            carry(j, to, &next);
        }
}

static void suspect(struct job *j, int by, int rank, enum view_how how)
{
    struct view_out out;

    vb_view_suspect(&j->m[by], rank, how, j->now, &out);
    carry(j, by, &out);
}

static void all_go_on(const struct job *j, uint32_t epoch, int members, uint64_t step, int holder)
{
    const struct view *v;
    int i;

    for (i = 0; i < j->n; i++) {
        v = vb_view_now(&j->m[i]);
        if (j->dead[i])
            continue;
        assert_int_equal(vb_view_status(&j->m[i]), VIEW_GOING);
        assert_int_equal(v->epoch, epoch);
        assert_int_equal(view_count(&v->members), members);
        assert_int_equal(v->step, step);
        assert_int_equal(v->holder, holder);
        assert_true(vb_view_due(&j->m[i]) == UINT64_MAX);
    }
}

static void survivors_agree(int n, int dead)
{
    struct job j;
    int i;

    job_init(&j, n);
    for (i = 0; i < n; i++)
        assert_true(i == dead || i == 1 || vb_view_commit(&j.m[i], 1)); /* rank 1 is behind */
    j.dead[dead] = true;
    for (i = 0; i < n; i++)
        if (i != dead)
            suspect(&j, i, dead, VIEW_LOST);
    all_go_on(&j, 2, n - 1, 1, dead == 0 ? 2 : 0);
    assert_true(vb_view_commit(&j.m[1], 1)); /* the copy */
    assert_false(vb_view_commit(&j.m[1], 3));
    job_fini(&j);
}

static void a_rank_dies(void **state)
{
    (void)state;
    survivors_agree(5, 4);
    survivors_agree(5, 0);
    survivors_agree(64, 63);
    survivors_agree(65, 64);
    survivors_agree(VB_WORLD_MAX, 0);
    survivors_agree(VB_WORLD_MAX, 1023);
}

static void a_minority_ends_after_the_grace(void **state)
{
    struct job j;
    struct view_out out;

    (void)state;
    job_init(&j, 2);
    j.dead[0] = true; /* for rank 1 */
    suspect(&j, 1, 0, VIEW_SILENT);
    assert_int_equal(vb_view_status(&j.m[1]), VIEW_STOPPED);
    assert_false(vb_view_commit(&j.m[1], 1));
    vb_view_tick(&j.m[1], j.now + GRACE - 1, &out);
    assert_int_equal(vb_view_status(&j.m[1]), VIEW_STOPPED);
    vb_view_tick(&j.m[1], j.now + GRACE, &out);
    assert_int_equal(vb_view_why(&j.m[1]), VIEW_END_MINORITY);
    assert_int_equal(out.events, VIEW_EVENT_END);
    job_fini(&j);
}

static void a_proof_needs_no_vote(void **state)
{
    struct job j;

    (void)state;
    job_init(&j, 2);
    j.dead[0] = true;
    suspect(&j, 1, 0, VIEW_LOST);
    assert_int_equal(vb_view_status(&j.m[1]), VIEW_STOPPED);
    suspect(&j, 1, 0, VIEW_REAPED);
    all_go_on(&j, 2, 1, 0, 1);
    job_fini(&j);
}

static void a_dropped_rank_learns_it(void **state)
{
    struct job j;

    (void)state;
    job_init(&j, 3);
    suspect(&j, 0, 2, VIEW_SILENT);
    assert_int_equal(vb_view_why(&j.m[2]), VIEW_END_OUT);
    j.dead[2] = true;
    all_go_on(&j, 2, 2, 0, 0);
    job_fini(&j);
}

/* Before a connection is closed: later nobody could tell it any more. */
static void a_rank_that_is_left_out_is_told(void **state)
{
    struct view_out out;
    struct job j;

    (void)state;
    job_init(&j, 3);
    vb_view_farewell(&j.m[0], 2, &out);
    assert_int_equal(out.n, 0); /* it is a member */
    j.dead[2] = true;           /* nothing reaches it */
    suspect(&j, 0, 2, VIEW_LOST);
    all_go_on(&j, 2, 2, 0, 0);
    vb_view_farewell(&j.m[0], 2, &out);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.sends[0].message.kind, VIEW_TELL);
    assert_true(view_has(&out.sends[0].to, 2) && view_count(&out.sends[0].to) == 1);
    job_fini(&j);
}

static void impossible_messages_are_refused(void **state)
{
    struct job j;
    struct view_out out;
    struct view_message m = {.kind = VIEW_REPORT, .step = 2};

    (void)state;
    job_init(&j, 3);
    m.view = *vb_view_now(&j.m[0]);
    assert_false(vb_view_take(&j.m[0], 1, &m, 1, &out)); /* it is two steps ahead */
    m.step = 1;
    assert_false(vb_view_take(&j.m[0], 0, &m, 1, &out)); /* from itself */
    assert_false(vb_view_take(&j.m[0], 3, &m, 1, &out)); /* there is no such rank */
    m.suspects = m.proved = view_one(0);
    assert_false(vb_view_take(&j.m[0], 1, &m, 1, &out)); /* it would prove that rank 0 is dead */
    assert_int_equal(vb_view_status(&j.m[0]), VIEW_GOING);
    job_fini(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_decoded_as_encoded),
        cmocka_unit_test(invalid_messages_are_refused),
        cmocka_unit_test(a_rank_dies),
        cmocka_unit_test(a_minority_ends_after_the_grace),
        cmocka_unit_test(a_proof_needs_no_vote),
        cmocka_unit_test(a_dropped_rank_learns_it),
        cmocka_unit_test(a_rank_that_is_left_out_is_told),
        cmocka_unit_test(impossible_messages_are_refused),
    };

    return T_RUN(tests);
}
