/* SPDX-License-Identifier: MIT
 *
 * Data that several processes of one host share: its digest, a key that tells whether two processes
 * would read the same data, and its form in shared memory.
 *
 * Packed data is a head and the *parts* of each store, such as the pixels and the classes of
 * images. The two sets of a split have one store.
 */
#include "data/data_priv.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PACKED_MAGIC UINT64_C(0x316b6361506256)
#define PARTS 4
#define SETS 2

struct part {
    uint64_t at, len; /* position from the head, and length, in bytes */
};

struct packed_store {
    uint64_t n, image_bytes;
    struct part parts[PARTS];
};

struct packed_set {
    struct vb_dataset facts; /* the pointers are unused */
    struct part which;
    uint64_t store;
};

struct packed {
    uint64_t magic, len;
    struct packed_set sets[SETS];
    struct packed_store stores[SETS];
};

/* ---- digest and key -------------------------------------------------------------------------- */

uint64_t vb_dataset_digest(const struct vb_dataset *set)
{
    uint64_t h = set->store->ops->digest(set->store);

    return set->which == NULL ? h : vb_hash64(h, set->which, (size_t)set->n * sizeof(*set->which));
}

/* Adds the identity of a file, which is the same file under every path. */
static bool add_file(const char *path, uint64_t *key)
{
    uint64_t id[5];
    struct stat sb;

    if (stat(path, &sb) != 0)
        return false;
    id[0] = (uint64_t)sb.st_dev;
    id[1] = (uint64_t)sb.st_ino;
    id[2] = (uint64_t)sb.st_size;
    id[3] = (uint64_t)sb.st_mtim.tv_sec;
    id[4] = (uint64_t)sb.st_mtim.tv_nsec;
    *key = vb_hash64(*key, id, sizeof(id));
    return true;
}

static bool add_glob(const char *pattern, uint64_t *key)
{
    glob_t found;
    bool good = true;
    size_t i;

    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (i = 0; i < found.gl_pathc && good; i++)
        good = add_file(found.gl_pathv[i], key);
    globfree(&found);
    return good;
}

/* A .csr file is mapped, and so is shared anyway. */
static bool add_spec(const struct vb_data_spec *spec, uint64_t *key)
{
    int64_t facts[] = {(int64_t)spec->format, (int64_t)spec->synth, spec->features, spec->n_train,
                       spec->n_test};

    *key = vb_hash64(*key, facts, sizeof(facts));
    switch (spec->format) {
    case VB_DATA_SYNTH:
        return spec->synth == VB_SYNTH_DIGITS;
    case VB_DATA_CSR:
        return false;
    case VB_DATA_TFRECORD:
        return add_glob(spec->path, key);
    default:
        return add_file(spec->path, key);
    }
}

bool vb_data_key(const struct vb_data_ask *ask, uint64_t *key_p)
{
    uint64_t key = vb_hash64(ask->seed, &ask->test_share, sizeof(ask->test_share));
    unsigned char flags[] = {ask->no_test, ask->test != NULL};

    key = vb_hash64(key, flags, sizeof(flags));
    if (!add_spec(&ask->data, &key) || (ask->test != NULL && !add_spec(ask->test, &key)))
        return false;
    *key_p = key;
    return true;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Lists the parts of a store that is in memory; the others are empty. Returns false if the store is
 * not in memory. */
static bool parts_of(const struct vb_store *store, const void *from[PARTS], size_t len[PARTS])
{
    const struct rows_store *rows = vb_rows_in_memory(store);
    size_t n = (size_t)store->n, entries;

    memset(from, 0, PARTS * sizeof(*from));
    memset(len, 0, PARTS * sizeof(*len));
    if (rows != NULL) {
        entries = (size_t)rows->at[n];
        from[0] = rows->at, len[0] = (n + 1) * sizeof(*rows->at);
        from[1] = rows->y, len[1] = n;
        from[2] = rows->index, len[2] = entries * sizeof(*rows->index);
        from[3] = rows->value, len[3] = entries * sizeof(*rows->value);
        return true;
    }
    from[0] = store->pixels, len[0] = n * store->image_bytes;
    from[1] = store->y, len[1] = n * sizeof(*store->y);
    return store->pixels != NULL;
}

static struct part take(uint64_t *end, size_t len)
{
    struct part part = {*end, len};

    *end += (len + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
    return part;
}

/* Fills in the head: where everything will be. Returns false if a store is not in memory. */
static bool lay_out(struct packed *p, struct vb_dataset *const sets[SETS])
{
    const void *from[PARTS];
    size_t len[PARTS];
    int i, j;

    *p = (struct packed){.magic = PACKED_MAGIC};
    (void)take(&p->len, sizeof(*p));
    for (i = 0; i < SETS; i++) {
        struct packed_store *to = &p->stores[i];

        p->sets[i].facts = *sets[i];
        p->sets[i].which = take(&p->len, sets[i]->which != NULL ? (size_t)sets[i]->n * 4 : 0);
        p->sets[i].store = (uint64_t)(sets[i]->store == sets[0]->store ? 0 : i);
        if (!parts_of(sets[i]->store, from, len))
            return false;
        if (p->sets[i].store != (uint64_t)i)
            continue;
        to->n = (uint64_t)sets[i]->store->n;
        to->image_bytes = sets[i]->store->image_bytes;
        for (j = 0; j < PARTS; j++)
            to->parts[j] = take(&p->len, len[j]);
    }
    return true;
}

static void copy(char *to, const struct part *part, const void *from)
{
    if (part->len > 0)
        memcpy(to + part->at, from, part->len);
}

static void fill(const struct packed *p, struct vb_dataset *const sets[SETS], char *to)
{
    const void *from[PARTS];
    size_t len[PARTS];
    int i, j;

    memcpy(to, p, sizeof(*p));
    for (i = 0; i < SETS; i++) {
        copy(to, &p->sets[i].which, sets[i]->which);
        (void)parts_of(sets[i]->store, from, len);
        for (j = 0; j < PARTS; j++)
            copy(to, &p->stores[i].parts[j], from[j]);
    }
}

vb_status vb_data_pack(struct vb_dataset *train, struct vb_dataset *test, struct vb_mem *mem_p)
{
    struct vb_dataset *const sets[SETS] = {train, test};
    struct packed head;
    struct vb_mem mem;
    vb_status st;

    if (!lay_out(&head, sets))
        return vb_err(VB_ERR_USAGE, "the data is not in memory, and cannot be shared");
    st = vb_mem_map_sealable("verbena-data", head.len, &mem);
    if (st != VB_OK)
        return st;
    fill(&head, sets, mem.ptr);
    vb_dataset_destroy(train);
    vb_dataset_destroy(test);
    st = vb_data_unpack(mem.ptr, mem.len_bytes, train, test);
    if (st != VB_OK) {
        vb_mem_unmap(&mem);
        return st;
    }
    *mem_p = mem;
    return VB_OK;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Returns a part, which must have room for n items of size bytes; NULL if it has not. */
static void *part_at(const struct packed *p, const struct part *part, uint64_t n, uint64_t size)
{
    if (part->at < sizeof(*p) || part->at % VB_CACHE_LINE != 0 || part->at > p->len ||
        part->len > p->len - part->at || (n > 0 && part->len / n < size))
        return NULL;
    return (char *)p + part->at;
}

static vb_status open_rows(const struct packed *p, const struct packed_store *s,
                           struct vb_store **store_p)
{
    struct rows_store rows = {.at = part_at(p, &s->parts[0], s->n + 1, sizeof(*rows.at)),
                              .y = part_at(p, &s->parts[1], s->n, 1)};
    uint64_t entries;

    if (rows.at == NULL || rows.y == NULL)
        return VB_ERR_INPUT;
    entries = (uint64_t)rows.at[s->n];
    rows.index = part_at(p, &s->parts[2], entries, sizeof(*rows.index));
    rows.value = part_at(p, &s->parts[3], entries, sizeof(*rows.value));
    if (rows.index == NULL || rows.value == NULL)
        return VB_ERR_INPUT;
    return vb_rows_view(&rows, (int)s->n, store_p);
}

static vb_status open_images(const struct packed *p, const struct packed_store *s,
                             struct vb_store **store_p)
{
    const uint8_t *pixels = part_at(p, &s->parts[0], s->n, s->image_bytes);
    const uint16_t *y = part_at(p, &s->parts[1], s->n, sizeof(*y));

    if (pixels == NULL || y == NULL)
        return VB_ERR_INPUT;
    return vb_images_view(pixels, y, (int)s->n, s->image_bytes, store_p);
}

static vb_status open_set(const struct packed *p, const struct packed_set *s,
                          const struct vb_dataset *first, struct vb_dataset *set)
{
    const struct packed_store *store = &p->stores[s->store];
    vb_status st = VB_OK;

    *set = s->facts;
    set->store = NULL;
    set->borrowed = true;
    set->which = part_at(p, &s->which, (uint64_t)set->n, 4);
    if (s->which.len == 0)
        set->which = NULL;
    if (set->n < 1 || store->n < 1 || store->n > INT32_MAX ||
        (set->which == NULL && (uint64_t)set->n > store->n) ||
        (s->which.len > 0 && set->which == NULL) ||
        (set->kind == VB_DATA_IMAGES && (uint64_t)set->features != store->image_bytes))
        return VB_ERR_INPUT;
    if (first != NULL && s->store == 0) {
        set->store = first->store;
        atomic_fetch_add(&set->store->refs, 1);
        return VB_OK;
    }
    st = set->kind == VB_DATA_IMAGES ? open_images(p, store, &set->store)
                                     : open_rows(p, store, &set->store);
    return st;
}

vb_status vb_data_unpack(const void *packed, size_t len_bytes, struct vb_dataset *train_p,
                         struct vb_dataset *test_p)
{
    struct vb_dataset train = {.n = 0}, test = {.n = 0};
    const struct packed *p = packed;
    vb_status st = VB_ERR_INPUT;

    if (len_bytes >= sizeof(*p) && p->magic == PACKED_MAGIC && p->len <= len_bytes &&
        p->sets[0].store == 0 && p->sets[1].store <= 1)
        st = open_set(p, &p->sets[0], NULL, &train);
    if (st == VB_OK)
        st = open_set(p, &p->sets[1], &train, &test);
    if (st != VB_OK) {
        vb_dataset_destroy(&train);
        vb_dataset_destroy(&test);
        return vb_err(st, "the shared copy of the data is broken");
    }
    *train_p = train;
    *test_p = test;
    return VB_OK;
}
