/* SPDX-License-Identifier: MIT
 *
 * Events of a run, as lines of JSON: evaluations, checkpoints, ranks that come and go. They are
 * rare, so a few places in memory are enough; the recorder's thread writes the lines.
 */
#include "engine/train/trainer.h"

#include <stdlib.h>
#include <string.h>

/* Threads of servers call this function, too. It only copies. */
void vb_train_event(struct vb_trainer *t, const struct vb_train_event *event)
{
    struct vb_trainer_record *r = &t->record;

    if (r->events == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    if (r->n_events < VB_EVENTS_MAX)
        r->events[r->n_events++] = *event;
    else
        r->lost_events++;
    pthread_mutex_unlock(&r->lock);
}

/* Events are in the order of their times. Only the thread that writes them may put one first. */
void vb_train_event_earlier(struct vb_trainer *t, const struct vb_train_event *event)
{
    struct vb_trainer_record *r = &t->record;
    int i;

    if (r->events == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    if (r->n_events < VB_EVENTS_MAX) {
        for (i = r->n_events++; i > 0 && r->events[i - 1].at_ns > event->at_ns; i--)
            r->events[i] = r->events[i - 1];
        r->events[i] = *event;
    } else {
        r->lost_events++;
    }
    pthread_mutex_unlock(&r->lock);
}

void vb_train_event_say(struct vb_trainer *t, const char *what, int64_t step, const char *why)
{
    struct vb_train_event event = {.at_ns = vb_clock_ns(), .step = step, .rank = t->id};

    snprintf(event.what, sizeof(event.what), "%s", what);
    snprintf(event.why, sizeof(event.why), "%s", why);
    event.loss = event.accuracy = -1;
    vb_train_event(t, &event);
}

/* joined: the machine of this rank, if it has joined; otherwise NULL. */
static char *line_of(const struct vb_train_event *e, uint64_t begin_ns,
                     const struct vb_rank_facts *joined, size_t *len_p)
{
    struct vb_json *json = vb_json_create();
    char *line = NULL;
    FILE *out = open_memstream(&line, len_p);

    vb_json_object(json, NULL);
    vb_json_real(json, "at_s", (double)(int64_t)(e->at_ns - begin_ns) / 1e9);
    vb_json_int(json, "at_ns", (int64_t)vb_record_time(e->at_ns));
    vb_json_text(json, "what", e->what);
    vb_json_int(json, "step", e->step);
    vb_json_int(json, "rank", e->rank);
    if (e->accuracy >= 0) {
        vb_json_real(json, "loss", e->loss);
        vb_json_real(json, "accuracy", e->accuracy);
    }
    if (e->why[0] != '\0')
        vb_json_text(json, "why", e->why);
    vb_fault_json(json, &e->fault);
    if (joined != NULL && strcmp(e->what, "began") == 0)
        vb_rank_facts_json(json, "machine", joined);
    vb_json_end(json);
    if (out != NULL) {
        if (vb_json_print(json, out) != VB_OK)
            *len_p = 0;
        if (fclose(out) != 0)
            *len_p = 0;
    }
    vb_json_destroy(json);
    return line;
}

/* Lines that the folder does not accept now are kept until the next tick. */
static void write_events(void *arg, uint64_t now_ns, bool last)
{
    struct vb_trainer *t = arg;
    struct vb_trainer_record *r = &t->record;
    struct vb_train_event event;
    uint64_t begin_ns;
    vb_status st = VB_OK;
    size_t len = 0;
    char *line;

    (void)now_ns;
    (void)last;
    while (st != VB_AGAIN) {
        pthread_mutex_lock(&r->lock);
        if (r->n_events > 0)
            event = r->events[0];
        st = r->n_events > 0 ? VB_OK : VB_AGAIN;
        begin_ns = r->begin_ns;
        pthread_mutex_unlock(&r->lock);
        if (st != VB_OK)
            return;
        line = line_of(&event, begin_ns, r->joined, &len);
        if (line != NULL && len > 0)
            st = vb_recorder_append(r->rec, r->events_file, line, len);
        free(line);
        if (st == VB_AGAIN)
            return;
        pthread_mutex_lock(&r->lock);
        r->lost_events += st != VB_OK;
        memmove(r->events, r->events + 1, (size_t)--r->n_events * sizeof(*r->events));
        pthread_mutex_unlock(&r->lock);
    }
}

vb_status vb_train_events_open(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;

    if (t->o->run.dir == NULL)
        return VB_OK;
    if (t->id == 0)
        snprintf(r->events_file, sizeof(r->events_file), "events.jsonl");
    else
        snprintf(r->events_file, sizeof(r->events_file), "rank%d/events.jsonl", t->id);
    r->events = calloc(VB_EVENTS_MAX, sizeof(*r->events));
    if (r->events == NULL)
        return vb_err_sys("calloc");
    return vb_recorder_tick(r->rec, write_events, t);
}
