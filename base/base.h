/* SPDX-License-Identifier: MIT
 *
 * base/ is the foundation of all other folders. It includes nothing from the other folders.
 *
 * This header declares status codes, logging, options, clock, files, checksums, levels of
 * instructions, random numbers, memory and JSON, in this order. Any thread may call every function
 * in this header, unless a comment says otherwise.
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

/* Returns a short text that describes a status. The text is never NULL, and the caller does not
 * free it. */
const char *vb_status_str(vb_status st);

/* Returns the status that matches an errno value. */
vb_status vb_status_from_errno(int err);

/* ---- logging --------------------------------------------------------------------------------- */

enum vb_level { VB_LEVEL_ERROR, VB_LEVEL_WARN, VB_LEVEL_INFO, VB_LEVEL_DEBUG, VB_LEVEL_TRACE };

/* The log level belongs to the process. The rank belongs to the calling thread, so that the
 * ranks of a test can be threads. The log level, the rank and the list of mapped files are the
 * only global state of base/. */
void vb_log_set_level(enum vb_level level);
void vb_log_set_rank(int rank); /* -1: this thread belongs to no rank */
int vb_log_rank(void);          /* returns the rank of the calling thread */

/* Writes one line to standard error: level, folder and file, rank, message. Does not change
 * errno. */
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

/* Checks for bugs in Verbena only, never for bad input or faulty peers. cond must have no side
 * effects. */
#ifdef VB_DEBUG
#define VB_ASSERT(cond) ((cond) ? (void)0 : vb_assert_failed(__FILE__, __LINE__, #cond))
#else
#define VB_ASSERT(cond) ((void)0)
#endif
_Noreturn void vb_assert_failed(const char *file, int line, const char *cond);

/* ---- options --------------------------------------------------------------------------------- */

enum vb_opt_type {
    VB_OPT_FLAG, /* the field is a bool; the option needs no value */
    VB_OPT_INT,  /* the field is an int64_t from min to max */
    VB_OPT_REAL, /* the field is a double from min to max; both limits are whole numbers */
    /* the field is a const char *, borrowed from argv or the environment; NULL: not given */
    VB_OPT_TEXT,
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
    size_t offset; /* offset of the field in the struct that the group fills */
    /* the default value as text; NULL: the default is off, 0 or no text */
    const char *fallback;
    int64_t min, max;           /* limits of the value of VB_OPT_INT and VB_OPT_REAL */
    const char *const *choices; /* the choices of VB_OPT_CHOICE; the list ends with NULL */
    const char *arg;            /* the name of the value in help texts, such as "N" */
    /* the help text: a phrase and perhaps a sentence; fallback is printed after the help text */
    const char *help;
    enum vb_opt_level level;
    const char *alias; /* an old name, which still works but is not listed anywhere; NULL: none */
};

/* Options that belong together, and the struct that receives their values. Several commands may
 * share a group. */
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
    /* --help or --help-all was given; the other options were not checked */
    bool help;
    bool help_all;               /* --help-all was given */
    const char *const *operands; /* the arguments that are not options, borrowed from argv */
    int n_operands;
    /* the source of each option's value, in the order of the table */
    unsigned char source[VB_OPTS_MAX];
};

/* Fills the structs of the groups from the defaults, then the environment, then argv (without
 * the command's name). Later sources override earlier ones. The operands are moved to the start
 * of argv. If the function returns VB_ERR_USAGE, why contains a message of one line without a
 * newline. The message contains the option as the user wrote it and, if the option is unknown,
 * the known option with the most similar name. */
vb_status vb_opts_parse(struct vb_opts *opts, const struct vb_opt_group *groups, int n_groups,
                        int argc, char **argv, char why[VB_OPTS_WHY]);

/* Returns true if the command line or the environment gave the option a value. Called after
 * vb_opts_parse(). */
bool vb_opts_given(const struct vb_opts *opts, const char *name);

/* Prints the part of a help text that lists the options. If all is true, the list also has the
 * VB_OPT_MORE options and the names of the environment variables. Returns the number of options
 * that only --help-all shows. */
int vb_opts_help(const struct vb_opt_group *groups, int n_groups, bool all, FILE *out);

/* Logs the value of every option and the source of the value, at level info. */
void vb_opts_dump(const struct vb_opts *opts, const char *command);

/* Returns the candidate that is most similar to the misspelled text, or NULL if no candidate is
 * similar. */
const char *vb_nearest(const char *text, const char *const *candidates, int n);

/* Parses a decimal whole number. Returns false if text is not such a number, or if the number
 * does not fit into 64 bits. */
bool vb_parse_int(const char *text, int64_t *value_p);

/* Parses a decimal number, which may have a fraction and an exponent. Returns false if text
 * contains anything else, or if the number is infinite or so small that it would become 0. */
bool vb_parse_real(const char *text, double *value_p);

/* ---- clock ----------------------------------------------------------------------------------- */

/* Returns the time of the monotonic clock in nanoseconds. */
uint64_t vb_clock_ns(void);

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the first line, without its newline, of a small file such as the files of /proc and
 * /sys. Bytes that are not printable become '?'. If the file cannot be read, sets buf to "" and
 * returns false; this is not logged. */
bool vb_probe_line(char *buf, size_t size, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Reads the first line in the same way and parses it as a decimal number. */
bool vb_probe_int(int64_t *value_p, const char *path_fmt, ...) VB_PRINTF(2, 3);

/* Calls fn for each line of a text file. The line has no newline and is cut to fit into VB_LINE
 * bytes. Reading stops if fn returns false, or after 65536 lines. If the file cannot be read, fn
 * is not called. */
#define VB_LINE 512
typedef bool (*vb_line_fn)(char *line, void *arg);
void vb_probe_lines(vb_line_fn fn, void *arg, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Returns VB_OK if path does not exist or is a regular file. Callers check this before they
 * rename a file to path, because the rename would replace a device or a pipe by a file. If path
 * is a symbolic link, the function checks the target of the link, although a rename would
 * replace the link itself. */
vb_status vb_file_may_replace(const char *path);

/* Replaces a file atomically: writes a temporary file in the same folder, syncs the temporary
 * file, and renames it to path. On failure the old file is unchanged and the temporary file is
 * removed. */
vb_status vb_file_replace(const char *path, const void *data, size_t len_bytes);

/* Maps a file for reading. If the file shrinks while it is mapped, or its disk fails, a thread
 * that reads the missing bytes ends the process with exit code 1 and a message that names the
 * file. To do this, the first call installs a handler for SIGBUS. On failure the function
 * returns NULL and sets errno; the failure is not logged. Any thread may call both functions.
 * vb_file_unmap() accepts NULL. */
const void *vb_file_map(int fd, size_t len_bytes, const char *path);
void vb_file_unmap(const void *map, size_t len_bytes);

/* Makes a folder and its missing parent folders. An existing folder is not an error. */
vb_status vb_dir_make(const char *path);

/* Writes the path of the cache folder to buf: $XDG_CACHE_HOME/verbena or ~/.cache/verbena. The
 * cache folder is for data that can be computed again. It is made if it is missing. Returns
 * false if there is no cache folder; this is not an error and is not logged. */
bool vb_cache_dir(char *buf, size_t size);

/* ---- checksums ------------------------------------------------------------------------------- */

/* Returns the CRC32C (Castagnoli) of data. crc is the checksum of the bytes before data, or 0 at
 * the start. Uses the CRC32C instruction of the CPU if there is one. */
uint32_t vb_crc32c(uint32_t crc, const void *data, size_t len_bytes);

/* Computes the same checksum with a table. Tests compare vb_crc32c() with this function. */
uint32_t vb_crc32c_ref(uint32_t crc, const void *data, size_t len_bytes);

/* Returns the implementation in use: "armv8-crc", "sse4.2" or "table". */
const char *vb_crc32c_backend(void);

/* ---- levels of instructions ------------------------------------------------------------------ */

/* The loops that take the most time are compiled once for each level of instructions. On x86 the
 * levels are the baseline, v3 (AVX2 and FMA) and v4 (AVX-512). Other architectures have only the
 * baseline. The name of a function that is compiled for a level ends with the value of VB_LEVEL;
 * names of baseline functions have no suffix. */
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
 * the engine are made with this function. The function is inline, so that a loop with a fixed
 * seed mixes the seed only once. */
static inline uint64_t vb_random(uint64_t seed, uint64_t position)
{
    return vb_mix(vb_mix(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0x9e3779b97f4a7c15u);
}

/* Sorts n values in ascending order. */
void vb_sort(double *values, size_t n);

/* Sorts 64-bit words by their upper 32 bits, which are all below 2^bits. The sort is stable.
 * Returns words or spare, whichever contains the result. spare must be as large as words, and n
 * must be below 2^32. */
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

/* Lets the CPU wait for a short time. A loop that waits until another core writes a variable
 * calls this between two reads. */
static inline void vb_cpu_relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* the yield instruction does nothing on most Arm cores */
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns x if first is 1, and y if first is 0. This function is for unpredictable conditions,
 * because gcc compiles ?: to a branch on x86. */
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
    void *ptr;        /* aligned to a page, and to a huge page if pages is not VB_PAGES_SMALL */
    size_t len_bytes; /* rounded up to whole pages */
    enum vb_pages pages;
    int fd; /* the descriptor of shared memory; -1 for private memory */
};

/* Maps zeroed private memory, on transparent huge pages if the machine allows them. */
vb_status vb_mem_map_private(size_t len_bytes, struct vb_mem *mem_p);

/* Maps zeroed memory that other processes can map through fd. The memory is on reserved huge
 * pages if possible, else on transparent huge pages, else on ordinary pages. /proc/PID/maps
 * shows the name. */
vb_status vb_mem_map_shared(const char *name, size_t len_bytes, struct vb_mem *mem_p);

/* Allocates all pages now, on the NUMA node that the memory is bound to. Without this call, the
 * kernel kills a process that touches a new page of shared memory when the machine has no free
 * memory. */
vb_status vb_mem_populate(struct vb_mem *mem);

/* Unmaps the memory and closes fd. Does nothing if *mem is all zero or already unmapped. */
void vb_mem_unmap(struct vb_mem *mem);

/* Allocates zeroed memory that is aligned to a cache line. The caller releases the memory with
 * free(). Returns NULL if there is not enough memory. */
void *vb_alloc_aligned(size_t len_bytes);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A JSON value that is being built. Values inside an object need a key; inside an array, key is
 * NULL. If a call fails, for example without memory, vb_json_print() reports the failure. Only
 * one thread at a time may use a struct vb_json. */
struct vb_json;

struct vb_json *vb_json_create(void); /* may return NULL, which all functions below accept */
void vb_json_destroy(struct vb_json *json);

void vb_json_object(struct vb_json *json, const char *key); /* vb_json_end() closes the object */
void vb_json_array(struct vb_json *json, const char *key);
void vb_json_end(struct vb_json *json);
void vb_json_int(struct vb_json *json, const char *key, int64_t value);
/* writes null if value is not finite */
void vb_json_real(struct vb_json *json, const char *key, double value);
void vb_json_bool(struct vb_json *json, const char *key, bool value);
/* writes null if text is NULL */
void vb_json_text(struct vb_json *json, const char *key, const char *text);

/* Prints the value on one line. Keys keep the order in which they were added. */
vb_status vb_json_print(const struct vb_json *json, FILE *out);

/* Returns the name and version of the JSON library in use. */
const char *vb_json_library(void);

#endif
