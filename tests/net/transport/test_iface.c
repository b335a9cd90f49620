/* SPDX-License-Identifier: MIT
 *
 * Tests the list of network interfaces: from recorded machines, from broken files, and from this
 * machine.
 *
 * Covers: net/probe/folder.c
 */
#include "net/net.h"
#include "tests/support/sysroot.h"
#include "tests/support/test.h"

#include <net/if.h>

#define CLOUDLAB VB_TEST_DIR "/sysroots/cloudlab"
#define LAPTOP VB_TEST_DIR "/sysroots/laptop"

struct listed {
    struct vb_iface *list;
    int n;
};

static struct listed list_of(const char *sysroot)
{
    struct listed got;

    assert_int_equal(vb_net_ifaces_list(sysroot, &got.list, &got.n), VB_OK);
    assert_non_null(got.list);
    return got;
}

static const struct vb_iface *find(const struct listed *got, const char *name)
{
    int i;

    for (i = 0; i < got->n; i++)
        if (strcmp(got->list[i].name, name) == 0)
            return &got->list[i];
    return NULL;
}

static void a_cloudlab_node_is_read(void **state)
{
    struct listed got = list_of(CLOUDLAB);
    const struct vb_iface *iface;
    int i;

    (void)state;
    assert_int_equal(got.n, 6); /* bonding_masters is a file, not an interface */
    for (i = 1; i < got.n; i++)
        assert_true(strcmp(got.list[i - 1].name, got.list[i].name) < 0);

    iface = find(&got, "enp65s0f0np0");
    assert_non_null(iface);
    assert_int_equal(iface->kind, VB_IFACE_PHYSICAL);
    assert_true(iface->up);
    assert_false(iface->control);
    assert_false(iface->default_route);
    assert_int_equal(iface->speed_mbit, 25000);
    assert_int_equal(iface->mtu_bytes, 9000);
    assert_string_equal(iface->driver, "mlx5_core");
    assert_int_equal(iface->n_addrs, 0);

    iface = find(&got, "enp65s0f1np1");
    assert_non_null(iface);
    assert_false(iface->up);
    assert_int_equal(iface->speed_mbit, -1);
    vb_net_ifaces_free(got.list);
}

static void the_control_network_is_known_and_avoided(void **state)
{
    struct listed got = list_of(CLOUDLAB);
    const struct vb_iface *control = find(&got, "eno33np0");
    char name[VB_IFACE_NAME], tiny[4];

    (void)state;
    assert_true(vb_net_control_if(CLOUDLAB, name, sizeof(name)));
    assert_string_equal(name, "eno33np0");
    assert_false(vb_net_control_if(CLOUDLAB, tiny, sizeof(tiny)));
    assert_false(vb_net_control_if(LAPTOP, name, sizeof(name)));

    assert_non_null(control);
    assert_true(control->control);
    /* the metric of this route is lower than the metric of the route over docker0 */
    assert_true(control->default_route);
    assert_false(find(&got, "docker0")->default_route);
    assert_string_equal(vb_net_iface_for_data(got.list, got.n)->name, "enp65s0f0np0");
    vb_net_ifaces_free(got.list);
}

static void kinds_of_interfaces_are_distinguished(void **state)
{
    static const char *const virtual[] = {"docker0", "tun0", "veth1a2b3c4", "virbr0"};
    struct listed cloudlab = list_of(CLOUDLAB), laptop = list_of(LAPTOP);
    size_t i;

    (void)state;
    assert_int_equal(find(&cloudlab, "lo")->kind, VB_IFACE_LOOPBACK);
    assert_int_equal(find(&cloudlab, "vlan411")->kind, VB_IFACE_STACKED);
    assert_int_equal(find(&cloudlab, "docker0")->kind, VB_IFACE_VIRTUAL);
    assert_int_equal(find(&laptop, "wlp2s0")->kind, VB_IFACE_PHYSICAL);
    for (i = 0; i < VB_COUNT(virtual); i++)
        assert_int_equal(find(&laptop, virtual[i])->kind, VB_IFACE_VIRTUAL);
    assert_true(find(&laptop, "veth1a2b3c4")->enslaved);
    /* the state of tun0 is "unknown", but tun0 has a carrier */
    assert_true(find(&laptop, "tun0")->up);
    assert_true(find(&laptop, "wlp2s0")->default_route);
    assert_int_equal(find(&laptop, "enp0s31f6")->speed_mbit, -1);
    /* wlp2s0 is chosen although virtual interfaces report a higher speed, because they reach no
     * other host. */
    assert_string_equal(vb_net_iface_for_data(laptop.list, laptop.n)->name, "wlp2s0");
    vb_net_ifaces_free(cloudlab.list);
    vb_net_ifaces_free(laptop.list);
}

static void the_best_interface_has_an_address_then_speed(void **state)
{
    struct vb_iface list[] = {
        {.name = "a", .kind = VB_IFACE_PHYSICAL, .up = true, .speed_mbit = 100000},
        {.name = "b", .kind = VB_IFACE_PHYSICAL, .up = true, .speed_mbit = 1000, .n_addrs = 1},
        {.name = "c", .kind = VB_IFACE_STACKED, .up = true, .speed_mbit = 25000, .n_addrs = 1},
        {.name = "d", .kind = VB_IFACE_PHYSICAL, .up = true, .speed_mbit = 25000, .n_addrs = 1},
        {.name = "e", .kind = VB_IFACE_PHYSICAL, .speed_mbit = 400000, .n_addrs = 1},
    };

    (void)state;
    assert_ptr_equal(vb_net_iface_for_data(list, VB_COUNT(list)), &list[2]);
    list[2].enslaved = true;
    assert_ptr_equal(vb_net_iface_for_data(list, VB_COUNT(list)), &list[3]);
    list[3].control = true;
    assert_ptr_equal(vb_net_iface_for_data(list, VB_COUNT(list)), &list[1]);
    list[1].up = false;
    assert_ptr_equal(vb_net_iface_for_data(list, VB_COUNT(list)), &list[0]);
    assert_null(vb_net_iface_for_data(list, 0));
}

static void an_ipv6_default_route_counts(void **state)
{
    static const char zero[] = "00000000000000000000000000000000";
    struct listed got;
    struct t_tree tree;
    char text[1024];

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "sys/class/net/eth0/operstate", "up\n");
    t_tree_text(&tree, "sys/class/net/eth1/operstate", "up\n");
    t_tree_text(&tree, "sys/class/net/lo/operstate", "unknown\n");
    snprintf(text, sizeof(text),
             "%s 00 %s 00 %s 00000000 1 0 00200201 lo\n" /* this is a reject route */
             "%s 00 %s 00 fd000000000000000000000000000001 00000400 2 0 00000003 eth1\n"
             "%s 40 %s 00 %s 00000100 1 0 00000001 eth0\n",
             zero, zero, zero, zero, zero, zero, zero, zero);
    t_tree_text(&tree, "proc/net/ipv6_route", text);
    got = list_of(tree.root);
    assert_false(find(&got, "eth0")->default_route);
    assert_true(find(&got, "eth1")->default_route);
    assert_false(find(&got, "lo")->default_route);
    /* lo is recognized by its name, because the folder has no file with the type. */
    assert_int_equal(find(&got, "lo")->kind, VB_IFACE_LOOPBACK);
    vb_net_ifaces_free(got.list);
    t_tree_destroy(&tree);
}

static void an_empty_machine_has_none(void **state)
{
    char name[VB_IFACE_NAME];
    struct t_tree tree;
    struct listed got;

    (void)state;
    t_tree_create(&tree);
    got = list_of(tree.root);
    assert_int_equal(got.n, 0);
    assert_null(vb_net_iface_for_data(got.list, got.n));
    assert_false(vb_net_control_if(tree.root, name, sizeof(name)));
    vb_net_ifaces_free(got.list);
    vb_net_ifaces_free(NULL);
    t_tree_destroy(&tree);
}

static void absurd_numbers_count_as_unknown(void **state)
{
    static const char *const speeds[] = {
        "-1", "-25000", "0", "4294967295", "1e5", "fast", "", "99999999999999999999999", "25000 x"};
    struct t_tree tree;
    size_t i;

    (void)state;
    t_tree_create(&tree);
    for (i = 0; i < VB_COUNT(speeds); i++) {
        struct listed got;

        t_tree_text(&tree, "sys/class/net/eth0/speed", speeds[i]);
        t_tree_text(&tree, "sys/class/net/eth0/mtu", speeds[i]);
        got = list_of(tree.root);
        assert_int_equal(got.n, 1);
        assert_int_equal(got.list[0].speed_mbit, -1);
        assert_int_equal(got.list[0].mtu_bytes, 0);
        assert_false(got.list[0].up);
        vb_net_ifaces_free(got.list);
    }
    t_tree_destroy(&tree);
}

static void garbage_is_survived(void **state)
{
    static const char *const files[] = {"operstate", "carrier", "speed", "mtu", "type"};
    char path[PATH_MAX], name[VB_IFACE_NAME];
    struct listed got;
    struct t_tree tree;
    size_t i;

    (void)state;
    t_tree_create(&tree);
    for (i = 0; i < VB_COUNT(files); i++) {
        snprintf(path, sizeof(path), "sys/class/net/eth0/%s", files[i]);
        t_tree_garbage(&tree, path, 100000);
    }
    t_tree_garbage(&tree, "proc/net/route", 1 << 20);
    t_tree_garbage(&tree, "var/emulab/boot/controlif", 4096);
    t_tree_text(&tree, "sys/class/net/a-name-longer-than-any-interface/mtu", "1500\n");
    t_tree_text(&tree, "sys/class/net/bell\a/mtu", "1500\n");
    t_tree_path(&tree, "sys/class/net/eth1/mtu", path);
    assert_int_equal(mkfifo(path, 0600), 0); /* no process will ever write to this FIFO */
    t_tree_path(&tree, "proc/net/ipv6_route", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    t_tree_path(&tree, "sys/class/net/eth1/device", path);
    assert_int_equal(symlink("device", path), 0); /* the link points to itself */

    assert_false(vb_net_control_if(tree.root, name, sizeof(name)));
    got = list_of(tree.root);
    assert_int_equal(got.n, 2);
    assert_false(find(&got, "eth0")->up);
    assert_int_equal(find(&got, "eth0")->kind, VB_IFACE_VIRTUAL);
    assert_int_equal(find(&got, "eth1")->mtu_bytes, 0);
    assert_int_equal(find(&got, "eth1")->kind, VB_IFACE_PHYSICAL);
    assert_string_equal(find(&got, "eth1")->driver, "");
    vb_net_ifaces_free(got.list);
    t_tree_destroy(&tree);
}

/* If a line is longer than 512 bytes, the rest of the line must not be read as another line. */
static void overlong_lines_do_not_become_routes(void **state)
{
    static const char route[] = "eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n";
    struct listed got;
    struct t_tree tree;
    char text[2048];

    (void)state;
    t_tree_create(&tree);
    t_tree_text(&tree, "sys/class/net/eth0/operstate", "up\n");
    memset(text, 'x', 511);
    memcpy(text + 511, route, sizeof(route));
    t_tree_text(&tree, "proc/net/route", text);
    got = list_of(tree.root);
    assert_false(got.list[0].default_route);
    vb_net_ifaces_free(got.list);

    text[510] = '\n'; /* now the route is a line of its own */
    t_tree_text(&tree, "proc/net/route", text + 510);
    got = list_of(tree.root);
    assert_true(got.list[0].default_route);
    vb_net_ifaces_free(got.list);
    t_tree_destroy(&tree);
}

static void an_overlong_path_is_refused(void **state)
{
    char root[2 * PATH_MAX], name[VB_IFACE_NAME];
    struct listed got;

    (void)state;
    memset(root, 'a', sizeof(root) - 1);
    root[sizeof(root) - 1] = '\0';
    got = list_of(root);
    assert_int_equal(got.n, 0);
    assert_false(vb_net_control_if(root, name, sizeof(name)));
    vb_net_ifaces_free(got.list);
}

/* Compares the list of this machine with if_nameindex(). */
static void this_machine_agrees_with_the_kernel(void **state)
{
    struct if_nameindex *all;
    struct listed got;
    int i, n = 0;

    (void)state;
    if (access("/sys/class/net", F_OK) != 0)
        skip(); /* this is a chroot without /sys */
    got = list_of("");
    all = if_nameindex();
    assert_non_null(all);
    while (all[n].if_index != 0)
        n++;
    if_freenameindex(all);
    assert_int_equal(got.n, n);
    for (i = 0; i < got.n; i++) {
        assert_true(if_nametoindex(got.list[i].name) != 0);
        assert_true(got.list[i].mtu_bytes > 0);
    }
    if (find(&got, "lo") != NULL && find(&got, "lo")->n_addrs > 0)
        assert_string_equal(find(&got, "lo")->addrs[0], "127.0.0.1");
    vb_net_ifaces_free(got.list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cloudlab_node_is_read),
        cmocka_unit_test(the_control_network_is_known_and_avoided),
        cmocka_unit_test(kinds_of_interfaces_are_distinguished),
        cmocka_unit_test(the_best_interface_has_an_address_then_speed),
        cmocka_unit_test(an_ipv6_default_route_counts),
        cmocka_unit_test(an_empty_machine_has_none),
        cmocka_unit_test(absurd_numbers_count_as_unknown),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(overlong_lines_do_not_become_routes),
        cmocka_unit_test(an_overlong_path_is_refused),
        cmocka_unit_test(this_machine_agrees_with_the_kernel),
    };

    return T_RUN(tests);
}
