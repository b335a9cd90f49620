/* SPDX-License-Identifier: MIT
 *
 * The bytes on a control connection (docs/protocol.md). Numbers are little-endian. No function here
 * does I/O, so the fuzzer can call them with any bytes.
 */
#ifndef VB_NET_WIRE_WIRE_H
#define VB_NET_WIRE_WIRE_H

#include "net/net.h"

#define WIRE_MAGIC 0x4e425256u /* "VRBN" */
#define WIRE_VERSION 7 /* also covers the notes of engine/, which have no version of their own */

#define WIRE_NONCE 32
#define WIRE_PROOF 32

enum wire_kind {
    WIRE_CONTROL = 1,
    WIRE_DATA = 2,
    /* A joiner asks for a slot (rank 0), or how it can come to a group that agrees (any member). It
     * has no rank, world or epoch yet, and may not know which rank it calls. */
    WIRE_JOIN = 3,
};

#define WIRE_NO_RANK UINT32_MAX /* of a joiner before it has a slot, or of whom it calls */

/* ---- the handshake: call, answer, proof, verdict --------------------------------------------- */

#define WIRE_CALL_BYTES 64
#define WIRE_ANSWER_BYTES 88
#define WIRE_VERDICT_BYTES 4

/* Sent by the side that connects. */
struct wire_call {
    uint16_t version;
    uint16_t kind;
    uint32_t rank; /* rank of the caller */
    uint32_t to;   /* the rank that is called */
    uint32_t world;
    uint32_t epoch; /* epoch of the membership */
    uint32_t caps;
    unsigned char nonce[WIRE_NONCE];
};

enum wire_verdict {
    WIRE_WELCOME = 0,
    WIRE_BAD_VERSION = 1,
    WIRE_BAD_SECRET = 2,
    WIRE_BAD_RANK = 3, /* out of range, already connected, or not the rank that was called */
    WIRE_BAD_WORLD = 4,
    WIRE_BAD_EPOCH = 5,
    WIRE_CLOSED = 6, /* no rank may join this job, or not by calling this rank */
    WIRE_FULL = 7,   /* no slot is free */
    /* Another rank is joining, or a slot will soon be free: try again. */
    WIRE_BUSY = 8,
};

/* Sent by the side that listens. It has a proof only if the verdict is WIRE_WELCOME. */
struct wire_answer {
    uint16_t version;
    uint16_t verdict;
    uint32_t rank;
    uint32_t epoch;
    uint32_t caps;
    unsigned char nonce[WIRE_NONCE];
    unsigned char proof[WIRE_PROOF];
};

void vb_wire_call_encode(const struct wire_call *call, unsigned char out[WIRE_CALL_BYTES]);
bool vb_wire_call_decode(const unsigned char in[WIRE_CALL_BYTES], struct wire_call *call_p);
void vb_wire_answer_encode(const struct wire_answer *answer, unsigned char out[WIRE_ANSWER_BYTES]);
bool vb_wire_answer_decode(const unsigned char in[WIRE_ANSWER_BYTES], struct wire_answer *answer_p);
const char *vb_wire_verdict_str(uint32_t verdict);

/* ---- frames ---------------------------------------------------------------------------------- */

#define WIRE_FRAME_HEAD 8
#define WIRE_TAG 16 /* proves that a frame, or its head, is authentic (auth.h) */

enum wire_type {
    WIRE_INFO = 1,  /* rank -> rank 0: name and address of the sender */
    WIRE_TABLE = 2, /* rank 0 -> all: the infos of all ranks */
    WIRE_BEAT = 3,  /* answer to WIRE_ASK: what the sender does */
    WIRE_KEY = 4,   /* a one-time key for a data connection, sealed */
    WIRE_BLOB = 5,  /* a tag, then bytes of vb_control_exchange() */
    WIRE_ABORT = 6, /* the reason of the abort, as text */
    WIRE_BYE = 7,   /* the sender leaves without an error */

    /* Only in elastic groups (wire_member.h): */
    WIRE_SLOT = 8,      /* rank 0 -> joiner: the slot of the joiner */
    WIRE_ADMIT = 9,     /* rank 0 -> members: the rank that joins */
    WIRE_ADMITTED = 10, /* member -> rank 0: the joiner may call this member */
    WIRE_MEMBERS = 11,  /* rank 0 -> joiner: the members to connect with */
    WIRE_JOINED = 12,   /* joiner -> rank 0: the joiner is connected with all members */
    WIRE_CARD = 13,     /* joiner <-> member: the transports of the sender */
    WIRE_OFFER = 14,    /* a window of the sender */
    WIRE_DROPPED = 15,  /* the sender has dropped the receiver; the reason, as text */

    /* Heartbeats (watch.c): */
    WIRE_ASK = 16,    /* asks for a heartbeat */
    WIRE_SILENT = 17, /* a rank that has not answered the sender, and its last heartbeat */

    /* Records and clocks (wire_record.h): */
    WIRE_FOLDER = 18,   /* rank 0, or who leads after it -> all: the token of the run folder */
    WIRE_RECORDS = 19,  /* rank -> rank 0: whether the sender sees the folder, or has sent all */
    WIRE_RECORD = 20,   /* rank -> rank 0: bytes for a file of the run folder */
    WIRE_TIME_ASK = 21, /* rank 0 -> rank: the time of rank 0 */
    WIRE_TIME = 22,     /* the answer: the time of rank 0 again, and two times of the sender */

    WIRE_VIEW = 23, /* groups that agree: a message of net/view */

    /* Groups that agree, only between a caller and a member (wire_door.h): */
    WIRE_DOORS = 24,  /* member -> caller: the members; whether the caller can wait here */
    WIRE_JOB = 25,    /* lead -> caller: the text of the job */
    WIRE_READY = 26,  /* caller -> lead: it can be invited from now on */
    WIRE_INVITE = 27, /* lead -> caller: where the new group meets, and the caller's rank in it */
    WIRE_AWAY = 28,   /* lead -> caller: why the caller cannot join, as text */
    WIRE_LAST = WIRE_AWAY,
};

#define WIRE_BEAT_BYTES 24
#define WIRE_SILENT_BYTES (8 + WIRE_BEAT_BYTES)
#define WIRE_SLOT_BYTES 20
#define WIRE_MEMBER_BYTES (8 + WIRE_INFO_BYTES)
#define WIRE_ADMITTED_BYTES 8
#define WIRE_CARD_BYTES 140
#define WIRE_OFFER_BYTES 420
#define WIRE_INFO_BYTES 256
#define WIRE_RECORDS_BYTES 20
#define WIRE_RECORD_BYTES_MIN 6
#define WIRE_RECORD_BYTES_MAX (2 + VB_RECORD_NAME_MAX + VB_RECORD_BYTES_MAX)
#define WIRE_TIME_ASK_BYTES 8
#define WIRE_TIME_BYTES 24
#define WIRE_VIEW_BYTES 584
#define WIRE_DOORS_BYTES_MAX 1027
#define WIRE_JOB_BYTES_MAX 131072
#define WIRE_INVITE_BYTES 296
#define WIRE_AWAY_BYTES_MAX 512

void vb_wire_frame_encode(uint32_t len_bytes, uint16_t type, unsigned char out[WIRE_FRAME_HEAD]);

/* Returns false if the type is unknown or cannot have this length in a world of this size. */
bool vb_wire_frame_decode(const unsigned char in[WIRE_FRAME_HEAD], int world, uint32_t *len_p,
                          uint16_t *type_p);

/* Whether frames of this type, which must be known, have different lengths. Their head has a tag of
 * its own, so that its length is not believed before it is proved. */
bool vb_wire_length_varies(uint16_t type);

/* ---- heartbeats ------------------------------------------------------------------------------ */

struct wire_beat {
    uint64_t step;       /* number of steps that the sender has done */
    uint32_t activity;   /* enum vb_activity */
    uint32_t waits_for;  /* the rank that it waits for; WIRE_NO_RANK: none */
    uint32_t same_ms;    /* for how long it has done that, in the same step */
    uint32_t page_waits; /* how often it has lately waited for a page from a disk */
};

struct wire_silent {
    uint32_t rank;
    uint32_t ms;           /* for how long it was silent */
    struct wire_beat last; /* VB_DOES_UNKNOWN: the sender knows no heartbeat */
};

void vb_wire_beat_encode(const struct wire_beat *beat, unsigned char out[WIRE_BEAT_BYTES]);
/* Returns false if the activity is unknown, or the rank is impossible. */
bool vb_wire_beat_decode(const unsigned char in[WIRE_BEAT_BYTES], struct wire_beat *beat_p);
void vb_wire_silent_encode(const struct wire_silent *silent, unsigned char out[WIRE_SILENT_BYTES]);
bool vb_wire_silent_decode(const unsigned char in[WIRE_SILENT_BYTES], struct wire_silent *silent_p);

/* What a rank does, for messages: "computing in step 18"; "" if it is not known. */
#define WIRE_BEAT_TEXT 120
void vb_wire_beat_text(const struct wire_beat *beat, char out[WIRE_BEAT_TEXT]);

/* ---- name and address of a rank -------------------------------------------------------------- */

#define WIRE_HOST 64
#define WIRE_BOOT_ID 40
#define WIRE_UNIX_NAME 48

struct wire_info {
    uint32_t rank;
    uint64_t netns; /* number of the rank's network namespace; 0: not known */
    uint32_t port;
    uint32_t door; /* where callers find the rank in all groups, one after another; 0: at port */
    char addr[VB_ADDR_TEXT + 2];         /* address where the rank listens, as text */
    char host[WIRE_HOST];                /* host name, for messages */
    char boot_id[WIRE_BOOT_ID];          /* differs after every boot of the host; "": not known */
    char unix_name[WIRE_UNIX_NAME];      /* abstract unix socket of the rank; "": none */
    unsigned char token[VB_TOKEN_BYTES]; /* of the rank's process; all zero: not known */
    struct vb_process_id process;        /* where others of its host can look at it */
};

/* Returns false if an info lacks the boot ID or the network namespace. */
bool vb_wire_info_same_host(const struct wire_info *a, const struct wire_info *b);

/* Returns whether two ranks are threads of one process. */
bool vb_wire_info_same_process(const struct wire_info *a, const struct wire_info *b);

void vb_wire_info_encode(const struct wire_info *info, unsigned char out[WIRE_INFO_BYTES]);

/* Returns false if a text does not end or is not printable, or if the port is invalid. */
bool vb_wire_info_decode(const unsigned char in[WIRE_INFO_BYTES], struct wire_info *info_p);

void vb_wire_u32_encode(uint32_t value, unsigned char out[4]);
uint32_t vb_wire_u32_decode(const unsigned char in[4]);
void vb_wire_u64_encode(uint64_t value, unsigned char out[8]);
uint64_t vb_wire_u64_decode(const unsigned char in[8]);

#endif
