#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the command verbena data. Usage: data.sh VERBENA
#
# Covers: cli/cmd_data.c cli/data_published.c data/look.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=data
tree=$PWD
cd "$dir" || exit 1

# holds FILTER ARGUMENTS...: runs data ARGUMENTS --json, and fails unless it prints one line that
# makes the jq filter true
holds() {
    local filter=$1
    shift
    quiet "$@" --json
    [ "$(wc -l <out)" = 1 ] || fail "data $*: expected one line of JSON"
    jq -e "$filter" >/dev/null <out || fail "data $*: condition is false: $filter in $(cat out)"
}

# ---- usage
refused 2 "the action is missing: use info SPEC" # nothing
refused 2 "unknown action inform" inform synth
refused 2 "info needs a SPEC" info
refused 2 "convert needs a SPEC and the file" convert synth
refused 2 "unknown data format" info cats
refused 2 "must be digits, cifar, imagenet or criteo" synth cats .
refused 2 "only digits and criteo" synth cifar .
refused 2 "--n is only for synth KIND OUT" info synth --n 7
refused 2 "--n is only for synth KIND OUT" convert synth:kind=criteo x.csr --n 7
refused 2 "--json cannot be used with digits" synth digits . --n 10 --json
refused 1 "absent" info csr:absent
refused 1 "the folder has no file train-images-idx3-ubyte" info mnist:.
refused 1 "no file matches" info 'tfrecord:*.none'
refused 2 "has images, not rows" convert synth:10 x.csr
head -c 3073 /dev/zero >image
refused 2 "cifar10 has images, not rows" convert cifar10:image x.csr
refused 1 "create absent/x.csr" convert synth:kind=criteo,n=10 absent/x.csr

# ---- converting files and reading them back
printf '+1 1:0.5 3:2\n-1 2:1\n+1\n' >rows
holds '.samples == 3 and .features == 3 and .nonzeros == 3 and .labels == [1, 2]
    and .value_min == 0.5 and .value_max == 2 and .row_min == 0 and .row_max == 2' info libsvm:rows
holds '.samples == 3 and .positive == 2' convert libsvm:rows rows.csr
holds '.samples == 3 and .features == 3 and .nonzeros == 3 and .labels == [1, 2]' info csr:rows.csr
holds '.features == 100' info libsvm:rows --features 100
refused 1 "rows: line 1: the index is larger than the given number of features: '3'" info libsvm:rows --features 2
head -c 100 rows.csr >cut.csr
refused 1 "cut.csr: offset 48: the file is not as long as its header says" info csr:cut.csr
mkfifo pipe train-labels-idx1-ubyte
refused 2 "write pipe: the path exists and is not a regular file" convert libsvm:rows pipe
refused 2 "write pipe: the path exists and is not a regular file" synth criteo pipe --n 1000000000
refused 2 "write ..: the path exists and is not a regular file" synth criteo .. --n 1000000000
refused 2 "train-labels-idx1-ubyte: the path exists and is not a regular file" synth digits . --n 10
if [ ! -p pipe ] || [ ! -p train-labels-idx1-ubyte ]; then fail "a file took the place of a pipe"; fi
[ -z "$(find . -name '*images*' -o -name '*.tmp')" ] || fail "something was written all the same"
rm pipe train-labels-idx1-ubyte
printf '1 1:1\n1 x\n' >broken
refused 1 "broken: line 2: an entry is not INDEX:VALUE" convert libsvm:broken broken.csr
[ -z "$(find . -name 'broken.csr*')" ] || fail "a failed conversion left a file behind"

"$verbena" data synth digits . --n 50 >/dev/null || fail "synth digits"
holds '.samples == 50 and .height == 28 and .channels == 1' info mnist:.
holds '.samples == 10' info mnist:. --part test
quiet synth digits new/folder --n 5
holds '.samples == 5' info mnist:new/folder
gzip train-images-idx3-ubyte
cp train-images-idx3-ubyte.gz whole.gz
echo garbage >>train-images-idx3-ubyte.gz
refused 1 "byte $(stat -c %s whole.gz) of the compressed file: garbage after the compressed data" info mnist:.
mv whole.gz train-images-idx3-ubyte.gz
holds '.samples == 50 and (.labels | add) == 50' info mnist:.
head -c 300 train-images-idx3-ubyte.gz >cut.gz && mv cut.gz train-images-idx3-ubyte.gz
refused 1 "the compressed data ends too early" info mnist:.

# ---- files with the names of published ones are compared with these
published() { # published TEXT ARGUMENTS...: data info ARGUMENTS must print TEXT in a line that begins with "published"
    local text=$1
    shift
    quiet info "$@"
    grep '^published' out | grep -qF "$text" || fail "info $*: no '$text' in: $(cat out)"
}
mkdir digits
"$verbena" data synth digits digits --n 50 >/dev/null || fail "synth digits"
published "digits/train-labels-idx1-ubyte differs from the published file (size 58, published 60008)" mnist:digits
holds '(.published | length) == 2 and all(.published[]; .matches == false and (.sha256 | length) == 64)
    and .published[0].bytes == 39216 and .published[0].published_bytes == 47040016' info mnist:digits
holds '.published == []' info libsvm:rows
for i in {1..11000}; do echo "+1 $i:0.123456789 $((i + 20000)):0.123456789"; done >agaricus.txt.test
published "agaricus.txt.test differs from the published file (longer than its 183611 bytes)" libsvm:agaricus.txt.test
holds '.published[0].matches == false and .published[0].bytes == null' info libsvm:agaricus.txt.test
head -c 3073 /dev/zero | gzip >test_batch.bin.gz
published "test_batch.bin.gz differs from the published file (size 3073, published 30730000)" cifar10:test_batch.bin.gz
head -c 30730000 /dev/zero >test_batch.bin
published "has the size of the published file, whose SHA-256 is not known" cifar10:test_batch.bin
holds '.published[0].matches == null and .published[0].published_sha256 == null' info cifar10:test_batch.bin
rm test_batch.bin*
real=${VERBENA_TEST_DATA:-$tree/../shared/data}
if [ -d "$real/mnist" ] && [ -d "$real/a9a" ]; then
    published "train-images-idx3-ubyte.gz matches the published file" "mnist:$real/mnist"
    holds '(.published | length) == 2 and all(.published[]; .matches)' info "mnist:$real/mnist" --part test
    holds 'all(.published[]; .matches and .sha256 == .published_sha256)' info "libsvm:$real/a9a/a9a"
    cp "$real/a9a/a9a.t" . && printf '+' | dd of=a9a.t conv=notrunc 2>/dev/null # the first label becomes +1
    published "differs from the published file (size 1164628 as published, SHA-256 " libsvm:a9a.t
else
    echo "not run: the published files themselves, because there is no folder $real (VERBENA_TEST_DATA)"
fi

# ---- generated rows
"$verbena" data synth criteo rows.csr --n 3000 --features 5000 >/dev/null || fail "synth criteo"
holds '.samples == 3000 and .features == 5000' info csr:rows.csr
holds '.features == 33762578 and .planted_accuracy > 0.7 and .planted_accuracy < 0.95' \
    info synth:kind=criteo,n=2000
holds '.classes == 1000 and .features == 150528' info synth:kind=imagenet,n=3
cp rows.csr first.csr
"$verbena" data convert synth:kind=criteo,n=3000,features=5000 rows.csr >/dev/null || fail convert
cmp -s rows.csr first.csr || fail "the same rows give a different file"

# ---- data that would train wrongly is refused before the first step
what=train
printf '1 1:1\n0 2147483647:1\n' >huge
refused 1 "huge: line 2: the index needs 2147483647 weights on every rank; if it is right, allow it with --features" \
    sparse-lr --data libsvm:huge --test-split 0.5 --batch 1 --steps 1
printf '1 1:3e38\n0 2:1\n' >large
refused 1 "large: line 1: the value is too large, scale the data" sparse-lr --data libsvm:large --test-data libsvm:large
printf '1 1:1\n0 2:1\n-1 2:1\n' >three
refused 1 "three: line 3: the labels must be 0 and 1, or -1 and 1" sparse-lr --data libsvm:three --test-data libsvm:three

# idx HEIGHT WIDTH: writes 20 images, the training part and the test part, to the folder HEIGHTxWIDTH
idx() {
    local part
    mkdir "$1x$2"
    for part in train t10k; do
        {
            # shellcheck disable=SC2059 # the format has the bytes
            printf "\\0\\0\\10\\3\\0\\0\\0\\24\\0\\0\\0\\$(printf %o "$1")\\0\\0\\0\\$(printf %o "$2")"
            head -c $((20 * $1 * $2)) /dev/zero
        } >"$1x$2/$part-images-idx3-ubyte"
        { printf '\0\0\10\1\0\0\0\24\1' && head -c 19 /dev/zero; } >"$1x$2/$part-labels-idx1-ubyte"
    done
}
idx 14 56
idx 48 64
refused 2 "lenet takes images of 1 x 28 x 28; the images of mnist:14x56 are 1 x 14 x 56" \
    lenet --data mnist:14x56 --batch 10 --steps 1
refused 2 "alexnet takes images of 3 x 32 x 32; the images of mnist:48x64 are 1 x 48 x 64" \
    alexnet --input 32 --data mnist:48x64 --batch 10 --steps 1
quiet mlp --data mnist:14x56 --batch 10 --steps 1 --json # its first layer takes any 784 pixels
refused 2 "mlp takes images of 1 x 28 x 28; the images of mnist:48x64" mlp --data mnist:48x64 --batch 10 --steps 1

# ---- the model's own batch is made smaller for few samples; a batch that was given is not
for ranks in 1 3; do
    run softmax --data mnist:14x56 --steps 1 --json --ranks $ranks
    want="warn engine/train/train_recipe.*: the batch is $((20 / ranks)) instead of 100, because there are only 20 samples"
    [ "$code" = 0 ] || fail "train with few samples on $ranks ranks: exit $code: $err"
    [ "$(grep -c "$want" err)" = 1 ] || fail "train with few samples on $ranks ranks: $err"
    final ".global_batch == $((20 / ranks * ranks))" few samples
done
refused 2 "a step of 100 samples is not possible: the number must be from 1 (one per rank) to 20" \
    softmax --data mnist:14x56 --batch 100 --steps 1

# ---- a file that is overwritten or truncated while it is in use: the error message must name the file
what=train
cp rows.csr over.csr
start 100 sparse-lr --data csr:over.csr --test-split 0.1 --steps 100000000
head -c "$(stat -c %s over.csr)" /dev/urandom | dd of=over.csr conv=notrunc 2>/dev/null
wait "$job"
code=$?
[ $code = 1 ] || fail "a file was overwritten: exit $code: $(cat err)"
grep -q "^error data/csr.*: over.csr: row [0-9]*: the file changed while it was in use" err ||
    fail "a file was overwritten: $(cat err)"

start 100 sparse-lr --data csr:rows.csr --test-split 0.1 --steps 100000000
truncate -s 5000 rows.csr
wait "$job"
code=$?
[ $code = 1 ] || fail "a file was cut off: exit $code"
# The rest of the last page reads as zeros, so a row there may be found to have changed first.
grep -qx -e "error base/mapped: rows.csr: offset [0-9]* can no longer be read: the file was truncated, or its disk failed" \
    -e "error data/csr.*: rows.csr: row [0-9]*: the file changed while it was in use.*" err ||
    fail "a file was cut off: $(cat err)"
[ "$(grep -vc '^recipe: ' err)" = 1 ] || fail "a file was cut off: not one line: $(cat err)"
exit $bad
