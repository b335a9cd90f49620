/* SPDX-License-Identifier: MIT
 *
 * bare shm|tcp|tcp-asleep BYTES: the shortest loop by which two processes, each on its own cpu,
 * move bytes without the engine. bench/compare compares our transports with it.
 *
 *   shm         latency: a payload, then a flag in its own cache line, in a shared mapping, polled
 *               GB/s: memcpy between two mapped buffers
 *   tcp         latency: ping-pong over one loopback socket, polled
 *               GB/s: one side sends, the other receives into one buffer; both may sleep
 *   tcp-asleep  the same, but the ping-pong sleeps in recv()
 *
 * tcp BYTES NAMESPACE NAMESPACE ADDRESS uses two network namespaces; the address belongs to the
 * second. Prints one JSON line; "wrong" counts payloads that arrived with wrong contents.
 */
#include "bench/loops/bare_side.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SAMPLES_MAX 8192
#define SAMPLES_MIN 16
#define MEASURE_NS UINT64_C(300000000) /* duration of each of the two measurements */
#define STOP UINT32_MAX /* value that ends the loop; other values are the number of a round */
#define BYTES_MAX ((int64_t)256 << 20)

struct bench {
    struct bare_side side; /* must be the first member */
    enum bare_how how;     /* tcp: how the ping-pong waits */
    struct vb_mem shared;  /* a page of flags, then payloads: to the child, back, and a source */
    char *payload[3];
    double lat_us[SAMPLES_MAX];
    int n_samples;
    double gb_s;
};

/* One flag for each direction. */
struct flags {
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t to_child;
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t to_parent;
};

#define FLAGS_BYTES 4096
_Static_assert(sizeof(struct flags) <= FLAGS_BYTES, "the flags need more than a page");

static bool enough(const struct bench *b, uint64_t begin)
{
    if (b->n_samples == SAMPLES_MAX)
        return true;
    return b->n_samples >= SAMPLES_MIN && vb_clock_ns() - begin > MEASURE_NS;
}

static void post(_Atomic uint32_t *flag, uint32_t round)
{
    atomic_store_explicit(flag, round, memory_order_release); /* pairs with await() */
}

/* Waits until the flag has the number of the round. Returns false if the other side has ended. */
static bool await(const struct bench *b, _Atomic uint32_t *flag, uint32_t round)
{
    uint32_t value;

    /* Pairs with the release in post(). */
    while ((value = atomic_load_explicit(flag, memory_order_acquire)) != round && value != STOP)
        bare_side_relax(&b->side);
    return value == round;
}

static void shm_pong(void *side)
{
    struct bench *b = side;
    struct flags *flags = b->shared.ptr;
    uint32_t round;

    for (round = 1; await(b, &flags->to_child, round); round++) {
        bare_stamp(b->payload[2], b->side.len,
                   (uint32_t)(unsigned char)b->payload[0][b->side.len - 1]);
        memcpy(b->payload[1], b->payload[2], b->side.len);
        post(&flags->to_parent, round);
    }
}

static void shm_ping(void *side)
{
    struct bench *b = side;
    struct flags *flags = b->shared.ptr;
    int i, batch = b->side.len <= 4096 ? 100 : 1;
    uint64_t was, begin = vb_clock_ns();
    char *src = malloc(b->side.len);
    uint32_t round = 0;

    memset(src, 0, b->side.len);
    while (!enough(b, begin)) {
        was = vb_clock_ns();
        for (i = 0; i < batch; i++) {
            bare_stamp(src, b->side.len, ++round);
            memcpy(b->payload[0], src, b->side.len);
            post(&flags->to_child, round);
            (void)await(b, &flags->to_parent, round);
            b->side.wrong += !bare_stamped(b->payload[1], b->side.len, round);
        }
        b->lat_us[b->n_samples++] = (double)(vb_clock_ns() - was) / 2e3 / batch;
    }
    post(&flags->to_child, STOP);
    free(src);
}

/* The bandwidth of memcpy: the median, because other jobs use the cpu from time to time. */
static void shm_copy(struct bench *b)
{
    int i, n = 0, batch = b->side.len < 65536 ? (int)(65536 / b->side.len) : 1;
    uint64_t was, begin = vb_clock_ns();
    static double ns[SAMPLES_MAX];

    memcpy(b->payload[1], b->payload[0], b->side.len);
    while (n < SAMPLES_MAX && (n < SAMPLES_MIN || vb_clock_ns() - begin < MEASURE_NS)) {
        bare_stamp(b->payload[0], b->side.len, (uint32_t)n);
        was = vb_clock_ns();
        for (i = 0; i < batch; i++) {
            memcpy(b->payload[1], b->payload[0], b->side.len);
            atomic_signal_fence(memory_order_seq_cst); /* otherwise the compiler copies only once */
        }
        ns[n++] = (double)(vb_clock_ns() - was) / batch;
        b->side.wrong += !bare_stamped(b->payload[1], b->side.len, (uint32_t)(n - 1));
    }
    vb_sort(ns, (size_t)n);
    b->gb_s = (double)b->side.len / ns[n / 2];
}

static vb_status map_payloads(struct bench *b)
{
    size_t page = 4096, each = (b->side.len + page - 1) / page * page;
    vb_status st = vb_mem_map_shared("verbena-bare", FLAGS_BYTES + 3 * each, &b->shared);
    int i;

    if (st == VB_OK)
        st = vb_mem_populate(&b->shared);
    for (i = 0; i < 3 && st == VB_OK; i++)
        b->payload[i] = (char *)b->shared.ptr + FLAGS_BYTES + (size_t)i * each;
    return st;
}

static void tcp_pong(void *side)
{
    struct bench *b = side;

    while (bare_move(&b->side, b->payload[0], false, b->how)) {
        memcpy(b->payload[1], b->payload[0], b->side.len <= 4096 ? b->side.len : 1);
        b->payload[1][b->side.len - 1] = b->payload[0][b->side.len - 1];
        if (!bare_move(&b->side, b->payload[1], true, b->how))
            return;
    }
}

static void tcp_ping(void *side)
{
    struct bench *b = side;
    uint64_t was, begin = vb_clock_ns();
    uint32_t round = 0;

    while (!enough(b, begin)) {
        was = vb_clock_ns();
        bare_stamp(b->payload[0], b->side.len, ++round);
        (void)bare_move(&b->side, b->payload[0], true, b->how);
        (void)bare_move(&b->side, b->payload[1], false, b->how);
        b->side.wrong += !bare_stamped(b->payload[1], b->side.len, round);
        b->lat_us[b->n_samples++] = (double)(vb_clock_ns() - was) / 2e3;
    }
    shutdown(b->side.fd, SHUT_WR);
}

/* Receives until the parent closes its side, then sends a byte: everything has arrived. */
static void tcp_sink(void *side)
{
    struct bench *b = side;

    while (bare_move(&b->side, b->payload[0], false, BARE_SLEEP))
        ;
    (void)!send(b->side.fd, "", 1, MSG_NOSIGNAL);
}

static void tcp_stream(void *side)
{
    struct bench *b = side;
    uint64_t begin = vb_clock_ns(), sent = 0;
    char end;

    while (vb_clock_ns() - begin < MEASURE_NS &&
           bare_move(&b->side, b->payload[1], true, BARE_SLEEP))
        sent += b->side.len;
    shutdown(b->side.fd, SHUT_WR);
    (void)!recv(b->side.fd, &end, 1, 0);
    b->gb_s = (double)sent / (double)(vb_clock_ns() - begin);
}

static vb_status run(struct bench *b, bool tcp)
{
    vb_status st = map_payloads(b);

    if (st == VB_OK)
        st = tcp ? bare_run_tcp(&b->side, tcp_ping, tcp_pong)
                 : bare_run(&b->side, shm_ping, shm_pong);
    if (st != VB_OK)
        return st;
    if (tcp)
        return bare_run_tcp(&b->side, tcp_stream, tcp_sink);
    shm_copy(b);
    return VB_OK;
}

static vb_status print(struct bench *b, const char *transport)
{
    struct vb_json *json = vb_json_create();
    vb_status st;

    vb_sort(b->lat_us, (size_t)b->n_samples);
    vb_json_object(json, NULL);
    vb_json_text(json, "bench", "bare");
    vb_json_text(json, "transport", transport);
    vb_json_int(json, "bytes", (int64_t)b->side.len);
    vb_json_real(json, "lat_us_p50", b->lat_us[b->n_samples / 2]);
    vb_json_real(json, "lat_us_p99", b->lat_us[b->n_samples * 99 / 100]);
    vb_json_real(json, "gb_s", b->gb_s);
    vb_json_int(json, "wrong", b->side.wrong);
    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

int main(int argc, char **argv)
{
    static struct bench b; /* too large for the stack */
    bool asleep = argc >= 3 && strcmp(argv[1], "tcp-asleep") == 0;
    bool tcp = asleep || (argc >= 3 && strcmp(argv[1], "tcp") == 0);
    int64_t len;

    if ((argc != 3 && !(tcp && argc == 6)) || (!tcp && strcmp(argv[1], "shm") != 0) ||
        !vb_parse_int(argv[2], &len) || len < 1 || len > BYTES_MAX) {
        fprintf(stderr, "usage: bare shm|tcp|tcp-asleep BYTES, "
                        "or bare tcp|tcp-asleep BYTES NAMESPACE NAMESPACE ADDRESS\n");
        return 2;
    }
    b.side.len = (size_t)len;
    b.how = asleep ? BARE_SLEEP : BARE_SPIN;
    b.side.via = argc == 6 ? argv + 3 : NULL;
    if (run(&b, tcp) != VB_OK || print(&b, argv[1]) != VB_OK)
        return 1;
    return b.side.wrong == 0 ? 0 : 1;
}
