/* SPDX-License-Identifier: MIT
 *
 * verbena doctor: finds problems that would slow down or stop a job, on this machine or between
 * hosts.
 */
#include "cli/doctor/cmd_doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct doctor_opts {
    bool json;
    const char *sysroot;
};

static const struct vb_opt doctor_table[] = {
    {"json", VB_OPT_FLAG, offsetof(struct doctor_opts, json),
     .help = "print one JSON object instead of text"},
    {"sysroot", VB_OPT_TEXT, offsetof(struct doctor_opts, sysroot), .arg = "DIR",
     .level = VB_OPT_MORE,
     .help = "check the machine whose /sys, /proc and /var were copied to DIR"},
};

int cli_doctor_count(const struct vb_check *checks, int n, enum vb_check_level level)
{
    int i, count = 0;

    for (i = 0; i < n; i++)
        count += checks[i].level == level;
    return count;
}

void cli_doctor_print_check(const struct vb_check *check)
{
    printf("%-6s%-12s%s\n", vb_check_level_str(check->level), check->name, check->what);
    if (check->fix[0] != '\0')
        printf("%18s%s %s\n", "", check->level == VB_CHECK_OK ? "do:" : "fix:", check->fix);
}

void cli_doctor_json_checks(struct vb_json *json, const struct vb_check *checks, int n)
{
    int i;

    vb_json_array(json, "checks");
    for (i = 0; i < n; i++) {
        vb_json_object(json, NULL);
        vb_json_text(json, "name", checks[i].name);
        vb_json_text(json, "level", vb_check_level_str(checks[i].level));
        vb_json_text(json, "what", checks[i].what);
        vb_json_text(json, "fix", checks[i].fix[0] != '\0' ? checks[i].fix : NULL);
        vb_json_end(json);
    }
    vb_json_end(json);
}

static void print_text(const struct vb_check *checks, int n)
{
    int fail = cli_doctor_count(checks, n, VB_CHECK_FAIL), i;

    for (i = 0; i < n; i++)
        cli_doctor_print_check(&checks[i]);
    printf("%d checks: %d OK, %d WARN, %d FAIL; %s\n", n, cli_doctor_count(checks, n, VB_CHECK_OK),
           cli_doctor_count(checks, n, VB_CHECK_WARN), fail,
           fail > 0 ? "a job would fail" : "a job can run");
}

static vb_status print_json(const struct vb_check *checks, int n)
{
    struct vb_json *json = cli_json_object();

    vb_json_bool(json, "ok", cli_doctor_count(checks, n, VB_CHECK_FAIL) == 0);
    cli_doctor_json_checks(json, checks, n);
    return cli_print_json(json);
}

/* Checks --sysroot. If --sysroot is absent or "/", *sysroot_p becomes "", which means this
 * machine. */
static vb_status check_sysroot(const char **sysroot_p)
{
    struct stat sb;

    if (*sysroot_p == NULL || strcmp(*sysroot_p, "/") == 0) {
        *sysroot_p = "";
        return VB_OK;
    }
    if (stat(*sysroot_p, &sb) != 0) {
        fprintf(stderr, "verbena doctor: --sysroot %.256s: %s\n", *sysroot_p, strerror(errno));
        return VB_ERR_NO_FILE;
    }
    if (!S_ISDIR(sb.st_mode)) {
        fprintf(stderr, "verbena doctor: --sysroot %.256s: this is not a folder\n", *sysroot_p);
        return VB_ERR_NO_FILE;
    }
    return VB_OK;
}

static int this_machine(struct doctor_opts *own)
{
    struct vb_check checks[VB_CHECKS_MAX];
    struct vb_facts facts;
    vb_status st = check_sysroot(&own->sysroot);
    int n;

    if (st == VB_OK)
        st = vb_facts_gather(own->sysroot, &facts);
    if (st != VB_OK)
        return cli_exit_code(st);
    n = vb_doctor_judge(&facts, checks);
    vb_facts_fini(&facts);
    if (!own->json)
        print_text(checks, n);
    else if (print_json(checks, n) != VB_OK)
        return CLI_FAILED; /* vb_json_print() has logged the reason */
    return cli_finish(cli_doctor_count(checks, n, VB_CHECK_FAIL) > 0 ? CLI_FAILED : CLI_OK);
}

static int run_parsed(const struct cli_command *command, struct doctor_opts *own,
                      struct cli_job *job)
{
    struct vb_group_opts group;
    struct vb_launch launch;
    int code = cli_job_place(command, job, &launch, &group);

    if (code >= 0)
        return code;
    if (own->sysroot != NULL && group.world > 1)
        return cli_refuse(command,
                          "--sysroot checks one machine and cannot be used with several ranks");
    if (cli_job_launch(job, &launch, &group, &code))
        return code;
    return group.world > 1 ? cli_doctor_hosts(&group, own->json) : this_machine(own);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct doctor_opts own = {.json = false};
    struct cli_job job = {0};
    struct vb_opt_group groups[1 + CLI_JOB_GROUPS] = {
        {"Options", doctor_table, VB_COUNT(doctor_table), &own},
    };
    struct vb_opts opts;
    int code;

    cli_job_groups(&job, groups + 1);
    code = cli_job_parse(command, groups, VB_COUNT(groups), 0, argc, argv, &job, &opts);
    if (code < 0)
        code = run_parsed(command, &own, &job);
    free(job.argv);
    return code;
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "find what would slow down or stop a job, and how to fix it",
    .usage = "[--json] | --hosts LIST [--transport HOW] [--json]",
    .about =
        "Checks this machine: RDMA devices, ports and GIDs, soft-RoCE, network interfaces, "
        "limits,\nhuge pages, CPUs, kernels, clock and shared memory. Each line begins with OK, "
        "WARN (a job\nwould be slower than necessary) or FAIL (a job would fail). Below a WARN or "
        "FAIL is the\ncommand that fixes it, if there is one. Doctor changes nothing. It exits "
        "with 1 if any check\nis FAIL.\n"
        "\n"
        "With --hosts it checks each host over ssh. Then it tests every pair of hosts over each\n"
        "transport that works: it puts and gets bytes both ways, compares them, and measures "
        "latency\nand bandwidth.\n"
        "\n"
        "  verbena doctor\n"
        "  verbena doctor --hosts node0,node1,node2\n"
        "  verbena doctor --hosts hosts.txt --transport tcp --json",
    .details = "Pairs over RDMA also show what the ports counted during the test: retries, packets "
               "out of\nsequence and receivers that were not ready. The verbena program must be "
               "the same file on all\nhosts. The ranks may be started by hand, too:\n"
               "\n"
               "  verbena doctor --rank 1 --world 2 --root node0:7000 --secret-file job.key",
    .run = run,
};
