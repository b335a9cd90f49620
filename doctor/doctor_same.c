/* SPDX-License-Identifier: MIT
 *
 * Compares the hosts of a job: program, kind of cpu, time of day. Each host is compared with the
 * first.
 */
#include "doctor/doctor_priv.h"

#include <math.h>
#include <string.h>

#define CLOCK_S 1.0 /* far more than the exchange that reads the clocks takes */
#define NAMED_MAX 4 /* maximum number of hosts that one sentence lists */

/* Returns true if the host is to be named; *named counts the hosts of a sentence. */
static bool name_host(struct vb_check *check, const struct vb_kind *kind, int *named)
{
    if (++*named > NAMED_MAX)
        return false;
    vb_check_warn(check, "%s%s", *named > 1 ? ", " : "", kind->host);
    return true;
}

static void check_programs(const struct vb_kind *kinds, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "programs");
    int i, named = 0;

    for (i = 1; i < n; i++)
        if (strcmp(kinds[i].program, kinds[0].program) != 0 && name_host(check, &kinds[i], &named))
            vb_check_fix(check, "scp \"$(command -v verbena)\" %s:",
                         vb_check_plain(kinds[i].host) ? kinds[i].host : "HOST");
    if (named == 0)
        vb_check_say(check, "all hosts run the same program");
    else
        vb_check_say(check, ": another version or build of verbena than on %s, so a job may fail",
                     kinds[0].host);
}

static void check_cpus(const struct vb_kind *kinds, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "cpus");
    int i, named = 0;

    for (i = 1; i < n; i++)
        if (strcmp(kinds[i].cpu, kinds[0].cpu) != 0 && name_host(check, &kinds[i], &named))
            vb_check_say(check, " (%s)", kinds[i].cpu[0] != '\0' ? kinds[i].cpu : "unknown");
    if (named == 0) {
        vb_check_say(check, "all hosts have the same kind of cpu");
        return;
    }
    vb_check_say(check,
                 ": another kind of cpu than %s (%s). The slowest sets the pace of synchronous "
                 "steps, and other hosts may round differently",
                 kinds[0].host, kinds[0].cpu[0] != '\0' ? kinds[0].cpu : "unknown");
    vb_check_fix(check, "verbena train ... --mode async # or leave these hosts out of --hosts");
}

static void check_clocks(const struct vb_kind *kinds, int n, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "clocks");
    int i, named = 0;

    for (i = 1; i < n; i++) {
        double off_s = ((double)kinds[i].clock_ns - (double)kinds[0].clock_ns) / 1e9;

        if (fabs(off_s) >= CLOCK_S && name_host(check, &kinds[i], &named))
            vb_check_say(check, " (%+.0f s)", off_s);
    }
    if (named == 0) {
        vb_check_say(check, "the clocks of all hosts agree within a second");
        return;
    }
    vb_check_say(check,
                 ": the time of day differs from that of %s, so times in logs and TensorBoard do "
                 "not fit together; training itself does not use it",
                 kinds[0].host);
    vb_check_fix(check, "sudo timedatectl set-ntp true # on these hosts");
}

int vb_doctor_judge_same(const struct vb_kind *kinds, int n,
                         struct vb_check checks_p[VB_CHECKS_MAX])
{
    struct vb_checks checks = {.list = checks_p};

    check_programs(kinds, n, &checks);
    check_cpus(kinds, n, &checks);
    check_clocks(kinds, n, &checks);
    return checks.n;
}
