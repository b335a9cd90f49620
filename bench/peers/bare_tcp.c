/* SPDX-License-Identifier: MIT
 *
 * The bare allreduce over TCP on loopback, with one connection per pair of ranks. Large vectors:
 * every rank sends its values of each share to the rank of that share, adds what it receives to
 * its own share, and sends the sums to all as they become ready, all at the same time. Small
 * vectors: every rank sends its data to all others and adds what it receives.
 */
#include "bench/peers/bare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SMALL_BYTES 16384
#define CHUNK ((size_t)512 << 10) /* maximum number of bytes to send or receive in one call */

vb_status bare_tcp_connect(int ranks, int fds[BARE_RANKS_MAX][BARE_RANKS_MAX])
{
    vb_status st = VB_OK;
    int i, j, pair[2];

    for (i = 0; i < ranks; i++)
        for (j = 0; j < i && st == VB_OK; j++) {
            st = bare_tcp_pair(NULL, pair);
            fds[i][j] = pair[0];
            fds[j][i] = pair[1];
        }
    return st;
}

vb_status bare_tcp_open(struct bare *b, int fds[BARE_RANKS_MAX][BARE_RANKS_MAX])
{
    int i, j;

    for (i = 0; i < b->peer.ranks; i++)
        for (j = 0; j < b->peer.ranks; j++)
            if (i != j && i != b->peer.rank)
                close(fds[i][j]); /* otherwise the other ranks do not notice when a rank dies */
    for (j = 0; j < b->peer.ranks; j++) {
        b->fds[j] = j != b->peer.rank ? fds[b->peer.rank][j] : -1;
        b->scratch[j] = malloc(CHUNK);
        if (b->scratch[j] == NULL)
            return vb_err_sys("malloc");
    }
    return VB_OK;
}

/* Returns the number of bytes sent, 0 if sending would block. Exits if the peer is gone. */
static size_t push(int fd, const void *from, size_t len)
{
    ssize_t n = send(fd, from, len < CHUNK ? len : CHUNK, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        _exit(1);
    return n > 0 ? (size_t)n : 0;
}

static size_t pull(int fd, void *to, size_t len)
{
    ssize_t n = recv(fd, to, len < CHUNK ? len : CHUNK, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        _exit(1);
    return n > 0 ? (size_t)n : 0;
}

static void small(struct bare *b, size_t n)
{
    size_t len = n * sizeof(float), at;
    int r;

    for (r = 0; r < b->peer.ranks; r++)
        for (at = 0; r != b->peer.rank && at < len;)
            at += push(b->fds[r], (char *)b->peer.data + at, len - at);
    for (r = 0; r < b->peer.ranks; r++) {
        size_t got;

        for (at = 0; r != b->peer.rank && at < len; at += got) {
            got = pull(b->fds[r], b->scratch[r] + at, len - at);
            if (got == 0)
                bare_relax(b);
        }
        if (r != b->peer.rank)
            bare_add(b->peer.data, (float *)(void *)b->scratch[r], n);
    }
}

/* The exchange with one other rank, in bytes. First, each sends its values of the other's share
 * and receives the other's values of its own. Then both send the sums of their shares. */
struct line {
    char *theirs; /* the share of the other rank, in this rank's data */
    size_t their_len;
    size_t sent, came;
    size_t kept; /* number of bytes in the scratch buffer that are only a part of a float */
};

struct run {
    struct bare *b;
    char *mine; /* the share of this rank */
    size_t my_len, summed;
    struct line lines[BARE_RANKS_MAX];
};

static size_t send_some(struct run *run, int r)
{
    struct line *l = &run->lines[r];
    size_t n;

    if (l->sent < l->their_len)
        n = push(run->b->fds[r], l->theirs + l->sent, l->their_len - l->sent);
    else if (l->sent - l->their_len < run->summed)
        n = push(run->b->fds[r], run->mine + (l->sent - l->their_len),
                 run->summed - (l->sent - l->their_len));
    else
        return 0;
    l->sent += n;
    return n;
}

static size_t take_some(struct run *run, int r)
{
    struct line *l = &run->lines[r];
    char *scratch = run->b->scratch[r];
    size_t n, whole, done = l->came - l->kept;

    if (l->came >= run->my_len) {
        n = l->came - run->my_len; /* number of bytes of the other rank's sums */
        if (n == l->their_len)
            return 0;
        n = pull(run->b->fds[r], l->theirs + n, l->their_len - n);
        l->came += n;
        return n;
    }
    n = run->my_len - l->came;
    if (n > CHUNK - l->kept)
        n = CHUNK - l->kept;
    n = pull(run->b->fds[r], scratch + l->kept, n);
    whole = (l->kept + n) / sizeof(float);
    bare_add((float *)(void *)(run->mine + done), (float *)(void *)scratch, whole);
    l->kept = (l->kept + n) % sizeof(float);
    memcpy(scratch, scratch + whole * sizeof(float), l->kept);
    l->came += n;
    return n;
}

/* Finds how many bytes of this rank's share all ranks have contributed to. */
static void look_what_is_summed(struct run *run)
{
    size_t least = run->my_len, done;
    int r;

    for (r = 0; r < run->b->peer.ranks; r++) {
        if (r == run->b->peer.rank)
            continue;
        done = run->lines[r].came >= run->my_len ? run->my_len
                                                 : run->lines[r].came - run->lines[r].kept;
        if (done < least)
            least = done;
    }
    run->summed = least;
}

static bool finished(const struct run *run)
{
    size_t all;
    int r;

    for (r = 0; r < run->b->peer.ranks; r++) {
        all = run->lines[r].their_len + run->my_len;
        if (r != run->b->peer.rank && (run->lines[r].sent < all || run->lines[r].came < all))
            return false;
    }
    return true;
}

static void large(struct bare *b, size_t n)
{
    struct run run = {.b = b};
    size_t first, moved;
    int r;

    run.my_len = sizeof(float) * bare_share(b, n, b->peer.rank, &first);
    run.mine = (char *)(b->peer.data + first);
    for (r = 0; r < b->peer.ranks; r++) {
        run.lines[r].their_len = sizeof(float) * bare_share(b, n, r, &first);
        run.lines[r].theirs = (char *)(b->peer.data + first);
    }
    while (!finished(&run)) {
        for (moved = 0, r = 0; r < b->peer.ranks; r++)
            if (r != b->peer.rank) {
                moved += send_some(&run, r);
                moved += take_some(&run, r);
            }
        look_what_is_summed(&run);
        if (moved == 0)
            bare_relax(b);
    }
}

void bare_tcp_allreduce(struct peer *p, size_t n_elems)
{
    if (n_elems * sizeof(float) <= SMALL_BYTES)
        small((struct bare *)p, n_elems);
    else
        large((struct bare *)p, n_elems);
}
