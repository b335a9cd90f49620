/* SPDX-License-Identifier: MIT
 *
 * One copy of the data a host. Ranks of one host that would open the same data are *neighbours*,
 * and the lowest of them is the *keeper*. The keeper opens the data, and makes what is derived from
 * it, in sealed memory. Its *page*, which is shared memory too, says what is ready. The neighbours
 * map the page and the copies for reading, through /proc/PID/fd of the keeper. A random token in
 * the page shows that it is the page that the keeper has announced.
 *
 * A rank that cannot do so, because it is in another PID namespace or belongs to another user,
 * opens the data itself. So does the lowest rank of each PID namespace, for its own neighbours.
 */
#include "engine/train/train_room_priv.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_MAGIC UINT64_C(0x3165676150625648)
#define LOOK_MS 200 /* how often a rank that waits looks at the keeper */

enum { MAKING, READY };

struct page_copy {
    _Atomic uint32_t state; /* READY is written last */
    uint32_t n;             /* number of samples; 0: all */
    struct vb_mem_id id;
};

struct host_page {
    uint64_t magic;
    unsigned char token[VB_KEEPER_TOKEN];
    uint64_t digest[2]; /* of the data, for training and for testing */
    struct page_copy copies[VB_COPIES];
};

/* ---- who keeps the copies -------------------------------------------------------------------- */

static uint64_t add_namespace(uint64_t key, const char *path)
{
    struct stat sb;
    uint64_t id[2] = {0, 0};

    if (stat(path, &sb) == 0) {
        id[0] = (uint64_t)sb.st_dev;
        id[1] = (uint64_t)sb.st_ino;
    }
    return vb_hash64(key, id, sizeof(id));
}

/* Describes this rank as a keeper. data stays 0 if this rank cannot share anything. */
static vb_status describe(struct vb_trainer *t, uint64_t data_key, struct vb_keeper *own)
{
    uint64_t user = (uint64_t)geteuid();
    char boot[64];
    struct host_page *page;
    vb_status st;

    *own = (struct vb_keeper){.rank = t->rank, .thread = (int32_t)syscall(SYS_gettid)};
    if (data_key == 0 || !vb_probe_line(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id"))
        return VB_OK;
    st = vb_mem_map_sealable("verbena-page", sizeof(*page), &t->copies.page);
    if (st == VB_OK)
        st = vb_mem_identify(&t->copies.page, &own->page);
    if (st == VB_OK && getrandom(own->token, sizeof(own->token), 0) != sizeof(own->token))
        st = vb_err_sys("getrandom");
    if (st != VB_OK)
        return st;
    page = t->copies.page.ptr;
    page->magic = PAGE_MAGIC;
    memcpy(page->token, own->token, sizeof(page->token));
    own->data = vb_hash64(add_namespace(data_key, "/proc/self/ns/net"), boot, strlen(boot));
    own->reach = add_namespace(vb_hash64(0, &user, sizeof(user)), "/proc/self/ns/pid");
    own->reach = add_namespace(own->reach, "/proc/self/ns/user");
    return VB_OK;
}

static bool are_neighbours(const struct vb_keeper *a, const struct vb_keeper *b)
{
    return a->data != 0 && a->data == b->data && a->reach == b->reach;
}

static bool same_page(const struct vb_mem *mem, const struct vb_keeper *keeper)
{
    const struct host_page *page = mem->ptr;

    return mem->len_bytes >= sizeof(*page) && page->magic == PAGE_MAGIC &&
           memcmp(page->token, keeper->token, sizeof(page->token)) == 0;
}

static void tell_alone(const struct vb_keeper *keeper, const char *why)
{
    VB_LOG_INFO("this rank opens its own copy of the data, because it cannot read that of rank %d "
                "on this host: %s",
                keeper->rank, why);
}

/* Maps the page of the keeper, in place of the page of this rank. */
static void follow(struct vb_trainer *t, const struct vb_keeper *keeper)
{
    struct vb_copies *h = &t->copies;
    char why[VB_OPTS_WHY];

    vb_mem_unmap(&h->page);
    if (vb_mem_map_other(&keeper->page, &h->page, why) != VB_OK) {
        tell_alone(keeper, why);
    } else if (!same_page(&h->page, keeper)) {
        tell_alone(keeper, "its memory has another token");
        vb_mem_unmap(&h->page);
    } else {
        h->keeper = *keeper;
        h->reads = true;
    }
}

/* Finds the keeper among the ranks that describe themselves in list, and keeps the list of keepers
 * for joiners. *own is in the list unless this rank joins. */
static void choose(struct vb_trainer *t, const struct vb_keeper *own, struct vb_keeper *list, int n)
{
    const struct vb_keeper *first = NULL, *apart = NULL;
    int i, j, n_neighbours = 0;

    for (i = 0; i < n; i++) {
        if (are_neighbours(&list[i], own)) {
            first = first == NULL ? &list[i] : first;
            n_neighbours++;
        } else if (apart == NULL && own->data != 0 && list[i].data == own->data) {
            apart = &list[i];
        }
    }
    if (apart != NULL && apart->rank < own->rank && (first == NULL || first->rank == own->rank))
        tell_alone(apart, "it is in another PID namespace, or belongs to another user");
    if (first != NULL && first->rank != own->rank)
        follow(t, first);
    else
        t->copies.keeps =
            first != NULL && (n_neighbours > 1 || (t->async && t->o->join.words != NULL));
    for (i = 0; i < n; i++) {
        for (j = 0; j < t->copies.n_keepers && !are_neighbours(&list[j], &list[i]); j++)
            ;
        if (list[i].data != 0 && j == t->copies.n_keepers)
            list[t->copies.n_keepers++] = list[i];
    }
    t->copies.keepers = list;
}

vb_status vb_copies_open(struct vb_trainer *t, uint64_t data_key)
{
    int n = t->place.group != NULL ? vb_group_world(t->place.group) : 1;
    struct vb_keeper own, *list;
    vb_status st = describe(t, data_key, &own);

    if (st != VB_OK)
        return st;
    if (t->joiner != NULL)
        n = t->joiner->n_keepers;
    list = calloc((size_t)n + 1, sizeof(*list));
    if (list == NULL)
        return vb_err_sys("calloc");
    if (t->joiner != NULL && n > 0)
        memcpy(list, t->joiner->keepers, (size_t)n * sizeof(*list));
    else if (t->place.group != NULL)
        st = vb_group_gather(t->place.group, &own, sizeof(own), list);
    else
        list[0] = own;
    if (st != VB_OK) {
        free(list);
        return st;
    }
    choose(t, &own, list, n);
    if (!t->copies.keeps && !t->copies.reads)
        vb_mem_unmap(&t->copies.page);
    return VB_OK;
}

void vb_copies_close(struct vb_copies *h)
{
    int c;

    for (c = 0; c < VB_COPIES; c++)
        vb_mem_unmap(&h->mem[c]);
    vb_mem_unmap(&h->page);
    free(h->keepers);
    memset(h, 0, sizeof(*h));
}

/* ---- giving and taking ----------------------------------------------------------------------- */

vb_status vb_copies_give(struct vb_trainer *t, enum vb_copy c, int n, struct vb_mem *mem)
{
    struct host_page *page = t->copies.page.ptr;
    struct page_copy *copy = &page->copies[c];
    vb_status st = vb_mem_seal(mem);

    t->copies.mem[c] = *mem;
    if (st == VB_OK)
        st = vb_mem_identify(mem, &copy->id);
    if (st != VB_OK)
        return st;
    copy->n = (uint32_t)n;
    memcpy(page->digest, t->data.digest, sizeof(page->digest));
    atomic_store_explicit(&copy->state, READY, memory_order_release); /* pairs with is_ready() */
    (void)syscall(SYS_futex, &copy->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return VB_OK;
}

static bool is_ready(struct page_copy *copy)
{
    return atomic_load_explicit(&copy->state, memory_order_acquire) ==
           READY; /* pairs with the release in vb_copies_give() */
}

/* Returns a number that grows while the keeper's thread computes or reads: its time in ticks, and
 * its page faults. Returns 0 if that is not known. */
static uint64_t work_of(const struct vb_keeper *keeper)
{
    unsigned long small = 0, large = 0, user = 0, kernel = 0;
    char line[1024];
    const char *at;

    if (!vb_probe_line(line, sizeof(line), "/proc/%d/task/%d/stat", keeper->page.pid,
                       keeper->thread))
        return 0;
    at = strrchr(line, ')');
    if (at == NULL || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %lu %*u %lu %*u %lu %lu", &small,
                             &large, &user, &kernel) != 4)
        return 0;
    return (uint64_t)small + large + user + kernel;
}

/* Waits until a copy is ready. There is no limit as long as the keeper works; the group notices if
 * the keeper is gone. */
static vb_status wait_for(struct vb_trainer *t, struct page_copy *copy)
{
    const struct vb_keeper *keeper = &t->copies.keeper;
    double patience = t->o->group.patience > 0 ? t->o->group.patience : 1;
    int64_t limit_ms = (int64_t)(patience * (t->o->group.timeout_ms > 0 ? t->o->group.timeout_ms
                                                                        : VB_GROUP_TIMEOUT_MS));
    uint64_t since = vb_clock_ns(), seen = 0, work;
    struct timespec ts = {.tv_nsec = LOOK_MS * 1000000L};
    vb_status st = VB_OK;

    while (!is_ready(copy) && st == VB_OK) {
        (void)syscall(SYS_futex, &copy->state, FUTEX_WAIT, MAKING, &ts, NULL, 0);
        work = work_of(keeper);
        if (work != seen)
            since = vb_clock_ns();
        seen = work;
        st = vb_progress(t->place.group);
        if (st == VB_OK && vb_clock_ns() - since > (uint64_t)limit_ms * 1000000u)
            st = vb_err(VB_ERR_TIMEOUT,
                        "rank %d (%s), which opens the data for the ranks of its host, has not "
                        "worked on that for %.1f s",
                        keeper->rank, vb_group_host(t->place.group, keeper->rank),
                        (double)limit_ms / 1000);
    }
    return st;
}

vb_status vb_copies_take(struct vb_trainer *t, enum vb_copy c, int n, const struct vb_mem **mem_p)
{
    struct host_page *page = t->copies.page.ptr;
    char why[VB_OPTS_WHY];
    vb_status st;

    if (!t->copies.reads)
        return VB_AGAIN;
    if (t->place.group != NULL) { /* a joiner finds everything ready, or does it itself */
        st = wait_for(t, &page->copies[c]);
        if (st != VB_OK)
            return st;
    }
    if (!is_ready(&page->copies[c]) || page->copies[c].n != (uint32_t)n)
        return VB_AGAIN;
    if (vb_mem_map_other(&page->copies[c].id, &t->copies.mem[c], why) != VB_OK) {
        tell_alone(&t->copies.keeper, why);
        return VB_AGAIN;
    }
    memcpy(t->data.digest, page->digest, sizeof(t->data.digest));
    *mem_p = &t->copies.mem[c];
    return VB_OK;
}
