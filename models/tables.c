/* SPDX-License-Identifier: MIT
 *
 * The models as tables of layers. A row contains only what does not follow from the rows before it.
 */
#include "models/models.h"

#include <string.h>

#define INPUT(channels, height, width) .c = (channels), .h = (height), .w = (width)
#define CONV_OF(what, outputs, side, step, padding)                                                \
    .kind = (what), .oc = (outputs), .kh = (side), .kw = (side), .stride = (step), .pad = (padding)
#define CONV(...) CONV_OF(VB_K_CONV, __VA_ARGS__), .relu = true
#define CONV_POOL(...) CONV_OF(VB_K_CONV_POOL, __VA_ARGS__)
#define POOL(side, step) .kind = VB_K_MAX_POOL, .kh = (side), .kw = (side), .stride = (step)
#define LINEAR(outputs, then_relu) .kind = VB_K_LINEAR, .oc = (outputs), .relu = (then_relu)
#define DROPOUT .kind = VB_K_DROPOUT, .rate = 0.5f

/* The AlexNet of torchvision: one column, no normalisation; 61,100,840 parameters. */
static const struct vb_layer_row alexnet[] = {
    {"conv1", {INPUT(3, 224, 224), CONV(64, 11, 4, 2)}},
    {"pool1", {POOL(3, 2)}},
    {"conv2", {CONV(192, 5, 1, 2)}},
    {"pool2", {POOL(3, 2)}},
    {"conv3", {CONV(384, 3, 1, 1)}},
    {"conv4", {CONV(256, 3, 1, 1)}},
    {"conv5", {CONV(256, 3, 1, 1)}},
    {"pool5", {POOL(3, 2)}},
    {"drop6", {DROPOUT}},
    {"fc6", {LINEAR(4096, true)}},
    {"drop7", {DROPOUT}},
    {"fc7", {LINEAR(4096, true)}},
    {"fc8", {LINEAR(1000, false)}},
};

/* AlexNet for images of 32 x 32: the first convolution is 3 x 3 with stride 2, and pooling is 2 x
 * 2, as is common for CIFAR-10. fc6 has 256 * 2 * 2 inputs; 23,272,266 parameters. */
static const struct vb_layer_row alexnet32[] = {
    {"conv1", {INPUT(3, 32, 32), CONV(64, 3, 2, 1)}},
    {"pool1", {POOL(2, 2)}},
    {"conv2", {CONV(192, 3, 1, 1)}},
    {"pool2", {POOL(2, 2)}},
    {"conv3", {CONV(384, 3, 1, 1)}},
    {"conv4", {CONV(256, 3, 1, 1)}},
    {"conv5", {CONV(256, 3, 1, 1)}},
    {"pool5", {POOL(2, 2)}},
    {"drop6", {DROPOUT}},
    {"fc6", {LINEAR(4096, true)}},
    {"drop7", {DROPOUT}},
    {"fc7", {LINEAR(4096, true)}},
    {"fc8", {LINEAR(10, false)}},
};

/* LeNet-5. ReLU and max pooling are part of its convolutions; 61,706 parameters. */
static const struct vb_layer_row lenet[] = {
    {"conv1", {INPUT(1, 28, 28), CONV_POOL(6, 5, 1, 2)}},
    {"conv2", {CONV_POOL(16, 5, 1, 0)}},
    {"fc3", {LINEAR(120, true)}},
    {"fc4", {LINEAR(84, true)}},
    {"fc5", {LINEAR(10, false)}},
};

/* A perceptron with two hidden layers; 669,706 parameters. */
static const struct vb_layer_row mlp[] = {
    {"fc1", {INPUT(1, 28, 28), LINEAR(512, true)}},
    {"fc2", {LINEAR(512, true)}},
    {"fc3", {LINEAR(10, false)}},
};

static const struct vb_layer_row softmax[] = {
    {"linear", {INPUT(1, 28, 28), LINEAR(10, false)}},
};

static const struct vb_layer_table tables[] = {
    {"alexnet", VB_COUNT(alexnet), alexnet, false},
    {"alexnet32", VB_COUNT(alexnet32), alexnet32, false},
    {"lenet", VB_COUNT(lenet), lenet, false},
    {"mlp", VB_COUNT(mlp), mlp, false},
    {"softmax", VB_COUNT(softmax), softmax, true},
};

const struct vb_layer_table *vb_layer_table_find(const char *name)
{
    size_t i;

    for (i = 0; i < VB_COUNT(tables); i++)
        if (strcmp(tables[i].name, name) == 0)
            return &tables[i];
    return NULL;
}

vb_status vb_layer_table_shapes(const struct vb_layer_table *table, int batch,
                                struct vb_k_shape shapes[VB_LAYERS_MAX])
{
    char why[VB_OPTS_WHY];
    vb_status st;
    int i;

    for (i = 0; i < table->n_layers; i++) {
        shapes[i] = table->layers[i].shape;
        shapes[i].n = batch;
        if (i > 0) {
            shapes[i].c = shapes[i - 1].oc;
            shapes[i].h = shapes[i - 1].oh;
            shapes[i].w = shapes[i - 1].ow;
        }
        st = vb_k_shape_finish(&shapes[i], why);
        if (st != VB_OK)
            return vb_err(st, "%s, layer %s: %s", table->name, table->layers[i].name, why);
    }
    return VB_OK;
}

size_t vb_layer_table_params(const struct vb_layer_table *table)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    size_t n = 0;
    int i;

    if (vb_layer_table_shapes(table, 1, shapes) != VB_OK)
        return 0;
    for (i = 0; i < table->n_layers; i++)
        if (vb_k_shape_weights(&shapes[i]) > 0)
            n += vb_k_shape_weights(&shapes[i]) + (size_t)shapes[i].oc;
    return n;
}
