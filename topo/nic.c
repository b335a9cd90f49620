/* SPDX-License-Identifier: MIT
 *
 * Finds the network cards (NICs) of a machine, and chooses a card for each rank.
 *
 * An interface and its RDMA device become one entry. hwloc does not show a soft-RoCE device, or
 * shows it at a wrong place, and shows neither speeds nor the state of an interface. On this host,
 * these facts are read from /sys and added to the topology, so that a saved topology has them too.
 */
#include "topo/topo_priv.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define INFO_SPEED "VerbenaMbit"
#define INFO_STATE "VerbenaActive"
#define INFO_SOFT "VerbenaSoftRdma"
#define IB_DIR "/sys/class/infiniband"

/* ---- finding NICs ---------------------------------------------------------------------------- */

static bool is_net(hwloc_obj_t osdev)
{
    return osdev->name != NULL && osdev->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK &&
           strcmp(osdev->name, "lo") != 0;
}

static bool is_rdma(hwloc_obj_t osdev)
{
    return osdev->name != NULL && osdev->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
}

static void note(hwloc_obj_t osdev, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    hwloc_obj_add_info(osdev, name, text);
}

/* The speed of an unplugged or virtual interface is -1 or cannot be read. */
static void note_net(hwloc_obj_t osdev)
{
    char state[32];
    int64_t mbit_s;

    if (vb_probe_int(&mbit_s, "/sys/class/net/%s/speed", osdev->name) && mbit_s > 0)
        note(osdev, INFO_SPEED, mbit_s);
    if (vb_probe_line(state, sizeof(state), "/sys/class/net/%s/operstate", osdev->name) &&
        strcmp(state, "unknown") != 0)
        note(osdev, INFO_STATE, strcmp(state, "up") == 0);
}

/* The file contains text such as "100 Gb/sec (4X EDR)". */
static void note_rdma(hwloc_obj_t osdev)
{
    char rate[64];
    double gbit_s;

    if (!vb_probe_line(rate, sizeof(rate), IB_DIR "/%s/ports/1/rate", osdev->name))
        return;
    gbit_s = strtod(rate, NULL);
    if (gbit_s > 0 && gbit_s < 1e6)
        note(osdev, INFO_SPEED, (int64_t)(gbit_s * 1000));
}

/* Adds a soft-RoCE device to its interface, which the kernel lists with the GIDs of the device. */
static void note_soft(hwloc_topology_t hwloc, const char *rdma)
{
    hwloc_obj_t osdev = NULL;
    char netdev[64];

    if (!vb_probe_line(netdev, sizeof(netdev), IB_DIR "/%s/ports/1/gid_attrs/ndevs/0", rdma))
        return;
    while ((osdev = hwloc_get_next_osdev(hwloc, osdev)) != NULL) {
        if (is_rdma(osdev) && strcmp(osdev->name, rdma) == 0)
            return; /* hwloc already shows this RDMA device */
        if (is_net(osdev) && strcmp(osdev->name, netdev) == 0 &&
            hwloc_obj_get_info_by_name(osdev, INFO_SOFT) == NULL)
            hwloc_obj_add_info(osdev, INFO_SOFT, rdma);
    }
}

static void note_this_machine(hwloc_topology_t hwloc)
{
    hwloc_obj_t osdev = NULL;
    struct dirent *entry;
    DIR *dir;

    while ((osdev = hwloc_get_next_osdev(hwloc, osdev)) != NULL) {
        if (is_net(osdev))
            note_net(osdev);
        else if (is_rdma(osdev))
            note_rdma(osdev);
    }
    dir = opendir(IB_DIR);
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            note_soft(hwloc, entry->d_name);
    closedir(dir);
}

static int64_t info_int(hwloc_obj_t osdev, const char *name, int64_t fallback)
{
    const char *text = osdev != NULL ? hwloc_obj_get_info_by_name(osdev, name) : NULL;
    int64_t value;

    return text != NULL && vb_parse_int(text, &value) ? value : fallback;
}

/* Returns 1 if the RDMA port is active (state 4), 0 if it is not, and -1 if the state is not known.
 * On a card with several ports, the "Port" attribute of the interface is the number of the port. */
static int rdma_active(hwloc_obj_t rdma, hwloc_obj_t net)
{
    char name[32];
    int64_t state;

    snprintf(name, sizeof(name), "Port%lldState", (long long)info_int(net, "Port", 1));
    state = info_int(rdma, name, -1);
    return state < 0 ? -1 : state == 4;
}

/* A device that is attached to the root of the topology is near no package and no node. */
static void set_place(struct vb_topo *topo, struct vb_nic *nic, hwloc_obj_t osdev)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topo->hwloc, osdev);
    int i;

    nic->package = nic->node = -1;
    if (near == NULL || near->cpuset == NULL)
        return;
    for (i = 0; i < topo->n_cores; i++) {
        const struct core *core = &topo->cores[i];
        int package = core->part[LEVEL_PACKAGE], node = core->part[LEVEL_NODE];

        if (!hwloc_bitmap_isset(near->cpuset, (unsigned)topo->cpus[core->first_cpu]))
            continue;
        nic->package = nic->package == -1 || nic->package == package ? package : -2;
        nic->node = nic->node == -1 || nic->node == node ? node : -2;
    }
    if (nic->package < 0)
        nic->package = -1;
    if (nic->node < 0)
        nic->node = -1;
}

static void add_nic(struct vb_topo *topo, hwloc_obj_t net, hwloc_obj_t rdma, const char *avoid_if)
{
    struct vb_nic *nic = &topo->nics[topo->facts.n_nics++];

    nic->net = net != NULL ? net->name : NULL;
    nic->rdma = rdma != NULL ? rdma->name : NULL;
    if (rdma == NULL)
        nic->rdma = hwloc_obj_get_info_by_name(net, INFO_SOFT);
    nic->avoid = net != NULL && avoid_if != NULL && strcmp(net->name, avoid_if) == 0;
    nic->active = rdma != NULL ? rdma_active(rdma, net) : -1;
    if (nic->active < 0)
        nic->active = (int)info_int(net, INFO_STATE, -1);
    /* A soft-RoCE device reports an invented rate, but its interface reports the real rate. */
    nic->mbit_s = info_int(net, INFO_SPEED, 0);
    if (nic->mbit_s <= 0)
        nic->mbit_s = info_int(rdma, INFO_SPEED, 0);
    set_place(topo, nic, net != NULL ? net : rdma);
}

/* The GUID of a soft-RoCE device contains the address of its interface as EUI-64: 52:54:00:00:00:01
 * becomes 5054:00ff:fe00:0001. */
static bool guid_is_of(hwloc_obj_t rdma, hwloc_obj_t net)
{
    const char *address = hwloc_obj_get_info_by_name(net, "Address");
    const char *guid = hwloc_obj_get_info_by_name(rdma, "NodeGUID");
    unsigned m[6];
    char made[20];

    if (address == NULL || guid == NULL ||
        sscanf(address, "%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6)
        return false;
    snprintf(made, sizeof(made), "%02x%02x:%02xff:fe%02x:%02x%02x", m[0] ^ 2u, m[1], m[2], m[3],
             m[4], m[5]);
    return strcmp(made, guid) == 0;
}

/* Only a soft-RoCE device has no PCI function; the GUID of such a device is compared instead. */
static bool same_port(hwloc_obj_t net, hwloc_obj_t rdma)
{
    if (net->parent == rdma->parent && rdma->parent->type == HWLOC_OBJ_PCI_DEVICE)
        return true;
    return rdma->parent->type != HWLOC_OBJ_PCI_DEVICE && guid_is_of(rdma, net);
}

/* Returns the RDMA device of an interface, or the interface of an RDMA device, or NULL. */
static hwloc_obj_t twin(hwloc_topology_t hwloc, hwloc_obj_t osdev)
{
    hwloc_obj_t other = NULL;

    while ((other = hwloc_get_next_osdev(hwloc, other)) != NULL) {
        if (is_net(osdev) && is_rdma(other) && same_port(osdev, other))
            return other;
        if (is_rdma(osdev) && is_net(other) && same_port(other, osdev))
            return other;
    }
    return NULL;
}

vb_status vb_nics_find(struct vb_topo *topo, const char *avoid_if)
{
    hwloc_obj_t osdev = NULL;
    size_t n = 0;

    if (topo->this_machine)
        note_this_machine(topo->hwloc);
    while ((osdev = hwloc_get_next_osdev(topo->hwloc, osdev)) != NULL)
        n++;
    topo->nics = calloc(n + 1, sizeof(*topo->nics));
    if (topo->nics == NULL)
        return vb_err_sys("calloc");
    while ((osdev = hwloc_get_next_osdev(topo->hwloc, osdev)) != NULL) {
        if (is_net(osdev))
            add_nic(topo, osdev, twin(topo->hwloc, osdev), avoid_if);
        else if (is_rdma(osdev) && twin(topo->hwloc, osdev) == NULL)
            add_nic(topo, NULL, osdev, avoid_if);
    }
    topo->facts.nics = topo->nics;
    return VB_OK;
}

/* ---- choosing a NIC -------------------------------------------------------------------------- */

static const char *nic_name(const struct vb_nic *nic)
{
    return nic->rdma != NULL ? nic->rdma : nic->net;
}

/* 2: the card is on the rank's own node, 1: it is on the rank's package */
static int nearness(const struct vb_nic *nic, const struct vb_placement_rank *rank)
{
    if (nic->node >= 0 && rank->nodes.n == 1 && rank->nodes.v[0] == nic->node)
        return 2;
    return nic->package >= 0 && nic->package == rank->package;
}

/* The criteria for choosing a card, the most important criterion first. Higher grades are
 * better. A faster card on the other package is better than a slower card nearby, because the
 * link between packages is faster than any card. */
enum criterion { NOT_AVOIDED, NOT_DOWN, HAS_RDMA, SPEED, NEARNESS, FREE, N_CRITERIA };

static void grade(const struct vb_topo *topo, const struct vb_placement_rank *rank, const int *load,
                  int i, int64_t grades[N_CRITERIA])
{
    const struct vb_nic *nic = &topo->nics[i];

    grades[NOT_AVOIDED] = !nic->avoid;
    grades[NOT_DOWN] = nic->active != 0;
    grades[HAS_RDMA] = nic->rdma != NULL;
    grades[SPEED] = nic->mbit_s;
    grades[NEARNESS] = nearness(nic, rank);
    grades[FREE] = -load[i];
}

/* Returns the first criterion by which NIC a is better than b, or N_CRITERIA if a is not better. */
static enum criterion better_by(const struct vb_topo *topo, const struct vb_placement_rank *rank,
                                const int *load, int a, int b)
{
    int64_t of_a[N_CRITERIA], of_b[N_CRITERIA];
    int c;

    grade(topo, rank, load, a, of_a);
    grade(topo, rank, load, b, of_b);
    for (c = 0; c < N_CRITERIA; c++)
        if (of_a[c] != of_b[c])
            return of_a[c] > of_b[c] ? (enum criterion)c : N_CRITERIA;
    return N_CRITERIA;
}

/* Returns the best NIC other than left_out, which may be -1, or -1 if there is none. */
static int best_but(const struct vb_topo *topo, const struct vb_placement_rank *rank,
                    const int *load, int left_out)
{
    int best = -1, i;

    for (i = 0; i < topo->facts.n_nics; i++)
        if (i != left_out && (best < 0 || better_by(topo, rank, load, i, best) != N_CRITERIA))
            best = i;
    return best;
}

static void say_why(const struct vb_topo *topo, struct vb_placement_rank *rank, const int *load,
                    int best, int second)
{
    const struct vb_nic *a = &topo->nics[best], *b = &topo->nics[second];
    char *why = rank->nic_why;
    enum criterion by;
    size_t room;
    int n = snprintf(why, VB_PLACEMENT_TEXT, "%s rather than %s: ", nic_name(a), nic_name(b));

    if (n < 0 || n >= VB_PLACEMENT_TEXT)
        return;
    why += n;
    room = (size_t)(VB_PLACEMENT_TEXT - n);
    by = better_by(topo, rank, load, best, second);
    if (by == NOT_AVOIDED)
        snprintf(why, room, "%s is the control network", nic_name(b));
    else if (by == NOT_DOWN)
        snprintf(why, room, "%s is down", nic_name(b));
    else if (by == HAS_RDMA)
        snprintf(why, room, "%s has RDMA", nic_name(a));
    else if (by == SPEED)
        snprintf(why, room, "%s is faster (%g Gb/s)", nic_name(a), (double)a->mbit_s / 1000);
    else if (by == NEARNESS)
        snprintf(why, room, "%s is nearer (package %d, NUMA node %d)", nic_name(a), a->package,
                 a->node);
    else if (by == FREE)
        snprintf(why, room, "both cards are equal, but fewer ranks use %s", nic_name(a));
    else
        snprintf(why, room, "both cards are equal, and %s is the first", nic_name(a));
}

void vb_nic_choose(const struct vb_topo *topo, struct vb_placement_rank *rank, int *load)
{
    int best = best_but(topo, rank, load, -1), second;
    const struct vb_nic *nic;

    if (best < 0) {
        snprintf(rank->nic_why, VB_PLACEMENT_TEXT, "no network card was found");
        return;
    }
    nic = &topo->nics[best];
    if (nic->avoid || nic->active == 0) {
        snprintf(rank->nic_why, VB_PLACEMENT_TEXT, "%s %s, and there is no other network card",
                 nic_name(nic), nic->avoid ? "is the control network" : "is down");
        return;
    }
    second = best_but(topo, rank, load, best);
    if (second < 0)
        snprintf(rank->nic_why, VB_PLACEMENT_TEXT, "%s is the only network card", nic_name(nic));
    else
        say_why(topo, rank, load, best, second);
    rank->nic = nic;
    load[best]++;
}
