/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <sys/stat.h>

#define HUGE_LEN ((size_t)6 << 20)

static bool all_zero(const struct vb_mem *mem)
{
    const unsigned char *p = mem->ptr;
    size_t i;

    for (i = 0; i < mem->len_bytes; i += 512)
        if (p[i] != 0)
            return false;
    return p[mem->len_bytes - 1] == 0;
}

static void private_memory_is_zeroed_and_aligned(void **state)
{
    static const size_t lens[] = {1, 4096, 100000, HUGE_LEN - 1, HUGE_LEN};
    struct vb_mem mem;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(lens); i++) {
        assert_int_equal(vb_mem_map_private(lens[i], &mem), VB_OK);
        assert_true(mem.len_bytes >= lens[i]);
        assert_int_equal((uintptr_t)mem.ptr % (size_t)sysconf(_SC_PAGESIZE), 0);
        assert_int_equal(mem.fd, -1);
        if (mem.pages != VB_PAGES_SMALL)
            assert_int_equal((uintptr_t)mem.ptr % ((size_t)2 << 20), 0);
        assert_true(all_zero(&mem));
        memset(mem.ptr, 1, mem.len_bytes);
        vb_mem_unmap(&mem);
        assert_null(mem.ptr);
        vb_mem_unmap(&mem);
    }
}

/* Another process that maps the descriptor gets the same memory. */
static void shared_memory_is_shared(void **state)
{
    static const size_t lens[] = {1, 100000, HUGE_LEN};
    struct vb_mem mem;
    unsigned char *twin;
    struct stat sb;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(lens); i++) {
        assert_int_equal(vb_mem_map_shared("verbena-test", lens[i], &mem), VB_OK);
        assert_int_equal(vb_mem_populate(&mem), VB_OK);
        assert_true(all_zero(&mem));
        assert_int_equal(fstat(mem.fd, &sb), 0);
        assert_int_equal(sb.st_size, mem.len_bytes);
        assert_true((size_t)sb.st_blocks * 512 >= mem.len_bytes); /* every page must be allocated */
        twin = mmap(NULL, mem.len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mem.fd, 0);
        assert_ptr_not_equal(twin, MAP_FAILED);
        twin[mem.len_bytes - 1] = 42;
        assert_int_equal(((unsigned char *)mem.ptr)[mem.len_bytes - 1], 42);
        munmap(twin, mem.len_bytes);
        vb_mem_unmap(&mem);
    }
}

/* Returns the number of bytes of the mapping at this address that are on huge pages, according to
 * /proc. */
static size_t on_huge_pages(const void *at)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    unsigned long start, end, kib, sum = 0;
    bool here = false;
    char line[512];

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            here = start <= (unsigned long)at && (unsigned long)at < end;
        else if (here && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
            sum += kib;
    }
    fclose(f);
    return (size_t)sum * 1024;
}

/* If vb_mem_populate() reports huge pages, all of the memory must be on huge pages. This is tested
 * only where the kernel gives shared memory no huge pages by itself. */
static void shared_memory_is_on_the_reported_pages(void **state)
{
    struct vb_mem mem;
    char line[128];

    (void)state;
    if (!vb_probe_line(line, sizeof(line), "/sys/kernel/mm/transparent_hugepage/shmem_enabled") ||
        strstr(line, "[never]") == NULL)
        skip();
    assert_int_equal(vb_mem_map_shared("verbena-test", HUGE_LEN, &mem), VB_OK);
    if (mem.pages != VB_PAGES_RESERVED) {
        assert_int_equal(mem.pages, VB_PAGES_SMALL); /* because huge pages were not requested yet */
        assert_int_equal(vb_mem_populate(&mem), VB_OK);
        if (mem.pages == VB_PAGES_TRANSPARENT) /* otherwise too few huge pages were free */
            assert_int_equal(on_huge_pages(mem.ptr), mem.len_bytes);
    }
    vb_mem_unmap(&mem);
}

/* Sealed memory keeps its contents and its address, and nobody can map it for writing. */
static void sealed_memory_is_read_only(void **state)
{
    static const size_t lens[] = {1, 100000, HUGE_LEN};
    struct vb_mem mem, other;
    struct vb_mem_id id;
    char why[VB_OPTS_WHY];
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(lens); i++) {
        assert_int_equal(vb_mem_map_sealable("verbena-test", lens[i], &mem), VB_OK);
        memset(mem.ptr, 42, lens[i]);
        assert_int_equal(vb_mem_seal(&mem), VB_OK);
        assert_int_equal(vb_mem_identify(&mem, &id), VB_OK);
        assert_int_equal(vb_mem_map_other(&id, &other, why), VB_OK);
        assert_memory_equal(mem.ptr, other.ptr, lens[i]);
        assert_ptr_equal(mmap(NULL, 1, PROT_WRITE, MAP_SHARED, mem.fd, 0), MAP_FAILED);
        assert_int_equal(ftruncate(mem.fd, 0), -1);
        assert_int_equal(pwrite(mem.fd, "x", 1, 0), -1);
        vb_mem_unmap(&mem);
        assert_int_equal(((unsigned char *)other.ptr)[lens[i] - 1], 42);
        vb_mem_unmap(&other);
    }
}

/* A process may be another one than the id means, because numbers of processes are used again. */
static void other_memory_is_recognised(void **state)
{
    struct vb_mem mem, other = {.ptr = NULL};
    struct vb_mem_id id, wrong;
    char why[VB_OPTS_WHY];

    (void)state;
    assert_int_equal(vb_mem_map_sealable("verbena-test", 5000, &mem), VB_OK);
    assert_int_equal(vb_mem_identify(&mem, &id), VB_OK);
    wrong = id;
    wrong.ino++;
    assert_int_equal(vb_mem_map_other(&wrong, &other, why), VB_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "another file"));
    wrong = id;
    wrong.len_bytes *= 2;
    assert_int_equal(vb_mem_map_other(&wrong, &other, why), VB_ERR_UNSUPPORTED);
    wrong = id;
    wrong.fd = 1000000;
    assert_int_equal(vb_mem_map_other(&wrong, &other, why), VB_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "cannot open"));
    assert_null(other.ptr);
    vb_mem_unmap(&mem);
}

static void *map_and_unmap(void *arg)
{
    struct vb_mem mem;
    int i;

    for (i = 0; i < 50; i++) {
        if (vb_mem_map_shared("verbena-test", HUGE_LEN, &mem) != VB_OK)
            return NULL;
        if (vb_mem_populate(&mem) != VB_OK)
            return NULL;
        memset(mem.ptr, i, mem.len_bytes);
        vb_mem_unmap(&mem);
    }
    return arg;
}

/* If no huge pages are reserved, the first attempt to map fails, and its memory is unmapped. That
 * must not unmap memory that another thread has just mapped. */
static void threads_may_map_at_the_same_time(void **state)
{
    pthread_t ids[4];
    void *ok;
    int i;

    (void)state;
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, map_and_unmap, ids), 0);
    for (i = 0; i < 4; i++) {
        pthread_join(ids[i], &ok);
        assert_ptr_equal(ok, ids);
    }
}

static void impossible_sizes_are_refused(void **state)
{
    struct vb_mem mem = {.fd = 7};
    struct t_stderr t;
    char text[2048];

    (void)state;
    t_stderr_catch(&t);
    assert_int_equal(vb_mem_map_private(0, &mem), VB_ERR_USAGE);
    assert_int_equal(vb_mem_map_shared("x", SIZE_MAX, &mem), VB_ERR_USAGE);
    assert_true(vb_mem_map_private((size_t)1 << 60, &mem) < 0);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(mem.fd, 7); /* a failed call must not change its output */
    assert_non_null(strstr(text, "map 0 bytes"));
}

static void small_blocks_are_aligned_and_zeroed(void **state)
{
    size_t len, i;
    char *p;

    (void)state;
    for (len = 0; len < 300; len += 37) {
        p = vb_alloc_aligned(len);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % VB_CACHE_LINE, 0);
        for (i = 0; i < len; i++)
            assert_int_equal(p[i], 0);
        free(p);
    }
    assert_null(vb_alloc_aligned(SIZE_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(private_memory_is_zeroed_and_aligned),
        cmocka_unit_test(shared_memory_is_shared),
        cmocka_unit_test(shared_memory_is_on_the_reported_pages),
        cmocka_unit_test(sealed_memory_is_read_only),
        cmocka_unit_test(other_memory_is_recognised),
        cmocka_unit_test(threads_may_map_at_the_same_time),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(small_blocks_are_aligned_and_zeroed),
    };

    return T_RUN(tests);
}
