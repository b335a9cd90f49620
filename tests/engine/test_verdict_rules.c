/* SPDX-License-Identifier: MIT
 *
 * Tests the rules of the verdict with made-up facts: each case is a run whose bottleneck is known.
 *
 * Covers: engine/verdict/verdict.c engine/verdict/verdict_parts.c
 * Covers: engine/verdict/verdict_evidence.c engine/verdict/verdict_advice.c
 */
#include "engine/verdict/verdict.h"
#include "tests/support/test.h"

#include <math.h>

#define MAX 4

static struct vb_verdict_rank workers[MAX], servers[MAX];
static struct vb_bottleneck v;

/* Returns the facts of a clean run: 1000 steps in 10 s, 90 % of them computing, 5 % transfer. */
static struct vb_verdict_facts clean(int n)
{
    int i;

    for (i = 0; i < MAX; i++) {
        workers[i] = (struct vb_verdict_rank){.rank = i,
                                              .host = "host",
                                              .machine = 1,
                                              .data_s = 0.1,
                                              .compute_s = 9.1,
                                              .comm_s = 0.5,
                                              .wait_s = 0.3,
                                              .queue_s = 0.05,
                                              .thread_s = 9.8,
                                              .cpu_s = 9.9,
                                              .late_s = 0.3,
                                              .late_n = 10,
                                              .sent_bytes = 1e8,
                                              .received_bytes = 1e8};
        servers[i] = (struct vb_verdict_rank){.rank = n + i,
                                              .host = "host",
                                              .machine = 1,
                                              .compute_s = 0.5,
                                              .comm_s = 0.5,
                                              .wait_s = 9,
                                              .thread_s = 1,
                                              .cpu_s = 1};
    }
    for (i = 0; i < MAX; i++)
        workers[i].busy_s = 9.9 * n + 0.2;
    return (struct vb_verdict_facts){.workers = workers,
                                     .servers = servers,
                                     .n_workers = n,
                                     .steps = 1000,
                                     .steps_per_s = 100,
                                     .samples_per_s = 100.0 * 64 * n,
                                     .batch = 64,
                                     .transport = n > 1 ? "tcp" : "",
                                     .grad_bytes = 1e5,
                                     .cpus = 4,
                                     .threads = n,
                                     .gflop = 0.1,
                                     .peak_gflop_s = 50,
                                     .peak_gb_s = 10,
                                     .link_us = 20,
                                     .link_gb_s = 1,
                                     .sum_gb_s = 8,
                                     .requests = 4};
}

/* The time of a worker that is not computing, transfer or data is waiting. */
static void set_times(int i, double data, double compute, double comm)
{
    workers[i].data_s = data;
    workers[i].compute_s = compute;
    workers[i].comm_s = comm;
    workers[i].wait_s = 10 - data - compute - comm;
}

static void judge(const struct vb_verdict_facts *f, enum vb_resource resource, const char *kind,
                  int rank)
{
    vb_verdict(f, &v);
    if (v.resource != resource || strcmp(v.kind, kind) != 0 || v.rank != rank)
        fail_msg("%s (%s), rank %d, instead of %s (%s), rank %d: %s", vb_resource_str(v.resource),
                 v.kind, v.rank, vb_resource_str(resource), kind, rank, v.why);
    assert_true(v.share > 0 && v.share <= 1 + 1e-9);
    assert_true(v.why[0] != '\0' && strlen(v.why) < sizeof(v.why) - 1);
}

static const struct vb_evidence *find_evidence(const char *name)
{
    int i;

    for (i = 0; i < v.n_evidence; i++)
        if (strcmp(v.evidence[i].name, name) == 0)
            return &v.evidence[i];
    fail_msg("there is no evidence %s", name);
    return NULL;
}

static double evidence(const char *name)
{
    return find_evidence(name)->value;
}

static struct vb_advice find_advice(const char *change)
{
    int i;

    for (i = 0; i < v.n_advice; i++)
        if (strcmp(v.advice[i].change, change) == 0)
            return v.advice[i];
    return (struct vb_advice){.change = ""};
}

/* Returns the steps a second that an advice expects; 0: there is no such advice. */
static double advice(const char *change)
{
    return find_advice(change).steps_per_s;
}

/* Returns how many samples of all workers a step has if the advice is followed. */
static double samples_of_step(const char *change)
{
    struct vb_advice found = find_advice(change);

    return found.samples_per_s / found.steps_per_s;
}

static void a_clean_run_accuses_no_rank(void **state)
{
    struct vb_verdict_facts f;
    int n;

    (void)state;
    for (n = 1; n <= MAX; n++) {
        f = clean(n);
        judge(&f, VB_COMPUTE, "", -1);
    }
    /* one rank is always the latest; that alone accuses nobody */
    workers[1].late_s = 2;
    workers[1].wait_s = 0.1;
    workers[1].compute_s = 9.3;
    judge(&f, VB_COMPUTE, "", -1);
    assert_true(fabs(evidence("compute") - 0.1 * 1000 / 9.1) < 0.5);
}

static void a_straggler_is_named_with_what_slows_it(void **state)
{
    struct vb_verdict_facts f = clean(3);
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        set_times(i, 0.1, i == 1 ? 9 : 3, 0.5);
    workers[1].late_s = 6;
    judge(&f, VB_STRAGGLER, "compute", 1);
    assert_true(fabs(v.share - 0.6) < 0.05);
    assert_true(strncmp(v.why, "rank 1 (host) ", 14) == 0);
    assert_true(advice("rank 1 as fast as the others") > 200);
    assert_true(advice("--mode async") > 100);
    set_times(1, 6, 3, 0.5);
    judge(&f, VB_STRAGGLER, "data", 1);
    set_times(1, 0.1, 9, 0.5);
    workers[1].queue_s = 6.5;
    workers[1].thread_s = 3.3;
    workers[1].cpu_s = 3.3;
    for (i = 0; i < 3; i++)
        workers[i].busy_s = 3.3 + 9.9 * 2 + 6.5;
    judge(&f, VB_STRAGGLER, "neighbour", 1);
    for (i = 0; i < 3; i++)
        workers[i].busy_s = 3.3 + 9.9 * 2; /* only our threads were there */
    judge(&f, VB_CORES, "threads", -1);
}

static void a_rank_that_is_late_without_work_has_a_slow_link(void **state)
{
    struct vb_verdict_facts f = clean(3);
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        set_times(i, 0.1, 3, i == 2 ? 6.8 : 1);
    workers[2].late_s = 5.9;
    judge(&f, VB_STRAGGLER, "link", 2);
    f.n_workers = 2; /* two ranks have one link: nobody is accused */
    set_times(0, 0.1, 3, 6);
    set_times(1, 0.1, 3, 6.8);
    f.link_gb_s = 0.015;
    judge(&f, VB_NETWORK, "bandwidth", -1);
}

static void the_network_is_narrow_or_far(void **state)
{
    struct vb_verdict_facts f = clean(2);
    int i;

    (void)state;
    for (i = 0; i < 2; i++)
        set_times(i, 0.1, 2, 7.5);
    f.link_gb_s = 0.0125; /* 100 Mbit/s carry 1e8 bytes in 8 s */
    judge(&f, VB_NETWORK, "bandwidth", -1);
    assert_true(evidence("link_busy") > 0.7);
    assert_true(advice("--wire bf16") > 140);
    assert_true(advice("--batch 128") > 50 * 1.05);
    assert_float_equal(samples_of_step("--batch 128"), 2 * 128, 1e-9);
    assert_float_equal(samples_of_step("--wire bf16"), 2 * 64, 1e-9);
    f.link_gb_s = 1;
    judge(&f, VB_NETWORK, "latency", -1);
    assert_true(advice("--wire bf16") == 0);
    /* START notes that are late on both sides show as waiting */
    for (i = 0; i < 2; i++)
        set_times(i, 0.1, 3, 1);
    f.link_us = 5000;
    judge(&f, VB_NETWORK, "latency", -1);
}

static void another_algorithm_may_be_faster(void **state)
{
    struct vb_verdict_facts f = clean(3);
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        set_times(i, 0.1, 3.9, 6);
    f.best_algo = "exchange";
    vb_verdict(&f, &v); /* nothing is predicted */
    assert_true(advice("--algo exchange") == 0);
    f.algo_us = f.best_algo_us = 5000; /* it is the best one already */
    vb_verdict(&f, &v);
    assert_true(advice("--algo exchange") == 0);
    f.best_algo_us = 2500; /* half of the transfer is gone: 0.3 of the time */
    vb_verdict(&f, &v);
    assert_float_equal(advice("--algo exchange"), 100 / 0.7, 0.01);
    f.best_algo_us = 7500; /* the table has classes of sizes, so it may be wrong for this one */
    vb_verdict(&f, &v);
    assert_true(advice("--algo exchange") == 0);
    f = clean(3);
    f.best_algo = "exchange";
    f.algo_us = 5000;
    f.best_algo_us = 2500; /* computing hides nearly all of the transfer */
    vb_verdict(&f, &v);
    assert_true(advice("--algo exchange") == 0);
}

static void more_threads_than_cores(void **state)
{
    struct vb_verdict_facts f = clean(3);
    int i;

    (void)state;
    f.cpus = 2;
    for (i = 0; i < 3; i++) {
        set_times(i, 0.1, 8, 0.3);
        workers[i].queue_s = 3.2;
        workers[i].thread_s = 6.5;
        workers[i].cpu_s = 6.6;
        workers[i].busy_s = 20;
    }
    judge(&f, VB_CORES, "threads", -1);
    assert_non_null(strstr(v.why, "3 threads that work, and 2 cores"));
    for (i = 0; i < 3; i++)
        workers[i].busy_s = 19.8 + 9.6;
    judge(&f, VB_CORES, "neighbour", -1);
    for (i = 0; i < 3; i++)
        workers[i].queue_s = workers[i].busy_s = -1; /* the kernel does not tell */
    judge(&f, VB_COMPUTE, "", -1);
}

static void input_and_disk(void **state)
{
    struct vb_verdict_facts f = clean(2);
    int i;

    (void)state;
    for (i = 0; i < 2; i++)
        set_times(i, 6, 3, 0.5);
    judge(&f, VB_INPUT, "", -1);
    workers[0].read_mb_s = workers[1].read_mb_s = 20;
    workers[0].read_peak_mb_s = 30;
    workers[1].read_peak_mb_s = 25;
    judge(&f, VB_DISK, "read", -1);
    assert_float_equal(find_evidence("disk_read")->value, 40, 1e-9);
    assert_float_equal(find_evidence("disk_read")->ceiling, 55, 1e-9);
    workers[0].read_mb_s = workers[1].read_mb_s = 0;
    /* rank 0 writes checkpoints, and the other waits for it */
    set_times(0, 0.1, 3, 0.5);
    workers[0].save_s = 6.4;
    workers[0].wait_s = 0;
    workers[0].late_s = 6.3;
    set_times(1, 0.1, 3, 0.5);
    judge(&f, VB_DISK, "checkpoint", -1);
}

static void a_server_that_is_busy_or_has_no_core(void **state)
{
    struct vb_verdict_facts f = clean(2);
    int i;

    (void)state;
    f.apart = true;
    f.n_servers = 1;
    for (i = 0; i < 2; i++) {
        set_times(i, 0.1, 2, 7.9);
        workers[i].wait_s = 0;
    }
    servers[0].compute_s = 9;
    servers[0].comm_s = 0.5;
    servers[0].wait_s = 0.5;
    servers[0].thread_s = 9.5;
    judge(&f, VB_SERVER, "", -1);
    assert_true(advice("--servers 2") > 100);
    servers[0].thread_s = 2;
    servers[0].queue_s = 7.6;
    judge(&f, VB_CORES, "threads", -1);
    servers[0] = (struct vb_verdict_rank){.rank = 2, .host = "host", .machine = 1};
    servers[0].compute_s = 0.3;
    servers[0].wait_s = 9.7;
    f.link_gb_s = 0.0125;
    judge(&f, VB_NETWORK, "bandwidth", -1);
}

static void two_causes_are_both_told(void **state)
{
    struct vb_verdict_facts f = clean(2);
    int i;

    (void)state;
    for (i = 0; i < 2; i++)
        set_times(i, 0.1, i == 1 ? 5.8 : 2, 4);
    workers[1].late_s = 3.8;
    f.link_gb_s = 0.02;
    judge(&f, VB_MIXED, "", 1);
    assert_non_null(strstr(v.why, "network"));
    assert_non_null(strstr(v.why, "straggler"));
    assert_true(v.n_causes >= 3);
}

static void what_nothing_explains_is_inconclusive(void **state)
{
    struct vb_verdict_facts f = clean(3);
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        set_times(i, 0.1, 4, 0.2);
    judge(&f, VB_INCONCLUSIVE, "", -1);
    assert_non_null(strstr(v.why, "waiting in turn"));
    for (i = 0; i < 3; i++)
        set_times(i, 3, 3, 1);
    judge(&f, VB_INCONCLUSIVE, "", -1);
}

static void efficiencies_multiply(void **state)
{
    struct vb_verdict_facts f = clean(4);
    double product;

    (void)state;
    set_times(2, 0.5, 8, 1);
    set_times(3, 0, 5, 3);
    vb_verdict(&f, &v);
    product = evidence("load_balance") * evidence("serialisation") * evidence("transfer");
    assert_true(fabs(product - evidence("parallel_efficiency")) < 1e-9);
    assert_true(evidence("serialisation") <= 1 + 1e-9 && evidence("transfer") <= 1);
}

/* Facts come from other ranks, and may be anything. */
static void nothing_and_nonsense(void **state)
{
    struct vb_verdict_facts f = clean(2);

    (void)state;
    f.steps = 0;
    vb_verdict(&f, &v);
    assert_string_equal(v.why, "");
    f = clean(2);
    workers[0] = workers[1] = (struct vb_verdict_rank){.host = "host"};
    vb_verdict(&f, &v);
    assert_string_equal(v.why, "");
    f = clean(2);
    workers[0].queue_s = 1e30;
    workers[1].comm_s = -5;
    workers[1].late_s = (double)NAN;
    vb_verdict(&f, &v);
    assert_true(v.resource < VB_RESOURCES && v.n_evidence <= VB_EVIDENCE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_run_accuses_no_rank),
        cmocka_unit_test(a_straggler_is_named_with_what_slows_it),
        cmocka_unit_test(a_rank_that_is_late_without_work_has_a_slow_link),
        cmocka_unit_test(the_network_is_narrow_or_far),
        cmocka_unit_test(another_algorithm_may_be_faster),
        cmocka_unit_test(more_threads_than_cores),
        cmocka_unit_test(input_and_disk),
        cmocka_unit_test(a_server_that_is_busy_or_has_no_core),
        cmocka_unit_test(two_causes_are_both_told),
        cmocka_unit_test(what_nothing_explains_is_inconclusive),
        cmocka_unit_test(efficiencies_multiply),
        cmocka_unit_test(nothing_and_nonsense),
    };

    return T_RUN(tests);
}
