/* SPDX-License-Identifier: MIT
 *
 * Tests what doctor concludes from measurements between hosts.
 */
#include "doctor/doctor.h"
#include "tests/support/test.h"

static struct vb_pair pair(int a, int b, const char *transport, double gb_s)
{
    struct vb_pair p = {.a = a, .b = b, .put_us = 5, .get_us = 9, .put_gb_s = gb_s};
    int k;

    p.get_gb_s = gb_s;
    snprintf(p.host_a, sizeof(p.host_a), "h%d", a);
    snprintf(p.host_b, sizeof(p.host_b), "h%d", b);
    snprintf(p.transport, sizeof(p.transport), "%s", transport);
    for (k = 0; k < VB_PORT_TROUBLES; k++)
        p.moved[k] = strcmp(transport, "verbs") == 0 ? 0 : -1;
    return p;
}

static struct vb_check check_of(const struct vb_pair *pairs, int n, const char *name)
{
    struct vb_check checks[VB_CHECKS_MAX], none = {.name = ""};
    int i, m = vb_doctor_judge_pairs(pairs, n, checks);

    for (i = 0; i < m; i++)
        if (strcmp(checks[i].name, name) == 0)
            return checks[i];
    return none;
}

static void assert_check(struct vb_check check, enum vb_check_level level, const char *text)
{
    assert_int_equal(check.level, level);
    if (strstr(check.what, text) == NULL)
        fail_msg("the text of the check, \"%s\", does not contain \"%s\"", check.what, text);
}

static void all_is_well(void **state)
{
    struct vb_pair pairs[] = {pair(0, 1, "tcp", 1), pair(0, 2, "tcp", 1.2), pair(1, 2, "tcp", 0.7)};

    (void)state;
    assert_check(check_of(pairs, 3, "data"), VB_CHECK_OK, "all bytes arrived as sent");
    assert_check(check_of(pairs, 3, "balance"), VB_CHECK_OK, "no pair");
    assert_check(check_of(pairs, 3, "choice"), VB_CHECK_OK, "one transport");
    /* TCP has no loss counters in this test, so there is no such check. */
    assert_string_equal(check_of(pairs, 3, "loss").name, "");
    assert_string_equal(check_of(pairs, 3, "receivers").name, "");
}

static void broken_bytes_stop_a_job(void **state)
{
    struct vb_pair pairs[] = {pair(0, 1, "tcp", 1), pair(0, 1, "verbs", 2)};

    (void)state;
    pairs[1].wrong = 3;
    assert_check(check_of(pairs, 2, "data"), VB_CHECK_FAIL,
                 "3 bytes did not arrive as sent between h0 and h1 "
                 "over verbs");
}

static void counters_that_moved(void **state)
{
    struct vb_pair pairs[] = {pair(0, 1, "verbs", 1), pair(0, 2, "verbs", 1)};

    (void)state;
    assert_check(check_of(pairs, 2, "loss"), VB_CHECK_OK, "no RDMA port counted");
    assert_check(check_of(pairs, 2, "receivers"), VB_CHECK_OK, "all receivers were ready");
    pairs[1].moved[VB_PORT_OUT_OF_SEQ] = 1;
    assert_check(check_of(pairs, 2, "loss"), VB_CHECK_WARN, "between h0 and h2 over verbs: look");
    pairs[0].moved[VB_PORT_RNR] = 1;
    assert_check(check_of(pairs, 2, "receivers"), VB_CHECK_WARN,
                 "(RNR) between h0 and h1 over verbs");
}

static void a_slow_pair_stands_out(void **state)
{
    struct vb_pair pairs[] = {pair(0, 1, "tcp", 1), pair(0, 2, "tcp", 1.1), pair(1, 2, "tcp", 1)};

    (void)state;
    pairs[2].get_gb_s = 0.4; /* one slow direction is enough */
    assert_check(check_of(pairs, 3, "balance"), VB_CHECK_WARN, "h1 and h2 over tcp");
    assert_check(check_of(pairs + 1, 2, "balance"), VB_CHECK_OK,
                 "no pair"); /* with only two pairs there is no majority */
}

static void tcp_may_be_faster(void **state)
{
    struct vb_pair pairs[] = {pair(0, 1, "tcp", 1), pair(0, 1, "verbs", 2)};
    struct vb_check check;

    (void)state;
    assert_check(check_of(pairs, 2, "choice"), VB_CHECK_OK, "RDMA is faster");
    pairs[1].put_gb_s = 0.2;
    check = check_of(pairs, 2, "choice");
    assert_check(check, VB_CHECK_WARN, "for 1 of 1 pairs");
    assert_non_null(strstr(check.fix, "--transport tcp"));
}

/* The text for a hundred hosts must fit into its buffer. */
static void many_pairs(void **state)
{
    struct vb_pair pairs[400];
    struct vb_check check;
    int i;

    (void)state;
    for (i = 0; i < 400; i++) {
        pairs[i] = pair(i, i + 1, "tcp", 1);
        memset(pairs[i].host_a, 'x', sizeof(pairs[i].host_a) - 1);
        pairs[i].wrong = INT64_MAX / 400;
    }
    check = check_of(pairs, 400, "data");
    assert_check(check, VB_CHECK_FAIL, " and others");
    assert_true(strlen(check.what) < sizeof(check.what));
    assert_int_equal(vb_doctor_judge_pairs(pairs, 0, (struct vb_check[VB_CHECKS_MAX]){0}), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_well),         cmocka_unit_test(broken_bytes_stop_a_job),
        cmocka_unit_test(counters_that_moved), cmocka_unit_test(a_slow_pair_stands_out),
        cmocka_unit_test(tcp_may_be_faster),   cmocka_unit_test(many_pairs),
    };

    return T_RUN(tests);
}
