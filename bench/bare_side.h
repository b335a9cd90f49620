/* SPDX-License-Identifier: MIT
 *
 * What the bare loops share: two processes, a cpu each, and a connection between them.
 */
#ifndef VB_BENCH_BARE_SIDE_H
#define VB_BENCH_BARE_SIDE_H

#include "base/base.h"

#include <sys/socket.h>

enum bare_how { BARE_SPIN = MSG_DONTWAIT, BARE_SLEEP = 0 };

/* The first member of what a loop works on. */
struct bare_side {
    size_t len;       /* of a payload */
    int which;        /* 0: the parent, 1: the child */
    bool crowded;     /* one cpu for both: give way while waiting */
    int fd;           /* tcp: this process's end */
    char *const *via; /* tcp: two namespaces and an address of the second; NULL: loopback */
    int64_t wrong;    /* payloads that came otherwise than they were sent */
};

typedef void (*bare_side_fn)(void *side);

/* Runs one function here and the other in a child; side is what both begin with. Fails where the
 * child counted wrong ones. */
vb_status bare_run(struct bare_side *side, bare_side_fn parent, bare_side_fn child);

/* The same, with a connection. */
vb_status bare_run_tcp(struct bare_side *side, bare_side_fn parent, bare_side_fn child);

/* Sends or receives all of a payload. False: the other side is done. */
bool bare_move(const struct bare_side *side, char *data, bool out, enum bare_how how);

void bare_side_relax(const struct bare_side *side);

/* The round's number is at both ends of a payload. */
void bare_stamp(char *payload, size_t len, uint32_t round);
bool bare_stamped(const char *payload, size_t len, uint32_t round);

#endif
