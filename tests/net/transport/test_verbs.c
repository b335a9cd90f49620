/* SPDX-License-Identifier: MIT
 *
 * Tests strangers that connect to a rank over RDMA, and peers that violate the protocol. Needs an
 * RDMA device, for example in the lab.
 *
 * Covers: net/verbs/verbs_addr.c net/verbs/verbs_cm.c net/verbs/verbs_ep.c net/verbs/verbs_mem.c
 * Covers: net/verbs/verbs_port.c net/verbs/verbs_post.c net/verbs/verbs_requests.c
 * Covers: net/verbs/verbs_wc.c
 */
#include "net/verbs/verbs_priv.h"
#include "tests/support/pair.h"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static struct t_pair pair; /* static, because it is large */

/* ---- strangers ------------------------------------------------------------------------------- */

/* Sends a connection request with any bytes, by librdmacm alone. */
struct stranger {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
};

static enum rdma_cm_event_type next_event(struct stranger *s)
{
    struct rdma_cm_event *event;
    enum rdma_cm_event_type type;

    assert_int_equal(rdma_get_cm_event(s->events, &event), 0);
    type = event->event;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    return type;
}

static void stranger_calls(struct stranger *s, const struct vb_blob *address, const void *bytes,
                           uint8_t len)
{
    struct rdma_conn_param param = {.private_data = bytes, .private_data_len = len};
    struct ibv_qp_init_attr init = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct verbs_address at;

    assert_true(vb_verbs_address_unpack(address, &at));
    to.sin_port = htons((uint16_t)at.port);
    assert_int_equal(inet_pton(AF_INET, at.addrs[0], &to.sin_addr), 1);
    s->events = rdma_create_event_channel();
    assert_non_null(s->events);
    assert_int_equal(rdma_create_id(s->events, &s->id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&to, 2000), 0);
    assert_int_equal(next_event(s), RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(s->id, 2000), 0);
    assert_int_equal(next_event(s), RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(rdma_create_qp(s->id, NULL, &init), 0);
    assert_int_equal(rdma_connect(s->id, &param), 0);
}

static void stranger_closes(struct stranger *s)
{
    rdma_destroy_qp(s->id);
    rdma_destroy_id(s->id);
    rdma_destroy_event_channel(s->events);
}

/* Returns s if the listener rejects the connection. */
static void *refused(void *arg)
{
    struct stranger *s = arg;

    return next_event(s) == RDMA_CM_EVENT_REJECTED ? s : NULL;
}

/* Lets the listener handle events, as every poll does, until it has refused the stranger. */
static void expect_refusal(struct stranger *s, struct t_side *listener)
{
    pthread_t thread;
    void *result = NULL;
    int i;

    assert_int_equal(pthread_create(&thread, NULL, refused, s), 0);
    for (i = 0; i < 2000 && pthread_tryjoin_np(thread, &result) != 0; i++) {
        vb_verbs_cm_events((struct verbs_dev *)listener->dev);
        (void)poll(NULL, 0, 10);
    }
    assert_ptr_equal(result, s);
}

/* Strangers connect to rank 0, which must refuse them. Rank 1 is connected to rank 0 and must keep
 * working. */
static void strangers_are_refused(void **state)
{
    static const unsigned char key[32] = "the key of every pair in a test";
    static const unsigned char wrong_key[32] = "not the key of any pair in this";
    struct verbs_call as_one = {.rank = 1, .epoch = 1}, as_many = {.rank = 9, .epoch = 1};
    unsigned char calls[5][VERBS_CALL_BYTES];
    struct stranger s;
    struct t_stderr t;
    struct vb_op op;
    char text[4096];
    size_t i;

    (void)state;
    t_pair_open(&pair, T_VERBS, 4, 8192, T_BUF_NONE);
    memset(calls[0], 0x5a, VERBS_CALL_BYTES);         /* garbage */
    vb_verbs_call_request(&as_one, 0, key, calls[1]); /* a replay: this rank is already connected */
    vb_verbs_call_request(&as_one, 0, key, calls[2]);
    calls[2][4]++;                                          /* the request has another version */
    vb_verbs_call_request(&as_many, 0, key, calls[3]);      /* a rank that does not exist */
    vb_verbs_call_request(&as_one, 0, wrong_key, calls[4]); /* the caller has another secret */
    t_stderr_catch(&t);
    for (i = 0; i < VB_COUNT(calls); i++) {
        stranger_calls(&s, &pair.side[0].address, calls[i], VERBS_CALL_BYTES);
        expect_refusal(&s, &pair.side[0]);
        stranger_closes(&s);
    }
    stranger_calls(&s, &pair.side[0].address, calls[0], 10); /* the request is too short */
    expect_refusal(&s, &pair.side[0]);
    stranger_closes(&s);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "the caller is not a Verbena program"));
    assert_non_null(strstr(text, "the rank of the caller is already connected"));
    assert_non_null(strstr(text, "the caller uses a different version of the protocol"));
    assert_non_null(strstr(text, "a rank that may not connect"));
    t_fill(pair.side[1].mem.ptr, 100, 4);
    assert_int_equal(t_put(&pair.side[1], 0, 4096, 100, 3, &op), VB_OK);
    T_UNTIL(&pair, pair.side[0].n_notes == 1 && op.done);
    assert_true(t_filled((char *)pair.side[0].mem.ptr + 4096, 100, 4));
    assert_int_equal(pair.side[0].n_lost + pair.side[1].n_lost, 0);
    t_pair_close(&pair);
}

/* While rank 0 waits for rank 1, a caller without the secret claims to be rank 1. After that the
 * real rank 1 connects. */
static void a_wrong_secret_does_not_block_the_right_rank(void **state)
{
    static const unsigned char wrong_key[32] = "not the key of any pair in this";
    struct verbs_call as_one = {.rank = 1, .epoch = 1};
    unsigned char bytes[VERBS_CALL_BYTES];
    struct stranger s;
    struct t_stderr t;
    char text[4096];
    int i;

    (void)state;
    pair.kind = T_VERBS;
    for (i = 0; i < 2; i++)
        t_side_open(&pair.side[i], T_VERBS, i, 2, 4);
    vb_verbs_call_request(&as_one, 0, wrong_key, bytes);
    t_stderr_catch(&t);
    stranger_calls(&s, &pair.side[0].address, bytes, VERBS_CALL_BYTES);
    t_pair_connect(&pair, T_BUF_NONE);
    assert_int_equal(next_event(&s), RDMA_CM_EVENT_REJECTED);
    stranger_closes(&s);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "the caller does not know the job's secret"));
    t_pair_close(&pair);
}

/* All ranks of a large job call rank 0 before it answers the first of them. None may be refused. */
static void all_ranks_can_call_at_once(void **state)
{
    static const unsigned char key[32] = "the key of every pair in a test";
    static struct stranger ranks[23];
    uint64_t deadline = vb_clock_ns() + T_PATIENCE_NS;
    struct verbs_dev *dev;
    struct t_side side;
    size_t i;

    (void)state;
    t_side_open(&side, T_VERBS, 0, VB_COUNT(ranks) + 1, 4);
    dev = (struct verbs_dev *)side.dev;
    for (i = 0; i < VB_COUNT(ranks); i++) {
        struct verbs_call from = {.rank = (int)i + 1, .epoch = 1};
        unsigned char bytes[VERBS_CALL_BYTES];

        vb_verbs_call_request(&from, 0, key, bytes);
        stranger_calls(&ranks[i], &side.address, bytes, VERBS_CALL_BYTES);
    }
    while (dev->requests.n_seen < VB_COUNT(ranks) && vb_clock_ns() < deadline) {
        vb_verbs_cm_events(dev);
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(dev->requests.n_seen, VB_COUNT(ranks));
    assert_int_equal(dev->requests.n_refused, 0);
    for (i = 0; i < VB_COUNT(ranks); i++)
        stranger_closes(&ranks[i]);
    t_side_close(&side);
}

static bool gone_when_asked_again(void *arg, int rank)
{
    assert_int_equal(rank, 1);
    return ++*(int *)arg > 3;
}

/* The peer is lost while this rank waits for its call. */
static void nobody_waits_for_a_peer_that_is_gone(void **state)
{
    static const unsigned char key[32] = "the key of every pair in a test";
    uint64_t begin = vb_clock_ns();
    int asked = 0;
    struct vb_link link = {.rank = 1,
                           .host = "here",
                           .fd = -1,
                           .key = key,
                           .epoch = 1,
                           .deadline = begin + T_PATIENCE_NS,
                           .gone = gone_when_asked_again,
                           .gone_arg = &asked};
    struct t_side side;
    struct t_stderr t;
    char text[1024];

    (void)state;
    t_side_open(&side, T_VERBS, 0, 2, 4);
    t_stderr_catch(&t);
    assert_int_equal(side.ops->connect(side.dev, &link, &side.ep), VB_ERR_PEER);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "rank 1 (here) was lost before it connected over RDMA"));
    assert_true(vb_clock_ns() - begin < T_PATIENCE_NS / 2);
    t_side_close(&side);
}

/* ---- locked memory --------------------------------------------------------------------------- */

#define CAP_IPC_LOCK_BIT 14

/* Gives up the right to lock more memory than the limit allows. The kernel refuses requests of a
 * process that changes its rights after it has opened a device, so this comes first. */
static void obey_memlock(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) != 0)
        return;
    data[0].effective &= ~(1u << CAP_IPC_LOCK_BIT);
    if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        (void)syscall(SYS_capset, &head, data);
}

/* A port is opened for the first connection through its device, when windows exist. They exceed the
 * limit, so the connection fails. The next one, with a higher limit, must find no half-open port:
 * its puts would use memory that is not registered. */
static void a_port_without_its_windows_is_closed(void **state)
{
    const size_t len = 1 << 20;
    struct rlimit limit, low = {len / 2, len / 2};
    struct t_side *s = pair.side;
    struct t_stderr t;
    struct vb_op op;
    char text[1024];
    int i;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_max != RLIM_INFINITY) /* it could not be raised again */
        skip();
    pair.kind = T_VERBS;
    for (i = 0; i < 2; i++) {
        t_side_open(&s[i], T_VERBS, i, 2, 4);
        t_window_open(&s[i], len);
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    t_stderr_catch(&t);
    assert_int_equal(t_connect(&s[1], 0, -1, false, &s[0].address, &s[1].ep), VB_ERR_ACCESS);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    t_pair_connect(&pair, T_BUF_NONE);
    assert_int_equal(s[0].ops->offer_window(s[0].ep, T_WINDOW, &s[0].mem, &s[0].key), VB_OK);
    assert_int_equal(s[1].ops->import_window(s[1].ep, T_WINDOW, &s[0].key, len, 0, &s[1].rem),
                     VB_OK);
    t_fill(s[1].mem.ptr, 1000, 5);
    assert_int_equal(t_put(&s[1], 0, 4096, 1000, 1, &op), VB_OK);
    T_UNTIL(&pair, s[0].n_notes == 1 && op.done);
    assert_true(t_filled((char *)s[0].mem.ptr + 4096, 1000, 5));
    if (strstr(text, "RDMA needs 1024 KiB of locked memory, the limit is 512 KiB (ulimit -l)") ==
        NULL)
        fail_msg("the message does not name the limit: %s", text);
    t_pair_close(&pair);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void expect_lost(const char *why)
{
    struct verbs_ep *ep = (struct verbs_ep *)pair.side[0].ep;

    T_UNTIL(&pair, pair.side[0].n_lost == 1);
    if (strstr(ep->why, why) == NULL)
        fail_msg("the reason '%s' does not contain '%s'", ep->why, why);
}

/* Puts to a window that was destroyed. The device must refuse the put, and the memory must not
 * change. */
static void a_destroyed_window_is_not_written(void **state)
{
    struct t_side *s = pair.side;
    struct vb_op op;

    (void)state;
    t_pair_open(&pair, T_VERBS, 4, 8192, T_BUF_NONE);
    memset(s[1].mem.ptr, 0x33, 8192);
    s[1].ops->unexport_window(s[1].dev, T_WINDOW);
    assert_int_equal(t_put(&s[0], 0, 0, 1000, 1, &op), VB_OK);
    expect_lost("the window is gone, too short, or does not allow the access");
    assert_true(op.done && op.status != VB_OK);
    assert_int_equal(((unsigned char *)s[1].mem.ptr)[999], 0x33);
    t_pair_close(&pair);
}

static void access_rights_are_not_wider_than_requested(void **state)
{
    struct t_side *s = pair.side;
    struct vb_remote *rem;
    struct vb_blob key;
    struct vb_op op;
    bool iwarp;

    (void)state;
    t_pair_open(&pair, T_VERBS, 4, 8192, T_BUF_NONE);
    iwarp = verbs_is_iwarp(((struct verbs_dev *)s[0].dev)->ports[0].ctx);
    memset(s[1].mem.ptr, 0x33, 8192);
    assert_int_equal(
        s[0].ops->export_window(s[0].dev, 8, &s[0].mem, VB_WINDOW_GET | VB_WINDOW_LAND, &key),
        VB_OK);
    assert_int_equal(s[1].ops->export_window(s[1].dev, 8, &s[1].mem, VB_WINDOW_GET, &key), VB_OK);
    assert_int_equal(s[0].ops->import_window(s[0].ep, 8, &key, 8192, 0, &rem), VB_OK);
    s[0].ops->release_window(s[0].rem);
    s[0].rem = rem;
    assert_int_equal(t_get(&s[0], 0, 0, 1000, &op), VB_OK);
    T_UNTIL(&pair, op.done);
    assert_int_equal(op.status, VB_OK);
    memset(s[0].mem.ptr, 0x44, 8192);
    assert_int_equal(t_put(&s[0], 0, 0, 1000, 1, &op), VB_OK);
    expect_lost(iwarp ? "closed the connection" : "does not allow the access");
    assert_int_equal(((unsigned char *)s[1].mem.ptr)[999], 0x33);
    s[0].ops->unexport_window(s[0].dev, 8);
    s[1].ops->unexport_window(s[1].dev, 8);
    t_pair_close(&pair);
}

/* A message that returns more credits than were used, or that has an unknown type, must end the
 * connection. */
static void broken_messages_are_refused(void **state)
{
    unsigned char bytes[VERBS_MESSAGE_BYTES];
    size_t len;
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        t_pair_open(&pair, T_VERBS, 4, 8192, T_BUF_NONE);
        len = vb_verbs_value_pack(i == 0 ? VERBS_CREDIT : (enum verbs_message_type)17, 1000, bytes);
        assert_int_equal(vb_verbs_send_message((struct verbs_ep *)pair.side[1].ep, bytes, len),
                         VB_OK);
        expect_lost(i == 0 ? "credits" : "unknown message");
        t_pair_close(&pair);
    }
}

static void registered_memory_is_counted(void **state)
{
    uint64_t bytes, ns;

    (void)state;
    t_pair_open(&pair, T_VERBS, 4, 1 << 20, T_BUF_NONE);
    pair.side[0].ops->registered(pair.side[0].dev, &bytes, &ns);
    assert_true(bytes >= 1 << 20 && bytes < 2 << 20);
    assert_true(ns > 0);
    pair.side[0].ops->unexport_window(pair.side[0].dev, T_WINDOW);
    pair.side[0].ops->registered(pair.side[0].dev, &bytes, &ns);
    assert_true(bytes < 1 << 20);
    assert_true(strstr(pair.side[0].ops->link_text(pair.side[0].ep), "MTU") != NULL);
    t_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(a_wrong_secret_does_not_block_the_right_rank),
        cmocka_unit_test(all_ranks_can_call_at_once),
        cmocka_unit_test(nobody_waits_for_a_peer_that_is_gone),
        cmocka_unit_test(a_port_without_its_windows_is_closed),
        cmocka_unit_test(a_destroyed_window_is_not_written),
        cmocka_unit_test(access_rights_are_not_wider_than_requested),
        cmocka_unit_test(broken_messages_are_refused),
        cmocka_unit_test(registered_memory_is_counted),
    };

    if (!vb_net_rdma_any_usable()) {
        printf("skipped: this machine has no RDMA device\n");
        return T_SKIPPED;
    }
    if (vb_auth_init() != VB_OK)
        return 1;
    obey_memlock();
    return T_RUN(tests);
}
