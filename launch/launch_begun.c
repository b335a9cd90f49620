/* SPDX-License-Identifier: MIT
 *
 * A rank tells its supervisor that training has begun. On the supervisor's own host the rank writes
 * a byte to a pipe that it has inherited. Over ssh a rank has only its standard streams, so it
 * prints a line on standard error. That line ends with a code made from the job's secret, so no
 * other output of the program can be mistaken for that line.
 */
#include "launch/launch_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CODE_BYTES 16 /* length of the code in the line: too long to be guessed */

vb_status vb_launch_begun_line(const unsigned char secret[VB_SECRET_BYTES],
                               char line[VB_BEGUN_TEXT])
{
    unsigned char code[VB_SECRET_BYTES];
    vb_status st = vb_secret_derive(secret, "verbena begun  1", "", code);
    int n, i;

    if (st != VB_OK)
        return st;
    n = snprintf(line, VB_BEGUN_TEXT, "verbena-begun 1 ");
    for (i = 0; i < CODE_BYTES; i++)
        n += snprintf(line + n, VB_BEGUN_TEXT - (size_t)n, "%02x", code[i]);
    return VB_OK;
}

void vb_launch_tell_begun(const struct vb_launch *launch)
{
    char line[VB_BEGUN_TEXT];

    if (!launch->supervised)
        return;
    if (launch->begun_fd >= 0 && write(launch->begun_fd, "b", 1) != 1)
        VB_LOG_WARN("the supervisor cannot be told that training has begun");
    if (launch->over_ssh && vb_launch_begun_line(launch->secret, line) == VB_OK)
        fprintf(stderr, "%s\n", line);
}
