/* SPDX-License-Identifier: MIT
 *
 * Facts about a host among others: its name, its kernel, its kind of cpu, the programs that jobs
 * start.
 */
#include "doctor/doctor_priv.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static bool is_loopback(const struct sockaddr *sa)
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;

    if (sa->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
    return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(v6);
}

static void gather_name(struct vb_facts *facts)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *at;

    if (gethostname(facts->name, sizeof(facts->name) - 1) != 0 ||
        getaddrinfo(facts->name, NULL, &hints, &found) != 0)
        return;
    if (getnameinfo(found->ai_addr, found->ai_addrlen, facts->name_address,
                    sizeof(facts->name_address), NULL, 0, NI_NUMERICHOST) != 0)
        facts->name_address[0] = '\0';
    facts->name_is_loopback = true;
    for (at = found; at != NULL; at = at->ai_next)
        facts->name_is_loopback = facts->name_is_loopback && is_loopback(at->ai_addr);
    freeaddrinfo(found);
}

/* The call is made with arguments that no kernel accepts, so it changes nothing. */
static void note_call(struct vb_facts *facts, long number, const char *name)
{
    size_t len = strlen(facts->missing_calls);

    if (syscall(number, -1, -1) < 0 && errno == ENOSYS)
        snprintf(facts->missing_calls + len, sizeof(facts->missing_calls) - len, "%s%s",
                 len > 0 ? ", " : "", name);
}

static bool lacks(const char *command)
{
    static const char *const folders[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    char path[PATH_MAX];
    size_t i;

    for (i = 0; i < VB_COUNT(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", folders[i], command);
        if (access(path, X_OK) == 0)
            return false;
    }
    return true;
}

/* Lines are like "model name : ..." (x86) or, without a name, "CPU part : 0xd40" (arm64). */
static void gather_kind(const char *sysroot, struct vb_facts *facts)
{
    static const char *const fields[] = {"model name", "CPU implementer", "CPU variant",
                                         "CPU part"};
    char value[96];
    size_t i, len;

    for (i = 0; i < VB_COUNT(fields); i++) {
        if (!vb_facts_field(sysroot, "/proc/cpuinfo", fields[i], value, sizeof(value)))
            continue;
        len = strlen(facts->cpu);
        snprintf(facts->cpu + len, sizeof(facts->cpu) - len, "%s%s%s%s", len > 0 ? " " : "",
                 i > 0 ? strrchr(fields[i], ' ') + 1 : "", i > 0 ? " " : "",
                 value + strspn(value, "?: \t")); /* a tab has become '?' */
        if (i == 0)
            return;
    }
}

void vb_facts_host(const char *sysroot, struct vb_facts *facts)
{
    gather_kind(sysroot, facts);
    if (facts->recorded)
        return;
    facts->no_ssh = lacks("ssh");
    facts->no_gnuplot = lacks("gnuplot");
    gather_name(facts);
    note_call(facts, SYS_pidfd_open, "pidfd_open");
    note_call(facts, SYS_memfd_create, "memfd_create");
}
