/* SPDX-License-Identifier: MIT
 *
 * Prints which verbena this is: its version and commit, how it was built, and the libraries that
 * are loaded.
 */
#include "cli/cli.h"
#include "cli_commit.h"
#include "data/data.h"
#include "kernels/kernels.h"
#include "launch/launch.h"
#include "net/net.h"
#include "topo/topo.h"

#include <gnu/libc-version.h>
#include <string.h>
#include <sys/utsname.h>

#define LIBRARIES_MAX 12
#define TEXT 128

/* Texts such as "hwloc 2.9.0" or "OpenBLAS 0.3.21 (neoversev1, pthreads)". */
struct libraries {
    char text[LIBRARIES_MAX][TEXT];
    int n;
};

static void add(struct libraries *libs, const char *fmt, ...) VB_PRINTF(2, 3);

static void add(struct libraries *libs, const char *fmt, ...)
{
    va_list args;

    VB_ASSERT(libs->n < LIBRARIES_MAX);
    va_start(args, fmt);
    vsnprintf(libs->text[libs->n++], TEXT, fmt, args);
    va_end(args);
}

static void find_libraries(struct libraries *libs)
{
    char verbs[96], rdmacm[96];
    struct vb_k_onednn onednn;
    struct vb_k_blas blas;

    libs->n = 0;
    vb_net_verbs_version(verbs, sizeof(verbs));
    vb_net_rdmacm_version(rdmacm, sizeof(rdmacm));
    vb_k_blas_probe(&blas);
    add(libs, "%s", verbs);
    add(libs, "%s", rdmacm);
    add(libs, "%s", vb_topo_library());
    if (vb_k_onednn_probe(&onednn) == VB_OK)
        add(libs, "oneDNN %s (%s)", onednn.version, onednn.isa);
    add(libs, "OpenBLAS %s (%s, %s)", blas.version, blas.core, vb_k_threading_str(blas.threading));
    add(libs, "%s", vb_json_library());
    add(libs, "%s", vb_net_crypto_library());
    add(libs, "%s", vb_launch_pmix_library());
    add(libs, "zlib %s", vb_gzip_version());
    add(libs, "glibc %s", gnu_get_libc_version());
}

/* The key is the name of the library, the value its version; what stands in parentheses is left
 * out. */
static void json_library(struct vb_json *json, const char *text)
{
    char name[TEXT], version[TEXT];
    size_t len = strcspn(text, " ");
    const char *rest = text + len + (text[len] == ' ');

    snprintf(name, sizeof(name), "%.*s", (int)len, text);
    snprintf(version, sizeof(version), "%.*s", (int)strcspn(rest, " "), rest);
    vb_json_text(json, name, version);
}

static vb_status print_json(const struct libraries *libs)
{
    static const char *const levels[] = {
        [VB_CPU_BASE] = "baseline", [VB_CPU_V3] = "v3", [VB_CPU_V4] = "v4"};
    struct vb_json *json = cli_json_object();
    struct utsname host;
    int i;

    vb_json_text(json, "version", VB_VERSION);
    vb_json_text(json, "commit", VB_COMMIT[0] != '\0' ? VB_COMMIT : NULL);
    vb_json_text(json, "compiler", VB_COMPILER);
    vb_json_text(json, "build_type", VB_BUILD_TYPE);
    vb_json_text(json, "architecture", uname(&host) == 0 ? host.machine : NULL);
    vb_json_text(json, "instruction_level", levels[vb_cpu_level()]);
    vb_json_object(json, "libraries");
    for (i = 0; i < libs->n; i++)
        json_library(json, libs->text[i]);
    vb_json_end(json);
    return cli_print_json(json);
}

vb_status cli_version_print(bool json)
{
    struct libraries libs;
    int i;

    find_libraries(&libs);
    if (json)
        return print_json(&libs);
    printf("verbena %s\n", VB_VERSION);
    for (i = 0; i < libs.n; i++)
        printf("  %s\n", libs.text[i]);
    return VB_OK;
}
