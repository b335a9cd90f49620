/* SPDX-License-Identifier: MIT
 *
 * base/ is the foundation: it includes nothing from other folders. Any thread may call every
 * function here, unless a comment says otherwise.
 */
#ifndef VB_BASE_BASE_H
#define VB_BASE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define VB_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define VB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- status ---------------------------------------------------------------------------------- */

/* 0 means success, a positive value means "not now", and a negative value means failure. */
typedef int vb_status;

enum {
    VB_OK = 0,
    VB_AGAIN = 1,      /* nothing was accepted: the caller makes progress and tries again */
    VB_ERR_USAGE = -1, /* the caller or the command line requested something impossible */
    VB_ERR_INPUT = -2, /* a file or a message is broken */
    VB_ERR_NO_MEMORY = -3,
    VB_ERR_NO_FILE = -4,
    VB_ERR_ACCESS = -5, /* permission denied */
    VB_ERR_IO = -6,     /* the operating system reported any other error */
    VB_ERR_TIMEOUT = -7,
    VB_ERR_PEER = -8,        /* the peer is gone */
    VB_ERR_UNSUPPORTED = -9, /* this machine or a library does not support the operation */
};

/* Returns a short text for a status, never NULL; the caller does not free it. */
const char *vb_status_str(vb_status st);

/* Returns the status that matches an errno value. */
vb_status vb_status_from_errno(int err);

/* ---- logging --------------------------------------------------------------------------------- */

enum vb_level { VB_LEVEL_ERROR, VB_LEVEL_WARN, VB_LEVEL_INFO, VB_LEVEL_DEBUG, VB_LEVEL_TRACE };

/* The log level belongs to the process, the rank to the calling thread, because ranks of a test
 * may be threads. With the list of mapped files and the token of the
 * process they are the only global state of base/. */
void vb_log_set_level(enum vb_level level);
void vb_log_set_rank(int rank); /* -1: this thread belongs to no rank */
int vb_log_rank(void);          /* returns the rank of the calling thread */

/* Returns the first error that this process has logged, without its prefix; "": none. */
#define VB_FIRST_ERROR 512
const char *vb_log_first_error(void);

/* From now on the first error of this thread is stored in text, cut if it does not fit, and its
 * errors are not logged: for a failure that the caller only warns of. NULL: they are logged.
 * Returns what was done with errors before; vb_log_catch_again() goes back to that. */
struct vb_log_caught {
    char *text; /* NULL: to the log */
    size_t size;
    vb_status status; /* the only one that is stored; VB_OK: any */
};
struct vb_log_caught vb_log_catch(char *text, size_t size);
void vb_log_catch_again(const struct vb_log_caught *before);

/* The same for errors with this status alone: the caller knows what to do about them. */
struct vb_log_caught vb_log_catch_status(vb_status st, char *text, size_t size);

/* From now on each line is also written to fd, as long as that succeeds; -1: no more. */
void vb_log_copy_to(int fd);

/* Writes one line to standard error: level, folder and file, rank, message. Keeps errno. */
void vb_log(enum vb_level level, const char *file, const char *fmt, ...) VB_PRINTF(3, 4);

#define VB_LOG_ERROR(...) vb_log(VB_LEVEL_ERROR, __FILE__, __VA_ARGS__)
#define VB_LOG_WARN(...) vb_log(VB_LEVEL_WARN, __FILE__, __VA_ARGS__)
#define VB_LOG_INFO(...) vb_log(VB_LEVEL_INFO, __FILE__, __VA_ARGS__)
#define VB_LOG_DEBUG(...) vb_log(VB_LEVEL_DEBUG, __FILE__, __VA_ARGS__)
#ifdef VB_DEBUG
#define VB_LOG_TRACE(...) vb_log(VB_LEVEL_TRACE, __FILE__, __VA_ARGS__)
#else
#define VB_LOG_TRACE(...) ((void)0)
#endif

/* Both macros log an error message and return a status, as in: return vb_err_sys("open %s",
 * path). vb_err_sys() takes the reason and the status from errno. */
#define vb_err_sys(...) vb_log_errno(__FILE__, __VA_ARGS__)
#define vb_err(status, ...) vb_log_status((status), __FILE__, __VA_ARGS__)
vb_status vb_log_errno(const char *file, const char *fmt, ...) VB_PRINTF(2, 3);
vb_status vb_log_status(vb_status st, const char *file, const char *fmt, ...) VB_PRINTF(3, 4);

/* Writes "  fix: ..." below the message that this thread has just logged: what the user can type
 * next. A message has at most two such lines. Keeps errno. */
void vb_log_fix(const char *fmt, ...) VB_PRINTF(1, 2);

/* Checks for bugs in Verbena only, never for input or peers. cond has no side effects. */
#ifdef VB_DEBUG
#define VB_ASSERT(cond) ((cond) ? (void)0 : vb_assert_failed(__FILE__, __LINE__, #cond))
#else
#define VB_ASSERT(cond) ((void)0)
#endif
_Noreturn void vb_assert_failed(const char *file, int line, const char *cond);

/* ---- processes ---------------------------------------------------------------------------------
 */

#define VB_TOKEN_BYTES 16

/* Stores random bytes that are the same in all threads of this process, and that no other process
 * has: none in another PID namespace or on another host, no child and no parent. */
vb_status vb_process_token(unsigned char token[VB_TOKEN_BYTES]);

/* Computes a hash of the file of this program. Programs with the same hash are the same. */
vb_status vb_process_program(uint64_t *hash_p);

/* Returns a descriptor of this process (a pidfd), which another process can be given and which the
 * caller closes. -1, with errno: the kernel is older than Linux 5.3, or a sandbox forbids it. */
int vb_process_fd(void);

/* Returns whether fd is a pidfd of process number pid; pid 0: of a process that this process cannot
 * see, because it is neither in this PID namespace nor in one below it. */
bool vb_process_fd_is(int fd, int pid);

/* Returns whether the process of a pidfd has ended, and waits for that up to wait_ms. A process
 * that was not reaped yet has ended: it can no longer write. */
bool vb_process_ended(int fd, int wait_ms);

/* Kills the process of a pidfd. Returns true if it was killed or had ended. Otherwise errno is
 * EINVAL if the process is in a PID namespace that is not below this one, or EPERM. */
bool vb_process_kill(int fd);

/* By what another process of this host can find this one: its number in a PID namespace, and when
 * it was started, so that no later process with the same number is taken for it. number 0: not
 * known. Another process may claim any number: see vb_process_same_program() before a kill. */
struct vb_process_id {
    uint32_t number, ns; /* ns: number of the PID namespace */
    uint64_t start;      /* as the kernel counts, since the host was started */
};

void vb_process_id(struct vb_process_id *id_p);

/* Returns a descriptor (a pidfd) of the process with this number, which the caller closes. -1: it
 * cannot be seen from here, or has ended and was reaped, or the kernel has no such descriptors. */
int vb_process_open(const struct vb_process_id *id);

/* What the kernel shows of the threads of a process. Runs: a thread is on a cpu, waits for one, or
 * waits for a disk or for memory that was paged out. Unknown: it is in a PID namespace that this
 * process cannot see, or its number has another process now. */
enum vb_process_state {
    VB_PROCESS_UNKNOWN,
    VB_PROCESS_RUNS,
    VB_PROCESS_SLEEPS,
    VB_PROCESS_STOPPED, /* by a signal (SIGSTOP) or a debugger */
    VB_PROCESS_ENDED,   /* and was not reaped yet */
};

enum vb_process_state vb_process_state(const struct vb_process_id *id);

/* Returns whether a process that can be seen from here runs the program of this one. */
bool vb_process_same_program(const struct vb_process_id *id);

/* Returns the number of times that this process has waited for a page from a disk. */
uint64_t vb_process_page_waits(void);

/* Stops this process, all its threads, for some seconds, as SIGSTOP and SIGCONT do. A child sends
 * the signals; it ends with this process. */
vb_status vb_process_pause(double seconds);

/* ---- options --------------------------------------------------------------------------------- */

enum vb_opt_type {
    VB_OPT_FLAG,   /* the field is a bool; the option needs no value */
    VB_OPT_INT,    /* the field is an int64_t from min to max */
    VB_OPT_REAL,   /* the field is a double from min to max; both limits are whole numbers */
    VB_OPT_TEXT,   /* the field is a const char *, borrowed from argv or environment, or NULL */
    VB_OPT_CHOICE, /* the field is an int, an index into choices */
};

/* Determines which help text shows an option. */
enum vb_opt_level {
    VB_OPT_BASIC,  /* --help and --help-all show the option */
    VB_OPT_MORE,   /* only --help-all shows the option */
    VB_OPT_HIDDEN, /* no help text shows the option, but the option works */
};

/* One row of a table of options. The parser, the help texts and the dump all use this table. */
struct vb_opt {
    const char *name; /* "log-level" means the option --log-level and the variable VB_LOG_LEVEL */
    enum vb_opt_type type;
    size_t offset;              /* offset of the field in the struct that the group fills */
    const char *fallback;       /* the default value as text; NULL: off, 0 or no text */
    int64_t min, max;           /* limits of the value of VB_OPT_INT and VB_OPT_REAL */
    const char *const *choices; /* the choices of VB_OPT_CHOICE; the list ends with NULL */
    const char *arg;            /* the name of the value in help texts, such as "N" */
    const char *help; /* a phrase and perhaps a sentence; the default is printed after it */
    enum vb_opt_level level;
    const char *alias; /* an old name, which still works but is not listed anywhere; NULL: none */
};

/* Options that belong together, and the struct that receives their values. */
struct vb_opt_group {
    const char *title;
    const struct vb_opt *opts;
    int n_opts;
    void *into; /* the struct that vb_opts_parse() fills; owned by the caller */
};

#define VB_OPTS_MAX 128 /* maximum number of options of one command */
#define VB_OPTS_WHY 256 /* size of the buffer for an error message */

struct vb_opts {
    const struct vb_opt_group *groups;
    int n_groups;
    bool help;     /* --help or --help-all was given; the other options were not checked */
    bool help_all; /* --help-all was given */
    const char *const *operands; /* the arguments that are not options, borrowed from argv */
    int n_operands;
    unsigned char source[VB_OPTS_MAX]; /* of each option's value, in the order of the table */
};

/* Fills the structs of the groups from the defaults, then the environment, then argv (without the
 * command's name). The operands are moved to the start of argv. On VB_ERR_USAGE, why has a message
 * of one line, with the option as the user wrote it and, if it is unknown, the most similar one.
 * */
vb_status vb_opts_parse(struct vb_opts *opts, const struct vb_opt_group *groups, int n_groups,
                        int argc, char **argv, char why[VB_OPTS_WHY]);

/* After vb_opts_parse(): true if the command line or the environment gave the option a value. */
bool vb_opts_given(const struct vb_opts *opts, const char *name);

/* The value of an option, and where it comes from. */
struct vb_opt_value {
    const char *name;
    const char *text;   /* as the command line takes it; NULL: a text that was not given */
    const char *source; /* "default", "environment", "command line" */
    bool given;         /* the source is not the default */
    char buf[64];
};

/* After vb_opts_parse(): fills in the option with this index, from 0 on. Returns false if there is
 * none. */
bool vb_opts_at(const struct vb_opts *opts, int index, struct vb_opt_value *value_p);

/* Prints the list of options; with all, also the VB_OPT_MORE options and the names of environment
 * variables. Returns the number of options that only --help-all shows. */
int vb_opts_help(const struct vb_opt_group *groups, int n_groups, bool all, FILE *out);

/* Logs the value of every option and the source of the value, at level info. */
void vb_opts_dump(const struct vb_opts *opts, const char *command);

/* Writes a message to why, cut to VB_OPTS_WHY bytes. Returns VB_ERR_USAGE. */
vb_status vb_usage(char *why, const char *fmt, ...) VB_PRINTF(2, 3);

/* Returns the candidate that is most similar to a misspelled text, or NULL if none is similar. */
const char *vb_nearest(const char *text, const char *const *candidates, int n);

/* The same for names of options, which users may also know by another word (--learning-rate) or
 * with something behind them (--batch-size, --batchsize). */
const char *vb_nearest_option(const char *name, const char *const *names, int n);

/* Parses a decimal whole number. Returns false if text is anything else or needs over 64 bits. */
bool vb_parse_int(const char *text, int64_t *value_p);

/* Parses a decimal number, which may have a fraction and an exponent. Returns false if text
 * contains anything else, or if the number is infinite or so small that it would become 0. */
bool vb_parse_real(const char *text, double *value_p);

/* ---- clock ----------------------------------------------------------------------------------- */

/* Returns the time of the monotonic clock in nanoseconds. */
uint64_t vb_clock_ns(void);

/* Returns the time that records and traces are written with: the monotonic clock, unless a test
 * has changed it. Deadlines and durations that decide anything use vb_clock_ns(). */
uint64_t vb_record_clock_ns(void);
uint64_t vb_record_time(uint64_t clock_ns); /* the same for an earlier time of vb_clock_ns() */

/* For tests: from now on vb_record_clock_ns() differs from the monotonic clock by offset_ns, and
 * gains ppm millionths. Belongs to the process. A second call makes the clock jump. */
void vb_clock_inject(int64_t offset_ns, double ppm);

/* Sleeps until vb_clock_ns() is at least clock_ns. Returns the time when the thread woke up. */
uint64_t vb_sleep_until(uint64_t clock_ns);

/* A question from one clock to another and its answer: four times, two of each clock. */
struct vb_clock_exchange {
    uint64_t asked_ns;                 /* the question left, by the clock of the asker */
    uint64_t received_ns, answered_ns; /* by the clock of the rank that was asked */
    uint64_t returned_ns;              /* the answer came, by the clock of the asker */
};

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the first line, without its newline, of a small file, as in /proc and /sys. Bytes that are
 * not printable become '?'. On failure, sets buf to "" and returns false, without a log line. */
bool vb_probe_line(char *buf, size_t size, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Reads the first line in the same way and parses it as a decimal number. */
bool vb_probe_int(int64_t *value_p, const char *path_fmt, ...) VB_PRINTF(2, 3);

/* Calls fn for each line of a text file, without its newline and cut to VB_LINE bytes. Stops if fn
 * returns false, or after 65536 lines. If the file cannot be read, fn is not called. */
#define VB_LINE 512
typedef bool (*vb_line_fn)(char *line, void *arg);
void vb_probe_lines(vb_line_fn fn, void *arg, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Called with the result of vb_err_sys() for a file or folder that could not be made: if the user
 * may not write there, tells how to see that. Returns st. */
vb_status vb_file_denied(vb_status st, const char *path);

/* Returns VB_OK if path does not exist or is a regular file. Callers check this before a rename to
 * path, which would replace a device or a pipe by a file. Of a symbolic link, the target is
 * checked, although a rename would replace the link itself. */
vb_status vb_file_may_replace(const char *path);

/* Writes all bytes. Returns false, with errno set, if that fails. Async-signal-safe. */
bool vb_write_all(int fd, const void *data, size_t len_bytes);

/* Replaces a file atomically: writes and syncs a temporary file in the same folder and renames it
 * to path. On failure the old file is unchanged and the temporary file is removed. */
vb_status vb_file_replace(const char *path, const void *data, size_t len_bytes);

/* The same with what a function prints, which is kept in memory until it is complete. len_p: its
 * length, or NULL. */
typedef vb_status (*vb_print_fn)(const void *arg, FILE *out);
vb_status vb_file_print(const char *path, vb_print_fn print, const void *arg, size_t *len_p);

/* Syncs the folder that contains path. A new name (of a file, a folder or after a rename) survives
 * a power cut only after that. */
vb_status vb_file_sync_folder(const char *path);

/* Maps a file for reading. If the file shrinks or its disk fails, a thread that reads the missing
 * bytes ends the process with exit code 1 and a message that names the file; for that, the first
 * call installs a handler for SIGBUS. On failure returns NULL with errno set, without a log line.
 * vb_file_unmap() accepts NULL. */
const void *vb_file_map(int fd, size_t len_bytes, const char *path);
void vb_file_unmap(const void *map, size_t len_bytes);

/* Makes a folder and its missing parent folders, which survive a power cut. An existing folder is
 * not an error. */
vb_status vb_dir_make(const char *path);

/* Writes the path of the cache folder to buf: $XDG_CACHE_HOME/verbena or ~/.cache/verbena. The
 * cache folder is for data that can be computed again. It is made if it is missing. Returns
 * false if there is no cache folder; this is not an error and is not logged. */
bool vb_cache_dir(char *buf, size_t size);

/* ---- checksums ------------------------------------------------------------------------------- */

/* Returns the CRC32C (Castagnoli) of data. crc is that of the bytes before data, or 0. */
uint32_t vb_crc32c(uint32_t crc, const void *data, size_t len_bytes);

/* Computes the same checksum with a table. Tests compare vb_crc32c() with this function. */
uint32_t vb_crc32c_ref(uint32_t crc, const void *data, size_t len_bytes);

/* Returns the implementation in use: "armv8-crc", "sse4.2" or "table". */
const char *vb_crc32c_backend(void);

/* Returns a hash (XXH64) that tells different contents apart, but does not resist an attacker. The
 * seed may be the hash of what comes before. */
uint64_t vb_hash64(uint64_t seed, const void *data, size_t len_bytes);

/* ---- levels of instructions ------------------------------------------------------------------ */

/* The hottest loops are compiled once for each level of instructions: on x86 the baseline, v3
 * (AVX2 and FMA) and v4 (AVX-512), otherwise the baseline. The names of functions of a level end
 * with the value of VB_LEVEL; those of baseline functions have no suffix. */
enum vb_cpu_level { VB_CPU_BASE, VB_CPU_V3, VB_CPU_V4 };

#if defined(VB_LEVEL)
#define VB_LEVEL_PASTE(a, b) a##b
#define VB_LEVEL_JOIN(a, b) VB_LEVEL_PASTE(a, b)
#define VB_AT_LEVEL(name) VB_LEVEL_JOIN(name, VB_LEVEL)
#else
#define VB_AT_LEVEL(name) name
#endif

enum vb_cpu_level vb_cpu_level(void); /* returns the highest level that this CPU supports */

/* ---- random numbers, sorting, bits ----------------------------------------------------------- */

/* The finaliser of splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t vb_mix(uint64_t v)
{
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

/* Returns a random number that depends only on the seed and the position. All random numbers of
 * the engine come from here. Inline, so that a loop with a fixed seed mixes the seed only once. */
static inline uint64_t vb_random(uint64_t seed, uint64_t position)
{
    return vb_mix(vb_mix(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0x9e3779b97f4a7c15u);
}

/* Sorts n values in ascending order. */
void vb_sort(double *values, size_t n);

/* Sorts 64-bit words, stably, by their upper 32 bits, which are all below 2^bits. Returns words or
 * spare, whichever has the result. spare is as large as words, and n is below 2^32. */
uint64_t *vb_sort_words(uint64_t *words, uint64_t *spare, size_t n, int bits);

int vb_bits_below(uint64_t n); /* returns the number of bits that numbers below n need */

/* vb_float_bits() and vb_bits_float() convert between a float and its bits. */
static inline uint32_t vb_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float vb_bits_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* For loops that wait for another core: lets the CPU rest between two reads. */
static inline void vb_cpu_relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* the yield instruction does nothing on most Arm cores */
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* x if first is 1, y if it is 0; for unpredictable conditions, where gcc's ?: branches on x86. */
static inline uint64_t vb_choose(uint64_t first, uint64_t x, uint64_t y)
{
#ifdef __x86_64__
    return y ^ ((x ^ y) & (0 - first));
#else
    return first != 0 ? x : y;
#endif
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define VB_CACHE_LINE 64

/* Gives the first thread a stack that is large enough, and all later threads of the process, also
 * those of libraries, one of 2 MB, whatever `ulimit -s` says. main() calls this first. Fails if the
 * hard limit is too low. */
vb_status vb_stack_ready(void);

/* The kind of pages that a mapping has. */
enum vb_pages {
    VB_PAGES_SMALL,       /* the kernel's ordinary pages */
    VB_PAGES_TRANSPARENT, /* ordinary pages that the kernel may join into huge pages */
    VB_PAGES_RESERVED,    /* huge pages that the administrator has reserved */
};

struct vb_mem {
    void *ptr;        /* aligned to a page, and to a huge page if pages is not VB_PAGES_SMALL */
    size_t len_bytes; /* rounded up to whole pages */
    enum vb_pages pages;
    int fd; /* the descriptor of shared memory; -1 for private memory */
};

/* Maps zeroed private memory, on transparent huge pages if the machine allows them. */
vb_status vb_mem_map_private(size_t len_bytes, struct vb_mem *mem_p);

/* Maps zeroed memory that other processes can map through fd, on reserved huge pages, else on
 * transparent huge pages, else on ordinary pages. /proc/PID/maps shows the name. */
vb_status vb_mem_map_shared(const char *name, size_t len_bytes, struct vb_mem *mem_p);

/* Allocates all pages now, on the NUMA node that the memory is bound to. Without this, the kernel
 * kills a process that touches a new page of shared memory when no memory is free. */
vb_status vb_mem_populate(struct vb_mem *mem);

/* Maps zeroed memory like vb_mem_map_shared(), but without reserved huge pages, and allocates all
 * pages. vb_mem_seal() makes it read-only for everybody, at the same address, and fixes its size.
 */
vb_status vb_mem_map_sealable(const char *name, size_t len_bytes, struct vb_mem *mem_p);
vb_status vb_mem_seal(struct vb_mem *mem);

/* How other processes of this host find shared memory: the process that holds the descriptor, and
 * the file behind it. Valid until the memory is unmapped. */
struct vb_mem_id {
    int32_t pid, fd;
    uint64_t dev, ino;
    uint64_t len_bytes;
};

vb_status vb_mem_identify(const struct vb_mem *mem, struct vb_mem_id *id_p);

/* Maps the shared memory of another process for reading, through /proc. Returns VB_ERR_UNSUPPORTED,
 * without a log line, if this process may not do that, or finds another file there; then why has
 * the reason. */
vb_status vb_mem_map_other(const struct vb_mem_id *id, struct vb_mem *mem_p, char why[VB_OPTS_WHY]);

/* Unmaps the memory and closes fd. Does nothing if *mem is all zero or already unmapped. */
void vb_mem_unmap(struct vb_mem *mem);

/* Allocates zeroed memory aligned to a cache line, for free(). Returns NULL without memory. */
void *vb_alloc_aligned(size_t len_bytes);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A JSON value that is being built, by one thread at a time. Values in an object need a key; in an
 * array, key is NULL. If a call fails, vb_json_print() reports it. */
struct vb_json;

struct vb_json *vb_json_create(void); /* may return NULL, which all functions below accept */
void vb_json_destroy(struct vb_json *json);

void vb_json_object(struct vb_json *json, const char *key); /* vb_json_end() closes the object */
void vb_json_array(struct vb_json *json, const char *key);
void vb_json_end(struct vb_json *json);
void vb_json_int(struct vb_json *json, const char *key, int64_t value);
void vb_json_real(struct vb_json *json, const char *key, double value); /* null if not finite */
void vb_json_bool(struct vb_json *json, const char *key, bool value);
void vb_json_text(struct vb_json *json, const char *key, const char *text); /* NULL: null */

/* Prints the value on one line. Keys keep the order in which they were added. */
vb_status vb_json_print(const struct vb_json *json, FILE *out);

/* Reads a file of one JSON value, of at most 64 MB. On failure logs the file and, if it is not
 * JSON, the line; returns NULL. The caller destroys the value. */
struct vb_json *vb_json_read(const char *path);

/* The same with a text, such as a line of a file. Logs nothing. */
struct vb_json *vb_json_parse(const char *text, size_t len);

/* Find a value by its keys from the root on, such as "run.ranks.0.host"; a number is the place in
 * an array. A value that is missing or has another type is NULL, NAN, or -1. */
const char *vb_json_get_text(const struct vb_json *json, const char *keys);
double vb_json_get_real(const struct vb_json *json, const char *keys);
int vb_json_get_count(const struct vb_json *json, const char *keys); /* of an array */

/* Adds a value of another tree. Returns false, and adds nothing, if there is no such value. */
bool vb_json_copy(struct vb_json *json, const char *key, const struct vb_json *from,
                  const char *keys);

/* Adds all values of the root of another tree, which is an object, except the one with this key.
 * Values that are there already are replaced. */
void vb_json_copy_all(struct vb_json *json, const struct vb_json *from, const char *except);

/* Replaces a text in an object of a value that was read. */
void vb_json_set_text(struct vb_json *json, const char *object, const char *key, const char *text);

/* Returns the name and version of the JSON library in use. */
const char *vb_json_library(void);

/* ---- Ctrl-C ---------------------------------------------------------------------------------- */

/* From now on the first SIGINT, SIGTERM or SIGHUP is only noted, and vb_interrupted() returns its
 * number; the second ends the process. A signal that is ignored stays ignored. */
void vb_interrupt_catch(void);
int vb_interrupted(void); /* 0: none has come */

/* ---- traces ---------------------------------------------------------------------------------- */

#include "base/trace.h"

#endif
