/* SPDX-License-Identifier: MIT
 *
 * Tests every branch of the checks of RDMA and interfaces, with invented facts.
 */
#include "tests/support/fixtures/doctor_fixture.h"

#include <errno.h>

/* ---- RDMA ------------------------------------------------------------------------------------ */

static void rdma_devices(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "rdma", VB_CHECK_OK, "mlx5_0 (RoCE, mlx5_core, firmware 16.35)", NULL);
    m.dev.driver[0] = m.dev.firmware[0] = '\0';
    t_expect(&m.facts, "rdma", VB_CHECK_OK, "driver unknown, firmware unknown", NULL);
    m.dev.verbs_err = ENODEV;
    t_expect(&m.facts, "rdma", VB_CHECK_WARN, "libibverbs does not see",
             "sudo apt install ibverbs-providers && sudo modprobe ib_uverbs");
    m.dev.verbs_err = EACCES;
    t_expect(&m.facts, "rdma", VB_CHECK_WARN, "may not open",
             "sudo chmod a+rw /dev/infiniband/uverbs*");
    m.dev.verbs_err = EIO;
    t_expect(&m.facts, "rdma", VB_CHECK_WARN, "Input/output error", NULL);
    m.dev.verbs_err = 0;
    m.dev.soft = true;
    snprintf(m.dev.driver, sizeof(m.dev.driver), "rxe");
    t_expect(&m.facts, "rdma", VB_CHECK_OK, "mlx5_0 (RoCE, in software: rxe)", NULL);
    m.facts.n_rdma = 0;
    t_expect(&m.facts, "rdma", VB_CHECK_WARN, "use TCP", NULL);
}

static void rdma_ports(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "rdma-ports", VB_CHECK_OK,
             "mlx5_0 port 1 ACTIVE 100 Gbit/s MTU 4096 messages to 1073741824 bytes on ens1", NULL);
    m.ifaces[1].control = true;
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "(CloudLab control network, not used)", NULL);
    m.ifaces[1].control = false;
    m.port.active = false;
    snprintf(m.port.state, sizeof(m.port.state), "DOWN");
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "no port can be used",
             "sudo ip link set ens1 up");
    snprintf(m.gids[0].netdev, sizeof(m.gids[0].netdev), "e;reboot");
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "no port can be used", NULL);
    m.port.ethernet = false;
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "no port can be used", NULL);
    snprintf(m.port.state, sizeof(m.port.state), "INIT");
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "port 1 INIT",
             "sudo apt install opensm && sudo systemctl enable --now opensm");
    m.port.state[0] = '\0';
    m.dev.n_ports = 1;
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "in an unknown state", NULL);
    m.dev.n_ports = 0;
    t_expect(&m.facts, "rdma-ports", VB_CHECK_WARN, "no port can be used", NULL);
}

static void no_speed_is_reported_for_software_ports(void **state)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct t_machine m;
    int n;

    (void)state;
    t_make_good(&m);
    m.dev.soft = true;
    n = vb_doctor_judge(&m.facts, checks);
    assert_non_null(strstr(t_said(checks, n, "rdma-ports"), "mlx5_0 port 1 ACTIVE"));
    assert_null(strstr(t_said(checks, n, "rdma-ports"), "Gbit"));
}

static void rdma_gids(void **state)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct t_machine m;
    int n;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "rdma-gids", VB_CHECK_OK,
             "2 set, best is index 3 (RoCE v2 ::ffff:10.10.1.1)", NULL);
    snprintf(m.gids[1].text, sizeof(m.gids[1].text), "fe80::2");
    t_expect(&m.facts, "rdma-gids", VB_CHECK_WARN, "RoCE v2 fe80::2",
             "sudo ip addr add ADDRESS/24 dev ens1 # a free address of your network");
    m.port.n_gids = 1;
    t_expect(&m.facts, "rdma-gids", VB_CHECK_WARN, "RoCE v1 fe80::1",
             "sudo ip addr add ADDRESS/24 dev ens1 # a free address of your network");
    m.port.n_gids = 0;
    t_expect(&m.facts, "rdma-gids", VB_CHECK_WARN, "no GID, but", NULL);
    m.dev.transport = VB_RDMA_INFINIBAND;
    m.gids[0].type = VB_GID_IB;
    m.port.n_gids = 1;
    t_expect(&m.facts, "rdma-gids", VB_CHECK_OK, "index 0 (IB fe80::1)", NULL);
    m.dev.transport = VB_RDMA_IWARP;
    n = vb_doctor_judge(&m.facts, checks);
    assert_null(t_find(checks, n, "rdma-gids"));
    m.dev.transport = VB_RDMA_ROCE;
    m.port.active = false;
    n = vb_doctor_judge(&m.facts, checks);
    assert_null(t_find(checks, n, "rdma-gids"));
}

static void soft_roce_is_offered(void **state)
{
    struct vb_rdma_dev two[2];
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "not needed: mlx5_0 is usable", NULL);
    m.dev.soft = true;
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "mlx5_0 is set up", NULL);
    two[0] = two[1] = m.dev;
    two[1].soft = false;
    snprintf(two[1].name, sizeof(two[1].name), "mlx5_1");
    m.facts.rdma = two;
    m.facts.n_rdma = 2;
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "not needed: mlx5_1 is usable", NULL);
    m.facts.n_rdma = 0;
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "could be set up on ens1",
             "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev ens1");
    m.facts.rxe.tool = false;
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "once the command rdma is installed",
             "sudo apt install iproute2 && sudo modprobe rdma_rxe && "
             "sudo rdma link add rxe0 type rxe netdev ens1");
    m.facts.rxe.tool = m.facts.rxe.loaded = true;
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "loaded",
             "sudo rdma link add rxe0 type rxe netdev ens1");
    m.facts.rxe.loaded = m.facts.rxe.present = false;
    m.facts.rxe.built_in = true;
    t_expect(&m.facts, "soft-roce", VB_CHECK_OK, "built in",
             "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev ens1");
    snprintf(m.ifaces[1].name, sizeof(m.ifaces[1].name), "e;reboot");
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "no suitable interface", NULL);
    snprintf(m.ifaces[1].name, sizeof(m.ifaces[1].name), "-h");
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "no suitable interface", NULL);
    m.facts.n_ifaces = 1;
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "no suitable interface", NULL);
}

static void soft_roce_without_its_module(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    m.facts.n_rdma = 0;
    m.facts.rxe.present = false;
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "has no module rdma_rxe", NULL);
    snprintf(m.facts.rxe.release, sizeof(m.facts.rxe.release), "6.1.0-18-cloud-arm64");
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "has no module rdma_rxe",
             "sudo apt install linux-image-arm64 && sudo reboot");
    snprintf(m.facts.rxe.release, sizeof(m.facts.rxe.release), "5.15.0-131-generic");
    snprintf(m.facts.distro, sizeof(m.facts.distro), "ubuntu");
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "has no module rdma_rxe",
             "sudo apt install linux-modules-extra-5.15.0-131-generic");
    snprintf(m.facts.rxe.release, sizeof(m.facts.rxe.release), "5 $(reboot)");
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "has no module rdma_rxe", NULL);
    m.facts.rxe.kernel_has_modules = false;
    t_expect(&m.facts, "soft-roce", VB_CHECK_WARN, "loads no modules", NULL);
}

static void interfaces(void **state)
{
    struct t_machine m;

    (void)state;
    t_make_good(&m);
    t_expect(&m.facts, "interfaces", VB_CHECK_OK, "ens1 100 Gbit/s (for data)", NULL);
    m.ifaces[2] = (struct vb_iface){.name = "docker0", .kind = VB_IFACE_VIRTUAL, .up = true};
    m.facts.n_ifaces = 3;
    t_expect(&m.facts, "interfaces", VB_CHECK_OK, "ens1 100 Gbit/s (for data), 1 virtual", NULL);
    m.ifaces[2] = (struct vb_iface){
        .name = "eno1", .kind = VB_IFACE_PHYSICAL, .up = true, .speed_mbit = 1000, .control = true};
    t_expect(&m.facts, "interfaces", VB_CHECK_OK, "eno1 1 Gbit/s (CloudLab control network", NULL);
    m.ifaces[1].enslaved = true;
    t_expect(&m.facts, "interfaces", VB_CHECK_WARN, "(part of a bond or bridge)", NULL);
    m.ifaces[1].enslaved = m.ifaces[1].up = false;
    t_expect(&m.facts, "interfaces", VB_CHECK_WARN, "control network is the only one", NULL);
    m.facts.n_ifaces = 2;
    t_expect(&m.facts, "interfaces", VB_CHECK_WARN, "ens1 down: no interface is up",
             "sudo ip link set ens1 up");
    m.ifaces[1].up = true;
    m.ifaces[1].speed_mbit = 100;
    m.ifaces[1].n_addrs = 1;
    snprintf(m.ifaces[1].addrs[0], VB_ADDR_TEXT, "10.0.0.1");
    t_expect(&m.facts, "interfaces", VB_CHECK_WARN, "ens1 100 Mbit/s (for data, 10.0.0.1): less",
             NULL);
    m.ifaces[1].speed_mbit = -1;
    t_expect(&m.facts, "interfaces", VB_CHECK_OK, "ens1 of unknown speed", NULL);
    m.facts.n_ifaces = 1;
    t_expect(&m.facts, "interfaces", VB_CHECK_WARN, "no interface is up", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rdma_devices),
        cmocka_unit_test(rdma_ports),
        cmocka_unit_test(no_speed_is_reported_for_software_ports),
        cmocka_unit_test(rdma_gids),
        cmocka_unit_test(soft_roce_is_offered),
        cmocka_unit_test(soft_roce_without_its_module),
        cmocka_unit_test(interfaces),
    };

    return T_RUN(tests);
}
