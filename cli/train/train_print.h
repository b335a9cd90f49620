/* SPDX-License-Identifier: MIT
 *
 * The output of verbena train.
 */
#ifndef VB_CLI_TRAIN_TRAIN_PRINT_H
#define VB_CLI_TRAIN_TRAIN_PRINT_H

#include "engine/engine.h"

/* Prints the result to standard output, as text or as the final object (JSON). */
vb_status cli_train_print(const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *result, bool json);

/* Makes the folder and checks that cli_train_keep() can write its files there. Called before
 * training, so that a bad path is found at once. */
vb_status cli_train_may_keep(const char *dir);

/* Writes the final object to dir/run.json and the choice of kernels to dir/plan. Makes the folder
 * if it is missing. */
vb_status cli_train_keep(const char *dir, const char *mode, const struct vb_train_opts *o,
                         const struct vb_train_result *result);

/* Prints what a worker did that joined the job at root, if another rank reports the result. */
vb_status cli_train_print_joined(const char *root, const struct vb_train_opts *o,
                                 const struct vb_train_result *result, bool json);

/* Where progress is shown: nowhere, on this process's terminal, or by the supervisor that reads
 * its standard error. */
enum cli_screen { CLI_NO_SCREEN, CLI_TERMINAL, CLI_SUPERVISOR };

/* The first shows progress as one line and is a vb_train_watch_fn; screen points to an enum
 * cli_screen. The second erases that line. */
void cli_train_watch(void *screen, const struct vb_train_news *news);
void cli_train_watch_end(enum cli_screen screen);

#endif
