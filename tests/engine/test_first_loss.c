/* SPDX-License-Identifier: MIT
 *
 * Every model starts at chance: the loss of its first step, and that of an evaluation after it, is
 * within 5 % of the logarithm of the number of classes. Trains all models and nets of the tables
 * for two steps with a tiny rate, on their built-in data, and on MNIST and CIFAR-10 if they are
 * there.
 *
 * The argument "slow" stands for the networks with large images.
 *
 * Covers: models/model.c engine/train/train_models.c
 */
#include "engine/engine.h"
#include "models/models.h"
#include "tests/support/data_files.h"
#include "tests/support/test.h"

#include <math.h>

#define LARGE 224 /* images of this size belong to the slow part */

static void keep_loss(void *arg, const struct vb_train_news *news)
{
    double *first = arg;

    if (news->step == 1 && *first < 0)
        *first = news->loss;
}

static void is_chance(const char *net, const char *data, const char *what, double loss, int classes)
{
    double chance = log(classes);

    print_message("%s on %s: %s loss %.4f, chance %.4f\n", net, data, what, loss, chance);
    if (!(fabs(loss - chance) <= 0.05 * chance))
        fail_msg("%s on %s: the %s loss is %.4f, expected %.4f", net, data, what, loss, chance);
}

static void starts_at_chance(const struct vb_train_model *model, const struct vb_train_net *net,
                             const char *data, int classes)
{
    double first = -1;
    struct vb_train_opts o = {
        .model = model->name,
        .mode = VB_MODE_SINGLE,
        .eval_every = 1,
        .seed = 1,
        .data = {.text = data, .input = net->input, .test_limit = 16},
        .length = {.batch = net->input == LARGE ? 2 : 8, .steps = 2},
        .learn = {.lr = 1e-9, .warmup = -1, .momentum = -1, .weight_decay = -1, .clip = -1},
        .place.threads = 1,
        .hooks = {.watch = keep_loss, .watch_arg = &first},
        .group.world = 1};
    struct vb_train_result result;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_data_spec_parse(data, &o.data.ask.data, why), VB_OK);
    if (strncmp(data, "cifar10:", 8) == 0)
        o.data.ask.test_share = 0.2; /* the file has no part for testing */
    assert_int_equal(vb_train(&o, &result), VB_OK);
    is_chance(net->name, data, "first", first, classes);
    is_chance(net->name, data, "test", result.loss, classes);
    vb_train_result_fini(&result);
}

static int n_classes(const struct vb_train_net *net)
{
    const struct vb_layer_table *table = vb_layer_table_find(net->name);

    return table != NULL ? table->layers[table->n_layers - 1].shape.oc : 2;
}

/* Writes the specification of real data for a net. Returns false if there is none. */
static bool real_data(const struct vb_train_net *net, char *text, size_t size)
{
    bool mnist = net->synth == VB_SYNTH_DIGITS;
    const char *path = NULL;

    if (mnist || net->synth == VB_SYNTH_CIFAR)
        path = t_real(mnist ? "mnist" : "cifar10/test_batch_first1000.bin.gz");
    if (path != NULL)
        snprintf(text, size, "%s:%s", mnist ? "mnist" : "cifar10", path);
    return path != NULL;
}

static int all_nets(bool large)
{
    int n_models, i, k, tried = 0;
    const struct vb_train_model *models = vb_train_models(&n_models);
    char text[PATH_MAX + 16];

    for (i = 0; i < n_models; i++)
        for (k = 0; k < VB_TRAIN_NETS && models[i].nets[k].name != NULL; k++) {
            const struct vb_train_net *net = &models[i].nets[k];
            int classes = n_classes(net);

            if ((net->input == LARGE) != large)
                continue;
            starts_at_chance(&models[i], net, "synth:64", classes);
            if (real_data(net, text, sizeof(text)))
                starts_at_chance(&models[i], net, text, classes);
            tried++;
        }
    return tried;
}

static void small_nets_start_at_chance(void **state)
{
    (void)state;
    assert_true(all_nets(false) >= 5);
}

static void large_nets_start_at_chance(void **state)
{
    (void)state;
    assert_true(all_nets(true) >= 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_nets_start_at_chance)};
    const struct CMUnitTest slow[] = {cmocka_unit_test(large_nets_start_at_chance)};

    (void)argv;
    return argc > 1 ? T_RUN(slow) : T_RUN(tests);
}
