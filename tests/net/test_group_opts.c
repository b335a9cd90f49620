/* SPDX-License-Identifier: MIT
 *
 * What the options of a group begin with, and what options that cannot work are told.
 *
 * Covers: net/group/group_opts.c
 */
#include "tests/support/ranks.h"

#include <fcntl.h>

static void the_defaults_open_a_group_of_one(void **state)
{
    struct vb_group_opts opts = VB_GROUP_OPTS_DEFAULT;
    struct vb_group *group;

    (void)state;
    assert_int_equal(vb_group_open(&opts, &group), VB_OK);
    assert_int_equal(vb_group_world(group), 1);
    assert_int_equal(vb_group_barrier(group), VB_OK);
    vb_group_close(group);
}

/* The options are refused with a message that has all of these words. */
static void refused(const struct vb_group_opts *opts, const char *what, const char *advice)
{
    struct vb_group *group;
    struct t_stderr t;
    char text[1024];
    vb_status st;

    t_stderr_catch(&t);
    st = vb_group_open(opts, &group);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(st, VB_ERR_USAGE);
    if (strstr(text, what) == NULL || strstr(text, advice) == NULL)
        fail_msg("not the expected message: %s", text);
}

static void zeros_are_told_what_to_begin_with(void **state)
{
    struct vb_group_opts zeros = {0}, no_timeout = {.world = 1, .root_fd = -1};
    struct vb_group_opts no_socket = VB_GROUP_OPTS_DEFAULT;

    (void)state;
    refused(&zeros, "0 ranks", "VB_GROUP_OPTS_DEFAULT");
    refused(&no_timeout, "timeout_ms is 0", "VB_GROUP_OPTS_DEFAULT");
    no_socket.root_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(no_socket.root_fd >= 0);
    refused(&no_socket, "not a listening socket", "set root_fd to -1");
    close(no_socket.root_fd);
}

static void two_ranks_need_an_address_and_a_secret(void **state)
{
    struct vb_group_opts opts = VB_GROUP_OPTS_DEFAULT;

    (void)state;
    opts.world = 2;
    refused(&opts, "address of rank 0", "HOST:PORT");
    opts.root = "127.0.0.1:0";
    refused(&opts, "common secret", "vb_secret_read()");
    opts.rank = 2;
    refused(&opts, "rank 2 of 2 ranks", "from 0 to 1");
    opts = VB_GROUP_OPTS_DEFAULT;
    opts.elastic = true;
    opts.slots = 2;
    refused(&opts, "address of rank 0", "HOST:PORT");
    opts.agrees = true;
    refused(&opts, "elastic group without slots for joiners", "agree");
    opts.elastic = false;
    opts.slots = 0;
    refused(&opts, "elastic group without slots for joiners", "agree");
    opts.agrees = false;
    opts.timeout_ms = -1;
    opts.root = "127.0.0.1:0";
    refused(&opts, "timeout of -1 ms", "out of range");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_open_a_group_of_one),
        cmocka_unit_test(zeros_are_told_what_to_begin_with),
        cmocka_unit_test(two_ranks_need_an_address_and_a_secret),
    };

    return T_RUN(tests);
}
