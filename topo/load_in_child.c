/* SPDX-License-Identifier: MIT
 *
 * Tests in a child process whether hwloc can load a file. hwloc trusts the files that it reads: in
 * a fuzz test, hwloc crashed on a file with one wrong digit. This process loads the file only if
 * the child process succeeded.
 */
#include "topo/topo_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_CPU_S 20
#define CHILD_WALL_S 60

/* The run time of the child is limited. The child prints nothing and leaves no core file. */
_Noreturn static void load_in_child(const char *text, int len)
{
    struct rlimit none = {0}, cpu = {CHILD_CPU_S, CHILD_CPU_S};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    hwloc_topology_t hwloc;

    alarm(CHILD_WALL_S);
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &cpu);
    if (null >= 0)
        dup2(null, STDERR_FILENO);
    if (hwloc_topology_init(&hwloc) != 0 || vb_topology_configure(hwloc) != 0 ||
        hwloc_topology_set_xmlbuffer(hwloc, text, len) != 0 || hwloc_topology_load(hwloc) != 0)
        _exit(1);
    hwloc_topology_check(hwloc); /* aborts if the parts of the topology contradict each other */
    hwloc_topology_destroy(hwloc);
    _exit(0);
}

vb_status vb_xml_load_in_child(const char *text, int len, bool *good_p)
{
    pid_t pid = fork();
    int status;

    if (pid < 0)
        return vb_err_sys("fork");
    if (pid == 0)
        load_in_child(text, len);
    while (waitpid(pid, &status, 0) < 0) /* the child ends after CHILD_WALL_S at the latest */
        if (errno != EINTR)
            return vb_err_sys("waitpid");
    *good_p = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return VB_OK;
}
