/* SPDX-License-Identifier: MIT
 *
 * What the machine can do without us: bare shm|tcp|tcp-asleep BYTES. Two processes, a cpu each, and
 * the shortest loop that moves the bytes: what the transports are held against, in the same run.
 *
 *   shm  one way: payload, then a flag in a cache line of its own, over a shared mapping, spinning
 *        GB/s: memcpy between two mapped buffers
 *   tcp  one way: ping-pong over loopback on one socket, spinning
 *        GB/s: one side sends, the other receives into one buffer, both sleeping when they must
 *   tcp-asleep  the same, but the ping-pong sleeps in recv()
 *   tcp-step    BYTES US: steps of two ranks that compute for so long, in registers alone, and swap
 *               the bytes: after computing, as synchronous training must, or sent before it and
 *               received after it, so that none of the wire is seen: what is left is what TCP
 *               takes of the cores
 *
 * ... HERE THERE ADDRESS: not over loopback but between two network namespaces, of which the second
 * has that address.
 *
 * Prints one JSON line. Payloads are looked at on arrival: "wrong" counts those not as sent.
 */
#include "base/base.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLES_MAX 8192
#define SAMPLES_MIN 16
#define MEASURE_NS UINT64_C(300000000) /* each of the two measurements */
#define STOP UINT32_MAX                /* instead of a round's number: the end */
#define BYTES_MAX ((int64_t)256 << 20)
#define STEP_BYTES_MAX 65536 /* sockets hold that many: nobody waits for a receiver */
#define STEP_US_MAX 100000
#define STEPS_NS UINT64_C(50000000) /* steps of one kind after each other */
#define STEP_ROUNDS 9               /* of each kind in turn */

enum how { SPIN = MSG_DONTWAIT, SLEEP = 0 };

/* When a step's bytes are swapped. */
enum swap { NEVER, AFTER, HIDDEN, SWAPS };

struct bench {
    size_t len;
    enum how how;         /* tcp: the ping-pong waits */
    bool crowded;         /* one cpu for both: give way while waiting */
    struct vb_mem shared; /* page of flags, then three payloads: to and fro, and a source */
    char *payload[3];
    int fd;           /* tcp: this process's end */
    char *const *via; /* tcp: two namespaces and an address; NULL: loopback */
    double lat_us[SAMPLES_MAX];
    int n_samples;
    int64_t wrong;
    double gb_s;
    double compute_us; /* tcp-step: asked for */
    double step_us[SWAPS];
};

/* One flag a direction. */
struct flags {
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t to_child;
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t to_parent;
};

#define FLAGS_BYTES 4096
_Static_assert(sizeof(struct flags) <= FLAGS_BYTES, "the flags need more than a page");

/* ---- processes ------------------------------------------------------------------------------- */

/* The first two cpus that we may use, one a process. */
static void pin(struct bench *b, int which)
{
    cpu_set_t allowed, one;
    int cpu, seen = 0;

    b->crowded = sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2;
    if (b->crowded)
        return;
    for (cpu = 0; cpu < CPU_SETSIZE - 1; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == which)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
}

static void relax(const struct bench *b)
{
    if (b->crowded)
        sched_yield();
}

/* The round's number is at both ends of a payload. */
static void stamp(char *payload, size_t len, uint32_t round)
{
    payload[0] = (char)round;
    payload[len - 1] = (char)round;
}

static bool stamped(const char *payload, size_t len, uint32_t round)
{
    return payload[0] == (char)round && payload[len - 1] == (char)round;
}

static bool enough(const struct bench *b, uint64_t begin)
{
    if (b->n_samples == SAMPLES_MAX)
        return true;
    return b->n_samples >= SAMPLES_MIN && vb_clock_ns() - begin > MEASURE_NS;
}

/* ---- shared memory --------------------------------------------------------------------------- */

static void post(_Atomic uint32_t *flag, uint32_t round)
{
    atomic_store_explicit(flag, round, memory_order_release); /* pairs with await() */
}

/* False: the other side is done. */
static bool await(const struct bench *b, _Atomic uint32_t *flag, uint32_t round)
{
    uint32_t value;

    /* Pairs with the release in post(). */
    while ((value = atomic_load_explicit(flag, memory_order_acquire)) != round && value != STOP)
        relax(b);
    return value == round;
}

static void shm_pong(struct bench *b)
{
    struct flags *flags = b->shared.ptr;
    uint32_t round;

    for (round = 1; await(b, &flags->to_child, round); round++) {
        stamp(b->payload[2], b->len, (uint32_t)(unsigned char)b->payload[0][b->len - 1]);
        memcpy(b->payload[1], b->payload[2], b->len);
        post(&flags->to_parent, round);
    }
}

static void shm_ping(struct bench *b)
{
    struct flags *flags = b->shared.ptr;
    int i, batch = b->len <= 4096 ? 100 : 1;
    uint64_t was, begin = vb_clock_ns();
    char *src = malloc(b->len);
    uint32_t round = 0;

    memset(src, 0, b->len);
    while (!enough(b, begin)) {
        was = vb_clock_ns();
        for (i = 0; i < batch; i++) {
            stamp(src, b->len, ++round);
            memcpy(b->payload[0], src, b->len);
            post(&flags->to_child, round);
            (void)await(b, &flags->to_parent, round);
            b->wrong += !stamped(b->payload[1], b->len, round);
        }
        b->lat_us[b->n_samples++] = (double)(vb_clock_ns() - was) / 2e3 / batch;
    }
    post(&flags->to_child, STOP);
    free(src);
}

/* By the median: other jobs take the cpu now and then. */
static void shm_copy(struct bench *b)
{
    int i, n = 0, batch = b->len < 65536 ? (int)(65536 / b->len) : 1;
    uint64_t was, begin = vb_clock_ns();
    static double ns[SAMPLES_MAX];

    memcpy(b->payload[1], b->payload[0], b->len);
    while (n < SAMPLES_MAX && (n < SAMPLES_MIN || vb_clock_ns() - begin < MEASURE_NS)) {
        stamp(b->payload[0], b->len, (uint32_t)n);
        was = vb_clock_ns();
        for (i = 0; i < batch; i++) {
            memcpy(b->payload[1], b->payload[0], b->len);
            atomic_signal_fence(memory_order_seq_cst); /* or the compiler copies once */
        }
        ns[n++] = (double)(vb_clock_ns() - was) / batch;
        b->wrong += !stamped(b->payload[1], b->len, (uint32_t)(n - 1));
    }
    vb_sort(ns, (size_t)n);
    b->gb_s = (double)b->len / ns[n / 2];
}

static vb_status map_payloads(struct bench *b)
{
    size_t page = 4096, each = (b->len + page - 1) / page * page;
    vb_status st;
    int i;

    st = vb_mem_map_shared("verbena-bare", FLAGS_BYTES + 3 * each, &b->shared);
    if (st == VB_OK)
        st = vb_mem_populate(&b->shared);
    for (i = 0; i < 3 && st == VB_OK; i++)
        b->payload[i] = (char *)b->shared.ptr + FLAGS_BYTES + (size_t)i * each;
    return st;
}

/* ---- TCP ------------------------------------------------------------------------------------- */

/* A socket in a network namespace: it stays there, wherever the process goes. */
static vb_status socket_in(const char *space, int *fd_p)
{
    char path[256];
    int ns;

    if (space != NULL) {
        snprintf(path, sizeof(path), "/run/netns/%s", space);
        ns = open(path, O_RDONLY | O_CLOEXEC);
        if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
            return vb_err_sys("%s", path);
        close(ns);
    }
    *fd_p = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return *fd_p >= 0 ? VB_OK : vb_err_sys("socket");
}

static vb_status tcp_pair(const struct bench *b, int fds[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char *const *via = b->via;
    socklen_t len = sizeof(addr);
    int i, one = 1, listener = -1;
    vb_status st;

    fds[0] = fds[1] = -1;
    if (via != NULL && inet_pton(AF_INET, via[2], &addr.sin_addr) != 1)
        return vb_err(VB_ERR_USAGE, "%s is no address", via[2]);
    st = socket_in(via != NULL ? via[1] : NULL, &listener);
    if (st == VB_OK)
        st = socket_in(via != NULL ? via[0] : NULL, &fds[0]);
    if (st != VB_OK)
        return st;
    if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&addr, &len) != 0 ||
        connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)) != 0)
        st = vb_err_sys("connect");
    fds[1] = st == VB_OK ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    for (i = 0; i < 2 && st == VB_OK; i++)
        if (setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
            st = vb_err_sys("TCP_NODELAY");
    close(listener);
    return st;
}

/* Sends or receives all. False: the other side is done. */
static bool move(const struct bench *b, char *data, bool out, enum how how)
{
    size_t at = 0;
    ssize_t n;

    while (at < b->len) {
        n = out ? send(b->fd, data + at, b->len - at, MSG_NOSIGNAL | (int)how)
                : recv(b->fd, data + at, b->len - at, (int)how);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else
            relax(b);
    }
    return true;
}

static void tcp_pong(struct bench *b)
{
    while (move(b, b->payload[0], false, b->how)) {
        memcpy(b->payload[1], b->payload[0], b->len <= 4096 ? b->len : 1);
        b->payload[1][b->len - 1] = b->payload[0][b->len - 1];
        if (!move(b, b->payload[1], true, b->how))
            return;
    }
}

static void tcp_ping(struct bench *b)
{
    uint64_t was, begin = vb_clock_ns();
    uint32_t round = 0;

    while (!enough(b, begin)) {
        was = vb_clock_ns();
        stamp(b->payload[0], b->len, ++round);
        (void)move(b, b->payload[0], true, b->how);
        (void)move(b, b->payload[1], false, b->how);
        b->wrong += !stamped(b->payload[1], b->len, round);
        b->lat_us[b->n_samples++] = (double)(vb_clock_ns() - was) / 2e3;
    }
    shutdown(b->fd, SHUT_WR);
}

/* The child receives until the end and says so with one byte: then all has arrived. */
static void tcp_sink(struct bench *b)
{
    while (move(b, b->payload[0], false, SLEEP))
        ;
    (void)!send(b->fd, "", 1, MSG_NOSIGNAL);
}

static void tcp_stream(struct bench *b)
{
    uint64_t begin = vb_clock_ns(), sent = 0;
    char end;

    while (vb_clock_ns() - begin < MEASURE_NS && move(b, b->payload[1], true, SLEEP))
        sent += b->len;
    shutdown(b->fd, SHUT_WR);
    (void)!recv(b->fd, &end, 1, 0);
    b->gb_s = (double)sent / (double)(vb_clock_ns() - begin);
}

/* ---- steps that compute and swap bytes ------------------------------------------------------- */

/* Each turn needs the one before it, and no memory. */
static void compute(uint64_t turns)
{
    volatile float result;
    float x = 0;
    uint64_t i;

    for (i = 0; i < turns; i++)
        x = x * 0.999F + 0.001F;
    result = x; /* or the compiler computes nothing */
    (void)result;
}

/* Turns that take so long when nothing comes between. */
static uint64_t turns_of(double us)
{
    const uint64_t turns = 20000;
    uint64_t was, ns, least = UINT64_MAX;
    int i;

    for (i = 0; i < 100; i++) {
        was = vb_clock_ns();
        compute(turns);
        ns = vb_clock_ns() - was;
        if (ns > 0 && ns < least)
            least = ns;
    }
    return (uint64_t)(us * 1e3 * (double)turns / (double)least);
}

static bool one_step(struct bench *b, char *out, char *in, enum swap swap, uint64_t turns)
{
    if (swap == HIDDEN && !move(b, out, true, SPIN))
        return false;
    compute(turns);
    if (swap == AFTER && !move(b, out, true, SPIN))
        return false;
    return swap == NEVER || move(b, in, false, SPIN);
}

/* us a step of many after each other, which both sides begin together. */
static double time_steps(struct bench *b, char *out, char *in, enum swap swap, uint64_t turns)
{
    int i, n = (int)((double)STEPS_NS / (b->compute_us * 1e3)) + 1;
    uint64_t was;
    bool ok;

    b->wrong += !one_step(b, out, in, AFTER, 0);
    was = vb_clock_ns();
    for (i = 0; i < n; i++) {
        stamp(out, b->len, (uint32_t)i);
        ok = one_step(b, out, in, swap, turns);
        if (swap != NEVER)
            b->wrong += !ok || !stamped(in, b->len, (uint32_t)i);
    }
    return (double)(vb_clock_ns() - was) / 1e3 / n;
}

/* Both sides do the same. */
static void step(struct bench *b)
{
    char *out = calloc(1, b->len), *in = calloc(1, b->len);
    uint64_t turns = turns_of(b->compute_us);
    double us[SWAPS][STEP_ROUNDS];
    int swap, round;

    for (round = 0; round < STEP_ROUNDS; round++)
        for (swap = 0; swap < SWAPS; swap++)
            us[swap][round] = time_steps(b, out, in, swap, turns);
    for (swap = 0; swap < SWAPS; swap++) {
        vb_sort(us[swap], STEP_ROUNDS);
        b->step_us[swap] = us[swap][STEP_ROUNDS / 2];
    }
    free(out);
    free(in);
}

/* ---- the run --------------------------------------------------------------------------------- */

typedef void (*side_fn)(struct bench *b);

/* Runs one side here and the other in a child. */
static vb_status run_pair(struct bench *b, side_fn parent, side_fn child, const int *fds)
{
    int status = 0;
    pid_t pid = fork();

    if (pid < 0)
        return vb_err_sys("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(b, 1);
        b->fd = fds != NULL ? fds[1] : -1;
        if (fds != NULL)
            close(fds[0]);
        child(b);
        _exit(b->wrong != 0);
    }
    pin(b, 0);
    b->fd = fds != NULL ? fds[0] : -1;
    if (fds != NULL)
        close(fds[1]);
    parent(b);
    if (fds != NULL)
        close(fds[0]);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return vb_err(VB_ERR_PEER, "the other process failed");
    return VB_OK;
}

static vb_status run_tcp(struct bench *b, side_fn parent, side_fn child)
{
    vb_status st;
    int fds[2];

    st = tcp_pair(b, fds);
    return st == VB_OK ? run_pair(b, parent, child, fds) : st;
}

static vb_status run(struct bench *b, bool tcp)
{
    cpu_set_t allowed;
    vb_status st;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return vb_err_sys("sched_getaffinity");
    if (b->compute_us > 0)
        return run_tcp(b, step, step);
    st = map_payloads(b);
    if (st == VB_OK)
        st = tcp ? run_tcp(b, tcp_ping, tcp_pong) : run_pair(b, shm_ping, shm_pong, NULL);
    if (st != VB_OK)
        return st;
    (void)sched_setaffinity(0, sizeof(allowed), &allowed); /* for the next child */
    if (tcp)
        return run_tcp(b, tcp_stream, tcp_sink);
    shm_copy(b);
    return VB_OK;
}

static void print_moves(struct bench *b, struct vb_json *json)
{
    vb_sort(b->lat_us, (size_t)b->n_samples);
    vb_json_real(json, "lat_us_p50", b->lat_us[b->n_samples / 2]);
    vb_json_real(json, "lat_us_p99", b->lat_us[b->n_samples * 99 / 100]);
    vb_json_real(json, "gb_s", b->gb_s);
}

static void print_steps(const struct bench *b, struct vb_json *json)
{
    vb_json_real(json, "compute_us", b->step_us[NEVER]);
    vb_json_real(json, "after_us", b->step_us[AFTER]);
    vb_json_real(json, "hidden_us", b->step_us[HIDDEN]);
}

static vb_status print(struct bench *b, const char *transport)
{
    struct vb_json *json = vb_json_create();
    vb_status st;

    vb_json_object(json, NULL);
    vb_json_text(json, "bench", "bare");
    vb_json_text(json, "transport", transport);
    vb_json_int(json, "bytes", (int64_t)b->len);
    if (b->compute_us > 0)
        print_steps(b, json);
    else
        print_moves(b, json);
    vb_json_int(json, "wrong", b->wrong);
    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

/* WHAT BYTES, for tcp-step US, and what is left is where. */
static bool parse(struct bench *b, int argc, char **argv)
{
    bool steps = argc >= 4 && strcmp(argv[1], "tcp-step") == 0;
    int n = steps ? 4 : 3;
    int64_t len, us = 0;

    if ((argc != n && argc != n + 3) || !vb_parse_int(argv[2], &len) || len < 1)
        return false;
    if (steps && (!vb_parse_int(argv[3], &us) || us < 1 || us > STEP_US_MAX))
        return false;
    if (len > (steps ? STEP_BYTES_MAX : BYTES_MAX))
        return false;
    b->len = (size_t)len;
    b->compute_us = (double)us;
    b->how = strcmp(argv[1], "tcp-asleep") == 0 ? SLEEP : SPIN;
    b->via = argc > n ? argv + n : NULL;
    if (strcmp(argv[1], "shm") == 0)
        return b->via == NULL;
    return steps || b->how == SLEEP || strcmp(argv[1], "tcp") == 0;
}

int main(int argc, char **argv)
{
    static struct bench b; /* large */

    if (!parse(&b, argc, argv)) {
        fprintf(stderr, "usage: bare shm|tcp|tcp-asleep BYTES, bare tcp-step BYTES US\n"
                        "       bare tcp... NAMESPACE NAMESPACE ADDRESS\n");
        return 2;
    }
    if (run(&b, strcmp(argv[1], "shm") != 0) != VB_OK || print(&b, argv[1]) != VB_OK)
        return 1;
    return b.wrong == 0 ? 0 : 1;
}
