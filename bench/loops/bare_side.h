/* SPDX-License-Identifier: MIT
 *
 * Declarations that the bare loops share: two processes, each on its own cpu, and a connection
 * between them.
 */
#ifndef VB_BENCH_LOOPS_BARE_SIDE_H
#define VB_BENCH_LOOPS_BARE_SIDE_H

#include "base/base.h"

#include <sys/socket.h>

enum bare_how { BARE_SPIN = MSG_DONTWAIT, BARE_SLEEP = 0 };

/* The state that all bare loops have. It must be the first member of a loop's state. */
struct bare_side {
    size_t len;       /* length of a payload */
    int which;        /* 0: the parent, 1: the child */
    bool crowded;     /* both processes share one cpu, so they yield while waiting */
    int fd;           /* tcp: this process's end of the connection */
    char *const *via; /* tcp: two namespaces, and an address in the second; NULL: loopback */
    int64_t wrong;    /* number of payloads that arrived with wrong contents */
};

typedef void (*bare_side_fn)(void *side);

/* Runs parent(side) here and child(side) in a child. Fails if the child counted wrong payloads. */
vb_status bare_run(struct bare_side *side, bare_side_fn parent, bare_side_fn child);

/* Like bare_run(), with a TCP connection between the two processes. */
vb_status bare_run_tcp(struct bare_side *side, bare_side_fn parent, bare_side_fn child);

/* Sends a whole payload, or receives one. Returns false if the other side has finished. */
bool bare_move(const struct bare_side *side, char *data, bool out, enum bare_how how);

void bare_side_relax(const struct bare_side *side);

/* Writes the round's number to both ends of a payload; checks that it is there. */
void bare_stamp(char *payload, size_t len, uint32_t round);
bool bare_stamped(const char *payload, size_t len, uint32_t round);

#endif
