/* SPDX-License-Identifier: MIT
 *
 * A rank asks our supervisor to add ranks to the job, and gets its answer. The request goes the way
 * of all news of a rank; the answer comes between the other bytes of the supervisor. It is written
 * in hexadecimal digits, which mean nothing else there.
 */
#include "launch/launch_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_BYTES (VB_ADDED_LINE / 2)

struct vb_answers {
    pthread_mutex_t lock;
    pthread_cond_t come;
    int number; /* of the last request */
    bool answered;
    struct vb_added added;
    bool reads; /* between VB_ANSWER and the line end */
    size_t len;
    char digits[VB_ADDED_LINE];
};

struct vb_answers *vb_answers_create(void)
{
    struct vb_answers *a = calloc(1, sizeof(*a));

    if (a == NULL)
        return NULL;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->come, NULL);
    return a;
}

/* ---- the text of an answer: NUMBER DONE N RANK... TEXT ----------------------------------------
 */

int vb_added_line(const struct vb_added *added, int number, char line[VB_ADDED_LINE])
{
    char text[TEXT_BYTES];
    size_t len, i;
    int n = snprintf(text, sizeof(text), "%d %d %d", number, added->done ? 1 : 0, added->n);

    for (i = 0; i < (size_t)added->n; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " %d", added->ranks[i]);
    snprintf(text + n, sizeof(text) - (size_t)n, " %.*s", VB_ADDED_TEXT - 1, added->text);
    len = strlen(text);
    line[0] = VB_ANSWER;
    for (i = 0; i < len; i++)
        snprintf(line + 1 + 2 * i, 3, "%02x", (unsigned char)text[i]);
    line[1 + 2 * len] = '\n';
    return (int)(2 * len + 2);
}

static bool take_number(const char **at, int max, int *value_p)
{
    char *end;
    long value = strtol(*at, &end, 10);

    if (end == *at || *end != ' ' || value < 0 || value > max)
        return false;
    *at = end + 1;
    *value_p = (int)value;
    return true;
}

/* Returns the number of the request; -1: this is no answer. */
static int parse(const char *text, struct vb_added *added)
{
    int number, done, i;

    memset(added, 0, sizeof(*added));
    if (!take_number(&text, INT32_MAX, &number) || !take_number(&text, 1, &done) ||
        !take_number(&text, VB_ADD_MAX, &added->n))
        return -1;
    for (i = 0; i < added->n; i++)
        if (!take_number(&text, INT32_MAX, &added->ranks[i]))
            return -1;
    added->done = done == 1;
    snprintf(added->text, sizeof(added->text), "%s", text);
    return number;
}

/* ---- the rank -------------------------------------------------------------------------------- */

static int digit(char c)
{
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

static void take_line(struct vb_answers *a)
{
    char text[TEXT_BYTES + 1];
    struct vb_added added;
    size_t i;

    for (i = 0; i < a->len / 2; i++)
        text[i] = (char)(16 * digit(a->digits[2 * i]) + digit(a->digits[2 * i + 1]));
    text[i] = '\0';
    if (parse(text, &added) != a->number || a->answered)
        return; /* the answer to an earlier request, for which nobody waits */
    a->added = added;
    a->answered = true;
    pthread_cond_broadcast(&a->come);
}

static void take_byte(struct vb_answers *a, char byte)
{
    bool is_digit = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');

    if (byte == VB_ANSWER) {
        a->reads = true;
        a->len = 0;
    } else if (a->reads && is_digit && a->len < sizeof(a->digits)) {
        a->digits[a->len++] = byte;
    } else {
        if (a->reads && byte == '\n')
            take_line(a);
        a->reads = false;
    }
}

void vb_answers_take(struct vb_answers *a, const char *bytes, size_t n)
{
    size_t i;

    pthread_mutex_lock(&a->lock);
    for (i = 0; i < n; i++)
        take_byte(a, bytes[i]);
    pthread_mutex_unlock(&a->lock);
}

bool vb_launch_ask_to_add(const struct vb_launch *launch, const char *host, int n)
{
    struct vb_answers *a = launch->answers;
    char line[VB_HOST_NAME + 48];
    int len, number;

    if (a == NULL || !vb_launch_hears(launch))
        return false;
    pthread_mutex_lock(&a->lock);
    a->answered = false;
    number = ++a->number;
    pthread_mutex_unlock(&a->lock);
    len = snprintf(line, sizeof(line), "add %d %d %.*s", number, n, VB_HOST_NAME - 1, host);
    return vb_launch_tell(launch, line, len);
}

bool vb_launch_wait_added(const struct vb_launch *launch, int timeout_ms, struct vb_added *added_p)
{
    struct vb_answers *a = launch->answers;
    struct timespec until;
    bool answered;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&a->lock);
    while (!a->answered && pthread_cond_timedwait(&a->come, &a->lock, &until) == 0)
        ;
    answered = a->answered;
    if (answered)
        *added_p = a->added;
    pthread_mutex_unlock(&a->lock);
    return answered;
}
