/* SPDX-License-Identifier: MIT
 *
 * Finds out which kernels oneDNN has for this CPU. Its C interface changed with version 3:
 * operation descriptors are gone and memory descriptors became handles. Both versions are
 * supported; only describe_one(), forget() and the two functions that make a primitive descriptor
 * differ.
 */
#include "kernels/onednn/onednn.h"

#include <dnnl.h>

#include <string.h>

#define BATCH 32

/* What is probed: shapes of source, weights, bias and result. */
struct shapes {
    int n_dims;
    dnnl_dims_t src, weights, bias, dst;
};

/* AlexNet conv3: 192 -> 384 channels, 3 x 3, on 13 x 13. */
static const struct shapes conv3 = {
    .n_dims = 4,
    .src = {BATCH, 192, 13, 13},
    .weights = {384, 192, 3, 3},
    .bias = {384},
    .dst = {BATCH, 384, 13, 13},
};

/* AlexNet fc6: 9216 -> 4096. */
static const struct shapes fc6 = {
    .n_dims = 2,
    .src = {BATCH, 9216},
    .weights = {4096, 9216},
    .bias = {4096},
    .dst = {BATCH, 4096},
};

/* ---- instruction sets ------------------------------------------------------------------------ */

struct isa_name {
    unsigned isa;
    const char *name;
};

/* The table has numbers, because the same number means a different set on another CPU, and headers
 * of different versions know different names. On Arm the header has no names at all. */
static const struct isa_name isa_names[] = {
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

/* ---- primitive descriptors ------------------------------------------------------------------- */

/* Source, weights, bias and result, in the layout that the library prefers. */
enum { SRC, WEIGHTS, BIAS, DST, N_MEMORIES };

struct memories {
    dnnl_memory_desc_t desc[N_MEMORIES];
};

#if DNNL_VERSION_MAJOR >= 3

static bool describe_one(dnnl_memory_desc_t *desc, int n_dims, const dnnl_dims_t dims,
                         dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(desc, n_dims, dims, dnnl_f32, tag) == dnnl_success;
}

static void forget(struct memories *mem)
{
    int i;

    for (i = 0; i < N_MEMORIES; i++)
        if (mem->desc[i] != NULL)
            dnnl_memory_desc_destroy(mem->desc[i]);
}

static dnnl_status_t make_conv(dnnl_engine_t engine, const struct memories *mem,
                               dnnl_primitive_desc_t *pd_p)
{
    static const dnnl_dims_t strides = {1, 1}, dilates = {0, 0}, padding = {1, 1};

    return dnnl_convolution_forward_primitive_desc_create(
        pd_p, engine, dnnl_forward_training, dnnl_convolution_direct, mem->desc[SRC],
        mem->desc[WEIGHTS], mem->desc[BIAS], mem->desc[DST], strides, dilates, padding, padding,
        NULL);
}

static dnnl_status_t make_inner(dnnl_engine_t engine, const struct memories *mem,
                                dnnl_primitive_desc_t *pd_p)
{
    return dnnl_inner_product_forward_primitive_desc_create(pd_p, engine, dnnl_forward_training,
                                                            mem->desc[SRC], mem->desc[WEIGHTS],
                                                            mem->desc[BIAS], mem->desc[DST], NULL);
}

#else

static bool describe_one(dnnl_memory_desc_t *desc, int n_dims, const dnnl_dims_t dims,
                         dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(desc, n_dims, dims, dnnl_f32, tag) == dnnl_success;
}

static void forget(struct memories *mem)
{
    (void)mem; /* memory descriptors are plain structs in version 2 */
}

static dnnl_status_t make_conv(dnnl_engine_t engine, const struct memories *mem,
                               dnnl_primitive_desc_t *pd_p)
{
    static const dnnl_dims_t strides = {1, 1}, padding = {1, 1};
    dnnl_convolution_desc_t op;
    dnnl_status_t st;

    st = dnnl_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct,
                                            &mem->desc[SRC], &mem->desc[WEIGHTS], &mem->desc[BIAS],
                                            &mem->desc[DST], strides, padding, padding);
    return st != dnnl_success ? st : dnnl_primitive_desc_create(pd_p, &op, NULL, engine, NULL);
}

static dnnl_status_t make_inner(dnnl_engine_t engine, const struct memories *mem,
                                dnnl_primitive_desc_t *pd_p)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t st;

    st = dnnl_inner_product_forward_desc_init(&op, dnnl_forward_training, &mem->desc[SRC],
                                              &mem->desc[WEIGHTS], &mem->desc[BIAS],
                                              &mem->desc[DST]);
    return st != dnnl_success ? st : dnnl_primitive_desc_create(pd_p, &op, NULL, engine, NULL);
}

#endif

static bool describe(const struct shapes *shapes, struct memories *mem)
{
    return describe_one(&mem->desc[SRC], shapes->n_dims, shapes->src, dnnl_format_tag_any) &&
           describe_one(&mem->desc[WEIGHTS], shapes->n_dims, shapes->weights,
                        dnnl_format_tag_any) &&
           describe_one(&mem->desc[BIAS], 1, shapes->bias, dnnl_a) &&
           describe_one(&mem->desc[DST], shapes->n_dims, shapes->dst, dnnl_format_tag_any);
}

/* ---- the probe ------------------------------------------------------------------------------- */

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

/* Leaves name unchanged ("") if the library has no implementation. */
static void name_impl(dnnl_engine_t engine, const struct shapes *shapes,
                      dnnl_status_t (*make)(dnnl_engine_t, const struct memories *,
                                            dnnl_primitive_desc_t *),
                      char *name, size_t size)
{
    dnnl_primitive_desc_t pd = NULL;
    struct memories mem;
    const char *impl = NULL;

    memset(&mem, 0, sizeof(mem));
    if (describe(shapes, &mem) && make(engine, &mem, &pd) == dnnl_success) {
        if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl) ==
                dnnl_success &&
            impl != NULL)
            snprintf(name, size, "%s", impl);
        dnnl_primitive_desc_destroy(pd);
    }
    forget(&mem);
}

void vb_k_onednn_version(char *buf, size_t size)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(buf, size, "%d.%d.%d", version->major, version->minor, version->patch);
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
    name_impl(engine, &conv3, make_conv, probe.conv, sizeof(probe.conv));
    name_impl(engine, &fc6, make_inner, probe.inner, sizeof(probe.inner));
    dnnl_engine_destroy(engine);
    probe.conv_reference = vb_k_impl_is_reference(probe.conv);
    probe.inner_reference = vb_k_impl_is_reference(probe.inner);
    *probe_p = probe;
    return VB_OK;
}
