/* SPDX-License-Identifier: MIT
 *
 * The models as tables of layers. A row contains only what does not follow from the rows before it.
 */
#include "models/models.h"

#include <string.h>

#define CONV(name, outputs, side, step, padding)                                                   \
    {                                                                                              \
        (name),                                                                                    \
        {                                                                                          \
            .kind = VB_K_CONV, .oc = (outputs), .kh = (side), .kw = (side), .stride = (step),      \
            .pad = (padding), .relu = true                                                         \
        }                                                                                          \
    }
#define INPUT(channels, height, width) .c = (channels), .h = (height), .w = (width)
#define POOL(name, side, step)                                                                     \
    {                                                                                              \
        (name),                                                                                    \
        {                                                                                          \
            .kind = VB_K_MAX_POOL, .kh = (side), .kw = (side), .stride = (step)                    \
        }                                                                                          \
    }
#define CONV_POOL(name, outputs, side, step, padding)                                              \
    {                                                                                              \
        (name),                                                                                    \
        {                                                                                          \
            .kind = VB_K_CONV_POOL, .oc = (outputs), .kh = (side), .kw = (side), .stride = (step), \
            .pad = (padding)                                                                       \
        }                                                                                          \
    }
#define LINEAR(name, outputs, then_relu)                                                           \
    {                                                                                              \
        (name),                                                                                    \
        {                                                                                          \
            .kind = VB_K_LINEAR, .oc = (outputs), .relu = (then_relu)                              \
        }                                                                                          \
    }
#define DROPOUT(name)                                                                              \
    {                                                                                              \
        (name),                                                                                    \
        {                                                                                          \
            .kind = VB_K_DROPOUT, .rate = 0.5f                                                     \
        }                                                                                          \
    }

/* The same as torchvision's: one column, no normalisation; 61,100,840 parameters. */
static const struct vb_layer_row alexnet[] = {
    {"conv1",
     {.kind = VB_K_CONV,
      INPUT(3, 224, 224),
      .oc = 64,
      .kh = 11,
      .kw = 11,
      .stride = 4,
      .pad = 2,
      .relu = true}},
    POOL("pool1", 3, 2),
    CONV("conv2", 192, 5, 1, 2),
    POOL("pool2", 3, 2),
    CONV("conv3", 384, 3, 1, 1),
    CONV("conv4", 256, 3, 1, 1),
    CONV("conv5", 256, 3, 1, 1),
    POOL("pool5", 3, 2),
    DROPOUT("drop6"),
    LINEAR("fc6", 4096, true),
    DROPOUT("drop7"),
    LINEAR("fc7", 4096, true),
    LINEAR("fc8", 1000, false),
};

/* AlexNet for images of 32 x 32: the first convolution is 3 x 3 with stride 2, and pooling is 2 x
 * 2, as is common for CIFAR-10. fc6 has 256 * 2 * 2 inputs; 23,272,266 parameters. */
static const struct vb_layer_row alexnet32[] = {
    {"conv1",
     {.kind = VB_K_CONV,
      INPUT(3, 32, 32),
      .oc = 64,
      .kh = 3,
      .kw = 3,
      .stride = 2,
      .pad = 1,
      .relu = true}},
    POOL("pool1", 2, 2),
    CONV("conv2", 192, 3, 1, 1),
    POOL("pool2", 2, 2),
    CONV("conv3", 384, 3, 1, 1),
    CONV("conv4", 256, 3, 1, 1),
    CONV("conv5", 256, 3, 1, 1),
    POOL("pool5", 2, 2),
    DROPOUT("drop6"),
    LINEAR("fc6", 4096, true),
    DROPOUT("drop7"),
    LINEAR("fc7", 4096, true),
    LINEAR("fc8", 10, false),
};

/* LeNet-5 with ReLU and max pooling, which are part of the convolution layers; 61,706
 * parameters. */
static const struct vb_layer_row lenet[] = {
    {"conv1",
     {.kind = VB_K_CONV_POOL, INPUT(1, 28, 28), .oc = 6, .kh = 5, .kw = 5, .stride = 1, .pad = 2}},
    CONV_POOL("conv2", 16, 5, 1, 0),
    LINEAR("fc3", 120, true),
    LINEAR("fc4", 84, true),
    LINEAR("fc5", 10, false),
};

/* A perceptron with two hidden layers; 669,706 parameters. */
static const struct vb_layer_row mlp[] = {
    {"fc1", {.kind = VB_K_LINEAR, INPUT(1, 28, 28), .oc = 512, .relu = true}},
    LINEAR("fc2", 512, true),
    LINEAR("fc3", 10, false),
};

static const struct vb_layer_row softmax[] = {
    {"linear", {.kind = VB_K_LINEAR, INPUT(1, 28, 28), .oc = 10}},
};

static const struct vb_layer_table tables[] = {
    {"alexnet", VB_COUNT(alexnet), alexnet, false},
    {"alexnet32", VB_COUNT(alexnet32), alexnet32, false},
    {"lenet", VB_COUNT(lenet), lenet, false},
    {"mlp", VB_COUNT(mlp), mlp, false},
    {"softmax", VB_COUNT(softmax), softmax, true},
};

const struct vb_layer_table *vb_layer_tables(int *n_p)
{
    *n_p = (int)VB_COUNT(tables);
    return tables;
}

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
