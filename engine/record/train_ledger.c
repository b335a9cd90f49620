/* SPDX-License-Identifier: MIT
 *
 * A line is one write() to a file that is open for appending, so lines of several ranks do not mix.
 */
#include "engine/train/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define LINE_MAX_LEN 256

static vb_status append(struct vb_trainer *t, const char *line, int len)
{
    ssize_t n;

    do
        n = write(t->ledger.fd, line, (size_t)len);
    while (n < 0 && errno == EINTR);
    if (n == len)
        return VB_OK;
    if (n >= 0)
        errno = ENOSPC;
    return vb_err_sys("cannot write the ledger %s", t->o->ledger);
}

vb_status vb_ledger_open(struct vb_trainer *t)
{
    if (t->o->ledger == NULL)
        return VB_OK;
    t->ledger.fd = open(t->o->ledger, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (t->ledger.fd < 0)
        return vb_err_sys("cannot write the ledger %s", t->o->ledger);
    t->ledger.on = true;
    return vb_ledger_begin(t);
}

void vb_ledger_close(struct vb_trainer *t)
{
    if (t->ledger.on)
        (void)close(t->ledger.fd);
    t->ledger.on = false;
}

vb_status vb_ledger_begin(struct vb_trainer *t)
{
    char line[LINE_MAX_LEN];

    if (!t->ledger.on)
        return VB_OK;
    return append(t, line,
                  snprintf(line, sizeof(line),
                           "{\"begin\":%lld,\"rank\":%d,\"ranks\":%d,\"samples\":%d,"
                           "\"global_batch\":%d,\"seed\":%llu}\n",
                           (long long)t->step, t->rank, t->shares, t->data.train.n,
                           t->recipe.global_batch, (unsigned long long)t->o->seed));
}

vb_status vb_ledger_step(struct vb_trainer *t)
{
    const struct vb_batch *b = t->batch;
    char line[LINE_MAX_LEN], range[64] = "";

    if (!t->ledger.on)
        return VB_OK;
    if (b->n_share > 0)
        snprintf(range, sizeof(range), "[%d,%d]", b->position, b->position + b->n_share);
    return append(t, line,
                  snprintf(line, sizeof(line),
                           "{\"step\":%lld,\"rank\":%d,\"ranks\":%d,\"epoch\":%lld,"
                           "\"samples\":%d,\"ranges\":[%s]}\n",
                           (long long)t->step + 1, t->rank, t->shares, (long long)b->epoch,
                           b->n_share, range));
}
