/* SPDX-License-Identifier: MIT
 *
 * Maps files for reading. If a mapped file shrinks, or its disk fails, a thread that reads the
 * missing bytes gets SIGBUS. A handler finds the file in a list of all mapped files, prints a
 * message with its name, and ends the process. Any other SIGBUS is handled as it was before.
 *
 * The list is global because a signal handler gets no argument of ours, and has a fixed number of
 * places because it can neither wait for a lock nor follow pointers that another thread may free.
 * A file that finds no place is mapped without one, and without a message.
 */
#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 32
#define PATH_BYTES 1024
#define LINE_BYTES (PATH_BYTES + 256)

struct place {
    _Atomic uintptr_t start, end; /* end is 0 if the place is free */
    char path[PATH_BYTES];        /* valid while end is not 0 */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a place is changed */
static struct place places[PLACES];
static bool handled; /* the handler is installed; protected by lock */
/* the previous handler; written before the new handler is installed */
static struct sigaction before;

/* ---- the handler: async-signal-safe code only ------------------------------------------------ */

/* Appends text to a line of LINE_BYTES, cut if it does not fit. Returns the new length. */
static size_t put_text(char *line, size_t len, const char *text)
{
    while (*text != '\0' && len < LINE_BYTES - 1)
        line[len++] = *text++;
    return len;
}

static size_t put_number(char *line, size_t len, uint64_t number)
{
    char digits[24];
    size_t i = sizeof(digits) - 1;

    digits[i] = '\0';
    do {
        digits[--i] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return put_text(line, len, digits + i);
}

static void say(const struct place *place, uint64_t offset)
{
    char line[LINE_BYTES];
    size_t len = put_text(line, 0, "error base/mapped");

    if (vb_log_rank() >= 0) {
        len = put_text(line, len, " rank ");
        len = put_number(line, len, (uint64_t)vb_log_rank());
    }
    len = put_text(line, len, ": ");
    len = put_text(line, len, place->path);
    len = put_text(line, len, ": offset ");
    len = put_number(line, len, offset);
    len = put_text(line, len, " can no longer be read: the file was truncated, or its disk failed");
    line[len++] = '\n'; /* put_text() leaves one byte free for the newline */
    (void)vb_write_all(STDERR_FILENO, line, len);
}

/* Returns the place of the file that contains addr, or NULL. If end changes between the two
 * reads of end, the place now belongs to another file, and start and end do not match. The place
 * of the right file cannot change, because a thread is reading that file. */
static const struct place *find(uintptr_t addr)
{
    uintptr_t start, end;
    size_t i;

    for (i = 0; i < PLACES; i++) {
        end = atomic_load_explicit(&places[i].end,
                                   memory_order_acquire); /* pairs with the release in take() */
        start = atomic_load_explicit(&places[i].start, memory_order_acquire);
        if (addr >= start && addr < end &&
            atomic_load_explicit(&places[i].end, memory_order_relaxed) == end)
            return &places[i];
    }
    return NULL;
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    bool sent = info->si_code <= 0; /* the signal was sent by a process, so it has no address */
    uintptr_t addr = (uintptr_t)info->si_addr;
    const struct place *place = sent ? NULL : find(addr);

    (void)context;
    /* addr is in no mapped file: the read faults again, and the previous handler runs */
    if (place == NULL) {
        (void)sigaction(signal, &before, NULL);
        if (sent)
            (void)raise(signal);
        return;
    }
    while (atomic_flag_test_and_set(&said)) /* if several threads fault, only one of them prints */
        pause();
    say(place, addr - atomic_load_explicit(&place->start, memory_order_relaxed));
    _exit(1);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Installs the handler, which runs on a thread's alternate signal stack, if it has one (ASan). */
static void handle_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    if (handled)
        return;
    sigemptyset(&action.sa_mask);
    handled = sigaction(SIGBUS, NULL, &before) == 0 && sigaction(SIGBUS, &action, NULL) == 0;
}

static void take(struct place *place, const void *map, size_t len, const char *path)
{
    uintptr_t start = (uintptr_t)map;

    snprintf(place->path, sizeof(place->path), "%s", path);
    atomic_store_explicit(&place->start, start, memory_order_release);
    atomic_store_explicit(&place->end, start + len,
                          memory_order_release); /* pairs with the acquire in find() */
}

static void add(const void *map, size_t len, const char *path)
{
    size_t i;

    pthread_mutex_lock(&lock);
    handle_bus_errors();
    for (i = 0; i < PLACES; i++) {
        if (atomic_load_explicit(&places[i].end, memory_order_relaxed) == 0) {
            take(&places[i], map, len, path);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

const void *vb_file_map(int fd, size_t len_bytes, const char *path)
{
    void *map = mmap(NULL, len_bytes, PROT_READ, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        return NULL;
    add(map, len_bytes, path);
    return map;
}

void vb_file_unmap(const void *map, size_t len_bytes)
{
    size_t i;

    if (map == NULL)
        return;
    /* the place is freed first, because another thread may get the address after munmap() */
    pthread_mutex_lock(&lock);
    for (i = 0; i < PLACES; i++)
        if (atomic_load_explicit(&places[i].start, memory_order_relaxed) == (uintptr_t)map)
            atomic_store_explicit(&places[i].end, 0, memory_order_release);
    pthread_mutex_unlock(&lock);
    munmap((void *)map, len_bytes);
}
