/* SPDX-License-Identifier: MIT
 *
 * Tests a rank whose share of a step changes. A trainer that takes share r of n trains on exactly
 * the samples of this share, in pieces of the planned size if the share is larger, and allocates
 * nothing. Also tests sums of lists.
 *
 * Covers: engine/train/train.c engine/train/train_dense_gradient.c engine/sums/list.c
 * Covers: engine/record/train_ledger.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>

#define BATCH 20
#define PLANNED 3 /* ranks that the resumed run began with */
#define WARM 2    /* steps; the first ones may allocate, such as OpenMP's team */

struct model {
    const char *name, *data, *rule;
    int input;
};

static const struct model models[] = {
    {"softmax", "synth:203", NULL, 0},
    {"softmax", "synth:203", "sgd", 0},
    {"lenet", "synth:203", NULL, 0},
    {"mlp", "synth:203", NULL, 0},
    {"alexnet", "synth:n=47,test=10", NULL, 32},
    {"sparse-lr", "synth:n=203,features=5000", NULL, 0},
    {"sparse-lr", "synth:n=203,features=5000", "sgd", 0},
};

static char folder[] = "/tmp/verbena-pieces-XXXXXX";

static void fill_opts(const struct model *m, struct vb_group *g, struct vb_train_opts *o)
{
    t_train_opts(m->name, m->data, g, o);
    o->data.input = m->input;
    o->learn.rule = m->rule;
    o->learn.lr = 0.01;
    o->length.global_batch = BATCH;
    o->length.steps = 1000;
}

/* The last piece of the step must end where the share of the step ends. */
static void check_samples(const struct vb_trainer *t, int share, int shares)
{
    int64_t made = t->step - 1, spe = t->recipe.steps_per_epoch;
    int at = (int)(made % spe) * BATCH, n = t->data.train.n - at, first, n_share;
    const struct vb_batch *b = t->batch;
    uint32_t *order = malloc((size_t)t->data.train.n * sizeof(*order));

    assert_non_null(order);
    vb_order_fill(t->o->seed, made / spe, t->data.train.n, order);
    vb_share(n < BATCH ? n : BATCH, share, shares, &first, &n_share);
    assert_int_equal(b->n_share, n_share);
    assert_int_equal(b->position + b->n, at + first + n_share);
    assert_true(b->n <= vb_trainer_batch(t) && !b->more);
    assert_memory_equal(b->which, order + b->position, (size_t)b->n * sizeof(*order));
    free(order);
}

/* Takes each share of 1 to 4, for a few steps. */
static void take_all_shares(struct vb_trainer *t)
{
    int shares, share, i;
    long before;

    for (i = 0; i < WARM; i++)
        assert_int_equal(vb_trainer_step(t), VB_OK);
    for (shares = 4; shares >= 1; shares--)
        for (share = 0; share < shares; share++)
            for (i = 0; i < 2; i++) {
                before = t_allocations;
                if (i == 0)
                    assert_int_equal(vb_trainer_repartition(t, share, shares), VB_OK);
                assert_int_equal(vb_trainer_step(t), VB_OK);
                assert_int_equal(t_allocations, before);
                assert_true(isfinite(t->loss));
                check_samples(t, share, shares);
            }
    assert_int_equal(vb_trainer_repartition(t, 0, BATCH + 1), VB_ERR_USAGE);
    assert_int_equal(vb_trainer_repartition(t, 2, 2), VB_ERR_USAGE);
}

static void a_rank_takes_any_share(void **state)
{
    struct vb_train_opts o;
    struct vb_trainer t;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(models); i++) {
        fill_opts(&models[i], NULL, &o);
        assert_int_equal(vb_trainer_open(&t, &o, NULL), VB_OK);
        assert_int_equal(vb_trainer_batch(&t), BATCH);
        take_all_shares(&t);
        vb_trainer_close(&t);
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int make_a_few_steps(struct vb_group *g, void *arg)
{
    struct vb_train_opts o;
    struct vb_trainer t;
    vb_status st;
    int i;

    fill_opts(arg, g, &o);
    o.save.dir = folder;
    st = vb_trainer_open(&t, &o, NULL);
    for (i = 0; i < 3 && st == VB_OK; i++)
        st = vb_trainer_step(&t);
    if (st == VB_OK)
        st = vb_train_save(&t, t.step, true);
    if (st == VB_OK)
        st = vb_train_saves_end(&t);
    vb_trainer_close(&t);
    return T_WRONG(st == VB_OK);
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb;
    (void)kind;
    (void)ftw;
    return remove(path);
}

/* A run of three ranks goes on with one rank, which computes three pieces. */
static void a_large_share_is_computed_in_pieces(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = PLANNED, .fn = make_a_few_steps};
    struct vb_train_opts o;
    struct vb_trainer t;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(models); i++) {
        assert_non_null(mkdtemp(folder));
        job.arg = (void *)&models[i];
        t_as_processes(&job);
        fill_opts(&models[i], NULL, &o);
        o.save.dir = folder;
        o.save.resume = true;
        assert_int_equal(vb_trainer_open(&t, &o, NULL), VB_OK);
        assert_int_equal(t.step, 3);
        assert_int_equal(vb_trainer_batch(&t), (BATCH + PLANNED - 1) / PLANNED);
        assert_int_equal(vb_trainer_share(&t), BATCH);
        take_all_shares(&t);
        vb_trainer_close(&t);
        assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
        memset(folder + strlen(folder) - 6, 'X', 6);
    }
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static void the_ledger_has_the_new_shares(void **state)
{
    static const char want[] =
        "{\"begin\":0,\"rank\":0,\"ranks\":1,\"samples\":203,\"global_batch\":20,\"seed\":5}\n"
        "{\"step\":1,\"rank\":0,\"ranks\":1,\"epoch\":0,\"samples\":20,\"ranges\":[[0,20]]}\n"
        "{\"begin\":1,\"rank\":0,\"ranks\":4,\"samples\":203,\"global_batch\":20,\"seed\":5}\n"
        "{\"step\":2,\"rank\":0,\"ranks\":4,\"epoch\":0,\"samples\":5,\"ranges\":[[35,40]]}\n";
    char path[] = "/tmp/verbena-ledger-XXXXXX", text[sizeof(want) + 1] = "";
    int fd = mkstemp(path);
    struct vb_train_opts o;
    struct vb_trainer t;

    (void)state;
    assert_true(fd >= 0);
    fill_opts(&models[0], NULL, &o);
    o.ledger = path;
    assert_int_equal(vb_trainer_open(&t, &o, NULL), VB_OK);
    assert_int_equal(vb_trainer_step(&t), VB_OK);
    assert_int_equal(vb_trainer_repartition(&t, 3, 4), VB_OK);
    assert_int_equal(vb_trainer_step(&t), VB_OK);
    vb_trainer_close(&t);
    assert_int_equal(read(fd, text, sizeof(text) - 1), sizeof(want) - 1);
    assert_string_equal(text, want);
    close(fd);
    unlink(path);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void lists_are_added_by_key(void **state)
{
    static const uint32_t a[] = {1, 4, 7, 9}, b[] = {0, 4, 9, 12}, sum[] = {0, 1, 4, 7, 9, 12};
    static const float va[] = {1, 2, 3, 4}, vb[] = {10, 20, 30, 40}, vs[] = {10, 1, 22, 3, 34, 40};
    struct vb_list list;
    size_t n;

    (void)state;
    assert_int_equal(vb_list_open(&list, VB_COUNT(sum)), VB_OK);
    n = vb_list_add(&list, 0, a, va, VB_COUNT(a));
    assert_int_equal(n, VB_COUNT(a));
    assert_memory_equal(list.keys, a, sizeof(a));
    n = vb_list_add(&list, n, b, vb, VB_COUNT(b));
    assert_int_equal(n, VB_COUNT(sum));
    assert_memory_equal(list.keys, sum, sizeof(sum));
    assert_memory_equal(list.values, vs, sizeof(vs));
    n = vb_list_add(&list, n, NULL, NULL, 0);
    assert_int_equal(n, VB_COUNT(sum));
    assert_memory_equal(list.values, vs, sizeof(vs));
    assert_int_equal(vb_list_add(&list, 0, NULL, NULL, 0), 0);
    vb_list_close(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_takes_any_share),
        cmocka_unit_test(a_large_share_is_computed_in_pieces),
        cmocka_unit_test(the_ledger_has_the_new_shares),
        cmocka_unit_test(lists_are_added_by_key),
    };

    return T_RUN(tests);
}
