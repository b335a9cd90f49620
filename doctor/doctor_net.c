/* SPDX-License-Identifier: MIT
 *
 * Judges the networks between ranks on different hosts. The control network of a CloudLab node is
 * shown, but does not count as usable, because jobs must not use it.
 */
#include "doctor/doctor_priv.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define SLOW_MBIT 1000

static void fix_verbs(struct vb_check *check, int err)
{
    check->level = VB_CHECK_WARN;
    if (err == ENODEV) {
        vb_check_say(check, ", which libibverbs does not see");
        if (check->fix[0] == '\0')
            vb_check_fix(check, "sudo apt install ibverbs-providers && sudo modprobe ib_uverbs");
    } else if (err == EACCES || err == EPERM) {
        vb_check_say(check, ", which this user may not open");
        if (check->fix[0] == '\0')
            vb_check_fix(check, "sudo chmod a+rw /dev/infiniband/uverbs*");
    } else {
        char reason[64];

        vb_check_say(check, ", which libibverbs cannot open (%s)",
                     strerror_r(err, reason, sizeof(reason)));
    }
}

static void check_devices(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "rdma");
    int i;

    if (facts->n_rdma == 0) {
        vb_check_warn(check, "no RDMA device: ranks on different hosts use TCP");
        return;
    }
    for (i = 0; i < facts->n_rdma; i++) {
        const struct vb_rdma_dev *dev = &facts->rdma[i];

        vb_check_say(check, "%s%s (%s, ", i > 0 ? "; " : "", dev->name,
                     vb_rdma_transport_str(dev->transport));
        if (dev->soft)
            vb_check_say(check, "in software: %s)", dev->driver);
        else
            vb_check_say(check, "%s, firmware %s)",
                         dev->driver[0] != '\0' ? dev->driver : "driver unknown",
                         dev->firmware[0] != '\0' ? dev->firmware : "unknown");
        if (dev->verbs_err != 0)
            fix_verbs(check, dev->verbs_err);
    }
}

/* ---- ports and GIDs -------------------------------------------------------------------------- */

static const char *port_netdev(const struct vb_rdma_dev *dev, const struct vb_rdma_port *port)
{
    if (port->n_gids > 0 && port->gids[0].netdev[0] != '\0')
        return port->gids[0].netdev;
    return port->num == 1 ? dev->netdev : "";
}

static bool on_control(const struct vb_facts *facts, const struct vb_rdma_dev *dev,
                       const struct vb_rdma_port *port)
{
    const char *netdev = port_netdev(dev, port);
    int i;

    for (i = 0; i < facts->n_ifaces; i++)
        if (facts->ifaces[i].control && strcmp(facts->ifaces[i].name, netdev) == 0)
            return true;
    return false;
}

static bool usable(const struct vb_facts *facts, const struct vb_rdma_dev *dev,
                   const struct vb_rdma_port *port)
{
    return port->active && dev->verbs_err == 0 && !on_control(facts, dev, port);
}

static void say_port(const struct vb_facts *facts, struct vb_check *check,
                     const struct vb_rdma_dev *dev, const struct vb_rdma_port *port)
{
    const char *netdev = port_netdev(dev, port);

    vb_check_say(check, "%s%s port %d %s", check->what[0] != '\0' ? "; " : "", dev->name, port->num,
                 port->state[0] != '\0' ? port->state : "in an unknown state");
    if (port->speed_gbit > 0 && !dev->soft) /* software devices report an invented speed */
        vb_check_say(check, " %g Gbit/s", port->speed_gbit);
    if (port->mtu_bytes > 0)
        vb_check_say(check, " MTU %d", port->mtu_bytes);
    if (port->max_msg_bytes > 0)
        vb_check_say(check, " messages to %lld bytes", (long long)port->max_msg_bytes);
    if (netdev[0] != '\0')
        vb_check_say(check, " on %s", netdev);
    if (on_control(facts, dev, port))
        vb_check_say(check, " (CloudLab control network, not used)");
}

static void fix_port(const struct vb_facts *facts, struct vb_check *check,
                     const struct vb_rdma_dev *dev, const struct vb_rdma_port *port)
{
    const char *netdev = port_netdev(dev, port);

    if (check->fix[0] != '\0' || port->active || on_control(facts, dev, port))
        return;
    if (port->ethernet && vb_check_plain(netdev))
        vb_check_fix(check, "sudo ip link set %s up", netdev);
    else if (!port->ethernet && strcmp(port->state, "INIT") == 0) /* no subnet manager */
        vb_check_fix(check, "sudo apt install opensm && sudo systemctl enable --now opensm");
}

static void check_ports(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "rdma-ports");
    int i, p, n_usable = 0;

    for (i = 0; i < facts->n_rdma; i++)
        for (p = 0; p < facts->rdma[i].n_ports; p++) {
            say_port(facts, check, &facts->rdma[i], &facts->rdma[i].ports[p]);
            n_usable += usable(facts, &facts->rdma[i], &facts->rdma[i].ports[p]);
        }
    if (n_usable > 0)
        return;
    vb_check_warn(check, "%sno port can be used: ranks on different hosts use TCP",
                  check->what[0] != '\0' ? "; " : "");
    for (i = 0; i < facts->n_rdma; i++)
        for (p = 0; p < facts->rdma[i].n_ports; p++)
            fix_port(facts, check, &facts->rdma[i], &facts->rdma[i].ports[p]);
}

/* The best is RoCE v2 from a routable address, then link-local. No router forwards RoCE v1. */
static int gid_worth(const struct vb_rdma_gid *gid)
{
    if (gid->type != VB_GID_ROCE_V2)
        return 1;
    return strncasecmp(gid->text, "fe80:", 5) == 0 ? 2 : 3;
}

static const struct vb_rdma_gid *best_gid(const struct vb_rdma_port *port)
{
    const struct vb_rdma_gid *best = NULL;
    int i;

    for (i = 0; i < port->n_gids; i++)
        if (best == NULL || gid_worth(&port->gids[i]) > gid_worth(best))
            best = &port->gids[i];
    return best;
}

static void judge_gids(struct vb_check *check, const struct vb_rdma_dev *dev,
                       const struct vb_rdma_port *port)
{
    const struct vb_rdma_gid *gid = best_gid(port);
    const char *netdev = port_netdev(dev, port);

    vb_check_say(check, "%s%s port %d: ", check->what[0] != '\0' ? "; " : "", dev->name, port->num);
    if (gid == NULL)
        vb_check_say(check, "no GID");
    else
        vb_check_say(check, "%d set, best is index %d (%s %s)", port->n_gids, gid->index,
                     vb_gid_type_str(gid->type), gid->text);
    if (dev->transport != VB_RDMA_ROCE || (gid != NULL && gid_worth(gid) == 3))
        return;
    vb_check_warn(check, ", but RoCE v2 needs a GID from an IP address%s%s",
                  netdev[0] != '\0' ? " of " : "", netdev);
    if (vb_check_plain(netdev) && check->fix[0] == '\0')
        vb_check_fix(check, "sudo ip addr add ADDRESS/24 dev %s # a free address of your network",
                     netdev);
}

static void check_gids(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = NULL;
    int i, p;

    for (i = 0; i < facts->n_rdma; i++)
        for (p = 0; p < facts->rdma[i].n_ports; p++) {
            const struct vb_rdma_dev *dev = &facts->rdma[i];

            if (!usable(facts, dev, &dev->ports[p]) || dev->transport == VB_RDMA_IWARP)
                continue;
            if (check == NULL)
                check = vb_check_begin(checks, "rdma-gids");
            judge_gids(check, dev, &dev->ports[p]);
        }
}

void vb_check_rdma(const struct vb_facts *facts, struct vb_checks *checks)
{
    check_devices(facts, checks);
    if (facts->n_rdma == 0)
        return;
    check_ports(facts, checks);
    check_gids(facts, checks);
}

/* ---- soft-RoCE ------------------------------------------------------------------------------- */

/* The first hardware device with a usable port, or else the first such software device, or NULL. */
static const struct vb_rdma_dev *working_device(const struct vb_facts *facts)
{
    const struct vb_rdma_dev *found = NULL;
    int i, p;

    for (i = 0; i < facts->n_rdma; i++)
        for (p = 0; p < facts->rdma[i].n_ports; p++)
            if (usable(facts, &facts->rdma[i], &facts->rdma[i].ports[p]) &&
                (found == NULL || (found->soft && !facts->rdma[i].soft)))
                found = &facts->rdma[i];
    return found;
}

static void fix_missing_module(const struct vb_facts *facts, struct vb_check *check)
{
    const struct vb_rxe *rxe = &facts->rxe;

    check->level = VB_CHECK_WARN;
    if (!rxe->kernel_has_modules) {
        vb_check_say(check,
                     "soft-RoCE cannot be set up: this kernel (%s) loads no modules and has "
                     "no rdma_rxe built in",
                     rxe->release);
        return;
    }
    vb_check_say(check, "soft-RoCE cannot be set up: the kernel %s has no module rdma_rxe",
                 rxe->release);
    if (!vb_check_plain(rxe->release))
        return;
    if (strcmp(facts->distro, "ubuntu") == 0)
        vb_check_fix(check, "sudo apt install linux-modules-extra-%s", rxe->release);
    else if (strcmp(facts->distro, "debian") == 0 && strstr(rxe->release, "-cloud-") != NULL)
        vb_check_fix(check, "sudo apt install linux-image-%s && sudo reboot",
                     strrchr(rxe->release, '-') + 1);
}

static void offer_rxe(const struct vb_facts *facts, struct vb_check *check,
                      const struct vb_iface *iface)
{
    vb_check_say(check,
                 "soft-RoCE could be set up on %s, to try verbs without an RDMA card (rdma_rxe is "
                 "%s)%s",
                 iface->name,
                 facts->rxe.loaded     ? "loaded"
                 : facts->rxe.built_in ? "built in"
                                       : "present",
                 facts->rxe.tool ? "" : ", once the command rdma is installed");
    if (!facts->rxe.tool)
        vb_check_fix(check, "sudo apt install iproute2");
    if (!facts->rxe.loaded)
        vb_check_fix(check, "sudo modprobe rdma_rxe");
    vb_check_fix(check, "sudo rdma link add rxe0 type rxe netdev %s", iface->name);
}

void vb_check_soft_roce(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "soft-roce");
    const struct vb_iface *iface = vb_net_iface_for_data(facts->ifaces, facts->n_ifaces);
    const struct vb_rdma_dev *dev = working_device(facts);

    if (dev != NULL) {
        vb_check_say(check, dev->soft ? "%s is set up" : "not needed: %s is usable", dev->name);
    } else if (!facts->rxe.loaded && !facts->rxe.built_in && !facts->rxe.present) {
        fix_missing_module(facts, check);
    } else if (iface == NULL || !vb_check_plain(iface->name)) {
        vb_check_warn(check, "soft-RoCE cannot be set up: no suitable interface is up");
    } else {
        offer_rxe(facts, check, iface);
    }
}

/* ---- interfaces ------------------------------------------------------------------------------ */

static void say_iface(struct vb_check *check, const struct vb_iface *iface, bool for_data)
{
    vb_check_say(check, "%s%s", check->what[0] != '\0' ? ", " : "", iface->name);
    if (!iface->up)
        vb_check_say(check, " down");
    else if (iface->speed_mbit >= 1000)
        vb_check_say(check, " %g Gbit/s", (double)iface->speed_mbit / 1000);
    else if (iface->speed_mbit > 0)
        vb_check_say(check, " %lld Mbit/s", (long long)iface->speed_mbit);
    else
        vb_check_say(check, " of unknown speed");
    if (iface->control)
        vb_check_say(check, " (CloudLab control network, not used)");
    else if (iface->enslaved)
        vb_check_say(check, " (part of a bond or bridge)");
    else if (for_data)
        vb_check_say(check, " (for data%s%s)", iface->n_addrs > 0 ? ", " : "",
                     iface->n_addrs > 0 ? iface->addrs[0] : "");
}

/* In a container no interface has hardware, but one may lead to other hosts. */
static const struct vb_iface *virtual_way(const struct vb_facts *facts)
{
    int i;

    for (i = 0; i < facts->n_ifaces; i++)
        if (facts->ifaces[i].kind == VB_IFACE_VIRTUAL && facts->ifaces[i].up &&
            !facts->ifaces[i].enslaved && facts->ifaces[i].n_addrs > 0)
            return &facts->ifaces[i];
    return NULL;
}

static void judge_no_data(const struct vb_facts *facts, struct vb_check *check)
{
    const struct vb_iface *down = NULL, *way = virtual_way(facts);
    bool control = false;
    int i;

    for (i = 0; i < facts->n_ifaces; i++) {
        control = control || facts->ifaces[i].control;
        if (facts->ifaces[i].kind == VB_IFACE_PHYSICAL && !facts->ifaces[i].up &&
            !facts->ifaces[i].control && vb_check_plain(facts->ifaces[i].name) && down == NULL)
            down = &facts->ifaces[i];
    }
    check->level = VB_CHECK_WARN;
    if (control) {
        vb_check_say(check,
                     "%sthe control network is the only one, and jobs must not use it: add "
                     "a link or LAN between the nodes to the profile",
                     check->what[0] != '\0' ? ": " : "");
        return; /* no command is suggested, because other ports of such nodes have no cable */
    }
    if (way != NULL && down == NULL) {
        check->level = VB_CHECK_OK;
        vb_check_say(check,
                     ": no interface has hardware, as in a container; %s (%s) may lead to "
                     "other hosts",
                     way->name, way->addrs[0]);
        return;
    }
    vb_check_say(check, "%sno interface is up: ranks can communicate only within this host",
                 check->what[0] != '\0' ? ": " : "");
    if (down != NULL)
        vb_check_fix(check, "sudo ip link set %s up", down->name);
}

void vb_check_interfaces(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "interfaces");
    const struct vb_iface *data = vb_net_iface_for_data(facts->ifaces, facts->n_ifaces);
    int i, n_virtual = 0;

    for (i = 0; i < facts->n_ifaces; i++) {
        if (facts->ifaces[i].kind >= VB_IFACE_STACKED)
            say_iface(check, &facts->ifaces[i], &facts->ifaces[i] == data);
        else if (facts->ifaces[i].kind == VB_IFACE_VIRTUAL)
            n_virtual++;
    }
    if (n_virtual > 0)
        vb_check_say(check, "%s%d virtual", check->what[0] != '\0' ? ", " : "", n_virtual);
    if (data == NULL) {
        judge_no_data(facts, check);
    } else if (data->speed_mbit > 0 && data->speed_mbit < SLOW_MBIT) {
        vb_check_warn(check, ": less than 1 Gbit/s, so transfers will slow a job down");
    }
}
