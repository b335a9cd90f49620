/* SPDX-License-Identifier: MIT
 *
 * Default options for a short training run in a group that a test has opened.
 */
#ifndef VB_TESTS_SUPPORT_TRAIN_OPTS_FIXTURE_H
#define VB_TESTS_SUPPORT_TRAIN_OPTS_FIXTURE_H

#include "engine/engine.h"

/* Fills in the options. g: NULL if there is only one rank. The test must still set the batch and
 * the number of steps. */
static inline void t_train_opts(const char *model, const char *data, struct vb_group *g,
                                struct vb_train_opts *o)
{
    char why[VB_OPTS_WHY];

    *o = (struct vb_train_opts){
        .model = model,
        .data = {.text = data, .test_limit = 10},
        .learn = {.warmup = -1, .momentum = -1, .weight_decay = -1, .clip = -1},
        .seed = 5,
        .place.threads = 1,
        .open_group = g};
    o->group.rank = g != NULL ? vb_group_rank(g) : 0;
    o->group.world = g != NULL ? vb_group_world(g) : 1;
    if (vb_data_spec_parse(data, &o->data.ask.data, why) != VB_OK)
        fprintf(stderr, "%s\n", why);
}

#endif
