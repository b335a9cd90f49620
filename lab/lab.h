/* SPDX-License-Identifier: MIT
 *
 * The lab has two programs: cluster runs on the host and owns the virtual machines; agent is the
 * first process of each virtual machine.
 *
 * Every virtual machine dies with the process that started it (PR_SET_PDEATHSIG), and cluster makes
 * no files. So cluster can end at any point, by lab_die() or by a signal, and leaves nothing
 * behind.
 */
#ifndef VB_LAB_LAB_H
#define VB_LAB_LAB_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LAB_MAX_NODES 32
#define LAB_MAX_RANKS 1024

/* Exit codes that do not come from the job. */
#define LAB_USAGE 2
#define LAB_TIMEOUT 124
#define LAB_FAILED 125

/* Prints a message and exits with LAB_FAILED. */
_Noreturn void lab_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns zeroed memory, or exits. */
void *lab_alloc(size_t n, size_t size_bytes);
int64_t lab_now_ms(void);

/* --- queue.c: queued bytes, in contiguous memory ---------------------------------------------- */

struct lab_queue {
    uint8_t *data;
    size_t head, len_bytes, cap;
};

void lab_queue_fini(struct lab_queue *q);
void lab_queue_push(struct lab_queue *q, const void *data, size_t len_bytes);
void lab_queue_drop(struct lab_queue *q, size_t len_bytes);
const uint8_t *lab_queue_head(const struct lab_queue *q); /* valid until the next push or fill */

/* Calls read() once and appends the bytes. Returns false at the end of the file or on an error. */
bool lab_queue_fill(struct lab_queue *q, int fd);
/* Calls write() once, with at most max bytes. Returns false on an error other than EAGAIN. */
bool lab_queue_flush(struct lab_queue *q, int fd, size_t max);

/* --- queue.c: messages between cluster and agent ---------------------------------------------- */

enum lab_frame_type {
    /* sent by agent to cluster */
    LAB_HELLO = 1, /* the node is up, with its network and soft-RoCE device */
    LAB_FAIL,      /* text: the reason why the node cannot do what cluster asked for */
    LAB_OUT,       /* standard output of a rank */
    LAB_ERR,       /* standard error of a rank */
    LAB_EXIT,      /* int32_t: exit status of a rank; 128 + N if signal N ended it */
    /* sent by cluster to agent */
    LAB_SETUP, /* struct lab_setup */
    LAB_MOUNT, /* two strings: tag of the shared folder, and path */
    LAB_START, /* struct lab_start, then the strings */
    LAB_IN,    /* standard input of a rank; an empty frame is the end of the input */
    LAB_SIZE,  /* struct lab_size: the size of the terminal */
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
    int64_t time_ns; /* time of the host's clock */
    uint8_t secret[LAB_SECRET_BYTES];
};

/* Flags of struct lab_start. If no flag is set, standard input is empty. */
enum { LAB_INPUT = 1, LAB_TERMINAL = 2 };

struct lab_start {
    uint32_t flags, n_args, n_envs;
    /* followed by zero-terminated strings: folder, arguments, environment */
};

struct lab_size {
    uint16_t rows, columns;
};

void lab_frame_push(struct lab_queue *q, enum lab_frame_type type, int rank, const void *data,
                    size_t len_bytes);
/* Takes the next complete frame out of the queue. Returns false if there is no complete frame. */
bool lab_frame_next(struct lab_queue *q, struct lab_frame *f_p);

/* --- switch.c: the Ethernet between the nodes ------------------------------------------------- */

struct lab_port {
    int fd; /* -1: nothing is connected */
    bool cut;
    struct lab_queue in, out;
    uint64_t n_forwarded, n_dropped; /* frames; dropped: because the queue was full */
};

/* Forwards the frames that arrived on ports[i]. Returns false if the port is gone. */
bool lab_switch_read(struct lab_port *ports, int n_ports, int i);
/* The MAC address contains the node's number, so the switch need not learn addresses. */
void lab_switch_mac(int node, uint8_t mac_p[6]);

/* --- output.c: standard output and standard error --------------------------------------------- */

struct lab_output {
    struct lab_queue out, err;
};

/* Output of one rank, with a prefix before each line. A line has output of only one rank. */
struct lab_lines {
    char prefix[48];
    struct lab_queue part;
};

void lab_output_lines(struct lab_output *o, struct lab_lines *l, const void *data,
                      size_t len_bytes);
void lab_output_end(struct lab_output *o, struct lab_lines *l); /* ends an incomplete last line */
void lab_output_say(struct lab_output *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes all queued output. Gives up after timeout_ms. */
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

/* Starts qemu with argv, and with the arguments that make it node number index of n_nodes nodes. */
void lab_node_start(struct lab_node *node, int index, int n_nodes, char *const *argv, int n_args,
                    const char *append, struct lab_port *port);
void lab_node_kill(struct lab_node *node, struct lab_port *port);
int64_t lab_node_cpu_ms(const struct lab_node *node); /* CPU time that qemu has used */
void lab_node_set_link(struct lab_node *node, bool up);
void lab_node_read_console(struct lab_node *node);
/* Prints the last lines of the console, each with a prefix. */
void lab_node_show_console(struct lab_node *node, struct lab_output *o);

/* --- options.c: the arguments of cluster ------------------------------------------------------ */

#define LAB_MAX_EVENTS 64

enum lab_event_type { LAB_KILL, LAB_CUT, LAB_JOIN };

struct lab_event { /* --kill and --cut; a cut ends with LAB_JOIN */
    enum lab_event_type type;
    int node;
    int64_t at_ms; /* time since the start of the job */
    bool done;
};

struct lab_opts {
    int n_nodes, per_node;
    bool each; /* the program is started once per node, without ranks */
    int shell; /* node that runs one program with standard input; -1: none */
    bool verbose;
    int timeout_s; /* 0: there is no timeout */
    char **qemu;
    int n_qemu;
    const char *append;
    char **envs, **shares; /* both lists end with NULL */
    char **args;
    int n_args;
    struct lab_event events[LAB_MAX_EVENTS];
    int n_events;
};

/* Parses the arguments. Exits if they are wrong. The options point into argv. */
void lab_opts_parse(struct lab_opts *o, int argc, char **argv);

/* --- setup.c: the first steps of a node. Both return 0 or exit -------------------------------- */

int lab_setup_mount(void);
int lab_setup_load(char *const *groups); /* groups ends with NULL; an unknown group is empty */

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
    int status; /* the first exit status of a rank that is not 0 */
    struct lab_rank *ranks;
};

void lab_job_init(struct lab_job *job, const struct lab_opts *opts);
/* Sends a node its setup and its mounts, after the node has come up. */
void lab_job_greet(struct lab_job *job, struct lab_node *node);
/* Starts all ranks of a node. */
void lab_job_start(struct lab_job *job, struct lab_node *node);
void lab_job_frame(struct lab_job *job, struct lab_node *node, const struct lab_frame *f,
                   struct lab_output *o);
/* A node was powered off on purpose, so the job no longer waits for its ranks. */
void lab_job_lose_node(struct lab_job *job, int node, struct lab_output *o);

#endif
