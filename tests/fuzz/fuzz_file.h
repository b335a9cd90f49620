/* SPDX-License-Identifier: MIT
 *
 * Shared by the fuzzers of code that reads files.
 */
#ifndef VB_TESTS_FUZZ_FUZZ_FILE_H
#define VB_TESTS_FUZZ_FUZZ_FILE_H

#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <sys/mman.h>

/* Writes the input to a file in memory and returns the path of the file. All calls use the same
 * file. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    return path;
}

#endif
