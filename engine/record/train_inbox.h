/* SPDX-License-Identifier: MIT
 *
 * Records of other ranks at rank 0, between the control thread, which must not wait for a disk, and
 * the recorder's thread, which writes them. The memory is bounded, in all and for each rank; what
 * finds no room is not taken.
 */
#ifndef VB_ENGINE_RECORD_TRAIN_INBOX_H
#define VB_ENGINE_RECORD_TRAIN_INBOX_H

#include "net/net.h"
#include "record/record.h"

#define VB_INBOX_RANK_BYTES ((size_t)1 << 20) /* that may wait of one rank */
#define VB_INBOX_BYTES ((size_t)16 << 20)     /* that may wait of all ranks */
#define VB_INBOX_FILES 64                     /* files of a rank */

struct vb_inbox;

vb_status vb_inbox_create(struct vb_inbox **inbox_p);
void vb_inbox_destroy(struct vb_inbox *inbox);

/* Takes a record: a vb_record_fn. Never waits for a disk. */
bool vb_inbox_put(void *inbox, int rank, const char *file, bool first, const void *bytes,
                  size_t len_bytes);

/* Writes what has come to the sink. Only one thread may call it. */
void vb_inbox_write(struct vb_inbox *inbox, const struct vb_record_sink *sink);

/* Returns the number of records that were taken but not written: their file has no head, the rank
 * has too many files, or the disk is full. */
uint64_t vb_inbox_lost(const struct vb_inbox *inbox);

#endif
