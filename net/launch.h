/* SPDX-License-Identifier: MIT
 *
 * Shared by the files that read launchers' environments.
 */
#ifndef VB_LAUNCH_H
#define VB_LAUNCH_H

#include "net/net.h"

/* The rest of the way into a job whose launcher is at the other end of standard input and output:
 * place and root of launch are those of the environment. ssh_connection is what sshd says of the
 * connection, NULL if it does not. */
vb_status launch_read_stdin(struct vb_launch *launch, const char *ssh_connection);

#endif
