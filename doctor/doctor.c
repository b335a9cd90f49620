/* SPDX-License-Identifier: MIT
 *
 * Judges the facts of a machine: what would slow down a job (WARN) or stop it (FAIL), and the
 * commands that fix it. Missing RDMA stops no job, because TCP can be used instead.
 */
#include "doctor/doctor_priv.h"

#include <string.h>
#include <strings.h>

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

#define MEMLOCK_NEED (256 * MIB) /* AlexNet: windows for the gradients, and message slots */
#define MEMORY_NEED (2 * GIB)    /* AlexNet: weights twice, gradients, state, activations */
#define FILES_NEED 1024          /* a large job: several sockets per peer, and the data files */
#define FILES_LEAST 64           /* with fewer open files, not even a single rank could run */

const char *vb_check_level_str(enum vb_check_level level)
{
    return level == VB_CHECK_WARN ? "WARN" : level == VB_CHECK_FAIL ? "FAIL" : "OK";
}

/* ---- filling a check ------------------------------------------------------------------------- */

struct vb_check *vb_check_begin(struct vb_checks *checks, const char *name)
{
    struct vb_check *check = &checks->list[checks->n];

    VB_ASSERT(checks->n < VB_CHECKS_MAX);
    checks->n++;
    *check = (struct vb_check){.name = name, .level = VB_CHECK_OK};
    return check;
}

static void VB_PRINTF(3, 0) append_v(char *buf, size_t size, const char *fmt, va_list args)
{
    size_t len = strlen(buf);

    vsnprintf(buf + len, size - len, fmt, args);
}

void vb_check_say(struct vb_check *check, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    append_v(check->what, sizeof(check->what), fmt, args);
    va_end(args);
}

void vb_check_warn(struct vb_check *check, const char *fmt, ...)
{
    va_list args;

    check->level = VB_CHECK_WARN;
    va_start(args, fmt);
    append_v(check->what, sizeof(check->what), fmt, args);
    va_end(args);
}

void vb_check_fix(struct vb_check *check, const char *fmt, ...)
{
    va_list args;

    if (check->fix[0] != '\0')
        strncat(check->fix, " && ", sizeof(check->fix) - strlen(check->fix) - 1);
    va_start(args, fmt);
    append_v(check->fix, sizeof(check->fix), fmt, args);
    va_end(args);
}

bool vb_check_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._+~:@-";

    return name[0] != '\0' && name[0] != '-' && name[strspn(name, plain)] == '\0';
}

struct size_text {
    char text[32];
};

static struct size_text size_of(int64_t bytes)
{
    struct size_text size;

    if (bytes == VB_LIMIT_NONE)
        snprintf(size.text, sizeof(size.text), "unlimited");
    else if (bytes >= GIB)
        snprintf(size.text, sizeof(size.text), "%.1f GiB", (double)bytes / (double)GIB);
    else if (bytes >= MIB)
        snprintf(size.text, sizeof(size.text), "%.0f MiB", (double)bytes / (double)MIB);
    else
        snprintf(size.text, sizeof(size.text), "%.0f KiB", (double)bytes / 1024);
    return size;
}

/* pam_limits applies "*" to all users except root, and only at the next login. */
static void fix_limit(struct vb_check *check, const char *item, const char *value)
{
    vb_check_fix(check,
                 "printf '%%s\\n' '* - %s %s' 'root - %s %s' | sudo tee "
                 "/etc/security/limits.d/90-verbena-%s.conf # then log in again",
                 item, value, item, value, item);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void check_memlock(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "memlock");
    const struct vb_limit *limit = &facts->memlock;

    if (limit->hard == VB_LIMIT_UNKNOWN) {
        vb_check_say(check, "the limit of locked memory is not known");
        return;
    }
    vb_check_say(check, "locked memory is limited to %s (hard limit %s)", size_of(limit->soft).text,
                 size_of(limit->hard).text);
    if (facts->may_lock) {
        vb_check_say(check, ", which does not apply to this user (CAP_IPC_LOCK)");
    } else if (limit->soft >= MEMLOCK_NEED) {
        vb_check_say(check, "; RDMA needs %s", size_of(MEMLOCK_NEED).text);
    } else if (limit->hard >= MEMLOCK_NEED) {
        vb_check_warn(check, ", but RDMA registers at least %s", size_of(MEMLOCK_NEED).text);
        vb_check_fix(check, "ulimit -S -l $(ulimit -H -l)");
    } else {
        vb_check_warn(
            check,
            ", but RDMA registers at least %s: registering would fail, and jobs would use TCP",
            size_of(MEMLOCK_NEED).text);
        fix_limit(check, "memlock", "unlimited");
    }
}

static void check_files(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "files");
    const struct vb_limit *limit = &facts->files;
    char hard[24] = "unlimited";

    if (limit->hard == VB_LIMIT_UNKNOWN) {
        vb_check_say(check, "the limit of open files is not known");
        return;
    }
    if (limit->hard != VB_LIMIT_NONE)
        snprintf(hard, sizeof(hard), "%lld", (long long)limit->hard);
    if (limit->soft == VB_LIMIT_NONE)
        vb_check_say(check, "open files are not limited");
    else
        vb_check_say(check, "open files are limited to %lld (hard limit %s)",
                     (long long)limit->soft, hard);
    if (limit->soft >= FILES_NEED)
        return;
    if (limit->hard >= FILES_NEED) {
        check->level = limit->soft < FILES_LEAST ? VB_CHECK_FAIL : VB_CHECK_WARN;
        vb_check_say(check, ", but a job of many ranks needs up to %d", FILES_NEED);
        vb_check_fix(check, "ulimit -S -n %d", FILES_NEED);
        return;
    }
    check->level = limit->hard < FILES_LEAST ? VB_CHECK_FAIL : VB_CHECK_WARN;
    vb_check_say(check, ", but %s",
                 check->level == VB_CHECK_FAIL ? "a single rank needs 64"
                                               : "a job of many ranks needs up to 1024");
    fix_limit(check, "nofile", "65536");
}

static void check_shm(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "shm");

    if (facts->recorded) {
        vb_check_say(check, "shared memory cannot be tested in a recording");
    } else if (facts->shm == VB_OK) {
        vb_check_say(check, "shared memory works (memfd_create)");
    } else {
        check->level = VB_CHECK_FAIL;
        vb_check_say(check, "shared memory is not available (memfd_create: %s): no rank can start",
                     vb_status_str(facts->shm));
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (strcmp(text, list[i]) == 0)
            return true;
    return false;
}

static void judge_private_pages(const struct vb_facts *facts, struct vb_check *check)
{
    static const char *const good[] = {"always", "madvise"};

    if (facts->thp[0] == '\0') {
        vb_check_warn(check, "the kernel has no transparent huge pages");
        return;
    }
    vb_check_say(check, "transparent huge pages are %s for private memory", facts->thp);
    if (!is_one_of(facts->thp, good, VB_COUNT(good))) {
        check->level = VB_CHECK_WARN;
        vb_check_fix(check, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    }
}

static void judge_shared_pages(const struct vb_facts *facts, struct vb_check *check)
{
    static const char *const good[] = {"always", "within_size", "advise", "force"};

    if (facts->huge_total > 0) {
        vb_check_say(check,
                     "; %lld huge pages of %lld KiB are reserved for shared memory, %lld "
                     "of them free",
                     (long long)facts->huge_total, (long long)facts->huge_page_kib,
                     (long long)facts->huge_free);
        return;
    }
    if (is_one_of(facts->shmem_thp, good, VB_COUNT(good))) {
        vb_check_say(check, ", %s for shared memory", facts->shmem_thp);
        return;
    }
    vb_check_warn(check, "; shared memory gets no huge pages (%s, 0 reserved)",
                  facts->shmem_thp[0] != '\0' ? facts->shmem_thp : "not in this kernel");
    if (facts->shmem_thp[0] != '\0')
        vb_check_fix(check,
                     "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    else
        vb_check_fix(check, "sudo sysctl -w vm.nr_hugepages=512");
}

static void check_hugepages(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "hugepages");

    if (facts->recorded && facts->thp[0] == '\0' && facts->memory_bytes == 0) {
        vb_check_say(check, "the recording has nothing about huge pages");
        return;
    }
    judge_private_pages(facts, check);
    judge_shared_pages(facts, check);
}

/* ---- cpus ------------------------------------------------------------------------------------ */

static void check_governor(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "governor");

    if (facts->n_governed == 0) {
        vb_check_say(check, "the kernel does not control the frequency of the cpus");
    } else if (facts->n_slow_governed == 0) {
        vb_check_say(check, "all %d cpus have the frequency governor %s", facts->n_governed,
                     facts->governor);
    } else {
        vb_check_warn(
            check,
            "%d of %d cpus have the frequency governor %s, which raises the frequency slowly",
            facts->n_slow_governed, facts->n_governed, facts->governor);
        vb_check_fix(check, "echo performance | sudo tee "
                            "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
    }
}

static void check_affinity(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "affinity");

    if (facts->n_cpus == 0 || facts->n_allowed_cpus == 0) {
        if (!facts->recorded)
            check->level = VB_CHECK_FAIL;
        vb_check_say(check, "%s",
                     facts->recorded ? "the allowed cpus are not recorded"
                                     : "hwloc cannot read the cpus of this machine");
        return;
    }
    vb_check_say(check, "%d of %d cpus may be used", facts->n_allowed_cpus, facts->n_cpus);
    if (facts->n_allowed_cpus < facts->n_cpus) {
        vb_check_warn(check, ", because of affinity or cgroup");
        vb_check_fix(check, "taskset -pc 0-%d $$ # or give the container more cpus",
                     facts->n_cpus - 1);
    }
}

static void check_cgroup(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "cgroup");
    int threads = facts->cpu_quota >= 2 ? (int)facts->cpu_quota : 1;

    if (facts->cpu_quota <= 0) {
        vb_check_say(check, "no limit on cpu time");
    } else {
        vb_check_say(check, "cpu time is limited to that of %.1f cpus", facts->cpu_quota);
        if (facts->cpu_quota < facts->n_allowed_cpus) {
            vb_check_warn(check,
                          ", fewer than the %d allowed, so the kernel would stop threads many "
                          "times a second",
                          facts->n_allowed_cpus);
            vb_check_fix(check, "export VB_THREADS=%d", threads);
        }
    }
    if (facts->memory_limit_bytes <= 0) {
        vb_check_say(check, "; no limit on memory");
        return;
    }
    vb_check_say(check, "; memory is limited to %s", size_of(facts->memory_limit_bytes).text);
    if (facts->memory_limit_bytes < MEMORY_NEED) {
        vb_check_warn(check, ", too little for AlexNet, which needs up to %s",
                      size_of(MEMORY_NEED).text);
    }
}

static void check_kernels(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "kernels");
    char choice[384];

    if (facts->recorded) {
        vb_check_say(check, "kernels cannot be tested in a recording");
        return;
    }
    if (facts->blas.core[0] != '\0') {
        vb_k_dense_choice(&facts->onednn, &facts->blas, choice, sizeof(choice));
        vb_check_say(check, "%s", choice);
    } else {
        vb_check_warn(check, "OpenBLAS cannot be loaded, so slower kernels may compute");
        vb_check_fix(check, "sudo apt install libopenblas0-pthread");
    }
    if (facts->onednn_status != VB_OK) {
        vb_check_warn(check, "; oneDNN failed (%s)", vb_status_str(facts->onednn_status));
        vb_check_fix(check, "sudo apt install --reinstall 'libdnnl[0-9]*'");
    }
    if (strcasecmp(facts->blas.core, "generic") == 0) {
        vb_check_warn(check, "; OpenBLAS does not know this CPU and uses generic kernels");
        vb_check_fix(check, "sudo apt install --only-upgrade libopenblas0-pthread");
    }
}

/* ---- clock ----------------------------------------------------------------------------------- */

/* `clocks` is the kernel's list, in which blanks separate the names. */
static bool offers(const char *clocks, const char *name)
{
    size_t n;

    for (; *clocks != '\0'; clocks += n + (clocks[n] == ' ')) {
        n = strcspn(clocks, " ");
        if (n == strlen(name) && strncmp(clocks, name, n) == 0)
            return true;
    }
    return false;
}

static void check_clock(const struct vb_facts *facts, struct vb_checks *checks)
{
    /* Reading one of the slow clocks takes a system call or an access to a slow device. */
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"};
    static const char *const fast[] = {"tsc", "arch_sys_counter", "kvm-clock"};
    struct vb_check *check = vb_check_begin(checks, "clock");
    size_t i;

    if (facts->clock[0] == '\0') {
        vb_check_say(check, "the clock source is not known");
        return;
    }
    vb_check_say(check, "the clock source is %s", facts->clock);
    if (!is_one_of(facts->clock, slow, VB_COUNT(slow)))
        return;
    vb_check_warn(check, ", which is slow to read: timing every step would slow a job down");
    for (i = 0; i < VB_COUNT(fast); i++)
        if (offers(facts->clocks, fast[i])) {
            vb_check_fix(check,
                         "echo %s | sudo tee "
                         "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                         fast[i]);
            return;
        }
}

int vb_doctor_judge(const struct vb_facts *facts, struct vb_check checks_p[VB_CHECKS_MAX])
{
    struct vb_checks checks = {.list = checks_p, .n = 0};

    vb_check_rdma(facts, &checks);
    vb_check_soft_roce(facts, &checks);
    vb_check_interfaces(facts, &checks);
    check_memlock(facts, &checks);
    check_hugepages(facts, &checks);
    check_governor(facts, &checks);
    check_affinity(facts, &checks);
    check_cgroup(facts, &checks);
    check_kernels(facts, &checks);
    check_files(facts, &checks);
    check_clock(facts, &checks);
    check_shm(facts, &checks);
    vb_check_host(facts, &checks);
    return checks.n;
}
