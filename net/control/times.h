/* SPDX-License-Identifier: MIT
 *
 * The times by which ranks find out that another one is gone. The user gives one of them, and all
 * others follow from it, so that nobody has to put them in order by hand.
 */
#ifndef VB_NET_CONTROL_TIMES_H
#define VB_NET_CONTROL_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VB_DETECT_S 1.0 /* the default */
#define VB_DETECT_MIN_S 0.1
#define VB_DETECT_MAX_S 600

struct vb_times {
    int silent_ms; /* a rank that answers nobody for this long is lost; all else follows from it */
    int beat_ms;   /* how often a rank asks those that it watches for a heartbeat */
    int sense_ms;  /* how often the kernel is asked whether a transfer still moves */
    int accuse_ms; /* a watcher that hears nothing for this long asks all others to look, too */
    int close_ms;  /* a process that ends closes all of its connections within this time */
    int probe_ms;  /* how often the kernel probes an idle connection to another host */
    int kernel_ms; /* how long the kernel waits for an answer of another host */
    int kernel_moving_ms; /* the same while data moves, behind which its questions wait */
    int settle_ms;        /* ranks behind a cut are found within this time of each other */
    int grace_ms;         /* how long the supervisor lets ranks say what they have found */
    int qp_timeout;       /* RDMA: a packet is sent again after 4.096 us * 2^qp_timeout */
    int qp_retries;       /* RDMA: that many times */
    int qp_ms;            /* both together: how long a queue pair tries */
};

/* Computes all times. patience multiplies those that must not be too short for a machine that is
 * slowed down. A detect_s or patience of 0 means the default. */
void vb_times_of(double detect_s, double patience, struct vb_times *times_p);

/* Checks the order of the times. timeout_ms: how long a rank waits for others, which must be longer
 * than they need to find that one is gone; 0: that is not checked. Returns false, with the two
 * times that are in the wrong order in why. */
#define VB_TIMES_WHY 256
bool vb_times_check(const struct vb_times *times, int64_t timeout_ms, char why[VB_TIMES_WHY]);

/* Writes all times as one line. */
#define VB_TIMES_TEXT 320
void vb_times_text(const struct vb_times *times, char text[VB_TIMES_TEXT]);

#endif
