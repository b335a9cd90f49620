/* SPDX-License-Identifier: MIT
 *
 * Registers memory. A window is registered once, when it is created, with every port in use. The
 * limit on locked memory is checked first, because the kernel only reports "no memory".
 */
#include "net/verbs/verbs_priv.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CAP_IPC_LOCK_BIT 14

static bool capability_line(char *line, void *arg)
{
    unsigned long long caps;

    if (sscanf(line, "CapEff: %llx", &caps) != 1)
        return true;
    *(bool *)arg = (caps >> CAP_IPC_LOCK_BIT & 1) != 0;
    return false;
}

/* Checks the limit on locked memory. Raises the soft limit to the hard limit if that is enough. */
static vb_status check_memlock(const struct verbs_dev *dev, size_t more)
{
    uint64_t need = dev->registered.bytes + more;
    const struct passwd *user;
    bool privileged = false;
    struct rlimit limit;
    vb_status st;

    /* RLIM_INFINITY is the highest number. */
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || need <= limit.rlim_cur)
        return VB_OK;
    vb_probe_lines(capability_line, &privileged, "/proc/self/status");
    if (privileged)
        return VB_OK;
    limit.rlim_cur = limit.rlim_max;
    if (need <= limit.rlim_max && setrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        return VB_OK;
    user = getpwuid(geteuid());
    st = vb_err(
        VB_ERR_ACCESS, "RDMA needs %llu KiB of locked memory, the limit is %llu KiB (ulimit -l)",
        (unsigned long long)(need + 1023) / 1024, (unsigned long long)limit.rlim_max / 1024);
    vb_log_fix("echo '%s - memlock unlimited' | sudo tee -a /etc/security/limits.conf   # then log "
               "in again",
               user != NULL ? user->pw_name : "*");
    vb_log_fix("--transport tcp   # works without locked memory");
    return st;
}

/* The kernel counts other memory too, such as queues, so it may refuse what the check allowed. */
static vb_status refused(const struct verbs_dev *dev, const struct verbs_memory *memory,
                         const char *device)
{
    if (errno != ENOMEM)
        return vb_err_sys("cannot register %zu bytes with %s", memory->len_bytes, device);
    return vb_err_sys("cannot register %zu bytes with %s, beside %llu KiB that are registered: is "
                      "the limit of locked memory (ulimit -l) too low?",
                      memory->len_bytes, device, (unsigned long long)dev->registered.bytes / 1024);
}

vb_status vb_verbs_register(struct verbs_dev *dev, struct verbs_memory *memory, int port_index,
                            int access)
{
    struct verbs_port *port = &dev->ports[port_index];
    uint64_t start = vb_clock_ns();
    vb_status st = check_memlock(dev, memory->len_bytes);

    if (st != VB_OK)
        return st;
    memory->mrs[port_index] = ibv_reg_mr(port->pd, memory->ptr, memory->len_bytes, access);
    if (memory->mrs[port_index] == NULL)
        return refused(dev, memory, ibv_get_device_name(port->ctx->device));
    dev->registered.bytes += memory->len_bytes;
    dev->registered.ns += vb_clock_ns() - start;
    return VB_OK;
}

/* On iWARP the destination of a read must allow remote writes. So peers can write to the part of a
 * window in which gets land, but not to other parts that they may only read. */
vb_status vb_verbs_register_window(struct verbs_dev *dev, struct verbs_window *win, int port_index)
{
    bool iwarp = verbs_is_iwarp(dev->ports[port_index].ctx);

    return vb_verbs_register(dev, &win->memory, port_index,
                             win->access | (iwarp && win->lands ? IBV_ACCESS_REMOTE_WRITE : 0));
}

void vb_verbs_deregister_port(struct verbs_dev *dev, struct verbs_memory *memory, int port_index)
{
    int code;

    if (memory->mrs[port_index] == NULL)
        return;
    code = ibv_dereg_mr(memory->mrs[port_index]);
    if (code != 0)
        (void)vb_verbs_err(code, "ibv_dereg_mr", dev->ports[port_index].ctx);
    memory->mrs[port_index] = NULL;
    dev->registered.bytes -= memory->len_bytes;
}

void vb_verbs_deregister(struct verbs_dev *dev, struct verbs_memory *memory)
{
    int i;

    for (i = 0; i < VERBS_PORTS_MAX; i++)
        vb_verbs_deregister_port(dev, memory, i);
}

static struct verbs_window **find_window(struct verbs_dev *dev, uint32_t id)
{
    struct verbs_window **at = &dev->windows;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void pack_key(const struct verbs_dev *dev, const struct verbs_window *win,
                     struct vb_blob *key_p)
{
    struct verbs_key key = {.n_ports = dev->n_ports, .addr = (uint64_t)(uintptr_t)win->memory.ptr};
    int i;

    for (i = 0; i < dev->n_ports; i++)
        key.rkeys[i] = win->memory.mrs[i] != NULL ? win->memory.mrs[i]->rkey : 0;
    vb_verbs_key_pack(&key, key_p);
}

vb_status vb_verbs_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                                 unsigned rights, struct vb_blob *key_p)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    struct verbs_window *win, **at = find_window(dev, id);
    vb_status st = VB_OK;
    int i;

    if (*at != NULL)
        return vb_err(VB_ERR_USAGE, "window %u exists already", id);
    win = calloc(1, sizeof(*win));
    if (win == NULL)
        return vb_err_sys("calloc");
    win->id = id;
    win->access = IBV_ACCESS_LOCAL_WRITE | (rights & VB_WINDOW_PUT ? IBV_ACCESS_REMOTE_WRITE : 0) |
                  (rights & VB_WINDOW_GET ? IBV_ACCESS_REMOTE_READ : 0);
    win->lands = (rights & VB_WINDOW_LAND) != 0;
    win->memory.ptr = mem->ptr;
    win->memory.len_bytes = mem->len_bytes;
    for (i = 0; i < dev->n_ports && st == VB_OK; i++)
        st = vb_verbs_register_window(dev, win, i);
    if (st != VB_OK) {
        vb_verbs_deregister(dev, &win->memory);
        free(win);
        return st;
    }
    *at = win;
    pack_key(dev, win, key_p);
    return VB_OK;
}

vb_status vb_verbs_offer_window(struct vb_ep *vep, uint32_t id, const struct vb_mem *mem,
                                struct vb_blob *key_p)
{
    struct verbs_dev *dev = ((struct verbs_ep *)vep)->dev;
    const struct verbs_window *win = *find_window(dev, id);

    (void)mem;
    if (win == NULL)
        return vb_err(VB_ERR_USAGE, "window %u does not exist", id);
    pack_key(dev, win, key_p);
    return VB_OK;
}

void vb_verbs_unexport_window(struct vb_device *vdev, uint32_t id)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    struct verbs_window **at = find_window(dev, id), *win = *at;

    if (win == NULL)
        return;
    *at = win->next;
    vb_verbs_deregister(dev, &win->memory);
    free(win);
}

vb_status vb_verbs_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *blob,
                                 size_t len_bytes, int timeout_ms, struct vb_remote **rem_p)
{
    struct verbs_ep *ep = (struct verbs_ep *)vep;
    struct verbs_remote *rem;
    struct verbs_key key;

    (void)len_bytes;
    (void)timeout_ms;
    if (!vb_verbs_key_unpack(blob, &key) || ep->peer_port >= key.n_ports)
        return vb_err(VB_ERR_INPUT, "window %u of rank %d (%s): the key is invalid", id, ep->rank,
                      ep->host);
    rem = calloc(1, sizeof(*rem));
    if (rem == NULL)
        return vb_err_sys("calloc");
    rem->local = *find_window(ep->dev, id);
    rem->addr = key.addr;
    rem->rkey = key.rkeys[ep->peer_port];
    *rem_p = (struct vb_remote *)rem;
    return VB_OK;
}

void vb_verbs_release_window(struct vb_remote *rem)
{
    free(rem);
}
