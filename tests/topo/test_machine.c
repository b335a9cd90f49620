/* SPDX-License-Identifier: MIT
 *
 * Tests reading machines from texts and from files, valid and broken ones, and the facts about
 * these machines.
 *
 * Covers: topo/load_in_child.c
 */
#include "tests/support/test.h"
#include "topo/topo.h"

static struct vb_topo *topo;

static int tidy_up(void **state)
{
    (void)state;
    vb_topo_close(topo);
    topo = NULL;
    return 0;
}

static const struct vb_topo_facts *facts_of(const char *synthetic)
{
    struct vb_topo_source source = {.synthetic = synthetic};

    tidy_up(NULL);
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    return vb_topo_facts(topo);
}

static void everything_is_counted(void **state)
{
    const struct vb_topo_facts *facts;

    (void)state;
    facts = facts_of("pack:2 numa:2 l3:1 l2:4 core:1 pu:2");
    assert_int_equal(facts->n_packages, 2);
    assert_int_equal(facts->n_nodes, 4);
    assert_int_equal(facts->n_cores, 16);
    assert_int_equal(facts->n_cpus, 32);
    assert_int_equal(facts->n_allowed_cores, 16);
    assert_int_equal(facts->n_allowed_cpus, 32);
    assert_int_equal(facts->n_caches, 2);
    assert_int_equal(facts->caches[0].level, 2);
    assert_int_equal(facts->caches[0].n, 16);
    assert_int_equal(facts->caches[1].level, 3);
    assert_true(facts->memory_bytes > 0);
    assert_string_equal(facts->origin, "synthetic");
    /* the text gives no packages and no cores, which means one package of three cores */
    facts = facts_of("pu:3");
    assert_int_equal(facts->n_packages, 1);
    assert_int_equal(facts->n_cores, 3);
}

static void refused(const struct vb_topo_source *source, vb_status want, const char *line)
{
    struct t_stderr t;
    char text[4096];
    vb_status st;

    t_stderr_catch(&t);
    st = vb_topo_open(source, &topo);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(st, want);
    assert_null(topo);
    assert_non_null(strstr(text, line));
}

static void bad_descriptions_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "nonsense",
                                      "pack:",
                                      "pu:-1",
                                      "pu: 2",
                                      "pu:2)",
                                      "pu:2]",
                                      "pack:2 numa:x",
                                      "pack:2(",
                                      "pack:0 pu:1",
                                      "pack:2 [numa",
                                      "pa)x:9999999 pu:1",
                                      "pu:2(size",
                                      "pa(:9999999 pu",
                                      "88 82pu:8",
                                      "pack:2 [numa) 2",
                                      "core:2((x) 4000 4000)",
                                      "2[numa(x) pu:2(]) 9999 9999"};
    static const char *const huge[] = {"pu:100000000",
                                       "pack:1000 core:1000 pu:1000",
                                       "pack:99999999999999999999999 pu:2",
                                       "300 300",
                                       "pu:0xfffff",
                                       "pu:010001",
                                       "core:2000 [numa] [numa] [numa] pu:1"};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(bad); i++)
        refused(&(struct vb_topo_source){.synthetic = bad[i]}, VB_ERR_USAGE,
                "does not describe a machine in hwloc's notation");
    for (i = 0; i < VB_COUNT(huge); i++)
        refused(&(struct vb_topo_source){.synthetic = huge[i]}, VB_ERR_USAGE,
                "more than 4096 hardware threads");
    refused(&(struct vb_topo_source){.synthetic = "pu:1", .xml = "x"}, VB_ERR_USAGE, "not both");
}

static void bad_lists_of_cpus_are_refused(void **state)
{
    static const char *const bad[] = {
        "",    "a",    "1,", ",1",    "3-1", "1-",    "1 2",
        "0-x", "1,,2", "-3", "65536", "0x3", "1-2-3", "99999999999999999999999"};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(bad); i++)
        refused(&(struct vb_topo_source){.synthetic = "pu:4", .cpus = bad[i]}, VB_ERR_USAGE,
                "is not a list of cpus");
    refused(&(struct vb_topo_source){.synthetic = "pu:4", .cpus = "4-9"}, VB_ERR_USAGE,
            "no hardware thread of synthetic is allowed");
}

static void bad_files_are_refused(void **state)
{
    char path[] = "/tmp/verbena-xml-XXXXXX";
    static const char *const bad[] = {
        "",
        "not XML",
        "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"></topology>",
        "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"><object type=\"Machine\"",
        "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\"/></topology>",
    };
    size_t i;
    int fd;

    (void)state;
    fd = mkstemp(path);
    assert_true(fd >= 0);
    for (i = 0; i < VB_COUNT(bad); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bad[i], strlen(bad[i]), 0), strlen(bad[i]));
        refused(&(struct vb_topo_source){.xml = path}, VB_ERR_INPUT, path);
    }
    assert_int_equal(ftruncate(fd, (off_t)65 << 20), 0);
    refused(&(struct vb_topo_source){.xml = path}, VB_ERR_INPUT, "larger than 64 MiB");
    close(fd);
    unlink(path);
    refused(&(struct vb_topo_source){.xml = path}, VB_ERR_NO_FILE, "No such file");
    refused(&(struct vb_topo_source){.xml = "/tmp"}, VB_ERR_INPUT, "/tmp is not a regular file");
}

/* hwloc crashes on this file, because one digit of a cpuset is wrong. */
static void a_file_that_crashes_hwloc_is_refused(void **state)
{
    const char *path = VB_TEST_DIR "/machines/broken-crashes-hwloc.xml";

    (void)state;
    refused(&(struct vb_topo_source){.xml = path}, VB_ERR_INPUT,
            "does not describe a machine in hwloc's XML");
}

static void saved_machine_is_the_same_machine(void **state)
{
    char path[] = "/tmp/verbena-xml-XXXXXX";
    struct vb_topo_source source = {.xml = path};
    int fd;

    (void)state;
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    facts_of("pack:2 numa:1 core:3 pu:2");
    assert_int_equal(vb_topo_save(topo, path), VB_OK);
    tidy_up(NULL);
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    assert_int_equal(vb_topo_facts(topo)->n_packages, 2);
    assert_int_equal(vb_topo_facts(topo)->n_cores, 6);
    assert_int_equal(vb_topo_facts(topo)->n_cpus, 12);
    assert_string_equal(vb_topo_facts(topo)->origin, path);
    unlink(path);
}

static void this_machine_opens(void **state)
{
    struct vb_topo_source source = {0};

    (void)state;
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    assert_true(vb_topo_facts(topo)->n_allowed_cpus >= 1);
    assert_true(vb_topo_facts(topo)->n_allowed_cpus <= vb_topo_facts(topo)->n_cpus);
    assert_true(vb_topo_facts(topo)->n_allowed_cores <= vb_topo_facts(topo)->n_allowed_cpus);
    assert_string_equal(vb_topo_facts(topo)->origin, "this machine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(everything_is_counted, tidy_up),
        cmocka_unit_test_teardown(bad_descriptions_are_refused, tidy_up),
        cmocka_unit_test_teardown(bad_lists_of_cpus_are_refused, tidy_up),
        cmocka_unit_test_teardown(bad_files_are_refused, tidy_up),
        cmocka_unit_test_teardown(a_file_that_crashes_hwloc_is_refused, tidy_up),
        cmocka_unit_test_teardown(saved_machine_is_the_same_machine, tidy_up),
        cmocka_unit_test_teardown(this_machine_opens, tidy_up),
    };

    return T_RUN(tests);
}
