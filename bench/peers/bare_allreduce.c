/* SPDX-License-Identifier: MIT
 *
 * bare_allreduce shm|tcp RANKS SIZES SECONDS: measures an allreduce without requests, deadlines
 * and checks: what this machine can do. Our allreduce is compared with it.
 */
#include "bench/peers/bare.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void barrier(struct peer *p)
{
    bare_meet((struct bare *)p);
}

static void max(struct peer *p, double *values, int n)
{
    struct bare *b = (struct bare *)p;
    int i, r;

    memcpy(b->shared[p->rank]->samples, values, (size_t)n * sizeof(*values));
    bare_meet(b);
    for (r = 0; r < p->ranks && p->rank == 0; r++)
        for (i = 0; i < n; i++)
            if (b->shared[r]->samples[i] > values[i])
                values[i] = b->shared[r]->samples[i];
    bare_meet(b);
}

static int be_rank(struct bare *b, int rank, const struct peer_args *args,
                   int fds[BARE_RANKS_MAX][BARE_RANKS_MAX], bool tcp)
{
    b->peer.rank = rank;
    b->peer.data = b->data[rank];
    b->crowded = !bare_pin(rank, b->peer.ranks);
    if (tcp && bare_tcp_open(b, fds) != VB_OK)
        return 1;
    return peer_measure(&b->peer, args);
}

static int run(struct bare *b, const struct peer_args *args, bool tcp)
{
    int fds[BARE_RANKS_MAX][BARE_RANKS_MAX], i, code, status;
    pid_t pid;

    if (bare_map(b, args->largest) != VB_OK)
        return 1;
    if (tcp && bare_tcp_connect(b->peer.ranks, fds) != VB_OK)
        return 1;
    for (i = 1; i < b->peer.ranks; i++) {
        pid = fork();
        if (pid < 0)
            return vb_err_sys("fork") != VB_OK;
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(be_rank(b, i, args, fds, tcp));
        }
    }
    code = be_rank(b, 0, args, fds, tcp);
    for (i = 1; i < b->peer.ranks; i++)
        if (wait(&status) < 0 || status != 0)
            code = 1;
    return code;
}

int main(int argc, char **argv)
{
    static struct bare b = {.peer = {.name = "bare", .barrier = barrier, .max = max}};
    bool tcp = argc == 5 && strcmp(argv[1], "tcp") == 0;
    struct peer_args args;
    int64_t ranks;
    int code;

    if (argc != 5 || (!tcp && strcmp(argv[1], "shm") != 0) || !vb_parse_int(argv[2], &ranks) ||
        ranks < 1 || ranks > BARE_RANKS_MAX) {
        fprintf(stderr, "usage: bare_allreduce shm|tcp RANKS SIZES SECONDS\n");
        return 2;
    }
    code = peer_parse(argv[3], argv[4], &args);
    if (code != 0)
        return code;
    b.peer.transport = argv[1];
    b.peer.ranks = (int)ranks;
    b.peer.allreduce = tcp ? bare_tcp_allreduce : bare_shm_allreduce;
    return run(&b, &args, tcp);
}
