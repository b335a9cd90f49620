/* SPDX-License-Identifier: MIT
 *
 * The lab's two programs: cluster, which runs on the host and owns the virtual machines, and agent,
 * the first process of each of them.
 *
 * Every virtual machine dies with the process that started it (PR_SET_PDEATHSIG), and cluster makes
 * no files, so that it may end at any place, by lab_die() or by a signal, and leaves nothing
 * behind.
 */
#ifndef LAB_LAB_H
#define LAB_LAB_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LAB_MAX_NODES 32
#define LAB_MAX_RANKS 1024

/* Exit codes that are not the job's own. */
#define LAB_USAGE 2
#define LAB_TIMEOUT 124
#define LAB_FAILED 125

/* Prints "lab: ..." and ends the process with LAB_FAILED. */
_Noreturn void lab_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *lab_alloc(size_t n, size_t size_bytes); /* zeroed; dies where there is no memory */
int64_t lab_now_ms(void);                     /* monotonic */

/* --- queue.c: bytes on their way, in one piece ------------------------------------------------ */

struct lab_queue {
    uint8_t *data;
    size_t head, len_bytes, cap;
};

void lab_queue_fini(struct lab_queue *q);
void lab_queue_push(struct lab_queue *q, const void *data, size_t len_bytes);
void lab_queue_drop(struct lab_queue *q, size_t len_bytes);
const uint8_t *lab_queue_head(const struct lab_queue *q); /* valid until the next push or fill */

/* One read(). Returns false at the end of the file or on an error. */
bool lab_queue_fill(struct lab_queue *q, int fd);
/* One write() of at most max bytes. Returns false on an error other than "not now". */
bool lab_queue_flush(struct lab_queue *q, int fd, size_t max);

/* --- frame.c: what cluster and agent tell each other ------------------------------------------ */

enum lab_frame_type {
    /* agent to cluster */
    LAB_HELLO = 1, /* the node is up: network, soft-RoCE device */
    LAB_FAIL,      /* text: the node cannot do what it was told */
    LAB_OUT,       /* standard output of a rank */
    LAB_ERR,       /* standard error of a rank */
    LAB_EXIT,      /* int32_t: exit status of a rank, 128 + signal if one ended it */
    /* cluster to agent */
    LAB_SETUP, /* struct lab_setup */
    LAB_MOUNT, /* tag, path: two strings */
    LAB_START, /* struct lab_start, then the strings */
    LAB_IN,    /* standard input of a rank; none: its end */
    LAB_SIZE,  /* struct lab_size: of the terminal */
};

struct lab_frame {
    uint16_t type;
    uint16_t rank;
    uint32_t len_bytes;
    const uint8_t *data; /* borrowed from the queue */
};

#define LAB_SECRET_BYTES 32
#define LAB_SECRET_FILE "/run/verbena.secret"

struct lab_setup {
    int64_t time_ns; /* of the host's clock */
    uint8_t secret[LAB_SECRET_BYTES];
};

enum { LAB_INPUT = 1, LAB_TERMINAL = 2 }; /* flags of lab_start; else standard input is empty */

struct lab_start {
    uint32_t flags, n_args, n_envs;
    /* then, each ended by a zero: the folder, the arguments, the environment */
};

struct lab_size {
    uint16_t rows, columns;
};

void lab_frame_push(struct lab_queue *q, enum lab_frame_type type, int rank, const void *data,
                    size_t len_bytes);
/* The next complete frame, taken out of the queue. */
bool lab_frame_next(struct lab_queue *q, struct lab_frame *f_p);

/* --- switch.c: the Ethernet between the nodes ------------------------------------------------- */

struct lab_port {
    int fd; /* -1: nothing is plugged in */
    bool cut;
    struct lab_queue in, out;
    uint64_t n_forwarded, n_dropped; /* frames sent out of this port, and not for want of room */
};

/* Takes what has come in on ports[i] to the ports it is for. Returns false if the port is gone. */
bool lab_switch_read(struct lab_port *ports, int n_ports, int i);
bool lab_switch_write(struct lab_port *port);
/* The address of the node with that number, 6 bytes: the switch knows them all beforehand. */
void lab_switch_mac(int node, uint8_t mac_p[6]);

/* --- output.c: standard output and standard error --------------------------------------------- */

struct lab_output {
    struct lab_queue out, err;
};

/* Lines get their prefix, and those of different ranks are never mixed within a line. */
struct lab_lines {
    char prefix[48];
    struct lab_queue part;
};

void lab_output_lines(struct lab_output *o, struct lab_lines *l, const void *data,
                      size_t len_bytes);
void lab_output_end(struct lab_output *o, struct lab_lines *l); /* a last line without its end */
void lab_output_say(struct lab_output *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes all that is queued, for at most that long. */
void lab_output_flush(struct lab_output *o, int timeout_ms);

/* --- node.c: one virtual machine -------------------------------------------------------------- */

enum lab_node_state { LAB_BOOTING, LAB_UP, LAB_GONE };

struct lab_node {
    int index;
    enum lab_node_state state;
    pid_t pid;
    int agent_fd, monitor_fd, console_fd;
    struct lab_queue from_agent, to_agent, console;
};

/* Starts qemu with the words of argv and those that make it node number index of n_nodes. */
void lab_node_start(struct lab_node *node, int index, int n_nodes, char *const *argv, int n_args,
                    const char *append, struct lab_port *port);
void lab_node_kill(struct lab_node *node, struct lab_port *port);
int64_t lab_node_cpu_ms(const struct lab_node *node); /* CPU time that it has used */
void lab_node_set_link(struct lab_node *node, bool up);
void lab_node_read_console(struct lab_node *node);
/* Prints the last lines of the console, each with a prefix. */
void lab_node_show_console(struct lab_node *node, struct lab_output *o);

/* --- options.c: the words after "cluster" ----------------------------------------------------- */

#define LAB_MAX_EVENTS 64

enum lab_event_type { LAB_KILL, LAB_CUT, LAB_JOIN };

struct lab_event { /* --kill and --cut; joining again is the end of a cut */
    enum lab_event_type type;
    int node;
    int64_t at_ms; /* after the start of the job */
    bool done;
};

struct lab_opts {
    int n_nodes, per_node;
    bool each; /* the program plainly, once a node */
    int shell; /* one program on this node, with standard input; -1: none */
    bool verbose;
    int timeout_s; /* 0: none */
    char **qemu;
    int n_qemu;
    const char *append;
    char **envs, **shares; /* ended by NULL */
    char **args;
    int n_args;
    struct lab_event events[LAB_MAX_EVENTS];
    int n_events;
};

/* Ends the process where the words are wrong. The options point into argv. */
void lab_opts_parse(struct lab_opts *o, int argc, char **argv);

/* --- setup.c: the first steps of a node. Both return 0, or end the process -------------------- */

int lab_setup_mount(void);
int lab_setup_load(char *const *groups); /* ended by NULL; one that is not there is empty */

/* --- job.c: what runs on the nodes ------------------------------------------------------------ */

struct lab_rank {
    int node;
    bool done;
    struct lab_lines out, err;
};

struct lab_job {
    const struct lab_opts *opts;
    struct lab_setup setup;
    int n_ranks, n_done;
    int status; /* the first that is not 0 */
    struct lab_rank *ranks;
};

void lab_job_init(struct lab_job *job, const struct lab_opts *opts);
/* What a node is told when it has come up. */
void lab_job_greet(struct lab_job *job, struct lab_node *node);
/* Starts all ranks of a node. */
void lab_job_start(struct lab_job *job, struct lab_node *node);
void lab_job_frame(struct lab_job *job, struct lab_node *node, const struct lab_frame *f,
                   struct lab_output *o);
/* The node was powered off on purpose: its ranks do not count any more. */
void lab_job_lose_node(struct lab_job *job, int node, struct lab_output *o);

#endif
