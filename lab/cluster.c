/* SPDX-License-Identifier: MIT
 *
 * Starts the nodes, connects them, runs the job on them, and exits with the status of the job.
 * lab/run calls this program; the help of lab/run explains the options.
 *
 *   cluster --nodes N [OPTION...] --qemu WORDS -- QEMU... PROGRAM...
 *
 * WORDS is the number of arguments after -- that belong to qemu; the others are the program.
 */
#include "lab/lab.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* A node is given up if it is not up after BOOT_MS and has used BOOT_CPU_MS of CPU time, or after
 * BOOT_BUSY_MS on a busy host. */
#define BOOT_MS 120000
#define BOOT_CPU_MS 30000
#define BOOT_BUSY_MS 480000
#define MAX_UNREAD_BYTES (1U << 20) /* limit of unread output; nodes wait if it is reached */

struct cluster {
    struct lab_opts opts;
    struct lab_job job;
    struct lab_output output;
    struct lab_node nodes[LAB_MAX_NODES];
    struct lab_port ports[LAB_MAX_NODES];
    int n_up;
    int64_t begin_ms, start_ms; /* start of cluster, start of the job; 0: not yet started */
    int signal_fd;
    bool input_open;
    int status; /* exit status; -1: not yet known */
};

/* The descriptors that poll() waits for. Each node has four, in the order of enum slot. */
enum slot { NET, AGENT, MONITOR, CONSOLE, PER_NODE };
enum { SIGNALS, OUT, ERR, IN, FIRST_NODE };

static struct termios terminal;

static void terminal_restore(void)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
}

static void terminal_raw(void)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &terminal) != 0)
        return;
    raw = terminal;
    cfmakeraw(&raw);
    atexit(terminal_restore);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void terminal_size(struct cluster *c)
{
    struct winsize w;
    struct lab_size size;

    if (c->opts.shell < 0 || ioctl(STDIN_FILENO, TIOCGWINSZ, &w) != 0)
        return;
    size = (struct lab_size){.rows = w.ws_row, .columns = w.ws_col};
    lab_frame_push(&c->nodes[c->opts.shell].to_agent, LAB_SIZE, 0, &size, sizeof(size));
}

static void node_died(struct cluster *c, struct lab_node *node)
{
    bool booting = node->state == LAB_BOOTING;

    lab_node_kill(node, &c->ports[node->index]);
    lab_output_say(&c->output,
                   booting ? "node%d did not come up. The last lines of its console:"
                           : "node%d died. The last lines of its console:",
                   node->index);
    lab_node_show_console(node, &c->output);
    c->status = LAB_FAILED;
}

static void job_begin(struct cluster *c)
{
    int i;

    c->start_ms = lab_now_ms();
    for (i = 0; i < c->opts.n_nodes; i++)
        lab_job_start(&c->job, &c->nodes[i]);
    if (c->opts.shell >= 0) {
        c->input_open = true;
        terminal_size(c);
        if (isatty(STDIN_FILENO))
            terminal_raw();
    }
}

static void node_up(struct cluster *c, struct lab_node *node)
{
    node->state = LAB_UP;
    if (c->opts.verbose)
        lab_output_say(&c->output, "node%d is up after %.1f s", node->index,
                       (double)(lab_now_ms() - c->begin_ms) / 1000);
    lab_job_greet(&c->job, node);
    if (++c->n_up == c->opts.n_nodes)
        job_begin(c);
}

static void agent_read(struct cluster *c, struct lab_node *node)
{
    struct lab_frame f;

    if (!lab_queue_fill(&node->from_agent, node->agent_fd)) {
        node_died(c, node);
        return;
    }
    while (lab_frame_next(&node->from_agent, &f)) {
        if (f.type == LAB_HELLO && node->state == LAB_BOOTING)
            node_up(c, node);
        else
            lab_job_frame(&c->job, node, &f, &c->output);
    }
}

static void input_read(struct cluster *c)
{
    char data[4096];
    ssize_t n = read(STDIN_FILENO, data, sizeof(data));

    if (n < 0 && errno == EINTR)
        return;
    c->input_open = n > 0;
    lab_frame_push(&c->nodes[c->opts.shell].to_agent, LAB_IN, 0, data, n > 0 ? (size_t)n : 0);
}

static void signal_read(struct cluster *c)
{
    struct signalfd_siginfo info;

    if (read(c->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGWINCH)
        terminal_size(c);
    else if (info.ssi_signo != SIGCHLD)
        c->status = 128 + (int)info.ssi_signo;
}

static void reap(struct cluster *c)
{
    siginfo_t info;
    int i;

    for (i = 0; i < c->opts.n_nodes; i++) {
        info.si_pid = 0;
        if (c->nodes[i].state != LAB_GONE &&
            waitid(P_PID, (id_t)c->nodes[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0)
            node_died(c, &c->nodes[i]);
    }
}

static void event_do(struct cluster *c, struct lab_event *e)
{
    struct lab_node *node = &c->nodes[e->node];
    struct lab_port *port = &c->ports[e->node];

    e->done = true;
    if (node->state != LAB_UP)
        return;
    if (e->type == LAB_KILL) {
        lab_output_say(&c->output, "node%d is powered off", e->node);
        lab_node_kill(node, port);
        lab_job_lose_node(&c->job, e->node, &c->output);
        return;
    }
    lab_output_say(&c->output,
                   e->type == LAB_CUT ? "node%d: the link of this node is cut"
                                      : "node%d: the link of this node works again",
                   e->node);
    port->cut = e->type == LAB_CUT;
    lab_node_set_link(node, e->type == LAB_JOIN);
}

/* Gives up nodes that take too long to boot. Returns the time of the next check. */
static int64_t boot_deadline(struct cluster *c, int64_t now_ms)
{
    int64_t age_ms = now_ms - c->begin_ms;
    int i;

    if (age_ms < BOOT_MS)
        return c->begin_ms + BOOT_MS;
    for (i = 0; i < c->opts.n_nodes; i++)
        if (c->nodes[i].state == LAB_BOOTING &&
            (age_ms >= BOOT_BUSY_MS || lab_node_cpu_ms(&c->nodes[i]) >= BOOT_CPU_MS))
            node_died(c, &c->nodes[i]);
    return now_ms + 1000;
}

/* Handles the timers that are due. Returns the milliseconds until the next one, at most a minute.
 */
static int timers(struct cluster *c)
{
    int64_t now_ms = lab_now_ms(), next_ms = now_ms + 60000, boot_ms;
    int64_t end_ms = c->begin_ms + (int64_t)c->opts.timeout_s * 1000;
    int i;

    for (i = 0; c->start_ms != 0 && i < c->opts.n_events; i++) {
        int64_t at_ms = c->start_ms + c->opts.events[i].at_ms;

        if (!c->opts.events[i].done && at_ms <= now_ms)
            event_do(c, &c->opts.events[i]);
        else if (!c->opts.events[i].done && at_ms < next_ms)
            next_ms = at_ms;
    }
    if (c->start_ms == 0) {
        boot_ms = boot_deadline(c, now_ms);
        next_ms = boot_ms < next_ms ? boot_ms : next_ms;
    }
    if (c->opts.timeout_s > 0 && now_ms >= end_ms) {
        lab_output_say(&c->output, "the job did not end within %d s (--timeout)",
                       c->opts.timeout_s);
        c->status = LAB_TIMEOUT;
    } else if (c->opts.timeout_s > 0 && end_ms < next_ms) {
        next_ms = end_ms;
    }
    return (int)(next_ms - now_ms);
}

static void poll_for(struct pollfd *p, int fd, bool in, bool out)
{
    p->fd = in || out ? fd : -1;
    p->events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
    p->revents = 0;
}

static int poll_all(struct cluster *c, struct pollfd *p)
{
    bool room = c->output.out.len_bytes + c->output.err.len_bytes < MAX_UNREAD_BYTES;
    int i;

    poll_for(&p[SIGNALS], c->signal_fd, true, false);
    poll_for(&p[OUT], STDOUT_FILENO, false, c->output.out.len_bytes > 0);
    poll_for(&p[ERR], STDERR_FILENO, false, c->output.err.len_bytes > 0);
    poll_for(&p[IN], STDIN_FILENO, c->input_open, false);
    for (i = 0; i < c->opts.n_nodes; i++) {
        struct pollfd *q = &p[FIRST_NODE + i * PER_NODE];
        struct lab_node *node = &c->nodes[i];

        poll_for(&q[NET], c->ports[i].fd, true, c->ports[i].out.len_bytes > 0);
        poll_for(&q[AGENT], node->agent_fd, room, node->to_agent.len_bytes > 0);
        poll_for(&q[MONITOR], node->monitor_fd, true, false);
        poll_for(&q[CONSOLE], node->console_fd, true, false);
    }
    return FIRST_NODE + c->opts.n_nodes * PER_NODE;
}

static void serve_node(struct cluster *c, int i, const struct pollfd *p)
{
    struct lab_node *node = &c->nodes[i];
    struct lab_port *port = &c->ports[i];
    char unused[4096]; /* qemu echoes the commands of the monitor */

    if (p[CONSOLE].revents != 0)
        lab_node_read_console(node);
    if (p[MONITOR].revents != 0 && read(node->monitor_fd, unused, sizeof(unused)) == 0) {
        close(node->monitor_fd);
        node->monitor_fd = -1;
    }
    /* A socket fails if its qemu has ended. reap() reports the end. */
    if (p[NET].revents & (POLLIN | POLLHUP) && !lab_switch_read(c->ports, c->opts.n_nodes, i)) {
        close(port->fd);
        port->fd = -1;
        return;
    }
    if (p[NET].revents & POLLOUT)
        lab_queue_flush(&port->out, port->fd, SIZE_MAX);
    if (p[AGENT].revents & POLLOUT)
        lab_queue_flush(&node->to_agent, node->agent_fd, SIZE_MAX);
    if (p[AGENT].revents & (POLLIN | POLLHUP))
        agent_read(c, node);
}

static void write_output(struct cluster *c, const struct pollfd *p)
{
    if (p[OUT].revents != 0 && !lab_queue_flush(&c->output.out, STDOUT_FILENO, 4096)) {
        lab_queue_fini(&c->output.out);
        c->status = 128 + SIGPIPE;
    }
    if (p[ERR].revents != 0 && !lab_queue_flush(&c->output.err, STDERR_FILENO, 4096))
        lab_queue_fini(&c->output.err);
}

static void cluster_run(struct cluster *c)
{
    struct pollfd p[FIRST_NODE + LAB_MAX_NODES * PER_NODE];
    int i, n, wait_ms;

    while (c->status < 0) {
        wait_ms = timers(c);
        n = poll_all(c, p);
        if (poll(p, (nfds_t)n, wait_ms) < 0 && errno != EINTR)
            lab_die("poll: %s", strerror(errno));
        write_output(c, p);
        if (p[SIGNALS].revents != 0)
            signal_read(c);
        if (p[IN].revents != 0)
            input_read(c);
        for (i = 0; i < c->opts.n_nodes && c->status < 0; i++)
            if (c->nodes[i].state != LAB_GONE)
                serve_node(c, i, &p[FIRST_NODE + i * PER_NODE]);
        if (c->status < 0 && c->job.n_done == c->job.n_ranks)
            c->status = c->job.status;
        if (c->status < 0)
            reap(c);
    }
}

static void cluster_begin(struct cluster *c)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGWINCH};
    sigset_t set;
    int i;

    sigemptyset(&set);
    for (i = 0; i < (int)(sizeof(signals) / sizeof(*signals)); i++)
        sigaddset(&set, signals[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    c->begin_ms = lab_now_ms();
    c->status = -1;
    lab_job_init(&c->job, &c->opts);
    for (i = 0; i < c->opts.n_nodes; i++)
        lab_node_start(&c->nodes[i], i, c->opts.n_nodes, c->opts.qemu, c->opts.n_qemu,
                       c->opts.append, &c->ports[i]);
}

static void cluster_end(struct cluster *c)
{
    static const char *const names[] = {"kill", "cut", "joining again"};
    int i;

    for (i = 0; i < c->opts.n_nodes; i++) {
        if (c->opts.verbose)
            lab_output_say(&c->output, "node%d was sent %llu frames, and %llu more were dropped", i,
                           (unsigned long long)c->ports[i].n_forwarded,
                           (unsigned long long)c->ports[i].n_dropped);
        lab_node_kill(&c->nodes[i], &c->ports[i]);
    }
    for (i = 0; i < c->opts.n_events; i++)
        if (!c->opts.events[i].done && c->opts.events[i].type != LAB_JOIN)
            lab_output_say(&c->output, "the job ended before the %s of node%d",
                           names[c->opts.events[i].type], c->opts.events[i].node);
    for (i = 0; i < c->job.n_ranks; i++) {
        lab_output_end(&c->output, &c->job.ranks[i].out);
        lab_output_end(&c->output, &c->job.ranks[i].err);
    }
    /* After a signal or a timeout nobody may be reading the output any more. */
    lab_output_flush(&c->output, c->status >= LAB_TIMEOUT ? 1000 : INT_MAX);
}

int main(int argc, char **argv)
{
    static struct cluster c;

    lab_opts_parse(&c.opts, argc, argv);
    cluster_begin(&c);
    cluster_run(&c);
    cluster_end(&c);
    return c.status;
}
