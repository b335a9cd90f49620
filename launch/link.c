/* SPDX-License-Identifier: MIT */
#include "launch/link.h"
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#define RATE_MIN 1e4
#define RATE_MAX 1e12
#define LATENCY_MAX 10000.
#define COMMAND_MS 30000
#define PER_NET 250 /* addresses of one 10.98.x */

/* tbf sends up to one burst without delay after an idle time, so a burst is short. It splits larger
 * packets on the cores that compute, so the kernel is told not to make larger ones. */
#define BURST_S 100e-6
#define BURST_MIN 3200
#define WHOLE_MIN 14500
#define WHOLE_MAX 65536

struct vb_links {
    int n;
    int own_fd;    /* the namespace of this process */
    int switch_fd; /* that of the bridge */
    int *fds;      /* (n) those of the ranks */
};

/* ---- what the user gave ---------------------------------------------------------------------- */

vb_status vb_link_parse(const char *text, struct vb_link *link_p, char why[VB_OPTS_WHY])
{
    static const struct {
        char unit;
        double factor;
    } units[] = {{'k', 1e3}, {'m', 1e6}, {'g', 1e9}};
    const char *colon = strchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text), i;
    char number[32];
    struct vb_link link = {0, 0};
    double factor = 1;

    for (i = 0; i < VB_COUNT(units) && len > 0; i++)
        if ((text[len - 1] | 0x20) == units[i].unit) {
            factor = units[i].factor;
            len--;
            break;
        }
    snprintf(number, sizeof(number), "%.*s", (int)(len < 31 ? len : 31), text);
    if (!vb_parse_real(number, &link.bits_per_s) ||
        (colon != NULL && !vb_parse_real(colon + 1, &link.latency_ms)))
        return vb_usage(
            why, "--link %.40s: must be RATE or RATE:LATENCY_MS, such as 100m, 1g or 1g:5", text);
    link.bits_per_s *= factor;
    if (link.bits_per_s < RATE_MIN || link.bits_per_s > RATE_MAX || link.latency_ms < 0 ||
        link.latency_ms > LATENCY_MAX)
        return vb_usage(why,
                        "--link %.40s: the rate must be 10k to 1000g bits a second, the latency 0 "
                        "to 10000 ms",
                        text);
    *link_p = link;
    return VB_OK;
}

/* ---- namespaces ------------------------------------------------------------------------------ */

/* Only the calling thread changes its namespace, so a thread of its own makes a new one. */
static void *make_thread(void *arg)
{
    int *fd = arg;

    *fd = unshare(CLONE_NEWNET) == 0 ? open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
    if (*fd < 0)
        *fd = -errno;
    return NULL;
}

/* Returns a descriptor of a new namespace, or the negative errno. */
static int make_namespace(void)
{
    pthread_t thread;
    int fd = -EAGAIN, err = pthread_create(&thread, NULL, make_thread, &fd);

    if (err != 0)
        return -err;
    pthread_join(thread, NULL);
    return fd;
}

vb_status vb_link_usable(char why[VB_OPTS_WHY])
{
    int fd;

    if (geteuid() != 0)
        return vb_usage(why, "--link makes network namespaces, which only root may: begin the "
                             "command with sudo, or leave --link out");
    fd = make_namespace();
    if (fd < 0)
        return vb_usage(why,
                        "--link: cannot make a network namespace: %s; in a container, give it "
                        "CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)",
                        strerror(-fd));
    close(fd);
    return VB_OK;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Copies the first line of what a command printed. */
static void first_line(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static vb_status explain(const char *program, int code, int out_fd)
{
    char said[160];

    first_line(out_fd, said, sizeof(said));
    if (code == 127)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "--link needs the command %s: run apt-get install iproute2", program);
    if (strstr(said, "qdisc kind is unknown") != NULL)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "--link: the kernel cannot limit rates or add latency (%s): run modprobe -a "
                      "sch_tbf sch_netem; without sch_netem, leave out :LATENCY_MS",
                      said);
    return vb_err(VB_ERR_IO, "--link: %s failed with exit code %d: %s", program, code, said);
}

/* Runs `ip -batch -` or `tc -batch -` in a namespace. text: its commands, one a line. */
static vb_status batch(const char *program, int net_fd, const char *text)
{
    char *argv[] = {(char *)program, "-batch", "-", NULL};
    int in_fd = memfd_create("commands", MFD_CLOEXEC), out_fd = memfd_create("said", MFD_CLOEXEC);
    struct vb_spawn_opts o = {
        .program = program, .argv = argv, .in_fd = in_fd, .out_fd = out_fd, .net_fd = net_fd};
    vb_status st = VB_OK;
    int code = 0;
    pid_t pid;

    if (in_fd < 0 || out_fd < 0 || !vb_write_all(in_fd, text, strlen(text)) ||
        lseek(in_fd, 0, SEEK_SET) != 0)
        st = vb_err_sys("memfd_create");
    if (st == VB_OK)
        st = vb_spawn_start(&o, &pid);
    if (st == VB_OK && !vb_spawn_wait(pid, COMMAND_MS, &code)) {
        vb_spawn_stop(pid, 0);
        st = vb_err(VB_ERR_TIMEOUT, "--link: %s did not end within %d s", program,
                    COMMAND_MS / 1000);
    }
    if (st == VB_OK && code != 0)
        st = explain(program, code, out_fd);
    if (in_fd >= 0)
        close(in_fd);
    if (out_fd >= 0)
        close(out_fd);
    return st;
}

/* ---- the links ------------------------------------------------------------------------------- */

void vb_links_address(int rank, char text[VB_LINK_ADDRESS])
{
    snprintf(text, VB_LINK_ADDRESS, "10.98.%d.%d", rank / PER_NET, rank % PER_NET + 1);
}

static double burst_of(const struct vb_link *link)
{
    double burst = link->bits_per_s / 8 * BURST_S;

    return burst > BURST_MIN ? burst : BURST_MIN;
}

static int whole_of(const struct vb_link *link)
{
    double whole = burst_of(link) - 1500;

    if (whole < WHOLE_MIN)
        return WHOLE_MIN;
    return whole > WHOLE_MAX ? WHOLE_MAX : (int)whole;
}

static void limit_rate(FILE *out, const char *device, const struct vb_link *link)
{
    fprintf(out, "qdisc replace dev %s root tbf rate %.0fbit burst %.0f latency 100ms\n", device,
            link->bits_per_s, burst_of(link));
}

/* Several ranks may send to one, so the bridge limits the rate, too; not with two ranks, because
 * each limit costs timers on the cores that compute. Latency is added where packets leave the
 * bridge. */
static void limit_port(FILE *out, const char *device, const struct vb_link *link, int n)
{
    if (link->latency_ms == 0 && n > 2)
        limit_rate(out, device, link);
    else if (link->latency_ms > 0)
        fprintf(out, "qdisc replace dev %s root netem delay %.3fms rate %.0fbit limit 100000\n",
                device, link->latency_ms, link->bits_per_s);
}

enum batch { BRIDGE_IP, BRIDGE_TC, NODE_IP, NODE_TC };

static void put_bridge(FILE *out, const struct vb_links *l, const struct vb_link *link, bool tc)
{
    char port[24];
    int i;

    if (!tc)
        fputs("link add sw type bridge\nlink set sw up\n", out);
    for (i = 0; i < l->n; i++) {
        snprintf(port, sizeof(port), "port%d", i);
        if (tc) {
            limit_port(out, port, link, l->n);
            continue;
        }
        fprintf(out, "link add %s type veth peer name eth0 netns /proc/%d/fd/%d\n", port,
                (int)getpid(), l->fds[i]);
        fprintf(out, "link set %s gso_max_size %d master sw up\n", port, whole_of(link));
    }
}

static void put_node(FILE *out, int rank, const struct vb_link *link)
{
    char address[VB_LINK_ADDRESS];

    vb_links_address(rank, address);
    fprintf(out,
            "addr add %s/16 dev eth0\nlink set lo up\n"
            "link set eth0 gso_max_size %d up\n",
            address, whole_of(link));
}

/* Writes the commands of a batch and runs them. */
static vb_status run_batch(const struct vb_links *l, const struct vb_link *link, enum batch what,
                           int rank)
{
    bool tc = what == BRIDGE_TC || what == NODE_TC, bridge = what == BRIDGE_IP || what == BRIDGE_TC;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    vb_status st;

    if (out == NULL)
        return vb_err_sys("open_memstream");
    if (bridge)
        put_bridge(out, l, link, tc);
    else if (tc)
        limit_rate(out, "eth0", link);
    else
        put_node(out, rank, link);
    if (fclose(out) != 0)
        st = vb_err_sys("fclose");
    else
        st = batch(tc ? "tc" : "ip", bridge ? l->switch_fd : l->fds[rank], text);
    free(text);
    return st;
}

static vb_status configure(const struct vb_links *l, const struct vb_link *link)
{
    vb_status st = run_batch(l, link, BRIDGE_IP, 0);
    int i;

    if (st == VB_OK)
        st = run_batch(l, link, BRIDGE_TC, 0);
    for (i = 0; i < l->n && st == VB_OK; i++) {
        st = run_batch(l, link, NODE_IP, i);
        if (st == VB_OK)
            st = run_batch(l, link, NODE_TC, i);
    }
    return st;
}

static vb_status make_namespaces(struct vb_links *l)
{
    int i;

    l->own_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (l->own_fd < 0)
        return vb_err_sys("open /proc/self/ns/net");
    for (i = -1; i < l->n; i++) {
        int fd = make_namespace();

        if (fd < 0) {
            errno = -fd;
            return vb_err_sys("--link: cannot make a network namespace");
        }
        if (i < 0)
            l->switch_fd = fd;
        else
            l->fds[i] = fd;
    }
    return VB_OK;
}

vb_status vb_links_open(const struct vb_link *link, int n, struct vb_links **links_p)
{
    struct vb_links *l = calloc(1, sizeof(*l));
    char why[VB_OPTS_WHY];
    vb_status st;
    int i;

    if (l == NULL)
        return vb_err_sys("calloc");
    l->n = n;
    l->own_fd = l->switch_fd = -1;
    l->fds = malloc((size_t)n * sizeof(*l->fds));
    for (i = 0; l->fds != NULL && i < n; i++)
        l->fds[i] = -1;
    st = l->fds != NULL ? VB_OK : vb_err_sys("malloc");
    if (st == VB_OK && vb_link_usable(why) != VB_OK)
        st = vb_err(VB_ERR_ACCESS, "%s", why);
    if (st == VB_OK)
        st = make_namespaces(l);
    if (st == VB_OK)
        st = configure(l, link);
    if (st != VB_OK) {
        vb_links_close(l);
        return st;
    }
    *links_p = l;
    return VB_OK;
}

void vb_links_close(struct vb_links *l)
{
    int i;

    if (l == NULL)
        return;
    for (i = 0; l->fds != NULL && i < l->n; i++)
        if (l->fds[i] >= 0)
            close(l->fds[i]);
    if (l->own_fd >= 0)
        close(l->own_fd);
    if (l->switch_fd >= 0)
        close(l->switch_fd);
    free(l->fds);
    free(l);
}

vb_status vb_links_enter(const struct vb_links *l, int rank)
{
    return setns(l->fds[rank], CLONE_NEWNET) == 0 ? VB_OK : vb_err_sys("setns");
}

vb_status vb_links_leave(const struct vb_links *l)
{
    return setns(l->own_fd, CLONE_NEWNET) == 0 ? VB_OK : vb_err_sys("setns");
}

bool vb_links_become(const struct vb_links *l, int rank)
{
    if (setns(l->fds[rank], CLONE_NEWNET) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("", "/", "none", MS_SLAVE | MS_REC, NULL) != 0)
        return false;
    umount2("/sys", MNT_DETACH);
    return mount("sysfs", "/sys", "sysfs", 0, NULL) == 0;
}
