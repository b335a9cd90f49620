/* SPDX-License-Identifier: MIT
 *
 * There are two boxes. Records are put into one while the other is written. The memory of a box
 * grows up to its limit and is kept, so that a run that goes on allocates nothing.
 */
#include "engine/record/train_inbox.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What lies in a box before file name and bytes. */
struct item {
    uint32_t len_bytes;
    uint16_t rank, name;
    bool first;
};

struct box {
    unsigned char *bytes;
    size_t len, room;
};

/* The files that have begun with records of a rank, so that rows without a head are never written.
 */
struct begun {
    char (*names)[VB_RECORD_NAME_MAX + 1];
    int n;
};

struct vb_inbox {
    pthread_mutex_t lock;
    struct box in;              /* guarded by lock */
    size_t waits[VB_WORLD_MAX]; /* guarded by lock: bytes of each rank in the box */
    struct box out;
    struct begun begun[VB_WORLD_MAX];
    _Atomic uint64_t lost;
};

vb_status vb_inbox_create(struct vb_inbox **inbox_p)
{
    struct vb_inbox *inbox = calloc(1, sizeof(*inbox));

    if (inbox == NULL)
        return vb_err_sys("calloc");
    pthread_mutex_init(&inbox->lock, NULL);
    *inbox_p = inbox;
    return VB_OK;
}

void vb_inbox_destroy(struct vb_inbox *inbox)
{
    int i;

    if (inbox == NULL)
        return;
    for (i = 0; i < VB_WORLD_MAX; i++)
        free(inbox->begun[i].names);
    free(inbox->in.bytes);
    free(inbox->out.bytes);
    pthread_mutex_destroy(&inbox->lock);
    free(inbox);
}

static bool box_grow(struct box *box, size_t more)
{
    size_t room = box->room > 0 ? box->room : 65536;
    unsigned char *bytes;

    while (room < box->len + more)
        room *= 2;
    if (room > VB_INBOX_BYTES)
        return false;
    if (room == box->room)
        return true;
    bytes = realloc(box->bytes, room);
    if (bytes == NULL)
        return false;
    box->bytes = bytes;
    box->room = room;
    return true;
}

bool vb_inbox_put(void *arg, int rank, const char *file, bool first, const void *bytes,
                  size_t len_bytes)
{
    struct vb_inbox *inbox = arg;
    struct item item = {.len_bytes = (uint32_t)len_bytes,
                        .rank = (uint16_t)rank,
                        .name = (uint16_t)strlen(file),
                        .first = first};
    size_t need = sizeof(item) + item.name + len_bytes;
    unsigned char *to;
    bool fits;

    if (rank < 0 || rank >= VB_WORLD_MAX)
        return false;
    pthread_mutex_lock(&inbox->lock);
    fits = inbox->waits[rank] + need <= VB_INBOX_RANK_BYTES && box_grow(&inbox->in, need);
    if (fits) {
        to = inbox->in.bytes + inbox->in.len;
        memcpy(to, &item, sizeof(item));
        memcpy(to + sizeof(item), file, item.name);
        memcpy(to + sizeof(item) + item.name, bytes, len_bytes);
        inbox->in.len += need;
        inbox->waits[rank] += need;
    }
    pthread_mutex_unlock(&inbox->lock);
    return fits;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool has_begun(const struct begun *b, const char *file)
{
    int i;

    for (i = 0; i < b->n; i++)
        if (strcmp(b->names[i], file) == 0)
            return true;
    return false;
}

static bool begin(struct begun *b, const char *file)
{
    if (b->names == NULL)
        b->names = calloc(VB_INBOX_FILES, sizeof(*b->names));
    if (b->names == NULL || b->n == VB_INBOX_FILES)
        return false;
    snprintf(b->names[b->n++], sizeof(*b->names), "%s", file);
    return true;
}

/* Records come from ranks of a group. When the ranks form another one, the same file comes from
 * another rank of it. */
static bool has_begun_before(const struct vb_inbox *inbox, const char *file)
{
    int i;

    for (i = 0; i < VB_WORLD_MAX; i++)
        if (has_begun(&inbox->begun[i], file))
            return true;
    return false;
}

/* The first record of a series is its head. A file that has a head because another rank has written
 * it before gets no second one; the sink knows those of an earlier run that is continued. */
static vb_status write_item(struct vb_inbox *inbox, const struct item *item, const char *file,
                            const unsigned char *bytes, const struct vb_record_sink *sink)
{
    struct begun *b = &inbox->begun[item->rank];
    size_t len = strlen(file);
    bool series = len > 4 && strcmp(file + len - 4, ".bin") == 0, known = has_begun(b, file);
    bool begun = known || has_begun_before(inbox, file);
    vb_status st = VB_OK;

    if (!begun && !item->first)
        return VB_ERR_USAGE;
    if (!known && b->n == VB_INBOX_FILES)
        return VB_ERR_USAGE;
    if (!item->first || !series || !begun)
        st = sink->append(sink->arg, file, bytes, item->len_bytes);
    if (st == VB_OK && !known && !begin(b, file))
        st = VB_ERR_NO_MEMORY;
    return st;
}

void vb_inbox_write(struct vb_inbox *inbox, const struct vb_record_sink *sink)
{
    char file[VB_RECORD_NAME_MAX + 1];
    struct box box;
    struct item item;
    size_t at;

    pthread_mutex_lock(&inbox->lock);
    box = inbox->in;
    inbox->in = inbox->out;
    inbox->in.len = 0;
    if (box.len > 0)
        memset(inbox->waits, 0, sizeof(inbox->waits));
    pthread_mutex_unlock(&inbox->lock);
    inbox->out = box;
    for (at = 0; at < box.len; at += sizeof(item) + item.name + item.len_bytes) {
        memcpy(&item, box.bytes + at, sizeof(item));
        memcpy(file, box.bytes + at + sizeof(item), item.name);
        file[item.name] = '\0';
        if (write_item(inbox, &item, file, box.bytes + at + sizeof(item) + item.name, sink) !=
            VB_OK)
            atomic_fetch_add_explicit(&inbox->lost, 1, memory_order_relaxed);
    }
}

uint64_t vb_inbox_lost(const struct vb_inbox *inbox)
{
    return atomic_load_explicit(&inbox->lost, memory_order_relaxed);
}
