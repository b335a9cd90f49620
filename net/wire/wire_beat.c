/* SPDX-License-Identifier: MIT */
#include "net/wire/wire.h"

#define LONG_MS 1000 /* shorter times are not worth a word */

void vb_wire_beat_encode(const struct wire_beat *beat, unsigned char out[WIRE_BEAT_BYTES])
{
    vb_wire_u64_encode(beat->step, out);
    vb_wire_u32_encode(beat->activity, out + 8);
    vb_wire_u32_encode(beat->waits_for, out + 12);
    vb_wire_u32_encode(beat->same_ms, out + 16);
    vb_wire_u32_encode(beat->page_waits, out + 20);
}

bool vb_wire_beat_decode(const unsigned char in[WIRE_BEAT_BYTES], struct wire_beat *beat_p)
{
    beat_p->step = vb_wire_u64_decode(in);
    beat_p->activity = vb_wire_u32_decode(in + 8);
    beat_p->waits_for = vb_wire_u32_decode(in + 12);
    beat_p->same_ms = vb_wire_u32_decode(in + 16);
    beat_p->page_waits = vb_wire_u32_decode(in + 20);
    return beat_p->activity < VB_ACTIVITIES &&
           (beat_p->waits_for < VB_WORLD_MAX || beat_p->waits_for == WIRE_NO_RANK);
}

void vb_wire_silent_encode(const struct wire_silent *silent, unsigned char out[WIRE_SILENT_BYTES])
{
    vb_wire_u32_encode(silent->rank, out);
    vb_wire_u32_encode(silent->ms, out + 4);
    vb_wire_beat_encode(&silent->last, out + 8);
}

bool vb_wire_silent_decode(const unsigned char in[WIRE_SILENT_BYTES], struct wire_silent *silent_p)
{
    silent_p->rank = vb_wire_u32_decode(in);
    silent_p->ms = vb_wire_u32_decode(in + 4);
    return vb_wire_beat_decode(in + 8, &silent_p->last);
}

void vb_wire_beat_text(const struct wire_beat *beat, char out[WIRE_BEAT_TEXT])
{
    static const char *const names[VB_ACTIVITIES] = {
        [VB_DOES_SETUP] = "setting up",
        [VB_DOES_LOAD] = "loading data",
        [VB_DOES_COMPUTE] = "computing",
        [VB_DOES_EVALUATE] = "evaluating",
        [VB_DOES_SAVE] = "writing a checkpoint",
        [VB_DOES_SERVE] = "serving workers",
        [VB_DOES_END] = "ending",
    };
    const char *name = beat->activity < VB_ACTIVITIES ? names[beat->activity] : NULL;
    size_t len;

    out[0] = '\0';
    if (name == NULL)
        return;
    if (beat->waits_for != WIRE_NO_RANK)
        snprintf(out, WIRE_BEAT_TEXT, "waiting for rank %u", beat->waits_for);
    else
        snprintf(out, WIRE_BEAT_TEXT, "%s", name);
    if (beat->activity != VB_DOES_SETUP) {
        len = strlen(out);
        snprintf(out + len, WIRE_BEAT_TEXT - len, " in step %llu",
                 (unsigned long long)beat->step + 1);
    }
    len = strlen(out);
    if (beat->same_ms >= LONG_MS)
        snprintf(out + len, WIRE_BEAT_TEXT - len, " for %.1f s", beat->same_ms / 1e3);
    len = strlen(out);
    if (beat->page_waits > 0)
        snprintf(out + len, WIRE_BEAT_TEXT - len, ", with %u waits for pages from a disk",
                 beat->page_waits);
}
