/* SPDX-License-Identifier: MIT
 *
 * A thread reads a sparse model as it was at one moment while another one updates it, with lists
 * that name few features and lists that name nearly all, and with settling. Also tests that
 * a model which was saved while it was out of date goes on with the same bits.
 *
 * Covers: kernels/sparse/aside.c kernels/sparse/sparse_saved.c
 */
#include "kernels/kernels.h"
#include "tests/support/alloc.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

#define FEATURES 20011 /* the last block is not full; a list may be shared by several threads */
#define WORDS 2
#define PIECE 1000 /* not a number of whole blocks */
#define SAVES 6

static const struct vb_k_rule rules[] = {
    {.kind = VB_K_SGD},
    {.kind = VB_K_SGD, .decay = 0.05f},
    {.kind = VB_K_MOMENTUM, .momentum = 0.9f},
    {.kind = VB_K_NESTEROV, .momentum = 0.9f, .decay = 0.05f},
    {.kind = VB_K_ADAGRAD, .eps = 1e-8f},
    {.kind = VB_K_FTRL, .beta = 1, .l1 = 0.05f, .l2 = 0.1f},
};

static const struct vb_k_schedule schedule = {
    .kind = VB_K_RATE_STEP, .base = 0.1, .period = 7, .factor = 0.9};

/* What was in memory, or what was read. */
struct copy {
    float weights[FEATURES], memory[FEATURES];
    uint32_t state[WORDS * FEATURES];
};

struct model {
    struct vb_k_sparse *sparse;
    struct vb_k_kept *kept;
    int words;
    int64_t step;
    uint32_t seed;
};

static uint32_t keys[FEATURES];
static float values[FEATURES];

/* One step of a model. Every fifth list has nearly all features, the others have few. */
static void step(struct model *m)
{
    uint32_t stride = m->step % 5 == 4 ? 2 : 700, at = t_random(&m->seed) % stride;
    float rate = vb_k_rate(&schedule, m->step);
    size_t n;

    for (n = 0; at < FEATURES; n++) {
        keys[n] = at;
        values[n] = (float)(t_random(&m->seed) % 1000) / 500 - 1;
        at += 1 + t_random(&m->seed) % stride;
    }
    assert_int_equal(vb_k_sparse_update(m->sparse, keys, values, n, 0.5f, rate, m->kept), VB_OK);
    m->step++;
}

static void open_model(struct model *m, const struct vb_k_rule *rule)
{
    *m = (struct model){.seed = 5, .words = vb_k_sparse_words(rule)};
    assert_int_equal(vb_k_sparse_create(rule, FEATURES, &m->sparse), VB_OK);
    assert_int_equal(vb_k_kept_create(FEATURES, &m->kept), VB_OK);
}

static void close_model(struct model *m)
{
    vb_k_sparse_destroy(m->sparse);
    vb_k_kept_destroy(m->kept);
}

static void take_copy(const struct model *m, struct copy *c)
{
    struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS];
    int n = vb_k_sparse_parts(m->sparse, parts);

    memset(c, 0, sizeof(*c));
    vb_k_sparse_read(m->sparse, 0, FEATURES, c->weights);
    memcpy(c->memory, parts[0].data, sizeof(c->memory));
    if (n > 1)
        memcpy(c->state, parts[1].data, parts[1].n * sizeof(uint32_t));
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
    const struct model *model;
    struct copy got;
    bool failed;
    _Atomic bool done;
};

static bool read_part(const struct model *m, enum vb_k_sparse_saved part, size_t n, void *to)
{
    size_t at, len;

    for (at = 0; at < n; at += len) {
        len = n - at < PIECE ? n - at : PIECE;
        if (!vb_k_sparse_held(m->sparse, part, at, len, (char *)to + at * 4))
            return false;
    }
    return true;
}

static void *read_main(void *arg)
{
    struct reader *r = arg;

    r->failed =
        !read_part(r->model, VB_K_SAVED_WEIGHTS, FEATURES, r->got.weights) ||
        !read_part(r->model, VB_K_SAVED_STATE, (size_t)r->model->words * FEATURES, r->got.state) ||
        !read_part(r->model, VB_K_SAVED_MEMORY, FEATURES, r->got.memory);
    atomic_store(&r->done, true);
    return NULL;
}

/* Steps that touch memory in all ways, at least 12, until the reader has read everything. */
static void step_meanwhile(struct model *m, const struct reader *r)
{
    uint32_t key = 77;
    int i;

    for (i = 0; i < 12 || !atomic_load(&r->done); i++) {
        step(m);
        if (i == 8)
            vb_k_sparse_settle(m->sparse);
        vb_k_sparse_touch(m->sparse, &key, 1);
        vb_k_sparse_weights(m->sparse)[key] += 1;
    }
}

static void save_meanwhile(struct model *m, bool first_all)
{
    static struct copy was;
    static struct reader r;
    pthread_t thread;

    take_copy(m, &was);
    memset(&r, 0, sizeof(r));
    r.model = m;
    assert_true(vb_k_sparse_hold(m->sparse, true));
    if (first_all) /* before anything is read */
        vb_k_sparse_touch_all(m->sparse);
    assert_int_equal(pthread_create(&thread, NULL, read_main, &r), 0);
    step_meanwhile(m, &r);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(vb_k_sparse_hold(m->sparse, false));
    assert_false(r.failed);
    assert_memory_equal(r.got.weights, was.weights, sizeof(was.weights));
    assert_memory_equal(r.got.memory, was.memory, sizeof(was.memory));
    assert_memory_equal(r.got.state, was.state, sizeof(was.state));
}

static void a_model_is_read_as_it_was(void **state)
{
    struct model m;
    size_t r;
    int i;

    (void)state;
    omp_set_num_threads(2);
    for (r = 0; r < VB_COUNT(rules); r++) {
        open_model(&m, &rules[r]);
        assert_false(vb_k_sparse_hold(m.sparse, true));
        assert_int_equal(vb_k_sparse_save_beside(m.sparse, true), VB_OK);
        for (i = 0; i < SAVES; i++) {
            step(&m);
            save_meanwhile(&m, i == 1);
        }
        close_model(&m);
    }
}

/* Updates change the same bits, and allocate nothing, whether the model is held or not. */
static void holding_changes_no_bit(void **state)
{
    static struct copy a, b;
    struct model m;
    size_t r;
    long before;
    int i, holds;

    (void)state;
    omp_set_num_threads(1);
    for (r = 0; r < VB_COUNT(rules); r++) {
        for (holds = 0; holds < 2; holds++) {
            open_model(&m, &rules[r]);
            assert_int_equal(vb_k_sparse_save_beside(m.sparse, true), VB_OK);
            before = t_allocations;
            for (i = 0; i < 40; i++) {
                if (i % 9 == 2 && holds)
                    assert_true(vb_k_sparse_hold(m.sparse, i % 2 == 0));
                step(&m);
            }
            assert_int_equal(t_allocations, before);
            take_copy(&m, holds ? &b : &a);
            close_model(&m);
        }
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

/* ---- going on -------------------------------------------------------------------------------- */

static void restore(struct model *m, const struct copy *c)
{
    struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS];
    int n = vb_k_sparse_parts(m->sparse, parts);

    memcpy(parts[0].data, c->memory, sizeof(c->memory));
    if (n > 1)
        memcpy(parts[1].data, c->state, parts[1].n * sizeof(uint32_t));
}

static void a_restored_model_goes_on_with_the_same_bits(void **state)
{
    static struct copy saved, a, b;
    struct model m, again;
    uint32_t late;
    size_t r;
    int i;

    (void)state;
    for (r = 0; r < VB_COUNT(rules); r++) {
        open_model(&m, &rules[r]);
        open_model(&again, &rules[r]);
        for (i = 0; i < 45; i++)
            step(&m);
        take_copy(&m, &saved);
        late = vb_k_sparse_late(m.sparse);
        assert_int_equal(late, vb_k_sparse_is_lazy(&rules[r]) ? 45 : 0);
        restore(&again, &saved);
        again.step = m.step;
        again.seed = m.seed;
        assert_true(vb_k_sparse_resume(again.sparse, &schedule, again.step, late));
        for (i = 0; i < 30; i++) {
            step(&m);
            step(&again);
        }
        take_copy(&m, &a);
        take_copy(&again, &b);
        assert_memory_equal(&a, &b, sizeof(a));
        assert_false(vb_k_sparse_resume(again.sparse, &schedule, 10, 11));
        assert_false(vb_k_sparse_resume(again.sparse, &schedule, 100000, 65537));
        close_model(&m);
        close_model(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_read_as_it_was),
        cmocka_unit_test(holding_changes_no_bit),
        cmocka_unit_test(a_restored_model_goes_on_with_the_same_bits),
    };

    return T_RUN(tests);
}
