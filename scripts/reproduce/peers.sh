# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# TensorFlow and PyTorch, where an interpreter of this machine, or one that VB_PYTHON names, has them.

# shellcheck source=/dev/null
. "$here/../bench/python.sh"

experiments_peers() {
    ! tensorflow_is_there || experiment tensorflow 800 220 "softmax: TensorFlow with a parameter server and with allreduce"
    ! torch_is_there || experiment pytorch 200 40 "softmax: PyTorch's DDP over Gloo"
}

tensorflow_is_there() { python_with tensorflow >/dev/null; }
torch_is_there() { python_with torch numpy >/dev/null; }

run_tensorflow() {
    [[ $mnist != mnist:* ]] || export VB_MNIST=${mnist#mnist:}
    keep tensorflow 2400 "$here/../bench/compare" tensorflow "$(choose 3 1)" # 8 runs of about 25 s a round
}
run_pytorch() { keep pytorch 1200 "$here/../bench/compare" sync --only softmax "$(choose 5 1)"; }

write_peers() {
    local lines
    lines=$(cat "$out"/runs/tensorflow.jsonl "$out"/runs/pytorch.jsonl 2>/dev/null)
    [ -n "$lines" ] || return 0
    printf '## Other programs on this machine\n\n'
    printf 'Ours and theirs alternately, two workers on %s cores: `bench/compare tensorflow`, `bench/compare sync`.\n\n```\n' "$(nproc)"
    printf '%s\n```\n\n' "$lines"
}
