/* SPDX-License-Identifier: MIT
 *
 * Tests jobs whose second rank reaches the first through a host on the path, which passes the
 * handshake on and then disturbs the control connection.
 *
 * Covers: net/control/conn.c
 */
#include "net/wire/wire.h"
#include "tests/support/ranks.h"

#include <poll.h>
#include <stdatomic.h>

#define LINKS 8

enum disturb { PASS, INJECT, DAMAGE, REPEAT, CUT };

/* Passes on bytes between the callers of listen_fd and the root. The first connection is the
 * control connection of rank 1, and is disturbed once `go` is set. */
struct relay {
    enum disturb how;
    int listen_fd;
    struct sockaddr_in root;
    int ends[LINKS][2]; /* caller, root */
    int n;
    bool disturbed;
    _Atomic bool go, stop;
};

static void relay_accept(struct relay *r)
{
    int fd = accept(r->listen_fd, NULL, NULL), to = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || to < 0 || r->n == LINKS ||
        connect(to, (struct sockaddr *)&r->root, sizeof(r->root)) != 0)
        abort();
    r->ends[r->n][0] = fd;
    r->ends[r->n++][1] = to;
}

static void give(int fd, const unsigned char *bytes, size_t len)
{
    if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        return; /* the other side has closed */
}

/* Passes on a frame of rank 1, and does something to it. */
static void relay_disturb(struct relay *r, int to, unsigned char *bytes, size_t len)
{
    static const unsigned char why[] = "the words of a stranger";
    unsigned char head[WIRE_FRAME_HEAD];

    r->disturbed = true;
    if (r->how == INJECT) {
        vb_wire_frame_encode(sizeof(why), WIRE_ABORT, head);
        give(to, head, sizeof(head));
        give(to, why, sizeof(why));
    }
    if (r->how == DAMAGE)
        bytes[WIRE_FRAME_HEAD] ^= 4;
    if (r->how == REPEAT)
        give(to, bytes, len);
    give(to, bytes, r->how == CUT ? len - 3 : len);
    if (r->how == CUT)
        shutdown(to, SHUT_RDWR);
}

static void relay_pass(struct relay *r, int link, int from)
{
    unsigned char bytes[65536];
    ssize_t n = recv(r->ends[link][from], bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n == 0)
        shutdown(r->ends[link][1 - from], SHUT_WR);
    if (n <= 0) {
        r->ends[link][from] = n == 0 ? -1 - r->ends[link][from] : r->ends[link][from];
        return;
    }
    if (link == 0 && from == 0 && r->how != PASS && r->go && !r->disturbed)
        relay_disturb(r, r->ends[link][1], bytes, (size_t)n);
    else
        give(r->ends[link][1 - from], bytes, (size_t)n);
}

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    struct pollfd fds[1 + 2 * LINKS];
    int i;

    while (!r->stop) {
        fds[0] = (struct pollfd){.fd = r->listen_fd, .events = POLLIN};
        for (i = 0; i < 2 * r->n; i++) /* a negative fd has ended, and poll() leaves it out */
            fds[1 + i] = (struct pollfd){.fd = r->ends[i / 2][i % 2], .events = POLLIN};
        if (poll(fds, 1 + 2 * (nfds_t)r->n, 20) <= 0)
            continue;
        for (i = 0; i < 2 * r->n; i++)
            if (fds[1 + i].revents != 0 && r->ends[i / 2][i % 2] >= 0)
                relay_pass(r, i / 2, i % 2);
        if (fds[0].revents != 0)
            relay_accept(r);
    }
    for (i = 0; i < 2 * r->n; i++)
        close(r->ends[i / 2][i % 2] < 0 ? -1 - r->ends[i / 2][i % 2] : r->ends[i / 2][i % 2]);
    return NULL;
}

/* Works until the job ends because the relay has disturbed it, or for 50 rounds. Windows are
 * exchanged over the control connection. */
static int work(struct vb_group *g, void *arg)
{
    uint64_t deadline = vb_clock_ns() + 30000000000u;
    struct relay *r = arg;
    struct vb_window *win;
    vb_status st = VB_OK;
    int k;

    for (k = 0; st == VB_OK && vb_clock_ns() < deadline && (r->how != PASS || k < 50); k++) {
        st = vb_window_create(g, 64, &win);
        if (st == VB_OK)
            vb_window_destroy(win);
        if (k == 3)
            r->go = true;
    }
    return st == (r->how == PASS ? VB_OK : VB_ERR_PEER) ? 0 : 1;
}

static void job_through(enum disturb how, char *text, size_t size)
{
    struct relay relay = {.how = how, .root = {.sin_family = AF_INET}};
    struct t_job job = {.fn = work, .arg = &relay, .world = 2, .transport = VB_TRANSPORT_TCP};
    struct t_rank ranks[T_RANKS_MAX];
    pthread_t ids[2], thread;
    struct t_stderr t;
    int i;

    t_prepare(ranks, &job);
    relay.root.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    relay.root.sin_port = htons((uint16_t)atoi(strchr(ranks[0].root, ':') + 1));
    relay.listen_fd = t_listen(ranks[1].root);
    t_stderr_catch(&t);
    assert_int_equal(pthread_create(&thread, NULL, relay_main, &relay), 0);
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, t_rank_main, &ranks[i]), 0);
    for (i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    relay.stop = true;
    pthread_join(thread, NULL);
    close(relay.listen_fd);
    t_stderr_release(&t, text, size);
    if (ranks[0].wrong != 0 || ranks[1].wrong != 0)
        fail_msg("wrong: %d at rank 0, %d at rank 1: %s", ranks[0].wrong, ranks[1].wrong, text);
}

static void an_undisturbed_path_is_fine(void **state)
{
    char text[4096];

    (void)state;
    job_through(PASS, text, sizeof(text));
    assert_string_equal(text, "");
}

/* The job ends, and rank 0 says which rank on which host, and what was wrong. */
static void ends_with(enum disturb how, const char *fault)
{
    char text[4096], host[64] = "", who[128];

    job_through(how, text, sizeof(text));
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    snprintf(who, sizeof(who), "rank 1 (%s) is lost: ", host);
    if (strstr(text, who) == NULL || strstr(text, fault) == NULL ||
        strstr(text, "stranger") != NULL)
        fail_msg("expected \"%s...%s\", found: %s", who, fault, text);
}

static void injected_frames_end_the_job(void **state)
{
    (void)state;
    ends_with(INJECT, "a control frame is not authentic: it was injected, or damaged on the way");
}

static void damaged_frames_end_the_job(void **state)
{
    (void)state;
    ends_with(DAMAGE, "a control frame is not authentic: it was injected, or damaged on the way");
}

static void repeated_frames_end_the_job(void **state)
{
    (void)state;
    ends_with(REPEAT, "a control frame is not authentic: it was sent before and came again");
}

static void cut_frames_end_the_job(void **state)
{
    (void)state;
    ends_with(CUT, "the connection closed in the middle of a control frame");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_undisturbed_path_is_fine),
        cmocka_unit_test(injected_frames_end_the_job),
        cmocka_unit_test(damaged_frames_end_the_job),
        cmocka_unit_test(repeated_frames_end_the_job),
        cmocka_unit_test(cut_frames_end_the_job),
    };

    return T_RUN(tests);
}
