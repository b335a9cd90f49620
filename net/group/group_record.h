/* SPDX-License-Identifier: MIT
 *
 * Records and clocks of a group. Ranks that do not see the run folder send their records to rank 0,
 * and rank 0 compares its clock with theirs. In an elastic group that loses rank 0 another rank
 * does all of this from the moment when it offers a folder: it then counts as rank 0 below. Both
 * use the control plane only, so no message more is on the data path. Any thread may call these
 * functions while the group is open. None of them waits unless it takes a deadline.
 */
#ifndef VB_NET_GROUP_GROUP_RECORD_H
#define VB_NET_GROUP_GROUP_RECORD_H

#include "base/base.h"

struct vb_group;

/* ---- the run folder -------------------------------------------------------------------------- */

#define VB_FOLDER_TOKEN 16

/* Rank 0 tells all ranks, also those that join later, the random token of the run folder. Whoever
 * finds the file of this token sees the folder. All zero: there is no folder. */
void vb_group_offer_folder(struct vb_group *group, const unsigned char token[VB_FOLDER_TOKEN]);

/* Other ranks: returns whether rank 0 has offered a folder, or said that there is none. */
bool vb_group_folder(struct vb_group *group, unsigned char token_p[VB_FOLDER_TOKEN]);

/* Tells rank 0 whether this rank sees the folder, or will send its records. */
void vb_group_sees_folder(struct vb_group *group, bool sees);

/* ---- records --------------------------------------------------------------------------------- */

#define VB_RECORD_NAME_MAX 95      /* characters of a file name */
#define VB_RECORD_BYTES_MAX 16384u /* bytes of one record */

/* Limits how fast records are sent and, at rank 0, received from each rank. By default 1 MB/s. */
void vb_group_record_rate(struct vb_group *group, uint64_t bytes_per_s);

/* Sends bytes to rank 0, which appends them to a file: "rankR/NAME.bin" or "rankR/log.txt", R being
 * this rank. first: these are the first bytes of the file. All bytes of a call arrive together or
 * not at all. VB_AGAIN: the queue is full, and nothing was taken. VB_ERR_PEER: rank 0 is gone, and
 * the bytes are lost. */
vb_status vb_group_send_record(struct vb_group *group, const char *file, bool first,
                               const void *bytes, size_t len_bytes);

/* Waits until the queue is empty, and tells rank 0 that no more records come. lost_bytes: what this
 * rank could not send; lost_rows: how many rows it has lost. Fails silently if rank 0 is gone, or
 * after the deadline. */
vb_status vb_group_end_records(struct vb_group *group, uint64_t lost_bytes, uint64_t lost_rows,
                               uint64_t deadline);

/* Rank 0: the function that takes records. The control thread calls it, under a lock: it must copy
 * the bytes, must not wait and must call no function of the group. It returns false if it has no
 * room; the record is then dropped and counted. NULL: records are dropped. When the call returns,
 * the former function no longer runs. */
typedef bool (*vb_record_fn)(void *arg, int rank, const char *file, bool first, const void *bytes,
                             size_t len_bytes);
void vb_group_on_record(struct vb_group *group, vb_record_fn fn, void *arg);

/* Rank 0: waits until every member has said that it sees the folder or has sent its last record.
 * Returns VB_ERR_TIMEOUT, without a log line, if one has not. */
vb_status vb_group_wait_records(struct vb_group *group, uint64_t deadline);

struct vb_record_stats {
    uint64_t sent, sent_bytes;         /* by this rank, to rank 0 */
    uint64_t received, received_bytes; /* rank 0: taken by the function, from all ranks */
    uint64_t dropped, dropped_bytes;   /* rank 0: too fast, or no room */
    uint64_t lost_bytes;               /* rank 0: what other ranks said they could not send */
    uint64_t lost_rows;                /* rank 0: rows that other ranks said they have lost */
};

struct vb_record_stats vb_group_record_stats(struct vb_group *group);

/* ---- clocks ---------------------------------------------------------------------------------- */

#define VB_CLOCK_EXCHANGES 256

/* Rank 0: from now on the control plane compares clocks with all ranks, about once a second. */
vb_status vb_group_compare_clocks(struct vb_group *group);

/* Rank 0: compares once more with every member, and waits for the answers. */
void vb_group_compare_last(struct vb_group *group, uint64_t deadline);

/* Rank 0: copies the exchanges with the rank that has or last had this slot, in the order of their
 * times, and returns their number: in each interval that with the shortest round trip. The record
 * clock (vb_record_clock_ns()) is compared. */
int vb_group_exchanges(struct vb_group *group, int rank,
                       struct vb_clock_exchange out[VB_CLOCK_EXCHANGES]);

#endif
