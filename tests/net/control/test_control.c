/* SPDX-License-Identifier: MIT
 *
 * Tests the control plane when the data connection of a peer has ended, and the last frame of the
 * peer has arrived but is not read yet. This happens if this process was stopped for a moment.
 *
 * Covers: net/control/conn.c
 */
#include "net/control/control_priv.h"

#include "tests/support/test.h"

#include <sys/socket.h>
#include <unistd.h>

#define PEER 1

/* Opens the control plane without its thread, so that nothing is read before the test reads it.
 * Returns the peer's end of the connection. */
static int begin(struct control *c, struct conn conns[2])
{
    static const unsigned char key[AUTH_KEY_BYTES];
    struct auth_session session;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *c = (struct control){.opts = {.world = 2, .slots = 2}, .conns = conns, .epoll_fd = -1};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    vb_conn_init(&conns[0]);
    vb_conn_init(&conns[PEER]);
    vb_auth_session(&session, key, AUTH_LISTENER);
    vb_conn_up(c, PEER, fds[0], &session);
    return fds[1];
}

static void end(struct control *c, int fd)
{
    vb_conn_fini(&c->conns[PEER]);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    close(fd);
}

static void says(int fd, enum wire_type type, const char *text)
{
    static const unsigned char key[AUTH_KEY_BYTES];
    unsigned char bytes[AUTH_FRAME_ROOM(64)];
    struct auth_session session;
    size_t len;

    vb_auth_session(&session, key, AUTH_CALLER);
    len = vb_auth_frame(&session.out, (uint16_t)type, text, strlen(text), bytes);
    assert_int_equal(write(fd, bytes, len), len);
}

static void an_unread_goodbye_counts(void **state)
{
    struct conn conns[2];
    struct control c;
    int fd = begin(&c, conns);

    (void)state;
    says(fd, WIRE_BYE, "");
    vb_control_lose(&c, PEER, "the data connection failed");
    assert_int_equal(vb_control_status(&c, NULL, 0), VB_OK);
    end(&c, fd);
}

static void an_unread_reason_counts(void **state)
{
    struct conn conns[2];
    struct control c;
    int fd = begin(&c, conns);
    char text[256];

    (void)state;
    says(fd, WIRE_ABORT, "the disk is full");
    vb_control_lose(&c, PEER, "the data connection failed");
    assert_int_equal(vb_control_status(&c, text, sizeof(text)), VB_ERR_PEER);
    assert_non_null(strstr(text, "gave up: the disk is full"));
    end(&c, fd);
}

static void a_peer_without_goodbye_is_lost(void **state)
{
    struct conn conns[2];
    struct control c;
    int fd = begin(&c, conns);
    char text[256];

    (void)state;
    vb_control_lose(&c, PEER, "the data connection failed");
    assert_int_equal(vb_control_status(&c, text, sizeof(text)), VB_ERR_PEER);
    assert_non_null(strstr(text, "is lost: the data connection failed"));
    end(&c, fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unread_goodbye_counts),
        cmocka_unit_test(an_unread_reason_counts),
        cmocka_unit_test(a_peer_without_goodbye_is_lost),
    };

    return T_RUN(tests);
}
