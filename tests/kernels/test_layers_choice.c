/* SPDX-License-Identifier: MIT
 *
 * Tests layers as a model uses them: the choice of backends, the cache of choices on disk, and
 * plans as text.
 *
 * Covers: kernels/choice/choice_cache.c kernels/choice/choice_plan.c kernels/choice/choice_time.c
 * Covers: kernels/choice/layer.c
 */
#include "kernels/choice/choice_priv.h"
#include "tests/support/fixtures/layers_fixture.h"

#include <dirent.h>
#include <omp.h>

static const struct vb_k_shape conv = T_CONV(3, 4, 9, 11, 6, 3, 3, 1, 1, false);

static struct vb_k_shape finished(const struct vb_k_shape *shape)
{
    struct vb_k_shape s = *shape;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    return s;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void layer_runs_its_passes(void **state)
{
    struct vb_k_tuning tuning = {.backend = {"blas", NULL, NULL}};
    struct t_layer t, want;
    struct vb_k_layer *layer;
    struct vb_k_args args;
    void *scratch;
    size_t i;

    (void)state;
    t_layer_create(&t, &conv);
    t_layer_create(&want, &conv);
    assert_int_equal(vb_k_layer_create(&t.s, &tuning, &layer), VB_OK);
    assert_string_equal(vb_k_layer_backend(layer, VB_K_FORWARD), "blas");
    /* the fastest backend, which depends on the machine */
    assert_non_null(vb_k_layer_backend(layer, VB_K_BACKWARD_WEIGHTS));
    assert_int_equal(vb_k_layer_shape(layer)->oc, 6);
    scratch = vb_alloc_aligned(vb_k_layer_scratch_bytes(layer) + 1);
    assert_non_null(scratch);
    args = t_args(&want);
    vb_k_layer_ref(&want.s, VB_K_FORWARD, &args);
    args = t_args(&t);
    args.scratch = scratch;
    t_set(&t.t[T_Y], 0);
    vb_k_layer_run(layer, VB_K_FORWARD, &args);
    for (i = 0; i < t.t[T_Y].n; i++)
        assert_true(t.t[T_Y].v[i] - want.t[T_Y].v[i] < 1e-5f &&
                    want.t[T_Y].v[i] - t.t[T_Y].v[i] < 1e-5f);
    free(scratch);
    vb_k_layer_destroy(layer);
    vb_k_layer_destroy(NULL);
    t_layer_destroy(&want);
    t_layer_destroy(&t);
}

static void passes_may_be_omitted(void **state)
{
    static const struct vb_k_shape relu = {.kind = VB_K_RELU, .n = 2, .c = 3, .h = 4, .w = 5};
    struct vb_k_shape s = finished(&conv), r = finished(&relu);
    struct vb_k_tuning tuning = {.unused = {[VB_K_BACKWARD_DATA] = true}};
    struct vb_k_args nothing = {0};
    struct vb_k_layer *layer;

    (void)state;
    assert_int_equal(vb_k_layer_create(&s, &tuning, &layer), VB_OK);
    assert_null(vb_k_layer_backend(layer, VB_K_BACKWARD_DATA));
    vb_k_layer_run(layer, VB_K_BACKWARD_DATA, &nothing);
    vb_k_layer_destroy(layer);
    assert_int_equal(vb_k_layer_create(&r, NULL, &layer), VB_OK);
    assert_string_equal(vb_k_layer_backend(layer, VB_K_FORWARD), "plain");
    assert_null(vb_k_layer_backend(layer, VB_K_BACKWARD_WEIGHTS));
    vb_k_layer_destroy(layer);
}

static void refuse(const char *backend, const char *message)
{
    struct vb_k_tuning tuning = {.backend = {NULL, backend, NULL}};
    struct vb_k_shape s = finished(&conv);
    struct vb_k_layer *layer;
    struct t_stderr err;
    char text[1024];

    t_stderr_catch(&err);
    assert_int_equal(vb_k_layer_create(&s, &tuning, &layer), VB_ERR_USAGE);
    t_stderr_release(&err, text, sizeof(text));
    assert_non_null(strstr(text, message));
}

static void backends_must_exist_and_fit(void **state)
{
    (void)state;
    refuse("nobody", "unknown backend nobody");
    refuse("plain", "backend plain cannot compute the pass backward-data of this conv layer");
}

/* Checks that every backend that can do a pass has a time. */
static void all_candidates_are_timed(void **state)
{
    struct vb_k_candidate c[VB_K_CANDIDATES_MAX];
    struct vb_k_shape s = finished(&conv);
    int i, n, blas = 0;

    (void)state;
    assert_int_equal(vb_k_time_all(&s, VB_K_BACKWARD_WEIGHTS, 0.001, c, &n), VB_OK);
    for (i = 0; i < n; i++) {
        assert_true(c[i].ms > 0);
        blas += strcmp(c[i].backend, "blas") == 0;
    }
    assert_int_equal(blas, 1);
    assert_true(vb_k_gemm_peak(0.001) > 0);
}

/* Candidates are first timed on a smaller shape. Checks that the chosen backend can compute the
 * whole shape. */
static void large_shapes_get_a_backend(void **state)
{
    static const struct vb_k_shape shapes[] = {T_CONV(16, 96, 14, 14, 128, 3, 3, 1, 1, true),
                                               T_LINEAR(16, 64, 6, 6, 1000, false)};
    const struct vb_k_backend *backend;
    size_t i;
    int pass;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++)
        for (pass = 0; pass < VB_K_PASSES; pass++) {
            struct vb_k_shape s = finished(&shapes[i]);

            assert_int_equal(vb_k_choose(&s, (enum vb_k_pass)pass, false, &backend), VB_OK);
            assert_true(backend->can(&s, (enum vb_k_pass)pass));
            assert_int_equal(backend->use, VB_K_ANY_TIME);
        }
}

/* ---- the cache ------------------------------------------------------------------------------- */

static char folder[] = "/tmp/verbena-test-XXXXXX";
static char path[512];

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* Sets path to the only file in the folder. */
static void find_path(void)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    int n = 0;

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
            n++;
        }
    closedir(dir);
    assert_int_equal(n, 1);
}

static void write_text(const char *text, const char *mode)
{
    FILE *f = fopen(path, mode);

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void fill_cache(void)
{
    struct vb_k_shape s = finished(&conv);
    struct vb_k_cache *cache;

    assert_int_equal(vb_k_cache_open(folder, &cache), VB_OK);
    vb_k_cache_add(cache, &s, VB_K_FORWARD, false, vb_k_backend_find("blas"));
    vb_k_cache_close(cache);
    find_path();
}

/* Opens the cache and copies the messages on standard error to `said`. Returns whether the cache
 * contains the choice that fill_cache() has made. */
static bool cache_knows(char *said, size_t size)
{
    struct vb_k_shape s = finished(&conv);
    struct vb_k_cache *cache;
    struct t_stderr err;
    bool found;

    t_stderr_catch(&err);
    assert_int_equal(vb_k_cache_open(folder, &cache), VB_OK);
    t_stderr_release(&err, said, size);
    found = vb_k_cache_find(cache, &s, VB_K_FORWARD, false) == vb_k_backend_find("blas");
    assert_null(vb_k_cache_find(cache, &s, VB_K_BACKWARD_DATA, false));
    s.n++;
    assert_null(vb_k_cache_find(cache, &s, VB_K_FORWARD, false));
    vb_k_cache_close(cache);
    return found;
}

static void choices_are_cached(void **state)
{
    char said[2048];

    (void)state;
    fill_cache();
    assert_true(cache_knows(said, sizeof(said)));
    assert_string_equal(said, "");
    /* each number of threads has its own cache file */
    omp_set_num_threads(omp_get_max_threads() + 1);
    assert_false(cache_knows(said, sizeof(said)));
    omp_set_num_threads(omp_get_max_threads() - 1);
}

/* A choice made with fast_math is found only with it. A file that was edited does not bring in a
 * backend that needs it. */
static void fast_math_has_its_own_choices(void **state)
{
    const struct vb_k_backend *fast = vb_k_backend_find("winograd4");
    struct vb_k_shape s = finished(&conv);
    struct vb_k_cache *cache;
    char text[1024];
    FILE *f;

    (void)state;
    assert_int_equal(fast->use, VB_K_FAST_MATH);
    fill_cache();
    assert_int_equal(vb_k_cache_open(folder, &cache), VB_OK);
    vb_k_cache_add(cache, &s, VB_K_FORWARD, true, fast);
    vb_k_cache_close(cache);
    assert_int_equal(vb_k_cache_open(folder, &cache), VB_OK);
    assert_ptr_equal(vb_k_cache_find(cache, &s, VB_K_FORWARD, true), fast);
    assert_ptr_equal(vb_k_cache_find(cache, &s, VB_K_FORWARD, false), vb_k_backend_find("blas"));
    vb_k_cache_close(cache);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f)); /* the line that names the machine */
    fclose(f);
    strcat(text, "conv:n3:c4:h9:w11:o6:k3x3:s1:p1:r0 forward winograd4\n");
    write_text(text, "w");
    assert_int_equal(vb_k_cache_open(folder, &cache), VB_OK);
    assert_null(vb_k_cache_find(cache, &s, VB_K_FORWARD, false));
    vb_k_cache_close(cache);
    unlink(path);
    fill_cache();
}

static void layers_use_the_cache(void **state)
{
    struct vb_k_shape s = finished(&conv);
    struct vb_k_tuning tuning = {0};
    struct vb_k_layer *layer;

    (void)state;
    assert_int_equal(vb_k_cache_open(folder, &tuning.cache), VB_OK);
    assert_int_equal(vb_k_layer_create(&s, &tuning, &layer), VB_OK);
    assert_string_equal(vb_k_layer_backend(layer, VB_K_FORWARD), "blas");
    /* a pass that was not in the cache is timed and added */
    assert_non_null(vb_k_cache_find(tuning.cache, &s, VB_K_BACKWARD_DATA, false));
    vb_k_layer_destroy(layer);
    vb_k_cache_close(tuning.cache);
    unlink(path);
    fill_cache();
}

static void broken_files_are_not_used(void **state)
{
    static const char *const broken[] = {
        "conv forward\n",
        "conv sideways blas\n",
        "conv forward nobody\n",
        "conv forward blas 1\n",
        "\n",
        "\x01\x02 \xff\n",
    };
    char said[2048];
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(broken); i++) {
        unlink(path);
        fill_cache();
        write_text(broken[i], "a");
        assert_false(cache_knows(said, sizeof(said)));
        assert_non_null(strstr(said, path));
        assert_non_null(strstr(said, "line 3: expected a shape, a pass and a backend"));
    }
    write_text("something else\n", "w");
    assert_false(cache_knows(said, sizeof(said)));
    assert_non_null(strstr(said, path));
    assert_non_null(strstr(said, "belongs to a different machine or program"));
    write_text("", "w"); /* an empty file counts as no file */
    assert_false(cache_knows(said, sizeof(said)));
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void plans_are_read_back_from_text(void **state)
{
    struct vb_k_tuning tuning = {.backend = {"blas", "blas", "blas"}};
    struct vb_k_shape s = finished(&conv);
    static struct vb_k_plan plan, again;
    struct vb_k_layer *layer;
    char why[VB_OPTS_WHY];
    char *text;

    (void)state;
    assert_int_equal(vb_k_layer_create(&s, &tuning, &layer), VB_OK);
    assert_int_equal(vb_k_plan_add(&plan, "conv1", layer), VB_OK);
    assert_int_equal(vb_k_plan_add(&plan, "conv2", layer), VB_OK);
    vb_k_layer_destroy(layer);
    text = vb_k_plan_text(&plan);
    assert_non_null(text);
    assert_string_equal(text, "conv1 forward blas\nconv1 backward-data blas\n"
                              "conv1 backward-weights blas\nconv2 forward blas\n"
                              "conv2 backward-data blas\nconv2 backward-weights blas\n");
    assert_int_equal(vb_k_plan_parse(text, &again, why), VB_OK);
    assert_int_equal(again.n, 6);
    assert_string_equal(vb_k_plan_find(&again, "conv2", VB_K_BACKWARD_DATA), "blas");
    assert_null(vb_k_plan_find(&again, "conv3", VB_K_FORWARD));
    free(text);
}

static void plans_may_have_comments(void **state)
{
    static struct vb_k_plan plan;
    char why[VB_OPTS_WHY];

    (void)state;
    assert_int_equal(vb_k_plan_parse("# made by hand\n\n  fc1\tforward  blas \r\n", &plan, why),
                     VB_OK);
    assert_int_equal(plan.n, 1);
    assert_int_equal(vb_k_plan_parse("", &plan, why), VB_OK);
    assert_int_equal(plan.n, 0);
    assert_int_equal(vb_k_plan_parse("fc1 forward blas", &plan, why), VB_OK);
    assert_int_equal(plan.n, 1);
}

static void bad_plan(const char *text, const char *message)
{
    static struct vb_k_plan plan;
    char why[VB_OPTS_WHY];

    plan.n = -1;
    assert_int_equal(vb_k_plan_parse(text, &plan, why), VB_ERR_INPUT);
    assert_string_equal(why, message);
    assert_int_equal(plan.n, -1); /* an error leaves the plan unchanged */
}

static void bad_plans_are_refused(void **state)
{
    static char text[VB_K_CHOICES_MAX * 32 + 64];
    size_t at = 0;
    int i;

    (void)state;
    bad_plan("a forward blas\nb forward\n", "line 2: expected a layer, a pass and a backend");
    bad_plan("a forward blas plain\n", "line 1: expected a layer, a pass and a backend");
    bad_plan("a up blas\n", "line 1: the pass must be forward, backward-data or backward-weights");
    bad_plan("\n#\na forward nobody\n", "line 3: no backend has this name");
    bad_plan("a forward blas\na forward blas\n", "line 2: this pass already has a backend");
    bad_plan("a23456789012345678901234567890123 forward blas\n",
             "line 1: a layer's name must be shorter than 32 characters and contain no space or #");
    memset(text, 'x', 200);
    bad_plan(text, "line 1: too long");
    for (i = 0; i <= VB_K_CHOICES_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "layer%d forward blas\n", i);
    bad_plan(text, "line 257: too many choices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_runs_its_passes),
        cmocka_unit_test(passes_may_be_omitted),
        cmocka_unit_test(backends_must_exist_and_fit),
        cmocka_unit_test(all_candidates_are_timed),
        cmocka_unit_test(large_shapes_get_a_backend),
        cmocka_unit_test(choices_are_cached),
        cmocka_unit_test(fast_math_has_its_own_choices),
        cmocka_unit_test(layers_use_the_cache),
        cmocka_unit_test(broken_files_are_not_used),
        cmocka_unit_test(plans_are_read_back_from_text),
        cmocka_unit_test(plans_may_have_comments),
        cmocka_unit_test(bad_plans_are_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder) == 0 ? 0 : 1;
}
