/* SPDX-License-Identifier: MIT
 *
 * base/: what every other folder stands on. It knows nobody.
 *
 * Status codes, logging, options, clock, files, checksums, chance, memory, JSON, in this order.
 * Everything here may be called from any thread unless a comment says otherwise.
 */
#ifndef VB_BASE_H
#define VB_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define VB_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define VB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- status ---------------------------------------------------------------------------------- */

/* 0 is fine, a positive value means "not now", a negative one "failed". */
typedef int vb_status;

enum {
    VB_OK = 0,
    VB_AGAIN = 1,      /* nothing was taken: make progress and try again */
    VB_ERR_USAGE = -1, /* the caller or the command line asked for something impossible */
    VB_ERR_INPUT = -2, /* a file or message is broken */
    VB_ERR_NO_MEMORY = -3,
    VB_ERR_NO_FILE = -4,
    VB_ERR_ACCESS = -5, /* not allowed */
    VB_ERR_IO = -6,     /* the operating system refused, for any other reason */
    VB_ERR_TIMEOUT = -7,
    VB_ERR_PEER = -8,        /* the other side is gone */
    VB_ERR_UNSUPPORTED = -9, /* this machine or library cannot do it */
};

/* A few words for a status; never NULL, never to be freed. */
const char *vb_status_str(vb_status st);

/* The status that stands for an errno value. */
vb_status vb_status_from_errno(int err);

/* ---- logging --------------------------------------------------------------------------------- */

enum vb_level { VB_LEVEL_ERROR, VB_LEVEL_WARN, VB_LEVEL_INFO, VB_LEVEL_DEBUG, VB_LEVEL_TRACE };

/* The log level is the process's, the rank belongs to the calling thread, so that the ranks of a
 * test may be threads. These two, and the list of mapped files, are the only state of the program
 * that hangs off no handle. */
void vb_log_set_level(enum vb_level level);
enum vb_level vb_log_level(void);
void vb_log_set_rank(int rank); /* -1: this thread belongs to no rank */
int vb_log_rank(void);          /* of this thread */

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

/* Logs what failed and why, and returns the status for it: return vb_err_sys("open %s", path).
 * The first takes the reason from errno, the second is told the status. */
#define vb_err_sys(...) vb_log_errno(__FILE__, __VA_ARGS__)
#define vb_err(status, ...) vb_log_status((status), __FILE__, __VA_ARGS__)
vb_status vb_log_errno(const char *file, const char *fmt, ...) VB_PRINTF(2, 3);
vb_status vb_log_status(vb_status st, const char *file, const char *fmt, ...) VB_PRINTF(3, 4);

/* For our own bugs only, never for input or peers. The condition has no side effects. */
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

/* One row of an option table. The command line, the environment variable, the help texts and the
 * dump at start-up are made from it. */
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

/* Options that belong together, and the struct that receives their values. Several commands may
 * use the same group. */
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

/* Parses a decimal whole number. Returns false if text contains anything else or the number does
 * not fit. */
bool vb_parse_int(const char *text, int64_t *value_p);

/* Parses a decimal number, which may have a fraction and an exponent. Returns false if text
 * contains anything else, or if the number is infinite or so small that it would become 0. */
bool vb_parse_real(const char *text, double *value_p);

/* ---- clock ----------------------------------------------------------------------------------- */

/* Nanoseconds of the monotonic clock. */
uint64_t vb_clock_ns(void);

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the first line of a small file such as those of /proc and /sys, without its newline.
 * False if there is none, which is no error and not logged; buf is then "". Bytes that are not
 * printable become '?'. */
bool vb_probe_line(char *buf, size_t size, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* The same, as a decimal number. */
bool vb_probe_int(int64_t *value_p, const char *path_fmt, ...) VB_PRINTF(2, 3);

/* Hands each line of a text file to fn, without its newline and cut to VB_LINE bytes; false from fn
 * ends the reading. A file that cannot be read has no lines, and none has more than 65536. */
#define VB_LINE 512
typedef bool (*vb_line_fn)(char *line, void *arg);
void vb_probe_lines(vb_line_fn fn, void *arg, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* VB_OK if path may be written: nothing is there, or a file. Whoever renames over a path asks
 * first, for a rename would put a file in the place of a device or a pipe. What a link leads to
 * counts, though the link is what a rename replaces. */
vb_status vb_file_may_replace(const char *path);

/* Writes a file in one piece: beside the old one, synced, then renamed over it. On failure the old
 * file is as it was and nothing is left behind. */
vb_status vb_file_replace(const char *path, const void *data, size_t len_bytes);

/* Maps a file for reading. Should it shrink while it is mapped, or its disk fail, whoever reads
 * what is gone ends the process, with exit code 1 and a line that names the file: the first call
 * takes over SIGBUS for that. NULL with errno on failure, which is not logged. Any thread may call
 * both; NULL may be unmapped. */
const void *vb_file_map(int fd, size_t len_bytes, const char *path);
void vb_file_unmap(const void *map, size_t len_bytes);

/* Makes a folder, and those above it that are missing. One that is there already is fine. */
vb_status vb_dir_make(const char *path);

/* The folder for what may be computed again, made if need be: $XDG_CACHE_HOME/verbena, or
 * ~/.cache/verbena. False if there is none or it cannot be made: no error, and not logged. */
bool vb_cache_dir(char *buf, size_t size);

/* ---- checksums ------------------------------------------------------------------------------- */

/* CRC32C (Castagnoli) of data, going on from crc; 0 to begin. Uses the CPU's instruction where it
 * has one. */
uint32_t vb_crc32c(uint32_t crc, const void *data, size_t len_bytes);

/* The same by table: what vb_crc32c() is tested against. */
uint32_t vb_crc32c_ref(uint32_t crc, const void *data, size_t len_bytes);

/* "armv8-crc", "sse4.2" or "table". */
const char *vb_crc32c_backend(void);

/* ---- levels of instructions -------------------------------------------------------------------
 */

/* Loops where time goes are compiled once for each level: on x86 the baseline, v3 (AVX2 and FMA)
 * and v4 (AVX-512), elsewhere the baseline alone. What is compiled so has names with the level's
 * suffix, VB_LEVEL, of which the baseline has none. */
enum vb_cpu_level { VB_CPU_BASE, VB_CPU_V3, VB_CPU_V4 };

#if defined(VB_LEVEL)
#define VB_LEVEL_PASTE(a, b) a##b
#define VB_LEVEL_JOIN(a, b) VB_LEVEL_PASTE(a, b)
#define VB_AT_LEVEL(name) VB_LEVEL_JOIN(name, VB_LEVEL)
#else
#define VB_AT_LEVEL(name) name
#endif

enum vb_cpu_level vb_cpu_level(void); /* the best one that this CPU has */

/* ---- chance ---------------------------------------------------------------------------------- */

/* The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit of the input changes every
 * bit of the output about half of the time. */
static inline uint64_t vb_mix(uint64_t v)
{
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

/* A well-mixed number for a seed and a position: what all randomness is made of. Here, so that who
 * draws many of one seed mixes that once. */
static inline uint64_t vb_random(uint64_t seed, uint64_t position)
{
    return vb_mix(vb_mix(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0x9e3779b97f4a7c15u);
}

/* Ascending, for medians and the like. */
void vb_sort(double *values, size_t n);

/* Words by their upper 32 bits, all of them below 2^bits; equal ones keep their order. The result
 * is in words or in spare, which has as much room. n is below 2^32. */
uint64_t *vb_sort_words(uint64_t *words, uint64_t *spare, size_t n, int bits);

int vb_bits_below(uint64_t n); /* how many bits numbers below n have */

/* A float's bits, and back. */
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

/* Between two looks at what another core is to write. */
static inline void vb_cpu_relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield does nothing on most Arm cores */
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* x if first is 1, y if it is 0; for what nobody can foresee, as gcc makes a branch of ?: on x86.
 */
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

/* Pages a mapping was given. */
enum vb_pages {
    VB_PAGES_SMALL,       /* the kernel's ordinary pages */
    VB_PAGES_TRANSPARENT, /* ordinary pages that the kernel may join into huge ones */
    VB_PAGES_RESERVED,    /* huge pages set aside by the administrator */
};

struct vb_mem {
    void *ptr;        /* page-aligned; huge-page-aligned unless VB_PAGES_SMALL */
    size_t len_bytes; /* rounded up to whole pages */
    enum vb_pages pages;
    int fd; /* shared memory: its descriptor; private memory: -1 */
};

/* Zeroed memory of this process alone, on transparent huge pages where the machine allows them. */
vb_status vb_mem_map_private(size_t len_bytes, struct vb_mem *mem_p);

/* Zeroed memory that other processes may map through fd: on reserved huge pages, else transparent
 * ones, else ordinary ones. The name shows in /proc. */
vb_status vb_mem_map_shared(const char *name, size_t len_bytes, struct vb_mem *mem_p);

/* Makes all pages exist, on the NUMA node that the memory is bound to by now. Shared memory that
 * was not populated kills the process that touches it when the machine has no more. */
vb_status vb_mem_populate(struct vb_mem *mem);

void vb_mem_unmap(struct vb_mem *mem); /* closes fd; all-zero and already unmapped are fine */

const char *vb_pages_str(enum vb_pages pages);

/* Zeroed, aligned to the cache line; NULL when there is none. To be freed with free(). */
void *vb_alloc_aligned(size_t len_bytes);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Builds one JSON value, from the outside in: keys are given inside objects and NULL inside
 * arrays. A failed call (memory) is remembered and reported by vb_json_print(). One thread at a
 * time. */
struct vb_json;

struct vb_json *vb_json_create(void); /* NULL is fine in all calls below */
void vb_json_destroy(struct vb_json *json);

void vb_json_object(struct vb_json *json, const char *key); /* opens; vb_json_end() closes */
void vb_json_array(struct vb_json *json, const char *key);
void vb_json_end(struct vb_json *json);
void vb_json_int(struct vb_json *json, const char *key, int64_t value);
void vb_json_real(struct vb_json *json, const char *key, double value); /* not finite: null */
void vb_json_bool(struct vb_json *json, const char *key, bool value);
void vb_json_text(struct vb_json *json, const char *key, const char *text); /* NULL: null */

/* Prints the value on one line, keys in the order in which they were given. */
vb_status vb_json_print(const struct vb_json *json, FILE *out);

/* Name and version of the JSON library in use. */
const char *vb_json_library(void);

#endif
