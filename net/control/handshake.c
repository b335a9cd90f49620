/* SPDX-License-Identifier: MIT */
#include "net/control/handshake.h"
#include "net/control/sock.h"

#include <poll.h>
#include <string.h>

#define PATIENT_NS (10ull * 1000 * 1000 * 1000)

static vb_status refused(int fd, const char *why)
{
    char peer[SOCK_TEXT];

    vb_sock_peer_text(fd, peer);
    return vb_err(VB_ERR_ACCESS, "%s refused this rank: %s", peer, why);
}

static vb_status refused_for(int fd, uint32_t verdict)
{
    vb_status st = refused(fd, vb_wire_verdict_str(verdict));

    if (verdict == WIRE_BAD_SECRET)
        vb_log_fix("sha256sum FILE   # on both hosts: the file of --secret-file must be the same");
    else if (verdict == WIRE_BAD_VERSION)
        vb_log_fix("sha256sum \"$(command -v verbena)\"   # on both hosts: copy one to the other");
    return st;
}

/* A proof of zeros tells the listener that the secrets differ: it cannot know otherwise. */
static void say_bad_secret(int fd, uint64_t deadline)
{
    unsigned char zeros[WIRE_PROOF] = {0}, verdict[WIRE_VERDICT_BYTES];

    if (vb_sock_write(fd, zeros, sizeof(zeros), deadline) == VB_OK)
        (void)vb_sock_read(fd, verdict, sizeof(verdict), deadline); /* before the caller closes */
}

static vb_status check_answer(int fd, const struct wire_call *call,
                              const unsigned char key[AUTH_KEY_BYTES],
                              const unsigned char *call_bytes, const unsigned char *answer_bytes,
                              uint64_t deadline)
{
    unsigned char proof[WIRE_PROOF];
    struct wire_answer answer;

    if (!vb_wire_answer_decode(answer_bytes, &answer))
        return refused(fd, "the process at this address is not a Verbena program");
    if (answer.verdict == WIRE_BUSY)
        return VB_AGAIN; /* not a failure: another rank is joining */
    if (answer.verdict != WIRE_WELCOME)
        return refused_for(fd, answer.verdict);
    if (answer.version != WIRE_VERSION)
        return refused_for(fd, WIRE_BAD_VERSION);
    vb_auth_handshake(AUTH_SERVER, key, call_bytes, answer_bytes, proof);
    if (!vb_auth_equal(proof, answer.proof)) {
        say_bad_secret(fd, deadline);
        return refused_for(fd, WIRE_BAD_SECRET);
    }
    if ((answer.rank != call->to && call->to != WIRE_NO_RANK) || answer.epoch != call->epoch)
        return refused(fd, vb_wire_verdict_str(WIRE_BAD_RANK));
    return VB_OK;
}

#define NAME_TEXT 24

/* A joiner may not know which rank it calls. */
static void called(const struct wire_call *call, char name[NAME_TEXT])
{
    if (call->to == WIRE_NO_RANK)
        snprintf(name, NAME_TEXT, "the job");
    else
        snprintf(name, NAME_TEXT, "rank %u", call->to);
}

/* The kernel accepts connections for a process that does not run. Says so from time to time. */
static vb_status read_answer(int fd, const struct wire_call *call, const char *peer,
                             unsigned char *answer_bytes, uint64_t deadline)
{
    uint64_t since = vb_clock_ns(), pause = PATIENT_NS, say = since + pause;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char name[NAME_TEXT];

    while (say < deadline && poll(&wait, 1, vb_sock_ms_left(say, 60000)) <= 0) {
        if (vb_clock_ns() < say)
            continue;
        called(call, name);
        VB_LOG_WARN("%s at %s has accepted the connection but not answered for %.0f s: see "
                    "whether its process is stopped or its host is overloaded",
                    name, peer, (double)(vb_clock_ns() - since) / 1e9);
        pause *= 2;
        say += pause;
    }
    return vb_sock_read(fd, answer_bytes, WIRE_ANSWER_BYTES, deadline);
}

static vb_status say_proof(int fd, const unsigned char *proof, uint64_t deadline)
{
    unsigned char verdict[WIRE_VERDICT_BYTES];
    vb_status st = vb_sock_write(fd, proof, WIRE_PROOF, deadline);

    if (st == VB_OK)
        st = vb_sock_read(fd, verdict, sizeof(verdict), deadline);
    if (st == VB_OK && vb_wire_u32_decode(verdict) != WIRE_WELCOME)
        return refused_for(fd, vb_wire_u32_decode(verdict));
    return st;
}

vb_status vb_handshake_call(int fd, const struct wire_call *call,
                            const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline,
                            unsigned char session_p[AUTH_KEY_BYTES])
{
    unsigned char call_bytes[WIRE_CALL_BYTES], answer_bytes[WIRE_ANSWER_BYTES], proof[WIRE_PROOF];
    char peer[SOCK_TEXT], name[NAME_TEXT];
    vb_status st;

    vb_sock_peer_text(fd, peer); /* asked first, because a broken connection has no peer address */
    vb_wire_call_encode(call, call_bytes);
    st = vb_sock_write(fd, call_bytes, WIRE_CALL_BYTES, deadline);
    if (st == VB_OK)
        st = read_answer(fd, call, peer, answer_bytes, deadline);
    if (st != VB_OK)
        goto err_peer;
    st = check_answer(fd, call, key, call_bytes, answer_bytes, deadline);
    if (st != VB_OK)
        return st;
    vb_auth_handshake(AUTH_CLIENT, key, call_bytes, answer_bytes, proof);
    st = say_proof(fd, proof, deadline);
    if (st == VB_ERR_ACCESS)
        return st;
    if (st != VB_OK)
        goto err_peer;
    vb_auth_handshake(AUTH_SESSION, key, call_bytes, answer_bytes, session_p);
    return VB_OK;

err_peer:
    if (st == VB_ERR_PEER)
        return st;
    called(call, name);
    return vb_err(st, "the handshake with %s at %s failed: %s", name, peer, vb_status_str(st));
}

void vb_handshake_init(struct handshake *hs, uint32_t rank, uint32_t epoch)
{
    memset(hs, 0, sizeof(*hs));
    hs->rank = rank;
    hs->epoch = epoch;
}

size_t vb_handshake_wants(const struct handshake *hs)
{
    if (hs->state == HANDSHAKE_CALL)
        return WIRE_CALL_BYTES - hs->have;
    return hs->state == HANDSHAKE_PROOF ? WIRE_PROOF - hs->have : 0;
}

static enum wire_verdict judge_call(struct handshake *hs, handshake_judge_fn judge, void *arg,
                                    unsigned char key[AUTH_KEY_BYTES])
{
    enum wire_verdict verdict;

    if (hs->call.version != WIRE_VERSION)
        return WIRE_BAD_VERSION;
    if (hs->call.to != hs->rank && (hs->call.kind != WIRE_JOIN || hs->call.to != WIRE_NO_RANK))
        return WIRE_BAD_RANK;
    verdict = judge(arg, &hs->call, key, &hs->epoch);
    return verdict == WIRE_WELCOME && hs->call.epoch != hs->epoch ? WIRE_BAD_EPOCH : verdict;
}

static size_t answer_call(struct handshake *hs, handshake_judge_fn judge, void *arg,
                          unsigned char *out)
{
    struct wire_answer answer = {.version = WIRE_VERSION, .rank = hs->rank, .caps = 0};
    unsigned char key[AUTH_KEY_BYTES] = {0};

    memcpy(hs->call_bytes, hs->in, WIRE_CALL_BYTES);
    hs->have = 0;
    if (!vb_wire_call_decode(hs->call_bytes, &hs->call)) {
        hs->garbage = true;
        hs->state = HANDSHAKE_REFUSED;
        return 0; /* the caller would not understand an answer */
    }
    hs->verdict = judge_call(hs, judge, arg, key);
    answer.verdict = (uint16_t)hs->verdict;
    answer.epoch = hs->epoch;
    if (hs->verdict == WIRE_WELCOME)
        vb_auth_random(answer.nonce, sizeof(answer.nonce));
    vb_wire_answer_encode(&answer, hs->answer_bytes);
    hs->state = HANDSHAKE_REFUSED;
    if (hs->verdict == WIRE_WELCOME) {
        vb_auth_handshake(AUTH_SERVER, key, hs->call_bytes, hs->answer_bytes, answer.proof);
        vb_wire_answer_encode(&answer, hs->answer_bytes);
        vb_auth_handshake(AUTH_CLIENT, key, hs->call_bytes, hs->answer_bytes, hs->expected);
        vb_auth_handshake(AUTH_SESSION, key, hs->call_bytes, hs->answer_bytes, hs->session);
        hs->state = HANDSHAKE_PROOF;
    }
    explicit_bzero(key, sizeof(key));
    memcpy(out, hs->answer_bytes, WIRE_ANSWER_BYTES);
    return WIRE_ANSWER_BYTES;
}

static size_t judge_proof(struct handshake *hs, unsigned char *out)
{
    bool good = vb_auth_equal(hs->in, hs->expected);

    hs->verdict = good ? WIRE_WELCOME : WIRE_BAD_SECRET;
    hs->state = good ? HANDSHAKE_DONE : HANDSHAKE_REFUSED;
    vb_wire_u32_encode(hs->verdict, out);
    return WIRE_VERDICT_BYTES;
}

size_t vb_handshake_feed(struct handshake *hs, const unsigned char *data, size_t len_bytes,
                         handshake_judge_fn judge, void *arg, unsigned char out[WIRE_ANSWER_BYTES])
{
    size_t wants = vb_handshake_wants(hs);

    if (len_bytes > wants)
        len_bytes = wants;
    memcpy(hs->in + hs->have, data, len_bytes);
    hs->have += len_bytes;
    if (vb_handshake_wants(hs) > 0 || wants == 0)
        return 0;
    if (hs->state == HANDSHAKE_CALL)
        return answer_call(hs, judge, arg, out);
    return judge_proof(hs, out);
}
