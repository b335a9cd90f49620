/* SPDX-License-Identifier: MIT
 *
 * Pushes, pulls and both by ps-lite, timed as verbena bench ps does: one at a time by each worker,
 * the median. Its scheduler, servers and workers are this program, told apart by DMLC_ROLE:
 *
 *   pslite BYTES KEYS SECONDS      KEYS 0: dense, one key that has all the bytes
 *
 * Workers print lines "OP BYTES KEYS TIME_US".
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

/* Adds what is pushed; a key has as many values as came with it. */
static void handle(const ps::KVMeta &meta, const ps::KVPairs<float> &data,
                   ps::KVServer<float> *server)
{
    ps::KVPairs<float> out;
    size_t each = meta.push && !data.keys.empty() ? data.vals.size() / data.keys.size() : 0;

    out.keys = meta.push ? out.keys : data.keys;
    for (size_t i = 0; i < data.keys.size(); i++) {
        std::vector<float> &have = store[data.keys[i]];

        have.resize(std::max(have.size(), each));
        for (size_t j = 0; j < each; j++)
            have[j] += data.vals[i * each + j];
        if (!meta.push) {
            out.lens.push_back((int)have.size());
            for (float v : have)
                out.vals.push_back(v);
        }
    }
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

static void work(long bytes, long keys, double seconds)
{
    ps::KVWorker<float> kv(0, 0);
    size_t n = keys > 0 ? (size_t)keys : 1, values = (size_t)bytes / sizeof(float);
    std::vector<ps::Key> key(n);
    std::vector<float> vals(values, 1), back;
    std::vector<int> lens(n, (int)(values / n)), back_lens;

    for (size_t i = 0; i < n; i++)
        key[i] = ps::kMaxKey / n * i;
    auto push = [&] { kv.Wait(kv.Push(key, vals, lens)); };
    auto pull = [&] { kv.Wait(kv.Pull(key, &back, &back_lens)); };

    measure("push", bytes, keys, seconds, push);
    measure("pull", bytes, keys, seconds, pull);
    measure("push+pull", bytes, keys, seconds, [&] {
        push();
        pull();
    });
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
