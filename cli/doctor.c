/* SPDX-License-Identifier: MIT
 *
 * verbena doctor: what on this machine would slow or stop a job.
 */
#include "cli/cli.h"
#include "engine/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct doctor_opts {
    bool json;
    const char *sysroot;
};

static const struct vb_opt doctor_table[] = {
    {.name = "json",
     .type = VB_OPT_FLAG,
     .offset = offsetof(struct doctor_opts, json),
     .help = "print one JSON object on one line"},
    {.name = "sysroot",
     .type = VB_OPT_TEXT,
     .offset = offsetof(struct doctor_opts, sysroot),
     .arg = "DIR",
     .help = "judge the machine whose /sys, /proc and /var were recorded below DIR"},
};

static int count_level(const struct vb_check *checks, int n, enum vb_check_level level)
{
    int i, count = 0;

    for (i = 0; i < n; i++)
        count += checks[i].level == level;
    return count;
}

static void print_text(const struct vb_check *checks, int n)
{
    int fail = count_level(checks, n, VB_CHECK_FAIL), i;

    for (i = 0; i < n; i++) {
        printf("%-6s%-12s%s\n", vb_check_level_str(checks[i].level), checks[i].name,
               checks[i].what);
        if (checks[i].fix[0] != '\0')
            printf("%18s%s %s\n", "",
                   checks[i].level == VB_CHECK_OK ? "do:" : "mend:", checks[i].fix);
    }
    printf("%d checks: %d OK, %d WARN, %d FAIL; %s\n", n, count_level(checks, n, VB_CHECK_OK),
           count_level(checks, n, VB_CHECK_WARN), fail,
           fail > 0 ? "a job would be stopped" : "a job will run");
}

static vb_status print_json(const struct vb_check *checks, int n)
{
    struct vb_json *json = vb_json_create();
    vb_status st;
    int i;

    vb_json_object(json, NULL);
    vb_json_bool(json, "ok", count_level(checks, n, VB_CHECK_FAIL) == 0);
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
    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

/* "/" is the running machine, too. */
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
        fprintf(stderr, "verbena doctor: --sysroot %.256s: not a folder\n", *sysroot_p);
        return VB_ERR_NO_FILE;
    }
    return VB_OK;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct doctor_opts own = {.json = false};
    struct vb_opt_group group = {
        .title = "Options", .opts = doctor_table, .n_opts = VB_COUNT(doctor_table), .into = &own};
    struct vb_check checks[VB_CHECKS_MAX];
    struct vb_facts facts;
    struct vb_opts opts;
    vb_status st;
    int n, code;

    code = cli_parse(command, &group, 1, 0, argc, argv, &opts);
    if (code >= 0)
        return code;
    st = check_sysroot(&own.sysroot);
    if (st == VB_OK)
        st = vb_facts_gather(own.sysroot, &facts);
    if (st != VB_OK)
        return cli_exit_code(st);
    n = vb_doctor_judge(&facts, checks);
    vb_facts_fini(&facts);
    if (!own.json)
        print_text(checks, n);
    else if (print_json(checks, n) != VB_OK)
        return CLI_FAILED; /* it has said why */
    return cli_finish(count_level(checks, n, VB_CHECK_FAIL) > 0 ? CLI_FAILED : CLI_OK);
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "what on this machine would slow or stop a job, and the command that mends it",
    .usage = "[--json] [--sysroot DIR]",
    .about = "Checks this machine: RDMA devices, ports and GIDs, soft-RoCE, network interfaces,\n"
             "limits, huge pages, cpus, kernels, clock and shared memory. Each line says OK, WARN\n"
             "(a job would be slower than it could be) or FAIL (it would be stopped), and below a\n"
             "WARN or FAIL stands the command that mends it, where there is one. Nothing is\n"
             "changed. Exits 1 if anything FAILs.",
    .run = run,
};
