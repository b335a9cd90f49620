/* SPDX-License-Identifier: MIT */
#include "net/control/auth.h"

#include <sodium.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(crypto_auth_KEYBYTES == AUTH_KEY_BYTES, "keys");
_Static_assert(crypto_auth_BYTES == WIRE_PROOF, "proofs");
_Static_assert(crypto_secretbox_KEYBYTES == AUTH_KEY_BYTES, "session keys");
_Static_assert(crypto_generichash_BYTES_MIN <= WIRE_TAG, "tags");
_Static_assert(crypto_generichash_KEYBYTES == AUTH_KEY_BYTES, "keys of frames");
_Static_assert(crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + AUTH_KEY_BYTES ==
                   AUTH_SEALED_BYTES,
               "sealed keys");

vb_status vb_auth_init(void)
{
    if (sodium_init() < 0)
        return vb_err(VB_ERR_UNSUPPORTED, "libsodium found no source of random numbers");
    return VB_OK;
}

const char *vb_net_crypto_library(void)
{
    return "libsodium " SODIUM_VERSION_STRING;
}

void vb_auth_random(void *out, size_t len_bytes)
{
    randombytes_buf(out, len_bytes);
}

void vb_auth_code(const unsigned char key[AUTH_KEY_BYTES], const char label[16],
                  const void *message, size_t len_bytes, unsigned char code[WIRE_PROOF])
{
    unsigned char labelled[16 + AUTH_MESSAGE_MAX];

    VB_ASSERT(len_bytes <= AUTH_MESSAGE_MAX);
    memcpy(labelled, label, 16);
    if (len_bytes > 0)
        memcpy(labelled + 16, message, len_bytes);
    crypto_auth(code, labelled, 16 + len_bytes, key);
}

void vb_auth_handshake(enum auth_code what, const unsigned char key[AUTH_KEY_BYTES],
                       const unsigned char call[WIRE_CALL_BYTES],
                       const unsigned char answer[WIRE_ANSWER_BYTES], unsigned char out[WIRE_PROOF])
{
    static const char *const labels[] = {[AUTH_SERVER] = "verbena server 1",
                                         [AUTH_CLIENT] = "verbena client 1",
                                         [AUTH_SESSION] = "verbena session1"};
    unsigned char message[WIRE_CALL_BYTES + WIRE_ANSWER_BYTES];
    size_t len = sizeof(message);

    memcpy(message, call, WIRE_CALL_BYTES);
    memcpy(message + WIRE_CALL_BYTES, answer, WIRE_ANSWER_BYTES);
    if (what == AUTH_SERVER)
        len -= WIRE_PROOF; /* the proof itself is the last field of the answer */
    vb_auth_code(key, labels[what], message, len, out);
}

bool vb_auth_equal(const unsigned char a[WIRE_PROOF], const unsigned char b[WIRE_PROOF])
{
    return sodium_memcmp(a, b, WIRE_PROOF) == 0;
}

/* ---- frames ---------------------------------------------------------------------------------- */

#define FAR 256 /* how many tags before and after the expected one vb_auth_check() compares */

void vb_auth_session(struct auth_session *session, const unsigned char key[AUTH_KEY_BYTES],
                     enum auth_side side)
{
    struct auth_chain *caller = side == AUTH_CALLER ? &session->out : &session->in;
    struct auth_chain *listener = side == AUTH_CALLER ? &session->in : &session->out;

    memcpy(session->key, key, AUTH_KEY_BYTES);
    vb_auth_code(key, "verbena frames c", NULL, 0, caller->key);
    vb_auth_code(key, "verbena frames l", NULL, 0, listener->key);
    caller->count = listener->count = 0;
}

/* Keyed BLAKE2b, because a beat is one short message and HMAC would hash it twice. 16 bytes are
 * enough: only the holder of the key can test a guess, and the first wrong one ends the connection.
 */
static void make_tag(const unsigned char key[AUTH_KEY_BYTES], uint64_t number,
                     const unsigned char head[WIRE_FRAME_HEAD], const void *payload,
                     size_t len_bytes, unsigned char tag[WIRE_TAG])
{
    unsigned char first[8 + WIRE_FRAME_HEAD];
    crypto_generichash_state state;

    vb_wire_u64_encode(number, first);
    memcpy(first + 8, head, WIRE_FRAME_HEAD);
    crypto_generichash_init(&state, key, AUTH_KEY_BYTES, WIRE_TAG);
    crypto_generichash_update(&state, first, sizeof(first));
    if (len_bytes > 0)
        crypto_generichash_update(&state, payload, len_bytes);
    crypto_generichash_final(&state, tag, WIRE_TAG);
}

size_t vb_auth_frame(struct auth_chain *chain, uint16_t type, const void *payload, size_t len_bytes,
                     unsigned char *out)
{
    unsigned char *at = out + WIRE_FRAME_HEAD;

    vb_wire_frame_encode((uint32_t)len_bytes, type, out);
    if (vb_wire_length_varies(type)) {
        make_tag(chain->key, chain->count++, out, NULL, 0, at);
        at += WIRE_TAG;
    }
    if (len_bytes > 0)
        memcpy(at, payload, len_bytes);
    make_tag(chain->key, chain->count++, out, payload, len_bytes, at + len_bytes);
    return (size_t)(at + len_bytes + WIRE_TAG - out);
}

static bool tag_has_number(const struct auth_chain *chain, uint64_t number,
                           const unsigned char head[WIRE_FRAME_HEAD], const void *payload,
                           size_t len_bytes, const unsigned char tag[WIRE_TAG])
{
    unsigned char right[WIRE_TAG];

    make_tag(chain->key, number, head, payload, len_bytes, right);
    return sodium_memcmp(right, tag, WIRE_TAG) == 0;
}

#define NOT_AUTHENTIC "a control frame is not authentic: "
#define CHECK_PATH "; check what lies between the two hosts"

const char *vb_auth_check(struct auth_session *session, const unsigned char head[WIRE_FRAME_HEAD],
                          const void *payload, size_t len_bytes, const unsigned char tag[WIRE_TAG])
{
    uint64_t n, now = session->in.count, own = session->out.count;

    if (tag_has_number(&session->in, now, head, payload, len_bytes, tag)) {
        session->in.count++;
        return NULL;
    }
    for (n = 1; n <= FAR; n++) { /* the connection ends, so this may take a moment */
        if (n <= now && tag_has_number(&session->in, now - n, head, payload, len_bytes, tag))
            return NOT_AUTHENTIC "it was sent before and came again" CHECK_PATH;
        if (tag_has_number(&session->in, now + n, head, payload, len_bytes, tag))
            return NOT_AUTHENTIC "frames that were sent before it did not come" CHECK_PATH;
        if (n <= own && tag_has_number(&session->out, own - n, head, payload, len_bytes, tag))
            return NOT_AUTHENTIC "this rank sent it, and it came back" CHECK_PATH;
    }
    return NOT_AUTHENTIC "it was injected, or damaged on the way" CHECK_PATH;
}

/* ---- keys ------------------------------------------------------------------------------------ */

#define SEAL_LABEL "verbena seal   1" /* the session key itself only derives other keys */

void vb_auth_seal(const unsigned char session[AUTH_KEY_BYTES],
                  const unsigned char key[AUTH_KEY_BYTES], unsigned char sealed[AUTH_SEALED_BYTES])
{
    unsigned char with[AUTH_KEY_BYTES];

    vb_auth_code(session, SEAL_LABEL, NULL, 0, with);
    randombytes_buf(sealed, crypto_secretbox_NONCEBYTES);
    crypto_secretbox_easy(sealed + crypto_secretbox_NONCEBYTES, key, AUTH_KEY_BYTES, sealed, with);
    explicit_bzero(with, sizeof(with));
}

bool vb_auth_unseal(const unsigned char session[AUTH_KEY_BYTES],
                    const unsigned char sealed[AUTH_SEALED_BYTES],
                    unsigned char key[AUTH_KEY_BYTES])
{
    unsigned char with[AUTH_KEY_BYTES];
    bool opened;

    vb_auth_code(session, SEAL_LABEL, NULL, 0, with);
    opened = crypto_secretbox_open_easy(key, sealed + crypto_secretbox_NONCEBYTES,
                                        AUTH_SEALED_BYTES - crypto_secretbox_NONCEBYTES, sealed,
                                        with) == 0;
    explicit_bzero(with, sizeof(with));
    return opened;
}

unsigned char *vb_secret_alloc(void)
{
    unsigned char *secret = vb_auth_init() == VB_OK ? sodium_malloc(VB_SECRET_BYTES) : NULL;

    if (secret != NULL) {
        /* libsodium does so too, but not in every version, nor if it was built without mlock() */
        (void)madvise(secret - (uintptr_t)secret % (uintptr_t)sysconf(_SC_PAGESIZE),
                      VB_SECRET_BYTES, MADV_DONTDUMP);
        memset(secret, 0, VB_SECRET_BYTES);
    } else {
        (void)vb_err_sys("no memory for the secret");
    }
    return secret;
}

void vb_secret_free(unsigned char *secret)
{
    sodium_free(secret);
}

vb_status vb_secret_make(unsigned char secret[VB_SECRET_BYTES])
{
    vb_status st = vb_auth_init();

    if (st == VB_OK)
        vb_auth_random(secret, VB_SECRET_BYTES);
    return st;
}

vb_status vb_secret_derive(const unsigned char secret[VB_SECRET_BYTES], const char label[16],
                           const char *text, unsigned char derived[VB_SECRET_BYTES])
{
    vb_status st = vb_auth_init();

    if (st == VB_OK)
        vb_auth_code(secret, label, text, strlen(text), derived);
    return st;
}

vb_status vb_secret_of_run(unsigned char secret[VB_SECRET_BYTES], const char *run_id)
{
    unsigned char own[VB_SECRET_BYTES];
    vb_status st;

    if (run_id == NULL)
        return VB_OK;
    if (strlen(run_id) > VB_DERIVE_MAX)
        return vb_err(VB_ERR_USAGE, "--run-id may have %d bytes at most", VB_DERIVE_MAX);
    st = vb_secret_derive(secret, "verbena job    1", run_id, own);
    if (st == VB_OK)
        memcpy(secret, own, sizeof(own));
    explicit_bzero(own, sizeof(own));
    return st;
}

_Static_assert(crypto_box_PUBLICKEYBYTES == 32 && crypto_box_SECRETKEYBYTES == 32, "boxes");
_Static_assert(2 * (crypto_box_SEALBYTES + VB_SECRET_BYTES) + 1 == VB_SEALED_TEXT, "seals");

vb_status vb_box_make(struct vb_box *box_p, char lid[VB_LID_TEXT])
{
    vb_status st = vb_auth_init();

    if (st != VB_OK)
        return st;
    crypto_box_keypair(box_p->lid, box_p->key);
    sodium_bin2hex(lid, VB_LID_TEXT, box_p->lid, sizeof(box_p->lid));
    return VB_OK;
}

vb_status vb_secret_seal(const unsigned char secret[VB_SECRET_BYTES], const char *lid,
                         char sealed[VB_SEALED_TEXT])
{
    unsigned char to[32], bytes[crypto_box_SEALBYTES + VB_SECRET_BYTES];
    size_t n = 0;
    vb_status st = vb_auth_init();

    if (st != VB_OK)
        return st;
    if (sodium_hex2bin(to, sizeof(to), lid, strlen(lid), NULL, &n, NULL) != 0 || n != sizeof(to) ||
        crypto_box_seal(bytes, secret, VB_SECRET_BYTES, to) != 0)
        return vb_err(VB_ERR_INPUT, "\"%.80s\" is not a public key", lid);
    sodium_bin2hex(sealed, VB_SEALED_TEXT, bytes, sizeof(bytes));
    return VB_OK;
}

vb_status vb_secret_unseal(const struct vb_box *box, const char *sealed,
                           unsigned char secret[VB_SECRET_BYTES])
{
    unsigned char bytes[crypto_box_SEALBYTES + VB_SECRET_BYTES];
    size_t n = 0;

    if (sodium_hex2bin(bytes, sizeof(bytes), sealed, strlen(sealed), NULL, &n, NULL) != 0 ||
        n != sizeof(bytes) ||
        crypto_box_seal_open(secret, bytes, sizeof(bytes), box->lid, box->key) != 0)
        return vb_err(VB_ERR_ACCESS,
                      "the secret that rank 0 has sealed was not sealed for this rank");
    return VB_OK;
}

static bool hex_secret(const char *text, unsigned char secret[VB_SECRET_BYTES])
{
    size_t len = strcspn(text, "\r\n"), n = 0;

    return len == 2 * VB_SECRET_BYTES && text[len + strspn(text + len, "\r\n")] == '\0' &&
           sodium_hex2bin(secret, VB_SECRET_BYTES, text, len, NULL, &n, NULL) == 0 &&
           n == VB_SECRET_BYTES;
}

vb_status vb_secret_parse(const char *text, unsigned char secret[VB_SECRET_BYTES])
{
    if (!hex_secret(text, secret))
        return vb_err(VB_ERR_USAGE, "the secret must be %d hexadecimal digits",
                      2 * VB_SECRET_BYTES);
    return VB_OK;
}

/* Whoever has the secret can join the job and write to its memory. */
static vb_status check_secret_file(int fd, const char *path)
{
    struct stat sb;

    if (fstat(fd, &sb) != 0)
        return vb_err_sys("stat %s", path);
    if (!S_ISREG(sb.st_mode))
        return vb_err(VB_ERR_INPUT, "%s is not a file", path);
    if (sb.st_uid != geteuid() && geteuid() != 0)
        return vb_err(VB_ERR_ACCESS, "the secret file %s belongs to a different user", path);
    if ((sb.st_mode & 0077) != 0)
        return vb_err(
            VB_ERR_ACCESS,
            "other users may read the secret file %s (mode %03o); to fix this, run: chmod 600 %s",
            path, (unsigned)(sb.st_mode & 0777), path);
    return VB_OK;
}

/* The file has the bytes themselves or their hexadecimal digits. */
static vb_status take_secret(int fd, const char *path, unsigned char secret[VB_SECRET_BYTES])
{
    char text[2 * VB_SECRET_BYTES + 8] = "";
    ssize_t n = read(fd, text, sizeof(text) - 1);

    if (n < 0)
        return vb_err_sys("read %s", path);
    if (n == VB_SECRET_BYTES) {
        memcpy(secret, text, VB_SECRET_BYTES);
        explicit_bzero(text, sizeof(text));
        return VB_OK;
    }
    text[n] = '\0';
    if (!hex_secret(text, secret))
        return vb_err(VB_ERR_INPUT,
                      "%s has no secret: expected %d bytes, or twice as many hexadecimal digits",
                      path, VB_SECRET_BYTES);
    explicit_bzero(text, sizeof(text));
    return VB_OK;
}

vb_status vb_secret_read(const char *path, unsigned char secret[VB_SECRET_BYTES])
{
    vb_status st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return vb_err_sys("open %s", path);
    st = check_secret_file(fd, path);
    if (st == VB_OK)
        st = take_secret(fd, path, secret);
    close(fd);
    return st;
}

void vb_sha256(const void *data, size_t len_bytes, char hex[65])
{
    unsigned char hash[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(hash, data, len_bytes);
    sodium_bin2hex(hex, 65, hash, sizeof(hash));
}

_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof(struct vb_sha256_state),
               "the state of the library must fit");

void vb_sha256_begin(struct vb_sha256_state *state)
{
    crypto_hash_sha256_init((void *)state->words);
}

void vb_sha256_add(struct vb_sha256_state *state, const void *data, size_t len_bytes)
{
    crypto_hash_sha256_update((void *)state->words, data, len_bytes);
}

void vb_sha256_end(struct vb_sha256_state *state, char hex[65])
{
    unsigned char hash[crypto_hash_sha256_BYTES];

    crypto_hash_sha256_final((void *)state->words, hash);
    sodium_bin2hex(hex, 65, hash, sizeof(hash));
}
