/* SPDX-License-Identifier: MIT
 *
 * How the times follow from one another. docs/reliability.md has a table of them.
 *
 *     beat < accuse < silent < kernel < queue pair
 *
 * Beats decide, because they are answered by a thread that does nothing else. The kernel comes
 * after them and finds what nobody watches. A queue pair comes last: its error would not tell
 * whether the rank is gone or packets were lost.
 */
#include "net/control/times.h"

#include <limits.h>
#include <stdio.h>

#define BEATS 6 /* as often a rank is asked before it counts as silent */
#define BEAT_MAX_MS 500
#define BEAT_MIN_MS 5

/* The kernel waits longer than watchers: it measures the time to an answer, which a full queue of a
 * slow link delays, and watchers the time between answers. A shorter limit than the minimum would
 * end a connection that has lost a few packets. The limit while data moves costs nothing: it is in
 * force only as long as data comes. */
#define KERNEL_TIMES 2
#define KERNEL_MIN_MS 1000
#define MOVING_TIMES 10
#define MOVING_MIN_MS 30000
#define PROBES 6          /* within the time that the kernel waits */
#define PROBE_MIN_MS 1000 /* the kernel counts in seconds */

#define GRACE_MS 2000

/* With a shorter timeout soft-RoCE resends more packets that were not lost (docs/lab.md). */
#define QP_TIMEOUT_MIN 18
#define QP_TIMEOUT_MAX 31
#define QP_RETRIES 7 /* the most that there is */
#define QP_TIMES 2   /* as long as the kernel waits */

static int at_least(double ms, int least)
{
    if (ms >= INT_MAX)
        return INT_MAX;
    return ms > least ? (int)ms : least;
}

/* How long a queue pair tries, as InfiniBand defines it; cards may take up to four times as long.
 */
static double qp_ms(int timeout)
{
    return 4.096e-3 * (double)((int64_t)1 << timeout) * QP_RETRIES;
}

static int qp_timeout_for(double ms)
{
    int timeout = QP_TIMEOUT_MIN;

    while (timeout < QP_TIMEOUT_MAX && qp_ms(timeout) < ms)
        timeout++;
    return timeout;
}

void vb_times_of(double detect_s, double patience, struct vb_times *t)
{
    double asked_ms = 1000 * (detect_s > 0 ? detect_s : VB_DETECT_S);
    double silent = asked_ms * (patience > 0 ? patience : 1);

    t->silent_ms = at_least(silent, 1);
    t->beat_ms = at_least((silent < asked_ms ? silent : asked_ms) / BEATS, BEAT_MIN_MS);
    if (t->beat_ms > BEAT_MAX_MS)
        t->beat_ms = BEAT_MAX_MS;
    t->sense_ms = t->beat_ms;
    t->accuse_ms = at_least(2 * silent / 3, 1);
    t->close_ms = t->accuse_ms;
    t->kernel_ms = at_least(KERNEL_TIMES * silent, KERNEL_MIN_MS);
    t->kernel_moving_ms = at_least(MOVING_TIMES * silent, MOVING_MIN_MS);
    t->probe_ms = 1000 * (at_least((double)t->kernel_ms / PROBES, PROBE_MIN_MS) / 1000);
    t->settle_ms = at_least((double)t->kernel_ms + t->probe_ms - t->silent_ms, 1);
    t->grace_ms = GRACE_MS;
    t->qp_timeout = qp_timeout_for(QP_TIMES * (double)t->kernel_ms);
    t->qp_retries = QP_RETRIES;
    t->qp_ms = at_least(qp_ms(t->qp_timeout), 0);
}

/* A time that must be shorter than another one. */
struct order {
    const char *name;
    int64_t ms;
    const char *than;
    int64_t than_ms;
};

static bool is_wrong(const struct order *o, char why[VB_TIMES_WHY])
{
    if (o->ms < o->than_ms)
        return false;
    snprintf(why, VB_TIMES_WHY, "%s (%lld ms) must be shorter than %s (%lld ms)", o->name,
             (long long)o->ms, o->than, (long long)o->than_ms);
    return true;
}

bool vb_times_check(const struct vb_times *t, int64_t timeout_ms, char why[VB_TIMES_WHY])
{
    const struct order orders[] = {
        {"no time", 0, "the time between heartbeats", t->beat_ms},
        {"three heartbeats", 3 * (int64_t)t->beat_ms, "the time to an accusation", t->accuse_ms},
        {"two looks at a transfer", 2 * (int64_t)t->sense_ms, "the time to an accusation",
         t->accuse_ms},
        {"the time to an accusation", t->accuse_ms, "the time of silence", t->silent_ms},
        {"the time to close connections", t->close_ms, "the time of silence", t->silent_ms},
        {"the time of silence", t->silent_ms, "the time that the kernel waits", t->kernel_ms},
        {"the time between probes", t->probe_ms, "twice the time that the kernel waits",
         2 * (int64_t)t->kernel_ms},
        {"the time that the kernel waits", t->kernel_ms, "the same while data moves",
         t->kernel_moving_ms},
        {"what lies between silence and the kernel", (int64_t)t->kernel_ms - t->silent_ms,
         "the time to settle", t->settle_ms},
        {"two heartbeats", 2 * (int64_t)t->beat_ms, "the supervisor's time of grace", t->grace_ms},
        {"the time that the kernel waits", t->kernel_ms, "the time that a queue pair tries",
         t->qp_ms},
        {"the time of silence and a heartbeat", (int64_t)t->silent_ms + t->beat_ms,
         "the time that a rank waits for others", timeout_ms > 0 ? timeout_ms : INT64_MAX},
    };
    size_t i;

    for (i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (is_wrong(&orders[i], why))
            return false;
    return true;
}

void vb_times_text(const struct vb_times *t, char text[VB_TIMES_TEXT])
{
    snprintf(text, VB_TIMES_TEXT,
             "silence %d ms: heartbeats every %d ms, accusation after %d ms, close %d ms; "
             "kernel %d ms (%d ms while data moves), probes every %d ms; settle %d ms; "
             "queue pair 4.096 us * 2^%d * %d = %d ms",
             t->silent_ms, t->beat_ms, t->accuse_ms, t->close_ms, t->kernel_ms, t->kernel_moving_ms,
             t->probe_ms, t->settle_ms, t->qp_timeout, t->qp_retries, t->qp_ms);
}
