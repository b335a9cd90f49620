/* SPDX-License-Identifier: MIT
 *
 * Predicts which library the dense kernels will use. A reference implementation of oneDNN is
 * several times slower than a matrix product of OpenBLAS, so it is never the first choice. This
 * only describes the machine; the actual plan is made by timing.
 */
#include "kernels/kernels.h"
#include "kernels/layer/level.h"
#include "kernels/onednn/onednn.h"

#include <string.h>
#include <sys/utsname.h>

static bool own_kernel(const char *impl, bool reference)
{
    return impl[0] != '\0' && !reference;
}

void vb_k_dense_choice(const struct vb_k_onednn *onednn, const struct vb_k_blas *blas, char *buf,
                       size_t size)
{
    bool conv = own_kernel(onednn->conv, onednn->conv_reference);
    bool inner = own_kernel(onednn->inner, onednn->inner_reference);

    if (conv && inner)
        snprintf(buf, size, "dense kernels use oneDNN %s (%s: %s, %s)", onednn->version,
                 onednn->isa, onednn->conv, onednn->inner);
    else if (conv || inner)
        snprintf(buf, size, "%s use oneDNN %s (%s: %s), %s use OpenBLAS %s (%s)",
                 conv ? "convolutions" : "inner products", onednn->version, onednn->isa,
                 conv ? onednn->conv : onednn->inner, conv ? "inner products" : "convolutions",
                 blas->version, blas->core);
    else
        snprintf(buf, size,
                 "dense kernels use OpenBLAS %s (%s), because oneDNN %s has no kernels of its own "
                 "for this CPU (%s: %s)",
                 blas->version, blas->core, onednn->version, onednn->isa,
                 onednn->conv[0] != '\0' ? onednn->conv : "no implementation");
}

void vb_k_cpu_kind(const char *plan, char kind[VB_K_CPU_KIND])
{
    struct vb_k_blas blas;
    struct utsname host;
    char version[32], isa[32];
    size_t len;

    snprintf(kind, VB_K_CPU_KIND, "%.40s, %s", uname(&host) == 0 ? host.machine : "?",
             vb_k_level_name());
    len = strlen(kind);
    if (plan != NULL && strstr(plan, "onednn") != NULL) {
        vb_k_onednn_version(version, sizeof(version));
        vb_k_onednn_isa(isa, sizeof(isa));
        snprintf(kind + len, VB_K_CPU_KIND - len, ", oneDNN %s %s", version, isa);
        len = strlen(kind);
    }
    if (plan != NULL && strstr(plan, "blas") != NULL) {
        vb_k_blas_probe(&blas);
        snprintf(kind + len, VB_K_CPU_KIND - len, ", OpenBLAS %s %s", blas.version, blas.core);
    }
}
