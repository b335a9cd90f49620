/* SPDX-License-Identifier: MIT */
#include "record/trace/trace_out_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

vb_status vb_trace_out_open(const char *path, enum vb_trace_format format,
                            struct vb_trace_out **out_p)
{
    struct vb_trace_out *out = calloc(1, sizeof(*out));
    vb_status st = VB_OK;

    if (out == NULL)
        return vb_err_sys("calloc");
    snprintf(out->path, sizeof(out->path), "%s", path);
    snprintf(out->part, sizeof(out->part), "%s.%d.part", out->path, (int)getpid());
    out->format = format == VB_TRACE_JSON ? &vb_trace_json : &vb_trace_perfetto;
    out->first = true;
    st = vb_file_may_replace(path);
    if (st == VB_OK && (out->file = fopen(out->part, "we")) == NULL)
        st = vb_err_sys("%s", out->part);
    if (st != VB_OK) {
        free(out);
        return st;
    }
    out->format->begin(out);
    *out_p = out;
    return VB_OK;
}

vb_status vb_trace_out_close(struct vb_trace_out *out, bool keep)
{
    vb_status st = VB_OK;
    bool failed;

    if (keep)
        out->format->end(out);
    failed = ferror(out->file) != 0;
    if (fclose(out->file) != 0 || failed)
        st = vb_err(VB_ERR_IO, "cannot write %s; is the disk full?", out->part);
    if (st == VB_OK && keep && rename(out->part, out->path) != 0)
        st = vb_err_sys("cannot rename %s to %s", out->part, out->path);
    if (st != VB_OK || !keep)
        (void)unlink(out->part);
    free(out);
    return st;
}

void vb_trace_out_process(struct vb_trace_out *out, int rank, const char *name)
{
    out->rank = rank;
    out->track = 0;
    out->format->process(out, name);
}

void vb_trace_out_track(struct vb_trace_out *out, int rank, int track, enum vb_track_kind kind,
                        const char *name, uint64_t begin_ns)
{
    out->rank = rank;
    out->track = track;
    out->kind = kind;
    out->sequence++;
    out->last_ns = begin_ns;
    memset(out->known, 0, sizeof(out->known));
    snprintf(out->track_name, sizeof(out->track_name), "%s", name);
    out->format->track(out, name, begin_ns);
}

void vb_trace_out_item(struct vb_trace_out *out, const struct vb_trace_item *item)
{
    out->format->item(out, item);
}
