/* SPDX-License-Identifier: MIT
 *
 * Tests the probes of the libraries that dense kernels use, and the choice of a backend.
 *
 * Covers: kernels/blas/blas.c kernels/choice/choice.c kernels/onednn/onednn.c
 */
#include "kernels/onednn/onednn.h"
#include "tests/support/test.h"

static void onednn_names_its_kernels(void **state)
{
    struct vb_k_onednn probe;
    int major, minor, patch;

    (void)state;
    assert_int_equal(vb_k_onednn_probe(&probe), VB_OK);
    assert_int_equal(sscanf(probe.version, "%d.%d.%d", &major, &minor, &patch), 3);
    assert_true(major >= 2);
    assert_true(probe.conv[0] != '\0');
    assert_true(probe.inner[0] != '\0');
    assert_int_equal(probe.conv_reference, vb_k_impl_is_reference(probe.conv));
    assert_int_equal(probe.inner_reference, vb_k_impl_is_reference(probe.inner));
    printf("oneDNN %s, %s: convolution %s, inner product %s\n", probe.version, probe.isa,
           probe.conv, probe.inner);
}

/* oneDNN uses the same numbers for instruction sets of Arm and of x86. This test fails if the name
 * comes from the table of the other architecture. */
static void the_instruction_set_is_this_cpus(void **state)
{
    struct vb_k_onednn probe;

    (void)state;
    assert_int_equal(vb_k_onednn_probe(&probe), VB_OK);
#if defined(__aarch64__)
    assert_true(strcmp(probe.isa, "asimd") == 0 || strncmp(probe.isa, "sve_", 4) == 0);
#elif defined(__x86_64__)
    assert_true(strcmp(probe.isa, "sse41") == 0 || strncmp(probe.isa, "avx", 3) == 0);
#else
    assert_true(probe.isa[0] != '\0');
#endif
}

static void blas_tells_what_it_is(void **state)
{
    struct vb_k_blas probe;
    int major, minor;

    (void)state;
    vb_k_blas_probe(&probe);
    assert_int_equal(sscanf(probe.version, "%d.%d", &major, &minor), 2);
    assert_true(probe.core[0] != '\0');
    assert_memory_equal(probe.config, "OpenBLAS", 8);
    assert_true(probe.threading == VB_K_SEQUENTIAL || probe.threading == VB_K_PTHREADS ||
                probe.threading == VB_K_OPENMP);
    printf("%s, %s\n", probe.config, vb_k_threading_str(probe.threading));
}

static void reference_kernels_are_known_by_name(void **state)
{
    static const char *const reference[] = {"ref", "ref:any", "gemm:ref", "ref_int8:any",
                                            "x64:gemm:ref"};
    static const char *const fast[] = {"",          "jit:avx2",     "brgconv:avx512_core",
                                       "gemm:jit",  "x64:gemm:jit", "gemm:acl",
                                       "reflector", "prefetch:any", ":::"};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(reference); i++)
        assert_true(vb_k_impl_is_reference(reference[i]));
    for (i = 0; i < VB_COUNT(fast); i++)
        assert_false(vb_k_impl_is_reference(fast[i]));
}

static void threading_models_have_names(void **state)
{
    (void)state;
    assert_string_equal(vb_k_threading_str(VB_K_SEQUENTIAL), "sequential");
    assert_string_equal(vb_k_threading_str(VB_K_PTHREADS), "pthreads");
    assert_string_equal(vb_k_threading_str(VB_K_OPENMP), "OpenMP");
}

static void the_choice_follows_the_kernels(void **state)
{
    static const struct vb_k_blas blas = {.version = "0.3.21", .core = "haswell"};
    struct vb_k_onednn onednn = {
        .version = "3.7.2", .isa = "avx2", .conv = "jit:avx2", .inner = "gemm:jit"};
    char text[256], tiny[8];

    (void)state;
    vb_k_dense_choice(&onednn, &blas, text, sizeof(text));
    assert_string_equal(text, "dense kernels use oneDNN 3.7.2 (avx2: jit:avx2, gemm:jit)");

    onednn.inner_reference = true;
    vb_k_dense_choice(&onednn, &blas, text, sizeof(text));
    assert_string_equal(text, "convolutions use oneDNN 3.7.2 (avx2: jit:avx2), inner products use "
                              "OpenBLAS 0.3.21 (haswell)");

    onednn.inner_reference = false;
    onednn.conv_reference = true;
    vb_k_dense_choice(&onednn, &blas, text, sizeof(text));
    assert_string_equal(text, "inner products use oneDNN 3.7.2 (avx2: gemm:jit), convolutions use "
                              "OpenBLAS 0.3.21 (haswell)");

    onednn.conv[0] = onednn.inner[0] = '\0';
    vb_k_dense_choice(&onednn, &blas, text, sizeof(text));
    assert_non_null(strstr(text, "use OpenBLAS 0.3.21 (haswell)"));
    assert_non_null(strstr(text, "no implementation"));
    vb_k_dense_choice(&onednn, &blas, tiny, sizeof(tiny));
    assert_string_equal(tiny, "dense k");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onednn_names_its_kernels),
        cmocka_unit_test(the_instruction_set_is_this_cpus),
        cmocka_unit_test(blas_tells_what_it_is),
        cmocka_unit_test(reference_kernels_are_known_by_name),
        cmocka_unit_test(threading_models_have_names),
        cmocka_unit_test(the_choice_follows_the_kernels),
    };

    return T_RUN(tests);
}
