/* SPDX-License-Identifier: MIT
 *
 * A handler of signals has no argument of ours, so the signal that came is global.
 */
#include "base/base.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_int came;

static void on_signal(int number)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&came, &none, number))
        return;
    signal(number, SIG_DFL);
    raise(number); /* takes effect when this handler returns */
}

void vb_interrupt_catch(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    size_t i;

    sigemptyset(&action.sa_mask);
    for (i = 0; i < VB_COUNT(caught); i++)
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
}

int vb_interrupted(void)
{
    return atomic_load_explicit(&came, memory_order_relaxed);
}
