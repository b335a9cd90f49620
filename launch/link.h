/* SPDX-License-Identifier: MIT
 *
 * Links of a limited rate between the ranks of one host, for experiments. Each rank gets a network
 * namespace, which a virtual cable connects to a bridge in one more namespace; tc limits the rate
 * of both ends. The namespaces have no names, so they vanish with the processes that use them, in
 * whatever way these end.
 */
#ifndef VB_LAUNCH_LINK_H
#define VB_LAUNCH_LINK_H

#include "base/base.h"

struct vb_link {
    double bits_per_s;
    double latency_ms; /* added in one direction; 0: none */
};

/* Parses RATE[:LATENCY_MS]; RATE is a number of bits a second that may end with k, m or g. */
vb_status vb_link_parse(const char *text, struct vb_link *link_p, char why[VB_OPTS_WHY]);

/* Finds out whether this process may make namespaces. */
vb_status vb_link_usable(char why[VB_OPTS_WHY]);

struct vb_links;

#define VB_LINK_ADDRESS 24

/* Makes n namespaces with one link each. Rank i has the address 10.98.0.(i + 1). */
vb_status vb_links_open(const struct vb_link *link, int n, struct vb_links **links_p);
void vb_links_close(struct vb_links *links); /* accepts NULL */
void vb_links_address(int rank, char text[VB_LINK_ADDRESS]);

/* The calling thread enters the namespace of a rank, and comes back. */
vb_status vb_links_enter(const struct vb_links *links, int rank);
vb_status vb_links_leave(const struct vb_links *links);

/* For a child after fork(): enters the namespace of a rank, and mounts its own /sys, which shows
 * the interfaces of the namespace. Safe in a signal handler. Returns false if that failed. */
bool vb_links_become(const struct vb_links *links, int rank);

#endif
