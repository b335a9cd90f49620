/* SPDX-License-Identifier: MIT
 *
 * Judges the measurements between hosts. There is no absolute limit: a pair is slow if it is far
 * slower than the other pairs over the same transport.
 */
#include "doctor/doctor_priv.h"

#include <stdlib.h>
#include <string.h>

#define SLOW 0.5    /* a pair is slow if its speed is below this share of the median */
#define PAIRS_MIN 3 /* minimum number of pairs for a meaningful median */
#define NAMED_MAX 4 /* maximum number of pairs that one sentence lists */

/* `first` is the text before the first pair; *named counts the pairs of the sentence. */
static void name_pair(struct vb_check *check, const char *first, const struct vb_pair *pair,
                      int *named)
{
    if (++*named <= NAMED_MAX)
        vb_check_say(check, "%s%s and %s over %s", *named > 1 ? ", " : first, pair->host_a,
                     pair->host_b, pair->transport);
    else if (*named == NAMED_MAX + 1)
        vb_check_say(check, " and others");
}

static void check_data(const struct vb_pair *pairs, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "data");
    int64_t wrong = 0;
    int i, named = 0;

    for (i = 0; i < n; i++)
        wrong += pairs[i].wrong;
    if (wrong == 0) {
        vb_check_say(
            check, "puts and gets in both directions between all pairs: all bytes arrived as sent");
        return;
    }
    check->level = VB_CHECK_FAIL;
    vb_check_say(check, "%lld bytes did not arrive as sent between ", (long long)wrong);
    for (i = 0; i < n; i++)
        if (pairs[i].wrong > 0)
            name_pair(check, "", &pairs[i], &named);
}

static int64_t lost(const struct vb_pair *pair)
{
    static const enum vb_port_trouble kinds[] = {VB_PORT_RETRIES,    VB_PORT_OUT_OF_SEQ,
                                                 VB_PORT_DUPLICATES, VB_PORT_LOST,
                                                 VB_PORT_GIVEN_UP,   VB_PORT_LINK};
    int64_t sum = 0;
    size_t k;

    for (k = 0; k < VB_COUNT(kinds); k++)
        sum += pair->moved[kinds[k]] > 0 ? pair->moved[kinds[k]] : 0;
    return sum;
}

static void check_loss(const struct vb_pair *pairs, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "loss");
    int i, named = 0;

    for (i = 0; i < n; i++)
        if (lost(&pairs[i]) != 0)
            name_pair(check, "packets were lost, delayed or sent again between ", &pairs[i],
                      &named);
    if (named == 0) {
        vb_check_say(check, "no RDMA port counted a retry or a packet out of sequence");
        return;
    }
    vb_check_warn(check,
                  ": look for drops with ip -s -s link on both hosts, and for flow control on "
                  "the switch between them");
}

static void check_receivers(const struct vb_pair *pairs, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "receivers");
    int i, named = 0;

    for (i = 0; i < n; i++)
        if (pairs[i].moved[VB_PORT_RNR] > 0)
            name_pair(check, "receivers were not ready (RNR) between ", &pairs[i], &named);
    if (named == 0)
        vb_check_say(check, "all receivers were ready");
    else
        check->level = VB_CHECK_WARN;
}

static double lower_gb_s(const struct vb_pair *pair)
{
    return pair->put_gb_s < pair->get_gb_s ? pair->put_gb_s : pair->get_gb_s;
}

/* Returns 0 if there are too few pairs, or if there is no memory. */
static double median_gb_s(const struct vb_pair *pairs, int n, const char *transport)
{
    double *speeds = calloc((size_t)n + 1, sizeof(*speeds)), median = 0;
    int i, m = 0;

    if (speeds == NULL)
        return 0;
    for (i = 0; i < n; i++)
        if (strcmp(pairs[i].transport, transport) == 0)
            speeds[m++] = lower_gb_s(&pairs[i]);
    vb_sort(speeds, (size_t)m);
    if (m >= PAIRS_MIN)
        median = speeds[m / 2];
    free(speeds);
    return median;
}

static void check_balance(const struct vb_pair *pairs, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "balance");
    int i, named = 0;

    for (i = 0; i < n; i++)
        if (!(lower_gb_s(&pairs[i]) >= SLOW * median_gb_s(pairs, n, pairs[i].transport)))
            name_pair(check, "less than half as fast as the others: ", &pairs[i], &named);
    if (named == 0) {
        vb_check_say(check, "no pair of hosts is far slower than the others");
        return;
    }
    vb_check_warn(check, ": look at speed and duplex of the link with ethtool, and for errors with "
                         "ip -s -s link");
}

static const struct vb_pair *same_hosts(const struct vb_pair *pairs, int n,
                                        const struct vb_pair *pair, const char *transport)
{
    int i;

    for (i = 0; i < n; i++)
        if (pairs[i].a == pair->a && pairs[i].b == pair->b &&
            strcmp(pairs[i].transport, transport) == 0)
            return &pairs[i];
    return NULL;
}

/* Warns if RDMA is slower than TCP, because then jobs should use TCP. Soft-RoCE is often slower. */
static void check_choice(const struct vb_pair *pairs, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "choice");
    int i, both = 0, slower = 0;

    for (i = 0; i < n; i++) {
        const struct vb_pair *tcp = same_hosts(pairs, n, &pairs[i], "tcp");

        if (strcmp(pairs[i].transport, "verbs") != 0 || tcp == NULL)
            continue;
        both++;
        slower += pairs[i].put_gb_s < tcp->put_gb_s;
    }
    if (slower == 0) {
        vb_check_say(check, both > 0 ? "RDMA is faster than TCP between all hosts"
                                     : "only one transport was measured");
        return;
    }
    vb_check_warn(check, "puts over RDMA are slower than over TCP for %d of %d pairs of hosts",
                  slower, both);
    if (slower == both)
        vb_check_fix(check, "verbena train ... --transport tcp");
}

int vb_doctor_judge_pairs(const struct vb_pair *pairs, int n,
                          struct vb_check checks_p[VB_CHECKS_MAX])
{
    struct vb_checks checks = {.list = checks_p};
    bool counted = false;
    int i;

    for (i = 0; i < n; i++)
        counted = counted || pairs[i].moved[VB_PORT_RETRIES] >= 0;
    check_data(pairs, n, &checks);
    if (counted) {
        check_loss(pairs, n, &checks);
        check_receivers(pairs, n, &checks);
    }
    check_balance(pairs, n, &checks);
    check_choice(pairs, n, &checks);
    return checks.n;
}
