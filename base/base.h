/* SPDX-License-Identifier: MIT
 *
 * base/: the foundation of all other folders. It includes nothing from them.
 *
 * Status codes, logging, options, clock, files, checksums, levels of instructions, random numbers,
 * memory and JSON, in this order. Any thread may call everything in this header unless a comment
 * says otherwise.
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
    VB_AGAIN = 1,      /* nothing was accepted: make progress and try again */
    VB_ERR_USAGE = -1, /* the caller or the command line asked for something impossible */
    VB_ERR_INPUT = -2, /* a file or a message is broken */
    VB_ERR_NO_MEMORY = -3,
    VB_ERR_NO_FILE = -4,
    VB_ERR_ACCESS = -5, /* permission denied */
    VB_ERR_IO = -6,     /* the operating system refused for any other reason */
    VB_ERR_TIMEOUT = -7,
    VB_ERR_PEER = -8,        /* the peer is gone */
    VB_ERR_UNSUPPORTED = -9, /* this machine or a library cannot do it */
};

/* Returns a few words for a status. Never NULL; the caller does not free it. */
const char *vb_status_str(vb_status st);

/* Returns the status that matches an errno value. */
vb_status vb_status_from_errno(int err);

/* ---- logging --------------------------------------------------------------------------------- */

enum vb_level { VB_LEVEL_ERROR, VB_LEVEL_WARN, VB_LEVEL_INFO, VB_LEVEL_DEBUG, VB_LEVEL_TRACE };

/* The log level belongs to the process. The rank belongs to the calling thread, so that the ranks
 * of a test can be threads. These two and the list of mapped files are base's only global state. */
void vb_log_set_level(enum vb_level level);
void vb_log_set_rank(int rank); /* -1: this thread belongs to no rank */
int vb_log_rank(void);          /* the rank of the calling thread */

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

/* Both macros log what failed and why, and return a status: return vb_err_sys("open %s", path).
 * vb_err_sys() takes the reason and the status from errno. */
#define vb_err_sys(...) vb_log_errno(__FILE__, __VA_ARGS__)
#define vb_err(status, ...) vb_log_status((status), __FILE__, __VA_ARGS__)
vb_status vb_log_errno(const char *file, const char *fmt, ...) VB_PRINTF(2, 3);
vb_status vb_log_status(vb_status st, const char *file, const char *fmt, ...) VB_PRINTF(3, 4);

/* Checks for our own bugs only, never for bad input or peers. cond must have no side effects. */
#ifdef VB_DEBUG
#define VB_ASSERT(cond) ((cond) ? (void)0 : vb_assert_failed(__FILE__, __LINE__, #cond))
#else
#define VB_ASSERT(cond) ((void)0)
#endif
_Noreturn void vb_assert_failed(const char *file, int line, const char *cond);

/* ---- options --------------------------------------------------------------------------------- */

enum vb_opt_type {
    VB_OPT_FLAG,   /* bool; the option needs no value */
    VB_OPT_INT,    /* int64_t from min to max */
    VB_OPT_REAL,   /* double from min to max; both limits are whole numbers */
    VB_OPT_TEXT,   /* const char *, borrowed from argv or the environment; NULL: not given */
    VB_OPT_CHOICE, /* int: an index into choices */
};

/* Which help text shows an option. */
enum vb_opt_level {
    VB_OPT_BASIC,  /* --help and --help-all */
    VB_OPT_MORE,   /* --help-all only */
    VB_OPT_HIDDEN, /* none; the option still works */
};

/* One row of an option table, from which the command line, environment, help and dump are made. */
struct vb_opt {
    const char *name; /* "log-level" stands for --log-level and VB_LOG_LEVEL */
    enum vb_opt_type type;
    size_t offset;              /* offset of the field in the struct that the group fills */
    const char *fallback;       /* the default, as text; NULL: off, 0 or none */
    int64_t min, max;           /* limits of VB_OPT_INT and VB_OPT_REAL */
    const char *const *choices; /* names of VB_OPT_CHOICE; ends with NULL */
    const char *arg;            /* the name of the value in help texts, such as "N" */
    const char *help; /* a phrase, which may be followed by a sentence; fallback is added to it */
    enum vb_opt_level level;
    const char *alias; /* an old name, which works and is listed nowhere; NULL: none */
};

/* Options that belong together, and the struct that receives them; commands may share it. */
struct vb_opt_group {
    const char *title;
    const struct vb_opt *opts;
    int n_opts;
    void *into; /* owned by the caller; vb_opts_parse() fills it */
};

#define VB_OPTS_MAX 128 /* largest number of options of one command */
#define VB_OPTS_WHY 256 /* size of the buffer for an error message */

struct vb_opts {
    const struct vb_opt_group *groups;
    int n_groups;
    bool help;                   /* --help or --help-all was given: nothing else was checked */
    bool help_all;               /* --help-all was given */
    const char *const *operands; /* the arguments that are not options, borrowed from argv */
    int n_operands;
    unsigned char source[VB_OPTS_MAX]; /* where each value came from, in the order of the table */
};

/* Fills the groups from the defaults, then the environment, then argv (without the command's
 * name). Later sources override earlier ones. The operands are moved to the start of argv. On
 * VB_ERR_USAGE, why holds one line without a newline. It names the option as the user wrote it
 * and, if the option is unknown, the known option with the most similar name. */
vb_status vb_opts_parse(struct vb_opts *opts, const struct vb_opt_group *groups, int n_groups,
                        int argc, char **argv, char why[VB_OPTS_WHY]);

/* After parsing: returns true if the command line or the environment gave the option a value. */
bool vb_opts_given(const struct vb_opts *opts, const char *name);

/* Prints the options part of a help text. With all it shows the VB_OPT_MORE options and the names
 * of the environment variables, too. Returns how many options only --help-all shows. */
int vb_opts_help(const struct vb_opt_group *groups, int n_groups, bool all, FILE *out);

/* Logs the value of every option and where it came from, at level info. */
void vb_opts_dump(const struct vb_opts *opts, const char *command);

/* Returns the candidate that text most likely misspells, or NULL if none is similar. */
const char *vb_nearest(const char *text, const char *const *candidates, int n);

/* Parses a decimal whole number. Returns false for any other text and if it does not fit. */
bool vb_parse_int(const char *text, int64_t *value_p);

/* Parses a decimal number, which may have a fraction and an exponent. Returns false if text
 * contains anything else, or if the number is infinite or so small that it would become 0. */
bool vb_parse_real(const char *text, double *value_p);

/* ---- clock ----------------------------------------------------------------------------------- */

/* Returns the monotonic clock in nanoseconds. */
uint64_t vb_clock_ns(void);

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the first line of a small file, such as those of /proc and /sys, without its newline. Bytes
 * that are not printable become '?'. Returns false, with buf "", if it cannot be read; not logged.
 * */
bool vb_probe_line(char *buf, size_t size, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Reads the first line in the same way, as a decimal number. */
bool vb_probe_int(int64_t *value_p, const char *path_fmt, ...) VB_PRINTF(2, 3);

/* Calls fn for each line of a text file, without its newline and cut to VB_LINE bytes. Reading ends
 * if fn returns false, and after 65536 lines. A file that cannot be read has no lines. */
#define VB_LINE 512
typedef bool (*vb_line_fn)(char *line, void *arg);
void vb_probe_lines(vb_line_fn fn, void *arg, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Returns VB_OK if path does not exist or is a regular file. Call this before a rename to path,
 * because a rename would replace a device or a pipe by a file. For a symbolic link, the function
 * looks at its target, although a rename would replace the link itself. */
vb_status vb_file_may_replace(const char *path);

/* Replaces a file atomically: writes a temporary file beside it, syncs it, and renames it to path.
 * On failure the old file is unchanged and nothing is left behind. */
vb_status vb_file_replace(const char *path, const void *data, size_t len_bytes);

/* Maps a file for reading. If the file shrinks while it is mapped, or its disk fails, a thread that
 * reads the missing bytes ends the process with exit code 1 and a message that names the file. For
 * that the first call installs a handler for SIGBUS. Returns NULL and sets errno on failure, which
 * is not logged. Any thread may call both functions. vb_file_unmap() accepts NULL. */
const void *vb_file_map(int fd, size_t len_bytes, const char *path);
void vb_file_unmap(const void *map, size_t len_bytes);

/* Makes a folder and the missing folders above it. An existing folder is not an error. */
vb_status vb_dir_make(const char *path);

/* Writes the path of the cache folder to buf: $XDG_CACHE_HOME/verbena or ~/.cache/verbena. It is
 * for data that can be computed again. The folder is made if it is missing. Returns false if there
 * is no such folder or it cannot be made, which is not an error and is not logged. */
bool vb_cache_dir(char *buf, size_t size);

/* ---- checksums ------------------------------------------------------------------------------- */

/* CRC32C (Castagnoli) of data, continued from crc; 0 starts. By the CPU's instruction, if any. */
uint32_t vb_crc32c(uint32_t crc, const void *data, size_t len_bytes);

/* Computes the same checksum with a table. Tests compare vb_crc32c() with it. */
uint32_t vb_crc32c_ref(uint32_t crc, const void *data, size_t len_bytes);

/* Returns the implementation in use: "armv8-crc", "sse4.2" or "table". */
const char *vb_crc32c_backend(void);

/* ---- levels of instructions ------------------------------------------------------------------ */

/* The hottest loops are compiled once for each level of instructions. On x86 the levels are the
 * baseline, v3 (AVX2 and FMA) and v4 (AVX-512). Other architectures have only the baseline. Names
 * of functions compiled for a level end with VB_LEVEL; the baseline has no suffix. */
enum vb_cpu_level { VB_CPU_BASE, VB_CPU_V3, VB_CPU_V4 };

#if defined(VB_LEVEL)
#define VB_LEVEL_PASTE(a, b) a##b
#define VB_LEVEL_JOIN(a, b) VB_LEVEL_PASTE(a, b)
#define VB_AT_LEVEL(name) VB_LEVEL_JOIN(name, VB_LEVEL)
#else
#define VB_AT_LEVEL(name) name
#endif

enum vb_cpu_level vb_cpu_level(void); /* the best level that this CPU has */

/* ---- random numbers, sorting, bits ----------------------------------------------------------- */

/* The finaliser of splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t vb_mix(uint64_t v)
{
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

/* Returns a well-mixed number for a seed and a position. All random numbers of the engine are made
 * with it. It is inline, so that a loop with a fixed seed mixes the seed only once. */
static inline uint64_t vb_random(uint64_t seed, uint64_t position)
{
    return vb_mix(vb_mix(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0x9e3779b97f4a7c15u);
}

/* Sorts in ascending order. */
void vb_sort(double *values, size_t n);

/* Sorts words by their upper 32 bits, which are all below 2^bits. The sort is stable. Returns words
 * or spare, whichever has the result; spare must be as large as words. n is below 2^32. */
uint64_t *vb_sort_words(uint64_t *words, uint64_t *spare, size_t n, int bits);

int vb_bits_below(uint64_t n); /* the number of bits that numbers below n need */

/* Convert between a float and its bits. */
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

/* Call this between two reads of a variable that another core will write. */
static inline void vb_cpu_relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield does nothing on most Arm cores */
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* x if first is 1, y if it is 0, for unpredictable conditions: on x86 gcc makes ?: a branch. */
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

/* The kind of pages that a mapping has. */
enum vb_pages {
    VB_PAGES_SMALL,       /* the kernel's ordinary pages */
    VB_PAGES_TRANSPARENT, /* ordinary pages that the kernel may join into huge pages */
    VB_PAGES_RESERVED,    /* huge pages that the administrator has reserved */
};

struct vb_mem {
    void *ptr;        /* aligned to a page, and to a huge page unless VB_PAGES_SMALL */
    size_t len_bytes; /* rounded up to whole pages */
    enum vb_pages pages;
    int fd; /* the descriptor of shared memory; -1 for private memory */
};

/* Maps zeroed private memory, on transparent huge pages if the machine allows them. */
vb_status vb_mem_map_private(size_t len_bytes, struct vb_mem *mem_p);

/* Maps zeroed memory that other processes can map through fd. It is on reserved huge pages if
 * possible, else on transparent huge pages, else on ordinary pages. /proc shows the name. */
vb_status vb_mem_map_shared(const char *name, size_t len_bytes, struct vb_mem *mem_p);

/* Allocates all pages now, on the NUMA node that the memory is bound to. Without this, the kernel
 * kills a process that touches shared memory when the machine has none left. */
vb_status vb_mem_populate(struct vb_mem *mem);

/* Unmaps the memory and closes fd. Does nothing if *mem is all zero or already unmapped. */
void vb_mem_unmap(struct vb_mem *mem);

/* Allocates zeroed memory, aligned to the cache line, for free(). NULL: not enough memory. */
void *vb_alloc_aligned(size_t len_bytes);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Builds one JSON value. Values inside an object need a key; inside an array it is NULL. A call
 * that fails (out of memory) is remembered, and vb_json_print() reports it. Single-threaded. */
struct vb_json;

struct vb_json *vb_json_create(void); /* may return NULL, which all functions below accept */
void vb_json_destroy(struct vb_json *json);

void vb_json_object(struct vb_json *json, const char *key); /* vb_json_end() closes it */
void vb_json_array(struct vb_json *json, const char *key);
void vb_json_end(struct vb_json *json);
void vb_json_int(struct vb_json *json, const char *key, int64_t value);
void vb_json_real(struct vb_json *json, const char *key, double value); /* null if not finite */
void vb_json_bool(struct vb_json *json, const char *key, bool value);
void vb_json_text(struct vb_json *json, const char *key, const char *text); /* NULL: null */

/* Prints the value on one line. Keys keep the order in which they were added. */
vb_status vb_json_print(const struct vb_json *json, FILE *out);

/* Returns the name and version of the JSON library in use. */
const char *vb_json_library(void);

#endif
