/* SPDX-License-Identifier: MIT
 *
 * Tests the generated images, and the order in which samples are used.
 *
 * Covers: data/spec.c data/synth_images.c
 */
#include "data/data.h"
#include "tests/support/fixtures/softmax_fixture.h"
#include "tests/support/test.h"

#define N_TRAIN 6000
#define N_TEST 2000

static struct vb_dataset made(uint64_t seed, enum vb_synth_part part, int n)
{
    struct vb_dataset set;

    assert_int_equal(vb_synth_create(seed, part, n, &set), VB_OK);
    assert_int_equal(set.n, n);
    assert_int_equal(set.features, 784);
    assert_int_equal(set.classes, 10);
    return set;
}

static uint32_t digest(const struct vb_dataset *set, int first, int n)
{
    size_t row = (size_t)set->features;
    uint8_t pixels[VB_SYNTH_FEATURES], y;
    uint32_t crc = 0;
    int i;

    for (i = first; i < first + n; i++) {
        y = (uint8_t)vb_dataset_image(set, i, pixels);
        crc = vb_crc32c(crc, pixels, row);
        crc = vb_crc32c(crc, &y, 1);
    }
    return crc;
}

static void same_seed_same_images(void **state)
{
    struct vb_dataset a = made(3, VB_SYNTH_TRAIN, 200), b = made(3, VB_SYNTH_TRAIN, 500);
    struct vb_dataset c = made(4, VB_SYNTH_TRAIN, 200), d = made(3, VB_SYNTH_TEST, 200);

    (void)state;
    /* an image must not depend on the number of images */
    assert_int_equal(digest(&a, 0, 200), digest(&b, 0, 200));
    assert_int_not_equal(digest(&a, 0, 200), digest(&c, 0, 200));
    assert_int_not_equal(digest(&a, 0, 200), digest(&d, 0, 200));
    vb_dataset_destroy(&a);
    vb_dataset_destroy(&b);
    vb_dataset_destroy(&c);
    vb_dataset_destroy(&d);
    vb_dataset_destroy(&d); /* destroying a data set again must do nothing */
}

/* The images must be the same on any machine and with any compiler, because recorded results depend
 * on them. */
static void images_never_change(void **state)
{
    struct vb_dataset set = made(1, VB_SYNTH_TRAIN, 64);

    (void)state;
    assert_int_equal(digest(&set, 0, 64), 0xd379572bu);
    vb_dataset_destroy(&set);
}

static void classes_are_balanced_and_pixels_in_range(void **state)
{
    struct vb_dataset set = made(1, VB_SYNTH_TRAIN, 5000);
    uint8_t pixels[VB_SYNTH_FEATURES];
    int count[10] = {0}, i, c;
    double sum = 0;

    (void)state;
    for (i = 0; i < set.n; i++) {
        c = vb_dataset_image(&set, i, pixels);
        assert_in_range(c, 0, 9);
        count[c]++;
        for (c = 0; c < set.features; c++)
            sum += pixels[c];
    }
    for (c = 0; c < 10; c++)
        /* the expected number is 500, with a standard deviation of 21 */
        assert_in_range(count[c], 400, 600);
    sum /= 255.0 * set.n * set.features;
    assert_true(sum > 0.05 && sum < 0.5);
    vb_dataset_destroy(&set);
}

static void pick8(const struct vb_dataset *set, const uint32_t *which, int n, float *x, uint8_t *y)
{
    static uint16_t wide[N_TEST];
    int i;

    vb_dataset_pick(set, which, n, x, wide);
    for (i = 0; i < n; i++)
        y[i] = (uint8_t)wide[i];
}

/* Trains with plain SGD in batches of 100. Returns the accuracy on the test images, 0 to 1. */
static double train(const struct vb_dataset *set, const struct vb_dataset *test, int epochs)
{
    static float x[N_TEST * VB_SYNTH_FEATURES], grads[7850];
    static uint32_t order[N_TRAIN];
    struct vb_softmax *m = NULL;
    static uint8_t y[N_TEST];
    int e, i, correct;

    if (vb_softmax_create(784, 10, N_TEST, &m) != VB_OK || m == NULL)
        abort();
    for (e = 0; e < epochs; e++) {
        vb_order_fill(1, e, set->n, order);
        for (i = 0; i + 100 <= set->n; i += 100) {
            pick8(set, order + i, 100, x, y);
            vb_softmax_forward(m, x, 100);
            vb_softmax_loss(m, y, 100);
            vb_softmax_backward(m, x, 100, grads);
            vb_softmax_update(m, grads, 0.2f / 100);
        }
    }
    for (i = 0; i < test->n; i++)
        order[i] = (uint32_t)i;
    pick8(test, order, test->n, x, y);
    vb_softmax_forward(m, x, test->n);
    correct = vb_softmax_correct(m, y, test->n);
    vb_softmax_destroy(m);
    return (double)correct / test->n;
}

static void a_linear_model_learns_but_not_perfectly(void **state)
{
    struct vb_dataset set, test;
    double score;
    uint64_t seed;

    (void)state;
    for (seed = 1; seed <= 2; seed++) {
        set = made(seed, VB_SYNTH_TRAIN, N_TRAIN);
        test = made(seed, VB_SYNTH_TEST, N_TEST);
        score = train(&set, &test, 4);
        print_message("seed %d: %.4f\n", (int)seed, score);
        assert_true(score > 0.82 && score < 0.95);
        vb_dataset_destroy(&set);
        vb_dataset_destroy(&test);
    }
}

/* Trains softmax regression on colour images. The loss must fall far below the loss of random
 * guesses. */
static void soft_patterns_can_be_learned(void **state)
{
    enum { N = 600, FEATURES = 3 * 32 * 32, BATCH = 50, EPOCHS = 10 };
    static float x[BATCH * FEATURES], grads[(FEATURES + 1) * 10];
    uint32_t order[N];
    uint8_t y[BATCH];
    struct vb_dataset set;
    struct vb_softmax *m = NULL;
    double loss = 0;
    int e, i;

    (void)state;
    assert_int_equal(vb_synth_images(1, VB_SYNTH_TRAIN, N, 32, 10, &set), VB_OK);
    set.mean = 128; /* so that the pixels lie around 0 */
    if (vb_softmax_create(FEATURES, 10, BATCH, &m) != VB_OK || m == NULL)
        abort();
    for (e = 0; e < EPOCHS; e++) {
        vb_order_fill(1, e, N, order);
        for (loss = 0, i = 0; i < N; i += BATCH) {
            pick8(&set, order + i, BATCH, x, y);
            vb_softmax_forward(m, x, BATCH);
            loss += vb_softmax_loss(m, y, BATCH);
            vb_softmax_backward(m, x, BATCH, grads);
            vb_softmax_update(m, grads, 0.01f / BATCH);
        }
    }
    print_message("loss %.4f\n", loss / N);
    assert_true(loss / N < 1.0); /* random guesses have a loss of 2.3 */
    vb_softmax_destroy(m);
    vb_dataset_destroy(&set);
}

static void an_epoch_contains_every_sample_once(void **state)
{
    static uint32_t order[1000], other[1000];
    static bool seen[1000];
    int i, same = 0;

    (void)state;
    vb_order_fill(7, 0, 1000, order);
    for (i = 0; i < 1000; i++) {
        assert_true(order[i] < 1000 && !seen[order[i]]);
        seen[order[i]] = true;
    }
    vb_order_fill(7, 1, 1000, other);
    for (i = 0; i < 1000; i++)
        same += order[i] == other[i];
    assert_in_range(same, 0, 10);
    vb_order_fill(7, 0, 1000, other);
    assert_memory_equal(order, other, sizeof(order));
    vb_order_fill(7, 0, 1, order);
    assert_int_equal(order[0], 0);
}

/* For any number of ranks, the shares of the ranks must make up the whole batch, in the order of
 * ranks. */
static void shares_cover_the_batch(void **state)
{
    int world, rank, first, n, next, total;

    (void)state;
    for (total = 0; total <= 130; total += 13) {
        for (world = 1; world <= 7; world++) {
            for (next = 0, rank = 0; rank < world; rank++, next += n) {
                vb_share(total, rank, world, &first, &n);
                assert_int_equal(first, next);
                assert_true(n == total / world || n == total / world + 1);
            }
            assert_int_equal(next, total);
        }
    }
}

static void specs_are_checked(void **state)
{
    static const char *const bad[] = {"",
                                      "synt",
                                      "synth2",
                                      "synth:",
                                      "synth:0",
                                      "synth:-1",
                                      "synth:x",
                                      "synth:1000000001",
                                      "mnist",
                                      "synth:5x",
                                      ":5",
                                      "mnist:",
                                      "synth:n=",
                                      "synth:n=0",
                                      "synth:n=5,",
                                      "synth:kind=cats",
                                      "synth:m=5",
                                      "synth:=",
                                      "synth:kind=digits,n=2000000",
                                      "synth:kind=criteo,features=10",
                                      "synth:n=5,n",
                                      "csr",
                                      "libsvm:"};
    struct vb_data_spec spec = {.n_train = 7};
    char why[VB_OPTS_WHY];
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(bad); i++) {
        why[0] = '\0';
        assert_int_equal(vb_data_spec_parse(bad[i], &spec, why), VB_ERR_USAGE);
        assert_true(strlen(why) > 10 && strchr(why, '\n') == NULL);
    }
    assert_int_equal(spec.n_train, 7);
    assert_int_equal(vb_data_spec_parse("synth", &spec, why), VB_OK);
    assert_true(spec.n_train == 20000 && spec.n_test == 4000);
    assert_int_equal(vb_data_spec_parse("synth:1", &spec, why), VB_OK);
    assert_true(spec.n_train == 1 && spec.n_test == 1);
    assert_int_equal(
        vb_data_spec_parse("synth:kind=criteo,n=2000000,test=7,features=5000", &spec, why), VB_OK);
    assert_true(spec.synth == VB_SYNTH_CRITEO && spec.n_train == 2000000 && spec.n_test == 7 &&
                spec.features == 5000);
    /* has no effect, because the spec already names a kind */
    vb_data_spec_prefer(&spec, VB_SYNTH_IMAGENET);
    assert_int_equal(spec.synth, VB_SYNTH_CRITEO);
    assert_int_equal(vb_data_spec_parse("synth:test=9", &spec, why), VB_OK);
    vb_data_spec_prefer(&spec, VB_SYNTH_IMAGENET);
    assert_true(spec.synth == VB_SYNTH_IMAGENET && spec.n_train == 10000 && spec.n_test == 9);
    assert_int_equal(vb_data_spec_parse("csr:a:b", &spec, why), VB_OK);
    assert_true(spec.format == VB_DATA_CSR && strcmp(spec.path, "a:b") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_images),
        cmocka_unit_test(images_never_change),
        cmocka_unit_test(classes_are_balanced_and_pixels_in_range),
        cmocka_unit_test(a_linear_model_learns_but_not_perfectly),
        cmocka_unit_test(soft_patterns_can_be_learned),
        cmocka_unit_test(an_epoch_contains_every_sample_once),
        cmocka_unit_test(shares_cover_the_batch),
        cmocka_unit_test(specs_are_checked),
    };

    return T_RUN(tests);
}
