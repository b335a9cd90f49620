/* SPDX-License-Identifier: MIT
 *
 * The text of a job: a head, then the command line, the settings that the ranks have agreed on, and
 * the plan, each with a zero at its end.
 */
#include "engine/run/run_job.h"

#include <stdlib.h>
#include <string.h>

#define JOB_MAGIC UINT64_C(0x3130626f6a627672)
#define SETTINGS_MAX 16384

struct job_head {
    uint64_t magic, program; /* vb_process_program() */
    char cpu[VB_K_CPU_KIND];
    unsigned char token[VB_JOB_TOKEN];
    int64_t begin;                  /* number of steps of the run that was resumed */
    uint32_t words, settings, plan; /* sizes, with the last zero */
};

static void take(char **at_p, const char *text, uint32_t len)
{
    memcpy(*at_p, text, len - 1);
    (*at_p)[len - 1] = '\0';
    *at_p += len;
}

/* Notes where the job can be joined, and tells the user if it is elsewhere than before. */
static void tell_doors(struct vb_trainer *t)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;
    struct vb_run_facts *facts = t->o->run.facts;
    char doors[VB_DOORS_TEXT];

    vb_group_doors(t->place.group, doors);
    if (facts != NULL && strcmp(facts->doors, doors) == 0)
        return;
    if (facts != NULL)
        memcpy(facts->doors, doors, sizeof(facts->doors));
    if (t->leads && hooks->joinable != NULL)
        hooks->joinable(hooks->joinable_arg, doors);
}

static vb_status let_in(struct vb_trainer *t)
{
    const struct vb_train_join_opts *join = &t->o->join;
    const char *plan = t->kernels.text != NULL ? t->kernels.text : "";
    struct job_head head = {.magic = JOB_MAGIC, .begin = t->resumed};
    char *text, *at;
    size_t len;
    vb_status st = vb_process_program(&head.program);

    if (st != VB_OK)
        return st;
    vb_k_cpu_kind(t->kernels.text, head.cpu);
    memcpy(head.token, t->saved.token, sizeof(head.token));
    head.words = join->words != NULL ? (uint32_t)join->words_len + 1 : 1;
    head.settings = (uint32_t)strlen(t->settings) + 1;
    head.plan = (uint32_t)strlen(plan) + 1;
    len = sizeof(head) + head.words + head.settings + head.plan;
    if (len > VB_JOB_BYTES_MAX) {
        VB_LOG_WARN("nobody can join this job: its command line and its plan are too long");
        t->form.let_in = t->place.group;
        return vb_group_let_in(t->place.group, NULL, 0, 0);
    }
    text = at = malloc(len);
    if (text == NULL)
        return vb_err_sys("malloc");
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    take(&at, join->words != NULL ? join->words : "", head.words);
    take(&at, t->settings, head.settings);
    take(&at, plan, head.plan);
    st = vb_group_let_in(t->place.group, text, len,
                         t->recipe.global_batch < VB_WORLD_MAX ? t->recipe.global_batch
                                                               : VB_WORLD_MAX);
    if (st == VB_OK)
        t->form.let_in = t->place.group;
    free(text);
    return st;
}

vb_status vb_run_let_in(struct vb_trainer *t)
{
    vb_status st = VB_OK;

    if (t->place.group == NULL || !vb_train_is_elastic(t->o) || t->replay.on)
        return VB_OK;
    if (t->place.group != t->form.let_in)
        st = let_in(t);
    if (st == VB_OK && t->place.group == t->form.let_in)
        tell_doors(t);
    return st;
}

/* Returns whether the text is complete, and copies its head. */
static bool read_head(const void *job, size_t len, struct job_head *head_p)
{
    const char *at = job;

    if (job == NULL || len < sizeof(*head_p))
        return false;
    memcpy(head_p, job, sizeof(*head_p));
    if (head_p->magic != JOB_MAGIC || memchr(head_p->cpu, '\0', sizeof(head_p->cpu)) == NULL ||
        head_p->words < 1 || head_p->settings < 1 || head_p->plan < 1 || head_p->begin < 0 ||
        head_p->settings > SETTINGS_MAX || head_p->plan > VB_PLAN_BYTES_MAX ||
        head_p->words > VB_JOB_BYTES_MAX ||
        len != sizeof(*head_p) + head_p->words + head_p->settings + head_p->plan)
        return false;
    at += sizeof(*head_p) + head_p->words;
    return at[-1] == '\0' && at[head_p->settings - 1] == '\0' &&
           at[head_p->settings + head_p->plan - 1] == '\0';
}

bool vb_train_job_words(const void *job, size_t len, const char **words_p, size_t *len_p)
{
    struct job_head head;

    if (!read_head(job, len, &head))
        return false;
    *words_p = (const char *)job + sizeof(head);
    *len_p = head.words - 1;
    return true;
}

vb_status vb_run_job_read(struct vb_caller *caller, struct vb_trainer_joiner *joiner_p)
{
    struct job_head head;
    size_t len;
    const char *job = vb_caller_job(caller, &len);
    vb_status st;

    if (!read_head(job, len, &head))
        return vb_err(VB_ERR_INPUT, "cannot join: what the job says about itself is not valid");
    st = vb_train_fits_program(head.program);
    if (st != VB_OK)
        return st;
    *joiner_p = (struct vb_trainer_joiner){.begin = head.begin, .caller = caller};
    joiner_p->cpu = job + offsetof(struct job_head, cpu);
    joiner_p->settings = job + sizeof(head) + head.words;
    joiner_p->plan = joiner_p->settings + head.settings;
    memcpy(joiner_p->job_token, head.token, sizeof(head.token));
    joiner_p->token = joiner_p->job_token;
    if (joiner_p->plan[0] == '\0')
        joiner_p->plan = NULL;
    if (vb_train_ranks_of(joiner_p->settings) == 0)
        return vb_err(VB_ERR_INPUT, "cannot join: the settings of the job name no number of ranks");
    return VB_OK;
}
