/* SPDX-License-Identifier: MIT
 *
 * Passes the output of the ranks on to the supervisor's own output. A *stream* is the pipe from one
 * rank's standard output or error; a *sink* is the supervisor's standard output or error. Rank 0's
 * standard output is passed on unchanged, everything else as lines to standard error, with the rank
 * before each line. A stream is read only while its buffer has space, and its buffer is emptied
 * only while the sink has space: if the reader of the supervisor is slow, the ranks wait, and this
 * process does not. Until a rank on another host has said hello, its standard output is split into
 * lines too. On a terminal the last line may be *progress*, without a line end: the next output
 * wipes it out.
 *
 * The supervisor's own descriptors are shared with other processes and stay blocking. A write of up
 * to PIPE_BUF bytes to a pipe that poll() calls writable does not block.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX_MAX 80     /* size of "[HOST rank 1023] " and a line end; a long HOST is truncated */
#define LAST_LINE_MAX 240 /* number of bytes kept of the last line */
#define ERROR_MARK "error "
#define SINK_BYTES (1 << 16)
#define SAY_BYTES 512 /* size of a line of the supervisor itself */
#define SAY_LINES 24  /* number of such lines for which there is always space */
#define STREAM_BYTES (PIPE_BUF - PREFIX_MAX) /* longer lines are split into pieces of this size */

struct sink {
    int fd;     /* -1: it is closed, and output to it is dropped */
    bool lines; /* takes whole lines, with a prefix */
    size_t len;
    char buf[SINK_BYTES + SAY_BYTES * SAY_LINES];
};

struct stream {
    int fd; /* -1: it has ended */
    int rank;
    int number;      /* by which the user knows the rank; -1: not known yet */
    int log_fd;      /* -1: no log; both streams of a rank have the same log */
    bool stuck;      /* the buffer waits for space in the sink */
    bool hello_done; /* the hello has come, or none is expected */
    const char *host;
    struct sink *to, *then;    /* the sink until the hello, and after it */
    char last[LAST_LINE_MAX];  /* the last line that was passed on */
    char error[LAST_LINE_MAX]; /* the last one that begins with "error" */
    size_t len;
    char buf[STREAM_BYTES];
};

struct vb_relay {
    struct sink out, err;
    struct vb_relay_opts o;
    bool shown;           /* the last output to standard error was progress */
    int begun;            /* number of ranks that have printed begun_line */
    bool printed;         /* something went to standard output */
    char said[SAY_BYTES]; /* the last message of the supervisor */
    int n_streams;
    struct stream streams[];
};

void vb_relay_grow(struct vb_relay *relay)
{
    int rank = relay->n_streams / 2, i;

    for (i = 0; i < 2; i++) {
        struct stream *s = &relay->streams[relay->n_streams++];

        s->fd = s->log_fd = -1;
        s->rank = rank;
        s->number = -1;
        s->to = s->then = &relay->err;
    }
}

vb_status vb_relay_create(const struct vb_relay_opts *opts, struct vb_relay **relay_p)
{
    int n = 2 * (opts->room > opts->ranks ? opts->room : opts->ranks), i;
    struct vb_relay *relay = calloc(1, sizeof(*relay) + (size_t)n * sizeof(relay->streams[0]));

    if (relay == NULL)
        return vb_err_sys("calloc");
    relay->out.fd = STDOUT_FILENO;
    relay->err.fd = STDERR_FILENO;
    relay->err.lines = true;
    relay->o = *opts;
    for (i = 0; i < opts->ranks; i++)
        vb_relay_grow(relay);
    for (i = 0; i < relay->n_streams; i++)
        relay->streams[i].number = i / 2;
    *relay_p = relay;
    return VB_OK;
}

static void close_log(struct vb_relay *relay, int rank)
{
    struct stream *out = &relay->streams[2 * (size_t)rank];

    vb_fd_close(&out[0].log_fd);
    out[1].log_fd = -1;
}

void vb_relay_destroy(struct vb_relay *relay)
{
    int i;

    for (i = 0; relay != NULL && i < relay->n_streams; i++) {
        vb_fd_close(&relay->streams[i].fd);
        if (i % 2 == 0)
            close_log(relay, i / 2);
    }
    free(relay);
}

/* Opens a log without blocking: a blocking open of a FIFO would wait for its reader. */
static vb_status open_log(const char *path, bool appends, int *fd_p)
{
    int how = appends ? O_APPEND : O_APPEND | O_TRUNC; /* a joiner may write there, too */
    int fd = open(path, O_WRONLY | O_CREAT | how | O_CLOEXEC | O_NONBLOCK, 0666);
    struct stat sb;

    if (fd < 0 && errno != ENXIO) /* ENXIO: a FIFO that nobody reads, or a socket */
        return vb_err_sys("log %s", path);
    if (fd < 0 || fstat(fd, &sb) != 0 || (!S_ISREG(sb.st_mode) && !S_ISCHR(sb.st_mode))) {
        vb_fd_close(&fd);
        return vb_err(VB_ERR_INPUT, "cannot write the log %s: the path exists and is not a file",
                      path);
    }
    *fd_p = fd;
    return VB_OK;
}

/* Writes the path of a rank's log, and makes the rank's folder in a run folder. */
static vb_status log_path(const struct vb_relay *relay, int rank, char path[PATH_MAX])
{
    const char *logs = relay->o.logs != NULL ? relay->o.logs : relay->o.run;

    if (strlen(logs) + 32 >= PATH_MAX)
        return vb_err(VB_ERR_USAGE, "the path of the folder for logs is too long");
    if (relay->o.logs != NULL) {
        snprintf(path, PATH_MAX, "%s/rank-%d.log", logs, rank);
        return VB_OK;
    }
    snprintf(path, PATH_MAX, "%s/rank%d", logs, rank);
    if (vb_dir_make(path) != VB_OK)
        return VB_ERR_IO;
    snprintf(path, PATH_MAX, "%s/rank%d/log.txt", logs, rank);
    return VB_OK;
}

static vb_status begin_log(struct vb_relay *relay, int rank, bool appends)
{
    struct stream *out = &relay->streams[2 * (size_t)rank];
    char path[PATH_MAX];
    vb_status st;
    int fd = -1;

    if (relay->o.logs == NULL && relay->o.run == NULL)
        return VB_OK;
    st = log_path(relay, out->number, path);
    if (st == VB_OK)
        st = open_log(path, appends, &fd);
    if (st == VB_OK)
        out[0].log_fd = out[1].log_fd = fd;
    return st;
}

vb_status vb_relay_log(struct vb_relay *relay, int rank)
{
    return begin_log(relay, rank, relay->o.logs == NULL && relay->o.append);
}

/* Without a log the rank trains all the same. */
void vb_relay_number(struct vb_relay *relay, int rank, int number)
{
    struct stream *out = &relay->streams[2 * (size_t)rank];

    if (out->number >= 0)
        return;
    out[0].number = out[1].number = number;
    (void)begin_log(relay, rank, true);
}

void vb_relay_add(struct vb_relay *relay, int rank, const char *host, int out_fd, int err_fd)
{
    struct stream *out = &relay->streams[2 * (size_t)rank], *err = out + 1;

    out->fd = out_fd;
    err->fd = err_fd;
    out->rank = err->rank = rank;
    out->host = err->host = host;
    out->then = rank == 0 || relay->o.all_out ? &relay->out : &relay->err;
    out->hello_done = relay->o.hello_fn == NULL;
    out->to = out->hello_done ? out->then : &relay->err;
    err->hello_done = true;
}

/* ---- into a sink ----------------------------------------------------------------------------- */

static size_t room(const struct sink *sink)
{
    if (sink->fd < 0)
        return SIZE_MAX;
    return sink->len < SINK_BYTES ? SINK_BYTES - sink->len : 0;
}

static void append(struct sink *sink, const char *bytes, size_t len)
{
    if (sink->fd < 0)
        return;
    memcpy(sink->buf + sink->len, bytes, len);
    sink->len += len;
}

/* If progress is shown, the sink holds nothing else, so it has space for VB_WIPE_LINE. */
static void wipe(struct vb_relay *relay)
{
    if (relay->shown)
        append(&relay->err, VB_WIPE_LINE, strlen(VB_WIPE_LINE));
    relay->shown = false;
}

static bool is_progress(const struct vb_relay *relay, const char *line, size_t len)
{
    size_t mark = strlen(VB_WIPE_LINE);

    return relay->o.shows && len >= mark && memcmp(line, VB_WIPE_LINE, mark) == 0;
}

int vb_relay_begun(const struct vb_relay *relay)
{
    return relay->begun;
}

bool vb_relay_ended(const struct vb_relay *relay, int rank)
{
    const struct stream *s = &relay->streams[2 * (size_t)rank];

    return s[0].fd < 0 && s[1].fd < 0 && s[0].len == 0 && s[1].len == 0;
}

bool vb_relay_printed(const struct vb_relay *relay)
{
    return relay->printed;
}

/* If the reader is slow, progress is dropped, because newer progress comes soon. */
static void show(struct vb_relay *relay, const char *line, size_t len)
{
    if (len == strlen(VB_WIPE_LINE)) {
        wipe(relay);
    } else if (relay->err.len == 0) {
        append(&relay->err, line, len);
        relay->shown = true;
    }
}

/* `line` has a byte to spare. */
static void say_line(struct vb_relay *relay, char *line, size_t len)
{
    line[len++] = '\n';
    wipe(relay);
    if (relay->err.len + len <= sizeof(relay->err.buf))
        append(&relay->err, line, len);
}

void vb_relay_fix(struct vb_relay *relay, const char *command)
{
    char line[SAY_BYTES];

    snprintf(line, sizeof(line) - 1, "  fix: %s", command);
    say_line(relay, line, strlen(line));
}

static void say(struct vb_relay *relay, const char *level, const char *text)
{
    char line[SAY_BYTES];

    snprintf(line, sizeof(line) - 1, "%-5s launch/supervise: %s", level, text);
    say_line(relay, line, strlen(line));
}

void vb_relay_say(struct vb_relay *relay, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(relay->said, sizeof(relay->said), fmt, args);
    va_end(args);
    say(relay, "error", relay->said);
}

void vb_relay_warn(struct vb_relay *relay, const char *fmt, ...)
{
    char text[SAY_BYTES] = "";
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    say(relay, "warn", text);
}

const char *vb_relay_said(const struct vb_relay *relay)
{
    return relay->said;
}

/* Writes to the log. If that fails, the job goes on without the log. */
static void write_log(struct vb_relay *relay, const struct stream *s, const char *bytes, size_t len)
{
    ssize_t n = 0;

    while (s->log_fd >= 0 && len > 0) {
        n = write(s->log_fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            vb_relay_say(relay, "cannot write %s/rank%s%d%s, and this log ends here: %s",
                         relay->o.logs != NULL ? relay->o.logs : relay->o.run,
                         relay->o.logs != NULL ? "-" : "", s->number,
                         relay->o.logs != NULL ? ".log" : "/log.txt", strerror(errno));
            close_log(relay, s->rank);
            return;
        }
        bytes += n;
        len -= (size_t)n;
    }
}

/* Remembers the last line of a stream. Returns true for the hello, which is not for the user. */
static bool take_hello(const struct vb_relay *relay, struct stream *s, const char *from, size_t n)
{
    char line[SAY_BYTES];

    snprintf(s->last, sizeof(s->last), "%.*s", (int)(n < LAST_LINE_MAX ? n : LAST_LINE_MAX), from);
    if (strncmp(s->last, ERROR_MARK, strlen(ERROR_MARK)) == 0)
        memcpy(s->error, s->last, sizeof(s->error));
    if (s->hello_done)
        return false;
    snprintf(line, sizeof(line), "%.*s", (int)(n < SAY_BYTES ? n : SAY_BYTES), from);
    s->hello_done = relay->o.hello_fn(relay->o.hello_arg, s->rank, line);
    if (s->hello_done)
        s->to = s->then;
    return s->hello_done;
}

/* Returns true for a line of the launch protocol: training has begun, or a peer is lost. */
static bool take_news(struct vb_relay *relay, const struct stream *s, const char *from, size_t n)
{
    size_t mark = strlen(relay->o.begun_line);
    char line[VB_NEWS_DOORS + 32];

    if (mark == 0 || n < mark || memcmp(from, relay->o.begun_line, mark) != 0)
        return false;
    if (n == mark) {
        relay->begun++;
        return true;
    }
    n -= mark;
    snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line) - 1),
             from + mark);
    vb_causes_take(relay->o.causes, s->rank, line);
    return true;
}

static int write_prefix(const struct stream *s, char prefix[PREFIX_MAX])
{
    const char *host = s->host != NULL ? s->host : "", *blank = s->host != NULL ? " " : "";

    if (s->number < 0)
        return snprintf(prefix, PREFIX_MAX, "[%.60s%sjoiner] ", host, blank);
    return snprintf(prefix, PREFIX_MAX, "[%.60s%srank %d] ", host, blank, s->number);
}

/* Passes on the first line in a stream's buffer. Returns the number of bytes taken. */
static size_t pass_line(struct vb_relay *relay, struct stream *s, const char *from, size_t len)
{
    const char *end = memchr(from, '\n', len);
    size_t n = end != NULL ? (size_t)(end - from) : len, taken;
    bool whole = end != NULL || len == STREAM_BYTES || s->fd < 0;
    char prefix[PREFIX_MAX];
    int prefix_len;

    if (!whole || len == 0)
        return 0;
    taken = end != NULL ? n + 1 : n;
    if (take_news(relay, s, from, n))
        return taken;
    if (is_progress(relay, from, n)) {
        show(relay, from, n);
        return taken;
    }
    prefix_len = write_prefix(s, prefix);
    s->stuck = room(s->to) < (size_t)prefix_len + n + 1;
    if (s->stuck)
        return 0;
    if (take_hello(relay, s, from, n))
        return taken;
    wipe(relay);
    append(s->to, prefix, (size_t)prefix_len);
    append(s->to, from, n);
    append(s->to, "\n", 1);
    write_log(relay, s, from, taken);
    return taken;
}

static size_t pass_raw(struct vb_relay *relay, struct stream *s, const char *from, size_t len)
{
    size_t n = room(s->to) < len ? room(s->to) : len;

    if (n > 0)
        wipe(relay);
    append(s->to, from, n);
    relay->printed |= n > 0;
    write_log(relay, s, from, n);
    s->stuck = n < len;
    return n;
}

/* Moves as much of a stream's buffer to its sink as fits into the sink. */
static void pass_on(struct vb_relay *relay, struct stream *s)
{
    size_t done = 0, n;

    s->stuck = false;
    do {
        n = s->to->lines ? pass_line(relay, s, s->buf + done, s->len - done)
                         : pass_raw(relay, s, s->buf + done, s->len - done);
        done += n;
    } while (n > 0);
    s->len -= done;
    memmove(s->buf, s->buf + done, s->len);
}

static void end_stream(struct vb_relay *relay, struct stream *s)
{
    vb_fd_close(&s->fd);
    pass_on(relay, s); /* a last line without an end is complete now */
    wipe(relay);
}

/* Reads once. Returns false if nothing came. */
static bool read_stream(struct vb_relay *relay, struct stream *s)
{
    ssize_t n = read(s->fd, s->buf + s->len, STREAM_BYTES - s->len);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        end_stream(relay, s);
        return false;
    }
    s->len += (size_t)n;
    pass_on(relay, s);
    return true;
}

const char *vb_relay_last_line(struct vb_relay *relay, int rank)
{
    struct stream *err = &relay->streams[2 * (size_t)rank + 1];

    while (err->fd >= 0 && !err->stuck && read_stream(relay, err))
        ;
    return err->last;
}

const char *vb_relay_last_error(struct vb_relay *relay, int rank)
{
    struct stream *err = &relay->streams[2 * (size_t)rank + 1];
    const char *text;

    (void)vb_relay_last_line(relay, rank);
    text = err->error + (err->error[0] != '\0' ? strlen(ERROR_MARK) : 0);
    return text;
}

/* ---- out of a sink --------------------------------------------------------------------------- */

/* Returns the number of bytes to write at once, which are whole lines if possible. */
static size_t piece(const struct sink *sink)
{
    size_t n = sink->len < PIPE_BUF ? sink->len : PIPE_BUF;
    const char *end;

    if (!sink->lines || n == sink->len)
        return n;
    end = memrchr(sink->buf, '\n', n);
    return end != NULL ? (size_t)(end - sink->buf) + 1 : n;
}

/* If nobody reads standard error any more, the job goes on. Standard output is the result. */
static vb_status sink_failed(struct vb_relay *relay, struct sink *sink)
{
    int err = errno;

    sink->fd = -1;
    sink->len = 0;
    if (sink == &relay->err)
        return VB_OK;
    vb_relay_say(relay, "cannot write to standard output: %s", strerror(err));
    return vb_status_from_errno(err);
}

static vb_status write_sink(struct vb_relay *relay, struct sink *sink)
{
    ssize_t n = write(sink->fd, sink->buf, piece(sink));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return VB_OK;
    if (n < 0)
        return sink_failed(relay, sink);
    sink->len -= (size_t)n;
    memmove(sink->buf, sink->buf + n, sink->len);
    return VB_OK;
}

/* ---- called by the loop ---------------------------------------------------------------------- */

/* A descriptor that must not be waited for is -1, which poll() ignores. */
int vb_relay_prepare(struct vb_relay *relay, struct pollfd *fds)
{
    struct stream *s;
    int i;

    fds[0] = (struct pollfd){.fd = relay->out.len > 0 ? relay->out.fd : -1, .events = POLLOUT};
    fds[1] = (struct pollfd){.fd = relay->err.len > 0 ? relay->err.fd : -1, .events = POLLOUT};
    for (i = 0; i < relay->n_streams; i++) {
        s = &relay->streams[i];
        fds[2 + i] = (struct pollfd){.fd = s->stuck ? -1 : s->fd, .events = POLLIN};
    }
    return 2 + relay->n_streams;
}

vb_status vb_relay_move(struct vb_relay *relay, const struct pollfd *fds, int n)
{
    vb_status st = VB_OK;
    int i;

    for (i = 2; i < n; i++)
        if (fds[i].revents != 0 && relay->streams[i - 2].fd >= 0)
            read_stream(relay, &relay->streams[i - 2]);
    if (fds[1].revents != 0 && relay->err.fd >= 0) /* first, as it may wipe out progress */
        write_sink(relay, &relay->err);
    if (fds[0].revents != 0 && relay->out.fd >= 0)
        st = write_sink(relay, &relay->out);
    for (i = 0; i < relay->n_streams; i++) /* the sinks may have space again */
        if (relay->streams[i].stuck)
            pass_on(relay, &relay->streams[i]);
    return st;
}

/* A process that a rank has started outside its group may hold the pipes open. */
void vb_relay_last_call(struct vb_relay *relay)
{
    struct stream *s;
    int i;

    for (i = 0; i < relay->n_streams; i++) {
        s = &relay->streams[i];
        while (s->fd >= 0 && !s->stuck && read_stream(relay, s))
            ;
        if (s->fd >= 0 && !s->stuck)
            end_stream(relay, s);
    }
}

bool vb_relay_empty(const struct vb_relay *relay)
{
    int i;

    for (i = 0; i < relay->n_streams; i++)
        if (relay->streams[i].fd >= 0 || relay->streams[i].len > 0)
            return false;
    return relay->out.len == 0 && relay->err.len == 0;
}
