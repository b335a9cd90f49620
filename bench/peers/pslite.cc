/* SPDX-License-Identifier: MIT
 *
 * pslite BYTES KEYS SECONDS: pushes, pulls and both by ps-lite, measured as verbena bench ps does:
 * one at a time by each worker, the median. KEYS 0 means dense: one key has all the bytes. The
 * scheduler, the servers and the workers are all this program; DMLC_ROLE selects the role.
 *
 * Workers print lines "OP BYTES KEYS TIME_US".
 *
 * Newer ps-lite can push and pull in one message (PSLITE_BOTH; bench/compare checks for it). Other
 * versions, such as BytePS's, get a push and, without waiting for its reply, a pull: servers handle
 * the messages of a worker in order. "push,pull" sends the pull after the reply to the push.
 */
#include "ps/ps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

using Clock = std::chrono::steady_clock;

static std::unordered_map<ps::Key, std::vector<float>> store;

static ps::SArray<float> room_for(size_t n)
{
    ps::SArray<float> room;

    room.reset(new float[n], n, [](float *p) { delete[] p; }); /* resize() would fill it first */
    return room;
}

static void add(const ps::KVPairs<float> &data)
{
    size_t each = data.keys.empty() ? 0 : data.vals.size() / data.keys.size();
    const float *from = data.vals.data();

    for (size_t i = 0; i < data.keys.size(); i++, from += each) {
        std::vector<float> &have = store[data.keys[i]];

        if (have.size() < each)
            have.resize(each);
        for (size_t j = 0; j < each; j++)
            have[j] += from[j];
    }
}

static void fetch(const ps::SArray<ps::Key> &keys, ps::KVPairs<float> *out)
{
    std::vector<const std::vector<float> *> found(keys.size());
    size_t n = 0;

    for (size_t i = 0; i < keys.size(); i++) {
        found[i] = &store[keys[i]];
        n += found[i]->size();
    }
    out->keys = keys;
    out->vals = room_for(n);
    n = 0;
    for (const std::vector<float> *have : found) {
        std::copy(have->begin(), have->end(), out->vals.data() + n);
        n += have->size();
    }
}

/* Adds what is pushed, then answers what is pulled. All keys have the same number of values. */
static void handle(const ps::KVMeta &meta, const ps::KVPairs<float> &data,
                   ps::KVServer<float> *server)
{
    ps::KVPairs<float> out;
#ifdef PSLITE_BOTH
    bool pull = meta.pull;
#else
    bool pull = !meta.push;
#endif

    if (meta.push)
        add(data);
    if (pull)
        fetch(data.keys, &out);
    server->Response(meta, out);
}

template <typename Op> static void measure(const char *name, long bytes, long keys, double s, Op op)
{
    std::vector<double> us;
    Clock::time_point begin, before;

    for (int i = 0; i < 20; i++)
        op();
    begin = Clock::now();
    do {
        before = Clock::now();
        op();
        us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < s);
    std::sort(us.begin(), us.end());
    std::printf("%s %ld %ld %.3f\n", name, bytes, keys, us[us.size() / 2]);
}

static void both(ps::KVWorker<float> &kv, const ps::SArray<ps::Key> &key,
                 const ps::SArray<float> &vals, ps::SArray<float> *back)
{
#ifdef PSLITE_BOTH
    kv.Wait(kv.ZPushPull(key, vals, back));
#else
    int push = kv.ZPush(key, vals), pull = kv.ZPull(key, back);

    kv.Wait(push);
    kv.Wait(pull);
#endif
}

/* Without copies on the worker's side. */
static void work(long bytes, long keys, double seconds)
{
    ps::KVWorker<float> kv(0, 0);
    size_t n = keys > 0 ? (size_t)keys : 1, values = (size_t)bytes / sizeof(float);
    ps::SArray<ps::Key> key(n);
    ps::SArray<float> vals(values, 1), back(values, 0);

    for (size_t i = 0; i < n; i++)
        key[i] = ps::kMaxKey / n * i;
    measure("push", bytes, keys, seconds, [&] { kv.Wait(kv.ZPush(key, vals)); });
    measure("pull", bytes, keys, seconds, [&] { kv.Wait(kv.ZPull(key, &back)); });
    measure("push,pull", bytes, keys, seconds, [&] {
        kv.Wait(kv.ZPush(key, vals));
        kv.Wait(kv.ZPull(key, &back));
    });
    measure("push+pull", bytes, keys, seconds, [&] { both(kv, key, vals, &back); });
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    ps::Start(0);
    if (ps::IsServer()) {
        auto *server = new ps::KVServer<float>(0);

        server->set_request_handle(handle);
        ps::RegisterExitCallback([server] { delete server; });
    }
    if (ps::IsWorker())
        work(std::atol(argv[1]), std::atol(argv[2]), std::atof(argv[3]));
    ps::Finalize(0, true);
    return 0;
}
