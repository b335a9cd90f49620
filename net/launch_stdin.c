/* SPDX-License-Identifier: MIT
 *
 * A rank that a launcher on another host started over ssh. Its place comes in the environment; the
 * secret must not, so it comes through standard input, and so does the address of rank 0, which is
 * known only when rank 0 has a port:
 *
 *   rank       says on standard output which program it is, and rank 0 where it listens (hello)
 *   launcher   has heard all, and all are the same program: root and secret to each (answer)
 *   rank       runs; when standard input ends, the launcher is gone or wants it to end
 *
 * Whatever a login shell prints before the hello is not ours, and is passed over.
 */
#include "net/launch.h"
#include "net/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define HELLO "verbena-rank 1"
#define LINE_MAX_BYTES 512 /* of a hello or an answer, with its end */
#define ANSWER_MS 60000    /* the slowest host may take so long to start */
#define END_MS 5000        /* from being asked to end to being made to */

/* ---- which program --------------------------------------------------------------------------- */

static vb_status sum_of_file(int fd, char sha256[65])
{
    struct stat sb;
    size_t len = 0;
    ssize_t n = 1;
    char *data;

    if (fstat(fd, &sb) != 0)
        return vb_err_sys("stat this program");
    data = malloc((size_t)sb.st_size + 1);
    if (data == NULL)
        return vb_err_sys("malloc");
    while (n > 0 && len < (size_t)sb.st_size) {
        n = read(fd, data + len, (size_t)sb.st_size - len);
        len += n > 0 ? (size_t)n : 0;
    }
    vb_sha256(data, len, sha256);
    free(data);
    return VB_OK;
}

vb_status vb_hello_own(struct vb_hello *hello_p)
{
    struct utsname kernel;
    vb_status st;
    int fd;

    memset(hello_p, 0, sizeof(*hello_p));
    if (uname(&kernel) != 0)
        return vb_err_sys("uname");
    snprintf(hello_p->machine, sizeof(hello_p->machine), "%.31s", kernel.machine);
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return vb_err_sys("open this program");
    st = sum_of_file(fd, hello_p->sha256);
    close(fd);
    return st;
}

/* ---- lines ----------------------------------------------------------------------------------- */

bool vb_hello_parse(const char *line, struct vb_hello *hello_p)
{
    struct vb_hello hello;
    int end = 0;

    memset(&hello, 0, sizeof(hello));
    if (strncmp(line, HELLO " ", sizeof(HELLO)) != 0)
        return false;
    if (sscanf(line + sizeof(HELLO), "%31s %64s %271s%n", hello.machine, hello.sha256, hello.root,
               &end) != 3 ||
        line[sizeof(HELLO) + (size_t)end] != '\0')
        return false;
    *hello_p = hello;
    return true;
}

static void say_hello(const struct vb_hello *hello)
{
    char line[LINE_MAX_BYTES];
    int n = snprintf(line, sizeof(line), HELLO " %s %s %s\n", hello->machine, hello->sha256,
                     hello->root[0] != '\0' ? hello->root : "-");

    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        VB_LOG_DEBUG("nobody listens to the hello"); /* then standard input ends, too */
}

int vb_launch_answer(char *buf, size_t size, const char *root,
                     const unsigned char secret[VB_SECRET_BYTES])
{
    int n = snprintf(buf, size, "%s ", root), i;

    for (i = 0; i < VB_SECRET_BYTES; i++)
        n += snprintf(buf + n, size - (size_t)n, "%02x", secret[i]);
    return n + snprintf(buf + n, size - (size_t)n, "\n");
}

/* Not a byte beyond the line is taken. */
static bool read_answer(char line[LINE_MAX_BYTES])
{
    uint64_t deadline = vb_clock_ns() + (uint64_t)ANSWER_MS * 1000000;
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    size_t len = 0;

    while (len < LINE_MAX_BYTES - 1) {
        if (poll(&wait, 1, sock_ms_left(deadline, ANSWER_MS)) <= 0 ||
            read(STDIN_FILENO, line + len, 1) != 1)
            return false;
        if (line[len] == '\n') {
            line[len] = '\0';
            return true;
        }
        len++;
    }
    return false;
}

static vb_status take_answer(struct vb_launch *launch)
{
    char line[LINE_MAX_BYTES], *space;
    vb_status st;

    if (!read_answer(line))
        return vb_err(VB_ERR_PEER, "the launcher is gone: no word from it on standard input");
    space = strchr(line, ' ');
    if (space == NULL || (size_t)(space - line) >= sizeof(launch->root))
        return vb_err(VB_ERR_INPUT, "standard input does not begin with the address of rank 0");
    *space = '\0';
    memcpy(launch->root, line, (size_t)(space - line) + 1);
    st = vb_secret_parse(space + 1, launch->secret);
    explicit_bzero(line, sizeof(line));
    return st;
}

/* ---- where rank 0 listens -------------------------------------------------------------------- */

/* An address of this host that others may know: its name's, if that is not loopback, as it is on
 * many a Debian; else the one that ssh came to; else that of the interface for data. */
static bool address_by_name(const char *name, struct sock_addr *addr)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *at;
    bool ok = false;

    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    for (at = found; at != NULL && !ok; at = at->ai_next) {
        memset(addr, 0, sizeof(*addr));
        memcpy(&addr->sa, at->ai_addr, at->ai_addrlen);
        addr->len = at->ai_addrlen;
        ok = !sock_is_loopback(addr);
    }
    freeaddrinfo(found);
    return ok;
}

static bool address_of_ssh(const char *connection, struct sock_addr *addr)
{
    char server[VB_ADDR_TEXT];

    return connection != NULL && sscanf(connection, "%*s %*s %45s", server) == 1 &&
           sock_from_text(server, 0, addr) && !sock_is_loopback(addr);
}

static bool address_of_data(struct sock_addr *addr)
{
    const struct vb_iface *iface;
    struct vb_iface *list;
    bool found = false;
    int n;

    if (vb_net_ifaces_list("", &list, &n) != VB_OK)
        return false;
    iface = vb_net_iface_for_data(list, n);
    if (iface != NULL && iface->n_addrs > 0)
        found = sock_from_text(iface->addrs[0], 0, addr);
    vb_net_ifaces_free(list);
    return found;
}

static vb_status find_address(const char *name, const char *connection, struct sock_addr *addr)
{
    if (address_by_name(name, addr) || address_of_ssh(connection, addr) || address_of_data(addr) ||
        sock_from_text("127.0.0.1", 0, addr))
        return VB_OK;
    return vb_err(VB_ERR_NO_FILE, "no address for %s", name);
}

/* At all addresses: the one that others know may not be one of this host's own. */
static vb_status listen_everywhere(const struct sock_addr *as, int port, int *fd_p)
{
    struct sock_addr any;

    if (!sock_from_text(as->sa.ss_family == AF_INET6 ? "::" : "0.0.0.0", port, &any))
        return vb_err(VB_ERR_UNSUPPORTED, "no address to listen at");
    return sock_listen(&any, fd_p);
}

/* launch->root is "NAME:PORT"; port 0: any, and NAME stands for this host. */
static vb_status listen_as_root(struct vb_launch *launch, const char *connection, char *root)
{
    char name[VB_ROOT_TEXT], text[SOCK_TEXT];
    struct sock_addr addr, bound;
    int64_t port = 0;
    char *colon;
    vb_status st;

    snprintf(name, sizeof(name), "%s", launch->root);
    colon = strrchr(name, ':');
    if (colon == NULL || !vb_parse_int(colon + 1, &port) || port < 0 || port > 65535)
        return vb_err(VB_ERR_USAGE, "\"%s\" is not HOST:PORT", launch->root);
    *colon = '\0';
    st = port == 0 ? find_address(name, connection, &addr) : sock_resolve(launch->root, &addr);
    if (st == VB_OK)
        st = listen_everywhere(&addr, (int)port, &launch->root_fd);
    if (st == VB_OK)
        st = sock_local(launch->root_fd, &bound);
    if (st != VB_OK)
        return st;
    sock_host_text(&addr, name, sizeof(name));
    (void)sock_from_text(name, sock_port(&bound), &addr);
    sock_text(&addr, text);
    snprintf(root, VB_ROOT_TEXT, "%s", port == 0 ? text : launch->root);
    return VB_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void *watch_input(void *arg)
{
    char byte[64];
    ssize_t n;

    do
        n = read(STDIN_FILENO, byte, sizeof(byte));
    while (n > 0 || (n < 0 && errno == EINTR));
    kill(getpid(), SIGTERM);
    poll(NULL, 0, END_MS);
    kill(getpid(), SIGKILL);
    return arg;
}

static vb_status start_watch(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    int err;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    err = pthread_create(&thread, &attr, watch_input, NULL);
    pthread_attr_destroy(&attr);
    if (err == 0)
        return VB_OK;
    errno = err;
    return vb_err_sys("pthread_create");
}

vb_status launch_read_stdin(struct vb_launch *launch, const char *ssh_connection)
{
    struct vb_hello hello;
    vb_status st;

    st = vb_hello_own(&hello);
    if (st == VB_OK && launch->rank == 0)
        st = listen_as_root(launch, ssh_connection, hello.root);
    if (st != VB_OK)
        return st;
    say_hello(&hello);
    st = take_answer(launch);
    return st == VB_OK ? start_watch() : st;
}
