/* SPDX-License-Identifier: MIT
 *
 * Names of models, which commands look up and list in messages. The names come from the tables in
 * engine/ and models/, so that no command has to be edited for a new model.
 */
#ifndef VB_CLI_MODEL_NAMES_H
#define VB_CLI_MODEL_NAMES_H

#include "cli/cli.h"
#include "engine/engine.h"

#define CLI_NAMES_MAX 32

struct cli_names {
    const char *list[CLI_NAMES_MAX];
    int n;
};

struct cli_names cli_model_names(void); /* names of models, for train */
struct cli_names cli_net_names(void);   /* names of nets, for bench step */
struct cli_names cli_table_names(void); /* names of tables of layers, for bench kernels */

/* Finds the model that the user has named. Returns -1 on success. Otherwise the function prints one
 * line and returns CLI_USAGE. If given is NULL, the line has the question and then all names. */
int cli_find_model(const struct cli_command *command, const char *question, const char *given,
                   const struct cli_names *names, const char **name_p);

/* Returns the model that has a net of this name, or NULL if there is none. */
const struct vb_train_model *cli_net_find(const char *name, const struct vb_train_net **net_p);

#endif
