/* SPDX-License-Identifier: MIT
 *
 * Writes lines of the log. Each line is built in one buffer and written with one call, so that
 * lines of several ranks do not mix on one terminal.
 */
#include "base/base.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

/* Relaxed is enough: a thread that sees a new level late logs a few lines too many or too few. */
static _Atomic int log_level = VB_LEVEL_WARN;
static _Thread_local int log_rank = -1;
static _Thread_local bool was_written;            /* the last message of this thread was */
static _Thread_local struct vb_log_caught caught; /* where errors of this thread go */

/* The first error of this process, cut, for those who must say later why it failed. */
static char first_error[VB_FIRST_ERROR];
static atomic_flag error_taken = ATOMIC_FLAG_INIT;
static _Atomic bool has_error;

static _Atomic int copy_fd = -1; /* lines are also written here; -1: nowhere */

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

void vb_log_set_level(enum vb_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void vb_log_set_rank(int rank)
{
    log_rank = rank;
}

int vb_log_rank(void)
{
    return log_rank;
}

struct vb_log_caught vb_log_catch(char *text, size_t size)
{
    return vb_log_catch_status(VB_OK, text, size);
}

struct vb_log_caught vb_log_catch_status(vb_status st, char *text, size_t size)
{
    struct vb_log_caught before = caught;

    caught = (struct vb_log_caught){.text = text, .size = size, .status = st};
    if (text != NULL)
        text[0] = '\0';
    return before;
}

void vb_log_catch_again(const struct vb_log_caught *before)
{
    caught = *before;
}

/* Appends text to a line of LINE_MAX_BYTES, cut if it does not fit. Returns the new length. */
static size_t VB_PRINTF(3, 0) append_v(char *line, size_t len, const char *fmt, va_list args)
{
    int n = vsnprintf(line + len, LINE_MAX_BYTES - len, fmt, args);

    if (n < 0)
        return len;
    return len + (size_t)n < LINE_MAX_BYTES ? len + (size_t)n : LINE_MAX_BYTES - 1;
}

static size_t VB_PRINTF(3, 4) append(char *line, size_t len, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    len = append_v(line, len, fmt, args);
    va_end(args);
    return len;
}

static void keep_first_error(const char *text, size_t len)
{
    if (atomic_flag_test_and_set(&error_taken))
        return;
    snprintf(first_error, sizeof(first_error), "%.*s", (int)len, text);
    atomic_store_explicit(&has_error, true, memory_order_release);
}

const char *vb_log_first_error(void)
{
    /* pairs with the release in keep_first_error() */
    return atomic_load_explicit(&has_error, memory_order_acquire) ? first_error : "";
}

void vb_log_copy_to(int fd)
{
    atomic_store(&copy_fd, fd);
}

/* `line` has a byte to spare. */
static void write_line(char *line, size_t len)
{
    int copy = atomic_load_explicit(&copy_fd, memory_order_relaxed);

    line[len++] = '\n';
    (void)vb_write_all(STDERR_FILENO, line, len); /* a failure cannot be reported anywhere */
    if (copy >= 0)
        (void)vb_write_all(copy, line, len);
}

/* Keeps the first error that is caught. */
static void VB_PRINTF(1, 0) catch_error(const char *fmt, va_list args, const char *reason)
{
    size_t len;

    if (caught.text[0] != '\0')
        return;
    vsnprintf(caught.text, caught.size, fmt, args);
    len = strlen(caught.text);
    if (reason != NULL)
        snprintf(caught.text + len, caught.size - len, ": %s", reason);
}

static bool is_caught(enum vb_level level, vb_status st)
{
    return level == VB_LEVEL_ERROR && caught.text != NULL &&
           (caught.status == VB_OK || caught.status == st);
}

/* st: VB_OK if it is not known. Prints a prefix, such as "error net/tcp/tcp rank 2: " for
 * "net/tcp/tcp.c", the message and, if reason is not NULL, ": reason". */
static void VB_PRINTF(4, 0) log_v(enum vb_level level, vb_status st, const char *file,
                                  const char *fmt, va_list args, const char *reason)
{
    const char *dot;
    int stem, saved = errno;
    char line[LINE_MAX_BYTES];
    size_t len, begin;

    was_written = (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
    if (!was_written)
        return;
    if (is_caught(level, st)) {
        was_written = false;
        catch_error(fmt, args, reason);
        errno = saved;
        return;
    }
    dot = strrchr(file, '.');
    stem = dot != NULL ? (int)(dot - file) : (int)strlen(file);
    len = append(line, 0, "%s %.*s", level_names[level], stem, file);
    if (log_rank >= 0)
        len = append(line, len, " rank %d", log_rank);
    len = begin = append(line, len, ": ");
    len = append_v(line, len, fmt, args);
    if (reason != NULL)
        len = append(line, len, ": %s", reason);
    if (level == VB_LEVEL_ERROR)
        keep_first_error(line + begin, len - begin);
    write_line(line, len);
    errno = saved;
}

void vb_log(enum vb_level level, const char *file, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    log_v(level, VB_OK, file, fmt, args, NULL);
    va_end(args);
}

void vb_log_fix(const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    int saved = errno;
    va_list args;
    size_t len = append(line, 0, "  fix: ");

    if (!was_written)
        return;
    va_start(args, fmt);
    len = append_v(line, len, fmt, args);
    va_end(args);
    write_line(line, len);
    errno = saved;
}

/* Memory may be missing because of a limit that the user can raise. Returns false if there is no
 * such limit. */
static bool memory_limit(char *text, size_t size)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    snprintf(text, size, "ulimit -v allows this process %llu MB",
             (unsigned long long)limit.rlim_cur >> 20);
    return true;
}

/* Some errors mean the same whichever call reports them. */
static void fix_errno(int err)
{
    if (err == ENOSPC || err == EDQUOT)
        vb_log_fix("df -h   # make room there, or name a folder on another disk");
    else if (err == ENOSYS)
        vb_log_fix(
            "uname -r   # the kernel lacks this call, or a sandbox forbids it: use Linux 5.3 "
            "or newer, outside the sandbox");
    else if (err == EMFILE)
        vb_log_fix("ulimit -n 65536   # this process may not open more files");
}

vb_status vb_log_errno(const char *file, const char *fmt, ...)
{
    char text[128], limit[64], reason[224];
    va_list args;
    int err = errno;
    /* EAGAIN: there is no room for the stack of a thread */
    bool limited = (err == ENOMEM || err == EAGAIN) && memory_limit(limit, sizeof(limit));

    snprintf(reason, sizeof(reason), "%s%s%s", strerror_r(err, text, sizeof(text)),
             limited ? "; " : "", limited ? limit : "");
    va_start(args, fmt);
    log_v(VB_LEVEL_ERROR, vb_status_from_errno(err), file, fmt, args, reason);
    va_end(args);
    fix_errno(err);
    errno = err;
    /* Some functions fail without setting errno. The status is VB_ERR_IO then. */
    return err != 0 ? vb_status_from_errno(err) : VB_ERR_IO;
}

vb_status vb_log_status(vb_status st, const char *file, const char *fmt, ...)
{
    bool limited = false;
    char limit[64];
    va_list args;

    if (st == VB_ERR_NO_MEMORY)
        limited = memory_limit(limit, sizeof(limit));
    va_start(args, fmt);
    log_v(VB_LEVEL_ERROR, st, file, fmt, args, limited ? limit : NULL);
    va_end(args);
    return st;
}

_Noreturn void vb_assert_failed(const char *file, int line, const char *cond)
{
    vb_log(VB_LEVEL_ERROR, file, "line %d: this is a bug in verbena: the assertion failed: %s",
           line, cond);
    abort();
}
