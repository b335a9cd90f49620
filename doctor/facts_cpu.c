/* SPDX-License-Identifier: MIT */
#include "doctor/doctor_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SYS_CPU "/sys/devices/system/cpu"
#define CPUS_MAX 65536 /* upper limit, because a recording may have any number */

typedef void (*cpu_fn)(int cpu, void *arg);

/* Calls fn for each cpu of a list such as "0-3,8", up to the first invalid character. */
static void each_cpu(const char *list, cpu_fn fn, void *arg)
{
    char *end;

    while (*list >= '0' && *list <= '9') {
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last >= CPUS_MAX)
            return;
        for (; first <= last; first++)
            fn((int)first, arg);
        list = *end == ',' ? end + 1 : end;
    }
}

static void count_cpu(int cpu, void *arg)
{
    (void)cpu;
    ++*(int *)arg;
}

void vb_facts_cpus(const char *sysroot, struct vb_facts *facts)
{
    struct vb_topo_source source = {.synthetic = NULL};
    struct vb_topo *topo;
    char list[512];

    if (facts->recorded) {
        vb_probe_line(list, sizeof(list), "%s" SYS_CPU "/online", sysroot);
        each_cpu(list, count_cpu, &facts->n_cpus);
        vb_facts_field(sysroot, "/proc/self/status", "Cpus_allowed_list:", list, sizeof(list));
        each_cpu(list, count_cpu, &facts->n_allowed_cpus);
    } else if (vb_topo_open(&source, &topo) == VB_OK) { /* otherwise topo/ has logged the reason */
        facts->n_cpus = vb_topo_facts(topo)->n_cpus;
        facts->n_allowed_cpus = vb_topo_facts(topo)->n_allowed_cpus;
        vb_topo_close(topo);
    }
    facts->cpu_quota = vb_topo_cpu_quota(sysroot);
}

struct governor_walk {
    const char *sysroot;
    struct vb_facts *facts;
};

/* "performance" keeps the frequency high, and "schedutil" raises it with the load within
 * microseconds. All other governors raise it only at their next sample, or never. */
static void look_at_governor(int cpu, void *arg)
{
    const struct governor_walk *walk = arg;
    struct vb_facts *facts = walk->facts;
    char name[32];
    bool slow;

    if (!vb_probe_line(name, sizeof(name), "%s" SYS_CPU "/cpu%d/cpufreq/scaling_governor",
                       walk->sysroot, cpu))
        return;
    slow = strcmp(name, "performance") != 0 && strcmp(name, "schedutil") != 0;
    if (facts->n_governed == 0 || (slow && facts->n_slow_governed == 0))
        memcpy(facts->governor, name, sizeof(facts->governor));
    facts->n_governed++;
    facts->n_slow_governed += slow;
}

void vb_facts_governors(const char *sysroot, struct vb_facts *facts)
{
    struct governor_walk walk = {.sysroot = sysroot, .facts = facts};
    char list[512];

    vb_probe_line(list, sizeof(list), "%s" SYS_CPU "/online", sysroot);
    each_cpu(list, look_at_governor, &walk);
}

/* Returns the smallest memory limit of a cgroup and its parents; 0: there is none. The file then
 * has a huge number (cgroup version 1) or "max" (version 2). In a container the folder of the group
 * may be missing, but the mount point exists. */
static int64_t least_limit(const char *mount, const char *group, const char *file)
{
    const int64_t none = INT64_MAX / 2;
    int64_t least = none, bytes;
    char folder[PATH_MAX];

    if (strstr(group, "..") != NULL)
        group = ""; /* this container cannot see the group */
    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, group) >= sizeof(folder))
        return 0;
    for (;;) {
        char *slash = strrchr(folder, '/');

        if (vb_probe_int(&bytes, "%s/%s", folder, file) && bytes > 0 && bytes < least)
            least = bytes;
        if (slash == NULL || (size_t)(slash - folder) < strlen(mount))
            break;
        *slash = '\0';
    }
    return least < none ? least : 0;
}

/* The lines are like "4:memory:/group", with cgroup version 2 like "0::/group". */
static bool find_group(const char *sysroot, const char *controller, char *group, size_t size)
{
    char prefix[16], line[512];
    const char *colon;
    int i;

    for (i = 0; i < 32; i++) { /* the number of the hierarchy is not known in advance */
        snprintf(prefix, sizeof(prefix), "%d:", i);
        if (!vb_facts_field(sysroot, "/proc/self/cgroup", prefix, line, sizeof(line)))
            continue;
        colon = strchr(line, ':');
        if (colon == NULL || (size_t)(colon - line) != strlen(controller) ||
            strncmp(line, controller, strlen(controller)) != 0)
            continue;
        snprintf(group, size, "%s", colon + 1);
        return true;
    }
    return false;
}

int64_t vb_facts_memory_limit(const char *sysroot)
{
    char mount[PATH_MAX], group[512];

    if (find_group(sysroot, "memory", group, sizeof(group))) {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", sysroot);
        return least_limit(mount, group, "memory.limit_in_bytes");
    }
    if (find_group(sysroot, "", group, sizeof(group))) {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", sysroot);
        return least_limit(mount, group, "memory.max");
    }
    return 0;
}
