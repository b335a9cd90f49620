/* SPDX-License-Identifier: MIT
 *
 * Tests how a rank asks the supervisor for more ranks, and how the answer gets to it.
 */
#include "launch/launch_priv.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOON_MS 20000

static const struct vb_added three = {
    .done = true, .n = 3, .ranks = {3, 4, 1023}, .text = "ranks 3, 4 and 1023 have joined: REA 1"};

/* A rank on this host, with pipes to and from a supervisor. */
struct world {
    struct vb_launch launch;
    int news, answers; /* ends of the supervisor */
};

static void open_world(struct world *w)
{
    int up[2], down[2];

    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    w->launch = (struct vb_launch){
        .supervised = true, .rank = 2, .begun_fd = up[1], .reaped_fd = down[0], .root_fd = -1};
    w->launch.answers = vb_answers_create();
    w->launch.reaped = vb_reaped_create(w->launch.answers);
    assert_non_null(w->launch.reaped);
    w->news = up[0];
    w->answers = down[1];
}

/* The thread that reads ends with the process. */
static void close_world(struct world *w)
{
    close(w->news);
    close(w->launch.begun_fd);
}

static void answer(struct world *w, const struct vb_added *added, int number, size_t piece)
{
    char line[VB_ADDED_LINE];
    size_t len = (size_t)vb_added_line(added, number, line), at, n;

    for (at = 0; at < len; at += n) {
        n = len - at < piece ? len - at : piece;
        assert_int_equal(write(w->answers, line + at, n), (ssize_t)n);
    }
}

static void heard(const struct world *w, const char *wanted)
{
    char text[512];
    ssize_t n = read(w->news, text, sizeof(text) - 1);

    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, wanted);
}

static void an_answer_comes_whole(void **state)
{
    static const size_t pieces[] = {1, 7, VB_ADDED_LINE};
    struct vb_added got;
    struct world w;
    size_t i;

    (void)state;
    open_world(&w);
    for (i = 0; i < VB_COUNT(pieces); i++) {
        char wanted[64];

        assert_true(vb_launch_ask_to_add(&w.launch, "node2", 3));
        snprintf(wanted, sizeof(wanted), "2 add %d 3 node2\n", (int)i + 1);
        heard(&w, wanted);
        assert_false(vb_launch_wait_added(&w.launch, 0, &got));
        assert_int_equal(write(w.answers, ".R7\nAzz\nA00\n", 12), 12); /* no answers */
        answer(&w, &three, (int)i + 1, pieces[i]);
        assert_true(vb_launch_wait_added(&w.launch, SOON_MS, &got));
        assert_true(got.done);
        assert_int_equal(got.n, 3);
        assert_memory_equal(got.ranks, three.ranks, sizeof(got.ranks));
        assert_string_equal(got.text, three.text);
    }
    close_world(&w);
}

/* Who waits for an answer does not get that to the request before, which came too late. */
static void a_late_answer_is_dropped(void **state)
{
    struct vb_added other = {.text = "no"}, got;
    struct world w;

    (void)state;
    open_world(&w);
    assert_true(vb_launch_ask_to_add(&w.launch, "-", 1));
    heard(&w, "2 add 1 1 -\n");
    assert_true(vb_launch_ask_to_add(&w.launch, "-", 2));
    heard(&w, "2 add 2 2 -\n");
    answer(&w, &three, 1, VB_ADDED_LINE);
    answer(&w, &other, 2, VB_ADDED_LINE);
    answer(&w, &three, 2, VB_ADDED_LINE); /* a second answer changes nothing */
    assert_true(vb_launch_wait_added(&w.launch, SOON_MS, &got));
    assert_false(got.done);
    assert_string_equal(got.text, "no");
    close_world(&w);
}

static void the_longest_answer_fits_into_a_pipe(void **state)
{
    struct vb_added most = {.n = VB_ADD_MAX};
    char line[VB_ADDED_LINE];
    int i, n;

    (void)state;
    for (i = 0; i < VB_ADD_MAX; i++)
        most.ranks[i] = 1023;
    memset(most.text, 'x', sizeof(most.text) - 1);
    n = vb_added_line(&most, INT_MAX, line);
    assert_in_range(n, VB_ADDED_TEXT, sizeof(line));
    assert_true(sizeof(line) <= PIPE_BUF);
    assert_int_equal(line[n - 1], '\n');
}

static void nobody_to_ask(void **state)
{
    struct vb_launch launch = {.supervised = true, .begun_fd = -1}; /* by mpirun, say */

    (void)state;
    assert_false(vb_launch_ask_to_add(&launch, "-", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_whole),
        cmocka_unit_test(a_late_answer_is_dropped),
        cmocka_unit_test(the_longest_answer_fits_into_a_pipe),
        cmocka_unit_test(nobody_to_ask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
