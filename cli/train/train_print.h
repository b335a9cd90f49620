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

/* Prints the figures of a worker that joined the job at root. Called if another rank reports the
 * result. */
vb_status cli_train_print_joined(const char *root, const struct vb_train_opts *o,
                                 const struct vb_train_result *result, bool json);

/* The place where progress is shown: nowhere, on this process's terminal, or by the supervisor,
 * which reads this process's standard error. */
enum cli_screen { CLI_NO_SCREEN, CLI_TERMINAL, CLI_SUPERVISOR };

/* cli_train_watch() shows progress as one line. It is a vb_train_watch_fn, and screen points to an
 * enum cli_screen. cli_train_watch_end() erases the line. */
void cli_train_watch(void *screen, const struct vb_train_news *news);
void cli_train_watch_end(enum cli_screen screen);

#endif
