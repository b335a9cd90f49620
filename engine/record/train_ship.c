/* SPDX-License-Identifier: MIT */
#include "engine/record/train_ship.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/train/train.h"
#include "engine/record/train_inbox.h"

#define END_NS 2000000000u  /* how long the end of a run waits for records */
#define SENT_NS 1800000000u /* and how long a rank sends them: rank 0 has to hear its last word */
#define LAST_NS 300000000u  /* and for the last comparison of clocks */
#define FILES_MAX 64        /* files that this rank sends */

/* How the records of this rank get to the folder. */
enum way { WAY_UNKNOWN, WAY_FILES, WAY_SENT, WAY_DROPPED };

struct vb_ship {
    _Atomic int holders;
    int rank;
    bool elastic;
    uint64_t bytes_per_s;
    char dir[4096];

    pthread_mutex_t lock;
    struct vb_group *group;       /* guarded by lock */
    struct vb_record_stats stats; /* guarded by lock: of groups that are closed */
    uint64_t lost_bytes;          /* guarded by lock */
    enum way way;                 /* guarded by lock; only the recorder's thread changes it */
    _Atomic bool
        leads; /* this rank has the folder, and inbox is set; the recorder's thread sets it */

    /* Only the recorder's thread uses these. */
    int n_begun;
    char (*begun)[VB_RECORD_NAME_MAX + 1]; /* files that this rank has sent something of */
    uint64_t log_bytes;                    /* of the log that were sent */
    struct vb_record_sink files;
    bool has_files, append;
    bool turned; /* records go to another place; their heads are due */

    /* The rank that leads. */
    bool finished;
    int n_clocks;
    struct vb_train_clock *clocks;
    struct vb_inbox *inbox;
    unsigned char token[VB_FOLDER_TOKEN];
};

/* ---- the token ------------------------------------------------------------------------------- */

static void token_path(const struct vb_ship *s, const unsigned char token[VB_FOLDER_TOKEN],
                       char path[4200])
{
    int i, len = snprintf(path, 4200, "%s/.token-", s->dir);

    for (i = 0; i < VB_FOLDER_TOKEN; i++)
        len += snprintf(path + len, 4200 - (size_t)len, "%02x", token[i]);
}

/* If the file cannot be written, no rank finds it, and rank 0 says so when it writes records. */
static void token_create(struct vb_ship *s)
{
    char path[4200];
    int fd;

    if (s->dir[0] == '\0' || getrandom(s->token, sizeof(s->token), 0) != sizeof(s->token)) {
        memset(s->token, 0, sizeof(s->token));
        return;
    }
    (void)mkdir(s->dir, 0777);
    token_path(s, s->token, path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd >= 0)
        close(fd);
}

static void token_remove(struct vb_ship *s)
{
    char path[4200];

    if (!s->leads || s->dir[0] == '\0')
        return;
    token_path(s, s->token, path);
    (void)unlink(path);
}

static enum way find_way(struct vb_ship *s, const unsigned char token[VB_FOLDER_TOKEN])
{
    static const unsigned char none[VB_FOLDER_TOKEN];
    char path[4200];

    if (memcmp(token, none, sizeof(none)) == 0)
        return WAY_DROPPED;
    token_path(s, token, path);
    return access(path, F_OK) == 0 ? WAY_FILES : WAY_SENT;
}

/* ---- the recorder's thread ------------------------------------------------------------------- */

/* Rank 0 has removed what an earlier run has left, so files that exist are of this run, or of one
 * that it continues. */
static bool open_files(struct vb_ship *s)
{
    if (!s->has_files)
        s->has_files = vb_record_files(s->dir, s->append || s->elastic, &s->files) == VB_OK;
    return s->has_files;
}

/* Another rank has the folder now. A rank that writes its files itself goes on with them. */
static enum way turn(struct vb_ship *s, enum way found)
{
    if (s->way == WAY_FILES || s->way == WAY_DROPPED)
        return s->way;
    s->turned = s->way == WAY_SENT;
    s->n_begun = 0;
    return found;
}

/* Looks for the folder as soon as rank 0, or who leads after it, has told its token. No lock is
 * held while the disk is looked at. */
static enum way decide(struct vb_ship *s)
{
    unsigned char token[VB_FOLDER_TOKEN];
    enum way way = s->way;
    bool told;

    if (s->leads || (way != WAY_UNKNOWN && !s->elastic))
        return way;
    pthread_mutex_lock(&s->lock);
    told = s->group != NULL && vb_group_folder(s->group, token);
    pthread_mutex_unlock(&s->lock);
    if (!told)
        return way;
    memcpy(s->token, token, sizeof(token));
    way = turn(s, find_way(s, token));
    if (way == WAY_FILES && !open_files(s))
        way = WAY_DROPPED;
    VB_LOG_DEBUG("records go to %s", way == WAY_FILES  ? s->dir
                                     : way == WAY_SENT ? "the rank that has the run folder"
                                                       : "nowhere: there is no run folder");
    pthread_mutex_lock(&s->lock);
    s->way = way;
    if (s->group != NULL)
        vb_group_sees_folder(s->group, way != WAY_SENT);
    pthread_mutex_unlock(&s->lock);
    return way;
}

static bool is_begun(const struct vb_ship *s, const char *file)
{
    int i;

    for (i = 0; i < s->n_begun; i++)
        if (strcmp(s->begun[i], file) == 0)
            return true;
    return false;
}

/* Remembers that the head of a file is on its way. Returns false if there are too many files. */
static bool note_begun(struct vb_ship *s, const char *file)
{
    if (s->begun == NULL)
        s->begun = calloc(FILES_MAX, sizeof(*s->begun));
    if (s->begun == NULL || s->n_begun == FILES_MAX)
        return false;
    snprintf(s->begun[s->n_begun++], sizeof(*s->begun), "%s", file);
    return true;
}

static vb_status send(struct vb_ship *s, const char *file, const void *bytes, size_t len_bytes)
{
    bool first = !is_begun(s, file);
    vb_status st;

    if (first && s->n_begun == FILES_MAX)
        return VB_ERR_USAGE;
    pthread_mutex_lock(&s->lock);
    st =
        s->group == NULL ? VB_AGAIN : vb_group_send_record(s->group, file, first, bytes, len_bytes);
    if (st == VB_ERR_PEER && s->elastic) /* somebody else is going to have the folder */
        st = VB_AGAIN;
    if (st != VB_OK && st != VB_AGAIN)
        s->lost_bytes += len_bytes;
    pthread_mutex_unlock(&s->lock);
    if (st == VB_OK && first && !note_begun(s, file))
        return VB_ERR_NO_MEMORY;
    return st;
}

static vb_status append(void *arg, const char *file, const void *bytes, size_t len_bytes)
{
    struct vb_ship *s = arg;
    enum way way = decide(s);

    if (s->turned) /* these bytes are not the head of the file */
        return VB_AGAIN;
    switch (way) {
    case WAY_UNKNOWN:
        return VB_AGAIN;
    case WAY_FILES:
        return s->files.append(s->files.arg, file, bytes, len_bytes);
    case WAY_SENT:
        return send(s, file, bytes, len_bytes);
    case WAY_DROPPED:
        break;
    }
    return VB_OK;
}

/* A rank that was started by hand writes its log on its own host, from where it is sent. */
static void send_log(struct vb_ship *s)
{
    char file[VB_RECORD_NAME_MAX + 1], path[4200], text[4096];
    ssize_t n = 0;
    int fd;

    snprintf(file, sizeof(file), "rank%d/log.txt", s->rank);
    snprintf(path, sizeof(path), "%s/%s", s->dir, file);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    while ((n = pread(fd, text, sizeof(text), (off_t)s->log_bytes)) > 0 &&
           send(s, file, text, (size_t)n) == VB_OK)
        s->log_bytes += (uint64_t)n;
    close(fd);
}

void vb_ship_tick(void *ship, uint64_t now_ns, bool last)
{
    struct vb_ship *s = ship;

    (void)now_ns;
    (void)last;
    if (s->inbox != NULL)
        vb_inbox_write(s->inbox, &s->files);
    else if (!s->leads && decide(s) == WAY_SENT)
        send_log(s);
}

bool vb_ship_turned(struct vb_ship *s)
{
    bool turned = s->turned;

    s->turned = false;
    return turned;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void ship_free(struct vb_ship *s)
{
    if (s->has_files)
        s->files.close(s->files.arg);
    vb_inbox_destroy(s->inbox);
    pthread_mutex_destroy(&s->lock);
    free(s->begun);
    free(s->clocks);
    free(s);
}

static void let_go(struct vb_ship *s)
{
    if (atomic_fetch_sub(&s->holders, 1) == 1)
        ship_free(s);
}

static void sink_close(void *arg)
{
    let_go(arg);
}

/* Rank 0 of a job with several ranks. */
static vb_status open_root(struct vb_ship *s)
{
    vb_status st;

    s->leads = true;
    token_create(s);
    if (s->dir[0] == '\0') {
        s->way = WAY_DROPPED;
        return VB_OK;
    }
    s->way = WAY_FILES;
    st = vb_record_files(s->dir, s->append, &s->files);
    s->has_files = st == VB_OK;
    return st == VB_OK ? vb_inbox_create(&s->inbox) : st;
}

vb_status vb_ship_open(const struct vb_ship_opts *opts, struct vb_ship **ship_p,
                       struct vb_record_sink *sink_p)
{
    struct vb_ship *s = calloc(1, sizeof(*s));
    vb_status st = VB_OK;

    if (s == NULL)
        return vb_err_sys("calloc");
    pthread_mutex_init(&s->lock, NULL);
    atomic_init(&s->holders, 1);
    s->append = opts->append;
    s->rank = opts->rank;
    s->elastic = opts->elastic;
    s->bytes_per_s = opts->bytes_per_s;
    s->way = opts->dir != NULL ? WAY_UNKNOWN : WAY_DROPPED;
    if (opts->dir != NULL)
        snprintf(s->dir, sizeof(s->dir), "%s", opts->dir);
    if (s->rank == 0)
        st = open_root(s);
    if (st != VB_OK) {
        ship_free(s);
        return st;
    }
    atomic_fetch_add(&s->holders, 1);
    *sink_p = (struct vb_record_sink){.append = append,
                                      .close = sink_close,
                                      .arg = s,
                                      .max_bytes = s->rank == 0 ? 0 : VB_RECORD_BYTES_MAX};
    *ship_p = s;
    return VB_OK;
}

void vb_ship_close(struct vb_ship *s)
{
    if (s == NULL)
        return;
    vb_ship_attach(s, NULL);
    token_remove(s);
    let_go(s);
}

/* ---- the group ------------------------------------------------------------------------------- */

static void add_stats(struct vb_record_stats *sum, const struct vb_record_stats *more)
{
    sum->sent += more->sent;
    sum->sent_bytes += more->sent_bytes;
    sum->received += more->received;
    sum->received_bytes += more->received_bytes;
    sum->dropped += more->dropped;
    sum->dropped_bytes += more->dropped_bytes;
    sum->lost_bytes += more->lost_bytes;
    sum->lost_rows += more->lost_rows;
}

static void leave(struct vb_ship *s)
{
    struct vb_record_stats stats;

    if (s->group == NULL)
        return;
    vb_group_on_record(s->group, NULL, NULL);
    stats = vb_group_record_stats(s->group);
    add_stats(&s->stats, &stats);
    s->group = NULL;
}

static void offer(struct vb_ship *s, struct vb_group *group)
{
    if (s->inbox != NULL)
        vb_group_on_record(group, vb_inbox_put, s->inbox);
    if (s->inbox != NULL && vb_group_compare_clocks(group) != VB_OK)
        VB_LOG_WARN("the clocks of the ranks are not compared: there is no memory");
    vb_group_offer_folder(group, s->token);
}

static void enter(struct vb_ship *s, struct vb_group *group)
{
    s->group = group;
    vb_group_record_rate(group, s->bytes_per_s);
    if (s->leads) {
        offer(s, group);
    } else if (s->way != WAY_UNKNOWN) {
        vb_group_sees_folder(group, s->way != WAY_SENT);
    }
}

void vb_ship_attach(struct vb_ship *s, struct vb_group *group)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    if (group != s->group) {
        leave(s);
        if (group != NULL)
            enter(s, group);
    }
    pthread_mutex_unlock(&s->lock);
}

bool vb_ship_far(struct vb_ship *s)
{
    return decide(s) == WAY_SENT;
}

/* The token of rank 0 is replaced: ranks that do not see this folder must not find it. */
vb_status vb_ship_lead(struct vb_ship *s)
{
    enum way way = s->way;
    vb_status st = VB_OK;

    if (s->leads)
        return VB_OK;
    s->turned = way == WAY_SENT;
    if (way == WAY_SENT || way == WAY_UNKNOWN)
        way = open_files(s) ? WAY_FILES : WAY_DROPPED;
    if (way == WAY_FILES)
        st = vb_inbox_create(&s->inbox);
    pthread_mutex_lock(&s->lock);
    s->way = way;
    s->leads = true;
    pthread_mutex_unlock(&s->lock);
    token_remove(s);
    if (way == WAY_FILES)
        token_create(s);
    else
        memset(s->token, 0, sizeof(s->token));
    pthread_mutex_lock(&s->lock);
    if (s->group != NULL)
        offer(s, s->group);
    pthread_mutex_unlock(&s->lock);
    return st;
}

bool vb_ship_sends(struct vb_ship *s)
{
    bool sends;

    if (s == NULL)
        return false;
    pthread_mutex_lock(&s->lock);
    sends = s->group != NULL && (s->way == WAY_UNKNOWN || s->way == WAY_SENT);
    pthread_mutex_unlock(&s->lock);
    return sends;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Only the training thread attaches groups, so the group stays open without the lock. */
void vb_ship_finish(struct vb_ship *s)
{
    uint64_t now = vb_clock_ns();

    if (s == NULL || !s->leads || s->inbox == NULL || s->group == NULL || s->finished)
        return;
    s->finished = true;
    (void)vb_group_wait_records(s->group, now + END_NS);
    vb_group_compare_last(s->group, vb_clock_ns() + LAST_NS);
    free(s->clocks);
    s->clocks = vb_train_fit_clocks(s->group, &s->n_clocks);
}

static void say_lost(const struct vb_record_stats *stats)
{
    if (stats->dropped > 0)
        VB_LOG_WARN("%llu records of other ranks, %.1f KB, were lost: they came faster than "
                    "--record-rate allows, or the disk of the run folder is slow",
                    (unsigned long long)stats->dropped, (double)stats->dropped_bytes / 1e3);
    if (stats->lost_bytes > 0)
        VB_LOG_WARN("other ranks could not send %.1f KB of records",
                    (double)stats->lost_bytes / 1e3);
}

void vb_ship_end(struct vb_ship *s, uint64_t lost_rows, uint64_t began_ns)
{
    struct vb_record_stats stats;

    if (s == NULL)
        return;
    if (!s->leads && s->group != NULL && s->way == WAY_SENT)
        (void)vb_group_end_records(s->group, s->lost_bytes, lost_rows, began_ns + SENT_NS);
    stats = vb_ship_stats(s);
    if (s->leads)
        say_lost(&stats);
    vb_ship_attach(s, NULL);
    token_remove(s);
}

struct vb_train_clock *vb_ship_clocks(struct vb_ship *s, int *n_p)
{
    struct vb_train_clock *clocks = s != NULL ? s->clocks : NULL;

    *n_p = clocks != NULL ? s->n_clocks : 0;
    if (s != NULL)
        s->clocks = NULL;
    return clocks;
}

struct vb_record_stats vb_ship_stats(struct vb_ship *s)
{
    struct vb_record_stats stats, now;

    pthread_mutex_lock(&s->lock);
    stats = s->stats;
    if (s->group != NULL) {
        now = vb_group_record_stats(s->group);
        add_stats(&stats, &now);
    }
    pthread_mutex_unlock(&s->lock);
    return stats;
}

uint64_t vb_ship_lost(struct vb_ship *s)
{
    struct vb_record_stats stats;

    if (s == NULL || !s->leads)
        return 0;
    stats = vb_ship_stats(s);
    return stats.lost_rows + stats.dropped + (s->inbox != NULL ? vb_inbox_lost(s->inbox) : 0);
}
