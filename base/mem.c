/* SPDX-License-Identifier: MIT
 *
 * Maps memory on huge pages if possible. A large weight vector then has far fewer pages, so that
 * random reads of the vector miss the TLB less often.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
/* since Linux 5.14; the headers of Ubuntu 22.04 do not define this constant */
#define MADV_POPULATE_WRITE 23
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

#define THP_DIR "/sys/kernel/mm/transparent_hugepage/"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* since Linux 5.1 */
#endif

#define WRITABLE (PROT_READ | PROT_WRITE)
#define READ_AT_ONCE ((size_t)256 << 20) /* bytes; less is mapped with all its pages */

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static size_t small_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The size of a transparent huge page: mostly 2 MiB, but 512 MiB on Arm with 64 KiB pages. */
static size_t huge_page(void)
{
    int64_t bytes;

    if (vb_probe_int(&bytes, THP_DIR "hpage_pmd_size") && bytes > 0)
        return (size_t)bytes;
    return (size_t)2 << 20;
}

/* Returns true if a setting of the kernel has this value. The file lists all values, with the
 * current value in brackets: "always [madvise] never". */
static bool setting_is(const char *file, const char *value)
{
    char line[128], marked[32];

    snprintf(marked, sizeof(marked), "[%s]", value);
    return vb_probe_line(line, sizeof(line), "%s%s", THP_DIR, file) && strstr(line, marked) != NULL;
}

/* A mapping smaller than one huge page would waste memory on it. */
static bool want_huge(size_t len)
{
    return len >= huge_page();
}

/* Maps len bytes at a multiple of align: in the middle of a larger reserved range, whose ends are
 * then unmapped. If mmap() with MAP_FIXED fails, it may already have removed the reservation, and
 * another thread may have mapped the middle since: so the middle is not unmapped. */
static void *map_aligned(size_t len, size_t align, int prot, int flags, int fd)
{
    char *room, *start;
    void *ptr;
    int err;

    room = mmap(NULL, len + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    start = room + (round_up((size_t)room, align) - (size_t)room);
    ptr = mmap(start, len, prot, flags | MAP_FIXED, fd, 0);
    err = errno;
    if (start > room)
        munmap(room, (size_t)(start - room));
    munmap(start + len, (size_t)(room + align - start));
    errno = err;
    return ptr;
}

/* Refuses sizes for which rounding up would overflow. */
static vb_status check_len(size_t len)
{
    if (len == 0 || len > SIZE_MAX / 4)
        return vb_err(VB_ERR_USAGE,
                      "cannot map %zu bytes: the size must be larger than 0 and smaller than a "
                      "quarter of the address space",
                      len);
    return VB_OK;
}

vb_status vb_mem_map_private(size_t len_bytes, struct vb_mem *mem_p)
{
    bool huge = want_huge(len_bytes) && !setting_is("enabled", "never");
    size_t unit = huge ? huge_page() : small_page();
    struct vb_mem mem = {.fd = -1, .pages = VB_PAGES_SMALL};
    vb_status st;

    st = check_len(len_bytes);
    if (st != VB_OK)
        return st;
    mem.len_bytes = round_up(len_bytes, unit);
    mem.ptr = map_aligned(mem.len_bytes, unit, WRITABLE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (mem.ptr == MAP_FAILED)
        return vb_err_sys("map %zu bytes", mem.len_bytes);
    if (huge && madvise(mem.ptr, mem.len_bytes, MADV_HUGEPAGE) == 0)
        mem.pages = VB_PAGES_TRANSPARENT;
    *mem_p = mem;
    return VB_OK;
}

/* Maps shared memory on reserved huge pages. Returns false if too few are free: mmap() fails. */
static bool map_reserved(const char *name, size_t len, struct vb_mem *mem)
{
    struct stat sb;
    size_t unit;

    mem->fd = memfd_create(name, MFD_CLOEXEC | MFD_HUGETLB);
    if (mem->fd < 0)
        return false;
    if (fstat(mem->fd, &sb) != 0 || sb.st_blksize <= 0)
        goto err_fd;
    unit = (size_t)sb.st_blksize;
    mem->len_bytes = round_up(len, unit);
    if (ftruncate(mem->fd, (off_t)mem->len_bytes) != 0)
        goto err_fd;
    /* the kernel aligns this mapping to a huge page */
    mem->ptr = mmap(NULL, mem->len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mem->fd, 0);
    if (mem->ptr == MAP_FAILED)
        goto err_fd;
    mem->pages = VB_PAGES_RESERVED;
    return true;

err_fd:
    close(mem->fd);
    return false;
}

/* Returns true if shared memory cannot have huge pages. The default "never" only stops the kernel
 * from using them on its own. vb_mem_populate() requests them, which only "deny" forbids. */
static bool shmem_huge_denied(void)
{
    char line[128];

    return setting_is("shmem_enabled", "deny") ||
           !vb_probe_line(line, sizeof(line), THP_DIR "shmem_enabled");
}

/* Maps shared memory on transparent huge pages or on small pages. */
static vb_status map_memfd(const char *name, size_t len_bytes, unsigned flags, struct vb_mem *mem_p)
{
    bool huge = want_huge(len_bytes) && !shmem_huge_denied();
    size_t unit = huge ? huge_page() : small_page();
    struct vb_mem mem = {.pages = VB_PAGES_SMALL};
    vb_status st;

    mem.len_bytes = round_up(len_bytes, unit);
    mem.fd = memfd_create(name, MFD_CLOEXEC | flags);
    if (mem.fd < 0)
        return vb_err_sys("memfd_create %s", name);
    if (ftruncate(mem.fd, (off_t)mem.len_bytes) != 0) {
        st = vb_err_sys("cannot create shared memory of %zu bytes", mem.len_bytes);
        goto err_fd;
    }
    mem.ptr = map_aligned(mem.len_bytes, unit, WRITABLE, MAP_SHARED, mem.fd);
    if (mem.ptr == MAP_FAILED) {
        st = vb_err_sys("cannot map %zu bytes of shared memory", mem.len_bytes);
        goto err_fd;
    }
    if (huge && madvise(mem.ptr, mem.len_bytes, MADV_HUGEPAGE) == 0 &&
        !setting_is("shmem_enabled", "never"))
        mem.pages = VB_PAGES_TRANSPARENT;
    *mem_p = mem;
    return VB_OK;

err_fd:
    close(mem.fd);
    return st;
}

vb_status vb_mem_map_shared(const char *name, size_t len_bytes, struct vb_mem *mem_p)
{
    struct vb_mem mem = {.pages = VB_PAGES_SMALL};
    vb_status st = check_len(len_bytes);

    if (st != VB_OK)
        return st;
    if (want_huge(len_bytes) && map_reserved(name, len_bytes, &mem)) {
        *mem_p = mem;
        return VB_OK;
    }
    return map_memfd(name, len_bytes, 0, mem_p);
}

/* Asks the kernel for huge pages of shared memory, which the setting "never" allows. A huge page
 * is built from at least one small page, so one is populated first. Failure is harmless. */
static void collapse(struct vb_mem *mem)
{
    size_t huge = huge_page(), page = small_page(), i;

    if (mem->fd < 0 || mem->pages != VB_PAGES_SMALL || mem->len_bytes % huge != 0)
        return;
    for (i = 0; i < mem->len_bytes; i += huge)
        if (madvise((char *)mem->ptr + i, page, MADV_POPULATE_WRITE) != 0)
            return;
    if (madvise(mem->ptr, mem->len_bytes, MADV_COLLAPSE) == 0)
        mem->pages = VB_PAGES_TRANSPARENT;
}

vb_status vb_mem_populate(struct vb_mem *mem)
{
    static const char *const names[] = {[VB_PAGES_SMALL] = "small pages",
                                        [VB_PAGES_TRANSPARENT] = "transparent huge pages",
                                        [VB_PAGES_RESERVED] = "reserved huge pages"};
    int err;

    collapse(mem);
    if (madvise(mem->ptr, mem->len_bytes, MADV_POPULATE_WRITE) == 0)
        return VB_OK;
    if (errno == EINVAL && mem->fd >= 0) { /* the kernel is older than 5.14 */
        err = posix_fallocate(mem->fd, 0, (off_t)mem->len_bytes);
        if (err == 0)
            return VB_OK;
        errno = err;
    } else if (errno == EINVAL) {
        return VB_OK; /* the kernel will allocate the private pages when they are touched */
    }
    return vb_err_sys("cannot allocate %zu bytes on %s", mem->len_bytes, names[mem->pages]);
}

vb_status vb_mem_map_sealable(const char *name, size_t len_bytes, struct vb_mem *mem_p)
{
    vb_status st = check_len(len_bytes);

    if (st == VB_OK)
        st = map_memfd(name, len_bytes, MFD_ALLOW_SEALING, mem_p);
    if (st != VB_OK)
        return st;
    st = vb_mem_populate(mem_p);
    if (st != VB_OK)
        vb_mem_unmap(mem_p);
    return st;
}

/* F_SEAL_WRITE would need the mapping to be removed first. Since only this process has mapped the
 * memory for writing, it is enough that nobody can do so from now on. Before Linux 5.1 others can;
 * vb_mem_map_other() does not. */
vb_status vb_mem_seal(struct vb_mem *mem)
{
    int size = F_SEAL_SHRINK | F_SEAL_GROW;

    if (fcntl(mem->fd, F_ADD_SEALS, size | F_SEAL_FUTURE_WRITE) != 0 &&
        fcntl(mem->fd, F_ADD_SEALS, size) != 0)
        return vb_err_sys("cannot seal %zu bytes of shared memory", mem->len_bytes);
    if (mprotect(mem->ptr, mem->len_bytes, PROT_READ) != 0)
        return vb_err_sys("mprotect");
    return VB_OK;
}

vb_status vb_mem_identify(const struct vb_mem *mem, struct vb_mem_id *id_p)
{
    struct stat sb;

    if (fstat(mem->fd, &sb) != 0)
        return vb_err_sys("fstat");
    *id_p = (struct vb_mem_id){.pid = (int32_t)getpid(),
                               .fd = mem->fd,
                               .dev = (uint64_t)sb.st_dev,
                               .ino = (uint64_t)sb.st_ino,
                               .len_bytes = mem->len_bytes};
    return VB_OK;
}

static vb_status not_mapped(char *why, const char *what, const struct vb_mem_id *id)
{
    snprintf(why, VB_OPTS_WHY, "%s /proc/%d/fd/%d: %s", what, id->pid, id->fd, strerror(errno));
    return VB_ERR_UNSUPPORTED;
}

vb_status vb_mem_map_other(const struct vb_mem_id *id, struct vb_mem *mem_p, char why[VB_OPTS_WHY])
{
    size_t unit = id->len_bytes % huge_page() == 0 ? huge_page() : small_page();
    int flags = MAP_SHARED | (id->len_bytes <= READ_AT_ONCE ? MAP_POPULATE : 0);
    struct vb_mem mem = {.pages = VB_PAGES_SMALL, .len_bytes = id->len_bytes};
    vb_status st = VB_OK;
    char path[64];
    struct stat sb;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", id->pid, id->fd);
    mem.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (mem.fd < 0 || fstat(mem.fd, &sb) != 0) {
        st = not_mapped(why, "cannot open", id);
    } else if ((uint64_t)sb.st_dev != id->dev || (uint64_t)sb.st_ino != id->ino ||
               (uint64_t)sb.st_size != id->len_bytes || id->len_bytes == 0) {
        snprintf(why, VB_OPTS_WHY, "%s is another file", path);
        st = VB_ERR_UNSUPPORTED;
    } else {
        mem.ptr = map_aligned(mem.len_bytes, unit, PROT_READ, flags, mem.fd);
        if (mem.ptr == MAP_FAILED)
            st = not_mapped(why, "cannot map", id);
    }
    if (mem.fd >= 0)
        close(mem.fd); /* the mapping does not need it */
    mem.fd = -1;
    if (st == VB_OK)
        *mem_p = mem;
    return st;
}

void vb_mem_unmap(struct vb_mem *mem)
{
    if (mem->ptr == NULL)
        return;
    if (munmap(mem->ptr, mem->len_bytes) != 0)
        VB_LOG_WARN("cannot unmap %zu bytes: %s", mem->len_bytes, strerror(errno));
    if (mem->fd >= 0)
        close(mem->fd);
    memset(mem, 0, sizeof(*mem));
    mem->fd = -1;
}

void *vb_alloc_aligned(size_t len_bytes)
{
    size_t len;
    void *ptr;

    if (len_bytes > SIZE_MAX - VB_CACHE_LINE)
        return NULL;
    len = round_up(len_bytes > 0 ? len_bytes : 1, VB_CACHE_LINE);
    ptr = aligned_alloc(VB_CACHE_LINE, len);
    if (ptr != NULL)
        memset(ptr, 0, len);
    return ptr;
}
