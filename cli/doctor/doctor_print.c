/* SPDX-License-Identifier: MIT
 *
 * Prints what doctor has found out between hosts, as text and as JSON.
 */
#include "cli/doctor/doctor_exam.h"

#include <math.h>
#include <string.h>

/* Prints only the checks that need action: problems, and how to set up soft-RoCE. */
static void print_host(const struct doctor_host *host)
{
    int i, ok = cli_doctor_count(host->checks, host->n, VB_CHECK_OK);

    printf("host %s (rank %d): %d of %d checks OK\n", host->name, host->rank, ok, host->n);
    for (i = 0; i < host->n; i++)
        if (host->checks[i].level != VB_CHECK_OK || host->checks[i].fix[0] != '\0')
            cli_doctor_print_check(&host->checks[i]);
}

static void print_count(int64_t count, int width)
{
    if (count < 0)
        printf(" %*s", width, "-");
    else
        printf(" %*lld", width, (long long)count);
}

static void print_pairs(const struct doctor_exam *e)
{
    const struct vb_pair *p;
    char hosts[132];
    int i;

    printf("\n%-24s %-9s %9s %9s %9s %9s %6s %7s %10s %4s\n", "pair", "transport", "put us",
           "get us", "put GB/s", "get GB/s", "wrong", "retries", "out of seq", "RNR");
    for (i = 0; i < e->n_pairs; i++) {
        p = &e->pairs[i];
        snprintf(hosts, sizeof(hosts), "%s - %s", p->host_a, p->host_b);
        printf("%-24s %-9s %9.1f %9.1f %9.4f %9.4f %6lld", hosts, p->transport, p->put_us,
               p->get_us, p->put_gb_s, p->get_gb_s, (long long)p->wrong);
        print_count(p->moved[VB_PORT_RETRIES], 7);
        print_count(p->moved[VB_PORT_OUT_OF_SEQ], 10);
        print_count(p->moved[VB_PORT_RNR], 4);
        printf("\n");
    }
    printf("\n");
    for (i = 0; i < e->n_same; i++)
        cli_doctor_print_check(&e->same[i]);
    for (i = 0; i < e->n_checks; i++)
        cli_doctor_print_check(&e->checks[i]);
}

int cli_doctor_exam_count(const struct doctor_exam *e, enum vb_check_level level)
{
    int count = cli_doctor_count(e->checks, e->n_checks, level) +
                cli_doctor_count(e->same, e->n_same, level);
    int i;

    for (i = 0; i < e->n_hosts; i++)
        count += cli_doctor_count(e->hosts[i].checks, e->hosts[i].n, level);
    return count;
}

void cli_doctor_exam_print(const struct doctor_exam *e)
{
    int i, fail = cli_doctor_exam_count(e, VB_CHECK_FAIL);

    for (i = 0; i < e->n_hosts; i++)
        print_host(&e->hosts[i]);
    print_pairs(e);
    printf("%d host%s, %d measurement%s between them: %d WARN, %d FAIL; %s\n", e->n_hosts,
           e->n_hosts == 1 ? "" : "s", e->n_pairs, e->n_pairs == 1 ? "" : "s",
           cli_doctor_exam_count(e, VB_CHECK_WARN), fail,
           fail > 0 ? "a job would fail" : "a job can run");
}

static void json_host(struct vb_json *json, const struct doctor_host *host)
{
    vb_json_object(json, NULL);
    vb_json_text(json, "host", host->name);
    vb_json_int(json, "rank", host->rank);
    vb_json_bool(json, "rdma", host->rdma);
    cli_doctor_json_checks(json, host->checks, host->n);
    vb_json_end(json);
}

static void json_count(struct vb_json *json, const char *key, int64_t count)
{
    if (count >= 0)
        vb_json_int(json, key, count);
    else
        vb_json_real(json, key, (double)NAN); /* null */
}

static void json_pair(struct vb_json *json, const struct vb_pair *p)
{
    vb_json_object(json, NULL);
    vb_json_text(json, "a", p->host_a);
    vb_json_text(json, "b", p->host_b);
    vb_json_text(json, "transport", p->transport);
    vb_json_real(json, "put_us", p->put_us);
    vb_json_real(json, "get_us", p->get_us);
    vb_json_real(json, "put_gb_s", p->put_gb_s);
    vb_json_real(json, "get_gb_s", p->get_gb_s);
    vb_json_int(json, "wrong", p->wrong);
    json_count(json, "retries", p->moved[VB_PORT_RETRIES]);
    json_count(json, "out_of_seq", p->moved[VB_PORT_OUT_OF_SEQ]);
    json_count(json, "rnr", p->moved[VB_PORT_RNR]);
    vb_json_end(json);
}

/* One list for both kinds of checks between hosts. */
static void json_checks(struct vb_json *json, const struct doctor_exam *e)
{
    struct vb_check all[2 * VB_CHECKS_MAX];

    memcpy(all, e->same, (size_t)e->n_same * sizeof(all[0]));
    memcpy(all + e->n_same, e->checks, (size_t)e->n_checks * sizeof(all[0]));
    cli_doctor_json_checks(json, all, e->n_same + e->n_checks);
}

vb_status cli_doctor_exam_json(const struct doctor_exam *e)
{
    struct vb_json *json = cli_json_object();
    int i;

    vb_json_bool(json, "ok", cli_doctor_exam_count(e, VB_CHECK_FAIL) == 0);
    vb_json_array(json, "hosts");
    for (i = 0; i < e->n_hosts; i++)
        json_host(json, &e->hosts[i]);
    vb_json_end(json);
    vb_json_array(json, "pairs");
    for (i = 0; i < e->n_pairs; i++)
        json_pair(json, &e->pairs[i]);
    vb_json_end(json);
    json_checks(json, e);
    return cli_print_json(json);
}
