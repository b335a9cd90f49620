/* SPDX-License-Identifier: MIT
 *
 * Reads what RDMA ports have moved, from trees as sysfs has them.
 *
 * Covers: net/probe/port_traffic.c
 */
#include "net/net.h"
#include "tests/support/sysroot.h"
#include "tests/support/test.h"

#define PORT "sys/class/infiniband/mlx5_0/ports/1/"
#define RXE "sys/class/infiniband/rxe0/ports/1/"

static struct vb_port_traffic read_port(const struct t_tree *tree, const char *dev, int *fds_p)
{
    struct vb_port_reader *reader;
    struct vb_port_traffic t;

    assert_int_equal(vb_net_port_open(tree->root, dev, 1, &reader), VB_OK);
    vb_net_port_read(reader, &t);
    *fds_p = vb_net_port_fds(reader);
    vb_net_port_close(reader);
    return t;
}

static void a_card_counts_words_of_four_bytes(void **state)
{
    struct vb_port_traffic t;
    struct t_tree tree;
    int fds;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, PORT "counters/port_xmit_data", "1000\n");
    t_tree_text(&tree, PORT "counters/port_rcv_data", "5000000000\n"); /* more than 2^32 */
    t_tree_text(&tree, PORT "counters/port_xmit_packets", "7\n");
    t_tree_text(&tree, PORT "counters/port_rcv_packets", "8\n");
    t_tree_text(&tree, PORT "counters/port_rcv_errors", "2\n");
    t_tree_text(&tree, PORT "counters/port_xmit_discards", "3\n");
    t_tree_text(&tree, PORT "hw_counters/tx_bytes", "999\n"); /* the first source counts */
    t = read_port(&tree, "mlx5_0", &fds);
    assert_int_equal(t.sent_bytes, 4000);
    assert_int_equal(t.received_bytes, UINT64_C(20000000000));
    assert_int_equal(t.sent_packets, 7);
    assert_int_equal(t.received_packets, 8);
    assert_int_equal(t.errors, 5);
    assert_int_equal(fds, 6);
    t_tree_destroy(&tree);
}

static void soft_roce_counts_packets(void **state)
{
    struct vb_port_traffic t;
    struct t_tree tree;
    int fds;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, RXE "hw_counters/sent_pkts", "70\n");
    t_tree_text(&tree, RXE "hw_counters/rcvd_pkts", "80\n");
    t_tree_text(&tree, RXE "hw_counters/send_err", "1\n");
    t = read_port(&tree, "rxe0", &fds);
    assert_int_equal(t.sent_bytes, 0);
    assert_int_equal(t.sent_packets, 70);
    assert_int_equal(t.received_packets, 80);
    assert_int_equal(t.errors, 1);
    t_tree_destroy(&tree);
}

static void hostile_files_count_nothing(void **state)
{
    struct vb_port_traffic t;
    struct t_tree tree;
    char name[2000];
    int fds;

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, PORT "counters/port_xmit_data", "N/A (no PMA)\n");
    t_tree_text(&tree, PORT "counters/port_rcv_data", "99999999999999999999999999\n");
    t_tree_text(&tree, PORT "counters/port_xmit_packets", "-1\n");
    t_tree_text(&tree, PORT "counters/port_rcv_packets", "");
    t_tree_garbage(&tree, PORT "counters/port_rcv_errors", 100000);
    t_tree_text(&tree, PORT "counters/port_xmit_discards/x", "1\n"); /* a folder */
    t = read_port(&tree, "mlx5_0", &fds);
    assert_int_equal(t.sent_bytes + t.received_bytes + t.sent_packets + t.received_packets, 0);
    assert_int_equal(fds, 0);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    t = read_port(&tree, name, &fds);
    assert_int_equal(fds, 0);
    t_tree_destroy(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_counts_words_of_four_bytes),
        cmocka_unit_test(soft_roce_counts_packets),
        cmocka_unit_test(hostile_files_count_nothing),
    };

    return T_RUN(tests);
}
