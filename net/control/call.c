/* SPDX-License-Identifier: MIT
 *
 * How a process comes to a running job. It calls the addresses that it knows in turn. Rank 0 of a
 * group with slots answers with a slot. Any member of a group that agrees answers with the
 * addresses of all, the lead first. The lead also sends the text of the job, and lets the caller
 * wait. Once the caller is ready, the lead is heard every second, and at last invites it. If the
 * lead is gone or silent, the caller calls the others.
 */
#include "net/control/call.h"
#include "net/control/handshake.h"
#include "net/control/root_resolve.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S_NS UINT64_C(1000000000)
#define CONNECT_NS (3 * S_NS) /* for one address */
#define ANSWER_NS (10 * S_NS) /* for the first answer, and the longest silence of the lead */
#define NOBODY_NS (3 * S_NS)  /* nobody listens at any address: there is no job */
#define GONE_NS (15 * S_NS)   /* the same after a member has answered: another lead may come */
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000

/* ---- addresses ------------------------------------------------------------------------------- */

/* Adds the addresses of a text; `given`: by the user, so that a mistake is an error. */
static vb_status add_addresses(struct call_list *list, const char *text, bool given)
{
    char one[VB_ROOT_TEXT];
    size_t len;
    vb_status st;

    for (; *text != '\0'; text += len + (text[len] == ',')) {
        len = strcspn(text, ",");
        if (len == 0 || len >= sizeof(one) || list->n == CALL_ADDRESSES)
            return given ? vb_err(VB_ERR_USAGE,
                                  "the addresses of a job are at most %d times HOST:PORT, with "
                                  "commas between them",
                                  CALL_ADDRESSES)
                         : VB_OK;
        snprintf(one, sizeof(one), "%.*s", (int)len, text);
        st = given ? vb_root_resolve(one, &list->at[list->n])
                   : vb_sock_resolve(one, &list->at[list->n]);
        if (st == VB_OK)
            list->n++;
        else if (given && st == VB_ERR_USAGE)
            return st;
    }
    return VB_OK;
}

vb_status vb_call_init(struct vb_caller *w, const struct vb_group_opts *opts)
{
    vb_status st = vb_auth_init();

    memset(w, 0, sizeof(*w));
    w->fd = -1;
    w->opts = *opts;
    w->patience = opts->patience > 0 ? opts->patience : 1;
    w->frame = malloc(WIRE_JOB_BYTES_MAX + WIRE_TAG);
    if (w->frame == NULL)
        return vb_err_sys("malloc");
    if (st == VB_OK)
        st = add_addresses(&w->given, opts->root, true);
    if (st == VB_OK && w->given.n == 0)
        st = VB_ERR_INPUT; /* the log says which name is not known */
    return st;
}

static void hang_up(struct vb_caller *w)
{
    vb_fd_close(&w->fd);
    explicit_bzero(&w->session, sizeof(w->session));
}

void vb_call_fini(struct vb_caller *w)
{
    hang_up(w);
    free(w->job);
    free(w->frame);
    w->job = w->frame = NULL;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Reads a frame into w->frame. VB_ERR_PEER, VB_ERR_TIMEOUT: nothing is logged. */
static vb_status read_frame(struct vb_caller *w, uint64_t deadline, uint16_t *type_p,
                            uint32_t *len_p)
{
    unsigned char head[WIRE_FRAME_HEAD + WIRE_TAG];
    const char *fault = NULL;
    vb_status st = vb_sock_read(w->fd, head, WIRE_FRAME_HEAD, deadline);

    if (st != VB_OK)
        return st;
    if (!vb_wire_frame_decode(head, 1, len_p, type_p) || *len_p > WIRE_JOB_BYTES_MAX)
        return vb_err(VB_ERR_INPUT, "the job sent a frame with an invalid head");
    if (vb_wire_length_varies(*type_p)) {
        st = vb_sock_read(w->fd, head + WIRE_FRAME_HEAD, WIRE_TAG, deadline);
        if (st == VB_OK)
            fault = vb_auth_check(&w->session, head, NULL, 0, head + WIRE_FRAME_HEAD);
    }
    if (st == VB_OK && fault == NULL)
        st = vb_sock_read(w->fd, w->frame, *len_p + WIRE_TAG, deadline);
    if (st == VB_OK && fault == NULL)
        fault = vb_auth_check(&w->session, head, w->frame, *len_p, w->frame + *len_p);
    return fault != NULL ? vb_err(VB_ERR_ACCESS, "the job sent no valid answer: %s", fault) : st;
}

static vb_status out_of_order(uint16_t type)
{
    return vb_err(VB_ERR_INPUT, "the job sent a frame of type %u out of order", type);
}

/* Takes the addresses that a member has sent. */
static bool take_doors(struct vb_caller *w, uint32_t len, bool *waits_p)
{
    struct wire_doors doors;

    if (!vb_wire_doors_decode(w->frame, len, &doors))
        return false;
    *waits_p = doors.waits;
    if (strcmp(doors.text, w->doors) != 0) {
        memcpy(w->doors, doors.text, sizeof(w->doors));
        w->told.n = 0;
        (void)add_addresses(&w->told, doors.text, false);
    }
    return true;
}

/* Keeps the first text of the job, which the caller may have read by now. */
static vb_status take_job(struct vb_caller *w, uint64_t deadline)
{
    uint16_t type;
    uint32_t len;
    vb_status st = read_frame(w, deadline, &type, &len);

    if (st != VB_OK)
        return st;
    if (type != WIRE_JOB)
        return out_of_order(type);
    if (w->job != NULL)
        return VB_OK;
    w->job = malloc(len);
    if (w->job == NULL)
        return vb_err_sys("malloc");
    memcpy(w->job, w->frame, len);
    w->job_len = len;
    return VB_OK;
}

/* Returns VB_AGAIN if the member has only sent addresses. */
static vb_status take_answer(struct vb_caller *w, uint64_t deadline)
{
    bool waits = false;
    uint16_t type;
    uint32_t len;
    vb_status st = read_frame(w, deadline, &type, &len);

    if (st != VB_OK)
        return st;
    w->met = true;
    if (type == WIRE_SLOT) {
        w->has_slot = vb_wire_slot_decode(w->frame, &w->slot);
        return w->has_slot ? VB_OK : vb_err(VB_ERR_INPUT, "rank 0 sent an invalid slot");
    }
    if (type != WIRE_DOORS || !take_doors(w, len, &waits))
        return out_of_order(type);
    if (!waits)
        snprintf(w->why, sizeof(w->why), "the members have not agreed on a lead yet");
    return waits ? take_job(w, deadline) : VB_AGAIN;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Calls one address. VB_AGAIN: another address, or the same one later, may be right. */
static vb_status call_one(struct vb_caller *w, const struct sock_addr *at, uint64_t deadline,
                          bool *listens_p)
{
    struct wire_call call = {
        .version = WIRE_VERSION, .kind = WIRE_JOIN, .rank = WIRE_NO_RANK, .to = WIRE_NO_RANK};
    uint64_t now = vb_clock_ns(), soon = now + CONNECT_NS;
    unsigned char key[AUTH_KEY_BYTES];
    char text[SOCK_TEXT];
    vb_status st;

    vb_sock_text(at, text);
    if (vb_sock_connect_once(at, soon < deadline ? soon : deadline, &w->fd) != VB_OK) {
        snprintf(w->why, sizeof(w->why), "%s: %s", text, strerror(errno));
        return VB_AGAIN;
    }
    *listens_p = true;
    soon = now + CONNECT_NS + (uint64_t)(ANSWER_NS * w->patience);
    soon = soon < deadline ? soon : deadline;
    vb_auth_random(call.nonce, sizeof(call.nonce));
    snprintf(w->why, sizeof(w->why), "%s: the members are busy, or the job begins", text);
    st = vb_handshake_call(w->fd, &call, w->opts.secret, soon, key);
    if (st == VB_OK) {
        vb_auth_session(&w->session, key, AUTH_CALLER);
        st = take_answer(w, soon);
    }
    explicit_bzero(key, sizeof(key));
    if (st != VB_OK)
        hang_up(w);
    return st == VB_ERR_PEER || st == VB_ERR_TIMEOUT || st == VB_ERR_IO ? VB_AGAIN : st;
}

/* Calls all addresses once. Returns VB_AGAIN unless none can be right any more. */
static vb_status call_round(struct vb_caller *w, uint64_t deadline, bool *listens_p)
{
    const struct call_list *lists[] = {&w->told, &w->given};
    char doors[VB_DOORS_TEXT];
    vb_status st, refused = VB_OK;
    bool again = false;
    int l, i;

    for (l = 0; l < 2; l++)
        for (i = 0; i < lists[l]->n && vb_clock_ns() < deadline; i++) {
            memcpy(doors, w->doors, sizeof(doors));
            st = call_one(w, &lists[l]->at[i], deadline, listens_p);
            if (st == VB_OK)
                return VB_OK;
            if (strcmp(doors, w->doors) != 0)
                return VB_AGAIN; /* a member has told where the lead is */
            again = again || st == VB_AGAIN;
            refused = st != VB_AGAIN ? st : refused;
        }
    return again || refused == VB_OK ? VB_AGAIN : refused;
}

static vb_status say_nobody(const struct vb_caller *w)
{
    vb_status st;

    if (w->met)
        return vb_err(VB_ERR_PEER,
                      "the job is gone: it has ended, or this process knows the addresses of no "
                      "member that is left (%s)",
                      w->why);
    st = vb_err(VB_ERR_PEER, "no job listens at %s (%s)", w->opts.root, w->why);
    vb_log_fix(
        "grep -A3 '\"join\"' RUN/run.json   # the addresses of the job, if it has a run folder");
    return st;
}

vb_status vb_call_members(struct vb_caller *w, uint64_t deadline)
{
    uint64_t heard = vb_clock_ns(), now;
    int pause = PAUSE_MIN_MS;
    bool listens;
    vb_status st;

    for (;;) {
        listens = false;
        st = call_round(w, deadline, &listens);
        if (st != VB_AGAIN)
            return st;
        now = vb_clock_ns();
        heard = listens ? now : heard;
        if (now >= heard + (uint64_t)((double)(w->met ? GONE_NS : NOBODY_NS) * w->patience))
            return say_nobody(w);
        if (now >= deadline)
            return vb_err(VB_ERR_TIMEOUT, "this process could not join in time (--timeout): %s",
                          w->why);
        (void)poll(NULL, 0, pause);
        pause = pause < PAUSE_MAX_MS ? 2 * pause : pause;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static vb_status turned_away(struct vb_caller *w, uint32_t len)
{
    uint32_t i;

    for (i = 0; i < len; i++)
        if (w->frame[i] < ' ' || w->frame[i] > '~')
            w->frame[i] = '?';
    return vb_err(VB_ERR_ACCESS, "cannot join: %.*s", (int)len, (const char *)w->frame);
}

/* Waits at the lead. VB_AGAIN: it is gone or silent. */
static vb_status wait_here(struct vb_caller *w, uint64_t deadline, struct vb_invitation *inv_p)
{
    unsigned char ready[AUTH_FRAME_ROOM(0)];
    size_t n = vb_auth_frame(&w->session.out, WIRE_READY, NULL, 0, ready);
    vb_status st = vb_sock_write(w->fd, ready, n, deadline);
    uint64_t silent;
    uint16_t type = WIRE_DOORS;
    uint32_t len = 0;
    bool waits;

    while (st == VB_OK && type == WIRE_DOORS) {
        silent = vb_clock_ns() + (uint64_t)(ANSWER_NS * w->patience);
        st = read_frame(w, silent < deadline ? silent : deadline, &type, &len);
        if (st == VB_OK && type == WIRE_DOORS && !take_doors(w, len, &waits))
            return out_of_order(type);
    }
    if (st == VB_OK && type == WIRE_AWAY)
        return turned_away(w, len);
    if (st == VB_OK && (type != WIRE_INVITE || !vb_wire_invite_decode(w->frame, inv_p)))
        return out_of_order(type);
    return st == VB_ERR_PEER || st == VB_ERR_TIMEOUT || st == VB_ERR_IO ? VB_AGAIN : st;
}

vb_status vb_call_wait(struct vb_caller *w, uint64_t deadline, struct vb_invitation *inv_p)
{
    vb_status st = VB_OK;

    w->invited = false;
    do {
        if (w->fd < 0)
            st = vb_call_members(w, deadline);
        if (st == VB_OK)
            st = wait_here(w, deadline, inv_p);
        hang_up(w);
    } while (st == VB_AGAIN && vb_clock_ns() < deadline);
    if (st == VB_AGAIN)
        return vb_err(VB_ERR_TIMEOUT,
                      "the job has not formed a group with this process in time; it does so "
                      "between two steps (--timeout)");
    w->invited = st == VB_OK;
    return st;
}
