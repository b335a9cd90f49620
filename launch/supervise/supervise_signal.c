/* SPDX-License-Identifier: MIT
 *
 * Turns signals into bytes in a pipe, for a loop that polls. A signalfd works only if every thread
 * blocks the signals, which libraries that start threads when they are loaded (OpenBLAS) do not.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static const int caught[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};

/* A handler gets only the number of the signal, so the descriptor to write to must be global. */
static atomic_int pipe_end = -1;

static void on_signal(int number)
{
    unsigned char byte = (unsigned char)number;
    int saved = errno;

    /* If the pipe is full, the loop wakes up anyway, so this byte may be lost. */
    if (write(atomic_load(&pipe_end), &byte, 1) < 0)
        errno = saved;
    errno = saved;
}

/* A signal that was ignored at the start (nohup, a background job of a shell) stays ignored. */
static void catch_one(struct vb_signals *s, int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(number, NULL, &s->old[number]);
    if (s->old[number].sa_handler != SIG_IGN || number == SIGCHLD)
        sigaction(number, &action, NULL);
}

vb_status vb_signals_catch(struct vb_signals *s)
{
    size_t i;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return vb_err_sys("pipe2");
    s->fd = fds[0];
    atomic_store(&pipe_end, fds[1]);
    for (i = 0; i < VB_COUNT(caught); i++)
        catch_one(s, caught[i], on_signal);
    catch_one(s, SIGPIPE, SIG_IGN);
    return VB_OK;
}

void vb_signals_restore(const struct vb_signals *s)
{
    size_t i;

    for (i = 0; i < VB_COUNT(caught); i++)
        sigaction(caught[i], &s->old[caught[i]], NULL);
    sigaction(SIGPIPE, &s->old[SIGPIPE], NULL);
}

void vb_signals_release(struct vb_signals *s)
{
    vb_signals_restore(s);
    close(atomic_exchange(&pipe_end, -1));
    close(s->fd);
}

int vb_signals_next(struct vb_signals *s)
{
    unsigned char byte;

    return read(s->fd, &byte, 1) == 1 ? byte : 0;
}
