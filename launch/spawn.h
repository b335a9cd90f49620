/* SPDX-License-Identifier: MIT
 *
 * A single child process: another run of this program, or a command such as ip. For the ranks of a
 * job there is the supervisor (supervise.h).
 */
#ifndef VB_LAUNCH_SPAWN_H
#define VB_LAUNCH_SPAWN_H

#include "base/base.h"

#include <sys/types.h>

struct vb_spawn_opts {
    const char *program; /* looked up in PATH; NULL: the program that is running */
    char *const *argv;   /* the program's name first, NULL last */
    int in_fd;           /* standard input; -1: none */
    int out_fd;          /* standard output and standard error */
    int net_fd;          /* network namespace of the child; -1: that of this process */
};

/* Starts a child as the leader of a process group, so that a Ctrl-C does not reach it. The kernel
 * kills the child if the calling thread ends. The caller closes its descriptors. A program that
 * cannot be executed ends with exit code 127. */
vb_status vb_spawn_start(const struct vb_spawn_opts *o, pid_t *pid_p);

/* Waits for a child up to wait_ms. Returns true if it has ended; *code_p is then its exit code, or
 * 128 plus the number of the signal that killed it. */
bool vb_spawn_wait(pid_t pid, int wait_ms, int *code_p);

/* Asks the child and its group to end, kills them after grace_ms, and waits for the child. */
void vb_spawn_stop(pid_t pid, int grace_ms);

#endif
