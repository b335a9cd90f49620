/* SPDX-License-Identifier: MIT
 *
 * Two ranks connected by a transport, for the transport tests. The ranks are two devices of this
 * process, driven by one thread or by two.
 */
#ifndef VB_TESTS_SUPPORT_PAIR_H
#define VB_TESTS_SUPPORT_PAIR_H

#include "net/transport.h"
#include "tests/support/rdma.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

enum t_kind {
    T_SHM_THREADS,
    T_SHM_FDS,
    T_TCP_UNIX,
    T_TCP_LOOPBACK,
    T_VERBS,
    T_VERBS_MESSAGES,
    T_KINDS
};

static const char *const t_kind_names[] = {"shm, one mapping",
                                           "shm, descriptors passed",
                                           "tcp over a unix socket",
                                           "tcp over loopback",
                                           "verbs",
                                           "verbs without immediate data"};

#define T_WINDOW 7u   /* the number of the window */
#define T_NOTES 20000 /* number of received notes that are kept */
/* a long time, because soft-RoCE in an emulated machine is slow */
#define T_PATIENCE_NS UINT64_C(120000000000)
#define T_BUF_NONE 0

struct t_side {
    const struct vb_transport *ops;
    struct vb_device *dev;
    struct vb_ep *ep;
    struct vb_mem mem;
    struct vb_blob address;
    struct vb_blob key;
    struct vb_remote *rem;
    uint32_t notes[T_NOTES];
    int n_notes;
    int n_done;
    int n_failed; /* number of ops that ended with an error */
    int n_lost;
    vb_status lost;
};

struct t_pair {
    enum t_kind kind;
    struct t_side side[2];
};

/* ---- sockets --------------------------------------------------------------------------------- */

/* buf_bytes: the size of the send and receive buffers; T_BUF_NONE: the default of the system. */
static inline void t_loopback(int fds[2], int buf_bytes)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(addr);

    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0 && fds[0] >= 0);
    if (buf_bytes != T_BUF_NONE) { /* accepted sockets inherit the buffer size */
        assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buf_bytes, sizeof(int)), 0);
        assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &buf_bytes, sizeof(int)), 0);
        assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, &buf_bytes, sizeof(int)), 0);
        assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &buf_bytes, sizeof(int)), 0);
    }
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
}

static inline void t_sockets(enum t_kind kind, int buf_bytes, int fds[2])
{
    int i;

    fds[0] = fds[1] = -1;
    if (kind >= T_VERBS) /* verbs makes its own connections */
        return;
    if (kind == T_TCP_LOOPBACK) {
        t_loopback(fds, buf_bytes);
        return;
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (i = 0; i < 2 && buf_bytes != T_BUF_NONE; i++)
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buf_bytes, sizeof(int)), 0);
}

static inline const struct vb_transport *t_ops(enum t_kind kind)
{
    if (kind >= T_VERBS)
        return &vb_transport_verbs;
    return kind <= T_SHM_FDS ? &vb_transport_shm : &vb_transport_tcp;
}

/* Returns the first kind to test. Verbs is tested where a device exists. If VB_TEST_VERBS is set,
 * only verbs is tested, because the other kinds were tested elsewhere. */
static inline int t_kinds_begin(void)
{
    return getenv("VB_TEST_VERBS") != NULL ? T_VERBS : 0;
}

static inline int t_kinds_end(void)
{
    return vb_net_rdma_any_usable() ? T_KINDS : T_VERBS;
}

/* ---- opening and closing --------------------------------------------------------------------- */

struct t_connect {
    struct t_side *side;
    int rank; /* rank of the peer */
    int fd;
    bool same_process;
    const struct vb_blob *address;
    vb_status st;
};

static inline vb_status t_connect(struct t_side *side, int rank, int fd, bool same_process,
                                  const struct vb_blob *address, struct vb_ep **ep_p)
{
    static const unsigned char key[32] = "the key of every pair in a test";
    struct vb_link link = {.rank = rank,
                           .host = "here",
                           .fd = fd,
                           .same_process = same_process,
                           .address = address,
                           .key = key,
                           .epoch = 1,
                           .deadline = vb_clock_ns() + T_PATIENCE_NS};

    return side->ops->connect(side->dev, &link, ep_p);
}

static inline void *t_connect_run(void *arg)
{
    struct t_connect *c = arg;

    c->st = t_connect(c->side, c->rank, c->fd, c->same_process, c->address, &c->side->ep);
    return NULL;
}

static inline void t_side_open(struct t_side *side, enum t_kind kind, int rank, int world,
                               int queue_depth)
{
    struct vb_device_opts opts = {.rank = rank,
                                  .world = world,
                                  .queue_depth = queue_depth,
                                  .no_immediate = kind == T_VERBS_MESSAGES};
    struct vb_times times;

    vb_times_of(0, 0, &times);
    opts.sense_ms = times.sense_ms;
    opts.qp_timeout = times.qp_timeout;
    opts.qp_retries = times.qp_retries;
    memset(side, 0, sizeof(*side));
    side->ops = t_ops(kind);
    assert_int_equal(side->ops->open(&opts, &side->dev), VB_OK);
    assert_int_equal(side->ops->address(side->dev, &side->address), VB_OK);
}

static inline void t_window_open(struct t_side *side, size_t len)
{
    assert_int_equal(vb_mem_map_shared("verbena-test", len, &side->mem), VB_OK);
    assert_int_equal(vb_mem_populate(&side->mem), VB_OK);
    assert_int_equal(side->ops->export_window(side->dev, T_WINDOW, &side->mem,
                                              VB_WINDOW_PUT | VB_WINDOW_GET, &side->key),
                     VB_OK);
}

/* Connects both ends, each on a thread of its own, because a shm endpoint waits until its peer
 * connects. */
static inline void t_pair_connect(struct t_pair *pair, int buf_bytes)
{
    bool same = pair->kind == T_SHM_THREADS;
    struct t_connect c[2];
    pthread_t thread;
    int i, fds[2];

    t_sockets(pair->kind, buf_bytes, fds);
    for (i = 0; i < 2; i++)
        c[i] = (struct t_connect){&pair->side[i], 1 - i, fds[i], same, &pair->side[1 - i].address,
                                  VB_ERR_IO};
    assert_int_equal(pthread_create(&thread, NULL, t_connect_run, &c[1]), 0);
    t_connect_run(&c[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(c[0].st, VB_OK);
    assert_int_equal(c[1].st, VB_OK);
}

static inline void t_pair_open(struct t_pair *pair, enum t_kind kind, int queue_depth, size_t len,
                               int buf_bytes)
{
    struct t_side *s = pair->side;
    int i;

    pair->kind = kind;
    for (i = 0; i < 2; i++)
        t_side_open(&s[i], kind, i, 2, queue_depth);
    t_pair_connect(pair, buf_bytes);
    for (i = 0; i < 2; i++)
        t_window_open(&s[i], len);
    for (i = 0; i < 2; i++)
        assert_int_equal(
            s[i].ops->import_window(s[i].ep, T_WINDOW, &s[1 - i].key, len, 1000, &s[i].rem), VB_OK);
}

static inline void t_side_close(struct t_side *side)
{
    if (side->rem != NULL)
        side->ops->release_window(side->rem);
    if (side->mem.ptr != NULL)
        side->ops->unexport_window(side->dev, T_WINDOW);
    side->ops->disconnect(side->ep);
    side->ops->close(side->dev);
    vb_mem_unmap(&side->mem);
    memset(side, 0, sizeof(*side));
}

static inline void t_pair_close(struct t_pair *pair)
{
    t_side_close(&pair->side[0]);
    t_side_close(&pair->side[1]);
}

/* ---- traffic --------------------------------------------------------------------------------- */

static inline void t_take(struct t_side *side, const struct vb_raw_event *ev)
{
    switch (ev->type) {
    case VB_RAW_NOTE:
        if (side->n_notes < T_NOTES)
            side->notes[side->n_notes] = ev->note;
        side->n_notes++;
        break;
    case VB_RAW_OP_DONE:
        ev->op->done = true;
        ev->op->status = ev->status;
        side->n_done++;
        side->n_failed += ev->status != VB_OK;
        break;
    case VB_RAW_LOST:
        side->n_lost++;
        side->lost = ev->status;
        break;
    }
}

static inline int t_take_all(struct t_side *side, const struct vb_raw_event *ev, int n)
{
    int i;

    for (i = 0; i < n; i++)
        t_take(side, &ev[i]);
    return n;
}

/* Polls one side for at most max events. Returns the number of events. */
static inline int t_poll(struct t_side *side, int max)
{
    struct vb_raw_event ev[64];
    int n = -1;

    if (side->ops->poll(side->dev, ev, max, &n) != VB_OK || n < 0 || n > max)
        abort();
    return t_take_all(side, ev, n);
}

/* Like t_poll(), but sleeps for at most ms milliseconds if no event is ready. */
static inline int t_await(struct t_side *side, int max, int ms)
{
    struct vb_raw_event ev[64];
    int n = -1;

    if (side->ops->await(side->dev, ev, max, ms, &n) != VB_OK || n < 0 || n > max)
        abort();
    return t_take_all(side, ev, n);
}

/* Polls both sides until the condition holds. Fails after T_PATIENCE_NS instead of hanging. */
#define T_UNTIL(pair, cond)                                                                        \
    do {                                                                                           \
        uint64_t t_deadline = vb_clock_ns() + T_PATIENCE_NS;                                       \
        while (!(cond)) {                                                                          \
            t_poll(&(pair)->side[0], 64);                                                          \
            t_poll(&(pair)->side[1], 64);                                                          \
            assert_true(vb_clock_ns() < t_deadline);                                               \
        }                                                                                          \
    } while (0)

static inline vb_status t_put(struct t_side *side, size_t from, size_t to, size_t len,
                              uint32_t note, struct vb_op *op)
{
    struct vb_span src = {(char *)side->mem.ptr + from, len};
    struct vb_target dst = {side->rem, to};

    memset(op, 0, sizeof(*op));
    return side->ops->put(side->ep, &src, dst, note, op);
}

static inline vb_status t_get(struct t_side *side, size_t to, size_t from, size_t len,
                              struct vb_op *op)
{
    struct vb_span dst = {(char *)side->mem.ptr + to, len};
    struct vb_target src = {side->rem, from};

    memset(op, 0, sizeof(*op));
    return side->ops->get(side->ep, &dst, src, op);
}

static inline bool t_readable(int fd, int timeout_ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return poll(&pfd, 1, timeout_ms) == 1;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Returns byte i of a pattern. `which` chooses the pattern, so that each put can have its own. */
static inline unsigned char t_byte(uint32_t which, size_t i)
{
    return (unsigned char)(which * 31u + (uint32_t)i * 7u + (uint32_t)(i >> 8));
}

static inline void t_fill(void *ptr, size_t len, uint32_t which)
{
    unsigned char *p = ptr;
    size_t i;

    for (i = 0; i < len; i++)
        p[i] = t_byte(which, i);
}

static inline bool t_filled(const void *ptr, size_t len, uint32_t which)
{
    const unsigned char *p = ptr;
    size_t i;

    for (i = 0; i < len; i++)
        if (p[i] != t_byte(which, i))
            return false;
    return true;
}

#endif
