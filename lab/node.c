/* SPDX-License-Identifier: MIT
 *
 * One virtual machine. It is a qemu with four sockets: the network cable to the switch, the serial
 * line to the agent, the monitor, and the console. The console also gets qemu's own messages.
 */
#include "lab/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONSOLE_BYTES 65536
#define CONSOLE_LINES 40
#define MAX_ARGS 40 /* maximum number of arguments that node_args() adds */

enum { NET, AGENT, MONITOR, CONSOLE, N_SOCKETS };

__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...)
{
    char *s;
    va_list ap;

    va_start(ap, format);
    if (vasprintf(&s, format, ap) < 0)
        lab_die("out of memory");
    va_end(ap);
    return s;
}

/* Adds arguments for qemu. The strings are for exec() and are never freed. */
static void node_args(char **argv, int n, int index, int n_nodes, const char *append,
                      const int fds[N_SOCKETS])
{
    uint8_t m[6];

    lab_switch_mac(index, m);
    char *const more[][2] = {
        {"-netdev", text("socket,id=n0,fd=%d", fds[NET])},
        {"-device", text("virtio-net-pci,netdev=n0,romfile=,mac=%02x:%02x:%02x:%02x:%02x:%02x",
                         m[0], m[1], m[2], m[3], m[4], m[5])},
        {"-device", "virtio-serial-pci"},
        {"-chardev", text("socket,id=agent,fd=%d", fds[AGENT])},
        {"-device", "virtserialport,chardev=agent,name=lab"},
        {"-chardev", text("socket,id=monitor,fd=%d", fds[MONITOR])},
        {"-mon", "chardev=monitor,mode=readline"},
        {"-chardev", text("socket,id=console,fd=%d", fds[CONSOLE])},
        {"-serial", "chardev:console"},
        {"-append", text("%s lab.node=%d lab.nodes=%d", append, index, n_nodes)},
    };

    memcpy(argv + n, more, sizeof(more)); /* NULL follows, because argv is zeroed */
}

_Noreturn static void node_exec(char **argv, pid_t parent, const int fds[N_SOCKETS])
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;
    int i;

    /* another process group, so that Ctrl-C reaches only cluster */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(LAB_FAILED);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, STDIN_FILENO);
    dup2(fds[CONSOLE], STDOUT_FILENO);
    dup2(fds[CONSOLE], STDERR_FILENO);
    for (i = 0; i < N_SOCKETS; i++)
        fcntl(fds[i], F_SETFD, 0);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(LAB_FAILED);
}

void lab_node_start(struct lab_node *node, int index, int n_nodes, char *const *argv, int n_args,
                    const char *append, struct lab_port *port)
{
    char **words = lab_alloc((size_t)n_args + MAX_ARGS, sizeof(*words));
    int ours[N_SOCKETS], theirs[N_SOCKETS], pair[2];
    pid_t parent = getpid();
    int i;

    for (i = 0; i < N_SOCKETS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            lab_die("socketpair: %s", strerror(errno));
        ours[i] = pair[0];
        theirs[i] = pair[1];
        fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    memcpy(words, argv, (size_t)n_args * sizeof(*words));
    node->index = index;
    node->state = LAB_BOOTING;
    node->pid = fork();
    if (node->pid < 0)
        lab_die("fork: %s", strerror(errno));
    if (node->pid == 0) {
        node_args(words, n_args, index, n_nodes, append, theirs);
        node_exec(words, parent, theirs);
    }
    for (i = 0; i < N_SOCKETS; i++)
        close(theirs[i]);
    free(words);
    port->fd = ours[NET];
    node->agent_fd = ours[AGENT];
    node->monitor_fd = ours[MONITOR];
    node->console_fd = ours[CONSOLE];
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void lab_node_kill(struct lab_node *node, struct lab_port *port)
{
    if (node->state == LAB_GONE)
        return;
    kill(node->pid, SIGKILL);
    while (waitpid(node->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    node->state = LAB_GONE;
    lab_node_read_console(node);
    close_fd(&port->fd);
    close_fd(&node->agent_fd);
    close_fd(&node->monitor_fd);
    close_fd(&node->console_fd);
}

int64_t lab_node_cpu_ms(const struct lab_node *node)
{
    struct timespec t;
    clockid_t clock;

    if (clock_getcpuclockid(node->pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void lab_node_set_link(struct lab_node *node, bool up)
{
    char line[32];
    int n = snprintf(line, sizeof(line), "set_link n0 %s\n", up ? "on" : "off");

    if (node->state == LAB_UP && write(node->monitor_fd, line, (size_t)n) != n)
        lab_die("node%d: the monitor of this node does not accept commands: %s", node->index,
                strerror(errno));
}

void lab_node_read_console(struct lab_node *node)
{
    size_t before;

    do {
        before = node->console.len_bytes;
        if (!lab_queue_fill(&node->console, node->console_fd))
            close_fd(&node->console_fd);
    } while (node->console_fd >= 0 && node->console.len_bytes > before);
    if (node->console.len_bytes > CONSOLE_BYTES)
        lab_queue_drop(&node->console, node->console.len_bytes - CONSOLE_BYTES);
}

void lab_node_show_console(struct lab_node *node, struct lab_output *o)
{
    const char *data = (const char *)lab_queue_head(&node->console);
    size_t at = node->console.len_bytes;
    struct lab_lines lines = {.part = {0}};
    int n = 0;

    if (at == 0) {
        lab_output_say(o, "node%d: the console of this node shows nothing", node->index);
        return;
    }
    while (at > 0 && n <= CONSOLE_LINES) {
        at--;
        n += data[at] == '\n';
    }
    if (data[at] == '\n')
        at++;
    snprintf(lines.prefix, sizeof(lines.prefix), "[node%d console] ", node->index);
    for (; at < node->console.len_bytes; at++)
        if (data[at] != '\r')
            lab_output_lines(o, &lines, data + at, 1);
    lab_output_end(o, &lines);
}
