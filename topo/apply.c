/* SPDX-License-Identifier: MIT
 *
 * Pins threads and binds memory as the placement says.
 */
#include "topo/topo_priv.h"

#include <errno.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

static vb_status check(const struct vb_topo *topo, const struct vb_placement *placement, int rank)
{
    if (!topo->this_machine)
        return vb_err(VB_ERR_USAGE, "cannot pin threads on %s", topo->origin);
    if (rank < 0 || rank >= placement->n_ranks)
        return vb_err(VB_ERR_USAGE, "there is no rank %d in a placement of %d ranks", rank,
                      placement->n_ranks);
    return VB_OK;
}

static hwloc_bitmap_t bitmap_of(const int *v, int n)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int i;

    for (i = 0; set != NULL && i < n; i++)
        if (hwloc_bitmap_set(set, (unsigned)v[i]) != 0) {
            hwloc_bitmap_free(set);
            return NULL;
        }
    return set;
}

/* Binds the calling thread to n cpus, any of which it may use. Fails only if memory runs out. */
static vb_status pin_to(const struct vb_topo *topo, const int *cpus, int n)
{
    hwloc_bitmap_t set = bitmap_of(cpus, n);

    if (set == NULL)
        return vb_err_sys("hwloc_bitmap_alloc");
    if (hwloc_set_cpubind(topo->hwloc, set, HWLOC_CPUBIND_THREAD) != 0)
        VB_LOG_WARN("cannot pin a thread to cpu %d (one of %d): %s", cpus[0], n, strerror(errno));
    hwloc_bitmap_free(set);
    return VB_OK;
}

vb_status vb_placement_pin(const struct vb_topo *topo, const struct vb_placement *placement,
                           int rank, enum vb_role role)
{
    const struct vb_placement_rank *r;
    vb_status st = check(topo, placement, rank);

    if (st != VB_OK)
        return st;
    r = &placement->ranks[rank];
    if (role != VB_ROLE_PROGRESS)
        return pin_to(topo, r->others.v, r->others.n);
    if (r->progress_cpu >= 0)
        return pin_to(topo, &r->progress_cpu, 1);
    return pin_to(topo, r->cpus.v, r->cpus.n);
}

void vb_team_size(int threads)
{
    omp_set_dynamic(0);
    omp_set_num_threads(threads > 0 ? threads : omp_get_num_procs());
}

void vb_team_less_one(void)
{
    int threads = omp_get_max_threads();

    if (threads > 1)
        omp_set_num_threads(threads - 1);
}

vb_status vb_placement_pin_team(const struct vb_topo *topo, const struct vb_placement *placement,
                                int rank)
{
    const struct vb_placement_rank *r;
    atomic_int failed = VB_OK; /* relaxed: the end of the parallel region orders all accesses */
    vb_status st = check(topo, placement, rank);

    if (st != VB_OK)
        return st;
    r = &placement->ranks[rank];
    omp_set_dynamic(0);
    omp_set_num_threads(placement->threads);
#pragma omp parallel num_threads(placement->threads)
    {
        int i = omp_get_thread_num();
        vb_status mine = r->compute.n > 0 ? pin_to(topo, &r->compute.v[i], 1)
                                          : pin_to(topo, r->cpus.v, r->cpus.n);

        if (mine != VB_OK)
            atomic_store_explicit(&failed, mine, memory_order_relaxed);
    }
    return atomic_load_explicit(&failed, memory_order_relaxed);
}

/* Returns the set of NUMA nodes for the memory of a rank. The caller frees the set. *set_p is
 * NULL if the memory may be on any node. */
static vb_status nodes_of(const struct vb_topo *topo, const struct vb_placement *placement,
                          int rank, hwloc_bitmap_t *set_p)
{
    vb_status st = check(topo, placement, rank);

    *set_p = NULL;
    if (st != VB_OK || placement->ranks[rank].nodes.n == 0)
        return st;
    *set_p = bitmap_of(placement->ranks[rank].nodes.v, placement->ranks[rank].nodes.n);
    return *set_p != NULL ? VB_OK : vb_err_sys("hwloc_bitmap_alloc");
}

vb_status vb_placement_bind_memory(const struct vb_topo *topo, const struct vb_placement *placement,
                                   int rank)
{
    hwloc_bitmap_t set;
    vb_status st = nodes_of(topo, placement, rank, &set);

    if (st != VB_OK || set == NULL)
        return st;
    if (hwloc_set_membind(topo->hwloc, set, HWLOC_MEMBIND_BIND,
                          HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0)
        VB_LOG_WARN("cannot bind memory to a NUMA node: %s", strerror(errno));
    hwloc_bitmap_free(set);
    return VB_OK;
}

vb_status vb_placement_bind_range(const struct vb_topo *topo, const struct vb_placement *placement,
                                  int rank, const void *ptr, size_t len_bytes)
{
    hwloc_bitmap_t set;
    vb_status st = nodes_of(topo, placement, rank, &set);

    if (st != VB_OK || set == NULL)
        return st;
    if (hwloc_set_area_membind(topo->hwloc, ptr, len_bytes, set, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET) != 0)
        VB_LOG_WARN("cannot bind %zu bytes to a NUMA node: %s", len_bytes, strerror(errno));
    hwloc_bitmap_free(set);
    return VB_OK;
}
