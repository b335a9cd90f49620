/* SPDX-License-Identifier: MIT
 *
 * Reads the CPU time that a cgroup grants. hwloc knows which cpus a cgroup allows, but not that the
 * cgroup may grant only a part of their time. One thread per cpu would then be throttled.
 */
#include "topo/topo.h"

#include <limits.h>
#include <string.h>

/* Returns a quota as a number of cpus, or 0 if there is no limit. Both versions of cgroups give
 * the quota as microseconds per period; "max" or -1 means no limit. */
static double quota_of(const char *quota_text, int64_t period)
{
    int64_t quota;

    if (!vb_parse_int(quota_text, &quota) || quota <= 0 || period <= 0)
        return 0;
    return (double)quota / (double)period;
}

static double quota_v2(const char *folder)
{
    char line[64], *space;
    int64_t period;

    if (!vb_probe_line(line, sizeof(line), "%s/cpu.max", folder))
        return 0;
    space = strchr(line, ' ');
    if (space == NULL || !vb_parse_int(space + 1, &period))
        return 0;
    *space = '\0';
    return quota_of(line, period);
}

static double quota_v1(const char *folder)
{
    char line[64];
    int64_t period;

    if (!vb_probe_line(line, sizeof(line), "%s/cpu.cfs_quota_us", folder) ||
        !vb_probe_int(&period, "%s/cpu.cfs_period_us", folder))
        return 0;
    return quota_of(line, period);
}

/* Lowers *least to the limits of a cgroup and all its ancestors, because the smallest of these
 * limits applies. */
static void walk_up(const char *mount, const char *group, double (*read)(const char *),
                    double *least)
{
    char folder[PATH_MAX], *slash;
    size_t root = strlen(mount);
    double quota;

    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, group) >= sizeof(folder))
        return;
    for (;;) {
        quota = read(folder);
        if (quota > 0 && (*least == 0 || quota < *least))
            *least = quota;
        slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < root)
            return;
        *slash = '\0';
    }
}

/* "cpu" is one of the comma-separated controllers. */
static bool has_cpu_controller(const char *controllers)
{
    size_t n;

    for (; *controllers != '\0'; controllers += n + (controllers[n] == ',')) {
        n = strcspn(controllers, ",");
        if (n == 3 && strncmp(controllers, "cpu", 3) == 0)
            return true;
    }
    return false;
}

struct search {
    const char *sysroot;
    double least;
};

/* Reads a line of /proc/self/cgroup, such as "0::/group" (version 2) or "4:cpu,cpuacct:/group"
 * (version 1). */
static bool take_line(char *line, void *arg)
{
    char mount[PATH_MAX], *controllers, *group;
    struct search *search = arg;

    controllers = strchr(line, ':');
    group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return true;
    controllers++;
    *group++ = '\0';
    if (controllers[0] == '\0') {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", search->sysroot);
        walk_up(mount, group, quota_v2, &search->least);
    } else if (has_cpu_controller(controllers)) {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/%s", search->sysroot, controllers);
        walk_up(mount, group, quota_v1, &search->least);
    }
    return true;
}

double vb_topo_cpu_quota(const char *sysroot)
{
    struct search search = {.sysroot = sysroot};

    vb_probe_lines(take_line, &search, "%s/proc/self/cgroup", sysroot);
    return search.least;
}
