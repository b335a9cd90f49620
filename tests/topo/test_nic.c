/* SPDX-License-Identifier: MIT
 *
 * Tests which network card is chosen for a rank. Most of the machines are hwloc XML files with
 * several network cards.
 */
#include "tests/support/machine.h"

static void make(const char *machine, const char *cpus, const char *avoid_if, int ranks)
{
    char path[512];
    struct vb_topo_source source = {.xml = path, .cpus = cpus, .avoid_if = avoid_if};
    struct vb_placement_want want = {.ranks = ranks, .progress = true};

    close_machine(NULL);
    snprintf(path, sizeof(path), "%s/machines/%s.xml", VB_TEST_DIR, machine);
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    assert_int_equal(vb_placement_create(topo, &want, &placement), VB_OK);
}

static const struct vb_nic *nic_named(const char *net)
{
    const struct vb_topo_facts *facts = vb_topo_facts(topo);
    int i;

    for (i = 0; i < facts->n_nics; i++)
        if (facts->nics[i].net != NULL && strcmp(facts->nics[i].net, net) == 0)
            return &facts->nics[i];
    fail_msg("no card has the name %s", net);
    return NULL;
}

static void assert_choice(int rank, const char *rdma, const char *why)
{
    assert_non_null(placement->ranks[rank].nic);
    assert_string_equal(placement->ranks[rank].nic->rdma, rdma);
    if (strstr(placement->ranks[rank].nic_why, why) == NULL)
        fail_msg("the reason '%s' does not contain '%s'", placement->ranks[rank].nic_why, why);
}

static void check_two_soft_roce(const char *machine)
{
    make(machine, NULL, NULL, 2);
    /* lo and RDMA devices without an interface do not count */
    assert_int_equal(vb_topo_facts(topo)->n_nics, 2);
    assert_string_equal(nic_named("eth1")->rdma, "rxe0");
    assert_int_equal(nic_named("eth1")->node, 0);
    assert_int_equal(nic_named("eth1")->package, 0);
    assert_int_equal(nic_named("eth1")->active, 1);
    assert_string_equal(nic_named("eth0")->rdma, "rxe1");
    assert_int_equal(nic_named("eth0")->node, 1);
    assert_choice(0, "rxe0", "rxe0 rather than rxe1: rxe0 is nearer (package 0, NUMA node 0)");
    assert_choice(1, "rxe1", "rxe1 rather than rxe0: rxe1 is nearer (package 1, NUMA node 1)");
}

static void soft_roce_belongs_to_its_interface(void **state)
{
    (void)state;
    check_two_soft_roce("qemu-arm-2numa-2rxe");
    check_two_soft_roce("qemu-amd64-2pack-smt-2rxe");
}

static void rdma_is_preferred(void **state)
{
    (void)state;
    make("qemu-arm-1rxe-1plain", NULL, NULL, 3);
    assert_null(nic_named("eth0")->rdma);
    assert_int_equal(nic_named("eth0")->node, 0); /* the machine has only this node */
    assert_choice(0, "rxe0", "rxe0 rather than eth0: rxe0 has RDMA");
    assert_choice(2, "rxe0", "rxe0 has RDMA");
}

static void the_control_network_is_never_used(void **state)
{
    (void)state;
    make("qemu-arm-1rxe-1plain", NULL, "eth1", 1);
    assert_true(nic_named("eth1")->avoid);
    assert_null(placement->ranks[0].nic->rdma);
    assert_string_equal(placement->ranks[0].nic->net, "eth0");
    assert_string_equal(placement->ranks[0].nic_why,
                        "eth0 rather than rxe0: rxe0 is the control network");
}

static void speed_is_preferred_to_nearness_and_equal_cards_are_shared(void **state)
{
    (void)state;
    make("written-2pack-2hca", NULL, NULL, 4);
    assert_int_equal(vb_topo_facts(topo)->n_nics, 4);
    assert_string_equal(nic_named("eno12399np0")->rdma, "mlx5_0");
    assert_int_equal(nic_named("eno12399np0")->mbit_s, 25000);
    assert_int_equal(nic_named("eno12399np0")->package, 0);
    assert_int_equal(nic_named("eno12409np1")->active, 0);
    assert_choice(0, "mlx5_2", "both cards are equal, and mlx5_2 is the first");
    assert_choice(1, "mlx5_3", "both cards are equal, but fewer ranks use mlx5_3");
    assert_choice(2, "mlx5_2", "both cards are equal");
    assert_choice(3, "mlx5_3", "both cards are equal");
}

/* The faster card is made slower than the other card, so that the other card is chosen. One of the
 * two ports of the other card is down, so all ranks must use the port that is up. */
static void a_port_that_is_down_is_not_used(void **state)
{
    static char text[1 << 20];
    char path[] = "/tmp/verbena-xml-XXXXXX", *at = text;
    struct vb_topo_source source = {.xml = path};
    struct vb_placement_want want = {.ranks = 2};
    FILE *file;
    size_t n;

    (void)state;
    file = fopen(VB_TEST_DIR "/machines/written-2pack-2hca.xml", "r");
    assert_non_null(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    while ((at = strstr(at, "\"100000\"")) != NULL)
        memcpy(at, "\"010000\"", 8);
    assert_int_equal(close(mkstemp(path)), 0);
    assert_int_equal(vb_file_replace(path, text, n), VB_OK);
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    unlink(path);
    assert_int_equal(vb_placement_create(topo, &want, &placement), VB_OK);
    assert_choice(0, "mlx5_0", "mlx5_0 rather than mlx5_2: mlx5_0 is faster (25 Gb/s)");
    assert_choice(1, "mlx5_0", "mlx5_0 is faster");
}

static void a_machine_without_cards(void **state)
{
    struct vb_topo_source source = {.synthetic = "pack:1 core:2 pu:1"};
    struct vb_placement_want want = {.ranks = 1};

    (void)state;
    assert_int_equal(vb_topo_open(&source, &topo), VB_OK);
    assert_int_equal(vb_placement_create(topo, &want, &placement), VB_OK);
    assert_null(placement->ranks[0].nic);
    assert_string_equal(placement->ranks[0].nic_why, "no network card was found");
}

/* The package of the faster card is forbidden, so this card is near no allowed core. */
static void cards_near_forbidden_cores(void **state)
{
    (void)state;
    make("written-2pack-2hca", "0-71", NULL, 1);
    assert_int_equal(nic_named("ens2f0np0")->package, -1);
    assert_int_equal(nic_named("eno12399np0")->package, 0);
    assert_choice(0, "mlx5_2", "both cards are equal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(soft_roce_belongs_to_its_interface, close_machine),
        cmocka_unit_test_teardown(rdma_is_preferred, close_machine),
        cmocka_unit_test_teardown(the_control_network_is_never_used, close_machine),
        cmocka_unit_test_teardown(speed_is_preferred_to_nearness_and_equal_cards_are_shared,
                                  close_machine),
        cmocka_unit_test_teardown(a_port_that_is_down_is_not_used, close_machine),
        cmocka_unit_test_teardown(a_machine_without_cards, close_machine),
        cmocka_unit_test_teardown(cards_near_forbidden_cores, close_machine),
    };

    return T_RUN(tests);
}
