/* SPDX-License-Identifier: MIT
 *
 * What verbena train shows.
 */
#ifndef VB_CLI_TRAIN_PRINT_H
#define VB_CLI_TRAIN_PRINT_H

#include "engine/engine.h"

/* Prints the result to standard output, as text or as the final object. */
vb_status cli_train_print(const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *result, bool json);

/* Makes the folder, and looks whether what is kept in it can be written: before training, not after
 * it. */
vb_status cli_train_may_keep(const char *dir);

/* Writes the final object to dir/run.json, and which kernels computed to dir/plan. */
vb_status cli_train_keep(const char *dir, const char *mode, const struct vb_train_opts *o,
                         const struct vb_train_result *result);

/* What a worker that joined a job at root did, where another one reports. */
vb_status cli_train_print_joined(const char *root, const struct vb_train_opts *o,
                                 const struct vb_train_result *result, bool json);

/* Where progress is shown: on standard error, or by the supervisor that reads it. */
enum cli_screen { CLI_NO_SCREEN, CLI_TERMINAL, CLI_SUPERVISOR };

/* Rewrites one line: a vb_train_watch_fn, screen is an enum cli_screen. The second wipes it out. */
void cli_train_watch(void *screen, const struct vb_train_news *news);
void cli_train_watch_end(enum cli_screen screen);

#endif
