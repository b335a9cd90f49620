/* SPDX-License-Identifier: MIT
 *
 * Tests the list of RDMA devices: from recorded machines and from this machine. If this machine has
 * no device, the list must be empty, without an error. If it has devices, soft-RoCE included, every
 * field is checked.
 *
 * Covers: net/probe/rdma_sysfs.c net/probe/rxe_probe.c
 */
#include "net/net.h"
#include "tests/support/sysroot.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>

#define CLOUDLAB VB_TEST_DIR "/sysroots/cloudlab"
#define LAPTOP VB_TEST_DIR "/sysroots/laptop"
#define IB "sys/class/infiniband/"

struct listed {
    struct vb_rdma_dev *list;
    int n;
};

static struct listed list_of(const char *sysroot)
{
    struct listed got;

    assert_int_equal(vb_net_rdma_list(sysroot, &got.list, &got.n), VB_OK);
    assert_non_null(got.list);
    return got;
}

static void a_recorded_card_is_read(void **state)
{
    struct listed got = list_of(CLOUDLAB);
    const struct vb_rdma_dev *dev = &got.list[1];
    const struct vb_rdma_gid *gid;

    (void)state;
    assert_int_equal(got.n, 2);
    assert_string_equal(dev->name, "mlx5_2");
    assert_int_equal(dev->transport, VB_RDMA_ROCE);
    assert_false(dev->soft);
    assert_string_equal(dev->driver, "mlx5_core");
    assert_string_equal(dev->firmware, "16.35.2000");
    assert_string_equal(dev->netdev, "enp65s0f0np0");
    assert_int_equal(dev->verbs_err, 0);
    assert_int_equal(dev->n_ports, 1);
    assert_int_equal(dev->ports[0].num, 1);
    assert_true(dev->ports[0].active);
    assert_true(dev->ports[0].ethernet);
    assert_true(dev->ports[0].speed_gbit == 25);
    /* the fifth GID is zero, which means an empty slot */
    assert_int_equal(dev->ports[0].n_gids, 4);
    gid = &dev->ports[0].gids[3];
    assert_int_equal(gid->index, 3);
    assert_int_equal(gid->type, VB_GID_ROCE_V2);
    assert_string_equal(gid->text, "::ffff:10.10.1.1");
    assert_string_equal(gid->netdev, "enp65s0f0np0");
    assert_int_equal(dev->ports[0].gids[2].type, VB_GID_ROCE_V1);
    vb_net_rdma_free(got.list, got.n);
}

static void kinds_of_devices_are_distinguished(void **state)
{
    struct t_tree tree;
    struct listed got;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, IB "a_rxe/node_type", "1: CA\n");
    t_tree_text(&tree, IB "a_rxe/parent", "eth0\n");
    t_tree_text(&tree, IB "a_rxe/ports/1/link_layer", "Ethernet\n");
    t_tree_text(&tree, IB "b_rxe_old/node_type", "1: CA\n");
    t_tree_text(&tree, IB "b_rxe_old/node_desc", "rxe\n");
    t_tree_text(&tree, IB "c_siw/node_type", "4: RNIC\n");
    t_tree_text(&tree, IB "d_ib/node_type", "1: CA\n");
    t_tree_text(&tree, IB "d_ib/ports/1/link_layer", "InfiniBand\n");
    t_tree_text(&tree, IB "d_ib/ports/1/state", "2: INIT\n");
    t_tree_text(&tree, IB "d_ib/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n");
    t_tree_text(&tree, IB "e_odd/node_type", "7: unspecified\n");
    got = list_of(tree.root);
    assert_int_equal(got.n, 5);
    assert_true(got.list[0].soft);
    assert_string_equal(got.list[0].driver, "rxe");
    assert_string_equal(got.list[0].netdev, "eth0");
    assert_int_equal(got.list[0].transport, VB_RDMA_ROCE);
    assert_true(got.list[1].soft);
    assert_true(got.list[2].soft);
    assert_string_equal(got.list[2].driver, "siw");
    assert_int_equal(got.list[2].transport, VB_RDMA_IWARP);
    assert_false(got.list[3].soft);
    assert_int_equal(got.list[3].transport, VB_RDMA_INFINIBAND);
    assert_string_equal(got.list[3].ports[0].state, "INIT");
    assert_false(got.list[3].ports[0].active);
    assert_int_equal(got.list[3].ports[0].gids[0].type, VB_GID_IB);
    assert_int_equal(got.list[4].transport, VB_RDMA_OTHER);
    vb_net_rdma_free(got.list, got.n);
    t_tree_destroy(&tree);
}

static void garbage_is_survived(void **state)
{
    static const char *const files[] = {"node_type",      "node_desc",
                                        "fw_ver",         "parent",
                                        "ports/1/state",  "ports/1/rate",
                                        "ports/1/gids/0", "ports/1/link_layer",
                                        "ports/x/state",  "ports/999/state",
                                        "ports/-1/state", "ports/1/gid_attrs/types/0",
                                        "ports/0/gids/0", "ports/1/gid_attrs/ndevs/0"};
    char path[PATH_MAX];
    struct t_tree tree;
    struct listed got;
    size_t i;

    (void)state;
    t_tree_create(&tree);
    for (i = 0; i < VB_COUNT(files); i++) {
        snprintf(path, sizeof(path), IB "odd0/%s", files[i]);
        t_tree_garbage(&tree, path, 4096);
    }
    got = list_of(tree.root);
    assert_int_equal(got.n, 1);
    assert_int_equal(got.list[0].n_ports, 1);
    assert_int_equal(got.list[0].ports[0].n_gids, 0);
    assert_false(got.list[0].ports[0].active);
    assert_true(got.list[0].ports[0].speed_gbit == 0);
    vb_net_rdma_free(got.list, got.n);
    t_tree_destroy(&tree);
}

static void a_machine_without_rdma_has_an_empty_list(void **state)
{
    struct listed got = list_of(LAPTOP);

    (void)state;
    assert_int_equal(got.n, 0);
    vb_net_rdma_free(got.list, got.n);
    vb_net_rdma_free(NULL, 0);
}

static void check_live_port(const struct vb_rdma_dev *dev, const struct vb_rdma_port *port)
{
    struct in6_addr addr;
    int i;

    assert_true(port->num >= 1);
    assert_true(port->state[0] != '\0');
    assert_int_equal(port->active, strcmp(port->state, "ACTIVE") == 0);
    assert_true(port->mtu_bytes >= 256 && port->mtu_bytes <= 4096);
    assert_true(port->max_msg_bytes > 0);
    for (i = 0; i < port->n_gids; i++) {
        assert_int_equal(inet_pton(AF_INET6, port->gids[i].text, &addr), 1);
        assert_true(i == 0 || port->gids[i].index > port->gids[i - 1].index);
        if (dev->transport == VB_RDMA_ROCE)
            assert_int_not_equal(port->gids[i].type, VB_GID_IB);
    }
    if (strcmp(dev->driver, "rxe") == 0) {
        /* Soft-RoCE has this limit. Longer transfers must be split. */
        assert_int_equal(port->max_msg_bytes, 8 << 20);
        assert_true(port->ethernet);
    }
}

static void this_machine_is_read_through_verbs(void **state)
{
    struct listed got = list_of("");
    int i, p, n_open = 0;

    (void)state;
    for (i = 0; i < got.n; i++) {
        assert_true(got.list[i].name[0] != '\0');
        if (got.list[i].verbs_err != 0)
            continue; /* a container may see a card that it may not open */
        n_open++;
        assert_true(got.list[i].n_ports > 0);
        for (p = 0; p < got.list[i].n_ports; p++)
            check_live_port(&got.list[i], &got.list[i].ports[p]);
    }
    printf("found %d RDMA devices; %d of them could be opened\n", got.n, n_open);
    if (access("/sys/class/infiniband", F_OK) != 0)
        assert_int_equal(got.n, 0);
    vb_net_rdma_free(got.list, got.n);
}

static void requirements_of_soft_roce_are_found(void **state)
{
    struct vb_rxe rxe;

    (void)state;
    vb_net_rxe_probe(LAPTOP, &rxe);
    assert_string_equal(rxe.release, "6.1.0-18-amd64");
    assert_true(rxe.present); /* the file of the module is compressed */
    assert_false(rxe.built_in);
    assert_false(rxe.loaded);
    assert_true(rxe.kernel_has_modules);
    assert_true(rxe.tool);

    vb_net_rxe_probe(CLOUDLAB, &rxe);
    assert_false(rxe.present);
    assert_false(rxe.tool);
    assert_true(rxe.kernel_has_modules);
}

static void the_module_is_found_in_every_place(void **state)
{
    struct t_tree tree;
    struct vb_rxe rxe;

    (void)state;
    t_tree_create(&tree);
    vb_net_rxe_probe(tree.root, &rxe);
    assert_string_equal(rxe.release, "");
    assert_false(rxe.present || rxe.built_in || rxe.loaded || rxe.kernel_has_modules || rxe.tool);

    t_tree_text(&tree, "proc/sys/kernel/osrelease", "6.1\n");
    t_tree_garbage(&tree, "lib/modules/6.1/modules.dep", 100000);
    vb_net_rxe_probe(tree.root, &rxe);
    assert_false(rxe.present || rxe.built_in);
    t_tree_text(&tree, "lib/modules/6.1/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.zst", "");
    vb_net_rxe_probe(tree.root, &rxe);
    assert_true(rxe.present);
    t_tree_text(&tree, "lib/modules/6.1/modules.builtin", "kernel/a.ko\nkernel/b/rdma_rxe.ko\n");
    t_tree_text(&tree, "sys/module/rdma_rxe/refcnt", "0\n");
    vb_net_rxe_probe(tree.root, &rxe);
    assert_true(rxe.built_in && rxe.loaded);

    /* the path would lead out of the folder */
    t_tree_text(&tree, "proc/sys/kernel/osrelease", "../../etc\n");
    vb_net_rxe_probe(tree.root, &rxe);
    assert_string_equal(rxe.release, "");
    t_tree_text(&tree, "proc/sys/kernel/osrelease", "6.1/../../..\n");
    vb_net_rxe_probe(tree.root, &rxe);
    assert_string_equal(rxe.release, "");
    t_tree_destroy(&tree);
}

static void versions_are_reported(void **state)
{
    char text[64];

    (void)state;
    vb_net_verbs_version(text, sizeof(text));
    assert_memory_equal(text, "libibverbs 1.", 13);
    vb_net_rdmacm_version(text, sizeof(text));
    assert_memory_equal(text, "librdmacm 1.", 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_card_is_read),
        cmocka_unit_test(kinds_of_devices_are_distinguished),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(a_machine_without_rdma_has_an_empty_list),
        cmocka_unit_test(this_machine_is_read_through_verbs),
        cmocka_unit_test(requirements_of_soft_roce_are_found),
        cmocka_unit_test(the_module_is_found_in_every_place),
        cmocka_unit_test(versions_are_reported),
    };

    return T_RUN(tests);
}
