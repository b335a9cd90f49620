/* SPDX-License-Identifier: MIT
 *
 * Ranks that torchrun, mpirun or srun has started. One launcher may start another (srun starts
 * mpirun, either of them torchrun), and the innermost made this process a rank: it is looked for
 * first. Only PMIx can carry a secret. Otherwise the ranks of one host make a secret when they
 * meet, and for several hosts the user must give one.
 */
#include "launch/launch_priv.h"
#include "net/net.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT_FIRST 10240 /* below the ports that Linux gives out, which begin at 32768 */
#define PORTS 16384

const char *vb_launch_variable(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

vb_status vb_launch_number(const char *name, int64_t min, int64_t max, int64_t *value_p)
{
    const char *text = vb_launch_variable(name);

    if (text == NULL)
        text = "is not set";
    if (!vb_parse_int(text, value_p) || *value_p < min || *value_p > max)
        return vb_err(VB_ERR_USAGE, "%s %.64s: must be a number from %lld to %lld" LAUNCH_ALONE,
                      name, text, (long long)min, (long long)max);
    return VB_OK;
}

vb_status vb_launch_place(const char *ranks, const char *rank, int64_t max, int *ranks_p,
                          int *rank_p)
{
    int64_t n = 0, i = 0;
    vb_status st = vb_launch_number(ranks, 1, max, &n);

    if (st == VB_OK)
        st = vb_launch_number(rank, 0, n - 1, &i);
    *ranks_p = (int)n;
    *rank_p = (int)i;
    return st;
}

int vb_launch_port(uint64_t number)
{
    return PORT_FIRST + (int)(number % PORTS);
}

/* Refuses ranks of MPICH's mpirun and the like, which do not know of each other and would all do
 * the same work. In a Slurm allocation they also have the Slurm variables of mpirun's helpers, with
 * another rank and world. srun --mpi=pmi2 sets the PMI variables to the same rank and world as the
 * Slurm variables; its ranks are accepted. */
static vb_status refuse_pmi(const struct launch_found *found)
{
    const char *rank = vb_launch_variable("PMI_RANK"), *size = vb_launch_variable("PMI_SIZE");
    int64_t r = -1, n = -1;

    if (rank == NULL || size == NULL)
        return VB_OK;
    if (vb_parse_int(rank, &r) && vb_parse_int(size, &n) && n == found->world && r == found->rank)
        return VB_OK;
    if (found->by == LAUNCH_BY_NOBODY && n < 2)
        return VB_OK;
    return vb_err(
        VB_ERR_USAGE,
        "PMI_RANK %.32s, PMI_SIZE %.32s: this mpirun offers PMI, but ranks need PMIx to find each "
        "other; use --hosts, srun or the mpirun of Open MPI" LAUNCH_ALONE,
        rank, size);
}

static vb_status find(uint64_t deadline, struct launch_found *found)
{
    vb_status st = vb_launch_find_torch(found);

    if (st == VB_OK && found->by == LAUNCH_BY_NOBODY && vb_launch_variable("PMIX_RANK") != NULL &&
        vb_launch_variable("PMIX_NAMESPACE") != NULL)
        st = vb_pmix_join(deadline, found);
    if (st != VB_OK || found->by != LAUNCH_BY_NOBODY)
        return st;
    st = vb_launch_find_slurm(found);
    return st == VB_OK ? refuse_pmi(found) : st;
}

static vb_status need_secret(const struct launch_found *found)
{
    bool slurm = found->by == LAUNCH_BY_SLURM;

    return vb_err(
        VB_ERR_USAGE,
        "%s has started %d ranks on several hosts (%s), and they have no common secret: give "
        "all of them the same --secret-file FILE or VB_SECRET%s" LAUNCH_ALONE,
        slurm ? "srun" : "torchrun", found->world,
        slurm ? "SLURM_PROCID, SLURM_STEP_NODELIST" : "RANK, WORLD_SIZE, LOCAL_WORLD_SIZE",
        slurm ? ", or use srun --mpi=pmix, which needs no secret" : "");
}

/* Rank 0 makes the secret and local rank 0 passes it on, so on one host they must be the same rank,
 * except with PMIx, which carries the secret to all. */
static vb_status check_first(const struct launch_found *found)
{
    if (!found->one_host || found->by == LAUNCH_BY_PMIX ||
        (found->rank == 0) == (found->local_rank == 0))
        return VB_OK;
    return vb_err(
        VB_ERR_USAGE,
        "all %d ranks are on this host, so rank 0 must be local rank 0, but rank %d is local rank "
        "%d" LAUNCH_ALONE,
        found->local_ranks, found->rank, found->local_rank);
}

/* The user's secret may serve many jobs. */
static vb_status narrow_secret(const char *run_id, struct vb_launch *launch)
{
    vb_status st = vb_secret_of_run(launch->secret, run_id);

    if (st == VB_OK)
        snprintf(launch->run_id, sizeof(launch->run_id), "%s", run_id);
    return st;
}

/* Rank 0 opens its socket. The others know the root by name, or get it from rank 0 later. */
static vb_status find_root(const struct launch_found *found, const char *given,
                           struct vb_launch *launch)
{
    bool v6 = strchr(found->host, ':') != NULL;
    char name[128] = "";

    if (given != NULL && vb_root_wants_port(given) && !found->one_host &&
        found->by != LAUNCH_BY_PMIX)
        return vb_err(VB_ERR_USAGE,
                      "--root %.256s: the port must not be 0, because ranks on other hosts would "
                      "not know the port",
                      given);
    if (given != NULL)
        snprintf(launch->root, sizeof(launch->root), "%s", given);
    else if (found->by != LAUNCH_BY_PMIX)
        snprintf(launch->root, sizeof(launch->root), "%s%s%s:%d", v6 ? "[" : "", found->host,
                 v6 ? "]" : "", found->port);
    else if (gethostname(name, sizeof(name) - 1) == 0)
        snprintf(launch->root, sizeof(launch->root), "%s:0", name);
    if (found->rank != 0)
        return VB_OK;
    if (given == NULL && found->one_host)
        snprintf(launch->root, sizeof(launch->root), "127.0.0.1:0");
    if ((given == NULL && found->one_host) || (given != NULL && !vb_root_wants_port(given)))
        return vb_root_listen(launch->root, &launch->root_fd);
    return vb_root_listen_reachable(launch->root, NULL, &launch->root_fd);
}

static vb_status settle(const struct launch_found *found, const struct vb_launch_opts *o,
                        uint64_t deadline, struct vb_launch *launch)
{
    vb_status st = check_first(found);

    if (st == VB_OK && o->secret_file != NULL) {
        st = vb_secret_read(o->secret_file, launch->secret);
        launch->has_secret = true;
    }
    if (st == VB_OK && launch->has_secret)
        st = narrow_secret(o->run_id != NULL ? o->run_id : found->run, launch);
    if (st == VB_OK && !launch->has_secret && !found->one_host && found->by != LAUNCH_BY_PMIX)
        st = need_secret(found);
    if (st == VB_OK && found->rank == 0 && !launch->has_secret)
        st = vb_secret_make(launch->secret);
    if (st == VB_OK)
        st = find_root(found, o->root, launch);
    if (st == VB_OK && found->by == LAUNCH_BY_PMIX)
        st = vb_pmix_share(found, deadline, launch);
    if (st == VB_OK && found->local_ranks > 1)
        st = vb_launch_meet(found, deadline, launch);
    return st;
}

vb_status vb_launch_find(const struct vb_launch_opts *opts, struct vb_launch *launch)
{
    int64_t timeout_ms = opts->timeout_ms > 0 ? opts->timeout_ms : VB_GROUP_TIMEOUT_MS;
    uint64_t deadline = vb_clock_ns() + (uint64_t)timeout_ms * 1000000;
    struct launch_found found = {.by = LAUNCH_BY_NOBODY};
    struct vb_launch result = *launch;
    vb_status st = find(deadline, &found);

    if (st != VB_OK || found.by == LAUNCH_BY_NOBODY)
        return st;
    result.rank = found.rank;
    result.world = found.world;
    result.local_rank = found.local_rank;
    result.local_ranks = found.local_ranks;
    if (found.world > 1)
        st = settle(&found, opts, deadline, &result);
    if (st == VB_OK && found.by == LAUNCH_BY_PMIX)
        st = vb_pmix_leave(deadline);
    if (st == VB_OK) {
        result.supervised = result.has_secret = true;
        *launch = result;
    }
    explicit_bzero(&result, sizeof(result));
    return st;
}
