/* SPDX-License-Identifier: MIT */
#include "record/sample/sample_priv.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int vb_sample_open(const struct vb_sampler_opts *o, const char *path)
{
    char whole[512];
    int fd;

    snprintf(whole, sizeof(whole), "%s%s", o->root, path);
    fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && !o->quiet)
        VB_LOG_INFO("cannot read %s: %s; the records lack what it tells", whole, strerror(errno));
    return fd;
}

void vb_sample_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

size_t vb_sample_read(int fd, char *text, size_t size, bool once)
{
    size_t len = 0;
    ssize_t n = 1;

    while (fd >= 0 && n > 0 && len < size - 1 && !(once && len > 0)) {
        n = pread(fd, text + len, size - 1 - len, (off_t)len);
        len += n > 0 ? (size_t)n : 0;
    }
    text[len] = '\0';
    return len;
}

size_t vb_sample_glance(const struct vb_sampler_opts *o, const char *path, char *text, size_t size)
{
    struct vb_sampler_opts quiet = *o;
    size_t len;
    int fd;

    quiet.quiet = true;
    fd = vb_sample_open(&quiet, path);
    len = vb_sample_read(fd, text, size, true);
    vb_sample_close(&fd);
    return len;
}

int vb_sample_numbers(const char *text, uint64_t *numbers, int n)
{
    char *end;
    int i;

    for (i = 0; i < n; i++) {
        while (*text == ' ' || *text == '\t')
            text++;
        if (!isdigit((unsigned char)*text))
            break;
        numbers[i] = strtoull(text, &end, 10);
        text = end;
    }
    return i;
}

uint64_t vb_sample_number(const char *text, const char *word, uint64_t fallback)
{
    const char *at = strstr(text, word);
    uint64_t number;

    return at != NULL && vb_sample_numbers(at + strlen(word), &number, 1) == 1 ? number : fallback;
}

bool vb_sample_file_name(const char *name, char *text, size_t size)
{
    size_t len = 0;

    for (; *name != '\0'; name++) {
        unsigned char c = (unsigned char)*name;

        if (len + 4 > size)
            return false;
        if (c < 128 && (isalnum(c) || strchr("-_.", c) != NULL))
            text[len++] = (char)c;
        else
            len += (size_t)snprintf(text + len, size - len, "%%%02X", c);
    }
    text[len] = '\0';
    return len > 0;
}
