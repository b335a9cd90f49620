/* SPDX-License-Identifier: MIT
 *
 * How the ranks of a PMIx job learn the root and the secret from rank 0. PMIx keeps what ranks put
 * in the memory of its servers, and passes it on in clear, so the secret is not put there as it is:
 * each rank puts the lid of a box, and rank 0 seals the secret once for each of them. The servers,
 * which have started the ranks, are trusted to say whose lid it is.
 */
#include "launch/launch_priv.h"

#include <string.h>

#define ROOT_KEY "verbena.root"
#define LID_KEY "verbena.lid"
#define NONE "-" /* this rank has a secret from the user */

static void name_key(int rank, char key[32])
{
    snprintf(key, 32, "verbena.secret.%d", rank);
}

/* with, without: ranks that were given a secret, and were not. */
static vb_status secret_for_some(int with, int without)
{
    return vb_err(
        VB_ERR_USAGE,
        "rank %d was given a secret and rank %d was not: give the secret to all ranks with "
        "mpirun -x VB_SECRET or --secret-file FILE",
        with, without);
}

static vb_status put_sealed(const struct launch_found *found, uint64_t deadline,
                            const struct vb_launch *launch)
{
    char lid[VB_LID_TEXT], sealed[VB_SEALED_TEXT], key[32];
    vb_status st = vb_pmix_put(ROOT_KEY, launch->root, deadline);
    int i;

    for (i = 1; i < found->world && st == VB_OK; i++) {
        st = vb_pmix_get(found, i, LID_KEY, deadline, lid, sizeof(lid));
        if (st == VB_OK && (strcmp(lid, NONE) == 0) != launch->has_secret)
            st = secret_for_some(launch->has_secret ? 0 : i, launch->has_secret ? i : 0);
        if (st == VB_OK && !launch->has_secret)
            st = vb_secret_seal(launch->secret, lid, sealed);
        name_key(i, key);
        if (st == VB_OK && !launch->has_secret)
            st = vb_pmix_put(key, sealed, deadline);
    }
    return st;
}

static vb_status get_sealed(const struct launch_found *found, uint64_t deadline,
                            const struct vb_box *box, struct vb_launch *launch)
{
    char sealed[VB_SEALED_TEXT], key[32];
    vb_status st = vb_pmix_get(found, 0, ROOT_KEY, deadline, launch->root, sizeof(launch->root));

    name_key(found->rank, key);
    if (st == VB_OK && !launch->has_secret)
        st = vb_pmix_get(found, 0, key, deadline, sealed, sizeof(sealed));
    if (st == VB_OK && !launch->has_secret)
        st = vb_secret_unseal(box, sealed, launch->secret);
    return st;
}

vb_status vb_pmix_share(const struct launch_found *found, uint64_t deadline,
                        struct vb_launch *launch)
{
    char lid[VB_LID_TEXT];
    struct vb_box box;
    vb_status st = vb_box_make(&box, lid);

    if (st == VB_OK)
        st = vb_pmix_put(LID_KEY, launch->has_secret && found->rank != 0 ? NONE : lid, deadline);
    if (st == VB_OK)
        st = vb_pmix_fence(deadline);
    if (st == VB_OK && found->rank == 0)
        st = put_sealed(found, deadline, launch);
    if (st == VB_OK)
        st = vb_pmix_fence(deadline);
    if (st == VB_OK && found->rank != 0)
        st = get_sealed(found, deadline, &box, launch);
    explicit_bzero(&box, sizeof(box));
    return st;
}
