/* SPDX-License-Identifier: MIT
 *
 * The lock of a folder of checkpoints. It is a lock of the open file description (F_OFD_SETLK),
 * which other threads of the process cannot drop by closing the file, and which NFS knows too.
 */
#include "engine/checkpoint/checkpoint_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OWNER_BYTES 256
#define TOKEN_TEXT (2 * VB_JOB_TOKEN + 1)

static void token_text(const unsigned char token[VB_JOB_TOKEN], char text[TOKEN_TEXT])
{
    int i;

    for (i = 0; i < VB_JOB_TOKEN; i++)
        snprintf(text + 2 * i, 3, "%02x", token[i]);
}

/* Writes who has the folder. A failure is not an error: then the message of another job does not
 * name this one. */
static void write_owner(int fd, const unsigned char token[VB_JOB_TOKEN])
{
    char text[OWNER_BYTES], hex[TOKEN_TEXT], host[65] = "unknown", when[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    int len;

    token_text(token, hex);
    (void)gethostname(host, sizeof(host) - 1);
    if (localtime_r(&now, &parts) != NULL)
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &parts);
    len = snprintf(text, sizeof(text), "%s process %ld on %s, since %s\n", hex, (long)getpid(),
                   host, when);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len)
        VB_LOG_WARN("cannot write to the lock of the checkpoints: %s", strerror(errno));
}

/* Reads who has the folder, as "TOKEN process ..."; "": not known. */
static void read_owner(int fd, char text[OWNER_BYTES])
{
    ssize_t n = pread(fd, text, OWNER_BYTES - 1, 0), i;

    for (i = 0; i < n && text[i] >= ' ' && text[i] <= '~'; i++)
        ;
    text[i] = '\0';
}

static vb_status refuse(const char *dir, const char *owner)
{
    const char *who = strchr(owner, ' ');

    return vb_err(VB_ERR_USAGE,
                  "the checkpoints in %s belong to another job that is running (%s): wait until it "
                  "ends, or name a different folder",
                  dir, who != NULL ? who + 1 : "its process is not known");
}

vb_status vb_checkpoint_lock(const char *dir, const unsigned char token[VB_JOB_TOKEN], int *fd_p)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX], owner[OWNER_BYTES], hex[TOKEN_TEXT];
    int fd, err;

    *fd_p = -1;
    if ((size_t)snprintf(path, sizeof(path), "%s/lock", dir) >= sizeof(path))
        return vb_err(VB_ERR_USAGE, "cannot lock %.64s...: the path is too long", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return vb_err_sys("cannot open %s", path);
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0) {
        write_owner(fd, token);
        *fd_p = fd;
        return VB_OK;
    }
    err = errno;
    read_owner(fd, owner);
    close(fd);
    if (err != EAGAIN && err != EACCES) { /* some network file systems have no locks */
        VB_LOG_WARN("cannot lock %s: %s; no other job may use this folder", path, strerror(err));
        return VB_OK;
    }
    token_text(token, hex);
    return strncmp(owner, hex, strlen(hex)) == 0 ? VB_OK : refuse(dir, owner);
}

void vb_checkpoint_unlock(int fd)
{
    if (fd < 0)
        return;
    if (ftruncate(fd, 0) != 0) /* an old owner's name in the file does no harm */
        VB_LOG_DEBUG("cannot empty the lock of the checkpoints: %s", strerror(errno));
    close(fd);
}
