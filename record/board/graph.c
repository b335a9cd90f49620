/* SPDX-License-Identifier: MIT
 *
 * The numbers of the fields are those of graph.proto, node_def.proto, attr_value.proto and
 * tensor_shape.proto.
 */
#include "record/board/describe.h"

enum { NODE_NAME = 1, NODE_OP = 2, NODE_INPUT = 3, NODE_ATTR = 5 };
enum { ATTR_LIST = 1, ATTR_S = 2, LIST_SHAPE = 7 };

static void put_shape(struct vb_proto *p, int field, const int64_t *dims, int n)
{
    size_t shape = vb_proto_begin(p, field), dim;
    int i;

    for (i = 0; i < n; i++) {
        dim = vb_proto_begin(p, 2);
        vb_proto_int(p, 1, (uint64_t)dims[i]);
        vb_proto_end(p, dim);
    }
    vb_proto_end(p, shape);
}

/* TensorBoard writes the shapes of _output_shapes at the edges of the graph. */
static void put_output_shape(struct vb_proto *p, const struct vb_board_node *node)
{
    size_t attr = vb_proto_begin(p, NODE_ATTR), value, list;

    vb_proto_text(p, 1, "_output_shapes");
    value = vb_proto_begin(p, 2);
    list = vb_proto_begin(p, ATTR_LIST);
    put_shape(p, LIST_SHAPE, node->dims, node->n_dims);
    vb_proto_end(p, list);
    vb_proto_end(p, value);
    vb_proto_end(p, attr);
}

static void put_note(struct vb_proto *p, const char *note)
{
    size_t attr = vb_proto_begin(p, NODE_ATTR), value;

    vb_proto_text(p, 1, "note");
    value = vb_proto_begin(p, 2);
    vb_proto_text(p, ATTR_S, note);
    vb_proto_end(p, value);
    vb_proto_end(p, attr);
}

void vb_board_graph_node(struct vb_proto *graph, const struct vb_board_node *node)
{
    size_t begin = vb_proto_begin(graph, 1);
    size_t i;

    vb_proto_text(graph, NODE_NAME, node->name);
    vb_proto_text(graph, NODE_OP, node->op);
    for (i = 0; i < VB_COUNT(node->inputs); i++)
        if (node->inputs[i][0] != '\0')
            vb_proto_text(graph, NODE_INPUT, node->inputs[i]);
    put_output_shape(graph, node);
    if (node->note[0] != '\0')
        put_note(graph, node->note);
    vb_proto_end(graph, begin);
}

void vb_board_graph_end(struct vb_proto *graph)
{
    size_t versions = vb_proto_begin(graph, 4);

    vb_proto_int(graph, 1, 22); /* producer: the oldest whose graphs are read without changes */
    vb_proto_end(graph, versions);
}
