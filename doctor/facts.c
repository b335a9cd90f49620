/* SPDX-License-Identifier: MIT
 *
 * Gathers the facts that doctor judges. Files are read below the sysroot. Limits, shared memory and
 * kernels are facts of this process; a recording may have files about the limits.
 */
#include "doctor/doctor_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THP_DIR "/sys/kernel/mm/transparent_hugepage"
#define CLOCK_DIR "/sys/devices/system/clocksource/clocksource0"
#define CAP_IPC_LOCK_BIT 14

/* ---- reading --------------------------------------------------------------------------------- */

/* Copies the first line without blanks around it. Bytes that are not printable become '?'. */
static void copy_trimmed(char *buf, size_t size, const char *text)
{
    size_t len, i;

    text += strspn(text, " \t");
    len = strcspn(text, "\n");
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    if (len >= size)
        len = size - 1;
    for (i = 0; i < len; i++)
        buf[i] =
            (char)((unsigned char)text[i] < ' ' || (unsigned char)text[i] > '~' ? '?' : text[i]);
    buf[len] = '\0';
}

struct search {
    const char *prefix;
    char *buf;
    size_t size;
    bool found;
};

static bool look_at_line(char *line, void *arg)
{
    struct search *search = arg;
    size_t len = strlen(search->prefix);

    search->found = strncmp(line, search->prefix, len) == 0;
    if (search->found)
        copy_trimmed(search->buf, search->size, line + len);
    return !search->found;
}

bool vb_facts_field(const char *sysroot, const char *path, const char *prefix, char *buf,
                    size_t size)
{
    struct search search = {.prefix = prefix, .buf = buf, .size = size};

    buf[0] = '\0';
    vb_probe_lines(look_at_line, &search, "%s%s", sysroot, path);
    return search.found;
}

/* Returns the number at the start of a field, or 0. A unit may follow the number. */
static int64_t field_int(const char *sysroot, const char *path, const char *prefix)
{
    char text[64];
    int64_t value;

    if (!vb_facts_field(sysroot, path, prefix, text, sizeof(text)))
        return 0;
    text[strcspn(text, " ")] = '\0';
    return vb_parse_int(text, &value) && value > 0 ? value : 0;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static int64_t from_rlim(rlim_t value)
{
    return value == RLIM_INFINITY || value > (rlim_t)INT64_MAX ? VB_LIMIT_NONE : (int64_t)value;
}

static struct vb_limit own_limit(int resource)
{
    struct vb_limit limit = {VB_LIMIT_UNKNOWN, VB_LIMIT_UNKNOWN};
    struct rlimit own;

    if (getrlimit(resource, &own) == 0) {
        limit.soft = from_rlim(own.rlim_cur);
        limit.hard = from_rlim(own.rlim_max);
    }
    return limit;
}

static int64_t limit_value(const char *text)
{
    int64_t value;

    if (strcmp(text, "unlimited") == 0)
        return VB_LIMIT_NONE;
    return vb_parse_int(text, &value) && value >= 0 ? value : VB_LIMIT_UNKNOWN;
}

/* Reads a line such as "Max locked memory  8388608  unlimited  bytes". */
static struct vb_limit recorded_limit(const char *sysroot, const char *prefix)
{
    struct vb_limit limit = {VB_LIMIT_UNKNOWN, VB_LIMIT_UNKNOWN}, read;
    char line[128], soft[24], hard[24];

    if (!vb_facts_field(sysroot, "/proc/self/limits", prefix, line, sizeof(line)) ||
        sscanf(line, "%23s %23s", soft, hard) != 2)
        return limit;
    read.soft = limit_value(soft);
    read.hard = limit_value(hard);
    return read.soft >= 0 && read.hard >= 0 ? read : limit;
}

static void gather_limits(const char *sysroot, struct vb_facts *facts)
{
    char caps[32];

    if (facts->recorded) {
        facts->memlock = recorded_limit(sysroot, "Max locked memory");
        facts->files = recorded_limit(sysroot, "Max open files");
    } else {
        facts->memlock = own_limit(RLIMIT_MEMLOCK);
        facts->files = own_limit(RLIMIT_NOFILE);
    }
    if (vb_facts_field(sysroot, "/proc/self/status", "CapEff:", caps, sizeof(caps)))
        facts->may_lock = (strtoull(caps, NULL, 16) >> CAP_IPC_LOCK_BIT & 1) != 0;
}

/* ---- pages, clock, distribution -------------------------------------------------------------- */

/* The kernel puts the active setting in brackets: "always [madvise] never". */
static void gather_setting(const char *sysroot, const char *file, char *buf, size_t size)
{
    const char *open, *close_at;
    char line[128];

    vb_probe_line(line, sizeof(line), "%s" THP_DIR "/%s", sysroot, file);
    open = strchr(line, '[');
    close_at = open != NULL ? strchr(open, ']') : NULL;
    if (close_at != NULL && (size_t)(close_at - open) <= size)
        snprintf(buf, size, "%.*s", (int)(close_at - open - 1), open + 1);
}

static void gather_pages(const char *sysroot, struct vb_facts *facts)
{
    gather_setting(sysroot, "enabled", facts->thp, sizeof(facts->thp));
    gather_setting(sysroot, "shmem_enabled", facts->shmem_thp, sizeof(facts->shmem_thp));
    facts->huge_total = field_int(sysroot, "/proc/meminfo", "HugePages_Total:");
    facts->huge_free = field_int(sysroot, "/proc/meminfo", "HugePages_Free:");
    facts->huge_page_kib = field_int(sysroot, "/proc/meminfo", "Hugepagesize:");
    facts->memory_bytes = field_int(sysroot, "/proc/meminfo", "MemTotal:");
    /* KiB become bytes; overflow is checked, because a recording may have any number */
    facts->memory_bytes = facts->memory_bytes < INT64_MAX / 1024 ? facts->memory_bytes * 1024 : 0;
}

static void gather_clock(const char *sysroot, struct vb_facts *facts)
{
    char line[128];

    vb_probe_line(line, sizeof(line), "%s" CLOCK_DIR "/current_clocksource", sysroot);
    copy_trimmed(facts->clock, sizeof(facts->clock), line);
    vb_probe_line(line, sizeof(line), "%s" CLOCK_DIR "/available_clocksource", sysroot);
    copy_trimmed(facts->clocks, sizeof(facts->clocks), line);
}

static void gather_distro(const char *sysroot, struct vb_facts *facts)
{
    char id[48];
    const char *from = id;

    if (!vb_facts_field(sysroot, "/etc/os-release", "ID=", id, sizeof(id)))
        return;
    from += strspn(from, "\"'");
    snprintf(facts->distro, sizeof(facts->distro), "%.*s", (int)strcspn(from, "\"'"), from);
}

/* ---- abilities of this process --------------------------------------------------------------- */

static void gather_abilities(struct vb_facts *facts)
{
    struct vb_mem mem;

    facts->shm = vb_mem_map_shared("verbena-doctor", 4096, &mem);
    if (facts->shm == VB_OK)
        vb_mem_unmap(&mem);
    facts->onednn_status = vb_k_onednn_probe(&facts->onednn);
    vb_k_blas_probe(&facts->blas);
}

vb_status vb_facts_gather(const char *sysroot, struct vb_facts *facts_p)
{
    struct vb_facts facts = {.recorded = sysroot[0] != '\0'};
    vb_status st = vb_net_ifaces_list(sysroot, &facts.ifaces, &facts.n_ifaces);

    if (st != VB_OK)
        return st;
    st = vb_net_rdma_list(sysroot, &facts.rdma, &facts.n_rdma);
    if (st != VB_OK) {
        vb_net_ifaces_free(facts.ifaces);
        return st;
    }
    vb_net_rxe_probe(sysroot, &facts.rxe);
    gather_distro(sysroot, &facts);
    gather_limits(sysroot, &facts);
    gather_pages(sysroot, &facts);
    gather_clock(sysroot, &facts);
    vb_facts_governors(sysroot, &facts);
    vb_facts_cpus(sysroot, &facts);
    vb_facts_host(sysroot, &facts);
    facts.memory_limit_bytes = vb_facts_memory_limit(sysroot);
    if (!facts.recorded)
        gather_abilities(&facts);
    *facts_p = facts;
    return VB_OK;
}

void vb_facts_fini(struct vb_facts *facts)
{
    vb_net_ifaces_free(facts->ifaces);
    vb_net_rdma_free(facts->rdma, facts->n_rdma);
    memset(facts, 0, sizeof(*facts));
}
