/* SPDX-License-Identifier: MIT
 *
 * What TensorBoard shows of a run beside its curves: the model as a graph, and the options as
 * hyper-parameters.
 */
#ifndef VB_RECORD_BOARD_DESCRIBE_H
#define VB_RECORD_BOARD_DESCRIBE_H

#include "record/board/events.h"

/* A node of the graph. Names with a slash are shown inside of a box of the first part. */
struct vb_board_node {
    char name[64], op[32];
    char inputs[4][64]; /* names of other nodes; "": none */
    int64_t dims[4];    /* of the output */
    int n_dims;
    char note[96]; /* what else there is to say: "5 x 5, stride 1"; "": nothing */
};

/* Appends a node to a GraphDef message. vb_board_graph_end() completes the message. */
void vb_board_graph_node(struct vb_proto *graph, const struct vb_board_node *node);
void vb_board_graph_end(struct vb_proto *graph);

/* An option of the run. */
struct vb_board_param {
    char name[32];
    char text[160]; /* "": the option is a number */
    double number;
};

enum vb_board_status { VB_BOARD_SUCCESS = 1, VB_BOARD_FAILURE = 2 };

/* The messages of the HParams plugin: which options and results there are; the options of this run;
 * its end. */
void vb_board_experiment(struct vb_events *ev, double wall_s, const struct vb_board_param *params,
                         int n_params, const char *const *metrics, int n_metrics);
void vb_board_session_begin(struct vb_events *ev, double wall_s,
                            const struct vb_board_param *params, int n_params);
void vb_board_session_end(struct vb_events *ev, double wall_s, enum vb_board_status status);

#endif
