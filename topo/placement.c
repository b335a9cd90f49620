/* SPDX-License-Identifier: MIT
 *
 * Chooses where the threads of each rank run.
 *
 * Every rank gets a *block*: the same number of neighbouring cores, which no other rank gets.
 * Blocks lie within *parts* of the machine: cores that share an L3 cache, a NUMA node, a package,
 * or the whole machine. The placement uses the smallest parts into which all blocks fit. If there
 * are fewer cores than ranks, a block is a whole package, several ranks share the block, and no
 * thread is pinned to one core.
 *
 * If there are enough cores, each compute thread has a core to itself and runs on the core's first
 * cpu. The other cpus of a core (hyperthreads) are for the progress thread and the loader thread.
 * Compute threads use these other cpus only if there are more compute threads than cores.
 */
#include "topo/topo_priv.h"

#include <stdlib.h>
#include <string.h>

/* If the user gives no number of threads, a rank with at least this number of cores keeps one
 * core for its progress thread. */
#define CORES_TO_SPARE_ONE 8

/* The blocks of a level are large enough if they have at least 3/4 of the cores that a rank would
 * have if all cores were split evenly. */
#define ENOUGH(block, even) ((block)*4 >= (even)*3)

struct shape {
    enum level level;
    int block;   /* number of cores per rank */
    int threads; /* number of compute threads per rank */
};

/* A part of the machine: a group of neighbouring cores. */
struct part {
    int first;
    int n_cores;
    int64_t room;  /* the number of blocks that fit into the part */
    int64_t taken; /* the number of blocks assigned to the part */
};

/* ---- parts and blocks ------------------------------------------------------------------------ */

/* Cores in different parts of a larger level are never in the same part. */
static bool same_part(const struct core *a, const struct core *b, enum level level)
{
    int l;

    for (l = (int)level; l < N_LEVELS; l++)
        if (a->part[l] != b->part[l])
            return false;
    return true;
}

/* Splits the cores into the parts of a level. Returns the number of parts. */
static int cut_parts(const struct vb_topo *topo, enum level level, int block, struct part *parts)
{
    int i, n = 0;

    for (i = 0; i < topo->n_cores; i++) {
        if (i == 0 || !same_part(&topo->cores[i], &topo->cores[i - 1], level))
            parts[n++] = (struct part){.first = i};
        parts[n - 1].n_cores++;
    }
    for (i = 0; i < n; i++)
        parts[i].room = parts[i].n_cores / block;
    return n;
}

/* Returns the number of blocks that fit into the parts of a level. */
static int room_for(const struct vb_topo *topo, enum level level, int block, struct part *parts)
{
    int n = cut_parts(topo, level, block, parts), room = 0, i;

    for (i = 0; i < n; i++)
        room += (int)parts[i].room;
    return room;
}

/* Assigns each rank to the part that is the emptiest in proportion to the size of the part. */
static void deal_ranks(struct part *parts, int n_parts, int ranks)
{
    int best, i;

    for (; ranks > 0; ranks--) {
        best = -1;
        for (i = 0; i < n_parts; i++) {
            if (parts[i].taken >= parts[i].room)
                continue;
            if (best < 0 ||
                (parts[i].taken + 1) * parts[best].room < (parts[best].taken + 1) * parts[i].room)
                best = i;
        }
        parts[best].taken++;
    }
}

/* Returns the largest number of cores per block, up to even, with which a block for each rank fits
 * into the parts of a level, or 0. */
static int largest_block(const struct vb_topo *topo, enum level level, int ranks, int even,
                         struct part *parts)
{
    int block;

    for (block = even; block > 0; block--)
        if (room_for(topo, level, block, parts) >= ranks)
            return block;
    return 0;
}

static void shape_by_machine(const struct vb_topo *topo, int ranks, struct part *parts,
                             struct shape *shape)
{
    int even = topo->n_cores / ranks, level;

    for (level = LEVEL_L3; level < LEVEL_MACHINE; level++) {
        shape->block = largest_block(topo, (enum level)level, ranks, even, parts);
        if (shape->block > 0 && ENOUGH(shape->block, even))
            break;
    }
    if (level == LEVEL_MACHINE)
        shape->block = even;
    shape->level = (enum level)level;
}

/* The kernel would only throttle more threads than the CPU time that the cgroup grants. */
static int limit_by_quota(const struct vb_topo *topo, int ranks, int threads)
{
    int granted = (int)(topo->facts.cpu_quota / ranks);

    if (topo->facts.cpu_quota <= 0 || granted >= threads)
        return threads;
    return granted < 1 ? 1 : granted;
}

static void shape_by_threads(const struct vb_topo *topo, const struct vb_placement_want *want,
                             struct part *parts, struct shape *shape)
{
    int level, block;

    for (level = LEVEL_L3; level <= LEVEL_MACHINE; level++) {
        for (block = want->threads + (want->progress ? 1 : 0); block >= want->threads; block--) {
            if (room_for(topo, (enum level)level, block, parts) >= want->ranks) {
                shape->level = (enum level)level;
                shape->block = block;
                return;
            }
        }
    }
}

/* Needs at least as many cores as ranks. */
static void choose_shape(const struct vb_topo *topo, const struct vb_placement_want *want,
                         struct part *parts, struct shape *shape)
{
    shape->threads = want->threads;
    if (want->threads > 0 && (int64_t)want->ranks * want->threads <= topo->n_cores) {
        shape_by_threads(topo, want, parts, shape);
        return;
    }
    shape_by_machine(topo, want->ranks, parts, shape);
    if (want->threads > 0)
        return;
    shape->threads = shape->block;
    if (want->progress && shape->block >= CORES_TO_SPARE_ONE)
        shape->threads--;
    shape->threads = limit_by_quota(topo, want->ranks, shape->threads);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static bool ints_alloc(struct vb_ints *ints, int room)
{
    ints->n = 0;
    ints->v = calloc((size_t)(room > 0 ? room : 1), sizeof(*ints->v));
    return ints->v != NULL;
}

static bool ints_has(const struct vb_ints *ints, int value)
{
    int i;

    for (i = 0; i < ints->n; i++)
        if (ints->v[i] == value)
            return true;
    return false;
}

/* Sets the cores, cpus, nodes and package of a rank whose block begins with core first. */
static void take_block(const struct vb_topo *topo, struct vb_placement_rank *rank, int first,
                       int block)
{
    int i, k;

    rank->package = topo->cores[first].part[LEVEL_PACKAGE];
    for (i = first; i < first + block; i++) {
        const struct core *core = &topo->cores[i];

        rank->cores.v[rank->cores.n++] = core->number;
        for (k = 0; k < core->n_cpus; k++)
            rank->cpus.v[rank->cpus.n++] = topo->cpus[core->first_cpu + k];
        if (core->part[LEVEL_NODE] >= 0 && !ints_has(&rank->nodes, core->part[LEVEL_NODE]))
            rank->nodes.v[rank->nodes.n++] = core->part[LEVEL_NODE];
        if (core->part[LEVEL_PACKAGE] != rank->package)
            rank->package = -1;
    }
}

/* Uses the first cpu of each of the n_cores cores, then the second cpu of each core, and so on. */
static void place_compute(const struct vb_topo *topo, struct vb_placement_rank *rank, int first,
                          int n_cores, int threads)
{
    int i, turn;
    bool any = true;

    for (turn = 0; any && rank->compute.n < threads; turn++) {
        any = false;
        for (i = first; i < first + n_cores && rank->compute.n < threads; i++) {
            if (turn >= topo->cores[i].n_cpus)
                continue;
            rank->compute.v[rank->compute.n++] = topo->cpus[topo->cores[i].first_cpu + turn];
            any = true;
        }
    }
    if (rank->compute.n < threads)
        rank->compute.n = 0; /* there are more threads than cpus, so the threads are not pinned */
}

/* Uses the first cpu of the last core that no compute thread has, else any cpu of the rank. */
static void place_progress(const struct vb_topo *topo, struct vb_placement_rank *rank, int last)
{
    const struct core *core = &topo->cores[last];
    int k;

    rank->progress_core = core->number;
    if (rank->compute.n == 0)
        return;
    for (k = 0; k < core->n_cpus; k++) {
        if (!ints_has(&rank->compute, topo->cpus[core->first_cpu + k])) {
            rank->progress_cpu = topo->cpus[core->first_cpu + k];
            return;
        }
    }
}

/* The loader thread gets the cpus that no other thread has, else all cpus of the rank. */
static void place_others(struct vb_placement_rank *rank)
{
    int i, cpu;

    for (i = 0; i < rank->cpus.n && rank->compute.n > 0; i++) {
        cpu = rank->cpus.v[i];
        if (cpu != rank->progress_cpu && !ints_has(&rank->compute, cpu))
            rank->others.v[rank->others.n++] = cpu;
    }
    if (rank->others.n == 0) {
        memcpy(rank->others.v, rank->cpus.v, (size_t)rank->cpus.n * sizeof(*rank->cpus.v));
        rank->others.n = rank->cpus.n;
    }
}

/* Sets all fields of one rank except its NIC. If pin is true, each compute thread gets a cpu. */
static vb_status place_rank(const struct vb_topo *topo, struct vb_placement_rank *rank, int first,
                            const struct shape *shape, const struct vb_placement_want *want,
                            bool pin)
{
    int block = shape->block, compute_cores = block, n_cpus = 0, i;

    for (i = first; i < first + block; i++)
        n_cpus += topo->cores[i].n_cpus;
    rank->progress_core = rank->progress_cpu = -1;
    if (!ints_alloc(&rank->cores, block) || !ints_alloc(&rank->cpus, n_cpus) ||
        !ints_alloc(&rank->others, n_cpus) || !ints_alloc(&rank->nodes, block) ||
        !ints_alloc(&rank->compute, shape->threads))
        return vb_err_sys("calloc");
    take_block(topo, rank, first, block);
    if (want->progress && shape->threads < block)
        compute_cores--;
    if (pin)
        place_compute(topo, rank, first, compute_cores, shape->threads);
    if (want->progress)
        place_progress(topo, rank, first + block - 1);
    place_others(rank);
    return VB_OK;
}

/* ---- the placement --------------------------------------------------------------------------- */

/* Places all ranks. If there are more ranks than cores, each rank gets a whole package, which it
 * shares with other ranks. */
static vb_status place_ranks(const struct vb_topo *topo, const struct vb_placement_want *want,
                             struct part *parts, struct vb_placement *placement)
{
    struct shape shape = {LEVEL_PACKAGE, 1, want->threads > 0 ? want->threads : 1};
    bool overlap = want->ranks > topo->n_cores;
    int n_parts, p, k, rank = 0;
    vb_status st = VB_OK;

    if (!overlap)
        choose_shape(topo, want, parts, &shape);
    n_parts = cut_parts(topo, shape.level, shape.block, parts);
    for (p = 0; p < n_parts && overlap; p++)
        /* space for all ranks, in proportion to the cores */
        parts[p].room = (int64_t)parts[p].n_cores * want->ranks;
    deal_ranks(parts, n_parts, want->ranks);
    placement->overlap = overlap;
    placement->threads = shape.threads;
    placement->own_progress_core = !overlap && want->progress && shape.threads < shape.block;
    for (p = 0; p < n_parts; p++) {
        if (overlap)
            shape.block = parts[p].n_cores;
        for (k = 0; k < parts[p].taken && st == VB_OK; k++, rank++) {
            placement->ranks[rank].rank = rank;
            st = place_rank(topo, &placement->ranks[rank],
                            parts[p].first + (overlap ? 0 : k * shape.block), &shape, want,
                            !overlap);
        }
    }
    placement->pinned = placement->ranks[0].compute.n > 0;
    return st;
}

static void write_note(const struct vb_topo *topo, const struct vb_placement_want *want,
                       struct vb_placement *placement)
{
    int block = placement->ranks[0].cores.n;
    char *note = placement->note;

    if (placement->overlap)
        snprintf(note, VB_PLACEMENT_TEXT,
                 "%d ranks share %d cores: ranks overlap, no thread is pinned to one core, and "
                 "each rank slows the others",
                 placement->n_ranks, topo->n_cores);
    else if (!placement->pinned)
        snprintf(note, VB_PLACEMENT_TEXT,
                 "%d compute threads per rank are more than its %d hardware threads: no thread is "
                 "pinned to one core",
                 placement->threads, placement->ranks[0].cpus.n);
    else if (placement->threads > block)
        snprintf(note, VB_PLACEMENT_TEXT,
                 "%d compute threads per rank on %d cores: some threads share a core as "
                 "hyperthreads",
                 placement->threads, block);
    else if (want->threads == 0 && limit_by_quota(topo, placement->n_ranks, block) < block)
        snprintf(note, VB_PLACEMENT_TEXT,
                 "the cgroup grants only the time of %.1f cpus: there are fewer compute threads "
                 "than cores",
                 topo->facts.cpu_quota);
}

static vb_status check_want(const struct vb_placement_want *want)
{
    if (want->ranks < 1 || want->ranks > VB_PLACEMENT_RANKS_MAX)
        return vb_err(VB_ERR_USAGE,
                      "%d ranks on one host are not possible: the number must be from 1 to %d",
                      want->ranks, VB_PLACEMENT_RANKS_MAX);
    if (want->threads < 0 || want->threads > VB_PLACEMENT_THREADS_MAX)
        return vb_err(VB_ERR_USAGE,
                      "%d threads per rank are not possible: the number must be from 0 to %d",
                      want->threads, VB_PLACEMENT_THREADS_MAX);
    return VB_OK;
}

static vb_status choose_nics(const struct vb_topo *topo, struct vb_placement *placement)
{
    int *load = calloc((size_t)topo->facts.n_nics + 1, sizeof(*load)), i;

    if (load == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < placement->n_ranks; i++)
        vb_nic_choose(topo, &placement->ranks[i], load);
    free(load);
    return VB_OK;
}

vb_status vb_placement_create(const struct vb_topo *topo, const struct vb_placement_want *want,
                              struct vb_placement **placement_p)
{
    struct part *parts;
    struct vb_placement *placement;
    vb_status st = check_want(want);
    int i;

    if (st != VB_OK)
        return st;
    placement = calloc(1, sizeof(*placement));
    if (placement == NULL)
        return vb_err_sys("calloc");
    placement->n_ranks = want->ranks;
    placement->ranks = calloc((size_t)want->ranks, sizeof(*placement->ranks));
    parts = calloc((size_t)topo->n_cores, sizeof(*parts));
    if (placement->ranks == NULL || parts == NULL)
        st = vb_err_sys("calloc");
    else
        st = place_ranks(topo, want, parts, placement);
    free(parts);
    if (st == VB_OK)
        st = choose_nics(topo, placement);
    if (st != VB_OK) {
        vb_placement_destroy(placement);
        return st;
    }
    for (i = 0; i < want->ranks; i++) /* memory that may be on all nodes need not be bound */
        if (placement->ranks[i].nodes.n == topo->facts.n_nodes && topo->facts.n_nodes > 1)
            placement->ranks[i].nodes.n = 0;
    write_note(topo, want, placement);
    *placement_p = placement;
    return VB_OK;
}

void vb_placement_destroy(struct vb_placement *placement)
{
    int i;

    if (placement == NULL)
        return;
    for (i = 0; placement->ranks != NULL && i < placement->n_ranks; i++) {
        free(placement->ranks[i].cores.v);
        free(placement->ranks[i].cpus.v);
        free(placement->ranks[i].compute.v);
        free(placement->ranks[i].others.v);
        free(placement->ranks[i].nodes.v);
    }
    free(placement->ranks);
    free(placement);
}
