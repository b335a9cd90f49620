/* SPDX-License-Identifier: MIT
 *
 * Names of models, as commands find them and list them in messages. They come from the tables of
 * engine/ and models/, so that a new model needs no edit of a command.
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

struct cli_names cli_model_names(void); /* models, as train takes them */
struct cli_names cli_net_names(void);   /* nets of models, as bench step takes them */
struct cli_names cli_table_names(void); /* tables of layers, as bench kernels takes them */

/* Finds the model that a command was given. Returns -1 on success. Otherwise it prints one line (if
 * given is NULL: the question, then the names) and returns CLI_USAGE. */
int cli_find_model(const struct cli_command *command, const char *question, const char *given,
                   const struct cli_names *names, const char **name_p);

/* The model that has a net of this name. Returns NULL if there is none. */
const struct vb_train_model *cli_net_find(const char *name, const struct vb_train_net **net_p);

#endif
