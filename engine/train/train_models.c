/* SPDX-License-Identifier: MIT
 *
 * The models that can be trained, one row each. A new model is a row of this table and, if it is
 * dense, a table of layers in models/tables.c: docs/adding-a-model.md.
 *
 * Learning rate, clipping and the like are defaults that are known to work with the batch size of
 * the row. train_recipe.c adapts them to other batch sizes.
 */
#include "engine/train/train.h"

#include <string.h>

static const struct vb_train_model models[] = {
    {"softmax", "softmax regression", .linear = true, .batch = 100, .epochs = 5,
     .least_steps = 3000, .rule = VB_K_SGD, .schedule = VB_SCHEDULE_COSINE, .lr = 1, .lr_max = 4,
     .lr_by_rule = {1, 0.1, 0.1, 0.1},
     .nets = {{"softmax", .synth = VB_SYNTH_DIGITS, .step_batches = "25,100,400,1600"}}},
    {"sparse-lr", "sparse logistic regression", .sparse = true, .linear = true, .batch = 100,
     .epochs = 2, .least_steps = 10000, .rule = VB_K_ADAGRAD, .schedule = VB_SCHEDULE_CONSTANT,
     .lr = 0.05, .lr_max = 0.4, .lr_by_rule = {0.2, 0.02, 0.02, 0.05, 0.5},
     .nets = {{"sparse-lr", .synth = VB_SYNTH_CRITEO, .step_batches = "25,100,400,1600"}}},
    {"lenet", "LeNet-5", .progress = true, .mean = 33, .scale = 1 / 72.f, .batch = 64, .epochs = 6,
     .least_steps = 1500, .rule = VB_K_NESTEROV, .schedule = VB_SCHEDULE_COSINE, .lr = 0.02,
     .lr_max = 0.2, .lr_by_rule = {0.2, 0.02, 0.02, 0.01}, .clip = 5, .warmup_epochs = 0.5,
     .nets = {{"lenet", .synth = VB_SYNTH_DIGITS, .step_batches = "8,16,32,64,128"}}},
    {"mlp", "multi-layer perceptron", .progress = true, .batch = 100, .epochs = 5,
     .least_steps = 1500, .rule = VB_K_NESTEROV, .schedule = VB_SCHEDULE_COSINE, .lr = 0.1,
     .lr_max = 0.4, .lr_by_rule = {0.5, 0.1, 0.1, 0.01}, .clip = 5, .warmup_epochs = 0.5,
     .nets = {{"mlp", .synth = VB_SYNTH_DIGITS, .step_batches = "8,32,128,512"}}},
    {"alexnet", "AlexNet", .progress = true, .mean = 120, .scale = 1 / 72.f, .batch = 32,
     .epochs = 5, .least_steps = 300, .rule = VB_K_NESTEROV, .schedule = VB_SCHEDULE_COSINE,
     .lr = 0.01, .lr_max = 0.08, .lr_by_rule = {0.1, 0.01, 0.01, 0.003}, .decay = 5e-4, .clip = 5,
     .warmup_epochs = 0.5,
     .nets = {{"alexnet", 224, VB_SYNTH_IMAGENET, "4,8,16,32"},
              {"alexnet32", 32, VB_SYNTH_CIFAR, "8,16,32,64,128"}}},
};

const struct vb_train_model *vb_train_models(int *n_p)
{
    *n_p = (int)VB_COUNT(models);
    return models;
}

const struct vb_train_model *vb_train_model_find(const char *name)
{
    size_t i;

    for (i = 0; name != NULL && i < VB_COUNT(models); i++)
        if (strcmp(name, models[i].name) == 0)
            return &models[i];
    return NULL;
}

const struct vb_train_net *vb_train_net_of(const struct vb_train_model *model, int input)
{
    int i;

    for (i = 1; i < VB_TRAIN_NETS && model->nets[i].name != NULL; i++)
        if (model->nets[i].input == input)
            return &model->nets[i];
    return &model->nets[0];
}
