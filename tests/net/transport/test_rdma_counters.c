/* SPDX-License-Identifier: MIT
 *
 * Tests the counters of RDMA ports. The inputs are two recordings of one soft-RoCE device, made
 * before and after a transfer over a link that lost packets, and files that no driver would write.
 */
#include "net/net.h"
#include "tests/support/sysroot.h"
#include "tests/support/test.h"

#include <sys/stat.h>

#define BEFORE VB_TEST_DIR "/sysroots/rxe_before"
#define AFTER VB_TEST_DIR "/sysroots/rxe_after"
#define PORT "sys/class/infiniband/mlx5_0/ports/1/"

static struct vb_port_list read_all(const char *sysroot, const char *which)
{
    struct vb_port_list list;

    assert_int_equal(vb_net_ports_read(sysroot, which, &list), VB_OK);
    return list;
}

static void a_lossy_link_is_visible_in_counters(void **state)
{
    struct vb_port_list before = read_all(BEFORE, NULL), after = read_all(AFTER, NULL), moved;
    int k;

    (void)state;
    assert_int_equal(before.n, 1);
    assert_string_equal(before.ports[0].dev, "rxe0");
    assert_int_equal(before.ports[0].port, 1);
    assert_int_equal(before.ports[0].known, (1u << VB_PORT_TROUBLES) - 1);
    vb_net_ports_moved(&before, &after, &moved);
    assert_int_equal(moved.n, 1);
    assert_int_equal(moved.ports[0].n[VB_PORT_RETRIES], 60);
    assert_int_equal(moved.ports[0].n[VB_PORT_OUT_OF_SEQ], 56);
    assert_int_equal(moved.ports[0].n[VB_PORT_RNR], 0);

    vb_net_ports_moved(&after, &after, &moved);
    for (k = 0; k < VB_PORT_TROUBLES; k++)
        assert_int_equal(moved.ports[0].n[k], 0);
}

static void counters_of_one_port(void **state)
{
    (void)state;
    assert_int_equal(read_all(AFTER, "rxe0/1").n, 1);
    assert_int_equal(read_all(AFTER, "rxe0").n, 1);
    assert_int_equal(read_all(AFTER, "rxe0/2").n, 0);
    assert_int_equal(read_all(AFTER, "rxe").n, 0);
    assert_int_equal(read_all(AFTER, "").n, 0);
    assert_int_equal(read_all(VB_TEST_DIR "/sysroots/laptop", NULL).n, 0);
}

/* mlx5 uses other names for the same counters. For an event such as a lost packet it has two
 * counters, one for the sender and one for the receiver. */
static void names_of_another_driver(void **state)
{
    struct vb_port_list list;
    struct t_tree tree;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, PORT "state", "4: ACTIVE\n");
    t_tree_text(&tree, PORT "hw_counters/local_ack_timeout_err", "2\n");
    t_tree_text(&tree, PORT "hw_counters/roce_adp_retrans", "1\n");
    t_tree_text(&tree, PORT "hw_counters/out_of_sequence", "4\n");
    t_tree_text(&tree, PORT "hw_counters/packet_seq_err", "5\n");
    t_tree_text(&tree, PORT "hw_counters/rnr_nak_retry_err", "1\n");
    t_tree_text(&tree, PORT "hw_counters/lifespan", "12\n");
    t_tree_text(&tree, PORT "counters/port_xmit_discards", "1\n");
    list = read_all(tree.root, NULL);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.ports[0].dev, "mlx5_0");
    assert_int_equal(list.ports[0].n[VB_PORT_RETRIES], 3);
    assert_int_equal(list.ports[0].n[VB_PORT_OUT_OF_SEQ], 9);
    assert_int_equal(list.ports[0].n[VB_PORT_RNR], 1);
    assert_int_equal(list.ports[0].n[VB_PORT_LOST], 1);
    assert_false(list.ports[0].known & 1u << VB_PORT_GIVEN_UP);

    t_tree_text(&tree, PORT "state", "1: DOWN\n");
    assert_int_equal(read_all(tree.root, NULL).n, 0);
    assert_int_equal(read_all(tree.root, "mlx5_0").n, 1);
    t_tree_destroy(&tree);
}

/* The difference of two readings: for a counter that was reset, it is the new value. For a new
 * port, all values are differences. */
static void counters_that_were_reset(void **state)
{
    struct vb_port_list before = {.n = 1}, after, moved;
    struct vb_port_counts *old = &before.ports[0];

    (void)state;
    *old = (struct vb_port_counts){.dev = "rxe0", .port = 1, .known = 7, .n = {10, 10, 10}};
    after = before;
    after.n = 2;
    after.ports[0].n[0] = 3;
    after.ports[0].n[1] = 12;
    after.ports[0].known = 3;
    after.ports[1] = (struct vb_port_counts){.dev = "rxe1", .port = 1, .known = 1, .n = {4}};
    vb_net_ports_moved(&before, &after, &moved);
    assert_int_equal(moved.ports[0].n[0], 3);
    assert_int_equal(moved.ports[0].n[1], 2);
    assert_int_equal(moved.ports[0].n[2], 0); /* the port does not have this counter any more */
    assert_int_equal(moved.ports[1].n[0], 4);
    assert_non_null(vb_net_ports_find(&moved, "rxe1", 1));
    assert_null(vb_net_ports_find(&moved, "rxe1", 2));
}

static void hostile_files_count_nothing(void **state)
{
    struct vb_port_list list;
    char path[PATH_MAX];
    struct t_tree tree;
    int i;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, PORT "state", "4: ACTIVE\n");
    t_tree_text(&tree, PORT "hw_counters/out_of_sequence", "N/A (no PMA)\n");
    t_tree_text(&tree, PORT "hw_counters/packet_seq_err", "-7\n");
    t_tree_text(&tree, PORT "hw_counters/rnr_nak_retry_err", "99999999999999999999999999\n");
    t_tree_text(&tree, PORT "hw_counters/out_of_buffer", "");
    t_tree_garbage(&tree, PORT "hw_counters/duplicate_request", 100000);
    /* the counter is a folder */
    t_tree_text(&tree, PORT "hw_counters/local_ack_timeout_err/x", "1\n");
    t_tree_path(&tree, PORT "hw_counters/roce_adp_retrans", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    t_tree_text(&tree, PORT "counters/port_xmit_discards", "9223372036854775807\n");
    t_tree_text(&tree, PORT "counters/port_rcv_errors", "9223372036854775807\n");
    t_tree_text(&tree, "sys/class/infiniband/mlx5_0/ports/0/state", "4: ACTIVE\n");
    t_tree_text(&tree, "sys/class/infiniband/mlx5_0/ports/256/state", "4: ACTIVE\n");
    t_tree_text(&tree, "sys/class/infiniband/mlx5_0/ports/1x/state", "4: ACTIVE\n");
    t_tree_text(&tree, "sys/class/infiniband/a file", "4: ACTIVE\n");
    list = read_all(tree.root, NULL);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.ports[0].known, 1u << VB_PORT_LOST);
    assert_int_equal(list.ports[0].n[VB_PORT_LOST], INT64_MAX);

    for (i = 2; i <= 200; i++) { /* more ports than the list can hold */
        snprintf(path, sizeof(path), "sys/class/infiniband/mlx5_0/ports/%d/state", i);
        t_tree_text(&tree, path, "4: ACTIVE\n");
    }
    assert_int_equal(read_all(tree.root, NULL).n, VB_PORTS_MAX);
    t_tree_destroy(&tree);
}

/* Reads the devices of this machine. In the lab there is a soft-RoCE device, which has a counter of
 * retries. */
static void this_machine_is_read(void **state)
{
    struct vb_port_list list = read_all("", NULL);
    int i;

    (void)state;
    for (i = 0; i < list.n; i++)
        if (strncmp(list.ports[i].dev, "rxe", 3) == 0)
            assert_true(list.ports[i].known & 1u << VB_PORT_RETRIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lossy_link_is_visible_in_counters),
        cmocka_unit_test(counters_of_one_port),
        cmocka_unit_test(names_of_another_driver),
        cmocka_unit_test(counters_that_were_reset),
        cmocka_unit_test(hostile_files_count_nothing),
        cmocka_unit_test(this_machine_is_read),
    };

    return T_RUN(tests);
}
