/* SPDX-License-Identifier: MIT
 *
 * Makes the first steps of a node in one program, because starting commands is slow when emulated.
 */
#include "lab/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MODULES "/usr/lib/lab/modules"

int lab_setup_mount(void)
{
    static const struct {
        const char *type, *path;
    } mounts[] = {
        {"proc", "/proc"},      {"sysfs", "/sys"},     {"devtmpfs", "/dev"},
        {"devpts", "/dev/pts"}, {"tmpfs", "/dev/shm"},
    };
    static const struct {
        const char *to, *path;
    } links[] = {
        {"/proc/self/fd", "/dev/fd"},
        {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"},
        {"/proc/self/fd/2", "/dev/stderr"},
    };
    size_t i;

    for (i = 0; i < sizeof(mounts) / sizeof(*mounts); i++) {
        mkdir(mounts[i].path, 0755);
        /* The kernel may have mounted /dev already. */
        if (mount(mounts[i].type, mounts[i].path, mounts[i].type, 0, NULL) != 0 && errno != EBUSY)
            lab_die("%s: %s", mounts[i].path, strerror(errno));
    }
    for (i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (symlink(links[i].to, links[i].path) != 0 && errno != EEXIST)
            lab_die("%s: %s", links[i].path, strerror(errno));
    return 0;
}

int lab_setup_load(char *const *groups)
{
    char line[256], path[512];
    FILE *f;
    int fd;

    for (; *groups != NULL; groups++) {
        snprintf(line, sizeof(line), MODULES "/%s", *groups);
        f = fopen(line, "re");
        if (f == NULL)
            continue; /* all modules of the group are built into the kernel */
        while (fgets(line, sizeof(line), f) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(path, sizeof(path), MODULES "/%s", line);
            fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0)
                lab_die("cannot load %s: %s", line, strerror(errno));
            close(fd);
        }
        fclose(f);
    }
    return 0;
}
