/* SPDX-License-Identifier: MIT
 *
 * What to type if data cannot be read: guesses from the first bytes of a file, or from the names of
 * files in a folder, which format it has.
 */
#include "data/data_priv.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_BYTES 4096
#define CIFAR_BYTES 3073 /* a label and 32 x 32 pixels of three colours */

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, sizeof(path), "%s/%s.gz", dir, name);
    return access(path, F_OK) == 0;
}

static int guess_folder(const char *dir)
{
    if (has_file(dir, "train-images-idx3-ubyte") || has_file(dir, "train-images.idx3-ubyte"))
        return VB_DATA_MNIST;
    return has_file(dir, "data_batch_1.bin") ? VB_DATA_CIFAR10 : -1;
}

/* `line` is the first line of the file, or as much of it as was read. */
static int guess_text(const char *line)
{
    const char *at = line;
    char *end;
    int tabs = 0;

    for (; *at != '\0'; at++)
        tabs += *at == '\t';
    if (tabs > 30)
        return VB_DATA_CRITEO;
    (void)strtod(line, &end);
    if (end == line || *end != ' ')
        return -1;
    at = end + strspn(end, " ");
    (void)strtoul(at, &end, 10);
    return end != at && *end == ':' ? VB_DATA_LIBSVM : -1;
}

static int guess_bytes(const unsigned char *start, size_t len, off_t size)
{
    static const unsigned char zeros[4];
    char line[START_BYTES + 1];

    if (len >= 5 && memcmp(start, "VBCSR", 5) == 0)
        return VB_DATA_CSR;
    if (len >= 4 && memcmp(start, zeros, 2) == 0 && start[2] == 8 && (start[3] | 2) == 3)
        return VB_DATA_MNIST;
    if (len >= 12 && start[0] != 0 && memcmp(start + 4, zeros, 4) == 0)
        return VB_DATA_TFRECORD; /* the length of a record, as 8 bytes */
    if (size > 0 && size % CIFAR_BYTES == 0 && start[0] < 10)
        return VB_DATA_CIFAR10;
    memcpy(line, start, len);
    line[len] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return guess_text(line);
}

int vb_data_guess(const char *path)
{
    unsigned char start[START_BYTES];
    struct stat info;
    ssize_t n;
    int fd;

    if (stat(path, &info) != 0)
        return -1;
    if (S_ISDIR(info.st_mode))
        return guess_folder(path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    n = S_ISREG(info.st_mode) ? read(fd, start, sizeof(start)) : 0;
    close(fd);
    return n > 0 ? guess_bytes(start, (size_t)n, info.st_size) : -1;
}

vb_status vb_data_fix(vb_status st, enum vb_data_format format, const char *path)
{
    int guess;

    if (st != VB_ERR_INPUT && st != VB_ERR_NO_FILE)
        return st;
    guess = vb_data_guess(path);
    if (guess == VB_DATA_MNIST && st == VB_ERR_INPUT)
        vb_log_fix("mnist:FOLDER   # this is one of the files of MNIST: name the folder");
    else if (guess >= 0 && guess != (int)format)
        vb_log_fix("%s:%s   # the format that this looks like",
                   vb_data_format_str((enum vb_data_format)guess), path);
    else if (st == VB_ERR_NO_FILE)
        vb_log_fix("ls -l %s   # docs/data.md says where each data set is published; --data synth "
                   "needs no files",
                   path);
    else
        vb_log_fix("verbena data --help   # lists the formats; docs/data.md describes them");
    return st;
}
