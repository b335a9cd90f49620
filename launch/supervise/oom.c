/* SPDX-License-Identifier: MIT
 *
 * Tells whether the kernel has killed processes because memory ran out. It counts them for each
 * cgroup: memory.events in version 2, memory.oom_control in version 1, and for the whole host in
 * /proc/vmstat, which is used if this process is in the root cgroup. A process that is killed
 * counts in its own cgroup, whichever of the groups above had the limit.
 */
#include "launch/supervise/supervise_priv.h"

#include <string.h>

#define PATH_PART 1024

/* Where the memory of this process is counted. */
struct place {
    char v2[PATH_PART], v1[PATH_PART]; /* path of its cgroup, of version 1 for memory; "": none */
};

/* Lines of /proc/self/cgroup are "0::/path" and "7:memory:/path", or "7:cpu,memory:/path". */
static bool take_cgroup(char *line, void *arg)
{
    char *first = strchr(line, ':'), *second = first != NULL ? strchr(first + 1, ':') : NULL;
    struct place *p = arg;

    if (second == NULL)
        return true;
    *second = '\0';
    if (first[1] == '\0')
        snprintf(p->v2, sizeof(p->v2), "%s", second + 1);
    else if (strstr(first + 1, "memory") != NULL)
        snprintf(p->v1, sizeof(p->v1), "%s", second + 1);
    return true;
}

/* Takes the number of a line "oom_kill 3". */
static bool take_count(char *line, void *arg)
{
    long long *count = arg;

    return sscanf(line, "oom_kill %lld", count) != 1;
}

static long long count_in(const char *file)
{
    long long count = -1;

    vb_probe_lines(take_count, &count, "%s", file);
    return count;
}

static bool take_limit(char *line, void *arg)
{
    long long *limit = arg;

    if (sscanf(line, "%lld", limit) != 1)
        *limit = -1; /* "max" */
    return false;
}

/* The nearest limit, of the cgroup itself or one above it. No limit: that of the host. */
static void find_limit(struct vb_oom *oom, const char *mount, const char *cgroup, const char *name)
{
    char path[PATH_PART], *end;
    long long limit = -1;

    snprintf(path, sizeof(path), "%s", strcmp(cgroup, "/") != 0 ? cgroup : "");
    for (;;) {
        vb_probe_lines(take_limit, &limit, "%s%s/%s", mount, path, name);
        end = strrchr(path, '/');
        if ((limit > 0 && limit < (1LL << 60)) || end == NULL)
            break;
        *end = '\0';
    }
    if (limit <= 0 || limit >= (1LL << 60))
        return;
    oom->limit_bytes = limit;
    snprintf(oom->limit, sizeof(oom->limit), "%lld MB of cgroup %.60s", limit / 1000000,
             path[0] != '\0' ? path : "/");
}

static bool use(struct vb_oom *oom, const char *sysroot, const char *mount, const char *cgroup,
                const char *events, const char *limit)
{
    char at[PATH_PART];

    if (cgroup[0] == '\0')
        return false;
    snprintf(at, sizeof(at), "%.500s%.200s", sysroot, mount);
    if ((size_t)snprintf(oom->file, sizeof(oom->file), "%s%s/%s", at,
                         strcmp(cgroup, "/") != 0 ? cgroup : "", events) >= sizeof(oom->file))
        return false;
    oom->kills = count_in(oom->file);
    if (oom->kills < 0)
        return false;
    find_limit(oom, at, cgroup, limit);
    return true;
}

void vb_oom_init(struct vb_oom *oom, const char *sysroot)
{
    struct place p = {.v2 = ""};

    snprintf(oom->limit, sizeof(oom->limit), "the memory of this host");
    oom->limit_bytes = 0;
    vb_probe_lines(take_cgroup, &p, "%s/proc/self/cgroup", sysroot);
    if (use(oom, sysroot, "/sys/fs/cgroup", p.v2, "memory.events", "memory.max") ||
        use(oom, sysroot, "/sys/fs/cgroup/unified", p.v2, "memory.events", "memory.max") ||
        use(oom, sysroot, "/sys/fs/cgroup/memory", p.v1, "memory.oom_control",
            "memory.limit_in_bytes"))
        return;
    snprintf(oom->file, sizeof(oom->file), "%.500s/proc/vmstat", sysroot);
    oom->kills = count_in(oom->file);
}

bool vb_oom_killed(struct vb_oom *oom)
{
    if (oom->kills < 0 || count_in(oom->file) <= oom->kills)
        return false;
    oom->kills++; /* the rest of the count is for the next death */
    return true;
}

long long vb_launch_memory_limit(void)
{
    struct vb_oom oom;

    vb_oom_init(&oom, "");
    return oom.limit_bytes;
}
