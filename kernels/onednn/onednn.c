/* SPDX-License-Identifier: MIT
 *
 * Finds out which kernels oneDNN has for this CPU.
 */
#include "kernels/onednn/onednn.h"

#include <dnnl.h>

#define BATCH 32

/* AlexNet conv3: 192 -> 384 channels, 3 x 3, on 13 x 13. */
static const struct onednn_job conv3 = {
    .s = {.kind = VB_K_CONV, .kh = 3, .kw = 3, .stride = 1, .pad = 1},
    .pass = VB_K_FORWARD,
    .x = {4, {BATCH, 192, 13, 13}, {0}},
    .w = {4, {384, 192, 3, 3}, {0}},
    .b = {1, {384}, {1}},
    .y = {4, {BATCH, 384, 13, 13}, {0}},
};

/* AlexNet fc6: 9216 -> 4096. */
static const struct onednn_job fc6 = {
    .s = {.kind = VB_K_LINEAR},
    .pass = VB_K_FORWARD,
    .x = {2, {BATCH, 9216}, {0}},
    .w = {2, {4096, 9216}, {0}},
    .b = {1, {4096}, {1}},
    .y = {2, {BATCH, 4096}, {0}},
};

/* Numbers, because oneDNN's constants depend on its version, and on Arm the header has none. They
 * mean different instruction sets on different architectures. */
static const struct {
    unsigned isa;
    const char *name;
} isa_names[] = {
#if defined(__aarch64__)
    {0x1, "asimd"},     {0x3, "sve_128"}, {0x7, "sve_256"}, {0xf, "sve_384"}, {0x27, "sve_512"},
#elif defined(__x86_64__)
    {0x1, "sse41"},
    {0x3, "avx"},
    {0x7, "avx2"},
    {0x27, "avx512_core"},
    {0x67, "avx512_core_vnni"},
    {0xe7, "avx512_core_bf16"},
#if DNNL_VERSION_MAJOR >= 3
    {0xf, "avx2_vnni"},
    {0x1f, "avx2_vnni_2"},
    {0x1ef, "avx512_core_fp16"},
    {0xfef, "avx512_core_amx"},
    {0x1fef, "avx512_core_amx_fp16"},
#else
    {0xf, "avx512_mic"},
    {0x1f, "avx512_mic_4ops"},
    {0x3e7, "avx512_core_amx"},
    {0x407, "avx2_vnni"},
#endif
#endif
    {0x0, "plain C++"},
};

static void copy_isa(char *buf, size_t size, unsigned isa)
{
    size_t i;

    for (i = 0; i < VB_COUNT(isa_names); i++)
        if (isa_names[i].isa == isa) {
            snprintf(buf, size, "%s", isa_names[i].name);
            return;
        }
    snprintf(buf, size, "set 0x%x", isa);
}

bool vb_k_impl_is_reference(const char *impl)
{
    size_t n;

    /* Names consist of parts: "x64:gemm:jit", "gemm:ref", "ref_int8:any". */
    for (; *impl != '\0'; impl += n + (impl[n] == ':')) {
        n = strcspn(impl, ":");
        if (n >= 3 && strncmp(impl, "ref", 3) == 0 && (n == 3 || impl[3] == '_'))
            return true;
    }
    return false;
}

/* Writes the name of the implementation. Leaves name unchanged ("") if there is none. */
static void name_impl(dnnl_engine_t engine, const struct onednn_job *job, char *name, size_t size)
{
    dnnl_primitive_desc_t pd;
    const char *impl = NULL;

    if (!vb_onednn_describe(job, engine, NULL, &pd))
        return;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl) == dnnl_success &&
        impl != NULL)
        snprintf(name, size, "%s", impl);
    dnnl_primitive_desc_destroy(pd);
}

void vb_k_onednn_version(char *buf, size_t size)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(buf, size, "%d.%d.%d", version->major, version->minor, version->patch);
}

void vb_k_onednn_isa(char *buf, size_t size)
{
    copy_isa(buf, size, (unsigned)dnnl_get_effective_cpu_isa());
}

vb_status vb_k_onednn_probe(struct vb_k_onednn *probe_p)
{
    struct vb_k_onednn probe = {.conv = ""};
    dnnl_engine_t engine;
    dnnl_status_t st;

    vb_k_onednn_version(probe.version, sizeof(probe.version));
    copy_isa(probe.isa, sizeof(probe.isa), (unsigned)dnnl_get_effective_cpu_isa());
    *probe_p = probe;

    st = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (st != dnnl_success)
        return vb_err(VB_ERR_UNSUPPORTED, "dnnl_engine_create failed with status %d", (int)st);
    name_impl(engine, &conv3, probe.conv, sizeof(probe.conv));
    name_impl(engine, &fc6, probe.inner, sizeof(probe.inner));
    dnnl_engine_destroy(engine);
    probe.conv_reference = vb_k_impl_is_reference(probe.conv);
    probe.inner_reference = vb_k_impl_is_reference(probe.inner);
    *probe_p = probe;
    return VB_OK;
}
