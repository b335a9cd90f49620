/* SPDX-License-Identifier: MIT
 *
 * mpi NAME TRANSPORT SIZES SECONDS: measures the allreduce of an MPI library, whose mpirun starts
 * this program. Built once with Open MPI and once with MPICH, if they are installed.
 */
#include "bench/peers/peer.h"

#include <mpi.h>

#include <stdio.h>
#include <unistd.h>

#define FINALIZE_S 5 /* MPI_Finalize takes milliseconds if it ends at all */

static void allreduce(struct peer *p, size_t n)
{
    MPI_Allreduce(MPI_IN_PLACE, p->data, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(struct peer *p)
{
    (void)p;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void max(struct peer *p, double *values, int n)
{
    if (p->rank == 0)
        MPI_Reduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    else
        MPI_Reduce(values, NULL, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
}

static int run(struct peer *p, const struct peer_args *args)
{
    int code;

    MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p->ranks);
    p->data = peer_alloc(args->largest);
    if (p->data == NULL) {
        perror("aligned_alloc");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    code = peer_measure(p, args);
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD); /* only rank 0 receives the result */
    return code;
}

/* Debian's MPICH over TCP: one rank may wait in MPI_Finalize for data of another one that no longer
 * reads any. The results are complete by then, so SIGALRM ends a rank that does not return. */
static void finalize(void)
{
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    alarm(FINALIZE_S);
    MPI_Finalize();
    alarm(0);
}

int main(int argc, char **argv)
{
    struct peer p = {.allreduce = allreduce, .barrier = barrier, .max = max};
    struct peer_args args;
    int code;

    if (argc != 5) {
        fprintf(stderr, "usage: mpi NAME TRANSPORT SIZES SECONDS\n");
        return 2;
    }
    p.name = argv[1];
    p.transport = argv[2];
    code = peer_parse(argv[3], argv[4], &args);
    if (code != 0)
        return code;
    MPI_Init(&argc, &argv);
    code = run(&p, &args);
    finalize();
    return code;
}
